"""The variational autoencoder of rows given their label."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import Array

from ... import models
from ..._core import (
    AbstractAlgorithm,
    Evidence,
    Fit,
    map_rows,
    on_device,
    split_key,
    split_key_data,
)
from ...distributions import AbstractLink, Gaussian
from ...evaluation import entries_in_use
from ...models import AbstractCodePrior, AbstractCodeRecognition, ByLabel, MixturePrior
from ...shell import Rows, cast, rows_at_once, split_rows
from ...shell._answers import answers, completed_means
from ...shell._summary import named_parameters
from ..tables._vae import COMPLETION_SAMPLES, AbstractVAE, cast_model, with_emission_in_units
from ._class_conditional import AbstractClassConditionalDensity

_ROWS_AT_ONCE = 4096


class ClassConditionalVAE(AbstractClassConditionalDensity, AbstractVAE):
    """Rows given their label, p(x | y) = ∫ p(z) p(x | z, y) dz: a variational autoencoder that is told y.

    Decoder and encoder are told the label beside code and row, so that the code is left with what the label
    does not say.  The bound of log p(x | y) is raised as that of log p(x) by `VAE`, also known as a
    conditional variational autoencoder (`ConditionalVAE` is one of answers given rows).

    `evidence` is log p(x) = log Σ_y p(y) p(x | y) with the share of each label as p(y), a lower bound as
    that of each label is; exact for a code of few bits.  `predict_proba` and `evidence_of_labels` follow by
    Bayes' rule: ratios of bounds, which are estimates.  Missing entries are left out of the likelihood.

    Args:
        latent_dim, emission, link, prior, recognition, objective: as in `VAE`; no `MixturePrior`, since
            labels are the components.
        width, depth, learning_rate, weight_decay, batch_size, max_iter: as in `VAE`.
        validation_fraction, patience, importance_samples, refinement, threshold, learner: as in `VAE`.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        classes_: the labels.
        class_prior_: p(y), the share of each label.
        model_: a `freeenergy.models.ByLabel` of VAEs, of rescaled rows.
        active_: which entries of the code are in use.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Sohn, Lee and Yan (2015), Learning structured output representation using deep conditional
        generative models.
        Kingma, Mohamed, Rezende and Welling (2014), Semi-supervised learning with deep generative models.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 2)), np.repeat(["low", "high"], 50)
    >>> X[50:] += 4.0
    >>> small = {"width": 8, "max_iter": 40, "importance_samples": 50}
    >>> model = ClassConditionalVAE(1, **small, random_state=0).fit(X, y)
    >>> model.evidence(X).kind.value, model.evidence_of_labels(X, y).kind.value
    ('lower bound', 'estimate')
    >>> bool(np.abs(model.sample(50, random_state=0, labels="high").mean(axis=0) - 4.0).max() < 1.0)
    True
    """

    def __init__(
        self,
        latent_dim: int = 8,
        emission: Any = Gaussian,
        *,
        link: AbstractLink | None = None,
        prior: AbstractCodePrior | None = None,
        recognition: AbstractCodeRecognition | None = None,
        objective: Any = None,
        width: int = 128,
        depth: int = 1,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        batch_size: int | None = None,
        max_iter: int = 500,
        validation_fraction: float = 0.1,
        patience: int = 30,
        importance_samples: int = 500,
        refinement: int = 0,
        threshold: float | None = None,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.emission = emission
        self.link = link
        self.prior = prior
        self.recognition = recognition
        self.objective = objective
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.importance_samples = importance_samples
        self.refinement = refinement
        self.threshold = threshold
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.prior, MixturePrior):
            raise ValueError(
                "The 'prior' parameter of ClassConditionalVAE must have no components: labels stand for "
                f"them. Got {self.prior!r} instead."
            )

    def _check_size(self, rows: int, columns: int) -> None:
        self._check_size_told(columns, len(self.classes_))

    @property
    def _vae(self) -> models.VAE:
        return self.model_.model

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        start_key, fit_key = split_key(key)
        labels, size = rows.known[:, 0], len(self.classes_)
        train, validation = split_rows(rows._replace(known=labels), self.validation_fraction, np.float32)
        only = dataclasses.replace(train, x=train.x[0])
        start = ByLabel.of(
            on_device(self._shares(rows), np.float32),
            self._start(only, rows, self._prior, start_key, size),
        )
        learner = self._learner(len(rows.x))
        result = self._run(start, learner, train, rows, fit_key, validation=validation)
        # evaluation is in double precision, so that rows give the same number in any company
        told = dataclasses.replace(cast_model(result.model.model), refinement=self.refinement)
        shares = on_device(self._shares(rows))
        model = dataclasses.replace(cast(result.model, np.float64), model=told, weights=shares)
        means = answers(model, _encoded, (rows.x, labels), block=_ROWS_AT_ONCE)
        self.active_ = entries_in_use(means, rows.weight)[1]
        return dataclasses.replace(result, model=model)

    def _reported(self) -> tuple[Any, tuple[Array, ...]]:
        report, units = super()._reported()
        return (_emission_of_any, units) if units else (report, units)

    def _evidence_of_class(self, place: int, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        return self._evidence_under(self._at(place), z, seeds)

    def _fill_mean_of_class(self, place: int, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return completed_means(self._at(place), z, seeds, COMPLETION_SAMPLES, self.seed_)

    def _fill_sample_of_classes(self, z: np.ndarray, places: np.ndarray, *, key: Array) -> np.ndarray:
        rows = z, places, split_key_data(key, len(z))
        return map_rows(_completed, rows, self.model_, block=rows_at_once(COMPLETION_SAMPLES))

    def _likeliest(self, rows: np.ndarray, column: int) -> np.ndarray:
        labels = self._labels_of(column)
        if labels is None:
            return super()._likeliest(rows, column)

        def of_class(place: int, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
            return self._chances_under(self._at(place), z, seeds, column, labels)

        seeds = np.zeros(len(rows), np.uint32)
        chances = self._mean_over_labels(self.scaling_.apply(rows), seeds, of_class)
        return np.argmax(chances, axis=1).astype(float)


def _emission_of_any(model: ByLabel, scale: Array) -> dict[str, Array]:
    """The learnable arrays by name, those of the emission in the units of the data."""
    return named_parameters(dataclasses.replace(model, model=with_emission_in_units(model.model, scale)))


def _encoded(model: ByLabel, pair: tuple[Array, Array]) -> Array:
    """The code of a row with a label."""
    return model.at(pair[1]).encode(pair[0])


def _completed(row: tuple[Array, Array, Array], model: ByLabel) -> Array:
    x, label, key = row
    key = jax.random.wrap_key_data(key)
    return model.at(label).complete_sample(x, samples=COMPLETION_SAMPLES, key=key)
