"""Hamiltonian Monte Carlo: trajectories over free coordinates, with kernels of BlackJAX.

All chains go on together in one program, and share what the warm-up learns: the length of a step and the
mass.  A step of the method is a step of the library's loop, so that long runs show how far they are and can
be interrupted and resumed.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._core import start, to_free
from ._diagnostics import energy_fraction
from ._methods import AbstractSteps, leaves_of, worth_of
from ._minimise import EnergyFunction
from ._posterior import DrawsPosterior
from ._walks import FreeTarget, first_improper, places_of_slopes

# a trajectory along which the energy rises by this is lost
_LOST = 1000


@contextlib.contextmanager
def _as_blackjax_wants() -> Iterator[None]:
    """BlackJAX mixes types and ranks, which strict settings refuse."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Moments(NamedTuple):
    """How many positions a window of the warm-up has seen, their mean and their sums of squares."""

    count: Float[Array, ""]
    mean: Float[Array, " dim"]
    squares: Float[Array, " dim *dim"]


class HamiltonianState(NamedTuple):
    """Where the chains are, and what the warm-up knows.

    Attributes:
        number: of the next step.
        place: position, log-density and its gradient of each chain, as BlackJAX has them.
        averages: of the dual averaging of the step size.
        step_size: that is in use.
        inverse_mass: of the free coordinates, a diagonal or a matrix.
        moments: of the running window.
        start_energy: of the chain that began worst.
        improper: number of the first free coordinate in which exp(−e) has no integral, one more than there
            are for a direction that is none of them, −1 if none is known.
    """

    number: Int[Array, ""]
    place: Any
    averages: Any
    step_size: Float[Array, ""]
    inverse_mass: Float[Array, " dim *dim"]
    moments: Moments
    start_energy: Float[Array, ""]
    improper: Int[Array, ""]


class Transition(NamedTuple):
    """What is kept of a step of all chains."""

    free: Float[Array, "chains dim"]
    energy: Float[Array, " chains"]
    diverging: Bool[Array, " chains"]
    acceptance: Float[Array, " chains"]
    leaps: Int[Array, " chains"]
    longest: Bool[Array, " chains"]


class AbstractHamiltonian(AbstractSteps):
    """A sampler along trajectories of Hamilton's equations, with a warm-up.

    The warm-up has the windows of Stan: the length of a step is set by dual averaging so that `acceptance`
    is met, and the mass from the covariance of all chains in windows that double.
    """

    start: eqx.AbstractVar[PyTree]
    chains: eqx.AbstractVar[int]
    steps: eqx.AbstractVar[int]
    burn_in: eqx.AbstractVar[int]
    thin: eqx.AbstractVar[int]
    dense: eqx.AbstractVar[bool]
    acceptance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def transition(
        self, target: FreeTarget, place: Any, step_size: Array, inverse_mass: Array, key: Array
    ) -> tuple[Any, Transition]:
        """One trajectory of one chain."""

    @property
    def n_steps(self) -> int:
        return self.burn_in + self.steps

    def init(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> HamiltonianState:
        """All chains at their starts, with steps of size one tenth."""
        from blackjax.adaptation.step_size import dual_averaging_adaptation
        from blackjax.mcmc import hmc

        target = FreeTarget(energy, space)
        keys = jax.random.split(key, self.chains)
        free = jax.vmap(
            lambda k: to_free(space, start(space, key=k) if self.start is None else self.start)
        )(keys)
        # slopes beside the chains, by the same look, say in which directions the energy is level
        beside = places_of_slopes(free[0])
        looked = free if beside is None else jnp.concatenate([free, beside])
        with _as_blackjax_wants():
            found: Any = jax.vmap(lambda v: hmc.init(v, lambda u: -target(u)))(looked)
            place = jax.tree.map(lambda a: a[: self.chains], found)
            first = jnp.full((), 0.1 / free.shape[1] ** 0.25, free.dtype)
            averages = dual_averaging_adaptation(self.acceptance)[0](first)
        averages = jax.tree.map(lambda a: jnp.asarray(a, free.dtype), averages)
        dim = free.shape[1]
        return HamiltonianState(
            jnp.zeros((), jnp.int32),
            place,
            averages,
            first,
            jnp.eye(dim, dtype=free.dtype) if self.dense else jnp.ones(dim, free.dtype),
            self._fresh(dim, free.dtype),
            jnp.max(-place.logdensity),
            first_improper(
                target,
                free[0],
                slopes=None if beside is None else found.logdensity_grad[self.chains :],
            ),
        )

    def step(
        self, state: HamiltonianState, energy: EnergyFunction, space: PyTree, *, key: Array
    ) -> tuple[HamiltonianState, Transition]:
        target = FreeTarget(energy, space)

        def move(place: Any, key: Array) -> tuple[Any, Transition]:
            with _as_blackjax_wants():
                keys = jax.random.split(key, self.chains)
                return jax.vmap(
                    lambda p, k: self.transition(target, p, state.step_size, state.inverse_mass, k)
                )(place, keys)

        if self.thin == 1:
            place, told = move(state.place, key)
        else:
            kept = state.number >= self.burn_in

            def again(i: Array, carry: Any) -> Any:
                return move(carry[0], jax.random.fold_in(key, i))

            shape = jax.eval_shape(move, state.place, key)[1]
            blank = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
            times = jnp.where(kept, self.thin, 1)
            place, told = jax.lax.fori_loop(0, times, again, (state.place, blank))
        moved = state._replace(place=place, number=state.number + 1)
        adapted = jax.lax.cond(
            state.number < self.burn_in,
            lambda s: self._adapt(s, told, state.number),
            lambda s: s,
            moved,
        )
        return adapted, told

    def begun(self, state: HamiltonianState) -> dict[str, Array]:
        return {"start_energy": state.start_energy, "improper": state.improper}

    def told(self, kept: Transition) -> dict[str, Array]:
        return {"acceptance": jnp.mean(kept.acceptance)}

    def posterior(
        self, kept: Transition, state: HamiltonianState, energy: EnergyFunction, space: PyTree
    ) -> DrawsPosterior:
        target = FreeTarget(energy, space)
        # (steps, chains, …) to (chains, steps, …), without the warm-up
        kept = jax.tree.map(lambda a: jnp.swapaxes(a[self.burn_in :], 0, 1), kept)
        told = worth_of(kept.free, state.start_energy) | {
            "acceptance": jnp.mean(kept.acceptance),
            "step_size": state.step_size,
            "leaps": jnp.mean(kept.leaps.astype(float)),
            "longest_share": jnp.mean(kept.longest.astype(float)),
            "divergences": jnp.sum(kept.diverging),
            "energy_fraction": jnp.min(energy_fraction(kept.energy)),
            "diverging": kept.diverging,
            "energy": kept.energy,
        }
        draws = jax.vmap(jax.vmap(target.value))(kept.free)
        return DrawsPosterior(draws, None, spaces=leaves_of(space), diagnostics=told)

    def _fresh(self, dim: int, dtype: Any) -> Moments:
        shape = (dim, dim) if self.dense else (dim,)
        return Moments(jnp.zeros((), dtype), jnp.zeros(dim, dtype), jnp.zeros(shape, dtype))

    def _adapt(self, state: HamiltonianState, told: Transition, number: Array) -> HamiltonianState:
        """What the warm-up learns of a step."""
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        slow, end = (jnp.asarray(part)[number] for part in _schedule(self.burn_in))
        dim, dtype = told.free.shape[1], told.free.dtype
        begin, update, final = dual_averaging_adaptation(self.acceptance)
        with _as_blackjax_wants():
            averages = update(state.averages, jnp.mean(told.acceptance))
        averages = jax.tree.map(lambda a: jnp.asarray(a, dtype), averages)
        moments = _merged(state.moments, told.free, slow.astype(dtype), self.dense)

        def turn(_: None) -> tuple[Any, Array, Moments, Array]:
            """The end of a window: another mass, and the step size found anew from where it is."""
            n = moments.count
            # shrunk towards a small multiple of the identity, as Stan does
            share, rest = n / (n + 5), 1e-3 * 5 / (n + 5)
            unit = jnp.eye(dim, dtype=dtype) if self.dense else jnp.ones(dim, dtype)
            mass = share * moments.squares / jnp.maximum(n - 1, 1) + rest * unit
            with _as_blackjax_wants():
                anew = begin(final(averages))
            anew = jax.tree.map(lambda a: jnp.asarray(a, dtype), anew)
            return anew, mass, self._fresh(dim, dtype), jnp.exp(averages.log_step_size_avg)

        def go_on(_: None) -> tuple[Any, Array, Moments, Array]:
            return averages, state.inverse_mass, moments, jnp.exp(averages.log_step_size)

        averages_, mass, moments_, size = jax.lax.cond(end, turn, go_on, None)
        # after the warm-up the average over its last window stays
        last = number == self.burn_in - 1
        size = jnp.where(last, jnp.exp(averages_.log_step_size_avg), size)
        return state._replace(averages=averages_, inverse_mass=mass, moments=moments_, step_size=size)


def _schedule(burn_in: int) -> tuple[np.ndarray, np.ndarray]:
    """For each step of the warm-up whether it is in a window of the mass, and whether it ends one."""
    from blackjax.adaptation.window_adaptation import build_schedule

    with jax.ensure_compile_time_eval(), _as_blackjax_wants():
        found = np.asarray(build_schedule(burn_in)).reshape(-1, 2)
    return found[:, 0].astype(bool), found[:, 1].astype(bool)


def _merged(moments: Moments, rows: Float[Array, "chains dim"], share: Array, dense: bool) -> Moments:
    """Moments with the positions of all chains added, if `share` is one."""
    n = share * rows.shape[0]
    total = moments.count + n
    mean = jnp.mean(rows, axis=0)
    gap = rows - mean[None]
    step = mean - moments.mean
    weight = jnp.where(total > 0, moments.count * n / jnp.maximum(total, 1), 0)
    if dense:
        squares = share * gap.T @ gap + weight * jnp.outer(step, step)
    else:
        squares = share * jnp.sum(gap**2, axis=0) + weight * step**2
    moved = jnp.where(total > 0, n / jnp.maximum(total, 1), 0)
    return Moments(total, moments.mean + moved * step, moments.squares + squares)


class NUTS(AbstractHamiltonian):
    """The no-U-turn sampler: trajectories that end where they would turn back (Hoffman and Gelman 2014).

    A trajectory is doubled forwards or backwards until its ends approach each other, and the next state is
    drawn from it with probability in proportion to exp(−H) (Betancourt 2017); BlackJAX has the kernel.

    Attributes:
        start: where all chains begin; by default each somewhere in the space.
        chains, steps: how many draws each of how many chains keeps.
        burn_in: how many steps the warm-up has.
        thin: one in how many is kept after that.
        dense: whether the mass is a matrix, for correlated unknowns of few dimensions, or a diagonal.
        acceptance: the mean acceptance that the size of the steps is set for; nearer to one is slower and
            reaches narrower places.
        doublings: the longest trajectory has 2 to that power leaps.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> def energy(z): return jnp.sum((z - 3) ** 2) / 2
    >>> found = infer(energy, Reals((2,)), NUTS(steps=200, burn_in=100), key=jax.random.key(0))
    >>> bool(jnp.all(jnp.abs(found.mean() - 3) < 0.3)), int(found.diagnostics["divergences"])
    (True, 0)
    """

    start: PyTree = None
    chains: int = eqx.field(static=True, default=4)
    steps: int = eqx.field(static=True, default=1000)
    burn_in: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)
    dense: bool = eqx.field(static=True, default=False)
    acceptance: float = eqx.field(static=True, default=0.8)
    doublings: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        check_chains(self)

    def transition(
        self, target: FreeTarget, place: Any, step_size: Array, inverse_mass: Array, key: Array
    ) -> tuple[Any, Transition]:
        from blackjax.mcmc import nuts

        kernel: Any = nuts.build_kernel(divergence_threshold=_LOST)
        new, info = kernel(key, place, lambda u: -target(u), step_size, inverse_mass, self.doublings)
        cut = (info.num_trajectory_expansions == self.doublings) & ~info.is_turning
        return new, Transition(
            new.position,
            info.energy,
            info.is_divergent,
            info.acceptance_rate,
            info.num_integration_steps,
            cut,
        )


class HamiltonianMonteCarlo(AbstractHamiltonian):
    """Hamiltonian Monte Carlo: leaps along a trajectory, taken or not (Duane et al. 1987; Neal 2011).

    The unknown v has a momentum p with H = e(v) + ½ pᵀM⁻¹p; after a random number of leapfrog steps the end
    is taken with probability min(1, exp(H − H′)).

    Attributes:
        start, chains, steps, burn_in, thin, dense, acceptance: as in `NUTS`.
        leaps: a trajectory has one to so many leapfrog steps, at random.
    """

    start: PyTree = None
    chains: int = eqx.field(static=True, default=4)
    steps: int = eqx.field(static=True, default=1000)
    burn_in: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)
    dense: bool = eqx.field(static=True, default=False)
    acceptance: float = eqx.field(static=True, default=0.8)
    leaps: int = eqx.field(static=True, default=16)

    def __check_init__(self) -> None:
        check_chains(self)

    def transition(
        self, target: FreeTarget, place: Any, step_size: Array, inverse_mass: Array, key: Array
    ) -> tuple[Any, Transition]:
        from blackjax.mcmc import hmc

        count, run = jax.random.split(key)
        leaps = jax.random.randint(count, (), 1, self.leaps + 1)
        kernel: Any = hmc.build_kernel(divergence_threshold=_LOST)
        new, info = kernel(run, place, lambda u: -target(u), step_size, inverse_mass, leaps)
        return new, Transition(
            new.position,
            info.energy,
            info.is_divergent,
            info.acceptance_rate,
            leaps,
            jnp.zeros((), bool),
        )


def check_chains(method: Any) -> None:
    """Refuses a sampler without chains or draws."""
    for name, least in (("chains", 1), ("steps", 1), ("burn_in", 0), ("thin", 1)):
        value = getattr(method, name)
        if value < least:
            raise ValueError(
                f"The '{name}' parameter of {type(method).__name__} must be an int in the range "
                f"[{least}, inf). Got {value} instead."
            )
    if not 0 < method.acceptance < 1:
        raise ValueError(
            f"The 'acceptance' parameter of {type(method).__name__} must be between 0 and 1. "
            f"Got {method.acceptance} instead."
        )
