"""A finite mixture of any exponential family."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import Categories, Kind, boltzmann, buffer, categorical_entropy, in_blocks, parameter, simplex
from ..distributions import (
    AbstractConjugatePrior,
    AbstractDistribution,
    AbstractExponentialFamily,
    AbstractRay,
    DirichletPrior,
    cell_kind,
    component_axes,
    log_cells,
    rescaled_stack,
    stack_size,
)
from ..distributions._cells import Cells
from ..inference import Enumeration, Exact, Finite
from ._base import (
    AbstractExactModel,
    AbstractExactPosterior,
    AbstractExpectationMaximisation,
    AbstractRecognised,
    AbstractRescalable,
    AbstractWithPrior,
)
from ._units import InUnits, member_in_units

# incomplete rows need moments per row and component; this many rows at a time keeps them small
_INCOMPLETE_BLOCK = 32

# natural parameters that differ by less are those of the same member
_ROUNDING = 1e-4


class MixtureStatistics(NamedTuple):
    """Σ w r_k, and Σ w r_k features(x), for each component k."""

    counts: Array
    features: Array


class Supervised(NamedTuple):
    """An event, or rows of them, with what is known of its component.

    Attributes:
        x: the event.
        shares: a number per component.  Numbers of sum one are responsibilities that stay as they are
            (one-hot: the component is known); −1 marks the components among which the responsibility
            is to be inferred, with zeros for those that are impossible.

    >>> from freeenergy.distributions import Poisson
    >>> model = Mixture(jnp.array([0.25, 0.75]), Poisson(jnp.array([[1.0], [1.0]])))
    >>> known = Supervised(jnp.zeros(1), jnp.array([1.0, 0.0]))
    >>> round(float(model.log_prob(known) - model.log_prob(known.x)), 6)  # log ¼
    -1.386294
    """

    x: Any
    shares: Any


def rows_and_shares(x: Array | Supervised) -> tuple[Array, Array | None]:
    """The events, and what is known of their components, if anything."""
    return (x.x, x.shares) if isinstance(x, Supervised) else (x, None)


def infer(
    energies: Array, shares: Array | None, temperature: Array | float, axis: int = -1
) -> tuple[Array, Array]:
    """`boltzmann` among the components that are possible; at given responsibilities, E_q[e] − T H[q]."""
    if shares is None:
        return boltzmann(energies, temperature, axis=axis)
    possible = shares < 0
    hidden = jnp.any(possible, axis=axis, keepdims=True)
    free, r = boltzmann(jnp.where(possible | ~hidden, energies, jnp.inf), temperature, axis=axis)
    q = jnp.where(possible, 0, shares)
    # no share of an impossible event is no cost
    expected = jnp.sum(jnp.where(q > 0, q * jnp.where(q > 0, energies, 0), 0), axis=axis)
    given = expected - temperature * categorical_entropy(q, axis)
    return jnp.where(jnp.squeeze(hidden, axis), free, given), jnp.where(
        hidden, jnp.where(possible, r, 0), q
    )


class Mixture(
    AbstractExactModel,
    AbstractExpectationMaximisation[MixtureStatistics],
    AbstractDistribution,
    AbstractWithPrior,
    AbstractExactPosterior,
    AbstractRecognised,
    AbstractRescalable,
):
    """p(x) = Σ_k π_k p(x; θ_k), with the number of the component as hidden cause.

    `components` is one member of a family whose arrays have a leading axis: a stack.  The E step
    over a block of rows is one matrix product of coefficients with features, the M step another.

    Attributes:
        weights: π, the probabilities of the components.
        components: the stack.
        weight_prior: makes the M step MAP in π.
        component_prior: makes the M step MAP in each θ_k.

    >>> from freeenergy.distributions import Diagonal, Gaussian
    >>> members = Gaussian(jnp.array([[-1.0], [1.0]]), Diagonal(jnp.ones((2, 1))))
    >>> model = Mixture(jnp.array([0.5, 0.5]), members)
    >>> [round(float(r), 4) for r in model.posterior(jnp.array([1.0])).probabilities]
    [0.1192, 0.8808]
    """

    weights: Array = parameter(simplex)
    components: AbstractExponentialFamily  # pyright: ignore[reportGeneralTypeIssues]
    weight_prior: DirichletPrior | None = buffer(default=None)
    component_prior: AbstractConjugatePrior | None = buffer(default=None)

    def _over_components(self, function):
        axes = component_axes(self.components)
        return jax.vmap(function, in_axes=(axes,))(self.components)

    def log_joint(self, x: Array) -> Array:
        """log p(x, z=k) for every k; NaN is marginalised."""
        return jnp.log(self.weights) + self._over_components(lambda c: c.log_prob(x))

    def log_joint_complete(self, x: Array) -> Array:
        """`log_joint` for an event without NaN, by one product that all rows share."""
        member = self.component(0)

        def product() -> Array:
            return self.prepare() @ member.features(x) + jnp.log(self.weights) + member.log_base(x)

        if member.inside() is member:
            return product()
        # no fit leaves the inside, but a model made by hand may: its product is that of another member
        return jax.lax.cond(self._at_edge(), lambda: self.log_joint(x), product)

    def _at_edge(self) -> Array:
        """Whether some component is not the one that its finite coefficients stand for."""
        apart = self._over_components(lambda c: jnp.abs(c.natural() - c.inside().natural()))
        return ~jnp.all(apart < _ROUNDING)

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN."""
        return jax.nn.logsumexp(self.log_joint_complete(x))

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z) = −log p(x, z)."""
        return -self.log_joint(x)[jnp.asarray(z, int)]

    def latent(self, x: Array) -> Categories:
        """z, the number of the component."""
        return Categories(self.size)

    @property
    def recognition(self) -> Exact:
        """q = the responsibilities."""
        return Exact(self.posterior, expectation=Enumeration(jnp.arange(self.size)))

    def log_prob(self, x: Array | Supervised) -> Array:
        """log p(x); of a `Supervised` event minus its free energy, which is log p(x, z) for a known z."""
        event, shares = rows_and_shares(x)
        if shares is not None:
            return -infer(-self.log_joint(event), shares, 1.0)[0]
        return jax.nn.logsumexp(self.log_joint(event))

    def posterior(self, x: Array) -> Finite:
        """p(z | x), the responsibilities."""
        return Finite(jnp.exp(self.log_posterior(x)))

    def responsibilities(self, x: Array) -> Array:
        """p(k | x) for every component k."""
        return self.posterior(x).probabilities

    def responsibilities_complete(self, x: Array) -> Array:
        """The same for an event without NaN, by one product that all rows share."""
        return boltzmann(-self.log_joint_complete(x))[1]

    def log_posterior_complete(self, x: Array) -> Array:
        """`log_posterior` for an event without NaN, by one product that all rows share."""
        return jax.nn.log_softmax(self.log_joint_complete(x))

    def log_posterior(self, x: Array) -> Array:
        """log p(z=k | x) for every k, also where each p(x, z=k) is too small for a number."""
        joint = self.log_joint(x)
        likely = jnp.any(joint > -jnp.inf)
        near = jax.nn.log_softmax(jnp.where(likely, joint, 0))
        if not isinstance(self.components, AbstractRay):
            return near
        return jnp.where(likely, near, self._log_posterior_far(x))

    def _log_posterior_far(self, x: Array) -> Array:
        """`log_posterior` by the differences of log-densities, which are smaller than these."""
        size = jnp.max(jnp.where(jnp.isnan(x), 0, jnp.abs(x)))
        size = jnp.where(size > 0, size, 1)
        terms = self._over_components(lambda c: c.along_ray(x / size))
        terms = terms.at[:, 0].add(jnp.log(self.weights))
        gap = terms[:, None] - terms[None]
        gain = size * (size * gap[..., 2] + gap[..., 1]) + gap[..., 0]
        # (a component without weight is no rival of any)
        gain = jnp.where(self.weights[:, None] > 0, gain, -jnp.inf)
        return -jax.nn.logsumexp(gain, axis=0)

    def sample(self, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        k = jax.random.categorical(choose, jnp.log(self.weights))
        return self.component(k).sample(key=draw)

    def component(self, k: Array | int) -> AbstractExponentialFamily:
        """The k-th member of the stack."""
        axes = component_axes(self.components)
        return jax.tree.map(
            lambda axis, a: a if axis is None else a[k], axes, self.components, is_leaf=lambda a: a is None
        )

    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed."""
        means = self._over_components(lambda c: c.complete_mean(x))
        return jnp.where(jnp.isnan(x), self.posterior(x).probabilities @ means, x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones."""
        choose, draw = jax.random.split(key)
        k = self.posterior(x).sample(key=choose)
        return self.component(k).complete_sample(x, key=draw)

    def prepare(self) -> Array:
        return self._over_components(lambda c: c.coefficients())

    def expect_prepared(
        self,
        prepared: Array,
        x: Array | Supervised,
        weight: Array,
        *,
        temperature: Array,
        incomplete: bool,
    ) -> tuple[MixtureStatistics, Array]:
        return self.expect_weighted(
            jnp.log(self.weights), prepared, x, weight, temperature=temperature, incomplete=incomplete
        )

    def expect_weighted(
        self,
        log_weights: Array,
        prepared: Array,
        x: Array | Supervised,
        weight: Array,
        *,
        temperature: Array,
        incomplete: bool,
    ) -> tuple[MixtureStatistics, Array]:
        """`expect_prepared` with other logarithms of weights, which may be too small to have weights."""
        rows, shares = rows_and_shares(x)

        def features() -> tuple[MixtureStatistics, Array]:
            return self._expect_features(log_weights, prepared, rows, weight, temperature, shares)

        if not incomplete or self.components.masks_missing:
            return features()
        return jax.lax.cond(
            jnp.any(jnp.isnan(rows)),
            lambda: self._expect_moments(log_weights, rows, weight, temperature, shares),
            features,
        )

    def _expect_features(
        self,
        log_weights: Array,
        coefficients: Array,
        x: Array,
        weight: Array,
        temperature: Array,
        shares: Array | None = None,
    ) -> tuple[MixtureStatistics, Array]:
        member = self.component(0)
        # features along the first axis: both products then run along contiguous rows
        features = jax.vmap(member.features, out_axes=1)(x)
        base = jax.vmap(member.log_base)(x)
        log_joint = coefficients @ features + log_weights[:, None]
        free, r = infer(-log_joint, None if shares is None else shares.T, temperature, axis=0)
        r = r * weight[None, :]
        statistics = MixtureStatistics(jnp.sum(r, axis=1), r @ features.T)
        return statistics, jnp.sum(jnp.where(weight > 0, weight * (free - base), 0))

    def _expect_moments(
        self, log_weights: Array, x: Array, weight: Array, temperature: Array, shares: Array | None
    ) -> tuple[MixtureStatistics, Array]:
        def one(row: Array) -> tuple[Array, Array]:
            return (
                -log_weights - self._over_components(lambda c: c.log_prob(row)),
                self._over_components(lambda c: c.expected_features(row)),
            )

        def block(total, part):
            rows, w, known = part
            energies, features = jax.vmap(one)(rows)
            free, r = infer(energies, known, temperature)
            r = r * w[:, None]
            new = MixtureStatistics(jnp.sum(r, axis=0), jnp.einsum("nk,nks->ks", r, features))
            added = (new, jnp.sum(jnp.where(w > 0, w * free, 0)))
            return jax.tree.map(jnp.add, total, added), None

        size = min(_INCOMPLETE_BLOCK, len(x))
        shapes = jax.eval_shape(
            lambda: self._expect_features(log_weights, self.prepare(), x[:1], weight[:1], temperature)
        )
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        parts = jax.tree.map(lambda a: in_blocks(a, size), (x, weight, shares))
        return jax.lax.scan(block, zero, parts)[0]

    def maximise(self, statistics: MixtureStatistics) -> Mixture:
        counts, features = statistics
        if self.weight_prior is None:
            weights = counts / jnp.sum(counts)
        else:
            weights = self.weight_prior.update(jnp.sum(counts), counts[:-1]).mode().probabilities
        # a component that explains nothing, or nothing of some coordinate, keeps what it had there
        empty = counts <= 1e-10 * jnp.sum(counts)
        # (too little of the whole to matter where components share parameters)
        whole = 1e-12 * jnp.sum(features, axis=0)
        features = jnp.where(empty[:, None], whole[None, :], features)
        source = self.components if self.component_prior is None else self.component_prior
        components = jax.tree.map(
            lambda axis, new, old: _keep(new, old, empty if axis == 0 else None),
            component_axes(self.components),
            source.from_features(features),
            self.components,
            is_leaf=lambda a: a is None,
        )
        return Mixture(weights, components, self.weight_prior, self.component_prior)

    def log_prior(self) -> Array:
        total = jnp.zeros(())
        if self.weight_prior is not None:
            member = dataclasses.replace(self.weight_prior.family, probabilities=self.weights)
            total = total + self.weight_prior.log_density(member)
        if self.component_prior is not None:
            total = total + jnp.sum(self._over_components(self.component_prior.log_density))
        return total

    def in_units(self, shift: Array, scale: Array) -> Mixture | InUnits:
        """The law of shift + scale · x: with members of the same family where that is one in any units."""
        members = member_in_units(self.components, shift, scale, rescaled_stack)
        return InUnits(self, shift, scale) if members is None else Mixture(self.weights, members)

    @property
    def size(self) -> int:
        """The number of components."""
        return stack_size(self.components)


def _keep(new: Array, old: Array, empty: Array | None) -> Array:
    if not eqx.is_array(new):
        return new
    usable = jnp.isfinite(new)
    if empty is not None:
        usable = usable & ~empty.reshape((-1,) + (1,) * (new.ndim - 1))
    return jnp.where(usable, new, old)


@cell_kind.register
def _(model: Mixture, cells: Cells) -> Kind | None:
    return cell_kind(model.component(0), cells)


@log_cells.register
def _(
    model: Mixture, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    def of_component(component) -> Array:
        return log_cells(component, x, width, cells, draws=draws, complete=complete, key=key)

    logs = jax.vmap(of_component, in_axes=(component_axes(model.components),))(model.components)
    return jax.nn.logsumexp(jnp.log(model.weights)[:, None] + logs, axis=0)
