from __future__ import annotations

import tempfile

from ._fresh import fresh
from ._race import Outcome, Workload
from .mixture import COMPONENTS, DIM


def run(quick: bool) -> Outcome:
    rows = 20_000 if quick else 100_000
    with tempfile.TemporaryDirectory() as cache:
        fresh("memory", rows, cache)  # compiling takes memory too, which is not the question
        growth = fresh("memory", rows, cache)
    whole = rows * COMPONENTS * DIM**2 * 8
    return Outcome([max(growth, 1) / 1e6], [whole / 1e6], True, "peak resident memory", "MB")


WORKLOAD = Workload(
    "GaussianMixture, full covariance, 100,000 × 16, 10 components: growth of memory in a fit",
    "rows × components × dimensions²",
    5,
    run,
)
