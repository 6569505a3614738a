"""Slice sampling: a walk without a step size that must fit."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import to_free
from ._kernels import AbstractWalk
from ._minimise import EnergyFunction
from ._walks import FreeTarget


class SliceState(NamedTuple):
    """Where a walk is, and the energy there."""

    free: Float[Array, " size"]
    energy: Float[Array, ""]


class SliceWalk(AbstractWalk):
    """Redraws each free coordinate in turn, evenly from where the density is above a level.

    The level is drawn evenly below the density where the walk is.  The interval around it grows by steps of
    `width` until both ends are outside, and shrinks towards it with each point that is not inside.
    """

    target: FreeTarget
    width: float | Array
    most: int = eqx.field(static=True)

    def begin(self, z: PyTree) -> SliceState:
        free = to_free(self.target.space, z)
        return SliceState(free, self.target(free))

    def value(self, state: SliceState) -> PyTree:
        return self.target.value(state.free)

    def acceptance(self, state: SliceState) -> Float[Array, ""]:
        return jnp.ones_like(state.energy)

    def step(self, state: SliceState, *, key: Array) -> SliceState:
        return jax.lax.fori_loop(
            0, state.free.size, lambda i, s: self._coordinate(s, i, jax.random.fold_in(key, i)), state
        )

    def _coordinate(self, state: SliceState, i: Array, key: Array) -> SliceState:
        lift, place, share, shrink = jax.random.split(key, 4)
        dtype = state.free.dtype
        level = state.energy + jax.random.exponential(lift, (), state.energy.dtype)
        here = state.free[i]

        def energy(x: Array) -> Array:
            value = self.target(state.free.at[i].set(x))
            return jnp.where(jnp.isnan(value), jnp.inf, value)

        low = here - self.width * jax.random.uniform(place, (), dtype)
        # how often each end may move is drawn too, so that the way back is as likely
        left = jnp.floor(self.most * jax.random.uniform(share, (), dtype))

        def grow(end: Array, step: Array, times: Array) -> Array:
            def proceed(carry: tuple[Array, Array]) -> Array:
                return (carry[1] > 0) & (energy(carry[0]) < level)

            return jax.lax.while_loop(proceed, lambda c: (c[0] + step, c[1] - 1), (end, times))[0]

        high = grow(low + self.width, self.width * jnp.ones((), dtype), self.most - 1 - left)
        low = grow(low, -self.width * jnp.ones((), dtype), left)

        def outside(carry: tuple[Array, ...]) -> Array:
            return carry[3] >= level

        def try_again(carry: tuple[Array, ...]) -> tuple[Array, ...]:
            low, high, x, _, count = carry
            low, high = jnp.where(x < here, x, low), jnp.where(x < here, high, x)
            point = jax.random.uniform(jax.random.fold_in(shrink, count), (), dtype, low, high)
            # rounding may leave nothing of the interval but where the walk is
            point = jnp.where(count < 200, point, here)
            return low, high, point, jnp.where(count < 200, energy(point), state.energy), count + 1

        first = jax.random.uniform(shrink, (), dtype, low, high)
        begin = (low, high, first, energy(first), jnp.zeros((), int))
        x, found = jax.lax.while_loop(outside, try_again, begin)[2:4]
        return SliceState(state.free.at[i].set(x), found)


class SliceSampler(eqx.Module):
    """Makes the kernel of slice sampling in the free coordinates of a continuous unknown.

    Every step moves, and a width that does not fit costs time and not exactness.

    Attributes:
        width: of the first interval around a coordinate.
        most: how many widths the interval may grow to.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import MarkovChain, infer
    >>> found = infer(lambda z: z**2 / 2, Reals(()), MarkovChain(SliceSampler()), key=jax.random.key(0))
    >>> bool(abs(found.covariance()[0, 0] - 1) < 0.2)
    True

    References:
        Neal (2003), Slice sampling.
    """

    width: float | Array = 2.0
    most: int = eqx.field(static=True, default=16)

    def __call__(self, energy: EnergyFunction, space: PyTree) -> SliceWalk:
        return SliceWalk(FreeTarget(energy, space), self.width, self.most)
