"""The intake of documents: rows of a sparse matrix of counts, of which NaN was not observed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from .._core import Fit, row_hashes
from ._answers import answers, rows_at_once, seeded_answers
from ._intake import AbstractIntake
from ._validation import check_rows, check_weight, feature_names, refuse_columns

# of a word in a document; floats know every whole number up to it
_LARGEST_COUNT = 2.0**53
_DOCUMENTS_AT_ONCE = 64


def entry_places(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """The document of each entry, and its place in it."""
    lengths = np.diff(X.indptr)
    row = np.repeat(np.arange(X.shape[0]), lengths)
    return row, np.arange(len(row)) - np.repeat(X.indptr[:-1], lengths)


def ragged(X: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Words and counts of each document, padded to `width` with counts of zero."""
    row, place = entry_places(X)
    words = np.zeros((X.shape[0], width), np.int32)
    counts = np.zeros((X.shape[0], width))
    words[row, place] = X.indices
    counts[row, place] = X.data
    return words, counts


def document_hashes(X: Any) -> np.ndarray:
    """A 64-bit number for each document that depends on its words and counts alone."""
    entries = row_hashes(np.stack([X.indices.astype(float), X.data], axis=1))
    # sums that wrap around do not depend on the order of the words
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    return sums[X.indptr[1:]] - sums[X.indptr[:-1]]


def document_seeds(X: Any) -> np.ndarray:
    """A 32-bit seed for each document, to fold into a key."""
    return (document_hashes(X) >> np.uint64(32)).astype(np.uint32)


def canonical_documents(X: Any, weight: np.ndarray | None) -> tuple[Any, np.ndarray]:
    """The distinct documents with summed weights, in an order of their own, the shortest first."""
    weight = np.ones(X.shape[0]) if weight is None else weight
    used = np.flatnonzero(weight > 0)
    hashes = document_hashes(X)[used]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    merged = np.bincount(which.ravel(), weights=weight[used])
    # documents of one size are worked on together
    order = np.argsort(np.diff(X.indptr)[used[first]], kind="stable")
    return X[used[first[order]]], merged[order]


def _width(distinct: int) -> int:
    """A few sizes for the number of distinct words of a document, a factor of two apart."""
    return max(16, 1 << (int(distinct) - 1).bit_length()) if distinct > 1 else 16


def incomplete_documents(X: Any) -> np.ndarray:
    """Which documents have missing counts."""
    return np.bincount(entry_places(X)[0], np.isnan(X.data), minlength=X.shape[0]) > 0


def alike(X: Any, holes: np.ndarray) -> Iterator[tuple[np.ndarray, int, bool]]:
    """Documents of similar size, with or without `holes`: their numbers, a width for all, and which."""
    widths = np.array([_width(n) for n in np.diff(X.indptr)], int)
    for width, hole in sorted(set(zip(widths.tolist(), holes.tolist(), strict=True))):
        yield np.flatnonzero((widths == width) & (holes == hole)), width, hole


class Corpus:
    """Documents to be learned from.

    Attributes:
        counts: the distinct documents, a row of a sparse matrix each, the shortest first.
        weight: how often each counts.
    """

    def __init__(self, counts: Any, weight: np.ndarray) -> None:
        self.counts, self.weight = counts, weight

    def identity(self) -> str:
        """Names these documents, for a checkpoint."""
        X = self.counts
        entries = np.stack([X.indices.astype(float), X.data], axis=1)
        return f"{X.shape} {np.bitwise_xor.reduce(row_hashes(entries), initial=np.uint64(0)):016x}"


class Documents(AbstractIntake):
    """A row of counts for each document, sparse or not.

    Attributes:
        counts: a sparse matrix of its own, without zeros; NaN is not observed.
        corpus: of a fit, the distinct documents with their weights.
    """

    def __init__(self, owner: Any, passed: Any, counts: Any, corpus: Corpus | None = None) -> None:
        self.owner, self.passed, self.counts, self.corpus = owner, passed, counts, corpus

    @classmethod
    def _validated(cls, owner: Any, X: Any, *, reset: bool) -> Any:
        name = type(owner).__name__
        X = sparse.csr_matrix(check_rows(owner, X, reset=reset, accept_sparse="csr"), copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        least, most = (f(X.data) if np.isfinite(X.data).any() else 0.0 for f in (np.nanmin, np.nanmax))
        if least < 0:
            raise ValueError(
                f"Negative values in data passed to {name}: X must hold counts of words. Got {least:g}."
            )
        if most > _LARGEST_COUNT:
            raise ValueError(
                f"X must hold counts of words, of which 64-bit floats know the last one up to "
                f"{_LARGEST_COUNT:g}. Got {most:g}."
            )
        return X

    @classmethod
    def fitting(cls, owner: Any, X: Any, *, sample_weight: Any = None) -> Self:
        counts = cls._validated(owner, X, reset=True)
        distinct, weight = canonical_documents(counts, check_weight(counts, sample_weight))
        holes = np.bincount(distinct.indices, np.isnan(distinct.data), minlength=distinct.shape[1])
        refuse_columns(holes == distinct.shape[0], feature_names(owner))
        return cls(owner, X, counts, Corpus(distinct, weight))

    @classmethod
    def reading(cls, owner: Any, X: Any) -> Self:
        check_is_fitted(owner, "model_")
        return cls(owner, X, cls._validated(owner, X, reset=False))

    @property
    def events(self) -> Corpus:
        """The distinct documents."""
        assert self.corpus is not None
        return self.corpus

    @property
    def size(self) -> float | None:
        return None if self.corpus is None else float(self.corpus.weight.sum())

    @property
    def seeds(self) -> np.ndarray:
        """A number for each document that depends on no other: the seed of its noise."""
        return document_seeds(self.counts)

    def each(self, method: Callable[..., Any], *, samples: int | None = None) -> Any:
        """`method(model, document, incomplete=…)` of each document: whether counts of it are missing.

        With `samples`, that many draws a document are held at once, from keys of their own.
        """
        X, model, outs, order = self.counts, self.owner.model_, [], []
        seeds = self.seeds
        for chosen, width, hole in alike(X, incomplete_documents(X)):
            rows = ragged(X[chosen], width)
            if samples is None:
                out = answers(model, method, rows, block=_DOCUMENTS_AT_ONCE, incomplete=hole)
            else:
                how = {"block": rows_at_once(samples, width), "incomplete": hole, "samples": samples}
                out = seeded_answers(model, method, rows, seeds[chosen], self.owner.seed_, **how)
            outs.append(out)
            order.append(chosen)
        back = np.argsort(np.concatenate(order))
        return jax.tree.map(lambda *parts: np.concatenate(parts)[back], *outs)

    def filled(
        self, ask: Callable[..., Any], method: Callable[..., Any], beside: np.ndarray, *args: Any
    ) -> Any:
        """The counts with what a method of the model says of each document of which some are missing.

        `ask` is `seeded_answers` or `keyed_answers`, with seeds or keys `beside` each document.
        """
        X, samples = self.counts.copy(), self.owner._candidates
        row, place = entry_places(X)
        for chosen, width, hole in alike(X, incomplete_documents(X)):
            if not hole:
                continue
            rows, how = (
                ragged(X[chosen], width),
                {"block": rows_at_once(samples, width), "samples": samples},
            )
            counts = ask(self.owner.model_, method, rows, beside[chosen], *args, **how)
            here = np.isnan(X.data) & np.isin(row, chosen)
            X.data[here] = counts[np.searchsorted(chosen, row[here]), place[here]]
        return X

    def repeated(self, n: int) -> Self:
        """All documents, `n` times."""
        return type(self)(self.owner, self.passed, sparse.vstack([self.counts] * n, format="csr"))

    def back(self, counts: Any) -> Any:
        """Counts as the user has them: sparse if those passed were."""
        return counts if sparse.issparse(self.passed) else counts.toarray()

    def naming_cells(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def in_units(self, result: Fit) -> Fit:
        """Counts have no other unit."""
        return result
