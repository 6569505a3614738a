"""Softmax regression as an estimator: a conditional energy over finite answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..._core import AbstractAlgorithm, Data, Evidence, Fit, Kind, Status, key_bits, map_rows, on_device
from ...inference import importance_estimate
from ...learning import LBFGS, AbstractAnswerPhase, Batch, Boltzmann, ConditionalContrastive, Gradient, fit
from ...models import Density, SoftmaxModel
from ...shell._base import Shell
from ...shell._networks import adam, seeded
from ...shell._rows import Rows, Scaling, canonical_rows, row_seeds
from ...shell._validation import (
    bad_cells_named,
    check_instance,
    check_int,
    check_numbers,
    check_observed,
    check_real,
    check_rows,
    check_weight,
    random_key,
)
from ..tables._gaussian import GaussianDensity

_IMPUTATIONS = 20
_SEPARABLE = (
    "the rows are separable (a linear rule tells answers apart without an error), so that the coefficients "
    "grow without bound; set C, such as C=1.0"
)
# a row this certain may be one that the coefficients diverge for
_CERTAIN = 0.99
# entries of the linear program above which only the coefficients themselves are asked
_LARGEST_PROGRAM = 20_000_000
# coefficients of standardised columns beyond this would turn the solver's rounding into margins
_STEEPEST = 1e3


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


class SoftmaxRegression(ClassifierMixin, Shell):
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

    Missing inputs are drawn, 20 times, from a Gaussian fitted to the inputs, and predictions averaged
    over the draws.  Of two answers that are equally good the second is predicted, sign(0) = +1; of more,
    the first.

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
        with bad_cells_named(X):
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        self.classes_: np.ndarray = np.asarray(encoder.classes_)
        answers = np.asarray(encoder.transform(y))
        weight = check_weight(X, sample_weight)
        check_observed(X, getattr(self, "feature_names_in_", None), weight=weight)
        key = random_key(self.random_state)
        self.seed_ = np.asarray(key_bits(key), np.uint32)
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
            seed = int(self.seed_) % 2**31
            X = self.inputs_.sample(_IMPUTATIONS, random_state=seed, given=X).reshape(-1, X.shape[1])
            answers = np.tile(answers, _IMPUTATIONS)
            weight = np.tile(weight, _IMPUTATIONS) / _IMPUTATIONS
        data = Data.of((self.scaling_.apply(X), answers), weight)
        phase = Boltzmann() if self.phase is None else self.phase
        penalty = 0.0 if self.C is None else 1 / (self.C * rows.weight.sum())
        shape = len(self.classes_), X.shape[1]
        start = SoftmaxModel(on_device(np.zeros(shape)), on_device(np.zeros(shape[0])))
        found = fit(
            start,
            self.learner or _learner(phase, penalty, self.tol),
            data,
            key=key,
            max_iter=self.max_iter,
            progress=self._progress(),
            checkpoint=self._checkpoint(rows),
        )
        smooth = isinstance(phase, Boltzmann) and self.learner is None
        if self.C is None and smooth and not found.interrupted:
            kept = weight > 0
            if _separable(self.scaling_.apply(X[kept]), answers[kept], found.model):
                found = dataclasses.replace(found, status=Status.UNBOUNDED, note=_SEPARABLE)
        return found

    def _validated(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return check_rows(self, X, reset=False)

    def decision_function(self, X: Any) -> np.ndarray:
        """log p(y | x) of each answer up to a constant; for two answers how much favours the second."""
        X = self._validated(X)
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
        return np.exp(self._log_predictive(self._validated(X))[0])

    def predict(self, X: Any) -> np.ndarray:
        """The answer of least energy."""
        probabilities = self.predict_proba(X)
        if len(self.classes_) == 2:
            return self.classes_[(probabilities[:, 1] >= probabilities[:, 0]).astype(int)]
        return self.classes_[np.argmax(probabilities, axis=1)]

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row."""
        X = self._validated(X)
        answers = np.asarray(y)
        place = np.searchsorted(self.classes_, answers).clip(max=len(self.classes_) - 1)
        unknown = answers[self.classes_[place] != answers]
        if len(unknown):
            raise ValueError(
                f"The labels 'y' must be among those that were fitted. Got {unknown.tolist()[0]!r} instead."
            )
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

    @property
    def coef_(self) -> np.ndarray:
        """w, a row per answer, in the units of the data."""
        return np.asarray(self.model_.weight) / self.scaling_.scale

    @property
    def intercept_(self) -> np.ndarray:
        """b, a number per answer, in the units of the data."""
        return np.asarray(self.model_.bias) - self.coef_ @ self.scaling_.shift


def _separable(x: np.ndarray, answers: np.ndarray, model: SoftmaxModel) -> bool:
    """Whether the likelihood has no maximum: some rule is never wrong, and right for at least one row.

    The rule w, b is never wrong if (w_y − w_j)·x + b_y − b_j ≥ 0 for every row and other answer j (Albert &
    Anderson 1984).  Where all are positive the fitted coefficients are such a rule; rules with equalities,
    which separate in part, are found by a linear program, and only if some row has become nearly certain.
    """
    weight, bias = np.asarray(model.weight), np.asarray(model.bias)
    scores = x @ weight.T + bias
    n, k = scores.shape
    if k < 2:
        return False
    margins = scores[np.arange(n), answers][:, None] - scores
    others = np.arange(k) != answers[:, None]
    if (margins[others] > 0).all():
        return True
    certain = np.exp(log_softmax(scores, axis=1)[np.arange(n), answers]) > _CERTAIN
    pairs, width = n * (k - 1), k * (x.shape[1] + 1)
    if not certain.any() or pairs * width > _LARGEST_PROGRAM:
        return False
    row, other = np.nonzero(others)
    known = np.column_stack([x, np.ones(n)])[row]
    design = np.zeros((pairs, k, known.shape[1]))
    design[np.arange(pairs), answers[row]] = known
    design[np.arange(pairs), other] = -known
    design = design.reshape(pairs, width)
    # the largest sum of margins that are all non-negative, each counted up to one: zero, or at least one
    cost = np.concatenate([np.zeros(width), -np.ones(pairs)])
    limits = sparse.hstack([sparse.csr_array(-design), sparse.eye_array(pairs)])
    bounds = [(-_STEEPEST, _STEEPEST)] * width + [(0, 1)] * pairs
    found = linprog(cost, A_ub=limits, b_ub=np.zeros(pairs), bounds=bounds, method="highs")
    return found.status == 0 and -found.fun > 0.5


def _learner(phase: AbstractAnswerPhase, penalty: float, tol: float) -> AbstractAlgorithm:
    objective = RidgeContrastive(phase, penalty)
    if isinstance(phase, Boltzmann):
        return LBFGS(objective, tol)
    return Gradient(adam(0.02), objective, batch_size=None, average=0.95, patience=50, tol=max(tol, 1e-4))
