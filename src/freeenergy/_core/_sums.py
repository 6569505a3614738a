"""Sums over rows, in blocks of bounded memory and on all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from ._arrays import Data
from ._stream import Stream


def sum_over_blocks(function: Callable[..., Any], data: Data | Stream, *args: Any, block: int = 256) -> Any:
    """Σ over blocks of rows of `function(x, weight, *args)`, a tree of arrays, in bounded memory.

    Only blocks with real rows are visited.  Not differentiable: blocks are a loop of traced length.
    Operations on a small block run on one core, without waiting for others; several cores are used by
    dividing the rows among them (`Data.spread`).  There the arrays that `function` needs have to come as
    `args`, since what it closes over belongs to another place.
    """
    if data.mesh is None:
        return _sum_here(lambda x, w: function(x, w, *args), data, block)
    arrays, static = eqx.partition(args, eqx.is_array)
    rows, same = PartitionSpec("rows"), PartitionSpec()

    def part(data: Data | Stream, arrays: Any) -> Any:
        given = eqx.combine(arrays, static)
        return jax.lax.psum(_sum_here(lambda x, w: function(x, w, *given), data, block), "rows")

    specs = jax.tree.map(lambda _: same, data)
    if isinstance(data, Data):
        specs = eqx.tree_at(lambda d: (d.x, d.weight), specs, (jax.tree.map(lambda _: rows, data.x), rows))
    # the sum is the same on every device, which JAX cannot prove through a loop
    everywhere = jax.shard_map(
        part, mesh=data.mesh, in_specs=(specs, same), out_specs=same, check_vma=False
    )
    return everywhere(data, arrays)


def _sum_here(function: Callable, data: Data | Stream, block: int) -> Any:
    """The sum over what this device holds of the rows."""
    if isinstance(data, Stream):
        return _sum_of_chunks(function, data, block)
    rows = data.rows
    if data.mesh is not None:
        first = jax.lax.axis_index("rows") * data.size
        rows = jnp.clip(rows - first.astype(rows.dtype), 0, data.size)
    return _sum_of_blocks(function, data.x, data.weight, rows, block)


def _sum_of_chunks(function: Callable, stream: Stream, block: int) -> Any:
    devices = 1 if stream.mesh is None else stream.mesh.size
    first = jnp.zeros((), jnp.int32)
    if stream.mesh is not None:
        first = jax.lax.axis_index("rows").astype(jnp.int32)

    def one(i: Array) -> Any:
        x, rows = stream.chunk(i)
        weight = (jnp.arange(stream.size, dtype=rows.dtype) < rows).astype(x.dtype)
        return _sum_of_blocks(function, x, weight, rows, block)

    def visit(i: Array, total: Any) -> Any:
        # past the last chunk there are no rows
        return jax.tree.map(jnp.add, total, one(first + devices * i))

    shapes = jax.eval_shape(one, jax.ShapeDtypeStruct((), jnp.int32))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.fori_loop(0, -(-stream.chunks // devices), visit, zero)


def _sum_of_blocks(function: Callable, x: Any, weight: Array, rows: Array, block: int) -> Any:
    if len(weight) <= block:
        return function(x, weight)
    last = len(weight) - block

    def take(start: Array) -> tuple[Any, Array]:
        # the last block is shifted back to fit; what it repeats gets weight zero
        at = jnp.minimum(start, last)
        part, w = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, at, block), (x, weight))
        return part, jnp.where(at + jnp.arange(block, dtype=at.dtype) >= start, w, 0)

    shapes = jax.eval_shape(function, *jax.eval_shape(take, jnp.asarray(0, jnp.int32)))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def visit(i: Array, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, function(*take(i * block)))

    return jax.lax.fori_loop(0, (rows + block - 1) // block, visit, zero)
