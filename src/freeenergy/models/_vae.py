"""The variational autoencoder: a nonlinear decoder, and a network that recognises the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import LOG_2PI, Kind, Reals
from ..distributions import AbstractDistribution, Diagonal, Gaussian, Given, cell_kind, log_cells
from ..distributions._cells import Cells
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
from ._base import AbstractBoundedModel, AbstractCoded, AbstractVariationalBound


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


class VAE(AbstractBoundedModel, AbstractVariationalBound, AbstractCoded):
    """z ~ prior, x ~ emission(decoder(z)):  e(x, z) = −log p(z) − log p(x | z).

    log p(x) has no closed form, so there is no `log_prob`: there is a `bound`, and the importance
    weights of `inference.importance_log_weights`, whose log-mean tends to log p(x).

    Attributes:
        encoder: a network that makes q(z | x) of x.
        decoder: a network that makes the parameters of the emission of z.
        emission: a family given the output of the decoder, such as `Given(Poisson(…), Natural())`.
        prior: p(z).
        expectation: how E_q[e] is had; `mlp_vae` takes the part of the prior in closed form.

    >>> from freeenergy.distributions import Bernoulli
    >>> emission = Given(Bernoulli(jnp.full(3, 0.5)))
    >>> model = mlp_vae(3, 2, width=8, depth=1, emission=emission, key=jax.random.key(0))
    >>> model.sample(key=jax.random.key(1)).shape
    (3,)
    """

    encoder: Callable[[Array], AbstractDistribution]
    decoder: Callable[[Array], Array]
    emission: Given
    prior: AbstractDistribution
    expectation: AbstractExpectation = Pathwise()

    @property
    def recognition(self) -> Amortised:
        """What makes q(z | x): the encoder."""
        return Amortised(self.encoder, expectation=self.expectation)

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z) = −log p(x, z); entries of `x` that are NaN are marginalised."""
        return -self.prior.log_prob(z) - self.emission.log_prob(self.decoder(z), x)

    def latent(self, x: Array) -> Reals:
        """z, the code."""
        return Reals(jax.eval_shape(lambda: self.prior.sample(key=jax.random.key(0))).shape)

    def recognise(self, x: Array) -> AbstractDistribution:
        """q(z | x)."""
        return self.encoder(x)

    def bound(self, x: Array, *, key: Array) -> Array:
        """An unbiased estimate of −F ≤ log p(x)."""
        return -free_energy(self.energy, self.recognition, x, key=key)

    def reconstruct(self, z: Array) -> Array:
        """E[x | z]."""
        return self.emission.mean(self.decoder(z))

    def sample(self, *, key: Array) -> Array:
        """One draw of x."""
        latent, emit = jax.random.split(key)
        return self.emission.sample(self.decoder(self.prior.sample(key=latent)), key=emit)

    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with each NaN replaced by its mean given what is observed, by importance sampling."""
        codes, log_weights = importance_draws(self.energy, self.recognition, x, samples=samples, key=key)
        filled = jax.vmap(lambda z: self.emission.at(self.decoder(z)).complete_mean(x))(codes)
        mean, _ = self_normalised_mean(log_weights, filled)
        return jnp.where(jnp.isnan(x), mean, x)

    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones, by importance resampling."""
        latent, emit = jax.random.split(key)
        z = importance_resample(self.energy, self.recognition, x, samples=samples, key=latent)
        return self.complete_given(x, z, key=emit)

    def complete_given(self, x: Array, z: Array, *, key: Array) -> Array:
        """`x` with the NaN entries drawn given the observed ones and the code z."""
        return self.emission.at(self.decoder(z)).complete_sample(x, key=key)

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
    emission: Given,
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
        emission: the family of the data, such as `Given(Bernoulli(…))`.
        mask_input: whether the encoder is told which entries are observed.
        dtype: type of the networks, of the emission, and of the data.
        key: makes the weights.
    """
    encode, decode = jax.random.split(key)
    inputs = 2 * dim if mask_input else dim
    encoder = mlp(inputs, 2 * latent_dim, width=width, depth=depth, dtype=dtype, key=encode)
    emission = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, emission)
    decoder = mlp(latent_dim, emission.size, width=width, depth=depth, dtype=dtype, key=decode)
    prior = StandardNormal(latent_dim, dtype)
    return VAE(GaussianEncoder(encoder, mask_input), decoder, emission, prior, Split(prior.energy))


@cell_kind.register
def _(model: VAE, cells: Cells) -> Kind | None:
    output = jax.eval_shape(lambda: model.decoder(model.prior.sample(key=jax.random.key(0))))
    given = cell_kind(model.emission.at(jnp.zeros(output.shape, output.dtype)), cells)
    return None if given is None else Kind.LOWER


@log_cells.register
def _(
    model: VAE, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    # recognised at the middle of the cell, and weighted by the mass of the whole
    q = model.recognise(x + jnp.where(jnp.asarray(cells), 0.5 * width, 0))

    def draw(key: Array) -> Array:
        latent, inside = jax.random.split(key)
        z = q.sample(key=latent)
        given = model.emission.at(model.decoder(z))
        mass = log_cells(given, x, width, cells, draws=1, complete=complete, key=inside)[0]
        return model.prior.log_prob(z) + mass - q.log_prob(z)

    return jax.vmap(draw)(jax.random.split(key, draws))
