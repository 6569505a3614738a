"""Evidence and missing entries by importance sampling, for every model with an energy and a recognition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from .._core import Evidence, Kind, map_rows
from ..inference import AbstractRecognition, ImportanceEstimate, importance_estimate, importance_log_weights
from ._networks import seeded

_SAMPLES_AT_ONCE = 32_000
_NUMBERS_AT_ONCE = 4_000_000


def rows_at_once(samples: int, width: int = 1) -> int:
    """Many samples of few rows, or few of many: memory stays the same, also for rows of great `width`."""
    return max(min(_SAMPLES_AT_ONCE // samples, _NUMBERS_AT_ONCE // (samples * width)), 1)


def importance_evidence(
    energy: Callable[[Any, Any], Array],
    recognition: AbstractRecognition,
    row: Any,
    samples: int,
    seed: Array,
    row_seed: Array,
) -> ImportanceEstimate:
    """The log of the mean weight of `samples` draws, with how well it is known."""
    weights = importance_log_weights(energy, recognition, row, samples=samples, key=seeded(seed, row_seed))
    return importance_estimate(weights)


def complete_mean(pair: tuple[Any, Array], model: Any, samples: int, seed: Array) -> Array:
    """A row with the means of what is missing, by `samples` draws."""
    row, row_seed = pair
    return model.complete_mean(row, samples=samples, key=seeded(seed, row_seed))


def complete_sample(pair: tuple[Any, Array], model: Any, samples: int) -> Array:
    """A row with draws of what is missing, each one of `samples`."""
    row, key = pair
    return model.complete_sample(row, samples=samples, key=jax.random.wrap_key_data(key))


def _importance(pair: tuple[Array, Array], model: Any, samples: int, seed: Array) -> ImportanceEstimate:
    return importance_evidence(model.energy, model.recognition, pair[0], samples, seed, pair[1])


def importance_bound(
    z: np.ndarray, seeds: np.ndarray, model: Any, samples: int, seed: np.ndarray
) -> Evidence:
    """A lower bound on log p of each row, on average: the log of a mean of `samples` weights."""
    found = map_rows(_importance, (z, seeds), model, samples, seed, block=rows_at_once(samples))
    # nothing observed: the bound is exact
    return bound_of(found, np.asarray(~np.isnan(z).all(axis=1)))


def bound_of(estimate: ImportanceEstimate, known: np.ndarray) -> Evidence:
    """The lower bounds that importance samples give, zero and exact for rows of which nothing is known."""
    growth = np.where(known[:, None], estimate.growth, 0.0)
    return Evidence(
        np.where(known, estimate.log_mean, 0.0),
        # a row that is impossible under every draw is certainly so
        np.where(known & np.isfinite(estimate.log_mean), estimate.stderr, 0.0),
        Kind.LOWER,
        growth=growth if np.isfinite(growth).all() else None,
    )
