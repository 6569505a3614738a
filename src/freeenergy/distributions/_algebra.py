"""Gaussian algebra: what stays Gaussian, in moment form and in precision form.

Functions take and give `Gaussian` (mean and covariance) or `Information` (Σ⁻¹μ and Σ⁻¹).  What is
a slice in one form is a Schur complement in the other; choose the form by which matrix is small.
Indices are fixed sequences of coordinate numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import (
    LOG_2PI,
    array_parameter,
    cholesky,
    log_det_cholesky,
    positive_definite,
    symmetrise,
)
from ._covariance import AbstractCovariance, Full
from ._gaussian import Gaussian


class Information(eqx.Module):
    """A Gaussian in precision form:  p(x) ∝ exp(hᵀx − ½ xᵀJx),  h = Σ⁻¹μ, J = Σ⁻¹.

    >>> Information(jnp.array([2.0]), jnp.array([[4.0]])).gaussian().mean.item()
    0.5
    """

    shift: Array = array_parameter()
    precision: Array = array_parameter(positive_definite, ndim=2)

    def gaussian(self) -> Gaussian:
        """The same density in moment form."""
        covariance = _inverse(self.precision)
        return Gaussian(covariance @ self.shift, Full(covariance))

    def log_normaliser(self) -> Array:
        """log ∫ exp(hᵀx − ½ xᵀJx) dx."""
        factor = cholesky(self.precision)[0]
        half = jax.scipy.linalg.solve_triangular(factor, self.shift, lower=True)
        return 0.5 * (jnp.vdot(half, half) - log_det_cholesky(factor) + len(half) * LOG_2PI)


def information(p: Gaussian) -> Information:
    """`p` in precision form.

    >>> from freeenergy.distributions import Diagonal
    >>> information(Gaussian(jnp.array([1.0]), Diagonal(jnp.array([0.5])))).shift.item()
    2.0
    """
    eye = jnp.eye(p.mean.shape[-1], dtype=p.mean.dtype)
    return Information(p.covariance.solve(p.mean), symmetrise(p.covariance.solve(eye)))


def _inverse(matrix: Array) -> Array:
    factor = cholesky(matrix)[0]
    return symmetrise(jax.scipy.linalg.cho_solve((factor, True), jnp.eye(len(matrix), dtype=matrix.dtype)))


def _blocks(matrix: Array, a: np.ndarray, b: np.ndarray) -> tuple[Array, Array, Array]:
    return matrix[np.ix_(a, a)], matrix[np.ix_(a, b)], matrix[np.ix_(b, b)]


def _rest(index: np.ndarray, dim: int) -> np.ndarray:
    return np.setdiff1d(np.arange(dim), index)


@functools.singledispatch
def marginal(p: Any, index: Sequence[int]) -> Any:
    """The law of the coordinates `index`, in the form of `p`.

    >>> wide = Gaussian(jnp.array([1.0, 2.0]), Full(jnp.eye(2)))
    >>> marginal(wide, [1]).mean.item()
    2.0
    """
    raise TypeError(
        f"The 'p' argument of marginal must be Gaussian or Information. Got {type(p).__name__} instead."
    )


@marginal.register
def _(p: Gaussian, index: Sequence[int]) -> Gaussian:
    i = np.asarray(index)
    return Gaussian(p.mean[i], Full(p.covariance.matrix()[np.ix_(i, i)]))


@marginal.register
def _(p: Information, index: Sequence[int]) -> Information:
    i = np.asarray(index)
    rest = _rest(i, len(p.shift))
    kept, across, gone = _blocks(p.precision, i, rest)
    gain = jax.scipy.linalg.cho_solve((cholesky(gone)[0], True), across.T).T
    return Information(p.shift[i] - gain @ p.shift[rest], symmetrise(kept - gain @ across.T))


@functools.singledispatch
def conditional(p: Any, index: Sequence[int], value: Array) -> Any:
    """The law of the other coordinates given that those in `index` are `value`, in the form of `p`.

    >>> pair = Gaussian(jnp.zeros(2), Full(jnp.array([[1.0, 0.5], [0.5, 1.0]])))
    >>> conditional(pair, [1], jnp.array([2.0])).mean.item()
    1.0
    """
    raise TypeError(
        f"The 'p' argument of conditional must be Gaussian or Information. Got {type(p).__name__} instead."
    )


@conditional.register
def _(p: Gaussian, index: Sequence[int], value: Array) -> Gaussian:
    i = np.asarray(index)
    rest = _rest(i, len(p.mean))
    hidden, across, seen = _blocks(p.covariance.matrix(), rest, i)
    gain = jax.scipy.linalg.cho_solve((cholesky(seen)[0], True), across.T).T
    mean = p.mean[rest] + gain @ (value - p.mean[i])
    return Gaussian(mean, Full(symmetrise(hidden - gain @ across.T)))


@conditional.register
def _(p: Information, index: Sequence[int], value: Array) -> Information:
    i = np.asarray(index)
    rest = _rest(i, len(p.shift))
    hidden, across, _ = _blocks(p.precision, rest, i)
    return Information(p.shift[rest] - across @ value, hidden)


@functools.singledispatch
def product(p: Any, q: Any) -> tuple[Any, Array]:
    """p(x) q(x) as a density and the log of its normaliser, log ∫ p(x) q(x) dx.

    For `Information` the factors are exp(hᵀx − ½ xᵀJx) themselves, so precisions and shifts add.

    >>> unit = Full(jnp.eye(1))
    >>> both, _ = product(Gaussian(jnp.zeros(1), unit), Gaussian(jnp.full(1, 2.0), unit))
    >>> both.mean.round(6).item(), both.covariance.matrix().round(6).item()
    (1.0, 0.5)
    """
    raise TypeError(
        f"The 'p' argument of product must be Gaussian or Information. Got {type(p).__name__} instead."
    )


@product.register
def _(p: Gaussian, q: Gaussian) -> tuple[Gaussian, Array]:
    first, second = p.covariance.matrix(), q.covariance.matrix()
    overlap = Gaussian(q.mean, Full(first + second))
    gain = jax.scipy.linalg.cho_solve((cholesky(first + second)[0], True), first).T
    mean = p.mean + gain @ (q.mean - p.mean)
    return Gaussian(mean, Full(symmetrise(gain @ second))), overlap.log_prob(p.mean)


@product.register
def _(p: Information, q: Information) -> tuple[Information, Array]:
    both = Information(p.shift + q.shift, p.precision + q.precision)
    return both, both.log_normaliser()


def affine(p: Gaussian, matrix: Array, offset: Array, noise: AbstractCovariance | None = None) -> Gaussian:
    """The law of y = A x + b + ε for x ~ p and ε ~ N(0, noise):  N(Aμ + b, AΣAᵀ + noise).

    >>> line = affine(Gaussian(jnp.ones(1), Full(jnp.eye(1))), jnp.array([[3.0]]), jnp.zeros(1))
    >>> line.mean.item(), line.covariance.matrix().item()
    (3.0, 9.0)
    """
    covariance = symmetrise(matrix @ p.covariance.matrix() @ matrix.T)
    if noise is not None:
        covariance = covariance + noise.matrix()
    return Gaussian(matrix @ p.mean + offset, Full(covariance))


def joint(p: Gaussian, matrix: Array, offset: Array, noise: AbstractCovariance) -> Gaussian:
    """The law of (x, y) for x ~ p and y = A x + b + ε, ε ~ N(0, noise).

    >>> source = Gaussian(jnp.zeros(1), Full(jnp.eye(1)))
    >>> joint(source, jnp.eye(1), jnp.zeros(1), Full(jnp.eye(1))).covariance.matrix().tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    y = affine(p, matrix, offset, noise)
    source = p.covariance.matrix()
    across = source @ matrix.T
    covariance = jnp.block([[source, across], [across.T, y.covariance.matrix()]])
    return Gaussian(jnp.concatenate([p.mean, y.mean]), Full(covariance))


def wasserstein2(p: Gaussian, q: Gaussian) -> Array:
    """The Wasserstein-2 distance,  W² = ‖μ−ν‖² + tr(Σ + Λ − 2 (Λ^½ Σ Λ^½)^½).

    Of equal Gaussians it is zero, and has no slope; the one given, zero, is a subgradient.

    >>> far = Gaussian(jnp.full(1, 3.0), Full(25 * jnp.eye(1)))
    >>> wasserstein2(Gaussian(jnp.zeros(1), Full(jnp.eye(1))), far).round(6).item()
    5.0
    """
    first, second = (cholesky(g.covariance.matrix())[0] for g in (p, q))
    apart = _apart(first, second)
    # of roots that are equal up to rounding the distance is none
    least = (16 * len(first) * jnp.finfo(first.dtype).eps) ** 2 * jnp.sum(first**2 + second**2)
    square = jnp.sum((p.mean - q.mean) ** 2) + jnp.where(apart > least, apart, 0)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)


@jax.custom_jvp
def _apart(a: Array, b: Array) -> Array:
    """min ‖A − B O‖² over rotations O:  tr(AAᵀ + BBᵀ − 2 (AᵀBBᵀA)^½) without a difference of traces."""
    return jnp.sum((a - b @ _rotation(a, b)) ** 2)


@_apart.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # the best rotation has no slope in what it makes smallest; its own, of roots with equal singular values
    # of AᵀB, would be no number
    (a, b), (da, db) = primals, tangents
    turn = _rotation(a, b)
    gap = a - b @ turn
    return jnp.sum(gap**2), 2 * jnp.sum(gap * (da - db @ turn))


def _rotation(a: Array, b: Array) -> Array:
    u, _, v = jnp.linalg.svd(a.T @ b)
    return v.T @ u.T
