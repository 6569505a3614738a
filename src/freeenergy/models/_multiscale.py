"""Flows of images: the coarser the scale, the fewer entries are still transformed."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import on_device, split_key, stacked
from ..bijections import (
    AbstractBijection,
    AbstractTransformer,
    Chain,
    Coupling,
    GeneralAffine,
    Inverse,
    Repeated,
    Shared,
)
from ..distributions import Transformed
from ..nn import WindowNetwork
from ._flow import _check, _standard_normal


class MultiscaleFlow(eqx.Module):
    """An architecture for flows of images (RealNVP, Dinh et al. 2016; Glow, Kingma and Dhariwal 2018).

    From the data to the noise, at each scale: every 2×2 block of places becomes one place with four times
    the channels; then steps of an invertible matrix that mixes the channels of a place, the same one at
    every place, and of a coupling in which half of the channels are transformed as the other half says
    in a window around the place; then the half that was transformed last goes to the base and the other
    on to the next scale.  Networks share their weights over the places of a scale.

    It is called as `coupling_flow` is, with rows as long as an image; `layers` are the steps at each
    scale.  It starts as N(0, I).

    Args:
        shape: height, width and, if there are several, channels of an image, whose last axis varies
            fastest in a row.
        scales: how often blocks become places; None for as long as height and width are even.
        patch: places along a side of the window, an odd number.

    >>> import jax
    >>> from freeenergy.bijections import ShiftScale
    >>> make = MultiscaleFlow((4, 4))
    >>> flow = make(16, ShiftScale(), layers=1, width=8, key=jax.random.key(0))
    >>> round(float(eqx.filter_jit(flow.log_prob)(jnp.zeros(16, jnp.float32))), 4)
    -14.703
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    scales: int | None = eqx.field(static=True, default=None)
    patch: int = eqx.field(static=True, default=3)

    def __check_init__(self) -> None:
        if len(self.shape) not in (2, 3) or min(self.shape) < 1 or self._most() == 0:
            raise ValueError(
                "The 'shape' parameter of MultiscaleFlow must be an even height and width, with or without "
                f"a number of channels. Got {self.shape!r} instead."
            )
        if self.scales is not None and not 1 <= self.scales <= self._most():
            raise ValueError(
                "The 'scales' parameter of MultiscaleFlow must be None or an int in the range "
                f"[1, {self._most()}], how often the shape can be halved. Got {self.scales!r} instead."
            )
        if self.patch < 1 or self.patch % 2 == 0:
            raise ValueError(
                "The 'patch' parameter of MultiscaleFlow must be an odd int in the range [1, inf). "
                f"Got {self.patch!r} instead."
            )

    def _most(self) -> int:
        """How often both sides can be halved."""
        both = math.gcd(*self.shape[:2])
        return (both & -both).bit_length() - 1

    def __call__(
        self,
        dim: int,
        transformer: AbstractTransformer,
        *,
        layers: int = 4,
        width: int = 64,
        depth: int = 2,
        dtype: Any = jnp.float32,
        key: Array,
    ) -> Transformed:
        """The flow; arguments as those of `coupling_flow`."""
        _check(dim=dim, layers=layers, width=width, depth=depth)
        if dim != math.prod(self.shape):
            raise ValueError(
                f"The 'shape' parameter of MultiscaleFlow must be that of the {dim} entries of an event. "
                f"Got {self.shape!r} instead."
            )
        entries = np.arange(dim).reshape(*self.shape[:2], -1)
        parts: list[AbstractBijection] = []
        for scale_key in split_key(key, self._most() if self.scales is None else self.scales):
            entries = _squeezed(entries)
            half = entries.shape[2] // 2
            steps = [
                _step(entries, i, transformer, self.patch, width, depth, dtype, step_key)
                for i, step_key in enumerate(split_key(scale_key, layers))
            ]
            # the way of `forward` is from the noise to the data
            parts.insert(0, Repeated(stacked(steps)))
            entries = entries[..., :half]
        return Transformed(_standard_normal(dim, dtype), Chain(parts))


def _squeezed(entries: np.ndarray) -> np.ndarray:
    """2×2 blocks of places as places with four times the channels."""
    rows, columns, channels = entries.shape
    blocks = entries.reshape(rows // 2, 2, columns // 2, 2, channels)
    return blocks.transpose(0, 2, 1, 3, 4).reshape(rows // 2, columns // 2, 4 * channels)


def _step(
    entries: np.ndarray,
    number: int,
    transformer: AbstractTransformer,
    patch: int,
    width: int,
    depth: int,
    dtype: Any,
    key: Array,
) -> Chain:
    """From the noise to the data: a coupling of the second half of the channels, and their mixing."""
    channels = entries.shape[2]
    passive, active = entries[..., : channels // 2], entries[..., channels // 2 :]
    places = np.arange(passive.size).reshape(passive.shape)
    sizes = {"patch": patch, "width": width, "depth": depth, "dtype": dtype}
    network = WindowNetwork.of(places, active.shape[2] * transformer.size, **sizes, key=key)
    coupling = Coupling(on_device(passive.ravel()), on_device(active.ravel()), network, transformer)
    # any rotation will do, and which one needs no key
    turn = np.linalg.qr(np.random.default_rng(number).normal(size=(channels, channels)))[0]
    mixing = GeneralAffine(on_device(np.zeros(channels), dtype), on_device(turn, dtype))
    # the inverse is what is known, so that no system is solved for a density
    return Chain([coupling, Shared(Inverse(mixing), on_device(entries.reshape(-1, channels)))])
