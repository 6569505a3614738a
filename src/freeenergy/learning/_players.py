"""Players: who lowers what, in which parameters, in a round of steps on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from .._core import AbstractAlgorithm, AbstractBatches, AbstractSource, Info, learnable
from ._free import Packed, finished, joined, mask_of, split
from ._objectives import Batch, as_objective
from ._optimiser import Optimiser


class Player(eqx.Module):
    """One of those who learn a model: it lowers its own objective in its own parameters.

    Attributes:
        name: what its objective is called in the history.
        optimiser: any Optax gradient transformation, or an `Optimiser` that describes one.
        objective: `(model, batch, key) → scalar` of the whole model, or an object with state.
        learnable: a tree of booleans as made by `only` or `freeze`; None takes all parameters.
        steps: how many it makes in a round.

    >>> import optax
    >>> Player("critic", optax.sgd(0.1), lambda model, batch, key: model.x**2, steps=5).steps
    5
    """

    name: str = eqx.field(static=True)
    optimiser: optax.GradientTransformation | Optimiser = eqx.field(static=True)
    objective: Callable[..., Any]
    learnable: Any = None
    steps: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(
                "The 'steps' parameter of Player must be an int in the range [1, inf). "
                f"Got {self.steps} instead."
            )


class Play(NamedTuple):
    """The state of a game.

    Attributes:
        free: the free reals of all parameters that a player moves, packed.
        fixed: the rest of the model.
        optimiser: the state of each player's optimiser.
        objective: the state of each player's objective.
        average: of `free`, if there is one.
    """

    free: Packed
    fixed: Any
    optimiser: tuple[Any, ...]
    objective: tuple[Any, ...]
    average: Packed | None

    @property
    def shown(self) -> Packed:
        """The free reals that count as learned."""
        return self.free if self.average is None else self.average


class Game(AbstractAlgorithm):
    """Gradient learning by several players; an iteration is an epoch.

        θ_i ← θ_i − η ∇_{θ_i} L_i(θ, batch)    for each player i in turn, the θ of the others held fast

    Generative adversarial networks (GAN), actor and critic, wake and sleep, an energy against its sampler:
    each is a model of several parts, and a player for each part.  There is no one objective: the history
    has that of every player under its name, and the fit ends at `max_iter`.

    Attributes:
        players: in the order of their turns.
        batch_size: rows per round, as in `Gradient`.
        average: decay of an exponential average of the parameters, which is then the result.
        simultaneous: whether each player sees the others as they were when the round began, instead of as
            they are after their turns (alternating steps).

    >>> import optax
    >>> import numpy as np
    >>> from freeenergy.learning import fit, only
    >>> from freeenergy.nn import Linear
    >>> start = Linear(jnp.array([[1.0]]), jnp.array([0.0]))
    >>> def product(model, batch, key):
    ...     return model.weight[0, 0] * model.bias[0]
    >>> def less(model, batch, key):
    ...     return -product(model, batch, key)
    >>> step = optax.sgd(0.1)
    >>> x = Player("x", step, product, only(start, lambda m: m.weight))
    >>> y = Player("y", step, less, only(start, lambda m: m.bias))
    >>> circle = fit(start, Game((x, y)), np.zeros((1, 1)), key=jax.random.key(0), max_iter=63).model
    >>> circle.weight.round(1).tolist(), circle.bias.round(1).tolist()
    ([[1.0]], [0.0])
    """

    needs: ClassVar[type[AbstractSource]] = AbstractBatches
    players: tuple[Player, ...]
    batch_size: int | None = eqx.field(static=True, default=256)
    average: float | None = eqx.field(static=True, default=None)
    simultaneous: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        names = [player.name for player in self.players]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"The players of Game must have names of their own. Got {names} instead.")

    def init(self, model: Any, data: AbstractBatches, *, key: Array) -> Play:
        masks = [mask_of(model, player.learnable) for player in self.players]
        free, fixed = split(model, jax.tree.map(lambda *each: any(each), *masks))
        batch = Batch(*data.first_batch(self.batch_size, key=jax.random.fold_in(key, 0)))
        states = [
            as_objective(player.objective).init(model, batch, key=k)
            for player, k in zip(self.players, self._keys(key), strict=True)
        ]
        optimisers = [
            player.optimiser.init(eqx.filter(free, mask))
            for player, mask in zip(self.players, masks, strict=True)
        ]
        # distinct buffers are not needed: nothing is donated
        kept = Packed.of(free)
        average = None if self.average is None else kept
        return Play(kept, fixed, tuple(optimisers), tuple(states), average)

    def _keys(self, key: Array) -> list[Array]:
        """A key for each player."""
        return [key] if len(self.players) == 1 else list(jax.random.split(key, len(self.players)))

    def epoch(self, play: Play, data: AbstractBatches, *, key: Array) -> tuple[Play, list[Array]]:
        """The state after an epoch, and the mean of each player's objective over it."""
        shuffle, noise = jax.random.split(key)
        whole = learnable(eqx.combine(play.free.tree, play.fixed))
        masks = [whole if player.learnable is None else player.learnable for player in self.players]

        def visit(carry: Any, x: Any, weight: Array, rows: Array, number: Array) -> Any:
            (packed, optimisers, states, average), totals = carry
            batch, free = Batch(x, weight), packed.tree
            before = free
            optimisers, states, totals = list(optimisers), list(states), list(totals)
            for i, k in enumerate(self._keys(jax.random.fold_in(noise, number))):
                mine, others = eqx.partition(free, masks[i])
                seen = eqx.filter(before, masks[i], inverse=True) if self.simultaneous else others

                def turn(carry: Any, key: Array, player: Player = self.players[i], seen: Any = seen) -> Any:
                    return _turn(player, seen, play.fixed, batch, carry, key)

                start = (mine, optimisers[i], states[i])
                (mine, optimisers[i], states[i]), value = _repeated(turn, start, k, self.players[i].steps)
                free = eqx.combine(mine, others)
                totals[i] = totals[i] + value * rows.astype(value.dtype)
            packed = Packed.of(free)
            if self.average is not None:
                rate = self.average
                average = jax.tree.map(lambda a, b: rate * a + (1 - rate) * b, average, packed)
            return (packed, tuple(optimisers), tuple(states), average), tuple(totals)

        kind = jax.eval_shape(lambda k: data.first_batch(self.batch_size, key=k), key)[1].dtype
        totals = tuple(jnp.zeros((), kind) for _ in self.players)
        start = (play.free, play.optimiser, play.objective, play.average)
        carry, rows = data.epoch(visit, (start, totals), self.batch_size, key=shuffle)
        (free, optimisers, states, average), totals = carry
        means = [total / rows.astype(kind) for total in totals]
        return Play(free, play.fixed, optimisers, states, average), means

    def step(self, state: Play, data: AbstractBatches, *, key: Array) -> tuple[Play, Info]:
        new, means = self.epoch(state, data, key=key)
        names = [player.name for player in self.players]
        return new, Info(jnp.zeros((), bool), metrics=dict(zip(names, means, strict=True)))

    def model(self, state: Play) -> Any:
        return finished(state.shown.tree, state.fixed)


def _turn(
    player: Player, others: Any, fixed: Any, batch: Batch, carry: Any, key: Array
) -> tuple[Any, Array]:
    """One step of a player on its free reals, and what its objective was before that."""
    mine, optimiser, state = carry
    objective = as_objective(player.objective)

    def loss(mine: Any) -> tuple[Array, Any]:
        return objective(joined(eqx.combine(mine, others), fixed), batch, state, key=key)

    (value, state), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(mine)
    # Optax mixes types, which a caller may have forbidden
    with jax.numpy_dtype_promotion("standard"):
        updates, optimiser = player.optimiser.update(gradient, optimiser, mine)
    return (eqx.apply_updates(mine, updates), optimiser, state), value


def _repeated(
    turn: Callable[[Any, Array], tuple[Any, Array]], carry: Any, key: Array, steps: int
) -> tuple[Any, Array]:
    """`carry` after `steps` turns, and the mean of what they told."""
    if steps == 1:
        return turn(carry, key)
    carry, values = jax.lax.scan(turn, carry, jax.random.split(key, steps))
    return carry, jnp.mean(values)
