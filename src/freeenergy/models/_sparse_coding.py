"""Sparse coding: few of many sources are active, and Laplace's method stands in for the posterior."""

from __future__ import annotations

import abc
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from .._core import LOG_2PI, Reals, buffer, cholesky, log1p_square, log_det_cholesky, parameter, positive
from ..distributions import AbstractDistribution, Full, Gaussian
from ..inference import (
    Amortised,
    FixedPoint,
    ProximalGradient,
    importance_draws,
    importance_resample,
    minimise,
    self_normalised_mean,
)
from ._base import AbstractBoundedModel, AbstractCoded, AbstractExpectationMaximisation

_MOST_STEPS = 2000
# of that of the data: less noise would make the inner problem as hard as a linear programme
_LEAST_VARIANCE = 1e-3
# a proposal need not stand still: importance weights correct it
_PARABOLA_TOL = 1e-2
_MOST_PARABOLAS = 100


class AbstractSource(eqx.Module):
    """The density exp(−E(x)) / Z of one source, as an energy with what optimisation asks of it."""

    @abc.abstractmethod
    def energy(self, x: Array) -> Array:
        """E, entry by entry."""

    @abc.abstractmethod
    def log_normaliser(self) -> Array:
        """log Z = log ∫ exp(−E)."""

    @abc.abstractmethod
    def curvature(self, x: Array) -> Array:
        """E″, entry by entry, positive: what Laplace's method uses."""

    @abc.abstractmethod
    def parabola(self, x: Array) -> Array:
        """E′(x)/x: the curvature of the parabola that touches E at x and at −x, and is nowhere below it."""

    @abc.abstractmethod
    def smooth_energy(self, x: Array) -> Array:
        """The part of E that `proximal` leaves out."""

    @abc.abstractmethod
    def steepest(self) -> float:
        """The largest curvature of `smooth_energy`."""

    @abc.abstractmethod
    def proximal(self, v: Array, step: Array) -> Array:
        """argmin_x ½(x − v)² + step · (the part of E with kinks)."""

    @abc.abstractmethod
    def sample(self, shape: tuple[int, ...], *, key: Array) -> Array:
        """Draws."""


class LaplaceSource(AbstractSource):
    """E = α|x|, Z = 2/α: the mode of sparse coding is then basis pursuit denoising.

    E″ is nothing but a spike at zero; Laplace's method takes that of (α/β) log cosh(βx) instead.

    Attributes:
        alpha: α.
        sharpness: β, for the curvature only.

    >>> LaplaceSource(2.0).proximal(jnp.array([3.0, -0.5]), jnp.array(0.5)).tolist()
    [2.0, -0.0]
    """

    alpha: float = eqx.field(static=True, default=1.0)
    sharpness: float = eqx.field(static=True, default=50.0)

    def energy(self, x: Array) -> Array:
        return self.alpha * jnp.abs(x)

    def log_normaliser(self) -> Array:
        return jnp.asarray(math.log(2 / self.alpha))

    def curvature(self, x: Array) -> Array:
        return LogCoshSource(self.alpha, self.sharpness).curvature(x)

    def parabola(self, x: Array) -> Array:
        return self.alpha / jnp.abs(x)

    def smooth_energy(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def steepest(self) -> float:
        return 0.0

    def proximal(self, v: Array, step: Array) -> Array:
        return jnp.sign(v) * jnp.maximum(jnp.abs(v) - self.alpha * step, 0)

    def sample(self, shape: tuple[int, ...], *, key: Array) -> Array:
        return jax.random.laplace(key, shape) / self.alpha


class CauchySource(AbstractSource):
    """E = log(β² + x²), Z = π/β; not convex, so that a mode is a local one.

    E″ = 2 (β² − x²) / (β² + x²)² is negative far from zero, where a hundredth of E′/x takes its place:
    Laplace's method needs a Gaussian, also where the search has not quite reached the mode.

    >>> round(float(CauchySource(2.0).log_normaliser()), 6)
    0.451583
    """

    beta: float = eqx.field(static=True, default=1.0)

    def energy(self, x: Array) -> Array:
        return 2 * math.log(self.beta) + log1p_square(x / self.beta)

    def log_normaliser(self) -> Array:
        return jnp.asarray(math.log(math.pi / self.beta))

    def curvature(self, x: Array) -> Array:
        whole = self.beta**2 + x**2
        # (β² − x²) / (β² + x²), also where x² overflows
        return 2 / whole * jnp.maximum(2 * self.beta**2 / whole - 1, 0.01)

    def parabola(self, x: Array) -> Array:
        return 2 / (self.beta**2 + x**2)

    def smooth_energy(self, x: Array) -> Array:
        return self.energy(x)

    def steepest(self) -> float:
        return 2 / self.beta**2

    def proximal(self, v: Array, step: Array) -> Array:
        return v

    def sample(self, shape: tuple[int, ...], *, key: Array) -> Array:
        return self.beta * jax.random.cauchy(key, shape)


class LogCoshSource(AbstractSource):
    """E = (α/β) log cosh(βx): like Laplace far from zero, smooth at zero.

    Z = √π Γ(p/2) / (β Γ((p+1)/2)) with p = α/β.  α = 1, β = ½ is the logistic density.

    >>> round(float(LogCoshSource(1.0, 0.5).log_normaliser()), 6)
    1.386294
    """

    alpha: float = eqx.field(static=True, default=1.0)
    beta: float = eqx.field(static=True, default=1.0)

    def energy(self, x: Array) -> Array:
        # log cosh v = |v| + log(1 + e^{−2|v|}) − log 2, which does not overflow
        v = jnp.abs(self.beta * x)
        return self.alpha / self.beta * (v + jnp.log1p(jnp.exp(-2 * v)) - math.log(2))

    def log_normaliser(self) -> Array:
        p = jnp.asarray(self.alpha / self.beta)
        return 0.5 * math.log(math.pi) + gammaln(p / 2) - gammaln((p + 1) / 2) - math.log(self.beta)

    def curvature(self, x: Array) -> Array:
        decay = jnp.exp(-2 * jnp.abs(self.beta * x))
        return self.alpha * self.beta * 4 * decay / (1 + decay) ** 2

    def parabola(self, x: Array) -> Array:
        return self.alpha * jnp.tanh(self.beta * x) / x

    def smooth_energy(self, x: Array) -> Array:
        return self.energy(x)

    def steepest(self) -> float:
        return self.alpha * self.beta

    def proximal(self, v: Array, step: Array) -> Array:
        return v

    def sample(self, shape: tuple[int, ...], *, key: Array) -> Array:
        half = self.alpha / self.beta / 2
        one, two = jax.random.split(key)
        # the log-odds of a Beta(p/2, p/2)
        odds = jax.random.loggamma(one, half, shape) - jax.random.loggamma(two, half, shape)
        return odds / (2 * self.beta)


class _Either(AbstractDistribution):
    """Sources from one density in half of the cases, and from their prior in the other half."""

    one: Gaussian
    source: AbstractSource

    def _prior(self, x: Array) -> Array:
        return -jnp.sum(self.source.energy(x) + self.source.log_normaliser())

    def log_prob(self, x: Array) -> Array:
        return jnp.logaddexp(self.one.log_prob(x), self._prior(x)) - math.log(2)

    def sample(self, *, key: Array) -> Array:
        which, one, prior = jax.random.split(key, 3)
        drawn = self.source.sample(self.one.mean.shape, key=prior)
        return jnp.where(jax.random.bernoulli(which), self.one.sample(key=one), drawn)


class SparseStatistics(NamedTuple):
    """Σ w, Σ w E[x̃x̃ᵀ], Σ w E[y x̃ᵀ] and Σ w E[y·y], with x̃ = (x, 1)."""

    weight: Array
    second: Array
    cross: Array
    power: Array


class SparseCoding(AbstractBoundedModel, AbstractExpectationMaximisation[SparseStatistics], AbstractCoded):
    """x_k ~ exp(−E(x_k))/Z independently, y | x ~ N(C x + c, I/λ), with as many sources as one likes.

    Given y the mode x⁰ of the sources solves a regularised least-squares problem (for Laplace sources,
    basis pursuit denoising), and with P = λCᵀC + diag E″(x⁰) Laplace's method gives

        p(x | y) ≈ N(x⁰, P⁻¹),     p(y) ≈ p(x⁰, y) (2π)^{K/2} |P|^{−½}.

    Importance sampling has the evidence as a lower bound that comes as close as one likes, with draws from
    `recognise`.

    The M step is least squares, C̃ = ⟨y x̃ᵀ⟩ ⟨x̃x̃ᵀ⟩⁻¹, with noise of a thousandth of the variance of y or
    more.  NaN in y is marginalised.

    Attributes:
        dictionary: C, (dim, sources).
        mean: c.
        precision: λ.
        source: the density of a source.

    >>> model = SparseCoding(jnp.array([[1.2]]), jnp.zeros(1), jnp.array(40.0), LaplaceSource(1.5))
    >>> round(float(jnp.exp(model.laplace_log_evidence(jnp.array([2.0])))), 10)
    0.0523149876
    """

    dictionary: Array = parameter()
    mean: Array = parameter()
    precision: Array = parameter(positive)
    source: AbstractSource = buffer()

    rows_at_once = 64

    def prepare(self) -> Array:
        """The step of the inner iteration: one over a bound on the curvature of the energy."""
        gram = self.dictionary.T @ self.dictionary
        return 1 / (self.precision * jnp.max(jnp.sum(jnp.abs(gram), axis=1)) + self.source.steepest())

    def _visible(self, y: Array) -> tuple[Array, Array]:
        """C with the rows of unobserved entries zero, and y − c likewise."""
        observed = ~jnp.isnan(y)
        return jnp.where(observed[:, None], self.dictionary, 0), jnp.where(observed, y - self.mean, 0)

    def _mode(self, y: Array, step: Array, tol: float) -> Array:
        c, gap = self._visible(y)

        def smooth(x: Array) -> Array:
            return self.precision / 2 * jnp.sum((gap - c @ x) ** 2) + jnp.sum(self.source.smooth_energy(x))

        search = ProximalGradient(self.source.proximal, step, tol, max_steps=_MOST_STEPS)
        return minimise(smooth, jnp.zeros(c.shape[1], c.dtype), search).point

    def mode(self, y: Array) -> Array:
        """x⁰ = argmin λ/2 ‖y − c − Cx‖² + Σ E(x_k), by an accelerated proximal gradient."""
        return self._mode(y, self.prepare(), 1e-13)

    def encode(self, y: Array) -> Array:
        """The mode: the sparse code."""
        return self.mode(y)

    def energy(self, y: Array, x: Array) -> Array:
        """−log p(x, y)."""
        c, gap = self._visible(y)
        residual = gap - c @ x
        seen = jnp.sum((~jnp.isnan(y)).astype(x.dtype))
        noise = self.precision * jnp.vdot(residual, residual) + seen * (LOG_2PI - jnp.log(self.precision))
        return noise / 2 + jnp.sum(self.source.energy(x) + self.source.log_normaliser())

    def latent(self, y: Array) -> Reals:
        """x, the sources."""
        return Reals(self.dictionary.shape[1:])

    def _factor(self, y: Array, x: Array) -> Array:
        """The Cholesky factor of P at x."""
        c, _ = self._visible(y)
        return cholesky(self.precision * c.T @ c + jnp.diag(self.source.curvature(x)))[0]

    def _evidence(self, y: Array, x: Array, factor: Array) -> Array:
        return (len(x) * LOG_2PI - log_det_cholesky(factor)) / 2 - self.energy(y, x)

    def laplace_log_evidence(self, y: Array) -> Array:
        """log p(y) by Laplace's method."""
        x = self.mode(y)
        return self._evidence(y, x, self._factor(y, x))

    def laplace_posterior(self, y: Array) -> Gaussian:
        """N(x⁰, P⁻¹), Laplace's approximation of p(x | y)."""
        x = self.mode(y)
        return Gaussian(x, Full(_inverse(self._factor(y, x))))

    def recognise(self, y: Array) -> AbstractDistribution:
        """q(x | y) for importance sampling: a Gaussian in half of the cases, the prior in the other half.

        The Gaussian is the posterior with each E replaced by a parabola that touches it from above at
        ±ξ, with ξ² = E[x²]: wider than Laplace's where a mode is at a kink.  Because of the prior no
        weight exceeds 2 p(y | x).
        """
        c, gap = self._visible(y)
        gram, pull = self.precision * c.T @ c, self.precision * c.T @ gap

        def posterior(size: Array) -> tuple[Array, Array]:
            factor = cholesky(gram + jnp.diag(self.source.parabola(size)))[0]
            return jax.scipy.linalg.cho_solve((factor, True), pull), factor

        def bound(size: Array) -> Array:
            """−log ∫ exp(…) with the parabolas, but for what does not depend on ξ."""
            mean, factor = posterior(size)
            height = self.source.energy(size) - self.source.parabola(size) * size**2 / 2
            return jnp.sum(height) + (log_det_cholesky(factor) - jnp.vdot(pull, mean)) / 2

        def touching(size: Array) -> Array:
            mean, factor = posterior(size)
            return jnp.sqrt(mean**2 + jnp.diagonal(_inverse(factor)))

        def apart(new: Array, old: Array) -> Array:
            return jnp.max(jnp.abs(jnp.log(new / old)))

        search = FixedPoint(touching, _PARABOLA_TOL, apart, max_steps=_MOST_PARABOLAS)
        mean, factor = posterior(minimise(bound, jnp.ones(c.shape[1], c.dtype), search).point)
        return _Either(Gaussian(mean, Full(_inverse(factor))), self.source)

    @property
    def recognition(self) -> Amortised:
        """What makes q(x | y) for importance sampling."""
        return Amortised(self.recognise)

    def expect_prepared(
        self, prepared: Array, x: Array, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[SparseStatistics, Array]:
        """Moments under the approximate posterior, and minus the approximate evidence."""

        def one(y: Array) -> tuple[Array, Array, Array, Array]:
            # the evidence is flat at its mode: a smaller error would not be seen
            mode = self._mode(y, prepared, 1e-7)
            factor = self._factor(y, mode)
            code = jnp.append(mode, 1.0)
            spread = jnp.pad(_inverse(factor), ((0, 1), (0, 1)))
            second = spread + jnp.outer(code, code)
            whole = jnp.concatenate([self.dictionary, self.mean[:, None]], axis=1)
            hidden = jnp.isnan(y)
            guess = whole @ second
            cross = jnp.where(hidden[:, None], guess, jnp.outer(jnp.where(hidden, 0, y), code))
            unseen = jnp.sum(guess * whole, axis=1) + 1 / self.precision
            power = jnp.sum(jnp.where(hidden, unseen, jnp.where(hidden, 0, y) ** 2))
            return second, cross, power, -self._evidence(y, mode, factor)

        second, cross, power, free = jax.vmap(one)(x)
        statistics = SparseStatistics(
            jnp.sum(weight),
            jnp.einsum("n,nij->ij", weight, second),
            jnp.einsum("n,nij->ij", weight, cross),
            jnp.vdot(weight, power),
        )
        return statistics, jnp.vdot(weight, jnp.where(weight > 0, free, 0))

    def maximise(self, statistics: SparseStatistics) -> SparseCoding:
        weight, second, cross, power = statistics
        whole = jnp.linalg.solve(second, cross.T).T
        residual = power - 2 * jnp.sum(whole * cross) + jnp.sum((whole @ second) * whole)
        square = power / (weight * len(whole))
        spread = square - jnp.mean((cross[:, -1] / weight) ** 2)
        # rows that never vary have no unit but their own
        varies = spread > 8 * jnp.finfo(spread.dtype).eps * square
        least = _LEAST_VARIANCE * jnp.where(varies, spread, 1)
        variance = jnp.maximum(residual / (weight * len(whole)), least)
        return SparseCoding(whole[:, :-1], whole[:, -1], 1 / variance, self.source)

    def sample(self, *, key: Array) -> Array:
        """A draw of y."""
        source_key, noise_key = jax.random.split(key)
        x = self.source.sample(self.dictionary.shape[1:], key=source_key)
        noise = jax.random.normal(noise_key, self.mean.shape) / jnp.sqrt(self.precision)
        return self.dictionary @ x + self.mean + noise

    def complete_mean(self, y: Array, *, samples: int | None = None, key: Array | None = None) -> Array:
        """`y` with each NaN replaced by what the most probable sources say.

        With `samples` and a `key`, by its mean given what is observed, by importance sampling.
        """
        if samples is None:
            x = self.mode(y)
        elif key is None:
            raise ValueError("SparseCoding.complete_mean needs a 'key' to draw 'samples'. Got None.")
        else:
            draws, log_weights = importance_draws(
                self.energy, self.recognition, y, samples=samples, key=key
            )
            x, _ = self_normalised_mean(log_weights, draws)
        return jnp.where(jnp.isnan(y), self.dictionary @ x + self.mean, y)

    def complete_sample(self, y: Array, *, samples: int | None = None, key: Array) -> Array:
        """`y` with the NaN entries drawn, with sources from the approximate posterior.

        With `samples`, sources are drawn by importance resampling.
        """
        source_key, noise_key = jax.random.split(key)
        if samples is None:
            x = self.laplace_posterior(y).sample(key=source_key)
        else:
            x = importance_resample(self.energy, self.recognition, y, samples=samples, key=source_key)
        return self.complete_given(y, x, key=noise_key)

    def complete_given(self, y: Array, x: Array, *, key: Array) -> Array:
        """`y` with the NaN entries drawn given the sources x."""
        noise = jax.random.normal(key, y.shape) / jnp.sqrt(self.precision)
        return jnp.where(jnp.isnan(y), self.dictionary @ x + self.mean + noise, y)


def _inverse(factor: Array) -> Array:
    return jax.scipy.linalg.cho_solve((factor, True), jnp.eye(len(factor), dtype=factor.dtype))
