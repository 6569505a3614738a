"""A perceptron that looks at an image through a small window, the same one everywhere."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import on_device, parameter, split_key, weights
from ..bijections._masked import silu
from ._mlp import MLP, Linear, mlp


class WindowNetwork(eqx.Module):
    """At every place of an image the same perceptron of what is near it, with biases of the place:

        h_p = silu(W x[patch p] + b + a_p),   output_p = rest(h_p) + c_p.

    Attributes:
        patches: for each place the entries of x that are seen there; len(x) is a zero beyond the edge.
        first: W and b.
        rest: the layers after the first.
        inner: a, what each place adds to the units of the first layer.
        outer: c, what each place adds to the output.

    >>> pixels = np.arange(6).reshape(2, 3, 1)
    >>> network = WindowNetwork.of(pixels, 2, patch=3, width=4, depth=1, key=jax.random.key(0))
    >>> network(jnp.ones(6, jnp.float32)).shape, network.patches[0].tolist()
    ((6, 2), [6, 6, 6, 6, 0, 1, 6, 3, 4])
    """

    patches: Array
    first: Linear
    rest: MLP
    inner: Array = parameter()
    outer: Array = parameter()

    @staticmethod
    def of(
        places: np.ndarray,
        outputs: int,
        *,
        patch: int,
        width: int,
        depth: int,
        dtype: Any = jnp.float32,
        key: Array,
    ) -> WindowNetwork:
        """A network that says zero.

        Args:
            places: the entries of x at each place, of the shape (height, width, channels).
            outputs: numbers at each place.
            patch: places along a side of the window, an odd number.
            width, depth: units in a hidden layer, and hidden layers.
            dtype, key: type and seed of the weights.
        """
        rows, columns, channels = places.shape
        margin = patch // 2
        wide = np.full((rows + 2 * margin, columns + 2 * margin, channels), places.size)
        wide[margin : margin + rows, margin : margin + columns] = places
        seen = np.lib.stride_tricks.sliding_window_view(wide, (patch, patch), (0, 1))
        seen = np.moveaxis(seen, 2, -1).reshape(rows * columns, patch * patch * channels)
        first_key, key = split_key(key)
        draw = weights(first_key, (seen.shape[1] + 1, width), dtype, seen.shape[1] ** -0.5)
        rest = mlp(
            width, outputs, width=width, depth=depth - 1, activation=silu, last=0.0, dtype=dtype, key=key
        )
        none = np.zeros((len(seen), width), dtype), np.zeros((len(seen), outputs), dtype)
        return WindowNetwork(
            on_device(seen), Linear(on_device(draw[:-1]), on_device(draw[-1])), rest, *map(on_device, none)
        )

    def __call__(self, x: Array) -> Array:
        padded = jnp.append(x, jnp.zeros((), x.dtype))

        def at(seen: Array, inner: Array, outer: Array) -> Array:
            return self.rest(silu(self.first(padded[seen]) + inner)) + outer

        return jax.vmap(at)(self.patches, self.inner, self.outer)
