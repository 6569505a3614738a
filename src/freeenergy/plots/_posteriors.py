"""Pictures of a posterior: what is known, and whether the chains that say so agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from ._style import PALETTE, new_axes, new_figure, wrapped

# entries that are shown
_MOST = 8
# steps of a chain that are drawn
_STEPS = 500


def trace(chains: Any, ax: Axes | None = None, *, name: str = "") -> Axes:
    """The draws of each chain, step by step.

    Args:
        chains: (chains, steps) of one number.
        ax: to draw on.
        name: of the number.
    """
    chains = np.asarray(chains, float)
    ax = new_axes(ax, 4.3, 2.0)
    steps = np.unique(np.linspace(0, chains.shape[1] - 1, min(_STEPS, chains.shape[1])).astype(int))
    for number, chain in enumerate(chains):
        ax.plot(steps, chain[steps], linewidth=0.5, alpha=0.8, color=PALETTE[number % len(PALETTE)])
    ax.set_xlabel("step")
    ax.set_ylabel(wrapped(name))
    return ax


def ranks(chains: Any, ax: Axes | None = None, *, name: str = "", bins: int = 20) -> Axes:
    """Where the draws of each chain stand among all: level where the chains agree.

    A band holds 95 % of the heights that independent draws would have.

    Args:
        chains: (chains, steps) of one number.
        ax: to draw on.
        name: of the number.
        bins: how many.
    """
    chains = np.asarray(chains, float)
    ax = new_axes(ax, 4.3, 2.0)
    place = (stats.rankdata(chains).reshape(chains.shape) - 0.5) / chains.size
    edges = np.linspace(0, 1, bins + 1)
    low, high = stats.binom.ppf([0.025, 0.975], chains.shape[1], 1 / bins)
    ax.axhspan(low, high, color=PALETTE[-1], alpha=0.2, linewidth=0)
    for number, own in enumerate(place):
        counts = np.histogram(own, edges)[0]
        ax.stairs(counts, edges, color=PALETTE[number % len(PALETTE)], linewidth=1.0)
    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("rank among all draws")
    ax.set_ylabel(wrapped(name))
    return ax


def marginal(
    values: Any,
    weights: Any = None,
    ax: Axes | None = None,
    *,
    name: str = "",
    pieces: Sequence[tuple[float, float]] = (),
) -> Axes:
    """The histogram of one number, with the pieces of a region below it.

    Args:
        values: of the number.
        weights: one for each, equal by default.
        ax: to draw on.
        name: of the number.
        pieces: from and to of each.
    """
    values = np.asarray(values, float)
    ax = new_axes(ax, 4.3, 2.0)
    distinct = np.unique(values)
    if len(distinct) <= 30:
        share = np.ones(len(values)) / len(values) if weights is None else np.asarray(weights, float)
        heights = [share[values == v].sum() for v in distinct]
        width = 0.8 * np.diff(distinct).min() if len(distinct) > 1 else 0.8
        ax.bar(distinct, heights, width, color=PALETTE[0], alpha=0.6)
        ax.set_ylabel("probability")
    else:
        ax.hist(values, 40, weights=weights, density=True, color=PALETTE[0], alpha=0.6)
        ax.set_ylabel("density")
    for low, high in pieces:
        ax.plot([low, high], [0, 0], color=PALETTE[1], linewidth=4, solid_capstyle="butt")
    ax.set_xlabel(wrapped(name))
    return ax


def posterior(found: Any, figure: Any = None) -> np.ndarray:
    """A line for each of the first eight entries: histogram with its 90 % region, trace, ranks.

    What was not drawn by several Markov chains has the histogram alone.

    Args:
        found: a posterior of `freeenergy.infer`.
        figure: to draw on.

    Returns:
        the axes, a row for each entry.
    """
    names, chains = found.chains()
    several = len(chains) > 1
    shown = min(len(names), _MOST)
    columns = 3 if several else 1
    figure = new_figure(3.2 * columns, 0.4 + 1.9 * shown) if figure is None else figure
    axes = figure.subplots(shown, columns, squeeze=False)
    labels = any(getattr(space, "unordered", False) for space in found.spaces)
    pieces = {} if labels else found.highest_density(0.9)
    for i in range(shown):
        own = chains[:, :, i]
        marginal(own.ravel(), None, axes[i, 0], name=names[i], pieces=pieces.get(names[i], ()))
        if several:
            trace(own, axes[i, 1], name=names[i])
            ranks(own, axes[i, 2], name="draws")
    return axes
