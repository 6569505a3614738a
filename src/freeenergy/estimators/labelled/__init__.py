"""Estimators of labels and of numbers given rows."""

from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._linear import LinearRegression
from ._mixture_density import MixtureDensity
from ._regressor import AbstractRegressor
from ._softmax import SoftmaxRegression

__all__ = [
    "AbstractRegressor",
    "DiscriminantAnalysis",
    "LinearRegression",
    "MixtureDensity",
    "NaiveBayes",
    "SoftmaxRegression",
]
