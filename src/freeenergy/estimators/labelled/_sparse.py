"""Least squares with few coefficients: the lasso, the elastic net and other separable priors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from ..._core import Fit, Status, has_nan
from ...shell import AbstractDensity, Coefficients, Scaling, check_instance, check_int, check_real
from ...shell._rows import unit_free_hashes
from ._linear_mean import AbstractLinearMean, Data, rows_of
from ._newton import diagonal_of
from ._priors import AbstractSeparablePrior, ElasticNetPrior, gap_of_prior, proximal, stationarity
from ._triangle import Triangle, joined_blocks, sum_of_squares

# its functions are not known to type checkers
_LAPACK: Any = lapack
_ALPHAS = 100
# the least strength of a path, in units of that at which the first coefficient appears
_LEAST = 1e-3
_FOLDS = 5
# a combination of columns with this part of the largest variance is none
_DEPENDENT = 1e-11
# a slope beyond the threshold by this part of it moves a coefficient
_SLACK = 1e-9


class SparsePath(NamedTuple):
    """Fits with one strength of the prior after another.

    Attributes:
        alphas: the strengths, descending.
        coef: the coefficients for each, in the units of the data.
        dual_gap: by how much each objective is above its least value at most, for answers of variance one;
            NaN where the prior is not convex.
        n_iter: how many linear systems were solved, or passes over coefficients made, for each.
    """

    alphas: np.ndarray
    coef: np.ndarray
    dual_gap: np.ndarray
    n_iter: np.ndarray


class SparseRegression(AbstractLinearMean):
    """y = w x + b + e with few coefficients that are not zero: the lasso, the elastic net, other priors.

    ½ mean (y − w x − b)² + α ρ Σ |w| + ½ α (1 − ρ) Σ w² is least, for columns and answers of standard
    deviation one: the largest posterior under Laplace's prior (ρ = 1).  At α ρ = 1 and beyond no
    coefficient is left.  Found by active sets: those that are not zero solve a linear system exactly.

    With another `prior`, ½ mean (y − w x − b)² + α Σ energy(w) is lowered by its proximal operator, one
    coefficient after the other: to the least value where it is convex, else to a point from which no
    coefficient alone gets lower.

    Args:
        alpha: α; None for the one with the least squared residuals of rows left out, in five folds.
        l1_ratio: ρ, from 0 (excluded) to 1; of the elastic net alone.
        prior: None for the elastic net; else `LogarithmicPrior`, `StudentPrior`, `SpikePrior` or
            `ElasticNetPrior` of `freeenergy.estimators`, or an `AbstractSeparablePrior` of one's own.
        fit_intercept: whether there is a b.
        max_iter: how many linear systems are solved, or passes over the coefficients made, for one α at
            most.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian, whose marginals are exact.

    The law of an answer is Student's, with n − coefficients degrees of freedom, about these coefficients,
    and as wide as least squares with the columns that are kept would have it.  It does not know that the
    data have chosen these columns, and coefficients have no standard errors.

    Attributes:
        alpha_: the strength that was taken.
        dual_gap_: by how much the objective is above its least value at most; NaN where the prior is not
            convex.
        stationarity_: how far the best place of any one coefficient is from where it is, given the others.
        covariance_: of least squares with the columns that are not left out; zero for the others.
        standard_errors_: NaN, since the data have chosen the columns.
        residual_dof_: rows less coefficients, the least of all outputs.
        design_root_, noise_covariance_, between_, determined_: as of `LinearRegression`.
        coef_, intercept_, columns_, noise_, inputs_, model_, …: as of `LinearRegression`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 8))
    >>> model = SparseRegression(0.2).fit(X, 2 * X[:, 3] + 0.1 * rng.normal(size=50))
    >>> np.flatnonzero(model.coef_).tolist(), bool(model.dual_gap_ < 1e-12)
    ([3], True)
    """

    alpha_: float
    dual_gap_: float
    stationarity_: float

    def __init__(
        self,
        alpha: float | None = None,
        *,
        l1_ratio: float = 1.0,
        prior: AbstractSeparablePrior | None = None,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.alpha, self.l1_ratio, self.fit_intercept = alpha, l1_ratio, fit_intercept
        self.prior, self.max_iter, self.inputs = prior, max_iter, inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "alpha", closed=False, optional=True)
        check_int(self, "max_iter")
        check_real(self, "l1_ratio", 0.0, math.nextafter(1.0, 2.0), closed=False)
        check_instance(self, "prior", AbstractSeparablePrior, optional=True)

    def _from_triangle(self, triangle: Triangle, rows: float, data: Data | None = None) -> Fit:
        p, core = triangle.columns, triangle.core
        gram = core[:, :p].T @ core[:, :p] / rows
        along = core[:, :p].T @ core[:, p:] / rows
        total = (core[:, p:] ** 2).sum(axis=0) / rows
        self.alpha_ = (
            float(self.alpha) if self.alpha is not None else self._of_least_residuals(gram, along, data)
        )
        slopes, gap, steps = self._solved(gram, along, total, self.alpha_)
        self.dual_gap_ = gap
        prior = ElasticNetPrior(self.l1_ratio) if self.prior is None else self.prior
        outputs = zip(along.T, slopes.T, strict=True)
        self.stationarity_ = max(stationarity(gram, c, prior, self.alpha_, w) for c, w in outputs)
        squares = total - 2 * (slopes * along).sum(axis=0) + (slopes * (gram @ slopes)).sum(axis=0)
        left = rows - (slopes != 0).sum(axis=0) - self.fit_intercept
        good = left > 0
        noise = np.where(good, np.maximum(squares, 0.0) * rows / np.where(good, left, 1.0), 0.0)
        self.residual_dof_ = float(np.maximum(left, 0.0).min())
        self.noise_covariance_ = np.diag(noise)
        kept = zip(noise, slopes.T != 0, strict=True)
        self.between_ = np.stack([own * _spread_of_kept(triangle, gram * rows, part) for own, part in kept])
        size = p + self.fit_intercept
        self.design_root_, self.determined_ = np.zeros((size, 0)), np.zeros(size, bool)
        found = self._keep(triangle.with_intercept(slopes), self.noise_covariance_)
        status = Status.CONVERGED if steps < self.max_iter else Status.LIMIT
        return dataclasses.replace(found, n_iter=steps, status=status)

    def _solved(
        self,
        gram: np.ndarray,
        along: np.ndarray,
        total: np.ndarray,
        alpha: float,
        start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float, int]:
        """Slopes of each output, the largest duality gap, and the linear systems that it took."""
        l1, l2 = alpha * self.l1_ratio, alpha * (1 - self.l1_ratio)
        slopes, gaps, steps = np.zeros_like(along), [0.0], 0
        for output in range(along.shape[1]):
            first = np.zeros(len(gram)) if start is None else start[:, output]
            c, square = along[:, output], float(total[output])
            if self.prior is None:
                w, own = elastic_net(gram, c, l1, l2, first, self.max_iter)
                gap = duality_gap(gram, c, square, l1, l2, w)
            else:
                w, own = proximal(gram, c, self.prior, alpha, first, self.max_iter)
                gap = gap_of_prior(gram, c, square, self.prior, alpha, w)
            slopes[:, output] = w
            gaps.append(gap)
            steps = max(steps, own)
        return slopes, float(np.max(gaps)), steps

    def _strengths(self, along: np.ndarray) -> np.ndarray:
        """Those of a path, from that at which the first coefficient appears."""
        most = float(np.abs(along).max(initial=0.0)) / self.l1_ratio or 1.0
        return np.geomspace(most, _LEAST * most, _ALPHAS)

    def _of_least_residuals(self, gram: np.ndarray, along: np.ndarray, data: Data | None) -> float:
        """α by rows that are left out of the fit, fold by fold."""
        if data is None:
            raise ValueError("SparseRegression.fit takes an 'alpha' with Chunks: rows are read once.")
        x, y, weight = data
        alphas = self._strengths(along)
        folds = _folds(np.column_stack([self.scaling_.apply(x), y]))
        parts = [
            sum_of_squares(
                joined_blocks(x[folds == k], y[folds == k], weight[folds == k], *self.scaling_)()
            )
            for k in np.unique(folds)
        ]
        if len(parts) < 2:
            return float(alphas[0])
        whole = np.sum(parts, axis=0)
        losses = np.zeros(len(alphas))
        for part in parts:
            losses += self._residuals_of_fold(whole - part, part, alphas)
        return float(alphas[np.argmin(losses)])

    def _residuals_of_fold(self, rest: np.ndarray, part: np.ndarray, alphas: np.ndarray) -> np.ndarray:
        """The squared residuals of the sums `part` in a fit to `rest`, for each α."""
        outputs = len(np.atleast_1d(self.answer_scaling_.scale))
        p = len(rest) - 1 - outputs
        rows, means = rest[0, 0], rest[0, 1:] / rest[0, 0]
        centred = rest[1:, 1:] / rows
        if self.fit_intercept:
            centred = centred - np.outer(means, means)
        else:
            means = np.zeros_like(means)
        gram, along, total = centred[:p, :p], centred[:p, p:], np.diag(centred[p:, p:])
        slopes, losses = None, []
        for alpha in alphas:
            slopes, _, _ = self._solved(gram, along, total, float(alpha), slopes)
            offset = means[p:] - means[:p] @ slopes
            # y − b − w z of the sums of [1, z, y]
            gap = np.concatenate([-offset[None], -slopes, np.eye(outputs)])
            losses.append(float(np.einsum("ik,ij,jk->", gap, part, gap)))
        return np.array(losses)

    def path(self, X: Any, y: Any, alphas: Any = None, sample_weight: Any = None) -> SparsePath:
        """Fits with one α after another, each from the one before.

        Args:
            X, y, sample_weight: complete rows and their answers, as for `fit`, which need not be called.
            alphas: positive numbers; None for a hundred, from that at which the first coefficient appears
                to a thousandth of it.

        >>> X = np.random.default_rng(0).normal(size=(40, 3))
        >>> found = SparseRegression().path(X, X[:, 0] - X[:, 2])
        >>> (found.coef != 0).sum(axis=1)[[0, -1]].tolist(), found.coef[-1].round(2).tolist()
        ([0, 2], [1.0, 0.0, -1.0])
        """
        self._check_parameters()
        fresh: Any = type(self)(
            l1_ratio=self.l1_ratio,
            prior=self.prior,
            fit_intercept=self.fit_intercept,
            max_iter=self.max_iter,
        )
        data = rows_of(fresh.intake.fitting(fresh, X, y=y, sample_weight=sample_weight).events)
        if has_nan(data[0]):
            raise ValueError("SparseRegression.path takes complete rows only.")
        triangle = fresh._triangle_of_rows(*data)
        p, core, rows = triangle.columns, triangle.core, float(data[2].sum())
        gram = core[:, :p].T @ core[:, :p] / rows
        along = core[:, :p].T @ core[:, p:] / rows
        total = (core[:, p:] ** 2).sum(axis=0) / rows
        strengths = fresh._strengths(along) if alphas is None else np.asarray(alphas, float)
        if strengths.ndim != 1 or not len(strengths) or not ((strengths > 0) & (strengths < np.inf)).all():
            raise ValueError(
                f"The 'alphas' of SparseRegression.path must be positive numbers. Got {alphas!r}."
            )
        strengths = np.sort(strengths)[::-1]
        slopes, found, gaps, steps = None, [], [], []
        for alpha in strengths:
            slopes, gap, own = fresh._solved(gram, along, total, float(alpha), slopes)
            found.append(slopes.T * fresh.answer_scaling_.scale[:, None] / fresh.scaling_.scale)
            gaps.append(gap)
            steps.append(own)
        coef = np.stack(found).reshape(len(strengths), *fresh.answer_shape_, -1)
        return SparsePath(strengths, coef, np.array(gaps), np.array(steps))

    def _facts(self) -> dict[str, float]:
        count = float((self.coef_ != 0).sum())
        certificate = {"dual gap": self.dual_gap_}
        if math.isnan(self.dual_gap_):
            certificate = {"stationarity": self.stationarity_}
        return {"alpha": self.alpha_, "coefficients": count} | certificate | super()._facts()

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        table = super()._coefficient_table(X, robust, given)
        note = "Coefficients that a penalty has chosen have no standard errors."
        return None if table is None else table._replace(stderr=None, dof=None, notes=[note])


def _spread_of_kept(triangle: Triangle, squares: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """(DᵀD)⁻¹ of the columns that are kept, with the intercept, and zero for the others."""
    root = np.zeros((len(kept), int(kept.sum())))
    values, vectors = np.linalg.eigh(squares[np.ix_(kept, kept)])
    there = values > _DEPENDENT * values[-1:]
    root[kept] = vectors * np.where(there, 1 / np.sqrt(np.where(there, values, 1.0)), 0.0)
    whole = triangle.root_with_intercept(root)
    return whole @ whole.T


def _folds(rows: np.ndarray) -> np.ndarray:
    """A fold for each row, which depends on its numbers and not on its place; equal rows share one."""
    hashes = unit_free_hashes(rows, Scaling.identity(rows.shape[1]))
    _, number = np.unique(hashes, return_inverse=True)
    return number.ravel() % _FOLDS


def elastic_net(
    gram: np.ndarray, along: np.ndarray, l1: float, l2: float, start: np.ndarray, max_iter: int
) -> tuple[np.ndarray, int]:
    """The least of ½ wᵀGw − cᵀw + l1 Σ|w| + ½ l2 wᵀw, by active sets.

    The coefficients that are not zero, with signs held, solve a linear system; on the way there one that
    would change its sign stops at zero and leaves, and where the slope at zero is beyond the threshold one
    comes in.  The objective falls with every step, and there are finitely many sets.

    Args:
        gram, along: G and c.
        start: coefficients to begin with, such as those of a similar problem.
        max_iter: how many systems are solved at most.

    Returns:
        The coefficients, and how many systems it took.

    >>> found, _ = elastic_net(np.eye(2), np.array([1.0, 0.1]), 0.3, 0.0, np.zeros(2), 10)
    >>> found.round(6).tolist()
    [0.7, 0.0]
    """
    w = start.copy()
    sign = np.sign(w)
    alone, steps, flat = False, 0, np.diag(gram) <= _SLACK
    while True:
        inside = np.flatnonzero(sign)
        slope = along - gram @ w - l2 * w
        beyond = np.abs(slope) - l1 * (1 + _SLACK)
        beyond[inside] = -1.0
        # a column without variance moves nothing
        beyond[flat] = -1.0
        new = np.flatnonzero(beyond > 0)
        if steps and not len(new):
            return w, steps
        if not len(new) and not len(inside):
            return w, steps
        if len(new) > 1:
            # the farthest; one alone always moves the right way
            most = 1 if alone else max(8, len(inside) // 4)
            new = new[np.argsort(-beyond[new])[:most]]
        sign[new] = np.sign(slope[new])
        moved = False
        while steps < max_iter:
            steps += 1
            inside = np.flatnonzero(sign)
            here = w[inside]
            # by rows and then by columns, which is quicker than both at once
            own = gram.take(inside, axis=0).take(inside, axis=1)
            diagonal_of(own)[:] += l2
            goal = _goal(own, along[inside], here, sign[inside], l1)
            wrong = goal * sign[inside] <= 0
            if not wrong.any():
                moved = moved or not np.array_equal(goal, here)
                w[inside] = goal
                break
            # coefficients that are at zero and would go the wrong way stay there
            stuck = wrong & (here == 0)
            if stuck.any():
                sign[inside[stuck]] = 0.0
                if not sign.any():
                    break
                continue
            share = np.where(wrong, here / np.where(wrong, here - goal, 1.0), np.inf)
            first = float(share.min())
            w[inside] = here + first * (goal - here)
            leaving = inside[share <= first]
            w[leaving], sign[leaving] = 0.0, 0.0
            moved = True
            if not sign.any():
                break
        if steps >= max_iter or (alone and not moved):
            return w, steps
        alone = not moved


def _goal(own: np.ndarray, along: np.ndarray, here: np.ndarray, sign: np.ndarray, l1: float) -> np.ndarray:
    """The least of the objective with signs held, over the coefficients that are not zero.

    Where columns depend on each other it may have no bound: then a point far down, beyond where the first
    coefficient changes its sign.
    """
    right = along - l1 * sign
    factor, found, failed = _LAPACK.dposv(own, right, lower=1)
    if not failed and np.diag(factor).min() ** 2 > _DEPENDENT * np.diag(own).max():
        return found
    values, vectors = np.linalg.eigh(own)
    none = values <= _DEPENDENT * values[-1]
    # along columns that cancel each other only Σ |w| changes
    down = -vectors[:, none] @ (vectors[:, none].T @ sign)
    if np.abs(down).max(initial=0.0) < 1e-8:
        kept = vectors[:, ~none]
        return here + kept @ (kept.T @ (right - own @ here) / values[~none])
    falling = (down * sign < 0) & (here != 0)
    far = 2 * np.min(-here[falling] / down[falling]) if falling.any() else 1.0
    return here + far * down


def duality_gap(
    gram: np.ndarray, along: np.ndarray, total: float, l1: float, l2: float, w: np.ndarray
) -> float:
    """By how much ½ |y − Xw|² + l1 Σ|w| + ½ l2 wᵀw is above its least at most, with means over rows.

    The residuals, scaled until no slope is beyond the threshold, are a point of the dual problem.
    """
    product = gram @ w
    residual = total - 2 * along @ w + w @ product + l2 * (w @ w)
    steepest = float(np.abs(along - product - l2 * w).max(initial=0.0))
    scale = min(1.0, l1 / steepest) if steepest > 0 else 1.0
    gap = 0.5 * residual * (1 + scale**2) + l1 * np.abs(w).sum() - scale * (total - along @ w)
    return float(max(gap, 0.0))
