"""What comes in and what goes out."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_FORMATS = (".csv", ".tsv", ".parquet", ".npy")


@dataclasses.dataclass(frozen=True)
class Input:
    """Data as the commands use them.

    Attributes:
        names: of the columns.
        values: (rows, columns), or (series, time, columns).
        y: the target, if one was named.
        groups: labels of rows that belong together, if they were named.
        description: what it is.
        notes: how a file was read, where it could be read otherwise.
        lines: the line of the file that each row is on, if it has lines.
    """

    names: list[str]
    values: np.ndarray
    y: np.ndarray | None = None
    groups: np.ndarray | None = None
    description: str = ""
    notes: tuple[str, ...] = ()
    lines: np.ndarray | None = None

    def told(self, sentence: str) -> str:
        """A sentence of the library about a cell, whose row it counts from zero, as one about the file."""
        if not isinstance(self.values, np.ndarray) or self.values.ndim == 3:
            return sentence

        from freeenergy.datasets._tables import row_number

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

    def frame(self) -> Any:
        """The values with their names, as estimators take them."""
        import polars as pl

        return pl.DataFrame(self.values, schema=self.names)


def read(
    data: str,
    *,
    target: str | None = None,
    groups: str | None = None,
    series: str | None = None,
    drop: Iterable[str] = (),
    encode: Iterable[str] = (),
    header: bool | None = None,
    decimal: str = ".",
    array: str | None = None,
    max_bytes: int | None = None,
) -> Input:
    """A file, a built-in name, or `-` for standard input."""
    from freeenergy import datasets

    apart = [name for name in (target, groups, series) if name is not None]
    both = [name for name in encode if name in set(drop)]
    if both:
        raise ValueError(f"Column {both[0]!r} is named by --drop and by --encode. Only one can be.")
    if array is not None and not _is_archive(data):
        raise ValueError(f"--array is for .npz files, which {data!r} is not.")
    if data != "-" and not Path(data).exists() and data in datasets.names():
        return _built_in(data, apart, target, groups, series, drop, encode)
    if data != "-" and not Path(data).exists() and not Path(data).suffix:
        close = difflib.get_close_matches(data, datasets.names(), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known names: {', '.join(datasets.names())}."
        raise FileNotFoundError(f"{data!r} is neither a file nor the name of a data set. {hint}")
    if data == "-" and sys.stdin is None:
        raise ValueError("Standard input is closed. Name a file, or pass the data through a pipe.")
    source = sys.stdin.buffer if data == "-" else data
    options: Any = {"drop": drop, "encode": encode, "header": header, "decimal": decimal, "array": array}
    table = datasets.read_table(source, apart=apart, max_bytes=max_bytes, **options)
    if apart and table.values.ndim == 3:
        raise ValueError(f"{data!r} holds series in three axes, which have no column {apart[0]!r}.")
    labels = {title: _complete(title, table) for title in apart}
    found = Input(
        table.names,
        table.values,
        None if target is None else labels[target],
        None if groups is None else labels[groups],
        notes=table.notes,
        lines=table.lines,
    )
    return found if series is None else _in_series(found, labels[series])


def _is_archive(data: str) -> bool:
    """Whether it is a file of several arrays; standard input may be one."""
    if data == "-" or not Path(data).is_file():
        return data == "-"
    with Path(data).open("rb") as file:
        return file.read(2) == b"PK"


def _built_in(
    name: str,
    apart: list[str],
    target: str | None,
    groups: str | None,
    series: str | None,
    drop: Iterable[str],
    encode: Iterable[str],
) -> Input:
    from freeenergy import datasets

    data = datasets.load(name)
    columns = dict(zip(data.feature_names, data.X.T, strict=True))
    y = data.y
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
    kept = {c: v for c, v in columns.items() if c != target and c not in set(drop)}
    if not kept:
        raise ValueError(f"{name!r} has no column left to model.")
    return Input(list(kept), np.column_stack(list(kept.values())), target_values, None, data.description)


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


def _in_series(found: Input, labels: np.ndarray) -> Any:
    """The rows of each series, in the order of the file."""
    _, first = np.unique(labels, return_index=True)
    parts = [found.values[labels == label] for label in labels[np.sort(first)]]
    same = len({len(part) for part in parts}) == 1
    return dataclasses.replace(found, values=np.stack(parts) if same else parts)


def align(data: Input, model: Any, encode: Iterable[str]) -> Input:
    """The columns that the model was fitted to, in its order."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or list(names) == data.names:
        return data
    place = {name: j for j, name in enumerate(data.names)}
    several = not isinstance(data.values, np.ndarray) or data.values.ndim == 3
    chosen: list[int | None] = []
    for name in map(str, names):
        if name in place:
            chosen.append(place[name])
        elif "=" in name and name.partition("=")[0] in set(encode):
            chosen.append(None)  # a label that does not occur here
        elif several and data.names == [f"x{j}" for j in range(len(names))]:
            return data  # an array of series, which has no names
        else:
            listed = ", ".join(map(repr, data.names[:10]))
            raise ValueError(
                f"The model needs the column {name!r}, which the data has not. It has {listed}."
            )

    def ordered(values: np.ndarray) -> np.ndarray:
        return np.stack([np.zeros(values.shape[:-1]) if j is None else values[..., j] for j in chosen], -1)

    values = data.values if isinstance(data.values, np.ndarray) else list(data.values)
    aligned: Any = ordered(values) if isinstance(values, np.ndarray) else [ordered(part) for part in values]
    return dataclasses.replace(data, names=[str(n) for n in names], values=aligned)


def check_output(path: Path | None, formats: Iterable[str] = _FORMATS) -> None:
    """Refuses a place that cannot be written to, before any work."""
    if path is None or str(path) == "-":
        return
    formats = tuple(formats)
    if path.suffix.lower() not in formats:
        raise ValueError(f"The output '{path}' must end in {' or '.join(formats)}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"The folder of the output '{path}' does not exist.")


def write(names: list[str], values: np.ndarray, path: Path | None) -> None:
    """A table of numbers to a file, in the format of its ending, or as CSV to standard output."""
    if path is not None and path.suffix.lower() == ".npy":
        write_array(values, path)
    else:
        write_columns(dict(zip(names, values.T, strict=True)), path)


def write_array(values: np.ndarray, path: Path) -> None:
    """An array of numbers to an .npy file."""
    from freeenergy._core import write_whole

    out = io.BytesIO()
    np.save(out, values)
    write_whole(path, out.getvalue())


def write_columns(columns: dict[str, np.ndarray], path: Path | None) -> None:
    """Columns to a file, in the format of its ending, or as CSV to standard output."""
    import polars as pl
    import polars.selectors as cs

    from freeenergy._core import visible, write_whole

    out = io.BytesIO()
    path = None if path is None or str(path) == "-" else path
    ending = ".csv" if path is None else path.suffix.lower()
    if path is not None and ending == ".npy":
        if any(column.dtype.kind not in "biuf" for column in columns.values()):
            raise ValueError(f"The output '{path}' cannot hold labels that are text. Write a .csv instead.")
        write_array(np.column_stack(list(columns.values())), path)
        return
    frame = pl.DataFrame(
        {name: column.astype(str) if column.dtype == object else column for name, column in columns.items()}
    )
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
