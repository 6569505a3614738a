"""Pictures: functions of data and records that draw on Matplotlib axes, without pyplot and its state.

Each takes the axes to draw on, or makes a figure of its own (`result.figure.savefig(…)`).  Words and axes
have the colours of the style that is in force; `theme` is the style of the report.
"""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator
from scipy import stats

__all__ = [
    "DARK_INK",
    "INK",
    "PALETTE",
    "calibration",
    "comparison",
    "components",
    "images",
    "latent",
    "learning_curves",
    "mosaic",
    "pairs",
    "paths",
    "telling_columns",
    "theme",
]

# told apart by all three kinds of colour blindness, with contrast of at least 3 to 1 on white
PALETTE = ("#0072b2", "#d55e00", "#008c66", "#b8559a", "#2e94cc", "#a87400", "#6e6e6e")
INK, DARK_INK = "#1b1f24", "#e6e8eb"
_LN2 = math.log(2)


@contextlib.contextmanager
def theme(*, dark: bool = False) -> Iterator[None]:
    """The style of the report: few lines, transparent ground, ink for a light or a dark page.

    >>> with theme(dark=True):
    ...     axes = calibration(np.linspace(0, 1, 100))
    >>> mpl.colors.to_hex(axes.xaxis.label.get_color())
    '#e6e8eb'
    """
    ink = DARK_INK if dark else INK
    colours = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    look: dict[Any, Any] = {
        **dict.fromkeys(colours, ink),
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.7,
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.labelsize": 9.5,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "freeenergy",
    }
    with mpl.rc_context(look):
        yield


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _axes(ax: Axes | None, width: float = 4.3, height: float = 3.0) -> Axes:
    return _figure(width, height).subplots() if ax is None else ax


def _plain(text: Any, limit: int = 40) -> str:
    """Words of a user as they are: no mathematics between dollars, no underscore that hides them."""
    words = str(text) if len(str(text)) <= limit else str(text)[: limit - 1] + "…"
    words = words.replace("$", r"\$")
    return "\u200b" + words if words.startswith("_") else words


def _wrapped(text: Any) -> str:
    """Words in lines short enough for a small panel."""
    return textwrap.fill(_plain(text, 24), 12)


def _thin(X: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` rows, evenly spread."""
    return X if len(X) <= limit else X[np.linspace(0, len(X) - 1, limit).astype(int)]


def _in_two_lines(label: str) -> str:
    """A label such as `gaussian-mixture:n_components=8` with its settings below its name."""
    name, _, settings = label.partition(":" if ":" in label else "(")
    if len(label) <= 28 or not settings:
        return _plain(label, 28)
    return f"{_plain(name, 28)}\n{_plain(settings.removesuffix(')'), 36)}"


def comparison(board: Any, ax: Axes | None = None) -> Axes:
    """Paired differences to the best model of a `Comparison`, with intervals of 95 %.

    An arrow says that the number is a bound, and on which side the truth is.  Models that failed or
    call a row impossible are left out.
    """
    lines = [line for line in board.table() if line.error is None and math.isfinite(line.difference)]
    ax = _axes(ax, width=5.4, height=1.2 + 0.4 * max(len(lines), 1))
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
    ax.set_yticks(places, [_in_two_lines(line.model) for line in lines])
    ax.set_ylim(len(lines) - 0.4, -0.6)
    scale = "; logarithmic scale" if crowded else ""
    ax.set_xlabel(f"bits per sample\nmore than the best\n(left is better{scale})")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def learning_curves(histories: Sequence[Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """The objective of one model for each iteration, in bits per sample: a line for each of its fits.

    A history is that of an estimator (`history_`) or of a fold; `validation` is drawn dashed if present.

    >>> axes = learning_curves([{"objective": np.array([3.0, 2.0, 1.5])}])
    >>> axes.lines[0].get_ydata().round(2).tolist()
    [4.33, 2.89, 2.16]
    """
    ax = _axes(ax, 3.4, 2.3)
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
    ax.set_xlabel("iteration")
    ax.set_ylabel("bits per sample")
    return ax


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
    varying = _thin(varying, 300)
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
) -> np.ndarray:
    """Every two of at most five telling columns of `X` as points, each alone as a histogram.

    Args:
        X: rows of data.
        other: rows to lay beside them, such as draws of a model.
        names: of the columns.
        labels: of `X` and `other`; None for no legend.
        figure: to draw on.
        points: at most so many of each are drawn.

    Returns:
        the axes, a row and a column for each column shown; those above the diagonal are empty.
    """
    X = np.asarray(X, float)
    chosen = telling_columns(X)
    names = [f"column {j}" for j in range(X.shape[1])] if names is None else list(names)
    n = len(chosen)
    figure = _figure(0.72 + 0.96 * n, 0.7 + 0.92 * n) if figure is None else figure
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
                edges = np.linspace(low - margin, high + margin, 25)
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
                    some = _thin(values, points)
                    ax.plot(some[:, column], some[:, row], ".", color=colour, markersize=3, alpha=0.6)
                ax.yaxis.set_major_locator(MaxNLocator(3))
            ax.xaxis.set_major_locator(MaxNLocator(3))
            if i == n - 1:
                ax.set_xlabel(_wrapped(names[column]))
            if j == 0 and i > 0:
                ax.set_ylabel(_wrapped(names[row]))
            elif j > 0:
                ax.tick_params(labelleft=False)
    if labels is not None and other is not None:
        handles = [Line2D([], [], color=c, marker=".", linestyle="") for _, c in sets]
        figure.legend(handles, [_plain(label, 24) for label in labels], loc="upper right")
    return axes


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
    ax = _axes(ax, 5.0, 5.0 * whole.shape[0] / whole.shape[1])
    low, high = (None, None) if limits is None else limits
    ax.imshow(whole, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
    ax.set_axis_off()
    return ax


def paths(
    series: Sequence[np.ndarray],
    other: Sequence[np.ndarray] = (),
    ax: Axes | None = None,
    *,
    feature: int = 0,
    labels: tuple[str, str] | None = ("data", "model"),
) -> Axes:
    """One feature of each series over time, and of `other` series such as draws of a model.

    A series is an array (time, features).  `labels` are of the legend; None for none.
    """
    ax = _axes(ax, 4.3, 2.4)
    first, second = labels or (None, None)
    for group, label, colour in ((series, first, PALETTE[0]), (other, second, PALETTE[1])):
        for number, one in enumerate(group):
            values = np.asarray(one, float).reshape(len(one), -1)[:, feature]
            name = _plain(label) if number == 0 and label is not None else None
            ax.plot(np.arange(len(values)), values, color=colour, linewidth=1, alpha=0.8, label=name)
    ax.set_xlabel("time step")
    if labels is not None:
        ax.legend(loc="best")
    return ax


def _plane(z: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """Two coordinates of `z`, as they are or by principal components, and what they are called."""
    if z.shape[1] <= 2:
        return z, ("first latent coordinate", "second latent coordinate")
    centred = z - z.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    return centred @ axes.T, ("first principal component", "second principal component")


def latent(z: np.ndarray, colour: Any = None, ax: Axes | None = None, *, points: int = 400) -> Axes:
    """The hidden part of each row in the plane: two coordinates, or the principal components of more.

    `colour` has a whole number or a word for each row (shown as groups), or a real number (shown as a
    scale, called bits).
    """
    ax = _axes(ax, 3.4, 2.9)
    z = np.asarray(z, float).reshape(len(z), -1)
    kept = np.isfinite(z).all(axis=1)
    colour = np.zeros(len(z), int) if colour is None else np.asarray(colour)
    flat, (across, up) = _plane(z[kept]) if kept.any() else (z[:0, :2], ("", ""))
    flat, colour = _thin(flat, points), _thin(colour[kept], points)
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
            ax.plot(x, y, shape, color=colour_of, markersize=3, linestyle="", label=_plain(group))
        if 1 < len(groups) <= 12:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2, markerscale=1.5)
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    return ax


def calibration(
    ranks: np.ndarray, ax: Axes | None = None, *, draws: int | None = None, bins: int = 10
) -> Axes:
    """Histogram of the probability integral transform, which is flat if the model is right.

    The band holds each bar with chance 95 % under a right model: binomial for ranks that are exact,
    beta-binomial for ranks among so many `draws` of the model, which all bars share.

    >>> axes = calibration(np.linspace(0, 1, 200))
    >>> axes.patches[-1].get_data().values[:3].tolist()
    [20, 20, 20]
    """
    ax = _axes(ax, 3.4, 2.3)
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
    ax.set_ylabel("held-out rows")
    return ax


def components(
    mixture: Any,
    X: np.ndarray | None = None,
    ax: Axes | None = None,
    *,
    columns: tuple[int, int] = (0, 1),
    uncertainty: bool = False,
) -> Axes:
    """The components of a fitted `GaussianMixture` as ellipses that hold 39 % and 86 % of their mass.

    These are one and two standard deviations.  With `uncertainty` and `X`, a dashed ellipse shows where
    the mean is with confidence 95 %, from the rows that the component holds.
    """
    ax = _axes(ax, 4.5, 4.0)
    pick = np.array(columns)
    if X is not None:
        X = np.asarray(X, float)
        owner = mixture.predict(X)
        some = _thin(np.column_stack([X[:, pick], owner]), 1000)
        for number in np.unique(owner):
            chosen = some[some[:, 2] == number]
            colour = PALETTE[int(number) % len(PALETTE)]
            ax.plot(chosen[:, 0], chosen[:, 1], ".", color=colour, markersize=3, alpha=0.6)
    for number, (weight, mean, covariance) in enumerate(
        zip(mixture.weights_, mixture.means_, mixture.covariances_)
    ):
        spread, axes = np.linalg.eigh(np.asarray(covariance)[np.ix_(pick, pick)])
        angle = math.degrees(math.atan2(axes[1, 1], axes[0, 1]))
        centre = (float(mean[pick[0]]), float(mean[pick[1]]))
        sizes = [(1.0, "-"), (2.0, "-")]
        if uncertainty and X is not None:
            sizes.append((math.sqrt(5.991 / max(weight * len(X), 1.0)), "--"))
        for size, dashes in sizes:
            width, height = 2 * size * np.sqrt(spread[::-1])
            look = {"fill": False, "edgecolor": PALETTE[number % len(PALETTE)], "linestyle": dashes}
            ax.add_patch(Ellipse(centre, width, height, angle=angle, **look))
        ax.annotate(f"{weight:.0%}", centre, ha="center", va="center", fontsize=8)
    ax.autoscale_view()
    names = getattr(mixture, "feature_names_in_", None)
    labels = [f"column {j}" if names is None else _plain(names[j]) for j in columns]
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    return ax
