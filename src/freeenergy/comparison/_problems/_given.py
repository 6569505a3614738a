"""What rows with labels and rows with numbers to be predicted share."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names, check_consistent_length

from ..._core import Evidence
from ...estimators import Support
from ...evaluation import Measure
from ...shell import AbstractRowEstimator, CodedRows
from ._base import AbstractProblem, Pair, evenly, index_of, named, shuffled_apart, shuffled_splits
from ._columns import schema_of

# of the pictures of one model: rows that are asked, columns whose importance is found, and whose effect is
# drawn at so many values
_ROWS, _COLUMNS, _DRAWN, _VALUES = 200, 30, 6, 20
# how often a column is shuffled
_SHUFFLES = 3


def _as_numbers(X: Any) -> np.ndarray | None:
    try:
        found = np.asarray(X, float)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 2 else None


class AbstractGiven(AbstractProblem):
    """Rows with something to be told from them, of which models give the probability given the row.

    Attributes:
        X: the rows as they were passed.
        x: the same as numbers, if they are such; of columns of several kinds those that stand for labels.
        coded: `x` with what it stands for, where columns are of several kinds.
        y: what is to be told.
        outputs: how many numbers, or labels, there are for each row.
    """

    X: Any
    x: np.ndarray | None
    coded: CodedRows | None
    y: np.ndarray
    outputs: int = 1

    def _describe(self, X: Any, y: np.ndarray, groups: np.ndarray | None, models: Any) -> None:
        found = schema_of(X, None, models)
        # labels that a fold has not are labels all the same
        self.coded = None if found is None else CodedRows(found[1], found[0].coded())
        self.X = X if isinstance(X, np.ndarray) or _get_feature_names(X) is not None else np.asarray(X)
        self.x = _as_numbers(self.X) if found is None else found[1]
        self.y, self.index = y, index_of(X)
        check_consistent_length(self.X, y)
        self.feature_names = named(_get_feature_names(X), np.shape(self.X)[1])
        if found is not None:
            self.columns = found[0]
            self.feature_names = [str(field.name) for field in found[0].modelled]
        self.support = Support(["continuous"] * len(self.feature_names))
        self.n_rows = len(y)
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.ones(self.n_rows)
        self.dimension = 1

    def _rows(self, estimator: Any, rows: np.ndarray) -> Any:
        if not isinstance(estimator, AbstractRowEstimator) or self.x is None:
            return _safe_indexing(self.X, rows)
        return self.x[rows] if self.coded is None else self.coded[rows]

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        return estimator.fit(self._rows(estimator, train), self.y[train])

    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        return estimator.fit(X, y)

    @abc.abstractmethod
    def predicted(self, estimator: Any, test: np.ndarray, level: float, seed: int) -> np.ndarray:
        """What came and what was predicted, a column for each output of each of the units `test`."""

    @abc.abstractmethod
    def measures(self, predicted: np.ndarray, level: float) -> dict[str, Measure]:
        """How good predictions are, by the usual names."""

    @abc.abstractmethod
    def _evidence_of(self, estimator: Any, rows: Any, y: np.ndarray) -> Evidence:
        """log p(y | x) of rows that are made of those of the data."""

    @abc.abstractmethod
    def _average(self, estimator: Any, rows: Any) -> np.ndarray:
        """What is predicted for rows on average, as a few numbers."""

    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        """How much the prediction depends on each column."""
        known = isinstance(estimator, AbstractRowEstimator) or isinstance(self.X, np.ndarray)
        if self.x is None or not known or self.x.shape[1] > _COLUMNS:
            return {}
        rng = np.random.default_rng(seed)
        chosen = evenly(test, _ROWS)
        rows, y = self.x[chosen], self.y[chosen]
        importance = self._importance(estimator, rows, y, rng)
        if not np.isfinite(importance).all():
            # labels that the model takes for impossible have no bits to be lost
            return {}
        most = np.argsort(-importance[:, 0], kind="stable")[:_DRAWN]
        values = np.stack([_values(rows[:, column]) for column in most])
        effect = [self._dependence(estimator, rows, j, at) for j, at in zip(most, values, strict=True)]
        return {
            "effects": {
                "importance": importance,
                "columns": most,
                "values": values,
                "dependence": np.stack(effect),
            }
        }

    def _asked(self, rows: np.ndarray) -> Any:
        return rows if self.coded is None else CodedRows(rows, self.coded.schema)

    def _importance(
        self, estimator: Any, rows: np.ndarray, y: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """By how many bits the answers cost more when a column is shuffled, with the standard error."""
        before = self._evidence_of(estimator, self._asked(rows), y).nats
        found = np.empty((rows.shape[1], 2))
        for column in range(rows.shape[1]):
            lost = np.zeros(len(rows))
            for _ in range(_SHUFFLES):
                other = rows.copy()
                other[:, column] = rng.permutation(other[:, column])
                after = self._evidence_of(estimator, self._asked(other), y).nats
                # what was impossible before and is after has lost nothing
                lost += np.where(before == after, 0.0, before - after) / (_SHUFFLES * np.log(2))
            found[column] = lost.mean(), lost.std(ddof=1) / np.sqrt(len(lost))
        return found

    def _dependence(self, estimator: Any, rows: np.ndarray, column: int, values: np.ndarray) -> np.ndarray:
        """What is predicted on average at each value of a column."""
        found = []
        for value in values:
            other = rows.copy()
            other[:, column] = value
            found.append(self._average(estimator, self._asked(other)))
        return np.array(found)

    def examples(self, rows: np.ndarray) -> Any:
        return np.empty((0, np.shape(self.X)[1])) if self.x is None else self.x[rows]

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        return shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        return shuffled_splits(units, cv, groups, seed, self.y[units])


def _values(column: np.ndarray) -> np.ndarray:
    """Values of a column from a twentieth to nineteen twentieths of its rows; those there are, if few."""
    known = column[~np.isnan(column)]
    seen = np.unique(known)
    if not len(seen):
        return np.zeros(_VALUES)
    if len(seen) <= _VALUES:
        # as many for each column, so that they are one array
        return np.concatenate([seen, np.repeat(seen[-1:], _VALUES - len(seen))])
    low, high = np.quantile(known, [0.05, 0.95])
    return np.linspace(low, high, _VALUES)
