"""The density of one number of which there are draws, and the smallest set that holds a part of it."""

from __future__ import annotations

import math

import numpy as np
from scipy import fft, optimize

from .._core import densest_runs

Pieces = list[tuple[float, float]]

_CELLS = 1024
# stages of the plug-in rule
_STAGES = 7


def smooth_cells(
    values: np.ndarray, weights: np.ndarray, size: float, *, cells: int = _CELLS
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of cells between the least and the largest value, and the probability in each.

    The weights are smoothed by diffusion for a time that the values themselves choose (improved
    Sheather–Jones, Botev, Grotowski and Kroese 2010), which needs no normal law to compare with and loses
    nothing at the ends.

    Args:
        values: numbers, not all equal.
        weights: one for each, of sum one.
        size: how many independent values they are worth.
        cells: how many cells.

    >>> draws = np.random.default_rng(0).normal(size=4000)
    >>> edges, mass = smooth_cells(draws, np.full(4000, 1 / 4000), 4000.0)
    >>> bool(abs(mass[(edges[:-1] > -1) & (edges[1:] < 1)].sum() - 0.683) < 0.02)
    True
    """
    edges = np.linspace(values.min(), values.max(), cells + 1)
    counts = np.histogram(values, edges, weights=weights)[0]
    waves = np.asarray(fft.dct(counts))
    time = _diffusion_time(waves, max(size, 2.0))
    mass = np.asarray(fft.idct(waves * np.exp(-0.5 * time * (np.pi * np.arange(cells)) ** 2)))
    mass = np.maximum(mass, 0)  # (rounding far from all values)
    return edges, mass / mass.sum()


def _diffusion_time(waves: np.ndarray, size: float) -> float:
    squares = (waves[1:] / 2) ** 2
    orders = np.arange(1, len(waves), dtype=float) ** 2

    def norm(s: int, time: float) -> float:
        """‖f⁽ˢ⁾‖² of the density after this time."""
        logs = s * np.log(orders) - orders * np.pi**2 * time
        return 2 * np.pi ** (2 * s) * float(np.sum(squares * np.exp(logs)))

    def excess(time: float) -> float:
        found = norm(_STAGES, time)
        for s in range(_STAGES - 1, 1, -1):
            odd = math.prod(range(1, 2 * s, 2)) / math.sqrt(2 * math.pi)
            constant = (1 + 0.5 ** (s + 0.5)) / 3
            found = norm(s, (2 * constant * odd / (size * found)) ** (2 / (3 + 2 * s)))
        return time - (2 * size * math.sqrt(math.pi) * found) ** -0.4

    try:
        return float(optimize.brentq(excess, 1e-12, 0.1))  # pyright: ignore[reportArgumentType]
    except (ValueError, ZeroDivisionError, OverflowError):
        # few values, or many equal ones: a width for a normal law that fills the range
        return (0.28 * size**-0.2) ** 2


def highest_density_of(
    values: np.ndarray, weights: np.ndarray, size: float, level: float, *, discrete: bool
) -> Pieces:
    """The pieces of the smallest set that holds probability `level`.

    Args:
        values: of one number.
        weights: one for each, of sum one.
        size: how many independent values they are worth.
        level: the probability, between zero and one.
        discrete: whether the values are whole numbers, each with a probability of its own.

    >>> two = np.concatenate([np.linspace(-1, 1, 500), np.linspace(9, 11, 500)])
    >>> pieces = highest_density_of(two, np.full(1000, 1e-3), 1000.0, 0.9, discrete=False)
    >>> len(pieces), bool(pieces[0][1] < 2), bool(pieces[1][0] > 8)
    (2, True, True)
    """
    low, high = float(values.min()), float(values.max())
    if low == high:
        return [(low, high)]
    if discrete:
        place = np.rint(values - low).astype(int)
        runs = densest_runs(np.bincount(place, weights), level)
        return [(low + first, low + last) for first, last in runs]
    edges, mass = smooth_cells(values, weights, size)
    return [(float(edges[first]), float(edges[last + 1])) for first, last in densest_runs(mass, level)]
