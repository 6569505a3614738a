"""Chains with Gaussian states, by square roots of covariances."""

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
)
from ._measurements import LinearStep, innovation, resolution, rounding, surprise
from ._semidefinite import (
    dot,
    outer,
    product,
    repeat,
    root_semidefinite,
    safe_sqrt,
    solve_semidefinite,
    triangularise,
)


class RootBelief(NamedTuple):
    """N(mean, root rootᵀ)."""

    mean: Float[Array, "*time state"]
    root: Float[Array, "*time state state"]


class SquareRootBeliefs(AbstractGaussianBeliefs):
    """Kalman's recursions on square roots of covariances, for ill-conditioned problems.

    P = S Sᵀ cannot lose its sign, and S has only the square root of the condition number of P.  But a root
    has no slope in a variance of zero: take that of the evidence with `LinearGaussianBeliefs`.

    Also known as the square-root Kalman filter: Potter's for measurements, an array algorithm for time.
    """

    fixed: LinearStep

    def start(self, belief: GaussianBelief) -> RootBelief:
        """A belief with its root."""
        return RootBelief(belief.mean, root_semidefinite(belief.covariance))

    def moments(self, belief: RootBelief) -> GaussianBelief:
        """A belief with its covariance."""
        return GaussianBelief(belief.mean, product(belief.root, belief.root.T))

    def pair(self, pair: GaussianPair) -> GaussianPair:
        """Itself: `back` returns covariances."""
        return pair

    def predict(self, belief: RootBelief, step: LinearStep) -> RootBelief:
        s = step.filled(self.fixed)
        both = jnp.concatenate([product(s.transition, belief.root), root_semidefinite(s.noise)], axis=1)
        return RootBelief(product(s.transition, belief.mean) + s.offset, triangularise(both))

    def update(self, predicted: RootBelief, step: LinearStep) -> tuple[RootBelief, Float[Array, ""]]:
        s = step.filled(self.fixed)

        def body(carry: tuple[Array, Array, Array], i: Any) -> tuple[Array, Array, Array]:
            mean, root, gain = carry
            h, r, z, o = s.measurement(i)
            seen = product(root.T, h) * o
            size = dot(h * h, jnp.sum(predicted.root**2, axis=1))
            # a root resolves what is smaller than rounding of a variance
            variance, certain = innovation(dot(seen, seen), r, o, rounding(h) ** 2 * size)
            error = (z - dot(h, mean)) * o
            along = jnp.where(certain, 0, product(root, seen))
            # Potter's update of the root
            share = 1 / (variance + safe_sqrt(r * variance * o))
            gain = gain - 0.5 * surprise(error, variance, certain, resolution(h, z, mean, size))
            return mean + along * (error / variance), root - share * outer(along, seen), gain

        carry = (predicted.mean, predicted.root, s.constant)
        mean, root, gain = repeat(body, carry, len(s.value))
        return RootBelief(mean, root), gain

    def reverse(self, belief: RootBelief, predicted: RootBelief, step: LinearStep) -> GaussianKernel:
        """As of moments, with a root in place of the covariance."""
        s = step.filled(self.fixed)
        across = product(product(s.transition, belief.root), belief.root.T)
        spread = product(predicted.root, predicted.root.T)
        gain = solve_semidefinite(spread, across).T
        left = jnp.eye(len(belief.mean), dtype=belief.mean.dtype) - product(gain, s.transition)
        parts = [product(left, belief.root), product(gain, root_semidefinite(s.noise))]
        root = triangularise(jnp.concatenate(parts, axis=1))
        return GaussianKernel(gain, belief.mean - product(gain, predicted.mean), root)

    def back(self, smoothed: RootBelief, kernel: GaussianKernel) -> tuple[RootBelief, GaussianPair]:
        along = product(kernel.gain, smoothed.root)
        root = triangularise(jnp.concatenate([along, kernel.covariance], axis=1))
        earlier = RootBelief(product(kernel.gain, smoothed.mean) + kernel.offset, root)
        cross = product(along, smoothed.root.T)
        return earlier, GaussianPair(self.moments(earlier), self.moments(smoothed), cross)

    def forward(self, pair: GaussianPair) -> GaussianKernel:
        return forward_kernel(pair)

    def sample(self, belief: RootBelief, *, key: Array) -> Float[Array, " state"]:
        return draw_gaussian(belief.mean, belief.root, key)

    def sample_back(
        self, state: Float[Array, " state"], kernel: GaussianKernel, *, key: Array
    ) -> Float[Array, " state"]:
        return draw_gaussian(product(kernel.gain, state) + kernel.offset, kernel.covariance, key)
