from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, Ridge

import freeenergy as fe

from ._race import Outcome, Workload, race

ROWS, COLUMNS = 1_000_000, 50


def table(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = 50_000 if quick else ROWS
    X = rng.normal(size=(rows, COLUMNS))
    X += X[:, :1] * np.linspace(0, 1, COLUMNS)
    return X, X @ rng.normal(size=COLUMNS) + rng.normal(size=rows)


def same(a: Any, b: Any) -> tuple[bool, str]:
    gap = float(np.abs(np.asarray(a.coef_) - np.asarray(b.coef_)).max())
    return gap < 1e-8, f"coefficients differ by {gap:.1e} at most"


def least_squares(quick: bool) -> Outcome:
    X, y = table(quick)
    return race(
        lambda: fe.LinearRegression().fit(X, y), lambda: LinearRegression().fit(X, y), same, repeats=3
    )


def statsmodels(quick: bool) -> Outcome:
    import statsmodels.api as sm

    X, y = table(quick)

    def theirs() -> Any:
        found = sm.OLS(y, sm.add_constant(X)).fit()
        return found.params[1:], found.bse[1:]

    def ours() -> Any:
        model = fe.LinearRegression().fit(X, y)
        return model.coef_, model.standard_errors_

    def judge(a: Any, b: Any) -> tuple[bool, str]:
        gaps = [float(np.abs(mine - its).max()) for mine, its in zip(a, b, strict=True)]
        return max(gaps) < 1e-8, f"coefficients and errors differ by {max(gaps):.1e} at most"

    return race(ours, theirs, judge, repeats=3)


def ridge(quick: bool) -> Outcome:
    X, y = table(quick)
    # as the peer penalises: columns in their own units
    prior = np.eye(COLUMNS)
    return race(
        lambda: fe.Ridge(10.0, prior=prior).fit(X, y), lambda: Ridge(10.0).fit(X, y), same, repeats=3
    )


def streamed(quick: bool) -> Outcome:
    X, y = table(quick)
    return race(
        lambda: fe.LinearRegression().fit(fe.Chunks(X, rows=65_536), y),
        lambda: LinearRegression().fit(X, y),
        same,
        repeats=3,
    )


def small(quick: bool) -> Outcome:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    y = X @ np.arange(5.0) + rng.normal(size=200)
    fits = range(20 if quick else 100)
    return race(
        lambda: [fe.LinearRegression().fit(X, y) for _ in fits],
        lambda: [LinearRegression().fit(X, y) for _ in fits],
        lambda a, b: same(a[-1], b[-1]),
    )


SIZE = f"{ROWS:,} × {COLUMNS}"
WORKLOADS = {
    "least_squares": Workload(f"LinearRegression, {SIZE}", "scikit-learn", 1, least_squares),
    "least_squares_errors": Workload(
        f"LinearRegression with standard errors, {SIZE}", "statsmodels", 3, statsmodels
    ),
    "least_squares_chunks": Workload(
        f"LinearRegression in chunks, {SIZE}", "scikit-learn, in memory", 1, streamed
    ),
    "ridge": Workload(f"Ridge, {SIZE}", "scikit-learn", 1, ridge),
    "least_squares_small": Workload("LinearRegression, 100 warm fits of 200 × 5", "scikit-learn", 1, small),
}
