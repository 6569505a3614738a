"""Chains with Gaussian states: Kalman filtering and smoothing as an algebra of beliefs.

    x_t = A_t x_{t−1} + a_t + w_t,  w_t ~ N(0, Q_t),        y_t = C_t x_t + c_t + ε_t,  ε_t ~ N(0, R_t).

An observation of several coordinates is first turned into independent scalar measurements
z_i = h_i · x_t + e_i, e_i ~ N(0, r_i), by `measure` (as many as coordinates) or `collapse` (no more
than states).  After that nothing is inverted but numbers, missing coordinates are measurements left
out, and R may be singular.  Matrices are small: products, factors and solutions are plain sums that
compile into the loop over time, instead of calls of a library at each step.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._core import LOG_2PI
from ._chain import AbstractBeliefs, AbstractParallelBeliefs, Filtered, Smoothed, _choose

# longer loops over rows are not written out: that would take long to compile
_UNROLLED = 2


class LinearStep(NamedTuple):
    """What belongs to one time step; None stands for what is the same at all steps.

    Attributes:
        transition: A, shape (state, state).
        offset: a, with the effect of controls.
        noise: Q, shape (state, state).
        design: rows h_i, shape (measurements, state).
        variance: r_i ≥ 0.
        value: z_i.
        observed: one where z_i was observed, else zero.
        constant: the part of log p(y_t | x_t) that the measurements leave out.
    """

    transition: Array | None = None
    offset: Array | None = None
    noise: Array | None = None
    design: Array | None = None
    variance: Array | None = None
    value: Array | None = None
    observed: Array | None = None
    constant: Array | None = None


class GaussianBelief(NamedTuple):
    """N(mean, covariance)."""

    mean: Array
    covariance: Array


class GaussianPair(NamedTuple):
    """The joint of x_{t−1} and x_t; `cross` is Cov(x_{t−1}, x_t)."""

    earlier: GaussianBelief
    later: GaussianBelief
    cross: Array


class GaussianKernel(NamedTuple):
    """A state given its neighbour: N(gain x + offset, covariance)."""

    gain: Array
    offset: Array
    covariance: Array


class GaussianElement(NamedTuple):
    """A stretch of the chain, as a function of an unknown u that it started from.

        p(x | u, y) = N(M u + m, P),      log p(y | u) = constant + sᵀu − ½ uᵀS u.

    With u the state before the stretch, stretches combine.

    Attributes:
        loading: M, shape (state, unknown).
        mean: m.
        covariance: P.
        score: s.
        information: S.
        constant: log p(y | u = 0).
    """

    loading: Array
    mean: Array
    covariance: Array
    score: Array
    information: Array
    constant: Array


def product(a: Array, b: Array) -> Array:
    """a b for small matrices, or a matrix and a vector."""
    # a sum fuses with what is around it, which a product of a matrix and a vector does not
    return a @ b if b.ndim == 2 else jnp.sum(a * b[None, :], axis=1)


def _small_product(a: Array, b: Array) -> Array:
    """a b for matrices that both change from step to step: under `vmap` a sum is faster."""
    size = a.shape[1]
    if not 0 < size <= 8:
        return a @ b
    return sum((a[:, k, None] * b[None, k, :] for k in range(1, size)), a[:, 0, None] * b[None, 0, :])


def _sandwich(a: Array, p: Array, multiply: Any = product) -> Array:
    """a p aᵀ, symmetric to the bit."""
    full = multiply(multiply(a, p), a.T)
    return (full + full.T) / 2


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b)


def _outer(a: Array, b: Array) -> Array:
    return a[:, None] * b[None, :]


def _repeat(body: Any, carry: Any, times: int) -> Any:
    """`body(carry, i)` for each i, written out if short."""
    if times <= _UNROLLED:
        for i in range(times):
            carry = body(carry, i)
        return carry
    return jax.lax.scan(lambda c, i: (body(c, i), None), carry, jnp.arange(times))[0]


def _pivots(diagonal: Array) -> Array:
    """What counts as zero while eliminating: rounding of the diagonal that was there at first."""
    return 16 * len(diagonal) * jnp.finfo(diagonal.dtype).eps * diagonal


def solve_semidefinite(matrix: Array, right: Array) -> Array:
    """X with `matrix` X = `right`, for a positive semidefinite matrix whose range holds `right`.

    Elimination without pivoting; rows that depend on those before them get zero.

    >>> solve_semidefinite(jnp.array([[2.0, 2.0], [2.0, 2.0]]), jnp.array([[4.0], [4.0]])).tolist()
    [[2.0], [0.0]]
    """
    size = len(matrix)
    least = _pivots(jnp.diagonal(matrix))
    rows = jnp.arange(size)

    def body(table: Array, j: Any) -> Array:
        pivot = table[j, j]
        good = pivot > least[j]
        row = jnp.where(good, table[j] / jnp.where(good, pivot, 1), 0)
        column = jnp.where(rows == j, 0, table[:, j])
        return jnp.where((rows == j)[:, None], row[None], table - _outer(column, row))

    return _repeat(body, jnp.concatenate([matrix, right], axis=1), size)[:, size:]


def factor_semidefinite(matrix: Array) -> tuple[Array, Array]:
    """L and d with L diag(d) Lᵀ = `matrix`, L unit lower triangular, d ≥ 0."""
    size = len(matrix)
    if size == 1:
        return jnp.ones_like(matrix), matrix[0]
    least = _pivots(jnp.diagonal(matrix))
    rows = jnp.arange(size)

    def body(carry: tuple[Array, Array, Array], j: Any) -> tuple[Array, Array, Array]:
        rest, lower, pivots = carry
        pivot = rest[j, j]
        good = pivot > least[j]
        safe = jnp.where(good, pivot, 1)
        # entries that no covariance could have are rounding errors, which have no slope
        most = jnp.sqrt(jnp.maximum(jnp.diagonal(rest), 0) / safe)
        ratio = rest[:, j] / safe
        ratio = ratio + jax.lax.stop_gradient(jnp.clip(ratio, -most, most) - ratio)
        column = jnp.where(rows == j, 1.0, jnp.where(good & (rows > j), ratio, 0))
        # what is zero but for rounding is zero, with its slope
        pivot = pivot - jax.lax.stop_gradient(jnp.where(pivot >= least[j], 0, pivot))
        here = rows == j
        lower = jnp.where(here[None, :], column[:, None], lower)
        return rest - pivot * _outer(column, column), lower, jnp.where(here, pivot, pivots)

    _, lower, pivots = _repeat(body, (matrix, jnp.zeros_like(matrix), jnp.zeros_like(least)), size)
    return lower, pivots


def root_semidefinite(matrix: Array) -> Array:
    """A lower triangular L with L Lᵀ = `matrix`."""
    lower, pivots = factor_semidefinite(matrix)
    return lower * _safe_sqrt(pivots)[None, :]


def _safe_sqrt(value: Array) -> Array:
    """√ with gradient zero at zero."""
    good = value > 0
    return jnp.where(good, jnp.sqrt(jnp.where(good, value, 1)), 0)


def _solve_unit_lower(lower: Array, right: Array) -> Array:
    """L⁻¹ `right` for unit lower triangular L."""

    def body(rest: Array, j: Any) -> Array:
        below = jnp.where(jnp.arange(len(lower)) > j, lower[:, j], 0)
        return rest - _outer(below, rest[j])

    return _repeat(body, right, len(lower))


def triangularise(matrix: Array) -> Array:
    """A square L with L Lᵀ = M Mᵀ for a `matrix` M with more columns than rows."""
    size = len(matrix)

    def body(carry: tuple[Array, Array], j: Any) -> tuple[Array, Array]:
        rest, lower = carry
        length = _safe_sqrt(_dot(rest[j], rest[j]))
        unit = rest[j] / jnp.where(length > 0, length, 1)
        column = jnp.sum(rest * unit[None, :], axis=1)
        lower = jnp.where((jnp.arange(size) == j)[None, :], column[:, None], lower)
        return rest - _outer(column, unit), lower

    # modified Gram–Schmidt: its triangular factor is as accurate as that of reflections
    return _repeat(body, (matrix, jnp.zeros((size, size), matrix.dtype)), size)[1]


def measure(C: Array, c: Array, R: Array, y: Array) -> LinearStep:
    """The coordinates of y = C x + c + ε that are not NaN, as independent measurements.

    R = L D Lᵀ over what was observed gives z = L⁻¹(y − c), rows L⁻¹C and variances D, which may be zero.
    A vector for R is a diagonal.  Where several of D are zero, slopes of the evidence in R leave out how
    their errors would go together.
    """
    seen = ~jnp.isnan(y)
    observed = seen.astype(C.dtype)
    residual = jnp.where(seen, y - c, 0)
    design = C * observed[:, None]
    constant = -0.5 * LOG_2PI * jnp.sum(observed)
    if R.ndim == 1:
        return LinearStep(design=design, variance=R, value=residual, observed=observed, constant=constant)
    both = seen[:, None] & seen[None, :]
    lower, variance = factor_semidefinite(jnp.where(both, R, jnp.diag(1 - observed)))
    mixed = _solve_unit_lower(lower, jnp.concatenate([design, residual[:, None]], axis=1))
    return LinearStep(
        design=mixed[:, :-1],
        variance=variance,
        value=mixed[:, -1],
        observed=observed,
        constant=constant,
    )


def collapse(step: Any) -> LinearStep:
    """No more measurements than states, with the same likelihood of x: the information form.

    J = Hᵀr⁻¹H = G Gᵀ and g = Hᵀr⁻¹z are all that the measurements say of x; they are those of the rows
    of Gᵀ with unit variance, so that every later inversion is in the space of the state.  All variances
    must be positive: of a zero the information is infinite, and all is NaN.
    """
    seen = step.observed > 0
    precision = jnp.where(seen, 1 / jnp.where(seen, step.variance, 1), 0)
    weighted = step.design * precision[:, None]
    information = weighted.T @ step.design
    root = root_semidefinite((information + information.T) / 2)
    score = weighted.T @ step.value
    value = solve_semidefinite(root.T @ root, (root.T @ score)[:, None])[:, 0]
    # what no state explains, and the determinant of the noise
    left = _dot(precision * step.value, step.value) - _dot(value, value)
    spread = jnp.sum(jnp.where(seen, jnp.log(jnp.where(seen, step.variance, 1)), 0))
    ones = jnp.ones_like(value)
    return LinearStep(
        design=root.T,
        variance=ones,
        value=value,
        observed=ones,
        constant=step.constant - 0.5 * (left + spread),
    )


class AbstractBlockBeliefs(AbstractParallelBeliefs):
    """Beliefs for which a stretch of the chain can be extended step by step, cheaper than combining."""

    @abc.abstractmethod
    def unit(self, belief: Any) -> Any:
        """The element of no steps; `belief` tells the size."""

    @abc.abstractmethod
    def advance(self, element: Any, step: Any) -> Any:
        """The element after a transition."""

    @abc.abstractmethod
    def absorb(self, element: Any, step: Any) -> Any:
        """The element after an observation."""

    @abc.abstractmethod
    def recede(self, element: Any, kernel: Any) -> Any:
        """An element that runs backward in time, after one more reverse kernel."""


class LinearGaussianBeliefs(AbstractBlockBeliefs):
    """Kalman's recursions on means and covariances.

    Attributes:
        fixed: what is the same at all steps; a step says the rest.

    >>> one = jnp.ones((1, 1))
    >>> chain = LinearGaussianBeliefs(LinearStep(one, jnp.zeros(1), one))
    >>> step = measure(one, jnp.zeros(1), one, jnp.array([1.0]))
    >>> belief, gain = chain.update(GaussianBelief(jnp.zeros(1), 2 * one), step)
    >>> round(float(belief.mean[0]), 6), round(float(belief.covariance[0, 0]), 6), round(float(gain), 6)
    (0.666667, 0.666667, -1.634911)
    """

    fixed: LinearStep

    def predict(self, belief: GaussianBelief, step: LinearStep) -> GaussianBelief:
        s = _filled(step, self.fixed)
        mean = product(s.transition, belief.mean) + s.offset
        return GaussianBelief(mean, _sandwich(s.transition, belief.covariance) + s.noise)

    def update(self, predicted: GaussianBelief, step: LinearStep) -> tuple[GaussianBelief, Array]:
        s = _filled(step, self.fixed)

        def body(carry: tuple[Array, Array, Array], i: Any) -> tuple[Array, Array, Array]:
            mean, covariance, gain = carry
            h, r, z, o = s.design[i], s.variance[i], s.value[i], s.observed[i]
            along = product(covariance, h) * o
            size = _dot(h * h, jnp.diagonal(predicted.covariance))
            variance, certain = _innovation(_dot(h, along), r, o, _rounding(h) * size)
            error = (z - _dot(h, mean)) * o
            step = jnp.where(certain, 0, along / variance)
            gain = gain - 0.5 * _surprise(error, variance, certain, _resolved(h, z, mean, size))
            return mean + step * error, _shrunk(covariance, step, along, r), gain

        carry = (predicted.mean, predicted.covariance, s.constant)
        mean, covariance, gain = _repeat(body, carry, len(s.value))
        return GaussianBelief(mean, covariance), gain

    def reverse(
        self, belief: GaussianBelief, predicted: GaussianBelief, step: LinearStep
    ) -> GaussianKernel:
        s = _filled(step, self.fixed)
        return _reverse(belief.mean, belief.covariance, predicted.mean, predicted.covariance, s)

    def back(self, smoothed: GaussianBelief, kernel: GaussianKernel) -> tuple[GaussianBelief, GaussianPair]:
        spread = _small_product(kernel.gain, smoothed.covariance)
        covariance = _small_product(spread, kernel.gain.T) + kernel.covariance
        mean = product(kernel.gain, smoothed.mean) + kernel.offset
        earlier = GaussianBelief(mean, (covariance + covariance.T) / 2)
        return earlier, GaussianPair(earlier, smoothed, spread)

    def forward(self, pair: GaussianPair) -> GaussianKernel:
        return forward_kernel(pair)

    def sample(self, belief: GaussianBelief, *, key: Array) -> Array:
        return _draw(belief.mean, root_semidefinite(belief.covariance), key)

    def sample_back(self, state: Array, kernel: GaussianKernel, *, key: Array) -> Array:
        mean = product(kernel.gain, state) + kernel.offset
        return _draw(mean, root_semidefinite(kernel.covariance), key)

    def unit(self, belief: GaussianBelief) -> GaussianElement:
        return _unit(belief.mean)

    def advance(self, element: GaussianElement, step: LinearStep) -> GaussianElement:
        return _advance(element, _filled(step, self.fixed))

    def absorb(self, element: GaussianElement, step: LinearStep) -> GaussianElement:
        return _absorb(element, _filled(step, self.fixed))

    def recede(self, element: GaussianElement, kernel: GaussianKernel) -> GaussianElement:
        return element._replace(
            loading=_small_product(kernel.gain, element.loading),
            mean=product(kernel.gain, element.mean) + kernel.offset,
            covariance=_sandwich(kernel.gain, element.covariance, _small_product) + kernel.covariance,
        )

    def element(self, step: LinearStep, observed: Array) -> GaussianElement:
        s = _filled(step, self.fixed)
        moved = _advance(_unit(s.offset), s)
        return jax.tree.map(lambda a, b: jnp.where(observed, a, b), _absorb(moved, s), moved)

    def certain(self, belief: GaussianBelief) -> GaussianElement:
        n = len(belief.mean)
        zero = jnp.zeros((n, n), belief.mean.dtype)
        return GaussianElement(zero, *belief, zero[0], zero, zero[0, 0])

    def from_kernel(self, kernel: GaussianKernel) -> GaussianElement:
        zero = jnp.zeros_like(kernel.gain)
        return GaussianElement(*kernel, zero[0], zero, zero[0, 0])

    def combine(self, first: GaussianElement, second: GaussianElement) -> GaussianElement:
        return _combine(first, second)

    def belief(self, element: GaussianElement) -> GaussianBelief:
        return GaussianBelief(element.mean, element.covariance)


def _filled(step: LinearStep, fixed: LinearStep) -> Any:
    return LinearStep(*(f if s is None else s for s, f in zip(step, fixed, strict=True)))


def _rounding(h: Array) -> Array:
    """What part of a variance along h counts as zero."""
    return jnp.asarray(16 * len(h) * jnp.finfo(h.dtype).eps, h.dtype)


def _innovation(explained: Array, r: Array, o: Array, least: Array) -> tuple[Array, Array]:
    """The variance of a measurement, and whether it is zero: none of it is noise, and what the state
    explains of it is not more than `least`.  One where that is so, and where nothing is observed."""
    # not `maximum`, which has half the slope at zero
    explained = jnp.where(explained < 0, 0, explained)
    certain = (o > 0) & (r == 0) & (explained <= least)
    return jnp.where(certain, 1, (explained + r) * o + (1 - o)), certain


def _resolved(h: Array, z: Array, mean: Array, size: Array) -> Array:
    """The square of what counts as zero in z − h · mean, for states of the variance `size` along h."""
    return _rounding(h) * size + (_rounding(h) * (jnp.abs(z) + _dot(jnp.abs(h), jnp.abs(mean)))) ** 2


def _surprise(error: Array, variance: Array, certain: Array, least: Array) -> Array:
    """−2 log p of an error, without the 2π.

    What is certain has no density: it is −∞, the limit for small variances, if what was certain was
    observed, that is if the square of the error is not more than `least`, and else ∞.
    """
    limit = jnp.where(error * error <= least, -jnp.inf, jnp.inf)
    return jnp.where(certain, limit, jnp.log(variance) + error * error / variance)


def _shrunk(covariance: Array, step: Array, along: Array, r: Array) -> Array:
    """P − k (P h)ᵀ; what a measurement without noise makes certain becomes zero, not a rounding error."""
    new = covariance - _outer(step, along)
    before, after = jnp.diagonal(covariance), jnp.diagonal(new)
    kept = after > 4 * jnp.finfo(after.dtype).eps * before
    # Joseph's form is r k kᵀ and a semidefinite matrix that is zero there, with its rows
    return jnp.where(kept[:, None] & kept[None, :], new, r * _outer(step, step))


def _draw(mean: Array, root: Array, key: Array) -> Array:
    return mean + product(root, jax.random.normal(key, mean.shape, mean.dtype))


def _reverse(mean: Array, covariance: Array, ahead: Array, spread: Array, s: Any) -> GaussianKernel:
    """p(x_{t−1} | x_t) for x_{t−1} ~ N(mean, covariance) with the prediction N(ahead, spread)."""
    gain = solve_semidefinite(spread, product(s.transition, covariance)).T
    # (I − JA) P (I − JA)ᵀ + J Q Jᵀ is a sum of squares; P − J A P is not once rounded
    left = jnp.eye(len(mean), dtype=mean.dtype) - product(gain, s.transition)
    rest = _sandwich(left, covariance, _small_product) + _sandwich(gain, s.noise, _small_product)
    return GaussianKernel(gain, mean - product(gain, ahead), rest)


def forward_kernel(pair: GaussianPair) -> GaussianKernel:
    """p(x_t | x_{t−1}, y) from the joint."""
    gain = solve_semidefinite(pair.earlier.covariance, pair.cross).T
    rest = pair.later.covariance - product(gain, pair.cross)
    return GaussianKernel(gain, pair.later.mean - product(gain, pair.earlier.mean), (rest + rest.T) / 2)


def _unit(like: Array) -> GaussianElement:
    n = len(like)
    zero = jnp.zeros((n, n), like.dtype)
    return GaussianElement(jnp.eye(n, dtype=like.dtype), zero[0], zero, zero[0], zero, zero[0, 0])


def _advance(e: GaussianElement, s: Any) -> GaussianElement:
    mean = product(s.transition, e.mean) + s.offset
    covariance = _sandwich(s.transition, e.covariance) + s.noise
    return e._replace(loading=product(s.transition, e.loading), mean=mean, covariance=covariance)


def _absorb(e: GaussianElement, s: Any) -> GaussianElement:
    def body(e: GaussianElement, i: Any) -> GaussianElement:
        h, r, z, o = s.design[i], s.variance[i], s.value[i], s.observed[i]
        along = product(e.covariance, h) * o
        # zero, and all then NaN, if nothing but the unknown were measured: no number says how certain it is
        variance = (_dot(h, along) + r) * o + (1 - o)
        error = (z - _dot(h, e.mean)) * o
        step = along / variance
        seen = product(e.loading.T, h) * o
        scaled = seen / variance
        return GaussianElement(
            e.loading - _outer(step, seen),
            e.mean + step * error,
            _shrunk(e.covariance, step, along, r),
            e.score + scaled * error,
            e.information + _outer(scaled, seen),
            e.constant - 0.5 * (jnp.log(variance) + error * error / variance),
        )

    return _repeat(body, e._replace(constant=e.constant + s.constant), len(s.value))


def _combine(first: GaussianElement, second: GaussianElement) -> GaussianElement:
    # with P = L Lᵀ of the first and S of the second, I + LᵀSL is at least one
    root = root_semidefinite(first.covariance)
    n = len(first.mean)
    eye = jnp.eye(n, dtype=first.mean.dtype)
    inner = eye + product(product(root.T, second.information), root)
    lower, pivots = factor_semidefinite((inner + inner.T) / 2)
    half = _solve_unit_lower(lower, root.T) / jnp.sqrt(pivots)[:, None]
    # the covariance of the state between both, given what the second saw
    between = product(half.T, half)
    shrink = eye - product(between, second.information)
    news = second.score - product(second.information, first.mean)
    middle = first.mean + product(between, news)
    seen = product(second.information, product(shrink, first.loading))
    constant = (
        first.constant
        + second.constant
        + _dot(second.score, first.mean)
        - 0.5 * _dot(first.mean, product(second.information, first.mean))
        + 0.5 * _dot(news, product(between, news))
        - 0.5 * jnp.sum(jnp.log(pivots))
    )
    information = first.information + product(first.loading.T, seen)
    return GaussianElement(
        product(second.loading, product(shrink, first.loading)),
        product(second.loading, middle) + second.mean,
        _sandwich(second.loading, between) + second.covariance,
        first.score + product(first.loading.T, product(shrink.T, news)),
        (information + information.T) / 2,
        constant,
    )


class RootBelief(NamedTuple):
    """N(mean, root rootᵀ)."""

    mean: Array
    root: Array


class SquareRootBeliefs(AbstractBeliefs):
    """Kalman's recursions on square roots of covariances, for ill-conditioned problems.

    P = S Sᵀ cannot lose its sign, and S has only the square root of the condition number of P.  But a root
    has no slope in a variance of zero: take that of the evidence with `LinearGaussianBeliefs`.
    """

    fixed: LinearStep

    def start(self, belief: GaussianBelief) -> RootBelief:
        """A belief with its root."""
        return RootBelief(belief.mean, root_semidefinite(belief.covariance))

    def moments(self, belief: RootBelief) -> GaussianBelief:
        """A belief with its covariance."""
        return GaussianBelief(belief.mean, product(belief.root, belief.root.T))

    def predict(self, belief: RootBelief, step: LinearStep) -> RootBelief:
        s = _filled(step, self.fixed)
        both = jnp.concatenate([product(s.transition, belief.root), root_semidefinite(s.noise)], axis=1)
        return RootBelief(product(s.transition, belief.mean) + s.offset, triangularise(both))

    def update(self, predicted: RootBelief, step: LinearStep) -> tuple[RootBelief, Array]:
        s = _filled(step, self.fixed)

        def body(carry: tuple[Array, Array, Array], i: Any) -> tuple[Array, Array, Array]:
            mean, root, gain = carry
            h, r, z, o = s.design[i], s.variance[i], s.value[i], s.observed[i]
            seen = product(root.T, h) * o
            size = _dot(h * h, jnp.sum(predicted.root**2, axis=1))
            # a root resolves what is smaller than rounding of a variance
            variance, certain = _innovation(_dot(seen, seen), r, o, _rounding(h) ** 2 * size)
            error = (z - _dot(h, mean)) * o
            along = jnp.where(certain, 0, product(root, seen))
            # Potter's update of the root
            share = 1 / (variance + _safe_sqrt(r * variance * o))
            gain = gain - 0.5 * _surprise(error, variance, certain, _resolved(h, z, mean, size))
            return mean + along * (error / variance), root - share * _outer(along, seen), gain

        carry = (predicted.mean, predicted.root, s.constant)
        mean, root, gain = _repeat(body, carry, len(s.value))
        return RootBelief(mean, root), gain

    def reverse(self, belief: RootBelief, predicted: RootBelief, step: LinearStep) -> GaussianKernel:
        """As of moments, with a root in place of the covariance."""
        s = _filled(step, self.fixed)
        across = product(product(s.transition, belief.root), belief.root.T)
        spread = product(predicted.root, predicted.root.T)
        gain = solve_semidefinite(spread, across).T
        left = jnp.eye(len(belief.mean), dtype=belief.mean.dtype) - product(gain, s.transition)
        parts = [product(left, belief.root), product(gain, root_semidefinite(s.noise))]
        root = triangularise(jnp.concatenate(parts, axis=1))
        return GaussianKernel(gain, belief.mean - product(gain, predicted.mean), root)

    def back(self, smoothed: RootBelief, kernel: GaussianKernel) -> tuple[RootBelief, GaussianPair]:
        along = product(kernel.gain, smoothed.root)
        root = triangularise(jnp.concatenate([along, kernel.covariance], axis=1))
        earlier = RootBelief(product(kernel.gain, smoothed.mean) + kernel.offset, root)
        cross = product(along, smoothed.root.T)
        return earlier, GaussianPair(self.moments(earlier), self.moments(smoothed), cross)

    def forward(self, pair: GaussianPair) -> GaussianKernel:
        return forward_kernel(pair)

    def sample(self, belief: RootBelief, *, key: Array) -> Array:
        return _draw(belief.mean, belief.root, key)

    def sample_back(self, state: Array, kernel: GaussianKernel, *, key: Array) -> Array:
        return _draw(product(kernel.gain, state) + kernel.offset, kernel.covariance, key)


class DiffuseBelief(NamedTuple):
    """x = m + B δ + e with e ~ N(0, P) and a flat prior for δ.

    Attributes:
        mean: m.
        covariance: P.
        directions: B, shape (state, unknown); a column is zero once its part of δ is known.
    """

    mean: Array
    covariance: Array
    directions: Array


class DiffuseKernel(NamedTuple):
    """A state given its neighbour: N(gain x + offset, covariance), and flat along `directions`."""

    gain: Array
    offset: Array
    covariance: Array
    directions: Array


class DiffuseBeliefs(AbstractBeliefs):
    """Kalman's recursions with an exact diffuse start: x_1 = m + B δ + e with a flat prior for δ.

    A measurement h · x + ε that depends on δ makes the part of δ along v = Bᵀh known, whatever its noise,
    and nothing is divided by the variance F_* = hᵀP h + r, which may be zero (the exact initial filter of
    Koopman and Durbin, with P_∞ = B Bᵀ held as a root).  A measurement that does not is Kalman's.

    The evidence is the limit of log p(y) + ½ k log κ for δ ~ N(0, κI), where k entries of δ are known.

    References:
        Koopman and Durbin (2000), Fast filtering and smoothing for multivariate state space models.
    """

    fixed: LinearStep

    def start(self, belief: GaussianBelief, directions: Array) -> DiffuseBelief:
        """The belief N(mean, covariance) plus the span of the columns of `directions`, B."""
        return DiffuseBelief(*belief, directions)

    def moments(self, belief: DiffuseBelief) -> GaussianBelief:
        """The belief as a Gaussian, with infinite variances where it is flat."""
        flat = jnp.any(belief.directions != 0, axis=1)
        far = jnp.where(flat, jnp.inf, jnp.zeros_like(belief.mean))
        # not `jnp.diag`, whose other entries would be inf × 0
        on = jnp.eye(len(flat), dtype=bool)
        return GaussianBelief(belief.mean, belief.covariance + jnp.where(on, far[:, None], 0))

    def pair(self, pair: GaussianPair) -> GaussianPair:
        """A pair of beliefs, as `back` returns, as Gaussians."""
        earlier, later = (self.moments(b) for b in (pair.earlier, pair.later))  # pyright: ignore
        return GaussianPair(earlier, later, pair.cross)

    def predict(self, belief: DiffuseBelief, step: LinearStep) -> DiffuseBelief:
        s = _filled(step, self.fixed)
        return DiffuseBelief(
            product(s.transition, belief.mean) + s.offset,
            _sandwich(s.transition, belief.covariance) + s.noise,
            product(s.transition, belief.directions),
        )

    def update(self, predicted: DiffuseBelief, step: LinearStep) -> tuple[DiffuseBelief, Array]:
        s = _filled(step, self.fixed)

        def body(carry: tuple[DiffuseBelief, Array], i: Any) -> tuple[DiffuseBelief, Array]:
            belief, gain = carry
            h, r, z, o = s.design[i], s.variance[i], s.value[i], s.observed[i]
            size = _dot(h * h, jnp.diagonal(predicted.covariance))
            along, covariance, directions, surprise = _diffuse_measurement(belief, h, r, o, size)
            error = (z - _dot(h, belief.mean)) * o
            new = DiffuseBelief(belief.mean + along * error, covariance, directions)
            return new, gain - 0.5 * surprise(error, _resolved(h, z, belief.mean, size))

        return _repeat(body, (predicted, s.constant), len(s.value))

    def reverse(self, belief: DiffuseBelief, predicted: DiffuseBelief, step: LinearStep) -> DiffuseKernel:
        """x_t = A x_{t−1} + a + w as measurements of x_{t−1}, one entry after another."""
        s = _filled(step, self.fixed)
        n = len(belief.mean)
        lower, variance = factor_semidefinite(s.noise)
        both = jnp.concatenate([s.transition, jnp.eye(n, dtype=s.noise.dtype), s.offset[:, None]], axis=1)
        mixed = _solve_unit_lower(lower, both)
        seen = jnp.ones((), s.noise.dtype)

        def body(carry: tuple[DiffuseBelief, Array], i: Any) -> tuple[DiffuseBelief, Array]:
            # the mean is `gain` x_t + `rest.mean`
            rest, gain = carry
            h, value, shift = mixed[i, :n], mixed[i, n:-1], mixed[i, -1]
            size = _dot(h * h, jnp.diagonal(belief.covariance))
            along, covariance, directions, _ = _diffuse_measurement(rest, h, variance[i], seen, size)
            mean = rest.mean - along * (shift + _dot(h, rest.mean))
            gain = gain + _outer(along, value - jnp.sum(h[:, None] * gain, axis=0))
            return DiffuseBelief(mean, covariance, directions), gain

        rest, gain = _repeat(body, (belief, jnp.zeros_like(s.noise)), n)
        return DiffuseKernel(gain, *rest)

    def back(self, smoothed: DiffuseBelief, kernel: DiffuseKernel) -> tuple[DiffuseBelief, Any]:
        gain, offset, rest, directions = kernel
        spread = product(gain, smoothed.covariance)
        covariance = product(spread, gain.T) + rest
        earlier = DiffuseBelief(
            product(gain, smoothed.mean) + offset,
            (covariance + covariance.T) / 2,
            product(gain, smoothed.directions) + directions,
        )
        return earlier, GaussianPair(earlier, smoothed, spread)  # pyright: ignore[reportArgumentType]

    def forward(self, pair: GaussianPair) -> GaussianKernel:
        return forward_kernel(self.pair(pair))

    def sample(self, belief: DiffuseBelief, *, key: Array) -> Array:
        """A draw; NaN where the belief is flat, which no draw can be."""
        drawn = _draw(belief.mean, root_semidefinite(belief.covariance), key)
        return jnp.where(jnp.any(belief.directions != 0, axis=1), jnp.nan, drawn)

    def sample_back(self, state: Array, kernel: DiffuseKernel, *, key: Array) -> Array:
        mean = product(kernel.gain, state) + kernel.offset
        return self.sample(DiffuseBelief(mean, kernel.covariance, kernel.directions), key=key)


# a measurement depends on what is unknown if it does by more than this share of what it could
_DEPENDS = 1e-10


def _diffuse_measurement(belief: DiffuseBelief, h: Array, r: Array, o: Array, size: Array) -> Any:
    """What a measurement h · x + N(0, r) does to a belief: gain, covariance, directions, and a function
    from its error to −2 log p of it without the 2π; nothing unless `o` is one.  `size` is the variance
    that a state had along h."""
    B = belief.directions
    across = product(belief.covariance, h) * o
    ordinary, certain = _innovation(_dot(h, across), r, o, _rounding(h) * size)
    v = jnp.sum(B * h[:, None], axis=0) * o
    most = jnp.max(jnp.abs(h)) * jnp.max(jnp.abs(B))
    depends = jnp.max(jnp.abs(v)) > _DEPENDS * most
    infinite = jnp.where(depends, _dot(v, v), 1)
    variance = jnp.where(depends, 1, ordinary)
    # known now: the part of δ along v; a reflection puts it into one column, which is then zero
    step = jnp.where(depends, product(B, v) / infinite, jnp.where(certain, 0, across / variance))
    place = jnp.argmax(jnp.abs(v))
    here = (jnp.arange(len(v)) == place).astype(v.dtype)
    mirror = v + here * jnp.where(_dot(here, v) < 0, -1, 1) * jnp.sqrt(infinite)
    turned = B - _outer(product(B, mirror), mirror) * (2 / jnp.where(depends, _dot(mirror, mirror), 1))
    directions = jnp.where(depends, turned * (1 - here)[None, :], B)
    left = jnp.eye(len(h), dtype=h.dtype) - _outer(step, h)
    learned = _sandwich(left, belief.covariance, _small_product) + r * _outer(step, step)
    covariance = jnp.where(depends, learned, _shrunk(belief.covariance, step, across, r))

    def surprise(error: Array, least: Array) -> Array:
        return jnp.where(depends, jnp.log(infinite), _surprise(error, variance, certain, least))

    return step, covariance, directions, surprise


def state_disturbance(pair: GaussianPair, A: Array, a: Array) -> GaussianBelief:
    """w_t = x_t − A x_{t−1} − a given all observations."""
    earlier, later, cross = pair
    across = product(A, cross)
    spread = later.covariance + _sandwich(A, earlier.covariance) - across - across.T
    return GaussianBelief(later.mean - product(A, earlier.mean) - a, spread)


def observation_disturbance(smoothed: GaussianBelief, C: Array, c: Array, y: Array) -> GaussianBelief:
    """ε_t = y_t − C x_t − c given all observations; NaN where y_t was not observed."""
    return GaussianBelief(y - product(C, smoothed.mean) - c, _sandwich(C, smoothed.covariance))


def _split(tree: Any, blocks: int) -> Any:
    """Blocks side by side: (time, …) → (time in block, blocks, …)."""
    return jax.tree.map(
        lambda a: a.reshape(blocks, a.shape[0] // blocks, *a.shape[1:]).swapaxes(0, 1), tree
    )


def _join(tree: Any) -> Any:
    return jax.tree.map(lambda a: a.swapaxes(0, 1).reshape(-1, *a.shape[2:]), tree)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda a: a[0], tree)


def _rest(tree: Any) -> Any:
    return jax.tree.map(lambda a: a[1:], tree)


def _fold_blocks(beliefs: AbstractBlockBeliefs, initial: Any, parts: Any) -> Any:
    """The element of each block; the first one starts from `initial`."""

    def begin(first: Array, step: Any) -> Any:
        moved = beliefs.advance(beliefs.unit(initial), step)
        return beliefs.absorb(_choose(first, beliefs.certain(initial), moved), step)

    def body(elements: Any, step: Any) -> tuple[Any, None]:
        return jax.vmap(lambda e, s: beliefs.absorb(beliefs.advance(e, s), s))(elements, step), None

    opening = _first(parts)
    start = jax.vmap(begin)(jnp.arange(len(jax.tree.leaves(opening)[0])) == 0, opening)
    return jax.lax.scan(body, start, _rest(parts))[0]


def blocked_evidence(beliefs: AbstractBlockBeliefs, initial: Any, steps: Any, *, blocks: int) -> Array:
    """log p(y) with the time axis cut into `blocks` that are worked on side by side.

    `blocks` must divide the number of steps.
    """
    elements = _fold_blocks(beliefs, initial, _split(steps, blocks))
    whole = jax.lax.scan(lambda e, f: (beliefs.combine(e, f), None), _first(elements), _rest(elements))[0]
    return whole.constant


def blocked_filter(beliefs: AbstractBlockBeliefs, initial: Any, steps: Any, *, blocks: int) -> Filtered:
    """`filter` with the time axis cut into `blocks` that are worked on side by side; equal to rounding.

    Each block is first summed up as a function of the state before it; then the blocks are joined one
    after another, and filtered at once.  `blocks` must divide the number of steps.
    """
    return _join(_filter_blocks(beliefs, initial, _split(steps, blocks)))


def _filter_blocks(beliefs: AbstractBlockBeliefs, initial: Any, parts: Any) -> Filtered:
    length, blocks = jax.tree.leaves(parts)[0].shape[:2]
    elements = _fold_blocks(beliefs, initial, parts)

    def join(e: Any, f: Any) -> tuple[Any, Any]:
        return beliefs.combine(e, f), beliefs.belief(e)

    ends = jax.lax.scan(join, _first(elements), _rest(elements))[1]
    before = jax.tree.map(lambda i, e: jnp.concatenate([i[None], e]), initial, ends)
    starts = jnp.zeros((length, blocks), bool).at[0, 0].set(True)

    def one(belief: Any, step: Any, first: Array) -> Filtered:
        predicted = _choose(first, initial, beliefs.predict(belief, step))
        return Filtered(predicted, *beliefs.update(predicted, step))

    def body(belief: Any, at: Any) -> tuple[Any, Filtered]:
        new = jax.vmap(one)(belief, *at)
        return new.filtered, new

    return jax.lax.scan(body, before, (parts, starts))[1]


def blocked_smooth(
    beliefs: AbstractBlockBeliefs, initial: Any, steps: Any, *, blocks: int
) -> tuple[Filtered, Smoothed]:
    """`filter` and `smooth` with the time axis cut into `blocks` that are worked on side by side."""
    parts = _split(steps, blocks)
    filtered = _filter_blocks(beliefs, initial, parts)
    end = jax.tree.map(lambda a: a[-1, -1], filtered.filtered)
    # the last step of all has none after it
    stays = jnp.zeros(jax.tree.leaves(parts)[0].shape[:2], bool).at[-1, -1].set(True)

    def across(tree: Any) -> Any:
        """For each block, what the next one starts with; the last block has its own."""
        return jax.tree.map(lambda a: jnp.concatenate([a[0, 1:], a[0, -1:]]), tree)

    def one_kernel(element: Any, after: Any, step_after: Any, belief: Any, stay: Array) -> tuple[Any, Any]:
        kernel = beliefs.reverse(belief, after, step_after)
        return _choose(stay, beliefs.certain(belief), beliefs.recede(element, kernel)), kernel

    def fold(carry: Any, at: Any) -> tuple[Any, Any]:
        belief, predicted, step, stay = at
        elements, after, step_after = carry
        elements, kernels = jax.vmap(one_kernel)(elements, after, step_after, belief, stay)
        return (elements, predicted, step), kernels

    unit = jax.vmap(beliefs.unit)(_first(filtered.filtered))
    carry = (unit, across(filtered.predicted), across(parts))
    whole = (filtered.filtered, filtered.predicted, parts, stays)
    (elements, *_), kernels = jax.lax.scan(fold, carry, whole, reverse=True)

    def join(belief: Any, element: Any) -> tuple[Any, Any]:
        return beliefs.belief(beliefs.combine(beliefs.certain(belief), element)), belief

    # for each block, the smoothed belief at the first step after it; the last block starts at its end
    after = jax.lax.scan(join, end, elements, reverse=True)[1]

    def one(belief: Any, kernel: Any, stay: Array) -> tuple[Any, Any]:
        earlier, pair = beliefs.back(belief, kernel)
        return _choose(stay, belief, earlier), pair

    def body(belief: Any, at: Any) -> tuple[Any, Any]:
        new, pair = jax.vmap(one)(belief, *at)
        return new, (new, pair)

    marginals, pairs = _join(jax.lax.scan(body, after, (kernels, stays), reverse=True)[1])
    return _join(filtered), Smoothed(marginals, jax.tree.map(lambda a: a[:-1], pairs))
