"""Sparse coding as an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array

from ..._core import (
    AbstractAlgorithm,
    Data,
    Evidence,
    Fit,
    Kind,
    generator,
    on_device,
    split_key,
)
from ...learning import EM
from ...models import AbstractSource, LaplaceSource
from ...models import SparseCoding as SparseCodingModel
from ...shell import AbstractDensity, Rows, TransformsRows, check_instance, check_int
from ...shell._answers import answers
from ...shell._capabilities import loadings_to_show
from ._starts import RandomRows

_START_PRECISION = 10.0


class SparseCoding(TransformsRows, AbstractDensity):
    """Each row as a sum of a few columns of a dictionary, which may have more of them than rows do.

    x_k ~ exp(−E(x_k))/Z, y | x ~ N(C x + c, I/λ), learned by EM with Laplace's method in the E step.

    `evidence` is an estimate (Laplace's method): it is exact for no sparse source, and poor where a
    posterior has several modes.  With `importance_samples` it is a lower bound with a standard error,
    which comes as close as one likes, and missing entries are filled by the same samples.

    Args:
        n_components: how many sources; twice the number of columns by default.
        source: `LaplaceSource(…)`, `CauchySource(…)` or `LogCoshSource(…)` of `freeenergy.models`.
        max_iter, tol: the most iterations, and the improvement in nats per row below which EM stops.
        importance_samples: draws for the evidence of a row; None for Laplace's method.
        learner: replaces EM.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    Attributes:
        components_: Cᵀ, a row per source, in the units of the data.
        model_: the fitted model, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.laplace(size=(100, 2)) @ np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> codes = SparseCoding(3, random_state=0, max_iter=5, tol=1.0).fit_transform(X)
    >>> codes.shape
    (100, 3)
    """

    _codes_at_once = 256

    def __init__(
        self,
        n_components: int | None = None,
        *,
        source: AbstractSource | None = None,
        max_iter: int = 200,
        tol: float = 1e-3,
        importance_samples: int | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.source = source
        self.max_iter = max_iter
        self.tol = tol
        self.importance_samples = importance_samples
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components", optional=True)
        check_instance(self, "source", AbstractSource, optional=True)
        check_int(self, "importance_samples", 2, optional=True)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        data = Data.of(rows.x, rows.weight)
        dim = rows.x.shape[1]
        size = 2 * dim if self.n_components is None else self.n_components
        # columns that point at rows, a little apart where rows are too few
        columns = RandomRows()(rows, size, key=start_key)
        columns = columns + 0.1 * generator(start_key).normal(size=(size, dim))
        columns /= np.linalg.norm(columns, axis=1, keepdims=True)
        source = LaplaceSource() if self.source is None else self.source
        start = SparseCodingModel(
            on_device(columns.T * np.sqrt(dim / size)),
            on_device(np.zeros(dim)),
            on_device(_START_PRECISION),
            source,
        )
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        return self._run(start, learner, data, rows, fit_key)

    @property
    def _samples(self) -> int:
        return self.importance_samples or 0

    _shares_draws = True

    @property
    def _completion_samples(self) -> int | None:
        return self.importance_samples

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        if self.importance_samples is not None:
            return super()._evidence(z, seeds)
        nats = answers(self.model_, SparseCodingModel.laplace_log_evidence, z, block=256)
        return Evidence(nats, np.zeros_like(nats), Kind.ESTIMATE)

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        return {"loadings": loadings_to_show(self.components_, X)} if len(self.components_) else {}

    def _listed(self) -> dict[str, np.ndarray]:
        return {
            "mean": self.scaling_.invert(np.asarray(self.model_.mean)),
            "components": self.components_,
            "precision": np.asarray(self.model_.precision),
        }

    @property
    def components_(self) -> np.ndarray:
        """Cᵀ, a row per source, in the units of the data."""
        return (np.asarray(self.model_.dictionary) * self.scaling_.scale[:, None]).T

    @property
    def _n_features_out(self) -> int:
        return self.model_.dictionary.shape[1]
