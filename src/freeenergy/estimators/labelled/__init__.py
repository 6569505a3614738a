"""Estimators of labels and of numbers given rows."""

from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._gaussian_process import GaussianProcess
from ._gaussian_process_classifier import GaussianProcessClassifier
from ._kernel_classifier import SupportVectorMachine
from ._kernel_features import Nystroem, RandomFourierFeatures
from ._kernel_ridge import KernelRidge
from ._linear import LinearRegression
from ._nadaraya_watson import NadarayaWatson
from ._regressor import AbstractRegressor
from ._softmax import SoftmaxRegression

__all__ = [
    "AbstractRegressor",
    "DiscriminantAnalysis",
    "GaussianProcess",
    "GaussianProcessClassifier",
    "KernelRidge",
    "LinearRegression",
    "NadarayaWatson",
    "NaiveBayes",
    "Nystroem",
    "RandomFourierFeatures",
    "SoftmaxRegression",
    "SupportVectorMachine",
]
