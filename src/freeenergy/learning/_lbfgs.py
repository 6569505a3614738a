"""Quasi-Newton learning of smooth objectives over all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

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
from ..inference import QuasiNewton, QuasiNewtonState
from ._em import counting_rows
from ._objectives import Batch


class _State(NamedTuple):
    search: QuasiNewtonState
    fixed: Any


# a line search names the objective a dozen times: as a program of its own it is traced once
@eqx.filter_jit
def _value(objective: Callable[..., Array], free: Any, fixed: Any, batch: Batch) -> Array:
    return objective(eqx.combine(constrain(free), fixed), batch, jax.random.key(0))


# reverse mode keeps what happened at every step of a recursion and goes through it again; for few
# parameters it is faster to carry their slopes along
@eqx.filter_custom_vjp
def _value_forward(free: Any, objective: Callable[..., Array], fixed: Any, batch: Batch) -> Array:
    return _value(objective, free, fixed, batch)


@_value_forward.def_fwd
def _(
    perturbed: Any, free: Any, objective: Callable[..., Array], fixed: Any, batch: Batch
) -> tuple[Array, Any]:
    flat, whole = ravel_pytree(free)

    def along(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: _value(objective, whole(x), fixed, batch), (flat,), (direction,))

    value, slopes = jax.vmap(along, out_axes=(None, 0))(jnp.eye(flat.size, dtype=flat.dtype))
    return value, whole(slopes)


@_value_forward.def_bwd
def _(slopes: Any, change: Array, *_: Any) -> Any:
    return jax.tree.map(lambda slope: change * slope, slopes)


class LBFGS(AbstractAlgorithm):
    """L-BFGS with a line search on the unconstrained parameters, for an objective without noise.

    Stops when no entry of the gradient of the mean objective is larger than `tol`.

    Attributes:
        objective: `(model, batch, key) → scalar`, smooth and the same for every key.
        tol: the largest entry of the gradient that counts as zero.
        learnable: a tree of booleans as made by `freeze`.
        forward: whether gradients are carried along with the value (forward mode), which is faster for a
            handful of parameters and a long recursion.
    """

    objective: Callable[[Any, Batch, Array], Array]
    tol: Array = eqx.field(converter=on_device, default=1e-5)
    learnable: Any = None
    forward: bool = eqx.field(static=True, default=False)

    def _loss(self, fixed: Any, data: Data) -> Callable[[Any], Array]:
        chosen = counting_rows(data.weight)
        x = jax.tree.map(lambda a: a[chosen], data.x)
        batch = Batch(x, data.weight / jnp.sum(data.weight))
        if self.forward:
            return lambda free: _value_forward(free, self.objective, fixed, batch)
        return lambda free: _value(self.objective, free, fixed, batch)

    def init(self, model: Any, data: Data, *, key: Array) -> _State:
        mask = learnable(model) if self.learnable is None else self.learnable
        # what is fixed stays as it is, to the bit
        free, fixed = unconstrain(eqx.filter(model, mask)), eqx.filter(model, mask, inverse=True)
        return _State(_SEARCH.init(self._loss(fixed, data), free), fixed)

    def step(self, state: _State, data: Data, *, key: Array) -> tuple[_State, Info]:
        search = _SEARCH.step(self._loss(state.fixed, data), state.search)
        slope = search.steepest
        done = slope <= self.tol.astype(slope.dtype)
        return _State(search, state.fixed), Info(search.energy, done, {"gradient": slope})

    def model(self, state: _State) -> Any:
        return eqx.combine(compiled_constrain(state.search.point), state.fixed)


_SEARCH = QuasiNewton()
