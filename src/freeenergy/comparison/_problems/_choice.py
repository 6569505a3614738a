"""Which kind of data there is, which the models decide."""

from __future__ import annotations

from typing import Any

from sklearn.base import is_classifier, is_regressor

from ...shell import ScoresSteps
from ...shell._schema import kinds_of
from ...shell._series import check_inputs, check_series
from ...shell._series_frame import Framed, SeriesFrame
from ._answered import Answered
from ._base import AbstractProblem, Compare, named
from ._columns import needs_kinds
from ._labelled import Labelled
from ._series import AbstractSeries, OneSeries, SeveralSeries
from ._tables import Table


def problem_of(models: dict[str, Any], X: Any, y: Any, support: Any, groups: Any) -> AbstractProblem:
    """What kind of data this is, which the models decide."""
    if any(isinstance(model, ScoresSteps) for model in models.values()):
        owner = Compare(any(map(needs_kinds, models.values())))
        series, container = check_series(owner, X, reset=True)
        schema = kinds_of(owner)
        names, told = named(container.names, series[0].shape[1]), container.notes
        inputs = None
        if isinstance(X, SeriesFrame) and X.inputs:
            lengths = [len(x) for x in series]
            inputs = check_inputs(Compare(), X.beside(), lengths, None, beside=container)
        if len(series) == 1 and groups is not None:
            raise ValueError("The 'groups' parameter of compare needs several series. Got one instead.")
        found: AbstractSeries
        if len(series) > 1:
            found = SeveralSeries(series, inputs, support, groups, models.values(), names, told, schema)
        else:
            found = OneSeries(series[0], inputs, support, models.values(), names, told, schema)
        if isinstance(container, Framed):
            found.times, labels = container.grid.times, container.source.labels
            found.series_names = None if labels is None else [str(label) for label in labels]
        if inputs is not None:
            found.input_names = [str(name) for name in X.inputs or ()]
        return found
    if y is not None and any(is_classifier(model) for model in models.values()):
        return Labelled(X, y, groups, models.values())
    if y is not None and any(is_regressor(model) for model in models.values()):
        return Answered(X, y, groups, models.values(), support)
    return Table(X, support, groups, models.values())
