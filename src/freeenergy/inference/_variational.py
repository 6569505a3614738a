"""Variational inference: of a family of distributions the one nearest to the posterior.

The family is that of a first member, whose parameters are moved in their free coordinates: normal laws
with any structure of covariance, and flows.  What *nearest* means is an object too.
"""

from __future__ import annotations

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from .._core import Kind, free_vector, log_mean_exp, to_free
from ..bijections import Affine
from ..distributions import AbstractCovariance, AbstractDistribution, Diagonal, Full, Gaussian, Transformed
from ._expectation import AbstractExpectation, Pathwise
from ._importance import importance_estimate
from ._methods import AbstractMethod, from_distribution
from ._minimise import Descent, EnergyFunction, NoisyDescent, minimise
from ._pathfinder import best_on_path
from ._posterior import DistributionPosterior, LogEvidence
from ._recognition import AbstractRecognition, balanced_noise, weighted_draws
from ._walks import FreeTarget, Pushforward

# with more free coordinates the matrices of the search for a start cost more than it gains
_MOST_ON_PATH = 200


class AbstractDivergence(eqx.Module):
    """How far q is from p ∝ exp(−e): the gradient of that in q, and the bound of log Z to go with it."""

    @abc.abstractmethod
    def __call__(self, energy: EnergyFunction, q: AbstractDistribution, draws: PyTree) -> Float[Array, ""]:
        """A number whose derivative in the parameters of `q` estimates that of the divergence.

        Args:
            energy: e(z).
            q: the distribution.
            draws: of q, differentiable in its parameters, along a first axis.
        """

    @abc.abstractmethod
    def bound(self, log_weights: Float[Array, " draws"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """A lower bound of log Z and its standard error, from the log-weights −e(z) − log q(z) of draws."""


def _frozen(q: Any) -> Any:
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, q)


def _log_weights(energy: EnergyFunction, q: AbstractDistribution, draws: PyTree) -> Float[Array, " draws"]:
    """−e(z) − log q(z), which depends on the parameters of q by the draws alone.

    Without the score, whose mean is zero, there is no noise left where q = p (Roeder et al. 2017: sticking
    the landing).
    """
    frozen = _frozen(q)
    return jax.vmap(lambda z: -energy(z) - frozen.log_prob(z))(draws)


class Exclusive(AbstractDivergence):
    """KL(q ‖ p): q avoids what p makes improbable, and settles on one mode; it is too narrow.

    Also known as the reverse divergence, mode seeking, and as the free energy (less log Z).
    """

    def __call__(self, energy: EnergyFunction, q: AbstractDistribution, draws: PyTree) -> Float[Array, ""]:
        return -jnp.mean(_log_weights(energy, q, draws))

    def bound(self, log_weights: Float[Array, " draws"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.mean(log_weights), jnp.std(log_weights) / len(log_weights) ** 0.5


class Inclusive(AbstractDivergence):
    """KL(p ‖ q): q covers all that p makes probable; of a normal law the moments are those of p.

    Also known as the forward divergence, mass covering, and as moment matching.  Its gradient is
    −E_p[∇ log q], with draws of q weighted as those of p: biased by one over their effective number, so
    that it takes many of them, and q has to cover p from the beginning.  `pareto_k` tells whether it does.
    """

    def __call__(self, energy: EnergyFunction, q: AbstractDistribution, draws: PyTree) -> Float[Array, ""]:
        still = jax.lax.stop_gradient(draws)
        weights = jax.nn.softmax(jax.lax.stop_gradient(_log_weights(energy, q, still)))
        return -jnp.vdot(weights, jax.vmap(q.log_prob)(still))

    def bound(self, log_weights: Float[Array, " draws"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return Exclusive().bound(log_weights)


class Weighted(AbstractDivergence):
    """−E log (1/K) Σ_k p(z_k) / q(z_k): the bound of K importance weights, as tight as q can make it.

    Also known as the importance-weighted autoencoder's bound (IWAE), here with the doubly reparametrised
    gradient (Tucker et al. 2019).  It is at least that of `Exclusive`, which has K = 1, and q is wider.

    Attributes:
        particles: K, which must divide the number of draws.
    """

    particles: int = eqx.field(static=True, default=8)

    def _groups(self, log_weights: Array) -> Float[Array, "groups particles"]:
        if len(log_weights) % self.particles:
            raise ValueError(
                f"The draws of a bound of {self.particles} weights must be a multiple of as many. "
                f"Got {len(log_weights)} instead."
            )
        return log_weights.reshape(-1, self.particles)

    def __call__(self, energy: EnergyFunction, q: AbstractDistribution, draws: PyTree) -> Float[Array, ""]:
        groups = self._groups(_log_weights(energy, q, draws))
        shares = jax.lax.stop_gradient(jax.nn.softmax(groups, axis=1))
        return -jnp.mean(jnp.sum(shares**2 * groups, axis=1))

    def bound(self, log_weights: Float[Array, " draws"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        bounds = log_mean_exp(self._groups(log_weights), axis=1)
        return jnp.mean(bounds), jnp.std(bounds) / len(bounds) ** 0.5


@functools.singledispatch
def even_draws(q: Any, samples: int, *, key: Array) -> PyTree:
    """Draws of q, differentiable in its parameters: of normal laws with the right first two moments."""
    return jax.vmap(lambda k: q.sample(key=k))(jax.random.split(key, samples))


@even_draws.register
def _(q: Gaussian, samples: int, *, key: Array) -> Array:
    noise = balanced_noise(samples, q.covariance.noise_size, key=key).astype(q.mean.dtype)
    return q.mean[None] + jax.vmap(q.covariance.colour)(noise)


@even_draws.register
def _(q: Transformed, samples: int, *, key: Array) -> Array:
    return jax.vmap(lambda z: q.bijection.forward(z)[0])(even_draws(q.base, samples, key=key))


def nearest(
    energy: EnergyFunction,
    first: AbstractDistribution,
    divergence: AbstractDivergence,
    *,
    steps: int,
    samples: int,
    learning_rate: float,
    key: Array,
) -> AbstractDistribution:
    """The member of the family of `first` that is nearest to p ∝ exp(−e), by `steps` of Adam.

    Its parameters move in their free coordinates, each step by new draws, at a rate that falls to zero.
    """
    free = free_vector(first)

    def objective(vector: Array, key: Array) -> Array:
        q = free.restore(vector)[0]
        return divergence(energy, q, even_draws(q, samples, key=key))

    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    found = minimise(objective, free.values, NoisyDescent(optimiser, key, max_steps=steps))
    return free.restore(jax.lax.stop_gradient(found.point))[0]


class _Rescaled(eqx.Module):
    """An energy over u with v = shift + scale · u."""

    target: FreeTarget
    shift: Array
    scale: Array

    def __call__(self, u: Float[Array, " size"]) -> Float[Array, ""]:
        return self.target(self.shift + self.scale * u) - jnp.sum(jnp.log(self.scale))


def _begin(target: FreeTarget, space: PyTree, start: PyTree, key: Array) -> tuple[Array, Array, Array]:
    """Where to begin, and the place and widths of the best normal law on the way from there to a mode."""
    begin = jnp.zeros(target.size) if start is None else to_free(space, start)
    if target.size > _MOST_ON_PATH:
        return begin, begin, jnp.ones_like(begin)
    q, bound = best_on_path(target, begin, key=key)
    known = jnp.isfinite(bound)
    width = jnp.where(known, jnp.sqrt(q.covariance.variances()), 1)
    return begin, jnp.where(known, q.mean, begin), width


def _posterior(
    target: FreeTarget,
    space: PyTree,
    q: AbstractDistribution,
    divergence: AbstractDivergence,
    begin: Array,
    *,
    draws: int,
    key: Array,
) -> DistributionPosterior:
    free, log_weights = weighted_draws(target, q, samples=draws, key=key)
    drawn = jax.vmap(target.value)(free), log_weights
    found = from_distribution(Pushforward(q, space), space, Kind.LOWER, drawn)
    whole = importance_estimate(log_weights)
    told = {"start_energy": target(begin), "tightened": whole.log_mean}
    evidence = LogEvidence(*divergence.bound(log_weights), Kind.LOWER)
    return eqx.tree_at(
        lambda p: (p.log_evidence, p.diagnostics), found, (evidence, found.diagnostics | told)
    )


class GaussianVariational(AbstractMethod):
    """The normal law nearest to the posterior, in free coordinates (also known as ADVI).

    It begins at the best normal law on the way to a mode (`Pathfinder`), in whose units all is moved.  The
    evidence is a lower bound; `tightened` in the diagnostics is that of all draws as importance weights.  A
    `pareto_k` above 0.7, with draws whose weights differ, says that the law is not to be believed.

    Attributes:
        covariance: its structure: `Diagonal()` for independent coordinates, `Full()`, `LowRank(rank=3)`.
        divergence: `Exclusive()`, `Inclusive()` or `Weighted(particles)`.
        start: where the search begins; by default at zero in free coordinates.
        steps, samples, learning_rate: of Adam: how many steps, draws a step, and how long the first are, in
            standard deviations of where it begins.
        draws: how many draws answer questions.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> precision = jnp.array([[2.0, 0.8], [0.8, 1.0]])
    >>> found = infer(
    ...     lambda z: z @ precision @ z / 2, Reals((2,)), GaussianVariational(), key=jax.random.key(0)
    ... )
    >>> found.q.base.covariance.matrix().round(3).tolist()  # the inverse of the precision
    [[0.735, -0.588], [-0.588, 1.471]]
    """

    covariance: AbstractCovariance = Full()
    divergence: AbstractDivergence = Exclusive()
    start: PyTree = None
    steps: int = eqx.field(static=True, default=500)
    samples: int = eqx.field(static=True, default=32)
    learning_rate: float = eqx.field(static=True, default=0.05)
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        target = FreeTarget(energy, space)
        path, shape, move, draw = jax.random.split(key, 4)
        begin, shift, scale = _begin(target, space, self.start, path)
        if not self.covariance.unit_free:
            scale = jnp.full_like(scale, jnp.exp(jnp.mean(jnp.log(scale))))
        q = nearest(
            _Rescaled(target, shift, scale),
            _about_standard(self.covariance, target.size, key=shape),
            self.divergence,
            steps=self.steps,
            samples=self.samples,
            learning_rate=self.learning_rate,
            key=move,
        )
        assert isinstance(q, Gaussian)
        unit = scale if self.covariance.unit_free else scale[0]
        q = Gaussian(shift + scale * q.mean, q.covariance.scale(unit))
        return _posterior(target, space, q, self.divergence, begin, draws=self.draws, key=draw)


def _about_standard(covariance: AbstractCovariance, size: int, *, key: Array) -> Gaussian:
    """A normal law of this structure near N(0, I), as of a few rows: with a factor of zero none moves."""
    rows = jnp.ones((1, size)) if covariance.separable else jax.random.normal(key, (4 * size + 16, size))

    # one row after another: all products of all rows would be too many
    def add(total: Array, row: Array) -> tuple[Array, None]:
        return total + covariance.second_moments(row), None

    second = jax.lax.scan(add, jnp.zeros_like(covariance.second_moments(rows[0])), rows)[0]
    weight = jnp.full(size, 1.0 * len(rows))
    return Gaussian(jnp.zeros(size), covariance.from_moments(weight, jnp.zeros(size), second))


class MeanField(AbstractMethod):
    """`GaussianVariational` with independent free coordinates.

    Attributes:
        steps, samples, learning_rate, draws: as there.
    """

    steps: int = eqx.field(static=True, default=300)
    samples: int = eqx.field(static=True, default=32)
    learning_rate: float = eqx.field(static=True, default=0.05)
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        method = GaussianVariational(
            Diagonal(),
            steps=self.steps,
            samples=self.samples,
            learning_rate=self.learning_rate,
            draws=self.draws,
        )
        return method(energy, space, key=key)


class FlowVariational(AbstractMethod):
    """The flow nearest to the posterior, in free coordinates: a law of any shape.

    Attributes:
        flow: a first member over as many reals as the unknown has, whose parameters are fitted, such as
            `models.coupling_flow(…)` with `dtype=float`; any law with differentiable draws will do.
        divergence, start, steps, samples, learning_rate, draws: as of `GaussianVariational`.

    >>> from freeenergy.bijections import TriangularAffine
    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> normal = Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))
    >>> flow = Transformed(normal, TriangularAffine(jnp.zeros(2), jnp.eye(2)))
    >>> banana = lambda z: z[0] ** 2 / 2 + (z[1] - z[0] ** 2) ** 2 / 2
    >>> found = infer(banana, Reals((2,)), FlowVariational(flow, steps=100), key=jax.random.key(0))
    >>> bool(found.log_evidence.nats < jnp.log(2 * jnp.pi))
    True
    """

    flow: AbstractDistribution
    divergence: AbstractDivergence = Exclusive()
    start: PyTree = None
    steps: int = eqx.field(static=True, default=1000)
    samples: int = eqx.field(static=True, default=64)
    learning_rate: float = eqx.field(static=True, default=0.01)
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        target = FreeTarget(energy, space)
        path, move, draw = jax.random.split(key, 3)
        begin, shift, scale = _begin(target, space, self.start, path)
        fitted = nearest(
            _Rescaled(target, shift, scale),
            self.flow,
            self.divergence,
            steps=self.steps,
            samples=self.samples,
            learning_rate=self.learning_rate,
            key=move,
        )
        q = Transformed(fitted, Affine(shift, scale))
        return _posterior(target, space, q, self.divergence, begin, draws=self.draws, key=draw)


class Refined(AbstractRecognition):
    """What a recognition says of x, improved for this x by a few steps down its free energy.

    Also known as semi-amortised inference.  The parameters of q move in their free coordinates by `steps`
    of Adam, with the same draws throughout, and stay where they were if those find nothing better.

    Attributes:
        recognition: where q begins, such as that of a VAE.
        steps, samples, learning_rate: of Adam.
        expectation: how to average over q.

    >>> from freeenergy.inference import Amortised
    >>> far = Amortised(lambda x: Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))))
    >>> q = Refined(far, steps=200)(lambda z: 2 * jnp.sum((z - 1) ** 2), None)
    >>> q.mean.round(2).tolist(), q.covariance.variance.round(2).tolist()
    ([1.0], [0.25])
    """

    recognition: AbstractRecognition
    steps: int = eqx.field(static=True, default=20)
    samples: int = eqx.field(static=True, default=32)
    learning_rate: float = eqx.field(static=True, default=0.05)
    expectation: AbstractExpectation = eqx.field(default=Pathwise(32), kw_only=True)

    def __call__(self, energy: EnergyFunction, x: PyTree) -> AbstractDistribution:
        free = free_vector(_frozen(self.recognition(energy, x)))

        def objective(vector: Array) -> Array:
            q = free.restore(vector)[0]
            draws = even_draws(q, self.samples, key=jax.random.key(0))
            return jnp.mean(jax.vmap(lambda z: energy(z) + q.log_prob(z))(draws))

        schedule = optax.cosine_decay_schedule(self.learning_rate, self.steps)
        found = minimise(objective, free.values, Descent(optax.adam(schedule), max_steps=self.steps))
        better = found.energy < objective(free.values)
        return free.restore(jax.lax.stop_gradient(jnp.where(better, found.point, free.values)))[0]
