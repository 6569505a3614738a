"""From held-out rows to means, standard errors and the chance of an order."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import stats

from .._core import Evidence, Kind
from ._problems import AbstractProblem
from ._results import FoldResult

_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class Tally:
    """The held-out rows of one model, folds one after another."""

    nats: np.ndarray
    fold: np.ndarray
    cluster: np.ndarray
    entries: np.ndarray
    retrained: float
    shared: float
    kind: Kind
    growth: np.ndarray | None
    seconds: float
    parameters: int

    @staticmethod
    def of(results: list[FoldResult], problem: AbstractProblem) -> Tally:
        rows = np.concatenate([r.rows for r in results])
        sizes = np.array([len(r.rows) for r in results])
        kind = Kind.EXACT
        for result in results:
            kind = kind.combine(result.kind)
        tested = sizes.mean() / max(problem.n_rows - sizes.mean(), 1)
        return Tally(
            np.concatenate([r.nats for r in results]),
            np.repeat(np.arange(len(results)), sizes),
            np.unique(problem.clusters[rows], return_inverse=True)[1],
            problem.entries[rows],
            # the training sets of folds overlap, so that their luck does not average out
            1 / len(results) + tested,
            # the errors of the folds are independent
            math.sqrt(sum((r.shared * len(r.rows) / len(rows)) ** 2 for r in results)) / math.log(2),
            kind,
            _growth(results),
            float(np.mean([r.seconds for r in results])),
            max(r.parameters for r in results),
        )

    @property
    def bits(self) -> np.ndarray:
        return -self.nats / math.log(2)

    @property
    def gap(self) -> tuple[float, float]:
        """By how many bits a bound is estimated to miss the truth, and the error of that."""
        gap, error = Evidence(self.nats, np.zeros_like(self.nats), self.kind, growth=self.growth).gap
        return gap / math.log(2), error / math.log(2)

    def summary(self, values: np.ndarray, shared: float) -> tuple[float, float, float]:
        """Mean of `values`, its standard error, and the degrees of freedom of that.

        The error is that over clusters of rows, plus what folds differ by more than their rows explain
        (the luck of training), plus the error that all rows share.
        """
        with np.errstate(invalid="ignore"):
            mean = float(values.mean())
        if not math.isfinite(mean):
            return mean, float("nan"), float("nan")
        # equal models differ by rounding, which says nothing about their order
        if np.abs(values).max() <= _ROUNDING * np.abs(self.bits).max():
            return 0.0, shared, float(len(values) - 1)
        square, freedom = _square_error(values, self.cluster)
        folds = [np.flatnonzero(self.fold == k) for k in np.unique(self.fold)]
        within = [_square_error(values[k], self.cluster[k])[0] for k in folds]
        if len(folds) > 1 and np.isfinite(within).all():
            between = float(np.var([values[k].mean() for k in folds], ddof=1))
            luck = max(between - float(np.mean(within)), 0.0) * self.retrained
            if luck > 0:
                # Satterthwaite's degrees of freedom of a sum of variances
                total = square + luck
                freedom = total**2 / (square**2 / freedom + luck**2 / (len(folds) - 1))
                square = total
        return mean, math.sqrt(square + shared**2), freedom


def _growth(results: list[FoldResult]) -> np.ndarray | None:
    """That of all rows, if it is known wherever there is a bound."""
    if any(r.growth is None and r.kind is not Kind.EXACT for r in results):
        return None
    return np.concatenate([np.zeros((len(r.rows), 2)) if r.growth is None else r.growth for r in results])


def _square_error(values: np.ndarray, cluster: np.ndarray) -> tuple[float, float]:
    """The squared standard error of a mean of rows that depend on each other within clusters."""
    _, place = np.unique(cluster, return_inverse=True)
    sums = np.bincount(place, weights=values - values.mean())
    size = len(sums)
    if size < 2:
        return float("nan"), float("nan")
    return float(sums @ sums) / len(values) ** 2 * size / (size - 1), size - 1


def chance_of_order(difference: float, error: float, freedom: float) -> float | None:
    """P(the true difference is positive), from Student's t: the posterior under a flat prior."""
    if math.isinf(difference):
        return 1.0
    if math.isnan(difference) or math.isnan(error):
        return None
    if error == 0:
        return 0.5 if difference == 0 else 1.0
    return float(stats.t.cdf(difference / error, freedom))
