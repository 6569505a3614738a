"""A product of matrices that stays one product when it is mapped over events."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Float


def dense(rows: Float[Array, "rows inputs"], weight: Float[Array, "inputs outputs"]) -> Array:
    """`rows @ weight`, of which `vmap` over events makes one product of the rows of all of them.

    For XLA a product of three axes, and its slope in the weights, is another one with a copy of the rows in
    another order, which on CPUs takes about as long as the product itself.

    >>> events = jnp.ones((3, 4, 2))
    >>> jax.vmap(lambda rows: dense(rows, jnp.eye(2)))(events).shape
    (3, 4, 2)
    """
    return _dense.bind(rows, weight)


_dense = Primitive("dense")
_dense.def_impl(jax.jit(jnp.matmul))
mlir.register_lowering(_dense, mlir.lower_fun(jnp.matmul, multiple_results=False))


@_dense.def_abstract_eval
def _(rows: Any, weight: Any) -> Any:
    return ShapedArray((rows.shape[0], weight.shape[1]), rows.dtype)


# linear in both, so that all derivatives are known by these two
ad.defbilinear(
    _dense,
    lambda slope, rows, weight: _dense.bind(slope, weight.T),
    lambda slope, rows, weight: rows.T @ slope,
)


def _mapped(arguments: Any, axes: Any) -> tuple[Array, int]:
    rows, weight = arguments
    if axes[1] is not None:
        return jax.vmap(jnp.matmul, axes)(rows, weight), 0
    rows = jnp.moveaxis(rows, axes[0], 0)
    return _dense.bind(rows.reshape(-1, rows.shape[-1]), weight).reshape(*rows.shape[:2], -1), 0


batching.primitive_batchers[_dense] = _mapped
