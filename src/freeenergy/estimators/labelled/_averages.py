"""Laws of new answers that are averages over what a fit leaves open, for the ends of intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special, stats

from ...evaluation import AbstractLaws, Laws
from ...evaluation._checks import fraction
from ...evaluation._laws import quantile_between


def normal_averages(mean: np.ndarray, spread: np.ndarray) -> Averages:
    """Of normal laws that weigh the same, (parts, answers)."""
    return Averages(Laws(stats.norm(mean.ravel(), spread.ravel())), np.full(len(mean), -np.log(len(mean))))


class Averages(NamedTuple):
    """Laws of new answers, each an average over the same number of laws.

    Attributes:
        laws: those of all rows for the first part, then for the second, and so on.
        log_weights: of the parts, of sum one.

    >>> laws = Laws(stats.norm(np.array([-1.0, 0.0, 1.0, 0.0]), 1.0))
    >>> [end.round(3).tolist() for end in Averages(laws, np.log([0.5, 0.5])).interval(0.5)]
    [[-1.051, -0.674], [1.051, 0.674]]
    """

    laws: AbstractLaws
    log_weights: np.ndarray

    @property
    def discrete(self) -> bool:
        return self.laws.discrete

    def log_cdf(self, y: np.ndarray) -> np.ndarray:
        """log P(Y ≤ y) of each row."""
        logs = self._by_part(self.laws.log_cdf(np.tile(y, len(self.log_weights))))
        return np.minimum(np.asarray(special.logsumexp(logs + self.log_weights[:, None], axis=0)), 0.0)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The quantiles (1 − level)/2 and (1 + level)/2 of each row."""
        level = fraction("interval", "level", level)
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def _quantile(self, p: float) -> np.ndarray:
        alone = self._by_part(self.laws.quantile(p))
        return quantile_between(self, p, alone.min(axis=0), alone.max(axis=0))

    def _by_part(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(self.log_weights), -1)
