"""Estimators: the scikit-learn shell."""

from ._base import AbstractDensity, AbstractExactDensity
from ._factor import PPCA, FactorAnalysis
from ._flow import NormalizingFlow
from ._gaussian import GaussianDensity
from ._kmeans import KMeans
from ._mixture import GaussianMixture, Mixture
from ._rbm import RBM
from ._softmax import SoftmaxRegression
from ._starts import AbstractStart, PlusPlus, RandomRows
from ._vae import VAE

__all__ = [
    "PPCA",
    "RBM",
    "VAE",
    "AbstractDensity",
    "AbstractExactDensity",
    "AbstractStart",
    "FactorAnalysis",
    "GaussianDensity",
    "GaussianMixture",
    "KMeans",
    "Mixture",
    "NormalizingFlow",
    "PlusPlus",
    "RandomRows",
    "SoftmaxRegression",
]
