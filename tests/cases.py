"""One table: every public estimator is a row, with options that make it small enough for a test."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils import get_tags

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.bijections import Shift, ShiftScale
from freeenergy.inference import binary_states
from freeenergy.learning import ChowLiu, HillClimbing
from freeenergy.models import BitsRecognition, FullRecognition, MixturePrior, autoregressive_flow
from freeenergy.nn import CausalTransformer, ConvolutionalDenoiser, Masked, PatchDenoiser, ResidualDenoiser


def needs_labels(estimator: Any) -> bool:
    """Whether a fit needs a label for each row."""
    return get_tags(estimator).target_tags.required and not is_regressor(estimator)


@dataclasses.dataclass(frozen=True)
class Case:
    """An estimator under test.

    Attributes:
        estimator: unfitted.
        density: whether it has `evidence`.
        points: for discrete densities, every row that can occur.
        slow: whether it is left to `make test-all`; every estimator has a row that is not.
        sequence: whether rows are time steps of series.
        symbols: for discrete densities of series, how many values a step can take.
        counts: whether rows are counts, sparse or not.
        answers: for models of numbers given rows, what these are: a function of their means and a source
            of random numbers, such as `real`, `positive`, `whole`, `binary` and `share`.
        unit_free: of such models, whether other units change nothing.
        tolerance: of such models, by how many nats fits to the same data in other units may differ.
        columns: the only number of columns that it takes, where a part of it is made for one.
    """

    estimator: Any
    density: bool = True
    points: Any = None
    slow: bool = False
    sequence: bool = False
    symbols: int | None = None
    counts: bool = False
    answers: Any = None
    unit_free: bool = True
    tolerance: float = 1e-5
    columns: int | None = None

    def answered(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows, and answers whose means depend on them."""
        rng = np.random.RandomState(0)
        X = rng.multivariate_normal([1.0, -2.0], [[1.0, 0.6], [0.6, 2.0]], 120)
        return X, self.answers(1.0 + 0.5 * X[:, 0] + 0.2 * X[:, 1], rng)

    def data(self) -> np.ndarray | None:
        """Rows to fit, where the default of the contract does not serve."""
        rng = np.random.RandomState(0)
        if self.counts:
            return rng.poisson(1.0, (150, 2)).astype(float)
        if self.points is None:
            return None
        first = rng.rand(150, 1) < 0.4
        flips = rng.rand(150, np.shape(self.points)[1]) < 0.15
        return (first ^ flips).astype(float)


def real(mean, rng):
    """Numbers with Gaussian noise."""
    return mean + rng.normal(0, 0.5, len(mean))


def positive(mean, rng):
    """Positive numbers with a logarithmic mean."""
    return rng.gamma(4.0, np.exp(mean) / 4.0)


def whole(mean, rng):
    """Counts with a logarithmic mean."""
    return rng.poisson(np.exp(mean)).astype(float)


def binary(mean, rng):
    """Zeros and ones."""
    return (rng.rand(len(mean)) < 1 / (1 + np.exp(1 - mean))).astype(float)


def share(mean, rng):
    """Numbers between zero and one."""
    p = 1 / (1 + np.exp(1 - mean))
    return rng.beta(8 * p, 8 * (1 - p))


_BINARY = np.asarray(binary_states(4))
_CELLS = np.stack(np.meshgrid(np.arange(-6.0, 8.0), np.arange(-6.0, 8.0)), axis=-1).reshape(-1, 2)
_COUNTS = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
_VAE = {"latent_dim": 2, "width": 16, "max_iter": 60, "batch_size": 64}
_FLOW = {"layers": 2, "width": 8, "depth": 1, "max_iter": 30, "batch_size": 64}
_AUTOREGRESSIVE = {"network": Masked(8, 1), "max_iter": 20, "importance_samples": 200}
_DIFFUSION = {"network": ResidualDenoiser(8, 1), "max_iter": 20, "steps": 16}
_BY_CLASS = {"network": ResidualDenoiser(4, 1), "max_iter": 10, "steps": 4, "importance_samples": 8}
_NETWORK = {"width": 8, "max_iter": 20, "batch_size": 64, "judged_rows": 0}

CASES = {
    "GaussianDensity": Case(fe.GaussianDensity()),
    "GaussianDensity-diagonal": Case(fe.GaussianDensity(d.Diagonal()), slow=True),
    "GaussianMixture": Case(fe.GaussianMixture(2)),
    "GaussianMixture-diagonal": Case(fe.GaussianMixture(2, d.Diagonal()), slow=True),
    "GaussianMixture-spherical": Case(fe.GaussianMixture(2, d.Spherical()), slow=True),
    "GaussianMixture-tied": Case(fe.GaussianMixture(2, d.Tied(d.Full())), slow=True),
    "GaussianMixture-shared": Case(
        fe.GaussianMixture(2, d.Shared(shape=True, orientation=True)), slow=True
    ),
    "GaussianMixture-aligned": Case(fe.GaussianMixture(2, d.Shared(shape=True, aligned=True)), slow=True),
    "GaussianMixture-low-rank": Case(fe.GaussianMixture(2, d.LowRank(rank=1)), slow=True),
    "Mixture": Case(fe.Mixture(2), slow=True),
    "Mixture-bernoulli": Case(fe.Mixture(2, family=d.Bernoulli), points=_BINARY),
    "Mixture-by-column": Case(fe.Mixture(2, family="by column")),
    "BayesianMixture": Case(fe.BayesianMixture(2), slow=True),
    "BayesianMixture-by-column": Case(fe.BayesianMixture(2, family="by column"), slow=True),
    "BayesianMixture-diagonal": Case(fe.BayesianMixture(2, d.Diagonal())),
    # with wide kernels, whose tails are thin enough for the grid of the contract
    "GaussianCopula": Case(fe.GaussianCopula(0.9)),
    "KernelDensity": Case(fe.KernelDensity()),
    "GAN": Case(fe.GAN(width=8, depth=1, max_iter=3), density=False),
    "InfoGAN": Case(fe.InfoGAN((2,), 1, width=8, depth=1, max_iter=3), density=False),
    "KMeans": Case(fe.KMeans(2), density=False),
    "FactorAnalysis": Case(fe.FactorAnalysis(1)),
    "MixedFactorAnalysis": Case(fe.MixedFactorAnalysis(1)),
    "PCA": Case(fe.PCA(1), density=False),
    "PPCA": Case(fe.PPCA(1)),
    "RBM": Case(fe.RBM(3, max_iter=40), points=_BINARY),
    "BayesianNetwork": Case(fe.BayesianNetwork(), points=_BINARY),
    "BayesianNetwork-likelihood": Case(fe.BayesianNetwork(ChowLiu(), alpha=0.1), points=_BINARY),
    "BayesianNetwork-numbers": Case(fe.BayesianNetwork(numbers=True)),
    "MarkovNetwork": Case(fe.MarkovNetwork(), points=_BINARY),
    "MarkovNetwork-moral": Case(fe.MarkovNetwork(HillClimbing()), points=_BINARY),
    "VAE": Case(fe.VAE(**_VAE, importance_samples=300)),
    "VAE-bernoulli": Case(
        fe.VAE(**_VAE, emission=d.Bernoulli, importance_samples=2000),
        points=_BINARY,
        slow=True,
    ),
    "VAE-by-column": Case(fe.VAE(**_VAE, emission="by column", importance_samples=300), slow=True),
    "VAE-clusters": Case(fe.VAE(**_VAE, prior=MixturePrior(2), importance_samples=300), slow=True),
    "VAE-full": Case(fe.VAE(**_VAE, recognition=FullRecognition(), importance_samples=300), slow=True),
    "VAE-bits": Case(
        fe.VAE(**_VAE, emission=d.Bernoulli, recognition=BitsRecognition()), points=_BINARY, slow=True
    ),
    "Autoencoder": Case(fe.Autoencoder(1, width=8, max_iter=20, batch_size=64), density=False),
    "NormalizingFlow": Case(fe.NormalizingFlow(**_FLOW)),
    "NormalizingFlow-affine": Case(fe.NormalizingFlow(ShiftScale(), **_FLOW), slow=True),
    "NormalizingFlow-additive": Case(fe.NormalizingFlow(Shift(), **_FLOW), slow=True),
    "NormalizingFlow-autoregressive": Case(
        fe.NormalizingFlow(architecture=autoregressive_flow, **_FLOW), slow=True
    ),
    "Autoregressive": Case(fe.Autoregressive(2, **_AUTOREGRESSIVE)),
    "Autoregressive-binary": Case(fe.Autoregressive(**_AUTOREGRESSIVE), points=_BINARY, slow=True),
    "Autoregressive-transformer": Case(
        fe.Autoregressive(**{**_AUTOREGRESSIVE, "network": CausalTransformer(8, 1, heads=2)}),
        points=_BINARY,
        slow=True,
    ),
    "DiffusionModel": Case(fe.DiffusionModel(**_DIFFUSION)),
    "DiffusionModel-patches": Case(
        fe.DiffusionModel(**{**_DIFFUSION, "network": PatchDenoiser((2,), 1, width=8, depth=1, heads=2)}),
        slow=True,
        columns=2,
    ),
    "DiffusionModel-convolutions": Case(
        fe.DiffusionModel(**{**_DIFFUSION, "network": ConvolutionalDenoiser((2,), width=4, levels=2)}),
        slow=True,
        columns=2,
    ),
    "Dequantised": Case(fe.Dequantised(importance_samples=200), points=_CELLS),
    "Imputer": Case(fe.Imputer(), density=False),
    "NaiveBayes": Case(fe.NaiveBayes(), density=False),
    "ClassConditionalDiffusion": Case(fe.ClassConditionalDiffusion(**_BY_CLASS), density=False),
    "ClassConditionalGAN": Case(fe.ClassConditionalGAN(width=8, depth=1, max_iter=3), density=False),
    "ClassConditionalVAE": Case(
        fe.ClassConditionalVAE(1, width=8, max_iter=20, batch_size=64, importance_samples=50), density=False
    ),
    "DiscriminantAnalysis": Case(fe.DiscriminantAnalysis(), density=False),
    "DiscriminantAnalysis-own": Case(fe.DiscriminantAnalysis(d.Full()), density=False, slow=True),
    "LatentDirichletAllocation": Case(
        fe.LatentDirichletAllocation(2, importance_samples=200), points=_COUNTS, counts=True
    ),
    "ICA": Case(fe.ICA()),
    "ICA-laplace": Case(fe.ICA(d.Laplace), slow=True),
    "SparseCoding": Case(fe.SparseCoding(2, max_iter=30, importance_samples=200)),
    "GaussianProcess": Case(fe.GaussianProcess(), density=False, answers=real),
    "GaussianProcess-counts": Case(
        fe.GaussianProcess(family=d.Poisson), density=False, answers=whole, slow=True
    ),
    "GaussianProcessClassifier": Case(fe.GaussianProcessClassifier(), density=False),
    "KernelLogisticRegression": Case(fe.KernelLogisticRegression(), density=False),
    "KernelRidge": Case(fe.KernelRidge(), density=False, answers=real),
    "NadarayaWatson": Case(fe.NadarayaWatson(), density=False, answers=real),
    "BaseRate": Case(fe.BaseRate(), density=False, answers=real),
    "Bagging": Case(fe.Bagging(n_estimators=5), density=False, answers=real),
    "BaggingClassifier": Case(fe.BaggingClassifier(n_estimators=5), density=False),
    "Boosting": Case(fe.Boosting(n_estimators=5), density=False, answers=real),
    "Conformal": Case(fe.Conformal(), density=False, answers=real),
    "ConformalClassifier": Case(fe.ConformalClassifier(), density=False),
    "ConditionalFlow": Case(fe.ConditionalFlow(**_NETWORK), density=False, answers=real),
    "ConditionalVAE": Case(fe.ConditionalVAE(**_NETWORK), density=False, answers=real),
    "MixtureDensity": Case(
        fe.MixtureDensity(2, **{**_NETWORK, "judged_rows": 2000}), density=False, answers=real
    ),
    "Ridge": Case(fe.Ridge(), density=False, answers=real),
    "BayesianLinearRegression": Case(fe.BayesianLinearRegression(), density=False, answers=real),
    "SparseRegression": Case(fe.SparseRegression(), density=False, answers=real),
    "RobustRegression": Case(fe.RobustRegression(), density=False, answers=real),
    "QuantileRegression": Case(fe.QuantileRegression(), density=False, answers=real),
    "LinearRegression": Case(fe.LinearRegression(), density=False, answers=real),
    "GeneralisedLinearModel": Case(fe.GeneralisedLinearModel(), density=False, answers=real),
    "GeneralisedLinearModel-poisson": Case(
        fe.GeneralisedLinearModel(d.Poisson), density=False, answers=whole
    ),
    "GeneralisedLinearModel-zero-inflated": Case(
        fe.GeneralisedLinearModel(fe.estimators.ZeroInflated(d.NegativeBinomial)),
        density=False,
        answers=whole,
    ),
    "GeneralisedLinearModel-gamma": Case(
        fe.GeneralisedLinearModel(d.Gamma, varying=True), density=False, answers=positive
    ),
    "GeneralisedLinearModel-logistic": Case(
        fe.GeneralisedLinearModel(d.Bernoulli), density=False, answers=binary
    ),
    "GeneralisedLinearModel-beta": Case(
        fe.GeneralisedLinearModel(d.Beta), density=False, answers=share, unit_free=False, slow=True
    ),
    "Perceptron": Case(fe.Perceptron(), density=False),
    "Calibrated": Case(fe.Calibrated(), density=False),
    "MultiLabel": Case(fe.MultiLabel(), density=False),
    "SoftmaxRegression": Case(fe.SoftmaxRegression(), density=False),
    "OrderedRegression": Case(fe.OrderedRegression(), density=False),
    "SupportVectorMachine": Case(fe.SupportVectorMachine(), density=False),
    "Nystroem": Case(fe.Nystroem(n_components=20), density=False),
    "RandomFourierFeatures": Case(fe.RandomFourierFeatures(n_components=20), density=False),
    "HMM": Case(fe.HMM(2), sequence=True),
    "HMM-mixtures": Case(fe.HMM(2, n_components=2), sequence=True, slow=True),
    "HMM-by-column": Case(fe.HMM(2, "by column"), sequence=True, slow=True),
    "HMM-categorical": Case(fe.HMM(2, d.Categorical), sequence=True, symbols=3, slow=True),
    "LinearGaussianSSM": Case(fe.LinearGaussianSSM(1, max_iter=50), sequence=True),
    "AutoRegression": Case(fe.AutoRegression(1), sequence=True),
    "StructuralTimeSeries": Case(fe.StructuralTimeSeries(), sequence=True),
    "SwitchingLinearSystem": Case(fe.SwitchingLinearSystem(2, max_iter=10), sequence=True),
    "MarkovChain": Case(fe.MarkovChain(), sequence=True, symbols=3),
}
