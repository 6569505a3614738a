"""Where an approximation of a posterior should begin: the best normal law on the way to a mode."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._core import LOG_2PI, Kind, to_free
from ..distributions import Full, Gaussian
from ._lbfgs import LBFGSState, begin_lbfgs
from ._methods import AbstractMethod, from_distribution
from ._minimise import AbstractSearch, EnergyFunction, minimise
from ._posterior import DistributionPosterior
from ._recognition import weighted_draws
from ._walks import FreeTarget, Pushforward


class PathState(NamedTuple):
    """L-BFGS on its way, what it knows of the curvature of each coordinate, and the best law so far.

    Attributes:
        search: where L-BFGS is.
        scales: the inverse curvature of each coordinate.
        mean, factor: of the best normal law, with covariance factor · factorᵀ.
        bound: its lower bound of log Z.
    """

    search: LBFGSState
    scales: Float[Array, " n"]
    mean: Float[Array, " n"]
    factor: Float[Array, "n n"]
    bound: Float[Array, ""]


class PathSearch(AbstractSearch):
    """L-BFGS that makes a normal law of each point and keeps the one of largest bound of log Z.

    Attributes:
        key: seeds the draws that bounds are made of.
        samples: how many draws.
        tol: the largest entry of the gradient that counts as zero.
        max_steps: the most steps to take.
    """

    key: Array
    samples: int = eqx.field(static=True, default=16)
    tol: float = 1e-6
    max_steps: int = eqx.field(static=True, default=200, kw_only=True)

    def init(self, energy: EnergyFunction, start: Float[Array, " n"]) -> PathState:
        ones = jnp.ones_like(start)
        never = -jnp.inf * jnp.ones((), start.dtype)
        return PathState(begin_lbfgs(start), ones, start, jnp.diag(ones), never)

    def step(self, energy: EnergyFunction, state: PathState) -> PathState:
        search = state.search.tell(*jax.value_and_grad(energy)(state.search.ask()))
        scales = _renewed(state.scales, search)
        covariance = _inverse_curvature(search, scales)
        factor = jnp.linalg.cholesky(covariance)
        mean = search.point - covariance @ search.gradient
        half = jax.random.normal(self.key, (self.samples // 2, len(mean)), mean.dtype)
        noise = jnp.concatenate([half, -half])
        log_q = -0.5 * jnp.sum(noise**2, axis=1) - jnp.sum(jnp.log(jnp.diagonal(factor)))
        log_q = log_q - 0.5 * len(mean) * LOG_2PI
        bound = jnp.mean(-jax.vmap(energy)(mean[None] + noise @ factor.T) - log_q)
        # (of a law that is no number, or no law, nothing is known)
        better = search.moved & (bound > state.bound)
        kept = (state.mean, state.factor, state.bound)
        best = [jnp.where(better, a, b) for a, b in zip((mean, factor, bound), kept, strict=True)]
        return PathState(search, scales, *best)

    def terminate(self, state: PathState) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        search = state.search
        steepest = jnp.where(jnp.isinf(search.value), jnp.inf, jnp.max(jnp.abs(search.gradient), initial=0))
        converged = steepest <= self.tol
        return converged | search.stuck | jnp.isnan(search.value), converged

    def result(
        self, energy: EnergyFunction, state: PathState
    ) -> tuple[tuple[Array, Array], Float[Array, ""]]:
        return (state.mean, state.factor), -state.bound


def _renewed(scales: Float[Array, " n"], search: LBFGSState) -> Float[Array, " n"]:
    """The inverse curvature of each coordinate after the newest step (Gilbert and Lemaréchal 1989)."""
    step, change = search.steps[0], search.changes[0]
    product = jnp.vdot(step, change)
    a = jnp.vdot(change, scales * change)
    c = jnp.vdot(step, step / scales)
    useful = search.moved & (search.curvatures[0] > 0) & (product > 1e-12 * jnp.vdot(change, change))
    b, c = jnp.where(useful, product, 1), jnp.where(useful, c, 1)
    inverse = a / (b * scales) + change**2 / b - a * step**2 / (b * c * scales**2)
    good = useful & jnp.all(inverse > 0) & jnp.all(jnp.isfinite(inverse))
    return jnp.where(good, 1 / jnp.where(good, inverse, 1), scales)


def _inverse_curvature(search: LBFGSState, scales: Float[Array, " n"]) -> Float[Array, "n n"]:
    """What L-BFGS knows of the inverse of the matrix of second derivatives, the oldest step first."""

    def add(matrix: Array, pair: tuple[Array, Array, Array]) -> tuple[Array, None]:
        step, change, curvature = pair
        left = matrix - curvature * jnp.outer(step, change @ matrix)
        new = left - curvature * jnp.outer(left @ change, step) + curvature * jnp.outer(step, step)
        return jnp.where(curvature > 0, new, matrix), None

    pairs = (search.steps, search.changes, search.curvatures)
    found = jax.lax.scan(add, jnp.diag(scales), pairs, reverse=True)[0]
    return (found + found.T) / 2


def best_on_path(
    energy: EnergyFunction,
    start: Float[Array, " n"],
    *,
    samples: int = 16,
    max_steps: int = 200,
    key: Array,
) -> tuple[Gaussian, Float[Array, ""]]:
    """The normal law of largest bound of log Z on the way of L-BFGS from `start`, and that bound.

    Where none is a law it is the standard normal about `start`, with the bound −∞.
    """
    found = minimise(energy, start, PathSearch(key, samples, max_steps=max_steps))
    mean, factor = found.point
    return Gaussian(mean, Full(factor @ factor.T)), -found.energy


class Pathfinder(AbstractMethod):
    """The best normal law on the way to a mode, in free coordinates (Zhang et al. 2022).

    L-BFGS goes down the energy; at each of its points what it knows of the curvature makes a normal law,
    and the one with the largest bound of log Z is kept.  It takes a few hundred looks at the energy and no
    second derivatives, and need not end at the mode, which may be far from the mass.  Matrices of all pairs
    of coordinates are held.

    Attributes:
        start: where to begin; by default at zero in free coordinates.
        samples: how many draws each bound is made of.
        max_steps: the most looks at the gradient.
        draws: how many draws answer questions.

    >>> from freeenergy.distributions import Reals
    >>> from freeenergy.inference import infer
    >>> found = infer(lambda z: jnp.sum((z - 1) ** 2) / 2, Reals((2,)), Pathfinder(), key=jax.random.key(0))
    >>> found.mean().round(1).tolist()
    [1.0, 1.0]
    """

    start: PyTree = None
    samples: int = eqx.field(static=True, default=16)
    max_steps: int = eqx.field(static=True, default=200)
    draws: int = eqx.field(static=True, default=4000)

    def __call__(self, energy: EnergyFunction, space: PyTree, *, key: Array) -> DistributionPosterior:
        target = FreeTarget(energy, space)
        look, draw = jax.random.split(key)
        begin = jnp.zeros(target.size) if self.start is None else to_free(space, self.start)
        q, _ = best_on_path(target, begin, samples=self.samples, max_steps=self.max_steps, key=look)
        free, log_weights = weighted_draws(target, q, samples=self.draws, key=draw)
        drawn = jax.vmap(target.value)(free), log_weights
        found = from_distribution(Pushforward(q, space), space, Kind.LOWER, drawn)
        told = found.diagnostics | {"start_energy": target(begin)}
        return eqx.tree_at(lambda p: p.diagnostics, found, told)
