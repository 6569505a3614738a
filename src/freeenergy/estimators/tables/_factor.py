"""Factor analysis and probabilistic PCA as estimators."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from ..._core import AbstractAlgorithm, Data, Fit, check_size, on_device, parameter_count
from ...distributions import AbstractCovariance, Diagonal, Gaussian, Spherical
from ...learning import EM
from ...models import LinearGaussian, ppca_closed_form
from ...shell import (
    AbstractDensity,
    Rows,
    Scaling,
    TransformsRows,
    check_count,
    check_int,
    final_objective,
)
from ...shell._capabilities import loadings_to_show
from ...shell._increments import LearnsInParts, reduced_rows
from ...shell._rows import points_of
from ...shell._summary import Along
from ._rotation import AbstractRotation, Rotated, Varimax


def _compressed(rows: Rows) -> Data:
    """A few rows with the same weight, mean (rows are centred) and covariance as all of them."""
    x, w = rows.x, rows.weight
    few = points_of((x * w[:, None]).T @ x / w.sum(), w.sum())
    return Data.of(few.x, few.weight)


@eqx.filter_jit
def _principal(scatter: Array, k: Any, width: int) -> tuple[Array, Array]:
    closed = ppca_closed_form(jnp.zeros(len(scatter)), scatter, k, width=width)
    return closed.loading, closed.noise.matrix()[0, 0]


def principal(scatter: np.ndarray, k: int, width: int | None = None) -> tuple[Array, Array]:
    """Loading, with `width` columns (k by default), and variance of probabilistic PCA in closed form."""
    return _principal(on_device(scatter), np.int32(k), k if width is None else width)


class AbstractFactorModel(LearnsInParts, TransformsRows, AbstractDensity):
    """x = W z + μ + ε with z ~ N(0, I): what factor analysis and PPCA share."""

    _sums_rows = True
    _maximises_likelihood = True
    _made_from = LinearGaussian

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        if not isinstance(model.noise, cls._noise_kind):
            raise ValueError(
                f"The noise of a model for {cls.__name__} must be {cls._noise_kind.__name__}. "
                f"Got {type(model.noise).__name__} instead."
            )
        return {"n_components": model.loading.shape[1]}

    def _take(self, model: Any) -> None:
        super()._take(model)
        self.n_components_ = model.loading.shape[1]

    _codes_at_once = 256
    _noise_kind: ClassVar[type[AbstractCovariance]]

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_iter: int = 10_000,
        tol: float = 1e-7,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    @classmethod
    def from_covariance(cls, covariance: Any, n_obs: int, *, mean: Any = None, **parameters: Any) -> Self:
        """An estimator fitted to a covariance matrix, where the rows themselves are not at hand.

        It is the one that a fit to `n_obs` complete rows with this mean and covariance gives.

        Args:
            covariance: S = Σ (x − x̄)(x − x̄)ᵀ / n, or a matrix of correlations; a data frame has names too.
                Of one that was divided by n − 1 pass (n − 1) / n times it.
            n_obs: how many rows it is of.
            mean: x̄; zeros by default.
            parameters: of the estimator.

        >>> import numpy as np
        >>> R = np.full((4, 4), 0.49) + 0.51 * np.eye(4)
        >>> model = FactorAnalysis.from_covariance(R, 100, n_components=1)
        >>> np.abs(model.components_).round(2).tolist()
        [[0.7, 0.7, 0.7, 0.7]]
        """
        S, where = np.array(covariance, float), f"{cls.__name__}.from_covariance"
        if S.ndim != 2 or S.shape[0] != S.shape[1] or not S.size:
            raise ValueError(
                f"The 'covariance' of {where} must have as many rows as columns. Got the shape {S.shape}."
            )
        spread = np.sqrt(np.maximum(np.diagonal(S), 0.0))
        size = np.outer(spread, spread)
        good = np.isfinite(S).all() and (spread > 0).all() and np.allclose(S / size, S.T / size)
        if not good or np.linalg.eigvalsh(S / size)[0] < -1e-8:
            raise ValueError(
                f"The 'covariance' of {where} must be symmetric, with variances that are positive and no "
                "combination of columns that has a negative one."
            )
        made: Any = cls(**parameters)
        check_count(made, "from_covariance", "n_obs", n_obs, each=0, least=2)
        centre = np.zeros(len(S)) if mean is None else np.asarray(mean, float)
        if centre.shape != spread.shape:
            raise ValueError(
                f"The 'mean' of {where} must have the {len(S)} columns of 'covariance'. "
                f"Got the shape {centre.shape} instead."
            )
        few = points_of(S / size, float(n_obs))
        made.fit(centre + few.x * spread, sample_weight=few.weight)
        names = getattr(covariance, "columns", None)
        if names is not None:
            made.feature_names_in_ = np.array(list(names), object)
        return made

    @abc.abstractmethod
    def _noise(self, variance: Array, dim: int) -> AbstractCovariance:
        """The covariance of ε to start from, given the variance of every column."""

    @abc.abstractmethod
    def _most_components(self, dim: int) -> int:
        """The largest number of factors that `dim` columns identify."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_components", 0, optional=True)

    def _check_size(self, rows: int, columns: int) -> None:
        # the covariance, its eigenvectors, and their copies on the way
        check_size(
            4 * columns**2,
            f"{type(self).__name__} of {columns:,} columns",
            "Use PCA to reduce them first.",
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        incomplete = bool(np.isnan(rows.x).any())
        data = Data.of(rows.x, rows.weight) if incomplete else _compressed(rows)
        dim = rows.x.shape[1]
        if self.n_components is not None:
            self.n_components_ = min(self.n_components, dim)
            return self._fit_size(rows, data, self.n_components_, key)
        # every dimension that is identified and may be the best, by approximate log evidence
        results, found_evidence = [], []
        # factors that span the rows would leave no noise, and a likelihood without end
        most = min(self._most_components(dim), max(len(rows.x) - 2, 0))
        size = float(rows.weight.sum())
        units = float(rows.weight @ self.scaling_.log_det(rows.x))
        ceiling = np.inf if incomplete else units + size * _largest_likelihood(rows)
        for k in range(most + 1):
            if results:
                parameters = _free_parameters(results[0].model) + k * dim - k * (k - 1) // 2
                if ceiling - 0.5 * np.log(size) * parameters < max(found_evidence):
                    # nor can more factors reach it
                    break
            # as wide as the largest, so that one program serves all
            found = self._fit_size(rows, data, k, key, part=k, width=most)
            narrow = np.asarray(found.model.loading)[:, :k]
            model = dataclasses.replace(found.model, loading=on_device(narrow))
            results.append(dataclasses.replace(found, model=model))
            found_evidence.append(
                units - size * final_objective(found) - 0.5 * np.log(size) * _free_parameters(model)
            )
            if found.interrupted:
                break
        self.log_evidence_ = np.array(found_evidence)
        self.n_components_ = int(np.argmax(self.log_evidence_))
        best, last = results[self.n_components_], results[-1]
        return dataclasses.replace(best, status=last.status) if last.interrupted else best

    def _fit_size(
        self, rows: Rows, data: Data, k: int, key: Array, part: int = 0, width: int | None = None
    ) -> Fit:
        dim = rows.x.shape[1]
        filled = np.where(np.isnan(rows.x), 0.0, rows.x)
        scatter = (filled * rows.weight[:, None]).T @ filled / rows.weight.sum()
        loading, variance = principal(scatter, k, width)
        start = LinearGaussian(loading, on_device(np.zeros(dim)), self._noise(variance, dim))
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        return self._run(start, learner, data, rows, key, part=part, what=f"{k} factors")

    def _reduced(self, rows: Rows) -> Rows:
        return reduced_rows(Gaussian(self.model_.mean, self.model_.noise), rows)

    def _count_parameters(self) -> int:
        return _free_parameters(self.model_)

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        if name == "loading":
            return self.column_names, None
        return (self.column_names,) if shape == (self.n_features_in_,) else super()._along(name, shape)

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        return {"loadings": loadings_to_show(self.components_, X)} if len(self.components_) else {}

    @property
    def mean_(self) -> np.ndarray:
        """μ, in the units of the data."""
        return self.scaling_.invert(np.asarray(self.model_.mean))

    @property
    def components_(self) -> np.ndarray:
        """Wᵀ, a row per factor, in the units of the data; known up to a rotation of the factors."""
        return (np.asarray(self.model_.loading) * self.scaling_.scale[:, None]).T

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def _largest_likelihood(rows: Rows) -> float:
    """What a Gaussian of any covariance reaches on complete rows, per row: no factors reach more."""
    share = rows.weight / rows.weight.sum()
    gap = rows.x - share @ rows.x
    log_det = np.linalg.slogdet((gap * share[:, None]).T @ gap)[1]
    return -0.5 * float(rows.x.shape[1] * (np.log(2 * np.pi) + 1) + log_det)


def _free_parameters(model: LinearGaussian) -> int:
    """Learnable numbers less the rotations of the factors, which change nothing."""
    k = model.loading.shape[1]
    return parameter_count(model) - k * (k - 1) // 2


class FactorTest(NamedTuple):
    """Whether so many factors are enough: Bartlett's χ² test, against a covariance of any kind.

    Attributes:
        statistic: (n − 1 − (2p + 5)/6 − 2k/3) F of p columns, k factors and n rows, with the discrepancy
            F = log |Σ| − log |S| + tr Σ⁻¹S − p.
        df: ((p − k)² − p − k) / 2.
        p_value: the chance of a larger statistic, if k factors are enough.

    >>> round(FactorTest.of(0.05, 112, 6, 2).statistic, 2)
    5.34
    """

    statistic: float
    df: int
    p_value: float

    @staticmethod
    def of(discrepancy: float, rows: float, columns: int, factors: int) -> FactorTest:
        """The test of a fit with this discrepancy F."""
        size = rows - 1 - (2 * columns + 5) / 6 - 2 * factors / 3
        df = ((columns - factors) ** 2 - columns - factors) // 2
        return FactorTest(size * discrepancy, df, float(stats.chi2.sf(size * discrepancy, df)))


class FactorAnalysis(AbstractFactorModel):
    """x = W z + μ + ε, z ~ N(0, I), ε ~ N(0, Ψ) with Ψ diagonal, learned by EM.

    The factors are identified up to rotation.  Missing entries are integrated out exactly; complete
    data are reduced to their mean and covariance first, so that iterations cost nothing per row.
    `summary()` has the χ² test of whether the factors are enough (`factor_test`), and `from_covariance`
    fits a covariance matrix.

    Args:
        n_components: how many factors; None chooses by approximate evidence (`log_evidence_`).
        max_iter, tol: the most iterations, and the improvement in nats per row below which EM stops.
        learner: replaces EM.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        components_: Wᵀ, a row per factor, in the units of the data; known up to a rotation of the factors.
        mean_: μ, in the units of the data.
        noise_variance_: the diagonal of Ψ, in the squared units of the data.
        n_components_: how many factors there are.
        log_evidence_: of each number of factors from none on, while more may be better, only where
            `n_components` is None.
        discrepancy_: F of the test of the number of factors; None where it has no answer.
        model_: the fitted `freeenergy.models.LinearGaussian`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1)) @ np.ones((1, 5)) + 0.5 * rng.normal(size=(500, 5))
    >>> FactorAnalysis().fit(X).n_components_
    1
    """

    _noise_kind = Diagonal

    def _noise(self, variance: Array, dim: int) -> AbstractCovariance:
        return Diagonal(on_device(np.full(dim, float(variance))))

    def _most_components(self, dim: int) -> int:
        # Ledermann's bound: ((dim − k)² − dim − k) / 2 ≥ 0
        return max((k for k in range(dim) if (dim - k) ** 2 >= dim + k), default=0)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        result = super()._learn(rows, key)
        # log p of a covariance of any kind less that of the fit, where the former is known in closed form
        x, w = rows.x, rows.weight
        S = (x * w[:, None]).T @ x / w.sum()
        sign, log_det = np.linalg.slogdet(S) if np.isfinite(S).all() else (0.0, np.nan)
        self.discrepancy_ = None
        if sign > 0:
            fitted = result.model
            loading = np.asarray(fitted.loading)
            Sigma = loading @ loading.T + np.diag(np.asarray(fitted.noise.variance))
            gap = np.linalg.slogdet(Sigma)[1] - log_det + np.trace(np.linalg.solve(Sigma, S)) - len(S)
            # rounding may go below the least there is
            self.discrepancy_ = float(max(gap, 0.0))
        return result

    def factor_test(self) -> FactorTest:
        """Whether the factors are enough: Bartlett's corrected χ² test, of a fit to complete rows.

        >>> import numpy as np
        >>> R = np.full((4, 4), 0.49) + 0.51 * np.eye(4)
        >>> FactorAnalysis.from_covariance(R, 100, n_components=1).factor_test().df
        2
        """
        check_is_fitted(self, "model_")
        why = self._untested()
        if why:
            raise ValueError(f"FactorAnalysis.factor_test has no answer: {why}.")
        rows: Any = self.fitted_size_
        return FactorTest.of(self.discrepancy_ or 0.0, rows, self._width, self.n_components_)

    def _untested(self) -> str:
        """Why there is no χ² test; nothing where there is one."""
        p, k = self._width, self.n_components_
        rows, known = vars(self).get("fitted_size_"), vars(self).get("discrepancy_")
        if rows is None or known is None:
            return "it needs a fit to complete rows, more of them than there are columns"
        if (p - k) ** 2 - p - k <= 0:
            return f"{k} factors of {p} columns leave no degrees of freedom"
        if rows - 1 - (2 * p + 5) / 6 - 2 * k / 3 <= 0:
            return f"{rows:g} rows are too few for {p} columns"
        return ""

    def _remarks(self) -> list[str]:
        if self._untested():
            return []
        found = self.factor_test()
        many = "1 factor is" if self.n_components_ == 1 else f"{self.n_components_} factors are"
        return [
            f"χ² test that {many} enough (Bartlett): {found.statistic:.2f} on {found.df} degrees of "
            f"freedom, p = {found.p_value:.3g}."
        ]

    @property
    def noise_variance_(self) -> np.ndarray:
        """The diagonal of Ψ, in the units of the data."""
        return np.asarray(self.model_.noise.variance) * self.scaling_.scale**2

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        if self.n_components_ <= 1:
            return super().parts(X)
        return {"loadings": loadings_to_show(self.rotate(Varimax()).components, X)}

    def rotate(self, rotation: AbstractRotation) -> Rotated:
        """The factors along axes that are easier to read, by `Varimax()` or `Promax()`.

        The rotation is chosen on standardised columns; the density does not change, and the rotated
        factors are `transform(X) @ np.linalg.inv(rotated.rotation).T`.
        """
        check_is_fitted(self, "model_")
        r = rotation(np.asarray(self.model_.loading))
        return Rotated(r.T @ self.components_, r, np.linalg.inv(r.T @ r))


class PPCA(AbstractFactorModel):
    """Probabilistic principal components: x = W z + μ + ε, z ~ N(0, I), ε ~ N(0, σ²I).

    For complete rows the answer is closed: σ² is the mean of the discarded eigenvalues of the covariance
    and W spans the leading eigenvectors; with missing entries EM starts from there.  Columns keep their
    units, since equal noise in all of them is the model.

    Args:
        n_components: how many components; None chooses by approximate evidence (`log_evidence_`).
        max_iter, tol: the most iterations, and the improvement in nats per row below which EM stops.
        learner: replaces EM.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        components_: Wᵀ, a row per factor, in the units of the data; known up to a rotation of the factors.
        mean_: μ, in the units of the data.
        noise_variance_: σ², in the squared units of the data.
        n_components_: how many factors there are.
        log_evidence_: of each number of factors from none on, while more may be better, only where
            `n_components` is None.
        model_: the fitted `freeenergy.models.LinearGaussian`, of rescaled rows.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(500, 6))
    >>> PPCA().fit(X).n_components_
    2
    """

    _noise_kind = Spherical

    def _noise(self, variance: Array, dim: int) -> AbstractCovariance:
        return Spherical(variance, dim=dim)

    def _most_components(self, dim: int) -> int:
        return dim - 1

    def _scaling(self, X: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.standardise(X, weight, common=True)

    @property
    def noise_variance_(self) -> float:
        """σ², in the squared units of the data."""
        return float(self.model_.noise.variance * self.scaling_.scale[0] ** 2)
