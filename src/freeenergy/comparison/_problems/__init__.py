"""Tables, rows with something to be told, and series: how they are split, and how models are scored."""

from ._answered import Answered
from ._base import AbstractProblem
from ._choice import problem_of
from ._given import AbstractGiven
from ._labelled import Labelled, evidence_of_labels
from ._series import AbstractSeries, OneSeries, SeveralSeries
from ._tables import Table

__all__ = [
    "AbstractGiven",
    "AbstractProblem",
    "AbstractSeries",
    "Answered",
    "Labelled",
    "OneSeries",
    "SeveralSeries",
    "Table",
    "evidence_of_labels",
    "problem_of",
]
