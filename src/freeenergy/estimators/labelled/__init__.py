"""Estimators of labels and of numbers given rows."""

from ._base_rate import BaseRate
from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._linear import LinearRegression
from ._regressor import AbstractRegressor
from ._softmax import SoftmaxRegression

__all__ = [
    "AbstractRegressor",
    "BaseRate",
    "DiscriminantAnalysis",
    "LinearRegression",
    "NaiveBayes",
    "SoftmaxRegression",
]
