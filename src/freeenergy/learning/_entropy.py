"""What keeps the draws of a generator apart where its entropy cannot be computed."""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma

from ..kernels import RBF, AbstractKernel


class AbstractEntropy(eqx.Module):
    """What a generator pays for draws that are too much alike: −λ H of their law, or what stands for it.

    A generator that only lowers an energy, E e(G(z)), ends where the energy is least.  Less its entropy it
    is the reverse divergence KL(q ‖ exp(−e)/Z) but for log Z, so that the best generator draws from the
    energy.
    """

    @abc.abstractmethod
    def __call__(self, made: Array, *, key: Array) -> Array:
        """What is paid for a batch of draws, (rows, columns)."""


class NeighbourEntropy(AbstractEntropy):
    """−λ H, with H of a batch by the distance r of each draw to the next one (Kozachenko and Leonenko).

        H ≈ ψ(n) − ψ(1) + log V_d + (d/n) Σ log r_i

    Its bias goes to zero with the number n of draws, slowly in many columns d.

    Attributes:
        weight: λ.

    References:
        Kozachenko and Leonenko (1987), Sample estimate of the entropy of a random vector.

    >>> draws = jax.random.normal(jax.random.key(0), (2000, 1))
    >>> round(float(-NeighbourEntropy()(draws, key=jax.random.key(1))), 1)  # ½ log 2πe = 1.419
    1.4
    """

    weight: float = eqx.field(static=True, default=1.0)

    def __call__(self, made: Array, *, key: Array) -> Array:
        n, d = made.shape
        squares = jnp.sum((made[:, None] - made[None]) ** 2, axis=-1)
        nearest = jnp.min(jnp.where(jnp.eye(n, dtype=bool), jnp.inf, squares), axis=1)
        # equal draws are not told where to go, and do not take the others along
        logs = 0.5 * jnp.log(nearest + jnp.finfo(made.dtype).tiny)
        ball = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)
        entropy = digamma(jnp.asarray(n, made.dtype)) + 0.5772156649015329 + ball + d * jnp.mean(logs)
        return -self.weight * entropy


class InflatedGaussian(AbstractEntropy):
    """λ MMD²(draws, s) with s ~ N(mean, α Σ) of the draws, held fast: draws are pulled further apart.

    Of all laws with a covariance the Gaussian has the most entropy, and with α Σ it has ½ d log α more than
    the Gaussian with that of the draws.

    Attributes:
        weight: λ.
        growth: α, above one.
        kernel: None for a Gaussian one as wide as s is.

    >>> penalty, key = InflatedGaussian(), jax.random.key(0)
    >>> draws = jax.random.normal(key, (500, 2))
    >>> bool(penalty(draws, key=key) > InflatedGaussian(growth=1.0)(draws, key=key))
    True
    """

    weight: float = eqx.field(static=True, default=1.0)
    growth: float = eqx.field(static=True, default=2.0)
    kernel: AbstractKernel | None = None

    def targets(self, made: Array, *, key: Array) -> Array:
        """s, as many as there are draws, through which no gradient goes."""
        n, made = len(made), jax.lax.stop_gradient(made)
        mean = jnp.mean(made, axis=0, keepdims=True)
        # sums of what draws are off their mean have the covariance of these, also where it is singular
        noise = jax.random.normal(key, (n, n), made.dtype) * math.sqrt(self.growth / (n - 1))
        return mean + noise @ (made - mean)

    def __call__(self, made: Array, *, key: Array) -> Array:
        s = self.targets(made, key=key)
        n, kernel = len(made), self.kernel
        if kernel is None:
            spread = jnp.sqrt(jnp.sum(jnp.var(s, axis=0)) + jnp.finfo(s.dtype).tiny)
            made, s, kernel = made / spread, s / spread, RBF()
        # in the precision of the draws
        kernel = jax.tree.map(lambda a: a.astype(made.dtype), kernel)
        apart = ~jnp.eye(n, dtype=bool)

        def within(x: Array) -> Array:
            return jnp.sum(jnp.where(apart, kernel.gram(x), 0)) / (n * (n - 1))

        return self.weight * (within(made) + within(s) - 2 * jnp.mean(kernel.gram(made, s)))
