"""Probabilities of any classifier, calibrated on rows that it had not seen."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from jax import Array
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import has_fit_parameter

from ..._core import Evidence, Fit, Kind, Status
from ...evaluation import Reliability, reliability
from ...shell import (
    LabelledTable,
    Predicts,
    PredictsProbabilities,
    Rows,
    ScoresLabels,
    check_instance,
    check_int,
    check_numbers,
    framed,
    framed_chances,
)
from ._calibrations import AbstractCalibration, Identity, Temperature
from ._wraps import Wraps


class Calibrated(ClassifierMixin, Predicts, PredictsProbabilities, ScoresLabels, Wraps):
    """A classifier whose probabilities come true: of rows said to be p certain, a share of p is right.

    The classifier is fitted without each of `folds` parts of the rows in turn, and asked about that part;
    what it says of rows that it had not seen is put right by `method`.  Then it is fitted to all rows, and
    its answers go through the same map.

    Args:
        estimator: a classifier with `predict_proba`, of the library or of scikit-learn;
            `SoftmaxRegression()` if None.
        method: `Temperature()` (if None), `Sigmoid()` or `Isotonic()` of `freeenergy.estimators`.
        folds: into how many parts rows are split, evenly for each class.

    Attributes:
        classes_: the labels.
        estimator_: the classifier, fitted to all rows.
        reliability_: the reliability of its probabilities for rows that it had not seen, before the map.
        model_: the map.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Copies of a row are never on both sides of a split.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(rng.normal(size=(300, 1)), 5, axis=1)  # five times the same evidence
    >>> y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    >>> plain, better = GaussianNB().fit(X, y), Calibrated(GaussianNB()).fit(X, y)
    >>> before, after = (reliability(model.predict_proba(X), y).error for model in (plain, better))
    >>> bool(after < before / 2)
    True
    """

    intake = LabelledTable

    def __init__(
        self, estimator: Any = None, method: AbstractCalibration | None = None, *, folds: int = 5
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.folds = folds

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "method", AbstractCalibration, optional=True)
        check_int(self, "folds", 2)

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the classifier and the map.

        Args:
            X: a row per sample; NaN means not observed.
            y: the class of each row.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        answers, k = rows.known[:, 0].astype(int), len(self.classes_)
        self.estimator_ = self._fitted(rows.x, answers, rows.weight)
        fold = _folds(answers, self.folds)
        held = fold >= 0
        if k < 2 or not held.any():
            self.reliability_ = None
            return Fit(Identity(), {}, 1, Status.CONVERGED)
        logs = np.empty((len(answers), k))
        for number in np.unique(fold[held]):
            test = fold == number
            part = self._fitted(rows.x[~test], answers[~test], rows.weight[~test])
            logs[test] = self._said(part, rows.x[test])
        logs, answers, weight = logs[held], answers[held], rows.weight[held]
        self.reliability_ = reliability(np.exp(logs), answers)
        method = Temperature() if self.method is None else self.method
        return Fit(method(logs, answers, weight), {}, 1, Status.CONVERGED)

    def _fitted(self, x: np.ndarray, answers: np.ndarray, weight: np.ndarray) -> Any:
        estimator: Any = clone(self._inner())
        options = {}
        if has_fit_parameter(estimator, "sample_weight"):
            options = {"sample_weight": weight}
        elif (weight != 1).any():
            x, answers = (np.repeat(part, np.rint(weight).astype(int), axis=0) for part in (x, answers))
        return estimator.fit(self._coded(x), self.classes_[answers], **options)

    def _said(self, estimator: Any, x: np.ndarray) -> np.ndarray:
        """log p of each class, of those that the classifier has seen."""
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(estimator.predict_proba(self._coded(x)), float))
        found = np.full((len(x), len(self.classes_)), -np.inf)
        found[:, np.searchsorted(self.classes_, estimator.classes_)] = logs
        return found

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log p(y | x) of each class."""
        x = self._read(X).x
        logs = self.model_(self._said(self.estimator_, x))
        return check_numbers(self, "predict_log_proba", logs, logarithms=True)

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(y | x) of each class."""
        return np.exp(self.predict_log_proba(X))

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        logs = self.predict_log_proba(X)
        return self.classes_[np.argmax(logs, axis=1)]

    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row, for labels among those that were fitted."""
        logs = self.predict_log_proba(X)
        nats = logs[np.arange(len(logs)), self._place_of(y)]
        return Evidence(nats, np.zeros_like(nats), Kind.EXACT)

    def reliability(self, X: Any, y: Any, *, bins: int = 10) -> Reliability:
        """What is said of rows beside what happens, in bins of confidence."""
        return reliability(np.asarray(self.predict_proba(X)), self._place_of(y), bins=bins)


def _folds(answers: np.ndarray, parts: int) -> np.ndarray:
    """The part that each row is held out with, evenly for each answer; −1 for one without a second row."""
    fold = np.full(len(answers), -1)
    for y in np.unique(answers):
        own = np.flatnonzero(answers == y)
        if len(own) > 1:
            fold[own] = np.arange(len(own)) % parts
    return fold
