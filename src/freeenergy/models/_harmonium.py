"""Harmoniums: two sides of units that see only each other, such as the restricted Boltzmann machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import AbstractHomogeneous, buffer, parameter
from ..distributions import (
    AbstractDistribution,
    AbstractExponentialFamily,
    Given,
    Natural,
    levels,
    log_partition_at,
)
from ..inference import (
    Sandwich,
    annealed_importance,
    linear_schedule,
    log_partition_by_enumeration,
    run_chain,
    sandwich,
)
from ._base import AbstractExactPosterior, AbstractUndirected

_MOST_STATES = 2**20
_MOST_STATES_A_ROW = 2**12


class Units(eqx.Module):
    """One side of a harmonium: independent units of an exponential family, with their biases.

    p(x | η) = h(x) exp(η·T(x) − A(η)), where η are the biases and what the other side adds to them.  Any
    family whose coordinates are independent serves: `Bernoulli`, `Binomial`, `Categorical` (softmax units),
    `Poisson`, `GaussianLocation` (real units), or a `Product` of several.

    Attributes:
        family: a member, of which only the shapes count.
        bias: η without the other side, a number per statistic: one vector.

    >>> from freeenergy.distributions import Poisson
    >>> Units(Poisson, jnp.zeros(2)).log_partition(jnp.zeros(2)).item()
    2.0
    """

    family: AbstractExponentialFamily = buffer()
    bias: Array = parameter()

    def __init__(self, family: Any, bias: Array) -> None:
        """`family` may be a class, if its units have one natural parameter each."""
        self.family = family.prototype(np.zeros((1, len(bias)))) if isinstance(family, type) else family
        size = len(self.family.statistic_columns())
        if bias.shape != (size,):
            raise ValueError(
                f"The 'bias' of Units must be a vector with one number for each of the {size} statistics "
                f"of {type(self.family).__name__}. Got the shape {bias.shape} instead."
            )
        self.bias = bias

    @property
    def law(self) -> Given:
        """p(x | η)."""
        return Given(self.family, Natural())

    @property
    def count(self) -> int:
        """How many units there are."""
        return self.family.dim

    def statistics(self, x: Array) -> Array:
        """T(x), one vector."""
        # a member made of the biases has their type
        return self.law.at(self.bias).statistics(x).ravel()

    def log_base(self, x: Array) -> Array:
        """log h(x) of all units together."""
        return self.law.at(self.bias).log_base(x)

    def log_partition(self, natural: Array) -> Array:
        """A(η) of all units together."""
        shape = eqx.filter_eval_shape(lambda family: family.natural(), self.family).shape
        return jnp.sum(log_partition_at(self.family, natural.reshape(shape)))

    def observed(self, x: Array, natural: Array) -> Array:
        """log h(x) + η·T(x), with the units that are NaN in `x` summed out."""
        return self.law.log_prob(natural, x) + self.log_partition(natural)

    def known(self, x: Array) -> Array:
        """For each statistic, whether its unit is observed in `x`."""
        return ~jnp.isnan(x)[self.family.statistic_columns()]

    def expected(self, natural: Array) -> Array:
        """E[T | η]."""
        return jax.grad(self.log_partition)(natural)

    def states(self, units: int | None = None) -> float:
        """How many joint states all units have, or `units` of them at most; inf where there is no end."""
        found = levels(self.family)
        if found is None:
            return math.inf
        return math.prod(found) if units is None else max(found) ** units

    def state(self, index: Array, units: int | None = None) -> Array:
        """Joint state number `index` of all units, or of any `units` of them; the first changes fastest."""
        found = levels(self.family) or ()
        base = np.array(found if units is None else (max(found),) * units, int)
        places = np.cumprod(np.append(1, base[:-1]))
        return (index // places % base).astype(self.bias.dtype)


class _Path(NamedTuple):
    """What annealed importance sampling needs, with the observed units held fast."""

    energy: Callable[[Array, Array], Array]
    kernel: Callable[..., Array]
    log_partition: Array
    start: Callable[[Array], Array]


class Harmonium(AbstractUndirected, AbstractExactPosterior):
    """e(x, z) = −T(x)ᵀ W U(z) − bᵀT(x) − cᵀU(z) − log h(x) − log k(z), an exponential-family harmonium.

    Given one side, the units of the other are independent, with natural parameters b + W U(z) or
    c + Wᵀ T(x).  Either side can be summed out in closed form,

        F(x) = −bᵀT(x) − log h(x) − A(c + Wᵀ T(x)),

    but not both: log Z is had by enumeration of the smaller side, or by annealing.

    Attributes:
        visible: the observed side, with biases b.
        hidden: the hidden side, with biases c.
        coupling: W, a row for each statistic of the visible and a column for each of the hidden units.

    >>> from freeenergy.distributions import Bernoulli
    >>> rbm = Harmonium(Units(Bernoulli, jnp.zeros(2)), Units(Bernoulli, jnp.zeros(3)), jnp.zeros((2, 3)))
    >>> round(float(rbm.log_partition() / jnp.log(2)), 6)
    5.0
    """

    visible: Units
    hidden: Units
    coupling: Array = parameter()

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z); exp(−e) is the joint probability up to the factor Z."""
        biases = _linear(self.visible, x) + _linear(self.hidden, z)
        return -self.visible.statistics(x) @ self.coupling @ self.hidden.statistics(z) - biases

    def latent(self, x: Array) -> AbstractHomogeneous:
        """z, the hidden units."""
        values = self.hidden.family.support
        assert isinstance(values, AbstractHomogeneous)
        return values.with_shape((self.hidden.count,))

    def _to_hidden(self, x: Array) -> Array:
        return self.visible.statistics(x) @ self.coupling + self.hidden.bias

    def _to_visible(self, z: Array) -> Array:
        return self.coupling @ self.hidden.statistics(z) + self.visible.bias

    def free_energy(self, x: Array) -> Array:
        return -_linear(self.visible, x) - self.hidden.log_partition(self._to_hidden(x))

    def free_energy_hidden(self, z: Array) -> Array:
        """−log Σ_x exp(−e(x, z))."""
        return -_linear(self.hidden, z) - self.visible.log_partition(self._to_visible(z))

    def posterior(self, x: Array) -> AbstractDistribution:
        """p(z | x)."""
        return self.hidden.law.at(self._to_hidden(x))

    def hidden_mean(self, x: Array) -> Array:
        """E[z | x]."""
        return self.hidden.law.mean(self._to_hidden(x))

    def emission(self, z: Array) -> AbstractDistribution:
        """p(x | z)."""
        return self.visible.law.at(self._to_visible(z))

    def gibbs(self, x: Array, *, key: Array) -> Array:
        up, down = jax.random.split(key)
        return self.emission(self.posterior(x).sample(key=up)).sample(key=down)

    def initial(self, *, key: Array) -> Array:
        return self.visible.law.sample(self.visible.bias, key=key)

    @eqx.filter_jit
    def log_partition(self) -> Array:
        """log Z exactly, by enumeration of the smaller side."""
        sides = ((self.visible, self.free_energy), (self.hidden, self.free_energy_hidden))
        units, free = min(sides, key=lambda side: side[0].states())
        if units.states() > _MOST_STATES:
            raise ValueError(
                "The exact log-partition of a Harmonium needs a side with at most as many states as 20 "
                f"binary units. Got {self.visible.count} visible and {self.hidden.count} hidden units "
                "instead; 'log_partition_annealed' estimates it."
            )
        return log_partition_by_enumeration(lambda i: free(units.state(i)), jnp.arange(int(units.states())))

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
        unknown = jnp.full(self.visible.count, jnp.nan, self.coupling.dtype)
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
            drawn = self.visible.law.at(natural).sample(key=down)
            return jnp.where(observed, now, drawn), total + self.visible.law.mean(natural)

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
        most_missing = self.visible.count if most_missing is None else most_missing
        if most_missing == 0:
            return self.free_energy(x), exact
        if self.hidden.states() <= _MOST_STATES_A_ROW:
            return self._marginal_over_hidden(x), exact
        if self.visible.states(most_missing) <= _MOST_STATES_A_ROW:
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

    def _marginal_over_hidden(self, x: Array) -> Array:
        def energy(index: Array) -> Array:
            z = self.hidden.state(index)
            return -_linear(self.hidden, z) - self.visible.observed(x, self._to_visible(z))

        states = jnp.arange(int(self.hidden.states()))
        return -log_partition_by_enumeration(energy, states, batch_size=64)

    def _marginal_over_missing(self, x: Array, most: int) -> Array:
        units = self.visible
        observed = ~jnp.isnan(x)
        places = jnp.argsort(observed)[:most]
        spare = observed[places]

        def energy(index: Array) -> Array:
            state = units.state(index, most)
            # a place that is observed after all keeps its value, and is visited once
            again = jnp.any(spare & (state != 0))
            here = x.at[places].set(jnp.where(spare, x[places], state))
            # of units with unequal numbers of values some states are none: their energy is infinite
            return jnp.where(again, jnp.inf, self.free_energy(here))

        return -log_partition_by_enumeration(energy, jnp.arange(int(units.states(most))), batch_size=64)

    def _guess(self, x: Array) -> Array:
        """Natural parameters for the missing units from one mean-field sweep."""

        t = jnp.where(
            self.visible.known(x), self.visible.statistics(x), self.visible.expected(self.visible.bias)
        )
        u = self.hidden.expected(t @ self.coupling + self.hidden.bias)
        return self.coupling @ u + self.visible.bias

    def _path(self, x: Array, base: Array) -> _Path:
        """From missing units with natural parameters `base`, apart from the hidden ones, to the model."""
        observed, known = ~jnp.isnan(x), self.visible.known(x)

        def heated(beta: Array) -> Harmonium:
            coupling = jnp.where(known[:, None], 1, beta) * self.coupling
            bias = jnp.where(known, self.visible.bias, (1 - beta) * base + beta * self.visible.bias)
            return eqx.tree_at(lambda m: (m.visible.bias, m.coupling), self, (bias, coupling))

        def kernel(beta: Array, state: Array, *, key: Array) -> Array:
            return heated(beta)._clamped(observed)(state, key=key)

        apart = heated(jnp.zeros((), self.coupling.dtype))
        # the coupling of missing units is zero there, so any value will do for them
        t = jnp.where(known, self.visible.statistics(x), 0)
        hidden = self.hidden.log_partition(t @ apart.coupling + self.hidden.bias)
        log_partition = self.visible.observed(x, apart.visible.bias) + hidden
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
        return self.emission(self.hidden.state(index)).sample(key=emit)


def _linear(units: Units, x: Array) -> Array:
    return units.bias @ units.statistics(x) + units.log_base(x)


def _fill(x: Array, values: Array) -> Array:
    return jnp.where(jnp.isnan(x), values, x)
