"""Counts whose law has a shape of its own, wider or narrower than a Poisson."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import stats
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

from .._core import AbstractSpace, Counts, buffer, log_probability, on_device, parameter, simplex
from ._base import AbstractIndependent, check_support, fisher_information, log_partition_at, mean_parameters
from ._discrete import (
    Categorical,
    _from_log_odds,
    _log_normaliser,
    _log_odds,
    _outside_counts,
    _with_rest,
    inside_simplex,
)
from ._given import AbstractLink

# the fewest and the most cells of a table, which has as many as a power of two
_FEWEST, _MOST = 8, 256
# by which share a count tells of its neighbours
_NEIGHBOURS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
# the parts that a wide law may have in smooth shares, beside one row
_WIDE = (0.0, 0.1, 0.3, 1.0, 3.0)
# nats from which on evidence is strong (Kass and Raftery 1995)
_STRONG = 3.0
_POISSON_STEPS = 200
_POINTS = 61


class CountTable(AbstractIndependent):
    """Counts with a probability for each number below C − 1, and a geometric tail from there on.

        p(x) = p_x  for x < C − 1,    p(x) = p_{C−1} (1 − r) r^{x − C + 1}  from C − 1 on,

    in each coordinate.  No count is impossible, and the law may be narrower or wider than a Poisson, or
    have several peaks.  The tail stays as it is; the statistics are the indicators of the cells.

    Attributes:
        probabilities: (dim, C).
        ratio: r of each coordinate, within (0, 1).

    >>> table = CountTable(jnp.array([[0.5, 0.25, 0.25]]), jnp.array([0.5]))
    >>> [round(float(jnp.exp(table.log_prob(jnp.array([x])))), 6) for x in (0.0, 2.0, 3.0)]
    [0.5, 0.125, 0.0625]
    """

    support: ClassVar[AbstractSpace] = Counts()
    trials: ClassVar[int] = 1

    probabilities: Array = parameter(simplex)
    ratio: Array = buffer()

    @classmethod
    def prototype(cls, x: np.ndarray) -> CountTable:
        """The shares of the values of each column, smoothed, in a table that is long enough for all."""
        check_support(cls, x)
        weight = np.ones(len(x))
        cells = max(table_size(column) for column in x.T)
        laws = [smooth_shares(column, weight, cells) for column in x.T]
        return cls(on_device(np.stack([p for p, _ in laws])), on_device(np.array([r for _, r in laws])))

    def _cells(self) -> Array:
        return jnp.arange(self.probabilities.shape[-1], dtype=self.probabilities.dtype)

    def _last(self) -> int:
        return self.probabilities.shape[-1] - 1

    def statistics(self, x: Array) -> Array:
        return (x[:, None] == self._cells()[None, :-1]).astype(x.dtype)

    def natural(self) -> Array:
        return _log_odds(self.probabilities)

    def log_partition(self) -> Array:
        return -jnp.log(self.probabilities[:, -1])

    def from_natural(self, natural: Array) -> CountTable:
        return CountTable(_from_log_odds(natural), self.ratio)

    def from_statistics(self, weight: Array, total: Array) -> CountTable:
        return CountTable(_with_rest(total / weight[:, None]), self.ratio)

    def inside(self) -> CountTable:
        return CountTable(inside_simplex(self.probabilities), self.ratio)

    def log_base_terms(self, x: Array) -> Array:
        # h(x) has no parameter, and so no slope in any
        beyond, r = x - self._last(), jax.lax.stop_gradient(self.ratio)
        tail = jnp.log1p(-r) + jnp.where(beyond > 0, beyond, 0) * jnp.log(r)
        return jnp.where(beyond >= 0, tail, 0) + _outside_counts(x)

    def log_prob_terms(self, x: Array) -> Array:
        cell = jnp.where(x > self._last(), self._last(), x)
        chosen = cell[:, None] == self._cells()[None, :]
        share = jnp.sum(jnp.where(chosen, self.probabilities, 0), axis=-1)
        return log_probability(share) + self.log_base_terms(x)

    def mean(self) -> Array:
        beyond = self.probabilities[:, -1] * self.ratio / (1 - self.ratio)
        return self.probabilities @ self._cells() + beyond

    def sample(self, *, key: Array) -> Array:
        cell_key, tail_key = jax.random.split(key)
        cell = jax.random.categorical(cell_key, jnp.log(self.probabilities), axis=-1)
        uniform = jax.random.uniform(tail_key, self.ratio.shape, self.ratio.dtype)
        beyond = jnp.floor(jnp.log1p(-uniform) / jnp.log(self.ratio))
        cell = cell.astype(self.probabilities.dtype)
        return jnp.where(cell == self._last(), cell + beyond, cell)


class Tilted(AbstractLink):
    """The output tilts a `CountTable`, one number η a column:  p(x | η) ∝ p(x) exp(η s(x)).

    s is the number of the cell in standard deviations from the mean, those of the member, whose tail
    counts as its last cell.  At output zero it is the member itself (also known as exponential tilting).

    >>> from freeenergy.distributions import Given
    >>> steady = Given(CountTable(jnp.array([[0.5, 0.25, 0.25]]), jnp.array([0.5])), Tilted())
    >>> steady.size, steady.at(jnp.array([1.0])).probabilities.round(3).tolist()
    (1, [[0.121, 0.202, 0.676]])
    """

    def _slope(self, member: CountTable, output: Array) -> Array:
        """η / σ: the exponent of cell k but for a constant, which is the same for all cells."""
        cells = jnp.broadcast_to(member._cells(), member.probabilities.shape)
        mean = jnp.sum(member.probabilities * cells, axis=-1)
        spread = jnp.sum(member.probabilities * (cells - mean[:, None]) ** 2, axis=-1)
        return output / jnp.sqrt(spread)

    def _log_normaliser(self, member: CountTable, slope: Array) -> Array:
        """log Σ_k p_k exp(k η / σ), the sum over blocks of cells, so that few exponentials are taken."""
        columns, cells = member.probabilities.shape
        width = 2 ** (int(cells).bit_length() // 2)
        blocks = -(-cells // width)
        padded = jnp.pad(member.probabilities, ((0, 0), (0, blocks * width - cells)))
        inside = slope[:, None] * jnp.arange(width, dtype=slope.dtype)[None]
        starts = slope[:, None] * (width * jnp.arange(blocks, dtype=slope.dtype))[None]
        # the largest of all terms is no less than its share
        top = [jax.lax.stop_gradient(jnp.max(part, axis=-1)) for part in (inside, starts)]
        sums = jnp.einsum(
            "cbw,cw->cb", padded.reshape(columns, blocks, width), jnp.exp(inside - top[0][:, None])
        )
        return top[0] + top[1] + jnp.log(jnp.sum(jnp.exp(starts - top[1][:, None]) * sums, axis=-1))

    def size(self, member: CountTable) -> int:
        return member.dim

    def learned(self, member: CountTable) -> Any:
        return jax.tree.map(lambda _: False, member)

    def at(self, member: CountTable, output: Array) -> CountTable:
        slope = self._slope(member, output)
        logits = jnp.log(member.probabilities) + slope[:, None] * member._cells()[None]
        return CountTable(jax.nn.softmax(logits, axis=-1), member.ratio)

    def log_prob(self, member: CountTable, output: Array, x: Array) -> Array:
        slope = self._slope(member, output)
        filled = jnp.where(jnp.isnan(x), 0, x)
        cell = jnp.minimum(filled, member._last())
        # what does not depend on the output is had once for all outputs of a row
        own = member.log_prob_terms(filled)
        terms = own + slope * cell - self._log_normaliser(member, slope)
        return jnp.sum(jnp.where(jnp.isnan(x), 0, terms))

    def unit_free(self, member: CountTable) -> np.ndarray:
        return np.zeros(member.dim, bool)


@log_partition_at.register
def _(family: CountTable, natural: Array) -> Array:
    return _log_normaliser(natural)


@mean_parameters.register
def _(family: CountTable) -> Array:
    return family.probabilities[:, :-1]


@fisher_information.register
def _(family: CountTable) -> Array:
    return fisher_information(Categorical(family.probabilities))


# -- which columns need one, and from which shares it starts; on the host --------------------------


def _tally(column: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column, and how often each occurs."""
    seen = ~np.isnan(column) & (weight > 0)
    values, place = np.unique(column[seen], return_inverse=True)
    return values, np.bincount(place.ravel(), weight[seen], len(values))


def table_size(column: np.ndarray) -> int:
    """How many cells a table for the values of a column has: a power of two."""
    most = np.nanmax(column, initial=0.0)
    return int(min(max(2 ** np.ceil(np.log2(most + 2)), _FEWEST), _MOST))


def _wide_law(values: np.ndarray, counts: np.ndarray, cells: int) -> np.ndarray:
    """The shares of the cells under a negative binomial with the moments of a column, or else geometric."""
    total = max(counts.sum(), 1e-300)
    mean = max(values @ counts / total, 1e-3)
    variance = (values - mean) ** 2 @ counts / total
    shape = mean**2 / (variance - mean) if variance > mean else 1.0
    below = stats.nbinom(shape, shape / (shape + mean)).cdf(np.arange(cells - 1))
    return np.maximum(np.diff(below, prepend=0.0, append=1.0), 1e-12)


def smooth_shares(column: np.ndarray, weight: np.ndarray, cells: int) -> tuple[np.ndarray, float]:
    """The shares of the cells of a column, and the ratio of its tail.

    A count tells of its neighbours, too, and a part of the shares is that of a negative binomial with the
    moments of the column, of one row at least: how much of both is what foretells each row best by the
    others.

    >>> shares, ratio = smooth_shares(np.array([1.0, 1.0, 2.0, 4.0]), np.ones(4), 8)
    >>> bool((shares > 0).all()), round(float(shares.sum()), 6), ratio
    (True, 1.0, 0.5)
    """
    values, counts = _tally(column, weight)
    last, total = cells - 1, counts.sum()
    far = values >= last
    beyond = (counts[far] @ (values[far] - last) + 1) / (counts[far].sum() + 1)
    tally = np.bincount(np.minimum(values, last).astype(int), counts, cells)
    wide = _wide_law(values, counts, cells)
    gap = np.abs(np.arange(cells)[:, None] - np.arange(cells))
    best, found = -np.inf, wide
    for share in _NEIGHBOURS:
        kernel = share**gap
        kernel /= kernel.sum(axis=1, keepdims=True)
        own = tally @ kernel
        left = own - np.minimum(tally, 1.0) * np.diag(kernel)
        for part in _WIDE:
            imagined = max(part * total, 1.0)
            others = (left + imagined * wide) / (max(total - 1, 0.0) + imagined)
            score = tally @ np.log(np.maximum(others, 1e-300))
            if score > best:
                best, found = score, own + imagined * wide
    return found / found.sum(), float(beyond / (1 + beyond))


def imagined_rows(column: np.ndarray, weight: np.ndarray, shares: np.ndarray, members: int) -> float:
    """How many rows the smooth shares of a column count for in the table of each of several members.

    As many as foretell each row best by the others: the root of the number of rows at least, and of
    several members at most half of what each of them has, so that they may differ.
    """
    values, counts = _tally(column, weight)
    cells = np.minimum(values, len(shares) - 1).astype(int)
    tally = np.bincount(cells, counts, len(shares))
    total = tally.sum()
    least = np.sqrt(total)
    most = 16 * total if members == 1 else max(total / (2 * members), least)
    left, best = tally - np.minimum(tally, 1.0), (-np.inf, least)
    for rows in np.geomspace(least, most, 6):
        foretold = (left + rows * shares) / (max(total - 1, 0.0) + rows)
        best = max(best, (float(tally @ np.log(np.maximum(foretold, 1e-300))), float(rows)))
    return best[1]


def poisson_serves(column: np.ndarray, weight: np.ndarray, groups: np.ndarray | int | None = 1) -> bool:
    """Whether Poissons describe a column as well as shares of its values do, by the criterion of Schwarz.

    Args:
        column: counts, NaN where missing.
        weight: of each row.
        groups: how many Poissons there may be, or the number of the group of each row, one Poisson each;
            None where each row has its own, with rates that are log-normal.
    """
    if groups is None:
        values, counts = _tally(column, weight)
        total = counts.sum()
        gain = counts @ np.log(counts / total) - _log_normal_likelihood(values, counts)
        return bool(gain <= 0.5 * (len(values) - 3) * np.log(max(total, 2.0)) + _STRONG)
    several = isinstance(groups, int)
    parts = (
        [_tally(column, weight)]
        if several
        else [_tally(column[groups == g], weight[groups == g]) for g in np.unique(groups)]
    )
    total, gain, numbers = 0.0, 0.0, 0
    for values, counts in parts:
        if not len(values):
            continue
        total += counts.sum()
        shares = counts / counts.sum()
        gain += counts @ np.log(shares) - _poisson_likelihood(values, counts, groups if several else 1)
        # of each member, one number less than there are values in place of a rate
        numbers += (groups if several else 1) * (len(values) - 2)
    return bool(gain <= 0.5 * numbers * np.log(max(total, 2.0)) + _STRONG)


def _log_normal_likelihood(values: np.ndarray, counts: np.ndarray) -> float:
    """The largest log-likelihood of Poissons whose rates are log-normal, by quadrature."""
    place, weight = np.polynomial.hermite_e.hermegauss(_POINTS)
    log_weight, base = np.log(weight / weight.sum()), gammaln(values + 1)

    def loss(free: np.ndarray) -> float:
        log_rate = free[0] + np.exp(free[1]) * place
        joint = values[:, None] * log_rate - np.exp(log_rate) - base[:, None] + log_weight
        return -float(counts @ logsumexp(joint, axis=1))

    mean = max(values @ counts / counts.sum(), 1e-3)
    # from a narrow and from a wide law
    found = [minimize(loss, [np.log(mean), s], method="Nelder-Mead").fun for s in (-3.0, -0.5)]
    return -min(found)


def _poisson_likelihood(values: np.ndarray, counts: np.ndarray, n: int) -> float:
    """The log-likelihood of so many Poissons, by EM on the values."""
    base = gammaln(values + 1)
    order = np.cumsum(counts) / counts.sum()
    places = np.minimum(np.searchsorted(order, (np.arange(n) + 0.5) / n), len(values) - 1)
    # those that start at one value differ all the same
    rates = np.maximum(values[places], 0.1) * np.linspace(0.9, 1.1, n) if n > 1 else np.ones(1)
    weights, before, likelihood = np.full(n, 1 / n), -np.inf, -np.inf
    for _ in range(_POISSON_STEPS):
        rates = np.maximum(rates, 1e-12)
        with np.errstate(divide="ignore"):
            joint = np.log(weights) + values[:, None] * np.log(rates) - rates - base[:, None]
        top = joint.max(axis=1, keepdims=True)
        mass = np.exp(joint - top)
        likelihood = float(counts @ (top[:, 0] + np.log(mass.sum(axis=1))))
        share = counts[:, None] * mass / mass.sum(axis=1, keepdims=True)
        held = share.sum(axis=0)
        weights = held / held.sum()
        rates = np.where(held > 0, (values @ share) / np.where(held > 0, held, 1), rates)
        if likelihood - before < 1e-6 * counts.sum():
            break
        before = likelihood
    return likelihood
