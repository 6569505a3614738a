"""Hidden Markov models: a chain of states, and a member of any family for each state."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from .._core import boltzmann, buffer, parameter, simplex
from ..distributions import AbstractConjugatePrior, AbstractExponentialFamily, stack_size
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
from ..inference._chain_finite import tempered
from ._base import AbstractExpectationMaximisation, AbstractRegularised
from ._mixture import Mixture, MixtureStatistics
from ._series import AbstractSequenceModel, Series

# incomplete rows need moments per row and state; this many rows at a time keeps them small
_INCOMPLETE_BLOCK = 32


def dirichlet_mode(counts: Array, concentration: Array | None, support: Array) -> Array:
    """Probabilities ∝ counts + α − 1 along the last axis, where `support` allows any.

    Without counts in a row nothing is known of it: its probabilities are even.
    """
    if concentration is not None:
        counts = counts + jnp.broadcast_to(concentration - 1, counts.shape)
    mass = jnp.where(support, jnp.maximum(counts, 0), 0)
    mass = jnp.where(jnp.sum(mass, axis=-1, keepdims=True) > 0, mass, support.astype(counts.dtype))
    return mass / jnp.sum(mass, axis=-1, keepdims=True)


def dirichlet_log_density(p: Array, concentration: Array | None) -> Array:
    """Σ over rows of log Dirichlet(p; α), over the entries that are not zero."""
    if concentration is None:
        return jnp.zeros((), p.dtype)
    some = p > 0
    alpha = jnp.where(some, jnp.broadcast_to(concentration, p.shape), 0)
    terms = jnp.where(
        some, (alpha - 1) * jnp.log(jnp.where(some, p, 1)) - gammaln(jnp.where(some, alpha, 1)), 0
    )
    return jnp.sum(jnp.where(some, terms, 0)) + jnp.sum(gammaln(jnp.sum(alpha, axis=-1)))


class AbstractTransition(eqx.Module):
    """How a state follows from the one before."""

    @abc.abstractmethod
    def matrix(self, inputs: Array | None = None) -> Array:
        """p(x_t = j | x_{t−1} = i) at [i, j], given the inputs of step t."""

    @property
    @abc.abstractmethod
    def varies(self) -> bool:
        """Whether the matrix depends on the inputs."""


class AbstractCountedTransition(AbstractTransition):
    """A transition that expected counts of pairs determine in closed form."""

    @abc.abstractmethod
    def maximise(self, counts: Array) -> AbstractCountedTransition:
        """The most probable member given how often j followed i, at [i, j]."""

    @abc.abstractmethod
    def log_prior(self) -> Array:
        """log density of the parameters, zero without a prior."""


class Transition(AbstractCountedTransition):
    """Rows that are free; entries that are zero stay zero.

    Attributes:
        rows: p(next = j | now = i) at [i, j].
        concentration: α of a Dirichlet prior, of the shape of `rows` (or one that broadcasts to it): one
            more than the imagined counts.
    """

    rows: Array = parameter(simplex)
    concentration: Array | None = buffer(default=None)

    def matrix(self, inputs: Array | None = None) -> Array:
        return self.rows

    @property
    def varies(self) -> bool:
        return False

    def maximise(self, counts: Array) -> Transition:
        fresh = dirichlet_mode(counts, self.concentration, self.rows > 0)
        # a state that was never left keeps its row
        seen = jnp.sum(counts, axis=1, keepdims=True) > 0
        keep = ~seen if self.concentration is None else jnp.zeros_like(seen)
        return Transition(jnp.where(keep, self.rows, fresh), self.concentration)

    def log_prior(self) -> Array:
        return dirichlet_log_density(self.rows, self.concentration)


class TiedTransition(AbstractCountedTransition):
    """Entries with the same label share their probability:  A_ij = share_g / n_ig,  g = labels_ij.

    n_ig says how often the label g occurs in row i; −1 labels what is impossible.  With `labels` =
    identity matrix, for example, one number says how probable it is to stay, in whatever state.

    Attributes:
        share: the probability of each label.
        labels: a whole number for each entry; every row must hold every label.

    >>> stay = TiedTransition(jnp.array([0.2, 0.8]), jnp.eye(3, dtype=int))
    >>> [round(float(a), 3) for a in stay.matrix()[0]]
    [0.8, 0.1, 0.1]
    """

    share: Array = parameter(simplex)
    labels: Array  # pyright: ignore[reportGeneralTypeIssues]

    def _one_hot(self) -> Array:
        return jax.nn.one_hot(self.labels, len(self.share), dtype=self.share.dtype)

    def matrix(self, inputs: Array | None = None) -> Array:
        one_hot = self._one_hot()
        return (
            one_hot
            @ self.share
            / jnp.maximum(jnp.einsum("ijg,ig->ij", one_hot, jnp.sum(one_hot, axis=1)), 1)
        )

    @property
    def varies(self) -> bool:
        return False

    def maximise(self, counts: Array) -> TiedTransition:
        total = jnp.einsum("ij,ijg->g", counts, self._one_hot())
        return TiedTransition(dirichlet_mode(total, None, jnp.ones_like(total) > 0), self.labels)

    def log_prior(self) -> Array:
        return jnp.zeros((), self.share.dtype)


class InputTransition(AbstractTransition):
    """Transitions that depend on an input u_t:  A(u) = softmax of `logits(u)` along rows.

    It has no closed-form M step: learn it with `Gradient`.

    Attributes:
        logits: a module that maps u_t to an array of shape (states, states).
    """

    logits: Callable[[Array], Array]

    def matrix(self, inputs: Array | None = None) -> Array:
        if inputs is None:
            raise ValueError("InputTransition needs the inputs of every time step. Got None.")
        return jax.nn.softmax(self.logits(inputs), axis=-1)

    @property
    def varies(self) -> bool:
        return True


class AbstractEmissions(eqx.Module):
    """A distribution of the observation for each of K states; rows of `x` are time steps."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of states."""

    @abc.abstractmethod
    def prepare(self) -> Array:
        """What of the densities does not depend on the rows."""

    @abc.abstractmethod
    def log_probs(self, prepared: Array, x: Array, incomplete: bool) -> Array:
        """log p(x_n | k) at [n, k]; NaN is marginalised."""

    @abc.abstractmethod
    def expect(self, prepared: Array, x: Array, r: Array, incomplete: bool) -> MixtureStatistics:
        """Expected statistics under the probabilities r[n, k] of the states."""

    @abc.abstractmethod
    def maximise(self, statistics: MixtureStatistics) -> AbstractEmissions:
        """The most probable members for expected `statistics`."""

    @abc.abstractmethod
    def log_prior(self) -> Array:
        """log density of the parameters, zero without a prior."""

    @abc.abstractmethod
    def sample(self, state: Array, *, key: Array) -> Array:
        """An observation in `state`."""

    @abc.abstractmethod
    def complete_mean(self, x: Array) -> Array:
        """For each state, one row `x` with NaN replaced by means given the observed entries."""

    @abc.abstractmethod
    def complete_sample(self, x: Array, state: Array, *, key: Array) -> Array:
        """One row `x` with NaN drawn given the observed entries and `state`."""


def _blocks(a: Array) -> Array:
    """Rows in blocks, padded with zeros."""
    padded = jnp.concatenate([a, jnp.zeros((-len(a) % _INCOMPLETE_BLOCK, *a.shape[1:]), a.dtype)])
    return padded.reshape(-1, _INCOMPLETE_BLOCK, *a.shape[1:])


class FamilyEmissions(AbstractEmissions):
    """A member of one exponential family for each state.

    Attributes:
        members: a stack: every array has a leading axis of states.
        prior: makes the M step MAP in each member.
    """

    members: AbstractExponentialFamily
    prior: AbstractConjugatePrior | None = buffer(default=None)

    def _mixture(self) -> Mixture:
        """The members as a mixture, which knows how to fit them and to repair empty ones."""
        size = self.size
        return Mixture(jnp.full(size, 1 / size), self.members, None, self.prior)

    def member(self, state: Array | int) -> Any:
        """The member of `state`."""
        return self._mixture().component(state)

    @property
    def size(self) -> int:
        return stack_size(self.members)

    def prepare(self) -> Array:
        return self._mixture().prepare()

    def _exact(self, incomplete: bool) -> bool:
        return not incomplete or self.members.masks_missing

    def log_probs(self, prepared: Array, x: Array, incomplete: bool) -> Array:
        mixture = self._mixture()
        member = mixture.component(0)

        def plain(rows: Array) -> Array:
            features, base = jax.vmap(member.features)(rows), jax.vmap(member.log_base)(rows)
            return features @ prepared.T + base[:, None]

        def careful(rows: Array) -> Array:
            return jax.vmap(mixture.log_joint)(rows) - jnp.log(mixture.weights)[None]

        if self._exact(incomplete):
            return plain(x)
        parts = jax.lax.map(
            lambda rows: jax.lax.cond(jnp.any(jnp.isnan(rows)), careful, plain, rows), _blocks(x)
        )
        return parts.reshape(-1, self.size)[: len(x)]

    def expect(self, prepared: Array, x: Array, r: Array, incomplete: bool) -> MixtureStatistics:
        mixture = self._mixture()
        member = mixture.component(0)

        def plain(rows: Array, r: Array) -> Array:
            return r.T @ jax.vmap(member.features)(rows)

        def careful(rows: Array, r: Array) -> Array:
            def moments(row: Array) -> Array:
                return mixture._over_components(lambda c: c.expected_features(row))

            return jnp.einsum("nk,nks->ks", r, jax.vmap(moments)(rows))

        def block(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            return total + jax.lax.cond(jnp.any(jnp.isnan(part[0])), careful, plain, *part), None

        counts = jnp.sum(r, axis=0)
        if self._exact(incomplete):
            return MixtureStatistics(counts, plain(x, r))
        zero = jnp.zeros(prepared.shape, r.dtype)
        return MixtureStatistics(counts, jax.lax.scan(block, zero, (_blocks(x), _blocks(r)))[0])

    def maximise(self, statistics: MixtureStatistics) -> FamilyEmissions:
        return FamilyEmissions(self._mixture().maximise(statistics).components, self.prior)

    def log_prior(self) -> Array:
        return self._mixture().log_prior()

    def sample(self, state: Array, *, key: Array) -> Array:
        return self.member(state).sample(key=key)

    def complete_mean(self, x: Array) -> Array:
        return self._mixture()._over_components(lambda c: c.complete_mean(x))

    def complete_sample(self, x: Array, state: Array, *, key: Array) -> Array:
        return self.member(state).complete_sample(x, key=key)


def _is_stacked(leaf: Any) -> bool:
    return eqx.is_array(leaf) and leaf.ndim > 0


class MixtureEmissions(AbstractEmissions):
    """A mixture for each state.

    Attributes:
        mixtures: a `Mixture` whose weights have the shape (states, components), and whose members have
            two leading axes; its priors are those of every state.
    """

    mixtures: Mixture

    def _axes(self) -> Mixture:
        def stacked(tree: Any) -> Any:
            return jax.tree.map(lambda a: 0 if _is_stacked(a) else None, tree)

        shared = jax.tree.map(lambda _: None, (self.mixtures.weight_prior, self.mixtures.component_prior))
        return Mixture(0, stacked(self.mixtures.components), *shared)  # pyright: ignore[reportArgumentType]

    def _over_states(self, function: Callable[..., Any], *args: Any) -> Any:
        return jax.vmap(function, (self._axes(), *(0 for _ in args)))(self.mixtures, *args)

    def _one(self, state: Array | int) -> Mixture:
        return jax.tree.map(
            lambda axis, a: a if axis is None else a[state],
            self._axes(),
            self.mixtures,
            is_leaf=lambda a: a is None,
        )

    @property
    def size(self) -> int:
        return len(self.mixtures.weights)

    def prepare(self) -> Array:
        return self._over_states(lambda m: m.prepare())

    def _log_joint(self, prepared: Array, x: Array, incomplete: bool) -> Array:
        """log p(x_n, component m | k) at [n, k, m]."""
        member = self._one(0).component(0)

        def plain(rows: Array) -> Array:
            features, base = jax.vmap(member.features)(rows), jax.vmap(member.log_base)(rows)
            weights = jnp.log(self.mixtures.weights)[None]
            return jnp.einsum("nf,kmf->nkm", features, prepared) + weights + base[:, None, None]

        def careful(rows: Array) -> Array:
            return jax.vmap(lambda row: self._over_states(lambda m: m.log_joint(row)))(rows)

        if not incomplete or member.masks_missing:
            return plain(x)
        parts = jax.lax.map(
            lambda rows: jax.lax.cond(jnp.any(jnp.isnan(rows)), careful, plain, rows), _blocks(x)
        )
        return parts.reshape(-1, *self.mixtures.weights.shape)[: len(x)]

    def log_probs(self, prepared: Array, x: Array, incomplete: bool) -> Array:
        return jax.nn.logsumexp(self._log_joint(prepared, x, incomplete), axis=-1)

    def expect(self, prepared: Array, x: Array, r: Array, incomplete: bool) -> MixtureStatistics:
        member = self._one(0).component(0)
        shares = boltzmann(-self._log_joint(prepared, x, incomplete))[1] * r[..., None]

        def plain(rows: Array, r: Array) -> Array:
            return jnp.einsum("nkm,nf->kmf", r, jax.vmap(member.features)(rows))

        def careful(rows: Array, r: Array) -> Array:
            def moments(row: Array) -> Array:
                return self._over_states(lambda m: m._over_components(lambda c: c.expected_features(row)))

            return jnp.einsum("nkm,nkmf->kmf", r, jax.vmap(moments)(rows))

        def block(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            return total + jax.lax.cond(jnp.any(jnp.isnan(part[0])), careful, plain, *part), None

        counts = jnp.sum(shares, axis=0)
        if not incomplete or member.masks_missing:
            return MixtureStatistics(counts, plain(x, shares))
        zero = jnp.zeros(prepared.shape, r.dtype)
        return MixtureStatistics(counts, jax.lax.scan(block, zero, (_blocks(x), _blocks(shares)))[0])

    def maximise(self, statistics: MixtureStatistics) -> MixtureEmissions:
        # a state that explains nothing keeps its weights, as its components keep themselves
        empty = jnp.sum(statistics.counts, axis=1, keepdims=True) <= 0
        counts = jnp.where(empty, self.mixtures.weights, statistics.counts)
        old = (self.mixtures.weights, self.mixtures.components)
        stacked = jax.tree.map(_is_stacked, old)

        def one(mixture: Mixture, part: MixtureStatistics) -> Any:
            new = mixture.maximise(part)
            return eqx.filter((new.weights, new.components), stacked)

        fresh = self._over_states(one, MixtureStatistics(counts, statistics.features))
        weights, components = eqx.combine(fresh, eqx.filter(old, stacked, inverse=True))
        priors = (self.mixtures.weight_prior, self.mixtures.component_prior)
        return MixtureEmissions(Mixture(weights, components, *priors))

    def log_prior(self) -> Array:
        return jnp.sum(self._over_states(lambda m: m.log_prior()))

    def sample(self, state: Array, *, key: Array) -> Array:
        return self._one(state).sample(key=key)

    def complete_mean(self, x: Array) -> Array:
        return self._over_states(lambda m: m.complete_mean(x))

    def complete_sample(self, x: Array, state: Array, *, key: Array) -> Array:
        return self._one(state).complete_sample(x, key=key)


def _as_transition(value: Any) -> AbstractTransition:
    return value if isinstance(value, AbstractTransition) else Transition(value)


def _as_emissions(value: Any) -> AbstractEmissions:
    if isinstance(value, Mixture):
        return MixtureEmissions(value)
    return FamilyEmissions(value) if isinstance(value, AbstractExponentialFamily) else value


class HMMStatistics(NamedTuple):
    """Expected counts of first states and of pairs of states, and what the emissions need."""

    starts: Array
    pairs: Array
    emissions: MixtureStatistics


class HMM(AbstractExpectationMaximisation[HMMStatistics], AbstractSequenceModel, AbstractRegularised):
    """A hidden Markov model:  p(x, y) = π(x_1) Π_t A(x_{t−1}, x_t) Π_t p(y_t | x_t).

    Rows of A are the states that are left: A[i, j] = p(next = j | now = i).  EM for it is the
    Baum–Welch algorithm, at temperature zero Viterbi training.

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

    initial: Array | None = parameter(simplex)
    transition: AbstractTransition = eqx.field(converter=_as_transition)  # pyright: ignore[reportGeneralTypeIssues]
    emissions: AbstractEmissions = eqx.field(converter=_as_emissions)  # pyright: ignore[reportGeneralTypeIssues]
    concentration: Array | None = buffer(default=None)

    # series: what they need is kept for all time steps
    rows_at_once: ClassVar[int] = 64

    @property
    def size(self) -> int:
        """The number of states."""
        return self.emissions.size

    def start(self) -> Array:
        """p(x_1)."""
        return stationary(self.transition.matrix()) if self.initial is None else self.initial

    def _beliefs(self) -> FiniteBeliefs:
        return FiniteBeliefs(None if self.transition.varies else self.transition.matrix())

    def _steps(self, series: Series, incomplete: bool = True) -> FiniteStep:
        logs = self.emissions.log_probs(self.emissions.prepare(), series.values, incomplete)
        transition = None
        if self.transition.varies:
            if series.inputs is None:
                raise ValueError("A transition that varies needs the inputs of every time step. Got None.")
            transition = jax.vmap(self.transition.matrix)(series.inputs)
        return FiniteStep(self._allowed(logs, series), transition)

    def _allowed(self, logs: Array, series: Series) -> Array:
        """Log-likelihoods with known states alone possible."""
        if series.states is not None:
            known = series.states[..., None]
            each = jnp.arange(self.size, dtype=known.dtype).reshape((1,) * (known.ndim - 1) + (-1,))
            other = (known >= 0) & (known != each)
            logs = jnp.where(other, -jnp.inf, logs)
        return logs

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return self.filter(series, incomplete=incomplete).log_evidence

    def log_prob(self, series: Series) -> Array:
        """log p(y), with the known states if there are any."""
        return jnp.sum(self.step_log_prob(series))

    def filter(self, series: Series, *, incomplete: bool = True) -> Filtered:
        """p(x_t | y_≤t), p(x_t | y_<t) and log p(y_t | y_<t)."""
        steps = self._steps(series, incomplete)
        return filter(self._beliefs(), self.start(), steps, None, series.starts, series.real)

    def smooth(self, series: Series, *, incomplete: bool = True) -> Smoothed:
        """p(x_t | y) and p(x_t, x_{t+1} | y)."""
        steps = self._steps(series, incomplete)
        filtered = filter(self._beliefs(), self.start(), steps, None, series.starts, series.real)
        return smooth(self._beliefs(), filtered, steps, series.starts, series.real)

    def sample_states(self, series: Series, *, key: Array) -> Array:
        """A draw of all hidden states given all observations."""
        steps = self._steps(series)
        filtered = filter(self._beliefs(), self.start(), steps, None, series.starts, series.real)
        return sample_paths(self._beliefs(), filtered, steps, series.starts, series.real, key=key)

    def decode(self, series: Series, n: int = 1, *, incomplete: bool = True) -> BestPaths:
        """The `n` most probable paths of hidden states."""
        fixed = None if self.transition.varies else self.transition.matrix()
        steps = self._steps(series, incomplete)
        return best_paths(self.start(), fixed, steps, n, series.starts, series.real)

    def forecast(self, series: Series, steps: int, *, incomplete: bool = True) -> tuple[Array, Array]:
        """p(x) and E[y] for each of the `steps` after the last real one of a single series."""
        now = self.filter(series, incomplete=incomplete).filtered[-1]
        matrix = self.transition.matrix()

        def body(belief: Array, _: None) -> tuple[Array, Array]:
            belief = belief @ matrix
            return belief, belief

        beliefs = jax.lax.scan(body, now, None, length=steps)[1]
        return beliefs, beliefs @ self.means()

    def means(self) -> Array:
        """E[y | x = k] for each state k."""
        nothing = jnp.full(self._width(), jnp.nan)
        return self.emissions.complete_mean(nothing)

    def _width(self) -> int:
        return jax.eval_shape(lambda: self.emissions.sample(jnp.asarray(0), key=jax.random.key(0))).shape[0]

    def sample_with_states(self, length: int, *, key: Array) -> tuple[Array, Array]:
        """The hidden states and the values of a series."""
        first, rest, draw = jax.random.split(key, 3)
        logs = jnp.log(self.transition.matrix())

        def body(state: Array, k: Array) -> tuple[Array, Array]:
            return jax.random.categorical(k, logs[state]), state

        state = jax.random.categorical(first, jnp.log(self.start()))
        _, states = jax.lax.scan(body, state, jax.random.split(rest, length))
        keys = jax.random.split(draw, length)
        return states, jax.vmap(lambda s, k: self.emissions.sample(s, key=k))(states, keys)

    def sample(self, length: int, *, key: Array) -> Array:
        return self.sample_with_states(length, key=key)[1]

    def complete_mean(self, series: Series) -> Array:
        gamma = self.smooth(series).marginals

        def row(x: Array, g: Array) -> Array:
            return jnp.where(jnp.isnan(x), g @ self.emissions.complete_mean(x), x)

        return jax.vmap(row)(series.values, gamma)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        path_key, fill_key = jax.random.split(key)
        states = self.sample_states(series, key=path_key)
        keys = jax.random.split(fill_key, len(states))
        return jax.vmap(lambda x, s, k: self.emissions.complete_sample(x, s, key=k))(
            series.values, states, keys
        )

    def prepare(self) -> tuple[Array, Array, Array]:
        return self.emissions.prepare(), self.start(), self.transition.matrix()

    def expect_prepared(
        self,
        prepared: tuple[Array, Array, Array],
        x: Series,
        weight: Array,
        *,
        temperature: Array,
        incomplete: bool,
    ) -> tuple[HMMStatistics, Array]:
        coefficients, initial, transition = prepared
        # time first: a step of the recursion takes neighbouring rows
        series = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), x)
        length, rows = series.real.shape
        values = series.values.reshape(length * rows, -1)
        logs = self.emissions.log_probs(coefficients, values, incomplete).reshape(length, rows, -1)
        logs = self._allowed(logs, series)
        # how much of a pair that ends at t counts
        joined = jnp.where(series.real & ~series.starts, weight[None, :], 0)[..., None]

        def warm() -> tuple[Array, Array, Array]:
            start, matrix = tempered(initial, temperature), tempered(transition, temperature)
            beliefs = FiniteBeliefs(matrix)

            def one(logs: Array, starts: Array, real: Array) -> tuple[Filtered, Array]:
                steps = FiniteStep(logs / temperature)
                result = filter(beliefs, start, steps, None, starts, real)
                return result, smooth(beliefs, result, steps, starts, real).marginals

            result, gamma = jax.vmap(one, 1, 1)(logs, series.starts, series.real)
            later = joined * gamma / jnp.where(result.predicted > 0, result.predicted, 1)
            pairs = matrix * _product(result.filtered[:-1], later[1:])
            return gamma, pairs, temperature * jnp.sum(result.log_evidence, axis=0)

        def cold() -> tuple[Array, Array, Array]:
            def one(logs: Array, starts: Array, real: Array) -> tuple[Array, Array]:
                best = best_paths(initial, transition, FiniteStep(logs), 1, starts, real)
                return jax.nn.one_hot(best.states[:, 0], self.size, dtype=logs.dtype), best.log_prob[0]

            gamma, score = jax.vmap(one, 1, (1, 0))(logs, series.starts, series.real)
            return gamma, _product(gamma[:-1], (joined * gamma)[1:]), score

        gamma, pairs, score = jax.lax.cond(temperature > 0, warm, cold)
        counted = jnp.where(series.real, weight[None, :], 0)[..., None] * gamma
        begins = jnp.sum(jnp.where(series.starts[..., None], counted, 0), axis=(0, 1))
        r = counted.reshape(length * rows, -1)
        if incomplete:
            # a step of which nothing was seen says nothing about the emissions
            r = jnp.where(jnp.all(jnp.isnan(values), axis=1)[:, None], 0, r)
        statistics = HMMStatistics(
            begins, pairs, self.emissions.expect(coefficients, values, r, incomplete)
        )
        return statistics, jnp.sum(jnp.where(weight > 0, -weight * score, 0))

    def maximise(self, statistics: HMMStatistics) -> HMM:
        if not isinstance(self.transition, AbstractCountedTransition):
            raise ValueError(
                f"EM needs a transition that counts determine. Got {type(self.transition).__name__}, "
                "which is learned with Gradient."
            )
        emissions = self.emissions.maximise(statistics.emissions)
        if self.initial is not None:
            initial = dirichlet_mode(statistics.starts, self.concentration, self.initial > 0)
            transition = self.transition.maximise(statistics.pairs)
            return HMM(initial, transition, emissions, self.concentration)
        return HMM(None, self._stationary_maximise(self.transition, statistics), emissions)

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

    def log_prior(self) -> Array:
        total = self.emissions.log_prior()
        if isinstance(self.transition, AbstractCountedTransition):
            total = total + self.transition.log_prior()
        if self.initial is not None:
            total = total + dirichlet_log_density(self.initial, self.concentration)
        return total


def _product(left: Array, right: Array) -> Array:
    """Σ over time and series of the outer products of the last axes."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


class MarkovStatistics(NamedTuple):
    """Expected counts of first symbols and of pairs of symbols, for each column."""

    starts: Array
    pairs: Array


class MarkovChain(
    AbstractExpectationMaximisation[MarkovStatistics], AbstractSequenceModel, AbstractRegularised
):
    """A chain of symbols 0 … C−1 in each column:  p(x) = Π_d π_d(x_1d) Π_t A_d(x_{t−1,d}, x_td).

    A hidden Markov model whose state is seen: what is missing is inferred as a hidden state is, by EM at
    temperature one.

    Attributes:
        initial: π of shape (columns, symbols).
        transition: A[d, i, j] = p(next = j | now = i) in column d.
        concentration: α of a Dirichlet prior of each row of A, as for `Transition`.
        initial_concentration: α of a Dirichlet prior of π.

    >>> from freeenergy.models import one_series
    >>> chain = MarkovChain(jnp.array([[1.0, 0.0]]), jnp.array([[[0.9, 0.1], [0.3, 0.7]]]))
    >>> round(float(jnp.exp(chain.log_prob(one_series(jnp.array([[0.0], [jnp.nan], [1.0]]))))), 4)
    0.16
    """

    initial: Array = parameter(simplex)
    transition: Array = parameter(simplex)
    concentration: Array | None = buffer(default=None)
    initial_concentration: Array | None = buffer(default=None)

    rows_at_once: ClassVar[int] = 64

    def _labels(self) -> Array:
        return jnp.arange(self.initial.shape[1], dtype=self.initial.dtype)

    def _each(self, function: Callable[..., Any], series: Series) -> Any:
        """`function(beliefs, initial, steps)` for each column."""

        def column(initial: Array, transition: Array, x: Array) -> Any:
            possible = jnp.isnan(x)[:, None] | (x[:, None] == self._labels()[None])
            logs = jnp.where(possible, 0.0, -jnp.inf)
            return function(FiniteBeliefs(transition), initial, FiniteStep(logs))

        return jax.vmap(column, (0, 0, 1))(self.initial, self.transition, series.values)

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        def logs(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Array:
            return filter(beliefs, initial, steps, None, series.starts, series.real).log_evidence

        return jnp.sum(self._each(logs, series), axis=0)

    def log_prob(self, series: Series) -> Array:
        """log p(x) of what is observed."""
        return jnp.sum(self.step_log_prob(series))

    def _smooth(self, series: Series) -> Smoothed:
        def both(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Smoothed:
            result = filter(beliefs, initial, steps, None, series.starts, series.real)
            return smooth(beliefs, result, steps, series.starts, series.real)

        return self._each(both, series)

    def complete_mean(self, series: Series) -> Array:
        mean = self._smooth(series).marginals @ self._labels()
        return jnp.where(jnp.isnan(series.values), mean.T, series.values)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
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
        return jnp.where(jnp.isnan(series.values), states.astype(series.values.dtype), series.values)

    def forecast(self, series: Series, steps: int, *, incomplete: bool = True) -> Array:
        """p(x) of each of the `steps` after the last real one of a single series, for each column."""

        def now(beliefs: FiniteBeliefs, initial: Array, steps: FiniteStep) -> Array:
            return filter(beliefs, initial, steps, None, series.starts, series.real).filtered[-1]

        def body(belief: Array, _: None) -> tuple[Array, Array]:
            belief = jnp.einsum("di,dij->dj", belief, self.transition)
            return belief, belief

        return jax.lax.scan(body, self._each(now, series), None, length=steps)[1]

    def sample(self, length: int, *, key: Array) -> Array:
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
        self, prepared: None, x: Series, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[MarkovStatistics, Array]:
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
        return MarkovChain(
            dirichlet_mode(statistics.starts, self.initial_concentration, self.initial > 0),
            dirichlet_mode(statistics.pairs, self.concentration, self.transition > 0),
            self.concentration,
            self.initial_concentration,
        )

    def log_prior(self) -> Array:
        return dirichlet_log_density(self.transition, self.concentration) + dirichlet_log_density(
            self.initial, self.initial_concentration
        )
