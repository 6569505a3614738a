"""Student's t with coordinates that depend on each other."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import (
    ROOM,
    AbstractSpace,
    Reals,
    array_parameter,
    cholesky,
    log_det_cholesky,
    log_gamma_ratio,
    positive,
    positive_definite,
    refuse_outside,
)
from ._base import AbstractDistribution, AbstractPartial, rescaled, with_mean
from ._covariance import Full
from ._gaussian import Gaussian, observed_block

# of longer vectors the squares might overflow
_FAR = 2.0**40


class MultivariateT(AbstractDistribution, AbstractPartial):
    """A Gaussian of random width: x = m + √(ν/u) L z, u ~ χ²_ν, z ~ N(0, I), S = LLᵀ.

        p(x) = Γ((ν+d)/2) / (Γ(ν/2) |πν S|^{½}) · (1 + (x−m)ᵀS⁻¹(x−m)/ν)^{−(ν+d)/2}.

    Missing entries are integrated out exactly: the rest has the same ν.

    Attributes:
        loc: m.
        scale: S, a matrix; the covariance is S ν/(ν−2) for ν > 2.
        df: ν.

    >>> t = MultivariateT(jnp.zeros(2), jnp.eye(2), jnp.array(1.0))
    >>> round(float(t.log_prob(jnp.array([1.0, jnp.nan]))), 6)
    -1.837877
    """

    support: ClassVar[AbstractSpace] = Reals()

    loc: Array = array_parameter()
    scale: Array = array_parameter(positive_definite, ndim=2)
    df: Array = array_parameter(positive, ndim=0)

    def __check_init__(self) -> None:
        refuse_outside(self)

    @classmethod
    def unit_free_columns(cls, n_features: int) -> np.ndarray:
        """All of them: every member has its counterpart in any other unit."""
        return np.ones(n_features, bool)

    @property
    def dim(self) -> int:
        """How many columns an event has."""
        return self.loc.shape[-1]

    @property
    def common_unit(self) -> bool:
        """Whether all columns have to be in one unit."""
        return False

    def log_density(self, length: Array, log_det: Array, dim: Array | int) -> Array:
        """log p from the squared Mahalanobis length of `dim` entries."""
        return self._from_tail(jnp.log1p(length / self.df), log_det, dim)

    def _from_tail(self, tail: Array, log_det: Array, dim: Array | int) -> Array:
        """log p from log(1 + length/ν)."""
        ratio = log_gamma_ratio(self.df / 2, jnp.asarray(dim / 2, self.df.dtype))
        constant = ratio - 0.5 * (dim * jnp.log(jnp.pi * self.df) + log_det)
        return constant - (self.df + dim) / 2 * tail

    def _density(self, scaled: Array, log_det: Array, dim: Array | int) -> Array:
        """log p from L⁻¹(x − m), in units of `ROOM`, of `dim` entries, however long it is."""
        # far out log(1 + t²/ν) is 2 log t − log ν, whose t need not be squared
        longest = jax.lax.stop_gradient(jnp.max(jnp.abs(scaled)))
        far = longest > _FAR / ROOM
        size = jnp.where(far, longest, 1 / ROOM)
        ratio = jnp.sum((scaled / size) ** 2) / self.df
        tail = jnp.where(
            far,
            2 * (jnp.log(size) + jnp.log(ROOM)) + jnp.log(jnp.where(far, ratio, 1)),
            jnp.log1p(jnp.where(far, 0, ratio)),
        )
        return self._from_tail(tail, log_det, dim)

    def _whitened(self, x: Array) -> tuple[Array, Array, Array]:
        """L⁻¹(x − m) of the observed entries, in units of `ROOM`, their log |S| and their number."""
        observed = ~jnp.isnan(x)
        factor = cholesky(observed_block(self.scale, observed))[0]
        residual = jnp.where(observed, x - self.loc, 0)
        scaled = jax.scipy.linalg.solve_triangular(factor, residual / ROOM, lower=True)
        return scaled, log_det_cholesky(factor), jnp.sum(observed.astype(x.dtype))

    def log_prob(self, x: Array) -> Array:
        return self._density(*self._whitened(x))

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN, by one factorisation that all rows share."""
        factor = cholesky(self.scale)[0]
        scaled = jax.scipy.linalg.solve_triangular(factor, (x - self.loc) / ROOM, lower=True)
        return self._density(scaled, log_det_cholesky(factor), len(x))

    def _normal(self) -> Gaussian:
        return Gaussian(self.loc, Full(self.scale))

    def sample(self, *, key: Array) -> Array:
        return self.complete_sample(jnp.full_like(self.loc, jnp.nan), key=key)

    def complete_mean(self, x: Array) -> Array:
        """`x` with each NaN replaced by its location given the rest: the mean, where there is one."""
        return self._normal().complete_mean(x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        width_key, normal_key = jax.random.split(key)
        scaled, _, dim = self._whitened(x)
        length = jnp.sum((ROOM * scaled) ** 2)
        chi = 2 * jax.random.gamma(width_key, (self.df + dim) / 2)
        mean = self._normal().complete_mean(x)
        draw = self._normal().complete_sample(x, key=normal_key)
        return jnp.where(jnp.isnan(x), mean + jnp.sqrt((self.df + length) / chi) * (draw - mean), x)


@with_mean.register
def _(member: MultivariateT, mean: Array) -> MultivariateT:
    return MultivariateT(mean, member.scale, member.df)


@rescaled.register
def _(member: MultivariateT, shift: Array, scale: Array) -> MultivariateT:
    factor = 1 / jnp.broadcast_to(scale, member.loc.shape)
    return MultivariateT(
        (member.loc - shift) * factor, Full(member.scale).scale(factor).matrix(), member.df
    )
