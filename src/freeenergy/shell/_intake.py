"""Intakes: what a call of an estimator is given, as events, and the way back for what a model answers."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from .._core import OBJECTIVES, Fit, cells_of, programs
from ._capabilities import Scores
from ._framed import AnswerColumns
from ._frames import Form, library_of, table_library
from ._rows import Rows, canonical_rows, row_seeds
from ._schema import CodedRows, Schema, recognised, schema_of
from ._support import Column
from ._validation import check_observed, check_rows, check_weight, feature_names, goes_as_it_is

_DECLARE = "Declare the kind, as in Schema.recognise(X, kinds=…).rows(X),"


def with_history(result: Fit, *, share: float = 1.0, offset: float = 0.0) -> Fit:
    """A fit whose objectives are in other units: `share` times what they were, less `offset`."""
    history = {
        name: values * share - offset if name in OBJECTIVES else values
        for name, values in result.history.items()
    }
    return dataclasses.replace(result, history=history)


def column_names(owner: Any) -> Any:
    """The names of the columns that the model of an estimator is about; None if they have none."""
    schema = schema_of(owner)
    return feature_names(owner) if schema is None else [field.name for field in schema.modelled]


def _found(owner: Any, X: Any) -> tuple[Schema, np.ndarray] | None:
    """The schema of a table and its columns as numbers; None where it is numbers, and need not be known."""
    vars(owner).pop("schema_", None)
    programs.check_process()
    if isinstance(X, CodedRows):
        return recognised(X)
    library = table_library(X)
    if library is None and owner.needs_kinds:
        # what can be made an array has columns all the same
        X = check_rows(owner, X, reset=True)
        library = table_library(X)
    if library is None:
        return None
    if library.plain(X):
        if not owner.needs_kinds:
            return None
        x = check_rows(owner, X, reset=True)
        X = X if library_of(X) is not None else x
    return recognised(X, library=library)


def _plain(owner: Any, X: Any, x: np.ndarray) -> np.ndarray:
    """Remembers the types of the columns of a frame of numbers."""
    library = library_of(X)
    if library is not None:
        owner.schema_ = Schema.of_types(X, library)
    return x


def remember(owner: Any, schema: Schema, x: np.ndarray) -> np.ndarray:
    """Remembers a schema, refuses columns that the estimator has no model of, and says what is left out."""
    name = type(owner).__name__
    if not schema.modelled:
        looks = ", ".join(f"{field.name!r} looks like {field.likeness}" for field in schema.fields[:5])
        more = f", … {len(schema)} in all" if len(schema) > 5 else ""
        raise ValueError(
            f"X has no column that {name} could be a model of: {looks}{more}. {_DECLARE} to have a model "
            "of it."
        )
    if not len(x):
        raise ValueError(f"Found array with 0 sample(s) (shape={x.shape}) while {name} needs one at least.")
    refused = [field for field in schema.modelled if not owner.takes(field)]
    if refused:
        field, other = refused[0], ""
        if is_classifier(owner):
            other = ", or use NaiveBayes('by column')"
        elif isinstance(owner, Scores):
            other = (
                f", or use Mixture(…, family='by column'), or Dequantised({name}(…)), which takes labels "
            )
            other += "for whole numbers"
        raise ValueError(
            f"{name} has no model of column {field.name!r}, which holds labels ({field.looks}). "
            f"Leave it out{other}."
        )
    left = [repr(field.name) for field in schema.fields if field.kind in (Column.IDENTIFIER, Column.TEXT)]
    if left:
        several = f"Columns {', '.join(left)} look like identifiers or text and are"
        alone = f"Column {left[0]} looks like an identifier or text and is"
        warnings.warn(
            f"{several if len(left) > 1 else alone} left out of {name}. {_DECLARE} to have a model of it.",
            stacklevel=6,
        )
    owner.schema_, owner.n_features_in_ = schema, len(schema.fields)
    vars(owner).pop("feature_names_in_", None)
    if all(isinstance(column, str) for column in schema.names):
        owner.feature_names_in_ = np.array(schema.names, object)
    return x


class AbstractIntake(abc.ABC):
    """What one call of an estimator is given: validated, as events, with the way back.

    The estimator keeps what later calls need (names, scaling, classes); an intake lives as long as the
    call.  `events` is what `_learn` is given.

    Attributes:
        owner: the estimator.
        passed: what the user passed.
    """

    owner: Any
    passed: Any

    @classmethod
    @abc.abstractmethod
    def fitting(cls, owner: Any, X: Any, **given: Any) -> Self:
        """What `fit` of `owner` is given; sets what the estimator has to remember of it."""

    @classmethod
    @abc.abstractmethod
    def reading(cls, owner: Any, X: Any, **given: Any) -> Self:
        """What another call of the fitted `owner` is given."""

    @property
    @abc.abstractmethod
    def events(self) -> Any:
        """What is learned from."""

    @property
    def size(self) -> float | None:
        """Of a fit, how much is learned from: rows, steps or documents with their weights, if known."""
        return None

    @abc.abstractmethod
    def naming_cells(self) -> contextlib.AbstractContextManager[None]:
        """Where something is wrong with an entry, says in which row and column the user has it."""

    @abc.abstractmethod
    def in_units(self, result: Fit) -> Fit:
        """A fit to `events` with its history in the units of the data."""


class Table(AbstractIntake):
    """A row for each sample, NaN where nothing was observed: checked, rescaled, equal rows merged.

    Attributes:
        x: the rows as the model means them, in the units of the user.
        rows: of a fit, the distinct rows of `x` with their weights, in an order of their own.
    """

    def __init__(self, owner: Any, passed: Any, x: np.ndarray, rows: Rows | None = None) -> None:
        self.owner, self.passed, self.x, self.rows = owner, passed, x, rows

    @classmethod
    def validated(cls, owner: Any, X: Any, *, reset: bool) -> np.ndarray:
        """`X` as rows of numbers; with `reset` the estimator remembers how many columns there are."""
        if reset:
            found = _found(owner, X)
            return (
                _plain(owner, X, check_rows(owner, X, reset=True))
                if found is None
                else remember(owner, *found)
            )
        schema = schema_of(owner)
        if schema is None or schema.plain:
            return check_rows(owner, X, reset=False)
        if isinstance(X, CodedRows):
            return X.x
        if schema.library == "codes":
            return np.asarray(X, float)
        if all(field.form in (Form.NUMBER, Form.FLAG) for field in schema.fields):
            # what scikit-learn asks of tables of numbers
            x = check_rows(owner, X, reset=False)
            X = X if library_of(X) is not None else x
        return schema.encode(X)

    @classmethod
    def drawn(cls, owner: Any, x: np.ndarray) -> Any:
        """Rows in the units of the user, as a table such as the one that was fitted."""
        schema = schema_of(owner)
        return cls.shaped(owner, x) if schema is None else schema.decode(x)

    def filled(self, x: np.ndarray) -> Any:
        """What was passed with its missing entries from `x`, rows in the units of the user."""
        schema = schema_of(self.owner)
        passed = self.passed.passed if isinstance(self.passed, CodedRows) else self.passed
        if schema is None or schema.library == "codes" or passed is getattr(self.passed, "x", None):
            return self.shaped(self.owner, x)
        if schema.plain and library_of(passed) is None:
            return x
        return schema.fill(passed, x)

    @classmethod
    def shaped(cls, owner: Any, rows: np.ndarray) -> np.ndarray:
        """Rows of numbers as the events that the model and the user have."""
        return rows

    @classmethod
    def flat(cls, owner: Any, events: np.ndarray) -> np.ndarray:
        """Events as rows of numbers."""
        return events.reshape(len(events), len(owner.scaling_.shift))

    @classmethod
    def arranged(
        cls, owner: Any, x: np.ndarray, weight: np.ndarray | None, known: np.ndarray | None
    ) -> Rows:
        """The rows in the order in which they are learned."""
        return canonical_rows(x, weight, owner.scaling_, known)

    @classmethod
    def fitting(
        cls,
        owner: Any,
        X: Any,
        *,
        sample_weight: Any = None,
        known: Callable[[np.ndarray], np.ndarray | None] | None = None,
    ) -> Self:
        """Rows to fit, with a function that gives what else is known of them, a row of numbers each."""
        return cls._fitting(owner, X, cls.validated(owner, X, reset=True), sample_weight, known)

    @classmethod
    def _fitting(cls, owner: Any, passed: Any, x: np.ndarray, sample_weight: Any, known: Any) -> Self:
        weight = check_weight(x, sample_weight)
        check_observed(x, column_names(owner), weight=weight)
        owner._check_size(*x.shape)
        extra = None if known is None else known(x)
        taken = cls(owner, passed, owner.as_modelled(x))
        with taken.naming_cells():
            owner.scaling_ = owner._scaling(taken.x, weight)
        rows = cls.arranged(owner, taken.x, weight, extra)
        if weight is not None or len(rows.x) < len(x):
            # from the merged rows, so that weights and repetition give the same to the last digit
            owner.scaling_ = owner._scaling(rows.x, rows.weight)
        taken.rows = rows
        return taken

    @classmethod
    def reading(cls, owner: Any, X: Any) -> Self:
        check_is_fitted(owner, "model_")
        return cls(owner, X, owner.as_modelled(cls.validated(owner, X, reset=False)))

    @functools.cached_property
    def events(self) -> Rows:
        """The distinct rows, rescaled."""
        assert self.rows is not None
        return self.rows._replace(x=self.shaped(self.owner, self.owner.scaling_.apply(self.rows.x)))

    @property
    def size(self) -> float | None:
        return None if self.rows is None else float(self.rows.weight.sum())

    @property
    def z(self) -> np.ndarray:
        """The events as the model sees them: rescaled, in the order of the user."""
        return self.shaped(self.owner, self.owner.scaling_.apply(self.x))

    @property
    def seeds(self) -> np.ndarray:
        """A number for each row that depends on no other: the seed of its noise."""
        return row_seeds(self.x, self.owner.scaling_)

    @property
    def log_det(self) -> np.ndarray:
        """What a log-density has more in the units of the user, for each row."""
        return self.owner.scaling_.log_det(self.x)

    def take(self, chosen: np.ndarray) -> Self:
        """Some of the rows."""
        return type(self)(self.owner, self.passed, self.x[chosen])

    def with_rows(self, x: np.ndarray) -> Self:
        """Other rows, as the model means them, in the units of the user."""
        return type(self)(self.owner, x, x)

    def back(self, z: np.ndarray) -> np.ndarray:
        """Events of the model as rows in the units of the user."""
        return self.owner.scaling_.invert(self.flat(self.owner, z))

    def naming_cells(self) -> contextlib.AbstractContextManager[None]:
        passed = self.passed.passed if isinstance(self.passed, CodedRows) else self.passed
        return cells_of(passed, self.x, column_names(self.owner))

    def in_units(self, result: Fit) -> Fit:
        """The objective of a density is the free energy per row, and has units; others have none."""
        scaling = self.owner.scaling_
        if self.rows is None or not isinstance(self.owner, Scores):
            return result
        nats = scaling.log_det(self.rows.x)
        return with_history(result, offset=float(np.average(nats, weights=self.rows.weight)))


class LabelledTable(Table):
    """Rows that come with a label each; `classes_` of the estimator has the labels in order.

    The number of the label is the one column of `events.known`.
    """

    @classmethod
    def fitting(cls, owner: Any, X: Any, *, y: Any, sample_weight: Any = None) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Rows and labels to fit."""
        owner.answer_columns_ = AnswerColumns.of(y)
        found = _found(owner, X)
        y = y if _are_labels(y) else validate_data(owner, X="no_validation", y=y)
        x = remember(owner, *found) if found else _plain(owner, X, check_rows(owner, X, reset=True))
        check_consistent_length(x, y)
        owner.classes_, places = _numbered(y)
        numbers = places.astype(float)[:, None]
        return cls._fitting(owner, X, x, sample_weight, lambda _: numbers)


def _are_labels(y: Any) -> bool:
    """Whether these are whole numbers, truth values or text in NumPy's array: all may be labels."""
    return type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biuU" and len(y) > 0


def _numbered(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The labels in order, and the place of that of each row among them; what cannot be labels is refused.

    >>> labels, places = _numbered(np.array(["b", "a", "b", "b"]))
    >>> labels.tolist(), places.tolist()
    (['a', 'b'], [1, 0, 1, 1])
    """
    if _are_labels(y):
        labels = np.unique(y)
        # where there are more scikit-learn asks whether they are
        if 2 * len(labels) <= len(y):
            return labels, np.searchsorted(labels, y)
    check_classification_targets(y)
    encoder = LabelEncoder().fit(y)
    return np.asarray(encoder.classes_), np.asarray(encoder.transform(y))


class TableInUnits(Table):
    """Rows in the units of the user, in which what is missing is drawn.

    `keeps_order` of the estimator says whether its fit sums over rows in any order, so that they are
    neither sorted nor merged.
    """

    @property
    def events(self) -> Rows:  # pyright: ignore[reportIncompatibleVariableOverride]
        assert self.rows is not None
        return self.rows

    @classmethod
    def arranged(
        cls, owner: Any, x: np.ndarray, weight: np.ndarray | None, known: np.ndarray | None
    ) -> Rows:
        if not owner.keeps_order:
            return canonical_rows(x, weight, owner.scaling_, known)
        if weight is None:
            return Rows(x, np.ones(len(x)), known)
        used = weight > 0
        return Rows(x[used], weight[used], None if known is None else known[used])


class LabelledInUnits(TableInUnits, LabelledTable):
    """Rows in the units of the user that come with a label each."""


class AnsweredTable(TableInUnits):
    """Rows that come with numbers to be predicted, one or several each.

    `answer_shape_` of the estimator is () or (outputs,), `answer_names_` has their names if they have any,
    and `answer_scaling_` how they are rescaled; the rescaled answers are the columns of `events.known`.
    """

    @classmethod
    def fitting(cls, owner: Any, X: Any, *, y: Any, sample_weight: Any = None, **beside: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Rows and answers to fit; `beside` has more numbers for each row, by name."""
        x, names = cls.validated(owner, X, reset=True), _names_of(y)
        answers = checked_answers(owner, y)
        check_consistent_length(x, answers)
        owner.answer_shape_, owner.answer_names_ = answers.shape[1:], names
        owner.answer_columns_ = AnswerColumns.of(y)
        flat = answers.reshape(len(answers), -1)
        weight = check_weight(x, sample_weight)
        owner.answer_scaling_ = owner._answer_scaling(flat, weight)
        more = [
            _beside(owner, name, values, len(x)) for name, values in beside.items() if values is not None
        ]
        known = np.column_stack([owner.answer_scaling_.apply(flat), *more])
        return cls._fitting(owner, X, x, sample_weight, lambda _: known)


def _names_of(y: Any) -> list[str] | None:
    """What a frame, or a column of one, calls its answers."""
    if library_of(y) is not None:
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return [name] if isinstance(name, str) and name else None


def checked_answers(owner: Any, y: Any) -> np.ndarray:
    """`y` as numbers, (rows,) or (rows, outputs); NaN only where the estimator takes unknown answers."""
    if y is None:
        # the sentence that scikit-learn's checks read
        raise ValueError(
            f"{type(owner).__name__} requires y to be passed, but the target y is None. Pass it."
        )
    if goes_as_it_is(y, 1):
        return y
    if _holds_text(y):
        raise ValueError(
            f"The 'y' of {type(owner).__name__} must hold numbers, not text or dates. For labels use a "
            "classifier, such as SoftmaxRegression."
        )
    options: Any = {"dtype": np.float64, "allow_nd": True}
    options["ensure_all_finite"] = "allow-nan" if owner.takes_unknown_answers else True
    answers: Any = check_array(y, ensure_2d=False, input_name="y", estimator=owner, **options)
    if answers.ndim > 2:
        raise ValueError(
            f"The 'y' of {type(owner).__name__} must have one axis, or two. Got the shape {answers.shape}."
        )
    if answers.ndim == 2 and answers.shape[1] == 1:
        # as scikit-learn has it
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. It is taken as one.",
            DataConversionWarning,
            stacklevel=6,
        )
        answers = answers[:, 0]
    return answers


def _holds_text(y: Any) -> bool:
    """Whether something is text or a date and no number."""
    if sparse.issparse(y):
        return False
    values = np.asarray(y)
    if values.dtype.kind == "O":
        return any(isinstance(value, str | datetime.date) for value in values.flat)
    return values.dtype.kind in "USTmM"


def _beside(owner: Any, name: str, values: Any, rows: int) -> np.ndarray:
    numbers = np.asarray(values, float)
    if numbers.shape != (rows,) or not np.isfinite(numbers).all():
        raise ValueError(
            f"The '{name}' of {type(owner).__name__}.fit must be a finite number for each row of X. "
            f"Got the shape {numbers.shape}."
        )
    return numbers


class Arrays(Table):
    """Samples of any shape, such as images (n, height, width) or (n, height, width, channels).

    The model sees events of that shape; `event_shape_` of the estimator has it, and everything that comes
    back to the user has it, too.  Entries are rescaled as the columns of a table are.
    """

    @classmethod
    def validated(cls, owner: Any, X: Any, *, reset: bool) -> np.ndarray:
        name, events = type(owner).__name__, np.asarray(X)
        if events.ndim < 2:
            raise ValueError(
                f"The X of {name} must have an axis for samples, and one or more for each of them. "
                f"Got the shape {events.shape} instead."
            )
        if reset:
            owner.event_shape_ = events.shape[1:]
        elif events.shape[1:] != owner.event_shape_:
            raise ValueError(
                f"The X of {name} must hold events of the shape {owner.event_shape_}, as that of fit. "
                f"Got {events.shape[1:]} instead."
            )
        return check_rows(owner, events.reshape(len(events), math.prod(events.shape[1:])), reset=reset)

    @classmethod
    def shaped(cls, owner: Any, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(len(rows), *owner.event_shape_)
