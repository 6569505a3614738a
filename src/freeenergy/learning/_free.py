"""A model as free reals that an optimiser moves, and the rest of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

from .._core import compiled_constrain, constrain, learnable, unconstrain

Tree = TypeVar("Tree")


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


def finished(free: Any, fixed: Any) -> Any:
    """`joined` for a model that leaves a fit."""
    return eqx.combine(compiled_constrain(free), fixed)
