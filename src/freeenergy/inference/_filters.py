"""Filters for chains that are not linear and Gaussian: linearised beliefs and particles."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, UInt32

from ._chain import AbstractBeliefs
from ._chain_gaussian import GaussianBelief, GaussianKernel, GaussianPair, LinearGaussianBeliefs
from ._importance import effective_sample_size
from ._measurements import LinearStep, measure
from ._semidefinite import product, root_semidefinite, solve_semidefinite, symmetric


class Observed(NamedTuple):
    """What belongs to one time step of a chain with any transition and emission.

    Attributes:
        value: y_t, NaN where not observed.
        inputs: whatever else the transition into t and the emission at t depend on.
    """

    value: Float[Array, "*time dim"]
    inputs: Any = None


class AbstractLinearisation(eqx.Module):
    """f(x) ≈ M x + m + e for x ~ N(μ, P): how a function is replaced by a linear one."""

    @abc.abstractmethod
    def __call__(
        self, function: Callable[[Float[Array, " state"]], Float[Array, " dim"]], belief: GaussianBelief
    ) -> tuple[Float[Array, "dim state"], Float[Array, " dim"], Float[Array, "dim dim"]]:
        """M, m and the covariance of e."""


class Taylor(AbstractLinearisation):
    """The tangent at the mean: with it `LinearisedBeliefs` is the extended Kalman filter (EKF).

    >>> M, m, _ = Taylor()(lambda x: x**2, GaussianBelief(jnp.array([3.0]), jnp.eye(1)))
    >>> M.tolist(), m.tolist()
    ([[6.0]], [-9.0])
    """

    def __call__(
        self, function: Callable[[Float[Array, " state"]], Float[Array, " dim"]], belief: GaussianBelief
    ) -> tuple[Float[Array, "dim state"], Float[Array, " dim"], Float[Array, "dim dim"]]:
        slope = jax.jacfwd(function)(belief.mean)
        value = function(belief.mean)
        return slope, value - product(slope, belief.mean), jnp.zeros((len(value), len(value)), value.dtype)


class Unscented(AbstractLinearisation):
    """The regression line through 2n + 1 points with the moments of the belief.

    With it `LinearisedBeliefs` is the unscented Kalman filter (UKF), also known as sigma-point filter.

    Points μ ± √(n + κ) L e_i with weights 1 / 2(n + κ), and μ with κ / (n + κ).

    Attributes:
        kappa: κ; n + κ = 3 makes the fourth moments right in one dimension.

    >>> M, m, rest = Unscented(kappa=2.0)(lambda x: x**2, GaussianBelief(jnp.array([3.0]), jnp.eye(1)))
    >>> [round(float(v), 6) for v in (M[0, 0], m[0], rest[0, 0])]
    [6.0, -8.0, 2.0]
    """

    kappa: float = 1.0

    def __call__(
        self, function: Callable[[Float[Array, " state"]], Float[Array, " dim"]], belief: GaussianBelief
    ) -> tuple[Float[Array, "dim state"], Float[Array, " dim"], Float[Array, "dim dim"]]:
        n = len(belief.mean)
        spread = jnp.sqrt(n + self.kappa) * root_semidefinite(belief.covariance).T
        points = belief.mean[None] + jnp.concatenate([jnp.zeros_like(spread[:1]), spread, -spread])
        weights = jnp.full(2 * n + 1, 0.5 / (n + self.kappa)).at[0].set(self.kappa / (n + self.kappa))
        values = jax.vmap(function)(points)
        mean = weights @ values
        gap, away = values - mean[None], points - belief.mean[None]
        across = (away * weights[:, None]).T @ gap
        slope = solve_semidefinite(belief.covariance, across).T
        rest = (gap * weights[:, None]).T @ gap - slope @ across
        return slope, mean - product(slope, belief.mean), symmetric(rest)


class LinearisedBeliefs(AbstractBeliefs):
    """x_t = f(x_{t−1}, u_t) + N(0, Q), y_t = h(x_t, u_t) + N(0, R), made linear at each belief.

    The extended (`Taylor`) or unscented (`Unscented`) Kalman filter and smoother.

    Exact for linear f and h; otherwise approximate, and so are its evidences.

    Attributes:
        transition: f(x, inputs).
        noise: Q.
        emission: h(x, inputs).
        emission_noise: R.
        linearisation: `Taylor()` or `Unscented()`.
    """

    transition: Callable[[Array, Any], Array]
    noise: Float[Array, "state state"]
    emission: Callable[[Array, Any], Array]
    emission_noise: Float[Array, "dim dim"]
    linearisation: AbstractLinearisation = Taylor()

    def _moves(self, belief: GaussianBelief, step: Observed) -> LinearGaussianBeliefs:
        A, a, rest = self.linearisation(lambda x: self.transition(x, step.inputs), belief)
        return LinearGaussianBeliefs(LinearStep(A, a, self.noise + rest))

    def predict(self, belief: GaussianBelief, step: Observed) -> GaussianBelief:
        return self._moves(belief, step).predict(belief, LinearStep())

    def update(self, predicted: GaussianBelief, step: Observed) -> tuple[GaussianBelief, Float[Array, ""]]:
        C, c, rest = self.linearisation(lambda x: self.emission(x, step.inputs), predicted)
        seen = measure(C, c, self.emission_noise + rest, step.value)
        return _LINEAR.update(predicted, seen)

    def reverse(self, belief: GaussianBelief, predicted: GaussianBelief, step: Observed) -> GaussianKernel:
        return self._moves(belief, step).reverse(belief, predicted, LinearStep())

    def back(self, smoothed: GaussianBelief, kernel: GaussianKernel) -> tuple[GaussianBelief, GaussianPair]:
        return _LINEAR.back(smoothed, kernel)

    def forward(self, pair: GaussianPair) -> GaussianKernel:
        return _LINEAR.forward(pair)

    def sample(self, belief: GaussianBelief, *, key: Array) -> Float[Array, " state"]:
        return _LINEAR.sample(belief, key=key)

    def sample_back(
        self, state: Float[Array, " state"], kernel: GaussianKernel, *, key: Array
    ) -> Float[Array, " state"]:
        return _LINEAR.sample_back(state, kernel, key=key)


_LINEAR = LinearGaussianBeliefs(LinearStep())


class AbstractResampler(eqx.Module):
    """Draws as many particles as there are, each about in proportion to its weight, without bias."""

    @abc.abstractmethod
    def __call__(self, log_weight: Float[Array, " particles"], *, key: Array) -> Int[Array, " particles"]:
        """The number of the parent of each new particle; `log_weight` is normalised."""


class Multinomial(AbstractResampler):
    """Independent draws: multinomial resampling.

    >>> Multinomial()(jnp.log(jnp.array([1.0, 0.0, 0.0])), key=jax.random.key(0)).tolist()
    [0, 0, 0]
    """

    def __call__(self, log_weight: Float[Array, " particles"], *, key: Array) -> Int[Array, " particles"]:
        return jax.random.categorical(key, log_weight, shape=log_weight.shape)


def _inverse(
    log_weight: Float[Array, " particles"], points: Float[Array, " particles"]
) -> Int[Array, " particles"]:
    """The particles at which the summed weights pass sorted or unsorted `points` in [0, 1)."""
    edges = jnp.cumsum(jnp.exp(log_weight))
    place = jnp.searchsorted(edges / edges[-1], points, side="right")
    return jnp.minimum(place, len(log_weight) - 1)


class Stratified(AbstractResampler):
    """One draw in each of equal parts of [0, 1).

    >>> Stratified()(jnp.log(jnp.array([0.5, 0.5])), key=jax.random.key(0)).tolist()
    [0, 1]
    """

    def __call__(self, log_weight: Float[Array, " particles"], *, key: Array) -> Int[Array, " particles"]:
        n = len(log_weight)
        shifts = jax.random.uniform(key, (n,), log_weight.dtype)
        return _inverse(log_weight, (jnp.arange(n, dtype=shifts.dtype) + shifts) / n)


class Systematic(AbstractResampler):
    """Equally spaced points with one random shift: the numbers of children differ least.

    >>> w = jnp.log(jnp.array([0.5, 0.25, 0.25, 0.0]))
    >>> Systematic()(w, key=jax.random.key(0)).tolist()
    [0, 0, 1, 2]
    """

    def __call__(self, log_weight: Float[Array, " particles"], *, key: Array) -> Int[Array, " particles"]:
        n = len(log_weight)
        shift = jax.random.uniform(key, (), log_weight.dtype)
        return _inverse(log_weight, (jnp.arange(n, dtype=shift.dtype) + shift) / n)


class Residual(AbstractResampler):
    """⌊n w⌋ children for sure; what is left is drawn independently.

    >>> Residual()(jnp.log(jnp.array([0.5, 0.5])), key=jax.random.key(0)).tolist()
    [0, 1]
    """

    def __call__(self, log_weight: Float[Array, " particles"], *, key: Array) -> Int[Array, " particles"]:
        n = len(log_weight)
        expected = n * jnp.exp(log_weight - jax.nn.logsumexp(log_weight))
        # weights such as 1/n must not lose a child to rounding
        sure = jnp.floor(expected + 1e-9)
        left = jnp.maximum(expected - sure, 0)
        ends = jnp.cumsum(sure)
        place = jnp.arange(n, dtype=ends.dtype)
        fixed = jnp.minimum(jnp.searchsorted(ends, place, side="right"), n - 1)
        # where nothing is left every place is sure, and what is drawn is not used
        rest = jnp.where(jnp.sum(left) > 0, left, 1.0)
        drawn = jax.random.categorical(key, jnp.log(rest), shape=(n,))
        return jnp.where(place < ends[-1], fixed, drawn.astype(fixed.dtype))


class Particles(NamedTuple):
    """Weighted points, and what seeds the next draws.

    Attributes:
        states: a tree of arrays with a point each along the leading axis.
        log_weight: normalised.
        seed: numbers of a random key.
    """

    states: Any
    log_weight: Float[Array, "*time particles"]
    seed: UInt32[Array, "*time seed"]


class ParticleKernel(NamedTuple):
    """The points at t−1 with their weights, the points at t, and the step between them."""

    earlier: Any
    log_weight: Float[Array, "*time particles"]
    later: Any
    step: Any


class ParticleBeliefs(AbstractBeliefs):
    """Beliefs as weighted points, for any transition that can be sampled and any emission density.

    Also known as the particle filter, bootstrap filter, sequential Monte Carlo (SMC) or sequential
    importance resampling (SIR); its smoother as forward filtering, backward smoothing (FFBSm).

    Only `predict` draws: parents by their weights, children from the transition.  The product of the
    evidences is an unbiased estimate of p(y).  The smoother gives the same points new weights, which
    takes the density of the transition and work in the square of the number of particles.

    Attributes:
        transition: draws x_t given x_{t−1}: `transition(x, inputs, key)`.
        emission: `emission(x, inputs, value)` = log p(y_t | x_t).
        density: `density(new, old, inputs)` = log p(x_t | x_{t−1}), for smoothing.
        resampler: how parents are chosen.
        threshold: parents are chosen when the effective sample size is below this share; at 1 always.
    """

    transition: Callable[[Any, Any, Array], Any]
    emission: Callable[[Any, Any, Array], Array]
    density: Callable[[Any, Any, Any], Array] | None = None
    resampler: AbstractResampler = Systematic()
    threshold: float = 1.0

    def start(self, states: Any, *, key: Array) -> Particles:
        """Draws from p(x_1) as the belief before the first observation."""
        n = len(jax.tree.leaves(states)[0])
        return Particles(states, jnp.full(n, -jnp.log(float(n))), jax.random.key_data(key))

    def predict(self, belief: Particles, step: Observed) -> Particles:
        n = len(belief.log_weight)
        key, choose, move = jax.random.split(jax.random.wrap_key_data(belief.seed), 3)
        parents = self.resampler(belief.log_weight, key=choose)
        few = effective_sample_size(belief.log_weight) <= self.threshold * n
        parents = jnp.where(few, parents, jnp.arange(n, dtype=parents.dtype))
        weight = jnp.where(few, -jnp.log(float(n)), belief.log_weight)
        old = jax.tree.map(lambda a: a[parents], belief.states)
        new = jax.vmap(lambda x, k: self.transition(x, step.inputs, k))(old, jax.random.split(move, n))
        return Particles(new, weight, jax.random.key_data(key))

    def update(self, predicted: Particles, step: Observed) -> tuple[Particles, Float[Array, ""]]:
        fit = jax.vmap(lambda x: self.emission(x, step.inputs, step.value))(predicted.states)
        joint = predicted.log_weight + fit
        gain = jax.nn.logsumexp(joint)
        return predicted._replace(log_weight=joint - gain), gain

    def _log_move(self, new: Any, old: Any, step: Observed) -> Float[Array, ""]:
        if self.density is None:
            raise ValueError(
                "ParticleBeliefs needs the 'density' of the transition to smooth. Got None instead."
            )
        return self.density(new, old, step.inputs)

    def reverse(self, belief: Particles, predicted: Particles, step: Observed) -> ParticleKernel:
        return ParticleKernel(belief.states, belief.log_weight, predicted.states, step)

    def _from(self, state: Any, kernel: ParticleKernel) -> Float[Array, " particles"]:
        """log p(x_{t−1} | x_t = state) of each earlier point."""
        moves = jax.vmap(lambda old: self._log_move(state, old, kernel.step))(kernel.earlier)
        return jax.nn.log_softmax(kernel.log_weight + moves)

    def back(
        self, smoothed: Particles, kernel: ParticleKernel
    ) -> tuple[Particles, Float[Array, "particles particles"]]:
        # [k, j]: the later point k came from the earlier point j
        came = jax.vmap(lambda new: self._from(new, kernel))(kernel.later)
        pair = came + smoothed.log_weight[:, None]
        weight = jax.nn.logsumexp(pair, axis=0)
        return Particles(kernel.earlier, weight, smoothed.seed), pair.T

    def forward(self, pair: Float[Array, "particles particles"]) -> Float[Array, "particles particles"]:
        """log p(later point | earlier point), a row for each earlier point."""
        return jax.nn.log_softmax(pair, axis=1)

    def sample(self, belief: Particles, *, key: Array) -> Any:
        place = jax.random.categorical(key, belief.log_weight)
        return jax.tree.map(lambda a: a[place], belief.states)

    def sample_back(self, state: Any, kernel: ParticleKernel, *, key: Array) -> Any:
        place = jax.random.categorical(key, self._from(state, kernel))
        return jax.tree.map(lambda a: a[place], kernel.earlier)
