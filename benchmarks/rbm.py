from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM

from freeenergy._core import Data
from freeenergy.distributions import Bernoulli
from freeenergy.learning import Contrastive, Gradient, PersistentChains, fit
from freeenergy.models import Harmonium, Units

from ._images import fashion
from ._race import Outcome, Workload, race

HIDDEN, BATCH, RATE = 64, 64, 0.05
LEARNER = Gradient(optax.sgd(RATE), Contrastive(PersistentChains(BATCH)), batch_size=BATCH)


def pseudo_likelihood(X: np.ndarray, b: np.ndarray, c: np.ndarray, W: np.ndarray) -> float:
    """The mean log-probability of a pixel given the others, on one pixel of each row."""
    pixel = np.random.default_rng(0).integers(X.shape[1], size=len(X))
    flipped = X.copy()
    flipped[np.arange(len(X)), pixel] = 1 - flipped[np.arange(len(X)), pixel]

    def free(x: np.ndarray) -> np.ndarray:
        return -x @ b - np.logaddexp(0, x @ W + c).sum(axis=1)

    return float(-np.logaddexp(0, free(X) - free(flipped)).mean())


def run(quick: bool) -> Outcome:
    images = fashion()
    if images is None:
        X, name = (load_digits().data > 7).astype(np.float32), "digits"
    else:
        X, name = images, "Fashion-MNIST"
    X = X[:6_000] if quick else X
    data = Data.of(X)
    weights = 0.01 * np.random.default_rng(0).normal(size=(X.shape[1], HIDDEN)).astype(np.float32)
    model = Harmonium(
        Units(Bernoulli, jnp.zeros(X.shape[1], jnp.float32)),
        Units(Bernoulli, jnp.zeros(HIDDEN, jnp.float32)),
        jnp.asarray(weights),
    )

    def ours() -> Harmonium:
        result = fit(model, LEARNER, data, key=jax.random.key(0), max_iter=1)
        return jax.block_until_ready(result.model)

    def theirs() -> BernoulliRBM:
        return BernoulliRBM(HIDDEN, learning_rate=RATE, batch_size=BATCH, n_iter=1, random_state=0).fit(X)

    def judge(a: Harmonium, b: BernoulliRBM) -> tuple[bool, str]:
        mine = pseudo_likelihood(X, *map(np.asarray, (a.visible.bias, a.hidden.bias, a.coupling)))
        other = pseudo_likelihood(X, b.intercept_visible_, b.intercept_hidden_, b.components_.T)
        return mine > other - 0.01, f"{name}, {mine:.4f} and {other:.4f} nats a pixel given the others"

    return race(ours, theirs, judge)


WORKLOAD = Workload(
    f"RBM, {HIDDEN} hidden units, one epoch of PCD in batches of {BATCH}, binary Fashion-MNIST or digits",
    "scikit-learn",
    5,
    run,
)
