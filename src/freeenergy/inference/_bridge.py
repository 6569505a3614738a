"""Bridge sampling: the evidence from draws of a posterior and of a Gaussian like it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import Kind, log_mean_exp, to_free
from ..distributions import Full, Gaussian
from ._diagnostics import chain_effective_size
from ._methods import AbstractChecked, AbstractMethod
from ._minimise import EnergyFunction
from ._posterior import AbstractPosterior, DrawsPosterior, LogEvidence
from ._recognition import weighted_draws
from ._walks import FreeTarget


@eqx.filter_jit
def bridge_evidence(
    of_posterior: Float[Array, "chains steps"], of_proposal: Float[Array, " draws"], *, rounds: int = 200
) -> LogEvidence:
    """log Z from the ratios  l = −e(z) − log g(z)  at draws of the posterior and at draws of g.

        Z ← mean_g[e^l / (s₁ e^l + s₂ Z)] / mean_p[1 / (s₁ e^l + s₂ Z)],

    until it does not change (Meng & Wong 1996); s₁ and s₂ are the shares of the effective numbers of draws.
    The error is that of Frühwirth-Schnatter (2004).

    Args:
        of_posterior: at draws of several Markov chains.
        of_proposal: at independent draws of the normalised g.
        rounds: how often the equation is iterated.

    >>> normal = jax.random.normal(jax.random.key(0), (2, 4, 1000))
    >>> found = bridge_evidence(jnp.full((4, 1000), 2.0), jnp.full(4000, 2.0))  # g is the posterior
    >>> round(float(found.nats), 6), round(float(found.stderr), 6)
    (2.0, 0.0)
    """
    flat = of_posterior.reshape(-1)
    moves = jnp.std(flat) > 0
    worth = jnp.where(moves, chain_effective_size(of_posterior), flat.size)
    worth = jnp.minimum(worth, flat.size)
    total = worth + of_proposal.size
    log_first, log_second = jnp.log(worth / total), jnp.log(of_proposal.size / total)

    def below(logs: Array, nats: Array) -> Array:
        return jnp.logaddexp(log_first + logs, log_second + nats)

    def again(_: Array, nats: Array) -> Array:
        top = log_mean_exp(of_proposal - below(of_proposal, nats))
        return top - log_mean_exp(-below(flat, nats))

    nats = jax.lax.fori_loop(0, rounds, again, jnp.median(flat))
    first = jnp.exp(of_proposal - below(of_proposal, nats))
    second = jnp.exp(nats - below(of_posterior, nats))
    slow = jnp.where(jnp.std(second) > 0, second.size / chain_effective_size(second), 1.0)
    error = jnp.var(first) / jnp.mean(first) ** 2 / first.size
    error += slow * jnp.var(second) / jnp.mean(second) ** 2 / second.size
    return LogEvidence(nats, jnp.sqrt(error), Kind.ESTIMATE)


class Bridge(AbstractChecked):
    """Gives the posterior of another sampler the evidence, by bridge sampling.

    Half of the draws of each chain make a Gaussian over the free coordinates; between it and the other
    half the bridge is built.

    Attributes:
        sampler: a method whose posterior is draws of Markov chains over a continuous unknown, such as
            `RandomWalk()` or `MarkovChain(SliceSampler())`.
        draws: how many draws of the Gaussian; as many as of the half by default.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import RandomWalk, infer
    >>> found = infer(lambda z: jnp.sum(z**2) / 2, Reals((2,)), Bridge(RandomWalk()), key=jax.random.key(0))
    >>> bool(jnp.abs(found.log_evidence.nats - jnp.log(2 * jnp.pi)) < 0.05)
    True
    """

    sampler: AbstractMethod
    draws: int | None = eqx.field(static=True, default=None)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        sample, propose = jax.random.split(key)
        found = self.sampler(energy, space, key=sample)
        if not isinstance(found, DrawsPosterior) or found.log_weights is not None:
            raise TypeError(
                "The 'sampler' of Bridge must give draws of Markov chains. "
                f"Got {type(self.sampler).__name__}, which gives {found.nature.value}, instead."
            )
        target = FreeTarget(energy, space)
        free = jax.vmap(jax.vmap(lambda z: to_free(space, z)))(found.draws)
        half = free.shape[1] // 2
        known = free[:, :half].reshape(-1, target.size)
        mean = jnp.mean(known, axis=0)
        gap = known - mean[None]
        spread = gap.T @ gap / len(known)
        spread += jnp.diag(1e-9 * jnp.diagonal(spread) + jnp.finfo(free.dtype).tiny ** 0.5)
        g = Gaussian(mean, Full(spread))
        rest = free[:, half:]
        logs = jax.vmap(jax.vmap(lambda v: -target(v) - g.log_prob(v)))(rest)
        count = rest.shape[0] * rest.shape[1] if self.draws is None else self.draws
        _, own = weighted_draws(target, g, samples=count, key=propose)
        own = jnp.where(jnp.isnan(own), -jnp.inf, own)
        return eqx.tree_at(
            lambda p: p.log_evidence, found, bridge_evidence(logs, own), is_leaf=lambda x: x is None
        )

    def check(self, posterior: AbstractPosterior) -> None:
        if isinstance(self.sampler, AbstractChecked):
            self.sampler.check(posterior)
