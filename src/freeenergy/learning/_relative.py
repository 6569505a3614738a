"""Quasi-Newton learning in the relative gradient, for independent components."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._core import AbstractAlgorithm, AbstractSource, AbstractSums, Info, on_device, sum_over_blocks
from ..bijections import GeneralAffine, Inverse
from ..distributions import AbstractLocationScale, Transformed

_MEMORY = 7
_HALVINGS = 12
# the least curvature that a pair of sources is given
_LEAST = 1e-2
_ROWS_AT_ONCE = 512


class _Look(NamedTuple):
    """What one pass over the rows tells about D and b.

    Attributes:
        loss: −mean log p.
        slope: E[ψ(s) (s, 1)ᵀ] − (I, 0), the gradient with respect to E in s ← s + E (s, 1).
        curvature: E[ψ_k′], or what stands for it.
        square: E[s_k²].
    """

    loss: Array
    slope: Array
    curvature: Array
    square: Array


class _State(NamedTuple):
    model: Transformed
    look: _Look
    steps: Array
    changes: Array
    inverse: Array


class RelativeNewton(AbstractAlgorithm):
    """Maximum likelihood of `independent_components`, by steps relative to where it is.

        D ← (I + E) D,   b ← (I + E) b + e

    The gradient in E is the natural gradient, E[ψ(s)sᵀ] − I with ψ = −(log p)′, which does not depend on
    how the sources are mixed.  Were they independent, the second derivative would fall apart into
    blocks of two numbers, E_ij and E_ji: these precondition L-BFGS, with a line search that needs a
    single pass over the rows where the first step is good.

    Attributes:
        tol: the largest entry of the gradient that counts as zero; a gain below 1e-4 of it counts as none.
    """

    needs: ClassVar[type[AbstractSource]] = AbstractSums
    tol: Array = eqx.field(converter=on_device, default=1e-5)

    def init(self, model: Transformed, data: AbstractSums, *, key: Array) -> _State:
        look = _look(model, data)
        empty = jnp.zeros((_MEMORY, *look.slope.shape), look.slope.dtype)
        return _State(model, look, empty, empty, jnp.zeros(_MEMORY, look.slope.dtype))

    def step(self, state: _State, data: AbstractSums, *, key: Array) -> tuple[_State, Info]:
        direction = _direction(state)
        down = jnp.vdot(direction, state.look.slope)
        static = eqx.filter(state.model, eqx.is_array, inverse=True)

        def attempt(carry: tuple) -> tuple:
            length = carry[0] / 2
            model = _moved(state.model, length * direction)
            look = _look(model, data)
            good = (look.loss <= state.look.loss + 1e-4 * length * down) & jnp.all(jnp.isfinite(look.slope))
            return length, eqx.filter(model, eqx.is_array), look, good

        def proceed(carry: tuple) -> Array:
            return ~carry[3] & (carry[0] > 0.5**_HALVINGS)

        two, no = jnp.full((), 2, state.look.loss.dtype), jnp.zeros((), bool)
        start = (two, eqx.filter(state.model, eqx.is_array), state.look, no)
        length, moved, look, good = jax.lax.while_loop(proceed, attempt, start)
        change = look.slope - state.look.slope
        product = jnp.vdot(length * direction, change)
        # a pair of bends the wrong way is not remembered
        inverse = jnp.where(product > 0, 1 / jnp.where(product > 0, product, 1), 0)
        new = _State(
            eqx.combine(moved, static),
            look,
            _pushed(state.steps, length * direction),
            _pushed(state.changes, change),
            _pushed(state.inverse, inverse),
        )
        # where no step is good the memory may be at fault: once more without it
        again = _State(state.model, state.look, state.steps, state.changes, jnp.zeros_like(state.inverse))
        kept = jax.tree.map(
            lambda a, b: jnp.where(good, a, b) if eqx.is_array(a) else a,
            new,
            again,
        )
        slope = jnp.max(jnp.abs(kept.look.slope))
        # a density with a kink has no slope of zero; there the gain tells
        stuck = ~good & jnp.all(state.inverse == 0)
        tol = self.tol.astype(slope.dtype)
        little = good & (state.look.loss - look.loss <= 1e-4 * tol)
        return kept, Info((slope <= tol) | stuck | little, kept.look.loss, {"gradient": slope})

    def model(self, state: _State) -> Any:
        return state.model


def _pushed(memory: Array, newest: Array) -> Array:
    return jnp.roll(memory, 1, axis=0).at[0].set(newest)


def _parts(model: Transformed) -> tuple[GeneralAffine, AbstractLocationScale]:
    """The layer s = D x + b, and the density of s."""
    layer, sources = model.bijection, model.base
    inner = layer.bijection if isinstance(layer, Inverse) else layer
    if (
        inner is layer
        or not isinstance(inner, GeneralAffine)
        or not isinstance(sources, AbstractLocationScale)
    ):
        raise TypeError(
            "RelativeNewton learns models of independent_components. "
            f"Got a flow from {type(sources).__name__} through {type(layer).__name__} instead."
        )
    return inner, sources


def _moved(model: Transformed, change: Array) -> Transformed:
    layer, _ = _parts(model)
    relative, shift = change[:, :-1], change[:, -1]
    matrix = layer.matrix + relative @ layer.matrix
    offset = layer.shift + relative @ layer.shift + shift
    return Transformed(model.base, Inverse(GeneralAffine(offset, matrix)))


def _look(model: Transformed, data: AbstractSums) -> _Look:
    layer, sources = _parts(model)
    total = data.total

    def block(
        x: Array, w: Array, layer: GeneralAffine, sources: AbstractLocationScale
    ) -> tuple[Array, ...]:
        # sources along the first axis, so that products run along contiguous rows
        each = jax.vmap(sources.standard_log_prob, in_axes=1, out_axes=1)
        s = layer.matrix @ x.T + layer.shift[:, None]
        z = (s - sources.loc[:, None]) / sources.scale[:, None]
        log_prob = jax.vmap(sources.standard_total, in_axes=1)(z)
        slope, bend = jax.jvp(jax.grad(lambda z: jnp.sum(each(z))), (z,), (jnp.ones_like(z),))
        psi = -slope / sources.scale[:, None]
        weighted = psi * w[None]
        slope = jnp.concatenate([weighted @ s.T, jnp.sum(weighted, axis=1)[:, None]], axis=1)
        # padding has a density too, but no weight
        return log_prob @ w, slope, -bend @ w / sources.scale**2, psi**2 @ w, s**2 @ w

    sums = sum_over_blocks(block, data, layer, sources, block=_ROWS_AT_ONCE)
    log_prob, slope, bend, squared, square = jax.tree.map(lambda a: a / total, sums)
    # for sources of the assumed density E[ψ′] = E[ψ²]; only the second knows of kinks.  This shapes the
    # steps, which must go down, not where they end
    curvature = jnp.maximum(bend, squared / 2)
    eye = jnp.eye(len(square), len(square) + 1, dtype=slope.dtype)
    loss = jnp.sum(jnp.log(sources.scale)) - log_prob - jnp.linalg.slogdet(layer.matrix)[1]
    return _Look(loss, slope - eye, curvature, square)


def _direction(state: _State) -> Array:
    """The two-loop recursion of L-BFGS around the block-diagonal preconditioner."""
    q = state.look.slope
    shares = []
    for step, change, inverse in zip(state.steps, state.changes, state.inverse):
        shares.append(inverse * jnp.vdot(step, q))
        q = q - shares[-1] * change
    q = _precondition(state.look, q)
    for i in reversed(range(_MEMORY)):
        back = state.inverse[i] * jnp.vdot(state.changes[i], q)
        q = q + (shares[i] - back) * state.steps[i]
    return -q


def _precondition(look: _Look, q: Array) -> Array:
    """Solves the blocks [[a_ij, 1], [1, a_ji]] with a_ij = E[ψ_i′] E[s_j²], kept positive."""
    # in the unit of each source
    least = 1e-12 / jnp.maximum(look.square, jnp.finfo(look.square.dtype).tiny)
    curvature = jnp.maximum(look.curvature, least)
    a = curvature[:, None] * look.square[None, :]
    least = 0.5 * (a + a.T) - jnp.sqrt(0.25 * (a - a.T) ** 2 + 1)
    a = a + jnp.maximum(_LEAST - least, 0)
    matrix = q[:, :-1]
    pairs = (a.T * matrix - matrix.T) / (a * a.T - 1)
    alone = jnp.diagonal(matrix) / (1 + curvature * look.square)
    eye = jnp.eye(len(alone), dtype=bool)
    relative = jnp.where(eye, jnp.diag(alone), pairs)
    return jnp.concatenate([relative, (q[:, -1] / curvature)[:, None]], axis=1)
