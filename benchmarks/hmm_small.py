from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
from hmmlearn.hmm import GaussianHMM
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe

from ._race import Outcome, Workload, race
from .hmm import sample

LENGTH, STATES, TOL = 200, 3, 1e-2


def run(quick: bool) -> Outcome:
    X = sample(1, LENGTH, STATES)[0]
    seeds = range(20 if quick else 200)

    def ours() -> list[Any]:
        # the peer's tolerance is for the whole series, ours for a time step
        return [fe.HMM(STATES, tol=TOL / LENGTH, random_state=seed).fit(X) for seed in seeds]

    def theirs() -> list[Any]:
        return [
            GaussianHMM(STATES, "full", n_iter=1000, tol=TOL, random_state=seed).fit(X) for seed in seeds
        ]

    def judge(a: list[Any], b: list[Any]) -> tuple[bool, str]:
        means = [float(np.mean([model.score(X) for model in a])) * LENGTH]
        means.append(float(np.mean([model.score(X) for model in b])))
        return means[0] > means[1] - 0.5, f"{means[0]:.3f} and {means[1]:.3f} nats on average"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # the peer reports a series that no longer improves as an error of convergence
        logging.getLogger("hmmlearn").setLevel(logging.CRITICAL)
        return race(ours, theirs, judge, repeats=2)


WORKLOAD = Workload(
    f"HMM, 200 warm fits of one series of {LENGTH} steps, {STATES} states", "hmmlearn", 1, run
)
