"""Answers given rows: any family whose parameters come from a function of the row."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jax import Array
from jaxtyping import Float

from .._core import AbstractSpace, parameter
from ..distributions import Given
from ._base import AbstractExactPosterior


class Affine(eqx.Module):
    """f(x) = W x + b.

    Attributes:
        weight: W, a row per output.
        bias: b, a number per output.

    >>> import jax.numpy as jnp
    >>> Affine(jnp.array([[2.0, 0.0]]), jnp.array([1.0]))(jnp.array([3.0, 5.0])).tolist()
    [7.0]
    """

    weight: Float[Array, "outputs columns"] = parameter()
    bias: Float[Array, " outputs"] = parameter()

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " outputs"]:
        return self.weight @ x + self.bias


class Constant(eqx.Module):
    """f(x) = b, whatever the row.

    Attributes:
        bias: b, a number per output.

    >>> import jax.numpy as jnp
    >>> Constant(jnp.array([1.0]))(jnp.array([3.0, 5.0])).tolist()
    [1.0]
    """

    bias: Float[Array, " outputs"] = parameter()

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " outputs"]:
        return self.bias


class Conditional(AbstractExactPosterior):
    """e(x, y) = −log p(y | f(x)): a function of the row, and a conditional family of the answer.

    With `Affine` for f it is a generalised linear model (least squares, if the answer is Gaussian); with a
    network, a mixture-density network and its kin.

    Attributes:
        function: f, from a row to the output that sets the parameters of the answer.
        answer: the conditional family, a `freeenergy.distributions.Given`.

    >>> import jax.numpy as jnp
    >>> from freeenergy.distributions import Poisson
    >>> model = Conditional(Affine(jnp.ones((1, 1)), jnp.zeros(1)), Given(Poisson(jnp.ones(1))))
    >>> round(float(model.energy(jnp.array([0.0]), jnp.array([0.0]))), 4)
    1.0
    """

    function: Any
    answer: Given

    def log_prob_of(self, y: Float[Array, " outputs"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x); NaN in `y` is marginalised."""
        return self.answer.log_prob(self.function(x), y)

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        """e(x, y)."""
        return -self.log_prob_of(y, x)

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """What y can be."""
        return self.answer.support

    def posterior(self, x: Float[Array, " columns"]) -> Any:
        """p(y | x), a distribution."""
        return self.answer.at(self.function(x))
