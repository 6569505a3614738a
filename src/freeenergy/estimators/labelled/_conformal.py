"""Conformal prediction: intervals and sets of labels whose coverage holds for any model."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
from jax import Array
from scipy.special import ndtr

from ..._core import Fit, Status, generator
from ...evaluation import AbstractLaws
from ...evaluation._checks import fraction
from ...shell import (
    AbstractDensity,
    AbstractRowEstimator,
    Coefficients,
    PredictsDensities,
    Rows,
    check_int,
    check_numbers,
    check_real,
    framed,
    framed_ends,
)
from ._design import TakesAnyColumns
from ._linear import LinearRegression
from ._regressor import AbstractRegressor
from ._softmax import SoftmaxRegression
from ._told import Member, told_of_members
from ._wrapped import AbstractWrappedClassifier, AbstractWrappedRegressor, Committee, fitted_copy

# answers to as many rows and scores are compared at once
_AT_ONCE = 4_000_000
# quantiles of this level are as far from the median as a standard deviation of a normal law
_ONE_SIGMA = float(ndtr(1.0))
# levels are this far from nothing and from all
_LEAST_LEVEL = 1e-9


def conformal_quantile(scores: np.ndarray, weight: np.ndarray, level: float) -> float:
    """The ⌈(n + 1) level⌉-th smallest of n scores: a new one is below it with probability `level` or more.

    A score of weight two counts as two.  Infinite where there are too few scores for the level.

    >>> conformal_quantile(np.arange(1.0, 10.0), np.ones(9), 0.9)
    9.0
    >>> conformal_quantile(np.arange(1.0, 9.0), np.ones(8), 0.9)
    inf
    """
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weight[order])
    # sums of levels have rounding
    wanted = np.ceil((reached[-1] + 1) * level - 1e-9)
    place = int(np.searchsorted(reached, wanted - 1e-9))
    return float(scores[order[place]]) if place < len(scores) else np.inf


def least_levels(laws: AbstractLaws, y: np.ndarray) -> np.ndarray:
    """The least level whose central interval holds an answer y, 1 − 2 min(P(Y ≤ y), P(Y ≥ y)) if above 0.

    >>> from scipy import stats
    >>> from freeenergy.evaluation import Laws
    >>> least_levels(Laws(stats.norm(np.zeros(3), 1.0)), np.array([-1.0, 0.0, 1.645])).round(3).tolist()
    [0.683, 0.0, 0.9]
    >>> least_levels(Laws(stats.binom(2, np.full(3, 0.5))), np.arange(3.0)).round(3).tolist()
    [0.5, 0.0, 0.5]
    """
    # counts have a probability of their own, on both sides
    above = laws.log_sf(y - 0.5 if laws.discrete else y)
    return np.maximum(1 - 2 * np.exp(np.minimum(laws.log_cdf(y), above)), 0.0)


def calibrated_interval(
    laws: AbstractLaws, level: float, levels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Central intervals of laws at the level which held `level` of answers that laws had not seen.

    For each output it is the ⌈(n + 1) level⌉-th smallest of the `least_levels` of n such answers, (n,
    outputs); the level itself where n is too small for it, if none of them needs more.  Also known as
    distributional conformal prediction.

    References:
        Chernozhukov, Wüthrich, Zhu (2021), Distributional conformal prediction.
    """
    level = fraction("predict_interval", "level", level)
    if not len(levels):
        return laws.interval(level)
    flat = levels.reshape(len(levels), -1)
    found = np.array([conformal_quantile(own, weight, level) for own in flat.T])
    found = np.where(np.isfinite(found), found, np.maximum(flat.max(axis=0), level))
    if laws.discrete:
        # an interval reaches the next count just above its level
        found = found + _LEAST_LEVEL
    # laws have no quantiles of nothing and of all
    own = np.clip(found, _LEAST_LEVEL, 1 - _LEAST_LEVEL).reshape(levels.shape[1:])
    return laws.quantile(0.5 - own / 2), laws.quantile(0.5 + own / 2)


class JudgedByFolds(AbstractRegressor):
    """Numbers given rows with intervals that held the answers of rows left out of the fit, in parts.

    Attributes:
        fold_levels_, fold_weight_: the least level whose interval holds an answer, by the law of a fit that
            has not seen it, and the weight of its row; none where nothing was left out.
    """

    # they hold what they say of answers that were left out
    intervals_of_law = False
    fold_levels_: np.ndarray
    fold_weight_: np.ndarray

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        These are the quantiles of its law that held `level` of the answers of the fit, each by the law of
        a fit without it; of those that have seen them too few answers are beyond the quantiles.  With too
        few rows for the level it is the law's own, or the one that holds all of them if that is wider.
        """
        return calibrated_interval(self.predict_density(X), level, self.fold_levels_, self.fold_weight_)


class Calibrates(TakesAnyColumns):
    """Sets rows aside on which scores say how strange answers are."""

    estimator: Any
    folds: int | None
    calibration_fraction: float
    calibration_weight_: np.ndarray
    calibration_fold_: np.ndarray
    _default: ClassVar[Any]

    def _inner(self) -> Any:
        return self._default() if self.estimator is None else self.estimator

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "folds", 2, optional=True)
        check_real(self, "calibration_fraction", 0.0, 1.0, closed=False)

    @abc.abstractmethod
    def _whole_rows(self, rows: Rows, inner: Any) -> tuple[Rows, np.ndarray]:
        """Rows that a copy can be fitted to, and which of the rows each is of."""

    @abc.abstractmethod
    def _scores(self, member: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """How strange answers are to one copy."""

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients:
        # what a regression calls its answers
        answers = vars(self).get("answer_names_")
        return told_of_members([Member(self.estimator_, self.columns_, answers=answers)], robust)

    def _calibrate(self, rows: Rows, answers: np.ndarray, key: Array) -> Fit:
        """Fits copies, and scores rows by those that did not see them."""
        rng, inner, n = generator(key), self._inner(), len(rows.x)
        if n < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 different rows, of which it sets some aside. "
                f"Got n_samples = {n}."
            )
        whole, place = self._whole_rows(rows, inner)

        def copy(chosen: np.ndarray) -> Any:
            weight = np.where(chosen[place], whole.weight, 0.0)
            return fitted_copy(inner, whole.x, answers[place], weight, rng)

        order = rng.permutation(n)
        if self.folds is None:
            held = max(1, min(n - 1, round(n * self.calibration_fraction)))
            fold = np.full(n, -1)
            fold[order[:held]] = 0
            self.members_ = [copy(fold < 0)]
            self.estimator_ = self.members_[0]
        else:
            fold = np.empty(n, int)
            fold[order] = np.arange(n) % min(self.folds, n)
            self.members_ = [copy(fold != k) for k in range(fold.max() + 1)]
            self.estimator_ = copy(fold > -1)
        own = np.flatnonzero(fold >= 0)
        scores = [
            self._scores(m, rows.x[fold == k], answers[fold == k]) for k, m in enumerate(self.members_)
        ]
        found = np.empty((n, *scores[0].shape[1:]))
        for k, part in enumerate(scores):
            found[fold == k] = part
        self.calibration_scores_ = found[own]
        self.calibration_weight_, self.calibration_fold_ = rows.weight[own], fold[own]
        fitted: Any = self.estimator_
        ours = isinstance(fitted, AbstractRowEstimator)
        model = fitted.model_ if ours else Committee(len(self.members_))
        return Fit(model, {}, 1, Status.CONVERGED)


class Conformal(AbstractWrappedRegressor, Calibrates):
    """Intervals that hold an answer with the probability they say, around any regressor.

    Answers are scored by how far they are from the median of their predicted law, in units of the distance
    from there to its quantile Φ(±1) on the same side (of a regressor that has no law, in the units of y).
    The interval reaches as far as the ⌈(n + 1) level⌉-th smallest score of n rows that the model did not
    see.  If rows are exchangeable it holds a new answer with probability `level` at least and
    `level` + 1/(n + 1) at most, whatever the model and the law of the data: not for each row, but over data
    sets and rows.

    `predict`, `predict_density` and `evidence` are those of the estimator.

    Args:
        estimator: a regressor of freeenergy or scikit-learn; `LinearRegression()` by default.
        folds: None to set rows aside once (split conformal); else each row is scored by the copy that was
            fitted without its fold and all copies vote (CV+; with as many folds as rows, the jackknife+),
            which uses all rows for both.  CV+ covers nearly `level`, and 2 · level − 1 at worst.
        calibration_fraction: of the rows, to be set aside where there are no folds.
        inputs: the density from which missing entries are drawn for an estimator that takes none.
        random_state: of the split, and of an estimator that has none.

    Attributes:
        estimator_: the fitted estimator; with folds, to all rows.
        members_: the copies by which rows are scored.
        calibration_scores_, calibration_weight_, calibration_fold_: of each row that was set aside.
        noise_: the standard deviation about predictions, for an estimator without a law.

    References:
        Vovk, Gammerman, Shafer (2005), Algorithmic learning in a random world; Barber, Candès, Ramdas,
        Tibshirani (2021), Predictive inference with the jackknife+.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 1))
    >>> y = np.exp(X[:, 0]) * rng.exponential(size=200)
    >>> model = Conformal(random_state=0).fit(X, y)
    >>> low, high = model.predict_interval(X, 0.8)
    >>> bool(0.7 < ((low <= y) & (y <= high)).mean() < 0.9)
    True
    """

    _default = LinearRegression
    intervals_of_law = False

    def __init__(
        self,
        estimator: Any = None,
        *,
        folds: int | None = None,
        calibration_fraction: float = 0.25,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.folds = folds
        self.calibration_fraction = calibration_fraction
        self.inputs = inputs
        self.random_state = random_state

    def _learn(self, rows: Rows, key: Array) -> Fit:
        rows = self._in_order(rows)
        answers = self._shaped_answers(rows)
        found = self._calibrate(rows, answers, key)
        # a regressor without a law is taken to be normal about its prediction
        score, weight = self.calibration_scores_, self.calibration_weight_
        self.noise_ = np.sqrt(np.average(score**2, axis=0, weights=weight))
        self.noise_ = np.where(self.noise_ > 0, self.noise_, 1.0)
        return found

    def _reaches(self, member: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The middle of each answer by one copy, and the units of scores below and above it."""
        law = _law_of(member, x)
        if law is not None:
            middle, low, high = (law.quantile(p) for p in (0.5, 1 - _ONE_SIGMA, _ONE_SIGMA))
            spread = law.std()
            # a law of few values may have none on one side
            spread = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
            below, above = middle - low, high - middle
            return middle, np.where(below > 0, below, spread), np.where(above > 0, above, spread)
        holes = np.isnan(x).any(axis=1) & (not isinstance(member, AbstractRowEstimator))
        middle = np.empty((len(x), *self.answer_shape_))
        if (~holes).any():
            middle[~holes] = self._predicted(member, x[~holes])
        if holes.any():
            draws = [self._predicted(member, part) for part in self._input_draws(x[holes])]
            middle[holes] = np.mean(draws, axis=0)
        return middle, np.ones(middle.shape), np.ones(middle.shape)

    def _scores(self, member: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        middle, below, above = self._reaches(member, x)
        return np.where(y < middle, (middle - y) / below, (y - middle) / above)

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        return self._laws_by(self.estimator_, x)

    def _laws_of_incomplete(self, x: np.ndarray) -> AbstractLaws:
        if isinstance(self.estimator_, AbstractRowEstimator):
            return self._laws_by(self.estimator_, x)
        return super()._laws_of_incomplete(x)

    @framed
    def predict(self, X: Any) -> Any:
        """What the estimator predicts for each row."""
        if not isinstance(vars(self).get("estimator_"), PredictsDensities):
            return super().predict(X)
        return check_numbers(self, "predict", self._predicted(self.estimator_, self._read(X).x))

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        Infinite where too few rows were set aside for the level.
        """
        level = fraction(f"{type(self).__name__}.predict_interval", "level", level)
        x = self._read(X).x
        reaches = [self._reaches(member, x) for member in self.members_]
        flat = [tuple(part.reshape(len(x), -1) for part in each) for each in reaches]
        scores = self.calibration_scores_.reshape(len(self.calibration_scores_), -1)
        ends = np.empty((2, len(x), scores.shape[1]))
        for output in range(scores.shape[1]):
            columns = [tuple(part[:, output] for part in each) for each in flat]
            ends[:, :, output] = self._ends(columns, scores[:, output], level)
        low, high = (part.reshape(len(x), *self.answer_shape_) for part in ends)
        return low, high

    def _ends(self, reaches: list[Any], scores: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        weight, fold = self.calibration_weight_, self.calibration_fold_
        if self.folds is None:
            middle, below, above = reaches[0]
            reach = conformal_quantile(scores, weight, level)
            return middle - reach * below, middle + reach * above
        middle, below, above = (np.stack(part) for part in zip(*reaches, strict=True))
        rows = middle.shape[1]
        low, high = np.empty((2, rows))
        for start in range(0, rows, max(1, _AT_ONCE // len(scores))):
            part = slice(start, start + max(1, _AT_ONCE // len(scores)))
            ups = middle[fold, part] + scores[:, None] * above[fold, part]
            downs = -(middle[fold, part] - scores[:, None] * below[fold, part])
            high[part], low[part] = (_column_quantiles(ends, weight, level) for ends in (ups, downs))
        return -low, high


def _law_of(member: Any, x: np.ndarray) -> AbstractLaws | None:
    """The law that a copy gives; None for one that has none, as after a fit that leaves no residual."""
    if not isinstance(member, PredictsDensities):
        return None
    try:
        return member.predict_density(x)
    except ValueError:
        return None


def _column_quantiles(values: np.ndarray, weight: np.ndarray, level: float) -> np.ndarray:
    """`conformal_quantile` of each column."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0)
    wanted = np.ceil((weight.sum() + 1) * level - 1e-9)
    place = (reached < wanted - 1e-9).sum(axis=0)
    inside = np.minimum(place, len(values) - 1)
    found = np.take_along_axis(values, np.take_along_axis(order, inside[None], axis=0), axis=0)[0]
    return np.where(place < len(values), found, np.inf)


class ConformalClassifier(AbstractWrappedClassifier, Calibrates):
    """Sets of labels that hold the right one with the probability they say, around any classifier.

    A label is scored by 1 − p(y | x).  `predict_set` has all labels whose score is at most the
    ⌈(n + 1) level⌉-th smallest of n rows that the model did not see: if rows are exchangeable the right
    label is in it with probability `level` at least, whatever the model.  A set may have no label, of a row
    to which none fits.

    `predict`, `predict_proba` and `evidence` are those of the estimator.

    Args:
        estimator: a classifier of freeenergy or scikit-learn; `SoftmaxRegression()` by default.
        folds: None to set rows aside once; else as many folds, each scored by a copy fitted to the others
            (CV+), which cover nearly `level`, and 2 · level − 1 at worst.
        calibration_fraction: of the rows, to be set aside where there are no folds.
        inputs: the density from which missing entries are drawn for an estimator that takes none.
        random_state: of the split, and of an estimator that has none.

    Attributes:
        classes_: the labels.
        estimator_: the fitted estimator; with folds, to all rows.
        members_: the copies by which rows are scored.
        calibration_scores_, calibration_weight_, calibration_fold_: of each row that was set aside.

    References:
        Sadinle, Lei, Wasserman (2019), Least ambiguous set-valued classifiers with bounded error levels.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1))
    >>> y = np.where(X[:, 0] + 0.5 * rng.normal(size=300) > 0, "up", "down")
    >>> model = ConformalClassifier(random_state=0).fit(X, y)
    >>> [labels.tolist() for labels in model.predict_set([[-2.0], [0.0], [2.0]], 0.95)]
    [['down'], ['down', 'up'], ['up']]
    """

    _default = SoftmaxRegression

    def __init__(
        self,
        estimator: Any = None,
        *,
        folds: int | None = None,
        calibration_fraction: float = 0.25,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.folds = folds
        self.calibration_fraction = calibration_fraction
        self.inputs = inputs
        self.random_state = random_state

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        return self._calibrate(rows, rows.known[:, 0].astype(int), key)

    def _scores(self, member: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 1 - self._probabilities(member, x)[np.arange(len(x)), y]

    def _average(self, x: np.ndarray) -> np.ndarray:
        return self._probabilities(self.estimator_, x)

    def predict_set(self, X: Any, level: float = 0.9) -> list[np.ndarray]:
        """The labels that cannot be ruled out for each row: the right one is among them, by the level."""
        level = fraction(f"{type(self).__name__}.predict_set", "level", level)
        x = self._read(X).x
        weight, fold = self.calibration_weight_, self.calibration_fold_
        strange = np.stack([1 - self._probabilities(member, x) for member in self.members_])
        if self.folds is None:
            kept = strange[0] <= conformal_quantile(self.calibration_scores_, weight, level)
        else:
            # how many scores are below that of the label, each by the copy that did not see its row
            below = np.zeros(strange.shape[1:])
            for k in range(len(strange)):
                own = fold == k
                order = np.argsort(self.calibration_scores_[own])
                reached = np.concatenate([[0.0], np.cumsum(weight[own][order])])
                below += reached[np.searchsorted(self.calibration_scores_[own][order], strange[k])]
            kept = below < level * (weight.sum() + 1) - 1e-9
        return [self.classes_[row] for row in kept]
