"""Eliminating a finite unknown by visiting every value it can take."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core import boltzmann
from ._minimise import EnergyFunction
from ._recognition import Finite


def binary_state(index: Array | int, n: int, dtype: Any = float) -> Float[Array, " n"]:
    """The binary digits of `index`, lowest first: state number `index` of `n` binary units."""
    return ((jnp.asarray(index) >> jnp.arange(n)) & 1).astype(dtype)


def binary_states(n: int, dtype: Any = float) -> Float[Array, "2**n n"]:
    """Every state of `n` binary units, a row each.

    >>> binary_states(2).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    return jax.vmap(lambda i: binary_state(i, n, dtype))(jnp.arange(2**n))


def log_partition_by_enumeration(
    energy: EnergyFunction, states: PyTree, *, batch_size: int = 1024
) -> Float[Array, ""]:
    """log Z = log Σ_s exp(−e(s)), over `states` along the first axis.

    Args:
        energy: e(s) of one state.
        states: every state; where they are too many to hold, their numbers, and `energy` decodes them.
        batch_size: how many states are visited at once.

    >>> round(float(log_partition_by_enumeration(jnp.sum, binary_states(3))), 6)
    0.939785
    """
    return -boltzmann(jax.lax.map(energy, states, batch_size=batch_size))[0]


def posterior_by_enumeration(
    energy: EnergyFunction, states: PyTree, *, temperature: Array | float = 1.0, batch_size: int = 1024
) -> Finite:
    """p(s) ∝ exp(−e(s) / T), a distribution over the numbers of the `states`.

    >>> posterior = posterior_by_enumeration(lambda s: s, jnp.array([1.0, 2.0, 3.0]))
    >>> [round(float(p), 4) for p in posterior.probabilities]
    [0.6652, 0.2447, 0.09]
    """
    return Finite(boltzmann(jax.lax.map(energy, states, batch_size=batch_size), temperature)[1])
