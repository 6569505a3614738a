"""Graphs of variables: what is independent of what, and in which order variables are best eliminated.

Nodes are names or numbers.  Nothing here looks at a probability: a graph says which factors there are, and
so what any choice of them has in common.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

Node = Hashable


def _several(nodes: Any) -> tuple[Any, ...]:
    """One node or a collection of them, as a tuple; text is one node."""
    if isinstance(nodes, str) or not isinstance(nodes, Collection):
        return (nodes,)
    return tuple(nodes)


def _distinct(nodes: Iterable[Any], owner: str) -> tuple[Any, ...]:
    nodes = tuple(nodes)
    twice = [node for node, same in itertools.groupby(sorted(map(repr, nodes))) if len(list(same)) > 1]
    if twice:
        raise ValueError(f"The 'nodes' of {owner} must be distinct. Got {twice[0]} twice.")
    return nodes


def _check_known(owner: Any, nodes: Iterable[Any]) -> None:
    for node in nodes:
        if node not in owner.nodes:
            shown = ", ".join(map(repr, owner.nodes[:6])) + (", …" if len(owner.nodes) > 6 else "")
            raise ValueError(
                f"A node of {type(owner).__name__} must be one of {shown}. Got {node!r} instead."
            )


@dataclasses.dataclass(frozen=True)
class UndirectedGraph:
    """Nodes, and which of them are neighbours: those of a Markov network.

    Attributes:
        nodes: names or numbers.
        edges: pairs of nodes.

    >>> square = UndirectedGraph("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    >>> square.separated("a", "c", given=["b", "d"]), square.separated("a", "c", given="b")
    (True, False)
    """

    nodes: tuple[Any, ...]
    edges: tuple[tuple[Any, Any], ...] = ()

    def __init__(self, nodes: Iterable[Any], edges: Iterable[tuple[Any, Any]] = ()) -> None:
        object.__setattr__(self, "nodes", _distinct(nodes, "UndirectedGraph"))
        place = {node: i for i, node in enumerate(self.nodes)}
        found = set()
        for a, b in edges:
            _check_known(self, (a, b))
            if a == b:
                raise ValueError(f"An edge of UndirectedGraph must join two nodes. Got {a!r} with itself.")
            found.add(tuple(sorted((a, b), key=place.__getitem__)))
        ordered = sorted(found, key=lambda edge: (place[edge[0]], place[edge[1]]))
        object.__setattr__(self, "edges", tuple(ordered))

    @staticmethod
    def of_scopes(nodes: Iterable[Any], scopes: Iterable[Iterable[Any]]) -> UndirectedGraph:
        """The graph in which variables that share a factor are neighbours.

        >>> UndirectedGraph.of_scopes("abc", ["ab", "c"]).edges
        (('a', 'b'),)
        """
        pairs = {pair for scope in scopes for pair in itertools.combinations(tuple(scope), 2)}
        return UndirectedGraph(nodes, pairs)

    @functools.cached_property
    def _adjacent(self) -> dict[Any, set[Any]]:
        found: dict[Any, set[Any]] = {node: set() for node in self.nodes}
        for a, b in self.edges:
            found[a].add(b)
            found[b].add(a)
        return found

    def neighbours(self, node: Any) -> tuple[Any, ...]:
        """The nodes that an edge joins to `node`: its Markov blanket."""
        _check_known(self, (node,))
        return tuple(other for other in self.nodes if other in self._adjacent[node])

    def separated(self, a: Any, b: Any, given: Any = ()) -> bool:
        """Whether every path from `a` to `b` has a node of `given`: they are independent given it."""
        return not self.reached(a, given) & set(_several(b))

    def reached(self, start: Any, given: Any = ()) -> frozenset[Any]:
        """The nodes that a path without nodes of `given` leads to."""
        start, blocked = _several(start), set(_several(given))
        _check_known(self, (*start, *blocked))
        found = {node for node in start if node not in blocked}
        left = list(found)
        while left:
            for other in self._adjacent[left.pop()] - found - blocked:
                found.add(other)
                left.append(other)
        return frozenset(found)

    def cliques(self) -> list[tuple[Any, ...]]:
        """All maximal sets of nodes that are neighbours of each other (Bron and Kerbosch 1973).

        >>> UndirectedGraph("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")]).cliques()
        [('a', 'b', 'c'), ('c', 'd')]
        """
        place = {node: i for i, node in enumerate(self.nodes)}
        near, found = self._adjacent, []
        # a clique so far, who may join it, and who was tried with it before
        stack: list[tuple[list[Any], set[Any], set[Any]]] = [([], set(self.nodes), set())]
        while stack:
            clique, free, tried = stack.pop()
            if not free and not tried:
                found.append(tuple(sorted(clique, key=place.__getitem__)))
                continue
            pivot = max(free | tried, key=lambda node: (len(near[node] & free), -place[node]))
            for node in sorted(free - near[pivot], key=place.__getitem__):
                stack.append(([*clique, node], free & near[node], tried & near[node]))
                free, tried = free - {node}, tried | {node}
        return sorted(found, key=lambda clique: [place[node] for node in clique])

    def triangulate(self, sizes: Mapping[Any, int] | None = None) -> Triangulation:
        """An order of elimination, with the edges that it adds, so that no cycle is without a chord.

        The next node is one that adds the fewest edges (min-fill), and of these one whose clique has the
        fewest states (min-weight).

        Args:
            sizes: how many states each node has; two where nothing is said.
        """
        place = {node: i for i, node in enumerate(self.nodes)}
        weight = {node: math.log(2 if sizes is None else max(sizes[node], 1)) for node in self.nodes}
        near = {node: set(others) for node, others in self._adjacent.items()}

        def fill(node: Any) -> int:
            own = near[node]
            return (len(own) * (len(own) - 1) - sum(len(near[other] & own) for other in own)) // 2

        def cost(node: Any) -> float:
            return weight[node] + sum(weight[other] for other in near[node])

        fills = {node: fill(node) for node in self.nodes}
        order, cliques, added = [], [], []
        while near:
            node = min(near, key=lambda v: (fills[v], cost(v), place[v]))
            own = near.pop(node)
            order.append(node)
            clique = frozenset(own | {node})
            if not any(clique <= other for other in cliques):
                cliques.append(clique)
            touched = set(own)
            for other in own:
                near[other].discard(node)
            for a, b in itertools.combinations(sorted(own, key=place.__getitem__), 2):
                if b not in near[a]:
                    near[a].add(b)
                    near[b].add(a)
                    added.append((a, b))
                    touched |= near[a] & near[b]
            for other in own:
                touched |= near[other]
            for other in touched & near.keys():
                fills[other] = fill(other)
        sets = [tuple(sorted(clique, key=place.__getitem__)) for clique in cliques]
        return Triangulation(tuple(order), tuple(sets), tuple(added))

    def is_chordal(self) -> bool:
        """Whether every cycle of four or more nodes has a chord, so that elimination can add no edge."""
        return not self.triangulate().added


@dataclasses.dataclass(frozen=True)
class Triangulation:
    """What the elimination of all nodes of a graph makes of it.

    Attributes:
        order: in which nodes are eliminated.
        cliques: the maximal sets of nodes that are neighbours then.
        added: the edges that were added (fill-in).
    """

    order: tuple[Any, ...]
    cliques: tuple[tuple[Any, ...], ...]
    added: tuple[tuple[Any, Any], ...]

    @property
    def width(self) -> int:
        """The size of the largest clique less one: at least the tree width of the graph."""
        return max(map(len, self.cliques), default=1) - 1

    def join(self) -> list[tuple[int, int]]:
        """Pairs of cliques that are neighbours in a tree with running intersection (junction tree).

        It is the tree in which neighbours share the most nodes: a node is then in the cliques of one
        connected part of it.  Parts of the graph that share nothing are trees of their own.

        >>> graph = UndirectedGraph("abcd", [("a", "b"), ("b", "c"), ("c", "d")])
        >>> found = graph.triangulate()
        >>> found.cliques, found.join()
        ((('a', 'b'), ('b', 'c'), ('c', 'd')), [(0, 1), (1, 2)])
        """
        sets = [frozenset(clique) for clique in self.cliques]
        pairs = [
            (-len(sets[i] & sets[j]), i, j)
            for i, j in itertools.combinations(range(len(sets)), 2)
            if sets[i] & sets[j]
        ]
        root = list(range(len(sets)))

        def find(i: int) -> int:
            while root[i] != i:
                root[i] = root[root[i]]
                i = root[i]
            return i

        found = []
        for _, i, j in sorted(pairs):
            a, b = find(i), find(j)
            if a != b:
                root[b] = a
                found.append((i, j))
        return found


@dataclasses.dataclass(frozen=True)
class DirectedGraph:
    """Nodes with arrows between them and no cycle: those of a Bayesian network.

    Attributes:
        nodes: names or numbers.
        edges: pairs (parent, child).

    >>> rain = DirectedGraph(["rain", "sprinkler", "wet"], [("rain", "wet"), ("sprinkler", "wet")])
    >>> rain.separated("rain", "sprinkler"), rain.separated("rain", "sprinkler", given="wet")
    (True, False)
    >>> DirectedGraph("ab", [("a", "b"), ("b", "a")])
    Traceback (most recent call last):
    ValueError: The edges of DirectedGraph must have no cycle. Got 'a' → 'b' → 'a'.
    """

    nodes: tuple[Any, ...]
    edges: tuple[tuple[Any, Any], ...] = ()

    def __init__(self, nodes: Iterable[Any], edges: Iterable[tuple[Any, Any]] = ()) -> None:
        object.__setattr__(self, "nodes", _distinct(nodes, "DirectedGraph"))
        edges = tuple(dict.fromkeys((a, b) for a, b in edges))
        for edge in edges:
            _check_known(self, edge)
        object.__setattr__(self, "edges", edges)
        cycle = self._cycle()
        if cycle:
            shown = " → ".join(map(repr, cycle))
            raise ValueError(f"The edges of DirectedGraph must have no cycle. Got {shown}.")

    @functools.cached_property
    def _above(self) -> dict[Any, tuple[Any, ...]]:
        found: dict[Any, list[Any]] = {node: [] for node in self.nodes}
        for a, b in self.edges:
            found[b].append(a)
        return {node: tuple(parents) for node, parents in found.items()}

    @functools.cached_property
    def _below(self) -> dict[Any, tuple[Any, ...]]:
        found: dict[Any, list[Any]] = {node: [] for node in self.nodes}
        for a, b in self.edges:
            found[a].append(b)
        return {node: tuple(children) for node, children in found.items()}

    @functools.cached_property
    def order(self) -> tuple[Any, ...]:
        """The nodes with parents before their children (topological order)."""
        waiting = {node: len(self._above[node]) for node in self.nodes}
        ready = [node for node in reversed(self.nodes) if not waiting[node]]
        found = []
        while ready:
            node = ready.pop()
            found.append(node)
            for child in reversed(self._below[node]):
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        return tuple(found)

    def _cycle(self) -> list[Any]:
        """The nodes of a cycle, the first again at the end; empty if there is none."""
        rest = set(self.nodes) - set(self.order)
        if not rest:
            return []
        # every node that is left has a parent that is left: going up comes back
        path = [next(node for node in self.nodes if node in rest)]
        while path[-1] not in path[:-1]:
            path.append(next(node for node in self._above[path[-1]] if node in rest))
        return path[path.index(path[-1]) :][::-1]

    def parents(self, node: Any) -> tuple[Any, ...]:
        """Where the arrows to `node` come from, in the order of `edges`."""
        _check_known(self, (node,))
        return self._above[node]

    def children(self, node: Any) -> tuple[Any, ...]:
        """Where the arrows of `node` go."""
        _check_known(self, (node,))
        return self._below[node]

    def ancestors(self, nodes: Any) -> frozenset[Any]:
        """All from which arrows lead to one of `nodes`, these not counted."""
        return self._closure(_several(nodes), self._above)

    def descendants(self, nodes: Any) -> frozenset[Any]:
        """All to which arrows lead from one of `nodes`, these not counted."""
        return self._closure(_several(nodes), self._below)

    def _closure(self, nodes: tuple[Any, ...], near: dict[Any, tuple[Any, ...]]) -> frozenset[Any]:
        _check_known(self, nodes)
        found, left = set(), list(nodes)
        while left:
            for other in near[left.pop()]:
                if other not in found:
                    found.add(other)
                    left.append(other)
        return frozenset(found - set(nodes))

    def reached(self, start: Any, given: Any = ()) -> frozenset[Any]:
        """The nodes that depend on `start` when `given` is observed (Bayes ball; Shachter 1998).

        A ball passes a chain and a common cause unless the middle is observed, and a common effect only if
        it, or what comes of it, is observed.
        """
        start, seen = _several(start), set(_several(given))
        _check_known(self, (*start, *seen))
        opened = self.ancestors(tuple(seen)) | seen
        # a ball that comes to a node from a child, or from a parent
        left = [(node, True) for node in start]
        visited, found = set(), set()
        while left:
            node, from_child = left.pop()
            if (node, from_child) in visited:
                continue
            visited.add((node, from_child))
            if node not in seen:
                found.add(node)
                left += [(child, False) for child in self._below[node]]
            if (from_child and node not in seen) or (not from_child and node in opened):
                left += [(parent, True) for parent in self._above[node]]
        return frozenset(found)

    def separated(self, a: Any, b: Any, given: Any = ()) -> bool:
        """Whether `a` and `b` are independent given `given` whatever the tables are (d-separation)."""
        _check_known(self, _several(b))
        return not self.reached(a, given) & set(_several(b))

    def moralise(self) -> UndirectedGraph:
        """The undirected graph in which the parents of a node are neighbours too.

        >>> DirectedGraph("abc", [("a", "c"), ("b", "c")]).moralise().edges
        (('a', 'b'), ('a', 'c'), ('b', 'c'))
        """
        return UndirectedGraph.of_scopes(
            self.nodes, ((*parents, node) for node, parents in self._above.items())
        )

    def markov_blanket(self, node: Any) -> tuple[Any, ...]:
        """Parents, children and their other parents: given these, a node is independent of all others."""
        return self.moralise().neighbours(node)

    def layers(self) -> list[list[Any]]:
        """Nodes by the length of the longest path to them, for drawing: arrows go to later layers."""
        depth: dict[Any, int] = {}
        for node in self.order:
            depth[node] = 1 + max((depth[parent] for parent in self._above[node]), default=-1)
        found: list[list[Any]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
        for node in self.order:
            found[depth[node]].append(node)
        # neighbours near each other: by the middle of the parents, then of the children
        for sweep in range(4):
            down = sweep % 2 == 0
            near = self._above if down else self._below
            place = {node: i / max(len(layer), 1) for layer in found for i, node in enumerate(layer)}
            for layer in found:
                middle = {
                    node: sum(place[o] for o in near[node]) / len(near[node]) if near[node] else place[node]
                    for node in layer
                }
                layer.sort(key=middle.__getitem__)
        return found
