"""Factor analysis and probabilistic PCA: a Gaussian cause, a linear map, independent noise."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.scipy.special import xlogy

from .._core import LOG_2PI, ROOM, Kind, Reals, in_blocks, log_det_cholesky, parameter, symmetrise
from ..distributions import (
    AbstractCovariance,
    AbstractDistribution,
    AbstractPartial,
    Full,
    Gaussian,
    Spherical,
    cell_kind,
    log_cells,
)
from ..distributions._cells import Cells
from ..inference import Exact, Quadratic
from ._base import (
    AbstractCoded,
    AbstractExactModel,
    AbstractExactPosterior,
    AbstractExpectationMaximisation,
    AbstractRecognised,
    AbstractRescalable,
)

# each incomplete row has a posterior covariance of its own; this many at a time keeps them small
_INCOMPLETE_BLOCK = 256


class LinearGaussianStatistics(NamedTuple):
    """Sums over the rows that observe coordinate d, for the regression of x_d on z̃ = (z, 1).

    Attributes:
        weight: Σ w, shape (dim,).
        codes: Σ w E[z̃ z̃ᵀ], shape (dim, k+1, k+1).
        cross: Σ w x_d E[z̃], shape (dim, k+1).
        square: Σ w x_d², shape (dim,).
    """

    weight: Array
    codes: Array
    cross: Array
    square: Array


class LinearGaussian(
    AbstractExactModel,
    AbstractExpectationMaximisation[LinearGaussianStatistics],
    AbstractDistribution,
    AbstractPartial,
    AbstractExactPosterior,
    AbstractRecognised,
    AbstractCoded,
    AbstractRescalable,
):
    """z ~ N(0, I), x = W z + μ + ε, ε ~ N(0, Ψ), so that p(x) = N(x; μ, W Wᵀ + Ψ).

    Factor analysis has `Diagonal` noise, probabilistic PCA `Spherical`.  All algebra is in the k × k
    matrix I + WᵀΨ⁻¹W, with the unobserved rows of W left out, so that missing entries are exact.

    Attributes:
        loading: W, shape (dim, k).
        mean: μ.
        noise: Ψ, a covariance with independent coordinates.

    >>> from freeenergy.distributions import Diagonal
    >>> model = LinearGaussian(jnp.ones((2, 1)), jnp.zeros(2), Diagonal(jnp.ones(2)))
    >>> round(float(model.log_prob(jnp.zeros(2))), 6)
    -2.387183
    >>> model.complete_mean(jnp.array([1.0, jnp.nan])).round(6).tolist()
    [1.0, 0.5]
    """

    loading: Array = parameter()
    mean: Array = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]

    def __check_init__(self) -> None:
        if not self.noise.separable:
            raise ValueError(
                "The 'noise' of LinearGaussian must have independent coordinates. "
                f"Got {type(self.noise).__name__} instead."
            )

    @property
    def latent_dim(self) -> int:
        """The number k of factors."""
        return self.loading.shape[1]

    def covariance(self) -> Array:
        """W Wᵀ + Ψ, the covariance of x."""
        return self.loading @ self.loading.T + self.noise.matrix()

    def _precision(self) -> Array:
        """The diagonal of Ψ⁻¹."""
        return -2 * self.noise.precision_coefficients()

    def _code(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Mean of z given x, Cholesky factor of its precision, residual x − μ and diag Ψ⁻¹ if observed."""
        observed = ~jnp.isnan(x)
        precision = jnp.where(observed, self._precision(), 0)
        residual = jnp.where(observed, x - self.mean, 0)
        projected = precision[:, None] * self.loading
        factor = jnp.linalg.cholesky(jnp.eye(self.latent_dim, dtype=x.dtype) + self.loading.T @ projected)
        code = ROOM * cho_solve((factor, True), projected.T @ (residual / ROOM))
        return code, factor, residual, precision

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z) = −log p(x, z)."""
        observed = ~jnp.isnan(x)
        precision = self._precision()
        residual = jnp.where(observed, x - self.mean - self.loading @ z, 0)
        terms = jnp.where(observed, precision * residual**2 - jnp.log(precision) + LOG_2PI, 0)
        return 0.5 * (jnp.sum(terms) + jnp.vdot(z, z) + self.latent_dim * LOG_2PI)

    def latent(self, x: Array) -> Reals:
        """z, the factors."""
        return Reals((self.latent_dim,))

    @property
    def recognition(self) -> Exact:
        """q = the posterior, under which a quadratic energy is averaged in closed form."""
        return Exact(self.posterior, expectation=Quadratic())

    def posterior(self, x: Array) -> Gaussian:
        """p(z | x)."""
        mean, factor, _, _ = self._code(x)
        return Gaussian(mean, Full(cho_solve((factor, True), jnp.eye(self.latent_dim, dtype=x.dtype))))

    def encode(self, x: Array) -> Array:
        """E[z | x]."""
        return self.posterior(x).mean

    def in_units(self, shift: Array, scale: Array) -> LinearGaussian:
        """The law of shift + scale · x, with the same factors."""
        return LinearGaussian(
            self.loading * scale[:, None], shift + scale * self.mean, self.noise.scale(scale)
        )

    def log_prob(self, x: Array) -> Array:
        code, factor, residual, precision = self._code(x)
        observed = precision > 0
        log_noise = -jnp.sum(jnp.where(observed, jnp.log(jnp.where(observed, precision, 1)), 0))
        # ½ rᵀ(WWᵀ + Ψ)⁻¹r is the least energy over z, so it is had without cancellation
        left = jnp.where(observed, residual - self.loading @ code, 0)
        length = jnp.sum(precision * left**2) + jnp.vdot(code, code)
        constant = jnp.sum(observed.astype(x.dtype)) * LOG_2PI
        return -0.5 * (length + log_noise + log_det_cholesky(factor) + constant)

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN; the factorisation is shared by all rows."""
        _, factor, _, precision = self._code(self.mean)
        residual = x - self.mean
        code = cho_solve((factor, True), self.loading.T @ (precision * residual))
        left = residual - self.loading @ code
        length = jnp.sum(precision * left**2) + jnp.vdot(code, code)
        constant = x.shape[0] * LOG_2PI - jnp.sum(jnp.log(precision))
        return -0.5 * (length + log_det_cholesky(factor) + constant)

    def sample(self, *, key: Array) -> Array:
        latent, emit = jax.random.split(key)
        z = jax.random.normal(latent, (self.latent_dim,), self.mean.dtype)
        return self._emit(z, emit)

    def _emit(self, z: Array, key: Array) -> Array:
        noise = jax.random.normal(key, (self.noise.noise_size,), self.mean.dtype)
        return self.mean + self.loading @ z + self.noise.colour(noise)

    def complete_mean(self, x: Array) -> Array:
        return jnp.where(jnp.isnan(x), self.mean + self.loading @ self._code(x)[0], x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        latent, emit = jax.random.split(key)
        z = self.posterior(x).sample(key=latent)
        return jnp.where(jnp.isnan(x), self._emit(z, emit), x)

    def prepare(self) -> None:
        return None

    def expect_prepared(
        self, prepared: None, x: Array, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[LinearGaussianStatistics, Array]:
        if not incomplete:
            return self._expect_complete(x, weight, temperature)
        return jax.lax.cond(
            jnp.any(jnp.isnan(x)),
            lambda: self._expect_incomplete(x, weight, temperature),
            lambda: self._expect_complete(x, weight, temperature),
        )

    def _expect_complete(
        self, x: Array, weight: Array, temperature: Array
    ) -> tuple[LinearGaussianStatistics, Array]:
        """All rows share one posterior covariance, so that everything is a matrix product."""
        dim, k = self.loading.shape
        precision = self._precision()
        _, factor, _, _ = self._code(self.mean)
        spread = cho_solve((factor, True), jnp.eye(k, dtype=x.dtype))
        residual = x - self.mean[None]
        codes = residual @ (precision[:, None] * self.loading @ spread)
        total = jnp.sum(weight)
        extended = jnp.concatenate([codes, jnp.ones((len(x), 1), x.dtype)], axis=1)
        weighted = extended * weight[:, None]
        second = weighted.T @ extended
        second = second.at[:k, :k].add(temperature * total * spread)
        statistics = LinearGaussianStatistics(
            jnp.full(dim, total),
            jnp.broadcast_to(second, (dim, k + 1, k + 1)),
            x.T @ weighted,
            weight @ x**2,
        )
        left = residual - codes @ self.loading.T
        least = jnp.vdot(weight @ left**2, precision) + jnp.vdot(weight, jnp.sum(codes**2, axis=1))
        constant = dim * LOG_2PI - jnp.sum(jnp.log(precision))
        return statistics, 0.5 * (least + total * (constant + self._tempered(factor, temperature)))

    def _tempered(self, factor: Array, temperature: Array) -> Array:
        """2 (min_q E_q e − T H[q] − min e) plus the constant of the prior, at temperature T."""
        k = self.latent_dim
        entropy = k * LOG_2PI - log_det_cholesky(factor)
        return k * LOG_2PI - temperature * entropy - k * xlogy(temperature, temperature)

    def _expect_incomplete(
        self, x: Array, weight: Array, temperature: Array
    ) -> tuple[LinearGaussianStatistics, Array]:
        dim, k = self.loading.shape

        def one(row: Array) -> tuple[Array, Array, Array]:
            code, factor, residual, precision = self._code(row)
            spread = temperature * cho_solve((factor, True), jnp.eye(k, dtype=x.dtype))
            extended = jnp.concatenate([code, jnp.ones(1, x.dtype)])
            second = jnp.outer(extended, extended).at[:k, :k].add(spread)
            least = jnp.sum(precision * (residual - self.loading @ code) ** 2) + jnp.vdot(code, code)
            constant = jnp.sum(jnp.where(precision > 0, LOG_2PI - jnp.log(self._precision()), 0))
            free = 0.5 * (least + constant + self._tempered(factor, temperature))
            return extended, second, free

        def block(total, part):
            rows, w = part
            extended, second, free = jax.vmap(one)(rows)
            observed = ~jnp.isnan(rows)
            filled = jnp.where(observed, rows, 0)
            share = jnp.where(observed, w[:, None], 0)
            new = LinearGaussianStatistics(
                jnp.sum(share, axis=0),
                (share.T @ second.reshape(len(w), -1)).reshape(dim, k + 1, k + 1),
                (share * filled).T @ extended,
                jnp.sum(share * filled**2, axis=0),
            )
            return jax.tree.map(jnp.add, total, (new, jnp.vdot(w, free))), None

        size = min(_INCOMPLETE_BLOCK, len(x))
        shapes = jax.eval_shape(lambda: self._expect_complete(x[:1], weight[:1], temperature))
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.scan(block, zero, (in_blocks(x, size), in_blocks(weight, size)))[0]

    def maximise(self, statistics: LinearGaussianStatistics) -> LinearGaussian:
        weight, codes, cross, square = statistics
        k = self.latent_dim
        slopes = jax.vmap(lambda a, b: cho_solve((jnp.linalg.cholesky(a), True), b))(
            symmetrise(codes), cross
        )
        # E[(x_d − slopes_d·z̃)²]: the expansion has +slopesᵀE[z̃z̃ᵀ]slopes, which halves the cross term
        residual = jnp.maximum(square - jnp.sum(slopes * cross, axis=1), 0)
        noise = self.noise.from_moments(weight, jnp.zeros_like(weight), residual)
        fitted = LinearGaussian(slopes[:, :k], slopes[:, k], noise)
        # a coordinate that no row observes keeps what it had
        return jax.tree.map(_keep_if_not_finite, fitted, self)


def _keep_if_not_finite(new: Array | float, old: Array | float) -> Array | float:
    return jnp.where(jnp.isfinite(new), new, old) if eqx.is_array(new) else new


def ppca_closed_form(
    mean: Array, scatter: Array, k: Array | int, *, width: int | None = None, floor: float = 1e-6
) -> LinearGaussian:
    """The maximum-likelihood probabilistic PCA for data with `mean` and covariance `scatter`.

        σ² = mean of the dim − k smallest eigenvalues,   W = U (L − σ²I)^½

    with U, L the k largest eigenvalues and their vectors.

    Args:
        mean: of the data.
        scatter: their covariance.
        k: how many components; with a `width` it may be traced.
        width: how many columns W has, at least k; those beyond k are zero, and EM leaves them so.
        floor: the least σ².

    >>> model = ppca_closed_form(jnp.zeros(3), jnp.diag(jnp.array([5.0, 1.0, 3.0])), 1)
    >>> round(float(model.noise.variance), 6), [round(abs(float(v)), 6) for v in model.loading[:, 0]]
    (2.0, [1.732051, 0.0, 0.0])
    """
    dim = len(mean)
    values, vectors = jnp.linalg.eigh(scatter)
    values, vectors = values[::-1], vectors[:, ::-1]
    size = jnp.asarray(k, values.dtype)
    kept = jnp.arange(dim, dtype=values.dtype) < size
    discarded = jnp.sum(jnp.where(kept, 0, values)) / jnp.maximum(dim - size, 1)
    variance = jnp.maximum(discarded, floor)
    lengths = jnp.sqrt(jnp.where(kept, jnp.maximum(values - variance, 0), 0))
    loading = (vectors * lengths[None])[:, : k if width is None else width]
    return LinearGaussian(loading, mean, Spherical(variance, floor, dim))


@cell_kind.register
def _(model: LinearGaussian, cells: Cells) -> Kind | None:
    return cell_kind(_dense(model), cells)


@log_cells.register
def _(
    model: LinearGaussian,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    return log_cells(_dense(model), x, width, cells, draws=draws, complete=complete, key=key)


def _dense(model: LinearGaussian) -> Gaussian:
    return Gaussian(model.mean, Full(model.covariance()))
