"""What comes in and what goes out."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._options import Reading

_FORMATS = (".csv", ".tsv", ".parquet", ".npy")


@dataclasses.dataclass(frozen=True)
class Panel:
    """Rows that belong to several series.

    Attributes:
        title: the column that tells which.
        labels: of the series, in the order of the file.
        rows: the places of the rows of each.
    """

    title: str
    labels: np.ndarray
    rows: list[np.ndarray]

    def together(self, parts: Iterable[Any]) -> np.ndarray:
        """What there is for each step of each series, in the order of the rows of the file."""
        found = np.concatenate([np.asarray(part) for part in parts])
        back = np.argsort(np.concatenate(self.rows), kind="stable")
        return found[back]

    def repeated(self, steps: int) -> np.ndarray:
        """The label of each of some steps after the end of each series."""
        return np.repeat(self.labels, steps)

    @property
    def column(self) -> np.ndarray:
        """The label of each row."""
        return self.together(np.repeat(label, len(rows)) for label, rows in zip(self.labels, self.rows))


@dataclasses.dataclass(frozen=True)
class Input:
    """Data as the commands use them.

    Attributes:
        table: the columns, as a file has them.
        y: the target, if one was named.
        groups: labels of rows that belong together, if they were named.
        panel: which rows are a series, if a column tells.
        kinds: what columns are declared to be.
        description: what it is.
        whole: the columns of the file, where `table` has those of a model.
    """

    table: Any
    y: np.ndarray | None = None
    groups: np.ndarray | None = None
    panel: Panel | None = None
    kinds: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    description: str = ""
    whole: Any = None

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return self.table.names

    @property
    def lines(self) -> np.ndarray | None:
        """The line of the file that each row is on, if it has lines."""
        return self.table.lines

    @property
    def notes(self) -> tuple[str, ...]:
        """How a file was read, where it could be read otherwise."""
        return self.table.notes

    @property
    def is_series(self) -> bool:
        """Whether the rows are steps of series."""
        return self.panel is not None or self.table.stacked is not None

    @functools.cached_property
    def values(self) -> Any:
        """Numbers: (rows, columns); of series an array (series, time, columns) or a list of such parts."""
        if self.panel is None:
            return self.table.values
        parts = [self.table.values[rows] for rows in self.panel.rows]
        return np.stack(parts) if len({len(part) for part in parts}) == 1 else parts

    @functools.cached_property
    def frame(self) -> Any:
        """The columns with their names and types, as estimators take them: durations are seconds."""
        import polars as pl

        from freeenergy.datasets._columns import as_floats

        lasting = [c for c in self.table.frame.get_columns() if c.dtype in (pl.Duration, pl.Time)]
        return self.table.frame.with_columns(
            [pl.Series(column.name, as_floats(column)).fill_nan(None) for column in lasting]
        )

    @functools.cached_property
    def schema(self) -> Any:
        """What the columns are, where they are not numbers alone or some were declared; else None."""
        from freeenergy.shell import Schema

        if self.is_series or (not self.kinds and all(map(_is_plain, self.frame.dtypes))):
            return None
        return Schema.recognise(self.frame, kinds=self.kinds)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """Rows of numbers, from which models take their sizes: codes where columns are labels."""
        if self.is_series:
            return np.concatenate(list(self.values))
        return self.table.values if self.schema is None else self.schema.encode(self.frame)

    @property
    def units(self) -> int:
        """How many rows or series there are."""
        return len(self.values) if self.is_series else len(self.frame)

    @property
    def size(self) -> int:
        """How many entries there are."""
        return sum(part.size for part in self.values) if self.is_series else self.units * len(self.names)

    @property
    def fitted(self) -> Any:
        """What an estimator is fitted to."""
        if self.is_series:
            return self.values
        return self.schema.rows(self.frame) if self.kinds else self.frame

    def told(self, sentence: str) -> str:
        """A sentence of the library about a cell, whose row it counts from zero, as one about the file."""
        if self.is_series:
            return sentence

        from freeenergy.datasets._columns import row_number

        def row(found: re.Match[str]) -> str:
            return row_number(int(found[0]), self.lines)

        return re.sub(r"(?<= in row )\d+(?=, column )", row, sentence)

    @contextlib.contextmanager
    def in_words_of_the_file(self) -> Iterator[None]:
        """Tells sentences about cells as `told` does."""
        from freeenergy._core import CellError

        try:
            yield
        except CellError as error:
            if error.name is None and error.position is not None:
                error = error.placed(error.position, self.values, names=self.names)
            raise ValueError(self.told(str(error))) from None


def _is_plain(kind: Any) -> bool:
    """Whether a column of this type is numbers, or truth values."""
    return kind.is_numeric() or str(kind) in ("Boolean", "Null")


def read(
    data: str,
    reading: Reading | None = None,
    *,
    target: str | None = None,
    groups: str | None = None,
    series: str | None = None,
    model: Any = None,
    strict: bool = True,
) -> Input:
    """A file, a built-in name, or `-` for standard input; for a fitted `model` as that needs it."""
    from freeenergy import datasets

    reading = Reading() if reading is None else reading
    apart = [name for name in (target, groups, series) if name is not None]
    if reading.array is not None and not _is_archive(data):
        raise ValueError(f"--array is for .npz files and workbooks, which {data!r} is not.")
    if data != "-" and not Path(data).exists() and data in datasets.names():
        return _built_in(data, apart, target, groups, series, reading)
    if data != "-" and not Path(data).exists() and not Path(data).suffix:
        close = difflib.get_close_matches(data, datasets.names(), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known names: {', '.join(datasets.names())}."
        raise FileNotFoundError(f"{data!r} is neither a file nor the name of a data set. {hint}")
    if data == "-" and sys.stdin is None:
        raise ValueError("Standard input is closed. Name a file, or pass the data through a pipe.")
    source = sys.stdin.buffer if data == "-" else data
    kinds = declared_kinds(reading.schema or ())
    options: Any = {name: getattr(reading, name) for name in ("header", "decimal", "separator", "encoding")}
    options |= {"drop": reading.drop or (), "encode": reading.encode or (), "array": reading.array}
    written = {name for name, kind in kinds.items() if kind in _AS_WRITTEN} | _labels_of(model)
    named = getattr(model, "feature_names_in_", None)
    # what a model does not know is passed through
    needed = None if named is None else {str(name) for name in named}
    table = datasets.read_table(
        source,
        apart=apart,
        max_bytes=reading.max_bytes,
        text=lambda name: name in written or (needed is not None and name not in needed),
        strict=strict and model is None,
        **options,
    )
    if apart and table.stacked is not None:
        raise ValueError(f"{data!r} holds series in three axes, which have no column {apart[0]!r}.")
    labels = {title: _complete(title, table) for title in apart}
    return Input(
        table,
        None if target is None else labels[target],
        None if groups is None else labels[groups],
        None if series is None else _panel(series, labels[series]),
        {name: _in_type_of(table, name, kind) for name, kind in kinds.items()},
    )


def _is_archive(data: str) -> bool:
    """Whether it is a file of several arrays or sheets; standard input may be one."""
    if data == "-" or not Path(data).is_file():
        return data == "-"
    with Path(data).open("rb") as file:
        return file.read(2) == b"PK"


# kinds whose entries are kept as they are written
_AS_WRITTEN = ("category", "identifier", "text")


def declared_kinds(words: Iterable[str]) -> dict[str, Any]:
    """What `--schema` says of columns: by words, or a file that holds the same as JSON.

    >>> declared_kinds(["zip=category,size=[S, M, L]"])
    {'zip': 'category', 'size': ['S', 'M', 'L']}
    """
    found: dict[str, Any] = {}
    for text in words:
        found |= _kinds_in_file(Path(text)) if text.lower().endswith(".json") else _kinds_in_words(text)
    return found


def _kinds_in_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"The file of --schema '{path}' does not exist.")
    try:
        found: Any = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("columns"), list):
        # as `inspect --json` writes it
        columns = [c for c in found["columns"] if isinstance(c, dict)]
        found = {c.get("name"): c.get("kind") for c in columns}
    good = isinstance(found, dict) and all(isinstance(name, str) for name in found)
    for kind in found.values() if isinstance(found, dict) else ():
        good = good and (kind in _known_kinds() if isinstance(kind, str) else isinstance(kind, list))
    if not good or not isinstance(found, dict):
        raise ValueError(
            f"The file of --schema '{path}' must hold a name with its kind, or a list of labels, for each "
            f'column, as in {{"zip": "category"}}; kinds are {", ".join(_known_kinds())}.'
        )
    return found


def _known_kinds() -> list[str]:
    from freeenergy.shell import Column

    return [column.value for column in Column]


def _kinds_in_words(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    name = kind = ""
    # commas inside of brackets part labels
    for piece in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text):
        name = f"{name},{piece}" if name else piece
        title, mark, kind = (part.strip() for part in name.rpartition("="))
        if mark and title and kind.startswith("[") and kind.endswith("]"):
            found[title] = [label.strip() for label in kind[1:-1].split(",")]
        elif mark and title and kind in _known_kinds():
            found[title] = kind
        else:
            continue  # a name may have a comma in it
        name = ""
    if name or not found:
        raise ValueError(
            f"--schema must have NAME=KIND, of the kinds {', '.join(_known_kinds())}, or "
            f"NAME=[first,second,…]. Got {kind or text!r} instead."
        )
    return found


def _in_type_of(table: Any, name: str, kind: Any) -> Any:
    """Labels that are listed in words, as the column has them."""
    if name not in table.columns:
        listed = ", ".join(map(repr, table.names[:10]))
        raise ValueError(f"--schema names no column {name!r}. There are {listed}.")
    column = table.columns[name]
    if not isinstance(kind, list) or not (isinstance(column, np.ndarray) or column.dtype.is_numeric()):
        return kind
    try:
        numbers = [float(label) for label in kind]
    except (TypeError, ValueError):
        raise ValueError(f"The labels that --schema lists for column {name!r} must be numbers.") from None
    return [int(number) if number.is_integer() else number for number in numbers]


def _labels_of(model: Any) -> set[str]:
    """The columns that a fitted model knows as text."""
    schema = getattr(model, "schema_", None)
    fields = () if schema is None else schema.fields
    return {
        str(field.name)
        for field in fields
        if field.form.value == "label" and all(isinstance(label, str) for label in field.categories)
    }


def _built_in(
    name: str,
    apart: list[str],
    target: str | None,
    groups: str | None,
    series: str | None,
    reading: Reading,
) -> Input:
    from freeenergy import datasets

    data = datasets.load(name)
    columns = dict(zip(data.feature_names, data.X.T, strict=True))
    y, drop, encode = data.y, reading.drop or [], reading.encode or []
    if target == "target" and y is not None and y.ndim == 1:
        target_values: np.ndarray | None = np.asarray(y)
    else:
        target_values = None
    unknown = [c for c in (*apart, *drop, *encode) if c not in columns and c != "target"]
    if unknown or (target == "target" and target_values is None):
        wrong = unknown[0] if unknown else "target"
        listed = ", ".join(map(repr, data.feature_names[:10]))
        raise ValueError(f"{name!r} has no column {wrong!r}. It has {listed} and 'target'.")
    if encode or groups is not None or series is not None:
        option = "encode" if encode else "groups" if groups is not None else "series"
        raise ValueError(f"--{option} is for files, not for the built-in {name!r}.")
    if target is not None and target != "target":
        target_values = columns[target]
    kept = {c: v for c, v in columns.items() if c != target and c not in drop}
    if not kept:
        raise ValueError(f"{name!r} has no column left to model.")
    table = datasets.Table(list(kept), kept, {})
    kinds = declared_kinds(reading.schema or ())
    kinds = {column: _in_type_of(table, column, kind) for column, kind in kinds.items()}
    return Input(table, target_values, kinds=kinds, description=data.description)


def _complete(title: str, table: Any) -> np.ndarray:
    """Labels, none of which may be missing; whole numbers as such."""
    labels = table.apart[title]
    if labels.dtype == object:
        bad = np.array([label is None for label in labels], bool)
    else:
        bad = ~np.isfinite(labels)
    if bad.any():
        first = table.row(int(np.flatnonzero(bad)[0]))
        number = int(bad.sum())
        raise ValueError(
            f"Column {title!r} has {number} missing label{'' if number == 1 else 's'}, the first in "
            f"{first}. Leave such rows out."
        )
    if labels.dtype == object:
        return labels.astype(str)
    return labels.astype(int) if (labels == np.rint(labels)).all() else labels


def _panel(title: str, labels: np.ndarray) -> Panel:
    """The rows of each series, in the order of the file."""
    _, first = np.unique(labels, return_index=True)
    listed = labels[np.sort(first)]
    return Panel(title, listed, [np.flatnonzero(labels == label) for label in listed])


def for_model(data: Input, model: Any, encode: Iterable[str]) -> Input:
    """The columns that the model was fitted to, as it takes them."""
    names, schema = getattr(model, "feature_names_in_", None), getattr(model, "schema_", None)
    table = data.table
    # an array of series has no names
    unnamed = table.stacked is not None and data.names == [f"x{j}" for j in range(len(data.names))]
    if names is None or unnamed:
        _refuse_problems(table, data.names)
        return data
    needed = [str(name) for name in names]
    if schema is not None and not schema.plain:
        left_out = {str(field.name) for field in schema.fields if field.kind.value in _AS_WRITTEN[1:]}
        needed = [name for name in needed if name not in left_out or name in data.names]
    lacking = [name for name in needed if name not in data.names]
    # labels that do not occur here
    absent = [name for name in lacking if "=" in name and name.partition("=")[0] in set(encode)]
    if len(absent) < len(lacking):
        wrong = next(name for name in lacking if name not in absent)
        listed = ", ".join(map(repr, data.names[:10]))
        raise ValueError(f"The model needs the column {wrong!r}, which the data has not. It has {listed}.")
    _refuse_problems(table, needed)
    if table.stacked is not None:
        chosen = table.stacked[..., [data.names.index(name) for name in needed]]
        return dataclasses.replace(data, table=dataclasses.replace(table, names=needed, stacked=chosen))
    columns = dict(table.columns) | {name: np.zeros(len(data.frame)) for name in absent}
    columns = {name: columns[name] for name in needed}
    chosen = dataclasses.replace(table, names=needed, columns=columns)
    return dataclasses.replace(data, table=chosen, whole=table)


def _refuse_problems(table: Any, needed: list[str]) -> None:
    for name in needed:
        if name in table.problems:
            raise ValueError(table.problems[name])


def as_columns(answer: Any, names: list[str]) -> dict[str, Any]:
    """Columns by name of what a model gives back: a frame of any library, or an array of rows."""
    if isinstance(answer, np.ndarray):
        return dict(zip(names, answer.reshape(-1, answer.shape[-1]).T, strict=True))
    import polars as pl

    if isinstance(answer, pl.DataFrame):
        return {column.name: column for column in answer.get_columns()}
    listed = getattr(answer, "column_names", None)
    listed = list(answer.columns) if listed is None else listed
    return {str(name): pl.Series(str(name), list(answer[name])) for name in listed}


def check_output(path: Path | None, formats: Iterable[str] = _FORMATS) -> None:
    """Refuses a place that cannot be written to, before any work."""
    if path is None or str(path) == "-":
        return
    formats = tuple(formats)
    if path.suffix.lower() not in formats:
        raise ValueError(f"The output '{path}' must end in {' or '.join(formats)}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"The folder of the output '{path}' does not exist.")


def write_array(values: np.ndarray, path: Path) -> None:
    """An array of numbers to an .npy file."""
    from freeenergy._core import write_whole

    out = io.BytesIO()
    np.save(out, values)
    write_whole(path, out.getvalue())


def write_columns(columns: Mapping[str, Any], path: Path | None) -> None:
    """Columns to a file, in the format of its ending, or as CSV to standard output."""
    import polars as pl
    import polars.selectors as cs

    from freeenergy._core import visible, write_whole
    from freeenergy.datasets._columns import as_floats

    out = io.BytesIO()
    path = None if path is None or str(path) == "-" else path
    ending = ".csv" if path is None else path.suffix.lower()
    frame = pl.DataFrame([_column(name, column) for name, column in columns.items()])
    if path is not None and ending == ".npy":
        numbers = [as_floats(column) for column in frame.get_columns()]
        found = [column for column in numbers if column is not None]
        if len(found) < len(numbers):
            raise ValueError(f"The output '{path}' cannot hold labels that are text. Write a .csv instead.")
        write_array(np.column_stack(found), path)
        return
    if ending == ".parquet":
        frame.write_parquet(out)
    else:
        frame.with_columns(cs.float().fill_nan(None)).write_csv(
            out, separator="\t" if ending == ".tsv" else ","
        )
    if path is not None:
        write_whole(path, out.getvalue())
        return
    text = out.getvalue().decode()
    if sys.stdout.isatty():
        text = "\n".join(map(visible, text.split("\n")))
    sys.stdout.write(text)
    sys.stdout.flush()


def _column(name: str, column: Any) -> Any:
    import polars as pl

    if isinstance(column, np.ndarray) and column.dtype == object:
        column = column.astype(str)
    return pl.Series(name, column)


def in_rows(columns: Mapping[str, Any]) -> list[list[Any]]:
    """Columns as rows for JSON."""
    listed = [
        finite(column if isinstance(column, np.ndarray) else column.to_list())
        for column in columns.values()
    ]
    return [list(row) for row in zip(*listed, strict=True)]


def write_json(value: Any) -> None:
    """A value for machines, on standard output."""
    text = json.dumps(value, indent=2, allow_nan=False, default=_plain, ensure_ascii=False)
    # what a terminal would obey, as JSON writes it
    text = re.sub(
        r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", lambda c: f"\\u{ord(c[0]):04x}", text
    )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


def finite(value: Any) -> Any:
    """Numbers for JSON, which knows neither NaN nor infinity: None, and the words "inf" and "-inf"."""
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, list):
        return [finite(part) for part in value]
    if not isinstance(value, float) or np.isfinite(value):
        return value
    return None if np.isnan(value) else str(float(value))
