"""Pictures of what a fitted model is made of: components, loadings, topics, atoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.patches import Ellipse, Rectangle
from matplotlib.ticker import MaxNLocator

from ._rows import mosaic
from ._style import PALETTE, called, ink, new_axes, new_figure, plain, shade, spreads, table, thin, wrapped

_MOST_LINES = 30
_MOST_FACTORS = 6


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
    ax = new_axes(ax, 4.5, 4.0)
    pick = np.array(columns)
    if X is not None:
        X = np.asarray(X, float)
        owner = np.asarray(mixture.predict(X))
        some = thin(np.column_stack([X[:, pick], owner]), 1000)
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
    labels = [f"column {j}" if names is None else plain(names[j]) for j in columns]
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    return ax


def profiles(
    means: Any,
    spread: Any = None,
    weights: Any = None,
    *,
    names: Sequence[Any] | None = None,
    most: int = 6,
    figure: Any = None,
) -> np.ndarray:
    """The components of a mixture of any dimension, the heaviest first: means with bars.

    With a mixture: `profiles(model.means_, model.covariances_, model.weights_)`.  The bars are what is
    passed: standard deviations, or the standard errors of the means.

    Args:
        means: (components, columns).
        spread: (components, columns), or (components, columns, columns) covariances.
        weights: (components,) shares of the components, as bars.
        names: of the columns.
        most: so many columns are shown, those in which the components are furthest apart.
        figure: to draw on.

    Returns:
        the axes: that of the weights, if they are passed, and one for each column shown.

    >>> axes = profiles([[0.0], [5.0]], [[1.0], [1.0]], [0.3, 0.7])
    >>> [label.get_text() for label in axes[0].get_yticklabels()]
    ['component 1', 'component 0']
    """
    means = table("profiles", "means", means)
    size, columns = means.shape
    std = spreads("profiles", np.ones_like(means) if spread is None else spread, means, "component")
    names = called("profiles", names, columns, "column")
    share = np.ones(size) if weights is None else np.asarray(weights, float)
    order = np.argsort(-share, kind="stable")[:_MOST_LINES]
    # columns in which components differ, in units of their own spread
    with np.errstate(over="ignore"):
        apart = np.var(means, axis=0) / np.maximum(np.mean(std**2, axis=0), np.finfo(float).tiny)
    chosen = np.sort(np.argsort(-apart, kind="stable")[:most])
    panels = len(chosen) + (weights is not None)
    height = 0.75 + 0.22 * len(order)
    figure = new_figure(1.0 + 1.2 * panels, max(height, 1.4)) if figure is None else figure
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    lines = np.arange(len(order))
    rest = list(axes)
    if weights is not None:
        bars = rest.pop(0)
        bars.barh(lines, share[order], color=[shade(k) for k in order], height=0.65)
        for line, k in enumerate(order):
            bars.annotate(
                f"{share[k]:.0%}",
                (share[k], line),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        bars.set_xlim(0, 1.45 * share.max())
        bars.set_xticks([])
        bars.spines["bottom"].set_visible(False)
        bars.set_xlabel("weight")
    for ax, column in zip(rest, chosen):
        for line, k in enumerate(order):
            bar = None if spread is None else std[k, column]
            ax.errorbar(
                means[k, column], line, xerr=bar, fmt="o", markersize=4, color=shade(k), linewidth=1.6
            )
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.set_xlabel(wrapped(names[column]))
        ax.grid(axis="y", color=ink(), alpha=0.12, linewidth=0.6)
        ax.margins(x=0.12)
    axes[0].set_yticks(lines, [f"component {k}" for k in order])
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    return axes


def loadings(
    components: Any,
    *,
    scale: Any = None,
    names: Sequence[Any] | None = None,
    factors: Sequence[Any] | None = None,
    most: int = 24,
    figure: Any = None,
) -> np.ndarray:
    """How much of each factor is in each column, as bars: to the left what falls with it.

    Columns are in the order of the factor that moves them most.  With a factor analysis:
    `loadings(model.components_, scale=X.std(axis=0))`, or of `model.rotate(Varimax()).components`.

    Args:
        components: (factors, columns).
        scale: (columns,) standard deviations of the columns, which gives all of them one unit.
        names: of the columns.
        factors: their names.
        most: so many columns are shown, those with the largest bars; of the factors the largest six.
        figure: to draw on.

    Returns:
        the axes, one for each factor shown.

    >>> axes = loadings([[0.1, 0.9], [2.0, 0.0]], names=["a", "b"])
    >>> [label.get_text() for label in axes[0].get_yticklabels()]
    ['b', 'a']
    """
    W = np.atleast_2d(np.asarray(components, float))
    W = table("loadings", "components", W)
    if scale is not None:
        W = W / np.where(np.asarray(scale, float) > 0, scale, 1.0)
    names = called("loadings", names, W.shape[1], "column")
    factors = called("loadings", factors, W.shape[0], "factor")
    kept = np.sort(np.argsort(-(W**2).sum(axis=1), kind="stable")[:_MOST_FACTORS])
    size = np.abs(W[kept])
    owner, largest = size.argmax(axis=0), size.max(axis=0)
    columns = np.argsort(-largest, kind="stable")[:most]
    columns = columns[np.lexsort((-largest[columns], owner[columns]))]
    figure = (
        new_figure(1.2 + 1.15 * len(kept), 0.7 + 0.19 * len(columns) + 0.2) if figure is None else figure
    )
    axes = figure.subplots(1, len(kept), sharex=True, sharey=True, squeeze=False)[0]
    lines = np.arange(len(columns))
    reach = 1.08 * float(largest[columns].max()) or 1.0
    for ax, k in zip(axes, kept):
        values = W[k, columns]
        ax.barh(lines, values, color=np.where(values < 0, PALETTE[1], PALETTE[0]).tolist(), height=0.7)
        ax.axvline(0, color=ink(), linewidth=0.7)
        ax.set_title(plain(factors[k], 18), fontsize="medium")
        ax.xaxis.set_major_locator(MaxNLocator(2, symmetric=True))
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(lines, [plain(names[j], 36) for j in columns])
    axes[0].set_ylim(len(columns) - 0.5, -0.5)
    axes[0].set_xlim(-reach, reach)
    left_out = []
    if len(kept) < len(W):
        left_out.append(f"{len(kept)} of {len(W)} factors")
    if len(columns) < W.shape[1]:
        left_out.append(f"{len(columns)} of {W.shape[1]} columns")
    figure.supxlabel("loading" + (f" ({', '.join(left_out)})" if left_out else ""), fontsize="medium")
    return axes


def topics(
    components: Any,
    vocabulary: Sequence[Any] | None = None,
    *,
    weights: Any = None,
    words: int = 8,
    columns: int = 4,
    most: int = 12,
    figure: Any = None,
) -> np.ndarray:
    """The most probable words of each topic with their probabilities.

    With a topic model: `topics(model.components_, vocabulary, weights=model.transform(X).mean(axis=0))`.

    Args:
        components: (topics, words) probabilities.
        vocabulary: the words; `word 0`, … by default.
        weights: (topics,) shares of the topics, which then stand in the titles and give the order.
        words: so many of each topic.
        columns: topics side by side.
        most: so many topics are shown, the first or those with the largest shares.
        figure: to draw on.

    Returns:
        the axes, one for each topic shown.

    >>> axes = topics([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], ["sea", "sky", "land"], words=2)
    >>> [label.get_text() for label in axes[0].get_yticklabels()]
    ['sea', 'sky']
    """
    phi = table("topics", "components", components)
    vocabulary = called("topics", vocabulary, phi.shape[1], "word")
    share = np.zeros(len(phi)) if weights is None else np.asarray(weights, float)
    order = np.argsort(-share, kind="stable")[:most]
    words, columns = min(words, phi.shape[1]), min(columns, len(order))
    lines = -(-len(order) // columns)
    figure = new_figure(1.75 * columns, lines * (0.45 + 0.19 * words)) if figure is None else figure
    axes = figure.subplots(lines, columns, sharex=True, squeeze=False).ravel()
    for ax, k in zip(axes, order):
        best = np.argsort(-phi[k], kind="stable")[:words]
        ax.barh(np.arange(words), phi[k, best], color=PALETTE[0], height=0.65)
        ax.set_yticks(np.arange(words), [plain(vocabulary[w], 16) for w in best])
        ax.set_ylim(words - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        title = f"topic {k}" if weights is None else f"topic {k} ({share[k]:.0%})"
        ax.set_title(title, fontsize="medium", loc="left", pad=3)
    for ax in axes[len(order) :]:
        ax.set_axis_off()
    rest = "" if len(order) == len(phi) else f" ({len(order)} of {len(phi)} topics)"
    figure.supxlabel(f"probability of the word{rest}", fontsize="medium")
    return axes[: len(order)]


def atoms(
    components: Any,
    shape: tuple[int, int],
    codes: Any = None,
    ax: Axes | None = None,
    *,
    columns: int = 10,
    most: int = 100,
) -> Axes:
    """Rows of a dictionary (or factors, or filters) as images: blue above zero, orange below it.

    Each has a scale of its own.  With sparse coding:
    `atoms(model.components_, (8, 8), model.transform(X))`.

    Args:
        components: (atoms, pixels).
        shape: height and width.
        codes: (rows, atoms) how much of each atom is in each row: the atoms that do most come first.
        ax: to draw on.
        columns: atoms side by side.
        most: so many are shown.

    >>> atoms([[0.0, 1.0, 2.0, -4.0]], (2, 2)).images[0].get_array().tolist()
    [[0.0, 0.25], [0.5, -1.0]]
    """
    C = np.atleast_2d(np.asarray(components, float))
    if C.ndim != 2 or C.shape[1] != shape[0] * shape[1]:
        raise ValueError(
            f"The 'components' of atoms must have {shape[0] * shape[1]} columns for images of {shape[0]} × "
            f"{shape[1]}. Got the shape {C.shape} instead."
        )
    use = np.zeros(len(C))
    if codes is not None:
        use = np.abs(table("atoms", "codes", codes)).mean(axis=0) * np.linalg.norm(C, axis=1)
    C = C[np.argsort(-use, kind="stable")[:most]]
    largest = np.abs(C).max(axis=1, keepdims=True)
    whole = mosaic(C / np.where(largest > 0, largest, 1.0), shape, columns)
    ax = new_axes(ax, 5.0, 5.0 * whole.shape[0] / whole.shape[1])
    # nothing is transparent, so that it suits any ground
    low, high = (to_rgba(PALETTE[1]), to_rgba(PALETTE[0]))
    scale = LinearSegmentedColormap.from_list("signed", [low, (*low[:3], 0), (*high[:3], 0), high])
    ax.imshow(whole, cmap=scale, vmin=-1, vmax=1, interpolation="nearest")
    height, width = shape
    for number in range(len(C)):
        line, column = divmod(number, min(columns, len(C)))
        corner = (column * (width + 1) - 0.5, line * (height + 1) - 0.5)
        ax.add_patch(
            Rectangle(
                corner, width, height, fill=False, edgecolor=ink(), alpha=0.3, linewidth=0.5, clip_on=False
            )
        )
    ax.set_axis_off()
    return ax
