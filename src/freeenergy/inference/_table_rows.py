"""Rows of labels under a product of tables: all of them at once, on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._factors import Factor
from ._junction import CliqueBeliefs, JunctionTree, draw_on_host

# entries of the largest clique for all rows that are done together
_AT_ONCE = 2**20


@dataclasses.dataclass(frozen=True)
class TableRows:
    """p(x) = Π φ(x_C) / Z for rows of labels 0, 1, 2, …, NaN where nothing was observed.

    Nothing is compiled: an axis of rows goes before those of the tables.

    Attributes:
        tree: over the columns 0, 1, 2, ….
        factors: the tables, as NumPy arrays in log space, in the order of `tree.scopes`.
        log_z: log Z; zero for the tables of a Bayesian network.

    >>> tree = JunctionTree.of({0: 2, 1: 2}, [(0,), (0, 1)])
    >>> tables = (Factor((0,), np.log([0.5, 0.5])), Factor((0, 1), np.log([[0.9, 0.1], [0.3, 0.7]])))
    >>> np.exp(TableRows(tree, tables).evidence(np.array([[0.0, 1.0], [np.nan, 1.0]]))).round(6).tolist()
    [0.05, 0.4]
    """

    tree: JunctionTree
    factors: tuple[Factor, ...]
    log_z: float = 0.0

    def _blocks(self, x: np.ndarray) -> Iterator[slice]:
        step = max(_AT_ONCE // self.tree.largest, 1)
        return (slice(start, start + step) for start in range(0, len(x), step))

    def given(self, x: np.ndarray) -> list[Factor]:
        """The tables with what is observed of some rows."""
        seen = []
        for column, (variable, size) in enumerate(self.tree.sizes):
            code = x[:, column, None]
            if np.isnan(code).all():
                continue
            fits = np.isnan(code) | (code == np.arange(size))
            seen.append(Factor((variable,), np.where(fits, 0.0, -np.inf)))
        return [*self.factors, *seen]

    def complete_evidence(self, x: np.ndarray) -> np.ndarray:
        """log p of rows without NaN, by looking into the tables."""
        codes, nats = x.astype(int), np.full(len(x), -self.log_z)
        place = {variable: column for column, variable in enumerate(self.tree.variables)}
        outside = np.zeros(len(x), bool)
        for column, (_, size) in enumerate(self.tree.sizes):
            outside |= (
                (codes[:, column] != x[:, column]) | (codes[:, column] < 0) | (codes[:, column] >= size)
            )
        codes[outside] = 0
        for factor in self.factors:
            nats = nats + factor.logs[tuple(codes[:, place[v]] for v in factor.scope)]
        return np.where(outside, -np.inf, nats)

    def evidence(self, x: np.ndarray) -> np.ndarray:
        """log p of what is observed of each row."""
        nats, holes = np.empty(len(x)), np.asarray(np.isnan(x).any(axis=1))
        nats[~holes] = self.complete_evidence(x[~holes])
        some = x[holes]
        found = [self.tree.log_partition(self.given(some[part])) for part in self._blocks(some)]
        if found:
            sizes = [len(some[part]) for part in self._blocks(some)]
            whole = [np.broadcast_to(part, n) for part, n in zip(found, sizes, strict=True)]
            nats[holes] = np.concatenate(whole) - self.log_z
            # of a row of which nothing is known there is nothing to be wrong about
            nats[np.isnan(x).all(axis=1)] = 0.0
        return nats

    def beliefs(self, x: np.ndarray) -> Iterator[tuple[slice, CliqueBeliefs]]:
        """The marginals of all cliques given what is observed, some rows at a time."""
        for part in self._blocks(x):
            yield part, self.tree.calibrate(self.given(x[part]))

    def marginals(self, x: np.ndarray, column: int) -> np.ndarray:
        """P(label | what is observed) in one column, a row each."""
        variable, size = self.tree.sizes[column]
        found = np.empty((len(x), size))
        for part, beliefs in self.beliefs(x):
            found[part] = beliefs.marginal(variable)
        return found

    def draw(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Each row with what is missing drawn given what is observed."""
        found = x.copy()
        for part in self._blocks(x):
            rows = x[part]
            states = self.tree.sample(self.given(rows), (len(rows),), draw_on_host(rng))
            drawn = np.stack([np.broadcast_to(states[v], len(rows)) for v in self.tree.variables], axis=1)
            found[part] = np.where(np.isnan(rows), drawn, rows)
        return found

    def counts(
        self, x: np.ndarray, weight: np.ndarray, scopes: Sequence[tuple[Any, ...]]
    ) -> tuple[list[np.ndarray], float]:
        """Expected weight of rows in each cell of tables over `scopes`, and Σ weight · log p.

        Each of `scopes` is within a clique.
        """
        sizes = dict(self.tree.sizes)
        totals = [np.zeros(tuple(sizes[v] for v in scope)) for scope in scopes]
        nats = 0.0
        for part, beliefs in self.beliefs(x):
            some = weight[part]
            nats += float(some @ (np.broadcast_to(beliefs.log_evidence, len(some)) - self.log_z))
            for total, scope in zip(totals, scopes, strict=True):
                total += np.tensordot(some, beliefs.joint(scope), 1)
        return totals, nats


def complete_counts(
    x: np.ndarray, weight: np.ndarray, sizes: Sequence[int], columns: Sequence[int]
) -> np.ndarray:
    """The weight of rows in each cell of a table over some columns; of complete rows.

    >>> complete_counts(np.array([[0, 1], [1, 1], [1, 1]]), np.ones(3), [2, 2], [0, 1]).tolist()
    [[0.0, 1.0], [0.0, 2.0]]
    """
    shape = tuple(sizes[c] for c in columns)
    if not columns:
        return np.full((), weight.sum())
    place = np.ravel_multi_index(tuple(x[:, c].astype(int) for c in columns), shape)
    return np.bincount(place, weight, int(np.prod(shape))).reshape(shape)
