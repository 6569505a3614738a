"""Kernels of text: what two strings have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from ._base import AbstractKernel


def _check_length(owner: Any) -> None:
    if not isinstance(owner.length, int) or owner.length < 1:
        raise ValueError(
            f"The 'length' parameter of {type(owner).__name__} must be an int in the range [1, inf). "
            f"Got {owner.length!r} instead."
        )


def _texts(owner: Any, x: Any) -> list[str]:
    texts = [x] if isinstance(x, str) else list(x)
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise ValueError(f"{type(owner).__name__} takes strings. Got {wrong[0]!r} instead.")
    return texts


def _normalised(gram: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """k(s, t) / √(k(s, s) k(t, t)); strings that are too short to have a feature are like nothing."""
    size = np.sqrt(np.outer(first, second))
    return np.divide(gram, size, out=np.zeros_like(gram), where=size > 0)


def _of_pairs(k: Callable[[str, str], float], x: Sequence[str], y: Sequence[str] | None) -> np.ndarray:
    if y is not None:
        return np.array([[k(s, t) for t in y] for s in x], float).reshape(len(x), len(y))
    out = np.zeros((len(x), len(x)))
    for i, s in enumerate(x):
        for j in range(i + 1):
            out[i, j] = out[j, i] = k(s, x[j])
    return out


class Spectrum(AbstractKernel):
    """k(s, t) = Σ_u #u(s) #u(t) over all substrings u of a length: also known as the n-gram kernel.

    Attributes:
        length: of the substrings.
        normalised: whether k(s, s) = 1, so that long strings are no more alike than short ones.

    >>> Spectrum(2, normalised=False).gram(["abab", "ba"]).tolist()
    [[5.0, 1.0], [1.0, 1.0]]
    """

    length: int = eqx.field(static=True, default=3)
    normalised: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        _check_length(self)

    def _counts(self, text: str) -> Counter[str]:
        return Counter(text[i : i + self.length] for i in range(len(text) - self.length + 1))

    def _squares(self, counts: list[Counter[str]]) -> np.ndarray:
        return np.array([sum(n * n for n in own.values()) for own in counts], float)

    def gram(self, x: Any, y: Any = None) -> np.ndarray:
        first = [self._counts(text) for text in _texts(self, x)]
        second = first if y is None else [self._counts(text) for text in _texts(self, y)]
        words = {word: place for place, word in enumerate(sorted({w for own in first for w in own}))}
        features = np.zeros((len(first), len(words)))
        others = np.zeros((len(second), len(words)))
        for table, counts in ((features, first), (others, second)):
            for row, own in enumerate(counts):
                for word, n in own.items():
                    if word in words:
                        table[row, words[word]] = n
        gram = features @ others.T
        return _normalised(gram, self._squares(first), self._squares(second)) if self.normalised else gram

    def diagonal(self, x: Any) -> np.ndarray:
        squares = self._squares([self._counts(text) for text in _texts(self, x)])
        return (squares > 0).astype(float) if self.normalised else squares


class Subsequences(AbstractKernel):
    """k(s, t) = Σ_u Σ λ^(room in s + room in t) over all subsequences u of a length, with gaps.

    The room is from the first letter of u to its last, so that gaps cost; with λ = 1 it counts the pairs of
    equal subsequences.  Also known as the string subsequence kernel (Lodhi and others, 2002).

    Attributes:
        length: of the subsequences.
        decay: λ, above 0 and at most 1.
        normalised: whether k(s, s) = 1.

    >>> float(Subsequences(2, decay=1.0, normalised=False).gram(["cat"], ["cart"])[0, 0])
    3.0
    """

    length: int = eqx.field(static=True, default=3)
    decay: float = eqx.field(static=True, default=0.5)
    normalised: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        _check_length(self)
        if not 0 < self.decay <= 1:
            raise ValueError(
                "The 'decay' parameter of Subsequences must be a float in the range (0, 1]. "
                f"Got {self.decay!r} instead."
            )

    def _pair(self, s: str, t: str) -> float:
        """By dynamic programming over ends of both strings."""
        if min(len(s), len(t)) < self.length:
            return 0.0
        equal = np.array([[a == b for b in t] for a in s], float)
        # what ends at a letter of each, weighted by λ to the room it takes
        ending = equal * self.decay**2
        for _ in range(self.length - 1):
            within = np.zeros((len(s) + 1, len(t) + 1))
            for i in range(len(s)):
                for j in range(len(t)):
                    within[i + 1, j + 1] = (
                        ending[i, j]
                        + self.decay * (within[i, j + 1] + within[i + 1, j])
                        - self.decay**2 * within[i, j]
                    )
            ending = equal * self.decay**2 * within[:-1, :-1]
        return float(ending.sum())

    def gram(self, x: Any, y: Any = None) -> np.ndarray:
        first, second = _texts(self, x), None if y is None else _texts(self, y)
        gram = _of_pairs(self._pair, first, second)
        if not self.normalised:
            return gram
        own = np.array([self._pair(text, text) for text in first])
        other = own if second is None else np.array([self._pair(text, text) for text in second])
        return _normalised(gram, own, other)

    def diagonal(self, x: Any) -> np.ndarray:
        own = np.array([self._pair(text, text) for text in _texts(self, x)])
        return (own > 0).astype(float) if self.normalised else own
