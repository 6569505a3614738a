"""Factors over finite variables, in log space, and the elimination of variables.

The same lines serve NumPy, on the host and with an axis of rows first, and JAX, for one event in a program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ._graphs import UndirectedGraph

# joint states of one table that elimination may form: a quarter of a gigabyte
LARGEST_TABLE = 2**25


def namespace(array: Any) -> Any:
    """NumPy or its twin in JAX, whichever an array is of."""
    return jnp if isinstance(array, jax.Array) else np


def log_sum(logs: Any, axes: tuple[int, ...]) -> Any:
    """log Σ exp along some axes; −∞, with slope zero, where nothing is possible."""
    if not axes:
        return logs
    xp = namespace(logs)
    high = xp.max(logs, axis=axes, keepdims=True)
    shift = xp.where(high > -np.inf, high, 0)
    if xp is jnp:
        shift = jax.lax.stop_gradient(shift)
    total = xp.sum(xp.exp(logs - shift), axis=axes, keepdims=True)
    some = total > 0
    return xp.squeeze(xp.where(some, xp.log(xp.where(some, total, 1)) + shift, -np.inf), axis=axes)


def log_ratio(part: Any, whole: Any) -> Any:
    """part − whole of logarithms, where 0 / 0 is 0."""
    xp = namespace(part)
    some = whole > -np.inf
    return xp.where(some, part - xp.where(some, whole, 0), -np.inf)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A non-negative function of a few finite variables:  φ(x_C) ≥ 0, as log φ.

    Attributes:
        scope: the variables C, names or numbers.
        logs: log φ, an axis for each of them, after axes of rows if there are any.

    >>> rain = Factor(("rain",), np.log([0.8, 0.2]))
    >>> wet = Factor(("rain", "wet"), np.log([[0.9, 0.1], [0.2, 0.8]]))
    >>> np.exp((rain * wet).sum_out("rain").logs).round(6).tolist()
    [0.76, 0.24]
    """

    scope: tuple[Any, ...]
    logs: Any

    def __post_init__(self) -> None:
        if not isinstance(self.scope, tuple):
            object.__setattr__(self, "scope", tuple(self.scope))

    @classmethod
    def of_potential(cls, scope: Sequence[Any], values: Any) -> Self:
        """The factor with these values, which are not negative."""
        values = np.asarray(values, float)
        count = len(tuple(scope))
        if values.ndim != count:
            raise ValueError(
                f"The 'values' of a Factor must have an axis for each of its {count} variables. "
                f"Got the shape {values.shape} instead."
            )
        if not (values >= 0).all() or not np.isfinite(values).all():
            wrong = values[~((values >= 0) & np.isfinite(values))][0]
            raise ValueError(f"The 'values' of a Factor must be non-negative. Got {wrong:g} instead.")
        with np.errstate(divide="ignore"):
            return cls(tuple(scope), np.log(values))

    @property
    def rows(self) -> int:
        """How many axes of rows come first."""
        return self.logs.ndim - len(self.scope)

    def sizes(self) -> dict[Any, int]:
        """How many states each variable has."""
        return dict(zip(self.scope, self.logs.shape[self.rows :], strict=True))

    def over(self, scope: Sequence[Any]) -> Any:
        """log φ with an axis for each variable of `scope`, of length one where φ does not depend on it."""
        if self.scope == scope:
            return self.logs
        lead, size = self.rows, self.sizes()
        order = [lead + self.scope.index(variable) for variable in scope if variable in size]
        moved = self.logs.transpose((*range(lead), *order))
        return moved.reshape((*moved.shape[:lead], *(size.get(variable, 1) for variable in scope)))

    def __mul__(self, other: Factor) -> Factor:
        """φ(x_C) φ′(x_D), a factor of all their variables."""
        scope = (*self.scope, *(v for v in other.scope if v not in self.scope))
        return Factor(scope, self.over(scope) + other.over(scope))

    def _without(self, variables: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        gone = {variables} if isinstance(variables, str) or np.ndim(variables) == 0 else set(variables)
        axes = tuple(self.rows + i for i, v in enumerate(self.scope) if v in gone)
        return axes, tuple(v for v in self.scope if v not in gone)

    def sum_out(self, variables: Any) -> Factor:
        """Σ φ over all states of some variables."""
        axes, scope = self._without(variables)
        return Factor(scope, log_sum(self.logs, axes))

    def max_out(self, variables: Any) -> Factor:
        """max φ over all states of some variables."""
        axes, scope = self._without(variables)
        return Factor(scope, namespace(self.logs).max(self.logs, axis=axes) if axes else self.logs)

    def marginal(self, scope: Sequence[Any]) -> Factor:
        """Σ φ over all other variables, with its axes in the order of `scope`."""
        rest = self.sum_out([v for v in self.scope if v not in scope])
        return Factor(tuple(scope), rest.over(scope))

    def at(self, states: Mapping[Any, int]) -> Factor:
        """The slice of φ where some variables have the given states."""
        index = tuple(states.get(v, slice(None)) for v in self.scope)
        scope = tuple(v for v in self.scope if v not in states)
        return Factor(scope, self.logs[(..., *index)])

    def normalise(self) -> tuple[Factor, Any]:
        """φ / Z with sum one, and log Z."""
        total = log_sum(self.logs, tuple(range(self.rows, self.logs.ndim)))
        return Factor(self.scope, log_ratio(self.logs, total[(..., *[None] * len(self.scope))])), total

    def probabilities(self) -> Any:
        """φ / Z."""
        return namespace(self.logs).exp(self.normalise()[0].logs)


def sizes_of(factors: Iterable[Factor]) -> dict[Any, int]:
    """How many states each variable of some factors has, refused where they do not agree."""
    found: dict[Any, int] = {}
    for factor in factors:
        for variable, size in factor.sizes().items():
            if found.setdefault(variable, size) != size:
                raise ValueError(
                    f"All factors must give a variable as many states. Got {found[variable]} and {size} "
                    f"for {variable!r}."
                )
    return found


def refuse_large(clique: Sequence[Any], sizes: Mapping[Any, int], most: int = LARGEST_TABLE) -> None:
    """Refuses a table that is hopeless to form."""
    states = 1
    for variable in clique:
        states *= sizes[variable]
    if states > most:
        raise ValueError(
            f"Exact inference would need a table of {Decimal(states):.2e} joint states of {len(clique)} "
            f"variables (tree width {len(clique) - 1}), and at most {most:.3g} are formed. Use sampling, "
            "such as inference.MarkovChain, or inference.loopy_belief_propagation."
        )


def eliminate(
    factors: Sequence[Factor], keep: Sequence[Any] = (), order: Sequence[Any] | None = None
) -> Factor:
    """Σ Π φ over all variables but those to `keep`, one variable after another (variable elimination).

    Args:
        factors: whose product it is.
        keep: the variables of the result, in the order of its axes.
        order: in which the others are eliminated; by min-fill if None.

    >>> chain = [Factor("a", np.log([0.5, 0.5])), Factor("ab", np.log([[0.9, 0.1], [0.3, 0.7]]))]
    >>> np.exp(eliminate(chain, "b").logs).round(6).tolist()
    [0.6, 0.4]
    """
    sizes, keep, left = sizes_of(factors), tuple(keep), list(factors)
    unknown = [v for v in keep if v not in sizes]
    if unknown:
        raise ValueError(f"The variables to keep must be in a factor. Got {unknown[0]!r}.")
    if order is None:
        # what is kept stays together at the end
        graph = UndirectedGraph.of_scopes(sizes, [*(f.scope for f in left), keep])
        order = [v for v in graph.triangulate(sizes).order if v not in keep]
    for variable in order:
        touched = [f for f in left if variable in f.scope]
        left = [f for f in left if variable not in f.scope]
        if touched:
            left.append(_product(touched, sizes).sum_out([variable]))
    whole = _product(left, sizes)
    return Factor(keep, whole.over(keep)) if keep else whole


def _product(factors: Sequence[Factor], sizes: Mapping[Any, int]) -> Factor:
    if not factors:
        return Factor((), np.zeros(()))
    refuse_large(tuple({v for f in factors for v in f.scope}), sizes)
    found = factors[0]
    for factor in factors[1:]:
        found = found * factor
    return found
