"""Draws of models beside rows that were held out: how far apart, where no probability is asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.svm import SVC

from ..evaluation import (
    Measure,
    classifier_two_sample_test,
    fidelity,
    memorisation_test,
    sliced_wasserstein,
)
from ..shell import Schema, Support

# what is measured, in this order
APART, DISTANCE, PRECISION, COVERAGE, NEARER = "told apart", "distance", "precision", "coverage", "nearer"
MEASURES = (APART, DISTANCE, PRECISION, COVERAGE, NEARER)
# what draws are to be read beside
REFERENCES = ("other rows of the data", "every column by itself")
# rows of each kind that are laid side by side, and fewer than that say nothing
_MOST, _LEAST = 300, 20
# numbers of the training rows that draws may repeat
_TRAINING = 1_000_000
# splits of rows into those that teach and those that are asked
_SPLITS = 4
# the spread of a normal law in units of the range of its middle half
_MIDDLE_HALF = 1.349


class Ruler:
    """Rows of columns of any kind as points whose distances mean something.

    Numbers are counted from their median in standard deviations, of the middle half of their values, and
    are drawn in where they are far out (asinh); a label is a one among zeros, so that two different ones
    are as far apart as two numbers commonly are.  What is missing is at the median.  All is divided by one
    number, so that the mean variance of a coordinate is one.
    """

    def __init__(self, X: np.ndarray, support: Support, schema: Schema | None) -> None:
        fields = [None] * X.shape[1] if schema is None else schema.modelled
        self.values: list[np.ndarray | None] = []
        self.centre, self.scale, self.used = np.zeros(X.shape[1]), np.ones(X.shape[1]), ~support.constant
        for column, field in enumerate(fields):
            seen = X[~np.isnan(X[:, column]), column]
            distinct = np.unique(seen)
            coded = field is not None and field.categories and not field.numeric
            labels = distinct if coded or len(distinct) == 2 else None
            self.values.append(labels)
            if labels is None and self.used[column]:
                low, self.centre[column], high = np.quantile(seen, [0.25, 0.5, 0.75])
                self.scale[column] = (high - low) / _MIDDLE_HALF or seen.std()
        self.unit = 1.0
        self.unit = math.sqrt(float(self(X).var(axis=0).mean())) or 1.0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """The points of some rows."""
        parts = []
        for column in np.flatnonzero(self.used):
            x, labels = X[:, column], self.values[column]
            if labels is None:
                z = np.arcsinh((x - self.centre[column]) / self.scale[column])
                parts.append(np.nan_to_num(z, nan=0.0)[:, None])
            else:
                parts.append((x[:, None] == labels).astype(float))
        return np.concatenate(parts, axis=1) / self.unit


def beside(
    ruler: Ruler, train: np.ndarray, held_out: np.ndarray, draws: np.ndarray
) -> dict[str, np.ndarray]:
    """Measures of draws beside held-out rows, each with its standard error; none of too few rows.

    As many draws as held-out rows are taken.  They get the holes of these, so that both samples lack the
    same: right where holes come by chance.
    """
    rows = _some(held_out, min(len(held_out), len(draws)))
    if len(rows) < _LEAST:
        return {}
    return _measured(ruler, train, rows, np.where(np.isnan(rows), np.nan, draws[: len(rows)]))


def beside_data(ruler: Ruler, train: np.ndarray, held_out: np.ndarray) -> list[dict[str, np.ndarray]]:
    """The same of what `REFERENCES` name: other rows, and rows in which each column is drawn by itself.

    No model can be better than the first, and one that knows how columns go together is better than the
    second.
    """
    rng = np.random.default_rng(1)
    order = rng.permutation(len(train))
    rows = _some(held_out, min(len(held_out), len(train) // 2))
    if len(rows) < _LEAST:
        return [{} for _ in REFERENCES]
    other, rest = train[order[: len(rows)]], train[order[len(rows) :]]
    alone = np.full(rows.shape, np.nan)
    for column, values in enumerate(train.T):
        seen = values[~np.isnan(values)]
        alone[:, column] = rng.choice(seen, len(rows)) if len(seen) else np.nan
    alone[np.isnan(rows)] = np.nan
    # other rows have holes of their own
    return [_measured(ruler, rest, rows, made) for made in (other, alone)]


def _some(rows: np.ndarray, size: int) -> np.ndarray:
    """At most so many rows, the same for every model."""
    return rows[np.random.default_rng(0).permutation(len(rows))[: min(size, _MOST)]]


def _measured(ruler: Ruler, train: np.ndarray, rows: np.ndarray, made: np.ndarray) -> dict[str, np.ndarray]:
    real, made = ruler(rows), ruler(made)
    tests = [classifier_two_sample_test(real, made, SVC().fit, seed=seed) for seed in range(_SPLITS)]
    # splits share their rows, so that the mean of all is hardly surer than one
    found: dict[str, Any] = {}
    found[APART] = [np.mean([test.value for test in tests]), np.mean([test.stderr for test in tests])]
    found[DISTANCE] = sliced_wasserstein(real, made, order=1.0, seed=0)
    likeness = fidelity(real, made)
    found |= {PRECISION: likeness.precision, COVERAGE: likeness.coverage}
    most = _TRAINING // max(train.shape[1], 1)
    seen = ruler(train[np.random.default_rng(0).permutation(len(train))[:most]])
    found[NEARER] = memorisation_test(seen, real, made).nearer
    return {name: np.array(found[name], float) for name in MEASURES}


def over_folds(parts: list[dict[str, np.ndarray]]) -> dict[str, Measure]:
    """The mean of each measure over folds, with an error that counts what folds differ by."""
    whole = [part for part in parts if part]
    found = {}
    for name in MEASURES if whole else ():
        values, errors = np.array([part[name] for part in whole]).T
        square = float(np.mean(errors**2))
        if len(whole) > 1:
            square = max(square, float(np.var(values, ddof=1)))
        found[name] = Measure(float(values.mean()), math.sqrt(square / len(whole)))
    return found
