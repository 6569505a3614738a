"""What estimators that train by gradient share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from .._core import Data, check_size, on_device
from ..learning import Optimiser, decay_weights
from ._rows import Rows


def adam(learning_rate: float, clip: float = 10.0) -> Optimiser:
    """Adam after clipping the gradient's length."""
    clipping = Optimiser(optax.clip_by_global_norm, clip)
    return Optimiser(optax.chain, clipping, Optimiser(optax.adam, learning_rate))


def decaying_adam(learning_rate: float, weight_decay: float, clip: float = 10.0) -> Optimiser:
    """Adam with decoupled decay of the weights, after clipping the gradient's length."""
    return Optimiser(
        optax.chain,
        Optimiser(optax.clip_by_global_norm, clip),
        Optimiser(optax.scale_by_adam),
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


def check_networks(make: Callable[[], Any], others: float, what: str, advice: str) -> None:
    """Refuses what `make` would make, with `others` numbers beside it, if it is too large."""
    arrays = jax.tree.leaves(eqx.filter_eval_shape(make))
    # the weights with their gradient and the two moments of Adam
    check_size(
        4 * sum(a.size for a in arrays if isinstance(a, jax.ShapeDtypeStruct)) + others, what, advice
    )
