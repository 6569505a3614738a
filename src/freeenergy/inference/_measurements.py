"""Observations as independent scalar measurements, and what one measurement says.

An observation y_t = C_t x_t + c_t + ε_t of several coordinates is first turned into independent scalar
measurements z_i = h_i · x_t + e_i, e_i ~ N(0, r_i), by `measure` (as many as coordinates) or `collapse` (no
more than states).  After that nothing is inverted but numbers, missing coordinates are measurements left
out, and R may be singular.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from .._core import LOG_2PI
from ._semidefinite import (
    dot,
    factor_semidefinite,
    outer,
    root_semidefinite,
    solve_semidefinite,
    solve_unit_lower,
    symmetric,
)


class LinearStep(NamedTuple):
    """What belongs to one time step; None stands for what is the same at all steps.

    Attributes:
        transition: A.
        offset: a, with the effect of controls.
        noise: Q.
        design: rows h_i.
        variance: r_i ≥ 0.
        value: z_i.
        observed: one where z_i was observed, else zero.
        constant: the part of log p(y_t | x_t) that the measurements leave out.
    """

    transition: Float[Array, "*time state state"] | None = None
    offset: Float[Array, "*time state"] | None = None
    noise: Float[Array, "*time state state"] | None = None
    design: Float[Array, "*time measurements state"] | None = None
    variance: Float[Array, "*time measurements"] | None = None
    value: Float[Array, "*time measurements"] | None = None
    observed: Float[Array, "*time measurements"] | None = None
    constant: Float[Array, "*time"] | None = None

    def filled(self, fixed: LinearStep) -> Any:
        """The step with what is the same at all steps, which is in `fixed`."""
        return LinearStep(*(f if own is None else own for own, f in zip(self, fixed, strict=True)))

    def measurement(self, i: Any) -> Any:
        """h_i, r_i, z_i and whether it was observed; of a step that is `filled`."""
        return tuple(part[i] for part in (self.design, self.variance, self.value, self.observed))  # pyright: ignore


def measure(
    C: Float[Array, "dim state"],
    c: Float[Array, " dim"],
    R: Float[Array, "dim dim"] | Float[Array, " dim"],
    y: Float[Array, " dim"],
) -> LinearStep:
    """The coordinates of y = C x + c + ε that are not NaN, as independent measurements.

    R = L D Lᵀ over what was observed gives z = L⁻¹(y − c), rows L⁻¹C and variances D, which may be zero.
    A vector for R is a diagonal.  Where several of D are zero, slopes of the evidence in R leave out how
    their errors would go together.

    Also known as the univariate treatment of multivariate series (Koopman and Durbin), or sequential
    processing of measurements.

    >>> step = measure(jnp.eye(2), jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 2.0]]), jnp.array([3.0, 4.0]))
    >>> step.value.tolist(), step.variance.tolist()
    ([3.0, 2.5], [2.0, 1.5])
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
    mixed = solve_unit_lower(lower, jnp.concatenate([design, residual[:, None]], axis=1))
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

    Also known as collapsing the observation vector (Jungbacker and Koopman).

    >>> three = measure(jnp.ones((3, 1)), jnp.zeros(1), jnp.ones(3), jnp.array([1.0, 2.0, 3.0]))
    >>> one = collapse(three)
    >>> [round(float(v), 6) for v in (one.design[0, 0], one.value[0])]
    [1.732051, 3.464102]
    """
    seen = step.observed > 0
    precision = jnp.where(seen, 1 / jnp.where(seen, step.variance, 1), 0)
    weighted = step.design * precision[:, None]
    information = weighted.T @ step.design
    root = root_semidefinite(symmetric(information))
    score = weighted.T @ step.value
    value = solve_semidefinite(root.T @ root, (root.T @ score)[:, None])[:, 0]
    # what no state explains, and the determinant of the noise
    left = dot(precision * step.value, step.value) - dot(value, value)
    spread = jnp.sum(jnp.where(seen, jnp.log(jnp.where(seen, step.variance, 1)), 0))
    ones = jnp.ones_like(value)
    return LinearStep(
        design=root.T,
        variance=ones,
        value=value,
        observed=ones,
        constant=step.constant - 0.5 * (left + spread),
    )


def rounding(h: Float[Array, " state"]) -> Float[Array, ""]:
    """What part of a variance along h counts as zero."""
    return jnp.asarray(16 * len(h) * jnp.finfo(h.dtype).eps, h.dtype)


def innovation(
    explained: Float[Array, ""], r: Float[Array, ""], o: Float[Array, ""], least: Float[Array, ""]
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The variance of a measurement, and whether it is zero: none of it is noise, and what the state
    explains of it is not more than `least`.  One where that is so, and where nothing is observed."""
    # not `maximum`, which has half the slope at zero
    explained = jnp.where(explained < 0, 0, explained)
    certain = (o > 0) & (r == 0) & (explained <= least)
    return jnp.where(certain, 1, (explained + r) * o + (1 - o)), certain


def resolution(
    h: Float[Array, " state"], z: Float[Array, ""], mean: Float[Array, " state"], size: Float[Array, ""]
) -> Float[Array, ""]:
    """The square of what counts as zero in z − h · mean, for states of the variance `size` along h."""
    return rounding(h) * size + (rounding(h) * (jnp.abs(z) + dot(jnp.abs(h), jnp.abs(mean)))) ** 2


def surprise(
    error: Float[Array, ""], variance: Float[Array, ""], certain: Bool[Array, ""], least: Float[Array, ""]
) -> Float[Array, ""]:
    """−2 log p of an error, without the 2π.

    What is certain has no density: it is −∞, the limit for small variances, if what was certain was
    observed, that is if the square of the error is not more than `least`, and else ∞.
    """
    limit = jnp.where(error * error <= least, -jnp.inf, jnp.inf)
    return jnp.where(certain, limit, jnp.log(variance) + error * error / variance)


def shrunk(
    covariance: Float[Array, "state state"],
    step: Float[Array, " state"],
    along: Float[Array, " state"],
    r: Float[Array, ""],
) -> Float[Array, "state state"]:
    """P − k (P h)ᵀ; what a measurement without noise makes certain becomes zero, not a rounding error."""
    new = covariance - outer(step, along)
    before, after = jnp.diagonal(covariance), jnp.diagonal(new)
    kept = after > 4 * jnp.finfo(after.dtype).eps * before
    # Joseph's form is r k kᵀ and a semidefinite matrix that is zero there, with its rows
    return jnp.where(kept[:, None] & kept[None, :], new, r * outer(step, step))
