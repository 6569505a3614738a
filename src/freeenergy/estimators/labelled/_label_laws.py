"""What classifiers with a law of the label given the row share: averages over what is missing, evidence."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import check_consistent_length

from ..._core import Evidence, Kind, has_nan
from ...shell import PredictsProbabilities, ScoresLabels, check_numbers, framed_chances
from ._inputs import CompletesInputs
from ._regressor import error_of_mean, likelihood_of_answers


class HasLabelLaws(PredictsProbabilities, ScoresLabels, CompletesInputs):
    """log p(y | x) of every label: for complete rows that of the model, else an average over draws."""

    # in which sense log p(y | x) of complete rows is that of the model
    _kind = Kind.EXACT

    @abc.abstractmethod
    def _log_laws(self, x: np.ndarray) -> np.ndarray:
        """log p(y | x) in the order of `classes_`, for rows without NaN in the units of the data."""

    def _log_predictive(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(y | x) of each answer, p averaged over draws of what is missing, and its standard error."""
        holes = np.isnan(x).any(axis=1)
        logs, error = np.zeros((2, len(x), len(self.classes_)))
        if (~holes).any():
            logs[~holes] = self._log_laws(x[~holes])
        if holes.any():
            # in logarithms, so that very improbable answers keep their number
            each = [self._log_laws(draw) for draw in self._input_draws(x[holes])]
            logs[holes] = logsumexp(each, axis=0) - np.log(len(each))
            error[holes] = error_of_mean(each)
        check_numbers(self, "predict_log_proba", logs, logarithms=True)
        return logs, error

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(y | x) of each answer, in the order of `classes_`."""
        return np.exp(self._log_predictive(self._read(X).x)[0])

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row."""
        x = self._read(X).x
        check_consistent_length(x, y)
        at = np.arange(len(x)), self._place_of(y)
        nats, stderr = (part[at] for part in self._log_predictive(x))
        return Evidence(nats, stderr, Kind.ESTIMATE if has_nan(x) else self._kind)

    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """The same as `evidence`."""
        return self.evidence(X, y)


class HasLabelLikelihood(HasLabelLaws):
    """Label laws whose likelihood of the rows of a fit a summary reports."""

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        return likelihood_of_answers(self, X, given)
