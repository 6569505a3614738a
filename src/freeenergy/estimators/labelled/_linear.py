"""Least squares: a Gaussian answer whose mean is linear in the row."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from scipy import linalg, stats

from ..._core import Fit, Status, on_device
from ...distributions import Diagonal, Gaussian, Given, Mean
from ...evaluation import AbstractLaws, Laws
from ...models import Affine, Conditional
from ...shell import AbstractDensity, Rows
from ._regressor import AbstractRegressor


class LinearRegression(AbstractRegressor):
    """y = W x + b + e, e ~ N(0, σ²): ordinary or weighted least squares.

    The law of an answer is a Student t of n − p degrees of freedom about W x + b, which knows that the
    coefficients are uncertain: s² (1 + leverage) is its squared scale.

    Args:
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.

    Attributes:
        coef_, intercept_: W and b, in the units of the data.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        model_: a `freeenergy.models.Conditional` of rescaled rows and answers.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> model = LinearRegression().fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 3.1, 4.9, 7.0])
    >>> model.coef_.round(3).tolist(), round(float(model.intercept_), 3)
    ([1.98], 1.03)
    """

    def __init__(self, *, inputs: AbstractDensity | None = None) -> None:
        self.inputs = inputs

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        rows, _ = self._completed(rows, self.answer_scaling_.invert(rows.known))
        z, y = self.scaling_.apply(rows.x), rows.known
        assert y is not None
        root = np.sqrt(rows.weight)
        design = np.column_stack([np.ones(len(z)), z]) * root[:, None]
        solved: Any = linalg.lstsq(design, y * root[:, None])
        coefficients, _, rank, _ = solved
        residual = y * root[:, None] - design @ coefficients
        self.residual_dof_ = float(rows.weight.sum() - rank)
        scale = np.sqrt((residual**2).sum(axis=0) / max(self.residual_dof_, 1.0))
        self.noise_ = scale * self.answer_scaling_.scale
        self.covariance_root_ = linalg.pinv(design.T @ design)
        model = Conditional(
            Affine(on_device(coefficients[1:].T), on_device(coefficients[0])),
            Given(Gaussian(on_device(np.zeros(y.shape[1])), Diagonal(on_device(scale**2))), Mean()),
        )
        return Fit(model, {}, 1, Status.CONVERGED)

    @property
    def coef_(self) -> np.ndarray:
        """W, in the units of the data."""
        weight = np.asarray(self.model_.function.weight)
        weight = weight * self.answer_scaling_.scale[:, None] / self.scaling_.scale
        return weight.reshape(*self.answer_shape_, -1)

    @property
    def intercept_(self) -> Any:
        """b, in the units of the data."""
        bias = (
            np.asarray(self.model_.function.bias) * self.answer_scaling_.scale + self.answer_scaling_.shift
        )
        return (bias - np.atleast_2d(self.coef_) @ self.scaling_.shift).reshape(self.answer_shape_)

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        z = self.scaling_.apply(x)
        function = self.model_.function
        mean = z @ np.asarray(function.weight).T + np.asarray(function.bias)
        design = np.column_stack([np.ones(len(z)), z])
        leverage = np.einsum("ni,ij,nj->n", design, self.covariance_root_, design)
        scale = np.sqrt(1 + leverage)[:, None] * self.noise_
        law = stats.t(
            self.residual_dof_, self._shaped(self.answer_scaling_.invert(mean)), self._shaped(scale)
        )
        return Laws(law)
