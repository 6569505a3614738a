"""Harmoniums: two sides of units that see only each other, such as the restricted Boltzmann machine."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import LOG_2PI, parameter
from ..distributions import AbstractDistribution, Bernoulli, Diagonal, Gaussian
from ..inference import (
    Sandwich,
    annealed_importance,
    binary_state,
    linear_schedule,
    log_partition_by_enumeration,
    run_chain,
    sandwich,
)
from ._base import AbstractEnergy

_MOST_STATES = 2**20
_MOST_STATES_A_ROW = 2**12


class AbstractUnits(eqx.Module):
    """One side of a harmonium: independent units of an exponential family, with their biases.

    p(x | η) = Π_i h(x_i) exp(η_i T(x_i) − A(η_i)); all methods but `given` return a number per unit.
    """

    bias: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def statistics(self, x: Array) -> Array:
        """T(x)."""

    @abc.abstractmethod
    def log_base(self, x: Array) -> Array:
        """log h(x)."""

    @abc.abstractmethod
    def log_partition(self, natural: Array) -> Array:
        """A(η)."""

    @abc.abstractmethod
    def mean(self, natural: Array) -> Array:
        """E[x | η]."""

    @abc.abstractmethod
    def given(self, natural: Array) -> AbstractDistribution:
        """p(x | η)."""


class AbstractFiniteUnits(AbstractUnits):
    """Units whose joint states can be counted."""

    @abc.abstractmethod
    def states(self, count: int) -> int:
        """How many joint states `count` units have."""

    @abc.abstractmethod
    def state(self, index: Array, count: int) -> Array:
        """Joint state number `index` of `count` units."""


class BernoulliUnits(AbstractFiniteUnits):
    """Binary units: A(η) = log(1 + exp η)."""

    bias: Array = parameter()

    def statistics(self, x: Array) -> Array:
        return x

    def log_base(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def log_partition(self, natural: Array) -> Array:
        return jax.nn.softplus(natural)

    def mean(self, natural: Array) -> Array:
        return jax.nn.sigmoid(natural)

    def given(self, natural: Array) -> Bernoulli:
        return Bernoulli(jax.nn.sigmoid(natural))

    def states(self, count: int) -> int:
        return 2**count

    def state(self, index: Array, count: int) -> Array:
        return binary_state(index, count, self.bias.dtype)


class GaussianUnits(AbstractUnits):
    """Real units of unit variance: h(x) = N(x; 0, 1), A(η) = η²/2."""

    bias: Array = parameter()

    def statistics(self, x: Array) -> Array:
        return x

    def log_base(self, x: Array) -> Array:
        return -0.5 * (x**2 + LOG_2PI)

    def log_partition(self, natural: Array) -> Array:
        return 0.5 * natural**2

    def mean(self, natural: Array) -> Array:
        return natural

    def given(self, natural: Array) -> Gaussian:
        return Gaussian(natural, Diagonal(jnp.ones_like(natural)))


class _Path(NamedTuple):
    """What annealed importance sampling needs, with the observed units held fast."""

    energy: Callable[[Array, Array], Array]
    kernel: Callable[..., Array]
    log_partition: Array
    start: Callable[[Array], Array]


class Harmonium(AbstractEnergy):
    """e(x, z) = −T(x)ᵀ W U(z) − bᵀT(x) − cᵀU(z) − log h(x) − log k(z), an exponential-family harmonium.

    Given one side, the units of the other are independent, with natural parameters b + W U(z) or
    c + Wᵀ T(x).  Either side can be summed out in closed form,

        F(x) = −bᵀT(x) − log h(x) − Σ_j A_j(c_j + w_jᵀ T(x)),

    but not both: log Z is had by enumeration of the smaller side, or by annealing.

    Attributes:
        visible: the observed side, with biases b.
        hidden: the hidden side, with biases c.
        coupling: W, a row for each visible and a column for each hidden unit.

    >>> rbm = Harmonium(BernoulliUnits(jnp.zeros(2)), BernoulliUnits(jnp.zeros(3)), jnp.zeros((2, 3)))
    >>> round(float(rbm.log_partition() / jnp.log(2)), 6)
    5.0
    """

    visible: AbstractUnits
    hidden: AbstractUnits
    coupling: Array = parameter()

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z); exp(−e) is the joint probability up to the factor Z."""
        biases = _linear(self.visible, self.visible.bias, x) + _linear(self.hidden, self.hidden.bias, z)
        return -self.visible.statistics(x) @ self.coupling @ self.hidden.statistics(z) - biases

    def _to_hidden(self, x: Array) -> Array:
        return self.visible.statistics(x) @ self.coupling + self.hidden.bias

    def _to_visible(self, z: Array) -> Array:
        return self.coupling @ self.hidden.statistics(z) + self.visible.bias

    def free_energy(self, x: Array) -> Array:
        inner = jnp.sum(self.hidden.log_partition(self._to_hidden(x)))
        return -_linear(self.visible, self.visible.bias, x) - inner

    def free_energy_hidden(self, z: Array) -> Array:
        """−log Σ_x exp(−e(x, z))."""
        inner = jnp.sum(self.visible.log_partition(self._to_visible(z)))
        return -_linear(self.hidden, self.hidden.bias, z) - inner

    def posterior(self, x: Array) -> AbstractDistribution:
        """p(z | x)."""
        return self.hidden.given(self._to_hidden(x))

    def hidden_mean(self, x: Array) -> Array:
        """E[z | x]."""
        return self.hidden.mean(self._to_hidden(x))

    def emission(self, z: Array) -> AbstractDistribution:
        """p(x | z)."""
        return self.visible.given(self._to_visible(z))

    def gibbs(self, x: Array, *, key: Array) -> Array:
        up, down = jax.random.split(key)
        return self.emission(self.posterior(x).sample(key=up)).sample(key=down)

    def initial(self, *, key: Array) -> Array:
        return self.visible.given(self.visible.bias).sample(key=key)

    @eqx.filter_jit
    def log_partition(self) -> Array:
        """log Z exactly, by enumeration of the smaller side."""
        sides = [
            (units.states(units.bias.shape[0]), units, free)
            for units, free in (
                (self.visible, self.free_energy),
                (self.hidden, self.free_energy_hidden),
            )
            if isinstance(units, AbstractFiniteUnits)
        ]
        if not sides or min(s[0] for s in sides) > _MOST_STATES:
            raise ValueError(
                "The exact log-partition of a Harmonium needs a side with at most 20 binary units. Got "
                f"{self.visible.bias.shape[0]} visible and {self.hidden.bias.shape[0]} hidden units "
                "instead; 'log_partition_annealed' estimates it."
            )
        count, units, free = min(sides, key=lambda side: side[0])
        size = units.bias.shape[0]
        return log_partition_by_enumeration(lambda i: free(units.state(i, size)), jnp.arange(count))

    @eqx.filter_jit
    def log_partition_annealed(
        self, *, chains: int = 100, steps: int = 1000, base: Array | None = None, key: Array
    ) -> Sandwich:
        """log Z between two stochastic bounds, by annealing from independent visible units.

        Args:
            chains: number of independent chains.
            steps: number of temperatures on the way.
            base: natural parameters of the visible units where the coupling is zero, best those of
                the mean of the data; the biases of the model by default.
            key: seeds the chains.
        """
        begin, run = jax.random.split(key)
        unknown = jnp.full_like(self.visible.bias, jnp.nan)
        path = self._path(unknown, self.visible.bias if base is None else base)
        return sandwich(
            path.energy,
            path.kernel,
            jax.vmap(path.start)(jax.random.split(begin, chains)),
            log_partition=path.log_partition,
            schedule=linear_schedule(steps, self.coupling.dtype),
            key=run,
        )

    def complete_sample(self, x: Array, *, steps: int = 100, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, by `steps` Gibbs sweeps."""
        begin, run = jax.random.split(key)
        start = _fill(x, self.initial(key=begin))
        kernel = self._clamped(~jnp.isnan(x))
        return run_chain(kernel, start, steps=1, burn_in=steps - 1, key=run)[0]

    def complete_mean(self, x: Array, *, steps: int = 200, burn_in: int = 100, key: Array) -> Array:
        """`x` with each NaN replaced by an estimate of its mean given the observed entries.

        The mean of E[x | z] over `steps` Gibbs sweeps, after `burn_in` that do not count.
        """
        begin, run = jax.random.split(key)
        observed = ~jnp.isnan(x)

        def sweep(state: tuple[Array, Array], *, key: Array) -> tuple[Array, Array]:
            now, total = state
            up, down = jax.random.split(key)
            natural = self._to_visible(self.posterior(now).sample(key=up))
            drawn = self.visible.given(natural).sample(key=down)
            return jnp.where(observed, now, drawn), total + self.visible.mean(natural)

        start = self.complete_sample(x, steps=burn_in, key=begin)
        _, total = run_chain(sweep, (start, jnp.zeros_like(x)), steps=1, burn_in=steps - 1, key=run)
        return _fill(x, total[0] / steps)

    def marginal_free_energy(
        self,
        x: Array,
        *,
        most_missing: int | None = None,
        chains: int = 64,
        steps: int = 200,
        key: Array,
    ) -> tuple[Array, Array]:
        """−log Σ exp(−F(x)) over the values of the NaN entries of `x`, and its standard error.

        Exact, with standard error zero, where few hidden units or few missing entries can be
        enumerated; else by annealing from missing units that are independent of the hidden ones.

        Args:
            x: an incomplete observation.
            most_missing: a bound on the number of NaN entries, if one is known.
            chains: number of annealed chains.
            steps: number of temperatures of each.
            key: seeds the chains.
        """
        exact = jnp.zeros((), self.coupling.dtype)
        most_missing = self.visible.bias.shape[0] if most_missing is None else most_missing
        if most_missing == 0:
            return self.free_energy(x), exact
        if _few(self.hidden, self.hidden.bias.shape[0]):
            return self._marginal_over_hidden(x), exact
        if _few(self.visible, most_missing):
            return self._marginal_over_missing(x, most_missing), exact
        begin, run = jax.random.split(key)
        path = self._path(x, self._guess(x))
        estimate = annealed_importance(
            path.energy,
            path.kernel,
            jax.vmap(path.start)(jax.random.split(begin, chains)),
            log_partition=path.log_partition,
            schedule=linear_schedule(steps, self.coupling.dtype),
            key=run,
        )
        return -estimate.log_partition, estimate.stderr

    def _clamped(self, observed: Array) -> Callable[..., Array]:
        return lambda x, *, key: jnp.where(observed, x, self.gibbs(x, key=key))

    def _observed_terms(self, x: Array, natural: Array) -> Array:
        """log h(x) + η T(x) where x is observed, A(η) where it is summed out."""
        observed = ~jnp.isnan(x)
        filled = _fill(x, jnp.zeros_like(x))
        seen = natural * self.visible.statistics(filled) + self.visible.log_base(filled)
        return jnp.where(observed, seen, self.visible.log_partition(natural))

    def _marginal_over_hidden(self, x: Array) -> Array:
        units = self.hidden
        assert isinstance(units, AbstractFiniteUnits)
        size = units.bias.shape[0]

        def energy(index: Array) -> Array:
            z = units.state(index, size)
            given = jnp.sum(self._observed_terms(x, self._to_visible(z)))
            return -_linear(units, units.bias, z) - given

        return -log_partition_by_enumeration(energy, jnp.arange(units.states(size)), batch_size=64)

    def _marginal_over_missing(self, x: Array, most: int) -> Array:
        units = self.visible
        assert isinstance(units, AbstractFiniteUnits)
        observed = ~jnp.isnan(x)
        places = jnp.argsort(observed)[:most]
        spare = observed[places]
        first = units.state(jnp.asarray(0), most)

        def energy(index: Array) -> Array:
            state = units.state(index, most)
            # a place that is observed after all keeps its value, and is visited once
            again = jnp.any(spare & (state != first))
            here = x.at[places].set(jnp.where(spare, x[places], state))
            return jnp.where(again, jnp.inf, self.free_energy(here))

        return -log_partition_by_enumeration(energy, jnp.arange(units.states(most)), batch_size=64)

    def _guess(self, x: Array) -> Array:
        """Natural parameters for the missing units from one mean-field sweep."""

        def expected(units: AbstractUnits, natural: Array) -> Array:
            return jax.grad(lambda eta: jnp.sum(units.log_partition(eta)))(natural)

        t = jnp.where(jnp.isnan(x), expected(self.visible, self.visible.bias), self.visible.statistics(x))
        u = expected(self.hidden, t @ self.coupling + self.hidden.bias)
        return self.coupling @ u + self.visible.bias

    def _path(self, x: Array, base: Array) -> _Path:
        """From missing units with natural parameters `base`, apart from the hidden ones, to the model."""
        observed = ~jnp.isnan(x)

        def heated(beta: Array) -> Harmonium:
            coupling = jnp.where(observed[:, None], 1, beta) * self.coupling
            bias = jnp.where(observed, self.visible.bias, (1 - beta) * base + beta * self.visible.bias)
            return eqx.tree_at(lambda m: (m.visible.bias, m.coupling), self, (bias, coupling))

        def kernel(beta: Array, state: Array, *, key: Array) -> Array:
            return heated(beta)._clamped(observed)(state, key=key)

        apart = heated(jnp.zeros((), self.coupling.dtype))
        # the coupling of missing units is zero there, so any value will do for them
        hidden = apart.hidden.log_partition(apart._to_hidden(_fill(x, jnp.zeros_like(x))))
        log_partition = jnp.sum(self._observed_terms(x, apart.visible.bias)) + jnp.sum(hidden)
        return _Path(
            lambda beta, state: heated(beta).free_energy(state),
            kernel,
            log_partition,
            lambda key: _fill(x, apart.initial(key=key)),
        )

    def encode(self, x: Array) -> Array:
        """E[z | x] of an event without NaN."""
        return self.hidden_mean(x)

    def sample_by_chain(self, *, steps: int, key: Array) -> Array:
        """The end of a Gibbs chain of so many sweeps."""
        begin, run = jax.random.split(key)
        return run_chain(self.gibbs, self.initial(key=begin), steps=1, burn_in=steps - 1, key=run)[0]

    def sample_exactly(self, *, cumulative: Array, key: Array) -> Array:
        """x given z, with z from its exact marginal by inversion.

        `cumulative` are the summed probabilities of all states of binary hidden units.
        """
        choose, emit = jax.random.split(key)
        index = jnp.searchsorted(cumulative, jax.random.uniform(choose, dtype=cumulative.dtype))
        index = jnp.minimum(index, len(cumulative) - 1).astype(int)
        z = binary_state(index, self.hidden.bias.shape[0], cumulative.dtype)
        return self.emission(z).sample(key=emit)


def _linear(units: AbstractUnits, natural: Array, x: Array) -> Array:
    return jnp.vdot(natural, units.statistics(x)) + jnp.sum(units.log_base(x))


def _fill(x: Array, values: Array) -> Array:
    return jnp.where(jnp.isnan(x), values, x)


def _few(units: Any, count: int) -> bool:
    return isinstance(units, AbstractFiniteUnits) and units.states(count) <= _MOST_STATES_A_ROW
