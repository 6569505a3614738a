"""Bayesian and Markov networks: products of small tables and conditional laws over a graph."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import AbstractSpace, Categories, log_probability, on_device
from ..distributions import Full, Gaussian
from ..inference import (
    DirectedGraph,
    Factor,
    FactorEnergy,
    JunctionTree,
    UndirectedGraph,
)
from ..inference._junction import draw_by_key
from ..inference._mixed_rows import LineTable, MixedRows
from ..inference._table_rows import TableRows
from ._base import AbstractEnergy, AbstractExactModel, AbstractRescalable
from ._network_beliefs import AbstractNetworkBeliefs, MixedBeliefs, NetworkBeliefs, place_of, value_of
from ._nodes import AbstractNode, GaussianNode, TableNode
from ._units import InUnits

# joint states of labels that a conditional Gaussian network goes through
_MOST_STATES = 4096


@functools.lru_cache(maxsize=256)
def _tree_of(sizes: tuple[int | None, ...], scopes: tuple[tuple[int, ...], ...]) -> JunctionTree:
    """The junction tree of the labels among some variables, by their numbers."""
    return JunctionTree.of({v: size for v, size in enumerate(sizes) if size is not None}, scopes)


def _refuse_impossible(given: Mapping[str, Any], nats: float) -> None:
    if not nats > -np.inf:
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise ValueError(f"What is given must be possible. Got {shown}, whose probability is zero.")


class AbstractNetwork(AbstractExactModel, AbstractEnergy):
    """What networks share: columns with names and labels, and answers by them."""

    names: eqx.AbstractVar[tuple[str, ...]]
    states: eqx.AbstractVar[tuple[tuple[str, ...], ...]]

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[int | None, ...]:
        """How many labels each variable can be; None for numbers."""

    @property
    @abc.abstractmethod
    def spaces(self) -> tuple[AbstractSpace, ...]:
        """What each variable can be."""

    @abc.abstractmethod
    def rows(self) -> TableRows:
        """The tables on the host, for many rows of labels."""

    @property
    @abc.abstractmethod
    def exact(self) -> bool:
        """Whether `log_prob` and `complete_sample` know what is missing exactly."""

    @abc.abstractmethod
    def posterior(self, given: Mapping[str, Any] | None = None) -> AbstractNetworkBeliefs:
        """What is known of all variables given the states of some, exactly.

        Args:
            given: the state of some variables by name, or by `names[i]`: `{"rain": "yes"}`.
        """

    def event(self, given: Mapping[str, Any]) -> np.ndarray:
        """What is given by name as one event, NaN for the rest and for what is given as None or NaN."""
        x = np.full(len(self.names), np.nan)
        for name, value in given.items():
            place = place_of(self.names, name)
            if value is not None and value == value:
                x[place] = value_of(self.names, self.states, name, value)
        return x

    def _shown(self, x: np.ndarray) -> dict[str, Any]:
        """What is observed of one event, by name."""
        return {
            self.names[v]: self.states[v][int(x[v])] if self.states[v] else float(x[v])
            for v in np.flatnonzero(~np.isnan(x))
        }

    def _by_tables(self, given: Mapping[str, Any]) -> NetworkBeliefs:
        """By the junction tree."""
        x, rows = self.event(given), self.rows()
        # without an axis of rows
        factors = [Factor(f.scope, f.logs[0] if f.rows else f.logs) for f in rows.given(x[None])]
        found = rows.tree.calibrate(factors)
        shown, nats = self._shown(x), float(found.log_evidence)
        _refuse_impossible(shown, nats)
        return NetworkBeliefs(self.names, self.states, shown, found, tuple(factors), nats - rows.log_z)

    def factored(self, x: Any) -> tuple[FactorEnergy, tuple[AbstractSpace, ...]]:
        """The energy of the labels that are missing in `x`, as factors, and what they can be.

        For `inference.infer(*model.factored(x), Eliminate(), key=key)`; any other method takes it too.
        """
        x = np.asarray(x, float)
        missing = [int(v) for v in np.flatnonzero(np.isnan(x))]
        if not missing:
            raise ValueError("The 'x' of factored must have an entry that is missing. Got none.")
        seen = {v: int(x[v]) for v in range(len(x)) if v not in missing}
        slices = [factor.at(seen) for factor in self.rows().factors]
        scopes = tuple(tuple(missing.index(v) for v in factor.scope) for factor in slices)
        return FactorEnergy(tuple(on_device(f.logs) for f in slices), scopes), self.latent(x)

    def latent(self, x: Array) -> tuple[AbstractSpace, ...]:
        """What each entry of `x` that is NaN can be, one after another."""
        holes = np.isnan(np.asarray(x))
        return tuple(space for space, missing in zip(self.spaces, holes, strict=True) if missing)

    def energy(self, x: Array, z: tuple[Array, ...]) -> Array:
        """−log p(x, z), where `z` has what stands in the place of each NaN of `x`."""
        left, whole = list(z), []
        for value, missing in zip(x, np.isnan(np.asarray(x)), strict=True):
            whole.append(left.pop(0).astype(x.dtype) if missing else value)
        return -self.log_prob_complete(jnp.stack(whole))


def _seen(x: Array, size: int) -> Array:
    """log 1 for the labels that an entry may be, and log 0 for the others."""
    return jnp.where(jnp.isnan(x) | (x == jnp.arange(size, dtype=x.dtype)), 0.0, -jnp.inf)


def _joint_states(shape: tuple[int, ...]) -> np.ndarray:
    """Every joint state of variables with so many labels each, a row each."""
    return np.indices(shape).reshape(len(shape), int(np.prod(shape))).T


def _as_label(x: Array) -> Array:
    return jnp.where(jnp.isnan(x), 0, x).astype(int)


class BayesianNetwork(AbstractNetwork, AbstractRescalable):
    """A directed graph of variables, each with a law given its parents:  p(x) = Π_v p(x_v | x_pa(v)).

    Labels have tables, numbers are linear Gaussian or of any conditional family.  With NaN it is exact

    - for labels, by the junction tree; and where numbers have labels alone as parents and no children,
    - for linear Gaussian numbers with any parents, summed over all joint states of the labels.

    Where numbers of other families have children, `sample` and `log_prob_complete` are exact too, and what
    is missing is had by `fe.infer(network, {"rain": "yes"}, key=0)`, which samples.

    Attributes:
        nodes: the law of each variable.
        parents: the numbers of the parents of each, in the order of the axes of its table.
        names: of the variables.
        states: the labels of each; none for numbers.

    >>> wet = BayesianNetwork.of_tables(
    ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]}, {"wet": ["rain"]}
    ... )
    >>> round(wet.posterior({"wet": 1}).marginal("rain")["1"], 4)
    0.6667
    """

    nodes: tuple[AbstractNode, ...]
    parents: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    states: tuple[tuple[str, ...], ...] = eqx.field(static=True)

    def __init__(
        self,
        nodes: Sequence[AbstractNode],
        parents: Sequence[Sequence[int]],
        names: Sequence[str] | None = None,
        states: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.parents = tuple(tuple(int(p) for p in above) for above in parents)
        self.names = tuple(map(str, range(len(self.nodes)) if names is None else names))
        sizes = [node.size or 0 for node in self.nodes]
        own = [map(str, range(size)) for size in sizes] if states is None else states
        self.states = tuple(tuple(map(str, labels)) for labels in own)
        for what, found in (("parents", self.parents), ("names", self.names), ("states", self.states)):
            if len(found) != len(self.nodes):
                raise ValueError(
                    f"The '{what}' of BayesianNetwork must have an entry for each of its {len(self.nodes)} "
                    f"nodes. Got {len(found)} instead."
                )
        # refuses cycles and names that are not distinct
        order = self.graph.order
        for name in order:
            v = self.names.index(name)
            problem = self.nodes[v].problem(tuple(self.nodes[p].size for p in self.parents[v]))
            if problem is None and len(self.states[v]) != sizes[v]:
                problem = (
                    f"must have a label for each of its {sizes[v]} states: {len(self.states[v])} are not"
                )
            if problem is not None:
                raise ValueError(f"The node {name!r} of BayesianNetwork {problem}.")

    @staticmethod
    def of_tables(
        tables: Mapping[str, Any],
        parents: Mapping[str, Sequence[str]],
        states: Mapping[str, Sequence[str]] | None = None,
    ) -> BayesianNetwork:
        """A network of labels.

        Args:
            tables: for each variable p(x = k | parents = i, j, …) at [i, j, …, k].
            parents: the names of the parents of each, in the order of these axes; none where not said.
            states: the labels of each variable; 0, 1, 2, … where not said.
        """
        names = tuple(tables)
        for name, above in parents.items():
            for other in (name, *above):
                place_of(names, other)
        nodes = []
        for name in names:
            table = np.asarray(tables[name], float)
            if table.ndim == 0 or (table < 0).any() or (np.abs(table.sum(axis=-1) - 1) > 1e-4).any():
                raise ValueError(
                    f"The table of {name!r} must be non-negative with sum one along the last axis. "
                    f"Got {table.tolist() if table.size < 9 else table.sum(axis=-1).ravel()[:4].tolist()}."
                )
            nodes.append(TableNode(on_device(table / table.sum(axis=-1, keepdims=True))))
        above = [[names.index(p) for p in parents.get(name, ())] for name in names]
        known = states or {}
        labels = [known.get(n, range(node.size)) for n, node in zip(names, nodes, strict=True)]
        return BayesianNetwork(nodes, above, names, [list(map(str, own)) for own in labels])

    def posterior(self, given: Mapping[str, Any] | None = None) -> NetworkBeliefs | MixedBeliefs:
        """What is known of all variables given some, exactly: of labels and linear Gaussian numbers.

        Args:
            given: the state or the value of some variables by name: `{"rain": "yes", "litres": 2.5}`.

        >>> rain = TableNode(jnp.array([0.75, 0.25]))
        >>> litres = GaussianNode(jnp.array([0.0, 4.0]), jnp.zeros((2, 0)), jnp.ones(2))
        >>> sky = BayesianNetwork([rain, litres], [(), (0,)], ["rain", "litres"], [["no", "yes"], []])
        >>> round(sky.posterior().marginal("litres").mean, 4)
        1.0
        >>> round(sky.posterior({"litres": 3.0}).marginal("rain")["yes"], 4)
        0.9479
        """
        if not self._numbers:
            return self._by_tables(given or {})
        for v in self._numbers:
            if not isinstance(self.nodes[v], GaussianNode):
                raise ValueError(
                    "Answers by names are exact in a network of labels and linear Gaussian numbers. Got "
                    f"{self.names[v]!r}, which is a {type(self.nodes[v]).__name__}: use "
                    "fe.infer(network, given, key=…)."
                )
        x, rows = self.event(given or {}), self.mixed_rows()
        shown, nats = self._shown(x), float(rows.evidence(x[None])[0])
        _refuse_impossible(shown, nats)
        return MixedBeliefs(self.names, self.states, shown, rows, x, nats)

    def intervene(self, **states: Any) -> BayesianNetwork:
        """The network in which some variables are set from outside, whatever their parents say.

        Also known as do(x): the arrows to a variable that is set are cut.

        Args:
            states: the state of each by the name of the variable.

        >>> wet = BayesianNetwork.of_tables(
        ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]}, {"wet": ["rain"]}
        ... )
        >>> round(wet.intervene(wet=1).posterior().marginal("rain")["1"], 4)
        0.2
        """
        nodes, parents = list(self.nodes), list(self.parents)
        for name, state in states.items():
            v, code = place_of(self.names, name), value_of(self.names, self.states, name, state)
            if not self.states[v]:
                raise ValueError(
                    f"Variables that are set must be labels. Got the numbers {name!r}: a number that is "
                    "certain has no density."
                )
            nodes[v] = TableNode(on_device(np.eye(len(self.states[v]))[int(code)]))
            parents[v] = ()
        return BayesianNetwork(nodes, parents, self.names, self.states)

    @property
    def graph(self) -> DirectedGraph:
        """The graph, by names."""
        edges = [(self.names[p], self.names[v]) for v, above in enumerate(self.parents) for p in above]
        return DirectedGraph(self.names, edges)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return tuple(node.size for node in self.nodes)

    @property
    def spaces(self) -> tuple[AbstractSpace, ...]:
        return tuple(node.space for node in self.nodes)

    @property
    def _order(self) -> list[int]:
        return [self.names.index(name) for name in self.graph.order]

    @property
    def _numbers(self) -> list[int]:
        return [v for v, size in enumerate(self.sizes) if size is None]

    def _split(self, v: int) -> tuple[list[int], list[int]]:
        """The parents that are labels, and those that are numbers."""
        sizes, above = self.sizes, self.parents[v]
        return [p for p in above if sizes[p] is not None], [p for p in above if sizes[p] is None]

    def _parents_of(self, v: int, x: Array) -> tuple[Array, Array]:
        labels, numbers = self._split(v)
        return _as_label(x[np.array(labels, int)]), x[np.array(numbers, int)]

    def log_prob_complete(self, x: Array) -> Array:
        terms = [node.log_prob(x[v], *self._parents_of(v, x)) for v, node in enumerate(self.nodes)]
        return jnp.sum(jnp.stack(terms))

    def sample(self, *, key: Array) -> Array:
        """A draw, parents before children (ancestral sampling)."""
        return self._ancestral(jnp.full(len(self.nodes), jnp.nan), self._order, key)

    def _ancestral(self, x: Array, nodes: Sequence[int], key: Array) -> Array:
        """`x` with each NaN among some nodes drawn given its parents."""
        for v in nodes:
            drawn = self.nodes[v].sample(*self._parents_of(v, x), key=jax.random.fold_in(key, v))
            x = x.at[v].set(jnp.where(jnp.isnan(x[v]), drawn.astype(x.dtype), x[v]))
        return x

    def is_ahead(self, x: np.ndarray) -> bool:
        """Whether what is missing comes of what is observed: nothing observed has a missing parent."""
        seen = np.flatnonzero(~np.isnan(x))
        return not np.isnan(x[[p for v in seen for p in self.parents[v]]]).any()

    def ahead(self, x: Array, *, key: Array) -> tuple[Array, Array]:
        """log p of what is observed, and a draw of the rest: exact, of any family, where `is_ahead`."""
        terms = [node.log_prob(x[v], *self._parents_of(v, x)) for v, node in enumerate(self.nodes)]
        nats = jnp.sum(jnp.where(jnp.isnan(x), 0, jnp.stack(terms)))
        return nats, self._ancestral(x, self._order, key)

    # exactly with NaN: by the junction tree of the labels, or over all their joint states

    @property
    def _scopes(self) -> tuple[tuple[int, ...], ...]:
        """The labels that each node is about: with their parents, and those of numbers without children."""
        return tuple(
            tuple(self._split(v)[0]) if size is None else (*self.parents[v], v)
            for v, size in enumerate(self.sizes)
        )

    @property
    def _by_tree(self) -> bool:
        """Whether numbers hang on labels alone."""
        return not any(size is None for above in self.parents for size in (self.sizes[p] for p in above))

    @property
    def exact(self) -> bool:
        return self._by_tree or all(isinstance(self.nodes[v], GaussianNode) for v in self._numbers)

    def _check_exact(self) -> None:
        if not self.exact:
            raise ValueError(
                "What is missing is known exactly in a BayesianNetwork of labels, of linear Gaussian "
                "numbers, or where numbers have no children. Use fe.infer, which samples, for this one."
            )

    def _factors(self, x: Array) -> list[Factor]:
        """The tables, what numbers say of labels, and what is observed of these."""
        found, seen = [], []
        for v, (node, scope) in enumerate(zip(self.nodes, self._scopes, strict=True)):
            if isinstance(node, TableNode):
                found.append(Factor(scope, log_probability(node.probabilities)))
                seen.append(Factor((v,), _seen(x[v], node.size)))
                continue
            shape = tuple(self.nodes[p].size or 1 for p in scope)
            states = _joint_states(shape)
            value = jnp.where(jnp.isnan(x[v]), 0, x[v])
            logs = jax.vmap(lambda s, n=node, y=value: n.log_prob(y, s, jnp.zeros(0, x.dtype)))(
                jnp.asarray(states)
            )
            found.append(Factor(scope, jnp.where(jnp.isnan(x[v]), 0, logs).reshape(shape)))
        return [*found, *seen]

    @property
    def tree(self) -> JunctionTree:
        """The junction tree of the labels, over the numbers of the variables."""
        return _tree_of(self.sizes, self._scopes)

    def _gaussians(self) -> tuple[np.ndarray, Array, Array, Array]:
        """All joint states of the labels, log p of each, mean and covariance of the numbers given it."""
        labels = [v for v, size in enumerate(self.sizes) if size is not None]
        shape = tuple(self.nodes[v].size or 1 for v in labels)
        if np.prod(np.array(shape, float)) > _MOST_STATES:
            raise ValueError(
                f"A BayesianNetwork of linear Gaussian numbers is summed over at most {_MOST_STATES} joint "
                f"states of its labels. Got {np.prod(np.array(shape, float)):.3g}."
            )
        states = _joint_states(shape)
        numbers = self._numbers
        place = {v: i for i, v in enumerate(numbers)}

        def one(state: Array) -> tuple[Array, Array, Array]:
            whole = jnp.zeros(len(self.nodes), int).at[np.array(labels, int)].set(state)
            terms = [
                self.nodes[v].log_prob(whole[v].astype(float), *self._parents_of(v, whole.astype(float)))
                for v in labels
            ]
            # x = b + W x + noise, so that x = (I − W)⁻¹ (b + noise)
            n = len(numbers)
            b, w, spread = jnp.zeros(n), jnp.zeros((n, n)), jnp.zeros(n)
            for v in numbers:
                node: Any = self.nodes[v]
                above, beside = self._split(v)
                own, slopes, variance = node.at(whole[np.array(above, int)])
                b = b.at[place[v]].set(own)
                w = w.at[place[v], np.array([place[p] for p in beside], int)].set(slopes)
                spread = spread.at[place[v]].set(variance)
            mix = jnp.linalg.inv(jnp.eye(n) - w)
            return jnp.sum(jnp.stack([jnp.zeros(()), *terms])), mix @ b, (mix * spread[None]) @ mix.T

        return (states, *jax.vmap(one)(jnp.asarray(states)))

    def _weighted(self, x: Array) -> tuple[np.ndarray, Array, Array, Array]:
        """Joint states of labels, log p(state, what is observed), and mean and covariance of each."""
        states, log_weights, means, covariances = self._gaussians()
        labels = np.array([v for v, size in enumerate(self.sizes) if size is not None], int)
        numbers = np.array(self._numbers, int)
        fits = jnp.isnan(x[labels])[None] | (x[labels][None] == jnp.asarray(states, x.dtype))
        nats = jax.vmap(lambda m, c: Gaussian(m, Full(c)).log_prob(x[numbers]))(means, covariances)
        total = jnp.where(jnp.all(fits, axis=1), log_weights + nats, -jnp.inf)
        return states, total, means, covariances

    def log_prob(self, x: Array) -> Array:
        self._check_exact()
        if not self._by_tree:
            return jax.nn.logsumexp(self._weighted(x)[1])
        if not self.tree.cliques:
            # numbers alone, none of which depends on another
            return jnp.sum(jnp.stack([factor.logs for factor in self._factors(x)]))
        return self.tree.log_partition(self._factors(x))

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        self._check_exact()
        first, second = jax.random.split(key)
        if self._by_tree:
            cliques = len(self.tree.cliques)
            drawn = self.tree.sample(self._factors(x), (), draw_by_key(first, cliques)) if cliques else {}
            for v, state in drawn.items():
                x = x.at[v].set(jnp.where(jnp.isnan(x[v]), state.astype(x.dtype), x[v]))
            return self._ancestral(x, self._numbers, second)
        states, total, means, covariances = self._weighted(x)
        numbers = np.array(self._numbers, int)
        which = jax.random.categorical(first, total)
        labels = np.array([v for v, size in enumerate(self.sizes) if size is not None], int)
        chosen = jnp.asarray(states, x.dtype)[which]
        x = x.at[labels].set(jnp.where(jnp.isnan(x[labels]), chosen, x[labels]))
        member = Gaussian(means[which], Full(covariances[which]))
        return x.at[numbers].set(member.complete_sample(x[numbers], key=second))

    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed; of labels that of their codes."""
        self._check_exact()
        if not self._by_tree:
            states, total, means, covariances = self._weighted(x)
            numbers = np.array(self._numbers, int)
            share = jax.nn.softmax(total)
            labels = np.array([v for v, size in enumerate(self.sizes) if size is not None], int)
            means = jax.vmap(lambda m, c: Gaussian(m, Full(c)).complete_mean(x[numbers]))(
                means, covariances
            )
            filled = x.at[labels].set(share @ jnp.asarray(states, x.dtype)).at[numbers].set(share @ means)
            return jnp.where(jnp.isnan(x), filled, x)
        beliefs: Any = self.tree.calibrate(self._factors(x)) if self.tree.cliques else None
        means = []
        for v, (node, scope) in enumerate(zip(self.nodes, self._scopes, strict=True)):
            if node.size is not None:
                means.append(jnp.vdot(beliefs.marginal(v), jnp.arange(node.size, dtype=x.dtype)))
                continue
            shape = tuple(self.nodes[p].size or 1 for p in scope)
            states = jnp.asarray(_joint_states(shape))
            each = jax.vmap(lambda s, n=node: n.mean(s, jnp.zeros(0, x.dtype)))(states)
            means.append(jnp.vdot(beliefs.joint(scope).ravel(), each) if scope else each[0])
        return jnp.where(jnp.isnan(x), jnp.stack(means), x)

    def rows(self) -> TableRows:
        if self._numbers:
            name = self.names[self._numbers[0]]
            raise ValueError(
                f"Tables alone are those of networks of labels. Got the numbers {name!r}: use 'mixed_rows'."
            )
        return self._label_rows()

    def _label_rows(self) -> TableRows:
        """The tables of the labels on the host."""
        factors = []
        for node, scope in zip(self.nodes, self._scopes, strict=True):
            if isinstance(node, TableNode):
                with np.errstate(divide="ignore"):
                    factors.append(Factor(scope, np.log(np.asarray(node.probabilities, float))))
        scopes = tuple(factor.scope for factor in factors)
        return TableRows(_tree_of(self.sizes, scopes), tuple(factors))

    def mixed_rows(self) -> MixedRows:
        """The tables and the linear Gaussian laws on the host, for many rows of labels and numbers."""
        labels = tuple(v for v, size in enumerate(self.sizes) if size is not None)
        numbers = tuple(v for v in self._order if self.sizes[v] is None)
        lines = []
        for v in numbers:
            node = self.nodes[v]
            if not isinstance(node, GaussianNode):
                raise ValueError(
                    f"Many rows at once are for networks of labels and linear Gaussian numbers. Got "
                    f"{self.names[v]!r}, which is a {type(node).__name__}."
                )
            above, beside = self._split(v)
            own = (np.asarray(part, float) for part in (node.intercept, node.weights, node.variance))
            lines.append(LineTable(tuple(above), tuple(beside), *own))
        return MixedRows(labels, numbers, self._label_rows() if labels else None, tuple(lines))

    def in_units(self, shift: Array, scale: Array) -> BayesianNetwork | InUnits:
        """The law of shift + scale · x: of the same kind where all numbers are linear Gaussian."""
        if not all(isinstance(self.nodes[v], GaussianNode) for v in self._numbers):
            return InUnits(self, shift, scale)
        return _lines_in_units(self, shift, scale)


@eqx.filter_jit
def _lines_in_units(network: BayesianNetwork, shift: Array, scale: Array) -> BayesianNetwork:
    nodes = list(network.nodes)
    for v in network._numbers:
        node: Any = network.nodes[v]
        beside = np.array(network._split(v)[1], int)
        ratio = scale[v] / scale[beside]
        weights = node.weights * jnp.broadcast_to(ratio, node.weights.shape)
        intercept = shift[v] + scale[v] * node.intercept - weights @ shift[beside]
        nodes[v] = GaussianNode(intercept, weights, scale[v] ** 2 * node.variance)
    return BayesianNetwork(nodes, network.parents, network.names, network.states)


class MarkovNetwork(AbstractNetwork):
    """Labels whose probability is a product of factors:  p(x) = Π_C φ_C(x_C) / Z, φ = exp(logs).

    Also known as a Markov random field.  Z is a sum over all joint states, by elimination.  It is also what
    one more variable that is observed has to say: in the network with that variable log p of it is log Z.

    Attributes:
        logs: log φ of each factor, an axis for each of its variables.
        scopes: the numbers of these variables.
        n_states: how many labels each variable has.
        names: of the variables.
        states: the labels of each.

    >>> pair = MarkovNetwork.of_potentials({("a", "b"): [[3.0, 1.0], [1.0, 3.0]]})
    >>> [round(float(jnp.exp(pair.log_prob(jnp.array([0.0, b])))), 6) for b in (0.0, 1.0)]
    [0.375, 0.125]
    """

    logs: tuple[Array, ...]
    scopes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    n_states: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    states: tuple[tuple[str, ...], ...] = eqx.field(static=True)

    def __init__(
        self,
        logs: Sequence[Any],
        scopes: Sequence[Sequence[int]],
        n_states: Sequence[int],
        names: Sequence[str] | None = None,
        states: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.logs = tuple(logs)
        self.scopes = tuple(tuple(int(v) for v in scope) for scope in scopes)
        self.n_states = tuple(int(n) for n in n_states)
        self.names = tuple(map(str, range(len(self.n_states)) if names is None else names))
        own = [range(n) for n in self.n_states] if states is None else states
        self.states = tuple(tuple(map(str, labels)) for labels in own)
        for logs_, scope in zip(self.logs, self.scopes, strict=True):
            shape = tuple(self.n_states[v] for v in scope)
            if logs_.shape != shape:
                raise ValueError(
                    f"The factor of {', '.join(self.names[v] for v in scope)} in MarkovNetwork must have "
                    f"the shape {shape}. Got {logs_.shape} instead."
                )

    @staticmethod
    def of_potentials(
        potentials: Mapping[tuple[str, ...], Any], states: Mapping[str, Sequence[str]] | None = None
    ) -> MarkovNetwork:
        """A network of non-negative tables φ, by the names of their variables.

        Args:
            potentials: for each tuple of names a table with an axis for each of them.
            states: the labels of each variable; 0, 1, 2, … where not said.
        """
        factors = [Factor.of_potential(scope, values) for scope, values in potentials.items()]
        sizes: dict[Any, int] = {}
        for factor in factors:
            sizes |= factor.sizes()
        names, known = tuple(sizes), states or {}
        scopes = [[names.index(v) for v in factor.scope] for factor in factors]
        labels = [known.get(name, [str(k) for k in range(size)]) for name, size in sizes.items()]
        logs = [on_device(factor.logs) for factor in factors]
        return MarkovNetwork(logs, scopes, list(sizes.values()), names, labels)

    @property
    def graph(self) -> UndirectedGraph:
        """The graph, by names: variables that share a factor are neighbours."""
        named = [[self.names[v] for v in scope] for scope in self.scopes]
        return UndirectedGraph.of_scopes(self.names, named)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return self.n_states

    @property
    def spaces(self) -> tuple[AbstractSpace, ...]:
        return tuple(Categories(n) for n in self.n_states)

    @property
    def tree(self) -> JunctionTree:
        """The junction tree, over the numbers of the variables."""
        return _tree_of(self.n_states, self.scopes)

    def _factors(self, x: Array | None = None) -> list[Factor]:
        found = [Factor(scope, logs) for scope, logs in zip(self.scopes, self.logs, strict=True)]
        seen = [] if x is None else [Factor((v,), _seen(x[v], n)) for v, n in enumerate(self.n_states)]
        return [*found, *seen]

    def log_partition(self) -> Array:
        """log Z = log Σ Π φ over all joint states."""
        return self.tree.log_partition(self._factors())

    def log_potential(self, x: Array) -> Array:
        """log Π φ at one complete state; −∞ for a label that there is not."""
        known = jnp.stack(
            [jnp.any(x[v] == jnp.arange(n, dtype=x.dtype)) for v, n in enumerate(self.n_states)]
        )
        codes = jnp.where(known, x, 0).astype(int)
        terms = [
            logs[tuple(codes[v] for v in scope)] for scope, logs in zip(self.scopes, self.logs, strict=True)
        ]
        return jnp.where(jnp.all(known), jnp.sum(jnp.stack(terms)), -jnp.inf)

    def log_prob_complete(self, x: Array) -> Array:
        return self.log_potential(x) - self.log_partition()

    def log_prob(self, x: Array) -> Array:
        return self.tree.log_partition(self._factors(x)) - self.log_partition()

    def log_conditionals(self, x: Array) -> Array:
        """log p(x_v | all others) of each variable of a complete state: none of them needs Z.

        Their sum is the logarithm of the pseudo-likelihood (Besag 1975).
        """
        codes, found = x.astype(int), []
        for v, n in enumerate(self.n_states):
            logits = jnp.zeros(n)
            for scope, logs in zip(self.scopes, self.logs, strict=True):
                if v in scope:
                    logits = logits + logs[tuple(slice(None) if u == v else codes[u] for u in scope)]
            found.append(jax.nn.log_softmax(logits)[codes[v]])
        return jnp.stack(found)

    def sample(self, *, key: Array) -> Array:
        """An exact draw, clique by clique."""
        drawn = self.tree.sample(self._factors(), (), draw_by_key(key, len(self.tree.cliques)))
        return jnp.stack([drawn[v] for v in range(len(self.n_states))]).astype(float)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        drawn = self.tree.sample(self._factors(x), (), draw_by_key(key, len(self.tree.cliques)))
        states = jnp.stack([drawn[v] for v in range(len(self.n_states))]).astype(x.dtype)
        return jnp.where(jnp.isnan(x), states, x)

    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by the mean of its codes given what is observed."""
        beliefs = self.tree.calibrate(self._factors(x))
        means = [
            jnp.vdot(beliefs.marginal(v), jnp.arange(n, dtype=x.dtype)) for v, n in enumerate(self.n_states)
        ]
        return jnp.where(jnp.isnan(x), jnp.stack(means), x)

    @property
    def exact(self) -> bool:
        return True

    def posterior(self, given: Mapping[str, Any] | None = None) -> NetworkBeliefs:
        """What is known of all variables given the states of some, exactly, by the junction tree."""
        return self._by_tables(given or {})

    def rows(self) -> TableRows:
        factors = tuple(
            Factor(scope, np.asarray(logs, float))
            for scope, logs in zip(self.scopes, self.logs, strict=True)
        )
        return TableRows(self.tree, factors, float(self.tree.log_partition(factors)))
