"""Gaussian processes: functions with a prior by a kernel, and answers that are noisy values of them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import Array
from scipy import linalg, stats
from scipy.special import ndtri
from sklearn.utils import check_random_state

from ..._core import Evidence, Fit, Kind, Status, generator, on_device
from ...evaluation import AbstractLaws, Laws
from ...inference._processes import (
    Conditioned,
    condition_process,
    evidence_slope,
    leave_one_out,
    process_at,
)
from ...kernels import AbstractKernel
from ...kernels._slopes import gram_slope
from ...models import GaussianProcess as GaussianProcessModel
from ...models import InducedProcess
from ...shell import AbstractDensity, Rows, Scaling, check_instance, check_int, check_real
from ._kernelled import (
    AbstractKernelRegressor,
    Climbed,
    LogParameters,
    LogPrior,
    climb,
    limits_of,
    starts_about,
)
from ._sparse_process import Bounds, SparseProcess, spread_rows

# σ² where none is given, as a part of the variance of answers
_FIRST_NOISE = 0.1


class Evidences:
    """The evidence of rows and answers as a function of logarithms of parameters, and its maximum."""

    def __init__(
        self,
        kernel: LogParameters,
        x: np.ndarray,
        answers: np.ndarray,
        weights: np.ndarray,
        prior: LogPrior | None = None,
    ) -> None:
        self.kernel, self.x, self.answers, self.weights = kernel, x, answers, weights
        self.prior = LogPrior.none(len(kernel.vector) + answers.shape[1]) if prior is None else prior

    def parts(self, theta: np.ndarray) -> tuple[AbstractKernel, np.ndarray]:
        """The kernel and σ² at logarithms."""
        size = len(self.kernel.vector)
        return self.kernel.kernel(theta[:size]), np.exp(theta[size:])

    def told(self, gram: np.ndarray, noise: np.ndarray) -> list[Conditioned]:
        """The process of each output."""
        parts = zip(self.answers.T, noise, self.weights.T, strict=True)
        return [condition_process(gram, y, float(own), weight) for y, own, weight in parts]

    def evidence(self, theta: np.ndarray, *, slope: bool = True) -> tuple[float, np.ndarray]:
        """log p(y | X), and its slope."""
        kernel, noise = self.parts(theta)
        gram = kernel.gram(self.x)
        told = self.told(gram, noise)
        value = sum(part.log_evidence for part in told)
        if not slope:
            return value, np.zeros(0)
        parts = zip(told, noise, self.weights.T, strict=True)
        found = [evidence_slope(part, float(own), weight) for part, own, weight in parts]
        size = len(self.kernel.vector)
        total = functools.reduce(np.add, [part.gram for part in found])
        slopes = gram_slope(kernel, self.x, total, gram)
        logs = self.kernel.slope(theta[:size], slopes)
        return value, np.concatenate([logs, [part.log_noise for part in found]])

    def maximise(self, start: np.ndarray, free: np.ndarray, max_iter: int, tol: float) -> Climbed:
        """Where the search ends that may change what is `free`."""
        if not free.any():
            return Climbed(start, [-self.evidence(start, slope=False)[0]], Status.CONVERGED)

        def asked(moved: np.ndarray) -> tuple[float, np.ndarray]:
            theta = _with(start, free, moved)
            value, slope = self.evidence(theta)
            own, own_slope = self.prior.log_density(theta)
            return value + own, (slope + own_slope)[free]

        limits = limits_of(start, len(self.kernel.vector))
        found = climb(asked, start[free], limits[free], self.weights.sum(), max_iter, tol)
        return found._replace(place=_with(start, free, found.place))


def _with(start: np.ndarray, free: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """The start with other numbers where it is free."""
    whole = start.copy()
    whole[free] = moved
    return whole


class ExactProcess:
    """f given all answers, on the host.

    Attributes:
        model: a `freeenergy.models.GaussianProcess`.
        told: the process of each output.
    """

    def __init__(self, model: GaussianProcessModel, told: list[Conditioned] | None = None) -> None:
        self.model = model
        self.told = (
            self.seen.told(model.kernel.gram(np.asarray(model.x)), np.asarray(model.noise))
            if told is None
            else told
        )
        self.x = np.asarray(model.x)
        self.sites = np.sqrt(np.asarray(model.weight) / np.asarray(model.noise)).T

    @property
    def seen(self) -> Evidences:
        """What was fitted."""
        model = self.model
        return Evidences(LogParameters.of(model.kernel), *map(np.asarray, (model.x, model.y, model.weight)))

    @property
    def size(self) -> int:
        """With how many rows a row is compared."""
        return len(self.x)

    def at(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and variance of f, (rows, outputs)."""
        across, diagonal = self.model.kernel.gram(z, self.x), self.model.kernel.diagonal(z)
        found = [
            process_at(across, diagonal, told.root, sites, told.coefficients)
            for told, sites in zip(self.told, self.sites, strict=True)
        ]
        mean, variance = zip(*found, strict=True)
        return np.stack(mean, axis=1), np.stack(variance, axis=1)

    def together(self, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The mean and covariance of the values at all rows, for each output."""
        across, prior = self.model.kernel.gram(z, self.x), self.model.kernel.gram(z)
        laws = []
        for told, sites in zip(self.told, self.sites, strict=True):
            half = linalg.solve_triangular(told.root, (across * sites).T, lower=True)
            laws.append((across @ told.coefficients, prior - half.T @ half))
        return laws


PROCESSES: dict[type, Any] = {GaussianProcessModel: ExactProcess, InducedProcess: SparseProcess}


class AbstractProcess(AbstractKernelRegressor):
    """Answers that are noisy values of a Gaussian process, given those that were seen.

    A subclass says which kernel and which noise, and keeps them.
    """

    takes_unknown_answers = True
    noise_: np.ndarray
    places_: np.ndarray
    log_evidence_: float

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        unknown = np.flatnonzero(np.isnan(y).all(axis=0))
        if len(unknown):
            raise ValueError(
                f"Output {unknown[0]} of the 'y' of {type(self).__name__} has no known value. Leave it out."
            )
        return super()._answer_scaling(y, weight)

    def _seen(self, rows: Rows) -> Evidences:
        """Rows and answers to learn from, with the kernel to begin with."""
        merged, self.places_ = self._merged(rows)
        assert merged.known is not None
        known = ~np.isnan(merged.known)
        start = self._start_kernel(merged.x.shape[1])
        # so that what is wrong with the kernel is said before any work
        start.gram(merged.x[:1])
        logs, outputs = LogParameters.of(start), merged.known.shape[1]
        return Evidences(
            logs,
            merged.x,
            np.where(known, merged.known, 0.0),
            merged.weight[:, None] * known,
            self._prior(merged.x.shape[1], len(logs.vector), outputs),
        )

    def _prior(self, columns: int, parameters: int, outputs: int) -> LogPrior | None:
        """The prior of the parameters of the kernel, and of the noise of each output."""
        return None

    def _keep(self, seen: Evidences, theta: np.ndarray, path: list[float], status: Status) -> Fit:
        """The fit that ended at `theta`."""
        kernel, noise = seen.parts(theta)
        units = float(np.log(self.answer_scaling_.scale) @ seen.weights.sum(axis=0))
        self.noise_ = noise * self.answer_scaling_.scale**2
        model = GaussianProcessModel(
            jax.tree.map(on_device, kernel), *map(on_device, (noise, seen.x, seen.answers, seen.weights))
        )
        told = seen.told(kernel.gram(seen.x), noise)
        self.log_evidence_ = sum(part.log_evidence for part in told) - units
        vars(self)["_process"] = ExactProcess(model, told)
        history = {"objective": (np.array(path) + units) / seen.weights.sum()}
        return Fit(model, history, len(path), status)

    @functools.cached_property
    def _process(self) -> ExactProcess | SparseProcess:
        """f on the host: made again where a file was read."""
        return PROCESSES[type(self.model_)](self.model_)

    @property
    def kernel_(self) -> AbstractKernel:
        """The kernel after the fit, in the units that it sees."""
        return self.model_.kernel

    def _function(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of f for complete rows, (rows, outputs), in the units of the data."""
        found = [self._process.at(z) for z in self._in_parts(x, self._process.size)]
        mean, variance = (np.concatenate(part) for part in zip(*found, strict=True))
        return self.answer_scaling_.invert(mean), variance * self.answer_scaling_.scale**2

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        mean, variance = self._function(x)
        return self._normal(mean, variance)

    def _normal(self, mean: np.ndarray, variance: np.ndarray) -> Laws:
        """The law of answers, of the mean and variance of f."""
        spread = np.sqrt(variance + self.noise_)
        return Laws(stats.norm(self._shaped(mean), self._shaped(spread)))

    def _complete(self, X: Any, method: str) -> np.ndarray:
        x = self._read(X).x
        if np.isnan(x).any():
            raise ValueError(
                f"{type(self).__name__}.{method} takes complete rows: f at a row with holes is not "
                "normal. predict_density averages over them."
            )
        return x

    def predict_function(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the standard deviation of f, without noise, at each row."""
        mean, variance = self._function(self._complete(X, "predict_function"))
        return self._shaped(mean), self._shaped(np.sqrt(variance))

    def predict_function_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of the interval that holds f, without noise, at each row with probability `level`."""
        mean, spread = self.predict_function(X)
        if not 0 < level < 1:
            raise ValueError(
                "The 'level' of predict_function_interval must be a float in the range (0, 1). "
                f"Got {level!r} instead."
            )
        reach = ndtri(0.5 + level / 2) * spread
        return mean - reach, mean + reach

    def sample_functions(self, X: Any, n: int = 1, random_state: Any = None) -> np.ndarray:
        """`n` draws of the function f at the rows of X together: (n, rows), or (n, rows, outputs).

        Values at rows next to each other are alike, as one function has them; `predict_density(X).sample`
        draws answers that have nothing to do with each other.
        """
        z = self.scaling_.apply(self._complete(X, "sample_functions"))
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        draws = []
        for mean, covariance in self._process.together(z):
            values, vectors = np.linalg.eigh(covariance)
            noise = rng.standard_normal((n, len(z))) * np.sqrt(np.maximum(values, 0.0))
            draws.append(mean + noise @ vectors.T)
        drawn = np.stack(draws, axis=2) * self.answer_scaling_.scale + self.answer_scaling_.shift
        return drawn.reshape(n, len(z), *self.answer_shape_)

    def _whole(self, what: str) -> ExactProcess:
        """f given all answers, which inducing points do not keep."""
        if isinstance(self._process, ExactProcess):
            return self._process
        raise ValueError(
            f"{type(self).__name__} has {what} where no inducing points stand for the rows: fit it with "
            "inducing=None."
        )

    @property
    def loo_(self) -> Laws:
        """The law of the answer to each row of the fit given all others: in closed form, without a fit.

        `loo_.log_prob(y)` are the terms of the leave-one-out log-likelihood.  A row is left out with those
        equal to it; rows without weight are not there.
        """
        process = self._whole("loo_")
        model, means, variances = process.model, [], []
        parts = zip(process.told, *(np.asarray(part) for part in (model.y.T, model.noise, model.weight.T)))
        for told, y, noise, weight in parts:
            mean, variance = leave_one_out(told, y, float(noise), weight)
            means.append(mean)
            variances.append(variance)
        mean = self.answer_scaling_.invert(np.stack(means, axis=1))
        variance = np.stack(variances, axis=1) * self.answer_scaling_.scale**2
        if np.isnan(mean).any():
            # an answer that is not known is given all of those that are
            whole = self._function(self.scaling_.invert(np.asarray(model.x)))
            mean, variance = (np.where(np.isnan(a), b, a) for a, b in zip((mean, variance), whole))
        return self._normal(mean[self.places_], variance[self.places_])


class GaussianProcess(AbstractProcess):
    """y = f(x) + e, e ~ N(0, σ²), with a Gaussian process for f: any values f(X) are N(0, K), K = k(X, X).

    The law of an answer is N(k(x, X) (K + σ²I)⁻¹ y, k(x, x) − k(x, X) (K + σ²I)⁻¹ k(X, x) + σ²), and the
    parameters of the kernel and σ² maximise the evidence log p(y | X) = log N(y; 0, K + σ²I), with a weak
    prior: where few rows lie on a grid, the evidence alone may take what is noise for a function that
    changes from row to row and is known exactly.  Also known as kriging.  With `kernels.Linear()` it is
    Bayesian linear regression.

    Args:
        kernel: k, of `freeenergy.kernels`; None for a Gaussian kernel with a length for each column.
        noise: σ², which is then not learned; None for one for each output, learned.
        inducing: how many points stand for the rows, or the first of them, in the units of the data; None
            for all rows.
        standardise: whether the kernel sees columns and answers in units of their standard deviations, from
            their means; else as they are, with a process about zero.
        learn: whether the parameters of the kernel are learned, or stay as given.
        prior: whether the lengths of the default kernel, log ℓ ~ N(√2 + ½ log columns, 3), and the noise,
            log σ² ~ N(−2, 1), have this prior in the units that the kernel sees, if it is standardised.
        n_init: starts of the search; all but the first are random.
        max_iter, tol: the most iterations of L-BFGS, and the slope per row in logarithms of the parameters
            below which it stops.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.
        random_state: for starts and first points.

    Attributes:
        kernel_: the kernel after the fit, in the units that it sees.
        noise_: σ² of each output, in the units of the data.
        log_evidence_: log p(y | X), in the units of the data; a lower bound with inducing points.
        theta_: logarithms of the parameters: those of the kernel, then σ² of each output in the units that
            the kernel sees.
        inducing_: the inducing points, in the units of the data.
        places_: which of the different rows each row of the fit is.
        loo_: the law of the answer to each row of the fit given all others, without inducing points.
        columns_, inputs_, answer_shape_, answer_names_, answer_scaling_: as of every regressor.
        model_: a `freeenergy.models.GaussianProcess` of rescaled rows and answers, or an `InducedProcess`.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Answers that are NaN are not known, and left out; several outputs share the kernel and have noise of
    their own.  The time of a fit grows with the cube of the rows.  With m inducing points, learned by the
    bound of Titsias, log N(y; 0, Q + σ²I) − tr(K − Q)/2σ² with Q = K_fu K_uu⁻¹ K_uf, it grows with m² times
    the rows, of which there may be 100,000 and more.

    >>> x = np.linspace(0.0, 6.0, 25)[:, None]
    >>> model = GaussianProcess().fit(x, np.sin(x[:, 0]))
    >>> model.predict([[1.0], [4.0]]).round(3).tolist()
    [0.841, -0.757]
    """

    @property
    def _maximises_likelihood(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not (self.prior and self.standardise)

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        noise: float | None = None,
        inducing: Any = None,
        standardise: bool = True,
        learn: bool = True,
        prior: bool = True,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.inducing = inducing
        self.standardise = standardise
        self.learn = learn
        self.prior = prior
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.inputs = inputs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "noise", closed=False, optional=True)
        check_instance(self, "learn", bool)
        check_instance(self, "prior", bool)
        if not isinstance(self.inducing, np.ndarray | list):
            check_int(self, "inducing", optional=True)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        seen = self._seen(rows)
        outputs = seen.answers.shape[1]
        if self.noise is None:
            first = np.full(outputs, _FIRST_NOISE)
            if not self.standardise:
                mean = (seen.weights * seen.answers).sum(axis=0) / seen.weights.sum(axis=0)
                square = (seen.weights * (seen.answers - mean) ** 2).sum(axis=0) / seen.weights.sum(axis=0)
                first *= np.where(square > 0, square, 1.0)
        else:
            first = self.noise / self.answer_scaling_.scale**2
        start = np.concatenate([seen.kernel.vector, np.log(first)])
        free = np.repeat([self.learn, self.noise is None], [len(seen.kernel.vector), outputs])
        rng = generator(key)
        if self.inducing is not None:
            return self._learn_sparse(seen, start, free, rng)
        starts = starts_about(start, free, self.n_init, rng)
        found = [seen.maximise(one, free, self.max_iter, self.tol) for one in starts]
        best = min(found, key=lambda one: one.path[-1])
        self.theta_ = best.place
        return self._keep(seen, *best)

    def _prior(self, columns: int, parameters: int, outputs: int) -> LogPrior | None:
        if not (self.prior and self.standardise):
            return None
        lengths = columns if self.kernel is None else 0
        return LogPrior.weak(lengths, parameters - lengths, outputs)

    def _learn_sparse(
        self, seen: Evidences, start: np.ndarray, free: np.ndarray, rng: np.random.Generator
    ) -> Fit:
        bounds = Bounds(seen, self._first_points(seen, rng))
        found = [
            bounds.maximise(one, np.append(free, self.learn), self.max_iter, self.tol)
            for one in starts_about(start, free, self.n_init, rng)
        ]
        best = min(found, key=lambda one: one.path[-1])
        self.theta_, points = np.split(best.place, [len(start)])
        points = points.reshape(bounds.points.shape)
        units = float(np.log(self.answer_scaling_.scale) @ seen.weights.sum(axis=0))
        model, self.log_evidence_ = bounds.model(self.theta_, points)
        self.log_evidence_ -= units
        self.noise_ = np.asarray(model.noise) * self.answer_scaling_.scale**2
        vars(self)["_process"] = SparseProcess(model)
        history = {"objective": (np.array(best.path) + units) / seen.weights.sum()}
        return Fit(model, history, len(best.path), best.status)

    def _first_points(self, seen: Evidences, rng: np.random.Generator) -> np.ndarray:
        """Those that were given, or rows that are far from each other."""
        if not isinstance(self.inducing, np.ndarray | list):
            weight = seen.weights.max(axis=1)
            return spread_rows(seen.x, weight, min(int(self.inducing), len(seen.x)), rng)
        points = np.asarray(self.inducing, float)
        if points.ndim != 2 or points.shape[1] != seen.x.shape[1] or not np.isfinite(points).all():
            raise ValueError(
                f"The 'inducing' parameter of {type(self).__name__} must be an int or finite rows of "
                f"{seen.x.shape[1]} columns. Got the shape {points.shape} instead."
            )
        return self.scaling_.apply(points)

    @property
    def inducing_(self) -> np.ndarray:
        """The inducing points, in the units of the data."""
        if not isinstance(self._process, SparseProcess):
            raise AttributeError("inducing_ is there where inducing points stand for the rows.")
        return self.scaling_.invert(np.asarray(self.model_.points))

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """log p(y | X) of what was fitted, in the units of the data, at other logarithms of the parameters.

        Args:
            theta: as `theta_`, which is the default.
            eval_gradient: whether the slope in `theta` is returned beside it.
        """
        seen = self._whole("log_marginal_likelihood").seen
        theta = self.theta_ if theta is None else np.asarray(theta, float)
        if theta.shape != self.theta_.shape:
            raise ValueError(
                f"The 'theta' of log_marginal_likelihood must have {len(self.theta_)} numbers. "
                f"Got the shape {theta.shape} instead."
            )
        value, slope = seen.evidence(theta, slope=eval_gradient)
        value -= float(np.log(self.answer_scaling_.scale) @ seen.weights.sum(axis=0))
        return (value, slope) if eval_gradient else value

    def _likelihood(self, X: Any, given: dict[str, Any]) -> Any:
        kind = Kind.EXACT if self.inducing is None else Kind.LOWER
        return Evidence(np.array([self.log_evidence_]), np.zeros(1), kind), self.fitted_size_

    def _count_parameters(self) -> int:
        kernel = len(LogParameters.of(self.model_.kernel).vector) if self.learn else 0
        points = self.inducing_.size if self.learn and self.inducing is not None else 0
        return kernel + points + (len(self.noise_) if self.noise is None else 0)
