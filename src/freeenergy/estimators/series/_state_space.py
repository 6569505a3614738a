"""Linear systems as estimators, and what all with a hidden Gaussian state share."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import models
from ..._core import AbstractAlgorithm, Data, Fit, generator, on_device
from ...distributions import AbstractCovariance, Diagonal, Full
from ...inference import GaussianBelief
from ...learning import EM
from ...models import Learned, Series
from ...models._regressions import covariance_like, driven_regression
from ...shell import (
    AbstractPredictive,
    ForecastsSeries,
    NormalMixtures,
    Sequences,
    SeriesIntake,
    check_instance,
    check_int,
    with_history,
)
from ...shell._sequence import state_names
from ...shell._series import pack
from ...shell._summary import Along
from ..tables._factor import principal


class States(NamedTuple):
    """Means and covariances of the hidden states, in the units of these."""

    mean: Any
    covariance: Any


def _filtered(series: Series, model: Any, incomplete: bool) -> GaussianBelief:
    return model.system().filter(series, incomplete=incomplete).filtered


def _smoothed(series: Series, model: Any, incomplete: bool) -> GaussianBelief:
    return model.system().smooth(series, incomplete=incomplete).marginals


def _predicted(series: Series, model: Any, incomplete: bool) -> tuple[Array, Array, Array]:
    """Weights, means and variances of the one normal law of each value."""
    mean, covariance = model.predicted(series)
    variance = jnp.diagonal(covariance, axis1=1, axis2=2)
    return jnp.ones((len(mean), 1)), mean[:, None], variance[:, None]


def apart(sequences: Sequences) -> Data:
    """A row for each series, which learners by gradient need."""
    return pack(sequences.series, None, sequences.inputs, sequences.weight, apart=True)


def per_packed_row(sequences: Sequences, result: Fit, own: Data) -> Fit:
    """A fit whose objective was a mean over rows of `own`, as one over rows of the packed series."""
    packed = float(np.asarray(sequences.packed.weight).sum())
    return with_history(result, share=float(np.asarray(own.weight).sum()) / packed)


class AbstractStateSpace(ForecastsSeries):
    """What estimators with a hidden Gaussian state share: forecasts with intervals."""

    max_iter: int
    tol: float
    learner: AbstractAlgorithm | None

    def _predictive(
        self, container: SeriesIntake, steps: int, future: np.ndarray | None
    ) -> list[AbstractPredictive]:
        parts = self._for_each(self._predictions, self._longer(container, steps, future))
        return [NormalMixtures(*(part[-steps:] for part in own)) for own in parts]

    _predictions: ClassVar[Any] = staticmethod(_predicted)

    def _step_laws(self, container: SeriesIntake) -> list[NormalMixtures]:
        return [NormalMixtures(*own) for own in self._for_each(self._predictions, container)]

    def gives_cells(self, n_features: int, *, from_start: bool) -> bool:
        return n_features == 1

    def _by_em(self, start: Any, sequences: Sequences, key: Array) -> Fit:
        """Fits by EM, or by the learner of the user."""
        learner = EM(tol=sequences.per_row(self.tol)) if self.learner is None else self.learner
        own = sequences.packed if isinstance(learner, EM) else apart(sequences)
        return per_packed_row(sequences, self._run(start, learner, own, sequences, key), own)

    def _driven(self, matrix: Any) -> np.ndarray:
        """A matrix that multiplies inputs, if there are any."""
        if matrix is None:
            raise AttributeError(f"{type(self).__name__} was fitted without inputs.")
        return np.asarray(matrix)

    def _along_system(self, name: str, shape: tuple[int, ...]) -> Along:
        """What stands along each axis of a parameter of a linear system, by its name."""
        columns, none = self.column_names, (None,) * len(shape)
        if name.startswith("input_"):
            return (columns if name == "input_emission" else None), self._input_labels()
        if name == "emission_noise":
            return columns, columns
        return (columns, *none[1:]) if name.startswith(("emission", "mean")) else none

    def _states(self, method: str, function: Any, X: Any, inputs: Any) -> States:
        container = self._read(X, inputs)
        parts = self._for_each(function, container)
        means, covariances = ([getattr(p, name) for p in parts] for name in States._fields)
        return States(
            container.rows(self._answered(method, container, means), state_names(means[0])),
            container.wrap(self._answered(method, container, covariances)),
        )


class LinearGaussianSSM(AbstractStateSpace):
    """A hidden linear system: x_t = A x_{t−1} + B u_t + a + w_t, y_t = C x_t + D u_t + c + ε_t.

    Fitted by EM.  B and D are there if `fit` is given inputs u.  Which values of the state fit is known
    only up to an invertible map; what is said of y is not.  The state has units of its own, those in which
    its first value had variance one when the fit began.  y and u have the units of the data: B is what one
    of an input adds to the state, C what one of the state adds to y, and a what the state is given at each
    step where all inputs are zero.  `model_in_units` is the system of these numbers.

    Args:
        n_latent: the size of the state.
        noise: structure of the covariance of w_t; by default `Full()`.
        emission_noise: structure of the covariance of ε_t; by default `Diagonal()`.
        max_iter, tol: the most EM steps, and the improvement in nats per time step that stops it.
        learner: replaces EM.
        random_state: seed of the start.
        verbose: 1 shows progress.
        checkpoint: a file that keeps the state of the fit.

    Attributes:
        transition_, offset_, noise_: A, a and Q (w_t ~ N(0, Q)), in the units of the state.
        emission_, mean_, emission_noise_: C, c and R (ε_t ~ N(0, R)), in the units of the data.
        input_transition_, input_emission_: B and D, for inputs in their own units.
        model_: the fitted model, of rescaled series.
        n_inputs_in_, length_, history_, n_iter_, converged_, …: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.cumsum(rng.normal(size=200))[:, None]
    >>> model = LinearGaussianSSM(1, random_state=0, max_iter=20, tol=1e-3).fit(x)
    >>> model.forecast(x, 2).mean.shape, model.smooth(x).mean.shape
    ((2, 1), (200, 1))
    """

    model_: models.LinearGaussianSSM
    _maximises_likelihood = True
    _made_from = models.LinearGaussianSSM

    @classmethod
    def _parameters_of(cls, model: Any) -> dict[str, Any]:
        noises = {"noise": model.noise, "emission_noise": model.emission_noise}
        return {"n_latent": model.latent_dim, **noises}

    @classmethod
    def _inputs_of(cls, model: Any) -> int:
        driven = [m for m in (model.input_transition, model.input_emission) if m is not None]
        return driven[0].shape[1] if driven else 0

    def __init__(
        self,
        n_latent: int = 2,
        *,
        noise: AbstractCovariance | None = None,
        emission_noise: AbstractCovariance | None = None,
        max_iter: int = 500,
        tol: float = 1e-5,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_latent = n_latent
        self.noise = noise
        self.emission_noise = emission_noise
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _along(self, name: str, shape: tuple[int, ...]) -> Along:
        return self._along_system(name, shape)

    def _free_parameters(self, n_features: int) -> int:
        # of the system in innovations form, since the basis of the state is free
        mean_and_noise = n_features + n_features * (n_features + 1) // 2
        return 2 * self.n_latent * n_features + mean_and_noise

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "n_latent")
        check_instance(self, "noise", AbstractCovariance, optional=True)
        check_instance(self, "emission_noise", AbstractCovariance, optional=True)

    def _learn(self, sequences: Sequences, key: Array) -> Fit:
        start = start_system(sequences, self.n_latent, self.noise, self.emission_noise, key)
        return self._by_em(start, sequences, key)

    def _moving(self) -> Any:
        mask = super()._moving()
        if self.model_.learned.initial:
            return mask
        held = jax.tree.map(lambda _: False, mask.initial_covariance)
        return dataclasses.replace(mask, initial_mean=False, initial_covariance=held)

    def _count_parameters(self) -> int:
        driven = self.n_inputs_in_ * (self.n_latent + self.n_features_in_)
        return self._free_parameters(self.n_features_in_) + driven

    def filter(self, X: Any, *, inputs: Any = None) -> States:
        """The states given the series up to each step."""
        return self._states("filter", _filtered, X, inputs)

    def smooth(self, X: Any, *, inputs: Any = None) -> States:
        """The states given the whole series."""
        return self._states("smooth", _smoothed, X, inputs)

    def states(self, X: Any, *, inputs: Any = None) -> dict[str, np.ndarray]:
        found = self.smooth(X, inputs=inputs)
        std = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
        return {"mean": np.asarray(found.mean), "std": std}

    @property
    def _system(self) -> models.LinearGaussianSSM:
        """The fitted model in the units of the data."""
        system: Any = self.model_in_units
        return system

    @property
    def transition_(self) -> np.ndarray:
        """A."""
        return np.asarray(self._system.transition)

    @property
    def offset_(self) -> np.ndarray:
        """a, what the state is given at each step where all inputs are zero."""
        return np.asarray(self._system.offset)

    @property
    def noise_(self) -> np.ndarray:
        """Q."""
        return np.asarray(self._system.noise.matrix())

    @property
    def emission_(self) -> np.ndarray:
        """C, in the units of the data."""
        return np.asarray(self._system.emission)

    @property
    def mean_(self) -> np.ndarray:
        """c, the mean of y where the state and all inputs are zero, in the units of the data."""
        return np.asarray(self._system.mean)

    @property
    def emission_noise_(self) -> np.ndarray:
        """R, in the units of the data."""
        return np.asarray(self._system.emission_noise.matrix())

    @property
    def input_transition_(self) -> np.ndarray:
        """B, for inputs in their own units."""
        return self._driven(self._system.input_transition)

    @property
    def input_emission_(self) -> np.ndarray:
        """D, in the units of the data, for inputs in theirs."""
        return self._driven(self._system.input_emission)


@eqx.filter_jit
def with_values(
    structure: AbstractCovariance | None, default: AbstractCovariance, matrix: Array
) -> AbstractCovariance:
    """`structure` with the values of a matrix."""
    return covariance_like(default if structure is None else structure, matrix)


def start_system(
    sequences: Sequences,
    n: int,
    noise: AbstractCovariance | None,
    emission_noise: AbstractCovariance | None,
    key: Array,
) -> models.LinearGaussianSSM:
    """Principal components that persist; states beyond the number of columns get random loadings."""
    rows, weight = np.nan_to_num(sequences.rows), sequences.row_weight
    dim = rows.shape[1]
    second = (rows * weight[:, None]).T @ rows / weight.sum()
    loading, variance = map(np.asarray, principal(second, min(n, dim)))
    rng = generator(key)
    emission = np.concatenate([loading, rng.normal(0, 0.3, (dim, max(n - dim, 0)))], axis=1)
    transition = 0.8 * np.eye(n) + rng.normal(0, 0.1, (n, n)) / np.sqrt(n)
    input_transition = input_emission = None
    if sequences.inputs is not None:
        A, B, D = driven_regression(sequences.series, sequences.inputs, sequences.weight, loading)
        transition[: len(A), : len(A)] = A
        input_transition = on_device(np.concatenate([B, np.zeros((n - len(B), B.shape[1]))]))
        input_emission = on_device(D)
    return models.LinearGaussianSSM(
        on_device(np.zeros(n)),
        Full(on_device(np.eye(n))),
        on_device(transition),
        on_device(np.zeros(n)),
        with_values(noise, Full(), on_device(0.4 * np.eye(n))),
        on_device(emission),
        on_device(np.zeros(dim)),
        with_values(emission_noise, Diagonal(), on_device((variance + 0.1) * np.eye(dim))),
        input_transition,
        input_emission,
        # the covariance of the first state is not known from fewer series than states
        learned=Learned(initial=bool(sequences.weight.sum() > n)),
    )
