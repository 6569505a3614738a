"""Estimators of series: what they share, and how series of any length become arrays of few sizes."""

from __future__ import annotations

import abc
import heapq
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np
from jax import Array
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._core import (
    CellError,
    Data,
    Evidence,
    Fit,
    Kind,
    bucket,
    cells_of,
    map_padded,
    on_device,
    programs,
    row_hashes,
    split_key_data,
)
from ..models import AbstractSequenceModel, Series
from ._base import Shell, retold
from ._rows import Rows, Scaling, unit_free_hashes
from ._validation import check_count, check_observed, check_rows, moderate, random_key

# numbers of one kind (time steps × series) that a program works on at once
_STEPS_AT_ONCE = 2**18
# the least variance of rescaled noise where a likelihood would grow without bound, as covariances have
LEAST_VARIANCE = 1e-6


class Container(NamedTuple):
    """Validated series, and the way back to what they came in.

    Attributes:
        series: an array of shape (time, features) each.
        wrap: puts one array per series into a container like the one that was passed.
        inputs: an array of shape (time, inputs) for each series, rescaled; or None.
    """

    series: list[np.ndarray]
    wrap: Callable[[list[Any]], Any]
    inputs: list[np.ndarray] | None = None

    def take(self, numbers: Iterable[int]) -> Container:
        """The series of these numbers with their inputs."""
        chosen = list(numbers)
        inputs = None if self.inputs is None else [self.inputs[i] for i in chosen]
        return self._replace(series=[self.series[i] for i in chosen], inputs=inputs)


class Sequences(NamedTuple):
    """Rescaled series to be fitted.

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
        return 0 if self.inputs is None else self.inputs[0].shape[1]

    def per_row(self, tol: float, data: Data) -> float:
        """A tolerance in nats per time step as one per row of `data`, which learners count."""
        return tol * float(self.row_weight.sum()) / float(np.asarray(data.weight).sum())

    def identity(self) -> str:
        """Names these series, for a checkpoint."""
        places = np.concatenate([np.arange(len(x)) for x in self.series])
        beside = [np.concatenate(part) for part in (self.inputs, self.states) if part is not None]
        return Rows(self.rows, self.row_weight, np.column_stack([places, *beside])).identity()


def _only(parts: list[Any]) -> Any:
    return parts[0]


_TAKEN = (
    "one series (time, features), an array (series, time, features), a list of series, or a frame whose "
    "index has the two levels series and time"
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


def _levels(X: Any) -> int:
    """How many levels the index of a frame has; one for whatever is no frame."""
    return getattr(getattr(X, "index", None), "nlevels", 1)


def _panel(subject: str, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of a frame with the index levels series and time: its rows series by series, and where each ends.

    Series come in the order in which they first appear.
    """
    if _levels(X) > 2:
        raise ValueError(f"{subject} must be {_TAKEN}. Got {_levels(X)} levels instead.")
    labels, times = (X.index.get_level_values(level) for level in (0, 1))
    numbers, names = labels.factorize(use_na_sentinel=False)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers))[:-1]
    for name, rows in zip(names, np.split(order, ends), strict=True):
        own = times[rows]
        if not (own.is_monotonic_increasing and own.is_unique):
            raise ValueError(
                f"{subject}, a frame with two index levels, must have times that increase within each "
                f"series. Those of series {name!r} do not."
            )
    return order, ends


def check_series(owner: Any, X: Any, *, reset: bool) -> Container:
    """`X` as a list of float arrays of shape (time, features).

    `X` is one series (time, features), an array (series, time, features), a list of series (arrays of one
    dimension are series of one column), or a frame whose index has the two levels series and time.
    """
    if _levels(X) > 1:
        order, ends = _panel("X", X)
        return Container(np.split(check_rows(owner, X, reset=reset)[order], ends), list)
    several = _several("X", X)
    if several is None:
        return Container([check_rows(owner, X, reset=reset)], _only)
    parts, wrap = several
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1] or not len(part):
            raise ValueError(
                f"Every series of X must have the shape (time, {parts[0].shape[1]}) with at least one "
                f"time step. Got {part.shape} for series {number}."
            )
    try:
        rows = check_rows(owner, np.concatenate(parts), reset=reset)
    except CellError as error:
        raise error.placed(error.position or 0, parts) from None
    return Container(np.split(rows, np.cumsum([len(part) for part in parts])[:-1]), wrap)


def check_inputs(
    owner: Any, inputs: Any, lengths: list[int], width: int | None, *, name: str = "inputs"
) -> list[np.ndarray]:
    """`inputs` as a finite float array of shape (time, width) for each series.

    They come in the containers that series come in.  `name` is what the argument is called.
    """
    kind = type(owner).__name__
    subject = f"The '{name}' of {kind}"
    if _levels(inputs) > 1:
        order, ends = _panel(subject, inputs)
        parts = np.split(np.asarray(inputs, float)[order], ends)
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


def _check_aligned(X: Any, inputs: Any) -> None:
    """Refuses a panel of inputs whose series or times are not those of X."""
    if _levels(X) == _levels(inputs) == 2 and not X.index.equals(inputs.index):
        raise ValueError("The 'inputs' of a frame with two index levels must have the index of X.")


def _check_weight(owner: Any, weight: Any, series: list[np.ndarray]) -> np.ndarray:
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
            stacklevel=4,
        )


def _few(n: int) -> int:
    """The padded number of series: long ones are few, so that small numbers are kept small."""
    return bucket(n) if n > 16 else 1 << (n - 1).bit_length()


def _groups(lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Numbers of the series that share a padded length, with that length."""
    sizes = np.array([bucket(int(n)) for n in lengths])
    if len(np.unique(sizes)) > 1:
        # series of different length: fewer sizes, of which each is a program
        sizes = np.array([max(1 << (int(n) - 1).bit_length(), 16) for n in lengths])
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
        pushes = None if inputs is None else [[inputs[i]] for i in members]
        rows: Any = _stack([[series[i]] for i in members], size, padded, inputs=pushes)
        if extra is not None:
            rows = (rows, _padded(extra[members], padded))
        block = max(_STEPS_AT_ONCE // size, 1)
        out = jax.device_get(map_padded(function, rows, *args, real=len(members), block=block))
        for place, i in enumerate(members):
            end = lengths[i] if cut else None
            results[i] = jax.tree.map(lambda a, p=place, e=end: a[p, :e], out)
    return results


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
    size = bucket(max(len(x) for x in series))
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


class AbstractSequenceDensity(DensityMixin, Shell):
    """A fitted density of series: `fit`, `evidence`, `step_evidence`, `sample`, `impute`.

    X is one series of shape (time, features), an array (series, time, features), a list of series of any
    lengths, or a frame whose index has the two levels series and time; NaN is not observed.  In a list,
    arrays of one dimension are series of one column; lists of numbers of one length are the rows of one
    series.  Series are independent of each other.  `inputs` are what is known
    beside X at each time step, in containers like those of X; a model that was fitted with inputs needs
    them ever after.  Everything here is in the units of the data that the user passed; the model works on
    `scaling_` of X and `input_scaling_` of the inputs.
    """

    random_state: Any
    n_features_in_: int
    model_: AbstractSequenceModel
    input_scaling_: Scaling | None
    _kind: ClassVar[Kind] = Kind.EXACT
    _takes_inputs: ClassVar[bool] = True

    @abc.abstractmethod
    def _check_parameters(self) -> None:
        """Refuses wrong parameters before any work."""

    @abc.abstractmethod
    def _fit_series(self, sequences: Sequences, data: Data, *, key: Array) -> Fit:
        """Fits rescaled series, which `data` holds packed; the objective is a mean per row of `data`."""

    def _scaling(self, X: np.ndarray, weight: np.ndarray) -> Scaling:
        return Scaling.standardise(X, weight)

    def _input_scaling(self, inputs: np.ndarray, weight: np.ndarray) -> Scaling:
        return Scaling.standardise(inputs, weight)

    def _free_parameters(self, n_features: int) -> int:
        """About how many numbers a fit without inputs chooses, as far as known before it; else zero."""
        return 0

    def _least_steps(self, n_features: int) -> int:
        """The steps that a fit needs to be of use: two numbers for each free parameter."""
        self._check_parameters()
        return -(-2 * self._free_parameters(n_features) // n_features)

    @property
    def n_inputs_in_(self) -> int:
        """How many inputs there are at each time step; zero without any."""
        scaling = self._input_units()
        return 0 if scaling is None else len(scaling.shift)

    def _input_units(self) -> Scaling | None:
        # estimators in files of earlier versions know of no inputs
        return getattr(self, "input_scaling_", None)

    def fit(self, X: Any, y: Any = None, *, inputs: Any = None, series_weight: Any = None) -> Self:
        """Fits the model.

        Args:
            X: one series (time, features), an array (series, time, features), a list of series (arrays of
                one dimension are series of one column), or a frame with the index levels series and time.
            y: ignored.
            inputs: what is known beside X, finite numbers: as X, with columns of their own.
            series_weight: a non-negative number per series; a weight of two counts as two series.
        """
        return self._fit(X, None, inputs, series_weight)

    def _fit(
        self,
        X: Any,
        states: Callable[[list[np.ndarray]], list[np.ndarray]] | None,
        inputs: Any,
        series_weight: Any,
    ) -> Self:
        """`fit`, with a function that gives the known hidden states of validated series."""
        # parameters that are arrays start JAX
        programs.check_process()
        self._check_parameters()
        if inputs is not None and not self._takes_inputs:
            raise ValueError(f"{type(self).__name__} takes no inputs. Got 'inputs'.")
        container = check_series(self, X, reset=True)
        series = container.series
        weight = _check_weight(self, series_weight, series)
        known = None if states is None else states(series)
        _check_aligned(X, inputs)
        pushes = None if inputs is None else check_inputs(self, inputs, [len(x) for x in series], None)
        used = np.flatnonzero(weight > 0)
        kept, kept_inputs = [series[i] for i in used], pushes and [pushes[i] for i in used]
        rows, counts = np.concatenate(kept), np.repeat(weight[used], [len(x) for x in kept])
        names = getattr(self, "feature_names_in_", None)
        check_observed(rows, names)
        self.scaling_ = self._scaling(rows, counts)
        constant = _constant_columns(rows, self.scaling_)
        _tell_constant(self, constant & ~self._discrete_columns(rows.shape[1]), names)
        self.input_scaling_ = None
        if kept_inputs is not None:
            self.input_scaling_ = self._input_scaling(np.concatenate(kept_inputs), counts)
        self.length_ = max(len(x) for x in kept)
        order = canonical_order(kept, self.scaling_)
        sequences = Sequences(
            [self.scaling_.apply(kept[i]) for i in order],
            self._scaled_inputs(kept_inputs and [kept_inputs[i] for i in order]),
            weight[used][order],
            constant,
            known and [known[used[i]] for i in order],
        )
        data = pack(sequences.series, sequences.states, sequences.inputs, sequences.weight)
        passed = X if container.wrap is _only else series
        with cells_of(passed, np.concatenate(series), getattr(self, "feature_names_in_", None)):
            result = self._fit_series(sequences, data, key=random_key(self.random_state))
        # the history is the free energy per time step in the units of the data
        share = float(np.asarray(data.weight).sum()) / counts.sum()
        offset = np.average(self.scaling_.log_det(rows), weights=counts)
        self._keep(retold(result, share=share, offset=offset))
        return self

    def _scaled_inputs(self, inputs: list[np.ndarray] | None) -> list[np.ndarray] | None:
        scaling = self._input_units()
        return None if inputs is None or scaling is None else [scaling.apply(u) for u in inputs]

    def _check_inputs(
        self, inputs: Any, lengths: list[int], name: str = "inputs"
    ) -> list[np.ndarray] | None:
        """Rescaled inputs of series of these lengths: as many as `fit` was given, or none."""
        kind = type(self).__name__
        if not self.n_inputs_in_:
            if inputs is not None:
                raise ValueError(f"{kind} was fitted without inputs and takes none. Got '{name}'.")
            return None
        if inputs is None:
            raise ValueError(
                f"{kind} was fitted with inputs and needs the '{name}' of every time step. Got None."
            )
        return self._scaled_inputs(check_inputs(self, inputs, lengths, self.n_inputs_in_, name=name))

    def _validated(self, X: Any, inputs: Any = None) -> Container:
        check_is_fitted(self, "model_")
        container = check_series(self, X, reset=False)
        _check_aligned(X, inputs)
        lengths = [len(x) for x in container.series]
        return container._replace(inputs=self._check_inputs(inputs, lengths))

    def _future(self, future_inputs: Any, container: Container, steps: int) -> np.ndarray | None:
        """Rescaled inputs of `steps` steps after each series: (series, steps, inputs)."""
        parts = self._check_inputs(future_inputs, [steps] * len(container.series), "future_inputs")
        return None if parts is None else np.stack(parts)

    def _for_each(
        self,
        function: Callable[..., Any],
        container: Container,
        *,
        arguments: tuple[Any, ...] = (),
        extra: Any = None,
        cut: bool = True,
    ) -> list[Any]:
        """`function(row, model, incomplete, *arguments)` for each series, rescaled, by `map_series`.

        `incomplete` says whether there is a NaN in any of them.
        """
        scaled = [self.scaling_.apply(x) for x in container.series]
        incomplete = any(bool(np.isnan(x).any()) for x in scaled)
        return map_series(
            function,
            scaled,
            self.model_,
            incomplete,
            *arguments,
            inputs=container.inputs,
            extra=extra,
            cut=cut,
        )

    def _step_evidence(self, container: Container) -> list[np.ndarray]:
        parts = self._for_each(_step_log_prob, container)
        parts = [part + self.scaling_.log_det(x) for part, x in zip(parts, container.series, strict=True)]
        self._check_answers("evidence", container, [bool((part < np.inf).all()) for part in parts])
        return parts

    def _check_answers(self, method: str, container: Container, good: list[bool]) -> None:
        """Refuses the first series whose answer is not good, and says which of its steps cannot occur."""
        if all(good):
            return
        number = good.index(False)
        impossible = np.isneginf(self._for_each(_step_log_prob, container.take([number]))[0])
        if impossible.any():
            reason = f"its step {impossible.argmax()} cannot occur. Check its values and units."
        else:
            reason = (
                "its numbers overflow, or no variance is left in the model. Check its values and units, "
                "and whether the fit converged."
            )
        raise ValueError(f"{type(self).__name__}.{method} has no answer for series {number} of X: {reason}")

    def _answered(self, method: str, container: Container, parts: list[np.ndarray]) -> list[np.ndarray]:
        """`parts`, an array for each series, refused where one holds NaN or infinity."""
        self._check_answers(method, container, [bool(np.isfinite(part).all()) for part in parts])
        return parts

    def evidence(self, X: Any, *, inputs: Any = None) -> Evidence:
        """log p of each series with its standard error and kind; NaN is marginalised."""
        parts = self._step_evidence(self._validated(X, inputs))
        nats = np.array([part.sum() for part in parts])
        return Evidence(nats, np.zeros_like(nats), self._kind)

    def step_evidence(self, X: Any, *, inputs: Any = None) -> np.ndarray:
        """log p(x_t | x_<t) of each time step, series one after another."""
        return np.concatenate(self._step_evidence(self._validated(X, inputs)))

    def score_samples(self, X: Any, *, inputs: Any = None) -> np.ndarray:
        """log p of each series, in nats."""
        return self.evidence(X, inputs=inputs).nats

    def score(self, X: Any, y: Any = None, *, inputs: Any = None) -> float:
        """The mean of `step_evidence`: nats per time step."""
        return float(self.step_evidence(X, inputs=inputs).mean())

    def sample(
        self,
        n: int = 1,
        random_state: Any = None,
        *,
        length: int | None = None,
        given: Any = None,
        inputs: Any = None,
    ) -> Any:
        """Draws `n` series of `length` steps (by default as long as the longest that was fitted).

        A model with inputs takes `inputs` of shape (length, inputs), the same for all series, or
        (n, length, inputs).  With `given`, series with NaN, the missing part is drawn given the observed
        part, `n` times: the result is like `given`, each series with a leading axis of n unless n is 1.
        """
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        if given is None:
            return self._draw(n, key, length, inputs)
        container = self._validated(given, inputs)
        many = len(container.series)
        n = check_count(self, "sample", "n", n, each=sum(x.size + 1 for x in container.series))
        repeated = container.take(list(range(many)) * n)
        drawn = self._for_each(_complete_sample, repeated, extra=split_key_data(key, many * n))
        filled = [self._fill(x, z) for x, z in zip(repeated.series, drawn, strict=True)]
        draws = self._answered("sample", container, [np.stack(filled[i::many]) for i in range(many)])
        return container.wrap([part[0] for part in draws] if n == 1 else draws)

    def _draw(self, n: int, key: Array, length: int | None, inputs: Any) -> np.ndarray:
        shape = np.shape(inputs)
        usual = shape[-2] if len(shape) > 1 else self.length_
        columns = self.n_features_in_
        steps = check_count(self, "sample", "length", usual if length is None else length, each=columns)
        n = check_count(self, "sample", "n", n, each=steps * columns + 1)
        parts = self._check_inputs(inputs, [steps] * (n if len(shape) == 3 else 1))
        size = bucket(steps)
        pushes = None
        if parts is not None:
            laid = np.stack([_padded(part, size) for part in parts])
            pushes = _padded(np.broadcast_to(laid, (n, *laid.shape[1:])), _few(n))
        rows = (_padded(split_key_data(key, n), _few(n)), pushes)
        drawn = map_padded(_sample, rows, self.model_, size, real=n, block=max(_STEPS_AT_ONCE // size, 1))
        return self.scaling_.invert(np.asarray(drawn)[:n, :steps])

    def _shares(
        self,
        method: str,
        function: Callable[..., Array],
        X: Any,
        inputs: Any,
        told: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> Any:
        """What is told of the probabilities of the states of each series, which `function` gives."""
        container = self._validated(X, inputs)
        parts = self._answered(method, container, self._for_each(function, container))
        # of sum one to the last digit, so that none is above one
        return container.wrap([told(part / part.sum(axis=1, keepdims=True)) for part in parts])

    def impute(self, X: Any, *, inputs: Any = None) -> Any:
        """`X` with each missing entry inferred from all that is observed of its series.

        A continuous entry has its mean, a count the whole number next to its mean, a label the most
        probable one.
        """
        container = self._validated(X, inputs)
        series = list(container.series)
        holes = [i for i, x in enumerate(series) if np.isnan(x).any()]
        if holes:
            incomplete = container.take(holes)
            for i, z in zip(holes, self._for_each(_complete_mean, incomplete), strict=True):
                series[i] = self._fill(series[i], z)
            self._answered("impute", container, series)
            whole, labels = (of(self.n_features_in_) for of in (self._whole_columns, self._label_columns))
            likeliest = self._likeliest(incomplete, np.flatnonzero(labels)) if labels.any() else []
            for number, i in enumerate(holes):
                series[i][:, whole] = np.rint(series[i][:, whole])
                if labels.any():
                    series[i][:, labels] = likeliest[number]
        return container.wrap(series)

    def _likeliest(self, container: Container, columns: np.ndarray) -> list[np.ndarray]:
        """These columns of each series, the missing labels replaced by the most probable ones."""
        raise NotImplementedError(f"{type(self).__name__} has labels and must say which are probable.")

    def _fill(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(x), self.scaling_.invert(z), x)


def _step_log_prob(series: Series, model: AbstractSequenceModel, incomplete: bool) -> Array:
    return model.step_log_prob(series, incomplete=incomplete)


def _sample(pair: tuple[Array, Array | None], model: AbstractSequenceModel, length: int) -> Array:
    key, inputs = pair
    return model.sample(length, key=jax.random.wrap_key_data(key), inputs=inputs)


def _complete_mean(series: Series, model: AbstractSequenceModel, incomplete: bool) -> Array:
    return model.complete_mean(series)


def _complete_sample(pair: tuple[Series, Array], model: AbstractSequenceModel, incomplete: bool) -> Array:
    series, key = pair
    return model.complete_sample(series, key=jax.random.wrap_key_data(key))
