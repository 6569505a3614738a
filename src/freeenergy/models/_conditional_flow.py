"""Answers given rows by a normalising flow whose maps depend on the row."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import LOG_2PI, Reals, log_mean_exp, on_device, parameter, positive, split_key, stacked
from ..bijections import AbstractBijection, AbstractTransformer
from ..distributions import Diagonal, Gaussian, Transformed
from ..nn import mlp
from ._base import AbstractConditional

# how much of what the row says is there at the start
_FIRST = 0.1
_HALVINGS = 40


class _OfRow(AbstractBijection):
    """y_i = f(z_i; network_i(x, y_1 … y_{i−1})) for one row x."""

    networks: Any
    transformer: AbstractTransformer
    row: Array

    def parameters(self, y: Array) -> Array:
        """Those of the map of each output; what comes after an output is not seen."""
        before = jnp.tril(jnp.ones((len(y), len(y)), bool), -1)[:, :-1]

        def of(network: Any, seen: Array) -> Array:
            return network(jnp.concatenate([self.row, jnp.where(seen, y[:-1], 0)]))

        return eqx.filter_vmap(of)(self.networks, before)

    def forward(self, x: Array) -> tuple[Array, Array]:
        def fill(y: Array, i: Array) -> tuple[Array, Array]:
            value, log_slope = self.transformer.forward(x[i], self.parameters(y)[i])
            return y.at[i].set(value), log_slope

        y, log_slopes = jax.lax.scan(fill, jnp.zeros_like(x), jnp.arange(len(x)))
        return y, jnp.sum(log_slopes)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        x, log_slope = jax.vmap(self.transformer.inverse)(y, self.parameters(y))
        return x, jnp.sum(log_slope)


class ConditionalFlow(AbstractConditional):
    """e(x, y) = −log p(y | x), where y is noise seen through increasing maps that x and networks choose:

        y_i = f(s_i ε_i; network_i(x, y_1 … y_{i−1})),   ε ~ N(0, I).

    One output after the other, so that any dependence of several outputs can be said; the law of the first
    is in closed form, that of each other by itself is an average over the outputs before it.

    Attributes:
        networks: a stack of networks, one for each output, of the row followed by all outputs but the last
            (those from its own on are set to zero).
        transformer: f, with `transformer.size` parameters from a network.
        scale: s, the scale of the noise of each output.

    >>> from freeenergy.bijections import ShiftScale
    >>> flow = conditional_flow(2, 1, ShiftScale(), width=4, depth=1, dtype=float, key=jax.random.key(0))
    >>> gap = jax.jit(lambda y, x: flow.posterior(x).log_prob(y) - flow.log_prob_of(y, x))
    >>> bool(abs(gap(jnp.array([0.5]), jnp.ones(2))) < 1e-12)
    True
    """

    networks: Any
    transformer: AbstractTransformer
    scale: Float[Array, " outputs"] = parameter(positive)

    def _map(self, x: Array) -> _OfRow:
        return _OfRow(self.networks, self.transformer, x)

    def posterior(self, x: Float[Array, " columns"]) -> Transformed:
        """p(y | x), a distribution."""
        return Transformed(Gaussian(jnp.zeros_like(self.scale), Diagonal(self.scale**2)), self._map(x))

    def log_prob_of(self, y: Float[Array, " outputs"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x) of complete answers."""
        return self.posterior(x).log_prob(y)

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        """e(x, y)."""
        return -self.log_prob_of(y, x)

    def latent(self, x: Float[Array, " columns"]) -> Reals:
        """What y can be."""
        return Reals(self.scale.shape)

    def answer(self, x: Float[Array, " columns"], noise: Float[Array, " outputs"]) -> Array:
        """The answer that standard normal noise makes."""
        return self._map(x).forward(self.scale * noise)[0]

    def log_prob_of_known(self, y: Array, x: Array, noise: Float[Array, "draws outputs"]) -> Array:
        """log p of the outputs that are not NaN, averaged over those that are, drawn by `noise`."""
        given = self._map(x)

        def average(noise: Array) -> Array:
            def step(seen: Array, i: Array) -> tuple[Array, Array]:
                own = given.parameters(seen)[i]
                drawn, _ = self.transformer.forward(self.scale[i] * noise[i], own)
                value = jnp.where(jnp.isnan(y[i]), drawn, y[i])
                z, log_slope = self.transformer.inverse(value, own)
                z = z / self.scale[i]
                nats = -0.5 * (z**2 + LOG_2PI) - jnp.log(self.scale[i]) + log_slope
                return seen.at[i].set(value), jnp.where(jnp.isnan(y[i]), 0, nats)

            return jnp.sum(jax.lax.scan(step, jnp.zeros_like(y), jnp.arange(len(y)))[1])

        return log_mean_exp(jax.vmap(average)(noise))

    def _parameters(self, x: Array, noise: Array) -> Array:
        """Those of each output for each draw of the outputs before it: (draws, outputs, size)."""
        given = self._map(x)
        return jax.vmap(lambda e: given.parameters(given.forward(self.scale * e)[0]))(noise)

    def _log_tails(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        def tails(own: Array) -> tuple[Array, Array]:
            z = jax.vmap(self.transformer.inverse)(y, own)[0] / self.scale
            return jax.scipy.special.log_ndtr(z), jax.scipy.special.log_ndtr(-z)

        below, above = jax.vmap(tails)(parameters)
        return log_mean_exp(below, axis=0), log_mean_exp(above, axis=0)

    def log_tails(self, y: Array, x: Array, noise: Float[Array, "draws outputs"]) -> tuple[Array, Array]:
        """log P(answer ≤ y) and log P(answer > y) of each output by itself."""
        return self._log_tails(y, self._parameters(x, noise))

    def quantile(self, p: Array, x: Array, noise: Float[Array, "draws outputs"]) -> Array:
        """The value of each output by itself that is not exceeded with probability `p`."""
        parameters = self._parameters(x, noise)
        wanted = self.scale * jax.scipy.special.ndtri(p)
        each = jax.vmap(lambda own: jax.vmap(self.transformer.forward)(wanted, own)[0])(parameters)
        ends = jnp.min(each, axis=0), jnp.max(each, axis=0)
        if len(noise) == 1:
            return ends[1]

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            # two infinite ends are one
            middle = jnp.where(low == high, low, 0.5 * (low + high))
            enough = self._log_tails(middle, parameters)[0] >= jnp.log(p)
            return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

        return jax.lax.fori_loop(0, _HALVINGS, halve, ends)[1]

    def moments(
        self, x: Array, noise: Float[Array, "draws outputs"], grid: Float[Array, " points"]
    ) -> tuple[Array, Array]:
        """The mean and the variance of each output, by the trapezoidal rule over its own noise."""
        weight = jax.nn.softmax(-0.5 * grid**2)

        def values(own: Array, scale: Array) -> Array:
            return jax.vmap(lambda e: self.transformer.forward(scale * e, own)[0])(grid)

        # (draws, outputs, points)
        found = jax.vmap(lambda own: jax.vmap(values)(own, self.scale))(self._parameters(x, noise))
        mean = jnp.mean(found @ weight, axis=0)
        return mean, jnp.mean((found - mean[None, :, None]) ** 2 @ weight, axis=0)


def conditional_flow(
    columns: int,
    outputs: int,
    transformer: AbstractTransformer,
    *,
    width: int = 64,
    depth: int = 1,
    dtype: Any = jnp.float32,
    key: Array,
) -> ConditionalFlow:
    """A conditional flow with perceptrons; it starts near N(0, I), whatever the row.

    Args:
        columns: of a row.
        outputs: of an answer.
        transformer: the map of one number, such as `ShiftScale()` or `Spline()`.
        width, depth: hidden units in a layer, and layers; depth 0 is linear in the row.
        dtype: type of all parameters, and of the events.
        key: makes the weights.

    >>> from freeenergy.bijections import Spline
    >>> flow = conditional_flow(1, 2, Spline(), width=4, depth=1, key=jax.random.key(0))
    >>> eqx.filter_jit(flow.answer)(jnp.zeros(1, jnp.float32), jnp.zeros(2, jnp.float32)).shape
    (2,)
    """

    sizes = {"width": width, "depth": depth, "last": _FIRST, "dtype": dtype}
    each = [mlp(columns + outputs - 1, transformer.size, **sizes, key=k) for k in split_key(key, outputs)]
    return ConditionalFlow(stacked(each), transformer, on_device(np.ones(outputs), dtype))
