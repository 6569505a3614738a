"""Annealed importance sampling: log Z along a path from a distribution whose log Z is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._importance import importance_estimate

PathEnergy = Callable[[Array, Any], Float[Array, ""]]
"""`energy(beta, x)`: the base at beta 0, the target at beta 1."""

PathKernel = Callable[..., Any]
"""`kernel(beta, x, *, key) → x′`: a Markov kernel that leaves exp(−energy(beta, ·)) unchanged."""


class Annealed(NamedTuple):
    """An estimate of log Z.

    Attributes:
        log_partition: log Z.
        stderr: its standard error by the delta method, from the spread of the weights.
        effective_sample_size: of the weights.
        log_weights: one a chain.
        states: where the chains ended.
    """

    log_partition: Float[Array, ""]
    stderr: Float[Array, ""]
    effective_sample_size: Float[Array, ""]
    log_weights: Float[Array, " chains"]
    states: PyTree


class Sandwich(NamedTuple):
    """Two estimates of log Z whose expectations lie on either side of it."""

    lower: Annealed
    upper: Annealed


def linear_schedule(steps: int, dtype: Any = float) -> Float[Array, " steps+1"]:
    """`steps` + 1 inverse temperatures at even distances from 0 to 1."""
    return jnp.linspace(0, 1, steps + 1, dtype=dtype)


def sigmoid_schedule(steps: int, sharpness: float = 4.0, dtype: Any = float) -> Float[Array, " steps+1"]:
    """`steps` + 1 inverse temperatures from 0 to 1, close together at both ends.

    >>> sigmoid_schedule(2).tolist()
    [0.0, 0.5, 1.0]
    """
    ramp = jax.nn.sigmoid(sharpness * jnp.linspace(-1, 1, steps + 1, dtype=dtype))
    return (ramp - ramp[0]) / (ramp[-1] - ramp[0])


def geometric_path(base: Callable[[Any], Array], target: Callable[[Any], Array]) -> PathEnergy:
    """e_β(x) = (1 − β) e_0(x) + β e_1(x), where 0 · ∞ = 0: either may be infinite at the other's end."""

    def energy(beta: Array, x: Any) -> Array:
        first, last = base(x), target(x)
        first, last = jnp.where(beta == 1, 0, first), jnp.where(beta == 0, 0, last)
        return (1 - beta) * first + beta * last

    return energy


def annealed_importance(
    energy: PathEnergy,
    kernel: PathKernel,
    start: PyTree,
    *,
    log_partition: Float[Array, ""],
    schedule: Float[Array, " temperatures"],
    key: Array,
) -> Annealed:
    """log Z at the end of a path of distributions from log Z at its beginning.

        log w = Σ_k e(β_{k−1}, x_{k−1}) − e(β_k, x_{k−1}),   x_k ~ kernel(β_k, x_{k−1}),
        log Z_K ≈ log Z_0 + log mean w.

    The mean weight is an unbiased estimate of Z_K / Z_0, so that its logarithm is a lower bound in
    expectation.  Only one state a chain is held.

    Args:
        energy: `energy(beta, x)` for one state.
        kernel: `kernel(beta, x, *, key)`, which leaves exp(−energy(beta, ·)) unchanged.
        start: independent draws at `schedule[0]`, one a chain along the first axis.
        log_partition: log Z at `schedule[0]`.
        schedule: the inverse temperatures in the order they are visited.
        key: seeds the chains.

    >>> normal = lambda beta, x: jnp.sum(x**2) * (1 + beta) / 2
    >>> redraw = lambda beta, x, *, key: jax.random.normal(key, x.shape) / jnp.sqrt(1 + beta)
    >>> start = jax.random.normal(jax.random.key(0), (100, 1))
    >>> log_z0 = jnp.log(2 * jnp.pi) / 2
    >>> path = linear_schedule(100)
    >>> @jax.jit
    ... def run(key):
    ...     return annealed_importance(normal, redraw, start, log_partition=log_z0, schedule=path, key=key)
    >>> found = run(jax.random.key(1))
    >>> bool(jnp.abs(found.log_partition - (log_z0 - jnp.log(2) / 2)) < 4 * found.stderr)
    True
    """
    chains = jax.tree.leaves(start)[0].shape[0]

    def one(x: Any, before: Array, after: Array, key: Array) -> tuple[Any, Array]:
        # the energy stands in the program once for both, and what of it does not hang on beta is found once
        was, now = jax.vmap(energy, in_axes=(0, None))(jnp.stack([before, after]), x)
        # a draw that cannot be any more has no weight, and none ever after
        return kernel(after, x, key=key), jnp.where(now == jnp.inf, -jnp.inf, was - now)

    def anneal(carry: tuple[Any, Array], k: Array) -> tuple[tuple[Any, Array], None]:
        states, log_weights = carry
        keys = jax.random.split(jax.random.fold_in(key, k), chains)
        states, gain = jax.vmap(one, in_axes=(0, None, None, 0))(states, schedule[k], schedule[k + 1], keys)
        return (states, log_weights + gain), None

    weight_type = jax.eval_shape(jax.vmap(energy, in_axes=(None, 0)), schedule[0], start).dtype
    begin = (start, jnp.zeros(chains, weight_type))
    (states, log_weights), _ = jax.lax.scan(anneal, begin, jnp.arange(schedule.shape[0] - 1))
    estimate = importance_estimate(log_weights)
    return Annealed(
        log_partition + estimate.log_mean,
        estimate.stderr,
        estimate.effective_sample_size,
        log_weights,
        states,
    )


def reverse_annealed_importance(
    energy: PathEnergy,
    kernel: PathKernel,
    targets: PyTree,
    *,
    log_partition: Float[Array, ""],
    schedule: Float[Array, " temperatures"],
    key: Array,
) -> Annealed:
    """log Z at the end of a path by going back along it from draws of the target.

        log Z_K ≈ log Z_0 − log mean w,

    an upper bound in expectation when `targets` are draws from the target and `kernel` is reversible.
    Arguments as in `annealed_importance`, with `targets` in place of `start`.
    """
    zero = jnp.zeros((), schedule.dtype)
    back = annealed_importance(
        energy, kernel, targets, log_partition=zero, schedule=schedule[::-1], key=key
    )
    return back._replace(log_partition=log_partition - back.log_partition)


def sandwich(
    energy: PathEnergy,
    kernel: PathKernel,
    start: PyTree,
    *,
    log_partition: Float[Array, ""],
    schedule: Float[Array, " temperatures"],
    settle: int = 100,
    key: Array,
) -> Sandwich:
    """log Z from below by the path and from above by the way back.

    The way back starts where the forward chains end, resampled by their weights and moved on by
    `settle` steps of the kernel.  Those are draws from the target only as far as the chains have found
    all of it: what no chain has visited is missing from both numbers.  Other arguments as in
    `annealed_importance`.
    """
    forward, choose, move, backward = jax.random.split(key, 4)
    lower = annealed_importance(
        energy, kernel, start, log_partition=log_partition, schedule=schedule, key=forward
    )
    chains = lower.log_weights.shape[0]
    chosen = jax.random.categorical(choose, lower.log_weights, shape=(chains,))

    def step(i: Array, states: Any) -> Any:
        keys = jax.random.split(jax.random.fold_in(move, i), chains)
        return jax.vmap(lambda x, k: kernel(schedule[-1], x, key=k))(states, keys)

    targets = jax.lax.fori_loop(0, settle, step, jax.tree.map(lambda a: a[chosen], lower.states))
    upper = reverse_annealed_importance(
        energy, kernel, targets, log_partition=log_partition, schedule=schedule, key=backward
    )
    return Sandwich(lower, upper)
