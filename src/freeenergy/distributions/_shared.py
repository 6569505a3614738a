"""Covariances of a stack that have the volume, the shape or the orientation in common."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import (
    as_rotation,
    buffer,
    parameter,
    positive,
    rotations,
    simplex,
)
from ._covariance import (
    AbstractSharing,
    Full,
    dense_precision_coefficients,
    dense_scatter,
    dense_second_moments,
    filled,
    floored,
)

# rounds of an inner loop, and what is no longer worth one, in nats per row
_MOST_ROUNDS, _SETTLED = 200, 1e-12


class _Parts(NamedTuple):
    """Volumes (members), shapes of product one (members, dim) and axes (members, dim, dim)."""

    size: Array
    ratios: Array
    axes: Array


class Shared(AbstractSharing):
    """Covariances of a stack that have the volume, the shape or the orientation in common:

        Σ_k = λ_k D_k A_k D_kᵀ,   |A_k| = 1,   A_k diagonal, D_k a rotation.

    λ is the volume (of which the determinant is a power), A the shape, D the orientation; what is not
    shared, every component has for itself.  Nothing shared is `Full()`, everything `Tied(Full())`.  In the
    names of mclust, for volume, shape and orientation, E is shared and V is not: `Shared(shape=True,
    orientation=True)` is VEE, `Shared(volume=True, shape=True)` EEV.  Shapes and orientations mean
    something in one unit for all columns, which is that of the data.  With `aligned` the axes are those of
    the columns, D = I: `Shared(shape=True, aligned=True)` is VEI and `Shared(volume=True, aligned=True)`
    EVI, of which nothing shared is `Diagonal()`, and everything `Tied(Diagonal())`.

    `from_moments` lowers Σ_k w_k (log |Σ_k| + tr Σ_k⁻¹ S_k) in one part after another, each time to its
    least value, from the present values on until nothing changes, so that the likelihood never falls.
    Orientations that components of different shapes share are turned by steps along a bound from above.

    Attributes:
        volume, shape, orientation: whether the components share it.
        aligned: whether columns are independent within each component: its axes are theirs.
        floor: the least eigenvalue of S_k that is told from zero.
        size: λ.
        ratios: A divided by its trace: parts of one.
        axes: D; None if `aligned`.

    References: Banfield and Raftery, *Model-based Gaussian and non-Gaussian clustering* (1993); Celeux and
    Govaert, *Gaussian parsimonious clustering models* (1995); Browne and McNicholas (2014), for the bound.

    >>> two = Shared(shape=True, orientation=True).from_moments(
    ...     jnp.ones((2, 2)), jnp.zeros((2, 2)), jnp.array([[1.0, 0.0, 4.0], [2.0, 0.0, 8.0]])
    ... )
    >>> two.size.round(6).tolist(), [round(float(part), 6) for part in jnp.sort(two.ratios)]
    ([2.0, 4.0], [0.2, 0.8])
    """

    volume: bool = eqx.field(static=True, default=False, kw_only=True)
    shape: bool = eqx.field(static=True, default=False, kw_only=True)
    orientation: bool = eqx.field(static=True, default=False, kw_only=True)
    aligned: bool = eqx.field(static=True, default=False, kw_only=True)
    floor: float | Array = buffer(default=1e-6, kw_only=True)
    size: Array | None = parameter(positive, default=None, kw_only=True)
    ratios: Array | None = parameter(simplex, default=None, kw_only=True)
    axes: Array | None = parameter(rotations, default=None, kw_only=True)

    def __check_init__(self) -> None:
        if self.aligned and self.orientation:
            raise ValueError(
                "The 'orientation' of Shared must be False if its axes are aligned with the columns. "
                "Got True instead."
            )

    def _with(self, size: Array, ratios: Array, axes: Array | None) -> Shared:
        return dataclasses.replace(self, size=size, ratios=ratios, axes=axes)

    def component_axes(self) -> Any:
        empty = jax.tree.map(lambda _: None, self)
        stacked = zip((self.size, self.ratios, self.axes), (self.volume, self.shape, self.orientation))
        found = tuple(None if value is None or shared else 0 for value, shared in stacked)
        return eqx.tree_at(
            lambda c: (c.size, c.ratios, c.axes), empty, found, is_leaf=lambda leaf: leaf is None
        )

    def _values(self) -> tuple[Array, Array]:
        """The eigenvalues of Σ, and its eigenvectors along columns."""
        size, ratios = filled(self, self.size), filled(self, self.ratios)
        axes = jnp.eye(ratios.shape[-1], dtype=ratios.dtype) if self.aligned else filled(self, self.axes)
        return size * _product_one(ratios), axes

    def matrix(self) -> Array:
        values, axes = self._values()
        return (axes * values[None, :]) @ axes.T

    def variances(self) -> Array:
        values, axes = self._values()
        return axes**2 @ values

    def log_det(self) -> Array:
        return jnp.sum(jnp.log(self._values()[0]))

    def whiten(self, v: Array) -> Array:
        values, axes = self._values()
        return (axes.T @ v) / jnp.sqrt(values).reshape((-1,) + (1,) * (v.ndim - 1))

    def colour(self, noise: Array) -> Array:
        values, axes = self._values()
        return axes @ (jnp.sqrt(values) * noise)

    @property
    def noise_size(self) -> int:
        return filled(self, self.ratios).shape[-1]

    def solve(self, v: Array) -> Array:
        values, axes = self._values()
        return axes @ ((axes.T @ v) / values.reshape((-1,) + (1,) * (v.ndim - 1)))

    def precision(self) -> tuple[Array, Array]:
        values, axes = self._values()
        return (axes / values[None, :]) @ axes.T, self.log_det()

    def second_moments(self, x: Array) -> Array:
        return dense_second_moments(x)

    def precision_coefficients(self) -> Array:
        return dense_precision_coefficients(self.precision()[0])

    def from_precision_coefficients(self, coefficients: Array) -> Full:
        dim = self.noise_size
        return Full(jnp.eye(dim, dtype=coefficients.dtype), self.floor).from_precision_coefficients(
            coefficients
        )

    def from_moments(self, weight: Array, mean: Array, second: Array) -> Shared:
        scatter = floored(dense_scatter(weight, mean, second), self.floor)
        alone = mean.ndim == 1
        S, n = (scatter[None], weight[:1]) if alone else (scatter, weight[:, 0])
        found = self._fitted(S, n, self._start(S, n))
        values = (found.size, found.ratios / jnp.sum(found.ratios, axis=-1, keepdims=True))
        axes = None if self.aligned else jax.vmap(as_rotation)(found.axes)
        shared = (self.volume, self.shape, self.orientation)
        size, ratios, axes = (
            a[0] if a is not None and (alone or one) else a for a, one in zip((*values, axes), shared)
        )
        return dataclasses.replace(self, size=size, ratios=ratios, axes=axes)

    def _start(self, S: Array, n: Array) -> _Parts:
        """The present values of each member; of a structure without any, those of S alone."""
        members, dim = S.shape[:2]
        eye = jnp.broadcast_to(jnp.eye(dim, dtype=S.dtype), S.shape)
        if self.aligned and (self.size is None or self.ratios is None):
            own = jnp.diagonal(S, axis1=1, axis2=2)
            whole = n @ own / jnp.sum(n)
            ratios = jnp.broadcast_to(whole, own.shape) if self.shape else own
            return _Parts(jnp.full(members, jnp.mean(whole)), _product_one(ratios), eye)
        if self.size is None or self.ratios is None or (self.axes is None and not self.aligned):
            whole = jnp.einsum("k,kij->ij", n / jnp.sum(n), S)
            about = jnp.broadcast_to(whole, S.shape) if self.orientation else S
            values, axes = jnp.linalg.eigh(about)
            ratios = _product_one(values)
            if self.shape:
                ratios = jnp.broadcast_to(_product_one(jnp.linalg.eigvalsh(whole)), ratios.shape)
            return _Parts(jnp.full(members, jnp.trace(whole) / dim), ratios, axes)
        return _Parts(
            jnp.broadcast_to(self.size, (members,)),
            jnp.broadcast_to(_product_one(self.ratios), (members, dim)),
            eye if self.axes is None else jnp.broadcast_to(self.axes, S.shape),
        )

    def _fitted(self, S: Array, n: Array, start: _Parts) -> _Parts:
        """One part after another at its least value, until the whole does not fall."""
        dim = S.shape[-1]

        def loss(parts: _Parts) -> Array:
            spread = jnp.einsum("kij,kil,klj->kj", parts.axes, S, parts.axes)
            terms = dim * jnp.log(parts.size) + jnp.sum(spread / parts.ratios, axis=1) / parts.size
            return jnp.sum(n * terms) / jnp.sum(n)

        def step(carry: tuple[_Parts, Array, Array, Array]) -> tuple[_Parts, Array, Array, Array]:
            parts, now, _, number = carry
            new = self._improved(S, n, parts)
            return new, loss(new), now, number + 1

        def going(carry: tuple[_Parts, Array, Array, Array]) -> Array:
            _, now, before, number = carry
            return (number < _MOST_ROUNDS) & ~(before - now <= _SETTLED)

        first = (start, loss(start), jnp.full((), jnp.inf, S.dtype), jnp.zeros((), jnp.int32))
        return jax.lax.while_loop(going, step, first)[0]

    def _improved(self, S: Array, n: Array, parts: _Parts) -> _Parts:
        size, ratios, axes = parts
        pull = n / size
        if self.orientation and self.shape:
            # both at once: those of the sum of all scatters, each in units of its volume
            values, own = jnp.linalg.eigh(jnp.einsum("k,kij->ij", pull, S))
            ratios, axes = (
                jnp.broadcast_to(_product_one(values), ratios.shape),
                jnp.broadcast_to(own, S.shape),
            )
        elif self.orientation:
            axes = _turned(S, pull, ratios, axes)
        elif not self.aligned:
            # the longest axis goes with the largest ratio
            ratios, axes = jnp.sort(ratios, axis=1), jnp.linalg.eigh(S)[1]
        spread = jnp.einsum("kij,kil,klj->kj", axes, S, axes)
        if not self.shape:
            ratios = _product_one(spread)
        elif not self.orientation:
            ratios = jnp.broadcast_to(_product_one(pull @ spread), ratios.shape)
        size = jnp.mean(spread / ratios, axis=1)
        if self.volume:
            size = jnp.broadcast_to(n @ size / jnp.sum(n), size.shape)
        return _Parts(size, ratios, axes)

    def scale(self, factor: Array) -> Full | Shared:
        size = filled(self, self.size)
        if jnp.ndim(factor) == 0:
            return self._with(size * factor**2, filled(self, self.ratios), self.axes)
        return Full(self.matrix() * jnp.outer(factor, factor), self.floor)

    @property
    def separable(self) -> bool:
        return False

    @property
    def unit_free(self) -> bool:
        return False

    @property
    def closed_form(self) -> bool:
        return False


def _product_one(values: Array) -> Array:
    """Positive numbers along the last axis, divided by their geometric mean."""
    logs = jnp.log(values)
    return jnp.exp(logs - jnp.mean(logs, axis=-1, keepdims=True))


def _turned(S: Array, pull: Array, ratios: Array, axes: Array) -> Array:
    """One orientation D for all members with a smaller Σ_k pull_k tr A_k⁻¹ DᵀS_kD, or the same.

    With ω_k the largest eigenvalue of S_k, the terms of S_k − ω_k I are concave in D and those of ω_k I
    do not depend on it: the plane that touches them is a bound, of which a singular value decomposition
    gives the least value.
    """
    own = axes[0]
    most = jnp.linalg.eigvalsh(S)[:, -1]
    bound = S - most[:, None, None] * jnp.eye(S.shape[-1], dtype=S.dtype)[None]
    slope = jnp.einsum("k,kij,jl,kl->il", pull, bound, own, 1 / ratios)
    left, _, right = jnp.linalg.svd(slope)
    return jnp.broadcast_to(-left @ right, axes.shape)
