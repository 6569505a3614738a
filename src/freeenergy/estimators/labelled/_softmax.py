"""Softmax regression as an estimator: a conditional energy over finite answers."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import linalg, special
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..._core import AbstractAlgorithm, Data, Fit, Status, on_device
from ...evaluation import likelihood_is_unbounded
from ...learning import LBFGS, AbstractAnswerPhase, Batch, Boltzmann, ConditionalContrastive, Gradient
from ...models import SoftmaxModel
from ...shell import (
    AbstractDensity,
    Coefficients,
    LabelledInUnits,
    Predicts,
    Rows,
    Scaling,
    adam,
    check_instance,
    check_numbers,
    check_real,
    framed,
)
from ._design import TakesAnyColumns
from ._label_laws import HasLabelLikelihood
from ._newton import BLOCK, Ascent, Point, diagonal_of, inverse, newton, quasi_newton

# coefficients above which Newton's method costs more than it gains
_MOST_BY_NEWTON = 600
# rows of which a first fit is made, where there are many more, and coefficients that are no start
_SAMPLE, _STEEP = 20_000, 20.0
# deviations that a column may have its mean from zero
_FAR = 10.0
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


def _add_products(
    total: np.ndarray, x: np.ndarray, factor: np.ndarray, room: np.ndarray, *, root: bool = False
) -> None:
    """Adds Σ factor [1, x] [1, x]ᵀ over rows; by roots of factors ≥ 0 at half the cost."""
    scaled = np.multiply(x, (np.sqrt(factor) if root else factor)[:, None], out=room[: len(x)])
    total[1:, 1:] += scaled.T @ (scaled if root else x)
    first = factor @ x
    total[0, 1:] += first
    total[1:, 0] += first
    total[0, 0] += factor.sum()


def _logistic(gap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 / (1 + e⁻ᵍ) and log (1 + eᵍ), by one exponential, which is three times as fast as each by itself.

    >>> chance, softplus = _logistic(np.array([-800.0, 0.0, 800.0]))
    >>> chance.tolist(), softplus.round(6).tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.693147, 800.0])
    """
    small = np.exp(-np.abs(gap))
    large = 1 / (1 + small)
    return np.where(gap < 0, small * large, large), np.maximum(gap, 0.0) + np.log1p(small)


class Answers(NamedTuple):
    """The likelihood of softmax regression, for Newton's method.

    Coefficients are those of K − 1 contrasts of the K answers, W = Q U with orthonormal columns of sum
    zero: adding the same to all answers changes nothing.

    Attributes:
        x: rows as they are, since a copy of all of them would take longer than a step.
        scaling: how they are rescaled: sums over rows are.
        targets: the share that each answer should have, for each row.
        weight: of each row.
        ridge: the penalty of the constant and of each column.
        contrasts: Q.
    """

    x: np.ndarray
    scaling: Scaling
    targets: np.ndarray
    weight: np.ndarray
    ridge: np.ndarray
    contrasts: np.ndarray

    @staticmethod
    def of(
        x: np.ndarray,
        targets: np.ndarray,
        weight: np.ndarray,
        penalty: float,
        scaling: Scaling | None = None,
    ) -> Answers:
        """The problem of rows, rescaled if at all, with ½ penalty ‖W‖² that spares the constants."""
        k = targets.shape[1]
        ridge = np.append(0.0, np.full(x.shape[1], penalty))
        contrasts = linalg.helmert(k).T if k > 1 else np.zeros((1, 0))
        scaling = Scaling.identity(x.shape[1]) if scaling is None else scaling
        if (np.abs(scaling.shift) > _FAR * scaling.scale).any():
            # sums of such rows would lose digits
            x, scaling = scaling.apply(x), Scaling.identity(x.shape[1])
        return Answers(x, scaling, targets, weight, ridge, contrasts)

    def sample(self, rows: slice) -> Answers:
        """Some of the rows, with a penalty that is smaller by as much."""
        share = self.weight[rows].sum() / self.weight.sum()
        return self._replace(
            # rows that stand apart are copied once, and not in each step
            x=np.ascontiguousarray(self.x[rows]),
            targets=np.ascontiguousarray(self.targets[rows]),
            weight=self.weight[rows],
            ridge=self.ridge * share,
        )

    @property
    def width(self) -> int:
        """Coefficients of an answer."""
        return len(self.ridge)

    def coefficients(self, flat: np.ndarray) -> np.ndarray:
        """W with its constants, a row for each answer."""
        return self.contrasts @ flat.reshape(self.contrasts.shape[1], self.width)

    def at(self, flat: np.ndarray, *, curved: bool = True) -> Point:
        """The penalised log-likelihood, with its information if `curved`."""
        size, width = self.contrasts.shape[1], self.width
        w, (shift, scale) = self.coefficients(flat), self.scaling
        # of rows as they are; `back` makes [1, z] of [1, x]
        slopes = w[:, 1:] / scale
        offset = w[:, 0] - slopes @ shift
        back = np.diag(np.append(1.0, 1 / scale))
        back[0, 1:] = -shift / scale
        value, slope = 0.0, np.zeros((size, width))
        information = np.zeros((size, width, size, width)) if curved else np.zeros((0, 0, 0, 0))
        room = np.empty((min(len(self.x), BLOCK), width - 1))
        for start in range(0, len(self.x), BLOCK):
            rows = slice(start, start + BLOCK)
            x, weight, targets = self.x[rows], self.weight[rows], self.targets[rows]
            if size == 1:
                # the usual case: two answers by one number
                gap = x @ (slopes[1] - slopes[0]) + (offset[1] - offset[0])
                sign = self.contrasts[1, 0] - self.contrasts[0, 0]
                chance, softplus = _logistic(gap)
                value += float(weight @ (targets[:, 1] * gap - softplus))
                rest = (sign * weight * (targets[:, 1] - chance))[:, None]
                if curved:
                    factor = sign**2 * weight * chance * (1 - chance)
                    _add_products(information[0, :, 0], x, factor, room, root=True)
            else:
                logs = special.log_softmax(x @ slopes.T + offset, axis=1)
                chances = np.exp(logs)
                value += float(weight @ np.sum(targets * logs, axis=1))
                rest = (weight[:, None] * (targets - chances)) @ self.contrasts
                means = chances @ self.contrasts
                for i in range(len(information)):
                    for j in range(i + 1):
                        both = self.contrasts[:, i] * self.contrasts[:, j]
                        factor = weight * (chances @ both - means[:, i] * means[:, j])
                        _add_products(information[i, :, j], x, factor, room)
            slope[:, 0] += rest.sum(axis=0)
            slope[:, 1:] += rest.T @ x
        slope = slope @ back
        u = flat.reshape(size, width)
        value -= 0.5 * float(np.sum(self.ridge * u**2))
        slope -= self.ridge * u
        if not curved:
            return Point(value, slope.ravel(), np.zeros((0, 0)))
        for i in range(size):
            for j in range(i + 1):
                information[i, :, j] = back.T @ information[i, :, j] @ back
        for i in range(size):
            for j in range(i):
                information[j, :, i] = information[i, :, j].T
        flat_information = information.reshape(size * width, size * width)
        diagonal_of(flat_information)[:] += np.tile(self.ridge, size)
        return Point(value, slope.ravel(), flat_information)

    def ascend(self, max_iter: int, tol: float) -> Ascent:
        """Newton's method; where there are many rows by what some of them tell, as far as that goes."""
        start, rows = np.zeros(self.contrasts.shape[1] * self.width), len(self.x)
        # without a penalty there are standard errors, from the information at the end
        penalised, before = bool(self.ridge.any()), None
        if len(start) and rows > 4 * _SAMPLE:
            some = self.sample(slice(0, rows, rows // _SAMPLE))
            near = newton(some.at, start, max_iter=20, tol=1e-2)
            if near.status is Status.CONVERGED and np.abs(near.coefficients).max() < _STEEP:
                information = near.at.information * (self.weight.sum() / some.weight.sum())
                before = quasi_newton(
                    lambda flat: self.at(flat, curved=False),
                    near.coefficients,
                    information,
                    max_iter=max_iter,
                    tol=tol,
                )
                if before.n_iter >= max_iter or (penalised and before.status is Status.CONVERGED):
                    return before
                start, max_iter = before.coefficients, max_iter - before.n_iter
        found = newton(self.at, start, max_iter=max_iter, tol=tol, quadratic=penalised)
        return found if before is None else found.after(before)


class SoftmaxRegression(ClassifierMixin, Predicts, HasLabelLikelihood, TakesAnyColumns):
    """p(y | x) ∝ exp(w_y·x + b_y), learned by pushing the energy of the right answer below the others.

    How the others are pushed up is the negative phase: `Boltzmann()` is cross entropy (multinomial
    logistic regression), `Argmin()` the perceptron, `Margin()` the multiclass hinge loss.

    Args:
        phase: the negative phase.
        C: inverse strength of the penalty ½‖W‖² (in units of standardised columns), as in
            scikit-learn's logistic regression; None for no penalty, with which answers that can be told
            apart without an error have no finite coefficients: the fit warns.
        class_weight: how much rows of each class count: None for the same, a dict by label, or "balanced"
            for so much that all classes count the same.  Probabilities are those of the weighted rows.
        smoothing: ε of label smoothing: the right answer should have probability 1 − ε, and each of the
            m − 1 others ε / (m − 1), so that coefficients stay finite; for `Boltzmann` only.
        max_iter, tol: the most iterations, and the gradient (for Newton's method: the length of the step in
            standard errors) below which they stop.
        learner: replaces Newton's method and, for many coefficients, L-BFGS (for `Boltzmann`), and Adam
            (for the others, which have kinks).
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        classes_: the labels.
        coef_, intercept_: w and b of each answer, in the units of the data.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        standard_errors_: without a penalty those of b and w of each answer but the first, less those of the
            first; else NaN.
        inputs_: the density of rows and answers, from which missing entries are drawn.
        model_: the fitted `freeenergy.models.SoftmaxModel`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Missing inputs are drawn, 20 times, from a density of inputs and answers, and predictions averaged over
    the draws.  A column of labels is a column of 0 and 1 for each label but the first, in the order of
    the schema; `columns_` names them.  Of two answers that are equally good the second is predicted,
    sign(0) = +1; of more, the first.

    >>> model = SoftmaxRegression().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]]).tolist()
    ['no', 'yes']
    """

    intake = LabelledInUnits

    def __init__(
        self,
        phase: AbstractAnswerPhase | None = None,
        *,
        C: float | None = 1.0,
        class_weight: Any = None,
        smoothing: float = 0.0,
        max_iter: int = 1000,
        tol: float = 1e-6,
        learner: AbstractAlgorithm | None = None,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.phase = phase
        self.C = C
        self.class_weight = class_weight
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.inputs = inputs
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "phase", AbstractAnswerPhase, optional=True)
        check_real(self, "C", closed=False, optional=True)
        check_real(self, "smoothing", 0.0, 1.0)
        if self.smoothing and not isinstance(self.phase, Boltzmann | None):
            raise ValueError(
                "The 'smoothing' parameter of SoftmaxRegression must be 0 for other phases than Boltzmann. "
                f"Got {self.smoothing!r} instead."
            )
        known = isinstance(self.class_weight, Mapping) or self.class_weight in (None, "balanced")
        values = self.class_weight.values() if isinstance(self.class_weight, Mapping) else ()
        if not known or not all(isinstance(value, numbers.Real) and float(value) >= 0 for value in values):
            raise ValueError(
                "The 'class_weight' parameter of SoftmaxRegression must be None, 'balanced' or a dict of "
                f"non-negative numbers by label. Got {self.class_weight!r} instead."
            )

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.
            y: the answer to each row.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    @property
    def keeps_order(self) -> bool:
        """Whether coefficients are few enough for Newton's method, and their objective is cross entropy."""
        phase = self.phase
        plain = phase is None or (isinstance(phase, Boltzmann) and float(phase.temperature) == 1)
        few = len(self.classes_) * (self._width + 1) <= _MOST_BY_NEWTON
        return plain and few and self.learner is None and self.checkpoint is None

    def _class_weights(self, answers: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """How much each answer counts."""
        if self.class_weight is None:
            return np.ones(len(self.classes_))
        if isinstance(self.class_weight, str):
            counts = np.bincount(answers, weight, len(self.classes_))
            return weight.sum() / (len(counts) * np.where(counts > 0, counts, np.inf))
        return np.array([float(self.class_weight.get(label, 1.0)) for label in self.classes_.tolist()])

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        answers = rows.known[:, 0].astype(np.int32)
        k = len(self.classes_)
        # all answers but the first as columns of 0 and 1, with which what is missing is drawn
        rows, place = self._completed(rows, (answers[:, None] == np.arange(1, k)).astype(float))
        answers = answers[place]
        weight = rows.weight * self._class_weights(answers, rows.weight)[answers]
        penalty = 0.0 if self.C is None else 1 / self.C
        self.standard_errors_ = np.full((max(k - 1, 0), rows.x.shape[1] + 1), np.nan)
        if self.keeps_order:
            found = self._ascend(rows.x, answers, weight, penalty)
        else:
            found = self._descend(self.scaling_.apply(rows.x), answers, weight, penalty, rows, key)
        smooth = self.smoothing == 0 and self.learner is None
        if self.C is None and smooth and isinstance(self.phase, Boltzmann | None) and not found.interrupted:
            kept = weight > 0
            x, model = self.scaling_.apply(rows.x[kept]), found.model
            if likelihood_is_unbounded(
                x, answers[kept], model.weight, model.bias, sample_weight=weight[kept]
            ):
                found = dataclasses.replace(found, status=Status.UNBOUNDED, note=_SEPARABLE)
        return found

    def _ascend(self, x: np.ndarray, answers: np.ndarray, weight: np.ndarray, penalty: float) -> Fit:
        """Newton's method on the host, of rows in their units."""
        k = len(self.classes_)
        if k == 2 and self.smoothing == 0:
            hit = answers.astype(float)
            targets = np.column_stack([1 - hit, hit])
        else:
            targets = np.full((len(x), k), self.smoothing / max(k - 1, 1))
            targets[np.arange(len(x)), answers] = 1 - self.smoothing
        problem = Answers.of(x, targets, weight, penalty, self.scaling_)
        found = problem.ascend(self.max_iter, self.tol**2)
        w = problem.coefficients(found.coefficients)
        self._keep_errors(problem, found)
        model = SoftmaxModel(on_device(w[:, 1:]), on_device(w[:, 0]))
        history = {"objective": -found.history / max(float(weight.sum()), np.finfo(float).tiny)}
        status = Status.LIMIT if found.status is Status.NON_FINITE else found.status
        return Fit(model, history, found.n_iter, status)

    def _keep_errors(self, problem: Answers, found: Ascent) -> None:
        """Stores standard errors of w_y − w_first and b_y − b_first, where there is no penalty."""
        k, width = len(self.classes_), problem.width
        if self.C is not None or k < 2 or not np.isfinite(found.at.information).all():
            return
        inside = inverse(found.at.information).reshape(k - 1, width, k - 1, width)
        to_units = np.diag(np.append(1.0, 1 / self.scaling_.scale))
        to_units[0, 1:] = -self.scaling_.shift / self.scaling_.scale
        for y in range(1, k):
            contrast = problem.contrasts[y] - problem.contrasts[0]
            own = np.einsum("i,iajb,j->ab", contrast, inside, contrast)
            variance = np.einsum("ia,ab,ib->i", to_units, own, to_units)
            self.standard_errors_[y - 1] = np.sqrt(np.maximum(variance, 0.0))

    def _descend(
        self, x: np.ndarray, answers: np.ndarray, weight: np.ndarray, penalty: float, rows: Rows, key: Array
    ) -> Fit:
        """A learner of the library: L-BFGS, Adam for phases with kinks, or the one that was passed."""
        k = len(self.classes_)
        size = rows.weight.sum()
        if self.smoothing:
            # a row for each answer, with its share
            shares = np.full((k, len(x)), self.smoothing / max(k - 1, 1))
            shares[answers, np.arange(len(x))] = 1 - self.smoothing
            x, weight = np.tile(x, (k, 1)), (shares * weight).ravel()
            answers = np.repeat(np.arange(k, dtype=np.int32), len(answers))
        phase = Boltzmann() if self.phase is None else self.phase
        shape = k, x.shape[1]
        start = SoftmaxModel(on_device(np.zeros(shape)), on_device(np.zeros(shape[0])))
        learner = self.learner or _learner(phase, penalty / size, self.tol)
        return self._run(start, learner, Data.of((x, answers), weight), rows, key)

    def decision_function(self, X: Any) -> np.ndarray:
        """log p(y | x) of each answer up to a constant; for two answers how much favours the second."""
        X = self._read(X).x
        holes = np.isnan(X).any(axis=1)
        scores = np.empty((len(X), len(self.classes_)))
        if (~holes).any():
            scores[~holes] = self._scores(X[~holes])
        if holes.any():
            scores[holes] = self._log_predictive(X[holes])[0]
        if len(self.classes_) != 2:
            return scores
        with np.errstate(over="ignore"):
            return check_numbers(self, "decision_function", scores[:, 1] - scores[:, 0])

    def _scores(self, X: np.ndarray) -> np.ndarray:
        """w·x + b of each answer, for rows without NaN."""
        weight, bias = np.asarray(self.model_.weight), np.asarray(self.model_.bias)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.scaling_.apply(X) @ weight.T + bias
        return check_numbers(self, "decision_function", scores)

    def _log_laws(self, x: np.ndarray) -> np.ndarray:
        return special.log_softmax(self._scores(x), axis=1)

    @framed
    def predict(self, X: Any) -> Any:
        """The answer of least energy."""
        probabilities = np.asarray(self.predict_proba(X))
        if len(self.classes_) == 2:
            return self.classes_[(probabilities[:, 1] >= probabilities[:, 0]).astype(int)]
        return self.classes_[np.argmax(probabilities, axis=1)]

    @property
    def _maximises_likelihood(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        plain = self.class_weight is None and self.smoothing == 0 and self.learner is None
        return self.C is None and plain and isinstance(self.phase, Boltzmann | None)

    def _count_parameters(self) -> int:
        return max(len(self.classes_) - 1, 0) * (self._width + 1)

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        """Against the first answer, as statisticians have it."""
        if len(self.classes_) < 2:
            return None
        both = np.column_stack([self.intercept_, self.coef_])
        values = both[1:] - both[0]
        columns = ["intercept", *self.columns_]
        several = len(self.classes_) > 2
        names = [f"{y}: {c}" if several else c for y in self.classes_[1:].tolist() for c in columns]
        notes = [f"Coefficients are those of log odds against {self.classes_[0]!s}."]
        errors: Any = self.standard_errors_.ravel()
        if np.isnan(errors).all():
            errors = None
            notes.append("Standard errors are those of a fit by Newton's method without a penalty: C=None.")
        if robust:
            notes.append("Errors are not robust.")
        return Coefficients(names, values.ravel(), errors, None if errors is None else np.inf, {}, notes)

    @property
    def model_in_units(self) -> SoftmaxModel:
        """p(y | x) in the units of the data, where `model_` has rescaled rows."""
        check_is_fitted(self, "model_")
        return SoftmaxModel(on_device(self.coef_), on_device(self.intercept_))

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
