"""Coordinate mean field: independent factors of exponential families, each set in turn to its best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._core import Kind
from ..distributions import (
    AbstractDistribution,
    AbstractExponentialFamily,
    AbstractIndependent,
    mean_parameters,
)
from ._methods import AbstractMethod, from_distribution
from ._minimise import EnergyFunction, FixedPoint, minimise
from ._posterior import DistributionPosterior, LogEvidence
from ._recognition import weighted_draws

ExpectedEnergy = Callable[[PyTree], Float[Array, ""]]
"""E_q[e] from the mean statistics of the factors: linear in those of each, and without their log h."""


def _is_factor(leaf: Any) -> bool:
    return isinstance(leaf, AbstractDistribution)


class Factors(AbstractDistribution):
    """Independent unknowns in a tree, each with its own distribution: q(z) = Π_i q_i(z_i).

    Attributes:
        parts: the tree of distributions.

    >>> from freeenergy.distributions import Bernoulli
    >>> pair = Factors((Bernoulli(jnp.array([0.5])), Bernoulli(jnp.array([0.25]))))
    >>> pair.log_prob((jnp.array([1.0]), jnp.array([1.0]))).round(6).item()
    -2.079442
    """

    parts: PyTree

    def _leaves(self) -> tuple[list[Any], Any]:
        return jax.tree.flatten(self.parts, is_leaf=_is_factor)

    def log_prob(self, x: PyTree) -> Float[Array, ""]:
        leaves, structure = self._leaves()
        terms = [q.log_prob(z) for q, z in zip(leaves, structure.flatten_up_to(x), strict=True)]
        return jnp.sum(jnp.stack(terms))

    def sample(self, *, key: Array) -> PyTree:
        leaves, structure = self._leaves()
        keys = jax.random.split(key, len(leaves))
        return structure.unflatten([q.sample(key=k) for q, k in zip(leaves, keys, strict=True)])


class _Sweep(eqx.Module):
    """Factors as one vector of natural parameters, and how it is improved."""

    expected: ExpectedEnergy
    families: list[AbstractExponentialFamily]
    structure: Any = eqx.field(static=True)

    @staticmethod
    def of(expected: ExpectedEnergy, factors: PyTree) -> _Sweep:
        leaves, structure = jax.tree.flatten(factors, is_leaf=_is_factor)
        for leaf in leaves:
            if not isinstance(leaf, AbstractExponentialFamily):
                raise TypeError(
                    f"Factors of mean field must be exponential families. Got {leaf!r} instead."
                )
        return _Sweep(expected, leaves, structure)

    def start(self) -> list[Array]:
        return [family.inside().natural() for family in self.families]

    def factors(self, naturals: list[Array]) -> PyTree:
        members = [f.from_natural(eta) for f, eta in zip(self.families, naturals, strict=True)]
        return self.structure.unflatten(members)

    def _means(self, naturals: list[Array]) -> list[Array]:
        return [mean_parameters(f.from_natural(e)) for f, e in zip(self.families, naturals, strict=True)]

    def _energy(self, means: list[Array]) -> Float[Array, ""]:
        return self.expected(self.structure.unflatten(means))

    def free_energy(self, naturals: list[Array]) -> Float[Array, ""]:
        """E_q[e] + Σ_i E_q[log q_i] = expected(μ) + Σ_i η_i·μ_i − A_i(η_i)."""
        means = self._means(naturals)
        total = self._energy(means)
        for family, eta, mu in zip(self.families, naturals, means, strict=True):
            total = total + jnp.sum(eta * mu) - jnp.sum(family.from_natural(eta).log_partition())
        return total

    def __call__(self, naturals: list[Array]) -> list[Array]:
        """η_i ← −∂E_q[e]/∂μ_i, one factor after another."""
        naturals = list(naturals)
        for i, family in enumerate(self.families):
            means = self._means(naturals)

            def best(mu: Array, i: int = i, means: list[Array] = means) -> Array:
                return -jax.grad(lambda m: self._energy([*means[:i], m, *means[i + 1 :]]))(mu)

            if isinstance(family, AbstractIndependent):
                # coordinates are factors of their own, which may depend on each other

                def turn(j: Array, eta: Array, family: Any = family, best: Any = best) -> Array:
                    return eta.at[j].set(best(mean_parameters(family.from_natural(eta)))[j])

                naturals[i] = jax.lax.fori_loop(0, len(naturals[i]), turn, naturals[i])
            else:
                naturals[i] = best(means[i])
        return naturals


def coordinate_sweep(expected: ExpectedEnergy, factors: PyTree) -> tuple[PyTree, Float[Array, ""]]:
    """One round of coordinate mean field, and the free energy after it: it never rises.

        η_i ← −∂E_q[e] / ∂μ_i

    sets each factor to its best given all others, where e is linear in the statistics of each: in models
    that are conditionally conjugate, or have finite units.  Also known as CAVI.

    Args:
        expected: E_q[e] of the tree of mean statistics μ_i = E[T_i(z_i)], in the shape that `statistics` of
            each factor has, without −log h of their base measures.
        factors: a tree of exponential families.  Those with independent coordinates are set one coordinate
            after another, others as a whole.

    >>> from freeenergy.distributions import Bernoulli
    >>> pull = lambda mu: -2.0 * mu[0] @ mu[1] - mu[0].sum()
    >>> start = (Bernoulli(jnp.array([0.5])), Bernoulli(jnp.array([0.5])))
    >>> factors, free = coordinate_sweep(pull, start)
    >>> [round(float(f.probability[0]), 4) for f in factors]  # σ(1 + 2·½), σ(2·0.8808)
    [0.8808, 0.8534]
    """
    sweep = _Sweep.of(expected, factors)
    naturals = sweep(sweep.start())
    return sweep.factors(naturals), sweep.free_energy(naturals)


class CoordinateMeanField(AbstractMethod):
    """Independent factors nearest to the posterior, KL(q ‖ p), by coordinate updates in closed form (CAVI).

    Sweeps of `coordinate_sweep` follow each other until nothing moves.  The evidence is the bound at the
    end, without an error; `spread` and `pareto_k` of draws say how far the factors are from the posterior,
    and `mismatch` how many standard errors the bound by draws of the energy is off: large if `expected` is
    not the mean of the energy.

    Attributes:
        factors: a tree of exponential families where the search begins, of the structure of the unknown.
        expected: E_q[e] from their mean statistics, as for `coordinate_sweep`.
        tol: the mean change of a natural parameter that counts as none.
        max_steps: the most sweeps.
        draws: how many draws answer questions.
    """

    factors: PyTree
    expected: ExpectedEnergy
    tol: float = 1e-9
    max_steps: int = eqx.field(static=True, default=1000)
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        sweep = _Sweep.of(self.expected, self.factors)
        flat, tree_of = ravel_pytree(sweep.start())

        def update(vector: Array) -> Array:
            return ravel_pytree(sweep(tree_of(vector)))[0]

        search = FixedPoint(update, self.tol, max_steps=self.max_steps)
        found = minimise(lambda v: sweep.free_energy(tree_of(v)), flat, search)
        q = Factors(sweep.factors(tree_of(found.point)))
        draws, log_weights = weighted_draws(energy, q, samples=self.draws, key=key)
        posterior = from_distribution(q, space, Kind.LOWER, (draws, log_weights))
        assert posterior.log_evidence is not None
        off = jnp.abs(posterior.log_evidence.nats + found.energy)
        # (draws whose weights are all the same have no error but rounding)
        error = posterior.log_evidence.stderr + 1e-12 * (1 + jnp.abs(found.energy))
        told = {
            "converged": found.converged,
            "steps": found.steps,
            "start_energy": sweep.free_energy(sweep.start()),
            "mismatch": off / error,
        }
        evidence = LogEvidence(-found.energy, jnp.zeros_like(found.energy), Kind.LOWER)
        return eqx.tree_at(
            lambda p: (p.log_evidence, p.diagnostics), posterior, (evidence, posterior.diagnostics | told)
        )
