"""Models: energies composed of distributions, bijections and networks, written for one event."""

from ._base import AbstractEnergy, AbstractExpectationMaximisation, AbstractRegularised
from ._clusters import Clusters
from ._density import Density
from ._flow import autoregressive_flow, coupling_flow
from ._harmonium import AbstractFiniteUnits, AbstractUnits, BernoulliUnits, GaussianUnits, Harmonium
from ._linear_gaussian import LinearGaussian, ppca_closed_form
from ._mixture import Mixture
from ._softmax import SoftmaxModel
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
    "VAE",
    "AbstractEmission",
    "AbstractEnergy",
    "AbstractExpectationMaximisation",
    "AbstractFiniteUnits",
    "AbstractRegularised",
    "AbstractUnits",
    "BernoulliEmission",
    "BernoulliUnits",
    "Clusters",
    "Density",
    "GaussianEmission",
    "GaussianEncoder",
    "GaussianUnits",
    "Harmonium",
    "LinearGaussian",
    "Mixture",
    "SoftmaxModel",
    "StandardNormal",
    "autoregressive_flow",
    "coupling_flow",
    "mlp_vae",
    "ppca_closed_form",
]
