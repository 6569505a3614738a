"""Conjugate priors: the posterior is a prior of the same form, and its mode is the MAP member."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, Generic, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, multigammaln, xlog1py, xlogy

from .._core import (
    LOG_2PI,
    array_parameter,
    cholesky,
    least,
    log_beta,
    log_det_cholesky,
    positive,
    positive_definite,
    symmetrise,
)
from ._base import AbstractExponentialFamily, AbstractRate
from ._composite import Product
from ._continuous import StudentT
from ._count_table import CountTable
from ._covariance import Diagonal, Full, from_triangle
from ._discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Multinomial,
    NegativeBinomial,
    Poisson,
    inside_simplex,
    inside_unit,
)
from ._gaussian import Gaussian
from ._student import MultivariateT

Member = TypeVar("Member", bound=AbstractExponentialFamily)


class AbstractConjugatePrior(eqx.Module, Generic[Member]):
    """A density over the members of an exponential family that keeps its form when data arrive."""

    @abc.abstractmethod
    def update(self, weight: Array, total: Array) -> Self:
        """The posterior given Σ w = `weight` and Σ w T(x) = `total`."""

    @abc.abstractmethod
    def mode(self) -> Member:
        """The member of highest density in the usual parameters."""

    @abc.abstractmethod
    def log_density(self, member: Member) -> Array:
        """log density of the usual parameters of `member`."""

    @abc.abstractmethod
    def sample(self, *, key: Array) -> Member:
        """A random member."""

    @abc.abstractmethod
    def log_normaliser(self) -> Array:
        """log ∫ of the density without its constant, the same factors left out of every member."""

    @abc.abstractmethod
    def split(self, total: Array) -> tuple[Array, Array]:
        """Summed features of the family as the `weight` and `total` that `update` takes."""

    def log_evidence(self, total: Array) -> Array:
        """log ∫ p(θ) exp(coefficients(θ) · total) dθ, the evidence of summed features (without log h).

        Its gradient is the posterior mean of the coefficients.
        """
        return self.update(*self.split(total)).log_normaliser() - self.log_normaliser()

    def from_features(self, total: Array) -> Member:
        """The maximum-a-posteriori member: takes the place of the family's `from_features`.

        Totals with a leading axis give a stack, every member under the same prior.
        """
        if total.ndim == 2:
            return eqx.filter_vmap(lambda t: self.from_features(t))(total)
        return self.update(*self.split(total)).mode()


def _refuse_predictive(prior: Any, *families: type) -> None:
    if not isinstance(prior.family, families):
        names = " and ".join(family.__name__ for family in families)
        raise TypeError(
            f"The law of a new event under {type(prior).__name__} is known for {names} alone. "
            f"Got one over {type(prior.family).__name__}."
        )


def _share(excess: Array) -> Array:
    """Pseudo-counts above one as proportions.

    Where there are none, the density is highest at an edge: all goes to the largest, in even parts if
    several are.
    """
    # not `maximum`, which has half the slope at zero
    counts = jnp.where(excess < 0, 0, excess)
    total = jnp.sum(counts, axis=-1, keepdims=True)
    largest = least(-excess).astype(excess.dtype)
    even = largest / jnp.sum(largest, axis=-1, keepdims=True)
    return jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), even)


class BetaPrior(AbstractConjugatePrior[Bernoulli | Binomial]):
    """p_d ~ Beta(α_d, β_d), the probabilities of a Bernoulli or Binomial.

    Attributes:
        family: any member of the family that the prior is over.
        alpha: α, one more than the imagined successes.
        beta: β, one more than the imagined failures.

    >>> coin = BetaPrior(Bernoulli(jnp.array([0.5])), jnp.array([2.0]), jnp.array([2.0]))
    >>> coin.update(jnp.array([4.0]), jnp.array([3.0])).mode().probability.round(6).item()
    0.666667
    """

    family: Bernoulli | Binomial
    alpha: Array = array_parameter(positive)
    beta: Array = array_parameter(positive)

    def update(self, weight: Array, total: Array) -> BetaPrior:
        trials = jnp.asarray(self.family.trials, total.dtype)
        return BetaPrior(self.family, self.alpha + total, self.beta + trials * weight - total)

    def _member(self, probability: Array) -> Bernoulli | Binomial:
        return dataclasses.replace(self.family, probability=inside_unit(probability))

    def mode(self) -> Bernoulli | Binomial:
        return self._member(_share(jnp.stack([self.alpha, self.beta], axis=-1) - 1)[..., 0])

    def log_density(self, member: Bernoulli | Binomial) -> Array:
        p = member.probability
        odds = xlogy(self.alpha - 1, p) + xlog1py(self.beta - 1, -p)
        return jnp.sum(odds - log_beta(self.alpha, self.beta))

    def sample(self, *, key: Array) -> Bernoulli | Binomial:
        return self._member(jax.random.beta(key, self.alpha, self.beta))

    def log_normaliser(self) -> Array:
        return jnp.sum(log_beta(self.alpha, self.beta))

    def predictive(self) -> Bernoulli | Binomial:
        """The law of a new event under a Bernoulli: one with the mean α / (α + β)."""
        _refuse_predictive(self, Bernoulli)
        return self._member(self.alpha / (self.alpha + self.beta))

    def split(self, total: Array) -> tuple[Array, Array]:
        dim = self.alpha.shape[-1]
        return total[-dim:], total[:-dim]


class DirichletPrior(AbstractConjugatePrior[Categorical | CountTable | Multinomial]):
    """p ~ Dirichlet(α), the probabilities of a Multinomial or of each coordinate of labels and tables.

    Attributes:
        family: any member of the family that the prior is over.
        concentration: α, in the shape of the probabilities: one more than the imagined counts.

    >>> dice = DirichletPrior(Categorical(jnp.ones((1, 3)) / 3), jnp.full((1, 3), 2.0))
    >>> dice.update(jnp.array([5.0]), jnp.array([[3.0, 0.0]])).mode().probabilities.tolist()
    [[0.5, 0.125, 0.375]]
    """

    family: Categorical | CountTable | Multinomial
    concentration: Array = array_parameter(positive)

    def update(self, weight: Array, total: Array) -> DirichletPrior:
        last = self.family.trials * weight - jnp.sum(total, axis=-1)
        counts = jnp.concatenate([total, last[..., None]], axis=-1)
        return DirichletPrior(self.family, self.concentration + counts)

    def _member(self, probabilities: Array) -> Categorical | CountTable | Multinomial:
        return dataclasses.replace(self.family, probabilities=inside_simplex(probabilities))

    def mode(self) -> Categorical | CountTable | Multinomial:
        return self._member(_share(self.concentration - 1))

    def log_density(self, member: Categorical | CountTable | Multinomial) -> Array:
        terms = xlogy(self.concentration - 1, member.probabilities)
        return jnp.sum(terms - gammaln(self.concentration)) + jnp.sum(
            gammaln(jnp.sum(self.concentration, axis=-1))
        )

    def sample(self, *, key: Array) -> Categorical | CountTable | Multinomial:
        return self._member(jax.random.dirichlet(key, self.concentration))

    def predictive(self) -> Categorical | CountTable | Multinomial:
        """The law of a new event under labels or a table: one with the mean of the probabilities."""
        _refuse_predictive(self, Categorical, CountTable)
        return self._member(self.concentration / jnp.sum(self.concentration, axis=-1, keepdims=True))

    def log_normaliser(self) -> Array:
        return jnp.sum(gammaln(self.concentration)) - jnp.sum(gammaln(jnp.sum(self.concentration, axis=-1)))

    def split(self, total: Array) -> tuple[Array, Array]:
        *rows, size = self.concentration.shape
        n = math.prod(rows)
        return total[-n:].reshape(rows), total[:-n].reshape((*rows, size - 1))


class GammaPrior(AbstractConjugatePrior[AbstractRate]):
    """λ_d ~ Gamma(a_d, b_d), the rates of a Poisson or an Exponential.

    Attributes:
        family: any member of the family that the prior is over.
        shape: a, one more than the imagined events.
        rate: b, the imagined exposure.

    >>> from freeenergy.distributions import Poisson
    >>> prior = GammaPrior(Poisson(jnp.ones(1)), jnp.array([3.0]), jnp.array([1.0]))
    >>> prior.update(jnp.array([1.0]), jnp.array([4.0])).mode().rate.item()
    3.0
    """

    family: AbstractRate
    shape: Array = array_parameter(positive)
    rate: Array = array_parameter(positive)

    def update(self, weight: Array, total: Array) -> GammaPrior:
        events, exposure = self.family.events_and_exposure(weight, total)
        return GammaPrior(self.family, self.shape + events, self.rate + exposure)

    def _member(self, rate: Array) -> AbstractRate:
        return dataclasses.replace(self.family, rate=rate)

    def mode(self) -> AbstractRate:
        # kept off zero by a rounding error of the mean, in whatever unit, so that its logarithm is finite
        least = jnp.finfo(self.shape.dtype).eps * self.shape
        return self._member(jnp.where(self.shape - 1 < least, least, self.shape - 1) / self.rate)

    def log_density(self, member: AbstractRate) -> Array:
        terms = xlogy(self.shape, self.rate) + xlogy(self.shape - 1, member.rate)
        return jnp.sum(terms - self.rate * member.rate - gammaln(self.shape))

    def sample(self, *, key: Array) -> AbstractRate:
        return self._member(jnp.exp(jax.random.loggamma(key, self.shape)) / self.rate)

    def log_normaliser(self) -> Array:
        return jnp.sum(gammaln(self.shape) - xlogy(self.shape, self.rate))

    def predictive(self) -> NegativeBinomial:
        """The law of a new event under a Poisson."""
        _refuse_predictive(self, Poisson)
        return NegativeBinomial(self.shape, self.rate)

    def split(self, total: Array) -> tuple[Array, Array]:
        dim = self.shape.shape[-1]
        return total[-dim:], total[:-dim]


class NormalInverseWishart(AbstractConjugatePrior[Gaussian]):
    """Σ ~ W⁻¹(Ψ, ν), μ ~ N(m, Σ/κ), over Gaussians with a full covariance.

    The joint mode is (m, Ψ / (ν + d + 2)).  κ = 0, Ψ = 0, ν = −d−2 is the improper flat prior,
    whose posterior mode is maximum likelihood.

    Attributes:
        mean: m.
        strength: κ, the imagined observations behind m.
        scatter: Ψ, the imagined sum of squares.
        degrees: ν, the imagined observations behind Ψ.

    >>> prior = NormalInverseWishart(jnp.zeros(1), jnp.array(1.0), jnp.eye(1) * 8, jnp.array(5.0))
    >>> prior.mode().covariance.matrix().item()
    1.0
    """

    mean: Array = array_parameter()
    strength: Array = array_parameter(positive, ndim=0)
    scatter: Array = array_parameter(positive_definite, ndim=2)
    degrees: Array = array_parameter(ndim=0)

    def update(self, weight: Array, total: Array) -> NormalInverseWishart:
        dim = self.mean.shape[-1]
        strength = self.strength + weight
        # sums about m, which loses fewer digits than sums about zero
        first = total[:dim] - weight * self.mean
        cross = jnp.outer(first, self.mean)
        second = (
            from_triangle(total[dim:], dim) - weight * jnp.outer(self.mean, self.mean) - cross - cross.T
        )
        scatter = self.scatter + second - jnp.outer(first, first) / strength
        mean = self.mean + first / strength
        return NormalInverseWishart(mean, strength, symmetrise(scatter), self.degrees + weight)

    def mode(self) -> Gaussian:
        return Gaussian(self.mean, Full(self.scatter / (self.degrees + self.mean.shape[-1] + 2)))

    def log_density(self, member: Gaussian) -> Array:
        dim, nu = self.mean.shape[-1], self.degrees
        factor = cholesky(member.covariance.matrix())[0]
        log_det = log_det_cholesky(factor)
        trace = jnp.trace(jax.scipy.linalg.cho_solve((factor, True), self.scatter))
        wishart = (
            0.5 * nu * jnp.linalg.slogdet(self.scatter)[1]
            - 0.5 * nu * dim * jnp.log(2.0)
            - multigammaln(nu / 2, dim)
            - 0.5 * (nu + dim + 1) * log_det
            - 0.5 * trace
        )
        whitened = jax.scipy.linalg.solve_triangular(factor, member.mean - self.mean, lower=True)
        length = self.strength * jnp.vdot(whitened, whitened)
        return wishart - 0.5 * (length + log_det + dim * (LOG_2PI - jnp.log(self.strength)))

    def sample(self, *, key: Array) -> Gaussian:
        dim = self.mean.shape[-1]
        diagonal_key, lower_key, mean_key = jax.random.split(key, 3)
        # Bartlett: A Aᵀ ~ W(I, ν) for lower A with chi and normal entries; then Σ = L (A Aᵀ)⁻¹ Lᵀ, Ψ = L Lᵀ
        chi = jnp.sqrt(
            2 * jax.random.gamma(diagonal_key, (self.degrees - jnp.arange(dim, dtype=self.mean.dtype)) / 2)
        )
        bartlett = jnp.tril(jax.random.normal(lower_key, (dim, dim), self.mean.dtype), -1) + jnp.diag(chi)
        half = jax.scipy.linalg.solve_triangular(bartlett, cholesky(self.scatter)[0].T, lower=True).T
        noise = jax.random.normal(mean_key, (dim,), self.mean.dtype)
        mean = self.mean + half @ noise / jnp.sqrt(self.strength)
        return Gaussian(mean, Full(symmetrise(half @ half.T)))

    def log_normaliser(self) -> Array:
        dim, nu = self.mean.shape[-1], self.degrees
        wishart = 0.5 * nu * (dim * jnp.log(2.0) - log_det_cholesky(cholesky(self.scatter)[0]))
        # exp(coefficients · features) holds (2π)^{−d/2} for each row
        counted = 0.5 * dim * LOG_2PI * (1 - nu)
        return wishart + counted + multigammaln(nu / 2, dim) - 0.5 * dim * jnp.log(self.strength)

    def predictive(self) -> MultivariateT:
        """The density of a new event: Student's t with ν − d + 1 degrees of freedom."""
        df = self.degrees - (self.mean.shape[-1] - 1)
        return MultivariateT(self.mean, self.scatter * ((1 + 1 / self.strength) / df), df)

    def mean_covariance(self) -> Array:
        """E[Σ] = Ψ / (ν − d − 1), for ν > d + 1."""
        return self.scatter / (self.degrees - (self.mean.shape[-1] + 1))

    def split(self, total: Array) -> tuple[Array, Array]:
        return total[-1], total[:-1]


class NormalInverseGamma(AbstractConjugatePrior[Gaussian]):
    """σ²_d ~ Γ⁻¹(a_d, b_d), μ_d ~ N(m_d, σ²_d/κ_d), over Gaussians with a diagonal covariance.

    The joint mode is (m, b / (a + 3/2)).

    Attributes:
        mean: m.
        strength: κ, the imagined observations behind m.
        shape: a, half the imagined observations behind b.
        scale: b, half the imagined sum of squares.

    >>> prior = NormalInverseGamma(jnp.zeros(1), jnp.ones(1), jnp.array([2.5]), jnp.array([4.0]))
    >>> prior.mode().covariance.matrix().item()
    1.0
    """

    mean: Array = array_parameter()
    strength: Array = array_parameter(positive)
    shape: Array = array_parameter()
    scale: Array = array_parameter(positive)

    def update(self, weight: Array, total: Array) -> NormalInverseGamma:
        dim = self.mean.shape[-1]
        strength = self.strength + weight
        first = total[:dim] - weight * self.mean
        second = total[dim:] - 2 * first * self.mean - weight * self.mean**2
        scale = self.scale + (second - first**2 / strength) / 2
        return NormalInverseGamma(self.mean + first / strength, strength, self.shape + weight / 2, scale)

    def mode(self) -> Gaussian:
        return Gaussian(self.mean, Diagonal(self.scale / (self.shape + 1.5)))

    def log_density(self, member: Gaussian) -> Array:
        variance = jnp.diagonal(member.covariance.matrix())
        gamma = self.shape * jnp.log(self.scale) - gammaln(self.shape)
        gamma = gamma - (self.shape + 1) * jnp.log(variance) - self.scale / variance
        spread = variance / self.strength
        normal = -0.5 * ((member.mean - self.mean) ** 2 / spread + jnp.log(spread) + LOG_2PI)
        return jnp.sum(gamma + normal)

    def sample(self, *, key: Array) -> Gaussian:
        variance_key, mean_key = jax.random.split(key)
        variance = self.scale / jax.random.gamma(variance_key, self.shape)
        noise = jax.random.normal(mean_key, self.mean.shape, self.mean.dtype)
        return Gaussian(self.mean + jnp.sqrt(variance / self.strength) * noise, Diagonal(variance))

    def log_normaliser(self) -> Array:
        gamma = gammaln(self.shape) - self.shape * jnp.log(self.scale)
        # exp(coefficients · features) holds (2π)^{−½} for each observed entry
        counted = 0.5 * LOG_2PI * (1 - 2 * self.shape)
        return jnp.sum(gamma + counted - 0.5 * jnp.log(self.strength))

    def predictive(self) -> StudentT:
        """The density of a new event: Student's t with 2a degrees of freedom in each coordinate."""
        spread = self.scale / self.shape * (1 + 1 / self.strength)
        return StudentT(self.mean, jnp.sqrt(spread), 2 * self.shape)

    def mean_covariance(self) -> Array:
        """E[Σ] = diag(b / (a − 1)), for a > 1."""
        return jnp.diag(self.scale / (self.shape - 1))

    def split(self, total: Array) -> tuple[Array, Array]:
        dim = self.mean.shape[-1]
        return total[-dim:], total[:-dim]


class ProductPrior(AbstractConjugatePrior[Product]):
    """A prior over the members of a `Product`: one for each part, independent of the others.

    Attributes:
        family: any member of the family that the prior is over.
        parts: the prior of each part.

    >>> from freeenergy.distributions import Poisson
    >>> family = Product((Poisson(jnp.ones(1)), Bernoulli(jnp.full(1, 0.5))), sizes=(1, 1))
    >>> counts = GammaPrior(Poisson(jnp.ones(1)), jnp.array([3.0]), jnp.array([1.0]))
    >>> coin = BetaPrior(Bernoulli(jnp.full(1, 0.5)), jnp.array([2.0]), jnp.array([2.0]))
    >>> ProductPrior(family, (counts, coin)).mode().mean().tolist()
    [2.0, 0.5]
    """

    family: Product
    parts: tuple[AbstractConjugatePrior, ...]

    def _each(self, call: Any, *pieces: Any) -> list[Any]:
        return [call(part, *own) for part, *own in zip(self.parts, *pieces, strict=True)]

    def update(self, weight: Any, total: Any) -> ProductPrior:
        """The posterior given the weight and total of each part, as `split` gives them."""
        return ProductPrior(self.family, tuple(self._each(lambda p, w, t: p.update(w, t), weight, total)))

    def mode(self) -> Product:
        return self.family.with_parts(self._each(lambda part: part.mode()))

    def log_density(self, member: Product) -> Array:
        return sum(self._each(lambda part, own: part.log_density(own), member.parts), jnp.zeros(()))

    def sample(self, *, key: Array) -> Product:
        keys = jax.random.split(key, len(self.parts))
        return self.family.with_parts(self._each(lambda part, k: part.sample(key=k), keys))

    def log_normaliser(self) -> Array:
        return sum(self._each(lambda part: part.log_normaliser()), jnp.zeros(()))

    def predictive(self) -> Product:
        """The law of a new event, where every part has one."""
        return self.family.with_parts(self._each(lambda part: part.predictive()))

    def split(self, total: Array) -> tuple[Any, Any]:
        pieces = self._each(lambda part, own: part.split(own), self.family.split_features(total))
        return tuple(weight for weight, _ in pieces), tuple(own for _, own in pieces)
