"""Sequential Monte Carlo over a path of energies, with the evidence and its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .._core import AbstractFinite, Kind, from_free, log_mean_exp, to_free
from ..distributions import AbstractDistribution, Reals
from ._annealed import geometric_path
from ._filters import AbstractResampler, Systematic
from ._gibbs import gibbs_sweep
from ._importance import effective_sample_size, importance_estimate
from ._methods import AbstractChecked, KernelMaker, standard_base
from ._minimise import EnergyFunction
from ._posterior import AbstractPosterior, DrawsPosterior, LogEvidence
from ._walks import FreeTarget


class _Swarm(NamedTuple):
    """Particles with their energies at both ends of the path, and how far they are on it."""

    z: PyTree
    base: Float[Array, " particles"]
    target: Float[Array, " particles"]
    beta: Float[Array, ""]
    log_partition: Float[Array, " groups"]
    log_size: Float[Array, ""]
    acceptance: Float[Array, ""]
    count: Array


class SequentialMonteCarlo(AbstractChecked):
    """Particles that are led from a base to the posterior, resampled and moved on the way (SMC).

        e_β = (1 − β) e_0 + β e,      log Z = Σ_k log mean exp(−(β_k − β_{k−1}) (e − e_0)),

    where each next β is the one at which the effective number of particles falls to `effective` of them.
    The particles are in independent groups, of which each estimates Z: the evidence is that of their mean,
    and its error that of their spread.  With a `schedule` that was fixed before, the estimate of Z is
    unbiased, and so its logarithm a lower bound on average.

    Attributes:
        kernel: makes the Markov kernel of each energy on the way; by default Gibbs sweeps for a finite
            unknown, and for a continuous one random walks with the covariance of the particles, whose steps
            are chosen such that 30 % are taken.
        base: where the path begins, a normalised distribution; by default the standard normal of the free
            coordinates, or all states alike.
        particles, groups: how many particles, in how many groups.
        moves: how many steps of the kernel each particle makes at each β.
        effective: the share of effective particles.
        resampler: such as `Systematic()`, `Stratified()`, `Residual()`, `Multinomial()`.
        schedule: inverse temperatures from 0 to 1, in place of chosen ones.
        most: how many temperatures there are at most.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> normal = lambda z: jnp.sum((z - 1) ** 2) / 2
    >>> found = infer(normal, Reals((2,)), SequentialMonteCarlo(), key=jax.random.key(0))
    >>> bool(jnp.abs(found.log_evidence.nats - jnp.log(2 * jnp.pi)) < 4 * found.log_evidence.stderr + 1e-9)
    True

    References:
        Del Moral, Doucet & Jasra (2006), Sequential Monte Carlo samplers.
    """

    kernel: KernelMaker | None = None
    base: AbstractDistribution | None = None
    particles: int = eqx.field(static=True, default=4096)
    groups: int = eqx.field(static=True, default=16)
    moves: int = eqx.field(static=True, default=10)
    effective: float = eqx.field(static=True, default=0.5)
    resampler: AbstractResampler = Systematic()
    schedule: Float[Array, " temperatures"] | None = None
    most: int = eqx.field(static=True, default=500)

    def __check_init__(self) -> None:
        if self.groups < 2 or self.particles % self.groups or self.particles < 2 * self.groups:
            raise ValueError(
                "The 'particles' of SequentialMonteCarlo must be a multiple of two or more 'groups'. "
                f"Got {self.particles} in {self.groups} instead."
            )
        if not 0 < self.effective < 1:
            raise ValueError(
                "The 'effective' share of SequentialMonteCarlo must be in the range (0, 1). "
                f"Got {self.effective} instead."
            )
        if self.schedule is not None and not isinstance(self.schedule, Tracer):
            steps = np.asarray(self.schedule)
            if len(steps) < 2 or steps[0] != 0 or steps[-1] != 1 or (np.diff(steps) <= 0).any():
                raise ValueError(
                    "The 'schedule' of SequentialMonteCarlo must rise from 0 to 1. "
                    f"Got {np.array2string(steps, threshold=6)} instead."
                )

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        leaves = tuple(jax.tree.leaves(space))
        base = standard_base(space) if self.base is None else self.base
        begin, run = jax.random.split(key)
        draws = jax.vmap(lambda k: base.sample(key=k))(jax.random.split(begin, self.particles))
        finite = all(isinstance(leaf, AbstractFinite) for leaf in leaves)
        if self.kernel is None and not finite:
            # over free coordinates, in which a covariance has a meaning
            target = FreeTarget(energy, space)

            def start(v: Array) -> Array:
                z, log_det = from_free(space, v)
                return -base.log_prob(z) - log_det

            free = jax.vmap(lambda z: to_free(space, z))(draws)
            last = self._run(start, target, Reals((target.size,)), free, None, run)
            draws = jax.vmap(target.value)(last.z)
        else:
            kernel = gibbs_sweep if self.kernel is None else self.kernel
            last = self._run(lambda z: -base.log_prob(z), energy, space, draws, kernel, run)
            draws = last.z
        estimate = importance_estimate(last.log_partition)
        kind = Kind.ESTIMATE if self.schedule is None else Kind.LOWER
        return DrawsPosterior(
            draws,
            jnp.repeat(last.log_partition, self.particles // self.groups),
            spaces=leaves,
            groups=self.groups,
            log_evidence=LogEvidence(estimate.log_mean, estimate.stderr, kind),
            diagnostics={
                "effective_groups": estimate.effective_sample_size,
                "temperatures": last.count,
                "acceptance": last.acceptance,
                "reached": last.beta,
                # of the particles that are left, and of those at the beginning where none is possible
                "start_energy": jnp.min(last.target),
            },
        )

    def check(self, posterior: AbstractPosterior) -> None:
        told = posterior.diagnostics
        if not told["reached"] >= 1:
            raise ValueError(
                "The particles must come to the posterior. Got to the inverse temperature "
                f"{float(told['reached']):.3g} in {int(told['temperatures'])} steps: take a base that is "
                "nearer, or raise 'most'."
            )

    def _run(
        self,
        base: EnergyFunction,
        target: EnergyFunction,
        space: PyTree,
        draws: PyTree,
        kernel: KernelMaker | None,
        key: Array,
    ) -> _Swarm:
        path = geometric_path(base, target)
        ends = self._ends(base, target, draws)
        zero = jnp.zeros((), ends[1].dtype)
        first = _Swarm(
            draws, *ends, zero, jnp.zeros(self.groups, zero.dtype), zero, zero, jnp.zeros((), int)
        )

        def onward(swarm: _Swarm) -> _Swarm:
            keys = jax.random.split(jax.random.fold_in(key, swarm.count), 2)
            beta = self._next(swarm)
            gain = (beta - swarm.beta) * self._gap(swarm)
            shape = (self.groups, self.particles // self.groups)
            in_groups = gain.reshape(shape)
            log_partition = swarm.log_partition + log_mean_exp(in_groups, axis=1)
            chosen = jax.vmap(lambda w, k: self.resampler(w, key=k))(
                jax.nn.log_softmax(in_groups, axis=1), jax.random.split(keys[0], self.groups)
            )
            parents = (chosen.astype(int) + shape[1] * jnp.arange(self.groups)[:, None]).reshape(-1)
            weights = jax.nn.softmax(gain)
            new = swarm._replace(
                z=jax.tree.map(lambda a: a[parents], swarm.z),
                base=swarm.base[parents],
                target=swarm.target[parents],
                beta=beta,
                log_partition=log_partition,
                count=swarm.count + 1,
            )
            if kernel is None:
                factor = _root(swarm.z, weights)
                return self._walk(new, base, target, factor, keys[1])
            return self._moved(new, path, base, target, space, kernel, keys[1])

        def proceed(swarm: _Swarm) -> Array:
            # a swarm of which no particle is possible goes nowhere
            return (swarm.beta < 1) & (swarm.count < self.most) & jnp.any(swarm.target < jnp.inf)

        return jax.lax.while_loop(proceed, onward, first)

    def _by_groups(self, function: Callable[..., PyTree], *particles: PyTree) -> PyTree:
        """The function of each particle, one group after another.

        What a group needs on the way stays in the cache; that of all particles would go to memory and back.
        """
        split = (self.groups, self.particles // self.groups)
        parts = jax.tree.map(lambda a: a.reshape(*split, *a.shape[1:]), particles)
        values = jax.lax.map(lambda part: jax.vmap(function)(*part), parts)
        return jax.tree.map(lambda a: a.reshape(self.particles, *a.shape[2:]), values)

    def _ends(self, base: EnergyFunction, target: EnergyFunction, z: PyTree) -> tuple[Array, Array]:
        return self._by_groups(lambda one: (base(one), target(one)), z)

    def _gap(self, swarm: _Swarm) -> Float[Array, " particles"]:
        gap = swarm.base - swarm.target
        # where the posterior has no number it has no mass
        return jnp.where(jnp.isnan(gap), -jnp.inf, gap)

    def _next(self, swarm: _Swarm) -> Float[Array, ""]:
        if self.schedule is not None:
            return self.schedule[jnp.minimum(swarm.count + 1, len(self.schedule) - 1)].astype(
                swarm.beta.dtype
            )
        gap, goal = self._gap(swarm), self.effective * self.particles

        def fits(step: Array) -> Array:
            # an impossible particle has no weight at any step
            logs = jnp.where(jnp.isneginf(gap), -jnp.inf, step * gap)
            return effective_sample_size(logs) >= goal

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = (ends[0] + ends[1]) / 2
            good = fits(middle)
            return jnp.where(good, middle, ends[0]), jnp.where(good, ends[1], middle)

        rest = 1 - swarm.beta
        low, high = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(rest), rest))
        # (where even the least step loses too many, it is taken)
        step = jnp.where(fits(rest), rest, jnp.where(low > 0, low, high))
        return jnp.where(step >= rest, 1, swarm.beta + step)

    def _walk(
        self, swarm: _Swarm, base: EnergyFunction, target: EnergyFunction, factor: Array, key: Array
    ) -> _Swarm:
        size = 2.38 / len(factor) ** 0.5 * jnp.exp(swarm.log_size)

        def move(i: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, ...]:
            z, e0, e1, total = carry
            draw, choose = jax.random.split(jax.random.fold_in(key, i))
            there = z + size * jax.random.normal(draw, z.shape, z.dtype) @ factor.T
            new0, new1 = self._ends(base, target, there)
            gain = (1 - swarm.beta) * (e0 - new0) + swarm.beta * (e1 - new1)
            chance = jnp.where(jnp.isnan(gain), 0, jnp.exp(jnp.minimum(gain, 0)))
            taken = jax.random.uniform(choose, chance.shape, chance.dtype) < chance
            return (
                jnp.where(taken[:, None], there, z),
                jnp.where(taken, new0, e0),
                jnp.where(taken, new1, e1),
                total + jnp.mean(chance),
            )

        begin = (swarm.z, swarm.base, swarm.target, jnp.zeros_like(swarm.beta))
        z, e0, e1, total = jax.lax.fori_loop(0, self.moves, move, begin)
        share = total / max(self.moves, 1)
        # the steps of the next temperature are a little longer where too many were taken
        log_size = swarm.log_size + 1.5 * (share - 0.3)
        return swarm._replace(z=z, base=e0, target=e1, log_size=log_size, acceptance=share)

    def _moved(
        self,
        swarm: _Swarm,
        path: Any,
        base: EnergyFunction,
        target: EnergyFunction,
        space: PyTree,
        maker: KernelMaker,
        key: Array,
    ) -> _Swarm:
        kernel = maker(lambda y: path(swarm.beta, y), space)

        def chain(z: PyTree, key: Array) -> PyTree:
            return jax.lax.fori_loop(
                0, self.moves, lambda i, s: kernel(s, key=jax.random.fold_in(key, i)), z
            )

        z = self._by_groups(chain, swarm.z, jax.random.split(key, self.particles))
        e0, e1 = self._ends(base, target, z)
        return swarm._replace(z=z, base=e0, target=e1, acceptance=jnp.ones_like(swarm.beta))


def _root(z: Float[Array, "particles size"], weights: Array) -> Float[Array, "size size"]:
    """A Cholesky factor of the weighted covariance, with a little added for what does not vary."""
    gap = z - (weights @ z)[None]
    covariance = (weights[:, None] * gap).T @ gap
    little = 1e-9 * jnp.diagonal(covariance) + jnp.finfo(z.dtype).tiny ** 0.5
    return jnp.linalg.cholesky(covariance + jnp.diag(little))
