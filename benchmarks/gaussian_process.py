from __future__ import annotations

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peer

import freeenergy as fe
from freeenergy import kernels

from ._race import Outcome, Workload, race

COLUMNS, EVALUATIONS = 8, 50


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)


def thetas(evaluations: int) -> np.ndarray:
    """Logarithms of eight lengths, a variance and the noise."""
    first = np.log([1.5] * COLUMNS + [1.0, 0.1])
    return first + 0.1 * np.random.default_rng(1).normal(size=(evaluations, len(first)))


def run(quick: bool) -> Outcome:
    X, y = table(300 if quick else 2_000)
    asked = thetas(3 if quick else EVALUATIONS)
    kernel = 1.0 * kernels.RBF(np.ones(COLUMNS))  # pyright: ignore[reportArgumentType]
    ours = fe.GaussianProcess(kernel, noise=0.1, standardise=False, learn=False).fit(X, y)
    other = peer.ConstantKernel() * peer.RBF(np.ones(COLUMNS)) + peer.WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(other, alpha=0, optimizer=None).fit(X, y)
    # theirs has the variance first
    order = [COLUMNS, *range(COLUMNS), COLUMNS + 1]

    def judge(a: list, b: list) -> tuple[bool, str]:
        gap = max(abs(x[0] - z[0]) for x, z in zip(a, b, strict=True))
        slope = max(np.abs(x[1][order] - z[1]).max() for x, z in zip(a, b, strict=True))
        return gap < 1e-6 and slope < 1e-5, f"evidence within {gap:.0e}, slopes within {slope:.0e}"

    return race(
        lambda: [ours.log_marginal_likelihood(theta, eval_gradient=True) for theta in asked],
        lambda: [theirs.log_marginal_likelihood(theta[order], eval_gradient=True) for theta in asked],
        judge,
        repeats=1,
    )


WORKLOAD = Workload(
    f"Gaussian process, 2,000 × {COLUMNS}, a length each, {EVALUATIONS} evaluations of evidence and slope",
    "scikit-learn",
    5,
    run,
)
