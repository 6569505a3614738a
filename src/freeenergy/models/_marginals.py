"""Columns as monotone images of a standard normal score: the marginals of a copula."""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import log_ndtr, ndtr, ndtri

from .._core import LOG_2PI, buffer
from ..distributions._cells import log_normal_interval

# the logarithm of a probability from which on numbers have it, and steps to its score beyond
_SMALL = -600.0
_NEWTON = 4
# of the search for the value of a score: some ten steps do, unless there is a gap between kernels
_MOST_STEPS, _NEAR = 64, 1e-10
# the largest count that is looked for
_MOST = 2.0**52
# scores from which on only the nearest kernel counts
_FAR = 1e4


def normal_score(log_below: Array, log_above: Array) -> Array:
    """z with Φ(z) = F, from log F and log (1 − F), of which the smaller tells, however small it is.

    >>> round(float(normal_score(jnp.log(jnp.array(0.975)), jnp.log(jnp.array(0.025)))), 4)
    1.96
    >>> normal_score(log_ndtr(jnp.array(-50.0)), jnp.zeros(())).round(9).item()
    -50.0
    """
    lower = log_below < log_above
    least = jnp.where(lower, log_below, log_above)
    far = least < _SMALL
    near = ndtri(jnp.exp(jnp.where(far, -1.0, least)))
    target = jnp.where(far, least, -1e3)
    # log Φ(−x) is near −x²/2 − log x − log √2π
    x = jnp.sqrt(-2 * target - LOG_2PI - jnp.log(-2 * target))
    for _ in range(_NEWTON):
        x = x - (target + 0.5 * x**2 + jnp.log(x) + 0.5 * LOG_2PI - _mills(x)) / (x + 1 / x)
    score = jnp.where(far, -x, near)
    return jnp.where(lower, score, -score)


def _mills(x: Array) -> Array:
    """log of √2π x exp(x²/2) Φ(−x), for large x."""
    inverse = 1 / x**2
    return jnp.log1p(-inverse * (1 - 3 * inverse * (1 - 5 * inverse)))


class AbstractMarginals(eqx.Module):
    """The laws of some columns, each the image of a score z ~ N(0, 1) that no number of it outruns.

    Attributes:
        edges: scores that divide each column into bins, shape (columns, bins − 1).
        values: what the column is on average within each bin, shape (columns, bins).
    """

    edges: eqx.AbstractVar[Array]
    values: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def ends(self, x: Array) -> tuple[Array, Array]:
        """Between which scores each entry lies: the same twice where it has one, NaN if missing."""

    @abc.abstractmethod
    def log_slopes(self, x: Array) -> Array:
        """log dz/dx of each entry, zero where it has a mass or is missing."""

    @abc.abstractmethod
    def at(self, z: Array) -> Array:
        """The entries with the scores `z`."""

    def mean(self, centre: Array, spread: Array) -> Array:
        """E[x] of each column for scores that are normal with these means and standard deviations."""
        below = ndtr((self.edges - centre[:, None]) / spread[:, None])
        ends = jnp.zeros((len(centre), 1), below.dtype)
        shares = jnp.diff(jnp.concatenate([ends, below, ends + 1], axis=1), axis=1)
        return jnp.sum(shares * self.values, axis=1)


class _Search(NamedTuple):
    """Where the values of some scores are looked for, between which ends, and which are found."""

    steps: Array
    x: Array
    low: Array
    high: Array
    found: Array


class SmoothMarginals(AbstractMarginals):
    """Numbers:  F(x) = Σ_k w_k Φ((x − c_k) / h_k), a mixture of normal kernels for each column.

    Attributes:
        weights, centres, widths: w, c and h, shape (columns, kernels).

    >>> none, centres = jnp.zeros((1, 0)), jnp.array([[-3.0, 3.0]])
    >>> two = SmoothMarginals(none, none, jnp.full((1, 2), 0.5), centres, jnp.ones((1, 2)))
    >>> [round(float(v[0]), 4) for v in (two.at(jnp.array([1.0])), two.scores(jnp.array([3.0])))]
    [3.4752, 0.6745]
    """

    edges: Array = buffer()
    values: Array = buffer()
    weights: Array = buffer()
    centres: Array = buffer()
    widths: Array = buffer()

    def _standard(self, x: Array) -> Array:
        return (x[:, None] - self.centres) / self.widths

    def scores(self, x: Array) -> Array:
        """z with Φ(z) = F(x)."""
        return self._scores(self._standard(x))

    def _scores(self, u: Array) -> Array:
        log_weights = jnp.log(self.weights)
        below = jax.nn.logsumexp(log_weights + log_ndtr(u), axis=1)
        above = jax.nn.logsumexp(log_weights + log_ndtr(-u), axis=1)
        z = normal_score(below, above)
        # far out there is but the kernel that reaches farthest, and its logarithm may be no number
        low, high = jnp.max(u, axis=1), jnp.min(u, axis=1)
        return jnp.where(low < -_FAR, low, jnp.where(high > _FAR, high, z))

    def ends(self, x: Array) -> tuple[Array, Array]:
        z = jnp.where(jnp.isnan(x), jnp.nan, self.scores(jnp.where(jnp.isnan(x), 0, x)))
        return z, z

    def log_slopes(self, x: Array) -> Array:
        u = self._standard(jnp.where(jnp.isnan(x), 0, x))
        return jnp.where(jnp.isnan(x), 0, self._log_slopes(u, self._scores(u)))

    def _log_slopes(self, u: Array, z: Array) -> Array:
        near = jnp.abs(z) < _FAR
        logs = jnp.log(self.weights / self.widths) - 0.5 * jnp.where(near[:, None], u, 0) ** 2
        kernel = jnp.argmin(jnp.where(self.weights > 0, jnp.abs(u), jnp.inf), axis=1)
        alone = -jnp.log(jnp.take_along_axis(self.widths, kernel[:, None], axis=1)[:, 0])
        slopes = jax.nn.logsumexp(logs, axis=1) + 0.5 * jnp.where(near, z, 0) ** 2
        return jnp.where(near, slopes, alone)

    def at(self, z: Array) -> Array:
        # the quantile of a mixture lies between those of its kernels
        each = self.centres + self.widths * z[:, None]
        least = jnp.min(self.widths, axis=1)

        def going(state: _Search) -> Array:
            return (state.steps < _MOST_STEPS) & ~jnp.all(state.found)

        def move(state: _Search) -> _Search:
            """By Newton's rule, halving where it leaves what is known to hold the value."""
            x = state.x
            u = self._standard(x)
            score = self._scores(u)
            step = (z - score) * jnp.exp(-self._log_slopes(u, score))
            low, high = jnp.where(score < z, x, state.low), jnp.where(score < z, state.high, x)
            found = jnp.abs(step) <= _NEAR * jnp.maximum(jnp.abs(x), least)
            inside = (low < x + step) & (x + step < high)
            moved = jnp.where(inside | found, x + step, low + 0.5 * (high - low))
            return _Search(state.steps + 1, moved, low, high, found)

        low, high = jnp.min(each, axis=1), jnp.max(each, axis=1)
        start = _Search(jnp.zeros((), int), low + 0.5 * (high - low), low, high, jnp.isnan(z))
        return jax.lax.while_loop(going, move, start).x


class CountMarginals(AbstractMarginals):
    """Counts:  kernels that are rounded and cut at zero, beside a geometric law with the share ε.

        P(x > k) = (1 − ε) Σ_j w_j Φ((c_j − k − ½) / h_j) / Φ((c_j + ½) / h_j) + ε rᵏ⁺¹.

    Attributes:
        weights, centres, widths: w, c and h, shape (columns, kernels).
        log_share: log ε of each column.
        log_ratio: log r of each column.

    >>> zero, none = jnp.zeros((1, 1)), jnp.zeros((1, 0))
    >>> half = jnp.log(jnp.array([0.5]))
    >>> law = CountMarginals(none, none, jnp.ones((1, 1)), zero, zero + 0.05, half, half)
    >>> law.thresholds(jnp.array([0.0])).round(4).item()  # ½ at zero, and half of the rest
    0.6745
    """

    edges: Array = buffer()
    values: Array = buffer()
    weights: Array = buffer()
    centres: Array = buffer()
    widths: Array = buffer()
    log_share: Array = buffer()
    log_ratio: Array = buffer()

    def thresholds(self, x: Array) -> Array:
        """The scores up to which a column is at most `x`; −∞ for −1."""
        top, zero = (x[:, None] + 0.5 - self.centres) / self.widths, (-0.5 - self.centres) / self.widths
        log_weights = jnp.log(self.weights) - log_ndtr(-zero) + jnp.log1p(-jnp.exp(self.log_share))[:, None]
        tail = self.log_ratio * (x + 1)
        above = jnp.append(log_weights + log_ndtr(-top), (self.log_share + tail)[:, None], axis=1)
        inside = log_weights + log_normal_interval(zero, top - zero)
        below = jnp.append(inside, (self.log_share + jnp.log(-jnp.expm1(tail)))[:, None], axis=1)
        score = normal_score(jax.nn.logsumexp(below, axis=1), jax.nn.logsumexp(above, axis=1))
        return jnp.where(x < 0, -jnp.inf, score)

    def ends(self, x: Array) -> tuple[Array, Array]:
        filled = jnp.where(jnp.isnan(x), 0, x)
        low, high = self.thresholds(filled - 1), self.thresholds(filled)
        return jnp.where(jnp.isnan(x), jnp.nan, low), jnp.where(jnp.isnan(x), jnp.nan, high)

    def log_slopes(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def at(self, z: Array) -> Array:
        def double(state: tuple[Array, Array]) -> tuple[Array, Array]:
            size = jnp.where(state[1], 2 * state[0], state[0])
            return size, (size < _MOST) & (self.thresholds(size - 1) < z)

        def wide(ends: tuple[Array, Array]) -> Array:
            low, high = ends
            return jnp.any(high - low > 1)

        def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = jnp.floor(0.5 * (low + high))
            short = self.thresholds(middle) < z
            return jnp.where(short, middle, low), jnp.where(short, high, middle)

        start = jnp.full_like(z, 0.5), jnp.ones(z.shape, bool)
        size = jax.lax.while_loop(lambda state: jnp.any(state[1]), double, start)[0]
        return jax.lax.while_loop(wide, halve, (-jnp.ones_like(z), size))[1]


class LevelMarginals(AbstractMarginals):
    """Labels that stand in a row, each between two scores.

    Attributes:
        edges: the scores between neighbours, ∞ where a column has fewer labels than others.
        values: the label at each place.
        places: the place of each label in the row, shape (columns, labels).
    """

    edges: Array = buffer()
    values: Array = buffer()
    places: Array = buffer()

    def ends(self, x: Array) -> tuple[Array, Array]:
        code = jnp.where(jnp.isnan(x), 0, x).astype(int)[:, None]
        place = jnp.take_along_axis(self.places, code, axis=1)
        end = jnp.full((len(x), 1), jnp.inf, x.dtype)
        edges = jnp.concatenate([-end, self.edges, end], axis=1)
        low, high = (jnp.take_along_axis(edges, place + step, axis=1)[:, 0] for step in (0, 1))
        return jnp.where(jnp.isnan(x), jnp.nan, low), jnp.where(jnp.isnan(x), jnp.nan, high)

    def log_slopes(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def at(self, z: Array) -> Array:
        place = jnp.sum((self.edges < z[:, None]).astype(int), axis=1)
        return jnp.take_along_axis(self.values, place[:, None], axis=1)[:, 0]
