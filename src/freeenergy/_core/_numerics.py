"""Numerics in log space and guarded linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

LOG_2PI = 1.8378770664093453

# linear maps are applied to numbers smaller by this power of two, so that what they sum does not overflow
# on the way; what they give is larger by it again, which changes no digit
ROOM = 2.0**32


def log_mean_exp(values: Array, axis: int = 0) -> Array:
    """log of the mean of exp(values) along `axis`."""
    return jax.nn.logsumexp(values, axis=axis) - jnp.log(values.shape[axis])


def log_probability(probability: Array) -> Array:
    """log p, which is −∞ with slope zero at p = 0.

    The slope there is infinite in p, but a probability that has come to zero as a function of finite
    numbers (a logit, an energy) does not move with them.

    >>> log_probability(jnp.array([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    some = probability > 0
    return jnp.where(some, jnp.log(jnp.where(some, probability, 1)), -jnp.inf)


def categorical_entropy(probabilities: Array, axis: int = -1) -> Array:
    """−Σ p log p with 0 log 0 = 0, in value and in slope (see `log_probability`)."""
    some = probabilities > 0
    logs = log_probability(jnp.where(some, probabilities, 1))
    return -jnp.sum(jnp.where(some, probabilities * logs, 0), axis=axis)


def log1p_square(z: Array) -> Array:
    """log(1 + z²), also where z² would overflow.

    >>> log1p_square(jnp.array([0.0, 1e200])).round(3).tolist()
    [0.0, 921.034]
    """
    far = jnp.abs(z) > 1
    size = jnp.abs(jnp.where(far, z, 1))
    return jnp.where(far, 2 * jnp.log(size), 0) + jnp.log1p(jnp.where(far, 1 / size, z) ** 2)


def log_gamma_ratio(a: Array, b: Array) -> Array:
    """log Γ(a + b) − log Γ(a) for a > 0 and b ≥ 0, where a difference of logarithms would lose all digits.

    For a from 8 on it is the difference of two Stirling series, with a and a + b on one denominator:

        (a − ½) log(1 + b/a) + b (log(a + b) − 1) + Σ_j c_j ((a + b)^{1−2j} − a^{1−2j}).

    >>> log_gamma_ratio(jnp.array(1e15), jnp.array(2.0)).round(9).item()  # log a (a + 1)
    69.07755279
    """
    far = a >= 8
    large = jnp.where(far, a, 8)
    x = large / (large + b)
    inverse = (1 / large) ** 2
    # Σ c_j a^{1−2j} (x^{2j−1} − 1), where x − 1 = −b / (a + b) is a factor of every term
    series, power = jnp.zeros_like(x), jnp.ones_like(x)
    geometric = jnp.ones_like(x)  # 1 + x + … + x^{2j−2}
    for coefficient in _STIRLING:
        series = series + coefficient * geometric * power
        geometric, power = 1 + x + x**2 * geometric, power * inverse
    stirling = (large - 0.5) * jnp.log1p(b / large) + b * (jnp.log(large + b) - 1)
    stirling = stirling - series * (b / (large + b)) / large
    near = jnp.where(far, 1, a)
    return jnp.where(far, stirling, gammaln(near + jnp.where(far, 0, b)) - gammaln(near))


# B_{2j} / (2j (2j − 1)), j = 1, 2, …: from a = 8 on, what is left out is below rounding
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def log_beta(a: Array, b: Array) -> Array:
    """log B(a, b) = log Γ(a) + log Γ(b) − log Γ(a + b), in value and in slopes of every order.

    (That of JAX is wrong in the seventh digit for b just above 8, and its curvature is wrong at a = b.)

    >>> round(float(jnp.exp(-log_beta(jnp.array(2.0), jnp.array(3.0)))), 6)
    12.0
    """
    swap = a > b
    small, large = jnp.where(swap, b, a), jnp.where(swap, a, b)
    return gammaln(small) - log_gamma_ratio(large, small)


def boltzmann(energies: Array, temperature: Array | float = 1.0, axis: int = -1) -> tuple[Array, Array]:
    """The finite distribution of least free energy, and that free energy.

        p_i ∝ exp(−e_i / T),   F = min_q Σ q e − T H(q) = −T log Σ exp(−e_i / T).

    At temperature zero the mass is shared evenly among the minima and F = min e.  If every energy
    is infinite (an impossible event) the mass is even and F infinite.

    >>> free, p = boltzmann(jnp.array([1.0, 2.0, 3.0]))
    >>> round(float(free), 6), [round(float(v), 4) for v in p]
    (0.592394, [0.6652, 0.2447, 0.09])
    >>> boltzmann(jnp.array([1.0, 0.0, 0.0]), 0.0)[1].tolist()
    [0.0, 0.5, 0.5]
    """
    if not isinstance(temperature, Array):
        branch = _boltzmann_warm if temperature > 0 else _boltzmann_cold
        return branch(energies, jnp.asarray(temperature, energies.dtype), axis)
    return jax.lax.cond(
        temperature > 0,
        lambda e, t: _boltzmann_warm(e, t, axis),
        lambda e, t: _boltzmann_cold(e, t, axis),
        energies,
        temperature.astype(energies.dtype),
    )


def _boltzmann_warm(energies: Array, temperature: Array, axis: int) -> tuple[Array, Array]:
    low = jax.lax.stop_gradient(jnp.min(energies, axis=axis, keepdims=True))
    gap = jnp.where(jnp.isposinf(low), 0, energies - jnp.where(jnp.isfinite(low), low, 0))
    # at temperature zero this branch is not chosen, but where both are run it must have a gradient
    temperature = jnp.where(temperature > 0, temperature, 1)
    # what is impossible has no mass at any temperature, and the slope of inf / T would be no number
    impossible = jnp.isposinf(gap)
    mass = jnp.where(impossible, 0, jnp.exp(-jnp.where(impossible, 0, gap) / temperature))
    total = jnp.sum(mass, axis=axis, keepdims=True)
    return jnp.squeeze(low - temperature * jnp.log(total), axis), mass / total


def _boltzmann_cold(energies: Array, temperature: Array, axis: int) -> tuple[Array, Array]:
    low = jnp.min(energies, axis=axis)
    ties = least(energies, axis).astype(energies.dtype)
    return low, ties / jnp.sum(ties, axis=axis, keepdims=True)


def least(energies: Array, axis: int = -1) -> Array:
    """Which entries are the least along an axis: several where they tie, never none.

    A compiler may compute what it compares twice and round otherwise, so that nothing equals the minimum;
    the place of a minimum is found in one pass.

    >>> least(jnp.array([1.0, 0.0, 0.0])).tolist()
    [False, True, True]
    """
    places = jax.lax.broadcasted_iota(jnp.int64, energies.shape, axis % energies.ndim)
    first = jnp.argmin(energies, axis=axis, keepdims=True)
    return (energies <= jnp.min(energies, axis=axis, keepdims=True)) | (places == first)


def cholesky(matrix: Array, max_jitter: float = 1e-6) -> tuple[Array, Array]:
    """Cholesky factor of one symmetric matrix, with the jitter that it took.

    Where the plain factorisation fails, multiples of the mean diagonal are added, growing
    tenfold from rounding size to `max_jitter`; if that fails too the factor is NaN.

    Returns:
        The lower factor and the jitter added to the diagonal (zero when none was needed).
    """
    scale = jnp.mean(jnp.diagonal(matrix))
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    first = 10 * jnp.finfo(matrix.dtype).eps

    def fails(jitter: Array) -> Array:
        factor = jnp.linalg.cholesky(matrix + jitter * scale * eye)
        return jnp.any(~jnp.isfinite(factor)) & (jitter < max_jitter)

    def grow(jitter: Array) -> Array:
        return jnp.minimum(jnp.maximum(10 * jitter, first), max_jitter)

    search = jax.lax.while_loop(fails, grow, jnp.zeros((), matrix.dtype))
    jitter = jax.lax.stop_gradient(search) * scale
    return jnp.linalg.cholesky(matrix + jitter * eye), jitter


def log_det_cholesky(factor: Array) -> Array:
    """log |A| from the Cholesky factor of A."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def symmetrise(matrix: Array) -> Array:
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2
