"""How much the draws of Markov chains are worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special, stats

Chains = Float[Array, "chains steps *event"] | np.ndarray

# chains whose R̂ by ranks is larger have not yet forgotten where they began (Vehtari et al. 2021)
_WORST_REDUCTION = 1.01
# effective draws for each chain below which quantiles and R̂ itself are not to be relied on
_FEWEST_A_CHAIN = 100
# of the variance of the energy, below which momenta do not reach its tails (Betancourt 2016)
_LEAST_ENERGY_FRACTION = 0.3
# of the trajectories, above which their length is what limits them
_MOST_CUT = 0.05


def _namespace(chains: Any) -> Any:
    """NumPy for what is on the host, where nothing has to be compiled."""
    return np if isinstance(chains, np.ndarray) else jnp


# the tail k̂ of weights up to which they, and the law that was drawn from, are to be believed
_MOST_TAIL = 0.7
# the share of draws that their weights have to be worth for a heavy tail not to matter
_HARMLESS = 0.9


def _variances(chains: Chains) -> tuple[Any, Any]:
    """The mean variance within chains, and the variance of the target as all of them together have it."""
    xp, n = _namespace(chains), chains.shape[1]
    within = xp.mean(xp.var(chains, axis=1, ddof=1), axis=0)
    between = xp.var(xp.mean(chains, axis=1), axis=0, ddof=1) if len(chains) > 1 else 0.0
    return within, within * (n - 1) / n + between


def chain_effective_size(chains: Chains) -> Float[Array, " *event"]:
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
    xp, (m, n) = _namespace(chains), chains.shape[:2]
    within, spread = _variances(chains)
    centred = chains - xp.mean(chains, axis=1, keepdims=True)
    power = xp.abs(xp.fft.rfft(centred, 2 * n, axis=1)) ** 2
    covariances = xp.mean(xp.fft.irfft(power, 2 * n, axis=1)[:, :n], axis=0) / n
    moves = spread > 0
    safe = xp.where(moves, spread, 1)
    rho = 1 - (within[None] - covariances) / safe[None]
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, *rho.shape[1:]).sum(axis=1)
    positive = xp.cumprod(pairs > 0, axis=0).astype(pairs.dtype)
    falling = xp.minimum.accumulate(pairs, axis=0) * positive
    # chains that alternate are worth more than independent draws, but not without end
    time = xp.maximum(2 * xp.sum(falling, axis=0) - 1, 1 / xp.log10(1.0 * m * n))
    return xp.where(moves, m * n / time, 1.0 * m)


def chain_mean(
    chains: Chains,
) -> tuple[Float[Array, " *event"], Float[Array, " *event"]]:
    """The mean over all chains, and its standard error √(variance / ESS)."""
    xp, spread = _namespace(chains), _variances(chains)[1]
    return xp.mean(chains, axis=(0, 1)), xp.sqrt(spread / chain_effective_size(chains))


def potential_scale_reduction(chains: Chains) -> Float[Array, " *event"]:
    """R̂: by how much the spread would shrink if the chains agreed, with each cut in halves; one is good.

    Also known as the Gelman–Rubin statistic.

    >>> apart = jnp.array([[0.0, 0.1, 0.0, 0.1], [5.0, 5.1, 5.0, 5.1]])
    >>> bool(potential_scale_reduction(apart) > 10)
    True
    """
    return _reduction(_halves(chains))


def _reduction(chains: Any) -> Any:
    """√(variance over all chains / variance within)."""
    xp = _namespace(chains)
    within, spread = _variances(chains)
    return xp.where(within > 0, xp.sqrt(spread / xp.where(within > 0, within, 1)), xp.inf)


def _halves(chains: Chains) -> Any:
    """Each chain as two."""
    half = chains.shape[1] // 2
    return _namespace(chains).concatenate([chains[:, :half], chains[:, -half:]])


def _normal_ranks(chains: np.ndarray) -> np.ndarray:
    """Φ⁻¹ of the ranks among all chains (Blom's offsets), entry by entry."""
    flat = chains.reshape(chains.shape[0] * chains.shape[1], -1)
    ranks = stats.rankdata(flat, axis=0)
    return special.ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(chains.shape)


def rank_scale_reduction(chains: Any) -> np.ndarray:
    """R̂ of the ranks of the draws, of their place and of their spread, whichever is larger.

    Chains are cut in halves and their draws replaced by the normal quantiles of their ranks, and the same
    is done with their distances from the median; it sees chains that differ in spread or have no mean
    (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021).

    Args:
        chains: (chains, steps, …), at least four steps.

    >>> same = np.random.default_rng(0).normal(size=(4, 500))
    >>> round(float(rank_scale_reduction(same)), 2)
    1.0
    >>> bool(rank_scale_reduction(same * np.array([[1], [1], [1], [9]])) > 1.2)
    True
    """
    halves = np.asarray(_halves(np.asarray(chains, float)))
    folded = np.abs(halves - np.median(halves, axis=(0, 1), keepdims=True))
    both = [_reduction(_normal_ranks(x)) for x in (halves, folded)]
    # (what takes two values is as far from its median everywhere)
    flat = np.ptp(folded, axis=(0, 1)) == 0
    return np.where(flat, both[0], np.maximum(*both))


def bulk_effective_size(chains: Any) -> np.ndarray:
    """How many independent draws the chains are worth for the place of the distribution.

    The effective sample size of the normal quantiles of the ranks, with each chain cut in halves.

    Args:
        chains: (chains, steps, …), at least eight steps.
    """
    return chain_effective_size(_normal_ranks(np.asarray(_halves(np.asarray(chains, float)))))  # pyright: ignore[reportReturnType]


def tail_effective_size(chains: Any) -> np.ndarray:
    """How many independent draws the chains are worth for the quantiles 5 % and 95 %, the worse of them.

    Args:
        chains: (chains, steps, …), at least eight steps.

    >>> same = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(tail_effective_size(same) > 1500), bool(bulk_effective_size(same) > 1500)
    (True, True)
    """
    halves = np.asarray(_halves(np.asarray(chains, float)))
    ends = np.quantile(halves, [0.05, 0.95], axis=(0, 1))
    below = [(halves <= end).astype(float) for end in ends]
    # (where a value has more probability than the tail, nothing is beyond it, and nothing is to be known)
    sizes = [
        np.where(np.ptp(b, axis=(0, 1)) > 0, chain_effective_size(b), b.shape[0] * b.shape[1])
        for b in below
    ]
    return np.minimum(*sizes)


def energy_fraction(energies: Any) -> Any:
    """Σ (E_t − E_{t−1})² / Σ (E_t − Ē)² of each chain: how well momenta explore the energy.

    Also known as the estimated Bayesian fraction of missing information (E-BFMI); below 0.3 the tails are
    hardly reached (Betancourt 2016).

    Args:
        energies: (chains, steps) of Hamiltonian Monte Carlo.

    >>> bool(energy_fraction(np.random.default_rng(0).normal(size=(1, 2000)))[0] > 1.8)
    True
    """
    xp = _namespace(energies)
    spread = xp.sum((energies - xp.mean(energies, axis=1, keepdims=True)) ** 2, axis=1)
    steps = xp.sum(xp.diff(energies, axis=1) ** 2, axis=1)
    return xp.where(spread > 0, steps / xp.where(spread > 0, spread, 1), xp.inf)


def chain_diagnostics(chains: np.ndarray) -> dict[str, np.ndarray]:
    """What the draws (chains, steps, entries) are worth at their worst entry, by ranks."""
    if chains.shape[1] < 8 or not chains.shape[2]:
        return {}
    return {
        "rank_scale_reduction": np.max(rank_scale_reduction(chains)),
        "bulk_effective_size": np.min(bulk_effective_size(chains)),
        "tail_effective_size": np.min(tail_effective_size(chains)),
        "chains": np.asarray(len(chains)),
    }


def _beside(value: float, limit: float, decimals: int) -> str:
    """A number with as many decimals as tell it from the limit that it misses.

    >>> _beside(1.0103, 1.01, 2), _beside(1.3, 1.01, 2), _beside(399.7, 400.0, 0)
    ('1.0103', '1.30', '399.7')
    """
    tried = (f"{value:.{more}f}" for more in range(decimals, 17))
    return next((shown for shown in tried if float(shown) != limit), repr(value))


def _slow(told: Mapping[str, float]) -> str | None:
    worst = told.get("rank_scale_reduction", 1.0)
    if not worst > _WORST_REDUCTION:
        return None
    shown = _beside(worst, _WORST_REDUCTION, 3)
    return (
        f"The chains disagree: R̂ is {shown} where at most {_WORST_REDUCTION} is wanted; "
        "take more steps, or look for several modes."
    )


def _few(told: Mapping[str, float]) -> str | None:
    names = ("bulk_effective_size", "tail_effective_size")
    wanted = _FEWEST_A_CHAIN * told.get("chains", 4)
    least = min((told[name] for name in names if name in told), default=wanted)
    if least >= wanted:
        return None
    shown = _beside(least, wanted, 0)
    return (
        f"The draws are worth {shown} independent ones at the worst entry, where {wanted:.0f} are "
        "wanted for quantiles; take more steps."
    )


def _divergent(told: Mapping[str, float]) -> str | None:
    count = told.get("divergences", 0)
    if not count:
        return None
    return (
        f"{count:.0f} trajector{'y' if count == 1 else 'ies'} diverged, so that a narrow part of the "
        "posterior may be missing; raise 'acceptance', or write the energy in other coordinates."
    )


def _sticky(told: Mapping[str, float]) -> str | None:
    least = told.get("energy_fraction", 1.0)
    if not least < _LEAST_ENERGY_FRACTION:
        return None
    shown = _beside(least, _LEAST_ENERGY_FRACTION, 1)
    return (
        f"Momenta reach little of the energy (E-BFMI {shown}, where {_LEAST_ENERGY_FRACTION} is "
        "wanted): the tails may be missing; write the energy in other coordinates."
    )


def _cut(told: Mapping[str, float]) -> str | None:
    share = told.get("longest_share", 0.0)
    if not share > _MOST_CUT:
        return None
    return (
        f"{share:.0%} of the trajectories were cut at their longest; raise 'doublings', or take a dense "
        "mass."
    )


def far_from_posterior(told: Mapping[str, float]) -> str | None:
    """A sentence where the weights of the draws of a law say that the posterior is another one, else None.

    >>> far_from_posterior({"pareto_k": 0.2, "effective_share": 0.5}) is None
    True
    """
    k, share = told.get("pareto_k", 0.0), told.get("effective_share", 1.0)
    # a tail that weighs next to nothing spoils nothing
    if not (k > _MOST_TAIL and share < _HARMLESS):
        return None
    shown = _beside(k, _MOST_TAIL, 2)
    return (
        f"The law that was drawn from is not to be believed: the weights of its draws have the tail k̂ = "
        f"{shown}, where at most {_MOST_TAIL} is wanted; take a wider one, or a sampler."
    )


# what is looked at, in this order; a method that has something else to warn of adds it here
_SENTENCES: tuple[Callable[[Mapping[str, float]], str | None], ...] = (
    _slow,
    _few,
    _divergent,
    _sticky,
    _cut,
    far_from_posterior,
)


def diagnostic_warnings(diagnostics: Mapping[str, Any]) -> list[str]:
    """A sentence for each number of a posterior's diagnostics that says not to trust it.

    >>> diagnostic_warnings({"divergences": np.asarray(2)})[0].partition(",")[0]
    '2 trajectories diverged'
    """
    numbers = {name: float(value) for name, value in diagnostics.items() if np.ndim(value) == 0}
    return [said for sentence in _SENTENCES if (said := sentence(numbers)) is not None]
