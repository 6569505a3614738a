"""Running kernels that carry numbers, with a burn-in that tunes the size of their steps."""

from __future__ import annotations

import abc
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._gibbs import run_chain
from ._kernels import AbstractWalk, Kernel
from ._minimise import EnergyFunction


class AbstractTuned(eqx.Module):
    """Makes walks whose steps have a size, which the burn-in of a chain can choose.

    Attributes:
        wanted: the share of proposals to take; None leaves the size as it is.
    """

    wanted: eqx.AbstractVar[float | None]

    @abc.abstractmethod
    def __call__(self, energy: EnergyFunction, space: PyTree) -> AbstractWalk:
        """The kernel of an energy over a space."""

    @abc.abstractmethod
    def scaled(self, factor: Array) -> Self:
        """The same with steps of another size."""


def chain_of(
    maker: Any,
    energy: EnergyFunction,
    space: PyTree,
    first: PyTree,
    *,
    steps: int,
    burn_in: int,
    thin: int,
    key: Array,
) -> tuple[PyTree, dict[str, Array]]:
    """`steps` draws of the kernel that `maker` makes, and what it tells of itself.

    A tuned maker scales its steps during the burn-in by exp(s), with  s ← s + n^{−0.6} (α − α*)  for the
    share α* of proposals to take, and keeps the average over the second half (Andrieu & Thoms 2008).
    """
    told = {}
    if isinstance(maker, AbstractTuned) and maker.wanted is not None and burn_in > 0:
        warm, key = jax.random.split(key)
        first, maker = _tuned(maker, energy, space, first, burn_in, warm)
        burn_in = 0
    kernel: Kernel = maker(energy, space)
    if not isinstance(kernel, AbstractWalk):
        kept = run_chain(kernel, first, steps=steps, burn_in=burn_in, thin=thin, key=key)
        return kept, told

    def step(carry: tuple[Any, Array], *, key: Array) -> tuple[Any, Array]:
        state = kernel.step(carry[0], key=key)
        return state, carry[1] + kernel.acceptance(state)

    begin = kernel.begin(first)
    kept, total = run_chain(
        step,
        (begin, jnp.zeros_like(kernel.acceptance(begin))),
        steps=steps,
        burn_in=burn_in,
        thin=thin,
        keep=lambda carry: (kernel.value(carry[0]), carry[1]),
        key=key,
    )
    return kept, told | {"acceptance": total[-1] / (burn_in + steps * thin)}


def _tuned(
    maker: AbstractTuned, energy: EnergyFunction, space: PyTree, first: PyTree, burn_in: int, key: Array
) -> tuple[PyTree, AbstractTuned]:
    wanted = 1.0 if maker.wanted is None else maker.wanted

    def body(i: Array, carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, log_size, total = carry
        walk = maker.scaled(jnp.exp(log_size))(energy, space)
        state = walk.step(state, key=jax.random.fold_in(key, i))
        log_size = log_size + (i + 1.0) ** -0.6 * (walk.acceptance(state) - wanted)
        return state, log_size, total + jnp.where(i >= burn_in // 2, log_size, 0)

    kernel = maker(energy, space)
    begin = kernel.begin(first)
    zero = jnp.zeros_like(kernel.acceptance(begin))
    state, _, total = jax.lax.fori_loop(0, burn_in, body, (begin, zero, zero))
    factor: Float[Array, ""] = jnp.exp(total / (burn_in - burn_in // 2))
    return kernel.value(state), maker.scaled(factor)
