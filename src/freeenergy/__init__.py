"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.
"""

from ._core import configure as _configure

_configure()

from importlib.metadata import version as _version  # noqa: E402

from . import bijections, distributions, estimators, inference, learning, models, testing  # noqa: E402
from ._core import (  # noqa: E402
    AbstractAlgorithm,
    Checkpoint,
    Constraint,
    Data,
    Evidence,
    Fit,
    Info,
    Kind,
    buffer,
    freeze,
    parameter,
    positive,
    positive_definite,
    progress_bar,
    real,
    simplex,
    unit_interval,
)
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
    "AbstractAlgorithm",
    "Checkpoint",
    "Constraint",
    "Data",
    "Evidence",
    "FactorAnalysis",
    "Fit",
    "GaussianDensity",
    "GaussianMixture",
    "Info",
    "KMeans",
    "Kind",
    "Mixture",
    "NormalizingFlow",
    "PlusPlus",
    "RandomRows",
    "SoftmaxRegression",
    "bijections",
    "buffer",
    "distributions",
    "estimators",
    "freeze",
    "inference",
    "learning",
    "models",
    "parameter",
    "positive",
    "positive_definite",
    "progress_bar",
    "real",
    "simplex",
    "testing",
    "unit_interval",
]
