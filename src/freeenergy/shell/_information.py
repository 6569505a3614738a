"""Standard errors of fitted parameters, from the observed information."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from sklearn.exceptions import ConvergenceWarning

from .._core import Data, free_vector, sum_over_blocks
from ..models import AbstractRegularised

# curvature less than this part of the largest is none
_FLAT = 1e-9


def _coordinates(model: Any, mask: Any) -> tuple[Array, Callable[[Array], Any]]:
    """What may vary as free reals, and the model as a function of them."""
    free = free_vector(model, mask)
    return free.values, lambda vector: free.restore(vector)[0]


@eqx.filter_jit
def _curvature_of_rows(model: Any, mask: Any, data: Data, log_prob: Callable) -> tuple[Array, Array]:
    """Slope and curvature of the log-likelihood of all rows."""
    at, build = _coordinates(model, mask)

    def block(x: Any, w: Array) -> tuple[Array, Array]:
        def total(free: Array) -> Array:
            logs = jax.vmap(lambda row: log_prob(row, build(free)))(x)
            return jnp.sum(jnp.where(w > 0, w * logs, 0))

        return jax.grad(total)(at), jax.hessian(total)(at)

    return sum_over_blocks(block, data, block=64)


@eqx.filter_jit
def _curvature_of_prior(model: Any, mask: Any) -> tuple[Array, Array]:
    at, build = _coordinates(model, mask)

    def total(free: Array) -> Array:
        return -build(free).parameter_free_energy()

    return jax.grad(total)(at), jax.hessian(total)(at)


@eqx.filter_jit
def _slopes(model: Any, mask: Any, report: Callable, args: tuple[Array, ...]) -> Array:
    at, build = _coordinates(model, mask)
    return jax.jacfwd(lambda free: ravel_pytree(report(build(free), *args))[0])(at)


def standard_errors(
    model: Any, mask: Any, parts: list[tuple[Data, Callable]], report: Callable, *args: Array
) -> Any:
    """Standard errors of `report(model, *args)`, in the same tree.

    With I = −∇² log p(rows; θ) in free coordinates and J the slopes of what is reported, they are the
    roots of the diagonal of J I⁻¹ Jᵀ.  Directions in which nothing is curved do no harm to what does not
    change along them, such as a rotation of factors; what does change is NaN.

    Args:
        model: at a maximum of the likelihood (times its prior, if it has one).
        mask: a tree of booleans: which arrays vary.
        parts: rows, each with a module-level function `(row, model)` that gives their log-density.
        report: a module-level function.
        args: more for `report`.
    """
    slope, curvature = map(sum, zip(*(_curvature_of_rows(model, mask, *part) for part in parts)))
    if isinstance(model, AbstractRegularised):
        of_prior = _curvature_of_prior(model, mask)
        slope, curvature = slope + of_prior[0], curvature + of_prior[1]
    gradient, information = np.asarray(slope), -np.asarray(curvature)
    slopes = np.asarray(_slopes(model, mask, report, args))
    rebuild = ravel_pytree(report(model, *args))[1]
    errors = np.full(len(slopes), np.nan)
    if np.isfinite(information).all() and np.isfinite(slopes).all():
        largest = np.abs(np.diagonal(information)).max(initial=np.finfo(float).tiny)
        # a curvature that is no more than rounding of the others is none, and must not be made a unit
        least = 1e-12 * largest
        some = np.diagonal(information) > least
        unit = np.sqrt(np.maximum(np.diagonal(information), least))
        values, vectors = np.linalg.eigh(information * np.outer(some, some) / np.outer(unit, unit))
        along = slopes / unit @ vectors
        curved = values > _FLAT * np.abs(values).max(initial=0.0)
        flat = (along[:, ~curved] ** 2).sum(axis=1) > 1e-8 * (along**2).sum(axis=1)
        variances = (along[:, curved] ** 2 / values[curved]).sum(axis=1)
        errors = np.where(flat, np.nan, np.sqrt(variances))
        away = np.sqrt((((gradient / unit) @ vectors[:, curved]) ** 2 / values[curved]).sum())
        if away > 1:
            warnings.warn(
                f"The parameters are about {away:.1f} standard errors from where X is most likely: fit "
                "the same X with a smaller 'tol' first.",
                ConvergenceWarning,
                stacklevel=4,
            )
    if np.isnan(errors).any():
        warnings.warn(
            "The observed information is singular: the standard errors of parameters that X does not "
            "determine are NaN.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return jax.tree.map(np.asarray, rebuild(jnp.asarray(errors)))
