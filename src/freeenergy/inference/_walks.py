"""An energy over free coordinates, and Metropolis walks there."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._core import free_size, from_free, to_free
from ..distributions import AbstractDistribution
from ._kernels import Kernel
from ._minimise import EnergyFunction
from ._spaces import FrozenSpace


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

    energy: EnergyFunction
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


# distances at which it shows whether an energy grows, nearer ones where it is no number so far out, and
# coordinates that are looked at
_FAR, _FARTHER = 1e30, 1e60
_NEAR, _NOT_SO_NEAR = 300.0, 700.0
_MOST_COORDINATES = 512
# four distances both ways
LOOKS_A_COORDINATE = 8
# a direction that is no coordinate is only known up to rounding, which so far out is not yet seen
_OUT, _FARTHER_OUT = 1e5, 1e10
# more slopes than coordinates, so that those of no two directions agree by chance
_MORE_SLOPES, _MOST_SLOPES = 4, 64


def places_of_slopes(free: Float[Array, " size"]) -> Float[Array, "places size"] | None:
    """Where slopes are wanted by `first_improper`, about `free`; None where there would be too many."""
    n = len(free) + _MORE_SLOPES
    if len(free) < 2 or n > _MOST_SLOPES:
        return None
    steps = np.random.default_rng(0).normal(size=(n, len(free)))
    return free[None] + jnp.asarray(steps, free.dtype)


def slopes_near(target: FreeTarget, free: Float[Array, " size"]) -> Float[Array, "places size"] | None:
    """∇e at `places_of_slopes`; None where the energy has none, as one that iterates until it converged."""
    places = places_of_slopes(free)
    if places is None:
        return None
    slope = jax.grad(target)
    try:
        jax.eval_shape(slope, free)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return jax.lax.map(slope, places)


def _flattest(slopes: Float[Array, "places size"]) -> Float[Array, " size"]:
    """The direction in which the slopes have the least part: none, where the energy is level along it."""
    length = jnp.linalg.norm(slopes, axis=1, keepdims=True)
    known = jnp.isfinite(length) & (length > 0)
    rows = jnp.where(known, slopes / jnp.where(known, length, 1), 0)
    return jnp.linalg.svd(rows, full_matrices=False)[2][-1]


def first_improper(
    target: FreeTarget,
    free: Float[Array, " size"],
    other: Float[Array, " size"] | None = None,
    slopes: Float[Array, "places size"] | None = None,
) -> Int[Array, ""]:
    """The first free coordinate along which exp(−e) has no integral, or −1 if none is known.

    It is looked for from `free`, or from `other` where `free` is impossible.  The direction in which
    `slopes` have the least part is looked along too, such as that of x = y for (x − y)²; it counts as one
    more coordinate.

    A density that can be integrated can be so along almost every line, so that its energy grows by more
    than the logarithm of the distance.  Where it is no number far out, such as beyond the least number
    above zero, it must at least grow on the way there.  Where it falls from a height to what is still
    higher than where it begins, nothing is known.
    """
    size = len(free)
    if not 0 < size <= _MOST_COORDINATES:
        return jnp.full((), -1)
    lines = jnp.eye(size, dtype=free.dtype)
    if slopes is not None:
        lines = jnp.concatenate([lines, _flattest(slopes)[None]])

    def there(begin: Array, looked: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        line, step, first = looked
        energy = target(begin + step.astype(begin.dtype) * lines[line])
        if other is not None:
            begin = jnp.where(first & ~jnp.isfinite(energy), other, begin)
        return begin, energy

    # both ways along each coordinate, and before that where it begins, by one loop with the energy in it
    far = np.multiply.outer([1.0, -1.0], [_NEAR, _NOT_SO_NEAR, _FAR, _FARTHER])
    out = np.multiply.outer([1.0, -1.0], [_NEAR, _NOT_SO_NEAR, _OUT, _FARTHER_OUT])
    steps = np.concatenate([[0.0], np.tile(far.ravel(), size), np.tile(out.ravel(), len(lines) - size)])
    numbers = np.concatenate([[0], np.repeat(np.arange(len(lines)), far.size)])
    looked = jax.tree.map(jnp.asarray, (numbers, steps, np.arange(len(steps)) == 0))
    energies = jax.lax.scan(there, free, looked)[1]
    first, energies = energies[0], energies[1:]
    near, not_so_near, far, farther = energies.reshape(-1, far.shape[1]).T
    rise, short = farther - far, not_so_near - near
    # (one over the distance has no integral, and rounding is no more than a little)
    wanted = np.repeat(np.log([_FARTHER / _FAR, _FARTHER_OUT / _OUT]), [2 * size, 2 * (len(lines) - size)])
    known = jnp.isfinite(far) & ~jnp.isnan(rise)
    # where it is no number there either, nothing is known
    level = jnp.isfinite(short) & (short <= 1e-12 * jnp.abs(near))
    found = jnp.where(known, rise < (1 + 1e-9) * wanted, level)
    # nor where it falls, beyond what may be rounding, and is higher than where it begins
    before, gone, end = (
        jnp.where(known, *pair) for pair in ((far, near), (rise, short), (farther, not_so_near))
    )
    found &= ~((gone < -1e-9 * jnp.abs(before)) & (end > first))
    return jnp.where(jnp.any(found), jnp.argmax(found) // 2, -1)


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
    target: EnergyFunction, state: WalkState, step: Float[Array, " size"], key: Array
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


def random_walk(energy: EnergyFunction, space: PyTree, *, scale: float | Array = 0.5) -> Kernel:
    """The Markov kernel of a Metropolis walk with normal steps of size `scale` in the free coordinates.

    It leaves exp(−e(z)) over `space` unchanged, whatever the scale is.
    """
    target = FreeTarget(energy, space)

    def kernel(z: PyTree, *, key: Array) -> PyTree:
        draw, choose = jax.random.split(key)
        free = to_free(space, z)
        step = scale * jax.random.normal(draw, free.shape, free.dtype)
        # both energies by one look, so that the program has the energy in it once
        here, there = jax.vmap(target)(jnp.stack([free, free + step]))
        start = WalkState(free, here, jnp.zeros((), free.dtype))
        moved = metropolis_step(lambda _: there, start, step, choose)[0]
        # what did not move keeps its bits
        return jax.tree.map(lambda a, b: jnp.where(moved.accepted > 0, a, b), target.value(moved.free), z)

    return kernel
