"""Expectation–maximisation: coordinate descent of the free energy in q and θ."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import AbstractAlgorithm, Data, Info, Stream, on_device, sum_over_blocks
from ..models import AbstractExpectationMaximisation, AbstractRegularised


def expect_all(
    model: AbstractExpectationMaximisation, data: Data | Stream, temperature: Array
) -> tuple[Any, Array]:
    """Expected statistics and mean free energy of all rows, in blocks of bounded memory.

    A model with a prior adds −log p(θ) / rows, so that what is returned is what EM lowers.
    """

    def block(x: Any, w: Array, model: Any, prepared: Any, temperature: Array) -> tuple[Any, Array]:
        return model.expect_prepared(prepared, x, w, temperature=temperature, incomplete=data.incomplete)

    statistics, free = sum_over_blocks(
        block, data, model, model.prepare(), temperature, block=model.rows_at_once
    )
    return statistics, _mean_free_energy(model, free, data)


def _mean_free_energy(model: Any, free: Array, data: Data | Stream) -> Array:
    if isinstance(model, AbstractRegularised):
        free = free + model.parameter_free_energy()
    return free / data.total.astype(free.dtype)


def _keep_frozen(new: Any, old: Any, learnable: Any) -> Any:
    if learnable is None:
        return new
    return jax.tree.map(lambda allowed, a, b: a if allowed else b, learnable, new, old)


class AbstractSweep(eqx.Module):
    """One pass over the data: which rows are seen between two M steps."""

    @abc.abstractmethod
    def init(self, model: Any, data: Data, temperature: Array) -> tuple[Any, Array]:
        """The state that is kept between passes, and the mean free energy at `model`."""

    @abc.abstractmethod
    def __call__(
        self, model: Any, state: Any, data: Data, temperature: Array, maximise: Callable, *, key: Array
    ) -> tuple[Any, Any, Array]:
        """The model after a pass, the state, and the mean free energy."""


class AllRows(AbstractSweep):
    """All rows, then one M step: the free energy never rises."""

    def init(self, model: Any, data: Data, temperature: Array) -> tuple[Any, Array]:
        return expect_all(model, data, temperature)

    def __call__(
        self, model: Any, state: Any, data: Data, temperature: Array, maximise: Callable, *, key: Array
    ) -> tuple[Any, Any, Array]:
        model = maximise(model, state)
        statistics, free = expect_all(model, data, temperature)
        return model, statistics, free


class Stepwise(AbstractSweep):
    """An M step after every `batch_size` rows, on statistics averaged with decaying steps.

        S ← (1 − γ_t) S + γ_t S_batch,   γ_t = (t + 2)^(−decay),   ½ < decay ≤ 1.

    It needs few passes over many rows; the free energy falls on average, not at every step.
    """

    batch_size: int = eqx.field(static=True, default=1024)
    decay: float = eqx.field(static=True, default=0.7)

    def init(self, model: Any, data: Data, temperature: Array) -> tuple[Any, Array]:
        statistics, free = expect_all(model, data, temperature)
        return (statistics, jnp.zeros((), jnp.int32)), free

    def __call__(
        self, model: Any, state: Any, data: Data, temperature: Array, maximise: Callable, *, key: Array
    ) -> tuple[Any, Any, Array]:
        total = data.total
        size = min(self.batch_size, data.size)
        order = real_rows_shuffled(data, key)
        arrays, static = eqx.partition(model, eqx.is_array)

        def body(i: Array, carry: Any) -> Any:
            arrays, statistics, count = carry
            x, w = take_batch(data, order, i, size)
            current = eqx.combine(arrays, static)
            new, _ = current.expect(x, w, temperature=temperature, incomplete=data.incomplete)
            gamma = (count.astype(w.dtype) + 2) ** (-self.decay)
            share = total / jnp.maximum(jnp.sum(w), jnp.finfo(w.dtype).tiny)
            statistics = jax.tree.map(lambda s, n: (1 - gamma) * s + gamma * share * n, statistics, new)
            fitted = maximise(current, statistics)
            return eqx.filter(fitted, eqx.is_array), statistics, count + 1

        batches = (data.rows + size - 1) // size
        arrays, statistics, count = jax.lax.fori_loop(0, batches, body, (arrays, *state))
        model = eqx.combine(arrays, static)
        return model, (statistics, count), expect_all(model, data, temperature)[1]


class Incremental(AbstractSweep):
    """A partial E step: `parts` of the rows in turn, each followed by an M step.

    The statistics of every part are kept, so that after each M step only one part is renewed and the
    free energy of the whole still never rises.  Faster per pass than `AllRows`, at `parts` times the
    memory for statistics.
    """

    parts: int = eqx.field(static=True, default=8)

    def _split(self, data: Data) -> tuple[Any, Array]:
        size = -(-data.size // self.parts)
        pad = size * self.parts - data.size

        def shape(a: Array) -> Array:
            filled = jnp.concatenate([a, jnp.zeros((pad, *a.shape[1:]), a.dtype)])
            return filled.reshape(self.parts, size, *a.shape[1:])

        return jax.tree.map(shape, data.x), shape(data.weight)

    def init(self, model: Any, data: Data, temperature: Array) -> tuple[Any, Array]:
        x, w = self._split(data)
        statistics, free = jax.lax.map(
            lambda part: model.expect(*part, temperature=temperature, incomplete=data.incomplete), (x, w)
        )
        return statistics, _mean_free_energy(model, jnp.sum(free), data)

    def __call__(
        self, model: Any, state: Any, data: Data, temperature: Array, maximise: Callable, *, key: Array
    ) -> tuple[Any, Any, Array]:
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
        whole = jax.tree.map(lambda s: jnp.sum(s, axis=0), state)
        (arrays, statistics, _), _ = jax.lax.scan(
            body, (arrays, state, whole), (jnp.arange(self.parts), x, w)
        )
        model = eqx.combine(arrays, static)
        return model, statistics, expect_all(model, data, temperature)[1]


def real_rows_shuffled(data: Data, key: Array) -> Array:
    """A random order of the row numbers with the padding last."""
    u = jax.random.uniform(key, (data.size,))
    return jnp.argsort(jnp.where(jnp.arange(data.size, dtype=data.rows.dtype) < data.rows, u, 2.0))


def take_batch(data: Data, order: Array, i: Array, size: int) -> tuple[Any, Array]:
    """Rows `order[i·size : (i+1)·size]`; what would be past the real rows has weight zero.

    Rows that do not count are copies of one that does, as in `counting_rows`.
    """
    at = jnp.minimum(i * size, data.size - size)
    index = jax.lax.dynamic_slice_in_dim(order, at, size)
    place = at + jnp.arange(size, dtype=at.dtype)
    fresh = (place >= i * size) & (place < data.rows)
    weight = jnp.where(fresh, data.weight[index], 0)
    index = index[counting_rows(weight)]
    return jax.tree.map(lambda a: a[index], data.x), weight


def counting_rows(weight: Array) -> Array:
    """The number of each row, and for one of weight zero that of a row which counts.

    A row that does not count may be impossible, as padding is for some families.  Its loss is left out of
    a sum, but zero times its slope is no number.

    >>> counting_rows(jnp.array([0.0, 2.0, 0.0, 1.0])).tolist()
    [1, 1, 1, 3]
    """
    return jnp.where(weight > 0, jnp.arange(len(weight)), jnp.argmax(weight > 0))


class _State(NamedTuple):
    model: Any
    sweep: Any
    objective: Array
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

    tol: Array = eqx.field(converter=on_device, default=1e-6)
    temperature: Any = eqx.field(converter=_array_unless_callable, default=1.0)
    sweep: AbstractSweep = AllRows()
    learnable: Any = None

    def _temperature(self, iteration: Array) -> Array:
        if callable(self.temperature):
            return jnp.asarray(self.temperature(iteration), float)
        return self.temperature

    def _maximise(self, model: Any, statistics: Any) -> Any:
        return _keep_frozen(model.maximise(statistics), model, self.learnable)

    def init(self, model: Any, data: Data, *, key: Array) -> _State:
        start = jnp.zeros((), jnp.int32)
        sweep, free = self.sweep.init(model, data, self._temperature(start))
        return _State(model, sweep, free, start)

    def step(self, state: _State, data: Data, *, key: Array) -> tuple[_State, Info]:
        temperature = self._temperature(state.iteration + 1)
        model, sweep, free = self.sweep(
            state.model, state.sweep, data, temperature, self._maximise, key=key
        )
        settled = temperature == self._temperature(state.iteration)
        # at a new temperature the free energies are not comparable
        done = settled & (state.objective - free <= self.tol.astype(free.dtype))
        new = _State(model, sweep, free, state.iteration + 1)
        return new, Info(free, done, {})

    def model(self, state: _State) -> Any:
        return state.model


class ClosedForm(AbstractAlgorithm):
    """One M step: the answer at once, where nothing is hidden and nothing is missing."""

    def init(self, model: Any, data: Data, *, key: Array) -> Any:
        return model

    def step(self, state: Any, data: Data, *, key: Array) -> tuple[Any, Info]:
        one = jnp.ones(())
        statistics, _ = expect_all(state, data, one)
        model = state.maximise(statistics)
        return model, Info(expect_all(model, data, one)[1], jnp.ones((), bool), {})

    def model(self, state: Any) -> Any:
        return state
