"""The public names, and where they are defined.  `__init__.py` reads this file."""

from . import (
    bijections as bijections,
)
from . import (
    comparison as comparison,
)
from . import (
    datasets as datasets,
)
from . import (
    distributions as distributions,
)
from . import (
    estimators as estimators,
)
from . import (
    evaluation as evaluation,
)
from . import (
    inference as inference,
)
from . import (
    io as io,
)
from . import (
    kernels as kernels,
)
from . import (
    learning as learning,
)
from . import (
    models as models,
)
from . import (
    nn as nn,
)
from . import (
    plots as plots,
)
from . import (
    report as report,
)
from . import (
    shell as shell,
)
from . import (
    testing as testing,
)
from ._core import (
    AbstractAlgorithm as AbstractAlgorithm,
)
from ._core import (
    Checkpoint as Checkpoint,
)
from ._core import (
    Data as Data,
)
from ._core import (
    Evidence as Evidence,
)
from ._core import (
    Fit as Fit,
)
from ._core import (
    Info as Info,
)
from ._core import (
    Kind as Kind,
)
from ._core import (
    Status as Status,
)
from ._core import (
    buffer as buffer,
)
from ._core import (
    freeze as freeze,
)
from ._core import (
    parameter as parameter,
)
from ._core import (
    positive as positive,
)
from ._core import (
    positive_definite as positive_definite,
)
from ._core import (
    progress_bar as progress_bar,
)
from ._core import (
    real as real,
)
from ._core import (
    simplex as simplex,
)
from ._core import (
    unit_interval as unit_interval,
)
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .estimators import (
    GAN as GAN,
)
from .estimators import (
    HMM as HMM,
)
from .estimators import (
    ICA as ICA,
)
from .estimators import (
    PCA as PCA,
)
from .estimators import (
    PPCA as PPCA,
)
from .estimators import (
    RBM as RBM,
)
from .estimators import (
    VAE as VAE,
)
from .estimators import (
    Autoencoder as Autoencoder,
)
from .estimators import (
    AutoRegression as AutoRegression,
)
from .estimators import (
    Autoregressive as Autoregressive,
)
from .estimators import (
    Bagging as Bagging,
)
from .estimators import (
    BaggingClassifier as BaggingClassifier,
)
from .estimators import (
    BaseRate as BaseRate,
)
from .estimators import (
    BayesianLinearRegression as BayesianLinearRegression,
)
from .estimators import (
    BayesianMixture as BayesianMixture,
)
from .estimators import (
    BayesianNetwork as BayesianNetwork,
)
from .estimators import (
    Boosting as Boosting,
)
from .estimators import (
    Calibrated as Calibrated,
)
from .estimators import (
    Chunks as Chunks,
)
from .estimators import (
    ClassConditionalDiffusion as ClassConditionalDiffusion,
)
from .estimators import (
    ClassConditionalGAN as ClassConditionalGAN,
)
from .estimators import (
    ClassConditionalVAE as ClassConditionalVAE,
)
from .estimators import (
    ConditionalFlow as ConditionalFlow,
)
from .estimators import (
    ConditionalVAE as ConditionalVAE,
)
from .estimators import (
    Conformal as Conformal,
)
from .estimators import (
    ConformalClassifier as ConformalClassifier,
)
from .estimators import (
    Dequantised as Dequantised,
)
from .estimators import (
    DiffusionModel as DiffusionModel,
)
from .estimators import (
    DiscriminantAnalysis as DiscriminantAnalysis,
)
from .estimators import (
    FactorAnalysis as FactorAnalysis,
)
from .estimators import (
    GaussianCopula as GaussianCopula,
)
from .estimators import (
    GaussianDensity as GaussianDensity,
)
from .estimators import (
    GaussianMixture as GaussianMixture,
)
from .estimators import (
    GaussianProcess as GaussianProcess,
)
from .estimators import (
    GaussianProcessClassifier as GaussianProcessClassifier,
)
from .estimators import (
    GeneralisedLinearModel as GeneralisedLinearModel,
)
from .estimators import (
    Imputer as Imputer,
)
from .estimators import (
    InfoGAN as InfoGAN,
)
from .estimators import (
    KernelDensity as KernelDensity,
)
from .estimators import (
    KernelLogisticRegression as KernelLogisticRegression,
)
from .estimators import (
    KernelRidge as KernelRidge,
)
from .estimators import (
    KMeans as KMeans,
)
from .estimators import (
    LatentDirichletAllocation as LatentDirichletAllocation,
)
from .estimators import (
    LinearGaussianSSM as LinearGaussianSSM,
)
from .estimators import (
    LinearRegression as LinearRegression,
)
from .estimators import (
    MarkovChain as MarkovChain,
)
from .estimators import (
    MarkovNetwork as MarkovNetwork,
)
from .estimators import (
    MixedFactorAnalysis as MixedFactorAnalysis,
)
from .estimators import (
    Mixture as Mixture,
)
from .estimators import (
    MixtureDensity as MixtureDensity,
)
from .estimators import (
    MultiLabel as MultiLabel,
)
from .estimators import (
    NadarayaWatson as NadarayaWatson,
)
from .estimators import (
    NaiveBayes as NaiveBayes,
)
from .estimators import (
    NormalizingFlow as NormalizingFlow,
)
from .estimators import (
    Nystroem as Nystroem,
)
from .estimators import (
    OrderedRegression as OrderedRegression,
)
from .estimators import (
    Perceptron as Perceptron,
)
from .estimators import (
    PlusPlus as PlusPlus,
)
from .estimators import (
    Promax as Promax,
)
from .estimators import (
    QuantileLoss as QuantileLoss,
)
from .estimators import (
    QuantileRegression as QuantileRegression,
)
from .estimators import (
    RandomFourierFeatures as RandomFourierFeatures,
)
from .estimators import (
    RandomRows as RandomRows,
)
from .estimators import (
    Ridge as Ridge,
)
from .estimators import (
    RobustRegression as RobustRegression,
)
from .estimators import (
    Schema as Schema,
)
from .estimators import (
    SoftmaxRegression as SoftmaxRegression,
)
from .estimators import (
    SparseCoding as SparseCoding,
)
from .estimators import (
    SparseRegression as SparseRegression,
)
from .estimators import (
    StructuralTimeSeries as StructuralTimeSeries,
)
from .estimators import (
    Support as Support,
)
from .estimators import (
    SupportVectorMachine as SupportVectorMachine,
)
from .estimators import (
    SwitchingLinearSystem as SwitchingLinearSystem,
)
from .estimators import (
    Varimax as Varimax,
)
from .inference import Energy as Energy
from .io import load as load
from .shell import Forecast as Forecast
from .shell import SeriesFrame as SeriesFrame
from .shell import infer as infer
from .shell import series as series

__version__: str
