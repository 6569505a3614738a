"""Affine maps: diagonal, triangular, general; permutations; standardising and whitening."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from .._core import (
    AbstractContinuous,
    pack_triangle,
    parameter,
    positive,
    positive_definite,
    triangle_diagonal,
    triangle_order,
    unpack_triangle,
)
from ._base import AbstractBijection
from ._compose import Inverse


class Affine(AbstractBijection):
    """y = shift + scale · x, entry by entry, with positive scales.

    >>> Affine(jnp.array([1.0]), jnp.array([2.0])).forward(jnp.array([3.0]))[0].tolist()
    [7.0]
    """

    shift: Array = parameter()
    scale: Array = parameter(positive)

    def forward(self, x: Array) -> tuple[Array, Array]:
        return self.shift + self.scale * x, jnp.sum(jnp.log(self.scale))

    def inverse(self, y: Array) -> tuple[Array, Array]:
        return (y - self.shift) / self.scale, -jnp.sum(jnp.log(self.scale))

    @staticmethod
    def standardise(mean: Array, scale: Array) -> Inverse:
        """The map x ↦ (x − mean) / scale; a scale of zero (a constant column) counts as one.

        >>> Affine.standardise(jnp.array([5.0]), jnp.array([2.0])).forward(jnp.array([9.0]))[0].tolist()
        [2.0]
        """
        # the difference is taken first: −mean/scale + x/scale would cancel for data far from zero
        return Inverse(Affine(mean, jnp.where(scale > 0, scale, 1)))


@dataclasses.dataclass(frozen=True)
class PositiveTriangular(AbstractContinuous):
    """Lower triangular matrices with a positive diagonal; free are the entries up to it, row by row."""

    phrase = "lower triangular matrices with positive diagonal"
    name = "lower triangular with positive diagonal"
    shape: tuple[int, ...] | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        n = x.shape[-1]
        return np.isfinite(x) & np.where(
            np.eye(n, dtype=bool), x > 0, (np.tri(n) > 0) | (x == 0)
        ) | np.isnan(x)

    def closure(self, value: np.ndarray) -> bool:
        return not np.isnan(value).any()

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        return None

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return positive_definite.free_shape(shape)

    def to_free(self, value: Array) -> Array:
        packed, at = pack_triangle(value), triangle_diagonal(value.shape[-1])
        return packed.at[..., at].set(positive.to_free(packed[..., at]))

    def from_free(self, free: Array) -> Array:
        at = triangle_diagonal(triangle_order(free.shape[-1]))
        return unpack_triangle(free.at[..., at].set(positive.from_free(free[..., at])))

    def log_det(self, free: Array) -> Array:
        return positive.log_det(free[..., triangle_diagonal(triangle_order(free.shape[-1]))])


class TriangularAffine(AbstractBijection):
    """y = shift + L x with L lower triangular and its diagonal positive.

    >>> lower = jnp.array([[2.0, 0.0], [1.0, 3.0]])
    >>> TriangularAffine(jnp.zeros(2), lower).forward(jnp.ones(2))[0].tolist()
    [2.0, 4.0]
    """

    shift: Array = parameter()
    lower: Array = parameter(PositiveTriangular())

    def forward(self, x: Array) -> tuple[Array, Array]:
        return self.shift + jnp.tril(self.lower) @ x, jnp.sum(jnp.log(jnp.diagonal(self.lower)))

    def inverse(self, y: Array) -> tuple[Array, Array]:
        x = solve_triangular(self.lower, y - self.shift, lower=True)
        return x, -jnp.sum(jnp.log(jnp.diagonal(self.lower)))

    @staticmethod
    def whiten(mean: Array, covariance: Array, floor: float = 1e-6) -> Inverse:
        """The map x ↦ L⁻¹ (x − mean) with L Lᵀ = covariance, after which the covariance is I.

        Eigenvalues of the correlation matrix below `floor` (columns that depend on each other) are
        raised to it; working on the correlations makes the floor independent of units.

        >>> TriangularAffine.whiten(jnp.zeros(1), jnp.array([[4.0]])).forward(jnp.array([2.0]))[0].tolist()
        [1.0]
        """
        variance = jnp.diagonal(covariance)
        scale = jnp.sqrt(jnp.where(variance > 0, variance, 1))
        values, vectors = jnp.linalg.eigh(covariance / jnp.outer(scale, scale))
        root = vectors * jnp.sqrt(jnp.maximum(values, floor))[None, :]
        # root rootᵀ = RᵀR from the QR factors of rootᵀ; the sign of each row of R is free
        upper = jnp.linalg.qr(root.T, mode="r")
        upper = upper * jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0).astype(upper.dtype)[:, None]
        return Inverse(TriangularAffine(mean, jnp.tril(scale[:, None] * upper.T)))


class GeneralAffine(AbstractBijection):
    """y = shift + A x with A any invertible matrix.

    >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]])
    >>> GeneralAffine(jnp.zeros(2), turn).forward(jnp.array([1.0, 0.0]))[0].tolist()
    [0.0, 1.0]
    """

    shift: Array = parameter()
    matrix: Array = parameter()

    def forward(self, x: Array) -> tuple[Array, Array]:
        return self.shift + self.matrix @ x, jnp.linalg.slogdet(self.matrix)[1]

    def inverse(self, y: Array) -> tuple[Array, Array]:
        return jnp.linalg.solve(self.matrix, y - self.shift), -jnp.linalg.slogdet(self.matrix)[1]


class Permutation(AbstractBijection):
    """y_i = x_{order_i}.

    >>> Permutation(jnp.array([2, 0, 1])).forward(jnp.array([5.0, 6.0, 7.0]))[0].tolist()
    [7.0, 5.0, 6.0]
    """

    order: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        return x[self.order], jnp.zeros((), x.dtype)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        return jnp.zeros_like(y).at[self.order].set(y), jnp.zeros((), y.dtype)
