"""What estimators that train by gradient share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from jax import Array

from .._core import LOG_2PI, Data, Fit, Status, check_size, key_of, on_device
from ..learning import Optimiser, decay_weights, in_one_vector
from ._rows import Rows


def adam(learning_rate: float, clip: float = 10.0) -> Optimiser:
    """Adam after clipping the gradient's length."""
    return Optimiser(optax.chain, Optimiser(optax.clip_by_global_norm, clip), flat_adam(learning_rate))


def flat_adam(learning_rate: float, **momenta: float) -> Optimiser:
    """Adam on all parameters as one vector, which is the same step in fewer and longer operations."""
    return Optimiser(in_one_vector, Optimiser(optax.adam, learning_rate, **momenta))


def decaying_adam(learning_rate: float, weight_decay: float, clip: float = 10.0) -> Optimiser:
    """Adam with decoupled decay of the weights, after clipping the gradient's length."""
    return Optimiser(
        optax.chain,
        Optimiser(optax.clip_by_global_norm, clip),
        Optimiser(in_one_vector, Optimiser(optax.scale_by_adam)),
        Optimiser(decay_weights, weight_decay),
        Optimiser(optax.scale_by_learning_rate, learning_rate),
    )


def batch_for(rows: int) -> int:
    """Rows a step, a twentieth of them: a power of two from 16 to 256."""
    return int(2 ** np.clip(np.round(np.log2(rows / 20)), 4, 8))


def cast(model: Any, dtype: Any) -> Any:
    """`model` with its floating-point arrays in another precision."""
    return jax.tree.map(lambda a: on_device(np.asarray(a), dtype) if eqx.is_inexact_array(a) else a, model)


def split_rows(rows: Rows, fraction: float, dtype: Any) -> tuple[Data, Data | None]:
    """Training and validation rows; none of the latter if there are too few to spare.

    Rows come in an order that does not depend on how they were passed, so every k-th is held out.  Rows of
    which more is known are pairs.
    """

    def data(chosen: Any) -> Data:
        x = rows.x[chosen] if rows.known is None else (rows.x[chosen], rows.known[chosen])
        return Data.of(x, rows.weight[chosen], dtype=dtype)

    held = round(len(rows.x) * fraction)
    if held < 5:
        return data(slice(None)), None
    chosen = np.zeros(len(rows.x), bool)
    chosen[np.linspace(0, len(rows.x) - 1, held).astype(int)] = True
    return data(~chosen), data(chosen)


def not_useless(result: Fit, start: Any, rows: Rows) -> Fit:
    """`result`, or the start with a sentence where training never came near independent Gaussian columns.

    What the objective has to be near is −log p of standardised rows, with half a nat a column to spare.
    """
    seen = ~np.isnan(rows.x)
    apart = np.where(seen, 0.5 * (LOG_2PI + np.where(seen, rows.x, 0.0) ** 2), 0.0).sum(axis=1)
    most = float(np.average(apart, weights=rows.weight)) + 2 + 0.5 * rows.x.shape[1]
    objective = result.history.get("objective", np.zeros(0))
    if result.interrupted or not len(objective) or np.min(objective) <= most:
        return result
    note = (
        "training left the rows less likely than independent Gaussian columns do; the model is what it was "
        "before. Try a smaller learning rate"
    )
    return dataclasses.replace(result, model=start, status=Status.NON_FINITE, note=note)


def check_networks(make: Callable[[Array], Any], others: float, what: str, advice: str) -> None:
    """Refuses what `make` would make of a key, with `others` numbers beside it, if it is too large."""
    arrays = jax.tree.leaves(eqx.filter_eval_shape(make, key_of(0)))
    # the weights with their gradient and the two moments of Adam
    check_size(
        4 * sum(a.size for a in arrays if isinstance(a, jax.ShapeDtypeStruct)) + others, what, advice
    )


def numbers_inside(network: Any, *inputs: jax.ShapeDtypeStruct) -> tuple[int, int]:
    """How many numbers a network makes of an event on its way to an answer, and the most at a time.

    Nothing is computed: the arrays of `network` may be shapes alone.  Learning keeps about half of all,
    since the others are made and used at once.

    >>> event = jax.ShapeDtypeStruct((3,), float)
    >>> numbers_inside(lambda x: jax.numpy.tanh(jax.numpy.tanh(x)), event)
    (6, 3)
    """
    shapes, rest = eqx.partition(network, _has_shape)

    def sizes(events: int) -> list[int]:
        many = [jax.ShapeDtypeStruct((events, *one.shape), one.dtype) for one in inputs]
        each = lambda shapes, *one: jax.vmap(eqx.combine(shapes, rest))(*one)  # noqa: E731
        steps = jax.make_jaxpr(each)(shapes, *many).eqns
        return [math.prod(made.aval.shape) for step in steps for made in step.outvars]

    # what the parameters alone make is the same for many events
    more = [two - one for two, one in zip(sizes(2), sizes(1), strict=False)]
    return sum(more), max(more, default=0)


def _has_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_array(leaf)
