"""Estimators of labels and of numbers given rows."""

from ._bagging import Bagging, BaggingClassifier
from ._base_rate import BaseRate
from ._bayesian_linear import BayesianLinearRegression
from ._boosting import Boosting
from ._calibrated import Calibrated
from ._calibrations import AbstractCalibration, Isotonic, Sigmoid, Temperature
from ._class_conditional_diffusion import ClassConditionalDiffusion
from ._class_conditional_gan import ClassConditionalGAN
from ._class_conditional_vae import ClassConditionalVAE
from ._classifiers import DiscriminantAnalysis, NaiveBayes
from ._conditional_flow import ConditionalFlow
from ._conditional_vae import ConditionalVAE
from ._conformal import Conformal, ConformalClassifier
from ._gaussian_process import GaussianProcess
from ._gaussian_process_classifier import GaussianProcessClassifier
from ._glm import GeneralisedLinearModel
from ._kernel_classifier import SupportVectorMachine
from ._kernel_features import Nystroem, RandomFourierFeatures
from ._kernel_logistic import KernelLogisticRegression
from ._kernel_ridge import KernelRidge
from ._linear import LinearRegression
from ._losses import AbstractScoreLoss, QuantileLoss
from ._mixture_density import MixtureDensity
from ._multilabel import MultiLabel
from ._nadaraya_watson import NadarayaWatson
from ._ordered import OrderedRegression
from ._perceptron import Perceptron
from ._priors import AbstractSeparablePrior, ElasticNetPrior, LogarithmicPrior, SpikePrior, StudentPrior
from ._quantiles import QuantileRegression
from ._regressor import AbstractRegressor
from ._responses import AbstractResponse, InverseGaussian, ModelledShape, ZeroInflated
from ._ridge import Ridge
from ._robust import RobustRegression
from ._softmax import SoftmaxRegression
from ._sparse import SparseRegression

__all__ = [
    "AbstractCalibration",
    "AbstractRegressor",
    "AbstractResponse",
    "AbstractScoreLoss",
    "AbstractSeparablePrior",
    "Bagging",
    "BaggingClassifier",
    "BaseRate",
    "BayesianLinearRegression",
    "Boosting",
    "Calibrated",
    "ClassConditionalDiffusion",
    "ClassConditionalGAN",
    "ClassConditionalVAE",
    "ConditionalFlow",
    "ConditionalVAE",
    "Conformal",
    "ConformalClassifier",
    "DiscriminantAnalysis",
    "ElasticNetPrior",
    "GaussianProcess",
    "GaussianProcessClassifier",
    "GeneralisedLinearModel",
    "InverseGaussian",
    "Isotonic",
    "KernelLogisticRegression",
    "KernelRidge",
    "LinearRegression",
    "LogarithmicPrior",
    "MixtureDensity",
    "ModelledShape",
    "MultiLabel",
    "NadarayaWatson",
    "NaiveBayes",
    "Nystroem",
    "OrderedRegression",
    "Perceptron",
    "QuantileLoss",
    "QuantileRegression",
    "RandomFourierFeatures",
    "Ridge",
    "RobustRegression",
    "Sigmoid",
    "SoftmaxRegression",
    "SparseRegression",
    "SpikePrior",
    "StudentPrior",
    "SupportVectorMachine",
    "Temperature",
    "ZeroInflated",
]
