"""Diffusion models of rows given their label."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from ..._core import (
    AbstractAlgorithm,
    Evidence,
    Fit,
    Kind,
    fold_key,
    has_nan,
    key_of,
    map_rows,
    on_device,
    split_key,
    split_key_data,
    stacked,
)
from ...learning import Unlabelled
from ...models import (
    AbstractParametrisation,
    AbstractPath,
    AbstractSampler,
    AbstractSchedule,
    ByLabel,
    Diffusion,
    EachLabel,
    FlowWithMissing,
    Guided,
    Mixture,
    flow_log_prob,
    likelihood_weight,
)
from ...nn import AbstractDenoiser
from ...shell import Rows, cast, check_real, rows_at_once, split_rows
from ...shell._answers import bound_of, seeded_answers
from ..tables._diffusion import (
    COMPLETION_STEPS,
    PARTICLES,
    PATHS,
    bounds_of,
    check_diffusion,
    check_size_of_diffusion,
    denoising,
    learner_of_diffusion,
    not_worse,
    rows_for,
    start_of_diffusion,
)
from ..tables._flow import covering_mixture
from ._class_conditional import AbstractClassConditionalDensity

# draws of all labels together to which what covers them is fitted, and of one at least
_COVERING_DRAWS, _FEWEST_DRAWS = 3000, 500
# what rows of other labels weigh in what covers one, so that every column is seen
_OF_OTHERS = 0.01


class ClassConditionalDiffusion(AbstractClassConditionalDensity):
    """Rows given their label, p(x | y), as what is left when noise is taken away: one network, told y.

    The network is trained as that of `DiffusionModel`, with the label beside the noisy row.  A share `drop`
    of the rows comes without one, so that draws can be guided: along the score

        (1 + w) ∇ log p_t(x | y) − w ∇ log p_t(x),

    for `guidance` w above zero, they are more typical of their label and less various.  They are no draws
    of the density then; with w = 0, the default, they are.

    `evidence` is log p(x) = log Σ_y p(y) p(x | y) with the share of each label as p(y); `predict_proba` and
    `evidence_of_labels` follow by Bayes' rule.  All are estimates, by a probability flow for each label,
    and take as long as those of a `DiffusionModel` times the number of labels.  Missing entries are
    integrated out as there, by a mixture for each label.

    Args:
        drop: the share of rows whose label the network is not told; zero where draws are never guided.
        schedule, parametrisation, path, weight, network: as in `DiffusionModel`.
        sampler: of draws; None for the probability flow, whose draws follow the density.
        steps, probes: of the flow, as in `DiffusionModel`.
        learning_rate, weight_decay, max_iter, batch_size: of Adam; an iteration is an epoch.
        validation_fraction, patience: rows held out, and epochs without improvement before stopping.
        importance_samples: draws for the evidence of a row with missing entries.
        learner: replaces Adam on the weighted error.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        classes_: the labels.
        class_prior_: p(y), the share of each label.
        model_: a `freeenergy.models.ByLabel` of diffusions, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Ho and Salimans (2022), Classifier-free diffusion guidance.
        Dhariwal and Nichol (2021), Diffusion models beat GANs on image synthesis.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 2)), np.repeat(["low", "high"], 50)
    >>> X[50:] += 4.0
    >>> from freeenergy.nn import ResidualDenoiser
    >>> network = ResidualDenoiser(8, 1)
    >>> model = ClassConditionalDiffusion(network=network, max_iter=60, steps=4, random_state=0)
    >>> drawn = model.fit(X, y).sample(50, random_state=0, labels="high")
    >>> bool(np.abs(drawn.mean(axis=0) - 4.0).max() < 1.0)
    True
    """

    # of one solver
    _errors_together = True

    def __init__(
        self,
        drop: float = 0.1,
        *,
        schedule: AbstractSchedule | None = None,
        parametrisation: AbstractParametrisation | None = None,
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
        self.drop = drop
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
        check_real(self, "drop", 0.0, 1.0)

    def _check_size(self, rows: int, columns: int) -> None:
        check_size_of_diffusion(self, rows, columns, len(self.classes_))

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        start_key, fit_key = split_key(key)
        labels = rows.known[:, 0]
        train, validation = split_rows(rows._replace(known=labels), self.validation_fraction, np.float32)
        size = len(self.classes_)
        shares = on_device(self._shares(rows), np.float32)
        start = ByLabel.of(shares, start_of_diffusion(self, rows, start_key, size))
        proposal = cast(_covers(rows, size), np.float32) if has_nan(rows.x) else None
        objective = denoising(self, rows, proposal)
        # of a label that is the only one nothing is told
        lowered = Unlabelled(objective, self.drop) if self.drop and size > 1 else objective
        learner = learner_of_diffusion(self, rows, lowered)
        result = self._run(start, learner, train, rows, fit_key, validation=validation)
        result = not_worse(result, start, (rows.x, labels), objective)
        vars(self).pop("_covers", None)
        # evaluation is in double precision, so that rows give the same number in any company
        model = dataclasses.replace(cast(result.model, np.float64), weights=on_device(self._shares(rows)))
        return dataclasses.replace(result, model=model)

    def _rows_at_once(self, events: int) -> int:
        """Rows that are done together, where the network looks at so many events for each."""
        return rows_for(self.model_.model, self._width, events)

    def _completed_at_once(self, samples: int, width: int = 1) -> int:
        """Rows that are done together with so many samples of each."""
        return min(rows_at_once(samples, width), self._rows_at_once(samples))

    # -- evidence -----------------------------------------------------------------------------------

    def _evidence_of_class(self, place: int, z: np.ndarray, seeds: np.ndarray) -> Evidence:
        missing, model = np.isnan(z), self._at(place)
        whole, none = ~missing.any(axis=1), missing.all(axis=1)
        some = ~whole & ~none
        nats, stderr = np.zeros(len(z)), np.zeros(len(z))
        if whole.any():
            nats[whole], stderr[whole] = seeded_answers(
                model,
                _log_prob,
                z[whole],
                seeds[whole],
                self.seed_,
                block=self._rows_at_once(self.probes or self._width),
                steps=self.steps,
                probes=self.probes,
            )
        if some.any():
            found = seeded_answers(
                (model, self._cover(place)),
                _marginal,
                z[some],
                seeds[some],
                self.seed_,
                block=self._completed_at_once(self.importance_samples, 8 * self._width),
                samples=self.importance_samples,
                steps=self.steps,
            )
            bound = bound_of(found, np.ones(int(some.sum()), bool))
            nats[some], stderr[some] = bound.nats, bound.stderr
        return Evidence(nats, stderr, Kind.ESTIMATE)

    def _cover(self, place: int) -> Mixture:
        """What covers the density of rows with a label; made when the first row needs it."""
        if "_covers" not in vars(self):
            n = max(_COVERING_DRAWS // len(self.classes_), _FEWEST_DRAWS)
            covers = []
            for label in range(len(self.classes_)):
                key = fold_key(key_of(int(self.seed_)), 1 + label)
                draws = self._draw(n, key=key, labels=np.array([label]))
                draws = draws[np.isfinite(draws).all(axis=1)]
                if len(draws) < n // 2:
                    # of rescaled rows
                    draws = 3 * np.random.default_rng(0).normal(size=(n, self._width))
                covers.append(covering_mixture(Rows(draws, np.ones(len(draws)))))
            self._covers = covers
        return self._covers[place]

    def bound(self, X: Any, y: Any, *, steps: int | None = None, draws: int = 16) -> Evidence:
        """The variational bound on log p(x | y) of each row, for rows without missing entries.

        Args:
            X: a row per sample.
            y: the label of each.
            steps: of the chain; None for the limit of ever more steps.
            draws: estimates of each bound, from whose spread its standard error is known.
        """
        taken, places = self._read(X), self._place_of(y)
        if has_nan(taken.x):
            raise ValueError(
                "ClassConditionalDiffusion.bound takes rows without missing entries. Use "
                "evidence_given_labels, or impute first."
            )
        nats, stderr = seeded_answers(
            self.model_,
            _bounds,
            (taken.z, places),
            taken.seeds,
            self.seed_,
            block=self._completed_at_once(draws * (steps or COMPLETION_STEPS)),
            steps=steps,
            draws=draws,
        )
        return Evidence(nats + taken.log_det, stderr, Kind.LOWER)

    # -- draws --------------------------------------------------------------------------------------

    def sample(
        self,
        n: int = 1,
        random_state: Any = None,
        *,
        given: Any = None,
        labels: Any = None,
        guidance: float = 0.0,
    ) -> Any:
        """Draws `n` rows from the fitted model, of labels as frequent as they were, or of those asked for.

        Args:
            n: how many; of several `labels` as many as there are.
            random_state: seed.
            given: rows with NaN, of which the missing part is drawn, `n` times for each row.
            labels: a label for all draws, or one for each of them, and of `given` for each row; None draws
                them, and of `given` from what the rest of each row says of its label.
            guidance: w; above zero draws are more typical of their label than those of the density.

        `sample_with_labels` returns the labels, too.
        """
        if not isinstance(guidance, numbers.Real) or not 0 <= float(guidance) < np.inf:
            raise ValueError(
                "The 'guidance' of ClassConditionalDiffusion.sample must be a float in the range [0, inf). "
                f"Got {guidance!r} instead."
            )
        if not guidance:
            return self._by_label(n, random_state, given, labels)
        if not self.drop:
            raise ValueError(
                "ClassConditionalDiffusion with 'drop' = 0 has no score without a label, by which guided "
                "draws differ. Fit it with drop=0.1."
            )
        if given is not None:
            raise ValueError(
                "The 'guidance' of ClassConditionalDiffusion.sample must be 0 with 'given': what is "
                f"missing is drawn from the density. Got {guidance!r} instead."
            )
        return self._by_label(n, random_state, given, labels, guidance=float(guidance))

    def _drawing(self, guidance: float | None = None) -> tuple[Any, dict[str, Any]]:
        if guidance is None:
            return _draw, {"sampler": self.sampler, "steps": self.steps}
        weight = on_device(guidance, np.float64)
        return _draw_guided, {"sampler": self.sampler, "steps": self.steps, "guidance": weight}

    def _fill_mean_of_class(self, place: int, z: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return seeded_answers(
            self._at(place),
            Diffusion.complete_mean,
            z,
            seeds,
            self.seed_,
            block=self._completed_at_once(PARTICLES * PATHS, self._width),
            particles=PARTICLES,
            paths=PATHS,
            steps=COMPLETION_STEPS,
        )

    def _fill_sample_of_classes(self, z: np.ndarray, places: np.ndarray, *, key: Array) -> np.ndarray:
        block = self._completed_at_once(PARTICLES, self._width)
        rows = z, places, split_key_data(key, len(z))
        return map_rows(_completed, rows, self.model_, block=block)


def _draw(model: Diffusion, *, sampler: AbstractSampler | None, steps: int, key: Array) -> Array:
    """A draw: by the probability flow, or a sampler."""
    if sampler is not None:
        return model.sample(sampler=sampler, steps=steps, key=key)
    flow: Any = model.flow(steps)
    return flow.bijection.moved(flow.base.sample(key=key))


def _draw_guided(model: Diffusion, *, guidance: Array, key: Array, **how: Any) -> Array:
    return _draw(Guided.of(model, guidance), key=key, **how)


def _completed(row: tuple[Array, Array, Array], model: ByLabel) -> Array:
    x, label, key = row
    how = {"particles": PARTICLES, "steps": COMPLETION_STEPS}
    return model.at(label).complete_sample(x, key=jax.random.wrap_key_data(key), **how)


def _log_prob(
    model: Diffusion, x: Array, *, steps: int, probes: int | None, key: Array
) -> tuple[Array, Array]:
    return flow_log_prob(model.flow(steps), x, probes=probes, key=key)


def _marginal(models: tuple[Diffusion, Mixture], x: Array, *, samples: int, steps: int, key: Array) -> Any:
    model, proposal = models
    return FlowWithMissing(model.flow(steps), proposal).evidence(x, samples=samples, key=key)


def _bounds(
    model: ByLabel, pair: tuple[Array, Array], *, steps: int | None, draws: int, key: Array
) -> tuple[Array, Array]:
    return bounds_of(model.at(pair[1]), pair[0], steps=steps, draws=draws, key=key)


def _covers(rows: Rows, labels: int) -> EachLabel:
    """What covers the rows of each label, and those of all for none."""
    assert rows.known is not None
    place = rows.known[:, 0].astype(int)
    weights = [rows.weight * np.where(place == label, 1.0, _OF_OTHERS) for label in range(labels)]
    return EachLabel(
        stacked([covering_mixture(Rows(rows.x, weight)) for weight in (*weights, rows.weight)])
    )
