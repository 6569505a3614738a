"""Principal components: probabilistic PCA without noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax import Array
from sklearn.utils.validation import check_array, check_is_fitted

from ..._core import Data, Fit, Status, freeze, on_device
from ...distributions import Gaussian, Spherical
from ...learning import EM
from ...models import LinearGaussian
from ...shell import (
    Completes,
    Rows,
    Scaling,
    Transforms,
    check_int,
    check_numbers,
)
from ...shell._answers import answers
from ...shell._increments import LearnsInParts, reduced_rows
from ._factor import principal

# the variance that stands for none, in units of the variance of the data
_NO_NOISE = 1e-9


class PCA(Transforms, Completes, LearnsInParts):
    """The plane of `n_components` dimensions that is nearest to the rows.

    It is the limit σ → 0 of probabilistic PCA, x = V t + μ + σ ε, where the posterior of t is a point:

        t(x) = Vᵀ(x − μ),      V, μ = argmin Σ ‖x − μ − V t(x)‖².

    Complete rows are solved by an eigendecomposition, rows with missing entries by EM at temperature
    zero, which lowers the squares of the observed entries alone.  Columns keep their units.  It is no
    density: `PPCA` is.

    Args:
        n_components: dimensions; None keeps as many as there are.
        max_iter, tol: for incomplete rows, the most iterations, and the fall of the mean squared
            residual, in units of the variance of the data, below which they stop.

    Attributes:
        components_: the directions, a row each, in the units of the data.
        mean_: μ, in the units of the data.
        explained_variance_, explained_variance_ratio_: the variance along each, and its share of all.
        n_components_: how many directions there are.
        model_: the fitted model, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) @ np.array([[3.0, 4.0]]) + 7.0
    >>> model = PCA(1).fit(X)
    >>> model.components_.round(6).tolist(), model.explained_variance_ratio_.round(6).tolist()
    ([[0.6, 0.8]], [1.0])
    >>> model.impute([[10.0, np.nan]]).round(6).tolist()
    [[10.0, 11.0]]
    """

    def __init__(self, n_components: int | None = None, *, max_iter: int = 1000, tol: float = 1e-9) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components", optional=True)

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight, common=True)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        # a plane through n points has n − 1 dimensions
        most = max(min(len(rows.x) - 1, rows.x.shape[1]), 1)
        self.n_components_ = most if self.n_components is None else min(self.n_components, rows.x.shape[1])
        if np.isnan(rows.x).any():
            result, values, total = self._iterate(rows, key)
        else:
            result, values, total = self._solve(rows)
        self.explained_variance_ = values * self.scaling_.scale[0] ** 2
        self.explained_variance_ratio_ = values / total if total > 0 else np.zeros_like(values)
        self.mean_ = self.scaling_.invert(np.asarray(result.model.mean))
        return result

    def _listed(self) -> dict[str, np.ndarray]:
        return {
            "mean": self.mean_,
            "components": self.components_,
            "explained_variance": self.explained_variance_,
        }

    def _solve(self, rows: Rows) -> tuple[Fit, np.ndarray, float]:
        """The leading eigenvectors of the covariance."""
        mean = np.average(rows.x, axis=0, weights=rows.weight)
        values, vectors = _principal(rows.x - mean, rows.weight)
        residual = values[self.n_components_ :].sum()
        result = self._finish(mean, values, vectors)
        fit = Fit(result, {"objective": np.array([residual])}, 1, Status.CONVERGED)
        return fit, values[: self.n_components_], values.sum()

    def _iterate(self, rows: Rows, key: Array) -> tuple[Fit, np.ndarray, float]:
        """EM at temperature zero, on observed entries alone."""
        dim = rows.x.shape[1]
        filled = np.where(np.isnan(rows.x), 0.0, rows.x)
        scatter = (filled * rows.weight[:, None]).T @ filled / rows.weight.sum()
        loading, _ = principal(scatter, self.n_components_)
        noise = Spherical(on_device(_NO_NOISE), 0.0, dim)
        start = LinearGaussian(loading, on_device(np.zeros(dim)), noise)
        # the objective is in units of twice the variance that stands for none
        learner = EM(
            tol=self.tol / (2 * _NO_NOISE), temperature=0.0, learnable=freeze(start, lambda m: m.noise)
        )
        data = Data.of(rows.x, rows.weight)
        result = self._run(start, learner, data, rows, key)
        codes = answers(result.model, LinearGaussian.encode, rows.x, block=256)
        plane = codes @ np.asarray(result.model.loading).T + np.asarray(result.model.mean)
        mean = np.average(plane, axis=0, weights=rows.weight)
        values, vectors = _principal(plane - mean, rows.weight)
        values = values[: self.n_components_]
        seen = ~np.isnan(rows.x)
        left = np.where(seen, rows.x - plane, 0.0)
        residual = np.sum(rows.weight @ left**2 / (rows.weight @ seen))
        history = {"objective": result.history["objective"] * (2 * _NO_NOISE)}
        fitted = dataclasses.replace(result, model=self._finish(mean, values, vectors), history=history)
        return fitted, values, values.sum() + residual

    def _finish(self, mean: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> LinearGaussian:
        k = self.n_components_
        vectors = vectors[:, :k]
        # the sign of a component is free: its largest entry is positive
        largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(k)]
        self.components_ = (vectors * np.where(largest < 0, -1.0, 1.0)).T
        loading = self.components_.T * np.sqrt(values[:k])
        noise = Spherical(on_device(_NO_NOISE), 0.0, len(mean))
        return LinearGaussian(on_device(loading), on_device(mean), noise)

    def _reduced(self, rows: Rows) -> Rows:
        return reduced_rows(Gaussian(self.model_.mean, self.model_.noise), rows)

    def transform(self, X: Any) -> np.ndarray:
        """t, the place of each row in the plane: of its observed entries, where some are missing."""
        return self._places(self._read(X).x)

    def _places(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            t = (X - self.mean_) @ self.components_.T
        holes = np.isnan(X).any(axis=1)
        if holes.any():
            codes = answers(self.model_, LinearGaussian.encode, self.scaling_.apply(X[holes]), block=256)
            t[holes] = codes * np.sqrt(self.explained_variance_)
        return check_numbers(self, "transform", t)

    def inverse_transform(self, T: Any) -> np.ndarray:
        """The rows at places `T` in the plane."""
        check_is_fitted(self, "model_")
        T = check_array(T)
        if T.shape[1] != self.n_components_:
            raise ValueError(
                f"The 'T' of PCA.inverse_transform must have {self.n_components_} columns. "
                f"Got {T.shape[1]} instead."
            )
        return T @ self.components_ + self.mean_

    def impute(self, X: Any) -> Any:
        """`X` with each missing entry replaced by that of the nearest point of the plane."""
        taken = self._read(X)
        plane = self.inverse_transform(self._places(taken.x))
        return taken.filled(np.where(np.isnan(taken.x), plane, taken.x))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def _principal(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, largest first, and eigenvectors of the covariance of centred rows `x`."""
    weighted = x * np.sqrt(weight / weight.sum())[:, None]
    if len(x) < x.shape[1]:
        _, lengths, rows = np.linalg.svd(weighted, full_matrices=True)
        return np.pad(lengths**2, (0, x.shape[1] - len(x))), rows.T
    values, vectors = np.linalg.eigh(weighted.T @ weighted)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]
