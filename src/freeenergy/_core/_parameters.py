"""Parameters with the space they lie in declared on the field.

A model is a frozen `equinox.Module`; a field made by `parameter(space)` is stored as people read it (a
rate is positive, weights sum to one).  Optimisers work on the image under `unconstrain`, a tree of the same
structure whose leaves are free reals; samplers on `free_vector`, one vector with the log-determinant of the
way back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ._arrays import on_device
from ._spaces import AbstractContinuous, positive, real
from ._unknowns import join_free, split_free

Tree = TypeVar("Tree")


def parameter(constraint: AbstractContinuous = real, **options: Any) -> Any:
    """Declares a field of a model as a parameter that lies in `constraint`, a continuous space.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> round(float(unconstrain(Rate(jnp.array(1.0))).value), 4)
    0.5413
    """
    return eqx.field(metadata={"constraint": constraint}, **options)


def array_parameter(constraint: AbstractContinuous = real, *, ndim: int = 1, **options: Any) -> Any:
    """A parameter that is made of plain numbers too: a number or list of them is an array of `ndim` axes.

    >>> class Rate(eqx.Module):
    ...     value: Array = array_parameter(positive)
    >>> Rate(2).value.tolist(), Rate([1.0, 2.0]).value.shape
    ([2.0], (2,))

    `refuse_outside` refuses arrays with fewer axes.
    """

    def array(value: Any) -> Any:
        plain = isinstance(value, int | float | list | tuple)
        if not plain or not all(isinstance(n, int | float | np.number) for n in jax.tree.leaves(value)):
            return value
        given = np.asarray(value, float)
        return on_device(given.reshape((1,) * (ndim - given.ndim) + given.shape))

    return eqx.field(metadata={"constraint": constraint, "ndim": ndim}, converter=array, **options)


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
    entries = dict[str, int]()
    for field in dataclasses.fields(owner):
        constraint, value = field.metadata.get("constraint"), getattr(owner, field.name, None)
        if constraint is None or isinstance(value, Tracer) or not eqx.is_inexact_array_like(value):
            continue
        ndim, shape = field.metadata.get("ndim", 0), np.asarray(value).shape
        if len(shape) < ndim:
            raise ValueError(
                f"The '{field.name}' parameter of {type(owner).__name__} must be an array with "
                f"{'an axis' if ndim == 1 else f'{ndim} axes'} at least, or plain numbers. "
                f"Got an array of shape {shape} instead."
            )
        if ndim == 1:
            entries[field.name] = shape[-1]
        problem = constraint.problem(np.asarray(value, float), closed=closed)
        if problem is not None:
            raise ValueError(f"The '{field.name}' parameter of {type(owner).__name__} must be {problem}")
    if len(set(entries.values())) > 1:
        raise ValueError(
            f"The parameters {', '.join(map(repr, entries))} of {type(owner).__name__} must have one entry "
            f"for each coordinate. Got {', '.join(map(str, entries.values()))} entries instead."
        )


def _map_fields(model: Tree, leaf: Callable[[AbstractContinuous | None, bool, Any], Any]) -> Tree:
    """Rebuilds `model` with `leaf(constraint, kept, value)` in place of every leaf.

    `constraint` is that of the innermost field that holds the leaf; `kept` tells whether this field
    or one around it is a buffer.
    """

    def visit(node: Any, constraint: AbstractContinuous | None, kept: bool) -> Any:
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

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> None:
        if eqx.is_inexact_array(value) and not (constraint or real).closure(np.asarray(value)):
            broken.append((constraint or real).name)

    _map_fields(model, leaf)
    return broken


def unconstrain(model: Tree) -> Tree:
    """Maps every parameter of `model` to its free coordinates; the tree keeps its structure.

    A leaf has as many entries as vary freely: K − 1 for K weights of sum one, the packed lower triangle
    for a covariance.

    >>> from ._spaces import simplex
    >>> class Weights(eqx.Module):
    ...     value: Array = parameter(simplex)
    >>> unconstrain(Weights(jnp.ones(4) / 4)).value.tolist()
    [0.0, 0.0, 0.0]
    """

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> Any:
        return (constraint or real).to_free(value) if eqx.is_inexact_array(value) else value

    return _map_fields(model, leaf)


def constrain(free: Tree) -> Tree:
    """Maps a tree made by `unconstrain` back to admissible parameters."""

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> Any:
        return (constraint or real).from_free(value) if eqx.is_inexact_array(value) else value

    return _map_fields(free, leaf)


def compiled_constrain(free: Tree) -> Tree:
    """`constrain` as one program, or none where nothing is constrained: for a model that leaves a fit."""
    constrained = list[AbstractContinuous]()

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> None:
        if constraint is not None and constraint != real and eqx.is_inexact_array(value):
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

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> bool:
        if kept or not eqx.is_inexact_array(value):
            return False
        return constraint != positive or bool(np.any(np.asarray(value) != 0))

    return _map_fields(model, leaf)


def inadmissible(model: Any) -> tuple[AbstractContinuous, Array] | None:
    """The first parameter outside its constraint with that constraint, or None.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> inadmissible(Rate(jnp.array(-1.0)))[0], inadmissible(Rate(jnp.array(1.0)))
    (Positive(shape=None), None)
    """
    found: list[tuple[AbstractContinuous, Array]] = []

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> Any:
        if eqx.is_inexact_array(value) and not kept:
            where, numbers = constraint or real, np.asarray(value)
            if np.isnan(numbers).any() or not where.contains(numbers).all():
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

    >>> from ._spaces import simplex
    >>> class Weights(eqx.Module):
    ...     value: Array = parameter(simplex)
    >>> parameter_count(Weights(jnp.ones(4) / 4))
    3
    """

    def leaf(constraint: AbstractContinuous | None, kept: bool, value: Any) -> int:
        if kept or not eqx.is_inexact_array(value):
            return 0
        return (constraint or real).dimension(value.shape)

    return sum(jax.tree.leaves(_map_fields(model, leaf)))


def parameter_space(model: Tree, learnable: Any = None) -> Tree:
    """What the parameters of `model` can be: its tree, with the space and shape of each learned leaf.

    Args:
        model: any tree of parameters.
        learnable: a tree of booleans as made by `freeze`; by default all that learning may change.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> parameter_space(Rate(jnp.ones(3))).value
    Positive(shape=(3,))
    """
    return _map_fields(
        _partition(model, learnable)[0],
        lambda constraint, _, value: (constraint or real).with_shape(value.shape),
    )


def _partition(model: Tree, mask: Any) -> tuple[Tree, Tree]:
    return eqx.partition(model, learnable(model) if mask is None else mask)


class FreeVector(eqx.Module):
    """The learnable parameters of a model as one vector of free reals, and the way back.

    Attributes:
        values: the vector, with as many entries as the parameters vary in (`parameter_count`).
        fixed: the model without what is learned.
        spaces: where each array that is learned lies.
        dtypes: its type.
        structure: the tree of these arrays.
    """

    values: Array
    fixed: Any
    spaces: tuple[AbstractContinuous, ...] = eqx.field(static=True)
    dtypes: tuple[np.dtype, ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)

    def restore(self, vector: Array) -> tuple[Any, Array]:
        """The model at a vector of free reals, and log |∂parameters/∂vector|.

        A posterior over the parameters, p(θ | x) ∝ p(x; θ) p(θ), has in free reals the energy
        −log p(x; θ) − log p(θ) − log |∂θ/∂vector|.
        """
        free = [u.astype(d) for u, d in zip(split_free(self.spaces, vector), self.dtypes, strict=True)]
        log_det = jnp.zeros((), vector.dtype)
        for space, u in zip(self.spaces, free, strict=True):
            log_det = log_det + space.log_det(u).astype(vector.dtype)
        values = [space.from_free(u) for space, u in zip(self.spaces, free, strict=True)]
        return eqx.combine(jax.tree.unflatten(self.structure, values), self.fixed), log_det


def free_vector(model: Any, learnable: Any = None) -> FreeVector:
    """The learnable parameters of `model` as one vector of free reals without a flat direction.

    Args:
        model: any tree of parameters.
        learnable: a tree of booleans as made by `freeze`; by default all that learning may change.

    >>> class Rate(eqx.Module):
    ...     value: Array = parameter(positive)
    >>> free = free_vector(Rate(jnp.log(jnp.array([2.0, 2.0]))))
    >>> model, log_det = free.restore(free.values + 1)
    >>> free.values.round(6).tolist(), [round(float(v), 4) for v in model.value], round(float(log_det), 4)
    ([0.0, 0.0], [1.3133, 1.3133], -0.6265)
    """
    moving, fixed = _partition(model, learnable)
    leaves, structure = jax.tree.flatten(moving)
    spaces = tuple(jax.tree.leaves(parameter_space(model, learnable)))
    values = join_free([space.to_free(leaf) for space, leaf in zip(spaces, leaves, strict=True)])
    return FreeVector(values, fixed, spaces, tuple(leaf.dtype for leaf in leaves), structure)
