"""Generalised linear models: an answer of any family whose mean is a function of a linear predictor."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Self

import numpy as np
from jax import Array
from scipy import linalg, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..._core import Evidence, Fit, Kind, Status, has_nan, on_device
from ...distributions import Gaussian, Mean, Natural
from ...evaluation import (
    AbstractLaws,
    Influence,
    StackedLaws,
    TestResult,
    likelihood_ratio_test,
    linear_likelihood_is_unbounded,
)
from ...evaluation._laws import averaged
from ...models import Affine, Conditional
from ...shell import (
    AbstractDensity,
    Coefficients,
    Rows,
    Scaling,
    check_instance,
    check_numbers,
    check_real,
    framed,
    framed_ends,
)
from ...shell._validation import check_weight
from ._links import LOG, HostLink, host_link
from ._newton import Ascent, inverse, newton, solved
from ._regressor import AbstractRegressor
from ._responses import RESPONSES, AbstractResponse
from ._scoring import Predictors

# a direction of this part of the largest variance of standardised columns has none
_COLLINEAR = 1e-12
# rows of which a first fit is made, where there are many more
_SAMPLE = 20_000
# a mean this near to the edge of its range may be one that coefficients diverge for
_CERTAIN = 1e-5
# at how many values of the predictor, and of the dispersion, intervals ask for the law of a new answer
_NODES = 7
# coefficients of standardised columns that are no start
_STEEP = 20.0
_UNBOUNDED = (
    "the likelihood has no maximum (a linear rule tells rows with the least, or the largest, answer from "
    "the others), so that coefficients grow without bound; set alpha, such as alpha=1.0"
)
_STUCK = "no step raises the likelihood, which has no maximum there; set alpha, or choose another link"


class GeneralisedLinearModel(AbstractRegressor):
    """p(y | x) of a family whose mean is h(η), η = w·x + b + offset: Fisher scoring and Newton's method.

    Least squares, logistic, probit and Poisson regression, Gamma, Beta and negative binomial regression and
    their zero-inflated kin are choices of the family and of h, the inverse of the link.  Steps are those of
    Fisher scoring (iteratively reweighted least squares) for the mean alone and of Newton's method where
    further parameters are fitted with it, halved where the likelihood would fall.

    Args:
        family: `Gaussian`, `Poisson`, `Bernoulli`, `Binomial`, `Gamma`, `Exponential`, `NegativeBinomial`
            or `Beta` of `freeenergy.distributions`; or `InverseGaussian()`, `ModelledShape()` or
            `ZeroInflated(family)` of `freeenergy.estimators`.
        link: `Mean(inverse)` of `freeenergy.distributions` with any inverse link, such as `Mean(jnp.exp)`,
            `Mean(jax.nn.sigmoid)`, `Mean(normal_cdf)` (probit), `Mean(gumbel_cdf)` (complementary log-log),
            `Mean(reciprocal)`, `Mean(jnp.square)` or `Mean()`; `Natural()` for the canonical one.  None is
            the identity for real means, the logarithm for positive ones, the log-odds for shares.
        varying: whether the second parameter of the family (variance, shape, precision, dispersion, share
            of zeros), through its logarithm or log-odds, is linear in the row too.
        fit_intercept: whether there is a constant b.
        alpha: strength of the penalty ½ alpha ‖w‖², for standardised columns.
        overdispersed: whether standard errors are those of quasi-likelihood, √dispersion_ times as large,
            for counts and shares too.
        max_iter: the most steps.
        tol: it stops with a step whose squared length, in standard errors, is at most this.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.

    Attributes:
        coef_, intercept_: w and b, in the units of the data.
        other_names_: what further parameters there are, such as "log shape".
        other_coef_, other_intercepts_: their linear predictors; zero and a constant unless `varying`.
        columns_: what the columns of `coef_` are called: those of X, or NAME=LABEL.
        dispersion_: Pearson's χ² over the degrees of freedom, with which standard errors grow.
        covariance_: of the constant, the coefficients and what else was fitted, in the units of the data.
        standard_errors_: the roots of its diagonal; NaN where the data do not tell.
        deviance_, null_deviance_: of the fit, and of that of a constant mean.
        pearson_: Pearson's χ².
        log_likelihood_, null_log_likelihood_: the largest, with all parameters, and with a constant mean.
        residual_dof_: rows less coefficients.
        rank_, untold_: how many coefficients the data tell, and which they do not.
        held_: further parameters at a bound, where the simpler family does as well.
        imputed_: whether entries of X were missing.
        answer_shape_, answer_names_, answer_scaling_, inputs_: as in every regressor.
        model_: a `freeenergy.models.Conditional` of rescaled rows at offset zero, where the library has the
            family as a distribution and one predictor does; else the `Affine` predictors.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Where columns repeat each other the coefficients are those of least norm, and a sentence says so.

    >>> from freeenergy.distributions import Poisson
    >>> X, counts = [[0.0], [0.0], [1.0], [1.0]], [1, 3, 7, 9]
    >>> model = GeneralisedLinearModel(Poisson).fit(X, counts)
    >>> model.predict([[0.0], [1.0]]).round(6).tolist(), model.coef_.round(4).tolist()
    ([2.0, 8.0], [1.3863])
    >>> model.predict_density([[1.0]]).quantile(0.95).tolist(), model.predict_interval([[1.0]])[1].tolist()
    ([13.0], [15.0])
    """

    # they know that parameters are estimates, as the law does not
    intervals_of_law = False

    def __init__(
        self,
        family: Any = Gaussian,
        link: Mean | Natural | None = None,
        *,
        varying: bool = False,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        overdispersed: bool = False,
        max_iter: int = 100,
        tol: float = 1e-12,
        inputs: AbstractDensity | None = None,
    ) -> None:
        self.family = family
        self.link = link
        self.varying = varying
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.overdispersed = overdispersed
        self.max_iter = max_iter
        self.tol = tol
        self.inputs = inputs

    untold_: np.ndarray

    @property
    def _maximises_likelihood(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.alpha == 0 and not self.imputed_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.target_tags.positive_only = self.family is not Gaussian
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        known = isinstance(self.family, type) and self.family in RESPONSES
        if not known and not isinstance(self.family, AbstractResponse):
            names = ", ".join(sorted(kind.__name__ for kind in RESPONSES))
            raise ValueError(
                f"The 'family' parameter of GeneralisedLinearModel must be one of {names} of "
                "freeenergy.distributions, or InverseGaussian(), ModelledShape() or ZeroInflated(…) of "
                f"freeenergy.estimators. Got {self.family!r} instead."
            )
        check_instance(self, "link", Mean, Natural, optional=True)
        check_real(self, "alpha")
        if self.varying and not any(self._response.may_vary):
            raise ValueError(
                f"The 'varying' parameter of GeneralisedLinearModel must be False for {self._family_name}, "
                "which has no second parameter."
            )

    @property
    def _response(self) -> AbstractResponse:
        return RESPONSES[self.family] if isinstance(self.family, type) else self.family

    @property
    def _family_name(self) -> str:
        return self.family.__name__ if isinstance(self.family, type) else repr(self.family)

    @property
    def _host_link(self) -> HostLink:
        if self.link is None:
            return self._response.usual
        return self._response.canonical if isinstance(self.link, Natural) else host_link(self.link.inverse)

    @property
    def _varying(self) -> tuple[bool, ...]:
        return tuple(self.varying and may for may in self._response.may_vary)

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.identity(y.shape[1])

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        found = Scaling.standardise(X, weight)
        return found if self.fit_intercept else Scaling(np.zeros_like(found.shift), found.scale)

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Self:
        """Fits the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.
            y: a number for each row: what the family allows.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
            offset: a number for each row, which is added to its predictor.
            exposure: a positive number for each row, such as a time or a population, in proportion to which
                the mean grows: with the logarithm as link, an offset of its logarithm.
            trials: for `Bernoulli` and `Binomial`, out of how many each answer is; one if not passed.
        """
        beside = {"offset": offset, "exposure": exposure, "trials": trials}
        if any(value is not None for value in beside.values()):
            self._check_parameters()
            beside = self._beside(**beside)
        self._fit(X, y=y, sample_weight=sample_weight, **{k: v for k, v in beside.items() if v is not None})
        return self

    def _beside(self, offset: Any, exposure: Any, trials: Any) -> dict[str, np.ndarray]:
        """What goes with rows, by name: nothing, or an offset and a number of trials for each."""
        name = type(self).__name__
        found = {
            key: np.asarray(value, float)
            for key, value in {"offset": offset, "exposure": exposure, "trials": trials}.items()
            if value is not None
        }
        if not found:
            return {}
        rows = max(map(np.size, found.values()))
        for key, value in found.items():
            least = {"offset": -np.inf, "exposure": 0.0, "trials": 1.0}[key]
            good = np.isfinite(value) & ((value >= least) if key == "trials" else (value > least))
            if value.shape != (rows,) or not good.all():
                wanted = {"offset": "finite", "exposure": "positive", "trials": "positive whole"}[key]
                bad = value.shape if value.shape != (rows,) else value[~good][0]
                raise ValueError(
                    f"The '{key}' of {name} must be a {wanted} number for each row. Got {bad}."
                )
        if trials is not None and not self._response.counted:
            raise ValueError(
                f"The 'trials' of {name} are of Bernoulli or Binomial answers. Got them with "
                f"{self._family_name} answers."
            )
        total = found.get("offset", np.zeros(rows))
        if "exposure" in found:
            if self._host_link is not LOG:
                raise ValueError(
                    f"The 'exposure' of {name} needs the logarithm as link, Mean(jnp.exp). Use 'offset'."
                )
            total = total + np.log(found["exposure"])
        return {"offset": total, "trials": found.get("trials", np.ones(rows))}

    def _design(self, z: np.ndarray) -> np.ndarray:
        if not self.fit_intercept:
            return z
        design = np.empty((len(z), z.shape[1] + 1))
        design[:, 0], design[:, 1:] = 1.0, z
        return design

    def _check_answers(self, y: np.ndarray, trials: np.ndarray) -> None:
        good = self._response.allows(y, trials)
        if not good.all():
            row = int(np.argmax(~good))
            raise ValueError(
                f"The 'y' of {type(self).__name__} must be {self._response.values} for {self._family_name} "
                f"answers. Got {y[row]:g} in row {row}."
            )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        if self.answer_shape_:
            raise ValueError(
                f"The 'y' of {type(self).__name__} must have one number a row. Got {rows.known.shape[1]} "
                "columns; fit a model for each."
            )
        beside = rows.known.shape[1] > 1
        trials = rows.known[:, 2] if beside else np.ones(len(rows.x))
        self._check_answers(rows.known[:, 0], trials)
        self.imputed_ = has_nan(rows.x)
        rows, _ = self._completed(rows, rows.known[:, :1])
        assert rows.known is not None
        y = np.ascontiguousarray(rows.known[:, 0])
        offset, trials = (rows.known[:, 1], rows.known[:, 2]) if beside else (None, np.ones(len(y)))
        design = self._design(self.scaling_.apply(rows.x))
        return self._fit_predictors(design, y, rows.weight, offset, trials)

    def _fit_predictors(
        self,
        design: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        offset: np.ndarray | None,
        trials: np.ndarray,
    ) -> Fit:
        response, link, varying = self._response, self._host_link, self._varying
        # whether further parameters are fitted together with the mean
        joint = bool(response.others) and (any(varying) or not response.dispersed)
        mean, others = response.start(y, weight, trials)
        first = float(link.predictor(np.array([mean]))[0])
        if offset is not None:
            first -= float(np.average(offset, weights=weight))
        ones = np.ones((len(y), 1))
        null = Predictors(
            response=response,
            link=link,
            design=ones,
            y=y,
            weight=weight,
            offset=offset,
            trials=trials,
            varying=(False,) * len(others),
            fixed=None if joint else others,
            ridge=np.zeros(1 + joint * len(others)),
        )
        begun, least = np.array([first]), None
        if joint:
            begun, least = np.append(begun, others), np.append(-np.inf, response.least())
        constant = newton(null.at, begun, max_iter=self.max_iter, tol=self.tol, least=least)
        first, *rest = constant.coefficients
        basis = self._basis(design, weight)
        reduced = design if basis is None else design @ basis
        # coefficients of the constant alone, or as nearly as there are such
        one = np.eye(design.shape[1])[0]
        if not self.fit_intercept:
            one = np.linalg.lstsq(design, ones[:, 0], rcond=None)[0]
        one = one if basis is None else basis.T @ one
        ridge = np.full(len(one), float(self.alpha))
        ridge[: int(self.fit_intercept)] = 0.0
        start, penalties, bounds = [first * one], [ridge], [np.full(len(one), -np.inf)]
        if joint:
            for varies, other, bound in zip(varying, rest, response.least(), strict=True):
                start.append(other * one if varies else np.array([other]))
                penalties.append(ridge if varies else np.zeros(1))
                bounds.append(np.full(len(start[-1]), -np.inf if varies else bound))
        full = dataclasses.replace(null, design=reduced, varying=varying, ridge=np.concatenate(penalties))
        found = self._ascend(full, np.concatenate(start), np.concatenate(bounds) if joint else None)
        other = self._keep_numbers(full, found, null, constant)
        self._keep_errors(full, found, basis)
        model = self._keep_coefficients(full, found, basis, other)
        status, note = found.status, _STUCK if found.status is Status.NON_FINITE else ""
        if self.alpha == 0 and response.edged and self._diverges(full, found):
            status, note = Status.UNBOUNDED, _UNBOUNDED
        return Fit(model, {"objective": -found.history / weight.sum()}, found.n_iter, status, note=note)

    def _basis(self, design: np.ndarray, weight: np.ndarray) -> np.ndarray | None:
        """Directions of coefficients that the rows tell; None if they are all."""
        used = design if (weight > 0).all() else design[weight > 0]
        gram = used.T @ used / len(used)
        values, vectors = np.linalg.eigh(gram)
        told = values > _COLLINEAR * max(values[-1], 1.0)
        self.rank_ = len(told) if self.alpha > 0 else int(told.sum())
        self.untold_ = np.zeros(len(gram), bool)
        if told.all() or self.alpha > 0:
            return None
        self.untold_ = np.asarray((np.abs(vectors[:, ~told]) > 1e-6).any(axis=1))
        varied = np.diag(gram) > _COLLINEAR
        names = np.array(self.columns_)[(self.untold_ & varied)[int(self.fit_intercept) :]]
        if len(names):
            listed = ", ".join(map(repr, names[:5].tolist())) + (", …" if len(names) > 5 else "")
            warnings.warn(
                f"{type(self).__name__}: the columns {listed} of X are linear combinations of each other; "
                "of all coefficients that fit equally well those of least norm are taken.",
                ConvergenceWarning,
                stacklevel=7,
            )
        return vectors[:, told]

    def _ascend(self, full: Predictors, start: np.ndarray, least: np.ndarray | None) -> Ascent:
        rows = len(full.y)
        if rows > 4 * _SAMPLE and least is None:
            some = full.sample(np.arange(0, rows, rows // _SAMPLE))
            near = newton(some.at, start, max_iter=20, tol=1e-2)
            if near.status is Status.CONVERGED and np.abs(near.coefficients).max() < _STEEP:
                start = near.coefficients
        return newton(full.at, start, max_iter=self.max_iter, tol=self.tol, least=least)

    def _keep_numbers(
        self, full: Predictors, found: Ascent, null: Predictors, constant: Ascent
    ) -> np.ndarray:
        """Stores likelihoods and deviances; gives the further coordinates, a dispersion among them."""
        response, y, weight, trials = full.response, full.y, full.weight, full.trials
        eta, other = full.predictors(found.coefficients)
        mean = full.link.mean(eta)[0]
        value, null_value, null_deviance = found.at.value, constant.at.value, None
        if full.fixed is not None and response.others:
            # the dispersion of each mean, which the fit of the mean did not need
            other = response.dispersion(y, mean, weight)
            value = dataclasses.replace(full, fixed=other).at(found.coefficients).value
            null_mean = full.link.mean(null.predictors(constant.coefficients)[0])[0]
            own = response.dispersion(y, null_mean, weight)
            null_value = dataclasses.replace(null, fixed=own).at(constant.coefficients).value
            null_deviance = float(weight @ response.deviance(y, null_mean, other, trials))
        self.log_likelihood_ = value + 0.5 * float(full.ridge @ found.coefficients**2)
        self.null_log_likelihood_ = null_value
        self.deviance_ = float(weight @ response.deviance(y, mean, other, trials))
        if null_deviance is None:
            null_deviance = self.deviance_ + 2 * (self.log_likelihood_ - self.null_log_likelihood_)
        self.null_deviance_ = null_deviance
        gap, variance = y - response.mean(mean, other, trials), response.variance(mean, other, trials)
        # what is certain, and so, is no surprise
        squares = np.divide(gap**2, variance, out=np.zeros_like(gap), where=gap != 0)
        self.pearson_ = float(weight @ squares)
        self.residual_dof_ = float(weight.sum()) - self.rank_
        self.dispersion_ = self.pearson_ / self.residual_dof_ if self.residual_dof_ > 0 else np.nan
        return other

    def _keep_coefficients(
        self, full: Predictors, found: Ascent, basis: np.ndarray | None, other: np.ndarray
    ) -> Any:
        """Stores the predictors of further parameters; gives the model."""
        parts = full.parts(found.coefficients)
        predictors = [self._split(parts[0], basis)]
        for place, varies in enumerate(self._varying):
            constant = other[place] if full.fixed is not None else parts[1 + place][0]
            predictors.append(
                self._split(parts[1 + place], basis) if varies else (np.zeros(self._width), float(constant))
            )
        w, b = np.stack([part[0] for part in predictors]), np.array([part[1] for part in predictors])
        self.other_names_ = list(self._response.others)
        self.other_coef_ = w[1:] / self.scaling_.scale
        self.other_intercepts_ = b[1:] - self.other_coef_ @ self.scaling_.shift
        given = None if any(self._varying) else self._response.given(b[1:], self._host_link)
        if given is None:
            return Affine(on_device(w), on_device(b))
        return Conditional(Affine(on_device(w[:1]), on_device(b[:1])), given)

    def _diverges(self, full: Predictors, found: Ascent) -> bool:
        """Whether the likelihood grows for ever along some direction."""
        y, trials, used = full.y, full.trials, full.weight > 0
        mean = full.link.mean(full.predictors(found.coefficients)[0])[0]
        top = (y == trials) & self._response.counted
        sides = np.where(y == 0, -1, np.where(top, 1, 0))
        near = np.where(y == 0, mean, np.where(top, 1 - mean, np.inf)) < _CERTAIN
        return bool((near & used).any()) and linear_likelihood_is_unbounded(full.design[used], sides[used])

    def _split(self, coefficients: np.ndarray, basis: np.ndarray | None) -> tuple[np.ndarray, float]:
        """The coefficients of rescaled columns, and the constant."""
        found = coefficients if basis is None else basis @ coefficients
        return (found[1:], float(found[0])) if self.fit_intercept else (found, 0.0)

    def _to_units(self) -> np.ndarray:
        """The matrix that takes coefficients of rescaled columns to those in the units of the data."""
        d, shift = self._width, int(self.fit_intercept)
        to = np.zeros((d + shift, d + shift))
        to[shift:, shift:] = np.diag(1 / self.scaling_.scale)
        if shift:
            to[0, 0] = 1.0
            to[0, 1:] = -self.scaling_.shift / self.scaling_.scale
        return to

    def _keep_errors(self, full: Predictors, found: Ascent, basis: np.ndarray | None) -> None:
        """Stores the covariance of what was fitted, in the units of the data."""
        free = ~found.held
        inside = np.zeros((len(free), len(free)))
        information = found.at.information[np.ix_(free, free)]
        if np.isfinite(information).all():
            inside[np.ix_(free, free)] = inverse(information)
        to_units = self._to_units() if basis is None else self._to_units() @ basis
        further = [to_units if varies else np.eye(1) for varies in full.varying if full.fixed is None]
        to = np.asarray(linalg.block_diag(to_units, *further)) if further else to_units
        factor = 1.0
        if full.fixed is not None and self._response.others:
            factor = self.dispersion_ * self._response.precision(full.fixed)
        elif self.overdispersed:
            factor = self.dispersion_
        self.covariance_ = factor * (to @ inside @ to.T)
        names = [name for name, varies in zip(self._response.others, full.varying) if not varies]
        constants = found.held[len(found.held) - len(names) :] if full.fixed is None else []
        self.held_ = [name for name, at in zip(names, constants) if at]
        self.standard_errors_ = np.sqrt(np.maximum(self.covariance_.diagonal(), 0.0))
        # what the data do not tell has no error; the constant is told by the origin
        lost = np.zeros(len(self.standard_errors_), bool)
        lost[: len(self.untold_)] = self.untold_
        lost[: int(self.fit_intercept)] = False
        self.standard_errors_[lost] = np.nan

    @property
    def _function(self) -> Affine:
        return self.model_.function if isinstance(self.model_, Conditional) else self.model_

    @property
    def coef_(self) -> np.ndarray:
        """w, in the units of the data."""
        return np.asarray(self._function.weight)[0] / self.scaling_.scale

    @property
    def intercept_(self) -> float:
        """b, in the units of the data."""
        return float(np.asarray(self._function.bias)[0] - self.coef_ @ self.scaling_.shift)

    @property
    def model_in_units(self) -> Conditional:
        """p(y | x) at offset zero in the units of the data, where `model_` has rescaled rows."""
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, Conditional):
            raise TypeError(
                "GeneralisedLinearModel has a model in the units of the data for Gaussian, Poisson, "
                "Bernoulli, Gamma and NegativeBinomial answers with constants beside their mean. Got "
                f"{self.family!r} "
                f"with varying={self.varying!r} instead."
            )
        function = Affine(on_device(self.coef_[None]), on_device(np.array([self.intercept_])))
        return Conditional(function, self.model_.answer)

    @property
    def _known_fields(self) -> tuple[str, ...]:
        return () if self.fit_intercept else ("function.bias",)

    def _numbers_at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean, the further parameters and the trials of rows with their offset and trials."""
        rows, beside = x[:, : self._width], x[:, self._width :]
        with np.errstate(over="ignore"):
            mean = self._host_link.mean(self._eta(x))[0]
        other = (rows @ self.other_coef_.T + self.other_intercepts_).T
        return mean, other, beside[:, 1] if beside.shape[1] else np.ones(len(x))

    def _working(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of rows with what goes with them: how the mean follows the predictor, variance and design."""
        mean, other, trials = self._numbers_at(x)
        slope = self._host_link.mean(self._eta(x))[1] * (trials if self._response.counted else 1.0)
        return slope, self._response.variance(mean, other, trials), self._design(x[:, : self._width])

    def _eta(self, x: np.ndarray) -> np.ndarray:
        """The predictor of rows with what goes with them."""
        z = self.scaling_.apply(x[:, : self._width])
        eta = z @ np.asarray(self._function.weight)[0] + np.asarray(self._function.bias)[0]
        return eta + x[:, self._width] if x.shape[1] > self._width else eta

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        mean, other, trials = self._numbers_at(x)
        check_numbers(self, "predict_density", mean)
        return self._response.laws(mean, other, trials)

    def _laws_of_incomplete(self, x: np.ndarray) -> AbstractLaws:
        return averaged(self._laws, self._completions(x))

    def _completions(self, x: np.ndarray) -> np.ndarray:
        """Draws of what is missing in rows, with what goes with them: (draws, rows, columns)."""
        draws = self._input_draws(x[:, : self._width])
        beside = np.broadcast_to(x[:, self._width :], (*draws.shape[:2], x.shape[1] - self._width))
        return np.concatenate([draws, beside], axis=2)

    def _new_answers(self, x: np.ndarray) -> StackedLaws:
        """What is known of answers that were not fitted: an average over what the fit leaves open.

        The predictor is normal about its estimate; Pearson's dispersion is the true one times χ²/ν, as in
        least squares, for which this is Student's law.

        Args:
            x: completions of rows, (draws, rows, columns).
        """
        draws, rows = x.shape[:2]
        x = x.reshape(draws * rows, -1)
        eta, spread = self._eta(x), self._spread_of_predictor(x)
        mean, other, trials = self._numbers_at(x)
        check_numbers(self, "predict_interval", mean)
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        weights = weights / weights.sum()
        means, others, shares = [], [], []
        for ratio, own, share in self._dispersions(other, nodes, weights):
            with np.errstate(over="ignore"):
                moved = eta + nodes[:, None] * np.sqrt(ratio) * spread
                there = np.isfinite(self._response.coordinate_by(self._host_link)(moved)[0])
                at = self._host_link.mean(moved)[0]
            # a predictor without a mean is none
            means.append(np.where(there & np.isfinite(at), at, mean))
            others.append(np.repeat(own[:, None], _NODES, axis=1))
            shares.append(share * weights)
        whole, further = np.concatenate(means), np.concatenate(others, axis=1)
        laws = self._response.laws(
            whole.ravel(), further.reshape(len(other), whole.size), np.tile(trials, len(whole))
        )
        logs = np.log(np.repeat(np.concatenate(shares), draws) / draws)
        return StackedLaws(np.broadcast_to(logs[:, None], (len(logs), rows)), laws)

    def _dispersions(self, other: np.ndarray, nodes: np.ndarray, weights: np.ndarray) -> list[Any]:
        """Dispersions, as parts of Pearson's, with the further parameters that they mean and weights."""
        if not self._dispersed or not self.dispersion_ > 0:
            return [(1.0, other, 1.0)]
        ratios = self._dof / stats.chi2.ppf(stats.norm.cdf(nodes), self._dof)
        owns = [self._response.of_precision(1 / (ratio * self.dispersion_)) for ratio in ratios]
        return [
            (ratio, np.broadcast_to(own[:, None], other.shape), weight)
            for ratio, own, weight in zip(ratios, owns, weights, strict=True)
        ]

    def _spread_of_predictor(self, x: np.ndarray) -> np.ndarray:
        """The standard error of η for each row."""
        design = self._design(x[:, : self._width])
        known = slice(0, design.shape[1])
        square = np.einsum("ni,ij,nj->n", design, self.covariance_[known, known], design)
        return np.sqrt(np.maximum(square, 0.0))

    def _rows(self, X: Any, offset: Any, exposure: Any, trials: Any) -> np.ndarray:
        """Rows as modelled, with what goes with them."""
        x = self._read(X).x
        beside = self._beside(offset, exposure, trials)
        if beside and len(beside["offset"]) != len(x):
            raise ValueError(
                f"The 'offset', 'exposure' or 'trials' of {type(self).__name__} must be a number for each "
                f"of the {len(x)} rows of X. Got {len(beside['offset'])}."
            )
        return np.column_stack([x, *beside.values()])

    def predict_density(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, *, offset: Any = None, exposure: Any = None, trials: Any = None
    ) -> AbstractLaws:
        """p(y | x): the law of the answer to each row; see `fit` for what may go with the rows."""
        check_is_fitted(self, "model_")
        return self._laws_of(self._rows(X, offset, exposure, trials))

    @framed
    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, *, offset: Any = None, exposure: Any = None, trials: Any = None
    ) -> Any:
        """The mean of the answer to each row; see `fit` for what may go with the rows."""
        check_is_fitted(self, "model_")
        x = self._rows(X, offset, exposure, trials)
        holes = np.isnan(x).any(axis=1)
        found = np.empty(len(x))
        if (~holes).any():
            found[~holes] = self._response.mean(*self._numbers_at(x[~holes]))
        if holes.any():
            found[holes] = self._laws_of_incomplete(x[holes]).mean()
        return check_numbers(self, "predict", found)

    @framed_ends
    def predict_interval(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, level: float = 0.9, *, offset: Any = None, exposure: Any = None, trials: Any = None
    ) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`.

        Unlike those of `predict_density`, the law of the fitted parameters, they know that these are
        estimates: the law is averaged over what their standard errors leave open.
        """
        check_is_fitted(self, "model_")
        x = self._rows(X, offset, exposure, trials)
        holes, ends = np.isnan(x).any(axis=1), np.empty((2, len(x)))
        if (~holes).any():
            ends[:, ~holes] = self._new_answers(x[~holes][None]).interval(level)
        if holes.any():
            ends[:, holes] = self._new_answers(self._completions(x[holes])).interval(level)
        return ends[0], ends[1]

    @framed_ends
    def predict_mean_interval(self, X: Any, level: float = 0.9, *, offset: Any = None) -> tuple[Any, Any]:
        """Both ends of the confidence interval of the mean of the answer to each row, by that of η.

        For `Bernoulli` and `Binomial` it is that of the probability.
        """
        check_is_fitted(self, "model_")
        x = self._rows(X, offset, None, None)
        if has_nan(x):
            raise ValueError(
                f"The X of {type(self).__name__}.predict_mean_interval must have no missing entries."
            )
        eta, width = self._eta(x), self._quantile((1 + level) / 2) * self._spread_of_predictor(x)
        ends = np.stack([self._host_link.mean(end)[0] for end in (eta - width, eta + width)])
        return ends.min(axis=0), ends.max(axis=0)

    @property
    def _dispersed(self) -> bool:
        """Whether the law has a dispersion beside its mean, the same for all rows."""
        return self._response.dispersed and not any(self._varying)

    @property
    def _dof(self) -> float:
        estimated = self.overdispersed or self._dispersed
        return max(self.residual_dof_, 1.0) if estimated else np.inf

    def _quantile(self, p: float) -> float:
        return float(stats.norm.ppf(p) if np.isinf(self._dof) else stats.t.ppf(p, self._dof))

    def evidence(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, *, offset: Any = None, exposure: Any = None, trials: Any = None
    ) -> Evidence:
        """log p(y | x) of each row; an estimate, with its error, where entries of x are missing."""
        check_is_fitted(self, "model_")
        return self._evidence_of(self._rows(X, offset, exposure, trials), y)

    def likelihood_ratio_test(self, smaller: GeneralisedLinearModel) -> TestResult:
        """Whether this fit is better than that of a special case of it to the same rows, by χ²."""
        check_is_fitted(self, "model_")
        check_is_fitted(smaller, "model_")
        if self.fitted_size_ != smaller.fitted_size_:
            raise ValueError(
                "The 'smaller' model of likelihood_ratio_test must be fitted to the same rows. Got "
                f"{smaller.fitted_size_:g} and {self.fitted_size_:g} rows."
            )
        more = self._count_parameters() - smaller._count_parameters()
        return likelihood_ratio_test(smaller.log_likelihood_, self.log_likelihood_, more)

    def wald_test(self, columns: Any = None) -> TestResult:
        """Whether several coefficients are all zero: wᵀ Cov⁻¹ w against χ².

        Args:
            columns: names among `columns_`, or their numbers; all if None.
        """
        check_is_fitted(self, "model_")
        names = self.columns_
        asked = range(len(names)) if columns is None else columns
        places = [names.index(c) if isinstance(c, str) else int(c) for c in asked]
        own = np.array(places) + int(self.fit_intercept)
        w = self.coef_[places]
        statistic = float(w @ solved(self.covariance_[np.ix_(own, own)], w))
        return TestResult(statistic, float(stats.chi2.sf(statistic, len(places))))

    def influence(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Influence:
        """Leverage, residuals and Cook's distance of each row of the fit, which have to be complete."""
        check_is_fitted(self, "model_")
        if (self._response.others and not self._response.dispersed) or any(self._varying):
            raise ValueError(
                f"The 'influence' of rows is that of a mean alone, and {self._family_name} answers have "
                "further parameters that are fitted with it."
            )
        x = self._rows(X, offset, exposure, trials)
        if has_nan(x):
            raise ValueError(f"The X of {type(self).__name__}.influence must have no missing entries.")
        y = np.asarray(y, float)
        weight = check_weight(x, sample_weight)
        weight = np.ones(len(x)) if weight is None else weight
        mean, other, trials_ = self._numbers_at(x)
        slope, variance, design = self._working(x)
        root = design * (slope * np.sqrt(weight / variance))[:, None]
        leverage = (_orthonormal(root) ** 2).sum(axis=1)
        gap = y - self._response.mean(mean, other, trials_)
        pearson = gap * np.sqrt(weight / variance)
        deviance = np.sign(gap) * np.sqrt(
            np.maximum(weight * self._response.deviance(y, mean, other, trials_), 0.0)
        )
        scale = self.dispersion_ if self._response.dispersed or self.overdispersed else 1.0
        studentised = pearson / np.sqrt(scale * (1 - leverage))
        cooks = studentised**2 * leverage / (1 - leverage) / self.rank_
        return Influence(leverage, pearson, deviance, studentised, cooks)

    def _count_parameters(self) -> int:
        varying = sum(self.rank_ if varies else 1 for varies in self._varying)
        return self.rank_ + varying

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        total = np.array([self.log_likelihood_])
        if self.imputed_:
            return "The log-likelihood of rows with missing entries is known by draws alone: see evidence."
        return Evidence(total, np.zeros(1), Kind.EXACT), None

    def _remarks(self) -> list[str]:
        notes = []
        if self.imputed_:
            notes.append("Missing entries of X were drawn; standard errors are those of complete rows.")
        if self.untold_.any():
            notes.append(
                "Columns repeat each other, or never vary: coefficients of least norm, without errors."
            )
        notes += [f"The {name} is at its bound: the simpler family does as well." for name in self.held_]
        return notes

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        names, values = ["intercept"] * self.fit_intercept + list(self.columns_), self.coef_
        values = np.concatenate([[self.intercept_] * self.fit_intercept, values])
        errors = self.standard_errors_
        response, notes = self._response, []
        if robust:
            if X is None or "y" not in given:
                notes.append("Robust errors need the rows of the fit: summary(X, y=y, robust=True).")
            elif len(errors) > len(values):
                notes.append(
                    "There are no robust errors where further parameters are fitted with the mean."
                )
            else:
                errors = self._robust_errors(X, **given)
        if len(errors) > len(values):
            for place, name in enumerate(response.others):
                if self._varying[place]:
                    own = ["intercept"] * self.fit_intercept + list(self.columns_)
                    names += [f"{name}: {column}" for column in own]
                    constant = [self.other_intercepts_[place]] * self.fit_intercept
                    values = np.concatenate([values, constant, self.other_coef_[place]])
                else:
                    names.append(name)
                    values = np.append(values, self.other_intercepts_[place])
        facts = {
            "deviance": self.deviance_,
            "null deviance": self.null_deviance_,
            "Pearson's χ²": self.pearson_,
            "dispersion": self.dispersion_,
            "residual degrees of freedom": self.residual_dof_,
            "pseudo R² (McFadden)": 1 - self.log_likelihood_ / self.null_log_likelihood_
            if self.null_log_likelihood_
            else np.nan,
        }
        return Coefficients(names, values, errors, self._dof, facts, notes)

    def _robust_errors(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> np.ndarray:
        """The sandwich (HC0): errors that hold also where the variance is not that of the family."""
        x = self._rows(X, offset, exposure, trials)
        weight = check_weight(x, sample_weight)
        weight = np.ones(len(x)) if weight is None else weight
        slope, variance, design = self._working(x)
        gap = np.asarray(y, float) - self._response.mean(*self._numbers_at(x))
        score = design * (slope * gap / variance)[:, None]
        scale = self.dispersion_ if self._response.others or self.overdispersed else 1.0
        bread = self.covariance_ / scale
        return np.sqrt(np.diag(bread @ ((score * weight[:, None]).T @ score) @ bread))


def _orthonormal(root: np.ndarray) -> np.ndarray:
    """Columns of an orthonormal basis of those of a matrix."""
    u, size, _ = np.linalg.svd(root, full_matrices=False)
    return u[:, size > 1e-10 * size[0]]
