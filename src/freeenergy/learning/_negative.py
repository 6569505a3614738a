"""Negative phases: what keeps an energy from being low everywhere.

The gradient of −log p(x) for p ∝ exp(−F) is ∇F(x) − E_ν[∇F] with ν = p.  Learners of such models differ
in the ν that they put in place of p, over other observations or over other answers.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import boltzmann, on_device
from ..inference import run_chain
from ..models import AbstractUndirected
from ._objectives import AbstractObjective, Batch


class AbstractNegativePhase(eqx.Module):
    """Gives ν: observations to raise the energy of, and their probabilities."""

    @abc.abstractmethod
    def init(self, model: AbstractUndirected, batch: Batch, *, key: Array) -> Any:
        """The first state."""

    @abc.abstractmethod
    def __call__(
        self, model: AbstractUndirected, batch: Batch, state: Any, *, key: Array
    ) -> tuple[Array, Array, Any]:
        """Observations, their weights (with sum one) and the next state."""


class ExactEnumeration(AbstractNegativePhase):
    """ν = p itself: the gradient is that of the likelihood.

    Attributes:
        states: every observation that is possible, a row each.
    """

    states: Array

    def init(self, model: AbstractUndirected, batch: Batch, *, key: Array) -> Any:
        return ()

    def __call__(
        self, model: AbstractUndirected, batch: Batch, state: Any, *, key: Array
    ) -> tuple[Array, Array, Any]:
        return self.states, boltzmann(jax.vmap(model.free_energy)(self.states))[1], state


class GibbsFromData(AbstractNegativePhase):
    """ν = k Gibbs sweeps from the data: contrastive divergence, CD-k."""

    k: int = eqx.field(static=True, default=1)

    def init(self, model: AbstractUndirected, batch: Batch, *, key: Array) -> Any:
        return ()

    def __call__(
        self, model: AbstractUndirected, batch: Batch, state: Any, *, key: Array
    ) -> tuple[Array, Array, Any]:
        weight = batch.weight / jnp.maximum(jnp.sum(batch.weight), jnp.finfo(batch.weight.dtype).tiny)
        return _sweep(model, batch.x, self.k, key), weight, state


class PersistentChains(AbstractNegativePhase):
    """ν = chains that go on, k Gibbs sweeps a batch, while the model changes: PCD.

    Right in the long run if the model changes slowly against the chains.
    """

    chains: int = eqx.field(static=True, default=100)
    k: int = eqx.field(static=True, default=1)

    def init(self, model: AbstractUndirected, batch: Batch, *, key: Array) -> Array:
        return jax.vmap(lambda k: model.initial(key=k))(jax.random.split(key, self.chains))

    def __call__(
        self, model: AbstractUndirected, batch: Batch, state: Array, *, key: Array
    ) -> tuple[Array, Array, Array]:
        state = _sweep(model, state, self.k, key)
        return state, jnp.full(self.chains, 1 / self.chains, state.dtype), state


class LongChain(AbstractNegativePhase):
    """ν = `samples` states of one new chain a batch, after `burn_in` sweeps, one in `thin`."""

    burn_in: int = eqx.field(static=True, default=1000)
    thin: int = eqx.field(static=True, default=10)
    samples: int = eqx.field(static=True, default=100)

    def init(self, model: AbstractUndirected, batch: Batch, *, key: Array) -> Any:
        return ()

    def __call__(
        self, model: AbstractUndirected, batch: Batch, state: Any, *, key: Array
    ) -> tuple[Array, Array, Any]:
        begin, run = jax.random.split(key)
        x = run_chain(
            model.gibbs,
            model.initial(key=begin),
            steps=self.samples,
            burn_in=self.burn_in,
            thin=self.thin,
            key=run,
        )
        return x, jnp.full(self.samples, 1 / self.samples, x.dtype), state


def _sweep(model: AbstractUndirected, x: Array, k: int, key: Array) -> Array:
    def sweep(states: Array, *, key: Array) -> Array:
        return jax.vmap(lambda s, k: model.gibbs(s, key=k))(states, jax.random.split(key, len(states)))

    return run_chain(sweep, x, steps=1, burn_in=k - 1, key=key)[0]


class Contrastive(AbstractObjective):
    """mean F(x) − Σ ν F(x⁻): its gradient is the positive minus the negative phase.

    Its value is no likelihood; it is near zero when ν looks like the data.

    Attributes:
        phase: where ν comes from.
        completion: Gibbs sweeps by which NaN in the data is drawn given the rest, for models with
            `complete_sample`; zero for complete data.
    """

    phase: AbstractNegativePhase
    completion: int = eqx.field(static=True, default=0)

    def init(self, model: AbstractUndirected, batch: Batch, *, key: Array) -> Any:
        return self.phase.init(model, batch, key=key)

    def __call__(self, model: Any, batch: Batch, state: Any, *, key: Array) -> tuple[Array, Any]:
        fill, draw = jax.random.split(key)
        frozen = jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, model)
        if self.completion > 0:
            keys = jax.random.split(fill, len(batch.weight))
            x = jax.vmap(lambda row, k: frozen.complete_sample(row, steps=self.completion, key=k))(
                batch.x, keys
            )
            batch = Batch(x, batch.weight)
        negative, weight, state = self.phase(frozen, batch, state, key=draw)
        free = jax.vmap(model.free_energy)
        raised = jnp.sum(jnp.where(weight > 0, weight * free(negative), 0))
        # once for each row, so that the two phases balance whatever the rows weigh
        return batch.mean(free(batch.x) - raised), state


class AbstractAnswerPhase(eqx.Module):
    """A negative phase over finitely many answers to one question."""

    @abc.abstractmethod
    def __call__(self, energies: Array, answer: Array) -> tuple[Array, Array]:
        """The free energy of all answers and ν, its derivative in their `energies`.

        Args:
            energies: e(y′) of each answer.
            answer: the number y of the right one.
        """


class Boltzmann(AbstractAnswerPhase):
    """ν ∝ exp(−e/T) over all answers: cross entropy at T = 1, the perceptron as T → 0.

    >>> energies = jnp.array([1.0, 2.0, 3.0])
    >>> round(float(energies[0] - Boltzmann()(energies, 0)[0]), 6)
    0.407606
    """

    temperature: Array = eqx.field(converter=on_device, default=1.0)

    def __call__(self, energies: Array, answer: Array) -> tuple[Array, Array]:
        return boltzmann(energies, self.temperature.astype(energies.dtype))


class Argmin(AbstractAnswerPhase):
    """ν = the answer of least energy, the first of them at a tie: the perceptron.

    It learns from mistakes only.

    >>> energies = jnp.array([1.0, 2.0, 3.0])
    >>> float(energies[1] - Argmin()(energies, 1)[0])
    1.0
    """

    def __call__(self, energies: Array, answer: Array) -> tuple[Array, Array]:
        return _first_least(energies)


class Margin(AbstractAnswerPhase):
    """ν = the answer of least energy after every wrong one is lowered by `margin`: the hinge loss

        max(0, margin + e(y) − min_{y′≠y} e(y′)).

    At a tie it is the first of them.

    >>> energies = jnp.array([1.0, 2.0, 3.0])
    >>> float(energies[1] - Margin()(energies, 1)[0])
    2.0
    """

    margin: Array = eqx.field(converter=on_device, default=1.0)

    def __call__(self, energies: Array, answer: Array) -> tuple[Array, Array]:
        answer = jnp.asarray(answer)
        wrong = jnp.arange(energies.shape[0], dtype=answer.dtype) != answer
        handicap = jnp.where(wrong, jnp.asarray(self.margin, energies.dtype), 0)
        return _first_least(energies - handicap)


def _first_least(energies: Array) -> tuple[Array, Array]:
    """The least energy, and ν all on the first answer that has it; the slope of `min` would be split."""
    first = jnp.argmin(energies)
    return energies[first], jax.nn.one_hot(first, len(energies), dtype=energies.dtype)


class ConditionalContrastive(eqx.Module):
    """mean e(x, y) − F_ν(x), for models with `energies(x)`, one for each answer.

    A batch holds inputs and the numbers of the right answers: `batch.x = (x, y)`.
    """

    phase: AbstractAnswerPhase

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        def loss(x: Array, y: Array) -> Array:
            energies = model.energies(x)
            return energies[y] - self.phase(energies, y)[0]

        return batch.mean(jax.vmap(loss)(*batch.x))
