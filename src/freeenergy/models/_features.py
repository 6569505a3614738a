"""Finitely many features whose inner products are near to a kernel."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._core import buffer
from ..kernels import AbstractKernel


class LandmarkFeatures(eqx.Module):
    """φ(x) = k(x, Z) R with R Rᵀ = k(Z, Z)⁻¹: features of Nyström, exact at the landmarks Z.

    Attributes:
        kernel: k.
        landmarks: Z.
        root: R.

    >>> from freeenergy.kernels import RBF
    >>> features = LandmarkFeatures(RBF(), jnp.zeros((1, 2)), jnp.ones((1, 1)))
    >>> features(jnp.zeros(2)).tolist()
    [1.0]
    """

    kernel: AbstractKernel
    landmarks: Float[Array, "landmarks columns"] = buffer()
    root: Float[Array, "landmarks features"] = buffer()

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " features"]:
        return self.kernel.gram(x[None], self.landmarks)[0] @ self.root


class FourierFeatures(eqx.Module):
    """φ(x) = √(2v/p) cos(ωᵀx + b): p random waves, whose inner products average to a kernel of x − y.

    Without the phases b they would average to ½ (k(x − y) + k(x + y)), which is no kernel of x − y.

    Attributes:
        frequencies: ω, (columns, p).
        phases: b, from 0 to 2π.
        variance: v = k(x, x).

    >>> features = FourierFeatures(jnp.zeros((2, 1)), jnp.zeros(1), jnp.ones(()))
    >>> round(float(features(jnp.ones(2))[0]), 4)
    1.4142
    """

    frequencies: Float[Array, "columns features"] = buffer()
    phases: Float[Array, " features"] = buffer()
    variance: Float[Array, ""] = buffer()

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " features"]:
        size = jnp.sqrt(2 * self.variance / len(self.phases))
        return size * jnp.cos(x @ self.frequencies + self.phases)
