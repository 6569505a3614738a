"""What is said of each row of a frame, as columns of a frame of that library.

`framed`, `framed_ends` and `framed_chances` decorate `predict`, `predict_interval` and `predict_proba`,
which work with arrays.  An estimator that is given answers remembers by `AnswerColumns.of` how they came.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ._frames import LIBRARIES, AbstractColumns, Values, column_as_frame, library_of
from ._schema import CodedRows

_CHOICES = ("default", "numpy", "pandas", "polars")


@dataclasses.dataclass(frozen=True)
class AnswerColumns:
    """How the answers of a fit came: as a column, or as a frame.

    Attributes:
        library: "pandas" or "polars".
        names: what the columns are called; None of one without a name.
        types: the type of each column, as `Values` without entries.

    >>> import polars as pl
    >>> AnswerColumns.of(pl.Series("size", [1, 2])).names
    ('size',)
    >>> AnswerColumns.of([1, 2]) is None
    True
    """

    library: str
    names: tuple[Any, ...]
    types: tuple[Values, ...]

    @staticmethod
    def of(y: Any) -> AnswerColumns | None:
        """Those of a frame or a column of pandas or Polars; None of anything else."""
        column = column_as_frame(y)
        frame = y if column is None else column
        library = library_of(frame)
        if not isinstance(library, AbstractColumns):
            return None
        names = library.names(frame)
        types: list[Values] = []
        # of no type that is read, nothing is remembered but the name
        with contextlib.suppress(TypeError):
            types = [library.read(frame[:0], place) for place in range(len(names))]
        if column is not None and getattr(y, "name", None) in (None, ""):
            names = [None]
        return AnswerColumns(library.name, tuple(names), tuple(types))


class SetsOutput:
    """Lets the user choose the library of what `transform`, `predict` and `predict_proba` give."""

    def set_output(
        self, *, transform: str | None = None, predict: str | None = None, predict_proba: str | None = None
    ) -> Self:
        """Chooses the library of what comes back, as scikit-learn does for `transform`.

        Args:
            transform: "pandas", "polars" or "default", an array.
            predict: "pandas", "polars", "numpy" or "default": for a frame a column of its library, but an
                array where the answers of the fit were one.  It holds for `predict_interval`, too.
            predict_proba: "pandas", "polars", "numpy" or "default", an array, since scikit-learn takes
                columns of it by their numbers.  Frames have the labels for names.

        None leaves a choice as it is.

        >>> import freeenergy as fe
        >>> model = fe.NaiveBayes().fit([[0.0], [1.0], [4.0], [5.0]], ["a", "a", "b", "b"])
        >>> model.set_output(predict_proba="polars").predict_proba([[2.5]]).columns
        ['a', 'b']
        """
        name = type(self).__name__
        asked = {"transform": transform, "predict": predict, "predict_proba": predict_proba}
        chosen = {method: library for method, library in asked.items() if library is not None}
        for method, library in chosen.items():
            told = getattr(self, method, None)
            if told is None or not (method == "transform" or getattr(told, "asks_for_library", False)):
                raise ValueError(f"{name} has no {method} of which set_output could choose the library.")
            choices = [c for c in _CHOICES if (method, c) != ("transform", "numpy")]
            if library not in choices:
                words = ", ".join(map(repr, choices))
                raise ValueError(
                    f"The '{method}' of {name}.set_output must be one of {words}, or None. "
                    f"Got {library!r} instead."
                )
        # where scikit-learn keeps the choice, and `clone` looks for it
        vars(self)["_sklearn_output_config"] = {**vars(self).get("_sklearn_output_config", {}), **chosen}
        return self


def framed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes of a method that gives an array, an answer for each row, one that gives columns for frames.

    The column has the labels of the rows; the name and the labels that the answers of the fit had, a frame
    of several columns too.  Where these were an array it is one, unless `set_output` chose otherwise.

    >>> import freeenergy as fe, polars as pl
    >>> frame = pl.DataFrame({"a": [0.0, 1.0, 4.0, 5.0]})
    >>> model = fe.NaiveBayes().fit(frame, pl.Series("kind", ["x", "x", "y", "y"]))
    >>> model.predict(pl.DataFrame({"a": [5.0]})).to_frame().to_dicts()
    [{'kind': 'y'}]
    """

    @functools.wraps(method)
    def told(self: Any, X: Any, *args: Any, **given: Any) -> Any:
        return _answers(self, X, method(self, X, *args, **given))

    return _choosing(told)


def framed_ends(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same for both ends of intervals, which are called lower and upper.

    >>> import freeenergy as fe, polars as pl
    >>> frame = pl.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]})
    >>> low, high = fe.BaseRate().fit(frame, pl.Series("b", [1.0, 2.0, 4.0, 3.0])).predict_interval(frame)
    >>> low.name, high.name
    ('lower', 'upper')
    """

    @functools.wraps(method)
    def told(self: Any, X: Any, *args: Any, **given: Any) -> Any:
        low, high = method(self, X, *args, **given)
        return _answers(self, X, low, name="lower"), _answers(self, X, high, name="upper")

    return _choosing(told)


def framed_chances(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the probabilities of each label, or lists of them: arrays, unless others were chosen.

    >>> import freeenergy as fe
    >>> model = fe.GaussianMixture(2, random_state=0).fit([[0.0], [0.1], [9.0], [9.1]])
    >>> model.set_output(predict_proba="polars").predict_proba([[1.0]]).columns
    ['0', '1']
    """

    @functools.wraps(method)
    def told(self: Any, X: Any, *args: Any, **given: Any) -> Any:
        found = method(self, X, *args, **given)
        wanted = _chosen(self, "predict_proba")
        if wanted in ("default", "numpy"):
            return found
        library, index = _library(wanted), _index(X, wanted)
        several = found if isinstance(found, list) else [found]
        labels = getattr(self, "classes_", np.arange(several[0].shape[1]))
        labels = labels if isinstance(found, list) else [labels]
        types = _types(self, wanted) or [None] * len(several)
        made = [
            _chances(shares, library.answers(own, read), library, index)
            for shares, own, read in zip(several, labels, types, strict=True)
        ]
        return made if isinstance(found, list) else made[0]

    return _choosing(told)


def _choosing(told: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a method that asks what `set_output` chose."""
    vars(told)["asks_for_library"] = True
    return told


def _chances(shares: np.ndarray, labels: Any, library: AbstractColumns, index: Any) -> Any:
    columns = [library.answers(share, None) for share in shares.T]
    return library.frame(dict(zip(labels, columns, strict=True)), index)


def _chosen(owner: Any, method: str) -> str:
    return vars(owner).get("_sklearn_output_config", {}).get(method, "default")


def _library(name: str) -> AbstractColumns:
    # what makes a frame is there where one is asked for
    importlib.import_module(name)
    library = LIBRARIES[name]
    assert isinstance(library, AbstractColumns)
    return library


def _passed(X: Any) -> Any:
    return X.passed if isinstance(X, CodedRows) else X


def _index(X: Any, name: str) -> Any:
    """The labels of the rows of X, where a frame of that library has such."""
    own = library_of(_passed(X))
    return own.index(_passed(X)) if own is not None and own.name == name else None


def _wanted(owner: Any, X: Any) -> str:
    """The library of what `predict` gives."""
    chosen = _chosen(owner, "predict")
    if chosen != "default":
        return chosen
    # who passed answers as an array counts with arrays, as estimators of scikit-learn do that are made of
    # others: they give these frames, and reshape what is predicted
    given = vars(owner)
    if "answer_columns_" in given and given["answer_columns_"] is None:
        return "numpy"
    own = library_of(_passed(X))
    return own.name if isinstance(own, AbstractColumns) else "numpy"


def _types(owner: Any, library: str) -> tuple[Values, ...]:
    """The types that labels had in the fit, if they came in this library."""
    columns: AnswerColumns | None = vars(owner).get("answer_columns_")
    # numbers that are means of answers are no answers, and need not be of their type
    known = columns is not None and columns.library == library and "classes_" in vars(owner)
    return columns.types if columns is not None and known else ()


def _holding(labels: np.ndarray, read: Values) -> Values:
    """A type that lists its labels with those that it lacks: parts that were fitted may differ in them."""
    known = set(read.labels)
    extra = tuple(label for label in dict.fromkeys(labels.tolist()) if label not in known)
    return read._replace(labels=read.labels + extra) if read.declared and extra else read


def _answers(owner: Any, X: Any, found: Any, *, name: str | None = None) -> Any:
    """An array with an answer, or several, for each row, as columns of the library of X."""
    wanted = _wanted(owner, X)
    if wanted == "numpy" or not isinstance(found, np.ndarray):
        return found
    library, index = _library(wanted), _index(X, wanted)
    columns: AnswerColumns | None = vars(owner).get("answer_columns_")
    outputs = found.reshape(len(found), -1)
    # ends of intervals are no labels
    types = _types(owner, wanted) if name is None else ()
    names = (None,) * outputs.shape[1] if columns is None else columns.names
    made = [
        library.answers(part, _holding(part, types[k]) if types else None)
        for k, part in enumerate(outputs.T)
    ]
    if found.ndim > 1:
        titles = [f"y{k}" if title is None else title for k, title in enumerate(names)]
        return library.frame(dict(zip(titles, made, strict=True)), index)
    return library.series(made[0], names[0] if name is None else name, index)
