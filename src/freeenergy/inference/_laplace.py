"""Laplace's method: the normal law with the curvature of an energy where it is least."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._core import LOG_2PI, Kind, to_free
from ..distributions import Full, Gaussian
from ._importance import importance_estimate
from ._methods import AbstractMethod, from_distribution
from ._minimise import AbstractSearch, EnergyFunction, QuasiNewton, minimise
from ._posterior import DistributionPosterior, LogEvidence
from ._recognition import weighted_draws
from ._walks import FreeTarget, Pushforward


class Laplace(AbstractMethod):
    """The normal law with the curvature of the energy at its least, in free coordinates.

        v⁰ = argmin e(v),   q = N(v⁰, H⁻¹),   H = ∂²e(v⁰),   log Z ≈ −e(v⁰) + ½ d log 2π − ½ log |H|

    It is exact for normal posteriors, and off by about 1/n for n rows that determine the unknown.  How far
    log Z is off is estimated by importance weights of draws of q: `correction` is what they add to it, and
    the standard error of the evidence is its size together with its own error.  A `pareto_k` above 0.7 says
    that the posterior is not like q at all: several modes, heavy tails, a bound of the space.

    Attributes:
        start: where the search begins; by default at zero in free coordinates.
        search: how the least energy is found.
        draws: how many draws answer questions, and check log Z.

    >>> from freeenergy.distributions import Positive
    >>> from freeenergy.inference import infer
    >>> found = infer(lambda z: z - 50 * jnp.log(z), Positive(()), Laplace(), key=jax.random.key(0))
    >>> float(found.log_evidence.nats.round(2)), found.log_evidence.kind.value  # log 50! = 148.48
    (148.48, 'estimate')
    """

    start: PyTree = None
    search: AbstractSearch = QuasiNewton()
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        target = FreeTarget(energy, space)
        begin = jnp.zeros(target.size) if self.start is None else to_free(space, self.start)
        found = minimise(target, begin, self.search)
        values, vectors = jnp.linalg.eigh(jax.hessian(target)(found.point))
        # (where it does not bend upwards there is no such law, and `infer` says so)
        safe = jnp.where(values > 0, values, 1)
        q = Gaussian(found.point, Full((vectors / safe[None]) @ vectors.T))
        nats = -found.energy + 0.5 * (target.size * LOG_2PI - jnp.sum(jnp.log(safe)))
        free, log_weights = weighted_draws(target, q, samples=self.draws, key=key)
        weighed = importance_estimate(log_weights)
        correction = weighed.log_mean - nats
        drawn = jax.vmap(target.value)(free), log_weights
        posterior = from_distribution(Pushforward(q, space), space, Kind.ESTIMATE, drawn)
        told = {
            "converged": found.converged,
            "steps": found.steps,
            "start_energy": target(begin),
            "least_curvature": jnp.min(values, initial=jnp.inf),
            "correction": correction,
        }
        evidence = LogEvidence(nats, jnp.hypot(correction, weighed.stderr), Kind.ESTIMATE)
        return eqx.tree_at(
            lambda p: (p.log_evidence, p.diagnostics), posterior, (evidence, posterior.diagnostics | told)
        )
