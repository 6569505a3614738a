"""Missing entries of an event as a hidden cause: one vector for all, those that are missing first."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def put_in(x: Array, z: Array) -> Array:
    """`x` with its NaN entries taken from the first entries of `z`, in their order."""
    missing = jnp.isnan(x)
    return jnp.where(missing, z[jnp.cumsum(missing) - 1], x)


def taken_out(x: Array, filled: Array) -> Array:
    """The entries of `filled`, those that are missing in `x` first: `put_in` puts them back."""
    return filled[jnp.argsort(~jnp.isnan(x), stable=True)]
