"""What is known of an unknown after inference: the same questions, whatever method answers them."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._core import AbstractHomogeneous, AbstractSpace, Kind
from ..distributions import AbstractDistribution, AbstractPartial
from ._diagnostics import chain_mean
from ._importance import self_normalised_mean


class Nature(enum.Enum):
    """What a posterior is."""

    EXACT = "exact"
    VARIATIONAL = "variational"
    SAMPLES = "samples"
    WEIGHTED = "weighted samples"
    POINT = "point"


class LogEvidence(eqx.Module):
    """log Z = log ∫ exp(−e(z)) dz, how well it is known, and in which sense.

    Attributes:
        nats: the number.
        stderr: its Monte Carlo standard error, zero if nothing was drawn.
        kind: exact, a lower bound (on average), or an estimate.
    """

    nats: Float[Array, ""]
    stderr: Float[Array, ""]
    kind: Kind = eqx.field(static=True)


class AbstractPosterior(eqx.Module):
    """The distribution p(z) ∝ exp(−e(z)) of an unknown, or what stands for it.

    Attributes:
        spaces: what the leaves of z can be.
        log_evidence: log Z; None where the method gives none.
        diagnostics: numbers that say how far to trust it, such as an effective sample size.
    """

    spaces: eqx.AbstractVar[tuple[AbstractSpace, ...]]
    log_evidence: eqx.AbstractVar[LogEvidence | None]
    diagnostics: eqx.AbstractVar[dict[str, Array]]

    @property
    @abc.abstractmethod
    def nature(self) -> Nature:
        """What it is: exact, variational, samples, weighted samples or a point."""

    @abc.abstractmethod
    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        """Values of z along a first axis, and the weights (of sum one) with which they stand for it."""

    @abc.abstractmethod
    def sample(self, n: int, *, key: Array) -> PyTree:
        """`n` draws, stacked along a first axis."""

    @abc.abstractmethod
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        """E[f(z)], and its standard error (zero where nothing was drawn)."""

    @abc.abstractmethod
    def mean(self) -> PyTree:
        """E[z], refused for labels, whose order means nothing."""

    def covariance(self) -> Float[Array, "dim dim"]:
        """The covariance of the entries of z, in the order of `ravel_pytree`."""
        refuse_labels(self.spaces, "covariance")
        return _covariance(*self.weighted_values())

    def quantile(self, probability: float) -> PyTree:
        """Entry by entry, the least value that at least this much probability does not exceed."""
        refuse_labels(self.spaces, "quantile")
        return _quantiles(*self.weighted_values(), np.asarray(probability))

    def interval(self, level: float = 0.9) -> tuple[PyTree, PyTree]:
        """Entry by entry, a central interval of probability `level` (also known as a credible interval)."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def refuse_labels(spaces: tuple[AbstractSpace, ...], question: str) -> None:
    """Refuses a question that has no answer for labels."""
    if any(isinstance(space, AbstractHomogeneous) and space.unordered for space in spaces):
        raise ValueError(
            f"Labels have no order, and so no {question}: read their probabilities with 'expect'."
        )


# the answers are programs of their own: asked for outside of one, every operation would be one
@eqx.filter_jit
def _covariance(values: PyTree, weights: Float[Array, " values"]) -> Float[Array, "dim dim"]:
    rows = jax.vmap(lambda z: ravel_pytree(z)[0])(values)
    gap = rows - (weights @ rows)[None]
    return (weights[:, None] * gap).T @ gap


@eqx.filter_jit
def _quantiles(values: PyTree, weights: Float[Array, " values"], probability: np.ndarray) -> PyTree:
    return jax.tree.map(lambda a: _quantile(a, weights, probability), values)


def _quantile(values: Array, weights: Float[Array, " values"], probability: Any) -> Array:
    flat = values.reshape(len(values), -1)
    order = jnp.argsort(flat, axis=0)
    below = jnp.cumsum(weights[order], axis=0)
    # rounding may leave the last sum a little below one
    place = jnp.argmax(below >= probability * below[-1:] - 1e-12, axis=0)
    return jnp.take_along_axis(flat, jnp.take_along_axis(order, place[None], 0), 0).reshape(
        values.shape[1:]
    )


@eqx.filter_jit
def _average(values: PyTree, weights: Float[Array, " values"]) -> PyTree:
    return jax.tree.map(lambda a: jnp.tensordot(weights, a.astype(weights.dtype), 1), values)


@eqx.filter_jit
def _chosen(values: PyTree, which: Array) -> PyTree:
    return jax.tree.map(lambda a: a[which], values)


class FinitePosterior(AbstractPosterior):
    """Every state with its probability: exact.

    Attributes:
        states: along a first axis.
        probabilities: one a state.
    """

    states: PyTree
    probabilities: Float[Array, " states"]
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)

    @property
    def nature(self) -> Nature:
        return Nature.EXACT

    def weighted_values(self) -> tuple[PyTree, Float[Array, " states"]]:
        return self.states, self.probabilities

    def sample(self, n: int, *, key: Array) -> PyTree:
        return _chosen(self.states, jax.random.categorical(key, jnp.log(self.probabilities), shape=(n,)))

    @eqx.filter_jit
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        value = _average(jax.vmap(f)(self.states), self.probabilities)
        return value, jax.tree.map(jnp.zeros_like, value)

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        return _average(self.states, self.probabilities)


class DistributionPosterior(AbstractPosterior):
    """A distribution q: the posterior itself, or the nearest of a family to it.

    Attributes:
        q: the distribution.
        draws: of q, along a first axis; expectations are averages over them.
        kind_of_q: exact or variational.
    """

    q: AbstractDistribution
    draws: PyTree
    kind_of_q: Nature = eqx.field(static=True)
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)

    @property
    def nature(self) -> Nature:
        return self.kind_of_q

    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        n = len(jax.tree.leaves(self.draws)[0])
        return self.draws, jnp.full(n, 1 / n)

    def sample(self, n: int, *, key: Array) -> PyTree:
        return jax.vmap(lambda k: self.q.sample(key=k))(jax.random.split(key, n))

    @eqx.filter_jit
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        values = jax.vmap(f)(self.draws)
        n = len(jax.tree.leaves(self.draws)[0])
        error = jax.tree.map(lambda a: jnp.std(a.astype(float), axis=0, ddof=1) / n**0.5, values)
        return jax.tree.map(lambda a: jnp.mean(a.astype(float), axis=0), values), error

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        if isinstance(self.q, AbstractPartial):
            # in closed form: of an event of which nothing is observed
            return self.q.complete_mean(jnp.full_like(self.draws[0], jnp.nan, dtype=float))
        return self.expect(lambda z: z)[0]


class DrawsPosterior(AbstractPosterior):
    """Draws: of several Markov chains, or independent ones with importance weights.

    Attributes:
        draws: (chains, steps, …) for Markov chains, (draws, …) where they have weights.
        log_weights: one a draw, up to a constant; None for those of Markov chains, which are equal.
        groups: how many independent groups of draws, each with one weight, stand after each other; 0 where
            the draws themselves are independent.
    """

    draws: PyTree
    log_weights: Float[Array, " draws"] | None
    groups: int = eqx.field(static=True, default=0, kw_only=True)
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)

    @property
    def nature(self) -> Nature:
        return Nature.SAMPLES if self.log_weights is None else Nature.WEIGHTED

    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        if self.log_weights is not None:
            return self.draws, jax.nn.softmax(self.log_weights)
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), self.draws)
        n = len(jax.tree.leaves(flat)[0])
        return flat, jnp.full(n, 1 / n)

    def sample(self, n: int, *, key: Array) -> PyTree:
        values, weights = self.weighted_values()
        return _chosen(values, jax.random.categorical(key, jnp.log(weights), shape=(n,)))

    @eqx.filter_jit
    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        if self.log_weights is None:
            pairs = jax.tree.map(lambda a: chain_mean(a.astype(float)), jax.vmap(jax.vmap(f))(self.draws))
        else:
            pairs = jax.tree.map(lambda a: self._weighted_mean(a.astype(float)), jax.vmap(f)(self.draws))
        outer = jax.tree.structure(jax.eval_shape(f, _chosen(self.weighted_values()[0], jnp.asarray(0))))
        return jax.tree.transpose(outer, jax.tree.structure((0, 0)), pairs)

    def _weighted_mean(self, values: Float[Array, " draws *event"]) -> tuple[Array, Array]:
        assert self.log_weights is not None
        log_weights, wider = self.log_weights, 1.0
        if self.groups:
            each = len(log_weights) // self.groups
            log_weights = log_weights[::each]
            values = jnp.mean(values.reshape(self.groups, each, *values.shape[1:]), axis=1)
            # few groups are nearer to their own mean than to the true one
            wider = (self.groups / (self.groups - 1)) ** 0.5
        mean, error = self_normalised_mean(log_weights, values.astype(log_weights.dtype))
        return mean, wider * error

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        return _average(*self.weighted_values())


class PointPosterior(AbstractPosterior):
    """One value: the mode (MAP).  It has no spread, and says nothing of its own error.

    Attributes:
        point: the value of least energy.
        energy: the energy there.
    """

    point: PyTree
    energy: Float[Array, ""]
    spaces: tuple[AbstractSpace, ...] = eqx.field(static=True, kw_only=True)
    diagnostics: dict[str, Array] = eqx.field(default_factory=dict, kw_only=True)
    log_evidence: LogEvidence | None = eqx.field(default=None, kw_only=True)

    @property
    def nature(self) -> Nature:
        return Nature.POINT

    def weighted_values(self) -> tuple[PyTree, Float[Array, " values"]]:
        return jax.tree.map(lambda a: a[None], self.point), jnp.ones(1)

    def sample(self, n: int, *, key: Array) -> PyTree:
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (n, *a.shape)), self.point)

    def expect(self, f: Callable[[Any], PyTree]) -> tuple[PyTree, PyTree]:
        value = f(self.point)
        return value, jax.tree.map(jnp.zeros_like, value)

    def mean(self) -> PyTree:
        refuse_labels(self.spaces, "mean")
        return self.point
