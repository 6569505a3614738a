"""Networks that see through noise: they are told how much of it there is."""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import silu
from jaxtyping import Float

from .._core import on_device, parameter, split_key, weights

# entries beyond so many standard deviations are told as this many
FAR = 20.0
# waves along the log-SNR, and the longest of them
WAVES, _LONGEST = 16, 64.0
# of the longest wave along an entry; each other is half as long as the one before
_RATE = 1.5


class AbstractDenoiserNetwork(eqx.Module):
    """A network of a noisy event and the log-SNR."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " dim"], log_snr: Float[Array, ""]) -> Float[Array, " dim"]:
        """A number for each entry of `x`, which has about unit variance."""


class AbstractDenoiser(eqx.Module):
    """What makes a denoiser of the size that is needed."""

    @abc.abstractmethod
    def build(
        self, dim: int, *, told: int = 0, dtype: Any = jnp.float32, key: Array
    ) -> AbstractDenoiserNetwork:
        """A network for `dim` entries; its last layer is zero, so that at first it says zero.

        With `told` its input has so many numbers more, such as those of a label, after the entries.
        """


def log_snr_waves(log_snr: Array) -> Array:
    """Sines and cosines of the log-SNR, of lengths from long to short."""
    lengths = np.geomspace(_LONGEST, 2.0, WAVES)
    angles = jnp.asarray(2 * math.pi / lengths, log_snr.dtype) * log_snr
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])


def _features(x: Array, waves: int) -> Array:
    """Entries, and waves along them, by which small differences are seen at once."""
    x = jnp.clip(x, -FAR, FAR)
    angles = jnp.outer(jnp.asarray(_RATE * 2.0 ** np.arange(waves), x.dtype), x).ravel()
    return jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)])


class ResidualNetwork(AbstractDenoiserNetwork):
    """A perceptron with residual blocks, each of which is scaled and shifted by the log-SNR.

        h = U w + b,   h ← h + B silu((1 + s) (A silu(h) + a) + r) in each block,   output = V h

    where w are the entries of x and perhaps waves along them, and (s, r) of each block is linear in waves
    along the log-SNR.

    Attributes:
        first, bias: U and b.
        told, told_bias: from the waves to s and r of each block.
        inner, inner_bias, outer: A, a and B of each block.
        last: V.

    >>> import jax
    >>> network = ResidualDenoiser(width=8, depth=1).build(3, key=jax.random.key(0))
    >>> network(jnp.zeros(3, jnp.float32), jnp.float32(0)).tolist()
    [0.0, 0.0, 0.0]
    """

    first: Array = parameter()
    bias: Array = parameter()
    told: Array = parameter()
    told_bias: Array = parameter()
    inner: Array = parameter()
    inner_bias: Array = parameter()
    outer: Array = parameter()
    last: Array = parameter()

    def __call__(self, x: Float[Array, " dim"], log_snr: Float[Array, ""]) -> Float[Array, " dim"]:
        waves = log_snr_waves(log_snr)
        h = _features(x, (len(self.first) // len(x) - 1) // 2) @ self.first + self.bias
        for i in range(len(self.inner)):
            scale, shift = jnp.split(waves @ self.told[i] + self.told_bias[i], 2)
            inside = silu(h) @ self.inner[i] + self.inner_bias[i]
            h = h + silu((1 + scale) * inside + shift) @ self.outer[i]
        return h @ self.last


class ResidualDenoiser(AbstractDenoiser):
    """A `ResidualNetwork`, for tables.

    Attributes:
        width: hidden units.
        depth: residual blocks, of two layers each.
        waves: along each entry, for details that many rows tell; with few rows they are learned by heart.

    >>> ResidualDenoiser(width=32).depth
    3
    """

    width: int = eqx.field(static=True, default=128)
    depth: int = eqx.field(static=True, default=3)
    waves: int = eqx.field(static=True, default=0)

    def build(self, dim: int, *, told: int = 0, dtype: Any = jnp.float32, key: Array) -> ResidualNetwork:
        width, depth, inputs = self.width, self.depth, (dim + told) * (1 + 2 * self.waves)
        keys = split_key(key, 5)

        def uniform(key: Array, inputs: int, *shape: int) -> Array:
            return on_device(weights(key, shape, dtype, inputs**-0.5))

        def zeros(*shape: int) -> Array:
            return on_device(weights(key, shape, dtype, 0.0))

        return ResidualNetwork(
            uniform(keys[0], inputs, inputs, width),
            uniform(keys[1], 1, width),
            uniform(keys[2], 2 * WAVES, depth, 2 * WAVES, 2 * width),
            zeros(depth, 2 * width),
            uniform(keys[3], width, depth, width, width),
            zeros(depth, width),
            uniform(keys[4], width, depth, width, width),
            zeros(width, dim),
        )
