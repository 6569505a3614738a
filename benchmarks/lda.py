from __future__ import annotations

import warnings
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation as Peer
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy.models import LatentDirichletAllocation

from ._race import Outcome, Workload, race

WORDS, TOPICS, LENGTH, BATCH = 5000, 50, 300, 128
# the default of scikit-learn says how far everybody has to come
PASSES, TOLERANCE = 10, 1.01


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


def ours(X: sparse.csr_matrix, passes: int) -> np.ndarray:
    model = fe.LatentDirichletAllocation(TOPICS, alpha=0.1, eta=0.02, max_iter=passes, random_state=0)
    return model.fit(X).components_


def scikit_learn(X: sparse.csr_matrix, passes: int) -> np.ndarray:
    peer = Peer(
        TOPICS,
        doc_topic_prior=0.1,
        topic_word_prior=0.02,
        learning_method="online",
        batch_size=BATCH,
        total_samples=X.shape[0],
        max_iter=passes,
        random_state=0,
    )
    return peer.fit(X).components_


def run_against(theirs: Callable[[sparse.csr_matrix, int], np.ndarray], quick: bool) -> Outcome:
    """Each with as few passes as it needs to come as far as scikit-learn does by default."""
    X, new = sample(200 if quick else 2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        goal = TOLERANCE * held_out(scikit_learn(X, PASSES), new)

        def enough(learn: Callable[[sparse.csr_matrix, int], np.ndarray]) -> int:
            passes = range(1, PASSES)
            return next((n for n in passes if held_out(learn(X, n), new) <= goal), PASSES)

        passes = enough(ours), enough(theirs)

        def judge(a: np.ndarray, b: np.ndarray) -> tuple[bool, str]:
            found = held_out(a, new), held_out(b, new)
            note = "held-out perplexity at most {:.1f} and {:.1f} after {} and {} passes"
            note = note.format(*found, *passes)
            return found[0] <= goal, note

        return race(lambda: ours(X, passes[0]), lambda: theirs(X, passes[1]), judge)


def run(quick: bool) -> Outcome:
    return run_against(scikit_learn, quick)


WORKLOAD = Workload(
    f"LDA, 2,000 documents × {WORDS:,} words, {TOPICS} topics, to the same held-out bound",
    "scikit-learn",
    2,
    run,
)
