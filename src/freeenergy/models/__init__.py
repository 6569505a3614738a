"""Models: energies composed of distributions, bijections and networks, written for one event."""

from ._base import AbstractEnergy, AbstractExpectationMaximisation
from ._clusters import Clusters
from ._density import Density
from ._flow import Flow, autoregressive_flow, coupling_flow
from ._harmonium import AbstractFiniteUnits, AbstractUnits, BernoulliUnits, GaussianUnits, Harmonium
from ._mixture import Mixture

__all__ = [
    "AbstractEnergy",
    "AbstractExpectationMaximisation",
    "AbstractFiniteUnits",
    "AbstractUnits",
    "BernoulliUnits",
    "Clusters",
    "Density",
    "Flow",
    "GaussianUnits",
    "Harmonium",
    "Mixture",
    "autoregressive_flow",
    "coupling_flow",
]
