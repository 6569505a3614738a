"""Standard errors of fitted parameters, from the observed information."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

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
# a probability that moves by less than this while its log-odds move by one is at the edge of its range
_EDGE = 1e-12


def _coordinates(model: Any, mask: Any) -> tuple[Array, Callable[[Array], Any]]:
    """What may vary as free reals, and the model as a function of them."""
    free = free_vector(model, mask)
    return free.values, lambda vector: free.restore(vector)[0]


def _slope_and_curvature(total: Callable[[Array], Array], at: Array) -> tuple[Array, Array]:
    def slope(free: Array) -> tuple[Array, Array]:
        found = jax.grad(total)(free)
        return found, found

    curvature, found = jax.jacfwd(slope, has_aux=True)(at)
    return found, curvature


@eqx.filter_jit
def _curvature_of_rows(
    model: Any, mask: Any, data: Data, log_prob: Callable, robust: bool, block: int
) -> tuple[Array, Array, Array]:
    """Slope and curvature of the log-likelihood of all rows, and if `robust` Σ g gᵀ of its terms."""
    at, build = _coordinates(model, mask)

    def part(x: Any, w: Array) -> tuple[Array, Array, Array]:
        def terms(free: Array) -> Array:
            logs = jax.vmap(lambda row: jnp.atleast_1d(log_prob(row, build(free))))(x)
            return jnp.where(w[:, None] > 0, logs, 0)

        def total(free: Array) -> Array:
            return jnp.sum(w[:, None] * terms(free))

        outer = jnp.zeros((0, 0), at.dtype)
        if robust:
            slopes = jax.jacfwd(terms)(at)
            outer = jnp.einsum("r,rtp,rtq->pq", w, slopes, slopes)
        return *_slope_and_curvature(total, at), outer

    return sum_over_blocks(part, data, block=block)


@eqx.filter_jit
def _curvature_of_prior(model: Any, mask: Any) -> tuple[Array, Array]:
    at, build = _coordinates(model, mask)

    def total(free: Array) -> Array:
        return -build(free).parameter_free_energy()

    return _slope_and_curvature(total, at)


@eqx.filter_jit
def _slopes(model: Any, mask: Any, report: Callable, args: tuple[Array, ...]) -> tuple[Any, Array]:
    """What is reported, and its slopes in free coordinates."""
    at, build = _coordinates(model, mask)
    slopes = jax.jacfwd(lambda free: ravel_pytree(report(build(free), *args))[0])(at)
    return report(model, *args), slopes


def _like(tree: Any, numbers: np.ndarray) -> Any:
    """`numbers` in the places of those of `tree`, one array after another."""
    leaves, structure = jax.tree.flatten(tree)
    parts = np.split(numbers, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def _at_edge(tree: Any, slopes: np.ndarray) -> np.ndarray:
    """Which numbers of `tree` are among probabilities of sum one and are moved by nothing."""

    def shares(leaf: Any) -> np.ndarray:
        sums = np.sum(leaf, axis=-1, keepdims=True) if np.ndim(leaf) else np.full((), np.nan)
        return np.broadcast_to((np.min(leaf, initial=0.0) >= 0) & np.isclose(sums, 1), np.shape(leaf))

    among = np.concatenate([np.ravel(shares(leaf)) for leaf in jax.tree.leaves(tree)])
    return among & (np.abs(slopes).max(axis=1, initial=0.0) < _EDGE)


class Terms(NamedTuple):
    """Rows whose log-likelihood is a sum of terms, given by a module-level function `(row, model)`.

    Attributes:
        data: the rows.
        log_prob: a number for each row, or one for each step of a row that is a series.
        block: how many rows are done together.
    """

    data: Data
    log_prob: Callable
    block: int = 64


class Errors(NamedTuple):
    """Standard errors in the tree of what was reported, and what there is to say of them."""

    values: Any
    remarks: list[str]


def errors_of(
    model: Any, mask: Any, parts: list[Terms], report: Callable, *args: Array, robust: bool = False
) -> Errors:
    """Standard errors of `report(model, *args)`, in the same tree, and what is wrong with them.

    With I = −∇² log p(rows; θ) in free coordinates and J the slopes of what is reported, they are the
    roots of the diagonal of J I⁻¹ Jᵀ.  Directions in which nothing is curved do no harm to what does not
    change along them, such as a rotation of factors; what does change is NaN.  Probabilities of zero and
    one do not move: their errors are zero.  With `robust` they are those
    of J I⁻¹ (Σ g gᵀ) I⁻¹ Jᵀ with the slopes g of the terms of the likelihood, which hold for a model that
    is not the law of the rows (also known as the sandwich, Huber and White).

    Args:
        model: at a maximum of the likelihood (times its prior, if it has one).
        mask: a tree of booleans: which arrays vary.
        parts: rows with their log-density.
        report: a module-level function.
        args: more for `report`.
        robust: whether to make the sandwich.
    """
    found = [_curvature_of_rows(model, mask, *part[:2], robust, part.block) for part in parts]
    slope, curvature, outer = map(sum, zip(*jax.device_get(found)))
    if isinstance(model, AbstractRegularised):
        of_prior = jax.device_get(_curvature_of_prior(model, mask))
        slope, curvature = slope + of_prior[0], curvature + of_prior[1]
    gradient, information = np.asarray(slope), -np.asarray(curvature)
    values_of, slopes = _slopes(model, mask, report, args)
    slopes = np.asarray(slopes)
    slopes = np.where(_at_edge(values_of, slopes)[:, None], 0.0, slopes)
    errors, remarks = np.full(len(slopes), np.nan), []
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
        if robust:
            turned = (vectors / unit[:, None])[:, curved] / values[curved]
            variances = ((along[:, curved] @ (turned.T @ outer @ turned)) * along[:, curved]).sum(1)
        else:
            variances = (along[:, curved] ** 2 / values[curved]).sum(axis=1)
        errors = np.where(flat, np.nan, np.sqrt(variances))
        away = np.sqrt((((gradient / unit) @ vectors[:, curved]) ** 2 / values[curved]).sum())
        if away > 1:
            remarks.append(
                f"The parameters are about {away:.1f} standard errors from where X is most likely: fit "
                "the same X with a smaller 'tol' first."
            )
        singular = "The observed information is singular"
    else:
        singular = "The observed information is not finite, as at the edge of the range of a parameter"
    if np.isnan(errors).any():
        remarks.append(f"{singular}: the standard errors of parameters that X does not determine are NaN.")
    return Errors(_like(values_of, errors), remarks)


def standard_errors(model: Any, mask: Any, parts: list[Terms], report: Callable, *args: Array) -> Any:
    """The values of `errors_of`; what there is to say of them is a warning."""
    errors = errors_of(model, mask, parts, report, *args)
    for remark in errors.remarks:
        warnings.warn(remark, ConvergenceWarning, stacklevel=4)
    return errors.values
