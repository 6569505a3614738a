"""Softmax regression as an estimator: a conditional energy over finite answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from ..._core import AbstractAlgorithm, Data, Evidence, Fit, Kind, Status, map_rows, on_device
from ...evaluation import likelihood_is_unbounded
from ...inference import importance_estimate
from ...learning import LBFGS, AbstractAnswerPhase, Batch, Boltzmann, ConditionalContrastive, Gradient
from ...models import Density, SoftmaxModel
from ...shell import (
    LabelledTable,
    Predicts,
    PredictsProbabilities,
    Rows,
    ScoresLabels,
    adam,
    check_instance,
    check_numbers,
    check_real,
)
from ...shell._answers import seeded
from ...shell._rows import row_seeds
from ..tables._gaussian import GaussianDensity
from ._design import TakesAnyColumns

_IMPUTATIONS = 20
_SEPARABLE = (
    "the rows are separable (a linear rule tells answers apart without an error), so that the coefficients "
    "grow without bound; set C, such as C=1.0"
)


class RidgeContrastive(eqx.Module):
    """A contrastive objective plus ½ · penalty · ‖weight‖², which spares the bias."""

    phase: AbstractAnswerPhase
    penalty: Array = eqx.field(converter=on_device)

    def __call__(self, model: SoftmaxModel, batch: Batch, key: Array) -> Array:
        loss = ConditionalContrastive(self.phase)(model, batch, key)
        return loss + 0.5 * self.penalty * jnp.sum(model.weight**2)


def _scores(row: Array, model: SoftmaxModel) -> Array:
    return -model.energies(row)


def _averaged(
    pair: tuple[Array, Array], inputs: Density, model: SoftmaxModel, seed: Array
) -> tuple[Array, Array]:
    """log of p(y | x) averaged over completions of a row, and the standard error of that."""
    row, row_seed = pair
    keys = jax.random.split(seeded(seed, row_seed), _IMPUTATIONS)
    draws = jax.vmap(lambda k: inputs.complete_sample(row, key=k))(keys)
    # in logarithms, so that very improbable answers keep their number
    logs = jax.vmap(lambda x: jax.nn.log_softmax(_scores(x, model)))(draws)
    estimate = jax.vmap(importance_estimate, in_axes=1)(logs)
    return estimate.log_mean, estimate.stderr


class _InUnits(LabelledTable):
    """Rows and labels in the units of the user, in which what is missing is drawn."""

    @property
    def events(self) -> Rows:  # pyright: ignore[reportIncompatibleVariableOverride]
        assert self.rows is not None
        return self.rows


class SoftmaxRegression(ClassifierMixin, Predicts, PredictsProbabilities, ScoresLabels, TakesAnyColumns):
    """p(y | x) ∝ exp(w_y·x + b_y), learned by pushing the energy of the right answer below the others.

    How the others are pushed up is the negative phase: `Boltzmann()` is cross entropy (multinomial
    logistic regression), `Argmin()` the perceptron, `Margin()` the multiclass hinge loss.

    Args:
        phase: the negative phase.
        C: inverse strength of the penalty ½‖W‖² (in units of standardised columns), as in
            scikit-learn's logistic regression; None for no penalty, with which answers that can be told
            apart without an error have no finite coefficients: the fit warns.
        max_iter, tol: the most iterations, and the gradient below which they stop.
        learner: replaces L-BFGS (for `Boltzmann`) and Adam (for the others, which have kinks).
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        classes_: the labels.
        coef_, intercept_: w and b of each answer, in the units of the data.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        inputs_: the Gaussian of the inputs, from which missing ones are drawn.
        model_: the fitted `freeenergy.models.SoftmaxModel`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Missing inputs are drawn, 20 times, from a Gaussian fitted to the inputs, and predictions averaged
    over the draws.  A column of labels is a column of 0 and 1 for each label but the first, in the order of
    the schema; `columns_` names them.  Of two answers that are equally good the second is predicted,
    sign(0) = +1; of more, the first.

    >>> model = SoftmaxRegression().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]]).tolist()
    ['no', 'yes']
    """

    intake = _InUnits

    def __init__(
        self,
        phase: AbstractAnswerPhase | None = None,
        *,
        C: float | None = 1.0,
        max_iter: int = 1000,
        tol: float = 1e-6,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.phase = phase
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "phase", AbstractAnswerPhase, optional=True)
        check_real(self, "C", closed=False, optional=True)

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the answers `y` to the rows of `X`."""
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        x, answers, weight = rows.x, rows.known[:, 0].astype(np.int32), rows.weight
        self.inputs_ = GaussianDensity().fit(x, sample_weight=weight)
        if np.isnan(x).any():
            seed = int(self.seed_) % 2**31
            x = self.inputs_.sample(_IMPUTATIONS, random_state=seed, given=x).reshape(-1, x.shape[1])
            answers = np.tile(answers, _IMPUTATIONS)
            weight = np.tile(weight, _IMPUTATIONS) / _IMPUTATIONS
        x = self.scaling_.apply(x)
        data = Data.of((x, answers), weight)
        phase = Boltzmann() if self.phase is None else self.phase
        penalty = 0.0 if self.C is None else 1 / (self.C * rows.weight.sum())
        shape = len(self.classes_), x.shape[1]
        start = SoftmaxModel(on_device(np.zeros(shape)), on_device(np.zeros(shape[0])))
        learner = self.learner or _learner(phase, penalty, self.tol)
        found = self._run(start, learner, data, rows, key)
        smooth = isinstance(phase, Boltzmann) and self.learner is None
        if self.C is None and smooth and not found.interrupted:
            kept = weight > 0
            if likelihood_is_unbounded(x[kept], answers[kept], found.model.weight, found.model.bias):
                found = dataclasses.replace(found, status=Status.UNBOUNDED, note=_SEPARABLE)
        return found

    def decision_function(self, X: Any) -> np.ndarray:
        """log p(y | x) of each answer up to a constant; for two answers how much favours the second."""
        X = self._read(X).x
        holes = np.isnan(X).any(axis=1)
        scores = np.empty((len(X), len(self.classes_)))
        if (~holes).any():
            scores[~holes] = self._scores(X[~holes])
        if holes.any():
            scores[holes] = self._log_predictive(X[holes])[0]
        if len(self.classes_) > 2:
            return scores
        with np.errstate(over="ignore"):
            return check_numbers(self, "decision_function", scores[:, 1] - scores[:, 0])

    def _scores(self, X: np.ndarray) -> np.ndarray:
        """w·x + b of each answer, for rows without NaN."""
        scores = map_rows(_scores, self.scaling_.apply(X), self.model_)
        return check_numbers(self, "decision_function", scores)

    def _log_predictive(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(y | x) of each answer, p averaged over draws of what is missing, and its standard error."""
        pairs = (self.scaling_.apply(X), row_seeds(X, self.scaling_))
        logs, error = map_rows(_averaged, pairs, self.inputs_.model_, self.model_, self.seed_, block=256)
        check_numbers(self, "predict_log_proba", logs, logarithms=True)
        return logs, np.where(np.isnan(X).any(axis=1, keepdims=True), error, 0.0)

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(y | x) of each answer."""
        return np.exp(self._log_predictive(self._read(X).x)[0])

    def predict(self, X: Any) -> np.ndarray:
        """The answer of least energy."""
        probabilities = self.predict_proba(X)
        if len(self.classes_) == 2:
            return self.classes_[(probabilities[:, 1] >= probabilities[:, 0]).astype(int)]
        return self.classes_[np.argmax(probabilities, axis=1)]

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row."""
        X = self._read(X).x
        place = self._place_of(y)
        nats, stderr = np.empty(len(X)), np.zeros(len(X))
        holes = np.isnan(X).any(axis=1)
        if (~holes).any():
            # in logarithms, so that very improbable answers keep their number
            scores = self._scores(X[~holes])
            nats[~holes] = log_softmax(scores, axis=1)[np.arange(len(scores)), place[~holes]]
        if holes.any():
            at = np.arange(int(holes.sum())), place[holes]
            nats[holes], stderr[holes] = (part[at] for part in self._log_predictive(X[holes]))
        return Evidence(nats, stderr, Kind.ESTIMATE if holes.any() else Kind.EXACT)

    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """The same as `evidence`."""
        return self.evidence(X, y)

    @property
    def coef_(self) -> np.ndarray:
        """w, a row per answer, in the units of the data."""
        return np.asarray(self.model_.weight) / self.scaling_.scale

    @property
    def intercept_(self) -> np.ndarray:
        """b, a number per answer, in the units of the data."""
        return np.asarray(self.model_.bias) - self.coef_ @ self.scaling_.shift


def _learner(phase: AbstractAnswerPhase, penalty: float, tol: float) -> AbstractAlgorithm:
    objective = RidgeContrastive(phase, penalty)
    if isinstance(phase, Boltzmann):
        return LBFGS(objective, tol)
    return Gradient(adam(0.02), objective, batch_size=None, average=0.95, patience=50, tol=max(tol, 1e-4))
