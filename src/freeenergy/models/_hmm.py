"""Hidden Markov models: a chain of states, and a member of any family for each state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from .._core import buffer, parameter, simplex
from ..distributions import AbstractExponentialFamily
from ..inference import (
    BestPaths,
    Filtered,
    FiniteBeliefs,
    FiniteStep,
    Smoothed,
    best_paths,
    filter,
    sample_paths,
    smooth,
    stationary,
)
from ..inference._chain_finite import nan_if_impossible, tempered
from ._base import AbstractExpectationMaximisation, AbstractWithPrior
from ._emissions import AbstractEmissions, FamilyEmissions, MixtureEmissions
from ._mixture import Mixture
from ._series import AbstractRescalableSeries, AbstractSequenceModel, Series
from ._transitions import (
    AbstractCountedTransition,
    AbstractTransition,
    LogisticTransition,
    Transition,
    dirichlet_log_density,
    dirichlet_mode,
)
from ._units import SeriesInUnits


def _as_transition(value: Any) -> AbstractTransition:
    return value if isinstance(value, AbstractTransition) else Transition(value)


def _as_emissions(value: Any) -> AbstractEmissions:
    if isinstance(value, Mixture):
        return MixtureEmissions(value)
    return FamilyEmissions(value) if isinstance(value, AbstractExponentialFamily) else value


class HMMStatistics(NamedTuple):
    """Expected counts of first states, what the transition needs (of most, expected counts of pairs of
    states), and what the emissions need."""

    starts: Float[Array, " states"]
    pairs: Any
    emissions: Any


class HMM(AbstractExpectationMaximisation[HMMStatistics], AbstractRescalableSeries, AbstractWithPrior):
    """A hidden Markov model:  p(x, y) = π(x_1) Π_t A(x_{t−1}, x_t) Π_t p(y_t | x_t).

    Rows of A are the states that are left: A[i, j] = p(next = j | now = i).  EM for it is the
    Baum–Welch algorithm, at temperature zero Viterbi training.  Both A and the emissions may depend on
    the inputs u_t of a series; A(u_t) leads to x_t.  Also known as a Markov-switching model.

    Attributes:
        initial: π; None starts from the stationary distribution of A.
        transition: A, as an array or an `AbstractTransition`.
        emissions: a stack of members of an exponential family, or a `Mixture` with a leading axis of
            states, or any `AbstractEmissions`.
        concentration: α of a Dirichlet prior of π.

    >>> from freeenergy.distributions import Categorical
    >>> ice_creams = Categorical(jnp.array([[[0.2, 0.4, 0.4]], [[0.5, 0.4, 0.1]]]))
    >>> weather = HMM(jnp.array([0.8, 0.2]), jnp.array([[0.6, 0.4], [0.5, 0.5]]), ice_creams)
    >>> from freeenergy.models import one_series
    >>> diary = one_series(jnp.array([[2.0], [0.0], [2.0]]))
    >>> round(float(jnp.exp(weather.log_prob(diary))), 6)
    0.028562
    >>> weather.decode(diary).states[:, 0].tolist()
    [0, 1, 0]
    """

    initial: Float[Array, " states"] | None = parameter(simplex)
    transition: AbstractTransition = eqx.field(converter=_as_transition)  # pyright: ignore[reportGeneralTypeIssues]
    emissions: AbstractEmissions = eqx.field(converter=_as_emissions)  # pyright: ignore[reportGeneralTypeIssues]
    concentration: Float[Array, "*shape"] | None = buffer(default=None)

    # series: what they need is kept for all time steps
    rows_at_once: ClassVar[int] = 64

    @property
    def size(self) -> int:
        """The number of states."""
        return self.emissions.size

    def start(self) -> Float[Array, " states"]:
        """p(x_1)."""
        return stationary(self.transition.matrix()) if self.initial is None else self.initial

    def _beliefs(self) -> FiniteBeliefs:
        return FiniteBeliefs(None if self.transition.varies else self.transition.matrix())

    def _steps(self, series: Series, incomplete: bool = True) -> FiniteStep:
        prepared = self.emissions.prepare()
        logs = self.emissions.log_probs(prepared, series.values, incomplete, series.inputs)
        return FiniteStep(self._allowed(logs, series), self._matrices(series.inputs))

    def _matrices(
        self, inputs: Float[Array, "time inputs"] | None
    ) -> Float[Array, "time states states"] | None:
        """A(u_t) for each step, if it varies."""
        if not self.transition.varies:
            return None
        if inputs is None:
            raise ValueError("A transition that varies needs the inputs of every time step. Got None.")
        return jax.vmap(self.transition.matrix)(inputs)

    def _allowed(
        self, logs: Float[Array, "*steps states"], series: Series
    ) -> Float[Array, "*steps states"]:
        """Log-likelihoods with known states alone possible."""
        if series.states is not None:
            known = series.states[..., None]
            each = jnp.arange(self.size, dtype=known.dtype).reshape((1,) * (known.ndim - 1) + (-1,))
            other = (known >= 0) & (known != each)
            logs = jnp.where(other, -jnp.inf, logs)
        return logs

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        return self.filter(series, incomplete=incomplete).log_evidence

    def log_prob(self, series: Series) -> Float[Array, ""]:
        """log p(y), with the known states if there are any."""
        return jnp.sum(self.step_evidence(series))

    def filter(self, series: Series, *, incomplete: bool = True) -> Filtered:
        """p(x_t | y_≤t), p(x_t | y_<t) and log p(y_t | y_<t): the forward recursion (Hamilton's filter)."""
        steps = self._steps(series, incomplete)
        return filter(self._beliefs(), self.start(), steps, None, series.starts, series.real)

    def smooth(self, series: Series, *, incomplete: bool = True) -> Smoothed:
        """p(x_t | y) and p(x_t, x_{t+1} | y): the forward–backward algorithm."""
        steps = self._steps(series, incomplete)
        filtered = filter(self._beliefs(), self.start(), steps, None, series.starts, series.real)
        return smooth(self._beliefs(), filtered, steps, series.starts, series.real)

    def sample_states(self, series: Series, *, key: Array) -> Int[Array, " time"]:
        """A draw of all hidden states given all observations; −1 if these cannot occur."""
        steps = self._steps(series)
        filtered = filter(self._beliefs(), self.start(), steps, None, series.starts, series.real)
        path = sample_paths(self._beliefs(), filtered, steps, series.starts, series.real, key=key)
        return jnp.where(jnp.all(filtered.log_evidence > -jnp.inf), path, -1)

    def decode(self, series: Series, n: int = 1, *, incomplete: bool = True) -> BestPaths:
        """The `n` most probable paths of hidden states, by Viterbi's algorithm."""
        fixed = None if self.transition.varies else self.transition.matrix()
        steps = self._steps(series, incomplete)
        return best_paths(self.start(), fixed, steps, n, series.starts, series.real)

    def forecast(
        self,
        series: Series,
        steps: int,
        *,
        incomplete: bool = True,
        inputs: Float[Array, "steps inputs"] | None = None,
    ) -> tuple[Float[Array, "steps states"], Float[Array, "steps dim"]]:
        """p(x) and E[y] for each of the `steps` after the last real one of a single series.

        `inputs` are those of these steps.  After a series that cannot occur they are NaN.
        """
        now = nan_if_impossible(self.filter(series, incomplete=incomplete).filtered[-1])
        matrices = self._matrices(inputs)
        fixed = self.transition.matrix() if matrices is None else None

        def body(belief: Array, own: Array | None) -> tuple[Array, Array]:
            matrix: Any = fixed if own is None else own
            belief = belief @ matrix
            return belief, belief

        beliefs = jax.lax.scan(body, now, matrices, length=steps)[1]
        if inputs is None:
            return beliefs, beliefs @ self.means()
        return beliefs, jnp.einsum("tk,tkd->td", beliefs, jax.vmap(self.means)(inputs))

    def means(self, inputs: Float[Array, " inputs"] | None = None) -> Float[Array, "states dim"]:
        """E[y | x = k] for each state k, given the inputs of a step."""

        def draw() -> Array:
            return self.emissions.sample(jnp.asarray(0), inputs, key=jax.random.key(0))

        nothing = jnp.full(jax.eval_shape(draw).shape, jnp.nan)
        return self.emissions.complete_mean(nothing, inputs)

    def label_probability(
        self,
        row: Float[Array, " dim"],
        shares: Float[Array, " states"],
        column: Int[Array, ""],
        label: Float[Array, ""],
    ) -> Float[Array, ""]:
        """p(label in a column | the series) where it is missing:  Σ_k γ_k p(label | x_t = k, rest of y_t).

        `row` is y_t, and `shares` are γ, the smoothed probabilities of its state.
        """
        rows = jnp.stack([row, row.at[column].set(label)])
        seen, more = self.emissions.log_probs(self.emissions.prepare(), rows, incomplete=True, inputs=None)
        return jnp.sum(jnp.where(shares > 0, shares * jnp.exp(more - seen), 0))

    def sample_with_states(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> tuple[Int[Array, " time"], Float[Array, "time dim"]]:
        """The hidden states and the values of a series."""
        first, rest, draw = jax.random.split(key, 3)
        matrices = self._matrices(inputs)
        # after each state the next is drawn, with the inputs of its own step
        logs = None if matrices is None else jnp.roll(jnp.log(matrices), -1, axis=0)
        fixed = jnp.log(self.transition.matrix()) if matrices is None else None

        def body(state: Array, at: tuple[Array, Array | None]) -> tuple[Array, Array]:
            k, own = at
            rows: Any = fixed if own is None else own
            return jax.random.categorical(k, rows[state]), state

        state = jax.random.categorical(first, jnp.log(self.start()))
        _, states = jax.lax.scan(body, state, (jax.random.split(rest, length), logs))
        keys = jax.random.split(draw, length)

        def emit(s: Array, u: Array | None, k: Array) -> Array:
            return self.emissions.sample(s, u, key=k)

        return states, jax.vmap(emit)(states, inputs, keys)

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        return self.sample_with_states(length, key=key, inputs=inputs)[1]

    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        gamma = nan_if_impossible(self.smooth(series).marginals)

        def row(x: Array, g: Array, u: Array | None) -> Array:
            return jnp.where(jnp.isnan(x), g @ self.emissions.complete_mean(x, u), x)

        return jax.vmap(row)(series.values, gamma, series.inputs)

    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        path_key, fill_key = jax.random.split(key)
        states = self.sample_states(series, key=path_key)
        keys = jax.random.split(fill_key, len(states))

        def fill(x: Array, s: Array, u: Array | None, k: Array) -> Array:
            filled = self.emissions.complete_sample(x, s, u, key=k)
            return jnp.where(jnp.isnan(x) & (s < 0), jnp.nan, filled)

        return jax.vmap(fill)(series.values, states, series.inputs, keys)

    def _learned(self) -> AbstractCountedTransition | LogisticTransition:
        if not isinstance(self.transition, AbstractCountedTransition | LogisticTransition):
            raise ValueError(
                "EM needs a transition that counts or logistic regression determine. "
                f"Got {type(self.transition).__name__}, which is learned with Gradient."
            )
        return self.transition

    def prepare(self) -> tuple[Array, Array, Array | None]:
        learned = self._learned()
        return self.emissions.prepare(), self.start(), None if learned.varies else learned.matrix()

    def expect_prepared(
        self,
        prepared: tuple[Array, Array, Array | None],
        x: Series,
        weight: Float[Array, " rows"],
        *,
        temperature: Float[Array, ""],
        incomplete: bool,
    ) -> tuple[HMMStatistics, Float[Array, ""]]:
        coefficients, initial, transition = prepared
        # time first: a step of the recursion takes neighbouring rows
        series = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), x)
        length, rows = series.real.shape
        values = series.values.reshape(length * rows, -1)
        inputs = None if series.inputs is None else series.inputs.reshape(length * rows, -1)
        logs = self.emissions.log_probs(coefficients, values, incomplete, inputs)
        logs = self._allowed(logs.reshape(length, rows, -1), series)
        matrices = self._matrices(inputs)
        if matrices is not None:
            matrices = matrices.reshape(length, rows, *matrices.shape[1:])
        # how much of a pair that ends at t counts
        joined = jnp.where(series.real & ~series.starts, weight[None, :], 0)[..., None]

        def pairs_of(before: Array, later: Array, kernel: Callable[[Any], Array]) -> Any:
            """What the transition needs of the expected pairs before_i kernel(A)_ij later_j."""
            learned = self._learned()
            if isinstance(learned, AbstractCountedTransition):
                return kernel(transition) * _product(before[:-1], later[1:])
            return learned.expect(_flat(series.inputs[1:]), _flat(before[:-1]), _flat(later[1:]), kernel)

        def warm() -> tuple[Array, Any, Array]:
            def kernel(matrix: Array) -> Array:
                return tempered(matrix, temperature)

            start = tempered(initial, temperature)
            beliefs = FiniteBeliefs(None if transition is None else kernel(transition))
            kernels = None if matrices is None else kernel(matrices)

            def one(
                logs: Array, kernels: Array | None, starts: Array, real: Array
            ) -> tuple[Filtered, Array]:
                steps = FiniteStep(logs / temperature, kernels)
                result = filter(beliefs, start, steps, None, starts, real)
                return result, smooth(beliefs, result, steps, starts, real).marginals

            result, gamma = jax.vmap(one, 1, 1)(logs, kernels, series.starts, series.real)
            later = joined * gamma / jnp.where(result.predicted > 0, result.predicted, 1)
            score = temperature * jnp.sum(result.log_evidence, axis=0)
            return gamma, pairs_of(result.filtered, later, kernel), score

        def cold() -> tuple[Array, Any, Array]:
            def one(logs: Array, matrices: Array | None, starts: Array, real: Array) -> tuple[Array, Array]:
                best = best_paths(initial, transition, FiniteStep(logs, matrices), 1, starts, real)
                return jax.nn.one_hot(best.states[:, 0], self.size, dtype=logs.dtype), best.log_prob[0]

            gamma, score = jax.vmap(one, 1, (1, 0))(logs, matrices, series.starts, series.real)
            return gamma, pairs_of(gamma, joined * gamma, jnp.ones_like), score

        gamma, pairs, score = jax.lax.cond(temperature > 0, warm, cold)
        counted = jnp.where(series.real, weight[None, :], 0)[..., None] * gamma
        begins = jnp.sum(jnp.where(series.starts[..., None], counted, 0), axis=(0, 1))
        r = counted.reshape(length * rows, -1)
        if incomplete:
            # a step of which nothing was seen says nothing about the emissions
            r = jnp.where(jnp.all(jnp.isnan(values), axis=1)[:, None], 0, r)
        statistics = HMMStatistics(
            begins, pairs, self.emissions.expect(coefficients, values, r, incomplete, inputs)
        )
        return statistics, jnp.sum(jnp.where(weight > 0, -weight * score, 0))

    def maximise(self, statistics: HMMStatistics) -> HMM:
        learned = self._learned()
        emissions = self.emissions.maximise(statistics.emissions)
        if self.initial is None and isinstance(learned, AbstractCountedTransition):
            return HMM(None, self._stationary_maximise(learned, statistics), emissions)
        initial = dirichlet_mode(statistics.starts, self.concentration, self.start() > 0)
        return HMM(initial, learned.maximise(statistics.pairs), emissions, self.concentration)

    def _stationary_maximise(
        self, transition: AbstractCountedTransition, statistics: HMMStatistics
    ) -> AbstractCountedTransition:
        """The transition also says where series start: counts are corrected by the slope of that.

        The fixed point of the correction is a maximum; a step that would lower the objective is halved
        towards what was there before.
        """
        starts, pairs = statistics.starts, statistics.pairs

        def gain(matrix: Array) -> Array:
            first = jnp.where(starts > 0, starts * jnp.log(stationary(matrix)), 0)
            rest = jnp.where(pairs > 0, pairs * jnp.log(jnp.where(matrix > 0, matrix, 1)), 0)
            return jnp.sum(first) + jnp.sum(rest)

        def worth(member: AbstractCountedTransition) -> Array:
            return gain(member.matrix()) + member.log_prior()

        old = transition.matrix()
        slope = jax.grad(lambda m: jnp.sum(starts * jnp.log(stationary(m))))(old)
        wanted = transition.maximise(jnp.maximum(pairs + old * slope, 0)).matrix()

        def fitted(share: Array) -> AbstractCountedTransition:
            mixed = share * wanted + (1 - share) * old
            return transition.maximise(mixed * jnp.maximum(jnp.sum(pairs, axis=1, keepdims=True), 1))

        before = worth(transition)
        share = jax.lax.while_loop(
            lambda s: (worth(fitted(s)) < before) & (s > 1e-6), lambda s: s / 2, jnp.ones(())
        )
        new, good = fitted(share), share > 1e-6
        return jax.tree.map(lambda a, b: jnp.where(good, a, b) if eqx.is_array(a) else a, new, transition)

    def log_prior(self) -> Float[Array, ""]:
        total = self.emissions.log_prior()
        if isinstance(self.transition, AbstractCountedTransition | LogisticTransition):
            total = total + self.transition.log_prior()
        if self.initial is not None:
            total = total + dirichlet_log_density(self.initial, self.concentration)
        return total

    def in_units(
        self,
        shift: Array,
        scale: Array,
        input_shift: Array | None = None,
        input_scale: Array | None = None,
    ) -> AbstractSequenceModel:
        """The law of shift + scale · y given input_shift + input_scale · u, with the same states.

        A `SeriesInUnits` where the emissions or the transition are of no such kind in other units.
        """
        emissions = self.emissions.in_units(shift, scale, input_shift, input_scale)
        transition = self.transition.in_units(input_shift, input_scale)
        if emissions is None or transition is None:
            return SeriesInUnits(self, shift, scale, input_shift, input_scale)
        return HMM(self.initial, transition, emissions, self.concentration)


def _flat(a: Float[Array, "*rows size"]) -> Float[Array, "steps size"]:
    """Steps of all series as rows."""
    return a.reshape(-1, a.shape[-1])


def _product(left: Float[Array, "*rows m"], right: Float[Array, "*rows n"]) -> Float[Array, "m n"]:
    """Σ over time and series of the outer products of the last axes."""
    return _flat(left).T @ _flat(right)
