"""What values a column takes: reals with a density, whole numbers with a mass, or one value."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any

import numpy as np

# beyond this a float has too few digits left for noise below one
_LARGEST_WHOLE = 2.0**42


class Column(enum.Enum):
    """The values of a column."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    CONSTANT = "constant"


@dataclasses.dataclass(frozen=True)
class Support:
    """For each column whether it is continuous, whole numbers or constant.

    A model of continuous columns gives a density, which has a unit; a model of whole numbers gives a
    probability mass, which has none.  Only where the support is agreed on can they be compared.

    Args:
        kinds: a `Column` (or its word) for each column.

    >>> Support.recognise([[0.5, 1, 7], [1.5, 2, 7]])
    Support(('continuous', 'integer', 'constant'))
    >>> Support(["integer", "integer"]).integer.tolist()
    [True, True]
    """

    kinds: tuple[Column, ...]

    def __init__(self, kinds: Iterable[Column | str]) -> None:
        words = ", ".join(repr(column.value) for column in Column)
        found = []
        for kind in kinds:
            try:
                found.append(Column(kind))
            except ValueError:
                raise ValueError(
                    f"The 'kinds' parameter of Support must be of {words}. Got {kind!r} instead."
                ) from None
        object.__setattr__(self, "kinds", tuple(found))

    def __repr__(self) -> str:
        return f"Support({tuple(kind.value for kind in self.kinds)})"

    def __len__(self) -> int:
        return len(self.kinds)

    @staticmethod
    def recognise(X: Any, *, constants: bool = True) -> Support:
        """The support of the observed entries of `X`.

        Without `constants` a column of one value is taken as whole or continuous, as that value is.
        """
        X = np.asarray(X, float)
        kinds = []
        for column in X.T:
            seen = column[~np.isnan(column)]
            if constants and (not len(seen) or (seen == seen[0]).all()):
                kinds.append(Column.CONSTANT)
            elif (np.rint(seen) == seen).all() and (np.abs(seen) < _LARGEST_WHOLE).all():
                kinds.append(Column.INTEGER)
            else:
                kinds.append(Column.CONTINUOUS)
        return Support(kinds)

    def _are(self, kind: Column) -> np.ndarray:
        return np.array([k is kind for k in self.kinds], bool)

    @property
    def continuous(self) -> np.ndarray:
        """Which columns have a density."""
        return self._are(Column.CONTINUOUS)

    @property
    def integer(self) -> np.ndarray:
        """Which columns hold whole numbers."""
        return self._are(Column.INTEGER)

    @property
    def constant(self) -> np.ndarray:
        """Which columns have one value."""
        return self._are(Column.CONSTANT)


def discrete_columns(family: Any, n_features: int) -> np.ndarray:
    """Which columns `family` (a class or a member) gives a probability mass, not a density."""
    return family.support.has_mass(n_features)
