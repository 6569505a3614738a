"""Whether a model means what it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import stats
from scipy.spatial.distance import cdist

from ._checks import count, numbers, outcomes, same_length, two_samples


def pit_ranks(values: Any, reference: Any, *, seed: int | np.random.Generator) -> np.ndarray:
    """The place of each value among reference draws, in [0, 1]: uniform if they have one distribution.

    With r draws below and e equal, the place is (r + u (e + 1)) / (number of draws + 1), u uniform, so
    that whole-numbered values are uniform too.  With values log p(x) of held-out rows and reference
    log p of the model's own draws it is the probability integral transform of any density.

    >>> ranks = pit_ranks([-1e9, 0.5, 1e9], np.linspace(0, 1, 9), seed=0)
    >>> (ranks * 10).astype(int).tolist()
    [0, 4, 9]
    """
    x = numbers("pit_ranks", "values", values)
    draws = np.sort(numbers("pit_ranks", "reference", reference))
    below = np.searchsorted(draws, x, side="left")
    equal = np.searchsorted(draws, x, side="right") - below
    u = np.random.default_rng(seed).random(len(x))
    return (below + u * (equal + 1)) / (len(draws) + 1)


@dataclasses.dataclass(frozen=True)
class TestResult:
    """A statistic and the probability of one as large if there were nothing to see.

    Attributes:
        statistic: zero where nothing differs.
        p_value: small where chance does not explain the difference.
    """

    __test__ = False  # no test of pytest

    statistic: float
    p_value: float


def uniformity(ranks: Any) -> TestResult:
    """Kolmogorov's test that numbers in [0, 1] are uniform: sup |F̂(u) − u|.

    >>> uniformity([0.1, 0.3, 0.5, 0.7, 0.9]).p_value > 0.9
    True
    """
    u = numbers("uniformity", "ranks", ranks)
    if u.min() < 0 or u.max() > 1:
        strange = u.min() if u.min() < 0 else u.max()
        raise ValueError(f"The 'ranks' of uniformity must be between 0 and 1. Got {strange:g} instead.")
    u, n = np.sort(u), len(u)
    steps = np.arange(n + 1) / n
    distance = float(max(np.max(steps[1:] - u), np.max(u - steps[:-1])))
    return TestResult(distance, float(stats.kstwo.sf(distance, n)))


@dataclasses.dataclass(frozen=True)
class Reliability:
    """What a classifier says beside what happens, in bins of its confidence.

    Attributes:
        confidence: the mean probability in each bin that is not empty.
        frequency: the share of them that came true.
        counts: how many there are in the bin.
        error: Σ counts/N |frequency − confidence|, the expected calibration error.
    """

    confidence: np.ndarray
    frequency: np.ndarray
    counts: np.ndarray
    error: float


def reliability(probabilities: Any, answers: Any, *, bins: int = 10) -> Reliability:
    """The reliability curve of a classifier and its expected calibration error.

    Args:
        probabilities: (rows,) the probability of the answer 1, or (rows, classes): then it is the
            probability of the most probable class that is looked at, and whether it was right.
        answers: (rows,) 0 or 1, or the number of the class.
        bins: of equal width.

    >>> reliability([0.8] * 10, [1] * 8 + [0] * 2).error.__round__(6)
    0.0
    """
    owner = "reliability"
    bins = count(owner, "bins", bins)
    if np.ndim(probabilities) == 2:
        table = numbers(owner, "probabilities", probabilities, ndim=2)
        truth = numbers(owner, "answers", answers)
        same_length(owner, probabilities=table, answers=truth)
        p, hit = table.max(axis=1), (table.argmax(axis=1) == truth).astype(float)
    else:
        p, hit = numbers(owner, "probabilities", probabilities), outcomes(owner, "answers", answers)
        same_length(owner, probabilities=p, answers=hit)
    if p.min() < 0 or p.max() > 1:
        strange = p.min() if p.min() < 0 else p.max()
        raise ValueError(
            f"The 'probabilities' of {owner} must be between 0 and 1. Got {strange:g} instead."
        )
    place = np.minimum((p * bins).astype(int), bins - 1)
    counts = np.bincount(place, minlength=bins)
    full = counts > 0
    confidence = np.bincount(place, p, bins)[full] / counts[full]
    frequency = np.bincount(place, hit, bins)[full] / counts[full]
    error = float(counts[full] @ np.abs(frequency - confidence) / len(p))
    return Reliability(confidence, frequency, counts[full], error)


def two_sample_test(
    first: Any, second: Any, *, permutations: int = 500, seed: int | np.random.Generator
) -> TestResult:
    """Whether two samples have one distribution, by the energy distance and permutations.

        D² = 2 E‖x − y‖ − E‖x − x'‖ − E‖y − y'‖ ≥ 0, and 0 only for equal distributions.

    Columns count in units of their standard deviation.  The cost is quadratic in the number of rows.

    Args:
        first, second: (rows, columns) each.
        permutations: of the rows of both together; the p-value is at least 1/(permutations + 1).
        seed: of the permutations.

    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> two_sample_test(x[:25], x[25:] + 3, seed=0).p_value < 0.01
    True
    """
    owner = "two_sample_test"
    a, b = two_samples(owner, first, second, least=1)
    permutations = count(owner, "permutations", permutations)
    pooled = np.concatenate([a, b])
    spread = pooled.std(axis=0)
    pooled = pooled / np.where(spread > 0, spread, 1.0)
    distance = cdist(pooled, pooled)
    # with s = 1/n for the rows of the first sample and −1/m for the others, D² = −sᵀ (distances) s
    sign = np.concatenate([np.full(len(a), 1 / len(a)), np.full(len(b), -1 / len(b))])
    rng = np.random.default_rng(seed)
    shuffled = np.stack([sign, *(rng.permutation(sign) for _ in range(permutations))])
    squares = -np.einsum("pi,pi->p", shuffled @ distance, shuffled)
    # rounding must not decide between equal values
    larger = np.sum(squares[1:] >= squares[0] - 1e-12 * abs(squares[0]))
    return TestResult(float(np.sqrt(max(squares[0], 0.0))), float((1 + larger) / (1 + permutations)))
