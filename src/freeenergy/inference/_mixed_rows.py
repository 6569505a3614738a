"""Rows of labels and numbers under a conditional Gaussian network: all of them at once, on the host."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .._core import LOG_2PI
from ._table_rows import TableRows

# joint states of missing labels that one row is summed over
_MOST_STATES = 4096
# numbers of completed rows that are held at once
_MOST_NUMBERS = 2**27
# numbers of rows, each for a state of its labels, that are done together
_AT_ONCE = 2**22


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


class _Joint(NamedTuple):
    """Rows, once for each joint state of missing labels.

    Attributes:
        states: the rows with these labels.
        owner: whose they are.
        nats: log p of each.
        share: P(state | what is observed), NaN for rows that cannot be.
        total: log p of what is observed of the rows themselves.
        filled: the rows with conditional means for missing numbers.
        spread: the covariance of the numbers of each.
    """

    states: np.ndarray
    owner: np.ndarray
    nats: np.ndarray
    share: np.ndarray
    total: np.ndarray
    filled: np.ndarray
    spread: np.ndarray


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

    def _complete_number_nats(self, x: np.ndarray) -> np.ndarray:
        """Of rows without NaN, one by one, which loses no digits where numbers are nearly the same."""
        codes, nats = self._codes(x), np.zeros(len(x))
        for column, line in zip(self.numbers, self.lines, strict=True):
            at = tuple(codes[:, self.switches.index(c)] for c in line.labels)
            mean = line.intercept[at] + np.sum(line.weights[at] * x[:, list(line.numbers)], axis=1)
            v = line.variance[at]
            nats -= 0.5 * ((x[:, column] - mean) ** 2 / v + np.log(v) + LOG_2PI)
        return nats

    def _conditioned(
        self, x: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows in which numbers are missing, those of the same numbers and labels together.

        Gives which rows they are, log p of the observed numbers, all numbers with their conditional means,
        and the conditional covariance.  Labels on which numbers depend are known.
        """
        z = x[:, list(self.numbers)]
        rows = np.flatnonzero(np.isnan(z).any(axis=1))
        if not len(rows):
            return
        codes, place = np.unique(self._codes(x[rows]), axis=0, return_inverse=True)
        means, covariances = self._gaussians(codes)
        keys = np.column_stack([place.ravel(), np.isnan(z[rows])])
        kinds, group = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(group.ravel()))[:-1]
        for kind, part in zip(kinds, np.split(order, ends), strict=True):
            own, seen = rows[part], kind[1:] == 0
            mean, whole = means[kind[0]], covariances[kind[0]]
            factor = np.linalg.cholesky(whole[seen][:, seen])
            both = np.concatenate([(z[own] - mean)[:, seen].T, whole[seen]], axis=1)
            both = np.linalg.solve(factor, both)
            white, cross = both[:, : len(own)], both[:, len(own) :]
            nats = -0.5 * (np.sum(white**2, axis=0) + seen.sum() * LOG_2PI)
            nats -= np.log(np.diagonal(factor)).sum()
            filled = np.where(seen, z[own], mean + white.T @ cross)
            gone = ~seen[:, None] & ~seen
            yield own, nats, filled, np.where(gone, whole - cross.T @ cross, 0.0)

    def _completed_numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log p of the observed numbers, rows with conditional means of the others, their covariance."""
        whole, m = ~np.isnan(x[:, list(self.numbers)]).any(axis=1), len(self.numbers)
        nats, found, spread = np.zeros(len(x)), x.copy(), np.zeros((len(x), m, m))
        nats[whole] = self._complete_number_nats(x[whole])
        for own, part, z, covariance in self._conditioned(x):
            nats[own], spread[own] = part, covariance
            found[np.ix_(own, np.array(self.numbers))] = z
        return nats, found, spread

    def _states_of(self, x: np.ndarray, over: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Every row once for each joint state of its labels in `over` that are missing, and whose it is."""
        missing = np.isnan(x[:, list(over)])
        kinds, group = np.unique(missing, axis=0, return_inverse=True)
        parts, owners = [], []
        for i, kind in enumerate(kinds):
            rows, columns = (
                np.flatnonzero(group.ravel() == i),
                [c for c, m in zip(over, kind, strict=True) if m],
            )
            states = _states([self._size_of[c] for c in columns])
            whole = np.repeat(x[rows], len(states), axis=0)
            whole[:, columns] = np.tile(states, (len(rows), 1))
            parts.append(whole)
            owners.append(np.repeat(rows, len(states)))
        return np.concatenate(parts), np.concatenate(owners)

    def _refuse_many(self, x: np.ndarray, over: Sequence[int]) -> int:
        """How many states the row with the most has; refused where these are hopeless."""
        gone = np.isnan(x[:, list(over)])
        sizes = np.array([self._size_of[c] for c in over], float)
        states = np.prod(np.where(gone, sizes, 1.0), axis=1)
        worst = int(np.argmax(states)) if len(x) else 0
        if len(x) and states[worst] > _MOST_STATES:
            raise ValueError(
                f"A row in which labels are missing is summed over at most {_MOST_STATES:,} of their joint "
                f"states. Got {states[worst]:,.4g}, of {int(gone[worst].sum())} columns."
            )
        return int(states.max(initial=1.0))

    def _blocks(self, x: np.ndarray) -> Iterator[slice]:
        """Rows that are done together."""
        each = self._refuse_many(x, self.switches) * (x.shape[1] + len(self.numbers) ** 2)
        step = max(_AT_ONCE // each, 1)
        return (slice(start, start + step) for start in range(0, len(x), step))

    def _joint(self, x: np.ndarray, over: Sequence[int]) -> _Joint:
        states, owner = self._states_of(x, over)
        own, filled, spread = self._completed_numbers(states)
        nats = self._label_nats(states) + own
        top = np.full(len(x), -np.inf)
        np.maximum.at(top, owner, nats)
        base = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            total = np.log(np.bincount(owner, np.exp(nats - base[owner]), len(x))) + base
        with np.errstate(invalid="ignore"):
            return _Joint(states, owner, nats, np.exp(nats - total[owner]), total, filled, spread)

    def evidence(self, x: np.ndarray) -> np.ndarray:
        """log p of what is observed of each row."""
        found = np.empty(len(x))
        for part in self._blocks(x):
            found[part] = self._joint(x[part], self.switches).total
        # of a row of which nothing is known there is nothing to be wrong about
        found[np.isnan(x).all(axis=1)] = 0.0
        return found

    def completed(
        self, x: np.ndarray, weight: np.ndarray, over: Sequence[int] | None = None
    ) -> CompletedRows:
        """What is expected of rows given what is observed of them.

        Args:
            x: the rows, none of them impossible.
            weight: of each.
            over: the columns of labels that are filled; those on which numbers depend if not said.
        """
        over, m = self.switches if over is None else over, len(self.numbers)
        self._refuse_many(x, over)
        sizes = np.array([self._size_of[c] for c in over], float)
        total = float(np.prod(np.where(np.isnan(x[:, list(over)]), sizes, 1.0), axis=1).sum())
        if total * (x.shape[1] + m * m) > _MOST_NUMBERS:
            raise ValueError(
                f"Rows in which labels are missing are completed in at most {_MOST_NUMBERS:.1e} numbers. "
                f"Got {total:.3g} completed rows of {x.shape[1]} columns."
            )
        each = self._joint(x, over)
        weights = weight[each.owner] * each.share
        return CompletedRows(each.filled, weights, each.spread, float(weight @ each.total))

    def means(self, x: np.ndarray) -> np.ndarray:
        """Rows whose missing numbers are replaced by their means given what is observed."""
        found = x.copy()
        for part in self._blocks(x):
            each, rows = self._joint(x[part], self.switches), x[part]
            for column in self.numbers:
                mean = np.bincount(each.owner, each.share * each.filled[:, column], len(rows))
                found[part, column] = np.where(np.isnan(rows[:, column]), mean, rows[:, column])
        return found

    def marginals(self, x: np.ndarray, column: int) -> np.ndarray:
        """P(label | what is observed) in one column of labels, a row each."""
        assert self.tables is not None
        found = np.zeros((len(x), self._size_of[column]))
        for part in self._blocks(x):
            each = self._joint(x[part], self.switches)
            own = self.tables.marginals(each.states[:, list(self.labels)], self.labels.index(column))
            for k in range(found.shape[1]):
                found[part, k] = np.bincount(each.owner, each.share * own[:, k], len(x[part]))
        return found

    def draw(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Each row with what is missing drawn given what is observed; NaN in rows that cannot be."""
        found = np.empty_like(x)
        for part in self._blocks(x):
            found[part] = self._drawn(x[part], rng)
        return found

    def _drawn(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        labels, numbers = list(self.labels), list(self.numbers)
        each = self._joint(x, self.switches)
        # the largest of log p plus Gumbel noise is a draw
        order = np.lexsort((each.nats + rng.gumbel(size=len(each.nats)), each.owner))
        chosen = order[np.flatnonzero(np.diff(each.owner[order], append=len(x)))]
        filled = each.states[chosen]
        if self.tables is not None:
            filled[:, labels] = self.tables.draw(filled[:, labels], rng)
        noise = rng.normal(size=(len(x), len(numbers)))
        gone = np.isnan(x[:, numbers])
        patterns, group = np.unique(
            np.column_stack([self._codes(filled), gone]), axis=0, return_inverse=True
        )
        filled[:, numbers] = each.filled[chosen][:, numbers]
        for i, pattern in enumerate(patterns if numbers else ()):
            own, free = np.flatnonzero(group.ravel() == i), pattern[len(self.switches) :] > 0
            # the same for all of them
            covariance = each.spread[chosen[own[0]]][free][:, free]
            values, vectors = np.linalg.eigh(covariance)
            # rounding may leave a little less than nothing of what is all but known
            half = vectors * np.sqrt(np.maximum(values, 0.0))
            filled[np.ix_(own, np.array(numbers)[free])] += noise[np.ix_(own, free)] @ half.T
        impossible = (each.total == -np.inf)[:, None] & np.isnan(x)
        return np.where(impossible, np.nan, filled)


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
