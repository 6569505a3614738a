"""Series in frames: which rows are which steps of which series, and frames for what comes back."""

from __future__ import annotations

import abc
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._core import check_size
from ._frames import refuse_same_names
from ._time import AbstractFrequency, as_times, frequency_of, in_words

# with a time zone shorter steps are counted in UTC, others as clocks on walls have them
_LONG = np.timedelta64(23, "h")


class AbstractContainer(abc.ABC):
    """What series came in, and the way back: an array for each series as the user has series."""

    @abc.abstractmethod
    def wrap(self, parts: list[Any]) -> Any:
        """Arrays of any shape, one for each series."""

    @abc.abstractmethod
    def rows(self, parts: list[np.ndarray], names: Any = None) -> Any:
        """Arrays with a row, or a number, for each step of each series.

        `names` are of the columns, by default those of X; of one number a step, the name of that.
        """

    @abc.abstractmethod
    def with_rest(self, made: Any) -> Any:
        """`rows` with what a frame has beside the series: inputs, and columns that nobody named."""

    @abc.abstractmethod
    def ahead(self, parts: list[np.ndarray], names: Any = None) -> Any:
        """The same for steps after the end of each series."""

    @abc.abstractmethod
    def index_ahead(self, steps: int) -> list[Any] | None:
        """What the steps after the end of each series are called; None if series are plain arrays."""

    @property
    @abc.abstractmethod
    def names(self) -> list[Any] | None:
        """What the columns are called, if they are."""

    @property
    @abc.abstractmethod
    def notes(self) -> list[str]:
        """What a reader should know of the series."""

    @abc.abstractmethod
    def cells(self, series: list[np.ndarray]) -> tuple[Any, np.ndarray]:
        """What the user passed, and the values in its rows, so that a cell can be named."""


def only(parts: list[Any]) -> Any:
    """What one series is put back into."""
    return parts[0]


@dataclasses.dataclass(frozen=True)
class Plain(AbstractContainer):
    """One array, or a list or an array of several."""

    passed: Any
    put: Callable[[list[Any]], Any]

    def wrap(self, parts: list[Any]) -> Any:
        return self.put(parts)

    def rows(self, parts: list[np.ndarray], names: Any = None) -> Any:
        return self.put(parts)

    def with_rest(self, made: Any) -> Any:
        return made

    def ahead(self, parts: list[np.ndarray], names: Any = None) -> Any:
        return self.put(parts)

    def index_ahead(self, steps: int) -> list[Any] | None:
        return None

    @property
    def names(self) -> list[Any] | None:
        return None

    @property
    def notes(self) -> list[str]:
        return []

    def cells(self, series: list[np.ndarray]) -> tuple[Any, np.ndarray]:
        return (self.passed if self.put is only else series), np.concatenate(series)


class AbstractTable(abc.ABC):
    """A frame, with what says when each row was and of which series it is.

    Attributes:
        frame: as the user has it.
        columns: those that are the series.
        time, group: what the time and the series of each row are called, as the frame has it, or None.
    """

    frame: Any
    columns: list[Any]
    time: Any
    group: Any

    @abc.abstractmethod
    def selected(self, columns: list[Any]) -> Any:
        """The frame with some of its columns."""

    @abc.abstractmethod
    def times(self) -> np.ndarray | None:
        """When each row was; None of a frame that does not say."""

    @abc.abstractmethod
    def restored(self, times: np.ndarray) -> Any:
        """Times as the frame has them."""

    @abc.abstractmethod
    def joined(self, labels: list[Any]) -> Any:
        """Times or names of series, one after another."""

    @abc.abstractmethod
    def repeated(self, groups: list[Any], counts: list[int]) -> Any:
        """Names of series, each so often."""

    @abc.abstractmethod
    def built(self, data: np.ndarray, names: Any, time: Any, group: Any) -> Any:
        """A frame such as this one of other rows."""

    @abc.abstractmethod
    def with_rest(self, made: Any, places: np.ndarray) -> Any:
        """A frame such as this one with its other columns, from the rows at `places`; none at −1."""

    def row(self, number: int) -> str:
        """How an error calls a row."""
        return f"row {number}"


@dataclasses.dataclass(frozen=True, eq=False)
class PandasTable(AbstractTable):
    """A frame of pandas; times and series are in its index, or in columns.

    Attributes:
        indexed: whether they are in the index.
        declared: whether the user said which column the time is.
        single: whether it came as a `Series` of pandas.
    """

    frame: Any
    columns: list[Any]
    time: Any = None
    group: Any = None
    indexed: bool = True
    declared: bool = False
    single: bool = False

    def selected(self, columns: list[Any]) -> Any:
        return self.frame[columns]

    def times(self) -> np.ndarray | None:
        if self.time is None or not (self.declared or _is_dated(self.time)):
            return None
        if self.time.inferred_type == "period":
            return as_times(self.time.to_timestamp())
        if getattr(self.time, "tz", None) is None:
            return as_times(self.time)
        return as_times(self._utc() if self._in_utc else self.time.tz_localize(None))

    def _utc(self) -> Any:
        return self.time.tz_convert("UTC").tz_localize(None)

    @functools.cached_property
    def _in_utc(self) -> bool:
        apart: Any = np.diff(np.unique(np.asarray(self._utc())))
        return len(apart) > 0 and bool(np.median(apart) < _LONG)

    def restored(self, times: np.ndarray) -> Any:
        pandas: Any = sys.modules["pandas"]
        if times.dtype.kind != "M":
            whole = self.time.dtype.kind in "iu"
            return pandas.Index(np.rint(times).astype(np.int64) if whole else times, name=self.time.name)
        index = pandas.DatetimeIndex(times, name=self.time.name)
        if self.time.inferred_type == "period":
            return index.to_period(self.time.freq)
        if self.time.inferred_type != "datetime64":
            return index
        zone = self.time.tz
        if zone is not None:
            index = index.tz_localize("UTC").tz_convert(zone) if self._in_utc else index.tz_localize(zone)
        return index.as_unit(self.time.unit)

    def joined(self, labels: list[Any]) -> Any:
        return labels[0].append(labels[1:]) if len(labels) > 1 else labels[0]

    def repeated(self, groups: list[Any], counts: list[int]) -> Any:
        return sys.modules["pandas"].Index(groups, name=self.group.name).repeat(counts)

    def built(self, data: np.ndarray, names: Any, time: Any, group: Any) -> Any:
        pandas: Any = sys.modules["pandas"]
        keys = [key for key in (group, time) if key is not None]
        index = None
        if self.indexed:
            index = pandas.MultiIndex.from_arrays(keys) if len(keys) > 1 else keys[0]
        if data.ndim == 1 and self.indexed:
            return pandas.Series(data, index=index, name=names)
        if self.single and names is self.columns:
            return pandas.Series(data[:, 0], index=index, name=None if names == [0] else names[0])
        made = pandas.DataFrame(data, index=index, columns=[names] if data.ndim == 1 else list(names))
        if not self.indexed:
            for place, key in enumerate(keys):
                made.insert(place, key.name, key)
        return made

    def with_rest(self, made: Any, places: np.ndarray) -> Any:
        if self.single:
            return made
        names, pandas = list(self.frame.columns), sys.modules["pandas"]
        rest = [name for name in names if name not in made.columns]
        whole = (places >= 0).all()
        for name in rest:
            column = pandas.Series(self.frame[name].array)
            # where there is no row, nothing is known
            made[name] = (column.iloc[places] if whole else column.reindex(places)).array
        known = [name for name in made.columns if name not in names]
        return made[[*known, *names]] if rest else made

    def row(self, number: int) -> str:
        label = self.frame.index[number]
        parts = label if isinstance(label, tuple) else (label,)
        plain = tuple(part.item() if isinstance(part, np.generic) else part for part in parts)
        return f"row {plain if isinstance(label, tuple) else plain[0]!r}"


@dataclasses.dataclass(frozen=True, eq=False)
class PolarsTable(AbstractTable):
    """A frame of Polars; times and series are in columns."""

    frame: Any
    columns: list[Any]
    time: Any = None
    group: Any = None

    def selected(self, columns: list[Any]) -> Any:
        return self.frame.select(columns)

    def times(self) -> np.ndarray | None:
        if self.time is None:
            return None
        zone = getattr(self.time.dtype, "time_zone", None)
        plain = self.time if zone is None else self.time.dt.replace_time_zone(None)
        return as_times(plain.to_numpy())

    def restored(self, times: np.ndarray) -> Any:
        polars: Any = sys.modules["polars"]
        made = polars.Series(self.time.name, times)
        zone = getattr(self.time.dtype, "time_zone", None)
        if zone is not None:
            return made.dt.replace_time_zone(zone).cast(self.time.dtype)
        return made if self.time.dtype == polars.String else made.cast(self.time.dtype)

    def joined(self, labels: list[Any]) -> Any:
        return sys.modules["polars"].concat(labels)

    def repeated(self, groups: list[Any], counts: list[int]) -> Any:
        polars: Any = sys.modules["polars"]
        return polars.Series(
            self.group.name, np.repeat(np.array(groups, object), counts).tolist(), self.group.dtype
        )

    def built(self, data: np.ndarray, names: Any, time: Any, group: Any) -> Any:
        polars: Any = sys.modules["polars"]
        keys = [key for key in (group, time) if key is not None]
        table = data.reshape(len(data), -1)
        titles = [names] if data.ndim == 1 else names
        columns = [polars.Series(str(name), table[:, place]) for place, name in enumerate(titles)]
        return polars.DataFrame([*keys, *columns])

    def with_rest(self, made: Any, places: np.ndarray) -> Any:
        polars: Any = sys.modules["polars"]
        names = self.frame.columns
        rest = [name for name in names if name not in made.columns]
        rows, absent = polars.Series(np.maximum(places, 0)), polars.Series(places < 0)
        made = made.with_columns(self.frame[name].gather(rows).set(absent, None) for name in rest)
        return made.select(names) if rest else made


def _is_dated(index: Any) -> bool:
    return index.inferred_type in ("datetime64", "period", "date")


def _no_times(table: AbstractTable) -> ValueError:
    times = list(table.time)
    # of a column that is neither, or of one that is both, the first is named
    wrong = (place for place, one in enumerate(times) if as_times([one]) is None)
    place = next(wrong, 0)
    return ValueError(
        f"The times of X must be dates or numbers. Got {times[place]!r} in {table.row(place)}."
    )


class Grid(NamedTuple):
    """The steps of each series.

    Attributes:
        rows: the row of the frame that each step is; −1 where there is none.
        times: of each step; None if the frame has no times.
        frequency: how far apart they are, if that is known.
    """

    rows: list[np.ndarray]
    times: list[np.ndarray] | None
    frequency: AbstractFrequency | None

    @property
    def gaps(self) -> int:
        """How many steps no row has."""
        return sum(int(np.sum(own < 0)) for own in self.rows)


class SeriesFrame:
    """Series in a frame, as `fe.series` declares them.

    Every estimator of series takes it in `fit` and wherever it takes series, and `compare` does.
    """

    def __init__(
        self, table: AbstractTable, inputs: list[Any] | None = None, declared: bool = True
    ) -> None:
        self.table, self.inputs, self.declared = table, inputs, declared

    @functools.cached_property
    def members(self) -> tuple[list[Any] | None, list[np.ndarray], list[np.ndarray] | None]:
        """The names of the series, the rows of each and their times; series as they first appear."""
        table, count = self.table, len(self.table.frame)
        if not count:
            raise ValueError("X must have at least one time step. Got a frame without rows.")
        labels, rows = None, [np.arange(count)]
        if table.group is not None:
            names = list(table.group)
            numbers: dict[Any, int] = {}
            # NaN is a name like others, and no NaN is equal to another
            places = np.array([numbers.setdefault(None if n != n else n, len(numbers)) for n in names])
            labels = list(numbers)
            rows = np.split(np.argsort(places, kind="stable"), np.cumsum(np.bincount(places))[:-1])
        times = table.times()
        if times is None:
            if table.time is not None and isinstance(table, PandasTable) and table.declared:
                raise _no_times(table)
            if labels is not None and table.time is not None:
                self._check_order(labels, rows, np.asarray(table.time))
            return labels, rows, None
        missing = np.flatnonzero(np.isnat(times) if times.dtype.kind == "M" else np.isnan(times))
        if len(missing):
            raise ValueError(f"The times of X must be known. Got none in {table.row(int(missing[0]))}.")
        self._check_order(labels, rows, times)
        return labels, rows, [times[own] for own in rows]

    def _check_order(self, labels: list[Any] | None, rows: list[np.ndarray], times: np.ndarray) -> None:
        """Refuses the first time that is not after the one before it."""
        for number, own in enumerate(rows):
            wrong = np.flatnonzero(~(times[own][1:] > times[own][:-1]))
            if not len(wrong):
                continue
            before, after = (int(own[wrong[0] + k]) for k in (0, 1))
            # rows that were added at the end may be there twice, and those of several series are
            same = own[: wrong[0] + 1][times[own[: wrong[0] + 1]] == times[after]]
            before = int(same[0]) if len(same) else before
            name = "" if labels is None else f" of series {labels[number]!r}"
            found = in_words(times[after])
            if times[after] == times[before]:
                advice = (
                    "Keep one of them"
                    if labels
                    else "Keep one of them, or say which column tells series apart"
                )
                reason = f"twice, in {self.table.row(before)} and {self.table.row(after)}{name}. {advice}."
            else:
                earlier = in_words(times[before])
                reason = f"in {self.table.row(after)}{name}, after {earlier}. Sort the rows by time."
            raise ValueError(f"The times of X must increase within each series. Got {found} {reason}")

    def grid(self, frequency: AbstractFrequency | None = None) -> Grid:
        """The steps of each series, those between two rows that no row has included.

        With `frequency`, that of the series of a fit, the times must be steps of it.
        """
        _, rows, times = self.members
        if times is None:
            return Grid(rows, None, None)
        found = self._frequency(times, frequency)
        if found is None:
            if max(map(len, times)) > 1:
                self._refuse_irregular(rows, times)
            return Grid(rows, times, None)
        laid, filled = [], []
        for own, when in zip(rows, times, strict=True):
            places = found.places(when, when[0])
            wrong = np.flatnonzero(np.isnan(places))
            if len(wrong):
                row = self.table.row(int(own[wrong[0]]))
                raise ValueError(
                    f"The times of X must be steps of {found.step}, as those of fit. "
                    f"Got {in_words(when[wrong[0]])} in {row}."
                )
            steps = places.astype(np.int64)
            check_size(
                float(steps[-1] + 1) * (len(self.table.columns) + 1),
                f"A series with {found.step} for a step from {in_words(when[0])} to {in_words(when[-1])}",
                "Check the times, or pass fewer steps.",
            )
            at = np.full(steps[-1] + 1, -1)
            at[steps] = own
            laid.append(at)
            filled.append(found.at(np.arange(len(at)), when[0]))
        return Grid(laid, filled, found)

    @staticmethod
    def _frequency(times: list[np.ndarray], fitted: AbstractFrequency | None) -> AbstractFrequency | None:
        """That of the fit; or that of the times, if there was none, or it has the same steps elsewhere."""
        if fitted is not None and fitted.describes(times):
            return fitted
        own = frequency_of(times)
        return own if fitted is None or str(own) == str(fitted) else fitted

    def _refuse_irregular(self, rows: list[np.ndarray], times: list[np.ndarray]) -> None:
        """Names the first time that is no step of the most frequent length."""
        apart = np.concatenate([np.diff(when) for when in times])
        kinds, counts = np.unique(apart, return_counts=True)
        usual = kinds[counts.argmax()]
        for own, when in zip(rows, times, strict=True):
            wrong = np.flatnonzero(np.diff(when) != usual)
            if len(wrong):
                at = wrong[0] + 1
                raise ValueError(
                    "The times of X must be regular steps, such as days, weekdays or months, of which some "
                    f"may be missing. Got {in_words(when[at])} in {self.table.row(int(own[at]))} after "
                    f"{in_words(when[at - 1])}. Resample the frame, or pass it without its times."
                )

    def beside(self) -> SeriesFrame:
        """The inputs as series of their own."""
        return SeriesFrame(dataclasses.replace(self.table, columns=self.inputs))  # pyright: ignore[reportArgumentType]

    def same_rows(self, other: SeriesFrame) -> bool:
        """Whether both frames have the same series and order in their rows."""
        own, others = self.table, other.table
        return len(own.frame) == len(others.frame) and all(
            a is None or b is None or list(a) == list(b)
            for a, b in ((own.time, others.time), (own.group, others.group))
        )

    @property
    def declaration(self) -> str:
        """The call of `series` that gives it, of a table called frame.

        >>> import polars
        >>> series(polars.DataFrame({"year": [1.0, 2.0], "sales": [3.0, 4.0]}), time="year").declaration
        "fe.series(frame, time='year', columns=['sales'])"
        """
        table = self.table
        indexed = isinstance(table, PandasTable) and table.indexed
        names = {
            "time": None if indexed or table.time is None else table.time.name,
            "series": None if indexed or table.group is None else table.group.name,
            "columns": table.columns,
            "inputs": self.inputs,
        }
        given = [f"{what}={name!r}" for what, name in names.items() if name is not None]
        return f"fe.series({', '.join(['frame', *given])})"

    @property
    def labels(self) -> list[Any] | None:
        """The names of the series; None if there is one."""
        return self.members[0]

    @property
    def frequency(self) -> AbstractFrequency | None:
        """How far apart steps are; None of a frame without times, or with one."""
        return self.grid().frequency

    @property
    def notes(self) -> list[str]:
        """What a reader should know: the steps that are missing."""
        grid = self.grid()
        if not grid.gaps or grid.times is None or grid.frequency is None:
            return []
        number = next(i for i, own in enumerate(grid.rows) if (own < 0).any())
        first = grid.times[number][grid.rows[number] < 0][0]
        total = sum(map(len, grid.rows))
        verb = "is" if grid.gaps == 1 else "are"
        return [
            f"{grid.gaps} of {total} steps of {grid.frequency.step} {verb} missing, "
            f"the first {in_words(first)}; nothing was observed there."
        ]

    def __repr__(self) -> str:
        grid = self.grid()
        lengths = sorted({len(own) for own in grid.rows})
        steps = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        many = f"{len(grid.rows)} series" if self.labels is not None else "1 series"
        lines = [f"{many} of {steps} steps, columns {', '.join(map(str, self.table.columns))}"]
        if self.inputs:
            lines.append(f"inputs {', '.join(map(str, self.inputs))}")
        if grid.times is not None:
            first, last = min(t[0] for t in grid.times), max(t[-1] for t in grid.times)
            step = "" if grid.frequency is None else f"a step is {grid.frequency.step}, "
            lines.append(f"{step}from {in_words(first)} to {in_words(last)}")
        return "\n".join([*lines, *self.notes])


@dataclasses.dataclass(frozen=True)
class Framed(AbstractContainer):
    """Series of a frame on a grid of steps."""

    source: SeriesFrame
    grid: Grid

    @property
    def table(self) -> AbstractTable:
        return self.source.table

    def laid(self, rows: np.ndarray) -> list[np.ndarray]:
        """The rows of the frame as steps of each series, with NaN where there is no row."""
        return [np.where((own < 0)[:, None], np.nan, rows[own]) for own in self.grid.rows]

    def wrap(self, parts: list[Any]) -> Any:
        return parts[0] if self.source.labels is None else parts

    def rows(self, parts: list[np.ndarray], names: Any = None) -> Any:
        data = np.concatenate(parts)
        names = self.table.columns if names is None else names
        if not self.grid.gaps:
            # in the order that the user has
            found = np.empty_like(data)
            found[np.concatenate(self.grid.rows)] = data
            return self.table.built(found, names, self.table.time, self.table.group)
        assert self.grid.times is not None
        return self._built(data, names, [self.table.restored(own) for own in self.grid.times])

    def with_rest(self, made: Any) -> Any:
        # without gaps the rows are those of the frame, else one series is after another
        places = np.concatenate(self.grid.rows) if self.grid.gaps else np.arange(len(made))
        return self.table.with_rest(made, places)

    def _built(self, data: np.ndarray, names: Any, times: list[Any]) -> Any:
        group, labels = None, self.source.labels
        if labels is not None:
            group = self.table.repeated(labels, [len(own) for own in times])
        return self.table.built(data, names, self.table.joined(times), group)

    def times_ahead(self, steps: int) -> list[np.ndarray] | None:
        """The times of the steps after the end of each series, if they are known."""
        grid = self.grid
        if grid.times is None or grid.frequency is None:
            return None
        return [
            grid.frequency.at(len(own) + np.arange(steps), own[0]).astype(own.dtype) for own in grid.times
        ]

    def index_ahead(self, steps: int) -> list[Any]:
        times = self.times_ahead(steps)
        if times is not None:
            return [self.table.restored(own) for own in times]
        return [self._counted(own, steps) for own in self.grid.rows]

    def _counted(self, rows: np.ndarray, steps: int) -> Any:
        """Numbers that go on where those of a series end, or count its steps."""
        own = None if self.table.time is None else np.asarray(self.table.time)[rows]
        numbers = len(rows) + np.arange(steps)
        if own is not None and own.dtype.kind in "iu" and len(own) > 1 and len(set(np.diff(own))) == 1:
            numbers = own[-1] + (own[-1] - own[-2]) * np.arange(1, steps + 1)
        if isinstance(self.table, PandasTable):
            name = "step" if self.table.time is None else self.table.time.name
            return sys.modules["pandas"].Index(numbers, name=name)
        return sys.modules["polars"].Series("step", numbers)

    def ahead(self, parts: list[np.ndarray], names: Any = None) -> Any:
        names = self.table.columns if names is None else names
        return self._built(np.concatenate(parts), names, self.index_ahead(len(parts[0])))

    @property
    def names(self) -> list[Any] | None:
        return self.table.columns if all(isinstance(name, str) for name in self.table.columns) else None

    @property
    def notes(self) -> list[str]:
        return self.source.notes

    def cells(self, series: list[np.ndarray]) -> tuple[Any, np.ndarray]:
        rows = np.concatenate(self.grid.rows)
        values = np.empty((len(self.table.frame), series[0].shape[1]))
        values[rows[rows >= 0]] = np.concatenate(series)[rows >= 0]
        return self.table.frame, values


def _is_pandas(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas" or getattr(X, "iloc", None) is not None


def _is_polars(X: Any) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(X, polars.DataFrame)


def series(
    frame: Any, *, time: Any = None, series: Any = None, columns: Any = None, inputs: Any = None
) -> SeriesFrame:
    """Series in a frame of pandas or Polars: which column says when, and which of which series a row is.

    A frame of pandas whose index is dates (or series and dates) needs no declaration.  Steps are regular:
    hours, days, weekdays, weeks, months, quarters, years, or numbers; what is missing between two rows was
    not observed.

    Args:
        frame: a row for each step of each series, in the order of time.
        time: the column with the times: dates, texts such as "2024-02-29", or numbers.  By default the
            index, if it has dates.
        series: the column with the name of the series; by default the first of two levels of the index,
            or there is one series.
        columns: those to be modelled; by default all others.
        inputs: columns that are known beside them, for models with inputs.

    >>> import polars
    >>> months = ["2024-01-31", "2024-02-29", "2024-04-30"]
    >>> series(polars.DataFrame({"month": months, "sales": [3.0, 4.0, 6.0]}), time="month")
    1 series of 4 steps, columns sales
    a step is a month, from 2024-01-31 to 2024-04-30
    1 of 4 steps of a month is missing, the first 2024-03-31; nothing was observed there.
    """
    if not _is_pandas(frame) and not _is_polars(frame):
        if getattr(frame, "__arrow_c_stream__", None) is None:
            raise TypeError(
                "The 'frame' of series must be a frame of pandas, Polars or Arrow. "
                f"Got {type(frame).__name__} instead."
            )
        import polars

        frame = polars.DataFrame(frame)
    known = list(frame.columns)
    refuse_same_names(known)
    beside = [inputs] if isinstance(inputs, str) else list(inputs or [])
    chosen = [columns] if isinstance(columns, str) else columns
    keys = [name for name in (time, series) if name is not None]
    if chosen is None:
        chosen = [name for name in known if name not in {*keys, *beside}]
    for what, names in (("time", keys[:1]), ("series", keys), ("columns", chosen), ("inputs", beside)):
        for name in names:
            if name not in known:
                raise ValueError(
                    f"The '{what}' of series must name columns of the frame. Got {name!r} instead."
                )
    if not chosen:
        raise ValueError("The 'columns' of series must name at least one column. Got none.")
    if _is_polars(frame):
        table: AbstractTable = PolarsTable(
            frame,
            list(chosen),
            None if time is None else frame[time],
            None if series is None else frame[series],
        )
        if time is not None and table.times() is None:
            raise _no_times(table)
        return SeriesFrame(table, beside or None)
    if not keys:
        return SeriesFrame(dataclasses.replace(_indexed(frame), columns=list(chosen)), beside or None)
    index: Any = sys.modules["pandas"].Index
    when = index(frame[time]) if time is not None else frame.index
    declared = time is not None
    return SeriesFrame(
        PandasTable(
            frame,
            list(chosen),
            when if declared or _is_dated(when) else None,
            None if series is None else index(frame[series]),
            indexed=False,
            declared=declared,
        ),
        beside or None,
    )


def _indexed(X: Any) -> PandasTable:
    """A frame, or one column, of pandas with what its index says."""
    single = np.ndim(X) == 1
    frame = X.to_frame() if single else X
    refuse_same_names(frame.columns)
    index = frame.index
    if index.nlevels > 2:
        raise ValueError(
            "X must be one series, or a frame whose index has the two levels series and time. "
            f"Got {index.nlevels} levels instead."
        )
    time, group = index, None
    if index.nlevels == 2:
        group, time = index.get_level_values(0), index.get_level_values(1)
    return PandasTable(frame, list(frame.columns), time, group, single=single)


def frame_of(X: Any) -> SeriesFrame | None:
    """`X` as series of a frame; None if it is none."""
    if isinstance(X, SeriesFrame):
        return X
    if _is_polars(X):
        return SeriesFrame(PolarsTable(X, list(X.columns)), declared=False)
    if _is_pandas(X) and getattr(X, "index", None) is not None and np.ndim(X) in (1, 2):
        return SeriesFrame(_indexed(X), declared=False)
    return None
