"""Finite answers to a question: an energy for each in the features of a kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from .._core import Categories, boltzmann, buffer, parameter, positive
from ..inference import Finite
from ..kernels import AbstractKernel
from ._base import AbstractExactPosterior


class KernelMachine(AbstractExactPosterior):
    """e(x, y) = −s (k(x, X) a_y + b_y) for each of finitely many answers y, and p(y | x) ∝ exp(−e(x, y)).

    Attributes:
        kernel: k.
        coefficients: a, (rows, answers).
        offset: b, a number per answer.
        slope: s, by which scores become logarithms of odds.
        x: X, the rows that decide.

    >>> from freeenergy.kernels import Linear
    >>> rows = jnp.ones((1, 1))
    >>> model = KernelMachine(Linear(), jnp.array([[0.0, 1.0]]), jnp.zeros(2), jnp.ones(()), rows)
    >>> [round(float(p), 4) for p in model.posterior(jnp.array([1.0])).probabilities]
    [0.2689, 0.7311]
    """

    kernel: AbstractKernel
    coefficients: Array = parameter()
    offset: Array = parameter()
    slope: Array = parameter(positive)
    x: Array = buffer()

    def energies(self, x: Array) -> Array:
        """e(x, y) for every y."""
        return -self.slope * (self.kernel.gram(x[None], self.x)[0] @ self.coefficients + self.offset)

    def energy(self, x: Array, y: Array) -> Array:
        """e(x, y)."""
        return self.energies(x)[jnp.asarray(y, int)]

    def latent(self, x: Array) -> Categories:
        """y, the number of the answer."""
        return Categories(len(self.offset))

    def log_prob_of(self, y: Array, x: Array) -> Array:
        """log p(y | x)."""
        return jax.nn.log_softmax(-self.energies(x))[jnp.asarray(y, int)]

    def posterior(self, x: Array) -> Finite:
        """p(y | x)."""
        return Finite(boltzmann(self.energies(x))[1])
