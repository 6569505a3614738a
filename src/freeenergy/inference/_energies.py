"""An energy with the space of its unknown, and how energies are made of energies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .._core import AbstractSpace, enumerate_states

Where = Callable[[Any], Any]
"""`where(tree)` is a part of a tree, as in `equinox.tree_at`: `lambda z: z["scale"]`."""


def _is_none(node: Any) -> bool:
    return node is None


def _filled(where: Where, tree: PyTree, part: Any) -> PyTree:
    return eqx.tree_at(where, tree, part, is_leaf=_is_none)


class Energy(eqx.Module):
    """A function of an unknown z with the space that z lies in: p(z) ∝ exp(−e(z)).

    Energies of one space add up (a product of experts), have a temperature, can be conditioned on a part of
    z, freed of a finite part by summing over it, and mixed; each gives an energy again.

    Attributes:
        fn: e(z), a number for one value of the unknown.  A module with arrays for fields is compiled once
            for all of its values, a function once for each function.
        space: what z can be: a space, or a tree of spaces.

    >>> from freeenergy.distributions import Binary, Reals
    >>> pair = Energy(lambda z: (z["x"] - z["on"]) ** 2 / 2, {"x": Reals(()), "on": Binary(())})
    >>> float(pair({"x": 2.0, "on": 1.0}))
    0.5
    >>> left = pair.given(lambda z: z["on"], 1.0)
    >>> left.space["x"], float(left({"x": 2.0, "on": None}))
    (Reals(shape=()), 0.5)
    >>> round(float(pair.marginal(lambda z: z["on"])({"x": 0.0, "on": None})), 6)
    -0.474077
    """

    fn: Callable[[Any], Array]
    space: PyTree[AbstractSpace]

    def __check_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(
                f"The 'fn' of Energy must be a function of the unknown. Got {self.fn!r} instead."
            )
        leaves = jax.tree.leaves(self.space)
        other = [leaf for leaf in leaves if not isinstance(leaf, AbstractSpace)]
        if other or not leaves:
            found = repr(other[0]) if other else "an empty tree"
            raise TypeError(
                f"The 'space' of Energy must be a space or a tree of spaces. Got {found} instead."
            )

    def __call__(self, z: PyTree) -> Float[Array, ""]:
        return self.fn(z)

    def __add__(self, other: Energy) -> Energy:
        """e₁(z) + e₂(z): the product of two experts."""
        if not isinstance(other, Energy):
            return NotImplemented
        return Energy(_Sum((self.fn, other.fn)), _common((self, other)))

    def tempered(self, temperature: float | Array) -> Energy:
        """e(z) / T: above one flatter, below one sharper.

        >>> from freeenergy.distributions import Reals
        >>> float(Energy(lambda z: z**2, Reals(())).tempered(2.0)(2.0))
        2.0
        """
        if not isinstance(temperature, Tracer) and not (0 < float(temperature) < np.inf):
            raise ValueError(
                "The 'temperature' of an energy must be a positive number. "
                f"Got {float(temperature):g} instead."
            )
        return Energy(_Tempered(self.fn, jnp.asarray(temperature, float)), self.space)

    def given(self, where: Where, value: PyTree) -> Energy:
        """The energy of the rest once a part of z is known; that part is then None.

        Args:
            where: which part, as in `equinox.tree_at`.
            value: what it is.
        """
        part = self._part(where)
        leaves, structure = jax.tree.flatten(part)
        values = structure.flatten_up_to(value)
        for space, known in zip(leaves, values, strict=True):
            _check_inside(space, known)
        known = jax.tree.unflatten(structure, [jnp.asarray(v) for v in values])
        return Energy(_Given(self.fn, where, known), _filled(where, self.space, None))

    def marginal(self, where: Where) -> Energy:
        """−log Σ_s exp(−e(z, s)): the energy of the rest with a finite part summed out.

        Args:
            where: which part, as in `equinox.tree_at`; that part is then None.
        """
        part = self._part(where)
        enumerate_states(part)  # refuses what is not finite, or too large
        return Energy(_Marginal(self.fn, where, part), _filled(where, self.space, None))

    @staticmethod
    def mixture(energies: Sequence[Energy], weights: Any) -> Energy:
        """−log Σ_k w_k exp(−e_k(z)).

        The energies count with their own normalisers: where each is −log p_k, this is a mixture with these
        weights.

        >>> from freeenergy.distributions import Reals
        >>> wells = [Energy(lambda z, m=m: (z - m) ** 2, Reals(())) for m in (-1.0, 1.0)]
        >>> round(float(Energy.mixture(wells, [0.5, 0.5])(0.0)), 6)
        1.0
        """
        shares = np.asarray(weights, float)
        if shares.shape != (len(energies),) or not (shares >= 0).all() or not 0 < shares.sum() < np.inf:
            raise ValueError(
                f"The 'weights' of a mixture of {len(energies)} energies must be as many non-negative "
                f"numbers, not all of them zero. Got {np.asarray(weights).tolist()} instead."
            )
        return Energy(_Mixture(tuple(e.fn for e in energies), jnp.asarray(shares)), _common(energies))

    def _part(self, where: Where) -> PyTree:
        try:
            part = where(self.space)
            rest = _filled(where, self.space, None)
        except Exception:
            raise ValueError(
                f"'where' must name a part of the unknown. Its space is {self.space!r}."
            ) from None
        if not jax.tree.leaves(rest):
            raise ValueError("'where' must leave a part of the unknown. Got all of it instead.")
        return part


def _common(energies: Sequence[Energy]) -> PyTree:
    first = energies[0].space
    for other in energies[1:]:
        if jax.tree.structure(other.space) != jax.tree.structure(first) or jax.tree.leaves(
            other.space
        ) != jax.tree.leaves(first):
            raise ValueError(
                f"Energies that are put together must have one space. Got {first!r} and {other.space!r}."
            )
    return first


def _check_inside(space: AbstractSpace, value: Any) -> None:
    if np.shape(value) != space.unknown_shape():
        raise ValueError(
            f"A value in {type(space).__name__} must have the shape {space.shape}. "
            f"Got {np.shape(value)} instead."
        )
    if isinstance(value, Tracer):
        return
    numbers = np.asarray(value, float)
    if np.isnan(numbers).any() or not np.all(space.contains(np.atleast_1d(numbers))):
        raise ValueError(
            f"A value in {type(space).__name__} must have {space.phrase}. Got {value} instead."
        )


class _Sum(eqx.Module):
    fns: tuple[Callable[[Any], Array], ...]

    def __call__(self, z: PyTree) -> Array:
        return sum((fn(z) for fn in self.fns[1:]), self.fns[0](z))


class _Tempered(eqx.Module):
    fn: Callable[[Any], Array]
    temperature: Array

    def __call__(self, z: PyTree) -> Array:
        return self.fn(z) / self.temperature


class _Given(eqx.Module):
    fn: Callable[[Any], Array]
    where: Where = eqx.field(static=True)
    value: PyTree

    def __call__(self, z: PyTree) -> Array:
        return self.fn(_filled(self.where, z, self.value))


class _Marginal(eqx.Module):
    fn: Callable[[Any], Array]
    where: Where = eqx.field(static=True)
    part: PyTree

    def __call__(self, z: PyTree) -> Array:
        energies = jax.vmap(lambda s: self.fn(_filled(self.where, z, s)))(enumerate_states(self.part))
        return -jax.nn.logsumexp(-energies)


class _Mixture(eqx.Module):
    fns: tuple[Callable[[Any], Array], ...]
    weights: Float[Array, " energies"]

    def __call__(self, z: PyTree) -> Array:
        energies = jnp.stack([fn(z) for fn in self.fns])
        return -jax.nn.logsumexp(-energies, b=self.weights)
