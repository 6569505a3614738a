"""Markov kernels for any energy over a space: Gibbs sweeps, and walks over free coordinates."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import AbstractFinite, AbstractSpace, free_size, from_free, to_free
from ..distributions import AbstractDistribution
from ._gibbs import Kernel
from ._minimise import Energy


class FreeTarget(eqx.Module):
    """An energy over a tree of continuous spaces as one over free reals, with the log-determinant counted.

        e(v) = e(z(v)) − log |∂z/∂v|

    Attributes:
        energy: e(z).
        space: a tree of continuous spaces.

    >>> from freeenergy.distributions import Positive
    >>> target = FreeTarget(lambda z: z, Positive(()))  # an exponential variable
    >>> round(float(target(jnp.zeros(1))), 6), round(float(target.value(jnp.zeros(1))), 6)
    (1.386294, 0.693147)
    """

    energy: Energy
    space: PyTree

    @property
    def size(self) -> int:
        """How many free reals there are."""
        return free_size(self.space)

    def value(self, free: Float[Array, " size"]) -> PyTree:
        """The unknown at a vector of free reals."""
        return from_free(self.space, free)[0]

    def __call__(self, free: Float[Array, " size"]) -> Float[Array, ""]:
        value, log_det = from_free(self.space, free)
        return self.energy(value) - log_det


class FrozenSpace(NamedTuple):
    """A tree of spaces as a value that can be hashed, whatever the tree is made of."""

    leaves: tuple[AbstractSpace, ...]
    structure: Any

    @classmethod
    def of(cls, space: PyTree) -> FrozenSpace:
        """The tree `space`, or it itself where it is one already."""
        if isinstance(space, cls):
            return space
        leaves, structure = jax.tree.flatten(space)
        return cls(tuple(leaves), structure)

    @property
    def tree(self) -> PyTree:
        """The tree of spaces."""
        return jax.tree.unflatten(self.structure, self.leaves)


class Pushforward(AbstractDistribution):
    """The distribution of an unknown whose free reals have the distribution `base`.

    >>> from freeenergy.distributions import Diagonal, Gaussian, Reals
    >>> normal = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    >>> round(float(Pushforward(normal, Reals((1,))).log_prob(jnp.zeros(1))), 6)
    -0.918939
    """

    base: AbstractDistribution
    space: FrozenSpace = eqx.field(static=True, converter=FrozenSpace.of)

    def log_prob(self, x: PyTree) -> Float[Array, ""]:
        free = to_free(self.space.tree, x)
        return self.base.log_prob(free) - from_free(self.space.tree, free)[1]

    def sample(self, *, key: Array) -> PyTree:
        return from_free(self.space.tree, self.base.sample(key=key))[0]


class WalkState(NamedTuple):
    """Where a walk is, the energy there, and how many of its steps were taken."""

    free: Float[Array, " size"]
    energy: Float[Array, ""]
    accepted: Float[Array, ""]


def metropolis_step(
    target: Energy, state: WalkState, step: Float[Array, " size"], key: Array
) -> tuple[WalkState, Float[Array, ""]]:
    """Goes by `step` with probability α = min(1, exp(e − e′)), else stays; returns α too."""
    there = state.free + step
    energy = target(there)
    gain = state.energy - energy
    # where the energy is no number the walk does not go
    chance = jnp.where(jnp.isnan(gain), 0, jnp.exp(jnp.minimum(gain, 0)))
    taken = jax.random.uniform(key, (), chance.dtype) < chance
    moved = WalkState(there, energy, state.accepted + 1)
    return jax.tree.map(lambda a, b: jnp.where(taken, a, b), moved, state), chance


def random_walk(energy: Energy, space: PyTree, *, scale: float | Array = 0.5) -> Kernel:
    """The Markov kernel of a Metropolis walk with normal steps of size `scale` in the free coordinates.

    It leaves exp(−e(z)) over `space` unchanged, whatever the scale is.
    """
    target = FreeTarget(energy, space)

    def kernel(z: PyTree, *, key: Array) -> PyTree:
        draw, choose = jax.random.split(key)
        free = to_free(space, z)
        step = scale * jax.random.normal(draw, free.shape, free.dtype)
        start = WalkState(free, target(free), jnp.zeros((), free.dtype))
        moved = metropolis_step(target, start, step, choose)[0]
        # what did not move keeps its bits
        return jax.tree.map(lambda a, b: jnp.where(moved.accepted > 0, a, b), target.value(moved.free), z)

    return kernel


def gibbs_sweep(energy: Energy, space: PyTree) -> Kernel:
    """The Markov kernel that redraws each entry of a finite unknown in turn, given all others.

    The energy is asked for every value of an entry, which serves any energy; where it has structure,
    `block_gibbs` is faster.
    """
    spaces, structure = jax.tree.flatten(space)
    for leaf in spaces:
        if not isinstance(leaf, AbstractFinite):
            raise TypeError(f"Gibbs sampling needs a tree of finite spaces. Got {leaf!r} instead.")

    def sweep(leaves: list[Array], place: int, leaf: AbstractFinite, key: Array) -> Array:
        values = jnp.arange(leaf.n_values).astype(leaf.dtype)
        shape = leaves[place].shape

        def redraw(i: Array, flat: Array) -> Array:
            def at(value: Array) -> Array:
                tried = flat.at[i].set(value).reshape(shape)
                return energy(jax.tree.unflatten(structure, [*leaves[:place], tried, *leaves[place + 1 :]]))

            chosen = jax.random.categorical(jax.random.fold_in(key, i), -jax.vmap(at)(values))
            return flat.at[i].set(values[chosen])

        flat = leaves[place].reshape(-1).astype(leaf.dtype)
        return jax.lax.fori_loop(0, flat.size, redraw, flat).reshape(shape)

    def kernel(z: PyTree, *, key: Array) -> PyTree:
        leaves = list(structure.flatten_up_to(z))
        for place, leaf in enumerate(spaces):
            leaves[place] = sweep(leaves, place, leaf, jax.random.fold_in(key, place))
        return jax.tree.unflatten(structure, leaves)

    return kernel
