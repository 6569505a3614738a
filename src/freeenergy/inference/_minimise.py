"""Eliminating an unknown by its value of least energy.

A search is an `init`, a `step` and a `terminate`; `minimise` drives them all.  What a search knows beyond
the energy (a proximal map, an update whose fixed point is the minimum) are its fields.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from ._lbfgs import LBFGSState, begin_lbfgs

EnergyFunction = Callable[..., Float[Array, ""]]
"""`energy(z)`: a scalar function of the unknown alone."""


class Minimum(NamedTuple):
    """Where an energy is least.

    Attributes:
        point: the minimiser.
        energy: the energy there.
        converged: whether `point` is known to be a minimum (of the given points, or a stationary one).
        steps: how many steps it took.
    """

    point: Any
    energy: Float[Array, ""]
    converged: Bool[Array, ""]
    steps: Array


class AbstractSearch(eqx.Module):
    """A way to look for the least energy.

    Attributes:
        max_steps: the most steps to take.
    """

    max_steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self, energy: EnergyFunction, start: PyTree) -> Any:
        """The first state."""

    @abc.abstractmethod
    def step(self, energy: EnergyFunction, state: Any) -> Any:
        """The next state."""

    @abc.abstractmethod
    def terminate(self, state: Any) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether to stop, and whether that is because the minimum has been found."""

    @abc.abstractmethod
    def result(self, energy: EnergyFunction, state: Any) -> tuple[PyTree, Float[Array, ""]]:
        """The point that `state` stands for, and its energy."""


def minimise(energy: EnergyFunction, start: PyTree, search: AbstractSearch) -> Minimum:
    """A minimum of `energy`, by `search` from `start`.

    Args:
        energy: a scalar function of a tree of arrays.
        start: where to begin.
        search: how to go on from there.

    >>> found = minimise(lambda z: jnp.sum((z - 1) ** 4 + z**2), jnp.zeros(2), QuasiNewton())
    >>> [round(float(v), 6) for v in found.point], bool(found.converged)
    ([0.410245, 0.410245], True)
    """

    def proceed(carry: tuple[Any, Array]) -> Array:
        state, count = carry
        return (count < search.max_steps) & ~search.terminate(state)[0]

    def advance(carry: tuple[Any, Array]) -> tuple[Any, Array]:
        state, count = carry
        return search.step(energy, state), count + 1

    begin = (search.init(energy, start), jnp.zeros((), jnp.int32))
    state, steps = jax.lax.while_loop(proceed, advance, begin)
    return Minimum(*search.result(energy, state), search.terminate(state)[1], steps)


class Exhaustive(AbstractSearch):
    """The first of finitely many candidates with the least energy: the `start`, along its first axis.

    >>> minimise(lambda z: (z - 2.2) ** 2, jnp.arange(5.0), Exhaustive()).point.item()
    2.0
    """

    max_steps: int = eqx.field(static=True, default=0, init=False)

    def init(self, energy: EnergyFunction, start: PyTree) -> tuple[PyTree, Array]:
        energies = jax.vmap(energy)(start)
        best = jnp.argmin(energies)
        return jax.tree.map(lambda a: a[best], start), energies[best]

    def step(self, energy: EnergyFunction, state: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        return state

    def terminate(self, state: tuple[PyTree, Array]) -> tuple[Array, Array]:
        return jnp.ones((), bool), jnp.ones((), bool)

    def result(self, energy: EnergyFunction, state: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        return state


class QuasiNewtonState(NamedTuple):
    """Where L-BFGS is over a vector, and a tree that says how the unknown is made of it."""

    search: LBFGSState
    like: Any

    @property
    def point(self) -> PyTree:
        """The best point so far."""
        return self.tree_of(self.search.point)

    @property
    def steepest(self) -> Float[Array, ""]:
        """The largest entry of the gradient there; infinite before the energy is known anywhere."""
        slope = jnp.max(jnp.abs(self.search.gradient), initial=0)
        return jnp.where(jnp.isinf(self.search.value), jnp.inf, slope)

    def tree_of(self, flat: Float[Array, " n"]) -> PyTree:
        """The unknown of which `flat` are the entries."""
        return ravel_pytree(self.like)[1](flat)


class QuasiNewton(AbstractSearch):
    """L-BFGS: a local minimum of a smooth energy; a step is one look at the energy and its gradient.

    Attributes:
        tol: the largest entry of the gradient that counts as zero.
        max_steps: the most steps to take.
    """

    tol: float | Array = 1e-6
    max_steps: int = eqx.field(static=True, default=300, kw_only=True)

    def init(self, energy: EnergyFunction, start: PyTree) -> QuasiNewtonState:
        return QuasiNewtonState(begin_lbfgs(ravel_pytree(start)[0]), start)

    def step(self, energy: EnergyFunction, state: QuasiNewtonState) -> QuasiNewtonState:
        look = jax.value_and_grad(lambda flat: energy(state.tree_of(flat)))
        return state._replace(search=state.search.tell(*look(state.search.ask())))

    def terminate(self, state: QuasiNewtonState) -> tuple[Array, Array]:
        converged = state.steepest <= self.tol
        return converged | state.search.stuck | jnp.isnan(state.search.value), converged

    def result(self, energy: EnergyFunction, state: QuasiNewtonState) -> tuple[PyTree, Array]:
        return state.point, state.search.value


class Descent(AbstractSearch):
    """All `max_steps` steps of an Optax optimiser down the gradient; nothing says when it is there.

    Attributes:
        optimiser: such as `optax.adam(1e-2)`.
        max_steps: how many steps.

    >>> import optax
    >>> found = minimise(lambda z: (z - 3.0) ** 2, jnp.array(0.0), Descent(optax.sgd(0.25), max_steps=40))
    >>> round(found.point.item(), 6), bool(found.converged)
    (3.0, False)
    """

    optimiser: optax.GradientTransformation = eqx.field(static=True)
    max_steps: int = eqx.field(static=True, default=300, kw_only=True)

    def init(self, energy: EnergyFunction, start: PyTree) -> tuple[PyTree, Any]:
        return start, self.optimiser.init(start)

    def step(self, energy: EnergyFunction, state: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
        point, memory = state
        # Optax mixes types, which a caller may have forbidden
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = self.optimiser.update(jax.grad(energy)(point), memory, point)
        return eqx.apply_updates(point, updates), memory

    def terminate(self, state: tuple[PyTree, Any]) -> tuple[Array, Array]:
        return jnp.zeros((), bool), jnp.zeros((), bool)

    def result(self, energy: EnergyFunction, state: tuple[PyTree, Any]) -> tuple[PyTree, Array]:
        return state[0], energy(state[0])


class NoisyDescent(AbstractSearch):
    """`Descent` of an energy of which each look is another draw: `energy(z, key)`.

    Steps that are no number are left out, up to five in a row.

    Attributes:
        optimiser: such as `optax.adam(1e-2)`.
        key: seeds the draws.
        max_steps: how many steps.

    >>> import optax
    >>> noisy = lambda z, key: (z - 3.0 + 0.1 * jax.random.normal(key)) ** 2
    >>> search = NoisyDescent(optax.sgd(0.05), jax.random.key(0), max_steps=400)
    >>> bool(jnp.abs(minimise(noisy, jnp.array(0.0), search).point - 3) < 0.1)
    True
    """

    optimiser: optax.GradientTransformation = eqx.field(static=True)
    key: Array
    max_steps: int = eqx.field(static=True, default=300, kw_only=True)

    @property
    def _sure(self) -> optax.GradientTransformation:
        return optax.apply_if_finite(self.optimiser, 5)

    def init(self, energy: EnergyFunction, start: PyTree) -> tuple[PyTree, Any, Array]:
        return start, self._sure.init(start), jnp.zeros((), jnp.int32)

    def step(self, energy: EnergyFunction, state: tuple[PyTree, Any, Array]) -> tuple[PyTree, Any, Array]:
        point, memory, count = state
        slope = jax.grad(energy)(point, jax.random.fold_in(self.key, count))
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = self._sure.update(slope, memory, point)
        return eqx.apply_updates(point, updates), memory, count + 1

    def terminate(self, state: tuple[PyTree, Any, Array]) -> tuple[Array, Array]:
        return jnp.zeros((), bool), jnp.zeros((), bool)

    def result(self, energy: EnergyFunction, state: tuple[PyTree, Any, Array]) -> tuple[PyTree, Array]:
        return state[0], energy(state[0], self.key)


class ProximalState(NamedTuple):
    """A point, the point ahead of it that momentum leads to, the size of the momentum, the last change."""

    point: Float[Array, " dim"]
    ahead: Float[Array, " dim"]
    momentum: Float[Array, ""]
    change: Float[Array, ""]


class ProximalGradient(AbstractSearch):
    """An accelerated proximal gradient (FISTA), for a smooth energy plus a part with kinks.

        x ← prox(y − s ∇e(y)),    prox(v) = argmin_x ½‖x − v‖² + s · (the part with kinks)

    with y ahead of x by a momentum that is dropped where it points uphill.  `minimise` is given the smooth
    part of the energy alone.

    Attributes:
        proximal: `proximal(v, s)`.
        length: s, one over a bound on the curvature of the smooth part.
        tol: the largest change of an entry that counts as none.
        max_steps: the most steps to take.

    >>> shrink = lambda v, s: jnp.sign(v) * jnp.maximum(jnp.abs(v) - s, 0)
    >>> smooth = lambda x: jnp.sum((x - jnp.array([3.0, 0.5])) ** 2) / 2
    >>> minimise(smooth, jnp.zeros(2), ProximalGradient(shrink, jnp.array(1.0))).point.tolist()
    [2.0, 0.0]
    """

    proximal: Callable[[Array, Array], Array]
    length: Float[Array, ""]
    tol: float = 1e-13
    max_steps: int = eqx.field(static=True, default=2000, kw_only=True)

    def init(self, energy: EnergyFunction, start: Float[Array, " dim"]) -> ProximalState:
        one = jnp.ones((), start.dtype)
        return ProximalState(start, start, one, jnp.inf * one)

    def step(self, energy: EnergyFunction, state: ProximalState) -> ProximalState:
        x, ahead, t, _ = state
        new = self.proximal(ahead - self.length * jax.grad(energy)(ahead), self.length)
        later = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        uphill = jnp.vdot(ahead - new, new - x) > 0
        later = jnp.where(uphill, 1.0, later)
        push = jnp.where(uphill, 0.0, (t - 1) / later)
        return ProximalState(new, new + push * (new - x), later, jnp.max(jnp.abs(new - x)))

    def terminate(self, state: ProximalState) -> tuple[Array, Array]:
        converged = state.change <= self.tol
        # (a change that is no number stops the search too)
        return ~(state.change > self.tol), converged

    def result(self, energy: EnergyFunction, state: ProximalState) -> tuple[Array, Array]:
        return state.point, energy(state.point)


def mean_change(new: Array, old: Array) -> Float[Array, ""]:
    """The mean absolute difference of entries."""
    return jnp.mean(jnp.abs(new - old))


class FixedPoint(AbstractSearch):
    """z ← update(z) until it stands still, for an update that never raises the energy.

    Attributes:
        update: its fixed point is the minimum.
        tol: the change that counts as none.
        max_steps: the most updates.
        change: from a new and an old point to how far they are apart.

    >>> found = minimise(lambda z: jnp.sin(z) - z**2 / 2, jnp.array(1.0), FixedPoint(jnp.cos, 1e-9))
    >>> round(found.point.item(), 6)
    0.739085
    """

    update: Callable[[Array], Array]
    tol: float | Array = 1e-6
    max_steps: int = eqx.field(static=True, default=10_000, kw_only=True)
    change: Callable[[Array, Array], Array] = mean_change

    def init(self, energy: EnergyFunction, start: Array) -> tuple[Array, Array]:
        return start, jnp.asarray(jnp.inf, start.dtype)

    def step(self, energy: EnergyFunction, state: tuple[Array, Array]) -> tuple[Array, Array]:
        new = self.update(state[0])
        return new, self.change(new, state[0])

    def terminate(self, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return ~(state[1] > self.tol), state[1] <= self.tol

    def result(self, energy: EnergyFunction, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return state[0], energy(state[0])


class ExtrapolatedState(NamedTuple):
    """A point far ahead, the last one that is sure, an energy not to exceed, the change of an update."""

    far: Array
    sure: Array
    least: Float[Array, ""]
    change: Float[Array, ""]


class Extrapolated(AbstractSearch):
    """A fixed point by extrapolation: two updates say how far to go (SQUAREM, Varadhan and Roland 2008).

    Where that raises the energy it is taken back.  It needs tens of steps where updates alone, such as
    those of EM, need thousands.

    Attributes:
        update: as for `FixedPoint`.
        tol: the mean change of an update that counts as none.
        inside: whether a point is one at all; others are not gone to.
        max_steps: the most steps to take.

    >>> search = Extrapolated(jnp.cos, 1e-9, lambda z: z > 0)
    >>> round(minimise(lambda z: z**2 / 2 - jnp.sin(z), jnp.array(1.0), search).point.item(), 6)
    0.739085
    """

    update: Callable[[Array], Array]
    tol: float | Array
    inside: Callable[[Array], Array]
    max_steps: int = eqx.field(static=True, default=10_000, kw_only=True)

    def init(self, energy: EnergyFunction, start: Array) -> ExtrapolatedState:
        never = jnp.asarray(jnp.inf, start.dtype)
        return ExtrapolatedState(start, start, never, never)

    def step(self, energy: EnergyFunction, state: ExtrapolatedState) -> ExtrapolatedState:
        here = state.far
        once = self.update(here)
        twice = self.update(once)
        first, bend = once - here, twice - 2 * once + here
        ratio = jnp.vdot(first, first) / jnp.maximum(jnp.vdot(bend, bend), jnp.finfo(here.dtype).tiny)
        length = jnp.maximum(jnp.sqrt(ratio), 1)
        far = here + 2 * length * first + length**2 * bend
        far = jnp.where(jnp.all(self.inside(far)), far, twice)
        value = energy(here)
        kept = value <= state.least + 1e-13 * jnp.abs(state.least)
        never = jnp.asarray(jnp.inf, here.dtype)
        return ExtrapolatedState(
            jnp.where(kept, far, state.sure),
            jnp.where(kept, twice, state.sure),
            jnp.where(kept, value, never),
            jnp.where(kept, mean_change(once, here), never),
        )

    def terminate(self, state: ExtrapolatedState) -> tuple[Array, Array]:
        return ~(state.change > self.tol), state.change <= self.tol

    def result(self, energy: EnergyFunction, state: ExtrapolatedState) -> tuple[Array, Array]:
        return state.sure, energy(state.sure)


class DampedState(NamedTuple):
    """A point, its energy, the share of an update that is taken, the change of a whole one."""

    point: Array
    value: Float[Array, ""]
    share: Float[Array, ""]
    change: Float[Array, ""]


class Damped(AbstractSearch):
    """Of each update only as much as lowers the energy: for updates that may go too far.

    Attributes:
        update: as for `FixedPoint`, but it may raise the energy.
        tol: the mean change of a whole update that counts as none.
        least_share: a share this small counts as none, too.
        max_steps: the most steps to take.

    >>> search = Damped(lambda z: -2 * z, 1e-9)
    >>> abs(round(minimise(lambda z: z**2, jnp.array(1.0), search).point.item(), 6))
    0.0
    """

    update: Callable[[Array], Array]
    tol: float | Array = 1e-6
    least_share: float = 1e-4
    max_steps: int = eqx.field(static=True, default=10_000, kw_only=True)

    def init(self, energy: EnergyFunction, start: Array) -> DampedState:
        one = jnp.ones((), start.dtype)
        return DampedState(start, energy(start), one, jnp.inf * one)

    def step(self, energy: EnergyFunction, state: DampedState) -> DampedState:
        point, value, share, change = state
        new = point + share * (self.update(point) - point)
        lower = energy(new)
        better = lower <= value
        return DampedState(
            jnp.where(better, new, point),
            jnp.where(better, lower, value),
            jnp.where(better, jnp.minimum(2 * share, 1), share / 2),
            jnp.where(better, mean_change(new, point) / share, change),
        )

    def terminate(self, state: DampedState) -> tuple[Array, Array]:
        at_rest = (state.change <= self.tol) | (state.share <= self.least_share)
        return at_rest | jnp.isnan(state.value), at_rest

    def result(self, energy: EnergyFunction, state: DampedState) -> tuple[Array, Array]:
        return state.point, state.value
