"""What regressions with a linear mean share: coefficients, their errors, and the law of answers."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from ..._core import Fit, Status, has_nan, on_device
from ...distributions import Diagonal, Full, Gaussian, Given, Mean, rescaled
from ...evaluation import AbstractLaws, Laws, NormalLaws, StudentLaws
from ...evaluation._checks import fraction
from ...models import Affine, Conditional
from ...shell import AnswerColumns, Chunks, Coefficients, Rows, Scaling, check_numbers, framed, framed_ends
from ...shell._intake import checked_answers
from ...shell._validation import check_rows, check_weight
from ._inputs import GaussianInputs
from ._regressor import AbstractRegressor
from ._triangle import Triangle, is_few, joined_blocks, triangle_of

# rows, rescaled answers and weights
Data = tuple[np.ndarray, np.ndarray, np.ndarray]

# numbers above which columns are scaled by some rows at first; so many rows
_LARGE, _SOME_ROWS = 2_000_000, 20_000
# a first chunk whose columns are so many of all rows' deviations off, or so many times as wide, will not do
_OFF, _WIDER = 10.0, 100.0


@functools.cache
def _structure(outputs: int, whole: bool) -> tuple[Any, list[Any]]:
    """The tree of a model with a linear mean, and its leaves after coefficients and noise.

    Made once, since it takes longer than a small fit.
    """
    covariance = Full(on_device(np.eye(outputs))) if whole else Diagonal(on_device(np.ones(outputs)))
    family = Gaussian(on_device(np.zeros(outputs)), covariance)
    mean = Affine(on_device(np.zeros((outputs, 1))), on_device(np.zeros(outputs)))
    leaves, tree = jax.tree.flatten(Conditional(mean, Given(family, Mean())))
    return tree, leaves[3:]


def unshifted(x: np.ndarray, weight: np.ndarray | None) -> Scaling:
    """Columns by their root mean square, about zero."""
    size = np.abs(x).max(axis=0, initial=0.0) if not np.isnan(x).any() else np.nanmax(np.abs(x), axis=0)
    size = np.where(size > 0, size, 1.0)
    square = (x / size) ** 2
    known = ~np.isnan(square)
    share = known * (1.0 if weight is None else weight[:, None])
    mean = np.where(known, square, 0.0) * share
    spread = np.sqrt(mean.sum(axis=0) / np.maximum(share.sum(axis=0), np.finfo(float).tiny))
    return Scaling(np.zeros(x.shape[1]), size * np.where(spread > 0, spread, 1.0))


class AbstractAffine(AbstractRegressor):
    """Coefficients of columns, in the units of the data, of a model whose outputs are W z + b."""

    fit_intercept: bool

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(
                f"The 'fit_intercept' parameter of {type(self).__name__} must be True or False. "
                f"Got {self.fit_intercept!r} instead."
            )

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight) if self.fit_intercept else unshifted(X, weight)

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(y, weight) if self.fit_intercept else unshifted(y, weight)

    @property
    def _function(self) -> Any:
        """W z + b of rescaled columns."""
        return self.model_.function

    @property
    def _slopes(self) -> np.ndarray:
        """(outputs, columns), for rescaled columns and answers."""
        return np.asarray(self._function.weight)

    @property
    def coef_(self) -> np.ndarray:
        """W, in the units of the data."""
        weight = self._slopes * self.answer_scaling_.scale[:, None] / self.scaling_.scale
        return weight.reshape(*self.answer_shape_, -1)

    @property
    def intercept_(self) -> Any:
        """b, in the units of the data."""
        if not self.fit_intercept:
            return np.zeros(self.answer_shape_)[()]
        bias = np.asarray(self._function.bias) - self._slopes @ (self.scaling_.shift / self.scaling_.scale)
        return (bias * self.answer_scaling_.scale + self.answer_scaling_.shift).reshape(self.answer_shape_)[
            ()
        ]

    @property
    def model_in_units(self) -> Conditional:
        """p(y | x) in the units of the data, where `model_` has rescaled rows and answers."""
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, Conditional):
            raise TypeError(
                f"{type(self).__name__} lowers a loss that is no −log p of answers: its parameters have no "
                "posterior."
            )
        answer, (shift, scale) = self.model_.answer, self.answer_scaling_
        function = Affine(*map(on_device, (np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_))))
        member = rescaled(answer.member, on_device(-shift / scale), on_device(1 / scale))
        return Conditional(function, Given(member, answer.link))

    @property
    def _known_fields(self) -> tuple[str, ...]:
        return () if self.fit_intercept else ("function.bias",)

    def _back(self) -> np.ndarray:
        """The map from coefficients of rescaled columns to those of columns in the units of the data."""
        shift, scale = self.scaling_
        if not self.fit_intercept:
            return np.diag(1 / scale)
        back = np.diag(np.concatenate([[1.0], 1 / scale]))
        back[0, 1:] = -shift / scale
        return back

    def _design(self, z: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(z)), z]) if self.fit_intercept else z

    def _coefficient_names(self) -> list[str]:
        own = ["intercept"] * self.fit_intercept + self.columns_
        if not self.answer_shape_:
            return own
        outputs = self.answer_names_ or [f"y{k}" for k in range(self.answer_shape_[0])]
        return [f"{output}: {name}" for output in outputs for name in own]

    def _coefficient_values(self) -> np.ndarray:
        coef = np.atleast_2d(self.coef_)
        if self.fit_intercept:
            coef = np.column_stack([np.atleast_1d(self.intercept_), coef])
        return coef.ravel()


class AbstractLinearMean(AbstractAffine):
    """A mean W x + b whose coefficients are known up to a covariance, and an answer about it.

    The law of an answer has the squared scale s² + dᵀC d, with the covariance C of the coefficients and
    the row d, 1 before it; it is Student's where s² was found from few residuals.  What is missing in a row
    is normal given the rest, and adds to the squared scale what it does to the mean.

    Attributes:
        design_root_: F of the covariance s² F Fᵀ of coefficients, for rescaled columns.
        between_: what is added to this covariance for each output for missing entries of the fit, or None.
        noise_covariance_: covariance of the residuals of the outputs, for rescaled answers.
        residual_dof_: degrees of freedom of the residuals; infinite where the noise is known.
        determined_: which coefficients the rows determine.
    """

    # whether outputs depend on each other given the row
    _correlated = False
    design_root_: np.ndarray
    between_: np.ndarray | None
    noise_covariance_: np.ndarray
    residual_dof_: float
    determined_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits the answers `y` to the rows of `X`.

        Args:
            X: a row per sample; NaN means not observed.  `Chunks` of complete rows are read one after
                another, once as a rule.
            y: a number for each row, or several.
            sample_weight: a non-negative number per row; a weight of two counts as two rows.
        """
        if isinstance(X, Chunks):
            self._fit_chunks(X, y, sample_weight)
        else:
            self._fit(X, y=y, sample_weight=sample_weight)
        return self

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        """That of some rows, where there are many: `_triangle_of_rows` has that of all without a pass."""
        some = weight is None and X.size > _LARGE
        return super()._scaling(X[:: max(1, len(X) // _SOME_ROWS)] if some else X, weight)

    @abc.abstractmethod
    def _from_triangle(self, triangle: Triangle, rows: float, data: Data | None = None) -> Fit:
        """The fit that follows from the triangle of so many rows; `data` are these, if they are held."""

    def _learn(self, rows: Rows, key: Array) -> Fit:
        x, y, weight = rows_of(rows)
        missing = has_nan(x)
        if self.inputs is not None or missing:
            self.scaling_ = super()._scaling(x, weight)
            x, y, weight = rows_of(self._completed(rows, self.answer_scaling_.invert(y))[0])
            triangle = self._triangle(x, y, weight)
        else:
            triangle = self._triangle_of_rows(x, y, weight)
        if self.inputs is None and not missing:
            self.inputs_ = self._input_moments(*triangle.moments)
        return self._from_triangle(triangle, float(weight.sum()), (x, y, weight))

    def _triangle(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Triangle:
        blocks = joined_blocks(x, y, weight, *self.scaling_)
        few = is_few(len(x), 1 + x.shape[1] + y.shape[1])
        return Triangle(triangle_of(blocks, few=few), x.shape[1], self.fit_intercept)

    def _triangle_of_rows(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Triangle:
        """The triangle of complete rows, after which columns are scaled by all of them."""
        triangle = self._triangle(x, y, weight)
        if x.size <= _LARGE:
            return triangle
        if self._missed(triangle):
            self._rescale(triangle)
            triangle = self._triangle(x, y, weight)
        return self._rescale(triangle)

    def _fit_chunks(self, chunks: Chunks, y: Any, sample_weight: Any) -> None:
        """Fits rows that are read in parts; the answers are held in memory."""
        name = type(self).__name__
        self._check_parameters()
        if self.inputs is not None:
            raise ValueError(f"{name}.fit takes Chunks of complete rows, without 'inputs'.")
        vars(self).pop("schema_", None)
        first = check_rows(self, chunks[0], reset=True)
        answers = checked_answers(self, np.concatenate(list(y)) if isinstance(y, Chunks) else y)
        self.answer_shape_, self.answer_names_ = answers.shape[1:], None
        self.answer_columns_ = AnswerColumns.of(y)
        flat = answers.reshape(len(answers), -1)
        weight = check_weight(flat, sample_weight)
        self.answer_scaling_ = self._answer_scaling(flat, weight)
        weight, known = np.ones(len(flat)) if weight is None else weight, self.answer_scaling_.apply(flat)

        def blocks() -> Iterator[np.ndarray]:
            start = 0
            for number, chunk in enumerate(chunks):
                x = check_rows(self, chunk, reset=False)
                stop = start + len(x)
                if has_nan(x):
                    raise ValueError(f"{name}.fit takes Chunks of complete rows. Got NaN in part {number}.")
                if stop > len(known):
                    break
                yield from joined_blocks(x, known[start:stop], weight[start:stop], *self.scaling_)()
                start = stop
            if start != len(known) or stop > start:
                raise ValueError(
                    f"The 'y' of {name}.fit must have an answer for each row of the Chunks. "
                    f"Got {len(known)}."
                )

        self.scaling_ = self._scaling(first, None)
        found = triangle_of(blocks, few=False)
        triangle = Triangle(found, first.shape[1], self.fit_intercept)
        if self._missed(triangle):
            self._rescale(triangle)
            triangle = Triangle(triangle_of(blocks, few=False), first.shape[1], self.fit_intercept)
        triangle = self._rescale(triangle)
        self.inputs_ = self._input_moments(*triangle.moments)
        self.seed_ = self._key_and_seed()[1]
        self._store(self._from_triangle(triangle, float(weight.sum())), float(weight.sum()))

    def _rescale(self, triangle: Triangle) -> Triangle:
        """Takes the means and deviations of all rows for those of columns, and the triangle for these."""
        found, shift, scale = triangle.standardised()
        self.scaling_ = Scaling(
            self.scaling_.shift + self.scaling_.scale * shift, self.scaling_.scale * scale
        )
        return found

    def _missed(self, triangle: Triangle) -> bool:
        """Whether the first chunk said too little of how columns lie, so that digits were lost."""
        mean, covariance = triangle.moments
        mean, spread = mean[: triangle.columns], np.sqrt(np.diag(covariance))[: triangle.columns]
        off = self.fit_intercept and (np.abs(mean) > _OFF * spread).any()
        return bool(off or (spread > _WIDER).any() or ((spread > 0) & (spread < 1 / _WIDER)).any())

    def _keep(self, coefficients: np.ndarray, noise: np.ndarray) -> Fit:
        """The model of rescaled coefficients (intercept first, if there is one), as a fit."""
        slopes = coefficients[1:] if self.fit_intercept else coefficients
        bias = coefficients[0] if self.fit_intercept else np.zeros(coefficients.shape[1])
        outputs = len(noise)
        whole = self._correlated and outputs > 1
        arrays = [slopes.T.copy(), bias.copy(), noise.copy() if whole else np.diag(noise).copy()]
        numbers = [*jax.device_put(arrays), *_structure(outputs, whole)[1]]
        model = jax.tree.unflatten(_structure(outputs, whole)[0], numbers)
        return Fit(model, {}, 1, Status.CONVERGED)

    @property
    def noise_(self) -> Any:
        """The standard deviation of the residuals, in the units of the data."""
        spread = np.sqrt(np.diag(self.noise_covariance_)) * self.answer_scaling_.scale
        return spread.reshape(self.answer_shape_)[()]

    @property
    def covariance_(self) -> np.ndarray:
        """The covariance of the coefficients, that of the intercept first: (outputs, …) for several."""
        back = self._back()
        root = back @ self.design_root_
        units = self.answer_scaling_.scale**2
        found = (units * np.diag(self.noise_covariance_))[:, None, None] * (root @ root.T)
        if self.between_ is not None:
            found = found + units[:, None, None] * (back @ self.between_ @ back.T)
        return found.reshape(*self.answer_shape_, *found.shape[1:])

    def _errors(self) -> np.ndarray:
        """(outputs, coefficients), NaN where the rows determine none."""
        found = self.covariance_.reshape(-1, *self.covariance_.shape[-2:])
        errors = np.sqrt(np.diagonal(found, axis1=1, axis2=2))
        known = self.determined_ & (self.residual_dof_ > 0)
        return np.where(known, errors, np.nan)

    @property
    def standard_errors_(self) -> np.ndarray:
        """Of each entry of `coef_`; NaN where the rows do not determine it."""
        return self._errors()[:, int(self.fit_intercept) :].reshape(self.coef_.shape)

    def coef_interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of the interval of each entry of `coef_`, by Student's t."""
        level = fraction(f"{type(self).__name__}.coef_interval", "level", level)
        width = stats.t.ppf((1 + level) / 2, self.residual_dof_) * self.standard_errors_
        return self.coef_ - width, self.coef_ + width

    @framed
    def predict(self, X: Any) -> Any:
        """The mean of the answer to each row."""
        mean, _ = self._means(self._read(X).x)
        return check_numbers(self, "predict", self._shaped(self.answer_scaling_.invert(mean)))

    def _expected(self, x: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """Rescaled rows with the means of what is missing, and for each pattern its rows and covariance."""
        z, rest = self.scaling_.apply(x), []
        holes = np.isnan(x)
        if not holes.any():
            return z, rest
        if not isinstance(self.inputs_, GaussianInputs):
            draws = self._input_draws(x)
            return self.scaling_.apply(draws.mean(axis=0)), rest
        p = x.shape[1]
        inputs = GaussianInputs(self.inputs_.mean[:p], self.inputs_.covariance[:p, :p])
        patterns, which = np.unique(holes, axis=0, return_inverse=True)
        for number, missing in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == number)
            if not missing.any():
                continue
            mean, left = inputs.conditional(missing, x[rows])
            scale = self.scaling_.scale[missing]
            z[np.ix_(rows, missing)] = (mean - self.scaling_.shift[missing]) / scale
            full = np.zeros((p, p))
            full[np.ix_(missing, missing)] = left / np.outer(scale, scale)
            rest.append((rows, full))
        return z, rest

    def _means(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rescaled means of the answers, (rows, outputs), and the rescaled rows they are for."""
        z, _ = self._expected(x)
        return z @ self._slopes.T + np.asarray(self.model_.function.bias), z

    def _spread_of_mean(self, design: np.ndarray) -> np.ndarray:
        """Covariances of the mean of each row, for rescaled answers: (rows, outputs, outputs)."""
        leverage = ((design @ self.design_root_) ** 2).sum(axis=1)
        found = leverage[:, None, None] * self.noise_covariance_
        if self.between_ is not None:
            more = np.einsum("ni,kij,nj->nk", design, self.between_, design)
            found = found + more[:, :, None] * np.eye(len(self.noise_covariance_))
        return found

    @framed_ends
    def predict_mean_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds the mean of the answers to each row: the confidence band.

        `predict_interval` is for the answers themselves, and wider.
        """
        level = fraction(f"{type(self).__name__}.predict_mean_interval", "level", level)
        self._check_noise()
        mean, z = self._means(self._read(X).x)
        spread = np.diagonal(self._spread_of_mean(self._design(z)), axis1=1, axis2=2)
        width = stats.t.ppf((1 + level) / 2, self.residual_dof_) * np.sqrt(spread)
        ends = [self._shaped(self.answer_scaling_.invert(mean + side * width)) for side in (-1, 1)]
        return ends[0], ends[1]

    def _check_noise(self) -> None:
        """Refuses to give laws of answers where the rows of the fit leave no residuals to know them by."""
        name = type(self).__name__
        if not self.residual_dof_ > 0:
            raise ValueError(
                f"{name} has no law of answers: it has as many coefficients as rows, and no residual is "
                "left to know the noise by. Fit more rows or fewer columns, or use Ridge; predict works."
            )
        if not (np.diag(self.noise_covariance_) > 0).all():
            raise ValueError(
                f"{name} has no law of answers: they are on the fitted plane exactly, and the noise is "
                "zero. Leave out columns that the answers are computed from; predict works."
            )
        if self._correlated and self.residual_dof_ < len(self.noise_covariance_):
            raise ValueError(
                f"{name} has no law of answers: {self.residual_dof_:g} residual degrees of freedom are too "
                f"few for the covariance of {len(self.noise_covariance_)} outputs. Use noise=Diagonal()."
            )

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        self._check_noise()
        z, rest = self._expected(x)
        spread = self._spread_of_mean(self._design(z)) + self.noise_covariance_
        for rows, covariance in rest:
            along = self._slopes @ covariance @ self._slopes.T
            start = int(self.fit_intercept)
            again = ((covariance @ self.design_root_[start:]) * self.design_root_[start:]).sum()
            # what is missing moves the mean, and how well it is known
            spread[rows] += along + again * self.noise_covariance_
            if self.between_ is not None:
                more = np.einsum("kij,ij->k", self.between_[:, start:, start:], covariance)
                spread[rows] += np.diag(more)
        mean = z @ self._slopes.T + np.asarray(self.model_.function.bias)
        mean, units = self.answer_scaling_.invert(mean), self.answer_scaling_.scale
        if self._correlated and len(units) > 1:
            scales = spread * np.outer(units, units)
            known = np.isinf(self.residual_dof_)
            return NormalLaws(mean, scales) if known else StudentLaws(self.residual_dof_, mean, scales)
        scale = np.sqrt(np.diagonal(spread, axis1=1, axis2=2)) * units
        if np.isinf(self.residual_dof_):
            return Laws(stats.norm(self._shaped(mean), self._shaped(scale)))
        return Laws(stats.t(self.residual_dof_, self._shaped(mean), self._shaped(scale)))

    def _laws_of_incomplete(self, x: np.ndarray) -> AbstractLaws:
        if isinstance(self.inputs_, GaussianInputs):
            return self._laws(x)
        return super()._laws_of_incomplete(x)

    @property
    def _exact_if_incomplete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return isinstance(self.inputs_, GaussianInputs)

    def _input_moments(self, mean: np.ndarray, covariance: np.ndarray) -> GaussianInputs:
        """Moments of rescaled rows and answers in the units of the data."""
        shift = np.concatenate([self.scaling_.shift, self.answer_scaling_.shift])
        scale = np.concatenate([self.scaling_.scale, self.answer_scaling_.scale])
        return GaussianInputs(shift + scale * mean, covariance * np.outer(scale, scale))

    def _coefficient_table(self, X: Any, robust: bool, given: dict[str, Any]) -> Coefficients | None:
        return Coefficients(
            self._coefficient_names(),
            self._coefficient_values(),
            self._errors().ravel(),
            self.residual_dof_ if self.residual_dof_ > 0 else None,
            self._facts(),
            [],
        )

    def _facts(self) -> dict[str, float]:
        """More numbers for the summary."""
        names = self.answer_names_ or [f"y{k}" for k in range(len(np.atleast_1d(self.noise_)))]
        noise = np.atleast_1d(self.noise_)
        if not self.answer_shape_:
            return {"residual std.": float(noise[0])}
        return {f"residual std. of {name}": float(value) for name, value in zip(names, noise, strict=True)}


def rows_of(rows: Rows) -> Data:
    """x, answers and weights of a fit."""
    assert rows.known is not None
    return rows.x, rows.known, rows.weight
