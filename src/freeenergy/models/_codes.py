"""Codes of latent-variable models: laws before anything is seen, and networks that recognise them.

A recipe (`NormalPrior()`, `FullRecognition()`, …) says which; `build` makes it in the size that is needed.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import (
    LOG_2PI,
    AbstractSpace,
    Binary,
    Reals,
    on_device,
    parameter,
    split_key,
    unpack_triangle,
)
from ..bijections import AbstractTransformer, Affine, Spline
from ..distributions import AbstractDistribution, Bernoulli, Diagonal, Full, Gaussian, Transformed
from ..inference import (
    AbstractExpectation,
    Enumeration,
    Pathwise,
    Quadratic,
    Split,
    StraightThrough,
    binary_states,
)
from ..nn import mlp
from ._conditional_flow import ConditionalFlow, conditional_flow
from ._flow import coupling_flow
from ._mixture import Mixture
from ._told import Told
from ._told_label import told_label

# the largest |log variance| of a code
_WIDEST = 40.0
# the largest |log-odds| of a bit
_SUREST = 12.0
# draws for the mean of a law that has none in closed form
_DRAWS_OF_MEAN = 256


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


class Bits(AbstractDistribution):
    """Independent bits by their log-odds, with a log-probability that is linear, between bits too.

        log p(z) = Σ_d z_d η_d − log(1 + e^{η_d})

    Attributes:
        logits: η.

    >>> Bits(jnp.zeros(3)).log_prob(jnp.array([1.0, 0.0, 0.5])).round(6).item()
    -2.079442
    """

    logits: Array = parameter()

    def log_prob(self, x: Array) -> Array:
        return jnp.sum(x * self.logits - jax.nn.softplus(self.logits))

    def sample(self, *, key: Array) -> Array:
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.logits)).astype(self.logits.dtype)


class Levels(AbstractDistribution):
    """A code of two levels, the deeper one first drawn:  z = (z₁, z₂),  p(z) = N(z₂; 0, I) p(z₁ | z₂).

    Attributes:
        network: makes mean and logarithms of the variances of z₁ of z₂.
        sizes: entries of z₁ and of z₂.

    >>> same = Levels(lambda z: jnp.zeros(4), (2, 1))
    >>> round(float(same.log_prob(jnp.zeros(3)) - StandardNormal(3).log_prob(jnp.zeros(3))), 6)
    0.0
    """

    network: Callable[[Array], Array]
    sizes: tuple[int, int] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=jnp.float64)

    def log_prob(self, x: Array) -> Array:
        near, deep = jnp.split(x, [self.sizes[0]])
        return _normal(self.network(deep)).log_prob(near) + StandardNormal(self.sizes[1]).log_prob(deep)

    def sample(self, *, key: Array) -> Array:
        first, second = jax.random.split(key)
        deep = StandardNormal(self.sizes[1], self.dtype).sample(key=first)
        return jnp.concatenate([_normal(self.network(deep)).sample(key=second), deep])


class LevelsFrom(AbstractDistribution):
    """q(z₁) q(z₂ | z₁), as a recognition has the levels of a code: the near one first.

    Attributes:
        near: q(z₁).
        network: makes mean and logarithms of the variances of z₂ of z₁.
    """

    near: Gaussian
    network: Callable[[Array], Array]

    def log_prob(self, x: Array) -> Array:
        near, deep = jnp.split(x, [len(self.near.mean)])
        return self.near.log_prob(near) + _normal(self.network(near)).log_prob(deep)

    def sample(self, *, key: Array) -> Array:
        first, second = jax.random.split(key)
        near = self.near.sample(key=first)
        return jnp.concatenate([near, _normal(self.network(near)).sample(key=second)])


def _normal(output: Array) -> Gaussian:
    """N(m, diag(v)) of m and log v, one after the other."""
    mean, log_variance = jnp.split(output, 2)
    # every q gives a bound: one of a width that is a number gives it for rows of any size
    return Gaussian(mean, Diagonal(jnp.exp(jnp.clip(log_variance, -_WIDEST, _WIDEST))))


# -- encoders ---------------------------------------------------------------------------------------


def _seen(x: Array, mask_input: bool, told: Told | None) -> Array:
    """What an encoder is told of an event."""
    observed = ~jnp.isnan(x)
    seen = jnp.where(observed, x, 0) if told is None else told(x)
    return jnp.concatenate([seen, observed.astype(x.dtype)]) if mask_input else seen


class GaussianEncoder(eqx.Module):
    """q(z | x) = N(m, diag(v)), where `network` gives m and log v (cut at ±40), one after the other.

    Entries of x that are not observed are set to zero.  With `mask_input` the network is also told
    which those are: its input is x followed by a one per observed entry.

    Attributes:
        network: of what is seen of x.
        mask_input: whether it is told what is observed.
        told: how x is told, where its columns are of different kinds.
    """

    network: Callable[[Array], Array]
    mask_input: bool = eqx.field(static=True, default=False)
    told: Told | None = None

    def __call__(self, x: Array) -> Gaussian:
        return _normal(self.network(_seen(x, self.mask_input, self.told)))


class FullGaussianEncoder(eqx.Module):
    """q(z | x) = N(m, L Lᵀ), where `network` gives m and the lower triangle L, its diagonal by logarithms.

    Attributes:
        network, mask_input, told: as of `GaussianEncoder`.
        dim: entries of z.
    """

    network: Callable[[Array], Array]
    dim: int = eqx.field(static=True)
    mask_input: bool = eqx.field(static=True, default=False)
    told: Told | None = None

    def __call__(self, x: Array) -> Gaussian:
        output = self.network(_seen(x, self.mask_input, self.told))
        lower = unpack_triangle(output[self.dim :])
        diagonal = jnp.exp(jnp.clip(jnp.diagonal(lower), -_WIDEST / 2, _WIDEST / 2))
        factor = jnp.tril(lower, -1) + jnp.diag(diagonal)
        return Gaussian(output[: self.dim], Full(factor @ factor.T))


class FlowEncoder(eqx.Module):
    """q(z | x) = the law of m + √v ⊙ f(ε; h), a flow f that is told h: `network` gives m, log v and h.

    Attributes:
        network, mask_input, told: as of `GaussianEncoder`.
        flow: f, one entry after the other, each told h and the entries before it.
        dim: entries of z.
    """

    network: Callable[[Array], Array]
    flow: ConditionalFlow
    dim: int = eqx.field(static=True)
    mask_input: bool = eqx.field(static=True, default=False)
    told: Told | None = None

    def __call__(self, x: Array) -> Transformed:
        output = self.network(_seen(x, self.mask_input, self.told))
        normal, context = _normal(output[: 2 * self.dim]), output[2 * self.dim :]
        place = Affine(normal.mean, jnp.sqrt(normal.covariance.variances()))
        return Transformed(self.flow.posterior(context), place)


class BitsEncoder(eqx.Module):
    """q(z | x) = independent bits, whose log-odds are 12 tanh(o / 12) for outputs o of `network`.

    Attributes:
        network, mask_input, told: as of `GaussianEncoder`.
    """

    network: Callable[[Array], Array]
    mask_input: bool = eqx.field(static=True, default=False)
    told: Told | None = None

    def __call__(self, x: Array) -> Bernoulli:
        output = self.network(_seen(x, self.mask_input, self.told))
        return Bernoulli(jax.nn.sigmoid(_SUREST * jnp.tanh(output / _SUREST)))


class LevelsEncoder(eqx.Module):
    """q(z₁ | x) q(z₂ | z₁), both Gaussian with independent entries.

    Attributes:
        near: makes q(z₁ | x) of x.
        deeper: makes mean and logarithms of the variances of z₂ of z₁.
    """

    near: GaussianEncoder
    deeper: Callable[[Array], Array]

    def __call__(self, x: Array) -> LevelsFrom:
        return LevelsFrom(self.near(x), self.deeper)


def mean_of_code(q: AbstractDistribution) -> Array:
    """E_q[z]: in closed form, or by draws that are the same for every q of one kind.

    >>> mean_of_code(Bernoulli(jnp.array([0.25]))).tolist()
    [0.25]
    """
    if isinstance(q, Gaussian):
        return q.mean
    if isinstance(q, Bernoulli):
        return q.probability
    keys = jax.random.split(jax.random.key(0), _DRAWS_OF_MEAN)
    return jnp.mean(jax.vmap(lambda k: q.sample(key=k))(keys), axis=0)


# -- recipes ----------------------------------------------------------------------------------------


class AbstractCodePrior(eqx.Module):
    """What makes p(z) in the size that is needed."""

    @abc.abstractmethod
    def build(self, dim: int, *, dtype: Any, key: Array) -> AbstractDistribution:
        """p(z) of `dim` entries."""

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """What an entry of z can be."""

    def seen(self, dim: int) -> int:
        """How many of the `dim` entries, the first ones, the decoder is told."""
        return dim


class NormalPrior(AbstractCodePrior):
    """N(0, I).

    >>> NormalPrior().build(2, dtype=float, key=jax.random.key(0)).dim
    2
    """

    @property
    def space(self) -> Reals:
        return Reals()

    def build(self, dim: int, *, dtype: Any, key: Array) -> StandardNormal:
        return StandardNormal(dim, dtype)


class MixturePrior(AbstractCodePrior):
    """A mixture of Gaussians with independent entries, which is learned: also known as VaDE.

    Attributes:
        n_components: how many there are.

    References:
        Jiang, Zheng, Tan, Tang and Zhou (2017), Variational deep embedding.

    >>> MixturePrior(3).build(2, dtype=float, key=jax.random.key(0)).size
    3
    """

    n_components: int = eqx.field(static=True, default=10)

    @property
    def space(self) -> Reals:
        return Reals()

    def build(self, dim: int, *, dtype: Any, key: Array) -> Mixture:
        size = self.n_components
        means = jax.random.normal(key, (size, dim), dtype)
        weights = jnp.full(size, 1 / size, dtype)
        return Mixture(weights, Gaussian(means, Diagonal(jnp.ones((size, dim), dtype))))


class FlowPrior(AbstractCodePrior):
    """A flow of coupling layers, which is learned and begins as N(0, I).

    Attributes:
        layers, width: of `coupling_flow`.
        transformer: the map of one number.

    References:
        Chen et al. (2017), Variational lossy autoencoder.

    >>> flow = FlowPrior(2, 8).build(2, dtype=float, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2))), 6)
    -1.837877
    """

    layers: int = eqx.field(static=True, default=4)
    width: int = eqx.field(static=True, default=32)
    transformer: AbstractTransformer = eqx.field(default_factory=Spline)

    @property
    def space(self) -> Reals:
        return Reals()

    def build(self, dim: int, *, dtype: Any, key: Array) -> Transformed:
        sizes = {"layers": self.layers, "width": self.width, "depth": 1}
        return coupling_flow(dim, self.transformer, **sizes, dtype=dtype, key=key)


class BitsPrior(AbstractCodePrior):
    """Independent bits with learned log-odds, for `BitsRecognition`.

    >>> BitsPrior().build(2, dtype=float, key=jax.random.key(0)).logits.tolist()
    [0.0, 0.0]
    """

    @property
    def space(self) -> Binary:
        return Binary()

    def build(self, dim: int, *, dtype: Any, key: Array) -> Bits:
        return Bits(on_device(np.zeros(dim, dtype)))


class LevelsPrior(AbstractCodePrior):
    """Two levels, z₂ ~ N(0, I) and z₁ | z₂ by a network; the decoder is told z₁: for `LevelsRecognition`.

    Attributes:
        deeper: entries of z₂, the last of the code.
        width: hidden units of the network between the levels.

    References:
        Sønderby et al. (2016), Ladder variational autoencoders.

    >>> LevelsPrior(2).seen(5)
    3
    """

    deeper: int = eqx.field(static=True, default=2)
    width: int = eqx.field(static=True, default=32)

    @property
    def space(self) -> Reals:
        return Reals()

    def seen(self, dim: int) -> int:
        return _near(dim, self.deeper)

    def build(self, dim: int, *, dtype: Any, key: Array) -> Levels:
        near = _near(dim, self.deeper)
        network = mlp(self.deeper, 2 * near, width=self.width, depth=1, dtype=dtype, key=key)
        return Levels(network, (near, self.deeper), dtype)


def _near(dim: int, deeper: int) -> int:
    if not 1 <= deeper < dim:
        raise ValueError(
            f"The 'deeper' level of a code must have fewer entries than the code, {dim}. Got {deeper} "
            "instead."
        )
    return dim - deeper


class EncoderPlan(NamedTuple):
    """What an encoder is told of an event, and the size of its network.

    Attributes:
        columns: entries of an event.
        width, depth: hidden units in a layer, and layers.
        mask_input, told: as of `GaussianEncoder`.
        dtype: of the weights.
        label: how many numbers tell of a label, as of a `ToldLabel`.

    >>> EncoderPlan(3, 8, 1).network(2, key=jax.random.key(0)).layers[0].weight.shape
    (3, 8)
    """

    columns: int
    width: int
    depth: int
    mask_input: bool = False
    told: Told | None = None
    dtype: Any = jnp.float32
    label: int = 0

    def network(self, outputs: int, *, key: Array) -> Callable[[Array], Array]:
        """A perceptron of what is told."""
        inputs = self.columns if self.told is None else self.told.size
        inputs += self.columns if self.mask_input else 0
        inputs += self.label
        network = mlp(inputs, outputs, width=self.width, depth=self.depth, dtype=self.dtype, key=key)
        return told_label(network, self.label, self.dtype)


class AbstractCodeRecognition(eqx.Module):
    """What makes an encoder in the size that is needed."""

    @property
    @abc.abstractmethod
    def prior(self) -> AbstractCodePrior:
        """The usual prior of codes that are recognised so."""

    @abc.abstractmethod
    def build(self, plan: EncoderPlan, dim: int, *, key: Array) -> Callable[[Array], AbstractDistribution]:
        """An encoder to q(z | x) for z of `dim` entries."""

    @abc.abstractmethod
    def expectation(self, prior: AbstractDistribution, dim: int) -> AbstractExpectation:
        """How averages over q are had."""


def _expectation(prior: AbstractDistribution) -> AbstractExpectation:
    """In closed form for the part of the prior, where q is Gaussian and that is quadratic."""
    return Split(prior.energy, Quadratic()) if isinstance(prior, StandardNormal) else Pathwise()


class DiagonalRecognition(AbstractCodeRecognition):
    """q(z | x) is Gaussian with independent entries: `GaussianEncoder`.

    >>> encoder = DiagonalRecognition().build(EncoderPlan(3, 4, 1), 2, key=jax.random.key(0))
    >>> encoder(jnp.zeros(3, jnp.float32)).mean.shape
    (2,)
    """

    @property
    def prior(self) -> NormalPrior:
        return NormalPrior()

    def build(self, plan: EncoderPlan, dim: int, *, key: Array) -> GaussianEncoder:
        return GaussianEncoder(plan.network(2 * dim, key=key), plan.mask_input, plan.told)

    def expectation(self, prior: AbstractDistribution, dim: int) -> AbstractExpectation:
        return _expectation(prior)


class FullRecognition(AbstractCodeRecognition):
    """q(z | x) is Gaussian with any covariance: `FullGaussianEncoder`.

    >>> encoder = FullRecognition().build(EncoderPlan(3, 4, 1), 2, key=jax.random.key(0))
    >>> encoder(jnp.zeros(3, jnp.float32)).covariance.matrix().shape
    (2, 2)
    """

    @property
    def prior(self) -> NormalPrior:
        return NormalPrior()

    def build(self, plan: EncoderPlan, dim: int, *, key: Array) -> FullGaussianEncoder:
        made = plan.network(dim + dim * (dim + 1) // 2, key=key)
        return FullGaussianEncoder(made, dim, plan.mask_input, plan.told)

    def expectation(self, prior: AbstractDistribution, dim: int) -> AbstractExpectation:
        return _expectation(prior)


class FlowRecognition(AbstractCodeRecognition):
    """q(z | x) is a flow that is told what a network makes of x: `FlowEncoder`.

    Attributes:
        context: how many numbers the flow is told.
        width: hidden units of the networks of the flow.
        transformer: the map of one number.

    References:
        Rezende and Mohamed (2015), Variational inference with normalizing flows;
        Kingma et al. (2016), Improved variational inference with inverse autoregressive flow.
    """

    context: int = eqx.field(static=True, default=8)
    width: int = eqx.field(static=True, default=16)
    transformer: AbstractTransformer = eqx.field(default_factory=Spline)

    @property
    def prior(self) -> NormalPrior:
        return NormalPrior()

    def build(self, plan: EncoderPlan, dim: int, *, key: Array) -> FlowEncoder:
        first, second = split_key(key)
        made, sizes = plan.network(2 * dim + self.context, key=first), {"width": self.width, "depth": 1}
        flow = conditional_flow(self.context, dim, self.transformer, **sizes, dtype=plan.dtype, key=second)
        return FlowEncoder(made, flow, dim, plan.mask_input, plan.told)

    def expectation(self, prior: AbstractDistribution, dim: int) -> AbstractExpectation:
        return Pathwise()


class EveryBit(AbstractExpectation):
    """The exact sum over all states of `dim` bits: `Enumeration` of them.

    >>> from freeenergy.distributions import Bernoulli
    >>> coin = Bernoulli(jnp.array([0.25]))
    >>> EveryBit(1)(lambda z: z[0], coin, key=jax.random.key(0)).item()
    0.25
    """

    dim: int = eqx.field(static=True)

    def __call__(self, f: Any, q: AbstractDistribution, *, key: Array) -> Float[Array, ""]:
        assert isinstance(q, Bernoulli)
        return Enumeration(binary_states(self.dim, q.probability.dtype))(f, q, key=key)


class BitsRecognition(AbstractCodeRecognition):
    """q(z | x) are independent bits: `BitsEncoder`.

    Attributes:
        gradient: how averages over bits, and their slopes, are had: `StraightThrough()`, `GumbelSoftmax()`,
            `ScoreFunction()`; None for the exact sum over all codes, where there are at most 2¹⁰.

    >>> BitsRecognition().expectation(Bits(jnp.zeros(3)), 3)
    EveryBit(dim=3)
    """

    gradient: AbstractExpectation | None = None

    @property
    def prior(self) -> BitsPrior:
        return BitsPrior()

    def build(self, plan: EncoderPlan, dim: int, *, key: Array) -> BitsEncoder:
        return BitsEncoder(plan.network(dim, key=key), plan.mask_input, plan.told)

    def expectation(self, prior: AbstractDistribution, dim: int) -> AbstractExpectation:
        if self.gradient is not None:
            return self.gradient
        return EveryBit(dim) if dim <= MOST_BITS else StraightThrough()


# bits whose states are summed over, if nothing else is said
MOST_BITS = 10


class LevelsRecognition(AbstractCodeRecognition):
    """q(z₁ | x) q(z₂ | z₁) for a code of two levels: `LevelsEncoder`, also known as a hierarchical VAE.

    Attributes:
        deeper: entries of z₂, the last of the code.
        hidden: units of the network between the levels.

    >>> LevelsRecognition(2).prior
    LevelsPrior()
    """

    deeper: int = eqx.field(static=True, default=2)
    hidden: int = eqx.field(static=True, default=32)

    @property
    def prior(self) -> LevelsPrior:
        return LevelsPrior(self.deeper, self.hidden)

    def build(self, plan: EncoderPlan, dim: int, *, key: Array) -> LevelsEncoder:
        first, second = split_key(key)
        near = _near(dim, self.deeper)
        deeper = mlp(near, 2 * self.deeper, width=self.hidden, depth=1, dtype=plan.dtype, key=second)
        return LevelsEncoder(DiagonalRecognition().build(plan, near, key=first), deeper)

    def expectation(self, prior: AbstractDistribution, dim: int) -> AbstractExpectation:
        return Pathwise()
