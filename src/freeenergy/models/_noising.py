"""Noising: how a datum is drowned in Gaussian noise, and what is known of the way back.

    x_t = α_t x + σ_t ε,   ε ~ N(0, I),   0 ≤ t ≤ 1

Two objects say it together.  A schedule says how much is left of the datum at each time, which is the
log-SNR λ(t) = log(α_t² / σ_t²); a path says which α and σ have that ratio, with α² + σ² = 1, α = 1, or
α + σ = 1.  A `Stage` is the three numbers at one time; `DATA` is that of a datum without noise.  All
kernels of the chain are functions of two stages, whichever times they come from.

A parametrisation says what a network is asked for: the noise, the datum, the score, or a difference of
them; each can be had from any other.
"""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import buffer, parameter, positive

# -- schedules --------------------------------------------------------------------------------------

_LOW, _HIGH = -10.0, 10.0


class AbstractSchedule(eqx.Module):
    """The log-SNR λ(t), which falls from t = 0 (the datum, nearly) to t = 1 (noise, nearly)."""

    @abc.abstractmethod
    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        """λ(t) = log(α_t² / σ_t²)."""

    def slope(self, t: Float[Array, ""]) -> Float[Array, ""]:
        """λ′(t), which is negative."""
        return jax.jvp(self.log_snr, (t,), (jnp.ones_like(t),))[1]

    def ends(self, dtype: Any) -> tuple[Array, Array]:
        """λ(0) and λ(1)."""
        return self.log_snr(jnp.zeros((), dtype)), self.log_snr(jnp.ones((), dtype))


def _check_ends(owner: Any) -> None:
    if not owner.low < owner.high:
        raise ValueError(
            f"The 'high' of {type(owner).__name__} must be larger than its 'low', {owner.low!r}. "
            f"Got {owner.high!r} instead."
        )


class LogLinearSchedule(AbstractSchedule):
    """λ(t) = high − (high − low) t: every amount of noise gets its equal share of time.

    Attributes:
        low, high: the log-SNR at t = 1 and at t = 0.

    >>> float(LogLinearSchedule(-8.0, 8.0).log_snr(jnp.array(0.25)))
    4.0
    """

    low: float = eqx.field(static=True, converter=float, default=_LOW)
    high: float = eqx.field(static=True, converter=float, default=_HIGH)

    def __check_init__(self) -> None:
        _check_ends(self)

    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return self.high - (self.high - self.low) * t


class CosineSchedule(AbstractSchedule):
    """λ = −2 log tan(πτ/2): α = cos(πτ/2) where variance is preserved (Nichol and Dhariwal 2021).

    Attributes:
        low, high: the log-SNR at t = 1 and at t = 0, between which τ goes evenly.

    >>> schedule = CosineSchedule(-10.0, 10.0)
    >>> round(float(schedule.log_snr(jnp.array(0.5))), 6)
    0.0
    """

    low: float = eqx.field(static=True, converter=float, default=_LOW)
    high: float = eqx.field(static=True, converter=float, default=_HIGH)

    def __check_init__(self) -> None:
        _check_ends(self)

    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        first, last = (math.atan(math.exp(-0.5 * end)) for end in (self.high, self.low))
        return -2 * jnp.log(jnp.tan(first + (last - first) * t))


class LinearSchedule(AbstractSchedule):
    """log α² = −∫ β with β(τ) = β₀ + (β₁ − β₀) τ, where variance is preserved.

    That of Ho et al. (2020) in discrete, and of Song et al. (2021) in continuous time.

    Attributes:
        first, last: β₀ and β₁, of all steps together: 1,000 steps from 10⁻⁴ to 0.02 are 0.1 and 20.
        start: τ at t = 0, which leaves a little noise.

    >>> round(float(jax.nn.sigmoid(LinearSchedule().log_snr(jnp.array(1.0)))), 7)
    4.32e-05
    """

    first: float = eqx.field(static=True, converter=float, default=0.1)
    last: float = eqx.field(static=True, converter=float, default=20.0)
    start: float = eqx.field(static=True, converter=float, default=1e-3)

    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        time = self.start + (1 - self.start) * t
        return -jnp.log(jnp.expm1(self.first * time + 0.5 * (self.last - self.first) * time**2))


class StraightSchedule(AbstractSchedule):
    """λ = 2 log((1 − τ)/τ): α = 1 − τ and σ = τ on a `StraightPath`, as in flow matching.

    Attributes:
        low, high: the log-SNR at t = 1 and at t = 0, between which τ goes evenly.

    >>> round(float(StraightSchedule(-10.0, 10.0).log_snr(jnp.array(0.0))), 6)
    10.0
    """

    low: float = eqx.field(static=True, converter=float, default=_LOW)
    high: float = eqx.field(static=True, converter=float, default=_HIGH)

    def __check_init__(self) -> None:
        _check_ends(self)

    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        first, last = (1 / (1 + math.exp(0.5 * end)) for end in (self.high, self.low))
        time = first + (last - first) * t
        return 2 * (jnp.log1p(-time) - jnp.log(time))


class StepSchedule(AbstractSchedule):
    """A chain of T steps x_1, …, x_T with β_1, …, β_T: log-SNRs at t = 0, 1/(T−1), …, 1, straight between.

    Attributes:
        log_snrs: of x_1, …, x_T.

    >>> schedule = StepSchedule.of_betas(jnp.array([0.1, 0.2, 0.3, 0.4]))
    >>> [round(float(v), 4) for v in jax.nn.sigmoid(schedule.log_snrs)]
    [0.9, 0.72, 0.504, 0.3024]
    """

    log_snrs: Float[Array, " steps"] = buffer()

    @classmethod
    def of_betas(cls, betas: Float[Array, " steps"]) -> StepSchedule:
        """x_t = √(1 − β_t) x_{t−1} + √β_t ε."""
        log_alphas = jnp.cumsum(jnp.log1p(-betas))
        return cls(log_alphas - jnp.log(-jnp.expm1(log_alphas)))

    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        knots = jnp.linspace(0, 1, len(self.log_snrs), dtype=t.dtype)
        return jnp.interp(t, knots, self.log_snrs)


class LearnedSchedule(AbstractSchedule):
    """λ falls by shares that are learned, in as many even parts of time; so are its ends.

    The continuous-time bound depends on the ends alone, that of a chain of steps on all of it
    (Kingma et al. 2021).

    Attributes:
        high: the log-SNR at t = 0.
        fall: by how much it falls until t = 1.
        shares: logarithms of the shares of the parts, up to a constant.

    >>> schedule = LearnedSchedule(jnp.array(8.0), jnp.array(16.0), jnp.log(jnp.array([3.0, 1.0])))
    >>> round(float(schedule.log_snr(jnp.array(0.5))), 6)
    -4.0
    """

    high: Float[Array, ""] = parameter()
    fall: Float[Array, ""] = parameter(positive)
    shares: Float[Array, " parts"] = parameter()

    def log_snr(self, t: Float[Array, ""]) -> Float[Array, ""]:
        parts = len(self.shares)
        done = jnp.concatenate(
            [jnp.zeros(1, t.dtype), jnp.cumsum(jax.nn.softmax(self.shares)).astype(t.dtype)]
        )
        knots = jnp.linspace(0, 1, parts + 1, dtype=t.dtype)
        return self.high.astype(t.dtype) - self.fall.astype(t.dtype) * jnp.interp(t, knots, done)


# -- paths ------------------------------------------------------------------------------------------


class AbstractPath(eqx.Module):
    """Which α and σ have a given ratio."""

    @abc.abstractmethod
    def scales(self, log_snr: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """α and σ with log(α²/σ²) = λ."""


class VariancePreserving(AbstractPath):
    """α² + σ² = 1: data of unit variance keep it.

    >>> a, s = VariancePreserving().scales(jnp.array(1.0))
    >>> round(float(a**2 + s**2), 6)
    1.0
    """

    def scales(self, log_snr: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.sqrt(jax.nn.sigmoid(log_snr)), jnp.sqrt(jax.nn.sigmoid(-log_snr))


class VarianceExploding(AbstractPath):
    """α = 1: noise is added, and nothing shrinks.

    >>> [float(v) for v in VarianceExploding().scales(jnp.array(0.0))]
    [1.0, 1.0]
    """

    def scales(self, log_snr: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.ones_like(log_snr), jnp.exp(-0.5 * log_snr)


class StraightPath(AbstractPath):
    """α + σ = 1: each datum goes straight to its noise, as in flow matching.

    >>> [float(v) for v in StraightPath().scales(jnp.array(0.0))]
    [0.5, 0.5]
    """

    def scales(self, log_snr: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jax.nn.sigmoid(0.5 * log_snr), jax.nn.sigmoid(-0.5 * log_snr)


# -- stages and kernels -----------------------------------------------------------------------------


class Stage(NamedTuple):
    """How much of a datum is left at some time: λ, α and σ."""

    log_snr: Any
    alpha: Any
    sigma: Any

    @property
    def size(self) -> Any:
        """The standard deviation of x_t for data of unit variance, √(α² + σ²)."""
        return jnp.sqrt(self.alpha**2 + self.sigma**2)


# a datum without noise
DATA = Stage(math.inf, 1.0, 0.0)


def _gained(less: Stage, more: Stage) -> Any:
    """1 − SNR_t / SNR_s of a noisier stage t and a cleaner stage s."""
    return -jnp.expm1(less.log_snr - more.log_snr)


def noising_step(clean: Stage, noisy: Stage) -> tuple[Any, Any]:
    """The factor and the variance of q(x_t | x_s) = N(factor x_s, variance I), from `clean` s to `noisy` t.

    >>> path = VariancePreserving()
    >>> s, t = (Stage(v, *path.scales(v)) for v in (jnp.array(2.0), jnp.array(-1.0)))
    >>> factor, variance = noising_step(s, t)
    >>> round(float(factor**2 + variance), 6)
    1.0
    """
    return noisy.alpha / clean.alpha, noisy.sigma**2 * _gained(noisy, clean)


def noising_posterior(clean: Stage, noisy: Stage) -> tuple[Any, Any, Any]:
    """a, b and the variance of q(x_s | x_t, x) = N(a x_t + b x, variance I), from `noisy` back to `clean`.

        a = α_t σ_s² / (α_s σ_t²),   b = α_s (1 − SNR_t / SNR_s),   variance = σ_s² (1 − SNR_t / SNR_s).

    >>> stage = Stage(jnp.array(0.0), *VariancePreserving().scales(jnp.array(0.0)))
    >>> [float(v) for v in noising_posterior(DATA, stage)]
    [0.0, 1.0, 0.0]
    """
    gained = _gained(noisy, clean)
    back = noisy.alpha * clean.sigma**2 / (clean.alpha * noisy.sigma**2)
    return back, clean.alpha * gained, clean.sigma**2 * gained


def reverse_variance(clean: Stage, noisy: Stage, share: Any) -> Any:
    """A variance of the step back from `noisy` to `clean`, between two that are exact for some data.

    With a share of 0 that of q(x_s | x_t, x), exact for a single datum; with 1 that of data N(0, I), which
    is β where variance is preserved; between them the logarithm is mixed.

    >>> s, t = (Stage(v, *VariancePreserving().scales(v)) for v in (jnp.array(2.0), jnp.array(-1.0)))
    >>> bool(jnp.isclose(reverse_variance(s, t, 0.0), noising_posterior(s, t)[2]))
    True
    >>> bool(jnp.isclose(reverse_variance(s, t, 1.0), noising_step(s, t)[1]))
    True
    """
    wide, narrow = jax.nn.sigmoid(-noisy.log_snr), jax.nn.sigmoid(-clean.log_snr)
    return clean.size**2 * _gained(noisy, clean) * wide**share * narrow ** (1 - share)


# -- parametrisations -------------------------------------------------------------------------------


class AbstractParametrisation(eqx.Module):
    """What a network says of x_t = α x + σ ε, and how datum and noise follow from it."""

    @abc.abstractmethod
    def datum(self, output: Array, x: Array, stage: Stage) -> Array:
        """The datum x that the network has in mind."""

    @abc.abstractmethod
    def noise(self, output: Array, x: Array, stage: Stage) -> Array:
        """The noise ε that the network has in mind."""

    @abc.abstractmethod
    def target(self, datum: Array, noise: Array, stage: Stage) -> Array:
        """What the network should say, given both."""


class PredictsNoise(AbstractParametrisation):
    """ε (Ho et al. 2020).

    >>> PredictsNoise().noise(jnp.ones(1), jnp.zeros(1), DATA).tolist()
    [1.0]
    """

    def datum(self, output: Array, x: Array, stage: Stage) -> Array:
        return (x - stage.sigma * output) / stage.alpha

    def noise(self, output: Array, x: Array, stage: Stage) -> Array:
        return output

    def target(self, datum: Array, noise: Array, stage: Stage) -> Array:
        return noise


class PredictsDatum(AbstractParametrisation):
    """x, the mean of the data that x_t may come from: a denoiser.

    >>> PredictsDatum().datum(jnp.ones(1), jnp.zeros(1), DATA).tolist()
    [1.0]
    """

    def datum(self, output: Array, x: Array, stage: Stage) -> Array:
        return output

    def noise(self, output: Array, x: Array, stage: Stage) -> Array:
        return (x - stage.alpha * output) / stage.sigma

    def target(self, datum: Array, noise: Array, stage: Stage) -> Array:
        return datum


class PredictsScore(AbstractParametrisation):
    """∇ log p_t(x_t) = −E[ε | x_t] / σ, the force towards the data (Tweedie's formula).

    >>> stage = Stage(0.0, 0.6, 0.8)
    >>> PredictsScore().target(jnp.ones(1), jnp.ones(1), stage).tolist()
    [-1.25]
    """

    def datum(self, output: Array, x: Array, stage: Stage) -> Array:
        return (x + stage.sigma**2 * output) / stage.alpha

    def noise(self, output: Array, x: Array, stage: Stage) -> Array:
        return -stage.sigma * output

    def target(self, datum: Array, noise: Array, stage: Stage) -> Array:
        return -noise / stage.sigma


class PredictsVelocity(AbstractParametrisation):
    """v = α ε − σ x, the direction in which x_t turns where variance is preserved (Salimans and Ho 2022).

    For data N(0, I) it is zero at every time.

    >>> PredictsVelocity().target(jnp.ones(1), jnp.zeros(1), Stage(0.0, 0.6, 0.8)).tolist()
    [-0.8]
    """

    def datum(self, output: Array, x: Array, stage: Stage) -> Array:
        return (stage.alpha * x - stage.sigma * output) / (stage.alpha**2 + stage.sigma**2)

    def noise(self, output: Array, x: Array, stage: Stage) -> Array:
        return (stage.sigma * x + stage.alpha * output) / (stage.alpha**2 + stage.sigma**2)

    def target(self, datum: Array, noise: Array, stage: Stage) -> Array:
        return stage.alpha * noise - stage.sigma * datum


class PredictsDisplacement(AbstractParametrisation):
    """u = ε − x, the velocity along a `StraightPath`: what flow matching learns (Lipman et al. 2023).

    >>> PredictsDisplacement().target(jnp.ones(1), jnp.zeros(1), Stage(0.0, 0.5, 0.5)).tolist()
    [-1.0]
    """

    def datum(self, output: Array, x: Array, stage: Stage) -> Array:
        return (x - stage.sigma * output) / (stage.alpha + stage.sigma)

    def noise(self, output: Array, x: Array, stage: Stage) -> Array:
        return (x + stage.alpha * output) / (stage.alpha + stage.sigma)

    def target(self, datum: Array, noise: Array, stage: Stage) -> Array:
        return noise - datum


# -- weights of the squared error of the noise ------------------------------------------------------


def likelihood_weight(stage: Stage, slope: Array) -> Array:
    """−λ′(t)/2: the mean over times is minus the continuous-time bound, up to its ends.

    >>> float(likelihood_weight(DATA, jnp.array(-20.0)))
    10.0
    """
    return -0.5 * slope


def simple_weight(stage: Stage, slope: Array) -> Array:
    """One: the simple loss of Ho et al. (2020), which has little regard for small noise.

    >>> float(simple_weight(DATA, jnp.array(-20.0)))
    1.0
    """
    return jnp.ones_like(slope)


def flow_matching_weight(stage: Stage, slope: Array) -> Array:
    """(σ λ′/2)²: the mean square error of the velocity dx_t/dt, which flow matching lowers.

    >>> float(flow_matching_weight(Stage(0.0, 0.5, 0.5), jnp.array(-8.0)))
    4.0
    """
    return (0.5 * stage.sigma * slope) ** 2
