"""State-space models with Gaussian noise: a linear system, structural blocks, autoregressions, switches."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import Constraint, buffer, parameter, positive, simplex, unit_interval
from ..distributions import AbstractCovariance, Full
from ..inference import (
    DiffuseBeliefs,
    Filtered,
    GaussianBelief,
    LinearGaussianBeliefs,
    LinearStep,
    Smoothed,
    SquareRootBeliefs,
    blocked_evidence,
    blocked_filter,
    blocked_smooth,
    collapse,
    filter,
    measure,
    root_semidefinite,
    sample_paths,
    smooth,
    solve_semidefinite,
)
from ._base import AbstractExpectationMaximisation
from ._series import AbstractSequenceModel, Series

# long series are cut into so many blocks that are worked on side by side
_BLOCKS = 256
_LONG = 2048


class Learned(NamedTuple):
    """Which parts of a linear system EM changes; the others are held while it solves for these."""

    initial: bool = True
    transition: bool = True
    offset: bool = True
    noise: bool = True
    emission: bool = True
    mean: bool = True
    emission_noise: bool = True


class Sums(NamedTuple):
    """Sums for the regression of a vector x on z: Σ w, Σ w E[zzᵀ], Σ w E[xzᵀ], Σ w E[xxᵀ]."""

    weight: Array
    zz: Array
    xz: Array
    xx: Array

    def solve(self, held: Array, learned: tuple[bool, ...]) -> Array:
        """The coefficients of least squares, with those columns of `held` that are not learned."""
        free, rest = np.flatnonzero(learned), np.flatnonzero(~np.array(learned))
        if not len(free):
            return held
        left = self.xz[:, free] - held[:, rest] @ self.zz[np.ix_(rest, free)]
        return held.at[:, free].set(solve_semidefinite(self.zz[np.ix_(free, free)], left.T).T)

    def scatter(self, w: Array) -> Array:
        """Σ w E[(x − Wz)(x − Wz)ᵀ]."""
        across = w @ self.xz.T
        full = self.xx - across - across.T + w @ self.zz @ w.T
        return (full + full.T) / 2


class StateSpaceStatistics(NamedTuple):
    """What EM needs of series: regressions of the first state on 1, of a state on the one before it
    with inputs and 1, and of an observation on its state with inputs and 1."""

    initial: Sums
    transition: Sums
    emission: Sums


class LinearGaussianSSM(AbstractSequenceModel, AbstractExpectationMaximisation[StateSpaceStatistics]):
    """A hidden linear system seen through a linear map, both with Gaussian noise.

        x_1 ~ N(μ, Σ),   x_t = A x_{t−1} + B u_t + a + w_t,   y_t = C x_t + D u_t + c + ε_t,
        w_t ~ N(0, Q),   ε_t ~ N(0, R).

    A, C, Q and R may differ from step to step (then with a leading time axis, Q and R as `Full`); those of
    step t lead to x_t and y_t.  Such a system is learned by gradient, not by EM.

    Attributes:
        initial_mean, initial_covariance: μ and Σ.
        transition: A.
        offset: a.
        noise: Q.
        emission: C.
        mean: c.
        emission_noise: R.
        input_transition, input_emission: B and D, for series with `inputs`.
        diffuse: directions of x_1 (columns) of which nothing is known, beside N(μ, Σ).
        learned: what EM changes.
        square_root: whether to work with square roots of covariances, for ill-conditioned problems.

    >>> from freeenergy.distributions import Diagonal
    >>> one = jnp.ones((1, 1))
    >>> level = LinearGaussianSSM(
    ...     jnp.zeros(1), Diagonal(2 * one[0]), one, jnp.zeros(1), Diagonal(one[0] / 2),
    ...     one, jnp.zeros(1), Diagonal(one[0]))
    >>> from freeenergy.models import one_series
    >>> round(float(level.log_prob(one_series(jnp.array([[1.0], [2.0], [1.5]])))), 6)
    -4.629003
    """

    rows_at_once: ClassVar[int] = 64

    initial_mean: Array = parameter()
    initial_covariance: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    transition: Array = parameter()
    offset: Array = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    emission: Array = parameter()
    mean: Array = parameter()
    emission_noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    input_transition: Array | None = parameter(default=None)
    input_emission: Array | None = parameter(default=None)
    diffuse: Array | None = buffer(default=None)
    learned: Learned = eqx.field(static=True, default=Learned())
    square_root: bool = eqx.field(static=True, default=False)

    @property
    def latent_dim(self) -> int:
        """The size of the state."""
        return self.transition.shape[-1]

    def system(self, inputs: Array | None = None) -> LinearGaussianSSM:
        """Itself: what other models of this file are turned into."""
        return self

    def _initial(self) -> GaussianBelief:
        return GaussianBelief(self.initial_mean, self.initial_covariance.matrix())

    def _emission_noise(self) -> Array:
        matrix = self.emission_noise.matrix()
        return jnp.diagonal(matrix) if self.emission_noise.separable else matrix

    def _emission_noises(self, length: int) -> Array:
        matrix = self.emission_noise.matrix()
        return jnp.broadcast_to(matrix, (length, *matrix.shape[-2:]))

    @property
    def _varies(self) -> bool:
        """Whether the system differs from step to step."""
        parts = (self.transition, self.noise.matrix(), self.emission, self.emission_noise.matrix())
        return any(part.ndim == 3 for part in parts)

    def _offsets(self, inputs: Array | None, length: int) -> Array:
        """a + B u_t for each step."""
        return _driven(self.offset, self.input_transition, inputs, length)

    def _means(self, inputs: Array | None, length: int) -> Array:
        """c + D u_t for each step."""
        return _driven(self.mean, self.input_emission, inputs, length)

    def _emissions(self, length: int) -> Array:
        return jnp.broadcast_to(self.emission, (length, *self.emission.shape[-2:]))

    def _steps(self, series: Series, *, incomplete: bool, packed: bool) -> tuple[LinearStep, LinearStep]:
        """What is the same at all steps, and what each step has of its own."""
        length, outputs = series.values.shape
        R = self._emission_noise()
        c = self._means(series.inputs, length)
        if incomplete or self.emission.ndim == 3 or R.ndim == 3:
            y = jnp.where(series.real[:, None], series.values, jnp.nan)
            axes = (0, 0, 0 if R.ndim == 3 else None, 0)
            seen = jax.vmap(measure, in_axes=axes)(self._emissions(length), c, R, y)
            fixed: Any = LinearStep()
        else:
            # one change of coordinates serves all steps; what is padding is not observed
            eye = jnp.eye(outputs, dtype=R.dtype)
            fixed = measure(self.emission, jnp.zeros_like(self.mean), R, jnp.zeros_like(self.mean))
            change: Any = measure(eye, jnp.zeros_like(self.mean), R, jnp.zeros_like(self.mean)).design
            real = series.real.astype(R.dtype)
            value = (series.values - c) * real[:, None] @ change.T
            observed = jnp.broadcast_to(real[:, None], value.shape)
            seen = LinearStep(value=value, observed=observed, constant=fixed.constant * real)
            fixed = LinearStep(design=fixed.design, variance=fixed.variance)
        if outputs > self.latent_dim:
            full = jax.vmap(lambda s: LinearStep(*(f if v is None else v for v, f in zip(s, fixed))))(seen)
            seen, fixed = jax.vmap(collapse)(full), LinearStep()
        n, Q = self.latent_dim, self.noise.matrix()
        moves = LinearStep(self.transition, self.offset, Q)
        own: dict[str, Array] = {}
        if self.transition.ndim == 3:
            own["transition"], moves = self.transition, moves._replace(transition=None)
        if Q.ndim == 3:
            own["noise"], moves = Q, moves._replace(noise=None)
        if self.input_transition is not None and series.inputs is not None:
            own["offset"] = self._offsets(series.inputs, length)
            moves = moves._replace(offset=None)
        if packed:
            # a step that starts a series forgets what was before
            first = series.starts
            initial = self._initial()
            move, shake = (jnp.broadcast_to(part, (length, n, n)) for part in (self.transition, Q))
            push = jnp.broadcast_to(own.get("offset", self.offset), (length, n))
            own["transition"] = jnp.where(first[:, None, None], 0, move)
            own["offset"] = jnp.where(first[:, None], initial.mean[None], push)
            own["noise"] = jnp.where(first[:, None, None], initial.covariance[None], shake)
            moves = LinearStep()
        fixed = moves._replace(design=fixed.design, variance=fixed.variance)
        return fixed, seen._replace(**own)

    def _filter(self, series: Series, incomplete: bool, packed: bool) -> tuple[Any, Filtered, Any]:
        """The algebra, what it filtered, and the steps."""
        fixed, steps = self._steps(series, incomplete=incomplete, packed=packed)
        initial = self._initial()
        if self.diffuse is not None:
            beliefs: Any = DiffuseBeliefs(fixed)
            return beliefs, filter(beliefs, beliefs.start(initial, self.diffuse), steps), steps
        if self.square_root:
            beliefs = SquareRootBeliefs(fixed)
            return beliefs, filter(beliefs, beliefs.start(initial), steps), steps
        beliefs = LinearGaussianBeliefs(fixed)
        blocks = _blocks(len(series.real))
        if blocks > 1:
            return beliefs, blocked_filter(beliefs, initial, steps, blocks=blocks), steps
        return beliefs, filter(beliefs, initial, steps), steps

    def filter(self, series: Series, *, incomplete: bool = True, packed: bool = False) -> Filtered:
        """p(x_t | y_{<t}) and p(x_t | y_{≤t}) for each step, and log p(y_t | y_{<t})."""
        beliefs, filtered, _ = self._filter(series, incomplete, packed)
        if isinstance(beliefs, LinearGaussianBeliefs):
            return filtered
        moments = jax.vmap(beliefs.moments)
        return Filtered(moments(filtered.predicted), moments(filtered.filtered), filtered.log_evidence)

    def smooth(self, series: Series, *, incomplete: bool = True, packed: bool = False) -> Smoothed:
        """p(x_t | y) for each step, and p(x_t, x_{t+1} | y) with cross-covariances."""
        return self._smooth(series, incomplete, packed)[1]

    def _smooth(self, series: Series, incomplete: bool, packed: bool) -> tuple[Array, Smoothed]:
        blocks = _blocks(len(series.real))
        if self.diffuse is None and not self.square_root and blocks > 1:
            fixed, steps = self._steps(series, incomplete=incomplete, packed=packed)
            filtered, smoothed = blocked_smooth(
                LinearGaussianBeliefs(fixed), self._initial(), steps, blocks=blocks
            )
            return filtered.log_evidence, smoothed
        beliefs, filtered, steps = self._filter(series, incomplete, packed)
        smoothed = smooth(beliefs, filtered, steps)
        if isinstance(beliefs, DiffuseBeliefs):
            smoothed = Smoothed(
                jax.vmap(beliefs.moments)(smoothed.marginals), jax.vmap(beliefs.pair)(smoothed.pairs)
            )
        if isinstance(beliefs, SquareRootBeliefs):
            smoothed = smoothed._replace(marginals=jax.vmap(beliefs.moments)(smoothed.marginals))
        return filtered.log_evidence, smoothed

    def log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        """log p(y); with a diffuse start the limit of log p(y) + ½ d log κ for variances κ."""
        blocks = _blocks(len(series.real))
        if self.diffuse is None and not self.square_root and blocks > 1:
            fixed, steps = self._steps(series, incomplete=incomplete, packed=False)
            return blocked_evidence(LinearGaussianBeliefs(fixed), self._initial(), steps, blocks=blocks)
        return jnp.sum(self.step_log_prob(series, incomplete=incomplete))

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return self._filter(series, incomplete, False)[1].log_evidence

    def predicted(self, series: Series) -> GaussianBelief:
        """p(y_t | y_{<t}) for each step."""
        states = self.filter(series).predicted
        length = len(series.real)
        C = self._emissions(length)
        spread = jnp.einsum("tmn,tnk,tlk->tml", C, states.covariance, C)
        means = jnp.einsum("tmn,tn->tm", C, states.mean) + self._means(series.inputs, length)
        return GaussianBelief(means, spread + self._emission_noises(length))

    def sample_states(self, series: Series, *, key: Array) -> Array:
        """A draw of all states given the series (a simulation smoother)."""
        beliefs, filtered, steps = self._filter(series, True, False)
        path = sample_paths(beliefs, filtered, steps, key=key)
        return path[0] if isinstance(beliefs, DiffuseBeliefs) else path

    def sample_both(self, length: int, *, key: Array, inputs: Array | None = None) -> tuple[Array, Array]:
        """States and values of one series."""
        if self.diffuse is not None:
            raise ValueError(
                "A model with a diffuse start has no distribution to draw the first state from."
            )
        first, move, emit = jax.random.split(key, 3)
        n, m = self.latent_dim, self.mean.shape[0]
        noises = _coloured(self.noise.matrix(), jax.random.normal(move, (length, n), self.mean.dtype))
        noises = noises + self._offsets(inputs, length)
        start = root_semidefinite(self.initial_covariance.matrix())
        x = self.initial_mean + start @ jax.random.normal(first, (n,), self.mean.dtype)
        moves = jnp.broadcast_to(self.transition, (length, n, n))

        def body(x: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            A, w, begins = at
            x = jnp.where(begins, x, A @ x + w)
            return x, x

        states = jax.lax.scan(body, x, (moves, noises, jnp.arange(length) == 0))[1]
        noise = jax.random.normal(emit, (length, m), self.mean.dtype)
        seen = jnp.einsum("tmn,tn->tm", self._emissions(length), states)
        return states, seen + self._means(inputs, length) + _coloured(self.emission_noise.matrix(), noise)

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        return self.sample_both(length, key=key, inputs=inputs)[1]

    def _completion(self, series: Series) -> tuple[Array, Array, Array]:
        """G, g and a covariance for each step with y = G x + g + e: its observed entries are in g."""
        R, length = self.emission_noise.matrix(), len(series.real)
        return jax.vmap(_completed, in_axes=(0, 0, 0 if R.ndim == 3 else None, 0))(
            self._emissions(length), self._means(series.inputs, length), R, series.values
        )

    def complete_mean(self, series: Series) -> Array:
        states = self.smooth(series).marginals.mean
        G, g, _ = self._completion(series)
        return jnp.einsum("tmn,tn->tm", G, states) + g

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        path, emit = jax.random.split(key)
        states = self.sample_states(series, key=path)
        G, g, rest = self._completion(series)
        noise = jax.random.normal(emit, series.values.shape, series.values.dtype)
        roots = jax.vmap(root_semidefinite)(rest)
        return jnp.einsum("tmn,tn->tm", G, states) + g + jnp.einsum("tmk,tk->tm", roots, noise)

    def prepare(self) -> None:
        return None

    def expect_prepared(
        self, prepared: None, x: Any, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[StateSpaceStatistics, Array]:
        """The sums of EM; the temperature must be one."""

        def one(series: Series, w: Array) -> tuple[StateSpaceStatistics, Array]:
            evidence, smoothed = self._smooth(series, incomplete, True)
            statistics = self._statistics(series, smoothed)
            return jax.tree.map(lambda a: w * a, (statistics, -jnp.sum(evidence)))

        total = jax.vmap(one)(x, weight)
        return jax.tree.map(lambda a: jnp.sum(a, axis=0), total)

    def _statistics(self, series: Series, smoothed: Smoothed) -> StateSpaceStatistics:
        (mean, covariance), (earlier, later, cross) = smoothed.marginals, smoothed.pairs
        kind = mean.dtype
        real = series.real
        begins = (series.starts & real).astype(kind)
        moves = (real & ~series.starts)[1:].astype(kind)
        seen = (real & jnp.any(~jnp.isnan(series.values), axis=1)).astype(kind)
        inputs = jnp.zeros((len(real), 0), kind) if series.inputs is None else series.inputs
        one = jnp.ones((len(real), 1), kind)
        initial = _sums(begins, mean, one, covariance, jnp.zeros((len(real), 0, 0), kind), None)
        pushing = inputs[1:] if self.input_transition is not None else inputs[1:, :0]
        known = jnp.concatenate([pushing, one[1:]], axis=1)
        transition = _sums(
            moves, later.mean, known, later.covariance, earlier.covariance, earlier.mean, cross
        )
        # the entries that were not observed are linear in the state
        G, g, rest = self._completion(series)
        filled = jnp.einsum("tmn,tn->tm", G, mean) + g
        along = jnp.einsum("tmn,tnk->tmk", G, covariance)
        spread = jnp.einsum("tmk,tlk->tml", along, G) + rest
        beside = inputs if self.input_emission is not None else inputs[:, :0]
        known = jnp.concatenate([beside, one], axis=1)
        emission = _sums(seen, filled, known, spread, covariance, mean, along.swapaxes(1, 2))
        return StateSpaceStatistics(initial, transition, emission)

    def maximise(self, statistics: StateSpaceStatistics) -> LinearGaussianSSM:
        n, m, learned = self.latent_dim, self.mean.shape[0], self.learned
        begin, move, see = statistics
        mean = begin.solve(self.initial_mean[:, None], (learned.initial,))
        initial = (
            _fitted(self.initial_covariance, begin, mean) if learned.initial else self.initial_covariance
        )
        inputs = jnp.zeros((n, 0)) if self.input_transition is None else self.input_transition
        if self._varies:
            raise ValueError("EM needs a system that is the same at all steps. Learn this one by gradient.")
        held = jnp.concatenate([self.transition, inputs, self.offset[:, None]], axis=1)
        mask = (learned.transition,) * (n + inputs.shape[1]) + (learned.offset,)
        W = move.solve(held, mask)
        noise = _fitted(self.noise, move, W) if learned.noise else self.noise
        sees = jnp.zeros((m, 0)) if self.input_emission is None else self.input_emission
        held = jnp.concatenate([self.emission, sees, self.mean[:, None]], axis=1)
        V = see.solve(held, (learned.emission,) * (n + sees.shape[1]) + (learned.mean,))
        emission_noise = (
            _fitted(self.emission_noise, see, V) if learned.emission_noise else self.emission_noise
        )
        return LinearGaussianSSM(
            mean[:, 0],
            initial,
            W[:, :n],
            W[:, -1],
            noise,
            V[:, :n],
            V[:, -1],
            emission_noise,
            None if self.input_transition is None else W[:, n:-1],
            None if self.input_emission is None else V[:, n:-1],
            self.diffuse,
            learned,
            self.square_root,
        )


def _driven(constant: Array, matrix: Array | None, inputs: Array | None, length: int) -> Array:
    """A constant and what the inputs add to it, for each step."""
    steps = jnp.broadcast_to(constant, (length, *constant.shape))
    return steps if matrix is None or inputs is None else steps + inputs @ matrix.T


def _coloured(covariance: Array, noise: Array) -> Array:
    """Rows of standard normal `noise` with the covariance of each step, or of all."""
    if covariance.ndim == 2:
        return noise @ root_semidefinite(covariance).T
    return jnp.einsum("tij,tj->ti", jax.vmap(root_semidefinite)(covariance), noise)


def _blocks(length: int) -> int:
    """Into how many blocks a series is cut: a divisor of its length."""
    if length < _LONG:
        return 1
    best = max(k for k in range(1, _BLOCKS + 1) if length % k == 0)
    return best if best >= 16 else 1


def _completed(C: Array, c: Array, R: Array, y: Array) -> tuple[Array, Array, Array]:
    """y given x and its observed entries: y = G x + g + e, e ~ N(0, rest)."""
    seen = ~jnp.isnan(y)
    both = seen[:, None] & seen[None, :]
    observed = jnp.where(both, R, jnp.diag(jnp.where(seen, 0, jnp.ones_like(y))))
    # entries that are missing on those that are not
    across = jnp.where(~seen[:, None] & seen[None, :], R, 0)
    gain = solve_semidefinite(observed, across.T).T
    hidden = (~seen).astype(C.dtype)
    G = hidden[:, None] * (C - gain @ C)
    g = jnp.where(seen, jnp.where(seen, y, 0), c + gain @ jnp.where(seen, y - c, 0))
    rest = jnp.where(~seen[:, None] & ~seen[None, :], R, 0) - gain @ across.T
    return G, g, rest


def _sums(
    weight: Array, x: Array, known: Array, spread: Array, before: Array, z: Array | None, cross: Any = None
) -> Sums:
    """Sums over steps for x on (z, known), with Cov(x) = spread, Cov(z) = before, Cov(z, x) = cross."""
    hidden = 0 if z is None else z.shape[1]
    full = known if z is None else jnp.concatenate([z, known], axis=1)
    weighted = full * weight[:, None]
    zz, xz = weighted.T @ full, x.T @ weighted
    if z is not None:
        zz = zz.at[:hidden, :hidden].add(jnp.einsum("t,tij->ij", weight, before))
        xz = xz.at[:, :hidden].add(jnp.einsum("t,tij->ji", weight, cross))
    xx = (x * weight[:, None]).T @ x + jnp.einsum("t,tij->ij", weight, spread)
    return Sums(jnp.sum(weight), zz, xz, xx)


def _fitted(covariance: AbstractCovariance, sums: Sums, w: Array) -> AbstractCovariance:
    """The covariance of the residual, of the structure that `covariance` has."""
    scatter = sums.scatter(w)
    dim = len(scatter)
    weight = jnp.broadcast_to(jnp.maximum(sums.weight, jnp.finfo(scatter.dtype).tiny), (dim,))
    return covariance.from_moments(weight, jnp.zeros(dim, scatter.dtype), moments_of(covariance, scatter))


def moments_of(covariance: AbstractCovariance, scatter: Array) -> Array:
    """The second moments that `covariance` needs, of vectors whose outer products sum to `scatter`."""
    return jnp.sum(jax.vmap(covariance.second_moments)(root_semidefinite(scatter).T), axis=0)


correlation = Constraint(
    "in the open interval (−1, 1)", jnp.arctanh, jnp.tanh, lambda value: jnp.abs(value) < 1
)


class AbstractBlock(eqx.Module):
    """A part of a series of numbers: states of its own, and what they add to the series.  Parts add up."""

    @abc.abstractmethod
    def transition(self) -> Array:
        """A of the block."""

    @abc.abstractmethod
    def noise(self) -> Array:
        """Q of the block."""

    @abc.abstractmethod
    def emission(self, inputs: Array | None) -> Array:
        """The row of C, or a row for each step."""

    @abc.abstractmethod
    def start(self) -> tuple[Array, Array]:
        """The covariance of the first state, and the directions in which it is diffuse."""

    def __add__(self, other: AbstractBlock | Structural) -> Structural:
        blocks = other.blocks if isinstance(other, Structural) else (other,)
        return Structural((self, *blocks))


def _first_of(size: int) -> Array:
    return jnp.zeros(size).at[0].set(1.0)


def _one(value: Any) -> Array:
    return jnp.asarray(value, float)


class Level(AbstractBlock):
    """A random walk: l_t = l_{t−1} + N(0, variance)."""

    variance: Array = parameter(positive, converter=_one, default=0.1)

    def transition(self) -> Array:
        return jnp.ones((1, 1))

    def noise(self) -> Array:
        return self.variance[None, None]

    def emission(self, inputs: Array | None) -> Array:
        return jnp.ones(1)

    def start(self) -> tuple[Array, Array]:
        return jnp.zeros((1, 1)), jnp.ones((1, 1))


class Trend(AbstractBlock):
    """A level with a slope that is a random walk: l_t = l_{t−1} + s_{t−1} + w, s_t = s_{t−1} + w′."""

    level_variance: Array = parameter(positive, converter=_one, default=0.1)
    slope_variance: Array = parameter(positive, converter=_one, default=0.01)

    def transition(self) -> Array:
        return jnp.array([[1.0, 1.0], [0.0, 1.0]])

    def noise(self) -> Array:
        return jnp.diag(jnp.stack([self.level_variance, self.slope_variance]))

    def emission(self, inputs: Array | None) -> Array:
        return _first_of(2)

    def start(self) -> tuple[Array, Array]:
        return jnp.zeros((2, 2)), jnp.eye(2)


class Seasonal(AbstractBlock):
    """A pattern of `period` steps that sums to noise: s_t = −s_{t−1} − … − s_{t−period+1} + w."""

    period: int = eqx.field(static=True)
    variance: Array = parameter(positive, converter=_one, default=0.01)

    def __check_init__(self) -> None:
        if not isinstance(self.period, int) or self.period < 2:
            raise ValueError(
                "The 'period' parameter of Seasonal must be an int in the range [2, inf). "
                f"Got {self.period!r} instead."
            )

    def transition(self) -> Array:
        return jnp.eye(self.period - 1, k=-1).at[0].set(-1.0)

    def noise(self) -> Array:
        first = _first_of(self.period - 1)
        return self.variance * first[:, None] * first[None, :]

    def emission(self, inputs: Array | None) -> Array:
        return _first_of(self.period - 1)

    def start(self) -> tuple[Array, Array]:
        size = self.period - 1
        return jnp.zeros((size, size)), jnp.eye(size)


class Cycle(AbstractBlock):
    """A damped wave with random shocks: c_t = ρ Rot(2π/period) c_{t−1} + w, stationary."""

    period: Array = parameter(positive, converter=_one)
    damping: Array = parameter(unit_interval, converter=_one, default=0.9)
    variance: Array = parameter(positive, converter=_one, default=0.1)

    def transition(self) -> Array:
        angle = 2 * jnp.pi / self.period
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        return self.damping * jnp.stack([jnp.stack([cos, sin]), jnp.stack([-sin, cos])])

    def noise(self) -> Array:
        return self.variance * jnp.eye(2)

    def emission(self, inputs: Array | None) -> Array:
        return _first_of(2)

    def start(self) -> tuple[Array, Array]:
        return self.variance / (1 - self.damping**2) * jnp.eye(2), jnp.zeros((2, 0))


class Autoregressive(AbstractBlock):
    """z_t = φ_1 z_{t−1} + … + φ_p z_{t−p} + w, stationary.

    Held as partial autocorrelations, which are free in (−1, 1); `coefficients` gives φ.
    """

    partial: Array = parameter(correlation, converter=_one)
    variance: Array = parameter(positive, converter=_one, default=0.1)

    def coefficients(self) -> Array:
        """φ, by Levinson's recursion."""
        phi = self.partial[:1]
        for k in range(1, len(self.partial)):
            phi = jnp.concatenate([phi - self.partial[k] * phi[::-1], self.partial[k : k + 1]])
        return phi

    def transition(self) -> Array:
        return jnp.eye(len(self.partial), k=-1).at[0].set(self.coefficients())

    def noise(self) -> Array:
        first = _first_of(len(self.partial))
        return self.variance * first[:, None] * first[None, :]

    def emission(self, inputs: Array | None) -> Array:
        return _first_of(len(self.partial))

    def start(self) -> tuple[Array, Array]:
        return stationary_covariance(self.transition(), self.noise()), jnp.zeros((len(self.partial), 0))


class Regressors(AbstractBlock):
    """β · u_t with coefficients that are constant, or a random walk with `variance`.

    The inputs u_t are those of the series, `size` of them.
    """

    size: int = eqx.field(static=True)
    variance: Array | None = parameter(positive, default=None)

    def transition(self) -> Array:
        return jnp.eye(self.size)

    def noise(self) -> Array:
        return jnp.eye(self.size) * (jnp.zeros(()) if self.variance is None else self.variance)

    def emission(self, inputs: Array | None) -> Array:
        if inputs is None:
            raise ValueError("A model with Regressors needs series with 'inputs'. Got None instead.")
        return inputs

    def start(self) -> tuple[Array, Array]:
        return jnp.zeros((self.size, self.size)), jnp.eye(self.size)


def stationary_covariance(A: Array, Q: Array) -> Array:
    """P = A P Aᵀ + Q for a stable A, by doubling.

    >>> stationary_covariance(jnp.array([[0.5]]), jnp.array([[3.0]])).round(6).tolist()
    [[4.0]]
    """

    def body(carry: tuple[Array, Array], _: Any) -> tuple[tuple[Array, Array], None]:
        power, total = carry
        return (power @ power, total + power @ total @ power.T), None

    return jax.lax.scan(body, (A, Q), None, length=24)[0][1]


def _block_diagonal(parts: list[Array]) -> Array:
    return jax.scipy.linalg.block_diag(*parts)


class Structural(AbstractSequenceModel):
    """A series of numbers as a sum of blocks and noise: y_t = Σ_b h_b · x_{b,t} + ε_t.

    Blocks without a stationary law start diffuse, exactly; `begin` replaces that by a proper start.

    >>> model = Level(0.5) + Seasonal(4)
    >>> [type(block).__name__ for block in model.blocks], model.system().latent_dim
    (['Level', 'Seasonal'], 4)
    """

    blocks: tuple[AbstractBlock, ...]
    variance: Array = parameter(positive, converter=_one, default=1.0)
    begin: GaussianBelief | None = buffer(default=None)

    def __add__(self, other: AbstractBlock | Structural) -> Structural:
        blocks = other.blocks if isinstance(other, Structural) else (other,)
        return Structural((*self.blocks, *blocks), self.variance, self.begin)

    def directions(self) -> Array:
        """Directions of the first state (columns) of which nothing is known, before there is a `begin`."""
        return _block_diagonal([block.start()[1] for block in self.blocks])

    def system(self, inputs: Array | None = None) -> LinearGaussianSSM:
        """The same model as one linear system."""
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
            Full(self.variance[None, None]),
            diffuse=diffuse,
        )

    def components(self, series: Series) -> GaussianBelief:
        """What each block adds at each step, given the whole series: means and variances (time, blocks)."""
        system = self.system(series.inputs)
        states = system.smooth(series).marginals
        rows = system._emissions(len(series.real))[:, 0]
        sizes = [len(block.transition()) for block in self.blocks]
        ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
        means, variances = [], []
        for size, end in zip(sizes, ends, strict=True):
            part = slice(end - size, end)
            row = rows[:, part]
            means.append(jnp.sum(row * states.mean[:, part], axis=1))
            variances.append(jnp.einsum("ti,tij,tj->t", row, states.covariance[:, part, part], row))
        return GaussianBelief(jnp.stack(means, axis=1), jnp.stack(variances, axis=1))

    def predicted(self, series: Series) -> GaussianBelief:
        """p(y_t | y_{<t}) for each step."""
        return self.system(series.inputs).predicted(series)

    def log_prob(self, series: Series) -> Array:
        """log p(y), with the convention of `LinearGaussianSSM.log_prob` for a diffuse start."""
        return self.system(series.inputs).log_prob(series)

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return self.system(series.inputs).step_log_prob(series, incomplete=incomplete)

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        return self.system(inputs).sample(length, key=key)

    def complete_mean(self, series: Series) -> Array:
        return self.system(series.inputs).complete_mean(series)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        return self.system(series.inputs).complete_sample(series, key=key)


class Columns(AbstractSequenceModel):
    """Columns of a series that have nothing to do with each other, each with a model of its own.

    Attributes:
        models: models of one column, stacked along a leading axis of their arrays.
    """

    models: AbstractSequenceModel  # pyright: ignore[reportGeneralTypeIssues]

    def each(self, function: Any, series: Series, *rest: Array) -> Any:
        """`function(model, column, *rest)` for each column, along a leading axis."""

        def one(model: Any, values: Array, *rest: Array) -> Any:
            return function(model, series._replace(values=values[:, None]), *rest)

        axes = (eqx.if_array(0), 1, *(0 for _ in rest))
        return eqx.filter_vmap(one, in_axes=axes)(self.models, series.values, *rest)

    def log_prob(self, series: Series) -> Array:
        """log p(y)."""
        return jnp.sum(self.each(lambda model, column: model.log_prob(column), series))

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return jnp.sum(self.each(lambda model, column: model.step_log_prob(column), series), axis=0)

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        keys = jax.random.split(key, len(jax.tree.leaves(eqx.filter(self.models, eqx.is_array))[0]))
        draw = eqx.filter_vmap(lambda model, k: model.sample(length, key=k, inputs=inputs)[:, 0])
        return draw(self.models, keys).T

    def complete_mean(self, series: Series) -> Array:
        return self.each(lambda model, column: model.complete_mean(column)[:, 0], series).T

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        keys = jax.random.split(key, series.values.shape[1])

        def one(model: Any, column: Series, k: Array) -> Array:
            return model.complete_sample(column, key=k)[:, 0]

        return self.each(one, series, keys).T


class AutoRegression(AbstractSequenceModel, AbstractExpectationMaximisation[Sums]):
    """y_t = Φ_1 y_{t−1} + … + Φ_p y_{t−p} + B u_t + a + w_t, w_t ~ N(0, Q), for vectors.

    A linear system without noise of observation whose state is the last p values; missing values are
    states like others.  The p values before the second are N(start_mean, start_covariance).

    Attributes:
        coefficients: Φ, shape (p, dim, dim).
        offset: a.
        noise: Q.
        start_mean, start_covariance: of (y_1, y_0, …), newest first.
        input_coefficients: B, for series with `inputs`.
    """

    rows_at_once: ClassVar[int] = 64

    coefficients: Array = parameter()
    offset: Array = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    start_mean: Array = buffer()
    start_covariance: Array = buffer()
    input_coefficients: Array | None = parameter(default=None)

    def system(self, inputs: Array | None = None) -> LinearGaussianSSM:
        """The same model as a linear system."""
        p, dim, _ = self.coefficients.shape
        size = p * dim
        top = self.coefficients.swapaxes(0, 1).reshape(dim, size)
        push = self.input_coefficients
        if push is not None:
            push = jnp.zeros((size, push.shape[1])).at[:dim].set(push)
        return LinearGaussianSSM(
            self.start_mean,
            Full(self.start_covariance),
            jnp.eye(size, k=-dim).at[:dim].set(top),
            jnp.zeros(size).at[:dim].set(self.offset),
            Full(jnp.zeros((size, size)).at[:dim, :dim].set(self.noise.matrix())),
            jnp.eye(dim, size),
            jnp.zeros(dim),
            Full(jnp.zeros((dim, dim))),
            push,
        )

    def predicted(self, series: Series) -> GaussianBelief:
        """p(y_t | y_{<t}) for each step."""
        return self.system().predicted(series)

    def log_prob(self, series: Series) -> Array:
        """log p(y)."""
        return self.system().log_prob(series)

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return self.system().step_log_prob(series, incomplete=incomplete)

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        return self.system().sample(length, key=key, inputs=inputs)

    def complete_mean(self, series: Series) -> Array:
        return self.system().complete_mean(series)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        return self.system().complete_sample(series, key=key)

    def prepare(self) -> LinearGaussianSSM:
        return self.system()

    def expect_prepared(
        self, prepared: LinearGaussianSSM, x: Any, weight: Array, *, temperature: Array, incomplete: bool
    ) -> tuple[Sums, Array]:
        statistics, free = prepared.expect(x, weight, temperature=temperature, incomplete=incomplete)
        return statistics.transition, free

    def maximise(self, statistics: Sums) -> AutoRegression:
        p, dim, _ = self.coefficients.shape
        top = statistics._replace(xz=statistics.xz[:dim], xx=statistics.xx[:dim, :dim])
        held = jnp.zeros_like(top.xz)
        W = top.solve(held, (True,) * held.shape[1])
        coefficients = W[:, : p * dim].reshape(dim, p, dim).swapaxes(0, 1)
        return AutoRegression(
            coefficients,
            W[:, -1],
            _fitted(self.noise, top, W),
            self.start_mean,
            self.start_covariance,
            None if self.input_coefficients is None else W[:, p * dim : -1],
        )


class SwitchingBelief(NamedTuple):
    """A mixture of one Gaussian for each regime: log-probabilities, means and covariances."""

    log_weight: Array
    mean: Array
    covariance: Array


class SwitchingLinearSystem(AbstractSequenceModel):
    """Linear systems that take turns: a Markov chain s_t says which one moves and emits at step t.

        s_1 ~ initial,  s_t ~ transition[s_{t−1}],
        x_t ~ N(A_s x_{t−1} + B_s u_t + a_s, Q_s),   y_t ~ N(C_s x_t + D_s u_t + c_s, R_s).

    Exact inference takes a Gaussian for each of Kᵀ paths.  Here the K² Gaussians of a step are merged into
    K of equal mean and covariance (Kim's filter and smoother), so that every result is approximate.

    Attributes:
        initial: p(s_1).
        transition: p(s_t = j | s_{t−1} = i) at [i, j].
        systems: K systems, stacked along a leading axis of their arrays.
    """

    initial: Array = parameter(simplex)
    transition: Array = parameter(simplex)
    systems: LinearGaussianSSM  # pyright: ignore[reportGeneralTypeIssues]

    def _chains(self, series: Series) -> tuple[Any, Any]:
        """For each regime what is fixed, and the measurements of each step (time, regimes, …)."""

        def one(system: LinearGaussianSSM) -> tuple[LinearStep, LinearStep]:
            return system._steps(series, incomplete=True, packed=False)

        fixed, steps = eqx.filter_vmap(one, in_axes=eqx.if_array(0), out_axes=(0, 1))(self.systems)
        return fixed, steps

    def filter(self, series: Series) -> Filtered:
        """Kim's filter: approximate beliefs, and an approximate log p(y_t | y_{<t})."""
        fixed, steps = self._chains(series)
        log_move = jnp.log(self.transition)

        def ahead(belief: SwitchingBelief, f: LinearStep, s: LinearStep) -> GaussianBelief:
            """The state under one regime, after each regime before it."""
            return jax.vmap(lambda m, P: LinearGaussianBeliefs(f).predict(GaussianBelief(m, P), s))(
                belief.mean, belief.covariance
            )

        def seen(predicted: GaussianBelief, f: LinearStep, s: LinearStep) -> tuple[GaussianBelief, Array]:
            return jax.vmap(lambda m, P: LinearGaussianBeliefs(f).update(GaussianBelief(m, P), s))(
                *predicted
            )

        def body(carry: tuple[SwitchingBelief, Array], step: LinearStep) -> Any:
            belief, total = carry
            predicted = jax.vmap(ahead, in_axes=(None, 0, 0))(belief, fixed, step)
            updated, gain = jax.vmap(seen)(predicted, fixed, step)
            # [j, i]: regime j after regime i
            joint = belief.log_weight[None, :] + log_move.T + gain
            new = _merged(joint, updated.mean, updated.covariance)
            prior = _merged(belief.log_weight[None, :] + log_move.T, predicted.mean, predicted.covariance)
            evidence = jax.nn.logsumexp(joint)
            new = new._replace(log_weight=new.log_weight - evidence)
            return (new, total), Filtered(prior, new, evidence)

        start = SwitchingBelief(
            jnp.log(self.initial),
            self.systems.initial_mean,
            self._each(lambda s: s.initial_covariance.matrix()),
        )
        opening = jax.tree.map(lambda a: a[0], steps)

        def first(m: Array, P: Array, f: LinearStep, s: LinearStep) -> tuple[GaussianBelief, Array]:
            return LinearGaussianBeliefs(f).update(GaussianBelief(m, P), s)

        updated, gain = jax.vmap(first)(start.mean, start.covariance, fixed, opening)
        joint = start.log_weight + gain
        evidence = jax.nn.logsumexp(joint)
        begun = SwitchingBelief(joint - evidence, *updated)
        rest = jax.tree.map(lambda a: a[1:], steps)
        _, later = jax.lax.scan(body, (begun, evidence), rest)
        return jax.tree.map(
            lambda a, b: jnp.concatenate([a[None], b]), Filtered(start, begun, evidence), later
        )

    def predicted(self, series: Series) -> GaussianBelief:
        """Mean and covariance of p(y_t | y_{<t}) for each step, which is a mixture."""
        ahead = self.filter(series).predicted
        length = len(series.real)
        noise = self._each(lambda s: s.emission_noise.matrix())

        def one(belief: SwitchingBelief, shift: Array) -> GaussianBelief:
            C = self.systems.emission
            means = jnp.einsum("kmn,kn->km", C, belief.mean) + shift
            spread = jnp.einsum("kmn,knj,klj->kml", C, belief.covariance, C) + noise
            _, mean, covariance = _merged(belief.log_weight[None], means[None], spread[None])
            return GaussianBelief(mean[0], covariance[0])

        return jax.vmap(one, (0, 1))(ahead, self._each(lambda s: s._means(series.inputs, length)))

    def smooth(self, series: Series) -> SwitchingBelief:
        """Kim's smoother: for each step the approximate p(s_t, x_t | y)."""
        fixed, steps = self._chains(series)
        filtered = self.filter(series).filtered
        log_move = jnp.log(self.transition)

        def pair(m: Array, P: Array, later: GaussianBelief, f: LinearStep, s: LinearStep) -> GaussianBelief:
            chain = LinearGaussianBeliefs(f)
            belief = GaussianBelief(m, P)
            return chain.back(later, chain.reverse(belief, chain.predict(belief, s), s))[0]

        def body(later: SwitchingBelief, at: tuple[SwitchingBelief, LinearStep]) -> Any:
            belief, step = at
            # [i, k]: regime i before regime k
            joint = belief.log_weight[:, None] + log_move
            joint = joint - jax.nn.logsumexp(joint, axis=0)[None, :] + later.log_weight[None, :]
            after = GaussianBelief(later.mean, later.covariance)
            each = jax.vmap(jax.vmap(pair, in_axes=(None, None, 0, 0, 0)), in_axes=(0, 0, None, None, None))
            back = each(belief.mean, belief.covariance, after, fixed, step)
            new = _merged(joint, *back)
            return new, new

        last = jax.tree.map(lambda a: a[-1], filtered)
        past = jax.tree.map(lambda a: a[:-1], filtered)
        rest = jax.tree.map(lambda a: a[1:], steps)
        _, earlier = jax.lax.scan(body, last, (past, rest), reverse=True)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), earlier, last)

    def step_log_prob(self, series: Series, *, incomplete: bool = True) -> Array:
        return self.filter(series).log_evidence

    def log_prob(self, series: Series) -> Array:
        """The approximate log p(y)."""
        return jnp.sum(self.step_log_prob(series))

    def sample(self, length: int, *, key: Array, inputs: Array | None = None) -> Array:
        first, chain, move, emit = jax.random.split(key, 4)
        n = self.systems.initial_mean.shape[-1]
        log_move = jnp.log(self.transition)
        begin, start = jax.random.split(first)
        s = jax.random.categorical(begin, jnp.log(self.initial))
        system = self._system(s)
        x = system.initial_mean + root_semidefinite(system.initial_covariance.matrix()) @ jax.random.normal(
            start, (n,)
        )

        def body(carry: tuple[Array, Array], at: Any) -> Any:
            s, x = carry
            k, w, e, begins, offsets, means = at
            s = jnp.where(begins, s, jax.random.categorical(k, log_move[s]))
            system = self._system(s)
            moved = system.transition @ x + offsets[s] + root_semidefinite(system.noise.matrix()) @ w
            x = jnp.where(begins, x, moved)
            noise = root_semidefinite(system.emission_noise.matrix()) @ e
            return (s, x), system.emission @ x + means[s] + noise

        m = self.systems.mean.shape[-1]
        drawn = (
            jax.random.split(chain, length),
            jax.random.normal(move, (length, n)),
            jax.random.normal(emit, (length, m)),
            jnp.arange(length) == 0,
            self._each(lambda s: s._offsets(inputs, length)).swapaxes(0, 1),
            self._each(lambda s: s._means(inputs, length)).swapaxes(0, 1),
        )
        return jax.lax.scan(body, (s, x), drawn)[1]

    def _each(self, function: Any) -> Any:
        """`function(system)` for each regime, along a leading axis."""
        return eqx.filter_vmap(function, in_axes=eqx.if_array(0))(self.systems)

    def _system(self, s: Array) -> LinearGaussianSSM:
        arrays, static = eqx.partition(self.systems, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda a: a[s], arrays), static)

    def complete_mean(self, series: Series) -> Array:
        belief = self.smooth(series)

        def one(system: LinearGaussianSSM, mean: Array) -> Array:
            G, g, _ = system._completion(series)
            return jnp.einsum("tmn,tn->tm", G, mean) + g

        values = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 1))(self.systems, belief.mean)
        return jnp.einsum("tk,ktm->tm", jnp.exp(belief.log_weight), values)

    def complete_sample(self, series: Series, *, key: Array) -> Array:
        fixed, steps = self._chains(series)
        filtered = self.filter(series).filtered
        log_move = jnp.log(self.transition)
        choose, draw, emit = jax.random.split(key, 3)

        def take(tree: Any, s: Array) -> Any:
            return jax.tree.map(lambda a: a[s], tree)

        def body(carry: tuple[Array, Array], at: Any) -> Any:
            s, x = carry
            belief, step, k, w = at
            chain, here = LinearGaussianBeliefs(take(fixed, s)), take(step, s)

            def from_regime(m: Array, P: Array) -> tuple[Any, Array]:
                known = GaussianBelief(m, P)
                predicted = chain.predict(known, here)
                # how well x follows from this regime
                seen = measure(jnp.eye(len(x)), jnp.zeros(len(x)), predicted.covariance, x)
                none = GaussianBelief(predicted.mean, jnp.zeros_like(P))
                return chain.reverse(known, predicted, here), chain.update(none, seen)[1]

            kernels, fits = jax.vmap(from_regime)(belief.mean, belief.covariance)
            before = jax.random.categorical(k, belief.log_weight + log_move[:, s] + fits)
            kernel = take(kernels, before)
            x = kernel.gain @ x + kernel.offset + root_semidefinite(kernel.covariance) @ w
            return (before, x), (before, x)

        last = jax.tree.map(lambda a: a[-1], filtered)
        first, second = jax.random.split(choose)
        n = self.systems.initial_mean.shape[-1]
        s = jax.random.categorical(first, last.log_weight)
        x = last.mean[s] + root_semidefinite(last.covariance[s]) @ jax.random.normal(second, (n,))
        length = len(series.real) - 1
        keys, noises = jax.random.split(draw, length), jax.random.normal(emit, (length, n))
        past = jax.tree.map(lambda a: a[:-1], filtered)
        rest = jax.tree.map(lambda a: a[1:], steps)
        _, (regimes, states) = jax.lax.scan(body, (s, x), (past, rest, keys, noises), reverse=True)
        regimes, states = jnp.append(regimes, s), jnp.concatenate([states, x[None]])
        G, g, spread = self._each(lambda system: system._completion(series))
        at = jnp.arange(len(series.real))
        noise = jax.random.normal(jax.random.fold_in(emit, 1), series.values.shape)
        roots = jax.vmap(root_semidefinite)(spread[regimes, at])
        return (
            jnp.einsum("tmn,tn->tm", G[regimes, at], states)
            + g[regimes, at]
            + jnp.einsum("tmk,tk->tm", roots, noise)
        )


def _merged(joint: Array, means: Array, covariances: Array) -> SwitchingBelief:
    """Mixtures along the second axis of `joint` (log-weights) as one Gaussian each of equal moments."""
    total = jax.nn.logsumexp(joint, axis=1)
    share = jnp.exp(joint - total[:, None])
    mean = jnp.einsum("ji,jin->jn", share, means)
    gap = means - mean[:, None]
    spread = covariances + gap[..., :, None] * gap[..., None, :]
    return SwitchingBelief(total, mean, jnp.einsum("ji,jinm->jnm", share, spread))
