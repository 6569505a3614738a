from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe

from ._race import Outcome, Workload, race

DIM, CLUSTERS, STEPS = 16, 32, 30


def run(quick: bool) -> Outcome:
    rng = np.random.default_rng(0)
    rows = 20_000 if quick else 200_000
    X = 3 * rng.normal(size=(CLUSTERS, DIM))[rng.integers(CLUSTERS, size=rows)]
    X = X + 1.5 * rng.normal(size=(rows, DIM))
    centres = X[:CLUSTERS]

    def ours() -> fe.KMeans:
        return fe.KMeans(CLUSTERS, init=centres, max_iter=STEPS, tol=0.0).fit(X)

    def theirs() -> KMeans:
        return KMeans(CLUSTERS, init=centres, n_init=1, max_iter=STEPS, tol=0.0).fit(X)

    def judge(a: fe.KMeans, b: KMeans) -> tuple[bool, str]:
        same = a.n_iter_ == b.n_iter_ and bool(np.isclose(a.inertia_, b.inertia_, rtol=1e-9))
        return same, f"{a.n_iter_} and {b.n_iter_} steps, inertia {a.inertia_:.3f} and {b.inertia_:.3f}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return race(ours, theirs, judge)


WORKLOAD = Workload(
    f"KMeans, 200,000 × {DIM}, {CLUSTERS} clusters, same start, {STEPS} steps", "scikit-learn", 1, run
)
