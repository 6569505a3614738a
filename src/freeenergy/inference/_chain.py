"""Markov chains with hidden states: six operations on beliefs, and the recursions that use them.

A chain has a hidden state x_t and an observation y_t at each time step.  Two verbs, marginalise and
invert, act on three fragments of its graph and give everything that is asked about it:

| fragment | marginalise | invert |
|---|---|---|
| A: x_{t−1} → x_t | `predict`: p(x_t | y_{<t}) | `reverse`: p(x_{t−1} | x_t, y_{<t}) |
| B: x_t → y_t | the evidence p(y_t | y_{<t}), by `update` | `update`: p(x_t | y_{≤t}) |
| C: x_{t−1} ← x_t | `back`: p(x_{t−1} | y), and of the pair | `forward`: p(x_t | x_{t−1}, y) |

What a belief is (probabilities, mean and covariance, particles) is for the implementation; the
recursions below serve all of them.  Beliefs, steps and kernels are trees of arrays, written for one
series; batch by `jax.vmap`.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float


class AbstractBeliefs(eqx.Module):
    """The six operations on beliefs about the hidden state of a chain.

    A `step` holds what belongs to time t: how x_t arises from x_{t−1}, and the observation y_t.
    What is the same at all times is a field of the implementation.
    """

    @abc.abstractmethod
    def predict(self, belief: Any, step: Any) -> Any:
        """p(x_t | y_{<t}) from p(x_{t−1} | y_{<t}): the time update."""

    @abc.abstractmethod
    def update(self, predicted: Any, step: Any) -> tuple[Any, Float[Array, ""]]:
        """p(x_t | y_{≤t}) from p(x_t | y_{<t}), and log p(y_t | y_{<t}): the measurement update."""

    @abc.abstractmethod
    def reverse(self, belief: Any, predicted: Any, step: Any) -> Any:
        """The kernel p(x_{t−1} | x_t, y_{<t}), from the filtered belief at t−1 and its prediction."""

    @abc.abstractmethod
    def back(self, smoothed: Any, kernel: Any) -> tuple[Any, Any]:
        """p(x_{t−1} | y) and p(x_{t−1}, x_t | y), from p(x_t | y) and the reverse kernel."""

    @abc.abstractmethod
    def forward(self, pair: Any) -> Any:
        """The kernel p(x_t | x_{t−1}, y) from p(x_{t−1}, x_t | y): the posterior is a chain again."""

    @abc.abstractmethod
    def sample(self, belief: Any, *, key: Array) -> Any:
        """A draw of the state."""

    @abc.abstractmethod
    def sample_back(self, state: Any, kernel: Any, *, key: Array) -> Any:
        """A draw of x_{t−1} given x_t = `state`, from the reverse kernel."""


class AbstractParallelBeliefs(AbstractBeliefs):
    """Beliefs whose time steps can be joined in any order, which takes log₂(time) rounds.

    An element stands for p(x_t | x_s, y_{s<·≤t}) together with p(y_{s<·≤t} | x_s) as a function of x_s
    up to a factor.
    """

    @abc.abstractmethod
    def element(self, step: Any, observed: Bool[Array, ""]) -> Any:
        """The element of one time step; without y_t unless `observed`."""

    @abc.abstractmethod
    def certain(self, belief: Any) -> Any:
        """The element that ends in `belief`, whatever came before."""

    @abc.abstractmethod
    def from_kernel(self, kernel: Any) -> Any:
        """A reverse kernel as an element, which runs from x_t to x_{t−1}."""

    @abc.abstractmethod
    def combine(self, first: Any, second: Any) -> Any:
        """One element in place of two that follow each other."""

    @abc.abstractmethod
    def belief(self, element: Any) -> Any:
        """The belief in which an element ends that began with a certain one."""


class Filtered(NamedTuple):
    """What `filter` returns, an entry per time step.

    Attributes:
        predicted: p(x_t | y_{<t}).
        filtered: p(x_t | y_{≤t}).
        log_evidence: log p(y_t | y_{<t}), zero where nothing was observed.
    """

    predicted: Any
    filtered: Any
    log_evidence: Float[Array, "*time"]


class Smoothed(NamedTuple):
    """What `smooth` returns.

    Attributes:
        marginals: p(x_t | y), an entry per time step.
        pairs: p(x_t, x_{t+1} | y), one entry fewer; without meaning where a new series starts at t+1.
    """

    marginals: Any
    pairs: Any


def filter(
    beliefs: AbstractBeliefs,
    initial: Any,
    steps: Any,
    observed: Bool[Array, " time"] | None = None,
    starts: Bool[Array, " time"] | None = None,
    real: Bool[Array, " time"] | None = None,
) -> Filtered:
    """Filters a series forward in time.

    Also known as the forward recursion (of finite states), the Kalman filter (of Gaussian ones), and the
    bootstrap filter (of particles).

    Args:
        beliefs: the operations.
        initial: p(x_1), the prediction for the first step.
        steps: a tree of arrays with a leading time axis.
        observed: whether y_t is there.
        starts: whether a new series starts at t, so that several can be stored one after another; by
            default one starts at the first step.
        real: False where there is no time step at all: padding, in which time stands still.
    """
    starts = _starts(steps, starts)

    def body(belief: Any, at: Any) -> tuple[Any, Filtered]:
        step, seen, first, there = at
        predicted = choose(first, initial, beliefs.predict(belief, step))
        new, gain = _update(beliefs, predicted, step, seen)
        if there is not None:
            predicted, new = choose(there, (predicted, new), (belief, belief))
            gain = jnp.where(there, gain, 0)
        return new, Filtered(predicted, new, gain)

    return jax.lax.scan(body, initial, (steps, observed, starts, real))[1]


def smooth(
    beliefs: AbstractBeliefs,
    filtered: Filtered,
    steps: Any,
    starts: Bool[Array, " time"] | None = None,
    real: Bool[Array, " time"] | None = None,
) -> Smoothed:
    """Smooths what `filter` returned, backward in time; the observations are not needed again.

    Also known as the forward–backward algorithm (of finite states), the Rauch–Tung–Striebel smoother (of
    Gaussian ones).
    """
    starts = _starts(steps, starts)

    def body(carry: Any, at: Any) -> tuple[Any, tuple[Any, Any]]:
        later, after, first_after, there_after, step_after = carry
        belief, predicted, first, there, step = at
        smoothed, pair = beliefs.back(later, beliefs.reverse(belief, after, step_after))
        if there_after is not None:
            smoothed = choose(there_after, smoothed, later)
        smoothed = choose(first_after, belief, smoothed)
        return (smoothed, predicted, first, there, step), (smoothed, pair)

    past = (filtered.filtered, filtered.predicted, starts, real, steps)
    _, (marginals, pairs) = jax.lax.scan(body, _end(*past), past, reverse=True)
    return Smoothed(marginals, jax.tree.map(lambda a: a[:-1], pairs))


def sample_paths(
    beliefs: AbstractBeliefs,
    filtered: Filtered,
    steps: Any,
    starts: Bool[Array, " time"] | None = None,
    real: Bool[Array, " time"] | None = None,
    *,
    key: Array,
) -> Any:
    """One draw of all hidden states given all observations, backward in time from `filter`'s result.

    Also known as forward filtering, backward sampling (FFBS), and as a simulation smoother.
    """
    starts = _starts(steps, starts)

    def body(carry: Any, at: Any) -> tuple[Any, Any]:
        later, after, first_after, there_after, step_after = carry
        (belief, predicted, first, there, step), k = at
        alone, joined = jax.random.split(k)
        state = beliefs.sample_back(later, beliefs.reverse(belief, after, step_after), key=joined)
        if there_after is not None:
            state = choose(there_after, state, later)
        state = choose(first_after, beliefs.sample(belief, key=alone), state)
        return (state, predicted, first, there, step), state

    past = (filtered.filtered, filtered.predicted, starts, real, steps)
    belief, *rest = _end(*past)
    keys = jax.random.split(key, len(starts))
    last = (beliefs.sample(belief, key=key), *rest)
    return jax.lax.scan(body, last, (past, keys), reverse=True)[1]


def parallel_filter(
    beliefs: AbstractParallelBeliefs,
    initial: Any,
    steps: Any,
    observed: Bool[Array, " time"] | None = None,
    starts: Bool[Array, " time"] | None = None,
) -> Filtered:
    """`filter` in log₂(time) rounds: equal to rounding, for machines with many cores.

    Also known as a parallel-in-time filter, or associative scan (Särkkä and García-Fernández).
    """
    starts = _starts(steps, starts)
    seen = jnp.ones(len(starts), bool) if observed is None else observed

    def begin(step: Any, seen: Bool[Array, ""]) -> Any:
        return beliefs.certain(_update(beliefs, initial, step, seen)[0])

    elements = jax.vmap(choose)(
        starts, jax.vmap(begin)(steps, seen), jax.vmap(beliefs.element)(steps, seen)
    )
    joined = jax.lax.associative_scan(jax.vmap(beliefs.combine), elements)
    ends = jax.vmap(beliefs.belief)(joined)
    before = jax.tree.map(lambda e, i: jnp.concatenate([i[None], e[:-1]]), ends, initial)

    def finish(belief: Any, step: Any, seen: Bool[Array, ""], first: Bool[Array, ""]) -> Filtered:
        predicted = choose(first, initial, beliefs.predict(belief, step))
        return Filtered(predicted, *_update(beliefs, predicted, step, seen))

    return jax.vmap(finish)(before, steps, seen, starts)


def parallel_smooth(
    beliefs: AbstractParallelBeliefs,
    filtered: Filtered,
    steps: Any,
    starts: Bool[Array, " time"] | None = None,
) -> Smoothed:
    """`smooth` in log₂(time) rounds: equal to rounding."""
    starts = _starts(steps, starts)

    def later(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.concatenate([a[1:], a[-1:]]), tree)

    ends = jnp.concatenate([starts[1:], jnp.ones(1, bool)])
    kernels = jax.vmap(beliefs.reverse)(filtered.filtered, later(filtered.predicted), later(steps))
    elements = jax.vmap(choose)(
        ends, jax.vmap(beliefs.certain)(filtered.filtered), jax.vmap(beliefs.from_kernel)(kernels)
    )
    joined = jax.lax.associative_scan(jax.vmap(beliefs.combine), elements, reverse=True)
    marginals = jax.vmap(beliefs.belief)(joined)
    pairs = jax.vmap(beliefs.back)(later(marginals), kernels)[1]
    return Smoothed(marginals, jax.tree.map(lambda a: a[:-1], pairs))


def _update(beliefs: AbstractBeliefs, predicted: Any, step: Any, seen: Any) -> tuple[Any, Float[Array, ""]]:
    new, gain = beliefs.update(predicted, step)
    return (new, gain) if seen is None else (choose(seen, new, predicted), jnp.where(seen, gain, 0))


def choose(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _starts(steps: Any, starts: Bool[Array, " time"] | None) -> Bool[Array, " time"]:
    length = len(jax.tree.leaves(steps)[0])
    return jnp.arange(length) == 0 if starts is None else starts


def _end(
    filtered: Any,
    predicted: Any,
    starts: Bool[Array, " time"],
    real: Bool[Array, " time"] | None,
    steps: Any,
) -> Any:
    """What follows the last time step: another series starts there, so that nothing comes back."""
    last = jax.tree.map(lambda a: a[-1], (filtered, predicted, real, steps))
    return last[0], last[1], jnp.ones((), bool), last[2], last[3]
