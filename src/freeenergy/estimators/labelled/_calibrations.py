"""Maps from probabilities that a classifier says to those that come true."""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
import numpy as np
from jax import Array
from scipy import special
from sklearn.isotonic import IsotonicRegression

from ..._core import on_device, parameter, positive
from ._newton import Point, newton

# a probability of zero says too much to be put right: less than this is taken for it
_LEAST = -36.0


class AbstractCalibrationMap(eqx.Module):
    """From log-probabilities of each answer to better ones, on the host."""

    @abc.abstractmethod
    def __call__(self, logs: np.ndarray) -> np.ndarray:
        """Log-probabilities of each answer, (rows, answers), of sum one."""


@dataclasses.dataclass(frozen=True)
class AbstractCalibration(abc.ABC):
    """A way to make calibrated probabilities of those that a classifier gave to rows it had not seen."""

    @abc.abstractmethod
    def __call__(self, logs: np.ndarray, answers: np.ndarray, weight: np.ndarray) -> AbstractCalibrationMap:
        """The map that suits log-probabilities (rows, answers), the right answers and weights."""


def _floored(logs: np.ndarray) -> np.ndarray:
    return special.log_softmax(np.maximum(logs, _LEAST), axis=1)


def _log_odds(logs: np.ndarray) -> np.ndarray:
    """log p − log(1 − p) of each answer."""
    logs = _floored(logs)
    if logs.shape[1] == 2:
        gap = logs[:, 1] - logs[:, 0]
        return np.column_stack([-gap, gap])
    with np.errstate(divide="ignore"):
        rest = np.log(-np.expm1(logs))
    return logs - np.maximum(rest, _LEAST)


class Identity(AbstractCalibrationMap):
    """Leaves probabilities as they are."""

    def __call__(self, logs: np.ndarray) -> np.ndarray:
        return logs


class Tempered(AbstractCalibrationMap):
    """p ∝ p^{1/T}."""

    temperature: Array = parameter(positive)

    def __call__(self, logs: np.ndarray) -> np.ndarray:
        return special.log_softmax(_floored(logs) / float(self.temperature), axis=1)


@dataclasses.dataclass(frozen=True)
class Temperature(AbstractCalibration):
    """p ∝ p^{1/T} with one temperature T, by the largest likelihood: the order of answers stays.

    >>> logs = np.log([[0.9, 0.1]] * 10)
    >>> found = Temperature()(logs, np.array([0] * 7 + [1] * 3), np.ones(10))
    >>> np.exp(found(logs[:1])).round(4).tolist()
    [[0.7, 0.3]]
    """

    def __call__(self, logs: np.ndarray, answers: np.ndarray, weight: np.ndarray) -> Tempered:
        logs = _floored(logs)
        right = logs[np.arange(len(logs)), answers]

        def at(b: np.ndarray) -> Point:
            # in the logarithm of 1/T, which any number can be
            beta = np.exp(b[0])
            chances = special.softmax(beta * logs, axis=1)
            value = weight @ (beta * right - special.logsumexp(beta * logs, axis=1))
            average = np.sum(chances * logs, axis=1)
            slope = beta * (weight @ (right - average))
            spread = weight @ (np.sum(chances * logs**2, axis=1) - average**2)
            return Point(float(value), np.array([slope]), np.array([[beta**2 * spread + 1e-300]]))

        found = newton(at, np.zeros(1), max_iter=100, tol=1e-12, least=np.full(1, -10.0))
        return Tempered(on_device(np.exp(-np.minimum(found.coefficients[0], 10.0))))


class Sigmoids(AbstractCalibrationMap):
    """σ(a_y log-odds_y + b_y) for each answer, made to sum to one."""

    slope: Array = parameter()
    shift: Array = parameter()

    def __call__(self, logs: np.ndarray) -> np.ndarray:
        each = special.log_expit(_log_odds(logs) * np.asarray(self.slope) + np.asarray(self.shift))
        return special.log_softmax(each, axis=1)


@dataclasses.dataclass(frozen=True)
class Sigmoid(AbstractCalibration):
    """Platt's scaling: logistic regression of each answer on its log-odds, made to sum to one.

    Answers are smoothed as Platt has it, (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2), so that nothing is certain.

    >>> logs = np.log([[0.9, 0.1]] * 8 + [[0.1, 0.9]] * 8)
    >>> found = Sigmoid()(logs, np.array([0, 1] * 8), np.ones(16))
    >>> np.exp(found(logs[:1])).round(4).tolist()
    [[0.5, 0.5]]
    """

    def __call__(self, logs: np.ndarray, answers: np.ndarray, weight: np.ndarray) -> Sigmoids:
        odds = _log_odds(logs)
        slopes, shifts = np.empty((2, odds.shape[1]))
        for y, column in enumerate(odds.T):
            hit = answers == y
            many, few = float(weight[hit].sum()), float(weight[~hit].sum())
            target = np.where(hit, (many + 1) / (many + 2), 1 / (few + 2))
            design = np.column_stack([np.ones(len(column)), column])

            def at(b: np.ndarray, design: np.ndarray = design, target: np.ndarray = target) -> Point:
                eta = design @ b
                chance = special.expit(eta)
                value = weight @ (target * eta - np.logaddexp(0, eta))
                information = (design * (weight * chance * (1 - chance))[:, None]).T @ design
                return Point(float(value), (weight * (target - chance)) @ design, information)

            shifts[y], slopes[y] = newton(at, np.array([0.0, 1.0]), max_iter=100, tol=1e-12).coefficients
        return Sigmoids(on_device(slopes), on_device(shifts))


class Steps(AbstractCalibrationMap):
    """A rising curve for each answer, with straight lines between points, made to sum to one."""

    places: tuple[Array, ...]
    values: tuple[Array, ...]

    def __call__(self, logs: np.ndarray) -> np.ndarray:
        chances = np.exp(_floored(logs))
        each = [
            np.interp(column, np.asarray(x), np.asarray(v))
            for column, x, v in zip(chances.T, self.places, self.values, strict=True)
        ]
        with np.errstate(divide="ignore"):
            found = np.log(np.column_stack(each))
        none = ~np.isfinite(found).any(axis=1, keepdims=True)
        # where every answer is said to be impossible nothing is known
        return np.where(
            none, -np.log(found.shape[1]), special.log_softmax(np.where(none, 0.0, found), axis=1)
        )


@dataclasses.dataclass(frozen=True)
class Isotonic(AbstractCalibration):
    """A rising curve for each answer: isotonic regression on its probability, made to sum to one.

    Shares of the pieces of the curve have `prior` rows more of either kind, so that nothing is certain:
    with `prior=0` it is what scikit-learn has, with probabilities of zero for which a mistake costs
    infinitely many bits.

    Args:
        prior: how many more.

    >>> logs = np.log([[0.9, 0.1]] * 9 + [[0.4, 0.6]] * 9)
    >>> found = Isotonic()(logs, np.array([0] * 9 + [1] * 6 + [0] * 3), np.ones(18))
    >>> np.exp(found(logs[[0, -1]])).round(4).tolist()
    [[0.95, 0.05], [0.35, 0.65]]
    """

    prior: float = 0.5

    def __post_init__(self) -> None:
        if not self.prior >= 0:
            raise ValueError(f"The 'prior' of Isotonic must be at least 0. Got {self.prior!r} instead.")

    def __call__(self, logs: np.ndarray, answers: np.ndarray, weight: np.ndarray) -> Steps:
        places, values = [], []
        for y, column in enumerate(np.exp(_floored(logs)).T):
            x, v = self._curve(column, (answers == y).astype(float), weight)
            places.append(on_device(x))
            values.append(on_device(v))
        return Steps(tuple(places), tuple(values))

    def _curve(
        self, chance: np.ndarray, hit: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        used = weight > 0
        chance, hit, weight = chance[used], hit[used], weight[used]
        order = np.argsort(chance, kind="stable")
        chance, hit, weight = chance[order], hit[order], weight[order]
        level = IsotonicRegression(y_min=0.0, y_max=1.0).fit(chance, hit, weight).predict(chance)
        # pieces of one level
        piece = np.concatenate([[0], np.cumsum(np.diff(level) > 1e-12)])
        first = np.concatenate([[0], np.flatnonzero(np.diff(piece)) + 1])
        last = np.concatenate([first[1:] - 1, [len(piece) - 1]])
        size, total = np.bincount(piece, weight), np.bincount(piece, weight * hit)
        share = (total + self.prior) / (size + 2 * self.prior)
        # small pieces have moved more: let the curve rise again
        share = (
            IsotonicRegression()
            .fit(np.arange(len(share)), share, size + 2 * self.prior)
            .predict(np.arange(len(share)))
        )
        x = np.column_stack([chance[first], chance[last]]).ravel()
        v = np.repeat(share, 2)
        keep = np.concatenate([[True], np.diff(x) > 0])
        return x[keep], v[keep]
