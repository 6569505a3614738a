"""NUTS beside NumPyro's: seconds for a thousand effective draws of the worst entry, warm and cold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from freeenergy.distributions import Reals
from freeenergy.inference import NUTS, AbstractPosterior, bulk_effective_size, infer

from ._race import Outcome, Workload

CHAINS, STEPS, BURN_IN = 4, 1000, 500
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


class Schools(eqx.Module):
    """Eight schools, in coordinates in which the schools are independent: μ, log τ and eight deviations."""

    effects: Array
    errors: Array

    def __call__(self, z: Array) -> Array:
        mean, log_scale, gaps = z[0], z[1], z[2:]
        gap = (self.effects - mean - jnp.exp(log_scale) * gaps) / self.errors
        # half-Cauchy(5) of τ
        scale = jnp.log1p((jnp.exp(log_scale) / 5) ** 2) - log_scale
        return jnp.sum(gap**2) / 2 + jnp.sum(gaps**2) / 2 + mean**2 / 50 + scale


class Logistic(eqx.Module):
    """Logistic regression with a standard normal prior."""

    rows: Array
    labels: Array

    def __call__(self, z: Array) -> Array:
        logits = self.rows @ z
        return jnp.sum(jax.nn.softplus(logits)) - self.labels @ logits + jnp.sum(z**2) / 2


class Normal(eqx.Module):
    """A normal law with correlated entries."""

    precision: Array

    def __call__(self, z: Array) -> Array:
        return z @ self.precision @ z / 2


def schools() -> tuple[Any, int]:
    return Schools(jnp.asarray(EFFECTS), jnp.asarray(ERRORS)), 10


def logistic() -> tuple[Any, int]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 25))
    labels = rng.random(1000) < 1 / (1 + np.exp(-rows @ rng.normal(size=25)))
    return Logistic(jnp.asarray(rows), jnp.asarray(labels.astype(float))), 25


def normal() -> tuple[Any, int]:
    place = np.arange(100)
    covariance = 0.9 ** np.abs(place[:, None] - place[None])
    return Normal(jnp.asarray(np.linalg.inv(covariance))), 100


class Drawn(NamedTuple):
    """Seconds, effective draws of the worst entry, and the means of all entries."""

    seconds: float
    size: float
    mean: np.ndarray


def _drawn(seconds: float, chains: np.ndarray) -> Drawn:
    return Drawn(seconds, float(np.min(bulk_effective_size(chains))), chains.mean(axis=(0, 1)))


def ours(energy: Any, dim: int, seed: int) -> Drawn:
    started = time.perf_counter()
    method = NUTS(chains=CHAINS, steps=STEPS, burn_in=BURN_IN)
    found: AbstractPosterior = infer(energy, Reals((dim,)), method, key=jax.random.key(seed))
    draws = np.asarray(found.chains()[1])
    return _drawn(time.perf_counter() - started, draws)


def theirs(dim: int, *, cold: bool) -> Callable[[Any, int], Drawn]:
    """NumPyro's, its chains all at once (`vectorized`) as ours.

    Warm the whole of `MCMC.run` is one compiled function, since by itself it compiles its start anew in
    every run; cold it is called as users call it.
    """
    from numpyro import infer as peers

    def sample(energy: Any, key: Array, begin: Array) -> Array:
        mcmc = peers.MCMC(
            peers.NUTS(potential_fn=energy),
            num_warmup=BURN_IN,
            num_samples=STEPS,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=False,
        )
        mcmc.run(key, init_params=begin)
        return mcmc.get_samples(group_by_chain=True)

    compiled = sample if cold else eqx.filter_jit(sample)

    def run(energy: Any, seed: int) -> Drawn:
        begin = jax.random.normal(jax.random.key(seed + 100), (CHAINS, dim))
        key = jax.random.key(seed)
        started = time.perf_counter()
        draws = np.asarray(compiled(energy, key, begin))
        return _drawn(time.perf_counter() - started, draws)

    return run


def _run(problem: Callable[[], tuple[Any, int]], *, cold: bool) -> Callable[[bool], Outcome]:
    def run(quick: bool) -> Outcome:
        energy, dim = problem()
        peer = theirs(dim, cold=cold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # what is compiled is kept on disk for other processes, which would not be a cold start
            jax.config.update("jax_enable_compilation_cache", not cold)
            first = ours(energy, dim, 0), peer(energy, 0)
            pairs = [first] if cold else []
            pairs += [
                (ours(energy, dim, s), peer(energy, s)) for s in range(1, 2 if quick else 6) if not cold
            ]
            jax.config.update("jax_enable_compilation_cache", True)
        a, b = pairs[-1]
        error = np.sqrt(1 / min(a.size, b.size))
        spread = 3.0 if problem is schools else 1.0
        good = bool(np.max(np.abs(a.mean - b.mean)) < 8 * spread * error)
        note = f"{a.size:.0f} and {b.size:.0f} effective draws in {a.seconds:.2f} and {b.seconds:.2f} s"
        if cold:
            return Outcome([first[0].seconds], [first[1].seconds], good, note)
        mine, other = ([1000 * d.seconds / d.size for d in side] for side in zip(*pairs, strict=True))
        return Outcome(mine, other, good, note)

    return run


_WORDS = {
    "schools": (schools, "eight schools, 10 unknowns"),
    "logistic": (logistic, "logistic regression, 1,000 × 25"),
    "normal": (normal, "a correlated Gaussian of 100 dimensions"),
}
_HOW = f"{CHAINS} chains, {BURN_IN} + {STEPS} steps"
WORKLOADS = {
    f"nuts_{name}": Workload(
        f"NUTS on {words}, {_HOW}: seconds for 1,000 effective draws of the worst entry, warm",
        "NumPyro",
        1,
        _run(problem, cold=False),
    )
    for name, (problem, words) in _WORDS.items()
} | {
    f"nuts_{name}_cold": Workload(
        f"NUTS on {words}, {_HOW}: seconds of the first run in a process, nothing on disk",
        "NumPyro",
        1,
        _run(problem, cold=True),
    )
    for name, (problem, words) in _WORDS.items()
}
