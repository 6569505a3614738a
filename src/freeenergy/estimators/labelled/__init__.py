"""Estimators of labels and of numbers given rows."""

from ._bagging import Bagging, BaggingClassifier
from ._boosting import Boosting
from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._conformal import Conformal, ConformalClassifier
from ._linear import LinearRegression
from ._losses import AbstractScoreLoss, QuantileLoss
from ._mixture_density import MixtureDensity
from ._regressor import AbstractRegressor
from ._softmax import SoftmaxRegression

__all__ = [
    "AbstractRegressor",
    "AbstractScoreLoss",
    "Bagging",
    "BaggingClassifier",
    "Boosting",
    "Conformal",
    "ConformalClassifier",
    "DiscriminantAnalysis",
    "LinearRegression",
    "MixtureDensity",
    "NaiveBayes",
    "QuantileLoss",
    "SoftmaxRegression",
]
