"""Tables from files: CSV, Parquet, `.npy` and `.npz`, as names and an array of floats."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

# what people write where nothing was observed, in lower case
_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "missing", "?", "-", ".")
_SEPARATORS = (",", ";", "\t", "|")
_MOST_LABELS = 100


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of numbers, with NaN where nothing was observed.

    Attributes:
        names: of the columns.
        values: (rows, columns); (series, time, columns) where a file holds such an array.
        apart: the columns that are no features, as they are in the file, by name.
    """

    names: list[str]
    values: np.ndarray
    apart: dict[str, np.ndarray]


def read_table(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    apart: Iterable[str] = (),
    drop: Iterable[str] = (),
    encode: Iterable[str] = (),
    header: bool | None = None,
    array: str | None = None,
) -> Table:
    """Reads a table; what the file is, its first bytes tell.

    In CSV the separator (`,` `;` tab `|`) and the header are found; empty fields, `NA`, `NaN`, `null`,
    `?` and the like are missing.  Truth values become 0 and 1, dates days since 1970.  A thousands
    separator or a decimal comma is not guessed.  Text is refused, unless it is dropped or encoded.

    Args:
        source: a path, or an open binary file.
        apart: columns to hand out as they are: a target, groups.
        drop: columns to leave out.
        encode: columns of labels to replace by a column of 0 and 1 for each label.
        header: whether the first line of a CSV has the names; found out if None (it has not when all
            of it are numbers).
        array: which array of an `.npz`; the first if None.

    >>> import io
    >>> read_table(io.BytesIO(b"height;weight\\n1.8;75\\n1.7;NA\\n")).values.tolist()
    [[1.8, 75.0], [1.7, nan]]
    """
    name, content = _content(source)
    apart, drop, encode = tuple(apart), tuple(drop), tuple(encode)
    if content.startswith((b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")):
        names, columns = _numpy_columns(name, content, array)
        if columns.ndim == 3:
            _known(name, (*apart, *drop, *encode), ())
            return Table(names, columns, {})
        return _sorted_out(name, dict(zip(names, columns.T, strict=True)), apart, drop, encode)
    frame = _parquet(name, content) if content.startswith(b"PAR1") else _csv(name, content, header)
    return _sorted_out(name, {c.name: c for c in frame.get_columns()}, apart, drop, encode)


def _content(source: str | os.PathLike[str] | IO[bytes]) -> tuple[str, bytes]:
    if not isinstance(source, str | os.PathLike):
        return "The input", _not_empty("The input", source.read())
    path = Path(source)
    name = f"'{path}'"
    if not path.exists():
        raise FileNotFoundError(f"{name} does not exist.")
    if path.is_dir():
        raise ValueError(f"{name} is a folder. A file is needed.")
    _fits(name, path.stat().st_size)
    return name, _not_empty(name, path.read_bytes())


def _not_empty(name: str, content: bytes) -> bytes:
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise ValueError(f"{name} is empty.")
    return content


def _fits(name: str, size: int) -> None:
    """Refuses what would not leave room to work on it."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return  # a system that does not tell
    if size > memory // 3:
        raise ValueError(
            f"{name} has {size / 2**30:.1f} GiB, too much for a machine of {memory / 2**30:.1f} GiB. "
            "Take a part of its rows."
        )


def _known(name: str, wanted: Iterable[str], names: Iterable[str]) -> None:
    names = list(names)
    for column in wanted:
        if column not in names:
            shown = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
            raise ValueError(f"{name} has no column {column!r}. It has {shown or 'no names'}.")


def _sorted_out(
    name: str,
    columns: dict[str, Any],
    apart: tuple[str, ...],
    drop: tuple[str, ...],
    encode: tuple[str, ...],
) -> Table:
    """Columns (arrays or Polars series) as a table."""
    _known(name, (*apart, *drop, *encode), columns)
    found: dict[str, np.ndarray] = {}
    for title, column in columns.items():
        if title in apart or title in drop:
            continue
        if title in encode:
            found |= _encoded(title, column)
        else:
            found[title] = column if isinstance(column, np.ndarray) else _numbers(title, column)
    if not found:
        raise ValueError(f"{name} has no column left to model.")
    values = np.column_stack(list(found.values())).astype(float, copy=False)
    if not len(values):
        raise ValueError(f"{name} has no rows.")
    kept = {title: _as_it_is(columns[title]) for title in apart}
    return Table(list(found), values, kept)


def _as_it_is(column: Any) -> np.ndarray:
    """A column as numbers if it is of numbers, else as text."""
    if isinstance(column, np.ndarray):
        return column
    import polars as pl

    numbers = _as_numbers(column)
    if numbers is not None:
        return numbers
    return column.cast(pl.String).to_numpy().astype(object)


# ---------------------------------------------------------------------------------------------
# columns
# ---------------------------------------------------------------------------------------------


def _as_numbers(column: Any) -> np.ndarray | None:
    """A column as floats; None if it is text."""
    import polars as pl

    kind = column.dtype
    if kind == pl.String:
        text = column.str.strip_chars()
        missing = text.str.to_lowercase().is_in(_MISSING)
        text = text.set(missing.fill_null(False), None)
        for reading in (_floats, _truths, _days):
            numbers = reading(text)
            if numbers.null_count() == text.null_count():
                return _floats(numbers).to_numpy()
        return None
    if kind in (pl.Date, pl.Datetime):
        return _since_1970(column).to_numpy()
    if kind in (pl.Duration, pl.Time):
        return (column.cast(pl.Duration("us")).cast(pl.Int64) / 1e6).to_numpy()
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return _floats(column).to_numpy()
    return None


def _floats(text: Any) -> Any:
    import polars as pl

    return text.cast(pl.Float64, strict=False)


def _truths(text: Any) -> Any:
    import polars as pl

    return text.str.to_lowercase().replace_strict(
        ["true", "false"], [1.0, 0.0], default=None, return_dtype=pl.Float64
    )


def _days(text: Any) -> Any:
    days = text.str.to_date("%Y-%m-%d", strict=False)
    # only the order year, month, day is beyond doubt
    if days.null_count() > text.null_count() and text.str.contains(r"^\d{4}-\d\d-\d\d[T ]").all():
        days = text.str.to_datetime(strict=False, time_zone="UTC")
    return _since_1970(days)


def _since_1970(column: Any) -> Any:
    """Days as floats."""
    import polars as pl

    return column.cast(pl.Datetime("us")).dt.timestamp("us").cast(pl.Float64) / 86_400e6


def _numbers(title: str, column: Any) -> np.ndarray:
    numbers = _as_numbers(column)
    if numbers is not None:
        return numbers
    example = str(_examples(column)[0])
    if len(example) > 30:
        example = example[:30] + "…"
    raise ValueError(
        f"Column {title!r} is text, such as {example!r}. Leave it out (--drop {title}) or make a column of "
        f"0 and 1 for each of its labels (--encode {title})."
    )


def _examples(column: Any) -> list[Any]:
    """Entries that keep a column from being numbers: not missing, and not numbers where others are."""
    import polars as pl

    if column.dtype != pl.String:
        return column.drop_nulls().to_list()
    text = column.str.strip_chars()
    strange = text.filter(_floats(text).is_null() & ~text.str.to_lowercase().is_in(_MISSING))
    return (strange if len(strange) else text.drop_nulls()).to_list()


def _encoded(title: str, column: Any) -> dict[str, np.ndarray]:
    """A column of 0 and 1 for each label; NaN where the label is missing."""
    if isinstance(column, np.ndarray):
        labels = np.array([None if np.isnan(v) else f"{v:g}" for v in column.astype(float)], object)
    else:
        import polars as pl

        labels = column.cast(pl.String).str.strip_chars().to_numpy().astype(object)
        labels = np.array([None if v is None or v.lower() in _MISSING else v for v in labels], object)
    known = sorted({label for label in labels if label is not None})
    if len(known) > _MOST_LABELS:
        raise ValueError(
            f"Column {title!r} has {len(known)} labels, more than the {_MOST_LABELS} that can be encoded. "
            f"Leave it out (--drop {title})."
        )
    missing = np.array([label is None for label in labels], bool)
    return {f"{title}={label}": np.where(missing, np.nan, labels == label) for label in known}


# ---------------------------------------------------------------------------------------------
# formats
# ---------------------------------------------------------------------------------------------


def _parquet(name: str, content: bytes) -> Any:
    import polars as pl

    try:
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{name} is a damaged Parquet file ({_first(error)}).") from None


def _first(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _csv(name: str, content: bytes, header: bool | None) -> Any:
    import polars as pl

    if b"\0" in content[:4096]:
        raise ValueError(f"{name} is not a table: it is neither text (CSV) nor Parquet, .npy or .npz.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{name} is not UTF-8 text: line {line} cannot be read. Save it as UTF-8."
        ) from None
    separator = _separator(text)
    first, blank, rows = _check_lines(name, text, separator)
    del text
    if not rows:
        raise ValueError(f"{name} is empty.")
    if header is None:
        header = not all(_is_number(field) for field in first)
    if header and rows == 1:
        raise ValueError(f"{name} has a header and no rows.")
    try:
        frame = pl.read_csv(
            io.BytesIO(content), separator=separator, has_header=False, infer_schema=False, quote_char='"'
        )
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{name} cannot be read as CSV ({_first(error)}).") from None
    if frame.height != rows + len(blank):
        raise ValueError(f"{name} cannot be read as CSV: its quotes do not match.")
    if blank:
        keep = np.ones(frame.height, bool)
        keep[blank] = False
        frame = frame.filter(pl.Series(keep))
    titles = [title.strip() for title in first] if header else [""] * len(first)
    frame.columns = _distinct([title or f"x{place}" for place, title in enumerate(titles)])
    return frame.slice(1) if header else frame


def _distinct(titles: list[str]) -> list[str]:
    """Names of which none is there twice."""
    taken = set(titles)
    seen: set[str] = set()
    result = []
    for title in titles:
        name, copy = title, 2
        while name in seen or (name != title and name in taken):
            name, copy = f"{title}_{copy}", copy + 1
        seen.add(name)
        result.append(name)
    return result


def _is_number(field: str) -> bool:
    field = field.strip()
    if field.lower() in _MISSING:
        return True
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field  # which Python takes for a number


def _separator(text: str) -> str:
    """The separator that cuts the first lines into equally many fields, and into the most."""
    lines = [line for line in text[:65536].split("\n")[:50] if line.strip()]
    lines = lines[:-1] or lines if len(text) > 65536 else lines
    best, fields = ",", 1
    for candidate in _SEPARATORS:
        try:
            sizes = [len(row) for row in csv.reader(lines, delimiter=candidate) if row]
        except csv.Error:
            continue
        # a ragged file is refused later, with the line; here the most frequent size counts
        usual = max(set(sizes), key=sizes.count, default=0)
        if usual > fields and sizes.count(usual) * 2 > len(sizes):
            best, fields = candidate, usual
    return best


def _check_lines(name: str, text: str, separator: str) -> tuple[list[str], list[int], int]:
    """The first row, the places of blank lines, and the number of rows; refuses ragged lines.

    Polars fills lines that are too short without a word.
    """
    first: list[str] = []
    blank: list[int] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    place = 0
    try:
        for place, row in enumerate(reader):
            if not row:
                blank.append(place)
            elif not first:
                first = row
            elif len(row) != len(first):
                sizes = f"{len(row)} values where the first has {len(first)}"
                raise ValueError(f"Line {reader.line_num} of {name} has {sizes}.")
    except csv.Error as error:
        raise ValueError(
            f"{name} cannot be read as CSV: line {reader.line_num}, {_first(error)}."
        ) from None
    return first, blank, place + 1 - len(blank)


def _numpy_columns(name: str, content: bytes, array: str | None) -> tuple[list[str], np.ndarray]:
    try:
        values = _numpy_array(name, content, array)
    except _RefusedError as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # a damaged file can fail anywhere in the readers of zip and of headers
        reason = _first(error)
        if "Object arrays" in reason:
            reason = "it holds Python objects, which could run code"
        raise ValueError(f"{name} cannot be read as NumPy data ({reason}).") from None
    names = None
    if values.dtype.names:
        names = list(values.dtype.names)
        values = np.column_stack([np.atleast_1d(values[field]) for field in names])
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold an array of numbers. Got the dtype {values.dtype} instead.")
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise ValueError(
            f"{name} must hold an array of rows and columns. Got the shape {values.shape} instead."
        )
    return names or [f"x{place}" for place in range(values.shape[-1])], values.astype(float)


class _RefusedError(ValueError):
    """A sentence that is complete."""


def _numpy_array(name: str, content: bytes, array: str | None) -> np.ndarray:
    if content.startswith(b"\x93NUMPY"):
        return np.load(io.BytesIO(content), allow_pickle=False)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        _fits(name, sum(part.file_size for part in archive.infolist()))
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        if not arrays.files:
            raise ValueError("it holds no array")
        if array is not None and array not in arrays.files:
            raise _RefusedError(
                f"{name} has no array {array!r}. It has {', '.join(map(repr, arrays.files))}."
            )
        return np.asarray(arrays[arrays.files[0] if array is None else array])
