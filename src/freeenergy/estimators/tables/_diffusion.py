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
    check_size,
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
from ...models._told_label import label_codes, told_label
from ...nn import AbstractDenoiser, ResidualDenoiser
from ...shell import Rows, cast, check_instance, check_int, check_real, rows_at_once, split_rows
from ...shell._answers import answers, bound_of, draw_rows, keyed_answers, seeded_answers
from ...shell._networks import batch_for, check_networks, decaying_adam, numbers_inside
from ._flow import AbstractFlowDensity, covering_mixture

ROWS_AT_ONCE, _DRAWS_AT_ONCE = 512, 4096
# of the widest layer of a network, for the rows that are done together: a quarter of a gigabyte
_NUMBERS_AT_ONCE = 2**25
# from so many rows on, the network sees waves along the columns
_MANY = 2000
# over so many epochs, and at most so many steps, weights are averaged
_AVERAGED, _MOST_STEPS = 10, 1000
# a step looks at so many noisy rows at least
_NOISY = 256
# what completes rows
PARTICLES, PATHS, COMPLETION_STEPS = 16, 8, 64
# rows by which a fit is judged against where it began, and how much worse it may be where that was right
_JUDGED, _JUDGED_DRAWS, _WORSE = 1024, 32, 1.1


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
        network: `freeenergy.nn.ResidualDenoiser(width, depth, waves)`, None for one that the rows bear; or
            `PatchDenoiser(shape, …)` or `ConvolutionalDenoiser(shape, …)`, where rows are images or series.
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
        check_diffusion(self)

    def _check_size(self, rows: int, columns: int) -> None:
        check_size_of_diffusion(self, rows, columns)

    def _rows_at_once(self, events: int, most: int = ROWS_AT_ONCE) -> int:
        """Rows that are done together, where the network looks at so many events for each."""
        return rows_for(self.diffusion_, self._width, events, most)

    def _completed_at_once(self, samples: int, width: int = 1) -> int:
        """Rows that are done together with so many samples of each."""
        return min(rows_at_once(samples, width), self._rows_at_once(samples))

    @property
    def diffusion_(self) -> Diffusion:
        """The fitted model, of rescaled rows."""
        return self.model_.flow.bijection.field.diffusion

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        train, validation = split_rows(rows, self.validation_fraction, np.float32)
        start = start_of_diffusion(self, rows, start_key)
        proposal = cast(covering_mixture(rows), np.float32) if has_nan(rows.x) else None
        objective = denoising(self, rows, proposal)
        learner = learner_of_diffusion(self, rows, objective)
        result = not_worse(
            self._run(start, learner, train, rows, fit_key, validation=validation), start, rows.x, objective
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
                block=self._rows_at_once(self.probes or self._width),
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
                block=self._completed_at_once(self.importance_samples, 8 * self._width),
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
            bounds_of,
            taken.z,
            taken.seeds,
            self.seed_,
            block=self._completed_at_once(draws * (steps or COMPLETION_STEPS)),
            steps=steps,
            draws=draws,
        )
        nats, stderr = found
        return Evidence(nats + taken.log_det, stderr, Kind.LOWER)

    def _draw(self, n: int, *, key: Array) -> np.ndarray:
        block = self._rows_at_once(1, _DRAWS_AT_ONCE)
        if self.sampler is None:
            return draw_rows(self.model_.flow, n, key, _moved, block=block)
        how = {"sampler": self.sampler, "steps": self.steps}
        return draw_rows(self.diffusion_, n, key, Diffusion.sample, block=block, **how)

    def _fill_mean(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        how = {"particles": PARTICLES, "paths": PATHS, "steps": COMPLETION_STEPS}
        block = self._completed_at_once(PARTICLES * PATHS, self._width)
        return seeded_answers(
            self.diffusion_, Diffusion.complete_mean, z, seeds, self.seed_, block=block, **how
        )

    def _fill_sample(self, z: np.ndarray, *, key: Array) -> np.ndarray:
        how = {"particles": PARTICLES, "steps": COMPLETION_STEPS}
        keys, block = split_key_data(key, len(z)), self._completed_at_once(PARTICLES, self._width)
        return keyed_answers(self.diffusion_, Diffusion.complete_sample, z, keys, block=block, **how)


def check_diffusion(owner: Any) -> None:
    """Refuses parameters that estimators with a diffusion share."""
    check_instance(owner, "schedule", AbstractSchedule, optional=True)
    check_instance(owner, "parametrisation", AbstractParametrisation, optional=True)
    check_instance(owner, "path", AbstractPath, optional=True)
    check_instance(owner, "network", AbstractDenoiser, optional=True)
    check_instance(owner, "sampler", AbstractSampler, optional=True)
    check_int(owner, "steps", 2)
    check_int(owner, "importance_samples", 2)
    check_real(owner, "weight_decay")
    if owner.probes is not None:
        check_int(owner, "probes", 2)
    if not callable(owner.weight):
        raise ValueError(
            f"The 'weight' parameter of {type(owner).__name__} must be likelihood_weight, simple_weight, "
            f"flow_matching_weight or a function like them. Got {owner.weight!r} instead."
        )


def check_size_of_diffusion(owner: Any, rows: int, columns: int, labels: int = 1) -> None:
    """Refuses networks that would not fit in memory."""

    def make(key: Array) -> Any:
        return _network(owner, rows, columns, labels, key)

    what = f"{type(owner).__name__} of {columns:,} columns"
    slopes = columns if owner.probes is None else owner.probes
    check_networks(
        make,
        # the slopes of a block of rows
        min(rows, ROWS_AT_ONCE) * columns * slopes,
        what,
        "Use a smaller 'network', a few 'probes', or PCA first.",
    )
    size = owner.batch_size or batch_for(rows)
    # what a step of learning keeps, in single precision, and the slopes of the widest layer
    kept, widest = _inside(eqx.filter_eval_shape(make, key_of(0)), columns)
    check_size(
        max(max(size, _NOISY) * kept / 4, widest * slopes),
        f"The layers of {what}, for the rows of a step,",
        "Use a smaller 'network', or a few 'probes'.",
    )


def _network(owner: Any, rows: int, columns: int, labels: int, key: Array) -> Any:
    recipe = owner.network
    if recipe is None:
        recipe = ResidualDenoiser(_width(rows), waves=3 if rows >= _MANY else 0)
    told = label_codes(labels).shape[1]
    # networks of one's own need not know of labels where there are none
    more = {"told": told} if told else {}
    return told_label(recipe.build(columns, **more, key=key), told, np.float32)


def start_of_diffusion(owner: Any, rows: Rows, key: Array, labels: int = 1) -> Diffusion:
    """Random weights of a network that is told one of the labels, if there are several."""
    parts = (
        owner.schedule or LogLinearSchedule(),
        owner.path or VariancePreserving(),
        owner.parametrisation or PredictsVelocity(),
    )
    dim = rows.x.shape[1]
    return Diffusion(_network(owner, len(rows.x), dim, labels, key), dim, *cast(parts, np.float32))


def _batch(owner: Any, rows: Rows) -> int:
    return owner.batch_size or batch_for(len(rows.x))


def denoising(owner: Any, rows: Rows, proposal: Any) -> Denoising:
    """What is lowered: the weighted error of rows, whose missing entries come from a proposal."""
    return Denoising(owner.weight, max(_NOISY // _batch(owner, rows), 1), proposal)


def learner_of_diffusion(owner: Any, rows: Rows, objective: Any) -> AbstractAlgorithm:
    """Adam on the objective, with averaged weights."""
    size = _batch(owner, rows)
    return owner.learner or Gradient(
        decaying_adam(owner.learning_rate, owner.weight_decay),
        owner._with_fresh_noise(objective),
        batch_size=size,
        patience=owner.patience,
        average=1 - 1 / min(_AVERAGED * max(len(rows.x) // size, 1), _MOST_STEPS),
    )


def _log_prob(flow: Transformed, x: Array, *, probes: int | None, key: Array) -> tuple[Array, Array]:
    return flow_log_prob(flow, x, probes=probes, key=key)


def _moved(flow: Transformed, *, key: Array) -> Array:
    """A draw, without the change of volume."""
    return flow.bijection.moved(flow.base.sample(key=key))  # pyright: ignore[reportAttributeAccessIssue]


def bounds_of(
    model: Diffusion, x: Array, *, steps: int | None, draws: int, key: Array
) -> tuple[Array, Array]:
    """The mean of several estimates of the bound, and its standard error."""
    found = jax.vmap(lambda k: model.bound(x, key=k, steps=steps))(jax.random.split(key, draws))
    return found.mean(), found.std(ddof=1) / draws**0.5


def _inside(network: Any, columns: int) -> tuple[int, int]:
    """How many numbers a network makes of a row, and the most at a time."""
    kinds = [leaf.dtype for leaf in jax.tree.leaves(network) if hasattr(leaf, "dtype")]
    row = jax.ShapeDtypeStruct((columns,), kinds[0] if kinds else np.float32)
    return numbers_inside(network, row, jax.ShapeDtypeStruct((), row.dtype))


def rows_for(model: Diffusion, columns: int, events: int, most: int = ROWS_AT_ONCE) -> int:
    """A power of two of rows, with so many events each, of which the widest layer bears all."""
    rows = _NUMBERS_AT_ONCE // (events * max(_inside(model.network, columns)[1], 1))
    return min(most, 2 ** max(rows.bit_length() - 1, 0))


@eqx.filter_jit
def _flow(model: Diffusion, steps: int) -> Transformed:
    return model.flow(steps)


def _error(model: Any, row: Any, *, objective: Denoising) -> Array:
    """The error of a row at several times; the same noise for every row, so that two models compare."""
    one = jax.tree.map(lambda a: a[None], row)
    return objective(model, Batch(one, jnp.ones(1, jax.tree.leaves(one)[0].dtype)), jax.random.key(0))


def not_worse(result: Fit, start: Any, rows: Any, objective: Denoising) -> Fit:
    """`result`, or the start with a sentence where it saw better through noise before it learned."""
    step = max(len(jax.tree.leaves(rows)[0]) // _JUDGED, 1)
    chosen = jax.tree.map(lambda a: a[::step].astype(np.float32), rows)
    many = dataclasses.replace(objective, draws=_JUDGED_DRAWS)
    diffusion = start if isinstance(start, Diffusion) else start.model
    block = rows_for(diffusion, diffusion.dim, _JUDGED_DRAWS, _JUDGED)
    found, before = (
        np.mean(answers(model, _error, chosen, block=block, objective=many))
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
