"""Columns of data frames of pandas, Polars and Arrow, and of arrays, as numbers, and back.

`library_of` says what a table is; a library reads a column as `Values` and makes a column of them.  What
pandas and Arrow have is found by what they have imported already: they are no part of what is installed.
"""

from __future__ import annotations

import abc
import collections
import datetime
import enum
import importlib
import numbers
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .._core import CellError

# the number of a missing time
NO_TIME = np.iinfo(np.int64).min
NOT_NUMBERS = "X must hold numbers, or NaN where nothing was observed"
_TICKS_A_DAY = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def refuse_same_names(names: Sequence[Any]) -> None:
    """Refuses columns that cannot be told apart by their names."""
    counts = collections.Counter(names)
    name, times = max(counts.items(), key=lambda pair: pair[1], default=(None, 1))
    if times > 1:
        raise ValueError(f"The columns of X must have different names. Got {name!r} {times} times.")


class Form(enum.Enum):
    """What the entries of a column are."""

    NUMBER = "number"
    FLAG = "flag"
    LABEL = "label"
    TIME = "time"


class Values(NamedTuple):
    """The entries of a column.

    Attributes:
        form: what they are.
        values: numbers with NaN, flags as 0 and 1 with NaN; places among `labels`, −1 where missing; whole
            `tick`s since 1970, `NO_TIME` where missing.
        dtype: how the library calls the type.
        labels: what the places stand for.
        declared: whether the type itself lists the labels.
        ordered: whether it says that they have an order.
        whole: whether the type has whole numbers only.
        tick: the unit of times, as NumPy calls it.
        zone: the time zone.
    """

    form: Form
    values: np.ndarray
    dtype: str
    labels: tuple[Any, ...] = ()
    declared: bool = False
    ordered: bool = False
    whole: bool = False
    tick: str = "us"
    zone: str | None = None

    @property
    def missing(self) -> np.ndarray:
        """Which entries are."""
        if self.form is Form.LABEL:
            return self.values < 0
        return self.values == NO_TIME if self.form is Form.TIME else np.isnan(self.values)

    @property
    def ticks_a_day(self) -> int:
        """How many of the unit of times a day has."""
        return _TICKS_A_DAY[self.tick]

    def with_tick(self, tick: str) -> Values:
        """Times in another unit, rounded."""
        ratio = _TICKS_A_DAY[tick] / self.ticks_a_day
        if ratio == 1:
            return self
        moved = self.values * int(ratio) if ratio > 1 else np.rint(self.values * ratio).astype(np.int64)
        return self._replace(values=np.where(self.missing, NO_TIME, moved), tick=tick)


class AbstractLibrary(abc.ABC):
    """What is asked of data frames."""

    name: str

    @abc.abstractmethod
    def names(self, X: Any) -> list[Any]:
        """The names of the columns."""

    @abc.abstractmethod
    def plain(self, X: Any) -> bool:
        """Whether the types of all columns are those of numbers, or of truth values."""

    @abc.abstractmethod
    def dates(self, X: Any) -> list[Any]:
        """The names of the columns that hold dates."""

    @abc.abstractmethod
    def durations(self, X: Any) -> list[Any]:
        """The names of the columns that hold times between dates."""

    @abc.abstractmethod
    def read(self, X: Any, column: int) -> Values:
        """The entries of a column."""

    @abc.abstractmethod
    def index(self, X: Any) -> Any:
        """The labels of the rows, if they have any."""

    @abc.abstractmethod
    def column(self, X: Any, place: int) -> Any:
        """A column as the library has it."""

    @abc.abstractmethod
    def write(self, values: Values) -> Any:
        """A column of the type `values.dtype`, or of the next that can hold them."""

    @abc.abstractmethod
    def frame(self, columns: dict[Any, Any], index: Any) -> Any:
        """A table of columns."""


class AbstractColumns(AbstractLibrary):
    """What is asked of frames whose columns stand on their own, with a name."""

    @abc.abstractmethod
    def answers(self, entries: np.ndarray, read: Values | None) -> Any:
        """A column of entries, of the type that was `read` of another if there is one."""

    @abc.abstractmethod
    def series(self, column: Any, name: Any, index: Any) -> Any:
        """A column with its name, or None, and the labels of its rows."""


def _is_frame(X: Any, module: str, kind: str = "DataFrame") -> bool:
    found = sys.modules.get(module)
    return found is not None and isinstance(X, getattr(found, kind))


def column_as_frame(column: Any) -> Any:
    """A column of pandas or Polars as a frame; None of what is none.

    >>> import polars as pl
    >>> column_as_frame(pl.Series("a", [1])).columns
    ['a']
    """
    of_one = _is_frame(column, "pandas", "Series") or _is_frame(column, "polars", "Series")
    return column.to_frame() if of_one else None


def library_of(X: Any) -> AbstractLibrary | None:
    """The library of a data frame; None for what is none.

    >>> import polars as pl
    >>> library_of(pl.DataFrame({"a": [1]})).name
    'polars'
    >>> library_of(np.zeros((1, 1))) is None
    True
    """
    if _is_frame(X, "pandas"):
        return Pandas()
    if _is_frame(X, "polars"):
        return Polars()
    arrow = getattr(X, "__arrow_c_stream__", None) is not None
    return Arrow() if arrow and getattr(X, "column_names", None) is not None else None


def holds_text(X: Any) -> bool:
    """Whether an array, or lists of lists, hold text that is no number, or dates beside other things."""
    if isinstance(X, np.ndarray):
        values = X
    elif isinstance(X, Sequence) and not isinstance(X, str) and len(X):
        try:
            values = np.asarray(X, object)
        except ValueError:
            return False
    else:
        return False
    if values.ndim != 2 or values.dtype.kind not in "OU":
        return False
    kinds = set(map(type, values.ravel().tolist()))
    if kinds & {datetime.date, datetime.datetime, np.datetime64}:
        return True
    return bool(kinds & {str, np.str_}) and any(map(is_text, values.ravel().tolist()))


def _are_dates(entries: np.ndarray) -> bool:
    """Whether a column is dates, by the first of its entries that is not missing."""
    if entries.dtype.kind != "O":
        return entries.dtype.kind == "M"
    first = next((entry for entry in entries if entry is not None and entry == entry), None)
    return isinstance(first, (datetime.date, np.datetime64))


def is_text(entry: Any) -> bool:
    """Whether it is text that is no number."""
    if not isinstance(entry, str):
        return False
    try:
        float(entry)
    except ValueError:
        return True
    return False


def _labelled(text: Any, dtype: str, **more: Any) -> Values:
    """The places of the strings of a Polars column among those that occur, in order."""
    import polars as pl

    labels = text.unique().drop_nulls().sort()
    places = text.cast(pl.Enum(labels)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return Values(Form.LABEL, places, dtype, tuple(labels.to_list()), **more)


def read_objects(entries: np.ndarray, dtype: str, *, numerals: bool) -> Values:
    """The entries of a column of Python objects, which have to be of one sort.

    With `numerals`, strings that are all numbers are taken for these, as NumPy makes strings of all where
    one is.
    """
    import polars as pl

    plain = entries.tolist()
    missing = np.array(
        [v is None or v is getattr(sys.modules.get("pandas"), "NA", None) or v != v for v in plain], bool
    )
    kinds = {type(v) for v, gone in zip(plain, missing, strict=True) if not gone}

    def all_are(*sorts: type) -> bool:
        return all(issubclass(kind, sorts) for kind in kinds)

    def known(convert: Any) -> np.ndarray:
        return np.array(
            [np.nan if gone else convert(v) for v, gone in zip(plain, missing, strict=True)], float
        )

    if all_are(bool, np.bool_) and kinds:
        return Values(Form.FLAG, known(float), dtype)
    if all_are(int, float, np.number):
        return Values(Form.NUMBER, known(float), dtype, whole=all_are(int, np.integer) and bool(kinds))
    if all_are(str):
        text = [is_text(v) for v in plain]
        if numerals and not any(text):
            return Values(Form.NUMBER, known(float), dtype)
        mixed = numerals and not all(t or gone for t, gone in zip(text, missing, strict=True))
        if not mixed:
            strings = [None if gone else str(v) for v, gone in zip(plain, missing, strict=True)]
            return _labelled(pl.Series(strings, dtype=pl.String), dtype)
    if all_are(datetime.date, np.datetime64):
        days = all(kind is datetime.date for kind in kinds)
        times = np.array(
            ["NaT" if gone else v for v, gone in zip(plain, missing, strict=True)],
            f"M8[{'D' if days else 'us'}]",
        )
        return Values(Form.TIME, times.astype(np.int64), dtype, tick="D" if days else "us")
    for row, value in enumerate(plain):
        if is_text(value):
            raise _MisplacedError(f"{NOT_NUMBERS}, not text.", str(value), row)
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"{NOT_NUMBERS}; text, truth values or dates in columns of their own: argument must be a string "
        f"or a number, not {names}."
    )


class _MisplacedError(Exception):
    """An entry that does not go with the others of its column."""

    def __init__(self, problem: str, value: str, row: int) -> None:
        self.problem, self.value, self.row = problem, value, row


class Arrays(AbstractLibrary):
    """Rows and columns without names: arrays and lists of lists."""

    name = "numpy"

    def names(self, X: Any) -> list[Any]:
        return list(range(np.shape(X)[1]))

    def plain(self, X: Any) -> bool:
        return not holds_text(X)

    def dates(self, X: Any) -> list[Any]:
        entries = (self.column(X, place) for place in self.names(X))
        return [place for place, column in enumerate(entries) if _are_dates(column)]

    def durations(self, X: Any) -> list[Any]:
        return [place for place in self.names(X) if self.column(X, place).dtype.kind == "m"]

    def read(self, X: Any, column: int) -> Values:
        entries = self.column(X, column)
        if entries.dtype.kind in "OU":
            return read_objects(entries.astype(object), entries.dtype.name, numerals=True)
        form = Form.FLAG if entries.dtype.kind == "b" else Form.NUMBER
        return Values(form, entries.astype(float), entries.dtype.name, whole=entries.dtype.kind in "iu")

    def index(self, X: Any) -> Any:
        return None

    def column(self, X: Any, place: int) -> np.ndarray:
        return X[:, place] if isinstance(X, np.ndarray) else np.asarray(X, object)[:, place]

    def write(self, values: Values) -> np.ndarray:
        if values.form is Form.LABEL:
            entries = np.empty(len(values.labels) + 1, object)
            entries[:-1] = values.labels
            return entries[values.values]
        if values.form is Form.TIME:
            return _times(values).astype(object)
        if values.form is Form.FLAG and values.dtype == "object":
            return _flags(values.values)
        return values.values

    def frame(self, columns: dict[Any, Any], index: Any) -> np.ndarray:
        made = list(columns.values())
        if all(column.dtype.kind in "fiub" for column in made):
            return np.column_stack(made).astype(float)
        out = np.empty((len(made[0]), len(made)), object)
        for place, column in enumerate(made):
            out[:, place] = column
        return out


def _flags(numbers: np.ndarray) -> np.ndarray:
    """False, True and NaN as the objects that they were, where there is nothing between them.

    >>> _flags(np.array([1.0, np.nan])).tolist(), _flags(np.array([0.5])).tolist()
    ([True, nan], [0.5])
    """
    entries = numbers.astype(object)
    false, true = numbers == 0, numbers == 1
    if (false | true | np.isnan(numbers)).all():
        entries[false], entries[true] = False, True
        return entries
    return numbers


def numbers_of(column: np.ndarray) -> np.ndarray:
    """A column of objects as floats, if each is a number; else as it is.

    >>> [numbers_of(np.array(column, object)).dtype.name for column in ([1, 2.5], [1, True])]
    ['float64', 'object']
    """
    numeric = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in column)
    return column.astype(float) if numeric else column


def _times(values: Values) -> np.ndarray:
    return values.values.astype(f"M8[{values.tick}]")


def _whole(numbers: np.ndarray) -> bool:
    return bool((np.rint(numbers) == numbers).all())


class Pandas(AbstractColumns):
    """Frames of pandas."""

    name = "pandas"

    def names(self, X: Any) -> list[Any]:
        return X.columns.tolist()

    def plain(self, X: Any) -> bool:
        def labels(place: int, dtype: Any) -> bool:
            if dtype.name == "object":
                return holds_text(X.iloc[:, [place]].to_numpy(object))
            return dtype.name == "category" or getattr(dtype, "kind", "O") in "MOU"

        return not any(labels(place, dtype) for place, dtype in enumerate(X.dtypes))

    def dates(self, X: Any) -> list[Any]:
        def dated(place: int, dtype: Any) -> bool:
            if dtype.name == "object":
                return _are_dates(X.iloc[:, place].to_numpy(object))
            return getattr(dtype, "kind", "O") == "M" or dtype.name.startswith("period")

        names = self.names(X)
        return [names[place] for place, dtype in enumerate(X.dtypes) if dated(place, dtype)]

    def durations(self, X: Any) -> list[Any]:
        kinds = [getattr(dtype, "kind", "O") for dtype in X.dtypes]
        return [name for name, kind in zip(self.names(X), kinds, strict=True) if kind == "m"]

    def read(self, X: Any, column: int) -> Values:
        entries = X.iloc[:, column]
        dtype, kind = entries.dtype, getattr(entries.dtype, "kind", "O")
        called = str(dtype)
        if called == "category":
            labels = tuple(dtype.categories.tolist())
            places = entries.cat.codes.to_numpy().astype(np.int64)
            return Values(Form.LABEL, places, called, labels, declared=True, ordered=bool(dtype.ordered))
        if kind == "M":
            zone = getattr(dtype, "tz", None)
            entries = entries if zone is None else entries.dt.tz_convert("UTC").dt.tz_localize(None)
            times = entries.to_numpy()
            tick = np.datetime_data(times.dtype)[0]
            return Values(Form.TIME, times.astype(np.int64), called, tick=tick, zone=zone and str(zone))
        if kind in "biuf":
            numbers = entries.to_numpy(dtype=float, na_value=np.nan)
            return Values(Form.FLAG if kind == "b" else Form.NUMBER, numbers, called, whole=kind in "iu")
        if kind in "OU":
            return read_objects(entries.to_numpy(dtype=object, na_value=None), called, numerals=False)
        raise TypeError(f"{NOT_NUMBERS}. Column {X.columns[column]!r} holds {called}; make numbers of it.")

    def index(self, X: Any) -> Any:
        return X.index

    def column(self, X: Any, place: int) -> Any:
        return X.iloc[:, place]

    def write(self, values: Values) -> Any:
        pd: Any = sys.modules["pandas"]
        numbers, dtype = values.values, values.dtype
        if values.form is Form.LABEL:
            if dtype == "category":
                return pd.Categorical.from_codes(numbers, list(values.labels), ordered=values.ordered)
            return pd.array(Arrays().write(values), dtype=None if dtype == "object" else dtype)
        if values.form is Form.TIME:
            times = pd.Series(_times(values))
            times = times if values.zone is None else times.dt.tz_localize("UTC").dt.tz_convert(values.zone)
            return times.array if dtype == "object" else times.astype(dtype).array
        if dtype == "object":
            if values.form is Form.FLAG:
                return _flags(numbers)
            return numbers.astype(int).astype(object) if values.whole and _whole(numbers) else numbers
        holds = {"b": lambda: np.isin(numbers, (0, 1)).all(), "i": lambda: _whole(numbers)}
        kind = pd.api.types.pandas_dtype(dtype).kind
        if not holds.get("i" if kind == "u" else kind, lambda: True)():
            dtype = "Float64" if dtype[0].isupper() or dtype == "boolean" else "float64"
        return pd.array(numbers, dtype="float64").astype(dtype)

    def frame(self, columns: dict[Any, Any], index: Any) -> Any:
        pd: Any = sys.modules["pandas"]
        return pd.DataFrame(
            {name: pd.Series(column, index=index) for name, column in columns.items()}, index=index
        )

    def answers(self, entries: np.ndarray, read: Values | None) -> Any:
        pd: Any = sys.modules["pandas"]
        if read is None:
            return entries
        if read.declared:
            return pd.Categorical(entries, list(read.labels), ordered=read.ordered)
        return pd.Series(entries).astype(read.dtype).array

    def series(self, column: Any, name: Any, index: Any) -> Any:
        return sys.modules["pandas"].Series(column, index=index, name=name)


class Polars(AbstractColumns):
    """Frames of Polars."""

    name = "polars"

    def names(self, X: Any) -> list[Any]:
        return list(X.columns)

    def plain(self, X: Any) -> bool:
        import polars as pl

        return all(t.is_numeric() or t in (pl.Boolean, pl.Null, pl.Duration) for t in X.dtypes)

    def dates(self, X: Any) -> list[Any]:
        import polars as pl

        return [name for name, dtype in X.schema.items() if dtype in (pl.Date, pl.Datetime)]

    def durations(self, X: Any) -> list[Any]:
        import polars as pl

        return [name for name, dtype in X.schema.items() if dtype == pl.Duration]

    def read(self, X: Any, column: int) -> Values:
        import polars as pl

        entries = self.column(X, column)
        dtype: Any = entries.dtype
        called = str(dtype.base_type())
        if dtype == pl.Enum:
            places = entries.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
            return Values(Form.LABEL, places, called, tuple(dtype.categories.to_list()), declared=True)
        if dtype in (pl.Categorical, pl.String):
            return _labelled(entries.cast(pl.String), called)
        if dtype in (pl.Date, pl.Datetime):
            ticks = entries.to_physical().cast(pl.Int64).fill_null(NO_TIME).to_numpy()
            tick = getattr(dtype, "time_unit", "D")
            return Values(Form.TIME, ticks, called, tick=tick, zone=getattr(dtype, "time_zone", None))
        if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null):
            numbers = entries.cast(pl.Float64).to_numpy()
            form = Form.FLAG if dtype == pl.Boolean else Form.NUMBER
            called = "Float64" if dtype.is_decimal() or dtype == pl.Null else called
            return Values(form, numbers, called, whole=dtype.is_integer())
        if dtype == pl.Object:
            return read_objects(np.array([*entries.to_list(), None], object)[:-1], called, numerals=False)
        raise TypeError(f"{NOT_NUMBERS}. Column {entries.name!r} holds {dtype}; make numbers of it.")

    def index(self, X: Any) -> Any:
        return None

    def column(self, X: Any, place: int) -> Any:
        return X.to_series(place)

    def write(self, values: Values) -> Any:
        import polars as pl

        numbers, dtype = values.values, getattr(pl, values.dtype)
        if values.form is Form.LABEL:
            places = pl.Series(numbers).set(pl.Series(numbers < 0), None)
            entries = pl.Series(list(values.labels)).gather(places.cast(pl.UInt32))
            if entries.dtype != pl.String or dtype == pl.Object:
                return entries
            return entries.cast(pl.Enum(values.labels) if dtype == pl.Enum else dtype)
        if values.form is Form.TIME:
            ticks = pl.Series(numbers).set(pl.Series(values.missing), None)
            if dtype == pl.Date:
                return ticks.cast(pl.Int32).cast(pl.Date)
            tick = values.tick if values.tick in ("ms", "us", "ns") else "us"
            ticks = pl.Series(values.with_tick(tick).values).cast(pl.Datetime(tick))
            zone = values.zone
            return ticks if zone is None else ticks.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        made = pl.Series(numbers)
        if dtype == pl.Boolean:
            return made.cast(pl.Boolean) if np.isin(numbers, (0, 1)).all() else made
        if dtype.is_integer():
            return made.cast(dtype) if _whole(numbers) else made
        return made.cast(dtype) if dtype.is_float() else made

    def frame(self, columns: dict[Any, Any], index: Any) -> Any:
        import polars as pl

        return pl.DataFrame([column.alias(str(name)) for name, column in columns.items()])

    def answers(self, entries: np.ndarray, read: Values | None) -> Any:
        import polars as pl

        column = pl.Series(entries.tolist() if entries.dtype.kind == "O" else entries)
        if read is None or read.dtype == "Object":
            return column
        return column.cast(pl.Enum(read.labels) if read.declared else getattr(pl, read.dtype))

    def series(self, column: Any, name: Any, index: Any) -> Any:
        return column.alias("" if name is None else str(name))


class Arrow(AbstractLibrary):
    """Tables of Arrow, which Polars reads without a copy."""

    name = "arrow"

    def _table(self, X: Any) -> Any:
        import polars as pl

        return pl.DataFrame(X)

    def names(self, X: Any) -> list[Any]:
        return list(X.column_names)

    def plain(self, X: Any) -> bool:
        return Polars().plain(self._table(X))

    def dates(self, X: Any) -> list[Any]:
        return Polars().dates(self._table(X))

    def durations(self, X: Any) -> list[Any]:
        return Polars().durations(self._table(X))

    def read(self, X: Any, column: int) -> Values:
        return Polars().read(self._table(X), column)

    def index(self, X: Any) -> Any:
        return None

    def column(self, X: Any, place: int) -> Any:
        return self._table(X).to_series(place)

    def write(self, values: Values) -> Any:
        return Polars().write(values)

    def frame(self, columns: dict[Any, Any], index: Any) -> Any:
        return Polars().frame(columns, index).to_arrow()


LIBRARIES: dict[str, AbstractLibrary] = {
    library.name: library for library in (Arrays(), Pandas(), Polars(), Arrow())
}


def table_library(X: Any) -> AbstractLibrary | None:
    """The library of a data frame, `Arrays` for an array or lists of rows; None for anything else."""
    found = library_of(X)
    if found is not None:
        return found
    rows = isinstance(X, (np.ndarray, list, tuple)) and not sparse.issparse(X)
    return LIBRARIES["numpy"] if rows else None


def read_column(library: AbstractLibrary, X: Any, column: int) -> Values:
    """The entries of a column, refused with its name where they do not go together."""
    try:
        return library.read(X, column)
    except _MisplacedError as error:
        names = None if library.name == "numpy" else library.names(X)
        found = CellError(error.problem, error.value, column).placed(error.row, X, names=names)
        raise found from None


# how libraries call the types that anything can be given in
_TYPES = {
    "pandas": dict(zip(Form, ("float64", "bool", "object", "datetime64[us]"))),
    "polars": dict(zip(Form, ("Float64", "Boolean", "String", "Datetime"))),
}
_WHOLE = {"pandas": "int64", "polars": "Int64"}
_DECLARED = {"pandas": "category", "polars": "Enum"}


def in_library(X: Any, name: str) -> Any:
    """A table as a frame of "pandas" or "polars": as it is, if it is one, or an array of numbers.

    >>> import polars as pl
    >>> in_library(pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "pandas").to_numpy().tolist()
    [[1, 'x'], [2, 'y']]
    """
    own = table_library(X)
    numbers = isinstance(X, np.ndarray) and X.dtype.kind != "O"
    if own is None or own.name == name or numbers:
        return X
    library, columns = LIBRARIES[name], {}
    # what makes a frame is there where one is asked for
    importlib.import_module(name)
    for place, column in enumerate(own.names(X)):
        read = read_column(own, X, place)
        kind = _TYPES[name][read.form]
        if read.form is Form.NUMBER and read.whole and not read.missing.any():
            kind = _WHOLE[name]
        if read.form is Form.FLAG and read.missing.any():
            kind = _TYPES[name][Form.NUMBER]
        if read.declared:
            kind = _DECLARED[name]
        if read.form is Form.TIME:
            read = read.with_tick("us")
            zoned = name == "pandas" and read.zone is not None
            kind = f"datetime64[us, {read.zone}]" if zoned else kind
        columns[column] = library.write(read._replace(dtype=kind))
    return library.frame(columns, None)
