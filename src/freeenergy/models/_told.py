"""What networks are told of entries of different kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import buffer, on_device

# entries farther out than so many scales say no more than that they are far
_FAR = 20.0


def told_entry(x: Array, shift: Array, scale: Array, *, labels: int | None, counts: bool) -> Array:
    """An entry as numbers: labels as indicators, counts by log(1 + x), numbers as they are; zeros for NaN.

    >>> told_entry(jnp.array(1.0), jnp.array(0.0), jnp.array(1.0), labels=3, counts=False).tolist()
    [0.0, 1.0, 0.0]
    """
    if labels is not None:
        return (x == jnp.arange(labels, dtype=x.dtype)).astype(x.dtype)
    value = jnp.log1p(jnp.maximum(x, 0)) if counts else x
    return jnp.clip(jnp.nan_to_num((value - shift) / scale), -_FAR, _FAR)[None]


class Told(eqx.Module):
    """What a network is told of an event whose columns are of different kinds.

    Labels are told as indicators, counts by log(1 + x), numbers as they are (cut at 20 scales); of what is
    missing zeros.

    Attributes:
        columns: which columns are told alike, one group after another.
        labels: how many labels a column of each group has; None where it has none.
        counts: which groups are counts.
        shift, scale: of what is told of each column.

    >>> told = Told.of([None, 3, None], [False, False, True])
    >>> told(jnp.array([0.5, 2.0, 0.0])).tolist()
    [0.5, 0.0, 0.0, 1.0, 0.0]
    """

    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    labels: tuple[int | None, ...] = eqx.field(static=True)
    counts: tuple[bool, ...] = eqx.field(static=True)
    shift: Array = buffer()
    scale: Array = buffer()

    @classmethod
    def of(
        cls, labels: Sequence[int | None], counts: Sequence[bool], shift: Any = 0.0, scale: Any = 1.0
    ) -> Told:
        """For columns with these numbers of labels, and those that are counts."""
        groups: dict[tuple[bool, int], list[int]] = {}
        for column, (size, count) in enumerate(zip(labels, counts, strict=True)):
            groups.setdefault((count, size or 0), []).append(column)
        units = (
            on_device(np.broadcast_to(np.asarray(v, float), len(labels)).copy()) for v in (shift, scale)
        )
        return cls(
            tuple(tuple(own) for own in groups.values()),
            tuple(size or None for _, size in groups),
            tuple(count for count, _ in groups),
            *units,
        )

    @property
    def size(self) -> int:
        """How many numbers an event is told as."""
        return sum(len(own) * (labels or 1) for own, labels in zip(self.columns, self.labels, strict=True))

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " size"]:
        pieces = []
        for own, labels, counts in zip(self.columns, self.labels, self.counts, strict=True):
            place = np.array(own)
            entries = jax.vmap(lambda *entry, k=labels, c=counts: told_entry(*entry, labels=k, counts=c))
            pieces.append(entries(x[place], self.shift[place], self.scale[place]).ravel())
        return jnp.concatenate(pieces)
