"""Sums over rows, in blocks of bounded memory and on all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.sharding import PartitionSpec

from ._sources import AbstractSums


def sum_over_blocks(function: Callable[..., Any], data: AbstractSums, *args: Any, block: int = 256) -> Any:
    """Σ over blocks of rows of `function(x, weight, *args)`, a tree of arrays, in bounded memory.

    Only blocks with real rows are visited.  Not differentiable: blocks are a loop of traced length.
    Operations on a small block run on one core, without waiting for others; several cores are used by
    dividing the rows among them (`Data.spread`).  There the arrays that `function` needs have to come as
    `args`, since what it closes over belongs to another place.
    """
    if data.devices is None:
        return data.sum_here(lambda x, w: function(x, w, *args), block)
    arrays, static = eqx.partition(args, eqx.is_array)
    same = PartitionSpec()

    def part(data: AbstractSums, arrays: Any) -> Any:
        given = eqx.combine(arrays, static)
        return jax.lax.psum(data.sum_here(lambda x, w: function(x, w, *given), block), "rows")

    # the sum is the same on every device, which JAX cannot prove through a loop
    everywhere = jax.shard_map(
        part, mesh=data.devices, in_specs=(data.division(), same), out_specs=same, check_vma=False
    )
    return everywhere(data, arrays)
