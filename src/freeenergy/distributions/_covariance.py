"""Covariance as an object: what a Gaussian asks of it, and the structures it can have.

A structure without values, such as `Diagonal()`, is a request; `from_moments` returns the same
structure with values.  `floor` bounds the eigenvalues from below; within that bound `from_moments`
is the exact maximum-likelihood solution, so that EM never lowers the likelihood.
"""

from __future__ import annotations

import abc
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from .._core import buffer, cholesky, log_det_cholesky, parameter, positive, positive_definite


class AbstractCovariance(eqx.Module):
    """A covariance matrix Σ of known structure."""

    @abc.abstractmethod
    def matrix(self) -> Array:
        """Σ as a dense matrix."""

    @abc.abstractmethod
    def log_det(self) -> Array:
        """log |Σ|."""

    @abc.abstractmethod
    def whiten(self, v: Array) -> Array:
        """W v with WᵀW = Σ⁻¹, so that ‖W v‖² is the squared Mahalanobis length."""

    @abc.abstractmethod
    def colour(self, noise: Array) -> Array:
        """A draw with covariance Σ from standard normal `noise` of `noise_size` entries."""

    @property
    @abc.abstractmethod
    def noise_size(self) -> int:
        """How many standard normal numbers `colour` takes."""

    @abc.abstractmethod
    def solve(self, v: Array) -> Array:
        """Σ⁻¹ v."""

    @abc.abstractmethod
    def second_moments(self, x: Array) -> Array:
        """The vector of products of entries of x that the structure needs."""

    @abc.abstractmethod
    def precision_coefficients(self) -> Array:
        """The vector c with −½ xᵀΣ⁻¹x = c · second_moments(x)."""

    @abc.abstractmethod
    def from_precision_coefficients(self, coefficients: Array) -> Self:
        """The inverse of `precision_coefficients`."""

    @abc.abstractmethod
    def from_moments(self, weight: Array, mean: Array, second: Array) -> Self:
        """Maximum likelihood for Σ w second_moments(x) = `second` about `mean`, Σ w = `weight`.

        `weight` is a number per coordinate.  A stack of `mean`s (with a leading axis) gives a stack.
        """

    @abc.abstractmethod
    def scale(self, factor: Array) -> AbstractCovariance:
        """The covariance of diag(factor) x, of the narrowest structure that holds it."""

    @property
    @abc.abstractmethod
    def separable(self) -> bool:
        """Whether the coordinates are independent."""


def triangle(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column numbers of the upper triangle, as constants."""
    return np.triu_indices(dim)


def from_triangle(values: Array, dim: int) -> Array:
    """The symmetric matrix (or stack) with upper triangle `values`."""
    rows, columns = triangle(dim)
    index = np.zeros((dim, dim), int)
    index[rows, columns] = np.arange(len(rows))
    index = np.maximum(index, index.T)
    return values[..., index.ravel()].reshape((*values.shape[:-1], dim, dim))


def dense_second_moments(x: Array) -> Array:
    rows, columns = triangle(x.shape[-1])
    return x[rows] * x[columns]


def _floored(scatter: Array, floor: Array) -> Array:
    """The matrix (or stack) nearest in likelihood to `scatter` with eigenvalues ≥ `floor`.

    Maximising −log|Σ| − tr Σ⁻¹S over Σ ⪰ floor·I clips the eigenvalues of S.
    """
    dim = scatter.shape[-1]
    shifted = scatter - jnp.broadcast_to(floor * jnp.eye(dim, dtype=scatter.dtype), scatter.shape)
    clear = jnp.all(jnp.isfinite(jnp.linalg.cholesky(shifted)))

    def clip(matrix: Array) -> Array:
        values, vectors = jnp.linalg.eigh(matrix)
        values = jnp.maximum(values, floor)
        return jnp.einsum("...ij,...j,...kj->...ik", vectors, values, vectors)

    return jax.lax.cond(clear, lambda m: m, clip, scatter)


class Full(AbstractCovariance):
    """Any symmetric positive definite matrix.

    >>> Full(jnp.array([[2.0, 1.0], [1.0, 2.0]])).log_det().round(6).item()
    1.098612
    """

    value: Array | None = parameter(positive_definite, default=None)
    floor: float | Array = buffer(default=1e-6)

    def _value(self) -> Array:
        return _filled(self, self.value)

    def _factor(self) -> Array:
        return cholesky(self._value())[0]

    def matrix(self) -> Array:
        return self._value()

    def log_det(self) -> Array:
        return log_det_cholesky(self._factor())

    def whiten(self, v: Array) -> Array:
        return solve_triangular(self._factor(), v, lower=True)

    def colour(self, noise: Array) -> Array:
        return self._factor() @ noise

    @property
    def noise_size(self) -> int:
        return self._value().shape[-1]

    def solve(self, v: Array) -> Array:
        return jax.scipy.linalg.cho_solve((self._factor(), True), v)

    def second_moments(self, x: Array) -> Array:
        return dense_second_moments(x)

    def precision_coefficients(self) -> Array:
        return dense_precision_coefficients(self.solve(jnp.eye(self.noise_size)))

    def from_precision_coefficients(self, coefficients: Array) -> Full:
        dim = self.noise_size
        rows, columns = triangle(dim)
        halves = coefficients / np.where(rows == columns, 1.0, 2.0)
        precision = -2 * from_triangle(halves, dim)
        return Full(jnp.linalg.inv(precision), self.floor)

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Full:
        return Full(_floored(dense_scatter(weight, mean, second), jnp.asarray(self.floor)), self.floor)

    def scale(self, factor: Array) -> Full:
        return Full(self._value() * jnp.outer(factor, factor), self.floor)

    @property
    def separable(self) -> bool:
        return False


def dense_precision_coefficients(precision: Array) -> Array:
    rows, columns = triangle(precision.shape[-1])
    return -0.5 * precision[rows, columns] * np.where(rows == columns, 1.0, 2.0)


def dense_scatter(weight: Array, mean: Array, second: Array) -> Array:
    """E[xxᵀ] − μμᵀ from summed upper-triangle products; `weight` holds equal entries."""
    dim = mean.shape[-1]
    moments = from_triangle(second, dim) / weight[..., :1, None]
    return moments - mean[..., :, None] * mean[..., None, :]


class Diagonal(AbstractCovariance):
    """Independent coordinates, each with its own variance."""

    variance: Array | None = parameter(positive, default=None)
    floor: float | Array = buffer(default=1e-6)

    def _value(self) -> Array:
        return _filled(self, self.variance)

    def matrix(self) -> Array:
        return jnp.diag(self._value())

    def log_det(self) -> Array:
        return jnp.sum(jnp.log(self._value()))

    def whiten(self, v: Array) -> Array:
        return v / jnp.sqrt(self._value())

    def colour(self, noise: Array) -> Array:
        return jnp.sqrt(self._value()) * noise

    @property
    def noise_size(self) -> int:
        return self._value().shape[-1]

    def solve(self, v: Array) -> Array:
        return v / self._value().reshape((-1,) + (1,) * (v.ndim - 1))

    def second_moments(self, x: Array) -> Array:
        return x**2

    def precision_coefficients(self) -> Array:
        return -0.5 / self._value()

    def from_precision_coefficients(self, coefficients: Array) -> Diagonal:
        return Diagonal(-0.5 / coefficients, self.floor)

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Diagonal:
        return Diagonal(jnp.maximum(second / weight - mean**2, self.floor), self.floor)

    def scale(self, factor: Array) -> Diagonal:
        return Diagonal(self._value() * factor**2, self.floor)

    @property
    def separable(self) -> bool:
        return True


class Spherical(AbstractCovariance):
    """One variance for all `dim` coordinates."""

    variance: Array | None = parameter(positive, default=None)
    floor: float | Array = buffer(default=1e-6)
    dim: int = eqx.field(static=True, default=0)

    def _value(self) -> Array:
        return _filled(self, self.variance)

    def matrix(self) -> Array:
        return self._value() * jnp.eye(self.dim)

    def log_det(self) -> Array:
        return self.dim * jnp.log(self._value())

    def whiten(self, v: Array) -> Array:
        return v / jnp.sqrt(self._value())

    def colour(self, noise: Array) -> Array:
        return jnp.sqrt(self._value()) * noise

    @property
    def noise_size(self) -> int:
        return self.dim

    def solve(self, v: Array) -> Array:
        return v / self._value()

    def second_moments(self, x: Array) -> Array:
        return x**2

    def precision_coefficients(self) -> Array:
        return jnp.full(self.dim, -0.5) / self._value()

    def from_precision_coefficients(self, coefficients: Array) -> Spherical:
        return Spherical(jnp.mean(-0.5 / coefficients), self.floor, self.dim)

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Spherical:
        residual = jnp.sum(second - weight * mean**2, axis=-1) / jnp.sum(weight, axis=-1)
        return Spherical(jnp.maximum(residual, self.floor), self.floor, mean.shape[-1])

    def scale(self, factor: Array) -> Diagonal:
        return Diagonal(self._value() * factor**2, self.floor)

    @property
    def separable(self) -> bool:
        return True


def _filled(owner: AbstractCovariance, value: Array | None) -> Array:
    if value is None:
        raise ValueError(
            f"{type(owner).__name__}() has no values yet. Pass them, or fit a model that has it."
        )
    return value


