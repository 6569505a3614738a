"""Rows with a number each: how models are scored that give its law."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from ..._core import Evidence
from ...estimators import Conformal, Support
from ...evaluation import AbstractLaws, Measure, coverage, mae, pinball, rmse
from ...shell import Column, PredictsDensities
from ...shell._support import WHOLE, Grid
from ._given import AbstractGiven

# parts of the rows that are left out in turn, for the spread of predictions without a law
_FOLDS = 5


class Answered(AbstractGiven):
    """Rows with a number each, or several, of which models give the law given the row.

    Where the numbers are whole, or rounded to a grid, each has a probability: that of a density is what it
    gives to the cell about the number, so that models of counts and of real numbers have one scale.
    Several numbers of a row are scored by their joint density; what is predicted of each is in its standard
    deviations, so that errors of different units are one number.

    Attributes:
        grid: what the numbers are rounded to; None if they are continuous.
        name: of the answer, in words.
        outputs: how many numbers a row has.
    """

    def __init__(
        self, X: Any, y: Any, groups: np.ndarray | None, models: Any = (), support: Support | None = None
    ) -> None:
        self._describe(X, _numbers(y), groups, models)
        name = getattr(y, "name", None)
        self.name = f"{name!r}" if isinstance(name, str) and name else "y"
        self.outputs = 1 if self.y.ndim == 1 else self.y.shape[1]
        self.dimension, self.entries = self.outputs, np.full(self.n_rows, float(self.outputs))
        self._units = np.ones(()) if self.y.ndim == 1 else self.y.std(axis=0)
        if self.outputs > 1:
            self._describe_outputs(support)
            return
        kind, self.grid = _kind_of(self.y, support)
        if kind is Column.CONSTANT:
            raise ValueError(f"The answers {self.name} are all {self.y[0]:g}: there is nothing to predict.")
        if self.grid is None:
            told = f"Bits are of the density of {self.name}, in its units, given the row."
        else:
            whole = kind is Column.INTEGER
            which = "whole numbers" if whole else f"rounded to steps of {self.grid.step:g}"
            width = "of width one" if whole else "of that width"
            told = (
                f"The answers {self.name} are {which}: bits are of their probability given the row, which "
                f"of a density is that of the cell {width} about each."
            )
        self.notes = [told]

    def _describe_outputs(self, support: Any) -> None:
        if support is not None:
            raise ValueError(
                "The 'support' parameter of compare must be None where y has several columns. "
                f"Got {support!r} instead."
            )
        alike = np.ptp(self.y, axis=0) == 0
        if alike.any():
            column = int(np.argmax(alike))
            raise ValueError(
                f"The answers in column {column} of y are all {self.y[0, column]:g}: there is nothing to "
                "predict."
            )
        self.grid = None
        self.notes = [
            f"Bits are of the joint density of the {self.outputs} answers of a row, in their units, given "
            "the row; errors are in standard deviations of each answer, with a mean over them."
        ]

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if is_classifier(estimator):
            raise ValueError(f"{name} gives the probability of labels, and {self.name} holds numbers.")
        if not is_regressor(estimator):
            raise ValueError(f"{name} gives no law of {self.name} given X.")
        if isinstance(estimator, PredictsDensities):
            return estimator
        self.notes.append(
            f"{name} gives no law of {self.name}: it is taken to be normal about the predictions, as wide "
            "as residuals of rows that were left out."
        )
        return Conformal(estimator, folds=_FOLDS)

    def _laws(self, estimator: Any, test: np.ndarray) -> AbstractLaws:
        laws = estimator.predict_density(self._rows(estimator, test))
        if laws.discrete and self.outputs > 1:
            raise ValueError(
                f"{type(estimator).__name__} gives a probability to whole numbers: with several answers a "
                "row there is no common unit with densities. Compare them one by one."
            )
        if laws.discrete and self.grid != WHOLE:
            raise ValueError(
                f"{type(estimator).__name__} gives a probability to whole numbers, and {self.name} has "
                "others: it has no common unit with densities."
            )
        return laws

    def _cells(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of the cell of each answer: the answer itself, where there are none."""
        half = 0.0 if self.grid is None else self.grid.step / 2
        return y - half, y + half

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        y, laws = self.y[test], self._laws(estimator, test)
        found = estimator.evidence(self._rows(estimator, test), y)
        if self.grid is None or laws.discrete:
            return found
        mass = laws.log_mass(*self._cells(y))
        # cells too narrow or too far out for the difference of two probabilities
        mass = np.where(np.isfinite(mass), mass, found.nats + np.log(self.grid.step))
        return dataclasses.replace(found, nats=mass)

    def predicted(self, estimator: Any, test: np.ndarray, level: float, seed: int) -> np.ndarray:
        """The answer, its mean, median, both ends of its interval, and its rank among what was expected.

        Of several answers a row has as many columns, one after the other.
        """
        y, laws = self.y[test], self._laws(estimator, test)
        low, high = estimator.predict_interval(self._rows(estimator, test), level)
        below, above = map(laws.cdf, self._cells(y))
        # within its cell the rank of an answer is left to chance
        rank = below + np.random.default_rng(seed).random(y.shape) * (above - below)
        found = np.stack([y, laws.mean(), laws.quantile(0.5), low, high]) / self._units
        return np.concatenate([found, rank[None]]).reshape(6, -1)

    def measures(self, predicted: np.ndarray, level: float) -> dict[str, Measure]:
        truth, mean, median, low, high, _ = predicted
        nothing = Measure(np.nan, np.nan)
        loss = nothing
        if np.isfinite(low).all() and np.isfinite(high).all():
            first, second = pinball(truth, low, (1 - level) / 2), pinball(truth, high, (1 + level) / 2)
            # of both ends, of which an answer can be beyond one
            loss = Measure((first.value + second.value) / 2, math.hypot(first.stderr, second.stderr) / 2)
        # an interval without an end holds all beyond
        most = np.finfo(float).max
        found = {
            "RMSE": rmse(truth, mean) if np.isfinite(mean).all() else nothing,
            "MAE": mae(truth, median),
            "pinball": loss,
            f"in {level:.0%}": coverage(truth, np.clip(low, -most, most), np.clip(high, -most, most)),
        }
        # answers of a row may go together as far as to be one
        spread = math.sqrt(self.outputs)
        return {name: Measure(of.value, spread * of.stderr) for name, of in found.items()}

    def _evidence_of(self, estimator: Any, rows: Any, y: np.ndarray) -> Evidence:
        return estimator.evidence(rows, y)

    def _average(self, estimator: Any, rows: Any) -> np.ndarray:
        """The mean prediction, and a tenth and nine tenths of those of rows."""
        predicted = np.asarray(estimator.predict(rows)) / self._units
        # of several answers their mean, in standard deviations of each
        means = predicted.reshape(len(predicted), -1).mean(axis=1)
        return np.array([means.mean(), *np.quantile(means, [0.1, 0.9])])


def _numbers(y: Any) -> np.ndarray:
    """Answers as numbers, one or several for each row."""
    try:
        found = np.asarray(y, float)
    except (TypeError, ValueError):
        found = None
    if found is None or np.asarray(y).dtype.kind in "USmM":
        raise ValueError(
            "The 'y' of compare must hold numbers for these models. For labels use classifiers."
        )
    found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
    if found.ndim not in (1, 2) or not found.size:
        raise ValueError(
            "The 'y' of compare must have a number, or a row of them, for each row. "
            f"Got the shape {found.shape} instead."
        )
    if not np.isfinite(found).all():
        place = np.argwhere(~np.isfinite(found))[0]
        raise ValueError(
            f"The 'y' of compare must be finite. Got {found[tuple(place)]} in row {place[0]}; leave out "
            "such rows."
        )
    return found


def _kind_of(y: np.ndarray, support: Any) -> tuple[Column, Grid | None]:
    """Whether answers are continuous, whole or rounded, and to which grid."""
    if support is not None and (not isinstance(support, Support) or len(support) != 1):
        raise ValueError(
            "The 'support' parameter of compare must be a Support of one column, that of y, or None. "
            f"Got {support!r} instead."
        )
    found = Support.recognise(y[:, None]) if support is None else support
    return found.kinds[0], found.grid(0)
