"""Estimators: the scikit-learn shell."""

from ._autoregression import AutoRegression
from ._base import AbstractDensity, AbstractExactDensity
from ._bayesian_mixture import BayesianMixture
from ._chunks import Chunks
from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._dequantised import Dequantised
from ._factor import PPCA, FactorAnalysis
from ._flow import NormalizingFlow
from ._gaussian import GaussianDensity
from ._hmm import HMM
from ._ica import ICA
from ._kernel import KernelDensity
from ._kmeans import KMeans
from ._lda import LatentDirichletAllocation
from ._markov import MarkovChain
from ._mixture import GaussianMixture, Mixture
from ._pca import PCA
from ._rbm import RBM
from ._rotation import AbstractRotation, Promax, Rotated, Varimax
from ._sequence import AbstractSequenceDensity
from ._softmax import SoftmaxRegression
from ._sparse_coding import SparseCoding
from ._starts import AbstractStart, PlusPlus, RandomRows
from ._state_space import Forecast, LinearGaussianSSM, States
from ._structural import Component, StructuralTimeSeries
from ._support import Column, Support
from ._switching import SwitchingLinearSystem
from ._vae import VAE

__all__ = [
    "HMM",
    "ICA",
    "PCA",
    "PPCA",
    "RBM",
    "VAE",
    "AbstractDensity",
    "AbstractExactDensity",
    "AbstractRotation",
    "AbstractSequenceDensity",
    "AbstractStart",
    "AutoRegression",
    "BayesianMixture",
    "Chunks",
    "Column",
    "Component",
    "Dequantised",
    "DiscriminantAnalysis",
    "FactorAnalysis",
    "Forecast",
    "GaussianDensity",
    "GaussianMixture",
    "KMeans",
    "KernelDensity",
    "LatentDirichletAllocation",
    "LinearGaussianSSM",
    "MarkovChain",
    "Mixture",
    "NaiveBayes",
    "NormalizingFlow",
    "PlusPlus",
    "Promax",
    "RandomRows",
    "Rotated",
    "SoftmaxRegression",
    "SparseCoding",
    "States",
    "StructuralTimeSeries",
    "Support",
    "SwitchingLinearSystem",
    "Varimax",
]
