"""Chains with Gaussian states of whose start nothing is known in some directions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ._chain_gaussian import (
    AbstractGaussianBeliefs,
    GaussianBelief,
    GaussianKernel,
    GaussianPair,
    draw_gaussian,
    forward_kernel,
    moved,
)
from ._measurements import LinearStep, innovation, resolution, rounding, shrunk, surprise
from ._semidefinite import (
    congruence,
    dot,
    factor_semidefinite,
    outer,
    product,
    repeat,
    root_semidefinite,
    small_product,
    solve_unit_lower,
    symmetric,
)


class DiffuseBelief(NamedTuple):
    """x = m + B δ + e with e ~ N(0, P) and a flat prior for δ.

    Attributes:
        mean: m.
        covariance: P.
        directions: B; a column is zero once its part of δ is known.
    """

    mean: Float[Array, "*time state"]
    covariance: Float[Array, "*time state state"]
    directions: Float[Array, "*time state unknown"]


class DiffusePair(NamedTuple):
    """The joint of x_{t−1} and x_t; `cross` is the covariance of what of them is not flat."""

    earlier: DiffuseBelief
    later: DiffuseBelief
    cross: Float[Array, "*time state state"]


class DiffuseKernel(NamedTuple):
    """A state given its neighbour: N(gain x + offset, covariance), and flat along `directions`."""

    gain: Float[Array, "*time state state"]
    offset: Float[Array, "*time state"]
    covariance: Float[Array, "*time state state"]
    directions: Float[Array, "*time state unknown"]


class DiffuseBeliefs(AbstractGaussianBeliefs):
    """Kalman's recursions with an exact diffuse start: x_1 = m + B δ + e with a flat prior for δ.

    A measurement h · x + ε that depends on δ makes the part of δ along v = Bᵀh known, whatever its noise,
    and nothing is divided by the variance F_* = hᵀP h + r, which may be zero (the exact initial filter of
    Koopman and Durbin, with P_∞ = B Bᵀ held as a root).  A measurement that does not is Kalman's.

    Also known as exact diffuse initialisation; with `smooth` the exact initial state smoother.

    The evidence is the limit of log p(y) + ½ k log κ for δ ~ N(0, κI), where k entries of δ are known.

    References:
        Koopman and Durbin (2000), Fast filtering and smoothing for multivariate state space models.
    """

    fixed: LinearStep

    def start(self, belief: GaussianBelief, directions: Float[Array, "state unknown"]) -> DiffuseBelief:
        """The belief N(mean, covariance) plus the span of the columns of `directions`, B."""
        return DiffuseBelief(*belief, directions)

    def moments(self, belief: DiffuseBelief) -> GaussianBelief:
        """The belief as a Gaussian, with infinite variances where it is flat."""
        flat = jnp.any(belief.directions != 0, axis=1)
        far = jnp.where(flat, jnp.inf, jnp.zeros_like(belief.mean))
        # not `jnp.diag`, whose other entries would be inf × 0
        on = jnp.eye(len(flat), dtype=bool)
        return GaussianBelief(belief.mean, belief.covariance + jnp.where(on, far[:, None], 0))

    def pair(self, pair: DiffusePair) -> GaussianPair:
        return GaussianPair(self.moments(pair.earlier), self.moments(pair.later), pair.cross)

    def predict(self, belief: DiffuseBelief, step: LinearStep) -> DiffuseBelief:
        s = step.filled(self.fixed)
        known = moved(GaussianBelief(belief.mean, belief.covariance), s)
        return DiffuseBelief(*known, product(s.transition, belief.directions))

    def update(self, predicted: DiffuseBelief, step: LinearStep) -> tuple[DiffuseBelief, Float[Array, ""]]:
        s = step.filled(self.fixed)

        def body(carry: tuple[DiffuseBelief, Array], i: Any) -> tuple[DiffuseBelief, Array]:
            belief, gain = carry
            h, r, z, o = s.measurement(i)
            size = dot(h * h, jnp.diagonal(predicted.covariance))
            along, covariance, directions, cost = _diffuse_measurement(belief, h, r, o, size)
            error = (z - dot(h, belief.mean)) * o
            new = DiffuseBelief(belief.mean + along * error, covariance, directions)
            return new, gain - 0.5 * cost(error, resolution(h, z, belief.mean, size))

        return repeat(body, (predicted, s.constant), len(s.value))

    def reverse(self, belief: DiffuseBelief, predicted: DiffuseBelief, step: LinearStep) -> DiffuseKernel:
        """x_t = A x_{t−1} + a + w as measurements of x_{t−1}, one entry after another."""
        s = step.filled(self.fixed)
        n = len(belief.mean)
        lower, variance = factor_semidefinite(s.noise)
        both = jnp.concatenate([s.transition, jnp.eye(n, dtype=s.noise.dtype), s.offset[:, None]], axis=1)
        mixed = solve_unit_lower(lower, both)
        seen = jnp.ones((), s.noise.dtype)

        def body(carry: tuple[DiffuseBelief, Array], i: Any) -> tuple[DiffuseBelief, Array]:
            # the mean is `gain` x_t + `rest.mean`
            rest, gain = carry
            h, value, shift = mixed[i, :n], mixed[i, n:-1], mixed[i, -1]
            size = dot(h * h, jnp.diagonal(belief.covariance))
            along, covariance, directions, _ = _diffuse_measurement(rest, h, variance[i], seen, size)
            mean = rest.mean - along * (shift + dot(h, rest.mean))
            gain = gain + outer(along, value - jnp.sum(h[:, None] * gain, axis=0))
            return DiffuseBelief(mean, covariance, directions), gain

        rest, gain = repeat(body, (belief, jnp.zeros_like(s.noise)), n)
        return DiffuseKernel(gain, *rest)

    def back(self, smoothed: DiffuseBelief, kernel: DiffuseKernel) -> tuple[DiffuseBelief, DiffusePair]:
        gain, offset, rest, directions = kernel
        spread = product(gain, smoothed.covariance)
        covariance = product(spread, gain.T) + rest
        earlier = DiffuseBelief(
            product(gain, smoothed.mean) + offset,
            symmetric(covariance),
            product(gain, smoothed.directions) + directions,
        )
        return earlier, DiffusePair(earlier, smoothed, spread)

    def forward(self, pair: DiffusePair) -> GaussianKernel:
        return forward_kernel(self.pair(pair))

    def sample(self, belief: DiffuseBelief, *, key: Array) -> Float[Array, " state"]:
        """A draw; NaN where the belief is flat, which no draw can be."""
        drawn = draw_gaussian(belief.mean, root_semidefinite(belief.covariance), key)
        return jnp.where(jnp.any(belief.directions != 0, axis=1), jnp.nan, drawn)

    def sample_back(
        self, state: Float[Array, " state"], kernel: DiffuseKernel, *, key: Array
    ) -> Float[Array, " state"]:
        mean = product(kernel.gain, state) + kernel.offset
        return self.sample(DiffuseBelief(mean, kernel.covariance, kernel.directions), key=key)


# a measurement depends on what is unknown if it does by more than this share of what it could
_DEPENDS = 1e-10


def _diffuse_measurement(
    belief: DiffuseBelief,
    h: Float[Array, " state"],
    r: Float[Array, ""],
    o: Float[Array, ""],
    size: Float[Array, ""],
) -> Any:
    """What a measurement h · x + N(0, r) does to a belief: gain, covariance, directions, and a function
    from its error to −2 log p of it without the 2π; nothing unless `o` is one.  `size` is the variance
    that a state had along h."""
    B = belief.directions
    across = product(belief.covariance, h) * o
    ordinary, certain = innovation(dot(h, across), r, o, rounding(h) * size)
    v = jnp.sum(B * h[:, None], axis=0) * o
    most = jnp.max(jnp.abs(h)) * jnp.max(jnp.abs(B))
    depends = jnp.max(jnp.abs(v)) > _DEPENDS * most
    infinite = jnp.where(depends, dot(v, v), 1)
    variance = jnp.where(depends, 1, ordinary)
    # known now: the part of δ along v; a reflection puts it into one column, which is then zero
    step = jnp.where(depends, product(B, v) / infinite, jnp.where(certain, 0, across / variance))
    place = jnp.argmax(jnp.abs(v))
    here = (jnp.arange(len(v)) == place).astype(v.dtype)
    mirror = v + here * jnp.where(dot(here, v) < 0, -1, 1) * jnp.sqrt(infinite)
    turned = B - outer(product(B, mirror), mirror) * (2 / jnp.where(depends, dot(mirror, mirror), 1))
    directions = jnp.where(depends, turned * (1 - here)[None, :], B)
    left = jnp.eye(len(h), dtype=h.dtype) - outer(step, h)
    learned = congruence(left, belief.covariance, small_product) + r * outer(step, step)
    covariance = jnp.where(depends, learned, shrunk(belief.covariance, step, across, r))

    def cost(error: Float[Array, ""], least: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.where(depends, jnp.log(infinite), surprise(error, variance, certain, least))

    return step, covariance, directions, cost
