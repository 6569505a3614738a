"""How sure a mean is: over test points, over retrainings, and between two models."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats

from ._checks import count, fraction, numbers, outcomes, same_length


@dataclasses.dataclass(frozen=True)
class Interval:
    """A number with the interval that holds it.

    Attributes:
        estimate: the number itself.
        low, high: the ends.
        level: the share of repetitions, or of belief, that the interval covers.
        stderr: the standard error of `estimate`.

    >>> 0.5 in Interval(0.6, 0.4, 0.8, 0.95, 0.1)
    True
    """

    estimate: float
    low: float
    high: float
    level: float
    stderr: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def _around(estimate: float, stderr: float, quantile: float, level: float) -> Interval:
    reach = float(quantile) * stderr if stderr else 0.0
    return Interval(estimate, estimate - reach, estimate + reach, level, stderr)


def wald_interval(values: Any, *, level: float = 0.95) -> Interval:
    """The normal interval of a mean: l̄ ± z √(σ̂²/N), with σ̂² the mean squared deviation.

    For zeros and ones σ̂² is l̄(1 − l̄).  It covers the randomness of the test points only, and has no
    width when all of them agree: `wilson_interval` and `beta_interval` are better for proportions.

    >>> interval = wald_interval([1] * 90 + [0] * 10, level=0.99)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.8227, 0.9773)
    """
    owner = "wald_interval"
    x, level = numbers(owner, "values", values), fraction(owner, "level", level)
    return _around(
        float(x.mean()), float(x.std() / math.sqrt(len(x))), -special.ndtri((1 - level) / 2), level
    )


def t_interval(values: Any, *, level: float = 0.95) -> Interval:
    """Student's interval of a mean: l̄ ± t_{N−1} s/√N, exact for normal values.

    It is also the credible interval of the mean under a flat prior.

    >>> interval = t_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.484, 4.484)
    """
    owner = "t_interval"
    x, level = numbers(owner, "values", values, least=2), fraction(owner, "level", level)
    stderr = float(x.std(ddof=1) / math.sqrt(len(x)))
    return _around(float(x.mean()), stderr, special.stdtrit(len(x) - 1, (1 + level) / 2), level)


def wilson_interval(values: Any, *, level: float = 0.95) -> Interval:
    """Wilson's interval of a proportion: the p whose own normal interval reaches what was seen.

    >>> interval = wilson_interval([1] * 90 + [0] * 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.8256, 0.9448)
    """
    owner = "wilson_interval"
    x, level = outcomes(owner, "values", values), fraction(owner, "level", level)
    ends = stats.binomtest(int(x.sum()), len(x)).proportion_ci(level, method="wilson")
    stderr = float(x.std() / math.sqrt(len(x)))
    return Interval(float(x.mean()), float(ends.low), float(ends.high), level, stderr)


def beta_interval(values: Any, *, prior: tuple[float, float] = (0.5, 0.5), level: float = 0.95) -> Interval:
    """The credible interval of a proportion under a Beta prior, by default that of Jeffreys.

    p ~ Beta(a, b) becomes Beta(a + successes, b + failures); the ends are its quantiles, and the
    estimate and its error are the mean and standard deviation.

    >>> interval = beta_interval([1] * 90 + [0] * 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.8299, 0.9474)
    """
    owner = "beta_interval"
    x, level = outcomes(owner, "values", values), fraction(owner, "level", level)
    pseudo = numbers(owner, "prior", prior)
    if len(pseudo) != 2 or (pseudo <= 0).any():
        raise ValueError(f"The 'prior' of {owner} must be two positive numbers. Got {prior!r} instead.")
    posterior = stats.beta(pseudo[0] + x.sum(), pseudo[1] + (1 - x).sum())
    low, high = posterior.ppf([(1 - level) / 2, (1 + level) / 2])
    return Interval(float(posterior.mean()), float(low), float(high), level, float(posterior.std()))


def credible_interval(draws: Any, *, level: float = 0.95) -> Interval:
    """The equal-tailed interval of draws: from quantile α/2 to 1 − α/2.

    Draws may come from a posterior, or be the scores of one learner trained many times.  With several
    humps it holds what is between them: see `credible_region`.

    >>> credible_interval(range(101), level=0.9).high
    95.0
    """
    owner = "credible_interval"
    x, level = numbers(owner, "draws", draws), fraction(owner, "level", level)
    low, high = np.quantile(x, [(1 - level) / 2, (1 + level) / 2])
    spread = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    return Interval(float(x.mean()), float(low), float(high), level, spread)


def credible_region(draws: Any, *, level: float = 0.95) -> list[tuple[float, float]]:
    """The smallest set with mass `level`: the pieces where the density of the draws is highest.

    The density is a kernel estimate; the set is {x : density(x) ≥ c} with c such that a share `level`
    of the draws is inside, and may be in several pieces.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> len(credible_region(np.concatenate([rng.normal(-5, 1, 500), rng.normal(5, 1, 500)])))
    2
    """
    owner = "credible_region"
    x, level = numbers(owner, "draws", draws, least=2), fraction(owner, "level", level)
    if np.ptp(x) == 0:
        return [(float(x[0]), float(x[0]))]
    # half of Scott's width, which is made for one hump and would smear several into each other
    kernel = stats.gaussian_kde(x, lambda estimate: 0.5 * estimate.scotts_factor())
    pad = 0.1 * np.ptp(x)
    grid = np.linspace(x.min() - pad, x.max() + pad, 2000)
    height = kernel(grid)
    inside = height >= np.quantile(np.interp(x, grid, height), 1 - level)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]])))
    return [(float(grid[a]), float(grid[b - 1])) for a, b in edges.reshape(-1, 2)]


def bootstrap_interval(
    values: Any,
    statistic: Callable[..., Any] = np.mean,
    *,
    groups: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int | np.random.Generator,
) -> Interval:
    """An interval of any statistic by resampling the values (bias-corrected and accelerated).

    Args:
        values: one number for each test point.
        statistic: a function of an array of numbers, with `axis`, such as `np.mean` or `np.median`.
        groups: labels; points of one group are not independent, so that the means of groups are
            resampled instead.
        resamples: how many times.
        level: of the interval.
        seed: of the resampling.

    >>> interval = bootstrap_interval(range(100), seed=0)
    >>> 43 < interval.low < 45 and 54 < interval.high < 56
    True
    """
    owner = "bootstrap_interval"
    x, level = numbers(owner, "values", values, least=2), fraction(owner, "level", level)
    resamples = count(owner, "resamples", resamples)
    if groups is not None:
        same_length(owner, values=x, groups=np.asarray(groups))
        _, member = np.unique(np.asarray(groups), return_inverse=True)
        x = np.bincount(member, x) / np.bincount(member)
        if len(x) < 2:
            raise ValueError(f"The 'groups' of {owner} must name at least 2 groups. Got 1 instead.")
    estimate = float(statistic(x, axis=-1))
    if np.ptp(x) == 0:
        return Interval(estimate, estimate, estimate, level, 0.0)
    result = stats.bootstrap(
        (x,),
        statistic,
        n_resamples=resamples,
        confidence_level=level,
        method="BCa",
        batch=max(1, 2**22 // len(x)),
        rng=np.random.default_rng(seed),
    )
    ends = result.confidence_interval
    return Interval(estimate, float(ends.low), float(ends.high), level, float(result.standard_error))


@dataclasses.dataclass(frozen=True)
class Retraining:
    """The score of a learner, with what makes it uncertain taken apart.

    Attributes:
        interval: of the mean over all trainings and all points that there could be.
        trainings, points, residual: the variance of one score that is due to the training, to the
            test point, and to the two together.
    """

    interval: Interval
    trainings: float
    points: float
    residual: float


def retraining_interval(scores: Any, *, level: float = 0.95) -> Retraining:
    """The interval of a learner's mean score, over retrainings and over test points.

    score_mn = μ + a_m + b_n + e_mn with a the luck of a training (start, batches, hardware) and b that
    of a test point.  The mean squares of the two-way table give

        Var(mean) = σ²_a/M + σ²_b/N + σ²_e/(MN) ≈ (MS_a + MS_b − MS_e) / (MN),

    with the degrees of freedom of Satterthwaite.  More points do not make up for a single training.

    Args:
        scores: (trainings, points), all trainings on the same points.
        level: of the interval.

    >>> same = [[0.0, 1.0, 2.0]] * 4      # a deterministic learner
    >>> retraining_interval(same).trainings
    0.0
    """
    owner = "retraining_interval"
    x = numbers(owner, "scores", scores, ndim=2, least=2)
    level = fraction(owner, "level", level)
    m, n = x.shape
    rows, columns, mean = x.mean(axis=1), x.mean(axis=0), float(x.mean())
    # mean squares per score
    square_rows = n * float(rows.var(ddof=1))
    square_columns = m * float(columns.var(ddof=1))
    rest = x - rows[:, None] - columns[None, :] + mean
    square_rest = float(np.sum(rest**2)) / ((m - 1) * (n - 1))
    # an estimate of a sum of variances, each of which is at least zero
    total = max(square_rows + square_columns - square_rest, square_rows, square_columns)
    wobble = square_rows**2 / (m - 1) + square_columns**2 / (n - 1) + square_rest**2 / ((m - 1) * (n - 1))
    freedom = max(total**2 / wobble, 1.0) if wobble > 0 else 1.0
    stderr = math.sqrt(total / (m * n))
    interval = _around(mean, stderr, special.stdtrit(freedom, (1 + level) / 2), level)
    return Retraining(
        interval,
        max(square_rows - square_rest, 0.0) / n,
        max(square_columns - square_rest, 0.0) / m,
        square_rest,
    )


@dataclasses.dataclass(frozen=True)
class PairedDifference:
    """The difference of two models on the same points.

    Attributes:
        interval: of the mean of first − second.
        chance: that the mean has the sign that was seen: from ½ (nobody knows) to 1.
    """

    interval: Interval
    chance: float

    @property
    def mean(self) -> float:
        """The mean of first − second."""
        return self.interval.estimate

    @property
    def stderr(self) -> float:
        """Its standard error."""
        return self.interval.stderr


def paired_difference(first: Any, second: Any, *, level: float = 0.95) -> PairedDifference:
    """Whether two models differ, from their scores on the same points.

    What makes a point hard for both is taken out by the difference, so that far fewer points tell the
    two apart.  The chance is that of Student's t, which is also the posterior under a flat prior.

    >>> paired_difference([1.0, 2.0, 3.1], [0.9, 1.8, 3.0]).chance > 0.95
    True
    """
    owner = "paired_difference"
    a = numbers(owner, "first", first, least=2)
    b = numbers(owner, "second", second, least=2)
    same_length(owner, first=a, second=b)
    interval = t_interval(a - b, level=level)
    if interval.stderr == 0:
        return PairedDifference(interval, 0.5 if interval.estimate == 0 else 1.0)
    ratio = abs(interval.estimate) / interval.stderr
    return PairedDifference(interval, float(special.stdtr(len(a) - 1, ratio)))
