"""Answers that stand in an order: thresholds of one linear predictor."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import log_ndtr

from .._core import Categories, parameter
from ..distributions import AbstractDistribution, Gaussian, Logistic
from ..distributions._cells import log_normal_interval
from ..inference import Finite
from ._base import AbstractConditional


def _log_logistic_interval(low: Array, width: Array) -> Array:
    """log of σ(low + width) − σ(low) = σ(low + width) σ(−low) (1 − exp(−width))."""
    return jax.nn.log_sigmoid(low + width) + jax.nn.log_sigmoid(-low) + jnp.log(-jnp.expm1(-width))


_LAWS = {Logistic: (jax.nn.log_sigmoid, _log_logistic_interval), Gaussian: (log_ndtr, log_normal_interval)}


class OrderedModel(AbstractConditional):
    """y = how many thresholds θ_1 < … < θ_{K−1} lie below w·x + ε:  p(y ≤ k | x) = F(θ_{k+1} − w·x).

    Also known as the proportional odds model, or ordered logit (ε logistic), and ordered probit (normal).

    Attributes:
        weight: w.
        thresholds: θ, increasing.
        noise: the family of ε in its standard form, `Logistic` or `Gaussian` of `freeenergy.distributions`.

    >>> model = OrderedModel(jnp.array([1.0]), jnp.array([-1.0, 1.0]))
    >>> [round(float(p), 4) for p in model.posterior(jnp.array([1.0])).probabilities]
    [0.1192, 0.3808, 0.5]
    """

    weight: Array = parameter()
    thresholds: Array = parameter()
    noise: type[AbstractDistribution] = eqx.field(static=True, default=Logistic)

    def energies(self, x: Array) -> Array:
        """−log p(y | x) for every y."""
        log_below, log_interval = _LAWS[self.noise]
        ends = self.thresholds - self.weight @ x
        inner = log_interval(ends[:-1], jnp.diff(self.thresholds))
        return -jnp.concatenate([log_below(ends[:1]), inner, log_below(-ends[-1:])])

    def energy(self, x: Array, y: Array) -> Array:
        """−log p(y | x)."""
        return self.energies(x)[jnp.asarray(y, int)]

    def latent(self, x: Array) -> Categories:
        """y, the place of the answer in the order."""
        return Categories(len(self.thresholds) + 1)

    def log_prob_of(self, y: Array, x: Array) -> Array:
        """log p(y | x)."""
        return -self.energy(x, y)

    def posterior(self, x: Array) -> Finite:
        """p(y | x)."""
        return Finite(jnp.exp(-self.energies(x)))
