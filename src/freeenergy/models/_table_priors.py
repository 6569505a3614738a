"""What is known of the tables of a Bayesian network: a Dirichlet law for each of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import on_device
from ..distributions import Categorical, DirichletPrior
from ..inference._table_rows import complete_counts
from ._networks import BayesianNetwork
from ._nodes import TableNode


class TablePriors(eqx.Module):
    """Tables of a Bayesian network that are not known: each row p(· | parents) ~ Dirichlet(α_row).

    Rows are independent of each other, before and after complete data: a cell adds the number of its rows
    to its α.  The law of a new row of labels is the network with the mean tables.

    Attributes:
        network: any network of the graph.
        parts: the law of the rows of each table, in the order of the variables.

    >>> coin = BayesianNetwork.of_tables({"coin": [0.5, 0.5]}, {})
    >>> after = TablePriors.even(coin, 2.0).given(np.array([[0.0], [0.0], [1.0]]))
    >>> round(after.predictive().posterior().marginal("coin")["0"], 6)
    0.6
    """

    network: BayesianNetwork
    parts: tuple[DirichletPrior, ...]

    @staticmethod
    def even(network: BayesianNetwork, alpha: float = 1.0) -> TablePriors:
        """`alpha` imagined rows, spread evenly over all joint states of each family (BDeu)."""
        if not alpha > 0:
            raise ValueError(
                f"The 'alpha' of TablePriors must be a float in the range (0, inf). Got {alpha!r}."
            )
        parts = []
        for name, node in zip(network.names, network.nodes, strict=True):
            if not isinstance(node, TableNode):
                raise ValueError(
                    f"TablePriors are of networks of labels. Got {name!r}, a {type(node).__name__}."
                )
            cells = node.probabilities.size
            ones = np.ones((cells // node.size, node.size))
            any_member = Categorical(on_device(ones / node.size))
            parts.append(DirichletPrior(any_member, on_device(ones * (alpha / cells))))
        return TablePriors(network, tuple(parts))

    def counts(self, x: Any, weight: Any = None) -> list[np.ndarray]:
        """The weight of complete rows of labels in each cell of each table, a row for each of its rows."""
        x = np.asarray(x, float)
        sizes = [part.concentration.shape[-1] for part in self.parts]
        if np.isnan(x).any():
            raise ValueError(
                "Tables have a Dirichlet law given complete rows. Got rows with missing labels."
            )
        outside = (np.rint(x) != x) | (x < 0) | (x >= np.array(sizes))
        if outside.any():
            row, column = (int(i) for i in np.argwhere(outside)[0])
            raise ValueError(
                f"Labels of {self.network.names[column]!r} must be 0, 1, … {sizes[column] - 1}. "
                f"Got {x[row, column]:g} in row {row}."
            )
        w = np.ones(len(x)) if weight is None else np.asarray(weight, float)
        scopes = [(*above, v) for v, above in enumerate(self.network.parents)]
        return [complete_counts(x, w, sizes, scope).reshape(-1, sizes[scope[-1]]) for scope in scopes]

    def given(self, x: Any, weight: Any = None) -> TablePriors:
        """The laws given complete rows of labels."""
        return _updated(self, self.counts(x, weight))

    def log_evidence(self, x: Any, weight: Any = None) -> float:
        """log ∫ p(rows | tables) p(tables) of complete rows; of even laws that is `BDeu` of the graph."""
        return float(_log_normaliser(self.given(x, weight)) - _log_normaliser(self))

    def _with(self, tables: Sequence[Array]) -> BayesianNetwork:
        shapes = [node.probabilities.shape for node in self.network.nodes if isinstance(node, TableNode)]
        nodes = [TableNode(table.reshape(shape)) for table, shape in zip(tables, shapes, strict=True)]
        return BayesianNetwork(nodes, self.network.parents, self.network.names, self.network.states)

    def predictive(self) -> BayesianNetwork:
        """The law of a new row: the network whose tables are the means."""
        return _with_means(self)

    def sample(self, *, key: Array) -> BayesianNetwork:
        """A network with random tables."""
        keys = jax.random.split(key, len(self.parts))
        return self._with(
            [part.sample(key=k).probabilities for part, k in zip(self.parts, keys, strict=True)]
        )

    def log_density(self, network: BayesianNetwork) -> Array:
        """log density of the tables of a network of the same graph."""
        total = jnp.zeros(())
        for part, node in zip(self.parts, network.nodes, strict=True):
            assert isinstance(node, TableNode)
            rows = node.probabilities.reshape(part.concentration.shape)
            total = total + part.log_density(Categorical(rows))
        return total


@eqx.filter_jit
def _updated(priors: TablePriors, counts: list[np.ndarray]) -> TablePriors:
    pairs = zip(priors.parts, map(jnp.asarray, counts), strict=True)
    parts = [part.update(jnp.sum(n, axis=1), n[:, :-1]) for part, n in pairs]
    return TablePriors(priors.network, tuple(parts))


@eqx.filter_jit
def _with_means(priors: TablePriors) -> BayesianNetwork:
    return priors._with([part.predictive().probabilities for part in priors.parts])


@eqx.filter_jit
def _log_normaliser(priors: TablePriors) -> Array:
    return sum((part.log_normaliser() for part in priors.parts), jnp.zeros(()))


class EvenTables(eqx.Module):
    """The prior of the tables of any Bayesian network of labels: `TablePriors.even`, whatever its graph.

    For `infer(network, rows, prior=EvenTables(1.0), …)` and for `compare`.

    Attributes:
        alpha: how many imagined rows.

    >>> coin = BayesianNetwork.of_tables({"coin": [0.5, 0.5]}, {})
    >>> round(EvenTables(2.0).of(coin).log_evidence([[0.0], [0.0], [1.0]]), 6)  # 1/2 · 2/3 · 1/4
    -2.484907
    """

    alpha: float = eqx.field(static=True, default=1.0)

    def of(self, network: BayesianNetwork) -> TablePriors:
        """The prior of the tables of one network."""
        return TablePriors.even(network, self.alpha)
