"""Stacks: many members of one family as one member whose arrays have a leading axis."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jax import Array

from ._base import rescaled
from ._covariance import AbstractSharing


def component_axes(stack: Any) -> Any:
    """The `in_axes` with which `jax.vmap` runs over the members of `stack`.

    Arrays have axis 0; what the members share (inside `Tied`, parts of `Shared`, scalars) has None.

    >>> import jax.numpy as jnp
    >>> from freeenergy.distributions import Diagonal, Gaussian, Tied
    >>> stack = Gaussian(jnp.zeros((3, 2)), Tied(Diagonal(jnp.ones(2))))
    >>> x = jnp.zeros(2)
    >>> jax.vmap(lambda member: member.log_prob(x), (component_axes(stack),))(stack).shape
    (3,)
    """

    def axes(node: Any) -> Any:
        if isinstance(node, AbstractSharing):
            return node.component_axes()
        return 0 if _is_stacked(node) else None

    return jax.tree.map(axes, stack, is_leaf=lambda node: isinstance(node, AbstractSharing))


def rescaled_stack(stack: Any, shift: Any, scale: Any) -> Any:
    """`rescaled` of every member of `stack`; what the members share is rescaled once.

    >>> import jax.numpy as jnp
    >>> from freeenergy.distributions import Diagonal, Gaussian, Tied
    >>> stack = Gaussian(jnp.ones((3, 2)), Tied(Diagonal(jnp.ones(2))))
    >>> rescaled_stack(stack, jnp.zeros(2), jnp.full(2, 2.0)).mean[0].tolist()
    [0.5, 0.5]
    """
    axes = component_axes(stack)
    arrays, fixed = eqx.partition(stack, eqx.is_array)

    def one(member: Any) -> Any:
        return eqx.filter(rescaled(eqx.combine(member, fixed), shift, scale), eqx.is_array)

    return eqx.combine(jax.vmap(one, (axes,), axes)(arrays), fixed)


def _is_stacked(node: Any) -> bool:
    return isinstance(node, Array) and node.ndim > 0


def stack_size(stack: Any) -> int:
    """The number of members of `stack`.

    >>> import jax.numpy as jnp
    >>> from freeenergy.distributions import Poisson
    >>> stack_size(Poisson(jnp.ones((3, 2))))
    3
    """
    nodes = jax.tree.leaves(stack, is_leaf=lambda node: isinstance(node, AbstractSharing))
    sizes = {len(node) for node in nodes if _is_stacked(node)}
    if len(sizes) != 1:
        raise ValueError(
            f"The arrays of a stack must have one common leading size. Got {sorted(sizes)} instead."
        )
    return sizes.pop()
