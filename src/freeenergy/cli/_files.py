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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._options import Reading, Timing

_FORMATS = (".csv", ".tsv", ".parquet", ".npy")


class _NoColumnError(ValueError):
    """An option names a column that a file has not."""

    def __init__(self, sentence: str, name: str) -> None:
        super().__init__(sentence)
        self.name = name


@dataclasses.dataclass(frozen=True)
class Steps:
    """Rows that are time steps of series, by columns beside those that are modelled.

    Attributes:
        time: when each row was, as a series of Polars; None if no column says it.
        series: of which series it is; None if there is one.
        inputs: columns that are known beside the series, by name.
    """

    time: Any = None
    series: Any = None
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """What the columns of the series and the time are called."""
        return [key.name for key in (self.series, self.time) if key is not None]


@dataclasses.dataclass(frozen=True)
class Input:
    """Data as the commands use them.

    Attributes:
        table: the columns, as a file has them.
        y: the target, if one was named.
        groups: labels of rows that belong together, if they were named.
        steps: which rows are which steps of which series, if they are such.
        kinds: what columns are declared to be.
        description: what it is.
        whole: the columns of the file, where `table` has those of a model.
    """

    table: Any
    y: np.ndarray | None = None
    groups: np.ndarray | None = None
    steps: Steps | None = None
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
        return self.steps is not None or self.table.stacked is not None

    def in_time(self) -> Input:
        """The same, whose rows are steps of one series if nothing else was said."""
        if self.is_series:
            return self
        _refuse_times(self.table, self.names)
        return dataclasses.replace(self, steps=Steps())

    def in_columns(self) -> Input:
        """The same as a table of all columns of the file."""
        if self.steps is None:
            return self
        label = [] if self.steps.series is None else [self.steps.series]
        columns = {key.name: key for key in label} | dict(self.whole.columns)
        table = dataclasses.replace(self.whole, names=list(columns), columns=columns)
        return dataclasses.replace(self, table=table, steps=None)

    @functools.cached_property
    def sequence(self) -> Any:
        """Series as estimators take them: a frame in which they are declared, or an array of three axes."""
        if self.steps is None:
            return self.table.stacked
        import polars as pl

        from freeenergy.datasets._columns import floats
        from freeenergy.shell import series

        steps = self.steps
        keys = [key for key in (steps.series, steps.time) if key is not None]
        columns = {**self.table.columns, **steps.inputs}
        values = [pl.Series(name, floats(name, column)) for name, column in columns.items()]
        return series(
            pl.DataFrame([*keys, *values]),
            time=None if steps.time is None else steps.time.name,
            series=None if steps.series is None else steps.series.name,
            columns=self.names,
            inputs=list(steps.inputs) or None,
        )

    @property
    def labels(self) -> dict[str, Any]:
        """The name of each series under the title of its column; nothing if no column tells."""
        if self.steps is None or self.steps.series is None:
            return {}
        return {self.steps.series.name: np.array(self.sequence.labels)}

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
        if self.table.stacked is not None:
            return np.concatenate(list(self.table.stacked))
        return self.table.values if self.schema is None else self.schema.encode(self.frame)

    @property
    def count(self) -> int:
        """How many rows or series there are."""
        if self.steps is not None:
            return len(self.sequence.labels or [None])
        return len(self.table.stacked) if self.is_series else len(self.frame)

    @property
    def units(self) -> int:
        """How many parts can be held out: rows, series, or the steps of one series."""
        return self.count if self.count > 1 or self.table.stacked is not None else len(self.rows)

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self.rows) * len(self.names) if self.is_series else self.count * len(self.names)

    @property
    def fitted(self) -> Any:
        """What an estimator is fitted to."""
        if self.is_series:
            return self.sequence
        return self.schema.rows(self.frame) if self.kinds else self.frame

    def told(self, sentence: str) -> str:
        """A sentence of the library about a cell, whose row it counts from zero, as one about the file."""
        if self.table.stacked is not None:
            return sentence

        from freeenergy.datasets._columns import row_number

        def row(found: re.Match[str]) -> str:
            return row_number(int(found[0]), self.lines)

        if self.steps is None:
            return re.sub(r"(?<= in row )\d+(?=, column )", row, sentence)
        if self.steps.time is not None:
            sentence = sentence.replace(
                "The times of X", f"The times in column {self.steps.time.name!r}"
            ).replace("Resample the frame, or pass it without its times.", "Resample the file.")
        return re.sub(r"(?<=(?:in|nd) row )\d+", row, sentence)

    @contextlib.contextmanager
    def in_words_of_the_file(self) -> Iterator[None]:
        """Tells sentences about cells as `told` does."""
        from freeenergy._core import CellError

        try:
            yield
        except CellError as error:
            if error.name is None and error.position is not None:
                where = self.rows if self.table.stacked is None else self.table.stacked
                error = error.placed(error.position, where, names=self.names)
            raise ValueError(self.told(str(error))) from None
        except ValueError as error:
            if self.steps is None:
                raise
            raise ValueError(self.told(str(error))) from None


def _is_plain(kind: Any) -> bool:
    """Whether a column of this type is numbers, or truth values."""
    return kind.is_numeric() or str(kind) in ("Boolean", "Null")


def read(
    data: str,
    reading: Reading | None = None,
    *,
    target: Sequence[str] | None = None,
    groups: str | None = None,
    timing: Timing | None = None,
    model: Any = None,
    strict: bool = True,
) -> Input:
    """A file, a built-in name, or `-` for standard input; for a fitted `model` as that needs it."""
    from freeenergy import datasets

    reading = Reading() if reading is None else reading
    timing = Timing() if timing is None else timing
    label, chosen = _one_target(list(target or ()), timing)
    apart = [name for name in (label, groups, timing.series) if name is not None]
    if reading.array is not None and not _is_archive(data):
        raise ValueError(f"--array is for .npz files and workbooks, which {data!r} is not.")
    if data != "-" and not Path(data).exists() and data in datasets.names():
        return _built_in(data, label, groups, timing, reading)
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
    beside = {timing.time, *(part for text in timing.inputs or () for part in (text, *text.split(",")))}
    table = datasets.read_table(
        source,
        apart=apart,
        max_bytes=reading.max_bytes,
        text=lambda name: (
            name in written or (needed is not None and name not in needed and name not in beside)
        ),
        strict=strict and model is None,
        **options,
    )
    if table.stacked is not None and (apart or timing.option or chosen):
        what = f"no column {apart[0]!r}" if apart else f"no names for {timing.option or '--target'}"
        raise ValueError(f"{data!r} holds series in three axes, which have {what}.")
    labels = {title: _complete(title, table) for title in apart}
    found = Input(
        table,
        None if label is None else labels[label],
        None if groups is None else labels[groups],
        None,
        {name: _in_type_of(table, name, kind) for name, kind in kinds.items()},
    )
    return found if timing.option is None else _as_series(found, timing, chosen, labels, model)


def _one_target(targets: list[str], timing: Timing) -> tuple[str | None, list[str]]:
    """The column that is told from the others, or those of series that are modelled."""
    if timing.option is not None:
        return None, targets
    if len(targets) > 1:
        raise ValueError(
            "Only one --target can be told from the others. Several are columns of series, which --time, "
            "--series or --inputs declare."
        )
    return (targets[0] if targets else None), []


def _as_series(
    data: Input, timing: Timing, chosen: list[str], labels: Mapping[str, np.ndarray], model: Any
) -> Input:
    """The rows as steps of series, with the columns that are modelled apart from those beside them."""
    import polars as pl

    table = data.table
    inputs = [name for text in timing.inputs or () for name in _listed("inputs", text, table)]
    times = [] if timing.time is None else [timing.time]
    for option, names in (("time", times), ("target", chosen)):
        for name in names:
            _check_column(option, name, table)
    beside = [*inputs, *times]
    twice = [name for name in [*beside, *chosen] if [*beside, *chosen].count(name) > 1]
    if twice:
        raise ValueError(f"Column {twice[0]!r} is named twice by --time, --inputs and --target.")
    _refuse_problems(table, beside)
    modelled = chosen or [name for name in table.names if name not in beside]
    if not modelled:
        raise ValueError("There is no column left to model beside those of --time and --inputs.")
    if not chosen and model is None:
        _refuse_times(table, modelled)
    steps = Steps(
        None if timing.time is None else pl.Series(timing.time, table.columns[timing.time]),
        None if timing.series is None else pl.Series(timing.series, labels[timing.series]),
        {name: table.columns[name] for name in inputs},
    )
    kept = dataclasses.replace(
        table, names=modelled, columns={name: table.columns[name] for name in modelled}
    )
    return dataclasses.replace(data, table=kept, steps=steps, whole=table)


def _refuse_times(table: Any, names: Iterable[str]) -> None:
    """Says what a column of times may be, which is no column of a series."""
    from freeenergy.datasets._columns import option

    for name in names:
        column = table.columns[name]
        if not isinstance(column, np.ndarray) and column.dtype.is_temporal():
            raise ValueError(
                f"Column {name!r} holds times. Say that it is the time ({option('time', name)}) or leave "
                f"it out ({option('drop', name)})."
            )


def _listed(option: str, text: str, table: Any) -> list[str]:
    """The columns that an option lists; a name may have a comma in it."""
    names = [text] if text in table.columns else [part.strip() for part in text.split(",")]
    for name in names:
        _check_column(option, name, table)
    return names


def _check_column(option: str, name: str, table: Any) -> None:
    if name not in table.columns:
        listed = ", ".join(map(repr, table.names[:10]))
        raise _NoColumnError(f"--{option} names no column {name!r}. There are {listed}.", name)


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
    _check_column("schema", name, table)
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


def _built_in(name: str, target: str | None, groups: str | None, timing: Timing, reading: Reading) -> Input:
    from freeenergy import datasets

    data = datasets.load(name)
    columns = dict(zip(data.feature_names, data.X.T, strict=True))
    y, drop, encode = data.y, reading.drop or [], reading.encode or []
    if target == "target" and y is not None and y.ndim == 1:
        target_values: np.ndarray | None = np.asarray(y)
    else:
        target_values = None
    apart = [title for title in (target, groups, timing.series) if title is not None]
    unknown = [c for c in (*apart, *drop, *encode) if c not in columns and c != "target"]
    if unknown or (target == "target" and target_values is None):
        wrong = unknown[0] if unknown else "target"
        listed = ", ".join(map(repr, data.feature_names[:10]))
        raise ValueError(f"{name!r} has no column {wrong!r}. It has {listed} and 'target'.")
    if encode or groups is not None or timing.option is not None:
        option = "--encode" if encode else "--groups" if groups is not None else timing.option
        raise ValueError(f"{option} is for files, not for the built-in {name!r}.")
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
    return dataclasses.replace(data, table=chosen, whole=table if data.whole is None else data.whole)


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


def as_in_the_file(data: Input, filled: Any, frequency: Any) -> dict[str, Any]:
    """Steps of series with the other columns of the file, in its order; empty at steps that it has not."""
    import polars as pl

    assert data.steps is not None
    table, grid = data.table if data.whole is None else data.whole, data.sequence.grid(frequency)
    # without gaps the rows are those of the file, else one series is after another
    places = np.concatenate(grid.rows) if grid.gaps else np.arange(len(filled))
    rows, absent = pl.Series(np.maximum(places, 0)), pl.Series(places < 0)
    found = {name: filled[name] for name in data.steps.keys if name not in table.columns}
    for name in table.names:
        column = pl.Series(name, table.columns[name])
        if name not in filled.columns:
            found[name] = column.gather(rows).set(absent, None)
        elif name in data.names and column.dtype.is_integer() and _is_whole(filled[name]):
            found[name] = filled[name].cast(column.dtype)
        else:
            found[name] = filled[name]
    return found


def _is_whole(column: Any) -> bool:
    return bool((column.round() == column).all())


def future_inputs(future: str, reading: Reading, data: Input) -> tuple[Any, int]:
    """The inputs of the steps to come, from a file, and how many steps it has after the end of a series."""
    steps = data.steps
    assert steps is not None
    reading = dataclasses.replace(reading, schema=None, drop=None, encode=None)
    only = Timing(
        series=None if steps.series is None else steps.series.name,
        time=None if steps.time is None else steps.time.name,
    )
    lacks = f"{future!r} has no column {{!r}}, which --inputs names."
    try:
        found = read(future, reading, target=list(steps.inputs) if only.option else None, timing=only)
    except _NoColumnError as error:
        if error.name not in steps.inputs:
            raise
        raise ValueError(lacks.format(error.name)) from None
    if only.option is None:
        kept = {name: column for name, column in found.table.columns.items() if name in steps.inputs}
        lacking = next((name for name in steps.inputs if name not in kept), None)
        if lacking is not None:
            raise ValueError(lacks.format(lacking))
        table = dataclasses.replace(found.table, names=list(steps.inputs), columns=kept)
        found = dataclasses.replace(found, table=table).in_time()
    with in_words_of_the_future(future), found.in_words_of_the_file():
        labels, rows, times = found.sequence.members
    with data.in_words_of_the_file():
        own_labels, _, own_times = data.sequence.members
    counts = []
    for number, label in enumerate(own_labels or [None]):
        place = 0 if labels is None or label not in labels else labels.index(label)
        if times is None or own_times is None:
            counts.append(len(rows[place]))
        else:
            counts.append(int(np.sum(times[place] > own_times[number][-1])))
    if not max(counts):
        raise ValueError(f"{future!r} has no row after the end of the series.")
    # of a series that has fewer the model says which it needs
    return found.sequence, max(counts)


@contextlib.contextmanager
def in_words_of_the_future(future: str) -> Iterator[None]:
    """Says of sentences about future inputs which file they are about."""
    try:
        yield
    except ValueError as error:
        told = re.sub(r"^The 'future_inputs' of \w+ must", f"The file {future!r} must", str(error))
        told = re.sub(r"^The times( of X)?", f"The times of {future!r}", told)
        raise ValueError(told) from None


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
    return [list(row) for row in zip(*map(listed, columns.values()), strict=True)]


def listed(column: Any) -> list[Any]:
    """A column for JSON."""
    return finite(column if isinstance(column, np.ndarray) else column.to_list())


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
