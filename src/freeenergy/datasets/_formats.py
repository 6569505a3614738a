"""Files of every format as columns; what a file is, its first bytes tell."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ._columns import File
from ._csv import Writing, read_csv
from ._packed import RefusedError, Room, first_line

# files that people take for tables, by their first bytes, and what to do with them
_FOREIGN = (
    (b"\xd0\xcf\x11\xe0", "an Excel workbook of an old kind", "Save it as .xlsx, or the sheet as CSV"),
    (b"BZh", "compressed by bzip2", "Unpack it first"),
    (b"\xfd7zXZ", "compressed by xz", "Unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "Unpack it first"),
    (b"FEA1", "a Feather file of version 1", "Save it as Parquet or as Feather of version 2"),
    (b"\x89HDF", "an HDF5 file", "Save the table as Parquet or CSV"),
    (b"SQLite format 3", "a database", "Save the table as Parquet or CSV"),
    (b"%PDF", "a PDF document", "Save the table as CSV"),
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def read_file(
    name: str,
    content: bytes,
    room: Room,
    writing: Writing,
    array: str | None,
    as_written: Callable[[str], bool],
) -> File | tuple[list[str], np.ndarray, tuple[str, ...]]:
    """The columns of a file, as text those that `as_written` says; of three axes names, array and notes."""
    for start, what, remedy in _FOREIGN:
        if content.startswith(start):
            raise ValueError(f"{name} is {what}. {remedy}.")
    parts = _parts(content) if content.startswith(_ZIP) else []
    if "xl/workbook.xml" in parts:
        return _frame_of(name, *_workbook(name, content, array, room))
    _refuse_foreign_archive(name, parts)
    if content.startswith((b"\x93NUMPY", *_ZIP)):
        names, values, notes = _numpy_columns(name, content, array, room)
        if values.ndim == 3:
            return names, values, notes
        return File(name, dict(zip(names, values.T, strict=True)), None, notes)
    if content.startswith(b"PAR1"):
        return _frame_of(name, _scanned(name, content, room, "Parquet"))
    if content.startswith(b"ARROW1"):
        return _frame_of(name, _scanned(name, content, room, "Arrow"))
    if _JSON.match(content):
        return _frame_of(name, _json(name, content, room))
    return read_csv(name, content, writing, as_written)


def _frame_of(name: str, frame: Any, notes: tuple[str, ...] = ()) -> File:
    nested = [column.name for column in frame.get_columns() if column.dtype.is_nested()]
    if nested:
        raise ValueError(
            f"{name} is no table: column {nested[0]!r} holds lists or records. Give each value a column."
        )
    return File(name, {column.name: column for column in frame.get_columns()}, None, notes)


def _scanned(name: str, content: bytes, room: Room, kind: str) -> Any:
    """A Parquet or Arrow file, after its size is known."""
    import polars as pl

    scan, read = {
        "Parquet": (pl.scan_parquet, pl.read_parquet),
        "Arrow": (pl.scan_ipc, pl.read_ipc),
    }[kind]
    try:
        lazy = scan(io.BytesIO(content))
        rows = lazy.select(pl.len()).collect().item()
        room.check(8 * rows * len(lazy.collect_schema()))
        return read(io.BytesIO(content))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{name} is a damaged {kind} file ({first_line(error)}).") from None


# one record, or a list of them; UTF-8, as JSON is
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{")


def _json(name: str, content: bytes, room: Room) -> Any:
    """A record a line, or one list of records."""
    import polars as pl

    content = content.removeprefix(b"\xef\xbb\xbf").strip()
    try:
        if content.startswith(b"["):
            records = json.loads(content)
            content = b"\n".join(json.dumps(record).encode() for record in records)
        lazy = pl.scan_ndjson(io.BytesIO(content), infer_schema_length=None)
        # a record may have names that no other has, and every row has every column
        room.check(8 * (content.count(b"\n") + 1) * len(lazy.collect_schema()))
        frame = pl.read_ndjson(io.BytesIO(content), infer_schema_length=None)
    except RefusedError:
        raise
    except (pl.exceptions.PolarsError, OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} cannot be read as JSON lines ({first_line(error)}).") from None
    if any(kind.is_nested() for kind in frame.dtypes):
        raise ValueError(f"{name} is JSON, not a table. Save the table as CSV.")
    return frame


def _workbook(name: str, content: bytes, sheet: str | None, room: Room) -> tuple[Any, tuple[str, ...]]:
    """A sheet of an Excel workbook, and a note if there are others."""
    import polars as pl

    try:
        fastexcel: Any = importlib.import_module("fastexcel")
    except ImportError:
        raise ValueError(
            f"{name} is an Excel workbook, which needs the package fastexcel. "
            "Install it (pip install 'freeenergy[excel]'), or save the sheet as CSV."
        ) from None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        room.check(sum(part.file_size for part in archive.infolist()))
    try:
        sheets = fastexcel.read_excel(content).sheet_names
        if sheet is not None and sheet not in sheets:
            raise RefusedError(f"{name} has no sheet {sheet!r}. It has {', '.join(map(repr, sheets))}.")
        frame = pl.read_excel(io.BytesIO(content), sheet_name=sheets[0] if sheet is None else sheet)
    except RefusedError:
        raise
    except Exception as error:  # a damaged workbook can fail anywhere in its reader
        raise ValueError(f"{name} is a damaged workbook ({first_line(error)}).") from None
    listed = ", ".join(map(repr, sheets))
    several = (f"{name} has the sheets {listed}; the first is taken. Say another with --array.",)
    return frame, several if sheet is None and len(sheets) > 1 else ()


def _parts(content: bytes) -> list[str]:
    """What an archive holds; nothing where it is damaged."""
    with contextlib.suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist()
    return []


def _refuse_foreign_archive(name: str, parts: list[str]) -> None:
    if "[Content_Types].xml" in parts or "content.xml" in parts:
        raise ValueError(f"{name} is a workbook or a document of another kind. Save the sheet as CSV.")
    if parts and not any(part.endswith(".npy") for part in parts):
        raise ValueError(f"{name} is a zip archive without arrays of NumPy. Unpack the table first.")


def _numpy_columns(
    name: str, content: bytes, array: str | None, room: Room
) -> tuple[list[str], np.ndarray, tuple[str, ...]]:
    try:
        values, notes = _numpy_array(name, content, array, room)
    except RefusedError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in the readers of zip and of headers
        reason = first_line(error)
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


def _numpy_array(
    name: str, content: bytes, array: str | None, room: Room
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
            raise RefusedError(
                f"{name} has no array {array!r}. It has {', '.join(map(repr, arrays.files))}."
            )
        listed = ", ".join(map(repr, arrays.files))
        several = (f"{name} holds {listed}; the first is taken. Say another with --array.",)
        chosen = arrays.files[0] if array is None else array
        return np.asarray(arrays[chosen]), several if array is None and len(arrays.files) > 1 else ()
