"""Rows that come in parts: a fit goes on with more of them, without those before.

What was seen is kept as a small table on which the likelihood is what it was on all rows, whatever the
parameters.  A part is learned together with that table, in units of both.
"""

from __future__ import annotations

import abc
import warnings
from typing import Any, Self

import numpy as np

from .._core import programs, row_hashes
from ..distributions import Gaussian
from ._density import AbstractRowEstimator
from ._rows import Rows, points_of
from ._validation import check_weight


class LearnsInParts(AbstractRowEstimator):
    """Goes on with more rows by `partial_fit`.

    Attributes:
        kept_: the table that stands for the rows of all calls so far.
    """

    kept_: Rows

    @abc.abstractmethod
    def _reduced(self, rows: Rows) -> Rows:
        """Fewer rows, of the same likelihood at all parameters; both in the units of the user."""

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Goes on with more rows, those of earlier calls being kept as a small table of their likelihood.

        Gaussian models without a hidden component are those of a fit to all rows together, whatever the
        parts; missing entries are integrated out as in `fit`.  A part may have other values than those
        before, but not other columns or labels.  After `fit` it begins anew.

        Args:
            X: a row per sample; NaN means not observed.
            y: ignored.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        return self._go_on(X, sample_weight)

    def _go_on(self, X: Any, sample_weight: Any) -> Self:
        x = self._take_part(X)
        return self._learn_part(X, x, check_weight(x, sample_weight), None)

    def _take_part(self, X: Any) -> np.ndarray:
        """The rows of a call, checked as those of the first one; says so where nothing goes on."""
        programs.check_process()
        self._check_parameters()
        first, name = "kept_" not in vars(self), type(self).__name__
        if first and "model_" in vars(self):
            warnings.warn(
                f"{name}.fit keeps no rows to go on from: partial_fit begins anew.",
                UserWarning,
                stacklevel=4,
            )
        return self.intake.validated(self, X, reset=first)

    def _learn_part(
        self, passed: Any, x: np.ndarray, weight: np.ndarray | None, known: np.ndarray | None
    ) -> Self:
        """Learns rows, with their weights and what else is known of them, together with those before."""
        rows = Rows(x, np.ones(len(x)) if weight is None else weight, known)
        if "kept_" in vars(self):
            pairs: Any = zip(self.kept_, rows, strict=True)
            joined: Any = (None if new is None else np.concatenate([old, new]) for old, new in pairs)
            rows = Rows(*joined)
        extra = None if rows.known is None else lambda _: rows.known
        taken = self.intake._fitting(self, passed, rows.x, rows.weight, extra)
        self._learn_from(taken)
        self.kept_ = self._reduced(taken.rows)
        return self


def reduced_rows(family: Any, rows: Rows) -> Rows:
    """Fewer rows with the same sums of statistics of a family, for each value of what is known of them.

    Gaussians need the moments, of each set of columns that are observed together.  Where columns are
    independent each needs its own values: the mean and the variance, or how often each value occurs.
    Families of other columns get the rows as they are.
    """
    if isinstance(family, Gaussian):
        return _by_group(rows, lambda x, weight, seen: _same_moments(x, weight))
    if family.masks_missing:
        gaussian = family.unit_free_columns(rows.x.shape[1])
        return _by_group(rows, lambda x, weight, seen: _same_columns(x, weight, gaussian[seen]))
    return rows


def _by_group(rows: Rows, reduce: Any) -> Rows:
    """`reduce` for all rows that miss the same columns and are known alike, if that makes them fewer.

    It is given the columns that are observed, the weights, and which columns these are.
    """
    holes = np.isnan(rows.x)
    known = np.zeros((len(holes), 0)) if rows.known is None else rows.known
    _, first, group = np.unique(
        row_hashes(np.column_stack([holes.astype(float), known])), return_index=True, return_inverse=True
    )
    parts = []
    for number, example in enumerate(first):
        chosen = group.ravel() == number
        seen, x, weight = ~holes[example], rows.x[chosen], rows.weight[chosen]
        nothing = Rows(x[:1, :0], weight.sum(keepdims=True))
        found = reduce(x[:, seen], weight, seen) if seen.any() else nothing
        if len(found.x) < len(x):
            wide = np.full((len(found.x), x.shape[1]), np.nan)
            wide[:, seen] = found.x
            x, weight = wide, found.weight
        parts.append(Rows(x, weight, np.repeat(known[[example]], len(x), axis=0)))
    x, weight, shares = (np.concatenate(part) for part in zip(*parts))
    return Rows(x, weight, None if rows.known is None else shares)


def _same_moments(x: np.ndarray, weight: np.ndarray) -> Rows:
    """Two rows for each column with the weight, mean and covariance of all."""
    mean = _mean(x, weight)
    gap = x - mean
    # columns of very different size keep their digits
    size = np.abs(gap).max(axis=0)
    size = np.where(size > 0, size, 1.0)
    gap /= size
    found = points_of((gap * weight[:, None]).T @ gap / weight.sum(), weight.sum())
    return Rows(mean + size * found.x, found.weight)


def _mean(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The mean of each column, in two steps: the second sums small numbers only."""
    rough = np.average(x, axis=0, weights=weight)
    return rough + np.average(x - rough, axis=0, weights=weight)


def _same_columns(x: np.ndarray, weight: np.ndarray, gaussian: np.ndarray) -> Rows:
    """Rows whose columns, each taken alone, have the values of all rows with the same weights.

    Each column is put in order by itself: rows in which none of them changes are one.
    """
    total, columns = weight.sum(), []
    for column, wide in zip(x.T, gaussian, strict=True):
        if wide:
            mean = _mean(column[:, None], weight)[0]
            spread = np.sqrt(np.average((column - mean) ** 2, weights=weight))
            values, mass = np.array([mean - spread, mean + spread]), np.full(2, total / 2)
        else:
            values, place = np.unique(column, return_inverse=True)
            mass = np.bincount(place.ravel(), weight)
        columns.append((values, np.cumsum(mass) / mass.sum()))
    ends = np.unique(np.concatenate([share for _, share in columns]))
    # shares that differ by rounding are the same
    ends = ends[np.append(np.diff(ends) > 1e-14, True)]
    ends[-1] = 1.0
    starts = np.concatenate([[0.0], ends[:-1]])
    middle = (starts + ends) / 2
    found = [values[np.searchsorted(share[:-1], middle)] for values, share in columns]
    return Rows(np.column_stack(found), total * (ends - starts))
