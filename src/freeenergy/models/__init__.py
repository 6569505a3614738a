"""Models: energies composed of distributions, bijections and networks, written for one event."""

from ._base import AbstractEnergy, AbstractExpectationMaximisation, AbstractRegularised
from ._bayesian_mixture import BayesianMixture
from ._clusters import Clusters
from ._density import Density
from ._flow import autoregressive_flow, coupling_flow
from ._harmonium import AbstractFiniteUnits, AbstractUnits, BernoulliUnits, GaussianUnits, Harmonium
from ._hmm import (
    HMM,
    AbstractCountedTransition,
    AbstractEmissions,
    AbstractTransition,
    FamilyEmissions,
    InputTransition,
    MarkovChain,
    MixtureEmissions,
    TiedTransition,
    Transition,
)
from ._kernels import Kernels
from ._labelled import Labelled
from ._linear_gaussian import LinearGaussian, ppca_closed_form
from ._mixture import Mixture
from ._series import AbstractSequenceModel, Series, one_series
from ._softmax import SoftmaxModel
from ._state_space import (
    AbstractBlock,
    AutoRegression,
    Columns,
    Autoregressive,
    Cycle,
    Learned,
    Level,
    LinearGaussianSSM,
    Regressors,
    Seasonal,
    Structural,
    SwitchingBelief,
    SwitchingLinearSystem,
    Trend,
    stationary_covariance,
)
from ._vae import (
    VAE,
    AbstractEmission,
    BernoulliEmission,
    GaussianEmission,
    GaussianEncoder,
    StandardNormal,
    mlp_vae,
)

__all__ = [
    "HMM",
    "VAE",
    "AbstractBlock",
    "AbstractCountedTransition",
    "AbstractEmission",
    "AbstractEmissions",
    "AbstractEnergy",
    "AbstractExpectationMaximisation",
    "AbstractFiniteUnits",
    "AbstractRegularised",
    "AbstractSequenceModel",
    "AbstractTransition",
    "AbstractUnits",
    "AutoRegression",
    "Autoregressive",
    "BayesianMixture",
    "BernoulliEmission",
    "BernoulliUnits",
    "Clusters",
    "Columns",
    "Cycle",
    "Density",
    "FamilyEmissions",
    "GaussianEmission",
    "GaussianEncoder",
    "GaussianUnits",
    "Harmonium",
    "InputTransition",
    "Kernels",
    "Labelled",
    "Learned",
    "Level",
    "LinearGaussian",
    "LinearGaussianSSM",
    "MarkovChain",
    "Mixture",
    "MixtureEmissions",
    "Regressors",
    "Seasonal",
    "Series",
    "SoftmaxModel",
    "StandardNormal",
    "Structural",
    "SwitchingBelief",
    "SwitchingLinearSystem",
    "TiedTransition",
    "Transition",
    "Trend",
    "autoregressive_flow",
    "coupling_flow",
    "mlp_vae",
    "one_series",
    "ppca_closed_form",
    "stationary_covariance",
]
