"""Covariance as an object: what a Gaussian asks of it, and the structures it can have.

A structure without values, such as `Diagonal()`, is a request; `from_moments` returns the same
structure with values.  `floor` bounds the eigenvalues from below; within that bound `from_moments`
is the exact maximum-likelihood solution, so that EM never lowers the likelihood.
"""

from __future__ import annotations

import abc
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from .._core import (
    array_parameter,
    buffer,
    cholesky,
    log_det_cholesky,
    positive,
    positive_definite,
    refuse_outside,
)


class AbstractCovariance(eqx.Module):
    """A covariance matrix Σ of known structure."""

    def __check_init__(self) -> None:
        # zero is let in, for what moves without noise
        refuse_outside(self, closed=True)

    @abc.abstractmethod
    def matrix(self) -> Array:
        """Σ as a dense matrix."""

    @abc.abstractmethod
    def variances(self) -> Array:
        """The diagonal of Σ."""

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
    def precision(self) -> tuple[Array, Array]:
        """Σ⁻¹ as a dense matrix, and log |Σ|, from one factorisation."""

    @abc.abstractmethod
    def second_moments(self, x: Array) -> Array:
        """The vector of products of entries of x that the structure needs."""

    @abc.abstractmethod
    def precision_coefficients(self) -> Array:
        """The vector c with −½ xᵀΣ⁻¹x = c · second_moments(x)."""

    @abc.abstractmethod
    def from_precision_coefficients(self, coefficients: Array) -> AbstractCovariance:
        """The inverse of `precision_coefficients`, of a structure that holds any such vector."""

    @abc.abstractmethod
    def from_moments(self, weight: Array, mean: Array, second: Array) -> Self:
        """Maximum likelihood for Σ w second_moments(x) = `second` about `mean`, Σ w = `weight`.

        `weight` is a number per coordinate.  A stack of `mean`s (with a leading axis) gives a stack.
        """

    @abc.abstractmethod
    def scale(self, factor: Array) -> AbstractCovariance:
        """The covariance of diag(factor) x, of the narrowest structure that holds it.

        One `factor` for all coordinates, a scalar, leaves every structure what it is.
        """

    @property
    @abc.abstractmethod
    def separable(self) -> bool:
        """Whether the coordinates are independent."""

    @property
    @abc.abstractmethod
    def unit_free(self) -> bool:
        """Whether the structure is the same in any units of the single coordinates.

        One that is not, such as equal variances, is fitted in one unit for all of them.
        """

    @property
    @abc.abstractmethod
    def closed_form(self) -> bool:
        """Whether `from_moments` is the maximum itself, and not only a step towards it."""


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


def _beside(floor: float | Array, ndim: int) -> Array:
    """A scalar or stacked floor with the axes it takes to broadcast to `ndim` axes."""
    floor = jnp.asarray(floor)
    return floor.reshape(floor.shape + (1,) * (ndim - floor.ndim))


def floored(scatter: Array, floor: float | Array) -> Array:
    """The matrix (or stack) nearest in likelihood to `scatter` with eigenvalues ≥ `floor`.

    Maximising −log|Σ| − tr Σ⁻¹S over Σ ⪰ floor·I clips the eigenvalues of S.
    """
    floor = _beside(floor, scatter.ndim - 1)
    eye = jnp.broadcast_to(jnp.eye(scatter.shape[-1], dtype=scatter.dtype), scatter.shape)
    shifted = scatter - floor[..., None] * eye
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

    value: Array | None = array_parameter(positive_definite, ndim=2, default=None)
    floor: float | Array = buffer(default=1e-6)

    def _value(self) -> Array:
        return filled(self, self.value)

    def _factor(self) -> Array:
        return cholesky(self._value())[0]

    def matrix(self) -> Array:
        return self._value()

    def variances(self) -> Array:
        return jnp.diagonal(self._value(), axis1=-2, axis2=-1)

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

    def precision(self) -> tuple[Array, Array]:
        factor = self._factor()
        eye = jnp.eye(self.noise_size, dtype=factor.dtype)
        return jax.scipy.linalg.cho_solve((factor, True), eye), log_det_cholesky(factor)

    def second_moments(self, x: Array) -> Array:
        return dense_second_moments(x)

    def precision_coefficients(self) -> Array:
        return dense_precision_coefficients(self.solve(jnp.eye(self.noise_size, dtype=self._value().dtype)))

    def from_precision_coefficients(self, coefficients: Array) -> Full:
        dim = self.noise_size
        rows, columns = triangle(dim)
        halves = coefficients / np.where(rows == columns, 1.0, 2.0).astype(coefficients.dtype)
        precision = -2 * from_triangle(halves, dim)
        return Full(jnp.linalg.inv(precision), self.floor)

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Full:
        return Full(floored(dense_scatter(weight, mean, second), self.floor), self.floor)

    def scale(self, factor: Array) -> Full:
        factor = jnp.broadcast_to(factor, (self.noise_size,))
        return Full(self._value() * jnp.outer(factor, factor), self.floor)

    @property
    def separable(self) -> bool:
        return False

    @property
    def unit_free(self) -> bool:
        return True

    @property
    def closed_form(self) -> bool:
        return True


def dense_precision_coefficients(precision: Array) -> Array:
    rows, columns = triangle(precision.shape[-1])
    return -0.5 * precision[rows, columns] * np.where(rows == columns, 1.0, 2.0).astype(precision.dtype)


def dense_scatter(weight: Array, mean: Array, second: Array) -> Array:
    """E[xxᵀ] − μμᵀ from summed upper-triangle products; `weight` holds equal entries."""
    dim = mean.shape[-1]
    moments = from_triangle(second, dim) / weight[..., :1, None]
    return moments - mean[..., :, None] * mean[..., None, :]


class Diagonal(AbstractCovariance):
    """Independent coordinates, each with its own variance."""

    variance: Array | None = array_parameter(positive, default=None)
    floor: float | Array = buffer(default=1e-6)

    def _value(self) -> Array:
        return filled(self, self.variance)

    def matrix(self) -> Array:
        return jnp.diag(self._value())

    def variances(self) -> Array:
        return self._value()

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

    def precision(self) -> tuple[Array, Array]:
        return jnp.diag(1 / self._value()), self.log_det()

    def second_moments(self, x: Array) -> Array:
        return x**2

    def precision_coefficients(self) -> Array:
        return -0.5 / self._value()

    def from_precision_coefficients(self, coefficients: Array) -> Diagonal:
        return Diagonal(-0.5 / coefficients, self.floor)

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Diagonal:
        return Diagonal(jnp.maximum(second / weight - mean**2, _beside(self.floor, mean.ndim)), self.floor)

    def scale(self, factor: Array) -> Diagonal:
        return Diagonal(self._value() * factor**2, self.floor)

    @property
    def separable(self) -> bool:
        return True

    @property
    def unit_free(self) -> bool:
        return True

    @property
    def closed_form(self) -> bool:
        return True


class Spherical(AbstractCovariance):
    """One variance for all `dim` coordinates."""

    variance: Array | None = array_parameter(positive, ndim=0, default=None)
    floor: float | Array = buffer(default=1e-6)
    dim: int = eqx.field(static=True, default=0)

    def _value(self) -> Array:
        return filled(self, self.variance)

    def matrix(self) -> Array:
        return self._value() * jnp.eye(self.dim, dtype=self._value().dtype)

    def variances(self) -> Array:
        return jnp.full(self.dim, self._value())

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

    def precision(self) -> tuple[Array, Array]:
        return jnp.eye(self.dim, dtype=self._value().dtype) / self._value(), self.log_det()

    def second_moments(self, x: Array) -> Array:
        return x**2

    def precision_coefficients(self) -> Array:
        return jnp.full(self.dim, -0.5 / self._value())

    def from_precision_coefficients(self, coefficients: Array) -> Diagonal:
        return Diagonal(-0.5 / coefficients, self.floor)

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Spherical:
        # a coordinate without weight has no mean, and must not spoil the others
        centre = jnp.where(weight > 0, mean, 0)
        residual = jnp.sum(second - weight * centre**2, axis=-1) / jnp.sum(weight, axis=-1)
        return Spherical(jnp.maximum(residual, self.floor), self.floor, mean.shape[-1])

    def scale(self, factor: Array) -> Diagonal | Spherical:
        if jnp.ndim(factor) == 0:
            return Spherical(self._value() * factor**2, self.floor, self.dim)
        return Diagonal(self._value() * factor**2, self.floor)

    @property
    def separable(self) -> bool:
        return True

    @property
    def unit_free(self) -> bool:
        return False

    @property
    def closed_form(self) -> bool:
        return True


class LowRank(AbstractCovariance):
    """Σ = F Fᵀ + diag(d), with F of few columns: the covariance of factor analysis.

    `from_moments` takes `n_steps` EM steps from the present values, so that the likelihood never
    falls; a structure without values starts at the leading eigenvectors of the scatter.

    Attributes:
        factor: F, (dim, rank).
        diagonal: d, the variances that the factors do not explain.
        rank: the number of columns to start with; `factor` decides once there are values.
        n_steps: EM steps that one `from_moments` takes.

    >>> LowRank(jnp.ones((2, 1)), jnp.ones(2)).log_det().round(6).item()
    1.098612
    """

    factor: Array | None = array_parameter(ndim=2, default=None)
    diagonal: Array | None = array_parameter(positive, default=None)
    floor: float | Array = buffer(default=1e-6)
    rank: int = eqx.field(static=True, default=1)
    n_steps: int = eqx.field(static=True, default=10)

    def _values(self) -> tuple[Array, Array]:
        return filled(self, self.factor), filled(self, self.diagonal)

    def _replace(self, factor: Array, diagonal: Array) -> LowRank:
        return LowRank(factor, diagonal, self.floor, factor.shape[-1], self.n_steps)

    def matrix(self) -> Array:
        f, d = self._values()
        return f @ f.T + jnp.diag(d)

    def _inner(self) -> tuple[Array, Array]:
        """G = D^{−½} F and the Cholesky factor of I + GᵀG, as small as the rank."""
        f, d = self._values()
        g = f / jnp.sqrt(d)[:, None]
        return g, jnp.linalg.cholesky(jnp.eye(f.shape[1], dtype=f.dtype) + g.T @ g)

    def variances(self) -> Array:
        f, d = self._values()
        return jnp.sum(f**2, axis=-1) + d

    def log_det(self) -> Array:
        return log_det_cholesky(self._inner()[1]) + jnp.sum(jnp.log(self._values()[1]))

    def whiten(self, v: Array) -> Array:
        g, lower = self._inner()
        scaled = v / jnp.sqrt(self._values()[1])
        # (I + GGᵀ)⁻¹ = WᵀW for W = I − G (I + Lᵀ)⁻¹ L⁻¹ Gᵀ, where LLᵀ = I + GᵀG
        inner = solve_triangular(lower, g.T @ scaled, lower=True)
        eye = jnp.eye(len(lower), dtype=lower.dtype)
        return scaled - g @ solve_triangular(eye + lower.T, inner, lower=False)

    def colour(self, noise: Array) -> Array:
        f, d = self._values()
        return f @ noise[: f.shape[1]] + jnp.sqrt(d) * noise[f.shape[1] :]

    @property
    def noise_size(self) -> int:
        return sum(self._values()[0].shape)

    def solve(self, v: Array) -> Array:
        g, lower = self._inner()
        root = jnp.sqrt(self._values()[1]).reshape((-1,) + (1,) * (v.ndim - 1))
        scaled = v / root
        return (scaled - g @ jax.scipy.linalg.cho_solve((lower, True), g.T @ scaled)) / root

    def precision(self) -> tuple[Array, Array]:
        g, lower = self._inner()
        d = self._values()[1]
        root = jnp.sqrt(d)
        # (I + GGᵀ)⁻¹ = I − HᵀH with H = L⁻¹Gᵀ
        h = solve_triangular(lower, g.T, lower=True)
        inner = jnp.eye(len(d), dtype=d.dtype) - h.T @ h
        return inner / jnp.outer(root, root), log_det_cholesky(lower) + jnp.sum(jnp.log(d))

    def second_moments(self, x: Array) -> Array:
        return dense_second_moments(x)

    def precision_coefficients(self) -> Array:
        d = self._values()[1]
        return dense_precision_coefficients(self.solve(jnp.eye(len(d), dtype=d.dtype)))

    def from_precision_coefficients(self, coefficients: Array) -> Full:
        dim = self._values()[0].shape[-2]
        return Full(jnp.eye(dim, dtype=coefficients.dtype), self.floor).from_precision_coefficients(
            coefficients
        )

    def from_moments(self, weight: Array, mean: Array, second: Array) -> LowRank:
        scatter = dense_scatter(weight, mean, second)
        floor = _beside(self.floor, mean.ndim)
        if self.factor is None:
            f, d = _leading(scatter, self.rank, floor)
        else:
            f, d = self._values()

        def step(_: int, now: tuple[Array, Array]) -> tuple[Array, Array]:
            return _factor_step(scatter, now[0], now[1], floor)

        f, d = jax.lax.fori_loop(0, self.n_steps, step, (f, d))
        return self._replace(f, d)

    def scale(self, factor: Array) -> LowRank:
        f, d = self._values()
        factor = jnp.broadcast_to(factor, d.shape)
        return self._replace(f * factor[:, None], d * factor**2)

    @property
    def separable(self) -> bool:
        return False

    @property
    def unit_free(self) -> bool:
        return True

    @property
    def closed_form(self) -> bool:
        return False


def _leading(scatter: Array, rank: int, floor: Array) -> tuple[Array, Array]:
    """F from the leading eigenvectors of the matrix (or stack) `scatter`, d from what is left."""
    values, vectors = jnp.linalg.eigh(scatter)
    rank = min(rank, values.shape[-1])
    left = values[..., : values.shape[-1] - rank]
    # where the factors could explain everything, half of the least variance is noise all the same
    noise = jnp.mean(left, axis=-1, keepdims=True) if left.shape[-1] else values[..., :1] / 2
    length = jnp.sqrt(jnp.maximum(values[..., -rank:] - noise, floor))
    f = vectors[..., -rank:] * length[..., None, :]
    rest = jnp.diagonal(scatter, axis1=-2, axis2=-1) - jnp.sum(f**2, axis=-1)
    return f, jnp.maximum(rest, floor)


def _factor_step(scatter: Array, f: Array, d: Array, floor: Array) -> tuple[Array, Array]:
    """One EM step of factor analysis on the matrix (or stack) `scatter`."""
    scaled = jnp.swapaxes(f / d[..., None], -1, -2)
    eye = jnp.broadcast_to(jnp.eye(f.shape[-1], dtype=f.dtype), (*f.shape[:-2], f.shape[-1], f.shape[-1]))
    recognise = jnp.linalg.solve(eye + scaled @ f, scaled)
    across = recognise @ scatter
    hidden = eye - recognise @ f + across @ jnp.swapaxes(recognise, -1, -2)
    new = jnp.swapaxes(jnp.linalg.solve(hidden, across), -1, -2)
    rest = jnp.diagonal(scatter, axis1=-2, axis2=-1) - jnp.einsum("...iq,...qi->...i", new, across)
    return new, jnp.maximum(rest, floor)


class AbstractSharing(AbstractCovariance):
    """A covariance of which the members of a stack have something in common."""

    @abc.abstractmethod
    def component_axes(self) -> Any:
        """Its tree with the axis along which members are stacked; None for what all of them share."""


class Tied(AbstractSharing):
    """One covariance shared by a stack of components.

    In a stack the arrays inside are not stacked; `component_axes` knows.  `from_moments` on stacked
    moments pools them:  Σ = Σ_k w_k (S_k − μ_k μ_kᵀ) / Σ_k w_k.

    >>> Tied(Diagonal(jnp.ones(2))).log_det().item()
    0.0
    """

    covariance: AbstractCovariance

    def component_axes(self) -> Any:
        return jax.tree.map(lambda _: None, self)

    def matrix(self) -> Array:
        return self.covariance.matrix()

    def variances(self) -> Array:
        return self.covariance.variances()

    def log_det(self) -> Array:
        return self.covariance.log_det()

    def whiten(self, v: Array) -> Array:
        return self.covariance.whiten(v)

    def colour(self, noise: Array) -> Array:
        return self.covariance.colour(noise)

    @property
    def noise_size(self) -> int:
        return self.covariance.noise_size

    def solve(self, v: Array) -> Array:
        return self.covariance.solve(v)

    def precision(self) -> tuple[Array, Array]:
        return self.covariance.precision()

    def second_moments(self, x: Array) -> Array:
        return self.covariance.second_moments(x)

    def precision_coefficients(self) -> Array:
        return self.covariance.precision_coefficients()

    def from_precision_coefficients(self, coefficients: Array) -> Tied:
        return Tied(self.covariance.from_precision_coefficients(coefficients))

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Tied:
        if mean.ndim == 1:
            return Tied(self.covariance.from_moments(weight, mean, second))
        # a component without weight has no mean, and must not spoil the others
        centre = jnp.where(weight > 0, jnp.sqrt(weight) * mean, 0)
        pooled = jnp.sum(second - jax.vmap(self.covariance.second_moments)(centre), axis=0)
        total = jnp.sum(weight, axis=0)
        return Tied(self.covariance.from_moments(total, jnp.zeros_like(total), pooled))

    def scale(self, factor: Array) -> Tied:
        return Tied(self.covariance.scale(factor))

    @property
    def separable(self) -> bool:
        return self.covariance.separable

    @property
    def unit_free(self) -> bool:
        return self.covariance.unit_free

    @property
    def closed_form(self) -> bool:
        return self.covariance.closed_form


def filled(owner: AbstractCovariance, value: Array | None) -> Array:
    """The value of a structure, refused where it is but a request."""
    if value is None:
        raise ValueError(
            f"{type(owner).__name__}() has no values yet. Pass them, or fit a model that has it."
        )
    return value
