"""Pictures of numbers that were predicted: residuals, coverage, what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy import stats

from ._style import PALETTE, called, new_axes, plain, thin

# dots of a picture, and groups of them whose mean is drawn
_DOTS, _GROUPS = 1000, 8


def residuals(truth: Any, predicted: Any, ax: Axes | None = None, *, name: str = "answer") -> Axes:
    """What came less what was predicted, over what was predicted.

    The line is the mean of as many rows in each of a few groups, with an interval of 95 %: it is near zero
    everywhere if the mean is right, and dots are as wide everywhere if the spread is the same.

    >>> axes = residuals([1.0, 2.0, 4.0], [1.5, 2.0, 3.0])
    >>> axes.lines[0].get_ydata().tolist()
    [-0.5, 0.0, 1.0]
    """
    ax = new_axes(ax, 3.4, 2.3)
    y, mean = np.asarray(truth, float), np.asarray(predicted, float)
    if y.shape != mean.shape or y.ndim != 1:
        raise ValueError(
            "The 'truth' and 'predicted' of residuals must have one axis and the same length. Got the "
            f"shapes {y.shape} and {mean.shape}."
        )
    order = np.argsort(mean, kind="stable")
    mean, gap = mean[order], (y - np.asarray(predicted, float))[order]
    few = thin(np.arange(len(gap)), _DOTS)
    ax.plot(mean[few], gap[few], "o", color=PALETTE[0], markersize=2.5, alpha=0.45, markeredgewidth=0)
    ax.axhline(0, color=mpl.rcParams["text.color"], linewidth=0.8, linestyle="--")
    parts = [part for part in np.array_split(np.arange(len(gap)), _GROUPS) if len(part) > 2]
    if parts:
        middle = [mean[part].mean() for part in parts]
        level = [gap[part].mean() for part in parts]
        half = [1.96 * gap[part].std(ddof=1) / np.sqrt(len(part)) for part in parts]
        ax.errorbar(middle, level, yerr=half, color=PALETTE[1], linewidth=1.4, capsize=2, markersize=3)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel(f"predicted {plain(name)}")
    ax.set_ylabel("what came − predicted")
    return ax


def coverage(ranks: Any, ax: Axes | None = None) -> Axes:
    """How many answers the central intervals hold, over the probability that they say they hold.

    An answer whose rank in its law is r lies in the interval of level |2r − 1| and in all wider ones.
    Above the diagonal intervals are too wide, below it too narrow; the band holds the line with chance 95 %
    at each level if the model is right.

    >>> axes = coverage([0.5, 0.25, 0.05, 0.9])
    >>> axes.lines[-1].get_ydata()[[0, 10, 20]].tolist()
    [0.25, 0.5, 1.0]
    """
    ax = new_axes(ax, 3.4, 2.3)
    distance = np.sort(np.abs(2 * np.asarray(ranks, float) - 1))
    levels = np.linspace(0, 1, 21)
    share = np.searchsorted(distance, levels + 1e-12, side="right") / len(distance)
    low, high = stats.binom.interval(0.95, len(distance), levels)
    ink = mpl.rcParams["text.color"]
    ax.fill_between(levels, low / len(distance), high / len(distance), color=ink, alpha=0.13, linewidth=0)
    ax.plot([0, 1], [0, 1], color=ink, linewidth=0.8, linestyle="--")
    ax.plot(levels, share, color=PALETTE[0], linewidth=1.8)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xlabel("level of the interval")
    ax.set_ylabel("share of answers in it")
    return ax


def importance(
    lost: Any,
    stderr: Any = None,
    ax: Axes | None = None,
    *,
    names: Sequence[Any] | None = None,
    most: int = 15,
) -> Axes:
    """By how many bits the answers cost more when a column is shuffled, the largest first.

    Bars are intervals of 95 %, from the standard errors `stderr`.

    >>> axes = importance([0.1, 0.7], names=["age", "size"])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['size', 'age']
    """
    lost = np.asarray(lost, float)
    words = called("importance", names, len(lost), "column")
    order = np.argsort(-lost, kind="stable")[:most]
    ax = new_axes(ax, 3.8, 0.8 + 0.24 * len(order))
    half = 0.0 if stderr is None else 1.96 * np.asarray(stderr, float)[order]
    places = np.arange(len(order))
    ax.barh(places, lost[order], color=PALETTE[0], height=0.6)
    ax.errorbar(lost[order], places, xerr=half, fmt="none", color=mpl.rcParams["text.color"], linewidth=1)
    ax.axvline(0, color=mpl.rcParams["axes.edgecolor"], linewidth=0.7)
    ax.set_yticks(places, [plain(words[i], 24) for i in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlabel("bits lost per row")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def dependence(
    values: Any,
    curves: Any,
    ax: Axes | None = None,
    *,
    name: str = "column",
    answer: str = "answer",
    told: Callable[[float], str] | None = None,
    labels: Sequence[str] | None = None,
) -> Axes:
    """The mean prediction over the rows at each value of a column, also known as partial dependence.

    Args:
        values: of the column.
        curves: (values, 3), the mean prediction at each value, and a tenth and nine tenths of those of
            rows; with labels (values, labels), the mean probability of each.
        ax: where to draw.
        name, answer: of the column, and of what is predicted.
        told: what a value is called, where values are labels; then there are bars.
        labels: those that are predicted, if they are such.

    >>> axes = dependence([0.0, 1.0], [[1.0, 0.5, 1.5], [2.0, 1.5, 2.5]])
    >>> axes.lines[0].get_ydata().tolist()
    [1.0, 2.0]
    """
    at, ax = np.asarray(values, float), new_axes(ax, 3.4, 2.3)
    places = at if told is None else np.arange(len(at))
    if labels is not None:
        for number, (word, shares) in enumerate(zip(labels, np.asarray(curves, float).T, strict=True)):
            style = "-" if told is None else "o"
            ax.plot(places, shares, style, color=PALETTE[number % len(PALETTE)], label=plain(word, 12))
        ax.set_ylim(0, 1)
        ax.legend(fontsize="x-small", frameon=False)
    else:
        mean, low, high = np.asarray(curves, float).T
        _with_band(ax, places, mean, low, high, bars=told is not None)
    if told is not None:
        words = [plain(told(value), 12) for value in at]
        ax.set_xticks(places, words, rotation=0 if max(map(len, words)) * len(words) < 24 else 30)
        ax.set_xlim(-0.5, len(at) - 0.5)
    ax.set_xlabel(plain(name, 30))
    ax.set_ylabel("probability" if labels is not None else f"predicted {plain(answer, 20)}")
    return ax


def _with_band(
    ax: Axes, places: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, *, bars: bool
) -> None:
    if bars:
        ends = np.stack([mean - low, high - mean])
        ax.errorbar(places, mean, yerr=ends, fmt="o", color=PALETTE[0], capsize=3, markersize=5)
    else:
        ax.fill_between(places, low, high, color=PALETTE[0], alpha=0.18, linewidth=0)
        ax.plot(places, mean, color=PALETTE[0], linewidth=1.8)
