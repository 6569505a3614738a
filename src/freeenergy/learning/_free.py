"""A model as free reals that an optimiser moves, and the rest of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from .._core import compiled_constrain, constrain, learnable, on_device, unconstrain

Tree = TypeVar("Tree")

# from so many on it matters how they come into one vector
_MANY_NUMBERS = 2**15


def only(model: Tree, where: Callable[[Tree], Any]) -> Tree:
    """The tree of booleans that lets only `where(model)` be learned: the counterpart of `freeze`.

    >>> from freeenergy.nn import Linear
    >>> import jax.numpy as jnp
    >>> mask = only(Linear(jnp.zeros((2, 1)), jnp.zeros(1)), lambda layer: layer.bias)
    >>> mask.weight, mask.bias
    (False, True)
    """
    mask = learnable(model)
    nothing = jax.tree.map(lambda _: False, mask)
    return eqx.tree_at(where, nothing, where(mask))


def mask_of(model: Any, mask: Any) -> Any:
    """`mask`, or all that can be learned where it is None."""
    return learnable(model) if mask is None else mask


def split(model: Any, mask: Any = None) -> tuple[Any, Any]:
    """The free reals of what `mask` lets be learned, and the rest, which stays as it is to the bit."""
    mask = mask_of(model, mask)
    return unconstrain(eqx.filter(model, mask)), eqx.filter(model, mask, inverse=True)


def joined(free: Any, fixed: Any) -> Any:
    """The model of which `split` made the two."""
    return eqx.combine(constrain(free), fixed)


def side_by_side(parts: Sequence[Array]) -> Array:
    """Vectors one after the other in one.

    Within a program a concatenation of many numbers asks of each from which part it comes, which takes ten
    times as long as to write the parts into their places.
    """
    total = sum(part.size for part in parts)
    if total < _MANY_NUMBERS:
        return jnp.concatenate(parts)
    whole, start = jnp.zeros(total, parts[0].dtype), 0
    for part in parts:
        whole = jax.lax.dynamic_update_slice(whole, part, (start,))
        start += part.size
    return whole


class Packed(eqx.Module):
    """The arrays of a tree in one vector for each of their types.

    What is kept between steps is packed: averages, choices between old and new, and the loop itself are
    then a few long operations instead of some for every array, which is less to compile and less to run.
    """

    vectors: tuple[Array, ...]
    _structure: Any = eqx.field(static=True)
    _shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    _kinds: tuple[int, ...] = eqx.field(static=True)

    @staticmethod
    def of(tree: Any) -> Packed:
        """A tree of arrays, or of what is being traced, in its packed form."""
        leaves, structure = jax.tree.flatten(tree)
        types = list(dict.fromkeys(leaf.dtype for leaf in leaves))
        kinds = tuple(types.index(leaf.dtype) for leaf in leaves)
        traced = any(isinstance(leaf, Tracer) for leaf in leaves)
        rows: list[list[Any]] = [[] for _ in types]
        for leaf, kind in zip(leaves, kinds, strict=True):
            rows[kind].append((leaf if traced else np.asarray(leaf)).reshape(-1))
        join = side_by_side if traced else np.concatenate
        vectors = tuple(on_device(join(each)) for each in rows)
        return Packed(vectors, structure, tuple(leaf.shape for leaf in leaves), kinds)

    @property
    def tree(self) -> Any:
        """The tree of which this was made."""
        sizes = [[np.prod(s, dtype=int) for s in self._of_kind(k)] for k in range(len(self.vectors))]
        parts = [
            iter([vector[a:b] for a, b in itertools.pairwise(np.cumsum([0, *each]).tolist())])
            for vector, each in zip(map(_readable, self.vectors), sizes, strict=True)
        ]
        leaves = [
            on_device(next(parts[kind]).reshape(shape))
            for shape, kind in zip(self._shapes, self._kinds, strict=True)
        ]
        return jax.tree.unflatten(self._structure, leaves)

    def _of_kind(self, kind: int) -> list[tuple[int, ...]]:
        return [s for s, k in zip(self._shapes, self._kinds, strict=True) if k == kind]


def _readable(vector: Array) -> Any:
    """An array of the host, parts of which need no program; or what is being traced, as it is."""
    return vector if isinstance(vector, Tracer) else np.asarray(vector)


def finished(free: Any, fixed: Any) -> Any:
    """`joined` for a model that leaves a fit."""
    return eqx.combine(compiled_constrain(free), fixed)
