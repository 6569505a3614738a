"""Tables from files: CSV, Parquet, `.npy` and `.npz`, as names and an array of floats."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import os
import re
import shlex
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

# what people write where nothing was observed, in lower case
_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "missing", "?", "-", ".")
_SEPARATORS = (",", ";", "\t", "|")
_MOST_LABELS = 100
# of the numbers or the text that a small file may unpack to; a tenth of a megabyte can hold gigabytes
_MOST_BYTES = 2**29
# whole numbers beyond this are no longer told apart as floats
_LARGEST_EXACT = 2.0**53
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
)
_WITH_COMMA = re.compile(r"[+-]?\d*(?:,\d+)+(?:\.\d*)?(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WITH_POINTS = re.compile(r"[+-]?\d{1,3}(?:[.' \u00a0\u202f]\d{3})+(?:[.,]\d*)?", re.ASCII)
_MARKS = (
    ("utf-8", b"\xef\xbb\xbf"),
    ("utf-32", b"\xff\xfe\0\0"),
    ("utf-32", b"\0\0\xfe\xff"),
    ("utf-16", b"\xff\xfe"),
    ("utf-16", b"\xfe\xff"),
)
# files that people take for tables, by their first bytes, and what to do with them
_FOREIGN = (
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "Save the sheet as CSV"),
    (b"BZh", "compressed by bzip2", "Unpack it first"),
    (b"\xfd7zXZ", "compressed by xz", "Unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "Unpack it first"),
    (b"ARROW1", "an Arrow file", "Save it as Parquet or CSV"),
    (b"\x89HDF", "an HDF5 file", "Save the table as Parquet or CSV"),
    (b"SQLite format 3", "a database", "Save the table as Parquet or CSV"),
    (b"%PDF", "a PDF document", "Save the table as CSV"),
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of numbers, with NaN where nothing was observed.

    Attributes:
        names: of the columns.
        values: (rows, columns); (series, time, columns) where a file holds such an array.
        apart: the columns that are no features, as they are in the file, by name.
        lines: the line of the file that each row is on; None where a file has no lines.
        notes: how the file was read, where it could be read otherwise.
    """

    names: list[str]
    values: np.ndarray
    apart: dict[str, np.ndarray]
    lines: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    def row(self, place: int) -> str:
        """Where a row is in the file, in words: rows are counted from one."""
        return f"row {row_number(place, self.lines)}"


def row_number(place: int, lines: np.ndarray | None) -> str:
    """The number of a row, counted from one, and its line."""
    return f"{place + 1}" + ("" if lines is None else f" (line {lines[place]})")


def read_table(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    apart: Iterable[str] = (),
    drop: Iterable[str] = (),
    encode: Iterable[str] = (),
    header: bool | None = None,
    decimal: str = ".",
    array: str | None = None,
    max_bytes: int | None = None,
) -> Table:
    """Reads a table; what the file is, its first bytes tell.

    In CSV (UTF-8, or UTF-16 with its mark; also packed by gzip) the separator (`,` `;` tab `|`) and the
    header are found; empty fields, `NA`, `NaN`, `null`, `?` and the like are missing.  Truth values become
    0 and 1, dates days since 1970.  Lines that begin with `#` and have not the fields of the table are
    comments.  A thousands separator or a decimal comma is not guessed.  Text is refused, unless it is
    dropped or encoded; so is infinity.  Sentences about a cell count rows from one, as the file does.

    Args:
        source: a path, or an open binary file.
        apart: columns to hand out as they are: a target, groups.
        drop: columns to leave out.
        encode: columns of labels to replace by a column of 0 and 1 for each label.
        header: whether the first line of a CSV has the names; found out if None (it has not when all
            of it are numbers, and where some are it must be said).
        decimal: the mark of decimals in a CSV, "." or ",".
        array: which array of an `.npz`; the first if None.
        max_bytes: how much a packed file (gzip, Parquet, `.npz`) may hold, with 8 bytes for a number;
            512 MiB if None, or as much as the file itself takes.

    >>> import io
    >>> read_table(io.BytesIO(b"height;weight\\n1.8;75\\n1.7;NA\\n")).values.tolist()
    [[1.8, 75.0], [1.7, nan]]
    """
    if decimal not in (".", ","):
        raise ValueError(
            f"The 'decimal' parameter of read_table must be '.' or ','. Got {decimal!r} instead."
        )
    name, content, room = _content(source, max_bytes)
    apart, drop, encode = tuple(apart), tuple(drop), tuple(encode)
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        _refuse_foreign_archive(name, content)
    if content.startswith((b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")):
        names, columns, notes = _numpy_columns(name, content, array, room)
        if columns.ndim == 3:
            _known(name, (*apart, *drop, *encode), ())
            _refuse_infinite(name, names, columns.reshape(-1, columns.shape[-1]), None)
            return Table(names, columns, {}, None, notes)
        file = _File(name, dict(zip(names, columns.T, strict=True)), None, notes)
    elif content.startswith(b"PAR1"):
        file = _File(name, {c.name: c for c in _parquet(name, content, room).get_columns()})
    else:
        file = _csv(name, content, header, decimal)
    return _sorted_out(file, apart, drop, encode)


@dataclasses.dataclass(frozen=True)
class _File:
    """What a file holds: columns by name (arrays or Polars series), and how it was read."""

    name: str
    columns: dict[str, Any]
    lines: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    twice: frozenset[str] = frozenset()
    decimal: str = "."

    def cell(self, place: int, title: str) -> str:
        """Where a cell is, in words that begin a sentence."""
        return f"Row {row_number(place, self.lines)}, column {title!r} of {self.name}"


@dataclasses.dataclass(frozen=True)
class _Room:
    """How many bytes a file may unpack to."""

    name: str
    most: int

    def check(self, size: int) -> None:
        """Refuses what takes more, before it is unpacked."""
        check_size(self.name, size)
        if size > self.most:
            raise _RefusedError(
                f"{self.name} unpacks to more than the {self.most / 2**20:.0f} MiB that a file of its size "
                "may. If you trust it, allow more (--max-bytes)."
            )


def _content(source: str | os.PathLike[str] | IO[bytes], max_bytes: int | None) -> tuple[str, bytes, _Room]:
    """What the file is called, its bytes, and how much they may unpack to."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        name = f"'{path}'"
        if not path.exists():
            raise FileNotFoundError(f"{name} does not exist.")
        if path.is_dir():
            raise ValueError(f"{name} is a folder. A file is needed.")
        if not path.is_file():
            raise ValueError(f"{name} is a device, a pipe or a socket. A file is needed.")
        check_size(name, path.stat().st_size)
        content = path.read_bytes()
    else:
        name, memory = "The input", _memory()
        # one byte more than is allowed tells that there is too much
        content = source.read(-1 if memory is None else memory // 3 + 1)
        check_size(name, len(content))
    room = _Room(name, max(_MOST_BYTES, len(content)) if max_bytes is None else max_bytes)
    return name, _not_empty(name, _unpacked(name, content, room)), room


def _unpacked(name: str, content: bytes, room: _Room) -> bytes:
    """What gzip has packed, if it has; refused as soon as it is too much."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    parts, size = [], 0
    try:
        while content.startswith(b"\x1f\x8b"):  # a file may hold several streams
            unpacking = zlib.decompressobj(wbits=31)
            while not unpacking.eof:
                part = unpacking.decompress(content, 1 << 24)
                if not part and not unpacking.unconsumed_tail and not unpacking.eof:
                    raise ValueError(f"{name} is a damaged gzip file: it ends too early.")
                content = unpacking.unconsumed_tail
                size += len(part)
                room.check(size)
                parts.append(part)
            content = unpacking.unused_data
    except zlib.error as error:
        raise ValueError(f"{name} is a damaged gzip file ({_first(error)}).") from None
    return b"".join(parts)


def _not_empty(name: str, content: bytes) -> bytes:
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise ValueError(f"{name} is empty.")
    return content


def _memory() -> int | None:
    """How much memory the machine has, if the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_size(name: str, size: int) -> None:
    """Refuses what would not leave room to work on it."""
    memory = _memory()
    if memory is not None and size > memory // 3:
        raise _RefusedError(
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
    file: _File, apart: tuple[str, ...], drop: tuple[str, ...], encode: tuple[str, ...]
) -> Table:
    """Columns as a table."""
    _known(file.name, (*apart, *drop, *encode), file.columns)
    for title in (*apart, *drop, *encode):
        if title in file.twice:
            raise ValueError(f"{file.name} has several columns {title!r}. Give each a name of its own.")
    found: dict[str, np.ndarray] = {}
    for title, column in file.columns.items():
        if title in apart or title in drop:
            continue
        if title in encode:
            found |= _encoded(file, title, column)
        else:
            found[title] = column if isinstance(column, np.ndarray) else _numbers(file, title, column)
    if not found:
        raise ValueError(f"{file.name} has no column left to model.")
    values = np.column_stack(list(found.values())).astype(float, copy=False)
    if not len(values):
        raise ValueError(f"{file.name} has no rows.")
    _refuse_infinite(file.name, list(found), values, file.lines)
    kept = {title: _as_it_is(file, title) for title in apart}
    return Table(list(found), values, kept, file.lines, file.notes + _counting(list(found), values))


def _refuse_infinite(name: str, titles: list[str], values: np.ndarray, lines: np.ndarray | None) -> None:
    infinite = np.isinf(values)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        raise ValueError(
            f"Row {row_number(row, lines)}, column {titles[column]!r} of {name} is infinite. "
            "Write NA where nothing was observed, or leave the row out."
        )


def _counting(titles: list[str], values: np.ndarray) -> tuple[str, ...]:
    """A note if the first column does nothing but number the rows."""
    first = values[:, 0]
    if len(first) < 3 or len(titles) < 2 or first[0] not in (0, 1) or (np.diff(first) != 1).any():
        return ()
    return (
        f"Column {titles[0]!r} numbers the rows from {first[0]:g} and is taken as data. "
        f"Leave it out ({_option('drop', titles[0])}) if it is only an index.",
    )


def _as_it_is(file: _File, title: str) -> np.ndarray:
    """A column as numbers if it is of numbers that floats can tell apart, else as text."""
    column = file.columns[title]
    numbers = column if isinstance(column, np.ndarray) else _as_numbers(column, file.decimal)
    if numbers is None or (np.abs(numbers[~np.isnan(numbers)]) > _LARGEST_EXACT).any():
        labels = _labels(column)
        return np.array([None if label is None else str(label) for label in labels], object)
    return numbers


# ---------------------------------------------------------------------------------------------
# columns
# ---------------------------------------------------------------------------------------------


def _as_numbers(column: Any, decimal: str = ".") -> np.ndarray | None:
    """A column as floats; None if it is text."""
    import polars as pl

    kind = column.dtype
    if kind == pl.String:
        text = column.str.strip_chars()
        missing = text.str.to_lowercase().is_in(_MISSING)
        text = text.set(missing.fill_null(False), None)
        if decimal == ",":
            # a point is then no decimal mark, and what else it is nobody knows
            text = pl.select(
                pl.when(text.str.contains(".", literal=True))
                .then(pl.lit("with a point"))
                .otherwise(text.str.replace(",", ".", literal=True))
            ).to_series()
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


def _numbers(file: _File, title: str, column: Any) -> np.ndarray:
    numbers = _as_numbers(column, file.decimal)
    if numbers is not None:
        return numbers
    place, example, alone = _first_text(column, file.decimal)
    shown = repr(example if len(example) <= 30 else example[:30] + "…")
    if _WITH_COMMA.fullmatch(example) and file.decimal == ".":
        raise ValueError(
            f"{file.cell(place, title)} has a comma: {shown}. Say --decimal , where it stands "
            "before the decimals; take it out where it parts thousands."
        )
    if _WITH_POINTS.fullmatch(example) or (file.decimal == "," and _NUMBER.fullmatch(example)):
        raise ValueError(
            f"{file.cell(place, title)} is {shown}, which has another mark in it than the "
            f"decimal {file.decimal!r}. Write numbers without marks between thousands."
        )
    if len(file.columns) == 1 and len(example.split()) > 1 and all(map(_is_number, example.split())):
        raise ValueError(
            f"{file.name} has values with spaces between them, such as {shown}. Separate them by a "
            "comma, a semicolon or a tab."
        )
    if alone:
        raise ValueError(
            f"{file.cell(place, title)} is no number: {shown}. Write NA where nothing was "
            f"observed, or leave the column out ({_option('drop', title)})."
        )
    raise ValueError(
        f"Column {title!r} is text, such as {shown}. Leave it out ({_option('drop', title)}) or make a "
        f"column of 0 and 1 for each of its labels ({_option('encode', title)})."
    )


def _option(name: str, title: str) -> str:
    return f"--{name} {shlex.quote(title)}"


def _labels(column: Any) -> list[Any]:
    """The entries of a column, None where they are missing."""
    if isinstance(column, np.ndarray):
        return [None if np.isnan(v) else f"{v:g}" for v in column.astype(float)]
    import polars as pl

    labels = column.cast(pl.String).str.strip_chars().to_list()
    return [None if v is None or v.lower() in _MISSING else v for v in labels]


def _first_text(column: Any, decimal: str) -> tuple[int, str, bool]:
    """The first entry that keeps a column from being numbers, and whether most of the others are such."""
    labels = _labels(column)
    number = [
        label is None or _is_number(label.replace(",", ".") if decimal == "," else label)
        for label in labels
    ]
    if decimal == ",":
        number = [good and (label is None or "." not in label) for good, label in zip(number, labels)]
    seen = [place for place, label in enumerate(labels) if label is not None]
    # of a column of days, say, all are strange
    strange = [place for place in seen if not number[place]] or seen
    return strange[0], str(labels[strange[0]]), len(strange) * 2 < len(seen)


def _encoded(file: _File, title: str, column: Any) -> dict[str, np.ndarray]:
    """A column of 0 and 1 for each label; NaN where the label is missing."""
    labels = np.array(_labels(column), object)
    known = sorted({label for label in labels if label is not None})
    if len(known) > _MOST_LABELS:
        raise ValueError(
            f"Column {title!r} has {len(known)} labels, more than the {_MOST_LABELS} that can be encoded. "
            f"Leave it out ({_option('drop', title)})."
        )
    missing = np.array([label is None for label in labels], bool)
    return {f"{title}={label}": np.where(missing, np.nan, labels == label) for label in known}


# ---------------------------------------------------------------------------------------------
# formats
# ---------------------------------------------------------------------------------------------


def _parquet(name: str, content: bytes, room: _Room) -> Any:
    import polars as pl

    try:
        lazy = pl.scan_parquet(io.BytesIO(content))
        rows = lazy.select(pl.len()).collect().item()
        room.check(8 * rows * len(lazy.collect_schema()))
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{name} is a damaged Parquet file ({_first(error)}).") from None


def _first(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _text(name: str, content: bytes) -> str:
    """The letters of a CSV file, by its byte-order mark or as UTF-8; every line ends in a newline."""
    for start, what, remedy in _FOREIGN:
        if content.startswith(start):
            raise ValueError(f"{name} is {what}. {remedy}.")
    encoding = next((encoding for encoding, mark in _MARKS if content.startswith(mark)), None)
    if encoding is None and b"\0" in content[:4096]:
        raise ValueError(
            f"{name} is not a table: it is neither text (CSV) nor Parquet, .npy or .npz. "
            "Save a text as UTF-8."
        )
    try:
        text = content.decode("utf-8-sig" if encoding in (None, "utf-8") else encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{name} is not {(encoding or 'utf-8').upper()} text: line {line} cannot be read. "
            "Save it as UTF-8."
        ) from None
    if "\0" in text:
        raise ValueError(f"{name} is not a table: its text has zero bytes in it.")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _csv(name: str, content: bytes, header: bool | None, decimal: str) -> _File:
    import polars as pl

    text = _text(name, content)
    del content
    if text.lstrip()[:1] in "{<":
        kind = "JSON" if text.lstrip().startswith("{") else "HTML or XML"
        raise ValueError(f"{name} is {kind}, not a table. Save the table as CSV.")
    separator = _separator(text)
    layout = _check_lines(name, text, separator)
    if not layout.lines:
        raise ValueError(f"{name} is empty.")
    notes = list(layout.notes)
    if layout.left_out:
        lines = text.split("\n")
        for number in reversed(layout.left_out):
            del lines[number - 1]
        text = "\n".join(lines)
        del lines
    if header is None:
        header = _has_header(name, layout.first, decimal)
        if not header:
            notes.append(
                f"{name} has no header: its first line is of numbers and is taken as a row. "
                "With --header it has the names."
            )
    if header and len(layout.lines) == 1:
        raise ValueError(f"{name} has a header and no rows.")
    try:
        frame = pl.read_csv(
            text.encode(), separator=separator, has_header=False, infer_schema=False, quote_char='"'
        )
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{name} cannot be read as CSV ({_first(error)}).") from None
    del text
    if frame.height != len(layout.lines):
        raise ValueError(f"{name} cannot be read as CSV: its quotes do not match.")
    titles = [title.strip() for title in layout.first] if header else [""] * len(layout.first)
    frame.columns = _distinct([title or f"x{place}" for place, title in enumerate(titles)])
    twice = frozenset(title for title in titles if title and titles.count(title) > 1)
    if twice:
        changed = [new for old, new in zip(titles, frame.columns) if old in twice and new != old]
        notes.append(
            f"{name} has several columns {min(twice)!r}; the later ones are called {', '.join(changed)}."
        )
    frame = frame.slice(1) if header else frame
    lines = np.array(layout.lines[1 if header else 0 :])
    columns = {column.name: column for column in frame.get_columns()}
    unnamed = [new for old, new in zip(titles, columns) if header and not old]
    for title in unnamed:
        numbers = _as_numbers(columns[title], decimal)
        if numbers is None or len(columns) == 1:
            continue
        if np.isnan(numbers).all():
            notes.append(f"The column without a name and without values of {name} is left out.")
        elif title == "x0" and _counting([title, ""], numbers[:, None]):
            notes.append(f"The first column of {name} has no name and numbers the rows; it is left out.")
        else:
            continue
        del columns[title]
    return _File(name, columns, lines, tuple(notes), twice, decimal)


def _has_header(name: str, first: list[str], decimal: str) -> bool:
    """Whether the first line has names; refused where it could be either."""
    seen = [field.strip() for field in first if field.strip().lower() not in _MISSING]
    numbers = [f for f in seen if _is_number(f.replace(",", ".") if decimal == "," else f)]
    words = [field for field in seen if field not in numbers]
    if numbers and words:
        raise ValueError(
            f"The first line of {name} has numbers ({numbers[0]!r}) and words ({words[0]!r}). "
            "Say --header if it has the names of the columns, --no-header if it is a row."
        )
    return not numbers


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
    return _NUMBER.fullmatch(field.strip()) is not None


def _separator(text: str) -> str:
    """The separator that cuts the first lines into equally many fields, most of them numbers."""
    lines = [line for line in text[:65536].split("\n")[:50] if line.strip() and not line.startswith("#")]
    lines = lines[:-1] or lines if len(text) > 65536 else lines
    best, score = ",", (0.5, 0.0, 1)
    for candidate in _SEPARATORS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=candidate) if row]
        except csv.Error:
            continue
        # a ragged file is refused later, with the line; here the most frequent size counts
        sizes = [len(row) for row in rows]
        usual = max(set(sizes), key=sizes.count, default=0)
        fields = [field.strip() for row in rows for field in row]
        # a comma may stand before decimals, which a comma that separates would cut
        numbers = sum(_is_number(field) or bool(_WITH_COMMA.fullmatch(field)) for field in fields)
        found = (sizes.count(usual) / max(len(sizes), 1), numbers / max(len(fields), 1), usual)
        if usual > 1 and found > score:
            best, score = candidate, found
    return best


@dataclasses.dataclass
class _Layout:
    """The lines of a CSV: where its rows are, and what is no row."""

    first: list[str] = dataclasses.field(default_factory=list)
    lines: list[int] = dataclasses.field(default_factory=list)
    left_out: list[int] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def _check_lines(name: str, text: str, separator: str) -> _Layout:
    """Where the rows are; refuses ragged lines, which Polars fills without a word."""
    found, comments, hollow, inner_blank = _Layout(), 0, 0, False
    width = _width(text, separator)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line, blank = 1, False
    try:
        for row in reader:
            is_comment = bool(row) and row[0].startswith("#") and len(row) != width
            if is_comment or not row or (len(row) == 1 < width and not row[0].strip()):
                comments += is_comment
                blank = blank or not is_comment
                found.left_out.append(line)
            else:
                if len(row) != width:
                    raise ValueError(_ragged(name, line, row, width, separator))
                found.first = found.first or row
                found.lines.append(line)
                hollow = 0 if any(map(str.strip, row)) else hollow + 1
                inner_blank = inner_blank or (blank and len(found.lines) > 1)
                blank = False
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{name} cannot be read as CSV: line {reader.line_num}, {_first(error)}."
        ) from None
    if comments:
        found.notes.append(
            f"{_count(comments, 'line')} of {name} with # at the start {_are(comments)} left out."
        )
    if inner_blank and width == 1:
        found.notes.append(f"Empty lines of {name} are left out. Write NA where a value is missing.")
    if hollow and width > 1:
        found.notes.append(
            f"The last {_count(hollow, 'row')} of {name} {'has' if hollow == 1 else 'have'} no value "
            f"and {_are(hollow)} taken as not observed."
        )
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _width(text: str, separator: str) -> int:
    """How many fields the first line has that is no comment."""
    with contextlib.suppress(csv.Error):
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if row and any(map(str.strip, row)) and not row[0].startswith("#"):
                return len(row)
    return 1


def _ragged(name: str, line: int, row: list[str], width: int, separator: str) -> str:
    sentence = f"Line {line} of {name} has {len(row)} values where the first has {width}."
    if len(row) == 2 * width and separator == ",":
        return f"{sentence} If commas stand before decimals, separate the values by ; and say --decimal ,."
    if len(row) == width + 1:
        return f"{sentence} If the first of them numbers the rows, give that column a name, too."
    return sentence


def _refuse_foreign_archive(name: str, content: bytes) -> None:
    with contextlib.suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = archive.namelist()
        if "[Content_Types].xml" in parts or "content.xml" in parts:
            raise ValueError(f"{name} is a workbook (Excel or OpenDocument). Save the sheet as CSV.")
        if parts and not any(part.endswith(".npy") for part in parts):
            raise ValueError(f"{name} is a zip archive without arrays of NumPy. Unpack the table first.")


def _numpy_columns(
    name: str, content: bytes, array: str | None, room: _Room
) -> tuple[list[str], np.ndarray, tuple[str, ...]]:
    try:
        values, notes = _numpy_array(name, content, array, room)
    except _RefusedError:
        raise
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
    room.check(8 * values.size)
    return names or [f"x{place}" for place in range(values.shape[-1])], values.astype(float), notes


class _RefusedError(ValueError):
    """A sentence that is complete."""


def _numpy_array(
    name: str, content: bytes, array: str | None, room: _Room
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The array, and a note if there are others."""
    if content.startswith(b"\x93NUMPY"):
        return np.load(io.BytesIO(content), allow_pickle=False), ()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # more than this is not unpacked, whatever the archive says elsewhere
        room.check(sum(part.file_size for part in archive.infolist()))
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        if not arrays.files:
            raise ValueError("it holds no array")
        if array is not None and array not in arrays.files:
            raise _RefusedError(
                f"{name} has no array {array!r}. It has {', '.join(map(repr, arrays.files))}."
            )
        listed = ", ".join(map(repr, arrays.files))
        several = (f"{name} holds {listed}; the first is taken. Say another with --array.",)
        chosen = arrays.files[0] if array is None else array
        return np.asarray(arrays[chosen]), several if array is None and len(arrays.files) > 1 else ()
