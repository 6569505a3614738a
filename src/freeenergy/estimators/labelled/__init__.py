"""Estimators of labels given rows."""

from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._softmax import SoftmaxRegression

__all__ = [
    "DiscriminantAnalysis",
    "NaiveBayes",
    "SoftmaxRegression",
]
