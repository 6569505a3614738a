"""Expectation–maximisation: coordinate descent of the free energy in q and θ."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from .._core import (
    AbstractAlgorithm,
    AbstractSource,
    AbstractSums,
    Data,
    Info,
    on_device,
    shuffled,
    sum_over_blocks,
    take_batch,
)
from ..models import AbstractExpectationMaximisation, AbstractRegularised


# as a program of its own it is traced once for those that call it with the same shapes
@eqx.filter_jit
def expect_all(
    model: AbstractExpectationMaximisation, data: AbstractSums, temperature: Array
) -> tuple[Any, Array]:
    """Expected statistics and mean free energy of all rows, in blocks of bounded memory.

    A model with a prior adds −log p(θ) / rows, so that what is returned is what EM lowers.
    """

    def block(x: Any, w: Array, model: Any, prepared: Any, temperature: Array) -> tuple[Any, Array]:
        return model.expect_prepared(prepared, x, w, temperature=temperature, incomplete=data.missing)

    statistics, free = sum_over_blocks(
        block, data, model, model.prepare(), temperature, block=model.rows_at_once
    )
    return statistics, _mean_free_energy(model, free, data)


def _mean_free_energy(model: Any, free: Array, data: AbstractSums) -> Array:
    if isinstance(model, AbstractRegularised):
        free = free + model.parameter_free_energy()
    return free / data.total.astype(free.dtype)


def _keep_frozen(new: Any, old: Any, learnable: Any) -> Any:
    if learnable is None:
        return new
    return jax.tree.map(lambda allowed, a, b: a if allowed else b, learnable, new, old)


class Temperatures(NamedTuple):
    """Of the free energy, before and after a pass."""

    old: Array
    new: Array


class Pass(NamedTuple):
    """What a pass over the data leaves.

    Attributes:
        model: after it.
        state: for the next pass.
        before, after: the mean free energy at the model before it, and at the model after it.
    """

    model: Any
    state: Any
    before: Array
    after: Array


class AbstractSweep(eqx.Module):
    """One pass over the data: which rows are seen between two M steps.

    Attributes:
        needs: how it reads them.
    """

    needs: eqx.AbstractClassVar[type[AbstractSource]]

    @abc.abstractmethod
    def init(self, model: Any, data: Any, temperature: Array) -> Any:
        """The state that is kept between passes."""

    @abc.abstractmethod
    def __call__(
        self,
        model: Any,
        state: Any,
        data: Any,
        temperatures: Temperatures,
        maximise: Callable,
        *,
        key: Array,
    ) -> Pass:
        """A pass from `model` on."""


class _Expected(NamedTuple):
    """Statistics and mean free energy of all rows at the model, once they are known."""

    statistics: Any
    free: Array
    known: Array


class AllRows(AbstractSweep):
    """All rows, then one M step: the free energy never rises."""

    needs: ClassVar[type[AbstractSource]] = AbstractSums

    def init(self, model: Any, data: AbstractSums, temperature: Array) -> _Expected:
        shapes = jax.eval_shape(lambda: expect_all(model, data, temperature))
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, data)))

        def nothing(s: Any) -> Array:
            return jnp.zeros(s.shape, s.dtype) if traced else on_device(np.zeros(s.shape, s.dtype))

        statistics, free = jax.tree.map(nothing, shapes)
        return _Expected(statistics, free, on_device(False))

    def __call__(
        self,
        model: Any,
        state: _Expected,
        data: AbstractSums,
        temperatures: Temperatures,
        maximise: Callable,
        *,
        key: Array,
    ) -> Pass:
        arrays, static = eqx.partition(model, eqx.is_array)

        def fitted(arrays: Any, statistics: Any) -> Any:
            return eqx.filter(maximise(eqx.combine(arrays, static), statistics), eqx.is_array)

        def turn(_: Array, carry: tuple[Any, _Expected, Array]) -> tuple[Any, _Expected, Array]:
            arrays, old, _ = carry
            arrays = jax.lax.cond(old.known, fitted, lambda arrays, _: arrays, arrays, old.statistics)
            temperature = jnp.where(old.known, temperatures.new, temperatures.old)
            statistics, free = expect_all(eqx.combine(arrays, static), data, temperature)
            return arrays, _Expected(statistics, free, jnp.ones((), bool)), old.free

        # the E step of the start is a turn of its own, without an M step: it is compiled for once
        turns = jnp.where(state.known, 1, 2)
        arrays, state, before = jax.lax.fori_loop(0, turns, turn, (arrays, state, state.free))
        return Pass(eqx.combine(arrays, static), state, before, state.free)


class Stepwise(AbstractSweep):
    """An M step after every `batch_size` rows, on statistics averaged with decaying steps.

        S ← (1 − γ_t) S + γ_t S_batch,   γ_t = (t + 2)^(−decay),   ½ < decay ≤ 1.

    It needs few passes over many rows; the free energy falls on average, not at every step.
    """

    needs: ClassVar[type[AbstractSource]] = Data
    batch_size: int = eqx.field(static=True, default=1024)
    decay: float = eqx.field(static=True, default=0.7)

    def init(self, model: Any, data: Data, temperature: Array) -> Any:
        statistics, free = expect_all(model, data, temperature)
        return statistics, on_device(0, np.int32), free

    def __call__(
        self,
        model: Any,
        state: Any,
        data: Data,
        temperatures: Temperatures,
        maximise: Callable,
        *,
        key: Array,
    ) -> Pass:
        temperature, (*kept, before), total = temperatures.new, state, data.total
        size = min(self.batch_size, data.size)
        order = shuffled(data.rows, data.size, key)
        arrays, static = eqx.partition(model, eqx.is_array)

        def body(i: Array, carry: Any) -> Any:
            arrays, statistics, count = carry
            x, w = take_batch(data.x, data.weight, data.rows, order, i, size)
            current = eqx.combine(arrays, static)
            new, _ = current.expect(x, w, temperature=temperature, incomplete=data.incomplete)
            gamma = (count.astype(w.dtype) + 2) ** (-self.decay)
            share = total / jnp.maximum(jnp.sum(w), jnp.finfo(w.dtype).tiny)
            statistics = jax.tree.map(lambda s, n: (1 - gamma) * s + gamma * share * n, statistics, new)
            fitted = maximise(current, statistics)
            return eqx.filter(fitted, eqx.is_array), statistics, count + 1

        batches = (data.rows + size - 1) // size
        arrays, statistics, count = jax.lax.fori_loop(0, batches, body, (arrays, *kept))
        model = eqx.combine(arrays, static)
        after = expect_all(model, data, temperature)[1]
        return Pass(model, (statistics, count, after), before, after)


class Incremental(AbstractSweep):
    """A partial E step: `parts` of the rows in turn, each followed by an M step.

    The statistics of every part are kept, so that after each M step only one part is renewed and the
    free energy of the whole still never rises.  Faster per pass than `AllRows`, at `parts` times the
    memory for statistics.
    """

    needs: ClassVar[type[AbstractSource]] = Data
    parts: int = eqx.field(static=True, default=8)

    def _split(self, data: Data) -> tuple[Any, Array]:
        size = -(-data.size // self.parts)
        pad = size * self.parts - data.size

        def shape(a: Array) -> Array:
            filled = jnp.concatenate([a, jnp.zeros((pad, *a.shape[1:]), a.dtype)])
            return filled.reshape(self.parts, size, *a.shape[1:])

        return jax.tree.map(shape, data.x), shape(data.weight)

    def init(self, model: Any, data: Data, temperature: Array) -> Any:
        return _expect_parts(self, model, data, temperature)

    def __call__(
        self,
        model: Any,
        state: Any,
        data: Data,
        temperatures: Temperatures,
        maximise: Callable,
        *,
        key: Array,
    ) -> Pass:
        temperature, (kept, before) = temperatures.new, state
        x, w = self._split(data)
        arrays, static = eqx.partition(model, eqx.is_array)

        def body(carry: Any, part: Any) -> Any:
            arrays, statistics, whole = carry
            index, x, w = part
            fitted = maximise(eqx.combine(arrays, static), whole)
            new, free = fitted.expect(x, w, temperature=temperature, incomplete=data.incomplete)
            old = jax.tree.map(lambda s: s[index], statistics)
            whole = jax.tree.map(lambda t, o, n: t - o + n, whole, old, new)
            statistics = jax.tree.map(lambda s, n: s.at[index].set(n), statistics, new)
            return (eqx.filter(fitted, eqx.is_array), statistics, whole), free

        # summed anew in every pass, so that rounding does not gather
        whole = jax.tree.map(lambda s: jnp.sum(s, axis=0), kept)
        (arrays, statistics, _), _ = jax.lax.scan(
            body, (arrays, kept, whole), (jnp.arange(self.parts), x, w)
        )
        model = eqx.combine(arrays, static)
        after = expect_all(model, data, temperature)[1]
        return Pass(model, (statistics, after), before, after)


@eqx.filter_jit
def _expect_parts(sweep: Incremental, model: Any, data: Data, temperature: Array) -> tuple[Any, Array]:
    """Expected statistics of each part, and the mean free energy of all rows."""
    statistics, free = jax.lax.map(
        lambda part: model.expect(*part, temperature=temperature, incomplete=data.incomplete),
        sweep._split(data),
    )
    return statistics, _mean_free_energy(model, jnp.sum(free), data)


class _State(NamedTuple):
    model: Any
    sweep: Any
    iteration: Array


def _array_unless_callable(value: Any) -> Any:
    return value if callable(value) else on_device(value, float)


class EM(AbstractAlgorithm):
    """Expectation–maximisation for models with `expect` and `maximise`.

    Stops when a pass lowers the mean free energy per row by no more than `tol` nats.

    Attributes:
        tol: an improvement that is no longer worth a pass; zero goes on while there is any.
        temperature: T of q ∝ exp(−e/T): 1 is ordinary EM, 0 hard EM (k-means, iterative PCA); a
            function of the iteration number gives annealing, which ends at what it tends to.
        sweep: `AllRows()`, `Stepwise(…)` or `Incremental(…)`.
        learnable: a tree of booleans as made by `freeze`: a partial M step leaves the rest as it is.
    """

    starts_on_host: ClassVar[bool] = True
    tol: Array = eqx.field(converter=on_device, default=1e-6)
    temperature: Any = eqx.field(converter=_array_unless_callable, default=1.0)
    sweep: AbstractSweep = AllRows()
    learnable: Any = None

    @property
    def needs(self) -> type[AbstractSource]:
        """How its sweep reads the rows."""
        return self.sweep.needs

    def _temperature(self, iteration: Array) -> Array:
        if callable(self.temperature):
            return jnp.asarray(self.temperature(iteration), float)
        return self.temperature

    def _maximise(self, model: Any, statistics: Any) -> Any:
        return _keep_frozen(model.maximise(statistics), model, self.learnable)

    def init(self, model: Any, data: AbstractSums, *, key: Array) -> _State:
        start = on_device(0, np.int32)
        temperature = _first_temperature(self, start) if callable(self.temperature) else self.temperature
        return _State(model, self.sweep.init(model, data, temperature), start)

    def step(self, state: _State, data: AbstractSums, *, key: Array) -> tuple[_State, Info]:
        number = state.iteration
        temperatures = Temperatures(self._temperature(number), self._temperature(number + 1))
        model, sweep, before, after = self.sweep(
            state.model, state.sweep, data, temperatures, self._maximise, key=key
        )
        # at a new temperature the free energies are not comparable
        settled = temperatures.new == temperatures.old
        done = settled & (before - after <= self.tol.astype(after.dtype))
        return _State(model, sweep, number + 1), Info(done, after)

    def model(self, state: _State) -> Any:
        return state.model


@eqx.filter_jit
def _first_temperature(learner: EM, start: Array) -> Array:
    return learner._temperature(start)


class ClosedForm(AbstractAlgorithm):
    """One M step: the answer at once, where nothing is hidden and nothing is missing."""

    starts_on_host: ClassVar[bool] = True
    needs: ClassVar[type[AbstractSource]] = AbstractSums

    def init(self, model: Any, data: AbstractSums, *, key: Array) -> Any:
        return model

    def step(self, state: Any, data: AbstractSums, *, key: Array) -> tuple[Any, Info]:
        one = jnp.ones(())
        statistics, _ = expect_all(state, data, one)
        model = state.maximise(statistics)
        return model, Info(jnp.ones((), bool), expect_all(model, data, one)[1])

    def model(self, state: Any) -> Any:
        return state
