"""Gaussian processes with inducing points and answers of any law, learned from batches of rows."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from .._core import (
    AbstractAlgorithm,
    AbstractBatches,
    AbstractSource,
    AbstractSums,
    Data,
    Info,
    sum_over_blocks,
)
from ..inference._induced import root_of_points
from ..models import AnsweredProcess, InducedValues
from ._free import finished, joined, split
from ._optimiser import Optimiser

# rows that are summed over at once
_BLOCK = 2048
# a gain per row that is one
_GAIN = 1e-4


class _Sums(NamedTuple):
    """What rows say: Σ E log p, and the precisions and precisions times means that they give to v."""

    fit: Array
    precision: Array
    told: Array


class _Seen(NamedTuple):
    """What a process is asked of rows: L_uu⁻¹ K_uf, and k(x, x)."""

    white: Array
    prior: Array


def _inverse(root: Array) -> Array:
    """L⁻¹: a product with it takes half of the time that as many solutions take."""
    return jax.scipy.linalg.solve_triangular(root, jnp.eye(len(root)), lower=True)


def _seen(values: InducedValues, rows: Array) -> _Seen:
    outer = root_of_points(values.kernel.gram(values.points))
    white = _inverse(outer) @ values.kernel.gram(values.points, rows)
    return _Seen(white, values.kernel.diagonal(rows))


def _row_sums(
    model: AnsweredProcess, seen: _Seen, y: Array, weight: Array, nodes: int, *, sites: bool = True
) -> _Sums:
    """The sums of rows and answers, weighted, with the law of the values that the model has.

    Sites are those of natural gradients: λ = −E (log p)″, where that is positive.
    """
    # rows without weight need an answer that can occur
    y = jnp.where(weight > 0, y[:, 0], y[jnp.argmax(weight), 0])
    white = seen.white
    half = _inverse(model.process.root[0]) @ white
    mean = model.process.mean[:, 0] @ white
    variance = seen.prior - jnp.sum(white**2, axis=0) + jnp.sum(half**2, axis=0)
    # a variance next to zero has rounding below it
    spread = jnp.sqrt(jnp.maximum(variance, 1e-12))
    places, shares = (jnp.asarray(part, y.dtype) for part in np.polynomial.hermite_e.hermegauss(nodes))
    shares = shares / jnp.sum(shares)

    def average(part: Any) -> Array:
        at = jax.vmap(lambda f, own: shares @ jax.vmap(lambda one: part(one, own))(f))
        return at(model.offset[0] + mean[:, None] + spread[:, None] * places[None, :], y)

    def log_prob(f: Array, y: Array) -> Array:
        return model.answer.log_prob(f[None], y[None])

    fit = weight @ average(log_prob)
    if not sites:
        return _Sums(fit, jnp.zeros(()), jnp.zeros(()))
    first = jax.grad(log_prob)
    precision = weight * jnp.maximum(-average(jax.grad(first)), 0.0)
    told = precision * mean + weight * average(first)
    return _Sums(fit, (white * precision[None, :]) @ white.T, white @ told)


def _with_law(model: AnsweredProcess, mean: Array, root: Array) -> AnsweredProcess:
    """The model with another law of the values v, N(mean, (root rootᵀ)⁻¹)."""
    return eqx.tree_at(lambda m: (m.process.mean, m.process.root), model, (mean[:, None], root[None]))


def _cost(mean: Array, root: Array) -> Array:
    """KL(q ‖ p) of the values at the points."""
    both = jnp.sum(_inverse(root) ** 2) + mean @ mean - len(root)
    return 0.5 * both + jnp.sum(jnp.log(jnp.diagonal(root)))


class _Law(NamedTuple):
    """The law of the values v at the points by its precision P, and P times its mean."""

    precision: Array
    told: Array

    @staticmethod
    def of(model: AnsweredProcess) -> _Law:
        root = model.process.root[0]
        precision = root @ root.T
        return _Law(precision, precision @ model.process.mean[:, 0])

    def towards(self, sums: _Sums, rate: Array) -> _Law:
        """A step of natural gradients: with rate one, all of the way to what the rows say."""
        target = _Law(jnp.eye(len(self.told)) + sums.precision, sums.told)
        return jax.tree.map(lambda a, b: a + rate * (b - a), self, target)

    def moments(self) -> tuple[Array, Array]:
        """Its mean, and the root of its precision."""
        root = jnp.linalg.cholesky(self.precision)
        return jax.scipy.linalg.cho_solve((root, True), self.told), root


class _State(NamedTuple):
    law: _Law
    free: Any
    fixed: Any
    optimiser: Any
    best: Array
    stale: Array


class InducedBatches(AbstractAlgorithm):
    """Raises a lower bound of log p(y | X) of a process with inducing points, a batch of rows at a time:

        log p(y | X) ≥ Σ E_q log p(y | f) − KL(q(u) ‖ p(u)),

    by natural gradients for the law q of the values u at the points, and an optimiser for the kernel, the
    points and what the family has to learn.  Also known as stochastic variational Gaussian process (SVGP).
    The data are pairs of rows and answers, (rows, 1); an iteration is an epoch.

    Attributes:
        optimiser: any Optax gradient transformation, or an `Optimiser` that describes one.
        batch_size: rows per step.
        rate: how far the law of the values goes to where a batch would have it.
        nodes: of the quadrature for E log p; two are exact for Gaussian noise.
        patience: epochs without a gain before it stops.
        learnable: a tree of booleans as made by `freeze`.

    References:
        Hensman, Fusi & Lawrence (2013); Salimbeni, Eleftheriadis & Hensman (2018).
    """

    needs: ClassVar[type[AbstractSource]] = AbstractBatches
    optimiser: optax.GradientTransformation | Optimiser = eqx.field(static=True)
    batch_size: int = eqx.field(static=True, default=1024)
    rate: float = 0.1
    nodes: int = eqx.field(static=True, default=20)
    patience: int = eqx.field(static=True, default=5)
    learnable: Any = None

    def init(self, model: AnsweredProcess, data: Data, *, key: Array) -> _State:
        free, fixed = split(model, self.learnable)
        never = jnp.asarray(jnp.inf)
        return _State(_Law.of(model), free, fixed, self.optimiser.init(free), never, jnp.asarray(0))

    def step(self, state: _State, data: Data, *, key: Array) -> tuple[_State, Info]:
        total = data.total

        def visit(carry: Any, x: Any, weight: Array, rows: Array, number: Array) -> Any:
            law, (mean, root), free, optimiser, sum_of_losses = carry
            # the kernel at all pairs is the dear part: once for the law and for the slopes of the loss
            seen, pull = jax.vjp(lambda own: _seen(joined(own, state.fixed).process, x[0]), free)
            model = _with_law(joined(free, state.fixed), mean, root)
            # weights have a sum of about one
            sums = _row_sums(model, seen, x[1], total * weight, self.nodes)
            law = law.towards(sums, jnp.asarray(self.rate))
            mean, root = law.moments()

            def loss(free: Any, seen: _Seen) -> Array:
                model = _with_law(joined(free, state.fixed), mean, root)
                return -_row_sums(model, seen, x[1], weight, self.nodes, sites=False).fit

            fit, (direct, along) = jax.value_and_grad(loss, argnums=(0, 1))(free, seen)
            value = fit + _cost(mean, root) / total
            slope = jax.tree.map(jnp.add, direct, pull(along)[0])
            # Optax mixes types, which a caller may have forbidden
            with jax.numpy_dtype_promotion("standard"):
                moves, optimiser = self.optimiser.update(slope, optimiser, free)
            free = eqx.apply_updates(free, moves)
            total_of_losses = sum_of_losses + value * rows.astype(value.dtype)
            return law, (mean, root), free, optimiser, total_of_losses

        start = (state.law, state.law.moments(), state.free, state.optimiser, jnp.zeros(()))
        (law, _, free, optimiser, losses), rows = data.epoch(visit, start, self.batch_size, key=key)
        value = losses / rows.astype(losses.dtype)
        better = value < state.best - _GAIN
        stale = jnp.where(better, 0, state.stale + 1)
        best = jnp.where(better, value, state.best)
        new = _State(law, free, state.fixed, optimiser, best, stale)
        return new, Info(stale >= self.patience, value)

    def model(self, state: _State) -> AnsweredProcess:
        return _finished(state.law, finished(state.free, state.fixed))


@eqx.filter_jit
def _finished(law: _Law, model: AnsweredProcess) -> AnsweredProcess:
    return _with_law(model, *law.moments())


class _Pass(NamedTuple):
    law: _Law
    model: Any
    sums: _Sums
    bound: Array
    rate: Array


class InducedValuesAlone(AbstractAlgorithm):
    """The best law of the values at inducing points, by natural gradients with all rows and nothing else.

    The objective is minus the lower bound of log p(y | X), of all rows.  With Gaussian noise it is there
    after one step; with other answers a step that would lower the bound is taken back and halved.

    Attributes:
        nodes: of the quadrature for E log p; two are exact for Gaussian noise.
        tol: a gain of this part of the bound is none.
    """

    needs: ClassVar[type[AbstractSource]] = AbstractSums
    nodes: int = eqx.field(static=True, default=20)
    tol: float = 1e-9

    def _at(self, law: _Law, model: Any, data: Any) -> tuple[_Sums, Array]:
        mean, root = law.moments()
        nodes = self.nodes

        def block(x: Any, weight: Array, new: AnsweredProcess) -> _Sums:
            return _row_sums(new, _seen(new.process, x[0]), x[1], weight, nodes)

        sums = sum_over_blocks(block, data, _with_law(model, mean, root), block=_BLOCK)
        return sums, sums.fit - _cost(mean, root)

    def init(self, model: AnsweredProcess, data: Any, *, key: Array) -> _Pass:
        law = _Law.of(model)
        return _Pass(law, model, *self._at(law, model, data), jnp.ones(()))

    def step(self, state: _Pass, data: Any, *, key: Array) -> tuple[_Pass, Info]:
        law = state.law.towards(state.sums, state.rate)
        sums, bound = self._at(law, state.model, data)
        gain = bound - state.bound
        size = jnp.maximum(1.0, jnp.abs(state.bound))
        better = gain >= -self.tol * size
        moved, kept = (law, sums, bound, state.rate), (state.law, state.sums, state.bound, state.rate / 2)
        law, sums, bound, rate = jax.tree.map(lambda a, b: jnp.where(better, a, b), moved, kept)
        done = (better & (gain < self.tol * size)) | (rate < 1e-6)
        return _Pass(law, state.model, sums, bound, rate), Info(done, -bound)

    def model(self, state: _Pass) -> AnsweredProcess:
        return _finished(state.law, state.model)
