from __future__ import annotations

import numpy as np
from scipy import sparse

from ._race import Outcome, Workload
from .lda import BATCH, TOPICS, WORDS, run_against


def theirs(X: sparse.csr_matrix, passes: int) -> np.ndarray:
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    peer = LdaModel(
        Sparse2Corpus(X, documents_columns=False),
        num_topics=TOPICS,
        id2word={i: str(i) for i in range(WORDS)},
        alpha=[0.1] * TOPICS,
        eta=0.02,
        chunksize=BATCH,
        passes=passes,
        iterations=100,
        eval_every=None,
        dtype=np.float64,
        random_state=0,
    )
    return peer.get_topics()


def run(quick: bool) -> Outcome:
    return run_against(theirs, quick)


WORKLOAD = Workload(
    f"LDA, 2,000 documents × {WORDS:,} words, {TOPICS} topics, to the same held-out bound",
    "gensim",
    1,
    run,
)
