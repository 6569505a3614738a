"""Networks that see through noise and know where entries lie: images, and series of one length."""

from __future__ import annotations

import itertools
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.nn import silu
from jaxtyping import Float

from .._core import dense, on_device, parameter, split_key, weights
from ._attention import asked, attended, normalised
from ._denoiser import FAR, WAVES, AbstractDenoiser, AbstractDenoiserNetwork, log_snr_waves


def _sizes(recipe: Any, name: str) -> tuple[int, ...]:
    """A number for each axis that is cut; an int stands for the first two, or for the only one."""
    given = getattr(recipe, name)
    return given if isinstance(given, tuple) else (given,) * min(len(recipe.shape), 2)


def _check_shape(recipe: Any, name: str) -> None:
    """Refuses shapes that are none, and what has more axes than they have."""
    kind, shape, given = type(recipe).__name__, recipe.shape, getattr(recipe, name)
    if not isinstance(shape, tuple) or not shape or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"The 'shape' of {kind} must be a tuple of whole numbers. Got {shape!r} instead.")
    sizes = _sizes(recipe, name)
    if not 0 < len(sizes) <= len(shape) or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ValueError(
            f"The '{name}' of {kind} must be a whole number, or one for each axis that is cut. "
            f"Got {given!r} instead."
        )


def _check_columns(recipe: Any, dim: int) -> None:
    if math.prod(recipe.shape) != dim:
        raise ValueError(
            f"The 'shape' of {type(recipe).__name__} must have as many entries as rows have columns, "
            f"{dim:,}. Got {recipe.shape}, which has {math.prod(recipe.shape):,}, instead."
        )


def _uniform(key: Array, inputs: int, *shape: int, dtype: Any) -> Array:
    return on_device(weights(key, shape, dtype, inputs**-0.5))


def _zeros(key: Array, *shape: int, dtype: Any) -> Array:
    return on_device(weights(key, shape, dtype, 0.0))


def _parted(x: Array, log_snr: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The entries of an event, and what blocks are told: waves along the log-SNR, and what came after x."""
    size = math.prod(shape)
    return x[:size], jnp.concatenate([log_snr_waves(log_snr), x[size:]])


def _moved(h: Array, scale: Array, shift: Array) -> Array:
    """Normalised places, scaled and shifted as the log-SNR says."""
    return normalised(h) * (1 + scale)[None] + shift[None]


# -- patches and attention --------------------------------------------------------------------------


class PatchNetwork(AbstractDenoiserNetwork):
    """A transformer over patches, whose blocks are scaled, shifted and gated by the log-SNR (DiT).

        h_i = P x_i + p_i,       output_i = V ((1 + s) h̄_i + r),       and in each block
        h ← h + g · attention((1 + s) h̄ + r),    h_i ← h_i + g · B silu(A ((1 + s) h̄_i + r) + a)

    where x_i are the entries of patch i and h̄_i is h_i with mean zero and variance one.  Each s, r and g
    is linear in waves along the log-SNR, and what is told of a label, with weights of its own.

    Attributes:
        embed, position: P and the p_i.
        told, told_bias: from the waves to both s, r and g of each block.
        attend, mix: of each block, before and after the heads: queries, keys and values, and what is found.
        wide, wide_bias, narrow: A, a and B of each block.
        ending, ending_bias: from the waves to s and r of the last layer.
        last: V.
        heads: of attention in a block.
        shape, patch: of an event, and of a patch along the axes that are cut.

    References:
        Peebles and Xie (2023), Scalable diffusion models with transformers.

    >>> import jax
    >>> network = PatchDenoiser((4, 4), 2, width=8, depth=1, heads=2).build(16, key=jax.random.key(0))
    >>> bool(jnp.any(network(jnp.zeros(16, jnp.float32), jnp.float32(0))))
    False
    """

    embed: Array = parameter()
    position: Array = parameter()
    told: Array = parameter()
    told_bias: Array = parameter()
    attend: Array = parameter()
    mix: Array = parameter()
    wide: Array = parameter()
    wide_bias: Array = parameter()
    narrow: Array = parameter()
    ending: Array = parameter()
    ending_bias: Array = parameter()
    last: Array = parameter()
    heads: int = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    shape: tuple[int, ...] = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    patch: tuple[int, ...] = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]

    def __call__(self, x: Float[Array, " dim"], log_snr: Float[Array, ""]) -> Float[Array, " dim"]:
        x, waves = _parted(x, log_snr, self.shape)
        h = dense(self._patches(jnp.clip(x, -FAR, FAR)), self.embed) + self.position
        for i in range(len(self.attend)):
            s, r, g, s2, r2, g2 = jnp.split(waves @ self.told[i] + self.told_bias[i], 6)
            found = attended(*asked(_moved(h, s, r), self.attend[i], self.heads))
            h = h + g[None] * dense(found.reshape(h.shape), self.mix[i])
            inside = silu(dense(_moved(h, s2, r2), self.wide[i]) + self.wide_bias[i][None])
            h = h + g2[None] * dense(inside, self.narrow[i])
        s, r = jnp.split(waves @ self.ending + self.ending_bias, 2)
        return self._entries(dense(_moved(h, s, r), self.last))

    @property
    def _counts(self) -> tuple[int, ...]:
        """Patches along each axis that is cut."""
        return tuple(n // p for n, p in zip(self.shape, self.patch, strict=False))

    def _patches(self, x: Array) -> Array:
        """The entries of each patch, a row each."""
        axes, rest = len(self.patch), self.shape[len(self.patch) :]
        split = [n for pair in zip(self._counts, self.patch, strict=True) for n in pair]
        x = x.reshape(*split, *rest)
        order = [*range(0, 2 * axes, 2), *range(1, 2 * axes, 2), *range(2 * axes, x.ndim)]
        return x.transpose(order).reshape(len(self.position), -1)

    def _entries(self, patches: Array) -> Array:
        """The event of which these are the patches."""
        axes, rest = len(self.patch), self.shape[len(self.patch) :]
        x = patches.reshape(*self._counts, *self.patch, *rest)
        order = [n for i in range(axes) for n in (i, axes + i)]
        return x.transpose(*order, *range(2 * axes, x.ndim)).reshape(-1)


class PatchDenoiser(AbstractDenoiser):
    """A `PatchNetwork`: for images, and for series of one length; also known as a vision transformer.

    An image is cut into patches, a series into runs of steps, each with a place that is learned; places
    attend to each other.
    Attributes:
        shape: of the event that a row is: (height, width), (height, width, channels), (steps, features),
            …; the last axis runs fastest.
        patch: entries along each axis that is cut; an int stands for two axes, or for one if `shape` has
            only one.  The other axes stay whole: `(1,)` makes a place of every step of a series.
        width: numbers that a place has between blocks; a multiple of `heads`.
        depth: blocks.
        heads: of attention in a block.

    >>> PatchDenoiser((28, 28)).patch
    4
    >>> import jax
    >>> PatchDenoiser((60, 3), patch=(5,)).build(180, key=jax.random.key(0)).position.shape
    (12, 64)
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    patch: int | tuple[int, ...] = eqx.field(static=True, default=4)
    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=4)
    heads: int = eqx.field(static=True, default=4)

    def __check_init__(self) -> None:
        _check_shape(self, "patch")
        if any(n % p for n, p in zip(self.shape, _sizes(self, "patch"), strict=False)):
            raise ValueError(
                f"The 'patch' of PatchDenoiser must divide its shape, {self.shape}. "
                f"Got {self.patch} instead."
            )
        if self.width % self.heads:
            raise ValueError(
                f"The 'width' of PatchDenoiser must be a multiple of its {self.heads} heads. "
                f"Got {self.width} instead."
            )

    def build(self, dim: int, *, told: int = 0, dtype: Any = jnp.float32, key: Array) -> PatchNetwork:
        _check_columns(self, dim)
        width, depth, patch = self.width, self.depth, _sizes(self, "patch")
        places = math.prod(n // p for n, p in zip(self.shape, patch, strict=False))
        keys = split_key(key, 8)

        def uniform(number: int, inputs: int, *shape: int) -> Array:
            return _uniform(keys[number], inputs, *shape, dtype=dtype)

        def zeros(*shape: int) -> Array:
            return _zeros(key, *shape, dtype=dtype)

        return PatchNetwork(
            uniform(0, dim // places, dim // places, width),
            uniform(1, 1, places, width),
            uniform(2, 2 * WAVES, depth, 2 * WAVES + told, 6 * width),
            zeros(depth, 6 * width),
            uniform(3, width, depth, width, 3 * width),
            uniform(4, width, depth, width, width),
            uniform(5, width, depth, width, 4 * width),
            zeros(depth, 4 * width),
            uniform(6, 4 * width, depth, 4 * width, width),
            uniform(7, 2 * WAVES, 2 * WAVES + told, 2 * width),
            zeros(2 * width),
            zeros(width, dim // places),
            self.heads,
            self.shape,
            patch,
        )


# -- convolutions -----------------------------------------------------------------------------------


def _convolved(h: Array, grid: tuple[int, ...], kernel: tuple[int, ...], weight: Array) -> Array:
    """A convolution of places on a grid, with zeros around it.

    As one product with the neighbours of each place: XLA's own takes ten times as long in a loop on CPUs.
    """
    edges = [(k // 2, k // 2) for k in kernel]
    padded = jnp.pad(h.reshape(*grid, -1), [*edges, (0, 0)])
    seen = [
        padded[tuple(slice(o, o + n) for o, n in zip(offsets, grid, strict=True))]
        for offsets in itertools.product(*map(range, kernel))
    ]
    return dense(jnp.concatenate(seen, axis=-1).reshape(len(h), -1), weight)


def _halved(h: Array, grid: tuple[int, ...]) -> Array:
    """Means of neighbours two by two."""
    pairs = [n for size in grid for n in (size // 2, 2)]
    means = jnp.mean(h.reshape(*pairs, h.shape[1]), axis=tuple(range(1, 2 * len(grid), 2)))
    return means.reshape(-1, h.shape[1])


def _doubled(h: Array, grid: tuple[int, ...]) -> Array:
    """Each place of a grid twice along each axis."""
    h = h.reshape(*grid, -1)
    for axis in range(len(grid)):
        h = jnp.repeat(h, 2, axis=axis)
    return h.reshape(-1, h.shape[-1])


class _Convolutions(eqx.Module):
    """Two convolutions, scaled and shifted by the log-SNR between them, added to what was there."""

    told: Array = parameter()
    told_bias: Array = parameter()
    inner: Array = parameter()
    outer: Array = parameter()

    def __call__(self, h: Array, waves: Array, grid: tuple[int, ...], kernel: tuple[int, ...]) -> Array:
        scale, shift = jnp.split(waves @ self.told + self.told_bias, 2)
        inside = _convolved(silu(normalised(h)), grid, kernel, self.inner)
        return h + _convolved(silu(_moved(inside, scale, shift)), grid, kernel, self.outer)


class ConvolutionalNetwork(AbstractDenoiserNetwork):
    """A U-Net: convolutions at several resolutions, each of which hands what it saw to the way back up.

        down:  h_0 = C ∗ x,   h_l ← block(h_l),   h_{l+1} = F_l · (means of h_l two by two);
        up:    h_l ← block(K_l h_l + R_l · (h_{l+1}, each place twice)),   output = V h̄_0

    where a block is h + B ∗ silu((1 + s) g + r) with g = A ∗ silu(h̄), normalised as h̄ is, and (s, r) linear
    in waves along the log-SNR.

    Attributes:
        first: C, of the neighbours of a place.
        down, bottom, up: blocks, from the finest on.
        fall, rise, keep: the F_l, R_l and K_l.
        last: V.
        shape, kernel: of an event, and of the neighbours that a convolution sees.

    References:
        Ronneberger, Fischer and Brox (2015), U-Net: convolutional networks for biomedical image
            segmentation.
        Ho, Jain and Abbeel (2020), Denoising diffusion probabilistic models.

    >>> import jax
    >>> network = ConvolutionalDenoiser((4, 4), width=4, levels=2).build(16, key=jax.random.key(0))
    >>> bool(jnp.any(network(jnp.zeros(16, jnp.float32), jnp.float32(0))))
    False
    """

    first: Array = parameter()
    down: tuple[_Convolutions, ...]  # pyright: ignore[reportGeneralTypeIssues]
    bottom: _Convolutions  # pyright: ignore[reportGeneralTypeIssues]
    up: tuple[_Convolutions, ...]  # pyright: ignore[reportGeneralTypeIssues]
    fall: tuple[Array, ...] = parameter()
    rise: tuple[Array, ...] = parameter()
    keep: tuple[Array, ...] = parameter()
    last: Array = parameter()
    shape: tuple[int, ...] = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    kernel: tuple[int, ...] = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]

    def __call__(self, x: Float[Array, " dim"], log_snr: Float[Array, ""]) -> Float[Array, " dim"]:
        (x, waves), kernel = _parted(x, log_snr, self.shape), self.kernel
        finest = self.shape[: len(kernel)]
        grids = [tuple(n // 2**level for n in finest) for level in range(len(self.down) + 1)]
        x = jnp.clip(x, -FAR, FAR).reshape(math.prod(finest), -1)
        h, kept = _convolved(x, finest, kernel, self.first), []
        for block, fall, grid in zip(self.down, self.fall, grids[:-1], strict=True):
            h = block(h, waves, grid, kernel)
            kept.append(h)
            h = dense(_halved(h, grid), fall)
        h = self.bottom(h, waves, grids[-1], kernel)
        for level in reversed(range(len(self.up))):
            risen = _doubled(dense(h, self.rise[level]), grids[level + 1])
            h = self.up[level](dense(kept[level], self.keep[level]) + risen, waves, grids[level], kernel)
        return dense(normalised(h), self.last).reshape(-1)


class ConvolutionalDenoiser(AbstractDenoiser):
    """A `ConvolutionalNetwork`: for images, and for series of one length, where what is near counts most.

    It knows no places but the edges, so that few rows teach it much, and takes longer than `PatchDenoiser`.

    Attributes:
        shape: of the event that a row is, as in `PatchDenoiser`; a multiple of 2^(levels − 1) along each
            axis of the convolution.
        kernel: neighbours that a convolution sees along each of its axes, odd numbers; an int stands for
            two axes, or for one if `shape` has only one.  `(5,)` goes along the steps of a series.
        width: channels at the finest resolution; each coarser one has twice as many.
        levels: resolutions, each half as fine as the one before.

    >>> ConvolutionalDenoiser((28, 28)).levels
    3
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    kernel: int | tuple[int, ...] = eqx.field(static=True, default=3)
    width: int = eqx.field(static=True, default=16)
    levels: int = eqx.field(static=True, default=3)

    def __check_init__(self) -> None:
        _check_shape(self, "kernel")
        kernel = _sizes(self, "kernel")
        if not all(k % 2 for k in kernel):
            raise ValueError(
                f"The 'kernel' of ConvolutionalDenoiser must be odd. Got {self.kernel} instead."
            )
        if any(n % 2 ** (self.levels - 1) for n in self.shape[: len(kernel)]):
            raise ValueError(
                f"The 'levels' of ConvolutionalDenoiser must halve its shape, {self.shape}, each time. "
                f"Got {self.levels} instead."
            )

    def build(
        self, dim: int, *, told: int = 0, dtype: Any = jnp.float32, key: Array
    ) -> ConvolutionalNetwork:
        _check_columns(self, dim)
        kernel = _sizes(self, "kernel")
        near, channels = math.prod(kernel), math.prod(self.shape[len(kernel) :])
        widths = [self.width * 2**level for level in range(self.levels)]
        pairs = list(itertools.pairwise(widths))
        first, *keys = split_key(key, 2 * self.levels + 3)

        def uniform(key: Array, inputs: int, *shape: int) -> Array:
            return _uniform(key, inputs, *shape, dtype=dtype)

        def block(key: Array, width: int) -> _Convolutions:
            first, inner, outer = split_key(key, 3)
            return _Convolutions(
                uniform(first, 2 * WAVES, 2 * WAVES + told, 2 * width),
                _zeros(key, 2 * width, dtype=dtype),
                uniform(inner, near * width, near * width, width),
                uniform(outer, near * width, near * width, width),
            )

        def maps(key: Array, sizes: list[tuple[int, int]]) -> tuple[Array, ...]:
            return tuple(
                uniform(k, inputs, inputs, outputs)
                for k, (inputs, outputs) in zip(split_key(key, len(sizes)), sizes, strict=True)
            )

        blocks = [block(k, w) for k, w in zip(keys, [*widths, *widths[:-1]], strict=False)]
        return ConvolutionalNetwork(
            uniform(first, near * channels, near * channels, self.width),
            tuple(blocks[: self.levels - 1]),
            blocks[self.levels - 1],
            tuple(blocks[self.levels :]),
            maps(keys[-3], pairs),
            maps(keys[-2], [(b, a) for a, b in pairs]),
            maps(keys[-1], [(a, a) for a, _ in pairs]),
            _zeros(key, self.width, channels, dtype=dtype),
            self.shape,
            kernel,
        )
