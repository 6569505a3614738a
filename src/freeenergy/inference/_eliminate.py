"""Exact inference of many labels at once, where their energy is a sum of small tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import Categories, Kind
from ._factors import Factor
from ._junction import JunctionTree, draw_by_key
from ._methods import AbstractMethod
from ._minimise import EnergyFunction
from ._posterior import DrawsPosterior, LogEvidence


class FactorEnergy(eqx.Module):
    """e(z) = −Σ_C log φ_C(z_C) of several labels z, a tuple of whole numbers.

    Attributes:
        logs: log φ of each factor, an axis for each of its labels.
        scopes: the places in z of these labels.

    >>> pair = FactorEnergy((jnp.log(jnp.array([[0.5, 0.1], [0.1, 0.3]])),), ((0, 1),))
    >>> round(float(jnp.exp(-pair((jnp.array(1), jnp.array(1))))), 6)
    0.3
    """

    logs: tuple[Array, ...]
    scopes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, z: Sequence[Array]) -> Float[Array, ""]:
        terms = [
            logs[tuple(z[v] for v in scope)] for logs, scope in zip(self.logs, self.scopes, strict=True)
        ]
        return -jnp.sum(jnp.stack(terms))


class Eliminate(AbstractMethod):
    """Independent exact draws of labels, and log Z, by the junction tree of a `FactorEnergy`.

    What is enumerated are the states of a clique, not those of all labels together.

    Attributes:
        draws: how many answer questions.

    >>> from freeenergy.inference import infer
    >>> steps = tuple(jnp.array([[1.0, 0.0], [0.0, 1.0]]) for _ in range(11))
    >>> chain = FactorEnergy(steps, tuple((i, i + 1) for i in range(11)))
    >>> found = infer(chain, (Categories(2),) * 12, Eliminate(10), key=jax.random.key(0))
    >>> round(float(found.log_evidence.nats), 4)  # log 2 (e + 1)¹¹
    15.139
    """

    draws: int = eqx.field(static=True, default=1000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        if not isinstance(energy, FactorEnergy):
            raise ValueError(
                "Eliminate takes a FactorEnergy, of which it sees the factors, such as "
                f"'model.factored(x)' of a network gives. Got {type(energy).__name__} instead."
            )
        if not isinstance(space, tuple) or not all(isinstance(own, Categories) for own in space):
            raise ValueError("The space of a FactorEnergy must be a tuple of Categories.")
        sizes: dict[Any, int] = {i: own.n_values for i, own in enumerate(space)}
        tree = JunctionTree.of(sizes, energy.scopes)
        factors = [Factor(scope, logs) for scope, logs in zip(energy.scopes, energy.logs, strict=True)]
        total = tree.log_partition(factors)

        def draw(key: Array) -> tuple[Array, ...]:
            states = tree.sample(factors, (), draw_by_key(key, len(tree.cliques)))
            return tuple(states[i] for i in range(len(space)))

        draws = jax.vmap(draw)(jax.random.split(key, self.draws))
        return DrawsPosterior(
            draws,
            jnp.zeros(self.draws),
            spaces=space,
            log_evidence=LogEvidence(total, jnp.zeros_like(total), Kind.EXACT),
            # impossible where log Z is −∞
            diagnostics={"start_energy": -total},
        )
