"""Objectives of autoencoders: events had again from their codes, noise against which, and penalties."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ._objectives import Batch


class AbstractCorruption(eqx.Module):
    """Noise that an autoencoder has to take away (a denoising autoencoder)."""

    @abc.abstractmethod
    def __call__(self, x: Array, *, key: Array) -> Array:
        """An event with noise; NaN stays."""


class GaussianCorruption(AbstractCorruption):
    """x + scale · ε, ε ~ N(0, I), for standardised columns.

    As the scale goes to zero it becomes the penalty ½ scale² ‖∂r/∂x‖² of the reconstruction.

    >>> GaussianCorruption(0.0)(jnp.array([1.0, jnp.nan]), key=jax.random.key(0)).tolist()
    [1.0, nan]
    """

    scale: float = eqx.field(static=True, default=0.3)

    def __call__(self, x: Array, *, key: Array) -> Array:
        return x + self.scale * jax.random.normal(key, x.shape, x.dtype)


class MaskingCorruption(AbstractCorruption):
    """A share of the entries is put to zero, the mean of standardised columns.

    >>> MaskingCorruption(1.0)(jnp.array([1.0, jnp.nan]), key=jax.random.key(0)).tolist()
    [0.0, nan]
    """

    share: float = eqx.field(static=True, default=0.3)

    def __call__(self, x: Array, *, key: Array) -> Array:
        gone = jax.random.bernoulli(key, self.share, x.shape)
        return jnp.where(gone & ~jnp.isnan(x), 0, x)


class AbstractCodePenalty(eqx.Module):
    """What a code costs beside the error of the reconstruction."""

    @abc.abstractmethod
    def __call__(self, model: Any, x: Array) -> Array:
        """The cost of the code of `x`."""


class SparseCode(AbstractCodePenalty):
    """weight · Σ_k |h_k|: few entries of a code are in use (a sparse autoencoder).

    >>> from freeenergy.models import Autoencoder
    >>> SparseCode(0.5)(Autoencoder(lambda x: x, lambda h: h), jnp.array([1.0, -3.0])).item()
    2.0
    """

    weight: float = eqx.field(static=True, default=0.1)

    def __call__(self, model: Any, x: Array) -> Array:
        return self.weight * jnp.sum(jnp.abs(model.encode(x)))


class ContractiveCode(AbstractCodePenalty):
    """weight · ‖∂h/∂x‖²: codes change little with the event (a contractive autoencoder).

    References:
        Rifai, Vincent, Muller, Glorot and Bengio (2011), Contractive auto-encoders.

    >>> from freeenergy.models import Autoencoder
    >>> ContractiveCode(0.5)(Autoencoder(lambda x: 2 * x, lambda h: h), jnp.array([1.0, -3.0])).item()
    4.0
    """

    weight: float = eqx.field(static=True, default=0.1)

    def __call__(self, model: Any, x: Array) -> Array:
        observed = ~jnp.isnan(x)

        def code(filled: Array) -> Array:
            return model.encode(jnp.where(observed, filled, jnp.nan))

        slopes = jax.jacrev(code)(jnp.where(observed, x, 0))
        return self.weight * jnp.sum(slopes**2)


class Reconstruction(eqx.Module):
    """½ Σ_d (x_d − r_d)² over the observed entries of a row, with r from the code of a noisy row.

    With a penalty of the code, if there is one.  For models with `encode` and `decode`, such as
    `models.Autoencoder`.

    Attributes:
        corruption: noise, such as `GaussianCorruption(0.3)`; None for none.
        penalty: of the code of the row itself, such as `ContractiveCode(0.1)`; None for none.

    >>> from freeenergy.models import Autoencoder
    >>> model = Autoencoder(lambda x: x[:1], lambda h: jnp.concatenate([h, h]))
    >>> batch = Batch(jnp.array([[1.0, 3.0]]), jnp.ones(1))
    >>> Reconstruction()(model, batch, jax.random.key(0)).item()
    2.0
    """

    corruption: AbstractCorruption | None = None
    penalty: AbstractCodePenalty | None = None

    def __call__(self, model: Any, batch: Batch, key: Array) -> Array:
        def loss(x: Array, k: Array) -> Array:
            noisy = x if self.corruption is None else self.corruption(x, key=k)
            observed = ~jnp.isnan(x)
            left = jnp.where(observed, x, 0) - model.decode(model.encode(noisy))
            error = 0.5 * jnp.sum(jnp.where(observed, left, 0) ** 2)
            return error if self.penalty is None else error + self.penalty(model, x)

        return batch.mean(jax.vmap(loss)(batch.x, jax.random.split(key, batch.weight.shape[0])))
