"""Optimal transport: how far mass has to be carried from one sample to the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import optimize, sparse
from scipy.spatial.distance import cdist

from ._checks import count, numbers, two_samples
from ._forecasts import Measure
from ._jackknife import jackknife

# of a plan that is solved exactly
_MOST_PAIRS = 4_000_000


@dataclasses.dataclass(frozen=True)
class Transport:
    """The cheapest way to carry one distribution over to another, with its certificate.

    Attributes:
        value: Σ plan · cost, which equals Σ p f + Σ q g (Kantorovich's duality).
        plan: (first, second) how much goes from where to where; its sums are p and q.
        potentials: f and g with f_i + g_j ≤ cost_ij; any such pair bounds the value from below.
    """

    value: float
    plan: np.ndarray
    potentials: tuple[np.ndarray, np.ndarray]


def optimal_transport(cost: Any, first: Any = None, second: Any = None) -> Transport:
    """The cheapest plan between two finite distributions, and its dual, by linear programming.

        min Σ γ_ij c_ij  over γ ≥ 0 with sums p and q   =   max Σ p f + Σ q g  over f_i + g_j ≤ c_ij

    Args:
        cost: (n, m) of carrying a unit.
        first, second: the weights p and q of the points, each in sum one; by default equal.

    >>> points = np.arange(3.0)
    >>> cost = np.abs(points[:, None] - points)
    >>> round(optimal_transport(cost, [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]).value, 6)
    0.7
    """
    owner = "optimal_transport"
    c = numbers(owner, "cost", cost, ndim=2)
    p, q = (_weights(owner, *side) for side in (("first", first, len(c)), ("second", second, c.shape[1])))
    if c.size > _MOST_PAIRS:
        raise ValueError(
            f"{owner} solves at most {_MOST_PAIRS} pairs. Got {len(c)} × {c.shape[1]}; "
            "take fewer rows, or sliced_wasserstein."
        )
    n, m = c.shape
    sums = sparse.vstack(
        [
            sparse.kron(sparse.eye_array(n), np.ones((1, m))),
            sparse.kron(np.ones((1, n)), sparse.eye_array(m)),
        ]
    )
    result = optimize.linprog(c.ravel(), A_eq=sums.tocsr(), b_eq=np.concatenate([p, q]), method="highs")
    if result.status != 0:
        raise RuntimeError(f"The linear program of {owner} has no solution: {result.message}")
    dual = result.eqlin.marginals
    return Transport(float(result.fun), result.x.reshape(n, m), (dual[:n], dual[n:]))


def _weights(owner: str, name: str, values: Any, size: int) -> np.ndarray:
    if values is None:
        return np.full(size, 1 / size)
    weights = numbers(owner, name, values)
    if len(weights) != size or weights.min() < 0 or abs(weights.sum() - 1) > 1e-9:
        raise ValueError(
            f"The '{name}' of {owner} must be {size} numbers from 0 on in sum one. "
            f"Got {len(weights)} in sum {weights.sum():g} instead."
        )
    return weights / weights.sum()


def wasserstein_distance(first: Any, second: Any, *, order: float = 1.0) -> Measure:
    """The distance over which the rows of one sample have to be carried to become the other.

        W = (min over plans  E ‖x − y‖^order)^(1/order)

    exactly: by quantiles in one column, else by the best pairing or a linear program.  In several columns
    the distance of samples is above that of their distributions, by a size that shrinks slowly,
    as rows^(−1/columns).

    Args:
        first, second: (rows, columns) each.
        order: from 1 on.

    >>> wasserstein_distance([[0.0], [1.0]], [[3.0], [4.0]]).value
    3.0
    """
    owner = "wasserstein_distance"
    a, b = two_samples(owner, first, second)
    order = _order(owner, order)

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        if a.shape[1] == 1:
            return float(_along_lines(a, b, order)[0] ** (1 / order))
        cost = cdist(a, b) ** order
        if len(a) == len(b):
            pairs = optimize.linear_sum_assignment(cost)
            return float(cost[pairs].mean() ** (1 / order))
        return optimal_transport(cost).value ** (1 / order)

    if a.shape[1] > 1 and len(a) * len(b) > _MOST_PAIRS:
        raise ValueError(
            f"{owner} solves at most {_MOST_PAIRS} pairs of rows in several columns. "
            f"Got {len(a)} × {len(b)}; take fewer rows, or sliced_wasserstein."
        )
    return Measure(distance(a, b), jackknife(distance, a, b))


def sliced_wasserstein(
    first: Any, second: Any, *, order: float = 2.0, slices: int = 200, seed: int | np.random.Generator
) -> Measure:
    """The mean of the distances of two samples along random directions, a distance for any size.

        SW = (E_u W(uᵀx, uᵀy)^order)^(1/order),  u uniform on the sphere

    Args:
        first, second: (rows, columns) each.
        order: from 1 on.
        slices: directions; their number and that of the rows make the standard error.
        seed: of the directions.

    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> bool(abs(sliced_wasserstein(x, x + 3, seed=0).value - 3) < 0.3)  # the shift has length 3 √2
    True
    """
    owner = "sliced_wasserstein"
    a, b = two_samples(owner, first, second)
    order, slices = _order(owner, order), count(owner, "slices", slices, least=2)
    directions = np.random.default_rng(seed).standard_normal((a.shape[1], slices))
    directions /= np.linalg.norm(directions, axis=0)

    def mean_power(a: np.ndarray, b: np.ndarray) -> float:
        return float(_along_lines(a, b, order).mean())

    each = _along_lines(a @ directions, b @ directions, order)
    power = float(each.mean())
    of_rows = jackknife(mean_power, a @ directions, b @ directions)
    error = np.hypot(of_rows, each.std(ddof=1) / np.sqrt(slices))
    value = power ** (1 / order)
    return Measure(value, float(error * value / (order * power)) if power > 0 else 0.0)


def _order(owner: str, value: Any) -> float:
    if not isinstance(value, int | float | np.number) or not 1 <= value < np.inf:
        raise ValueError(
            f"The 'order' of {owner} must be a float in the range [1, inf). Got {value!r} instead."
        )
    return float(value)


def _along_lines(a: np.ndarray, b: np.ndarray, order: float) -> np.ndarray:
    """∫ |quantile of a − quantile of b|^order for each column of two samples."""
    n, m = len(a), len(b)
    # steps of either function of quantiles, as whole numbers of 1/(n m)
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    gaps = np.abs(np.sort(a, axis=0)[(ends - 1) // m] - np.sort(b, axis=0)[(ends - 1) // n])
    return np.diff(ends, prepend=0) @ gaps**order / (n * m)
