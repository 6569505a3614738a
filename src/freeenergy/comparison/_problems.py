"""Tables, labelled rows and series: how they are split, and how a model is scored on them."""

from __future__ import annotations

import abc
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import joblib
import numpy as np
from sklearn.base import BaseEstimator, DensityMixin, is_classifier
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    ShuffleSplit,
    TimeSeriesSplit,
    check_cv,
    train_test_split,
)
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names, check_consistent_length, column_or_1d

from .._core import CellError, Evidence, Kind
from ..estimators import Dequantised, Support
from ..evaluation import pit_ranks
from ..shell import (
    AbstractDensity,
    AbstractRowEstimator,
    AbstractSequenceDensity,
    CodedRows,
    Column,
    Samples,
    Schema,
    Scores,
    ScoresLabels,
    ScoresRows,
    ScoresSteps,
)
from ..shell._frames import table_library
from ..shell._schema import recognised
from ..shell._series import check_inputs, check_series
from ..shell._series_frame import Framed, SeriesFrame
from ..shell._validation import check_observed, check_rows
from . import _pictures

_DRAWS, _PATHS, _LATENT_ROWS = 300, 5, 1000
# of series: steps whose evidence is ranked, series they are taken from, steps with hidden states to show
_RANKED, _MOST_SERIES, _SHOWN = 1000, 50, 300
# the least probable rows that are shown, and the most columns whose cells are looked at one by one
_UNLIKELY, _EXACT_CELLS, _BOUND_CELLS = 6, 64, 16
# steps of a fold from which a series is forecast
_ORIGINS = 32
# the share of one value from which on a column is hardly continuous
_TIED = 0.05
Pair = tuple[np.ndarray, np.ndarray]


class AbstractProblem(abc.ABC):
    """The data: how they are split, and how a model is fitted to one part and scored on another.

    Attributes:
        n_rows: how many units there are to hold out.
        clusters: a label for each unit; units of one label depend on each other.
        entries: observed numbers of each unit.
        dimension: columns that count.
        support, feature_names, notes: for the `Comparison`.
        index: the labels of the rows, where the user's frame has such.
        columns: what the columns of a table of several kinds are.
        times: when the steps of each series were, where a frame says it.
    """

    index: Any = None
    columns: Schema | None = None
    times: list[np.ndarray] | None = None
    # the fold whose models are drawn
    shown_fold: ClassVar[int] = 0
    _units_are_rows: ClassVar[bool] = True

    n_rows: int
    clusters: np.ndarray
    entries: np.ndarray
    dimension: int
    support: Support
    feature_names: list[str]
    notes: list[str]

    @abc.abstractmethod
    def admit(self, estimator: Any) -> Any:
        """The estimator as it is to be fitted; a ValueError says why it cannot be compared."""

    @abc.abstractmethod
    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        """Fits the units `train`."""

    @abc.abstractmethod
    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        """Fits all data, as the user passed them."""

    @abc.abstractmethod
    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        """The evidence of the units `test`."""

    @abc.abstractmethod
    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        """Draws, hidden parts and ranks, as `FoldResult` has them; `evidence` is that of `test`."""

    @abc.abstractmethod
    def examples(self, rows: np.ndarray) -> Any:
        """Some of the data."""

    @contextlib.contextmanager
    def cells(self, units: np.ndarray) -> Iterator[None]:
        """Names cells of some of the units as the user does, who passed all of them."""
        try:
            yield
        except CellError as error:
            if error.position is None or not self._units_are_rows:
                raise error.named(self.feature_names) from None
            raise error.placed(int(units[error.position]), self, names=self.feature_names) from None

    def identity(self) -> str:
        """Names the data."""
        return str(joblib.hash(vars(self)))

    @abc.abstractmethod
    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        """`units` in two parts, the second of the given size."""

    @abc.abstractmethod
    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        """Pairs of units to fit `models` to and units to score."""


def _shuffled_apart(units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
    kind = ShuffleSplit if groups is None else GroupShuffleSplit
    split = kind(1, test_size=size, random_state=seed).split(np.empty(len(units)), groups=groups)
    rest, other = next(split)
    return units[np.sort(rest)], units[np.sort(other)]


def _shuffled_splits(
    units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, targets: Any = None
) -> list[Pair]:
    if isinstance(cv, int):
        options: Any = {"n_splits": cv, "shuffle": True, "random_state": seed}
        cv = KFold(**options) if groups is None else GroupKFold(**options)
    splitter: Any = check_cv(cv)
    pairs = splitter.split(np.empty(len(units)), targets, groups)
    return [(units[train], units[test]) for train, test in pairs]


def _index_of(X: Any) -> np.ndarray | None:
    """The labels of the rows of a frame; None where they are but positions."""
    index = getattr(X, "index", None)
    if index is None or callable(index) or np.array_equal(index, np.arange(len(X))):
        return None
    return np.asarray(index)


def _name(names: list[str], columns: np.ndarray) -> str:
    """The names of some columns in a sentence."""
    chosen = [repr(names[i]) for i in np.flatnonzero(columns)]
    if len(chosen) > 6:
        chosen = [*chosen[:5], f"{len(chosen) - 5} more"]
    listed = chosen[0] if len(chosen) == 1 else f"{', '.join(chosen[:-1])} and {chosen[-1]}"
    return f"{'Column' if len(chosen) == 1 else 'Columns'} {listed}"


def _constant_note(names: list[str], support: Support) -> list[str]:
    if not support.constant.any():
        return []
    verb = "is constant and" if support.constant.sum() == 1 else "are constant and"
    return [f"{_name(names, support.constant)} {verb} left out for every model."]


def _schema_notes(names: list[str], schema: Schema, labels: np.ndarray) -> list[str]:
    """What a reader should know of columns that are left out, and of labels."""
    notes = []
    for kinds, what in (
        ((Column.CONSTANT,), "constant"),
        ((Column.IDENTIFIER, Column.TEXT), "taken for identifiers or text"),
    ):
        chosen = np.array([field.kind in kinds for field in schema.fields])
        if chosen.any():
            verb = "is" if chosen.sum() == 1 else "are"
            everything = [str(name) for name in schema.names]
            notes.append(f"{_name(everything, chosen)} {verb} {what} and left out for every model.")
    if labels.any():
        verb = "hold" if labels.sum() > 1 else "holds"
        notes.append(
            f"{_name(names, labels)} {verb} labels. Models of continuous columns take their codes for "
            "whole numbers, of which the order means nothing."
        )
    return notes


def _cell_notes(
    names: list[str], support: Support, X: np.ndarray, labels: np.ndarray | None = None
) -> list[str]:
    """What a reader should know of columns whose values occur again and again."""
    notes = []
    whole = support.integer if labels is None else support.integer & ~labels
    if whole.any():
        verb = "hold" if whole.sum() > 1 else "holds"
        notes.append(f"{_name(names, whole)} {verb} whole numbers.")
    if support.rounded.any():
        several = support.rounded.sum() > 1
        steps = sorted({f"{step:.3g}" for step in np.array(support.steps)[support.rounded]}, key=float)
        shown = ", ".join(steps) if len(steps) <= 3 else f"{steps[0]} to {steps[-1]}"
        notes.append(
            f"{_name(names, support.rounded)} {'are' if several else 'is'} rounded (to steps of {shown})."
        )
    if support.cells.any():
        notes.append(
            "Bits are of the probability mass of such values; models of continuous columns are fitted to "
            "them with uniform noise. A continuous support gives densities instead."
        )
    tied = np.zeros(len(support), bool)
    for column in np.flatnonzero(support.continuous):
        seen = X[:, column][~np.isnan(X[:, column])]
        tied[column] = np.unique(seen, return_counts=True)[1].max() > _TIED * len(seen)
    if tied.any():
        notes.append(
            f"{_name(names, tied)}: one value is more than {_TIED:.0%} of all, but there is no grid of "
            "values. Densities can be made higher there the narrower a model may get; do not trust them."
        )
    return notes


def _checked_support(support: Any, X: np.ndarray) -> Support:
    """The support that was declared, or that of `X`; refused if no column varies."""
    support = Support.recognise(X) if support is None else support
    if not isinstance(support, Support) or len(support) != X.shape[1]:
        raise ValueError(
            f"The 'support' parameter of compare must be a Support of {X.shape[1]} columns or None. "
            f"Got {support!r} instead."
        )
    if support.constant.all():
        raise ValueError("Every column of X is constant: there is nothing to compare models on.")
    return support


def _mass_columns(estimator: Any, support: Support, schema: Schema | None = None) -> np.ndarray:
    """The columns to which the estimator gives a probability mass, none of which may be continuous."""
    roles = estimator.column_roles(len(support)) if schema is None else estimator.roles_for(schema)
    name, mass = type(estimator).__name__, roles.mass
    if len(mass) == len(support):
        if (mass & support.continuous).any():
            raise ValueError(
                f"{name} gives a probability mass to columns that are continuous, which has no common unit "
                "with the densities of the other models."
            )
        if (mass & support.rounded).any():
            raise ValueError(
                f"{name} gives a probability mass to whole numbers, but some columns are rounded to "
                "others. Rescale them to whole numbers to compare it."
            )
    return mass


def _admitted_density(
    estimator: Any, support: Support, X: np.ndarray, schema: Schema | None = None
) -> ScoresRows:
    """The estimator with a probability mass where columns are whole, and without constant columns."""
    name = type(estimator).__name__
    if isinstance(estimator, Dequantised):
        if estimator.support is None:
            options: Any = estimator.get_params(deep=False) | {"support": support}
            return Dequantised(**options)
        if estimator.support != support:
            raise ValueError(f"The 'support' of {name} is not that of the comparison.")
        return estimator
    kept = X[:, ~support.constant]
    if not np.array_equal(estimator.as_modelled(kept), kept, equal_nan=True):
        raise ValueError(
            f"{name} turns X into zeros and ones, of which the evidence is not that of X. "
            "Pass X as zeros and ones to compare it."
        )
    mass = _mass_columns(estimator, support, schema)
    if (support.cells & ~mass).any() or support.constant.any():
        return Dequantised(estimator, support)
    return estimator


def _needs_kinds(model: Any) -> bool:
    inner = model.estimator if isinstance(model, Dequantised) else model
    return isinstance(inner, AbstractRowEstimator) and inner.needs_kinds


def _schema_of(X: Any, support: Any, models: Any) -> tuple[Schema, np.ndarray] | None:
    """What the columns hold, and their numbers; None for numbers of which models need to know no more."""
    if isinstance(support, Schema):
        return support, support.encode(X)
    if isinstance(X, CodedRows):
        return X.schema, X.x
    library = table_library(X)
    if support is not None or library is None:
        return None
    wanted = any(map(_needs_kinds, models))
    return recognised(X, library=library) if not library.plain(X) or wanted else None


class Table(AbstractProblem):
    """Rows of columns of numbers and labels, of which models give the density."""

    def __init__(
        self, X: Any, support: Support | Schema | None, groups: np.ndarray | None, models: Any = ()
    ) -> None:
        found, self.index = _schema_of(X, support, models), _index_of(X)
        self.schema: Schema | None = None
        # what the winner is fitted with
        self.declared = support if isinstance(support, Schema) else None
        if found is None:
            names = _get_feature_names(X)
            self.X = check_rows(Compare(), X, reset=True)
            self.feature_names = _named(names, self.X.shape[1])
            check_observed(self.X, names)
            self.support = _checked_support(support, self.X)
            self.notes = _constant_note(self.feature_names, self.support)
            self.notes += _cell_notes(self.feature_names, self.support, self.X)
        else:
            whole, self.X = found
            if not whole.modelled:
                raise ValueError(f"X has no column that models could be compared on:\n{whole}")
            self.columns, self.schema, self.support = whole, whole.coded(), whole.support
            fields = whole.modelled
            names = [field.name if isinstance(field.name, str) else f"x{field.name}" for field in fields]
            self.feature_names = names
            check_observed(self.X, names)
            labels = np.array([not field.numeric for field in fields])
            self.notes = _schema_notes(names, whole, labels)
            self.notes += _cell_notes(names, self.support, self.X, labels)
        self.n_rows = len(self.X)
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.sum(~np.isnan(self.X[:, ~self.support.constant]), axis=1)
        self.dimension = int(np.sum(~self.support.constant))

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if is_classifier(estimator):
            raise ValueError(f"{name} gives the probability of labels: pass them as y.")
        if isinstance(estimator, ScoresRows):
            return _admitted_density(estimator, self.support, self.X, self.schema)
        if not isinstance(estimator, DensityMixin):
            raise ValueError(f"{name} is no density: it gives no probability of X.")
        if isinstance(estimator, Scores):
            _mass_columns(estimator, self.support)
        elif not self.support.continuous.all():
            raise ValueError(f"{name} can be compared on continuous columns that vary only.")
        return estimator

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        rows = self.X[train]
        known = self.schema is not None and isinstance(estimator, AbstractRowEstimator)
        return estimator.fit(CodedRows(rows, self.schema) if known and self.schema else rows)

    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        return estimator.fit(X if self.declared is None else self.declared.rows(X))

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        return _evidence(estimator, self.X[test])

    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        if not (isinstance(estimator, Samples) and isinstance(estimator, Scores)):
            return {}
        rng = np.random.default_rng(seed)
        draws = estimator.sample(_DRAWS, random_state=seed)
        chosen = test if len(test) <= _LATENT_ROWS else np.sort(rng.choice(test, _LATENT_ROWS, False))
        found: dict[str, Any] = {"samples": draws, "parts": _pictures.parts(estimator, self.X)}
        whole = chosen[_whole(self.X[chosen])]
        if len(whole):
            own, reference = estimator.score_samples(self.X[whole]), estimator.score_samples(draws)
            if np.isfinite(own).all() and np.isfinite(reference).all():
                found |= {"pit": pit_ranks(own, reference, seed=seed), "pit_draws": _DRAWS}
        found["unlikely"] = self._unlikely(estimator, test, evidence)
        latent = _pictures.latent(estimator, self.X[chosen])
        return found if latent is None else found | {"latent": latent, "latent_rows": chosen}

    def _unlikely(self, estimator: Any, test: np.ndarray, evidence: Evidence) -> dict[str, np.ndarray]:
        """The least probable rows and which of their cells make them so, where that is soon known."""
        most = {Kind.EXACT: _EXACT_CELLS, Kind.LOWER: _BOUND_CELLS}.get(evidence.kind, 0)
        if not isinstance(estimator, AbstractDensity) or self.X.shape[1] > most:
            return {}
        least = np.argsort(evidence.nats, kind="stable")[:_UNLIKELY]
        values = self.X[test[least]]
        return {
            "rows": test[least],
            "nats": evidence.nats[least],
            "values": values,
            "surprise": np.asarray(estimator.surprise(values), float),
        }

    def examples(self, rows: np.ndarray) -> Any:
        return self.X[rows]

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        return _shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        return _shuffled_splits(units, cv, groups, seed)


def _named(names: Any, columns: int) -> list[str]:
    return [f"x{i}" for i in range(columns)] if names is None else [str(name) for name in names]


def _evidence(estimator: Any, X: np.ndarray) -> Evidence:
    if isinstance(estimator, Scores):
        return estimator.evidence(X)
    nats = np.asarray(estimator.score_samples(X), float)
    return Evidence(nats, np.zeros_like(nats), Kind.EXACT)


def _whole(X: np.ndarray) -> np.ndarray:
    """Which rows have nothing missing."""
    return np.asarray(~np.isnan(X).any(axis=1))


def _evenly(values: np.ndarray, most: int) -> np.ndarray:
    return values if len(values) <= most else values[np.linspace(0, len(values) - 1, most).astype(int)]


def evidence_of_labels(estimator: Any, X: Any, y: np.ndarray) -> Evidence:
    """log p(y | x) of each row under a fitted classifier.

    >>> from freeenergy import DiscriminantAnalysis
    >>> model = DiscriminantAnalysis().fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    >>> evidence_of_labels(model, np.array([[2.5]]), np.array([1])).nats.round(6).tolist()
    [-0.693147]
    """
    # a label that no row of the fit had is impossible
    known = np.isin(y, estimator.classes_)
    nats, stderr, kind = np.full(len(y), -np.inf), np.zeros(len(y)), Kind.EXACT
    if not known.any():
        return Evidence(nats, stderr, kind)
    chosen = np.flatnonzero(known)
    X, y = X[chosen] if isinstance(X, CodedRows) else _safe_indexing(X, chosen), y[known]
    if isinstance(estimator, ScoresLabels):
        found = estimator.evidence_of_labels(X, y)
        nats[known], stderr[known], kind = found.nats, found.stderr, found.kind
    else:
        place = np.searchsorted(estimator.classes_, y)
        # probabilities below the least float have a logarithm where the model gives it itself
        logs = getattr(estimator, "predict_log_proba", None) or (
            lambda X: np.log(estimator.predict_proba(X))
        )
        with np.errstate(divide="ignore"):
            nats[known] = logs(X)[np.arange(len(y)), place]
    return Evidence(nats, stderr, kind)


class Labelled(AbstractProblem):
    """Rows with labels, of which models give the probability given the row."""

    def __init__(self, X: Any, y: Any, groups: np.ndarray | None, models: Any = ()) -> None:
        found = _schema_of(X, None, models)
        # labels that a fold has not are labels all the same
        self.coded = None if found is None else CodedRows(found[1], found[0].coded())
        self.X = X if isinstance(X, np.ndarray) or _get_feature_names(X) is not None else np.asarray(X)
        self.y, self.index = column_or_1d(y), _index_of(X)
        check_classification_targets(self.y)
        check_consistent_length(self.X, self.y)
        self.feature_names = _named(_get_feature_names(X), np.shape(self.X)[1])
        if found is not None:
            self.columns = found[0]
            self.feature_names = [str(field.name) for field in found[0].modelled]
        self.support = Support(["continuous"] * len(self.feature_names))
        self.notes = [f"Bits are of the label, one of {len(np.unique(self.y))}, given the row."]
        self.n_rows = len(self.y)
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.ones(self.n_rows)
        self.dimension = 1

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if not is_classifier(estimator):
            raise ValueError(f"{name} gives no probability of y given X.")
        if getattr(estimator, "predict_proba", None) is None:
            raise ValueError(f"{name} has no predict_proba.")
        return estimator

    def _rows(self, estimator: Any, rows: np.ndarray) -> Any:
        if self.coded is not None and isinstance(estimator, AbstractRowEstimator):
            return self.coded[rows]
        return _safe_indexing(self.X, rows)

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        return estimator.fit(self._rows(estimator, train), self.y[train])

    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        return estimator.fit(X, y)

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        return evidence_of_labels(estimator, self._rows(estimator, test), self.y[test])

    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        return {}

    def examples(self, rows: np.ndarray) -> Any:
        if self.coded is not None:
            return self.coded.x[rows]
        try:
            return np.asarray(_safe_indexing(self.X, rows), float)
        except ValueError:
            return np.empty((0, np.shape(self.X)[1]))

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        return _shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        return _shuffled_splits(units, cv, groups, seed, self.y[units])


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

    def _describe(
        self,
        series: list[np.ndarray],
        inputs: list[np.ndarray] | None,
        support: Support | None,
        models: Any,
        names: list[str],
        told: list[str],
    ) -> None:
        self.inputs = inputs
        rows = np.concatenate(series)
        check_observed(rows, names)
        found = _checked_support(support, rows)
        # models of series know whole numbers, but no other grid
        found = found.without_grids() if support is None else found
        self.notes = [*told, *_constant_note(names, found)]
        self.whole = not found.constant.any()
        if not self.whole:
            self.notes.append("The best estimator, too, takes series without them.")
        kept = ~found.constant
        self.series = [x[:, kept] for x in series]
        self.feature_names = [name for name, keep in zip(names, kept, strict=True) if keep]
        self.support = found.part(kept)
        self.dimension = int(kept.sum())
        densities: list[Any] = [m for m in models if isinstance(m, (ScoresRows, ScoresSteps))]
        mass = [m.column_roles(self.dimension).mass for m in densities]
        if support is None and self.support.integer.any() and not np.any(mass):
            self.support = Support(["continuous"] * self.dimension)
            self.notes.append(
                f"{_name(self.feature_names, found.integer[kept])}: the whole numbers are taken as "
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

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if isinstance(estimator, ScoresRows):
            return _admitted_density(estimator, self.support, np.concatenate(self.series))
        steps: Any = estimator if isinstance(estimator, ScoresSteps) else None
        if steps is None:
            raise ValueError(f"{name} is no density of series or rows: it gives no probability of X.")
        apart = (steps.column_roles(self.dimension).mass != self.support.integer).any()
        if apart and not self._cells(steps):
            raise ValueError(
                f"{name} gives a density where other models give whole numbers a probability mass, or "
                "the reverse; the two have no common unit."
            )
        if steps.needs_kinds:
            raise ValueError(
                f"{name} by column gives a mass or a density as the kinds of columns say, which compare "
                "knows of tables alone."
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
        real = not steps.column_roles(self.dimension).mass.any()
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
            return estimator.fit(np.concatenate(self.series))
        if not self.whole:
            return estimator.fit(self.series, **self._given(estimator, list))
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
        chosen = _evenly(np.array(places), _ORIGINS)
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
        size = min(max(math.ceil(_DRAWS * len(held) / most), _PATHS), _MOST_SERIES)
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
        found: dict[str, Any] = {"samples": draws[:_PATHS]}
        nats = np.split(nats, np.cumsum([*map(len, series), *[length] * size])[:-1])
        own = np.concatenate([n[at][_whole(x[at])] for n, (x, at) in zip(nats, held)])
        # steps at the same places of the draws: what is known of a step grows along a series
        drawn = np.concatenate([n[steps[i % len(held)]] for i, n in enumerate(nats[len(held) :])])
        own, drawn = _evenly(own, _RANKED), _evenly(drawn, _RANKED)
        if len(own) and np.isfinite(own).all() and np.isfinite(drawn).all():
            found |= {"pit": pit_ranks(own, drawn, seed=seed), "pit_draws": len(drawn)}
        states = _pictures.states(estimator, series[0]) if known is None else {}
        if states:
            states["series"] = series[0]
            times = self._times(test)
            if times is not None and times.dtype.kind == "M":
                states["times"] = times.astype(np.int64)
            found["parts"] = {name: v[-_SHOWN:] for name, v in states.items()}
        return found

    def examples(self, rows: np.ndarray) -> Any:
        return self.series[:_PATHS]


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
    ) -> None:
        self._describe(series, inputs, support, models, names, told)
        self.n_rows, self.most_needed = len(series), math.inf
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.array([np.sum(~np.isnan(x)) for x in self.series])

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        chosen = [self.series[i] for i in train]
        if isinstance(estimator, ScoresRows):
            return estimator.fit(np.concatenate(chosen))
        return estimator.fit(chosen, **self._given(estimator, lambda inputs: self._beside(train, inputs)))

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
        return _shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        # series are often fewer than folds
        most = len(np.unique(units if groups is None else groups))
        return _shuffled_splits(units, min(cv, most) if isinstance(cv, int) else cv, groups, seed)


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
    ) -> None:
        self._describe([series], inputs, support, models, names, told)
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
        return estimator.fit(
            self.series[0][train], **self._given(estimator, lambda inputs: inputs[0][train])
        )

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


def _takes_inputs(estimator: Any) -> bool:
    return isinstance(estimator, AbstractSequenceDensity) and estimator.takes_inputs


def _stacked(inputs: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack(parts) for name, parts in inputs.items()}


class Compare(BaseEstimator):
    """Names `compare` in the sentences of scikit-learn about wrong data."""

    needs_kinds = False


def problem_of(models: dict[str, Any], X: Any, y: Any, support: Any, groups: Any) -> AbstractProblem:
    """What kind of data this is, which the models decide."""
    if any(isinstance(model, ScoresSteps) for model in models.values()):
        series, container = check_series(Compare(), X, reset=True)
        names, told = _named(container.names, series[0].shape[1]), container.notes
        inputs = None
        if isinstance(X, SeriesFrame) and X.inputs:
            lengths = [len(x) for x in series]
            inputs = check_inputs(Compare(), X.beside(), lengths, None, beside=container)
        if len(series) == 1 and groups is not None:
            raise ValueError("The 'groups' parameter of compare needs several series. Got one instead.")
        found: AbstractSeries
        if len(series) > 1:
            found = SeveralSeries(series, inputs, support, groups, models.values(), names, told)
        else:
            found = OneSeries(series[0], inputs, support, models.values(), names, told)
        found.times = container.grid.times if isinstance(container, Framed) else None
        return found
    if y is not None and any(is_classifier(model) for model in models.values()):
        return Labelled(X, y, groups, models.values())
    return Table(X, support, groups, models.values())
