"""How far two samples are apart, of which no density is asked: for models that only sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist

from ..kernels import RBF, AbstractKernel
from ._checks import count, fraction, two_samples
from ._forecasts import Measure
from ._jackknife import GROUPS, jackknife, kept_rows, spread_of

# of both samples, whose distances the default kernel is scaled by
_ROWS_FOR_MEDIAN = 1000


@dataclasses.dataclass(frozen=True)
class Discrepancy:
    """How far two samples are apart.

    Attributes:
        value: what the test is about; its mean is zero (an accuracy: a half) where nothing differs.
        stderr: the standard error of `value`.
        p_value: small where chance does not explain the difference.
    """

    value: float
    stderr: float
    p_value: float


def maximum_mean_discrepancy(
    first: Any,
    second: Any,
    kernel: AbstractKernel | None = None,
    *,
    permutations: int = 500,
    seed: int | np.random.Generator,
) -> Discrepancy:
    """The squared distance of two samples in the space of a kernel, also known as MMD², without bias.

        MMD² = E k(x, x') + E k(y, y') − 2 E k(x, y)

    over pairs of different rows, so that its mean is zero for equal distributions and it may be negative.
    With the linear kernel it is ‖E x − E y‖².  The p-value counts permutations of the rows of both whose
    discrepancy is as large, the standard error leaves groups of rows out.  The cost is quadratic in the
    number of rows.

    Args:
        first, second: (rows, columns) each.
        kernel: by default Gaussian, as wide as the median distance of rows, columns in units of their
            standard deviation.
        permutations: for the p-value, which is at least 1/(permutations + 1).
        seed: of the permutations.

    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> maximum_mean_discrepancy(x[:50], x[50:] + 1, seed=0).p_value < 0.01
    True
    """
    owner = "maximum_mean_discrepancy"
    a, b = two_samples(owner, first, second)
    permutations = count(owner, "permutations", permutations)
    rng = np.random.default_rng(seed)
    pooled = np.concatenate([a, b])
    kernel = _as_wide_as_the_data(pooled) if kernel is None else kernel
    gram = np.array(kernel.gram(pooled), float)
    np.fill_diagonal(gram, 0.0)
    sides = np.zeros((2, len(pooled)))
    sides[0, : len(a)] = sides[1, len(a) :] = 1.0

    def without_bias(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        n, m, towards_y = x.sum(axis=1), y.sum(axis=1), y @ gram
        within = np.einsum("pi,pi->p", x @ gram, x) / (n * (n - 1))
        within += np.einsum("pi,pi->p", towards_y, y) / (m * (m - 1))
        return within - 2 * np.einsum("pi,pi->p", towards_y, x) / (n * m)

    value = float(without_bias(sides[:1], sides[1:])[0])
    order = np.stack([rng.permutation(len(pooled)) for _ in range(permutations)])
    shuffled = without_bias(sides[0][order], sides[1][order])
    # rounding must not decide between equal values
    larger = np.sum(shuffled >= value - 1e-12 * np.abs(gram).max())
    groups = min(GROUPS, len(a), len(b))
    left = [
        np.pad(kept_rows(len(a), groups), ((0, 0), (0, len(b)))),
        np.pad(kept_rows(len(b), groups), ((0, 0), (len(a), 0))),
    ]
    # of two rows none can be left out
    known = min(len(a), len(b)) > 2
    error = spread_of(without_bias(*(keep.astype(float) for keep in left))) if known else np.inf
    return Discrepancy(value, error, float((1 + larger) / (1 + permutations)))


def _as_wide_as_the_data(pooled: np.ndarray) -> RBF:
    spread = pooled.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    some = np.random.default_rng(0).permutation(len(pooled))[:_ROWS_FOR_MEDIAN]
    median = np.median(pdist(pooled[some] / spread))
    width: Any = spread * (median if median > 0 else 1.0)
    return RBF(width)


class _Neighbours:
    """The majority of the √n nearest rows, columns in units of their standard deviation."""

    def __init__(self, x: np.ndarray, labels: np.ndarray) -> None:
        spread = x.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        self.labels = labels
        self.tree = KDTree(x / self.spread)
        self.size = max(1, int(np.sqrt(len(x))) | 1)

    def predict(self, x: np.ndarray) -> np.ndarray:
        near = np.reshape(self.tree.query(x / self.spread, k=self.size)[1], (len(x), -1))
        return (self.labels[near].mean(axis=1) > 0.5).astype(int)


def classifier_two_sample_test(
    first: Any,
    second: Any,
    fit: Callable[[np.ndarray, np.ndarray], Any] = _Neighbours,
    *,
    seed: int | np.random.Generator,
) -> Discrepancy:
    """Whether a classifier can tell two samples apart, also known as C2ST: its held-out accuracy.

    Half of the rows teach, the other half is asked, as many of one sample as of the other.  The p-value is
    exact whatever the classifier: if the distributions are equal, the labels of the rows that are asked
    are any of their arrangements with equal chance, so that its hits are hypergeometric.

    Args:
        first, second: (rows, columns) each; of the larger one a part is left out.
        fit: from rows and labels (0 for the first sample, 1 for the second) to an object with `predict`,
            such as `LogisticRegression().fit`; by default the majority among √n neighbours.
        seed: of which rows teach.

    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> test = classifier_two_sample_test(x[:200], x[200:] + 1, seed=0)
    >>> test.value > 0.6, test.p_value < 0.01
    (True, True)
    """
    owner = "classifier_two_sample_test"
    a, b = two_samples(owner, first, second, least=4)
    rng = np.random.default_rng(seed)
    half = min(len(a), len(b)) // 2
    a, b = (x[rng.permutation(len(x))[: 2 * half]] for x in (a, b))
    labels = np.repeat([0, 1], half)
    teach, asked = (np.concatenate([a[part], b[part]]) for part in (slice(half), slice(half, None)))
    answer = np.asarray(fit(teach, labels).predict(asked))
    if answer.shape != (2 * half,) or not np.isin(answer, (0, 1)).all():
        raise ValueError(
            f"What 'fit' of {owner} gives must predict 0 or 1 for each row. Got {answer[:3]!r} … instead."
        )
    ones = int(answer.sum())
    found = int(answer[half:].sum())
    accuracy = (half - ones + 2 * found) / (2 * half)
    chance = stats.hypergeom.sf(found - 1, 2 * half, half, ones)
    return Discrepancy(accuracy, float(np.sqrt(accuracy * (1 - accuracy) / (2 * half))), float(chance))


def classifier_test_power(accuracy: float, rows: int, level: float = 0.05) -> float:
    """How often a classifier of this accuracy finds the difference, asked of so many rows at this level.

        P(hits > c | accuracy),  c the smallest with P(hits > c | ½) ≤ level, hits binomial.

    >>> round(classifier_test_power(0.6, 100), 3)
    0.623
    """
    owner = "classifier_test_power"
    n = count(owner, "rows", rows)
    level, accuracy = fraction(owner, "level", level), fraction(owner, "accuracy", accuracy)
    return float(stats.binom.sf(stats.binom.isf(level, n, 0.5), n, accuracy))


def frechet_distance(first: Any, second: Any) -> Measure:
    """The squared distance of the Gaussians with the moments of two samples, also known as FID.

        ‖μ − ν‖² + tr(Σ + Λ − 2 (ΣΛ)^½)

    It is zero for equal moments, whatever else differs, and its estimate is too large by a share of
    columns² / rows: compare samples of equal size.  A generator that copies the data has a distance of
    nearly zero (see `memorisation_test`).

    Args:
        first, second: (rows, features) each.

    >>> frechet_distance([[-1.0], [1.0]], [[1.0], [3.0]]).value.round(6)
    np.float64(4.0)
    """
    a, b = two_samples("frechet_distance", first, second)
    return Measure(_frechet(a, b), jackknife(_frechet, a, b) if min(len(a), len(b)) > 2 else np.inf)


def _frechet(a: np.ndarray, b: np.ndarray) -> float:
    centred = [(x - x.mean(axis=0)) / np.sqrt(len(x) - 1) for x in (a, b)]
    # Σ = AᵀA, so that tr (ΣΛ)^½ is the sum of the singular values of ABᵀ
    factors: list[Any] = [np.linalg.qr(x, mode="r") if len(x) > x.shape[1] else x for x in centred]
    overlap = np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False).sum()
    apart = sum(np.sum(x**2) for x in factors) - 2 * overlap
    return np.sum((a.mean(axis=0) - b.mean(axis=0)) ** 2) + max(apart, 0.0)
