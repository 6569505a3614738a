"""Pictures of a posterior: what is known, and whether the chains that say so agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from ..inference._posterior import label_names
from ._style import PALETTE, new_axes, new_figure, wrapped

# entries that are shown
_MOST = 8
# steps of a chain that are drawn
_STEPS = 500


def trace(
    chains: Any, ax: Axes | None = None, *, name: str = "", labels: Mapping[float, str] | None = None
) -> Axes:
    """The draws of each chain, step by step; of labels, points beside each other.

    Args:
        chains: (chains, steps) of one number.
        ax: to draw on.
        name: of the number.
        labels: what its values are called, if it is a label.
    """
    chains = np.asarray(chains, float)
    ax = new_axes(ax, 4.3, 2.0)
    steps = np.unique(np.linspace(0, chains.shape[1] - 1, min(_STEPS, chains.shape[1])).astype(int))
    for number, chain in enumerate(chains):
        color = PALETTE[number % len(PALETTE)]
        if labels is None:
            ax.plot(steps, chain[steps], linewidth=0.5, alpha=0.8, color=color)
        else:
            beside = 0.6 * ((number + 0.5) / len(chains) - 0.5)
            ax.plot(steps, chain[steps] + beside, "|", markersize=3, alpha=0.6, color=color)
    if labels is not None:
        ax.set_yticks(list(labels), list(map(wrapped, labels.values())))
        ax.set_ylim(min(labels) - 0.5, max(labels) + 0.5)
    ax.set_xlabel("step")
    ax.set_ylabel(wrapped(name))
    return ax


def ranks(chains: Any, ax: Axes | None = None, *, name: str = "", bins: int = 20) -> Axes:
    """Where the draws of each chain stand among all: level where the chains agree.

    A band holds 95 % of the heights that independent draws would have.  Equal values have their ranks in a
    random order, so that those of labels and whole numbers are level too.

    Args:
        chains: (chains, steps) of one number.
        ax: to draw on.
        name: of the number.
        bins: how many.
    """
    chains = np.asarray(chains, float)
    ax = new_axes(ax, 4.3, 2.0)
    ties = np.random.default_rng(0).random(chains.size)
    rank = np.empty(chains.size)
    rank[np.lexsort((ties, chains.ravel()))] = np.arange(chains.size) + 0.5
    place = rank.reshape(chains.shape) / chains.size
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
    labels: Mapping[float, str] | None = None,
) -> Axes:
    """The histogram of one number, with the pieces of a region below it, or the bars of a label.

    A number that has one value alone is a line there.

    Args:
        values: of the number.
        weights: one for each, equal by default.
        ax: to draw on.
        name: of the number.
        pieces: from and to of each.
        labels: what the values are called, if they are labels.
    """
    values = np.asarray(values, float)
    ax = new_axes(ax, 4.3, 2.0)
    distinct = np.unique(values) if labels is None else np.array(list(labels))
    if labels is None and len(distinct) == 1:
        # a point has no width
        ax.vlines(distinct, 0, 1, color=PALETTE[0], linewidth=2)
        ax.set_ylabel("probability")
    elif labels is not None or len(distinct) <= 30:
        share = np.ones(len(values)) / len(values) if weights is None else np.asarray(weights, float)
        heights = [share[values == v].sum() for v in distinct]
        width = 0.8 * np.diff(distinct).min() if len(distinct) > 1 else 0.8
        ax.bar(distinct, heights, width, color=PALETTE[0], alpha=0.6)
        ax.set_ylabel("probability")
        if labels is not None:
            ax.set_xticks(distinct, list(map(wrapped, labels.values())))
        elif len(distinct) <= _MOST and (distinct == np.round(distinct)).all():
            ax.set_xticks(distinct)
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
    pieces, labels = regions_of(found), labels_of(found)
    for i in range(shown):
        own, kind = chains[:, :, i], {"name": names[i], "labels": labels.get(names[i])}
        marginal(own.ravel(), None, axes[i, 0], pieces=pieces.get(names[i], ()), **kind)
        if several:
            trace(own, axes[i, 1], **kind)
            ranks(own, axes[i, 2], name="draws")
    return axes


def labels_of(found: Any) -> dict[str, dict[float, str]]:
    """What the values of the labels among the entries of a posterior are called, by entry."""
    names, chains = found.chains()
    return {
        name: label_names(space, chains[:, :, i])
        for i, (name, space) in enumerate(zip(names, found.entry_spaces(), strict=True))
        if getattr(space, "unordered", False)
    }


def regions_of(found: Any) -> dict[str, list[tuple[float, float]]]:
    """The 90 % region of each number of a posterior."""
    numbers = any(not getattr(space, "unordered", False) for space in found.spaces)
    return found.highest_density(0.9) if numbers else {}
