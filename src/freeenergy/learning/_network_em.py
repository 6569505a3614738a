"""Parameters of a network of labels and linear Gaussian numbers: in closed form, and by EM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._core import LOG_2PI, Status
from ..inference import DirectedGraph, Factor, JunctionTree, TableRows
from ..inference._factors import refuse_large
from ..inference._mixed_rows import LineTable, MixedRows, family_moments
from ..inference._table_rows import complete_counts

# the least variance given the parents, as a share of that of the column
_LEAST_VARIANCE = 1e-12

Moments = tuple[np.ndarray, np.ndarray, np.ndarray]


def smoothed(counts: np.ndarray, alpha: float) -> np.ndarray:
    """p(last axis | the others) with `alpha` imagined rows spread evenly; even where there are no rows."""
    table = counts + alpha / counts.size
    total = table.sum(axis=-1, keepdims=True)
    even = np.full_like(table, 1 / table.shape[-1])
    return np.divide(table, total, out=even, where=total > 0)


def with_imagined(moments: Moments, alpha: float) -> Moments:
    """Sums with `alpha` imagined rows, spread evenly over the states, of independent standard numbers."""
    weight, first, second = moments
    share = alpha / max(weight.size, 1)
    return weight + share, first, second + share * np.eye(first.shape[-1])


def regression(moments: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """b, w and v of the largest likelihood, of the last column given those before it, in each state.

    Where there are no rows, or the column is a function of the others, v is NaN or nothing.

    >>> x = np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 5.5]])
    >>> b, w, v = regression((np.array(3.0), x.sum(0), x.T @ x))
    >>> round(float(b), 4), w.round(4).tolist(), round(float(v), 4)
    (0.9167, [2.25], 0.0139)
    """
    weight, first, second = moments
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = first / weight[..., None]
        gap = second / weight[..., None, None] - mean[..., :, None] * mean[..., None, :]
    known = np.asarray(np.isfinite(gap).all(axis=(-1, -2)))
    safe = np.where(known[..., None, None], gap, np.eye(gap.shape[-1]))
    # of columns that say the same any of the solutions serves
    w = (np.linalg.pinv(safe[..., :-1, :-1], hermitian=True) @ safe[..., :-1, -1:])[..., 0]
    v = safe[..., -1, -1] - np.sum(w * safe[..., :-1, -1], axis=-1)
    b = mean[..., -1] - np.sum(w * mean[..., :-1], axis=-1)
    return np.where(known, b, np.nan), w, np.where(known, v, np.nan)


def line_nats(moments: Moments, line: LineTable) -> float:
    """Σ w log N(x; b + w · u, v) of the rows that the sums are of."""
    weight, first, second = moments
    slope = np.concatenate([-line.weights, np.ones((*line.weights.shape[:-1], 1))], axis=-1)
    square = np.einsum("...i,...ij,...j->...", slope, second, slope)
    square += line.intercept**2 * weight - 2 * line.intercept * np.sum(slope * first, axis=-1)
    return float(-0.5 * np.sum(square / line.variance + weight * (np.log(line.variance) + LOG_2PI)))


def table_nats(counts: np.ndarray, table: np.ndarray) -> float:
    """Σ counts log p."""
    return float(np.sum(counts * np.log(np.where(counts > 0, table, 1))))


class NetworkStatistics(NamedTuple):
    """What the parameters of a network depend on: counts of labels and moments of numbers, by family."""

    counts: tuple[np.ndarray, ...]
    moments: tuple[Moments, ...]

    def plus(self, other: NetworkStatistics) -> NetworkStatistics:
        """Those of both sets of rows."""
        pairs = zip(self.moments, other.moments, strict=True)
        return NetworkStatistics(
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            tuple((a[0] + b[0], a[1] + b[1], a[2] + b[2]) for a, b in pairs),
        )

    def with_imagined(self, alpha: float) -> NetworkStatistics:
        """Those of the rows and of `alpha` imagined ones."""
        return NetworkStatistics(
            tuple(counts + alpha / counts.size for counts in self.counts),
            tuple(with_imagined(moments, alpha) for moments in self.moments),
        )


class NetworkShape:
    """A graph over columns of labels and numbers, and how its parameters come from rows.

    Args:
        graph: over the columns 0, 1, 2, …; no number is a parent of a label.
        sizes: how many labels each column has; None for numbers.
        names: of the columns, for sentences.
    """

    def __init__(
        self, graph: DirectedGraph, sizes: Sequence[int | None], names: Sequence[str] | None = None
    ) -> None:
        self.graph, self.sizes = graph, tuple(sizes)
        self.names = tuple(map(str, range(len(self.sizes)))) if names is None else tuple(names)
        self.labels = tuple(v for v, size in enumerate(self.sizes) if size is not None)
        self.numbers = tuple(v for v in graph.order if self.sizes[v] is None)
        for v in self.labels:
            wrong = [p for p in graph.parents(v) if self.sizes[p] is None]
            if wrong:
                raise ValueError(
                    "A column of numbers must be no parent of one of labels. "
                    f"Got {self.names[wrong[0]]!r} → {self.names[v]!r}."
                )
        label_sizes = {v: self.sizes[v] or 1 for v in self.labels}
        self.scopes = [(*graph.parents(v), v) for v in self.labels]
        self.above = [tuple(p for p in graph.parents(v) if self.sizes[p]) for v in self.numbers]
        self.beside = [tuple(p for p in graph.parents(v) if not self.sizes[p]) for v in self.numbers]
        for scope in [*self.scopes, *self.above]:
            refuse_large(scope, label_sizes)
        self.tree = JunctionTree.of(label_sizes, self.scopes) if self.labels else None

    def statistics(
        self, x: np.ndarray, weight: np.ndarray, spread: np.ndarray | None = None
    ) -> NetworkStatistics:
        """Of complete rows; `spread` is what each adds to the products of its numbers."""
        sizes: list[int] = [size or 0 for size in self.sizes]
        return NetworkStatistics(
            tuple(complete_counts(x, weight, sizes, scope) for scope in self.scopes),
            self._moments(x, weight, spread),
        )

    def _moments(self, x: np.ndarray, weight: np.ndarray, spread: np.ndarray | None) -> tuple[Moments, ...]:
        found, place = [], {v: i for i, v in enumerate(self.numbers)}
        for v, above, beside in zip(self.numbers, self.above, self.beside, strict=True):
            columns = (*beside, v)
            own = None
            if spread is not None:
                chosen = [place[c] for c in columns]
                own = spread[:, chosen][:, :, chosen]
            found.append(family_moments(x, weight, self.sizes, above, columns, own))
        return tuple(found)

    def expected(
        self, rows: MixedRows, x: np.ndarray, weight: np.ndarray
    ) -> tuple[NetworkStatistics, float]:
        """Expected statistics of rows with missing entries, and Σ weight · log p of what is observed."""
        counts: list[np.ndarray] = []
        if not self.numbers and rows.tables is not None:
            counts, nats = rows.tables.counts(x[:, list(self.labels)], weight, self.scopes)
            return NetworkStatistics(tuple(counts), ()), nats
        whole = rows.completed(x, weight)
        if rows.tables is not None:
            counts, _ = rows.tables.counts(whole.x[:, list(self.labels)], whole.weight, self.scopes)
        moments = self._moments(whole.x, whole.weight, whole.spread)
        return NetworkStatistics(tuple(counts), moments), whole.nats

    def maximised(self, statistics: NetworkStatistics, alpha: float) -> MixedRows:
        """The parameters of the largest likelihood, with `alpha` imagined rows."""
        tables = None
        if self.tree is not None:
            with np.errstate(divide="ignore"):
                factors = [
                    Factor(scope, np.log(smoothed(counts, alpha)))
                    for scope, counts in zip(self.scopes, statistics.counts, strict=True)
                ]
            tables = TableRows(self.tree, tuple(factors))
        lines = []
        for v, above, beside, moments in zip(
            self.numbers, self.above, self.beside, statistics.moments, strict=True
        ):
            b, w, variance = regression(with_imagined(moments, alpha))
            if not (variance > _LEAST_VARIANCE).all():
                raise ValueError(
                    f"The column {self.names[v]!r} has too few rows for its parents, or is a function of "
                    "them: its variance given them is nothing. Give a larger 'alpha', or fewer parents."
                )
            lines.append(LineTable(above, beside, b, w, variance))
        return MixedRows(self.labels, self.numbers, tables, tuple(lines))

    def nats(self, statistics: NetworkStatistics, rows: MixedRows) -> float:
        """Σ log p of the rows that the statistics are of."""
        found = 0.0
        if rows.tables is not None:
            for counts, factor in zip(statistics.counts, rows.tables.factors, strict=True):
                found += table_nats(counts, np.exp(factor.logs))
        pairs = zip(statistics.moments, rows.lines, strict=True)
        return found + sum(line_nats(moments, line) for moments, line in pairs)

    @property
    def free(self) -> int:
        """How many numbers its parameters have."""
        states = [math.prod(self.sizes[v] or 1 for v in scope[:-1]) for scope in self.scopes]
        tables = sum(n * ((self.sizes[v] or 1) - 1) for n, v in zip(states, self.labels, strict=True))
        lines = zip(self.above, self.beside, strict=True)
        return tables + sum(
            math.prod(self.sizes[v] or 1 for v in above) * (len(beside) + 2) for above, beside in lines
        )


class NetworkFit(NamedTuple):
    """The parameters of a network, −log p per row with the imagined rows after each step, and its end."""

    rows: MixedRows
    history: list[float]
    status: Status


def fit_network(
    shape: NetworkShape,
    x: np.ndarray,
    weight: np.ndarray,
    *,
    alpha: float,
    max_iter: int,
    tol: float,
    start: MixedRows | None = None,
) -> NetworkFit:
    """Parameters for a graph: in closed form for complete rows, else by EM.

    Args:
        shape: the graph.
        x: rows of labels 0, 1, 2, … and standardised numbers, NaN where not observed.
        weight: of the rows.
        alpha: how many imagined rows, spread evenly over all joint states; 0 is maximum likelihood.
        max_iter, tol: of EM; `tol` is of −log p per row.
        start: where EM begins; at the complete rows if not said.
    """
    total = weight.sum()
    holes = np.asarray(np.isnan(x).any(axis=1))
    whole = shape.statistics(x[~holes], weight[~holes])
    if not holes.any():
        rows = shape.maximised(whole, alpha)
        return NetworkFit(rows, [-shape.nats(whole.with_imagined(alpha), rows) / total], Status.CONVERGED)
    rows = shape.maximised(whole, max(alpha, 1.0)) if start is None else start
    history: list[float] = []
    for _ in range(max_iter):
        some, nats = shape.expected(rows, x[holes], weight[holes])
        history.append(-(nats + shape.nats(whole.with_imagined(alpha), rows)) / total)
        rows = shape.maximised(whole.plus(some), alpha)
        if len(history) > 1 and history[-2] - history[-1] <= tol:
            return NetworkFit(rows, history, Status.CONVERGED)
    return NetworkFit(rows, history, Status.LIMIT)
