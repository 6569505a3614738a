"""Labels by Gaussian processes, with a Gaussian for what is not one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jax import Array
from scipy.special import log_expit, log_ndtr, log_softmax, logsumexp

from ..._core import Evidence, Fit, Kind, generator, on_device
from ...inference import AbstractValuesMethod
from ...inference._latent_processes import LabelLikelihood
from ...kernels import RBF, AbstractKernel
from ...shell import AbstractDensity, Rows, check_instance, check_numbers
from ._kernel_classifier import AbstractKernelClassifier, check_classes
from ._kernelled import LogParameters, Search, in_parts, starts_about
from ._latent import LatentEvidences, ValuesProcess

_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(40)
# logistic noise at even distances, whose sums are exact but for rounding
_LOGISTIC = np.linspace(-38.0, 38.0, 305)
_LOG_PARTS = log_expit(_LOGISTIC) + log_expit(-_LOGISTIC) + np.log(_LOGISTIC[1] - _LOGISTIC[0])
# a standard deviation from which on the law of f is smoother than the logistic function
_WIDE = 1.5


def log_average_chance(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """log E 1/(1 + exp(−f)) for f ~ N(mean, std²), by quadrature over the smoother of both.

    >>> np.exp(log_average_chance(np.array([0.0, 50.0]), np.array([9.0, 1.0]))).round(6).tolist()
    [0.5, 1.0]
    """
    inside = log_expit(mean[..., None] + std[..., None] * _NODES)
    narrow = np.asarray(logsumexp(inside + np.log(_SHARES / _SHARES.sum()), axis=-1))
    # 1/(1 + exp(−f)) is the chance that logistic noise u has f + u > 0
    inside = log_ndtr((mean[..., None] + _LOGISTIC) / np.maximum(std, _WIDE)[..., None])
    wide = np.asarray(logsumexp(inside + _LOG_PARTS, axis=-1))
    return np.minimum(np.where(std < _WIDE, narrow, wide), 0.0)


class GaussianProcessClassifier(AbstractKernelClassifier):
    """p(y | x) = E 1/(1 + exp(−y f(x))) for labels y = ±1, with a Gaussian process for f.

    What is known of f is not Gaussian: Laplace's method takes the Gaussian about its likeliest values (or,
    as `method` says, that of the highest lower bound), and the parameters of the kernel maximise the
    estimate of the evidence that comes with it,

        log p(y | X) ≈ Σ log p(y | f̂) − ½ f̂ᵀK⁻¹f̂ − ½ log |I + S K S|.

    Of more than two labels each has a process against all others, of the same kernel, and their
    probabilities are divided by their sum.

    Args:
        kernel: k, of `freeenergy.kernels`; None for a Gaussian kernel with a length for each column.
        standardise: whether the kernel sees columns in units of their standard deviations, from their
            means; else as they are.
        learn: whether the parameters of the kernel are learned, or stay as given.
        method: how a Gaussian is found for f, `LaplaceMethod()` or `VariationalGaussian()` of
            `freeenergy.inference`; None for the first.
        n_init: starts of the search; all but the first are random.
        max_iter, tol: the most iterations of L-BFGS, and the slope per row in logarithms of the parameters
            below which it stops.
        inputs: the density of rows and labels from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.
        random_state: for starts.
        verbose: 1 shows progress.

    Attributes:
        classes_: the labels.
        kernel_: the kernel after the fit, in the units that it sees; `summary` has those of the data.
        theta_: logarithms of its parameters.
        log_evidence_: log p(y | X), an estimate or, with `VariationalGaussian()`, a lower bound.
        columns_, inputs_: what columns are called, and the density that what is missing is drawn from.
        model_: a `freeenergy.models.LatentProcess` of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> x = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GaussianProcessClassifier().fit(x, np.sin(x[:, 0]) > 0)
    >>> model.predict([[1.0], [4.0]]).tolist()
    [True, False]
    """

    _kind = Kind.ESTIMATE

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        standardise: bool = True,
        learn: bool = True,
        method: AbstractValuesMethod | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.standardise = standardise
        self.learn = learn
        self.method = method
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.inputs = inputs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "learn", bool)
        check_instance(self, "method", AbstractValuesMethod, optional=True)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        rows, _ = self._merged(rows)
        assert rows.known is not None
        labels = rows.known[:, 0].astype(int)
        check_classes(self, labels)
        columns = rows.x.shape[1]
        start = 1.0 * RBF(on_device(np.ones(columns))) if self.kernel is None else self.kernel
        start.gram(rows.x[:1])
        logs = LogParameters.of(start)
        classes = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        signs = np.stack([np.where(labels == label, 1.0, -1.0) for label in classes])
        likelihoods = [LabelLikelihood(own, rows.weight) for own in signs]
        seen = LatentEvidences(
            logs, rows.x, rows.weight[:, None], lambda _: list(likelihoods), None, self.method
        )
        free = np.full(len(logs.vector), self.learn)
        starts = starts_about(logs.vector, free, self.n_init, generator(key))
        best = seen.best(starts, free, Search(self.max_iter, self.tol, self._progress()))
        self.theta_ = best.place
        process, self.log_evidence_ = seen.process(self.theta_)
        vars(self)["_process"] = process
        path = np.array(best.path) / rows.weight.sum()
        return Fit(process.model, {"objective": path}, len(path), best.status)

    @functools.cached_property
    def _process(self) -> ValuesProcess:
        """f on the host: made again where a file was read."""
        return ValuesProcess(self.model_)

    @property
    def kernel_(self) -> AbstractKernel:
        """The kernel after the fit, in the units that it sees."""
        return self.model_.kernel

    def _function(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and standard deviation of each process, for complete rows."""
        found = [self._process.at(z) for z in in_parts(self.scaling_.apply(x), self._process.size)]
        mean, variance = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, np.sqrt(variance)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        mean, spread = self._function(x)
        logs = log_average_chance(mean, spread)
        if logs.shape[1] == 1:
            odds = 0.5 * (logs - log_average_chance(-mean, spread))
            logs = np.concatenate([-odds, odds], axis=1)
        return check_numbers(self, "decision_function", logs, logarithms=True)

    def _log_laws(self, x: np.ndarray) -> np.ndarray:
        return log_softmax(self._scores(x), axis=1)

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        kind = Kind.ESTIMATE if self.method is None else self.method.kind
        return Evidence(np.array([self.log_evidence_]), np.zeros(1), kind), self.fitted_size_

    def _count_parameters(self) -> int:
        return len(self.theta_) if self.learn else 0
