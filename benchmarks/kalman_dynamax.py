from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ._race import Outcome, Workload, race
from .kalman import OUTPUTS, STATES, judge, ours, parameters, sample


def run(quick: bool) -> Outcome:
    # no extra brings it, since it brings a nightly build of another package
    from dynamax.linear_gaussian_ssm import lgssm_filter, lgssm_smoother
    from dynamax.linear_gaussian_ssm.inference import make_lgssm_params

    filtered = jax.jit(lambda p, y: lgssm_filter(p, y).marginal_loglik)

    @jax.jit
    def smoothed(p, y):
        posterior = lgssm_smoother(p, y)
        return posterior.smoothed_means, posterior.smoothed_covariances

    values = sample(10_000 if quick else 100_000)
    p = {name: jnp.asarray(value) for name, value in parameters().items()}
    begin = jnp.zeros(STATES), jnp.eye(STATES)
    system = make_lgssm_params(*begin, p["A"], p["Q"], p["C"], p["R"])

    def theirs() -> tuple[float, np.ndarray]:
        y = jnp.asarray(values)
        log = filtered(system, y)
        return float(log), *jax.device_get(smoothed(system, y))

    # the peer mixes types
    with jax.numpy_dtype_promotion("standard"):
        return race(lambda: ours(values), theirs, judge)


WORKLOAD = Workload(
    f"Kalman log-likelihood and smoother, T = 100,000, {STATES} states, {OUTPUTS} outputs, both compiled",
    "dynamax",
    1.5,
    run,
)
