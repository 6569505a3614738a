"""Linear regressions inside of models, on what is known and on what is only expected."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..distributions import AbstractCovariance
from ..inference import root_semidefinite, solve_semidefinite


class Sums(NamedTuple):
    """Sums for the regression of a vector x on z: Σ w, Σ w E[zzᵀ], Σ w E[xzᵀ], Σ w E[xxᵀ]."""

    weight: Array
    zz: Array
    xz: Array
    xx: Array

    def solve(self, held: Array, learned: tuple[bool, ...]) -> Array:
        """The coefficients of least squares, with those columns of `held` that are not learned."""
        free, rest = np.flatnonzero(learned), np.flatnonzero(~np.array(learned))
        if not len(free):
            return held
        left = self.xz[:, free] - held[:, rest] @ self.zz[np.ix_(rest, free)]
        return held.at[:, free].set(solve_semidefinite(self.zz[np.ix_(free, free)], left.T).T)

    def scatter(self, w: Array) -> Array:
        """Σ w E[(x − Wz)(x − Wz)ᵀ]."""
        across = w @ self.xz.T
        full = self.xx - across - across.T + w @ self.zz @ w.T
        return (full + full.T) / 2


def expected_sums(
    weight: Array, x: Array, known: Array, spread: Array, before: Array, z: Array | None, cross: Any = None
) -> Sums:
    """Sums over steps for x on (z, known), with Cov(x) = spread, Cov(z) = before, Cov(z, x) = cross."""
    hidden = 0 if z is None else z.shape[1]
    full = known if z is None else jnp.concatenate([z, known], axis=1)
    weighted = full * weight[:, None]
    zz, xz = weighted.T @ full, x.T @ weighted
    if z is not None:
        zz = zz.at[:hidden, :hidden].add(jnp.einsum("t,tij->ij", weight, before))
        xz = xz.at[:, :hidden].add(jnp.einsum("t,tij->ji", weight, cross))
    xx = (x * weight[:, None]).T @ x + jnp.einsum("t,tij->ij", weight, spread)
    return Sums(jnp.sum(weight), zz, xz, xx)


def fitted_covariance(covariance: AbstractCovariance, sums: Sums, w: Array) -> AbstractCovariance:
    """The covariance of the residual, of the structure that `covariance` has."""
    scatter = sums.scatter(w)
    dim = len(scatter)
    weight = jnp.broadcast_to(jnp.maximum(sums.weight, jnp.finfo(scatter.dtype).tiny), (dim,))
    return covariance.from_moments(weight, jnp.zeros(dim, scatter.dtype), moments_of(covariance, scatter))


def moments_of(covariance: AbstractCovariance, scatter: Array) -> Array:
    """The second moments that `covariance` needs, of vectors whose outer products sum to `scatter`."""
    return jnp.sum(jax.vmap(covariance.second_moments)(root_semidefinite(scatter).T), axis=0)
