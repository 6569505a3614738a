"""Tables, labelled rows and series: how they are split, and how a model is scored on them."""

from ._base import AbstractProblem
from ._choice import problem_of
from ._labelled import Labelled, evidence_of_labels
from ._series import AbstractSeries, OneSeries, SeveralSeries
from ._tables import Table

__all__ = [
    "AbstractProblem",
    "AbstractSeries",
    "Labelled",
    "OneSeries",
    "SeveralSeries",
    "Table",
    "evidence_of_labels",
    "problem_of",
]
