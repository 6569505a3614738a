"""A smoothing kernel (Parzen window) on every row: the density that only remembers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import LOG_2PI, Kind, bucket, buffer, on_device
from ..distributions import AbstractDistribution, AbstractPartial, cell_kind, log_cells
from ..distributions._cells import Cells, normal_cell_terms
from ._base import AbstractExactModel

# how many kernels are looked at together
_BLOCK = 256
_LOWEST = -1e300


class Kernels(AbstractExactModel, AbstractDistribution, AbstractPartial):
    """p(x) = Σ_n w_n Π_d N(x_d; c_nd, v_nd): a Gaussian product kernel on each of many centres.

    Kernels are visited block by block with a running log-sum-exp, so that nothing of the size
    rows × centres is ever held.  A missing entry is left out of each product, which is exact.

    Attributes:
        weights: w, which sum to one; centres of weight zero pad the arrays.
        centres: c, shape (n, dim).
        variances: v, shape (n, dim).

    >>> model = Kernels.of(np.array([[0.0], [4.0]]), np.ones((2, 1)), np.ones(2))
    >>> round(float(model.log_prob(jnp.array([2.0]))), 6)
    -2.918939
    >>> model.complete_mean(jnp.array([jnp.nan])).tolist()
    [2.0]
    """

    weights: Array = buffer()
    centres: Array = buffer()
    variances: Array = buffer()

    @staticmethod
    def of(centres: np.ndarray, variances: np.ndarray, weights: np.ndarray) -> Kernels:
        """Kernels with normalised weights, padded to a size for which a program may be compiled."""
        size = bucket(len(centres))
        size = size if size <= _BLOCK else -(-size // _BLOCK) * _BLOCK
        pad = ((0, size - len(centres)), (0, 0))
        return Kernels(
            on_device(np.pad(weights / np.sum(weights), pad[0])),
            on_device(np.pad(centres, pad)),
            on_device(np.pad(variances, pad, constant_values=1.0)),
        )

    def blocks(self) -> tuple[Array, Array, Array]:
        """Log weights, centres and variances, block by block."""
        return self._in_blocks((jnp.log(self.weights), self.centres, self.variances))

    def _in_blocks(self, parts: tuple[Array, ...]) -> tuple:
        size = min(_BLOCK, len(self.centres))
        return jax.tree.map(lambda a: a.reshape((-1, size, *a.shape[1:])), parts)

    def _blocks(self) -> tuple[Array, Array, Array, Array]:
        """Coefficients of (x², x, observed), centres, log weights and numbers, block by block."""
        c, v = self.centres, self.variances
        constant = -0.5 * (c**2 / v + jnp.log(v) + LOG_2PI)
        coefficients = jnp.concatenate([-0.5 / v, c / v, constant], axis=1)
        return self._in_blocks((coefficients, c, jnp.log(self.weights), jnp.arange(len(c))))

    def log_prob(self, x: Array) -> Array:
        return self.log_prob_without(x, jnp.asarray(-1))

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN."""
        return self.log_prob(x)

    def log_prob_without(self, x: Array, centre: Array) -> Array:
        """log p(x) with the kernel of number `centre` left out, not normalised again."""
        features = _features(x)

        def visit(carry: tuple[Array, Array], block: tuple) -> tuple[tuple[Array, Array], None]:
            coefficients, _, log_weights, numbers = block
            logs = coefficients @ features + jnp.where(numbers == centre, -jnp.inf, log_weights)
            top = jnp.maximum(carry[0], jnp.max(logs))
            return (top, carry[1] * jnp.exp(carry[0] - top) + jnp.sum(jnp.exp(logs - top))), None

        start = (jnp.full((), _LOWEST, x.dtype), jnp.zeros((), x.dtype))
        top, total = jax.lax.scan(visit, start, self._blocks())[0]
        return top + jnp.log(total)

    def complete_mean(self, x: Array) -> Array:
        features = _features(x)

        def visit(carry: tuple[Array, Array, Array], block: tuple) -> tuple[tuple, None]:
            coefficients, centres, log_weights, _ = block
            logs = coefficients @ features + log_weights
            top = jnp.maximum(carry[0], jnp.max(logs))
            shrink, p = jnp.exp(carry[0] - top), jnp.exp(logs - top)
            return (top, carry[1] * shrink + jnp.sum(p), carry[2] * shrink + p @ centres), None

        start = (jnp.full((), _LOWEST, x.dtype), jnp.zeros((), x.dtype), jnp.zeros_like(x))
        _, total, mean = jax.lax.scan(visit, start, self._blocks())[0]
        return jnp.where(jnp.isnan(x), mean / total, x)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        features = _features(x)
        choose, draw = jax.random.split(key)

        def visit(carry: tuple[Array, Array], block: tuple) -> tuple[tuple[Array, Array], None]:
            coefficients, _, log_weights, numbers = block
            # the largest of logs with Gumbel noise is a draw from their softmax
            noise = jax.random.gumbel(jax.random.fold_in(choose, numbers[0]), numbers.shape, x.dtype)
            logs = coefficients @ features + log_weights + noise
            best = jnp.argmax(logs)
            better = logs[best] > carry[0]
            chosen = jnp.where(better, logs[best], carry[0]), jnp.where(better, numbers[best], carry[1])
            return chosen, None

        start = (jnp.full((), -jnp.inf, x.dtype), jnp.asarray(0))
        _, number = jax.lax.scan(visit, start, self._blocks())[0]
        return jnp.where(jnp.isnan(x), self._around(number, draw), x)

    def sample(self, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        below = jnp.cumsum(self.weights)
        u = jax.random.uniform(choose, dtype=below.dtype) * below[-1]
        return self._around(jnp.searchsorted(below, u, side="right"), draw)

    def _around(self, number: Array, key: Array) -> Array:
        noise = jax.random.normal(key, self.centres.shape[1:], self.centres.dtype)
        return self.centres[number] + jnp.sqrt(self.variances[number]) * noise


def _features(x: Array) -> Array:
    observed = ~jnp.isnan(x)
    filled = jnp.where(observed, x, 0)
    return jnp.concatenate([filled**2, filled, observed.astype(x.dtype)])


@cell_kind.register
def _(model: Kernels, cells: Cells) -> Kind:
    return Kind.EXACT


@log_cells.register
def _(
    model: Kernels, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    def visit(total: Array, kernel: tuple[Array, Array, Array]) -> tuple[Array, None]:
        log_weights, centres, variances = kernel
        scales = jnp.sqrt(variances)
        terms = jax.vmap(lambda c, s: normal_cell_terms(c, s, x, width, cells))(centres, scales)
        return jnp.logaddexp(total, jax.nn.logsumexp(log_weights + jnp.sum(terms, axis=1))), None

    total = jax.lax.scan(visit, jnp.full((), -jnp.inf, x.dtype), model.blocks())[0]
    return jnp.full(draws, total)
