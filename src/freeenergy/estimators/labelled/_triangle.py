"""Least squares on the host: rows reduced to a triangle, from which all fits of a linear mean come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

# numbers that are summed at once: they stay in the cache
_BLOCK = 130_000
# numbers that are factorised at once, without sums of squares before
_AT_ONCE = 200_000
# sums of squares of no larger condition than this lose no more digits than they can spare
_WELL_CONDITIONED = 1e6
# columns whose condition is above this are solved again with residuals of more digits
_WORTH_REFINING = 1e4
_MOST_REFINED = 2_000_000
_REFINEMENTS = 6
# a direction of this part of the largest is none: a combination of columns that says nothing
_NO_VARIANCE = 1e-13
# a coefficient with this part in what cannot be told from the rows is not determined
_UNDETERMINED = 1e-6

Blocks = Callable[[], Iterator[np.ndarray]]


def joined_blocks(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, shift: np.ndarray, scale: np.ndarray
) -> Blocks:
    """√w [1, z, y] of rows in parts, where z = (x − shift) / scale; the answers are rescaled already."""
    root = None if (weight == 1).all() else np.sqrt(weight)
    width = 1 + x.shape[1] + y.shape[1]
    size, inverse = max(1, _BLOCK // width), 1 / scale

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            block = np.empty((len(x[part]), width))
            block[:, 0] = 1.0
            z = block[:, 1 : 1 + x.shape[1]]
            np.subtract(x[part], shift, out=z)
            z *= inverse
            block[:, 1 + x.shape[1] :] = y[part]
            if root is not None:
                block *= root[part, None]
            yield block

    return blocks


def triangle_of(blocks: Blocks, *, few: bool) -> np.ndarray:
    """R, upper triangular, with RᵀR = DᵀD for the rows D of all blocks.

    Many rows are summed as squares first, at half the cost; where these have too large a condition (or
    answers leave next to no residual) they are read again and reduced by orthogonal steps, block by block.
    """
    if not few:
        squares = sum_of_squares(blocks())
        found = _root_of(squares)
        if found is not None:
            return found
    found = np.zeros((0, 0))
    for block in blocks():
        found = found if len(found) else np.zeros((0, block.shape[1]))
        found = reduced(np.concatenate([found, block]) if len(found) else block)
    width = found.shape[1]
    return np.concatenate([found, np.zeros((width - len(found), width))]) if len(found) < width else found


def is_few(rows: int, width: int) -> bool:
    """Whether rows are reduced by orthogonal steps at once, which costs little."""
    return rows * width <= _AT_ONCE


def sum_of_squares(blocks: Iterator[np.ndarray]) -> np.ndarray:
    """DᵀD."""
    total = None
    for block in blocks:
        product = block.T @ block
        total = product if total is None else np.add(total, product, out=total)
    assert total is not None
    return total


def _root_of(squares: np.ndarray) -> np.ndarray | None:
    """R of RᵀR = `squares`; None where too many digits would be lost."""
    size = np.sqrt(np.diag(squares))
    size = np.where(size > 0, size, 1.0)
    even = squares / np.outer(size, size)
    values = np.linalg.eigvalsh(even)
    if values[-1] > _WELL_CONDITIONED * values[0]:
        return None
    return linalg.cholesky(even, check_finite=False) * size


def reduced(rows: np.ndarray) -> np.ndarray:
    """The triangle of a QR factorisation."""
    found: Any = np.linalg.qr(rows, mode="r")
    return found


class Triangle(NamedTuple):
    """What least squares needs to know of √w [1, z, y]: its triangle R, and how many columns z has.

    The first row is about the intercept, so that the rest is the triangle of centred columns.

    >>> rows = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 5.0]])
    >>> full = Triangle(triangle_of(lambda: iter([rows]), few=True), 1, True)
    >>> solution = full.solve()
    >>> solution.coefficients.round(6).ravel().tolist(), round(float(solution.residual[0, 0]), 6)
    ([2.0, 2.5], 1.5)
    """

    factor: np.ndarray
    columns: int
    intercept: bool

    @property
    def weight(self) -> float:
        """The sum of the weights."""
        return float(self.factor[0, 0] ** 2)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """The means and covariance of [z, y]."""
        centred = self.factor[1:, 1:]
        return self.factor[0, 1:] / self.factor[0, 0], centred.T @ centred / self.weight

    def standardised(self) -> tuple[Triangle, np.ndarray, np.ndarray]:
        """The same of (z − shift) / scale, of mean zero and standard deviation one, with shift and scale.

        Without an intercept there is no shift, and the scale is the root mean square.
        """
        p = self.columns
        shift = self.factor[0, 1 : 1 + p] / self.factor[0, 0] * self.intercept
        start = int(self.intercept)
        scale = np.sqrt((self.factor[start:, 1 : 1 + p] ** 2).sum(axis=0) / self.weight)
        scale = np.where(scale > 0, scale, 1.0)
        rows = self.factor.copy()
        rows[:, 1 : 1 + p] = (rows[:, 1 : 1 + p] - rows[:, :1] * shift) / scale
        return self._replace(factor=reduced(rows)), shift, scale

    @property
    def core(self) -> np.ndarray:
        """The triangle of [z, y], centred if there is an intercept."""
        return self.factor[1:, 1:] if self.intercept else reduced(self.factor[:, 1:])

    def with_intercept(self, slopes: np.ndarray) -> np.ndarray:
        """Coefficients, that of the intercept first if there is one, for the slopes of the columns."""
        if not self.intercept:
            return slopes
        head = self.factor[0]
        first = (head[1 + self.columns :] - head[1 : 1 + self.columns] @ slopes) / head[0]
        return np.concatenate([first[None], slopes])

    def root_with_intercept(self, root: np.ndarray) -> np.ndarray:
        """F of F Fᵀ = (DᵀD)⁺ with the intercept, for that of the slopes."""
        if not self.intercept:
            return root
        head = self.factor[0]
        first = np.concatenate([[1.0], -head[1 : 1 + self.columns] @ root]) / head[0]
        return np.concatenate([first[None], np.column_stack([np.zeros(len(root)), root])])

    def solve(self) -> Solution:
        """The least squares: the shortest of the coefficients that reach them."""
        p, core = self.columns, self.core
        left, right = core[:p, :p], core[:p, p:]
        rest = core[p:, p:]
        u, s, vt = np.linalg.svd(left)
        kept = s > _NO_VARIANCE * (s[0] if p else 0.0)
        rank = int(kept.sum())
        condition = float(s[0] / s[kept][-1]) if rank else 1.0
        if rank == p and condition > _WORTH_REFINING:
            slopes = linalg.solve_triangular(left, right, check_finite=False)
            root = linalg.solve_triangular(left, np.eye(p), check_finite=False)
            determined = np.ones(p, bool)
        else:
            root = vt[kept].T / s[kept]
            slopes = root @ (u[:, kept].T @ right)
            if rank < p:
                rest = np.concatenate([rest, right - left @ slopes])
            null = vt[~kept]
            determined = np.sqrt((null**2).sum(axis=0)) < _UNDETERMINED
        return Solution(
            self.with_intercept(slopes),
            self.root_with_intercept(root),
            rest.T @ rest,
            rank + self.intercept,
            np.concatenate([np.ones(int(self.intercept), bool), determined]),
            condition,
        )


class Solution(NamedTuple):
    """Least squares of rescaled columns.

    Attributes:
        coefficients: (design, outputs), the intercept first if there is one.
        root: F of F Fᵀ = (DᵀD)⁺, of which the covariance of coefficients is a multiple.
        residual: squares and products of the residuals of the outputs, summed.
        rank: how many coefficients the rows determine.
        determined: which.
        condition: the largest over the smallest singular value of the columns.
    """

    coefficients: np.ndarray
    root: np.ndarray
    residual: np.ndarray
    rank: int
    determined: np.ndarray
    condition: float

    def worth_refining(self, numbers: int) -> bool:
        """Whether rounding has cost digits that can be had back."""
        whole = bool(self.determined.all())
        return whole and self.condition > _WORTH_REFINING and numbers <= _MOST_REFINED


def refined(design: np.ndarray, answers: np.ndarray, start: Solution) -> Solution:
    """A solution that is right to the last digits, whatever the condition (Björck's iteration).

    The residual r and the coefficients β solve r + Dβ = y, Dᵀr = 0; both are corrected by one factorisation
    in 64 bits, with what is left over computed in extended precision.

    Args:
        design: D with its weights, of `numpy.longdouble`.
        answers: y likewise.
        start: coefficients to begin with.
    """
    q, r = np.linalg.qr(design.astype(float))
    beta = start.coefficients.astype(np.longdouble)
    gap = answers - design @ beta
    last = np.inf
    for _ in range(_REFINEMENTS):
        f = (answers - gap - design @ beta).astype(float)
        g = (-(design.T @ gap)).astype(float)
        h = linalg.solve_triangular(r, g, trans=1, check_finite=False)
        along = q.T @ f
        step = linalg.solve_triangular(r, along - h, check_finite=False)
        moved = float(np.abs(step).max(initial=0.0))
        if not moved < last:
            break
        beta, gap, last = beta + step, gap + (f - q @ along + q @ h), moved
    return start._replace(
        coefficients=beta.astype(float),
        root=linalg.solve_triangular(r, np.eye(len(r)), check_finite=False),
        residual=np.asarray(gap.T @ gap, float),
    )
