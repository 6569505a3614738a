"""Gaussian processes with inducing points, in blocks of rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import linalg
from sklearn.cluster import kmeans_plusplus

from ..._core import Data, Program, Status, on_all, on_device, sum_over_blocks
from ...inference._induced import JITTER, Induced, RowSums, collapsed_bound, root_of_points
from ...kernels import AbstractKernel
from ...models import InducedProcess, InducedValues
from ._kernelled import Climbed, LogParameters, Search, limits_of

# rows of a block, which stay in the cache
_BLOCK = 512
# rows that first points are chosen from
_CANDIDATES = 10_000


def spread_rows(x: np.ndarray, weight: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` rows that are far from each other, by the start of k-means++."""
    if n == len(x):
        return x.copy()
    if len(x) > _CANDIDATES:
        chosen = np.sort(rng.choice(len(x), _CANDIDATES, replace=False, p=weight / weight.sum()))
        x, weight = x[chosen], weight[chosen]
    seed = int(rng.integers(2**31))
    return kmeans_plusplus(x, min(n, len(x)), sample_weight=weight, random_state=seed)[0]


def _row_sums(
    x: Any, weight: Array, kernel: AbstractKernel, points: Array, inverse: Array, *, same: bool
) -> RowSums:
    """What a block of rows adds to what the bound asks of them, with an axis for outputs first.

    With the `same` weights for all outputs, squares are there once.
    """
    rows, answers, weights = x
    weights = weights * weight[:, None]
    white = inverse @ kernel.gram(points, rows)

    def squares(weight: Array) -> Array:
        return (white * weight[None, :]) @ white.T

    return RowSums(
        squares(weights[:, 0])[None] if same else jax.vmap(squares, in_axes=1)(weights),
        (white @ (answers * weights)).T,
        kernel.diagonal(rows) @ weights,
        jnp.sum(weights * answers**2, axis=0),
        jnp.sum(weights, axis=0),
    )


def _row_slopes(
    x: Any,
    weight: Array,
    kernel: AbstractKernel,
    points: Array,
    inverse: Array,
    slopes: RowSums,
    *,
    same: bool,
) -> tuple[AbstractKernel, Array]:
    """What a block of rows adds to the slope of the bound in the kernel and the points, by K_uf alone."""
    rows, answers, weights = x
    weights = weights * weight[:, None]

    def linear(kernel: AbstractKernel, points: Array) -> Array:
        across = kernel.gram(points, rows)
        white = inverse @ jax.lax.stop_gradient(across)

        def change(square: Array, weight: Array) -> Array:
            return (inverse.T @ (square + square.T)) @ (white * weight[None, :])

        if same:
            told = change(slopes.squares[0], weights[:, 0])
        else:
            told = jax.vmap(change, in_axes=(0, 1))(slopes.squares, weights).sum(axis=0)
        told = told + (inverse.T @ slopes.answers.T) @ (answers * weights).T
        return jnp.vdot(told, across) + kernel.diagonal(rows) @ (weights @ slopes.prior)

    return jax.grad(linear, argnums=(0, 1))(kernel, points)


@Program
def _bound(data: Data, kernel: AbstractKernel, points: Array, noise: Array, *, same: bool) -> Any:
    """The bound of all outputs, its slopes in the kernel, the points and σ², and the law of the values.

    The slope is that of the sums over rows times that of each row's part of them, so that nothing is kept
    of a block; the rows are passed twice.
    """
    gram, back = jax.vjp(lambda k, z: k.gram(z), kernel, points)
    root = root_of_points(gram)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(len(root)), lower=True)
    sums = sum_over_blocks(partial(_row_sums, same=same), data, kernel, points, inverse, block=_BLOCK)

    def bound(gram: Array, sums: RowSums, noise: Array) -> tuple[Array, Induced]:
        # one, which says how the sums change with L_uu
        turn = jax.scipy.linalg.solve_triangular(root_of_points(gram), root, lower=True)
        moved = sums._replace(squares=turn @ sums.squares @ turn.T, answers=sums.answers @ turn.T)
        axes = RowSums(None if same else 0, *[0] * 4)  # pyright: ignore[reportArgumentType]
        found = moved._replace(squares=moved.squares[0] if same else moved.squares)
        values, laws = jax.vmap(collapsed_bound, in_axes=(axes, 0))(found, noise)
        return values.sum(), laws

    (value, laws), slopes = jax.value_and_grad(bound, argnums=(0, 1, 2), has_aux=True)(gram, sums, noise)
    rows = sum_over_blocks(
        partial(_row_slopes, same=same), data, kernel, points, inverse, slopes[1], block=_BLOCK
    )
    kernels, places = jax.tree.map(jnp.add, back(slopes[0]), rows)
    return value, laws, (kernels, places, slopes[2])


class Bounds:
    """The bound of rows and answers as a function of parameters and inducing points, and its maximum."""

    def __init__(self, seen: Any, points: np.ndarray) -> None:
        self.seen, self.points = seen, points
        self.same = bool((seen.weights == seen.weights[:, :1]).all())
        self.data = Data.of((seen.x, seen.answers, seen.weights), spread=True)

    def _asked(self, theta: np.ndarray, points: np.ndarray) -> Any:
        given = on_all(self.data.mesh, jax.tree.map(on_device, (*self.seen.parts(theta), points)))
        kernel, noise, places = given
        return jax.device_get(_bound(self.data, kernel, places, noise, same=self.same))

    def bound(self, theta: np.ndarray, points: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound with its slopes in `theta` and the points."""
        value, _, (kernel, places, noise) = self._asked(theta, points)
        logs: LogParameters = self.seen.kernel
        size = len(logs.vector)
        slope = logs.slope(theta[:size], jax.tree.leaves(kernel))
        return float(value), np.concatenate([slope, noise * np.exp(theta[size:])]), places

    def maximise(self, start: np.ndarray, free: np.ndarray, search: Search) -> Climbed:
        """Where the search ends: parameters, of which some are `free`, and points, if the last of it is."""
        place = np.concatenate([start, self.points.ravel()])
        moving = np.repeat(free, [1] * len(start) + [self.points.size])

        def asked(moved: np.ndarray) -> tuple[float, np.ndarray]:
            place[moving] = moved
            value, *slopes = self.bound(*self.parts(place))
            own, own_slope = self.seen.prior.log_density(place[: len(start)])
            slope = np.concatenate([part.ravel() for part in slopes])
            slope[: len(start)] += own_slope
            return value + own, slope[moving]

        if not moving.any():
            return Climbed(place, [-self.bound(*self.parts(place))[0]], Status.CONVERGED)
        anywhere = np.tile([-np.inf, np.inf], (self.points.size, 1))
        limits = np.concatenate([limits_of(start, len(self.seen.kernel.vector)), anywhere])
        found = search.climb(asked, place[moving], limits[moving], self.seen.weights.sum())
        place[moving] = found.place
        return found._replace(place=place)

    def parts(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parameters and points."""
        theta, points = np.split(place, [len(place) - self.points.size])
        return theta, points.reshape(self.points.shape)

    def model(self, theta: np.ndarray, points: np.ndarray) -> tuple[InducedProcess, float]:
        """The law of the values at the points, and the bound."""
        kernel, noise = self.seen.parts(theta)
        value, laws, _ = self._asked(theta, points)
        made = jax.tree.map(on_device, kernel)
        values = InducedValues(made, *map(on_device, (points, laws.mean.T, laws.root)))
        return InducedProcess(values, on_device(noise)), float(value)


class SparseProcess:
    """f given the law of its values at inducing points, on the host.

    Attributes:
        model: `freeenergy.models.InducedValues`.
    """

    def __init__(self, model: InducedValues) -> None:
        self.model, self.points = model, np.asarray(model.points)
        gram = model.kernel.gram(self.points)
        more = JITTER * np.trace(gram) / len(gram) * np.eye(len(gram))
        self.outer = np.linalg.cholesky(gram + more)
        self.mean, self.roots = np.asarray(model.mean), np.asarray(model.root)

    @property
    def size(self) -> int:
        """With how many rows a row is compared."""
        return len(self.points)

    def _white(self, z: np.ndarray) -> np.ndarray:
        across = self.model.kernel.gram(self.points, z)
        return linalg.solve_triangular(self.outer, across, lower=True, check_finite=False)

    def at(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and variance of f, (rows, outputs)."""
        white, prior = self._white(z), self.model.kernel.diagonal(z)
        rest = prior - (white**2).sum(axis=0)
        halves = [linalg.solve_triangular(root, white, lower=True) for root in self.roots]
        variance = np.stack([rest + (half**2).sum(axis=0) for half in halves], axis=1)
        # a variance next to zero has rounding below it
        return white.T @ self.mean, np.maximum(variance, 0.0)

    def together(self, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The mean and covariance of the values at all rows, for each output."""
        white, prior = self._white(z), self.model.kernel.gram(z)
        halves = [linalg.solve_triangular(root, white, lower=True) for root in self.roots]
        rest = prior - white.T @ white
        return [
            (white.T @ mean, rest + half.T @ half) for mean, half in zip(self.mean.T, halves, strict=True)
        ]
