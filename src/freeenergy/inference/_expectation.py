"""Expectations under a parametrised distribution, and how their gradient is had.

Each object returns a scalar whose value is (an estimate of) E_q[f(z)] and whose derivative in the
parameters of q is (an unbiased estimate of) the derivative of that expectation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..distributions import AbstractDistribution, Gaussian, soften

Integrand = Callable[[Any], Float[Array, ""]]
"""`f(z)`: a scalar function of the unknown."""


class AbstractExpectation(eqx.Module):
    """A way to take E_q[f(z)]."""

    @abc.abstractmethod
    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        """E_q[f(z)], differentiable in the parameters of `q` and of `f`."""


class Enumeration(AbstractExpectation):
    """The exact sum over a finite support: Σ_z q(z) f(z).

    Attributes:
        points: every value that z can take, along the first axis.
    """

    points: PyTree

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        mass = jnp.exp(jax.vmap(q.log_prob)(self.points))
        values = jax.vmap(f)(self.points)
        # a point without mass may have infinite energy: 0 · ∞ counts zero
        return jnp.sum(jnp.where(mass > 0, mass * jnp.where(mass > 0, values, 0), 0))


class Quadratic(AbstractExpectation):
    """E[f] = f(m) + ½ tr(∇²f(m) Σ): exact for a Gaussian q and f at most quadratic in z."""

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        assert isinstance(q, Gaussian)
        curvature = jax.hessian(f)(q.mean)
        return f(q.mean) + 0.5 * jnp.sum(curvature * q.covariance.matrix())


class Pathwise(AbstractExpectation):
    """The mean of f over draws that are differentiable functions of the parameters of q."""

    samples: int = eqx.field(static=True, default=1)

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        if self.samples == 1:  # a batch of one would cost a key and an axis in every layer
            return f(q.sample(key=key))
        keys = jax.random.split(key, self.samples)
        return jnp.mean(jax.vmap(lambda k: f(q.sample(key=k)))(keys))


class Split(AbstractExpectation):
    """E_q[f] = E_q[f − g] + E_q[g], where `exact` can average g and `rest` estimates what is left.

    A VAE averages the energy of its prior this way, which takes that part of the noise out of the
    gradient.

    Attributes:
        part: g, a function of z.
        exact: averages g.
        rest: averages f − g.
    """

    part: Integrand
    exact: AbstractExpectation = Quadratic()
    rest: AbstractExpectation = Pathwise()

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        left = self.rest(lambda z: f(z) - self.part(z), q, key=key)
        return left + self.exact(self.part, q, key=key)


class ScoreFunction(AbstractExpectation):
    """The log-derivative estimator ∇E_q f = E_q[(f − b) ∇log q], for any q.

    The baseline b of a draw is the mean of f over the other draws (or `baseline` if there is only
    one), which leaves the estimate unbiased and lowers its variance.
    """

    samples: int = eqx.field(static=True, default=8)
    baseline: float | Array = 0.0

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        keys = jax.random.split(key, self.samples)
        draws = jax.lax.stop_gradient(jax.vmap(lambda k: q.sample(key=k))(keys))
        values = jax.vmap(f)(draws)
        frozen = jax.lax.stop_gradient(values)
        if self.samples > 1:
            baseline = (jnp.sum(frozen) - frozen) / (self.samples - 1)
        else:
            baseline = jnp.full_like(frozen, self.baseline)
        log_q = jax.vmap(q.log_prob)(draws)
        # zero in value, the score in derivative
        score = log_q - jax.lax.stop_gradient(log_q)
        return jnp.mean(values + (frozen - baseline) * score)


class BonnetPrice(AbstractExpectation):
    """∇_m E f = E[∇f] and ∇_Σ E f = ½ E[∇²f], for a Gaussian q (also known as stochastic backpropagation).

    The draws are not differentiated: the slopes in the mean and in the covariance are those of Bonnet and
    of Price, and that of the covariance, which has no noise where f is quadratic, needs second derivatives.
    """

    samples: int = eqx.field(static=True, default=1)

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        assert isinstance(q, Gaussian)
        keys = jax.random.split(key, self.samples)
        draws = jax.lax.stop_gradient(jax.vmap(lambda k: q.sample(key=k))(keys))
        slope = jax.lax.stop_gradient(jnp.mean(jax.vmap(jax.grad(f))(draws), axis=0))
        bend = jax.lax.stop_gradient(jnp.mean(jax.vmap(jax.hessian(f))(draws), axis=0))
        moved = jnp.vdot(slope, q.mean) + 0.5 * jnp.sum(bend * q.covariance.matrix())
        # zero in value, the slopes in derivative
        return jnp.mean(jax.vmap(f)(draws)) + moved - jax.lax.stop_gradient(moved)


class GumbelSoftmax(AbstractExpectation):
    """The mean of f over soft draws of labels or bits, for f that takes points between them.

    Value and gradient are biased: towards even shares for a large softness, while for a small one the
    gradient has much noise.  Also known as the Concrete relaxation.

    Attributes:
        softness: s, as of `SoftCategorical`; lowered from about one during learning.
        samples: how many draws.
    """

    softness: float | Array = 0.5
    samples: int = eqx.field(static=True, default=1)

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        soft = soften(q, jnp.asarray(self.softness))
        keys = jax.random.split(key, self.samples)
        return jnp.mean(jax.vmap(lambda k: f(soft.sample(key=k)))(keys))


class StraightThrough(AbstractExpectation):
    """The mean of f over draws of labels or bits, with the gradient as if they were soft.

    The value is unbiased, since hardened soft draws are draws of q; the gradient is that of `GumbelSoftmax`
    with the slope of f at the corner, and biased.

    Attributes:
        softness, samples: as of `GumbelSoftmax`.
    """

    softness: float | Array = 0.5
    samples: int = eqx.field(static=True, default=1)

    def __call__(self, f: Integrand, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        soft = soften(q, jnp.asarray(self.softness))

        def one(k: Array) -> Array:
            y = soft.sample(key=k)
            return f(jax.lax.stop_gradient(soft.harden(y) - y) + y)

        return jnp.mean(jax.vmap(one)(jax.random.split(key, self.samples)))
