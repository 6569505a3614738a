"""Softmax regression as an estimator: a conditional energy over finite answers."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._core import AbstractAlgorithm, Data, Evidence, Fit, Kind, map_rows
from ..learning import LBFGS, AbstractAnswerPhase, Boltzmann, ConditionalContrastive, Gradient, fit
from ..learning._objectives import Batch
from ..models import SoftmaxModel
from ._base import Shell
from ._gaussian import GaussianDensity
from ._networks import adam
from ._rows import Rows, Scaling, canonical_rows
from ._validation import (
    check_instance,
    check_int,
    check_observed,
    check_real,
    check_rows,
    check_weight,
    random_key,
)

_IMPUTATIONS = 20


class RidgeContrastive(eqx.Module):
    """A contrastive objective plus ½ · penalty · ‖weight‖², which spares the bias."""

    phase: AbstractAnswerPhase
    penalty: Array = eqx.field(converter=jnp.asarray)

    def __call__(self, model: SoftmaxModel, batch: Batch, key: Array) -> Array:
        loss = ConditionalContrastive(self.phase)(model, batch, key)
        return loss + 0.5 * self.penalty * jnp.sum(model.weight**2)


def _scores(row: Array, model: SoftmaxModel) -> Array:
    return -model.energies(row)


class SoftmaxRegression(ClassifierMixin, Shell):
    """p(y | x) ∝ exp(w_y·x + b_y), learned by pushing the energy of the right answer below the others.

    How the others are pushed up is the negative phase: `Boltzmann()` is cross entropy (multinomial
    logistic regression), `Argmin()` the perceptron, `Margin()` the multiclass hinge loss.

    Args:
        phase: the negative phase.
        C: inverse strength of the penalty ½‖W‖² (in units of standardised columns), as in
            scikit-learn's logistic regression; None for no penalty.
        max_iter, tol: the most iterations, and the gradient below which they stop.
        learner: replaces L-BFGS (for `Boltzmann`) and Adam (for the others, which have kinks).
        random_state, verbose, checkpoint: as everywhere.

    Missing inputs are drawn, 20 times, from a Gaussian fitted to the inputs, and predictions averaged
    over the draws.

    >>> model = SoftmaxRegression().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]]).tolist()
    ['no', 'yes']
    """

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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits the answers `y` to the rows of `X`."""
        check_instance(self, "phase", AbstractAnswerPhase, optional=True)
        check_real(self, "C", closed=False, optional=True)
        check_int(self, "max_iter")
        check_real(self, "tol")
        check_instance(self, "learner", AbstractAlgorithm, optional=True)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_observed(X, getattr(self, "feature_names_in_", None))
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        self.classes_: np.ndarray = np.asarray(encoder.classes_)
        answers = np.asarray(encoder.transform(y))
        weight = check_weight(X, sample_weight)
        key = random_key(self.random_state)
        self.seed_ = int(jax.random.bits(key, dtype="uint32"))
        self.scaling_ = Scaling.standardise(X, weight)
        self.inputs_ = GaussianDensity().fit(X, sample_weight=sample_weight)
        # the answer is one more column, so that rows keep theirs when they are sorted and merged
        scaling = Scaling(np.append(self.scaling_.shift, 0.0), np.append(self.scaling_.scale, 1.0))
        rows = canonical_rows(np.column_stack([X, answers]), weight, scaling)
        self._keep(self._fit_rows(rows, key))
        return self

    def _fit_rows(self, rows: Rows, key: Array) -> Fit:
        X, answers = rows.x[:, :-1], rows.x[:, -1].astype(np.int32)
        weight = rows.weight
        if np.isnan(X).any():
            X = self._completed(X).reshape(-1, X.shape[1])
            answers = np.tile(answers, _IMPUTATIONS)
            weight = np.tile(weight, _IMPUTATIONS) / _IMPUTATIONS
        data = Data.of((self.scaling_.apply(X), answers), weight)
        phase = Boltzmann() if self.phase is None else self.phase
        penalty = 0.0 if self.C is None else 1 / (self.C * rows.weight.sum())
        start = SoftmaxModel(jnp.zeros((len(self.classes_), X.shape[1])), jnp.zeros(len(self.classes_)))
        return fit(
            start,
            self.learner or _learner(phase, penalty, self.tol),
            data,
            key=key,
            max_iter=self.max_iter,
            progress=self._progress(),
            checkpoint=self._checkpoint(f"{X.shape}"),
        )

    def _completed(self, X: np.ndarray) -> np.ndarray:
        """`X` with missing entries drawn, as often as there are imputations."""
        return self.inputs_.sample(_IMPUTATIONS, random_state=self.seed_ % 2**31, given=X)

    def _validated(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return check_rows(self, X, reset=False)

    def decision_function(self, X: Any) -> np.ndarray:
        """−e(x, y) of each answer; for two answers the difference that favours the second."""
        scores = self._scores(self._validated(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: np.ndarray) -> np.ndarray:
        """−e(x, y); for incomplete rows the log of the probability averaged over completions."""
        holes = np.isnan(X).any(axis=1)
        scores = np.empty((len(X), len(self.classes_)))
        if (~holes).any():
            scores[~holes] = map_rows(_scores, self.scaling_.apply(X[~holes]), self.model_)
        for i in np.flatnonzero(holes):
            # row by row: the draws for a row must not depend on the rows beside it
            draws = self._completed(X[i : i + 1])[:, 0]
            logits = map_rows(_scores, self.scaling_.apply(draws), self.model_)
            scores[i] = np.log(_softmax(logits).mean(axis=0))
        return scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(y | x) of each answer."""
        return _softmax(self._scores(self._validated(X)))

    def predict(self, X: Any) -> np.ndarray:
        """The answer of least energy."""
        return self.classes_[np.argmax(self._scores(self._validated(X)), axis=1)]

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row."""
        X = self._validated(X)
        log_p = np.log(np.maximum(_softmax(self._scores(X)), np.finfo(float).tiny))
        column = {label: i for i, label in enumerate(self.classes_.tolist())}
        unknown = [label for label in np.asarray(y).tolist() if label not in column]
        if unknown:
            raise ValueError(
                f"The labels 'y' must be among those that were fitted. Got {unknown[0]!r} instead."
            )
        index = np.array([column[label] for label in np.asarray(y).tolist()], int)
        kind = Kind.ESTIMATE if np.isnan(X).any() else Kind.EXACT
        return Evidence(log_p[np.arange(len(X)), index], np.zeros(len(X)), kind)

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
    return Gradient(adam(0.01), objective, batch_size=None, average=0.99, patience=50, tol=tol)


def _softmax(scores: np.ndarray) -> np.ndarray:
    mass = np.exp(scores - scores.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True)
