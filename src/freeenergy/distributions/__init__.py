"""Distributions: densities that can be evaluated, sampled and, in exponential families, fitted."""

from ._base import (
    AbstractDistribution,
    AbstractExponentialFamily,
    AbstractFactorised,
    AbstractPartial,
    fisher_information,
    mean_parameters,
)
from ._covariance import AbstractCovariance, Diagonal, Full, Spherical
from ._gaussian import Gaussian

__all__ = [
    "AbstractCovariance",
    "AbstractDistribution",
    "AbstractExponentialFamily",
    "AbstractFactorised",
    "AbstractPartial",
    "Diagonal",
    "Full",
    "Gaussian",
    "Spherical",
    "fisher_information",
    "mean_parameters",
]
