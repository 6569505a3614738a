"""Flows: a simple distribution seen through a bijection."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import on_device
from ..bijections import (
    AbstractTransformer,
    Coupling,
    Elementwise,
    Inverse,
    MaskedAutoregressive,
    MaskedMLP,
    Repeated,
)
from ..distributions import Diagonal, Gaussian, Transformed


def coupling_flow(
    dim: int,
    transformer: AbstractTransformer,
    *,
    layers: int = 8,
    width: int = 64,
    depth: int = 2,
    dtype=jnp.float32,
    key: Array,
) -> Transformed:
    """A flow of coupling layers from a Gaussian with learnable mean and scales; it starts as N(0, I).

    Layers come in pairs that exchange what is passive, so that two layers transform every entry; each
    pair splits the entries by another binary digit of their numbers, so that every two entries are parted
    soon.  One entry has no other to be told by: its layers are unconditional.

    Args:
        dim: number of entries of an event.
        transformer: the map of one number, such as `Shift()`, `ShiftScale()` or `Spline()`.
        layers: number of layers.
        width: units in a hidden layer of each conditioner.
        depth: hidden layers of each conditioner.
        dtype: type of all parameters, and of the events.
        key: makes the weights.

    >>> from freeenergy.bijections import Spline
    >>> flow = coupling_flow(2, Spline(), layers=2, width=8, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2, jnp.float32))), 5)
    -1.83788
    """
    _check(dim=dim, layers=layers, width=width, depth=depth)
    if dim == 1:
        parameters = jnp.zeros((layers, 1, transformer.size), dtype)
        return Transformed(_standard_normal(dim, dtype), Repeated(Elementwise(transformer, parameters)))
    stack = _couplings(dim, transformer, layers, width, depth, dtype, key)
    return Transformed(_standard_normal(dim, dtype), Repeated(stack))


@eqx.filter_jit
def _couplings(dim, transformer, layers, width, depth, dtype, key) -> Coupling:
    def layer(order: Array, key: Array) -> Coupling:
        return Coupling.with_mlp(order, transformer, width=width, depth=depth, dtype=dtype, key=key)

    return eqx.filter_vmap(layer)(_orders(dim, layers), jax.random.split(key, layers))


def _orders(dim: int, layers: int) -> Array:
    """For each layer the entries, those first that are passive."""
    digits = max(dim - 1, 1).bit_length()
    orders = []
    for i in range(layers):
        order = np.argsort((np.arange(dim) >> (i // 2 % digits)) & 1, kind="stable")
        orders.append(order if i % 2 == 0 else np.roll(order, dim - dim // 2))
    return jnp.asarray(np.stack(orders))


def autoregressive_flow(
    dim: int,
    transformer: AbstractTransformer,
    *,
    layers: int = 4,
    width: int = 64,
    depth: int = 2,
    dtype=jnp.float32,
    key: Array,
) -> Transformed:
    """A masked autoregressive flow from a Gaussian with learnable mean and scales; it starts as N(0, I).

    `log_prob` is one pass through each network and `sample` one a dimension.  The order of the
    entries is reversed from layer to layer.  Arguments as in `coupling_flow`.

    >>> from freeenergy.bijections import ShiftScale
    >>> flow = autoregressive_flow(2, ShiftScale(), layers=2, width=8, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2, jnp.float32))), 5)
    -1.83788
    """
    _check(dim=dim, layers=layers, width=width, depth=depth)
    stack = _autoregressions(dim, transformer, layers, width, depth, dtype, key)
    return Transformed(_standard_normal(dim, dtype), Repeated(stack))


@eqx.filter_jit
def _autoregressions(dim, transformer, layers, width, depth, dtype, key) -> Inverse:
    def layer(rank: Array, key: Array) -> Inverse:
        network = MaskedMLP(rank, transformer.size, width=width, depth=depth, dtype=dtype, key=key)
        return Inverse(MaskedAutoregressive(network, transformer))

    forwards = jnp.arange(dim)[None, :]
    ranks = jnp.where((jnp.arange(layers) % 2 == 0)[:, None], forwards, forwards[:, ::-1])
    return eqx.filter_vmap(layer)(ranks, jax.random.split(key, layers))


def _standard_normal(dim: int, dtype) -> Gaussian:
    return Gaussian(on_device(np.zeros(dim), dtype), Diagonal(on_device(np.ones(dim), dtype)))


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(
                f"The '{name}' parameter of a flow must be an int in the range [1, inf). "
                f"Got {value!r} instead."
            )
