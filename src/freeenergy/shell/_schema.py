"""The columns of a table as people have them, and what is done with each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .._core import CellError, in_notebook, table_in_notebook
from ._field import LABELS, LEFT_OUT, Field, as_number, field_of
from ._frames import (
    LIBRARIES,
    AbstractLibrary,
    Form,
    Values,
    library_of,
    numbers_of,
    read_column,
    refuse_same_names,
    table_library,
)
from ._support import Column, Support

# so many rows are put in place at once
_PART = 4096
# so many rows at least before columns are worked on at the same time
_MANY = 2**16
_AS_SUPPORT = {
    Column.CONTINUOUS: Column.CONTINUOUS,
    Column.ROUNDED: Column.ROUNDED,
    **dict.fromkeys((Column.INTEGER, Column.COUNT, *LABELS), Column.INTEGER),
}


def _each(function: Callable[..., Any], *columns: Iterable[Any], rows: int) -> list[Any]:
    """What a function makes of each column; of many rows it makes several at the same time."""
    if rows < _MANY:
        return list(map(function, *columns))
    with ThreadPoolExecutor() as pool:
        return list(pool.map(function, *columns))


def _read_all(library: AbstractLibrary, X: Any) -> tuple[list[Any], list[Values]]:
    names = library.names(X)
    refuse_same_names(names)
    if not names:
        return names, []
    # the first says how many rows there are, which not every table does
    first = read_column(library, X, 0)
    rest = _each(lambda place: read_column(library, X, place), range(1, len(names)), rows=len(first.values))
    return names, [first, *rest]


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns of a table: what each holds, and what is done with it.

    Kinds are found by themselves or declared.  Numbers are continuous, rounded (to a grid), binary (0 and
    1), counts (whole, not negative, with a variance of a fifth to twenty times their mean) or integers (the
    other whole ones); text, truth values and categorical types are categories (binary with two of them);
    times are dates.  Whole numbers that are codes look like counts: declare them.  Numbers and dates
    written as text are labels, and their treatment says so.  A column of one value is certain; identifiers
    (running numbers, texts that are all different) and free text are left out of models, and passed
    through by `impute`.

    Every estimator of tables that is fitted to a frame has one, `schema_`.  To fit with another than the
    one that would be found, pass `schema.rows(X)`.

    Attributes:
        fields: a `Field` for each column.
        library: what the table was: "numpy", "pandas", "polars" or "arrow".

    >>> import polars as pl
    >>> people = pl.DataFrame({"age": [31, 47, None], "sex": ["f", "m", "f"], "zip": [8001, 8400, 8001]})
    >>> schema = Schema.recognise(people, kinds={"zip": "category"})
    >>> schema
    Schema(age='count', sex='binary', zip='category')
    >>> schema.encode(people).tolist()
    [[31.0, 0.0, 0.0], [47.0, 1.0, 1.0], [nan, 0.0, 0.0]]
    >>> schema.decode(np.array([[20.0, 1.0, 1.0]])).row(0)
    (20, 'm', 8400)
    """

    fields: tuple[Field, ...]
    library: str = "numpy"
    # only the types are known: the estimator has the numbers as they are
    plain: bool = False

    @staticmethod
    def recognise(X: Any, kinds: Mapping[Any, Any] | Sequence[Any] | None = None) -> Schema:
        """The schema of a frame of pandas, Polars or Arrow, an array, or lists of rows.

        Args:
            X: the table.
            kinds: for some columns their kind, by name (or number): a word such as "category", a `Column`,
                or a list of labels in their order; or one for each column, None to find it.
        """
        return recognised(X, kinds)[0]

    @staticmethod
    def of_types(X: Any, library: AbstractLibrary) -> Schema:
        """The schema of a frame of numbers, by the types of its columns alone."""
        none = X.slice(0, 0) if library.name == "arrow" else X[:0]
        names, columns = _read_all(library, none)
        fields = [
            Field(
                name,
                Column.INTEGER if read.whole else Column.CONTINUOUS,
                form=read.form,
                dtype=read.dtype,
                whole=read.whole,
            )
            for name, read in zip(names, columns, strict=True)
        ]
        return Schema(tuple(fields), library.name, plain=True)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: Any) -> Field:
        """The column called `name`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def names(self) -> list[Any]:
        """The names of all columns."""
        return [field.name for field in self.fields]

    @property
    def modelled(self) -> tuple[Field, ...]:
        """The columns that models are given, in order."""
        return tuple(field for field in self.fields if field.modelled)

    @property
    def support(self) -> Support:
        """For each column that is modelled whether it has a density or a mass; labels are whole numbers."""
        chosen = self.modelled
        kinds = [
            _AS_SUPPORT.get(field.kind, Column.INTEGER if field.step else Column.CONTINUOUS)
            for field in chosen
        ]
        return Support(kinds, [field.step for field in chosen], [field.origin for field in chosen])

    def part(self, columns: np.ndarray) -> Schema:
        """The schema of some of the modelled columns alone, as a mask of them says."""
        chosen = [field for field, wanted in zip(self.modelled, columns, strict=True) if wanted]
        return dataclasses.replace(self, fields=tuple(chosen))

    def coded(self) -> Schema:
        """The schema of codes that stay codes: what is drawn or imputed is an array of numbers."""
        return dataclasses.replace(self, fields=self.modelled, library="codes")

    def continuous(self, columns: np.ndarray) -> Schema:
        """The same with some of the modelled columns, as a mask of them says, taken for continuous ones."""
        wanted = dict(zip((field.name for field in self.modelled), columns, strict=True))
        fields = [
            Field(field.name, Column.CONTINUOUS) if wanted.get(field.name) else field
            for field in self.fields
        ]
        return dataclasses.replace(self, fields=tuple(fields))

    def rows(self, X: Any) -> CodedRows:
        """`X` with this schema, to be fitted."""
        return CodedRows(self.encode(X), self, X)

    def encode(self, X: Any) -> np.ndarray:
        """The modelled columns as numbers: codes of labels, time since an origin, NaN where missing.

        Columns are taken by their names, in whatever order, and by their place in an array.
        """
        library = table_library(X)
        if library is None:
            raise ValueError(
                f"X must be a data frame, an array or a list of rows. Got {type(X).__name__} instead."
            )
        places = self._places(library.names(X), library)
        read = [read_column(library, X, place) for place in places]
        return self._encoded(read, library, X, places)

    def _places(self, names: list[Any], library: AbstractLibrary) -> list[int]:
        """Where the columns of the schema stand in a table with `names`; left out ones may be missing."""
        if library.name == "numpy" or self.library == "numpy":
            if len(names) != len(self.fields):
                raise ValueError(f"X has {len(names)} columns, but {len(self.fields)} were fitted.")
            return [place for place, field in enumerate(self.fields) if field.kind not in LEFT_OUT]
        where = {name: place for place, name in enumerate(names)}
        needed = [field for field in self.fields if field.kind not in LEFT_OUT]
        lacking = [field.name for field in needed if field.name not in where]
        if lacking:
            raise ValueError(
                f"X lacks the column {lacking[0]!r}, which was fitted. Add it, with missing values if "
                "nothing is known of it."
            )
        return [where[field.name] for field in needed]

    def _encoded(
        self, read: list[Values], library: AbstractLibrary, X: Any, places: list[int]
    ) -> np.ndarray:
        fields = [field for field in self.fields if field.kind not in LEFT_OUT]

        def encode(field: Field, values: Values, place: int) -> np.ndarray:
            def refuse(problem: str, row: int, value: Any) -> None:
                names = None if library.name == "numpy" else library.names(X)
                raise CellError(problem, value, place).placed(row, X, names=names)

            return field.encode(values, refuse)

        rows = len(read[0].values) if read else 0
        found = _each(encode, fields, read, places, rows=rows)
        coded = [codes for field, codes in zip(fields, found, strict=True) if field.modelled]
        out = np.empty((rows, len(coded)))

        def put(start: int) -> None:
            # part by part, so that what is in work stays in the cache
            part = slice(start, start + _PART)
            np.stack([codes[part] for codes in coded], axis=1, out=out[part])

        _each(put, range(0, rows if coded else 0, _PART), rows=rows)
        return out

    def decode(self, Z: Any, index: Any = None) -> Any:
        """A table of the library of the schema from rows of numbers, one for each modelled column.

        Constant columns have their value; those that are left out are not there.
        """
        Z = np.asarray(Z, float)
        if self.library == "codes":
            return Z
        library = LIBRARIES[self.library]
        return library.frame(self._columns(library, Z), index)

    def _columns(self, library: AbstractLibrary, Z: np.ndarray) -> dict[Any, Any]:
        if Z.ndim != 2 or Z.shape[1] != len(self.modelled):
            raise ValueError(
                f"Z must have {len(self.modelled)} columns of numbers. Got the shape {Z.shape} instead."
            )
        columns, number = {}, 0
        for field in self.fields:
            if field.kind in LEFT_OUT:
                continue
            codes = Z[:, number] if field.modelled else np.zeros(len(Z))
            columns[field.name] = library.write(field.decode(self.possible(field, codes)))
            number += field.modelled
        return columns

    def words(self, Z: np.ndarray) -> np.ndarray:
        """Rows of numbers as an array of objects: what they stand for, None where a label is missing."""
        found = np.empty(Z.shape, object)
        for place, field in enumerate(self.modelled):
            values = field.decode(self.possible(field, Z[:, place]))
            found[:, place] = LIBRARIES["numpy"].write(values)
        return found

    def possible(self, field: Field, codes: np.ndarray) -> np.ndarray:
        """Whole numbers where a column was found to hold them, and not only to have their type."""
        return np.rint(codes) if field.kind is Column.INTEGER and not self.plain else codes

    def fill(self, X: Any, Z: np.ndarray) -> Any:
        """The table `X` with its missing entries from rows of numbers `Z`, and everything else as it is.

        An integer column whose numbers are not all whole becomes one of floats.
        """
        library = table_library(X)
        assert library is not None
        names = library.names(X)
        columns = {name: library.column(X, place) for place, name in enumerate(names)}
        places = self._places(names, library)
        fields = [field for field in self.fields if field.kind not in LEFT_OUT]
        number = 0
        for field, place in zip(fields, places, strict=True):
            read = library.read(X, place)
            codes = Z[:, number] if field.modelled else np.zeros(len(Z))
            number += field.modelled
            unchanged = not self.plain or np.array_equal(read.values, codes)
            if unchanged and not read.missing.any():
                continue
            # the type is that of this table, which need not be that of the fit
            filled = like(field.decode(self.possible(field, codes)), read)
            columns[names[place]] = library.write(filled)
        if library.name == "numpy":
            lists = not isinstance(X, np.ndarray)
            return library.frame({k: numbers_of(c) if lists else c for k, c in columns.items()}, None)
        return library.frame(columns, library.index(X))

    def in_order(self, X: Any) -> Any:
        """The columns of the schema that a frame has, in its order; anything else as it is."""
        library = library_of(X)
        if library is None:
            return X
        names = library.names(X)
        wanted = [name for name in self.names if name in names]
        if names == wanted:
            return X
        columns = {name: library.column(X, names.index(name)) for name in wanted}
        return library.frame(columns, library.index(X))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name if isinstance(name, str) and name.isidentifier() else repr(name)}={field.kind.value!r}"
            for name, field in zip(self.names, self.fields, strict=True)
        )
        return f"Schema({shown})"

    def _table(self) -> list[tuple[str, ...]]:
        rows = [("column", "kind", "values", "missing", "what is done with it")]
        for field in self.fields:
            share = f"{field.missing:.1%}" if field.missing else ""
            rows.append((str(field.name), field.kind.value, field.looks, share, field.treatment))
        return rows

    def __str__(self) -> str:
        rows = self._table()
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]).rstrip()
            for row in rows
        )

    def _repr_html_(self) -> str:
        head, *body = self._table()
        modelled = len(self.modelled)
        left = len(self) - modelled
        many = f"{modelled} column{'s' if modelled != 1 else ''} for models"
        caption = many + (f", {left} left out or constant" if left else "")
        return in_notebook(table_in_notebook(head, body, caption=caption, words=(0, 1, 2, 4)))


def like(filled: Values, read: Values) -> Values:
    """Entries in the type of those that were read, where both are of one form."""
    if filled.form is not read.form:
        return filled
    filled = filled._replace(dtype=read.dtype, whole=read.whole, zone=read.zone, ordered=read.ordered)
    if read.form is Form.LABEL and read.declared:
        filled = _in_labels(filled, read)
    return filled.with_tick(read.tick) if read.form is Form.TIME else filled


def _in_labels(filled: Values, read: Values) -> Values:
    """Labels as a column has them that lists its own; others are added at the end."""
    extra = tuple(
        filled.labels[place]
        for place in np.unique(filled.values)
        if filled.labels[place] not in read.labels
    )
    labels = read.labels + extra
    place = {label: number for number, label in enumerate(labels)}
    table = np.array([*(place.get(label, -1) for label in filled.labels), -1])
    return filled._replace(values=table[filled.values], labels=labels)


class CodedRows:
    """Rows of numbers with the schema that says what they stand for: what `Schema.rows` makes.

    Attributes:
        x: a number for each row and modelled column.
        schema: the schema.
        passed: the table that it was made of, if there is one.
    """

    def __init__(self, x: np.ndarray, schema: Schema, passed: Any = None) -> None:
        self.x, self.schema = x, schema
        self.passed = x if passed is None else passed

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns that are modelled."""
        return self.x.shape[0], self.x.shape[1]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> CodedRows:
        """Some of the rows, as numbers."""
        return CodedRows(self.x[rows], self.schema)


class CodedSeries:
    """Series of numbers with the schema that says what they stand for, to be fitted.

    Attributes:
        series: an array (time, modelled columns) each.
        schema: the schema.
    """

    def __init__(self, series: list[np.ndarray], schema: Schema) -> None:
        self.series, self.schema = series, schema


def recognised(
    X: Any, kinds: Mapping[Any, Any] | Sequence[Any] | None = None, library: AbstractLibrary | None = None
) -> tuple[Schema, np.ndarray]:
    """The schema of a table, and its modelled columns as numbers."""
    if isinstance(X, CodedRows):
        return X.schema, X.x
    library = table_library(X) if library is None else library
    if library is None or (library.name == "numpy" and np.ndim(X) != 2):
        raise ValueError("X must be a data frame, or have rows and columns.")
    names, read = _read_all(library, X)
    if kinds is None:
        kinds = {}
    elif not isinstance(kinds, Mapping):
        if len(kinds) != len(names):
            raise ValueError(
                f"The kinds must be one for each of the {len(names)} columns. Got {len(kinds)}."
            )
        kinds = dict(zip(names, kinds, strict=True))
    unknown = [name for name in kinds if name not in names]
    if unknown:
        raise ValueError(f"The kinds name the column {unknown[0]!r}, which X has not.")
    rows = len(read[0].values) if read else 0
    fields = _each(field_of, names, read, map(kinds.get, names), rows=rows)
    if not any(field.modelled for field in fields):
        # of a table in which nothing varies the numbers are what there is
        fields = [as_number(field) if field.name not in kinds else field for field in fields]
    schema = Schema(tuple(fields), library.name)
    kept = [place for place, field in enumerate(fields) if field.kind not in LEFT_OUT]
    return schema, schema._encoded([read[place] for place in kept], library, X, kept)


def of_steps(schema: Schema, name: str) -> Schema:
    """The schema of the steps of series, all columns of which are modelled; refused where one cannot be."""
    fields = tuple(map(as_number, schema.fields))
    left = [field for field in fields if not field.modelled]
    if left:
        what = "has one value" if left[0].kind is Column.CONSTANT else f"looks like {left[0].likeness}"
        raise ValueError(f"{name} has no model of column {left[0].name!r}, which {what}. Leave it out.")
    return dataclasses.replace(schema, fields=fields)


def kinds_of(owner: Any) -> Schema | None:
    """The schema of an estimator that knows what kinds of column it has; None for plain numbers."""
    schema = schema_of(owner)
    return None if schema is None or schema.plain else schema


def schema_of(owner: Any) -> Schema | None:
    """The schema of what an estimator was fitted to; None for an array of numbers."""
    return vars(owner).get("schema_")
