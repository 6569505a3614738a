"""What estimators share that work by others, which are given the rows as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...shell import AbstractRowEstimator, CodedRows, Field, Scaling
from ...shell._schema import kinds_of
from ._softmax import SoftmaxRegression


class Wraps(AbstractRowEstimator):
    """Works by another classifier, of the library or of scikit-learn."""

    estimator: Any

    def _inner(self) -> Any:
        return SoftmaxRegression() if self.estimator is None else self.estimator

    def _check_parameters(self) -> None:
        super()._check_parameters()
        missing = [name for name in ("fit", "predict_proba") if not hasattr(self._inner(), name)]
        if missing:
            raise ValueError(
                f"The 'estimator' parameter of {type(self).__name__} must be a classifier with fit and "
                f"predict_proba. Got {self.estimator!r} instead."
            )

    @property
    def _must_converge(self) -> bool:
        return False  # the estimator says it

    @property
    def needs_kinds(self) -> bool:
        inner = self._inner()
        return isinstance(inner, AbstractRowEstimator) and inner.needs_kinds

    def takes(self, field: Field) -> bool:
        inner = self._inner()
        return inner.takes(field) if isinstance(inner, AbstractRowEstimator) else field.numeric

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # the estimator has one of its own
        return Scaling.identity(X.shape[1])

    def _coded(self, x: np.ndarray) -> Any:
        """Rows as the estimator is given them: with what the columns hold, where that is known."""
        schema = kinds_of(self)
        return (
            x
            if schema is None or not isinstance(self._inner(), AbstractRowEstimator)
            else CodedRows(x, schema.coded())
        )
