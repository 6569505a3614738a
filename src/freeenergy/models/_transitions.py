"""How the state of a hidden Markov model moves on: free, tied, and depending on inputs."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln
from jaxtyping import Bool, Float, Int

from .._core import buffer, in_blocks, parameter, simplex
from ..inference._semidefinite import solve_semidefinite
from ._units import in_units_of_inputs

# where transitions depend on inputs, pairs of states have numbers at each step; so many steps at a time
_PAIRS_BLOCK = 256


def dirichlet_mode(
    counts: Float[Array, "*rows labels"],
    concentration: Float[Array, "*shape"] | None,
    support: Bool[Array, "*rows labels"],
) -> Float[Array, "*rows labels"]:
    """Probabilities ∝ counts + α − 1 along the last axis, where `support` allows any.

    Where no such count is positive, the density is highest at an edge: all goes to the largest, in even
    parts if several are, as they are in a row of which nothing is known.
    """
    if concentration is not None:
        counts = counts + jnp.broadcast_to(concentration - 1, counts.shape)
    # not `maximum`, which has half the slope at zero
    mass = jnp.where(support & (counts >= 0), counts, 0)
    most = jnp.max(jnp.where(support, counts, -jnp.inf), axis=-1, keepdims=True)
    largest = (support & (counts == most)).astype(counts.dtype)
    mass = jnp.where(jnp.sum(mass, axis=-1, keepdims=True) > 0, mass, largest)
    return mass / jnp.sum(mass, axis=-1, keepdims=True)


def dirichlet_log_density(
    p: Float[Array, "*rows labels"], concentration: Float[Array, "*shape"] | None
) -> Float[Array, ""]:
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
    def matrix(self, inputs: Float[Array, " inputs"] | None = None) -> Float[Array, "states states"]:
        """p(x_t = j | x_{t−1} = i) at [i, j], given the inputs of step t."""

    @property
    @abc.abstractmethod
    def varies(self) -> bool:
        """Whether the matrix depends on the inputs."""

    def in_units(self, shift: Array | None, scale: Array | None) -> AbstractTransition | None:
        """The same of shift + scale · u; None where a transition of its kind is none."""
        return None if self.varies else self


class AbstractCountedTransition(AbstractTransition):
    """A transition that expected counts of pairs determine in closed form."""

    @abc.abstractmethod
    def maximise(self, counts: Float[Array, "states states"]) -> AbstractCountedTransition:
        """The most probable member given how often j followed i, at [i, j]."""

    @abc.abstractmethod
    def log_prior(self) -> Float[Array, ""]:
        """log density of the parameters, zero without a prior."""


class Transition(AbstractCountedTransition):
    """Rows that are free; entries that are zero stay zero.

    Attributes:
        rows: p(next = j | now = i) at [i, j].
        concentration: α of a Dirichlet prior, of the shape of `rows` (or one that broadcasts to it): one
            more than the imagined counts.
    """

    rows: Float[Array, "states states"] = parameter(simplex)
    concentration: Float[Array, "*shape"] | None = buffer(default=None)

    def matrix(self, inputs: Float[Array, " inputs"] | None = None) -> Float[Array, "states states"]:
        return self.rows

    @property
    def varies(self) -> bool:
        return False

    def maximise(self, counts: Float[Array, "states states"]) -> Transition:
        fresh = dirichlet_mode(counts, self.concentration, self.rows > 0)
        # a state that was never left keeps its row
        seen = jnp.sum(counts, axis=1, keepdims=True) > 0
        keep = ~seen if self.concentration is None else jnp.zeros_like(seen)
        return Transition(jnp.where(keep, self.rows, fresh), self.concentration)

    def log_prior(self) -> Float[Array, ""]:
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

    share: Float[Array, " labels"] = parameter(simplex)
    labels: Int[Array, "states states"]  # pyright: ignore[reportGeneralTypeIssues]

    def _one_hot(self) -> Float[Array, "states states labels"]:
        return jax.nn.one_hot(self.labels, len(self.share), dtype=self.share.dtype)

    def matrix(self, inputs: Float[Array, " inputs"] | None = None) -> Float[Array, "states states"]:
        one_hot = self._one_hot()
        return (
            one_hot
            @ self.share
            / jnp.maximum(jnp.einsum("ijg,ig->ij", one_hot, jnp.sum(one_hot, axis=1)), 1)
        )

    @property
    def varies(self) -> bool:
        return False

    def maximise(self, counts: Float[Array, "states states"]) -> TiedTransition:
        total = jnp.einsum("ij,ijg->g", counts, self._one_hot())
        return TiedTransition(dirichlet_mode(total, None, jnp.ones_like(total) > 0), self.labels)

    def log_prior(self) -> Float[Array, ""]:
        return jnp.zeros((), self.share.dtype)


class InputTransition(AbstractTransition):
    """Transitions that depend on an input u_t:  A(u) = softmax of `logits(u)` along rows.

    It has no closed-form M step: learn it with `Gradient`, or see `LogisticTransition`.

    Attributes:
        logits: a module that maps u_t to an array of shape (states, states).
    """

    logits: Callable[[Float[Array, " inputs"]], Float[Array, "states states"]]

    def matrix(self, inputs: Float[Array, " inputs"] | None = None) -> Float[Array, "states states"]:
        if inputs is None:
            raise ValueError("InputTransition needs the inputs of every time step. Got None.")
        return jax.nn.softmax(self.logits(inputs), axis=-1)

    @property
    def varies(self) -> bool:
        return True


class LogisticStatistics(NamedTuple):
    """What `LogisticTransition` needs of series, for rows i of A and with ũ = (u, 1).

    Attributes:
        score: slope of the expected log-likelihood in the coefficients.
        curvature: minus its second derivative in those of a row, flat.
        lengths: Σ ‖ũ‖¹⁶ over all steps, whose 16th root no ‖ũ‖ exceeds.
    """

    score: Float[Array, "states states regressors"]
    curvature: Float[Array, "states coefficients coefficients"]
    lengths: Float[Array, ""]


def _penalty(value: Any) -> Float[Array, ""]:
    return jnp.asarray(value, float)


def with_one(inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows regressors"]:
    """(u, 1), for one or many u."""
    return jnp.concatenate([inputs, jnp.ones((*inputs.shape[:-1], 1), inputs.dtype)], axis=-1)


class LogisticTransition(AbstractTransition):
    """Transitions by logistic regression on an input u_t:  A(u)[i, j] ∝ exp(w_ij · u + b_ij).

    Also known as an input–output HMM, or time-varying transition probabilities.

    The M step of EM moves each row of A along Newton's direction d.  Third derivatives of the expected
    log-likelihood are at most S times the second, S = max_t range_j d_j · ũ_t, so that a step of length
    log(1 + S) / S never lowers it (damped Newton); near the end this is Newton's method.  Without arrays it
    is a request: an estimator makes them.

    Attributes:
        weights: w.
        intercept: b; −∞ is an impossible transition and stays so.
        penalty: λ of the prior exp(−½ λ Σ (w² + b²)); zero is maximum likelihood.

    >>> restless = LogisticTransition(jnp.array([[[0.0], [2.0]], [[0.0], [0.0]]]), jnp.zeros((2, 2)))
    >>> [round(float(p), 3) for p in restless.matrix(jnp.array([1.0]))[0]]
    [0.119, 0.881]
    """

    weights: Float[Array, "states states inputs"] | None = parameter(default=None)
    intercept: Float[Array, "states states"] | None = parameter(default=None)
    penalty: Float[Array, ""] = buffer(converter=_penalty, default=0.0)

    def _coefficients(self) -> Float[Array, "states states regressors"]:
        """w and b side by side."""
        if self.weights is None or self.intercept is None:
            raise ValueError("LogisticTransition has no values yet. Pass them, or fit an HMM that has it.")
        return jnp.concatenate([self.weights, self.intercept[..., None]], axis=-1)

    def matrix(self, inputs: Float[Array, " inputs"] | None = None) -> Float[Array, "states states"]:
        if inputs is None:
            raise ValueError("LogisticTransition needs the inputs of every time step. Got None.")
        return jax.nn.softmax(self._coefficients() @ with_one(inputs), axis=-1)

    @property
    def varies(self) -> bool:
        return True

    def expect(
        self,
        inputs: Float[Array, "steps inputs"],
        before: Float[Array, "steps states"],
        later: Float[Array, "steps states"],
        kernel: Callable[[Float[Array, "steps states states"]], Float[Array, "steps states states"]],
    ) -> LogisticStatistics:
        """Sums over steps for the expected pairs before_i kernel(A(u))_ij later_j of each."""
        size, width = before.shape[-1], inputs.shape[-1] + 1
        eye = jnp.eye(size, dtype=before.dtype)

        def block(total: LogisticStatistics, part: Any) -> tuple[LogisticStatistics, None]:
            u, old, new = part
            A = jax.vmap(self.matrix)(u)
            u = with_one(u)
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

    def against_staying(self) -> LogisticTransition:
        """The same probabilities by the log-odds of each next state against staying, which are known alone.

        Of a state that cannot stay, against the first state that can follow.
        """
        now = self._coefficients()
        size = len(now)
        possible = jnp.isfinite(now[..., -1])
        first = jnp.argmax(possible, axis=1)
        kept = jnp.where(jnp.diagonal(possible), jnp.arange(size), first)
        now = now - jnp.take_along_axis(now, kept[:, None, None], axis=1)
        return LogisticTransition(now[..., :-1], now[..., -1], self.penalty)

    @eqx.filter_jit
    def in_units(self, shift: Array | None, scale: Array | None) -> LogisticTransition:
        """The same of shift + scale · u, without the prior, which is one of the coefficients of u."""
        return LogisticTransition(*in_units_of_inputs(self.weights, self.intercept, shift, scale))

    def log_prior(self) -> Float[Array, ""]:
        """Up to a constant."""
        now = self._coefficients()
        return -0.5 * self.penalty * jnp.sum(jnp.where(jnp.isfinite(now), now, 0) ** 2)
