"""Gaussian processes by inducing points: the bound of Titsias, collapsed over the law of their values.

With values u of f at m points Z, f(X) given u is known up to K − Q, Q = K_fu K_uu⁻¹ K_uf, and

    log p(y) ≥ log N(y; 0, Q + σ²I) − tr(K − Q) / 2σ²,

which asks of the n rows no more than P = A Aᵀ, b = A y, Σ y² and Σ k(x, x), A = L⁻¹ K_uf, L Lᵀ = K_uu: time
n m².  (K_uf K_fu would do, but L⁻¹ on both sides of it multiplies its rounding by 1/λ of K_uu.)
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._core import LOG_2PI

# what is added to K_uu, as a part of its mean diagonal: u is then f(Z) with that little noise, so that the
# bound stays one
JITTER = 1e-8


class RowSums(NamedTuple):
    """What the bound asks of rows and answers, weighted.

    Attributes:
        squares: P = A W Aᵀ, A = L⁻¹ K_uf.
        answers: b = A W y.
        prior: Σ w k(x, x).
        total: Σ w y².
        weight: Σ w.
    """

    squares: Array
    answers: Array
    prior: Array
    total: Array
    weight: Array


class Induced(NamedTuple):
    """The law of the values at inducing points, of which L_uu v are the values: v ~ N(m, (L Lᵀ)⁻¹).

    Attributes:
        mean: m.
        root: L.
    """

    mean: Array
    root: Array


def root_of_points(gram: Array) -> Array:
    """L_uu, with L_uu L_uuᵀ = K_uu and a little more."""
    size = jnp.trace(gram) / len(gram)
    return jnp.linalg.cholesky(gram + JITTER * size * jnp.eye(len(gram)))


def collapsed_bound(sums: RowSums, noise: Array) -> tuple[Array, Induced]:
    """The lower bound of log p(y) that the best law of the values at inducing points has, and that law.

    Args:
        sums: of one output.
        noise: σ².

    >>> one = jnp.ones((1, 1))
    >>> bound, _ = collapsed_bound(RowSums(one, one[0], one[0, 0], one[0, 0], one[0, 0]), one[0, 0])
    >>> round(float(bound), 4)
    -1.5155
    """
    inner = jnp.linalg.cholesky(jnp.eye(len(sums.squares)) + sums.squares / noise)
    told = jax.scipy.linalg.solve_triangular(inner, sums.answers, lower=True) / noise
    bound = (
        -0.5 * sums.weight * (LOG_2PI + jnp.log(noise))
        - jnp.sum(jnp.log(jnp.diagonal(inner)))
        - 0.5 * sums.total / noise
        + 0.5 * told @ told
        - 0.5 * (sums.prior - jnp.trace(sums.squares)) / noise
    )
    mean = jax.scipy.linalg.solve_triangular(inner, told, lower=True, trans=1)
    return bound, Induced(mean, inner)
