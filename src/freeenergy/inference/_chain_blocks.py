"""Long chains cut into blocks that are worked on side by side."""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ._chain import AbstractParallelBeliefs, Filtered, Smoothed, choose


class AbstractBlockBeliefs(AbstractParallelBeliefs):
    """Beliefs for which a stretch of the chain can be extended step by step, cheaper than combining."""

    @abc.abstractmethod
    def unit(self, belief: Any) -> Any:
        """The element of no steps; `belief` tells the size."""

    @abc.abstractmethod
    def advance(self, element: Any, step: Any) -> Any:
        """The element after a transition."""

    @abc.abstractmethod
    def absorb(self, element: Any, step: Any) -> Any:
        """The element after an observation."""

    @abc.abstractmethod
    def recede(self, element: Any, kernel: Any) -> Any:
        """An element that runs backward in time, after one more reverse kernel."""


def _split(tree: Any, blocks: int) -> Any:
    """Blocks side by side: (time, …) → (time in block, blocks, …)."""
    return jax.tree.map(
        lambda a: a.reshape(blocks, a.shape[0] // blocks, *a.shape[1:]).swapaxes(0, 1), tree
    )


def _join(tree: Any) -> Any:
    return jax.tree.map(lambda a: a.swapaxes(0, 1).reshape(-1, *a.shape[2:]), tree)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda a: a[0], tree)


def _rest(tree: Any) -> Any:
    return jax.tree.map(lambda a: a[1:], tree)


def _fold_blocks(beliefs: AbstractBlockBeliefs, initial: Any, parts: Any) -> Any:
    """The element of each block; the first one starts from `initial`."""

    def begin(first: Bool[Array, ""], step: Any) -> Any:
        moved = beliefs.advance(beliefs.unit(initial), step)
        return beliefs.absorb(choose(first, beliefs.certain(initial), moved), step)

    def body(elements: Any, step: Any) -> tuple[Any, None]:
        return jax.vmap(lambda e, s: beliefs.absorb(beliefs.advance(e, s), s))(elements, step), None

    opening = _first(parts)
    start = jax.vmap(begin)(jnp.arange(len(jax.tree.leaves(opening)[0])) == 0, opening)
    return jax.lax.scan(body, start, _rest(parts))[0]


def blocked_evidence(
    beliefs: AbstractBlockBeliefs, initial: Any, steps: Any, *, blocks: int
) -> Float[Array, ""]:
    """log p(y) with the time axis cut into `blocks` that are worked on side by side.

    `blocks` must divide the number of steps.
    """
    elements = _fold_blocks(beliefs, initial, _split(steps, blocks))
    whole = jax.lax.scan(lambda e, f: (beliefs.combine(e, f), None), _first(elements), _rest(elements))[0]
    return whole.constant


def blocked_filter(beliefs: AbstractBlockBeliefs, initial: Any, steps: Any, *, blocks: int) -> Filtered:
    """`filter` with the time axis cut into `blocks` that are worked on side by side; equal to rounding.

    Each block is first summed up as a function of the state before it; then the blocks are joined one
    after another, and filtered at once.  `blocks` must divide the number of steps.
    """
    return _join(_filter_blocks(beliefs, initial, _split(steps, blocks)))


def _filter_blocks(beliefs: AbstractBlockBeliefs, initial: Any, parts: Any) -> Filtered:
    length, blocks = jax.tree.leaves(parts)[0].shape[:2]
    elements = _fold_blocks(beliefs, initial, parts)

    def join(e: Any, f: Any) -> tuple[Any, Any]:
        return beliefs.combine(e, f), beliefs.belief(e)

    ends = jax.lax.scan(join, _first(elements), _rest(elements))[1]
    before = jax.tree.map(lambda i, e: jnp.concatenate([i[None], e]), initial, ends)
    starts = jnp.zeros((length, blocks), bool).at[0, 0].set(True)

    def one(belief: Any, step: Any, first: Bool[Array, ""]) -> Filtered:
        predicted = choose(first, initial, beliefs.predict(belief, step))
        return Filtered(predicted, *beliefs.update(predicted, step))

    def body(belief: Any, at: Any) -> tuple[Any, Filtered]:
        new = jax.vmap(one)(belief, *at)
        return new.filtered, new

    return jax.lax.scan(body, before, (parts, starts))[1]


def blocked_smooth(
    beliefs: AbstractBlockBeliefs, initial: Any, steps: Any, *, blocks: int
) -> tuple[Filtered, Smoothed]:
    """`filter` and `smooth` with the time axis cut into `blocks` that are worked on side by side."""
    parts = _split(steps, blocks)
    filtered = _filter_blocks(beliefs, initial, parts)
    end = jax.tree.map(lambda a: a[-1, -1], filtered.filtered)
    # the last step of all has none after it
    stays = jnp.zeros(jax.tree.leaves(parts)[0].shape[:2], bool).at[-1, -1].set(True)

    def across(tree: Any) -> Any:
        """For each block, what the next one starts with; the last block has its own."""
        return jax.tree.map(lambda a: jnp.concatenate([a[0, 1:], a[0, -1:]]), tree)

    def one_kernel(
        element: Any, after: Any, step_after: Any, belief: Any, stay: Bool[Array, ""]
    ) -> tuple[Any, Any]:
        kernel = beliefs.reverse(belief, after, step_after)
        return choose(stay, beliefs.certain(belief), beliefs.recede(element, kernel)), kernel

    def fold(carry: Any, at: Any) -> tuple[Any, Any]:
        belief, predicted, step, stay = at
        elements, after, step_after = carry
        elements, kernels = jax.vmap(one_kernel)(elements, after, step_after, belief, stay)
        return (elements, predicted, step), kernels

    unit = jax.vmap(beliefs.unit)(_first(filtered.filtered))
    carry = (unit, across(filtered.predicted), across(parts))
    whole = (filtered.filtered, filtered.predicted, parts, stays)
    (elements, *_), kernels = jax.lax.scan(fold, carry, whole, reverse=True)

    def join(belief: Any, element: Any) -> tuple[Any, Any]:
        return beliefs.belief(beliefs.combine(beliefs.certain(belief), element)), belief

    # for each block, the smoothed belief at the first step after it; the last block starts at its end
    after = jax.lax.scan(join, end, elements, reverse=True)[1]

    def one(belief: Any, kernel: Any, stay: Bool[Array, ""]) -> tuple[Any, Any]:
        earlier, pair = beliefs.back(belief, kernel)
        return choose(stay, belief, earlier), pair

    def body(belief: Any, at: Any) -> tuple[Any, Any]:
        new, pair = jax.vmap(one)(belief, *at)
        return new, (new, pair)

    marginals, pairs = _join(jax.lax.scan(body, after, (kernels, stays), reverse=True)[1])
    return _join(filtered), Smoothed(marginals, jax.tree.map(lambda a: a[:-1], pairs))
