"""What an unknown can be, and which values an event can take.

A space is a frozen value without arrays, so that a class can hold it and it can be compared.  Latents,
missing entries, labels, parameters and hyper-parameters are all unknowns in a space.  NaN means *not
observed* and lies in every space.

A continuous space has free coordinates, as many reals as its values vary in, with the log-determinant of
the map from them; a finite space numbers its states.  What an unknown with several parts can be is a tree
of spaces (`_unknowns.py`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Shape = tuple[int, ...]

# how far a row of parts may be from sum one
_ROUNDING = 1e-6
# the same, and how far a matrix may be from symmetric, for numbers of 32 bits
_ROUNDING_32 = 1e-5
# the number of a state is an integer of 64 bits
_LARGEST = 2**62


@dataclasses.dataclass(frozen=True)
class AbstractSpace(abc.ABC):
    """A set of values; a row of data has one in each column, an unknown is one of them."""

    @property
    @abc.abstractmethod
    def shape(self) -> Shape | None:
        """The shape of an unknown; None where any will do, as for the columns of data."""

    @property
    @abc.abstractmethod
    def phrase(self) -> str:
        """How a sentence names the values."""

    @abc.abstractmethod
    def contains(self, x: np.ndarray) -> np.ndarray:
        """Entry by entry, which numbers of the rows `x` lie inside or are NaN."""

    @abc.abstractmethod
    def has_mass(self, n_features: int) -> np.ndarray:
        """Which of `n_features` columns have a probability mass, and not a density."""

    @abc.abstractmethod
    def has_labels(self, n_features: int) -> np.ndarray:
        """Which of `n_features` columns have values whose order means nothing, and so no mean."""

    @abc.abstractmethod
    def with_shape(self, shape: Shape) -> Self:
        """The same kind of values in an unknown of this shape.

        >>> Positive().with_shape((3,))
        Positive(shape=(3,))
        """

    @abc.abstractmethod
    def start(self, *, key: Array) -> Array:
        """A value to begin from, another one for each key."""

    def unknown_shape(self) -> Shape:
        """The shape of an unknown, refused where the space does not say it."""
        if not isinstance(self.shape, tuple):
            raise ValueError(
                f"The 'shape' of {type(self).__name__} must be a tuple of whole numbers where it says what "
                f"an unknown can be. Got {self.shape!r} instead."
            )
        return self.shape


class AbstractHomogeneous(AbstractSpace):
    """A space of one kind of values in all columns.

    Attributes:
        discrete: whether the values are apart, so that each has a probability mass and not a density.
        unordered: whether their order means nothing.
        phrase: how a sentence names the values.
    """

    discrete: ClassVar[bool]
    phrase: ClassVar[str]
    unordered: ClassVar[bool] = False

    def has_mass(self, n_features: int) -> np.ndarray:
        return np.full(n_features, self.discrete)

    def has_labels(self, n_features: int) -> np.ndarray:
        return np.full(n_features, self.unordered)

    def with_shape(self, shape: Shape) -> Self:
        return dataclasses.replace(self, shape=shape)


class AbstractContinuous(AbstractHomogeneous):
    """A set with an inside, and a smooth one-to-one map onto the inside from free reals.

    Leading axes are stacks of members: a value of shape (4, 3) of the simplex is four points of it.

    Attributes:
        name: how messages call a value.
    """

    discrete = False
    name: ClassVar[str]

    @abc.abstractmethod
    def free_shape(self, shape: Shape) -> Shape:
        """The shape of the free coordinates of a value of shape `shape`."""

    @abc.abstractmethod
    def to_free(self, value: Array) -> Array:
        """The free coordinates of a value inside."""

    @abc.abstractmethod
    def from_free(self, free: Array) -> Array:
        """The value with these free coordinates; `from_free(to_free(v)) == v`."""

    @abc.abstractmethod
    def log_det(self, free: Array) -> Array:
        """log |∂value/∂free|, summed over members, where a value counts by entries that fix the others.

        (Rotations count by their angles.)
        """

    @abc.abstractmethod
    def closure(self, value: np.ndarray) -> bool:
        """Whether all of a value is inside or a limit of such values, as fits may end in."""

    @abc.abstractmethod
    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        """What is wrong with `value`, as the end of a sentence «must be …», or None.

        Args:
            value: numbers, none of them unknown.
            closed: whether the edge of the set is let in.
        """

    def dimension(self, shape: Shape) -> int:
        """How many numbers of a value of shape `shape` vary freely."""
        return math.prod(self.free_shape(shape))

    def start(self, *, key: Array) -> Array:
        return self.from_free(jax.random.normal(key, self.free_shape(self.unknown_shape())))


class AbstractElementwise(AbstractContinuous):
    """A continuous space whose entries know nothing of each other.

    A space of one's own says its name, its map and the slope of it:

    >>> import dataclasses
    >>> @dataclasses.dataclass(frozen=True)
    ... class AboveOne(AbstractElementwise):
    ...     phrase = "numbers above one"
    ...     name = "above one"
    ...     shape: tuple[int, ...] | None = None
    ...     def contains(self, x): return ~((x <= 1) | np.isinf(x))
    ...     def closure(self, value): return bool((value >= 1).all())
    ...     def problem(self, value, *, closed): return None if self.closure(value) else "above one."
    ...     def to_free(self, value): return jnp.log(value - 1)
    ...     def from_free(self, free): return 1 + jnp.exp(free)
    ...     def log_slope(self, free): return free
    >>> AboveOne().to_free(jnp.array([2.0])).tolist()
    [0.0]
    """

    @abc.abstractmethod
    def log_slope(self, free: Array) -> Array:
        """Entry by entry, the logarithm of the slope of `from_free`."""

    def free_shape(self, shape: Shape) -> Shape:
        return shape

    def log_det(self, free: Array) -> Array:
        return jnp.sum(self.log_slope(free))


def _first_outside(inside: np.ndarray, value: np.ndarray, name: str) -> str | None:
    return None if inside.all() else f"{name}. Got {value[~inside][0]:g} instead."


@dataclasses.dataclass(frozen=True)
class Reals(AbstractElementwise):
    """All finite numbers; they are their own free coordinates.

    >>> Reals().contains(np.array([[-1.5, np.inf]])).tolist()
    [[True, False]]
    """

    phrase = "finite numbers"
    name = "real"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~np.isinf(x)

    def closure(self, value: np.ndarray) -> bool:
        return not np.isnan(value).any()

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        return None

    def to_free(self, value: Array) -> Array:
        return value

    def from_free(self, free: Array) -> Array:
        return free

    def log_slope(self, free: Array) -> Array:
        return jnp.zeros_like(free)


def _inverse_softplus(value: Array) -> Array:
    # log(exp(v) − 1) without overflow for large v or cancellation for small v
    return value + jnp.log(-jnp.expm1(-value))


class AbstractHalfLine(AbstractElementwise):
    """Numbers on one side of zero:  v = log(1 + eᵘ) for a free u."""

    def closure(self, value: np.ndarray) -> bool:
        return bool((value >= 0).all())

    def to_free(self, value: Array) -> Array:
        return _inverse_softplus(value)

    def from_free(self, free: Array) -> Array:
        return jax.nn.softplus(free)

    def log_slope(self, free: Array) -> Array:
        return -jax.nn.softplus(-free)


@dataclasses.dataclass(frozen=True)
class Positive(AbstractHalfLine):
    """Finite numbers above zero:  v = log(1 + eᵘ) for a free u.

    >>> Positive().contains(np.array([[0.0, 0.1]])).tolist()
    [[False, True]]
    """

    phrase = "positive numbers"
    name = "positive"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~((x <= 0) | np.isinf(x))

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        if closed:
            return _first_outside(value >= 0, value, NonNegative.name)
        return _first_outside(value > 0, value, self.name)


@dataclasses.dataclass(frozen=True)
class NonNegative(AbstractHalfLine):
    """Finite numbers from zero on; the free coordinates are those of `Positive` and do not reach zero.

    >>> NonNegative().contains(np.array([[0.0, -0.1]])).tolist()
    [[True, False]]
    """

    phrase = "non-negative numbers"
    name = "non-negative"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~((x < 0) | np.isinf(x))

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        return _first_outside(value >= 0, value, self.name)


@dataclasses.dataclass(frozen=True)
class UnitInterval(AbstractElementwise):
    """Numbers strictly between zero and one:  v = 1 / (1 + e⁻ᵘ) for a free u.

    >>> UnitInterval().contains(np.array([[0.0, 0.5, 1.0]])).tolist()
    [[False, True, False]]
    """

    phrase = "numbers strictly between 0 and 1"
    name = "in the open unit interval"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~((x <= 0) | (x >= 1))

    def closure(self, value: np.ndarray) -> bool:
        return bool(((value >= 0) & (value <= 1)).all())

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        if closed:
            return _first_outside((value >= 0) & (value <= 1), value, "in the unit interval")
        return _first_outside((value > 0) & (value < 1), value, self.name)

    def to_free(self, value: Array) -> Array:
        return jnp.log(value) - jnp.log1p(-value)

    def from_free(self, free: Array) -> Array:
        return jax.nn.sigmoid(free)

    def log_slope(self, free: Array) -> Array:
        return -jax.nn.softplus(free) - jax.nn.softplus(-free)


@dataclasses.dataclass(frozen=True)
class Simplex(AbstractContinuous):
    """Rows of K positive parts of one; what is missing in a row may be all that is left.

    The K − 1 free coordinates u are an isometric log-ratio (Egozcue et al. 2003):  w = softmax(V u), where
    the columns of V are orthonormal and sum to zero, so that distances between the u are those between
    centred logarithms.  By the first K − 1 parts,  log |∂w/∂u| = Σ log w + ½ log K.

    >>> Simplex().contains(np.array([[0.2, 0.8], [0.2, 0.9], [0.2, np.nan]])).tolist()
    [[True, True], [False, False], [True, True]]
    >>> Simplex().free_shape((5, 3)), Simplex().from_free(jnp.zeros(1)).tolist()
    ((5, 2), [0.5, 0.5])
    """

    phrase = "positive rows that sum to one"
    name = "non-negative with sum one along the last axis"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        missing = np.isnan(x)
        over = np.nansum(x, axis=-1, keepdims=True) - 1
        fits = np.where(missing.any(axis=-1, keepdims=True), over < 0, np.abs(over) <= _ROUNDING)
        return missing | ((x > 0) & fits)

    def closure(self, value: np.ndarray) -> bool:
        return bool(value.ndim > 0 and (value >= 0).all() and (np.abs(value.sum(axis=-1) - 1) < 1e-4).all())

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        total = value.sum(axis=-1, keepdims=True)
        off = np.abs(total - 1) > _ROUNDING_32
        if off.any() and (value >= 0).all():
            return f"{self.name}. Got the sum {total[off][0]:g} instead."
        return _first_outside(value >= 0, value, self.name)

    def free_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] - 1)

    def to_free(self, value: Array) -> Array:
        # a weight of exactly zero has no finite image: keep it far below the others instead, with room for
        # them to grow before it vanishes: the logarithm of zero has no slope
        info = jnp.finfo(value.dtype)
        return _contrasts(jnp.log(jnp.maximum(value, info.tiny / info.eps)))

    def from_free(self, free: Array) -> Array:
        return jax.nn.softmax(_from_contrasts(free), axis=-1)

    def log_det(self, free: Array) -> Array:
        logs = jax.nn.log_softmax(_from_contrasts(free), axis=-1)
        return jnp.sum(logs) + 0.5 * math.prod(free.shape[:-1]) * math.log(free.shape[-1] + 1)


# V is the reflection that takes the last axis to the direction of equal entries, without that axis: it
# treats all parts but the last alike, and a product with it is a sum


def _contrasts(logs: Array) -> Array:
    """Vᵀ logs."""
    root = math.sqrt(logs.shape[-1])
    shift = (logs[..., -1:] + jnp.sum(logs, axis=-1, keepdims=True) / root) / (root + 1)
    return logs[..., :-1] - shift


def _from_contrasts(free: Array) -> Array:
    """V free."""
    root = math.sqrt(free.shape[-1] + 1)
    total = jnp.sum(free, axis=-1, keepdims=True) / root
    return jnp.concatenate([free - total / (root + 1), -total], axis=-1)


def pack_triangle(matrix: Array) -> Array:
    """The lower triangles of matrices along the last two axes, row by row.

    >>> pack_triangle(jnp.array([[1, 0], [2, 3]])).tolist()
    [1, 2, 3]
    """
    rows, columns = np.tril_indices(matrix.shape[-1])
    return matrix[..., rows, columns]


def unpack_triangle(packed: Array) -> Array:
    """The lower triangular matrices of what `pack_triangle` made.

    >>> unpack_triangle(jnp.array([1, 2, 3])).tolist()
    [[1, 0], [2, 3]]
    """
    n = triangle_order(packed.shape[-1])
    place = np.zeros((n, n), int)
    place[np.tril_indices(n)] = np.arange(packed.shape[-1])
    return jnp.tril(packed[..., place])


def triangle_order(size: int) -> int:
    """The order n of a triangle with `size` = n (n + 1) / 2 entries."""
    return (math.isqrt(8 * size + 1) - 1) // 2


def triangle_diagonal(n: int) -> np.ndarray:
    """Where the diagonal of a matrix of order `n` lies in its packed lower triangle."""
    return np.cumsum(np.arange(1, n + 1)) - 1


def _singular(matrix: np.ndarray) -> bool:
    """Whether a matrix (or one of a stack) is so to rounding, in whichever units its columns are."""
    root = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
    if not (root > 0).all():
        return True
    try:
        factor = np.linalg.cholesky(matrix / root[..., :, None] / root[..., None, :])
    except np.linalg.LinAlgError:
        return True
    pivots = np.diagonal(factor, axis1=-2, axis2=-1) ** 2
    return bool((pivots <= 8 * matrix.shape[-1] * np.finfo(float).eps).any())


@dataclasses.dataclass(frozen=True)
class PositiveDefinite(AbstractContinuous):
    """Symmetric positive definite matrices of order n.

    The n (n + 1) / 2 free coordinates u are the lower triangle of the Cholesky factor L, row by row, with
    the logarithms of its diagonal.  By the lower triangle of Σ = L Lᵀ, with i from 1,
    log |∂Σ/∂u| = n log 2 + Σ_i (n − i + 2) log L_ii.

    >>> PositiveDefinite().contains(np.array([[1.0, 2.0], [2.0, 1.0]])).tolist()
    [[False, False], [False, False]]
    >>> PositiveDefinite().from_free(jnp.zeros(3)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    phrase = "symmetric positive definite matrices"
    name = "symmetric positive definite"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        # a matrix of which a part is missing is not looked at
        x = np.asarray(x)
        known = np.where(np.isnan(x).any(axis=(-2, -1), keepdims=True), np.eye(x.shape[-1]), x)
        finite = np.isfinite(known).all(axis=(-2, -1), keepdims=True)
        known = np.where(finite, known, np.eye(x.shape[-1]))
        size = np.abs(known).max(axis=(-2, -1), initial=0, keepdims=True)
        skew = np.abs(known - np.swapaxes(known, -1, -2)).max(axis=(-2, -1), initial=0, keepdims=True)
        least = np.linalg.eigvalsh(known).min(axis=-1, initial=np.inf)[..., None, None]
        return np.broadcast_to(finite & (skew <= _ROUNDING * size) & (least > 0), x.shape)

    def closure(self, value: np.ndarray) -> bool:
        if value.ndim < 2 or value.shape[-1] != value.shape[-2] or not np.isfinite(value).all():
            return False
        largest = np.abs(value).max(initial=0.0)
        symmetric = np.abs(value - np.swapaxes(value, -1, -2)).max(initial=0.0) <= 1e-6 * largest
        return bool(symmetric and np.linalg.eigvalsh(value).min(initial=0.0) >= -1e-6 * largest)

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        start = "a symmetric positive definite matrix. Got "
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return f"{start}an array of shape {value.shape} instead."
        if not np.isfinite(value).all():
            return f"{start}{value[~np.isfinite(value)][0]:g} in it instead."
        size = np.abs(value).max(axis=(-2, -1), initial=0, keepdims=True)
        if (np.abs(value - np.swapaxes(value, -1, -2)) > _ROUNDING_32 * size).any():
            return f"{start}one that is not symmetric instead."
        try:
            # a factorisation costs less than eigenvalues, which are asked for only to say what is wrong
            np.linalg.cholesky(
                value + (_ROUNDING_32 * size + np.finfo(float).tiny) * np.eye(value.shape[-1])
            )
        except np.linalg.LinAlgError:
            least = np.linalg.eigvalsh(value).min()
            return f"{start}one with the eigenvalue {least:g} instead."
        return None if closed or not _singular(value) else f"{start}a singular one instead."
        return None

    def free_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] + 1) // 2)

    def to_free(self, value: Array) -> Array:
        packed = pack_triangle(jnp.linalg.cholesky(value))
        diagonal = triangle_diagonal(value.shape[-1])
        return packed.at[..., diagonal].set(jnp.log(packed[..., diagonal]))

    def from_free(self, free: Array) -> Array:
        diagonal = triangle_diagonal(triangle_order(free.shape[-1]))
        factor = unpack_triangle(free.at[..., diagonal].set(jnp.exp(free[..., diagonal])))
        return factor @ jnp.swapaxes(factor, -1, -2)

    def log_det(self, free: Array) -> Array:
        n = triangle_order(free.shape[-1])
        times = np.arange(n + 1, 1, -1, dtype=free.dtype)
        logs = free[..., triangle_diagonal(n)]
        return jnp.sum(logs @ times) + math.prod(free.shape[:-1]) * n * math.log(2)


@dataclasses.dataclass(frozen=True)
class Rotations(AbstractContinuous):
    """Rotations Q of n dimensions: orthogonal matrices with determinant one, none by half a turn.

    The n (n − 1) / 2 free coordinates are the entries below the diagonal of the skew matrix S of Cayley's
    map Q = (I − S)(I + S)⁻¹.  An orthogonal matrix whose columns may have either sign is such a rotation
    with some of these signs (`as_rotation`).

    A rotation counts by its angles, the entries of Qᵀ dQ, so that a flat density is that of no preferred
    axes (also known as Haar measure).

    >>> Rotations().from_free(jnp.array([1.0])).tolist()
    [[0.0, 1.0], [-1.0, 0.0]]
    >>> Rotations().free_shape((5, 3, 3))
    (5, 3)
    """

    phrase = "rotation matrices"
    name = "a rotation matrix"
    shape: Shape | None = None

    def _close(self, x: np.ndarray, slack: float) -> np.ndarray:
        """Whether each matrix is a rotation, but for rounding."""
        known = np.where(np.isfinite(x), x, 0.0)
        gap = known @ np.swapaxes(known, -1, -2) - np.eye(x.shape[-1])
        return (np.abs(gap).max(axis=(-2, -1), initial=0) <= slack) & (np.linalg.det(known) > 0)

    def contains(self, x: np.ndarray) -> np.ndarray:
        # a matrix of which a part is missing is not looked at
        x = np.asarray(x)
        gone = np.isnan(x).any(axis=(-2, -1))
        return np.broadcast_to((gone | self._close(x, _ROUNDING))[..., None, None], x.shape)

    def closure(self, value: np.ndarray) -> bool:
        square = value.ndim > 1 and value.shape[-1] == value.shape[-2]
        return bool(square and self._close(value, 1e-6).all())

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return f"{self.name}. Got an array of shape {value.shape} instead."
        if self._close(value, _ROUNDING_32).all():
            return None
        return f"{self.name}. Got one whose columns are not orthonormal, or that reflects, instead."

    def free_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)

    def to_free(self, value: Array) -> Array:
        eye = jnp.broadcast_to(jnp.eye(value.shape[-1], dtype=value.dtype), value.shape)
        skew = jnp.linalg.solve(eye + value, eye - value)
        return skew[..., *np.tril_indices(value.shape[-1], -1)]

    def _eye_and_skew(self, free: Array) -> tuple[Array, Array]:
        # n (n − 1) / 2 numbers
        n = (1 + math.isqrt(1 + 8 * free.shape[-1])) // 2
        rows, columns = np.tril_indices(n, -1)
        half = jnp.zeros((*free.shape[:-1], n, n), free.dtype).at[..., rows, columns].set(free)
        skew = half - jnp.swapaxes(half, -1, -2)
        return jnp.broadcast_to(jnp.eye(n, dtype=free.dtype), skew.shape), skew

    def from_free(self, free: Array) -> Array:
        eye, skew = self._eye_and_skew(free)
        return jnp.linalg.solve(eye + skew, eye - skew)

    def log_det(self, free: Array) -> Array:
        # Qᵀ dQ = −2 (I − S)⁻¹ dS (I + S)⁻¹
        eye, skew = self._eye_and_skew(free)
        logs = jnp.linalg.slogdet(eye + skew)[1]
        return free.size * math.log(2) - (eye.shape[-1] - 1) * jnp.sum(logs)


def as_rotation(matrix: Array) -> Array:
    """An orthogonal matrix with the signs of its columns chosen such that it is inside `Rotations`.

    Gaussian elimination of I + Q takes for each column the sign with which the pivot is one or more.

    >>> jnp.diag(as_rotation(jnp.diag(jnp.array([-1.0, 1.0])))).tolist()
    [1.0, 1.0]
    """
    n = matrix.shape[-1]
    place = np.arange(n)

    def column(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        left, signs = carry
        sign = jnp.where(left[j, j] < 0, -1.0, 1.0).astype(matrix.dtype)
        lower = jnp.where(place > j, sign * left[:, j], 0) / (1 + sign * left[j, j])
        return left - lower[:, None] * left[j][None, :], signs.at[j].set(sign)

    signs = jax.lax.fori_loop(0, n, column, (matrix, jnp.ones(n, matrix.dtype)))[1]
    return matrix * signs[None, :]


class AbstractFinite(AbstractHomogeneous):
    """A space in which every entry of an unknown has one of a few values: its states can be numbered."""

    discrete = True

    @property
    @abc.abstractmethod
    def n_values(self) -> int:
        """How many values an entry has."""

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype:
        """The type of the entries of a state."""

    def count_states(self) -> int:
        """How many states an unknown has.

        >>> Binary((3,)).count_states(), Categories(4).count_states()
        (8, 4)
        """
        return self.n_values ** math.prod(self.unknown_shape())

    def state(self, index: Array | int) -> Array:
        """State number `index`; the last entry changes fastest, as in `itertools.product`.

        >>> Binary((3,)).state(4).tolist(), Categories(4).state(2).tolist()
        ([1.0, 0.0, 0.0], 2)
        """
        shape = self.unknown_shape()
        # numbers below the largest have only zeros before these digits
        places = [min(self.n_values**k, _LARGEST) for k in reversed(range(math.prod(shape)))]
        digits = jnp.asarray(index).astype(int) // np.array(places, int) % self.n_values
        return digits.reshape(shape).astype(self.dtype)

    def start(self, *, key: Array) -> Array:
        return jax.random.randint(key, self.unknown_shape(), 0, self.n_values).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class Binary(AbstractFinite):
    """Zero and one.

    >>> Binary().contains(np.array([[0.0, 1.0, 2.0]])).tolist()
    [[True, True, False]]
    """

    phrase = "entries 0 or 1"
    shape: Shape | None = None

    @property
    def n_values(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(float)

    def contains(self, x: np.ndarray) -> np.ndarray:
        return np.isnan(x) | (x == 0) | (x == 1)


def _is_whole(x: np.ndarray) -> np.ndarray:
    return np.isnan(x) | (np.isfinite(x) & (x >= 0) & (np.floor(x) == x))


@dataclasses.dataclass(frozen=True)
class Counts(AbstractHomogeneous):
    """Whole numbers from zero on.

    >>> Counts().contains(np.array([[0.0, 3.0, 0.5, -1.0]])).tolist()
    [[True, True, False, False]]
    """

    discrete = True
    phrase = "non-negative whole numbers"
    shape: Shape | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        return _is_whole(x)

    def start(self, *, key: Array) -> Array:
        return jax.random.poisson(key, 1.0, self.unknown_shape()).astype(float)


@dataclasses.dataclass(frozen=True)
class Categories(AbstractFinite):
    """Labels, numbered from zero on, whose order means nothing.  As an unknown a label is one whole number.

    Attributes:
        size: how many labels there are, where that is known.
        shape: of an unknown; one label unless it says otherwise.
        labels: what they are called, where that is known.

    >>> Categories().contains(np.array([[0.0, 3.0, 0.5]])).tolist()
    [[True, True, False]]
    >>> Categories(3).contains(np.array([[0.0, 3.0, 0.5]])).tolist()
    [[True, False, False]]
    """

    unordered = True
    phrase = "labels 0, 1, 2, …"
    size: int | None = None
    shape: Shape | None = ()
    labels: tuple[str, ...] = ()

    @property
    def n_values(self) -> int:
        if self.size is None:
            raise ValueError(
                "The 'size' of Categories must be a whole number where it says what an unknown can be. "
                "Got None instead."
            )
        return self.size

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(int)

    def contains(self, x: np.ndarray) -> np.ndarray:
        return _is_whole(x) & ~(x >= (np.inf if self.size is None else self.size))


@dataclasses.dataclass(frozen=True)
class Blocks(AbstractSpace):
    """Columns of different spaces.

    Attributes:
        parts: the space of each block.
        sizes: how many columns each of them takes.
        columns: which columns these are, one block after another; consecutive ones if None.

    >>> mixed = Blocks((Counts(), Reals()), (1, 2))
    >>> mixed.has_mass(3).tolist(), mixed.has_labels(3).tolist()
    ([True, False, False], [False, False, False])
    >>> mixed.contains(np.array([[0.5, 0.5, 0.5]])).tolist()
    [[False, True, True]]
    """

    parts: tuple[AbstractSpace, ...]
    sizes: tuple[int, ...]
    columns: tuple[int, ...] | None = None

    def _blocks(self, x: np.ndarray) -> list[np.ndarray]:
        x = x if self.columns is None else x[..., list(self.columns)]
        return np.split(x, np.cumsum(self.sizes)[:-1], axis=-1)

    def _joined(self, blocks: list[Any], join: Any = np.concatenate) -> Any:
        """Blocks as columns in their order."""
        whole = join(blocks, axis=-1)
        return whole if self.columns is None else whole[..., np.argsort(self.columns)]

    @property
    def shape(self) -> Shape:
        return (sum(self.sizes),)

    @property
    def phrase(self) -> str:
        return "; ".join(
            f"{part.phrase} in {size} column{'s' * (size > 1)}"
            for part, size in zip(self.parts, self.sizes, strict=True)
        )

    def contains(self, x: np.ndarray) -> np.ndarray:
        return self._joined([p.contains(b) for p, b in zip(self.parts, self._blocks(x), strict=True)])

    def has_mass(self, n_features: int) -> np.ndarray:
        self._check_width(n_features)
        return self._joined([p.has_mass(size) for p, size in zip(self.parts, self.sizes, strict=True)])

    def has_labels(self, n_features: int) -> np.ndarray:
        self._check_width(n_features)
        return self._joined([p.has_labels(size) for p, size in zip(self.parts, self.sizes, strict=True)])

    def with_shape(self, shape: Shape) -> Self:
        self._check_width(math.prod(shape))
        return self

    def start(self, *, key: Array) -> Array:
        keys = jax.random.split(key, len(self.parts))
        parts = [p.with_shape((size,)) for p, size in zip(self.parts, self.sizes, strict=True)]
        starts = [p.start(key=k).astype(float) for p, k in zip(parts, keys, strict=True)]
        return self._joined(starts, jnp.concatenate)

    def _check_width(self, n_features: int) -> None:
        if n_features != sum(self.sizes):
            raise ValueError(f"The blocks have {sum(self.sizes)} columns. Got {n_features} instead.")


real = Reals()
positive = Positive()
unit_interval = UnitInterval()
simplex = Simplex()
positive_definite = PositiveDefinite()
rotations = Rotations()
