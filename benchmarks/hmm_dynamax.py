from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe

from ._race import Outcome, Workload, race
from .hmm import DIM, LENGTH, STATES, STEPS, Stay, ours, sample


def peer(begin: fe.HMM, X: np.ndarray) -> float:
    """Dynamax from the same start, with priors that hardly count; its last log-likelihood."""
    from dynamax.hidden_markov_model import GaussianHMM

    model = GaussianHMM(
        STATES,
        DIM,
        initial_probs_concentration=1.0 + 1e-9,
        transition_matrix_concentration=1.0 + 1e-9,
        emission_prior_concentration=1e-9,
        emission_prior_scale=1e-9,
        emission_prior_extra_df=1e-9,
    )
    parameters, properties = model.initialize(
        jax.random.key(0),
        initial_probs=jnp.asarray(begin.initial_),
        transition_matrix=jnp.asarray(begin.transition_),
        emission_means=jnp.asarray(begin.means_),
        emission_covariances=jnp.asarray(begin.covariances_),
    )
    parameters, _ = model.fit_em(parameters, properties, jnp.asarray(X), num_iters=STEPS, verbose=False)
    return float(jax.jit(jax.vmap(lambda x: model.marginal_log_prob(parameters, x)))(jnp.asarray(X)).sum())


def run(quick: bool) -> Outcome:
    X = sample(8 if quick else 100)

    def judge(a: Any, b: float) -> tuple[bool, str]:
        value = float(a.score_samples(X).sum())
        # its prior of the covariances cannot be turned off
        return bool(np.isclose(value, b, rtol=1e-3)), f"{value:.3f} and {b:.3f} nats"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        begin = ours(X, Stay())
        return race(lambda: ours(X), lambda: peer(begin, X), judge, repeats=2)


WORKLOAD = Workload(
    f"HMM, 100 series × {LENGTH} steps, {STATES} states, {DIM}-d full Gaussian, {STEPS} Baum–Welch steps",
    "dynamax",
    2,
    run,
)
