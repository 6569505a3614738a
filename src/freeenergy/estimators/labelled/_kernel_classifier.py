"""Labels given rows by a kernel: support vectors, and what they share with other machines."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax import Array
from scipy import optimize
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from ..._core import Fit, Kind, Status, on_device
from ...kernels import RBF, AbstractKernel, Linear
from ...models import KernelMachine
from ...shell import (
    AbstractDensity,
    Coefficients,
    LabelledInUnits,
    Predicts,
    Rows,
    Scaling,
    check_instance,
    check_numbers,
    check_real,
    framed,
)
from ...shell._summary import listed_parameters, named_parameters
from ._kernelled import DrawsInputsOnce, in_parts, merged_rows
from ._label_laws import HasLabelLaws
from ._told import TellsInUnits, Told, about_means, told_of_kernel

_FOLDS = 5
# what stands for no limit of a multiplier, in units of 1 / k(x, x)
_NO_LIMIT = 1e6
_MOST_STEPS = 1_000_000
# changes of which multipliers are between their limits, and how many of these equations are solved for
_MOST_CHANGES, _MOST_FREE = 100, 1000
# how near to a limit is at it; when no row is wrong
_AT_LIMIT, _RIGHT = 1e-7, 1e-10
# a duality gap of this part of the value is none
_NO_GAP = 1e-6


class AbstractKernelClassifier(ClassifierMixin, Predicts, HasLabelLaws, DrawsInputsOnce, TellsInUnits):
    """Labels given rows by a kernel: p(y | x) ∝ exp(s f_y(x)), f_y(x) = k(x, X) a_y + b_y."""

    intake = LabelledInUnits
    keeps_order = True
    kernel: AbstractKernel | None
    standardise: bool

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "kernel", AbstractKernel, optional=True)
        check_instance(self, "standardise", bool)

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.
            y: the label of each row.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight) if self.standardise else Scaling.identity(X.shape[1])

    def _start_kernel(self) -> AbstractKernel:
        return RBF() if self.kernel is None else self.kernel

    def _merged(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """Distinct complete rows, rescaled, with weights, and which of them each row with weight is."""
        assert rows.known is not None
        labels = rows.known == np.arange(1, len(self.classes_))
        rows = self._drawn_once(rows, labels.astype(float))
        return merged_rows(rows._replace(x=self.scaling_.apply(rows.x)))

    def _scores(self, x: np.ndarray) -> np.ndarray:
        """f of each answer, for complete rows in the units of the data."""
        scores = scores_of(self.model_, self.scaling_.apply(x))
        return check_numbers(self, "decision_function", scores)

    def decision_function(self, X: Any) -> np.ndarray:
        """f of each answer; for two answers of the second.  Averaged over draws of what is missing."""
        x = self._read(X).x
        holes, scores = np.isnan(x).any(axis=1), np.empty((len(x), len(self.classes_)))
        if (~holes).any():
            scores[~holes] = self._scores(x[~holes])
        if holes.any():
            scores[holes] = np.mean([self._scores(draw) for draw in self._input_draws(x[holes])], axis=0)
        return scores if len(self.classes_) > 2 else scores[:, 1]

    def _told(self) -> dict[str, Told]:
        found = told_of_kernel(self.model_.kernel, self.scaling_, self.columns_)
        rest = {
            name: v for name, v in named_parameters(self.model_).items() if name.split(".")[0] != "kernel"
        }
        others = {name: Told(np.asarray(value), (None,) * np.ndim(value)) for name, value in rest.items()}
        return found | others if found else found

    def _remarks(self) -> list[str]:
        return about_means(columns=self.scaling_)

    def _log_laws(self, x: np.ndarray) -> np.ndarray:
        return log_softmax(float(self.model_.slope) * self._scores(x), axis=1)

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable answer; of two that are equally good the second."""
        probabilities = np.asarray(self.predict_proba(X))
        if len(self.classes_) == 2:
            return self.classes_[(probabilities[:, 1] >= probabilities[:, 0]).astype(int)]
        return self.classes_[np.argmax(probabilities, axis=1)]


def scores_of(model: KernelMachine, z: np.ndarray) -> np.ndarray:
    """f of each answer, for complete rescaled rows, on the host.

    >>> model = KernelMachine(Linear(), np.array([[0.0, 2.0]]), np.zeros(2), 1.0, np.ones((1, 1)))
    >>> scores_of(model, np.array([[1.0], [3.0]])).tolist()
    [[0.0, 2.0], [0.0, 6.0]]
    """
    seen, coefficients = np.asarray(model.x), np.asarray(model.coefficients)
    found = [model.kernel.gram(part, seen) @ coefficients for part in in_parts(z, len(seen))]
    return np.concatenate(found) + np.asarray(model.offset)


def check_classes(owner: Any, labels: np.ndarray) -> None:
    """Refuses rows of one class, or a class without a row that has weight."""
    name, there = type(owner).__name__, np.unique(labels)
    if len(owner.classes_) == 1:
        raise ValueError(
            f"{name} needs rows of two classes or more. Got one class, {owner.classes_.tolist()[0]!r}."
        )
    if len(there) < len(owner.classes_):
        without = np.setdiff1d(np.arange(len(owner.classes_)), there)[0]
        raise ValueError(
            f"{name} needs a row with weight of each class. The class {owner.classes_.tolist()[without]!r} "
            "has none."
        )


class Machine(NamedTuple):
    """A rule between two classes, with what certifies it.

    Attributes:
        signed: y α, the multipliers with the sign of the class, a number per row.
        offset: b.
        primal: ½‖w‖² + Σ C ξ at (w, b).
        dual: Σ α − ½‖w‖² at α, which is never more.
        kkt: the largest violation of the conditions of Karush, Kuhn and Tucker.
    """

    signed: np.ndarray
    offset: float
    primal: float
    dual: float
    kkt: float


def best_offset(scores: np.ndarray, signs: np.ndarray, limits: np.ndarray) -> float:
    """b of least Σ C max(0, 1 − y (f + b)); the middle where several are as good.

    >>> best_offset(np.array([-0.5, 1.0]), np.array([-1.0, 1.0]), np.ones(2))
    -0.25
    """
    turns = signs - scores
    order = np.argsort(turns, kind="stable")
    # the slope after each turn, from −Σ C of positive rows to Σ C of negative ones
    slope = -limits[signs > 0].sum() + np.cumsum(limits[order])
    flat = 1e-12 * limits.sum()
    first = int(np.argmax(slope >= -flat))
    at = turns[order]
    return float(
        0.5 * (at[first] + at[first + 1]) if slope[first] <= flat and first + 1 < len(at) else at[first]
    )


def polished(gram: np.ndarray, signs: np.ndarray, limits: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Multipliers to all digits: LIBSVM knows kernels to seven.

    Those between their limits solve the linear equations y (f + b) = 1 and Σ α y = 0; one that comes to a
    limit stays there, and one that violates the conditions there is let go.

    Args:
        gram: K.
        signs: +1 or −1 for each row.
        limits: C of each row; infinite for a hard margin.
        alpha: multipliers that are nearly right.

    >>> gram, signs = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> polished(gram, signs, np.full(2, np.inf), np.array([0.9999, 1.0001])).round(12).tolist()
    [1.0, 1.0]
    """

    def value(alpha: np.ndarray) -> float:
        return float(alpha.sum() - 0.5 * (alpha * signs) @ gram @ (alpha * signs))

    size = np.where(np.isinf(limits), alpha.max(initial=0.0), limits)
    moved = alpha.copy()
    for _ in range(_MOST_CHANGES):
        free = (moved > _AT_LIMIT * size) & (moved < limits - _AT_LIMIT * size)
        count = int(free.sum())
        if not 0 < count <= _MOST_FREE:
            return alpha
        moved[~free] = np.where(moved > 0.5 * limits, limits, 0.0)[~free]
        signed = moved * signs
        system = np.zeros((count + 1, count + 1))
        system[:-1, :-1] = gram[np.ix_(free, free)]
        system[-1, :-1] = system[:-1, -1] = 1.0
        known = signs[free] - gram[np.ix_(free, ~free)] @ signed[~free]
        solved = np.linalg.lstsq(system, np.append(known, -signed[~free].sum()), rcond=1e-13)[0]
        target = solved[:-1] * signs[free]
        way = target - moved[free]
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(way > 0, (limits[free] - moved[free]) / way, -moved[free] / way)
        step = float(min(1.0, np.min(np.where(way == 0, np.inf, room), initial=1.0)))
        moved[free] = np.clip(moved[free] + step * way, 0.0, limits[free])
        if step < 1:
            continue
        margin = signs * (gram @ (moved * signs) + solved[-1]) - 1
        wrong = np.where(free, 0.0, np.where(moved > 0, margin, -margin))
        worst = int(np.argmax(wrong))
        if wrong[worst] < _RIGHT:
            return moved if value(moved) >= value(alpha) - 1e-9 * max(1.0, value(alpha)) else alpha
        moved[worst] = np.clip(moved[worst], 1e-6 * size[worst], limits[worst] - 1e-6 * size[worst])
    return alpha


def certified(gram: np.ndarray, signs: np.ndarray, limits: np.ndarray, alpha: np.ndarray) -> Machine:
    """The rule of multipliers between 0 and their limits, right or not, with what tells.

    >>> gram, signs = np.eye(2), np.array([1.0, -1.0])
    >>> found = certified(gram, signs, np.full(2, 9.0), np.array([0.5, 0.5]))
    >>> found.primal, found.dual, found.kkt
    (9.25, 0.75, 0.5)
    """
    signed = signs * alpha
    scores = gram @ signed
    square = float(signed @ scores)
    offset = best_offset(scores, signs, limits)
    margin = signs * (scores + offset) - 1
    inside = (alpha > 0) & (alpha < limits)
    wrong = np.where(inside, np.abs(margin), np.where(alpha > 0, margin, -margin))
    primal, dual = 0.5 * square + limits @ np.maximum(0.0, -margin), alpha.sum() - 0.5 * square
    return Machine(signed, offset, float(primal), float(dual), float(np.maximum(wrong, 0.0).max()))


def support_vectors(
    gram: np.ndarray, signs: np.ndarray, limits: np.ndarray | None, weight: np.ndarray, tol: float
) -> Machine:
    """The widest margin between two classes by LIBSVM, with both its values.

    Args:
        gram: K.
        signs: +1 or −1 for each row.
        limits: C of each row; None for a hard margin.
        weight: of each row, where it has no C.
        tol: at which LIBSVM stops.

    >>> rows = np.array([[0.0, 0.0], [2.0, 2.0]])
    >>> found = support_vectors(rows @ rows.T, np.array([-1.0, 1.0]), None, np.ones(2), 1e-10)
    >>> (rows.T @ found.signed).round(6).tolist(), round(float(found.offset), 6)
    ([0.5, 0.5], -1.0)
    """
    hard = limits is None
    if limits is None:
        limits = np.full(len(signs), _NO_LIMIT / max(np.diag(gram).mean(), np.finfo(float).tiny))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver = SVC(C=1.0, kernel="precomputed", tol=tol, max_iter=_MOST_STEPS)
        solver.fit(gram, signs, sample_weight=limits)
    alpha = np.zeros(len(signs))
    alpha[solver.support_] = np.abs(solver.dual_coef_[0])
    alpha = polished(gram, signs, np.full(len(signs), np.inf) if hard else limits, alpha)
    if not hard:
        return certified(gram, signs, limits, alpha)
    signed = signs * alpha
    scores = gram @ signed
    square = float(signed @ scores)
    # between the nearest rows of both classes, in units of their distance
    low, high = scores[signs > 0].min(), scores[signs < 0].max()
    half = 0.5 * (low - high)
    if half <= 0 or alpha.max() >= 0.5 * limits[0]:
        raise ValueError(
            "The rows cannot be told apart without an error by this kernel: there is no hard margin. Set "
            "C, such as C=1.0."
        )
    signed, alpha, square = signed / half, alpha / half, square / half**2
    offset = -0.5 * (low + high) / half
    margin = signs * (scores / half + offset) - 1
    dual = alpha.sum() ** 2 / (2 * square)
    wrong = np.where(alpha > 1e-9 * alpha.max(), np.abs(margin), -margin)
    return Machine(signed, float(offset), 0.5 * square, float(dual), float(np.maximum(wrong, 0.0).max()))


class SupportVectorMachine(AbstractKernelClassifier):
    """The widest margin: min ½‖w‖² + C Σ ξ with y (w·φ(x) + b) ≥ 1 − ξ, ξ ≥ 0, in the features of a kernel.

    LIBSVM solves the dual of Wolfe, max Σ α − ½ Σ Σ α α y y k(x, x′) with 0 ≤ α ≤ C and Σ α y = 0.  Both
    values are reported: the dual is never more than the primal, so that their gap bounds the error of the
    solution.  Of more than two labels each has a machine against all others.

    Args:
        kernel: k, of `freeenergy.kernels`, as it is; None for a Gaussian kernel of length one.
        C: the price of slack, for a row of weight one; None for a hard margin, which rows that cannot be
            told apart have not: they are refused.
        standardise: whether the kernel sees columns in units of their standard deviations, from their
            means; else as they are.
        tol: at which LIBSVM stops.
        inputs: the density of rows and labels from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.

    Attributes:
        classes_: the labels.
        support_: the rows of the fit that decide, of those with weight.
        dual_coef_: y α of each of them, a row per machine; equal rows share theirs.
        intercept_: b of each machine.
        coef_: w of each machine in the units of the data, for `kernels.Linear`, with which
            f(x) = w·(x − scaling_.shift) + b.
        primal_, dual_, gap_: both values of each machine, and their difference.
        kkt_: of each machine the largest violation of the conditions of Karush, Kuhn and Tucker.
        slope_: s of p(y | x) ∝ exp(s f_y(x)), which makes the labels of rows that were left out of a fit,
            five times a fifth, most probable.
        kernel_: the kernel.
        columns_, inputs_: what columns are called, and the density that what is missing is drawn from.
        model_: a `freeenergy.models.KernelMachine` of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    A machine has scores and no probabilities: those of `predict_proba` and `evidence` are an estimate by
    `slope_`, which leaves the decisions as they are.

    >>> model = SupportVectorMachine(Linear(), C=None, standardise=False)
    >>> model = model.fit([[3.0, 3.0], [4.0, 3.0], [1.0, 1.0]], ["yes", "yes", "no"])
    >>> model.support_.tolist(), model.coef_.round(6).tolist(), model.intercept_.round(6).tolist()
    ([0, 2], [[0.5, 0.5]], [-2.0])
    """

    _kind = Kind.ESTIMATE

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        C: float | None = 1.0,
        standardise: bool = True,
        tol: float = 1e-9,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.standardise = standardise
        self.tol = tol
        self.inputs = inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "C", closed=False, optional=True)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        kernel, (rows, which) = self._start_kernel(), self._merged(rows)
        assert rows.known is not None
        labels = rows.known[:, 0].astype(int)
        check_classes(self, labels)
        gram = kernel.gram(rows.x)
        machines = self._machines(gram, labels, rows.weight)
        self.primal_, self.dual_ = np.array([(m.primal, m.dual) for m in machines]).T
        self.gap_, self.kkt_ = self.primal_ - self.dual_, np.array([m.kkt for m in machines])
        signed = np.stack([m.signed for m in machines])
        self.intercept_ = np.array([m.offset for m in machines])
        decides = (signed != 0).any(axis=0)
        self.support_ = np.flatnonzero(decides[which])
        self.dual_coef_ = (signed / rows.weight)[:, which[self.support_]]
        self.slope_ = self._calibrated(gram, labels, rows.weight)
        coefficients, offset = for_answers(signed[:, decides].T, self.intercept_)
        arrays = coefficients, offset, self.slope_, rows.x[decides]
        model = KernelMachine(jax.tree.map(on_device, kernel), *map(on_device, arrays))
        worst = float((self.gap_ / np.maximum(np.abs(self.primal_), 1.0)).max())
        if worst <= _NO_GAP:
            return Fit(model, {"objective": self.primal_.sum(keepdims=True)}, 1, Status.CONVERGED)
        note = (
            f"LIBSVM stopped with a duality gap of {worst:.1g} of the value; lower tol, or scale the rows"
        )
        return Fit(model, {"objective": self.primal_.sum(keepdims=True)}, 1, Status.LIMIT, note=note)

    def _machines(self, gram: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> list[Machine]:
        """One for two labels, else one for each label against the others."""
        limits = None if self.C is None else self.C * weight
        classes = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        signs = [np.where(labels == label, 1.0, -1.0) for label in classes]
        return [support_vectors(gram, own, limits, weight, self.tol) for own in signs]

    def _calibrated(self, gram: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
        """s of the greatest likelihood of labels that were left out, smoothed so that it is finite."""
        answers = len(self.classes_)
        # the number of each row among those of its label
        rank = np.zeros(len(labels), int)
        for label in range(answers):
            rank[labels == label] = np.arange((labels == label).sum())
        folds = int(min(_FOLDS, np.bincount(labels, minlength=answers).min()))
        scores = np.empty((len(labels), answers))
        for fold in range(folds) if folds > 1 else [None]:
            out = np.ones(len(labels), bool) if fold is None else rank % folds == fold
            rest = out if fold is None else ~out
            try:
                found = self._machines(gram[np.ix_(rest, rest)], labels[rest], weight[rest])
            except ValueError:
                # fewer rows have a hard margin where all have one, but for rounding
                found = self._machines(gram, labels, weight)
                rest = np.ones(len(labels), bool)
            signed, offset = for_answers(
                np.stack([m.signed for m in found], axis=1), np.array([m.offset for m in found])
            )
            scores[out] = gram[np.ix_(out, rest)] @ signed + offset
        room = 1 / (weight.sum() + answers)
        target = np.where(labels[:, None] == np.arange(answers), 1 - (answers - 1) * room, room)

        def loss(log_slope: float) -> float:
            logs = log_softmax(np.exp(log_slope) * scores, axis=1)
            return -float(weight @ (target * logs).sum(axis=1))

        best: Any = optimize.minimize_scalar(loss, bounds=(-10, 10), method="bounded")
        return float(np.exp(best.x))

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients:
        certificate = {
            "support vectors": float(len(self.support_)),
            "primal value": float(self.primal_.sum()),
            "duality gap": float(self.gap_.sum()),
            "worst KKT violation": float(self.kkt_.max()),
        }
        return listed_parameters(self, X, robust, given)._replace(facts=certificate)

    @property
    def kernel_(self) -> AbstractKernel:
        """The kernel."""
        return self.model_.kernel

    @property
    def coef_(self) -> np.ndarray:
        """w of each machine in the units of the data, for `kernels.Linear`."""
        if not isinstance(self.model_.kernel, Linear):
            raise AttributeError(
                "coef_ is there for kernels.Linear alone: other kernels have other features."
            )
        first = 1 if len(self.classes_) == 2 else 0
        inner = np.asarray(self.model_.coefficients)[:, first:].T @ np.asarray(self.model_.x)
        return inner * np.asarray(self.model_.kernel.variance) / self.scaling_.scale


def for_answers(coefficients: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What belongs to each answer: one machine says of two that f and −f are theirs."""
    if len(offset) > 1:
        return coefficients, offset
    signs = np.array([-1.0, 1.0])
    return coefficients * signs, offset * signs
