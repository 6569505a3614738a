"""How long documents are, also where some of their counts were not observed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import gammaln, xlogy

from ...models._lda import LEAST_EXCESS

# of the shares of columns, where counts are missing
_SHARE_STEPS = 50


def observed(X: Any) -> Any:
    """`X` with zeros for what is missing."""
    return sparse.csr_matrix((np.nan_to_num(X.data), X.indices, X.indptr), X.shape)


def lengths_of(X: Any) -> np.ndarray:
    """The number of words of each document."""
    return np.asarray(X.sum(axis=1)).ravel()


def log_orders(X: Any) -> np.ndarray:
    """log of the number of orders in which the words of each document could have come."""
    ways = sparse.csr_matrix((gammaln(X.data + 1), X.indices, X.indptr), X.shape).sum(axis=1)
    return gammaln(lengths_of(X) + 1) - np.asarray(ways).ravel()


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
