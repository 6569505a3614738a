"""The mass of cells: what a density gives to values that were rounded.

A cell is {x ≤ y < x + w} in some coordinates, with the density in the others.  A column of whole numbers
has w = 1, a column rounded to tenths w = 0.1.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammainc, gammaincc, gammaln, log_ndtr, ndtr, ndtri

from .._core import LOG_2PI, Kind, cholesky
from ._base import AbstractFactorised
from ._composite import Product
from ._continuous import Exponential, Gamma
from ._gaussian import Gaussian, observed_block
from ._student import MultivariateT

# intervals so narrow that the density is a parabola in them
_NARROW = 1e-4
# from here on the normal distribution is drawn as an exponential, with weights that make up for it
_TAIL = -5.0
# below this the difference of two distribution functions has lost its digits
_CANCELLED = 1e-8
# tanh–sinh on [0, 1], dense at both ends: points, their distance from 1, logarithms of their weights
_STEPS = np.linspace(-3.0, 3.0, 27)
_SINH = 0.5 * np.pi * np.sinh(_STEPS)
_ENDS, _ENDS_LEFT = 1 / (1 + np.exp(-2 * _SINH)), 1 / (1 + np.exp(2 * _SINH))
_LOG_ENDS = np.log(np.pi * (_STEPS[1] - _STEPS[0]) * np.cosh(_STEPS) * _ENDS * _ENDS_LEFT)
# the standard normal has most of its mass so near to its largest value, and nothing beyond
_BULK, _REACH = 3.0, 10.0
# Gauss–Legendre on [0, 1]
_NODES, _NODE_WEIGHTS = (0.5 * (v + shift) for v, shift in zip(np.polynomial.legendre.leggauss(32), (1, 0)))

Cells = tuple[bool, ...]


@functools.singledispatch
def cell_kind(density: Any, cells: Cells) -> Kind | None:
    """How well `log_cells` knows the mass of cells in the coordinates `cells`.

    Returns:
        `Kind.EXACT`: one draw gives the exact mass.  `Kind.LOWER`: the mean of many is unbiased, so that
        its logarithm is a lower bound on average.  None: `log_cells` cannot say.

    >>> from freeenergy.distributions import Diagonal, Full
    >>> normal = Gaussian(jnp.zeros(2), Full(jnp.eye(2)))
    >>> cell_kind(normal, (True, False)).value, cell_kind(normal, (True, True)).value
    ('exact', 'lower bound')
    >>> cell_kind(Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2))), (True, True)).value
    'exact'
    """
    return None


@functools.singledispatch
def log_cells(
    density: Any, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    """Logarithms of `draws` unbiased estimates of ∫ p(y) dy over the cell of `x`.

    Args:
        density: a distribution, or a model made of one; other packages register theirs.
        x: the lower corner of the cell; in coordinates that are no cells the value itself.  NaN is
            marginalised.
        width: of the cell, in each coordinate.
        cells: which coordinates are cells; the others count with their density.
        draws: how many; one is enough where `cell_kind` is exact.
        complete: whether nothing of `x` is missing, so that all rows share one factorisation.

    >>> from freeenergy.distributions import Diagonal
    >>> normal = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    >>> low, width = jnp.array([-1.0]), jnp.array([2.0])
    >>> mass = log_cells(normal, low, width, (True,), draws=1, key=jax.random.key(0))
    >>> round(float(jnp.exp(mass[0])), 4)
    0.6827
    """
    raise TypeError(f"The mass of cells under {type(density).__name__} is not known.")


def log_normal_interval(low: Array, width: Array) -> Array:
    """log (Φ(low + width) − Φ(low)), to rounding in both tails and for narrow intervals.

    The width may be infinite.

    >>> round(float(log_normal_interval(jnp.array(40.0), jnp.array(1.0))), 4)
    -804.6084
    """
    low, high = _lower_half(low, width)
    middle = low + 0.5 * width
    narrow = width * jnp.maximum(1.0, jnp.abs(middle)) < _NARROW
    top, bottom = log_ndtr(jnp.where(narrow, low + 1.0, high)), log_ndtr(low)
    possible = top > -jnp.inf
    fall = jnp.where(possible, bottom - jnp.where(possible, top, 0.0), -1.0)
    wide = jnp.where(possible, top + jnp.log(-jnp.expm1(fall)), -jnp.inf)
    bend = jnp.where(narrow, (middle**2 - 1) * width**2 / 24, 0.0)
    parabola = jnp.log(width) - 0.5 * (middle**2 + LOG_2PI) + jnp.log1p(bend)
    return jnp.where(narrow, parabola, wide)


def _lower_half(low: Array, width: Array) -> tuple[Array, Array]:
    """The ends of the interval, mirrored where more of it lies above zero than below."""
    mirrored = low + 0.5 * width > 0
    return jnp.where(mirrored, -(low + width), low), jnp.where(mirrored, -low, low + width)


def _draw_inside(low: Array, width: Array, u: Array) -> tuple[Array, Array]:
    """A draw from about the standard normal within [low, low + width], and log φ(y) / q(y)."""
    left, right = _lower_half(low, width)
    narrow = width * jnp.maximum(1.0, jnp.abs(left)) < _NARROW
    tail = right < _TAIL
    # the exact draw, by inversion
    below = ndtr(left)
    inverted = ndtri(below + u * (ndtr(jnp.where(tail, 0.0, right)) - below))
    inverted = jnp.minimum(jnp.maximum(inverted, left), right)
    # an exponential that falls as the normal density does at the nearer end
    rate = jnp.where(tail, -right, 1.0)
    inside = -jnp.expm1(-rate * width)
    fall = -jnp.log1p(-u * inside) / rate
    y = jnp.where(narrow, left + u * width, jnp.where(tail, right - fall, inverted))
    log_normal = -0.5 * (y**2 + LOG_2PI)
    weight = jnp.where(
        narrow,
        log_normal + jnp.log(width),
        jnp.where(
            tail,
            log_normal - (jnp.log(rate) - rate * fall - jnp.log(inside)),
            log_normal_interval(low, width),
        ),
    )
    return jnp.where(low + 0.5 * width > 0, -y, y), weight


@jax.jit
def log_normal_rectangle(low: Array, width: Array, slope: Array) -> Array:
    """log ∫ φ(y) (Φ(b − s y + v) − Φ(b − s y)) dy over [a, a + w]: two cells of which the second leans.

    `low` is (a, b), `width` (w, v), both of which may be infinite, and s the `slope`.  The integrand is
    log-concave: panels end where it bends (at the ends of the first cell, around those of the second, near
    its largest value), and points crowd there, so that nothing is too steep for them.  Relative errors are
    below 1e-6, and below 1e-4 for slopes beyond ten.

    >>> low, width = jnp.array([0.0, 0.0]), jnp.array([jnp.inf, jnp.inf])
    >>> quadrant = log_normal_rectangle(low, width, jnp.array(1.0))  # ¼ + asin(√½) / 2π
    >>> round(float(jnp.exp(quadrant)), 6)
    0.375
    """
    (a, b), high = low, low + width
    # where a second cell that is far away draws the first: y²/2 + (b − s y)²/2 is least there
    lean = slope / (1 + slope**2)
    near = jnp.where(b > 0, b, jnp.where(high[1] < 0, high[1], 0.0))
    peak = jnp.minimum(jnp.maximum(lean * near, a), high[0])
    first, last = jnp.maximum(a, peak - _REACH), jnp.minimum(high[0], peak + _REACH)
    flat = slope == 0
    places = jnp.stack([b, high[1]])[:, None] + jnp.array([[-_BULK, 0.0, _BULK]])
    bends = jnp.where(flat, peak, places.ravel() / jnp.where(flat, 1.0, slope))
    around = peak + jnp.array([-_BULK, 0.0, _BULK])
    ends = jnp.sort(jnp.minimum(jnp.maximum(jnp.append(bends, around), first), last))
    left, right = jnp.append(first, ends), jnp.append(ends, last)
    length = (right - left)[:, None]
    nodes, log_nodes = jnp.asarray(_ENDS), jnp.asarray(_LOG_ENDS)
    upper = nodes > 0.5
    y = jnp.where(
        upper[None],
        right[:, None] - length * jnp.asarray(_ENDS_LEFT)[None],
        left[:, None] + length * nodes[None],
    )
    logs = log_nodes[None] + jnp.log(length) - 0.5 * (y**2 + LOG_2PI)
    return jax.nn.logsumexp(logs + log_normal_interval(b - slope * y, width[1]))


class GaussianCells(NamedTuple):
    """Points drawn in a cell, from about a Gaussian.

    Attributes:
        log_weights: log p(point) − log q(point), for each point.
        length: its squared Mahalanobis length.
        log_det: log |Σ| of the observed coordinates.
        dim: how many are observed.
        points: the points themselves, for each of them a number a coordinate; those that are not observed
            mean nothing, nor does the last cell where it is not drawn.
    """

    log_weights: Array
    length: Array
    log_det: Array
    dim: Array
    points: Array


def gaussian_cells(
    mean: Array,
    sigma: Array,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool,
    last: bool,
    key: Array,
) -> GaussianCells:
    """Draws points in the cell of `x`, a coordinate after the other.

    Coordinates that are no cells come first, in one piece.  The cells follow one by one, narrow ones first,
    each drawn from the normal given those before it and weighted by its mass there, also known as the
    simulator of Geweke, Hajivassiliou and Keane (GHK).  Without `last` the last cell is not drawn: its mass
    is exact.
    """
    plain = len(cells) - sum(cells)
    # a cell that is narrow beside the spread of its column leaves little to chance: those come first
    relative = width / jnp.sqrt(jnp.diagonal(sigma))
    order = jnp.argsort(jnp.where(jnp.asarray(cells), relative, -1.0))
    x, width, mean, sigma = x[order], width[order], mean[order], sigma[order][:, order]
    observed = jnp.ones(len(cells), bool) if complete else ~jnp.isnan(x)
    factor = cholesky(observed_block(sigma, observed))[0]
    residual = jnp.where(observed, x - mean, 0)
    head = jax.scipy.linalg.solve_triangular(factor[:plain, :plain], residual[:plain], lower=True)
    scale = jnp.diagonal(factor)
    constants = jnp.where(observed, jnp.log(scale) + 0.5 * LOG_2PI, 0)
    start = -0.5 * jnp.vdot(head, head) - jnp.sum(constants[:plain])
    # the cells in units of their spread given those before them
    rows = factor[plain:, plain:] / scale[plain:, None]
    shift = (residual[plain:] - factor[plain:, :plain] @ head) / scale[plain:]
    width, seen = width[plain:] / scale[plain:], observed[plain:]
    n = len(cells) - plain
    # above zero, where the normal distribution begins at −∞
    uniforms = jax.random.uniform(key, (draws, n), x.dtype, minval=jnp.finfo(x.dtype).tiny)

    def step(carry: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        noise, total = carry
        y, weight = _draw_inside(shift[i] - noise @ rows[i], width[i], uniforms[:, i])
        # after an impossible cell nothing is known of the others
        counts = seen[i] & (total > -jnp.inf)
        return (noise.at[:, i].set(jnp.where(counts, y, 0)), jnp.where(counts, total + weight, total)), None

    carry = jnp.zeros((draws, n), x.dtype), jnp.full(draws, start, x.dtype)
    noise, total = jax.lax.scan(step, carry, jnp.arange(n if last else n - 1))[0]
    if not last:
        weight = log_normal_interval(shift[-1] - noise @ rows[-1], width[-1])
        total = jnp.where(seen[-1] & (total > -jnp.inf), total + weight, total)
    length = jnp.vdot(head, head) + jnp.sum(noise**2, axis=1)
    log_det = 2 * jnp.sum(jnp.where(observed, jnp.log(scale), 0))
    drawn = jnp.concatenate([jnp.broadcast_to(head, (draws, plain)), noise], axis=1) @ factor.T
    points = (drawn + mean[None])[:, jnp.argsort(order)]
    return GaussianCells(total, length, log_det, jnp.sum(observed.astype(x.dtype)), points)


def _separable(terms: Array, draws: int) -> Array:
    """The sum over coordinates, the same for every draw."""
    return jnp.full(draws, jnp.sum(terms), terms.dtype)


@cell_kind.register
def _(density: Gaussian, cells: Cells) -> Kind:
    return Kind.EXACT if density.covariance.separable or sum(cells) < 2 else Kind.LOWER


@log_cells.register
def _(
    density: Gaussian,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    if not density.covariance.separable:
        sigma = density.covariance.matrix()
        options = {"draws": draws, "complete": complete, "last": False, "key": key}
        return gaussian_cells(density.mean, sigma, x, width, cells, **options).log_weights
    scale = jnp.sqrt(jnp.diagonal(density.covariance.matrix()))
    return _separable(normal_cell_terms(density.mean, scale, x, width, cells), draws)


def normal_cell_terms(mean: Array, scale: Array, x: Array, width: Array, cells: Cells) -> Array:
    """For each coordinate of independent normal ones log mass of a cell, or log density; 0 for NaN."""
    inside = jnp.asarray(cells)
    observed = ~jnp.isnan(x)
    z = (jnp.where(observed, x, mean) - mean) / scale
    mass = log_normal_interval(z, jnp.where(inside, width, 1.0) / scale)
    density = -0.5 * (z**2 + LOG_2PI) - jnp.log(scale)
    return jnp.where(observed, jnp.where(inside, mass, density), 0.0)


@cell_kind.register
def _(density: MultivariateT, cells: Cells) -> Kind:
    return Kind.LOWER


@log_cells.register
def _(
    density: MultivariateT,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    # drawn as from the normal of the same shape, and weighted by how much likelier t makes the point
    options = {"draws": draws, "complete": complete, "last": True, "key": key}
    drawn = gaussian_cells(density.loc, density.scale, x, width, cells, **options)
    normal = -0.5 * (drawn.length + drawn.log_det + drawn.dim * LOG_2PI)
    ratio = density.log_density(drawn.length, drawn.log_det, drawn.dim) - normal
    return jnp.where(drawn.log_weights > -jnp.inf, drawn.log_weights + ratio, -jnp.inf)


@cell_kind.register(Exponential)
@cell_kind.register(Gamma)
def _(density: Exponential | Gamma, cells: Cells) -> Kind:
    return Kind.EXACT


@log_cells.register
def _(
    density: Exponential,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    # what lies below zero has no mass
    low = jnp.maximum(x, 0)
    mass = -density.rate * low + jnp.log(-jnp.expm1(-density.rate * (x + width - low)))
    return _factorised(density, jnp.where(x + width > 0, mass, -jnp.inf), x, cells, draws)


@log_cells.register
def _(
    density: Gamma, x: Array, width: Array, cells: Cells, *, draws: int, complete: bool = False, key: Array
) -> Array:
    low, high = density.rate * jnp.maximum(x, 0), density.rate * (x + width)
    high = jnp.maximum(high, low)
    a = density.shape
    below = gammainc(a, high) - gammainc(a, low)
    above = gammaincc(a, low) - gammaincc(a, high)
    upper = low > a
    mass = jnp.where(upper, above, below)
    whole = jnp.where(upper, gammaincc(a, low), gammainc(a, high))
    # where the difference has few digits left the cell is narrow or far out, and the density smooth in it
    points = low + (high - low) * jnp.asarray(_NODES)[:, None]
    logs = (a - 1) * jnp.log(points) - points - gammaln(a)
    smooth = jax.nn.logsumexp(logs, axis=0, b=jnp.asarray(_NODE_WEIGHTS)[:, None]) + jnp.log(high - low)
    digits = mass > _CANCELLED * jnp.maximum(whole, jnp.finfo(x.dtype).tiny)
    terms = jnp.where(digits, jnp.log(jnp.where(digits, mass, 1.0)), smooth)
    return _factorised(density, jnp.where(high > 0, terms, -jnp.inf), x, cells, draws)


def _factorised(density: AbstractFactorised, mass: Array, x: Array, cells: Cells, draws: int) -> Array:
    """The masses of cells of independent coordinates, with the density of the others."""
    inside = np.array(cells)
    terms = jnp.where(inside & ~jnp.isnan(x), mass, 0.0)
    return _separable(terms, draws) + density.log_prob(jnp.where(inside, jnp.nan, x))


@cell_kind.register
def _(density: Product, cells: Cells) -> Kind | None:
    kinds = [_part_kind(part, own) for part, own in zip(density.parts, _blocks(cells, density))]
    known = [kind for kind in kinds if kind is not None]
    return functools.reduce(Kind.combine, known) if len(known) == len(kinds) else None


@log_cells.register
def _(
    density: Product,
    x: Array,
    width: Array,
    cells: Cells,
    *,
    draws: int,
    complete: bool = False,
    key: Array,
) -> Array:
    total = jnp.zeros(draws, x.dtype)
    keys = jax.random.split(key, len(density.parts))
    blocks = zip(density.parts, density.blocks(x), density.blocks(width), _blocks(cells, density), keys)
    for part, own_x, own_width, own, own_key in blocks:
        if any(own):
            total += log_cells(part, own_x, own_width, own, draws=draws, complete=complete, key=own_key)
        else:
            total += part.log_prob(own_x)
    return total


def _part_kind(part: Any, cells: Cells) -> Kind | None:
    return cell_kind(part, cells) if any(cells) else Kind.EXACT


def _blocks(cells: Cells, density: Product) -> list[Cells]:
    places = np.split(density.order, np.cumsum(density.sizes)[:-1])
    return [tuple(cells[place] for place in own) for own in places]
