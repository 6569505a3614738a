"""What a kernel is: similarity of pairs, Gram matrices in blocks, and how kernels are combined."""

from __future__ import annotations

import abc
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from .._core import check_size, on_device, parameter, positive, refuse_outside

# rows of a Gram matrix that are worked on at once, so that they stay in the cache
_BLOCK = 256
# numbers beyond this have squares that are none
_LARGE = 1e150


def as_number(value: Any) -> Array:
    """A parameter as 64-bit numbers."""
    return on_device(value, float)


class AbstractKernel(eqx.Module):
    """k(x, y) = φ(x)ᵀφ(y): a symmetric function of pairs whose Gram matrices have no negative eigenvalue.

    Kernels add, multiply and take factors: `2.0 * RBF(0.5) + Linear()` is a kernel, too.
    """

    @abc.abstractmethod
    def gram(self, x: Any, y: Any = None) -> Any:
        """k of each row of `x` with each row of `y`; of `x` with itself where `y` is None.

        Rows of NumPy are answered by NumPy, without a program; others, and parameters inside a
        transformation of JAX, by JAX.
        """

    @abc.abstractmethod
    def diagonal(self, x: Any) -> Any:
        """k of each row of `x` with itself."""

    def __call__(self, x: Any, y: Any) -> Any:
        """k of one pair of rows."""
        return self.gram(x[None], y[None])[0, 0]

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        """`n` draws ω with E cos(ωᵀ(x − y)) = k(x, y) / k(x, x), for a kernel of differences."""
        raise ValueError(
            f"{type(self).__name__} is no function of x − y, or has no density of frequencies. Use RBF, "
            "Laplacian, Matern or RationalQuadratic."
        )

    def in_units(self, scale: np.ndarray) -> AbstractKernel | None:
        """The same kernel of columns that are `scale` times what they were; None where it has no such form.

        Kernels that are no functions of x − y count columns from the same origin as before.

        >>> from freeenergy.kernels import RBF
        >>> RBF(2.0).in_units(np.array([1.0, 1000.0])).lengthscale.tolist()
        [2.0, 2000.0]
        """
        return None

    def times(self, factor: float) -> AbstractKernel:
        """`factor` times the kernel, with the factor in the variances that it has.

        >>> from freeenergy.kernels import RBF
        >>> (3.0 * RBF()).times(4.0).variance.tolist()
        12.0
        """
        return Scaled(self, as_number(factor))

    def __add__(self, other: AbstractKernel) -> Sum:
        return Sum(self, other)

    def __mul__(self, other: AbstractKernel | float) -> AbstractKernel:
        if isinstance(other, AbstractKernel):
            return Product(self, other)
        return Scaled(self, as_number(other))

    def __rmul__(self, other: float) -> Scaled:
        return Scaled(self, as_number(other))


class AbstractVectorKernel(AbstractKernel):
    """A kernel of rows of numbers.

    A subclass says k of all pairs of two sets of rows, and of each row with itself, with the functions of
    `numpy` or `jax.numpy`, whichever it is given.
    """

    @abc.abstractmethod
    def _pairs(self, xp: ModuleType, x: Any, y: Any) -> Any:
        """k of each row of `x` with each row of `y`; the result may be changed in place."""

    @abc.abstractmethod
    def _each(self, xp: ModuleType, x: Any) -> Any:
        """k of each row of `x` with itself."""

    def _side(self, x: Any) -> tuple[ModuleType, Any]:
        """The module that answers, and the kernel with parameters of its kind."""
        leaves = jax.tree.leaves(self)
        if isinstance(x, Array) or any(isinstance(leaf, Tracer) for leaf in leaves):
            return jnp, self
        if any(isinstance(leaf, Array) for leaf in leaves):
            return np, jax.tree.map(np.asarray, self)
        return np, self

    def gram(self, x: Any, y: Any = None) -> Any:
        xp, own = self._side(x)
        if xp is jnp:
            pairs = own._pairs(xp, jnp.asarray(x), jnp.asarray(x if y is None else y))
            if y is not None:
                return pairs
            return jnp.where(jnp.eye(len(x), dtype=bool), own._each(xp, jnp.asarray(x))[:, None], pairs)
        rows, columns = _rows(x), _rows(x if y is None else y)
        check_size(
            len(rows) * len(columns),
            f"A Gram matrix of {len(rows):,} × {len(columns):,} rows",
            "Use fewer rows, or inducing points.",
        )
        out = np.empty((len(rows), len(columns)))
        with np.errstate(over="ignore"):
            for start in range(0, len(rows), _BLOCK):
                out[start : start + _BLOCK] = own._pairs(xp, rows[start : start + _BLOCK], columns)
            if y is None:
                out[np.diag_indices(len(rows))] = own._each(xp, rows)
        return out

    def diagonal(self, x: Any) -> Any:
        xp, own = self._side(x)
        return own._each(xp, jnp.asarray(x) if xp is jnp else _rows(x))


def _rows(x: Any) -> np.ndarray:
    """Rows of numbers, or one sentence."""
    rows = np.asarray(x, float)
    if rows.ndim != 2:
        raise ValueError(f"A kernel takes rows of numbers, two axes. Got the shape {rows.shape} instead.")
    return rows


def per_column(owner: Any, name: str, x: Any) -> Any:
    """A parameter that is one number, or one for each column of `x`, in a shape to multiply `x` with."""
    value = getattr(owner, name)
    if value.ndim == 0:
        return value
    if value.shape != x.shape[1:]:
        raise ValueError(
            f"The '{name}' parameter of {type(owner).__name__} must be one number, or one for each of the "
            f"{x.shape[1]} columns. Got {len(value)} instead."
        )
    return value[None, :]


def squared_distances(xp: ModuleType, x: Any, y: Any) -> Any:
    """‖x − y‖² of all pairs, as one matrix product; never negative."""
    # about a common centre, so that less is lost in the difference
    centre = xp.mean(y, axis=0)[None, :]
    x, y = x - centre, y - centre
    if xp is np:
        far = [np.abs(rows).max(axis=1, initial=0.0) > _LARGE for rows in (x, y)]
        if far[0].any() or far[1].any():
            return _with_far_rows(x, y, *far)
    squares = (-2 * x) @ y.T
    if xp is np:
        squares += (x**2).sum(axis=1)[:, None]
        squares += (y**2).sum(axis=1)[None, :]
        return np.maximum(squares, 0.0, out=squares)
    squares = squares + (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :]
    return jnp.maximum(squares, 0.0)


def _with_far_rows(x: np.ndarray, y: np.ndarray, far_x: np.ndarray, far_y: np.ndarray) -> np.ndarray:
    """‖x − y‖² where some rows have squares that are no numbers; no row changes what another has."""
    squares = np.full((len(x), len(y)), np.inf)
    if not far_y.all():
        squares[np.ix_(~far_x, ~far_y)] = squared_distances(np, x[~far_x], y[~far_y])
    if far_x.any() and far_y.any():
        size = np.abs(y[far_y]).max()
        near = squared_distances(np, x[far_x] / size, y[far_y] / size)
        squares[np.ix_(far_x, far_y)] = (np.sqrt(near) * size) ** 2
    return squares


def root(xp: ModuleType, squares: Any) -> Any:
    """√ of numbers that may be zero, where its slope is taken for zero."""
    if xp is np:
        return np.sqrt(squares)
    there = squares > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, squares, 1.0)), 0.0)


class Sum(AbstractKernel):
    """k(x, y) = a(x, y) + b(x, y): features of both, side by side.

    >>> from freeenergy.kernels import RBF, Linear
    >>> x = np.array([[1.0], [2.0]])
    >>> (RBF() + Linear()).gram(x).round(4).tolist()
    [[2.0, 2.6065], [2.6065, 5.0]]
    """

    first: AbstractKernel
    second: AbstractKernel

    def gram(self, x: Any, y: Any = None) -> Any:
        return self.first.gram(x, y) + self.second.gram(x, y)

    def diagonal(self, x: Any) -> Any:
        return self.first.diagonal(x) + self.second.diagonal(x)

    def in_units(self, scale: np.ndarray) -> AbstractKernel | None:
        return _of_both(self, self.first.in_units(scale), self.second.in_units(scale))

    def times(self, factor: float) -> Sum:
        return Sum(self.first.times(factor), self.second.times(factor))

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        # a mixture of both, by their variances
        zero = np.zeros((1, columns))
        sizes = [float(part.diagonal(zero)[0]) for part in (self.first, self.second)]
        from_first = rng.random(n) * sum(sizes) < sizes[0]
        both = self.first.frequencies(n, columns, rng), self.second.frequencies(n, columns, rng)
        return np.where(from_first[:, None], *both)


def _of_both(
    owner: Sum | Product, first: AbstractKernel | None, second: AbstractKernel | None
) -> AbstractKernel | None:
    return None if first is None or second is None else type(owner)(first, second)


class Product(AbstractKernel):
    """k(x, y) = a(x, y) b(x, y): all products of a feature of each.

    >>> from freeenergy.kernels import Linear
    >>> (Linear() * Linear()).gram(np.array([[1.0], [2.0]])).tolist()
    [[1.0, 4.0], [4.0, 16.0]]
    """

    first: AbstractKernel
    second: AbstractKernel

    def gram(self, x: Any, y: Any = None) -> Any:
        return self.first.gram(x, y) * self.second.gram(x, y)

    def diagonal(self, x: Any) -> Any:
        return self.first.diagonal(x) * self.second.diagonal(x)

    def in_units(self, scale: np.ndarray) -> AbstractKernel | None:
        return _of_both(self, self.first.in_units(scale), self.second.in_units(scale))

    def times(self, factor: float) -> Product:
        return Product(self.first.times(factor), self.second)

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        # frequencies of a product are convolved
        return self.first.frequencies(n, columns, rng) + self.second.frequencies(n, columns, rng)


class Scaled(AbstractKernel):
    """k(x, y) = v a(x, y), which is what `v * a` makes.

    Attributes:
        kernel: a.
        variance: v.

    >>> from freeenergy.kernels import RBF
    >>> (3.0 * RBF()).diagonal(np.zeros((2, 1))).tolist()
    [3.0, 3.0]
    """

    kernel: AbstractKernel
    variance: Array = parameter(positive, default=1.0, converter=as_number)

    def __check_init__(self):
        refuse_outside(self)

    def gram(self, x: Any, y: Any = None) -> Any:
        return self._times(self.kernel.gram(x, y))

    def diagonal(self, x: Any) -> Any:
        return self._times(self.kernel.diagonal(x))

    def in_units(self, scale: np.ndarray) -> AbstractKernel | None:
        found = self.kernel.in_units(scale)
        return None if found is None else Scaled(found, self.variance)

    def times(self, factor: float) -> Scaled:
        return Scaled(self.kernel, as_number(factor * np.asarray(self.variance)))

    def _times(self, values: Any) -> Any:
        on_host = isinstance(values, np.ndarray) and not isinstance(self.variance, Tracer)
        return (np.asarray(self.variance) if on_host else self.variance) * values

    def frequencies(self, n: int, columns: int, rng: np.random.Generator) -> np.ndarray:
        return self.kernel.frequencies(n, columns, rng)
