from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl

import freeenergy as fe
from freeenergy.distributions import Diagonal

from ._race import Outcome, Workload, race

ROWS, COMPONENTS, STEPS = 100_000, 5, 50


def frame(rows: int) -> pl.DataFrame:
    """Ten columns of numbers, five of counts, three of four labels, two binary; clusters that overlap."""
    rng = np.random.default_rng(0)
    z = rng.integers(COMPONENTS, size=rows)
    labels = np.array(["a", "b", "c", "d"])
    columns: dict[str, Any] = {f"number{i}": rng.normal(0.4 * (z * (i + 1) % 7)) for i in range(10)}
    columns |= {f"count{i}": rng.poisson(3 + 0.3 * (z * (i + 1) % 5)) for i in range(5)}
    for i in range(3):
        told = z * (i + 1) * (rng.random(rows) < 0.3)
        columns[f"label{i}"] = labels[(told + rng.integers(4, size=rows)) % 4]
    columns |= {f"binary{i}": (rng.random(rows) < 0.3 + 0.3 * (z > i)).astype(int) for i in range(2)}
    return pl.DataFrame(columns)


def numbers(rows: int) -> np.ndarray:
    """Twenty columns of numbers; clusters that overlap, so that no step is the last."""
    rng = np.random.default_rng(0)
    z = rng.integers(COMPONENTS, size=rows)[:, None]
    return rng.normal(0.1 * (z * np.arange(1, 21) % 7))


def run(quick: bool) -> Outcome:
    size = 2_000 if quick else ROWS
    mixed, X = frame(size), numbers(size)
    rows = fe.Schema.recognise(mixed).rows(mixed)
    options: dict[str, Any] = {"max_iter": STEPS, "tol": 0.0, "n_init": 1, "random_state": 0}

    def fit(model: Any, X: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X)

    def judge(a: Any, b: Any) -> tuple[bool, str]:
        return a.n_iter_ == b.n_iter_ == STEPS, f"{a.n_iter_} and {b.n_iter_} steps"

    return race(
        lambda: fit(fe.Mixture(COMPONENTS, family="by column", **options), rows),
        lambda: fit(fe.GaussianMixture(COMPONENTS, Diagonal(), **options), X),
        judge,
    )


WORKLOAD = Workload(
    f"Mixture(family='by column'), 100,000 × 20 of four kinds, {COMPONENTS} components, {STEPS} steps",
    "GaussianMixture of ours, diagonal, as many columns",
    1 / 2,
    run,
)
