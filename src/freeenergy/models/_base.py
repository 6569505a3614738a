"""What models can do.  An algorithm asks for the smallest of these that serves it.

Every model is a frozen tree of parameters and knows nothing of data sets or fitting.  `posterior` and
`log_prob` are exact wherever they stand; what is approximate has another name.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Generic, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import AbstractSpace
from ..distributions import AbstractDistribution
from ..inference import (
    AbstractRecognition,
    ImportanceEstimate,
    importance_draws,
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
        self,
        prepared: Any,
        x: PyTree,
        weight: Float[Array, " rows"],
        *,
        temperature: Array,
        incomplete: bool,
    ) -> tuple[Statistics, Array]:
        """`expect`, given what `prepare` returned."""

    def expect(
        self, x: PyTree, weight: Float[Array, " rows"], *, temperature: Array, incomplete: bool
    ) -> tuple[Statistics, Float[Array, ""]]:
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
    """A model whose parameters have a free energy of their own: `maximise` heeds it, and EM adds it."""

    @abc.abstractmethod
    def parameter_free_energy(self) -> Float[Array, ""]:
        """E_q[−log p(θ)] − H[q] of the parameters.

        −log p(θ) where they are a point (MAP), and KL(q(θ) ‖ p(θ)) where the model is a distribution over
        them (variational Bayes); zero without a prior.
        """


class AbstractWithPrior(AbstractRegularised):
    """A model with a prior over its own parameters, which `maximise` heeds: EM then finds the MAP."""

    @abc.abstractmethod
    def log_prior(self) -> Float[Array, ""]:
        """log p(θ), zero without a prior."""

    def parameter_free_energy(self) -> Float[Array, ""]:
        """−log p(θ)."""
        return -self.log_prior()


class AbstractEnergy(eqx.Module):
    """A model as an energy: low where an observation x and a hidden cause z fit together."""

    @abc.abstractmethod
    def energy(self, x: PyTree, z: PyTree) -> Float[Array, ""]:
        """e(x, z) = −log p(x, z), up to log Z in undirected models."""

    @abc.abstractmethod
    def latent(self, x: PyTree) -> PyTree[AbstractSpace]:
        """What z can be for this x: a tree of spaces, for `inference.infer`."""


class AbstractExactPosterior(AbstractEnergy):
    """An energy whose hidden cause has a known distribution given the observation."""

    @abc.abstractmethod
    def posterior(self, x: PyTree) -> AbstractDistribution:
        """p(z | x) ∝ exp(−e(x, z)), exactly."""


class AbstractConditional(AbstractExactPosterior):
    """A model of answers given rows, such as a regression: it knows p(y | x), and nothing of x."""

    @abc.abstractmethod
    def log_prob_of(self, y: Array, x: Array) -> Float[Array, ""]:
        """log p(y | x)."""


class AbstractTogether(AbstractExactPosterior):
    """A model of answers that tell of each other whatever its parameters: their log p is no sum."""

    @abc.abstractmethod
    def log_prob_together(self, y: Array, x: Array) -> Float[Array, ""]:
        """log p(y | x) of all answers to all rows, along first axes; NaN is not known."""


class AbstractRecognised(AbstractEnergy):
    """An energy with a recognition of its own, for `inference.free_energy` and importance sampling."""

    @property
    @abc.abstractmethod
    def recognition(self) -> AbstractRecognition:
        """What makes q(z | x): `recognition(e(x, ·), x)`."""


class AbstractVariationalBound(eqx.Module):
    """A model that knows log p(x) only from below, and so has no `log_prob`."""

    @abc.abstractmethod
    def bound(self, x: PyTree, *, key: Array) -> Float[Array, ""]:
        """A number that is at most log p(x), on average over keys (also known as ELBO)."""


class AbstractUndirected(AbstractEnergy):
    """An undirected model: p(x) ∝ exp(−F(x)) with unknown Z, and a Markov chain that leaves p unchanged."""

    @abc.abstractmethod
    def free_energy(self, x: Array) -> Float[Array, ""]:
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


class AbstractBoundedModel(AbstractRecognised):
    """A model of which importance samples bound log p(x) from below: an energy and a recognition.

    Attributes:
        exact_if_complete: whether `log_prob` knows events without NaN exactly.
        of_recognition: fields that the recognition has for itself, and the energy does not know.
    """

    exact_if_complete: ClassVar[bool] = False
    of_recognition: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def sample(self, *, key: Array) -> Array:
        """A draw."""

    @abc.abstractmethod
    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed, by importance samples."""

    @abc.abstractmethod
    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, from one of `samples`."""

    @abc.abstractmethod
    def complete_given(self, x: Array, z: PyTree, *, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones and the hidden cause z."""

    def complete_samples(self, x: Array, *, draws: int, samples: int, key: Array) -> Array:
        """Several draws of what is missing in `x`, by importance resampling of the same `samples`."""
        propose, choose, emit = jax.random.split(key, 3)
        causes, log_weights = importance_draws(
            self.energy, self.recognition, x, samples=samples, key=propose
        )
        chosen = jax.random.categorical(choose, log_weights, shape=(draws,))
        taken = jax.tree.map(lambda a: a[chosen], causes)
        filled = jax.vmap(lambda z, k: self.complete_given(x, z, key=k))
        return filled(taken, jax.random.split(emit, draws))

    def evidence(self, x: Array, *, samples: int, key: Array) -> ImportanceEstimate:
        """log of the mean of `samples` weights p(x, z) / q(z | x): at most log p(x) on average."""
        return importance_estimate(
            importance_log_weights(self.energy, self.recognition, x, samples=samples, key=key)
        )


class AbstractRescalable(eqx.Module):
    """A model that is of the same kind in other units of the entries of an event."""

    @abc.abstractmethod
    def in_units(self, shift: Array, scale: Array) -> Any:
        """The law of shift + scale · x, entry by entry."""


class AbstractCoded(eqx.Module):
    """A model with one hidden vector for each event."""

    @abc.abstractmethod
    def encode(self, x: Array) -> Array:
        """The hidden vector that is inferred of `x`: its mean, or the most probable one."""
