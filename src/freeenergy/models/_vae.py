"""The variational autoencoder: a nonlinear decoder, and a network that recognises the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import AbstractSpace, Binary, Kind, Reals, fold_key, split_key
from ..distributions import AbstractDistribution, Given, cell_kind, log_cells
from ..distributions._cells import Cells
from ..inference import (
    AbstractExpectation,
    AbstractRecognition,
    Amortised,
    Pathwise,
    Refined,
    binary_states,
    free_energy,
    importance_draws,
    importance_resample,
    log_partition_by_enumeration,
    self_normalised_mean,
)
from ..nn import mlp
from ._base import AbstractBoundedModel, AbstractCoded, AbstractVariationalBound
from ._codes import (
    AbstractCodePrior,
    AbstractCodeRecognition,
    Bits,
    DiagonalRecognition,
    EncoderPlan,
    mean_of_code,
)
from ._mixture import Mixture
from ._told import Told
from ._told_label import label_codes, told_label


class FirstEntries(eqx.Module):
    """A network of the first entries of a code alone.

    >>> FirstEntries(lambda z: 2 * z, 1)(jnp.array([1.0, 5.0])).tolist()
    [2.0]
    """

    network: Callable[[Array], Array]
    number: int = eqx.field(static=True)

    def __call__(self, z: Array) -> Array:
        return self.network(z[: self.number])


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
        refinement: steps down the free energy by which q is improved for each event (`inference.Refined`),
            also known as semi-amortised inference; for a model that is learned already.

    >>> from freeenergy.distributions import Bernoulli
    >>> emission = Given(Bernoulli(jnp.full(3, 0.5)))
    >>> model = mlp_vae(3, 2, width=8, depth=1, emission=emission, key=jax.random.key(0))
    >>> model.sample(key=jax.random.key(1)).shape
    (3,)
    """

    of_recognition: ClassVar[tuple[str, ...]] = ("encoder",)
    encoder: Callable[[Array], AbstractDistribution]
    decoder: Callable[[Array], Array]
    emission: Given
    prior: AbstractDistribution
    expectation: AbstractExpectation = Pathwise()
    refinement: int = eqx.field(static=True, default=0)

    @property
    def recognition(self) -> AbstractRecognition:
        """What makes q(z | x): the encoder, refined if that is asked for."""
        amortised = Amortised(self.encoder, expectation=self.expectation)
        return Refined(amortised, steps=self.refinement) if self.refinement else amortised

    def energy(self, x: Array, z: Array) -> Array:
        """e(x, z) = −log p(x, z); entries of `x` that are NaN are marginalised."""
        return -self.prior.log_prob(z) - self.log_likelihood(x, z)

    def log_likelihood(self, x: Array, z: Array) -> Array:
        """log p(x | z); entries of `x` that are NaN are marginalised."""
        return self.emission.log_prob(self.decoder(z), x)

    @property
    def latent_dim(self) -> int:
        """How many entries a code has."""
        return jax.eval_shape(lambda: self.prior.sample(key=jax.random.key(0))).size

    def latent(self, x: Array) -> AbstractSpace:
        """z, the code."""
        shape = (self.latent_dim,)
        return Binary(shape) if isinstance(self.prior, Bits) else Reals(shape)

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

    def complete_chances(self, x: Array, column: Array, *, labels: int, samples: int, key: Array) -> Array:
        """The probabilities of the labels in a column of `x` that is missing, given what is observed."""
        codes, log_weights = importance_draws(self.energy, self.recognition, x, samples=samples, key=key)
        alone = jnp.full_like(x, jnp.nan)

        def chances(z: Array) -> Array:
            output = self.decoder(z)
            each = jnp.arange(labels, dtype=x.dtype)
            return jnp.exp(
                jax.vmap(lambda label: self.emission.log_prob(output, alone.at[column].set(label)))(each)
            )

        return self_normalised_mean(log_weights, jax.vmap(chances)(codes))[0]

    def component_chances(self, x: Array, *, samples: int, key: Array) -> Array:
        """p(c | x) of the components c of a prior that is a mixture, by importance sampling.

        p(c | x) = E_{z|x} p(c | z)
        """
        prior = self.prior
        assert isinstance(prior, Mixture)
        codes, log_weights = importance_draws(self.energy, self.recognition, x, samples=samples, key=key)
        return self_normalised_mean(log_weights, jax.vmap(prior.responsibilities)(codes))[0]

    def log_prob_by_enumeration(self, x: Array) -> Array:
        """log p(x) by the sum over all codes, of a code of few bits."""
        states = binary_states(self.latent_dim, x.dtype)
        return log_partition_by_enumeration(lambda z: self.energy(x, z), states)

    def encode(self, x: Array) -> Array:
        """The mean of q(z | x)."""
        return mean_of_code(self.recognise(x))


def mlp_vae(
    dim: int,
    latent_dim: int,
    *,
    width: int = 400,
    depth: int = 1,
    emission: Given,
    mask_input: bool = False,
    told: Told | None = None,
    prior: AbstractCodePrior | None = None,
    recognition: AbstractCodeRecognition | None = None,
    labels: int = 1,
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
        told: how an observation is told to the encoder; None for its entries as they are.
        prior: of codes, such as `MixturePrior(10)`; None for that which suits the recognition.
        recognition: of codes, such as `FullRecognition()`; None for `DiagonalRecognition()`.
        labels: how many labels there are of which both networks are told one, for `ByLabel`.
        dtype: type of the networks, of the emission, and of the data.
        key: makes the weights.
    """
    encode, decode = split_key(key)
    recipe = DiagonalRecognition() if recognition is None else recognition
    before = recipe.prior if prior is None else prior

    def typed(tree: Any) -> Any:
        return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, tree)

    label = label_codes(labels).shape[1]
    plan = EncoderPlan(dim, width, depth, mask_input, typed(told), dtype, label)
    encoder = recipe.build(plan, latent_dim, key=encode)
    emission, seen = typed(emission), before.seen(latent_dim)
    decoder = mlp(seen + label, emission.size, width=width, depth=depth, dtype=dtype, key=decode)
    decoder = told_label(decoder, label, dtype)
    law = before.build(latent_dim, dtype=dtype, key=fold_key(key, 1))
    if seen < latent_dim:
        decoder = FirstEntries(decoder, seen)
    return VAE(encoder, decoder, emission, law, recipe.expectation(law, latent_dim))


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
