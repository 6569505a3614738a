"""Sparse coding as an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from ..._core import (
    AbstractAlgorithm,
    Data,
    Evidence,
    Fit,
    Kind,
    generator,
    map_rows,
    on_device,
    split_key,
    split_key_data,
)
from ...learning import EM, fit
from ...models import AbstractSource, LaplaceSource
from ...models import SparseCoding as SparseCodingModel
from ...shell._base import AbstractDensity, _complete_mean, _complete_sample, draw_rows
from ...shell._importance import complete_mean, complete_sample, importance_bound, rows_at_once
from ...shell._rows import Rows
from ...shell._validation import check_instance, check_int, check_numbers, check_real
from ._starts import RandomRows

_START_PRECISION = 10.0


def _log_evidence(row: Array, model: SparseCodingModel) -> Array:
    return model.laplace_log_evidence(row)


def _mode(row: Array, model: SparseCodingModel) -> Array:
    return model.mode(row)


class SparseCoding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, AbstractDensity):
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

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.laplace(size=(100, 2)) @ np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> codes = SparseCoding(3, random_state=0, max_iter=5, tol=1.0).fit_transform(X)
    >>> codes.shape
    (100, 3)
    """

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
        check_int(self, "n_components", optional=True)
        check_instance(self, "source", AbstractSource, optional=True)
        check_int(self, "max_iter")
        check_real(self, "tol")
        check_int(self, "importance_samples", 2, optional=True)
        check_instance(self, "learner", AbstractAlgorithm, optional=True)

    def _fit_rows(self, rows: Rows, *, key: Array) -> Fit:
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
        return fit(
            start,
            EM(tol=self.tol) if self.learner is None else self.learner,
            data,
            key=fit_key,
            max_iter=self.max_iter,
            progress=self._progress(),
            checkpoint=self._checkpoint(rows),
        )

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        if self.importance_samples is not None:
            return importance_bound(z, seeds, self.model_, self.importance_samples, self.seed_)
        nats = map_rows(_log_evidence, z, self.model_, block=256)
        return Evidence(nats, np.zeros_like(nats), Kind.ESTIMATE)

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        return draw_rows(self.model_, n, key)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        samples = self.importance_samples
        if samples is None:
            return map_rows(_complete_mean, z, self.model_, block=256)
        block = rows_at_once(samples)
        return map_rows(complete_mean, (z, seeds), self.model_, samples, self.seed_, block=block)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        rows, samples = (z, split_key_data(key, len(z))), self.importance_samples
        if samples is None:
            return map_rows(_complete_sample, rows, self.model_, block=256)
        return map_rows(complete_sample, rows, self.model_, samples, block=rows_at_once(samples))

    def transform(self, X: Any) -> np.ndarray:
        """The most probable sources of each row: the sparse code."""
        codes = map_rows(_mode, self.scaling_.apply(self._validated(X)), self.model_, block=256)
        return check_numbers(self, "transform", codes)

    @property
    def components_(self) -> np.ndarray:
        """Cᵀ, a row per source, in the units of the data."""
        return (np.asarray(self.model_.dictionary) * self.scaling_.scale[:, None]).T

    @property
    def _n_features_out(self) -> int:
        return self.model_.dictionary.shape[1]
