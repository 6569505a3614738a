"""Quasi-Newton learning of smooth objectives over all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from .._core import AbstractAlgorithm, AbstractSource, Data, Info, counting_rows, on_device
from ..inference._lbfgs import LBFGSState, begin_lbfgs
from ._free import finished, joined, split
from ._objectives import Batch

# where rounding lets no step lower the objective, a slope of this part of it counts as zero
_ROUNDING = 1e-6


class _State(NamedTuple):
    search: LBFGSState
    like: Any
    fixed: Any


class LBFGS(AbstractAlgorithm):
    """L-BFGS with a line search on the unconstrained parameters, for an objective without noise.

    Stops when no entry of the gradient of the mean objective is larger than `tol`, or when rounding leaves
    nothing to gain.

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

    def _value_and_gradient(self, state: _State, data: Data) -> Callable[[Array], tuple[Array, Array]]:
        chosen = counting_rows(data.weight)
        x = jax.tree.map(lambda a: a[chosen], data.x)
        batch = Batch(x, data.weight / jnp.sum(data.weight))
        _, tree_of = ravel_pytree(state.like)

        def value(flat: Array) -> Array:
            return self.objective(joined(tree_of(flat), state.fixed), batch, jax.random.key(0))

        def forward(flat: Array) -> tuple[Array, Array]:
            # reverse mode keeps what happened at every step of a recursion and goes through it again
            each = jax.vmap(lambda d: jax.jvp(value, (flat,), (d,)), out_axes=(None, 0))
            return each(jnp.eye(flat.size, dtype=flat.dtype))

        return forward if self.forward else jax.value_and_grad(value)

    def init(self, model: Any, data: Data, *, key: Array) -> _State:
        free, fixed = split(model, self.learnable)
        return _State(begin_lbfgs(ravel_pytree(free)[0]), free, fixed)

    def step(self, state: _State, data: Data, *, key: Array) -> tuple[_State, Info]:
        evaluate = self._value_and_gradient(state, data)

        def proceed(carry: tuple[LBFGSState, Array]) -> Array:
            search, left = carry
            return (left > 0) & ~search.stuck & ~jnp.isnan(search.value)

        def advance(carry: tuple[LBFGSState, Array]) -> tuple[LBFGSState, Array]:
            search, left = carry
            search = search.tell(*evaluate(search.ask()))
            return search, left - search.moved.astype(left.dtype)

        # to the next lower point, and first of all to that where it begins
        moves = 1 + jnp.isinf(state.search.value).astype(jnp.int32)
        search, _ = jax.lax.while_loop(proceed, advance, (state.search, moves))
        slope = jnp.max(jnp.abs(search.gradient), initial=0)
        little = slope <= _ROUNDING * jnp.maximum(jnp.abs(search.value), 1)
        done = (slope <= self.tol.astype(slope.dtype)) | (search.stuck & little)
        return state._replace(search=search), Info(done, search.value, {"gradient": slope})

    def model(self, state: _State) -> Any:
        point = state.search.point
        traced = isinstance(point, Tracer)
        free = ravel_pytree(state.like)[1](point) if traced else _taken_apart(np.asarray(point), state.like)
        return finished(free, state.fixed)


def _taken_apart(flat: np.ndarray, like: Any) -> Any:
    """The inverse of `ravel_pytree(like)` on the host, where it compiles nothing."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = [
        on_device(part.reshape(leaf.shape), leaf.dtype)
        for part, leaf in zip(np.split(flat, ends), leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)
