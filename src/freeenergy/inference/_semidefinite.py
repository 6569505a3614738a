"""Small matrices inside of loops over time: products, factors and roots of semidefinite ones.

Products, factors and solutions are plain sums that compile into the loop, instead of calls of a library at
each step.  Covariances may be singular: nothing is divided by a pivot that is zero but for rounding.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

# longer loops over rows are not written out: that would take long to compile
_UNROLLED = 2


def product(a: Float[Array, "m n"], b: Float[Array, "n ..."]) -> Float[Array, "m ..."]:
    """a b for small matrices, or a matrix and a vector."""
    # a sum fuses with what is around it, which a product of a matrix and a vector does not
    return a @ b if b.ndim == 2 else jnp.sum(a * b[None, :], axis=1)


def small_product(a: Float[Array, "m n"], b: Float[Array, "n k"]) -> Float[Array, "m k"]:
    """a b for matrices that both change from step to step: under `vmap` a sum is faster."""
    size = a.shape[1]
    if not 0 < size <= 8:
        return a @ b
    return sum((a[:, k, None] * b[None, k, :] for k in range(1, size)), a[:, 0, None] * b[None, 0, :])


def congruence(
    a: Float[Array, "m n"], p: Float[Array, "n n"], multiply: Any = product
) -> Float[Array, "m m"]:
    """a p aᵀ, symmetric to the bit."""
    return symmetric(multiply(multiply(a, p), a.T))


def symmetric(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """(M + Mᵀ) / 2."""
    return (matrix + matrix.T) / 2


def dot(a: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, ""]:
    """a · b for vectors."""
    return jnp.sum(a * b)


def outer(a: Float[Array, " m"], b: Float[Array, " n"]) -> Float[Array, "m n"]:
    """a bᵀ for vectors."""
    return a[:, None] * b[None, :]


def repeat(body: Any, carry: Any, times: int) -> Any:
    """`body(carry, i)` for each i, written out if short."""
    if times <= _UNROLLED:
        for i in range(times):
            carry = body(carry, i)
        return carry
    return jax.lax.scan(lambda c, i: (body(c, i), None), carry, jnp.arange(times))[0]


def _pivots(diagonal: Float[Array, " n"]) -> Float[Array, " n"]:
    """What counts as zero while eliminating: rounding of the diagonal that was there at first."""
    return 16 * len(diagonal) * jnp.finfo(diagonal.dtype).eps * diagonal


def solve_semidefinite(matrix: Float[Array, "n n"], right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """X with `matrix` X = `right`, for a positive semidefinite matrix whose range holds `right`.

    Gauss–Jordan elimination without pivoting; rows that depend on those before them get zero.

    >>> solve_semidefinite(jnp.array([[2.0, 2.0], [2.0, 2.0]]), jnp.array([[4.0], [4.0]])).tolist()
    [[2.0], [0.0]]
    """
    size = len(matrix)
    least = _pivots(jnp.diagonal(matrix))
    rows = jnp.arange(size)

    def body(table: Array, j: Any) -> Array:
        pivot = table[j, j]
        good = pivot > least[j]
        row = jnp.where(good, table[j] / jnp.where(good, pivot, 1), 0)
        column = jnp.where(rows == j, 0, table[:, j])
        return jnp.where((rows == j)[:, None], row[None], table - outer(column, row))

    return repeat(body, jnp.concatenate([matrix, right], axis=1), size)[:, size:]


def factor_semidefinite(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """L and d with L diag(d) Lᵀ = `matrix`, L unit lower triangular, d ≥ 0 (LDLᵀ decomposition)."""
    size = len(matrix)
    if size == 1:
        return jnp.ones_like(matrix), matrix[0]
    least = _pivots(jnp.diagonal(matrix))
    rows = jnp.arange(size)

    def body(carry: tuple[Array, Array, Array], j: Any) -> tuple[Array, Array, Array]:
        rest, lower, pivots = carry
        pivot = rest[j, j]
        good = pivot > least[j]
        safe = jnp.where(good, pivot, 1)
        # entries that no covariance could have are rounding errors, which have no slope
        most = jnp.sqrt(jnp.maximum(jnp.diagonal(rest), 0) / safe)
        ratio = rest[:, j] / safe
        ratio = ratio + jax.lax.stop_gradient(jnp.clip(ratio, -most, most) - ratio)
        column = jnp.where(rows == j, 1.0, jnp.where(good & (rows > j), ratio, 0))
        # what is zero but for rounding is zero, with its slope
        pivot = pivot - jax.lax.stop_gradient(jnp.where(pivot >= least[j], 0, pivot))
        here = rows == j
        lower = jnp.where(here[None, :], column[:, None], lower)
        return rest - pivot * outer(column, column), lower, jnp.where(here, pivot, pivots)

    _, lower, pivots = repeat(body, (matrix, jnp.zeros_like(matrix), jnp.zeros_like(least)), size)
    return lower, pivots


def root_semidefinite(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A lower triangular L with L Lᵀ = `matrix`: Cholesky's factor, which may be singular here.

    >>> root_semidefinite(jnp.array([[4.0, 2.0], [2.0, 1.0]])).tolist()
    [[2.0, 0.0], [1.0, 0.0]]
    """
    lower, pivots = factor_semidefinite(matrix)
    return lower * safe_sqrt(pivots)[None, :]


def safe_sqrt(value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√ with gradient zero at zero."""
    good = value > 0
    return jnp.where(good, jnp.sqrt(jnp.where(good, value, 1)), 0)


def solve_unit_lower(lower: Float[Array, "n n"], right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """L⁻¹ `right` for unit lower triangular L."""

    def body(rest: Array, j: Any) -> Array:
        below = jnp.where(jnp.arange(len(lower)) > j, lower[:, j], 0)
        return rest - outer(below, rest[j])

    return repeat(body, right, len(lower))


def triangularise(matrix: Float[Array, "n k"]) -> Float[Array, "n n"]:
    """A square L with L Lᵀ = M Mᵀ for a `matrix` M with more columns than rows."""
    size = len(matrix)

    def body(carry: tuple[Array, Array], j: Any) -> tuple[Array, Array]:
        rest, lower = carry
        length = safe_sqrt(dot(rest[j], rest[j]))
        unit = rest[j] / jnp.where(length > 0, length, 1)
        column = jnp.sum(rest * unit[None, :], axis=1)
        lower = jnp.where((jnp.arange(size) == j)[None, :], column[:, None], lower)
        return rest - outer(column, unit), lower

    # modified Gram–Schmidt: its triangular factor is as accurate as that of reflections
    return repeat(body, (matrix, jnp.zeros((size, size), matrix.dtype)), size)[1]
