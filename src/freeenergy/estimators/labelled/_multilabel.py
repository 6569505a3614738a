"""Several labels for each row, with the probability of all of them together."""

from __future__ import annotations

import itertools
from typing import Any, Self

import equinox as eqx
import numpy as np
from jax import Array
from sklearn.base import ClassifierMixin, MultiOutputMixin, clone
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..._core import Evidence, Fit, Kind, Status
from ...shell import (
    AnswerColumns,
    Coefficients,
    Predicts,
    PredictsProbabilities,
    Rows,
    Table,
    check_instance,
    framed,
    framed_chances,
)
from ...shell._frames import library_of
from ...shell._validation import feature_names
from ._told import Member, told_of_members
from ._wraps import Wraps

# combinations of labels that are enumerated at most
_MOST = 4096


class LabelledColumns(Table):
    """Rows that come with several labels each; `classes_` of the estimator has those of each column."""

    @classmethod
    def fitting(cls, owner: Any, X: Any, *, y: Any, sample_weight: Any = None) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Rows and labels to fit."""
        x = cls.validated(owner, X, reset=True)
        columns, owner.single_ = labels_of(owner, y)
        check_consistent_length(x, columns[0])
        for column in columns:
            check_classification_targets(column)
        owner.answer_columns_ = AnswerColumns.of(y)
        encoders = [LabelEncoder().fit(column) for column in columns]
        each = [np.asarray(encoder.classes_) for encoder in encoders]
        owner.classes_ = each[0] if owner.single_ else each
        numbers = np.column_stack([encoder.transform(c) for encoder, c in zip(encoders, columns)])
        return cls._fitting(owner, X, x, sample_weight, lambda _: numbers.astype(float))


def labels_of(owner: Any, y: Any) -> tuple[list[np.ndarray], bool]:
    """The columns of labels, and whether they are one without an axis for columns."""
    if y is None:
        raise ValueError(
            f"{type(owner).__name__} requires y to be passed, but the target y is None. Pass it."
        )
    library = library_of(y)
    if library is not None:
        # each column of its own type
        return [np.asarray(library.column(y, place)) for place in range(len(library.names(y)))], False
    table = np.asarray(y)
    single = table.ndim == 1
    if single:
        table = table[:, None]
    if table.ndim != 2:
        raise ValueError(
            f"The 'y' of {type(owner).__name__} must have a column for each label. Got the shape "
            f"{table.shape} instead."
        )
    return [column_or_1d(column) for column in table.T], single


class MultiLabel(ClassifierMixin, MultiOutputMixin, Predicts, PredictsProbabilities, Wraps):
    """p(y₁, …, y_L | x) of several labels, by a classifier for each.

    Without `chain` labels are independent given the row: the product of p(y_l | x), L losses side by side.
    With it each is told from the row and the labels before it, Π p(y_l | x, y_1 … y_{l−1}), which can be
    any joint law; answers about single labels then sum over all combinations.

    Args:
        estimator: a classifier with `predict_proba`, of the library or of scikit-learn;
            `SoftmaxRegression()` if None.
        chain: whether labels may depend on each other.

    Attributes:
        classes_: the labels of each column of `y`.
        single_: whether `y` had no columns but one label a row; then answers have none either.
        estimators_: a fitted classifier for each.
        model_: their models, where they have such.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> model = MultiLabel().fit(X, [[0, 1], [0, 1], [1, 1], [1, 0]])
    >>> model.predict([[0.0], [3.0]]).tolist(), [p.shape for p in model.predict_proba(X)]
    ([[0, 1], [1, 0]], [(4, 2), (4, 2)])
    """

    intake = LabelledColumns
    classes_: Any
    single_: bool
    answer_columns_: AnswerColumns | None

    def __init__(self, estimator: Any = None, *, chain: bool = False) -> None:
        self.estimator = estimator
        self.chain = chain

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "chain", bool)

    @property
    def _labels(self) -> list[np.ndarray]:
        return [self.classes_] if self.single_ else self.classes_

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fits a classifier for each label.

        Args:
            X: a row per sample; NaN means not observed.
            y: a column for each label.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        numbers = rows.known.astype(int)
        combinations = np.prod([len(own) for own in self._labels])
        if self.chain and combinations > _MOST:
            raise ValueError(
                f"The 'chain' parameter of MultiLabel must be False for more than {_MOST} combinations of "
                f"labels. Got {combinations} combinations."
            )
        self.estimators_ = []
        for place, own in enumerate(self._labels):
            estimator: Any = clone(self._inner())
            estimator.fit(
                self._given(rows.x, numbers[:, :place]),
                own[numbers[:, place]],
                sample_weight=rows.weight,
            )
            self.estimators_.append(estimator)
        models = [getattr(estimator, "model_", None) for estimator in self.estimators_]
        return Fit(Several(tuple(models)), {}, 1, Status.CONVERGED)

    def _given(self, x: np.ndarray, before: np.ndarray) -> Any:
        """What a classifier is given: the row and, in a chain, the labels before as columns of 0 and 1."""
        if not self.chain or not before.shape[1]:
            return self._coded(x)
        if self._coded(x) is not x:
            raise ValueError(
                "The 'chain' parameter of MultiLabel must be False for columns of labels in X."
            )
        ones = [
            (column[:, None] == np.arange(1, len(own))).astype(float)
            for column, own in zip(before.T, self._labels)
        ]
        return np.column_stack([x, *ones])

    def _logs(self, place: int, given: Any) -> np.ndarray:
        """log p of each class of one label."""
        estimator = self.estimators_[place]
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(estimator.predict_proba(given), float))

    def _numbers_of(self, y: Any) -> np.ndarray:
        """Labels by their numbers among those that were fitted; others are refused."""
        columns, _ = labels_of(self, y)
        if len(columns) != len(self._labels):
            raise ValueError(
                f"The 'y' of MultiLabel must have {len(self._labels)} columns, as that of fit. Got "
                f"{len(columns)}."
            )
        numbers = []
        for column, own in zip(columns, self._labels):
            place = np.searchsorted(own, column).clip(max=len(own) - 1)
            unknown = column[own[place] != column]
            if len(unknown):
                raise ValueError(
                    "The labels 'y' must be among those that were fitted. "
                    f"Got {unknown.tolist()[0]!r} instead."
                )
            numbers.append(place)
        return np.column_stack(numbers)

    def evidence(self, X: Any, y: Any) -> Evidence:
        """log p(y₁, …, y_L | x) of each row, of all its labels together."""
        x, numbers = self._read(X).x, self._numbers_of(y)
        check_consistent_length(x, numbers)
        return Evidence(self._joint(x, numbers), np.zeros(len(x)), Kind.EXACT)

    def _joint(self, x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        rows = np.arange(len(x))
        logs = [
            self._logs(place, self._given(x, numbers[:, :place]))[rows, numbers[:, place]]
            for place in range(len(self._labels))
        ]
        return np.sum(logs, axis=0)

    def _combinations(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every combination of labels, and its log-probability for each row."""
        every = np.array(list(itertools.product(*(range(len(own)) for own in self._labels))))
        return every, np.stack([self._joint(x, np.tile(one, (len(x), 1))) for one in every], axis=1)

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """The probability of each class of each label, by itself: an array for each."""
        x = self._read(X).x
        if not self.chain:
            found = [np.exp(self._logs(place, self._coded(x))) for place in range(len(self._labels))]
            return found[0] if self.single_ else found
        every, logs = self._combinations(x)
        found = []
        for place, own in enumerate(self._labels):
            chances = np.exp(logs)
            found.append(
                np.column_stack([chances[:, every[:, place] == c].sum(axis=1) for c in range(len(own))])
            )
        return found[0] if self.single_ else found

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable labels of each row, all together: a column for each."""
        x = self._read(X).x
        if self.chain:
            every, together = self._combinations(x)
            best = every[np.argmax(together, axis=1)]
        else:
            logs = [self._logs(place, self._coded(x)) for place in range(len(self._labels))]
            best = np.column_stack([np.argmax(own, axis=1) for own in logs])
        found = [own[best[:, place]] for place, own in enumerate(self._labels)]
        return found[0] if self.single_ else _side_by_side(found)

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients:
        told = None if self.answer_columns_ is None else self.answer_columns_.names
        labels = [f"y{k}" for k in range(len(self._labels))] if told is None else list(map(str, told))
        names = feature_names(self)
        columns = [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(map(str, names))
        members = []
        for estimator, label, own in zip(self.estimators_, labels, self._labels, strict=True):
            prefix = "" if self.single_ else f"{label}: "
            members.append(Member(estimator, columns.copy(), prefix))
            if self.chain:
                columns += [f"{label}={value}" for value in own[1:]]
        return told_of_members(members, robust)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows of which all labels are right."""
        said = np.asarray(self.predict(X)).reshape(-1, len(self._labels))
        right = (said == _side_by_side(labels_of(self, y)[0])).all(axis=1)
        return float(np.average(right, weights=sample_weight))


def _side_by_side(columns: list[np.ndarray]) -> np.ndarray:
    """Columns of labels as a table, of objects where they are of several sorts."""
    sorts = {"U" if column.dtype.kind == "O" else column.dtype.kind for column in columns}
    return np.column_stack(columns if len(sorts) == 1 else [column.astype(object) for column in columns])


class Several(eqx.Module):
    """Models side by side."""

    models: tuple[Any, ...]
