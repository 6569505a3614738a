"""Which variables depend on which: graphs that explain rows of labels, by a score and a search."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from scipy.special import gammaln, xlogy

from ..inference import DirectedGraph
from ..inference._table_rows import complete_counts

# cells of a table that a search looks at
_LARGEST = 2**22


class AbstractScore(eqx.Module):
    """How well a variable is explained by its parents: a sum over variables is the score of a graph."""

    @abc.abstractmethod
    def __call__(self, counts: np.ndarray) -> float:
        """The score of a table of counts, of which the last axis is the variable; larger is better."""


class BIC(AbstractScore):
    """The largest log-likelihood less ½ log N for each free parameter (Schwarz 1978).

    >>> round(BIC()(np.array([[30.0, 10.0], [10.0, 30.0]])), 4)
    -49.3688
    """

    def __call__(self, counts: np.ndarray) -> float:
        table = counts.reshape(-1, counts.shape[-1])
        rows = table.sum(axis=1)
        free = table.shape[0] * (table.shape[1] - 1)
        return float(
            xlogy(table, table).sum() - xlogy(rows, rows).sum() - 0.5 * free * np.log(max(rows.sum(), 1.0))
        )


class BDeu(AbstractScore):
    """log p(labels | parents) with the tables integrated out: the evidence of the graph.

    Each row of a table has a Dirichlet prior with α / (q K) for each of its K cells, where q is the number
    of joint states of the parents: α imagined rows, spread evenly.  Graphs with the same independences
    score alike (Heckerman, Geiger and Chickering 1995).

    Attributes:
        alpha: how many imagined rows (also known as the equivalent sample size).

    >>> round(BDeu(2.0)(np.array([2.0, 1.0])), 6)  # 1/2 · 2/3 · 1/4
    -2.484907
    """

    alpha: float = 1.0

    def __call__(self, counts: np.ndarray) -> float:
        table = counts.reshape(-1, counts.shape[-1])
        cell = self.alpha / table.size
        row = self.alpha / table.shape[0]
        rows = gammaln(row) - gammaln(row + table.sum(axis=1))
        return float(rows.sum() + (gammaln(cell + table) - gammaln(cell)).sum())


class Families:
    """The scores of variables with any parents, each computed once.

    Rows in which one of a family is missing do not count for it, and the others count for them: means over
    the rows that there are (Bodewes and Scutari 2021).

    Args:
        x: a row of labels each, NaN where not observed.
        weight: of the rows.
        sizes: how many labels each column has.
        score: of a table of counts.
    """

    def __init__(
        self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int], score: AbstractScore
    ) -> None:
        self.x, self.weight, self.sizes, self.score = x, weight, tuple(sizes), score
        self._missing = np.isnan(x)
        self._holes = np.asarray(self._missing.any(axis=0))
        self._found: dict[tuple[int, frozenset[int]], float] = {}

    def counts(self, columns: Sequence[int]) -> np.ndarray:
        """The weight of rows in each cell of a table over some columns."""
        if not self._holes[list(columns)].any():
            return complete_counts(self.x, self.weight, self.sizes, columns)
        seen = ~self._missing[:, list(columns)].any(axis=1)
        counts = complete_counts(self.x[seen], self.weight[seen], self.sizes, columns)
        total = counts.sum()
        return counts * (self.weight.sum() / total) if total > 0 else counts

    def __call__(self, v: int, parents: frozenset[int]) -> float:
        """The score of variable `v` with these parents."""
        known = self._found.get((v, parents))
        if known is None:
            columns = [*sorted(parents), v]
            small = math.prod(self.sizes[c] for c in columns) <= _LARGEST
            known = self.score(self.counts(columns)) if small or not parents else -np.inf
            self._found[v, parents] = known
        return known

    def information(self, a: int, b: int) -> float:
        """The mutual information of two columns, in nats per unit of weight."""
        seen = ~self._missing[:, [a, b]].any(axis=1)
        weight = self.weight[seen]
        if not weight.sum() > 0:
            return 0.0
        x, y = self.x[seen][:, [a, b]].astype(int).T
        # of the pairs that occur, since there may be many labels
        pairs = np.unique(x * self.sizes[b] + y, return_inverse=True)[1]
        shares = (np.bincount(code, weight) / weight.sum() for code in (pairs, x, y))
        both, first, second = (float(xlogy(p, p).sum()) for p in shares)
        return both - first - second


class AbstractStructure(eqx.Module):
    """How the graph of a network is found from rows of labels."""

    @abc.abstractmethod
    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int]) -> DirectedGraph:
        """A graph over the columns 0, 1, 2, … of `x`.

        Args:
            x: a row of labels 0, 1, 2, … each, NaN where not observed.
            weight: of the rows.
            sizes: how many labels each column has.
        """


class ChowLiu(AbstractStructure):
    """The tree of the largest likelihood: that with the most mutual information along its edges.

    Chow and Liu (1968): the likelihood of a tree is the sum of the mutual informations of its edges and
    what does not depend on the tree.  Arrows go away from the root.

    Attributes:
        root: the column where the tree begins.

    >>> x = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1.0]])
    >>> ChowLiu()(x, np.ones(4), [2, 2, 2]).edges[0]
    (0, 1)
    """

    root: int = eqx.field(static=True, default=0)

    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int]) -> DirectedGraph:
        families, n = Families(x, weight, sizes, BIC()), x.shape[1]
        if not 0 <= self.root < n:
            raise ValueError(
                f"The 'root' of ChowLiu must be a column, an int in the range [0, {n}). Got {self.root}."
            )
        near = np.full((n, n), -np.inf)
        for a, b in itertools.combinations(range(n), 2):
            near[a, b] = near[b, a] = families.information(a, b)
        # the nearest column joins next (Prim)
        inside, edges = [self.root], []
        while len(inside) < n:
            rest = [v for v in range(n) if v not in inside]
            place = np.unravel_index(np.argmax(near[np.ix_(inside, rest)]), (len(inside), len(rest)))
            edges.append((inside[place[0]], rest[place[1]]))
            inside.append(rest[place[1]])
        return DirectedGraph(range(n), edges)


class HillClimbing(AbstractStructure):
    """The graph that no change of one arrow improves: arrows are added, removed and turned, best first.

    At a summit it goes on with the change that costs least, to graphs that it has not seen (tabu search),
    and returns the best of all.

    Attributes:
        score: of a variable with its parents; None is `BDeu()`, the evidence of the graph.
        max_parents: of a variable.
        tabu: steps without a better graph before it stops.
        max_steps: in all.

    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(2, size=200)
    >>> x = np.stack([a, rng.integers(2, size=200), a ^ (rng.random(200) < 0.1)], axis=1)
    >>> sorted(map(sorted, HillClimbing()(x.astype(float), np.ones(200), [2, 2, 2]).edges))
    [[0, 2]]
    """

    score: AbstractScore | None = None
    max_parents: int = eqx.field(static=True, default=4)
    tabu: int = eqx.field(static=True, default=30)
    max_steps: int = eqx.field(static=True, default=10_000)

    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int]) -> DirectedGraph:
        score = BDeu() if self.score is None else self.score
        families, n = Families(x, weight, sizes, score), x.shape[1]
        parents = [frozenset[int]() for _ in range(n)]
        own = [families(v, parents[v]) for v in range(n)]
        best, best_parents, since = sum(own), list(parents), 0
        seen = {tuple(parents)}
        for _ in range(self.max_steps):
            moves = []
            below = _descendants(parents)
            for a, b in itertools.permutations(range(n), 2):
                if a in parents[b]:
                    without = families(b, parents[b] - {a}) - own[b]
                    moves.append((without, 0, a, b))
                    # turned it closes a cycle where another way leads from a to b
                    other = any(b in below[c] or b == c for c in range(n) if a in parents[c] and c != b)
                    if not other and len(parents[a]) < self.max_parents:
                        turned = without + families(a, parents[a] | {b}) - own[a]
                        moves.append((turned, 1, a, b))
                elif a not in below[b] and len(parents[b]) < self.max_parents:
                    moves.append((families(b, parents[b] | {a}) - own[b], 2, a, b))
            # the largest gain; of equal ones always the same
            for _gain, kind, a, b in sorted(moves, key=lambda move: (-move[0], *move[1:])):
                tried = list(parents)
                tried[b] = parents[b] | {a} if kind == 2 else parents[b] - {a}
                if kind == 1:
                    tried[a] = parents[a] | {b}
                if tuple(tried) not in seen:
                    break
            else:
                break
            parents = tried
            seen.add(tuple(parents))
            own = [families(v, parents[v]) for v in range(n)]
            # less than rounding is no improvement
            if sum(own) > best + 1e-9 * abs(best):
                best, best_parents, since = sum(own), list(parents), 0
            else:
                since += 1
                if since > self.tabu:
                    break
        return DirectedGraph(range(n), [(p, v) for v in range(n) for p in sorted(best_parents[v])])


def _descendants(parents: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """All to which arrows lead from each variable."""
    found: list[set[int]] = [set() for _ in parents]
    children = [[v for v, above in enumerate(parents) if u in above] for u in range(len(parents))]
    for u in range(len(parents)):
        left = list(children[u])
        while left:
            v = left.pop()
            if v not in found[u]:
                found[u].add(v)
                left += children[v]
    return [frozenset(below) for below in found]


def graph_score(graph: DirectedGraph, x: np.ndarray, sizes: Sequence[int], score: AbstractScore) -> float:
    """The score of a graph over the columns of `x`: the sum over its variables.

    >>> x = np.array([[0.0, 0.0], [1.0, 1.0]] * 20)
    >>> joined, apart = DirectedGraph(range(2), [(0, 1)]), DirectedGraph(range(2))
    >>> graph_score(joined, x, [2, 2], BDeu()) > graph_score(apart, x, [2, 2], BDeu())
    True
    """
    families = Families(x, np.ones(len(x)), sizes, score)
    return sum(families(v, frozenset(graph.parents(v))) for v in graph.nodes)
