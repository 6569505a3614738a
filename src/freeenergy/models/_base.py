"""What models can do.  An algorithm asks for the smallest of these that serves it.

Every model is a frozen tree of parameters and knows nothing of data sets or fitting.  Besides these
abstract classes the methods that recognitions use have fixed names: `energy(x, z)` = −log p(x, z)
(up to log Z for undirected models), `posterior(x)` = p(z | x), `log_prob(x)` where it is exact.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Generic, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ..inference import (
    AbstractRecognition,
    ImportanceEstimate,
    importance_estimate,
    importance_log_weights,
)

Statistics = TypeVar("Statistics")


class AbstractExpectationMaximisation(eqx.Module, Generic[Statistics]):
    """A model whose free energy has a closed-form minimum in q and, given q, in θ.

    Attributes:
        rows_at_once: how many rows `expect` is best given, where there are many.
    """

    # with more, what is formed of them for tens of columns outgrows what a core reaches quickly
    rows_at_once: ClassVar[int] = 160

    @abc.abstractmethod
    def prepare(self) -> Any:
        """What of the E step does not depend on the rows; computed once for all blocks."""

    @abc.abstractmethod
    def expect_prepared(
        self, prepared: Any, x: Array, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[Statistics, Array]:
        """`expect`, given what `prepare` returned."""

    def expect(
        self, x: Array, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[Statistics, Array]:
        """Weighted sums over rows of the expected statistics, and of the free energy at them.

        Args:
            x: a block of rows.
            weight: a non-negative number per row.
            temperature: q ∝ exp(−e / temperature): one is the posterior, zero its mode.
            incomplete: whether `x` may hold NaN.
        """
        return self.expect_prepared(
            self.prepare(), x, weight, temperature=temperature, incomplete=incomplete
        )

    @abc.abstractmethod
    def maximise(self, statistics: Statistics) -> Self:
        """The parameters of least free energy for expected `statistics`."""


class AbstractRegularised(eqx.Module):
    """A model with a prior over its own parameters, which `maximise` heeds: EM then finds the MAP."""

    @abc.abstractmethod
    def log_prior(self) -> Array:
        """log p(θ), zero without a prior."""


class AbstractEnergy(eqx.Module):
    """An undirected model: p(x) ∝ exp(−F(x)), with a Markov chain that leaves p unchanged."""

    @abc.abstractmethod
    def free_energy(self, x: Array) -> Array:
        """F(x) = −log Σ_z exp(−e(x, z))."""

    @abc.abstractmethod
    def gibbs(self, x: Array, *, key: Array) -> Array:
        """One sweep x → z → x′."""

    @abc.abstractmethod
    def initial(self, *, key: Array) -> Array:
        """A state to start a chain from, drawn without the interactions."""


class AbstractExactModel(eqx.Module):
    """A model that knows p(x) exactly, with or without missing entries, and these given the others."""

    @abc.abstractmethod
    def log_prob(self, x: Array) -> Array:
        """log p of what is observed of `x`: NaN is marginalised."""

    @abc.abstractmethod
    def log_prob_complete(self, x: Array) -> Array:
        """The same for an event without NaN, where that is faster."""

    @abc.abstractmethod
    def sample(self, *, key: Array) -> Array:
        """A draw."""

    @abc.abstractmethod
    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed."""

    @abc.abstractmethod
    def complete_sample(self, x: Array, *, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones."""

    def evidence(self, x: Array, *, samples: int = 1, key: Array | None = None) -> ImportanceEstimate:
        """log p as other models give it: here without an error, whatever the number of `samples`."""
        nats = self.log_prob(x)
        zero = jnp.zeros_like(nats)
        return ImportanceEstimate(nats, zero, zero + samples, jnp.zeros(2, nats.dtype))


class AbstractBoundedModel(eqx.Module):
    """A model of which importance samples bound log p(x) from below: an energy and a recognition.

    Attributes:
        exact_if_complete: whether `log_prob` knows events without NaN exactly.
    """

    exact_if_complete: ClassVar[bool] = False

    @abc.abstractmethod
    def energy(self, x: Array, z: Array) -> Array:
        """−log p(x, z) of what is observed of `x`."""

    @property
    @abc.abstractmethod
    def recognition(self) -> AbstractRecognition:
        """Where importance samples of the hidden part come from."""

    @abc.abstractmethod
    def sample(self, *, key: Array) -> Array:
        """A draw."""

    @abc.abstractmethod
    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed, by importance samples."""

    @abc.abstractmethod
    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, from one of `samples`."""

    def evidence(self, x: Array, *, samples: int, key: Array) -> ImportanceEstimate:
        """log of the mean of `samples` weights p(x, z) / q(z | x): at most log p(x) on average."""
        return importance_estimate(
            importance_log_weights(self, self.recognition, x, samples=samples, key=key)
        )


class AbstractCoded(eqx.Module):
    """A model with one hidden vector for each event."""

    @abc.abstractmethod
    def encode(self, x: Array) -> Array:
        """The hidden vector that is inferred of `x`: its mean, or the most probable one."""
