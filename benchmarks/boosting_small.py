from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

import freeenergy as fe

from ._race import Outcome, Workload, race

ROWS, DIM, STAGES = 500, 4, 50


def run(quick: bool) -> Outcome:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (ROWS, DIM))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=ROWS)
    seeds = range(2 if quick else 20)

    def ours() -> list[Any]:
        settings = {"n_estimators": STAGES, "validation_fraction": 0.0}
        return [fe.Boosting(random_state=seed, **settings).fit(X, y) for seed in seeds]

    def theirs() -> list[Any]:
        return [
            GradientBoostingRegressor(n_estimators=STAGES, random_state=seed).fit(X, y) for seed in seeds
        ]

    def judge(a: list[Any], b: list[Any]) -> tuple[bool, str]:
        errors = [float(np.mean([np.mean((m.predict(X) - y) ** 2) for m in models])) for models in (a, b)]
        return errors[0] < 1.02 * errors[1], f"squared errors of {errors[0]:.4f} and {errors[1]:.4f}"

    return race(ours, theirs, judge)


WORKLOAD = Workload(f"Boosting, 20 warm fits of {ROWS} × {DIM}, {STAGES} trees", "scikit-learn", 1, run)
