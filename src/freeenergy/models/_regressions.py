"""Linear regressions inside of models, on what is known and on what is only expected; and their starts."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .._core import generator
from ..distributions import AbstractCovariance
from ..inference._semidefinite import root_semidefinite, solve_semidefinite


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

    def fit(
        self,
        held: Float[Array, "dim known"],
        learned: tuple[bool, ...],
        covariance: AbstractCovariance,
        learned_covariance: bool,
    ) -> tuple[Float[Array, "dim known"], AbstractCovariance]:
        """Coefficients as `solve` gives them, and the covariance of the residuals unless it is held."""
        w = self.solve(held, learned)
        return w, fitted_covariance(covariance, self, w) if learned_covariance else covariance

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


def completed(
    C: Float[Array, "dim state"],
    c: Float[Array, " dim"],
    R: Float[Array, "dim dim"],
    y: Float[Array, " dim"],
) -> tuple[Float[Array, "dim state"], Float[Array, " dim"], Float[Array, "dim dim"]]:
    """y given x and its observed entries: y = G x + g + e, e ~ N(0, rest)."""
    seen = ~jnp.isnan(y)
    both = seen[:, None] & seen[None, :]
    observed = jnp.where(both, R, jnp.diag(jnp.where(seen, 0, jnp.ones_like(y))))
    # entries that are missing on those that are not
    across = jnp.where(~seen[:, None] & seen[None, :], R, 0)
    gain = solve_semidefinite(observed, across.T).T
    hidden = (~seen).astype(C.dtype)
    G = hidden[:, None] * (C - gain @ C)
    g = jnp.where(seen, jnp.where(seen, y, 0), c + gain @ jnp.where(seen, y - c, 0))
    rest = jnp.where(~seen[:, None] & ~seen[None, :], R, 0) - gain @ across.T
    return G, g, rest


def covariance_like(structure: AbstractCovariance, matrix: Float[Array, "dim dim"]) -> AbstractCovariance:
    """A covariance of the structure that `structure` has, with the values of a matrix."""
    dim = len(matrix)
    return structure.from_moments(jnp.ones(dim), jnp.zeros(dim), moments_of(structure, matrix))


class Clusterwise(NamedTuple):
    """Several regressions, and which of them explains each row.

    Attributes:
        coefficients: W of each regression.
        owner: the number of the regression that explains a row best.
        covariance: of the residuals from these.
    """

    coefficients: Float[np.ndarray, "states dim known"]
    owner: Int[np.ndarray, " rows"]
    covariance: Float[np.ndarray, "dim dim"]


def clusterwise_regressions(
    y: Float[np.ndarray, "rows dim"],
    z: Float[np.ndarray, "rows known"],
    weight: Float[np.ndarray, " rows"],
    size: int,
    steps: int,
    *,
    key: Array,
) -> Clusterwise:
    """Regressions of y on z, and which of them explains each row best: k-means with lines for centres.

    The first explains a stretch of rows in a row, the next ones stretches that those before explain badly;
    then rows and regressions choose each other in turn, `steps` times.  On the host, as a start.

    Also known as clusterwise linear regression (Späth), or k-planes.
    """
    rng = generator(key)
    whole = ridge_regression(y, z, weight, np.zeros((y.shape[1], z.shape[1])), 1e-6)
    reach = max(2 * z.shape[1], len(y) // (8 * size), 4)
    W, gaps = np.empty((0, *whole.shape)), np.ones(len(y))
    for _ in range(size):
        total = (weight * gaps).sum()
        middle = rng.choice(len(y), p=weight * gaps / total if total > 0 else None)
        part = slice(max(middle - reach, 0), middle + reach)
        # what a stretch does not say is as in the whole
        fresh = ridge_regression(y[part], z[part], weight[part], whole, 1.0)
        W = np.concatenate([W, fresh[None]])
        gaps = _misfits(y, z, W).min(axis=1)
    for _ in range(steps):
        owner = _misfits(y, z, W).argmin(axis=1)
        W = np.stack([ridge_regression(y, z, weight * (owner == k), W[k], 1e-3) for k in range(size)])
    owner = _misfits(y, z, W).argmin(axis=1)
    rest = y - np.einsum("nda,na->nd", W[owner], z)
    return Clusterwise(W, owner, (rest * weight[:, None]).T @ rest / weight.sum())


def _misfits(
    y: Float[np.ndarray, "rows dim"],
    z: Float[np.ndarray, "rows known"],
    W: Float[np.ndarray, "states dim known"],
) -> Float[np.ndarray, "rows states"]:
    """The squared residual of each row under each regression."""
    return ((y[:, None] - np.einsum("kda,na->nkd", W, z)) ** 2).sum(axis=2)


def ridge_regression(
    y: Float[np.ndarray, "rows dim"],
    z: Float[np.ndarray, "rows known"],
    weight: Float[np.ndarray, " rows"],
    near: Float[np.ndarray, "dim known"],
    ridge: float,
) -> Float[np.ndarray, "dim known"]:
    """Coefficients of weighted least squares, drawn towards `near`; on the host."""
    weighted = z * weight[:, None]
    left = weighted.T @ z + ridge * np.eye(z.shape[1])
    return near + np.linalg.solve(left, weighted.T @ (y - z @ near.T)).T


def driven_regression(
    series: list[Float[np.ndarray, "time dim"]],
    inputs: list[Float[np.ndarray, "time inputs"]],
    weight: Float[np.ndarray, " rows"],
    loading: Float[np.ndarray, "dim state"],
) -> tuple[
    Float[np.ndarray, "state state"], Float[np.ndarray, "state inputs"], Float[np.ndarray, "dim inputs"]
]:
    """A, B and D of a linear system by least squares, where its states are nearly seen; on the host.

    The components s of the values along the loading are s = x + D′u with D = loading D′.  Such
    s_t = A s_{t−1} + (B + D′) u_t − A D′ u_{t−1} + …, a regression.  A is made stable.
    """
    inverse, width = np.linalg.pinv(loading).T, inputs[0].shape[1]
    size = loading.shape[1]
    left, right = [], []
    for x, u, w in zip(series, inputs, weight, strict=True):
        s = np.nan_to_num(x) @ inverse
        left.append(np.sqrt(w) * np.column_stack([s[:-1], u[1:], u[:-1]]))
        right.append(np.sqrt(w) * s[1:])
    W = np.linalg.lstsq(np.concatenate(left), np.concatenate(right), rcond=None)[0].T
    A, at_once, late = np.split(W, [size, size + width], axis=1)
    A = A / max(1.0, np.abs(np.linalg.eigvals(A)).max(initial=0.0) / 0.98)
    past = -np.linalg.lstsq(A, late, rcond=0.1)[0]
    return A, at_once - past, loading @ past
