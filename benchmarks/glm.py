from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import freeenergy as fe
from freeenergy.distributions import Poisson

from ._race import Outcome, Skipped, Workload, race

SMALL_ROWS, SMALL_COLUMNS = 500, 4


def _rows(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    return X, X @ (rng.normal(size=columns) / np.sqrt(columns)), rng


def run(quick: bool) -> Outcome | Skipped:
    try:
        import statsmodels.api as sm
    except ImportError:
        return Skipped("statsmodels is not installed")
    X, eta, rng = _rows(20_000 if quick else 200_000, 20)
    y = rng.poisson(np.exp(0.5 * eta)).astype(float)
    design = sm.add_constant(X)

    def judge(ours: Any, theirs: Any) -> tuple[bool, str]:
        coefficients = np.abs(ours.coef_ - theirs.params[1:]).max() / theirs.bse.max()
        errors = np.abs(ours.standard_errors_ / theirs.bse - 1).max()
        note = f"coefficients differ by {coefficients:.1e} standard errors, those by {errors:.1e} of them"
        return coefficients < 1e-4 and errors < 1e-6, note

    return race(
        lambda: fe.GeneralisedLinearModel(Poisson).fit(X, y),
        lambda: sm.GLM(y, design, family=sm.families.Poisson()).fit(),
        judge,
    )


def run_logistic(quick: bool) -> Outcome:
    X, eta, rng = _rows(20_000 if quick else 200_000, 50)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-eta))).astype(int)

    def judge(ours: Any, theirs: Any) -> tuple[bool, str]:
        losses = [-np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean() for model in (ours, theirs)]
        return losses[0] < losses[1] + 1e-9, f"log-loss {losses[0]:.10f} and {losses[1]:.10f}"

    # two rows of coefficients here, of half the size: the same penalty
    return race(
        lambda: fe.SoftmaxRegression(C=0.5).fit(X, y),
        lambda: LogisticRegression(C=1.0, tol=1e-6, max_iter=1000).fit(X, y),
        judge,
    )


def run_small(quick: bool) -> Outcome:
    X, eta, rng = _rows(SMALL_ROWS, SMALL_COLUMNS)
    counts = [rng.poisson(np.exp(0.5 * eta)).astype(float) for _ in range(10 if quick else 100)]

    def judge(ours: Any, theirs: Any) -> tuple[bool, str]:
        gap = max(np.abs(a.coef_ - b.coef_).max() for a, b in zip(ours, theirs, strict=True))
        return gap < 1e-3, f"coefficients differ by {gap:.1e}"

    return race(
        lambda: [fe.GeneralisedLinearModel(Poisson).fit(X, y) for y in counts],
        lambda: [PoissonRegressor(alpha=0.0, tol=1e-8).fit(X, y) for y in counts],
        judge,
    )


def run_small_logistic(quick: bool) -> Outcome:
    X, eta, rng = _rows(SMALL_ROWS, SMALL_COLUMNS)
    chance = 1 / (1 + np.exp(-eta))
    labels = [(rng.random(SMALL_ROWS) < chance).astype(int) for _ in range(10 if quick else 100)]

    def judge(ours: Any, theirs: Any) -> tuple[bool, str]:
        pairs = zip(ours, theirs, strict=True)
        gap = max(np.abs(a.predict_proba(X) - b.predict_proba(X)).max() for a, b in pairs)
        return gap < 0.01, f"probabilities differ by {gap:.1e}"

    return race(
        lambda: [fe.SoftmaxRegression(C=0.5).fit(X, y) for y in labels],
        lambda: [LogisticRegression(C=1.0).fit(X, y) for y in labels],
        judge,
    )


_SMALL = f"100 warm fits of {SMALL_ROWS} × {SMALL_COLUMNS}"
WORKLOADS = {
    "poisson": Workload("Poisson regression with standard errors, 200,000 × 20", "statsmodels", 5, run),
    "logistic": Workload(
        "logistic regression, 200,000 × 50, same optimum", "scikit-learn", 2, run_logistic
    ),
    "poisson_small": Workload(f"Poisson regression, {_SMALL}", "scikit-learn", 1, run_small),
    "logistic_small": Workload(f"logistic regression, {_SMALL}", "scikit-learn", 1, run_small_logistic),
}
