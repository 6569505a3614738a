"""Which values an event can take.

A space is a frozen value without arrays, so that a class can hold it and it can be compared.  NaN means
*not observed* and lies in every space.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import numpy as np

# how far a row of parts may be from sum one
_ROUNDING = 1e-6


class AbstractSpace(abc.ABC):
    """A set of values, of which a row of data has one in each column."""

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


@dataclasses.dataclass(frozen=True)
class Reals(AbstractHomogeneous):
    """All finite numbers.

    >>> Reals().contains(np.array([[-1.5, np.inf]])).tolist()
    [[True, False]]
    """

    discrete = False
    phrase = "finite numbers"

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~np.isinf(x)


@dataclasses.dataclass(frozen=True)
class Positive(AbstractHomogeneous):
    """Finite numbers above zero.

    >>> Positive().contains(np.array([[0.0, 0.1]])).tolist()
    [[False, True]]
    """

    discrete = False
    phrase = "positive numbers"

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~((x <= 0) | np.isinf(x))


@dataclasses.dataclass(frozen=True)
class NonNegative(AbstractHomogeneous):
    """Finite numbers from zero on.

    >>> NonNegative().contains(np.array([[0.0, -0.1]])).tolist()
    [[True, False]]
    """

    discrete = False
    phrase = "non-negative numbers"

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~((x < 0) | np.isinf(x))


@dataclasses.dataclass(frozen=True)
class UnitInterval(AbstractHomogeneous):
    """Numbers strictly between zero and one.

    >>> UnitInterval().contains(np.array([[0.0, 0.5, 1.0]])).tolist()
    [[False, True, False]]
    """

    discrete = False
    phrase = "numbers strictly between 0 and 1"

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~((x <= 0) | (x >= 1))


@dataclasses.dataclass(frozen=True)
class Simplex(AbstractHomogeneous):
    """Rows of positive parts of one; what is missing in a row may be all that is left.

    >>> Simplex().contains(np.array([[0.2, 0.8], [0.2, 0.9], [0.2, np.nan]])).tolist()
    [[True, True], [False, False], [True, True]]
    """

    discrete = False
    phrase = "positive rows that sum to one"

    def contains(self, x: np.ndarray) -> np.ndarray:
        missing = np.isnan(x)
        over = np.nansum(x, axis=-1, keepdims=True) - 1
        fits = np.where(missing.any(axis=-1, keepdims=True), over < 0, np.abs(over) <= _ROUNDING)
        return missing | ((x > 0) & fits)


@dataclasses.dataclass(frozen=True)
class Binary(AbstractHomogeneous):
    """Zero and one.

    >>> Binary().contains(np.array([[0.0, 1.0, 2.0]])).tolist()
    [[True, True, False]]
    """

    discrete = True
    phrase = "entries 0 or 1"

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

    def contains(self, x: np.ndarray) -> np.ndarray:
        return _is_whole(x)


@dataclasses.dataclass(frozen=True)
class Categories(AbstractHomogeneous):
    """Labels, numbered from zero on, whose order means nothing.

    >>> Categories().contains(np.array([[0.0, 3.0, 0.5]])).tolist()
    [[True, True, False]]
    """

    discrete = True
    unordered = True
    phrase = "labels 0, 1, 2, …"

    def contains(self, x: np.ndarray) -> np.ndarray:
        return _is_whole(x)


@dataclasses.dataclass(frozen=True)
class Blocks(AbstractSpace):
    """Consecutive columns of different spaces.

    Attributes:
        parts: the space of each block.
        sizes: how many columns each of them takes.

    >>> mixed = Blocks((Counts(), Reals()), (1, 2))
    >>> mixed.has_mass(3).tolist(), mixed.has_labels(3).tolist()
    ([True, False, False], [False, False, False])
    >>> mixed.contains(np.array([[0.5, 0.5, 0.5]])).tolist()
    [[False, True, True]]
    """

    parts: tuple[AbstractSpace, ...]
    sizes: tuple[int, ...]

    @property
    def phrase(self) -> str:
        return "; ".join(
            f"{part.phrase} in {size} column{'s' * (size > 1)}"
            for part, size in zip(self.parts, self.sizes, strict=True)
        )

    def contains(self, x: np.ndarray) -> np.ndarray:
        blocks = np.split(x, np.cumsum(self.sizes)[:-1], axis=-1)
        return np.concatenate([p.contains(b) for p, b in zip(self.parts, blocks, strict=True)], axis=-1)

    def has_mass(self, n_features: int) -> np.ndarray:
        self._check_width(n_features)
        return np.concatenate([p.has_mass(size) for p, size in zip(self.parts, self.sizes, strict=True)])

    def has_labels(self, n_features: int) -> np.ndarray:
        self._check_width(n_features)
        return np.concatenate([p.has_labels(size) for p, size in zip(self.parts, self.sizes, strict=True)])

    def _check_width(self, n_features: int) -> None:
        if n_features != sum(self.sizes):
            raise ValueError(f"The blocks have {sum(self.sizes)} columns. Got {n_features} instead.")
