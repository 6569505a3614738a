"""What is observed in each state of a hidden Markov model."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from .._core import boltzmann, buffer, in_blocks, parameter
from ..distributions import (
    AbstractConjugatePrior,
    AbstractCovariance,
    AbstractExponentialFamily,
    AbstractSpace,
    Full,
    Gaussian,
    Mean,
    Reals,
    component_axes,
    rescaled_stack,
    stack_size,
)
from ._mixture import Mixture, MixtureStatistics, _keep
from ._regressions import Sums, moments_of
from ._transitions import with_one
from ._units import in_units_of_inputs, member_in_units

# incomplete rows need moments per row and state; this many rows at a time keeps them small
_INCOMPLETE_BLOCK = 32


class AbstractEmissions(eqx.Module):
    """A distribution of the observation for each of K states; rows of `x` are time steps.

    `inputs` are what is known beside the observations: a row for each row of `x`, or one where `x` is
    one row; None where nothing is.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of states."""

    @abc.abstractmethod
    def prepare(self) -> Array:
        """What of the densities does not depend on the rows."""

    @abc.abstractmethod
    def log_probs(self, prepared: Array, x: Array, incomplete: bool, inputs: Array | None) -> Array:
        """log p(x_n | k) at [n, k]; NaN is marginalised."""

    @abc.abstractmethod
    def expect(self, prepared: Array, x: Array, r: Array, incomplete: bool, inputs: Array | None) -> Any:
        """Expected statistics under the probabilities r[n, k] of the states."""

    @abc.abstractmethod
    def maximise(self, statistics: Any) -> AbstractEmissions:
        """The most probable members for expected `statistics`."""

    @abc.abstractmethod
    def log_prior(self) -> Array:
        """log density of the parameters, zero without a prior."""

    @abc.abstractmethod
    def sample(self, state: Array, inputs: Array | None, *, key: Array) -> Array:
        """An observation in `state`."""

    @abc.abstractmethod
    def complete_mean(self, x: Array, inputs: Array | None) -> Array:
        """For each state, one row `x` with NaN replaced by means given the observed entries."""

    @abc.abstractmethod
    def complete_sample(self, x: Array, state: Array, inputs: Array | None, *, key: Array) -> Array:
        """One row `x` with NaN drawn given the observed entries and `state`."""

    def normals(self, inputs: Array | None) -> tuple[Array, Array, Array] | None:
        """For each state the normal laws of which that of each column is a mixture; None if it is none.

        Returns:
            weights (states, parts), means and variances (states, parts, columns).
        """
        return None

    def in_units(
        self, shift: Array, scale: Array, input_shift: Array | None, input_scale: Array | None
    ) -> AbstractEmissions | None:
        """Those of shift + scale · y given input_shift + input_scale · u, without a prior.

        None where emissions of this kind are none.
        """
        return None


def _blocks(a: Array) -> Array:
    return in_blocks(a, _INCOMPLETE_BLOCK)


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

    def log_probs(self, prepared: Array, x: Array, incomplete: bool, inputs: Array | None = None) -> Array:
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

    def expect(
        self, prepared: Array, x: Array, r: Array, incomplete: bool, inputs: Array | None = None
    ) -> MixtureStatistics:
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

    def sample(self, state: Array, inputs: Array | None = None, *, key: Array) -> Array:
        return self.member(state).sample(key=key)

    def complete_mean(self, x: Array, inputs: Array | None = None) -> Array:
        return self._mixture()._over_components(lambda c: c.complete_mean(x))

    def complete_sample(self, x: Array, state: Array, inputs: Array | None = None, *, key: Array) -> Array:
        return self.member(state).complete_sample(x, key=key)

    def normals(self, inputs: Array | None) -> tuple[Array, Array, Array] | None:
        if not isinstance(self.members, Gaussian):
            return None
        spread = self._mixture()._over_components(lambda c: c.covariance.variances())
        return jnp.ones((self.size, 1)), self.members.mean[:, None], spread[:, None]

    def in_units(
        self, shift: Array, scale: Array, input_shift: Array | None, input_scale: Array | None
    ) -> FamilyEmissions | None:
        members = member_in_units(self.members, shift, scale, rescaled_stack)
        return None if members is None else FamilyEmissions(members)


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

    def log_probs(self, prepared: Array, x: Array, incomplete: bool, inputs: Array | None = None) -> Array:
        return jax.nn.logsumexp(self._log_joint(prepared, x, incomplete), axis=-1)

    def expect(
        self, prepared: Array, x: Array, r: Array, incomplete: bool, inputs: Array | None = None
    ) -> MixtureStatistics:
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

    def sample(self, state: Array, inputs: Array | None = None, *, key: Array) -> Array:
        return self._one(state).sample(key=key)

    def complete_mean(self, x: Array, inputs: Array | None = None) -> Array:
        return self._over_states(lambda m: m.complete_mean(x))

    def complete_sample(self, x: Array, state: Array, inputs: Array | None = None, *, key: Array) -> Array:
        return self._one(state).complete_sample(x, key=key)

    def normals(self, inputs: Array | None) -> tuple[Array, Array, Array] | None:
        components = self.mixtures.components
        if not isinstance(components, Gaussian):
            return None
        spread = self._over_states(lambda m: m._over_components(lambda c: c.covariance.variances()))
        return self.mixtures.weights, components.mean, spread

    def in_units(
        self, shift: Array, scale: Array, input_shift: Array | None, input_scale: Array | None
    ) -> MixtureEmissions | None:
        rescale = Partial(_rescaled_stacks, self._axes().components)
        components = member_in_units(self.mixtures.components, shift, scale, rescale)
        return None if components is None else MixtureEmissions(Mixture(self.mixtures.weights, components))


def _rescaled_stacks(axes: Any, stacks: Any, shift: Array, scale: Array) -> Any:
    """`rescaled_stack` of each of `stacks`, whose axes are those."""
    arrays, fixed = eqx.partition(stacks, eqx.is_array)

    def one(stack: Any) -> Any:
        return eqx.filter(rescaled_stack(eqx.combine(stack, fixed), shift, scale), eqx.is_array)

    return eqx.combine(jax.vmap(one, (axes,), axes)(arrays), fixed)


class RegressionEmissions(AbstractEmissions):
    """A linear regression on the input u_t for each state:  y_t ~ N(W_k u_t + b_k, Σ_k).

    Its M step is weighted least squares.  Without arrays it is a request of a structure for Σ: an
    estimator makes them.

    Attributes:
        weights: W, shape (states, outputs, inputs).
        intercept: b, shape (states, outputs).
        covariance: Σ, a stack; `Tied(…)` shares one among the states.

    >>> from freeenergy.distributions import Diagonal
    >>> slopes, ones = jnp.array([[[1.0]], [[-1.0]]]), jnp.ones((2, 1))
    >>> lines = RegressionEmissions(slopes, 0 * ones, Diagonal(ones))
    >>> lines.at(jnp.array([3.0])).members.mean.tolist()
    [[3.0], [-3.0]]
    """

    support: ClassVar[AbstractSpace] = Reals()

    weights: Array | None = parameter(default=None)
    intercept: Array | None = parameter(default=None)
    covariance: AbstractCovariance = Full()

    def _coefficients(self) -> Array:
        """W and b side by side."""
        if self.weights is None or self.intercept is None:
            raise ValueError("RegressionEmissions has no values yet. Pass them, or fit an HMM that has it.")
        return jnp.concatenate([self.weights, self.intercept[..., None]], axis=-1)

    def _known(self, inputs: Array | None) -> Array:
        if inputs is None:
            raise ValueError("RegressionEmissions needs the inputs of every time step. Got None.")
        return with_one(inputs)

    @classmethod
    def unit_free_columns(cls, n_features: int) -> np.ndarray:
        """All of them: every regression has its counterpart in any other unit."""
        return np.ones(n_features, bool)

    @property
    def common_unit(self) -> bool:
        """Whether all columns have to be in one unit, as equal variances ask for."""
        return not self.covariance.unit_free

    def _about_zero(self) -> FamilyEmissions:
        """The laws of the residuals."""
        return FamilyEmissions(Gaussian(jnp.zeros(self._coefficients().shape[:2]), self.covariance))

    def at(self, inputs: Array | None) -> FamilyEmissions:
        """The emissions at one input: those of the residuals, given the means of the regressions."""
        means = self._coefficients() @ self._known(inputs)
        return FamilyEmissions(Mean().at(self._about_zero().members, means))

    @property
    def size(self) -> int:
        return len(self._coefficients())

    def prepare(self) -> Array:
        return self._about_zero().prepare()

    def log_probs(self, prepared: Array, x: Array, incomplete: bool, inputs: Array | None = None) -> Array:
        coefficients = self._coefficients()
        member = self._about_zero().member(0)

        def plain(rows: Array, known: Array) -> Array:
            gaps = rows[:, None] - jnp.einsum("na,kda->nkd", known, coefficients)
            return jnp.einsum("nkf,kf->nk", jax.vmap(jax.vmap(member.features))(gaps), prepared)

        def careful(rows: Array, known: Array) -> Array:
            def one(row: Array, known: Array) -> Array:
                members = self.at(known[:-1])._mixture()
                return members._over_components(lambda c: c.log_prob(row))

            return jax.vmap(one)(rows, known)

        known = self._known(inputs)
        if not incomplete or self.covariance.separable:
            return plain(x, known)
        parts = jax.lax.map(
            lambda part: jax.lax.cond(jnp.any(jnp.isnan(part[0])), careful, plain, *part),
            (_blocks(x), _blocks(known)),
        )
        return parts.reshape(-1, self.size)[: len(x)]

    def expect(
        self, prepared: Array, x: Array, r: Array, incomplete: bool, inputs: Array | None = None
    ) -> Sums:
        def plain(rows: Array, known: Array, r: Array) -> Sums:
            weighted = r[:, :, None] * known[:, None]
            return Sums(
                jnp.sum(r, axis=0),
                jnp.einsum("nka,nb->kab", weighted, known),
                jnp.einsum("nd,nka->kda", rows, weighted),
                jnp.einsum("nk,nd,ne->kde", r, rows, rows),
            )

        def careful(rows: Array, known: Array, r: Array) -> Sums:
            def one(row: Array, known: Array) -> Any:
                return self.at(known[:-1])._mixture()._over_components(lambda c: c._conditional(row)[:2])

            filled, rest = jax.vmap(one)(rows, known)
            weighted = r[:, :, None] * known[:, None]
            return Sums(
                jnp.sum(r, axis=0),
                jnp.einsum("nka,nb->kab", weighted, known),
                jnp.einsum("nkd,nka->kda", filled, weighted),
                jnp.einsum("nk,nkd,nke->kde", r, filled, filled) + jnp.einsum("nk,nkde->kde", r, rest),
            )

        def block(total: Sums, part: Any) -> tuple[Sums, None]:
            new = jax.lax.cond(jnp.any(jnp.isnan(part[0])), careful, plain, *part)
            return jax.tree.map(jnp.add, total, new), None

        known = self._known(inputs)
        if not incomplete:
            return plain(x, known, r)
        shapes = jax.eval_shape(plain, x, known, r)
        zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return jax.lax.scan(block, zero, (_blocks(x), _blocks(known), _blocks(r)))[0]

    def maximise(self, statistics: Sums) -> RegressionEmissions:
        held = self._coefficients()
        learned = (True,) * held.shape[2]
        new = jax.vmap(lambda sums, w: sums.solve(w, learned))(statistics, held)
        scatter = jax.vmap(lambda sums, w: sums.scatter(w))(statistics, new)
        # a state that explains nothing keeps what it had
        empty = statistics.weight <= 1e-10 * jnp.sum(statistics.weight)
        weight = jnp.maximum(statistics.weight, jnp.finfo(held.dtype).tiny)
        fitted = self.covariance.from_moments(
            jnp.broadcast_to(weight[:, None], held.shape[:2]),
            jnp.zeros_like(held[..., 0]),
            jax.vmap(lambda m: moments_of(self.covariance, m))(scatter),
        )
        covariance = jax.tree.map(
            lambda axis, a, b: _keep(a, b, empty if axis == 0 else None),
            component_axes(self.covariance),
            fitted,
            self.covariance,
            is_leaf=lambda a: a is None,
        )
        new = _keep(new, held, empty)
        return RegressionEmissions(new[..., :-1], new[..., -1], covariance)

    def log_prior(self) -> Array:
        return jnp.zeros(())

    def sample(self, state: Array, inputs: Array | None = None, *, key: Array) -> Array:
        return self.at(inputs).sample(state, key=key)

    def complete_mean(self, x: Array, inputs: Array | None = None) -> Array:
        return self.at(inputs).complete_mean(x)

    def complete_sample(self, x: Array, state: Array, inputs: Array | None = None, *, key: Array) -> Array:
        return self.at(inputs).complete_sample(x, state, key=key)

    def normals(self, inputs: Array | None) -> tuple[Array, Array, Array] | None:
        return self.at(inputs).normals(None)

    @eqx.filter_jit
    def in_units(
        self, shift: Array, scale: Array, input_shift: Array | None, input_scale: Array | None
    ) -> RegressionEmissions:
        """W_k = s W'_k / s_u, b_k = m + s (b'_k − W'_k m_u / s_u), and Σ_k in units of s sᵀ."""
        self._coefficients()
        W, b = in_units_of_inputs(self.weights, self.intercept, input_shift, input_scale)
        residuals: Any = member_in_units(
            self._about_zero().members, jnp.zeros_like(shift), scale, rescaled_stack
        )
        return RegressionEmissions(
            scale[None, :, None] * W, shift[None] + scale[None] * b, residuals.covariance
        )
