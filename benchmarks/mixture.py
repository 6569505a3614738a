from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import freeenergy as fe
from freeenergy._core import Data
from freeenergy.distributions import Full, Gaussian
from freeenergy.estimators.tables._mixture import start_model
from freeenergy.shell._rows import Scaling, canonical_rows

from ._race import Outcome, Workload, race

DIM, COMPONENTS, STEPS = 16, 10, 30


def sample(rows: int, seed: int = 0) -> np.ndarray:
    """Overlapping clusters with covariances of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, DIM))
    label = rng.integers(COMPONENTS, size=rows)
    for k in range(COMPONENTS):
        mixing = np.eye(DIM) + 0.2 * rng.normal(size=(DIM, DIM)) / np.sqrt(DIM)
        X[label == k] = 0.5 * rng.normal(size=DIM) + X[label == k] @ mixing
    return X


def start(X: np.ndarray, centres: np.ndarray) -> dict[str, np.ndarray]:
    """Where our estimator begins with these centres, as the peer takes it."""
    scaling = Scaling.standardise(X)
    rows = canonical_rows(X, None, scaling)
    z = scaling.apply(rows.x)
    near = Scaling.identity(DIM)
    model = start_model(
        Gaussian(jnp.zeros(DIM), Full()),
        Data.of(z, rows.weight),
        near.apply(scaling.apply(centres)),
        near,
        0,
    )
    inner = [np.linalg.inv(model.component(k).covariance.matrix()) for k in range(COMPONENTS)]
    return {
        "weights_init": np.asarray(model.weights),
        "means_init": scaling.invert(np.asarray(model.components.mean)),
        "precisions_init": np.stack(inner) / np.outer(scaling.scale, scaling.scale),
    }


def run(quick: bool) -> Outcome:
    X = sample(10_000 if quick else 100_000)
    centres = X[:COMPONENTS]
    begin = start(X, centres)

    def ours() -> fe.GaussianMixture:
        return fe.GaussianMixture(COMPONENTS, init=centres, max_iter=STEPS, tol=0.0).fit(X)

    def theirs() -> GaussianMixture:
        # with the whole start given, the peer computes none of its own
        return GaussianMixture(COMPONENTS, max_iter=STEPS, tol=0.0, reg_covar=0.0, **begin).fit(X)

    def judge(a: fe.GaussianMixture, b: GaussianMixture) -> tuple[bool, str]:
        same = a.n_iter_ == b.n_iter_ and bool(np.isclose(a.score(X), b.score(X), rtol=1e-9))
        return same, f"{a.n_iter_} and {b.n_iter_} steps, {a.score(X):.9f} and {b.score(X):.9f} nats"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return race(ours, theirs, judge)


WORKLOAD = Workload(
    f"GaussianMixture, full, 100,000 × {DIM}, {COMPONENTS} components, same start, {STEPS} steps",
    "scikit-learn",
    8,
    run,
)
