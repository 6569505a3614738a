"""Markov chains: one runner for any kernel, and the kernel that redraws blocks in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree

Kernel = Callable[..., Any]
"""`kernel(state, *, key) → state`: a Markov kernel, a random step that leaves its target unchanged."""


def run_chain(
    kernel: Kernel, state: PyTree, *, steps: int, burn_in: int = 0, thin: int = 1, key: Array
) -> PyTree:
    """`steps` states of a Markov chain, stacked along a new first axis.

    Args:
        kernel: `kernel(state, *, key)` is the next state.
        state: where the chain starts.
        steps: how many states are kept.
        burn_in: how many are dropped at the beginning.
        thin: one in how many is kept after that.
        key: seeds the chain.

    >>> walk = lambda state, *, key: state + 1
    >>> run_chain(walk, 0, steps=3, burn_in=10, thin=2, key=jax.random.key(0)).tolist()
    [12, 14, 16]
    """

    def advance(state: Any, first: Any, count: int) -> Any:
        # the number of the step is folded in, so that a longer chain begins like a shorter one
        return jax.lax.fori_loop(
            first, first + count, lambda i, s: kernel(s, key=jax.random.fold_in(key, i)), state
        )

    def keep(state: Any, i: Array) -> tuple[Any, Any]:
        state = advance(state, burn_in + i * thin, thin)
        return state, state

    return jax.lax.scan(keep, advance(state, 0, burn_in), jax.numpy.arange(steps))[1]


def block_gibbs(*conditionals: Callable[..., Any]) -> Kernel:
    """The kernel that redraws the blocks of a tuple in turn, each given all others.

    Args:
        conditionals: `conditionals[i](state, *, key)` draws block `i` of the tuple `state` from its
            distribution given the other blocks.

    >>> kernel = block_gibbs(lambda s, *, key: s[1] + 1, lambda s, *, key: 2 * s[0])
    >>> kernel((0, 3), key=jax.random.key(0))
    (4, 8)
    """

    def kernel(state: tuple, *, key: Array) -> tuple:
        for i, conditional in enumerate(conditionals):
            block = conditional(state, key=jax.random.fold_in(key, i))
            state = (*state[:i], block, *state[i + 1 :])
        return state

    return kernel
