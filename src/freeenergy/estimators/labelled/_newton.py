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
# eigenvalues below this part of the largest are none
_SINGULAR = 1e-14
# roots of pivots, below which Cholesky's factor has lost half its digits
_NEARLY_SINGULAR = 1e-7
_POSV, _POTRF, _POTRI = linalg.get_lapack_funcs(("posv", "potrf", "potri"), dtype=np.float64)


class Point(NamedTuple):
    """A log-likelihood with its derivatives at some coefficients.

    Attributes:
        value: the log-likelihood.
        slope: its gradient.
        information: minus its second derivatives, or what they are on average.
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
