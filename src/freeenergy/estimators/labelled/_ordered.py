"""Answers that stand in an order: ordered logit and probit."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from jax import Array
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..._core import Fit, Status, on_device
from ...distributions import AbstractDistribution, Gaussian, Logistic
from ...models import OrderedModel
from ...shell import (
    AbstractDensity,
    Coefficients,
    LabelledInUnits,
    Predicts,
    Rows,
    check_numbers,
    check_real,
    framed,
)
from ._design import TakesAnyColumns
from ._kernel_classifier import check_classes
from ._label_laws import HasLabelLikelihood
from ._newton import Point, inverse, newton

_SEPARABLE = (
    "the rows are separable (a linear rule puts them in the order of their answers without an error), so "
    "that the coefficients grow without bound; set C, such as C=1.0"
)


class Noise(NamedTuple):
    """The law of what is added to the predictor, on the host.

    Attributes:
        log_density: log f.
        log_interval: log (F(high) − F(low)), for ends that may be infinite.
        bend: f′ / f.
        quantile: the inverse of F.
    """

    log_density: Callable[[np.ndarray], np.ndarray]
    log_interval: Callable[[np.ndarray, np.ndarray], np.ndarray]
    bend: Callable[[np.ndarray], np.ndarray]
    quantile: Callable[[np.ndarray], np.ndarray]


def _logistic_interval(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return special.log_expit(high) + special.log_expit(-low) + np.log(-np.expm1(low - high))


def _normal_interval(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    # where more of it lies above zero, its mirror image
    above = low > -high
    low, high = np.where(above, -high, low), np.where(above, -low, high)
    top, bottom = special.log_ndtr(high), special.log_ndtr(low)
    with np.errstate(divide="ignore", invalid="ignore"):
        return top + np.log(-np.expm1(np.minimum(bottom - top, 0.0)))


NOISES: dict[type[AbstractDistribution], Noise] = {
    Logistic: Noise(
        lambda t: special.log_expit(t) + special.log_expit(-t),
        _logistic_interval,
        lambda t: -np.tanh(0.5 * t),
        special.logit,
    ),
    Gaussian: Noise(
        lambda t: -0.5 * t**2 - 0.5 * np.log(2 * np.pi), _normal_interval, np.negative, special.ndtri
    ),
}


class Thresholds(NamedTuple):
    """The likelihood of answers in an order, for Newton's method in (θ, w), in which it is concave.

    Attributes:
        x: rescaled rows.
        place: of each answer in the order.
        weight: of each row.
        size: how many answers there are.
        penalty: of ½ ‖w‖².
        noise: the law of ε.
    """

    x: np.ndarray
    place: np.ndarray
    weight: np.ndarray
    size: int
    penalty: float
    noise: Noise

    def start(self) -> np.ndarray:
        """No effects, and thresholds that give the shares of the answers."""
        shares = np.cumsum(np.bincount(self.place, self.weight, self.size))[:-1] / self.weight.sum()
        return np.concatenate([self.noise.quantile(shares), np.zeros(self.x.shape[1])])

    def ends(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between which values ε lies, for each row."""
        theta = np.concatenate([[-np.inf], flat[: self.size - 1], [np.inf]])
        predictor = self.x @ flat[self.size - 1 :]
        return theta[self.place] - predictor, theta[self.place + 1] - predictor

    def at(self, flat: np.ndarray) -> Point:
        """The penalised log-likelihood; −∞ where thresholds are in another order."""
        cuts, n = self.size - 1, len(flat)
        if not (np.diff(flat[:cuts]) > 0).all():
            return Point(-np.inf, np.zeros(n), np.eye(n))
        low, high = self.ends(flat)
        logs = self.noise.log_interval(low, high)
        w = flat[cuts:]
        value = float(self.weight @ logs) - 0.5 * self.penalty * float(w @ w)

        def ratios(end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """f / P and f′ / P, which are zero at infinite ends."""
            finite = np.isfinite(end)
            there = np.where(finite, end, 0.0)
            ratio = np.where(finite, np.exp(self.noise.log_density(there) - logs), 0.0)
            return ratio, self.noise.bend(there) * ratio

        (below, bend_below), (above, bend_above) = ratios(low), ratios(high)
        # of log P by its ends: first derivatives, and minus the second ones
        first = self.weight * np.stack([-below, above])
        ll, hh = self.weight * (below**2 + bend_below), self.weight * (above**2 - bend_above)
        lh = -self.weight * below * above
        slope, information = np.zeros(n), np.zeros((n, n))
        slope[:cuts] = self._by_cut(first[0], first[1])
        slope[cuts:] = -first.sum(axis=0) @ self.x - self.penalty * w
        at = np.arange(cuts)
        information[at, at] = self._by_cut(ll, hh)
        between = np.bincount(self.place, lh, self.size)[1:-1]
        information[at[:-1], at[1:]] = information[at[1:], at[:-1]] = between
        across = np.zeros((cuts, len(w)))
        for cut in range(cuts):
            own, next_one = self.place == cut, self.place == cut + 1
            across[cut] = -((hh + lh)[own] @ self.x[own] + (ll + lh)[next_one] @ self.x[next_one])
        information[:cuts, cuts:], information[cuts:, :cuts] = across, across.T
        root = self.x * (ll + 2 * lh + hh)[:, None]
        information[cuts:, cuts:] = root.T @ self.x + self.penalty * np.eye(len(w))
        return Point(value, slope, information)

    def _by_cut(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Sums for each threshold, which is the lower end of one answer and the upper end of another."""
        return np.bincount(self.place, low, self.size)[1:] + np.bincount(self.place, high, self.size)[:-1]


def _declared_order(y: Any) -> list[Any] | None:
    """The labels of ordered categories of pandas, and of enumerations of Polars, in their order."""
    kind = getattr(y, "dtype", None)
    if getattr(kind, "ordered", False):
        return list(kind.categories)  # pyright: ignore[reportOptionalMemberAccess]
    return kind.categories.to_list() if type(kind).__name__ == "Enum" else None  # pyright: ignore


class OrderedRegression(ClassifierMixin, Predicts, HasLabelLikelihood, TakesAnyColumns):
    """p(y ≤ k | x) = F(θ_k − w·x) for answers in an order, such as grades: ordered logit and probit.

    The answer is how many thresholds lie below w·x + ε, with ε from F.  Newton's method finds w and θ, in
    which the likelihood is concave.

    Args:
        noise: the law of ε, a class of `freeenergy.distributions`: `Logistic` (None; proportional odds) or
            `Gaussian` (ordered probit).
        order: the labels from the least to the most; None for that of ordered categories of pandas and of
            enumerations of Polars, and else of the values themselves (of the alphabet, for text).
        C: inverse strength of the penalty ½‖w‖² (in units of standardised columns); None for no penalty,
            with which rows that stand in the order of their answers have no finite coefficients: the fit
            warns.
        max_iter, tol: the most iterations, and the length of the step in standard errors below which they
            stop.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.
        random_state: seed of these draws.

    Attributes:
        classes_: the labels, as scikit-learn sorts them: columns of probabilities are in this order.
        order_: the labels from the least to the most.
        coef_: w, in the units of the data; a larger w·x makes answers later in the order more probable.
        thresholds_: θ, in the units of the data.
        columns_: what the entries of `coef_` are called: columns of X, or NAME=LABEL.
        standard_errors_: of w and then θ, without a penalty; else NaN.
        inputs_: the density of rows and answers, from which missing entries are drawn.
        model_: the fitted `freeenergy.models.OrderedModel`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        P. McCullagh, Regression models for ordinal data, Journal of the Royal Statistical Society B 42
        (1980).

    >>> grades = ["bad", "bad", "fair", "bad", "fair", "good", "fair", "good"]
    >>> hours = [[0.0], [1.0], [1.5], [2.0], [3.0], [3.5], [4.0], [5.0]]
    >>> model = OrderedRegression(order=["bad", "fair", "good"]).fit(hours, grades)
    >>> model.predict([[0.0], [5.0]]).tolist(), bool(model.coef_[0] > 0)
    (['bad', 'good'], True)
    """

    intake = LabelledInUnits
    keeps_order = True
    _wanted: list[Any] | None = None

    def __init__(
        self,
        noise: type[AbstractDistribution] | None = None,
        *,
        order: Any = None,
        C: float | None = 1.0,
        max_iter: int = 200,
        tol: float = 1e-6,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.noise = noise
        self.order = order
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.inputs = inputs
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # classes without an order are no lesson for it
        tags.classifier_tags.poor_score = True
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "C", closed=False, optional=True)
        if self.noise is not None and self.noise not in NOISES:
            raise ValueError(
                "The 'noise' parameter of OrderedRegression must be Logistic or Gaussian of "
                f"freeenergy.distributions, or None. Got {self.noise!r} instead."
            )
        order = np.empty(0) if self.order is None else np.asarray(self.order)
        if order.ndim != 1 or len(set(order.tolist())) < len(order):
            raise ValueError(
                "The 'order' parameter of OrderedRegression must be a list of different labels, or None. "
                f"Got {self.order!r} instead."
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
        self._wanted = _declared_order(y) if self.order is None else list(np.asarray(self.order).tolist())
        try:
            self._fit(X, y=y, sample_weight=sample_weight)
        finally:
            vars(self).pop("_wanted", None)
        return self

    def _places(self) -> np.ndarray:
        """The place in the order of each of `classes_`."""
        labels = self.classes_.tolist()
        if self._wanted is None:
            return np.arange(len(labels))
        lacking = [label for label in labels if label not in self._wanted]
        if lacking:
            raise ValueError(
                "The 'order' parameter of OrderedRegression must have every label of y. "
                f"Got none for {lacking[0]!r}."
            )
        return np.argsort(np.argsort([self._wanted.index(label) for label in labels]))

    @property
    def _noise(self) -> type[AbstractDistribution]:
        return Logistic if self.noise is None else self.noise

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        kept = rows.weight > 0
        labels = rows.known[:, 0].astype(int)
        check_classes(self, labels[kept])
        places = self._places()
        self.order_ = self.classes_[np.argsort(places)]
        rows, origin = self._completed(rows, places[labels][:, None].astype(float))
        x, size = self.scaling_.apply(rows.x), len(places)
        penalty = 0.0 if self.C is None else 1 / self.C
        problem = Thresholds(x, places[labels][origin], rows.weight, size, penalty, NOISES[self._noise])
        found = newton(problem.at, problem.start(), max_iter=self.max_iter, tol=self.tol**2)
        theta, w = np.split(found.coefficients, [size - 1])
        self._keep_errors(found.at.information, size)
        model = OrderedModel(on_device(w), on_device(theta), self._noise)
        history = {"objective": -found.history / float(rows.weight.sum())}
        status = Status.LIMIT if found.status is Status.NON_FINITE else found.status
        result = Fit(model, history, found.n_iter, status)
        low, high = problem.ends(found.coefficients)
        if self.C is None and ((low < 0) & (high > 0))[rows.weight > 0].all():
            # so does every larger multiple of w and θ
            return dataclasses.replace(result, status=Status.UNBOUNDED, note=_SEPARABLE)
        return result

    def _keep_errors(self, information: np.ndarray, size: int) -> None:
        """Stores standard errors of w and θ in the units of the data, where there is no penalty."""
        width = len(information) - size + 1
        self.standard_errors_ = np.full(len(information), np.nan)
        if self.C is not None or not np.isfinite(information).all():
            return
        # w / scale, and θ + w · shift / scale, from θ and w
        to_units = np.zeros((len(information), len(information)))
        to_units[:width, size - 1 :] = np.diag(1 / self.scaling_.scale)
        to_units[width:, : size - 1] = np.eye(size - 1)
        to_units[width:, size - 1 :] = self.scaling_.shift / self.scaling_.scale
        variance = np.einsum("ia,ab,ib->i", to_units, inverse(information), to_units)
        self.standard_errors_ = np.sqrt(np.maximum(variance, 0.0))

    def decision_function(self, X: Any) -> np.ndarray:
        """log p(y | x) of each answer, in the order of `classes_`; of two how much favours the second."""
        logs = self._log_predictive(self._read(X).x)[0]
        if len(self.classes_) > 2:
            return logs
        return check_numbers(self, "decision_function", logs[:, 1] - logs[:, 0])

    def _log_laws(self, X: np.ndarray) -> np.ndarray:
        """log p(y | x) in the order of `classes_`, for rows without NaN."""
        theta = np.concatenate([[-np.inf], np.asarray(self.model_.thresholds), [np.inf]])
        with np.errstate(over="ignore", invalid="ignore"):
            predictor = self.scaling_.apply(X) @ np.asarray(self.model_.weight)
        check_numbers(self, "predict_log_proba", predictor)
        ends = theta - predictor[:, None]
        logs = NOISES[self._noise].log_interval(ends[:, :-1], ends[:, 1:])
        return logs[:, self._in_classes()]

    def _in_classes(self) -> np.ndarray:
        """The place in the order of each of `classes_`."""
        return np.array([self.order_.tolist().index(label) for label in self.classes_.tolist()])

    def _model_place_of(self, y: Any) -> np.ndarray:
        return self._in_classes()[self._place_of(y)]

    @property
    def model_in_units(self) -> OrderedModel:
        """p(y | x) in the units of the data, where `model_` has rescaled rows."""
        check_is_fitted(self, "model_")
        return OrderedModel(on_device(self.coef_), on_device(self.thresholds_), self._noise)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log p(y | x) of each answer, in the order of `classes_`."""
        return self._log_predictive(self._read(X).x)[0]

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable answer."""
        logs = self.predict_log_proba(X)
        return self.classes_[np.argmax(logs, axis=1)]

    @property
    def _maximises_likelihood(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.C is None

    def _count_parameters(self) -> int:
        return self._width + len(self.classes_) - 1

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        order = self.order_.tolist()
        names = [*self.columns_, *(f"{a} | {b}" for a, b in itertools.pairwise(order))]
        notes = ["A larger predictor makes answers later in the order more probable."]
        errors: Any = self.standard_errors_
        if np.isnan(errors).all():
            errors = None
            notes.append("Standard errors are those of a fit without a penalty: C=None.")
        if robust:
            notes.append("Errors are not robust.")
        values = np.concatenate([self.coef_, self.thresholds_])
        return Coefficients(names, values, errors, None if errors is None else np.inf, {}, notes)

    @property
    def coef_(self) -> np.ndarray:
        """w, in the units of the data."""
        return np.asarray(self.model_.weight) / self.scaling_.scale

    @property
    def thresholds_(self) -> np.ndarray:
        """θ, in the units of the data."""
        return np.asarray(self.model_.thresholds) + self.coef_ @ self.scaling_.shift
