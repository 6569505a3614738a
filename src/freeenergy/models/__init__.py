"""Models: energies composed of distributions, bijections and networks, written for one event."""

from . import _cells as _cells  # registers the models
from ._autoregression import AutoRegression
from ._base import (
    AbstractBoundedModel,
    AbstractCoded,
    AbstractEnergy,
    AbstractExactModel,
    AbstractExactPosterior,
    AbstractExpectationMaximisation,
    AbstractRecognised,
    AbstractRegularised,
    AbstractRescalable,
    AbstractUndirected,
    AbstractVariationalBound,
    AbstractWithPrior,
)
from ._bayesian_mixture import BayesianMixture
from ._clusters import Clusters
from ._conditional import Affine, Components, Conditional, Constant
from ._copula import GaussianCopula
from ._density import Density
from ._emissions import AbstractEmissions, FamilyEmissions, MixtureEmissions, RegressionEmissions
from ._features import FourierFeatures, LandmarkFeatures
from ._flow import FlowWithMissing, autoregressive_flow, coupling_flow
from ._gaussian_process import (
    AnsweredProcess,
    CoregionalisedProcess,
    GaussianProcess,
    InducedProcess,
    InducedValues,
    LatentProcess,
)
from ._harmonium import Harmonium, Units
from ._hmm import HMM
from ._ica import independent_components, spread_sources
from ._kernel_machine import KernelMachine
from ._kernels import Kernels
from ._labelled import Labelled
from ._lda import LatentDirichletAllocation
from ._linear_gaussian import LinearGaussian, ppca_closed_form
from ._marginals import AbstractMarginals, CountMarginals, LevelMarginals, SmoothMarginals
from ._markov import MarkovChain
from ._mixed_factors import MixedFactors
from ._mixed_kernels import MixedKernels
from ._mixture import Mixture, Supervised
from ._series import AbstractSequenceModel, Series, one_series
from ._smoother import KernelSmoother
from ._softmax import SoftmaxModel
from ._sparse_coding import AbstractSource, CauchySource, LaplaceSource, LogCoshSource, SparseCoding
from ._state_space import Learned, LinearGaussianSSM
from ._structural import (
    AbstractBlock,
    Autoregressive,
    Columns,
    Cycle,
    Level,
    Regressors,
    Seasonal,
    Structural,
    Trend,
    TrigonometricSeasonal,
    UndampedCycle,
    stationary_covariance,
)
from ._switching import SwitchingLinearSystem
from ._transitions import (
    AbstractCountedTransition,
    AbstractTransition,
    InputTransition,
    LogisticTransition,
    TiedTransition,
    Transition,
)
from ._units import InUnits, SeriesInUnits, in_units, series_in_units
from ._vae import VAE, GaussianEncoder, StandardNormal, mlp_vae

__all__ = [
    "HMM",
    "VAE",
    "AbstractBlock",
    "AbstractBoundedModel",
    "AbstractCoded",
    "AbstractCountedTransition",
    "AbstractEmissions",
    "AbstractEnergy",
    "AbstractExactModel",
    "AbstractExactPosterior",
    "AbstractExpectationMaximisation",
    "AbstractMarginals",
    "AbstractRecognised",
    "AbstractRegularised",
    "AbstractRescalable",
    "AbstractSequenceModel",
    "AbstractSource",
    "AbstractTransition",
    "AbstractUndirected",
    "AbstractVariationalBound",
    "AbstractWithPrior",
    "Affine",
    "AnsweredProcess",
    "AutoRegression",
    "Autoregressive",
    "BayesianMixture",
    "CauchySource",
    "Clusters",
    "Columns",
    "Components",
    "Conditional",
    "Constant",
    "CoregionalisedProcess",
    "CountMarginals",
    "Cycle",
    "Density",
    "FamilyEmissions",
    "FlowWithMissing",
    "FourierFeatures",
    "GaussianCopula",
    "GaussianEncoder",
    "GaussianProcess",
    "Harmonium",
    "InUnits",
    "InducedProcess",
    "InducedValues",
    "InputTransition",
    "KernelMachine",
    "KernelSmoother",
    "Kernels",
    "Labelled",
    "LandmarkFeatures",
    "LaplaceSource",
    "LatentDirichletAllocation",
    "LatentProcess",
    "Learned",
    "Level",
    "LevelMarginals",
    "LinearGaussian",
    "LinearGaussianSSM",
    "LogCoshSource",
    "LogisticTransition",
    "MarkovChain",
    "MixedFactors",
    "MixedKernels",
    "Mixture",
    "MixtureEmissions",
    "RegressionEmissions",
    "Regressors",
    "Seasonal",
    "Series",
    "SeriesInUnits",
    "SmoothMarginals",
    "SoftmaxModel",
    "SparseCoding",
    "StandardNormal",
    "Structural",
    "Supervised",
    "SwitchingLinearSystem",
    "TiedTransition",
    "Transition",
    "Trend",
    "TrigonometricSeasonal",
    "UndampedCycle",
    "Units",
    "autoregressive_flow",
    "coupling_flow",
    "in_units",
    "independent_components",
    "mlp_vae",
    "one_series",
    "ppca_closed_form",
    "series_in_units",
    "spread_sources",
    "stationary_covariance",
]
