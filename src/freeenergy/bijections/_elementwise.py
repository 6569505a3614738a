"""Maps of each number by itself, with fixed shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ._base import AbstractBijection


class Identity(AbstractBijection):
    """y = x.

    >>> Identity().forward(jnp.array([2.0]))[0].tolist()
    [2.0]
    """

    def forward(self, x: Array) -> tuple[Array, Array]:
        return x, jnp.zeros((), x.dtype)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        return y, jnp.zeros((), y.dtype)


class Exp(AbstractBijection):
    """y = exp(x), from the reals to the positive numbers.

    >>> Exp().inverse(jnp.array([1.0]))[0].tolist()
    [0.0]
    """

    def forward(self, x: Array) -> tuple[Array, Array]:
        return jnp.exp(x), jnp.sum(x)

    def inverse(self, y: Array) -> tuple[Array, Array]:
        x = jnp.log(y)
        return x, -jnp.sum(x)


class Softplus(AbstractBijection):
    """y = log(1 + exp(x)), from the reals to the positive numbers; about x where x is large.

    >>> Softplus().forward(jnp.array([1000.0]))[0].tolist()
    [1000.0]
    """

    def forward(self, x: Array) -> tuple[Array, Array]:
        return jax.nn.softplus(x), jnp.sum(jax.nn.log_sigmoid(x))

    def inverse(self, y: Array) -> tuple[Array, Array]:
        # log(eʸ − 1) = y + log(1 − e⁻ʸ), without overflow
        log_slope = jnp.log(-jnp.expm1(-y))
        return y + log_slope, -jnp.sum(log_slope)


class Sigmoid(AbstractBijection):
    """y = 1 / (1 + exp(−x)), from the reals to the unit interval; its inverse is the logit.

    >>> Sigmoid().forward(jnp.array([0.0]))[0].tolist()
    [0.5]
    """

    def forward(self, x: Array) -> tuple[Array, Array]:
        return jax.nn.sigmoid(x), jnp.sum(jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x))

    def inverse(self, y: Array) -> tuple[Array, Array]:
        above, below = jnp.log(y), jnp.log1p(-y)
        return above - below, -jnp.sum(above + below)


class Tanh(AbstractBijection):
    """y = tanh(x), from the reals to (−1, 1).

    >>> Tanh().forward(jnp.array([0.0]))[0].tolist()
    [0.0]
    """

    def forward(self, x: Array) -> tuple[Array, Array]:
        # 1 − tanh² x = 4 σ(2x) σ(−2x), which underflows where its logarithm does not
        log_slope = jax.nn.log_sigmoid(2 * x) + jax.nn.log_sigmoid(-2 * x)
        return jnp.tanh(x), jnp.sum(log_slope + jnp.log(jnp.asarray(4, x.dtype)))

    def inverse(self, y: Array) -> tuple[Array, Array]:
        return jnp.arctanh(y), -jnp.sum(jnp.log1p(y) + jnp.log1p(-y))
