"""Normalising flows as an estimator."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array
from sklearn.exceptions import ConvergenceWarning

from ..._core import AbstractAlgorithm, Evidence, Fit, fold_key, has_nan, key_of, on_device, split_key
from ...bijections import AbstractTransformer, Spline
from ...distributions import Full, Transformed
from ...learning import Gradient, ImportanceWeighted, negative_log_likelihood
from ...models import FlowWithMissing, InCells, coupling_flow
from ...models import Mixture as MixtureModel
from ...shell import (
    AbstractDensity,
    Rows,
    TransformsRows,
    adam,
    cast,
    check_instance,
    split_rows,
)
from ...shell._answers import draw_rows
from ...shell._completion import AbstractCompletion, RowEnergy
from ...shell._networks import check_networks, not_useless
from ._mixture import GaussianMixture

_TRAINING_SAMPLES = 8
_PROPOSAL_COMPONENTS = 12
_PROPOSAL_DRAWS = 3000
_ROWS_AT_ONCE = 1024


class AbstractFlowDensity(TransformsRows, AbstractDensity):
    """A flow with a proposal for missing entries: exact for complete rows, a lower bound for others."""

    model_: Any
    _codes_at_once = _ROWS_AT_ONCE

    def _cover(self) -> None:
        """Gives the model a proposal, when the first row needs one."""
        if self.model_.proposal is None:
            flow = self.model_.flow
            # to integrate over missing entries the proposal has to cover the flow, not the data
            draws = draw_rows(flow, _PROPOSAL_DRAWS, fold_key(key_of(int(self.seed_)), 1))
            draws = draws[np.isfinite(draws).all(axis=1)]
            if len(draws) < _PROPOSAL_DRAWS // 2:
                # of rescaled rows
                draws = 3 * np.random.default_rng(0).normal(size=(_PROPOSAL_DRAWS, self._width))
            self.model_ = FlowWithMissing(flow, covering_mixture(Rows(draws, np.ones(len(draws)))))

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        missing = np.isnan(z)
        if (missing.any(axis=1) & ~missing.all(axis=1)).any():
            self._cover()
        return super()._evidence(z, seeds)

    def _completion(self, x: np.ndarray) -> AbstractCompletion:
        return RowEnergy.of(self.model_, FlowWithMissing.log_prob, self.scaling_, shape=self._event_shape)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self._cover()
        return super()._fill_mean(z, seeds)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        self._cover()
        return super()._fill_sample(z, key=key)

    def _fill_samples(self, z: np.ndarray, n: int, *, key: Array, **how: Any) -> np.ndarray:
        self._cover()
        return super()._fill_samples(z, n, key=key, **how)

    def _whole(self, X: Any) -> np.ndarray:
        return self.scaling_.apply(self._completed(self._read(X)))

    @property
    def _n_features_out(self) -> int:
        return self._width


class NormalizingFlow(AbstractFlowDensity):
    """A normalising flow: x = f(z), z Gaussian, log p(x) = log p(z) + log |det ∂z/∂x|, trained directly.

    Complete rows have exact evidence.  Missing entries are hidden causes: their evidence, and training
    with them, is an importance-weighted lower bound.  Entries are proposed by a Gaussian mixture, which
    is fitted to the rows for training and to draws of the fitted flow for evaluation.

    Args:
        transformer: the map of one number in each layer: `Spline()` (the default), `ShiftScale()` for
            affine or `Shift()` for additive coupling.
        architecture: `coupling_flow`, `autoregressive_flow`, `inverse_autoregressive_flow` or
            `continuous_flow` of `freeenergy.models`, or for rows that are images
            `MultiscaleFlow((height, width))`.
        layers, width, depth: layers of the flow, and the hidden layers of their networks.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        learner: replaces Adam on the likelihood.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted flow, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> X = np.exp(np.random.default_rng(0).normal(size=(200, 2)))
    >>> model = NormalizingFlow(layers=2, width=16, max_iter=30, random_state=0).fit(X)
    >>> model.evidence(X[:2]).kind.value
    'exact'
    """

    def __init__(
        self,
        transformer: AbstractTransformer | None = None,
        architecture: Callable[..., Transformed] = coupling_flow,
        *,
        layers: int = 6,
        width: int = 64,
        depth: int = 2,
        learning_rate: float = 2e-3,
        batch_size: int = 256,
        max_iter: int = 300,
        validation_fraction: float = 0.1,
        patience: int = 30,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.transformer = transformer
        self.architecture = architecture
        self.layers = layers
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    _shares_draws = True
    _learns_noise = True

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "transformer", AbstractTransformer, optional=True)
        if not callable(self.architecture):
            raise ValueError(
                "The 'architecture' parameter of NormalizingFlow must be coupling_flow, "
                f"autoregressive_flow or a function like them. Got {self.architecture!r} instead."
            )

    def _map(self) -> AbstractTransformer:
        return Spline() if self.transformer is None else self.transformer

    def _start(self, columns: int, key: Array) -> Transformed:
        sizes = {"layers": self.layers, "width": self.width, "depth": self.depth}
        return self.architecture(columns, self._map(), **sizes, key=key)

    def _check_size(self, rows: int, columns: int) -> None:
        check_networks(
            lambda key: self._start(columns, key),
            # what the networks say of a block of rows
            min(rows, _ROWS_AT_ONCE) * columns * self._map().size,
            f"NormalizingFlow of {columns:,} columns with {self.layers:,} layers of width {self.width:,}",
            "Use a smaller 'width', fewer 'layers', or PCA first.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        flow = self._start(rows.x.shape[1], start_key)
        incomplete = has_nan(rows.x)
        start = FlowWithMissing(flow, cast(covering_mixture(rows), np.float32)) if incomplete else flow
        start = self._with_noise(start, fold_key(key, 1))
        objective = ImportanceWeighted(_TRAINING_SAMPLES) if incomplete else negative_log_likelihood
        learner = self.learner or Gradient(
            adam(self.learning_rate),
            self._with_fresh_noise(objective),
            batch_size=self.batch_size,
            patience=self.patience,
        )
        result = self._run(start, learner, train, rows, fit_key, validation=validation)
        if self.learner is None and not isinstance(start, InCells):
            result = not_useless(result, start, rows)
        fitted = result.model
        if isinstance(fitted, InCells):
            self._cell_noise, fitted = cast(fitted.noise, np.float64), fitted.density
        flow = fitted.flow if isinstance(fitted, FlowWithMissing) else fitted
        # evaluation is in double precision, so that rows give the same number in any company
        return dataclasses.replace(result, model=FlowWithMissing(cast(flow, np.float64), None))


def covering_mixture(rows: Rows) -> MixtureModel:
    """A Gaussian mixture of the rows, half as wide again so that it covers the flow."""
    size = min(_PROPOSAL_COMPONENTS, 1 + len(rows.x) // 25)
    mixture = GaussianMixture(size, max_iter=50, tol=1e-3, random_state=0)
    with warnings.catch_warnings():
        # a rough proposal is as good, and its fit is nobody's concern
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = mixture.fit(rows.x, sample_weight=rows.weight).model_
    units = np.outer(mixture.scaling_.scale, mixture.scaling_.scale)
    components = dataclasses.replace(
        model.components,
        mean=on_device(mixture.means_),
        covariance=Full(on_device(1.5 * np.asarray(model.components.covariance.value) * units)),
    )
    return dataclasses.replace(model, components=components)
