"""Estimators of labels and of numbers given rows."""

from ._bagging import Bagging, BaggingClassifier
from ._base_rate import BaseRate
from ._boosting import Boosting
from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._conformal import Conformal, ConformalClassifier
from ._linear import LinearRegression
from ._losses import AbstractScoreLoss, QuantileLoss
from ._mixture_density import MixtureDensity
from ._quantiles import QuantileRegression
from ._regressor import AbstractRegressor
from ._ridge import Ridge
from ._robust import RobustRegression
from ._softmax import SoftmaxRegression
from ._sparse import SparseRegression

__all__ = [
    "AbstractRegressor",
    "AbstractScoreLoss",
    "Bagging",
    "BaggingClassifier",
    "BaseRate",
    "Boosting",
    "Conformal",
    "ConformalClassifier",
    "DiscriminantAnalysis",
    "LinearRegression",
    "MixtureDensity",
    "NaiveBayes",
    "QuantileLoss",
    "QuantileRegression",
    "Ridge",
    "RobustRegression",
    "SoftmaxRegression",
    "SparseRegression",
]
