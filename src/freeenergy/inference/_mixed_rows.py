"""Rows of labels and numbers under a conditional Gaussian network: all of them at once, on the host."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from .._core import LOG_2PI
from ._table_rows import TableRows

# joint states of missing labels that one row is summed over
_MOST_STATES = 4096
# numbers of completed rows that are held at once
_MOST_NUMBERS = 2**27


class LineTable(NamedTuple):
    """A number given labels l and numbers u:  N(x; b_l + w_l · u, v_l), as arrays of NumPy.

    Attributes:
        labels: the columns of the parents that are labels, an axis of the arrays each.
        numbers: the columns of those that are numbers.
        intercept, weights, variance: b, w with one more axis for u, and v.
    """

    labels: tuple[int, ...]
    numbers: tuple[int, ...]
    intercept: np.ndarray
    weights: np.ndarray
    variance: np.ndarray


class CompletedRows(NamedTuple):
    """What is expected of rows with missing entries: rows without any, each for a state of its labels.

    Attributes:
        x: the rows, numbers that were missing replaced by their means given the rest.
        weight: of the row times the probability of the state.
        spread: the covariance of the numbers of each, zero for what was observed.
        nats: Σ weight · log p of what is observed.
    """

    x: np.ndarray
    weight: np.ndarray
    spread: np.ndarray
    nats: float


def _states(shape: Sequence[int]) -> np.ndarray:
    """Every joint state, a row each."""
    return np.indices(tuple(shape)).reshape(len(shape), math.prod(shape)).T.astype(float)


@dataclasses.dataclass(frozen=True)
class MixedRows:
    """p(labels) Π N(number; b + w · numbers before it, v), of which b, w and v depend on labels.

    Missing labels on which numbers depend are summed over one by one, all others by the junction tree;
    what is missing of the numbers is integrated out by Gaussian algebra.

    Attributes:
        labels: the columns that hold labels, in the order of the variables of `tables`.
        numbers: the columns that hold numbers, parents before children.
        tables: the law of the labels; None where there are none.
        lines: the law of each number.

    >>> line = LineTable((), (0,), np.array(1.0), np.array([2.0]), np.array(3.0))
    >>> start = LineTable((), (), np.array(0.0), np.zeros(0), np.array(1.0))
    >>> both = MixedRows((), (0, 1), None, (start, line))
    >>> both.means(np.array([[3.0, np.nan]])).tolist()
    [[3.0, 7.0]]
    """

    labels: tuple[int, ...]
    numbers: tuple[int, ...]
    tables: TableRows | None
    lines: tuple[LineTable, ...]

    @functools.cached_property
    def switches(self) -> tuple[int, ...]:
        """The columns of labels that some number has among its parents."""
        return tuple(sorted({column for line in self.lines for column in line.labels}))

    @functools.cached_property
    def _size_of(self) -> dict[int, int]:
        """How many labels each column of them has."""
        sizes = () if self.tables is None else [size for _, size in self.tables.tree.sizes]
        return dict(zip(self.labels, sizes, strict=True))

    def _codes(self, x: np.ndarray) -> np.ndarray:
        """The labels on which numbers depend; zero for one that there is not, which has no probability."""
        codes = x[:, list(self.switches)]
        sizes = np.array([self._size_of[c] for c in self.switches], float)
        return np.where((codes >= 0) & (codes < sizes), codes, 0).astype(int)

    def _gaussians(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of all numbers for each row of labels."""
        n, m = len(codes), len(self.numbers)
        place = {column: i for i, column in enumerate(self.numbers)}
        mean, half = np.zeros((n, m)), np.zeros((n, m, m))
        for i, line in enumerate(self.lines):
            at = tuple(codes[:, self.switches.index(c)] for c in line.labels)
            before = [place[c] for c in line.numbers]
            b, w, v = (
                np.broadcast_to(part[at], (n, *part.shape[len(at) :]))
                for part in (line.intercept, line.weights, line.variance)
            )
            mean[:, i] = b + np.einsum("nk,nk->n", w, mean[:, before])
            half[:, i] = np.einsum("nk,nkj->nj", w, half[:, before])
            half[:, i, i] = np.sqrt(v)
        return mean, half @ half.transpose(0, 2, 1)

    def _label_nats(self, x: np.ndarray) -> np.ndarray:
        return np.zeros(len(x)) if self.tables is None else self.tables.evidence(x[:, list(self.labels)])

    def _known(self, x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows of one pattern by the labels on which numbers depend, all known: which, and of each.

        Gives log p of the observed numbers, the numbers with their conditional means, and the factor L of
        their conditional covariance L Lᵀ (the same for all of these rows).
        """
        z = x[:, list(self.numbers)]
        seen = ~np.isnan(z[0]) if len(z) else np.ones(z.shape[1], bool)
        codes, place = np.unique(self._codes(x), axis=0, return_inverse=True)
        means, covariances = self._gaussians(codes)
        for i in range(len(codes)):
            own = np.flatnonzero(place.ravel() == i)
            gap = (z[own] - means[i])[:, seen].T
            whole = covariances[i]
            factor = np.linalg.cholesky(whole[np.ix_(seen, seen)])
            white = solve_triangular(factor, gap, lower=True)
            nats = -0.5 * (np.sum(white**2, axis=0) + seen.sum() * LOG_2PI)
            nats = nats - np.log(np.diagonal(factor)).sum()
            filled, spread = z[own].copy(), np.zeros_like(whole)
            if not seen.all():
                cross = solve_triangular(factor, whole[np.ix_(seen, ~seen)], lower=True)
                filled[:, ~seen] = means[i][~seen] + (cross.T @ white).T
                spread[np.ix_(~seen, ~seen)] = whole[np.ix_(~seen, ~seen)] - cross.T @ cross
            yield own, nats, filled, spread

    def _complete_number_nats(self, x: np.ndarray) -> np.ndarray:
        """Of rows without NaN, one by one, which loses no digits where numbers are nearly the same."""
        codes, nats = self._codes(x), np.zeros(len(x))
        for column, line in zip(self.numbers, self.lines, strict=True):
            at = tuple(codes[:, self.switches.index(c)] for c in line.labels)
            mean = line.intercept[at] + np.sum(line.weights[at] * x[:, list(line.numbers)], axis=1)
            v = line.variance[at]
            nats -= 0.5 * ((x[:, column] - mean) ** 2 / v + np.log(v) + LOG_2PI)
        return nats

    def _number_nats(self, x: np.ndarray) -> np.ndarray:
        if not np.isnan(x[0, list(self.numbers)]).any():
            return self._complete_number_nats(x)
        nats = np.zeros(len(x))
        for own, part, *_ in self._known(x):
            nats[own] = part
        return nats

    def _patterns(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Rows in which the same is missing, by their numbers."""
        if not len(x):
            return
        place = np.unique(np.isnan(x), axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(place, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(place[order])) + 1)

    def _each_state(self, x: np.ndarray, over: Sequence[int]) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Of rows of one pattern: which of `over` are missing, their states, log p of rows with each."""
        missing = [c for c in over if np.isnan(x[0, c])]
        shape = [self._size_of[c] for c in missing]
        if math.prod(shape) > _MOST_STATES:
            raise ValueError(
                f"A row in which labels are missing is summed over at most {_MOST_STATES:,} of their joint "
                f"states. Got {math.prod(shape):,}, of {len(missing)} columns."
            )
        states = _states(shape)
        nats = np.empty((len(x), len(states)))
        for i, state in enumerate(states):
            filled = x.copy()
            filled[:, missing] = state
            nats[:, i] = self._label_nats(filled) + self._number_nats(filled)
        return missing, states, nats

    def evidence(self, x: np.ndarray) -> np.ndarray:
        """log p of what is observed of each row."""
        found = np.empty(len(x))
        for rows in self._patterns(x):
            found[rows] = logsumexp(self._each_state(x[rows], self.switches)[2], axis=1)
        # of a row of which nothing is known there is nothing to be wrong about
        found[np.isnan(x).all(axis=1)] = 0.0
        return found

    def _shares(self, x: np.ndarray, over: Sequence[int]) -> tuple[list[int], np.ndarray, np.ndarray]:
        """As `_each_state`, with P(state | what is observed); NaN for rows that cannot be."""
        missing, states, nats = self._each_state(x, over)
        with np.errstate(invalid="ignore"):
            return missing, states, np.exp(nats - logsumexp(nats, axis=1, keepdims=True))

    def completed(
        self, x: np.ndarray, weight: np.ndarray, over: Sequence[int] | None = None
    ) -> CompletedRows:
        """What is expected of rows given what is observed of them.

        Args:
            x: the rows, none of them impossible.
            weight: of each.
            over: the columns of labels that are filled; those on which numbers depend if not said.
        """
        over = self.switches if over is None else over
        total, m = 0, len(self.numbers)
        for rows in self._patterns(x):
            shape = [self._size_of[c] for c in over if np.isnan(x[rows[0], c])]
            total += len(rows) * math.prod(shape)
        if total * (x.shape[1] + m * m) > _MOST_NUMBERS:
            raise ValueError(
                f"Rows in which labels are missing are completed in at most {_MOST_NUMBERS:.1e} numbers. "
                f"Got {total:.3g} completed rows of {x.shape[1]} columns."
            )
        parts, weights, spreads, nats = [], [], [], 0.0
        for rows in self._patterns(x):
            missing, states, shares = self._each_state(x[rows], over)
            whole = logsumexp(shares, axis=1)
            nats += float(weight[rows] @ whole)
            for i, state in enumerate(states):
                filled = x[rows].copy()
                filled[:, missing] = state
                spread = np.zeros((len(rows), m, m))
                for own, _, z, covariance in self._known(filled):
                    filled[np.ix_(own, list(self.numbers))] = z
                    spread[own] = covariance
                parts.append(filled)
                weights.append(weight[rows] * np.exp(shares[:, i] - whole))
                spreads.append(spread)
        if not parts:
            return CompletedRows(x, weight, np.zeros((0, m, m)), 0.0)
        return CompletedRows(np.concatenate(parts), np.concatenate(weights), np.concatenate(spreads), nats)

    def means(self, x: np.ndarray) -> np.ndarray:
        """Rows whose missing numbers are replaced by their means given what is observed."""
        found, numbers = x.copy(), list(self.numbers)
        for rows in self._patterns(x):
            missing, states, shares = self._shares(x[rows], self.switches)
            total = np.zeros((len(rows), len(numbers)))
            for i, state in enumerate(states):
                filled = x[rows].copy()
                filled[:, missing] = state
                for own, _, z, _ in self._known(filled):
                    total[own] += shares[own, i, None] * z
            own_numbers = x[np.ix_(rows, numbers)]
            found[np.ix_(rows, numbers)] = np.where(np.isnan(own_numbers), total, own_numbers)
        return found

    def marginals(self, x: np.ndarray, column: int) -> np.ndarray:
        """P(label | what is observed) in one column of labels, a row each."""
        assert self.tables is not None
        found = np.zeros((len(x), self._size_of[column]))
        for rows in self._patterns(x):
            missing, states, shares = self._shares(x[rows], self.switches)
            for i, state in enumerate(states):
                filled = x[rows].copy()
                filled[:, missing] = state
                own = self.tables.marginals(filled[:, list(self.labels)], self.labels.index(column))
                found[rows] += shares[:, i, None] * own
        return found

    def draw(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Each row with what is missing drawn given what is observed; NaN in rows that cannot be."""
        found, labels, numbers = x.copy(), list(self.labels), list(self.numbers)
        for rows in self._patterns(x):
            missing, states, shares = self._shares(x[rows], self.switches)
            below = np.cumsum(shares, axis=1)
            which = np.argmax(rng.random(len(rows))[:, None] * below[:, -1:] < below, axis=1)
            filled = x[rows].copy()
            filled[:, missing] = states[which]
            if self.tables is not None:
                filled[:, labels] = self.tables.draw(filled[:, labels], rng)
            noise = rng.normal(size=(len(rows), len(numbers)))
            for own, _, z, covariance in self._known(filled):
                gone = np.isnan(x[rows[0], numbers])
                if gone.any():
                    values, vectors = np.linalg.eigh(covariance[np.ix_(gone, gone)])
                    # rounding may leave a little less than nothing of what is all but known
                    half = vectors * np.sqrt(np.maximum(values, 0.0))
                    z[:, gone] += noise[np.ix_(own, gone)] @ half.T
                filled[np.ix_(own, numbers)] = z
            impossible = np.isnan(below[:, -1])[:, None] & np.isnan(x[rows])
            found[rows] = np.where(impossible, np.nan, filled)
        return found


def family_moments(
    x: np.ndarray,
    weight: np.ndarray,
    sizes: Sequence[int | None],
    labels: Sequence[int],
    numbers: Sequence[int],
    spread: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Σ w, Σ w z and Σ w z zᵀ of some columns of numbers, for each joint state of some columns of labels.

    Args:
        x: rows that are complete in these columns.
        weight: of the rows.
        sizes: how many labels each column has; None for numbers.
        labels: columns, an axis of the result each.
        numbers: columns, the entries of z.
        spread: what each row adds to z zᵀ.

    >>> family_moments(np.array([[0, 2.0], [1, 3.0]]), np.ones(2), [2, None], [0], [1])[1].tolist()
    [[2.0], [3.0]]
    """
    shape = tuple(sizes[c] or 1 for c in labels)
    n, k = math.prod(shape), len(numbers)
    place = np.zeros(len(x), int)
    if labels:
        place = np.ravel_multi_index(tuple(x[:, c].astype(int) for c in labels), shape)
    z, second = x[:, list(numbers)], np.empty((n, k, k))
    for i in range(k):
        for j in range(i + 1):
            products = z[:, i] * z[:, j]
            products = products if spread is None else products + spread[:, i, j]
            second[:, i, j] = second[:, j, i] = np.bincount(place, weight * products, n)
    first = np.stack([np.bincount(place, weight * z[:, i], n) for i in range(k)], axis=-1)
    return (
        np.bincount(place, weight, n).reshape(shape),
        first.reshape(*shape, k),
        second.reshape(*shape, k, k),
    )
