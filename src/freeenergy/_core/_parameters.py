"""Parameters with their constraint declared on the field.

A model is a frozen `equinox.Module`; a field made by `parameter(constraint)` is stored in the
constrained space that people read (a rate is positive, weights sum to one).  Optimisers work on
the image under `unconstrain`, a tree of the same structure whose leaves are free reals.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

Tree = TypeVar("Tree")

# how far from symmetric or from sum one numbers of 32 bits may be
_ROUNDING = 1e-5


def _no_nan(value: np.ndarray) -> bool:
    """Whether every entry is a number."""
    return not np.isnan(value).any()


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A set of admissible values and a smooth map onto it from free reals of the same shape.

    Attributes:
        name: how messages call the set.
        to_free: maps an admissible value to free reals.
        from_free: maps free reals back into the set; `from_free(to_free(v)) == v`.
        contains: tells, entry by entry, whether a value is admissible.
        dimension: how many numbers a value of a given shape has that vary freely.
        closure: whether all of a value is admissible or a limit of such values, as fits may end in.
    """

    name: str
    to_free: Callable[[Array], Array]
    from_free: Callable[[Array], Array]
    contains: Callable[[Array], Array]
    dimension: Callable[[tuple[int, ...]], int] = math.prod
    closure: Callable[[np.ndarray], Any] = _no_nan

    def __repr__(self) -> str:
        return self.name


def _identity(value: Array) -> Array:
    return value


def _inverse_softplus(value: Array) -> Array:
    # log(exp(v) − 1) without overflow for large v or cancellation for small v
    return value + jnp.log(-jnp.expm1(-value))


def _logit(value: Array) -> Array:
    return jnp.log(value) - jnp.log1p(-value)


def _log_simplex(value: Array) -> Array:
    # a weight of exactly zero has no finite image: keep it far below the others instead, with room for them
    # to grow before it vanishes: the logarithm of zero has no slope
    info = jnp.finfo(value.dtype)
    return jnp.log(jnp.maximum(value, info.tiny / info.eps))


def _log_cholesky(value: Array) -> Array:
    factor = jnp.linalg.cholesky(value)
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    return jnp.tril(factor, -1) + _diagonal_matrix(jnp.log(diagonal))


def _from_log_cholesky(free: Array) -> Array:
    diagonal = jnp.exp(jnp.diagonal(free, axis1=-2, axis2=-1))
    factor = jnp.tril(free, -1) + _diagonal_matrix(diagonal)
    return factor @ jnp.swapaxes(factor, -1, -2)


def _diagonal_matrix(diagonal: Array) -> Array:
    return diagonal[..., None] * jnp.eye(diagonal.shape[-1], dtype=diagonal.dtype).reshape(
        (1,) * (diagonal.ndim - 1) + (diagonal.shape[-1],) * 2
    )


def _is_positive_definite(value: Array) -> Array:
    # the Cholesky factor of an indefinite matrix is NaN
    return jnp.isfinite(jnp.linalg.cholesky(value))


def _is_semidefinite(value: np.ndarray) -> bool:
    if value.ndim < 2 or value.shape[-1] != value.shape[-2] or not np.isfinite(value).all():
        return False
    largest = np.abs(value).max(initial=0.0)
    symmetric = np.abs(value - np.swapaxes(value, -1, -2)).max(initial=0.0) <= 1e-6 * largest
    return bool(symmetric and np.linalg.eigvalsh(value).min(initial=0.0) >= -1e-6 * largest)


real = Constraint("real", _identity, _identity, jnp.isfinite)
positive = Constraint(
    "positive",
    _inverse_softplus,
    jax.nn.softplus,
    lambda v: v > 0,
    closure=lambda v: (v >= 0).all(),
)
unit_interval = Constraint(
    "in the open unit interval",
    _logit,
    jax.nn.sigmoid,
    lambda v: (v > 0) & (v < 1),
    closure=lambda v: ((v >= 0) & (v <= 1)).all(),
)
simplex = Constraint(
    "non-negative with sum one along the last axis",
    _log_simplex,
    lambda free: jax.nn.softmax(free, axis=-1),
    lambda v: (v >= 0) & (jnp.abs(jnp.sum(v, axis=-1, keepdims=True) - 1) < 1e-6),
    lambda shape: math.prod(shape[:-1]) * (shape[-1] - 1),
    lambda v: v.ndim > 0 and (v >= 0).all() and (np.abs(v.sum(axis=-1) - 1) < 1e-4).all(),
)
positive_definite = Constraint(
    "symmetric positive definite",
    _log_cholesky,
    _from_log_cholesky,
    _is_positive_definite,
    lambda shape: math.prod(shape[:-1]) * (shape[-1] + 1) // 2,
    _is_semidefinite,
)


def parameter(constraint: Constraint = real, **options: Any) -> Any:
    """Declares a field of a model as a parameter that lives in `constraint`.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> round(float(unconstrain(Rate(jnp.array(1.0))).value), 4)
    0.5413
    """
    return eqx.field(metadata={"constraint": constraint}, **options)


def buffer(**options: Any) -> Any:
    """Declares a field that belongs to the model but of which nothing, at any depth, is learned."""
    return eqx.field(metadata={"buffer": True}, **options)


def refuse_outside(owner: eqx.Module, *, closed: bool = False) -> None:
    """Refuses values that are not in the set of their field; meant for `__check_init__`.

    Only values that are there are looked at: inside a transformation of JAX, where they are traced, nothing
    is checked and nothing is slower.

    Args:
        owner: what was just made.
        closed: whether the edge of an open set (a rate of zero, a probability of one) is let in.
    """
    for field in dataclasses.fields(owner):
        constraint, value = field.metadata.get("constraint"), getattr(owner, field.name, None)
        if constraint is None or isinstance(value, Tracer) or not eqx.is_inexact_array_like(value):
            continue
        problem = _problem(constraint, np.asarray(value, float), closed)
        if problem is not None:
            raise ValueError(f"The '{field.name}' parameter of {type(owner).__name__} must be {problem}")


def _problem(constraint: Constraint, value: np.ndarray, closed: bool) -> str | None:
    """What is wrong with `value`, as the end of a sentence."""
    if constraint is positive:
        inside = value >= 0 if closed else value > 0
        name = "non-negative" if closed else "positive"
    elif constraint is unit_interval:
        inside = (value >= 0) & (value <= 1) if closed else (value > 0) & (value < 1)
        name = "in the unit interval" if closed else constraint.name
    elif constraint is simplex:
        off = np.abs(value.sum(axis=-1, keepdims=True) - 1) > _ROUNDING
        if off.any() and (value >= 0).all():
            return f"{constraint.name}. Got the sum {value.sum(axis=-1, keepdims=True)[off][0]:g} instead."
        inside, name = value >= 0, constraint.name
    elif constraint is positive_definite:
        return _matrix_problem(value)
    else:
        return None
    return None if inside.all() else f"{name}. Got {value[~inside][0]:g} instead."


def _matrix_problem(value: np.ndarray) -> str | None:
    """What keeps a matrix, or one of a stack, from being a covariance; a singular one is let through."""
    start = "a symmetric positive definite matrix. Got "
    if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
        return f"{start}an array of shape {value.shape} instead."
    if not np.isfinite(value).all():
        return f"{start}{value[~np.isfinite(value)][0]:g} in it instead."
    size = np.abs(value).max(axis=(-2, -1), initial=0, keepdims=True)
    if (np.abs(value - np.swapaxes(value, -1, -2)) > _ROUNDING * size).any():
        return f"{start}one that is not symmetric instead."
    try:
        # a factorisation costs less than eigenvalues, which are asked for only to say what is wrong
        np.linalg.cholesky(value + (_ROUNDING * size + np.finfo(float).tiny) * np.eye(value.shape[-1]))
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(value).min()
        return f"{start}one with the eigenvalue {least:g} instead."
    return None


def _map_fields(model: Tree, leaf: Callable[[Constraint | None, bool, Any], Any]) -> Tree:
    """Rebuilds `model` with `leaf(constraint, kept, value)` in place of every leaf.

    `constraint` is that of the innermost field that holds the leaf; `kept` tells whether this field
    or one around it is a buffer.
    """

    def visit(node: Any, constraint: Constraint | None, kept: bool) -> Any:
        if isinstance(node, eqx.Module):
            leaves, structure = jax.tree.flatten(node, is_leaf=lambda child: child is not node)
            names = [
                f
                for f in dataclasses.fields(node)
                if not f.metadata.get("static", False) and hasattr(node, f.name)
            ]
            return jax.tree.unflatten(
                structure,
                [
                    visit(child, f.metadata.get("constraint"), kept or f.metadata.get("buffer", False))
                    for child, f in zip(leaves, names, strict=True)
                ],
            )
        inner = jax.tree.leaves(node, is_leaf=lambda child: child is not node)
        if len(inner) == 1 and inner[0] is node:
            return leaf(constraint, kept, node)
        leaves, structure = jax.tree.flatten(node, is_leaf=lambda child: child is not node)
        return jax.tree.unflatten(structure, [visit(child, constraint, kept) for child in leaves])

    return visit(model, None, False)


def broken_constraints(model: Any) -> list[str]:
    """The constraints that arrays of `model` break, beyond what a fit may end in.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> broken_constraints(Rate(jnp.array(-1.0))), broken_constraints(Rate(jnp.array(0.0)))
    (['positive'], [])
    """
    broken = list[str]()

    def leaf(constraint: Constraint | None, kept: bool, value: Any) -> None:
        if eqx.is_inexact_array(value) and not (constraint or real).closure(np.asarray(value)):
            broken.append((constraint or real).name)

    _map_fields(model, leaf)
    return broken


def _apply(model: Tree, direction: str) -> Tree:
    def leaf(constraint: Constraint | None, kept: bool, value: Any) -> Any:
        if constraint is None or not eqx.is_inexact_array(value):
            return value
        return getattr(constraint, direction)(value)

    return _map_fields(model, leaf)


def unconstrain(model: Tree) -> Tree:
    """Maps every parameter of `model` to free reals; the tree keeps its structure."""
    return _apply(model, "to_free")


def constrain(free: Tree) -> Tree:
    """Maps a tree made by `unconstrain` back to admissible parameters."""
    return _apply(free, "from_free")


def compiled_constrain(free: Tree) -> Tree:
    """`constrain` as one program, or none where nothing is constrained: for a model that leaves a fit."""
    constrained = list[Constraint]()

    def leaf(constraint: Constraint | None, kept: bool, value: Any) -> None:
        if constraint is not None and constraint is not real and eqx.is_inexact_array(value):
            constrained.append(constraint)

    _map_fields(free, leaf)
    return _compiled_constrain(free) if constrained else free


_compiled_constrain = eqx.filter_jit(constrain)


def learnable(model: Tree) -> Tree:
    """A tree of booleans: True at the leaves that learning may change.

    These are the floating-point arrays, except inside fields declared with `buffer()`.
    """
    return _map_fields(model, lambda _, kept, value: eqx.is_inexact_array(value) and not kept)


def held_at_zero(model: Tree) -> Tree:
    """The tree of `learnable` with False at positive parameters that are zero, which no free real maps to.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> held_at_zero(Rate(jnp.array(0.0))).value, held_at_zero(Rate(jnp.array(0.5))).value
    (False, True)
    """

    def leaf(constraint: Constraint | None, kept: bool, value: Any) -> bool:
        if kept or not eqx.is_inexact_array(value):
            return False
        return constraint is not positive or bool(np.any(np.asarray(value) != 0))

    return _map_fields(model, leaf)


def inadmissible(model: Any) -> tuple[Constraint, Array] | None:
    """The first parameter outside its constraint with that constraint, or None.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> inadmissible(Rate(jnp.array(-1.0)))[0], inadmissible(Rate(jnp.array(1.0)))
    (positive, None)
    """
    found: list[tuple[Constraint, Array]] = []

    def leaf(constraint: Constraint | None, kept: bool, value: Any) -> Any:
        if eqx.is_inexact_array(value) and not kept:
            where = constraint or real
            if not bool(jnp.all(where.contains(value))):
                found.append((where, value))
        return value

    _map_fields(model, leaf)
    return found[0] if found else None


def freeze(model: Tree, where: Callable[[Tree], Any]) -> Tree:
    """The tree of `learnable` with False at the leaves of `where(model)`.

    A learner takes it as `learnable=`: `EM(learnable=freeze(model, lambda m: m.components))`.
    """
    mask = learnable(model)
    frozen = jax.tree.map(lambda _: False, where(mask))
    return eqx.tree_at(where, mask, frozen)


def parameter_count(model: Any) -> int:
    """The number of learnable numbers in `model` that vary freely: K − 1 for K weights of sum one.

    >>> class Weights(eqx.Module):
    ...     value: Array = parameter(simplex)
    >>> parameter_count(Weights(jnp.ones(4) / 4))
    3
    """

    def leaf(constraint: Constraint | None, kept: bool, value: Any) -> int:
        if kept or not eqx.is_inexact_array(value):
            return 0
        return (constraint or real).dimension(value.shape)

    return sum(jax.tree.leaves(_map_fields(model, leaf)))
