"""Least squares: a Gaussian answer whose mean is linear in the row."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from jax import Array
from scipy import linalg, stats
from sklearn.utils.validation import check_consistent_length

from ..._core import Evidence, Fit, Kind, has_nan
from ...distributions import AbstractCovariance
from ...shell import AbstractDensity, Chunks, Coefficients, Rows, check_instance
from ...shell._intake import checked_answers
from ...shell._validation import check_weight
from ._inputs import DRAWS
from ._linear_mean import AbstractAffine, AbstractLinearMean, Data, rows_of
from ._triangle import Solution, Triangle, reduced, refined, triangle_of

_ROUNDING = 8
# how far the rows that are passed again may be from those of the fit, by their sum of squares
_SAME_ROWS = 1e-6


class Selection(NamedTuple):
    """The columns that a search for the best ones found.

    Attributes:
        columns: their numbers among those that the model sees, in order.
        names: what they are called.
        steps: the columns that were added (or left out) one after another, to the end of the search.
        criteria: the criterion before the first step and after each; the least one chooses.
    """

    columns: list[int]
    names: list[str]
    steps: list[int]
    criteria: np.ndarray


class LinearRegression(AbstractLinearMean):
    """y = W x + b + e, e ~ N(0, Σ): ordinary, weighted or generalised least squares.

    The coefficients are the maximum of the likelihood, (DᵀΥ⁻¹D)⁻¹DᵀΥ⁻¹y with rows D = [1, x] and their
    covariance Υ (up to a factor; the identity if none is given).  The law of an answer is a Student t of
    n − rank degrees of freedom about W x + b, which knows that the coefficients are uncertain: its squared
    scale is s² (1 + leverage).  Intervals hold their level exactly, for normal errors.

    Args:
        fit_intercept: whether there is a b.
        noise: how the errors of several outputs depend on each other: `freeenergy.distributions.Diagonal()`
            for not at all; None for any covariance.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian, whose marginals are exact.

    Attributes:
        coef_, intercept_: W and b, in the units of the data.  Where columns depend on each other, the
            shortest W, for columns of standard deviation one, with a warning.
        standard_errors_, covariance_: of the coefficients; `summary()` has t and p, and with `robust=True`,
            X and y the errors of the sandwich (HC3), which hold whatever the variances of the errors are.
        noise_, residual_dof_: the standard deviation of the residuals, and their degrees of freedom.
        r_squared_: the share of the variance of the answers that is explained.
        log_likelihood_: of the fit, with the variance of largest likelihood.
        rank_: how many coefficients the rows determine.
        determined_: which coefficients the rows determine.
        design_root_, noise_covariance_, between_: what laws are made of, for rescaled columns: the root of
            the covariance of coefficients, that of residuals, and what missing entries of the fit add.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        inputs_: the density of rows and answers that missing entries are taken from.
        model_: a `freeenergy.models.Conditional` of rescaled rows and answers.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> model = LinearRegression().fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 3.1, 4.9, 7.0])
    >>> model.coef_.round(3).tolist(), round(float(model.intercept_), 3)
    ([1.98], 1.03)
    >>> low, high = model.predict_interval([[1.5]], level=0.95)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([3.544], [4.456])
    >>> print(model.summary())
    LinearRegression()
      rows             4
      log-likelihood   5.1316 nats (exact)
      free parameters  3
      AIC              -4.2632
      BIC              -6.1043
      R²               0.999083
      adjusted R²      0.998624
      F                2,178
      p of F           0.000458821
      residual std.    0.0948683
      iterations       1
      converged        yes
    <BLANKLINE>
      parameter  value  std. error  95 % from     to      t          p
      intercept   1.03     0.07937     0.6885  1.372  12.98   0.005886
      x0          1.98     0.04243      1.797  2.163  46.67  0.0004588
    """

    _maximises_likelihood = True
    r_squared_: Any
    log_likelihood_: float | None
    rank_: int

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        noise: AbstractCovariance | None = None,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.fit_intercept, self.noise, self.inputs = fit_intercept, noise, inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "noise", AbstractCovariance, optional=True)

    @property
    def _correlated(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.noise is None or not self.noise.separable

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None, covariance: Any = None
    ) -> Self:
        """Fits the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.  `Chunks` of complete rows are read one after
                another, once as a rule.
            y: a number for each row, or several.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
            covariance: Υ, the covariance of the errors of the rows up to a factor: a positive number for
                each row, or a matrix.  A new row has the variance one, and no covariance with these.

        >>> X, y = np.arange(4.0)[:, None], [1.0, 3.1, 4.9, 7.0]
        >>> LinearRegression().fit(X, y, covariance=[1.0, 1.0, 1.0, 1e9]).coef_.round(3).tolist()
        [1.95]
        """
        if isinstance(X, Chunks):
            if covariance is not None:
                raise ValueError("LinearRegression.fit takes no 'covariance' with Chunks.")
            self._fit_chunks(X, y, sample_weight)
            return self
        self._rows_covariance = (
            None if covariance is None else _checked_covariance(covariance, sample_weight)
        )
        try:
            self._fit(X, y=y, sample_weight=sample_weight)
        finally:
            del self._rows_covariance
        return self

    def _learn(self, rows: Rows, key: Array) -> Fit:
        x, y, weight = rows_of(rows)
        given = self._rows_covariance
        if given is not None and len(given) != len(x):
            raise ValueError(
                "The 'covariance' of LinearRegression.fit must have a number (or row) for each of the "
                f"{len(x)} rows of X. Got the shape {given.shape}."
            )
        if has_nan(x):
            if given is not None:
                raise ValueError("LinearRegression.fit takes a 'covariance' of complete rows only.")
            return self._fit_incomplete(rows)
        if self.inputs is not None:
            self._completed(rows, self.answer_scaling_.invert(y))
        return self._fit_complete(x, y, weight, given)

    def _fit_complete(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, given: np.ndarray | None
    ) -> Fit:
        rows, log_det = float(weight.sum()), 0.0
        if given is None or given.ndim == 1:
            least = weight if given is None else weight / given
            log_det = 0.0 if given is None else float(weight @ np.log(given))
            triangle = (self._triangle_of_rows if given is None else self._triangle)(x, y, least)
            white = None
        else:
            white = _root(given)
            log_det = 2 * float(np.log(np.diag(white)).sum())
            joined = np.column_stack([np.ones(len(x)), self.scaling_.apply(x), y])
            joined = linalg.solve_triangular(white, joined, lower=True, check_finite=False)
            triangle = Triangle(
                triangle_of(lambda: iter([joined]), few=True), x.shape[1], self.fit_intercept
            )
            least = weight
        solution = triangle.solve()
        if solution.worth_refining(x.size):
            design, answers = self._extended(x, y, least, white)
            solution = refined(design, answers, solution)
        if self.inputs is None:
            plain = triangle if given is None else self._triangle(x, y, weight)
            self.inputs_ = self._input_moments(*plain.moments)
        return self._solved(solution, triangle, rows, log_det)

    def _from_triangle(self, triangle: Triangle, rows: float, data: Data | None = None) -> Fit:
        return self._solved(triangle.solve(), triangle, rows)

    def _extended(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, white: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rescaled design and answers with the digits that rescaling would round away."""
        wide = np.longdouble
        z = (x.astype(wide) - self.scaling_.shift) / self.scaling_.scale
        design = np.column_stack([np.ones(len(z), wide), z]) if self.fit_intercept else z
        answers = y.astype(wide)
        if white is not None:
            design = linalg.solve_triangular(white, design.astype(float), lower=True).astype(wide)
            return design, linalg.solve_triangular(white, y, lower=True).astype(wide)
        root = np.sqrt(weight.astype(wide))[:, None]
        return design * root, answers * root

    def _solved(self, solution: Solution, triangle: Triangle, rows: float, log_det: float = 0.0) -> Fit:
        """Keeps what follows from a solution for so many rows."""
        self.rank_, self.residual_dof_ = solution.rank, rows - solution.rank
        self.determined_, self.design_root_, self.between_ = solution.determined, solution.root, None
        self._tell(solution, rows)
        total = (triangle.core[:, triangle.columns :] ** 2).sum(axis=0)
        # residuals of the size of rounding are none
        real = np.diag(solution.residual) > (_ROUNDING * np.finfo(float).eps) ** 2 * total
        residual = solution.residual * np.outer(real, real)
        self.noise_covariance_ = residual / self.residual_dof_ if self.residual_dof_ > 0 else 0.0 * residual
        if not self._correlated:
            self.noise_covariance_ = np.diag(np.diag(self.noise_covariance_))
        own = np.diag(residual)
        share = np.divide(own, total, out=np.zeros_like(own), where=total > 0)
        self.r_squared_ = (1 - share).reshape(self.answer_shape_)[()]
        self.log_likelihood_ = self._nats(residual, rows, log_det)
        return self._keep(solution.coefficients, self.noise_covariance_)

    def _nats(self, residual: np.ndarray, rows: float, log_det: float) -> float | None:
        """The log-likelihood with the noise of largest likelihood; None where this is infinite."""
        outputs = len(residual)
        if self._correlated and outputs > 1:
            sign, logs = np.linalg.slogdet(residual / rows)
            logs = logs if sign > 0 else -math.inf
        else:
            with np.errstate(divide="ignore"):
                logs = float(np.log(np.diag(residual) / rows).sum())
        logs += 2 * float(np.log(self.answer_scaling_.scale).sum())
        nats = -rows / 2 * (outputs * (math.log(2 * math.pi) + 1) + logs) - outputs * log_det / 2
        return nats if math.isfinite(nats) else None

    def _tell(self, solution: Solution, rows: float) -> None:
        """Says which columns depend on each other."""
        slopes = solution.determined[int(self.fit_intercept) :]
        if slopes.all():
            return
        names = [name for name, good in zip(self.columns_, slopes, strict=True) if not good]
        # a constant column alone says nothing, and no other coefficient is changed by it
        if len(names) < 2:
            return
        shown = ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        why = f"Columns {shown} of X depend on each other"
        if rows < len(solution.determined):
            why = "There are fewer rows than coefficients"
        warnings.warn(
            f"{why}: of the coefficients that fit equally well LinearRegression takes the shortest, which "
            "have no standard errors. Leave out columns, or use Ridge.",
            stacklevel=7,
        )

    def _fit_incomplete(self, rows: Rows) -> Fit:
        """The pooled fit of tables that are completed by draws: Rubin's rules."""
        _, y, _ = rows_of(rows)
        self.scaling_ = AbstractAffine._scaling(self, rows.x, rows.weight)
        completed, place = self._completed(rows, self.answer_scaling_.invert(y))
        x, answers, _ = rows_of(completed)
        part = int(np.isnan(rows.x).any(axis=1).sum())
        whole = len(rows.x) - part
        triangles = []
        for start in range(whole, whole + DRAWS * part, part):
            own = np.r_[0:whole, start : start + part]
            triangles.append(self._triangle(x[own], answers[own], rows.weight[place[own]]))
        solutions = [triangle.solve() for triangle in triangles]
        coefficients = np.stack([solution.coefficients for solution in solutions])
        mean = coefficients.mean(axis=0)
        roots = np.concatenate([solution.root for solution in solutions], axis=1) / math.sqrt(DRAWS)
        pooled = min(solutions, key=lambda solution: solution.rank)._replace(
            coefficients=mean,
            root=reduced(roots.T).T,
            residual=np.mean([solution.residual for solution in solutions], axis=0),
        )
        found = self._solved(pooled, triangles[0], float(rows.weight.sum()))
        gap = coefficients - mean
        self.between_ = (1 + 1 / DRAWS) * np.einsum("dik,djk->kij", gap, gap) / (DRAWS - 1)
        # that of drawn entries is none of the data
        self.log_likelihood_ = None
        return found

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        if self.log_likelihood_ is None:
            return "There is no log-likelihood: entries of rows were missing, or no residual is left."
        return Evidence(np.array([self.log_likelihood_]), np.zeros(1), Kind.EXACT), None

    def _count_parameters(self) -> int:
        outputs = len(self.noise_covariance_)
        noise = outputs * (outputs + 1) // 2 if self._correlated else outputs
        return self.rank_ * outputs + noise

    def _facts(self) -> dict[str, float]:
        found: dict[str, float] = {}
        names = self.answer_names_ or [f"y{k}" for k in range(len(self.noise_covariance_))]
        rows, slopes = self.residual_dof_ + self.rank_, self.rank_ - self.fit_intercept
        for name, share in zip(names, np.atleast_1d(self.r_squared_), strict=True):
            of = f" of {name}" if self.answer_shape_ else ""
            found[f"R²{of}"] = float(share)
            if self.residual_dof_ > 0 and slopes and share < 1:
                found[f"adjusted R²{of}"] = (
                    1 - (1 - float(share)) * (rows - self.fit_intercept) / self.residual_dof_
                )
                ratio = float(share) / (1 - float(share)) * self.residual_dof_ / slopes
                found |= {
                    f"F{of}": ratio,
                    f"p of F{of}": float(stats.f.sf(ratio, slopes, self.residual_dof_)),
                }
        return found | super()._facts()

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        table = super()._coefficient_table(X, robust, given)
        if not robust or table is None:
            return table
        if X is None or "y" not in given:
            note = "Robust standard errors need the rows of the fit: summary(X, y=y, robust=True)."
            return table._replace(stderr=np.full(len(table.values), np.nan), notes=[note])
        found = self.robust_covariance(X, given["y"], given.get("sample_weight"))
        found = np.diagonal(found, axis1=-2, axis2=-1).reshape(-1, len(self.determined_))
        return table._replace(stderr=np.where(self.determined_, np.sqrt(found), np.nan).ravel())

    def _again(
        self, method: str, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The design, residuals and weights of the rows of the fit; others are refused."""
        x, answers = self._read(X).x, checked_answers(self, y)
        check_consistent_length(x, answers)
        if has_nan(x):
            raise ValueError(f"LinearRegression.{method} takes complete rows only.")
        weight = check_weight(x, sample_weight)
        weight = np.ones(len(x)) if weight is None else weight
        flat = self.answer_scaling_.apply(answers.reshape(len(answers), -1))
        mean, z = self._means(x)
        residual, total = flat - mean, self.residual_dof_ + self.rank_
        squares = weight @ residual**2
        known = np.diag(self.noise_covariance_) * max(self.residual_dof_, 0.0)
        if (
            abs(weight.sum() - total) > _SAME_ROWS * total
            or (np.abs(squares - known) > _SAME_ROWS * (known + weight.sum() * 1e-9)).any()
        ):
            raise ValueError(
                f"LinearRegression.{method} takes the rows, answers and weights of the fit (without "
                "'covariance'). Got others."
            )
        return self._design(z), residual, weight

    def robust_covariance(
        self, X: Any, y: Any, sample_weight: Any = None, *, correction: int = 3
    ) -> np.ndarray:
        """The covariance of coefficients by the sandwich, right whatever the variances of the errors are.

        (DᵀD)⁻¹ Dᵀ diag(c e²) D (DᵀD)⁻¹ with residuals e; also known as heteroscedasticity-consistent,
        Huber–White, HC0 to HC3.

        Args:
            X, y, sample_weight: those of the fit.
            correction: 0 for c = 1; 1 for n / (n − rank); 2 for 1 / (1 − h), with the leverage h; 3 for
                1 / (1 − h)², about that of the jackknife.

        Returns:
            As `covariance_`: (coefficients, coefficients), that of the intercept first, for each output.
        """
        if correction not in (0, 1, 2, 3):
            raise ValueError(
                "The 'correction' of LinearRegression.robust_covariance must be 0, 1, 2 or 3. "
                f"Got {correction!r} instead."
            )
        design, residual, weight = self._again("robust_covariance", X, y, sample_weight)
        root = design @ self.design_root_
        leverage = (root**2).sum(axis=1)
        with np.errstate(divide="ignore"):
            factor = {
                0: np.ones(len(root)),
                1: np.full(len(root), weight.sum() / self.residual_dof_),
                2: 1 / (1 - leverage),
                3: 1 / (1 - leverage) ** 2,
            }[correction]
        # a row that determines a coefficient alone has no residual
        factor = np.where(leverage < 1 - 1e-12, factor, 0.0) * weight
        back = self._back() @ self.design_root_
        units = self.answer_scaling_.scale**2
        meat = np.einsum("ni,nk,nj->kij", root * factor[:, None], residual**2 * units, root)
        found = back @ meat @ back.T
        return found.reshape(*self.answer_shape_, *found.shape[1:])

    def loo_residuals(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> np.ndarray:
        """y less its prediction by the fit to all other rows, in one step: e / (1 − h).

        Args:
            X, y, sample_weight: those of the fit; a row is left out with all its weight.
            groups: a label for each row, where rows are left out together (folds): (1 − H_gg)⁻¹ e_g.

        NaN where the other rows do not determine the prediction.

        >>> X, y = np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([1.0, 3.1, 4.9, 9.2])
        >>> LinearRegression().fit(X, y).loo_residuals(X, y).round(4).tolist()
        [0.05, 0.1167, -0.2154, 0.35]
        """
        design, residual, weight = self._again("loo_residuals", X, y, sample_weight)
        root = design @ self.design_root_
        if groups is None:
            left = 1 - weight * (root**2).sum(axis=1)
            good = left > 1e-10
            found = np.where(good[:, None], residual / np.where(good, left, 1.0)[:, None], np.nan)
        else:
            labels = np.asarray(groups)
            check_consistent_length(design, labels)
            found = np.empty_like(residual)
            for label in np.unique(labels):
                own = np.flatnonzero(labels == label)
                share = np.sqrt(weight[own])
                scaled = root[own] * share[:, None]
                rest = np.eye(len(own)) - scaled @ scaled.T
                values = np.linalg.eigvalsh(rest)
                if values[0] < 1e-10:
                    found[own] = np.nan
                    continue
                away = np.linalg.solve(rest, residual[own] * share[:, None])
                # a row without weight is predicted by what the others leave
                moved = root[own] @ (scaled.T @ away)
                found[own] = residual[own] + moved
        return self._shaped(found * self.answer_scaling_.scale)

    def select(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        backward: bool = False,
        penalty: float | None = None,
        leave_one_out: bool = False,
    ) -> Selection:
        """Which columns to keep, by adding the best one after another, or leaving out the worst.

        Args:
            X, y, sample_weight: complete rows and one answer each, as for `fit`, which need not be called.
            backward: whether to begin with all columns and leave out.
            penalty: what a coefficient costs in n log(RSS / n) + penalty · coefficients: 2 is AIC; None for
                log n, which is BIC.
            leave_one_out: whether the criterion is the mean squared residual of rows left out, instead.

        The search goes on to the end, and the least criterion on the way chooses.

        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 4))
        >>> LinearRegression().select(X, X[:, 2] - X[:, 1] + 0.1 * rng.normal(size=50)).columns
        [1, 2]
        """
        fresh = type(self)(fit_intercept=self.fit_intercept)
        taken = fresh.intake.fitting(fresh, X, y=y, sample_weight=sample_weight)
        x, answers, weight = rows_of(taken.events)
        if has_nan(x) or fresh.answer_shape_:
            raise ValueError("LinearRegression.select takes complete rows with one answer each.")
        z = fresh.scaling_.apply(x)
        root = np.sqrt(weight)[:, None]
        base = root if self.fit_intercept else np.zeros((len(z), 0))
        steps, criteria = _searched(
            z * root,
            (answers * root)[:, 0] * fresh.answer_scaling_.scale,
            base,
            weight,
            backward,
            penalty,
            leave_one_out,
        )
        best = int(np.argmin(criteria))
        kept = set(steps[:best]) if not backward else set(range(z.shape[1])) - set(steps[:best])
        columns = sorted(kept)
        return Selection(columns, [fresh.columns_[j] for j in columns], steps, np.array(criteria))


def _searched(
    z: np.ndarray,
    y: np.ndarray,
    base: np.ndarray,
    weight: np.ndarray,
    backward: bool,
    penalty: float | None,
    leave_one_out: bool,
) -> tuple[list[int], list[float]]:
    """Columns in the order in which they are added to `base`, or left out, with the criterion of each."""
    rows = float(weight.sum())
    cost = math.log(rows) if penalty is None else penalty

    def press(residual: np.ndarray, leverage: np.ndarray) -> np.ndarray:
        """The mean squared residual of rows left out; infinite where one determines itself."""
        left = 1 - leverage
        squares = (residual / np.where(left > 1e-10, left, 1.0)) ** 2
        # a weight is as many rows, each left out with the others
        return np.where(left > 1e-10, squares, np.inf).sum(axis=0) / rows

    def criterion(residual: np.ndarray, leverage: np.ndarray, count: int) -> np.ndarray:
        if leave_one_out:
            return press(residual, leverage)
        squares = (residual**2).sum(axis=0)
        tiny = np.finfo(float).tiny
        return rows * np.log(np.maximum(squares, tiny) / rows) + cost * count

    basis, _ = np.linalg.qr(base)
    steps: list[int] = []
    if backward:
        inside = list(range(z.shape[1]))
        values = []
        while True:
            design = np.column_stack([base, z[:, inside]])
            q, r = np.linalg.qr(design)
            residual, leverage = y - q @ (q.T @ y), (q**2).sum(axis=1)
            values.append(float(criterion(residual, leverage, design.shape[1])))
            if not inside:
                return steps, values
            inverse = np.linalg.pinv(r)
            inverse = inverse @ inverse.T
            beta = inverse @ (design.T @ y)
            own = np.arange(base.shape[1], design.shape[1])
            along = design @ inverse[:, own] / np.sqrt(np.diag(inverse)[own])
            size = beta[own] / np.sqrt(np.diag(inverse)[own])
            after = criterion(
                residual[:, None] + along * size, leverage[:, None] - along**2, design.shape[1] - 1
            )
            worst = int(np.argmin(after))
            steps.append(inside.pop(worst))
    rest, residual = z - basis @ (basis.T @ z), y - basis @ (basis.T @ y)
    leverage, size = (basis**2).sum(axis=1), np.sqrt((z**2).sum(axis=0))
    values = [float(criterion(residual, leverage, base.shape[1]))]
    outside = list(range(z.shape[1]))
    while outside and len(steps) + base.shape[1] < len(y) - 1:
        norm = np.sqrt((rest[:, outside] ** 2).sum(axis=0))
        # what is left of a column that depends on those inside is rounding
        usable = norm > 1e-10 * np.maximum(size[outside], 1e-300)
        if not usable.any():
            break
        unit = rest[:, outside] / np.where(usable, norm, 1.0)
        gain = unit.T @ residual
        count = base.shape[1] + len(steps) + 1
        after = criterion(residual[:, None] - unit * gain, leverage[:, None] + unit**2, count)
        best = int(np.argmin(np.where(usable, after, np.inf)))
        direction = unit[:, best] - basis @ (basis.T @ unit[:, best])
        direction /= np.linalg.norm(direction)
        basis = np.column_stack([basis, direction])
        residual = residual - direction * (direction @ residual)
        leverage = leverage + direction**2
        rest = rest - np.outer(direction, direction @ rest)
        steps.append(outside.pop(best))
        values.append(float(after[best]))
    return steps, values


def _checked_covariance(covariance: Any, sample_weight: Any) -> np.ndarray:
    given = np.asarray(covariance, float)
    square = given.ndim == 2 and given.shape[0] == given.shape[1]
    if not (given.ndim == 1 or square) or not np.isfinite(given).all():
        raise ValueError(
            "The 'covariance' of LinearRegression.fit must be a positive number for each row, or a matrix "
            f"of finite numbers. Got the shape {given.shape}."
        )
    if given.ndim == 1 and not (given > 0).all():
        raise ValueError(
            f"The 'covariance' of LinearRegression.fit must be positive for each row. Got {given.min():g}."
        )
    if sample_weight is None:
        return given
    if given.ndim == 2:
        raise ValueError("LinearRegression.fit takes no 'sample_weight' with a matrix of covariances.")
    weight = np.asarray(sample_weight)
    # rows without weight are left out
    return given[weight > 0] if weight.shape == given.shape and weight.dtype.kind in "biuf" else given


def _root(covariance: np.ndarray) -> np.ndarray:
    """L of Υ = L Lᵀ."""
    if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=0.0):
        raise ValueError("The 'covariance' of LinearRegression.fit must be symmetric.")
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise ValueError(
            "The 'covariance' of LinearRegression.fit must be positive definite. Add to its diagonal."
        ) from None
