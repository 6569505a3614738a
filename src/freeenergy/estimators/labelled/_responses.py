"""Families of answers as Newton's method sees them: log-likelihoods with slopes, and the laws."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy import special, stats

from ..._core import on_device
from ...distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Diagonal,
    Exponential,
    Gamma,
    Gaussian,
    Given,
    Mean,
    Natural,
    NegativeBinomial,
    Poisson,
)
from ...evaluation import AbstractLaws, Laws, MixedLaws
from ._links import IDENTITY, LOG, LOGIT, RECIPROCAL, RECIPROCAL_ROOT, HostLink, Jet

# log of the dispersion of counts below which they are Poisson to all digits
_NO_DISPERSION = -18.0
_LARGEST_SHAPE = 1e12


@dataclasses.dataclass(frozen=True)
class Terms:
    """log p of each row, with derivatives in the coordinates of the parameters.

    Attributes:
        value: log p.
        slope: (coordinates, rows).
        curvature: minus the second derivatives, (coordinates, coordinates, rows).
        expected: what `curvature` is on average over answers, for the first coordinate; None if not known.
    """

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    expected: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class AbstractResponse(abc.ABC):
    """A family of answers whose mean depends on the row, on the host.

    The first coordinate u stands for the mean: the mean itself, its logarithm, or its log-odds.  Further
    ones, such as the logarithm of a shape, are free reals, the same for all rows or linear in them.

    Attributes:
        canonical, usual: the link that goes with the natural parameter, and the one if none is chosen.
        values: what answers can be, in words.
        coordinate: which coordinate of the mean it has: "real", "positive" (log μ) or "unit" (log-odds).
        others: what the further coordinates are called.
        dispersed: whether the one further coordinate can be fitted after the mean, which does not need it.
        edged: whether an answer may be the least, or the largest, that can be: then means may run there.
        counted: whether answers are out of a number of trials.
    """

    canonical: ClassVar[HostLink]
    usual: ClassVar[HostLink]
    values: ClassVar[str]
    coordinate: ClassVar[str]

    others: ClassVar[tuple[str, ...]] = ()
    dispersed: ClassVar[bool] = False
    edged: ClassVar[bool] = False
    counted: ClassVar[bool] = False

    @property
    def may_vary(self) -> tuple[bool, ...]:
        """Which of the further coordinates may depend on the row."""
        return (True,) * len(self.others)

    @abc.abstractmethod
    def allows(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """Which answers can occur."""

    @abc.abstractmethod
    def terms(self, y: np.ndarray, u: np.ndarray, other: np.ndarray, trials: np.ndarray) -> Terms:
        """log p without its `base`, with derivatives; `other` has a row for each further coordinate."""

    def base(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """What log p has that no parameter changes."""
        return np.zeros(len(y))

    @abc.abstractmethod
    def deviance(self, y: np.ndarray, mean: np.ndarray, other: np.ndarray, trials: np.ndarray) -> Any:
        """Twice what log p of the best mean has more than that of `mean`, times the dispersion."""

    @abc.abstractmethod
    def variance(self, mean: np.ndarray, other: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """The variance of an answer, without the factor of the dispersion for families that have one."""

    @abc.abstractmethod
    def laws(self, mean: np.ndarray, other: np.ndarray, trials: np.ndarray) -> AbstractLaws:
        """The law of each answer."""

    def mean(self, mean: np.ndarray, other: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """The mean of an answer, from that which the predictor stands for."""
        return mean

    def start(self, y: np.ndarray, weight: np.ndarray, trials: np.ndarray) -> tuple[float, np.ndarray]:
        """A constant mean to begin with, as the predictor has it, and the further coordinates."""
        average = float(np.average(y, weights=weight))
        if average == 0 and self.coordinate == "positive":
            # no count at all: less than one in all rows
            average = 0.5 / (float(weight.sum()) + 1)
        others = np.zeros(len(self.others))
        return average, self.dispersion(y, np.full(len(y), average), weight) if self.dispersed else others

    def dispersion(self, y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The further coordinate of the largest likelihood, of families that are `dispersed`."""
        raise NotImplementedError(f"{type(self).__name__} has no dispersion beside its mean.")

    def precision(self, other: np.ndarray) -> float:
        """One over the dispersion, of families that are `dispersed`."""
        return float(np.exp(other[0]))

    def of_precision(self, precision: float) -> np.ndarray:
        """The further coordinate with that precision, of families that are `dispersed`."""
        return np.log([precision])

    def least(self) -> np.ndarray:
        """Bounds below which further coordinates change nothing."""
        return np.full(len(self.others), -np.inf)

    def given(self, other: np.ndarray, link: HostLink) -> Given | None:
        """The family as the library has it, with these further parameters; None if it has not."""
        return None

    def coordinate_by(self, link: HostLink) -> Callable[[np.ndarray], Jet]:
        """From the predictor to the coordinate of the mean; NaN where there is none."""
        return {"real": link.real, "positive": link.positive, "unit": link.unit}[self.coordinate]

    def mean_of(self, u: np.ndarray) -> np.ndarray:
        """The mean from its coordinate."""
        return {"real": lambda v: v, "positive": np.exp, "unit": special.expit}[self.coordinate](u)


@functools.cache
def _of_mean_alone(family: Any, mean: float, link: HostLink, canonical: bool) -> Given:
    """A family without a parameter beside its mean, of which nothing is learned but the predictor."""
    return Given(family(on_device(np.full(1, mean))), Natural() if canonical else Mean(link.inverse))


def _one(*parts: np.ndarray) -> np.ndarray:
    return np.stack(parts)


def _two(first: np.ndarray, mixed: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack([np.stack([first, mixed]), np.stack([mixed, second])])


def _spread(y: np.ndarray, weight: np.ndarray) -> float:
    """The weighted variance; the square of the mean if there is none."""
    mean = np.average(y, weights=weight)
    return float(np.average((y - mean) ** 2, weights=weight)) or float(mean**2) or 1.0


@dataclasses.dataclass(frozen=True)
class GaussianResponse(AbstractResponse):
    """Real answers of variance exp(τ)."""

    canonical = usual = IDENTITY
    values = "numbers"
    coordinate = "real"
    others = ("log variance",)
    dispersed = True

    def allows(self, y, trials):
        return np.isfinite(y)

    def terms(self, y, u, other, trials):
        precision, gap = np.exp(-other[0]), y - u
        square = gap**2 * precision
        value = -0.5 * (np.log(2 * np.pi) + other[0] + square)
        curvature = _two(np.broadcast_to(precision, y.shape), gap * precision, 0.5 * square)
        return Terms(value, _one(gap * precision, 0.5 * square - 0.5), curvature, curvature[0, 0])

    def deviance(self, y, mean, other, trials):
        return (y - mean) ** 2

    def variance(self, mean, other, trials):
        return np.ones_like(mean)

    def dispersion(self, y, mean, weight):
        found = np.average((y - mean) ** 2, weights=weight)
        # answers that are fitted to the last digit leave nothing to estimate a variance from
        return np.log(np.maximum(found, 1e-24 * _spread(y, weight)))[None]

    def precision(self, other):
        return float(np.exp(-other[0]))

    def of_precision(self, precision):
        return -np.log([precision])

    def laws(self, mean, other, trials):
        return Laws(stats.norm(mean, np.exp(0.5 * np.broadcast_to(other[0], mean.shape))))

    def given(self, other, link):
        member = Gaussian(on_device(np.zeros(1)), Diagonal(on_device(np.exp(other[:1]))))
        return Given(member, Mean(link.inverse))


@dataclasses.dataclass(frozen=True)
class PoissonResponse(AbstractResponse):
    """Counts with variance equal to their mean."""

    canonical = usual = LOG
    values = "whole numbers from 0"
    coordinate = "positive"
    edged = True

    def allows(self, y, trials):
        return (y >= 0) & (y == np.floor(y))

    def terms(self, y, u, other, trials):
        mean = np.exp(u)
        return Terms(y * u - mean, (y - mean)[None], mean[None, None], mean)

    def base(self, y, trials):
        return -special.gammaln(y + 1)

    def deviance(self, y, mean, other, trials):
        return 2 * (special.xlogy(y, y) - special.xlogy(y, mean) - (y - mean))

    def variance(self, mean, other, trials):
        return mean

    def laws(self, mean, other, trials):
        return Laws(stats.poisson(mean))

    def given(self, other, link):
        return _of_mean_alone(Poisson, 1.0, link, link is self.canonical)


@dataclasses.dataclass(frozen=True)
class BinomialResponse(AbstractResponse):
    """How many of so many trials succeed; the mean is the probability of one."""

    canonical = usual = LOGIT
    values = "whole numbers from 0 to the number of trials (0 and 1, where 'trials' is not passed)"
    coordinate = "unit"
    counted = edged = True

    def allows(self, y, trials):
        return (y >= 0) & (y <= trials) & (y == np.floor(y))

    def terms(self, y, u, other, trials):
        mean = special.expit(u)
        # y log μ + (m − y) log(1 − μ)
        value = y * u - trials * np.logaddexp(0, u)
        spread = trials * mean * (1 - mean)
        return Terms(value, (y - trials * mean)[None], spread[None, None], spread)

    def base(self, y, trials):
        return special.gammaln(trials + 1) - special.gammaln(y + 1) - special.gammaln(trials - y + 1)

    def deviance(self, y, mean, other, trials):
        rest = trials - y
        best = special.xlogy(y, y / trials) + special.xlogy(rest, rest / trials)
        return 2 * (best - special.xlogy(y, mean) - special.xlog1py(rest, -mean))

    def variance(self, mean, other, trials):
        return trials * mean * (1 - mean)

    def start(self, y, weight, trials):
        total, most = float(weight @ y), float(weight @ trials)
        # all or nothing: half a trial more of either
        return ((total + 0.5) / (most + 1) if total in (0, most) else total / most), np.zeros(0)

    def mean(self, mean, other, trials):
        return trials * mean

    def laws(self, mean, other, trials):
        return Laws(stats.binom(trials.astype(int), mean))

    def given(self, other, link):
        return _of_mean_alone(Bernoulli, 0.5, link, link is self.canonical)


def _shape(gap: float) -> float:
    """The k with log k − ψ(k) = gap."""
    if gap < 0.5 / _LARGEST_SHAPE:
        return _LARGEST_SHAPE
    # a start by Minka, then Newton's method in 1/k
    k = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(30):
        step = (np.log(k) - special.digamma(k) - gap) / (k**2 * (1 / k - special.polygamma(1, k)))
        new = 1 / (1 / k + step)
        if abs(new - k) <= 1e-14 * k:
            break
        k = new
    return float(k)


@dataclasses.dataclass(frozen=True)
class GammaResponse(AbstractResponse):
    """Positive answers of shape exp(τ), so that the standard deviation is in proportion to the mean."""

    canonical, usual = RECIPROCAL, LOG
    values = "positive numbers"
    coordinate = "positive"
    others = ("log shape",)
    dispersed = True

    def allows(self, y, trials):
        return (y > 0) & np.isfinite(y)

    def terms(self, y, u, other, trials):
        k = np.broadcast_to(np.exp(other[0]), y.shape)
        log_ratio = np.log(y) - u
        ratio = np.exp(log_ratio)
        value = k * other[0] + k * (log_ratio - ratio) - special.gammaln(k) - np.log(y)
        slope = k * (other[0] + 1 - special.digamma(k) + log_ratio - ratio)
        bend = k**2 * (1 / k - special.polygamma(1, k)) + slope
        curvature = _two(k * ratio, -k * (ratio - 1), -bend)
        return Terms(value, _one(k * (ratio - 1), slope), curvature, k)

    def deviance(self, y, mean, other, trials):
        return 2 * (y / mean - 1 - np.log(y / mean))

    def variance(self, mean, other, trials):
        return mean**2

    def dispersion(self, y, mean, weight):
        ratio = y / mean
        gap = np.average(ratio - 1 - np.log(ratio), weights=weight)
        return np.log([_shape(float(gap))])

    def laws(self, mean, other, trials):
        k = np.broadcast_to(np.exp(other[0]), mean.shape)
        return Laws(stats.gamma(k, scale=mean / k))

    def given(self, other, link):
        shape = on_device(np.exp(other[:1]))
        return Given(Gamma(shape, shape), Mean(link.inverse))


@dataclasses.dataclass(frozen=True)
class ExponentialResponse(AbstractResponse):
    """Positive answers whose standard deviation is their mean, such as waiting times."""

    canonical, usual = RECIPROCAL, LOG
    values = "positive numbers"
    coordinate = "positive"

    def allows(self, y, trials):
        return (y > 0) & np.isfinite(y)

    def terms(self, y, u, other, trials):
        ratio = y * np.exp(-u)
        return Terms(-u - ratio, (ratio - 1)[None], ratio[None, None], np.ones_like(u))

    def deviance(self, y, mean, other, trials):
        return 2 * (y / mean - 1 - np.log(y / mean))

    def variance(self, mean, other, trials):
        return mean**2

    def laws(self, mean, other, trials):
        return Laws(stats.expon(scale=mean))

    def given(self, other, link):
        return _of_mean_alone(Exponential, 1.0, link, False)


@dataclasses.dataclass(frozen=True)
class ModelledShape(AbstractResponse):
    """Gamma answers whose shape depends on the row, and whose scale does not.

        p(y) = y^{k−1} e^{−y/θ} / (Γ(k) θᵏ),  with log k linear in the row and mean k θ.

    It is the rarer Gamma regression, in which the variance is in proportion to the mean.  The link is
    not the canonical one, so that Newton's method and Fisher scoring differ.

    Args:
        scale: θ, if it is known; else it is fitted.

    >>> import freeenergy as fe
    >>> model = fe.GeneralisedLinearModel(fe.estimators.ModelledShape(scale=1.0))
    >>> float(model.fit([[0.0], [0.0]], [1.0, 1.0]).predict([[0.0]])[0].round(4))
    1.4616
    """

    scale: float | None = None

    canonical = usual = LOG
    values = "positive numbers"
    coordinate = "positive"

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale > 0:
            raise ValueError(
                "The 'scale' of ModelledShape must be a positive number or None. "
                f"Got {self.scale!r} instead."
            )

    @property
    def others(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the further coordinates are called."""
        return ("log scale",) if self.scale is None else ()

    def _log_scale(self, other):
        return other[0] if self.scale is None else np.log(self.scale)

    def allows(self, y, trials):
        return (y > 0) & np.isfinite(y)

    def terms(self, y, u, other, trials):
        tau, k = self._log_scale(other), np.exp(u)
        ratio = y * np.exp(-tau)
        log_ratio = np.log(y) - tau
        value = k * log_ratio - np.log(y) - ratio - special.gammaln(k)
        slope = k * (log_ratio - special.digamma(k))
        information = k**2 * special.polygamma(1, k)
        observed = information - slope
        if self.scale is not None:
            return Terms(value, _one(slope), observed[None, None], information)
        return Terms(value, _one(slope, ratio - k), _two(observed, k, ratio), information)

    def deviance(self, y, mean, other, trials):
        # the best k has ψ(k) = log y − log θ, for which there is no formula
        best = _inverse_digamma(np.log(y) - self._log_scale(other))
        full, now = (self.terms(y, np.log(k), other, trials).value for k in (best, mean))
        return 2 * (full - now)

    def variance(self, mean, other, trials):
        return mean * np.exp(2 * self._log_scale(other))

    def mean(self, mean, other, trials):
        return mean * np.exp(self._log_scale(other))

    def start(self, y, weight, trials):
        average = float(np.average(y, weights=weight))
        if self.scale is not None:
            return average / self.scale, np.zeros(0)
        # by moments: variance over mean
        scale = _spread(y, weight) / average
        return average / scale, np.log([scale])

    def laws(self, mean, other, trials):
        scale = np.broadcast_to(np.exp(self._log_scale(other)), mean.shape)
        return Laws(stats.gamma(mean, scale=scale))


def _inverse_digamma(value: np.ndarray) -> np.ndarray:
    """The k with ψ(k) = value, by Newton's method from Minka's start."""
    k = np.where(value >= -2.22, np.exp(np.minimum(value, 700.0)) + 0.5, -1 / (value - special.digamma(1)))
    for _ in range(8):
        k = k - (special.digamma(k) - value) / special.polygamma(1, k)
    return k


@dataclasses.dataclass(frozen=True)
class InverseGaussian(AbstractResponse):
    """Positive answers of which the variance grows with the cube of the mean: first passages of a walk.

        p(y) = √(λ / 2πy³) exp(−λ (y − μ)² / 2μ²y).

    >>> import freeenergy as fe
    >>> model = fe.GeneralisedLinearModel(fe.estimators.InverseGaussian())
    >>> model.fit([[0.0], [1.0]] * 2, [1, 2, 3, 4]).predict([[0.0], [1.0]]).round(4).tolist()
    [2.0, 3.0]
    """

    canonical, usual = RECIPROCAL_ROOT, LOG
    values = "positive numbers"
    coordinate = "positive"
    others = ("log shape",)
    dispersed = True

    def allows(self, y, trials):
        return (y > 0) & np.isfinite(y)

    def terms(self, y, u, other, trials):
        mean, shape = np.exp(u), np.exp(other[0])
        gap = (y - mean) / mean
        loss = 0.5 * shape * gap**2 / y
        value = 0.5 * (other[0] - np.log(2 * np.pi) - 3 * np.log(y)) - loss
        slope = shape * gap / mean
        curvature = _two(shape * (2 * y - mean) / mean**2, -slope, loss)
        return Terms(value, _one(slope, 0.5 - loss), curvature, shape / mean)

    def deviance(self, y, mean, other, trials):
        return (y - mean) ** 2 / (mean**2 * y)

    def variance(self, mean, other, trials):
        return mean**3

    def dispersion(self, y, mean, weight):
        found = np.average(self.deviance(y, mean, np.zeros(1), y), weights=weight)
        return -np.log(np.maximum(found, 1e-24 / np.average(y, weights=weight)))[None]

    def laws(self, mean, other, trials):
        shape = np.broadcast_to(np.exp(other[0]), mean.shape)
        return Laws(stats.invgauss(mean / shape, scale=shape))


@dataclasses.dataclass(frozen=True)
class NegativeBinomialResponse(AbstractResponse):
    """Counts with variance μ + α μ², α = exp(τ): a Poisson whose rate is drawn from a Gamma."""

    canonical = usual = LOG
    values = "whole numbers from 0"
    coordinate = "positive"
    edged = True
    others = ("log dispersion",)

    def allows(self, y, trials):
        return (y >= 0) & (y == np.floor(y))

    def terms(self, y, u, other, trials):
        mean, r = np.exp(u), np.exp(-other[0])
        share = r / (r + mean)
        # Γ(y + r) / Γ(r) over (r + μ)^y, and (r / (r + μ))^r
        rising = special.gammaln(y + r) - special.gammaln(r) - y * np.log(r + mean)
        value = rising - r * np.log1p(mean / r) + y * u
        gap = share * (y - mean)
        in_r = special.digamma(y + r) - special.digamma(r) - np.log1p(mean / r) + (mean - y) / (r + mean)
        bend = special.polygamma(1, y + r) - special.polygamma(1, r) + 1 / r - 1 / (r + mean)
        bend = bend - (mean - y) / (r + mean) ** 2
        # in log α = −log r
        slope, second = -r * in_r, r**2 * bend + r * in_r
        mixed = -r * mean * (y - mean) / (r + mean) ** 2
        curvature = _two((y + r) * share * mean / (r + mean), -mixed, -second)
        return Terms(value, _one(gap, slope), curvature, share * mean)

    def base(self, y, trials):
        return -special.gammaln(y + 1)

    def deviance(self, y, mean, other, trials):
        r = np.exp(-other[0])
        return 2 * (special.xlogy(y, y) - special.xlogy(y, mean) - (y + r) * np.log((y + r) / (mean + r)))

    def variance(self, mean, other, trials):
        return mean + np.exp(other[0]) * mean**2

    def start(self, y, weight, trials):
        average, _ = RESPONSES[Poisson].start(y, weight, trials)
        extra = (_spread(y, weight) - average) / average**2
        return average, np.log([max(extra, 0.01)])

    def least(self):
        return np.array([_NO_DISPERSION])

    def laws(self, mean, other, trials):
        r = np.broadcast_to(np.exp(-other[0]), mean.shape)
        return Laws(stats.nbinom(r, r / (r + mean)))

    def given(self, other, link):
        shape = on_device(np.exp(-other[:1]))
        return Given(NegativeBinomial(shape, shape), Mean(link.inverse))


@dataclasses.dataclass(frozen=True)
class BetaResponse(AbstractResponse):
    """Shares between 0 and 1: Beta(μν, (1 − μ)ν) with precision ν = exp(τ)."""

    canonical = usual = LOGIT
    values = "numbers between 0 and 1, without both"
    coordinate = "unit"
    others = ("log precision",)

    def allows(self, y, trials):
        return (y > 0) & (y < 1)

    def terms(self, y, u, other, trials):
        nu = np.broadcast_to(np.exp(other[0]), y.shape)
        mean, rest = special.expit(u), special.expit(-u)
        a, b = mean * nu, rest * nu
        first, last = np.log(y), np.log1p(-y)
        value = special.gammaln(nu) - special.gammaln(a) - special.gammaln(b)
        value = value + (a - 1) * first + (b - 1) * last
        gap = first - last - special.digamma(a) + special.digamma(b)
        ta, tb, tn = (special.polygamma(1, v) for v in (a, b, nu))
        spread = mean * rest
        in_mean, bend_mean = nu * gap, -(nu**2) * (ta + tb)
        slope_u = in_mean * spread
        bend_u = bend_mean * spread**2 + slope_u * (rest - mean)
        in_nu = special.digamma(nu) - mean * special.digamma(a) - rest * special.digamma(b)
        in_nu = in_nu + mean * first + rest * last
        bend_nu = tn - mean**2 * ta - rest**2 * tb
        mixed = (gap - nu * (mean * ta - rest * tb)) * spread * nu
        slope_t, bend_t = nu * in_nu, nu**2 * bend_nu + nu * in_nu
        return Terms(value, _one(slope_u, slope_t), _two(-bend_u, -mixed, -bend_t), -bend_mean * spread**2)

    def deviance(self, y, mean, other, trials):
        # against the mean that is the answer itself
        now, best = (self.terms(y, special.logit(m), other, trials).value for m in (mean, y))
        return 2 * (best - now)

    def variance(self, mean, other, trials):
        return mean * (1 - mean) / (1 + np.exp(other[0]))

    def start(self, y, weight, trials):
        average = float(np.average(y, weights=weight))
        return average, np.log([max(average * (1 - average) / _spread(y, weight) - 1, 0.1)])

    def laws(self, mean, other, trials):
        nu = np.broadcast_to(np.exp(other[0]), mean.shape)
        return Laws(stats.beta(mean * nu, (1 - mean) * nu))


@dataclasses.dataclass(frozen=True)
class ZeroInflated(AbstractResponse):
    """Counts that are zero with some probability whatever else, and of a family otherwise.

        p(y) = π [y = 0] + (1 − π) f(y),

    with the log-odds of π a constant, or linear in the row.  The mean that the predictor stands for is
    that of f; answers have (1 − π) times it.

    Args:
        family: f, `Poisson` or `NegativeBinomial` of `freeenergy.distributions`.

    >>> import freeenergy as fe
    >>> counts = [0] * 60 + [2] * 10 + [3] * 20 + [4] * 10
    >>> model = fe.GeneralisedLinearModel(fe.estimators.ZeroInflated(fe.distributions.Poisson))
    >>> model = model.fit([[0.0]] * 100, counts)
    >>> bool(abs(model.predict([[0.0]])[0] - 1.2) < 1e-6), bool(model.other_intercepts_[0] > 0)
    (True, True)
    """

    family: type = Poisson

    canonical = usual = LOG
    values = "whole numbers from 0"
    coordinate = "positive"
    edged = True

    def __post_init__(self) -> None:
        if self.family not in (Poisson, NegativeBinomial):
            raise ValueError(
                "The 'family' of ZeroInflated must be Poisson or NegativeBinomial of "
                f"freeenergy.distributions. Got {self.family!r} instead."
            )

    @property
    def base_family(self) -> AbstractResponse:
        """The family without its zeros."""
        return RESPONSES[self.family]

    @property
    def others(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the further coordinates are called."""
        return ("log-odds of zero", *self.base_family.others)

    @property
    def may_vary(self) -> tuple[bool, ...]:
        """Which of the further coordinates may depend on the row."""
        return (True, *(False for _ in self.base_family.others))

    def allows(self, y, trials):
        return (y >= 0) & (y == np.floor(y))

    def terms(self, y, u, other, trials):
        # for zeros the part of log p that is left out is zero
        zeta = np.broadcast_to(other[0], y.shape)
        inner = self.base_family.terms(y, u, other[1:], trials)
        share = special.expit(zeta)
        log_share, log_rest = special.log_expit(zeta), special.log_expit(-zeta)
        zero = y == 0
        value = log_rest + inner.value
        whole = np.logaddexp(log_share, value)
        # how probable it is that a zero is one of those that had to be
        r = np.where(zero, np.exp(log_share - whole), 0.0)
        value = np.where(zero, whole, value)
        slope_zeta = r - share
        slope = (1 - r) * inner.slope
        bend_zeta = r * (1 - r) - share * (1 - share)
        both = r * (1 - r)
        outer = inner.slope[:, None] * inner.slope[None]
        curvature = (1 - r) * inner.curvature - both * outer
        mixed = both * inner.slope
        k = len(inner.slope) + 1
        full = np.empty((k, k, len(y)))
        # coordinates: the mean, the share of zeros, the rest
        place = [0, *range(2, k)]
        full[np.ix_(place, place)] = curvature
        full[1, 1] = -bend_zeta
        full[1, place] = full[place, 1] = mixed
        slopes = np.empty((k, len(y)))
        slopes[place], slopes[1] = slope, slope_zeta
        return Terms(value, slopes, full)

    def base(self, y, trials):
        return self.base_family.base(y, trials)

    def deviance(self, y, mean, other, trials):
        now = self.terms(y, np.log(mean), other, trials).value
        best = self.terms(y, np.log(np.where(y > 0, y, 1e-300)), other, trials).value
        return 2 * (best - now)

    def variance(self, mean, other, trials):
        share = special.expit(other[0])
        inner = self.base_family.variance(mean, other[1:], trials)
        return (1 - share) * (inner + share * mean**2)

    def mean(self, mean, other, trials):
        return special.expit(-other[0]) * mean

    def start(self, y, weight, trials):
        average, others = self.base_family.start(y, weight, trials)
        # zeros that are more than those of a Poisson of that mean
        zeros, usual = float(np.average(y == 0, weights=weight)), float(np.exp(-average))
        extra = min(max((zeros - usual) / (1 - usual), 0.02), 0.98)
        return average / (1 - extra), np.concatenate([[special.logit(extra)], others])

    def least(self):
        return np.concatenate([[-30.0], self.base_family.least()])

    def laws(self, mean, other, trials):
        zeta = np.broadcast_to(other[0], mean.shape)
        weights = np.stack([special.log_expit(zeta), special.log_expit(-zeta)])
        zeros = Laws(stats.poisson(np.zeros_like(mean)))
        return MixedLaws(weights, (zeros, self.base_family.laws(mean, other[1:], trials)))


RESPONSES: dict[Any, AbstractResponse] = {
    Gaussian: GaussianResponse(),
    Poisson: PoissonResponse(),
    Bernoulli: BinomialResponse(),
    Binomial: BinomialResponse(),
    Gamma: GammaResponse(),
    Exponential: ExponentialResponse(),
    NegativeBinomial: NegativeBinomialResponse(),
    Beta: BetaResponse(),
}
