"""Bijections made of bijections."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ._base import AbstractBijection


class Inverse(AbstractBijection):
    """The bijection with its two directions exchanged.

    >>> from freeenergy.bijections import Sigmoid
    >>> Inverse(Sigmoid()).forward(jnp.array([0.5]))[0].tolist()
    [0.0]
    """

    bijection: AbstractBijection

    def forward(self, x: Array) -> tuple[Array, Array]:
        return self.bijection.inverse(x)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        return self.bijection.forward(y)


class Chain(AbstractBijection):
    """One after the other: `forward` applies the first bijection first; log-determinants add.

    >>> from freeenergy.bijections import Affine, Exp
    >>> chain = Chain([Affine(jnp.array([1.0]), jnp.array([2.0])), Exp()])
    >>> chain.forward(jnp.array([-0.5]))[0].tolist()
    [1.0]
    """

    bijections: tuple[AbstractBijection, ...]

    def __init__(self, bijections: Sequence[AbstractBijection]) -> None:
        self.bijections = tuple(bijections)

    def forward(self, x: Array) -> tuple[Array, Array]:
        total = jnp.zeros((), x.dtype)
        for bijection in self.bijections:
            x, log_det = bijection.forward(x)
            total += log_det
        return x, total

    def inverse(self, y: Array) -> tuple[Array, Array]:
        total = jnp.zeros((), y.dtype)
        for bijection in reversed(self.bijections):
            y, log_det = bijection.inverse(y)
            total += log_det
        return y, total


class Repeated(AbstractBijection):
    """A chain of layers of one structure, stacked along the leading axis of their arrays.

    It is a scan, so that the time to compile does not grow with the number of layers.

    Attributes:
        layers: one bijection whose arrays have a leading axis, as `equinox.filter_vmap` makes it.

    >>> from freeenergy.bijections import Affine
    >>> twice = Repeated(Affine(jnp.zeros((2, 1)), jnp.full((2, 1), 3.0)))
    >>> twice.forward(jnp.array([1.0]))[0].tolist()
    [9.0]
    """

    layers: AbstractBijection

    def forward(self, x: Array) -> tuple[Array, Array]:
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def apply(carry: tuple[Array, Array], layer: AbstractBijection):
            x, total = carry
            x, log_det = eqx.combine(layer, static).forward(x)
            return (x, total + log_det), None

        return jax.lax.scan(apply, (x, jnp.zeros((), x.dtype)), arrays)[0]

    def inverse(self, y: Array) -> tuple[Array, Array]:
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def apply(carry: tuple[Array, Array], layer: AbstractBijection):
            y, total = carry
            y, log_det = eqx.combine(layer, static).inverse(y)
            return (y, total + log_det), None

        return jax.lax.scan(apply, (y, jnp.zeros((), y.dtype)), arrays, reverse=True)[0]


class Shared(AbstractBijection):
    """The same map on each of several groups of entries; entries of no group stay.

    y[g] = f(x[g]) for every group g.  With `GeneralAffine` and the channels of each place of an image as
    groups it is the invertible 1×1 convolution of Glow (Kingma and Dhariwal 2018).

    Attributes:
        bijection: f, a map of events as long as a group.
        groups: the entries of each group, a row of integers; no entry is in two groups.

    >>> from freeenergy.bijections import Affine
    >>> layer = Shared(Affine(jnp.zeros(2), jnp.array([2.0, 3.0])), jnp.array([[0, 1], [4, 2]]))
    >>> layer.forward(jnp.ones(5))[0].tolist()
    [2.0, 3.0, 3.0, 1.0, 2.0]
    """

    bijection: AbstractBijection
    groups: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        y, log_det = jax.vmap(self.bijection.forward)(x[self.groups])
        return x.at[self.groups].set(y), jnp.sum(log_det)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        x, log_det = jax.vmap(self.bijection.inverse)(y[self.groups])
        return y.at[self.groups].set(x), jnp.sum(log_det)
