"""What estimators made of other estimators share: copies of any of ours or of scikit-learn's."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import has_fit_parameter

from ..._core import Evidence, Kind
from ...evaluation import AbstractLaws, Laws
from ...shell import (
    AbstractRowEstimator,
    LabelledInUnits,
    Predicts,
    PredictsDensities,
    PredictsProbabilities,
    Rows,
    Scaling,
    ScoresLabels,
    check_numbers,
    framed,
    framed_chances,
)
from ...shell._rows import unit_free_hashes
from ._design import TakesAnyColumns
from ._inputs import CompletesInputs
from ._regressor import AbstractRegressor
from ._trees import Tree

_SEEDS = 2**31


class Committee(eqx.Module):
    """The model of what is made of other estimators, whose own models say the rest.

    Attributes:
        size: how many there are.

    >>> Committee(3).size
    3
    """

    size: int = eqx.field(static=True)


def fitted_copy(
    estimator: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray, rng: np.random.Generator
) -> Any:
    """A copy of an estimator, fitted to rows with weights; a tree of scikit-learn as arrays."""
    kept = weight > 0
    if not kept.all():
        x, y, weight = x[kept], y[kept], weight[kept]
    if type(estimator) is DecisionTreeRegressor and x.dtype == np.float32:
        return Tree.grown(estimator, x, y, weight, int(rng.integers(_SEEDS)))
    copy: Any = clone(estimator)
    unset = [name for name, value in copy.get_params().items() if _is_seed(name) and value is None]
    copy.set_params(**{name: int(rng.integers(_SEEDS)) for name in unset})
    if (weight == 1).all():
        copy.fit(x, y)
    elif has_fit_parameter(copy, "sample_weight"):
        copy.fit(x, y, sample_weight=weight)
    elif (weight == np.round(weight)).all():
        many = weight.astype(int)
        copy.fit(np.repeat(x, many, axis=0), np.repeat(y, many, axis=0))
    else:
        raise ValueError(f"{type(estimator).__name__} takes no weights that are not whole numbers.")
    return Tree.of(copy) if type(copy) is DecisionTreeRegressor else copy


def _is_seed(name: str) -> bool:
    return name == "random_state" or name.endswith("__random_state")


def check_wrapped(owner: BaseEstimator, name: str, wanted: Any, what: str) -> None:
    """Refuses a parameter that is no estimator of the wanted kind, or None."""
    value = getattr(owner, name)
    if value is None or (isinstance(value, BaseEstimator) and wanted(value)):
        return
    raise ValueError(
        f"The '{name}' parameter of {type(owner).__name__} must be a {what} of freeenergy or scikit-learn, "
        f"or None. Got {value!r} instead."
    )


class AbstractWrappedRegressor(AbstractRegressor):
    """A regressor that is made of copies of another."""

    estimator: Any
    noise_: np.ndarray
    keeps_order = False

    @property
    def _must_converge(self) -> bool:
        return False  # the copies say it

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_wrapped(self, "estimator", is_regressor, "regressor")

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        # the copies have one of their own, and counts stay whole
        return Scaling.identity(y.shape[1])

    def _in_order(self, rows: Rows) -> Rows:
        """Rows in an order that other units of answers do not change, from which chance chooses."""
        assert rows.known is not None
        own, answers = self.scaling_, Scaling.standardise(rows.known, rows.weight)
        both = Scaling(*(np.concatenate(part) for part in zip(own, answers, strict=True)))
        order = np.argsort(unit_free_hashes(np.column_stack([rows.x, rows.known]), both), kind="stable")
        return Rows(rows.x[order], rows.weight[order], rows.known[order])

    def _shaped_answers(self, rows: Rows) -> np.ndarray:
        assert rows.known is not None
        return self._shaped(rows.known)

    def _laws_by(self, member: Any, x: np.ndarray) -> AbstractLaws:
        """The law that one copy gives; for those that have none, normal about their prediction."""
        if isinstance(member, PredictsDensities):
            return member.predict_density(x)
        mean = self._predicted(member, x)
        return Laws(stats.norm(mean, np.broadcast_to(self.noise_, mean.shape)))

    def _predicted(self, member: Any, x: np.ndarray) -> np.ndarray:
        """What a copy without a law predicts, in the units of the data."""
        found = np.asarray(member.predict(x), float).reshape(len(x), -1)
        return self._shaped(self.answer_scaling_.invert(found))

    def _whole_rows(self, rows: Rows, inner: Any) -> tuple[Rows, np.ndarray]:
        """Rows that a copy can be fitted to, and which of the rows each is of.

        Ours take NaN as they are; for others what is missing is drawn.
        """
        assert rows.known is not None
        if isinstance(inner, AbstractRowEstimator):
            self.inputs_ = None
            return rows, np.arange(len(rows.x))
        return self._completed(rows, self.answer_scaling_.invert(rows.known))


class AbstractWrappedClassifier(
    ClassifierMixin, Predicts, PredictsProbabilities, ScoresLabels, CompletesInputs, TakesAnyColumns
):
    """A classifier that is made of copies of another."""

    intake = LabelledInUnits
    keeps_order = False
    estimator: Any

    @property
    def _must_converge(self) -> bool:
        return False  # the copies say it

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_wrapped(self, "estimator", is_classifier, "classifier")

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits the labels `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.
            y: a label for each row.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _whole_rows(self, rows: Rows, inner: Any) -> tuple[Rows, np.ndarray]:
        """Rows that a copy can be fitted to, and which of the rows each is of."""
        assert rows.known is not None
        if isinstance(inner, AbstractRowEstimator):
            self.inputs_ = None
            return rows, np.arange(len(rows.x))
        return self._completed(rows, (rows.known == np.arange(1, len(self.classes_))).astype(float))

    def _probabilities(self, member: Any, x: np.ndarray, columns: Any = slice(None)) -> np.ndarray:
        """The probability of every label by one copy, which may not have seen all of them."""
        holes = np.isnan(x).any(axis=1)
        found = np.zeros((len(x), len(self.classes_)))
        labels = np.asarray(member.classes_, int)
        takes_holes = issubclass(type(member), AbstractRowEstimator)
        if takes_holes or not holes.any():
            found[:, labels] = member.predict_proba(self._design(x)[:, columns])
            return found
        if (~holes).any():
            found[np.ix_(~holes, labels)] = member.predict_proba(self._design(x[~holes])[:, columns])
        draws = [
            member.predict_proba(self._design(part)[:, columns]) for part in self._input_draws(x[holes])
        ]
        found[np.ix_(holes, labels)] = np.mean(draws, axis=0)
        return found

    def _design(self, x: np.ndarray) -> np.ndarray:
        """Rows as copies are given them."""
        return x

    def _average(self, x: np.ndarray) -> np.ndarray:
        """The probability of every label."""
        raise NotImplementedError(f"{type(self).__name__} must say which probabilities labels have.")

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """p(y | x) of each label."""
        return check_numbers(self, "predict_proba", self._average(self._read(X).x))

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable label of each row."""
        best = np.argmax(np.asarray(self.predict_proba(X)), axis=1)
        return self.classes_[best]

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y | x) of each row."""
        rows = self._read(X).x
        place = self._place_of(y)
        own = self._average(rows)[np.arange(len(rows)), place]
        with np.errstate(divide="ignore"):
            nats = np.log(own)
        kind = Kind.ESTIMATE if np.isnan(rows).any() else Kind.EXACT
        return Evidence(nats, np.zeros(len(nats)), kind)

    def evidence_of_labels(self, X: Any, y: Any) -> Evidence:
        """The same as `evidence`."""
        return self.evidence(X, y)
