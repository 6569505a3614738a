"""Markov chains: one runner for any kernel, and kernels that redraw parts of an unknown given others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core import AbstractFinite, count_states, enumerate_states, state_number
from ._kernels import AbstractFiniteKernel, Kernel
from ._minimise import EnergyFunction
from ._spaces import FrozenSpace

# a block with more joint values is not redrawn at once
_MOST_VALUES = 2**16


def run_chain(
    kernel: Kernel,
    state: PyTree,
    *,
    steps: int,
    burn_in: int = 0,
    thin: int = 1,
    keep: Callable[[Any], Any] | None = None,
    key: Array,
) -> PyTree:
    """`steps` states of a Markov chain, stacked along a new first axis.

    Args:
        kernel: `kernel(state, *, key)` is the next state.
        state: where the chain starts.
        steps: how many states are kept.
        burn_in: how many are dropped at the beginning.
        thin: one in how many is kept after that.
        keep: what of a state is kept; all of it by default.
        key: seeds the chain.

    >>> walk = lambda state, *, key: state + 1
    >>> run_chain(walk, 0, steps=3, burn_in=10, thin=2, key=jax.random.key(0)).tolist()
    [12, 14, 16]
    """

    def record(state: Any, i: Array) -> tuple[Any, Any]:
        # the burn-in is done before the first state that is kept, in the one loop with the kernel in it;
        # the number of the step is folded in, so that a longer chain begins like a shorter one
        begin, end = jnp.where(i == 0, 0, burn_in + i * thin), burn_in + (i + 1) * thin
        state = jax.lax.fori_loop(begin, end, lambda i, s: kernel(s, key=jax.random.fold_in(key, i)), state)
        return state, state if keep is None else keep(state)

    return jax.lax.scan(record, state, jnp.arange(steps))[1]


def block_gibbs(*conditionals: Callable[..., Any]) -> Kernel:
    """The kernel that redraws the blocks of a tuple in turn, each given all others.

    Args:
        conditionals: `conditionals[i](state, *, key)` draws block `i` of the tuple `state` from its
            distribution given the other blocks.

    >>> kernel = block_gibbs(lambda s, *, key: s[1] + 1, lambda s, *, key: 2 * s[0])
    >>> kernel((0, 3), key=jax.random.key(0))
    (4, 8)
    """

    def kernel(state: tuple, *, key: Array) -> tuple:
        for i, conditional in enumerate(conditionals):
            block = conditional(state, key=jax.random.fold_in(key, i))
            state = (*state[:i], block, *state[i + 1 :])
        return state

    return kernel


def entry_spaces(space: PyTree) -> list[AbstractFinite]:
    """The space of each entry of a finite unknown, in the order of its leaves."""
    found = []
    for leaf in jax.tree.leaves(space):
        if not isinstance(leaf, AbstractFinite):
            raise TypeError(f"Gibbs sampling needs a tree of finite spaces. Got {leaf!r} instead.")
        found += [leaf] * math.prod(leaf.unknown_shape())
    return found


def to_digits(space: PyTree, z: PyTree) -> Array:
    """The entries of a finite unknown as whole numbers from zero on, in one vector."""
    leaves = jax.tree.structure(space).flatten_up_to(z)
    return jnp.concatenate([jnp.reshape(leaf, -1).astype(int) for leaf in leaves])


def from_digits(space: PyTree, digits: Array) -> PyTree:
    """The unknown of which `to_digits` makes `digits`."""
    leaves, structure = jax.tree.flatten(space)
    made, begin = [], 0
    for leaf in leaves:
        shape = leaf.unknown_shape()
        end = begin + math.prod(shape)
        made.append(digits[begin:end].reshape(shape).astype(leaf.dtype))
        begin = end
    return jax.tree.unflatten(structure, made)


Blocks = tuple[tuple[int, ...], ...]


class Gibbs(AbstractFiniteKernel):
    """Redraws blocks of entries of a finite unknown, each from its law given all others.

        p(z_B | z_−B) ∝ exp(−e(z_B, z_−B))

    Attributes:
        energy: asked for every joint value of a block, which serves any energy.
        space: a tree of finite spaces.
        blocks: the numbers of the entries in each block.
        scan: whether a step redraws one block at random (a reversible kernel), and not all in turn.
    """

    energy: EnergyFunction
    space: FrozenSpace = eqx.field(static=True, converter=FrozenSpace.of)
    blocks: Blocks = eqx.field(static=True)
    scan: bool = eqx.field(static=True, default=False)

    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each block its entries, their joint values, and which of these are real: all of one shape."""
        sizes = [space.n_values for space in entry_spaces(self.space.tree)]
        wide = max(len(block) for block in self.blocks)
        joint = [list(itertools.product(*(range(sizes[i]) for i in block))) for block in self.blocks]
        most = max(len(values) for values in joint)
        # a block that is too narrow has its first entry again, with the same value
        places = np.array([[*block, *[block[0]] * (wide - len(block))] for block in self.blocks])
        values = np.zeros((len(joint), most, wide), int)
        real = np.zeros((len(joint), most), bool)
        for k, rows in enumerate(joint):
            full = [[*row, *[row[0]] * (wide - len(row))] for row in rows]
            values[k, : len(rows)], real[k, : len(rows)] = full, True
        return places, values, real

    def _candidates(self, digits: Array, places: Array, values: Array, real: Array) -> tuple[Array, Array]:
        """What a block can become, and the logarithms of the probabilities of that."""
        tried = jax.vmap(lambda value: digits.at[places].set(value))(values)
        energies = jax.vmap(lambda d: self.energy(from_digits(self.space.tree, d)))(tried)
        return tried, jax.nn.log_softmax(jnp.where(real, -energies, -jnp.inf))

    def __call__(self, z: PyTree, *, key: Array) -> PyTree:
        tables = tuple(jnp.asarray(t) for t in self._tables())

        def redraw(digits: Array, k: Array, key: Array) -> Array:
            tried, logs = self._candidates(digits, *(t[k] for t in tables))
            return tried[jax.random.categorical(key, logs)]

        digits = to_digits(self.space.tree, z)
        if self.scan:
            choose, draw = jax.random.split(key)
            digits = redraw(digits, jax.random.randint(choose, (), 0, len(self.blocks)), draw)
        else:
            digits = jax.lax.fori_loop(
                0, len(self.blocks), lambda k, d: redraw(d, k, jax.random.fold_in(key, k)), digits
            )
        return from_digits(self.space.tree, digits)

    def transition(self, space: PyTree) -> Float[Array, "states states"]:
        size = count_states(space)
        states = jax.vmap(lambda z: to_digits(space, z))(enumerate_states(space))
        matrix = jnp.zeros((size, size)) if self.scan else jnp.eye(size)
        for table in zip(*self._tables(), strict=True):
            tried, logs = jax.vmap(lambda d, t=table: self._candidates(d, *map(jnp.asarray, t)))(states)
            number = jax.vmap(jax.vmap(lambda d: state_number(space, from_digits(space, d))))(tried)
            single = jnp.zeros((size, size)).at[jnp.arange(size)[:, None], number].add(jnp.exp(logs))
            matrix = matrix + single / len(self.blocks) if self.scan else matrix @ single
        return matrix


def _checked_blocks(space: PyTree, blocks: Sequence[Sequence[int]] | None) -> Blocks:
    entries = entry_spaces(space)
    if blocks is None:
        return tuple((i,) for i in range(len(entries)))
    made = tuple(tuple(int(i) for i in block) for block in blocks)
    if {i for block in made for i in block} != set(range(len(entries))) or not all(made):
        raise ValueError(
            f"The 'blocks' of Gibbs sampling must hold every entry from 0 to {len(entries) - 1}. "
            f"Got {made} instead."
        )
    for block in made:
        count = math.prod(entries[i].n_values for i in block)
        if count > _MOST_VALUES:
            raise ValueError(
                f"A block of Gibbs sampling may have {_MOST_VALUES:,} joint values. Got {count:,} instead."
            )
    return made


def gibbs_sweep(
    energy: EnergyFunction, space: PyTree, *, blocks: Sequence[Sequence[int]] | None = None
) -> Gibbs:
    """The Markov kernel that redraws each entry of a finite unknown in turn, given all others.

    The energy is asked for every value of an entry, which serves any energy; where it has structure,
    `block_gibbs` is faster.

    Args:
        energy: e(z).
        space: a tree of finite spaces.
        blocks: numbers of the entries that are redrawn together; by default one at a time.

    >>> from freeenergy.distributions import Binary
    >>> pair = lambda z: -20.0 * z[0] * z[1]
    >>> gibbs_sweep(pair, Binary((2,)), blocks=[[0, 1]])(jnp.zeros(2), key=jax.random.key(0)).tolist()
    [1.0, 1.0]
    """
    return Gibbs(energy, space, _checked_blocks(space, blocks))


def gibbs_scan(
    energy: EnergyFunction, space: PyTree, *, blocks: Sequence[Sequence[int]] | None = None
) -> Gibbs:
    """The Markov kernel that redraws one entry of a finite unknown, chosen at random, given all others.

    Also known as random-scan Gibbs sampling; unlike a sweep it is reversible.  Arguments as in
    `gibbs_sweep`.
    """
    return Gibbs(energy, space, _checked_blocks(space, blocks), scan=True)


class Alternate(eqx.Module):
    """Makes a kernel for an unknown of several parts: each part is moved in turn, given all others.

    Also known as Metropolis within Gibbs: labels can go by `gibbs_sweep` and reals by a walk.

    Attributes:
        makers: for each slot of the unknown (a tuple or dict) what makes its kernel.

    >>> from freeenergy.distributions import Binary, Reals
    >>> from freeenergy.inference import SliceSampler, MarkovChain
    >>> space = {"side": Binary(()), "place": Reals(())}
    >>> maker = Alternate({"side": gibbs_sweep, "place": SliceSampler()})
    >>> energy = lambda z: (z["place"] - z["side"]) ** 2 / 2
    >>> moved = maker(energy, space)({"side": jnp.zeros(()), "place": jnp.zeros(())}, key=jax.random.key(0))
    >>> sorted(moved)
    ['place', 'side']
    """

    makers: PyTree

    def __call__(self, energy: EnergyFunction, space: PyTree) -> Kernel:
        names = self.makers.keys() if isinstance(self.makers, dict) else range(len(self.makers))
        there = set(space.keys()) if isinstance(space, dict) else set(range(len(space)))
        if set(names) != there:
            raise ValueError(
                f"The 'makers' of Alternate must name every slot of the unknown, {sorted(there)}. "
                f"Got {sorted(names)} instead."
            )

        def put(z: Any, name: Any, part: Any) -> Any:
            if isinstance(z, dict):
                return z | {name: part}
            return tuple(part if i == name else other for i, other in enumerate(z))

        def kernel(z: Any, *, key: Array) -> Any:
            for i, name in enumerate(names):
                rest = z
                given = self.makers[name](lambda part, r=rest, n=name: energy(put(r, n, part)), space[name])
                z = put(z, name, given(z[name], key=jax.random.fold_in(key, i)))
            return z

        return kernel
