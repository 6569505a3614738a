"""Pictures of a comparison and of fits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from scipy import stats

from ..evaluation import wilson_interval
from ._style import PALETTE, new_axes, short_names, wrapped

_LN2 = math.log(2)
# the share of steps that are left out where the rest would take less than one part in so many
_FEW, _FAR = 0.1, 5


def comparison(board: Any, ax: Axes | None = None) -> Axes:
    """Paired differences to the best model of a `Comparison`, with intervals of 95 %.

    An arrow says that the number is a bound, and on which side the truth is.  Models that failed, call a
    row impossible or only draw are left out.
    """
    everything = board.table()
    names = short_names([line.model for line in everything])
    lines = [line for line in everything if line.error is None and math.isfinite(line.difference)]
    ax = new_axes(ax, width=5.4, height=1.2 + 0.4 * max(len(lines), 1))
    places = np.arange(len(lines))
    differences = np.array([line.difference for line in lines])
    halves = 1.96 * np.nan_to_num(np.array([line.difference_stderr for line in lines]))
    reach = float(np.max(np.abs(differences) + halves, initial=0.0)) or 1.0
    others = np.abs(differences[1:])
    # one model far off would press all the others into a corner
    near = float(np.median(others)) if len(others) else reach
    crowded = 0 < near < reach / 8
    if crowded:
        ax.set_xscale("symlog", linthresh=near, linscale=1.5)
        ax.set_xticks(_few_ticks(near, reach), minor=False)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(0, color=mpl.rcParams["axes.edgecolor"], linewidth=0.7, linestyle=":")
    for place, line, difference, half in zip(places, lines, differences, halves):
        colour = PALETTE[1] if place == 0 else PALETTE[0]
        ax.errorbar(difference, place, xerr=half, fmt="o", markersize=5, color=colour, capsize=2.5)
        side = {"lower bound": -1, "upper bound": 1}.get(line.kind.value, 0)
        if side:
            ax.annotate(
                "",
                xy=(difference, place),
                xytext=(side * 24, 0),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<-", "color": colour, "linewidth": 1.2},
            )
    ax.margins(x=0.14)  # room for an arrow
    ax.set_yticks(places, [wrapped(names[line.model], 32, 2) for line in lines])
    ax.set_ylim(len(lines) - 0.4, -0.6)
    scale = "; logarithmic scale" if crowded else ""
    left_out = len(everything) - len(lines)
    why = "failed, infinite or without bits"
    rest = f"\n{left_out} of {len(everything)} models are not shown:\n{why}" if left_out else ""
    ax.set_xlabel(f"bits per sample\nmore than the best\n(left is better{scale}){rest}")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def _few_ticks(near: float, reach: float) -> list[float]:
    """Zero and at most three round numbers from `near` to `reach`, as far apart on a logarithmic scale.

    >>> _few_ticks(0.3, 2000.0), _few_ticks(1.05, 9.9)
    ([0.0, 1.0, 100.0, 1000.0], [0.0, 2.0, 5.0])
    """
    tens = 10.0 ** np.arange(math.floor(math.log10(near)), math.floor(math.log10(reach)) + 1)
    found = tens[(near <= tens) & (tens <= reach)]
    if len(found) < 2:
        finer = np.outer(tens, [1.0, 2.0, 5.0]).ravel()
        found = finer[(near <= finer) & (finer <= reach)]
    kept = np.unique(np.linspace(0, len(found) - 1, min(len(found), 3)).round().astype(int))
    return [0.0, *found[kept].tolist()]


def learning_curves(
    histories: Sequence[Mapping[str, Any]], ax: Axes | None = None, *, unit: str = "bits per sample"
) -> Axes:
    """The objective of one model for each iteration, in bits per sample: a line for each of its fits.

    A history is that of an estimator (`history_`) or of a fold; `validation` is drawn dashed if present.
    Those of series are in bits per step, which `unit` says.

    >>> axes = learning_curves([{"objective": np.array([3.0, 2.0, 1.5])}])
    >>> axes.lines[0].get_ydata().round(2).tolist()
    [4.33, 2.89, 2.16]
    """
    ax = new_axes(ax, 3.4, 2.3)
    longest = 1
    for name, colour, dashes in (("objective", PALETTE[0], "-"), ("validation", PALETTE[1], "--")):
        curves = [np.atleast_1d(np.asarray(h[name], float)) / _LN2 for h in histories if name in h]
        for number, curve in enumerate(curves):
            label = {"objective": "training", "validation": "validation"}[name] if number == 0 else None
            marker = "o" if len(curve) == 1 else None
            steps = np.arange(1, len(curve) + 1)
            ax.plot(
                steps, curve, dashes, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label
            )
            longest = max(longest, len(curve))
    if any("validation" in h for h in histories):
        ax.legend()
    if longest > 20:
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _near(ax, [line.get_ydata() for line in ax.lines])
    ax.set_xlabel("iteration")
    ax.set_ylabel(unit)
    return ax


def _near(ax: Axes, curves: Sequence[Any]) -> None:
    """Ends the axis where all but a few steps are, and says how many are above it."""
    values = np.concatenate(
        [curve[np.isfinite(curve)] for curve in map(np.asarray, curves)] or [np.empty(0)]
    )
    if not len(values):
        return
    low, usual, high = np.quantile(values, [0, 1 - _FEW, 1])
    start = max(
        (float(curve[0]) for curve in map(np.asarray, curves) if np.isfinite(curve[0])), default=low
    )
    usual = max(usual, start)
    if high - low <= _FAR * (usual - low) or usual == low:
        return
    margin = 0.05 * (usual - low)
    ax.set_ylim(low - margin, usual + 2 * margin)
    beyond = int(np.sum(values > usual + 2 * margin))
    ax.set_title(
        f"{beyond} of {len(values)} steps above, up to {high:.3g}", loc="right", pad=4, fontsize="small"
    )


def calibration(
    ranks: np.ndarray,
    ax: Axes | None = None,
    *,
    draws: int | None = None,
    bins: int = 10,
    what: str = "held-out rows",
) -> Axes:
    """Histogram of the probability integral transform, which is flat if the model is right.

    The band holds each bar with chance 95 % under a right model: binomial for ranks that are exact,
    beta-binomial for ranks among so many `draws` of the model, which all bars share.  `what` is counted.

    >>> axes = calibration(np.linspace(0, 1, 200))
    >>> axes.patches[-1].get_data().values[:3].tolist()
    [20, 20, 20]
    """
    ax = new_axes(ax, 3.4, 2.3)
    ranks = np.asarray(ranks, float)
    ranks = ranks[np.isfinite(ranks)]
    counts, edges = np.histogram(ranks, np.linspace(0, 1, bins + 1))
    low, high = stats.binom.interval(0.95, len(ranks), 1 / bins)
    if draws is not None:
        part = (draws + 1) / bins
        low, high = stats.betabinom.interval(0.95, len(ranks), part, draws + 1 - part)
    ink = mpl.rcParams["text.color"]
    ax.axhspan(low, high, color=ink, alpha=0.13, linewidth=0)
    ax.axhline(len(ranks) / bins, color=ink, linewidth=0.8, linestyle="--")
    ax.stairs(counts, edges, color=PALETTE[0], linewidth=1.8)
    ax.set_ylim(0, 1.08 * max(high, counts.max(initial=1)))
    ax.set_xlim(0, 1)
    ax.set_xlabel("rank among draws of the model")
    ax.set_ylabel(what)
    return ax


def reliability(curve: Any, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """A `Reliability` curve: how often what is said with some confidence comes true.

    Intervals are of 95 %.  On the diagonal a classifier means what it says; below it, it is too sure.

    >>> from freeenergy.evaluation import reliability as measured
    >>> axes = reliability(measured([0.8] * 10, [1] * 8 + [0] * 2))
    >>> axes.lines[-1].get_ydata().tolist()
    [0.8]
    """
    new = ax is None
    ax = new_axes(ax, 3.0, 3.0)
    if new or not ax.lines:
        ax.plot([0, 1], [0, 1], color=mpl.rcParams["axes.edgecolor"], linewidth=0.7, linestyle=":")
    hits = np.rint(curve.frequency * curve.counts).astype(int)
    ends = [wilson_interval(np.arange(n) < k) for k, n in zip(hits, curve.counts, strict=True)]
    colour = PALETTE[len(ax.collections) % len(PALETTE)]
    ax.vlines(
        curve.confidence, [end.low for end in ends], [end.high for end in ends], color=colour, linewidth=1.0
    )
    ax.plot(curve.confidence, curve.frequency, "o-", color=colour, markersize=4, linewidth=1.2, label=label)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xlabel("said")
    ax.set_ylabel("came true")
    if label is not None:
        ax.legend()
    return ax
