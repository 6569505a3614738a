"""Answers smoothed by a kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import LOG_2PI, AbstractSpace, Reals, buffer, least, parameter, positive
from ..distributions import Diagonal, Gaussian
from ..kernels import AbstractKernel
from ._base import AbstractExactPosterior
from ._mixture import Mixture


class KernelSmoother(AbstractExactPosterior):
    """e(x, y) = −log p(y | x) of p(y | x) = Σ w_i(x) N(y; y_i, s²), w_i(x) ∝ k(x/h, x_i/h).

    Its mean Σ w_i(x) y_i is the regression of Nadaraya and Watson, and attention with the kernel as score.

    Attributes:
        kernel: k.
        bandwidth: h.
        width: s, a number per output.
        x: the rows that were seen.
        y: their answers, (rows, outputs).
        weight: how often each was seen.

    >>> from freeenergy.kernels import RBF
    >>> rows = jnp.array([[0.0], [2.0]])
    >>> model = KernelSmoother(RBF(), jnp.ones(()), jnp.ones(1), rows, rows, jnp.ones(2))
    >>> model.shares(jnp.ones(1)).tolist()
    [0.5, 0.5]
    """

    kernel: AbstractKernel
    bandwidth: Float[Array, ""] = parameter(positive)
    width: Float[Array, " outputs"] = parameter(positive)
    x: Float[Array, "rows columns"] = buffer()
    y: Float[Array, "rows outputs"] = buffer()
    weight: Float[Array, " rows"] = buffer()

    def shares(self, x: Float[Array, " columns"]) -> Float[Array, " rows"]:
        """w(x), of sum one; of the nearest row alone where no row is within reach of the kernel."""
        near = self.weight * self.kernel.gram(x[None] / self.bandwidth, self.x / self.bandwidth)[0]
        gaps = jnp.sum((self.x - x[None, :]) ** 2, axis=1)
        lost = jnp.sum(near) == 0
        nearest = jnp.where(least(gaps), self.weight, 0.0)
        near = jnp.where(lost, nearest, near)
        return near / jnp.sum(near)

    def log_prob_of(self, y: Float[Array, " outputs"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x)."""
        gap = (y[None, :] - self.y) / self.width[None, :]
        logs = -0.5 * jnp.sum(gap**2 + LOG_2PI, axis=1) - jnp.sum(jnp.log(self.width))
        return jax.scipy.special.logsumexp(logs + jnp.log(self.shares(x)))

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        """e(x, y)."""
        return -self.log_prob_of(y, x)

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return Reals(self.width.shape)

    def posterior(self, x: Float[Array, " columns"]) -> Mixture:
        """p(y | x), a mixture with a component for each row that was seen."""
        variance = jnp.broadcast_to(self.width**2, self.y.shape)
        return Mixture(self.shares(x), Gaussian(self.y, Diagonal(variance)))
