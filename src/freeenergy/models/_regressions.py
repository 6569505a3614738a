"""Linear regressions inside of models, on what is known and on what is only expected."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..distributions import AbstractCovariance
from ..inference import root_semidefinite, solve_semidefinite


class Sums(NamedTuple):
    """Sums for the regression of a vector x on z: Σ w, Σ w E[zzᵀ], Σ w E[xzᵀ], Σ w E[xxᵀ]."""

    weight: Float[Array, "*states"]
    zz: Float[Array, "*states known known"]
    xz: Float[Array, "*states dim known"]
    xx: Float[Array, "*states dim dim"]

    def solve(
        self, held: Float[Array, "dim known"], learned: tuple[bool, ...]
    ) -> Float[Array, "dim known"]:
        """The coefficients of least squares, with those columns of `held` that are not learned."""
        free, rest = np.flatnonzero(learned), np.flatnonzero(~np.array(learned))
        if not len(free):
            return held
        left = self.xz[:, free] - held[:, rest] @ self.zz[np.ix_(rest, free)]
        return held.at[:, free].set(solve_semidefinite(self.zz[np.ix_(free, free)], left.T).T)

    def scatter(self, w: Float[Array, "dim known"]) -> Float[Array, "dim dim"]:
        """Σ w E[(x − Wz)(x − Wz)ᵀ]."""
        across = w @ self.xz.T
        full = self.xx - across - across.T + w @ self.zz @ w.T
        return (full + full.T) / 2


def expected_sums(
    weight: Float[Array, " time"],
    x: Float[Array, "time dim"],
    known: Float[Array, "time given"],
    spread: Float[Array, "time dim dim"],
    before: Float[Array, "time hidden hidden"],
    z: Float[Array, "time hidden"] | None,
    cross: Float[Array, "time hidden dim"] | None = None,
) -> Sums:
    """Sums over steps for x on (z, known), with Cov(x) = spread, Cov(z) = before, Cov(z, x) = cross."""
    hidden = 0 if z is None else z.shape[1]
    full = known if z is None else jnp.concatenate([z, known], axis=1)
    weighted = full * weight[:, None]
    zz, xz = weighted.T @ full, x.T @ weighted
    if z is not None and cross is not None:
        zz = zz.at[:hidden, :hidden].add(jnp.einsum("t,tij->ij", weight, before))
        xz = xz.at[:, :hidden].add(jnp.einsum("t,tij->ji", weight, cross))
    xx = (x * weight[:, None]).T @ x + jnp.einsum("t,tij->ij", weight, spread)
    return Sums(jnp.sum(weight), zz, xz, xx)


def fitted_covariance(
    covariance: AbstractCovariance, sums: Sums, w: Float[Array, "dim known"]
) -> AbstractCovariance:
    """The covariance of the residual, of the structure that `covariance` has."""
    scatter = sums.scatter(w)
    dim = len(scatter)
    weight = jnp.broadcast_to(jnp.maximum(sums.weight, jnp.finfo(scatter.dtype).tiny), (dim,))
    return covariance.from_moments(weight, jnp.zeros(dim, scatter.dtype), moments_of(covariance, scatter))


def moments_of(covariance: AbstractCovariance, scatter: Float[Array, "dim dim"]) -> Float[Array, "*shape"]:
    """The second moments that `covariance` needs, of vectors whose outer products sum to `scatter`."""
    return jnp.sum(jax.vmap(covariance.second_moments)(root_semidefinite(scatter).T), axis=0)
