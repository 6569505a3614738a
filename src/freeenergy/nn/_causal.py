"""Networks over a sequence in which each place sees only the entries before it."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PyTree

from .._core import dense, on_device, parameter, split_key, weights
from ..bijections._masked import silu
from ._attention import asked, attended, normalised


class AbstractCausalNetwork(eqx.Module):
    """Numbers for each place of a sequence that depend on the entries before it, and on no other.

    All places at once, for log p, or one after another, for draws: a state holds what is known of the
    entries so far, so that no step does again what an earlier one did (a cache).
    """

    @abc.abstractmethod
    def __call__(self, tokens: Float[Array, "length features"]) -> Float[Array, "length size"]:
        """The numbers of every place."""

    @abc.abstractmethod
    def start(self) -> PyTree:
        """The state before the first place."""

    @abc.abstractmethod
    def step(self, state: PyTree, place: Array, before: Float[Array, " features"]) -> tuple[PyTree, Array]:
        """The next state, and the numbers of `place`, given the entry before it (zeros for the first)."""


class AbstractCausal(eqx.Module):
    """What makes a causal network of the size that is needed."""

    @abc.abstractmethod
    def build(
        self, length: int, features: int, size: int, *, dtype: Any = jnp.float32, key: Array
    ) -> AbstractCausalNetwork:
        """A network for `length` entries of so many features, with `size` numbers for each.

        Its last layer is zero, so that at first no entry says anything of another.
        """


def _uniform(key: Array, inputs: int, *shape: int, dtype: Any) -> Array:
    bound = inputs**-0.5
    return on_device(weights(key, shape, dtype, bound))


def _zeros(key: Array, *shape: int, dtype: Any) -> Array:
    return on_device(weights(key, shape, dtype, 0.0))


# one program for all of its draws
_cell = eqx.filter_jit(eqx.nn.GRUCell)

# -- masks ------------------------------------------------------------------------------------------


class MaskedNetwork(AbstractCausalNetwork):
    """A perceptron with residual blocks under masks (MADE, Germain et al. 2015).

        h = U x + b,   h ← h + B silu(A silu(h) + a) in each block,   output = V h

    A hidden unit of degree m sees the entries up to the m-th, and units of degree m or less; the output
    of place i sees the units of degree less than i.

    Attributes:
        first, bias: U and b, of the shapes (length, features, width) and (width,).
        inner, inner_bias: A and a of each block.
        outer: B of each block.
        last: V, of the shape (length, width, size).

    >>> network = Masked(width=8, depth=1).build(3, 1, 2, key=jax.random.key(0))
    >>> network(jnp.zeros((3, 1), jnp.float32)).shape
    (3, 2)
    """

    first: Array = parameter()
    bias: Array = parameter()
    inner: Array = parameter()
    inner_bias: Array = parameter()
    outer: Array = parameter()
    last: Array = parameter()

    def _degrees(self) -> np.ndarray:
        length, _, width = self.first.shape
        # 0 … length−2 spread over the units; a narrow layer keeps the highest, which sees most
        return -(-(np.arange(width) + 1) * (length - 1) // width) - 1

    def _hidden(self, tokens: Array) -> Array:
        degree = self._degrees()
        seen = jnp.asarray(np.arange(len(self.first))[:, None] <= degree[None])
        inside = jnp.asarray(degree[:, None] <= degree[None])
        h = self.bias + jnp.einsum("lf,lfw->w", tokens, jnp.where(seen[:, None], self.first, 0))
        for i in range(len(self.inner)):
            inner, outer = (jnp.where(inside, m[i], 0) for m in (self.inner, self.outer))
            h = h + silu(silu(h) @ inner + self.inner_bias[i]) @ outer
        return h

    def __call__(self, tokens: Float[Array, "length features"]) -> Float[Array, "length size"]:
        seen = jnp.asarray(self._degrees()[None] < np.arange(len(self.last))[:, None])
        return jnp.einsum("w,lws->ls", self._hidden(tokens), jnp.where(seen[..., None], self.last, 0))

    def start(self) -> Array:
        return jnp.zeros(self.first.shape[:2], self.first.dtype)

    def step(self, state: Array, place: Array, before: Array) -> tuple[Array, Array]:
        # (the entry before the first is put where no unit looks yet)
        state = state.at[jnp.maximum(place - 1, 0)].set(jnp.where(place > 0, before, 0))
        seen = jnp.asarray(self._degrees(), place.dtype) < place
        return state, (self._hidden(state) * seen.astype(state.dtype)) @ self.last[place]


class Masked(AbstractCausal):
    """A `MaskedNetwork`: weights of its own for every entry, for tables.

    Attributes:
        width: hidden units.
        depth: residual blocks, of two layers each.

    >>> Masked(width=32).depth
    2
    """

    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=2)

    def build(
        self, length: int, features: int, size: int, *, dtype: Any = jnp.float32, key: Array
    ) -> MaskedNetwork:
        width, depth = self.width, self.depth
        keys = split_key(key, 3)
        return MaskedNetwork(
            _uniform(keys[0], length * features, length, features, width, dtype=dtype),
            _zeros(key, width, dtype=dtype),
            _uniform(keys[1], width, depth, width, width, dtype=dtype),
            _zeros(key, depth, width, dtype=dtype),
            _uniform(keys[2], width, depth, width, width, dtype=dtype),
            _zeros(key, length, width, size, dtype=dtype),
        )


# -- recurrence -------------------------------------------------------------------------------------


class RecurrentNetwork(AbstractCausalNetwork):
    """A gated recurrent unit along the sequence (GRU, Cho et al. 2014):  h_i = GRU(x_{i−1}, h_{i−1}).

    Attributes:
        cell: the unit.
        initial: h before the first entry.
        last: from h to the numbers of a place, (width, size).

    >>> network = Recurrent(width=8).build(5, 1, 2, key=jax.random.key(0))
    >>> network(jnp.zeros((5, 1), jnp.float32)).shape
    (5, 2)
    """

    cell: eqx.nn.GRUCell
    initial: Array = parameter()  # pyright: ignore[reportGeneralTypeIssues]
    last: Array = parameter()  # pyright: ignore[reportGeneralTypeIssues]

    def __call__(self, tokens: Float[Array, "length features"]) -> Float[Array, "length size"]:
        def visit(h: Array, before: Array) -> tuple[Array, Array]:
            h = self.cell(before, h)
            return h, h @ self.last

        return jax.lax.scan(visit, self.initial, _shifted(tokens))[1]

    def start(self) -> Array:
        return self.initial

    def step(self, state: Array, place: Array, before: Array) -> tuple[Array, Array]:
        state = self.cell(before, state)
        return state, state @ self.last


class Recurrent(AbstractCausal):
    """A `RecurrentNetwork`: the same weights at every place, for series; its cost grows with the length.

    Attributes:
        width: entries of the state h.

    >>> Recurrent().width
    64
    """

    width: int = eqx.field(static=True, default=64)

    def build(
        self, length: int, features: int, size: int, *, dtype: Any = jnp.float32, key: Array
    ) -> RecurrentNetwork:
        cell = _cell(features, self.width, dtype=dtype, key=key)
        return RecurrentNetwork(
            cell, _zeros(key, self.width, dtype=dtype), _zeros(key, self.width, size, dtype=dtype)
        )


def _shifted(tokens: Array) -> Array:
    """The entry before each place, zeros for the first."""
    return jnp.concatenate([jnp.zeros_like(tokens[:1]), tokens[:-1]])


# -- attention --------------------------------------------------------------------------------------


class _Block(eqx.Module):
    """Attention to what is before, then a perceptron at each place; both are added to what was there.

    Attributes:
        attend: makes queries, keys and values, (width, 3 width).
        mix: of what the heads found, (width, width).
        wide, wide_bias, narrow: the perceptron.
    """

    attend: Array = parameter()
    mix: Array = parameter()
    wide: Array = parameter()
    wide_bias: Array = parameter()
    narrow: Array = parameter()

    def asked(self, h: Array, heads: int) -> list[Array]:
        """Queries, keys and values of places, with an axis for the heads."""
        return asked(normalised(h), self.attend, heads)

    def told(self, h: Array, found: Array) -> Array:
        """The next h of places, from what the heads found."""
        h = h + dense(found.reshape(h.shape), self.mix)
        return h + dense(silu(dense(normalised(h), self.wide) + self.wide_bias[None]), self.narrow)


class TransformerNetwork(AbstractCausalNetwork):
    """A causal transformer: places attend to the entries before them (Vaswani et al. 2017).

    In a block each head adds Σ_{j≤i} softmax_j(q_i·k_j / √dim) v_j to place i, where place j has seen the
    entries before it.  Steps keep keys and values of all places so far (a cache), so that a step costs one
    place of attention and not all of them again.

    Attributes:
        embed: of an entry, (features, width).
        position: added at each place, (length, width); that of the first stands for no entry.
        blocks: attention and perceptron.
        last: from a place to its numbers, (width, size).
        heads: how many ways of attending a block has.

    >>> network = CausalTransformer(width=8, depth=1, heads=2).build(5, 1, 2, key=jax.random.key(0))
    >>> network(jnp.zeros((5, 1), jnp.float32)).shape
    (5, 2)
    """

    embed: Array = parameter()
    position: Array = parameter()
    blocks: tuple[_Block, ...]  # pyright: ignore[reportGeneralTypeIssues]
    last: Array = parameter()
    heads: int = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]

    def __call__(self, tokens: Float[Array, "length features"]) -> Float[Array, "length size"]:
        h = dense(_shifted(tokens), self.embed) + self.position
        ahead = jnp.asarray(np.triu(np.ones((len(h), len(h)), bool), 1))
        for block in self.blocks:
            h = block.told(h, attended(*block.asked(h, self.heads), ahead))
        return dense(normalised(h), self.last)

    def start(self) -> tuple[tuple[Array, Array], ...]:
        length, width = self.position.shape
        empty = jnp.zeros((length, self.heads, width // self.heads), self.position.dtype)
        return tuple((empty, empty) for _ in self.blocks)

    def step(
        self, state: tuple[tuple[Array, Array], ...], place: Array, before: Array
    ) -> tuple[tuple[tuple[Array, Array], ...], Array]:
        h = (before @ self.embed + self.position[place])[None]
        ahead = jnp.arange(len(self.position), dtype=place.dtype) > place
        kept = []
        for block, (keys, values) in zip(self.blocks, state, strict=True):
            q, k, v = block.asked(h, self.heads)
            keys, values = keys.at[place].set(k[0]), values.at[place].set(v[0])
            h = block.told(h, attended(q, keys, values, ahead[None]))
            kept.append((keys, values))
        return tuple(kept), normalised(h[0]) @ self.last


class CausalTransformer(AbstractCausal):
    """A `TransformerNetwork`: the same weights at every place, for long series and pixels.

    Attributes:
        width: numbers that a place has between blocks; a multiple of `heads`.
        depth: blocks.
        heads: of attention in a block.

    >>> CausalTransformer(width=32, heads=2).depth
    2
    """

    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=2)
    heads: int = eqx.field(static=True, default=4)

    def __check_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(
                f"The 'width' of CausalTransformer must be a multiple of its {self.heads} heads. "
                f"Got {self.width} instead."
            )

    def build(
        self, length: int, features: int, size: int, *, dtype: Any = jnp.float32, key: Array
    ) -> TransformerNetwork:
        width = self.width
        embed, position, *keys = split_key(key, 2 + self.depth)

        def block(key: Array) -> _Block:
            keys = split_key(key, 4)
            return _Block(
                _uniform(keys[0], width, width, 3 * width, dtype=dtype),
                _uniform(keys[1], width, width, width, dtype=dtype),
                _uniform(keys[2], width, width, 4 * width, dtype=dtype),
                _zeros(key, 4 * width, dtype=dtype),
                _uniform(keys[3], 4 * width, 4 * width, width, dtype=dtype),
            )

        return TransformerNetwork(
            _uniform(embed, features, features, width, dtype=dtype),
            _uniform(position, 1, length, width, dtype=dtype),
            tuple(block(k) for k in keys),
            _zeros(key, width, size, dtype=dtype),
            self.heads,
        )
