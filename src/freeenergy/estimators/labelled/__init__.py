"""Estimators of labels and of numbers given rows."""

from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._glm import GeneralisedLinearModel
from ._linear import LinearRegression
from ._regressor import AbstractRegressor
from ._responses import AbstractResponse, InverseGaussian, ModelledShape, ZeroInflated
from ._softmax import SoftmaxRegression

__all__ = [
    "AbstractRegressor",
    "AbstractResponse",
    "DiscriminantAnalysis",
    "GeneralisedLinearModel",
    "InverseGaussian",
    "LinearRegression",
    "ModelledShape",
    "NaiveBayes",
    "SoftmaxRegression",
    "ZeroInflated",
]
