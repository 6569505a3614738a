"""Numbers given rows by any energy of both, normalised over the number by quadrature."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._core import AbstractSpace, Reals, parameter, positive
from ._base import AbstractEnergy

# the trapezoid rule goes over y = s sinh t, |t| ≤ this, where the parabola has left nothing: e^(−½ 27²)
_REACH = 4.0


class ConditionalEnergy(AbstractEnergy):
    """e(x, y) = g(x, y) + ½ (y / s)²: an energy of a row and a number, and p(y | x) ∝ exp(−e(x, y)).

    The parabola keeps ∫ exp(−e(x, y)) dy finite wherever g does not fall faster.  That integral is the
    trapezoid rule over y = s sinh t, so that `learning.negative_conditional_log_likelihood` has the slope
    ∇e(x, y) − E_{y′|x} ∇e(x, y′) with the expectation over all of the line, and no chain is needed; chains
    draw answers: `inference.infer(lambda y: model.energy(x, y), model.latent(x), method, key=key)`.  Also
    known as energy-based regression.

    Attributes:
        function: g, from a row with the number after it to one number, such as a network.
        spread: s, for answers about zero; those of rescaled answers are about one.
        nodes: of the trapezoid rule.  Near zero they are 8 s / nodes apart, and p(y | x) should not be
            narrower.

    >>> model = ConditionalEnergy(lambda xy: 0.5 * (xy[1] - xy[0]) ** 2, jnp.ones(()))
    >>> round(float(model.log_prob_of(jnp.array([1.0]), jnp.array([2.0]))), 6)  # N(1, ½) at 1
    -0.572365
    """

    function: Any
    spread: Array = parameter(positive)
    nodes: int = eqx.field(static=True, default=256)

    def energy(self, x: Float[Array, " columns"], y: Float[Array, " 1"]) -> Float[Array, ""]:
        """e(x, y)."""
        return jnp.sum(self.function(jnp.concatenate([x, y]))) + 0.5 * (y[0] / self.spread) ** 2

    def latent(self, x: Float[Array, " columns"]) -> AbstractSpace:
        """y, a number."""
        return Reals((1,))

    def log_normaliser(self, x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log Z(x) = log ∫ exp(−e(x, y)) dy."""
        t = np.linspace(-_REACH, _REACH, self.nodes)
        y = self.spread * jnp.asarray(np.sinh(t), x.dtype)
        steps = jnp.asarray(np.log(np.cosh(t) * (t[1] - t[0])), x.dtype)
        energies = jax.vmap(lambda own: self.energy(x, own))(y[:, None])
        return jax.nn.logsumexp(steps - energies) + jnp.log(self.spread)

    def log_prob_of(self, y: Float[Array, " 1"], x: Float[Array, " columns"]) -> Float[Array, ""]:
        """log p(y | x)."""
        return -self.energy(x, y) - self.log_normaliser(x)
