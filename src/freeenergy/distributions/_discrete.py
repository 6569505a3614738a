"""Families over counts and labels, stored as whole-numbered floats so that NaN can mean missing."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from .._core import (
    AbstractSpace,
    Binary,
    Categories,
    Counts,
    check_size,
    parameter,
    positive,
    simplex,
    uniform,
    unit_interval,
)
from ._base import AbstractFactorised, AbstractJoint, AbstractRate, check_support

# rows of which the indicators of all labels are held at once
_TOGETHER = 160


def inside_unit(probability: Array) -> Array:
    """`probability` kept off 0 and 1 by a rounding error, so that its logit is finite."""
    eps = jnp.finfo(probability.dtype).eps
    return jnp.clip(probability, eps, 1 - eps)


def inside_simplex(probabilities: Array) -> Array:
    """`probabilities` kept off 0 by a rounding error, so that their logarithms are finite."""
    floored = jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).eps)
    return floored / jnp.sum(floored, axis=-1, keepdims=True)


def _log_odds(probabilities: Array) -> Array:
    """log p_c − log p_C against the last category, without the last entry."""
    logs = jnp.log(inside_simplex(probabilities))
    return logs[..., :-1] - logs[..., -1:]


def _from_log_odds(natural: Array) -> Array:
    last = jnp.zeros((*natural.shape[:-1], 1), natural.dtype)
    return jax.nn.softmax(jnp.concatenate([natural, last], axis=-1), axis=-1)


class Bernoulli(AbstractFactorised):
    """Binary coordinates:  p(x) = Π_d p_d^{x_d} (1−p_d)^{1−x_d}.

    >>> Bernoulli(jnp.array([0.25])).log_prob(jnp.array([1.0])).round(6).item()
    -1.386294
    """

    support: ClassVar[AbstractSpace] = Binary()

    probability: Array = parameter(unit_interval)

    trials: ClassVar[int] = 1

    @classmethod
    def prototype(cls, x: np.ndarray) -> Bernoulli:
        check_support(cls, x)
        return cls(jnp.full(x.shape[1], 0.5))

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        p = inside_unit(self.probability)
        return jnp.log(p) - jnp.log1p(-p)

    def log_partition(self) -> Array:
        return -jnp.log1p(-inside_unit(self.probability))

    def from_natural(self, natural: Array) -> Bernoulli:
        return Bernoulli(jax.nn.sigmoid(natural))

    def from_statistics(self, weight: Array, total: Array) -> Bernoulli:
        return Bernoulli(inside_unit(total / weight))

    def log_base_terms(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def mean(self) -> Array:
        return self.probability

    def sample(self, *, key: Array) -> Array:
        p = self.probability
        return (uniform(key, p.shape, p.dtype) < p).astype(p.dtype)


class Binomial(AbstractFactorised):
    """Successes among `trials`:  p(x) = Π_d C(n_d, x_d) p_d^{x_d} (1−p_d)^{n_d−x_d}.

    Attributes:
        probability: of success, per coordinate.
        trials: the number of trials, one for all coordinates or one each.

    >>> Binomial(jnp.array([0.5]), trials=2).log_prob(jnp.array([1.0])).round(6).item()
    -0.693147
    """

    support: ClassVar[AbstractSpace] = Counts()

    probability: Array = parameter(unit_interval)
    trials: int | tuple[int, ...] = eqx.field(static=True, default=1)

    def _trials(self) -> Array:
        return jnp.asarray(self.trials, self.probability.dtype)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Binomial:
        check_support(cls, x)
        return cls(jnp.full(x.shape[1], 0.5), tuple(int(n) for n in np.maximum(np.nanmax(x, axis=0), 1)))

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        p = inside_unit(self.probability)
        return jnp.log(p) - jnp.log1p(-p)

    def log_partition(self) -> Array:
        return -self._trials() * jnp.log1p(-inside_unit(self.probability))

    def from_natural(self, natural: Array) -> Binomial:
        return Binomial(jax.nn.sigmoid(natural), self.trials)

    def from_statistics(self, weight: Array, total: Array) -> Binomial:
        return Binomial(inside_unit(total / (weight * self._trials())), self.trials)

    def log_base_terms(self, x: Array) -> Array:
        n = self._trials()
        return gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1)

    def mean(self) -> Array:
        return self._trials() * self.probability

    def sample(self, *, key: Array) -> Array:
        n = jnp.broadcast_to(self._trials(), self.probability.shape)
        return jax.random.binomial(key, n, self.probability, dtype=n.dtype)


class Categorical(AbstractFactorised):
    """Labels 0 … C−1 in each coordinate:  p(x) = Π_d p_{d, x_d}.

    The statistics are the indicators of all labels but the last, so that η is unique.

    Attributes:
        probabilities: (dim, C); coordinates with fewer labels have zeros at the end.

    >>> Categorical(jnp.array([[0.2, 0.3, 0.5]])).log_prob(jnp.array([2.0])).round(6).item()
    -0.693147
    """

    support: ClassVar[AbstractSpace] = Categories()

    probabilities: Array = parameter(simplex)

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
        return cls(jnp.full((x.shape[1], max(labels, 2)), 1 / max(labels, 2)))

    def statistics(self, x: Array) -> Array:
        return (x[:, None] == self._labels()[None, :-1]).astype(x.dtype)

    def natural(self) -> Array:
        return _log_odds(self.probabilities)

    def log_partition(self) -> Array:
        return -jnp.log(inside_simplex(self.probabilities)[:, -1])

    def from_natural(self, natural: Array) -> Categorical:
        return Categorical(_from_log_odds(natural))

    def from_statistics(self, weight: Array, total: Array) -> Categorical:
        last = jnp.maximum(weight - jnp.sum(total, axis=-1), 0)
        counts = jnp.concatenate([total, last[:, None]], axis=-1)
        return Categorical(inside_simplex(counts / weight[:, None]))

    def log_base_terms(self, x: Array) -> Array:
        known = jnp.any(x[:, None] == self._labels()[None, :], axis=-1)
        return jnp.where(known, 0.0, -jnp.inf).astype(x.dtype)

    def mean(self) -> Array:
        return self.probabilities @ self._labels()

    def sample(self, *, key: Array) -> Array:
        logits = jnp.log(inside_simplex(self.probabilities))
        return jax.random.categorical(key, logits, axis=-1).astype(self.probabilities.dtype)


class Multinomial(AbstractJoint):
    """Counts of C categories given their total n:  p(x) = n!/Π x_c! Π_c p_c^{x_c}.

    A complete event is judged given its own total, so that texts of different length can share a
    model; `sample` draws `trials`, and missing counts are what is left of `trials`.

    >>> fair = Multinomial(jnp.array([0.5, 0.5]), trials=2)
    >>> fair.log_prob(jnp.array([1.0, 1.0])).round(6).item()
    -0.693147
    """

    support: ClassVar[AbstractSpace] = Counts()

    probabilities: Array = parameter(simplex)
    trials: int = eqx.field(static=True, default=1)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Multinomial:
        check_support(cls, x)
        trials = max(int(np.nansum(x, axis=1).max()), 1)
        return cls(jnp.full(x.shape[1], 1 / x.shape[1]), trials)

    def statistics(self, x: Array) -> Array:
        return x[:-1]

    def event_weight(self, x: Array) -> Array:
        return jnp.sum(x) / self.trials

    def natural(self) -> Array:
        return _log_odds(self.probabilities)

    def log_partition(self) -> Array:
        return -self.trials * jnp.log(inside_simplex(self.probabilities)[-1])

    def from_natural(self, natural: Array) -> Multinomial:
        return Multinomial(_from_log_odds(natural), self.trials)

    def from_statistics(self, weight: Array, total: Array) -> Multinomial:
        share = total / (weight * self.trials)
        last = jnp.maximum(1 - jnp.sum(share), 0)
        return Multinomial(inside_simplex(jnp.concatenate([share, last[None]])), self.trials)

    def _split(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Which are missing, the known counts, what is left over, and the share of each in it."""
        missing = jnp.isnan(x)
        known = jnp.where(missing, 0, x)
        left = jnp.where(jnp.any(missing), self.trials - jnp.sum(known), 0)
        share = jnp.where(missing, inside_simplex(self.probabilities), 0)
        return missing, known, left, share

    def log_base(self, x: Array) -> Array:
        _, known, left, _ = self._split(x)
        total = jnp.sum(known) + left
        return gammaln(total + 1) - jnp.sum(gammaln(known + 1)) - gammaln(left + 1)

    def log_prob(self, x: Array) -> Array:
        missing, known, left, share = self._split(x)
        # the missing categories together are one category, whose count is what is left
        rest = jnp.log(jnp.where(jnp.any(missing), jnp.sum(share), 1))
        logs = jnp.log(inside_simplex(self.probabilities))
        return self.log_base(x) + jnp.vdot(known, logs) + left * rest

    def complete_mean(self, x: Array) -> Array:
        missing, known, left, share = self._split(x)
        return known + left * share / jnp.where(jnp.any(missing), jnp.sum(share), 1)

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


class Poisson(AbstractRate):
    """Counts with mean `rate`:  p(x) = Π_d exp(x_d log λ_d − λ_d) / x_d!

    >>> Poisson(jnp.array([1.0])).log_prob(jnp.array([0.0])).item()
    -1.0
    """

    support: ClassVar[AbstractSpace] = Counts()

    rate: Array = parameter(positive)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Poisson:
        check_support(cls, x)
        return cls(jnp.ones(x.shape[1]))

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
        # counts that are all zero leave a rate whose logarithm is still finite
        return Poisson(jnp.maximum(total / weight, jnp.finfo(total.dtype).eps))

    def log_base_terms(self, x: Array) -> Array:
        return -gammaln(x + 1)

    def mean(self) -> Array:
        return self.rate

    def sample(self, *, key: Array) -> Array:
        return jax.random.poisson(key, self.rate).astype(self.rate.dtype)
