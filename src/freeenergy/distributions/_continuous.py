"""Families over positive numbers, fractions, compositions and heavy-tailed reals."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma, gammaln, logsumexp, polygamma

from .._core import (
    AbstractSpace,
    NonNegative,
    Positive,
    Simplex,
    UnitInterval,
    array_parameter,
    log1p_square,
    log_beta,
    log_gamma_ratio,
    on_device,
    positive,
    real,
)
from ._base import (
    AbstractFactorised,
    AbstractJoint,
    AbstractLocationScale,
    AbstractRate,
    check_support,
    fisher_information,
    mean_parameters,
    refuse_shift,
    rescaled,
    times_statistic,
    with_mean,
)

LARGEST_SHAPE = 1e8
"""Where shapes stop growing on data without spread: a relative width of 1e-4."""


def _least_mean(x: Array) -> float:
    """The mean that stands for that of nothing but zeros, whose rate is infinite.

    Rates up to `LARGEST_SHAPE` over it are finite, and so are their products with ordinary numbers.
    """
    return LARGEST_SHAPE**2 / float(jnp.finfo(x.dtype).max)


def _outside(bad: Array, x: Array) -> Array:
    """log h: −∞ where the event is `bad`."""
    return jnp.where(bad, -jnp.inf, 0.0).astype(x.dtype)


class Exponential(AbstractFactorised, AbstractRate):
    """Waiting times:  p(x) = Π_d λ_d exp(−λ_d x_d),  x ≥ 0.

    >>> Exponential(jnp.array([2.0])).log_prob(jnp.array([0.0])).round(6).item()
    0.693147
    """

    support: ClassVar[AbstractSpace] = NonNegative()

    rate: Array = array_parameter(positive)

    neutral: ClassVar[float] = 1.0

    @classmethod
    def prototype(cls, x: np.ndarray) -> Exponential:
        check_support(cls, x)
        return cls(on_device(np.ones(x.shape[1])))

    def statistics(self, x: Array) -> Array:
        return x

    def natural(self) -> Array:
        return -self.rate

    def log_partition(self) -> Array:
        return -jnp.log(self.rate)

    def from_natural(self, natural: Array) -> Exponential:
        return Exponential(-natural)

    def events_and_exposure(self, weight: Array, total: Array) -> tuple[Array, Array]:
        return weight, total

    def from_statistics(self, weight: Array, total: Array) -> Exponential:
        return Exponential(weight / jnp.maximum(total, weight * _least_mean(total)))

    def log_base_terms(self, x: Array) -> Array:
        return _outside(x < 0, x)

    def mean(self) -> Array:
        return 1 / self.rate

    def sample(self, *, key: Array) -> Array:
        return jax.random.exponential(key, self.rate.shape, self.rate.dtype) / self.rate


class Gamma(AbstractFactorised):
    """p(x) = Π_d b^a x^{a−1} exp(−b x) / Γ(a),  x > 0, with shape a and rate b.

    >>> Gamma(jnp.array([1.0]), jnp.array([2.0])).log_prob(jnp.array([1.0])).round(6).item()
    -1.306853
    """

    support: ClassVar[AbstractSpace] = Positive()

    shape: Array = array_parameter(positive)
    rate: Array = array_parameter(positive)

    neutral: ClassVar[float] = 1.0

    @classmethod
    def prototype(cls, x: np.ndarray) -> Gamma:
        check_support(cls, x)
        return cls(on_device(np.ones(x.shape[1])), on_device(np.ones(x.shape[1])))

    def statistics(self, x: Array) -> Array:
        return jnp.stack([jnp.log(x), x], axis=-1)

    def natural(self) -> Array:
        return jnp.stack([self.shape - 1, -self.rate], axis=-1)

    def log_partition(self) -> Array:
        return gammaln(self.shape) - self.shape * jnp.log(self.rate)

    def from_natural(self, natural: Array) -> Gamma:
        return Gamma(natural[:, 0] + 1, -natural[:, 1])

    def from_statistics(self, weight: Array, total: Array) -> Gamma:
        mean_log = total[:, 0] / weight
        mean = jnp.maximum(total[:, 1] / weight, _least_mean(total))
        shape = gamma_shape(jnp.log(mean) - mean_log)
        return Gamma(shape, shape / mean)

    def log_base_terms(self, x: Array) -> Array:
        return _outside(x < 0, x)

    def mean(self) -> Array:
        return self.shape / self.rate

    def sample(self, *, key: Array) -> Array:
        # through the logarithm, because small shapes underflow
        return jnp.exp(jax.random.loggamma(key, self.shape, dtype=self.shape.dtype)) / self.rate


def _moving(ratio: Array) -> Array:
    """Whether a step of Newton's method changed any entry; one that is NaN must not stop the others."""
    return jnp.any(jnp.abs(ratio - 1) > 1e-12)


def gamma_shape(gap: Array) -> Array:
    """The a with log a − ψ(a) = `gap`, for log E[x] − E[log x] = gap > 0, by Newton's method on 1/a."""
    gap = jnp.maximum(gap, 0.5 / LARGEST_SHAPE)

    def proceed(state: tuple[Array, Array, Array]) -> Array:
        _, moving, n = state
        return moving & (n < 50)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, _, n = state
        residual = jnp.log(a) - digamma(a) - gap
        inverse = 1 / a + residual / (a - a**2 * polygamma(1, a))
        new = jnp.clip(jnp.where(inverse > 0, 1 / inverse, jnp.inf), a / 10, a * 10)
        return new, _moving(new / a), n + 1

    # exact in both limits: 1/(2 gap) for small gaps and 1/gap for large ones
    start = (3 - gap + jnp.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    shape, _, _ = jax.lax.while_loop(proceed, step, (start, jnp.array(True), jnp.array(0)))
    return jnp.minimum(shape, LARGEST_SHAPE)


class Beta(AbstractFactorised):
    """p(x) = Π_d x^{α−1} (1−x)^{β−1} / B(α, β),  0 < x < 1.

    >>> Beta(jnp.array([3.0]), jnp.array([1.0])).log_prob(jnp.array([1.0])).round(6).item()
    1.098612
    """

    support: ClassVar[AbstractSpace] = UnitInterval()

    alpha: Array = array_parameter(positive)
    beta: Array = array_parameter(positive)

    neutral: ClassVar[float] = 0.5

    @classmethod
    def prototype(cls, x: np.ndarray) -> Beta:
        check_support(cls, x)
        return cls(on_device(np.ones(x.shape[1])), on_device(np.ones(x.shape[1])))

    def statistics(self, x: Array) -> Array:
        return jnp.stack([jnp.log(x), jnp.log1p(-x)], axis=-1)

    def natural(self) -> Array:
        return jnp.stack([self.alpha - 1, self.beta - 1], axis=-1)

    def log_partition(self) -> Array:
        return log_beta(self.alpha, self.beta)

    def from_natural(self, natural: Array) -> Beta:
        return Beta(natural[:, 0] + 1, natural[:, 1] + 1)

    def from_statistics(self, weight: Array, total: Array) -> Beta:
        concentration = dirichlet_concentration(total / weight[:, None])
        return Beta(concentration[:, 0], concentration[:, 1])

    def log_base_terms(self, x: Array) -> Array:
        return _outside((x < 0) | (x > 1), x)

    def mean(self) -> Array:
        return self.alpha / (self.alpha + self.beta)

    def sample(self, *, key: Array) -> Array:
        return jax.random.beta(key, self.alpha, self.beta, dtype=self.alpha.dtype)


class Dirichlet(AbstractJoint):
    """Compositions:  p(x) = Γ(Σα)/ΠΓ(α_c) Π_c x_c^{α_c−1},  x ≥ 0, Σx = 1.

    The density is with respect to all coordinates but one.  Missing parts share what the known
    ones leave, which is again a Dirichlet.

    >>> Dirichlet(jnp.ones(3)).log_prob(jnp.array([0.2, 0.3, 0.5])).round(6).item()
    0.693147
    """

    support: ClassVar[AbstractSpace] = Simplex()

    concentration: Array = array_parameter(positive)

    @classmethod
    def prototype(cls, x: np.ndarray) -> Dirichlet:
        check_support(cls, x)
        return cls(on_device(np.ones(x.shape[1])))

    @property
    def dim(self) -> int:
        return self.concentration.shape[-1]

    def statistics(self, x: Array) -> Array:
        return jnp.log(x)

    def event_weight(self, x: Array) -> Array:
        return jnp.ones((), x.dtype)

    def natural(self) -> Array:
        return self.concentration - 1

    def log_partition(self) -> Array:
        return _log_beta(self.concentration)

    def from_natural(self, natural: Array) -> Dirichlet:
        return Dirichlet(natural + 1)

    def from_statistics(self, weight: Array, total: Array) -> Dirichlet:
        return Dirichlet(dirichlet_concentration(total / weight))

    def inside(self) -> Dirichlet:
        return self

    def log_base(self, x: Array) -> Array:
        over = jnp.nansum(x) - 1
        return _outside(jnp.any(x < 0) | (jnp.where(jnp.any(jnp.isnan(x)), over, jnp.abs(over)) > 1e-6), x)

    def _split(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Which are missing, the known parts, what they leave, and the concentration of that."""
        missing = jnp.isnan(x)
        known = jnp.where(missing, 1, x)
        left = jnp.where(jnp.any(missing), 1 - jnp.nansum(x), 1)
        return missing, known, left, jnp.sum(jnp.where(missing, self.concentration, 0))

    def log_prob(self, x: Array) -> Array:
        missing, known, left, lump = self._split(x)
        some = jnp.any(missing)
        lump = jnp.where(some, lump, 1)
        terms = jnp.where(
            missing,
            0,
            times_statistic(self.concentration - 1, jnp.log(known)) - gammaln(self.concentration),
        )
        rest = jnp.where(some, times_statistic(lump - 1, jnp.log(left)) - gammaln(lump), 0)
        return self.log_base(x) + jnp.sum(terms) + rest + gammaln(jnp.sum(self.concentration))

    def complete_mean(self, x: Array) -> Array:
        missing, known, left, lump = self._split(x)
        return jnp.where(missing, left * self.concentration / jnp.where(lump > 0, lump, 1), known)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        missing, known, left, _ = self._split(x)
        logs = jnp.where(missing, jax.random.loggamma(key, self.concentration, dtype=x.dtype), -jnp.inf)
        share = jnp.exp(logs - logsumexp(jnp.where(jnp.any(missing), logs, 0)))
        return jnp.where(missing, left * share, known)

    def expected_statistics(self, x: Array) -> Array:
        missing, known, left, lump = self._split(x)
        expected = jnp.log(left) + digamma(self.concentration) - digamma(jnp.where(lump > 0, lump, 1))
        return jnp.where(missing, expected, jnp.log(known))

    def sample(self, *, key: Array) -> Array:
        return jax.random.dirichlet(key, self.concentration, dtype=self.concentration.dtype)


def _log_beta(concentration: Array) -> Array:
    """log of the multivariate beta function, along the last axis."""
    return jnp.sum(gammaln(concentration), axis=-1) - gammaln(jnp.sum(concentration, axis=-1))


def dirichlet_concentration(mean_log: Array) -> Array:
    """The α with ψ(α_c) − ψ(Σα) = E[log x_c] along the last axis, by a damped Newton's method."""
    size = mean_log.shape[-1]
    # Σ exp E[log x] < 1, and the gap is about (C−1)/(2 Σα): this bounds Σα on data without spread
    excess = logsumexp(mean_log, axis=-1, keepdims=True) - jnp.log1p(-(size - 1) / (2 * LARGEST_SHAPE))
    g = mean_log - jnp.maximum(excess, 0)
    gap = 1 - jnp.sum(jnp.exp(g), axis=-1, keepdims=True)
    start = jnp.maximum(jax.nn.softmax(g, axis=-1) * (size - 1) / (2 * gap), 1e-3)
    damping = 0.5 ** jnp.arange(12, dtype=g.dtype)

    def gain(alpha: Array) -> Array:
        return jnp.sum(alpha * g, axis=-1) - _log_beta(alpha)

    def proceed(state: tuple[Array, Array, Array]) -> Array:
        _, moving, n = state
        return moving & (n < 50)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        alpha, _, n = state
        whole = jnp.sum(alpha, axis=-1, keepdims=True)
        residual = g - digamma(alpha) + digamma(whole)
        # the Hessian is ψ'(Σα)·11ᵀ − diag ψ'(α): a diagonal and a rank-one part
        q, z = polygamma(1, alpha), polygamma(1, whole)
        shared = jnp.sum(residual / q, axis=-1, keepdims=True)
        direction = (residual + z * shared / (1 - z * jnp.sum(1 / q, axis=-1, keepdims=True))) / q
        relative = jnp.clip(direction / alpha, -5, 5)
        tries = alpha[None] * jnp.exp(damping.reshape((-1,) + (1,) * alpha.ndim) * relative[None])
        gains, now = jax.vmap(gain)(tries), gain(alpha)
        # near the solution the gain drowns in rounding: then the full step is the right one
        rounding = (
            8 * jnp.finfo(g.dtype).eps * jnp.sum(jnp.abs(gammaln(alpha)) + jnp.abs(alpha * g), axis=-1)
        )
        first = jnp.argmax(gains >= (now - rounding)[None], axis=0)
        new = jnp.take_along_axis(tries, first[None, ..., None], axis=0)[0]
        return new, _moving(new / alpha), n + 1

    return jax.lax.while_loop(proceed, step, (start, jnp.array(True), jnp.array(0)))[0]


@with_mean.register
def _(member: Exponential, mean: Array) -> Exponential:
    return Exponential(1 / mean)


@with_mean.register
def _(member: Gamma, mean: Array) -> Gamma:
    return Gamma(member.shape, member.shape / mean)


@rescaled.register
def _(member: Exponential, shift: Array, scale: Array) -> Exponential:
    refuse_shift(member, shift)
    return Exponential(member.rate * scale)


@rescaled.register
def _(member: Gamma, shift: Array, scale: Array) -> Gamma:
    refuse_shift(member, shift)
    return Gamma(member.shape, member.rate * scale)


# Moments of logarithms from the shapes themselves: through η = a − 1 small ones would be rounded away.


@mean_parameters.register
def _(family: Gamma) -> Array:
    return jnp.stack([digamma(family.shape) - jnp.log(family.rate), family.mean()], axis=-1)


@mean_parameters.register
def _(family: Beta) -> Array:
    shapes = jnp.stack([family.alpha, family.beta], axis=-1)
    return digamma(shapes) - digamma(jnp.sum(shapes, axis=-1, keepdims=True))


@mean_parameters.register
def _(family: Dirichlet) -> Array:
    return digamma(family.concentration) - digamma(jnp.sum(family.concentration))


def _log_covariance(concentration: Array) -> Array:
    """Cov[log x] of a composition."""
    return jnp.diag(polygamma(1, concentration)) - polygamma(1, jnp.sum(concentration))


@fisher_information.register
def _(family: Gamma) -> Array:
    across, spread = 1 / family.rate, family.shape / family.rate**2
    blocks = jnp.stack([polygamma(1, family.shape), across, across, spread], axis=-1).reshape(-1, 2, 2)
    return jax.scipy.linalg.block_diag(*blocks)


@fisher_information.register
def _(family: Beta) -> Array:
    blocks = jax.vmap(_log_covariance)(jnp.stack([family.alpha, family.beta], axis=-1))
    return jax.scipy.linalg.block_diag(*blocks)


@fisher_information.register
def _(family: Dirichlet) -> Array:
    return _log_covariance(family.concentration)


class Laplace(AbstractLocationScale):
    """p(x) = Π_d exp(−|x−m|/s) / (2s).

    >>> Laplace(jnp.zeros(1), jnp.ones(1)).log_prob(jnp.ones(1)).round(6).item()
    -1.693147
    """

    loc: Array = array_parameter(real)
    scale: Array = array_parameter(positive)

    def standard_log_prob(self, z: Array) -> Array:
        return -jnp.abs(z) - jnp.log(2.0)

    def standard_sample(self, *, key: Array) -> Array:
        return jax.random.laplace(key, self.loc.shape, self.loc.dtype)

    def standard_entropy(self) -> Array:
        return jnp.full_like(self.loc, 1 + jnp.log(2.0))


class Cauchy(AbstractLocationScale):
    """p(x) = Π_d 1 / (πs (1 + ((x−m)/s)²)); it has no mean.

    >>> Cauchy(jnp.zeros(1), jnp.ones(1)).log_prob(jnp.ones(1)).round(6).item()
    -1.837877
    """

    loc: Array = array_parameter(real)
    scale: Array = array_parameter(positive)

    def standard_log_prob(self, z: Array) -> Array:
        return -jnp.log(jnp.pi) - log1p_square(z)

    def standard_sample(self, *, key: Array) -> Array:
        return jax.random.cauchy(key, self.loc.shape, self.loc.dtype)

    def standard_entropy(self) -> Array:
        return jnp.full_like(self.loc, jnp.log(4 * jnp.pi))


# of this many numbers below two the product is finite in 32 bits too
_FACTORS = 64


class HyperbolicSecant(AbstractLocationScale):
    """p(x) = Π_d sech(π (x−m)/(2s)) / (2s), of mean m and standard deviation s.

    Its energy log cosh is a smooth |x|: the source density of independent component analysis.

    >>> HyperbolicSecant(jnp.zeros(1), jnp.ones(1)).log_prob(jnp.zeros(1)).round(6).item()
    -0.693147
    """

    loc: Array = array_parameter(real)
    scale: Array = array_parameter(positive)

    def standard_log_prob(self, z: Array) -> Array:
        # −log(2 cosh u), with one exponential for value and slope; what log1p would add is lost in u
        u = jnp.abs(jnp.pi * z / 2)
        return -u - jnp.log(1 + jnp.exp(-2 * u))

    def standard_total(self, z: Array) -> Array:
        # logarithms cost more than all the rest: one of a product of numbers between one and two
        u = jnp.abs(jnp.pi * z / 2)
        factors = 1 + jnp.exp(-2 * u)
        parts = [factors[i : i + _FACTORS] for i in range(0, len(factors), _FACTORS)]
        return -jnp.sum(u) - sum(jnp.log(jnp.prod(part)) for part in parts)

    def standard_sample(self, *, key: Array) -> Array:
        tiny = jnp.finfo(self.loc.dtype).tiny
        u = jax.random.uniform(key, self.loc.shape, self.loc.dtype, minval=tiny)
        return 2 / jnp.pi * jnp.log(jnp.tan(jnp.pi * u / 2))

    def standard_entropy(self) -> Array:
        return jnp.full_like(self.loc, jnp.log(4.0))


class Logistic(AbstractLocationScale):
    """p(x) = Π_d ¼ sech²(z/2) / s,  z = (x−m)/s: the slope of the logistic function.

    Its energy has the slope tanh(z/2): the source density of InfoMax with logistic units.

    >>> Logistic(jnp.zeros(1), jnp.ones(1)).log_prob(jnp.zeros(1)).round(6).item()
    -1.386294
    """

    loc: Array = array_parameter(real)
    scale: Array = array_parameter(positive)

    def standard_log_prob(self, z: Array) -> Array:
        return -z - 2 * jax.nn.softplus(-z)

    def standard_sample(self, *, key: Array) -> Array:
        return jax.random.logistic(key, self.loc.shape, self.loc.dtype)

    def standard_entropy(self) -> Array:
        return jnp.full_like(self.loc, 2.0)


class StudentT(AbstractLocationScale):
    """p(x) = Π_d Γ((ν+1)/2) / (Γ(ν/2) s √(πν)) · (1 + z²/ν)^{−(ν+1)/2},  z = (x−m)/s.

    >>> StudentT(jnp.zeros(1), jnp.ones(1), jnp.ones(1)).log_prob(jnp.ones(1)).round(6).item()
    -1.837877
    """

    loc: Array = array_parameter(real)
    scale: Array = array_parameter(positive)
    df: Array = array_parameter(positive)

    def _log_ratio(self, half_df: Array) -> Array:
        """log Γ((ν+1)/2) − log Γ(ν/2)."""
        return log_gamma_ratio(half_df, jnp.full(half_df.shape, 0.5, half_df.dtype))

    def standard_log_prob(self, z: Array) -> Array:
        constant = self._log_ratio(self.df / 2) - 0.5 * jnp.log(jnp.pi * self.df)
        return constant - (self.df + 1) / 2 * log1p_square(z / jnp.sqrt(self.df))

    def standard_sample(self, *, key: Array) -> Array:
        return jax.random.t(key, self.df, self.loc.shape, self.loc.dtype)

    def standard_entropy(self) -> Array:
        # E log(1 + z²/ν) = ψ((ν+1)/2) − ψ(ν/2) is the slope of the ratio: a difference would lose digits
        ratio, tail = jax.jvp(self._log_ratio, (self.df / 2,), (jnp.ones_like(self.df),))
        return 0.5 * jnp.log(jnp.pi * self.df) - ratio + (self.df + 1) / 2 * tail
