"""Estimators of tables: a row for each sample."""

from ._autoencoder import Autoencoder
from ._autoregressive import Autoregressive
from ._bayesian_mixture import BayesianMixture
from ._copula import GaussianCopula
from ._dequantised import Dequantised
from ._diffusion import DiffusionModel
from ._factor import PPCA, FactorAnalysis, FactorTest
from ._flow import NormalizingFlow
from ._gan import GAN, InfoGAN
from ._gaussian import GaussianDensity
from ._ica import ICA
from ._imputer import Imputer
from ._kernel import KernelDensity
from ._kmeans import KMeans
from ._mixed_factor import MixedFactorAnalysis
from ._mixture import GaussianMixture, Mixture
from ._networks import BayesianNetwork, MarkovNetwork
from ._pca import PCA
from ._rbm import RBM
from ._rotation import AbstractRotation, Promax, Rotated, Varimax
from ._sparse_coding import SparseCoding
from ._starts import AbstractStart, PlusPlus, RandomRows
from ._vae import VAE

__all__ = [
    "GAN",
    "ICA",
    "PCA",
    "PPCA",
    "RBM",
    "VAE",
    "AbstractRotation",
    "AbstractStart",
    "Autoencoder",
    "Autoregressive",
    "BayesianMixture",
    "BayesianNetwork",
    "Dequantised",
    "DiffusionModel",
    "FactorAnalysis",
    "FactorTest",
    "GaussianCopula",
    "GaussianDensity",
    "GaussianMixture",
    "Imputer",
    "InfoGAN",
    "KMeans",
    "KernelDensity",
    "MarkovNetwork",
    "MixedFactorAnalysis",
    "Mixture",
    "NormalizingFlow",
    "PlusPlus",
    "Promax",
    "RandomRows",
    "Rotated",
    "SparseCoding",
    "Varimax",
]
