"""Recognition: how q(z | x) is had, and the free energy it gives.

    F(q, θ; x) = E_q[e(x, z; θ)] − H[q] = −log p(x; θ) + KL(q ‖ p(z | x; θ))

for e(x, z) = −log p(x, z).  −F is also known as the evidence lower bound (ELBO).  Nothing here knows a
model: an energy is a function `energy(x, z)`, and a recognition is given e(x, ·) and x.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PyTree

from .._core import Kind, categorical_entropy, log_mean_exp, log_probability
from ..distributions import AbstractDistribution, Diagonal, Gaussian, entropy, has_entropy
from ._expectation import AbstractExpectation, Pathwise
from ._minimise import AbstractSearch, Descent, EnergyFunction, minimise

JointEnergy = Callable[[Any, Any], Float[Array, ""]]
"""`energy(x, z)` = −log p(x, z), up to log Z where that is unknown."""


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

    probabilities: Float[Array, " states"]

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
    """Gives q(z | x) for an observation, and says how to average over it.

    Attributes:
        expectation: how to average over q.
        evidence_kind: in which sense −F stands for log p(x); None if in none.
    """

    expectation: eqx.AbstractVar[AbstractExpectation]
    evidence_kind: ClassVar[Kind | None] = Kind.LOWER

    @abc.abstractmethod
    def __call__(self, energy: EnergyFunction, x: PyTree) -> AbstractDistribution:
        """q(z | x).

        Args:
            energy: e(x, ·), a function of z alone.
            x: the observation.
        """


class Exact(AbstractRecognition):
    """q = p(z | x; θ), which a model knows: the free energy is −log p(x).

    Attributes:
        posterior: `posterior(x)` is the distribution of z, such as `model.posterior`.
        expectation: how to average over it.
    """

    posterior: Callable[[Any], AbstractDistribution]
    expectation: AbstractExpectation = eqx.field(default=Pathwise(), kw_only=True)
    evidence_kind: ClassVar[Kind | None] = Kind.EXACT

    def __call__(self, energy: EnergyFunction, x: PyTree) -> AbstractDistribution:
        return self.posterior(x)


class Point(AbstractRecognition):
    """q = all mass on the z of least energy (MAP): `minimise(energy, start, search)`."""

    start: PyTree
    search: AbstractSearch
    expectation: AbstractExpectation = eqx.field(default=Pathwise(), kw_only=True)
    # the entropy of a point is left out, and with it the bound
    evidence_kind: ClassVar[Kind | None] = None

    def __call__(self, energy: EnergyFunction, x: PyTree) -> AbstractDistribution:
        return PointMass(jax.lax.stop_gradient(minimise(energy, self.start, self.search).point))


def balanced_noise(samples: int, dim: int, *, key: Array) -> Float[Array, "samples dim"]:
    """Standard normal draws in opposite pairs whose covariance, given enough of them, is exactly I.

    With the first two moments right, a quadratic energy gives the best mean and scales exactly.
    """
    half = jax.random.normal(key, (samples // 2, dim))
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

    def __call__(self, energy: EnergyFunction, x: PyTree) -> AbstractDistribution:
        noise = balanced_noise(self.samples, self.dim, key=jax.random.key(0))
        optimiser = optax.adam(optax.cosine_decay_schedule(self.learning_rate, self.steps))

        def objective(free: tuple[Array, Array]) -> Array:
            mean, log_scale = free
            draws = mean[None] + jnp.exp(log_scale)[None] * noise
            return jnp.mean(jax.vmap(energy)(draws)) - jnp.sum(log_scale)

        start = (jnp.zeros(self.dim), jnp.zeros(self.dim))
        found = minimise(objective, start, Descent(optimiser, max_steps=self.steps))
        mean, log_scale = jax.lax.stop_gradient(found.point)
        return Gaussian(mean, Diagonal(jnp.exp(2 * log_scale)))


class Amortised(AbstractRecognition):
    """q = what a network makes of x: `network(x)` is a distribution over z."""

    network: Callable[[Any], AbstractDistribution]
    expectation: AbstractExpectation = eqx.field(default=Pathwise(), kw_only=True)

    def __call__(self, energy: EnergyFunction, x: PyTree) -> AbstractDistribution:
        return self.network(x)


def free_energy(
    energy: JointEnergy, recognition: AbstractRecognition, x: PyTree, *, key: Array
) -> Float[Array, ""]:
    """F = E_q[e(x, z)] − H[q] ≥ −log p(x), for one observation; −F is the evidence lower bound (ELBO).

    The one objective of the library: EM, the VAE and every other bound lower it, and differ in the
    recognition that gives q.

    Args:
        energy: e(x, z), such as `model.energy`.
        recognition: gives q(z | x), and says how to average over it.
        x: the observation.
        key: seeds the average.

    >>> from freeenergy.inference import Enumeration
    >>> halves = Amortised(lambda x: Finite(jnp.array([0.5, 0.5])), expectation=Enumeration(jnp.arange(2)))
    >>> energy = lambda x, z: jnp.where(z == 1, x, 0.0)
    >>> bound = free_energy(energy, halves, jnp.array(2.0), key=jax.random.key(0))
    >>> round(float(bound), 6)  # 1 − log 2, where −log (1 + e⁻²) is −0.126928
    0.306853
    """
    given = partial(energy, x)
    q = recognition(given, x)
    if not has_entropy(q):
        # −log q is averaged with the energy, by the same draws
        return recognition.expectation(lambda z: given(z) + q.log_prob(z), q, key=key)
    return recognition.expectation(given, q, key=key) - entropy(q)


def importance_weighted_bound(
    energy: JointEnergy, recognition: AbstractRecognition, x: PyTree, *, samples: int, key: Array
) -> Float[Array, ""]:
    """log (1/S) Σ_s p(x, z_s) / q(z_s) ≤ log p(x) in expectation; grows with the samples S (IWAE)."""
    return log_mean_exp(importance_log_weights(energy, recognition, x, samples=samples, key=key))


def importance_log_weights(
    energy: JointEnergy, recognition: AbstractRecognition, x: PyTree, *, samples: int, key: Array
) -> Float[Array, " samples"]:
    """log p(x, z_s) − log q(z_s) for `samples` draws from q(z | x)."""
    return importance_draws(energy, recognition, x, samples=samples, key=key)[1]


def importance_draws(
    energy: JointEnergy, recognition: AbstractRecognition, x: PyTree, *, samples: int, key: Array
) -> tuple[PyTree, Float[Array, " samples"]]:
    """Draws z_s from q(z | x), and the logs of the weights p(x, z_s) / q(z_s) that make them posterior."""
    given = partial(energy, x)
    return weighted_draws(given, recognition(given, x), samples=samples, key=key)


def weighted_draws(
    energy: EnergyFunction, q: AbstractDistribution, *, samples: int, key: Array
) -> tuple[PyTree, Float[Array, " samples"]]:
    """Draws z_s from q, and the logs −e(z_s) − log q(z_s) of their importance weights."""

    def draw(k: Array) -> tuple[PyTree, Array]:
        z = q.sample(key=k)
        value = energy(z)
        # an impossible event has no weight, also where q is too small for a number
        return z, jnp.where(jnp.isposinf(value), -jnp.inf, -value - q.log_prob(z))

    return jax.vmap(draw)(jax.random.split(key, samples))


def importance_resample(
    energy: JointEnergy, recognition: AbstractRecognition, x: PyTree, *, samples: int, key: Array
) -> PyTree:
    """A draw from about p(z | x): one of `samples` draws from q(z | x), chosen by its weight."""
    propose, choose = jax.random.split(key)
    draws, log_weights = importance_draws(energy, recognition, x, samples=samples, key=propose)
    chosen = jax.random.categorical(choose, log_weights)
    return jax.tree.map(lambda a: a[chosen], draws)
