"""What values a column takes: reals with a density, whole numbers with a mass, or one value."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

import numpy as np

# beyond this a float has too few digits left for noise below one
_MOST_CELLS = 2.0**42
# the smallest gap between two values may be this many steps of their grid
_MOST_STEPS = 100
# how far from the grid values may lie, in steps, besides what rounding explains
_OFF_GRID = 1e-6
# a step of more digits after the point is a fraction, not a decimal
_MOST_DECIMALS = 9


class Column(enum.Enum):
    """The values of a column.

    The first four are those of a `Support`; a `Schema` has all.
    """

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    ROUNDED = "rounded"
    CONSTANT = "constant"
    COUNT = "count"
    BINARY = "binary"
    CATEGORY = "category"
    ORDERED = "ordered"
    DATE = "date"
    IDENTIFIER = "identifier"
    TEXT = "text"


def is_whole(values: np.ndarray) -> bool:
    """Whether all are whole numbers that a float tells from their neighbours."""
    return bool((np.rint(values) == values).all() and (np.abs(values) < _MOST_CELLS).all())


def _decimals(number: float) -> int:
    """Digits after the point in the shortest text of a number."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return max(-int(exponent), 0)


class Grid(NamedTuple):
    """The values origin + k · step for whole k."""

    origin: float
    step: float

    @staticmethod
    def find(values: np.ndarray, total: float = 0.0) -> Grid | None:
        """The coarsest grid on which repeated `values` lie, or None: no value twice, or no grid.

        `total` is how many values there are where each stands for several.

        >>> Grid.find(np.array([0.3, 0.1, 0.3, 0.4]))
        Grid(origin=0.0, step=0.1)
        """
        distinct = np.unique(values)
        if not 1 < len(distinct) < max(len(values), total):
            return None
        # 32-bit numbers are rounded more coarsely than 64-bit ones
        with np.errstate(over="ignore"):
            single = (distinct.astype(np.float32) == distinct).all()
            gaps = np.diff(distinct)
        if np.isinf(gaps).any():
            return None
        rounding = 4 * float(np.finfo(np.float32 if single else np.float64).eps) * np.abs(distinct).max()
        # Euclid's algorithm with a slack for rounding; in wide gaps the error of the step would add up
        least = step = gaps.min()
        slack = max(8 * rounding, _OFF_GRID * least)
        while True:
            near = gaps[gaps <= 1000 * step]
            left = np.abs(near - step * np.rint(near / step))
            if (left <= slack).all():
                break
            step = left[left > slack].min()
            if step * _MOST_STEPS < least:
                return None
        step = near.sum() / np.rint(near / step).sum()
        count = np.rint(gaps / step).sum()
        step = gaps.sum() / count
        off = np.abs(gaps - step * np.rint(gaps / step)) > slack
        if off.any() or count > _MOST_CELLS or rounding > 0.01 * step:
            return None
        return Grid._tidy(float(distinct[0]), float(step), rounding)

    @staticmethod
    def _tidy(origin: float, step: float, rounding: float) -> Grid:
        """The same grid in the fewest digits, from zero if zero is on it."""
        short = float(f"{step:.6g}")
        step = short if abs(short - step) <= rounding else step
        place = origin / step
        from_zero = abs(place - round(place)) * step <= max(_OFF_GRID * step, rounding)
        return Grid(0.0 if from_zero else origin, step)

    def places(self, x: np.ndarray) -> np.ndarray:
        """k of the nearest value; NaN stays."""
        return np.rint((x - self.origin) / self.step)

    def snap(self, x: np.ndarray) -> np.ndarray:
        """The nearest values, those of decimals as they are written: 13.1 and not 131 · 0.1."""
        near = self.origin + self.step * self.places(x)
        digits = max(_decimals(self.origin), _decimals(self.step))
        return near if digits > _MOST_DECIMALS else np.round(near, digits)

    def holds(self, x: np.ndarray) -> np.ndarray:
        """Which entries are on the grid; NaN is."""
        rounding = 4 * float(np.finfo(np.float32).eps) * np.abs(x)
        return np.isnan(x) | (np.abs(x - self.snap(x)) <= _OFF_GRID * self.step + rounding)


WHOLE = Grid(0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Support:
    """For each column whether it is continuous, whole numbers, rounded to a grid, or constant.

    A model of continuous columns gives a density, which has a unit; a model of whole numbers gives a
    probability mass, which has none.  Only where the support is agreed on can they be compared.  Values
    that were rounded (to tenths, say, or two values of whatever size) have a mass too: a density that is
    made narrow enough at values that occur again and again can be made as high as one likes.

    Args:
        kinds: a `Column` (or its word) for each column.
        steps: for each column the step of its grid; needed where a column is rounded.
        origins: for each column a value on its grid; zero by default.

    >>> Support.recognise([[0.5, 1, 7], [1.5, 2, 7], [np.pi, 1, 7]])
    Support(('continuous', 'integer', 'constant'))
    >>> Support.recognise([[0.1], [0.3], [0.1], [0.4]])
    Support(('rounded',), steps=(0.1,), origins=(0.0,))
    >>> Support(["integer", "integer"]).integer.tolist()
    [True, True]
    """

    possible: ClassVar[tuple[Column, ...]] = (
        Column.CONTINUOUS,
        Column.INTEGER,
        Column.ROUNDED,
        Column.CONSTANT,
    )

    kinds: tuple[Column, ...]
    steps: tuple[float, ...]
    origins: tuple[float, ...]

    def __init__(
        self,
        kinds: Iterable[Column | str],
        steps: Iterable[float] | None = None,
        origins: Iterable[float] | None = None,
    ) -> None:
        words = {column.value: column for column in self.possible}
        found = []
        for kind in kinds:
            word = kind.value if isinstance(kind, Column) else kind
            if word not in words:
                raise ValueError(
                    f"The 'kinds' parameter of Support must be of {', '.join(map(repr, words))}. "
                    f"Got {kind!r} instead."
                )
            found.append(words[word])
        object.__setattr__(self, "kinds", tuple(found))
        for name, given in (("steps", steps), ("origins", origins)):
            numbers = tuple(float(v) for v in given) if given is not None else (0.0,) * len(found)
            if len(numbers) != len(found):
                raise ValueError(
                    f"The '{name}' parameter of Support must have a number for each of the {len(found)} "
                    f"kinds. Got {len(numbers)} instead."
                )
            rounded = [v if kind is Column.ROUNDED else 0.0 for v, kind in zip(numbers, found, strict=True)]
            object.__setattr__(self, name, tuple(rounded))
        for column, (kind, step) in enumerate(zip(self.kinds, self.steps, strict=True)):
            if kind is Column.ROUNDED and not 0 < step < np.inf:
                raise ValueError(
                    f"The 'steps' parameter of Support must be positive where a column is rounded. Got "
                    f"{step!r} for column {column} instead."
                )

    def __repr__(self) -> str:
        grid = f", steps={self.steps}, origins={self.origins}" if self.rounded.any() else ""
        return f"Support({tuple(kind.value for kind in self.kinds)}{grid})"

    def __len__(self) -> int:
        return len(self.kinds)

    @staticmethod
    def recognise(X: Any, weight: Any = None, *, constants: bool = True) -> Support:
        """The support of the observed entries of `X`, whose rows count as often as `weight` says.

        A column is rounded if some of its values occur again and all of them lie on a grid.
        Without `constants` a column of one value is taken as whole or continuous, as that value is.
        """
        X = np.asarray(X, float)
        weight = np.ones(len(X)) if weight is None else np.asarray(weight, float)
        kinds, grids = [], []
        for column in X.T:
            observed = ~np.isnan(column)
            seen = column[observed]
            grid = None
            if constants and (not len(seen) or (seen == seen[0]).all()):
                kinds.append(Column.CONSTANT)
            elif is_whole(seen):
                kinds.append(Column.INTEGER)
            else:
                grid = Grid.find(seen, weight[observed].sum())
                kinds.append(Column.CONTINUOUS if grid is None else Column.ROUNDED)
            grids.append(grid or Grid(0.0, 0.0))
        return Support(kinds, [grid.step for grid in grids], [grid.origin for grid in grids])

    def without_grids(self) -> Support:
        """The same with columns of rounded numbers taken as continuous."""
        return Support(Column.CONTINUOUS if kind is Column.ROUNDED else kind for kind in self.kinds)

    def part(self, columns: np.ndarray) -> Support:
        """The support of some columns, as a mask of them says."""
        chosen = np.flatnonzero(columns)
        return Support(
            [self.kinds[i] for i in chosen],
            [self.steps[i] for i in chosen],
            [self.origins[i] for i in chosen],
        )

    def grid(self, column: int) -> Grid | None:
        """The grid of a column of whole or rounded numbers."""
        if self.kinds[column] is Column.INTEGER:
            return WHOLE
        rounded = self.kinds[column] is Column.ROUNDED
        return Grid(self.origins[column], self.steps[column]) if rounded else None

    def _are(self, *kinds: Column) -> np.ndarray:
        return np.array([k in kinds for k in self.kinds], bool)

    @property
    def continuous(self) -> np.ndarray:
        """Which columns have a density."""
        return self._are(Column.CONTINUOUS)

    @property
    def integer(self) -> np.ndarray:
        """Which columns hold whole numbers."""
        return self._are(Column.INTEGER)

    @property
    def rounded(self) -> np.ndarray:
        """Which columns hold numbers on a grid other than the whole ones."""
        return self._are(Column.ROUNDED)

    @property
    def cells(self) -> np.ndarray:
        """Which columns hold whole or rounded numbers, so that models give their values a mass."""
        return self._are(Column.INTEGER, Column.ROUNDED)

    @property
    def constant(self) -> np.ndarray:
        """Which columns have one value."""
        return self._are(Column.CONSTANT)
