"""The perceptron: a rule in columns, or in features of a kernel, that is changed by its mistakes alone."""

from __future__ import annotations

import abc
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from scipy import optimize
from sklearn.base import ClassifierMixin

from ..._core import Fit, Status, on_device
from ...kernels import AbstractKernel
from ...models import KernelMachine, SoftmaxModel
from ...shell import AbstractDensity, LabelledInUnits, Predicts, Rows, check_instance, check_numbers, framed
from ...shell._summary import Along
from ._design import TakesAnyColumns
from ._inputs import CompletesInputs
from ._kernel_classifier import scores_of

# rows that are asked at once for the next mistake
_TOGETHER = 256
# entries of the problem of the largest margin, above which it is not solved; with a kernel rows
_LARGEST, _MOST_ROWS = 20_000_000, 1000
# rows whose Gram matrix is kept; of more a mistake asks for its column
_WHOLE = 4096
# an eigenvalue of this part of the largest is none
_NO_VALUE = 1e-13
_NO_END = (
    "still makes mistakes after {} passes over the rows; if they cannot be told apart by {} it "
    "does so for ever: set averaged=True, or raise 'max_iter'"
)


class Perceptron(ClassifierMixin, Predicts, CompletesInputs, TakesAnyColumns):
    """e(x, y) = −w_y·x − b_y, changed where the answer of least energy ŷ is wrong: w_y += x, w_ŷ −= x.

    If some W of length one tells all answers apart, the right one by at least γ from the next, at most
    2 (R/γ)² mistakes are made in all passes together, R being the length of the longest row (Novikoff 1962;
    for two answers it is the familiar (R/γ)², with γ the distance from the plane).

    With a kernel w_y = Σ a_y φ(x) is not written down, but a_y, how often each row was added to it less how
    often it was taken away: w_y·φ(x) = k(x, X) a_y.  `kernels.Polynomial(1)`, which is 1 + x·x′, makes the
    mistakes of no kernel.

    Args:
        kernel: k, of `freeenergy.kernels`, which sees standardised columns; None for a linear rule.
        averaged: whether the rule is the average of those before each row of all passes, which does well
            also where no rule is without mistakes (Freund & Schapire 1999).
        max_iter: the most passes over the rows.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.

    Attributes:
        classes_: the labels.
        coef_, intercept_: w and b of each answer, in the units of the data, without a kernel.
        dual_coef_: with a kernel a_y, a row per answer, for the rows of `model_.x`: those of mistakes.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        mistakes_: how many there were.
        margin_: γ, the largest margin of a rule of length one, for standardised columns beside a constant,
            or for features of the kernel; zero if the rows cannot be told apart, NaN if there are too many
            to find out.
        radius_: R, of such rows.
        bound_: the most mistakes that there can be; infinite if the rows cannot be told apart.
        inputs_: the density of rows and answers, from which missing entries are drawn.
        model_: the fitted `freeenergy.models.SoftmaxModel`, or `freeenergy.models.KernelMachine`, of
            rescaled rows; energies, not probabilities.
        history_, n_iter_, converged_, scaling_, …: as everywhere; `history_` has the mistakes of each pass.

    Rows are taken in an order of their own, each once a pass: neither the order in which they are passed
    nor repetition or weights (but of zero) change anything.

    >>> model = Perceptron().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]]).tolist(), bool(model.mistakes_ <= model.bound_)
    (['no', 'yes'], True)

    No line tells the answers of exclusive or apart, and a parabola does:

    >>> from freeenergy.kernels import Polynomial
    >>> corners = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    >>> Perceptron(Polynomial(2)).fit(corners, [0, 1, 1, 0]).predict(corners).tolist()
    [0, 1, 1, 0]
    """

    intake = LabelledInUnits
    keeps_order = False
    classes_: np.ndarray

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        averaged: bool = False,
        max_iter: int = 100,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.kernel = kernel
        self.averaged = averaged
        self.max_iter = max_iter
        self.inputs = inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "kernel", AbstractKernel, optional=True)
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
        z = self.scaling_.apply(rows.x)
        rule = LinearRule(z, k) if self.kernel is None else KernelRule(self.kernel, z, k)
        self.radius_ = rule.radius
        self.margin_ = rule.largest_margin(answers)
        with np.errstate(divide="ignore"):
            self.bound_ = float(2 * (self.radius_ / np.float64(self.margin_)) ** 2)
        passes = []
        while len(passes) < self.max_iter and 0 not in passes:
            passes.append(_pass(rule, answers))
        self.mistakes_ = sum(passes)
        found = rule.total / (len(z) * len(passes)) if self.averaged else rule.parameters
        done = not passes[-1]
        kind = "a linear rule" if self.kernel is None else "this kernel"
        note = "" if done else _NO_END.format(len(passes), kind)
        status = Status.CONVERGED if done else Status.LIMIT
        return Fit(rule.model(found), {"mistakes": np.array(passes, float)}, len(passes), status, note=note)

    def decision_function(self, X: Any) -> np.ndarray:
        """The score of each answer; for two answers how much favours the second.

        It is averaged over draws of what is missing.
        """
        scores = self._all_scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _all_scores(self, X: Any) -> np.ndarray:
        x = self._read(X).x
        holes = np.isnan(x).any(axis=1)
        scores = np.empty((len(x), len(self.classes_)))
        scores[~holes] = self._scores(x[~holes])
        if holes.any():
            scores[holes] = np.mean([self._scores(drawn) for drawn in self._input_draws(x[holes])], axis=0)
        return scores

    def _scores(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            z = self.scaling_.apply(x)
            if isinstance(self.model_, KernelMachine):
                scores = scores_of(self.model_, z)
            else:
                scores = z @ np.asarray(self.model_.weight).T + np.asarray(self.model_.bias)
        return check_numbers(self, "decision_function", scores)

    @framed
    def predict(self, X: Any) -> Any:
        """The answer of least energy; the first of those that are equal."""
        best = np.argmax(self._all_scores(X), axis=1)
        return self.classes_[best]

    def _listed(self) -> dict[str, np.ndarray]:
        return {"intercept": self.intercept_, "coef": self.coef_} if self.kernel is None else {}

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        if self.kernel is not None:
            return super()._along(name, shape)
        return [str(label) for label in self.classes_], *([self.columns_] * (len(shape) - 1))

    @property
    def coef_(self) -> np.ndarray:
        """w, a row per answer, in the units of the data."""
        return np.asarray(self._linear("coef_").weight) / self.scaling_.scale

    @property
    def intercept_(self) -> np.ndarray:
        """b, a number per answer, in the units of the data."""
        return np.asarray(self._linear("intercept_").bias) - self.coef_ @ self.scaling_.shift

    @property
    def dual_coef_(self) -> np.ndarray:
        """a, a row per answer, for the rows of `model_.x`."""
        if not isinstance(self.model_, KernelMachine):
            raise AttributeError("dual_coef_ is there where the rule has a kernel.")
        return np.asarray(self.model_.coefficients).T

    def _linear(self, name: str) -> SoftmaxModel:
        if not isinstance(self.model_, SoftmaxModel):
            raise AttributeError(f"{name} is there where the rule has no kernel.")
        return self.model_


class AbstractRule(abc.ABC):
    """What mistakes change: parameters with a score for each answer to each row.

    Attributes:
        parameters: as they are.
        total: their sum over all rows that were seen.
        radius: the length of the longest row, in the features of the rule.
    """

    parameters: np.ndarray
    total: np.ndarray
    radius: float

    @abc.abstractmethod
    def scores(self, rows: slice) -> np.ndarray:
        """Of each answer to some rows."""

    @abc.abstractmethod
    def correct(self, row: int, right: int, said: int) -> None:
        """Adds a row to its answer, and takes it from the one that was said."""

    @abc.abstractmethod
    def largest_margin(self, answers: np.ndarray) -> float:
        """The largest that a rule of length one has for the answers; NaN if it is too much work."""

    @abc.abstractmethod
    def model(self, parameters: np.ndarray) -> SoftmaxModel | KernelMachine:
        """The energies of some parameters."""


class LinearRule(AbstractRule):
    """w of each answer, the constant first."""

    def __init__(self, z: np.ndarray, answers: int) -> None:
        self.design = np.column_stack([np.ones(len(z)), z])
        self.parameters, self.total = np.zeros((2, answers, self.design.shape[1]))
        self.radius = float(np.sqrt((self.design**2).sum(axis=1).max()))

    def scores(self, rows: slice) -> np.ndarray:
        return self.design[rows] @ self.parameters.T

    def correct(self, row: int, right: int, said: int) -> None:
        self.parameters[right] += self.design[row]
        self.parameters[said] -= self.design[row]

    def largest_margin(self, answers: np.ndarray) -> float:
        return _largest_margin(self.design, answers, len(self.parameters))

    def model(self, parameters: np.ndarray) -> SoftmaxModel:
        return SoftmaxModel(on_device(parameters[:, 1:]), on_device(parameters[:, 0]))


class KernelRule(AbstractRule):
    """a of each answer, how often each row was added to it less how often it was taken away."""

    def __init__(self, kernel: AbstractKernel, z: np.ndarray, answers: int) -> None:
        self.kernel, self.z = kernel, z
        self.gram = kernel.gram(z) if len(z) <= _WHOLE else None
        self.parameters, self.total, self.all_scores = np.zeros((3, len(z), answers))
        self.radius = float(np.sqrt(kernel.diagonal(z).max()))

    def scores(self, rows: slice) -> np.ndarray:
        return self.all_scores[rows]

    def correct(self, row: int, right: int, said: int) -> None:
        column = self.kernel.gram(self.z, self.z[[row]])[:, 0] if self.gram is None else self.gram[row]
        for values, change in ((self.parameters[row], 1.0), (self.all_scores.T, column)):
            values[right] += change
            values[said] -= change

    def largest_margin(self, answers: np.ndarray) -> float:
        if self.gram is None or len(self.z) > _MOST_ROWS:
            return np.nan
        values, vectors = np.linalg.eigh(self.gram)
        there = values > _NO_VALUE * values[-1]
        # rows with these inner products
        features = vectors[:, there] * np.sqrt(values[there])
        return _largest_margin(features, answers, self.parameters.shape[1])

    def model(self, parameters: np.ndarray) -> KernelMachine:
        moved = (parameters != 0).any(axis=1)
        arrays = parameters[moved], np.zeros(parameters.shape[1]), np.ones(()), self.z[moved]
        return KernelMachine(jax.tree.map(on_device, self.kernel), *map(on_device, arrays))


def _pass(rule: AbstractRule, answers: np.ndarray) -> int:
    """One pass over the rows, which changes the rule, and adds it as it was at each row to its total."""
    mistakes, at = 0, 0
    while at < len(answers):
        block = slice(at, at + _TOGETHER)
        said = np.argmax(rule.scores(block), axis=1)
        wrong = np.flatnonzero(said != answers[block])
        seen = int(wrong[0]) + 1 if len(wrong) else len(said)
        rule.total += seen * rule.parameters
        at += seen
        if len(wrong):
            rule.correct(at - 1, answers[at - 1], said[seen - 1])
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
    if k == 2:
        # the best has w_0 = −w_1, of which each has half of the length
        margins = design * np.where(answers == 1, np.sqrt(2), -np.sqrt(2))[:, None]
    else:
        row, other = np.nonzero(np.arange(k) != answers[:, None])
        margins = np.zeros((len(row), k, width))
        margins[np.arange(len(row)), answers[row]] = design[row]
        margins[np.arange(len(row)), other] = -design[row]
    table = np.unique(margins.reshape(len(margins), -1), axis=0)
    system = np.column_stack([table, np.ones(len(table))]).T
    wanted = np.append(np.zeros(table.shape[1]), 1.0)
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
