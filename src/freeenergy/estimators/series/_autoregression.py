"""Vector autoregressions as estimators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array

from ... import models
from ..._core import AbstractAlgorithm, Fit, on_device
from ...distributions import AbstractCovariance, Full
from ...learning import LBFGS, negative_log_likelihood
from ...models._autoregression import StationaryAutoRegression, autocovariance
from ...shell import Sequences, check_instance, check_int
from ...shell._series import LEAST_VARIANCE
from ...shell._summary import Along
from ._state_space import AbstractStateSpace, apart, per_packed_row, with_values


class AutoRegression(AbstractStateSpace):
    """y_t = Φ_1 y_{t−1} + … + Φ_p y_{t−p} + B u_t + a + w_t, w_t ~ N(0, Q), for vectors.

    Missing values are allowed.  The model is stationary, the first p values included, and has the largest
    likelihood of all such (L-BFGS over partial autocorrelations).

    With inputs u, which a stationary law of y_1 would need from ever on, or with a `learner` of your own,
    the first p values follow the autocovariances of the data, the rest need not be stationary, and EM fits
    it, which with complete data is nearly least squares.

    Args:
        p: how many values before it a value depends on.
        noise: structure of Q; by default `Full()`.
        max_iter, tol: the most steps, and the largest slope of log p of a series that counts as zero; with
            EM the improvement in nats per time step that stops it.
        learner: replaces L-BFGS, or EM.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        coefficients_: Φ, of shape (p, features, features), in the units of the data.
        offset_, input_coefficients_: a and B, in the units of the data, for inputs in theirs.
        noise_covariance_: Q, in the units of the data.
        model_: the fitted `freeenergy.models.AutoRegression`, of rescaled series.
        n_inputs_in_, length_, history_, n_iter_, converged_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.zeros((500, 1))
    >>> for t in range(1, 500): x[t] = 0.8 * x[t - 1] + rng.normal()
    >>> AutoRegression(1).fit(x).coefficients_.round(1).ravel().tolist()
    [0.8]
    """

    model_: models.AutoRegression
    _maximises_likelihood = True

    def __init__(
        self,
        p: int = 1,
        *,
        noise: AbstractCovariance | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.p = p
        self.noise = noise
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "p")
        check_instance(self, "noise", AbstractCovariance, optional=True)

    def _free_parameters(self, n_features: int) -> int:
        separable = self.noise is not None and self.noise.separable
        noise = n_features if separable else n_features * (n_features + 1) // 2
        return self.p * n_features**2 + n_features + noise

    def _learn(self, sequences: Sequences, key: Array) -> Fit:
        dim = sequences.series[0].shape[1]
        chosen = self._free_parameters(dim) + dim * sequences.n_inputs
        observed = int(np.sum(~np.isnan(sequences.rows)))
        if chosen > observed:
            raise ValueError(
                f"AutoRegression with p={self.p} has {chosen} free parameters, more than there are "
                f"observed numbers, {observed} (n_samples = {len(sequences.rows)}). Choose a smaller 'p'."
            )
        if self.learner is None and sequences.inputs is None:
            return self._by_likelihood(dim, sequences, key)
        start = models.AutoRegression(
            on_device(np.zeros((self.p, dim, dim))),
            on_device(np.zeros(dim)),
            with_values(self.noise, Full(), on_device(np.eye(dim))),
            on_device(np.zeros(self.p * dim)),
            on_device(autocovariance(sequences.series, sequences.weight, self.p)),
            None if sequences.inputs is None else on_device(np.zeros((dim, sequences.n_inputs))),
        )
        return self._by_em(start, sequences, key)

    def _by_likelihood(self, dim: int, sequences: Sequences, key: Array) -> Fit:
        own = apart(sequences)
        noise = with_values(self.noise, Full(), on_device(np.eye(dim) / 2))
        free, mean = on_device(np.zeros((self.p, dim, dim))), on_device(np.zeros(dim))
        start = StationaryAutoRegression(free, mean, noise, LEAST_VARIANCE, not own.incomplete)
        learner = LBFGS(negative_log_likelihood, self.tol)
        result = self._run(start, learner, own, sequences, key)
        result = dataclasses.replace(result, model=_in_coefficients(result.model))
        return per_packed_row(sequences, result, own)

    def _log_terms(self) -> Callable[[models.Series, Any], Array]:
        by_em = self.learner is not None or self.n_inputs_in_
        return super()._log_terms() if by_em else _stationary_terms

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        return _parameters, tuple(on_device(unit) for unit in self._units())

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        columns = self.column_names
        if name == "coefficients":
            return [f"lag {k + 1}" for k in range(self.p)], columns, columns
        if name == "input_coefficients":
            return columns, self._input_labels()
        return (columns,) * len(shape)

    def _remarks(self) -> list[str]:
        if self.n_features_in_ == 1:
            return []
        return ["coefficients[lag k, a, b] is what one of b adds to a, k steps later."]

    @property
    def _regression(self) -> models.AutoRegression:
        """The fitted model in the units of the data."""
        regression: Any = self.model_in_units
        return regression

    @property
    def coefficients_(self) -> np.ndarray:
        """Φ, of shape (p, features, features), in the units of the data."""
        return np.asarray(self._regression.coefficients)

    @property
    def offset_(self) -> np.ndarray:
        """a, in the units of the data."""
        return np.asarray(self._regression.offset)

    @property
    def input_coefficients_(self) -> np.ndarray:
        """B, in the units of the data, for inputs in theirs."""
        return self._driven(self._regression.input_coefficients)

    @property
    def noise_covariance_(self) -> np.ndarray:
        """Q, in the units of the data."""
        return np.asarray(self._regression.noise.matrix())


def _stationary_terms(series: models.Series, model: models.AutoRegression) -> Array:
    return model.stationary().step_evidence(series)


def _parameters(model: models.AutoRegression, *units: Array) -> dict[str, Array]:
    told = model.in_units(*units)
    found = {"offset": told.offset, "coefficients": told.coefficients}
    if told.input_coefficients is not None:
        found["input_coefficients"] = told.input_coefficients
    return found | {"noise_covariance": told.noise.matrix()}


@eqx.filter_jit
def _in_coefficients(model: StationaryAutoRegression) -> models.AutoRegression:
    regression = model.regression()
    noise = with_values(model.noise, Full(), regression.noise.matrix())
    return eqx.tree_at(lambda m: m.noise, regression, noise)
