"""L-BFGS as a conversation: it asks for a point, and is told the value and the gradient there.

Whoever drives it evaluates its function at one place only.  A line search that calls the function itself
has several copies of it in one program, each with its gradient: most of what has to be compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

# of the slope along a step: how much of it the value must fall by, and how much of it may be left
_LEAST_FALL = 1e-4
_LEFT = 0.9
# how many steps are remembered
_LEAST_MEMORY, _MOST_MEMORY = 20, 40
# trials along one direction before it is given up
_MOST_TRIALS = 30
# values that differ by this part of the root of the rounding error may be equal
_ALIKE = 1e-2


class LBFGSState(NamedTuple):
    """Where L-BFGS is, and where it wants to go.

    Attributes:
        point: the best point so far.
        value: the value there, infinite before the first.
        gradient: the gradient there.
        steps: the last steps that were taken, the newest first.
        changes: by how much the gradient changed with each.
        curvatures: 1 / (step · change), zero where there is none yet.
        direction: along which the next point lies.
        length: how far along it.
        low: a length that was too short, or zero.
        high: one that was too long, or infinity.
        trials: how many points along this direction were tried.
        moved: whether the last point that was told became `point`.
        stuck: whether no point along the steepest descent was lower, so that there is nothing left to do.
    """

    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    steps: Float[Array, "memory n"]
    changes: Float[Array, "memory n"]
    curvatures: Float[Array, " memory"]
    direction: Float[Array, " n"]
    length: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    trials: Int[Array, ""]
    moved: Bool[Array, ""]
    stuck: Bool[Array, ""]

    def ask(self) -> Float[Array, " n"]:
        """The point at which value and gradient are wanted next."""
        return self.point + self.length * self.direction

    def tell(self, value: Float[Array, ""], gradient: Float[Array, " n"]) -> LBFGSState:
        """What follows from value and gradient at the point that was asked for.

        A point is taken if it is low enough and not too steep (the strong conditions of Wolfe), else the
        next one lies between those that were too near and too far.
        """
        first = jnp.isinf(self.value)
        slope = jnp.vdot(self.direction, self.gradient)
        slope_there = jnp.vdot(self.direction, gradient)
        healthy = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        lower = value <= self.value + _LEAST_FALL * self.length * slope
        # near the minimum values differ by less than rounding, and slopes tell (Hager and Zhang 2005)
        alike = value <= self.value + _ALIKE * jnp.sqrt(jnp.finfo(value.dtype).eps) * jnp.abs(self.value)
        low_enough = healthy & (lower | (alike & (slope_there <= (2 * _LEAST_FALL - 1) * slope)))
        moved = first | (low_enough & (jnp.abs(slope_there) <= -_LEFT * slope))
        lost = ~moved & (self.trials + 1 >= _MOST_TRIALS)
        # without a memory it was the steepest descent that led nowhere
        stuck = self.stuck | (lost & jnp.all(self.curvatures == 0))
        memory = self._remembering(gradient, moved & ~first)
        forgetful = memory._replace(curvatures=jnp.where(lost, 0, memory.curvatures))
        here = forgetful._replace(
            point=jnp.where(moved, self.ask(), self.point),
            value=jnp.where(moved, value, self.value),
            gradient=jnp.where(moved, gradient, self.gradient),
            moved=moved,
            stuck=stuck,
        )
        again = moved | lost
        length, low, high = self._next_length(value, low_enough, slope, slope_there)
        return here._replace(
            direction=jnp.where(again, here._descent(), self.direction),
            length=jnp.where(again, 1, length),
            low=jnp.where(again, 0, low),
            high=jnp.where(again, jnp.inf, high),
            trials=jnp.where(again, 0, self.trials + 1),
        )

    def _remembering(self, gradient: Array, taken: Array) -> LBFGSState:
        """The memory with the step to the point that was asked for, if it is taken and bends upwards."""
        step, change = self.length * self.direction, gradient - self.gradient
        product = jnp.vdot(step, change)
        useful = taken & (product > 0)

        def pushed(memory: Array, newest: Array) -> Array:
            return jnp.where(useful, jnp.roll(memory, 1, axis=0).at[0].set(newest), memory)

        return self._replace(
            steps=pushed(self.steps, step),
            changes=pushed(self.changes, change),
            curvatures=pushed(self.curvatures, 1 / jnp.where(useful, product, 1)),
        )

    def _next_length(
        self, value: Array, low_enough: Array, slope: Array, slope_there: Array
    ) -> tuple[Array, Array, Array]:
        """Another length along the same direction, between what was too short and too long."""
        t = self.length
        short = low_enough & (slope_there < 0)
        low, high = jnp.where(short, t, self.low), jnp.where(short, self.high, t)
        # where the line is level, by its slopes at both ends; where it is too high, by both values
        rise = slope_there - slope
        bend = value - self.value - slope * t
        level = jnp.where(low_enough & (rise > 0), -slope * t / jnp.where(rise > 0, rise, 1), 0)
        curved = jnp.isfinite(bend) & (bend > 0)
        vertex = jnp.where(curved, -slope * t**2 / (2 * jnp.where(curved, bend, 1)), 0)
        room = jnp.where(jnp.isinf(high), 0, high - low)
        guess = jnp.where(low_enough, level, vertex)
        inside = jnp.minimum(jnp.maximum(guess, low + 0.1 * room), low + 0.9 * room)
        inside = jnp.where(low > 0, 0.5 * (low + high), inside)
        return jnp.where(jnp.isinf(high), 2 * t, inside), low, high

    def _descent(self) -> Array:
        """Minus the gradient times what is known of the inverse curvature: the two-loop recursion."""

        def back(q: Array, pair: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            step, change, curvature = pair
            share = curvature * jnp.vdot(step, q)
            return q - share * change, share

        def forth(q: Array, at: tuple[tuple[Array, Array, Array], Array]) -> tuple[Array, None]:
            (step, change, curvature), share = at
            return q + (share - curvature * jnp.vdot(change, q)) * step, None

        pairs = (self.steps, self.changes, self.curvatures)
        q, shares = jax.lax.scan(back, self.gradient, pairs)
        square = jnp.vdot(self.changes[0], self.changes[0])
        known = (self.curvatures[0] > 0) & (square > 0)
        scale = 1 / jnp.where(known, self.curvatures[0] * square, 1)
        # of a first step only the direction is known: it is no longer than one
        size = jnp.sqrt(jnp.vdot(self.gradient, self.gradient))
        q = q * jnp.where(known, scale, 1 / jnp.maximum(size, 1))
        return -jax.lax.scan(forth, q, (pairs, shares), reverse=True)[0]


def begin_lbfgs(start: Float[Array, " n"], *, memory: int | None = None) -> LBFGSState:
    """L-BFGS about to begin at `start`, which is the first point that it asks for.

    Also known as limited-memory BFGS (Liu and Nocedal 1989), with a line search like that of Lewis and
    Overton (2013), here for the strong conditions of Wolfe.

    Args:
        start: where to begin.
        memory: how many steps are remembered; by default as many as there are numbers, from 20 to 40.

    >>> def parabola(x):
    ...     return jnp.vdot(x, x), 2 * x
    >>> state = begin_lbfgs(jnp.array([3.0, -4.0]))
    >>> step = jax.jit(lambda state: state.tell(*parabola(state.ask())))
    >>> for _ in range(12):
    ...     state = step(state)
    >>> float(state.value) < 1e-20
    True
    """
    # of few numbers all of the curvature can be remembered
    memory = min(max(len(start), _LEAST_MEMORY), _MOST_MEMORY) if memory is None else memory
    zero = jnp.zeros((), start.dtype)
    empty = jnp.zeros((memory, len(start)), start.dtype)
    no = jnp.zeros((), bool)
    return LBFGSState(
        point=start,
        value=jnp.inf + zero,
        gradient=jnp.zeros_like(start),
        steps=empty,
        changes=empty,
        curvatures=jnp.zeros(memory, start.dtype),
        direction=jnp.zeros_like(start),
        length=zero,
        low=zero,
        high=jnp.inf + zero,
        trials=jnp.zeros((), jnp.int32),
        moved=no,
        stuck=no,
    )
