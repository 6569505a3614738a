"""The core: parameters, numerics, records, rows and the one loop."""

from ._arrays import (
    Data,
    bucket,
    has_nan,
    in_blocks,
    map_data,
    map_padded,
    map_rows,
    on_all,
    on_one,
    row_hashes,
)
from ._checkpoints import Checkpoint
from ._compilation import count_compilations
from ._files import write_whole
from ._loop import AbstractAlgorithm, Info, Outcome, iterate
from ._numerics import (
    LOG_2PI,
    boltzmann,
    categorical_entropy,
    cholesky,
    log_det_cholesky,
    log_mean_exp,
    symmetrise,
)
from ._parameters import (
    Constraint,
    buffer,
    constrain,
    freeze,
    learnable,
    parameter,
    parameter_count,
    positive,
    positive_definite,
    real,
    simplex,
    unconstrain,
    unit_interval,
)
from ._progress import OBJECTIVES, AbstractProgress, progress_bar, silent
from ._random import uniform
from ._records import Evidence, Fit, Kind
from ._stream import Stream, streaming
from ._sums import sum_over_blocks

__all__ = [
    "LOG_2PI",
    "OBJECTIVES",
    "AbstractAlgorithm",
    "AbstractProgress",
    "Checkpoint",
    "Constraint",
    "Data",
    "Evidence",
    "Fit",
    "Info",
    "Kind",
    "Outcome",
    "Stream",
    "boltzmann",
    "bucket",
    "buffer",
    "categorical_entropy",
    "cholesky",
    "constrain",
    "count_compilations",
    "freeze",
    "has_nan",
    "in_blocks",
    "iterate",
    "learnable",
    "log_det_cholesky",
    "log_mean_exp",
    "map_data",
    "map_padded",
    "map_rows",
    "on_all",
    "on_one",
    "parameter",
    "parameter_count",
    "positive",
    "positive_definite",
    "progress_bar",
    "real",
    "row_hashes",
    "silent",
    "simplex",
    "streaming",
    "sum_over_blocks",
    "symmetrise",
    "unconstrain",
    "uniform",
    "unit_interval",
    "write_whole",
]
