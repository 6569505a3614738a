"""Families over counts and labels, stored as whole-numbered floats so that NaN can mean missing."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma, logsumexp

from .._core import (
    LOG_2PI,
    AbstractSpace,
    Binary,
    Categories,
    Counts,
    array_parameter,
    check_size,
    log_gamma_ratio,
    log_probability,
    on_device,
    positive,
    refuse_outside,
    simplex,
    uniform,
    unit_interval,
)
from ._base import (
    AbstractDistribution,
    AbstractIndependent,
    AbstractJoint,
    AbstractPartial,
    AbstractRate,
    check_support,
    fisher_information,
    levels,
    log_partition_at,
    log_prob_at,
    mean_parameters,
    with_mean,
)

# rows of which the indicators of all labels are held at once
_TOGETHER = 160
# log x! of the first whole numbers
_LOG_FACTORIALS = np.array([math.lgamma(x + 1) for x in range(256)])


@jax.custom_jvp
def log_factorial(x: Array) -> Array:
    """log x! of whole numbers: of those below 256 by a table, much faster than log Γ, else by Stirling.

    >>> log_factorial(jnp.array([0.0, 1.0, 4.0])).round(6).tolist()
    [0.0, 0.0, 3.178054]
    """
    return _log_factorial(x)


@log_factorial.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # the slope of log Γ(x + 1)
    return log_factorial(primals[0]), digamma(primals[0] + 1) * tangents[0]


@jax.custom_batching.custom_vmap
def _log_factorial(x: Array) -> Array:
    size = len(_LOG_FACTORIALS)
    small = x < size
    place = jnp.where(small & (x >= 0), x, 0).astype(jnp.int32)
    known = jnp.asarray(_LOG_FACTORIALS, x.dtype).at[place].get(mode="promise_in_bounds")

    def with_series() -> Array:
        large = jnp.where(small, size, x)
        logs = jnp.log(large)
        # the next term of the series is below 1e-15
        series = large * (logs - 1) + 0.5 * (logs + LOG_2PI) + 1 / (12 * large) - 1 / (360 * large**3)
        return jnp.where(small, known, series)

    # the logarithms of a block of rows take several times as long as the table
    return jax.lax.cond(jnp.all(small), lambda: known, with_series)


@_log_factorial.def_vmap
def _(axis_size: int, batched: list[bool], x: Array) -> tuple[Array, bool]:
    # entry by entry, so that one question is asked of all rows, and not one of each
    return _log_factorial(x), batched[0]


def inside_unit(probability: Array) -> Array:
    """`probability` kept off 0 and 1 by a rounding error, so that its logit is finite."""
    eps = jnp.finfo(probability.dtype).eps
    # not `clip`, which halves the slope at the bounds themselves, where estimates come to lie
    return jnp.where(probability < eps, eps, jnp.where(probability > 1 - eps, 1 - eps, probability))


def inside_simplex(probabilities: Array) -> Array:
    """`probabilities` kept off 0 by a rounding error, so that their logarithms are finite."""
    eps = jnp.finfo(probabilities.dtype).eps
    floored = jnp.where(probabilities < eps, eps, probabilities)
    return floored / jnp.sum(floored, axis=-1, keepdims=True)


def _logit(probability: Array) -> Array:
    return jnp.log(probability) - jnp.log1p(-probability)


def _log_odds(probabilities: Array) -> Array:
    """log p_c − log p_C against the last category, without the last entry."""
    logs = jnp.log(probabilities)
    return logs[..., :-1] - logs[..., -1:]


def _from_log_odds(natural: Array) -> Array:
    last = jnp.zeros((*natural.shape[:-1], 1), natural.dtype)
    return jax.nn.softmax(jnp.concatenate([natural, last], axis=-1), axis=-1)


def _count_times_log(count: Array, probability: Array) -> Array:
    """n log p, which is zero for n = 0 whatever p is, in value and in slope."""
    some = count != 0
    return jnp.where(some, count * log_probability(jnp.where(some, probability, 1)), 0)


def _successes(x: Array, trials: Array, probability: Array) -> Array:
    """x log p + (n − x) log(1 − p), exact at p = 0 and p = 1."""
    failures = trials - x
    some = (failures != 0) & (probability < 1)
    missed = jnp.where(some, failures * jnp.log1p(-jnp.where(some, probability, 0)), 0)
    impossible = (failures != 0) & (probability >= 1)
    return _count_times_log(x, probability) + jnp.where(impossible, -jnp.inf, missed)


def _outside_counts(x: Array, most: Array | float = jnp.inf) -> Array:
    """log h: −∞ where `x` is no whole number from 0 to `most`."""
    return jnp.where((x >= 0) & (x <= most) & (jnp.floor(x) == x), 0.0, -jnp.inf).astype(x.dtype)


def _with_rest(shares: Array) -> Array:
    """The shares of all categories, from those of all but the last."""
    rest = 1 - jnp.sum(shares, axis=-1, keepdims=True)
    # what is left of one after rounding is no share
    return jnp.concatenate([shares, jnp.where(rest > 0, rest, 0)], axis=-1)


class Bernoulli(AbstractIndependent):
    """Binary coordinates:  p(x) = Π_d p_d^{x_d} (1−p_d)^{1−x_d}.

    >>> Bernoulli(jnp.array([0.25])).log_prob(jnp.array([1.0])).round(6).item()
    -1.386294
    """

    support: ClassVar[AbstractSpace] = Binary()

    probability: Array = array_parameter(unit_interval)

    trials: ClassVar[int] = 1

    @classmethod
    def prototype(cls, x: np.ndarray) -> Bernoulli:
        check_support(cls, x)
        return cls(on_device(np.full(x.shape[1], 0.5)))

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        return _logit(self.probability)

    def log_partition(self) -> Array:
        return -jnp.log1p(-self.probability)

    def from_natural(self, natural: Array) -> Bernoulli:
        return Bernoulli(jax.nn.sigmoid(natural))

    def from_statistics(self, weight: Array, total: Array) -> Bernoulli:
        return Bernoulli(total / weight)

    def inside(self) -> Bernoulli:
        return Bernoulli(inside_unit(self.probability))

    def log_base_terms(self, x: Array) -> Array:
        return _outside_counts(x, 1)

    def log_prob_terms(self, x: Array) -> Array:
        return _successes(x, jnp.ones_like(x), self.probability) + self.log_base_terms(x)

    def mean(self) -> Array:
        return self.probability

    def sample(self, *, key: Array) -> Array:
        p = self.probability
        return (uniform(key, p.shape, p.dtype) < p).astype(p.dtype)


class Binomial(AbstractIndependent):
    """Successes among `trials`:  p(x) = Π_d C(n_d, x_d) p_d^{x_d} (1−p_d)^{n_d−x_d}.

    Attributes:
        probability: of success, per coordinate.
        trials: the number of trials, one for all coordinates or one each.

    >>> Binomial(jnp.array([0.5]), trials=2).log_prob(jnp.array([1.0])).round(6).item()
    -0.693147
    """

    support: ClassVar[AbstractSpace] = Counts()

    probability: Array = array_parameter(unit_interval)
    trials: int | tuple[int, ...] = eqx.field(static=True, default=1)

    def _trials(self) -> Array:
        return jnp.asarray(self.trials, self.probability.dtype)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Binomial:
        check_support(cls, x)
        return cls(
            on_device(np.full(x.shape[1], 0.5)), tuple(int(n) for n in np.maximum(np.nanmax(x, axis=0), 1))
        )

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        return _logit(self.probability)

    def log_partition(self) -> Array:
        return -self._trials() * jnp.log1p(-self.probability)

    def from_natural(self, natural: Array) -> Binomial:
        return Binomial(jax.nn.sigmoid(natural), self.trials)

    def from_statistics(self, weight: Array, total: Array) -> Binomial:
        return Binomial(total / (weight * self._trials()), self.trials)

    def inside(self) -> Binomial:
        return Binomial(inside_unit(self.probability), self.trials)

    def log_base_terms(self, x: Array) -> Array:
        n = self._trials()
        return log_factorial(n) - log_factorial(x) - log_factorial(n - x) + _outside_counts(x, n)

    def log_prob_terms(self, x: Array) -> Array:
        n = jnp.broadcast_to(self._trials(), x.shape)
        return _successes(x, n, self.probability) + self.log_base_terms(x)

    def mean(self) -> Array:
        return self._trials() * self.probability

    def sample(self, *, key: Array) -> Array:
        n = jnp.broadcast_to(self._trials(), self.probability.shape)
        return jax.random.binomial(key, n, self.probability, dtype=n.dtype)


class Categorical(AbstractIndependent):
    """Labels 0 … C−1 in each coordinate:  p(x) = Π_d p_{d, x_d}.

    The statistics are the indicators of all labels but the last, so that η is unique.

    Attributes:
        probabilities: (dim, C); coordinates with fewer labels have zeros at the end.

    >>> Categorical(jnp.array([[0.2, 0.3, 0.5]])).log_prob(jnp.array([2.0])).round(6).item()
    -0.693147
    """

    support: ClassVar[AbstractSpace] = Categories()

    probabilities: Array = array_parameter(simplex, ndim=2)

    trials: ClassVar[int] = 1

    def _labels(self) -> Array:
        return jnp.arange(self.probabilities.shape[-1], dtype=self.probabilities.dtype)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Categorical:
        check_support(cls, x)
        labels = int(np.nanmax(x)) + 1
        check_size(
            _TOGETHER * x.shape[1] * float(labels),
            f"Categorical with the label {labels - 1} and {x.shape[1]} columns",
            "Number the labels that occur 0, 1, 2, …",
        )
        return cls(on_device(np.full((x.shape[1], max(labels, 2)), 1 / max(labels, 2))))

    def statistics(self, x: Array) -> Array:
        return (x[:, None] == self._labels()[None, :-1]).astype(x.dtype)

    def natural(self) -> Array:
        return _log_odds(self.probabilities)

    def log_partition(self) -> Array:
        return -jnp.log(self.probabilities[:, -1])

    def from_natural(self, natural: Array) -> Categorical:
        return Categorical(_from_log_odds(natural))

    def from_statistics(self, weight: Array, total: Array) -> Categorical:
        return Categorical(_with_rest(total / weight[:, None]))

    def inside(self) -> Categorical:
        return Categorical(inside_simplex(self.probabilities))

    def log_base_terms(self, x: Array) -> Array:
        known = jnp.any(x[:, None] == self._labels()[None, :], axis=-1)
        return jnp.where(known, 0.0, -jnp.inf).astype(x.dtype)

    def log_prob_terms(self, x: Array) -> Array:
        chosen = x[:, None] == self._labels()[None, :]
        return log_probability(jnp.sum(jnp.where(chosen, self.probabilities, 0), axis=-1))

    def mean(self) -> Array:
        return self.probabilities @ self._labels()

    def sample(self, *, key: Array) -> Array:
        return jax.random.categorical(key, jnp.log(self.probabilities), axis=-1).astype(
            self.probabilities.dtype
        )


class Multinomial(AbstractJoint):
    """Counts of C categories given their total n:  p(x) = n!/Π x_c! Π_c p_c^{x_c}.

    A complete event is judged given its own total, so that texts of different length can share a
    model; `sample` draws `trials`, and missing counts are what is left of `trials`.

    >>> fair = Multinomial(jnp.array([0.5, 0.5]), trials=2)
    >>> fair.log_prob(jnp.array([1.0, 1.0])).round(6).item()
    -0.693147
    """

    support: ClassVar[AbstractSpace] = Counts()

    probabilities: Array = array_parameter(simplex)
    trials: int = eqx.field(static=True, default=1)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Multinomial:
        check_support(cls, x)
        trials = max(int(np.nansum(x, axis=1).max()), 1)
        return cls(on_device(np.full(x.shape[1], 1 / x.shape[1])), trials)

    @property
    def dim(self) -> int:
        return self.probabilities.shape[-1]

    def statistics(self, x: Array) -> Array:
        return x[:-1]

    def event_weight(self, x: Array) -> Array:
        return jnp.sum(x) / self.trials

    def natural(self) -> Array:
        return _log_odds(self.probabilities)

    def log_partition(self) -> Array:
        return -self.trials * jnp.log(self.probabilities[-1])

    def from_natural(self, natural: Array) -> Multinomial:
        return Multinomial(_from_log_odds(natural), self.trials)

    def from_statistics(self, weight: Array, total: Array) -> Multinomial:
        return Multinomial(_with_rest(total / (weight * self.trials)), self.trials)

    def inside(self) -> Multinomial:
        return Multinomial(inside_simplex(self.probabilities), self.trials)

    def _split(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Which are missing, the known counts, what is left over, and the share of each in it."""
        missing = jnp.isnan(x)
        known = jnp.where(missing, 0, x)
        left = jnp.where(jnp.any(missing), self.trials - jnp.sum(known), 0)
        share = jnp.where(missing, self.probabilities, 0)
        return missing, known, left, share

    def log_base(self, x: Array) -> Array:
        _, known, left, _ = self._split(x)
        total = jnp.sum(known) + left
        counts = log_factorial(total) - jnp.sum(log_factorial(known)) - log_factorial(left)
        return counts + jnp.sum(_outside_counts(known)) + _outside_counts(left)

    def log_prob(self, x: Array) -> Array:
        _, known, left, share = self._split(x)
        # the missing categories together are one category, whose count is what is left
        counted = jnp.sum(_count_times_log(known, self.probabilities))
        return self.log_base(x) + counted + _count_times_log(left, jnp.sum(share))

    def complete_mean(self, x: Array) -> Array:
        _, known, left, share = self._split(x)
        whole = jnp.sum(share)
        return known + left * share / jnp.where(whole > 0, whole, 1)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        missing, known, left, share = self._split(x)
        safe = jnp.where(jnp.any(missing), share, self.probabilities)
        draw = jax.random.multinomial(key, left, safe / jnp.sum(safe), dtype=x.dtype)
        return known + jnp.where(missing, draw, 0)

    def expected_statistics(self, x: Array) -> Array:
        return self.statistics(self.complete_mean(x))

    def sample(self, *, key: Array) -> Array:
        n = jnp.asarray(self.trials, self.probabilities.dtype)
        return jax.random.multinomial(key, n, self.probabilities, dtype=n.dtype)


class NegativeBinomial(AbstractDistribution, AbstractPartial):
    """Counts of a Poisson whose rate is itself drawn, λ_d ~ Gamma(a_d, b_d).

        p(x) = Π_d Γ(x + a) / (Γ(a) x!) · (b / (b + 1))ᵃ (1 / (b + 1))ˣ,

    with mean a/b and variance a/b + a/b².

    Attributes:
        shape: a.
        rate: b.

    >>> NegativeBinomial(jnp.array([1.0]), jnp.array([1.0])).log_prob(jnp.array([2.0])).round(6).item()
    -2.079442
    """

    support: ClassVar[AbstractSpace] = Counts()

    shape: Array = array_parameter(positive)
    rate: Array = array_parameter(positive)

    def __check_init__(self) -> None:
        refuse_outside(self)

    @property
    def dim(self) -> int:
        """How many columns an event has."""
        return self.shape.shape[-1]

    def log_prob(self, x: Array) -> Array:
        filled = jnp.where(jnp.isnan(x), 0, x)
        ways = log_gamma_ratio(self.shape, filled) - log_factorial(filled)
        terms = ways - self.shape * jnp.log1p(1 / self.rate) - filled * jnp.log1p(self.rate)
        return jnp.sum(jnp.where(jnp.isnan(x), 0, terms + _outside_counts(filled)))

    def mean(self) -> Array:
        """a / b."""
        return self.shape / self.rate

    def sample(self, *, key: Array) -> Array:
        rate_key, count_key = jax.random.split(key)
        rate = jnp.exp(jax.random.loggamma(rate_key, self.shape)) / self.rate
        return jax.random.poisson(count_key, rate).astype(self.shape.dtype)

    def complete_mean(self, x: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.mean(), x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.sample(key=key), x)


class Poisson(AbstractRate):
    """Counts with mean `rate`:  p(x) = Π_d exp(x_d log λ_d − λ_d) / x_d!

    >>> Poisson(jnp.array([1.0])).log_prob(jnp.array([0.0])).item()
    -1.0
    """

    support: ClassVar[AbstractSpace] = Counts()

    rate: Array = array_parameter(positive)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Poisson:
        check_support(cls, x)
        return cls(on_device(np.ones(x.shape[1])))

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        return jnp.log(self.rate)

    def log_partition(self) -> Array:
        return self.rate

    def from_natural(self, natural: Array) -> Poisson:
        return Poisson(jnp.exp(natural))

    def events_and_exposure(self, weight: Array, total: Array) -> tuple[Array, Array]:
        return total, weight

    def from_statistics(self, weight: Array, total: Array) -> Poisson:
        return Poisson(total / weight)

    def inside(self) -> Poisson:
        # counts that are all zero leave a rate whose logarithm is still finite
        eps = jnp.finfo(self.rate.dtype).eps
        return Poisson(jnp.where(self.rate < eps, eps, self.rate))

    def log_base_terms(self, x: Array) -> Array:
        return _outside_counts(x) - log_factorial(x)

    def log_prob_terms(self, x: Array) -> Array:
        return _count_times_log(x, self.rate) - self.rate + self.log_base_terms(x)

    def mean(self) -> Array:
        return self.rate

    def sample(self, *, key: Array) -> Array:
        return jax.random.poisson(key, self.rate).astype(self.rate.dtype)


@jax.custom_jvp
def _softplus(v: Array) -> Array:
    return jnp.maximum(v, 0) + jnp.log1p(jnp.exp(-jnp.abs(v)))


@_softplus.defjvp
def _(primals, tangents):
    # one exponential; differentiating the value would take two and a division
    (v,), (t,) = primals, tangents
    return _softplus(v), t * jax.nn.sigmoid(v)


def _log_normaliser(natural: Array) -> Array:
    """log(1 + Σ_c exp η_c) along the last axis, where the last category has no entry."""
    last = jnp.zeros((*natural.shape[:-1], 1), natural.dtype)
    return logsumexp(jnp.concatenate([natural, last], axis=-1), axis=-1)


@log_partition_at.register
def _(family: Bernoulli, natural: Array) -> Array:
    return _softplus(natural)


@log_partition_at.register
def _(family: Binomial, natural: Array) -> Array:
    return jnp.asarray(family.trials, natural.dtype) * _softplus(natural)


@log_partition_at.register
def _(family: Categorical, natural: Array) -> Array:
    return _log_normaliser(natural)


@log_partition_at.register
def _(family: Multinomial, natural: Array) -> Array:
    return family.trials * _log_normaliser(natural)


@log_partition_at.register
def _(family: Poisson, natural: Array) -> Array:
    return jnp.exp(natural)


@log_prob_at.register
def _(family: Multinomial, natural: Array, x: Array) -> Array:
    member = family.from_natural(natural)
    missing, known, left, _ = member._split(x)
    logs = jnp.append(natural, jnp.zeros((), natural.dtype)) - _log_normaliser(natural)
    # the missing categories together are one category, whose count is what is left
    some = jnp.any(missing)
    lump = logsumexp(jnp.where(missing | ~some, logs, -jnp.inf))
    return member.log_base(x) + jnp.sum(known * logs) + jnp.where(some, left * lump, 0)


@levels.register
def _(family: Bernoulli) -> tuple[int, ...]:
    return (2,) * family.dim


@levels.register
def _(family: Binomial) -> tuple[int, ...]:
    return tuple(int(n) + 1 for n in np.broadcast_to(family.trials, family.dim))


@levels.register
def _(family: Categorical) -> tuple[int, ...]:
    return (family.probabilities.shape[-1],) * family.dim


@with_mean.register
def _(member: Bernoulli, mean: Array) -> Bernoulli:
    return Bernoulli(mean)


@with_mean.register
def _(member: Binomial, mean: Array) -> Binomial:
    return Binomial(mean / jnp.asarray(member.trials, mean.dtype), member.trials)


@with_mean.register
def _(member: Poisson, mean: Array) -> Poisson:
    return Poisson(mean)


@with_mean.register
def _(member: NegativeBinomial, mean: Array) -> NegativeBinomial:
    return NegativeBinomial(member.shape, member.shape / mean)


@mean_parameters.register
def _(family: Bernoulli) -> Array:
    return family.mean()


@mean_parameters.register
def _(family: Binomial) -> Array:
    return family.mean()


@mean_parameters.register
def _(family: Poisson) -> Array:
    return family.mean()


@mean_parameters.register
def _(family: Categorical) -> Array:
    return family.probabilities[:, :-1]


@mean_parameters.register
def _(family: Multinomial) -> Array:
    return family.trials * family.probabilities[:-1]


@fisher_information.register
def _(family: Bernoulli) -> Array:
    return jnp.diag(family.probability * (1 - family.probability))


@fisher_information.register
def _(family: Binomial) -> Array:
    return jnp.diag(family.mean() * (1 - family.probability))


@fisher_information.register
def _(family: Poisson) -> Array:
    return jnp.diag(family.rate)


@fisher_information.register
def _(family: Categorical) -> Array:
    blocks = jax.vmap(_indicator_covariance)(family.probabilities[:, :-1])
    return jax.scipy.linalg.block_diag(*blocks)


@fisher_information.register
def _(family: Multinomial) -> Array:
    return family.trials * _indicator_covariance(family.probabilities[:-1])


def _indicator_covariance(probabilities: Array) -> Array:
    """Of the indicators of categories, of which one is drawn."""
    return jnp.diag(probabilities) - jnp.outer(probabilities, probabilities)
