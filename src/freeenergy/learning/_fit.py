"""`fit`: the one way to learn a model from data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from jax import Array

from .._core import (
    AbstractAlgorithm,
    AbstractProgress,
    AbstractSource,
    Checkpoint,
    Data,
    Fit,
    iterate,
    on_all,
    on_one,
    silent,
)

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
        data: an array with a row per observation (or a tree of such arrays), or a source of rows such as
            `Data` or `Simulator`.
        key: seeds whatever is random.
        weight: a non-negative number per row.
        validation: rows held out for early stopping, as `data`.
        max_iter: the most iterations (EM steps, epochs) to do.
        progress: makes the display; `freeenergy.progress_bar("label")` is a bar.
        checkpoint: keeps the state in a file, so that a killed fit goes on where it was.

    Returns:
        The fitted model with its history.
    """
    if isinstance(data, AbstractSource) and weight is not None:
        raise ValueError("The 'weight' of fit must be None for Data, which has its own. Got both.")
    if validation is not None and not learner.validates:
        raise ValueError(
            "The 'validation' rows of fit are for early stopping by Gradient. "
            f"Got the learner {type(learner).__name__} instead."
        )
    source = data if isinstance(data, AbstractSource) else Data.of(data, weight)
    check_source(learner, type(source))
    rows = source.placed(learner.needs)
    # what an earlier fit brought to one device is given to all
    model = on_all(rows.devices, model)
    if validation is not None:
        rows = (rows, validation if isinstance(validation, Data) else Data.of(validation))
    result = iterate(
        learner, model, rows, key=key, max_iter=max_iter, progress=progress, checkpoint=checkpoint
    )
    # what was learned on several devices is brought to one
    return dataclasses.replace(result, model=on_one(result.model))


def check_source(learner: AbstractAlgorithm, source: type[AbstractSource]) -> None:
    """Refuses a learner that cannot read its rows from such a source."""
    if not issubclass(source, learner.needs):
        raise ValueError(
            f"The learner {type(learner).__name__} needs {learner.needs.words}. Got {source.words} instead."
        )
