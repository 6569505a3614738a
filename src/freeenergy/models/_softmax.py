"""Finite answers to a question: a linear energy for each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from .._core import Categories, boltzmann, parameter
from ..inference import Finite
from ._base import AbstractConditional


class SoftmaxModel(AbstractConditional):
    """e(x, y) = −w_y·x − b_y for each of finitely many answers y, and p(y | x) ∝ exp(−e(x, y)).

    Attributes:
        weight: w, a row per answer.
        bias: b, a number per answer.

    >>> model = SoftmaxModel(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> [round(float(p), 4) for p in model.posterior(jnp.array([1.0])).probabilities]
    [0.2689, 0.7311]
    """

    weight: Array = parameter()
    bias: Array = parameter()

    def energies(self, x: Array) -> Array:
        """e(x, y) for every y."""
        return -(self.weight @ x + self.bias)

    def energy(self, x: Array, y: Array) -> Array:
        """e(x, y)."""
        return self.energies(x)[jnp.asarray(y, int)]

    def latent(self, x: Array) -> Categories:
        """y, the number of the answer."""
        return Categories(len(self.bias))

    def log_prob_of(self, y: Array, x: Array) -> Array:
        """log p(y | x)."""
        return jax.nn.log_softmax(-self.energies(x))[jnp.asarray(y, int)]

    def posterior(self, x: Array) -> Finite:
        """p(y | x)."""
        return Finite(boltzmann(self.energies(x))[1])
