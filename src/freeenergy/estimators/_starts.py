"""Starts for models with clusters or components: where the first centres are.

A start is an object passed as `init=`; it gives centres for rescaled rows, from which the estimator
makes its first model: for mixtures by `start_model`.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import Data, on_all, on_one, sum_over_blocks
from ..distributions import AbstractExponentialFamily, component_axes
from ..models import Clusters, Mixture, Supervised
from ..models._mixture import MixtureStatistics, infer, rows_and_shares

LLOYD_STEPS = 10


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


def start_model(
    prototype: AbstractExponentialFamily,
    data: Data,
    centres: Array,
    shift: Array,
    scale: Array,
    lloyd_steps: Array,
) -> Mixture:
    """One M step from the nearest centre of each row (or what is known), after some k-means steps.

    Distances are taken between rows rescaled by `shift` and `scale`.
    """
    rows = data.spread()
    given = on_all(rows.mesh, (prototype, centres, shift, scale, lloyd_steps))
    return on_one(_start_model(rows, *given))


@eqx.filter_jit
def _start_model(
    data: Data,
    prototype: AbstractExponentialFamily,
    centres: Array,
    shift: Array,
    scale: Array,
    lloyd_steps: Array,
) -> Mixture:
    units = shift[None], scale[None]

    def lloyd(_: int, clusters: Clusters) -> Clusters:
        def block(x: Array | Supervised, w: Array, clusters: Clusters, shift: Array, scale: Array) -> Any:
            z = (rows_and_shares(x)[0] - shift) / scale
            cold = jnp.zeros(())
            return clusters.expect(z, w, temperature=cold, incomplete=data.incomplete)[0]

        sums = sum_over_blocks(block, data, clusters, *units, block=Clusters.rows_at_once)
        return clusters.maximise(sums)

    clusters = jax.lax.fori_loop(0, lloyd_steps, lloyd, Clusters(centres))

    def block(
        x: Array | Supervised,
        w: Array,
        prototype: AbstractExponentialFamily,
        clusters: Clusters,
        shift: Array,
        scale: Array,
    ) -> MixtureStatistics:
        rows, shares = rows_and_shares(x)
        energies = clusters.relative_energies((rows - shift) / scale, incomplete=data.incomplete)
        r = infer(energies, None if shares is None else shares.T, 0.0, axis=0)[1] * w[None]
        filled = rows if prototype.masks_missing else jnp.where(jnp.isnan(rows), shift, rows)
        features = jax.vmap(prototype.features, out_axes=1)(filled)
        return MixtureStatistics(jnp.sum(r, axis=1), r @ features.T)

    counts, features = sum_over_blocks(block, data, prototype, clusters, *units)
    everything = jnp.sum(features, axis=0)
    # a little of the whole in every part keeps lone or empty clusters regular
    share = 1e-3 * counts.sum() / len(counts)
    features = features + share / counts.sum() * everything[None]
    weights = (counts + share) / jnp.sum(counts + share)
    stack = jax.tree.map(
        lambda axis, a: a if axis is None else jnp.broadcast_to(a, (len(counts), *a.shape)),
        component_axes(prototype),
        prototype,
        is_leaf=lambda a: a is None,
    )
    return Mixture(weights, stack.from_features(features))
