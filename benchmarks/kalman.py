from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

from freeenergy.distributions import Diagonal, Full
from freeenergy.models import LinearGaussianSSM, Series, one_series

from ._race import Outcome, Workload, race

STATES, OUTPUTS = 4, 2


def parameters(seed: int = 0) -> dict[str, np.ndarray]:
    """A stable system that turns, seen through fewer outputs."""
    rng = np.random.default_rng(seed)
    return {
        "A": 0.95 * np.linalg.qr(rng.normal(size=(STATES, STATES)))[0],
        "Q": 0.3 * np.eye(STATES),
        "C": rng.normal(size=(OUTPUTS, STATES)),
        "R": 0.5 * np.eye(OUTPUTS),
    }


def sample(steps: int, seed: int = 0) -> np.ndarray:
    p, rng = parameters(seed), np.random.default_rng(seed + 1)
    x, values = np.zeros(STATES), np.empty((steps, OUTPUTS))
    for t in range(steps):
        x = p["A"] @ x + np.sqrt(0.3) * rng.normal(size=STATES) if t else rng.normal(size=STATES)
        values[t] = p["C"] @ x + np.sqrt(0.5) * rng.normal(size=OUTPUTS)
    return values


def ours_model() -> LinearGaussianSSM:
    p = {name: jnp.asarray(value) for name, value in parameters().items()}
    return LinearGaussianSSM(
        jnp.zeros(STATES),
        Full(jnp.eye(STATES)),
        p["A"],
        jnp.zeros(STATES),
        Full(p["Q"]),
        p["C"],
        jnp.zeros(OUTPUTS),
        Diagonal(jnp.diagonal(p["R"])),
    )


@eqx.filter_jit
def log_likelihood(model: LinearGaussianSSM, series: Series) -> Any:
    return model.log_prob(series, incomplete=False)


@eqx.filter_jit
def smoothed(model: LinearGaussianSSM, series: Series) -> Any:
    return model.smooth(series, incomplete=False).marginals


def ours(values: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log-likelihood, and smoothed means and covariances."""
    series, model = one_series(jnp.asarray(values)), ours_model()
    log = log_likelihood(model, series)
    mean, covariance = jax.device_get(smoothed(model, series))
    return float(log), mean, covariance


def statsmodels_smoother(values: np.ndarray) -> KalmanSmoother:
    p = parameters()
    smoother = KalmanSmoother(k_endog=OUTPUTS, k_states=STATES, k_posdef=STATES)
    smoother.bind(np.asfortranarray(values.T))
    smoother["design"], smoother["obs_cov"] = p["C"], p["R"]
    smoother["transition"], smoother["state_cov"] = p["A"], p["Q"]
    smoother["selection"] = np.eye(STATES)
    smoother.initialize_known(np.zeros(STATES), np.eye(STATES))
    return smoother


def judge(a: tuple, b: tuple) -> tuple[bool, str]:
    same = bool(np.isclose(a[0], b[0], rtol=1e-9)) and bool(np.allclose(a[1], b[1], atol=1e-6))
    return same, f"{a[0]:.6f} and {b[0]:.6f} nats"


def run(quick: bool) -> Outcome:
    values = sample(10_000 if quick else 100_000)
    peer = statsmodels_smoother(values)

    def theirs() -> tuple[float, np.ndarray]:
        log = peer.loglike()
        return float(log), peer.smooth().smoothed_state.T

    return race(lambda: ours(values), theirs, judge)


WORKLOAD = Workload(
    f"Kalman log-likelihood and smoother, T = 100,000, {STATES} states, {OUTPUTS} outputs",
    "statsmodels",
    2,
    run,
)
