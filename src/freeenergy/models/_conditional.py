"""Answers given rows: any family whose parameters come from a function of the row."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import AbstractSpace, parameter
from ..distributions import AbstractLink, Given
from ._base import AbstractConditional
from ._mixture import Mixture


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


class Conditional(AbstractConditional):
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


class Components(AbstractLink):
    """The output is that of a mixture: a score for each component, then what `link` makes of the others.

    p(x | output) = Σ_k softmax(scores)_k p(x | output_k).  What `link` leaves to be learned, such as a
    variance with `Mean()`, all components share.  In a `Conditional` it makes a mixture-density network,
    also known as a mixture of experts whose gate sees the row.

    Attributes:
        number: how many components there are.
        link: that of each component.

    >>> from freeenergy.distributions import Diagonal, Gaussian, Mean
    >>> normal = Gaussian(jnp.zeros(1), Diagonal(jnp.full(1, 0.25)))
    >>> two = Given(normal, Components(2, Mean()))
    >>> two.size, round(-float(two.log_prob(jnp.array([0.0, 0.0, -1.0, 1.0]), jnp.array([1.0]))), 6)
    (4, 0.918603)
    """

    number: int = eqx.field(static=True)
    link: AbstractLink

    def size(self, member: Any) -> int:
        return self.number * (1 + self.link.size(member))

    def learned(self, member: Any) -> Any:
        return self.link.learned(member)

    def split(self, output: Array) -> tuple[Array, Array]:
        """The logarithms of the weights, and the output of each component."""
        scores, rest = output[: self.number], output[self.number :]
        return jax.nn.log_softmax(scores), rest.reshape(self.number, -1)

    def at(self, member: Any, output: Array) -> Mixture:
        log_weights, outputs = self.split(output)
        return Mixture(jnp.exp(log_weights), jax.vmap(lambda part: self.link.at(member, part))(outputs))

    def log_prob(self, member: Any, output: Array, x: Array) -> Array:
        log_weights, outputs = self.split(output)
        return jax.nn.logsumexp(
            log_weights + jax.vmap(lambda part: self.link.log_prob(member, part, x))(outputs)
        )

    def unit_free(self, member: Any) -> np.ndarray:
        return self.link.unit_free(member)
