from __future__ import annotations

import numpy as np
from sklearn.kernel_approximation import Nystroem

import freeenergy as fe
from freeenergy import kernels

from ._race import Outcome, Workload, race

COLUMNS, FEATURES = 20, 500


def run(quick: bool) -> Outcome:
    X = np.random.default_rng(0).normal(size=(5_000 if quick else 100_000, COLUMNS))
    length = np.sqrt(COLUMNS)
    kernel = kernels.RBF(length)
    few = kernel.gram(X[:1000])

    def error(features: np.ndarray) -> float:
        return float(np.abs(features[:1000] @ features[:1000].T - few).mean())

    def judge(a: np.ndarray, b: np.ndarray) -> tuple[bool, str]:
        return error(a) < 1.1 * error(b), f"mean errors of the kernel {error(a):.4f} and {error(b):.4f}"

    ours = fe.Nystroem(kernel, n_components=FEATURES, standardise=False, random_state=0).fit(X)
    theirs = Nystroem(gamma=0.5 / length**2, n_components=FEATURES, random_state=0).fit(X)
    return race(lambda: ours.transform(X), lambda: theirs.transform(X), judge)


WORKLOAD = Workload(f"Nystroem features, 100,000 × {COLUMNS} to {FEATURES}", "scikit-learn", 1, run)
