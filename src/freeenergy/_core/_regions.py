"""The smallest sets that hold a given part of a probability."""

from __future__ import annotations

import numpy as np

# what rounding may take from a sum of probabilities
_ENOUGH = 1e-10


def densest_runs(mass: np.ndarray, level: float) -> list[tuple[int, int]]:
    """First and last of each run of the cells that hold probability `level` together, the fullest first.

    >>> densest_runs(np.array([0.4, 0.05, 0.05, 0.1, 0.4]), 0.8)
    [(0, 0), (4, 4)]
    """
    order = np.argsort(-mass, kind="stable")
    enough = int(np.searchsorted(np.cumsum(mass[order]), level - _ENOUGH)) + 1
    kept = np.sort(order[:enough])
    runs = np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs]
