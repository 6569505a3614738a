"""Contracts: what estimators promise, as checks that anybody can run.

`check_generative_estimator` (densities of rows), `check_sequence_estimator` (of series) and
`check_conditional_estimator` (of numbers given rows) fit clones of an estimator to small data and raise an
AssertionError that says which promise is broken.  Each is put together from the contracts of what the
estimator can do: `check_scores`, `check_samples`, `check_completes`, `check_transforms`, `check_predicts`,
`check_predictions_of_frames`, `check_laws` and, for series, `check_forecasts`.  An estimator that samples
and does not score keeps the contract of sampling alone.
"""

from ._conditional import check_conditional_estimator, check_laws
from ._framed import check_predictions_of_frames
from ._generative import (
    check_completes,
    check_evidence,
    check_files,
    check_forecasts,
    check_frames,
    check_generative_estimator,
    check_predicts,
    check_repeatable,
    check_rows_independent,
    check_samples,
    check_scores,
    check_sequence_estimator,
    check_transforms,
    check_units,
    check_weights,
)

__all__ = [
    "check_completes",
    "check_conditional_estimator",
    "check_evidence",
    "check_files",
    "check_forecasts",
    "check_frames",
    "check_generative_estimator",
    "check_laws",
    "check_predictions_of_frames",
    "check_predicts",
    "check_repeatable",
    "check_rows_independent",
    "check_samples",
    "check_scores",
    "check_sequence_estimator",
    "check_transforms",
    "check_units",
    "check_weights",
]
