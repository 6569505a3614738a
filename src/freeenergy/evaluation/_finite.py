"""Divergence and information of finite laws, from samples of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._checks import same_length
from ._forecasts import Measure


def jensen_shannon(first: Any, second: Any) -> Measure:
    """The Jensen–Shannon divergence of two samples of labels, in nats: 0 for equal laws, log 2 at most.

        JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m),      m = (p + q)/2

    of the shares p and q, less their bias to first order, so that it may fall a little below zero; with the
    standard error of first order.

    Args:
        first, second: labels, or (rows, columns) of them, whose rows are taken together.

    >>> a = ["x"] * 500 + ["y"] * 500
    >>> round(jensen_shannon(a, ["y"] * 1000).value, 3)
    0.216
    """
    owner = "jensen_shannon"
    a, b = _labels(owner, "first", first), _labels(owner, "second", second)
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"The samples of {owner} must have the same columns. Got {a.shape[1]} and {b.shape[1]} instead."
        )
    cells = _cells(np.concatenate([a, b]))
    counts = [np.bincount(part, minlength=cells.max() + 1) for part in (cells[: len(a)], cells[len(a) :])]
    shares = [count / count.sum() for count in counts]
    middle = (shares[0] + shares[1]) / 2
    value, bias, variance = 0.0, 0.0, 0.0
    for share, rows in zip(shares, (len(a), len(b)), strict=True):
        seen = share > 0
        p, m = share[seen], middle[seen]
        slope = 0.5 * np.log(p / m)
        value += float(p @ slope)
        bias += float((0.5 / p - 0.25 / m) @ (p * (1 - p))) / (2 * rows)
        variance += float(p @ (slope - p @ slope) ** 2) / rows
    return Measure(value - bias, float(np.sqrt(variance)))


def mutual_information(first: Any, second: Any) -> Measure:
    """The mutual information of two columns of labels, in nats: 0 where they are independent.

        I = Σ p(a, b) log p(a, b) / p(a) p(b)

    of the shares, less their bias to first order ((cells − labels of each + 1)/2n, Miller and Madow),
    so that it may fall a little below zero; with the standard error of first order.

    Args:
        first, second: a label for each row, or (rows, columns) of them, which are taken together.

    >>> a = np.arange(1000) % 2
    >>> round(mutual_information(a, a).value, 2)   # log 2
    0.69
    """
    owner = "mutual_information"
    a, b = _labels(owner, "first", first), _labels(owner, "second", second)
    same_length(owner, first=a, second=b)
    left, right, both = _cells(a), _cells(b), _cells(np.concatenate([a, b], axis=1))
    rows = len(a)
    shares = [np.bincount(cell) / rows for cell in (both, left, right)]
    told = np.log(shares[0][both]) - np.log(shares[1][left]) - np.log(shares[2][right])
    sizes = [len(share) for share in shares]
    bias = (sizes[0] - sizes[1] - sizes[2] + 1) / (2 * rows)
    return Measure(float(told.mean() - bias), float(told.std() / np.sqrt(rows)))


def _labels(owner: str, name: str, values: Any) -> np.ndarray:
    """Labels as a table, with a column where there is none."""
    array = np.asarray(values)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(
            f"The '{name}' of {owner} must be labels or a table of them. "
            f"Got the shape {array.shape} instead."
        )
    if (array != array).any():
        raise ValueError(f"The '{name}' of {owner} must have a label everywhere. Got NaN instead.")
    return array.reshape(len(array), -1)


def _cells(table: np.ndarray) -> np.ndarray:
    """The number of each row among those that differ."""
    found = np.zeros(len(table), int)
    for column in table.T:
        _, own = np.unique(column, return_inverse=True)
        _, found = np.unique(found * (own.max() + 1) + own, return_inverse=True)
    return found
