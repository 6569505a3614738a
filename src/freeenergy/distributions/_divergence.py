"""Kullback–Leibler divergence and entropy: in closed form where there is one, by sampling elsewhere."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import rel_entr

from .._core import LOG_2PI, categorical_entropy, cholesky
from ._base import (
    AbstractDistribution,
    AbstractExponentialFamily,
    AbstractLocationScale,
    mean_parameters,
)
from ._composite import Product
from ._continuous import Beta, Dirichlet, Exponential, Gamma
from ._count_table import CountTable
from ._discrete import Bernoulli, Binomial, Categorical, Multinomial, Poisson
from ._gaussian import Gaussian, GaussianLocation


@functools.singledispatch
def kl_divergence(p: Any, q: Any) -> Array:
    """KL(p ‖ q) = E_p[log p(x) − log q(x)] in nats, for Gaussians or members of one exponential family.

    In a family it is the Bregman divergence of the log-partition,
    A(η_q) − A(η_p) − ∇A(η_p)·(η_q − η_p).

    >>> from freeenergy.distributions import Poisson
    >>> kl_divergence(Poisson(jnp.array([1.0])), Poisson(jnp.array([2.0]))).round(6).item()
    0.306853
    """
    raise TypeError(
        f"KL has no closed form for {type(p).__name__} and {type(q).__name__}; use monte_carlo_kl."
    )


@kl_divergence.register
def _(p: AbstractExponentialFamily, q: AbstractExponentialFamily) -> Array:
    _check_same_kind(p, q)
    step = q.natural() - p.natural()
    return jnp.sum(q.log_partition()) - jnp.sum(p.log_partition()) - jnp.sum(mean_parameters(p) * step)


def _check_same_kind(p: Any, q: Any) -> None:
    # the tree structure holds the class and the fixed fields, such as a number of trials
    if jax.tree.structure(p) != jax.tree.structure(q):
        raise TypeError(
            f"KL has no closed form for {type(p).__name__} and {type(q).__name__} of different kind; "
            "use monte_carlo_kl."
        )
    _check_same_events(p, q)


def _check_same_events(p: Any, q: Any) -> None:
    # arrays of unequal shape would be repeated to fit each other
    mine, other = ([leaf.shape for leaf in jax.tree.leaves(d)] for d in (p, q))
    if mine != other:
        raise TypeError(
            "KL needs two distributions of the same events. Got parameters of shapes "
            f"{mine} and {other} instead."
        )


# A discrete member can lie at the edge of its family, where natural parameters are infinite: sums over the
# outcomes are right there, with p log(p/q) = 0 for p = 0 and ∞ where q alone is zero.


@kl_divergence.register(Bernoulli)
@kl_divergence.register(Binomial)
def _(p: Bernoulli | Binomial, q: Bernoulli | Binomial) -> Array:
    _check_same_kind(p, q)
    a, b = p.probability, q.probability
    return jnp.sum(jnp.asarray(p.trials, a.dtype) * (rel_entr(a, b) + rel_entr(1 - a, 1 - b)))


@kl_divergence.register(Categorical)
@kl_divergence.register(Multinomial)
def _(p: Categorical | Multinomial, q: Categorical | Multinomial) -> Array:
    _check_same_kind(p, q)
    return p.trials * jnp.sum(rel_entr(p.probabilities, q.probabilities))


@kl_divergence.register
def _(p: CountTable, q: CountTable) -> Array:
    _check_same_kind(p, q)
    tail = p.probabilities[:, -1] * _geometric_kl(p.ratio, q.ratio)
    return jnp.sum(rel_entr(p.probabilities, q.probabilities)) + jnp.sum(tail)


def _geometric_kl(r: Array, s: Array) -> Array:
    """Between geometric laws with these ratios."""
    return (rel_entr(r, s) + rel_entr(1 - r, 1 - s)) / (1 - r)


@kl_divergence.register
def _(p: Poisson, q: Poisson) -> Array:
    _check_same_kind(p, q)
    return jnp.sum(rel_entr(p.rate, q.rate) - p.rate + q.rate)


@kl_divergence.register
def _(p: Gaussian, q: Gaussian) -> Array:
    # covariances may have different structure
    _check_same_events(p.mean, q.mean)
    dim = p.mean.shape[-1]
    root = cholesky(p.covariance.matrix())[0]
    trace = jnp.sum(jax.vmap(q.covariance.whiten, 1)(root) ** 2)
    length = jnp.sum(q.covariance.whiten(q.mean - p.mean) ** 2)
    return 0.5 * (trace + length - dim + q.covariance.log_det() - p.covariance.log_det())


@kl_divergence.register
def _(p: Product, q: Product) -> Array:
    if p.sizes != q.sizes or p.order.tolist() != q.order.tolist():
        raise TypeError(f"KL of products needs equal blocks. Got sizes {p.sizes} and {q.sizes} instead.")
    return jnp.sum(jnp.stack([kl_divergence(a, b) for a, b in zip(p.parts, q.parts)]))


@functools.singledispatch
def entropy(p: Any) -> Array:
    """H[p] = −E_p[log p(x)] in nats, where it has a closed form.

    >>> entropy(Bernoulli(jnp.array([0.5]))).round(6).item()
    0.693147
    """
    raise TypeError(f"The entropy of {type(p).__name__} has no closed form; use monte_carlo_entropy.")


@entropy.register
def _(p: Bernoulli) -> Array:
    return jnp.sum(categorical_entropy(jnp.stack([p.probability, 1 - p.probability])))


@entropy.register
def _(p: Categorical) -> Array:
    return jnp.sum(categorical_entropy(p.probabilities))


@entropy.register
def _(p: CountTable) -> Array:
    coin = categorical_entropy(jnp.stack([p.ratio, 1 - p.ratio], axis=-1))
    tail = p.probabilities[:, -1] * coin / (1 - p.ratio)
    return jnp.sum(categorical_entropy(p.probabilities)) + jnp.sum(tail)


@entropy.register(Exponential)
@entropy.register(Gamma)
@entropy.register(Beta)
@entropy.register(Dirichlet)
def _(p: AbstractExponentialFamily) -> Array:
    # these have log h = 0 on their support, so the entropy is A(η) − η·∇A(η)
    return jnp.sum(p.log_partition()) - jnp.sum(p.natural() * mean_parameters(p))


@entropy.register
def _(p: Gaussian) -> Array:
    return p.entropy()


@entropy.register
def _(p: GaussianLocation) -> Array:
    return jnp.full((), 0.5 * p.dim * (1 + LOG_2PI + math.log(p.variance)), p.loc.dtype)


@entropy.register
def _(p: AbstractLocationScale) -> Array:
    return jnp.sum(p.standard_entropy() + jnp.log(p.scale))


@entropy.register
def _(p: Product) -> Array:
    return jnp.sum(jnp.stack([entropy(part) for part in p.parts]))


def has_entropy(p: Any) -> bool:
    """Whether `entropy` knows a closed form for `p`.

    >>> has_entropy(Bernoulli(jnp.array([0.5])))
    True
    """
    parts = p.parts if isinstance(p, Product) else (p,)
    return all(entropy.dispatch(type(part)) is not entropy.dispatch(object) for part in parts)


def _mean_and_error(values: Array) -> tuple[Array, Array]:
    return jnp.mean(values), jnp.std(values, ddof=1) / jnp.sqrt(values.shape[0])


def monte_carlo_kl(
    p: AbstractDistribution, q: AbstractDistribution, n_samples: int, *, key: Array
) -> tuple[Array, Array]:
    """KL(p ‖ q) from draws of p, with its standard error.

    >>> from freeenergy.distributions import Laplace
    >>> same = Laplace(jnp.zeros(1), jnp.ones(1))
    >>> [float(v) for v in monte_carlo_kl(same, same, 10, key=jax.random.key(0))]
    [0.0, 0.0]
    """
    draws = jax.vmap(lambda k: p.sample(key=k))(jax.random.split(key, n_samples))
    return _mean_and_error(jax.vmap(lambda x: p.log_prob(x) - q.log_prob(x))(draws))


def monte_carlo_entropy(p: AbstractDistribution, n_samples: int, *, key: Array) -> tuple[Array, Array]:
    """H[p] from draws of p, with its standard error.

    >>> value, error = monte_carlo_entropy(Exponential(jnp.ones(1)), 1000, key=jax.random.key(0))
    >>> bool(abs(value - 1) < 5 * error)
    True
    """
    draws = jax.vmap(lambda k: p.sample(key=k))(jax.random.split(key, n_samples))
    return _mean_and_error(-jax.vmap(p.log_prob)(draws))
