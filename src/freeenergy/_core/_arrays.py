"""Rows in a few sizes: padding to buckets, division among devices, functions of a row, numbers of a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._compilation import FEW_NUMBERS, Program, programs
from ._sources import (
    AbstractBatches,
    AbstractSource,
    AbstractSums,
    Visit,
    shuffled,
    sum_of_blocks,
    visit_batches,
)

Tree = TypeVar("Tree")

_SMALLEST = 128
_FEW = 512
# fewer rows than this are not worth the meeting of devices after each pass
_WORTH_SPREADING = 8192
# a part of many rows that goes to the device
_BLOCKS_AT_ONCE = 16
# rows of a part of some thousand rows, and the most such parts
_PART, _PARTS = 2048, 16
# these stay in the cache
_PREPARED_AT_ONCE = 4096
# a row counts for at most so many on average when passes are counted
_MOST_COPIES = 1000


def bucket(rows: int, least: int = _SMALLEST) -> int:
    """The padded size for `rows`: a power of two up to 512 rows, then 4 sizes an octave, 16 above 4096.

    A program is compiled for each size.  Few rows are done at once in any size, but not compiled for, so
    that none is below `least`; what is done one after another, such as time steps, has a smaller one.

    >>> [bucket(n) for n in (1, 17, 200, 1000, 100_000)]
    [128, 128, 256, 1024, 102400]
    """
    if rows <= least:
        return least
    parts = 1 if rows <= _FEW else 4 if rows <= 4096 else 16
    step = max(1 << ((rows - 1).bit_length() - 1 - parts.bit_length() + 1), 1)
    return -(-rows // step) * step


# what may be held at once, in bytes: more is asked for by mistake more often than not
_MOST_BYTES = 2**31


def check_size(numbers: float, what: str, advice: str) -> None:
    """Refuses `what`, before it is built, if it takes so many numbers that they are more than 2 GiB.

    >>> check_size(1e12, "A matrix of 1,000,000 columns", "Use fewer.")
    Traceback (most recent call last):
    ValueError: A matrix of 1,000,000 columns would take 7,450.6 GiB; the limit is 2 GiB. Use fewer.
    """
    if 8 * numbers > _MOST_BYTES:
        size, most = (f"{bytes / 2**30:,.1f}".removesuffix(".0") for bytes in (8 * numbers, _MOST_BYTES))
        raise ValueError(f"{what} would take {size} GiB; the limit is {most} GiB. {advice}")


def _mesh_for(rows: int, least: int = _WORTH_SPREADING) -> Mesh | None:
    """All devices, where there are several and rows enough to divide among them."""
    devices = jax.devices()
    if len(devices) == 1 or rows < least or rows % len(devices):
        return None
    return Mesh(np.array(devices), ("rows",))


def has_nan(x: np.ndarray) -> bool:
    """Whether an entry is NaN: a sum tells, and makes no array of answers.

    >>> has_nan(np.array([1.0, np.nan])), has_nan(np.array([np.inf, -np.inf]))
    (True, False)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.sum(x)
    return bool(np.isnan(total)) and bool(np.isnan(x).any())


def on_device(value: Any, dtype: Any = None) -> Array:
    """A copy of a NumPy array, a list or a number for programs; what programs have already stays.

    As `jnp.asarray`, which compiles a program for each shape to make its copy.

    >>> on_device([1, 2], float)
    Array([1., 2.], dtype=float64)
    """
    if isinstance(value, Array):
        return value if dtype is None else value.astype(dtype)
    # what is put may be read later, or in place: it is a copy that nobody else has
    return jax.device_put(np.array(value, dtype))


def stacked(trees: list[Tree]) -> Tree:
    """Trees of equal structure as one, whose arrays have a first axis more.

    >>> stacked([np.zeros(3), np.ones(3)]).shape
    (2, 3)
    """

    def stack(*leaves: Any) -> Any:
        if not isinstance(leaves[0], Array | np.ndarray):
            return leaves[0]
        traced = any(isinstance(leaf, Tracer) for leaf in leaves)
        return jnp.stack(leaves) if traced else on_device(np.stack([np.asarray(leaf) for leaf in leaves]))

    return jax.tree.map(stack, *trees)


class Data(AbstractSums, AbstractBatches):
    """Rows in memory: arrays of one leading length, and a weight for each row.

    Attributes:
        x: an array, or a tree of arrays, with a row per observation.
        weight: a non-negative number per row; padding has weight zero.
        rows: how many rows are real; they come first.
        incomplete: whether `x` holds NaN, which means not observed.
        mesh: the devices that hold a part of the rows each, if there is more than one.
    """

    words: ClassVar[str] = "rows in memory"
    x: Any
    weight: Array
    rows: Array
    incomplete: bool = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    @staticmethod
    def of(
        x: Any,
        weight: Any = None,
        *,
        dtype: Any = None,
        prepare: Callable[[np.ndarray], np.ndarray] | None = None,
        spread: bool = False,
    ) -> Data:
        """Pads `x` (and weights, one by default) to a bucket size.

        Floating-point arrays are padded with zeros of the same type, and cast to `dtype` if given; rows go
        through `prepare` on their way, a few at a time, if it is given.  With `spread` they go straight to
        where the method of that name would bring them.
        """
        programs.check_process()
        x = jax.tree.map(np.asarray, x)
        lengths = {len(leaf) for leaf in jax.tree.leaves(x)}
        if len(lengths) != 1:
            raise ValueError(f"The parts of the data must have one length. Got {sorted(lengths)}.")
        (n,) = lengths
        floating = [a for a in jax.tree.leaves(x) if np.issubdtype(a.dtype, np.floating)]
        incomplete = any(has_nan(a) for a in floating)
        dtype = dtype or (floating[0].dtype if floating else np.dtype(np.float64))
        weight = np.ones(n, dtype) if weight is None else np.asarray(weight, dtype)
        padded = bucket(n)

        def pad(a: np.ndarray, prepare: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
            kind = dtype if np.issubdtype(a.dtype, np.floating) else a.dtype
            shape = a.shape if prepare is None else prepare(a[:0]).shape
            out = np.zeros((padded, *shape[1:]), kind)
            if prepare is None:
                out[:n] = a
                return out
            for start in range(0, n, _PREPARED_AT_ONCE):
                stop = min(start + _PREPARED_AT_ONCE, n)
                out[start:stop] = prepare(a[start:stop])
            return out

        mesh = _mesh_for(padded) if spread else None
        arrays = jax.tree.map(lambda a: pad(a, prepare), x), pad(weight, None)
        rows, mass = jax.device_put(arrays) if mesh is None else _divided(arrays, mesh)
        return Data(rows, mass, on_device(n, np.int32), incomplete, mesh)

    @property
    def size(self) -> int:
        """The padded number of rows."""
        return self.weight.shape[0]

    @property
    def total(self) -> Array:
        """The sum of the weights."""
        return jnp.sum(self.weight)

    @property
    def devices(self) -> Mesh | None:
        return self.mesh

    @property
    def missing(self) -> bool:
        return self.incomplete

    def spread(self, least: int = _WORTH_SPREADING) -> Data:
        """The same rows divided among all devices, where there are several and at least `least` rows.

        Sums over blocks then run on all devices at once: the cores of a processor are devices too.
        """
        mesh = _mesh_for(self.size, least)
        if self.mesh is not None or mesh is None:
            return self
        # from the host, where parts of an array need no program to be cut
        x, weight = _divided(jax.tree.map(np.asarray, (self.x, self.weight)), mesh)
        return Data(x, weight, self.rows, self.incomplete, mesh)

    def placed(self, needs: type[AbstractSource]) -> Data:
        return self.spread() if needs is AbstractSums else self

    def division(self) -> Any:
        split, same = PartitionSpec("rows"), PartitionSpec()
        parts = jax.tree.map(lambda _: split, self.x)
        return eqx.tree_at(lambda d: (d.x, d.weight), jax.tree.map(lambda _: same, self), (parts, split))

    def sum_here(self, function: Callable[[Any, Array], Any], block: int) -> Any:
        rows = self.rows
        if self.mesh is not None:
            first = jax.lax.axis_index("rows") * self.size
            rows = jnp.clip(rows - first.astype(rows.dtype), 0, self.size)
        return sum_of_blocks(function, self.x, self.weight, rows, block)

    def first_batch(self, size: int | None, *, key: Array) -> tuple[Any, Array]:
        return jax.tree.map(lambda a: a[:size], self.x), self.weight[:size]

    def epoch(self, visit: Visit, carry: Any, size: int | None, *, key: Array) -> tuple[Any, Array]:
        """Visits every row once, or so often that a weight of two counts as two rows.

        There are as many passes over the rows as bring the number of batches nearest to total weight /
        size, one at least, where a mean weight above 1,000 counts as 1,000.
        """
        length = self.size if size is None else min(size, self.size)
        rows = self.rows.astype(self.weight.dtype)
        mean_weight = jnp.sum(self.weight) / rows
        batches = (self.rows + length - 1) // length
        passes = jnp.ones((), jnp.int32)
        if size is not None:
            steps = rows * jnp.minimum(mean_weight, _MOST_COPIES) / size
            passes = jnp.maximum(jnp.round(steps / batches.astype(steps.dtype)).astype(jnp.int32), 1)

        def one_pass(number: Array, carry: Any) -> Any:
            order, inner = carry
            inner = visit_batches(
                visit,
                inner,
                self.x,
                self.weight,
                self.rows,
                order=order,
                size=length,
                mean_weight=mean_weight,
                first=number * batches,
            )
            return shuffled(self.rows, self.size, jax.random.fold_in(key, number)), inner

        start = (shuffled(self.rows, self.size, key), carry)
        _, carry = jax.lax.fori_loop(0, passes, one_pass, start)
        return carry, rows * passes.astype(rows.dtype)


def map_rows(function: Callable[..., Any], rows: Any, *args: Any, block: int = 4096) -> Any:
    """`function(row, *args)` for each row, compiled for few numbers of rows; NumPy in and out.

    `function` must be a module-level function (or a bound method of a pytree class accessed
    through one), because the compiled program is kept for it.
    """
    n = len(jax.tree.leaves(rows)[0])
    padded, block = _size_of_parts(rows, n, block)
    outs = []
    for start in range(0, max(n, 1), padded):
        part = jax.tree.map(lambda a, s=start: np.asarray(a)[s : s + padded], rows)
        length = len(jax.tree.leaves(part)[0])
        filled = jax.tree.map(
            lambda a, p=padded, m=length: np.concatenate([a, np.zeros((p - m, *a.shape[1:]), a.dtype)]),
            part,
        )
        mesh = _mesh_for(padded)
        if mesh is not None:
            filled = _divided(filled, mesh)
        out = map_padded(function, filled, *on_all(mesh, args), real=length, block=block, mesh=mesh)
        outs.append(jax.tree.map(lambda a, m=length: a[:m], jax.device_get(out)))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *outs)


def _size_of_parts(rows: Any, n: int, block: int) -> tuple[int, int]:
    """How many rows go to the device at once, and how many of them are done together, at most.

    To compile for a size takes longer than some thousand rows do: up to there all numbers of rows share
    three sizes, of which blocks of padding are not done.
    """
    if n > _SMALLEST:
        width = sum(math.prod(np.shape(a)[1:]) for a in jax.tree.leaves(rows))
        size = _FEW if n <= _FEW else _PART
        while size > _FEW and size * width > FEW_NUMBERS:
            size //= 2
        if size * width <= FEW_NUMBERS and n <= size * _PARTS:
            return size, min(block, _FEW // 2 if size == _FEW else _FEW)
    most = block * _BLOCKS_AT_ONCE
    # the last of several parts has the program of the others
    return (bucket(n) if n <= most else most), block


def map_data(function: Callable[..., Any], data: Data, *args: Any, block: int = 4096) -> Any:
    """`function(row, *args)` for each real row of `data`: `map_rows` for rows that are in place."""
    real = int(data.rows)
    out = map_padded(function, data.x, *on_all(data.mesh, args), real=real, block=block, mesh=data.mesh)
    return jax.tree.map(lambda a: a[:real], jax.device_get(out))


def _divided(arrays: Any, mesh: Mesh) -> Any:
    """A part of the rows on each device of `mesh`."""
    return jax.device_put(arrays, NamedSharding(mesh, PartitionSpec("rows")))


def on_all(mesh: Mesh | None, tree: Any) -> Any:
    """`tree` with its arrays on every device of `mesh`."""
    if mesh is None:
        return tree
    arrays, static = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, PartitionSpec())), static)


def on_one(tree: Any) -> Any:
    """`tree` with its arrays on the first device, as arrays come from files and from the host.

    (Those that a caller put on a device are others to JAX, which compiles for them anew.)
    """
    arrays, static = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(jax.device_get(arrays)), static)


def map_padded(
    function: Callable[..., Any], rows: Any, *args: Any, real: int, block: int, mesh: Mesh | None = None
) -> Any:
    """`function(row, *args)` for each of the first `real` rows: `map_rows` for rows padded already.

    At most `block` rows of a device are done at a time.
    """
    programs.make_room()
    size = len(jax.tree.leaves(rows)[0]) // (1 if mesh is None else mesh.size)
    blocks = -(-size // block)
    # of one size, since a smaller one at the end would be compiled for as well
    while size % blocks:
        blocks += 1
    return _map_compiled(rows, function, np.int32(real), *args, blocks=blocks, mesh=mesh)


@Program
def _map_compiled(
    rows: Any, function: Callable[..., Any], real: Any, *args: Any, blocks: int, mesh: Mesh | None
) -> Any:
    arrays, static = eqx.partition(args, eqx.is_array)

    def here(rows: Any, real: Array, arrays: Any) -> Any:
        given = eqx.combine(arrays, static)
        # as a program of its own it is traced once
        each = jax.jit(jax.vmap(lambda row: function(row, *given)))
        if blocks == 1:
            return each(rows)
        size = len(jax.tree.leaves(rows)[0])
        step = size // blocks
        if mesh is not None:
            real = real - size * jax.lax.axis_index("rows")

        def cut(i: Array | int) -> Any:
            return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, i * step, step), rows)

        def put(i: Array, out: Any) -> Any:
            update = jax.lax.dynamic_update_slice_in_dim
            return jax.tree.map(lambda a, new: update(a, new, i * step, 0), out, each(cut(i)))

        shapes = jax.eval_shape(each, cut(0))
        none = jax.tree.map(lambda a: jnp.zeros((size, *a.shape[1:]), a.dtype), shapes)
        # blocks of padding alone are not done
        return jax.lax.fori_loop(0, jnp.clip(-(-real // step), 0, blocks), put, none)

    if mesh is None:
        return here(rows, real, arrays)
    split, same = PartitionSpec("rows"), PartitionSpec()
    everywhere = jax.shard_map(
        here, mesh=mesh, in_specs=(split, same, same), out_specs=split, check_vma=False
    )
    return everywhere(rows, real, arrays)


def in_blocks(a: Array, size: int) -> Array:
    """Rows in blocks of `size`, padded with zeros."""
    padded = jnp.concatenate([a, jnp.zeros((-len(a) % size, *a.shape[1:]), a.dtype)])
    return padded.reshape(-1, size, *a.shape[1:])


_HASHED_AT_ONCE = 1024


def row_hashes(x: np.ndarray) -> np.ndarray:
    """A 64-bit number for each row that depends on its values alone.

    Equal rows (NaN equals NaN, −0 equals 0) have equal numbers; they order rows independently of
    how the rows were passed and seed the random numbers of a row.
    """
    x = np.asarray(x, np.float64).reshape(len(x), math.prod(np.shape(x)[1:]))
    state = np.full(len(x), 0x9E3779B97F4A7C15, np.uint64)
    # the columns of a few rows at a time stay in the cache
    for start in range(0, len(x), _HASHED_AT_ONCE):
        part = state[start : start + _HASHED_AT_ONCE]
        columns = np.add(x[start : start + _HASHED_AT_ONCE].T, 0.0, order="C")
        columns[np.isnan(columns)] = np.nan
        for bits in columns.view(np.uint64):
            part ^= bits
            part *= np.uint64(0xBF58476D1CE4E5B9)
            part ^= part >> np.uint64(29)
    state *= np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(32))
