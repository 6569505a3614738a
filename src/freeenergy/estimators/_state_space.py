"""State-space models as estimators: linear systems, structural series, autoregressions, switches."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import stats

from .. import models
from .._core import AbstractAlgorithm, Data, Fit, Info, Kind
from ..distributions import AbstractCovariance, Diagonal, Full
from ..inference import GaussianBelief
from ..learning import EM, LBFGS, fit, negative_log_likelihood
from ..models import (
    AbstractBlock,
    Columns,
    Learned,
    Level,
    Regressors,
    Series,
    Structural,
    ppca_closed_form,
)
from ._base import retold
from ._rows import Scaling
from ._sequence import AbstractSequenceDensity, Container, Sequences, pack
from ._validation import check_instance, check_int, check_real


class Forecast(NamedTuple):
    """The mean of future values and the interval that holds each with the probability asked for."""

    mean: Any
    low: Any
    high: Any


class States(NamedTuple):
    """Means and covariances of the hidden states, in the units of the model."""

    mean: Any
    covariance: Any


class Component(NamedTuple):
    """What a part adds to a series at each step: mean and standard deviation, in the units of the data."""

    mean: Any
    std: Any


def _filtered(series: Series, model: Any, incomplete: bool) -> GaussianBelief:
    return model.system().filter(series, incomplete=incomplete).filtered


def _smoothed(series: Series, model: Any, incomplete: bool) -> GaussianBelief:
    return model.system().smooth(series, incomplete=incomplete).marginals


def _predicted(series: Series, model: Any, incomplete: bool) -> tuple[Array, Array]:
    mean, covariance = model.predicted(series)
    return mean, jnp.diagonal(covariance, axis1=1, axis2=2)


def _apart(sequences: Sequences) -> Data:
    """A row for each series, which learners by gradient need."""
    return pack(sequences.series, None, sequences.inputs, sequences.weight, apart=True)


def _per_row_of(data: Data, result: Fit, own: Data) -> Fit:
    """A fit whose objective was a mean over rows of `own`, told per row of `data`."""
    return retold(result, share=float(np.asarray(own.weight).sum()) / float(np.asarray(data.weight).sum()))


class AbstractStateSpace(AbstractSequenceDensity):
    """What estimators with a hidden Gaussian state share: forecasts with intervals."""

    max_iter: int
    tol: float
    learner: AbstractAlgorithm | None

    def forecast(
        self,
        X: Any,
        steps: int = 1,
        level: float = 0.95,
        *,
        inputs: Any = None,
        future_inputs: Any = None,
    ) -> Forecast:
        """The `steps` values after the end of each series: mean, and interval of probability `level`.

        A model with inputs needs those of the series and, as `future_inputs`, those of the steps to come.
        """
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(
                "The 'steps' parameter of forecast must be an int in the range [1, inf). "
                f"Got {steps!r} instead."
            )
        if not 0 < level < 1:
            raise ValueError(
                "The 'level' parameter of forecast must be a float in the range (0, 1). "
                f"Got {level!r} instead."
            )
        container = self._validated(X, inputs)
        future = self._future(future_inputs, container, steps)
        unknown = np.full((steps, self.n_features_in_), np.nan)
        longer = container._replace(series=[np.concatenate([x, unknown]) for x in container.series])
        if container.inputs is not None and future is not None:
            pushes = [np.concatenate(pair) for pair in zip(container.inputs, future, strict=True)]
            longer = longer._replace(inputs=pushes)
        parts = self._for_each(self._predictions, longer)
        width = stats.norm.ppf(0.5 + level / 2)
        means = [self.scaling_.invert(mean[-steps:]) for mean, _ in parts]
        widths = [width * np.sqrt(variance[-steps:]) * self.scaling_.scale for _, variance in parts]
        return Forecast(
            container.wrap(means),
            container.wrap([m - w for m, w in zip(means, widths, strict=True)]),
            container.wrap([m + w for m, w in zip(means, widths, strict=True)]),
        )

    _predictions: ClassVar[Any] = staticmethod(_predicted)

    def _by_em(self, start: Any, sequences: Sequences, data: Data, key: Array) -> Fit:
        """Fits by EM, or by the learner of the user."""
        learner = EM(tol=sequences.per_row(self.tol, data)) if self.learner is None else self.learner
        own = data if isinstance(learner, EM) else _apart(sequences)
        return _per_row_of(data, self._learn(start, learner, sequences, own, key), own)

    def _learn(
        self, start: Any, learner: AbstractAlgorithm, sequences: Sequences, data: Data, key: Array
    ) -> Fit:
        return fit(
            start,
            learner,
            data,
            key=key,
            max_iter=self.max_iter,
            progress=self._progress(),
            checkpoint=self._checkpoint(sequences),
        )

    def _driven(self, matrix: Any) -> np.ndarray:
        """A matrix that multiplies inputs, for inputs in the units of the user."""
        scaling = self._input_units()
        if matrix is None or scaling is None:
            raise AttributeError(f"{type(self).__name__} was fitted without inputs.")
        return np.asarray(matrix) / scaling.scale

    def _states(self, function: Any, X: Any, inputs: Any) -> States:
        container = self._validated(X, inputs)
        parts = self._for_each(function, container)
        return States(
            container.wrap([p.mean for p in parts]), container.wrap([p.covariance for p in parts])
        )


class LinearGaussianSSM(AbstractStateSpace):
    """A hidden linear system: x_t = A x_{t−1} + B u_t + a + w_t, y_t = C x_t + D u_t + c + ε_t.

    Fitted by EM.  B and D are there if `fit` is given inputs u.  Which values of the state fit is known
    only up to an invertible map; what is said of y is not.

    Args:
        n_latent: the size of the state.
        noise: structure of the covariance of w_t; by default `Full()`.
        emission_noise: structure of the covariance of ε_t; by default `Diagonal()`.
        max_iter, tol: the most EM steps, and the improvement in nats per time step that stops it.
        learner: replaces EM.
        random_state: seed of the start.
        verbose: 1 shows progress.
        checkpoint: a file that keeps the state of the fit.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.cumsum(rng.normal(size=200))[:, None]
    >>> model = LinearGaussianSSM(1, random_state=0, max_iter=20, tol=1e-3).fit(x)
    >>> model.forecast(x, 2).mean.shape, model.smooth(x).mean.shape
    ((2, 1), (200, 1))
    """

    model_: models.LinearGaussianSSM

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

    def _check_parameters(self) -> None:
        check_int(self, "n_latent")
        check_instance(self, "noise", AbstractCovariance, optional=True)
        check_instance(self, "emission_noise", AbstractCovariance, optional=True)
        check_int(self, "max_iter")
        check_real(self, "tol")
        check_instance(self, "learner", AbstractAlgorithm, optional=True)

    def _fit_series(self, sequences: Sequences, data: Data, *, key: Array) -> Fit:
        start = _start_system(sequences, self.n_latent, self.noise, self.emission_noise, key)
        return self._by_em(start, sequences, data, key)

    def filter(self, X: Any, *, inputs: Any = None) -> States:
        """The states given the series up to each step."""
        return self._states(_filtered, X, inputs)

    def smooth(self, X: Any, *, inputs: Any = None) -> States:
        """The states given the whole series."""
        return self._states(_smoothed, X, inputs)

    @property
    def transition_(self) -> np.ndarray:
        """A."""
        return np.asarray(self.model_.transition)

    @property
    def emission_(self) -> np.ndarray:
        """C, in the units of the data."""
        return np.asarray(self.model_.emission) * self.scaling_.scale[:, None]

    @property
    def emission_noise_(self) -> np.ndarray:
        """R, in the units of the data."""
        matrix = np.asarray(self.model_.emission_noise.matrix())
        return matrix * np.outer(self.scaling_.scale, self.scaling_.scale)

    @property
    def input_transition_(self) -> np.ndarray:
        """B, for inputs in their own units."""
        return self._driven(self.model_.input_transition)

    @property
    def input_emission_(self) -> np.ndarray:
        """D, in the units of the data."""
        return self._driven(self.model_.input_emission) * self.scaling_.scale[:, None]


def _empty(
    structure: AbstractCovariance | None, default: AbstractCovariance, matrix: Array
) -> AbstractCovariance:
    """`structure` with the values of a matrix."""
    chosen = default if structure is None else structure
    dim = len(matrix)
    roots = jnp.linalg.cholesky(matrix)
    second = jnp.sum(jax.vmap(chosen.second_moments)(roots.T), axis=0)
    return chosen.from_moments(jnp.ones(dim), jnp.zeros(dim), second)


def _start_system(
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
    closed = ppca_closed_form(jnp.zeros(dim), jnp.asarray(second), min(n, dim))
    loose, twist = jax.random.split(key)
    emission = jnp.concatenate(
        [closed.loading, 0.3 * jax.random.normal(loose, (dim, max(n - dim, 0)))], axis=1
    )
    transition = 0.8 * jnp.eye(n) + 0.1 * jax.random.normal(twist, (n, n)) / np.sqrt(n)
    push = shift = None
    if sequences.inputs is not None:
        own, push, shift = _driven_start(sequences, np.asarray(closed.loading), n)
        transition = transition.at[: len(own), : len(own)].set(own)
    return models.LinearGaussianSSM(
        jnp.zeros(n),
        Full(jnp.eye(n)),
        transition,
        jnp.zeros(n),
        _empty(noise, Full(), 0.4 * jnp.eye(n)),
        emission,
        jnp.zeros(dim),
        _empty(emission_noise, Diagonal(), closed.noise.matrix() + 0.1 * jnp.eye(dim)),
        push,
        shift,
        # the covariance of the first state is not known from fewer series than states
        learned=Learned(initial=bool(sequences.weight.sum() > n)),
    )


def _driven_start(sequences: Sequences, loading: np.ndarray, n: int) -> tuple[Array, Array, Array]:
    """A, B and D where the states are s = x + D′u for principal components s of the values.

    Such s_t = A s_{t−1} + (B + D′) u_t − A D′ u_{t−1} + …, a regression.
    """
    inverse, width = np.linalg.pinv(loading).T, sequences.n_inputs
    size = loading.shape[1]
    left, right = [], []
    for x, u, weight in zip(sequences.series, sequences.inputs or [], sequences.weight, strict=True):
        s = np.nan_to_num(x) @ inverse
        left.append(np.sqrt(weight) * np.column_stack([s[:-1], u[1:], u[:-1]]))
        right.append(np.sqrt(weight) * s[1:])
    W = np.linalg.lstsq(np.concatenate(left), np.concatenate(right), rcond=None)[0].T
    A, at_once, late = np.split(W, [size, size + width], axis=1)
    A = A / max(1.0, np.abs(np.linalg.eigvals(A)).max(initial=0.0) / 0.98)
    past = -np.linalg.lstsq(A, late, rcond=0.1)[0]
    push = np.zeros((n, width))
    push[:size] = at_once - past
    return jnp.asarray(A), jnp.asarray(push), jnp.asarray(loading @ past)


class AutoRegression(AbstractStateSpace):
    """y_t = Φ_1 y_{t−1} + … + Φ_p y_{t−p} + B u_t + a + w_t, w_t ~ N(0, Q), for vectors.

    Missing values are allowed; B is there if `fit` is given inputs u.  The first p values follow the
    autocovariances of the data; the rest is fitted by EM, which with complete data is nearly least
    squares.

    Args:
        p: how many values before it a value depends on.
        noise: structure of Q; by default `Full()`.
        max_iter, tol, learner, random_state, verbose, checkpoint: as everywhere.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.zeros((500, 1))
    >>> for t in range(1, 500): x[t] = 0.8 * x[t - 1] + rng.normal()
    >>> AutoRegression(1).fit(x).coefficients_.round(1).ravel().tolist()
    [0.8]
    """

    model_: models.AutoRegression

    def __init__(
        self,
        p: int = 1,
        *,
        noise: AbstractCovariance | None = None,
        max_iter: int = 500,
        tol: float = 1e-7,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.p = p
        self.noise = noise
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        check_int(self, "p")
        check_instance(self, "noise", AbstractCovariance, optional=True)
        check_int(self, "max_iter")
        check_real(self, "tol")
        check_instance(self, "learner", AbstractAlgorithm, optional=True)

    def _fit_series(self, sequences: Sequences, data: Data, *, key: Array) -> Fit:
        dim = sequences.series[0].shape[1]
        start = models.AutoRegression(
            jnp.zeros((self.p, dim, dim)),
            jnp.zeros(dim),
            _empty(self.noise, Full(), jnp.eye(dim)),
            jnp.zeros(self.p * dim),
            jnp.asarray(_autocovariance(sequences, self.p)),
            None if sequences.inputs is None else jnp.zeros((dim, sequences.n_inputs)),
        )
        return self._by_em(start, sequences, data, key)

    @property
    def coefficients_(self) -> np.ndarray:
        """Φ, of shape (p, features, features), in the units of the data."""
        scale = self.scaling_.scale
        return np.asarray(self.model_.coefficients) * (scale[:, None] / scale[None, :])

    @property
    def input_coefficients_(self) -> np.ndarray:
        """B, in the units of the data."""
        return self._driven(self.model_.input_coefficients) * self.scaling_.scale[:, None]

    @property
    def noise_covariance_(self) -> np.ndarray:
        """Q, in the units of the data."""
        return np.asarray(self.model_.noise.matrix()) * np.outer(self.scaling_.scale, self.scaling_.scale)


def _autocovariance(sequences: Sequences, p: int) -> np.ndarray:
    """Covariance of p values in a row, newest first, from rescaled series; zeros fill the gaps.

    Windows that reach beyond the ends are taken as zero there, which keeps the matrix definite.
    """
    dim = sequences.series[0].shape[1]
    total = np.zeros((p * dim, p * dim))
    for x, weight in zip(sequences.series, sequences.weight, strict=True):
        padded = np.zeros((len(x) + 2 * (p - 1), dim))
        padded[p - 1 : p - 1 + len(x)] = np.nan_to_num(x)
        windows = np.concatenate([padded[p - 1 - k : len(padded) - k] for k in range(p)], axis=1)
        total += weight * windows.T @ windows
    total /= sequences.row_weight.sum()
    return total + 1e-3 * np.eye(p * dim)


class _EachColumn(AbstractAlgorithm):
    """A learner for each column, side by side; a column that is done waits for the others."""

    learner: AbstractAlgorithm

    def _columns(self, data: Data) -> Data:
        """The data of each column along a leading axis."""
        values = jnp.moveaxis(data.x.values, 2, 0)[..., None]
        columns = len(values)

        def repeat(a: Array) -> Array:
            return jnp.broadcast_to(a, (columns, *a.shape))

        rest = jax.tree.map(repeat, data.x._replace(values=None))
        return Data(rest._replace(values=values), repeat(data.weight), repeat(data.rows), data.incomplete)

    def init(self, model: Any, data: Data, *, key: Array) -> Any:
        state = eqx.filter_vmap(lambda m, d: self.learner.init(m, d, key=key))(
            model.models, self._columns(data)
        )
        return state, jnp.full(data.x.values.shape[2], jnp.inf), jnp.zeros(data.x.values.shape[2], bool)

    def step(self, state: Any, data: Data, *, key: Array) -> tuple[Any, Info]:
        inner, objectives, done = state
        new, info = eqx.filter_vmap(lambda s, d: self.learner.step(s, d, key=key))(
            inner, self._columns(data)
        )
        # a column that fails, or cannot be improved, keeps what it had
        better = ~done & jnp.isfinite(info.objective) & (info.objective <= objectives)

        def choose(a: Any, b: Any) -> Any:
            return jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b) if eqx.is_array(a) else a

        kept = jax.tree.map(choose, new, inner)
        values = jnp.where(better, info.objective, objectives)
        stopped = done | info.done | ~better | (objectives - values <= 1e-10 * jnp.abs(values))
        return (kept, values, stopped), Info(jnp.sum(values), jnp.all(stopped), {})

    def model(self, state: Any) -> Any:
        return Columns(eqx.filter_vmap(self.learner.model)(state[0]))


def _first_states(series: Series, model: Structural) -> GaussianBelief:
    """The first state given the whole series."""
    return jax.tree.map(lambda a: a[0], model.system(series.inputs).smooth(series).marginals)


@eqx.filter_jit
def _with_start(columns: Columns, data: Data) -> Columns:
    """Replaces the diffuse start by the first states that the series had."""

    def one(model: Structural, values: Array) -> Structural:
        rows = data.x._replace(values=values[..., None])
        mean, covariance = jax.vmap(lambda s: _first_states(s, model))(rows)
        share = data.weight / jnp.sum(data.weight)
        # padding has no observation, and so no finite first state
        real = share > 0
        mean = jnp.where(real[:, None], mean, 0)
        covariance = jnp.where(real[:, None, None], covariance, 0)
        centre = share @ mean
        gap = mean - centre[None]
        spread = jnp.einsum("s,sij->ij", share, covariance) + (gap * share[:, None]).T @ gap
        # few series say little of where another one starts: one more of unit variance
        directions = model.directions()
        spread = spread + directions @ directions.T / jnp.sum(data.weight)
        return Structural(model.blocks, model.variance, GaussianBelief(centre, spread))

    return Columns(eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 2))(columns.models, data.x.values))


def _components(series: Series, model: Columns, incomplete: bool) -> tuple[Array, Array]:
    mean, variance = model.each(lambda m, column: m.components(column), series)
    return jnp.moveaxis(mean, 0, -1), jnp.sqrt(jnp.maximum(jnp.moveaxis(variance, 0, -1), 0))


def _predicted_columns(series: Series, model: Columns, incomplete: bool) -> tuple[Array, Array]:
    mean, covariance = model.each(lambda m, column: m.predicted(column), series)
    return mean[..., 0].T, covariance[..., 0, 0].T


class StructuralTimeSeries(AbstractStateSpace):
    """Each column as a sum of parts (level, trend, season, cycle, autoregression, regressors) and noise.

    The variances and other numbers of the parts have the largest likelihood, with an exact diffuse start
    of what is not stationary; columns are independent of each other and fitted side by side.  After that
    the first states that the series had, and one more of the variance of the data, replace the diffuse
    start, so that the model is a density.

    Args:
        blocks: the parts, such as `Trend() + Seasonal(12)`; by default a `Level()`.  Their values, for data
            of unit variance, are where the fit starts.  `Regressors(k)` takes k inputs from `fit`.
        max_iter, tol: of L-BFGS; `tol` is the largest slope that counts as zero.
        learner: replaces L-BFGS, for each column.
        random_state, verbose, checkpoint: as everywhere.

    >>> import numpy as np
    >>> from freeenergy.models import Level, Seasonal
    >>> rng = np.random.default_rng(0)
    >>> t = np.arange(48)
    >>> x = (0.1 * t + np.tile([1.0, 0.0, -1.0, 0.0], 12) + 0.1 * rng.normal(size=48))[:, None]
    >>> model = StructuralTimeSeries(Level() + Seasonal(4), max_iter=20, tol=0.1).fit(x)
    >>> sorted(model.decompose(x))
    ['Level', 'Seasonal']
    """

    model_: Columns

    def __init__(
        self,
        blocks: AbstractBlock | Structural | None = None,
        *,
        max_iter: int = 200,
        tol: float = 1e-3,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.blocks = blocks
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        check_instance(self, "blocks", AbstractBlock, Structural, optional=True)
        check_int(self, "max_iter")
        check_real(self, "tol")
        check_instance(self, "learner", AbstractAlgorithm, optional=True)

    def _structure(self) -> Structural:
        blocks = Level() if self.blocks is None else self.blocks
        return blocks if isinstance(blocks, Structural) else Structural((blocks,), jnp.asarray(0.5))

    def _input_scaling(self, inputs: np.ndarray, weight: np.ndarray) -> Scaling:
        # a coefficient that varies is one of the inputs themselves, not of their distance to a mean
        return Scaling(np.zeros(inputs.shape[1]), Scaling.standardise(inputs, weight).scale)

    def _fit_series(self, sequences: Sequences, data: Data, *, key: Array) -> Fit:
        structure, columns = self._structure(), sequences.series[0].shape[1]
        sizes = [block.size for block in structure.blocks if isinstance(block, Regressors)]
        if sizes != [sequences.n_inputs] * len(sizes) or bool(sizes) != bool(sequences.n_inputs):
            raise ValueError(
                "The Regressors in the 'blocks' of StructuralTimeSeries must have as many inputs as fit is "
                f"given. Got {sizes} and {sequences.n_inputs} inputs."
            )
        own = _apart(sequences)
        arrays, static = eqx.partition(structure, eqx.is_array)
        stacked = jax.tree.map(lambda a: jnp.broadcast_to(a, (columns, *a.shape)), arrays)
        learner = LBFGS(negative_log_likelihood, self.tol) if self.learner is None else self.learner
        start = Columns(eqx.combine(stacked, static))
        result = self._learn(start, _EachColumn(learner), sequences, own, key)
        # a diffuse start has no units: each of its directions takes one log-determinant away
        units = structure.directions().shape[1] * np.log(self.scaling_.scale).sum()
        if self.input_scaling_ is not None:
            units -= len(sizes) * columns * np.log(self.input_scaling_.scale).sum()
        result = retold(dataclasses.replace(result, model=_with_start(result.model, own)), offset=units)
        return _per_row_of(data, result, own)

    _predictions: ClassVar[Any] = staticmethod(_predicted_columns)

    def decompose(self, X: Any, *, inputs: Any = None) -> dict[str, Component]:
        """What each part adds at each step, given the whole series, by the name of its class.

        A constant of the series is in the first part.
        """
        container = self._validated(X, inputs)
        parts = self._for_each(_components, container)
        names: list[str] = []
        for block in self._structure().blocks:
            name = type(block).__name__
            names.append(name if name not in names else f"{name} {len(names) + 1}")
        return {
            name: Component(
                container.wrap(
                    [m[:, k] * self.scaling_.scale + (k == 0) * self.scaling_.shift for m, _ in parts]
                ),
                container.wrap([s[:, k] * self.scaling_.scale for _, s in parts]),
            )
            for k, name in enumerate(names)
        }


def _regimes(series: Series, model: models.SwitchingLinearSystem, incomplete: bool) -> Array:
    return jnp.exp(model.smooth(series).log_weight)


class SwitchingLinearSystem(AbstractStateSpace):
    """Linear systems that take turns: a hidden Markov chain says which one moves the state at each step.

    Inference is approximate (Kim's filter merges the Gaussians of all pasts into one for each regime), and
    so is the evidence: its kind is `ESTIMATE`.  Fitted by L-BFGS on it.

    Args:
        n_regimes: how many systems there are.
        n_latent: the size of the state.
        max_iter, tol, learner, random_state, verbose, checkpoint: as everywhere.
    """

    model_: models.SwitchingLinearSystem
    _kind: ClassVar[Kind] = Kind.ESTIMATE

    def __init__(
        self,
        n_regimes: int = 2,
        n_latent: int = 1,
        *,
        max_iter: int = 100,
        tol: float = 1e-3,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_regimes = n_regimes
        self.n_latent = n_latent
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        check_int(self, "n_regimes")
        check_int(self, "n_latent")
        check_int(self, "max_iter")
        check_real(self, "tol")
        check_instance(self, "learner", AbstractAlgorithm, optional=True)

    def _fit_series(self, sequences: Sequences, data: Data, *, key: Array) -> Fit:
        own = _apart(sequences)
        n, k = self.n_latent, self.n_regimes
        system = _start_system(sequences, n, Diagonal(), Diagonal(), key)
        # regimes begin with different speeds and sizes of shocks
        persistence = jnp.linspace(0.9, 0.3, k) if k > 1 else jnp.full(1, 0.8)
        arrays, static = eqx.partition(system, eqx.is_array)
        stacked = eqx.combine(jax.tree.map(lambda a: jnp.broadcast_to(a, (k, *a.shape)), arrays), static)
        stacked = eqx.tree_at(
            lambda s: (s.transition, s.noise.variance),
            stacked,
            (
                persistence[:, None, None] * jnp.eye(n)[None],
                (1 - persistence**2)[:, None] * jnp.ones((1, n)),
            ),
        )
        stay = 0.9 * jnp.eye(k) + 0.1 / k
        start = models.SwitchingLinearSystem(
            jnp.full(k, 1 / k), stay / jnp.sum(stay, axis=1, keepdims=True), stacked
        )
        learner = LBFGS(negative_log_likelihood, self.tol) if self.learner is None else self.learner
        return _per_row_of(data, self._learn(start, learner, sequences, own, key), own)

    def predict_proba(self, X: Any, *, inputs: Any = None) -> Any:
        """The probability of each regime at each step, given the whole series; approximate."""
        container: Container = self._validated(X, inputs)
        return container.wrap(self._for_each(_regimes, container))
