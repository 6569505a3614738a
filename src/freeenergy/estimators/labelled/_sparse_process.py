"""Gaussian processes with inducing points, in blocks of rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import linalg
from sklearn.cluster import kmeans_plusplus

from ..._core import Status, on_device
from ...inference._induced import JITTER, Induced, RowSums, collapsed_bound
from ...kernels import AbstractKernel
from ...models import InducedProcess, InducedValues
from ._kernelled import Climbed, LogParameters, climb, limits_of

# rows of a block
_BLOCK = 2048
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


@jax.jit
def _bound_slopes(gram: Array, sums: RowSums, noise: Array) -> Any:
    """The bound of all outputs, its slopes in K_uu, the sums and σ², and the law of the values."""

    def bound(gram: Array, sums: RowSums, noise: Array) -> tuple[Array, Induced]:
        values, laws = jax.vmap(lambda *output: collapsed_bound(gram, *output))(sums, noise)
        return values.sum(), laws

    return jax.value_and_grad(bound, argnums=(0, 1, 2), has_aux=True)(gram, sums, noise)


@jax.jit
def _block_slopes(
    kernel: AbstractKernel, points: Array, x: Array, y: Array, weight: Array, slopes: RowSums
) -> tuple[AbstractKernel, Array]:
    """What a block of rows adds to the slope of the bound in the kernel and the points."""

    def linear(kernel: AbstractKernel, points: Array) -> Array:
        across = kernel.gram(points, x)
        fixed = jax.lax.stop_gradient(across)

        def output(square: Array, answer: Array, y: Array, weight: Array) -> Array:
            return ((square + square.T) @ fixed + answer[:, None] * y[None, :]) * weight[None, :]

        change = jax.vmap(output, in_axes=(0, 0, 1, 1))(slopes.squares, slopes.answers, y, weight)
        return jnp.vdot(change.sum(axis=0), across) + kernel.diagonal(x) @ (weight @ slopes.prior)

    return jax.grad(linear, argnums=(0, 1))(kernel, points)


@jax.jit
def _points_slopes(kernel: AbstractKernel, points: Array, slope: Array) -> tuple[AbstractKernel, Array]:
    """The slope through K_uu."""
    return jax.grad(lambda k, z: jnp.vdot(slope, k.gram(z)), argnums=(0, 1))(kernel, points)


class Bounds:
    """The bound of rows and answers as a function of parameters and inducing points, and its maximum."""

    def __init__(self, seen: Any, points: np.ndarray) -> None:
        self.seen, self.points = seen, points
        self.same = bool((seen.weights == seen.weights[:, :1]).all())
        size = min(_BLOCK, 1 << max(len(seen.x) - 1, 127).bit_length())
        self.blocks = []
        for start in range(0, len(seen.x), size):
            part = [a[start : start + size] for a in (seen.x, seen.answers, seen.weights)]
            # rows without weight fill the last block
            room = size - len(part[0])
            self.blocks.append([np.pad(a, ((0, room), (0, 0))) if room else a for a in part])

    def sums(self, kernel: AbstractKernel, points: np.ndarray) -> RowSums:
        """What the bound asks of the rows, with an axis for outputs first."""
        seen, size = self.seen, len(points)
        outputs = seen.answers.shape[1]
        squares = np.zeros((outputs, size, size))
        answers, prior = np.zeros((outputs, size)), np.zeros(outputs)
        for x, y, weight in self.blocks:
            across = kernel.gram(x, points)
            answers += (y * weight).T @ across
            prior += kernel.diagonal(x) @ weight
            for output in range(1 if self.same else outputs):
                rooted = across * np.sqrt(weight[:, [output]])
                squares[output] += rooted.T @ rooted
        if self.same:
            squares[:] = squares[0]
        total = (seen.weights * seen.answers**2).sum(axis=0)
        return RowSums(squares, answers, prior, total, seen.weights.sum(axis=0))  # pyright: ignore[reportArgumentType]

    def bound(self, theta: np.ndarray, points: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound with its slopes in `theta` and the points."""
        kernel, noise = self.seen.parts(theta)
        (value, _), (gram, sums, noises) = _bound_slopes(
            kernel.gram(points), self.sums(kernel, points), noise
        )
        parts = [_points_slopes(kernel, points, gram)]  # pyright: ignore[reportArgumentType]
        parts += [_block_slopes(kernel, points, *block, sums) for block in self.blocks]  # pyright: ignore[reportArgumentType]
        logs: LogParameters = self.seen.kernel
        size = len(logs.vector)
        slope = np.sum([logs.slope(theta[:size], jax.tree.leaves(own)) for own, _ in parts], axis=0)
        moved = np.sum([np.asarray(own) for _, own in parts], axis=0)
        return float(value), np.concatenate([slope, np.asarray(noises) * noise]), moved

    def maximise(self, start: np.ndarray, free: np.ndarray, max_iter: int, tol: float) -> Climbed:
        """Where the search ends: parameters, of which some are `free`, and points, if the last of it is."""
        place = np.concatenate([start, self.points.ravel()])
        moving = np.repeat(free, [1] * len(start) + [self.points.size])

        def asked(moved: np.ndarray) -> tuple[float, np.ndarray]:
            place[moving] = moved
            value, *slopes = self.bound(*self._parts(place, len(start)))
            own, own_slope = self.seen.prior.log_density(place[: len(start)])
            slope = np.concatenate([part.ravel() for part in slopes])
            slope[: len(start)] += own_slope
            return value + own, slope[moving]

        if not moving.any():
            return Climbed(place, [-self.bound(*self._parts(place, len(start)))[0]], Status.CONVERGED)
        anywhere = np.tile([-np.inf, np.inf], (self.points.size, 1))
        limits = np.concatenate([limits_of(start, len(self.seen.kernel.vector)), anywhere])
        found = climb(asked, place[moving], limits[moving], self.seen.weights.sum(), max_iter, tol)
        place[moving] = found.place
        return found._replace(place=place)

    def _parts(self, place: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        return place[:size], place[size:].reshape(self.points.shape)

    def model(self, theta: np.ndarray, points: np.ndarray) -> tuple[InducedProcess, float]:
        """The law of the values at the points, and the bound."""
        kernel, noise = self.seen.parts(theta)
        (value, laws), _ = _bound_slopes(kernel.gram(points), self.sums(kernel, points), noise)
        made = jax.tree.map(on_device, kernel)
        mean = on_device(np.asarray(laws.mean).T)
        values = InducedValues(made, on_device(points), mean, laws.root)
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
