"""How much columns of any kind have to do with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

# of fewer rows in which both are observed nothing is said
_FEWEST = 3


def association(X: Any, labels: Any = None) -> np.ndarray:
    """How strongly every two columns go together, from 0 to 1, whatever their kinds are.

    Of two numbers |ρ|, Spearman's rank correlation; of two labels Cramér's V, √(χ²/n / min(k − 1, l − 1));
    of a label and a number the correlation ratio of the ranks, η = √(variance between labels / variance).
    Of two columns with two values each all three are the same number.

    Args:
        X: a row for each sample; labels as codes, NaN where nothing was observed.
        labels: which columns are labels, True or False for each; none if None.

    Returns:
        a symmetric matrix with ones on its diagonal, from the rows in which both are observed; NaN where
        these are fewer than three, or one of the two has one value there.

    >>> association([[1.0, 5.0], [2.0, 4.0], [3.0, 9.0], [4.0, 11.0]]).round(2).tolist()
    [[1.0, 0.8], [0.8, 1.0]]
    """
    X = np.asarray(X, float)
    if X.ndim != 2:
        raise ValueError(
            f"The 'X' of association must have rows and columns. Got the shape {X.shape} instead."
        )
    size = X.shape[1]
    coded = np.zeros(size, bool) if labels is None else np.asarray(labels, bool)
    if coded.shape != (size,):
        raise ValueError(
            f"The 'labels' of association must be one for each of the {size} columns. Got the shape "
            f"{coded.shape} instead."
        )
    found = np.eye(size)
    for i in range(size):
        for j in range(i):
            both = ~np.isnan(X[:, i]) & ~np.isnan(X[:, j])
            found[i, j] = found[j, i] = _between(X[both, i], X[both, j], bool(coded[i]), bool(coded[j]))
    return found


def _between(x: np.ndarray, y: np.ndarray, x_labels: bool, y_labels: bool) -> float:
    if len(x) < _FEWEST or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    if x_labels and y_labels:
        return _cramer(x, y)
    if x_labels or y_labels:
        return _ratio(*((x, y) if x_labels else (y, x)))
    return abs(float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]))


def _cramer(x: np.ndarray, y: np.ndarray) -> float:
    rows, x = np.unique(x, return_inverse=True)
    columns, y = np.unique(y, return_inverse=True)
    counts = np.zeros((len(rows), len(columns)))
    np.add.at(counts, (x, y), 1.0)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    square = np.sum((counts - expected) ** 2 / expected) / counts.sum()
    return float(np.sqrt(square / (min(counts.shape) - 1)))


def _ratio(labels: np.ndarray, numbers: np.ndarray) -> float:
    ranks = stats.rankdata(numbers)
    _, group = np.unique(labels, return_inverse=True)
    counts = np.bincount(group)
    between = counts @ (np.bincount(group, ranks) / counts - ranks.mean()) ** 2
    return float(np.sqrt(between / np.sum((ranks - ranks.mean()) ** 2)))
