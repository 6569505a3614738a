"""Priors of coefficients that are a sum over them, by their proximal operators."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

# a step that moves no coefficient by more than this, for answers of variance one, is the last
_LAST_STEP = 1e-11


@dataclasses.dataclass(frozen=True)
class AbstractSeparablePrior(abc.ABC):
    """p(w) ∝ exp(−strength Σ energy(w_j)): a prior under which coefficients are independent.

    A subclass (a frozen dataclass) says its energy and the proximal operator,

        prox(v, t) = argmin_w ½ (w − v)² + t energy(w),

    which is all that `SparseRegression` needs.  Where the energy is convex, its conjugate makes a duality
    gap of it.

    Attributes:
        convex: whether the energy is.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Nonnegative(AbstractSeparablePrior):  # and no other preference
    ...     convex: ClassVar[bool] = True
    ...     def energy(self, w): return np.where(w < 0, np.inf, 0.0)
    ...     def prox(self, v, t): return np.maximum(v, 0.0)
    >>> w, _ = proximal(np.eye(2), np.array([1.0, -1.0]), Nonnegative(), 1.0, np.zeros(2), 10)
    >>> w.tolist()
    [1.0, 0.0]
    """

    convex: ClassVar[bool] = False

    @abc.abstractmethod
    def energy(self, w: np.ndarray) -> np.ndarray:
        """−log p(w) of each coefficient, up to a constant, for a strength of one."""

    @abc.abstractmethod
    def prox(self, v: np.ndarray, t: np.ndarray | float) -> np.ndarray:
        """argmin_w ½ (w − v)² + t energy(w), for each entry."""

    def conjugate(self, s: np.ndarray, strength: float) -> np.ndarray:
        """sup_w s w − strength energy(w), for each entry; NaN where it is not known."""
        return np.full(np.shape(s), np.nan)

    def steepest(self, strength: float) -> float:
        """The largest |s| for which `conjugate` is finite."""
        return math.inf


def _soft(v: np.ndarray, t: Any) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - t, 0.0)


@dataclasses.dataclass(frozen=True)
class ElasticNetPrior(AbstractSeparablePrior):
    """energy(w) = ρ |w| + ½ (1 − ρ) w²: Laplace's prior at ρ = 1, the normal one at ρ = 0.

    >>> ElasticNetPrior(1.0).prox(np.array([-2.0, 0.5]), 0.75).tolist()
    [-1.25, 0.0]
    """

    convex: ClassVar[bool] = True
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(
                "The 'l1_ratio' of ElasticNetPrior must be a float in the range [0, 1]. "
                f"Got {self.l1_ratio!r} instead."
            )

    def energy(self, w: np.ndarray) -> np.ndarray:
        return self.l1_ratio * np.abs(w) + 0.5 * (1 - self.l1_ratio) * w**2

    def prox(self, v: np.ndarray, t: np.ndarray | float) -> np.ndarray:
        return _soft(v, t * self.l1_ratio) / (1 + t * (1 - self.l1_ratio))

    def conjugate(self, s: np.ndarray, strength: float) -> np.ndarray:
        beyond = np.maximum(np.abs(s) - strength * self.l1_ratio, 0.0)
        bend = strength * (1 - self.l1_ratio)
        if bend > 0:
            return beyond**2 / (2 * bend)
        # at the end of its range, but for rounding
        return np.where(beyond <= 1e-9 * strength, 0.0, np.inf)

    def steepest(self, strength: float) -> float:
        return strength if self.l1_ratio == 1 else math.inf


def _positive(owner: Any, value: Any) -> None:
    if not (isinstance(value, int | float) and 0 < value < math.inf):
        raise ValueError(
            f"The 'scale' of {type(owner).__name__} must be a float in the range (0, inf). "
            f"Got {value!r} instead."
        )


def _best(v: np.ndarray, t: Any, candidates: np.ndarray, prior: AbstractSeparablePrior) -> np.ndarray:
    """Of candidates along the first axis the one with the least ½ (w − v)² + t energy(w)."""
    cost = 0.5 * (candidates - v) ** 2 + t * prior.energy(candidates)
    best = np.argmin(cost, axis=0)
    return np.take_along_axis(candidates, best[None], axis=0)[0]


@dataclasses.dataclass(frozen=True)
class StudentPrior(AbstractSeparablePrior):
    """energy(w) = log(1 + (w / s)²), that of Student's and Cauchy's law: it hardly shrinks what is large.

    Attributes:
        scale: s, for columns and answers of standard deviation one.

    >>> StudentPrior(0.1).prox(np.array([0.1, 5.0]), 0.01).round(3).tolist()
    [0.036, 4.996]
    """

    scale: float = 0.1

    def __post_init__(self) -> None:
        _positive(self, self.scale)

    def energy(self, w: np.ndarray) -> np.ndarray:
        return np.log1p((w / self.scale) ** 2)

    def prox(self, v: np.ndarray, t: np.ndarray | float) -> np.ndarray:
        v, t = np.broadcast_arrays(np.asarray(v, float), np.asarray(t, float))
        size = np.abs(v)
        # (w − v)(s² + w²) + 2 t w = 0, by the eigenvalues of its companion
        companion = np.zeros((*v.shape, 3, 3))
        companion[..., 1, 0] = companion[..., 2, 1] = 1.0
        companion[..., 0, 2] = size * self.scale**2
        companion[..., 1, 2] = -(self.scale**2 + 2 * t)
        companion[..., 2, 2] = size
        roots = np.moveaxis(np.linalg.eigvals(companion), -1, 0)
        # beside the real ones the real part of a pair is some point, and no harm
        inside = np.clip(roots.real, 0.0, size)
        return np.sign(v) * _best(size, t, inside, self)


@dataclasses.dataclass(frozen=True)
class LogarithmicPrior(AbstractSeparablePrior):
    """energy(w) = log(1 + |w| / s): many zeros, and what is large hardly shrunk.

    Also known as the log-sum penalty (Candès, Wakin & Boyd 2008).

    Attributes:
        scale: s, for columns and answers of standard deviation one.

    >>> LogarithmicPrior(0.1).prox(np.array([0.2, 5.0]), 0.1).round(3).tolist()
    [0.0, 4.98]
    """

    scale: float = 0.1

    def __post_init__(self) -> None:
        _positive(self, self.scale)

    def energy(self, w: np.ndarray) -> np.ndarray:
        return np.log1p(np.abs(w) / self.scale)

    def prox(self, v: np.ndarray, t: np.ndarray | float) -> np.ndarray:
        v, t = np.broadcast_arrays(np.asarray(v, float), np.asarray(t, float))
        size = np.abs(v)
        # (w − v)(s + w) + t = 0: the larger root is a minimum, if there is one
        half = 0.5 * (size - self.scale)
        square = half**2 + size * self.scale - t
        far = np.where(square >= 0, half + np.sqrt(np.where(square >= 0, square, 0.0)), 0.0)
        return np.sign(v) * _best(size, t, np.stack([np.zeros_like(size), np.maximum(far, 0.0)]), self)


@dataclasses.dataclass(frozen=True)
class SpikePrior(AbstractSeparablePrior):
    """energy(w) = 1 unless w = 0: each coefficient costs the same, also known as best subset and as L0.

    It is what a spike at zero beside a wide slab tends to.

    >>> SpikePrior().prox(np.array([0.9, -1.1]), 0.5).tolist()
    [0.0, -1.1]
    """

    def energy(self, w: np.ndarray) -> np.ndarray:
        return (w != 0).astype(float)

    def prox(self, v: np.ndarray, t: np.ndarray | float) -> np.ndarray:
        return np.where(0.5 * v**2 > t, v, 0.0)


def proximal(
    gram: np.ndarray,
    along: np.ndarray,
    prior: AbstractSeparablePrior,
    strength: float,
    start: np.ndarray,
    max_iter: int,
) -> tuple[np.ndarray, int]:
    """Where no coefficient alone lowers ½ wᵀGw − cᵀw + strength Σ energy(w), and the passes it took.

    Coefficients are moved to their best place one after the other, so that the objective never rises; where
    the prior is convex the point is the least.
    """
    w, bends = start.copy(), np.diag(gram)
    # a column without variance moves nothing
    own = np.flatnonzero(bends > 1e-9)
    w[bends <= 1e-9] = 0.0
    slope = along - gram @ w
    for step in range(1, max_iter + 1):
        most = 0.0
        for j in own:
            bend = bends[j]
            goal = float(prior.prox(w[j] + slope[j] / bend, strength / bend))
            move = goal - w[j]
            if move:
                slope -= move * gram[:, j]
                w[j] = goal
                most = max(most, abs(move) * math.sqrt(bend))
        if most <= _LAST_STEP:
            return w, step
        # what rounding has left
        slope = along - gram @ w
    return w, max_iter


def stationarity(
    gram: np.ndarray, along: np.ndarray, prior: AbstractSeparablePrior, strength: float, w: np.ndarray
) -> float:
    """How far the best place of any coefficient is from where it is: zero at a stationary point."""
    bends = np.diag(gram)
    own = bends > 1e-9
    slope, bend = (along - gram @ w)[own], bends[own]
    goal = prior.prox(w[own] + slope / bend, strength / bend)
    return float(np.abs(goal - w[own]).max(initial=0.0))


def gap_of_prior(
    gram: np.ndarray,
    along: np.ndarray,
    total: float,
    prior: AbstractSeparablePrior,
    strength: float,
    w: np.ndarray,
) -> float:
    """By how much ½ |y − Xw|² + strength Σ energy(w) is above its least at most; NaN if that is not known.

    The residuals, scaled until the conjugate is finite, are a point of the dual problem.
    """
    if not prior.convex:
        return math.nan
    slope = along - gram @ w
    steepest, limit = float(np.abs(slope).max(initial=0.0)), prior.steepest(strength)
    scale = min(1.0, limit / steepest) if steepest > 0 else 1.0
    residual = total - 2 * along @ w + w @ (gram @ w)
    primal = 0.5 * residual + strength * prior.energy(w).sum()
    dual = scale * (total - along @ w) - 0.5 * scale**2 * residual
    gap = primal - dual + prior.conjugate(scale * slope, strength).sum()
    # rounding can leave a little less than nothing
    return float(gap) if math.isnan(gap) else max(float(gap), 0.0)
