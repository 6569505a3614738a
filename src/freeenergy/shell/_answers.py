"""What models answer of rows: their methods for one event, mapped over many.

`AbstractExactModel`s are asked for log p and for conditional means and draws; other models for what
importance samples say of them (`AbstractBoundedModel`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from .._core import Data, Evidence, Kind, map_data, map_rows, split_key_data
from ..inference import ImportanceEstimate
from ..models import AbstractBoundedModel, AbstractExactModel

# rescaled numbers below this have products that do not overflow, whatever they are multiplied with
_FAR = 1e100
_SAMPLES_AT_ONCE = 32_000
_NUMBERS_AT_ONCE = 4_000_000
# incomplete rows have a covariance each
_INCOMPLETE_AT_ONCE = 256
# how many conditional draws share importance samples, and how many of these there are for each
_GROUPS, _SAMPLES_A_DRAW = (8, 64, 256), 8
# networks say much of a row
_COMPLETE_AT_ONCE = 1024


def log_prob_of(row: Any, model: Any) -> Array:
    """log p of a row with or without NaN."""
    return model.log_prob(row)


def log_prob_complete_of(row: Any, model: Any) -> Array:
    """log p of a row without NaN."""
    return model.log_prob_complete(row)


def _ask(row: Any, model: Any, method: Callable[..., Any], options: dict[str, Any]) -> Any:
    return method(model, row, **options)


def _ask_seeded(
    pair: tuple[Any, Array], model: Any, method: Callable[..., Any], options: dict[str, Any], seed: Array
) -> Any:
    return method(model, pair[0], key=seeded(seed, pair[1]), **options)


def _ask_keyed(
    pair: tuple[Any, Array], model: Any, method: Callable[..., Any], options: dict[str, Any]
) -> Any:
    return method(model, pair[0], key=jax.random.wrap_key_data(pair[1]), **options)


def _draw(key: Array, model: Any, method: Callable[..., Any], options: dict[str, Any]) -> Any:
    return method(model, key=jax.random.wrap_key_data(key), **options)


def answers(model: Any, method: Callable[..., Any], rows: Any, *, block: int = 4096, **options: Any) -> Any:
    """`method(model, row, **options)` for each row, such as `LinearGaussian.encode`.

    Methods are found on the class of a model (`type(model).encode`), so that models of one class share
    programs.  `block` says how many rows are done together.

    >>> from freeenergy.models import Clusters
    >>> answers(Clusters(jax.numpy.array([[0.0], [4.0]])), Clusters.energies, np.array([[1.0]])).tolist()
    [[1.0, 9.0]]
    """
    return map_rows(_ask, rows, model, method, options, block=block)


def answers_of_data(
    model: Any, method: Callable[..., Any], data: Data, *, block: int, **options: Any
) -> Any:
    """`answers` for rows that are in place."""
    return map_data(_ask, data, model, method, options, block=block)


def seeded_answers(
    model: Any,
    method: Callable[..., Any],
    rows: Any,
    seeds: np.ndarray,
    seed: Any,
    *,
    block: int = 4096,
    **options: Any,
) -> Any:
    """`method(model, row, key=…, **options)` with a key that depends on `seed` and on the seed of a row."""
    return map_rows(_ask_seeded, (rows, seeds), model, method, options, seed, block=block)


def keyed_answers(
    model: Any,
    method: Callable[..., Any],
    rows: Any,
    keys: np.ndarray,
    *,
    block: int = 4096,
    **options: Any,
) -> Any:
    """`method(model, row, key=…, **options)` with keys of their own."""
    return map_rows(_ask_keyed, (rows, keys), model, method, options, block=block)


def seeded(seed: Any, row_seed: Any) -> Any:
    """A key that depends on the fit and on one row."""
    return jax.random.fold_in(jax.random.key(seed), row_seed)


def rows_at_once(samples: int, width: int = 1) -> int:
    """Many samples of few rows, or few of many: memory stays the same, also for rows of great `width`."""
    return max(min(_SAMPLES_AT_ONCE // samples, _NUMBERS_AT_ONCE // (samples * width)), 1)


def by_completeness(
    z: np.ndarray,
    model: Any,
    complete: Callable[..., Any],
    incomplete: Callable[..., Any],
) -> np.ndarray:
    """`complete(model, row)` for rows without NaN, `incomplete(model, row)` for the others.

    Rows of which the products overflow are left to `incomplete`, too, since `complete` sums products.
    """
    with np.errstate(invalid="ignore"):
        special = ~(np.abs(z).reshape(len(z), -1).max(axis=1) < _FAR)
    if not special.any():
        return answers(model, complete, z)
    some = answers(model, incomplete, z[special], block=_INCOMPLETE_AT_ONCE)
    out = np.empty((len(z), *some.shape[1:]))
    out[special] = some
    if not special.all():
        out[~special] = answers(model, complete, z[~special])
    return out


def _missing(z: np.ndarray) -> np.ndarray:
    return np.isnan(z).reshape(len(z), -1)


def log_probs(model: Any, z: np.ndarray) -> np.ndarray:
    """log p of each row under an `AbstractExactModel`."""
    kind = type(model)
    return by_completeness(z, model, kind.log_prob_complete, kind.log_prob)


def evidence_of_rows(model: Any, z: np.ndarray, seeds: np.ndarray, samples: int, seed: Any) -> Evidence:
    """log p of each row: exact where the model knows it, and else a lower bound by importance samples."""
    if isinstance(model, AbstractExactModel):
        nats = log_probs(model, z)
        return Evidence(nats, np.zeros_like(nats), Kind.EXACT)
    missing = _missing(z)
    # of what nothing is observed, the bound is exact
    bounded = np.asarray(~missing.all(axis=1))
    if not model.exact_if_complete:
        return bound_of(_estimates(model, z, seeds, samples, seed), bounded)
    whole, some = ~missing.any(axis=1), bounded & missing.any(axis=1)
    nats, stderr = np.zeros(len(z)), np.zeros(len(z))
    if whole.any():
        nats[whole] = answers(model, type(model).log_prob, z[whole], block=_COMPLETE_AT_ONCE)
    if not some.any():
        return Evidence(nats, stderr, Kind.EXACT)
    found = _estimates(model, z[some], seeds[some], samples, seed)
    bound = bound_of(found, np.ones(int(some.sum()), bool))
    nats[some], stderr[some], growth = bound.nats, bound.stderr, np.zeros((len(z), 2))
    growth[some] = bound.growth
    return Evidence(nats, stderr, Kind.LOWER, growth=growth)


def _estimates(model: Any, z: np.ndarray, seeds: np.ndarray, samples: int, seed: Any) -> ImportanceEstimate:
    block = rows_at_once(samples)
    return seeded_answers(model, type(model).evidence, z, seeds, seed, block=block, samples=samples)


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


def draw_rows(
    model: Any,
    n: int,
    key: Array,
    method: Callable[..., Any] | None = None,
    *,
    block: int = 4096,
    **options: Any,
) -> Any:
    """`n` draws from `model`, `block` at a time: by its `sample`, or another method."""
    method = type(model).sample if method is None else method
    return map_rows(_draw, split_key_data(key, n), model, method, options, block=block)


def _how(model: Any, samples: int | None) -> dict[str, Any]:
    """How many rows are completed together, and from how many samples where that takes any."""
    if isinstance(model, AbstractExactModel):
        return {"block": _INCOMPLETE_AT_ONCE}
    block = _INCOMPLETE_AT_ONCE if samples is None else rows_at_once(samples)
    return {"block": block, "samples": samples}


def completed_means(
    model: Any, z: np.ndarray, seeds: np.ndarray, samples: int | None, seed: Any
) -> np.ndarray:
    """Rows with the means of what is missing."""
    method, how = type(model).complete_mean, _how(model, samples)
    if isinstance(model, AbstractExactModel):
        return answers(model, method, z, **how)
    return seeded_answers(model, method, z, seeds, seed, **how)


def completed_draws(model: Any, z: np.ndarray, samples: int | None, key: Array) -> np.ndarray:
    """Rows with draws of what is missing."""
    keys = split_key_data(key, len(z))
    return keyed_answers(model, type(model).complete_sample, z, keys, **_how(model, samples))


def shared_draws(
    model: AbstractBoundedModel, z: np.ndarray, n: int, samples: int, key: Array
) -> np.ndarray:
    """`n` draws of what is missing in each row, (n, rows, columns), by importance resampling.

    Draws come in groups that share `samples`, eight for each draw at least; groups have their own.
    """
    draws = next((size for size in _GROUPS if size >= n), _GROUPS[-1])
    groups, samples = -(-n // draws), max(samples, _SAMPLES_A_DRAW * draws)
    found = keyed_answers(
        model,
        type(model).complete_samples,
        np.tile(z, (groups, *(1 for _ in z.shape[1:]))),
        split_key_data(key, groups * len(z)),
        block=rows_at_once(samples),
        draws=draws,
        samples=samples,
    )
    found = found.reshape(groups, len(z), draws, *z.shape[1:]).swapaxes(1, 2)
    return found.reshape(groups * draws, *z.shape)[:n]
