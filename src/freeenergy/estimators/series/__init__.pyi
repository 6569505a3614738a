"""Estimators of series."""

from ...shell import Forecast
from ._autoregression import AutoRegression
from ._hmm import HMM
from ._markov import MarkovChain
from ._state_space import LinearGaussianSSM, States
from ._structural import Component, StructuralTimeSeries
from ._switching import SwitchingLinearSystem

__all__ = [
    "HMM",
    "AutoRegression",
    "Component",
    "Forecast",
    "LinearGaussianSSM",
    "MarkovChain",
    "States",
    "StructuralTimeSeries",
    "SwitchingLinearSystem",
]
