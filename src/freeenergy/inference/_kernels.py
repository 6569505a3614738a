"""Markov kernels as objects: what carries numbers from step to step, what knows its exact probabilities.

A kernel is any `kernel(z, *, key) → z`; these say more of themselves.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core import count_states

Kernel = Callable[..., Any]
"""`kernel(state, *, key) → state`: a Markov kernel, a random step that leaves its target unchanged."""

# a matrix over more states is not made
_MOST_STATES = 4096


class AbstractKernel(eqx.Module):
    """A Markov kernel: a random step from one value of an unknown to the next."""

    @abc.abstractmethod
    def __call__(self, z: PyTree, *, key: Array) -> PyTree:
        """The next value."""


class AbstractFiniteKernel(AbstractKernel):
    """A kernel that knows the probability of every step where the unknown is finite."""

    @abc.abstractmethod
    def transition(self, space: PyTree) -> Float[Array, "states states"]:
        """p(next = j | now = i) at [i, j], with states in the order of `enumerate_states(space)`."""


class AbstractWalk(AbstractKernel):
    """A kernel that carries numbers from step to step, such as the energy where it is.

    `MarkovChain` carries them; as a plain kernel it begins anew with each step.
    """

    @abc.abstractmethod
    def begin(self, z: PyTree) -> Any:
        """The state of a walk at `z`."""

    @abc.abstractmethod
    def step(self, state: Any, *, key: Array) -> Any:
        """The next state."""

    @abc.abstractmethod
    def value(self, state: Any) -> PyTree:
        """Where the walk is."""

    @abc.abstractmethod
    def acceptance(self, state: Any) -> Float[Array, ""]:
        """The probability with which the last proposal was to be taken."""

    def __call__(self, z: PyTree, *, key: Array) -> PyTree:
        return self.value(self.step(self.begin(z), key=key))


def transition_matrix(kernel: AbstractFiniteKernel, space: PyTree) -> Float[np.ndarray, "states states"]:
    """The exact matrix of a sampler over a finite space: p(next = j | now = i) at [i, j].

    States are in the order of `enumerate_states(space)`.  What a sampler leaves unchanged, whether it is
    reversible and how fast it forgets are then linear algebra (`FiniteChain`), without a simulation.

    Args:
        kernel: Gibbs sampling, Metropolis–Hastings, and cycles and choices of such kernels.
        space: a tree of finite spaces.

    >>> from freeenergy.distributions import Categories
    >>> from freeenergy.inference import gibbs_sweep
    >>> kernel = gibbs_sweep(lambda z: jnp.log1p(z.astype(float)), Categories(2))
    >>> transition_matrix(kernel, Categories(2)).round(4).tolist()
    [[0.6667, 0.3333], [0.6667, 0.3333]]
    """
    if not isinstance(kernel, AbstractFiniteKernel):
        raise TypeError(
            "A transition matrix needs a kernel that knows its probabilities (AbstractFiniteKernel). "
            f"Got {type(kernel).__name__} instead."
        )
    if count_states(space) > _MOST_STATES:
        raise ValueError(
            f"A transition matrix is made over at most {_MOST_STATES:,} states. "
            f"Got {count_states(space):,} instead."
        )
    return np.asarray(_transition(kernel, space))


@eqx.filter_jit
def _transition(kernel: AbstractFiniteKernel, space: PyTree) -> Float[Array, "states states"]:
    return kernel.transition(space)


class Cycle(AbstractFiniteKernel):
    """Several kernels, one after the other (a systematic scan).

    What all of them leave unchanged the cycle does too; it is not reversible, even where they are.
    """

    kernels: tuple[Kernel, ...]

    def __call__(self, z: PyTree, *, key: Array) -> PyTree:
        for i, kernel in enumerate(self.kernels):
            z = kernel(z, key=jax.random.fold_in(key, i))
        return z

    def transition(self, space: PyTree) -> Float[Array, "states states"]:
        matrix = jnp.eye(count_states(space))
        for kernel in self.kernels:
            matrix = matrix @ _known(kernel).transition(space)
        return matrix


class OneOf(AbstractFiniteKernel):
    """One of several kernels, chosen at random for each step (a random scan).

    A choice of reversible kernels is reversible.

    Attributes:
        weights: how likely each is; equally by default.
    """

    kernels: tuple[Kernel, ...]
    weights: Float[Array, " kernels"] | None = None

    def _probabilities(self) -> Array:
        size = len(self.kernels)
        return jnp.full(size, 1 / size) if self.weights is None else self.weights / jnp.sum(self.weights)

    def __call__(self, z: PyTree, *, key: Array) -> PyTree:
        choose, move = jax.random.split(key)
        which = jax.random.categorical(choose, jnp.log(self._probabilities()))
        return jax.lax.switch(which, [lambda z, k, f=f: f(z, key=k) for f in self.kernels], z, move)

    def transition(self, space: PyTree) -> Float[Array, "states states"]:
        matrices = jnp.stack([_known(kernel).transition(space) for kernel in self.kernels])
        return jnp.tensordot(self._probabilities(), matrices, 1)


def _known(kernel: Kernel) -> AbstractFiniteKernel:
    if not isinstance(kernel, AbstractFiniteKernel):
        raise TypeError(
            "Every kernel of a cycle or choice must know its probabilities for a transition matrix. "
            f"Got {kernel!r} instead."
        )
    return kernel
