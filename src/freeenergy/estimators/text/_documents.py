"""Documents: rows of a sparse matrix of counts, of which NaN was not observed, and how long they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import gammaln, xlogy

from ..._core import row_hashes
from ...models._lda import LEAST_EXCESS

# of the shares of columns, where counts are missing
_SHARE_STEPS = 50


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


def observed(X: Any) -> Any:
    """`X` with zeros for what is missing."""
    return sparse.csr_matrix((np.nan_to_num(X.data), X.indices, X.indptr), X.shape)


def alike(X: Any, holes: np.ndarray) -> Iterator[tuple[np.ndarray, int, bool]]:
    """Documents of similar size, with or without `holes`: their numbers, a width for all, and which."""
    widths = np.array([_width(n) for n in np.diff(X.indptr)], int)
    for width, hole in sorted(set(zip(widths.tolist(), holes.tolist(), strict=True))):
        yield np.flatnonzero((widths == width) & (holes == hole)), width, hole


def lengths_of(X: Any) -> np.ndarray:
    """The number of words of each document."""
    return np.asarray(X.sum(axis=1)).ravel()


def log_orders(X: Any) -> np.ndarray:
    """log of the number of orders in which the words of each document could have come."""
    ways = sparse.csr_matrix((gammaln(X.data + 1), X.indices, X.indptr), X.shape).sum(axis=1)
    return gammaln(lengths_of(X) + 1) - np.asarray(ways).ravel()


class Corpus:
    """Names a matrix of counts, for a checkpoint."""

    def __init__(self, X: Any) -> None:
        entries = np.stack([X.indices.astype(float), X.data], axis=1)
        self._name = f"{X.shape} {np.bitwise_xor.reduce(row_hashes(entries), initial=np.uint64(0)):016x}"

    def identity(self) -> str:
        return self._name


def observed_share(X: Any, weight: np.ndarray) -> np.ndarray:
    """Which part of the words of each document one would expect among the columns that were observed.

    The shares of the columns are those of a Poisson distribution for each entry whose mean is a number
    for the document times a number for the column, iterated to maximum likelihood.
    """
    missing = np.isnan(X.data)
    holes = sparse.csr_matrix((missing.astype(float), X.indices, X.indptr), X.shape)
    counts = observed(X)
    lengths, columns = lengths_of(counts), weight @ counts
    share = np.full(X.shape[1], 1 / X.shape[1])
    seen = np.ones(X.shape[0])
    for _ in range(_SHARE_STEPS if missing.any() else 0):
        # a document of which nothing was observed has no words to divide, and counts for nothing below
        seen = np.clip(1 - holes @ share, np.finfo(float).eps, 1.0)
        rates = weight * lengths / seen
        exposure = rates.sum() - rates @ holes
        share = np.divide(columns, exposure, out=np.zeros_like(columns), where=exposure > 0)
        share /= max(share.sum(), np.finfo(float).tiny)
    return seen


class LengthLaw(NamedTuple):
    """A negative binomial distribution: a Poisson whose mean varies with variance `excess` · mean².

    Attributes:
        mean: of the lengths.
        excess: zero for a Poisson distribution.

    >>> law = LengthLaw(2.0, 0.5)
    >>> round(float(np.exp(law.log_prob(np.arange(200))).sum()), 6)
    1.0
    """

    mean: float
    excess: float

    @classmethod
    def of(cls, lengths: np.ndarray, weight: np.ndarray, seen: np.ndarray | float = 1.0) -> LengthLaw:
        """The law with the mean and the variance of `lengths`; a Poisson where they vary less.

        Where only a part of each document was `seen`, `lengths` are those of the parts.
        """
        # where there is no word at all, half a word, or of less than a document half of that
        words = float(weight @ lengths) or 0.5 * min(1.0, float(weight.sum()))
        mean = words / float(np.sum(weight * seen))
        expected = mean * np.broadcast_to(seen, lengths.shape)
        excess = weight @ ((lengths - expected) ** 2 - expected) / (weight @ expected**2)
        return cls(mean, max(float(excess), 0.0))

    def log_prob(self, length: np.ndarray) -> np.ndarray:
        """log p of each length."""
        if self.excess < LEAST_EXCESS:
            return xlogy(length, self.mean) - self.mean - gammaln(length + 1)
        size, share = 1 / self.excess, 1 / (1 + self.excess * self.mean)
        ways = gammaln(length + size) - gammaln(size) - gammaln(length + 1)
        return ways + size * np.log(share) + length * np.log1p(-share)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """`n` lengths."""
        if self.excess < LEAST_EXCESS:
            return rng.poisson(self.mean, n)
        return rng.poisson(self.mean * self.excess * rng.gamma(1 / self.excess, size=n))
