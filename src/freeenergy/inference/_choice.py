"""Which method serves an unknown when nobody says, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._core import (
    AbstractContinuous,
    AbstractFinite,
    Counts,
    NonNegative,
    boltzmann,
    count_states,
    enumerate_states,
    free_size,
)
from ._gibbs import gibbs_sweep
from ._hmc import NUTS
from ._methods import AbstractMethod, Enumerate, MarkovChain, leaves_of
from ._minimise import EnergyFunction
from ._posterior import DrawsPosterior
from ._slice import SliceSampler

# states that are visited one by one, and beside each value of a continuous part
_FEW, _FEW_BESIDE = 2**16, 256


class Collapsed(AbstractMethod):
    """Sums over the finite part of an unknown, infers the rest, and draws the finite part given the rest.

    exp(−e(v)) = Σ_s exp(−e(v, s)), then s ~ p(s | v) for each draw of v: exact in the finite part, and the
    continuous part has a gradient (also known as Rao–Blackwellisation, or marginalised sampling).

    Attributes:
        method: for the continuous part; one that gives draws.

    >>> from freeenergy.distributions import Binary, Reals
    >>> from freeenergy.inference import infer
    >>> def energy(z): return (z["x"] - 4 * z["on"]) ** 2 / 2 - z["on"]
    >>> space = {"x": Reals(()), "on": Binary(())}
    >>> found = infer(energy, space, Collapsed(), key=jax.random.key(0))
    >>> bool(abs(found.mean()["on"] - jax.nn.sigmoid(1.0)) < 0.1)
    True
    """

    method: AbstractMethod = NUTS()

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        leaves, structure = jax.tree.flatten(space)
        finite = [isinstance(leaf, AbstractFinite) for leaf in leaves]
        parts = [leaf for leaf, own in zip(leaves, finite, strict=True) if own]
        rest = [leaf for leaf, own in zip(leaves, finite, strict=True) if not own]
        states = enumerate_states(parts)

        def whole(v: list[Any], s: list[Any]) -> PyTree:
            left, right = iter(v), iter(s)
            return jax.tree.unflatten(structure, [next(right) if own else next(left) for own in finite])

        def energies(v: list[Any]) -> Array:
            return jax.vmap(lambda s: energy(whole(v, s)))(states)

        run, draw = jax.random.split(key)
        found = self.method(lambda v: boltzmann(energies(v))[0], rest, key=run)
        if not isinstance(found, DrawsPosterior):
            raise TypeError(
                f"The 'method' of Collapsed must give draws. Got {type(self.method).__name__} instead."
            )

        def complete(v: list[Any], key: Array) -> PyTree:
            at = jax.random.categorical(key, -energies(v))
            return whole(v, jax.tree.map(lambda a: a[at], states))

        axes = 1 if found.log_weights is not None else 2
        shape = jax.tree.leaves(found.draws)[0].shape[:axes]
        keys, mapped = jax.random.split(draw, shape), complete
        for _ in range(axes):
            mapped = jax.vmap(mapped)
        return DrawsPosterior(
            mapped(found.draws, keys),
            found.log_weights,
            spaces=tuple(leaves),
            log_evidence=found.log_evidence,
            diagnostics=found.diagnostics,
        )


class Rounded(AbstractMethod):
    """Counts n as numbers u that lie evenly between n and n + 1: infers these, and rounds them down.

    exp(−e(n)) = ∫ exp(−e(⌊u⌋)) du over [n, n + 1), so that draws and evidence of u are those of n.

    Attributes:
        method: for the numbers; one that gives draws and needs no gradient, such as
            `MarkovChain(SliceSampler())`, `RandomWalk()` or `SequentialMonteCarlo()`.

    >>> from freeenergy.distributions import Counts
    >>> from freeenergy.inference import infer
    >>> def energy(n): return jax.scipy.special.gammaln(n + 1.0)  # a Poisson variable of mean 1
    >>> found = infer(energy, Counts(()), Rounded(), key=jax.random.key(0))
    >>> bool(abs(found.mean() - 1) < 0.1), found.marginals()["z"]["0"] > 0.3
    (True, True)
    """

    method: AbstractMethod = MarkovChain(SliceSampler())

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        counts = jax.tree.map(lambda leaf: isinstance(leaf, Counts), space)
        between = jax.tree.map(
            lambda leaf, own: NonNegative(leaf.unknown_shape()) if own else leaf, space, counts
        )

        def rounded(u: PyTree) -> PyTree:
            return jax.tree.map(lambda a, own: jnp.floor(a) if own else a, u, counts)

        found = self.method(lambda u: energy(rounded(u)), between, key=key)
        if not isinstance(found, DrawsPosterior):
            raise TypeError(
                f"The 'method' of Rounded must give draws. Got {type(self.method).__name__} instead."
            )
        return DrawsPosterior(
            rounded(found.draws),
            found.log_weights,
            groups=found.groups,
            spaces=leaves_of(space),
            log_evidence=found.log_evidence,
            diagnostics=found.diagnostics,
        )


class Choice(NamedTuple):
    """A method, and why it is the one."""

    method: AbstractMethod
    why: str


def choose_method(space: PyTree, *, start: PyTree = None) -> Choice:
    """The method for an unknown in `space` of which nothing is known but its energy.

    Args:
        space: a tree of spaces.
        start: where chains begin, if somewhere is known to be good.

    >>> from freeenergy.distributions import Binary, Reals
    >>> choose_method(Binary((3,))).why
    'Enumerate, since the unknown has 8 states, few enough to visit each'
    >>> choose_method({"x": Reals((2,))}).why
    'NUTS, since the unknown is continuous, with 2 free reals'
    """
    leaves = leaves_of(space)
    finite = [leaf for leaf in leaves if isinstance(leaf, AbstractFinite)]
    smooth = [leaf for leaf in leaves if isinstance(leaf, AbstractContinuous)]
    counts = [leaf for leaf in leaves if isinstance(leaf, Counts)]
    if len(finite) + len(smooth) + len(counts) < len(leaves):
        known = AbstractFinite | AbstractContinuous | Counts
        other = next(leaf for leaf in leaves if not isinstance(leaf, known))
        raise TypeError(
            f"No method serves an unknown in {other!r} by itself. Pass one, such as "
            "MarkovChain(kernel) with a Markov kernel of your own."
        )
    if counts:
        return _with_counts(len(counts), count_states(finite) if finite else 1)
    if not smooth:
        count = count_states(finite)
        if count <= _FEW:
            why = f"Enumerate, since the unknown has {count:,} states, few enough to visit each"
            return Choice(Enumerate(), why)
        why = f"Gibbs sampling, since the unknown is finite and has {count:.3g} states"
        return Choice(MarkovChain(gibbs_sweep), why)
    size = free_size(smooth)
    if not finite:
        return Choice(NUTS(start), f"NUTS, since the unknown is continuous, with {size:,} free reals")
    count = count_states(finite)
    if count > _FEW_BESIDE:
        raise TypeError(
            f"No method serves an unknown with {size:,} free reals and a finite part of {count:.3g} states "
            "by itself. Pass one, such as MarkovChain(kernel) with a block_gibbs kernel."
        )
    why = (
        f"NUTS with the finite part summed out, since the unknown has {size:,} free reals and only "
        f"{count:,} finite states"
    )
    return Choice(Collapsed(), why)


def _with_counts(number: int, states: int) -> Choice:
    """For an unknown with some counts, beside so many finite states."""
    if states > _FEW_BESIDE:
        raise TypeError(
            f"No method serves an unknown with counts and a finite part of {states:.3g} states by itself. "
            "Pass one, such as MarkovChain(kernel) with a block_gibbs kernel."
        )
    why = f"slices of whole numbers, since the unknown has {number:,} count{'s' * (number != 1)}"
    if states == 1:
        return Choice(Rounded(), why)
    return Choice(Collapsed(Rounded()), f"{why}, with its {states:,} finite states summed out")
