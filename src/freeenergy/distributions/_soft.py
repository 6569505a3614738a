"""Labels and bits that have become a little soft, so that their draws can be differentiated."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, logit

from .._core import array_parameter, buffer
from ._base import AbstractDistribution
from ._discrete import Bernoulli, Multinomial


class SoftCategorical(AbstractDistribution):
    """One of K labels as a point near a corner of the simplex: also known as Concrete, Gumbel-softmax.

        y = softmax((η + G) / s),   p(y) = (K − 1)! s^{K−1} Π_k α_k y_k^{−s−1} / (Σ_k α_k y_k^{−s})^K

    with α = e^η and G standard Gumbel noise.  The density is with respect to all coordinates but one.  The
    largest entry of y is a draw of softmax(η) whatever s is (Gumbel-max), and y goes to its corner as s
    goes to zero.

    Attributes:
        logits: η.
        softness: s, positive (also known as temperature).

    >>> SoftCategorical(jnp.zeros(2), jnp.array(1.0)).log_prob(jnp.array([0.2, 0.8])).round(6).item()
    0.0
    """

    logits: Array = array_parameter()
    softness: Array = buffer()

    def log_prob(self, x: Array) -> Array:
        size, s = self.logits.shape[-1], self.softness
        terms = self.logits - (s + 1) * jnp.log(x)
        total = jax.nn.logsumexp(self.logits - s * jnp.log(x))
        return gammaln(1.0 * size) + (size - 1) * jnp.log(s) + jnp.sum(terms) - size * total

    def sample(self, *, key: Array) -> Array:
        noise = jax.random.gumbel(key, self.logits.shape, self.logits.dtype)
        return jax.nn.softmax((self.logits + noise) / self.softness)

    def harden(self, x: Array) -> Array:
        """The corner that `x` is nearest to: one at its largest entry."""
        return jax.nn.one_hot(jnp.argmax(x), x.shape[-1], dtype=x.dtype)


class SoftBernoulli(AbstractDistribution):
    """Independent bits as numbers near zero and one: y = σ((η + noise) / s), with logistic noise.

    y > ½ is a draw of a Bernoulli with the log-odds η whatever s is.

    Attributes:
        logits: η, one a bit.
        softness: s, positive.

    >>> SoftBernoulli(jnp.zeros(1), jnp.array(1.0)).log_prob(jnp.array([0.2])).round(6).item()
    0.0
    """

    logits: Array = array_parameter()
    softness: Array = buffer()

    def log_prob(self, x: Array) -> Array:
        s = self.softness
        # in the logistic coordinate, with its slope
        u = s * logit(x) - self.logits
        slope = jnp.log(s) - jnp.log(x) - jnp.log1p(-x)
        return jnp.sum(jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u) + slope)

    def sample(self, *, key: Array) -> Array:
        noise = jax.random.logistic(key, self.logits.shape, self.logits.dtype)
        return jax.nn.sigmoid((self.logits + noise) / self.softness)

    def harden(self, x: Array) -> Array:
        """The bits that `x` is nearest to."""
        return (x > 0.5).astype(x.dtype)


@functools.singledispatch
def soften(q: Any, softness: Array) -> Any:
    """The soft law whose hardened draws are those of `q`: for `Bernoulli`, and `Multinomial` of one trial.

    >>> soften(Bernoulli(jnp.array([0.5])), jnp.array(1.0)).logits.tolist()
    [0.0]
    """
    raise TypeError(
        f"Bernoulli and Multinomial, of one trial, can be softened. Got {type(q).__name__} instead."
    )


@soften.register
def _(q: Bernoulli, softness: Array) -> SoftBernoulli:
    return SoftBernoulli(logit(q.probability), softness)


@soften.register
def _(q: Multinomial, softness: Array) -> SoftCategorical:
    if q.trials != 1:
        raise ValueError(f"A Multinomial can be softened if it has one trial. Got {q.trials} instead.")
    return SoftCategorical(jnp.log(q.probabilities), softness)
