"""Newton's method on the host, for concave likelihoods of few coefficients: NumPy and LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from ..._core import Status

# rows whose numbers stay in the cache
BLOCK = 2048
_HALVINGS = 40
# of a sum of logarithms, what rounding may take away
_ROUNDING = 1e-11
# of the tolerance, how short a step that is foretold has to be
_SURE = 1e-2
# the same where standard errors are about right only
_NEARLY_SURE = 0.1
# eigenvalues below this part of the largest are none
_SINGULAR = 1e-14
# roots of pivots, below which Cholesky's factor has lost half its digits
_NEARLY_SINGULAR = 1e-7
# steps by the information of some rows, and by how much each has to shorten the next, squared
_MOST_QUASI, _LEAST_SHRINKAGE = 15, 5.0
_POSV, _POTRF, _POTRI, _POTRS = linalg.get_lapack_funcs(
    ("posv", "potrf", "potri", "potrs"), dtype=np.float64
)


class Point(NamedTuple):
    """A log-likelihood with its derivatives at some coefficients.

    Attributes:
        value: the log-likelihood.
        slope: its gradient.
        information: minus its second derivatives, or what they are on average; empty where they were not
            asked for.
    """

    value: float
    slope: np.ndarray
    information: np.ndarray


class Ascent(NamedTuple):
    """Where Newton's method ended.

    Attributes:
        coefficients: the last ones.
        at: the log-likelihood there.
        n_iter: steps done.
        status: why it stopped.
        history: the log-likelihood before the first step and after each.
        held: which coefficients came to their lower bound, and stay there.
    """

    coefficients: np.ndarray
    at: Point
    n_iter: int
    status: Status
    history: np.ndarray
    held: np.ndarray

    def after(self, before: Ascent) -> Ascent:
        """The same with the steps that led to where it began."""
        return self._replace(
            n_iter=before.n_iter + self.n_iter, history=np.append(before.history, self.history[1:])
        )


def diagonal_of(square: np.ndarray) -> np.ndarray:
    """The diagonal of a matrix, to be written to.

    >>> square = np.zeros((2, 2))
    >>> diagonal_of(square)[:] += [1.0, 2.0]
    >>> square.tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    return np.einsum("ii->i", square)


def solved(information: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The step of Newton's method; where the curvature is not positive, that of its absolute value."""
    factor, step, wrong = _POSV(information, slope)
    if not wrong:
        diagonal = np.diag(factor)
        if diagonal.min() > _NEARLY_SINGULAR * diagonal.max():
            return step
    values, vectors = np.linalg.eigh(information)
    size = np.abs(values)
    size = np.where(size > _SINGULAR * size.max(), size, np.inf)
    return vectors @ ((vectors.T @ slope) / size)


def inverse(information: np.ndarray) -> np.ndarray:
    """The covariance that goes with an information matrix; directions without any have no variance."""
    factor, wrong = _POTRF(information)
    if not wrong:
        found, wrong = _POTRI(factor)
        if not wrong:
            return np.triu(found) + np.triu(found, 1).T
    return np.asarray(linalg.pinvh(information, rtol=_SINGULAR))


def quasi_newton(
    evaluate: Callable[[np.ndarray], Point],
    start: np.ndarray,
    information: np.ndarray,
    *,
    max_iter: int,
    tol: float,
) -> Ascent:
    """Raises a log-likelihood by steps that take the information from elsewhere, such as some of the rows.

    Each step tells how far off that is along itself (BFGS), and the next one goes by it: where it is about
    right a step leaves a small part of the way.  It stops where it is worth no more: with steps that leave
    too much, fall, or are too many, of which Newton's method takes fewer.

    Args:
        evaluate: the log-likelihood at coefficients and its slope.
        start: the first coefficients.
        information: about that at the maximum.
        max_iter, tol: as of `newton`; lengths in standard errors are those by this information.

    >>> quadratic = lambda b: Point(-float(b @ b), -2 * b, np.zeros((0, 0)))
    >>> found = quasi_newton(quadratic, np.ones(3), 1.7 * np.eye(3), max_iter=20, tol=1e-12)
    >>> found.status is Status.CONVERGED, bool(np.abs(found.coefficients).max() < 1e-6)
    (True, True)
    """
    point, at = start, evaluate(start)
    history, status, last = [at.value], Status.LIMIT, np.inf
    factor, wrong = _POTRF(information)
    pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
    while not wrong and len(history) <= min(max_iter, _MOST_QUASI):
        step = _by_pairs(at.slope, pairs, factor)
        gain = float(at.slope @ step)
        if not gain < last / _LEAST_SHRINKAGE:
            break
        new = point + step
        # gains are a, b, about b (b / a), …; and in other standard errors than those of all rows
        next_gain = gain**2 / last if np.isfinite(last) else np.inf
        if min(gain, next_gain) <= _NEARLY_SURE * tol:
            point, status = new, Status.CONVERGED
            break
        found = evaluate(new)
        if not found.value >= at.value - _ROUNDING * (1 + abs(at.value)):
            break
        turn = at.slope - found.slope
        along = float(turn @ step)
        if along > 0:
            pairs.append((step, turn, along))
        point, at, last = new, found, gain
        history.append(at.value)
    return Ascent(point, at, len(history) - 1, status, np.array(history), np.zeros(len(start), bool))


def _by_pairs(
    slope: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray, float]], factor: np.ndarray
) -> np.ndarray:
    """The step up a slope, by steps with what they changed it by, and a factor of the information."""
    rest, shares = slope, []
    for step, turn, along in reversed(pairs):
        shares.append(float(step @ rest) / along)
        rest = rest - shares[-1] * turn
    found, _ = _POTRS(factor, rest)
    for (step, turn, along), share in zip(pairs, reversed(shares), strict=True):
        found = found + (share - float(turn @ found) / along) * step
    return found


def newton(
    evaluate: Callable[[np.ndarray], Point],
    start: np.ndarray,
    *,
    max_iter: int,
    tol: float,
    least: np.ndarray | None = None,
    quadratic: bool = False,
) -> Ascent:
    """Raises a log-likelihood by Newton's method, or Fisher scoring, with halved steps where it fell.

    Args:
        evaluate: the log-likelihood at coefficients; NaN or −∞ where there is none.
        start: the first coefficients.
        max_iter: the most steps.
        tol: it stops with a step of which slopeᵀ information⁻¹ slope, its squared length in standard
            errors, is at most this.
        least: bounds from below, at which coefficients are held.
        quadratic: whether the information is the curvature itself, so that the squared length of a step is
            about a constant times the square of that of the step before: then it stops as soon as the next
            step would be that short.

    >>> def log_likelihood(b):  # of 3 successes in 4 trials, by their log-odds
    ...     p = 1 / (1 + np.exp(-b[0]))
    ...     value = 3 * np.log(p) + np.log(1 - p)
    ...     return Point(value, np.array([3 - 4 * p]), np.array([[4 * p * (1 - p)]]))
    >>> found = newton(log_likelihood, np.zeros(1), max_iter=20, tol=1e-10)
    >>> bool(np.isclose(found.coefficients[0], np.log(3))), found.n_iter < 6
    (True, True)
    """
    point, at = start, evaluate(start)
    if not len(start):
        return Ascent(point, at, 0, Status.CONVERGED, np.array([at.value]), np.zeros(0, bool))
    history, status = [at.value], Status.LIMIT
    held, last = np.zeros(len(start), bool), -1.0
    for _ in range(max_iter):
        slope, information = at.slope, at.information
        if held.any():
            slope = np.where(held, 0.0, slope)
            information = np.where(held[:, None] | held, np.eye(len(held)), information)
        if not (np.isfinite(slope).all() and np.isfinite(information).all()):
            status = Status.NON_FINITE
            break
        step = solved(information, slope)
        gain = float(slope @ step)
        # gains are a, b, about b (b / a)², …
        next_gain = gain * (gain / last) ** 2 if quadratic and last > 0 else np.inf
        if gain <= tol or next_gain <= _SURE * tol:
            # the last step needs no look at where it leads
            point = point + step if least is None else np.maximum(point + step, least)
            status = Status.CONVERGED
            break
        room = _ROUNDING * (1 + abs(at.value))
        size = 1.0
        for _ in range(_HALVINGS):
            new = point + size * step
            if least is not None:
                new = np.maximum(new, least)
            found = evaluate(new)
            if found.value >= at.value - room:
                break
            size /= 2
        else:
            # rounding is all that is left, or there is nowhere to go
            status = Status.CONVERGED if gain <= 1e3 * room else Status.NON_FINITE
            break
        if least is not None:
            held |= new <= least
        point, at, last = new, found, gain if size == 1.0 else -1.0
        history.append(at.value)
    return Ascent(point, at, len(history) - 1, status, np.array(history), held)
