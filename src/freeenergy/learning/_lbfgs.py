"""Quasi-Newton learning of smooth objectives over all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from .._core import AbstractAlgorithm, AbstractSource, Data, Info, counting_rows, on_device
from ._free import finished, joined, split
from ._objectives import Batch


class _State(NamedTuple):
    free: Any
    fixed: Any
    optimiser: Any


# a line search names the objective a dozen times: as a program of its own it is traced once
@eqx.filter_jit
def _value(objective: Callable[..., Array], free: Any, fixed: Any, batch: Batch) -> Array:
    return objective(joined(free, fixed), batch, jax.random.key(0))


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

    needs: ClassVar[type[AbstractSource]] = Data
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
        free, fixed = split(model, self.learnable)
        value, gradient = jax.value_and_grad(self._loss(fixed, data))(free)
        return _State(free, fixed, optax.tree.set(_OPTIMISER.init(free), value=value, grad=gradient))

    def step(self, state: _State, data: Data, *, key: Array) -> tuple[_State, Info]:
        loss = self._loss(state.fixed, data)
        # the line search has just been here
        value, gradient = (optax.tree.get(state.optimiser, name) for name in ("value", "grad"))
        # Optax mixes integer widths, which a caller may have forbidden
        with jax.numpy_dtype_promotion("standard"):
            updates, optimiser = _OPTIMISER.update(
                gradient, state.optimiser, state.free, value=value, grad=gradient, value_fn=loss
            )
        new = _State(eqx.apply_updates(state.free, updates), state.fixed, optimiser)
        slope = optax.tree.norm(optax.tree.get(optimiser, "grad"), ord=jnp.inf)
        done = slope <= self.tol.astype(slope.dtype)
        return new, Info(done, optax.tree.get(optimiser, "value"), {"gradient": slope})

    def model(self, state: _State) -> Any:
        return finished(state.free, state.fixed)


_OPTIMISER = optax.lbfgs()
