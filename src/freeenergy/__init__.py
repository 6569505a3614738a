"""Statistical learning with one energy, three verbs and one honest scale.

Importing the library turns JAX's 64-bit mode on and sets up a compilation cache on disk.  JAX and the
models themselves are imported when a name is first used.
"""

from typing import TYPE_CHECKING, Any

from ._settings import configure as _configure

_configure()

if TYPE_CHECKING:
    from . import (
        bijections,
        datasets,
        distributions,
        estimators,
        evaluation,
        inference,
        io,
        learning,
        models,
        plots,
        testing,
    )
    from ._core import (
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
    from .comparison import Comparison, compare
    from .estimators import (
        HMM,
        ICA,
        PCA,
        PPCA,
        RBM,
        VAE,
        AutoRegression,
        BayesianMixture,
        Chunks,
        Dequantised,
        DiscriminantAnalysis,
        FactorAnalysis,
        GaussianDensity,
        GaussianMixture,
        KernelDensity,
        KMeans,
        LatentDirichletAllocation,
        LinearGaussianSSM,
        MarkovChain,
        Mixture,
        NaiveBayes,
        NormalizingFlow,
        PlusPlus,
        Promax,
        RandomRows,
        SoftmaxRegression,
        SparseCoding,
        StructuralTimeSeries,
        Support,
        SwitchingLinearSystem,
        Varimax,
    )
    from .io import load

    __version__: str

__all__ = [
    "HMM",
    "ICA",
    "PCA",
    "PPCA",
    "RBM",
    "VAE",
    "AbstractAlgorithm",
    "AutoRegression",
    "BayesianMixture",
    "Checkpoint",
    "Chunks",
    "Comparison",
    "Constraint",
    "Data",
    "Dequantised",
    "DiscriminantAnalysis",
    "Evidence",
    "FactorAnalysis",
    "Fit",
    "GaussianDensity",
    "GaussianMixture",
    "Info",
    "KMeans",
    "KernelDensity",
    "Kind",
    "LatentDirichletAllocation",
    "LinearGaussianSSM",
    "MarkovChain",
    "Mixture",
    "NaiveBayes",
    "NormalizingFlow",
    "PlusPlus",
    "Promax",
    "RandomRows",
    "SoftmaxRegression",
    "SparseCoding",
    "StructuralTimeSeries",
    "Support",
    "SwitchingLinearSystem",
    "Varimax",
    "bijections",
    "buffer",
    "compare",
    "datasets",
    "distributions",
    "estimators",
    "evaluation",
    "freeze",
    "inference",
    "io",
    "learning",
    "load",
    "models",
    "parameter",
    "plots",
    "positive",
    "positive_definite",
    "progress_bar",
    "real",
    "simplex",
    "testing",
    "unit_interval",
]

# where names that are no packages are found
_HOMES = ("estimators", "_core", "comparison", "io")


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata, util

    if name == "__version__":
        return metadata.version("freeenergy")
    if not name.startswith("_") and util.find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        for home in _HOMES:
            found = vars(import_module(f"{__name__}.{home}"))
            if name in found:
                globals()[name] = found[name]
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
