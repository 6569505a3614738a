"""Rows with labels: classifiers are compared on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names, check_consistent_length, column_or_1d

from ..._core import Evidence, Kind
from ...estimators import Support
from ...shell import AbstractRowEstimator, CodedRows, ScoresLabels
from ._base import AbstractProblem, Pair, index_of, named, shuffled_apart, shuffled_splits
from ._columns import schema_of


def evidence_of_labels(estimator: Any, X: Any, y: np.ndarray) -> Evidence:
    """log p(y | x) of each row under a fitted classifier.

    >>> from freeenergy import DiscriminantAnalysis
    >>> model = DiscriminantAnalysis().fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    >>> evidence_of_labels(model, np.array([[2.5]]), np.array([1])).nats.round(6).tolist()
    [-0.693147]
    """
    # a label that no row of the fit had is impossible
    known = np.isin(y, estimator.classes_)
    nats, stderr, kind = np.full(len(y), -np.inf), np.zeros(len(y)), Kind.EXACT
    if not known.any():
        return Evidence(nats, stderr, kind)
    chosen = np.flatnonzero(known)
    X, y = X[chosen] if isinstance(X, CodedRows) else _safe_indexing(X, chosen), y[known]
    if isinstance(estimator, ScoresLabels):
        found = estimator.evidence_of_labels(X, y)
        nats[known], stderr[known], kind = found.nats, found.stderr, found.kind
    else:
        place = np.searchsorted(estimator.classes_, y)
        # probabilities below the least float have a logarithm where the model gives it itself
        logs = getattr(estimator, "predict_log_proba", None) or (
            lambda X: np.log(estimator.predict_proba(X))
        )
        with np.errstate(divide="ignore"):
            nats[known] = logs(X)[np.arange(len(y)), place]
    return Evidence(nats, stderr, kind)


class Labelled(AbstractProblem):
    """Rows with labels, of which models give the probability given the row."""

    def __init__(self, X: Any, y: Any, groups: np.ndarray | None, models: Any = ()) -> None:
        found = schema_of(X, None, models)
        # labels that a fold has not are labels all the same
        self.coded = None if found is None else CodedRows(found[1], found[0].coded())
        self.X = X if isinstance(X, np.ndarray) or _get_feature_names(X) is not None else np.asarray(X)
        self.y, self.index = column_or_1d(y), index_of(X)
        check_classification_targets(self.y)
        check_consistent_length(self.X, self.y)
        self.feature_names = named(_get_feature_names(X), np.shape(self.X)[1])
        if found is not None:
            self.columns = found[0]
            self.feature_names = [str(field.name) for field in found[0].modelled]
        self.support = Support(["continuous"] * len(self.feature_names))
        self.notes = [f"Bits are of the label, one of {len(np.unique(self.y))}, given the row."]
        self.n_rows = len(self.y)
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.ones(self.n_rows)
        self.dimension = 1

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if not is_classifier(estimator):
            raise ValueError(f"{name} gives no probability of y given X.")
        if getattr(estimator, "predict_proba", None) is None:
            raise ValueError(f"{name} has no predict_proba.")
        return estimator

    def _rows(self, estimator: Any, rows: np.ndarray) -> Any:
        if self.coded is not None and isinstance(estimator, AbstractRowEstimator):
            return self.coded[rows]
        return _safe_indexing(self.X, rows)

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        return estimator.fit(self._rows(estimator, train), self.y[train])

    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        return estimator.fit(X, y)

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        return evidence_of_labels(estimator, self._rows(estimator, test), self.y[test])

    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        return {}

    def examples(self, rows: np.ndarray) -> Any:
        if self.coded is not None:
            return self.coded.x[rows]
        try:
            return np.asarray(_safe_indexing(self.X, rows), float)
        except ValueError:
            return np.empty((0, np.shape(self.X)[1]))

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        return shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        return shuffled_splits(units, cv, groups, seed, self.y[units])
