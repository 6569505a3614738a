"""Models: energies composed of distributions, bijections and networks, written for one event."""

from . import _cells as _cells  # registers the models
from ._autoregression import AutoRegression
from ._autoregressive import AutoregressiveModel, Head
from ._base import (
    AbstractBoundedModel,
    AbstractCoded,
    AbstractConditional,
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
from ._bayesian_regression import BayesianRegression, HierarchicalNormal
from ._clusters import Clusters
from ._conditional import Affine, Components, Conditional, Constant
from ._conditional_energy import ConditionalEnergy
from ._conditional_flow import ConditionalFlow, conditional_flow
from ._conditional_vae import ConditionalVAE, mlp_conditional_vae
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
from ._network_beliefs import AbstractNetworkBeliefs, MixedBeliefs, NetworkBeliefs, NumberBelief
from ._networks import AbstractNetwork, BayesianNetwork, MarkovNetwork
from ._nodes import AbstractNode, GaussianNode, GivenNode, TableNode
from ._ordered import OrderedModel
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
from ._table_priors import EvenTables, TablePriors
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
    "AbstractConditional",
    "AbstractCountedTransition",
    "AbstractEmissions",
    "AbstractEnergy",
    "AbstractExactModel",
    "AbstractExactPosterior",
    "AbstractExpectationMaximisation",
    "AbstractMarginals",
    "AbstractNetwork",
    "AbstractNetworkBeliefs",
    "AbstractNode",
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
    "AutoregressiveModel",
    "BayesianMixture",
    "BayesianNetwork",
    "BayesianRegression",
    "CauchySource",
    "Clusters",
    "Columns",
    "Components",
    "Conditional",
    "ConditionalEnergy",
    "ConditionalFlow",
    "ConditionalVAE",
    "Constant",
    "CoregionalisedProcess",
    "CountMarginals",
    "Cycle",
    "Density",
    "EvenTables",
    "FamilyEmissions",
    "FlowWithMissing",
    "FourierFeatures",
    "GaussianCopula",
    "GaussianEncoder",
    "GaussianNode",
    "GaussianProcess",
    "GivenNode",
    "Harmonium",
    "Head",
    "HierarchicalNormal",
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
    "MarkovNetwork",
    "MixedBeliefs",
    "MixedFactors",
    "MixedKernels",
    "Mixture",
    "MixtureEmissions",
    "NetworkBeliefs",
    "NumberBelief",
    "OrderedModel",
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
    "TableNode",
    "TablePriors",
    "TiedTransition",
    "Transition",
    "Trend",
    "TrigonometricSeasonal",
    "UndampedCycle",
    "Units",
    "autoregressive_flow",
    "conditional_flow",
    "coupling_flow",
    "in_units",
    "independent_components",
    "mlp_conditional_vae",
    "mlp_vae",
    "one_series",
    "ppca_closed_form",
    "series_in_units",
    "spread_sources",
    "stationary_covariance",
]
