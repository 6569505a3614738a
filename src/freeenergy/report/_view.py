"""A comparison as the sections of the report see it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import plots
from .._core import Kind
from ..shell import Column, Field
from ..shell._time import in_words
from ._html import NOTHING, Cell, bitmap, breakable, escape, with_error, word_cell

# bits are code lengths, −log₂ p: a lower bound of log p bounds them from above
SIGN = {Kind.EXACT: "", Kind.LOWER: "≤ ", Kind.UPPER: "≥ ", Kind.ESTIMATE: "≈ "}
_LN2 = math.log(2)
_COLUMNS = 8
_GROUPS = 20


class View:
    """A comparison as the sections see it."""

    def __init__(self, board: Any, image_shape: tuple[int, int] | None):
        self.board = board
        self.lines = board.table()
        self.short = plots.short_names([line.model for line in self.lines])
        # those that were fitted, and those of them that have bits
        self.fitted = [line for line in self.lines if line.error is None]
        self.good = [line for line in self.fitted if line.scored]
        self.sequences = isinstance(board.examples, list) or np.ndim(board.examples) == 3
        # what is held out: rows, series, or the steps of one
        self.units = "rows" if not self.sequences else "series" if len(board.examples) > 1 else "steps"
        self.unit = {"rows": "row", "series": "series", "steps": "step"}[self.units]
        self.shape = image_shape or self._recognised_shape()

    def name(self, model: str) -> str:
        """The short name of a model as HTML, with its whole label where a mouse rests on it."""
        short = self.short[model]
        if short == model:
            return breakable(model)
        return f'<span title="{escape(model)}">{breakable(short)}</span>'

    @functools.cached_property
    def fields(self) -> list[Field]:
        """What is known of each column of the examples."""
        schema = getattr(self.board, "schema", None)
        if schema is not None:
            return list(schema.modelled)
        pairs = zip(self.board.feature_names, self.board.support.kinds, strict=True)
        return [Field(name, kind) for name, kind in pairs]

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """Which columns hold labels or truth values, whose codes are no numbers."""
        two = Column.BINARY
        return np.array([not field.numeric or field.kind is two for field in self.fields], bool)

    @functools.cached_property
    def dates(self) -> list[str] | None:
        """The times of the steps of the examples, where they are known and the same for all."""
        times = getattr(self.board, "times", None)
        if not times:
            return None
        longest = max(times, key=len)
        if any(not np.array_equal(own, longest[: len(own)]) for own in times):
            return None
        return [in_words(time) for time in longest]

    @property
    def unit_names(self) -> list[str] | None:
        """What the user calls the series, or the steps of a single one; None where they are numbered."""
        if self.units == "series":
            return getattr(self.board, "series_names", None)
        return self.dates if self.units == "steps" else None

    def unit_name(self, number: int) -> str:
        """What the user calls a row, a series or a step."""
        names = self.unit_names
        return str(number) if names is None else names[number]

    def _recognised_shape(self) -> tuple[int, int] | None:
        """Square images: columns called `pixel…`, or a square number (≥ 16) of columns of whole numbers."""
        names = [str(name) for name in self.board.feature_names]
        side = math.isqrt(len(names))
        if self.sequences or side**2 != len(names) or side < 2:
            return None
        pixels = all(name.startswith("pixel") for name in names)
        whole = len(names) >= 16 and not self.board.support.continuous.any()
        return (side, side) if pixels or whole else None

    def folds(self, model: str) -> list[Any]:
        return [result for result in self.board.results if result.model == model and result.error is None]

    def first(self, model: str, field: str) -> Any:
        """A field that only one fold of a model has, or None; in the others it is None, empty or zero."""
        found = [getattr(fold, field) for fold in self.folds(model)]
        return next((value for value in found if isinstance(value, np.ndarray) or value), None)

    @functools.cached_property
    def numbers(self) -> bool:
        """Whether numbers were to be told from rows."""
        return any("RMSE" in line.measures for line in self.board.predictions())

    @property
    def answer(self) -> str:
        """What these are called."""
        name = getattr(self.board.y, "name", None)
        return name if isinstance(name, str) and name else "y"

    @functools.cached_property
    def groups(self) -> np.ndarray | None:
        """The label of each row, if labels were passed and are few."""
        labels = None if self.board.y is None or self.numbers else np.asarray(self.board.y)
        if labels is None or labels.ndim != 1:
            return None
        words = np.array([str(label) for label in labels.tolist()])
        return words if len(np.unique(words)) <= _GROUPS else None

    @functools.cached_property
    def bits(self) -> dict[str, np.ndarray]:
        """Code length of each row under each model; NaN where it was never held out."""
        folds = [fold for line in self.good for fold in self.folds(line.model)]
        size = 1 + max((int(np.max(fold.rows, initial=-1)) for fold in folds), default=-1)
        found = {line.model: np.full(size, np.nan) for line in self.good}
        for fold in folds:
            found[fold.model][fold.rows] = -fold.nats / _LN2
        return found

    @functools.cached_property
    def limits(self) -> tuple[float, float]:
        """Least and largest value of the examples, which are white and black in pictures."""
        values = np.asarray(self.board.examples, float)
        return float(np.nanmin(values)), float(np.nanmax(values))

    def described(self, rows: Sequence[int]) -> tuple[list[tuple[str, str]], list[list[Cell]]]:
        """Heads and cells that show what single rows are: a picture, or the values of a few columns."""
        if self.sequences or not len(self.board.examples):
            return [], [[] for _ in rows]
        places = {int(row): place for place, row in enumerate(self.board.example_rows)}
        X = np.asarray(self.board.examples, float)[[places[row] for row in rows]]
        if self.shape is not None:
            pictures = [bitmap(x.reshape(self.shape), self.limits, f"row {r}") for r, x in zip(rows, X)]
            return [("image", "")], [[Cell(picture)] for picture in pictures]
        chosen = plots.telling_columns(np.asarray(self.board.examples, float), _COLUMNS)
        heads = [(str(self.board.feature_names[j]), "value") for j in chosen]
        return heads, [[told_cell(self.fields[j], x[j]) for j in chosen] for x in X]


def told_cell(field: Field, code: float) -> Cell:
    """A value in the words of the user."""
    if np.isnan(code):
        return NOTHING
    words = field.told(float(code))
    if not field.numeric:
        return word_cell(words)
    return Cell(words.replace("-", "−") if field.unit == "" else words)


def about(line: Any) -> str:
    """Bits per sample of a line of the table with sign and error."""
    return with_error(line.bits, line.bits_stderr, sign=SIGN[line.kind]).text
