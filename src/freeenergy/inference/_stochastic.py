"""Langevin dynamics on the gradients of batches of rows, with and without friction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._core import from_free, start, to_free
from ._gibbs import run_chain
from ._methods import AbstractMethod, worth_of
from ._minimise import EnergyFunction
from ._posterior import DrawsPosterior
from ._walks import LOOKS_A_COORDINATE


class RowsEnergy(eqx.Module):
    """An energy that is a sum over rows,  e(z) = e_0(z) + Σ_i e_i(z),  of which a batch gives an estimate.

    Attributes:
        term: `term(z, row)` is e_i(z), such as −log p(row | z).
        rows: arrays with the rows along their first axis.
        prior: e_0(z), such as −log p(z); none by default.

    >>> energy = RowsEnergy(lambda z, x: (z - x) ** 2 / 2, jnp.array([0.0, 2.0, 4.0]))
    >>> float(energy(jnp.array(2.0))), float(energy.on_batch(jnp.array(2.0), jnp.array([0])))
    (4.0, 6.0)
    """

    term: Callable[[Any, Any], Float[Array, ""]]
    rows: PyTree
    prior: EnergyFunction | None = None

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(jax.tree.leaves(self.rows)[0])

    def of_prior(self, z: PyTree) -> Float[Array, ""]:
        """e_0(z)."""
        return jnp.zeros(()) if self.prior is None else self.prior(z)

    def __call__(self, z: PyTree) -> Float[Array, ""]:
        return self.of_prior(z) + jnp.sum(jax.vmap(lambda row: self.term(z, row))(self.rows))

    def on_batch(self, z: PyTree, batch: Int[Array, " batch"]) -> Float[Array, ""]:
        """e_0(z) + (n/b) Σ e_i(z) over the rows of the numbers `batch`: unbiased for even draws of them."""
        rows = jax.tree.map(lambda a: a[batch], self.rows)
        terms = jax.vmap(lambda row: self.term(z, row))(rows)
        return self.of_prior(z) + jnp.sum(terms) * (self.size / len(batch))


class StochasticLangevin(AbstractMethod):
    """Langevin dynamics on gradients of batches (SGLD), or Hamiltonian dynamics with friction (SGHMC).

    With the gradient g of a batch, in free coordinates v, and even normal numbers ξ,

        v′ = v − (ε/2) g + √(T ε − (ε²/4) V̂) ξ,
        r′ = (1 − α) r − ε g + √(2 α T ε − ε² V̂) ξ,   v′ = v + r′     with friction α,

    where V̂ is the variance of g that the batch itself shows, if `correct`, and else 0.  No step is refused,
    so that the law is that of the energy only as ε → 0: for a Gaussian of precision λ the first has the
    variance (ε + (ε²/4) (V − V̂)) / (1 − (1 − ελ/2)²).  At T = 0 without friction it is plain stochastic
    gradient descent with the rate ε/2, whose iterates are a snapshot ensemble.

    Attributes:
        step_size: ε.
        batch_size: rows of a batch, drawn evenly with replacement.
        friction: α in (0, 1]; None for dynamics without momentum.
        correct: whether the noise of the batch is taken out of the noise that is added.
        temperature: T.
        start: where all chains begin; by default each somewhere in the space.
        chains, steps, burn_in, thin: as in `MarkovChain`.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> mean = RowsEnergy(lambda z, x: (z - x) ** 2 / 2, jnp.linspace(-1.0, 1.0, 50))
    >>> found = infer(mean, Reals(()), StochasticLangevin(0.004), key=jax.random.key(0))
    >>> bool(jnp.abs(found.mean()) < 0.1)
    True

    References:
        Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics.
        Chen, Fox & Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo.
    """

    step_size: float | Array
    batch_size: int = eqx.field(static=True, default=32)
    friction: float | None = None
    correct: bool = eqx.field(static=True, default=False)
    temperature: float | Array = 1.0
    start: PyTree = None
    chains: int = eqx.field(static=True, default=4)
    steps: int = eqx.field(static=True, default=2000)
    burn_in: int = eqx.field(static=True, default=1000)
    thin: int = eqx.field(static=True, default=1)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DrawsPosterior:
        if not isinstance(energy, RowsEnergy):
            raise TypeError(
                "The energy of StochasticLangevin must be a sum over rows (RowsEnergy). "
                f"Got {type(energy).__name__} instead."
            )

        def chain(key: Array) -> tuple[Array, Array]:
            begin, run = jax.random.split(key)
            free = to_free(space, start(space, key=begin) if self.start is None else self.start)
            kept = run_chain(
                lambda state, *, key: self._step(energy, space, state, key),
                (free, jnp.zeros_like(free)),
                steps=self.steps,
                burn_in=self.burn_in,
                thin=self.thin,
                keep=lambda state: state[0],
                key=run,
            )
            return kept, energy(from_free(space, free)[0])

        free, begun = jax.vmap(chain)(jax.random.split(key, self.chains))
        draws = jax.vmap(jax.vmap(lambda v: from_free(space, v)[0]))(free)
        leaves = tuple(jax.tree.leaves(space))
        told = worth_of(free, begun)
        no_law = isinstance(self.temperature, float) and self.temperature == 0
        cost = self.chains * (self.burn_in + self.steps * self.thin) * self.batch_size
        if LOOKS_A_COORDINATE * free.shape[-1] * energy.size > cost or no_law:
            # to look at all rows so often would take longer than to sample
            told["improper"] = jnp.full((), -1)
        return DrawsPosterior(draws, None, spaces=leaves, diagnostics=told)

    def _step(
        self, energy: RowsEnergy, space: PyTree, state: tuple[Array, Array], key: Array
    ) -> tuple[Array, Array]:
        choose, draw = jax.random.split(key)
        batch = jax.random.randint(choose, (self.batch_size,), 0, energy.size)
        free, speed = state
        slope, variance = self._gradient(energy, space, free, batch)
        size = jnp.asarray(self.step_size, free.dtype)
        noise = jax.random.normal(draw, free.shape, free.dtype)
        if self.friction is None:
            # more noise than is wanted cannot be taken out
            spread = jnp.maximum(self.temperature * size - size**2 / 4 * variance, 0)
            return free - size / 2 * slope + jnp.sqrt(spread) * noise, speed
        spread = jnp.maximum(2 * self.friction * self.temperature * size - size**2 * variance, 0)
        speed = (1 - self.friction) * speed - size * slope + jnp.sqrt(spread) * noise
        return free + speed, speed

    def _gradient(
        self, energy: RowsEnergy, space: PyTree, free: Array, batch: Array
    ) -> tuple[Array, Array]:
        """The gradient of a batch in free coordinates, and the variance of its entries."""

        def whole(v: Array) -> Array:
            z, log_det = from_free(space, v)
            return energy.on_batch(z, batch) - log_det

        slope = jax.grad(whole)(free)
        if not self.correct:
            return slope, jnp.zeros_like(slope)

        def single(row: PyTree) -> Array:
            return jax.grad(lambda v: energy.term(from_free(space, v)[0], row))(free)

        slopes = jax.vmap(single)(jax.tree.map(lambda a: a[batch], energy.rows))
        return slope, energy.size**2 / self.batch_size * jnp.var(slopes, axis=0, ddof=1)
