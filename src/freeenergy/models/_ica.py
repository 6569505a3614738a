"""Independent components: a linear flow from sources that are not Gaussian."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..bijections import GeneralAffine, Inverse
from ..distributions import AbstractLocationScale, Transformed


def independent_components(sources: AbstractLocationScale, unmixing: Array, offset: Array) -> Transformed:
    """s = D x + b with independent sources:  log p(x) = Σ_k log p_k(s_k) + log |det D|.

    A flow of one affine layer.  With ψ_k the distribution function of source k, its likelihood is the
    entropy of ψ(Dx + b) that InfoMax maximises.

    Args:
        sources: the density of s.
        unmixing: D.
        offset: b.

    >>> from freeenergy.distributions import Laplace
    >>> sources = Laplace(jnp.zeros(2), jnp.ones(2))
    >>> model = independent_components(sources, jnp.diag(jnp.array([2.0, 1.0])), jnp.zeros(2))
    >>> round(float(model.log_prob(jnp.array([1.0, 0.0]))), 6)
    -2.693147
    """
    # the inverse of the layer is what is known: no system is solved for a density
    return Transformed(sources, Inverse(GeneralAffine(offset, unmixing)))


def spread_sources(source: AbstractLocationScale, dim: int) -> AbstractLocationScale:
    """`source` for `dim` coordinates, where it was given for one.

    >>> from freeenergy.distributions import Laplace
    >>> spread_sources(Laplace(jnp.zeros(1), jnp.ones(1)), 3).scale.tolist()
    [1.0, 1.0, 1.0]
    """
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (dim,)), source)
