from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation as Peer
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy.learning import EM, Stepwise
from freeenergy.models import LatentDirichletAllocation

from ._race import Outcome, Workload, race

WORDS, TOPICS, LENGTH, BATCH = 5000, 50, 300, 128
OUR_PASSES, THEIR_PASSES = 1, 6


def sample(documents: int, seed: int = 0) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Documents from planted topics, to learn from and to judge by."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(WORDS, 0.02), TOPICS)
    shares = rng.dirichlet(np.full(TOPICS, 0.1), documents + 200)
    X = sparse.csr_matrix(np.stack([rng.multinomial(LENGTH, share @ topics) for share in shares]))
    return X[:documents], X[documents:]


def held_out(topics: np.ndarray, X: sparse.csr_matrix) -> float:
    """Perplexity bound of held-out documents, by the same code whoever learned the topics."""
    judge = fe.LatentDirichletAllocation(TOPICS, max_iter=1, tol=1e9).fit(X[:5])
    counts = jnp.asarray(1e6 * topics / topics.sum(axis=1, keepdims=True))
    judge.model_ = LatentDirichletAllocation(jnp.full(TOPICS, 0.1), jnp.asarray(1e-9), counts)
    return judge.perplexity(X)


def ours(X: sparse.csr_matrix) -> np.ndarray:
    learner = EM(tol=-jnp.inf, sweep=Stepwise(batch_size=BATCH, decay=0.51))
    model = fe.LatentDirichletAllocation(
        TOPICS, alpha=0.1, eta=0.02, learner=learner, max_iter=OUR_PASSES, random_state=0
    )
    return model.fit(X).components_


def theirs(X: sparse.csr_matrix) -> np.ndarray:
    peer = Peer(
        TOPICS,
        doc_topic_prior=0.1,
        topic_word_prior=0.02,
        learning_method="online",
        batch_size=BATCH,
        total_samples=X.shape[0],
        max_iter=THEIR_PASSES,
        random_state=0,
    )
    return peer.fit(X).components_


def run(quick: bool) -> Outcome:
    X, new = sample(200 if quick else 2000)

    def judge(a: np.ndarray, b: np.ndarray) -> tuple[bool, str]:
        mine, other = held_out(a, new), held_out(b, new)
        return mine < 1.01 * other, f"held-out perplexity at most {mine:.1f} and {other:.1f}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return race(lambda: ours(X), lambda: theirs(X), judge)


WORKLOAD = Workload(
    f"LDA, 2,000 documents × {WORDS:,} words, {TOPICS} topics, to the same held-out bound",
    "scikit-learn",
    2,
    run,
)
