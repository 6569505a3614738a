"""The laws of answers that regressions have: Student's with several outputs, Huber's, and by quantiles."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import special, stats

from ._laws import AbstractLaws, Laws, distances

_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class StudentLaws(AbstractLaws):
    """Several outputs of each row with Student's law, which depend on each other.

    Attributes:
        dof: degrees of freedom ν.
        means: (rows, outputs); of one degree of freedom or less, the medians.
        scales: (rows, outputs, outputs), the covariances times (ν − 2) / ν.

    >>> both = StudentLaws(4.0, np.zeros((1, 2)), np.eye(2)[None])
    >>> both.log_prob([[1.0, np.nan]]).round(4).tolist(), stats.t(4).logpdf(1.0).round(4).tolist()
    ([-1.5387], -1.5387)
    """

    dof: float
    means: np.ndarray
    scales: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.means.shape

    @property
    def discrete(self) -> bool:
        return False

    @property
    def _alone(self) -> Laws:
        """Each output by itself."""
        return Laws(stats.t(self.dof, self.means, np.sqrt(np.diagonal(self.scales, axis1=1, axis2=2))))

    def log_prob(self, y: Any) -> np.ndarray:
        known, square, log_root = distances(y, self.means, self.scales)
        half = (self.dof + known) / 2
        log_normaliser = (
            special.gammaln(half) - special.gammaln(self.dof / 2) - known / 2 * np.log(self.dof * np.pi)
        )
        return log_normaliser - log_root - half * np.log1p(square / self.dof)

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._alone.log_cdf(y)

    def log_sf(self, y: Any) -> np.ndarray:
        return self._alone.log_sf(y)

    def mean(self) -> np.ndarray:
        return self.means

    def variance(self) -> np.ndarray:
        return self._alone.variance()

    def quantile(self, p: Any) -> np.ndarray:
        return self._alone.quantile(p)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        root = np.linalg.cholesky(self.scales)
        noise = np.einsum("rij,nrj->nri", root, rng.standard_normal((n, *self.shape)))
        # one scale for all outputs of a row
        factor = rng.chisquare(self.dof, (n, len(self.means), 1)) / self.dof
        return self.means + noise / np.sqrt(factor)

    def take(self, rows: np.ndarray) -> StudentLaws:
        return StudentLaws(self.dof, self.means[rows], self.scales[rows])


@dataclasses.dataclass(frozen=True)
class HuberLaws(AbstractLaws):
    """Normal in the middle, exponential in the tails: the law whose −log p is Huber's loss.

        p(y) = exp(−ρ(u)) / (σ Z),  u = (y − μ) / σ,  ρ(u) = ½ u² for |u| ≤ δ,  δ |u| − ½ δ² beyond

    It is the least favourable law of those that are a normal with a share of anything (Huber, 1964).

    Attributes:
        delta: δ, where the tails begin.
        location, scale: μ and σ of each answer.

    >>> law = HuberLaws(1.0, np.zeros(1), np.ones(1))
    >>> law.cdf(0.0).round(6).tolist(), law.cdf(law.quantile(0.99)).round(6).tolist()
    ([0.5], [0.99])
    """

    delta: float
    location: np.ndarray
    scale: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.location.shape

    @property
    def discrete(self) -> bool:
        return False

    @property
    def _tail(self) -> float:
        """What is beyond δ on one side, before it is normalised."""
        return float(np.exp(-(self.delta**2) / 2) / self.delta)

    @property
    def _total(self) -> float:
        """Z."""
        middle = np.sqrt(2 * np.pi) * special.erf(self.delta / np.sqrt(2))
        return float(middle + 2 * self._tail)

    def _scaled(self, y: Any) -> np.ndarray:
        return (np.asarray(y, float) - self.location) / self.scale

    def log_prob(self, y: Any) -> np.ndarray:
        size = np.abs(self._scaled(y))
        inner = np.minimum(size, self.delta)
        # ½ a² + δ (|u| − a) with a = min(|u|, δ)
        energy = inner**2 / 2 + self.delta * (size - inner) + np.log(self.scale) + np.log(self._total)
        energy = np.where(np.isnan(energy), 0.0, energy)
        return -energy.reshape(len(energy), -1).sum(axis=1)

    def _log_below(self, u: np.ndarray) -> np.ndarray:
        """log P(U ≤ u), exact in the lower tail."""
        far = np.log(self._tail / self._total) + self.delta * (np.minimum(u, -self.delta) + self.delta)
        inner = np.clip(u, -self.delta, self.delta)
        half = np.sqrt(np.pi / 2)
        middle = self._tail + half * (
            special.erf(inner / np.sqrt(2)) + special.erf(self.delta / np.sqrt(2))
        )
        above = self._tail / self._total * np.exp(-self.delta * (np.maximum(u, self.delta) - self.delta))
        return np.where(
            u < -self.delta, far, np.where(u > self.delta, np.log1p(-above), np.log(middle / self._total))
        )

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._log_below(self._scaled(y))

    def log_sf(self, y: Any) -> np.ndarray:
        return self._log_below(-self._scaled(y))

    def mean(self) -> np.ndarray:
        return self.location

    def variance(self) -> np.ndarray:
        d, half = self.delta, np.sqrt(2 * np.pi) * special.erf(self.delta / np.sqrt(2))
        middle = half - 2 * d * np.exp(-(d**2) / 2)
        # ∫ u² exp(−δ (u − δ)) from δ on
        tails = 2 * np.exp(-(d**2) / 2) * (d + 2 / d + 2 / d**3)
        return self.scale**2 * (middle + tails) / self._total

    def quantile(self, p: Any) -> np.ndarray:
        p = np.asarray(p, float)
        low = np.minimum(p, 1 - p)
        edge = self._tail / self._total
        with np.errstate(divide="ignore"):
            far = np.log(low / edge) / self.delta - self.delta
        share = (low * self._total - self._tail) / np.sqrt(np.pi / 2) - special.erf(self.delta / np.sqrt(2))
        near = np.sqrt(2) * special.erfinv(np.clip(share, -1.0, 0.0))
        u = np.where(low < edge, far, near)
        return self.location + self.scale * np.where(p <= 0.5, u, -u)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        u = rng.random((n, *self.shape))
        return self.quantile(u)

    def take(self, rows: np.ndarray) -> HuberLaws:
        return HuberLaws(self.delta, self.location[rows], self.scale[rows])


@dataclasses.dataclass(frozen=True)
class QuantileLaws(AbstractLaws):
    """A law for each row with given quantiles: even between two of them, exponential beyond the last.

    Attributes:
        levels: probabilities τ, ascending, of which there may be one.
        points: (rows, levels), the quantiles of each row, ascending.
        below, above: the mean distance of answers beyond the first and the last quantile.

    >>> law = QuantileLaws(np.array([0.25, 0.75]), np.array([[-1.0, 1.0]]), 1.0, 1.0)
    >>> law.quantile(0.5).tolist(), np.exp(law.log_prob([0.0])).tolist(), law.mean().tolist()
    ([0.0], [0.25], [0.0])
    """

    levels: np.ndarray
    points: np.ndarray
    below: float
    above: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.points.shape[:1]

    @property
    def discrete(self) -> bool:
        return False

    @property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """The probability between neighbouring quantiles, and their distances."""
        return np.diff(self.levels), np.diff(self.points, axis=1)

    def _place(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Between which quantiles each answer is, from 0 (below all), and how far from both ends."""
        # one on a quantile, where the density jumps, is below it, also after rounding
        near = _ROUNDING * (self.points[:, -1:] - self.points[:, :1] + self.below + self.above)
        number = (y[:, None] > self.points + near).sum(axis=1)
        return number, self.points[:, 0] - y, y - self.points[:, -1]

    def log_prob(self, y: Any) -> np.ndarray:
        y = np.broadcast_to(np.asarray(y, float), self.shape)
        number, under, over = self._place(y)
        shares, widths = self._steps
        logs = np.full(len(y), 0.0)
        last = len(self.levels)
        inside = (number > 0) & (number < last)
        at = number[inside] - 1
        logs[inside] = np.log(shares[at]) - np.log(widths[inside, at])
        low, high = number == 0, number == last
        logs[low] = np.log(self.levels[0] / self.below) - under[low] / self.below
        logs[high] = np.log((1 - self.levels[-1]) / self.above) - over[high] / self.above
        return np.where(np.isnan(y), 0.0, logs)

    def _probability(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """log P(answer ≤ y) and log P(answer > y)."""
        y = np.broadcast_to(np.asarray(y, float), self.shape)
        number, under, over = self._place(y)
        last = len(self.levels)
        inside = np.clip(number - 1, 0, max(last - 2, 0))
        shares, widths = self._steps
        if last > 1:
            rows = np.arange(len(y))
            part = (y - self.points[rows, inside]) / widths[rows, inside]
            middle = self.levels[inside] + shares[inside] * part
        else:
            middle = np.full(len(y), self.levels[0])
        low = np.log(self.levels[0]) - np.maximum(under, 0.0) / self.below
        high = np.log1p(-self.levels[-1]) - np.maximum(over, 0.0) / self.above
        below, above = number == 0, number == last
        with np.errstate(divide="ignore", invalid="ignore"):
            log_cdf = np.where(below, low, np.where(above, np.log1p(-np.exp(high)), np.log(middle)))
            log_sf = np.where(above, high, np.where(below, np.log1p(-np.exp(low)), np.log1p(-middle)))
        return log_cdf, log_sf

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._probability(y)[0]

    def log_sf(self, y: Any) -> np.ndarray:
        return self._probability(y)[1]

    def mean(self) -> np.ndarray:
        shares, _ = self._steps
        middles = (self.points[:, 1:] + self.points[:, :-1]) / 2
        first, last = self.levels[0], 1 - self.levels[-1]
        ends = first * (self.points[:, 0] - self.below) + last * (self.points[:, -1] + self.above)
        return middles @ shares + ends

    def variance(self) -> np.ndarray:
        centred = self.points - self.mean()[:, None]
        shares, _ = self._steps
        left, right = centred[:, :-1], centred[:, 1:]
        inner = ((left**2 + left * right + right**2) / 3) @ shares
        # E (q ∓ e)² of an exponential e
        low = centred[:, 0] ** 2 - 2 * centred[:, 0] * self.below + 2 * self.below**2
        high = centred[:, -1] ** 2 + 2 * centred[:, -1] * self.above + 2 * self.above**2
        return inner + self.levels[0] * low + (1 - self.levels[-1]) * high

    def quantile(self, p: Any) -> np.ndarray:
        p = np.broadcast_to(np.asarray(p, float), self.shape)
        return self._quantiles(p[None])[0]

    def _quantiles(self, p: np.ndarray) -> np.ndarray:
        """(draws, rows)."""
        first, last = self.levels[0], self.levels[-1]
        with np.errstate(divide="ignore"):
            low = self.points[:, 0] + self.below * np.log(np.minimum(p, first) / first)
            high = self.points[:, -1] - self.above * np.log(np.minimum(1 - p, 1 - last) / (1 - last))
        found = np.where(p < first, low, high)
        if len(self.levels) > 1:
            at = np.clip(np.searchsorted(self.levels, p, side="right") - 1, 0, len(self.levels) - 2)
            rows = np.broadcast_to(np.arange(p.shape[1]), p.shape)
            part = (p - self.levels[at]) / np.diff(self.levels)[at]
            middle = self.points[rows, at] + part * (self.points[rows, at + 1] - self.points[rows, at])
            found = np.where((p >= first) & (p <= last), middle, found)
        return found

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._quantiles(rng.random((n, *self.shape)))

    def take(self, rows: np.ndarray) -> QuantileLaws:
        return dataclasses.replace(self, points=self.points[rows])
