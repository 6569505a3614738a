"""Normalising flows as an estimator."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning

from ..._core import (
    AbstractAlgorithm,
    Evidence,
    Fit,
    Kind,
    Reals,
    buffer,
    fold_key,
    key_of,
    map_rows,
    on_device,
    split_key,
    split_key_data,
)
from ...bijections import AbstractTransformer, Spline
from ...distributions import AbstractDistribution, Full, Transformed
from ...inference import Amortised, importance_draws
from ...learning import Gradient, ImportanceWeighted, fit, negative_log_likelihood
from ...models import AbstractRecognised, coupling_flow
from ...models import Mixture as MixtureModel
from ...shell._base import AbstractDensity, draw_rows
from ...shell._importance import importance_bound
from ...shell._networks import adam, cast, check_networks, seeded, split_rows
from ...shell._rows import Rows
from ...shell._validation import check_instance, check_int, check_numbers, check_real
from ._mixture import GaussianMixture

_IMPORTANCE_SAMPLES = 1000
_TRAINING_SAMPLES = 8
_PROPOSAL_COMPONENTS = 12
_PROPOSAL_DRAWS = 3000
_ROWS_AT_ONCE = 1024


def _put_in(x: Array, z: Array) -> Array:
    """`x` with its NaN entries taken from the first entries of `z`, in their order."""
    missing = jnp.isnan(x)
    return jnp.where(missing, z[jnp.cumsum(missing) - 1], x)


class _Missing(AbstractDistribution):
    """The missing entries of `x` given the observed ones, under a mixture.

    As many entries as `x` has are drawn, those that are missing in `x` first: the others do not count.
    """

    mixture: MixtureModel
    x: Array

    def log_prob(self, z: Array) -> Array:
        return self.mixture.log_prob(_put_in(self.x, z)) - self.mixture.log_prob(self.x)

    def sample(self, *, key: Array) -> Array:
        return self.mixture.complete_sample(self.x, key=key)[jnp.argsort(~jnp.isnan(self.x), stable=True)]


class FlowWithMissing(AbstractRecognised):
    """A flow in which the missing entries of x are the hidden cause: e(x, z) = −log p(x with z put in)."""

    flow: Transformed
    proposal: MixtureModel | None = buffer(default=None)

    def energy(self, x: Array, z: Array) -> Array:
        """−log p of `x` with its NaN entries taken from `z`, the first of them from the first."""
        return -self.flow.log_prob(_put_in(x, z))

    def latent(self, x: np.ndarray) -> Reals:
        """The missing entries of a row that is there, and not traced."""
        return Reals((int(np.isnan(x).sum()),))

    @property
    def recognition(self) -> Amortised:
        """Draws missing entries from the proposal, a mixture that covers the same rows."""
        proposal = self.proposal
        assert proposal is not None
        return Amortised(lambda x: _Missing(proposal, x))

    def log_prob(self, x: Array) -> Array:
        """log p(x) of a complete row."""
        return self.flow.log_prob(x)

    def sample(self, *, key: Array) -> Array:
        """A draw from the flow."""
        return self.flow.sample(key=key)


def _log_prob(row: Array, model: FlowWithMissing) -> Array:
    return model.log_prob(row)


def _completions(row: Array, model: FlowWithMissing, key: Array) -> tuple[Array, Array]:
    """Completed rows and their importance weights."""
    draws, weights = importance_draws(
        model.energy, model.recognition, row, samples=_IMPORTANCE_SAMPLES, key=key
    )
    return jax.vmap(lambda z: _put_in(row, z))(draws), weights


def _complete_mean(pair: tuple[Array, Array], model: FlowWithMissing, seed: Array) -> Array:
    row, row_seed = pair
    draws, weights = _completions(row, model, seeded(seed, row_seed))
    return jax.nn.softmax(weights) @ draws


def _complete_sample(pair: tuple[Array, Array], model: FlowWithMissing) -> Array:
    row, key = pair
    propose, choose = jax.random.split(jax.random.wrap_key_data(key))
    draws, weights = _completions(row, model, propose)
    return draws[jax.random.categorical(choose, weights)]


def _to_latent(row: Array, model: FlowWithMissing) -> Array:
    return model.flow.to_base(row)


class AbstractFlowDensity(ClassNamePrefixFeaturesOutMixin, TransformerMixin, AbstractDensity):
    """A flow with a proposal for missing entries: exact for complete rows, a lower bound for others."""

    model_: Any

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        holes = np.isnan(z).any(axis=1)
        nats, stderr = np.zeros(len(z)), np.zeros(len(z))
        if (~holes).any():
            nats[~holes] = map_rows(_log_prob, z[~holes], self.model_, block=_ROWS_AT_ONCE)
        some = holes & ~np.isnan(z).all(axis=1)
        if not some.any():
            return Evidence(nats, stderr, Kind.EXACT)
        bound = importance_bound(z[some], seeds[some], self._covered(), _IMPORTANCE_SAMPLES, self.seed_)
        nats[some], stderr[some], growth = bound.nats, bound.stderr, np.zeros((len(z), 2))
        growth[some] = bound.growth
        return Evidence(nats, stderr, Kind.LOWER, growth=growth)

    def _covered(self) -> FlowWithMissing:
        """The model with a proposal, which is made when the first row needs it."""
        if self.model_.proposal is None:
            flow = self.model_.flow
            # to integrate over missing entries the proposal has to cover the flow, not the data
            draws = draw_rows(flow, _PROPOSAL_DRAWS, fold_key(key_of(int(self.seed_)), 1))
            draws = draws[np.isfinite(draws).all(axis=1)]
            if len(draws) < _PROPOSAL_DRAWS // 2:
                # of rescaled rows
                draws = 3 * np.random.default_rng(0).normal(size=(_PROPOSAL_DRAWS, self.n_features_in_))
            self.model_ = FlowWithMissing(flow, _proposal(Rows(draws, np.ones(len(draws)))))
        return self.model_

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        return draw_rows(self.model_, n, key)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return map_rows(_complete_mean, (z, seeds), self._covered(), self.seed_, block=16)

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        return map_rows(_complete_sample, (z, split_key_data(key, len(z))), self._covered(), block=16)

    def transform(self, X: Any) -> np.ndarray:
        """The noise z that makes each row; missing entries are first imputed."""
        noise = map_rows(_to_latent, self.scaling_.apply(self.impute(X)), self.model_, block=_ROWS_AT_ONCE)
        return check_numbers(self, "transform", noise)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_


class NormalizingFlow(AbstractFlowDensity):
    """A normalising flow: x = f(z), z Gaussian, log p(x) = log p(z) + log |det ∂z/∂x|, trained directly.

    Complete rows have exact evidence.  Missing entries are hidden causes: their evidence, and training
    with them, is an importance-weighted lower bound.  Entries are proposed by a Gaussian mixture, which
    is fitted to the rows for training and to draws of the fitted flow for evaluation.

    Args:
        transformer: the map of one number in each layer: `Spline()` (the default), `ShiftScale()` for
            affine or `Shift()` for additive coupling.
        architecture: `coupling_flow` or `autoregressive_flow` of `freeenergy.models`.
        layers, width, depth: layers of the flow, and the hidden layers of their networks.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        learner: replaces Adam on the likelihood.
        random_state, verbose, checkpoint: as everywhere.

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

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        check_instance(self, "transformer", AbstractTransformer, optional=True)
        for name in ("layers", "width", "depth", "batch_size", "max_iter", "patience"):
            check_int(self, name)
        check_real(self, "learning_rate", closed=False)
        check_real(self, "validation_fraction", 0.0, 1.0)
        check_instance(self, "learner", AbstractAlgorithm, optional=True)
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
            lambda: self._start(columns, key_of(0)),
            # what the networks say of a block of rows
            min(rows, _ROWS_AT_ONCE) * columns * self._map().size,
            f"NormalizingFlow of {columns:,} columns with {self.layers:,} layers of width {self.width:,}",
            "Use a smaller 'width', fewer 'layers', or PCA first.",
        )

    def _fit_rows(self, rows: Rows, *, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        flow = self._start(rows.x.shape[1], start_key)
        incomplete = bool(np.isnan(rows.x).any())
        start = FlowWithMissing(flow, cast(_proposal(rows), np.float32)) if incomplete else flow
        objective = ImportanceWeighted(_TRAINING_SAMPLES) if incomplete else negative_log_likelihood
        learner = self.learner or Gradient(
            adam(self.learning_rate),
            self._with_fresh_noise(objective),
            batch_size=self.batch_size,
            patience=self.patience,
        )
        result = fit(
            start,
            learner,
            train,
            validation=validation,
            key=fit_key,
            max_iter=self.max_iter,
            progress=self._progress(),
            checkpoint=self._checkpoint(rows),
        )
        fitted = result.model
        flow = fitted.flow if isinstance(fitted, FlowWithMissing) else fitted
        # evaluation is in double precision, so that rows give the same number in any company
        return dataclasses.replace(result, model=FlowWithMissing(cast(flow, np.float64), None))


def _proposal(rows: Rows) -> MixtureModel:
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
