"""Metropolis–Hastings with any proposal, for finite and continuous unknowns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core import AbstractFinite, enumerate_states, to_free
from ..distributions import AbstractDistribution, Diagonal, Gaussian
from ._gibbs import entry_spaces, from_digits, to_digits
from ._kernels import AbstractFiniteKernel, AbstractWalk
from ._minimise import EnergyFunction
from ._spaces import FrozenSpace
from ._walks import Pushforward

Proposal = Callable[[Any], AbstractDistribution]
"""`proposal(z)`: the distribution from which the value after `z` is proposed."""


class ChangedEntry(AbstractDistribution):
    """A finite unknown of which one entry, any of them, has one of its other values.

    It is as likely to go from z to z′ as back.

    >>> from freeenergy.distributions import Binary
    >>> step = ChangedEntry(jnp.array([1.0, 0.0]), Binary((2,)))
    >>> round(float(jnp.exp(step.log_prob(jnp.array([1.0, 1.0])))), 6)
    0.5
    """

    z: PyTree
    space: FrozenSpace = eqx.field(static=True, converter=FrozenSpace.of)

    def _sizes(self) -> list[int]:
        return [space.n_values for space in entry_spaces(self.space.tree)]

    def log_prob(self, x: PyTree) -> Float[Array, ""]:
        changed = to_digits(self.space.tree, self.z) != to_digits(self.space.tree, x)
        sizes = np.array(self._sizes())
        # (an entry with a single value never changes)
        log_ways = np.log(np.maximum(sizes - 1, 1)) + np.log((sizes > 1).sum())
        return jnp.where(jnp.sum(changed) == 1, -jnp.sum(jnp.where(changed, log_ways, 0)), -jnp.inf)

    def sample(self, *, key: Array) -> PyTree:
        which, how = jax.random.split(key)
        movable = jnp.asarray([i for i, size in enumerate(self._sizes()) if size > 1])
        place = movable[jax.random.randint(which, (), 0, len(movable))]
        size = jnp.asarray(self._sizes())[place]
        digits = to_digits(self.space.tree, self.z)
        shift = jax.random.randint(how, (), 1, size)
        return from_digits(self.space.tree, digits.at[place].set((digits[place] + shift) % size))


class NormalSteps(eqx.Module):
    """Proposes normal steps of size `scale` in the free coordinates of a continuous unknown.

    Attributes:
        space: a tree of continuous spaces.
        scale: the standard deviation of a step; one number, or one a free coordinate.
    """

    space: FrozenSpace = eqx.field(static=True, converter=FrozenSpace.of)
    scale: float | Float[Array, " size"] = 0.5

    def __call__(self, z: PyTree) -> Pushforward:
        free = to_free(self.space.tree, z)
        variance = jnp.broadcast_to(jnp.asarray(self.scale, free.dtype) ** 2, free.shape)
        return Pushforward(Gaussian(free, Diagonal(variance)), self.space)


class MetropolisState(NamedTuple):
    """Where a chain is, the energy there, and the probability with which its last proposal was taken."""

    z: PyTree
    energy: Float[Array, ""]
    chance: Float[Array, ""]


class Metropolis(AbstractWalk, AbstractFiniteKernel):
    """The Metropolis–Hastings kernel of an energy: goes to z′ ~ q(·|z) with the probability

        α = min(1, exp(e(z) − e(z′)) q(z|z′) / q(z′|z)),

    and else stays.  The energy needs no normaliser.

    Attributes:
        energy: e(z), infinite where the unknown cannot be.
        proposal: `proposal(z)` is q(·|z).
    """

    energy: EnergyFunction
    proposal: Proposal

    def _log_ratio(self, before: Array, z: PyTree, after: Array, there: PyTree) -> Float[Array, ""]:
        back = self.proposal(there).log_prob(z)
        gain = before - after + back - self.proposal(z).log_prob(there)
        # where the energy is no number, and where there is no way back, the chain does not go
        return jnp.where(jnp.isnan(gain), -jnp.inf, jnp.minimum(gain, 0))

    def begin(self, z: PyTree) -> MetropolisState:
        energy = self.energy(z)
        return MetropolisState(jax.tree.map(jnp.asarray, z), energy, jnp.ones_like(energy))

    def step(self, state: MetropolisState, *, key: Array) -> MetropolisState:
        draw, choose = jax.random.split(key)
        there = self.proposal(state.z).sample(key=draw)
        energy = self.energy(there)
        chance = jnp.exp(self._log_ratio(state.energy, state.z, energy, there))
        taken = jax.random.uniform(choose, (), chance.dtype) < chance
        z = jax.tree.map(lambda a, b: jnp.where(taken, a.astype(b.dtype), b), there, state.z)
        return MetropolisState(z, jnp.where(taken, energy, state.energy), chance)

    def value(self, state: MetropolisState) -> PyTree:
        return state.z

    def acceptance(self, state: MetropolisState) -> Float[Array, ""]:
        return state.chance

    def transition(self, space: PyTree) -> Float[Array, "states states"]:
        states = enumerate_states(space)
        energies = jax.vmap(self.energy)(states)

        def row(z: PyTree, energy: Array) -> Array:
            q = jax.vmap(self.proposal(z).log_prob)(states)
            chance = jax.vmap(lambda e, there: self._log_ratio(energy, z, e, there))(energies, states)
            return jnp.exp(q + chance)

        moves = jax.vmap(row)(states, energies)
        moves = jnp.where(jnp.eye(len(moves), dtype=bool), 0, moves)
        # what is proposed outside of the space is not taken
        return moves + jnp.diag(1 - jnp.sum(moves, axis=1))


class MetropolisHastings(eqx.Module):
    """Makes the Metropolis–Hastings kernel of an energy, for `MarkovChain`, `Anneal` and others.

    Attributes:
        proposal: `proposal(z)` is the distribution of what is proposed after z, such as
            `lambda z: Gaussian(z, …)`; by default one entry of a finite unknown gets another value, and a
            continuous one makes steps of `scale` in its free coordinates.
        scale: the size of these steps.

    >>> from freeenergy.distributions import Categories
    >>> from freeenergy.inference import FiniteChain, transition_matrix
    >>> kernel = MetropolisHastings()(lambda z: -jnp.log1p(z.astype(float)), Categories(4))
    >>> FiniteChain(transition_matrix(kernel, Categories(4))).stationary().round(6).tolist()
    [0.1, 0.2, 0.3, 0.4]
    """

    proposal: Proposal | None = None
    scale: float | Array = 0.5

    def __call__(self, energy: EnergyFunction, space: PyTree) -> Metropolis:
        if self.proposal is not None:
            return Metropolis(energy, self.proposal)
        if all(isinstance(leaf, AbstractFinite) for leaf in jax.tree.leaves(space)):
            return Metropolis(energy, lambda z: ChangedEntry(z, space))
        return Metropolis(energy, NormalSteps(space, self.scale))
