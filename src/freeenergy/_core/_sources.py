"""Where rows come from, and the ways in which a learner may read them."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

# what is carried, rows, their weights, how many rows there are, the number of the batch
Visit = Callable[[Any, Any, Array, Array, Array], Any]


class AbstractSource(eqx.Module):
    """Where rows come from.

    A way to read rows is a class below this one, which sources are of and learners ask for
    (`AbstractAlgorithm.needs`): rows to sum over, rows in batches, or `Data`, all rows in memory.

    Attributes:
        words: what it is, for messages.
    """

    words: eqx.AbstractClassVar[str]

    @property
    @abc.abstractmethod
    def devices(self) -> Mesh | None:
        """Those that share the work, if there is more than one."""

    @abc.abstractmethod
    def placed(self, needs: type[AbstractSource]) -> AbstractSource:
        """The same rows, on the devices where `needs` is read fastest."""


class AbstractSums(AbstractSource):
    """Rows that can be summed over, by `sum_over_blocks`."""

    words: ClassVar[str] = "rows to sum over"

    @property
    @abc.abstractmethod
    def total(self) -> Array:
        """The sum of the weights."""

    @property
    @abc.abstractmethod
    def missing(self) -> bool:
        """Whether there may be a NaN."""

    @abc.abstractmethod
    def division(self) -> Any:
        """How the arrays are divided among `devices`: a tree of `PartitionSpec`."""

    @abc.abstractmethod
    def sum_here(self, function: Callable[[Any, Array], Any], block: int) -> Any:
        """Σ of `function(x, weight)` over blocks of those rows that this device has."""


class AbstractBatches(AbstractSource):
    """Rows that come in batches, an epoch at a time."""

    words: ClassVar[str] = "rows in batches"

    @abc.abstractmethod
    def first_batch(self, size: int | None, *, key: Array) -> tuple[Any, Array]:
        """Rows and weights to begin with, as many as a batch of `size` has."""

    @abc.abstractmethod
    def epoch(self, visit: Visit, carry: Any, size: int | None, *, key: Array) -> tuple[Any, Array]:
        """`carry` after a visit to each batch of an epoch, and the number of rows that were visited.

        Args:
            visit: `(carry, x, weight, rows, number) → carry`, where the weights are scaled such that
                Σ weight · loss is, on average over batches, the mean loss of all rows.
            carry: a tree of arrays.
            size: rows in a batch; None takes as many at once as there are.
            key: for the order of the rows.
        """


def sum_of_blocks(function: Callable, x: Any, weight: Array, rows: Array, block: int) -> Any:
    """Σ of `function(x, weight)` over the blocks that hold some of the first `rows` rows."""
    if len(weight) <= block:
        return function(x, weight)
    # as a program of its own it is traced once, for its shapes and for the loop
    function = jax.jit(function)

    def take(start: Array) -> tuple[Any, Array]:
        return take_block(x, weight, start, block)

    shapes = jax.eval_shape(function, *jax.eval_shape(take, jnp.asarray(0, jnp.int32)))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def visit(i: Array, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, function(*take(i * block)))

    return jax.lax.fori_loop(0, (rows + block - 1) // block, visit, zero)


def take_block(x: Any, weight: Array, start: Array, block: int) -> tuple[Any, Array]:
    """Rows and weights from `start` on; the last block is shifted back, and repeats rows with weight 0."""
    at = jnp.minimum(start, len(weight) - block)
    part, w = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, at, block), (x, weight))
    return part, jnp.where(at + jnp.arange(block, dtype=at.dtype) >= start, w, 0)


def shuffled(rows: Array, size: int, key: Array) -> Array:
    """A random order of `size` row numbers, the first `rows` of which are real: padding is last."""
    u = jax.random.uniform(key, (size,))
    return jnp.argsort(jnp.where(jnp.arange(size, dtype=rows.dtype) < rows, u, 2.0))


def take_batch(x: Any, weight: Array, rows: Array, order: Array, i: Array, size: int) -> tuple[Any, Array]:
    """Rows `order[i·size : (i+1)·size]`; what would be past the real rows has weight zero.

    Rows that do not count are copies of one that does, as in `counting_rows`.
    """
    at = jnp.minimum(i * size, len(weight) - size)
    index = jax.lax.dynamic_slice_in_dim(order, at, size)
    place = at + jnp.arange(size, dtype=at.dtype)
    fresh = (place >= i * size) & (place < rows)
    part = jnp.where(fresh, weight[index], 0)
    index = index[counting_rows(part)]
    return jax.tree.map(lambda a: a[index], x), part


def counting_rows(weight: Array) -> Array:
    """The number of each row, and for one of weight zero that of a row which counts.

    A row that does not count may be impossible, as padding is for some families.  Its loss is left out of
    a sum, but zero times its slope is no number.

    >>> counting_rows(jnp.array([0.0, 2.0, 0.0, 1.0])).tolist()
    [1, 1, 1, 3]
    """
    return jnp.where(weight > 0, jnp.arange(len(weight)), jnp.argmax(weight > 0))


def visit_batches(
    visit: Visit,
    carry: Any,
    x: Any,
    weight: Array,
    rows: Array,
    *,
    order: Array,
    size: int,
    mean_weight: Array,
    first: Array,
) -> Any:
    """`carry` after all batches of the first `rows` rows in `order`, which are numbered from `first` on."""

    def body(i: Array, carry: Any) -> Any:
        part, w = take_batch(x, weight, rows, order, i, size)
        # the scale makes every batch an unbiased estimate of the mean over rows
        real = jnp.clip(rows - i * size, 1, size)
        return visit(carry, part, w / (mean_weight * real.astype(w.dtype)), real, first + i)

    return jax.lax.fori_loop(0, (rows + size - 1) // size, body, carry)
