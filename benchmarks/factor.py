from __future__ import annotations

import numpy as np
from sklearn.decomposition import FactorAnalysis

import freeenergy as fe

from ._race import Outcome, Workload, race

DIM, FACTORS = 64, 10


def run(quick: bool) -> Outcome:
    rng = np.random.default_rng(0)
    rows = 2_000 if quick else 20_000
    noise = rng.uniform(0.5, 2, DIM) * rng.normal(size=(rows, DIM))
    X = rng.normal(size=(rows, FACTORS)) @ rng.normal(size=(FACTORS, DIM)) + noise

    def judge(a: fe.FactorAnalysis, b: FactorAnalysis) -> tuple[bool, str]:
        return a.score(X) > b.score(X) - 1e-5, f"{a.score(X):.6f} and {b.score(X):.6f} nats"

    return race(
        lambda: fe.FactorAnalysis(FACTORS).fit(X),
        lambda: FactorAnalysis(FACTORS, random_state=0).fit(X),
        judge,
    )


WORKLOAD = Workload(
    f"FactorAnalysis, 20,000 × {DIM}, {FACTORS} factors, to the same likelihood", "scikit-learn", 1, run
)
