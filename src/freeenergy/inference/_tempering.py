"""Chains at several temperatures that exchange their places, and annealing towards the least energy."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._core import AbstractFinite, Kind, count_states, enumerate_states, start, state_number
from ..distributions import AbstractDistribution
from ._annealed import geometric_path
from ._diagnostics import chain_mean
from ._gibbs import gibbs_sweep
from ._kernels import AbstractFiniteKernel
from ._methods import AbstractMethod, KernelMaker, standard_base, worth_of
from ._minimise import EnergyFunction
from ._posterior import DrawsPosterior, LogEvidence, PointPosterior
from ._slice import SliceSampler


def _pairs(replicas: int, odd: Array | int) -> Bool[Array, " replicas-1"]:
    """Which neighbours (k, k + 1) may exchange: those from the first, or from the second on."""
    return jnp.arange(replicas - 1) % 2 == odd


def _chances(gap: Float[Array, " replicas"], betas: Float[Array, " replicas"]) -> Float[Array, " pairs"]:
    """min(1, exp((β_k − β_{k+1}) (h_k − h_{k+1}))) for all neighbours, with h = e − e_0."""
    gain = (betas[:-1] - betas[1:]) * (gap[:-1] - gap[1:])
    return jnp.where(jnp.isnan(gain), 0, jnp.exp(jnp.minimum(gain, 0)))


def _order(taken: Bool[Array, " pairs"]) -> Array:
    """Where each replica comes from when the pairs that are `taken` exchange their places."""
    down = jnp.concatenate([taken, jnp.zeros(1, bool)]).astype(int)
    up = jnp.concatenate([jnp.zeros(1, bool), taken]).astype(int)
    return jnp.arange(len(taken) + 1) + down - up


class Exchange(AbstractFiniteKernel):
    """Neighbours of a tuple of replicas, one at each β, exchange their places with Metropolis' probability.

    It leaves  Π_k exp(−(1 − β_k) e_0(z_k) − β_k e(z_k))  unchanged.

    Attributes:
        base, energy: e_0 and e.
        betas: the inverse temperatures.
        odd: whether the pairs are (1, 2), (3, 4), … and not (0, 1), (2, 3), …
    """

    base: EnergyFunction
    energy: EnergyFunction
    betas: Float[Array, " replicas"]
    odd: bool = eqx.field(static=True, default=False)

    def _chances(self, replicas: tuple) -> Array:
        gap = jnp.stack([self.energy(z) - self.base(z) for z in replicas])
        return jnp.where(_pairs(len(replicas), int(self.odd)), _chances(gap, self.betas), 0)

    def __call__(self, z: tuple, *, key: Array) -> tuple:
        chance = self._chances(z)
        taken = jax.random.uniform(key, chance.shape, chance.dtype) < chance
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *z)
        moved = jax.tree.map(lambda a: a[_order(taken)], stacked)
        return tuple(jax.tree.map(lambda a, k=k: a[k], moved) for k in range(len(z)))

    def transition(self, space: tuple) -> Float[Array, "states states"]:
        size, replicas = count_states(space), len(space)
        states = enumerate_states(space)
        chance = jax.vmap(self._chances)(states)
        matrix = jnp.eye(size)
        for k in range(int(self.odd), replicas - 1, 2):
            swapped = (*states[:k], states[k + 1], states[k], *states[k + 2 :])
            number = jax.vmap(lambda *z: state_number(space, z))(*swapped)
            rows = jnp.arange(size)
            single = jnp.diag(1 - chance[:, k]).at[rows, number].add(chance[:, k])
            # pairs have no replica in common, so that the probabilities of one do not hang on the other
            matrix = matrix @ single
        return matrix


def tempered_kernel(space: PyTree) -> KernelMaker:
    """Makes kernels that need no tuning: Gibbs sweeps for finite unknowns, slices for continuous ones."""
    finite = all(isinstance(leaf, AbstractFinite) for leaf in jax.tree.leaves(space))
    return gibbs_sweep if finite else SliceSampler()


class ParallelTempering(AbstractMethod):
    """Chains at inverse temperatures from 0 to 1 that exchange places: they find modes far from each other.

    Replica k has the energy (1 − β_k) e_0 + β_k e; after every step neighbours exchange, even and odd pairs
    in turn.  During the burn-in the β are moved to where all pairs exchange equally often.  The evidence is
    that of stepping stones,

        log Z = Σ_k log E_{β_k}[exp(−(β_{k+1} − β_k) (e − e_0))].

    Attributes:
        kernel: makes the Markov kernel at each β; by default Gibbs sweeps for a finite unknown and slices
            for a continuous one.
        base: the normalised distribution at β = 0, from which draws are independent; by default the
            standard normal of the free coordinates, or all states alike.
        replicas: how many temperatures there are.
        chains, steps, burn_in, thin: as in `MarkovChain`.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> two = lambda z: -jnp.logaddexp(-jnp.sum((z - 4) ** 2) * 4, -jnp.sum((z + 4) ** 2) * 4)
    >>> method = ParallelTempering(steps=500, burn_in=200)
    >>> found = infer(two, Reals((1,)), method, key=jax.random.key(0))
    >>> bool(jnp.abs(found.mean()[0]) < 2)
    True

    References:
        Syed, Bouchard-Côté, Deligiannidis & Doucet (2022), Non-reversible parallel tempering.
    """

    kernel: KernelMaker | None = None
    base: AbstractDistribution | None = None
    replicas: int = eqx.field(static=True, default=8)
    chains: int = eqx.field(static=True, default=4)
    steps: int = eqx.field(static=True, default=1000)
    burn_in: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        if self.replicas < 2:
            raise ValueError(
                "The 'replicas' of ParallelTempering must be an int in the range [2, inf). "
                f"Got {self.replicas} instead."
            )

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        base = standard_base(space) if self.base is None else self.base
        maker = tempered_kernel(space) if self.kernel is None else self.kernel

        def bottom(z: PyTree) -> Array:
            return -base.log_prob(z)

        path = geometric_path(bottom, energy)

        def move(beta: Array, z: PyTree, key: Array) -> PyTree:
            return maker(lambda y: path(beta, y), space)(z, key=key)

        # as a program of its own it is traced once
        @jax.jit
        def step(z: PyTree, betas: Array, odd: Array, key: Array) -> tuple[PyTree, Array, Array]:
            refresh, walk, swap = jax.random.split(key, 3)
            z = jax.vmap(move)(betas, z, jax.random.split(walk, self.replicas))
            # the first replica is of the base: an independent draw of it is the best kernel there is
            fresh = base.sample(key=refresh)
            z = jax.tree.map(lambda a, new: a.at[0].set(new.astype(a.dtype)), z, fresh)
            gap = jax.vmap(lambda y: energy(y) - bottom(y))(z)
            chance = _chances(gap, betas)
            open_ = _pairs(self.replicas, odd)
            taken = open_ & (jax.random.uniform(swap, chance.shape, chance.dtype) < chance)
            order = _order(taken)
            return jax.tree.map(lambda a: a[order], z), gap[order], jnp.where(open_, 1 - chance, 0)

        def settle(z: PyTree, key: Array) -> tuple[PyTree, Array]:
            """Half of the burn-in moves the β twice, the other half does not."""
            zero = jnp.zeros(self.replicas - 1)
            moves = [self.burn_in // 4, self.burn_in // 2]

            def body(i: Array, carry: tuple[PyTree, Array, Array]) -> tuple[PyTree, Array, Array]:
                z, betas, total = carry
                now = (i == moves[0]) | (i == moves[1])
                betas = jnp.where(now, _even(betas, total), betas)
                z, _, refused = step(z, betas, i % 2, jax.random.fold_in(key, i))
                return z, betas, jnp.where(now, 0, total) + refused

            first = jnp.linspace(0, 1, self.replicas) ** 2
            z, betas, _ = jax.lax.fori_loop(0, self.burn_in, body, (z, first, zero))
            return z, betas

        def chain(key: Array) -> tuple[PyTree, Array, Array, Array, Array]:
            begin, warm, run = jax.random.split(key, 3)
            z = jax.vmap(lambda k: base.sample(key=k))(jax.random.split(begin, self.replicas))
            begun = jnp.min(jax.vmap(energy)(z))
            z, betas = settle(z, warm)

            def keep(carry: PyTree, i: Array) -> tuple[PyTree, tuple[PyTree, Array, Array]]:
                def body(j: Array, c: tuple) -> tuple:
                    n = i * self.thin + j
                    z, gap, refused = step(c[0], betas, n % 2, jax.random.fold_in(run, n))
                    return z, gap, c[2] + refused

                nothing = (jnp.zeros(self.replicas), jnp.zeros(self.replicas - 1))
                z, gap, refused = jax.lax.fori_loop(0, self.thin, body, (carry, *nothing))
                return z, (jax.tree.map(lambda a: a[-1], z), gap, refused)

            draws, gap, refused = jax.lax.scan(keep, z, jnp.arange(self.steps))[1]
            times = self.steps * self.thin / 2
            return draws, gap, jnp.sum(refused, axis=0) / times, betas, begun

        draws, gap, refused, betas, begun = jax.vmap(chain)(jax.random.split(key, self.chains))
        told = worth_of(draws, begun) | {
            "exchange": 1 - jnp.max(refused),
            "barrier": jnp.mean(jnp.sum(refused, axis=1)),
        }
        return DrawsPosterior(
            draws,
            None,
            spaces=tuple(jax.tree.leaves(space)),
            log_evidence=_stepping_stones(gap, betas),
            diagnostics=told,
        )


def _even(betas: Float[Array, " replicas"], refused: Float[Array, " pairs"]) -> Float[Array, " replicas"]:
    """The β between which equally many exchanges are refused, from how many were between others."""
    # a pair that always exchanges counts a little, so that the β stay apart
    steps = refused / jnp.maximum(jnp.sum(refused), 1e-12) + 0.05 / len(refused)
    barrier = jnp.concatenate([jnp.zeros(1), jnp.cumsum(steps)])
    wanted = jnp.linspace(0, 1, len(betas)) * barrier[-1]
    return jnp.interp(wanted, barrier, betas).at[0].set(0).at[-1].set(1)


def _stepping_stones(
    gap: Float[Array, "chains steps replicas"], betas: Float[Array, "chains replicas"]
) -> LogEvidence:
    logs = -jnp.diff(betas, axis=1)[:, None] * gap[..., :-1]
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    top = jnp.max(logs, axis=1)
    top = jnp.where(jnp.isfinite(top), top, 0)
    # every chain has its own β, and an estimate of its own
    heights = jnp.moveaxis(jnp.exp(logs - top[:, None]), 1, 2)
    ratio, error = jax.vmap(jax.vmap(lambda u: chain_mean(u[None])))(heights)
    each = jnp.sum(jnp.log(ratio) + top, axis=1)
    variance = jnp.sum((error / ratio) ** 2, axis=1)
    return LogEvidence(jnp.mean(each), jnp.sqrt(jnp.mean(variance) / len(each)), Kind.ESTIMATE)


class SimulatedAnnealing(AbstractMethod):
    """Looks for the least energy by Markov chains of exp(−e/T) whose temperature T falls.

    Waiting long at each temperature the chains are where exp(−e/T) says, and so in the end at the least
    energy; cooled too fast they stay in the basin where they were.  The answer is the best value visited.

    Attributes:
        temperatures: T, in the order of the steps, such as `jnp.geomspace(5.0, 0.01, 1000)`.
        kernel: makes the Markov kernel at each temperature; Gibbs sweeps or slices by default.
        start: where all chains begin; by default each somewhere in the space.
        chains: how many.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> wells = lambda z: jnp.sum((z**2 - 4) ** 2 + 0.5 * z)
    >>> method = SimulatedAnnealing(jnp.geomspace(20.0, 0.01, 200))
    >>> round(float(infer(wells, Reals((1,)), method, key=jax.random.key(0)).point[0]), 1)
    -2.0
    """

    temperatures: Float[Array, " steps"]
    kernel: KernelMaker | None = None
    start: PyTree = None
    chains: int = eqx.field(static=True, default=16)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> PointPosterior:
        maker = tempered_kernel(space) if self.kernel is None else self.kernel

        def chain(key: Array) -> tuple[PyTree, Array, Array]:
            begin, run = jax.random.split(key)
            first = start(space, key=begin) if self.start is None else self.start

            def step(carry: tuple[Any, Any, Array], i: Array) -> tuple[tuple[Any, Any, Array], None]:
                z, best, least = carry
                cold = self.temperatures[i]
                z = maker(lambda y: energy(y) / cold, space)(z, key=jax.random.fold_in(run, i))
                value = energy(z)
                better = value < least
                best = jax.tree.map(lambda a, b: jnp.where(better, a, b), z, best)
                return (z, best, jnp.where(better, value, least)), None

            begun = energy(first)
            steps = jnp.arange(len(self.temperatures))
            (_, best, least), _ = jax.lax.scan(step, (first, first, begun), steps)
            return best, least, begun

        best, least, begun = jax.vmap(chain)(jax.random.split(key, self.chains))
        which = jnp.argmin(least)
        told = {"share_of_best": jnp.mean(least < least[which] + 1e-3), "start_energy": jnp.max(begun)}
        point = jax.tree.map(lambda a: a[which], best)
        return PointPosterior(point, least[which], spaces=tuple(jax.tree.leaves(space)), diagnostics=told)
