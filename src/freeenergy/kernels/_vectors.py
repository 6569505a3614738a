"""Kernels of rows of numbers."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import NonNegative, parameter, positive, refuse_outside
from ._base import AbstractKernel, AbstractVectorKernel, as_number, per_column, root, squared_distances

_SMOOTHNESS = (0.5, 1.5, 2.5)


def _ones(xp: ModuleType, x: Any) -> Any:
    return xp.ones(len(x), x.dtype)


class Linear(AbstractVectorKernel):
    """k(x, y) = Σ v x y + c: Bayesian linear regression with the variances v of weights and c of the bias.

    Attributes:
        variance: v, one number, or one for each column (automatic relevance determination).
        offset: c; zero is no bias, and is not learned.

    >>> Linear(2.0, offset=1.0).gram(np.array([[1.0], [3.0]])).tolist()
    [[3.0, 7.0], [7.0, 19.0]]
    """

    variance: Array = parameter(positive, default=1.0, converter=as_number)
    offset: Array = parameter(NonNegative(), default=0.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        return (x * per_column(self, "variance", x)) @ y.T + self.offset

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return (x**2 * per_column(self, "variance", x)).sum(axis=1) + self.offset

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return Linear(as_number(np.asarray(self.variance) / scale**2), self.offset)

    def times(self, factor: float) -> AbstractKernel:
        return Linear(*(as_number(factor * np.asarray(v)) for v in (self.variance, self.offset)))


class Polynomial(AbstractVectorKernel):
    """k(x, y) = (Σ v x y + c)ᵈ: all monomials up to the degree d, for c > 0.

    Attributes:
        degree: d.
        variance: v, one number, or one for each column.
        offset: c; zero leaves the monomials of degree d alone.

    >>> x = np.array([[1.0, 2.0], [0.5, -1.0]])
    >>> features = np.column_stack(
    ...     [np.ones(2), np.sqrt(2) * x, x**2, np.sqrt(2) * x[:, :1] * x[:, 1:]]
    ... )
    >>> bool(np.allclose(Polynomial(2).gram(x), features @ features.T))
    True
    """

    degree: int = eqx.field(static=True, default=2)
    variance: Array = parameter(positive, default=1.0, converter=as_number)
    offset: Array = parameter(NonNegative(), default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)
        if not isinstance(self.degree, int) or self.degree < 1:
            raise ValueError(
                "The 'degree' parameter of Polynomial must be an int in the range [1, inf). "
                f"Got {self.degree!r} instead."
            )

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        return ((x * per_column(self, "variance", x)) @ y.T + self.offset) ** self.degree

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return ((x**2 * per_column(self, "variance", x)).sum(axis=1) + self.offset) ** self.degree

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return Polynomial(self.degree, as_number(np.asarray(self.variance) / scale**2), self.offset)


class RBF(AbstractVectorKernel):
    """k(x, y) = exp(−‖x − y‖² / 2ℓ²), also known as the Gaussian or squared-exponential kernel.

    Some notes write exp(−‖x − y‖²/σ²): that is ℓ = σ/√2.

    Attributes:
        lengthscale: ℓ, one number, or one for each column (automatic relevance determination, ARD).

    >>> RBF(2.0).gram(np.array([[0.0], [2.0]])).round(4).tolist()
    [[1.0, 0.6065], [0.6065, 1.0]]
    """

    lengthscale: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        scale = per_column(self, "lengthscale", x)
        squares = squared_distances(xp, x / scale, y / scale)
        if xp is np:
            squares *= -0.5
            return np.exp(squares, out=squares)
        return jnp.exp(-0.5 * squares)

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return _ones(xp, x)

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((n, columns)) / np.asarray(self.lengthscale)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return dataclasses.replace(self, lengthscale=scale * np.asarray(self.lengthscale))


class Laplacian(AbstractVectorKernel):
    """k(x, y) = exp(−Σ |x − y| / ℓ), the product over columns of Ornstein–Uhlenbeck kernels.

    With Euclidean distances, exp(−‖x − y‖/ℓ), it is `Matern(0.5)`; for one column they are the same.

    Attributes:
        lengthscale: ℓ, one number, or one for each column.

    >>> Laplacian().gram(np.array([[0.0, 0.0], [1.0, 1.0]])).round(4).tolist()
    [[1.0, 0.1353], [0.1353, 1.0]]
    """

    lengthscale: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        scale = per_column(self, "lengthscale", x)
        x, y = x / scale, y / scale
        total = xp.zeros((len(x), len(y)), x.dtype)
        for column in range(x.shape[1]):
            total = total + abs(x[:, column][:, None] - y[:, column][None, :])
        return xp.exp(-total)

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return _ones(xp, x)

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_cauchy((n, columns)) / np.asarray(self.lengthscale)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return dataclasses.replace(self, lengthscale=scale * np.asarray(self.lengthscale))


class Matern(AbstractVectorKernel):
    """The kernel of processes that are ν − ½ times differentiable, with r = ‖x − y‖/ℓ:

        ν = ½   exp(−r)
        ν = 3/2 (1 + √3 r) exp(−√3 r)
        ν = 5/2 (1 + √5 r + 5r²/3) exp(−√5 r).

    Attributes:
        smoothness: ν, which is 0.5, 1.5 or 2.5; `RBF` is its limit.
        lengthscale: ℓ, one number, or one for each column.

    >>> Matern(1.5).gram(np.array([[0.0], [1.0]])).round(4).tolist()
    [[1.0, 0.4834], [0.4834, 1.0]]
    """

    smoothness: float = eqx.field(static=True, default=1.5)
    lengthscale: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)
        if self.smoothness not in _SMOOTHNESS:
            raise ValueError(
                "The 'smoothness' parameter of Matern must be 0.5, 1.5 or 2.5. "
                f"Got {self.smoothness!r} instead."
            )

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        scale = per_column(self, "lengthscale", x)
        squares = 2 * self.smoothness * squared_distances(xp, x / scale, y / scale)
        r = root(xp, squares)
        if self.smoothness == 0.5:
            return xp.exp(-r)
        if self.smoothness == 1.5:
            return (1 + r) * xp.exp(-r)
        return (1 + r + squares / 3) * xp.exp(-r)

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return _ones(xp, x)

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        # Student's t of 2ν degrees of freedom
        spread = np.sqrt(2 * self.smoothness / rng.chisquare(2 * self.smoothness, size=(n, 1)))
        return spread * rng.standard_normal((n, columns)) / np.asarray(self.lengthscale)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return dataclasses.replace(self, lengthscale=scale * np.asarray(self.lengthscale))


class RationalQuadratic(AbstractVectorKernel):
    """k(x, y) = (1 + ‖x − y‖² / 2αℓ²)^(−α): Gaussian kernels of many lengths at once.

    Attributes:
        lengthscale: ℓ, one number, or one for each column.
        mixture: α; large values come near to `RBF`.

    >>> RationalQuadratic().gram(np.array([[0.0], [1.0]])).round(4).tolist()
    [[1.0, 0.6667], [0.6667, 1.0]]
    """

    lengthscale: Array = parameter(positive, default=1.0, converter=as_number)
    mixture: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        scale = per_column(self, "lengthscale", x)
        squares = squared_distances(xp, x / scale, y / scale)
        return xp.exp(-self.mixture * xp.log1p(squares / (2 * self.mixture)))

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return _ones(xp, x)

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        alpha = float(self.mixture)
        spread = np.sqrt(rng.gamma(alpha, 1 / alpha, size=(n, 1)))
        return spread * rng.standard_normal((n, columns)) / np.asarray(self.lengthscale)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return dataclasses.replace(self, lengthscale=scale * np.asarray(self.lengthscale))


class Periodic(AbstractVectorKernel):
    """k(x, y) = exp(−2 Σ sin²(π(x − y)/p) / ℓ²): what comes again after a period.

    Attributes:
        period: p, one number, or one for each column.
        lengthscale: ℓ, in turns of a circle of radius one, one number, or one for each column.

    >>> Periodic(7.0).gram(np.array([[0.0], [7.0], [3.5]]))[0].round(4).tolist()
    [1.0, 1.0, 0.1353]
    """

    period: Array = parameter(positive, default=1.0, converter=as_number)
    lengthscale: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _places(self, xp: ModuleType, x: Any) -> Any:
        """Each entry on its circle, whose Gaussian kernel this is."""
        angle, scale = 2 * np.pi * x / per_column(self, "period", x), per_column(self, "lengthscale", x)
        return xp.concatenate([xp.cos(angle) / scale, xp.sin(angle) / scale], axis=1)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.exp(-0.5 * squared_distances(xp, self._places(xp, x), self._places(xp, y)))

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return _ones(xp, x)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return dataclasses.replace(self, period=scale * np.asarray(self.period))


class Box(AbstractVectorKernel):
    """k(x, y) = 1 where ‖x − y‖ ≤ c, else 0.

    It smooths (`NadarayaWatson`), but has Gram matrices with negative eigenvalues, and hence no features:
    nothing that needs these takes it.

    Attributes:
        radius: c.

    >>> from freeenergy.kernels import positive_definiteness
    >>> found = positive_definiteness(Box().gram(np.array([[0.0], [1.0], [2.0]])))
    >>> found.holds, round(found.smallest, 4)
    (False, -0.4142)
    """

    radius: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        return (root(xp, squared_distances(xp, x, y)) <= self.radius).astype(x.dtype)

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return _ones(xp, x)

    def in_units(self, scale: np.ndarray) -> AbstractKernel | None:
        # a ball is none where columns have different units
        alike = bool((scale == scale[0]).all())
        return Box(as_number(scale[0] * np.asarray(self.radius))) if alike else None


class Constant(AbstractVectorKernel):
    """k(x, y) = v: one unknown constant, such as a bias.

    Attributes:
        variance: v.

    >>> Constant(2.0).gram(np.zeros((1, 1)), np.zeros((2, 1))).tolist()
    [[2.0, 2.0]]
    """

    variance: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        return self.variance * xp.ones((len(x), len(y)), x.dtype)

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return self.variance * _ones(xp, x)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return self

    def times(self, factor: float) -> AbstractKernel:
        return Constant(as_number(factor * np.asarray(self.variance)))


class White(AbstractVectorKernel):
    """k(x, y) = v for a row and itself, else 0, be their numbers equal or not: noise as a kernel.

    `gram(x)` is v on the diagonal; `gram(x, y)` is of different rows, and zero.

    Attributes:
        variance: v.

    >>> White(0.5).gram(np.zeros((2, 1))).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    variance: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.zeros((len(x), len(y)), x.dtype)

    def _each(self, xp: ModuleType, x: Any) -> Any:
        return self.variance * _ones(xp, x)

    def in_units(self, scale: np.ndarray) -> AbstractKernel:
        return self

    def times(self, factor: float) -> AbstractKernel:
        return White(as_number(factor * np.asarray(self.variance)))
