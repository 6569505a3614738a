"""Small data sets by name."""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Callable
from typing import Any

import numpy as np


class DataKind(enum.Enum):
    """What the rows of a data set are."""

    TABLE = "table"
    IMAGES = "images"
    SERIES = "series"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Data with what is known about it.

    Attributes:
        X: a row per sample; in a series, per time step.
        y: what is to be told from the row (numbers of classes, or values), or None.
        feature_names: of the columns of `X`.
        target_names: of the classes, or of the values in `y`.
        description: a sentence.
        kind: a table, images or a series.
        log_density: for synthetic data, the true log p(x) of each row, in nats.
    """

    X: np.ndarray
    y: np.ndarray | None
    feature_names: list[str]
    target_names: list[str]
    description: str
    kind: DataKind = DataKind.TABLE
    log_density: Callable[[np.ndarray], np.ndarray] | None = None


def bundled(bunch: Any, description: str, kind: DataKind = DataKind.TABLE) -> Dataset:
    """A data set that comes with scikit-learn."""
    names = [str(name) for name in bunch.feature_names]
    targets = [str(name) for name in getattr(bunch, "target_names", ["target"])]
    X = np.asarray(bunch.data, float)
    return Dataset(X, np.asarray(bunch.target), names, targets, description, kind)


def nearest(name: str, known: list[str]) -> str:
    """«Did you mean 'x'?», or the whole list if nothing is near."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
