"""The promise that what is predicted of frames comes as columns of frames."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..shell import Predicts, PredictsDensities, PredictsProbabilities
from ._common import require


def frames_of(X: np.ndarray, y: np.ndarray) -> list[tuple[Any, Any]]:
    """Rows and answers as frames of Polars, and of pandas with labels of rows where that is there."""
    import polars as pl

    names = [f"column {i}" for i in range(X.shape[1])]
    several = [f"answer {i}" for i in range(y.shape[1])] if y.ndim == 2 else []
    answers: Any = pl.DataFrame(y, schema=several) if several else pl.Series("answer", y)
    frames: list[Any] = [(pl.DataFrame(X, schema=names), answers)]
    with contextlib.suppress(ImportError):
        import pandas as pd

        own = pd.Index([f"row {i}" for i in range(len(X))])
        answers = pd.DataFrame(y, own, pd.Index(several)) if several else pd.Series(y, own, name="answer")
        frames.append((pd.DataFrame(X, own, pd.Index(names)), answers))
    return frames


def check_predictions_of_frames(fitted: Any, frame: Any, y: Any = None) -> None:
    """What is predicted of a frame has the labels of its rows, and the names and labels of the answers.

    Args:
        fitted: an estimator that was fitted to a frame of the library, and to `y` if it is told answers.
        frame: rows to be asked about, of pandas or Polars.
        y: the answers of the fit: a column of the library, or a frame of several.

    `predict` gives a column as `y` is one, of the same name and, of labels that its type lists, of the same
    type; both ends of `predict_interval` are called lower and upper; `predict_proba` gives an array, as
    scikit-learn takes it, and with `set_output` a frame with a column for each label.

    >>> import freeenergy as fe, polars as pl
    >>> frame = pl.DataFrame({"a": [0.0, 1.0, 4.0, 5.0]})
    >>> kinds = pl.Series("kind", ["x", "x", "y", "y"])
    >>> check_predictions_of_frames(fe.NaiveBayes().fit(frame, kinds), frame, kinds)
    """
    if isinstance(fitted, Predicts):
        found = fitted.predict(frame)
        _check_column(found, frame, y, "predict()")
        listed = is_classifier(fitted) and getattr(y, "dtype", None)
        require(
            not listed or str(y.dtype) not in ("category", "Enum") or found.dtype == y.dtype,
            "predict() must keep a type that lists labels.",
        )
    if isinstance(fitted, PredictsDensities):
        for end, name in zip(fitted.predict_interval(frame), ("lower", "upper"), strict=True):
            _check_column(end, frame, y, "predict_interval()", name)
    if isinstance(fitted, PredictsProbabilities):
        _check_chances(fitted, frame)


def _check_column(found: Any, frame: Any, y: Any, method: str, name: str | None = None) -> None:
    several = len(getattr(y, "shape", ())) == 2
    wanted = type(frame) if several else type(_first(frame))
    require(
        isinstance(found, wanted),
        f"{method} of a {_library(frame)} frame must give a {wanted.__name__} of it, not "
        f"{type(found).__name__}: decorate it with `freeenergy.shell.framed`.",
    )
    _check_index(found, frame, method)
    if several:
        require(list(found.columns) == list(y.columns), f"{method} must keep the names of the answers.")
        return
    expected = getattr(y, "name", None) if name is None else name
    require((found.name or None) == (expected or None), f"{method} must keep the name of the answers.")


def _check_chances(fitted: Any, frame: Any) -> None:
    shares = fitted.predict_proba(frame)
    require(
        isinstance(shares, np.ndarray | list), "predict_proba() must be arrays where nothing was chosen."
    )
    asked = fitted.set_output(predict_proba=_library(frame)).predict_proba(frame)
    fitted.set_output(predict_proba="default")
    several = isinstance(shares, list)
    labels: Any = getattr(fitted, "classes_", range(np.shape(shares)[-1]))
    each = zip(asked, shares, labels, strict=True) if several else [(asked, shares, labels)]
    for told, own, names in each:
        require(isinstance(told, type(frame)), "predict_proba() must be of the library that was chosen.")
        _check_index(told, frame, "predict_proba()")
        require(
            [str(name) for name in told.columns] == [str(name) for name in names],
            "predict_proba() must have a column for each label.",
        )
        np.testing.assert_array_equal(np.asarray(told), own)


def _check_index(found: Any, frame: Any, method: str) -> None:
    index = getattr(frame, "index", None)
    require(index is None or found.index.equals(index), f"{method} must keep the index.")
    require(len(found) == len(frame), f"{method} must give an answer for each row.")


def _library(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _first(frame: Any) -> Any:
    return frame[frame.columns[0]]
