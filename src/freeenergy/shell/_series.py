"""The intake of series: containers of any kind, and how series of any length become arrays of few sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._core import (
    CellError,
    Data,
    Fit,
    bucket,
    cells_of,
    map_padded,
    on_device,
    row_hashes,
    split_key_data,
)
from ..models import Series
from ._frames import library_of
from ._intake import AbstractIntake, remember, with_history
from ._rows import Rows, Scaling, unit_free_hashes
from ._schema import CodedSeries, Schema, kinds_of, like, of_steps
from ._series_frame import AbstractContainer, Framed, Plain, SeriesFrame, frame_of, only
from ._time import AbstractFrequency, in_words
from ._validation import check_observed, check_rows, feature_names, moderate

# numbers of one kind (time steps × series) that a program works on at once
_STEPS_AT_ONCE = 2**18
# the least padded number of steps, which are done one after another, or of series
_FEWEST = 16
# the least variance of rescaled noise where a likelihood would grow without bound, as covariances have
LEAST_VARIANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Rescaled series to be learned from.

    Attributes:
        series: an array of shape (time, features) each.
        inputs: an array of shape (time, inputs) each, or None.
        weight: how often each series counts.
        constant: which columns never vary.
        states: the hidden state of each time step where it is known, −1 where not; or None.
    """

    series: list[np.ndarray]
    inputs: list[np.ndarray] | None
    weight: np.ndarray
    constant: np.ndarray
    states: list[np.ndarray] | None = None

    @functools.cached_property
    def packed(self) -> Data:
        """The series for learning, short ones one after another in a row."""
        return pack(self.series, self.states, self.inputs, self.weight)

    @property
    def rows(self) -> np.ndarray:
        """All time steps."""
        return np.concatenate(self.series)

    @property
    def row_weight(self) -> np.ndarray:
        """How often each time step counts."""
        return np.repeat(self.weight, [len(x) for x in self.series])

    @property
    def n_inputs(self) -> int:
        """How many inputs there are at each time step."""
        return 0 if self.inputs is None else self.inputs[0].shape[1]

    def per_row(self, tol: float) -> float:
        """A tolerance in nats per time step as one per row of `packed`, which learners count."""
        return tol * float(self.row_weight.sum()) / float(np.asarray(self.packed.weight).sum())

    def identity(self) -> str:
        """Names these series, for a checkpoint."""
        places = np.concatenate([np.arange(len(x)) for x in self.series])
        beside = [np.concatenate(part) for part in (self.inputs, self.states) if part is not None]
        return Rows(self.rows, self.row_weight, np.column_stack([places, *beside])).identity()


_TAKEN = (
    "one series (time, features), an array (series, time, features), a list of series, or a frame whose "
    "index is time, or has the two levels series and time"
)


def _several(subject: str, X: Any) -> tuple[list[np.ndarray], Callable[[list[Any]], Any]] | None:
    """The series of a list or of an array (series, time, features), and what they are put back into.

    None if `X` is a table: so are rows that are lists of numbers, as scikit-learn has them, while arrays of
    one dimension in a list, and lists of unequal lengths, are series of one column.
    """
    if not isinstance(X, (list, tuple)) or not len(X):
        dims = np.ndim(X)
        if dims == 3 and len(X):
            return list(np.asarray(X)), np.stack
        if dims == 0 or dims > 2:
            raise ValueError(f"{subject} must be {_TAKEN}. Got the shape {np.shape(X)} instead.")
        return None
    try:
        parts = [np.asarray(part) for part in X]
    except ValueError:
        raise ValueError(f"{subject} must be {_TAKEN}. Got rows of unequal length in a series.") from None
    shapes = [part.shape for part in parts]
    dims = {len(shape) for shape in shapes}
    if len(dims) > 1 or max(dims) > 2:
        found = " and ".join(str(shape) for shape in {len(shape): shape for shape in shapes}.values())
        raise ValueError(f"{subject} must be {_TAKEN}. Got a list of arrays of the shapes {found} instead.")
    if dims == {2}:
        return parts, list
    if dims == {1} and (len(set(shapes)) > 1 or any(hasattr(part, "__array__") for part in X)):
        return [part[:, None] for part in parts], list
    return None


def check_series(owner: Any, X: Any, *, reset: bool) -> tuple[list[np.ndarray], AbstractContainer]:
    """`X` as a list of float arrays (time, features), and the way back into the container.

    `X` is one series (time, features), an array (series, time, features), a list of series (arrays of one
    dimension are series of one column), or a frame: one series, or with the two index levels series and
    time, or what `fe.series` declares.  The steps of a frame with times are regular: NaN is where it has
    no row.
    """
    if isinstance(X, CodedSeries):
        remember(owner, X.schema, np.concatenate(X.series))
        return X.series, Plain(X.series, list)
    source = frame_of(X)
    if source is not None:
        table = source.table
        chosen = table.selected(table.columns)
        if not owner.needs_kinds:
            _refuse_dates("X", chosen)
        rows = _numbers_of(owner, chosen, reset)
        container = Framed(source, source.grid(None if reset else vars(owner).get("frequency_")))
        return container.laid(rows), container
    several = _several("X", X)
    if several is None:
        return [_numbers_of(owner, X, reset)], Plain(X, only)
    parts, wrap = several
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1] or not len(part):
            raise ValueError(
                f"Every series of X must have the shape (time, {parts[0].shape[1]}) with at least one "
                f"time step. Got {part.shape} for series {number}."
            )
    try:
        rows = _numbers_of(owner, np.concatenate(parts), reset)
    except CellError as error:
        raise error.placed(error.position or 0, parts) from None
    return np.split(rows, np.cumsum([len(part) for part in parts])[:-1]), Plain(X, wrap)


def _refuse_dates(subject: str, frame: Any) -> None:
    """Says what a column of dates is, which is no number that a series has."""
    library = library_of(frame)
    dates = [] if library is None else library.dates(frame)
    if dates:
        raise ValueError(
            f"{subject} must hold numbers, not dates, which column {dates[0]!r} has. Say that it is the "
            f"time, as in fe.series(X, time={dates[0]!r}), or leave it out."
        )
    durations = [] if library is None else library.durations(frame)
    if durations:
        raise ValueError(
            f"{subject} must hold numbers, not durations, which column {durations[0]!r} has. Make numbers "
            "of it, such as seconds."
        )


def _numbers_of(owner: Any, X: Any, reset: bool) -> np.ndarray:
    """The steps of a table as numbers; codes, where the estimator has to know what the columns hold."""
    if reset:
        vars(owner).pop("schema_", None)
    if not owner.needs_kinds:
        return check_rows(owner, X, reset=reset)
    if not reset and owner.schema_.library == "codes":
        return np.asarray(X, float)
    library = library_of(X)
    if library is None or library.plain(X):
        rows = check_rows(owner, X, reset=reset)
        X = X if library is not None else rows
    if not reset:
        names = None if library is None else library.names(X)
        if names is not None and owner.schema_.library != "numpy" and names != owner.schema_.names:
            raise ValueError(f"X must have the columns of the fit in their order. Got {names} instead.")
        return owner.schema_.encode(X)
    schema = of_steps(Schema.recognise(X), type(owner).__name__)
    return remember(owner, schema, schema.encode(X))


def _in_kinds(
    schema: Schema | None, container: AbstractContainer, put: Callable[..., Any], parts: list[np.ndarray]
) -> Any:
    """Numbers for the columns of X, put into the container, as the user has these columns."""
    if schema is None:
        return put(parts)
    if not isinstance(container, Framed):
        return put([schema.decode(part) for part in parts])
    made = put(parts)
    # a column of pandas comes back as one
    single = library_of(made) is None
    frame = made.to_frame() if single else made
    library: Any = library_of(frame)
    names = library.names(frame)
    columns = {name: library.column(frame, place) for place, name in enumerate(names)}
    passed = container.table.selected(container.table.columns)
    for place, (field, name) in enumerate(zip(schema.fields, container.table.columns, strict=True)):
        values = field.decode(schema.possible(field, np.asarray(columns[name], float)))
        # the type is that of this table, which need not be that of the fit
        columns[name] = library.write(like(values, library.read(passed, place)))
    found = library.frame(columns, library.index(frame))
    return found.iloc[:, 0].rename(made.name) if single else found


def check_inputs(
    owner: Any,
    inputs: Any,
    lengths: list[int],
    width: int | None,
    *,
    name: str = "inputs",
    beside: AbstractContainer | None = None,
    ahead: int = 0,
) -> list[np.ndarray]:
    """`inputs` as a finite float array of shape (time, width) for each series.

    They come in the containers that series come in.  `name` is what the argument is called, and `beside`
    the series that they belong to: those in a frame with times are found by their time, at the steps of
    the series or, if so many are `ahead`, after their end.  Columns of a frame are found by the names that
    they had in the fit, in any order and among others.
    """
    subject = f"The '{name}' of {type(owner).__name__}"
    source = frame_of(inputs)
    if source is not None:
        fitted = None if width is None else input_names(owner)
        parts = _inputs_in_frame(subject, source, beside, ahead, fitted)
    else:
        several = _several(subject, inputs)
        parts = [np.asarray(part, float) for part in ([inputs] if several is None else several[0])]
    shapes = [part.shape for part in parts]
    columns = shapes[0][-1] if width is None and len(shapes[0]) == 2 else width
    if not columns or shapes != [(length, columns) for length in lengths]:
        raise ValueError(
            f"{subject} must have {columns or 'some'} columns and a row for each time step: "
            f"the shapes {[(length, columns or '…') for length in lengths[:3]]}. Got {shapes[:3]} instead."
        )
    wrong = [part[~np.isfinite(part)] for part in parts]
    if any(map(len, wrong)):
        raise ValueError(f"{subject} must be finite numbers. Got {np.concatenate(wrong)[0]} instead.")
    return parts


def input_names(owner: Any) -> list[str] | None:
    """The names of the inputs that an estimator was fitted with, if they had any."""
    names = vars(owner).get("input_names_in_")
    return None if names is None else names.tolist()


def _remember_inputs(owner: Any, inputs: Any) -> None:
    """Remembers the names of inputs that are a frame whose columns have names."""
    vars(owner).pop("input_names_in_", None)
    source = frame_of(inputs)
    names = [] if source is None else source.inputs or source.table.columns
    if names and all(isinstance(name, str) for name in names):
        owner.input_names_in_ = np.array(names, object)


def _remember_columns(owner: Any, X: Any) -> None:
    """Remembers what a frame calls its columns of times and of names of series."""
    source = frame_of(X)
    for attribute, key in (("time_column_", "time"), ("series_column_", "group")):
        column = None if source is None else getattr(source.table, key)
        name = getattr(column, "name", None)
        vars(owner).pop(attribute, None)
        if isinstance(name, str):
            setattr(owner, attribute, name)


def _inputs_in_frame(
    subject: str,
    source: SeriesFrame,
    beside: AbstractContainer | None,
    ahead: int,
    fitted: list[str] | None = None,
) -> list[np.ndarray]:
    """Rows of inputs for each series: by time where there is such, else one after another."""
    columns = source.inputs or source.table.columns
    if fitted is not None and any(isinstance(name, str) for name in columns):
        lacking = [name for name in fitted if name not in columns]
        if lacking:
            raise ValueError(
                f"{subject} must have the column {lacking[0]!r}, which was fitted. "
                f"Got {', '.join(repr(name) for name in columns)} instead."
            )
        columns = fitted
    chosen = source.table.selected(columns)
    _refuse_dates(subject, chosen)
    values = np.asarray(chosen, float)
    framed = beside if isinstance(beside, Framed) else None
    labels, rows, times = source.members
    wanted, places = None, []
    if framed is not None:
        wanted = framed.times_ahead(ahead) if ahead else framed.grid.times
        places = _places_of(subject, framed.source.labels, labels, len(framed.grid.rows))
    if framed is None or times is None or wanted is None:
        if framed is not None and not ahead and labels is not None and not source.same_rows(framed.source):
            raise ValueError("The 'inputs' of a frame with two index levels must have the index of X.")
        named = framed is not None and labels is not None and framed.source.labels is not None
        return [values[rows[place]] for place in (places if named else range(len(rows)))]
    parts = []
    for place, steps in zip(places, wanted, strict=True):
        found = np.searchsorted(times[place], steps).clip(max=len(times[place]) - 1)
        of = "" if labels is None else f" of series {labels[place]!r}"
        missing = np.flatnonzero(times[place][found] != steps)
        if len(missing):
            first = in_words(steps[missing[0]])
            raise ValueError(
                f"{subject} must have a row for every time step. Got none for {first}{of}. "
                "Add rows for the steps that are missing, with their inputs."
            )
        part = values[rows[place][found]]
        wrong = np.argwhere(~np.isfinite(part))
        if len(wrong):
            step, column = wrong[0]
            raise ValueError(
                f"{subject} must hold finite numbers. Got {part[step, column]} in column "
                f"{columns[column]!r} for {in_words(steps[step])}{of}."
            )
        parts.append(part)
    return parts


def _places_of(subject: str, own: list[Any] | None, labels: list[Any] | None, count: int) -> list[int]:
    """Which series of the inputs each series has: that of its name, or the first of all."""
    if own is None or labels is None:
        return [0] * count
    absent = [label for label in own if label not in labels]
    if absent:
        raise ValueError(f"{subject} must have rows for series {absent[0]!r}. Got none.")
    return [labels.index(label) for label in own]


def _given_inputs(X: Any, inputs: Any) -> Any:
    """The inputs that were passed, or those that the frame of X declares."""
    if not isinstance(X, SeriesFrame) or X.inputs is None:
        return inputs
    if inputs is not None:
        raise ValueError("The 'inputs' must be declared with X or passed beside it, not both.")
    return X.beside()


def _frequency(container: AbstractContainer) -> AbstractFrequency | None:
    return container.grid.frequency if isinstance(container, Framed) else None


def _tell_gaps(owner: Any, container: AbstractContainer) -> None:
    """Says which steps are missing; of series that were declared `print` does."""
    if isinstance(container, Framed) and container.grid.gaps and not container.source.declared:
        warnings.warn(f"{type(owner).__name__}: {container.source.notes[0]}", UserWarning, stacklevel=5)


def check_series_weight(owner: Any, weight: Any, series: list[np.ndarray]) -> np.ndarray:
    """How often each series counts: once, if nothing is said."""
    if weight is None:
        return np.ones(len(series))
    given = np.asarray(weight)
    good = given.dtype.kind in "biuf" and given.shape == (len(series),) and np.isfinite(given).all()
    if not good or (given < 0).any() or not given.any():
        raise ValueError(
            f"The 'series_weight' of {type(owner).__name__}.fit must be a non-negative number for each of "
            f"the {len(series)} series, not all zero. Got {weight!r} instead."
        )
    return moderate(given.astype(float))


def _constant_columns(rows: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Which columns never vary by more than rounding."""
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    least = 1e-10 * np.maximum(np.abs(low), np.abs(high))
    # a scale that is not that of the data leaves less than one
    return (high - low <= least) & (high / scaling.scale - low / scaling.scale < 1e-6)


def _tell_constant(owner: Any, constant: np.ndarray, names: Any) -> None:
    if constant.any():
        column = int(np.flatnonzero(constant)[0])
        name = str(column) if names is None else repr(str(names[column]))
        warnings.warn(
            f"{type(owner).__name__}: column {name} of X is constant, so that no variance of it has a "
            "largest likelihood; the smallest that is allowed is taken. Leave it out to compare densities.",
            ConvergenceWarning,
            stacklevel=5,
        )


def _few(n: int) -> int:
    """The padded number of series: long ones are few, so that small numbers are kept small."""
    return bucket(n, _FEWEST) if n > _FEWEST else 1 << (n - 1).bit_length()


def _groups(lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Numbers of the series that share a padded length, with that length."""
    sizes = np.array([bucket(int(n), _FEWEST) for n in lengths])
    if len(np.unique(sizes)) > 1:
        # series of different length: fewer sizes, of which each is a program
        sizes = np.array([max(1 << (int(n) - 1).bit_length(), _FEWEST) for n in lengths])
    for size in np.unique(sizes):
        yield int(size), np.flatnonzero(sizes == size)


def map_series(
    function: Callable[..., Any],
    series: list[np.ndarray],
    *args: Any,
    inputs: list[np.ndarray] | None = None,
    extra: Any = None,
    cut: bool = True,
) -> list[Any]:
    """`function(row, *args)` for each series, compiled once per padded length; NumPy in and out.

    Args:
        function: a module-level function of a `Series`; its results have a leading time axis.
        series: arrays of shape (time, features).
        args: passed on.
        inputs: arrays of shape (time, inputs), for the `inputs` of each `Series`.
        extra: an array with an entry per series: `function` is then given pairs (Series, entry).
        cut: whether padding is cut off from the results.
    """
    lengths = np.array([len(x) for x in series])
    results: list[Any] = [None] * len(series)
    for size, members in _groups(lengths):
        padded = _few(len(members))
        own_inputs = None if inputs is None else [[inputs[i]] for i in members]
        rows: Any = _stack([[series[i]] for i in members], size, padded, inputs=own_inputs)
        if extra is not None:
            rows = (rows, _padded(extra[members], padded))
        block = max(_STEPS_AT_ONCE // size, 1)
        out = jax.device_get(map_padded(function, rows, *args, real=len(members), block=block))
        for place, i in enumerate(members):
            end = lengths[i] if cut else None
            results[i] = jax.tree.map(lambda a, p=place, e=end: a[p, :e], out)
    return results


def draw_series(
    function: Callable[..., Any],
    model: Any,
    n: int,
    steps: int,
    key: Array,
    inputs: list[np.ndarray] | None,
) -> np.ndarray:
    """`n` draws of `steps` steps by `function((key, inputs), model, steps)`, of one padded length."""
    size, laid = bucket(steps, _FEWEST), None
    if inputs is not None:
        laid = np.stack([_padded(part, size) for part in inputs])
        laid = _padded(np.broadcast_to(laid, (n, *laid.shape[1:])), _few(n))
    rows = (_padded(split_key_data(key, n), _few(n)), laid)
    drawn = map_padded(function, rows, model, size, real=n, block=max(_STEPS_AT_ONCE // size, 1))
    return np.asarray(drawn)[:n, :steps]


def _padded(a: np.ndarray, size: int) -> np.ndarray:
    """`a` with rows of zeros up to `size` rows."""
    return np.concatenate([a, np.zeros((size - len(a), *a.shape[1:]), a.dtype)])


def _laid(rows: list[list[np.ndarray]] | None, size: int, padded: int, blank: Any) -> np.ndarray | None:
    """Arrays of each row one after another, and `blank` where nothing is."""
    if rows is None:
        return None
    laid = np.full((padded, size, *rows[0][0].shape[1:]), blank)
    for number, row in enumerate(rows):
        whole = np.concatenate(row)
        laid[number, : len(whole)] = whole
    return laid


def _stack(
    rows: list[list[np.ndarray]],
    size: int,
    padded: int,
    states: list[list[np.ndarray]] | None = None,
    inputs: list[list[np.ndarray]] | None = None,
) -> Series:
    """Rows of series one after another as arrays of `padded` rows and `size` time steps."""
    starts = np.zeros((padded, size), bool)
    starts[:, 0] = True
    real = np.zeros((padded, size), bool)
    for number, row in enumerate(rows):
        ends = np.cumsum([len(part) for part in row])
        starts[number, ends[:-1]] = True
        real[number, : ends[-1]] = True
    arrays: Any = (
        _laid(rows, size, padded, 0.0),
        starts,
        real,
        _laid(states, size, padded, np.int32(-1)),
        _laid(inputs, size, padded, 0.0),
    )
    return Series(*arrays)


def _packs(series: list[np.ndarray], size: int, numbers: Iterable[int]) -> list[list[int]]:
    """These series one after another in few rows of `size` steps."""
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []
    for i in sorted(numbers, key=lambda i: -len(series[i])):
        length = len(series[i])
        if space and -space[0][0] >= length:
            left, row = heapq.heappop(space)
            rows[row].append(i)
            heapq.heappush(space, (left + length, row))
        else:
            heapq.heappush(space, (length - size, len(rows)))
            rows.append([i])
    return rows


def pack(
    series: list[np.ndarray],
    states: list[np.ndarray] | None = None,
    inputs: list[np.ndarray] | None = None,
    weight: np.ndarray | None = None,
    *,
    apart: bool = False,
) -> Data:
    """Series for learning: one padded length, short ones stored one after another in a row.

    A row is as long as the longest series, so that a recursion takes no more steps than it must; what
    is left of a row is filled with shorter series of the same weight, so that little of it is padding.
    With `apart` every series has a row of its own.
    """
    size = bucket(max(len(x) for x in series), _FEWEST)
    weight = np.ones(len(series)) if weight is None else weight
    if apart:
        rows = [[i] for i in range(len(series))]
    else:
        rows = [row for w in np.unique(weight) for row in _packs(series, size, np.flatnonzero(weight == w))]

    def gather(parts: list[np.ndarray] | None) -> Any:
        return None if parts is None else [[parts[i] for i in row] for row in rows]

    padded = _few(len(rows))
    x = _stack(gather(series), size, padded, gather(states), gather(inputs))
    return Data(
        jax.tree.map(on_device, x),
        on_device(_padded(weight[[row[0] for row in rows]], padded)),
        on_device(len(rows), np.int32),
        bool(np.isnan(x.values).any()),
    )


def canonical_order(series: list[np.ndarray], scaling: Scaling) -> np.ndarray:
    """An order of the series that does not depend on the order in which they were passed."""
    lengths = np.array([len(x) for x in series])
    steps = unit_free_hashes(np.concatenate(series), scaling)
    ends = np.cumsum(lengths)
    # a number per series from the numbers of its steps and their places
    places = np.arange(len(steps)) - np.repeat(ends - lengths, lengths)
    mixed = row_hashes(np.column_stack([(steps >> np.uint64(12)).astype(float), places]))
    return np.lexsort((np.bitwise_xor.reduceat(mixed, ends - lengths), lengths))


class SeriesIntake(AbstractIntake):
    """Series in whatever container, with inputs: checked, rescaled, and the way back into the container.

    Attributes:
        series: an array of shape (time, features) each, in the units of the user.
        container: the way back into what was passed.
        inputs: an array of shape (time, inputs) for each series, rescaled; or None.
        sequences: of a fit, what is learned from.
        offset: of a fit, the mean log-determinant of a time step.
    """

    def __init__(
        self,
        owner: Any,
        passed: Any,
        series: list[np.ndarray],
        container: AbstractContainer,
        inputs: list[np.ndarray] | None = None,
        sequences: Sequences | None = None,
        offset: float = 0.0,
    ) -> None:
        self.owner, self.passed, self.series, self.container = owner, passed, series, container
        self.inputs, self.sequences, self.offset = inputs, sequences, offset

    @classmethod
    def fitting(
        cls,
        owner: Any,
        X: Any,
        *,
        inputs: Any = None,
        series_weight: Any = None,
        states: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None,
    ) -> Self:
        """Series to fit, with a function that gives the known hidden states of validated ones."""
        inputs = _given_inputs(X, inputs)
        if inputs is not None and not owner._takes_inputs:
            raise ValueError(f"{type(owner).__name__} takes no inputs. Got 'inputs'.")
        series, container = check_series(owner, X, reset=True)
        owner.frequency_ = _frequency(container)
        _tell_gaps(owner, container)
        weight = check_series_weight(owner, series_weight, series)
        known = None if states is None else states(series)
        beside = None
        if inputs is not None:
            beside = check_inputs(owner, inputs, [len(x) for x in series], None, beside=container)
        _remember_inputs(owner, inputs)
        _remember_columns(owner, X)
        used = np.flatnonzero(weight > 0)
        kept, kept_inputs = [series[i] for i in used], beside and [beside[i] for i in used]
        rows, counts = np.concatenate(kept), np.repeat(weight[used], [len(x) for x in kept])
        names = feature_names(owner)
        check_observed(rows, names)
        owner.scaling_ = owner._scaling(rows, counts)
        constant = _constant_columns(rows, owner.scaling_)
        _tell_constant(owner, constant & ~owner.column_roles(rows.shape[1]).mass, names)
        owner.input_scaling_ = None
        if kept_inputs is not None:
            owner.input_scaling_ = owner._input_scaling(np.concatenate(kept_inputs), counts)
        owner.length_ = max(len(x) for x in kept)
        order = canonical_order(kept, owner.scaling_)
        sequences = Sequences(
            [owner.scaling_.apply(kept[i]) for i in order],
            owner._scaled_inputs(kept_inputs and [kept_inputs[i] for i in order]),
            weight[used][order],
            constant,
            known and [known[used[i]] for i in order],
        )
        offset = np.average(owner.scaling_.log_det(rows), weights=counts)
        return cls(owner, X, series, container, None, sequences, offset)

    @classmethod
    def reading(cls, owner: Any, X: Any, *, inputs: Any = None) -> Self:
        check_is_fitted(owner, "model_")
        series, container = check_series(owner, X, reset=False)
        lengths, given = [len(x) for x in series], _given_inputs(X, inputs)
        return cls(owner, X, series, container, owner._check_inputs(given, lengths, beside=container))

    @property
    def events(self) -> Sequences:
        """The series, rescaled, in an order of their own."""
        assert self.sequences is not None
        return self.sequences

    @property
    def size(self) -> float | None:
        return None if self.sequences is None else float(self.sequences.row_weight.sum())

    def take(self, numbers: Iterable[int]) -> Self:
        """The series of these numbers with their inputs."""
        chosen = list(numbers)
        inputs = None if self.inputs is None else [self.inputs[i] for i in chosen]
        return self.with_series([self.series[i] for i in chosen], inputs)

    def with_series(self, series: list[np.ndarray], inputs: list[np.ndarray] | None) -> Self:
        """Other series, and rescaled inputs, for the same container."""
        return type(self)(self.owner, self.passed, series, self.container, inputs)

    def wrap(self, parts: list[Any]) -> Any:
        """Arrays of any shape, one for each series, in a container like that of the series."""
        return self.container.wrap(parts)

    def rows(self, parts: list[np.ndarray], names: Any = None) -> Any:
        """Arrays with a row, or a number, for each step of each series: frames where frames came.

        `names` are of the columns, by default those of X, which then are of the kinds of these.
        """
        if names is not None:
            return self.container.rows(parts, names)
        return _in_kinds(kinds_of(self.owner), self.container, self.container.rows, parts)

    def completed(self, parts: list[np.ndarray]) -> Any:
        """Arrays with a row for each step, in X with the columns that are no part of the series."""
        return self.container.with_rest(self.rows(parts))

    def ahead(self, parts: list[np.ndarray]) -> Any:
        """`rows` for the columns of X at steps after the end of each series."""
        return _in_kinds(kinds_of(self.owner), self.container, self.container.ahead, parts)

    def naming_cells(self) -> contextlib.AbstractContextManager[None]:
        passed, rows = self.container.cells(self.series)
        return cells_of(passed, rows, feature_names(self.owner))

    def in_units(self, result: Fit) -> Fit:
        """The objective, a mean over rows of the packed series, as the free energy per time step."""
        share = float(np.asarray(self.events.packed.weight).sum()) / self.events.row_weight.sum()
        return with_history(result, share=share, offset=self.offset)
