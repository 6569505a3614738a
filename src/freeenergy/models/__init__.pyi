"""Models: energies composed of distributions, bijections and networks, written for one event."""

from ._adversaries import Adversaries, Codes, adversaries
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
from ._diffusion import AbstractSampler, Ancestral, Corrected, Diffusion, FlowSteps, Implicit, flow_log_prob
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
from ._noising import (
    DATA,
    AbstractParametrisation,
    AbstractPath,
    AbstractSchedule,
    CosineSchedule,
    LearnedSchedule,
    LinearSchedule,
    LogLinearSchedule,
    PredictsDatum,
    PredictsDisplacement,
    PredictsNoise,
    PredictsScore,
    PredictsVelocity,
    Stage,
    StepSchedule,
    StraightPath,
    StraightSchedule,
    VarianceExploding,
    VariancePreserving,
    flow_matching_weight,
    likelihood_weight,
    noising_posterior,
    noising_step,
    reverse_variance,
    simple_weight,
)
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
from ._units import ConditionalInUnits, InUnits, SeriesInUnits, in_units, series_in_units
from ._vae import VAE, GaussianEncoder, StandardNormal, mlp_vae

__all__ = [
    "DATA",
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
    "AbstractParametrisation",
    "AbstractPath",
    "AbstractRecognised",
    "AbstractRegularised",
    "AbstractRescalable",
    "AbstractSampler",
    "AbstractSchedule",
    "AbstractSequenceModel",
    "AbstractSource",
    "AbstractTransition",
    "AbstractUndirected",
    "AbstractVariationalBound",
    "AbstractWithPrior",
    "Adversaries",
    "Affine",
    "Ancestral",
    "AnsweredProcess",
    "AutoRegression",
    "Autoregressive",
    "AutoregressiveModel",
    "BayesianMixture",
    "BayesianNetwork",
    "BayesianRegression",
    "CauchySource",
    "Clusters",
    "Codes",
    "Columns",
    "Components",
    "Conditional",
    "ConditionalEnergy",
    "ConditionalFlow",
    "ConditionalInUnits",
    "ConditionalVAE",
    "Constant",
    "CoregionalisedProcess",
    "Corrected",
    "CosineSchedule",
    "CountMarginals",
    "Cycle",
    "Density",
    "Diffusion",
    "EvenTables",
    "FamilyEmissions",
    "FlowSteps",
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
    "Implicit",
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
    "LearnedSchedule",
    "Level",
    "LevelMarginals",
    "LinearGaussian",
    "LinearGaussianSSM",
    "LinearSchedule",
    "LogCoshSource",
    "LogLinearSchedule",
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
    "PredictsDatum",
    "PredictsDisplacement",
    "PredictsNoise",
    "PredictsScore",
    "PredictsVelocity",
    "RegressionEmissions",
    "Regressors",
    "Seasonal",
    "Series",
    "SeriesInUnits",
    "SmoothMarginals",
    "SoftmaxModel",
    "SparseCoding",
    "Stage",
    "StandardNormal",
    "StepSchedule",
    "StraightPath",
    "StraightSchedule",
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
    "VarianceExploding",
    "VariancePreserving",
    "adversaries",
    "autoregressive_flow",
    "conditional_flow",
    "coupling_flow",
    "flow_log_prob",
    "flow_matching_weight",
    "in_units",
    "independent_components",
    "likelihood_weight",
    "mlp_conditional_vae",
    "mlp_vae",
    "noising_posterior",
    "noising_step",
    "one_series",
    "ppca_closed_form",
    "reverse_variance",
    "series_in_units",
    "simple_weight",
    "spread_sources",
    "stationary_covariance",
]
