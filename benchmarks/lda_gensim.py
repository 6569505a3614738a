from __future__ import annotations

import numpy as np
from gensim.matutils import Sparse2Corpus
from gensim.models import LdaModel
from scipy import sparse

from ._race import Outcome, Workload, race
from .lda import BATCH, TOPICS, WORDS, held_out, ours, sample

PASSES = 2


def theirs(X: sparse.csr_matrix) -> np.ndarray:
    peer = LdaModel(
        Sparse2Corpus(X, documents_columns=False),
        num_topics=TOPICS,
        id2word={i: str(i) for i in range(WORDS)},
        alpha=[0.1] * TOPICS,
        eta=0.02,
        chunksize=BATCH,
        passes=PASSES,
        iterations=100,
        eval_every=None,
        dtype=np.float64,
        random_state=0,
    )
    return peer.get_topics()


def run(quick: bool) -> Outcome:
    X, new = sample(200 if quick else 2000)

    def judge(a: np.ndarray, b: np.ndarray) -> tuple[bool, str]:
        mine, other = held_out(a, new), held_out(b, new)
        return mine < 1.01 * other, f"held-out perplexity at most {mine:.1f} and {other:.1f}"

    return race(lambda: ours(X), lambda: theirs(X), judge)


WORKLOAD = Workload(
    f"LDA, 2,000 documents × {WORDS:,} words, {TOPICS} topics, to the same held-out bound",
    "gensim",
    1,
    run,
)
