"""What all estimators share: what goes in, what they can do, files.  No model is in it.

An estimator of your own derives from `AbstractDensity` or `AbstractSequenceDensity`; with other
capabilities, from these and `AbstractRowEstimator` or `Shell`.  Everything that it needs is here.
"""

from ._anomalies import Outliers
from ._answers import rows_at_once
from ._base import Shell, best_of, final_objective
from ._capabilities import (
    ColumnRoles,
    Completes,
    Forecasts,
    Predicts,
    PredictsDensities,
    PredictsProbabilities,
    Samples,
    Scores,
    ScoresLabels,
    ScoresSteps,
    Shows,
    Transforms,
)
from ._chunks import Chunks
from ._density import (
    AbstractDensity,
    AbstractImplicit,
    AbstractRowEstimator,
    CompletesRows,
    SamplesRows,
    ScoresRows,
    TransformsRows,
)
from ._documents import Corpus, Documents
from ._field import Field
from ._forecast import (
    AbstractPredictive,
    ColumnLaws,
    Drawn,
    Forecast,
    ForecastsSeries,
    MassTables,
    NormalMixtures,
)
from ._framed import AnswerColumns, framed, framed_chances, framed_ends
from ._increments import LearnsInParts
from ._infer import infer, named_fields
from ._intake import (
    AbstractIntake,
    AnsweredTable,
    Arrays,
    LabelledInUnits,
    LabelledTable,
    Table,
    with_history,
)
from ._networks import adam, cast, split_rows
from ._rows import Rows, Scaling
from ._schema import CodedRows, Schema
from ._sequence import AbstractSequenceDensity
from ._series import Sequences, SeriesIntake
from ._series_frame import SeriesFrame, series
from ._summary import Coefficients, Summary
from ._support import Column, Support
from ._validation import check_count, check_instance, check_int, check_numbers, check_real

__all__ = [
    "AbstractDensity",
    "AbstractImplicit",
    "AbstractIntake",
    "AbstractPredictive",
    "AbstractRowEstimator",
    "AbstractSequenceDensity",
    "AnswerColumns",
    "AnsweredTable",
    "Arrays",
    "Chunks",
    "CodedRows",
    "Coefficients",
    "Column",
    "ColumnLaws",
    "ColumnRoles",
    "Completes",
    "CompletesRows",
    "Corpus",
    "Documents",
    "Drawn",
    "Field",
    "Forecast",
    "Forecasts",
    "ForecastsSeries",
    "LabelledInUnits",
    "LabelledTable",
    "LearnsInParts",
    "MassTables",
    "NormalMixtures",
    "Outliers",
    "Predicts",
    "PredictsDensities",
    "PredictsProbabilities",
    "Rows",
    "Samples",
    "SamplesRows",
    "Scaling",
    "Schema",
    "Scores",
    "ScoresLabels",
    "ScoresRows",
    "ScoresSteps",
    "Sequences",
    "SeriesFrame",
    "SeriesIntake",
    "Shell",
    "Shows",
    "Summary",
    "Support",
    "Table",
    "Transforms",
    "TransformsRows",
    "adam",
    "best_of",
    "cast",
    "check_count",
    "check_instance",
    "check_int",
    "check_numbers",
    "check_real",
    "final_objective",
    "framed",
    "framed_chances",
    "framed_ends",
    "infer",
    "named_fields",
    "rows_at_once",
    "series",
    "split_rows",
    "with_history",
]
