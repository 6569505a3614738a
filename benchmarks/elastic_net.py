from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import Lasso, enet_path

import freeenergy as fe

from ._race import Outcome, Workload, race

ROWS, COLUMNS, RATIO = 5_000, 500, 0.7


def table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of standard deviation one that depend on each other; a tenth of them have an effect."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)) + 0.5 * rng.normal(size=(rows, 1))
    effect = rng.normal(size=columns) * (rng.random(columns) < 0.1)
    y = X @ effect + 3 * rng.normal(size=rows)
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def path(quick: bool) -> Outcome:
    X, y = table(500 if quick else ROWS, 50 if quick else COLUMNS)
    model = fe.SparseRegression(l1_ratio=RATIO)
    most = np.abs(X.T @ y).max() / len(X) / RATIO
    alphas = np.geomspace(most, most / 1000, 100)

    def theirs() -> Any:
        return enet_path(X, y, l1_ratio=RATIO, alphas=alphas)[1].T

    def judge(ours: Any, theirs: Any) -> tuple[bool, str]:
        def objective(coef: np.ndarray, alpha: float) -> float:
            penalty = RATIO * np.abs(coef).sum() + 0.5 * (1 - RATIO) * coef @ coef
            return float(0.5 * np.mean((y - X @ coef) ** 2) + alpha * penalty)

        gaps = [
            objective(a, alpha) - objective(b, alpha)
            for alpha, a, b in zip(ours.alphas, ours.coef, theirs, strict=True)
        ]
        return max(gaps) < 1e-9, f"objectives above theirs by {max(gaps):.1e}, below by {-min(gaps):.1e}"

    return race(lambda: model.path(X, y, alphas), theirs, judge)


def small(quick: bool) -> Outcome:
    X, y = table(200, 20)
    fits = range(20 if quick else 100)

    def judge(a: Any, b: Any) -> tuple[bool, str]:
        gap = float(np.abs(a[-1].coef_ - b[-1].coef_).max())
        return gap < 1e-3, f"coefficients differ by {gap:.1e} at most"

    return race(
        lambda: [fe.SparseRegression(0.05).fit(X, y) for _ in fits],
        lambda: [Lasso(0.05).fit(X, y) for _ in fits],
        judge,
    )


WORKLOADS = {
    "elastic_net": Workload(
        f"SparseRegression, path of 100 strengths, {ROWS:,} × {COLUMNS}", "scikit-learn", 1, path
    ),
    "elastic_net_small": Workload("SparseRegression, 100 warm fits of 200 × 20", "scikit-learn", 1, small),
}
