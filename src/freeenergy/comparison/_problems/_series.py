"""Series: their models are compared on later steps, or on whole series."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import TimeSeriesSplit, train_test_split

from ..._core import Evidence
from ...estimators import Support
from ...estimators._by_column import roles_by_column
from ...evaluation import pit_ranks
from ...shell import (
    AbstractRowEstimator,
    AbstractSequenceDensity,
    CodedRows,
    Schema,
    ScoresRows,
    ScoresSteps,
)
from ...shell._schema import CodedSeries
from ...shell._series_frame import SeriesFrame
from ...shell._validation import check_observed
from .. import _pictures
from ._base import DRAWS, PATHS, AbstractProblem, Pair, complete, evenly, shuffled_apart, shuffled_splits
from ._columns import (
    admitted_density,
    checked_support,
    constant_note,
    named_columns,
    needs_kinds,
    schema_notes,
)

# steps whose evidence is ranked, series they are taken from, steps with hidden states to show
_RANKED, _MOST_SERIES, _SHOWN = 1000, 50, 300
# steps of a fold from which a series is forecast
_ORIGINS = 32


class AbstractSeries(AbstractProblem):
    """Series, of which sequence models give the density of a step given those before it.

    Densities of rows take the time steps as independent rows.
    """

    series: list[np.ndarray]
    # what is known beside each, or None
    inputs: list[np.ndarray] | None
    # whether no column is left out
    whole: bool
    # the most steps that a model may need to be fitted
    most_needed: float
    # what the columns hold, as the user has them, where a model has to know
    kinds: Schema | None

    def _describe(
        self,
        series: list[np.ndarray],
        inputs: list[np.ndarray] | None,
        support: Support | None,
        models: Any,
        names: list[str],
        told: list[str],
        schema: Schema | None,
    ) -> None:
        self.inputs = inputs
        rows = np.concatenate(series)
        check_observed(rows, names)
        if schema is not None and support is None:
            support = _support_of(schema, rows)
        found = checked_support(support, rows)
        # models of series know whole numbers, but no other grid
        found = found.without_grids() if support is None else found
        self.notes = [*told, *constant_note(names, found)]
        self.whole = not found.constant.any()
        if not self.whole:
            self.notes.append("The best estimator, too, takes series without them.")
        kept = ~found.constant
        self.series = [x[:, kept] for x in series]
        self.feature_names = [name for name, keep in zip(names, kept, strict=True) if keep]
        self.support, self.kinds = found.part(kept), None if schema is None else schema.part(kept)
        if self.kinds is not None:
            labels = np.array([not field.numeric for field in self.kinds.modelled])
            self.notes += schema_notes(self.feature_names, self.kinds, labels)
        self.dimension = int(kept.sum())
        densities: list[Any] = [m for m in models if isinstance(m, (ScoresRows, ScoresSteps))]
        mass = [self._mass(m) for m in densities]
        if support is None and self.support.integer.any() and not np.any(mass):
            self.support = Support(["continuous"] * self.dimension)
            self.notes.append(
                f"{named_columns(self.feature_names, found.integer[kept])}: the whole numbers are taken as "
                "continuous, since no model gives them a probability mass."
            )
        elif any(self._cells(model) for model in models if isinstance(model, ScoresSteps)):
            self.notes.append(
                "Bits are of the probability mass of whole numbers; models of continuous series give that "
                "of the cell of width one about each, given the steps before it."
            )
        without = [type(m).__name__ for m in models if isinstance(m, ScoresSteps) and not _takes_inputs(m)]
        if inputs is not None and without:
            self.notes.append(f"{without[0]} takes no inputs, and is compared without them.")

    def _given(self, estimator: Any, parts: Callable[[list[np.ndarray]], Any]) -> dict[str, Any]:
        """The `inputs` of some of the series, for a model that takes them."""
        if self.inputs is None or not _takes_inputs(estimator):
            return {}
        return {"inputs": parts(self.inputs)}

    def _mass(self, estimator: Any) -> np.ndarray:
        """The columns to which a model gives a probability mass."""
        if self.kinds is not None:
            return estimator.roles_for(self.kinds).mass
        return estimator.column_roles(self.dimension).mass

    def _rows(self, series: list[np.ndarray], estimator: Any) -> Any:
        """Time steps as rows, for a density of rows."""
        rows = np.concatenate(series)
        known = self.kinds is not None and isinstance(estimator, AbstractRowEstimator)
        return CodedRows(rows, self.kinds.coded()) if known and self.kinds else rows

    def _steps(self, series: list[np.ndarray], estimator: Any) -> Any:
        """Series to be fitted; with what their columns hold, for a model that has to know."""
        known = self.kinds is not None and needs_kinds(estimator)
        return CodedSeries(series, self.kinds.coded()) if known and self.kinds else series

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if isinstance(estimator, ScoresRows):
            rows = np.concatenate(self.series)
            return admitted_density(estimator, self.support, rows, self.kinds and self.kinds.coded())
        steps: Any = estimator if isinstance(estimator, ScoresSteps) else None
        if steps is None:
            raise ValueError(f"{name} is no density of series or rows: it gives no probability of X.")
        apart = (self._mass(steps) != self.support.integer).any()
        if apart and not self._cells(steps):
            raise ValueError(
                f"{name} gives a density where other models give whole numbers a probability mass, or "
                "the reverse; the two have no common unit."
            )
        needed = steps.least_steps(self.dimension)
        if needed > self.most_needed:
            raise ValueError(
                f"{name} needs at least {needed} steps for its free parameters and its start, which "
                f"is more than half of the series. Got {len(self.series[0])}."
            )
        return estimator

    def _cells(self, steps: Any) -> bool:
        """Whether a model of real numbers is asked for the masses of whole ones."""
        real = not self._mass(steps).any()
        return bool(
            real
            and self.support.integer.all()
            and steps.gives_cells(self.dimension, from_start=not self._units_are_rows)
        )

    def _step_evidence(self, estimator: Any, series: Any, known: dict[str, Any]) -> np.ndarray:
        """log p of each step given those before it: of its cell, for a density of whole numbers."""
        cells = self._cells(estimator)
        ask = estimator.cell_evidence if cells else estimator.step_evidence
        return ask(series, **known)

    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        if isinstance(estimator, ScoresRows):
            rows = np.concatenate(self.series)
            known = self.kinds is not None and isinstance(estimator, AbstractRowEstimator)
            return estimator.fit(CodedRows(rows, self.kinds) if known and self.kinds else rows)
        if not self.whole:
            return estimator.fit(self._steps(self.series, estimator), **self._given(estimator, list))
        if isinstance(X, SeriesFrame) and not _takes_inputs(estimator):
            X = SeriesFrame(X.table)
        return estimator.fit(X)

    @abc.abstractmethod
    def _past(self, train: np.ndarray) -> list[np.ndarray]:
        """The series that were fitted."""

    @abc.abstractmethod
    def _beside(self, test: np.ndarray, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The inputs of `_held_out`."""

    def ahead(
        self, estimator: Any, train: np.ndarray, test: np.ndarray, horizon: int, level: float
    ) -> np.ndarray | None:
        """Forecasts from some of the held-out steps, as `FoldResult` has them; None if there is no room."""
        held = self._held_out(test)
        places = [(i, t) for i, (x, at) in enumerate(held) for t in at if 1 <= t <= len(x) - horizon]
        if not places:
            return None
        chosen = evenly(np.array(places), _ORIGINS)
        known = self._given(estimator, lambda inputs: self._beside(test, inputs)).get("inputs")
        beside = {}
        if known is not None:
            beside["inputs"] = [known[i][:t] for i, t in chosen]
            beside["future_inputs"] = [known[i][t : t + horizon] for i, t in chosen]
        found = estimator.forecast([held[i][0][:t] for i, t in chosen], horizon, level, **beside)
        came = np.stack([held[i][0][t : t + horizon] for i, t in chosen])
        gaps = np.abs(np.concatenate([np.diff(x, axis=0) for x in self._past(train)]))
        scale = np.where(np.isnan(gaps), 0, gaps).sum(axis=0) / np.maximum((~np.isnan(gaps)).sum(axis=0), 1)
        return np.stack([came, *map(np.stack, found), np.broadcast_to(scale, came.shape)])

    @abc.abstractmethod
    def _times(self, test: np.ndarray) -> np.ndarray | None:
        """Those of the first of `_held_out`, if they are known."""

    @abc.abstractmethod
    def _held_out(self, test: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Series, each with those of its steps that are held out."""

    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        held = self._held_out(test)[:_MOST_SERIES]
        series, steps = [x for x, _ in held], [at for _, at in held]
        length = max(int(np.median([len(x) for x in self.series])), *map(len, series))
        known = self._given(estimator, lambda inputs: self._beside(test, inputs)[:_MOST_SERIES]).get(
            "inputs"
        )
        if known is not None:
            # draws have the inputs of the series in their turn
            length = min(map(len, series))
            steps = [at[at < length] for at in steps]
        # draws have as many steps to rank among as there are, on average, in a draw of rows
        most = max(sum(map(len, steps)), 1)
        size = min(max(math.ceil(DRAWS * len(held) / most), PATHS), _MOST_SERIES)
        model: Any = estimator
        if isinstance(estimator, ScoresRows):
            draws = model.sample(size * length, random_state=seed).reshape(size, length, -1)
            nats = model.score_samples(np.concatenate([*series, *draws]))
        else:
            turns = (
                {} if known is None else {"inputs": [known[i % len(held)][:length] for i in range(size)]}
            )
            draws = model.sample(size, random_state=seed, length=length, **_stacked(turns))
            both = {} if known is None else {"inputs": [*known, *turns["inputs"]]}
            nats = model.step_evidence([*series, *draws], **both)
        found: dict[str, Any] = {"samples": draws[:PATHS]}
        nats = np.split(nats, np.cumsum([*map(len, series), *[length] * size])[:-1])
        own = np.concatenate([n[at][complete(x[at])] for n, (x, at) in zip(nats, held)])
        # steps at the same places of the draws: what is known of a step grows along a series
        drawn = np.concatenate([n[steps[i % len(held)]] for i, n in enumerate(nats[len(held) :])])
        own, drawn = evenly(own, _RANKED), evenly(drawn, _RANKED)
        if len(own) and np.isfinite(own).all() and np.isfinite(drawn).all():
            found |= {"pit": pit_ranks(own, drawn, seed=seed), "pit_draws": len(drawn)}
        states = _pictures.states(estimator, series[0], None if known is None else known[0])
        if states:
            states["series"] = series[0]
            times = self._times(test)
            if times is not None:
                # dates are whole microseconds, other times are numbers
                states["times"] = times.astype(np.int64 if times.dtype.kind == "M" else np.float64)
            found["parts"] = {name: v[-_SHOWN:] for name, v in states.items()}
        return found

    def examples(self, rows: np.ndarray) -> Any:
        return self.series[:PATHS]


class SeveralSeries(AbstractSeries):
    """Whole series are held out."""

    _units_are_rows = False

    def __init__(
        self,
        series: list[np.ndarray],
        inputs: list[np.ndarray] | None,
        support: Any,
        groups: Any,
        models: Any,
        names: list[str],
        told: list[str],
        schema: Schema | None = None,
    ) -> None:
        self._describe(series, inputs, support, models, names, told, schema)
        self.n_rows, self.most_needed = len(series), math.inf
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.array([np.sum(~np.isnan(x)) for x in self.series])

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        chosen = [self.series[i] for i in train]
        if isinstance(estimator, ScoresRows):
            return estimator.fit(self._rows(chosen, estimator))
        given = self._given(estimator, lambda inputs: self._beside(train, inputs))
        return estimator.fit(self._steps(chosen, estimator), **given)

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        chosen = [self.series[i] for i in test]
        if isinstance(estimator, ScoresSteps):
            steps: Any = estimator
            known = self._given(steps, lambda inputs: self._beside(test, inputs))
            if not self._cells(steps):
                return steps.evidence(chosen, **known)
            each = self._step_evidence(steps, chosen, known)
            nats = np.array([part.sum() for part in np.split(each, np.cumsum([*map(len, chosen)])[:-1])])
            return Evidence(nats, np.zeros_like(nats), steps.evidence_kind)
        steps = estimator.evidence(np.concatenate(chosen))
        lengths = np.array([len(x) for x in chosen])
        starts = np.cumsum(lengths) - lengths
        # what all steps share adds up, the rest averages out
        own = np.add.reduceat(np.maximum(steps.stderr**2 - steps.shared**2, 0), starts)
        stderr = np.sqrt(own + (lengths * steps.shared) ** 2)
        nats = np.add.reduceat(steps.nats, starts)
        return Evidence(nats, stderr, steps.kind, float(lengths.mean()) * steps.shared)

    def _past(self, train: np.ndarray) -> list[np.ndarray]:
        return [self.series[i] for i in train]

    def _held_out(self, test: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(self.series[i], np.arange(len(self.series[i]))) for i in test]

    def _beside(self, test: np.ndarray, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [inputs[i] for i in test]

    def _times(self, test: np.ndarray) -> np.ndarray | None:
        return None if self.times is None else self.times[test[0]]

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        return shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        # series are often fewer than folds
        most = len(np.unique(units if groups is None else groups))
        return shuffled_splits(units, min(cv, most) if isinstance(cv, int) else cv, groups, seed)


class OneSeries(AbstractSeries):
    """Later time steps are held out, and scored one step ahead given all steps before them."""

    # its models have seen the most
    shown_fold = -1

    def __init__(
        self,
        series: np.ndarray,
        inputs: list[np.ndarray] | None,
        support: Any,
        models: Any,
        names: list[str],
        told: list[str],
        schema: Schema | None = None,
    ) -> None:
        self._describe([series], inputs, support, models, names, told, schema)
        self.n_rows = len(series)
        self.most_needed = self.n_rows // 2
        # neighbours in time depend on each other
        self.clusters = np.arange(self.n_rows) // math.ceil(math.sqrt(self.n_rows))
        self.entries = np.sum(~np.isnan(self.series[0]), axis=1)
        self.notes.append("Later time steps are held out and scored one step ahead.")
        self.notes.append(
            "Draws and pictures are of the models of the last fold, which have seen the most."
        )

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        part = self.series[0][train]
        if isinstance(estimator, ScoresRows):
            return estimator.fit(self._rows([part], estimator))
        found = self._steps([part], estimator)
        given = self._given(estimator, lambda inputs: inputs[0][train])
        return estimator.fit(part if isinstance(found, list) else found, **given)

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        if isinstance(estimator, ScoresRows):
            return estimator.evidence(self.series[0][test])
        known = self._given(estimator, lambda inputs: self._beside(test, inputs)[0])
        nats = self._step_evidence(estimator, self.series[0][: test[-1] + 1], known)[test]
        return Evidence(nats, np.zeros_like(nats), estimator.evidence_kind)

    def _past(self, train: np.ndarray) -> list[np.ndarray]:
        return [self.series[0][train]]

    def _held_out(self, test: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(self.series[0][: test[-1] + 1], test)]

    def _beside(self, test: np.ndarray, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [inputs[0][: test[-1] + 1]]

    def _times(self, test: np.ndarray) -> np.ndarray | None:
        return None if self.times is None else self.times[0][: test[-1] + 1]

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        rest, other = train_test_split(units, test_size=size, shuffle=False)
        return np.asarray(rest), np.asarray(other)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        if isinstance(cv, int):
            cv = self._in_time(len(units), cv, models)
        return [(units[train], units[test]) for train, test in cv.split(units)]

    def _in_time(self, steps: int, folds: int, models: list[Any]) -> TimeSeriesSplit:
        """Folds of equal length, the first of which begins where every model can be fitted."""
        sequences = [model for model in models if isinstance(model, ScoresSteps)]
        needed = {model.least_steps(self.dimension): type(model).__name__ for model in sequences}
        most = max(needed, default=0)
        usual, left = steps // (folds + 1), (steps - most) // folds
        if left >= usual:
            return TimeSeriesSplit(folds)
        if left < 1:
            raise ValueError(
                f"{needed[most]} needs at least {most} steps, and each of the {folds} folds one more. Got "
                f"{steps} steps."
            )
        self.notes.append(
            f"The first fold begins after {steps - folds * left} steps instead of {steps - folds * usual}, "
            f"since {needed[most]} needs at least {most} for its free parameters and its start."
        )
        return TimeSeriesSplit(folds, test_size=left)


def _support_of(schema: Schema, rows: np.ndarray) -> Support:
    """Counts and labels have a mass, other columns a density."""
    mass = roles_by_column(schema).mass
    varies = np.nanmin(rows, axis=0) < np.nanmax(rows, axis=0)
    kinds = np.where(mass, "integer", "continuous")
    return Support(np.where(varies, kinds, "constant").tolist())


def _takes_inputs(estimator: Any) -> bool:
    return isinstance(estimator, AbstractSequenceDensity) and estimator.takes_inputs


def _stacked(inputs: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack(parts) for name, parts in inputs.items()}
