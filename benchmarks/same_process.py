from __future__ import annotations

import time
import warnings

from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy._core import count_compilations

from ._race import Outcome, Workload
from .mixture import COMPONENTS, sample


def run(quick: bool) -> Outcome:
    # sizes of one bucket, and of no other workload
    shapes = [730, 740, 750, 760]
    seconds, compiled = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed, rows in enumerate(shapes):
            X = sample(rows, seed)
            started = time.perf_counter()
            with count_compilations() as counter:
                fe.GaussianMixture(COMPONENTS, random_state=seed, max_iter=5).fit(X)
            seconds.append(time.perf_counter() - started)
            compiled.append(counter.count)
    again = sum(compiled[1:])
    return Outcome(seconds[1:], seconds[:1], again == 0, f"{compiled[0]} compilations, then {again}")


WORKLOAD = Workload(
    "GaussianMixture, the second and later fits of a shape in a process; none may compile",
    "the first fit",
    1,
    run,
)
