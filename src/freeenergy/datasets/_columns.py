"""Columns of files: text that stands for numbers, truth values or times as these, and as floats."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._packed import inside

# what people write where nothing was observed, in lower case
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "missing", "?", "-", ".")
_MOST_LABELS = 100
# entries by which it is seen soon that a column is something else
_SOME = 50
# whole numbers beyond this are no longer told apart as floats
_LARGEST_EXACT = 2.0**53
_NUMBER = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)"
_IS_NUMBER = re.compile(_NUMBER, re.IGNORECASE)
_WITH_COMMA = re.compile(r"[+-]?\d*(?:,\d+)+(?:\.\d*)?(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WITH_POINTS = re.compile(r"[+-]?\d{1,3}(?:[.' \u00a0\u202f]\d{3})+(?:[.,]\d*)?", re.ASCII)


def row_number(place: int, lines: np.ndarray | None) -> str:
    """The number of a row, counted from one, and its line."""
    return f"{place + 1}" + ("" if lines is None else f" (line {lines[place]})")


@dataclasses.dataclass(frozen=True)
class File:
    """What a file holds: columns by name (arrays or Polars series), and how it was read."""

    name: str
    columns: Mapping[str, Any]
    lines: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    twice: frozenset[str] = frozenset()
    decimal: str = "."

    def cell(self, place: int, title: str) -> str:
        """Where a cell is, in words that begin a sentence."""
        return f"Row {row_number(place, self.lines)}, column {title!r} of {inside(self.name)}"


def is_number(field: str, decimal: str = ".") -> bool:
    """Whether a field of a file is a number.

    >>> is_number(" 1e3 "), is_number("1,5"), is_number("1,5", ","), is_number("1.5", ",")
    (True, False, True, False)
    """
    if decimal == ",":
        field = "with a point" if "." in field else field.replace(",", ".")
    return _IS_NUMBER.fullmatch(field.strip()) is not None


def has_decimal_comma(field: str) -> bool:
    """Whether a field is a number with a comma in it."""
    return _WITH_COMMA.fullmatch(field) is not None


def option(name: str, title: str) -> str:
    """An option of the command line that names a column."""
    return f"--{name} {shlex.quote(title)}"


# ---------------------------------------------------------------------------------------------
# text as what it stands for
# ---------------------------------------------------------------------------------------------


def known(column: Any) -> Any:
    """Strings without spaces around them, null where they are a word for nothing."""
    labels = column.unique()
    if 2 * len(labels) < len(column) and known(labels).equals(labels, null_equal=True):
        return column  # of few labels it is soon known that they are clean
    text = column.str.strip_chars()
    # nearly all such words are short
    short = text.str.len_bytes() <= max(map(len, MISSING))
    missing = short & text.str.to_lowercase().is_in(MISSING)
    return text.set(missing.fill_null(False), None)


def typed(column: Any, decimal: str = ".") -> Any:
    """A column of a file as whole numbers, numbers, truth values, days, times or, if none of them, text."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    some = column.drop_nulls().head(_SOME)
    for reading in (_whole_numbers, _floats) if decimal == "." else ():
        # most columns are clean numbers
        if len(some) and reading(some).null_count() == 0:
            found = reading(column)
            if found.null_count() == column.null_count():
                return found if reading is _whole_numbers else found.fill_nan(None)
    text = known(column)
    if text.null_count() == len(text):
        return text.cast(pl.Float64)
    some = text.drop_nulls().head(_SOME)
    for reading in (_whole_numbers, _floats, _truths, _days, _times):
        if _read_by(reading, some, decimal) is None:
            continue
        found = _read_by(reading, text, decimal)
        if found is not None:
            return found
    return text


def _read_by(reading: Any, text: Any, decimal: str) -> Any:
    """A column in one reading; None if some entries have none."""
    found = reading(_with_point(text) if decimal == "," and reading is _floats else text)
    return None if found is None or found.null_count() > text.null_count() else found


def _with_point(text: Any) -> Any:
    """Numbers with a decimal comma; where there is a point, nobody knows what it is."""
    import polars as pl

    return pl.select(
        pl.when(text.str.contains(".", literal=True))
        .then(pl.lit("with a point"))
        .otherwise(text.str.replace(",", ".", literal=True))
    ).to_series()


def _whole_numbers(text: Any) -> Any:
    import polars as pl

    return text.cast(pl.Int64, strict=False)


def _floats(text: Any) -> Any:
    import polars as pl

    return text.cast(pl.Float64, strict=False)


def _truths(text: Any) -> Any:
    import polars as pl

    return text.str.to_lowercase().replace_strict(
        ["true", "false"], [True, False], default=None, return_dtype=pl.Boolean
    )


# only the order year, month, day is beyond doubt
_DAY = r"^\d{4}-\d\d-\d\d"


def _days(text: Any) -> Any:
    first = text.drop_nulls()[0]
    return text.str.to_date("%Y-%m-%d", strict=False) if re.match(_DAY + "$", first) else None


def _times(text: Any) -> Any:
    if not text.str.contains(_DAY + r"(?:[T ]|$)").all():
        return None
    zone = text.str.contains(r":\d\d.*(?:Z|[+-]\d\d:?\d\d)$")
    if zone.all():
        return text.str.to_datetime(strict=False, time_zone="UTC", time_unit="us")
    return None if zone.any() else text.str.to_datetime(strict=False, time_unit="us")


def problem_of(file: File, title: str, column: Any) -> str | None:
    """A sentence on a column that should hold other entries than it does; None if it is sound."""
    if isinstance(column, np.ndarray):
        infinite = np.isinf(column)
    elif column.dtype.is_float():
        infinite = column.is_infinite().fill_null(False).to_numpy()
    else:
        return _strange_text(file, title, column) if str(column.dtype) == "String" else None
    if not infinite.any():
        return None
    return infinite_cell(file, int(np.argmax(infinite)), title)


def infinite_cell(file: File, place: int, title: str) -> str:
    """A sentence on a cell."""
    return (
        f"{file.cell(place, title)} is infinite. Write NA where nothing was observed, or leave the row out."
    )


def _strange_text(file: File, title: str, text: Any) -> str | None:
    """Where text looks like numbers that are written otherwise, or by mistake."""
    place, example, alone = _first_text(text, file.decimal)
    shown = _quoted(example)
    if has_decimal_comma(example) and file.decimal == ".":
        return (
            f"{file.cell(place, title)} has a comma: {shown}. Say --decimal , where it stands "
            "before the decimals; take it out where it parts thousands."
        )
    if _WITH_POINTS.fullmatch(example) or (file.decimal == "," and _IS_NUMBER.fullmatch(example)):
        return (
            f"{file.cell(place, title)} is {shown}, which has another mark in it than the "
            f"decimal {file.decimal!r}. Write numbers without marks between thousands."
        )
    if len(file.columns) == 1 and len(example.split()) > 1 and all(map(is_number, example.split())):
        return (
            f"{file.name} has values with spaces between them, such as {shown}. Separate them by a "
            "comma, a semicolon or a tab."
        )
    if alone:
        labels = option("schema", f"{title}=category")
        return (
            f"{file.cell(place, title)} is no number: {shown}. Write NA where nothing was "
            f"observed, say that the column has labels ({labels}), or leave the column out "
            f"({option('drop', title)})."
        )
    return None


def _quoted(example: str) -> str:
    return repr(example if len(example) <= 30 else example[:30] + "…")


def _first_text(text: Any, decimal: str) -> tuple[int, str, bool]:
    """The first entry that keeps a column from being numbers, and whether most of the others are such."""

    def numbers(entries: Any) -> Any:
        written = _with_point(entries) if decimal == "," else entries
        return written.str.contains(f"^(?i:{_NUMBER})$")

    seen = text.is_not_null().to_numpy()
    if not numbers(text.unique()).any():
        place = int(np.argmax(seen))
        return place, str(text[place]), False
    strange = (~numbers(text)).fill_null(False).to_numpy()
    # of a column of days, say, all are strange
    strange = strange if strange.any() else seen
    place = int(np.argmax(strange))
    return place, str(text[place]), int(strange.sum()) * 2 < int(seen.sum())


# ---------------------------------------------------------------------------------------------
# as floats, as labels
# ---------------------------------------------------------------------------------------------


def as_floats(column: Any) -> np.ndarray | None:
    """A column as floats, times as days since 1970; None if it is text."""
    import polars as pl

    if isinstance(column, np.ndarray):
        return column.astype(float, copy=False)
    kind = column.dtype
    if kind in (pl.Date, pl.Datetime):
        return (column.cast(pl.Datetime("us")).dt.timestamp("us").cast(pl.Float64) / 86_400e6).to_numpy()
    if kind in (pl.Duration, pl.Time):
        return (column.cast(pl.Duration("us")).cast(pl.Int64) / 1e6).to_numpy()
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64).to_numpy()
    return None


def floats(title: str, column: Any) -> np.ndarray:
    """A column as floats; text is refused."""
    found = as_floats(column)
    if found is not None:
        return found
    example = next((label for label in labels_of(column) if label is not None), "")
    raise ValueError(
        f"Column {title!r} is text, such as {_quoted(example)}. Leave it out ({option('drop', title)}) or "
        f"make a column of 0 and 1 for each of its labels ({option('encode', title)})."
    )


def labels_of(column: Any) -> list[Any]:
    """The entries of a column as text, None where they are missing."""
    if isinstance(column, np.ndarray):
        return [None if np.isnan(v) else f"{v:g}" for v in column.astype(float)]
    import polars as pl

    return known(column.cast(pl.String)).to_list()


def as_it_is(column: Any) -> np.ndarray:
    """A column as numbers if it is of numbers that floats can tell apart, else as text."""
    numbers = as_floats(column)
    if numbers is None or (np.abs(numbers[~np.isnan(numbers)]) > _LARGEST_EXACT).any():
        return np.array(labels_of(column), object)
    return numbers


def encoded(title: str, column: Any) -> dict[str, np.ndarray]:
    """A column of 0 and 1 for each label; NaN where the label is missing."""
    labels = np.array(labels_of(column), object)
    listed = sorted({label for label in labels if label is not None})
    if len(listed) > _MOST_LABELS:
        raise ValueError(
            f"Column {title!r} has {len(listed)} labels, more than the {_MOST_LABELS} that can be encoded. "
            f"Leave it out ({option('drop', title)})."
        )
    missing = np.array([label is None for label in labels], bool)
    return {f"{title}={label}": np.where(missing, np.nan, labels == label) for label in listed}


def counts_rows(column: Any) -> bool:
    """Whether a column does nothing but number the rows."""
    first = as_floats(column)
    if first is None or len(first) < 3:
        return False
    return first[0] in (0, 1) and bool((np.diff(first) == 1).all())
