"""Rows of a table: densities are compared on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import DensityMixin, is_classifier
from sklearn.utils.validation import _get_feature_names

from ..._core import Evidence, Kind
from ...estimators import Support
from ...evaluation import pit_ranks
from ...models import AbstractExactModel
from ...shell import (
    AbstractDensity,
    AbstractRowEstimator,
    CodedRows,
    Samples,
    SamplesRows,
    Schema,
    Scores,
    ScoresRows,
)
from ...shell._anomalies import surprise_beside
from ...shell._validation import check_observed, check_rows
from .. import _draws, _pictures
from ._base import (
    DRAWS,
    AbstractProblem,
    Compare,
    Pair,
    complete,
    index_of,
    named,
    shuffled_apart,
    shuffled_splits,
)
from ._columns import (
    admitted_density,
    cell_notes,
    checked_support,
    constant_note,
    mass_columns,
    schema_notes,
    schema_of,
)

# rows whose hidden part is shown
_LATENT_ROWS = 1000
# the least probable rows that are shown, and the most columns whose cells are looked at one by one
_UNLIKELY, _EXACT_CELLS, _BOUND_CELLS = 6, 64, 16
# draws beside which they are looked at, of which bounds take long
_BESIDE = 32


class Table(AbstractProblem):
    """Rows of columns of numbers and labels, of which models give the density."""

    def __init__(
        self, X: Any, support: Support | Schema | None, groups: np.ndarray | None, models: Any = ()
    ) -> None:
        found, self.index = schema_of(X, support, models), index_of(X)
        self.schema: Schema | None = None
        # what the winner is fitted with
        self.declared = support if isinstance(support, Schema) else None
        if found is None:
            names = _get_feature_names(X)
            self.X = check_rows(Compare(), X, reset=True)
            self.feature_names = named(names, self.X.shape[1])
            check_observed(self.X, names)
            self.support = checked_support(support, self.X)
            self.notes = constant_note(self.feature_names, self.support)
            self.notes += cell_notes(self.feature_names, self.support, self.X)
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
            self.notes = schema_notes(names, whole, labels)
            self.notes += cell_notes(names, self.support, self.X, labels)
        self.n_rows = len(self.X)
        self.clusters = np.arange(self.n_rows) if groups is None else groups
        self.entries = np.sum(~np.isnan(self.X[:, ~self.support.constant]), axis=1)
        self.dimension = int(np.sum(~self.support.constant))
        self.ruler = _draws.Ruler(self.X, self.support, self.schema)

    def admit(self, estimator: Any) -> Any:
        name = type(estimator).__name__
        if is_classifier(estimator):
            raise ValueError(f"{name} gives the probability of labels: pass them as y.")
        if isinstance(estimator, ScoresRows):
            return admitted_density(estimator, self.support, self.X, self.schema)
        if isinstance(estimator, SamplesRows):
            return estimator
        if not isinstance(estimator, DensityMixin):
            raise ValueError(f"{name} is no density: it gives no probability of X.")
        if isinstance(estimator, Scores):
            mass_columns(estimator, self.support)
        elif not self.support.continuous.all():
            raise ValueError(f"{name} can be compared on continuous columns that vary only.")
        return estimator

    def fit(self, estimator: Any, train: np.ndarray) -> Any:
        rows = self.X[train]
        known = self.schema is not None and isinstance(estimator, AbstractRowEstimator)
        return estimator.fit(CodedRows(rows, self.schema) if known and self.schema else rows)

    def fit_all(self, estimator: Any, X: Any, y: Any) -> Any:
        return estimator.fit(X if self.declared is None else self.declared.rows(X))

    def scores(self, estimator: Any) -> bool:
        return isinstance(estimator, ScoresRows | DensityMixin)

    def evidence(self, estimator: Any, test: np.ndarray) -> Evidence:
        return _evidence(estimator, self.X[test])

    def drawn(
        self, estimator: Any, train: np.ndarray, test: np.ndarray, seed: int, draws: Any = None
    ) -> dict[str, np.ndarray]:
        if not isinstance(estimator, SamplesRows):
            return {}
        if draws is None:
            draws = estimator.sample(DRAWS, random_state=seed)
        return _draws.beside(self.ruler, self.X[train], self.X[test], draws)

    def beside_data(self, train: np.ndarray, test: np.ndarray) -> list[dict[str, np.ndarray]]:
        return _draws.beside_data(self.ruler, self.X[train], self.X[test])

    def pictures(self, estimator: Any, test: np.ndarray, seed: int, evidence: Evidence) -> dict[str, Any]:
        if not isinstance(estimator, Samples):
            return {}
        rng = np.random.default_rng(seed)
        draws = estimator.sample(DRAWS, random_state=seed)
        chosen = test if len(test) <= _LATENT_ROWS else np.sort(rng.choice(test, _LATENT_ROWS, False))
        found: dict[str, Any] = {"samples": draws, "parts": _pictures.parts(estimator, self.X)}
        whole = chosen[complete(self.X[chosen])]
        if len(whole) and isinstance(estimator, Scores):
            own, reference = estimator.score_samples(self.X[whole]), estimator.score_samples(draws)
            if np.isfinite(own).all() and np.isfinite(reference).all():
                found |= {"pit": pit_ranks(own, reference, seed=seed), "pit_draws": DRAWS}
        found["unlikely"] = self._unlikely(estimator, test, evidence, draws)
        latent = _pictures.latent(estimator, self.X[chosen])
        return found if latent is None else found | {"latent": latent, "latent_rows": chosen}

    def _unlikely(
        self, estimator: Any, test: np.ndarray, evidence: Evidence, draws: Any
    ) -> dict[str, np.ndarray]:
        """The least probable rows and which of their cells make them so, where that is soon known."""
        if not isinstance(estimator, AbstractDensity):
            return {}
        least = np.argsort(evidence.nats, kind="stable")[:_UNLIKELY]
        values = self.X[test[least]]
        if self.X.shape[1] > _BOUND_CELLS and not isinstance(estimator.model_, AbstractExactModel):
            # to find only that it takes long would take long
            return {}
        # what is exact of whole rows may be a bound, which takes long, of those with a hole
        hole = values[:1].copy()
        hole[0, np.argmin(np.isnan(hole[0]))] = np.nan
        kind = evidence.kind if evidence.kind is Kind.ESTIMATE else estimator.evidence(hole).kind
        if self.X.shape[1] > {Kind.EXACT: _EXACT_CELLS, Kind.LOWER: _BOUND_CELLS}.get(kind, 0):
            return {}
        return {
            "rows": test[least],
            "nats": evidence.nats[least],
            "values": values,
            "surprise": surprise_beside(estimator, values, draws[:_BESIDE]),
        }

    def examples(self, rows: np.ndarray) -> Any:
        return self.X[rows]

    def apart(self, units: np.ndarray, size: float | int, groups: np.ndarray | None, seed: int) -> Pair:
        return shuffled_apart(units, size, groups, seed)

    def splits(
        self, units: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int, models: list[Any]
    ) -> list[Pair]:
        return shuffled_splits(units, cv, groups, seed)


def _evidence(estimator: Any, X: np.ndarray) -> Evidence:
    if isinstance(estimator, Scores):
        return estimator.evidence(X)
    nats = np.asarray(estimator.score_samples(X), float)
    return Evidence(nats, np.zeros_like(nats), Kind.EXACT)
