"""Rows that a density does not expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Outliers(NamedTuple):
    """Which rows are less probable than a model expects of its own.

    Attributes:
        mask: whether the p-value of a row is at most `level`.
        p_values: for each row (1 + draws that are no more probable) / (1 + draws).
        level: the share of its own rows that a model would call outliers.

    >>> Outliers(np.array([True, False]), np.array([0.001, 0.7]), 0.01).mask.sum().item()
    1
    """

    mask: np.ndarray
    p_values: np.ndarray
    level: float


def p_values_of(
    x: np.ndarray, draws: np.ndarray, log_prob: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The rank of log p of each row of `x` among those of `draws`, of what is observed in the row.

    What is missing in a row is left out of the draws it is compared with, too.
    """
    own, found = log_prob(x), np.ones(len(x))
    patterns, which = np.unique(np.isnan(x), axis=0, return_inverse=True)
    for number, hidden in enumerate(patterns):
        if hidden.all():
            # of nothing nothing is unusual
            continue
        chosen = which.ravel() == number
        reference = np.sort(log_prob(np.where(hidden, np.nan, draws)))
        below = np.searchsorted(reference, own[chosen], side="right")
        found[chosen] = (1 + below) / (1 + len(draws))
    return found


def surprise_of(x: np.ndarray, log_prob: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """−log p of each entry given the others of its row; NaN for what is not observed.

    Infinite for what alone makes a row impossible; NaN where the others already are impossible.
    """
    whole, found = log_prob(x), np.full(x.shape, np.nan)
    for column in range(x.shape[1]):
        seen = ~np.isnan(x[:, column])
        if seen.any():
            rest = x[seen]
            rest[:, column] = np.nan
            with np.errstate(invalid="ignore"):
                found[seen, column] = log_prob(rest) - whole[seen]
    return found


def surprise_beside(estimator: Any, X: Any, draws: Any) -> np.ndarray:
    """By how much each entry of `X` surprises more than its column does in draws of the model, in nats.

    A column of many values is surprising by itself, so that −log p alone names it in every row.
    """
    return np.asarray(estimator.surprise(X), float) - np.nanmean(estimator.surprise(draws), axis=0)
