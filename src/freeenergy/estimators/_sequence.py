"""Estimators of series: what they share, and how series of any length become arrays of few sizes."""

from __future__ import annotations

import abc
import dataclasses
import heapq
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from .._core import Data, Evidence, Fit, Kind, bucket, row_hashes
from ..models import AbstractSequenceModel, Series
from ._base import Shell, key_data
from ._rows import Scaling, unit_free_hashes
from ._validation import check_observed, check_rows, random_key

# numbers of one kind (time steps × series) that a program works on at once
_STEPS_AT_ONCE = 2**18


class Container(NamedTuple):
    """Validated series, and the way back to what they came in.

    Attributes:
        series: an array of shape (time, features) each.
        wrap: puts one array per series into a container like the one that was passed.
    """

    series: list[np.ndarray]
    wrap: Callable[[list[Any]], Any]


def _only(parts: list[Any]) -> Any:
    return parts[0]


def check_series(owner: Any, X: Any, *, reset: bool) -> Container:
    """`X` as a list of float arrays of shape (time, features).

    `X` is one series (time, features), an array (series, time, features), or a list of series.
    """
    if isinstance(X, (list, tuple)) and len(X) and np.ndim(X[0]) >= 2:
        parts, wrap = [np.asarray(part) for part in X], list
    elif isinstance(X, np.ndarray) and X.ndim == 3 and len(X):
        parts, wrap = list(X), np.stack
    else:
        return Container([check_rows(owner, X, reset=reset)], _only)
    for number, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1] != parts[0].shape[1] or not len(part):
            raise ValueError(
                f"Every series of X must have the shape (time, {parts[0].shape[1]}) with at least one "
                f"time step. Got {part.shape} for series {number}."
            )
    rows = check_rows(owner, np.concatenate(parts), reset=reset)
    return Container(np.split(rows, np.cumsum([len(part) for part in parts])[:-1]), wrap)


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


@eqx.filter_jit
def _run(function: Callable[..., Any], rows: Any, args: Any, block: int) -> Any:
    if len(jax.tree.leaves(rows)[0]) <= block:
        return jax.vmap(lambda row: function(row, *args))(rows)
    return jax.lax.map(lambda row: function(row, *args), rows, batch_size=block)


def map_series(
    function: Callable[..., Any], series: list[np.ndarray], *args: Any, extra: Any = None, cut: bool = True
) -> list[Any]:
    """`function(row, *args)` for each series, compiled once per padded length; NumPy in and out.

    Args:
        function: a module-level function of a `Series`; its results have a leading time axis.
        series: arrays of shape (time, features).
        args: passed on.
        extra: an array with an entry per series: `function` is then given pairs (Series, entry).
        cut: whether padding is cut off from the results.
    """
    lengths = np.array([len(x) for x in series])
    results: list[Any] = [None] * len(series)
    for size, members in _groups(lengths):
        rows: Any = _stack([[series[i]] for i in members], size, _few(len(members)))
        if extra is not None:
            tail = np.zeros((_few(len(members)) - len(members), *extra.shape[1:]), extra.dtype)
            rows = (rows, np.concatenate([extra[members], tail]))
        out = jax.device_get(_run(function, rows, args, max(_STEPS_AT_ONCE // size, 1)))
        for place, i in enumerate(members):
            end = lengths[i] if cut else None
            results[i] = jax.tree.map(lambda a, p=place, e=end: a[p, :e], out)
    return results


def _stack(rows: list[list[np.ndarray]], size: int, padded: int, states: Any = None) -> Series:
    """Rows of series one after another as arrays of `padded` rows and `size` time steps."""
    values = np.zeros((padded, size, rows[0][0].shape[1]))
    starts = np.zeros((padded, size), bool)
    starts[:, 0] = True
    real = np.zeros((padded, size), bool)
    known = np.full((padded, size), -1, np.int32)
    for number, row in enumerate(rows):
        at = 0
        for place, part in enumerate(row):
            values[number, at : at + len(part)] = part
            starts[number, at] = True
            if states is not None:
                known[number, at : at + len(part)] = states[number][place]
            at += len(part)
        real[number, :at] = True
    arrays: Any = (values, starts, real, None if states is None else known)
    return Series(*arrays)


def pack(series: list[np.ndarray], states: list[np.ndarray] | None = None) -> Data:
    """Series for learning: one padded length, short ones stored one after another in a row.

    A row is as long as the longest series, so that a recursion takes no more steps than it must; what
    is left of a row is filled with shorter series, so that little of it is padding.
    """
    size = bucket(max(len(x) for x in series))
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []
    for i in sorted(range(len(series)), key=lambda i: -len(series[i])):
        length = len(series[i])
        if space and -space[0][0] >= length:
            left, row = heapq.heappop(space)
            rows[row].append(i)
            heapq.heappush(space, (left + length, row))
        else:
            heapq.heappush(space, (length - size, len(rows)))
            rows.append([i])
    known = None if states is None else [[states[i] for i in row] for row in rows]
    x = _stack([[series[i] for i in row] for row in rows], size, _few(len(rows)), known)
    weight = np.zeros(_few(len(rows)))
    weight[: len(rows)] = 1.0
    incomplete = bool(np.isnan(x.values).any())
    return Data(
        jax.tree.map(jnp.asarray, x),
        jnp.asarray(weight),
        jnp.asarray(len(rows), jnp.int32),
        incomplete,
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

    X is one series of shape (time, features), an array (series, time, features), or a list of series of
    any lengths; NaN is not observed.  Series are independent of each other.  Everything here is in the
    units of the data that the user passed; the model works on `scaling_` of them.
    """

    random_state: Any
    n_features_in_: int
    model_: AbstractSequenceModel
    _kind: ClassVar[Kind] = Kind.EXACT

    @abc.abstractmethod
    def _check_parameters(self) -> None:
        """Refuses wrong parameters before any work."""

    @abc.abstractmethod
    def _fit_series(self, series: list[np.ndarray], data: Data, *, key: Array) -> Fit:
        """Fits rescaled series, which `data` holds packed; the objective is a mean per row of `data`."""

    def _scaling(self, X: np.ndarray) -> Scaling:
        return Scaling.standardise(X)

    def _discrete_columns(self, n_features: int) -> np.ndarray:
        """Which columns are modelled with a probability mass instead of a density."""
        return np.zeros(n_features, bool)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fits the model.

        Args:
            X: one series (time, features), an array (series, time, features) or a list of series.
            y: ignored.
        """
        return self._fit(X, None)

    def _fit(self, X: Any, states: Callable[[list[np.ndarray]], list[np.ndarray]] | None) -> Self:
        """`fit`, with a function that gives the known hidden states of validated series."""
        self._check_parameters()
        series = check_series(self, X, reset=True).series
        known = None if states is None else states(series)
        rows = np.concatenate(series)
        check_observed(rows, getattr(self, "feature_names_in_", None))
        self.scaling_ = self._scaling(rows)
        self.length_ = max(len(x) for x in series)
        order = canonical_order(series, self.scaling_)
        series = [self.scaling_.apply(series[i]) for i in order]
        data = pack(series, None if known is None else [known[i] for i in order])
        result = self._fit_series(series, data, key=random_key(self.random_state))
        # the history is the free energy per time step in the units of the data
        share = float(data.rows) / len(rows)
        offset = self.scaling_.log_det(rows).mean()
        history = {
            name: values * share - offset if name in ("objective", "validation") else values
            for name, values in result.history.items()
        }
        self._keep(dataclasses.replace(result, history=history))
        return self

    def _validated(self, X: Any) -> Container:
        check_is_fitted(self, "model_")
        return check_series(self, X, reset=False)

    def _for_each(
        self,
        function: Callable[..., Any],
        series: list[np.ndarray],
        *,
        arguments: tuple[Any, ...] = (),
        extra: Any = None,
        cut: bool = True,
    ) -> list[Any]:
        """`function(row, model, incomplete, *arguments)` for each series, rescaled, by `map_series`.

        `incomplete` says whether there is a NaN in any of them.
        """
        scaled = [self.scaling_.apply(x) for x in series]
        incomplete = any(bool(np.isnan(x).any()) for x in series)
        return map_series(function, scaled, self.model_, incomplete, *arguments, extra=extra, cut=cut)

    def _step_evidence(self, series: list[np.ndarray]) -> list[np.ndarray]:
        parts = self._for_each(_step_log_prob, series)
        return [part + self.scaling_.log_det(x) for part, x in zip(parts, series, strict=True)]

    def evidence(self, X: Any) -> Evidence:
        """log p of each series with its standard error and kind; NaN is marginalised."""
        parts = self._step_evidence(self._validated(X).series)
        nats = np.array([part.sum() for part in parts])
        return Evidence(nats, np.zeros_like(nats), self._kind)

    def step_evidence(self, X: Any) -> np.ndarray:
        """log p(x_t | x_<t) of each time step, series one after another."""
        return np.concatenate(self._step_evidence(self._validated(X).series))

    def score_samples(self, X: Any) -> np.ndarray:
        """log p of each series, in nats."""
        return self.evidence(X).nats

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `step_evidence`: nats per time step."""
        return float(self.step_evidence(X).mean())

    def sample(
        self, n: int = 1, random_state: Any = None, *, length: int | None = None, given: Any = None
    ) -> Any:
        """Draws `n` series of `length` steps (by default as long as the longest that was fitted).

        With `given`, series with NaN, the missing part is drawn given the observed part, `n` times: the
        result is like `given`, each series with a leading axis of n unless n is 1.
        """
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        if given is None:
            length = self.length_ if length is None else int(length)
            keys = key_data(key, int(n))
            padded = np.concatenate([keys, np.zeros((_few(len(keys)) - len(keys), 2), keys.dtype)])
            size = bucket(length)
            drawn = _run(_sample, padded, (self.model_, size), max(_STEPS_AT_ONCE // size, 1))
            return self.scaling_.invert(np.asarray(drawn)[: int(n), :length])
        container = self._validated(given)
        repeated = container.series * int(n)
        drawn = self._for_each(_complete_sample, repeated, extra=key_data(key, len(repeated)))
        filled = [self._fill(x, z) for x, z in zip(repeated, drawn, strict=True)]
        if n == 1:
            return container.wrap(filled)
        many = len(container.series)
        return container.wrap([np.stack(filled[i::many]) for i in range(many)])

    def impute(self, X: Any) -> Any:
        """`X` with each missing entry replaced by its mean given all that is observed of its series."""
        container = self._validated(X)
        series = list(container.series)
        holes = [i for i, x in enumerate(series) if np.isnan(x).any()]
        if holes:
            means = self._for_each(_complete_mean, [series[i] for i in holes])
            for i, z in zip(holes, means, strict=True):
                series[i] = self._fill(series[i], z)
        return container.wrap(series)

    def _fill(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(x), self.scaling_.invert(z), x)


def _step_log_prob(series: Series, model: AbstractSequenceModel, incomplete: bool) -> Array:
    return model.step_log_prob(series, incomplete=incomplete)


def _sample(key: Array, model: AbstractSequenceModel, length: int) -> Array:
    return model.sample(length, key=jax.random.wrap_key_data(key))


def _complete_mean(series: Series, model: AbstractSequenceModel, incomplete: bool) -> Array:
    return model.complete_mean(series)


def _complete_sample(pair: tuple[Series, Array], model: AbstractSequenceModel, incomplete: bool) -> Array:
    series, key = pair
    return model.complete_sample(series, key=jax.random.wrap_key_data(key))
