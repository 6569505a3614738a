"""Layers of flows: a transformer whose parameters are constant, or a function of other entries."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import on_device
from ._base import AbstractBijection
from ._masked import MaskedMLP, draw_layers, identity, silu
from ._transformers import AbstractTransformer


class Elementwise(AbstractBijection):
    """Each entry through a transformer with parameters of its own.

    Attributes:
        transformer: the map of one number.
        parameters: a row of `transformer.size` free numbers for each entry.

    >>> from freeenergy.bijections import Shift
    >>> Elementwise(Shift(), jnp.array([[1.0], [2.0]])).forward(jnp.zeros(2))[0].tolist()
    [1.0, 2.0]
    """

    transformer: AbstractTransformer
    parameters: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        y, log_slope = jax.vmap(self.transformer.forward)(x, self.parameters)
        return y, jnp.sum(log_slope)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        x, log_slope = jax.vmap(self.transformer.inverse)(y, self.parameters)
        return x, jnp.sum(log_slope)


class Coupling(AbstractBijection):
    """The passive entries stay; they tell how the active ones are transformed:

        y_P = x_P,   y_A = f(x_A; conditioner(x_P)).

    The Jacobian is triangular, so its log-determinant is Σ log f′, whatever the conditioner is.

    Attributes:
        passive: which entries stay, as integers.
        active: those that are transformed; an entry that is neither stays, and tells nothing.
        conditioner: a function of the passive entries with `len(active) * transformer.size` values.
        transformer: the map of one number.

    >>> from freeenergy.bijections import Shift
    >>> layer = Coupling(jnp.array([0]), jnp.array([1]), jnp.square, Shift())
    >>> layer.forward(jnp.array([3.0, 1.0]))[0].tolist()
    [3.0, 10.0]
    """

    passive: Array
    active: Array
    conditioner: Callable[[Array], Array]
    transformer: AbstractTransformer

    @staticmethod
    def with_mlp(
        order: Array | np.ndarray,
        transformer: AbstractTransformer,
        *,
        width: int,
        depth: int,
        dtype=jnp.float32,
        key: Array,
    ) -> Coupling:
        """The first half of `order` is passive, the conditioner a perceptron; it starts as the identity."""
        order = np.asarray(order)
        split = order.shape[0] // 2
        n_out = (order.shape[0] - split) * transformer.size
        mlp = eqx.filter_eval_shape(
            eqx.nn.MLP, split, n_out, width, depth, silu, identity, dtype=dtype, key=key
        )
        weights, biases = draw_layers([split, *[width] * depth, n_out], dtype=dtype, key=key)
        mlp = eqx.tree_at(
            lambda m: [layer.weight for layer in m.layers] + [layer.bias for layer in m.layers],
            mlp,
            [*weights, *biases],
        )
        return Coupling(on_device(order[:split]), on_device(order[split:]), mlp, transformer)

    def _parameters(self, x: Array) -> Array:
        return self.conditioner(x[self.passive]).reshape(self.active.shape[0], self.transformer.size)

    def forward(self, x: Array) -> tuple[Array, Array]:
        y, log_slope = jax.vmap(self.transformer.forward)(x[self.active], self._parameters(x))
        return x.at[self.active].set(y), jnp.sum(log_slope)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        x, log_slope = jax.vmap(self.transformer.inverse)(y[self.active], self._parameters(y))
        return y.at[self.active].set(x), jnp.sum(log_slope)


class MaskedAutoregressive(AbstractBijection):
    """Each entry transformed as the entries before it in an order tell:

        y_i = f(x_i; network(x)_i),   network(x)_i a function of the x_j that precede x_i.

    `forward` is one pass of the network, `inverse` one a dimension; a density that is evaluated more
    often than sampled maps data to noise with `forward`.

    Attributes:
        network: gives a row of `transformer.size` numbers for each entry.
        transformer: the map of one number.

    >>> from freeenergy.bijections import Shift
    >>> network = MaskedMLP(jnp.array([0, 1]), 1, width=4, depth=1, key=jax.random.key(0))
    >>> MaskedAutoregressive(network, Shift()).forward(jnp.ones(2, jnp.float32))[0].tolist()
    [1.0, 1.0]
    """

    network: MaskedMLP
    transformer: AbstractTransformer

    def forward(self, x: Array) -> tuple[Array, Array]:
        y, log_slope = jax.vmap(self.transformer.forward)(x, self.network(x))
        return y, jnp.sum(log_slope)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        def fill(x: Array, i: Array) -> tuple[Array, Array]:
            value, log_slope = self.transformer.inverse(y[i], self.network(x)[i])
            return x.at[i].set(value), log_slope

        x, log_slopes = jax.lax.scan(fill, jnp.zeros_like(y), jnp.argsort(self.network.rank))
        return x, jnp.sum(log_slopes)
