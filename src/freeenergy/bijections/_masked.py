"""A perceptron in which each output sees only the inputs before it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import on_device, weights


def draw_layers(sizes: Sequence[int], *, dtype, key: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Weights and biases of linear layers between `sizes`: uniform within ±1/√fan-in, the last zero.

    All numbers come from one draw, because each call of a generator takes long to compile.
    """
    fans = list(itertools.pairwise(sizes[:-1]))
    ends = np.cumsum([(a + 1) * b for a, b in fans])
    drawn = weights(key, (int(ends[-1]),), dtype, 1.0)
    parts = [drawn[end - (a + 1) * b : end] for end, (a, b) in zip(ends.tolist(), fans, strict=True)]
    rows = [part.reshape(b, a + 1) * a**-0.5 for part, (a, b) in zip(parts, fans, strict=True)]
    rows.append(weights(key, (sizes[-1], sizes[-2] + 1), dtype, 0.0))
    return tuple(on_device(row[:, :-1]) for row in rows), tuple(on_device(row[:, -1]) for row in rows)


def identity(x: Array) -> Array:
    """x, by a function that a pickled network can name."""
    return x


def silu(x: Array) -> Array:
    """x · sigmoid(x); unlike JAX's own, a plain function, which a pickled network can name."""
    return x * jax.nn.sigmoid(x)


class MaskedMLP(eqx.Module):
    """A perceptron with masks: row i of the output depends only on the inputs before the i-th.

    "Before" is in the order that `rank` gives (MADE, Germain et al. 2015).  A hidden unit of degree h
    sees the inputs of rank ≤ h; the output of rank r sees the hidden units of degree < r.  The last
    layer starts at zero.

    Attributes:
        rank: the place of each input in the order, from zero.
        weights: one matrix a layer, used under its mask.
        biases: one vector a layer; there is at least one hidden layer.
        size: numbers a row of the output has.

    >>> network = MaskedMLP(jnp.array([1, 0]), 3, width=4, depth=1, key=jax.random.key(0))
    >>> network(jnp.ones(2, jnp.float32)).shape
    (2, 3)
    """

    rank: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    size: int = eqx.field(static=True)

    def __init__(
        self, rank: Array | np.ndarray, size: int, *, width: int, depth: int, dtype=jnp.float32, key: Array
    ) -> None:
        dim = rank.shape[0]
        self.rank = on_device(rank)
        self.weights, self.biases = draw_layers([dim, *[width] * depth, size * dim], dtype=dtype, key=key)
        self.size = size

    def _masks(self) -> list[Array]:
        width, dim = self.weights[0].shape
        # degrees 0 … dim−2 spread over the units; a narrow layer keeps the highest, which sees most
        degree = jnp.asarray(-(-(np.arange(width) + 1) * (dim - 1) // width) - 1, self.rank.dtype)
        first = degree[:, None] >= self.rank[None, :]
        inner = degree[:, None] >= degree[None, :]
        last = jnp.repeat(self.rank, self.size)[:, None] > degree[None, :]
        return [first, *[inner] * (len(self.weights) - 2), last]

    def __call__(self, x: Array) -> Array:
        for i, mask in enumerate(self._masks()):
            x = jnp.where(mask, self.weights[i], 0) @ x + self.biases[i]
            if i + 1 < len(self.weights):
                x = silu(x)
        return x.reshape(self.rank.shape[0], self.size)
