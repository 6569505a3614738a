"""Bayesian and Markov networks of labels as estimators."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jax import Array
from scipy.optimize import minimize
from sklearn.utils.validation import check_is_fitted

from ..._core import Evidence, Fit, Kind, Status, generator, on_device
from ...inference import DirectedGraph, Factor, JunctionTree, TableRows, UndirectedGraph
from ...inference._factors import refuse_large
from ...inference._mixed_rows import MixedRows
from ...inference._table_rows import complete_counts
from ...learning import AbstractStructure, ChowLiu, HillClimbing
from ...learning._network_em import NetworkShape, fit_network
from ...models import BayesianNetwork as BayesianNetworkModel
from ...models import GaussianNode, TableNode
from ...models import MarkovNetwork as MarkovNetworkModel
from ...shell import AbstractDensity, Column, ColumnRoles, Field, Rows, Scaling, Schema, check_real
from ...shell._completion import AbstractCompletion, RowEnergy
from ...shell._schema import kinds_of

# labels of a column: whoever has more has not numbered those that occur
_MOST_LABELS = 10_000
_LABELS = (Column.CATEGORY, Column.ORDERED, Column.BINARY)


def _laws_by_name(model: BayesianNetworkModel) -> dict[str, Any]:
    """The law of each column, with the names of its parents in the order of the axes."""
    found, sizes = {}, model.sizes
    for name, node, parents in zip(model.names, model.nodes, model.parents, strict=True):
        given = ", ".join(model.names[p] for p in parents if sizes[p] is not None)
        head = f"{name} | {given}" if given else name
        if isinstance(node, GaussianNode):
            found[f"intercept({head})"] = node.intercept
            beside = [model.names[p] for p in parents if sizes[p] is None]
            for i, other in enumerate(beside):
                found[f"slope({head}; {other})"] = node.weights[..., i]
            found[f"variance({head})"] = node.variance
        elif isinstance(node, TableNode):
            found[f"p({head})"] = node.probabilities
    return found


def _laws_in_units(model: BayesianNetworkModel, shift: Array, scale: Array) -> dict[str, Any]:
    return _laws_by_name(model.in_units(shift, scale))  # pyright: ignore[reportArgumentType]


def _factors_by_name(model: MarkovNetworkModel) -> dict[str, Any]:
    """log φ of each clique, with its columns in the order of the axes."""
    pairs = zip(model.scopes, model.logs, strict=True)
    return {f"log φ({', '.join(model.names[v] for v in scope)})": logs for scope, logs in pairs}


def _hold_labels(schema: Schema) -> np.ndarray:
    """Which of the columns of a model hold labels."""
    return np.array([field.kind in _LABELS for field in schema.modelled], bool)


class AbstractNetworkDensity(AbstractDensity):
    """What networks share: columns as labels, answers on the host, and questions by name."""

    structure: Any
    alpha: float
    threshold: float | None
    max_iter: int
    tol: float

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "alpha")
        if isinstance(self.structure, AbstractStructure) or self.structure is None:
            return
        pairs = isinstance(self.structure, Iterable) and not isinstance(self.structure, str)
        if not pairs or not all(isinstance(e, Sequence) and len(e) == 2 for e in self.structure):
            raise ValueError(
                f"The 'structure' parameter of {type(self).__name__} must be pairs of columns, an instance "
                f"of AbstractStructure or None. Got {self.structure!r} instead."
            )

    def takes(self, field: Field) -> bool:
        return True

    def column_roles(self, n_features: int) -> ColumnRoles:
        return ColumnRoles.symbols(n_features)

    def roles_for(self, schema: Schema) -> ColumnRoles:
        return ColumnRoles.symbols(len(schema.modelled))

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.identity(X.shape[1])

    def _are_numbers(self, columns: int) -> np.ndarray:
        """Which columns are numbers and no labels."""
        return np.zeros(columns, bool)

    def as_modelled(self, X: np.ndarray) -> np.ndarray:
        schema = kinds_of(self)
        labels = np.zeros(X.shape[1], bool) if schema is None else _hold_labels(schema)
        labels |= self._are_numbers(X.shape[1])
        if self.threshold is not None:
            above = np.where(np.isnan(X), np.nan, (self.threshold < X).astype(float))
            return np.where(labels, X, above)
        with np.errstate(invalid="ignore"):
            wrong = ~np.isnan(X) & ((np.rint(X) != X) | (X < 0) | (X >= _MOST_LABELS)) & ~labels
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"{type(self).__name__} needs labels, or numbers 0, 1, 2, … below {_MOST_LABELS:,} that "
                f"stand for them. Got {X[row, column]:g} in row {row}, column "
                f"{self.column_names[column]!r}. Give a 'threshold' above which entries count as one, or "
                f"declare the kind of the column{self._advice}."
            )
        return X

    # what else to do with numbers that stand for no labels
    _advice: ClassVar[str] = ""

    def _labels(self, x: np.ndarray) -> list[list[str]]:
        """The labels of each column; none of numbers."""
        schema, numbers = kinds_of(self), self._are_numbers(x.shape[1])
        found = []
        for column in range(x.shape[1]):
            if numbers[column]:
                found.append([])
                continue
            categories: Sequence[Any] = ()
            if schema is not None and schema.modelled[column].kind in _LABELS:
                categories = schema.modelled[column].categories
            if len(categories) < 2:
                seen = x[:, column][~np.isnan(x[:, column])]
                categories = range(max(int(seen.max(initial=0)) + 1, 2))
            found.append([str(label) for label in categories])
        return found

    def _edges(self) -> list[tuple[int, int]] | None:
        """The edges that the user gives, by the numbers of columns; None if they are to be found."""
        if self.structure is None or isinstance(self.structure, AbstractStructure):
            return None
        names = self.column_names

        def number(column: Any) -> int:
            if str(column) in names:
                return names.index(str(column))
            if isinstance(column, int | np.integer) and 0 <= column < len(names):
                return int(column)
            raise ValueError(
                f"The 'structure' of {type(self).__name__} must name columns of X, such as {names[0]!r}. "
                f"Got {column!r} instead."
            )

        return [(number(a), number(b)) for a, b in self.structure]

    @abc.abstractmethod
    def _tables(
        self, rows: Rows, labels: list[list[str]], graph: DirectedGraph | None, names: list[str]
    ) -> Fit:
        """The fit, given the graph that was searched for, if one was."""

    def _learn(self, rows: Rows, key: Array) -> Fit:
        labels = self._labels(rows.x)
        sizes = [len(own) or None for own in labels]
        graph = None
        if self._edges() is None:
            search = self._default_structure() if self.structure is None else self.structure
            graph = search(rows.x, rows.weight, sizes)
        return self._tables(rows, labels, graph, self.column_names)

    @abc.abstractmethod
    def _default_structure(self) -> AbstractStructure:
        """How the graph is searched for, if nothing is said."""

    # the tables answer on the host, where nothing has to be compiled

    def _host(self) -> TableRows | MixedRows:
        return self.model_.rows()

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        nats = self._host().evidence(z)
        return Evidence(nats, np.zeros_like(nats), Kind.EXACT)

    def _completion(self, x: np.ndarray) -> AbstractCompletion:
        return RowEnergy.of(self.model_, type(self.model_).log_prob_complete, self.scaling_)

    def _column_levels(self, n_features: int) -> tuple[int, ...]:
        return tuple(len(labels) for labels in self.model_.states)

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        return self._fill_sample(np.full((n, self._width), np.nan), key=key)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        # labels have no mean: `_likeliest` has the last word
        return np.where(np.isnan(z), 0.0, z)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        return self._host().draw(z, generator(key))

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        return np.argmax(self._host().marginals(rows, column), axis=1).astype(float)

    def posterior(self, given: Mapping[Any, Any] | None = None) -> Any:
        """What is known of all columns given some: marginals, the most probable row, draws.

        It is a `models.NetworkBeliefs`, or with numbers a `models.MixedBeliefs`, in the units of the data.

        Args:
            given: the label or the number of some columns, by name: `{"rain": "yes"}`.
        """
        check_is_fitted(self, "model_")
        return self.model_in_units.posterior({str(name): value for name, value in (given or {}).items()})

    @property
    def graph_(self) -> Any:
        """The graph of the columns, by name."""
        return self.model_.graph

    @property
    def edges_(self) -> list[tuple[str, str]]:
        """The edges of the graph, by the names of the columns."""
        return list(self.model_.graph.edges)


class BayesianNetwork(AbstractNetworkDensity):
    """A Bayesian network:  p(x) = Π_v p(x_v | x_pa(v)), a table or a linear Gaussian law for each column.

    A label has a table of probabilities for each joint state of its parents, which are labels; a number is
    N(b + w · u, v) with its parents u among the numbers, and b, w and v for each joint state of those among
    the labels (a conditional Gaussian network).

    The graph is given, or found: the one with the most evidence that a search comes to.  Parameters are
    those of maximum likelihood with α imagined rows, spread evenly over all joint states of labels, with
    independent numbers of the mean and variance of their columns; where entries are missing, by EM.  All
    answers are exact: by the junction tree, with a sum over missing labels on which numbers depend, and by
    Gaussian algebra.

    Args:
        structure: arrows as pairs (parent, child) of columns, `HillClimbing(…)` (the default), `ChowLiu()`,
            or `StructuralEM(…)` where many entries are missing.
        numbers: whether columns that do not hold labels are linear Gaussian; else they must be labels 0, 1,
            2, ….
        alpha: how many imagined rows; 0 is maximum likelihood.
        threshold: numbers above it count as one, the others as zero; None takes labels, and numbers 0, 1,
            2, … that stand for them.
        max_iter, tol: of EM; `tol` is of −log p per row.
        random_state: as everywhere; nothing in the fit is random.

    Attributes:
        graph_, edges_: the graph, and its arrows.
        model_: the fitted `freeenergy.models.BayesianNetwork`, of rescaled numbers.
        history_: −log p per row, with the prior, after each step of EM.
        n_iter_, converged_, scaling_, …: as everywhere.

    >>> rng = np.random.default_rng(0)
    >>> rain = rng.random(300) < 0.3
    >>> wet = np.where(rng.random(300) < 0.1, ~rain, rain)
    >>> X = np.stack([np.where(rain, "rain", "dry"), np.where(wet, "wet", "not")], axis=1)
    >>> model = BayesianNetwork().fit(X)
    >>> sorted(model.edges_[0]), round(model.posterior({"1": "wet"}).marginal("0")["rain"], 2)
    (['0', '1'], 0.8)
    >>> u = rng.normal(size=300)
    >>> line = np.stack([u, 3 * u + rng.normal(size=300)], axis=1)
    >>> numbers = BayesianNetwork([(0, 1)], numbers=True).fit(line)
    >>> round(float(numbers.impute([[2.0, np.nan]])[0, 1]))
    6
    """

    _made_from = BayesianNetworkModel
    _advice = ", or set 'numbers' to have a linear Gaussian model of it"

    def __init__(
        self,
        structure: Any = None,
        *,
        numbers: bool = False,
        alpha: float = 1.0,
        threshold: float | None = None,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.structure = structure
        self.numbers = numbers
        self.alpha = alpha
        self.threshold = threshold
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.numbers and self.threshold is not None:
            raise ValueError(
                "The 'threshold' parameter of BayesianNetwork must be None where its 'numbers' are linear "
                f"Gaussian. Got {self.threshold!r} instead."
            )

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        # refuses numbers that are not linear Gaussian
        return {"numbers": bool(model.mixed_rows().numbers)}

    @property
    def needs_kinds(self) -> bool:
        return bool(self.numbers)

    def _are_numbers(self, columns: int) -> np.ndarray:
        schema = kinds_of(self)
        if not self.numbers:
            return np.zeros(columns, bool)
        if schema is not None:
            return ~_hold_labels(schema)
        # one that was made from a model has no schema
        model = vars(self).get("model_")
        return np.array([model is None or model.sizes[v] is None for v in range(columns)], bool)

    def column_roles(self, n_features: int) -> ColumnRoles:
        labels = ~self._are_numbers(n_features)
        return ColumnRoles(labels, labels, np.zeros(n_features, bool))

    def roles_for(self, schema: Schema) -> ColumnRoles:
        labels = _hold_labels(schema) | (not self.numbers)
        return ColumnRoles(labels, labels, np.zeros(len(labels), bool))

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        numbers = self._are_numbers(X.shape[1])
        if not numbers.any():
            return Scaling.identity(X.shape[1])
        whole = Scaling.standardise(X, weight)
        return Scaling(np.where(numbers, whole.shift, 0.0), np.where(numbers, whole.scale, 1.0))

    def _default_structure(self) -> AbstractStructure:
        return HillClimbing()

    def _host(self) -> TableRows | MixedRows:
        return self.model_.mixed_rows() if self.numbers else self.model_.rows()

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        host = self._host()
        filled = host.means(z) if isinstance(host, MixedRows) else z
        # labels have no mean: `_likeliest` has the last word
        return np.where(np.isnan(filled) & ~self._are_numbers(z.shape[1]), 0.0, filled)

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        return np.argmax(self._host().marginals(self.scaling_.apply(rows), column), axis=1).astype(float)

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        if self.scaling_.is_identity:
            return _laws_by_name, ()
        return _laws_in_units, (on_device(self.scaling_.shift), on_device(self.scaling_.scale))

    def _tables(
        self, rows: Rows, labels: list[list[str]], graph: DirectedGraph | None, names: list[str]
    ) -> Fit:
        if graph is None:
            edges = self._edges() or []
            # a cycle is refused by the names of its columns
            DirectedGraph(names, [(names[a], names[b]) for a, b in edges])
            graph = DirectedGraph(range(len(names)), edges)
        shape = NetworkShape(graph, [len(own) or None for own in labels], names)
        found = fit_network(
            shape, rows.x, rows.weight, alpha=self.alpha, max_iter=self.max_iter, tol=self.tol
        )
        nodes: dict[int, TableNode | GaussianNode] = {}
        if found.rows.tables is not None:
            for v, factor in zip(found.rows.labels, found.rows.tables.factors, strict=True):
                nodes[v] = TableNode(on_device(np.exp(factor.logs)))
        for v, line in zip(found.rows.numbers, found.rows.lines, strict=True):
            parts = (on_device(part) for part in (line.intercept, line.weights, line.variance))
            nodes[v] = GaussianNode(*parts)
        parents = [graph.parents(v) for v in graph.nodes]
        model = BayesianNetworkModel([nodes[v] for v in range(len(names))], parents, names, labels)
        return Fit(model, {"objective": np.array(found.history)}, len(found.history), found.status)


class MarkovNetwork(AbstractNetworkDensity):
    """A Markov network of labels:  p(x) = Π_C φ_C(x_C) / Z, with a factor for each clique of the graph.

    The log-likelihood is concave in log φ, and its slope is the difference of the shares of labels in each
    clique, of the rows and of the model: where they agree is the maximum (moment matching).  In a graph
    without cycles, or with chords in all of them, that is had in closed form; else, and where entries are
    missing, by L-BFGS.  All answers are exact, Z too.

    Args:
        structure: edges as pairs of columns; `ChowLiu()` (the default, a tree), `HillClimbing(…)`, of whose
            graph the parents of a column become neighbours.
        alpha: how many imagined rows, spread evenly over all joint states; 0 is maximum likelihood.
        threshold: numbers above it count as one, the others as zero; None takes labels, and numbers 0, 1,
            2, … that stand for them.
        max_iter, tol: of L-BFGS; `tol` is of the slope.
        random_state: as everywhere; nothing in the fit is random.

    Attributes:
        graph_, edges_: the graph, and its edges.
        model_: the fitted `freeenergy.models.MarkovNetwork`.
        history_: −log p per row, with the imagined rows, after each step.
        n_iter_, converged_, scaling_, …: as everywhere.

    >>> X = np.array([[0, 0], [0, 0], [1, 1], [0, 1]] * 25)
    >>> model = MarkovNetwork(alpha=0.0).fit(X)
    >>> model.edges_, np.exp(model.score_samples([[0, 0], [1, 0]])).round(4).tolist()
    ([('0', '1')], [0.5, 0.0])
    """

    _made_from = MarkovNetworkModel

    def __init__(
        self,
        structure: Any = None,
        *,
        alpha: float = 1.0,
        threshold: float | None = None,
        max_iter: int = 500,
        tol: float = 1e-7,
        random_state: Any = None,
    ) -> None:
        self.structure = structure
        self.alpha = alpha
        self.threshold = threshold
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _default_structure(self) -> AbstractStructure:
        return ChowLiu()

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        return _factors_by_name, ()

    def _count_parameters(self) -> int:
        # all products of contrasts of labels within a clique, those of several cliques once
        parts = {
            part
            for scope in self.model_.scopes
            for size in range(1, len(scope) + 1)
            for part in itertools.combinations(sorted(scope), size)
        }
        sizes = self.model_.n_states
        return int(sum(np.prod([sizes[v] - 1 for v in part]) for part in parts))

    def _tables(
        self, rows: Rows, labels: list[list[str]], graph: DirectedGraph | None, names: list[str]
    ) -> Fit:
        sizes = [len(own) for own in labels]
        if graph is None:
            joined = UndirectedGraph(range(len(names)), self._edges() or [])
        else:
            joined = graph.moralise()
        scopes = joined.cliques()
        for scope in scopes:
            refuse_large(scope, dict(enumerate(sizes)))
        tree = JunctionTree.of(dict(enumerate(sizes)), scopes)
        holes = np.asarray(np.isnan(rows.x).any(axis=1))
        part = rows._replace(x=rows.x[holes], weight=rows.weight[holes])
        total = rows.weight.sum() + self.alpha
        whole = [
            counts + self.alpha / counts.size
            for counts in (complete_counts(rows.x[~holes], rows.weight[~holes], sizes, s) for s in scopes)
        ]
        if joined.is_chordal() and (whole[0].sum() > 0 if whole else False):
            logs = _closed_form(tree, scopes, whole)
        else:
            logs = [np.zeros(counts.shape) for counts in whole]
        done = joined.is_chordal() and not holes.any()
        host = TableRows(tree, tuple(Factor(s, t) for s, t in zip(scopes, logs, strict=True)))
        if done:
            nats = sum(float(np.sum(c[c > 0] * t[c > 0])) for c, t in zip(whole, logs, strict=True))
            history, status = [-(nats / total - float(tree.log_partition(host.factors)))], Status.CONVERGED
        else:
            logs, history, status = self._matched(tree, scopes, logs, whole, part, total)
        model = MarkovNetworkModel([on_device(t) for t in logs], scopes, sizes, names, labels)
        return Fit(model, {"objective": np.array(history)}, len(history), status)

    def _matched(
        self,
        tree: JunctionTree,
        scopes: Sequence[tuple[int, ...]],
        logs: Sequence[np.ndarray],
        whole: Sequence[np.ndarray],
        part: Rows,
        total: float,
    ) -> tuple[list[np.ndarray], list[float], Status]:
        """The factors whose shares are those of the rows, by L-BFGS."""
        ends = np.cumsum([t.size for t in logs])
        if self.alpha == 0:
            # a cell without rows would go to −∞: it stays where it no longer matters
            logs = [np.maximum(t, -30.0) for t in logs]
        losses: list[float] = []

        def tables(flat: np.ndarray) -> list[np.ndarray]:
            return [p.reshape(t.shape) for p, t in zip(np.split(flat, ends[:-1]), logs, strict=True)]

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            factors = tuple(Factor(s, t) for s, t in zip(scopes, tables(flat), strict=True))
            model = tree.calibrate(factors)
            found = total * float(model.log_evidence)
            target = [counts.copy() for counts in whole]
            found -= sum(float(np.sum(c * f.logs)) for c, f in zip(whole, factors, strict=True))
            if len(part.x):
                some, nats = TableRows(tree, factors).counts(part.x, part.weight, scopes)
                found -= nats
                target = [a + b for a, b in zip(target, some, strict=True)]
            slopes = [total * model.joint(s) - t for s, t in zip(scopes, target, strict=True)]
            losses.append(found / total)
            return losses[-1], np.concatenate([slope.ravel() for slope in slopes]) / total

        start = np.concatenate([t.ravel() for t in logs])
        options = {"maxiter": self.max_iter, "ftol": 1e-15, "gtol": self.tol, "maxcor": 20}
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        status = Status.CONVERGED if found.success else Status.LIMIT
        return tables(found.x), list(np.minimum.accumulate(losses)), status


def _closed_form(
    tree: JunctionTree, scopes: Sequence[tuple[int, ...]], counts: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """log P(x_C | x_S) of each clique, which is the maximum in a graph whose cycles have chords."""
    found: dict[tuple[int, ...], np.ndarray] = {}
    known = {frozenset(scope): (scope, table) for scope, table in zip(scopes, counts, strict=True)}
    for clique, shared in zip(tree.cliques, tree.separators, strict=True):
        scope, table = known[frozenset(clique)]
        with np.errstate(divide="ignore"):
            own = Factor(scope, np.log(table))
        rest = own.marginal(shared).over(scope)
        logs = np.where(own.logs > -np.inf, own.logs - np.where(rest > -np.inf, rest, 0), -np.inf)
        found[scope] = logs
    return [found[scope] for scope in scopes]
