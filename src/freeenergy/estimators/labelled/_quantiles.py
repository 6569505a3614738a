"""Quantiles of the answer that are linear in the row, and do not cross."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any

import numpy as np
from jax import Array
from scipy import optimize, sparse

from ..._core import Fit, Status, generator, has_nan, on_device
from ...evaluation import AbstractLaws, QuantileLaws
from ...evaluation._laws import averaged
from ...models import Affine
from ...shell import AbstractDensity, Coefficients, Rows, Scaling
from ._conformal import JudgedByFolds, least_levels
from ._linear_mean import AbstractAffine, rows_of

# neighbouring quantiles are at least so far apart, in units of their mean distance; or of the answers'
_APART, _NEVER_CLOSER = 0.01, 1e-6
# how often rows where quantiles cross are added
_ROUNDS = 20
_NONE = "QuantileRegression found no quantiles: {} Check the units of X."
# what the solver takes for zero
_SLACK = 1e-7
# parts of the rows, each of which is left out once
_FOLDS = 20
# rows nearest to a line that may change sides of it when a fold is left out: so many, and of each column
_NEAR, _NEAR_EACH = 300, 50


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Quantiles that are linear in the rescaled row, and what makes a law of them.

    Attributes:
        coefficients: of each level, (levels, columns of the design).
        gaps: how far quantiles of neighbouring levels are apart at least.
        below, above: the mean distance of answers beyond the first and the last, in units of the data.
    """

    coefficients: np.ndarray
    gaps: np.ndarray
    below: float
    above: float


class QuantileRegression(JudgedByFolds, AbstractAffine):
    """The quantiles τ of the answer are linear in the row: Koenker and Bassett's regression.

    Σ (y − q_τ(x)) (τ − 1[y < q_τ(x)]), the pinball loss, is least for each τ, such that quantiles do not
    cross at any row of the fit (nor between them): a linear program, solved by HiGHS.

    Args:
        levels: the probabilities τ, ascending.
        fit_intercept: whether lines have an intercept.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.

    The law of an answer has these quantiles: it is even between two of them, which are at least a hundredth
    of their mean distance apart, and exponential beyond the last.  Far from the rows of the fit, where
    lines would cross, quantiles are put in order.

    Each line goes through as many rows as it has coefficients, so that too few of the rows of the fit are
    beyond it.  `predict_quantiles`, `predict_density` and `evidence` are those of the lines all the same;
    `predict_interval` has those quantiles of the law, for any level, which held the answers of a twentieth
    of the rows by the lines of the others (cross-conformal prediction).

    Attributes:
        coef_, intercept_: of each level, (levels, columns) and (levels,), in the units of the data.
        below_, above_: the mean distance of answers beyond the first and the last quantile.
        crossed_: how many pairs of row and level would have crossed without the condition.
        gaps_: how far quantiles of neighbouring levels are apart at least, for rescaled answers.
        fold_levels_, fold_weight_: the least level whose interval holds an answer, by the law of lines that
            have not seen it, and the weight of its row.
        columns_, inputs_, …: as of `LinearRegression`.
        model_: the function of the rescaled row that gives the quantiles.

    References:
        Koenker, Bassett (1978), Regression quantiles; Romano, Patterson, Candès (2019), Conformalized
        quantile regression; Portnoy, Koenker (1997), The Gaussian hare and the Laplacian tortoise.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(300, 1))
    >>> model = QuantileRegression([0.1, 0.5, 0.9]).fit(X, X[:, 0] * rng.exponential(size=300))
    >>> bool(np.all(np.diff(model.predict_quantiles(X), axis=1) > 0)), bool(model.coef_[2] > model.coef_[1])
    (True, True)
    """

    # several programs have the same least value: that of one order is taken, whatever the order of rows
    keeps_order = False
    below_: float
    above_: float
    crossed_: int

    def __init__(
        self,
        levels: Any = (0.05, 0.25, 0.5, 0.75, 0.95),
        *,
        fit_intercept: bool = True,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.levels, self.fit_intercept, self.inputs = levels, fit_intercept, inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        values = np.ravel(np.asarray(self.levels, object)).tolist()
        good = values and all(isinstance(v, numbers.Real) and 0 < float(v) < 1 for v in values)
        if not good or np.any(np.diff(np.asarray(values, float)) <= 0):
            raise ValueError(
                "The 'levels' parameter of QuantileRegression must be ascending floats in the range "
                f"(0, 1). Got {self.levels!r} instead."
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        if y.shape[1] != 1:
            raise ValueError(
                f"The 'y' of QuantileRegression must have one number a row. Got {y.shape[1]} instead; fit "
                "one model for each."
            )
        return super()._answer_scaling(y, weight)

    @property
    def _function(self) -> Any:
        return self.model_

    @property
    def _taus(self) -> np.ndarray:
        return np.ravel(self.levels).astype(float)

    @property
    def coef_(self) -> np.ndarray:
        """A row for each level, in the units of the data."""
        return self._slopes * self.answer_scaling_.scale / self.scaling_.scale

    @property
    def intercept_(self) -> np.ndarray:
        """A number for each level, in the units of the data."""
        if not self.fit_intercept:
            return np.zeros(len(self._taus))
        bias = np.asarray(self.model_.bias) - self._slopes @ (self.scaling_.shift / self.scaling_.scale)
        return bias * self.answer_scaling_.scale + self.answer_scaling_.shift

    def _learn(self, rows: Rows, key: Array) -> Fit:
        _, y, _ = rows_of(rows)
        whole, place = self._completed(rows, self.answer_scaling_.invert(y))
        x, answers, weight = rows_of(whole)
        design, own, taus = self._design(self.scaling_.apply(x)), answers[:, 0], self._taus
        alone = np.stack([_lines(design, own, weight, taus[k : k + 1])[0] for k in range(len(taus))])
        gaps = self._gaps(design, weight, alone)
        found, self.crossed_ = _ordered(design, own, weight, taus, alone, gaps)
        lines = self._with_tails(design, own, weight, alone, found)
        self.gaps_, self.below_, self.above_ = lines.gaps, lines.below, lines.above
        fold = generator(key).permutation(len(rows.x)) % _FOLDS
        self.fold_levels_ = np.empty(len(rows.x) if len(rows.x) > 1 else 0)
        self.fold_weight_ = rows.weight[: len(self.fold_levels_)]
        for part in range(min(_FOLDS, len(self.fold_levels_))):
            out, rest = fold == part, fold[place] != part
            kept = design[rest], own[rest], weight[rest]
            # where these cross, the law puts them in order
            moved = np.stack([_moved(*kept, tau, line) for tau, line in zip(taus, alone, strict=True)])
            others = self._with_tails(*kept, moved, moved)
            answer = self.answer_scaling_.invert(y[out])[:, 0]
            self.fold_levels_[out] = least_levels(self._laws_by(others, rows.x[out]), answer)
        slopes = found[:, 1:] if self.fit_intercept else found
        bias = found[:, 0] if self.fit_intercept else np.zeros(len(taus))
        return Fit(Affine(on_device(slopes.copy()), on_device(bias.copy())), {}, 1, Status.CONVERGED)

    def _widths(self, design: np.ndarray, weight: np.ndarray, lines: np.ndarray) -> np.ndarray:
        """How far quantiles of neighbouring levels are apart on average."""
        return weight / weight.sum() @ np.diff(design @ lines.T, axis=1)

    def _gaps(self, design: np.ndarray, weight: np.ndarray, alone: np.ndarray) -> np.ndarray:
        return np.maximum(_APART * self._widths(design, weight, alone), _NEVER_CLOSER)

    def _with_tails(
        self, design: np.ndarray, y: np.ndarray, weight: np.ndarray, alone: np.ndarray, found: np.ndarray
    ) -> _Lines:
        """Lines, with what the rows say beyond and between them; `alone` are those that may cross."""
        taus, widths, lines = self._taus, self._widths(design, weight, alone), design @ found.T
        below, above = (
            _tail(side * (y - line), weight, level, other) * self.answer_scaling_.scale[0]
            for side, line, level, other in (
                (-1, lines[:, 0], taus[0], _density(widths, taus, 0)),
                (1, lines[:, -1], 1 - taus[-1], _density(widths, taus, -1)),
            )
        )
        return _Lines(found, self._gaps(design, weight, alone), below, above)

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        found = self._slopes
        if self.fit_intercept:
            found = np.column_stack([np.asarray(self.model_.bias), found])
        return self._laws_by(_Lines(found, self.gaps_, self.below_, self.above_), x)

    def _laws_by(self, lines: _Lines, x: np.ndarray) -> AbstractLaws:
        """The laws that some lines give rows."""
        if has_nan(x):
            return averaged(lambda part: self._laws_by(lines, part), self._input_draws(x))
        values = self._design(self.scaling_.apply(x)) @ lines.coefficients.T
        apart = np.concatenate([[0.0], np.cumsum(lines.gaps)])
        # quantiles in order, and as far from each other as the fit has them at least
        values = np.maximum.accumulate(np.sort(values, axis=1) - apart, axis=1) + apart
        points = values * self.answer_scaling_.scale + self.answer_scaling_.shift
        return QuantileLaws(self._taus, points, lines.below, lines.above)

    def predict_quantiles(self, X: Any) -> np.ndarray:
        """The quantiles of each answer, a column for each level."""
        law = self.predict_density(X)
        return np.stack([law.quantile(level) for level in self._taus], axis=1)

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        own = ["intercept"] * self.fit_intercept + self.columns_
        names = [f"{level:g}: {name}" for level in self._taus for name in own]
        values = self.coef_
        if self.fit_intercept:
            values = np.column_stack([self.intercept_, values])
        facts = {"crossings prevented": float(self.crossed_)}
        return Coefficients(names, values.ravel(), None, None, facts, [])


def _density(widths: np.ndarray, taus: np.ndarray, place: int) -> float | None:
    """The width of answers per probability between the outer two quantiles, if there are two."""
    return float(widths[place] / np.diff(taus)[place]) if len(widths) else None


def _tail(beyond: np.ndarray, weight: np.ndarray, mass: float, inner: float | None) -> float:
    """The mean distance beyond a quantile; where nothing is there, that of an unbroken density."""
    far = beyond > _SLACK
    if far.any():
        return max(float(weight[far] @ beyond[far] / weight[far].sum()), _NEVER_CLOSER)
    return max(_NEVER_CLOSER, 0.0 if inner is None else mass * inner)


def _lines(
    design: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    taus: np.ndarray,
    crossings: list[tuple[int, np.ndarray]] | None = None,
    gaps: np.ndarray | None = None,
) -> np.ndarray:
    """Coefficients of least pinball loss for each level, with quantiles in order at some rows.

    Args:
        crossings: for a level the rows at which the next one has to be above it, by its `gaps`.
    """
    n, p = design.shape
    levels = len(taus)
    eye = sparse.eye(n, format="csr")
    one = sparse.hstack([sparse.csr_matrix(design), eye, -eye], format="csr")
    cost = np.concatenate([np.concatenate([np.zeros(p), tau * weight, (1 - tau) * weight]) for tau in taus])
    bounds = ([(None, None)] * p + [(0, None)] * (2 * n)) * levels
    more: dict[str, Any] = {}
    if crossings:
        assert gaps is not None
        blocks, right = [], []
        for level, rows in crossings:
            row: list[Any] = [sparse.csr_matrix((len(rows), p + 2 * n)) for _ in range(levels)]
            padded = sparse.hstack([sparse.csr_matrix(design[rows]), sparse.csr_matrix((len(rows), 2 * n))])
            row[level], row[level + 1] = padded, -padded
            blocks.append(sparse.hstack(row))
            right.append(np.full(len(rows), -gaps[level]))
        more = {"A_ub": sparse.vstack(blocks, format="csr"), "b_ub": np.concatenate(right)}
    found: Any = optimize.linprog(
        cost / weight.sum(),
        A_eq=sparse.block_diag([one] * levels, format="csr"),
        b_eq=np.tile(y, levels),
        bounds=bounds,
        method="highs",
        **more,
    )
    if found.x is None:
        raise ValueError(_NONE.format(found.message))
    return found.x.reshape(levels, p + 2 * n)[:, :p]


def _moved(
    design: np.ndarray, y: np.ndarray, weight: np.ndarray, tau: float, line: np.ndarray
) -> np.ndarray:
    """Coefficients of least pinball loss from those of nearly the same rows.

    By the dual program: max Σ a_i y_i with Σ a_i x_i = (1 − τ) Σ w_i x_i and 0 ≤ a_i ≤ w_i, where a row
    above the line has a_i = w_i and one below it 0.  Those far from the line are taken to stay on their
    side of it, of ever fewer rows until they do.
    """
    gap = y - design @ line
    order, near = np.argsort(np.abs(gap), kind="stable"), _NEAR + _NEAR_EACH * design.shape[1]
    while True:
        own, far = order[:near], order[near:]
        above = gap[far] > 0
        right = (1 - tau) * weight @ design - (weight[far] * above) @ design[far]
        limits = np.column_stack([np.zeros(len(own)), weight[own]])
        found: Any = optimize.linprog(
            -y[own], A_eq=design[own].T, b_eq=right, bounds=limits, method="highs"
        )
        if found.x is not None:
            moved = -found.eqlin.marginals
            if np.array_equal(y[far] > design[far] @ moved, above):
                return moved
        elif not len(far):
            raise ValueError(_NONE.format(found.message))
        near *= 2


def _ordered(
    design: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    taus: np.ndarray,
    alone: np.ndarray,
    gaps: np.ndarray,
) -> tuple[np.ndarray, int]:
    """Coefficients whose quantiles are in order at all rows, and how many crossings that prevents."""
    found, crossed = alone, 0
    rows: list[set[int]] = [set() for _ in gaps]
    for attempt in range(_ROUNDS):
        close = np.diff(design @ found.T, axis=1) < gaps - _SLACK
        if attempt == 0:
            crossed = int(close.sum())
        if not close.any():
            break
        for level in range(len(gaps)):
            rows[level] |= set(np.flatnonzero(close[:, level]).tolist())
        crossings = [(level, np.array(sorted(own))) for level, own in enumerate(rows) if own]
        found = _lines(design, y, weight, taus, crossings, gaps)
    return found, crossed
