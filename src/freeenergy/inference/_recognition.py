"""Recognition: how q(z | x) is had, and the free energy it gives.

    F(q, θ; x) = E_q[e(x, z; θ)] − H[q] = −log p(x; θ) + KL(q ‖ p(z | x; θ))

for a model with e(x, z) = −log p(x, z).  Recognitions ask of the model only what they need:
`posterior(x)` for `Exact`, `energy(x, z)` for the others.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.scipy.linalg import solve_triangular

from .._core import categorical_entropy, log_mean_exp, log_probability
from ..distributions import AbstractDistribution, Diagonal, Gaussian, entropy
from ._expectation import AbstractExpectation, Pathwise


class PointMass(AbstractDistribution):
    """All mass on `value`: the limit of ever narrower distributions, with their −∞ entropy left out."""

    value: Array

    def log_prob(self, x: Array) -> Array:
        return jnp.where(jnp.all(x == self.value), 0.0, -jnp.inf)

    def sample(self, *, key: Array) -> Array:
        return self.value


class Finite(AbstractDistribution):
    """A distribution over the numbers 0 … n−1, with the probabilities as they are.

    >>> Finite(jnp.array([0.25, 0.75])).log_prob(jnp.array(1)).round(4).item()
    -0.2877
    """

    probabilities: Array

    def log_prob(self, x: Array) -> Array:
        return log_probability(self.probabilities[jnp.asarray(x, int)])

    def sample(self, *, key: Array) -> Array:
        return jax.random.categorical(key, jnp.log(self.probabilities))


@entropy.register
def _(q: PointMass) -> Array:
    return jnp.zeros(())


@entropy.register
def _(q: Finite) -> Array:
    return categorical_entropy(q.probabilities)


class AbstractRecognition(eqx.Module):
    """Gives q(z | x) for an observation, and says how to average over it."""

    expectation: eqx.AbstractVar[AbstractExpectation]

    @abc.abstractmethod
    def __call__(self, model: Any, x: Any) -> AbstractDistribution:
        """q(z | x)."""


class Exact(AbstractRecognition):
    """q = p(z | x; θ), the model's own posterior: the free energy is −log p(x)."""

    expectation: AbstractExpectation

    def __call__(self, model: Any, x: Any) -> AbstractDistribution:
        return model.posterior(x)


class Point(AbstractRecognition):
    """q = all mass on the z of least energy, found by `search(energy)`."""

    search: Callable[..., Array]
    expectation: AbstractExpectation = eqx.field(default=Pathwise(), kw_only=True)

    def __call__(self, model: Any, x: Any) -> AbstractDistribution:
        return PointMass(jax.lax.stop_gradient(self.search(lambda z: model.energy(x, z))))


def _balanced_noise(samples: int, dim: int) -> Array:
    """Standard normal draws in opposite pairs whose covariance, given enough of them, is exactly I.

    With the first two moments right, a quadratic energy gives the best mean and scales exactly.
    """
    half = jax.random.normal(jax.random.key(0), (samples // 2, dim))
    if samples // 2 < dim:
        half = half / jnp.sqrt(jnp.mean(half**2, axis=0))[None]
    else:
        factor = jnp.linalg.cholesky(half.T @ half / len(half))
        half = solve_triangular(factor, half.T, lower=True).T
    return jnp.concatenate([half, -half])


class LocalGaussian(AbstractRecognition):
    """q = a Gaussian with independent coordinates, fitted to each observation on its own.

    The free energy is lowered by `steps` of Adam over mean and log-scale, with the same `samples`
    standard normal draws throughout, starting from the standard normal.
    """

    dim: int = eqx.field(static=True)
    steps: int = eqx.field(static=True, default=300)
    samples: int = eqx.field(static=True, default=32)
    learning_rate: float = eqx.field(static=True, default=0.05)
    expectation: AbstractExpectation = eqx.field(default=Pathwise(32), kw_only=True)

    def __call__(self, model: Any, x: Any) -> AbstractDistribution:
        noise = _balanced_noise(self.samples, self.dim)
        schedule = optax.cosine_decay_schedule(self.learning_rate, self.steps)
        optimiser = optax.adam(schedule)

        def objective(free: tuple[Array, Array]) -> Array:
            mean, log_scale = free
            draws = mean[None] + jnp.exp(log_scale)[None] * noise
            return jnp.mean(jax.vmap(lambda z: model.energy(x, z))(draws)) - jnp.sum(log_scale)

        def step(carry: Any, _: None) -> tuple[Any, None]:
            free, state = carry
            gradient = jax.grad(objective)(free)
            # Optax mixes types, which a caller may have forbidden
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimiser.update(gradient, state)
            return (optax.apply_updates(free, updates), state), None

        start = (jnp.zeros(self.dim), jnp.zeros(self.dim))
        (free, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), None, length=self.steps)
        mean, log_scale = jax.lax.stop_gradient(free)
        return Gaussian(mean, Diagonal(jnp.exp(2 * log_scale)))


class Amortised(AbstractRecognition):
    """q = what a network makes of x: `network(x)` is a distribution over z."""

    network: Callable[[Any], AbstractDistribution]
    expectation: AbstractExpectation = eqx.field(default=Pathwise(), kw_only=True)

    def __call__(self, model: Any, x: Any) -> AbstractDistribution:
        return self.network(x)


def free_energy(model: Any, recognition: AbstractRecognition, x: Array, *, key: Array) -> Array:
    """F = E_q[e(x, z)] − H[q] ≥ −log p(x), for one observation.

    The one objective of the library: EM, the VAE and every other bound lower it, and differ in the
    recognition that gives q.
    """
    q = recognition(model, x)
    return recognition.expectation(lambda z: model.energy(x, z), q, key=key) - entropy(q)


def importance_weighted_bound(
    model: Any, recognition: AbstractRecognition, x: Any, *, samples: int, key: Array
) -> Array:
    """log (1/S) Σ_s p(x, z_s) / q(z_s) ≤ log p(x) in expectation; grows with the samples S."""
    return log_mean_exp(importance_log_weights(model, recognition, x, samples=samples, key=key))


def importance_log_weights(
    model: Any, recognition: AbstractRecognition, x: Any, *, samples: int, key: Array
) -> Array:
    """log p(x, z_s) − log q(z_s) for `samples` draws from q(z | x)."""
    return importance_draws(model, recognition, x, samples=samples, key=key)[1]


def importance_draws(
    model: Any, recognition: AbstractRecognition, x: Any, *, samples: int, key: Array
) -> tuple[Array, Array]:
    """Draws z_s from q(z | x), and the logs of the weights p(x, z_s) / q(z_s) that make them posterior."""
    q = recognition(model, x)

    def draw(k: Array) -> tuple[Array, Array]:
        z = q.sample(key=k)
        energy = model.energy(x, z)
        # an impossible event has no weight, also where q is too small for a number
        return z, jnp.where(jnp.isposinf(energy), -jnp.inf, -energy - q.log_prob(z))

    return jax.vmap(draw)(jax.random.split(key, samples))


def importance_resample(
    model: Any, recognition: AbstractRecognition, x: Any, *, samples: int, key: Array
) -> Array:
    """A draw from about p(z | x): one of `samples` draws from q(z | x), chosen by its weight."""
    propose, choose = jax.random.split(key)
    draws, log_weights = importance_draws(model, recognition, x, samples=samples, key=propose)
    return draws[jax.random.categorical(choose, log_weights)]
