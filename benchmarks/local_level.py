from __future__ import annotations

import warnings

import numpy as np
import statsmodels.api as sm

import freeenergy as fe
from freeenergy.models import Level

from ._race import Outcome, Workload, race

STEPS = 100


def sample(series: int, seed: int = 0) -> np.ndarray:
    """Random walks seen with noise, a column each, with different shares of noise."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.normal(size=(STEPS, series)), axis=0)
    return walk + rng.uniform(0.3, 3.0, size=series) * rng.normal(size=(STEPS, series))


def run(quick: bool) -> Outcome:
    X = sample(10 if quick else 100)

    def ours() -> float:
        # each column is a series with a model of its own
        return -fe.StructuralTimeSeries(Level()).fit(X).history_["objective"][-1] * STEPS

    def theirs() -> float:
        total = 0.0
        for column in X.T:
            model = sm.tsa.UnobservedComponents(column, "llevel", use_exact_diffuse=True)
            total += model.fit(disp=0).llf
        return total

    def judge(a: float, b: float) -> tuple[bool, str]:
        return a >= b - 1e-2 * X.shape[1], f"{a:.3f} and {b:.3f} nats"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return race(ours, theirs, judge)


WORKLOAD = Workload(
    f"local level by maximum likelihood, 100 series of {STEPS}",
    "statsmodels",
    10,
    run,
)
