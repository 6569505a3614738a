"""Pictures of what a learner makes of data sets and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ._style import PALETTE, new_axes, plain


def curve(found: Any, ax: Axes | None = None, *, what: str = "rows") -> Axes:
    """A `Curve` of `learning_curve_bits` or `double_descent`: fitted rows and others, with two errors.

    >>> from freeenergy.evaluation import Curve
    >>> numbers = np.array([1.0, 0.5])
    >>> axes = curve(Curve(np.array([10, 20]), numbers, 0 * numbers, numbers + 1, 0 * numbers, "bits"))
    >>> [line.get_label() for line in axes.lines]
    ['fitted', 'held out']
    """
    ax = new_axes(ax)
    sides = (
        ("fitted", found.train, found.train_stderr, PALETTE[0]),
        ("held out", found.test, found.test_stderr, PALETTE[1]),
    )
    for name, middle, error, colour in sides:
        ax.plot(found.sizes, middle, marker="o", markersize=3, color=colour, label=name)
        ax.fill_between(
            found.sizes, middle - 2 * error, middle + 2 * error, color=colour, alpha=0.2, linewidth=0
        )
    ax.set_xscale("log")
    largest, typical = np.nanmax(found.test), np.nanmedian(found.test)
    if found.train.min() >= 0 and largest > 20 * typical:
        # the peak where features interpolate
        ax.set_ylim(0, 10 * typical)
    ax.set_xlabel(plain(what))
    ax.set_ylabel(plain(found.unit))
    ax.legend()
    return ax


def bias_variance(
    found: Mapping[Any, Any], ax: Axes | None = None, *, what: str = "size of the model"
) -> Axes:
    """Noise, squared bias and variance of several learners on top of each other: their height is the risk.

    Args:
        found: a `BiasVariance` for each learner, by a name or a number.
        ax: where to draw.
        what: what the names are.

    >>> from freeenergy.evaluation import BiasVariance, Measure
    >>> parts = [Measure(value, 0.1) for value in (1.0, 2.0, 3.5)]
    >>> one = BiasVariance(parts[0], parts[1], 0.5, parts[2], np.zeros(1), np.zeros(1))
    >>> axes = bias_variance({"a": one, "b": one})
    >>> [float(bar.get_height()) for bar in axes.patches[2:4]]
    [1.0, 1.0]
    """
    ax = new_axes(ax)
    places = np.arange(len(found))
    layers: Sequence[tuple[str, list[float], str]] = (
        ("noise", [each.noise for each in found.values()], PALETTE[6]),
        ("squared bias", [max(each.bias.value, 0.0) for each in found.values()], PALETTE[0]),
        ("variance", [each.variance.value for each in found.values()], PALETTE[1]),
    )
    bottom = np.zeros(len(found))
    for name, heights, colour in layers:
        ax.bar(places, heights, 0.7, bottom, color=colour, label=name)
        bottom = bottom + np.array(heights)
    errors = [2 * each.risk.stderr for each in found.values()]
    ax.errorbar(places, [each.risk.value for each in found.values()], errors, fmt="none", ecolor=PALETTE[6])
    ax.set_xticks(places, [plain(name) for name in found])
    ax.set_xlabel(plain(what))
    ax.set_ylabel("mean squared error")
    ax.legend()
    return ax


def prediction_sets(laws: Any, ax: Axes | None = None, *, at: Any = None, level: float = 0.9) -> Axes:
    """The pieces of the smallest set that holds each answer with probability `level`, row by row.

    Args:
        laws: of one number a row, such as `predict_density(X)` gives.
        ax: where to draw.
        at: where each row is on the axis; by default its number.
        level: the probability.

    >>> from scipy import stats
    >>> from freeenergy.evaluation import Laws
    >>> axes = prediction_sets(Laws(stats.norm(np.zeros(3), 1.0)))
    >>> len(axes.collections[0].get_segments())
    3
    """
    ax = new_axes(ax)
    places = np.arange(laws.shape[0]) if at is None else np.asarray(at, float)
    pieces = laws.highest_density(level)
    rows = [(place, *piece) for place, own in zip(places, pieces, strict=True) for piece in own]
    x, low, high = np.array(rows).T
    ax.vlines(x, low, high, color=PALETTE[0], alpha=0.6)
    modes = [(place, mode) for place, own in zip(places, laws.modes(), strict=True) for mode in own]
    ax.plot(*np.array(modes).T, ".", markersize=3, color=PALETTE[1])
    ax.set_xlabel("row" if at is None else "")
    ax.set_ylabel(f"answer, sets of {level:.0%}")
    return ax
