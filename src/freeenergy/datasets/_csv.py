"""CSV: letters, separator, header, and where the rows are."""

from __future__ import annotations

import codecs
import contextlib
import csv
import dataclasses
import io
import re
import shlex
from typing import Any

import numpy as np

from ._columns import MISSING, File, as_floats, has_decimal_comma, is_number, typed
from ._packed import first_line, inside

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


def letters(name: str, content: bytes, encoding: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The letters of a text, whose lines end in a newline, and a note if they could be others.

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
    chosen = encoding or marked or "utf-8"
    try:
        text = content.decode("utf-8-sig" if codecs.lookup(chosen).name == "utf-8" else chosen)
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        line = content[:start].count(b"\n") + 1
        text = None if encoding or marked else _western(content)
        if text is None:
            raise ValueError(
                f"{name} is not {chosen.upper()} text: line {line} cannot be read. "
                "Save it as UTF-8, or name its encoding (--encoding)."
            ) from None
        notes = (
            f"{name} is not UTF-8 text (line {line}) and is read as Windows-1252. "
            "Say another encoding with --encoding.",
        )
    if "\0" in text:
        raise ValueError(f"{name} is not a table: its text has zero bytes in it.")
    return (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text), notes


def _western(content: bytes) -> str | None:
    """The letters by Windows-1252; None if there are some that no text has."""
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text) else text


def read_csv(name: str, content: bytes, writing: Writing) -> File:
    """The columns of a CSV, as text."""
    import polars as pl

    text, remarks = letters(name, content, writing.encoding)
    del content
    header, decimal = writing.header, writing.decimal
    if text.lstrip()[:1] == "<":
        raise ValueError(f"{name} is HTML or XML, not a table. Save the table as CSV.")
    separator = writing.separator or _separator(text)
    layout = _check_lines(name, text, separator)
    if not len(layout.lines):
        raise ValueError(f"{name} is empty.")
    notes = [*remarks, *layout.notes]
    if len(layout.first) == 1 and writing.separator is None:
        notes += _other_separator(name, layout.first[0], text)
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
        raise ValueError(f"{name} cannot be read as CSV ({first_line(error)}).") from None
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
    places = np.array(layout.lines[1 if header else 0 :])
    columns = {column.name: column for column in frame.get_columns()}
    unnamed = [new for old, new in zip(titles, columns) if header and not old]
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
        numbers = sum(is_number(field) or has_decimal_comma(field) for field in fields)
        found = (sizes.count(usual) / max(len(sizes), 1), numbers / max(len(fields), 1), usual)
        if usual > 1 and found > score:
            best, score = candidate, found
    return best


def _other_separator(name: str, first: str, text: str) -> list[str]:
    """A note on a mark that cuts the lines of one column into equally many fields, if there is one."""
    lines = [line for line in text[:65536].split("\n")[:50] if line.strip()]
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


def _check_lines(name: str, text: str, separator: str) -> _Layout:
    """Where the rows are; refuses ragged lines, which Polars fills without a word."""
    plain = _plain_lines(text, separator)
    if plain is not None:
        return plain
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


def _plain_lines(text: str, separator: str) -> _Layout | None:
    """The lines of a text in which each is a row; None if there are quotes, comments or empty lines."""
    if '"' in text or text.startswith("#"):
        return None
    letters = np.frombuffer(text.encode(), np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    if not len(ends) or ends[-1] < len(letters) - 1:
        ends = np.append(ends, len(letters))
    marks = np.flatnonzero(letters == ord(separator))
    if not len(marks) or len(marks) % len(ends) or (letters[ends[:-1] + 1] == ord("#")).any():
        return None
    # as many in each line: the last ones stand before its end, the first ones after that of the line before
    marks = marks.reshape(len(ends), -1)
    start = ends[-2] + 1 if len(ends) > 1 else 0
    last = letters[start:].tobytes().decode()
    ragged = (marks[:, -1] > ends).any() or (marks[1:, 0] < ends[:-1]).any()
    if ragged or not last.replace(separator, "").strip():
        return None
    first = letters[: ends[0]].tobytes().decode()
    return _Layout(first.split(separator), np.arange(1, len(ends) + 1))


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
    if len(row) == 2 * width and separator == ",":
        return f"{sentence} If commas stand before decimals, separate the values by ; and say --decimal ,."
    if len(row) == width + 1:
        return f"{sentence} If the first of them numbers the rows, give that column a name, too."
    return sentence
