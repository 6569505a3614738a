"""Whether answers can be told apart by a linear rule."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import log_softmax

# a row this certain may be one that the coefficients diverge for
_CERTAIN = 0.99
# entries of the linear program above which only the coefficients themselves are asked
_LARGEST_PROGRAM = 1_000_000
# a step of Newton's method that moves no score by more than this ends at a maximum; where there is none,
# each step moves the scores of the rows that are told apart by about one
_LAST_STEP = 0.1
# a curvature of this part of the largest is none
_FLAT = 1e-10
# coefficients of which the curvature is looked at
_MOST_COEFFICIENTS = 1_000
# coefficients of standardised columns beyond this would turn the solver's rounding into margins
_STEEPEST = 1e3


def likelihood_is_unbounded(
    x: np.ndarray,
    answers: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    *,
    sample_weight: np.ndarray | None = None,
) -> bool:
    """Whether the likelihood of softmax regression has no maximum: the answers are separable.

    That is so if some linear rule is never wrong, and right for at least one row (Albert & Anderson 1984):

        (w_y − w_j)·x + b_y − b_j ≥ 0  for every row x with answer y, and every other answer j.

    Where all are positive the fitted coefficients are such a rule.  Where a step of Newton's method from
    them moves nothing, there is a maximum (the logistic loss is generalised self-concordant: Bach 2010).
    Else rules with equalities, which separate in part, are found by a linear program, and only if some row
    has become nearly certain; of tables too large for that, by the step alone.

    Args:
        x: rows, of standardised columns.
        answers: the number of the answer of each.
        weight, bias: coefficients of a long fit, a row and a number per answer.
        sample_weight: how much each row counted in that fit; None for the same.

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
    if not certain.any():
        return False
    counts = np.ones(n) if sample_weight is None else sample_weight / sample_weight.mean()
    moved = _moved_by_newton(np.column_stack([x, np.ones(n)]), answers, scores, counts)
    if moved is not None and moved < _LAST_STEP:
        return False
    if pairs * width > _LARGEST_PROGRAM:
        return moved is not None and moved > 0.5
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


def _moved_by_newton(
    design: np.ndarray, answers: np.ndarray, scores: np.ndarray, counts: np.ndarray
) -> float | None:
    """By how much the next step of Newton's method moves a score at most; None if it is too long to say.

    Infinite where the likelihood has become flat in a direction that moves scores.
    """
    k, width = scores.shape[1], design.shape[1]
    if (k - 1) * width > _MOST_COEFFICIENTS:
        return None
    # scores are those above the first answer's
    shares = np.exp(log_softmax(scores, axis=1))[:, 1:]
    slope = design.T @ (counts[:, None] * (shares - (answers[:, None] == np.arange(1, k))))
    curvature = np.empty((k - 1, width, k - 1, width))
    for i in range(k - 1):
        for j in range(i + 1):
            own = counts * shares[:, i] * ((i == j) - shares[:, j])
            curvature[i, :, j] = curvature[j, :, i] = (design * own[:, None]).T @ design
    values, vectors = np.linalg.eigh(curvature.reshape((k - 1) * width, -1))
    flat = values <= _FLAT * values[-1]
    # columns that repeat each other move no score
    directions = vectors.T.reshape(-1, k - 1, width)
    gram = design.T @ design / len(design)
    lengths = np.einsum("vkp,pq,vkq->v", directions, gram, directions)
    if (lengths[flat] > _FLAT * lengths.max()).any():
        return np.inf
    step = vectors[:, ~flat] @ ((vectors[:, ~flat].T @ slope.T.ravel()) / values[~flat])
    return float(np.abs(design @ step.reshape(k - 1, width).T).max())


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
