"""Optimisers: those of Optax, and records that describe one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from ._free import side_by_side


def decay_weights(rate: float) -> optax.GradientTransformation:
    """Weight decay that spares biases and other vectors: only arrays of two or more axes shrink."""
    return optax.add_decayed_weights(rate, mask=lambda tree: jax.tree.map(lambda a: a.ndim >= 2, tree))


def in_one_vector(optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
    """`optax.flatten`, with which a step is fewer and longer operations, for trees without arrays too."""
    flat = optax.flatten(optimiser)

    def init(params: Any) -> Any:
        return (flat if jax.tree.leaves(params) else optimiser).init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(updates)
        if not leaves:
            return optimiser.update(updates, state, params)
        if len({leaf.dtype for leaf in leaves}) > 1:
            return flat.update(updates, state, params)
        found: Any = optimiser.update(_vector(updates), state, None if params is None else _vector(params))
        moved, state = found
        ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
        parts = [moved[end - leaf.size : end] for leaf, end in zip(leaves, ends, strict=True)]
        shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped), state

    return optax.GradientTransformation(init, update)


def _vector(tree: Any) -> Any:
    return side_by_side([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


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
