"""What every kind of data is to a comparison: units to hold out, and how a model is scored on them."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit, check_cv

from ..._core import CellError, Evidence
from ...estimators import Support
from ...shell import Schema

# draws of a model, and those of its series that are shown
DRAWS, PATHS = 300, 5
Pair = tuple[np.ndarray, np.ndarray]


class AbstractProblem(abc.ABC):
    """The data: how they are split, and how a model is fitted to one part and scored on another.

    Attributes:
        n_rows: how many units there are to hold out.
        clusters: a label for each unit; units of one label depend on each other.
        entries: observed numbers of each unit.
        dimension: columns that count.
        support, feature_names, notes: for the `Comparison`.
        index: the labels of the rows, where the user's frame has such.
        columns: what the columns of a table of several kinds are.
        times: when the steps of each series were, where a frame says it.
        series_names, input_names: what the series are called, and what is known beside them, likewise.
    """

    index: Any = None
    columns: Schema | None = None
    times: list[np.ndarray] | None = None
    series_names: list[str] | None = None
    input_names: list[str] | None = None
    # the fold whose models are drawn
    shown_fold: ClassVar[int] = 0
    _units_are_rows: ClassVar[bool] = True

    n_rows: int
    clusters: np.ndarray
    entries: np.ndarray
    dimension: int
    support: Support
    feature_names: list[str]
    notes: list[str]

    @abc.abstractmethod
    def admit(self, estimator: Any) -> Any:
        """The estimator as it is to be fitted; a ValueError says why it cannot be compared."""

    @abc.abstractmethod
    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        """Fits the units `train`."""

    @abc.abstractmethod
    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        """Fits all data, as the user passed them."""

    @abc.abstractmethod
    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        """The evidence of the units `test`."""

    @abc.abstractmethod
    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        """Draws, hidden parts and ranks, as `FoldResult` has them; `evidence` is that of `test`."""

    def scores(self, estimator: Any) -> bool:
        """Whether the estimator gives a probability of the data; others only draw."""
        return True

    def drawn(
        self, estimator: Any, train: np.ndarray, test: np.ndarray, seed: int, draws: Any = None
    ) -> dict[str, np.ndarray]:
        """Measures of draws beside the units `test`, where there are such; `draws` if they are there."""
        return {}

    def beside_data(self, train: np.ndarray, test: np.ndarray) -> list[dict[str, np.ndarray]]:
        """The same of what draws are to be read beside."""
        return []

    @abc.abstractmethod
    def examples(self, rows: np.ndarray) -> Any:
        """Some of the data."""

    @contextlib.contextmanager
    def cells(self, units: np.ndarray) -> Iterator[None]:
        """Names cells of some of the units as the user does, who passed all of them."""
        try:
            yield
        except CellError as error:
            if error.position is None or not self._units_are_rows:
                raise error.named(self.feature_names) from None
            raise error.placed(int(units[error.position]), self, names=self.feature_names) from None

    def identity(self) -> str:
        """Names the data."""
        return str(joblib.hash(vars(self)))

    @abc.abstractmethod
    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        """`units` in two parts, the second of the given size."""

    @abc.abstractmethod
    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        """Pairs of units to fit `models` to and units to score."""


def shuffled_apart(units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
    """Units in two parts, at random."""
    kind = ShuffleSplit if groups is None else GroupShuffleSplit
    split = kind(1, test_size=size, random_state=seed).split(np.empty(len(units)), groups=groups)
    rest, other = next(split)
    return units[np.sort(rest)], units[np.sort(other)]


def shuffled_splits(
    units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, targets: Any = None
) -> list[Pair]:
    """Pairs of units to fit to and units to score, at random."""
    if isinstance(cv, int):
        options: Any = {"n_splits": cv, "shuffle": True, "random_state": seed}
        cv = KFold(**options) if groups is None else GroupKFold(**options)
    splitter: Any = check_cv(cv)
    pairs = splitter.split(np.empty(len(units)), targets, groups)
    return [(units[train], units[test]) for train, test in pairs]


def index_of(X: Any) -> np.ndarray | None:
    """The labels of the rows of a frame; None where they are but positions."""
    index = getattr(X, "index", None)
    if index is None or callable(index) or np.array_equal(index, np.arange(len(X))):
        return None
    return np.asarray(index)


def named(names: Any, columns: int) -> list[str]:
    """The names of the columns, made up where there are none."""
    return [f"x{i}" for i in range(columns)] if names is None else [str(name) for name in names]


def complete(X: np.ndarray) -> np.ndarray:
    """Which rows have nothing missing."""
    return np.asarray(~np.isnan(X).any(axis=1))


def evenly(values: np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, at equal distances."""
    return values if len(values) <= most else values[np.linspace(0, len(values) - 1, most).astype(int)]


class Compare(BaseEstimator):
    """Names `compare` in the sentences of scikit-learn about wrong data.

    Args:
        needs_kinds: whether some model has to know what columns hold.
    """

    def __init__(self, needs_kinds: bool = False) -> None:
        self.needs_kinds = needs_kinds

    def takes(self, field: Any) -> bool:
        """Models say themselves which columns they take."""
        return True
