"""Langevin dynamics: unadjusted, adjusted, and on the gradients of batches of rows."""

from __future__ import annotations

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import to_free
from ._chains import AbstractTuned
from ._kernels import AbstractWalk
from ._minimise import EnergyFunction
from ._walks import FreeTarget


class LangevinState(NamedTuple):
    """Where a walk is, the energy and its slope there, and how likely the last proposal was to be taken."""

    free: Float[Array, " size"]
    energy: Float[Array, ""]
    slope: Float[Array, " size"]
    chance: Float[Array, ""]


class LangevinWalk(AbstractWalk):
    """The kernel  v′ = v − (ε/2) ∇e(v) + √ε ξ  in free coordinates, with Metropolis' correction or not."""

    target: FreeTarget
    step_size: float | Array
    adjusted: bool = eqx.field(static=True)

    def begin(self, z: PyTree) -> LangevinState:
        free = to_free(self.target.space, z)
        energy, slope = jax.value_and_grad(self.target)(free)
        return LangevinState(free, energy, slope, jnp.ones_like(energy))

    def value(self, state: LangevinState) -> PyTree:
        return self.target.value(state.free)

    def acceptance(self, state: LangevinState) -> Float[Array, ""]:
        return state.chance

    def step(self, state: LangevinState, *, key: Array) -> LangevinState:
        draw, choose = jax.random.split(key)
        size = jnp.asarray(self.step_size, state.free.dtype)
        noise = jax.random.normal(draw, state.free.shape, state.free.dtype)
        there = state.free - size / 2 * state.slope + jnp.sqrt(size) * noise
        energy, slope = jax.value_and_grad(self.target)(there)
        if not self.adjusted:
            return LangevinState(there, energy, slope, state.chance)
        back = jnp.sum((state.free - there + size / 2 * slope) ** 2) / (2 * size)
        gain = state.energy - energy - back + jnp.sum(noise**2) / 2
        # where the energy or its slope is no number the walk does not go
        chance = jnp.where(jnp.isnan(gain), 0, jnp.exp(jnp.minimum(gain, 0)))
        taken = jax.random.uniform(choose, (), chance.dtype) < chance
        moved = LangevinState(there, energy, slope, chance)
        return jax.tree.map(lambda a, b: jnp.where(taken, a, b), moved, state._replace(chance=chance))


class UnadjustedLangevin(eqx.Module):
    """Makes the kernel of Langevin dynamics without a correction (ULA):  v′ = v − (ε/2) ∇e(v) + √ε ξ.

    Its law is that of the energy only as ε → 0: for a Gaussian of variance σ² it has the variance
    σ² / (1 − ε/(4σ²)), and beyond ε = 4σ² none.  Some texts write ε for the ε/2 of this one.

    Attributes:
        step_size: ε, in the units of the free coordinates.
    """

    step_size: float | Array

    def __call__(self, energy: EnergyFunction, space: PyTree) -> LangevinWalk:
        return LangevinWalk(FreeTarget(energy, space), self.step_size, False)


class AdjustedLangevin(AbstractTuned):
    """Makes the kernel of Langevin dynamics with Metropolis' correction (MALA), which is exact.

    Attributes:
        step_size: ε of v′ = v − (ε/2) ∇e(v) + √ε ξ, where the tuning of `MarkovChain` begins.
        wanted: the share of proposals to take, by which the burn-in chooses ε; None keeps `step_size`.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import MarkovChain, infer
    >>> found = infer(
    ...     lambda z: z**2 / 2, Reals(()), MarkovChain(AdjustedLangevin()), key=jax.random.key(0)
    ... )
    >>> bool(abs(found.covariance()[0, 0] - 1) < 0.2)
    True

    References:
        Roberts & Tweedie (1996), Exponential convergence of Langevin distributions.
    """

    step_size: float | Array = 0.5
    wanted: float | None = eqx.field(static=True, default=0.574, kw_only=True)

    def scaled(self, factor: Array) -> Self:
        return eqx.tree_at(lambda m: m.step_size, self, self.step_size * factor)

    def __call__(self, energy: EnergyFunction, space: PyTree) -> LangevinWalk:
        return LangevinWalk(FreeTarget(energy, space), self.step_size, True)
