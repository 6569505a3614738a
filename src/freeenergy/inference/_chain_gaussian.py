"""Chains with Gaussian states: Kalman filtering and smoothing as an algebra of beliefs.

    x_t = A_t x_{t−1} + a_t + w_t,  w_t ~ N(0, Q_t),        y_t = C_t x_t + c_t + ε_t,  ε_t ~ N(0, R_t).

An observation is a number of independent scalar measurements, as `measure` or `collapse` makes them.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ._chain import AbstractBeliefs, choose
from ._chain_blocks import AbstractBlockBeliefs
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
    solve_semidefinite,
    solve_unit_lower,
    symmetric,
)


class GaussianBelief(NamedTuple):
    """N(mean, covariance) of a state, or one for each time step.

    >>> GaussianBelief(jnp.zeros(2), jnp.eye(2)).mean.tolist()
    [0.0, 0.0]
    """

    mean: Float[Array, "*time state"]
    covariance: Float[Array, "*time state state"]


class GaussianPair(NamedTuple):
    """The joint of x_{t−1} and x_t; `cross` is Cov(x_{t−1}, x_t)."""

    earlier: GaussianBelief
    later: GaussianBelief
    cross: Float[Array, "*time state state"]


class GaussianKernel(NamedTuple):
    """A state given its neighbour: N(gain x + offset, covariance)."""

    gain: Float[Array, "*time state state"]
    offset: Float[Array, "*time state"]
    covariance: Float[Array, "*time state state"]


class GaussianElement(NamedTuple):
    """A stretch of the chain, as a function of an unknown u that it started from.

        p(x | u, y) = N(M u + m, P),      log p(y | u) = constant + sᵀu − ½ uᵀS u.

    With u the state before the stretch, stretches combine.

    Attributes:
        loading: M.
        mean: m.
        covariance: P.
        score: s.
        information: S.
        constant: log p(y | u = 0).
    """

    loading: Float[Array, "*time state unknown"]
    mean: Float[Array, "*time state"]
    covariance: Float[Array, "*time state state"]
    score: Float[Array, "*time unknown"]
    information: Float[Array, "*time unknown unknown"]
    constant: Float[Array, "*time"]


class AbstractGaussianBeliefs(AbstractBeliefs):
    """Beliefs about a Gaussian state, in whatever form they are kept.

    Attributes:
        fixed: what is the same at all steps; a step says the rest.
    """

    fixed: eqx.AbstractVar[LinearStep]

    @abc.abstractmethod
    def moments(self, belief: Any) -> GaussianBelief:
        """A belief with its mean and covariance."""

    @abc.abstractmethod
    def pair(self, pair: Any) -> GaussianPair:
        """A pair of beliefs, as `back` returns it, with means and covariances."""


class LinearGaussianBeliefs(AbstractBlockBeliefs, AbstractGaussianBeliefs):
    """Kalman's recursions on means and covariances.

    With `filter` the Kalman filter, with `smooth` the Rauch–Tung–Striebel smoother, with `sample_paths`
    forward filtering, backward sampling (a simulation smoother).

    Attributes:
        fixed: what is the same at all steps; a step says the rest.

    >>> from freeenergy.inference import measure
    >>> one = jnp.ones((1, 1))
    >>> chain = LinearGaussianBeliefs(LinearStep(one, jnp.zeros(1), one))
    >>> step = measure(one, jnp.zeros(1), one, jnp.array([1.0]))
    >>> belief, gain = chain.update(GaussianBelief(jnp.zeros(1), 2 * one), step)
    >>> round(float(belief.mean[0]), 6), round(float(belief.covariance[0, 0]), 6), round(float(gain), 6)
    (0.666667, 0.666667, -1.634911)
    """

    fixed: LinearStep

    def moments(self, belief: GaussianBelief) -> GaussianBelief:
        return belief

    def pair(self, pair: GaussianPair) -> GaussianPair:
        return pair

    def predict(self, belief: GaussianBelief, step: LinearStep) -> GaussianBelief:
        return moved(belief, step.filled(self.fixed))

    def update(
        self, predicted: GaussianBelief, step: LinearStep
    ) -> tuple[GaussianBelief, Float[Array, ""]]:
        s = step.filled(self.fixed)

        def body(carry: tuple[Array, Array, Array], i: Any) -> tuple[Array, Array, Array]:
            mean, covariance, gain = carry
            h, r, z, o = s.measurement(i)
            along = product(covariance, h) * o
            size = dot(h * h, jnp.diagonal(predicted.covariance))
            variance, certain = innovation(dot(h, along), r, o, rounding(h) * size)
            error = (z - dot(h, mean)) * o
            step = jnp.where(certain, 0, along / variance)
            gain = gain - 0.5 * surprise(error, variance, certain, resolution(h, z, mean, size))
            return mean + step * error, shrunk(covariance, step, along, r), gain

        carry = (predicted.mean, predicted.covariance, s.constant)
        mean, covariance, gain = repeat(body, carry, len(s.value))
        return GaussianBelief(mean, covariance), gain

    def reverse(
        self, belief: GaussianBelief, predicted: GaussianBelief, step: LinearStep
    ) -> GaussianKernel:
        s = step.filled(self.fixed)
        gain = solve_semidefinite(predicted.covariance, product(s.transition, belief.covariance)).T
        # (I − JA) P (I − JA)ᵀ + J Q Jᵀ is a sum of squares; P − J A P is not once rounded
        left = jnp.eye(len(belief.mean), dtype=belief.mean.dtype) - product(gain, s.transition)
        rest = congruence(left, belief.covariance, small_product)
        rest = rest + congruence(gain, s.noise, small_product)
        return GaussianKernel(gain, belief.mean - product(gain, predicted.mean), rest)

    def back(self, smoothed: GaussianBelief, kernel: GaussianKernel) -> tuple[GaussianBelief, GaussianPair]:
        spread = small_product(kernel.gain, smoothed.covariance)
        covariance = small_product(spread, kernel.gain.T) + kernel.covariance
        mean = product(kernel.gain, smoothed.mean) + kernel.offset
        earlier = GaussianBelief(mean, symmetric(covariance))
        return earlier, GaussianPair(earlier, smoothed, spread)

    def forward(self, pair: GaussianPair) -> GaussianKernel:
        return forward_kernel(pair)

    def sample(self, belief: GaussianBelief, *, key: Array) -> Float[Array, " state"]:
        return draw_gaussian(belief.mean, root_semidefinite(belief.covariance), key)

    def sample_back(
        self, state: Float[Array, " state"], kernel: GaussianKernel, *, key: Array
    ) -> Float[Array, " state"]:
        mean = product(kernel.gain, state) + kernel.offset
        return draw_gaussian(mean, root_semidefinite(kernel.covariance), key)

    def unit(self, belief: GaussianBelief) -> GaussianElement:
        return _unit(belief.mean)

    def advance(self, element: GaussianElement, step: LinearStep) -> GaussianElement:
        s = step.filled(self.fixed)
        mean, covariance = moved(self.belief(element), s)
        return element._replace(
            loading=product(s.transition, element.loading), mean=mean, covariance=covariance
        )

    def absorb(self, element: GaussianElement, step: LinearStep) -> GaussianElement:
        s = step.filled(self.fixed)

        def body(e: GaussianElement, i: Any) -> GaussianElement:
            h, r, z, o = s.measurement(i)
            along = product(e.covariance, h) * o
            # zero, and all then NaN, if the unknown alone were measured: no finite information says it
            variance = (dot(h, along) + r) * o + (1 - o)
            error = (z - dot(h, e.mean)) * o
            step = along / variance
            seen = product(e.loading.T, h) * o
            scaled = seen / variance
            return GaussianElement(
                e.loading - outer(step, seen),
                e.mean + step * error,
                shrunk(e.covariance, step, along, r),
                e.score + scaled * error,
                e.information + outer(scaled, seen),
                e.constant - 0.5 * (jnp.log(variance) + error * error / variance),
            )

        return repeat(body, element._replace(constant=element.constant + s.constant), len(s.value))

    def recede(self, element: GaussianElement, kernel: GaussianKernel) -> GaussianElement:
        return element._replace(
            loading=small_product(kernel.gain, element.loading),
            mean=product(kernel.gain, element.mean) + kernel.offset,
            covariance=congruence(kernel.gain, element.covariance, small_product) + kernel.covariance,
        )

    def element(self, step: LinearStep, observed: Bool[Array, ""]) -> GaussianElement:
        later = self.advance(_unit(step.filled(self.fixed).offset), step)
        return choose(observed, self.absorb(later, step), later)

    def certain(self, belief: GaussianBelief) -> GaussianElement:
        n = len(belief.mean)
        zero = jnp.zeros((n, n), belief.mean.dtype)
        return GaussianElement(zero, *belief, zero[0], zero, zero[0, 0])

    def from_kernel(self, kernel: GaussianKernel) -> GaussianElement:
        zero = jnp.zeros_like(kernel.gain)
        return GaussianElement(*kernel, zero[0], zero, zero[0, 0])

    def combine(self, first: GaussianElement, second: GaussianElement) -> GaussianElement:
        # with P = L Lᵀ of the first and S of the second, I + LᵀSL is at least one
        root = root_semidefinite(first.covariance)
        n = len(first.mean)
        eye = jnp.eye(n, dtype=first.mean.dtype)
        inner = eye + product(product(root.T, second.information), root)
        lower, pivots = factor_semidefinite(symmetric(inner))
        half = solve_unit_lower(lower, root.T) / jnp.sqrt(pivots)[:, None]
        # the covariance of the state between both, given what the second saw
        between = product(half.T, half)
        shrink = eye - product(between, second.information)
        news = second.score - product(second.information, first.mean)
        middle = first.mean + product(between, news)
        seen = product(second.information, product(shrink, first.loading))
        constant = (
            first.constant
            + second.constant
            + dot(second.score, first.mean)
            - 0.5 * dot(first.mean, product(second.information, first.mean))
            + 0.5 * dot(news, product(between, news))
            - 0.5 * jnp.sum(jnp.log(pivots))
        )
        information = first.information + product(first.loading.T, seen)
        return GaussianElement(
            product(second.loading, product(shrink, first.loading)),
            product(second.loading, middle) + second.mean,
            congruence(second.loading, between) + second.covariance,
            first.score + product(first.loading.T, product(shrink.T, news)),
            symmetric(information),
            constant,
        )

    def belief(self, element: GaussianElement) -> GaussianBelief:
        return GaussianBelief(element.mean, element.covariance)


def moved(belief: GaussianBelief, s: Any) -> GaussianBelief:
    """A x + a + w for a state x and a step that is filled."""
    mean = product(s.transition, belief.mean) + s.offset
    return GaussianBelief(mean, congruence(s.transition, belief.covariance) + s.noise)


def draw_gaussian(
    mean: Float[Array, " state"], root: Float[Array, "state state"], key: Array
) -> Float[Array, " state"]:
    """A draw of N(mean, root rootᵀ)."""
    return mean + product(root, jax.random.normal(key, mean.shape, mean.dtype))


def forward_kernel(pair: GaussianPair) -> GaussianKernel:
    """p(x_t | x_{t−1}, y) from the joint."""
    gain = solve_semidefinite(pair.earlier.covariance, pair.cross).T
    rest = pair.later.covariance - product(gain, pair.cross)
    return GaussianKernel(gain, pair.later.mean - product(gain, pair.earlier.mean), symmetric(rest))


def _unit(like: Float[Array, " state"]) -> GaussianElement:
    """The element of no steps for states of the shape of `like`."""
    n = len(like)
    zero = jnp.zeros((n, n), like.dtype)
    return GaussianElement(jnp.eye(n, dtype=like.dtype), zero[0], zero, zero[0], zero, zero[0, 0])


def state_disturbance(
    pair: GaussianPair, A: Float[Array, "state state"], a: Float[Array, " state"]
) -> GaussianBelief:
    """w_t = x_t − A x_{t−1} − a given all observations: half of the disturbance smoother.

    >>> still = GaussianBelief(jnp.ones(1), jnp.eye(1))
    >>> state_disturbance(GaussianPair(still, still, jnp.eye(1)), jnp.eye(1), jnp.zeros(1)).mean.tolist()
    [0.0]
    """
    earlier, later, cross = pair
    across = product(A, cross)
    spread = later.covariance + congruence(A, earlier.covariance) - across - across.T
    return GaussianBelief(later.mean - product(A, earlier.mean) - a, spread)


def observation_disturbance(
    smoothed: GaussianBelief, C: Float[Array, "dim state"], c: Float[Array, " dim"], y: Float[Array, " dim"]
) -> GaussianBelief:
    """ε_t = y_t − C x_t − c given all observations; NaN where y_t was not observed.

    >>> state = GaussianBelief(jnp.ones(1), jnp.eye(1))
    >>> observation_disturbance(state, jnp.eye(1), jnp.zeros(1), jnp.array([3.0])).mean.tolist()
    [2.0]
    """
    return GaussianBelief(y - product(C, smoothed.mean) - c, congruence(C, smoothed.covariance))
