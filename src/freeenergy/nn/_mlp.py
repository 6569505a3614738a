"""A multilayer perceptron that is one matrix product per layer under `vmap`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._core import on_device, parameter, split_key, weights


def relu(x: Array) -> Array:
    """max(x, 0), slope ½ at 0; a plain function, unlike JAX's own, which a pickled network can name."""
    return jnp.maximum(x, 0)


class Linear(eqx.Module):
    """x ↦ x W + b, with W of shape (inputs, outputs).

    `equinox.nn.Linear` multiplies from the left, and under `vmap` its batch comes out as the last
    axis and has to be transposed back; this order keeps the batch first, forwards and backwards.

    Attributes:
        weight: W.
        bias: b.

    >>> Linear(jnp.array([[1.0], [2.0]]), jnp.array([0.5]))(jnp.array([1.0, 1.0])).tolist()
    [3.5]
    """

    weight: Array = parameter()
    bias: Array = parameter()

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Linear layers with `activation` between them.

    >>> import jax
    >>> network = mlp(3, 2, width=8, depth=1, key=jax.random.key(0))
    >>> [layer.weight.shape for layer in network.layers]
    [(3, 8), (8, 2)]
    """

    layers: tuple[Linear, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True, default=relu)

    def __call__(self, x: Array) -> Array:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


def mlp(
    inputs: int,
    outputs: int,
    *,
    width: int,
    depth: int,
    activation: Callable[[Array], Array] = relu,
    last: float | None = None,
    dtype: Any = jnp.float32,
    key: Array,
) -> MLP:
    """A random `MLP` with `depth` hidden layers of `width` units.

    Weights and biases are uniform in ±1/√inputs of their layer.  With `last`, the last layer begins with
    that part of such weights, and with biases of zero.
    """
    sizes = [inputs, *[width] * depth, outputs]

    def layer(i: int, key: Array) -> Linear:
        bound = 1 / math.sqrt(sizes[i])
        draw = weights(key, (sizes[i] + 1, sizes[i + 1]), dtype, bound)
        weight, bias = draw[:-1], draw[-1]
        if last is not None and i == depth:
            weight, bias = last * weight, 0 * bias
        return Linear(on_device(weight), on_device(bias))

    keys = split_key(key, depth + 1)
    return MLP(tuple(layer(i, k) for i, k in enumerate(keys)), activation)
