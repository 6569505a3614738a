"""One column of a table: what its values are, their codes, and how its kind is found."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from ._frames import NO_TIME, NOT_NUMBERS, Form, Values
from ._support import Column, Grid, is_whole

# a date as computers write it, with or without a time of day
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?![0-9])")
# so many values at least before any is taken for an identifier or for text
_FEW = 20
# the most labels of a column that nobody declared
_MOST_LABELS = 1000
# text has more characters than names of things
_LONG = 30
# the variance of counts in units of their mean, which is one for independent events at one rate
_DISPERSION = (0.2, 20.0)
# how far from a value of a grid, in steps, one is that was read and not inferred
_ON_GRID = 1e-9

LABELS = (Column.BINARY, Column.CATEGORY, Column.ORDERED)
LEFT_OUT = (Column.IDENTIFIER, Column.TEXT)
_LIKENESS = {Column.IDENTIFIER: "an identifier", Column.CONSTANT: "a constant"}
_SENTENCES = {
    Column.CONTINUOUS: "Has a density.",
    Column.ROUNDED: "Rounded to a grid: each value has a probability.",
    Column.INTEGER: "Whole numbers: each has a probability.",
    Column.COUNT: "Counts: each has a probability.",
    Column.BINARY: "Two values, as 0 and 1.",
    Column.CATEGORY: "Labels, as 0, 1, 2, … in this order, which means nothing.",
    Column.ORDERED: "Labels with an order, as 0, 1, 2, …",
    Column.DATE: "Time since the first one.",
    Column.CONSTANT: "One value: certain, and no part of the model.",
    Column.IDENTIFIER: "Every value occurs once: left out. Declare its kind to keep it.",
    Column.TEXT: "Many different texts: left out. Declare it a category to keep it.",
}


@dataclasses.dataclass(frozen=True)
class Field:
    """What is known of one column.

    Attributes:
        name: its name, or its number where columns have none.
        kind: what its values are.
        categories: the labels that have the codes 0, 1, 2, …; of a constant column its one value.
        step, origin: the grid of rounded numbers; the step is 1 for whole units of time.
        unit: of dates, "day" or "second".
        since: the date that is zero, in units of `tick` since 1970.
        tick, zone: the unit that dates are stored in, and their time zone.
        form: whether the values come as numbers, truth values, labels or times.
        dtype: the type to give back, as the library calls it.
        whole: whether that type has whole numbers only.
        missing: the share of entries that are.
        note: what else is to be said.
    """

    name: Any
    kind: Column
    categories: tuple[Any, ...] = ()
    step: float = 0.0
    origin: float = 0.0
    unit: str = ""
    since: int = 0
    tick: str = "us"
    zone: str | None = None
    form: Form = Form.NUMBER
    dtype: str = "float64"
    whole: bool = False
    missing: float = 0.0
    note: str = ""

    @property
    def modelled(self) -> bool:
        """Whether models are given the column."""
        return self.kind not in (*LEFT_OUT, Column.CONSTANT)

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers (or truth values, or times) of themselves."""
        return self.form is not Form.LABEL and self.kind not in (Column.CATEGORY, Column.ORDERED)

    @property
    def likeness(self) -> str:
        """What a column that is not modelled looks like, with its article."""
        return _LIKENESS.get(self.kind, self.kind.value)

    @property
    def treatment(self) -> str:
        """What is done with it, in a sentence."""
        return f"{_SENTENCES[self.kind]} {self.note}".strip()

    @property
    def looks(self) -> str:
        """What its values look like, in a few words."""
        if self.categories:
            shown = [repr(label) for label in self.categories[:4]]
            more = [f"… {len(self.categories)} in all"] if len(self.categories) > 4 else []
            return ", ".join(shown + more)
        if self.kind is Column.ROUNDED:
            return f"steps of {self.step:g}"
        if self.kind is Column.DATE:
            since = np.array(self.since).astype(f"M8[{self.tick}]")
            midnight = since.astype("M8[D]")
            return f"{self.unit}s since {midnight if midnight == since else since}"
        return ""

    def told(self, code: float) -> str:
        """What a number stands for, in words: a label, a date, or the number; nothing where it is missing.

        >>> Field("sex", Column.BINARY, ("f", "m")).told(1.0)
        'm'
        """
        if np.isnan(code):
            return ""
        if self.kind in LABELS and self.categories:
            return str(self.categories[int(_places(np.array([code]), len(self.categories))[0])])
        if self.kind is Column.DATE:
            ticks = np.array(self.decode(np.array([code])).values[0]).astype(f"M8[{self.tick}]")
            return str(ticks.astype(f"M8[{'D' if self.unit == 'day' else 's'}]")).replace("T", " ")
        # four digits, and all of those before the point
        return f"{round(code):.7g}" if code == round(code) or abs(code) >= 1e4 else f"{code:.4g}"

    # -- codes ------------------------------------------------------------------------------------

    def encode(self, read: Values, refuse: Any) -> np.ndarray:
        """The entries as numbers, NaN where missing; `refuse(problem, row, value)` where one cannot be."""
        if self.kind in LABELS or self.kind is Column.CONSTANT:
            return self._codes(read, refuse)
        if self.kind is Column.DATE:
            return self._since(read, refuse)
        if read.form is Form.LABEL or read.form is Form.TIME:
            what = "text" if read.form is Form.LABEL else "dates"
            self._refuse_any(read, ~read.missing, f"{NOT_NUMBERS}, not {what}.", refuse)
            return np.full(len(read.values), np.nan)
        infinite = np.isinf(read.values)
        if infinite.any():
            problem = "X must hold finite numbers, or NaN where nothing was observed, not infinity."
            self._refuse_any(read, infinite, problem, refuse)
        return read.values

    def _refuse_any(self, read: Values, bad: np.ndarray, problem: str, refuse: Any) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            value = read.values[row]
            shown = read.labels[int(value)] if read.form is Form.LABEL else float(value)
            refuse(problem, row, shown if isinstance(shown, (str, float)) else str(shown))

    def _codes(self, read: Values, refuse: Any) -> np.ndarray:
        if read.form is Form.LABEL:
            place = {label: code for code, label in enumerate(self.categories)}
            codes = np.array([*(place.get(label, np.nan) for label in read.labels), np.nan])[read.values]
        elif read.form is Form.TIME:
            codes = np.where(np.isin(read.values, self.categories), 0.0, np.nan)
        elif all(isinstance(label, (int, float)) for label in self.categories):
            labels = np.array(self.categories, float)
            order = np.argsort(labels)
            near = order[np.searchsorted(labels, read.values, sorter=order).clip(max=len(labels) - 1)]
            codes = np.where(labels[near] == read.values, near, np.nan)
        else:
            codes = np.full(len(read.values), np.nan)
        unseen = np.isnan(codes) & ~read.missing
        if self.kind is Column.CONSTANT:
            problem = (
                f"Every entry of the column was {self.categories[0]!r} when it was fitted. Declare its "
                "kind to have a model of it."
            )
        else:
            problem = (
                f"A category must be among those that were fitted: {self.looks}. Pass it as missing, or "
                "fit with a schema that lists it."
            )
        self._refuse_any(read, unseen, problem, refuse)
        return codes

    def _since(self, read: Values, refuse: Any) -> np.ndarray:
        if read.form is not Form.TIME:
            self._refuse_any(read, ~read.missing, "A column of dates must hold dates.", refuse)
            return np.full(len(read.values), np.nan)
        read = read.with_tick(self.tick) if read.ticks_a_day < self._ticks_a_day else read
        zero = self.since * read.ticks_a_day // self._ticks_a_day
        gone = read.missing
        # whole numbers are subtracted before any digit is lost
        gap = np.where(gone, 0, read.values - zero) / (read.ticks_a_day / self._units_a_day)
        return np.where(gone, np.nan, gap)

    @property
    def _ticks_a_day(self) -> int:
        return Values(Form.TIME, np.empty(0), "", tick=self.tick).ticks_a_day

    @property
    def _units_a_day(self) -> int:
        return 1 if self.unit == "day" else 86_400

    def decode(self, codes: np.ndarray) -> Values:
        """The entries that numbers stand for."""
        if self.kind is Column.CONSTANT:
            codes = np.zeros(len(codes))
        options: dict[str, Any] = {"whole": self.whole, "zone": self.zone}
        if self.kind is Column.DATE:
            scale = self._ticks_a_day / self._units_a_day
            # where all were whole days none is at noon
            codes = np.rint(codes) if self.step else codes
            gone = np.isnan(codes)
            ticks = np.rint(np.where(gone, 0.0, codes) * scale).astype(np.int64) + self.since
            values = np.where(gone, NO_TIME, ticks)
            return Values(Form.TIME, values, self.dtype, tick=self.tick, **options)
        if not self.categories:
            # a model of continuous columns may draw a count below zero
            numbers = np.where(codes < 0, 0.0, codes) if self.kind is Column.COUNT else codes
            if self.kind is Column.ROUNDED:
                # what a model of continuous columns draws between two values of the grid cannot occur
                nearest = Grid(self.origin, self.step).snap(numbers)
                # one that is on the grid keeps its last digits
                numbers = np.where(np.abs(numbers - nearest) <= _ON_GRID * self.step, numbers, nearest)
            return Values(self.form, numbers, self.dtype, **options)
        places = _places(codes, len(self.categories))
        if self.form is Form.LABEL:
            ordered = self.kind is Column.ORDERED
            return Values(Form.LABEL, places, self.dtype, self.categories, ordered=ordered, **options)
        if self.form is Form.TIME:
            values = np.array([*self.categories, NO_TIME])[places]
            return Values(Form.TIME, values, self.dtype, tick=self.tick, **options)
        return Values(self.form, np.array([*self.categories, np.nan], float)[places], self.dtype, **options)


def _places(codes: np.ndarray, size: int) -> np.ndarray:
    """The places of labels, −1 where missing; a model of continuous columns may go beyond the last one."""
    gone = np.isnan(codes)
    return np.where(gone, -1, np.clip(np.rint(np.where(gone, 0, codes)), 0, size - 1)).astype(np.int64)


# ---------------------------------------------------------------------------------------------
# recognition
# ---------------------------------------------------------------------------------------------


def field_of(name: Any, read: Values, declared: Any) -> Field:
    """What a column is: as it was declared, or as its values look."""
    missing = read.missing
    field = Field(
        name,
        Column.CONSTANT,
        form=read.form,
        dtype=read.dtype,
        whole=read.whole,
        tick=read.tick,
        zone=read.zone,
        missing=float(missing.mean()) if len(missing) else 0.0,
    )
    if not isinstance(declared, (str, Column, type(None))):
        return _listed(field, read, tuple(declared))
    seen = read.values[~missing]
    if declared is not None:
        kind = _declared(name, declared)
    elif not len(seen):
        return dataclasses.replace(field, kind=Column.CONTINUOUS, note="Nothing was observed.")
    else:
        kind = _kind_of(read, seen)
    return _as_kind(field, kind, read, seen, declared is not None)


def _declared(name: Any, kind: Any) -> Column:
    try:
        return Column(kind)
    except ValueError:
        words = ", ".join(repr(column.value) for column in Column)
        raise ValueError(
            f"The kind of column {name!r} must be of {words}, or a list of its labels in order. "
            f"Got {kind!r} instead."
        ) from None


def _listed(field: Field, read: Values, labels: tuple[Any, ...]) -> Field:
    """A column of labels that the user lists, in their order."""
    found = dataclasses.replace(field, kind=Column.ORDERED, categories=labels)

    def refuse(problem: str, row: int, value: Any) -> None:
        raise ValueError(
            f"The labels of column {field.name!r} must list all that occur. "
            f"Got {value!r}, which is not listed."
        )

    found.encode(read, refuse)
    return found


def _kind_of(read: Values, seen: np.ndarray) -> Column:
    """What the observed entries of a column look like."""
    if read.form is Form.LABEL:
        return _kind_of_labels(read, seen)
    if (seen == seen[0]).all():
        return Column.CONSTANT
    if read.form is Form.TIME:
        return Column.DATE
    if read.form is Form.FLAG or np.isin(seen, (0.0, 1.0)).all():
        return Column.BINARY
    if is_whole(seen):
        if read.whole and _runs(seen):
            return Column.IDENTIFIER
        return Column.COUNT if _are_counts(seen) else Column.INTEGER
    return Column.CONTINUOUS if Grid.find(seen) is None else Column.ROUNDED


def _are_counts(seen: np.ndarray) -> bool:
    """Whether whole numbers may be those of events: none below zero, and spread about as these are."""
    if (seen < 0).any():
        return False
    low, high = _DISPERSION
    return len(seen) < _FEW or bool(low <= seen.var() / seen.mean() <= high)


def _runs(seen: np.ndarray) -> bool:
    """Whether whole numbers look like those of the rows: none twice, and ever rising or without a gap."""
    if len(seen) < _FEW:
        return False
    if (np.diff(seen) > 0).all():
        return True
    return np.ptp(seen) == len(seen) - 1 and len(np.unique(seen)) == len(seen)


def _kind_of_labels(read: Values, seen: np.ndarray) -> Column:
    labels = read.labels
    if len(labels) <= 1:
        return Column.CONSTANT
    if len(labels) == 2:
        return Column.BINARY
    if read.declared:
        return Column.ORDERED if read.ordered else Column.CATEGORY
    if len(seen) < _FEW or (2 * len(labels) <= len(seen) and len(labels) <= _MOST_LABELS):
        return Column.CATEGORY
    length = np.mean([len(label) for label in labels[:1000]])
    return Column.IDENTIFIER if len(labels) == len(seen) and length < _LONG else Column.TEXT


def _as_kind(field: Field, kind: Column, read: Values, seen: np.ndarray, declared: bool) -> Field:
    """The field of a column of that kind, refused if its values cannot be of it."""

    def refuse(expected: str) -> None:
        shown = (
            read.labels[0]
            if read.form is Form.LABEL and read.labels
            else seen[0]
            if len(seen)
            else "nothing"
        )
        raise ValueError(
            f"Column {field.name!r} is declared {kind.value} and must hold {expected}. Got {shown!r}."
        )

    if kind in LEFT_OUT:
        return dataclasses.replace(field, kind=kind)
    if kind is Column.DATE:
        if read.form is not Form.TIME:
            refuse("dates")
        return _dates(field, read, seen)
    if kind in LABELS or kind is Column.CONSTANT:
        categories = _categories(read, seen)
        if kind is Column.CONSTANT and len(categories) > 1:
            refuse("one value")
        if kind is Column.BINARY and len(categories) > 2:
            refuse("two values")
        note = ""
        if not declared and read.form is Form.LABEL and not read.declared:
            if _numerals(categories):
                note = "They are numbers written as text; convert the column to have numbers."
            elif all(_DATE.match(str(label)) for label in categories):
                note = "They are dates written as text; convert the column to have times."
        return dataclasses.replace(field, kind=kind, categories=categories, note=note)
    if read.form in (Form.LABEL, Form.TIME):
        refuse("numbers")
    if kind in (Column.COUNT, Column.INTEGER):
        good = is_whole(seen) and (kind is Column.INTEGER or (seen >= 0).all())
        if not good:
            refuse("whole numbers" + (" from zero on" if kind is Column.COUNT else ""))
    if kind is Column.ROUNDED:
        grid = Grid.find(seen)
        if grid is None:
            refuse("values on a grid, some of them more than once")
        assert grid is not None
        return dataclasses.replace(field, kind=kind, step=grid.step, origin=grid.origin)
    return dataclasses.replace(field, kind=kind)


def as_number(field: Field) -> Field:
    """A column of one number as numbers like others; other columns as they are."""
    constant = field.kind is Column.CONSTANT and field.form is Form.NUMBER
    return dataclasses.replace(field, kind=Column.CONTINUOUS, categories=()) if constant else field


def _categories(read: Values, seen: np.ndarray) -> tuple[Any, ...]:
    if read.form is Form.LABEL:
        for label in read.labels:
            if not isinstance(label, (str, int, float)):
                raise ValueError(
                    f"Categories must be text, numbers or truth values. Got {label!r} instead."
                )
        return read.labels
    values = np.unique(seen)
    if read.form is Form.FLAG:
        return (False, True) if len(values) > 1 else tuple(bool(v) for v in values)
    if read.form is Form.TIME or (read.whole or is_whole(values)):
        return tuple(int(v) for v in values)
    return tuple(float(v) for v in values)


def _numerals(labels: tuple[Any, ...]) -> bool:
    try:
        return all(np.isfinite(float(label)) for label in labels)
    except (TypeError, ValueError):
        return False


def _dates(field: Field, read: Values, seen: np.ndarray) -> Field:
    first = int(seen.min()) if len(seen) else 0
    day = read.ticks_a_day
    whole_days = bool((seen % day == 0).all())
    zero = first // day * day
    unit = day if whole_days else max(day // 86_400, 1)
    step = 1.0 if bool(((seen - zero) % unit == 0).all()) else 0.0
    return dataclasses.replace(
        field, kind=Column.DATE, unit="day" if whole_days else "second", since=zero, step=step
    )
