"""Whether answers can be told apart by a linear rule."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import log_softmax

# a row this certain may be one that the coefficients diverge for
_CERTAIN = 0.99
# entries of the linear program above which only the coefficients themselves are asked
_LARGEST_PROGRAM = 20_000_000
# coefficients of standardised columns beyond this would turn the solver's rounding into margins
_STEEPEST = 1e3


def likelihood_is_unbounded(
    x: np.ndarray, answers: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> bool:
    """Whether the likelihood of softmax regression has no maximum: the answers are separable.

    That is so if some linear rule is never wrong, and right for at least one row (Albert & Anderson 1984):

        (w_y − w_j)·x + b_y − b_j ≥ 0  for every row x with answer y, and every other answer j.

    Where all are positive the fitted coefficients are such a rule; rules with equalities, which separate in
    part, are found by a linear program, and only if some row has become nearly certain.

    Args:
        x: rows, of standardised columns.
        answers: the number of the answer of each.
        weight, bias: coefficients of a long fit, a row and a number per answer.

    >>> x, steep = np.array([[-1.0], [1.0], [2.0]]), np.array([[-9.0], [9.0]])
    >>> likelihood_is_unbounded(x, np.array([0, 1, 1]), steep, np.zeros(2))
    True
    >>> likelihood_is_unbounded(x, np.array([0, 1, 0]), np.array([[0.2], [-0.2]]), np.zeros(2))
    False
    """
    weight, bias = np.asarray(weight), np.asarray(bias)
    scores = x @ weight.T + bias
    n, k = scores.shape
    if k < 2:
        return False
    margins = scores[np.arange(n), answers][:, None] - scores
    others = np.arange(k) != answers[:, None]
    if (margins[others] > 0).all():
        return True
    certain = np.exp(log_softmax(scores, axis=1)[np.arange(n), answers]) > _CERTAIN
    pairs, width = n * (k - 1), k * (x.shape[1] + 1)
    if not certain.any() or pairs * width > _LARGEST_PROGRAM:
        return False
    row, other = np.nonzero(others)
    known = np.column_stack([x, np.ones(n)])[row]
    design = np.zeros((pairs, k, known.shape[1]))
    design[np.arange(pairs), answers[row]] = known
    design[np.arange(pairs), other] = -known
    design = design.reshape(pairs, width)
    # the largest sum of margins that are all non-negative, each counted up to one: zero, or at least one
    cost = np.concatenate([np.zeros(width), -np.ones(pairs)])
    limits = sparse.hstack([sparse.csr_array(-design), sparse.eye_array(pairs)])
    bounds = [(-_STEEPEST, _STEEPEST)] * width + [(0, 1)] * pairs
    found = linprog(cost, A_ub=limits, b_ub=np.zeros(pairs), bounds=bounds, method="highs")
    return found.status == 0 and -found.fun > 0.5


def linear_likelihood_is_unbounded(design: np.ndarray, sides: np.ndarray) -> bool:
    """Whether coefficients of a linear predictor can grow for ever without the likelihood falling.

    That is so if some direction d has

        design_i · d ≤ 0 where an answer is the least that can be (no counts, no successes),
        design_i · d ≥ 0 where it is the largest (all trials successes),
        design_i · d = 0 elsewhere,

    and is not zero for all rows.  It is found by linear algebra, and by a linear program if that leaves
    a choice.

    Args:
        design: rows, with a column of ones if there is a constant.
        sides: −1 where an answer is the least that can be, 1 where it is the largest, 0 elsewhere.

    >>> group = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    >>> linear_likelihood_is_unbounded(group, np.array([0, -1, -1, -1]))  # a group without any count
    True
    >>> linear_likelihood_is_unbounded(group, np.array([0, -1, 0, -1]))
    False
    """
    between = design[sides == 0]
    values, vectors = np.linalg.eigh(between.T @ between)
    free = vectors[:, values <= 1e-10 * max(values[-1], 1.0)]
    if not free.shape[1]:
        return False
    edge = np.unique((design[sides != 0] * sides[sides != 0, None]) @ free, axis=0)
    rows, width = edge.shape
    if rows * width > _LARGEST_PROGRAM:
        return False
    cost = np.concatenate([np.zeros(width), -np.ones(rows)])
    limits = sparse.hstack([sparse.csr_array(-edge), sparse.eye_array(rows)])
    bounds = [(-_STEEPEST, _STEEPEST)] * width + [(0, 1)] * rows
    found = linprog(cost, A_ub=limits, b_ub=np.zeros(rows), bounds=bounds, method="highs")
    return found.status == 0 and -found.fun > 0.5
