"""The commands that describe: inspect, models."""

from __future__ import annotations

import inspect as python
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._options import Json, Reading, Timing, reads_series
from ._reading import read
from ._speech import print_table, tell

if TYPE_CHECKING:
    from ._files import Input


@reads_series
def inspect(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A model file, or data as for the others.")],
    json: Json = False,
    *,
    timing: Timing,
    reading: Reading,
) -> None:
    """What is in a model file, or in a data file: its columns and what would be done with each."""
    if _is_model(path):
        _inspect_model(path, json)
    else:
        _inspect_data(read(path, reading, timing=timing, strict=False), json)


def _is_model(path: str) -> bool:
    """Whether a file begins as safetensors do: the length of a header, and the header."""
    file = Path(path)
    if file.suffix == ".safetensors":
        return True
    if path == "-" or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(9)[8:] == b"{"


def _inspect_model(path: str, json: bool) -> None:
    from freeenergy import io

    from . import _files

    found = io.describe(path)
    if json:
        _files.write_json(found)
        return
    state = "fitted" if found["fitted"] else "not fitted"
    tell(f"{found['class']}, {state}, {found['numbers']} numbers, {found['bytes']} bytes")
    if found["n_features_in"] is not None:
        names = found["feature_names"]
        listed = f": {', '.join(names[:10])}{', …' if len(names) > 10 else ''}" if names else ""
        tell(f"{found['n_features_in']} columns{listed}")
    for name, value in found["parameters"].items():
        tell(f"  {name} = {value}")
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    tell(f"format {found['format']}, written by {versions}")


def _inspect_data(data: Input, json: bool) -> None:
    import numpy as np

    from . import _files

    found = data.in_columns()
    problems = found.table.problems
    if found.is_series:
        shape, columns = found.table.stacked.shape, _columns_of_numbers(found.names, found.rows)
    else:
        shape = (len(found.frame), len(found.names))
        columns = [line | _role(data, line["name"]) for line in _columns_of_frame(found)]
    if json:
        columns = [{key: _files.finite(value) for key, value in line.items()} for line in columns]
        series = {} if data.steps is None else {"series": _said_of_series(data).splitlines()}
        _files.write_json({"shape": shape, "columns": columns} | series)
        return
    tell(f"{' × '.join(map(str, shape))}. {found.description}".strip())
    rows = np.prod(shape[:-1])
    lines = []
    for column in columns:
        share = f"{column['missing'] / rows:.1%}" if column["missing"] else ""
        lines.append([column["name"], column["kind"], share, column["values"], column["treatment"]])
    print_table(["column", "kind", "missing", "values", "what is done with it"], lines, left=(0, 1, 3, 4))
    if problems:
        tell(f"{len(problems)} of {len(columns)} columns cannot be read as they are.")
    if data.steps is not None:
        tell(_said_of_series(data))


def _role(data: Input, name: str) -> dict[str, Any]:
    """What is done with a column that says which step a row is, or is known beside the series."""
    if data.steps is None or name in data.names:
        return {}
    if data.steps.time is not None and name == data.steps.time.name:
        return {"treatment": "The time of each step (--time)."}
    if data.steps.series is not None and name == data.steps.series.name:
        return {"treatment": "The name of each series (--series)."}
    return {"treatment": "Known beside the series (--inputs)."}


def _said_of_series(data: Input) -> str:
    """How many series there are and how far apart their steps, or why they cannot be taken as such."""
    try:
        return repr(data.sequence)
    except ValueError as error:
        return data.told(str(error))


def _columns_of_numbers(names: list[str], rows: Any) -> list[dict[str, Any]]:
    """What is to be said of the columns of series."""
    import numpy as np

    from freeenergy import Support

    columns = []
    for name, kind, column in zip(names, Support.recognise(rows).kinds, rows.T, strict=True):
        seen = column[~np.isnan(column)]
        values = _range(seen.min(), seen.max()) if len(seen) else ""
        line = {"name": name, "kind": kind.value, "missing": int(len(column) - len(seen)), "values": values}
        columns.append(line | _moments(seen) | {"treatment": ""})
    return columns


def _moments(seen: Any) -> dict[str, Any]:
    if not len(seen):
        return {"min": None, "mean": None, "max": None}
    return {"min": float(seen.min()), "mean": float(seen.mean()), "max": float(seen.max())}


def _range(low: Any, high: Any) -> str:
    return f"{_short(low)} … {_short(high)}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _columns_of_frame(found: Input) -> list[dict[str, Any]]:
    """What is to be said of each column of a table."""
    import numpy as np
    import polars.selectors as cs

    from freeenergy.datasets._columns import as_floats
    from freeenergy.shell import Schema

    columns, problems = [], found.table.problems
    frame = found.frame.with_columns(cs.float().replace([float("inf"), -float("inf")], None))
    schema = Schema.recognise(frame, kinds=found.kinds)
    for name in found.names:
        column, field = frame[name], schema[name]
        missing = (
            found.frame[name].fill_nan(None).null_count() if _is_float(column) else column.null_count()
        )
        line: dict[str, Any] = {"name": name, "kind": field.kind.value, "missing": missing}
        numbers = as_floats(column) if field.form.value in ("number", "flag") else None
        seen = np.empty(0) if numbers is None else numbers[~np.isnan(numbers)]
        line |= _moments(seen)
        known = column.drop_nulls()
        if field.categories:
            line |= {"values": field.looks, "categories": [str(label) for label in field.categories]}
        elif field.form.value == "label":
            shown = known.unique(maintain_order=True).head(3).to_list()
            long = any(len(text) > 30 for text in shown)
            told = (text if len(text) <= 30 else text[:30] + "…" for text in shown[: 1 if long else 3])
            line["values"] = ", ".join(map(repr, told))
        elif len(known):
            low, high = known.min(), known.max()
            line["values"] = _range(low, high) + (f", {field.looks}" if field.step and field.looks else "")
            if field.form.value == "time":
                line |= {"first": str(low), "last": str(high)}
        else:
            line["values"] = ""
        line["treatment"] = problems.get(name, field.treatment)
        if name in problems:
            line["problem"] = problems[name]
        columns.append(line)
    return columns


def _is_float(column: Any) -> bool:
    return column.dtype.is_float()


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="One of them, with its parameters.")
    ] = None,
    json: Json = False,
) -> None:
    """The models that there are, a line each; with a name that one, with its parameters."""
    from . import _files, _specs

    known, found = _specs.estimators(), []
    if name is not None:
        kind = _specs.model_called(name)
        known = {word: other for word, other in known.items() if other is kind}
    for word, kind in known.items():
        parameters = {
            key: None if field.default is None else _word(field.default)
            for key, field in python.signature(kind).parameters.items()
        }
        sentence = (python.getdoc(kind) or "").strip().splitlines()[0]
        found.append({"name": word, "class": kind.__name__, "summary": sentence, "parameters": parameters})
    if json:
        _files.write_json(found)
        return
    if name is not None:
        _tell_parameters(found[0], next(iter(known.values())))
        return
    width = max(len(entry["name"]) for entry in found)
    for entry in found:
        tell(f"{entry['name'].ljust(width)}  {entry['summary']}")


def _word(value: Any) -> Any:
    """A default as it would be written on the command line."""
    from . import _specs

    if isinstance(value, bool | int | float | str):
        return value
    return _specs.kebab(getattr(value, "__name__", type(value).__name__))


def _tell_parameters(entry: dict[str, Any], kind: type) -> None:
    """A model with its parameters, their defaults and what the documentation says of them."""
    tell(f"{entry['name']}  {entry['summary']}")
    said = _argument_lines(python.getdoc(kind) or "")
    lines = [
        [f"  {name}", "none" if value is None else str(value).lower(), said.get(name, "")]
        for name, value in entry["parameters"].items()
    ]
    print_table(["  parameter", "default", "what it is"], lines, left=(0, 1, 2))


def _argument_lines(documentation: str) -> dict[str, str]:
    """What a docstring says of each argument, on a line."""
    found: dict[str, str] = {}
    inside, name = False, None
    for line in documentation.splitlines():
        if line.strip() in ("Args:", "Parameters:"):
            inside = True
        elif inside and line and not line.startswith(" "):
            break
        elif inside and line.startswith("    ") and not line.startswith("     ") and ":" in line:
            names, _, text = line.strip().partition(":")
            name = names.split(",")
            found |= {part.strip(): text.strip() for part in name}
        elif inside and name is not None and line.strip():
            found |= {part.strip(): f"{found[part.strip()]} {line.strip()}" for part in name}
    return found
