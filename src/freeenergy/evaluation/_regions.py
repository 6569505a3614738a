"""Where a law of one number is densest: its modes, and the smallest sets that hold a given part of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import densest_runs

# a density is searched between quantiles of these levels
_TAIL = 10.0 ** -np.arange(9, 1, -1)
_LEVELS = np.concatenate([_TAIL, np.arange(0.025, 0.976, 0.025), 1 - _TAIL[::-1]])
_GOLDEN = 0.5 * (np.sqrt(5) - 1)
_STEPS = 60
_SAME = 1e-13
_HALVINGS = 48
_SECANTS = 40
_ENOUGH = 1e-10
# whole numbers that are looked at one by one
_WIDEST = 10_000_000

Pieces = list[tuple[float, float]]


def _log_density(laws: Any, rows: np.ndarray, t: np.ndarray) -> np.ndarray:
    return laws.take(rows).log_prob(t) if len(rows) else np.empty(0)


def _extreme(laws: Any, rows: np.ndarray, low: np.ndarray, high: np.ndarray, sign: int) -> np.ndarray:
    """The largest (sign +1) or least (−1) log-density between two places, by golden section."""
    if not len(rows):
        return np.empty(0)
    own = laws.take(rows)
    inner = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    value = [sign * own.log_prob(t) for t in inner]
    for _ in range(_STEPS):
        left = value[0] >= value[1]
        low, high = np.where(left, low, inner[0]), np.where(left, inner[1], high)
        fresh = np.where(left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        found = sign * own.log_prob(fresh)
        inner = np.where(left, fresh, inner[1]), np.where(left, inner[0], fresh)
        value = [np.where(left, found, value[1]), np.where(left, value[0], found)]
    return np.where(value[0] >= value[1], inner[0], inner[1])


def _turns(laws: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, places and signs (+1 at a maximum) where densities turn, sorted by row and place."""
    knots = laws.knots(_LEVELS)
    grid = np.sort(np.concatenate([knots, 0.5 * (knots[1:] + knots[:-1])]), axis=0)
    size, rows = grid.shape
    # places next to each other are one, and the one after them is the next that differs
    near = _SAME * (np.abs(grid).max(axis=0) + np.ptp(grid, axis=0))
    after = np.full((size, rows), size - 1)
    for i in range(1, size):
        grid[i] = np.where(grid[i] - grid[i - 1] > near, grid[i], grid[i - 1])
    for i in range(size - 2, -1, -1):
        after[i] = np.where(grid[i + 1] > grid[i], i + 1, after[i + 1])
    every = np.tile(np.arange(rows), size)
    height = _log_density(laws, every, grid.ravel()).reshape(size, rows)
    found = []
    for sign in (1, -1):
        h = sign * height
        # of a level stretch its first place
        peak = (h[1:] > h[:-1]) & (h[1:] >= np.take_along_axis(h, after, axis=0)[1:])
        peak &= grid[1:] < grid[-1]
        at, row = np.nonzero(peak)
        place = _extreme(laws, row, grid[at, row], grid[after[at + 1, row], row], sign)
        found.append((row, place, np.full(len(row), sign)))
    # where a density is largest at its end, as that of waiting times
    ends = (0, after[0]), (size - 1, np.argmax(grid == grid[-1], axis=0) - 1)
    for side, beside in ends:
        row = np.flatnonzero(height[side] > height[beside, np.arange(rows)])
        found.append((row, grid[side, row], np.ones(len(row), int)))
    row, place, sign = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((place, row))
    return row[order], place[order], sign[order]


def _one_axis(laws: Any, method: str) -> None:
    if len(laws.shape) != 1:
        raise ValueError(f"The '{method}' of laws is that of one number each. Got {laws.shape[1]} a row.")


def modes(laws: Any) -> list[np.ndarray]:
    """The places where each density has a maximum, the highest first."""
    _one_axis(laws, "modes")
    if laws.discrete:
        found = []
        for values, logs in _whole(laws):
            padded = np.concatenate([[-np.inf], logs, [-np.inf]])
            peak = (logs > padded[:-2]) & (logs >= padded[2:])
            found.append(values[peak][np.argsort(-logs[peak], kind="stable")])
        return found
    row, place, sign = _turns(laws)
    row, place = row[sign > 0], place[sign > 0]
    height = _log_density(laws, row, place)
    return [place[row == r][np.argsort(-height[row == r], kind="stable")] for r in range(laws.shape[0])]


def highest_density(laws: Any, level: float) -> list[Pieces]:
    """The pieces of the smallest set of each law with probability `level`."""
    _one_axis(laws, "highest_density")
    if laws.discrete:
        return [_densest(values, logs, level) for values, logs in _whole(laws)]
    row, place, _ = _turns(laws)
    rows = np.arange(laws.shape[0])
    ends = laws.quantile(_LEVELS[0]), laws.quantile(_LEVELS[-1])
    # from one turn to the next a density rises or falls
    all_rows = np.concatenate([rows, row, rows])
    cuts = np.concatenate([ends[0], place, ends[1]])
    order = np.lexsort((np.concatenate([rows * 0, row * 0 + 1, rows * 0 + 2]), cuts, all_rows))
    all_rows, cuts = all_rows[order], cuts[order]
    same = all_rows[1:] == all_rows[:-1]
    stretch, low, high = all_rows[1:][same], cuts[:-1][same], cuts[1:][same]
    at_low, at_high = (_log_density(laws, stretch, t) for t in (low, high))

    own = laws.take(stretch)
    rises = at_high > at_low

    def excess(threshold: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """The probability above thresholds less `level`, and the part of each stretch that is above."""
        c = threshold[stretch]
        crosses = (at_low < c) != (at_high < c)
        left, right = low, high
        for _ in range(_HALVINGS if crosses.any() else 0):
            middle = 0.5 * (left + right)
            # towards the side where it crosses
            back = (own.log_prob(middle) >= c) == rises
            left, right = np.where(back, left, middle), np.where(back, middle, right)
        # the side that is above
        root = np.where(rises, right, left)
        a, b = np.where(crosses & rises, root, low), np.where(crosses & ~rises, root, high)
        b = np.where((at_low < c) & (at_high < c), a, b)
        mass = np.where(b > a, np.exp(own.log_mass(a, np.where(b > a, b, a + 1))), 0.0)
        return np.bincount(stretch, mass, len(rows)) - level, (a, b)

    bottom = np.full(len(rows), np.inf)
    np.minimum.at(bottom, stretch, np.minimum(at_low, at_high))
    top = np.full(len(rows), -np.inf)
    np.maximum.at(top, stretch, np.maximum(at_low, at_high))
    # regula falsi that halves what stays (Illinois)
    more, (a, b) = excess(bottom)
    less, last = np.full(len(rows), -level), np.zeros(len(rows))
    for _ in range(_SECANTS):
        share = np.where(more > less, more / np.where(more > less, more - less, 1.0), 0.5)
        middle = bottom + share.clip(0.001, 0.999) * (top - bottom)
        now, _ = excess(middle)
        side = np.where(now >= 0, 1, -1)
        again = side == last
        less = np.where(side < 0, now, np.where(again, 0.5 * less, less))
        more = np.where(side > 0, now, np.where(again, 0.5 * more, more))
        bottom, top, last = np.where(side > 0, middle, bottom), np.where(side < 0, middle, top), side
        if ((np.abs(now) < _ENOUGH) | (top - bottom < _ENOUGH)).all():
            break
    _, (a, b) = excess(bottom)
    return _joined(laws, stretch, a, b, ends)


def _joined(laws: Any, stretch: np.ndarray, a: np.ndarray, b: np.ndarray, ends: Any) -> list[Pieces]:
    """Stretches that touch are one piece; one that reaches the last quantile goes on to the end."""
    found: list[Pieces] = [[] for _ in range(laws.shape[0])]
    limits = laws.quantile(0.0), laws.quantile(1.0)
    for row, low, high in zip(stretch.tolist(), a.tolist(), b.tolist(), strict=True):
        if high <= low:
            continue
        low = float(limits[0][row]) if low <= ends[0][row] else low
        high = float(limits[1][row]) if high >= ends[1][row] else high
        if found[row] and found[row][-1][1] >= low:
            found[row][-1] = (found[row][-1][0], high)
        else:
            found[row].append((low, high))
    return found


def _whole(laws: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each row the whole numbers that are not too rare, and their log-probabilities."""
    low, high = laws.quantile(_LEVELS[0]), laws.quantile(_LEVELS[-1])
    if (high - low + 1).sum() > _WIDEST:
        raise ValueError("The laws reach over too many whole numbers to look at each.")
    found = []
    for row in range(laws.shape[0]):
        values = np.arange(low[row], high[row] + 1)
        found.append((values, _log_density(laws, np.full(len(values), row), values)))
    return found


def _densest(values: np.ndarray, logs: np.ndarray, level: float) -> Pieces:
    """The runs of the most probable whole numbers that have probability `level` together."""
    runs = densest_runs(np.exp(logs), level)
    return [(float(values[first]), float(values[last])) for first, last in runs]
