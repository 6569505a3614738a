"""Rows as learning sees them: in an order of their own, merged, and rescaled."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from .._core import CellError, has_nan, row_hashes

_PART = 4096
# squares between these are computed without regard to their size
_SMALL_SQUARE, _LARGE_SQUARE = 1e-200, 1e200
# scales between these have squares
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-153, 1e153
# a spread of this part of the mean is little more than rounding
_RESOLVED = 1e-13


class Rows(NamedTuple):
    """Distinct rows with their weights, and what else is known of each, if anything."""

    x: np.ndarray
    weight: np.ndarray
    known: np.ndarray | None = None

    def identity(self) -> str:
        """Names these rows, for a checkpoint."""
        hashes = row_hashes(np.column_stack([part for part in self if part is not None]))
        return f"{self.x.shape} {np.bitwise_xor.reduce(hashes):016x}"


def canonical_rows(
    X: np.ndarray, weight: np.ndarray | None, scaling: Scaling, known: np.ndarray | None = None
) -> Rows:
    """The distinct rows of `X` with summed weights, complete rows first, in an order of their own.

    A fit of the result depends neither on the order in which rows were passed nor on whether a row
    was repeated or weighted, even where the fit draws random numbers or minibatches.  The order is by
    the rescaled values to three digits, so that a change of units does not change it either.
    With `known`, columns that belong to the rows, only rows that agree in them are merged.
    """
    if known is not None:
        width = X.shape[1]
        wider = Scaling.identity(width + known.shape[1])
        wider.shift[:width], wider.scale[:width] = scaling
        rows = canonical_rows(np.column_stack([X, known]), weight, wider)
        return Rows(rows.x[:, :width], rows.weight, rows.x[:, width:])
    weight = np.ones(len(X)) if weight is None else weight
    used = weight > 0
    if not used.all():
        X, weight = X[used], weight[used]
    places = unit_free_hashes(X, scaling)
    order = np.argsort(places)
    places = places[order]
    tied = places[1:] == places[:-1]
    if tied.any():
        # rows that agree to three digits: order them by all their digits, and merge equal ones
        hashes = row_hashes(X)
        order = order[np.lexsort((hashes[order], places))]
        first = np.ones(len(X), bool)
        first[1:] = hashes[order[1:]] != hashes[order[:-1]]
        starts = np.flatnonzero(first)
        merged = np.add.reduceat(weight[order], starts)
        order = order[starts]
    else:
        merged = weight[order]
    X = X[order]
    if has_nan(X):
        # blocks without NaN take the faster path
        last = np.argsort(np.isnan(X).any(axis=1), kind="stable")
        X, merged = X[last], merged[last]
    return Rows(X, merged)


def points_of(covariance: np.ndarray, weight: float) -> Rows:
    """Two rows for each column about zero, of that weight together, whose covariance is the given one.

    They are ±√dim L eᵢ with L Lᵀ = Σ.  A Gaussian model knows rows by their weight, mean and covariance.

    >>> rows = points_of(np.array([[4.0, 1.0], [1.0, 2.0]]), 10.0)
    >>> (rows.x.T * rows.weight @ rows.x / 10).round(6).tolist()
    [[4.0, 1.0], [1.0, 2.0]]
    """
    dim = len(covariance)
    values, vectors = np.linalg.eigh(covariance)
    half = np.sqrt(dim * np.maximum(values, 0.0))[:, None] * vectors.T
    return Rows(np.concatenate([half, -half]), np.full(2 * dim, weight / (2 * dim)))


def unit_free_hashes(X: np.ndarray, scaling: Scaling) -> np.ndarray:
    """A 64-bit number for each row that is the same in whichever units the row is given."""
    hashes = np.empty(len(X), np.uint64)
    for part in _parts(X):
        z = scaling.apply(X[part])
        with np.errstate(over="ignore"):
            z *= 1024
        hashes[part] = row_hashes(np.rint(z, out=z))
    return hashes


def row_seeds(X: np.ndarray, scaling: Scaling) -> np.ndarray:
    """A 32-bit seed for each row, to fold into a key: noise that other rows cannot change."""
    return (unit_free_hashes(X, scaling) >> np.uint64(32)).astype(np.uint32)


def _parts(x: np.ndarray) -> list[slice]:
    """Rows part by part, so that what is in work stays in the cache."""
    return [slice(start, start + _PART) for start in range(0, len(x), _PART)]


def _moments(
    x: np.ndarray,
    weight: np.ndarray | None,
    observed: np.ndarray | None,
    anchor: np.ndarray,
    size: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and variance of (x − anchor) / size, column by column, over the observed entries."""
    total: Any = 0.0
    offset, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    room = np.empty((min(len(x), _PART), x.shape[1]))
    ones = np.ones(len(room))
    for part in _parts(x):
        rows = x[part]
        w = ones[: len(rows)] if weight is None else weight[part]
        gap = np.subtract(rows, anchor, out=room[: len(rows)])
        if size is not None:
            gap /= size
        if observed is None:
            mass = float(w.sum())
        else:
            gap[~observed[part]] = 0.0
            mass = w @ observed[part]
        mean = _shared(w @ gap, mass)
        gap -= mean
        if observed is not None:
            gap[~observed[part]] = 0.0
        step = mean - offset
        share = _shared(mass, total + mass)
        squares += w @ np.square(gap, out=gap) + step**2 * total * share
        offset += step * share
        total += mass
    return offset, _shared(squares, total)


def _shared(sums: Any, mass: Any) -> Any:
    """`sums` over the mass that they are of, a number or one for each; zero where it is."""
    if isinstance(mass, float):
        return sums / mass if mass > 0 else np.zeros_like(sums)
    return np.divide(sums, mass, out=np.zeros_like(mass), where=mass > 0)


def _refuse_scale(column: int, scale: float) -> None:
    raise ValueError(
        f"Column {column} of X has the scale {scale:g}, whose square is no 64-bit number: it has no "
        f"variance. Scales are from {_SMALLEST_SCALE:g} to {_LARGEST_SCALE:g}; change its unit."
    )


class Scaling(NamedTuple):
    """The map z = (x − shift) / scale, column by column, on which fits work.

    Its log-determinant is part of every density, so that the numbers users see are in the units of
    their data.
    """

    shift: np.ndarray
    scale: np.ndarray

    @property
    def is_identity(self) -> bool:
        """Whether it leaves rows as they are."""
        return not self.shift.any() and bool((self.scale == 1).all())

    @staticmethod
    def identity(columns: int) -> Scaling:
        """The map that leaves rows as they are."""
        return Scaling(np.zeros(columns), np.ones(columns))

    @staticmethod
    def standardise(x: np.ndarray, weight: np.ndarray | None = None, *, common: bool = False) -> Scaling:
        """Weighted mean and standard deviation of the observed entries.

        A column that never varies gets the size of its value as scale.  With `common` one scale
        serves all columns, which keeps distances as they are.
        """
        observed = ~np.isnan(x) if has_nan(x) else None
        anchor = x[0] if observed is None else x[np.argmax(observed, axis=0), np.arange(x.shape[1])]
        with np.errstate(over="ignore", invalid="ignore"):
            offset, square = _moments(x, weight, observed, anchor, None)
        size = np.ones(x.shape[1])
        if not ((square > _SMALL_SQUARE) & (square < _LARGE_SQUARE)).all():
            # large gaps overflow when squared, small ones vanish
            high = np.fmax.reduce([np.fmax.reduce(x[part]) for part in _parts(x)])
            low = np.fmin.reduce([np.fmin.reduce(x[part]) for part in _parts(x)])
            with np.errstate(over="ignore"):
                size = np.maximum(np.maximum(high - anchor, anchor - low), np.finfo(float).tiny)
            if not np.isfinite(size).all():
                _refuse_scale(int(np.argmax(size)), np.inf)
            offset, square = _moments(x, weight, observed, anchor, size)
        shift = anchor + offset * size
        spread = size * np.sqrt(square)
        # of a column that never varies too
        flat = spread <= _RESOLVED * np.abs(shift)
        for column in np.flatnonzero(flat & (spread > 0)) if flat.any() and not common else ():
            warnings.warn(
                f"Column {column} of X varies by {spread[column]:g} about {shift[column]:g}, which 64-bit "
                "numbers hardly tell from nothing: it is taken for constant. Subtract its mean first.",
                stacklevel=2,
            )
        scale = spread
        if flat.any():
            scale = np.where(flat, np.where(shift == 0, 1.0, np.abs(shift)), spread)
        extreme = (scale < _SMALLEST_SCALE) | (scale > _LARGEST_SCALE)
        if extreme.any():
            _refuse_scale(int(np.argmax(extreme)), scale[np.argmax(extreme)])
        if common:
            varying = scale[~flat]
            scale = np.full_like(scale, np.sqrt(np.mean(varying**2)) if len(varying) else 1.0)
        return Scaling(shift, scale)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """z of each row, refused where it would be beyond the largest float: all such rows would be one."""
        try:
            with np.errstate(over="raise"):
                z = x - self.shift
                z /= self.scale
            return z
        except FloatingPointError:
            # x − shift may overflow where z does not
            with np.errstate(over="ignore"):
                z = (x / 2 - self.shift / 2) / (self.scale / 2)
            far = np.argwhere(np.isinf(z))
            if len(far):
                row, column = (int(i) for i in far[0])
                raise CellError(
                    f"X must hold numbers less than {np.finfo(float).max:.1e} times the scale "
                    f"{self.scale[column]:g} of their column away from those of the fit.",
                    float(x[row, column]),
                    column,
                ) from None
            return z

    def invert(self, z: np.ndarray) -> np.ndarray:
        """x of each row; infinite, for who asked to refuse, where it is beyond the largest float."""
        with np.errstate(over="ignore"):
            return z * self.scale + self.shift

    def log_det(self, x: np.ndarray) -> np.ndarray:
        """log |dz/dx| of each row, over its observed entries."""
        logs = np.log(self.scale)
        whole = np.full(len(x), -logs.sum())
        return whole + np.isnan(x) @ logs if has_nan(x) else whole
