"""Inverse links that JAX has no function for: from a real output to a mean."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def normal_cdf(output: Array) -> Array:
    """Φ(η), the inverse of the probit link.

    >>> normal_cdf(jnp.array(0.0)).item()
    0.5
    """
    return jax.scipy.special.ndtr(output)


def gumbel_cdf(output: Array) -> Array:
    """1 − exp(−e^η), the inverse of the complementary log-log link.

    It is the probability of at least one event where their number is Poisson with log-rate η.

    >>> round(float(gumbel_cdf(jnp.array(0.0))), 6)
    0.632121
    """
    return -jnp.expm1(-jnp.exp(output))


def reciprocal(output: Array) -> Array:
    """1/η, the inverse of the canonical link of Gamma answers up to its sign; η must be positive.

    >>> reciprocal(jnp.array(4.0)).item()
    0.25
    """
    return 1 / output


def reciprocal_root(output: Array) -> Array:
    """1/√η, the inverse of the canonical link of inverse Gaussian answers up to its sign and a half.

    >>> reciprocal_root(jnp.array(4.0)).item()
    0.5
    """
    return jax.lax.rsqrt(output)
