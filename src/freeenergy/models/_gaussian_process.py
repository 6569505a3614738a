"""Gaussian processes that were told values: the law of an answer given a row."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import AbstractSpace, Reals, buffer, parameter, positive
from ..distributions import Diagonal, Gaussian
from ..inference._induced import root_of_points
from ..kernels import AbstractKernel
from ._base import AbstractExactPosterior


class GaussianProcess(AbstractExactPosterior):
    """e(x, y) = −log p(y | x) of f ~ GP(0, k), y = f(x) + noise, given answers that were seen:

        f(x) ~ N(k(x, X) (K + σ²I)⁻¹ y,  k(x, x) − k(x, X) (K + σ²I)⁻¹ k(X, x)).

    Attributes:
        kernel: k.
        noise: σ², a number per output.
        x: X, the rows that were seen.
        y: their answers, (rows, outputs).
        weight: how often each answer was seen, (rows, outputs); zero is not known.

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> model = GaussianProcess(RBF(), jnp.ones(1), 0 * one, one, one)
    >>> [round(float(part[0]), 6) for part in model.function(jnp.zeros(1))]
    [0.5, 0.5]
    """

    kernel: AbstractKernel
    noise: Float[Array, " outputs"] = parameter(positive)
    x: Float[Array, "rows columns"] = buffer()
    y: Float[Array, "rows outputs"] = buffer()
    weight: Float[Array, "rows outputs"] = buffer()

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """The mean and the variance of each output of f."""
        across, gram = self.kernel.gram(x[None], self.x)[0], self.kernel.gram(self.x)

        def output(noise: Array, y: Array, weight: Array) -> tuple[Array, Array]:
            sites = jnp.sqrt(weight / noise)
            inner = jnp.eye(len(gram)) + sites[:, None] * gram * sites[None, :]
            both = sites[:, None] * jnp.stack([across, y], axis=1)
            half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(inner), both, lower=True)
            return half[:, 0] @ half[:, 1], half[:, 0] @ half[:, 0]

        mean, explained = jax.vmap(output, in_axes=(0, 1, 1))(self.noise, self.y, self.weight)
        return mean, self.kernel.diagonal(x[None])[0] - explained

    def log_prob_of(self, y: Float[Array, " outputs"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x)."""
        return self.posterior(x).log_prob(y)

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        """e(x, y)."""
        return -self.log_prob_of(y, x)

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return Reals(self.noise.shape)

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x), a Gaussian."""
        mean, variance = self.function(x)
        return Gaussian(mean, Diagonal(variance + self.noise))


class InducedProcess(AbstractExactPosterior):
    """e(x, y) = −log p(y | x) of y = f(x) + noise, with f known by the law of its values at a few points.

    The values at the points Z are L v with L Lᵀ = k(Z, Z) and v ~ N(m, (R Rᵀ)⁻¹), so that with
    a = L⁻¹ k(Z, x)

        f(x) ~ N(aᵀm,  k(x, x) − aᵀa + ‖R⁻¹a‖²).

    Attributes:
        kernel: k.
        noise: σ², a number per output.
        points: Z.
        mean: m, (points, outputs).
        root: R, (outputs, points, points).

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> model = InducedProcess(RBF(), jnp.ones(1), 0 * one, 0.5 * one, jnp.sqrt(2.0) * one[None])
    >>> [round(float(part[0]), 6) for part in model.function(jnp.zeros(1))]
    [0.5, 0.5]
    """

    kernel: AbstractKernel
    noise: Float[Array, " outputs"] = parameter(positive)
    points: Float[Array, "points columns"] = parameter()
    mean: Float[Array, "points outputs"] = buffer()
    root: Float[Array, "outputs points points"] = buffer()

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """The mean and the variance of each output of f."""
        outer = root_of_points(self.kernel.gram(self.points))
        across = self.kernel.gram(x[None], self.points)[0]
        white = jax.scipy.linalg.solve_triangular(outer, across, lower=True)

        def left(root: Array) -> Array:
            half = jax.scipy.linalg.solve_triangular(root, white, lower=True)
            return half @ half

        rest = self.kernel.diagonal(x[None])[0] - white @ white
        return white @ self.mean, rest + jax.vmap(left)(self.root)

    def log_prob_of(self, y: Float[Array, " outputs"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x)."""
        return self.posterior(x).log_prob(y)

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        """e(x, y)."""
        return -self.log_prob_of(y, x)

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return Reals(self.noise.shape)

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x), a Gaussian."""
        mean, variance = self.function(x)
        return Gaussian(mean, Diagonal(variance + self.noise))


class LaplaceProcess(eqx.Module):
    """Labels by processes f ~ GP(0, k), with the Gaussian of Laplace's method for what is known of them:

        f(x) ~ N(k(x, X) α,  k(x, x) − k(x, X) S (I + S K S)⁻¹ S k(X, x)).

    One process tells two labels apart, p(second) = E 1/(1 + exp(−f)); of more labels each has one.

    Attributes:
        kernel: k.
        x: X, the rows that were seen.
        coefficients: α, (rows, processes).
        sites: S, (rows, processes).

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> model = LaplaceProcess(RBF(), 0 * one, 0.5 * one, one)
    >>> [round(float(part[0]), 6) for part in model.function(jnp.zeros(1))]
    [0.5, 0.5]
    """

    kernel: AbstractKernel
    x: Float[Array, "rows columns"] = buffer()
    coefficients: Float[Array, "rows processes"] = buffer()
    sites: Float[Array, "rows processes"] = buffer()

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " processes"], Float[Array, " processes"]]:
        """The mean and the variance of each process."""
        across, gram = self.kernel.gram(x[None], self.x)[0], self.kernel.gram(self.x)

        def explained(sites: Array) -> Array:
            inner = jnp.eye(len(gram)) + sites[:, None] * gram * sites[None, :]
            half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(inner), sites * across, lower=True)
            return half @ half

        variance = self.kernel.diagonal(x[None])[0] - jax.vmap(explained, in_axes=1)(self.sites)
        return across @ self.coefficients, variance
