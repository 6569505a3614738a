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

from .._core import AbstractAlgorithm, Data, Info, constrain, learnable, unconstrain
from ._em import real_rows_shuffled
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


# a row counts for at most so many on average when steps are counted
_MOST_COPIES = 1000


def _rows_in_batch(data: Data, batch_size: int | None) -> int:
    return data.size if batch_size is None else min(batch_size, data.size)


class _Epoch(eqx.Module):
    """Which rows each step of an epoch sees, in proportion to their weights.

    Where all rows fit in a batch, every step sees all of them, with their weights.  Otherwise, if all
    weights are equal, rows come in turn, in random order.  If not, the rows lie on a line in random order,
    each as long as its weight, and a batch takes the rows at points of equal distance; the points of all
    batches together are of equal distance, too.
    """

    data: Data
    order: Array
    ends: Array
    offset: Array
    equal: Array
    batches: Array
    count: Array
    size: int = eqx.field(static=True)

    @staticmethod
    def of(data: Data, batch_size: int | None, *, key: Array) -> _Epoch:
        size = _rows_in_batch(data, batch_size)
        order = real_rows_shuffled(data, key)
        weight = data.weight.astype(jnp.float64)
        lightest = jnp.min(
            jnp.where(jnp.arange(data.size, dtype=data.rows.dtype) < data.rows, weight, jnp.inf)
        )
        ends = jnp.cumsum(weight[order])
        rows = data.rows.astype(ends.dtype)
        copies = jnp.clip(ends[-1] / rows, 1, _MOST_COPIES)
        # (rounding must not make a row more of a mean weight of one)
        count = jnp.ceil(rows * copies * (1 - 1e-9)).astype(jnp.int32)
        per_batch = count if batch_size is None else jnp.asarray(batch_size, count.dtype)
        return _Epoch(
            data,
            order,
            ends,
            jax.random.uniform(jax.random.fold_in(key, 1), dtype=ends.dtype),
            jnp.max(weight) <= lightest,
            (count + per_batch - 1) // per_batch,
            count,
            size,
        )

    def batch(self, i: Array) -> tuple[Batch, Array]:
        """The i-th batch, an unbiased estimate of the mean over rows, and its share of the epoch."""
        data, size = self.data, self.size
        if size == data.size:
            weight = (data.weight[self.order] / data.total).astype(data.weight.dtype)
            share = jnp.ones((), self.ends.dtype) / self.batches.astype(self.ends.dtype)
            return Batch(jax.tree.map(lambda a: a[self.order], data.x), weight), share
        place = i * size + jnp.arange(size, dtype=self.count.dtype)
        in_turn = place % data.rows
        # the last batch may be smaller
        used = jnp.where(self.equal, place < self.count, True)
        inside = (i.astype(self.ends.dtype) + self.offset) / self.batches.astype(self.ends.dtype)
        points = (jnp.arange(size, dtype=self.ends.dtype) + inside) * (self.ends[-1] / size)
        by_weight = jnp.minimum(jnp.searchsorted(self.ends, points, side="right"), data.rows - 1)
        index = self.order[jnp.where(self.equal, in_turn, by_weight.astype(in_turn.dtype))]
        real = jnp.sum(used).astype(self.ends.dtype)
        whole = jnp.where(
            self.equal,
            self.count.astype(real.dtype),
            (self.batches * size).astype(real.dtype),
        )
        weight = jnp.where(used, 1 / real, 0).astype(data.weight.dtype)
        return Batch(jax.tree.map(lambda a: a[index], data.x), weight), real / whole


class Gradient(AbstractAlgorithm):
    """Stochastic gradient descent on the unconstrained parameters; an iteration is an epoch.

    Attributes:
        optimiser: any Optax gradient transformation, or an `Optimiser` that describes one; schedules,
            clipping and `decay_weights` are chained into it.
        objective: `(model, batch, key) → scalar`, or an object with state such as `Contrastive`.
        batch_size: rows per step; None takes all rows at once.  A weight of two counts as two rows here,
            too: an epoch has total weight / batch_size steps (but at least rows / batch_size, and not
            more than 1,000 times as many, for weights that are shares, or large), and rows are in
            batches in proportion to their weights.
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
    tol: float | Array = eqx.field(converter=jnp.asarray, default=0.0)
    learnable: Any = None

    def _objective(self) -> AbstractObjective:
        return as_objective(self.objective)

    def init(self, model: Any, data: Any, *, key: Array) -> _State:
        train, _ = split_data(data)
        mask = learnable(model) if self.learnable is None else self.learnable
        # what is fixed stays as it is, to the bit
        free, fixed = unconstrain(eqx.filter(model, mask)), eqx.filter(model, mask, inverse=True)
        size = _rows_in_batch(train, self.batch_size)
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
        epoch = _Epoch.of(train, self.batch_size, key=shuffle)

        def loss(free: Any, batch: Batch, carried: Any, key: Array) -> tuple[Array, Any]:
            return objective(self._build(free, state.fixed), batch, carried, key=key)

        def body(i: Array, carry: Any) -> Any:
            free, optimiser, carried, average, total = carry
            batch, share = epoch.batch(i)
            (value, carried), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(
                free, batch, carried, jax.random.fold_in(noise, i)
            )
            # Optax mixes types, which a caller may have forbidden
            with jax.numpy_dtype_promotion("standard"):
                updates, optimiser = self.optimiser.update(gradient, optimiser, free)
            free = eqx.apply_updates(free, updates)
            if self.average is not None:
                rate = self.average
                average = jax.tree.map(lambda a, b: rate * a + (1 - rate) * b, average, free)
            return free, optimiser, carried, average, total + value * share.astype(value.dtype)

        zero = jnp.zeros((), train.weight.dtype)
        start = (state.free, state.optimiser, state.objective, state.average, zero)
        free, optimiser, carried, average, value = jax.lax.fori_loop(0, epoch.batches, body, start)
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
        return self._build(state.best, state.fixed)


def split_data(data: Any) -> tuple[Data, Data | None]:
    """Training and validation rows; `data` is one `Data` or a pair."""
    return data if isinstance(data, tuple) else (data, None)
