"""Linear systems with Gaussian noise."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Float

from .._core import buffer, parameter
from ..distributions import AbstractCovariance
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
    sample_paths,
    smooth,
)
from ..inference._chain_gaussian import AbstractGaussianBeliefs
from ..inference._semidefinite import root_semidefinite
from ._base import AbstractExpectationMaximisation
from ._regressions import Sums, completed, expected_sums
from ._series import AbstractRescalableSeries, AbstractSequenceModel, Series
from ._units import in_units_of_inputs

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


class StateSpaceStatistics(NamedTuple):
    """What EM needs of series: regressions of the first state on 1, of a state on the one before it
    with inputs and 1, and of an observation on its state with inputs and 1."""

    initial: Sums
    transition: Sums
    emission: Sums


class LinearGaussianSSM(AbstractRescalableSeries, AbstractExpectationMaximisation[StateSpaceStatistics]):
    """A hidden linear system seen through a linear map, both with Gaussian noise.

        x_1 ~ N(μ, Σ),   x_t = A x_{t−1} + B u_t + a + w_t,   y_t = C x_t + D u_t + c + ε_t,
        w_t ~ N(0, Q),   ε_t ~ N(0, R).

    Also known as a linear dynamical system (LDS), or Gaussian state-space model; filtered and smoothed by
    Kalman's recursions, learned by the EM of Shumway and Stoffer.

    A, C, Q and R may differ from step to step (then with a leading time axis, Q and R as `Full`); those of
    step t lead to x_t and y_t.  Such a system is learned by gradient, not by EM.

    Q and R may be singular.  With more outputs than states, or thousands of steps, a singular R has to be
    known when a program is traced, as it is where the model is no argument of it: else the evidence is NaN.

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

    initial_mean: Float[Array, " state"] = parameter()
    initial_covariance: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    transition: Float[Array, "... state state"] = parameter()
    offset: Float[Array, " state"] = parameter()
    noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    emission: Float[Array, "... dim state"] = parameter()
    mean: Float[Array, " dim"] = parameter()
    emission_noise: AbstractCovariance  # pyright: ignore[reportGeneralTypeIssues]
    input_transition: Float[Array, "state inputs"] | None = parameter(default=None)
    input_emission: Float[Array, "dim inputs"] | None = parameter(default=None)
    diffuse: Float[Array, "state unknown"] | None = buffer(default=None)
    learned: Learned = eqx.field(static=True, default=Learned())
    square_root: bool = eqx.field(static=True, default=False)

    @property
    def latent_dim(self) -> int:
        """The size of the state."""
        return self.transition.shape[-1]

    def system(self, inputs: Float[Array, "time inputs"] | None = None) -> LinearGaussianSSM:
        """Itself: what other models of this file are turned into."""
        return self

    def _initial(self) -> GaussianBelief:
        return GaussianBelief(self.initial_mean, self.initial_covariance.matrix())

    def _emission_noise(self) -> Float[Array, "*time dim dim"] | Float[Array, " dim"]:
        matrix = self.emission_noise.matrix()
        return jnp.diagonal(matrix) if self.emission_noise.separable else matrix

    def _emission_noises(self, length: int) -> Float[Array, "time dim dim"]:
        matrix = self.emission_noise.matrix()
        return jnp.broadcast_to(matrix, (length, *matrix.shape[-2:]))

    @property
    def _varies(self) -> bool:
        """Whether the system differs from step to step."""
        parts = (self.transition, self.noise.matrix(), self.emission, self.emission_noise.matrix())
        return any(part.ndim == 3 for part in parts)

    def _exact(self) -> bool:
        """Whether some sum of outputs is known to be without noise; of what is traced nothing is known."""
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self.emission_noise)):
            return False
        with jax.ensure_compile_time_eval():
            R = np.asarray(self.emission_noise.matrix(), float)
        unit = np.sqrt(np.diagonal(R, axis1=-2, axis2=-1))
        if not (unit > 0).all():
            return True
        least = np.linalg.eigvalsh(R / unit[..., :, None] / unit[..., None, :]).min()
        # somewhat more than what `measure` takes for zero: where it does not, that is only slower
        return bool(least < 64 * len(self.mean) * jnp.finfo(self.mean.dtype).eps)

    def _offsets(
        self, inputs: Float[Array, "time inputs"] | None, length: int
    ) -> Float[Array, "time state"]:
        """a + B u_t for each step."""
        return _driven(self.offset, self.input_transition, inputs, length)

    def _means(self, inputs: Float[Array, "time inputs"] | None, length: int) -> Float[Array, "time dim"]:
        """c + D u_t for each step."""
        return _driven(self.mean, self.input_emission, inputs, length)

    def _emissions(self, length: int) -> Float[Array, "time dim state"]:
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
        if outputs > self.latent_dim and not self._exact():
            seen, fixed = jax.vmap(lambda s: collapse(s.filled(fixed)))(seen), LinearStep()
        n, Q = self.latent_dim, self.noise.matrix()
        moves = LinearStep(self.transition, self.offset, Q)
        own: dict[str, Array] = {}
        if self.transition.ndim == 3:
            own["transition"], moves = self.transition, moves._replace(transition=None)
        if Q.ndim == 3:
            own["noise"], moves = Q, moves._replace(noise=None)
        if self.input_transition is not None:
            own["offset"] = self._offsets(series.inputs, length)
            moves = moves._replace(offset=None)
        if packed:
            # a step that starts a series forgets what was before
            first = series.starts
            initial = self._initial()
            move, shake = (jnp.broadcast_to(part, (length, n, n)) for part in (self.transition, Q))
            shift = jnp.broadcast_to(own.get("offset", self.offset), (length, n))
            own["transition"] = jnp.where(first[:, None, None], 0, move)
            own["offset"] = jnp.where(first[:, None], initial.mean[None], shift)
            own["noise"] = jnp.where(first[:, None, None], initial.covariance[None], shake)
            moves = LinearStep()
        fixed = moves._replace(design=fixed.design, variance=fixed.variance)
        return fixed, seen._replace(**own)

    def _beliefs(self, fixed: LinearStep) -> tuple[AbstractGaussianBeliefs, Any]:
        """The algebra that serves this system, and the first belief in its form."""
        initial = self._initial()
        if self.diffuse is not None:
            diffuse = DiffuseBeliefs(fixed)
            return diffuse, diffuse.start(initial, self.diffuse)
        if self.square_root:
            roots = SquareRootBeliefs(fixed)
            return roots, roots.start(initial)
        return LinearGaussianBeliefs(fixed), initial

    def _filter(
        self, series: Series, incomplete: bool, packed: bool
    ) -> tuple[AbstractGaussianBeliefs, Filtered, LinearStep]:
        """The algebra, what it filtered, and the steps."""
        fixed, steps = self._steps(series, incomplete=incomplete, packed=packed)
        beliefs, initial = self._beliefs(fixed)
        blocks = self._blocks(len(series.real))
        if blocks > 1:
            filtered = blocked_filter(LinearGaussianBeliefs(fixed), initial, steps, blocks=blocks)
        else:
            filtered = filter(beliefs, initial, steps)
        return beliefs, filtered, steps

    def _blocks(self, length: int) -> int:
        """Into how many blocks a series is cut; one that is seen exactly is not, nor by other algebras."""
        blocks = 1 if self.diffuse is not None or self.square_root else _blocks(length)
        # without noise a block says of its start what no finite information does
        return 1 if blocks > 1 and self._exact() else blocks

    def filter(self, series: Series, *, incomplete: bool = True, packed: bool = False) -> Filtered:
        """p(x_t | y_{<t}) and p(x_t | y_{≤t}) for each step, and log p(y_t | y_{<t})."""
        beliefs, filtered, _ = self._filter(series, incomplete, packed)
        moments = jax.vmap(beliefs.moments)
        return Filtered(moments(filtered.predicted), moments(filtered.filtered), filtered.log_evidence)

    def smooth(self, series: Series, *, incomplete: bool = True, packed: bool = False) -> Smoothed:
        """p(x_t | y) for each step, and p(x_t, x_{t+1} | y) with cross-covariances."""
        return self._smooth(series, incomplete, packed)[1]

    def _smooth(
        self, series: Series, incomplete: bool, packed: bool
    ) -> tuple[Float[Array, " time"], Smoothed]:
        blocks = self._blocks(len(series.real))
        if blocks > 1:
            fixed, steps = self._steps(series, incomplete=incomplete, packed=packed)
            filtered, smoothed = blocked_smooth(
                LinearGaussianBeliefs(fixed), self._initial(), steps, blocks=blocks
            )
            return filtered.log_evidence, smoothed
        beliefs, filtered, steps = self._filter(series, incomplete, packed)
        marginals, pairs = smooth(beliefs, filtered, steps)
        both = Smoothed(jax.vmap(beliefs.moments)(marginals), jax.vmap(beliefs.pair)(pairs))
        return filtered.log_evidence, both

    def log_prob(self, series: Series, *, incomplete: bool = True) -> Float[Array, ""]:
        """log p(y); with a diffuse start the limit of log p(y) + ½ d log κ for variances κ."""
        blocks = self._blocks(len(series.real))
        if blocks > 1:
            fixed, steps = self._steps(series, incomplete=incomplete, packed=False)
            return blocked_evidence(LinearGaussianBeliefs(fixed), self._initial(), steps, blocks=blocks)
        return jnp.sum(self.step_evidence(series, incomplete=incomplete))

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        return self._filter(series, incomplete, False)[1].log_evidence

    def predicted(self, series: Series) -> GaussianBelief:
        """p(y_t | y_{<t}) for each step."""
        states = self.filter(series).predicted
        length = len(series.real)
        C = self._emissions(length)
        spread = jnp.einsum("tmn,tnk,tlk->tml", C, states.covariance, C)
        means = jnp.einsum("tmn,tn->tm", C, states.mean) + self._means(series.inputs, length)
        return GaussianBelief(means, spread + self._emission_noises(length))

    def sample_states(self, series: Series, *, key: Array) -> Float[Array, "time state"]:
        """A draw of all states given the series (a simulation smoother)."""
        beliefs, filtered, steps = self._filter(series, True, False)
        return sample_paths(beliefs, filtered, steps, key=key)

    def sample_both(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> tuple[Float[Array, "time state"], Float[Array, "time dim"]]:
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

    def sample(
        self, length: int, *, key: Array, inputs: Float[Array, "time inputs"] | None = None
    ) -> Float[Array, "time dim"]:
        return self.sample_both(length, key=key, inputs=inputs)[1]

    def _completion(
        self, series: Series
    ) -> tuple[Float[Array, "time dim state"], Float[Array, "time dim"], Float[Array, "time dim dim"]]:
        """G, g and a covariance for each step with y = G x + g + e: its observed entries are in g."""
        R, length = self.emission_noise.matrix(), len(series.real)
        return jax.vmap(completed, in_axes=(0, 0, 0 if R.ndim == 3 else None, 0))(
            self._emissions(length), self._means(series.inputs, length), R, series.values
        )

    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        states = self.smooth(series).marginals.mean
        G, g, _ = self._completion(series)
        return jnp.einsum("tmn,tn->tm", G, states) + g

    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        path, emit = jax.random.split(key)
        states = self.sample_states(series, key=path)
        G, g, rest = self._completion(series)
        noise = jax.random.normal(emit, series.values.shape, series.values.dtype)
        roots = jax.vmap(root_semidefinite)(rest)
        return jnp.einsum("tmn,tn->tm", G, states) + g + jnp.einsum("tmk,tk->tm", roots, noise)

    def prepare(self) -> None:
        return None

    def expect_prepared(
        self,
        prepared: None,
        x: Any,
        weight: Float[Array, " rows"],
        *,
        temperature: Float[Array, ""],
        incomplete: bool,
    ) -> tuple[StateSpaceStatistics, Float[Array, ""]]:
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
        initial = expected_sums(begins, mean, one, covariance, jnp.zeros((len(real), 0, 0), kind), None)
        moving = inputs[1:] if self.input_transition is not None else inputs[1:, :0]
        known = jnp.concatenate([moving, one[1:]], axis=1)
        transition = expected_sums(
            moves, later.mean, known, later.covariance, earlier.covariance, earlier.mean, cross
        )
        # the entries that were not observed are linear in the state
        G, g, rest = self._completion(series)
        filled = jnp.einsum("tmn,tn->tm", G, mean) + g
        along = jnp.einsum("tmn,tnk->tmk", G, covariance)
        spread = jnp.einsum("tmk,tlk->tml", along, G) + rest
        beside = inputs if self.input_emission is not None else inputs[:, :0]
        known = jnp.concatenate([beside, one], axis=1)
        emission = expected_sums(seen, filled, known, spread, covariance, mean, along.swapaxes(1, 2))
        return StateSpaceStatistics(initial, transition, emission)

    def maximise(self, statistics: StateSpaceStatistics) -> LinearGaussianSSM:
        n, m, learned = self.latent_dim, self.mean.shape[0], self.learned
        begin, move, see = statistics
        mean, initial = begin.fit(
            self.initial_mean[:, None], (learned.initial,), self.initial_covariance, learned.initial
        )
        inputs = jnp.zeros((n, 0)) if self.input_transition is None else self.input_transition
        if self._varies:
            raise ValueError("EM needs a system that is the same at all steps. Learn this one by gradient.")
        held = jnp.concatenate([self.transition, inputs, self.offset[:, None]], axis=1)
        mask = (learned.transition,) * (n + inputs.shape[1]) + (learned.offset,)
        W, noise = move.fit(held, mask, self.noise, learned.noise)
        sees = jnp.zeros((m, 0)) if self.input_emission is None else self.input_emission
        held = jnp.concatenate([self.emission, sees, self.mean[:, None]], axis=1)
        mask = (learned.emission,) * (n + sees.shape[1]) + (learned.mean,)
        V, emission_noise = see.fit(held, mask, self.emission_noise, learned.emission_noise)
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

    @eqx.filter_jit
    def in_units(
        self,
        shift: Array,
        scale: Array,
        input_shift: Array | None = None,
        input_scale: Array | None = None,
    ) -> LinearGaussianSSM:
        """The law of shift + scale · y given input_shift + input_scale · u, with the same states.

        What the mean of the inputs did is in a and c, which had been those of inputs about zero.
        """
        units = input_shift, input_scale
        B, a = in_units_of_inputs(self.input_transition, self.offset, *units)
        D, c = in_units_of_inputs(self.input_emission, self.mean, *units)
        return dataclasses.replace(
            self,
            offset=a,
            emission=self.emission * scale[:, None],
            mean=shift + scale * c,
            emission_noise=self.emission_noise.scale(scale),
            input_transition=B,
            input_emission=None if D is None else D * scale[:, None],
        )


class AbstractLinearSystem(AbstractSequenceModel):
    """A model of series that is a linear system with Gaussian noise, in parameters of its own."""

    @abc.abstractmethod
    def system(self, inputs: Float[Array, "time inputs"] | None = None) -> LinearGaussianSSM:
        """The same model as a linear system, for series with these inputs."""

    def predicted(self, series: Series) -> GaussianBelief:
        """p(y_t | y_{<t}) for each step."""
        return self.system(series.inputs).predicted(series)

    def log_prob(self, series: Series) -> Float[Array, ""]:
        """log p(y), with the convention of `LinearGaussianSSM.log_prob` for a diffuse start."""
        return self.system(series.inputs).log_prob(series)

    def step_evidence(self, series: Series, *, incomplete: bool = True) -> Float[Array, " time"]:
        return self.system(series.inputs).step_evidence(series, incomplete=incomplete)

    def complete_mean(self, series: Series) -> Float[Array, "time dim"]:
        return self.system(series.inputs).complete_mean(series)

    def complete_sample(self, series: Series, *, key: Array) -> Float[Array, "time dim"]:
        return self.system(series.inputs).complete_sample(series, key=key)


def _driven(
    constant: Float[Array, " size"],
    matrix: Float[Array, "size inputs"] | None,
    inputs: Float[Array, "time inputs"] | None,
    length: int,
) -> Float[Array, "time size"]:
    """A constant and what the inputs add to it, for each step."""
    steps = jnp.broadcast_to(constant, (length, *constant.shape))
    if matrix is None:
        return steps
    if inputs is None:
        raise ValueError("A linear system with inputs needs those of every time step. Got None.")
    return steps + inputs @ matrix.T


def _coloured(
    covariance: Float[Array, "*time size size"], noise: Float[Array, "steps size"]
) -> Float[Array, "steps size"]:
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
