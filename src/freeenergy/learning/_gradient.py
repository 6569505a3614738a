"""Gradient learning: any objective, any Optax optimiser, minibatches, early stopping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from .._core import (
    AbstractAlgorithm,
    AbstractBatches,
    AbstractSource,
    Data,
    Info,
    on_device,
    take_block,
)
from ._free import Packed, finished, joined
from ._objectives import Batch, as_objective
from ._optimiser import Optimiser
from ._players import Game, Play, Player

# rows that are held out are judged so many at once
_ROWS_AT_ONCE = 4096


class _State(NamedTuple):
    """What is kept between epochs.

    Attributes:
        play: of the one player.
        best: the free reals, packed, that were best on the held-out rows, where there are such rows.
        best_value: how good the best were.
        stale: epochs since then.
    """

    play: Play
    best: Packed | None
    best_value: Array
    stale: Array


class Gradient(AbstractAlgorithm):
    """Stochastic gradient descent on the unconstrained parameters; an iteration is an epoch.

    It is the `Game` of a single player, with a criterion to stop.

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
        criterion: what the validation data are judged by, an objective too; `objective` itself by default.
            One that changes from batch to batch, such as `WarmUp`, needs another to be judged by.
        learnable: a tree of booleans as made by `freeze`.
    """

    needs: ClassVar[type[AbstractSource]] = AbstractBatches
    validates: ClassVar[bool] = True
    optimiser: optax.GradientTransformation | Optimiser = eqx.field(static=True)
    objective: Callable[..., Any]
    batch_size: int | None = eqx.field(static=True, default=256)
    average: float | None = eqx.field(static=True, default=None)
    patience: int | None = eqx.field(static=True, default=None)
    tol: Array = eqx.field(converter=on_device, default=0.0)
    learnable: Any = None
    criterion: Callable[..., Any] | None = None

    def _game(self) -> Game:
        player = Player("objective", self.optimiser, self.objective, self.learnable)
        return Game((player,), self.batch_size, self.average)

    def init(self, model: Any, data: Any, *, key: Array) -> _State:
        train, held = split_data(data)
        play = self._game().init(model, train, key=key)
        best = None if held is None else play.free
        return _State(play, best, jnp.asarray(jnp.inf), jnp.asarray(0))

    def step(self, state: _State, data: Any, *, key: Array) -> tuple[_State, Info]:
        train, held = split_data(data)
        play, (value,) = self._game().epoch(state.play, train, key=key)
        judged = value if held is None else self._judged(play, held)
        better = judged < state.best_value.astype(judged.dtype) - jnp.asarray(self.tol, judged.dtype)
        best = state.best
        if held is not None:
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), play.shown, state.best)
        best_value = jnp.where(better, judged.astype(state.best_value.dtype), state.best_value)
        stale = jnp.where(better, 0, state.stale + 1)
        done = jnp.zeros((), bool) if self.patience is None else stale >= self.patience
        metrics = {} if held is None else {"validation": judged}
        return _State(play, best, best_value, stale), Info(done, value, metrics)

    def _judged(self, play: Play, held: Data) -> Array:
        """The objective of the held-out rows, in blocks of bounded memory.

        The noise is the same in every epoch, so that only the parameters change the number.
        """
        model, key = joined(play.shown.tree, play.fixed), jax.random.key(0)
        (carried,), objective = play.objective, as_objective(self.objective)
        if self.criterion is not None:
            objective = as_objective(self.criterion)
            first = Batch(*take_block(held.x, held.weight, jnp.asarray(0), min(held.size, _ROWS_AT_ONCE)))
            carried = objective.init(model, first, key=key)
        if held.size <= _ROWS_AT_ONCE:
            batch = Batch(held.x, held.weight / jnp.sum(held.weight))
            return objective(model, batch, carried, key=key)[0]

        def visit(i: Array, total: Array) -> Array:
            x, weight = take_block(held.x, held.weight, i * _ROWS_AT_ONCE, _ROWS_AT_ONCE)
            mass = jnp.sum(weight)
            batch = Batch(x, weight / jnp.where(mass > 0, mass, 1))
            value, _ = objective(model, batch, carried, key=jax.random.fold_in(key, i))
            return total + jnp.where(mass > 0, value * (mass / held.total).astype(value.dtype), 0)

        blocks = (held.rows + _ROWS_AT_ONCE - 1) // _ROWS_AT_ONCE
        return jax.lax.fori_loop(0, blocks, visit, jnp.zeros((), held.weight.dtype))

    def model(self, state: _State) -> Any:
        shown = state.play.shown if state.best is None else state.best
        return finished(shown.tree, state.play.fixed)


def split_data(data: Any) -> tuple[AbstractBatches, Data | None]:
    """Where batches come from, and the held-out rows; `data` is a source or a pair."""
    return data if isinstance(data, tuple) else (data, None)
