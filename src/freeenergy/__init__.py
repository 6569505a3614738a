"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.
"""

from ._core import configure as _configure

_configure()

from importlib.metadata import version as _version  # noqa: E402

from . import bijections, distributions, inference, learning, models, testing  # noqa: E402
from ._core import Checkpoint, Evidence, Fit, Kind, freeze, progress_bar  # noqa: E402
from .estimators import (  # noqa: E402
    PPCA,
    RBM,
    VAE,
    FactorAnalysis,
    GaussianDensity,
    GaussianMixture,
    KMeans,
    Mixture,
    NormalizingFlow,
    PlusPlus,
    RandomRows,
    SoftmaxRegression,
)

__version__ = _version("freeenergy")

__all__ = [
    "PPCA",
    "RBM",
    "VAE",
    "Checkpoint",
    "Evidence",
    "FactorAnalysis",
    "Fit",
    "GaussianDensity",
    "GaussianMixture",
    "KMeans",
    "Kind",
    "Mixture",
    "NormalizingFlow",
    "PlusPlus",
    "RandomRows",
    "SoftmaxRegression",
    "bijections",
    "distributions",
    "freeze",
    "inference",
    "learning",
    "models",
    "progress_bar",
    "testing",
]
