"""Answers given rows with a continuous hidden cause, and a network that recognises it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import Reals, log_mean_exp, split_key
from ..distributions import Given
from ..inference import AbstractExpectation, Amortised, Pathwise, Split, free_energy
from ..nn import mlp
from ._base import AbstractRecognised, AbstractVariationalBound
from ._codes import GaussianEncoder, StandardNormal

Pair = tuple[Array, Array]
# how much of what row and code say is there at the start
_FIRST = 0.1


class ConditionalVAE(AbstractRecognised, AbstractVariationalBound):
    """z ~ N(0, I), y ~ answer(decoder(x, z)):  e((x, y), z) = −log p(z) − log p(y | x, z).

    p(y | x) = ∫ p(z) p(y | x, z) dz has no closed form, so there is no `log_prob_of`: there is a `bound`,
    and weights whose mean tends to p(y | x).

    Attributes:
        encoder: a network that makes q(z | x, y) of x followed by y.
        decoder: a network that makes the output of the answer of x followed by z.
        answer: the conditional family, a `freeenergy.distributions.Given`.
        prior: p(z).
        expectation: how E_q[e] is had; `mlp_conditional_vae` takes the part of the prior in closed form.

    >>> from freeenergy.distributions import Diagonal, Gaussian, Mean
    >>> answer = Given(Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))), Mean())
    >>> model = mlp_conditional_vae(2, 1, 1, width=4, depth=1, answer=answer, key=jax.random.key(0))
    >>> model.answer_of(jnp.zeros(2, jnp.float32), jnp.zeros(1, jnp.float32)).mean.shape
    (1,)
    """

    encoder: Callable[[Array], Any]
    decoder: Callable[[Array], Array]
    answer: Given
    prior: StandardNormal
    expectation: AbstractExpectation = Pathwise()

    @property
    def recognition(self) -> Amortised:
        """What makes q(z | x, y): the encoder."""
        return Amortised(self._recognise, expectation=self.expectation)

    def _recognise(self, pair: Pair) -> Any:
        return self.encoder(jnp.concatenate(pair))

    def energy(self, x: Pair, z: Array) -> Float[Array, ""]:
        """e((x, y), z) = −log p(y, z | x); entries of y that are NaN are marginalised."""
        row, y = x
        return -self.prior.log_prob(z) - self.answer.log_prob(self._output(row, z), y)

    def latent(self, x: Pair) -> Reals:
        """z, the code."""
        return Reals((self.prior.dim,))

    def bound(self, x: Pair, *, key: Array) -> Float[Array, ""]:
        """An unbiased estimate of −F ≤ log p(y | x)."""
        return -free_energy(self.energy, self.recognition, x, key=key)

    def _output(self, x: Array, z: Array) -> Array:
        return self.decoder(jnp.concatenate([x, z]))

    def answer_of(self, x: Float[Array, " columns"], z: Float[Array, " latent"]) -> Any:
        """p(y | x, z), a distribution."""
        return self.answer.at(self._output(x, z))

    def log_means(self, x: Pair, noise: Float[Array, "groups draws latent"]) -> Float[Array, " groups"]:
        """log of the mean weight p(y, z | x) / r(z) of each group, with r = ½ p(z) + ½ q(z | x, y).

        Half of the draws of a group make z by the prior, half by q: no weight exceeds 2 p(y | x, z),
        however narrow q is.  The mean of the weights is p(y | x) on average.
        """
        q = self._recognise(x)
        half = noise.shape[1] // 2

        def log_weight(z: Array) -> Array:
            mixed = jnp.logaddexp(self.prior.log_prob(z), q.log_prob(z)) - jnp.log(2.0).astype(z.dtype)
            return -self.energy(x, z) - mixed

        def group(noise: Array) -> Array:
            spread = jnp.sqrt(q.covariance.variances())
            own = q.mean[None] + spread[None] * noise[half:]
            return log_mean_exp(jax.vmap(log_weight)(jnp.concatenate([noise[:half], own])))

        return jax.vmap(group)(noise)


def mlp_conditional_vae(
    columns: int,
    outputs: int,
    latent_dim: int,
    *,
    width: int = 64,
    depth: int = 1,
    answer: Given,
    dtype: Any = jnp.float32,
    key: Array,
) -> ConditionalVAE:
    """A conditional VAE with perceptrons on both sides; depth 0 is linear in row and code.

    Args:
        columns: of a row.
        outputs: of an answer.
        latent_dim: entries of the code.
        width, depth: hidden units in a layer, and layers, of both networks.
        answer: the family of the answer, such as `Given(Gaussian(…), Mean())`.
        dtype: type of the networks, of the answer, and of the data.
        key: makes the weights.
    """
    encode, decode = split_key(key)
    sizes = {"width": width, "depth": depth, "dtype": dtype}
    encoder = mlp(columns + outputs, 2 * latent_dim, **sizes, key=encode)
    answer = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, answer)
    decoder = mlp(columns + latent_dim, answer.size, **sizes, last=_FIRST, key=decode)
    prior = StandardNormal(latent_dim, dtype)
    return ConditionalVAE(GaussianEncoder(encoder), decoder, answer, prior, Split(prior.energy))
