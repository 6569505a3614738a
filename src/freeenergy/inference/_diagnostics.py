"""How much the draws of Markov chains are worth."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

# the tail k̂ of weights up to which they, and the law that was drawn from, are to be believed
_MOST_TAIL = 0.7
# the share of draws that their weights have to be worth for a heavy tail not to matter
_HARMLESS = 0.9


def _variances(chains: Float[Array, "chains steps *event"]) -> tuple[Array, Array]:
    """The mean variance within chains, and the variance of the target as all of them together have it."""
    n = chains.shape[1]
    within = jnp.mean(jnp.var(chains, axis=1, ddof=1), axis=0)
    between = jnp.var(jnp.mean(chains, axis=1), axis=0, ddof=1) if len(chains) > 1 else 0.0
    return within, within * (n - 1) / n + between


def chain_effective_size(chains: Float[Array, "chains steps *event"]) -> Float[Array, " *event"]:
    """How many independent draws the chains are worth (effective sample size), entry by entry.

        ESS = M N / τ,   τ = −1 + 2 Σ_k P_k,   P_k = ρ_{2k} + ρ_{2k+1}

    with ρ the autocorrelations over all chains and the sum up to where P falls to zero, kept from rising
    (Geyer 1992; Gelman et al., Bayesian Data Analysis, 11.5).  A chain that stands still is worth one draw.

    Args:
        chains: (chains, steps, …), at least four steps.

    >>> import jax
    >>> independent = jax.random.normal(jax.random.key(0), (4, 500))
    >>> bool(jnp.abs(chain_effective_size(independent) / 2000 - 1) < 0.2)
    True
    """
    m, n = chains.shape[:2]
    within, spread = _variances(chains)
    centred = chains - jnp.mean(chains, axis=1, keepdims=True)
    power = jnp.abs(jnp.fft.rfft(centred, 2 * n, axis=1)) ** 2
    covariances = jnp.mean(jnp.fft.irfft(power, 2 * n, axis=1)[:, :n], axis=0) / n
    moves = spread > 0
    safe = jnp.where(moves, spread, 1)
    rho = 1 - (within[None] - covariances) / safe[None]
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, *rho.shape[1:]).sum(axis=1)
    positive = jnp.cumprod(pairs > 0, axis=0).astype(pairs.dtype)
    falling = jnp.minimum.accumulate(pairs, axis=0) * positive
    # chains that alternate are worth more than independent draws, but not without end
    time = jnp.maximum(2 * jnp.sum(falling, axis=0) - 1, 1 / jnp.log10(1.0 * m * n))
    return jnp.where(moves, m * n / time, 1.0 * m)


def chain_mean(
    chains: Float[Array, "chains steps *event"],
) -> tuple[Float[Array, " *event"], Float[Array, " *event"]]:
    """The mean over all chains, and its standard error √(variance / ESS)."""
    spread = _variances(chains)[1]
    return jnp.mean(chains, axis=(0, 1)), jnp.sqrt(spread / chain_effective_size(chains))


def potential_scale_reduction(chains: Float[Array, "chains steps *event"]) -> Float[Array, " *event"]:
    """R̂: by how much the spread would shrink if the chains agreed, with each cut in halves; one is good.

    Also known as the Gelman–Rubin statistic.

    >>> apart = jnp.array([[0.0, 0.1, 0.0, 0.1], [5.0, 5.1, 5.0, 5.1]])
    >>> bool(potential_scale_reduction(apart) > 10)
    True
    """
    half = chains.shape[1] // 2
    halves = jnp.concatenate([chains[:, :half], chains[:, -half:]])
    within, spread = _variances(halves)
    return jnp.where(within > 0, jnp.sqrt(spread / jnp.where(within > 0, within, 1)), jnp.inf)


def far_from_posterior(told: Mapping[str, float]) -> str | None:
    """A sentence where the weights of the draws of a law say that the posterior is another one, else None.

    >>> far_from_posterior({"pareto_k": 0.2, "effective_share": 0.5}) is None
    True
    """
    k, share = told.get("pareto_k", 0.0), told.get("effective_share", 1.0)
    # a tail that weighs next to nothing spoils nothing
    if not (k > _MOST_TAIL and share < _HARMLESS):
        return None
    return (
        f"The law is not to be believed: the weights of its draws have the tail k̂ = {k:.2f}, where at most "
        f"{_MOST_TAIL} is wanted; take a wider family, or a sampler."
    )
