"""How well a variable of a network is explained by its parents."""

from __future__ import annotations

import abc

import equinox as eqx
import numpy as np
from scipy.special import (
    gammaln,
    multigammaln,  # pyright: ignore[reportAttributeAccessIssue]
    xlogy,
)

from .._core import LOG_2PI
from ._network_em import Moments, regression

# the least variance given the parents, as a share of that of the column, that is told from nothing
_LEAST_VARIANCE = 1e-12


class AbstractScore(eqx.Module):
    """How well a variable is explained by its parents: a sum over variables is the score of a graph."""

    @abc.abstractmethod
    def __call__(self, counts: np.ndarray) -> float:
        """The score of a table of counts, of which the last axis is the variable; larger is better."""


class AbstractNumberScore(AbstractScore):
    """A score of labels that is one of numbers, too."""

    @abc.abstractmethod
    def of_numbers(self, moments: Moments) -> float:
        """The score of a number that is linear Gaussian given its parents; larger is better.

        Args:
            moments: Σ w, Σ w z and Σ w z zᵀ for each joint state of the parents that are labels, where z
                has the parents that are numbers, and the number itself as its last entry.
        """


class BIC(AbstractNumberScore):
    """The largest log-likelihood less ½ log N for each free parameter (Schwarz 1978).

    >>> round(BIC()(np.array([[30.0, 10.0], [10.0, 30.0]])), 4)
    -49.3688
    """

    def __call__(self, counts: np.ndarray) -> float:
        table = counts.reshape(-1, counts.shape[-1])
        rows = table.sum(axis=1)
        free = table.shape[0] * (table.shape[1] - 1)
        return float(
            xlogy(table, table).sum() - xlogy(rows, rows).sum() - 0.5 * free * np.log(max(rows.sum(), 1.0))
        )

    def of_numbers(self, moments: Moments) -> float:
        weight, first, _ = moments
        seen = weight > 0
        # of less variance than rounding nothing is learned
        v = np.maximum(np.nan_to_num(regression(moments)[2]), _LEAST_VARIANCE)
        nats = -0.5 * np.sum(weight * (LOG_2PI + np.log(v) + 1), where=seen)
        free = weight.size * (first.shape[-1] + 1)
        return float(nats - 0.5 * free * np.log(max(weight.sum(), 1.0)))


class BDeu(AbstractNumberScore):
    """log p(labels | parents) with the tables integrated out: the evidence of the graph.

    Each row of a table has a Dirichlet prior with α / (q K) for each of its K cells, where q is the number
    of joint states of the parents: α imagined rows, spread evenly.  Graphs with the same independences
    score alike (Heckerman, Geiger and Chickering 1995).

    Numbers, which are standardised, have for each joint state of their parents that are labels a normal and
    inverse Wishart prior whose prediction of a row has mean zero and the unit as its covariance, with α
    imagined rows behind the mean (BGe, Geiger and Heckerman 1994).

    Attributes:
        alpha: how many imagined rows (also known as the equivalent sample size).

    >>> round(BDeu(2.0)(np.array([2.0, 1.0])), 6)  # 1/2 · 2/3 · 1/4
    -2.484907
    """

    alpha: float = 1.0

    def __call__(self, counts: np.ndarray) -> float:
        table = counts.reshape(-1, counts.shape[-1])
        cell = self.alpha / table.size
        row = self.alpha / table.shape[0]
        rows = gammaln(row) - gammaln(row + table.sum(axis=1))
        return float(rows.sum() + (gammaln(cell + table) - gammaln(cell)).sum())

    def of_numbers(self, moments: Moments) -> float:
        weight, first, second = moments
        without = weight, first[..., :-1], second[..., :-1, :-1]
        return self._numbers_alone(moments) - self._numbers_alone(without)

    def _numbers_alone(self, moments: Moments) -> float:
        """log p of some columns of numbers, normal in each state, with mean and covariance unknown."""
        weight, first, second = moments
        dim, alpha = first.shape[-1], self.alpha
        if not dim:
            return 0.0
        degrees, scale = dim + 2, alpha / (1 + alpha)
        strength = alpha + weight
        scatter = second + scale * np.eye(dim)
        scatter = scatter - first[..., :, None] * first[..., None, :] / strength[..., None, None]
        found = 0.5 * dim * np.log(alpha / strength) - 0.5 * dim * weight * np.log(np.pi)
        found += multigammaln((degrees + weight) / 2, dim) - multigammaln(degrees / 2, dim)
        found += 0.5 * degrees * dim * np.log(scale)
        found -= 0.5 * (degrees + weight) * np.linalg.slogdet(scatter)[1]
        return float(np.sum(found))
