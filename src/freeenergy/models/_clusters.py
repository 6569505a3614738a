"""Clusters: the zero-temperature limit of a mixture of spherical Gaussians."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import Categories, boltzmann, least, parameter
from ..inference import Finite
from ._base import AbstractExactPosterior, AbstractExpectationMaximisation


class ClusterStatistics(NamedTuple):
    """For each cluster: Σ w r x, Σ w r of the observed entries, Σ w r of the rows."""

    totals: Array
    counts: Array
    mass: Array


def _by_rows(a: Array, b: Array) -> Array:
    """a bᵀ without a copy of bᵀ."""
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())))


class Clusters(AbstractExpectationMaximisation[ClusterStatistics], AbstractExactPosterior):
    """e(x, z=k) = ‖x − μ_k‖², over the observed coordinates.

    Under EM at temperature zero this is k-means; at a positive temperature T its responsibilities are
    those of a mixture of equally likely Gaussians of variance T/2.

    Attributes:
        centroids: μ, a row each.
        relative: whether `expect` leaves ‖x‖² out of free energies: it is the same for every μ, and need
            not be summed in each of many passes over the same rows.

    >>> model = Clusters(jnp.array([[0.0], [4.0]]))
    >>> model.energies(jnp.array([1.0])).tolist()
    [1.0, 9.0]
    """

    centroids: Array = parameter()
    relative: bool = eqx.field(static=True, default=False)

    # so few stay in the cache with their distances to some tens of centroids
    rows_at_once: ClassVar[int] = 512

    def energies(self, x: Array) -> Array:
        """‖x − μ_k‖² for every k."""
        gap = jnp.where(jnp.isnan(x)[None, :], 0, x[None, :] - self.centroids)
        return jnp.sum(gap**2, axis=1)

    def energy(self, x: Array, z: Array) -> Array:
        """‖x − μ_z‖²."""
        return self.energies(x)[jnp.asarray(z, int)]

    def latent(self, x: Array) -> Categories:
        """z, the number of the cluster."""
        return Categories(len(self.centroids))

    def posterior(self, x: Array) -> Finite:
        """p(z | x) ∝ exp(−‖x − μ_z‖²), at temperature one."""
        return Finite(boltzmann(self.energies(x))[1])

    def distances(self, x: Array) -> Array:
        """‖x − μ_k‖ for every k; the squares of the parts of the largest gap do not overflow."""
        gap = jnp.where(jnp.isnan(x)[None, :], 0, x[None, :] - self.centroids)
        size = jnp.max(jnp.abs(gap))
        size = jnp.where(size > 0, size, 1)
        return size * jnp.sqrt(jnp.sum((gap / size) ** 2, axis=1))

    def nearest(self, x: Array, *, incomplete: bool) -> tuple[Array, Array]:
        """The number of the nearest centroid and the squared distance to it."""
        filled = x
        if incomplete:
            known = ~jnp.isnan(x)
            filled = jnp.where(known, x, 0)
            squares = self.centroids**2 @ known.astype(x.dtype)
        else:
            squares = jnp.sum(self.centroids**2, axis=1)
        relative = squares - 2 * self.centroids @ filled
        k = jnp.argmin(relative)
        gap = filled - self.centroids[k]
        return k, jnp.sum((jnp.where(known, gap, 0) if incomplete else gap) ** 2)

    def relative_energies(self, x: Array, *, incomplete: bool) -> Array:
        """‖x − μ_k‖² − ‖x‖² of many rows: a row for each k, a column for each row of `x`, by one product.

        So the least of them is found along contiguous numbers.
        """
        centroids = self.centroids.astype(x.dtype)
        filled = jnp.where(jnp.isnan(x), 0, x) if incomplete else x
        relative = _by_rows(-2 * centroids, filled)
        if incomplete:
            return relative + _by_rows(centroids**2, (~jnp.isnan(x)).astype(x.dtype))
        return relative + jnp.sum(centroids**2, axis=1)[:, None]

    def prepare(self) -> None:
        return None

    def expect_prepared(
        self, prepared: None, x: Array, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[ClusterStatistics, Array]:
        """`expect`; rows may have fewer bits than the centroids, in whose bits their blocks are summed."""
        filled = jnp.where(jnp.isnan(x), 0, x) if incomplete else x
        relative = self.relative_energies(x, incomplete=incomplete)

        def warm(relative: Array) -> tuple[Array, Array, Array]:
            return *boltzmann(relative, temperature, axis=0), weight

        def cold(relative: Array) -> tuple[Array, Array, Array]:
            # what divides ties goes to the weights, of which there are fewer
            low = jnp.min(relative, axis=0)
            ties = (relative <= low[None]).astype(x.dtype)
            # `least` never finds none, and takes longer
            found = jnp.all(jnp.sum(ties, axis=0) > 0)
            ties = jax.lax.cond(found, lambda: ties, lambda: least(relative, axis=0).astype(x.dtype))
            return low, ties, weight / jnp.sum(ties, axis=0)

        free, r, share = jax.lax.cond(temperature > 0, warm, cold, relative)
        # and these to the coordinates, which are fewer than the clusters or not many more
        shared = filled * share[:, None]
        mass = r @ share
        counts = r @ jnp.where(jnp.isnan(x), 0, share[:, None]) if incomplete else mass[:, None]
        cost = weight @ free
        if not self.relative:
            cost = cost + jnp.sum(filled * filled * weight[:, None])
            # distances are not negative, but what rounding leaves of them may be; a warm free energy is
            cost = jnp.where(temperature > 0, cost, jnp.maximum(cost, 0))
        sums = (ClusterStatistics(r @ shared, counts, mass), cost)
        return jax.tree.map(lambda a: a.astype(self.centroids.dtype), sums)

    def maximise(self, statistics: ClusterStatistics) -> Clusters:
        seen = statistics.counts > 0
        means = statistics.totals / jnp.where(seen, statistics.counts, 1)
        return Clusters(jnp.where(seen, means, self.centroids), self.relative)
