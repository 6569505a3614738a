"""Losses of a score of the row, for functional gradients: values, slopes, and the laws they stand for."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import numpy as np
from scipy import special, stats

from ...distributions import Bernoulli, Exponential, Gamma, Gaussian, Laplace, Poisson
from ...evaluation import AbstractLaws, Laws
from ...evaluation._checks import fraction


class AbstractScoreLoss(abc.ABC):
    """l(y, f): convex in the score f of a row, which is any number.

    Attributes:
        unit_free: whether answers may have any other unit and origin, which scores and dispersion follow.
    """

    unit_free: ClassVar[bool] = False

    @property
    def dispersed(self) -> bool:
        """Whether the law has a dispersion that is learned."""
        return False

    @abc.abstractmethod
    def refuses(self, y: np.ndarray) -> np.ndarray:
        """Which answers cannot occur."""

    @abc.abstractmethod
    def start(self, y: np.ndarray, weight: np.ndarray) -> float:
        """The score of least loss that is the same for all rows."""

    @abc.abstractmethod
    def values(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        """l of each row, up to what no score changes."""

    @abc.abstractmethod
    def descent(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        """−∂l/∂f of each row; also known as pseudo-residual."""

    @abc.abstractmethod
    def dispersion(self, y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        """What else the law has, such as a variance, at its most probable."""

    @abc.abstractmethod
    def laws(self, score: np.ndarray, dispersion: np.ndarray) -> AbstractLaws:
        """The law of the answer at each score."""


def _positive(value: float) -> float:
    return float(value) if value > 0 else float(np.finfo(float).tiny)


@dataclasses.dataclass(frozen=True)
class SquaredLoss(AbstractScoreLoss):
    """½ (y − f)²: a normal answer of mean f.

    >>> SquaredLoss().descent(np.array([3.0]), np.array([1.0])).tolist()
    [2.0]
    """

    unit_free: ClassVar[bool] = True

    @property
    def dispersed(self) -> bool:
        return True

    def refuses(self, y: np.ndarray) -> np.ndarray:
        return np.zeros(len(y), bool)

    def start(self, y: np.ndarray, weight: np.ndarray) -> float:
        return float(np.average(y, weights=weight))

    def values(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return 0.5 * (y - score) ** 2

    def descent(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return y - score

    def dispersion(self, y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        return _positive(np.sqrt(np.average((y - score) ** 2, weights=weight)))

    def laws(self, score: np.ndarray, dispersion: np.ndarray) -> AbstractLaws:
        return Laws(stats.norm(score, np.broadcast_to(dispersion, score.shape)))


@dataclasses.dataclass(frozen=True)
class QuantileLoss(AbstractScoreLoss):
    """max(p (y − f), (p − 1)(y − f)): f is the quantile `p`; also known as pinball loss.

    The law is the asymmetric Laplace distribution, of which f is that quantile.

    >>> law = QuantileLoss(0.8).laws(np.zeros(1), np.ones(1))
    >>> law.cdf(np.zeros(1)).round(6).tolist()
    [0.8]
    """

    unit_free: ClassVar[bool] = True
    p: float = 0.5

    def __post_init__(self) -> None:
        fraction("QuantileLoss", "p", self.p)

    @property
    def dispersed(self) -> bool:
        return True

    def refuses(self, y: np.ndarray) -> np.ndarray:
        return np.zeros(len(y), bool)

    def start(self, y: np.ndarray, weight: np.ndarray) -> float:
        order = np.argsort(y)
        reached = np.cumsum(weight[order]) / weight.sum()
        return float(y[order[np.searchsorted(reached, self.p - 1e-12)]])

    def values(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return np.maximum(self.p * (y - score), (self.p - 1) * (y - score))

    def descent(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return np.where(y > score, self.p, self.p - 1)

    def dispersion(self, y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        return _positive(np.average(self.values(y, score), weights=weight))

    def laws(self, score: np.ndarray, dispersion: np.ndarray) -> AbstractLaws:
        p = self.p
        scale = np.broadcast_to(dispersion, score.shape) / np.sqrt(p * (1 - p))
        return Laws(stats.laplace_asymmetric(np.full(score.shape, np.sqrt(p / (1 - p))), score, scale))


@dataclasses.dataclass(frozen=True)
class PoissonLoss(AbstractScoreLoss):
    """eᶠ − y f: a count of mean eᶠ.

    >>> PoissonLoss().descent(np.array([3.0]), np.array([0.0])).tolist()
    [2.0]
    """

    def refuses(self, y: np.ndarray) -> np.ndarray:
        return (y < 0) | (y != np.round(y))

    def start(self, y: np.ndarray, weight: np.ndarray) -> float:
        return float(np.log(_least(np.average(y, weights=weight), weight)))

    def values(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return np.exp(score) - y * score

    def descent(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return y - np.exp(score)

    def dispersion(self, y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        return 1.0

    def laws(self, score: np.ndarray, dispersion: np.ndarray) -> AbstractLaws:
        return Laws(stats.poisson(np.exp(score)))


def _least(mean: float, weight: np.ndarray) -> float:
    """A mean that is not zero: as if half a one had been seen."""
    return float(mean) if mean > 0 else 0.5 / float(weight.sum())


@dataclasses.dataclass(frozen=True)
class LogisticLoss(AbstractScoreLoss):
    """log(1 + eᶠ) − y f: zeros and ones, P(1) = 1/(1 + e⁻ᶠ).

    >>> LogisticLoss().descent(np.array([1.0]), np.array([0.0])).tolist()
    [0.5]
    """

    def refuses(self, y: np.ndarray) -> np.ndarray:
        return (y != 0) & (y != 1)

    def start(self, y: np.ndarray, weight: np.ndarray) -> float:
        ones, zeros = float(weight @ y), float(weight @ (1 - y))
        return float(np.log(_least(ones, np.ones(1)) / _least(zeros, np.ones(1))))

    def values(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return np.logaddexp(0, score) - y * score

    def descent(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return y - special.expit(score)

    def dispersion(self, y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        return 1.0

    def laws(self, score: np.ndarray, dispersion: np.ndarray) -> AbstractLaws:
        return Laws(stats.bernoulli(special.expit(score)))


@dataclasses.dataclass(frozen=True)
class GammaLoss(AbstractScoreLoss):
    """f + y e⁻ᶠ: a positive answer of mean eᶠ and of a shape that all rows share.

    Attributes:
        shape: that of the Gamma law; None to find it.

    >>> GammaLoss().descent(np.array([3.0]), np.array([0.0])).tolist()
    [2.0]
    """

    shape: float | None = None

    @property
    def dispersed(self) -> bool:
        return self.shape is None

    def refuses(self, y: np.ndarray) -> np.ndarray:
        return y <= 0

    def start(self, y: np.ndarray, weight: np.ndarray) -> float:
        return float(np.log(np.average(y, weights=weight)))

    def values(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return score + y * np.exp(-score)

    def descent(self, y: np.ndarray, score: np.ndarray) -> np.ndarray:
        return y * np.exp(-score) - 1

    def dispersion(self, y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        if self.shape is not None:
            return self.shape
        # log a − ψ(a) = mean of log μ − log y + y/μ − 1, which is at least zero
        ratio = y * np.exp(-score)
        gap = float(np.average(ratio - 1 - np.log(ratio), weights=weight))
        log_shape = np.linspace(-15.0, 30.0, 2)
        for _ in range(80):
            middle = log_shape.mean()
            shape = np.exp(middle)
            above = middle - special.psi(shape) > gap
            log_shape = np.array([middle, log_shape[1]]) if above else np.array([log_shape[0], middle])
        return float(np.exp(log_shape.mean()))

    def laws(self, score: np.ndarray, dispersion: np.ndarray) -> AbstractLaws:
        shape = np.broadcast_to(dispersion, score.shape)
        return Laws(stats.gamma(shape, 0.0, np.exp(score) / shape))


# what a family says of an answer with one score
LOSSES: dict[type, AbstractScoreLoss] = {
    Gaussian: SquaredLoss(),
    Laplace: QuantileLoss(0.5),
    Poisson: PoissonLoss(),
    Bernoulli: LogisticLoss(),
    Gamma: GammaLoss(),
    Exponential: GammaLoss(1.0),
}
