"""The law of the answer to each of several rows: what a conditional model predicts."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy import special, stats

from ._checks import fraction
from ._regions import highest_density, modes

_STEPS = 80
# of so many rows all draws of what is missing are asked at once
_ROWS_AT_ONCE = 1000
_ROUNDING = 1e-12
# a mixture has as many times the knots of one law
_PARTS = 4


class AbstractLaws(abc.ABC):
    """A law for the answer to each row, on the host, in the units of the data.

    Answers have the shape (rows,), or (rows, outputs) where there are several of each row.  NaN in an
    answer means that it is not known: it is left out of `log_prob`.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """That of the answers."""

    @property
    @abc.abstractmethod
    def discrete(self) -> bool:
        """Whether answers are whole numbers, which have a probability; else they have a density."""

    @abc.abstractmethod
    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y) of each row, of all its outputs together."""

    @abc.abstractmethod
    def log_cdf(self, y: Any) -> np.ndarray:
        """log P(answer ≤ y), each output by itself."""

    @abc.abstractmethod
    def log_sf(self, y: Any) -> np.ndarray:
        """log P(answer > y), each output by itself."""

    @abc.abstractmethod
    def mean(self) -> np.ndarray:
        """The mean of each answer."""

    @abc.abstractmethod
    def variance(self) -> np.ndarray:
        """The variance of each answer."""

    @abc.abstractmethod
    def quantile(self, p: Any) -> np.ndarray:
        """The least value that is not exceeded with probability `p`, of each output by itself.

        `p` is one number, or one for each answer.
        """

    @abc.abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws, (n, *shape)."""

    @abc.abstractmethod
    def take(self, rows: np.ndarray) -> AbstractLaws:
        """The laws of some of the rows."""

    def cdf(self, y: Any) -> np.ndarray:
        """P(answer ≤ y), each output by itself."""
        return np.exp(self.log_cdf(y))

    def std(self) -> np.ndarray:
        """The standard deviation of each answer."""
        return np.sqrt(self.variance())

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The quantiles (1 − level)/2 and (1 + level)/2, between which each answer is with that level."""
        level = fraction("interval", "level", level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def highest_density(self, level: float = 0.9) -> list[list[tuple[float, float]]]:
        """The smallest set of each law that holds its answer with probability `level`, in pieces.

        It is {y : p(y) ≥ c} with c such that its probability is `level`; of counts the pieces are runs of
        whole numbers, of probability `level` at least.

        >>> sides = [Laws(stats.norm(np.full(1, centre), 1.0)) for centre in (-5.0, 5.0)]
        >>> both = MixedLaws(np.log(np.full((2, 1), 0.5)), tuple(sides))
        >>> [[round(end, 3) for end in piece] for piece in both.highest_density(0.9)[0]]
        [[-6.645, -3.355], [3.355, 6.645]]
        """
        return highest_density(self, fraction("highest_density", "level", level))

    def modes(self) -> list[np.ndarray]:
        """The places where the density of each answer has a maximum, the highest first.

        Looked for from quantiles of the law and of its parts, so that none of a mixture is lost.

        >>> sides = [Laws(stats.norm(np.full(1, centre), 1.0)) for centre in (-5.0, 5.0)]
        >>> [mode.round(4).tolist() for mode in MixedLaws(np.log([[0.4], [0.6]]), tuple(sides)).modes()]
        [[5.0, -5.0]]
        """
        return modes(self)

    def knots(self, levels: np.ndarray) -> np.ndarray:
        """Values that spread over each law, sorted: quantiles of these levels, of it or of its parts.

        Between them its distribution function is smooth enough to be integrated, and its density to be
        searched.
        """
        return np.stack([self.quantile(p) for p in levels])

    def log_mass(self, low: Any, high: Any) -> np.ndarray:
        """log P(low < answer ≤ high), each output by itself: what rounding leaves of a density.

        >>> law = Laws(stats.norm(np.zeros(1), 1.0))
        >>> law.log_mass(-0.5, 0.5).round(4).tolist(), law.log_mass(40.0, 41.0).round(2).tolist()
        ([-0.9599], [-804.61])
        """
        low, high = np.broadcast_to(low, self.shape), np.broadcast_to(high, self.shape)
        lower = np.stack([self.log_cdf(high), self.log_cdf(low)])
        upper = np.stack([self.log_sf(low), self.log_sf(high)])
        # the smaller tail, whose probabilities do not cancel
        more, less = np.where(lower[0] < upper[0], lower, upper)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = more + np.log1p(-np.exp(less - more))
        return np.where(more == -np.inf, -np.inf, found)


def _summed(logs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sums over outputs of each row, of those that are known."""
    logs = np.where(np.isnan(y), 0.0, logs)
    return logs.reshape(len(logs), -1).sum(axis=1)


def _log_sum(logs: np.ndarray) -> np.ndarray:
    """log Σ exp over the first axis."""
    return np.asarray(special.logsumexp(logs, axis=0))


@dataclasses.dataclass(frozen=True)
class Laws(AbstractLaws):
    """Independent answers, each with a law of SciPy.

    Attributes:
        law: frozen, such as `scipy.stats.norm(mean, scale)`, with parameters of the shape of the answers.

    >>> counts = Laws(stats.poisson(np.array([1.0, 4.0])))
    >>> counts.log_prob([0, 4]).round(4).tolist(), counts.quantile(0.5).tolist(), counts.discrete
    ([-1.0, -1.6329], [1.0, 4.0], True)
    """

    law: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*map(np.shape, (*self.law.args, *self.law.kwds.values())))

    @property
    def discrete(self) -> bool:
        return isinstance(self.law.dist, stats.rv_discrete)

    def log_prob(self, y: Any) -> np.ndarray:
        y = np.asarray(y, float)
        log_prob = self.law.logpmf if self.discrete else self.law.logpdf
        return _summed(log_prob(y), y)

    def log_cdf(self, y: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray(self.law.logcdf(y))

    def log_sf(self, y: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray(self.law.logsf(y))

    def mean(self) -> np.ndarray:
        return np.asarray(self.law.mean())

    def variance(self) -> np.ndarray:
        return np.asarray(self.law.var())

    def quantile(self, p: Any) -> np.ndarray:
        return np.asarray(self.law.ppf(p), float)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.law.rvs(size=(n, *self.shape), random_state=rng), float)

    def take(self, rows: np.ndarray) -> Laws:
        shape = self.shape
        pick = [np.broadcast_to(part, shape)[rows] for part in self.law.args]
        named = {name: np.broadcast_to(part, shape)[rows] for name, part in self.law.kwds.items()}
        return Laws(self.law.dist(*pick, **named))


def distances(y: Any, means: np.ndarray, matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row: how many outputs are known, gapᵀ Σ⁻¹ gap and ½ log |Σ| of these, for matrices Σ.

    >>> [part.tolist() for part in distances([[3.0, np.nan]], np.zeros((1, 2)), np.eye(2)[None])]
    [[1.0], [9.0], [0.0]]
    """
    y = np.broadcast_to(np.asarray(y, float), means.shape)
    number, square, log_root = np.zeros((3, len(y)))
    patterns, which = np.unique(~np.isnan(y), axis=0, return_inverse=True)
    for place, known in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == place)
        if not known.any():
            continue
        root = np.linalg.cholesky(matrices[np.ix_(rows, known, known)])
        gap = (y[rows] - means[rows])[:, known]
        number[rows] = known.sum()
        square[rows] = (np.linalg.solve(root, gap[:, :, None])[:, :, 0] ** 2).sum(axis=1)
        log_root[rows] = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return number, square, log_root


@dataclasses.dataclass(frozen=True)
class NormalLaws(AbstractLaws):
    """Several normal outputs of each row, which depend on each other.

    Attributes:
        means: (rows, outputs).
        covariances: (rows, outputs, outputs).

    >>> both = NormalLaws(np.zeros((1, 2)), np.array([[[1.0, 0.5], [0.5, 1.0]]]))
    >>> both.log_prob([[0.0, 0.0]]).round(4).tolist(), both.log_prob([[0.0, np.nan]]).round(4).tolist()
    ([-1.694], [-0.9189])
    """

    means: np.ndarray
    covariances: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.means.shape

    @property
    def discrete(self) -> bool:
        return False

    @property
    def _alone(self) -> Laws:
        """Each output by itself."""
        return Laws(stats.norm(self.means, self.std()))

    def log_prob(self, y: Any) -> np.ndarray:
        known, square, log_root = distances(y, self.means, self.covariances)
        return -0.5 * square - log_root - 0.5 * known * np.log(2 * np.pi)

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._alone.log_cdf(y)

    def log_sf(self, y: Any) -> np.ndarray:
        return self._alone.log_sf(y)

    def mean(self) -> np.ndarray:
        return self.means

    def variance(self) -> np.ndarray:
        return np.diagonal(self.covariances, axis1=1, axis2=2)

    def quantile(self, p: Any) -> np.ndarray:
        return self._alone.quantile(p)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        root = np.linalg.cholesky(self.covariances)
        return self.means + np.einsum("rij,nrj->nri", root, rng.standard_normal((n, *self.shape)))

    def take(self, rows: np.ndarray) -> NormalLaws:
        return NormalLaws(self.means[rows], self.covariances[rows])


class _HasDistributionFunction(Protocol):
    @property
    def discrete(self) -> bool: ...

    def log_cdf(self, y: Any) -> np.ndarray: ...


def quantile_between(
    laws: _HasDistributionFunction, p: Any, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """The least value of each answer, between `low` and `high`, whose distribution function reaches `p`."""
    with np.errstate(divide="ignore"):
        wanted = np.log(p)
    if laws.discrete:
        # sums of probabilities have rounding
        return _by_halving(laws, wanted - _ROUNDING * (wanted < 0), low - 1, high)
    return _by_interpolation(laws, wanted, low, high)


def _by_halving(
    laws: _HasDistributionFunction, wanted: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    for _ in range(_STEPS):
        middle = np.floor(0.5 * (low + high))
        if not ((low < middle) & (middle < high)).any():
            break
        enough = laws.log_cdf(middle) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _by_interpolation(
    laws: _HasDistributionFunction, wanted: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Chandrupatla's rule: inverse quadratic steps where three points allow one, halvings elsewhere."""

    def gap(at: np.ndarray) -> np.ndarray:
        logs = laws.log_cdf(at)
        with np.errstate(invalid="ignore"):
            return np.where(logs == wanted, 0.0, logs - wanted)

    # `a` is the newest point, `b` the end on the other side of the root, `c` the point before
    a, b = np.asarray(low, float), np.asarray(high, float)
    at_a, at_b = gap(a), gap(b)
    # what is enough by rounding alone at neither end is the upper one
    at_b = np.maximum(at_b, 0.0)
    step = np.full(a.shape, 0.5)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for _ in range(_STEPS):
            near = 2 * np.finfo(float).eps * np.maximum(np.abs(a), np.abs(b))
            open_ = np.abs(b - a) > 2 * near
            if not open_.any():
                break
            least = near / np.abs(b - a)
            new = np.where(open_, a + np.clip(step, least, 1 - least) * (b - a), a)
            at_new = np.where(open_, gap(new), at_a)
            same = np.where(open_, (at_new >= 0) == (at_a >= 0), True)
            c, at_c = np.where(same, a, b), np.where(same, at_a, at_b)
            b, at_b = np.where(same, b, a), np.where(same, at_b, at_a)
            # a second zero is a stretch without mass, of which the least value is asked
            flat = (at_new == 0) & (at_a == 0)
            a, at_a = new, at_new
            place, share = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            smooth = (share**2 < place) & ((1 - share) ** 2 < 1 - place) & ~flat
            quadratic = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            quadratic += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
            # a half of the logarithms, where positive ends are of different sizes
            half = np.where((a > 0) & (b > 0), np.sqrt(a) / (np.sqrt(a) + np.sqrt(b)), 0.5)
            step = np.where(smooth & np.isfinite(quadratic), quadratic, half)
    return np.where(at_a >= 0, a, b)


class AbstractMixedLaws(AbstractLaws):
    """A mixture of laws for each row: of components, or of what a missing input may have been.

    Attributes:
        log_weights: (parts, rows), of sum one for each row.
    """

    log_weights: np.ndarray

    @abc.abstractmethod
    def by_part(self, method: str, *y: Any) -> np.ndarray:
        """What a method of laws says of the same `y` in each part, (parts, …)."""

    def _each(self) -> np.ndarray:
        """The logarithms of the weights, with an axis for each of those of the answers."""
        return self.log_weights.reshape(*self.log_weights.shape, *(1,) * (len(self.shape) - 1))

    def log_prob(self, y: Any) -> np.ndarray:
        return _log_sum(self.by_part("log_prob", y) + self.log_weights)

    def log_cdf(self, y: Any) -> np.ndarray:
        return np.minimum(_log_sum(self.by_part("log_cdf", y) + self._each()), 0.0)

    def log_sf(self, y: Any) -> np.ndarray:
        return np.minimum(_log_sum(self.by_part("log_sf", y) + self._each()), 0.0)

    def _averaged(self, found: np.ndarray) -> np.ndarray:
        """Averages over parts, of those that have weight."""
        weight = np.broadcast_to(np.exp(self._each()), found.shape)
        return np.sum(weight * np.where(weight > 0, found, 0.0), axis=0)

    def mean(self) -> np.ndarray:
        return self._averaged(self.by_part("mean"))

    def variance(self) -> np.ndarray:
        means = self.by_part("mean")
        return self._averaged(self.by_part("variance") + (means - self._averaged(means)[None]) ** 2)

    def quantile(self, p: Any) -> np.ndarray:
        alone = self.by_part("quantile", p)
        # parts without weight say nothing
        there = np.broadcast_to(self._each() > -np.inf, alone.shape)
        low = np.min(alone, axis=0, where=there, initial=np.inf)
        high = np.max(alone, axis=0, where=there, initial=-np.inf)
        return quantile_between(self, p, low, high)

    @abc.abstractmethod
    def _knots_of_parts(self, levels: np.ndarray) -> np.ndarray:
        """The knots of all parts, (knots, *shape)."""

    def knots(self, levels: np.ndarray) -> np.ndarray:
        every = np.sort(self._knots_of_parts(levels), axis=0)
        # of many parts a few of each
        kept = np.linspace(0, len(every) - 1, min(len(every), _PARTS * len(levels))).astype(int)
        return every[kept]

    @abc.abstractmethod
    def _draws_of_parts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(parts, n, *shape)."""

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = rng.gumbel(size=(n, *self.log_weights.shape))
        chosen = np.argmax(noise + self.log_weights, axis=1)
        chosen = chosen.reshape(n, -1, *(1,) * (len(self.shape) - 1))
        return np.take_along_axis(self._draws_of_parts(n, rng), chosen[None], axis=0)[0]


@dataclasses.dataclass(frozen=True)
class MixedLaws(AbstractMixedLaws):
    """A mixture for each row of laws of any kind.

    Attributes:
        log_weights: (parts, rows), of sum one for each row.
        parts: laws of the same rows, one for each part.

    >>> sides = [Laws(stats.norm(np.full(1, centre), 1.0)) for centre in (-3.0, 3.0)]
    >>> both = MixedLaws(np.log(np.full((2, 1), 0.5)), tuple(sides))
    >>> bool(abs(both.quantile(0.5)[0]) < 1e-9), both.quantile(0.95).round(3).tolist()
    (True, [4.282])
    """

    log_weights: np.ndarray
    parts: tuple[AbstractLaws, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def discrete(self) -> bool:
        return self.parts[0].discrete

    def by_part(self, method: str, *y: Any) -> np.ndarray:
        return np.stack([getattr(part, method)(*y) for part in self.parts])

    def _knots_of_parts(self, levels: np.ndarray) -> np.ndarray:
        return np.concatenate([part.knots(levels) for part in self.parts])

    def _draws_of_parts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.stack([part.sample(n, rng) for part in self.parts])

    def take(self, rows: np.ndarray) -> MixedLaws:
        return MixedLaws(self.log_weights[:, rows], tuple(part.take(rows) for part in self.parts))


@dataclasses.dataclass(frozen=True)
class StackedLaws(AbstractMixedLaws):
    """A mixture for each row of laws of one kind, which are asked all at once.

    Attributes:
        log_weights: (parts, rows), of sum one for each row.
        stack: the laws of all rows for the first part, then for the second, and so on.

    >>> stack = Laws(stats.norm(np.array([-1.0, 0.0, 1.0, 0.0]), 1.0))
    >>> both = StackedLaws(np.log(np.full((2, 2), 0.5)), stack)
    >>> [end.round(3).tolist() for end in both.interval(0.5)]
    [[-1.051, -0.674], [1.051, 0.674]]
    """

    log_weights: np.ndarray
    stack: AbstractLaws

    @property
    def shape(self) -> tuple[int, ...]:
        return self.log_weights.shape[1], *self.stack.shape[1:]

    @property
    def discrete(self) -> bool:
        return self.stack.discrete

    def by_part(self, method: str, *y: Any) -> np.ndarray:
        whole = [np.broadcast_to(np.asarray(one, float), self.shape) for one in y]
        tiled = [np.tile(one, (len(self.log_weights), *(1,) * (one.ndim - 1))) for one in whole]
        found = getattr(self.stack, method)(*tiled)
        return found.reshape(*self.log_weights.shape, *found.shape[1:])

    def _knots_of_parts(self, levels: np.ndarray) -> np.ndarray:
        found = self.stack.knots(levels)
        return found.reshape(-1, *self.shape)

    def _draws_of_parts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        found = self.stack.sample(n, rng)
        return np.moveaxis(found.reshape(n, -1, *self.shape), 1, 0)

    def take(self, rows: np.ndarray) -> StackedLaws:
        places = np.arange(self.log_weights.size).reshape(self.log_weights.shape)[:, rows]
        return StackedLaws(self.log_weights[:, rows], self.stack.take(places.ravel()))


def averaged(of: Callable[[np.ndarray], AbstractLaws], draws: np.ndarray) -> AbstractMixedLaws:
    """The laws of rows whose entries were drawn, (draws, rows, columns), each draw weighing the same."""
    weights = np.full(draws.shape[:2], -np.log(len(draws)))
    if draws.shape[1] > _ROWS_AT_ONCE:
        return MixedLaws(weights, tuple(map(of, draws)))
    return StackedLaws(weights, of(draws.reshape(-1, draws.shape[2])))


@dataclasses.dataclass(frozen=True)
class JoinedLaws(AbstractLaws):
    """Laws of different kinds for different rows.

    Attributes:
        places: for each part the rows that it is about.
        parts: the laws.

    >>> some = Laws(stats.norm(np.zeros(1), 1.0)), Laws(stats.t(3, np.ones(1)))
    >>> JoinedLaws((np.array([1]), np.array([0])), some).mean().tolist()
    [1.0, 0.0]
    """

    places: tuple[np.ndarray, ...]
    parts: tuple[AbstractLaws, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return sum(map(len, self.places)), *self.parts[0].shape[1:]

    @property
    def discrete(self) -> bool:
        return self.parts[0].discrete

    def _joined(self, found: list[np.ndarray], axis: int = 0) -> np.ndarray:
        whole = np.concatenate(found, axis=axis)
        return np.take(whole, np.argsort(np.concatenate(self.places)), axis=axis)

    def _asked(self, y: Any, method: str) -> np.ndarray:
        y = np.broadcast_to(np.asarray(y, float), self.shape)
        pairs = zip(self.places, self.parts, strict=True)
        return self._joined([getattr(part, method)(y[rows]) for rows, part in pairs])

    def log_prob(self, y: Any) -> np.ndarray:
        return self._asked(y, "log_prob")

    def log_cdf(self, y: Any) -> np.ndarray:
        return self._asked(y, "log_cdf")

    def log_sf(self, y: Any) -> np.ndarray:
        return self._asked(y, "log_sf")

    def mean(self) -> np.ndarray:
        return self._joined([part.mean() for part in self.parts])

    def variance(self) -> np.ndarray:
        return self._joined([part.variance() for part in self.parts])

    def quantile(self, p: Any) -> np.ndarray:
        return self._asked(p, "quantile")

    def knots(self, levels: np.ndarray) -> np.ndarray:
        found = [part.knots(levels) for part in self.parts]
        size = max(map(len, found))
        # repeated, where another law has more of them
        same = [part[np.linspace(0, len(part) - 1, size).astype(int)] for part in found]
        return self._joined(same, axis=1)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._joined([part.sample(n, rng) for part in self.parts], axis=1)

    def take(self, rows: np.ndarray) -> JoinedLaws:
        # the part of each row, and the row of that part
        part_of, inside = np.empty((2, self.shape[0]), int)
        for number, own in enumerate(self.places):
            part_of[own], inside[own] = number, np.arange(len(own))
        part_of, inside = part_of[rows], inside[rows]
        places = [np.flatnonzero(part_of == number) for number in range(len(self.parts))]
        there = [number for number, own in enumerate(places) if len(own)]
        return JoinedLaws(
            tuple(places[number] for number in there),
            tuple(self.parts[number].take(inside[places[number]]) for number in there),
        )
