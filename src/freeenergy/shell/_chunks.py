"""Rows in parts that are read when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

_ROWS = 65_536


class Survey(NamedTuple):
    """What one pass over all chunks tells.

    Attributes:
        lengths: the rows of each chunk.
        observed: the share of rows in which a column is observed.
        sample: rows drawn without repetition, in an order of their own.
    """

    lengths: list[int]
    observed: np.ndarray
    sample: np.ndarray

    @property
    def incomplete(self) -> bool:
        return bool((self.observed < 1).any())


class Chunks(Sequence):
    """Rows in parts that are read when they are needed: `fit` takes more of them than fit in memory.

    Args:
        parts: an array, which may be a memory map; a data frame; the path of an `.npy` file; or a sequence
            whose members are such, or functions that return an array.
        rows: into how many rows an array or a file is cut when it is all there is.

    >>> import numpy as np
    >>> chunks = Chunks(np.arange(10.0).reshape(5, 2), rows=2)
    >>> [len(part) for part in chunks]
    [2, 2, 1]
    >>> chunks[2].tolist()
    [[8.0, 9.0]]
    """

    def __init__(self, parts: Any, *, rows: int = _ROWS) -> None:
        if not isinstance(rows, int) or rows < 1:
            raise ValueError(
                "The 'rows' parameter of Chunks must be an int in the range [1, inf). "
                f"Got {rows!r} instead."
            )
        whole = _opened(parts)
        if isinstance(whole, np.ndarray):
            starts = range(0, len(whole), rows)
            self._parts: list[Any] = [_Slice(whole, start, start + rows) for start in starts]
        else:
            self._parts = list(parts)
        if not self._parts:
            raise ValueError("Chunks must have at least one part. Got none.")

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return Chunks(self._parts[i])
        part = self._parts[i]
        return np.asarray(part() if callable(part) else _opened(part))

    def survey(self, check: Callable[[Any], np.ndarray], *, sample: int, seed: int) -> Survey:
        """Reads all chunks once, each through `check`, and keeps `sample` rows of them."""
        rng = np.random.default_rng(seed)
        lengths, seen = [], np.zeros(1)
        rows, keys = None, np.empty(0)
        for part in self:
            part = check(part)
            lengths.append(len(part))
            seen = seen + (~np.isnan(part)).sum(axis=0)
            # the rows with the smallest of as many random numbers are a fair draw
            keys = np.concatenate([keys, rng.random(len(part))])
            rows = part if rows is None else np.concatenate([rows, part])
            if len(rows) > sample:
                kept = np.sort(np.argpartition(keys, sample)[:sample])
                rows, keys = rows[kept], keys[kept]
        assert rows is not None
        return Survey(lengths, seen / sum(lengths), rows)


class _Slice:
    """Some rows of an array, copied when asked for."""

    def __init__(self, whole: np.ndarray, start: int, stop: int) -> None:
        self.whole, self.start, self.stop = whole, start, stop

    def __call__(self) -> np.ndarray:
        return self.whole[self.start : self.stop]


def _opened(part: Any) -> Any:
    if isinstance(part, str | os.PathLike):
        if not str(part).endswith(".npy"):
            raise ValueError(
                f"Chunks read .npy files; give a function for others. Got {str(part)!r} instead."
            )
        return np.load(part, mmap_mode="r")
    return part.to_numpy() if hasattr(part, "to_numpy") else part
