"""The autoencoder: a code of each event, and the way back, without noise and without a density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._core import split_key
from ..nn import MLP, mlp
from ..nn._mlp import relu
from ._base import AbstractCoded


class Autoencoder(AbstractCoded):
    """h = f(x), r = g(h): a code h from which the event is had again.

    It is the limit of a VAE whose recognition is a point and whose prior is flat.  With linear f and g,
    fewer entries of h than of x and squared errors, the best is the plane of principal components.

    Attributes:
        encoder: f; entries of x that are not observed are zero, and with `mask_input` it is told which.
        decoder: g.
        rectified: whether codes are max(0, ·), so that they have exact zeros.
        mask_input: whether the input of f is x followed by a one per observed entry.

    >>> model = Autoencoder(lambda x: x[:1], lambda h: jnp.concatenate([h, h]))
    >>> model.reconstruct(jnp.array([3.0, 5.0])).tolist()
    [3.0, 3.0]
    """

    encoder: Callable[[Array], Array]
    decoder: Callable[[Array], Array]
    rectified: bool = eqx.field(static=True, default=False)
    mask_input: bool = eqx.field(static=True, default=False)

    def encode(self, x: Array) -> Array:
        """h."""
        observed = ~jnp.isnan(x)
        seen = jnp.where(observed, x, 0)
        if self.mask_input:
            seen = jnp.concatenate([seen, observed.astype(x.dtype)])
        h = self.encoder(seen)
        return relu(h) if self.rectified else h

    def decode(self, h: Array) -> Array:
        """r."""
        return self.decoder(h)

    def reconstruct(self, x: Array) -> Array:
        """r of the code of x."""
        return self.decode(self.encode(x))


def mlp_autoencoder(
    dim: int,
    latent_dim: int,
    *,
    width: int = 128,
    depth: int = 1,
    rectified: bool = False,
    mask_input: bool = False,
    dtype: Any = jnp.float32,
    key: Array,
) -> Autoencoder:
    """An autoencoder with perceptrons of `depth` hidden layers of `width` ReLU units on both sides.

    >>> import jax
    >>> model = mlp_autoencoder(3, 2, width=4, key=jax.random.key(0))
    >>> model.reconstruct(jnp.zeros(3, jnp.float32)).shape
    (3,)
    """
    first, second = split_key(key)
    sizes = {"width": width, "depth": depth, "dtype": dtype}
    encoder = mlp(2 * dim if mask_input else dim, latent_dim, **sizes, key=first)
    return Autoencoder(encoder, mlp(latent_dim, dim, **sizes, key=second), rectified, mask_input)


def layer_autoencoder(whole: Autoencoder, place: int) -> Autoencoder:
    """One layer of an autoencoder of perceptrons, with the layer that undoes it: a stage of `stacked`.

    What it is an autoencoder of is what the layers before it make of an event.

    >>> import jax
    >>> whole = mlp_autoencoder(3, 2, width=4, key=jax.random.key(0))
    >>> layer_autoencoder(whole, 1).encode(jnp.ones(4, jnp.float32)).shape
    (2,)
    """
    encoder, decoder = _layers(whole)
    last = place == len(encoder) - 1
    back = MLP((decoder[len(decoder) - 1 - place],))
    # between the layers of a perceptron, and so on both sides of all stages but the first and the last
    undo = back if place == 0 else _Rectified(back)
    return Autoencoder(
        MLP((encoder[place],)),
        undo,
        whole.rectified if last else True,
        whole.mask_input if place == 0 else False,
    )


def stacked(whole: Autoencoder, stages: list[Autoencoder]) -> Autoencoder:
    """`whole` with the layers of its stages (greedy layer-wise training).

    >>> import jax
    >>> whole = mlp_autoencoder(3, 2, width=4, key=jax.random.key(0))
    >>> stages = [layer_autoencoder(whole, place) for place in range(2)]
    >>> bool(eqx.tree_equal(stacked(whole, stages), whole))
    True
    """
    encoder = tuple(stage.encoder.layers[0] for stage in stages)  # pyright: ignore[reportFunctionMemberAccess]
    undone = [
        stage.decoder.inner if isinstance(stage.decoder, _Rectified) else stage.decoder for stage in stages
    ]
    decoder = tuple(network.layers[0] for network in reversed(undone))  # pyright: ignore[reportFunctionMemberAccess]
    return Autoencoder(MLP(encoder), MLP(decoder), whole.rectified, whole.mask_input)


class _Rectified(eqx.Module):
    """max(0, network(·))."""

    inner: Callable[[Array], Array]

    def __call__(self, x: Array) -> Array:
        return relu(self.inner(x))


def _layers(whole: Autoencoder) -> tuple[Any, Any]:
    assert isinstance(whole.encoder, MLP)
    assert isinstance(whole.decoder, MLP)
    return whole.encoder.layers, whole.decoder.layers
