"""Pareto-smoothed importance weights, and the tail that says whether to believe them."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class ParetoSmoothed(NamedTuple):
    """Importance weights whose largest are those that their tail says.

    Attributes:
        log_weights: normalised.
        pareto_k: k̂, the shape of the tail: weights have finite moments below order 1/k.  Up to about 0.7
            means over the weights are to be believed; −∞ where they are equal, NaN for fewer than 25.
    """

    log_weights: Float[Array, " draws"]
    pareto_k: Float[Array, ""]


@jax.jit
def pareto_smooth(log_weights: Float[Array, " draws"]) -> ParetoSmoothed:
    """Replaces the largest importance weights by quantiles of the Pareto law of their tail (PSIS).

    The generalised Pareto law is fitted to the min(S/5, 3√S) largest weights, as by Zhang and Stephens
    (2009) with the weak prior k ≈ 0.5 worth ten weights; none is made larger than the largest was.

    Args:
        log_weights: up to a constant; −∞ for a draw that cannot be.

    >>> law = jax.random.exponential(jax.random.key(0), (4000,))
    >>> found = pareto_smooth(0.4 * law)  # e to an exponential number is a Pareto number
    >>> bool(jnp.abs(found.pareto_k - 0.4) < 0.1)
    True

    References:
        Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling.
    """
    draws = log_weights.shape[0]
    size = math.ceil(min(draws / 5, 3 * draws**0.5))
    if size < 5:
        unknown = jnp.full((), jnp.nan, log_weights.dtype)
        return ParetoSmoothed(jax.nn.log_softmax(log_weights), unknown)
    scaled = log_weights - jnp.max(log_weights)
    order = jnp.argsort(scaled)
    tail = order[draws - size :]
    edge = jnp.exp(scaled[order[draws - size - 1]])
    excess = jnp.exp(scaled[tail]) - edge
    # rounding is no spread
    spread = scaled[order[-1]] - scaled[order[draws - size - 1]] > 1e-9
    k, scale = _fit(jnp.where(spread, excess, jnp.arange(1.0, size + 1, dtype=excess.dtype)))
    steps = (jnp.arange(size, dtype=excess.dtype) + 0.5) / size
    quantiles = scale * jnp.where(k == 0, -jnp.log1p(-steps), jnp.expm1(-k * jnp.log1p(-steps)) / k)
    smooth = jnp.minimum(jnp.log(quantiles + edge), 0)
    smooth = jnp.where(spread & jnp.isfinite(k), smooth, scaled[tail])
    found = jnp.where(spread, jnp.where(jnp.isnan(k), jnp.inf, k), -jnp.inf)
    return ParetoSmoothed(jax.nn.log_softmax(scaled.at[tail].set(smooth)), found)


def _fit(excess: Float[Array, " tail"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Shape and scale of the generalised Pareto law of sorted numbers."""
    size = len(excess)
    count = 30 + int(size**0.5)
    grid = 1 - jnp.sqrt(count / (jnp.arange(1, count + 1, dtype=excess.dtype) - 0.5))
    quartile = excess[int(size / 4 + 0.5) - 1]
    b = grid / (3 * jnp.where(quartile > 0, quartile, excess[-1])) + 1 / excess[-1]
    shapes = jnp.mean(jnp.log1p(-b[:, None] * excess[None]), axis=1)
    profile = size * (jnp.log(-b / shapes) - shapes - 1)
    b = jnp.vdot(jax.nn.softmax(profile), b)
    shape = jnp.mean(jnp.log1p(-b * excess))
    return (size * shape + 5) / (size + 10), -shape / b
