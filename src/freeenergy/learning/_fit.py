"""`fit`: the one way to learn a model from data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jax import Array

from .._core import (
    AbstractAlgorithm,
    AbstractProgress,
    Checkpoint,
    Data,
    Fit,
    Stream,
    iterate,
    on_all,
    on_one,
    silent,
)
from ._em import EM, AllRows, ClosedForm
from ._gradient import Gradient
from ._relative import RelativeNewton

Model = TypeVar("Model")


def fit(
    model: Model,
    learner: AbstractAlgorithm,
    data: Any,
    *,
    key: Array,
    weight: Any = None,
    validation: Any = None,
    max_iter: int = 100,
    progress: Callable[[int], AbstractProgress] = silent,
    checkpoint: Checkpoint | None = None,
) -> Fit[Model]:
    """Learns `model` from `data` with `learner`.

    Args:
        model: the model to start from; it is not changed.
        learner: `EM(…)`, `Gradient(…)`, `ClosedForm()` or any `AbstractAlgorithm`.
        data: an array with a row per observation (or a tree of such arrays, or `Data`, or a `Stream`).
        key: seeds whatever is random.
        weight: a non-negative number per row.
        validation: rows held out for early stopping, as `data`.
        max_iter: the most iterations (EM steps, epochs) to do.
        progress: makes the display; `freeenergy.progress_bar("label")` is a bar.
        checkpoint: keeps the state in a file, so that a killed fit goes on where it was.

    Returns:
        The fitted model with its history.
    """
    if isinstance(data, Data | Stream) and weight is not None:
        raise ValueError("The 'weight' of fit must be None for Data, which has its own. Got both.")
    if isinstance(data, Stream):
        check_sums_rows(learner)
    if validation is not None and not isinstance(learner, Gradient):
        raise ValueError(
            "The 'validation' rows of fit are for early stopping by Gradient. "
            f"Got the learner {type(learner).__name__} instead."
        )
    rows = data if isinstance(data, Data | Stream) else Data.of(data, weight)
    if _sums_rows(learner):
        rows = rows.spread() if isinstance(rows, Data) else rows
        # what an earlier fit brought to one device is given to all
        model = on_all(rows.mesh, model)
    if validation is not None:
        held = validation if isinstance(validation, Data) else Data.of(validation)
        rows = (rows, held)
    outcome = iterate(
        learner, model, rows, key=key, max_iter=max_iter, progress=progress, checkpoint=checkpoint
    )
    # what was learned on several devices is brought to one
    return Fit(
        on_one(learner.model(outcome.state)),
        outcome.history,
        outcome.n_iter,
        outcome.converged,
        outcome.reason,
        outcome.interrupted,
        outcome.state,
    )


def _sums_rows(learner: AbstractAlgorithm) -> bool:
    """Whether all that the learner does with rows is to sum over them."""
    return isinstance(learner, ClosedForm | RelativeNewton) or (
        isinstance(learner, EM) and isinstance(learner.sweep, AllRows)
    )


def check_sums_rows(learner: AbstractAlgorithm) -> None:
    """Refuses a learner that needs its rows in memory."""
    if not _sums_rows(learner):
        raise ValueError(
            "Rows that are read in chunks are learned by learners that sum over all of them, such as EM(). "
            f"Got the learner {type(learner).__name__} instead."
        )
