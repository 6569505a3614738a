"""What all models of numbers given rows share."""

from __future__ import annotations

import abc
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_consistent_length

from ..._core import Evidence, Kind
from ...evaluation import AbstractLaws, JoinedLaws
from ...evaluation._laws import AbstractMixedLaws, averaged
from ...shell import AnsweredTable, Predicts, PredictsDensities, Scaling, check_numbers, framed, framed_ends
from ...shell._intake import checked_answers
from ...shell._summary import weighted
from ...shell._validation import check_weight
from ._design import TakesAnyColumns
from ._inputs import CompletesInputs


class AbstractRegressor(
    RegressorMixin, MultiOutputMixin, Predicts, PredictsDensities, CompletesInputs, TakesAnyColumns
):
    """Numbers given rows: p(y | x), in the units of the data.

    A subclass learns from `rows.x` (as modelled, in the units of the data, NaN where unknown) and the
    rescaled answers `rows.known`, and gives the law of the answers to complete rows.

    Attributes:
        answer_shape_: () if `y` had one axis, (outputs,) if it had two.
        answer_names_: what a frame called the answers.
        answer_scaling_: how answers are shifted and scaled inside.
        inputs_: the density that missing entries of rows are drawn from.
        columns_: what the columns that the model sees are called: those of X, or NAME=LABEL.
    """

    intake = AnsweredTable
    _size_unit = "rows"
    answer_shape_: tuple[int, ...]
    answer_names_: list[str] | None
    answer_scaling_: Scaling

    # whether the fit does not depend on the order of rows, so that they are not sorted and merged
    keeps_order = True
    # whether NaN in y means an answer that is not known
    takes_unknown_answers = False

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.
            y: a number for each row, or several.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    @abc.abstractmethod
    def _laws(self, x: np.ndarray) -> AbstractLaws:
        """The law of the answer to each complete row, as modelled, in the units of the data."""

    def _laws_of_incomplete(self, x: np.ndarray) -> AbstractLaws:
        """The same for rows with NaN: an average over draws of what is missing."""
        return averaged(self._laws, self._input_draws(x))

    # whether `_laws_of_incomplete` is the law itself, and no average over draws
    _exact_if_incomplete = False
    # in which sense the evidence of complete rows is log p(y | x)
    _kind_if_complete = Kind.EXACT

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        """The units in which answers are learned."""
        return Scaling.standardise(y, weight)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """(rows, outputs), as the user has answers."""
        return values.reshape(len(values), *self.answer_shape_)

    def predict_density(self, X: Any) -> AbstractLaws:
        """p(y | x): the law of the answer to each row, in the units of the data.

        It has `log_prob`, `cdf`, `mean`, `std`, `quantile`, `interval` and `sample`.
        """
        return self._laws_of(self._read(X).x)

    def _laws_of(self, x: np.ndarray) -> AbstractLaws:
        holes = np.isnan(x).any(axis=1)
        if not holes.any():
            return self._laws(x)
        if holes.all():
            return self._laws_of_incomplete(x)
        places = np.flatnonzero(~holes), np.flatnonzero(holes)
        return JoinedLaws(places, (self._laws(x[places[0]]), self._laws_of_incomplete(x[places[1]])))

    @framed
    def predict(self, X: Any) -> Any:
        """The mean of the answer to each row."""
        return check_numbers(self, "predict", self.predict_density(X).mean())

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        These are the quantiles (1 − level)/2 and (1 + level)/2 of its law.
        """
        return self.predict_density(X).interval(level)

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row; an estimate, with its error, where entries of x are missing."""
        return self._evidence_of(self._read(X).x, y)

    def _evidence_of(self, x: np.ndarray, y: Any) -> Evidence:
        """log p(y | x) of rows as modelled."""
        answers = checked_answers(self, y)
        check_consistent_length(x, answers)
        if answers.shape[1:] != self.answer_shape_:
            many = f"{self.answer_shape_[0]} numbers" if self.answer_shape_ else "one number"
            raise ValueError(
                f"The 'y' of {type(self).__name__} must have {many} a row, as that of fit. "
                f"Got the shape {answers.shape} instead."
            )
        holes = np.isnan(x).any(axis=1)
        nats, stderr = np.empty(len(x)), np.zeros(len(x))
        if (~holes).any():
            nats[~holes], stderr[~holes] = self._log_prob_of(self._laws(x[~holes]), answers[~holes])
        if holes.any():
            laws, own = self._laws_of_incomplete(x[holes]), answers[holes]
            nats[holes] = laws.log_prob(own)
            if not self._exact_if_incomplete and isinstance(laws, AbstractMixedLaws):
                stderr[holes] = error_of_mean(list(laws.by_part("log_prob", own)))
        check_numbers(self, "evidence", nats, logarithms=True)
        known = self._exact_if_incomplete or not holes.any()
        return Evidence(nats, stderr, self._kind_if_complete if known else Kind.ESTIMATE)

    def _log_prob_of(self, laws: AbstractLaws, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | float]:
        """log p(y | x) of complete rows, and its standard error."""
        return laws.log_prob(y), 0.0

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        return likelihood_of_answers(self, X, given)


def likelihood_of_answers(owner: Any, X: Any, given: dict[str, Any]) -> Any:
    """What a summary says of the rows of a fit: their evidence and how many they are, or what it needs."""
    if X is None or "y" not in given:
        return "The log-likelihood needs the rows of the fit: summary(X, y=y)."
    evidence = owner.evidence(X, given["y"])
    weight = check_weight(evidence.nats[:, None], given.get("sample_weight"))
    return weighted(evidence, weight), float(len(evidence) if weight is None else weight.sum())


def error_of_mean(logs: list[np.ndarray]) -> np.ndarray:
    """The standard error of the logarithm of a mean of exponentials, to first order."""
    stacked = np.stack(logs)
    total = np.asarray(logsumexp(stacked, axis=0))
    # where all are impossible there is nothing to average
    share = np.exp(stacked - np.where(np.isfinite(total), total, 0.0)) * len(logs)
    return share.std(axis=0, ddof=1) / np.sqrt(len(logs))
