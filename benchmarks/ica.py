from __future__ import annotations

import numpy as np
from sklearn.decomposition import FastICA

import freeenergy as fe

from ._race import Outcome, Workload, race

DIM = 16


def run(quick: bool) -> Outcome:
    rng = np.random.default_rng(0)
    rows = 10_000 if quick else 100_000
    X = rng.laplace(size=(rows, DIM)) @ rng.normal(size=(DIM, DIM))

    def likelihood(components: np.ndarray) -> float:
        """The mean log-likelihood with each source scaled as well as can be."""
        S = (X - X.mean(axis=0)) @ components.T
        scale = S.std(axis=0)
        for _ in range(50):
            # E[ψ(s/σ) s/σ] = 1 where the scale is best
            scale *= np.mean(np.pi / 2 * np.tanh(np.pi / 2 * S / scale) * S / scale, axis=0) ** 0.5
        density = -np.logaddexp(np.pi / 2 * S / scale, -np.pi / 2 * S / scale) - np.log(scale)
        return density.sum(axis=1).mean() + np.linalg.slogdet(components)[1]

    def judge(a: fe.ICA, b: FastICA) -> tuple[bool, str]:
        ours, theirs = likelihood(a.components_), likelihood(b.components_)
        return ours > theirs - 1e-6, f"{ours:.6f} and {theirs:.6f} nats"

    return race(
        lambda: fe.ICA(random_state=0).fit(X),
        lambda: FastICA(whiten="unit-variance", random_state=0).fit(X),
        judge,
    )


WORKLOAD = Workload(f"ICA, 100,000 × {DIM}, to equal or better likelihood", "scikit-learn FastICA", 1, run)
