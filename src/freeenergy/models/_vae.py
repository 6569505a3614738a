"""The variational autoencoder: a nonlinear decoder, and a network that recognises the code."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import LOG_2PI, parameter, positive
from ..distributions import AbstractDistribution, Bernoulli, Diagonal, Gaussian
from ..inference import (
    AbstractExpectation,
    Amortised,
    Pathwise,
    Split,
    free_energy,
    importance_draws,
    importance_resample,
    self_normalised_mean,
)
from ..nn import mlp
from ._base import AbstractBoundedModel, AbstractCoded


class AbstractEmission(eqx.Module):
    """p(x | output): how the output of a decoder, a number per entry, stands for the data.

    NaN in `x` is not observed and counts nothing, which is exact: the entries are independent given z.
    """

    @abc.abstractmethod
    def given(self, output: Array) -> AbstractDistribution:
        """p(x | output)."""

    @abc.abstractmethod
    def log_prob(self, output: Array, x: Array) -> Array:
        """log p(x | output)."""

    @abc.abstractmethod
    def mean(self, output: Array) -> Array:
        """E[x | output]."""

    @abc.abstractmethod
    def sample(self, output: Array, *, key: Array) -> Array:
        """A draw of x."""


class GaussianEmission(AbstractEmission):
    """x ~ N(output, variance), with a learned variance per entry (or one for all, as a scalar).

    >>> round(float(GaussianEmission(jnp.ones(2)).log_prob(jnp.zeros(2), jnp.array([0.0, jnp.nan]))), 6)
    -0.918939
    """

    variance: Array = parameter(positive)

    def given(self, output: Array) -> Gaussian:
        return Gaussian(output, Diagonal(jnp.broadcast_to(self.variance, output.shape)))

    def log_prob(self, output: Array, x: Array) -> Array:
        observed = ~jnp.isnan(x)
        variance = jnp.broadcast_to(self.variance, x.shape)
        square = jnp.where(observed, x - output, 0) ** 2 / variance
        return -0.5 * jnp.sum(jnp.where(observed, square + jnp.log(variance) + LOG_2PI, 0))

    def mean(self, output: Array) -> Array:
        return output

    def sample(self, output: Array, *, key: Array) -> Array:
        scale = jnp.broadcast_to(jnp.sqrt(self.variance), output.shape)
        return output + scale * jax.random.normal(key, output.shape, output.dtype)


class BernoulliEmission(AbstractEmission):
    """x_d ∈ {0, 1} with log-odds `output`:  log p = x·output − log(1 + exp(output)).

    >>> round(float(BernoulliEmission().log_prob(jnp.array([800.0]), jnp.array([0.0]))), 1)
    -800.0
    """

    def given(self, output: Array) -> Bernoulli:
        return Bernoulli(self.mean(output))

    def log_prob(self, output: Array, x: Array) -> Array:
        observed = ~jnp.isnan(x)
        terms = jnp.where(observed, x, 0) * output - _softplus(output)
        return jnp.sum(jnp.where(observed, terms, 0))

    def mean(self, output: Array) -> Array:
        return jax.nn.sigmoid(output)

    def sample(self, output: Array, *, key: Array) -> Array:
        return Bernoulli(self.mean(output)).sample(key=key)


@jax.custom_jvp
def _softplus(v: Array) -> Array:
    return jnp.maximum(v, 0) + jnp.log1p(jnp.exp(-jnp.abs(v)))


@_softplus.defjvp
def _(primals, tangents):
    # one exponential; differentiating the value would take two and a division
    (v,), (t,) = primals, tangents
    return _softplus(v), t * jax.nn.sigmoid(v)


class StandardNormal(AbstractDistribution):
    """N(0, I), with nothing to learn.

    >>> round(float(StandardNormal(2).log_prob(jnp.zeros(2))), 6)
    -1.837877
    """

    dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=jnp.float64)

    def log_prob(self, x: Array) -> Array:
        return -0.5 * (jnp.sum(x**2) + self.dim * LOG_2PI)

    def energy(self, x: Array) -> Array:
        """−log p(x), at most quadratic in x."""
        return -self.log_prob(x)

    def sample(self, *, key: Array) -> Array:
        return jax.random.normal(key, (self.dim,), self.dtype)


# the largest |log variance| of a code
_WIDEST = 40.0


class GaussianEncoder(eqx.Module):
    """q(z | x) = N(m, diag(v)), where `network` gives m and log v (cut at ±40), one after the other.

    Entries of x that are not observed are set to zero.  With `mask_input` the network is also told
    which those are: its input is x followed by a one per observed entry.
    """

    network: Callable[[Array], Array]
    mask_input: bool = eqx.field(static=True, default=False)

    def __call__(self, x: Array) -> Gaussian:
        observed = ~jnp.isnan(x)
        seen = jnp.where(observed, x, 0)
        if self.mask_input:
            seen = jnp.concatenate([seen, observed.astype(x.dtype)])
        mean, log_variance = jnp.split(self.network(seen), 2)
        # every q gives a bound: one of a width that is a number gives it for rows of any size
        return Gaussian(mean, Diagonal(jnp.exp(jnp.clip(log_variance, -_WIDEST, _WIDEST))))


class VAE(AbstractBoundedModel, AbstractCoded):
    """z ~ prior, x ~ emission(decoder(z)):  e(x, z) = −log p(z) − log p(x | z).

    log p(x) has no closed form, so there is no `log_prob`: there is a `bound`, and the importance
    weights of `inference.importance_log_weights`, whose log-mean tends to log p(x).

    Attributes:
        encoder: a network that makes q(z | x) of x.
        decoder: a network that makes the parameters of the emission of z.
        emission: the family of x given the output of the decoder.
        prior: p(z).
        expectation: how E_q[e] is had; `mlp_vae` takes the part of the prior in closed form.

    >>> model = mlp_vae(3, 2, width=8, depth=1, emission=BernoulliEmission(), key=jax.random.key(0))
    >>> model.sample(key=jax.random.key(1)).shape
    (3,)
    """

    encoder: Callable[[Array], AbstractDistribution]
    decoder: Callable[[Array], Array]
    emission: AbstractEmission
    prior: AbstractDistribution
    expectation: AbstractExpectation = Pathwise()

    @property
    def recognition(self) -> Amortised:
        """What makes q(z | x): the encoder."""
        return Amortised(self.encoder, expectation=self.expectation)

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z) = −log p(x, z); entries of `x` that are NaN are marginalised."""
        return -self.prior.log_prob(z) - self.emission.log_prob(self.decoder(z), x)

    def recognise(self, x: Array) -> AbstractDistribution:
        """q(z | x)."""
        return self.encoder(x)

    def bound(self, x: Array, *, key: Array) -> Array:
        """An unbiased estimate of −F ≤ log p(x)."""
        return -free_energy(self, self.recognition, x, key=key)

    def reconstruct(self, z: Array) -> Array:
        """E[x | z]."""
        return self.emission.mean(self.decoder(z))

    def sample(self, *, key: Array) -> Array:
        """One draw of x."""
        latent, emit = jax.random.split(key)
        return self.emission.sample(self.decoder(self.prior.sample(key=latent)), key=emit)

    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed, by importance sampling."""
        codes, log_weights = importance_draws(self, self.recognition, x, samples=samples, key=key)
        mean, _ = self_normalised_mean(log_weights, jax.vmap(self.reconstruct)(codes))
        return jnp.where(jnp.isnan(x), mean, x)

    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, by importance resampling."""
        latent, emit = jax.random.split(key)
        z = importance_resample(self, self.recognition, x, samples=samples, key=latent)
        return jnp.where(jnp.isnan(x), self.emission.sample(self.decoder(z), key=emit), x)

    def encode(self, x: Array) -> Array:
        """The mean of q(z | x)."""
        q = self.recognise(x)
        assert isinstance(q, Gaussian)
        return q.mean


def mlp_vae(
    dim: int,
    latent_dim: int,
    *,
    width: int = 400,
    depth: int = 1,
    emission: AbstractEmission,
    mask_input: bool = False,
    dtype: Any = jnp.float32,
    key: Array,
) -> VAE:
    """A VAE with perceptrons of `depth` hidden layers of `width` ReLU units on both sides.

    Args:
        dim: entries of an observation.
        latent_dim: entries of the code.
        width: units in a hidden layer.
        depth: hidden layers of each network.
        emission: the family of the data, such as `BernoulliEmission()`.
        mask_input: whether the encoder is told which entries are observed.
        dtype: type of the networks, and of the data.
        key: makes the weights.
    """
    encode, decode = jax.random.split(key)
    inputs = 2 * dim if mask_input else dim
    encoder = mlp(inputs, 2 * latent_dim, width=width, depth=depth, dtype=dtype, key=encode)
    decoder = mlp(latent_dim, dim, width=width, depth=depth, dtype=dtype, key=decode)
    prior = StandardNormal(latent_dim, dtype)
    return VAE(GaussianEncoder(encoder, mask_input), decoder, emission, prior, Split(prior.energy))
