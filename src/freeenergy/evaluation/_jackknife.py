"""Standard errors of statistics of one or several samples, by leaving out groups of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GROUPS = 20


def kept_rows(rows: int, groups: int = GROUPS) -> np.ndarray:
    """(groups, rows) whether a row is kept where a group is left out; each is in one, by chance."""
    groups = min(groups, rows)
    order = np.random.default_rng(0).permutation(rows)
    return order[None] % groups != np.arange(groups)[:, None]


def spread_of(replicates: np.ndarray) -> float:
    """The standard error, from the values with one group left out each: √((g − 1) mean (θ_g − θ̄)²)."""
    return float(np.sqrt((len(replicates) - 1) * np.mean((replicates - replicates.mean()) ** 2)))


def jackknife(statistic: Callable[[np.ndarray, np.ndarray], float], a: np.ndarray, b: np.ndarray) -> float:
    """The standard error of a statistic of two independent samples.

    One group of the rows of both is left out at a time, as many groups as the smaller one has rows, at
    most twenty.
    """
    groups = min(GROUPS, len(a), len(b))
    pairs = zip(kept_rows(len(a), groups), kept_rows(len(b), groups))
    return spread_of(np.array([statistic(a[keep_a], b[keep_b]) for keep_a, keep_b in pairs]))
