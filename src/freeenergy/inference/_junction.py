"""Junction trees: all marginals of a product of factors at once, its sum, its maximum, and exact draws."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._factors import (
    LARGEST_TABLE,
    Factor,
    eliminate,
    log_ratio,
    log_sum,
    namespace,
    refuse_large,
    sizes_of,
)
from ._graphs import UndirectedGraph


@dataclasses.dataclass(frozen=True)
class JunctionTree:
    """Cliques of variables in a tree with running intersection (also known as a clique tree, join tree).

        P(x) = Π_cliques Ψ(x_C) / Π_separators φ(x_S)

    It depends on which variables factors have, and not on what they say: one tree serves all rows and all
    parameters.

    Attributes:
        sizes: (variable, how many states it has), one pair a variable.
        scopes: the variables of each factor.
        cliques: the variables of each clique, a clique before those that hang on it.
        above: the clique on which each hangs, −1 for the root of a tree.
        homes: in which clique each factor is.

    >>> tree = JunctionTree.of({"a": 2, "b": 2, "c": 2}, ["a", "ab", "bc"])
    >>> tree.cliques, tree.width
    ((('a', 'b'), ('b', 'c')), 1)
    """

    sizes: tuple[tuple[Any, int], ...]
    scopes: tuple[tuple[Any, ...], ...]
    cliques: tuple[tuple[Any, ...], ...]
    above: tuple[int, ...]
    homes: tuple[int, ...]

    @staticmethod
    def of(
        sizes: Mapping[Any, int], scopes: Iterable[Iterable[Any]], *, largest: int = LARGEST_TABLE
    ) -> JunctionTree:
        """The tree for factors of these scopes, by min-fill.

        Args:
            sizes: how many states each variable has.
            scopes: the variables of each factor.
            largest: joint states of a clique that are not refused.
        """
        scopes = tuple(tuple(scope) for scope in scopes)
        found = UndirectedGraph.of_scopes(sizes, scopes).triangulate(sizes)
        for clique in sorted(found.cliques, key=len, reverse=True):
            refuse_large(clique, sizes, largest)
        near: dict[int, list[int]] = {i: [] for i in range(len(found.cliques))}
        for i, j in found.join():
            near[i].append(j)
            near[j].append(i)
        order, above, place = [], [], {}
        for root in near:
            if root in place:
                continue
            left = [(root, -1)]
            while left:
                clique, parent = left.pop()
                place[clique] = len(order)
                order.append(clique)
                above.append(-1 if parent < 0 else place[parent])
                left += [(other, clique) for other in reversed(near[clique]) if other not in place]
        cliques = tuple(found.cliques[i] for i in order)
        sets = [set(clique) for clique in cliques]
        homes = tuple(
            min(
                (i for i, own in enumerate(sets) if own.issuperset(scope)),
                key=lambda i: len(sets[i]),
                default=0,
            )
            for scope in scopes
        )
        return JunctionTree(tuple(sizes.items()), scopes, cliques, tuple(above), homes)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables, in the order of `sizes`."""
        return tuple(variable for variable, _ in self.sizes)

    @property
    def width(self) -> int:
        """The size of the largest clique less one."""
        return max(map(len, self.cliques), default=1) - 1

    @functools.cached_property
    def separators(self) -> tuple[tuple[Any, ...], ...]:
        """What each clique shares with the one above it."""
        return tuple(
            () if up < 0 else tuple(v for v in clique if v in self.cliques[up])
            for clique, up in zip(self.cliques, self.above, strict=True)
        )

    @functools.cached_property
    def largest(self) -> int:
        """Joint states of the largest clique."""
        size = dict(self.sizes)
        return max((int(np.prod([size[v] for v in clique])) for clique in self.cliques), default=1)

    @functools.cached_property
    def _nearest(self) -> dict[Any, int]:
        """The smallest clique of each variable."""
        found: dict[Any, int] = {}
        for i, clique in sorted(enumerate(self.cliques), key=lambda pair: -len(pair[1])):
            for variable in clique:
                found[variable] = i
        return found

    def potentials(self, factors: Sequence[Factor]) -> list[Factor]:
        """log Ψ of each clique: the product of the factors in it, those on single variables included."""
        size = dict(self.sizes)
        kind = next((f.logs for f in factors if isinstance(f.logs, jax.Array)), np.zeros(0))
        xp = namespace(kind)
        found = [xp.zeros([size[v] for v in clique]) for clique in self.cliques]
        known = list(zip(self.scopes, self.homes, strict=True))
        for number, factor in enumerate(factors):
            if number < len(known) and known[number][0] == factor.scope:
                home = known[number][1]
            elif len(factor.scope) == 1:
                home = self._nearest[factor.scope[0]]
            else:
                home = next(i for i, c in enumerate(self.cliques) if set(c).issuperset(factor.scope))
            found[home] = found[home] + factor.over(self.cliques[home])
        return [Factor(clique, logs) for clique, logs in zip(self.cliques, found, strict=True)]

    def collect(
        self, factors: Sequence[Factor], *, most: bool = False
    ) -> tuple[list[Factor], list[Factor]]:
        """What each clique knows with all that hangs on it, and what it tells the one above.

        Args:
            factors: in the order of `scopes`, and any of single variables after them, such as what is
                observed.
            most: whether other variables are maximised instead of summed (max-product).
        """
        found = self.potentials(factors)
        told: list[Any] = [None] * len(found)
        for i in reversed(range(len(found))):
            rest = [v for v in self.cliques[i] if v not in self.separators[i]]
            told[i] = found[i].max_out(rest) if most else found[i].sum_out(rest)
            up = self.above[i]
            if up >= 0:
                found[up] = Factor(self.cliques[up], found[up].logs + told[i].over(self.cliques[up]))
        return found, told

    def log_partition(self, factors: Sequence[Factor]) -> Any:
        """log Σ Π φ over all states of all variables."""
        return self._total(self.collect(factors)[1])

    def _total(self, told: Sequence[Factor]) -> Any:
        roots = [told[i].logs for i, up in enumerate(self.above) if up < 0]
        return functools.reduce(lambda a, b: a + b, roots)

    def calibrate(self, factors: Sequence[Factor]) -> CliqueBeliefs:
        """The marginals of all cliques, by messages to the root and back (belief propagation).

        Args:
            factors: in the order of `scopes`, and any of single variables after them.
        """
        found, told = self.collect(factors)
        for i, up in enumerate(self.above):
            if up < 0:
                found[i] = Factor(found[i].scope, found[i].normalise()[0].logs)
                continue
            shared = found[up].marginal(self.separators[i])
            ratio = Factor(shared.scope, log_ratio(shared.logs, told[i].over(shared.scope)))
            found[i] = Factor(found[i].scope, found[i].logs + ratio.over(found[i].scope))
        return CliqueBeliefs(self, tuple(found), self._total(told))

    def maximise(self, factors: Sequence[Factor]) -> tuple[dict[Any, Any], Any]:
        """The most probable joint state (MAP, MPE), and log Π φ there."""
        found, told = self.collect(factors, most=True)
        value = self._total(told)
        chosen = self._descend(found, lambda logs, i: namespace(logs).argmax(logs, axis=-1), value.shape)
        return chosen, value

    def sample(self, factors: Sequence[Factor], rows: tuple[int, ...], draw: Draw) -> dict[Any, Any]:
        """Independent draws of all variables from Π φ / Z.

        Args:
            factors: in the order of `scopes`, and any of single variables after them.
            rows: the axes of the draws: those of rows if the factors have any, else any.
            draw: `draw(logs, i)` is a state along the last axis for each row; `i` numbers the questions.
        """
        return self._descend(self.collect(factors)[0], draw, rows)

    def _descend(self, found: Sequence[Factor], choose: Draw, rows: tuple[int, ...]) -> dict[Any, Any]:
        """States of all variables, chosen clique by clique given those above."""
        size, states = dict(self.sizes), {}
        for i, (clique, shared) in enumerate(zip(self.cliques, self.separators, strict=True)):
            rest = tuple(v for v in clique if v not in shared)
            if not rest:
                continue
            moved = found[i].over((*shared, *rest))
            xp, lead = namespace(moved), found[i].rows
            table = moved.reshape(*moved.shape[:lead], -1, int(np.prod([size[v] for v in rest])))
            place: Any = 0
            for variable in shared:
                place = place * size[variable] + states[variable]
            if not shared:
                logs = table[..., 0, :]
                logs = xp.broadcast_to(logs, (*rows, logs.shape[-1])) if rows else logs
            elif lead == 0:
                logs = table[place]
            else:
                logs = xp.take_along_axis(table, place[..., None, None], axis=-2)[..., 0, :]
            chosen = choose(logs, i)
            for variable in reversed(rest):
                states[variable] = chosen % size[variable]
                chosen = chosen // size[variable]
        return {variable: states[variable] for variable, _ in self.sizes}


Draw = Callable[[Any, int], Any]
"""`draw(logs, i)` chooses a state along the last axis."""


def draw_by_key(key: Any, questions: int) -> Draw:
    """Draws of one event in a program, of all numbers of which one key is the seed."""
    levels = jax.random.uniform(key, (questions,))
    return lambda logs, i: _inverted(logs, levels[i])


def draw_on_host(rng: np.random.Generator) -> Draw:
    """Draws of many rows on the host."""
    return lambda logs, i: _inverted(logs, rng.random(logs.shape[:-1]))


def _inverted(logs: Any, level: Any) -> Any:
    """The state below which lies this share of probability: the inverse of the distribution function."""
    xp = namespace(logs)
    high = xp.max(logs, axis=-1, keepdims=True)
    below = xp.cumsum(xp.exp(logs - xp.where(high > -np.inf, high, 0)), axis=-1)
    # a level is less than one, so that the state has some probability; rounding may say otherwise
    reached = xp.sum(below <= level[..., None] * below[..., -1:], axis=-1)
    return xp.minimum(reached, logs.shape[-1] - 1)


@dataclasses.dataclass(frozen=True)
class CliqueBeliefs:
    """What is known of all variables: the marginal of each clique of a junction tree.

    Attributes:
        tree: the cliques.
        beliefs: log P(x_C) of each; zero probability everywhere where what is given cannot occur.
        log_evidence: log Σ Π φ.

    >>> tree = JunctionTree.of({"a": 2, "b": 2}, ["a", "ab"])
    >>> factors = [Factor("a", np.log([0.5, 0.5])), Factor("ab", np.log([[0.9, 0.1], [0.3, 0.7]]))]
    >>> seen = Factor("b", np.array([-np.inf, 0.0]))
    >>> found = tree.calibrate([*factors, seen])
    >>> found.marginal("a").round(4).tolist(), round(float(np.exp(found.log_evidence)), 6)
    ([0.125, 0.875], 0.4)
    """

    tree: JunctionTree
    beliefs: tuple[Factor, ...]
    log_evidence: Any

    def marginal(self, variable: Any) -> Any:
        """P(x = k) of one variable, along the last axis."""
        return self._for_all_rows(self.beliefs[self.tree._nearest[variable]].marginal((variable,)))

    def marginals(self) -> dict[Any, Any]:
        """P(x = k) of each variable."""
        return {variable: self.marginal(variable) for variable in self.tree.variables}

    def joint(self, variables: Sequence[Any]) -> Any:
        """P of several variables, an axis each: of one clique at once, else by elimination."""
        variables = tuple(variables)
        for i in sorted(range(len(self.beliefs)), key=lambda i: len(self.tree.cliques[i])):
            if set(self.tree.cliques[i]).issuperset(variables):
                return self._for_all_rows(self.beliefs[i].marginal(variables))
        return self._for_all_rows(eliminate(self.conditionals(), variables))

    def _for_all_rows(self, factor: Factor) -> Any:
        """φ with an axis of rows, also where what differs between rows does not matter for it."""
        xp, table = namespace(factor.logs), factor.logs.shape[factor.rows :]
        return xp.broadcast_to(xp.exp(factor.logs), (*np.shape(self.log_evidence), *table))

    def conditionals(self) -> list[Factor]:
        """log P(x_C | x_S) of each clique given what it shares with the one above: their product is P."""
        found = []
        for belief, shared in zip(self.beliefs, self.tree.separators, strict=True):
            whole = (
                belief.marginal(shared).over(belief.scope) if shared else namespace(belief.logs).zeros(())
            )
            found.append(Factor(belief.scope, log_ratio(belief.logs, whole)))
        return found


@dataclasses.dataclass(frozen=True)
class LoopyBeliefs:
    """What messages along the edges of a factor graph agree on: exact on trees, else an approximation.

    Attributes:
        marginals: P(x = k) of each variable.
        log_evidence: log Σ Π φ by the free energy of Bethe.
        change: by how much a message changed at most, sweep by sweep.
        converged: whether that came below the tolerance.
    """

    marginals: dict[Any, np.ndarray]
    log_evidence: float
    change: np.ndarray
    converged: bool


def loopy_belief_propagation(
    factors: Sequence[Factor], *, max_iter: int = 200, tol: float = 1e-9, damping: float = 0.0
) -> LoopyBeliefs:
    """Marginals by messages between variables and factors until they agree (also known as sum-product).

    Each sweep sends every message; on a tree it ends with the exact answer.  With cycles it may end with
    another one, or not at all: `converged` and `change` tell, and `damping` often helps.

    Args:
        factors: NumPy tables without axes of rows.
        max_iter: most sweeps.
        tol: the change of probabilities in a message that counts as none.
        damping: the share of the old message, in logarithms, that stays.

    >>> pair = Factor("ab", np.log([[0.45, 0.05], [0.15, 0.35]]))
    >>> found = loopy_belief_propagation([pair])
    >>> found.marginals["b"].round(6).tolist(), found.converged
    ([0.6, 0.4], True)
    """
    if not 0 <= damping < 1:
        raise ValueError(
            "The 'damping' of loopy_belief_propagation must be a float in the range [0, 1). "
            f"Got {damping!r} instead."
        )
    sizes = sizes_of(factors)
    factors = [Factor(f.scope, np.asarray(f.logs, float)) for f in factors]
    edges = [(i, v) for i, f in enumerate(factors) for v in f.scope]
    at: dict[Any, list[int]] = {v: [i for i, other in edges if other == v] for v in sizes}
    down = {edge: np.full(sizes[edge[1]], -np.log(sizes[edge[1]])) for edge in edges}

    def to_factor(i: int, v: Any) -> np.ndarray:
        total = sum((down[j, v] for j in at[v] if j != i), np.zeros(sizes[v]))
        return log_ratio(total, log_sum(total, (0,)))

    changes: list[float] = []
    for _ in range(max_iter):
        new = {}
        for i, factor in enumerate(factors):
            up = {v: to_factor(i, v) for v in factor.scope}
            for v in factor.scope:
                whole = factor.logs
                for other in factor.scope:
                    if other != v:
                        whole = whole + Factor((other,), up[other]).over(factor.scope)
                message = Factor(factor.scope, whole).marginal((v,)).logs
                message = log_ratio(message, log_sum(message, (0,)))
                if damping:
                    message = (1 - damping) * message + damping * down[i, v]
                new[i, v] = message
        changes.append(
            max((float(np.abs(np.exp(new[e]) - np.exp(down[e])).max()) for e in edges), default=0.0)
        )
        down = new
        if changes[-1] <= tol:
            break
    marginals = {v: Factor((v,), sum((down[i, v] for i in at[v]), np.zeros(sizes[v]))) for v in sizes}
    probabilities = {v: factor.probabilities() for v, factor in marginals.items()}
    # Σ_i (log Z of factor i with the messages to it) + Σ_v (1 − degree …) as a sum of local normalisers
    log_z = 0.0
    for v in sizes:
        log_z += float(log_sum(marginals[v].logs, (0,)))
    for i, factor in enumerate(factors):
        whole = factor.logs
        for v in factor.scope:
            whole = whole + Factor((v,), to_factor(i, v)).over(factor.scope)
        log_z += float(log_sum(whole, tuple(range(whole.ndim))))
    for i, v in edges:
        log_z -= float(log_sum(to_factor(i, v) + down[i, v], (0,)))
    return LoopyBeliefs(probabilities, log_z, np.array(changes), bool(changes and changes[-1] <= tol))
