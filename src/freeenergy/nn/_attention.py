"""Attention: places that ask others what they know."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from .._core import dense

# what keeps the variance of a layer away from zero
_SMALL = 1e-5


def normalised(h: Array) -> Array:
    """Entries of mean zero and variance one, along the last axis."""
    gap = h - jnp.mean(h, axis=-1, keepdims=True)
    return gap * jax.lax.rsqrt(jnp.mean(gap**2, axis=-1, keepdims=True) + _SMALL)


def asked(h: Float[Array, "places width"], attend: Array, heads: int) -> list[Array]:
    """Queries, keys and values of places, with an axis for the heads."""
    return jnp.split(dense(h, attend).reshape(len(h), heads, -1), 3, axis=-1)


def attended(
    q: Float[Array, "asking heads dim"],
    k: Float[Array, "places heads dim"],
    v: Float[Array, "places heads dim"],
    hidden: Bool[Array, "asking places"] | None = None,
) -> Float[Array, "asking heads dim"]:
    """What the heads of a place find: Σ_j softmax_j(q_i·k_j / √dim) v_j over places that are not hidden."""
    scores = jnp.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
    if hidden is not None:
        scores = jnp.where(hidden[None], -jnp.inf, scores)
    return jnp.einsum("hij,jhd->ihd", jax.nn.softmax(scores, axis=-1), v)
