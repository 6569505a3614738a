from __future__ import annotations

import warnings
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from hmmlearn.hmm import GaussianHMM
from jax import Array
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy import AbstractAlgorithm, Info
from freeenergy.learning import AbstractSource

from ._race import Outcome, Workload, race

LENGTH, STATES, DIM, STEPS = 1000, 20, 4, 10


def sample(series: int, length: int = LENGTH, states: int = STATES, seed: int = 0) -> np.ndarray:
    """Overlapping Gaussians that states visit for a few steps."""
    rng = np.random.default_rng(seed)
    means = 1.5 * rng.normal(size=(states, DIM))
    jump = 0.7 * np.eye(states) + 0.3 * rng.dirichlet(np.full(states, 0.5), states)
    cumulative = jump.cumsum(axis=1)
    z = rng.integers(states, size=series)
    X = rng.normal(size=(series, length, DIM))
    for t in range(length):
        X[:, t] += means[z]
        z = np.minimum((cumulative[z] < rng.random(series)[:, None]).sum(axis=1), states - 1)
    return X


class Stay(AbstractAlgorithm):
    """No learning at all: what is fitted is where the fit would begin."""

    needs: ClassVar[type[AbstractSource]] = AbstractSource

    def init(self, model: Any, data: Any, *, key: Array) -> Any:
        return model

    def step(self, state: Any, data: Any, *, key: Array) -> tuple[Any, Info]:
        return state, Info(jnp.ones((), bool))

    def model(self, state: Any) -> Any:
        return state


def ours(X: np.ndarray, learner: AbstractAlgorithm | None = None) -> fe.HMM:
    """Our fit from centres among the first rows, and transitions that stay every other time."""
    transition = np.full((STATES, STATES), 0.5 / STATES) + 0.5 * np.eye(STATES)
    options: dict[str, Any] = {"transition": transition, "max_iter": STEPS, "tol": 0.0, "learner": learner}
    return fe.HMM(STATES, init=X[0, :STATES], **options).fit(X)


def peer(begin: fe.HMM, X: np.ndarray) -> GaussianHMM:
    """hmmlearn from the same start, without its priors."""
    model = GaussianHMM(
        STATES,
        "full",
        n_iter=STEPS,
        tol=-np.inf,
        init_params="",
        min_covar=0,
        covars_prior=0,
        covars_weight=0,
        means_weight=0,
    )
    model.startprob_, model.transmat_ = begin.initial_, begin.transition_
    model.means_, model.covars_ = begin.means_, begin.covariances_
    return model.fit(X.reshape(-1, DIM), [LENGTH] * len(X))


def run(quick: bool) -> Outcome:
    X = sample(8 if quick else 100)

    def judge(a: fe.HMM, b: GaussianHMM) -> tuple[bool, str]:
        values = a.score_samples(X).sum(), b.score(X.reshape(-1, DIM), [LENGTH] * len(X))
        return bool(np.isclose(*values, rtol=1e-6)), f"{values[0]:.3f} and {values[1]:.3f} nats"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        begin = ours(X, Stay())
        return race(lambda: ours(X), lambda: peer(begin, X), judge, repeats=1)


WORKLOAD = Workload(
    f"HMM, 100 series × {LENGTH} steps, {STATES} states, {DIM}-d full Gaussian, {STEPS} Baum–Welch steps",
    "hmmlearn",
    12,
    run,
)
