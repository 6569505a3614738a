"""Gaussian processes that were told values: the law of an answer given a row."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import AbstractSpace, Reals, buffer, parameter, positive
from ..distributions import Diagonal, Full, Gaussian, Given
from ..inference._induced import root_of_points
from ..kernels import AbstractKernel
from ._base import AbstractExactPosterior, AbstractTogether
from ._mixture import Mixture

# normal numbers at even distances, whose sums are exact but for rounding
_NODES = np.linspace(-7.0, 7.0, 57)
_SHARES = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()


class AbstractProcess(AbstractExactPosterior):
    """e(x, y) = −log p(y | x) of answers that tell of a function, of which a Gaussian is known."""

    def log_prob_of(self, y: Float[Array, " outputs"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x)."""
        return self.posterior(x).log_prob(y)

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        """e(x, y)."""
        return -self.log_prob_of(y, x)


class AbstractNoisyProcess(AbstractProcess):
    """Answers y = f(x) + e, e ~ N(0, σ²), with a σ² of each output."""

    kernel: eqx.AbstractVar[AbstractKernel]
    noise: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """The mean and the variance of each output of f."""

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return Reals(self.noise.shape)

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x), a Gaussian."""
        mean, variance = self.function(x)
        return Gaussian(mean, Diagonal(variance + self.noise))


class GaussianProcess(AbstractNoisyProcess):
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


class ProcessInUnits(AbstractNoisyProcess, AbstractTogether):
    """A `GaussianProcess` whose rows and answers are counted from their means.

    Attributes:
        kernel, noise, x, y, weight: those of the process, of rows and answers less `origin` and `mean`.
        origin: of the rows, a number per column.
        mean: of the answers, a number per output.

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> model = ProcessInUnits(RBF(), jnp.ones(1), 0 * one, one, one, jnp.ones(1), jnp.full(1, 5.0))
    >>> [round(float(part[0]), 6) for part in model.function(jnp.ones(1))]
    [5.5, 0.5]
    >>> round(float(model.log_prob_together(one + 5, one)), 6)  # N(6; 5, 1 + 1)
    -1.515512
    """

    kernel: AbstractKernel
    noise: Float[Array, " outputs"] = parameter(positive)
    x: Float[Array, "rows columns"] = buffer()
    y: Float[Array, "rows outputs"] = buffer()
    weight: Float[Array, "rows outputs"] = buffer()
    origin: Float[Array, " columns"] = buffer()
    mean: Float[Array, " outputs"] = buffer()

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """The mean and the variance of each output of f."""
        process = GaussianProcess(self.kernel, self.noise, self.x, self.y, self.weight)
        mean, variance = process.function(x - self.origin)
        return self.mean + mean, variance

    def log_prob_together(
        self, y: Float[Array, "rows outputs"], x: Float[Array, "rows columns"]
    ) -> Float[Array, ""]:
        """log N(y; mean, K + σ²I) of all answers to all rows, the outputs added; NaN is not known."""
        gram = self.kernel.gram(x - self.origin[None])
        known = ~jnp.isnan(y)
        gaps = jnp.where(known, y - self.mean[None], 0.0)

        def output(noise: Array, gap: Array, known: Array) -> Array:
            sites = jnp.where(known, 1 / jnp.sqrt(noise), 0.0)
            root = jnp.linalg.cholesky(jnp.eye(len(gram)) + sites[:, None] * gram * sites[None, :])
            half = jax.scipy.linalg.solve_triangular(root, sites * gap, lower=True)
            rest = jnp.sum(jnp.where(known, jnp.log(2 * jnp.pi * noise), 0.0))
            return -0.5 * (half @ half + rest) - jnp.sum(jnp.log(jnp.diagonal(root)))

        return jnp.sum(jax.vmap(output, in_axes=(0, 1, 1))(self.noise, gaps, known))


class InducedValues(eqx.Module):
    """A process f that is known by the law of its values at a few points.

    The values at the points Z are L v with L Lᵀ = k(Z, Z) and v ~ N(m, (R Rᵀ)⁻¹), so that with
    a = L⁻¹ k(Z, x)

        f(x) ~ N(aᵀm,  k(x, x) − aᵀa + ‖R⁻¹a‖²).

    Attributes:
        kernel: k.
        points: Z.
        mean: m, (points, outputs).
        root: R, (outputs, points, points).

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> values = InducedValues(RBF(), 0 * one, 0.5 * one, jnp.sqrt(2.0) * one[None])
    >>> [round(float(part[0]), 6) for part in values.function(jnp.zeros(1))]
    [0.5, 0.5]
    """

    kernel: AbstractKernel
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


class InducedProcess(AbstractProcess):
    """e(x, y) = −log p(y | x) of y = f(x) + noise, with f known by the law of its values at a few points.

    Attributes:
        values: what is known of f.
        noise: σ², a number per output.

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> values = InducedValues(RBF(), 0 * one, 0.5 * one, jnp.sqrt(2.0) * one[None])
    >>> round(float(InducedProcess(values, jnp.ones(1)).energy(jnp.zeros(1), jnp.zeros(1))), 4)
    1.205
    """

    values: InducedValues
    noise: Float[Array, " outputs"] = parameter(positive)

    @property
    def kernel(self) -> AbstractKernel:
        """k."""
        return self.values.kernel

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """The mean and the variance of each output of f."""
        return self.values.function(x)

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return Reals(self.noise.shape)

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x), a Gaussian."""
        mean, variance = self.function(x)
        return Gaussian(mean, Diagonal(variance + self.noise))


class LatentProcess(eqx.Module):
    """Processes f ~ GP(0, k) of which answers tell by any law, with a Gaussian for what is known of them:

        f(x) ~ N(k(x, X) α,  k(x, x) − k(x, X) W (I + K W)⁻¹ k(X, x)).

    Attributes:
        kernel: k.
        x: X, the rows that were seen.
        coefficients: α, (rows, processes).
        precision: W, (rows, processes), of which some may be negative.

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> model = LatentProcess(RBF(), 0 * one, 0.5 * one, one)
    >>> [round(float(part[0]), 6) for part in model.function(jnp.zeros(1))]
    [0.5, 0.5]
    """

    kernel: AbstractKernel
    x: Float[Array, "rows columns"] = buffer()
    coefficients: Float[Array, "rows processes"] = buffer()
    precision: Float[Array, "rows processes"] = buffer()

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " processes"], Float[Array, " processes"]]:
        """The mean and the variance of each process."""
        across, gram = self.kernel.gram(x[None], self.x)[0], self.kernel.gram(self.x)

        def explained(precision: Array) -> Array:
            inner = jnp.eye(len(gram)) + gram * precision[None, :]
            return (precision * across) @ jnp.linalg.solve(inner, across)

        variance = self.kernel.diagonal(x[None])[0] - jax.vmap(explained, in_axes=1)(self.precision)
        return across @ self.coefficients, variance


class AnsweredProcess(AbstractProcess):
    """e(x, y) = −log E p(y | f(x) + b), with a Gaussian for what is known of f(x), by quadrature.

    Attributes:
        process: what is known of f, a `LatentProcess` or `InducedValues`.
        answer: the conditional family of an answer, a `freeenergy.distributions.Given`.
        offset: b.

    >>> from freeenergy.distributions import Poisson
    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 1))
    >>> known = LatentProcess(RBF(), 0 * one, 0 * one, 1e9 * one)
    >>> model = AnsweredProcess(known, Given(Poisson(jnp.ones(1))), jnp.zeros(1))
    >>> round(float(eqx.filter_jit(model.energy)(jnp.zeros(1), jnp.zeros(1))), 4)
    1.0
    """

    process: Any
    answer: Given
    offset: Float[Array, " outputs"] = parameter()

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return self.answer.support

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x): a mixture over values of f(x)."""
        mean, variance = self.process.function(x)
        # a variance next to zero has rounding below it
        spread = jnp.sqrt(jnp.maximum(variance, 0.0))

        def at(node: Array) -> Any:
            return self.answer.at(self.offset + mean + spread * node)

        return Mixture(jnp.asarray(_SHARES), jax.vmap(at)(jnp.asarray(_NODES)))


class CoregionalisedProcess(AbstractProcess):
    """e(x, y) = −log p(y | x) of y = f(x) + noise, with outputs of f that depend on each other:

        cov(f_o(x), f_p(x′)) = B_op k(x, x′),    B = W Wᵀ + diag(κ).

    Also known as intrinsic coregionalisation model, and as multi-task Gaussian process.

    Attributes:
        kernel: k.
        loadings: W, (outputs, rank).
        own: κ, a number per output.
        noise: σ², a number per output.
        x: X, the rows that were seen.
        y: their answers, (rows, outputs).
        weight: how often each answer was seen, (rows, outputs); zero is not known.

    >>> from freeenergy.kernels import RBF
    >>> one = jnp.ones((1, 2))
    >>> arrays = jnp.ones((2, 1)), jnp.zeros(2), jnp.ones(2), 0 * one[:, :1], one, jnp.array([[1.0, 0.0]])
    >>> model = CoregionalisedProcess(RBF(), *arrays)
    >>> model.function(jnp.zeros(1))[0].round(6).tolist()
    [0.5, 0.5]
    """

    kernel: AbstractKernel
    loadings: Float[Array, "outputs rank"] = parameter()
    own: Float[Array, " outputs"] = parameter(positive)
    noise: Float[Array, " outputs"] = parameter(positive)
    x: Float[Array, "rows columns"] = buffer()
    y: Float[Array, "rows outputs"] = buffer()
    weight: Float[Array, "rows outputs"] = buffer()

    def function(
        self, x: Float[Array, " columns"]
    ) -> tuple[Float[Array, " outputs"], Float[Array, "outputs outputs"]]:
        """The mean and the covariance of the outputs of f."""
        outputs = self.loadings @ self.loadings.T + jnp.diag(self.own)
        across, gram = self.kernel.gram(x[None], self.x), self.kernel.gram(self.x)
        sites = jnp.sqrt(self.weight.T / self.noise[:, None]).ravel()
        inner = jnp.eye(len(sites)) + sites[:, None] * jnp.kron(outputs, gram) * sites[None, :]
        cross = jnp.kron(outputs, across) * sites[None, :]
        both = jnp.concatenate([cross.T, (sites * self.y.T.ravel())[:, None]], axis=1)
        half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(inner), both, lower=True)
        known, told = half[:, :-1], half[:, -1]
        return known.T @ told, outputs * self.kernel.diagonal(x[None])[0] - known.T @ known

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return Reals(self.noise.shape)

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x), a Gaussian."""
        mean, covariance = self.function(x)
        return Gaussian(mean, Full(covariance + jnp.diag(self.noise)))
