"""Linear answers that a few wild ones do not move: Huber's regression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import Array

from ..._core import Evidence, Fit, Kind, Status, has_nan, on_device
from ...evaluation import AbstractLaws, HuberLaws
from ...models import Affine
from ...shell import AbstractDensity, Coefficients, Rows, check_numbers, check_real, framed
from ...shell._intake import checked_answers
from ._linear_mean import AbstractAffine, rows_of

# with a narrower middle too few answers say what the scale is
_LEAST_DELTA = 0.5
_TOLERANCE = 1e-13
_STARTS = 20
_HALVINGS = 40
# a scale below this part of that of the answers is none
_NO_SCALE = 1e-12


class RobustRegression(AbstractAffine):
    """y = W x + b + σ e, where e is normal in the middle and has the tails of an exponential: Huber's loss.

        −log p(y | x) = ρ(u) + log σ + log Z,  u = (y − W x − b) / σ,  ρ(u) = ½ u² or δ |u| − ½ δ² beyond δ

    The scale is concomitant (Huber's proposal 2): σ Σ ρ(u) + ½ κ (n − p) σ is least over W, b and σ
    together, a convex problem that is solved by Newton's steps, so that Σ ψ(u) x = 0 with ψ = ρ′, and ψ²
    has the mean κ that it has under this law.  No answer has much of a say, however wild.  For large δ it
    is least squares; for least absolute deviations use `QuantileRegression([0.5])`.

    Args:
        delta: δ, in units of σ, from 0.5 on; 1.345 has 95 % of the precision of least squares where errors
            are normal.
        fit_intercept: whether there is a b.
        max_iter: Newton's steps at most.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.

    The law of an answer is exactly that of the model, with the coefficients put in.

    Attributes:
        coef_, intercept_, scale_: W, b and σ, in the units of the data.
        standard_errors_, covariance_: of the coefficients, as Huber has them for large n.
        log_likelihood_: log p of the answers of the fit; None where entries of rows were missing.
        columns_, inputs_, …: as of `LinearRegression`.
        model_: the function of the rescaled row that gives the middle of the law.

    References: Huber, *Robust estimation of a location parameter* (1964); Huber and Ronchetti, *Robust
    Statistics* (2009), chapter 7.

    >>> X, y = np.arange(20.0)[:, None], np.arange(20.0)
    >>> y = y + np.tile([0.1, -0.1], 10)
    >>> y[3] = 1000.0
    >>> RobustRegression().fit(X, y).coef_.round(2).tolist()
    [1.0]
    """

    scale_: Any
    log_likelihood_: float | None

    def __init__(
        self,
        delta: float = 1.345,
        *,
        fit_intercept: bool = True,
        max_iter: int = 200,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.delta, self.fit_intercept, self.max_iter, self.inputs = delta, fit_intercept, max_iter, inputs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "delta", _LEAST_DELTA)

    @property
    def _function(self) -> Any:
        return self.model_

    def _learn(self, rows: Rows, key: Array) -> Fit:
        x, y, weight = rows_of(rows)
        complete = not has_nan(x)
        x, y, weight = rows_of(self._completed(rows, self.answer_scaling_.invert(y))[0])
        design = self._design(self.scaling_.apply(x))
        found = [huber_fit(design, own, weight, float(self.delta), self.max_iter) for own in y.T]
        coefficients = np.stack([part[0] for part in found], axis=1)
        scale = np.array([part[1] for part in found])
        self.scale_ = (scale * self.answer_scaling_.scale).reshape(self.answer_shape_)[()]
        u = (y - design @ coefficients) / np.where(scale > 0, scale, 1.0)
        self.covariance_ = self._covariance(design, u, weight).reshape(
            *self.answer_shape_, design.shape[1], design.shape[1]
        )
        self.log_likelihood_ = None
        if complete and (scale > 0).all():
            laws = HuberLaws(
                self.delta, np.zeros_like(u), np.broadcast_to(scale * self.answer_scaling_.scale, u.shape)
            )
            self.log_likelihood_ = float(weight @ laws.log_prob(u * laws.scale))
        slopes = coefficients[1:] if self.fit_intercept else coefficients
        bias = coefficients[0] if self.fit_intercept else np.zeros(y.shape[1])
        steps = max(part[2] for part in found)
        status = Status.CONVERGED if steps < self.max_iter else Status.LIMIT
        return Fit(Affine(on_device(slopes.T.copy()), on_device(bias)), {}, steps, status)

    def _covariance(self, design: np.ndarray, u: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """σ² k² mean ψ² / (mean ψ′)² (DᵀD)⁻¹, with Huber's correction k for few rows; for each output."""
        rows, p = float(weight.sum()), design.shape[1]
        back = self._back()
        inverse = back @ np.linalg.pinv((design * weight[:, None]).T @ design, hermitian=True) @ back.T
        inner = np.abs(u) <= self.delta
        share = weight @ inner / rows
        squares = weight @ np.clip(u, -self.delta, self.delta) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            k = 1 + p / rows * (1 - share) / share
            factor = k**2 * squares / (rows - p) / share**2 * np.atleast_1d(self.scale_) ** 2
        factor = np.where((share > 0) & (rows > p), factor, np.nan)
        return factor[:, None, None] * inverse

    @property
    def standard_errors_(self) -> np.ndarray:
        """Of each entry of `coef_`."""
        errors = np.sqrt(np.diagonal(self.covariance_, axis1=-2, axis2=-1))
        return errors[..., int(self.fit_intercept) :]

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        if not (np.atleast_1d(self.scale_) > 0).all():
            raise ValueError(
                "RobustRegression has no law of answers: so many of them are on a plane exactly that the "
                "scale is zero. Fit more rows or fewer columns."
            )
        mean = self._middle(x)
        return HuberLaws(float(self.delta), mean, np.broadcast_to(self.scale_, mean.shape))

    def _middle(self, x: np.ndarray) -> np.ndarray:
        """W x + b of complete rows."""
        mean = self.scaling_.apply(x) @ self._slopes.T + np.asarray(self.model_.bias)
        return self._shaped(self.answer_scaling_.invert(mean))

    @framed
    def predict(self, X: Any) -> Any:
        """The mean of the answer to each row."""
        x = self._read(X).x
        holes = np.isnan(x).any(axis=1)
        if holes.any():
            x = x.copy()
            x[holes] = self._input_draws(x[holes]).mean(axis=0)
        return check_numbers(self, "predict", self._middle(x))

    def outlier_weights(self, X: Any, y: Any) -> np.ndarray:
        """How much each answer counts: 1 in the middle, δ/|u| in the tails, as in reweighted fits."""
        mean = np.asarray(self.predict(X))
        u = np.abs(checked_answers(self, y) - mean) / self.scale_
        return np.minimum(1.0, self.delta / np.maximum(u, self.delta))

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        if self.log_likelihood_ is None:
            return "There is no log-likelihood: entries of rows were missing, or no residual is left."
        return Evidence(np.array([self.log_likelihood_]), np.zeros(1), Kind.EXACT), None

    def _count_parameters(self) -> int:
        return len(self._coefficient_values()) + len(np.atleast_1d(self.scale_))

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        errors = np.sqrt(np.diagonal(self.covariance_, axis1=-2, axis2=-1))
        scales = np.atleast_1d(self.scale_)
        names = self.answer_names_ or [f"y{k}" for k in range(len(scales))]
        facts = {
            f"scale of {name}" if self.answer_shape_ else "scale": float(value)
            for name, value in zip(names, scales, strict=True)
        }
        return Coefficients(
            self._coefficient_names(), self._coefficient_values(), errors.ravel(), math.inf, facts, []
        )


def huber_fit(
    design: np.ndarray, y: np.ndarray, weight: np.ndarray, delta: float, max_iter: int
) -> tuple[np.ndarray, float, int]:
    """Coefficients and scale of Huber's regression, and the steps that it took.

    Minimises σ Σ w ρ((y − D β) / σ) + ½ κ (n − p) σ, which is convex in β and σ together: Dᵀψ = 0 and
    Σ w ψ² = κ (n − p), where κ is what ψ² is on average under the law of the model.  The scale is zero
    where so many answers are on a plane that there is no other.

    >>> wild = np.array([-1.0, 0.0, 1.0, 2.0, 1e6])
    >>> beta, scale, _ = huber_fit(np.ones((5, 1)), wild, np.ones(5), 1.0, 99)
    >>> bool(0 < beta[0] < 2), bool(scale < 10)
    (True, True)
    """
    rows, p = float(weight.sum()), np.linalg.matrix_rank(design * np.sqrt(weight)[:, None])
    middle = math.sqrt(2 * math.pi) * math.erf(delta / math.sqrt(2))
    share = middle / (middle + 2 * math.exp(-(delta**2) / 2) / delta)
    wanted = share * (rows - p)
    root = np.sqrt(weight)
    beta = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0]
    least = _NO_SCALE * max(float(np.sqrt(weight @ y**2 / rows)), np.finfo(float).tiny)
    scale = float(np.sqrt(weight @ (y - design @ beta) ** 2 / rows))
    if scale <= least or wanted <= 0:
        return beta, 0.0, 1

    def value(beta: np.ndarray, scale: float) -> float:
        if scale <= 0:
            return math.inf
        u = np.abs(y - design @ beta) / scale
        inner = np.minimum(u, delta)
        return scale * (float(weight @ (inner**2 / 2 + delta * (u - inner))) + wanted / 2)

    beta, scale = _start(design, y, weight, delta, beta, scale, least)
    now = value(beta, scale)
    for step in range(1, max_iter + 1):
        u = (y - design @ beta) / scale
        psi = np.clip(u, -delta, delta)
        slope = np.append(-(design.T @ (weight * psi)), (wanted - weight @ psi**2) / 2)
        joint = np.column_stack([design, u])
        inner = weight * (np.abs(u) <= delta)
        curve = (joint * inner[:, None]).T @ joint / scale
        # reweighted least squares, whose curvature is above that of the loss and fixes every direction
        steady = (joint * (weight * psi / np.where(u == 0, 1.0, u) + weight * (u == 0))[:, None]).T @ joint
        size = np.sqrt(np.diag(steady) / scale)
        size = np.where(size > 0, size, 1.0)
        even = curve / np.outer(size, size)
        few = 1e-12 if np.linalg.eigvalsh(even)[0] > 1e-8 else 0.1
        even = even + few * steady / scale / np.outer(size, size) + 1e-14 * np.eye(len(even))
        direction = -np.linalg.solve(even, slope / size) / size
        fall = float(slope @ direction)
        if -fall <= _TOLERANCE * now:
            # too near for values to tell: a last step, which is exact unless an answer changes sides
            return beta + direction[:-1], scale + direction[-1], step
        length = min(1.0, 0.9 * scale / -direction[-1]) if direction[-1] < 0 else 1.0
        for _ in range(_HALVINGS):
            tried = beta + length * direction[:-1], scale + length * direction[-1]
            after = value(*tried)
            if after <= now + 1e-4 * length * fall:
                break
            length /= 2
        else:
            return beta, scale, step
        (beta, scale), now = tried, after
        if scale <= least:
            return beta, 0.0, step
    return beta, scale, max_iter


def _start(
    design: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    delta: float,
    beta: np.ndarray,
    scale: float,
    least: float,
) -> tuple[np.ndarray, float]:
    """Some steps of reweighted least squares with the median deviation as scale."""
    for _ in range(_STARTS):
        size = np.abs(y - design @ beta)
        order = np.argsort(size)
        half = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
        middle = float(size[order[min(half, len(size) - 1)]])
        if middle <= least:
            break
        scale = 1.4826 * middle
        root = np.sqrt(weight * np.minimum(1.0, delta * scale / np.maximum(size, delta * scale)))
        beta = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0]
    return beta, scale
