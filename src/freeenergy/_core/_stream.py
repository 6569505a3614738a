"""Rows that do not fit in memory: read in chunks whenever they are summed over."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._arrays import bucket

Reader = Callable[[int], np.ndarray]

_numbers = itertools.count()
_readers: dict[int, tuple[Reader, int]] = {}
_failures: dict[int, Exception] = {}


class Stream(eqx.Module):
    """Rows in chunks, which a compiled program asks for one after another.

    It takes the place of `Data` where all that is done with rows is to sum over them.

    Attributes:
        number: of the reader, so that one program serves all streams of a shape.
        chunks: how many there are.
        total: the number of rows.
        size: rows in a chunk, with padding.
        columns: of a row.
        incomplete: whether there is a NaN.
        mesh: the devices among which chunks are divided, if there is more than one.
    """

    number: Array
    chunks: Array
    total: Array
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
