from __future__ import annotations

import tempfile

from ._fresh import fresh
from ._race import Outcome, Workload

ROWS = 2_000


def run(quick: bool) -> Outcome:
    cold, warm = [], []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(fresh("time", ROWS, cache))
            warm.append(fresh("time", ROWS, cache))
    return Outcome(warm, cold, True, "the same fit")


WORKLOAD = Workload(
    "GaussianMixture, the first fit in a new process, with the programs that an earlier one left on disk",
    "an empty cache",
    2,
    run,
)
