"""Estimators: the scikit-learn shell."""

from ._factor import PPCA, FactorAnalysis
from ._gaussian import GaussianDensity
from ._kmeans import KMeans
from ._mixture import GaussianMixture, Mixture
from ._starts import AbstractStart, PlusPlus, RandomRows

__all__ = [
    "PPCA",
    "AbstractStart",
    "FactorAnalysis",
    "GaussianDensity",
    "GaussianMixture",
    "KMeans",
    "Mixture",
    "PlusPlus",
    "RandomRows",
]
