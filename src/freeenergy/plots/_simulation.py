"""Pictures of whether posteriors are right: ranks of true values, and replications of data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from ._style import PALETTE, new_axes, new_figure, plain

# panels of one figure, and of one row of them
_MOST_PANELS, _ACROSS = 12, 4


def calibration_ranks(found: Any, axes: Sequence[Axes] | None = None, *, level: float = 0.99) -> list[Axes]:
    """A `SimulationCalibration`: how many true values have each rank among draws, a panel a quantity.

    The band holds each bar with probability `level` if posteriors are right.  Bars that rise at both ends
    are those of posteriors that are too narrow.

    Args:
        found: from `evaluation.simulation_based_calibration`.
        axes: one for each quantity, or None for a figure of the first twelve.
        level: of the band.

    >>> from freeenergy.evaluation import SimulationCalibration
    >>> ranks = np.arange(100)[:, None] % 4
    >>> panels = calibration_ranks(SimulationCalibration(ranks, 3, ("slope",)))
    >>> [int(bar.get_height()) for bar in panels[0].patches[:4]]
    [25, 25, 25, 25]
    """
    counts, (low, high) = found.counts(), found.band(level)
    if axes is None:
        shown = min(len(found.names), _MOST_PANELS)
        across = min(shown, _ACROSS)
        down = -(-shown // across)
        grid = new_figure(0.6 + 2.2 * across, 0.4 + 1.8 * down).subplots(down, across, squeeze=False)
        axes = list(grid.ravel()[:shown])
        for empty in grid.ravel()[shown:]:
            empty.set_axis_off()
    edges = np.linspace(0, found.draws + 1, counts.shape[1] + 1) - 0.5
    for ax, name, row in zip(axes, found.names, counts, strict=False):
        ax.bar(edges[:-1], row, width=np.diff(edges), align="edge", color=PALETTE[0], alpha=0.8)
        ax.axhspan(low, high, color=mpl.rcParams["text.color"], alpha=0.13, linewidth=0)
        ax.axhline(len(found.ranks) / counts.shape[1], color=mpl.rcParams["text.color"], linewidth=0.8)
        ax.set_ylim(0, max(1.15 * row.max(), 1.15 * high))
        ax.set_title(plain(name))
        ax.set_xlabel("rank")
    axes[0].set_ylabel("simulations")
    return list(axes)


def predictive_check(check: Any, ax: Axes | None = None, *, name: str = "statistic") -> Axes:
    """A `PredictiveCheck`: the number that the data have, among those of replications.

    >>> from freeenergy.evaluation import posterior_predictive_check
    >>> axes = predictive_check(posterior_predictive_check([3.0], [[1.0], [2.0], [4.0]]))
    >>> float(axes.lines[0].get_xdata()[0])
    3.0
    """
    ax = new_axes(ax, 3.4, 2.3)
    ax.hist(
        check.replicated, bins=min(30, max(len(check.replicated) // 10, 5)), color=PALETTE[0], alpha=0.8
    )
    ax.axvline(check.observed, color=PALETTE[1], linewidth=1.8)
    ax.set_title(f"p = {check.p_value:.3f}")
    ax.set_xlabel(plain(name))
    ax.set_ylabel("replications")
    return ax
