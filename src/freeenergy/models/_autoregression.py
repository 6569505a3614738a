"""Vector autoregressions."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from .._core import buffer, parameter
from ..distributions import AbstractCovariance, Full
from ..inference import GaussianBelief
from ._base import AbstractExpectationMaximisation
from ._series import AbstractSequenceModel, Series
from ._state_space import LinearGaussianSSM, Sums, fitted_covariance


class AutoRegression(AbstractSequenceModel, AbstractExpectationMaximisation[Sums]):
    """y_t = Φ_1 y_{t−1} + … + Φ_p y_{t−p} + B u_t + a + w_t, w_t ~ N(0, Q), for vectors.

    A linear system without noise of observation whose state is the last p values; missing values are
    states like others.  The p values before the second are N(start_mean, start_covariance).

    Attributes:
        coefficients: Φ, shape (p, dim, dim).
        offset: a.
        noise: Q.
        start_mean, start_covariance: of (y_1, y_0, …), newest first.
        input_coefficients: B, for series with `inputs`.
    """

    rows_at_once: ClassVar[int] = 64

    coefficients: Array = parameter()
    offset: Array = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    start_mean: Array = buffer()
    start_covariance: Array = buffer()
    input_coefficients: Array | None = parameter(default=None)

    def system(self, inputs: Array | None = None) -> LinearGaussianSSM:
        """The same model as a linear system."""
        p, dim, _ = self.coefficients.shape
        size = p * dim
        top = self.coefficients.swapaxes(0, 1).reshape(dim, size)
        push = self.input_coefficients
        if push is not None:
            push = jnp.zeros((size, push.shape[1])).at[:dim].set(push)
        return LinearGaussianSSM(
            self.start_mean,
            Full(self.start_covariance),
            jnp.eye(size, k=-dim).at[:dim].set(top),
            jnp.zeros(size).at[:dim].set(self.offset),
            Full(jnp.zeros((size, size)).at[:dim, :dim].set(self.noise.matrix())),
            jnp.eye(dim, size),
            jnp.zeros(dim),
            Full(jnp.zeros((dim, dim))),
            push,
        )

    def predicted(self, series: Series) -> GaussianBelief:
        """p(y_t | y_{<t}) for each step."""
        return self.system().predicted(series)

    def log_prob(self, series: Series) -> Array:
        """log p(y)."""
        return self.system().log_prob(series)

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return self.system().step_log_prob(series, incomplete=incomplete)

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        return self.system().sample(length, key=key, inputs=inputs)

    def complete_mean(self, series: Series) -> Array:
        return self.system().complete_mean(series)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        return self.system().complete_sample(series, key=key)

    def prepare(self) -> LinearGaussianSSM:
        return self.system()

    def expect_prepared(
        self, prepared: LinearGaussianSSM, x: Any, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[Sums, Array]:
        statistics, free = prepared.expect(x, weight, temperature=temperature, incomplete=incomplete)
        return statistics.transition, free

    def maximise(self, statistics: Sums) -> AutoRegression:
        p, dim, _ = self.coefficients.shape
        top = statistics._replace(xz=statistics.xz[:dim], xx=statistics.xx[:dim, :dim])
        held = jnp.zeros_like(top.xz)
        W = top.solve(held, (True,) * held.shape[1])
        coefficients = W[:, : p * dim].reshape(dim, p, dim).swapaxes(0, 1)
        return AutoRegression(
            coefficients,
            W[:, -1],
            fitted_covariance(self.noise, top, W),
            self.start_mean,
            self.start_covariance,
            None if self.input_coefficients is None else W[:, p * dim : -1],
        )
