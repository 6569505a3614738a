"""Transformers: monotone maps of one number whose parameters somebody else supplies."""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class AbstractTransformer(eqx.Module):
    """An increasing map of a number, given a vector of free parameters.

    Zero parameters give the identity, so that a flow whose conditioners end in zeros starts there.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many parameters the map takes."""

    @abc.abstractmethod
    def forward(self, x: Array, parameters: Array) -> tuple[Array, Array]:
        """f(x) and log f′(x), for scalar `x`."""

    @abc.abstractmethod
    def inverse(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """f⁻¹(y) and log (f⁻¹)′(y), for scalar `y`."""


class Shift(AbstractTransformer):
    """y = x + t: preserves volume (NICE, Dinh et al. 2014).

    >>> Shift().forward(jnp.array(1.0), jnp.array([2.0]))[0].item()
    3.0
    """

    @property
    def size(self) -> int:
        return 1

    def forward(self, x: Array, parameters: Array) -> tuple[Array, Array]:
        return x + parameters[0], jnp.zeros_like(x)

    def inverse(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        return y - parameters[0], jnp.zeros_like(y)


class ShiftScale(AbstractTransformer):
    """y = x eˢ + t with |s| < bound (RealNVP, Dinh et al. 2016; MAF, Papamakarios et al. 2017).

    The parameters are t and the free number r of s = bound · tanh(r / bound).

    >>> ShiftScale().forward(jnp.array(1.0), jnp.array([2.0, 0.0]))[0].item()
    3.0
    """

    bound: float = eqx.field(static=True, default=3.0)

    @property
    def size(self) -> int:
        return 2

    def _log_scale(self, parameters: Array) -> Array:
        return self.bound * jnp.tanh(parameters[1] / self.bound)

    def forward(self, x: Array, parameters: Array) -> tuple[Array, Array]:
        s = self._log_scale(parameters)
        return x * jnp.exp(s) + parameters[0], s

    def inverse(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        s = self._log_scale(parameters)
        return (y - parameters[0]) * jnp.exp(-s), -s


class InTurn(AbstractTransformer):
    """y = second(first(x)): two maps one after the other, with the parameters of both.

    `InTurn(Spline(), ShiftScale())` bends a number and then moves and stretches it.

    Attributes:
        first: the map of x.
        second: the map of what `first` gives.

    >>> both = InTurn(Shift(), ShiftScale())
    >>> y, log_slope = both.forward(jnp.array(1.0), jnp.array([2.0, 0.0, 1.0]))
    >>> round(both.inverse(y, jnp.array([2.0, 0.0, 1.0]))[0].item(), 12), round(log_slope.item(), 4)
    (1.0, 0.9645)
    """

    first: AbstractTransformer
    second: AbstractTransformer

    @property
    def size(self) -> int:
        return self.first.size + self.second.size

    def forward(self, x: Array, parameters: Array) -> tuple[Array, Array]:
        between, log_slope = self.first.forward(x, parameters[: self.first.size])
        y, rest = self.second.forward(between, parameters[self.first.size :])
        return y, log_slope + rest

    def inverse(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        between, log_slope = self.second.inverse(y, parameters[self.first.size :])
        x, rest = self.first.inverse(between, parameters[: self.first.size])
        return x, log_slope + rest


class Spline(AbstractTransformer):
    """Monotone rational-quadratic spline on [−bound, bound], the identity outside (Durkan et al. 2019).

    In the bin from (x₀, y₀) to (x₁, y₁), with slope s = Δy/Δx, derivatives d₀, d₁ at its ends and
    ξ = (x − x₀)/Δx,

        y = y₀ + Δy (s ξ² + d₀ ξ(1−ξ)) / (s + (d₀ + d₁ − 2s) ξ(1−ξ)).

    Attributes:
        bins: number of bins.
        bound: where the identity begins.
        least: smallest width and height of a bin, as a fraction of the interval.
        least_slope: smallest derivative at a knot.

    >>> y, log_slope = Spline().forward(jnp.array(1.25), jnp.zeros(Spline().size))
    >>> round(y.item(), 12), abs(round(log_slope.item(), 12))
    (1.25, 0.0)
    """

    bins: int = eqx.field(static=True, default=8)
    bound: float = eqx.field(static=True, default=5.0)
    least: float = eqx.field(static=True, default=1e-3)
    least_slope: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        if self.bins < 1 or self.bins * self.least >= 1:
            raise ValueError(
                "The 'bins' parameter of Spline must be an int in the range "
                f"[1, {1 / self.least:g}). Got {self.bins!r} instead."
            )

    @property
    def size(self) -> int:
        return 3 * self.bins - 1

    def _edges(self, free: Array) -> Array:
        fractions = self.least + (1 - self.least * self.bins) * jax.nn.softmax(free)
        inner = jnp.cumsum(fractions[:-1]) * (2 * self.bound) - self.bound
        end = jnp.full(1, self.bound, free.dtype)
        return jnp.concatenate([-end, inner, end])

    def _knots(self, parameters: Array) -> tuple[Array, Array, Array]:
        """Abscissae, ordinates and derivatives of the knots."""
        widths, heights, slopes = jnp.split(parameters, [self.bins, 2 * self.bins])
        # softplus of this number is 1 − least_slope, which makes zero parameters the identity
        start = math.log(math.expm1(1 - self.least_slope))
        inner = self.least_slope + jax.nn.softplus(slopes + start)
        one = jnp.ones(1, parameters.dtype)
        return self._edges(widths), self._edges(heights), jnp.concatenate([one, inner, one])

    def _bin(self, parameters: Array, value: Array, of_image: bool) -> tuple[Array, ...]:
        """x₀, Δx, y₀, Δy, d₀, d₁ of the bin with `value` (an image or an argument)."""
        x, y, d = self._knots(parameters)
        edges = y if of_image else x
        k = jnp.sum(value >= edges[1:-1])
        return x[k], x[k + 1] - x[k], y[k], y[k + 1] - y[k], d[k], d[k + 1]

    def _log_slope(self, xi: Array, s: Array, d0: Array, d1: Array) -> Array:
        between = xi * (1 - xi)
        top = d1 * xi**2 + 2 * s * between + d0 * (1 - xi) ** 2
        return 2 * jnp.log(s) + jnp.log(top) - 2 * jnp.log(s + (d0 + d1 - 2 * s) * between)

    def forward(self, x: Array, parameters: Array) -> tuple[Array, Array]:
        # beyond the bound the spline is evaluated at the bound and not used: its gradient stays finite
        inside = jnp.abs(x) < self.bound
        within = jnp.clip(x, -self.bound, self.bound)
        x0, dx, y0, dy, d0, d1 = self._bin(parameters, within, of_image=False)
        s, xi = dy / dx, (within - x0) / dx
        between = xi * (1 - xi)
        y = y0 + dy * (s * xi**2 + d0 * between) / (s + (d0 + d1 - 2 * s) * between)
        return jnp.where(inside, y, x), jnp.where(inside, self._log_slope(xi, s, d0, d1), 0)

    def inverse(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        inside = jnp.abs(y) < self.bound
        within = jnp.clip(y, -self.bound, self.bound)
        x0, dx, y0, dy, d0, d1 = self._bin(parameters, within, of_image=True)
        s, rise = dy / dx, within - y0
        # ξ solves a ξ² + b ξ + c = 0; this form of the root does not cancel
        bend = rise * (d0 + d1 - 2 * s)
        a, b, c = dy * (s - d0) + bend, dy * d0 - bend, -s * rise
        # one factor changes no root, and keeps squares of steep slopes from overflowing
        unit = jax.lax.stop_gradient(jnp.maximum(jnp.maximum(d0, d1), s))
        a, b, c = a / unit, b / unit, c / unit
        xi = 2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0)))
        log_slope = self._log_slope(xi, s, d0, d1)
        return jnp.where(inside, x0 + xi * dx, y), jnp.where(inside, -log_slope, 0)
