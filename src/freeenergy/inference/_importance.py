"""Importance sampling, from the logarithms of the weights."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import boltzmann, log_mean_exp


class ImportanceEstimate(NamedTuple):
    """What weights w_s say about E[w].

    Attributes:
        log_mean: log (1/S) Σ w_s, whose expectation is at most log E[w].
        stderr: standard error of `log_mean` by the delta method; infinite for a single weight.
        effective_sample_size: (Σ w)² / Σ w².
        growth: of `log_mean` from half of the weights to all, and from a quarter to half; NaN for fewer
            than four weights.
    """

    log_mean: Float[Array, ""]
    stderr: Float[Array, ""]
    effective_sample_size: Float[Array, ""]
    growth: Float[Array, " 2"]


def effective_sample_size(log_weights: Float[Array, " draws"]) -> Float[Array, ""]:
    """(Σ w)² / Σ w²: how many equal weights would be worth as much.

    >>> effective_sample_size(jnp.log(jnp.array([1.0, 1.0, 2.0]))).round(4).item()
    2.6667
    """
    # (if all weights are zero, they are equal)
    return 1 / jnp.sum(boltzmann(-log_weights)[1] ** 2)


def importance_estimate(log_weights: Float[Array, " draws"]) -> ImportanceEstimate:
    """The logarithm of the mean weight, with its standard error.

        stderr² = Var[w] / (S E[w]²) = (S / ESS − 1) / (S − 1).

    >>> estimate = importance_estimate(jnp.log(jnp.array([1.0, 3.0])))
    >>> [round(float(v), 4) for v in estimate[:3]]
    [0.6931, 0.5, 1.6]
    """
    size = log_weights.shape[0]
    effective = effective_sample_size(log_weights)
    if size == 1:
        stderr = jnp.full((), jnp.inf, log_weights.dtype)
    else:
        # rounding may leave S / ESS a little below one
        stderr = jnp.sqrt(jnp.maximum(size / effective - 1, 0) / (size - 1))
    return ImportanceEstimate(log_mean_exp(log_weights), stderr, effective, _growth(log_weights))


def _growth(log_weights: Float[Array, " draws"]) -> Float[Array, " 2"]:
    quarter = log_weights.shape[0] // 4
    if quarter == 0:
        return jnp.full(2, jnp.nan, log_weights.dtype)
    quarters = log_mean_exp(log_weights[: 4 * quarter].reshape(4, quarter), axis=1)
    halves = log_mean_exp(quarters.reshape(2, 2), axis=1)
    means = jnp.stack([log_mean_exp(halves), jnp.mean(halves), jnp.mean(quarters)])
    # what is impossible under all weights does not grow
    return jnp.where(means[:-1] > -jnp.inf, means[:-1] - means[1:], 0.0)


def importance_mean(
    log_weights: Float[Array, " draws"], values: Float[Array, " draws *event"]
) -> tuple[Float[Array, " *event"], Float[Array, " *event"]]:
    """(1/S) Σ w f along the first axis of `values`, and its standard error: unbiased.

    The weights p(x)/q(x) must be those of normalised densities; for others see `self_normalised_mean`.

    >>> importance_mean(jnp.log(jnp.array([0.5, 1.5])), jnp.array([2.0, 4.0]))[0].item()
    3.5
    """
    weights = jnp.exp(log_weights)
    terms = weights.reshape(-1, *[1] * (values.ndim - 1)) * values
    return jnp.mean(terms, axis=0), jnp.std(terms, axis=0, ddof=1) / len(terms) ** 0.5


def self_normalised_mean(
    log_weights: Float[Array, " draws"], values: Float[Array, " draws *event"]
) -> tuple[Float[Array, " *event"], Float[Array, " *event"]]:
    """Σ w f / Σ w along the first axis of `values`, and its standard error by the delta method.

    It needs the weights only up to a common factor, and is biased by O(1/S).

    >>> mean, _ = self_normalised_mean(jnp.log(jnp.array([1.0, 3.0])), jnp.array([0.0, 1.0]))
    >>> mean.item()
    0.75
    """
    weights = jax.nn.softmax(log_weights)
    mean = jnp.tensordot(weights, values, 1)
    return mean, jnp.sqrt(jnp.tensordot(weights**2, (values - mean[None]) ** 2, 1))
