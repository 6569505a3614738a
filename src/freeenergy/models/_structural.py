"""Structural series: a sum of parts, each a small linear system."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import AbstractElementwise, buffer, parameter, positive, unit_interval
from ..distributions import Full
from ..inference import GaussianBelief
from ._series import AbstractSequenceModel, Series
from ._state_space import AbstractLinearSystem, LinearGaussianSSM


@dataclasses.dataclass(frozen=True)
class Correlation(AbstractElementwise):
    """Numbers strictly between −1 and 1:  v = tanh u for a free u."""

    phrase = "numbers strictly between −1 and 1"
    name = "in the open interval (−1, 1)"
    shape: tuple[int, ...] | None = None

    def contains(self, x: np.ndarray) -> np.ndarray:
        return ~(np.abs(x) >= 1)

    def closure(self, value: np.ndarray) -> bool:
        return bool((np.abs(value) <= 1).all())

    def problem(self, value: np.ndarray, *, closed: bool) -> str | None:
        return None

    def to_free(self, value: Array) -> Array:
        return jnp.arctanh(value)

    def from_free(self, free: Array) -> Array:
        return jnp.tanh(free)

    def log_slope(self, free: Array) -> Array:
        return math.log(4) - jax.nn.softplus(2 * free) - jax.nn.softplus(-2 * free)


correlation = Correlation()


class AbstractBlock(eqx.Module):
    """A part of a series of numbers: states of its own, and what they add to the series.  Parts add up."""

    @abc.abstractmethod
    def transition(self) -> Float[Array, "state state"]:
        """A of the block."""

    @abc.abstractmethod
    def noise(self) -> Float[Array, "state state"]:
        """Q of the block."""

    @abc.abstractmethod
    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        """The row of C, or a row for each step."""

    @abc.abstractmethod
    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        """The covariance of the first state, and the directions in which it is diffuse."""

    def __add__(self, other: AbstractBlock | Structural) -> Structural:
        blocks = other.blocks if isinstance(other, Structural) else (other,)
        return Structural((self, *blocks))


def _first_of(size: int) -> Float[Array, " state"]:
    """(1, 0, 0, …)."""
    return jnp.zeros(size).at[0].set(1.0)


def _number(value: Any) -> Float[Array, "*shape"]:
    """A number, or several, as an array of floats."""
    return jnp.asarray(value, float)


def _numbers(value: Any) -> Float[Array, " entries"]:
    """The same, of which one is a row of one."""
    return jnp.atleast_1d(_number(value))


class Level(AbstractBlock):
    """A random walk: l_t = l_{t−1} + N(0, variance); alone the local level model."""

    variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.1)

    def transition(self) -> Float[Array, "state state"]:
        return jnp.ones((1, 1))

    def noise(self) -> Float[Array, "state state"]:
        return self.variance[None, None]

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return jnp.ones(1)

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        return jnp.zeros((1, 1)), jnp.ones((1, 1))


class Trend(AbstractBlock):
    """A level with a slope that is a random walk: l_t = l_{t−1} + s_{t−1} + w, s_t = s_{t−1} + w′.

    Also known as the local linear trend.
    """

    level_variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.1)
    slope_variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.01)

    def transition(self) -> Float[Array, "state state"]:
        return jnp.array([[1.0, 1.0], [0.0, 1.0]])

    def noise(self) -> Float[Array, "state state"]:
        return jnp.diag(jnp.stack([self.level_variance, self.slope_variance]))

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return _first_of(2)

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        return jnp.zeros((2, 2)), jnp.eye(2)


class Seasonal(AbstractBlock):
    """A pattern of `period` steps that sums to noise: s_t = −s_{t−1} − … − s_{t−period+1} + w.

    Also known as the dummy form of a season.
    """

    period: int = eqx.field(static=True)
    variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.01)

    def __check_init__(self) -> None:
        if not isinstance(self.period, int) or self.period < 2:
            raise ValueError(
                "The 'period' parameter of Seasonal must be an int in the range [2, inf). "
                f"Got {self.period!r} instead."
            )

    def transition(self) -> Float[Array, "state state"]:
        return jnp.eye(self.period - 1, k=-1).at[0].set(-1.0)

    def noise(self) -> Float[Array, "state state"]:
        first = _first_of(self.period - 1)
        return self.variance * first[:, None] * first[None, :]

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return _first_of(self.period - 1)

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        size = self.period - 1
        return jnp.zeros((size, size)), jnp.eye(size)


def _rotation(angle: Float[Array, ""]) -> Float[Array, "2 2"]:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([cos, sin]), jnp.stack([-sin, cos])])


class TrigonometricSeasonal(AbstractBlock):
    """A pattern of `period` steps as a sum of waves: s_t = Σ_j c_{j,t}.

    c_{j,t} = Rot(2πj/period) c_{j,t−1} + w, of which the first coordinate counts.

    All waves have shocks of one variance.  With few harmonics the pattern is smooth, and the states are few
    where a period is long; with all of them, the default, it is any pattern that sums to zero.

    Attributes:
        period: in steps.
        harmonics: how many waves, from j = 1 on; by default all, period / 2.
        variance: of the shocks.
    """

    period: int = eqx.field(static=True)
    harmonics: int | None = eqx.field(static=True, default=None)
    variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.01)

    def __check_init__(self) -> None:
        if not isinstance(self.period, int) or self.period < 2:
            raise ValueError(
                "The 'period' parameter of TrigonometricSeasonal must be an int in the range [2, inf). "
                f"Got {self.period!r} instead."
            )
        if self.harmonics is not None and not (
            isinstance(self.harmonics, int) and 1 <= self.harmonics <= self.period // 2
        ):
            raise ValueError(
                "The 'harmonics' parameter of TrigonometricSeasonal must be an int from 1 to half the "
                f"period, or None. Got {self.harmonics!r} instead."
            )

    @property
    def _waves(self) -> list[int]:
        """The size of the state of each wave: a wave of two steps has but one direction."""
        many = self.period // 2 if self.harmonics is None else self.harmonics
        return [1 if 2 * j == self.period else 2 for j in range(1, many + 1)]

    def transition(self) -> Float[Array, "state state"]:
        angles = 2 * np.pi * np.arange(1, len(self._waves) + 1) / self.period
        turns = [_rotation(jnp.asarray(angle)) for angle in angles]
        return _block_diagonal([turn[:size, :size] for turn, size in zip(turns, self._waves, strict=True)])

    def noise(self) -> Float[Array, "state state"]:
        return self.variance * jnp.eye(sum(self._waves))

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return jnp.concatenate([_first_of(size) for size in self._waves])

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        size = sum(self._waves)
        return jnp.zeros((size, size)), jnp.eye(size)


class UndampedCycle(AbstractBlock):
    """A wave that never dies out, with random shocks: c_t = Rot(2π/period) c_{t−1} + w.

    It is not stationary and starts diffuse; `Cycle` is damped.
    """

    period: Float[Array, ""] = parameter(positive, converter=_number)
    variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.1)

    def transition(self) -> Float[Array, "state state"]:
        return _rotation(2 * jnp.pi / self.period)

    def noise(self) -> Float[Array, "state state"]:
        return self.variance * jnp.eye(2)

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return _first_of(2)

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        return jnp.zeros((2, 2)), jnp.eye(2)


class Cycle(AbstractBlock):
    """A damped wave with random shocks: c_t = ρ Rot(2π/period) c_{t−1} + w, stationary."""

    period: Float[Array, ""] = parameter(positive, converter=_number)
    damping: Float[Array, ""] = parameter(unit_interval, converter=_number, default=0.9)
    variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.1)

    def transition(self) -> Float[Array, "state state"]:
        return self.damping * _rotation(2 * jnp.pi / self.period)

    def noise(self) -> Float[Array, "state state"]:
        return self.variance * jnp.eye(2)

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return _first_of(2)

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        return self.variance / (1 - self.damping**2) * jnp.eye(2), jnp.zeros((2, 0))


class Autoregressive(AbstractBlock):
    """z_t = φ_1 z_{t−1} + … + φ_p z_{t−p} + w, stationary.

    Held as partial autocorrelations, which are free in (−1, 1); `coefficients` gives φ.
    """

    partial: Float[Array, " order"] = parameter(correlation, converter=_numbers)
    variance: Float[Array, ""] = parameter(positive, converter=_number, default=0.1)

    def coefficients(self) -> Float[Array, " order"]:
        """φ, by the recursion of Durbin and Levinson."""
        phi = self.partial[:1]
        for k in range(1, len(self.partial)):
            phi = jnp.concatenate([phi - self.partial[k] * phi[::-1], self.partial[k : k + 1]])
        return phi

    def transition(self) -> Float[Array, "state state"]:
        return jnp.eye(len(self.partial), k=-1).at[0].set(self.coefficients())

    def noise(self) -> Float[Array, "state state"]:
        first = _first_of(len(self.partial))
        return self.variance * first[:, None] * first[None, :]

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        return _first_of(len(self.partial))

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        return stationary_covariance(self.transition(), self.noise()), jnp.zeros((len(self.partial), 0))


class Regressors(AbstractBlock):
    """β · u_t with coefficients that are constant, or a random walk with `variance`.

    The inputs u_t are those of the series, `size` of them.

    Attributes:
        size: how many inputs.
        variance: of the steps of a random walk; None for constant coefficients.
        intercept: whether an estimator centres the series, so that there is a constant beside the inputs.
            Without it, and without a level, a series without inputs is around zero.
    """

    size: int = eqx.field(static=True)
    variance: Float[Array, ""] | None = parameter(positive, default=None)
    intercept: bool = eqx.field(static=True, default=True)

    def transition(self) -> Float[Array, "state state"]:
        return jnp.eye(self.size)

    def noise(self) -> Float[Array, "state state"]:
        return jnp.eye(self.size) * (jnp.zeros(()) if self.variance is None else self.variance)

    def emission(self, inputs: Float[Array, "time inputs"] | None) -> Float[Array, "*time state"]:
        if inputs is None:
            raise ValueError("A model with Regressors needs series with 'inputs'. Got None instead.")
        return inputs

    def start(self) -> tuple[Float[Array, "state state"], Float[Array, "state unknown"]]:
        return jnp.zeros((self.size, self.size)), jnp.eye(self.size)


def stationary_covariance(
    A: Float[Array, "state state"], Q: Float[Array, "state state"]
) -> Float[Array, "state state"]:
    """P = A P Aᵀ + Q for a stable A, by doubling: the discrete Lyapunov equation.

    >>> stationary_covariance(jnp.array([[0.5]]), jnp.array([[3.0]])).round(6).tolist()
    [[4.0]]
    """

    def body(carry: tuple[Array, Array], _: Any) -> tuple[tuple[Array, Array], None]:
        power, total = carry
        return (power @ power, total + power @ total @ power.T), None

    return jax.lax.scan(body, (A, Q), None, length=24)[0][1]


def _block_diagonal(parts: list[Float[Array, "m n"]]) -> Float[Array, "rows columns"]:
    return jax.scipy.linalg.block_diag(*parts)


class Structural(AbstractLinearSystem):
    """A series of numbers as a sum of blocks and noise: y_t = Σ_b h_b · x_{b,t} + ε_t.

    Also known as an unobserved components model (Harvey).

    Blocks without a stationary law start diffuse, exactly; `begin` replaces that by a proper start.

    Attributes:
        blocks: the parts.
        variance: of ε_t.
        begin: the law of the first state, in place of a diffuse start.
        first: where draws start, if not in `begin`.
        floor: added to `variance`, so that a series that never varies has a density.

    >>> model = Level(0.5) + Seasonal(4)
    >>> [type(block).__name__ for block in model.blocks], model.system().latent_dim
    (['Level', 'Seasonal'], 4)
    """

    blocks: tuple[AbstractBlock, ...]
    variance: Float[Array, ""] = parameter(positive, converter=_number, default=1.0)
    begin: GaussianBelief | None = buffer(default=None)
    first: GaussianBelief | None = buffer(default=None)
    floor: Float[Array, ""] | float = buffer(default=0.0)

    def __add__(self, other: AbstractBlock | Structural) -> Structural:
        blocks = other.blocks if isinstance(other, Structural) else (other,)
        return Structural((*self.blocks, *blocks), self.variance, self.begin, self.first, self.floor)

    def directions(self) -> Float[Array, "state unknown"]:
        """Directions of the first state (columns) of which nothing is known, before there is a `begin`."""
        return _block_diagonal([block.start()[1] for block in self.blocks])

    def system(self, inputs: Float[Array, "time inputs"] | None = None) -> LinearGaussianSSM:
        rows = [block.emission(inputs) for block in self.blocks]
        if any(row.ndim == 2 for row in rows):
            assert inputs is not None
            rows = [jnp.broadcast_to(row, (len(inputs), row.shape[-1])) for row in rows]
        emission = jnp.concatenate(rows, axis=-1)[..., None, :]
        covariance = _block_diagonal([block.start()[0] for block in self.blocks])
        directions = self.directions()
        mean, diffuse = jnp.zeros(len(covariance)), directions if directions.shape[1] else None
        if self.begin is not None:
            (mean, covariance), diffuse = self.begin, None
        return LinearGaussianSSM(
            mean,
            Full(covariance),
            _block_diagonal([block.transition() for block in self.blocks]),
            jnp.zeros(len(covariance)),
            Full(_block_diagonal([block.noise() for block in self.blocks])),
            emission,
            jnp.zeros(1),
            Full((self.variance + self.floor)[None, None]),
            diffuse=diffuse,
        )

    def components(self, series: Series) -> tuple[Float[Array, "time blocks"], Float[Array, "time blocks"]]:
        """What each block adds at each step, given the whole series: means and variances."""
        system = self.system(series.inputs)
        states = system.smooth(series).marginals
        rows = system._emissions(len(series.real))[:, 0]
        means, variances = [], []
        for part in self.parts():
            row = rows[:, part]
            means.append(jnp.sum(row * states.mean[:, part], axis=1))
            variances.append(jnp.einsum("ti,tij,tj->t", row, states.covariance[:, part, part], row))
        return jnp.stack(means, axis=1), jnp.stack(variances, axis=1)

    def parts(self) -> list[slice]:
        """Which entries of the state each block has."""
        ends = np.cumsum([len(block.transition()) for block in self.blocks]).tolist()
        return [slice(begin, end) for begin, end in itertools.pairwise([0, *ends])]

    def last_state(self, series: Series) -> GaussianBelief:
        """The state at the last step of a series, which need not be observed, given all of it."""
        marginals = self.system(series.inputs).smooth(series).marginals
        last = jnp.maximum(jnp.sum(series.real) - 1, 0)
        return jax.tree.map(lambda a: a[last], marginals)

    def first_state(self, series: Series) -> GaussianBelief:
        """The first state given the whole series."""
        return jax.tree.map(lambda a: a[0], self.system(series.inputs).smooth(series).marginals)

    def effect(self, series: Series) -> Float[Array, " unknown"]:
        """The mean square over a series of what each diffuse direction of the first state adds to it."""
        system = self.system(series.inputs)
        length = len(series.real)

        def body(directions: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            row, there = at
            return system.transition @ directions, jnp.where(there, row @ directions, 0)

        added = jax.lax.scan(body, self.directions(), (system._emissions(length)[:, 0], series.real))[1]
        steps = jnp.sum(series.real, dtype=added.dtype)
        return jnp.sum(added**2, axis=0) / jnp.where(steps > 0, steps, 1)

    def with_start(self, series: Series, weight: Float[Array, " rows"], alone: bool) -> Structural:
        """A proper start in place of the diffuse one: the first states that the series had.

        Its mean and covariance are those of the first states given the series, and of one more that has the
        variance of the data, so that the model is a density.

        Args:
            series: with a leading axis of rows.
            weight: of each row.
            alone: whether there is one series; draws then start in the state in which that one started.
        """
        mean, covariance = jax.vmap(self.first_state)(series)
        total = jnp.sum(weight)
        share = weight / total
        # what of a first state its series does not tell, and padding, which has no observation
        known = jnp.isfinite(jnp.diagonal(covariance, axis1=1, axis2=2)) & (share > 0)[:, None]
        mean = jnp.where(known, mean, 0)
        covariance = jnp.where(known[:, :, None] & known[:, None, :], covariance, 0)
        centre = share @ mean
        gap = mean - centre[None]
        spread = jnp.einsum("s,sij->ij", share, covariance) + (gap * share[:, None]).T @ gap
        # one direction more or less adds as much to a series as it varies
        directions, effect = self.directions(), share @ jax.vmap(self.effect)(series)
        scaled = directions / jnp.sqrt(jnp.where(effect > 0, effect, 1))[None, :]
        wide = scaled @ scaled.T
        unknown = share @ (~known).astype(mean.dtype)
        spread = spread + wide * jnp.sqrt(unknown[:, None] * unknown[None, :])
        # few series say little of where another one starts: one more of the variance of the data
        begin = GaussianBelief(centre, spread + wide / total)
        first = GaussianBelief(centre, spread) if alone else None
        return dataclasses.replace(self, begin=begin, first=first)

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        """The values of one series that starts in `first`, or else in `begin`."""
        start = self if self.first is None else dataclasses.replace(self, begin=self.first)
        return start.system(inputs).sample(length, key=key)


class Columns(AbstractSequenceModel):
    """Columns of a series that have nothing to do with each other, each with a model of its own.

    Attributes:
        models: models of one column, stacked along a leading axis of their arrays.
    """

    models: AbstractSequenceModel  # pyright: ignore[reportGeneralTypeIssues]

    def with_start(self, series: Series, weight: Float[Array, " rows"], alone: bool) -> Columns:
        """Structural models with proper starts, as `Structural.with_start`."""

        def one(model: Any, values: Array) -> Structural:
            return model.with_start(series._replace(values=values[..., None]), weight, alone)

        return Columns(eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 2))(self.models, series.values))

    def components(
        self, series: Series
    ) -> tuple[Float[Array, "time blocks dim"], Float[Array, "time blocks dim"]]:
        """What each block of structural models adds to each column: means and variances."""
        mean, variance = self.each(lambda model, column: model.components(column), series)
        return jnp.moveaxis(mean, 0, -1), jnp.moveaxis(variance, 0, -1)

    def predicted(self, series: Series) -> tuple[Float[Array, "time dim"], Float[Array, "time dim"]]:
        """Means and variances of p(y_t | y_{<t}) for each step."""
        mean, covariance = self.each(lambda model, column: model.predicted(column), series)
        return mean[..., 0].T, covariance[..., 0, 0].T

    def each(self, function: Any, series: Series, *rest: Array) -> Any:
        """`function(model, column, *rest)` for each column, along a leading axis."""

        def one(model: Any, values: Array, *rest: Array) -> Any:
            return function(model, series._replace(values=values[:, None]), *rest)

        axes = (eqx.if_array(0), 1, *(0 for _ in rest))
        return eqx.filter_vmap(one, in_axes=axes)(self.models, series.values, *rest)

    def log_prob(self, series: Series) -> Float[Array, ""]:
        """log p(y)."""
        return jnp.sum(self.each(lambda model, column: model.log_prob(column), series))

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        return jnp.sum(self.each(lambda model, column: model.step_evidence(column), series), axis=0)

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        keys = jax.random.split(key, len(jax.tree.leaves(eqx.filter(self.models, eqx.is_array))[0]))
        draw = eqx.filter_vmap(lambda model, k: model.sample(length, key=k, inputs=inputs)[:, 0])
        return draw(self.models, keys).T

    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        return self.each(lambda model, column: model.complete_mean(column)[:, 0], series).T

    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        keys = jax.random.split(key, series.values.shape[1])

        def one(model: Any, column: Series, k: Array) -> Array:
            return model.complete_sample(column, key=k)[:, 0]

        return self.each(one, series, keys).T
