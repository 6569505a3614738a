"""A tree of spaces as a value."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from .._core import AbstractSpace


class FrozenSpace(NamedTuple):
    """A tree of spaces as a value that can be hashed, whatever the tree is made of."""

    leaves: tuple[AbstractSpace, ...]
    structure: Any

    @classmethod
    def of(cls, space: PyTree) -> FrozenSpace:
        """The tree `space`, or it itself where it is one already."""
        if isinstance(space, cls):
            return space
        leaves, structure = jax.tree.flatten(space)
        return cls(tuple(leaves), structure)

    @property
    def tree(self) -> PyTree:
        """The tree of spaces."""
        return jax.tree.unflatten(self.structure, self.leaves)
