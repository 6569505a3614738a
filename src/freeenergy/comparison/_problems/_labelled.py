"""Rows with labels: classifiers are compared on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..._core import Evidence, Kind
from ...evaluation import Measure, auc, log_loss
from ...shell import CodedRows, PredictsDensities, ScoresLabels
from ._given import AbstractGiven


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
            lambda X: np.log(np.asarray(estimator.predict_proba(X), float))
        )
        with np.errstate(divide="ignore"):
            nats[known] = logs(X)[np.arange(len(y)), place]
    return Evidence(nats, stderr, kind)


class Labelled(AbstractGiven):
    """Rows with labels, of which models give the probability given the row."""

    def __init__(self, X: Any, y: Any, groups: np.ndarray | None, models: Any = ()) -> None:
        labels = column_or_1d(y)
        check_classification_targets(labels)
        self._describe(X, labels, groups, models)
        self.classes = np.unique(labels)
        self.notes = [f"Bits are of the label, one of {len(self.classes)}, given the row."]

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if isinstance(estimator, PredictsDensities):
            raise ValueError(
                f"{name} gives the law of a number, and y is taken for labels, since there are classifiers "
                "among the models. Compare the two apart."
            )
        if not is_classifier(estimator):
            raise ValueError(f"{name} gives no probability of y given X.")
        if getattr(estimator, "predict_proba", None) is None:
            raise ValueError(f"{name} has no predict_proba.")
        return estimator

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        return evidence_of_labels(estimator, self._rows(estimator, test), self.y[test])

    def predicted(self, estimator: Any, test: np.ndarray, level: float, seed: int) -> np.ndarray:
        """The number of each label, and below it the probability of every one."""
        shares = self._shares(estimator, self._rows(estimator, test))
        return np.concatenate([np.searchsorted(self.classes, self.y[test])[None], shares])

    def _shares(self, estimator: Any, rows: Any) -> np.ndarray:
        """The probability of every label, a column for each row."""
        found = np.asarray(estimator.predict_proba(rows)).T
        shares = np.zeros((len(self.classes), found.shape[1]))
        # labels that no row of the fit had have none
        shares[np.searchsorted(self.classes, estimator.classes_)] = found
        return shares

    def measures(self, predicted: np.ndarray, level: float) -> dict[str, Measure]:
        truth, shares = predicted[0].astype(int), predicted[1:].T
        right = shares.argmax(axis=1) == truth
        found = {"log loss": log_loss(truth, shares)}
        if len(self.classes) > 1 and len(np.unique(truth)) == len(self.classes):
            found["AUC"] = auc(truth, shares[:, 1] if shares.shape[1] == 2 else shares)
        share = float(right.mean())
        return found | {"right": Measure(share, float(np.sqrt(share * (1 - share) / len(right))))}

    def _evidence_of(self, estimator: Any, rows: Any, y: np.ndarray) -> Evidence:
        return evidence_of_labels(estimator, rows, y)

    def _average(self, estimator: Any, rows: Any) -> np.ndarray:
        """The mean probability of each label."""
        return self._shares(estimator, rows).mean(axis=1)
