from __future__ import annotations

import warnings

import numpy as np

import freeenergy as fe
from freeenergy import kernels

from ._race import Outcome, Workload, race
from .gaussian_process import COLUMNS, table
from .sparse_process import BATCH, POINTS, gpytorch_epoch


def run(quick: bool) -> Outcome:
    X, y = table(5_000 if quick else 100_000)
    kernel = 1.0 * kernels.RBF(np.ones(COLUMNS))  # pyright: ignore[reportArgumentType]
    model = fe.GaussianProcess(
        kernel, inducing=X[:POINTS].copy(), batch_size=BATCH, max_iter=1, standardise=False
    )

    def ours() -> float:
        with warnings.catch_warnings():
            # one epoch is not all
            warnings.simplefilter("ignore")
            return model.fit(X, y).log_evidence_ / len(y)

    def judge(a: float, b: float) -> tuple[bool, str]:
        return a > b, f"bound of {a:.3f} nats a row after the epoch, {b:.3f} on average during theirs"

    return race(ours, gpytorch_epoch(X, y), judge, repeats=3)


WORKLOAD = Workload(
    f"sparse Gaussian process, 100,000 × {COLUMNS}, {POINTS} points, an epoch of batches of {BATCH}",
    "GPyTorch",
    1.5,
    run,
)
