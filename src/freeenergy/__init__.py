"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.
"""

from ._core import configure as _configure

_configure()

from importlib.metadata import version as _version  # noqa: E402

from . import bijections, distributions, inference, learning, models, testing  # noqa: E402
from ._core import Checkpoint, Evidence, Fit, Kind, bar, freeze  # noqa: E402
from .estimators import *  # noqa: E402, F403

__version__ = _version("freeenergy")

__all__ = [
    "Checkpoint",
    "Evidence",
    "Fit",
    "GaussianDensity",
    "GaussianMixture",
    "KMeans",
    "Kind",
    "Mixture",
    "PlusPlus",
    "RandomRows",
    "bar",
    "bijections",
    "distributions",
    "freeze",
    "inference",
    "learning",
    "models",
    "testing",
]
