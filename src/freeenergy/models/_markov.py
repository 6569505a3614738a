"""Markov chains of symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import xlogy
from jaxtyping import Float

from .._core import buffer, parameter, simplex
from ..inference import Filtered, FiniteBeliefs, FiniteStep, filter, sample_paths, smooth
from ..inference._chain_finite import nan_if_impossible
from ._base import AbstractExpectationMaximisation, AbstractWithPrior
from ._series import AbstractSequenceModel, Series
from ._transitions import dirichlet_log_density, dirichlet_mode


class MarkovStatistics(NamedTuple):
    """Expected counts of first symbols and of pairs of symbols, for each column."""

    starts: Float[Array, "dim symbols"]
    pairs: Float[Array, "dim symbols symbols"]


class MarkovChain(
    AbstractExpectationMaximisation[MarkovStatistics], AbstractSequenceModel, AbstractWithPrior
):
    """A chain of symbols 0 … C−1 in each column:  p(x) = Π_d π_d(x_1d) Π_t A_d(x_{t−1,d}, x_td).

    Also known as a bigram model.  A hidden Markov model whose state is seen: what is missing is inferred as
    a hidden state is, by EM at temperature one.

    Attributes:
        initial: π, a row for each column of the series.
        transition: A[d, i, j] = p(next = j | now = i) in column d.
        concentration: α of a Dirichlet prior of each row of A, as for `Transition`.
        initial_concentration: α of a Dirichlet prior of π.
        before: counts of series that were seen before, which learning adds to those it sees.

    >>> from freeenergy.models import one_series
    >>> chain = MarkovChain(jnp.array([[1.0, 0.0]]), jnp.array([[[0.9, 0.1], [0.3, 0.7]]]))
    >>> round(float(jnp.exp(chain.log_prob(one_series(jnp.array([[0.0], [jnp.nan], [1.0]]))))), 4)
    0.16
    """

    initial: Float[Array, "dim symbols"] = parameter(simplex)
    transition: Float[Array, "dim symbols symbols"] = parameter(simplex)
    concentration: Float[Array, "*shape"] | None = buffer(default=None)
    initial_concentration: Float[Array, "*shape"] | None = buffer(default=None)
    before: MarkovStatistics | None = buffer(default=None)

    rows_at_once: ClassVar[int] = 64

    def _labels(self) -> Float[Array, " symbols"]:
        return jnp.arange(self.initial.shape[1], dtype=self.initial.dtype)

    def _each(self, function: Callable[..., Any], series: Series) -> Any:
        """`function(beliefs, initial, steps)` for each column."""

        def column(initial: Array, transition: Array, x: Array) -> Any:
            possible = jnp.isnan(x)[:, None] | (x[:, None] == self._labels()[None])
            logs = jnp.where(possible, 0.0, -jnp.inf)
            return function(FiniteBeliefs(transition), initial, FiniteStep(logs))

        return jax.vmap(column, (0, 0, 1))(self.initial, self.transition, series.values)

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        def logs(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Array:
            return filter(beliefs, initial, steps, None, series.starts, series.real).log_evidence

        return jnp.sum(self._each(logs, series), axis=0)

    def log_prob(self, series: Series) -> Float[Array, ""]:
        """log p(x) of what is observed."""
        return jnp.sum(self.step_evidence(series))

    def symbols(self, series: Series) -> Float[Array, "time dim symbols"]:
        """p(x_td = c | what is observed) at [t, d, c]; NaN in a column that cannot occur."""

        def both(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Array:
            result = filter(beliefs, initial, steps, None, series.starts, series.real)
            return smooth(beliefs, result, steps, series.starts, series.real).marginals

        return nan_if_impossible(jnp.swapaxes(self._each(both, series), 0, 1))

    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        return jnp.where(jnp.isnan(series.values), self.symbols(series) @ self._labels(), series.values)

    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        def draw(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Filtered:
            return filter(beliefs, initial, steps, None, series.starts, series.real)

        filtered = self._each(draw, series)
        steps = FiniteStep(jnp.zeros_like(filtered.filtered[0]))
        keys = jax.random.split(key, len(self.initial))
        states = jax.vmap(
            lambda a, f, k: sample_paths(FiniteBeliefs(a), f, steps, series.starts, series.real, key=k),
            (0, 0, 0),
            1,
        )(self.transition, filtered, keys)
        possible = jnp.all(filtered.log_evidence > -jnp.inf, axis=1)
        drawn = jnp.where(possible[None], states.astype(series.values.dtype), jnp.nan)
        return jnp.where(jnp.isnan(series.values), drawn, series.values)

    def forecast(
        self, series: Series, steps: int, *, incomplete: bool = True
    ) -> Float[Array, "steps dim symbols"]:
        """p(x) of each of the `steps` after the last real one of a single series, for each column.

        After what cannot occur it is NaN.
        """

        def now(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Array:
            result = filter(beliefs, initial, steps, None, series.starts, series.real)
            return nan_if_impossible(result.filtered[-1])

        def body(belief: Array, _: None) -> tuple[Array, Array]:
            belief = jnp.einsum("di,dij->dj", belief, self.transition)
            return belief, belief

        return jax.lax.scan(body, self._each(now, series), None, length=steps)[1]

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        first, rest = jax.random.split(key)
        logs = jnp.log(self.transition)
        columns = jnp.arange(len(self.initial))

        def body(state: Array, k: Array) -> tuple[Array, Array]:
            return jax.random.categorical(k, logs[columns, state]), state

        state = jax.random.categorical(first, jnp.log(self.initial))
        states = jax.lax.scan(body, state, jax.random.split(rest, length))[1]
        return states.astype(self.initial.dtype)

    def prepare(self) -> None:
        return None

    def expect_prepared(
        self,
        prepared: None,
        x: Series,
        weight: Float[Array, " rows"],
        *,
        temperature: Float[Array, ""],
        incomplete: bool,
    ) -> tuple[MarkovStatistics, Float[Array, ""]]:
        def one(series: Series, w: Array) -> tuple[MarkovStatistics, Array]:
            first = (series.real & series.starts)[:, None]
            inner = (series.real & ~series.starts)[:, None]

            def column(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Any:
                result = filter(beliefs, initial, steps, None, series.starts, series.real)
                gamma = smooth(beliefs, result, steps, series.starts, series.real).marginals
                later = jnp.where(inner, gamma / jnp.where(result.predicted > 0, result.predicted, 1), 0)
                pairs = result.filtered[:-1].T @ later[1:]
                return jnp.sum(jnp.where(first, gamma, 0), axis=0), pairs, jnp.sum(result.log_evidence)

            starts, pairs, score = self._each(column, series)
            statistics = MarkovStatistics(w * starts, w * self.transition * pairs)
            return statistics, jnp.where(w > 0, -w * jnp.sum(score), 0)

        statistics, free = jax.vmap(one)(x, weight)
        return jax.tree.map(lambda a: jnp.sum(a, axis=0), statistics), jnp.sum(free)

    def maximise(self, statistics: MarkovStatistics) -> MarkovChain:
        if self.before is not None:
            statistics = jax.tree.map(jnp.add, statistics, self.before)
        return MarkovChain(
            dirichlet_mode(statistics.starts, self.initial_concentration, self.initial > 0),
            dirichlet_mode(statistics.pairs, self.concentration, self.transition > 0),
            self.concentration,
            self.initial_concentration,
            self.before,
        )

    def log_prior(self) -> Float[Array, ""]:
        prior = dirichlet_log_density(self.transition, self.concentration) + dirichlet_log_density(
            self.initial, self.initial_concentration
        )
        if self.before is None:
            return prior
        pairs = xlogy(self.before.pairs, self.transition)
        return prior + jnp.sum(pairs) + jnp.sum(xlogy(self.before.starts, self.initial))
