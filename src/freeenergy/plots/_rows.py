"""Pictures of rows: pairs of columns, images, hidden coordinates."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy import stats

from ._style import PALETTE, new_axes, new_figure, plain, thin, wrapped


def telling_columns(X: np.ndarray, most: int = 5) -> np.ndarray:
    """The columns that depend most on others, by rank correlation, in their own order.

    >>> telling_columns(np.array([[1.0, 5.0, 2.0], [2.0, 5.0, 4.0], [3.0, 5.0, 6.0]]), 2).tolist()
    [0, 2]
    """
    middle = np.nanmedian(np.where(np.isnan(X).all(axis=0), 0.0, X), axis=0)
    filled = np.where(np.isnan(X), middle, X)
    varying = np.flatnonzero(np.ptp(filled, axis=0) > 0) if len(X) else np.arange(0)
    if len(varying) <= most:
        return varying if len(varying) else np.arange(min(X.shape[1], 1))
    varying = thin(varying, 300)
    ranks = stats.rankdata(filled[:, varying], axis=0)
    together = np.corrcoef(ranks, rowvar=False) ** 2
    return np.sort(varying[np.argsort(-together.sum(axis=0), kind="stable")[:most]])


def pairs(
    X: np.ndarray,
    other: np.ndarray | None = None,
    *,
    names: Sequence[str] | None = None,
    labels: tuple[str, str] | None = ("data", "model"),
    figure: Any = None,
    points: int = 100,
    formats: Mapping[int, Callable[[float], str]] | None = None,
) -> np.ndarray:
    """Every two of at most five telling columns of `X` as points, each alone as a histogram.

    Args:
        X: rows of data.
        other: rows to lay beside them, such as draws of a model.
        names: of the columns.
        labels: of `X` and `other`; None for no legend.
        figure: to draw on.
        points: at most so many of each are drawn.
        formats: for some columns, how the numbers below an axis are written, such as dates.

    The axes have the range of `X` and a quarter of it on both sides, so that far rows of `other` do not
    hide the data; how many lie outside, and how many are drawn as points, stands below.

    Returns:
        the axes, a row and a column for each column shown; those above the diagonal are empty.
    """
    X = np.asarray(X, float)
    chosen = telling_columns(X)
    names = [f"column {j}" for j in range(X.shape[1])] if names is None else list(names)
    n = len(chosen)
    figure = new_figure(0.72 + 0.96 * n, 0.7 + 0.92 * n) if figure is None else figure
    axes = figure.subplots(n, n, squeeze=False, sharex="col")
    sets = [(X, PALETTE[0])] + ([] if other is None else [(np.asarray(other, float), PALETTE[1])])
    for i, row in enumerate(chosen):
        for j, column in enumerate(chosen):
            ax = axes[i, j]
            if j > i:
                ax.set_axis_off()
                continue
            # far draws of a model would hide the data
            low, high = np.nanmin(X[:, column]), np.nanmax(X[:, column])
            margin = 0.25 * (high - low) or 0.5
            ax.set_xlim(low - margin, high + margin)
            if i == j:
                edges = _edges(X[:, column], low - margin, high + margin)
                for values, colour in sets:
                    kept = values[np.isfinite(values[:, row]), row]
                    # a density of all of them, also of those that are out of sight
                    share = np.full(len(kept), 1 / (max(len(kept), 1) * (edges[1] - edges[0])))
                    ax.hist(kept, edges, weights=share, histtype="step", color=colour, linewidth=1.2)
                ax.set_yticks([])
                ax.spines["left"].set_visible(False)
            else:
                low, high = np.nanmin(X[:, row]), np.nanmax(X[:, row])
                margin = 0.25 * (high - low) or 0.5
                ax.set_ylim(low - margin, high + margin)
                for values, colour in sets:
                    some = thin(values, points)
                    ax.plot(some[:, column], some[:, row], ".", color=colour, markersize=3, alpha=0.6)
                ax.yaxis.set_major_locator(MaxNLocator(3))
            ax.xaxis.set_major_locator(MaxNLocator(3))
            for axis, shown in ((ax.xaxis, column), (ax.yaxis, row)):
                written = (formats or {}).get(int(shown))
                if written is not None and (axis is ax.xaxis or i != j):
                    axis.set_major_locator(MaxNLocator(2))
                    axis.set_major_formatter(lambda code, _, written=written: written(code))
                    if axis is ax.xaxis:
                        ax.tick_params(axis="x", labelrotation=90)
            if i == n - 1:
                ax.set_xlabel(wrapped(names[column]))
            if j == 0 and i > 0:
                ax.set_ylabel(wrapped(names[row]))
            elif j > 0:
                ax.tick_params(labelleft=False)
    words = _not_shown(sets, axes, chosen, points)
    if words:
        # some sixteen small letters to the inch
        lines = textwrap.wrap(words, int(16 * figure.get_size_inches()[0]))
        figure.supxlabel("\n".join(lines), fontsize="small")
    if labels is not None and other is not None:
        handles = [Line2D([], [], color=c, marker=".", linestyle="") for _, c in sets]
        figure.legend(handles, [plain(label, 24) for label in labels], loc="upper right")
    return axes


def _not_shown(
    sets: list[tuple[np.ndarray, str]], axes: np.ndarray, chosen: np.ndarray, points: int
) -> str:
    """How many rows are drawn, and how many of the second set lie outside of the axes."""
    words = []
    if len(chosen) > 1 and any(len(values) > points for values, _ in sets):
        sizes = " and ".join(f"{min(points, len(values))} of {len(values)}" for values, _ in sets)
        words.append(f"points: {sizes} rows")
    if len(sets) > 1 and len(chosen):
        shown = sets[1][0][:, chosen]
        low, high = np.array([axes[k, k].get_xlim() for k in range(len(chosen))]).T
        outside = int(np.sum(~((shown >= low[None]) & (shown <= high[None])).all(axis=1)))
        if outside:
            words.append(f"{outside} of {len(shown)} draws lie outside")
    return "; ".join(words)


def mosaic(X: np.ndarray, shape: tuple[int, int], columns: int = 10) -> np.ndarray:
    """Rows of `X` as images of `shape`, side by side, with a line of NaN between them.

    >>> mosaic(np.arange(8.0).reshape(2, 4), (2, 2)).tolist()
    [[0.0, 1.0, nan, 4.0, 5.0], [2.0, 3.0, nan, 6.0, 7.0]]
    """
    X = np.asarray(X, float)
    height, width = shape
    columns = max(min(columns, len(X)), 1)
    lines = max(-(-len(X) // columns), 1)
    whole = np.full((lines * (height + 1) - 1, columns * (width + 1) - 1), np.nan)
    for number, image in enumerate(X):
        top, left = (number // columns) * (height + 1), (number % columns) * (width + 1)
        whole[top : top + height, left : left + width] = image.reshape(shape)
    return whole


def images(
    X: np.ndarray,
    shape: tuple[int, int],
    ax: Axes | None = None,
    *,
    columns: int = 10,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """Rows of `X` as images of `shape`, large values dark; `limits` are the values of white and black."""
    whole = mosaic(X, shape, columns)
    ax = new_axes(ax, 5.0, 5.0 * whole.shape[0] / whole.shape[1])
    low, high = (None, None) if limits is None else limits
    ax.imshow(whole, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
    ax.set_axis_off()
    return ax


def _plane(z: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """Two coordinates of `z`, as they are or by principal components, and what they are called."""
    if z.shape[1] <= 2:
        return z, ("first latent coordinate", "second latent coordinate")
    centred = z - z.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    return centred @ axes.T, ("first principal component", "second principal component")


def _edges(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The ends of 24 bars; those of whole numbers hold equally many of them, or some would be empty."""
    seen = values[np.isfinite(values)]
    if (np.rint(seen) != seen).any():
        return np.linspace(low, high, 25)
    step = max(math.ceil((high - low) / 24), 1)
    return np.arange(math.floor(low) - 0.5, math.ceil(high) + step, step)


def latent(z: np.ndarray, colour: Any = None, ax: Axes | None = None, *, points: int = 400) -> Axes:
    """The hidden part of each row in the plane: two coordinates, or the principal components of more.

    `colour` has a whole number or a word for each row (shown as groups), or a real number (shown as a
    scale, called bits).
    """
    ax = new_axes(ax, 3.4, 2.9)
    z = np.asarray(z, float).reshape(len(z), -1)
    kept = np.isfinite(z).all(axis=1)
    colour = np.zeros(len(z), int) if colour is None else np.asarray(colour)
    flat, (across, up) = _plane(z[kept]) if kept.any() else (z[:0, :2], ("", ""))
    flat, colour = thin(flat, points), thin(colour[kept], points)
    if len(flat) < len(z):
        ax.set_title(f"{len(flat)} of {len(z)} rows", fontsize="medium")
    if flat.shape[1] == 1:
        # one coordinate: its rank spreads the points, so that dense places are steep
        flat = np.column_stack([flat[:, 0], stats.rankdata(flat[:, 0]) / max(len(flat), 1)])
        up = "share of rows below"
    if np.issubdtype(colour.dtype, np.floating):
        # from one colour to another that are seen on any ground
        scale = LinearSegmentedColormap.from_list("bits", PALETTE[:2])
        dots = ax.scatter(*flat.T, c=colour, s=9, cmap=scale, linewidths=0)
        ax.figure.colorbar(dots, ax=ax, label="bits", shrink=0.8)
    else:
        groups = np.unique(colour)
        for number, group in enumerate(groups):
            chosen = colour == group
            x, y = flat[chosen].T
            shape = "os^Dv<>P"[number % 8]
            colour_of = PALETTE[number % len(PALETTE)]
            ax.plot(x, y, shape, color=colour_of, markersize=3, linestyle="", label=plain(group))
        if 1 < len(groups) <= 12:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2, markerscale=1.5)
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    return ax
