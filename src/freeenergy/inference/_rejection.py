"""Independent draws: rejection sampling, and the inversion of a distribution function."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core import AbstractFinite, Kind, boltzmann, enumerate_states
from ..distributions import AbstractDistribution
from ._methods import AbstractChecked
from ._minimise import EnergyFunction
from ._posterior import AbstractPosterior, DrawsPosterior, LogEvidence
from ._walks import FreeTarget


class Rejection(AbstractChecked):
    """Draws of a proposal that are kept with the probability exp(−e(z)) / (k q(z)): exact and independent.

    The share that is kept estimates Z/k, so that  log Z ≈ log k + log share.  A bound that a draw shows to
    be too low is refused.

    Attributes:
        proposal: q.
        log_bound: log k, with exp(−e(z)) ≤ k q(z) everywhere; the smaller, the more is kept.
        draws: how many draws to keep.
        batch: how many proposals are made at a time.
        most: how many proposals are made at most; a share of draws below `draws / most` is refused.

    >>> from freeenergy.distributions import Beta, UnitInterval
    >>> from freeenergy.inference import infer
    >>> flat = Beta(jnp.ones(1), jnp.ones(1))
    >>> height = lambda z: -jnp.log(4 * z[0] * (1 - z[0]))  # at most one
    >>> found = infer(height, UnitInterval((1,)), Rejection(flat, 0.0), key=jax.random.key(0))
    >>> bool(jnp.abs(found.log_evidence.nats - jnp.log(2 / 3)) < 4 * found.log_evidence.stderr)
    True
    """

    proposal: AbstractDistribution
    log_bound: float | Float[Array, ""]
    draws: int = eqx.field(static=True, default=4000)
    batch: int = eqx.field(static=True, default=4096)
    most: int = eqx.field(static=True, default=10_000_000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        def propose(key: Array) -> tuple[PyTree, Array, Array]:
            draw, choose = jax.random.split(key)
            z = self.proposal.sample(key=draw)
            value = energy(z)
            height = jnp.where(jnp.isposinf(value), -jnp.inf, -value - self.proposal.log_prob(z))
            height = height - self.log_bound
            return z, height, -jax.random.exponential(choose, (), height.dtype) < height

        def proceed(carry: tuple[Any, ...]) -> Array:
            _, kept, tried, highest = carry
            return (kept < self.draws) & (tried < self.most) & ~(highest > 1e-9)

        def more(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            held, kept, tried, highest = carry
            keys = jax.random.split(jax.random.fold_in(key, tried), self.batch)
            z, height, taken = jax.vmap(propose)(keys)
            # those beyond the last place, and what is not taken, are written nowhere
            place = jnp.where(taken, kept + jnp.cumsum(taken) - 1, self.draws)
            held = jax.tree.map(lambda h, new: h.at[place].set(new, mode="drop"), held, z)
            top = jnp.max(jnp.where(jnp.isnan(height), jnp.inf, height))
            return held, kept + jnp.sum(taken), tried + self.batch, jnp.maximum(highest, top)

        like = jax.eval_shape(propose, key)
        held = jax.tree.map(lambda a: jnp.zeros((self.draws, *a.shape), a.dtype), like[0])
        zero = jnp.zeros((), int)
        low = jnp.full((), -jnp.inf, like[1].dtype)
        held, kept, tried, highest = jax.lax.while_loop(proceed, more, (held, zero, zero, low))
        share = kept / tried
        error = jnp.sqrt((1 - share) / kept.astype(share.dtype))
        return DrawsPosterior(
            jax.tree.map(lambda a: a[None], held),
            None,
            spaces=tuple(jax.tree.leaves(space)),
            log_evidence=LogEvidence(self.log_bound + jnp.log(share), error, Kind.ESTIMATE),
            diagnostics={"acceptance": share, "kept": kept, "highest": highest},
        )

    def check(self, posterior: AbstractPosterior) -> None:
        told = posterior.diagnostics
        over = float(told["highest"])
        if over > 1e-9:
            raise ValueError(
                "The 'log_bound' of Rejection must be at least the largest −energy − log q. "
                f"Got a draw where it is too low by {over:.3g}."
            )
        if int(told["kept"]) < self.draws:
            raise ValueError(
                f"Rejection must keep {self.draws:,} of at most {self.most:,} proposals. Got "
                f"{int(told['kept']):,}; take a proposal that is nearer, or a lower bound."
            )


class InverseTransform(AbstractChecked):
    """Draws F⁻¹(u) of even numbers u, with the distribution function F of a single number, or of states.

    A continuous unknown must have one free coordinate, over which exp(−e) is summed on a fine grid; the
    evidence is that sum, and its standard error the change from a grid half as fine.  For a finite unknown
    F⁻¹(u) is the first state at which F passes u, and the evidence is exact.

    Attributes:
        draws: how many draws.
        reach: between which free coordinates the mass is looked for.
        points: how fine the grids are.

    >>> from freeenergy.distributions import Positive
    >>> from freeenergy.inference import infer
    >>> found = infer(lambda z: 2 * z, Positive(()), InverseTransform(), key=jax.random.key(0))
    >>> round(float(found.log_evidence.nats), 6), round(float(found.mean()), 1)
    (-0.693147, 0.5)
    """

    draws: int = eqx.field(static=True, default=4000)
    reach: tuple[float, float] = (-60.0, 60.0)
    points: int = eqx.field(static=True, default=4097)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        u = jax.random.uniform(key, (self.draws,))
        leaves = tuple(jax.tree.leaves(space))
        if all(isinstance(leaf, AbstractFinite) for leaf in leaves):
            states = enumerate_states(space)
            free, p = boltzmann(jax.vmap(energy)(states))
            edges = jnp.cumsum(p)
            which = jnp.searchsorted(edges, u * edges[-1], side="right")
            values = jax.tree.map(lambda a: a[which], states)
            evidence, told = LogEvidence(-free, jnp.zeros_like(free), Kind.EXACT), {}
        else:
            target = FreeTarget(energy, space)
            if target.size != 1:
                raise ValueError(
                    "Inversion serves an unknown with one free coordinate. "
                    f"Got one of {target.size} instead: sample by another method."
                )
            coarse = jnp.linspace(*self.reach, self.points)
            inside = self._logs(target, coarse) > self._peak(target, coarse) - 50
            low = coarse[jnp.maximum(jnp.argmax(inside) - 1, 0)]
            high = coarse[jnp.minimum(self.points - jnp.argmax(inside[::-1]), self.points - 1)]
            fine = jnp.linspace(low, high, self.points)
            logs = self._logs(target, fine)
            top = jnp.max(logs)
            heights = jnp.exp(logs - top)
            width = (high - low) / (self.points - 1)
            edges = jnp.concatenate([jnp.zeros(1), jnp.cumsum((heights[1:] + heights[:-1]) / 2)])
            whole = jnp.log(jnp.sum(heights) * width) + top
            half = jnp.log(jnp.sum(heights[::2]) * 2 * width) + top
            evidence = LogEvidence(whole, jnp.abs(whole - half), Kind.ESTIMATE)
            values = jax.vmap(lambda x: target.value(x[None]))(jnp.interp(u * edges[-1], edges, fine))
            told = {"edge": jnp.maximum(logs[0], logs[-1]) - top, "start_energy": -top}
        draws = jax.tree.map(lambda a: a[None], values)
        return DrawsPosterior(draws, None, spaces=leaves, log_evidence=evidence, diagnostics=told)

    def _logs(self, target: FreeTarget, grid: Array) -> Array:
        logs = -jax.vmap(lambda x: target(x[None]))(grid)
        return jnp.where(jnp.isnan(logs), -jnp.inf, logs)

    def _peak(self, target: FreeTarget, grid: Array) -> Array:
        return jnp.max(self._logs(target, grid))

    def check(self, posterior: AbstractPosterior) -> None:
        edge = float(posterior.diagnostics.get("edge", np.asarray(-np.inf)))
        if edge > -15:
            raise ValueError(
                f"The density must be next to nothing at the ends of 'reach', {self.reach}. "
                f"Got exp({edge:.3g}) of its height instead: reach further, or look whether it has a mass."
            )
