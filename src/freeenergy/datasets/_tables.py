"""Tables from files: CSV, Parquet, Arrow, JSON lines, Excel, `.npy` and `.npz`, as typed columns."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import numpy as np

from ._columns import (
    File,
    as_it_is,
    counts_rows,
    encoded,
    floats,
    infinite_cell,
    known,
    option,
    problem_of,
    row_number,
    typed,
)
from ._csv import Writing
from ._formats import read_file
from ._packed import content_of


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of a file, with null or NaN where nothing was observed.

    Attributes:
        names: of the columns.
        columns: what they hold, by name: series of Polars, or arrays; none for an array of three axes.
        apart: the columns that are no features, as they are in the file, by name.
        lines: the line of the file that each row is on; None where a file has no lines.
        notes: how the file was read, where it could be read otherwise.
        problems: of columns that could not be read as what they seem to hold, what is wrong; they are
            there as text, or have infinite entries.
        stacked: (series, time, columns) where a file holds such an array.
    """

    names: list[str]
    columns: Mapping[str, Any]
    apart: dict[str, np.ndarray]
    lines: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    problems: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stacked: np.ndarray | None = None

    def row(self, place: int) -> str:
        """Where a row is in the file, in words: rows are counted from one."""
        return f"row {row_number(place, self.lines)}"

    @functools.cached_property
    def frame(self) -> Any:
        """A data frame of Polars: numbers, truth values, dates and times, and text.

        >>> import io
        >>> read_table(io.BytesIO(b"age,sex,since\\n31,f,2020-02-29\\nNA,m,2021-03-01\\n")).frame.dtypes
        [Int64, String, Date]
        """
        import polars as pl

        if self.stacked is not None:
            raise ValueError("Series in three axes are no table.")
        arrays = {
            title: pl.Series(title, column).fill_nan(None) if isinstance(column, np.ndarray) else column
            for title, column in self.columns.items()
        }
        return pl.DataFrame([column.alias(title) for title, column in arrays.items()])

    @functools.cached_property
    def values(self) -> np.ndarray:
        """The rows as floats, or the array of three axes; text is refused.

        Truth values are 0 and 1, dates days since 1970.
        """
        if self.stacked is not None:
            return self.stacked
        return np.column_stack([floats(title, column) for title, column in self.columns.items()])


def read_table(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    apart: Iterable[str] = (),
    drop: Iterable[str] = (),
    encode: Iterable[str] = (),
    text: Iterable[str] | Callable[[str], bool] = (),
    header: bool | None = None,
    decimal: str = ".",
    separator: str | None = None,
    encoding: str | None = None,
    array: str | None = None,
    max_bytes: int | None = None,
    strict: bool = True,
) -> Table:
    """Reads a table; what the file is, its first bytes tell.

    CSV (also packed by gzip), Parquet, Arrow (Feather), JSON lines, Excel (.xlsx, with the extra
    `freeenergy[excel]`), `.npy` and `.npz`.  In CSV the separator (`,` `;` tab `|`), the header and the
    encoding (UTF-8, UTF-16 with its mark, else Windows-1252) are found; empty fields, `NA`, `NaN`, `null`,
    `?` and the like are missing.  Text that is whole numbers, numbers, truth values (`true`, `false`) or
    dates (year-month-day, also with a time) in all of a column becomes that; other text stays what it is,
    and `fe.Schema.recognise(table.frame)` says what each column is taken for.  Lines that begin with `#`
    and have not the fields of the table are comments.  A thousands separator or a decimal comma is not
    guessed.  Infinity is refused, and so is a word among numbers.  Sentences about a cell count rows from
    one, as the file does.

    Args:
        source: a path, or an open binary file.
        apart: columns to hand out as they are: a target, groups.
        drop: columns to leave out.
        encode: columns of labels to replace by a column of 0 and 1 for each label.
        text: columns to keep as they are written, such as codes that begin with zeros, or a function that
            says it of a name.
        header: whether the first line of a CSV has the names; found out if None (it has not when all
            of it are numbers, and where some are it must be said).
        decimal: the mark of decimals in a CSV, "." or ",".
        separator: the one character between the fields of a CSV; found if None.
        encoding: of a CSV, as Python calls it; found if None.
        array: which array of an `.npz`, or which sheet of a workbook; the first if None.
        max_bytes: how much a packed file (gzip, Parquet, Arrow, `.xlsx`, `.npz`) may hold, with 8 bytes for
            a number; 512 MiB if None, or as much as the file itself takes.
        strict: whether columns that cannot be read are refused; if not, `problems` says what is wrong.

    >>> import io
    >>> read_table(io.BytesIO(b"height;weight\\n1.8;75\\n1.7;NA\\n")).values.tolist()
    [[1.8, 75.0], [1.7, nan]]
    """
    writing = Writing(header, decimal, separator, encoding)
    name, content, room = content_of(source, max_bytes)
    apart, drop, encode = tuple(apart), tuple(drop), tuple(encode)
    as_written = text if callable(text) else set(text).__contains__
    found = read_file(
        name, content, room, writing, array, lambda title: title in encode or as_written(title)
    )
    if isinstance(found, File):
        return _sorted_out(found, apart, drop, encode, as_written, strict)
    names, values, notes = found
    _known(name, (*apart, *drop, *encode), ())
    rows = values.reshape(-1, len(names))
    if np.isinf(rows).any():
        row, column = (int(i) for i in np.argwhere(np.isinf(rows))[0])
        raise ValueError(infinite_cell(File(name, {}), row, names[column]))
    return Table(names, {}, {}, None, notes, stacked=values)


def _known(name: str, wanted: Iterable[str], names: Iterable[str]) -> None:
    names = list(names)
    for column in wanted:
        if column not in names:
            shown = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
            raise ValueError(f"{name} has no column {column!r}. It has {shown or 'no names'}.")


def _sorted_out(
    file: File,
    apart: tuple[str, ...],
    drop: tuple[str, ...],
    encode: tuple[str, ...],
    as_written: Callable[[str], bool],
    strict: bool,
) -> Table:
    """Columns as a table."""
    _known(file.name, (*apart, *drop, *encode), file.columns)
    for title in (*apart, *drop, *encode):
        if title in file.twice:
            raise ValueError(f"{file.name} has several columns {title!r}. Give each a name of its own.")
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for title, column in file.columns.items():
        if title in apart or title in drop:
            continue
        if title in encode:
            found |= encoded(title, column)
            continue
        found[title] = _typed(file, column, as_written=as_written(title))
        problem = None if as_written(title) else problem_of(file, title, found[title])
        if problem is not None and strict:
            raise ValueError(problem)
        if problem is not None:
            problems[title] = problem
    if not found:
        raise ValueError(f"{file.name} has no column left to model.")
    first = next(iter(found))
    if not len(found[first]):
        raise ValueError(f"{file.name} has no rows.")
    kept = {title: as_it_is(_typed(file, file.columns[title])) for title in apart}
    notes = file.notes
    if len(found) > 1 and all(map(_is_numbers, found.values())) and counts_rows(found[first]):
        start = floats(first, found[first])[0]
        notes += (
            f"Column {first!r} numbers the rows from {start:g} and is taken as data. "
            f"Leave it out ({option('drop', first)}) if it is only an index.",
        )
    return Table(list(found), found, kept, file.lines, notes, problems)


def _typed(file: File, column: Any, *, as_written: bool = False) -> Any:
    if isinstance(column, np.ndarray) or str(column.dtype) != "String":
        return column
    return known(column) if as_written else typed(column, file.decimal)


def _is_numbers(column: Any) -> bool:
    return isinstance(column, np.ndarray) or column.dtype.is_numeric()
