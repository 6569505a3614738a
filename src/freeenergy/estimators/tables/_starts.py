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

from ..._core import (
    Data,
    Program,
    fold_key,
    has_nan,
    on_all,
    on_device,
    on_one,
    sum_over_blocks,
    uniform_on_host,
)
from ...distributions import AbstractExponentialFamily, component_axes
from ...models import Clusters, Mixture, Supervised
from ...models._mixture import MixtureStatistics, infer, rows_and_shares
from ...shell import Rows, Scaling

LLOYD_STEPS = 10


class AbstractStart(eqx.Module):
    """Gives `n` centres among rescaled rows."""

    @abc.abstractmethod
    def __call__(self, rows: Rows, n: int, *, key: Array) -> np.ndarray:
        """Centres, a row each."""


class PlusPlus(AbstractStart):
    """k-means++: each centre is a row drawn with probability ∝ weight × distance² to the former ones.

    Of 2 + log n candidates per centre the one that lowers the summed distance most is taken.
    """

    def __call__(self, rows: Rows, n: int, *, key: Array) -> np.ndarray:
        distances = _Distances(rows.x)
        trials = 2 + int(math.log(n))
        centres = rows.x[_draw(rows.weight, 1, fold_key(key, 0))]
        nearest = distances(centres)[:, 0]
        for i in range(1, n):
            mass = rows.weight * nearest
            # if every row sits on a centre already, any row will do
            chosen = _draw(mass if mass.any() else rows.weight, trials, fold_key(key, i))
            after = np.minimum(distances(rows.x[chosen]), nearest[:, None])
            best = np.argmin(rows.weight @ after)
            centres = np.concatenate([centres, rows.x[chosen[best], None]])
            nearest = after[:, best]
        return _complete(centres)


class RandomRows(AbstractStart):
    """Centres are rows drawn with probability ∝ weight, without repetition where possible."""

    def __call__(self, rows: Rows, n: int, *, key: Array) -> np.ndarray:
        # the n largest perturbed log-weights are a weighted draw without repetition
        with np.errstate(divide="ignore"):
            race = np.log(rows.weight) - np.log(-np.log(uniform_on_host(key, len(rows.x))))
        order = np.argsort(-race, kind="stable")
        return _complete(rows.x[order[np.arange(n) % len(order)]])


class _Distances:
    """Squared distances of rows to points, over coordinates observed in both."""

    def __init__(self, x: np.ndarray) -> None:
        self.known = ~np.isnan(x) if has_nan(x) else None
        self.x = x if self.known is None else np.where(self.known, x, 0.0)
        self.squares = np.einsum("ij,ij->i", x, x)[:, None] if self.known is None else self.x**2

    def __call__(self, points: np.ndarray) -> np.ndarray:
        if self.known is None:
            d2 = self.x @ (-2 * points.T)
            d2 += self.squares
            d2 += np.sum(points**2, axis=1)
        else:
            seen = ~np.isnan(points)
            values = np.where(seen, points, 0.0)
            d2 = self.squares @ seen.T - 2 * (self.x @ values.T) + self.known @ (values**2).T
        return np.maximum(d2, 0.0, out=d2)


def _draw(mass: np.ndarray, n: int, key: Array) -> np.ndarray:
    """`n` numbers of rows, with probability ∝ `mass`."""
    cumulative = np.cumsum(mass)
    places = np.searchsorted(cumulative, uniform_on_host(key, n) * cumulative[-1], side="right")
    return np.minimum(places, len(mass) - 1)


def _complete(points: np.ndarray) -> np.ndarray:
    # data are rescaled: the mean of a column is zero
    return np.nan_to_num(points)


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
    centres: np.ndarray,
    near: Scaling,
    lloyd_steps: int,
) -> Mixture:
    """One M step from the nearest centre of each row (or what is known), after some k-means steps.

    Distances are taken between rows rescaled by `near`.
    """
    rows = data.spread()
    numbers = *map(on_device, (centres, *near)), on_device(lloyd_steps, np.int32)
    return on_one(_start_model(rows, *on_all(rows.mesh, (prototype, *numbers))))


@Program
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
