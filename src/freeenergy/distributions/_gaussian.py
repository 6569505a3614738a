"""The Gaussian with any covariance structure, and its algebra."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import (
    LOG_2PI,
    ROOM,
    AbstractSpace,
    Reals,
    array_parameter,
    cholesky,
    log_det_cholesky,
    on_device,
    refuse_outside,
)
from ._base import (
    AbstractExponentialFamily,
    AbstractFactorised,
    AbstractRay,
    AbstractShaped,
    check_support,
    fisher_information,
    mean_parameters,
    rescaled,
    shared_statistics,
    with_mean,
)
from ._covariance import (
    AbstractCovariance,
    Full,
    dense_precision_coefficients,
    dense_second_moments,
    triangle,
)


class Gaussian(AbstractExponentialFamily, AbstractRay, AbstractShaped):
    """N(x; μ, Σ) = exp(−½ (x−μ)ᵀΣ⁻¹(x−μ)) / √|2πΣ|.

    The covariance is an object, so that one class serves every structure.  Missing entries are
    integrated out exactly.

    >>> from freeenergy.distributions import Full
    >>> normal = Gaussian(jnp.zeros(2), Full(jnp.eye(2)))
    >>> round(float(normal.log_prob(jnp.array([0.0, jnp.nan]))), 6)
    -0.918939
    """

    support: ClassVar[AbstractSpace] = Reals()
    unit_free: ClassVar[bool] = True

    mean: Array = array_parameter()
    covariance: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]

    def __check_init__(self) -> None:
        if not isinstance(self.covariance, AbstractCovariance):
            raise TypeError(
                "The 'covariance' parameter of Gaussian must be a covariance, such as Diagonal([1.0]). "
                f"Got {self.covariance!r} instead."
            )
        # without variance in some direction there is no density, though a covariance may be so
        refuse_outside(self.covariance)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Gaussian:
        check_support(cls, x)
        return cls(on_device(np.zeros(x.shape[1])), Full(on_device(np.eye(x.shape[1]))))

    @property
    def dim(self) -> int:
        return self.mean.shape[-1]

    @property
    def closed_form(self) -> bool:
        return self.covariance.closed_form

    @property
    def common_unit(self) -> bool:
        return not self.covariance.unit_free

    def statistic_columns(self) -> np.ndarray:
        if not self.masks_missing:
            raise shared_statistics(self)
        return np.tile(np.arange(self.dim), 2)

    def statistics(self, x: Array) -> Array:
        return jnp.concatenate([x, self.covariance.second_moments(x)])

    def natural(self) -> Array:
        return jnp.concatenate([self.covariance.solve(self.mean), self.covariance.precision_coefficients()])

    def log_partition(self) -> Array:
        dim = self.mean.shape[-1]
        length = jnp.vdot(self.mean, self.covariance.solve(self.mean))
        return 0.5 * (length + self.covariance.log_det() + dim * LOG_2PI)

    def inside(self) -> Gaussian:
        return self

    def from_natural(self, natural: Array) -> Gaussian:
        dim = self.mean.shape[-1]
        covariance = self.covariance.from_precision_coefficients(natural[dim:])
        return Gaussian(covariance.matrix() @ natural[:dim], covariance)

    def from_statistics(self, weight: Array, total: Array) -> Gaussian:
        dim = self.mean.shape[-1]
        weights = jnp.broadcast_to(weight[..., None], total[..., :dim].shape)
        return self._from_moments(weights, total[..., :dim], total[..., dim:])

    def _from_moments(self, weight: Array, first: Array, second: Array) -> Gaussian:
        mean = first / weight
        return Gaussian(mean, self.covariance.from_moments(weight, mean, second))

    def log_base(self, x: Array) -> Array:
        return jnp.zeros((), x.dtype)

    def features(self, x: Array) -> Array:
        if not self.masks_missing:
            return jnp.concatenate([self.statistics(x), jnp.ones(1, x.dtype)])
        observed = ~jnp.isnan(x)
        filled = jnp.where(observed, x, 0)
        return jnp.concatenate([self.statistics(filled), observed.astype(x.dtype)])

    def coefficients(self) -> Array:
        if not self.masks_missing:
            # as in `natural` and `log_partition`, but with a single factorisation
            precision, log_det = self.covariance.precision()
            linear = precision @ self.mean
            quadratic = dense_precision_coefficients(precision)
            normaliser = 0.5 * (jnp.vdot(self.mean, linear) + log_det + len(linear) * LOG_2PI)
            return jnp.concatenate([linear, quadratic, -normaliser[None]])
        linear = self.covariance.solve(self.mean)
        quadratic = self.covariance.precision_coefficients()
        terms = 0.5 * (linear * self.mean + jnp.log(-0.5 / quadratic) + LOG_2PI)
        return jnp.concatenate([linear, quadratic, -terms])

    def from_features(self, total: Array) -> Gaussian:
        dim = self.mean.shape[-1]
        if not self.masks_missing:
            return self.from_statistics(total[..., -1], total[..., :-1])
        return self._from_moments(total[..., -dim:], total[..., :dim], total[..., dim:-dim])

    def log_prob(self, x: Array) -> Array:
        observed = ~jnp.isnan(x)
        residual = jnp.where(observed, x - self.mean, 0)
        if self.masks_missing:
            # divided before it is squared: squares alone overflow and vanish sooner than their ratio
            root = jnp.sqrt(self.covariance.variances())
            return -0.5 * jnp.sum(
                jnp.where(observed, (residual / root) ** 2 + 2 * jnp.log(root) + LOG_2PI, 0)
            )
        factor = cholesky(observed_block(self.covariance.matrix(), observed))[0]
        scaled = ROOM * jax.scipy.linalg.solve_triangular(factor, residual / ROOM, lower=True)
        constant = jnp.sum(observed.astype(x.dtype)) * LOG_2PI
        return -0.5 * (jnp.vdot(scaled, scaled) + log_det_cholesky(factor) + constant)

    def along_ray(self, x: Array) -> Array:
        observed = ~jnp.isnan(x)
        factor = cholesky(observed_block(self.covariance.matrix(), observed))[0]

        def whiten(v: Array) -> Array:
            return jax.scipy.linalg.solve_triangular(factor, jnp.where(observed, v, 0), lower=True)

        direction, mean = whiten(x), whiten(self.mean)
        constant = jnp.sum(observed.astype(x.dtype)) * LOG_2PI + log_det_cholesky(factor)
        return jnp.stack(
            [
                -0.5 * (jnp.vdot(mean, mean) + constant),
                jnp.vdot(direction, mean),
                -0.5 * jnp.vdot(direction, direction),
            ]
        )

    def _conditional(self, x: Array) -> tuple[Array, Array, Array]:
        """Mean and covariance of the event given its observed entries (zero rows where observed)."""
        observed = ~jnp.isnan(x)
        gain, rest = regression(self.covariance.matrix(), observed)
        residual = jnp.where(observed, x - self.mean, 0)
        return jnp.where(observed, x, self.mean + gain.T @ residual), rest, ~observed

    def expected_features(self, x: Array) -> Array:
        if self.masks_missing:
            return self.features(x)
        mean, rest, _ = self._conditional(x)
        second = dense_second_moments(mean) + _upper(rest)
        return jnp.concatenate([mean, second, jnp.ones(1, x.dtype)])

    def complete_mean(self, x: Array) -> Array:
        if self.masks_missing:
            return jnp.where(jnp.isnan(x), self.mean, x)
        return self._conditional(x)[0]

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        if self.masks_missing:
            return jnp.where(jnp.isnan(x), self.sample(key=key), x)
        mean, rest, hidden = self._conditional(x)
        factor = cholesky(rest + jnp.diag(jnp.where(hidden, 0.0, 1.0)))[0]
        noise = factor @ jax.random.normal(key, x.shape, x.dtype)
        return jnp.where(hidden, mean + noise, x)

    def sample(self, *, key: Array) -> Array:
        noise = jax.random.normal(key, (self.covariance.noise_size,), self.mean.dtype)
        return self.mean + self.covariance.colour(noise)

    def entropy(self) -> Array:
        """½ log |2πe Σ|."""
        dim = self.mean.shape[-1]
        return 0.5 * (dim * (1 + LOG_2PI) + self.covariance.log_det())

    @property
    def masks_missing(self) -> bool:
        return self.covariance.separable


@with_mean.register
def _(member: Gaussian, mean: Array) -> Gaussian:
    return Gaussian(mean, member.covariance)


@rescaled.register
def _(member: Gaussian, shift: Array, scale: Array) -> Gaussian:
    return Gaussian((member.mean - shift) / scale, member.covariance.scale(1 / scale))


class GaussianLocation(AbstractFactorised):
    """Gaussians of known variance, the location family:  p(x) = Π_d N(x_d; m_d, v).

    One natural parameter a coordinate, η = m / v, which can be any number: T(x) = x, A(η) = v η²/2 and
    h(x) = N(x; 0, v).  The real units of a harmonium are of this family.

    Attributes:
        loc: m.
        variance: v, which is not learned: one number for all coordinates.

    >>> GaussianLocation(jnp.zeros(1)).log_prob(jnp.ones(1)).round(6).item()
    -1.418939
    """

    support: ClassVar[AbstractSpace] = Reals()

    loc: Array = array_parameter()
    variance: float = eqx.field(static=True, default=1.0)

    @classmethod
    def prototype(cls, x: np.ndarray) -> GaussianLocation:
        check_support(cls, x)
        return cls(on_device(np.zeros(x.shape[1])))

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        return self.loc / self.variance

    def log_partition(self) -> Array:
        return 0.5 * self.loc**2 / self.variance

    def log_base_terms(self, x: Array) -> Array:
        return -0.5 * (x**2 / self.variance + LOG_2PI + math.log(self.variance))

    def from_natural(self, natural: Array) -> GaussianLocation:
        return GaussianLocation(self.variance * natural, self.variance)

    def from_statistics(self, weight: Array, total: Array) -> GaussianLocation:
        return GaussianLocation(total / weight, self.variance)

    def mean(self) -> Array:
        return self.loc

    def sample(self, *, key: Array) -> Array:
        noise = jax.random.normal(key, self.loc.shape, self.loc.dtype)
        return self.loc + math.sqrt(self.variance) * noise


@with_mean.register
def _(member: GaussianLocation, mean: Array) -> GaussianLocation:
    return GaussianLocation(mean, member.variance)


def observed_block(sigma: Array, observed: Array) -> Array:
    """Σ with the rows and columns of unobserved entries replaced by those of the identity."""
    both = observed[:, None] & observed[None, :]
    return jnp.where(both, sigma, jnp.diag(jnp.where(observed, 0.0, 1.0)))


def regression(sigma: Array, observed: Array) -> tuple[Array, Array]:
    """B with E[x | observed] = Bᵀ x, and the covariance that is left, zero where anything is observed."""
    factor = cholesky(observed_block(sigma, observed))[0]
    # columns of the observed entries, the others zero
    across = jnp.where(observed[:, None], sigma, 0)
    gain = jax.scipy.linalg.cho_solve((factor, True), across)
    gain = jnp.where(observed[:, None], gain, 0)
    hidden = ~observed
    return gain, jnp.where(hidden[:, None] & hidden[None, :], sigma - across.T @ gain, 0)


def _upper(matrix: Array) -> Array:
    rows, columns = triangle(matrix.shape[-1])
    return matrix[rows, columns]


# The slopes of the log-partition, from which other families have these, go through powers of the variance
# that overflow long before the moments do.


@mean_parameters.register
def _(family: Gaussian) -> Array:
    m, second = family.mean, family.covariance.matrix() + jnp.outer(family.mean, family.mean)
    return jnp.concatenate([m, second[_products(family)]])


@fisher_information.register
def _(family: Gaussian) -> Array:
    m, sigma = family.mean, family.covariance.matrix()
    i, j = _products(family)
    across = m[i][None, :] * sigma[:, j] + m[j][None, :] * sigma[:, i]
    # Isserlis: what the products x_i x_j and x_u x_v have in common
    both = jnp.zeros((len(i), len(i)), m.dtype)
    for a, b in ((i, j), (j, i)):
        for u, v in ((i, j), (j, i)):
            mean = m[a][:, None] * m[u][None, :]
            both = both + (mean + sigma[np.ix_(a, u)] / 2) * sigma[np.ix_(b, v)]
    return jnp.block([[sigma, across], [across.T, both]])


def _products(family: Gaussian) -> tuple[np.ndarray, np.ndarray]:
    """Which entries of x are multiplied in its statistics."""
    dim = family.mean.shape[-1]
    return (np.arange(dim), np.arange(dim)) if family.masks_missing else triangle(dim)
