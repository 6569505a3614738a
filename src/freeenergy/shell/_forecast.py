"""What comes after the end of series: one record for all models, and how it is made."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from scipy import special

from .._core import in_notebook, key_of, notes_in_notebook, split_key_data, table_in_notebook
from ._capabilities import Forecasts
from ._schema import kinds_of
from ._sequence import AbstractSequenceDensity, complete_series_sample_of
from ._series import SeriesIntake
from ._series_frame import AbstractContainer, Framed, PandasTable, frame_of
from ._support import Column
from ._time import in_words
from ._validation import check_count, random_key

# draws from which an interval is taken that no formula gives
_DRAWS = 2000
_HALVINGS = 60
_SHOWN, _SHOWN_IN_NOTEBOOKS = 6, 24


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """What is expected after the end of each series, and how sure that is.

    It comes apart into three: `mean, low, high = model.forecast(X, 12)`.

    >>> import freeenergy as fe
    >>> chain = fe.MarkovChain().fit([[0], [1], [1], [0], [1], [1]])
    >>> chain.forecast([[0], [1]], 2)
    step  mean  90% from  to
       1     1         0   1
       2     1         0   1

    Attributes:
        mean: of each value, (steps, features) in the container that series came in; of a label the most
            probable one.
        low, high: the interval that holds each value by itself with probability `level`: its quantiles
            (1 − level)/2 and (1 + level)/2.  A value that is a whole number is in it with at least that.
        level: the probability of the interval.
        draws: paths of all values together, (draws, steps, features) for each series; None without any.
        probabilities: of labels, (steps, features, labels) for each series; None if there are no labels.
        index: what the steps are called, for each series: dates after those of the frame that was passed.
            None for arrays.
        names: of the columns; None for arrays.
    """

    mean: Any
    low: Any
    high: Any
    level: float
    draws: Any = None
    probabilities: Any = None
    index: Any = None
    names: list[Any] | None = None
    # of all series, one after another, with the container that they go back into
    _parts: tuple[list[np.ndarray], ...] = ()
    _container: AbstractContainer | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.mean, self.low, self.high))

    def _columns(self) -> dict[str, Any]:
        """A row for each series, column and step."""
        means = self._parts[0]
        count, (steps, features) = len(means), means[0].shape
        labels = self._container.source.labels if isinstance(self._container, Framed) else None
        index = None if self._container is None else self._container.index_ahead(steps)
        found: dict[str, Any] = {}
        if count > 1 or labels is not None:
            found["series"] = np.repeat(np.array(labels or range(count), object), steps * features)
        name = "step"
        if index is None:
            times: Any = np.tile(np.arange(1, steps + 1), features * count)
        else:
            name = index[0].name or "time"
            times = [time for own in index for _ in range(features) for time in own]
        found[str(name)] = times
        if features > 1:
            names = self.names or range(features)
            found["column"] = np.tile(np.repeat(np.array(list(names), object), steps), count)
        for title, parts in zip(("mean", "low", "high"), self._parts, strict=True):
            found[title] = np.concatenate([part.T.ravel() for part in parts])
        return found

    def to_frame(self) -> Any:
        """Mean and interval in rows, one for each series, column and step: pandas, or Polars.

        A frame of the library that the series came in; else of pandas, if there is one.
        """
        columns = {name: _plain(values) for name, values in self._columns().items()}
        time = next(name for name in columns if name != "series")
        polars = isinstance(self._container, Framed) and not isinstance(self._container.table, PandasTable)
        if not polars:
            try:
                pandas = import_module("pandas")
            except ImportError:
                pass
            else:
                return pandas.DataFrame(columns).set_index(time)
        return import_module("polars").DataFrame(
            {name: _of_one_type(values) for name, values in columns.items()}
        )

    def plot(self, X: Any, ax: Any = None, *, series: int = 0, **options: Any) -> Any:
        """The end of a series and what is expected after it: `freeenergy.plots.forecast`.

        Args:
            X: what the forecast is of.
            ax: axes of Matplotlib to draw on.
            series: the number of the series, if there are several.
            options: for `freeenergy.plots.forecast`.
        """
        source = frame_of(X)
        if source is not None:
            past = Framed(source, source.grid())
            values = past.laid(np.asarray(source.table.selected(source.table.columns), float))[series]
            later = past.times_ahead(len(self._parts[0][series]))
            if past.grid.times is not None and later is not None:
                dates = np.concatenate([past.grid.times[series], later[series]])
                options = {"dates": [in_words(date) for date in dates]} | options
        else:
            values = X if len(self._parts[0]) == 1 and not isinstance(X, list) else X[series]
        # pictures are above the shell, which does without them until somebody asks for one
        plots: Any = import_module(f"{__name__.partition('.')[0]}.plots")
        return plots.forecast(values, tuple(part[series] for part in self._parts), ax, **options)

    def _lines(self, most: int) -> tuple[list[list[str]], int]:
        """Titles and rows in words, and how many rows there are in all."""
        columns = self._columns()
        count = len(columns["mean"])
        titles = {"low": f"{self.level:.0%} from", "high": "to"}
        lines = [[titles.get(name, name) for name in columns]]
        lines += [[_word(values[row]) for values in columns.values()] for row in range(min(count, most))]
        return lines, count

    def _repr_html_(self) -> str:
        (head, *rows), count = self._lines(_SHOWN_IN_NOTEBOOKS)
        words = [place for place, title in enumerate(head) if title in ("series", "column")]
        more = [f"{count - len(rows)} more rows are in to_frame()."] if count > len(rows) else []
        sure = f"Each value by itself is in its interval with probability {self.level:.0%} under the model."
        return in_notebook(table_in_notebook(head, rows, words=words), notes_in_notebook([*more, sure]))

    def __repr__(self) -> str:
        lines, count = self._lines(_SHOWN)
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        text = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*text, *([f"… {count} rows in all"] if count > _SHOWN else [])])


def _word(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    return str(value).removesuffix(" 00:00:00")


def _of_one_type(values: Any) -> Any:
    """Text, where a list holds things of several types."""
    mixed = isinstance(values, list) and len({type(v) for v in values if v is not None}) > 1
    return [None if v is None else _word(v) for v in values] if mixed else values


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values


class AbstractPredictive(abc.ABC):
    """The law of each value of each step after the end of a series, in the units of the model."""

    @abc.abstractmethod
    def mean(self) -> np.ndarray:
        """(steps, features)."""

    @abc.abstractmethod
    def quantile(self, p: float) -> np.ndarray:
        """The least value that is not exceeded with probability `p`, (steps, features)."""


@dataclasses.dataclass(frozen=True)
class NormalMixtures(AbstractPredictive):
    """A mixture of normal laws for each value.

    Attributes:
        weights: (steps, parts).
        means, variances: (steps, parts, features).

    >>> two = NormalMixtures(np.array([[0.5, 0.5]]), np.array([[[-3.0], [3.0]]]), np.ones((1, 2, 1)))
    >>> bool(abs(two.quantile(0.5)[0, 0]) < 1e-9), round(float(two.quantile(0.95)[0, 0]), 3)
    (True, 4.282)
    """

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    def mean(self) -> np.ndarray:
        return np.einsum("tk,tkd->td", self.weights, self.means)

    def quantile(self, p: float) -> np.ndarray:
        scale = np.sqrt(self.variances)
        alone = self.means + scale * special.ndtri(p)
        # parts without weight say nothing
        there = np.broadcast_to((self.weights > 0)[..., None], alone.shape)
        low = np.min(alone, axis=1, where=there, initial=np.inf)
        high = np.max(alone, axis=1, where=there, initial=-np.inf)
        if alone.shape[1] == 1:
            return low
        safe = np.where(scale > 0, scale, 1.0)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            gap = middle[:, None] - self.means
            below = np.where(scale > 0, special.ndtr(gap / safe), gap >= 0)
            enough = np.einsum("tk,tkd->td", self.weights, below) >= p
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def log_mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """log P(low < value < high) of each value, (steps, features).

        >>> law = NormalMixtures(np.ones((1, 1)), np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
        >>> law.log_mass(np.array([[-0.5]]), np.array([[0.5]])).round(4).tolist()
        [[-0.9599]]
        >>> law.log_mass(np.array([[40.0]]), np.array([[41.0]])).round(2).tolist()
        [[-804.61]]
        """
        spread = np.sqrt(self.variances)
        ends = [(end[:, None] - self.means) / spread for end in (low, high)]
        # the probabilities of the lower tail, which do not cancel, on whichever side both ends are
        above = ends[0] > 0
        first, last = np.where(above, -ends[1], ends[0]), np.where(above, -ends[0], ends[1])
        most = special.log_ndtr(last)
        with np.errstate(divide="ignore"):
            each = most + np.log1p(-np.exp(special.log_ndtr(first) - most))
            weights = np.log(self.weights)[..., None]
        return np.asarray(special.logsumexp(each + weights, axis=1))


@dataclasses.dataclass(frozen=True)
class MassTables(AbstractPredictive):
    """The probabilities of 0, 1, 2, … for each value, (steps, features, values), and the mean, if known."""

    mass: np.ndarray
    centre: np.ndarray | None = None

    def mean(self) -> np.ndarray:
        return self.mass @ np.arange(self.mass.shape[2]) if self.centre is None else self.centre

    def quantile(self, p: float) -> np.ndarray:
        # sums of probabilities have rounding
        return np.argmax(np.cumsum(self.mass, axis=2) >= p * (1 - 1e-12), axis=2).astype(float)


@dataclasses.dataclass(frozen=True)
class ColumnLaws(AbstractPredictive):
    """Laws of different kinds for the columns: normal ones for some, and masses for the others.

    Attributes:
        numbers: the columns with a normal law, in order.
        normals: their laws, if there are any.
        tables: the masses of all columns; those of `numbers` are not looked at.

    >>> normal = NormalMixtures(np.ones((1, 1)), np.full((1, 1, 1), 2.5), np.ones((1, 1, 1)))
    >>> both = ColumnLaws(np.array([0]), normal, MassTables(np.array([[[1.0, 0.0], [0.2, 0.8]]])))
    >>> both.mean().tolist()
    [[2.5, 0.8]]
    """

    numbers: np.ndarray
    normals: NormalMixtures | None
    tables: MassTables

    @property
    def mass(self) -> np.ndarray:
        """The probabilities of 0, 1, 2, … for each value that has some."""
        return self.tables.mass

    def _joined(self, of_tables: np.ndarray, of_normals: np.ndarray | None) -> np.ndarray:
        if of_normals is not None:
            of_tables[:, self.numbers] = of_normals
        return of_tables

    def mean(self) -> np.ndarray:
        return self._joined(self.tables.mean(), None if self.normals is None else self.normals.mean())

    def quantile(self, p: float) -> np.ndarray:
        return self._joined(
            self.tables.quantile(p), None if self.normals is None else self.normals.quantile(p)
        )


@dataclasses.dataclass(frozen=True)
class Drawn(AbstractPredictive):
    """Draws of each value, (draws, steps, features), with the mean, which is known without them."""

    draws: np.ndarray
    centre: np.ndarray

    def mean(self) -> np.ndarray:
        return self.centre

    def quantile(self, p: float) -> np.ndarray:
        return np.quantile(self.draws, p, axis=0, method="inverted_cdf")


class ForecastsSeries(Forecasts, AbstractSequenceDensity):
    """A density of series that says what comes after their end.

    Subclasses give the law of each value after the end of each series; paths are draws of series that go on
    with missing values.
    """

    @abc.abstractmethod
    def _predictive(
        self, container: SeriesIntake, steps: int, future: np.ndarray | None
    ) -> list[AbstractPredictive]:
        """For each series the law of the values after its end, given inputs (series, steps, inputs)."""

    def forecast(
        self,
        X: Any,
        steps: int = 1,
        level: float = 0.9,
        *,
        inputs: Any = None,
        future_inputs: Any = None,
        draws: int = 0,
        random_state: Any = None,
    ) -> Forecast:
        """The `steps` values after the end of each series, with intervals of probability `level`.

        Args:
            X: series, as in `fit`.
            steps: how many to look ahead.
            level: the probability with which an interval holds its value.
            inputs: of the series, for a model with inputs.
            future_inputs: those of the steps to come.
            draws: how many joint paths to draw.
            random_state: their seed.
        """
        if not 0 < level < 1:
            raise ValueError(
                "The 'level' parameter of forecast must be a float in the range (0, 1). "
                f"Got {level!r} instead."
            )
        taken = self._read(X, inputs)
        each = len(taken.series) * self.n_features_in_
        steps = check_count(self, "forecast", "steps", steps, each=each)
        draws = check_count(self, "forecast", "draws", draws, each=each * steps, least=0)
        future = self._future(future_inputs, taken, steps)
        laws = self._predictive(taken, steps, future)
        tail = (1 - level) / 2
        # what has no answer is refused below
        with np.errstate(invalid="ignore", over="ignore"):
            parts = tuple(
                [self.scaling_.invert(part) for part in own]
                for own in (
                    [law.mean() for law in laws],
                    [law.quantile(tail) for law in laws],
                    [law.quantile(1 - tail) for law in laws],
                )
            )
        labels = self.column_roles(self.n_features_in_).labels
        shares = (
            [law.mass[:, labels] for law in laws if isinstance(law, MassTables | ColumnLaws)]
            if labels.any()
            else []
        )
        for mean, law in zip(parts[0], laws, strict=True):
            if labels.any() and isinstance(law, MassTables | ColumnLaws):
                mean[:, labels] = law.mass[:, labels].argmax(axis=2)
            elif labels.any() and isinstance(law, Drawn):
                mean[:, labels] = _most_frequent(law.draws[..., labels])
        for part in parts:
            self._answered("forecast", taken, part)
        paths = None
        if draws:
            keys = split_key_data(random_key(random_state), draws * len(taken.series))
            paths = taken.wrap(self._paths(taken, steps, future, keys))
        container = taken.container
        index = container.index_ahead(steps)
        schema = kinds_of(self)
        words = parts
        if schema is not None:
            # labels without an order have no interval
            plain = np.array([field.kind is Column.CATEGORY for field in schema.fields])
            for ends in (*parts[1], *parts[2]):
                ends[:, plain] = np.nan
            words = tuple([schema.words(part) for part in own] for own in parts)
        return Forecast(
            *(taken.ahead(part) for part in parts),
            level=level,
            draws=paths,
            probabilities=taken.wrap(shares) if shares else None,
            index=None if index is None else container.wrap(index),
            names=container.names,
            _parts=words,
            _container=container,
        )

    def _step_laws(self, container: SeriesIntake) -> list[NormalMixtures]:
        """For each series the law of each value given the steps before it, in the units of the model."""
        raise NotImplementedError(f"{type(self).__name__} gives no cells.")

    def cell_evidence(self, X: Any, *, inputs: Any = None) -> np.ndarray:
        """log P(x_t − ½ < y_t < x_t + ½ | x_<t) of each step, series one after another.

        A density of real numbers as a probability mass on whole ones: for each step the masses of all
        whole numbers have the sum one, so that it is on one scale with models of counts.  For one column
        whose law given the past is normal, or a mixture of normal laws; NaN is marginalised.

        >>> import freeenergy as fe
        >>> x = np.random.default_rng(0).poisson(20, size=(60, 1)).astype(float)
        >>> model = fe.AutoRegression(1).fit(x)
        >>> law = model.cell_evidence(x)[-1:]
        >>> bool(np.allclose(law, model.step_evidence(x)[-1:], atol=0.02))  # wide laws are flat in a cell
        True
        """
        taken = self._read(X, inputs)
        if not self.gives_cells(self.n_features_in_, from_start=False):
            raise ValueError(
                f"{type(self).__name__}.cell_evidence has no answer: it needs series of one column, whose "
                "law given the past is normal."
            )
        found = []
        for x, law in zip(taken.series, self._step_laws(taken), strict=True):
            ends = [self.scaling_.apply(x + half) for half in (-0.5, 0.5)]
            nats = law.log_mass(*ends)[:, 0]
            found.append(np.where(np.isnan(x[:, 0]), 0.0, nats))
        self._check_answers("cell_evidence", taken, [not np.isnan(part).any() for part in found])
        return np.concatenate(found)

    def _longer(self, container: SeriesIntake, steps: int, future: np.ndarray | None) -> SeriesIntake:
        """The series with missing values after their end."""
        unknown = np.full((steps, self.n_features_in_), np.nan)
        inputs = container.inputs
        if inputs is not None and future is not None:
            inputs = [np.concatenate(pair) for pair in zip(inputs, future, strict=True)]
        return container.with_series([np.concatenate([x, unknown]) for x in container.series], inputs)

    def _paths(
        self, container: SeriesIntake, steps: int, future: np.ndarray | None, keys: np.ndarray
    ) -> list[np.ndarray]:
        """Joint draws of what comes after each series, (draws, steps, features), a key for each draw."""
        many = len(container.series)
        longer = self._longer(container, steps, future).take(list(range(many)) * (len(keys) // many))
        drawn = self._for_each(complete_series_sample_of, longer, extra=keys)
        paths = [self.scaling_.invert(path[-steps:]) for path in drawn]
        return self._answered("forecast", container, [np.stack(paths[i::many]) for i in range(many)])

    def _drawn(
        self, container: SeriesIntake, steps: int, future: np.ndarray | None, means: list[np.ndarray]
    ) -> list[AbstractPredictive]:
        """Laws from draws, always the same ones, where no formula is known; `means` are rescaled."""
        # the same for each series, whatever the others are
        keys = split_key_data(key_of(int(np.ravel(self.seed_)[0])), _DRAWS)
        paths = self._paths(container, steps, future, np.repeat(keys, len(container.series), axis=0))
        scaled = [self.scaling_.apply(path) for path in paths]
        return [Drawn(path, mean) for path, mean in zip(scaled, means, strict=True)]


def _most_frequent(draws: np.ndarray) -> np.ndarray:
    counts = np.stack([(draws == label).sum(axis=0) for label in range(int(draws.max()) + 1)])
    return counts.argmax(axis=0)
