"""Eliminating an unknown by its value of least energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array


class Minimum(NamedTuple):
    """Where an energy is least.

    Attributes:
        point: the minimiser.
        energy: the energy there.
        converged: whether `point` is known to be a minimum (of the given points, or a stationary one).
    """

    point: Any
    energy: Array
    converged: Array


def argmin_over_points(energy: Callable[[Any], Array], points: Any) -> Minimum:
    """The first of `points` (along the leading axis) with the least energy.

    >>> argmin_over_points(lambda z: (z - 2.2) ** 2, jnp.arange(5.0)).point.item()
    2.0
    """
    energies = jax.vmap(energy)(points)
    best = jnp.argmin(energies)
    return Minimum(jax.tree.map(lambda a: a[best], points), energies[best], jnp.ones((), bool))


class _Search(NamedTuple):
    point: Any
    value: Array
    gradient: Any
    optimiser: Any
    count: Array


def argmin_by_gradient(
    energy: Callable[[Any], Array], start: Any, *, tol: float = 1e-6, max_steps: int = 200
) -> Minimum:
    """A local minimum of a smooth energy by L-BFGS with a zoom line search.

    Args:
        energy: a scalar function of a tree of floating-point arrays.
        start: where to begin.
        tol: the norm of the gradient at which the search has converged.
        max_steps: the most steps to take.

    >>> found = argmin_by_gradient(lambda z: jnp.sum((z - 1) ** 4 + z**2), jnp.zeros(2))
    >>> [round(float(v), 6) for v in found.point], bool(found.converged)
    ([0.410245, 0.410245], True)
    """
    optimiser = optax.lbfgs()
    value_and_gradient = jax.value_and_grad(energy)

    def converged(search: _Search) -> Array:
        return optax.tree.norm(search.gradient) <= tol

    def proceed(search: _Search) -> Array:
        healthy = jnp.isfinite(search.value) & jnp.isfinite(optax.tree.norm(search.gradient))
        return (search.count < max_steps) & healthy & ~converged(search)

    def step(search: _Search) -> _Search:
        # Optax mixes integer widths, which a caller may have forbidden
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimiser.update(
                search.gradient,
                search.optimiser,
                search.point,
                value=search.value,
                grad=search.gradient,
                value_fn=energy,
            )
        point = optax.apply_updates(search.point, updates)
        return _Search(point, *value_and_gradient(point), state, search.count + 1)

    first = _Search(start, *value_and_gradient(start), optimiser.init(start), jnp.zeros((), jnp.int32))
    last = jax.lax.while_loop(proceed, step, first)
    return Minimum(last.point, last.value, converged(last))
