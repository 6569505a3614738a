"""Gaussian processes: functions with a prior by a kernel, and answers that are noisy values of them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from scipy import stats
from scipy.special import ndtri, softmax
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..._core import Data, Evidence, Fit, Kind, Status, generator, learnable, on_device, split_key
from ...distributions import AbstractPartial, AbstractShaped, Diagonal, Gaussian, Given, Reals
from ...distributions._base import rescaled
from ...evaluation import AbstractLaws, Laws, NormalLaws, StackedLaws
from ...inference import AbstractValuesMethod
from ...inference._latent_processes import AnswerLikelihood
from ...inference._processes import leave_one_out
from ...kernels import AbstractKernel
from ...learning import InducedBatches, InducedValuesAlone
from ...models import (
    AnsweredProcess,
    CoregionalisedProcess,
    InducedProcess,
    InducedValues,
    LatentProcess,
    ProcessInUnits,
)
from ...models import GaussianProcess as GaussianProcessModel
from ...shell import (
    AbstractDensity,
    Rows,
    Scaling,
    adam,
    check_instance,
    check_int,
    check_real,
    framed_ends,
)
from ...shell._summary import named_parameters
from ._coregionalised import CoregionalisedEvidences, CoregionalisedHost
from ._exact_process import Evidences, ExactProcess
from ._kernelled import (
    AbstractKernelRegressor,
    LogParameters,
    LogPrior,
    Search,
    in_parts,
    limits_of,
    starts_about,
)
from ._latent import LatentEvidences, ValuesProcess, answer_of, averaged_laws, constant_of
from ._members import check_answers, knows_law
from ._sparse_process import Bounds, SparseProcess, spread_rows
from ._told import TellsInUnits, Told, about_means, told_of_kernel

# σ² where none is given, as a part of the variance of answers
_FIRST_NOISE = 0.1
# by how much logarithms of parameters are moved to see how the evidence bends, and the least that it does
_NUDGE, _LEAST_BEND = 1e-4, 0.25
# passes over all rows for the law of values at inducing points, after the batches
_PASSES = 50
# different rows up to which all of them are taken where nothing is said, and points for more
_ALL_ROWS, _POINTS = 5000, 200
# rows that the search with inducing points begins with, and the part of the bound a rise of which is none
_FIRST_ROWS, _NO_RISE = 10_000, 1e-6


PROCESSES: dict[type, Any] = {
    GaussianProcessModel: ExactProcess,
    InducedProcess: lambda model: SparseProcess(model.values),
    InducedValues: SparseProcess,
    LatentProcess: ValuesProcess,
    CoregionalisedProcess: CoregionalisedHost,
    AnsweredProcess: lambda model: PROCESSES[type(model.process)](model.process),
}


class AbstractProcess(TellsInUnits, AbstractKernelRegressor):
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

    def _merged_with_kernel(self, rows: Rows) -> tuple[Rows, LogParameters]:
        """Distinct rows, with the kernel to begin with."""
        merged, self.places_ = self._merged(rows)
        start = self._start_kernel(merged.x.shape[1])
        # so that what is wrong with the kernel is said before any work
        start.gram(merged.x[:1])
        return merged, LogParameters.of(start)

    def _seen(self, rows: Rows) -> Evidences:
        """Rows and answers to learn from, with the kernel to begin with."""
        merged, logs = self._merged_with_kernel(rows)
        assert merged.known is not None
        known, outputs = ~np.isnan(merged.known), merged.known.shape[1]
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
    def _process(self) -> ExactProcess | SparseProcess | ValuesProcess | CoregionalisedHost:
        """f on the host: made again where a file was read."""
        return PROCESSES[type(self.model_)](self.model_)

    @property
    def kernel_(self) -> AbstractKernel:
        """The kernel after the fit, in the units that it sees."""
        return self._process.model.kernel

    def _function(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of f for complete rows, (rows, outputs), in the units of the data."""
        found = [self._process.at(z) for z in in_parts(self.scaling_.apply(x), self._process.size)]
        mean, variance = (np.concatenate(part) for part in zip(*found, strict=True))
        return self.answer_scaling_.invert(mean + self._about), variance * self.answer_scaling_.scale**2

    # what f is about, in the units of rescaled answers
    _about = 0.0

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

    @framed_ends
    def predict_function_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
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
            noise = rng.standard_normal((n, len(mean))) * np.sqrt(np.maximum(values, 0.0))
            # of one output or of several together
            draws.append((mean + noise @ vectors.T).reshape(n, -1, len(z)))
        drawn = (
            np.concatenate(draws, axis=1).swapaxes(1, 2) * self.answer_scaling_.scale
            + self.answer_scaling_.shift
        )
        return drawn.reshape(n, len(z), *self.answer_shape_)

    def _whole(self, what: str) -> ExactProcess:
        """f given all answers, which inducing points do not keep."""
        if isinstance(self._process, ExactProcess):
            return self._process
        raise ValueError(
            f"{type(self).__name__} has {what} where noise is Gaussian, outputs are apart and no inducing "
            "points stand for the rows: fit it with family=None, rank=None and inducing=len(X)."
        )

    def _remarks(self) -> list[str]:
        return about_means(columns=self.scaling_, answers=self.answer_scaling_)

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
        family: the law of an answer y given f, other than f with Gaussian noise: a class of
            `freeenergy.distributions`, such as `Poisson`, `Bernoulli`, `NegativeBinomial`, `Gamma` or
            `StudentT`, a member of one, or a `Given` with a link.  What f does not set is learned.
        method: how a Gaussian is found for f given answers of a `family`: `LaplaceMethod()` or
            `VariationalGaussian()` of `freeenergy.inference`; None for the first.
        rank: of W in the covariance of outputs, cov(f_o(x), f_p(x′)) = (W Wᵀ + diag(κ))_op k(x, x′), which
            is learned with the kernel; None for outputs that have nothing to do with each other.
        inducing: how many points stand for the rows, or the first of them, in the units of the data; None
            for all rows up to 5,000 of them, and 200 points for more.  With as many points as there are
            different rows, or more, all rows stand for themselves.
        batch_size: with inducing points, rows of a batch, each of which raises the bound by a step; None
            for all rows at once by L-BFGS, or with a `family` for 1,024.
        standardise: whether the kernel sees columns and answers in units of their standard deviations, from
            their means; else as they are, with a process about zero.
        learn: whether the parameters of the kernel are learned, or stay as given.
        prior: whether the lengths of the default kernel, log ℓ ~ N(√2 + ½ log columns, 3), and the noise,
            log σ² ~ N(−2, 1), have this prior in the units that the kernel sees, if it is standardised.
        n_init: starts of the search; all but the first are random.
        max_iter, tol: the most iterations of L-BFGS, and the slope per row in logarithms of the parameters
            below which it stops; of batches the most epochs.
        learning_rate: of Adam, for batches.
        inputs: the density of rows and answers from which missing entries of rows are drawn; None for one
            Gaussian.  In fit they are drawn once.
        random_state: for starts and first points.
        verbose: 1 shows progress.

    Attributes:
        kernel_: the kernel after the fit, in the units that it sees; `summary` has those of the data.
        noise_: σ² of each output, in the units of the data.
        log_evidence_: log p(y | X), in the units of the data; a lower bound with inducing points, and with
            a `family` what its `method` has.
        theta_: logarithms of the parameters: those of the kernel, then σ² of each output in the units that
            the kernel sees, or what the `family` has to learn.
        output_covariance_: W Wᵀ + diag(κ), in the units of the data, with a `rank`.
        answer_: the `family` after the fit, for answers in the units of `answer_scaling_`.
        offset_: with a `family`, what f is about: a constant that is fitted first, if `standardise`.
        inducing_: the inducing points, in the units of the data.
        places_: which of the different rows each row of the fit is.
        loo_: the law of the answer to each row of the fit given all others, without inducing points.
        columns_, inputs_, answer_shape_, answer_names_, answer_scaling_: as of every regressor.
        model_: a `freeenergy.models.GaussianProcess` of rescaled rows and answers, an `InducedProcess`, or
            with a `family` an `AnsweredProcess`.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    Answers that are NaN are not known, and left out; several outputs share the kernel and have noise of
    their own.  The time of a fit grows with the cube of the rows.  With m inducing points, learned by the
    bound of Titsias, log N(y; 0, Q + σ²I) − tr(K − Q)/2σ² with Q = K_fu K_uu⁻¹ K_uf, it grows with m² times
    the rows, of which there may be 100,000 and more.

    With a `family` the law of an answer is p(y | x) = E p(y | f(x)), averaged over the Gaussian of f(x).

    >>> x = np.linspace(0.0, 6.0, 25)[:, None]
    >>> model = GaussianProcess().fit(x, np.sin(x[:, 0]))
    >>> model.predict([[1.0], [4.0]]).round(3).tolist()
    [0.841, -0.757]
    >>> from freeenergy.distributions import Poisson
    >>> counts = GaussianProcess(family=Poisson).fit(x, np.round(np.exp(1 + np.sin(x[:, 0]))))
    >>> counts.predict([[1.6], [4.7]]).round().tolist(), counts.predict_interval([[1.6]])[1].tolist()
    ([7.0, 1.0], [12.0])
    """

    _may_be_none = ("batch_size",)

    @property
    def _maximises_likelihood(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not (self.prior and self.standardise)

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        noise: float | None = None,
        family: Any = None,
        method: AbstractValuesMethod | None = None,
        rank: int | None = None,
        inducing: Any = None,
        batch_size: int | None = None,
        standardise: bool = True,
        learn: bool = True,
        prior: bool = True,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        learning_rate: float = 0.01,
        inputs: AbstractDensity | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.family = family
        self.method = method
        self.rank = rank
        self.inducing = inducing
        self.batch_size = batch_size
        self.standardise = standardise
        self.learn = learn
        self.prior = prior
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.inputs = inputs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self, "noise", closed=False, optional=True)
        check_instance(self, "learn", bool)
        check_instance(self, "prior", bool)
        if not isinstance(self.inducing, np.ndarray | list):
            check_int(self, "inducing", optional=True)
        if self.batch_size is not None and self.inducing is None:
            raise ValueError(
                f"The 'batch_size' parameter of {type(self).__name__} must be None without 'inducing' "
                f"points. Got {self.batch_size!r} instead."
            )
        check_instance(self, "method", AbstractValuesMethod, optional=True)
        check_int(self, "rank", 0, optional=True)
        if self.rank is not None and (self.family is not None or self.inducing is not None):
            raise ValueError(
                f"The 'rank' parameter of {type(self).__name__} must be None with a 'family' or 'inducing' "
                f"points. Got {self.rank!r} instead."
            )
        if self.family is not None:
            self._check_family()

    def _check_family(self) -> None:
        shaped = isinstance(self.family, type) and issubclass(self.family, AbstractShaped | AbstractPartial)
        if not (shaped or isinstance(self.family, AbstractPartial | Given)) or not knows_law(self._family):
            raise ValueError(
                f"The 'family' parameter of {type(self).__name__} must be a family of "
                "freeenergy.distributions with a distribution function, such as Poisson or StudentT, a "
                f"member of one, a Given, or None. Got {self.family!r} instead."
            )
        if self.noise is not None:
            raise ValueError(
                f"The 'noise' parameter of {type(self).__name__} must be None with a 'family', which has "
                f"its own. Got {self.noise!r} instead."
            )

    @property
    def _family(self) -> Any:
        """The class of the family."""
        found = self.family.member if isinstance(self.family, Given) else self.family
        return found if isinstance(found, type) else type(found)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.family is None
        tags.target_tags.positive_only = self.family is not None and self._family.support != Reals()
        return tags

    def _answer_scaling(self, y: np.ndarray, weight: np.ndarray | None) -> Scaling:
        scaling = super()._answer_scaling(y, weight)
        if self.family is None:
            return scaling
        if y.shape[1] > 1:
            raise ValueError(
                f"The 'y' of {type(self).__name__} with a 'family' must have one number a row. "
                f"Got {y.shape[1]} columns; fit a model for each."
            )
        check_answers(self, self._family, y)
        answer = answer_of(self.family, y[~np.isnan(y[:, 0])])
        if answer.dim != 1 or answer.size != 1:
            raise ValueError(
                f"The 'family' parameter of {type(self).__name__} must have one output, and a link with "
                f"one number. Got {answer.dim} and {answer.size} instead."
            )
        # other families have no other unit, or no other origin
        unit_free = answer.support == Reals() and answer.unit_free_columns(1).all()
        return scaling if unit_free else Scaling.identity(1)

    # they know that parameters are estimates, as the law does not
    intervals_of_law = False

    @framed_ends
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Both ends of the interval that holds each answer with probability `level`, by itself.

        Where all rows stand for themselves and noise is Gaussian, they know that the parameters of kernel
        and noise are estimates: the law is averaged over others that the evidence leaves open.  Else, and
        for rows with missing entries, they are quantiles of `predict_density`.
        """
        x = self._read(X).x
        holes = np.isnan(x).any(axis=1)
        others, shares = self._others
        if not others or holes.all():
            return self._laws_of(x).interval(level)
        z, outputs = self.scaling_.apply(x[~holes]), len(self.noise_)
        moments = []
        for process in others:
            found = [process.at(part) for part in in_parts(z, process.size)]
            mean, variance = (np.concatenate(part) for part in zip(*found, strict=True))
            moments.append((mean, np.sqrt(variance + np.asarray(process.model.noise))))
        means, spreads = (np.stack(part) for part in zip(*moments, strict=True))
        logs = np.repeat(np.log(shares)[:, None], means[0].size, axis=1)
        inside = StackedLaws(logs, Laws(stats.norm(means.ravel(), spreads.ravel())))
        ends = np.empty((2, len(x), *self.answer_shape_))
        for end, own in zip(ends, inside.interval(level), strict=True):
            end[~holes] = self._shaped(self.answer_scaling_.invert(own.reshape(-1, outputs)))
        if holes.any():
            ends[:, holes] = self._laws_of(x[holes]).interval(level)
        return ends[0], ends[1]

    @functools.cached_property
    def _others(self) -> tuple[list[ExactProcess], np.ndarray]:
        """Processes with other parameters, two along each axis of the normal law at the top, and shares.

        With k parameters they are √k standard errors away, so that their even average is right to second
        order for a normal law.  Each counts as much more as what the evidence and the prior say of it is
        above what that law says (importance weights): the evidence falls slowly towards long lengths.
        """
        if type(self._process) is not ExactProcess or self.family is not None or self.rank is not None:
            return [], np.zeros(0)
        seen = self._process.seen
        kernel, outputs = len(seen.kernel.vector), seen.answers.shape[1]
        free = np.flatnonzero(np.repeat([self.learn, self.noise is None], [kernel, outputs]))
        prior = self._prior(seen.x.shape[1], kernel, outputs) or LogPrior.none(kernel + outputs)

        def slope(theta: np.ndarray) -> np.ndarray:
            return (seen.evidence(theta)[1] + prior.log_density(theta)[1])[free]

        if not len(free):
            return [], np.zeros(0)
        moves = _NUDGE * np.eye(len(self.theta_))[free]
        bend = np.stack([slope(self.theta_ + move) - slope(self.theta_ - move) for move in moves])
        values, axes = np.linalg.eigh(-(bend + bend.T) / (4 * _NUDGE))
        bends = np.maximum(values, _LEAST_BEND)
        steps = axes * np.sqrt(len(free) / bends)
        limits = limits_of(self.theta_, kernel)
        found, logs = list[ExactProcess](), list[float]()
        for step in np.concatenate([steps.T, -steps.T]):
            theta = self.theta_.copy()
            theta[free] += step
            theta = np.clip(theta, *limits.T)
            own, noise = seen.parts(theta)
            made = ExactProcess(dataclasses.replace(self._process.model, kernel=own, noise=noise))
            found.append(made)
            gone = axes.T @ (theta - self.theta_)[free]
            top = sum(told.log_evidence for told in made.told) + prior.log_density(theta)[0]
            logs.append(top + 0.5 * float(bends @ gone**2))
        return found, softmax(logs)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        vars(self).pop("_others", None)
        if self.batch_size is not None:
            return self._learn_batches(*self._merged_with_kernel(rows), key)
        if self.family is not None:
            merged = self._merged_with_kernel(rows)
            few = self._points_for(len(merged[0].x)) is None
            return self._learn_latent(*merged, key) if few else self._learn_batches(*merged, key)
        seen = self._seen(rows)
        if self.rank is not None:
            return self._learn_outputs(seen, key)
        outputs = seen.answers.shape[1]
        first = self._first_noise(seen.answers, seen.weights)
        start = np.concatenate([seen.kernel.vector, np.log(first)])
        free = np.repeat([self.learn, self.noise is None], [len(seen.kernel.vector), outputs])
        rng = generator(key)
        if self._points_for(len(seen.x)) is not None:
            return self._learn_sparse(seen, start, free, rng)
        best = seen.best(starts_about(start, free, self.n_init, rng), free, self._search(seen))
        self.theta_ = best.place
        return self._keep(seen, *best)

    def _search(self, seen: Any, no_rise: float = 1e-9) -> Search:
        """How parameters are found; progress is shown in the units of the data."""
        weight = seen.weights.sum(axis=0)
        units = float(np.log(self.answer_scaling_.scale) @ weight / weight.sum())
        return Search(self.max_iter, self.tol, self._progress(offset=-units), no_rise)

    def _points_for(self, rows: int) -> Any:
        """How many points stand for so many different rows, or the first of them; None for all rows."""
        if self.inducing is None:
            return None if rows <= _ALL_ROWS or self.rank is not None else _POINTS
        if isinstance(self.inducing, np.ndarray | list):
            return self.inducing
        return self.inducing if self.inducing < rows or self.batch_size is not None else None

    def _learn_latent(self, merged: Rows, kernel: LogParameters, key: Array) -> Fit:
        """A Gaussian for f, given answers of any law."""
        assert merged.known is not None
        x, y = merged.x, merged.known[:, 0]
        weight = merged.weight * ~np.isnan(y)
        # what is not known has no weight, but is an answer that can occur
        y = np.where(np.isnan(y), y[np.argmax(weight > 0)], y)
        answer = answer_of(self.family, y[:, None])
        family, offset = LogParameters.of(answer), self._constant(answer, y, weight)
        seen = LatentEvidences(
            kernel,
            x,
            weight[:, None],
            lambda logs: [AnswerLikelihood(family.kernel(logs), y, weight, offset)],
            family,
            self.method,
            self._prior(x.shape[1], len(kernel.vector) + len(family.vector), 0),
        )
        free = np.repeat([self.learn, True], [len(kernel.vector), len(family.vector)])
        starts = starts_about(seen.start, free, self.n_init, generator(key))
        best = seen.best(starts, free, self._search(seen))
        self.theta_ = best.place
        process, value = seen.process(best.place)
        vars(self)["_process"] = process
        made = family.kernel(self.theta_[len(kernel.vector) :])
        units = float(np.log(self.answer_scaling_.scale[0]) * weight.sum())
        self.log_evidence_ = value - units
        model = AnsweredProcess(process.model, jax.tree.map(on_device, made), on_device(np.array([offset])))
        history = {"objective": (np.array(best.path) + units) / weight.sum()}
        return Fit(model, history, len(best.path), best.status)

    def _constant(self, answer: Given, y: np.ndarray, weight: np.ndarray) -> float:
        """What f is about."""
        return constant_of(AnswerLikelihood(answer, y, weight, 0.0)) if self.standardise else 0.0

    def _learn_batches(self, merged: Rows, kernel: LogParameters, key: Array) -> Fit:
        """The law of values at inducing points, from batches of rows."""
        assert merged.known is not None
        if merged.known.shape[1] > 1:
            raise ValueError(
                f"The 'y' of {type(self).__name__} with a 'batch_size' must have one number a row. "
                f"Got {merged.known.shape[1]} columns; fit a model for each, or all rows at once."
            )
        there = ~np.isnan(merged.known[:, 0]) & (merged.weight > 0)
        x, y, weight = merged.x[there], merged.known[there], merged.weight[there]
        if self.family is None:
            variance = self._first_noise(y, weight[:, None])
            answer, offset = Given(Gaussian(on_device(np.zeros(1)), Diagonal(on_device(variance)))), 0.0
        else:
            answer = answer_of(self.family, y)
            offset = self._constant(answer, y[:, 0], weight)
        first, second = split_key(key)
        points = self._first_points(x, weight, generator(first))
        size = len(points)
        values = InducedValues(
            jax.tree.map(on_device, kernel.kernel(kernel.vector)),
            *map(on_device, (points, np.zeros((size, 1)), np.eye(size)[None])),
        )
        start = AnsweredProcess(values, answer, on_device(np.array([offset])))
        may: Any = learnable(start)
        may = eqx.tree_at(lambda m: m.offset, may, False)
        if not self.learn:
            may = eqx.tree_at(lambda m: m.process, may, jax.tree.map(lambda _: False, may.process))
        if self.noise is not None:
            may = eqx.tree_at(lambda m: m.answer, may, jax.tree.map(lambda _: False, may.answer))
        # two nodes are exact for a parabola
        nodes = 2 if self.family is None else 20
        batch = 1024 if self.batch_size is None else self.batch_size
        data = Data.of((x, y), weight)
        learner = InducedBatches(adam(self.learning_rate), batch, nodes=nodes, learnable=may)
        found = self._run(start, learner, data, merged, second)
        whole = self._run(found.model, InducedValuesAlone(nodes), data, merged, second, max_iter=_PASSES)
        units = float(np.log(self.answer_scaling_.scale[0]) * weight.sum())
        self.log_evidence_ = -float(whole.history["objective"][-1]) - units
        model: Any = whole.model
        vars(self)["_process"] = SparseProcess(model.process)
        logs = [LogParameters.of(model.process.kernel), LogParameters.of(model.answer)]
        self.theta_ = np.concatenate([part.vector for part in logs])
        history = {"objective": np.asarray(found.history["objective"]) + units / weight.sum()}
        if self.family is None:
            noise = np.asarray(model.answer.member.covariance.variances())
            self.noise_ = noise * self.answer_scaling_.scale**2
            model = InducedProcess(model.process, on_device(noise))
        return dataclasses.replace(found, model=model, history=history)

    @property
    def answer_(self) -> Given:
        """The family after the fit."""
        return self._answered("answer_").answer

    @property
    def offset_(self) -> float:
        """What f is about."""
        return float(self._answered("offset_").offset[0])

    def _answered(self, name: str) -> AnsweredProcess:
        if isinstance(self.model_, AnsweredProcess):
            return self.model_
        raise AttributeError(f"{name} is there where answers have a family.")

    @property
    def _about(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 0.0 if self.family is None else self.offset_

    def _laws(self, x: np.ndarray) -> AbstractLaws:
        if isinstance(self._process, CoregionalisedHost) and self.answer_shape_:
            z, scale = self.scaling_.apply(x), self.answer_scaling_.scale
            found = [self._process.across(part) for part in in_parts(z, self._process.size)]
            mean, covariance = (np.concatenate(part) for part in zip(*found, strict=True))
            covariance = covariance * np.outer(scale, scale) + np.diag(self.noise_)
            return NormalLaws(self.answer_scaling_.invert(mean), covariance)
        if self.family is None:
            return super()._laws(x)
        mean, variance = self._function(x)
        f, spread = self.answer_scaling_.apply(mean), np.sqrt(variance) / self.answer_scaling_.scale
        return averaged_laws(self.answer_, f[:, 0], spread[:, 0], self.answer_scaling_, self._shaped)

    def _learn_outputs(self, seen: Evidences, key: Array) -> Fit:
        """Outputs that depend on each other."""
        kernel, outputs = seen.kernel, seen.answers.shape[1]
        between = outputs * (1 + int(self.rank or 0))
        prior = self._prior(seen.x.shape[1], len(kernel.vector) + between, outputs)
        size = len(kernel.vector) + between + outputs
        found = CoregionalisedEvidences(
            kernel, seen.x, seen.answers, seen.weights, LogPrior.none(size) if prior is None else prior
        )
        start = found.start(int(self.rank or 0), self._first_noise(seen.answers, seen.weights))
        parts = [self.learn, True, self.noise is None]
        free = np.repeat(parts, [len(kernel.vector), between, outputs])
        best = found.best(starts_about(start, free, self.n_init, generator(key)), free, self._search(seen))
        self.theta_ = best.place
        process = found.process(best.place)
        vars(self)["_process"] = process
        units = float(np.log(self.answer_scaling_.scale) @ seen.weights.sum(axis=0))
        self.log_evidence_ = process.told.log_evidence - units
        self.noise_ = process.noise * self.answer_scaling_.scale**2
        history = {"objective": (np.array(best.path) + units) / seen.weights.sum()}
        return Fit(process.model, history, len(best.path), best.status)

    @property
    def output_covariance_(self) -> np.ndarray:
        """W Wᵀ + diag(κ), in the units of the data."""
        if not isinstance(self._process, CoregionalisedHost):
            raise AttributeError("output_covariance_ is there where outputs have a rank.")
        return self._process.outputs * np.outer(self.answer_scaling_.scale, self.answer_scaling_.scale)

    def _first_noise(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """σ² of each output to begin with, in the units of rescaled answers."""
        if self.noise is not None:
            return self.noise / self.answer_scaling_.scale**2
        first = np.full(y.shape[1], _FIRST_NOISE)
        if self.standardise:
            return first
        mean = (weight * y).sum(axis=0) / weight.sum(axis=0)
        square = (weight * (y - mean) ** 2).sum(axis=0) / weight.sum(axis=0)
        return first * np.where(square > 0, square, 1.0)

    def _prior(self, columns: int, parameters: int, outputs: int) -> LogPrior | None:
        if not (self.prior and self.standardise):
            return None
        lengths = columns if self.kernel is None else 0
        return LogPrior.weak(lengths, parameters - lengths, outputs)

    def _learn_sparse(
        self, seen: Evidences, start: np.ndarray, free: np.ndarray, rng: np.random.Generator
    ) -> Fit:
        free, search = np.append(free, self.learn), self._search(seen, _NO_RISE)
        points = self._first_points(seen.x, seen.weights.max(axis=1), rng)
        starts = starts_about(start, free[:-1], self.n_init, rng)
        begun = None
        if free.any() and len(seen.x) > _FIRST_ROWS:
            # most of the way is gone with some of the rows, in a part of the time
            some = np.sort(rng.choice(len(seen.x), _FIRST_ROWS, replace=False))
            first = Bounds(seen.some(some), points)
            begun = search.best(starts, lambda one: first.maximise(one, free, search))
            begin, points = first.parts(begun.place)
            starts = [begin]
        bounds = Bounds(seen, points)
        if begun is not None and begun.interrupted:
            best = bounds.maximise(starts[0], free & False, search)._replace(status=begun.status)
        else:
            best = search.best(starts, lambda one: bounds.maximise(one, free, search))
        self.theta_, points = bounds.parts(best.place)
        units = float(np.log(self.answer_scaling_.scale) @ seen.weights.sum(axis=0))
        model, self.log_evidence_ = bounds.model(self.theta_, points)
        self.log_evidence_ -= units
        self.noise_ = np.asarray(model.noise) * self.answer_scaling_.scale**2
        vars(self)["_process"] = SparseProcess(model.values)
        history = {"objective": (np.array(best.path) + units) / seen.weights.sum()}
        return Fit(model, history, len(best.path), best.status)

    def _first_points(self, x: np.ndarray, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Those that were given, or rows that are far from each other."""
        wanted = self._points_for(len(x))
        if not isinstance(wanted, np.ndarray | list):
            return spread_rows(x, weight, min(int(wanted), len(x)), rng)
        points = np.asarray(wanted, float)
        if points.ndim != 2 or points.shape[1] != x.shape[1] or not np.isfinite(points).all():
            raise ValueError(
                f"The 'inducing' parameter of {type(self).__name__} must be an int or finite rows of "
                f"{x.shape[1]} columns. Got the shape {points.shape} instead."
            )
        return self.scaling_.apply(points)

    def _told(self) -> dict[str, Told]:
        units, names = self.answer_scaling_.scale, self.answer_names_
        together = isinstance(self._process, CoregionalisedHost)
        found = told_of_kernel(
            self.kernel_, self.scaling_, self.columns_, None if together else units**2, names
        )
        if not found:
            return found
        if together:
            found["output_covariance"] = Told(self.output_covariance_, (names, names))
        if self.family is None:
            found["noise"] = Told(self.noise_, (names,))
        else:
            found["offset"] = Told(self.answer_scaling_.invert(np.array([self.offset_])), (None,))
            for name, value in named_parameters(self._answer_in_units()).items():
                found[f"answer.{name}"] = Told(np.asarray(value), (None,) * np.ndim(value))
        if self._induced:
            found["inducing"] = Told(self.inducing_, (None, self.columns_))
        return found

    @property
    def model_in_units(self) -> ProcessInUnits:
        """p(y | x) in the units of the data, where `model_` has rescaled rows and answers.

        Its `kernel` and `noise` are what `fe.infer` infers with a prior.
        """
        check_is_fitted(self, "model_")
        process, units = self._whole("model_in_units").model, self.answer_scaling_.scale
        if (units != units[0]).any():
            raise TypeError(
                f"The outputs of {type(self).__name__} share a kernel in units of their own, and have none "
                "in those of the data. Fit one output at a time, or with standardise=False."
            )
        kernel, scaling = process.kernel, self.scaling_
        own = kernel if scaling.is_identity else kernel.in_units(scaling.scale)
        if own is None:
            raise TypeError(
                f"A {type(kernel).__name__} of rescaled columns is no such kernel in the units of the "
                f"data. Fit {type(self).__name__} with standardise=False."
            )
        return ProcessInUnits(
            *jax.tree.map(on_device, (own.times(float(units[0] ** 2)), self.noise_)),
            *map(on_device, (np.asarray(process.x) * scaling.scale, np.asarray(process.y) * units)),
            *map(on_device, (process.weight, scaling.shift, self.answer_scaling_.shift)),
        )

    def _answer_in_units(self) -> Given:
        """The family for answers in the units of the data."""
        scaling = self.answer_scaling_
        if scaling.is_identity:
            return self.answer_
        member = rescaled(self.answer_.member, np.zeros(1), 1 / scaling.scale)
        return Given(member, self.answer_.link)

    @property
    def _induced(self) -> bool:
        """Whether points stand for the rows."""
        return isinstance(self._process, SparseProcess)

    @property
    def inducing_(self) -> np.ndarray:
        """The inducing points, in the units of the data."""
        if not isinstance(self._process, SparseProcess):
            raise AttributeError("inducing_ is there where inducing points stand for the rows.")
        return self.scaling_.invert(self._process.points)

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
        kind = Kind.LOWER if self._induced else Kind.EXACT
        if self.family is not None and not self._induced:
            kind = Kind.ESTIMATE if self.method is None else self.method.kind
        return Evidence(np.array([self.log_evidence_]), np.zeros(1), kind), self.fitted_size_

    def _count_parameters(self) -> int:
        if self.family is not None:
            logs = len(LogParameters.of(self.kernel_).vector)
            points = self.inducing_.size if self._induced else 0
            return len(self.theta_) + points if self.learn else len(self.theta_) - logs
        if self.rank is not None:
            logs = len(LogParameters.of(self.kernel_).vector)
            fixed = (0 if self.learn else logs) + (0 if self.noise is None else len(self.noise_))
            return len(self.theta_) - fixed
        kernel = len(LogParameters.of(self.kernel_).vector) if self.learn else 0
        points = self.inducing_.size if self.learn and self._induced else 0
        return kernel + points + (len(self.noise_) if self.noise is None else 0)
