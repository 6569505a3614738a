from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture

import freeenergy as fe

from ._race import Outcome, Workload, race

ROWS, DIM, COMPONENTS, TOL = 500, 4, 3, 1e-3


def run(quick: bool) -> Outcome:
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(COMPONENTS, DIM))[rng.integers(COMPONENTS, size=ROWS)]
    X = X + rng.normal(size=(ROWS, DIM))
    seeds = range(10 if quick else 100)

    def fits(estimator: Callable[..., Any]) -> list[Any]:
        return [estimator(COMPONENTS, tol=TOL, random_state=seed).fit(X) for seed in seeds]

    def judge(a: list[Any], b: list[Any]) -> tuple[bool, str]:
        means = [float(np.mean([model.score(X) for model in models])) for models in (a, b)]
        return means[0] > means[1] - 0.01, f"{means[0]:.3f} and {means[1]:.3f} nats on average"

    return race(lambda: fits(fe.GaussianMixture), lambda: fits(GaussianMixture), judge)


WORKLOAD = Workload(
    f"GaussianMixture, 100 warm fits of {ROWS} × {DIM}, {COMPONENTS} components", "scikit-learn", 1, run
)
