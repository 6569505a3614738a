"""Starts for models with clusters or components: where the first centres are.

A start is an object passed as `init=`; it gives centres for rescaled rows, from which the estimator
makes its first model.
"""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import Data


class AbstractStart(eqx.Module):
    """Gives `n` centres among rescaled rows."""

    @abc.abstractmethod
    def __call__(self, data: Data, n: int, *, key: Array) -> Array:
        """Centres, a row each."""


class PlusPlus(AbstractStart):
    """k-means++: each centre is a row drawn with probability ∝ weight × distance² to the former ones.

    Of 2 + log n candidates per centre the one that lowers the summed distance most is taken.
    """

    def __call__(self, data: Data, n: int, *, key: Array) -> Array:
        return _plus_plus(data, n, 2 + int(math.log(n)), key)


class RandomRows(AbstractStart):
    """Centres are rows drawn with probability ∝ weight, without repetition where possible."""

    def __call__(self, data: Data, n: int, *, key: Array) -> Array:
        return _random_rows(data, n, key)


def _distances(x: Array, points: Array) -> Array:
    """Squared distance of every row to each point, over coordinates observed in both."""
    known = ~jnp.isnan(x)
    filled = jnp.where(known, x, 0)
    seen = (~jnp.isnan(points)).astype(x.dtype)
    values = jnp.where(jnp.isnan(points), 0, points)
    mask = known.astype(x.dtype)
    cross = filled @ values.T
    d2 = (filled**2) @ seen.T - 2 * cross + mask @ (values**2).T
    return jnp.maximum(d2, 0)


def _complete(points: Array) -> Array:
    # data are rescaled: the mean of a column is zero
    return jnp.where(jnp.isnan(points), 0, points)


@eqx.filter_jit
def _plus_plus(data: Data, n: int, trials: int, key: Array) -> Array:
    x, w = data.x, data.weight

    def draw(key: Array, mass: Array, count: int) -> Array:
        cumulative = jnp.cumsum(mass)
        u = jax.random.uniform(key, (count,), x.dtype) * cumulative[-1]
        return jnp.clip(jnp.searchsorted(cumulative, u, side="right"), 0, data.rows - 1)

    first = x[draw(jax.random.fold_in(key, 0), w, 1)[0]]
    centres = jnp.zeros((n, x.shape[1]), x.dtype).at[0].set(first)
    nearest = _distances(x, first[None])[:, 0]

    def body(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        centres, nearest = carry
        mass = w * nearest
        # every row sits on a centre already: any row will do
        mass = jnp.where(jnp.sum(mass) > 0, mass, w)
        candidates = x[draw(jax.random.fold_in(key, i), mass, trials)]
        after = jnp.minimum(nearest[:, None], _distances(x, candidates))
        best = jnp.argmin(w @ after)
        return centres.at[i].set(candidates[best]), after[:, best]

    centres, _ = jax.lax.fori_loop(1, n, body, (centres, nearest))
    return _complete(centres)


@eqx.filter_jit
def _random_rows(data: Data, n: int, key: Array) -> Array:
    # the n largest perturbed log-weights are a weighted draw without repetition
    race = jnp.log(data.weight) + jax.random.gumbel(key, data.weight.shape, data.weight.dtype)
    size = min(n, data.size)
    index = jax.lax.top_k(race, size)[1]
    index = index[jnp.arange(n, dtype=data.rows.dtype) % jnp.minimum(size, data.rows)]
    return _complete(data.x[index])


def at_known(centres: np.ndarray, x: np.ndarray, share: np.ndarray) -> np.ndarray:
    """`centres` with those of which something is known at the mean of it, in place of the nearest.

    Args:
        centres: a row per cluster, as a start gives them.
        x: rescaled rows.
        share: how much of each row is known to belong to each cluster.
    """
    centres = np.array(centres)
    seen = ~np.isnan(x)
    mass = share.T @ seen
    total = share.T @ np.where(seen, x, 0.0)
    # data are rescaled: the mean of a column is zero
    means = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
    free = np.ones(len(centres), bool)
    for k in np.flatnonzero(share.sum(axis=0) > 0):
        gaps = np.where(free, ((centres - means[k]) ** 2).sum(axis=1), np.inf)
        centres[np.argmin(gaps)] = centres[k]
        centres[k], free[k] = means[k], False
    return centres
