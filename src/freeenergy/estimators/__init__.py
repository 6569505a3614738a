"""Estimators: the scikit-learn shell."""

from ._gaussian import GaussianDensity
from ._kmeans import KMeans
from ._mixture import GaussianMixture, Mixture
from ._starts import AbstractStart, PlusPlus, RandomRows

__all__ = [
    "AbstractStart",
    "GaussianDensity",
    "GaussianMixture",
    "KMeans",
    "Mixture",
    "PlusPlus",
    "RandomRows",
]
