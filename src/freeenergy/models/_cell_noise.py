"""Where in its cell a whole or rounded number was: noise whose law is learned."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr

from .._core import on_device
from ..bijections import AbstractTransformer, InTurn, MaskedMLP, ShiftScale, Spline


class CellNoise(eqx.Module):
    """Noise in the unit cube whose law depends on a row, also known as variational dequantisation:

        u_i = Φ(f(ε_i; network(x, ε_1 … ε_{i−1})_i)),   ε ~ N(0, I),

    with Φ the distribution function of N(0, 1), so that the noise is uniform where f is the identity.  It
    is drawn, with its density, in one pass (Flow++, Ho et al. 2019).

    Attributes:
        network: a masked perceptron of the row, of which of its entries are missing, and of ε.
        transformer: f.
        columns: the entries of the row that have noise.

    >>> noise = LearnedNoise(width=4)(3, np.array([0, 2]), dtype=float, key=jax.random.key(0))
    >>> u, log_q = eqx.filter_jit(noise)(jnp.zeros(3), jnp.array([0.0, 1.0]))
    >>> u.round(4).tolist(), abs(round(float(log_q), 6))
    ([0.5, 0.8413], 0.0)
    """

    network: MaskedMLP
    transformer: AbstractTransformer
    columns: Array

    def __call__(self, x: Array, noise: Array) -> tuple[Array, Array]:
        """u that standard normal noise makes in the row x, and log q(u | x)."""
        unknown = jnp.isnan(x)
        seen = jnp.concatenate([jnp.where(unknown, 0, x), unknown.astype(x.dtype), noise])
        parameters = self.network(seen)[-len(noise) :]
        v, log_slope = jax.vmap(self.transformer.forward)(noise, parameters)
        return ndtr(v), jnp.sum(0.5 * (v**2 - noise**2) - log_slope)


class LearnedNoise(eqx.Module):
    """What `CellNoise` is made of: noise for `Dequantised` that is learned with the density.

    Args:
        width, depth: hidden units in a layer of its network, and layers.
        transformer: the map of each number; None for a spline followed by a shift and a scale.

    >>> LearnedNoise(width=16).depth
    1
    """

    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=1)
    transformer: AbstractTransformer | None = None

    def __check_init__(self) -> None:
        for name, value in {"width": self.width, "depth": self.depth}.items():
            if value < 1:
                raise ValueError(
                    f"The '{name}' parameter of LearnedNoise must be an int in the range [1, inf). "
                    f"Got {value!r} instead."
                )

    def __call__(self, dim: int, columns: np.ndarray, *, dtype: Any = jnp.float32, key: Array) -> CellNoise:
        """Noise for these of the `dim` entries of a row; it is uniform, with a last layer of zeros."""
        map_ = InTurn(Spline(bound=3.0), ShiftScale()) if self.transformer is None else self.transformer
        rank = np.arange(2 * dim + len(columns))
        network = MaskedMLP(rank, map_.size, width=self.width, depth=self.depth, dtype=dtype, key=key)
        return CellNoise(network, map_, on_device(columns))


class InCells(eqx.Module):
    """A density and the noise in cells that is learned with it.

    Attributes:
        density: of rows with noise.
        noise: a `CellNoise`.

    >>> InCells(None, None).noise is None
    True
    """

    density: Any
    noise: Any
