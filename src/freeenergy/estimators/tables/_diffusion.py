"""Diffusion models as an estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._core import (
    AbstractAlgorithm,
    Evidence,
    Fit,
    Kind,
    Status,
    has_nan,
    key_of,
    split_key,
    split_key_data,
)
from ...distributions import Transformed
from ...learning import Batch, Denoising, Gradient
from ...models import (
    AbstractParametrisation,
    AbstractPath,
    AbstractSampler,
    AbstractSchedule,
    Diffusion,
    FlowWithMissing,
    LogLinearSchedule,
    PredictsVelocity,
    VariancePreserving,
    flow_log_prob,
    likelihood_weight,
)
from ...nn import AbstractDenoiser, ResidualDenoiser
from ...shell import Rows, cast, check_instance, check_int, check_real, rows_at_once, split_rows
from ...shell._answers import answers, bound_of, draw_rows, keyed_answers, seeded_answers
from ...shell._networks import batch_for, check_networks, decaying_adam
from ._flow import AbstractFlowDensity, covering_mixture

_ROWS_AT_ONCE = 512
# from so many rows on, the network sees waves along the columns
_MANY = 2000
# over so many epochs, and at most so many steps, weights are averaged
_AVERAGED, _MOST_STEPS = 10, 1000
# a step looks at so many noisy rows at least
_NOISY = 256
# what completes rows
_PARTICLES, _PATHS, _COMPLETION_STEPS = 16, 8, 64
# rows by which a fit is judged against where it began, and how much worse it may be where that was right
_JUDGED, _WORSE = 1024, 1.1


class DiffusionModel(AbstractFlowDensity):
    """Data as what is left when noise is taken away: a network sees the datum through any amount of noise.

    The network is trained in single precision, by default on the continuous-time variational bound (a
    squared error of the noise at all amounts of it alike), with averaged weights and early stopping on
    held-out rows.  It begins as N(0, I) of standardised columns.

    `evidence` is log p(x) of the probability flow, an ordinary differential equation from noise to data:
    an estimate, with the error of its solver, or of random `probes` where these replace the exact change
    of volume.  `bound` is the variational bound of the chain of noisy rows, a lower bound.  Missing entries
    are integrated out by importance samples of a Gaussian mixture that is fitted to draws of the model;
    `impute` and `sample(given=…)` draw them along the chain by a particle filter.  Where rows are fitted
    with missing entries, a Gaussian mixture of the rows draws these anew for every batch, given the rest
    of the row.

    Args:
        schedule: how much noise there is at which time: `LogLinearSchedule()` (the default),
            `CosineSchedule()`, … of `freeenergy.models`.
        parametrisation: what the network is asked for: `PredictsVelocity()` (the default),
            `PredictsNoise()`, `PredictsDatum()`, `PredictsScore()` or `PredictsDisplacement()`.
        path: `VariancePreserving()` (the default), `VarianceExploding()` or `StraightPath()`.
        weight: of the error: `likelihood_weight`, `simple_weight` or `flow_matching_weight`.
        network: `freeenergy.nn.ResidualDenoiser(width, depth, waves)`; None for one that the rows bear.
        sampler: of draws: `Ancestral()`, `Implicit()`, `Corrected(…)`, …; None for the probability flow,
            whose draws follow the density that `evidence` reports.
        steps: of the solver, and of the sampler.
        probes: random signs that estimate the change of volume in many columns; None for the exact one.
        learning_rate, weight_decay, max_iter: of Adam; an iteration is an epoch.
        batch_size: rows a step; None for a twentieth of them, between 16 and 256.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        importance_samples: draws for the evidence of a row with missing entries.
        learner: replaces Adam on the weighted error.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        diffusion_: the fitted `freeenergy.models.Diffusion`, of rescaled rows.
        model_: its probability flow, a `freeenergy.models.FlowWithMissing`.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Kingma, Salimans, Poole and Ho (2021), Variational diffusion models.
        Song et al. (2021), Score-based generative modeling through stochastic differential equations.

    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> from freeenergy.nn import ResidualDenoiser
    >>> model = DiffusionModel(network=ResidualDenoiser(8, 1), max_iter=5, steps=8, random_state=0).fit(X)
    >>> model.evidence(X[:2]).kind.value, model.bound(X[:2]).kind.value
    ('estimate', 'lower bound')
    """

    def __init__(
        self,
        schedule: AbstractSchedule | None = None,
        parametrisation: AbstractParametrisation | None = None,
        *,
        path: AbstractPath | None = None,
        weight: Callable[..., Array] = likelihood_weight,
        network: AbstractDenoiser | None = None,
        sampler: AbstractSampler | None = None,
        steps: int = 32,
        probes: int | None = None,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-3,
        batch_size: int | None = None,
        max_iter: int = 1000,
        validation_fraction: float = 0.1,
        patience: int = 60,
        importance_samples: int = 64,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.schedule = schedule
        self.parametrisation = parametrisation
        self.path = path
        self.weight = weight
        self.network = network
        self.sampler = sampler
        self.steps = steps
        self.probes = probes
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.importance_samples = importance_samples
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    _may_be_none = ("batch_size",)

    @property
    def _must_converge(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "schedule", AbstractSchedule, optional=True)
        check_instance(self, "parametrisation", AbstractParametrisation, optional=True)
        check_instance(self, "path", AbstractPath, optional=True)
        check_instance(self, "network", AbstractDenoiser, optional=True)
        check_instance(self, "sampler", AbstractSampler, optional=True)
        check_int(self, "steps", 2)
        check_int(self, "importance_samples", 2)
        check_real(self, "weight_decay")
        if self.probes is not None:
            check_int(self, "probes", 2)
        if not callable(self.weight):
            raise ValueError(
                "The 'weight' parameter of DiffusionModel must be likelihood_weight, simple_weight, "
                f"flow_matching_weight or a function like them. Got {self.weight!r} instead."
            )

    def _recipe(self, rows: int) -> AbstractDenoiser:
        if self.network is not None:
            return self.network
        return ResidualDenoiser(_width(rows), waves=3 if rows >= _MANY else 0)

    def _check_size(self, rows: int, columns: int) -> None:
        check_networks(
            lambda: self._recipe(rows).build(columns, key=key_of(0)),
            # the slopes of a block of rows
            min(rows, _ROWS_AT_ONCE) * columns * (columns if self.probes is None else self.probes),
            f"DiffusionModel of {columns:,} columns",
            "Use a smaller 'network', a few 'probes', or PCA first.",
        )

    @property
    def diffusion_(self) -> Diffusion:
        """The fitted model, of rescaled rows."""
        return self.model_.flow.bijection.field.diffusion

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        parts = (
            self.schedule or LogLinearSchedule(),
            self.path or VariancePreserving(),
            self.parametrisation or PredictsVelocity(),
        )
        start = _start(self._recipe(len(rows.x)), rows.x.shape[1], cast(parts, np.float32), start_key)
        size = self.batch_size or batch_for(len(rows.x))
        proposal = cast(covering_mixture(rows), np.float32) if has_nan(rows.x) else None
        objective = Denoising(self.weight, max(_NOISY // size, 1), proposal)
        learner = self.learner or Gradient(
            decaying_adam(self.learning_rate, self.weight_decay),
            self._with_fresh_noise(objective),
            batch_size=size,
            patience=self.patience,
            average=1 - 1 / min(_AVERAGED * max(len(rows.x) // size, 1), _MOST_STEPS),
        )
        result = _not_worse(
            self._run(start, learner, train, rows, fit_key, validation=validation), start, rows, objective
        )
        # evaluation is in double precision, so that rows give the same number in any company
        flow = _flow(cast(result.model, np.float64), self.steps)
        return dataclasses.replace(result, model=FlowWithMissing(flow, None))

    def _evidence(self, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        missing = np.isnan(z)
        whole, none = ~missing.any(axis=1), missing.all(axis=1)
        some = ~whole & ~none
        nats, stderr = np.zeros(len(z)), np.zeros(len(z))
        if whole.any():
            nats[whole], stderr[whole] = seeded_answers(
                self.model_.flow,
                _log_prob,
                z[whole],
                seeds[whole],
                self.seed_,
                block=_ROWS_AT_ONCE,
                probes=self.probes,
            )
        if some.any():
            self._cover()
            found = seeded_answers(
                self.model_,
                FlowWithMissing.evidence,
                z[some],
                seeds[some],
                self.seed_,
                block=rows_at_once(self.importance_samples, 8 * self._width),
                samples=self.importance_samples,
            )
            bound = bound_of(found, np.ones(int(some.sum()), bool))
            nats[some], stderr[some] = bound.nats, bound.stderr
        return Evidence(nats, stderr, Kind.ESTIMATE)

    def bound(self, X: Any, *, steps: int | None = None, draws: int = 16) -> Evidence:
        """The variational bound on log p(x) of each row, for rows without missing entries.

        Args:
            X: a row per sample.
            steps: of the chain; None for the limit of ever more steps.
            draws: estimates of each bound, from whose spread its standard error is known.
        """
        taken = self._read(X)
        if has_nan(taken.x):
            raise ValueError(
                "DiffusionModel.bound takes rows without missing entries. Use evidence, or impute first."
            )
        found = seeded_answers(
            self.diffusion_,
            _bounds,
            taken.z,
            taken.seeds,
            self.seed_,
            block=rows_at_once(draws * (steps or _COMPLETION_STEPS)),
            steps=steps,
            draws=draws,
        )
        nats, stderr = found
        return Evidence(nats + taken.log_det, stderr, Kind.LOWER)

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        if self.sampler is None:
            return draw_rows(self.model_.flow, n, key, _moved)
        return draw_rows(self.diffusion_, n, key, Diffusion.sample, sampler=self.sampler, steps=self.steps)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        how = {"particles": _PARTICLES, "paths": _PATHS, "steps": _COMPLETION_STEPS}
        block = rows_at_once(_PARTICLES * _PATHS, self._width)
        return seeded_answers(
            self.diffusion_, Diffusion.complete_mean, z, seeds, self.seed_, block=block, **how
        )

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        how = {"particles": _PARTICLES, "steps": _COMPLETION_STEPS}
        keys, block = split_key_data(key, len(z)), rows_at_once(_PARTICLES, self._width)
        return keyed_answers(self.diffusion_, Diffusion.complete_sample, z, keys, block=block, **how)


def _log_prob(flow: Transformed, x: Array, *, probes: int | None, key: Array) -> tuple[Array, Array]:
    return flow_log_prob(flow, x, probes=probes, key=key)


def _moved(flow: Transformed, *, key: Array) -> Array:
    """A draw, without the change of volume."""
    return flow.bijection.moved(flow.base.sample(key=key))  # pyright: ignore[reportAttributeAccessIssue]


def _bounds(
    model: Diffusion, x: Array, *, steps: int | None, draws: int, key: Array
) -> tuple[Array, Array]:
    """The mean of several estimates of the bound, and its standard error."""
    found = jax.vmap(lambda k: model.bound(x, key=k, steps=steps))(jax.random.split(key, draws))
    return found.mean(), found.std(ddof=1) / draws**0.5


@eqx.filter_jit
def _start(recipe: AbstractDenoiser, dim: int, parts: tuple[Any, Any, Any], key: Array) -> Diffusion:
    return Diffusion(recipe.build(dim, key=key), dim, *parts)


@eqx.filter_jit
def _flow(model: Diffusion, steps: int) -> Transformed:
    return model.flow(steps)


def _error(model: Diffusion, row: Array, *, objective: Denoising) -> Array:
    """The error of a row at several times; the same noise for every row, so that two models compare."""
    return objective(model, Batch(row[None], jnp.ones(1, row.dtype)), jax.random.key(0))


def _not_worse(result: Fit, start: Diffusion, rows: Rows, objective: Denoising) -> Fit:
    """`result`, or the start with a sentence where it saw better through noise before it learned."""
    chosen = rows.x[:: max(len(rows.x) // _JUDGED, 1)].astype(np.float32)
    many = dataclasses.replace(objective, draws=32)
    found, before = (
        np.mean(answers(model, _error, chosen, block=_JUDGED, objective=many))
        for model in (result.model, start)
    )
    if found <= _WORSE * before:
        return result
    note = (
        "training left noise harder to see through than for independent Gaussian columns, which are kept. "
        "Try a smaller learning rate"
    )
    return dataclasses.replace(result, model=start, status=Status.NON_FINITE, note=note)


def _width(rows: int) -> int:
    """Hidden units: few for few rows, up to 256."""
    return int(2 ** np.clip(np.round(np.log2(np.sqrt(rows))), 5, 8))
