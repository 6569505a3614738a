"""Flows: a simple distribution seen through a bijection, and what is missing in their events."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import Reals, buffer, on_device, split_key, stacked
from ..bijections import (
    AbstractTransformer,
    ContinuousFlow,
    Coupling,
    Elementwise,
    Inverse,
    MaskedAutoregressive,
    MaskedMLP,
    Repeated,
)
from ..bijections._masked import silu
from ..distributions import AbstractDistribution, Diagonal, Gaussian, Transformed
from ..inference import Amortised, importance_draws
from ..nn import MLP, mlp
from ._base import AbstractBoundedModel, AbstractCoded
from ._missing import put_in, taken_out
from ._mixture import Mixture, component_axes


class _Missing(AbstractDistribution):
    """The missing entries of `x` given the observed ones, under a mixture.

    As many entries as `x` has are drawn, those that are missing in `x` first: the others do not count.
    """

    mixture: Mixture
    x: Array

    def log_prob(self, z: Array) -> Array:
        # nothing is missing any more: a marginal for each draw would be a matrix to factorise for each
        return self.mixture.log_prob_complete(put_in(self.x, z)) - self.mixture.log_prob(self.x)

    def sample(self, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        k = self.mixture.posterior(self.x).sample(key=choose)
        # what components say of the rest is the same for all draws
        components = self.mixture.components
        each = jax.vmap(lambda c: c.complete_sample(self.x, key=draw), (component_axes(components),))
        return taken_out(self.x, each(components)[k])


class FlowWithMissing(AbstractBoundedModel, AbstractCoded):
    """A flow in which the missing entries of x are the hidden cause: e(x, z) = −log p(x with z put in).

    log p of a complete event is exact; that of others is bounded by importance samples.

    Attributes:
        flow: the density of complete events.
        proposal: a mixture that covers the flow, from which missing entries are drawn; None if none are.

    >>> from freeenergy.bijections import Spline
    >>> from freeenergy.distributions import Full
    >>> flow = coupling_flow(2, Spline(), layers=2, width=8, dtype=float, key=jax.random.key(0))
    >>> wide = Mixture(jnp.ones(1), Gaussian(jnp.zeros((1, 2)), Full(2 * jnp.eye(2)[None])))
    >>> import equinox as eqx
    >>> evidence = eqx.filter_jit(FlowWithMissing(flow, wide).evidence)
    >>> found = evidence(jnp.array([0.0, jnp.nan]), samples=4000, key=jax.random.key(1))
    >>> bool(jnp.abs(found.log_mean + 0.918939) < 4 * found.stderr)
    True
    """

    exact_if_complete: ClassVar[bool] = True
    flow: Transformed
    proposal: Mixture | None = buffer(default=None)

    def energy(self, x: Array, z: Array) -> Array:
        """−log p of `x` with its NaN entries taken from `z`, the first of them from the first."""
        return -self.flow.log_prob(put_in(x, z))

    def latent(self, x: np.ndarray) -> Reals:
        """The missing entries of a row that is there, and not traced."""
        return Reals((int(np.isnan(x).sum()),))

    @property
    def recognition(self) -> Amortised:
        """Draws missing entries from the proposal, a mixture that covers the same rows."""
        proposal = self.proposal
        assert proposal is not None
        return Amortised(lambda x: _Missing(proposal, x))

    def log_prob(self, x: Array) -> Array:
        """log p(x) of a complete event."""
        return self.flow.log_prob(x)

    def sample(self, *, key: Array) -> Array:
        """A draw from the flow."""
        return self.flow.sample(key=key)

    def encode(self, x: Array) -> Array:
        """The noise that makes a complete event."""
        return self.flow.to_base(x)

    def _completions(self, x: Array, samples: int, key: Array) -> tuple[Array, Array]:
        """Completed events and the logarithms of their importance weights."""
        draws, weights = importance_draws(self.energy, self.recognition, x, samples=samples, key=key)
        return jax.vmap(lambda z: put_in(x, z))(draws), weights

    def complete_mean(self, x: Array, *, samples: int, key: Array) -> Array:
        draws, weights = self._completions(x, samples, key)
        return jax.nn.softmax(weights) @ draws

    def complete_sample(self, x: Array, *, samples: int, key: Array) -> Array:
        propose, choose = jax.random.split(key)
        draws, weights = self._completions(x, samples, propose)
        return draws[jax.random.categorical(choose, weights)]

    def complete_given(self, x: Array, z: Array, *, key: Array) -> Array:
        """`x` with its NaN entries taken from `z`, the first of them from the first: nothing is drawn."""
        return put_in(x, z)


def coupling_flow(
    dim: int,
    transformer: AbstractTransformer,
    *,
    layers: int = 8,
    width: int = 64,
    depth: int = 2,
    dtype=jnp.float32,
    key: Array,
) -> Transformed:
    """A flow of coupling layers from a Gaussian with learnable mean and scales; it starts as N(0, I).

    Layers come in pairs that exchange what is passive, so that two layers transform every entry; each
    pair splits the entries by another binary digit of their numbers, so that every two entries are parted
    soon.  One entry has no other to be told by: its layers are unconditional.

    Args:
        dim: number of entries of an event.
        transformer: the map of one number, such as `Shift()`, `ShiftScale()` or `Spline()`.
        layers: number of layers.
        width: units in a hidden layer of each conditioner.
        depth: hidden layers of each conditioner.
        dtype: type of all parameters, and of the events.
        key: makes the weights.

    >>> from freeenergy.bijections import Spline
    >>> flow = coupling_flow(2, Spline(), layers=2, width=8, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2, jnp.float32))), 5)
    -1.83788
    """
    _check(dim=dim, layers=layers, width=width, depth=depth)
    if dim == 1:
        parameters = jnp.zeros((layers, 1, transformer.size), dtype)
        return Transformed(_standard_normal(dim, dtype), Repeated(Elementwise(transformer, parameters)))
    stack = _couplings(dim, transformer, layers, width, depth, dtype, key)
    return Transformed(_standard_normal(dim, dtype), Repeated(stack))


def _couplings(dim, transformer, layers, width, depth, dtype, key) -> Coupling:
    def layer(order: np.ndarray, key: Array) -> Coupling:
        return Coupling.with_mlp(order, transformer, width=width, depth=depth, dtype=dtype, key=key)

    return stacked(
        [layer(*each) for each in zip(_orders(dim, layers), split_key(key, layers), strict=True)]
    )


def _orders(dim: int, layers: int) -> np.ndarray:
    """For each layer the entries, those first that are passive."""
    digits = max(dim - 1, 1).bit_length()
    orders = []
    for i in range(layers):
        order = np.argsort((np.arange(dim) >> (i // 2 % digits)) & 1, kind="stable")
        orders.append(order if i % 2 == 0 else np.roll(order, dim - dim // 2))
    return np.stack(orders)


def autoregressive_flow(
    dim: int,
    transformer: AbstractTransformer,
    *,
    layers: int = 4,
    width: int = 64,
    depth: int = 2,
    dtype=jnp.float32,
    key: Array,
) -> Transformed:
    """A masked autoregressive flow from a Gaussian with learnable mean and scales; it starts as N(0, I).

    `log_prob` is one pass through each network and `sample` one a dimension.  The order of the
    entries is reversed from layer to layer.  Arguments as in `coupling_flow`.

    >>> from freeenergy.bijections import ShiftScale
    >>> flow = autoregressive_flow(2, ShiftScale(), layers=2, width=8, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2, jnp.float32))), 5)
    -1.83788
    """
    _check(dim=dim, layers=layers, width=width, depth=depth)
    stack = _autoregressions(dim, transformer, layers, width, depth, dtype, key)
    return Transformed(_standard_normal(dim, dtype), Repeated(stack))


def inverse_autoregressive_flow(
    dim: int,
    transformer: AbstractTransformer,
    *,
    layers: int = 4,
    width: int = 64,
    depth: int = 2,
    dtype=jnp.float32,
    key: Array,
) -> Transformed:
    """An autoregressive flow the other way round: `sample` is one pass, `log_prob` one a dimension.

    Each entry is transformed as the noise before it tells (Kingma et al. 2016).  For few columns, of which
    many draws are wanted.  Arguments as in `coupling_flow`.

    >>> from freeenergy.bijections import ShiftScale
    >>> flow = inverse_autoregressive_flow(2, ShiftScale(), layers=2, width=8, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2, jnp.float32))), 5)
    -1.83788
    """
    _check(dim=dim, layers=layers, width=width, depth=depth)
    stack = _autoregressions(dim, transformer, layers, width, depth, dtype, key)
    return Transformed(_standard_normal(dim, dtype), Repeated(stack.bijection))


def _autoregressions(dim, transformer, layers, width, depth, dtype, key) -> Inverse:
    def layer(rank: np.ndarray, key: Array) -> Inverse:
        network = MaskedMLP(rank, transformer.size, width=width, depth=depth, dtype=dtype, key=key)
        return Inverse(MaskedAutoregressive(network, transformer))

    ranks = [np.arange(dim)[:: 1 if i % 2 == 0 else -1] for i in range(layers)]
    return stacked([layer(*each) for each in zip(ranks, split_key(key, layers), strict=True)])


class _Velocity(eqx.Module):
    """dx/dt of an event at a time between 0 and 1."""

    network: MLP

    def __call__(self, x: Array, time: Array) -> Array:
        return self.network(jnp.append(x, time.astype(x.dtype)))


def continuous_flow(
    dim: int,
    transformer: AbstractTransformer,
    *,
    layers: int = 8,
    width: int = 64,
    depth: int = 2,
    dtype=jnp.float32,
    key: Array,
) -> Transformed:
    """A flow in continuous time from a Gaussian with learnable mean and scales; it starts as N(0, I).

    A perceptron says dx/dt, which is solved from t = 0 to 1 in as many steps as there are `layers`, and the
    change of volume is the integral of its trace, which is exact (`bijections.ContinuousFlow`; Chen et al.
    2018).  Both directions take as long, and entries may move anywhere: no half of them stays.
    Nothing is transformed one number at a time, so that `transformer` has no part in it.

    >>> from freeenergy.bijections import Spline
    >>> flow = continuous_flow(2, Spline(), layers=4, width=8, key=jax.random.key(0))
    >>> round(float(flow.log_prob(jnp.zeros(2, jnp.float32))), 5)
    -1.83788
    """
    _check(dim=dim, layers=layers, width=width, depth=depth)
    network = mlp(dim + 1, dim, width=width, depth=depth, activation=silu, last=0.0, dtype=dtype, key=key)
    begin, end = (on_device(np.asarray(t), dtype) for t in (0.0, 1.0))
    return Transformed(
        _standard_normal(dim, dtype), ContinuousFlow(_Velocity(network), begin, end, steps=layers)
    )


def _standard_normal(dim: int, dtype) -> Gaussian:
    return Gaussian(on_device(np.zeros(dim), dtype), Diagonal(on_device(np.ones(dim), dtype)))


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(
                f"The '{name}' parameter of a flow must be an int in the range [1, inf). "
                f"Got {value!r} instead."
            )
