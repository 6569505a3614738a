"""What a bijection can do: go forward and back, and say how it changes volume."""

from __future__ import annotations

import abc

import equinox as eqx
from jax import Array


class AbstractBijection(eqx.Module):
    """An invertible, differentiable map y = f(x) of one event (a vector).

    Both directions return the logarithm of the absolute determinant of the Jacobian of the map that
    was applied, so that `inverse` returns minus what `forward` returns at the matching point, and

        log p(y) = log p(x) − log |det ∂f/∂x|.
    """

    @abc.abstractmethod
    def forward(self, x: Array) -> tuple[Array, Array]:
        """f(x) and log |det ∂f/∂x|, a scalar."""

    @abc.abstractmethod
    def inverse(self, y: Array) -> tuple[Array, Array]:
        """f⁻¹(y) and log |det ∂f⁻¹/∂y|, a scalar."""
