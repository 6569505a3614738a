"""Least squares with a Gaussian prior of the coefficients."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from ..._core import Fit, has_nan
from ...shell import AbstractDensity, Coefficients
from ._linear_mean import AbstractLinearMean, Data, rows_of
from ._triangle import Triangle

# decades of α that are searched, about the largest squared singular value of the columns
_LOG_RANGE = -8.0, 8.0
_SEARCHED = 65


class RidgePath(NamedTuple):
    """Fits with one strength of the prior after another.

    Attributes:
        alphas: the strengths.
        coef: the coefficients for each, in the units of the data.
        dof: effective degrees of freedom, tr H, with that of the intercept.
        loo: the mean squared residual of rows that were left out of the fit, in one step.
        gcv: the generalised cross-validation (RSS / n) / (1 − tr H / n)².
        log_evidence: log p(y | X, α) with coefficients and noise integrated out, up to a constant.
    """

    alphas: np.ndarray
    coef: np.ndarray
    dof: np.ndarray
    loo: np.ndarray
    gcv: np.ndarray
    log_evidence: np.ndarray


class _Spectrum(NamedTuple):
    """Columns in the coordinates in which their prior is a sphere and their squares are diagonal.

    Attributes:
        back: from these coordinates to coefficients of rescaled columns.
        squares: the squared singular values g.
        along: the products of the columns with the answers, (columns, outputs).
        total: sums of squares and products of the answers.
    """

    back: np.ndarray
    squares: np.ndarray
    along: np.ndarray
    total: np.ndarray

    @staticmethod
    def of(triangle: Triangle, prior_root: np.ndarray) -> _Spectrum:
        """Of columns with coefficients P^½ u, u standard normal."""
        p, core = triangle.columns, triangle.core
        _, s, vt = np.linalg.svd(core[:, :p] @ prior_root, full_matrices=True)
        squares = np.zeros(p)
        squares[: len(s)] = s**2
        back = prior_root @ vt.T
        answers = core[:, p:]
        return _Spectrum(back, squares, back.T @ (core[:, :p].T @ answers), answers.T @ answers)

    def penalised(self, alpha: float) -> np.ndarray:
        """S(α) of each output: squared residuals and α times squared coefficients, at their least."""
        return np.diag(self.total) - (self.along**2 / (self.squares + alpha)[:, None]).sum(axis=0)


class Ridge(AbstractLinearMean):
    """y = W x + b + e with a Gaussian prior of the rows of W: also known as Tikhonov's regularisation.

    Σ (y − W x − b)² + α wᵀP⁻¹w is least: the largest posterior of w ~ N(0, σ² P / α), and its mean.  The
    law of an answer is Student's of n − 1 degrees of freedom (σ² and b have flat priors, and are integrated
    out), with the uncertainty of the coefficients in it: Bayesian linear regression.

    Args:
        alpha: α; several, of which that with the least leave-one-out residuals is taken; or None, for the
            one of largest evidence (type-II maximum likelihood, empirical Bayes).
        prior: P, the covariance of the coefficients up to a factor, in the units of the data; None for
            independent ones, alike for columns of standard deviation one.
        noise: the covariance of the errors of several outputs, where it is known, in the units of the data.
            Then w ~ N(0, P / α) for each output, coefficients solve a Sylvester equation, laws are normal,
            and `alpha` is one number.
        fit_intercept: whether there is a b.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian, whose marginals are exact.

    Attributes:
        alpha_: the strength that was taken.
        log_evidence_: log p(y | X, α) with flat priors of b and log σ, up to a constant without α.
        effective_dof_: the trace of the map from answers to predictions: as many coefficients as count.
        coef_, intercept_, standard_errors_, covariance_: the mean and the spread of the posterior.
        posterior_root_, posterior_spread_: the directions of the columns, and the covariance of the outputs
            along each.
        design_root_, noise_covariance_, between_, determined_: as of `LinearRegression`.
        columns_, noise_, residual_dof_, inputs_, model_, …: as of `LinearRegression`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 20))
    >>> model = Ridge().fit(X, 2 * X[:, 0] + rng.normal(size=30))
    >>> bool(model.alpha_ > 1), bool(np.abs(model.coef_[1:]).max() < model.coef_[0])
    (True, True)
    """

    alpha_: float
    log_evidence_: float

    def __init__(
        self,
        alpha: Any = None,
        *,
        prior: Any = None,
        noise: Any = None,
        fit_intercept: bool = True,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.alpha, self.prior, self.noise = alpha, prior, noise
        self.fit_intercept, self.inputs = fit_intercept, inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        values = [] if self.alpha is None else np.ravel(np.asarray(self.alpha, object)).tolist()
        good = all(isinstance(value, numbers.Real) and 0 < float(value) < math.inf for value in values)
        if not good or (self.alpha is not None and not values):
            raise ValueError(
                "The 'alpha' parameter of Ridge must be a float in the range (0, inf), several of them, or "
                f"None. Got {self.alpha!r} instead."
            )
        if self.noise is not None and (self.alpha is None or np.ndim(self.alpha)):
            raise ValueError(
                "The 'alpha' parameter of Ridge must be one number where 'noise' is given. "
                f"Got {self.alpha!r} instead."
            )

    @property
    def _correlated(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.noise is not None

    def _matrix(self, name: str, value: Any, size: int) -> np.ndarray:
        found = np.asarray(value, float)
        good = found.shape == (size, size) and np.isfinite(found).all() and np.allclose(found, found.T)
        if not good or np.linalg.eigvalsh(found)[0] <= 0:
            raise ValueError(
                f"The '{name}' parameter of Ridge must be a covariance matrix of {size} x {size} numbers, "
                f"symmetric and positive definite. Got the shape {found.shape}."
            )
        return found

    def _prior_root(self) -> np.ndarray:
        """P^½ for rescaled columns."""
        scale = self.scaling_.scale
        if self.prior is None:
            return np.eye(len(scale))
        prior = self._matrix("prior", self.prior, len(scale))
        return scale[:, None] * np.linalg.cholesky(prior)

    def _from_triangle(self, triangle: Triangle, rows: float, data: Data | None = None) -> Fit:
        spectrum = _Spectrum.of(triangle, self._prior_root())
        self.between_, self.determined_ = None, np.ones(triangle.columns + self.fit_intercept, bool)
        if self.noise is not None:
            return self._with_noise(triangle, spectrum)
        self.residual_dof_ = rows - self.fit_intercept
        self.alpha_ = self._chosen(triangle, spectrum, rows, data)
        shrunk = 1 / (spectrum.squares + self.alpha_)
        slopes = spectrum.back @ (shrunk[:, None] * spectrum.along)
        self.design_root_ = triangle.root_with_intercept(spectrum.back * np.sqrt(shrunk))
        squares = np.maximum(spectrum.penalised(self.alpha_), 0.0)
        self.noise_covariance_ = np.diag(squares / max(self.residual_dof_, 1.0))
        self.effective_dof_ = float((spectrum.squares * shrunk).sum()) + self.fit_intercept
        self.log_evidence_ = self._log_evidence(spectrum, self.alpha_, self.residual_dof_)
        return self._keep(triangle.with_intercept(slopes), self.noise_covariance_)

    def _log_evidence(self, spectrum: _Spectrum, alpha: float, dof: float) -> float:
        """log p(y | X, α) with all else integrated out, up to a constant without α, in the units of y."""
        shrink = len(spectrum.total) * float(np.log(alpha / (spectrum.squares + alpha)).sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = float(np.log(np.maximum(spectrum.penalised(alpha), 0.0)).sum())
        units = float(np.log(self.answer_scaling_.scale).sum())
        return 0.5 * (shrink - dof * (logs + 2 * units))

    def _chosen(self, triangle: Triangle, spectrum: _Spectrum, rows: float, data: Data | None) -> float:
        """α, as the parameter asks for it."""
        if self.alpha is not None:
            alphas = np.ravel(self.alpha).astype(float)
            if len(alphas) == 1:
                return float(alphas[0])
            if data is None:
                raise ValueError("Ridge.fit takes one 'alpha', or None, with Chunks: rows are read once.")
            return float(alphas[np.argmin(self._left_out(triangle, spectrum, alphas, data))])
        largest = float(spectrum.squares.max(initial=0.0)) or 1.0
        grid = math.log(largest) + np.linspace(*_LOG_RANGE, _SEARCHED) * math.log(10)
        dof = rows - self.fit_intercept
        losses = [-self._log_evidence(spectrum, math.exp(value), dof) for value in grid]
        best = int(np.argmin(losses))
        if best in (0, len(grid) - 1) or not np.isfinite(losses[best]):
            return math.exp(grid[best])
        found: Any = optimize.minimize_scalar(
            lambda value: -self._log_evidence(spectrum, math.exp(value), dof),
            bounds=(grid[best - 1], grid[best + 1]),
            method="bounded",
            options={"xatol": 1e-8},
        )
        return math.exp(found.x)

    def _left_out(
        self, triangle: Triangle, spectrum: _Spectrum, alphas: np.ndarray, data: Data
    ) -> np.ndarray:
        """The mean squared residual of rows left out, of rescaled answers, for each α."""
        x, y, weight = data
        root = triangle.root_with_intercept(spectrum.back)
        coordinates = self._design(self.scaling_.apply(x)) @ root
        start = int(self.fit_intercept)
        # the intercept has a direction of its own
        squares = np.concatenate([np.full(start, 1.0), spectrum.squares])
        along = coordinates.T @ (weight[:, None] * y)
        found = []
        for alpha in alphas:
            shrunk = 1 / (
                squares + np.concatenate([np.zeros(start), np.full(len(spectrum.squares), alpha)])
            )
            residual = y - coordinates @ (shrunk[:, None] * along)
            left = 1 - weight * (coordinates**2 @ shrunk)
            with np.errstate(divide="ignore", invalid="ignore"):
                squared = (residual / left[:, None]) ** 2
            squared = np.where(left[:, None] > 1e-12, squared, np.inf)
            found.append(float((weight @ squared).mean() / weight.sum()))
        return np.array(found)

    def _with_noise(self, triangle: Triangle, spectrum: _Spectrum) -> Fit:
        """Coefficients with a known covariance of the outputs: W G + α Σ W P⁻¹ = C, with both diagonal."""
        units = self.answer_scaling_.scale
        noise = self._matrix("noise", self.noise, len(units))
        self.alpha_, self.residual_dof_ = float(np.ravel(self.alpha)[0]), math.inf
        values, vectors = np.linalg.eigh(noise)
        # outputs in the units of the data, in which their coefficients have the same prior, and rotated
        along = spectrum.along * units @ vectors
        shrunk = 1 / (spectrum.squares[:, None] + self.alpha_ * values)
        slopes = spectrum.back @ (shrunk * along) @ vectors.T / units
        spread = shrunk * values
        whole = triangle.root_with_intercept(spectrum.back)
        start = int(self.fit_intercept)
        self.design_root_, self.posterior_root_ = whole[:, :start], whole[:, start:]
        # (columns, outputs, outputs): the posterior covariance of the coefficients of each coordinate
        self.posterior_spread_ = np.einsum("ik,ak,bk->iab", spread, vectors, vectors) / np.outer(
            units, units
        )
        own = np.diagonal(self.posterior_spread_, axis1=1, axis2=2)
        self.between_ = np.einsum("pi,ik,qi->kpq", self.posterior_root_, own, self.posterior_root_)
        self.noise_covariance_ = noise / np.outer(units, units)
        self.effective_dof_ = float((spectrum.squares[:, None] * shrunk).sum() / len(units)) + start
        self.log_evidence_ = self._evidence_with_noise(spectrum, along, values, triangle.weight)
        return self._keep(triangle.with_intercept(slopes), self.noise_covariance_)

    def _evidence_with_noise(
        self, spectrum: _Spectrum, along: np.ndarray, values: np.ndarray, rows: float
    ) -> float:
        """log p(y | X, α, Σ), with b and w integrated out, up to a constant without α and Σ."""
        units = self.answer_scaling_.scale
        noise = np.asarray(self.noise, float).reshape(len(units), -1)
        total = np.trace(np.linalg.solve(noise, spectrum.total * np.outer(units, units)))
        ratio = spectrum.squares[:, None] / (self.alpha_ * values)
        explained = (along**2 / values / (spectrum.squares[:, None] + self.alpha_ * values)).sum()
        dof = rows - self.fit_intercept
        return -0.5 * float(np.log1p(ratio).sum() + dof * np.log(values).sum() + total - explained)

    def _spread_of_mean(self, design: np.ndarray) -> np.ndarray:
        if self.noise is None:
            return super()._spread_of_mean(design)
        leverage = ((design @ self.design_root_) ** 2).sum(axis=1)
        squares = (design @ self.posterior_root_) ** 2
        return leverage[:, None, None] * self.noise_covariance_ + np.einsum(
            "ni,iab->nab", squares, self.posterior_spread_
        )

    def path(self, X: Any, y: Any, alphas: Any = None, sample_weight: Any = None) -> RidgePath:
        """Fits with one α after another, at the cost of little more than one.

        Args:
            X, y, sample_weight: complete rows and their answers, as for `fit`, which need not be called.
            alphas: positive numbers; None for fifty about the squares of the columns.

        >>> X = np.random.default_rng(0).normal(size=(40, 3))
        >>> found = Ridge().path(X, X[:, 0], [0.1, 10.0])
        >>> found.coef.shape, bool(found.dof[0] > found.dof[1])
        ((2, 3), True)
        """
        self._check_parameters()
        fresh = type(self)(prior=self.prior, fit_intercept=self.fit_intercept)
        taken = fresh.intake.fitting(fresh, X, y=y, sample_weight=sample_weight)
        data = rows_of(taken.events)
        if has_nan(data[0]):
            raise ValueError("Ridge.path takes complete rows only.")
        triangle = fresh._triangle_of_rows(*data)
        spectrum = _Spectrum.of(triangle, fresh._prior_root())
        if alphas is None:
            alphas = np.geomspace(1e-4, 1e4, 50) * max(float(spectrum.squares.mean()), 1e-300)
        alphas = np.asarray(alphas, float)
        if alphas.ndim != 1 or not len(alphas) or not ((alphas > 0) & (alphas < np.inf)).all():
            raise ValueError(f"The 'alphas' of Ridge.path must be positive numbers. Got {alphas!r}.")
        rows, units = float(data[2].sum()), fresh.answer_scaling_.scale
        shrunk = 1 / (spectrum.squares + alphas[:, None])
        slopes = np.einsum("pi,ai,ik->akp", spectrum.back, shrunk, spectrum.along)
        coef = slopes * units[:, None] / fresh.scaling_.scale
        dof = (spectrum.squares * shrunk).sum(axis=1) + self.fit_intercept
        # |y|² − 2 b'X'y + b'X'Xb
        gain = 2 * shrunk - spectrum.squares * shrunk**2
        squares = np.diag(spectrum.total) - np.einsum("ai,ik->ak", gain, spectrum.along**2)
        scaled = (np.maximum(squares, 0.0) * units**2).mean(axis=1) / rows
        left = fresh._left_out(triangle, spectrum, alphas, (data[0], data[1] * units, data[2]))
        evidence = [fresh._log_evidence(spectrum, alpha, rows - self.fit_intercept) for alpha in alphas]
        return RidgePath(
            alphas,
            coef.reshape(len(alphas), *fresh.answer_shape_, -1),
            dof,
            left,
            scaled / (1 - dof / rows) ** 2,
            np.array(evidence),
        )

    def _facts(self) -> dict[str, float]:
        return {"alpha": self.alpha_, "effective coefficients": self.effective_dof_} | super()._facts()

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        table = super()._coefficient_table(X, robust, given)
        note = "Errors and intervals are those of the posterior, given alpha."
        return None if table is None else table._replace(dof=None, notes=[note])
