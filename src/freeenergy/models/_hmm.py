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

from .._core import boltzmann, buffer, in_blocks, parameter, simplex
from ..distributions import (
    AbstractConjugatePrior,
    AbstractCovariance,
    AbstractExponentialFamily,
    Full,
    Gaussian,
    component_axes,
    stack_size,
)
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
    solve_semidefinite,
    stationary,
)
from ..inference._chain_finite import tempered
from ._base import AbstractExpectationMaximisation, AbstractRegularised
from ._mixture import Mixture, MixtureStatistics, _keep
from ._series import AbstractSequenceModel, Series
from ._state_space import Sums, moments_of

# incomplete rows need moments per row and state; this many rows at a time keeps them small
_INCOMPLETE_BLOCK = 32
# the same for what transitions need that depend on inputs
_PAIRS_BLOCK = 256


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

    It has no closed-form M step: learn it with `Gradient`, or see `LogisticTransition`.

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


class LogisticStatistics(NamedTuple):
    """What `LogisticTransition` needs of series, for rows i of A and with ũ = (u, 1).

    Attributes:
        score: slope of the expected log-likelihood in the coefficients, (states, states, inputs + 1).
        curvature: minus its second derivative in those of a row, flat.
        lengths: Σ ‖ũ‖¹⁶ over all steps, whose 16th root no ‖ũ‖ exceeds.
    """

    score: Array
    curvature: Array
    lengths: Array


def _number(value: Any) -> Array:
    return jnp.asarray(value, float)


def _with_one(inputs: Array) -> Array:
    """(u, 1), for one or many u."""
    return jnp.concatenate([inputs, jnp.ones((*inputs.shape[:-1], 1), inputs.dtype)], axis=-1)


class LogisticTransition(AbstractTransition):
    """Transitions by logistic regression on an input u_t:  A(u)[i, j] ∝ exp(w_ij · u + b_ij).

    The M step of EM moves each row of A along Newton's direction d.  Third derivatives of the expected
    log-likelihood are at most S times the second, S = max_t range_j d_j · ũ_t, so that a step of length
    log(1 + S) / S never lowers it; near the end this is Newton's method.  Without arrays it is a request:
    an estimator makes them.

    Attributes:
        weights: w, shape (states, states, inputs).
        intercept: b, shape (states, states); −∞ is an impossible transition and stays so.
        penalty: λ of the prior exp(−½ λ Σ (w² + b²)); zero is maximum likelihood.

    >>> restless = LogisticTransition(jnp.array([[[0.0], [2.0]], [[0.0], [0.0]]]), jnp.zeros((2, 2)))
    >>> [round(float(p), 3) for p in restless.matrix(jnp.array([1.0]))[0]]
    [0.119, 0.881]
    """

    weights: Array | None = parameter(default=None)
    intercept: Array | None = parameter(default=None)
    penalty: Array = buffer(converter=_number, default=0.0)

    def _coefficients(self) -> Array:
        """w and b side by side."""
        if self.weights is None or self.intercept is None:
            raise ValueError("LogisticTransition has no values yet. Pass them, or fit an HMM that has it.")
        return jnp.concatenate([self.weights, self.intercept[..., None]], axis=-1)

    def matrix(self, inputs: Array | None = None) -> Array:
        if inputs is None:
            raise ValueError("LogisticTransition needs the inputs of every time step. Got None.")
        return jax.nn.softmax(self._coefficients() @ _with_one(inputs), axis=-1)

    @property
    def varies(self) -> bool:
        return True

    def expect(
        self, inputs: Array, before: Array, later: Array, kernel: Callable[[Array], Array]
    ) -> LogisticStatistics:
        """Sums over steps for the expected pairs before_i kernel(A(u))_ij later_j of each."""
        size, width = before.shape[-1], inputs.shape[-1] + 1
        eye = jnp.eye(size, dtype=before.dtype)

        def block(total: LogisticStatistics, part: Any) -> tuple[LogisticStatistics, None]:
            u, old, new = part
            A = jax.vmap(self.matrix)(u)
            u = _with_one(u)
            pairs = old[:, :, None] * kernel(A) * new[:, None, :]
            left = jnp.sum(pairs, axis=2)
            score = jnp.einsum("nij,na->ija", pairs - left[..., None] * A, u)
            spread = A[..., :, None] * (eye[None, None] - A[..., None, :]) * left[..., None, None]
            squares = (u[:, :, None] * u[:, None, :]).reshape(len(u), -1)
            curvature = jnp.einsum("nijl,nc->ijlc", spread, squares)
            lengths = jnp.where(jnp.any(left > 0, axis=1), jnp.sum(u**2, axis=1) ** 8, 0)
            curvature = curvature.reshape(size, size, size, width, width).swapaxes(2, 3)
            found = LogisticStatistics(
                score, curvature.reshape(size, size * width, size * width), jnp.sum(lengths)
            )
            return jax.tree.map(jnp.add, total, found), None

        zero = jnp.zeros((size, size * width, size * width), before.dtype)
        start = LogisticStatistics(zero[:, 0].reshape(size, size, width), zero, zero[0, 0, 0])
        parts = tuple(in_blocks(a, _PAIRS_BLOCK) for a in (inputs, before, later))
        return jax.lax.scan(block, start, parts)[0]

    def maximise(self, statistics: LogisticStatistics) -> LogisticTransition:
        """A member that explains the expected pairs better, or is the best."""
        now = self._coefficients()
        possible = jnp.isfinite(now)
        size, _, width = now.shape
        slope = statistics.score - self.penalty * jnp.where(possible, now, 0)
        eye = jnp.eye(size * width, dtype=now.dtype)
        curvature = statistics.curvature + self.penalty * eye[None]
        step = jax.vmap(solve_semidefinite)(curvature, slope.reshape(size, size * width, 1))
        step = jnp.where(possible, step.reshape(now.shape), 0)
        gaps = jnp.sqrt(jnp.sum((step[:, :, None] - step[:, None, :]) ** 2, axis=-1))
        bound = jnp.max(gaps, axis=(1, 2)) * statistics.lengths ** (1 / 16)
        share = jnp.where(bound > 0, jnp.log1p(bound) / jnp.where(bound > 0, bound, 1), 1)
        new = now + share[:, None, None] * step
        return LogisticTransition(new[..., :-1], new[..., -1], self.penalty)

    def log_prior(self) -> Array:
        """Up to a constant."""
        now = self._coefficients()
        return -0.5 * self.penalty * jnp.sum(jnp.where(jnp.isfinite(now), now, 0) ** 2)


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
        return _with_one(inputs)

    def _about_zero(self) -> FamilyEmissions:
        """The laws of the residuals."""
        return FamilyEmissions(Gaussian(jnp.zeros(self._coefficients().shape[:2]), self.covariance))

    def at(self, inputs: Array | None) -> FamilyEmissions:
        """The emissions at one input."""
        means = self._coefficients() @ self._known(inputs)
        return FamilyEmissions(Gaussian(means, self.covariance))

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


def _as_transition(value: Any) -> AbstractTransition:
    return value if isinstance(value, AbstractTransition) else Transition(value)


def _as_emissions(value: Any) -> AbstractEmissions:
    if isinstance(value, Mixture):
        return MixtureEmissions(value)
    return FamilyEmissions(value) if isinstance(value, AbstractExponentialFamily) else value


class HMMStatistics(NamedTuple):
    """Expected counts of first states, what the transition needs (of most, expected counts of pairs of
    states), and what the emissions need."""

    starts: Array
    pairs: Any
    emissions: Any


class HMM(AbstractExpectationMaximisation[HMMStatistics], AbstractSequenceModel, AbstractRegularised):
    """A hidden Markov model:  p(x, y) = π(x_1) Π_t A(x_{t−1}, x_t) Π_t p(y_t | x_t).

    Rows of A are the states that are left: A[i, j] = p(next = j | now = i).  EM for it is the
    Baum–Welch algorithm, at temperature zero Viterbi training.  Both A and the emissions may depend on
    the inputs u_t of a series; A(u_t) leads to x_t.

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
        prepared = self.emissions.prepare()
        logs = self.emissions.log_probs(prepared, series.values, incomplete, series.inputs)
        return FiniteStep(self._allowed(logs, series), self._matrices(series.inputs))

    def _matrices(self, inputs: Array | None) -> Array | None:
        """A(u_t) for each step, if it varies."""
        if not self.transition.varies:
            return None
        if inputs is None:
            raise ValueError("A transition that varies needs the inputs of every time step. Got None.")
        return jax.vmap(self.transition.matrix)(inputs)

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

    def forecast(
        self, series: Series, steps: int, *, incomplete: bool = True, inputs: Array | None = None
    ) -> tuple[Array, Array]:
        """p(x) and E[y] for each of the `steps` after the last real one of a single series.

        `inputs` are those of these steps.
        """
        now = self.filter(series, incomplete=incomplete).filtered[-1]
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

    def means(self, inputs: Array | None = None) -> Array:
        """E[y | x = k] for each state k, given the inputs of a step."""

        def draw() -> Array:
            return self.emissions.sample(jnp.asarray(0), inputs, key=jax.random.key(0))

        nothing = jnp.full(jax.eval_shape(draw).shape, jnp.nan)
        return self.emissions.complete_mean(nothing, inputs)

    def sample_with_states(
        self, length: int, *, key: Array, inputs: Array | None = None
    ) -> tuple[Array, Array]:
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

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        return self.sample_with_states(length, key=key, inputs=inputs)[1]

    def complete_mean(self, series: Series) -> Array:
        gamma = self.smooth(series).marginals

        def row(x: Array, g: Array, u: Array | None) -> Array:
            return jnp.where(jnp.isnan(x), g @ self.emissions.complete_mean(x, u), x)

        return jax.vmap(row)(series.values, gamma, series.inputs)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        path_key, fill_key = jax.random.split(key)
        states = self.sample_states(series, key=path_key)
        keys = jax.random.split(fill_key, len(states))

        def fill(x: Array, s: Array, u: Array | None, k: Array) -> Array:
            return self.emissions.complete_sample(x, s, u, key=k)

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
            pushes = _flat(series.inputs[1:])
            return learned.expect(pushes, _flat(before[:-1]), _flat(later[1:]), kernel)

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

    def log_prior(self) -> Array:
        total = self.emissions.log_prior()
        if isinstance(self.transition, AbstractCountedTransition | LogisticTransition):
            total = total + self.transition.log_prior()
        if self.initial is not None:
            total = total + dirichlet_log_density(self.initial, self.concentration)
        return total


def _flat(a: Array) -> Array:
    """Steps of all series as rows."""
    return a.reshape(-1, a.shape[-1])


def _product(left: Array, right: Array) -> Array:
    """Σ over time and series of the outer products of the last axes."""
    return _flat(left).T @ _flat(right)


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

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
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
