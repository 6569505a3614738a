"""A smoothing kernel on every row of a table with columns of different kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._core import LOG_2PI, bucket, buffer, on_device
from ..distributions import AbstractDistribution, AbstractPartial
from ._base import AbstractExactModel

# how many kernels are looked at together
_BLOCK = 256
_LOWEST = -1e300


class MixedKernels(AbstractExactModel, AbstractDistribution, AbstractPartial):
    """p(x) = Σ_n w_n Π_d k_d(x_d; c_nd): a product kernel on each of many centres, of any kind of column.

    Numbers have a normal kernel N(x; c, v_n).  Labels without an order have that of Aitchison and Aitken,

        k(x; c) = 1 − λ for x = c,   λ / (K − 1) for the K − 1 others,

    and labels with an order and counts a geometric one, k(x; c) ∝ λ^|x − c|, whose sum over what there is
    (0, …, K − 1 or all counts) is one: that of Wang and van Ryzin, cut at the ends.  A missing entry is
    left out of each product, which is exact.  A centre that misses a label or count has, in its place, the
    law of all centres that do not.

    Attributes:
        numbers: which columns are numbers.
        lines: which of the other columns have an order.
        log_weights: log w; −∞ pads the arrays.
        centres: c, shape (n, dim); −1 where a label or a count is missing.
        variances: v of the columns of numbers, shape (n, numbers).
        smoothing: λ of the other columns.
        levels: K of the other columns, infinite for counts.

    References:
        J. Aitchison and C. G. G. Aitken, Multivariate binary discrimination by the kernel method,
        Biometrika 63 (1976).  Q. Li and J. Racine, Nonparametric estimation of distributions with
        categorical and continuous data, Journal of Multivariate Analysis 86 (2003).

    >>> centres, weights, none = np.array([[0.0], [1.0]]), np.array([3.0, 1.0]), np.zeros((2, 0))
    >>> smoothing, levels = np.array([0.2]), np.array([3.0])
    >>> model = MixedKernels.of(centres, none, weights, smoothing, levels, (False,), (False,))
    >>> [round(float(jnp.exp(model.log_prob(jnp.array([k])))), 6) for k in (0.0, 1.0, 2.0)]
    [0.625, 0.275, 0.1]
    """

    numbers: tuple[bool, ...] = eqx.field(static=True)
    lines: tuple[bool, ...] = eqx.field(static=True)
    log_weights: Array = buffer()
    centres: Array = buffer()
    variances: Array = buffer()
    smoothing: Array = buffer()
    levels: Array = buffer()

    @staticmethod
    def of(
        centres: np.ndarray,
        variances: np.ndarray,
        weights: np.ndarray,
        smoothing: np.ndarray,
        levels: np.ndarray,
        numbers: tuple[bool, ...],
        lines: tuple[bool, ...],
    ) -> MixedKernels:
        """Kernels with normalised weights, padded to a size for which a program may be compiled.

        Of the centres a label or a count may be NaN: missing.
        """
        size = bucket(len(centres))
        size = size if size <= _BLOCK else -(-size // _BLOCK) * _BLOCK
        pad = ((0, size - len(centres)), (0, 0))
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.pad(weights / np.sum(weights), pad[0]))
        wide = np.pad(variances, pad, constant_values=1.0)
        known = np.where(np.isnan(centres), -1.0, centres)
        arrays = (log_weights, np.pad(known, pad), wide, smoothing, levels)
        return MixedKernels(numbers, lines, *map(on_device, arrays))

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.array(self.numbers, bool)
        return np.flatnonzero(numbers), np.flatnonzero(~numbers)

    def _missing(self, centres: Array) -> Array:
        """Which labels and counts of centres are missing."""
        return (centres < 0) & np.broadcast_to(~np.array(self.numbers, bool), centres.shape)

    def _joined(self, numbers: Array, others: Array) -> Array:
        return jnp.concatenate([numbers, others])[np.argsort(np.concatenate(self._places))]

    def _scan(self, visit: Callable[..., Any], start: Any) -> Any:
        """`visit(carry, (log weights, centres, variances, numbers))` of all kernels, block by block."""
        size = min(_BLOCK, len(self.centres))
        parts = self.log_weights, self.centres, self.variances, jnp.arange(len(self.centres))
        count = len(self.centres) // size
        blocks = jax.tree.map(lambda a: a.reshape((count, size, *a.shape[1:])), parts)
        return jax.lax.scan(lambda carry, block: (visit(carry, block), None), start, blocks)[0]

    def _log_kernel(self, x: Array, centre: Array) -> Array:
        """log k(x_d; c_d) of the columns that are no numbers."""
        ratio = self.smoothing
        label = jnp.where(x == centre, jnp.log1p(-ratio), jnp.log(ratio) - jnp.log(self.levels - 1))
        line = jnp.abs(x - centre) * jnp.log(ratio) - jnp.log(self._total(centre))
        return jnp.where(np.array(self.lines, bool), line, label)

    def _log_kernels(self, x: Array, centres: Array) -> Array:
        """The same for each of some centres."""
        return jax.vmap(lambda centre: self._log_kernel(x, centre))(centres)

    def _total(self, centre: Array) -> Array:
        """Σ_k λ^|k − c| over all there is."""
        ratio = self.smoothing
        return (1 - ratio ** (centre + 1) + ratio * (1 - self._beyond(centre))) / (1 - ratio)

    def _beyond(self, centre: Array) -> Array:
        """λ to the power of how many labels are above, zero for counts."""
        endless = jnp.isinf(self.levels)
        return jnp.where(endless, 0, self.smoothing ** jnp.where(endless, 1, self.levels - 1 - centre))

    def _marginals(self, x: Array) -> Array:
        """log of the law of each column that is no number, of the centres that do not miss it."""
        known = self._places[1]

        def visit(carry: tuple[Array, Array, Array], block: tuple) -> tuple[Array, Array, Array]:
            log_weights, centres, _, _ = block
            own = centres[:, known]
            missing = own < 0
            kernels = self._log_kernels(x, jnp.where(missing, 0, own))
            logs = jnp.where(missing, -jnp.inf, log_weights[:, None] + kernels)
            top = jax.lax.stop_gradient(jnp.maximum(carry[0], jnp.max(logs, axis=0)))
            total = carry[1] * jnp.exp(carry[0] - top) + jnp.sum(jnp.exp(logs - top[None]), axis=0)
            mass = jnp.where(missing, 0, jnp.exp(log_weights)[:, None])
            return top, total, carry[2] + jnp.sum(mass, axis=0)

        zero = jnp.zeros(len(known), x.dtype)
        top, total, mass = self._scan(visit, (zero + _LOWEST, zero, zero))
        return top + jnp.log(total) - jnp.log(mass)

    def _given(self, x: Array) -> Callable[[tuple], Array]:
        """A function that gives log w_n Π_d k_d(x_d; c_nd) of the kernels in a block."""
        numbers, known = self._places
        seen = ~jnp.isnan(x)
        filled = jnp.where(seen, x, 0)
        # a centre that misses an entry has the law of the column there
        marginals = self._marginals(filled[known])

        def logs(block: tuple) -> Array:
            log_weights, centres, variances, _ = block
            gap = filled[numbers][None] - centres[:, numbers]
            normal = -0.5 * (gap**2 / variances + jnp.log(variances) + LOG_2PI)
            own = centres[:, known]
            missing = own < 0
            other = self._log_kernels(filled[known], jnp.where(missing, 0, own))
            other = jnp.where(missing, marginals[None], other)
            normal = jnp.sum(jnp.where(seen[numbers][None], normal, 0), axis=1)
            return log_weights + normal + jnp.sum(jnp.where(seen[known][None], other, 0), axis=1)

        return logs

    def log_prob(self, x: Array) -> Array:
        return self.log_prob_without(x, jnp.asarray(-1), jnp.zeros((), x.dtype))

    def log_prob_complete(self, x: Array) -> Array:
        """`log_prob` for an event without NaN."""
        return self.log_prob(x)

    def log_prob_without(self, x: Array, centre: Array, left: Array) -> Array:
        """log p(x) where the kernel of number `centre` has the weight `left`, not normalised again."""
        logs_of = self._given(x)

        def visit(carry: tuple[Array, Array], block: tuple) -> tuple[Array, Array]:
            own = jnp.where(block[3] == centre, jnp.log(left), block[0])
            logs = logs_of((own, *block[1:]))
            top = jax.lax.stop_gradient(jnp.maximum(carry[0], jnp.max(logs)))
            return top, carry[1] * jnp.exp(carry[0] - top) + jnp.sum(jnp.exp(logs - top))

        top, total = self._scan(visit, (jnp.full((), _LOWEST, x.dtype), jnp.zeros((), x.dtype)))
        return top + jnp.log(total)

    def _mean(self, centre: Array) -> Array:
        """The mean of the kernel of each column that is no number, as if labels were."""
        ratio, tail = self.smoothing, self.smoothing ** (centre + 1)
        line = centre + tail * (centre + 1 - centre * ratio) / ((1 - ratio) ** 2 * self._total(centre))
        rest = self.levels * (self.levels - 1) / 2 - centre
        label = centre * (1 - ratio) + ratio * rest / (self.levels - 1)
        return jnp.where(np.array(self.lines, bool), line, label)

    def complete_mean(self, x: Array) -> Array:
        logs_of = self._given(x)
        numbers, known = self._places

        def visit(carry: tuple[Array, ...], block: tuple) -> tuple[Array, ...]:
            logs, own = logs_of(block), block[1][:, known]
            missing = own < 0
            top = jnp.maximum(carry[0], jnp.max(logs))
            shrink, p = jnp.exp(carry[0] - top), jnp.exp(logs - top)
            means = jnp.where(missing, 0, jax.vmap(self._mean)(jnp.where(missing, 0, own)))
            # what misses an entry says of it what all others say
            prior = jnp.where(missing, 0, jnp.exp(block[0])[:, None])
            return (
                top,
                carry[1] * shrink + jnp.sum(p),
                carry[2] * shrink + p @ block[1][:, numbers],
                carry[3] * shrink + p @ means,
                carry[4] * shrink + p @ missing.astype(x.dtype),
                carry[5] + jnp.sum(prior, axis=0),
                carry[6] + jnp.sum(prior * means, axis=0),
            )

        zero = jnp.zeros(len(known), x.dtype)
        start = (jnp.full((), _LOWEST, x.dtype), jnp.zeros((), x.dtype), jnp.zeros(len(numbers), x.dtype))
        found = self._scan(visit, (*start, zero, zero, zero, zero))
        _, total, normal, other, missing, mass, all_ = found
        means = self._joined(normal / total, (other + missing * all_ / mass) / total)
        return jnp.where(jnp.isnan(x), means, x)

    def _choose(self, logs_of: Callable[[tuple], Array], key: Array) -> Array:
        """For each column a centre: that of the kernel that is drawn, or of another if it misses there."""
        draw, again = jax.random.split(key)
        dim = self.centres.shape[1]

        def visit(carry: tuple[Array, ...], block: tuple) -> tuple[Array, ...]:
            log_weights, centres, _, numbers = block
            # the largest of logs with Gumbel noise is a draw from their softmax
            noise = jax.random.gumbel(jax.random.fold_in(draw, numbers[0]), numbers.shape, centres.dtype)
            logs = logs_of(block) + noise
            best = jnp.argmax(logs)
            noise = jax.random.gumbel(jax.random.fold_in(again, numbers[0]), centres.shape, centres.dtype)
            each = jnp.where(self._missing(centres), -jnp.inf, log_weights[:, None] + noise)
            top = jnp.argmax(each, axis=0)
            high = jnp.take_along_axis(each, top[None], axis=0)[0]
            one, several = logs[best] > carry[0], high > carry[2]
            return (
                jnp.where(one, logs[best], carry[0]),
                jnp.where(one, numbers[best], carry[1]),
                jnp.where(several, high, carry[2]),
                jnp.where(several, numbers[top], carry[3]),
            )

        low = jnp.full((), -jnp.inf, self.centres.dtype)
        start = (low, jnp.asarray(0), jnp.full(dim, low), jnp.zeros(dim, int))
        _, number, _, others = self._scan(visit, start)
        return jnp.where(self._missing(self.centres[number]), others, number)

    def complete_sample(self, x: Array, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        chosen = self._choose(self._given(x), choose)
        return jnp.where(jnp.isnan(x), self._around(chosen, draw), x)

    def sample(self, *, key: Array) -> Array:
        choose, draw = jax.random.split(key)
        return self._around(self._choose(lambda block: block[0], choose), draw)

    def _around(self, chosen: Array, key: Array) -> Array:
        """A draw from the kernel of the chosen centre of each column."""
        numbers, known = self._places
        normal_key, side_key, far_key = jax.random.split(key, 3)
        dtype = self.centres.dtype
        centre = self.centres[chosen, jnp.arange(self.centres.shape[1])]
        spread = jnp.sqrt(self.variances[chosen[numbers], jnp.arange(len(numbers))])
        normal = centre[numbers] + spread * jax.random.normal(normal_key, (len(numbers),), dtype)
        c, ratio = centre[known], self.smoothing
        side = jax.random.uniform(side_key, c.shape, dtype)
        far = jax.random.uniform(far_key, c.shape, dtype, minval=jnp.finfo(dtype).tiny)
        # another label, each with the same chance
        other = jnp.mod(c + 1 + jnp.floor(far * (self.levels - 1)), self.levels)
        label = jnp.where(side < 1 - ratio, c, other)
        # first the side, then how far, a geometric number that is cut where there is nothing more
        down = (1 - ratio ** (c + 1)) / (1 - ratio)
        lower = side * self._total(c) < down
        cut = 1 - jnp.where(lower, ratio ** (c + 1), self._beyond(c))
        steps = jnp.floor(jnp.log1p(-far * cut) / jnp.log(ratio))
        line = jnp.where(lower, c - steps, c + 1 + steps)
        line = jnp.clip(line, 0, self.levels - 1)
        return self._joined(normal, jnp.where(np.array(self.lines, bool), line, label))
