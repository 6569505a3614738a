from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

import freeenergy as fe

from ._race import Outcome, Workload, race

DIM, COMPONENTS, STEPS = 8, 20, 30


def sample(rows: int, seed: int = 0) -> np.ndarray:
    """Ten overlapping clusters, half as many as there are components."""
    rng = np.random.default_rng(seed)
    label = rng.integers(COMPONENTS // 2, size=rows)
    centres = 3 * rng.normal(size=(COMPONENTS // 2, DIM))
    return centres[label] + rng.normal(size=(rows, DIM))


def run(quick: bool) -> Outcome:
    X = sample(5_000 if quick else 50_000)

    def ours() -> fe.BayesianMixture:
        return fe.BayesianMixture(
            COMPONENTS, init=fe.RandomRows(), max_iter=STEPS, tol=0.0, random_state=0
        ).fit(X)

    def theirs() -> BayesianGaussianMixture:
        return BayesianGaussianMixture(
            n_components=COMPONENTS,
            weight_concentration_prior_type="dirichlet_distribution",
            init_params="random_from_data",
            max_iter=STEPS,
            tol=0.0,
            random_state=0,
        ).fit(X)

    def judge(a: fe.BayesianMixture, b: BayesianGaussianMixture) -> tuple[bool, str]:
        mine, other = a.score(X), b.score(X)
        good = a.n_iter_ == b.n_iter_ and mine > other - 0.01
        return good, f"{a.n_iter_} and {b.n_iter_} steps, {mine:.4f} and {other:.4f} nats"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return race(ours, theirs, judge)


WORKLOAD = Workload(
    f"BayesianMixture, full, 50,000 × {DIM}, {COMPONENTS} components, {STEPS} steps", "scikit-learn", 5, run
)
