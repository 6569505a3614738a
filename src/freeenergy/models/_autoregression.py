"""Vector autoregressions."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from .._core import LOG_2PI, buffer, log_det_cholesky, parameter
from ..distributions import AbstractCovariance, Full
from ._base import AbstractExpectationMaximisation
from ._regressions import Sums
from ._series import AbstractRescalableSeries, Series
from ._state_space import AbstractLinearSystem, LinearGaussianSSM
from ._structural import stationary_covariance
from ._units import in_units_of_inputs


class AutoRegression(AbstractLinearSystem, AbstractExpectationMaximisation[Sums], AbstractRescalableSeries):
    """y_t = Φ_1 y_{t−1} + … + Φ_p y_{t−p} + B u_t + a + w_t, w_t ~ N(0, Q), for vectors.

    Also known as VAR(p), and AR(p) for numbers.  A linear system without noise of observation whose state
    is the last p values; missing values are states like others.  The p values before the
    second are N(start_mean, start_covariance).

    Attributes:
        coefficients: Φ.
        offset: a.
        noise: Q.
        start_mean, start_covariance: of (y_1, y_0, …), newest first.
        input_coefficients: B, for series with `inputs`.
    """

    rows_at_once: ClassVar[int] = 64

    coefficients: Float[Array, "order dim dim"] = parameter()
    offset: Float[Array, " dim"] = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    start_mean: Float[Array, " state"] = buffer()
    start_covariance: Float[Array, "state state"] = buffer()
    input_coefficients: Float[Array, "dim inputs"] | None = parameter(default=None)

    def system(self, inputs: Float[Array, "time inputs"] | None = None) -> LinearGaussianSSM:
        p, dim, _ = self.coefficients.shape
        size = p * dim
        top = self.coefficients.swapaxes(0, 1).reshape(dim, size)
        driven = self.input_coefficients
        if driven is not None:
            driven = jnp.zeros((size, driven.shape[1])).at[:dim].set(driven)
        return LinearGaussianSSM(
            self.start_mean,
            Full(self.start_covariance),
            jnp.eye(size, k=-dim).at[:dim].set(top),
            jnp.zeros(size).at[:dim].set(self.offset),
            Full(jnp.zeros((size, size)).at[:dim, :dim].set(self.noise.matrix())),
            jnp.eye(dim, size),
            jnp.zeros(dim),
            Full(jnp.zeros((dim, dim))),
            driven,
        )

    def stationary(self) -> AutoRegression:
        """The same with the start that it would have after ever so many steps without inputs."""
        p, dim, _ = self.coefficients.shape
        mean = jnp.linalg.solve(jnp.eye(dim) - jnp.sum(self.coefficients, axis=0), self.offset)
        return eqx.tree_at(
            lambda m: (m.start_mean, m.start_covariance), self, (jnp.tile(mean, p), self.stationary_start())
        )

    def stationary_start(self) -> Float[Array, "state state"]:
        """The covariance of p values in a row after ever so many steps."""
        system = self.system()
        return stationary_covariance(system.transition, system.noise.matrix())

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        return self.system().sample(length, key=key, inputs=inputs)

    def prepare(self) -> LinearGaussianSSM:
        return self.system()

    def expect_prepared(
        self,
        prepared: LinearGaussianSSM,
        x: Any,
        weight: Float[Array, " rows"],
        *,
        temperature: Float[Array, ""],
        incomplete: bool,
    ) -> tuple[Sums, Float[Array, ""]]:
        statistics, free = prepared.expect(x, weight, temperature=temperature, incomplete=incomplete)
        return statistics.transition, free

    def maximise(self, statistics: Sums) -> AutoRegression:
        p, dim, _ = self.coefficients.shape
        top = statistics._replace(xz=statistics.xz[:dim], xx=statistics.xx[:dim, :dim])
        held = jnp.zeros_like(top.xz)
        W, noise = top.fit(held, (True,) * held.shape[1], self.noise, True)
        coefficients = W[:, : p * dim].reshape(dim, p, dim).swapaxes(0, 1)
        return AutoRegression(
            coefficients,
            W[:, -1],
            noise,
            self.start_mean,
            self.start_covariance,
            None if self.input_coefficients is None else W[:, p * dim : -1],
        )

    @eqx.filter_jit
    def in_units(
        self,
        shift: Array,
        scale: Array,
        input_shift: Array | None = None,
        input_scale: Array | None = None,
    ) -> AutoRegression:
        """The law of shift + scale · y given input_shift + input_scale · u."""
        p = len(self.coefficients)
        coefficients = self.coefficients * (scale[:, None] / scale[None])[None]
        B, a = in_units_of_inputs(self.input_coefficients, self.offset, input_shift, input_scale)
        every = jnp.tile(scale, p)
        return AutoRegression(
            coefficients,
            scale * a + shift - jnp.sum(coefficients, axis=0) @ shift,
            self.noise.scale(scale),
            jnp.tile(shift, p) + every * self.start_mean,
            self.start_covariance * every[:, None] * every[None],
            None if B is None else B * scale[:, None],
        )


def stationary_coefficients(
    free: Float[Array, "order dim dim"], noise: Float[Array, "dim dim"]
) -> Float[Array, "order dim dim"]:
    """Φ of a stationary vector autoregression with noise Q, from free reals of its shape.

    Partial autocorrelations P = B⁻¹F with B Bᵀ = I + F Fᵀ have singular values below one and are otherwise
    free; Whittle's recursion turns them into coefficients for the variance I of a value, and a change of
    coordinates gives the noise that was asked for.

    References:
        Ansley and Kohn (1986), A note on reparameterizing a vector autoregressive moving average model to
        enforce stationarity.

    >>> stationary_coefficients(jnp.array([[[0.75]]]), jnp.ones((1, 1))).round(6).tolist()
    [[[0.6]]]
    """
    eye = jnp.eye(free.shape[1], dtype=free.dtype)
    ahead, behind = eye, eye
    forward, backward = free[:0], free[:0]
    for own in free:
        partial = solve_triangular(jnp.linalg.cholesky(eye + own @ own.T), own, lower=True)
        root, reverse = jnp.linalg.cholesky(ahead), jnp.linalg.cholesky(behind)
        last = solve_triangular(reverse, (root @ partial).T, lower=True, trans=1).T
        first = solve_triangular(root, (reverse @ partial.T).T, lower=True, trans=1).T
        forward, backward = (
            jnp.concatenate([forward - last[None] @ backward[::-1], last[None]]),
            jnp.concatenate([backward - first[None] @ forward[::-1], first[None]]),
        )
        ahead = root @ (eye - partial @ partial.T) @ root.T
        behind = reverse @ (eye - partial.T @ partial) @ reverse.T
    change = jnp.linalg.cholesky(noise)
    change = solve_triangular(jnp.linalg.cholesky(ahead), change.T, lower=True, trans=1).T
    return change[None] @ forward @ jnp.linalg.inv(change)[None]


class StationaryAutoRegression(eqx.Module):
    """An autoregression that has gone on for ever, in coordinates of which every value is stationary.

    `regression` is the same as an `AutoRegression`, whose first values follow the stationary law.

    Attributes:
        free: of `stationary_coefficients`.
        mean: of a value.
        noise: Q, but for `floor`.
        floor: the smallest variance of the noise.
        complete: whether series are single and without NaN, of which log p needs no recursion.
    """

    free: Float[Array, "order dim dim"] = parameter()
    mean: Float[Array, " dim"] = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    floor: float | Float[Array, ""] = buffer(default=0.0)
    complete: bool = eqx.field(static=True, default=False)

    def regression(self) -> AutoRegression:
        """The same model in coefficients."""
        p, dim, _ = self.free.shape
        noise = self.noise.matrix() + self.floor * jnp.eye(dim)
        coefficients = stationary_coefficients(self.free, noise)
        offset = self.mean - jnp.sum(coefficients, axis=0) @ self.mean
        start = jnp.zeros((p * dim, p * dim))
        model = AutoRegression(coefficients, offset, Full(noise), jnp.tile(self.mean, p), start)
        return eqx.tree_at(lambda m: m.start_covariance, model, model.stationary_start())

    def log_prob(self, series: Series) -> Float[Array, ""]:
        """log p(y)."""
        model = self.regression()
        return _log_prob_complete(model, series) if self.complete else model.log_prob(series)


def _log_prob_complete(model: AutoRegression, series: Series) -> Float[Array, ""]:
    """log p of the first p values, and of the errors that come after them."""
    p, dim, _ = model.coefficients.shape
    y = jnp.where(series.real[:, None], series.values, 0)
    # before the start stands the mean, which is not counted
    y = jnp.concatenate([y, jnp.zeros((p, dim), y.dtype)])
    real = jnp.concatenate([series.real, jnp.zeros(p, bool)])
    lags = [y[p - k - 1 : -k - 1] for k in range(p)]
    error = y[p:] - model.offset[None] - sum(lag @ c.T for lag, c in zip(lags, model.coefficients))
    later = jnp.where(real[p:, None], error, 0)
    root = jnp.linalg.cholesky(model.noise.matrix())
    white = solve_triangular(root, later.T, lower=True)
    first = y[:p][::-1].ravel() - model.start_mean
    there = jnp.repeat(real[:p][::-1], dim)
    eye = jnp.eye(p * dim, dtype=y.dtype)
    start = jnp.linalg.cholesky(jnp.where(there[:, None] & there[None, :], model.start_covariance, eye))
    begun = solve_triangular(start, jnp.where(there, first, 0), lower=True)
    count = jnp.sum(real[p:], dtype=y.dtype)
    lengths = jnp.sum(white**2) + jnp.sum(begun**2) + jnp.sum(real, dtype=y.dtype) * dim * LOG_2PI
    return -0.5 * (lengths + count * log_det_cholesky(root) + log_det_cholesky(start))


def autocovariance(
    series: list[Float[np.ndarray, "time dim"]], weight: Float[np.ndarray, " rows"], p: int
) -> Float[np.ndarray, "state state"]:
    """Covariance of p values in a row, newest first, of series about zero; zeros fill the gaps.

    Windows that reach beyond the ends are taken as zero there, which keeps the matrix definite.  On the
    host, as a start.

    >>> autocovariance([np.array([[1.0], [-1.0], [1.0]])], np.ones(1), 2).round(3).tolist()
    [[1.001, -0.667], [-0.667, 1.001]]
    """
    dim = series[0].shape[1]
    total = np.zeros((p * dim, p * dim))
    for x, w in zip(series, weight, strict=True):
        padded = np.zeros((len(x) + 2 * (p - 1), dim))
        padded[p - 1 : p - 1 + len(x)] = np.nan_to_num(x)
        windows = np.concatenate([padded[p - 1 - k : len(padded) - k] for k in range(p)], axis=1)
        total += w * windows.T @ windows
    total /= sum(w * len(x) for x, w in zip(series, weight, strict=True))
    return total + 1e-3 * np.eye(p * dim)
