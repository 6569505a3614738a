"""CSV: letters, separator, header, and where the rows are."""

from __future__ import annotations

import codecs
import contextlib
import csv
import dataclasses
import io
import re
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np

from ._columns import MISSING, File, as_floats, has_decimal_comma, is_number, typed
from ._packed import first_line, inside

# bytes that are looked at at once
_PART = 2**18
# how many places of a text tell the types of its columns, and by how many bytes each
_PLACES, _SOME = 32, 2**13
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = (
    ("utf-8", b"\xef\xbb\xbf"),
    ("utf-32", b"\xff\xfe\0\0"),
    ("utf-32", b"\0\0\xfe\xff"),
    ("utf-16", b"\xff\xfe"),
    ("utf-16", b"\xfe\xff"),
)


@dataclasses.dataclass(frozen=True)
class Writing:
    """How a CSV is written, as far as somebody says it.

    Attributes:
        header: whether the first line has the names; found out if None.
        decimal: the mark of decimals, "." or ",".
        separator: what stands between fields; found out if None.
        encoding: of the letters; found out if None.
    """

    header: bool | None = None
    decimal: str = "."
    separator: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        def refuse(parameter: str, wanted: str, got: str) -> None:
            raise ValueError(
                f"The {parameter!r} parameter of read_table must be {wanted}. Got {got!r} instead."
            )

        if self.decimal not in (".", ","):
            refuse("decimal", "'.' or ','", self.decimal)
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            refuse("separator", "one character of ASCII", self.separator)
        if self.separator is not None and (self.separator in '"\n\r' or self.separator == self.decimal):
            refuse("separator", "no quote, no end of line and not the decimal mark", self.separator)
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            refuse("encoding", "a name such as 'utf-8', 'cp1252' or 'utf-16'", str(self.encoding))


def letters(name: str, content: bytes, encoding: str | None = None) -> tuple[bytes, tuple[str, ...]]:
    """The letters of a text as UTF-8, whose lines end in a newline, and a note if they could be others.

    They are in `encoding`, or as the byte-order mark says, or UTF-8, or else Windows-1252, which has nearly
    all of Latin 1.
    """
    notes: tuple[str, ...] = ()
    marked = next((encoding for encoding, mark in _MARKS if content.startswith(mark)), None)
    if encoding is None and marked is None and b"\0" in content[:4096]:
        raise ValueError(
            f"{name} is not a table: it is neither text (CSV, JSON lines) nor Parquet, Arrow, Excel or "
            "NumPy data. Save a text as UTF-8."
        )
    chosen = codecs.lookup(encoding or marked or "utf-8").name
    try:
        if chosen != "utf-8":
            content = content.decode(chosen).encode()
        elif not content.isascii():
            content.decode()  # only whether it can be
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        line = content[:start].count(b"\n") + 1
        text = None if encoding or marked else _western(content)
        if text is None:
            raise ValueError(
                f"{name} is not {(encoding or marked or chosen).upper()} text: line {line} cannot be read. "
                "Save it as UTF-8, or name its encoding (--encoding)."
            ) from None
        content = text.encode()
        notes = (
            f"{name} is not UTF-8 text (line {line}) and is read as Windows-1252. "
            "Say another encoding with --encoding.",
        )
    content = content.removeprefix(codecs.BOM_UTF8)
    if b"\0" in content:
        raise ValueError(f"{name} is not a table: its text has zero bytes in it.")
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return content, notes


def _western(content: bytes) -> str | None:
    """The letters by Windows-1252; None if there are some that no text has."""
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text) else text


def read_csv(name: str, content: bytes, writing: Writing, as_written: Callable[[str], bool]) -> File:
    """The columns of a CSV: numbers and truth values where all entries are, else text."""
    content, remarks = letters(name, content, writing.encoding)
    header, decimal = writing.header, writing.decimal
    beginning = _beginning(content)
    if beginning.lstrip()[:1] == "<":
        raise ValueError(f"{name} is HTML or XML, not a table. Save the table as CSV.")
    separator = writing.separator or _separator(beginning)
    layout = _check_lines(name, content, separator)
    if not len(layout.lines):
        raise ValueError(f"{name} is empty.")
    notes = [*remarks, *layout.notes]
    if len(layout.first) == 1 and writing.separator is None:
        notes += _other_separator(name, layout.first[0], beginning)
    if layout.left_out:
        lines = content.split(b"\n")
        for number in reversed(layout.left_out):
            del lines[number - 1]
        content = b"\n".join(lines)
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
    titles = [title.strip() for title in layout.first] if header else [""] * len(layout.first)
    names = _distinct([title or f"x{place}" for place, title in enumerate(titles)])
    plain = layout.plain and decimal == "."
    frame = _parsed(content, separator, header, names, as_written) if plain else None
    if frame is None:
        frame = _as_text(name, content, separator, layout)
        frame.columns = names
        frame = frame.slice(1) if header else frame
    del content
    twice = frozenset(title for title in titles if title and titles.count(title) > 1)
    if twice:
        changed = [new for old, new in zip(titles, names) if old in twice and new != old]
        notes.append(
            f"{name} has several columns {min(twice)!r}; the later ones are called {', '.join(changed)}."
        )
    places = np.array(layout.lines[1 if header else 0 :])
    columns = {column.name: column for column in frame.get_columns()}
    unnamed = [new for old, new in zip(titles, names) if header and not old]
    for title in unnamed:
        column = typed(columns[title], decimal)
        if len(columns) == 1:
            continue
        if column.null_count() == len(column):
            notes.append(f"The column without a name and without values of {inside(name)} is left out.")
        elif title == "x0" and _numbers_rows(column):
            notes.append(
                f"The first column of {inside(name)} has no name and numbers the rows; it is left out."
            )
        else:
            continue
        del columns[title]
    return File(name, columns, places, tuple(notes), twice, decimal)


def _as_text(name: str, content: bytes, separator: str, layout: _Layout) -> Any:
    """All columns as text."""
    import polars as pl

    try:
        frame = pl.read_csv(
            content, separator=separator, has_header=False, infer_schema=False, quote_char='"'
        )
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{name} cannot be read as CSV ({first_line(error)}).") from None
    if frame.height != len(layout.lines):
        raise ValueError(f"{name} cannot be read as CSV: its quotes do not match.")
    return frame


def _parsed(
    content: bytes, separator: str, header: bool, names: list[str], as_written: Callable[[str], bool]
) -> Any:
    """The columns in the types that some lines tell; None where other lines do not go with these.

    Text that is made and then read again takes twice the time of reading numbers at once.
    """
    import polars as pl
    import polars.selectors as cs

    options: dict[str, Any] = {"separator": separator, "has_header": False, "quote_char": None}
    start = content.index(b"\n") + 1 if header else 0
    text = dict.fromkeys(names, pl.String)
    some = pl.read_csv(_some_lines(content, start), schema=text, **options)
    types: dict[str, Any] = {}
    words: set[str] = set()
    for title in names:
        kept = as_written(title) or some[title].null_count() == len(some)
        kind = pl.String if kept else typed(some[title]).dtype
        types[title] = kind if kind in (pl.Int64, pl.Float64, pl.Boolean) else pl.String
        words |= {word for word in some[title].unique().drop_nulls() if word.lower() in MISSING}
    try:
        frame = pl.read_csv(
            content, schema=types, skip_lines=int(header), null_values=sorted(words) or None, **options
        )
    except pl.exceptions.PolarsError:
        return None
    return frame.with_columns(cs.float().fill_nan(None))


def _some_lines(content: bytes, start: int) -> bytes:
    """Lines from all over a text, of a short one all."""
    found, end = [], start
    for place in np.linspace(start, len(content), _PLACES, endpoint=False).astype(int).tolist():
        # where a line begins, after those that are there already
        first = content.find(b"\n", max(place, end) - 1) + 1 if found else start
        if first == 0:
            break
        end = content.find(b"\n", first + _SOME) + 1 or len(content)
        found.append(content[first:end])
    return b"".join(found)


def _numbers_rows(column: Any) -> bool:
    """Whether a column without a name is an index, also of a table whose rows were chosen or sorted."""
    numbers = as_floats(column)
    if numbers is None or len(numbers) < 3 or np.isnan(numbers).any():
        return False
    whole = bool((numbers == np.rint(numbers)).all()) and numbers.min() in (0, 1)
    return whole and len(np.unique(numbers)) == len(numbers)


def _has_header(name: str, first: list[str], decimal: str) -> bool:
    """Whether the first line has names; refused where it could be either."""
    seen = [field.strip() for field in first if field.strip().lower() not in MISSING]
    numbers = [f for f in seen if is_number(f, decimal)]
    words = [field for field in seen if field not in numbers]
    if numbers and words:
        raise ValueError(
            f"The first line of {inside(name)} has numbers ({numbers[0]!r}) and words ({words[0]!r}). "
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


def _beginning(content: bytes) -> str:
    """The first lines of a text."""
    if len(content) > _PART:
        content = content[: content.rfind(b"\n", 0, _PART) + 1 or _PART]
    return content.decode(errors="ignore")


def _separator(text: str) -> str:
    """The separator that cuts the first lines into equally many fields, most of them numbers."""
    lines = [line for line in text.split("\n")[:50] if line.strip() and not line.startswith("#")]
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
        numbers = sum(is_number(field) or has_decimal_comma(field) for field in fields)
        found = (sizes.count(usual) / max(len(sizes), 1), numbers / max(len(fields), 1), usual)
        if usual > 1 and found > score:
            best, score = candidate, found
    return best


def _other_separator(name: str, first: str, text: str) -> list[str]:
    """A note on a mark that cuts the lines of one column into equally many fields, if there is one."""
    lines = [line for line in text.split("\n")[:50] if line.strip()]
    for mark in (":", "~", "^", "/", " "):
        sizes = {line.strip().count(mark) for line in lines[: len(lines) - 1 or 1]}
        # a time, or a word with one mark in it, is no row of fields
        if len(sizes) == 1 and min(sizes) >= 2 and first.count(mark) in sizes:
            return [
                f"{name} has one column, and every line of it has {mark!r} {min(sizes)} times. "
                f"Say --separator {shlex.quote(mark)} if it stands between fields."
            ]
    return []


@dataclasses.dataclass
class _Layout:
    """The lines of a CSV: where its rows are, and what is no row."""

    first: list[str] = dataclasses.field(default_factory=list)
    lines: Any = dataclasses.field(default_factory=list)
    left_out: list[int] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    plain: bool = False


def _check_lines(name: str, content: bytes, separator: str) -> _Layout:
    """Where the rows are; refuses ragged lines, which Polars fills without a word."""
    plain = _plain_lines(content, separator)
    if plain is not None:
        return plain
    text = content.decode()
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
            f"{name} cannot be read as CSV: line {reader.line_num}, {first_line(error)}."
        ) from None
    if comments:
        found.notes.append(
            f"{_count(comments, 'line')} of {inside(name)} with # at the start {_are(comments)} left out."
        )
    if inner_blank and width == 1:
        found.notes.append(
            f"Empty lines of {inside(name)} are left out. Write NA where a value is missing."
        )
    if hollow and width > 1:
        found.notes.append(
            f"The last {_count(hollow, 'row')} of {inside(name)} {'has' if hollow == 1 else 'have'} "
            f"no value and {_are(hollow)} taken as not observed."
        )
    return found


def _plain_lines(content: bytes, separator: str) -> _Layout | None:
    """The lines of a text in which each is a row; None if there are quotes, comments or empty lines."""
    if b'"' in content or content.startswith(b"#") or (b"#" in content and b"\n#" in content):
        return None
    mark, start, rows, end = separator.encode(), 0, 0, content.find(b"\n")
    first = content if end < 0 else content[:end]
    width = first.count(mark) + 1
    while start < len(content):
        # some whole lines, so that what is in work stays in the cache
        stop = content.rfind(b"\n", start, start + _PART) + 1 or content.find(b"\n", start) + 1
        part = np.frombuffer(content, np.uint8, (stop or len(content)) - start, start)
        kinds = part[np.flatnonzero((part == ord(separator)) | (part == ord("\n")))]
        kinds = kinds if stop else np.append(kinds, ord("\n"))
        ends = kinds == ord("\n")
        # every so many of them one is the end of a line, and no other
        if width == 1 or len(ends) % width or not ends[width - 1 :: width].all():
            return None
        if np.count_nonzero(ends) != len(ends) // width:
            return None
        start, rows = start + len(part), rows + len(ends) // width
    last = content[content.rfind(b"\n", 0, len(content) - 1) + 1 :]
    if not last.replace(mark, b"").strip():
        return None
    return _Layout(first.decode().split(separator), np.arange(1, rows + 1), plain=True)


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
    sentence = f"Line {line} of {inside(name)} has {len(row)} values where the first has {width}."
    if width == 1 and not all(map(is_number, row)):
        return f"{sentence} If something else parts the fields than {separator!r}, say --separator."
    if len(row) == 2 * width and separator == ",":
        return f"{sentence} If commas stand before decimals, separate the values by ; and say --decimal ,."
    if len(row) == width + 1:
        return f"{sentence} If the first of them numbers the rows, give that column a name, too."
    return sentence
