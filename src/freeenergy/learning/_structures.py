"""Which variables depend on which: graphs that explain rows, by a score and a search."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from scipy.special import xlogy

from ..inference import DirectedGraph
from ..inference._mixed_rows import family_moments
from ..inference._table_rows import complete_counts
from ._network_em import Moments, NetworkShape, fit_network
from ._scores import BIC, AbstractNumberScore, AbstractScore, BDeu

# cells of a table that a search looks at
_LARGEST = 2**22
# imagined rows that keep a label possible, and a number from being certain, while the graph is not known
_IMAGINED = 1e-3


class Families:
    """The scores of variables with any parents, each computed once.

    Rows in which one of a family is missing do not count for it, and the others count for them: means over
    the rows that there are (Bodewes and Scutari 2021).

    Numbers are standardised; they are no parents of labels.

    Args:
        x: a row of labels and numbers each, NaN where not observed.
        weight: of the rows.
        sizes: how many labels each column has; None for numbers.
        score: of a table of counts, and of moments of numbers.
        spread: where rows are expected ones, the covariance of the numbers of each, in their order in `x`.
    """

    def __init__(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        sizes: Sequence[int | None],
        score: AbstractScore,
        spread: np.ndarray | None = None,
    ) -> None:
        self.weight, self.sizes, self.score = weight, tuple(sizes), score
        self.numbers = tuple(v for v, size in enumerate(self.sizes) if size is None)
        if self.numbers and not isinstance(score, AbstractNumberScore):
            raise ValueError(
                f"The score of a graph with numbers must be an AbstractNumberScore. Got {score!r} instead."
            )
        self._missing = np.isnan(x)
        self._holes = np.asarray(self._missing.any(axis=0))
        self.x, self.spread = standardised(x, weight, self.numbers, spread)
        self._found: dict[tuple[int, frozenset[int]], float] = {}

    def _complete(self, columns: Sequence[int]) -> tuple[np.ndarray, float]:
        """Rows in which nothing of some columns is missing, and what they are to be multiplied by."""
        seen = np.asarray(~self._missing[:, list(columns)].any(axis=1))
        total = self.weight[seen].sum()
        return seen, float(self.weight.sum() / total) if total > 0 else 1.0

    def counts(self, columns: Sequence[int]) -> np.ndarray:
        """The weight of rows in each cell of a table over some columns of labels."""
        sizes = [size or 0 for size in self.sizes]
        if not self._holes[list(columns)].any():
            return complete_counts(self.x, self.weight, sizes, columns)
        seen, share = self._complete(columns)
        return share * complete_counts(self.x[seen], self.weight[seen], sizes, columns)

    def moments(self, labels: Sequence[int], numbers: Sequence[int]) -> Moments:
        """Σ w, Σ w z and Σ w z zᵀ of some columns of numbers, for each joint state of some of labels."""
        columns, spread = [*labels, *numbers], None
        if self.spread is not None:
            chosen = [self.numbers.index(c) for c in numbers]
            spread = self.spread[:, chosen][:, :, chosen]
        if not self._holes[columns].any():
            return family_moments(self.x, self.weight, self.sizes, labels, numbers, spread)
        seen, share = self._complete(columns)
        own = None if spread is None else spread[seen]
        found = family_moments(self.x[seen], self.weight[seen], self.sizes, labels, numbers, own)
        return share * found[0], share * found[1], share * found[2]

    def allowed(self, parent: int, child: int) -> bool:
        """Whether an arrow may lead from one column to another."""
        return self.sizes[parent] is not None or self.sizes[child] is None

    def __call__(self, v: int, parents: frozenset[int]) -> float:
        """The score of variable `v` with these parents."""
        known = self._found.get((v, parents))
        if known is None:
            known = self._found[v, parents] = self._scored(v, sorted(parents))
        return known

    def _scored(self, v: int, parents: list[int]) -> float:
        labels = [c for c in (*parents, v) if self.sizes[c] is not None]
        numbers = [c for c in (*parents, v) if self.sizes[c] is None]
        cells = math.prod(self.sizes[c] or 1 for c in labels)
        if parents and cells * max(len(numbers), 1) ** 2 > _LARGEST:
            return -np.inf
        if self.sizes[v] is not None:
            return self.score(self.counts(labels)) if not numbers else -np.inf
        assert isinstance(self.score, AbstractNumberScore)
        return self.score.of_numbers(self.moments(labels, numbers))

    def information(self, a: int, b: int) -> float:
        """The mutual information of two columns, in nats per unit of weight; of numbers as normal ones."""
        if a in self.numbers and b in self.numbers:
            weight, first, second = self.moments((), (a, b))
            if not weight > 0:
                return 0.0
            gap = second / weight - np.outer(first, first) / weight**2
            with np.errstate(divide="ignore", invalid="ignore"):
                share = gap[0, 1] ** 2 / (gap[0, 0] * gap[1, 1])
            return float(-0.5 * np.log1p(-min(np.nan_to_num(share), 1 - 1e-12)))
        seen = ~self._missing[:, [a, b]].any(axis=1)
        weight = self.weight[seen]
        if not weight.sum() > 0:
            return 0.0
        x, y = self.x[seen][:, [a, b]].astype(int).T
        # of the pairs that occur, since there may be many labels
        pairs = np.unique(x * (self.sizes[b] or 0) + y, return_inverse=True)[1]
        shares = (np.bincount(code, weight) / weight.sum() for code in (pairs, x, y))
        both, first, second = (float(xlogy(p, p).sum()) for p in shares)
        return both - first - second


def standardised(
    x: np.ndarray, weight: np.ndarray, numbers: Sequence[int], spread: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows whose numbers have mean zero and variance one, and the covariances of each in these units."""
    found, scales = x.copy(), np.ones(len(numbers))
    for i, column in enumerate(numbers):
        seen = ~np.isnan(x[:, column])
        own, w = x[seen, column], weight[seen]
        total = w.sum()
        mean = w @ own / total if total > 0 else 0.0
        square = w @ (own - mean) ** 2
        square += 0.0 if spread is None else w @ spread[seen, i, i]
        scales[i] = np.sqrt(square / total) if square > 0 else 1.0
        found[:, column] = (x[:, column] - mean) / scales[i]
    return found, None if spread is None else spread / (scales[:, None] * scales[None])


class AbstractStructure(eqx.Module):
    """How the graph of a network is found from rows of labels and numbers."""

    @abc.abstractmethod
    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int | None]) -> DirectedGraph:
        """A graph over the columns 0, 1, 2, … of `x`.

        Args:
            x: a row of labels 0, 1, 2, … and numbers each, NaN where not observed.
            weight: of the rows.
            sizes: how many labels each column has; None for numbers.
        """


class ChowLiu(AbstractStructure):
    """The tree of the largest likelihood: that with the most mutual information along its edges.

    Chow and Liu (1968): the likelihood of a tree is the sum of the mutual informations of its edges and
    what does not depend on the tree.  Arrows go away from the root.  Columns are all labels or all numbers.

    Attributes:
        root: the column where the tree begins.

    >>> x = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1.0]])
    >>> ChowLiu()(x, np.ones(4), [2, 2, 2]).edges[0]
    (0, 1)
    """

    root: int = eqx.field(static=True, default=0)

    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int | None]) -> DirectedGraph:
        families, n = Families(x, weight, sizes, BIC()), x.shape[1]
        if 0 < len(families.numbers) < n:
            raise ValueError(
                "ChowLiu needs columns of labels alone, or of numbers alone. Got both: use HillClimbing."
            )
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

    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int | None]) -> DirectedGraph:
        return self.climb(Families(x, weight, sizes, BDeu() if self.score is None else self.score))

    def climb(self, families: Families) -> DirectedGraph:
        """The graph for scores that are known."""
        n = len(families.sizes)
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
                    if not other and len(parents[a]) < self.max_parents and families.allowed(b, a):
                        turned = without + families(a, parents[a] | {b}) - own[a]
                        moves.append((turned, 1, a, b))
                elif a not in below[b] and len(parents[b]) < self.max_parents and families.allowed(a, b):
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


def graph_score(
    graph: DirectedGraph, x: np.ndarray, sizes: Sequence[int | None], score: AbstractScore
) -> float:
    """The score of a graph over the columns of `x`: the sum over its variables.

    >>> x = np.array([[0.0, 0.0], [1.0, 1.0]] * 20)
    >>> joined, apart = DirectedGraph(range(2), [(0, 1)]), DirectedGraph(range(2))
    >>> graph_score(joined, x, [2, 2], BDeu()) > graph_score(apart, x, [2, 2], BDeu())
    True
    """
    return _total(graph, Families(x, np.ones(len(x)), sizes, score))


def _total(graph: DirectedGraph, families: Families) -> float:
    return sum(families(v, frozenset(graph.parents(v))) for v in graph.nodes)


class StructuralEM(AbstractStructure):
    """The graph for rows with missing entries: a search and EM in turn (Friedman 1997).

        G ← the best graph for the statistics that (G, θ) expects of all rows,   θ ← its parameters by EM,

    until the graph stays.  With `BIC` the score log p(what is observed) − ½ k log N of the graph and its
    parameters never falls.  What is missing of a row is summed over all joint states of its labels.

    Attributes:
        search: how a graph is climbed to; None is `HillClimbing(BIC())`.
        max_rounds: the most graphs.
        max_iter, tol: of EM for each graph; `tol` is of log p per row.

    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(2, size=300)
    >>> x = np.stack([a, rng.integers(2, size=300), a ^ (rng.random(300) < 0.1)], axis=1).astype(float)
    >>> x[rng.random(x.shape) < 0.2] = np.nan
    >>> sorted(map(sorted, StructuralEM()(x, np.ones(300), [2, 2, 2]).edges))
    [[0, 2]]
    """

    search: HillClimbing | None = None
    max_rounds: int = eqx.field(static=True, default=20)
    max_iter: int = eqx.field(static=True, default=100)
    tol: float = eqx.field(static=True, default=1e-6)

    def __call__(self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int | None]) -> DirectedGraph:
        return self.trace(x, weight, sizes)[-1][0]

    def trace(
        self, x: np.ndarray, weight: np.ndarray, sizes: Sequence[int | None]
    ) -> list[tuple[DirectedGraph, float]]:
        """Each graph on the way, and log p of what is observed less ½ log N for each of its parameters."""
        search = HillClimbing(BIC()) if self.search is None else self.search
        score = BDeu() if search.score is None else search.score
        numbers = tuple(v for v, size in enumerate(sizes) if size is None)
        labels = tuple(v for v, size in enumerate(sizes) if size is not None)
        x = standardised(x, weight, numbers)[0]
        graph, start, found = DirectedGraph(range(x.shape[1])), None, []
        for _ in range(self.max_rounds):
            shape = NetworkShape(graph, sizes)
            fitted = fit_network(
                shape, x, weight, alpha=_IMAGINED, max_iter=self.max_iter, tol=self.tol, start=start
            )
            nats = float(weight @ fitted.rows.evidence(x))
            found.append((graph, nats - 0.5 * shape.free * np.log(max(weight.sum(), 1.0))))
            whole = fitted.rows.completed(x, weight, labels)
            order = [fitted.rows.numbers.index(v) for v in numbers]
            spread = whole.spread[:, order][:, :, order] if numbers else None
            families = Families(whole.x, whole.weight, sizes, score, spread)
            better = search.climb(families)
            if _total(better, families) <= _total(graph, families) + 1e-9 * abs(nats):
                break
            graph = better
            # where EM goes on from: the largest likelihood of the new graph for what was expected
            new = NetworkShape(graph, sizes)
            spread = (
                None
                if spread is None
                else spread[:, _places(numbers, new.numbers)][:, :, _places(numbers, new.numbers)]
            )
            start = new.maximised(new.statistics(whole.x, whole.weight, spread), _IMAGINED)
        return found


def _places(columns: Sequence[int], wanted: Sequence[int]) -> list[int]:
    return [columns.index(c) for c in wanted]
