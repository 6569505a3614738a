"""Four models on a million rows: the peak of resident memory, in a process of its own.

python -m benchmarks.compare_scale ROWS   prints the seconds and the bytes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

from ._race import Outcome, Workload

DIM = 10
LIMIT = 8 * 2**30


def run(quick: bool) -> Outcome:
    rows = 20_000 if quick else 1_000_000
    command = [sys.executable, "-m", "benchmarks.compare_scale", str(rows)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    peak = float(done.stdout.split()[1])
    return Outcome([peak / 1e6], [LIMIT / 1e6], True, "peak resident memory", "MB")


def main() -> None:
    import numpy as np

    import freeenergy as fe

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(int(sys.argv[1]), DIM)) @ rng.normal(size=(DIM, DIM))
    X[::2] += 3.0
    models = [
        fe.GaussianDensity(),
        fe.GaussianMixture(4),
        fe.FactorAnalysis(3),
        fe.NormalizingFlow(layers=2, width=16, depth=1, max_iter=2, batch_size=8192),
    ]
    start = time.perf_counter()
    board = fe.compare(models, X, test_size=0.2, random_state=0)
    seconds = time.perf_counter() - start
    assert all(line.error is None for line in board.table()), board
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, most if sys.platform == "darwin" else 1024 * most)


WORKLOAD = Workload("compare of 4 models on 1,000,000 × 10 within 8 GiB", "8 GiB", 1, run)


if __name__ == "__main__":
    main()
