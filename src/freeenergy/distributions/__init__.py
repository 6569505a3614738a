"""Distributions: densities that can be evaluated, sampled and, in exponential families, fitted."""

from ._algebra import Information, affine, conditional, information, joint, marginal, product, wasserstein2
from ._base import (
    AbstractDistribution,
    AbstractExponentialFamily,
    AbstractFactorised,
    AbstractJoint,
    AbstractLocationScale,
    AbstractPartial,
    AbstractRate,
    AbstractShaped,
    fisher_information,
    mean_parameters,
)
from ._composite import Product, Transformed
from ._conjugate import (
    AbstractConjugatePrior,
    BetaPrior,
    DirichletPrior,
    GammaPrior,
    NormalInverseGamma,
    NormalInverseWishart,
)
from ._continuous import (
    Beta,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    HyperbolicSecant,
    Laplace,
    Logistic,
    StudentT,
)
from ._covariance import AbstractCovariance, Diagonal, Full, LowRank, Spherical, Tied
from ._discrete import Bernoulli, Binomial, Categorical, Multinomial, Poisson
from ._divergence import entropy, kl_divergence, monte_carlo_entropy, monte_carlo_kl
from ._gaussian import Gaussian
from ._stack import component_axes, stack_size
from ._student import MultivariateT

__all__ = [
    "AbstractConjugatePrior",
    "AbstractCovariance",
    "AbstractDistribution",
    "AbstractExponentialFamily",
    "AbstractFactorised",
    "AbstractJoint",
    "AbstractLocationScale",
    "AbstractPartial",
    "AbstractRate",
    "AbstractShaped",
    "Bernoulli",
    "Beta",
    "BetaPrior",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Diagonal",
    "Dirichlet",
    "DirichletPrior",
    "Exponential",
    "Full",
    "Gamma",
    "GammaPrior",
    "Gaussian",
    "HyperbolicSecant",
    "Information",
    "Laplace",
    "Logistic",
    "LowRank",
    "Multinomial",
    "MultivariateT",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "Poisson",
    "Product",
    "Spherical",
    "StudentT",
    "Tied",
    "Transformed",
    "affine",
    "component_axes",
    "conditional",
    "entropy",
    "fisher_information",
    "information",
    "joint",
    "kl_divergence",
    "marginal",
    "mean_parameters",
    "monte_carlo_entropy",
    "monte_carlo_kl",
    "product",
    "stack_size",
    "wasserstein2",
]
