"""The perceptron: a linear rule that is changed by its mistakes alone."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from jax import Array
from scipy import optimize
from sklearn.base import ClassifierMixin

from ..._core import Fit, Status, on_device
from ...models import SoftmaxModel
from ...shell import AbstractDensity, LabelledInUnits, Predicts, Rows, check_instance, check_numbers
from ._design import TakesAnyColumns
from ._inputs import CompletesInputs

# rows that are asked at once for the next mistake
_TOGETHER = 256
# entries of the problem of the largest margin, above which it is not solved
_LARGEST = 20_000_000
_NO_END = (
    "still makes mistakes after {} passes over the rows; if they cannot be told apart by a linear rule it "
    "does so for ever: set averaged=True, or raise 'max_iter'"
)


class Perceptron(ClassifierMixin, Predicts, CompletesInputs, TakesAnyColumns):
    """e(x, y) = −w_y·x − b_y, changed where the answer of least energy ŷ is wrong: w_y += x, w_ŷ −= x.

    If some W of length one tells all answers apart, the right one by at least γ from the next, at most
    2 (R/γ)² mistakes are made in all passes together, R being the length of the longest row (Novikoff 1962;
    for two answers it is the familiar (R/γ)², with γ the distance from the plane).

    Args:
        averaged: whether the rule is the average of those before each row of all passes, which does well
            also where no rule is without mistakes (Freund & Schapire 1999).
        max_iter: the most passes over the rows.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.

    Attributes:
        classes_: the labels.
        coef_, intercept_: w and b of each answer, in the units of the data.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        mistakes_: how many there were.
        margin_: γ, the largest margin of a rule of length one, for standardised columns beside a constant;
            zero if the rows cannot be told apart, NaN if there are too many to find out.
        radius_: R, of such rows.
        bound_: the most mistakes that there can be; infinite if the rows cannot be told apart.
        inputs_: the density of rows and answers, from which missing entries are drawn.
        model_: the fitted `freeenergy.models.SoftmaxModel`, of rescaled rows; energies, not probabilities.
        history_, n_iter_, converged_, scaling_, …: as everywhere; `history_` has the mistakes of each pass.

    Rows are taken in an order of their own, each once a pass: neither the order in which they are passed
    nor repetition or weights (but of zero) change anything.

    >>> model = Perceptron().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]]).tolist(), bool(model.mistakes_ <= model.bound_)
    (['no', 'yes'], True)
    """

    intake = LabelledInUnits
    keeps_order = False
    classes_: np.ndarray

    def __init__(
        self, *, averaged: bool = False, max_iter: int = 100, inputs: AbstractDensity | None = None
    ) -> None:
        self.averaged = averaged
        self.max_iter = max_iter
        self.inputs = inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "averaged", bool)

    @property
    def _must_converge(self) -> bool:
        return not self.averaged

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Learns the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.
            y: the answer to each row.
            sample_weight: a non-negative number per row; rows of weight zero are left out.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        answers = rows.known[:, 0].astype(int)
        k = len(self.classes_)
        rows, place = self._completed(rows, (answers[:, None] == np.arange(1, k)).astype(float))
        answers = answers[place]
        design = np.column_stack([np.ones(len(rows.x)), self.scaling_.apply(rows.x)])
        self.radius_ = float(np.sqrt((design**2).sum(axis=1).max()))
        self.margin_ = _largest_margin(design, answers, k)
        with np.errstate(divide="ignore"):
            self.bound_ = float(2 * (self.radius_ / np.float64(self.margin_)) ** 2)
        w, total = np.zeros((2, k, design.shape[1]))
        passes, rest = [], 0
        for _ in range(self.max_iter):
            mistakes, rest = _pass(design, answers, w, total), len(design)
            passes.append(mistakes)
            if not mistakes:
                break
        self.mistakes_ = sum(passes)
        found = total / (rest * len(passes)) if self.averaged else w
        model = SoftmaxModel(on_device(found[:, 1:]), on_device(found[:, 0]))
        done = not passes[-1]
        note = "" if done else _NO_END.format(len(passes))
        status = Status.CONVERGED if done else Status.LIMIT
        return Fit(model, {"mistakes": np.array(passes, float)}, len(passes), status, note=note)

    def decision_function(self, X: Any) -> np.ndarray:
        """w·x + b of each answer; for two answers how much favours the second."""
        scores = self._all_scores(X)
        return (
            scores
            if len(self.classes_) > 2
            else check_numbers(
                self,
                "decision_function",
                scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores[:, 0],
            )
        )

    def _all_scores(self, X: Any) -> np.ndarray:
        x = self._read(X).x
        holes = np.isnan(x).any(axis=1)
        if holes.any():
            x = x.copy()
            # scores are linear: their average is that of the average row
            x[holes] = self._input_draws(x[holes]).mean(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.scaling_.apply(x) @ np.asarray(self.model_.weight).T + np.asarray(
                self.model_.bias
            )
        return check_numbers(self, "decision_function", scores)

    def predict(self, X: Any) -> np.ndarray:
        """The answer of least energy; the first of those that are equal."""
        best = np.argmax(self._all_scores(X), axis=1)
        return self.classes_[best]

    @property
    def coef_(self) -> np.ndarray:
        """w, a row per answer, in the units of the data."""
        return np.asarray(self.model_.weight) / self.scaling_.scale

    @property
    def intercept_(self) -> np.ndarray:
        """b, a number per answer, in the units of the data."""
        return np.asarray(self.model_.bias) - self.coef_ @ self.scaling_.shift


def _pass(design: np.ndarray, answers: np.ndarray, w: np.ndarray, total: np.ndarray) -> int:
    """One pass over the rows, which changes `w`, and adds it as it was at each row to `total`."""
    mistakes, at = 0, 0
    while at < len(design):
        block = slice(at, at + _TOGETHER)
        said = np.argmax(design[block] @ w.T, axis=1)
        wrong = np.flatnonzero(said != answers[block])
        seen = wrong[0] + 1 if len(wrong) else len(said)
        total += seen * w
        at += int(seen)
        if len(wrong):
            row = at - 1
            w[answers[row]] += design[row]
            w[said[wrong[0]]] -= design[row]
            mistakes += 1
    return mistakes


def _largest_margin(design: np.ndarray, answers: np.ndarray, k: int) -> float:
    """max over ‖W‖ = 1 of the least (w_y − w_j)·x; zero if no rule is without mistakes.

    The shortest W with all margins at least one is a problem of least distance, which non-negative least
    squares solve (Lawson & Hanson 1974).
    """
    n, width = design.shape
    if k < 2:
        return np.inf
    if n * (k - 1) * k * width > _LARGEST:
        return np.nan
    row, other = np.nonzero(np.arange(k) != answers[:, None])
    margins = np.zeros((len(row), k, width))
    margins[np.arange(len(row)), answers[row]] = design[row]
    margins[np.arange(len(row)), other] = -design[row]
    table = np.unique(margins.reshape(len(row), -1), axis=0)
    system = np.column_stack([table, np.ones(len(table))]).T
    wanted = np.append(np.zeros(k * width), 1.0)
    try:
        parts, _ = optimize.nnls(system, wanted)
    except RuntimeError:
        # it did not come to an end
        return np.nan
    rest = system @ parts - wanted
    if -rest[-1] < 1e-10:
        return 0.0
    shortest = -rest[:-1] / rest[-1]
    # what rounding has left of the constraints
    least = float((table @ shortest).min())
    return max(least, 0.0) / float(np.linalg.norm(shortest))
