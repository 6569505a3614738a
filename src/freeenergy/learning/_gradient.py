"""Gradient learning: any objective, any Optax optimiser, minibatches, early stopping."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from .._core import (
    AbstractAlgorithm,
    Data,
    Info,
    compiled_constrain,
    constrain,
    learnable,
    on_device,
    unconstrain,
)
from ._em import real_rows_shuffled, take_batch
from ._objectives import AbstractObjective, Batch, as_objective


def decay_weights(rate: float) -> optax.GradientTransformation:
    """Weight decay that spares biases and other vectors: only arrays of two or more axes shrink."""
    return optax.add_decayed_weights(rate, mask=lambda tree: jax.tree.map(lambda a: a.ndim >= 2, tree))


@dataclasses.dataclass(frozen=True, init=False)
class Optimiser:
    """An Optax optimiser as a record, `function(*arguments, **options)`, which is called when it is used.

    What Optax returns is made of closures, which no file can hold and of which two are never equal.
    Records are saved with an estimator, and equal ones share their compiled programs.  Parts, such as
    schedules or the links of a chain, are records too.

    >>> import optax
    >>> slower = Optimiser(optax.cosine_decay_schedule, 1e-3, 1000)
    >>> Optimiser(optax.adamw, slower, weight_decay=1e-4)
    Optimiser(adamw, Optimiser(cosine_decay_schedule, 0.001, 1000), weight_decay=0.0001)
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]

    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "options", tuple(options.items()))

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        options = [f"{key}={value!r}" for key, value in self.options]
        return f"Optimiser({', '.join([name, *map(repr, self.arguments), *options])})"

    def build(self) -> Any:
        """What Optax makes of it."""

        def built(part: Any) -> Any:
            return part.build() if isinstance(part, Optimiser) else part

        arguments = [built(part) for part in self.arguments]
        return self.function(*arguments, **{name: built(part) for name, part in self.options})

    def init(self, params: Any) -> Any:
        """The first state, as in Optax."""
        return self.build().init(params)

    def update(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        """The step and the next state, as in Optax."""
        return self.build().update(updates, state, params)


class _State(NamedTuple):
    free: Any
    fixed: Any
    optimiser: Any
    objective: Any
    average: Any
    best: Any
    best_value: Array
    stale: Array


# a row counts for at most so many on average when passes are counted
_MOST_COPIES = 1000


class Gradient(AbstractAlgorithm):
    """Stochastic gradient descent on the unconstrained parameters; an iteration is an epoch.

    Attributes:
        optimiser: any Optax gradient transformation, or an `Optimiser` that describes one; schedules,
            clipping and `decay_weights` are chained into it.
        objective: `(model, batch, key) → scalar`, or an object with state such as `Contrastive`.
        batch_size: rows per step; None takes all rows at once.  A weight of two counts as two rows here,
            too: an epoch is as many passes over the rows as bring its steps nearest to total weight /
            batch_size.  It is one at least, also for weights that are shares of a whole, and a mean weight
            above 1,000 counts as 1,000.
        average: decay of an exponential average of the parameters, which is then the result.
        patience: epochs without improvement (by more than `tol`) before stopping.  With validation
            data in `fit` the improvement is measured there and the best parameters are restored.
        tol: the least improvement that counts.
        learnable: a tree of booleans as made by `freeze`.
    """

    optimiser: optax.GradientTransformation | Optimiser = eqx.field(static=True)
    objective: Callable[..., Any]
    batch_size: int | None = eqx.field(static=True, default=256)
    average: float | None = eqx.field(static=True, default=None)
    patience: int | None = eqx.field(static=True, default=None)
    tol: Array = eqx.field(converter=on_device, default=0.0)
    learnable: Any = None

    def _objective(self) -> AbstractObjective:
        return as_objective(self.objective)

    def init(self, model: Any, data: Any, *, key: Array) -> _State:
        train, _ = split_data(data)
        mask = learnable(model) if self.learnable is None else self.learnable
        # what is fixed stays as it is, to the bit
        free, fixed = unconstrain(eqx.filter(model, mask)), eqx.filter(model, mask, inverse=True)
        size = train.size if self.batch_size is None else min(self.batch_size, train.size)
        batch = Batch(jax.tree.map(lambda a: a[:size], train.x), train.weight[:size])
        state = self._objective().init(model, batch, key=key)
        # distinct buffers are not needed: nothing is donated
        return _State(
            free, fixed, self.optimiser.init(free), state, free, free, jnp.asarray(jnp.inf), jnp.asarray(0)
        )

    def _build(self, free: Any, fixed: Any) -> Any:
        return eqx.combine(constrain(free), fixed)

    def step(self, state: _State, data: Any, *, key: Array) -> tuple[_State, Info]:
        train, validation = split_data(data)
        objective = self._objective()
        shuffle, noise = jax.random.split(key)
        size = train.size if self.batch_size is None else min(self.batch_size, train.size)
        rows = train.rows.astype(train.weight.dtype)
        mean_weight = jnp.sum(train.weight) / rows
        batches = (train.rows + size - 1) // size
        passes = jnp.ones((), jnp.int32)
        if self.batch_size is not None:
            steps = rows * jnp.minimum(mean_weight, _MOST_COPIES) / self.batch_size
            passes = jnp.maximum(jnp.round(steps / batches.astype(steps.dtype)).astype(jnp.int32), 1)

        def loss(free: Any, batch: Batch, carried: Any, key: Array) -> tuple[Array, Any]:
            return objective(self._build(free, state.fixed), batch, carried, key=key)

        def one_pass(number: Array, carry: Any) -> Any:
            order, *rest = carry
            rest = jax.lax.fori_loop(0, batches, lambda i, c: body(i, number, order, c), tuple(rest))
            return real_rows_shuffled(train, jax.random.fold_in(shuffle, number)), *rest

        def body(i: Array, number: Array, order: Array, carry: Any) -> Any:
            free, optimiser, carried, average, total = carry
            x, weight = take_batch(train, order, i, size)
            # the scale makes every batch an unbiased estimate of the mean over rows
            real = jnp.clip(train.rows - i * size, 1, size)
            batch = Batch(x, weight / (mean_weight * real.astype(weight.dtype)))
            (value, carried), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(
                free, batch, carried, jax.random.fold_in(noise, number * batches + i)
            )
            # Optax mixes types, which a caller may have forbidden
            with jax.numpy_dtype_promotion("standard"):
                updates, optimiser = self.optimiser.update(gradient, optimiser, free)
            free = eqx.apply_updates(free, updates)
            if self.average is not None:
                rate = self.average
                average = jax.tree.map(lambda a, b: rate * a + (1 - rate) * b, average, free)
            return free, optimiser, carried, average, total + value * real.astype(value.dtype)

        zero = jnp.zeros((), train.weight.dtype)
        order = real_rows_shuffled(train, shuffle)
        start = (order, state.free, state.optimiser, state.objective, state.average, zero)
        _, free, optimiser, carried, average, total = jax.lax.fori_loop(0, passes, one_pass, start)
        value = total / (rows * passes.astype(rows.dtype))
        metrics = {}
        judged = value
        if validation is not None:
            shown = average if self.average is not None else free
            held = Batch(validation.x, validation.weight / jnp.sum(validation.weight))
            # the same noise in every epoch, so that only the parameters change the number
            model = self._build(shown, state.fixed)
            judged, _ = objective(model, held, carried, key=jax.random.key(0))
            metrics["validation"] = judged
        better = judged < state.best_value.astype(judged.dtype) - jnp.asarray(self.tol, judged.dtype)
        best_source = average if self.average is not None else free
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), best_source, state.best)
        best_value = jnp.where(better, judged.astype(state.best_value.dtype), state.best_value)
        stale = jnp.where(better, 0, state.stale + 1)
        done = jnp.zeros((), bool) if self.patience is None else stale >= self.patience
        if validation is None:
            best = best_source
        new = _State(free, state.fixed, optimiser, carried, average, best, best_value, stale)
        return new, Info(value, done, metrics)

    def model(self, state: _State) -> Any:
        return eqx.combine(compiled_constrain(state.best), state.fixed)


def split_data(data: Any) -> tuple[Data, Data | None]:
    """Training and validation rows; `data` is one `Data` or a pair."""
    return data if isinstance(data, tuple) else (data, None)
