"""Estimators of labels and of numbers given rows."""

from ._base_rate import BaseRate
from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._linear import LinearRegression
from ._quantiles import QuantileRegression
from ._regressor import AbstractRegressor
from ._ridge import Ridge
from ._robust import RobustRegression
from ._softmax import SoftmaxRegression
from ._sparse import SparseRegression

__all__ = [
    "AbstractRegressor",
    "BaseRate",
    "DiscriminantAnalysis",
    "LinearRegression",
    "NaiveBayes",
    "QuantileRegression",
    "Ridge",
    "RobustRegression",
    "SoftmaxRegression",
    "SparseRegression",
]
