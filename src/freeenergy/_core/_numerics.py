"""Numerics in log space and guarded linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import xlogy

LOG_2PI = 1.8378770664093453


def log_mean_exp(values: Array, axis: int = 0) -> Array:
    """log of the mean of exp(values) along `axis`."""
    return jax.nn.logsumexp(values, axis=axis) - jnp.log(values.shape[axis])


def categorical_entropy(probabilities: Array, axis: int = -1) -> Array:
    """−Σ p log p with 0 log 0 = 0."""
    return -jnp.sum(xlogy(probabilities, probabilities), axis=axis)


def softmax_at(scores: Array, temperature: Array | float, axis: int = -1) -> Array:
    """Softmax of scores / temperature; temperature zero shares the mass among the maxima.

    >>> softmax_at(jnp.array([1.0, 2.0, 2.0]), 0.0).tolist()
    [0.0, 0.5, 0.5]
    """
    top = jnp.max(scores, axis=axis, keepdims=True)
    hard = (scores == top).astype(scores.dtype)
    temperature = jnp.asarray(temperature, scores.dtype)
    warm = jnp.where(temperature > 0, temperature, 1.0)
    # all scores −inf: the event is impossible under every answer, say so evenly
    gap = jnp.where(jnp.isneginf(top), 0.0, scores - jnp.where(jnp.isneginf(top), 0.0, top))
    mass = jnp.where(temperature > 0, jnp.exp(gap / warm), hard)
    return mass / jnp.sum(mass, axis=axis, keepdims=True)


def cholesky(matrix: Array, max_jitter: float = 1e-6) -> tuple[Array, Array]:
    """Cholesky factor of one symmetric matrix, with the jitter that it took.

    Where the plain factorisation fails, multiples of the mean diagonal are added, growing
    tenfold from rounding size to `max_jitter`; if that fails too the factor is NaN.

    Returns:
        The lower factor and the jitter added to the diagonal (zero when none was needed).
    """
    scale = jnp.mean(jnp.diagonal(matrix))
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    first = 10 * jnp.finfo(matrix.dtype).eps

    def fails(jitter: Array) -> Array:
        factor = jnp.linalg.cholesky(matrix + jitter * scale * eye)
        return jnp.any(~jnp.isfinite(factor)) & (jitter < max_jitter)

    def grow(jitter: Array) -> Array:
        return jnp.minimum(jnp.maximum(10 * jitter, first), max_jitter)

    search = jax.lax.while_loop(fails, grow, jnp.zeros((), matrix.dtype))
    jitter = jax.lax.stop_gradient(search) * scale
    return jnp.linalg.cholesky(matrix + jitter * eye), jitter


def log_det_cholesky(factor: Array) -> Array:
    """log |A| from the Cholesky factor of A."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def symmetrise(matrix: Array) -> Array:
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2
