"""Linear regression with a conjugate prior of coefficients and noise: all answers are closed forms."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize
from scipy.special import gammaln
from sklearn.utils import check_random_state

from ..._core import Fit
from ...shell import AbstractDensity, Coefficients
from ._linear_mean import AbstractLinearMean, Data
from ._triangle import Triangle, reduced

# decades of α that are searched, about the mean square of the columns
_LOG_RANGE = -9.0, 9.0
_SEARCHED = 37


class LinearDraws(NamedTuple):
    """Draws of what a linear regression does not know, in the units of the data.

    Attributes:
        coef: (draws, …) as `coef_`.
        intercept: (draws, …) as `intercept_`.
        noise: (draws, …), the standard deviation of answers about their mean.
    """

    coef: np.ndarray
    intercept: np.ndarray
    noise: np.ndarray


class _Prior(NamedTuple):
    """Rows that say what is known of rescaled coefficients before any data: `rows` β ≈ `targets`.

    They are in units of the standard deviation of the noise of rescaled answers; `log_det` is that of the
    precision in those directions, and `rank` how many there are.
    """

    rows: np.ndarray
    targets: np.ndarray
    log_det: float
    rank: int


class _Solved(NamedTuple):
    """The posterior of rescaled coefficients: mean, a root of the covariance up to σ², least squares."""

    mean: np.ndarray
    root: np.ndarray
    squares: np.ndarray
    log_det: float


class BayesianLinearRegression(AbstractLinearMean):
    """y = W x + b + e, with a normal prior of coefficients and an inverse-gamma prior of the noise.

        e ~ N(0, σ²),    σ² ~ Γ⁻¹(a, c),    w | σ² ~ N(m, σ² P / α)

    Posterior, predictions and evidence are closed forms: coefficients and answers have Student's law of
    2a + n degrees of freedom (one less for an intercept of which nothing is known).  The mean of the
    posterior is that of `Ridge`, which is the case m = 0 and a flat prior of log σ.

    Args:
        alpha: α, how sure the prior of coefficients is; None for the one of largest evidence (type-II
            maximum likelihood, empirical Bayes).
        prior: P, in the units of the data; None for independent coefficients, alike for columns of standard
            deviation one.
        centre: m, a number or one for each column (for several outputs a row each), in these units.
        noise: (a, c), of the prior Γ⁻¹(a, c) of σ², in the units of the data; a number for a variance that
            is known, where w ~ N(m, P / α) and all laws are normal; None for a flat prior of log σ.
        intercept: (mean, deviation) of a normal prior of b, the deviation in units of σ where σ is not
            known; None for a flat one.
        fit_intercept: whether there is a b.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian, whose marginals are exact.

    Attributes:
        alpha_: the strength that was taken.
        log_evidence_: log p(y | X, α), summed over outputs, in the units of the data: a density of all
            answers where every prior is proper, and up to a constant without α, P and X where not.
        proper_: whether every prior is proper.
        shape_, rate_: a and c of the posterior of σ², for each output, in the units of the data; infinite
            and NaN where it is known.
        effective_dof_: as many coefficients as the rows say more of than the prior, with the intercept.
        coef_, intercept_, standard_errors_, covariance_: the mean and the spread of the posterior.
        design_root_, noise_covariance_, between_, determined_: as of `LinearRegression`.
        columns_, noise_, residual_dof_, inputs_, model_, …: as of `LinearRegression`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 3))
    >>> y = 2 * X[:, 0] + rng.normal(size=30)
    >>> model = BayesianLinearRegression(alpha=1.0, noise=(2.0, 2.0), intercept=(0.0, 10.0)).fit(X, y)
    >>> model.proper_, bool(model.coef_interval(0.99)[0][0] > 0)
    (True, True)
    >>> draws = model.sample_posterior(1000, random_state=0)
    >>> draws.coef.shape, bool(np.abs(draws.coef.mean(axis=0) - model.coef_).max() < 0.05)
    ((1000, 3), True)
    """

    alpha_: float
    log_evidence_: float

    def __init__(
        self,
        alpha: float | None = None,
        *,
        prior: Any = None,
        centre: Any = 0.0,
        noise: Any = None,
        intercept: Any = None,
        fit_intercept: bool = True,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.alpha, self.prior, self.centre = alpha, prior, centre
        self.noise, self.intercept = noise, intercept
        self.fit_intercept, self.inputs = fit_intercept, inputs

    def _refuse(self, name: str, need: str) -> None:
        raise ValueError(
            f"The '{name}' parameter of BayesianLinearRegression must be {need}. "
            f"Got {getattr(self, name)!r} instead."
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.alpha is not None and not _positive(self.alpha):
            self._refuse("alpha", "a float in the range (0, inf), or None")
        if self.noise is not None and not _positive(self.noise) and not _pair(self.noise, (True, True)):
            self._refuse("noise", "a positive variance, a pair of positive numbers, or None")
        if self.intercept is not None and not (self.fit_intercept and _pair(self.intercept, (False, True))):
            self._refuse("intercept", "a pair of a mean and a positive deviation, or None (as without b)")

    @property
    def _known(self) -> bool:
        """Whether the variance of the noise is known."""
        return self.noise is not None and np.ndim(self.noise) == 0

    @property
    def proper_(self) -> bool:
        """Whether every prior is proper, so that the evidence is a density of the answers."""
        return self.noise is not None and (not self.fit_intercept or self.intercept is not None)

    def _centre(self, columns: int, outputs: int) -> np.ndarray:
        """m, (columns, outputs), in the units of the data."""
        found = np.asarray(self.centre, float)
        shape = (*self.answer_shape_, columns)
        if found.shape not in ((), (columns,), shape) or not np.isfinite(found).all():
            raise ValueError(
                "The 'centre' parameter of BayesianLinearRegression must be a number or numbers of the "
                f"shape {shape}. Got the shape {found.shape}."
            )
        return np.broadcast_to(found, shape).reshape(outputs, columns).T

    def _prior_rows(self, alpha: float) -> _Prior:
        """The prior as rows of least squares for rescaled coefficients."""
        scale, units = self.scaling_.scale, self.answer_scaling_.scale
        columns, start = len(scale), int(self.fit_intercept)
        deviation = math.sqrt(float(self.noise)) if self._known else 1.0
        precision = np.zeros((columns, columns + start))
        if self.prior is None:
            # slopes of columns of deviation one, in units of the noise of the answers as they are
            root = np.diag(scale)
        else:
            root = linalg.solve_triangular(
                np.linalg.cholesky(self._covariance()), np.eye(columns), lower=True, check_finite=False
            )
        root = root * math.sqrt(alpha) * deviation
        precision[:, start:] = root
        centre = root @ self._centre(columns, len(units))
        log_det = 2 * float(np.linalg.slogdet(root)[1])
        if self.intercept is not None:
            mean, spread = map(float, self.intercept)
            first = np.zeros((1, columns + 1))
            first[0, 0] = deviation / spread
            precision = np.concatenate([first, precision])
            centre = np.concatenate([np.full((1, len(units)), mean * first[0, 0]), centre])
            log_det += 2 * math.log(first[0, 0])
        if start:
            centre = centre - precision[:, :1] * self.answer_scaling_.shift
        # from coefficients in the units of the data to rescaled ones
        rows = precision @ self._back()
        log_det += 2 * float(np.log(1 / scale).sum()) if len(rows) else 0.0
        return _Prior(rows, centre / units, log_det, len(rows))

    def _covariance(self) -> np.ndarray:
        size = len(self.scaling_.scale)
        found = np.asarray(self.prior, float)
        good = found.shape == (size, size) and np.isfinite(found).all() and np.allclose(found, found.T)
        if not good or np.linalg.eigvalsh(found)[0] <= 0:
            raise ValueError(
                f"The 'prior' parameter of BayesianLinearRegression must be a covariance matrix of {size} "
                f"x {size} numbers, symmetric and positive definite. Got the shape {found.shape}."
            )
        return found

    def _solve(self, triangle: Triangle, prior: _Prior) -> _Solved:
        design = triangle.columns + self.fit_intercept
        whole = triangle.factor if self.fit_intercept else triangle.factor[:, 1:]
        stacked = reduced(np.concatenate([whole, np.column_stack([prior.rows, prior.targets])]))
        left, right, rest = stacked[:design, :design], stacked[:design, design:], stacked[design:, design:]
        root = linalg.solve_triangular(left, np.eye(design), check_finite=False)
        log_det = 2 * float(np.log(np.abs(np.diag(left))).sum())
        return _Solved(root @ right, root, (rest**2).sum(axis=0), log_det)

    def _noise_prior(self) -> tuple[float, np.ndarray]:
        """a and c of the prior of σ², for rescaled answers."""
        units = self.answer_scaling_.scale
        a, c = (0.0, 0.0) if self.noise is None or self._known else map(float, self.noise)
        return a, c / units**2

    def _log_evidence(self, solved: _Solved, prior: _Prior, rows: float) -> float:
        """log p(y | X, α), in the units of the data."""
        units = self.answer_scaling_.scale
        outputs = len(units)
        # a flat direction takes a row to know it by
        flat = len(solved.root) - prior.rank
        free = rows - flat
        shared = 0.5 * (prior.log_det - solved.log_det) - 0.5 * free * math.log(2 * math.pi)
        logs = outputs * shared - free * float(np.log(units).sum())
        if self._known:
            variance = float(self.noise) / units**2
            return logs - 0.5 * float((free * np.log(variance) + solved.squares / variance).sum())
        a, c = self._noise_prior()
        after, rest = a + free / 2, c + solved.squares / 2
        with np.errstate(divide="ignore"):
            logs += float((gammaln(after) - after * np.log(rest)).sum())
        if self.noise is not None:
            logs += float((a * np.log(c) - gammaln(a)).sum())
        return logs

    def _chosen(self, triangle: Triangle, rows: float) -> float:
        """α, as given or as the evidence has it."""
        if self.alpha is not None:
            return float(self.alpha)

        def loss(value: float) -> float:
            prior = self._prior_rows(math.exp(value))
            found = -self._log_evidence(self._solve(triangle, prior), prior, rows)
            return found if math.isfinite(found) else math.inf

        if not triangle.columns:
            return 1.0
        # where the prior counts for as much as the rows
        unit = self._prior_rows(1.0).rows[-triangle.columns :, int(self.fit_intercept) :]
        size = (triangle.core[:, : triangle.columns] ** 2).sum() / (unit**2).sum()
        grid = math.log(size or 1.0) + np.linspace(*_LOG_RANGE, _SEARCHED) * math.log(10)
        losses = [loss(value) for value in grid]
        best = int(np.argmin(losses))
        if best in (0, len(grid) - 1) or not math.isfinite(losses[best]):
            return math.exp(grid[best])
        found: Any = optimize.minimize_scalar(
            loss, bounds=(grid[best - 1], grid[best + 1]), method="bounded", options={"xatol": 1e-7}
        )
        return math.exp(found.x)

    def _from_triangle(self, triangle: Triangle, rows: float, data: Data | None = None) -> Fit:
        self.alpha_ = self._chosen(triangle, rows)
        prior = self._prior_rows(self.alpha_)
        solved = self._solve(triangle, prior)
        self.between_, self.determined_ = None, np.ones(len(solved.root), bool)
        self.design_root_ = solved.root
        self.log_evidence_ = self._log_evidence(solved, prior, rows)
        units = self.answer_scaling_.scale
        if self._known:
            self.residual_dof_ = math.inf
            self.noise_covariance_ = np.diag(float(self.noise) / units**2)
            shape, rate = np.full(len(units), math.inf), np.full(len(units), math.nan)
        else:
            a, c = self._noise_prior()
            self.residual_dof_ = 2 * a + rows - (len(solved.root) - prior.rank)
            squares = 2 * c + np.maximum(solved.squares, 0.0)
            self.noise_covariance_ = np.diag(squares / max(self.residual_dof_, 1.0))
            shape, rate = np.full(len(units), self.residual_dof_ / 2), squares / 2 * units**2
        self.shape_, self.rate_ = (
            shape.reshape(self.answer_shape_)[()],
            rate.reshape(self.answer_shape_)[()],
        )
        self.effective_dof_ = len(solved.root) - float(((prior.rows @ solved.root) ** 2).sum())
        return self._keep(solved.mean, self.noise_covariance_)

    def sample_posterior(self, n: int, random_state: Any = None) -> LinearDraws:
        """`n` draws of coefficients, intercept and noise from their posterior, which are independent.

        >>> X, y = np.arange(6.0)[:, None], [1.0, 3.1, 4.9, 7.0, 9.2, 10.8]
        >>> draws = BayesianLinearRegression(noise=(2.0, 0.1)).fit(X, y).sample_posterior(4, random_state=0)
        >>> draws.coef.shape, draws.intercept.shape, draws.noise.shape
        ((4, 1), (4,), (4,))
        """
        self._check_noise()
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        units, outputs = self.answer_scaling_.scale, len(self.noise_covariance_)
        known = np.diag(self.noise_covariance_)
        dof = self.residual_dof_
        wide = 1.0 if math.isinf(dof) else dof / rng.chisquare(dof, size=(n, outputs))
        noise = np.sqrt(known * wide * np.ones((n, outputs)))
        start = int(self.fit_intercept)
        mean = np.column_stack([np.asarray(self.model_.function.bias)] * start + [self._slopes])
        white = rng.normal(size=(n, outputs, self.design_root_.shape[1]))
        scaled = mean + noise[:, :, None] * (white @ self.design_root_.T)
        data = scaled @ self._back().T * units[:, None]
        bias = data[:, :, 0] + self.answer_scaling_.shift if start else np.zeros((n, outputs))
        shape = (n, *self.answer_shape_)
        return LinearDraws(
            data[:, :, start:].reshape(*shape, -1), bias.reshape(shape), (noise * units).reshape(shape)
        )

    def _facts(self) -> dict[str, float]:
        own = {
            "alpha": self.alpha_,
            "log evidence": self.log_evidence_,
            "effective coefficients": self.effective_dof_,
        }
        return own | super()._facts()

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        table = super()._coefficient_table(X, robust, given)
        note = "Errors and intervals are those of the posterior, given alpha."
        return None if table is None else table._replace(dof=None, notes=[note])


def _positive(value: Any) -> bool:
    return isinstance(value, numbers.Real) and 0 < float(value) < math.inf


def _pair(value: Any, positive: tuple[bool, bool]) -> bool:
    """Whether `value` are two numbers, those that have to be so positive."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return all(
        isinstance(own, numbers.Real) and math.isfinite(own) and (float(own) > 0 or not need)
        for own, need in zip(value, positive, strict=True)
    )
