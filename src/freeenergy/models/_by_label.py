"""Models of rows given a label: one network for all labels, which is told which one it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import buffer, on_device
from ..distributions import AbstractDistribution
from ..inference import AbstractExpectation, AbstractRecognition, Pathwise
from ..nn import AbstractDenoiserNetwork
from ._diffusion import Diffusion
from ._told_label import ToldLabel, label_codes, tell


class ByLabel(eqx.Module):
    """p(x, y) = p(y) p(x | y) with one model for all labels, whose networks are told y.

    What learning asks of the model for an event x it asks of this for a pair (x, y); the number after the
    last label stands for no label.

    Attributes:
        model: whose networks are some `ToldLabel`.
        weights: p(y), the share of each label.
        codes: the numbers of each label and of none, as made by `label_codes`.

    References:
        Sohn, Lee and Yan (2015), Learning structured output representation using deep conditional
        generative models.

    >>> network = ToldLabel(lambda x, log_snr: 0 * x[:1], jnp.zeros(2))
    >>> model = ByLabel.of(jnp.array([0.5, 0.5]), Diffusion(network, 1))
    >>> model.at(jnp.array(1)).network.code.tolist() == [0.0, 2**0.5]
    True
    """

    model: Any
    weights: Array = buffer()
    codes: Array = buffer()

    @classmethod
    def of(cls, weights: Array, model: Any) -> ByLabel:
        """One with the usual codes of so many labels."""
        codes = on_device(label_codes(len(weights)), weights.dtype)
        return cls(model=model, weights=weights, codes=codes)

    @property
    def size(self) -> int:
        """How many labels there are."""
        return self.weights.shape[0]

    def at(self, label: Array) -> Any:
        """The model of rows with this label."""
        return tell(self.model, self.codes[label.astype(jnp.int32)])

    def sample(self, *, key: Array) -> Array:
        """A draw of x, with any label."""
        first, second = jax.random.split(key)
        return self.at(jax.random.choice(first, self.size, p=self.weights)).sample(key=second)

    # -- what learning asks of pairs ----------------------------------------------------------------

    @property
    def prior(self) -> Any:
        """p(z), of a model with a hidden cause; it is the same for all labels."""
        return self.model.prior

    @property
    def expectation(self) -> AbstractExpectation:
        """How averages over q(z | x, y) are had."""
        return self.model.expectation

    @property
    def recognition(self) -> AbstractRecognition:
        """q(z | x, y)."""
        return _Recognised(self, expectation=self.model.recognition.expectation)

    def energy(self, pair: tuple[Array, Array], z: Array) -> Array:
        """−log p(x, z | y)."""
        return self.at(pair[1]).energy(pair[0], z)

    def error(self, pair: tuple[Array, Array], t: Array, noise: Array, weight: Any) -> Array:
        """The error of a `Diffusion` that is told the label."""
        return self.at(pair[1]).error(pair[0], t, noise, weight)


class _Recognised(AbstractRecognition):
    """q(z | x, y) of pairs, by the recognition of the model of the label."""

    model: ByLabel
    expectation: AbstractExpectation = eqx.field(default=Pathwise(), kw_only=True)

    def __call__(self, energy: Any, x: tuple[Array, Array]) -> AbstractDistribution:
        recognition = self.model.at(x[1]).recognition
        return recognition(energy, x[0])


class EachLabel(eqx.Module):
    """A model of its own for each label, and one for no label, as what completes pairs (x, y).

    Attributes:
        models: stacked along the first axis.

    >>> from freeenergy.distributions import Full, Gaussian
    >>> from freeenergy.models import Mixture
    >>> members = Gaussian(jnp.array([[[0.0]], [[9.0]], [[4.0]]]), Full(1e-9 * jnp.ones((3, 1, 1, 1))))
    >>> each = EachLabel(Mixture(jnp.ones((3, 1)), members))
    >>> each.at(jnp.array(1)).components.mean.tolist()
    [[9.0]]
    """

    models: Any

    def at(self, label: Array) -> Any:
        """The model of a label."""
        return jax.tree.map(lambda a: a[label.astype(jnp.int32)] if eqx.is_array(a) else a, self.models)

    def complete_sample(self, pair: tuple[Array, Array], *, key: Array) -> tuple[Array, Array]:
        """The pair with what is missing in x drawn given the rest of it and the label."""
        x, label = pair
        return self.at(label).complete_sample(x, key=key), label


class Guided(AbstractDenoiserNetwork):
    """A network that overstates what the label changes: (1 + w) f(x; y) − w f(x), with f(x) told no label.

    The score of a `Diffusion` with it is (1 + w) ∇ log p_t(x | y) − w ∇ log p_t(x), also known as
    classifier-free guidance.  Draws along this score are more typical of their label and less various than
    those of p(x | y); there is no law of which it is the score at all times t.

    Attributes:
        network: told y.
        weight: w; zero leaves the network as it is.

    References:
        Ho and Salimans (2022), Classifier-free diffusion guidance.

    >>> guided = Guided(ToldLabel(lambda x, t: x[1:], jnp.array([2.0])), jnp.array(3.0))
    >>> guided(jnp.zeros(1), jnp.zeros(())).tolist()
    [8.0]
    """

    network: ToldLabel
    weight: Array = buffer()

    def __call__(self, x: Float[Array, " dim"], log_snr: Float[Array, ""]) -> Float[Array, " dim"]:
        told, untold = self.network, tell(self.network, jnp.zeros_like(self.network.code))
        w = self.weight.astype(x.dtype)
        return (1 + w) * told(x, log_snr) - w * untold(x, log_snr)

    @staticmethod
    def of(model: Diffusion, weight: Array) -> Diffusion:
        """A diffusion that is told a label, guided."""
        network = model.network
        # of the only label there is nothing to overstate
        if not isinstance(network, ToldLabel):
            return model
        return dataclasses.replace(model, network=Guided(network, weight))
