"""Distributions made of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import Blocks
from ..bijections import AbstractBijection
from ._base import (
    AbstractDistribution,
    AbstractExponentialFamily,
    fisher_information,
    levels,
    log_partition_at,
    log_prob_at,
    mean_parameters,
    rescaled,
    with_mean,
)


class Product(AbstractExponentialFamily):
    """Independent blocks of columns, each with its own distribution:  p(x) = Π_b p_b(x_b).

    `log_prob`, `sample` and completion serve any parts; with exponential families as parts the
    product is one too, so that a mixture over columns of different kinds needs nothing more.

    Attributes:
        parts: the distributions of the blocks.
        sizes: how many columns each of them takes.
        columns: which columns these are, one block after another; consecutive ones if None.

    >>> from freeenergy.distributions import Bernoulli, Poisson
    >>> mixed = Product((Bernoulli(jnp.array([0.5])), Poisson(jnp.array([1.0]))), sizes=(1, 1))
    >>> mixed.log_prob(jnp.array([1.0, 0.0])).round(6).item()
    -1.693147
    """

    parts: tuple[AbstractExponentialFamily, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if len(self.parts) != len(self.sizes):
            raise ValueError(
                f"The 'sizes' of Product must have one entry a part, {len(self.parts)}. "
                f"Got {len(self.sizes)} instead."
            )
        if self.columns is not None and sorted(self.columns) != list(range(sum(self.sizes))):
            raise ValueError(
                f"The 'columns' of Product must be each of the {sum(self.sizes)} columns once. "
                f"Got {self.columns} instead."
            )

    @property
    def support(self) -> Blocks:
        return Blocks(tuple(part.support for part in self.parts), self.sizes, self.columns)

    def with_parts(self, parts: Iterable[Any]) -> Product:
        """Other distributions of the same blocks."""
        return Product(tuple(parts), self.sizes, self.columns)

    def blocks(self, x: Array) -> list[Array]:
        """The entries of each part."""
        if self.columns is None:
            return _split(x, self.sizes)
        cuts = np.cumsum(self.sizes)[:-1]
        return [_taken(x, own) for own in np.split(self.order, cuts)]

    def joined(self, blocks: Iterable[Array]) -> Array:
        """An entry for each column, from those of each part."""
        whole = jnp.concatenate(list(blocks), axis=-1)
        return whole if self.columns is None else whole[..., np.argsort(self.columns)]

    @property
    def order(self) -> np.ndarray:
        """The column of each entry, one part after another."""
        return np.arange(self.dim) if self.columns is None else np.array(self.columns)

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    @property
    def closed_form(self) -> bool:
        return all(part.closed_form for part in self.parts)

    @property
    def common_unit(self) -> bool:
        return any(part.common_unit for part in self.parts)

    def unit_free_columns(self, n_features: int) -> np.ndarray:
        """Which columns have parts that describe them as well in any other unit and from any origin."""
        parts: tuple[Any, ...] = self.parts
        free = np.zeros(self.dim, bool)
        free[self.order] = np.concatenate([part.unit_free_columns(n) for part, n in zip(parts, self.sizes)])
        return free

    def statistic_columns(self) -> np.ndarray:
        starts = np.cumsum((0, *self.sizes))
        places = [first + part.statistic_columns() for part, first in zip(self.parts, starts)]
        return self.order[np.concatenate(places)]

    def _join(self, call: Callable[[AbstractExponentialFamily, Array], Array], x: Array) -> Array:
        return jnp.concatenate([call(part, block) for part, block in zip(self.parts, self.blocks(x))])

    def _lengths(self, call: Callable[[AbstractExponentialFamily, Array], Array]) -> list[int]:
        """The length of `call` of each part, from shapes alone, so that a stack has it too."""
        return [
            jax.eval_shape(lambda b, part=part: call(part, b), jnp.zeros(size)).size
            for part, size in zip(self.parts, self.sizes)
        ]

    def statistics(self, x: Array) -> Array:
        return self._join(lambda part, block: part.statistics(block).ravel(), x)

    def natural(self) -> Array:
        return jnp.concatenate([part.natural().ravel() for part in self.parts])

    def log_partition(self) -> Array:
        return jnp.sum(jnp.stack([jnp.sum(part.log_partition()) for part in self.parts]))

    def inside(self) -> Product:
        parts = tuple(part.inside() for part in self.parts)
        return self if all(a is b for a, b in zip(parts, self.parts)) else self.with_parts(parts)

    def from_natural(self, natural: Array) -> Product:
        pieces = _split(natural, [part.natural().size for part in self.parts])
        return self.with_parts(
            p.from_natural(n.reshape(p.natural().shape)) for p, n in zip(self.parts, pieces)
        )

    def from_statistics(self, weight: Array, total: Array) -> Product:
        pieces = _split(total, [part.natural().size for part in self.parts])
        members = []
        for part, piece in zip(self.parts, pieces):
            # families that factorise take a weight per coordinate
            weights = jnp.broadcast_to(weight, part.log_partition().shape)
            members.append(part.from_statistics(weights, piece.reshape(part.natural().shape)))
        return self.with_parts(members)

    def log_base(self, x: Array) -> Array:
        return jnp.sum(self._join(lambda part, block: part.log_base(block)[None], x))

    def features(self, x: Array) -> Array:
        return self._join(lambda part, block: part.features(block), x)

    def expected_features(self, x: Array) -> Array:
        return self._join(lambda part, block: part.expected_features(block), x)

    def split_features(self, total: Array) -> list[Array]:
        """Sums of features as those of each part."""
        return _split(total, self._lengths(lambda part, block: part.features(block)))

    def coefficients(self) -> Array:
        return jnp.concatenate([part.coefficients() for part in self.parts])

    def from_features(self, total: Array) -> Product:
        pieces = self.split_features(total)
        return self.with_parts(p.from_features(t) for p, t in zip(self.parts, pieces))

    def log_prob(self, x: Array) -> Array:
        return jnp.sum(self._join(lambda part, block: part.log_prob(block)[None], x))

    def mean(self) -> Array:
        """E[x], one number per column."""
        return self.complete_mean(jnp.full(self.dim, jnp.nan))

    def complete_mean(self, x: Array) -> Array:
        return self.joined(part.complete_mean(block) for part, block in zip(self.parts, self.blocks(x)))

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        keys = jax.random.split(key, len(self.parts))
        blocks = zip(self.parts, self.blocks(x), keys)
        return self.joined(part.complete_sample(block, key=k) for part, block, k in blocks)

    def sample(self, *, key: Array) -> Array:
        keys = jax.random.split(key, len(self.parts))
        return self.joined(part.sample(key=k) for part, k in zip(self.parts, keys))

    @property
    def masks_missing(self) -> bool:
        return all(part.masks_missing for part in self.parts)


def _natural_of_parts(family: Product, natural: Array) -> list[Array]:
    shapes = [jax.eval_shape(part.natural).shape for part in family.parts]
    pieces = _split(natural, [math.prod(shape) for shape in shapes])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes)]


@log_partition_at.register
def _(family: Product, natural: Array) -> Array:
    parts = zip(family.parts, _natural_of_parts(family, natural))
    return sum((jnp.sum(log_partition_at(part, own)) for part, own in parts), jnp.zeros((), natural.dtype))


@log_prob_at.register
def _(family: Product, natural: Array, x: Array) -> Array:
    parts = zip(family.parts, _natural_of_parts(family, natural), family.blocks(x))
    return sum((log_prob_at(part, own, block) for part, own, block in parts), jnp.zeros((), x.dtype))


@levels.register
def _(family: Product) -> tuple[int, ...] | None:
    found = [levels(part) for part in family.parts]
    counts = [count for part in found if part is not None for count in part]
    return None if None in found else tuple(counts[i] for i in np.argsort(family.order))


@with_mean.register
def _(member: Product, mean: Array) -> Product:
    blocks = zip(member.parts, member.blocks(mean))
    return member.with_parts(with_mean(part, block) for part, block in blocks)


@rescaled.register
def _(member: Product, shift: Array, scale: Array) -> Product:
    scales = [scale] * len(member.parts) if jnp.ndim(scale) == 0 else member.blocks(scale)
    parts = zip(member.parts, member.blocks(shift), scales)
    return member.with_parts(rescaled(*part) for part in parts)


@mean_parameters.register
def _(family: Product) -> Array:
    return jnp.concatenate([mean_parameters(part).ravel() for part in family.parts])


@fisher_information.register
def _(family: Product) -> Array:
    return jax.scipy.linalg.block_diag(*(fisher_information(part) for part in family.parts))


def _taken(x: Array, columns: np.ndarray) -> Array:
    """Some columns, as slices of neighbours, which a compiler takes at once where it gathers one by one."""
    starts = np.flatnonzero(np.diff(columns, prepend=-2) != 1)
    runs = np.split(columns, starts[1:]) if len(columns) else []
    pieces = [x[..., int(run[0]) : int(run[-1]) + 1] for run in runs]
    return pieces[0] if len(pieces) == 1 else jnp.concatenate([x[..., :0], *pieces], axis=-1)


def _split(vector: Array, sizes: tuple[int, ...] | list[int]) -> list[Array]:
    """Consecutive pieces of the last axis."""
    return jnp.split(vector, np.cumsum(sizes)[:-1].tolist(), axis=-1)


class Transformed(AbstractDistribution):
    """The law of x = f(z) for z from `base`:  log p(x) = log p_base(f⁻¹(x)) + log |det ∂f⁻¹/∂x|.

    With learnable layers in f this is a normalising flow: the hidden z is recognised exactly, by the
    inverse, so that the free energy is −log p(x) itself.

    Attributes:
        base: the distribution of z.
        bijection: f, whose `forward` makes data of noise.

    >>> from freeenergy.bijections import Exp
    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> lognormal = Transformed(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))), Exp())
    >>> lognormal.log_prob(jnp.ones(1)).round(6).item()
    -0.918939
    """

    base: AbstractDistribution
    bijection: AbstractBijection

    def log_prob(self, x: Array) -> Array:
        z, log_det = self.bijection.inverse(x)
        return self.base.log_prob(z) + log_det

    def sample(self, *, key: Array) -> Array:
        return self.bijection.forward(self.base.sample(key=key))[0]

    def to_base(self, x: Array) -> Array:
        """The only z that makes `x`."""
        return self.bijection.inverse(x)[0]
