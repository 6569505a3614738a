"""Rows that do not fit in memory: read in chunks whenever they are summed over."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._arrays import bucket, on_one
from ._sources import (
    AbstractBatches,
    AbstractSource,
    AbstractSums,
    Visit,
    shuffled,
    sum_of_blocks,
    visit_batches,
)

Reader = Callable[[int], np.ndarray]

_numbers = itertools.count()
_readers: dict[int, tuple[Reader, int]] = {}
_failures: dict[int, Exception] = {}


class Stream(AbstractSums, AbstractBatches):
    """Rows in chunks, which a compiled program asks for one after another.

    It takes the place of `Data` where rows are summed over or come in batches.

    Attributes:
        number: of the reader, so that one program serves all streams of a shape.
        chunks: how many there are.
        rows: how many there are in all.
        size: rows in a chunk, with padding.
        columns: of a row.
        incomplete: whether there is a NaN.
        mesh: the devices among which chunks are divided, if there is more than one.
    """

    words: ClassVar[str] = "rows that are read in chunks"
    number: Array
    chunks: Array
    rows: Array
    size: int = eqx.field(static=True)
    columns: int = eqx.field(static=True)
    incomplete: bool = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)

    def chunk(self, i: Array) -> tuple[Array, Array]:
        """The rows of chunk i, padded, and how many of them are real."""
        shapes = (
            jax.ShapeDtypeStruct((self.size, self.columns), np.float64),
            jax.ShapeDtypeStruct((), np.int32),
        )
        return jax.pure_callback(_Padded(self.size, self.columns), shapes, self.number, i)

    @property
    def total(self) -> Array:
        return self.rows

    @property
    def devices(self) -> Mesh | None:
        return self.mesh

    @property
    def missing(self) -> bool:
        return self.incomplete

    def placed(self, needs: type[AbstractSource]) -> Stream:
        if needs is AbstractSums or self.mesh is None:
            return self
        return dataclasses.replace(on_one(self), mesh=None)

    def division(self) -> Any:
        return jax.tree.map(lambda _: PartitionSpec(), self)

    def _weight(self, rows: Array) -> Array:
        return (jnp.arange(self.size, dtype=rows.dtype) < rows).astype(jnp.float64)

    def sum_here(self, function: Callable[[Any, Array], Any], block: int) -> Any:
        devices = 1 if self.mesh is None else self.mesh.size
        first = jnp.zeros((), jnp.int32)
        if self.mesh is not None:
            first = jax.lax.axis_index("rows").astype(jnp.int32)

        def one(i: Array) -> Any:
            x, rows = self.chunk(i)
            return sum_of_blocks(function, x, self._weight(rows), rows, block)

        def visit(i: Array, total: Any) -> Any:
            # past the last chunk there are no rows
            return jax.tree.map(jnp.add, total, one(first + devices * i))

        shapes = jax.eval_shape(one, jax.ShapeDtypeStruct((), jnp.int32))
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.fori_loop(0, -(-self.chunks // devices), visit, zero)

    def first_batch(self, size: int | None, *, key: Array) -> tuple[Any, Array]:
        x, rows = self.chunk(jnp.zeros((), jnp.int32))
        return x[:size], self._weight(rows)[:size]

    def epoch(self, visit: Visit, carry: Any, size: int | None, *, key: Array) -> tuple[Any, Array]:
        """Visits every row once: chunks in turn, from a random one on, the rows of each in random order.

        A batch has rows of one chunk; a `size` of None takes a chunk at once.
        """
        length = self.size if size is None else min(size, self.size)
        begin, shuffle = jax.random.split(key)
        start = jax.random.randint(begin, (), 0, self.chunks, jnp.int32)

        def one(i: Array, carry: Any) -> Any:
            x, rows = self.chunk((start + i) % self.chunks)
            return visit_batches(
                visit,
                carry,
                x,
                self._weight(rows),
                rows,
                order=shuffled(rows, self.size, jax.random.fold_in(shuffle, i)),
                size=length,
                mean_weight=jnp.ones(()),
                first=i * -(-self.size // length),
            )

        return jax.lax.fori_loop(0, self.chunks, one, carry), self.total


class _Padded:
    """Reads a chunk on the host; equal ones share their compiled programs."""

    def __init__(self, size: int, columns: int) -> None:
        self.shape = (size, columns)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Padded) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)

    def __call__(self, number: Any, i: Any) -> tuple[np.ndarray, np.int32]:
        reader, chunks = _readers[int(number)]
        out = np.zeros(self.shape)
        if int(i) >= chunks:
            return out, np.int32(0)
        try:
            rows = reader(int(i))
        except Exception as error:
            # `streaming` raises it.  An error here would end the process, since other devices wait for
            # this one; an infinite row makes the objective infinite, and no step is taken with that.
            _failures.setdefault(int(number), error)
            rows = np.full((1, self.shape[1]), np.inf)
        out[: len(rows)] = rows
        return out, np.int32(len(rows))


@contextlib.contextmanager
def streaming(reader: Reader, lengths: list[int], columns: int, *, incomplete: bool) -> Iterator[Stream]:
    """A `Stream` of the chunks that `reader(i)` gives, for as long as the block lasts.

    Args:
        reader: gives chunk i as an array of rows.
        lengths: the rows of each chunk.
        columns: of a row.
        incomplete: whether there is a NaN in any.
    """
    number = next(_numbers)
    _readers[number] = (reader, len(lengths))
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("rows",)) if len(devices) > 1 else None
    stream = Stream(
        jnp.asarray(number, jnp.int32),
        jnp.asarray(len(lengths), jnp.int32),
        jnp.asarray(float(sum(lengths))),
        bucket(max(lengths)),
        columns,
        incomplete,
        mesh,
    )
    if mesh is not None:
        stream = jax.device_put(stream, NamedSharding(mesh, PartitionSpec()))
    try:
        yield stream
    finally:
        del _readers[number]
        failure = _failures.pop(number, None)
        if failure is not None:
            raise failure from None
