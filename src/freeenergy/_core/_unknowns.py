"""Unknowns in trees of spaces: one vector of free reals, one list of states, one start.

A tree of spaces is any pytree with spaces as its leaves; a space by itself is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._spaces import AbstractContinuous, AbstractFinite, AbstractSpace

Kind = TypeVar("Kind", bound=AbstractSpace)

# more states than that are not listed
_MOST_STATES = 2**20


def free_size(space: Any) -> int:
    """How many free reals an unknown in `space` has.

    >>> from ._spaces import Positive, Reals, Simplex
    >>> free_size({"mean": Reals((3,)), "scale": Positive(()), "weights": Simplex((4,))})
    7
    """
    return sum(s.dimension(s.unknown_shape()) for s in _continuous(space)[0])


def from_free(space: Any, vector: Array) -> tuple[Any, Array]:
    """The value at a vector of free reals, and log |∂value/∂vector|.

    With an energy e of the value, e(value) − log |∂value/∂vector| is that of the vector.

    >>> from ._spaces import Positive, Reals
    >>> value, log_det = from_free((Reals((2,)), Positive(())), jnp.array([1.0, 2.0, 0.0]))
    >>> value[0].tolist(), round(float(value[1]), 4), round(float(log_det), 4)
    ([1.0, 2.0], 0.6931, -0.6931)
    """
    spaces, structure = _continuous(space)
    free = split_free(spaces, vector)
    log_det = sum((s.log_det(u) for s, u in zip(spaces, free, strict=True)), jnp.zeros((), vector.dtype))
    values = [s.from_free(u) for s, u in zip(spaces, free, strict=True)]
    return jax.tree.unflatten(structure, values), log_det


def to_free(space: Any, value: Any) -> Array:
    """The vector of free reals at which `from_free` gives `value`.

    >>> from ._spaces import Positive, Reals
    >>> to_free((Reals((2,)), Positive(())), (jnp.array([1.0, 2.0]), jnp.log(2.0))).round(6).tolist()
    [1.0, 2.0, 0.0]
    """
    spaces, structure = _continuous(space)
    values = structure.flatten_up_to(value)
    for s, v in zip(spaces, values, strict=True):
        if jnp.shape(v) != s.unknown_shape():
            raise ValueError(
                f"A value in {type(s).__name__} must have the shape {s.shape}. Got {jnp.shape(v)} instead."
            )
    return join_free([s.to_free(_as_inexact(v)) for s, v in zip(spaces, values, strict=True)])


def split_free(spaces: Sequence[AbstractContinuous], vector: Array) -> list[Array]:
    """The pieces of a vector of free reals that belong to unknowns in `spaces`."""
    shapes = [s.free_shape(s.unknown_shape()) for s in spaces]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    if vector.shape != (ends[-1],):
        raise ValueError(
            f"The free reals must be a vector of {ends[-1]}. Got an array of shape {vector.shape} instead."
        )
    return [vector[a:b].reshape(shape) for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True)]


def join_free(pieces: list[Array]) -> Array:
    """The vector of which `split_free` makes `pieces`."""
    dtype = jnp.result_type(float) if not pieces else np.result_type(*(p.dtype for p in pieces))
    return jnp.concatenate([jnp.zeros(0, dtype), *(p.reshape(-1).astype(dtype) for p in pieces)])


def count_states(space: Any) -> int:
    """How many states an unknown in a finite `space` has.

    >>> from ._spaces import Binary, Categories
    >>> count_states({"units": Binary((3,)), "label": Categories(5)})
    40
    """
    return int(np.prod([s.count_states() for s in _finite(space)[0]], dtype=object))


def state_at(space: Any, index: Array | int) -> Any:
    """State number `index` of a finite `space`; the last entry of the last leaf changes fastest.

    >>> from ._spaces import Binary, Categories
    >>> units, label = state_at((Binary((2,)), Categories(3)), 7)
    >>> units.tolist(), int(label)
    ([1.0, 0.0], 1)
    """
    spaces, structure = _finite(space)
    states, rest = [], jnp.asarray(index).astype(int)
    for s in reversed(spaces):
        # an index that fits its type is below a count that does not
        count = min(s.count_states(), np.iinfo(int).max)
        states.append(s.state(rest % count))
        rest = rest // count
    return jax.tree.unflatten(structure, states[::-1])


def state_number(space: Any, state: Any) -> Array:
    """The number of a state of a finite `space`, at which `state_at` gives it.

    >>> from ._spaces import Binary, Categories
    >>> int(state_number((Binary((2,)), Categories(3)), (jnp.array([1.0, 0.0]), jnp.array(1))))
    7
    """
    spaces, structure = _finite(space)
    number = jnp.zeros((), int)
    for s, value in zip(spaces, structure.flatten_up_to(state), strict=True):
        for digit in jnp.reshape(value, -1):
            number = number * s.n_values + digit.astype(int)
    return number


def enumerate_states(space: Any) -> Any:
    """Every state of a finite `space`, along a first axis, in the order of `itertools.product`.

    >>> from ._spaces import Binary
    >>> enumerate_states(Binary((2,))).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    count = count_states(space)
    if count > _MOST_STATES:
        raise ValueError(
            f"A space of at most {_MOST_STATES:,} states can be enumerated. Got one of {count:,} instead: "
            "sample from it, or visit the states by their numbers."
        )
    return jax.vmap(lambda index: state_at(space, index))(jnp.arange(count))


def start(space: Any, *, key: Array) -> Any:
    """A value to begin from in every leaf of `space`, another one for each key.

    >>> from ._spaces import Positive, Reals
    >>> begin = start({"mean": Reals((2,)), "scale": Positive(())}, key=jax.random.key(0))
    >>> begin["mean"].shape, bool(begin["scale"] > 0)
    ((2,), True)
    """
    spaces, structure = _leaves(space, AbstractSpace, "The leaves of a tree of spaces must be spaces.")
    keys = jax.random.split(key, len(spaces))
    return jax.tree.unflatten(structure, [s.start(key=k) for s, k in zip(spaces, keys, strict=True)])


def _leaves(space: Any, kind: type[Kind], need: str) -> tuple[list[Kind], Any]:
    """The leaves of a tree of spaces, refused unless all are of this kind, and their structure."""
    spaces, structure = jax.tree.flatten(space)
    chosen = [leaf for leaf in spaces if isinstance(leaf, kind)]
    if len(chosen) < len(spaces):
        other = next(leaf for leaf in spaces if not isinstance(leaf, kind))
        raise TypeError(f"{need} Got {other!r} instead.")
    return chosen, structure


def _continuous(space: Any) -> tuple[list[AbstractContinuous], Any]:
    return _leaves(space, AbstractContinuous, "Free reals need a tree of continuous spaces.")


def _finite(space: Any) -> tuple[list[AbstractFinite], Any]:
    return _leaves(space, AbstractFinite, "States are numbered in a tree of finite spaces.")


def _as_inexact(value: Any) -> Array:
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)
