"""Pictures of the columns of a table: what is missing, how each is distributed, which go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..evaluation import association as associations
from ..shell import Column, Field, Schema
from ._style import PALETTE, called, ink, new_axes, new_figure, plain, table, wrapped

_LABELS = (Column.BINARY, Column.CATEGORY, Column.ORDERED)
# bars of a column: labels beyond these are one bar, whole numbers beyond these a histogram
_MOST_LABELS, _MOST_WHOLE = 10, 24
_BINS = 24
# the share on each side that is left out where the rest would take less than one part in so many
_RARE, _FAR = 0.01, 3
_MOST_COLUMNS, _MOST_ROWS = 40, 200


def missing(
    X: Any, ax: Axes | None = None, *, names: Sequence[Any] | None = None, most: int = _MOST_COLUMNS
) -> Axes:
    """Where a table has holes: a line for each column that has any, a mark for each row without a value.

    Rows are in the order of the table, so that what is missing together, or from some row on, is seen.

    Args:
        X: rows of numbers with NaN.
        ax: to draw on.
        names: of the columns.
        most: at most so many columns are shown, those with the most holes.

    >>> axes = missing([[1.0, np.nan], [2.0, 3.0]], names=["age", "income"])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['income  50%']
    """
    X = table("missing", "X", X)
    names = called("missing", names, X.shape[1], "column")
    gone = np.isnan(X)
    share = gone.mean(axis=0) if len(X) else np.zeros(X.shape[1])
    holes = np.flatnonzero(share > 0)
    shown = np.sort(holes[np.argsort(-share[holes], kind="stable")[:most]])
    ax = new_axes(ax, 5.6, 0.8 + 0.2 * max(len(shown), 1))
    rows = np.unique(np.linspace(0, max(len(X) - 1, 0), min(len(X), _MOST_ROWS)).astype(int))
    width = max(len(X), 1) / max(len(rows), 1)
    for line, column in enumerate(shown):
        spans = [(row - 0.5 * width, width) for row in rows[gone[rows, column]]]
        ax.broken_barh(_joined(spans), (line - 0.4, 0.8), color=PALETTE[1], linewidth=0)
    ax.set_yticks(
        np.arange(len(shown)), [f"{plain(names[column], 36)}  {share[column]:.0%}" for column in shown]
    )
    ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    ax.set_xlim(-0.5, max(len(X), 1) - 0.5)
    ax.tick_params(axis="y", length=0)
    told = [f"{len(rows)} of {len(X)} rows are drawn"] if len(rows) < len(X) else []
    told += [f"{len(shown)} of {len(holes)} columns with holes"] if len(shown) < len(holes) else []
    ax.set_xlabel("\n".join(["row, marked where nothing was observed", *told]))
    return ax


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Neighbouring spans as one."""
    found: list[tuple[float, float]] = []
    for start, width in spans:
        if found and abs(found[-1][0] + found[-1][1] - start) < 1e-9 * (1 + abs(start)):
            found[-1] = (found[-1][0], found[-1][1] + width)
        else:
            found.append((start, width))
    return found


def distribution(
    x: Any,
    other: Any = None,
    ax: Axes | None = None,
    *,
    field: Field | None = None,
    labels: tuple[str, str] | None = ("data", "model"),
) -> Axes:
    """One column, and beside it what a model draws for it: bars for labels and few whole numbers.

    Labels have the names that the user gave them, dates are dates.  The axis has the range of `x`, without
    the outermost hundredths where these are far off, and a quarter of it on both sides; what share lies
    beyond stands above.  Of more than ten labels those beyond the most frequent ones are one bar.

    Args:
        x: numbers, or codes; NaN is left out.
        other: the same of draws.
        ax: to draw on.
        field: what is known of the column; by default numbers without a name.
        labels: of the legend; None for none.

    >>> sex = Field("sex", Column.BINARY, ("f", "m"))
    >>> axes = distribution([0, 0, 1], [1, 1, 0], field=sex, labels=None)
    >>> [label.get_text() for label in axes.get_yticklabels()], axes.patches[0].get_width().round(2)
    (['f', 'm'], np.float64(0.67))
    """
    field = Field("", Column.CONTINUOUS) if field is None else field
    if ax is None:
        # each bar has room for the lines of the longest label
        words = _words(field)[:_MOST_LABELS]
        lines = len(words) * max((word.count("\n") + 1 for word in words), default=0)
        ax = new_axes(None, 3.0, max(2.1, 0.6 + 0.15 * lines))
    sets = [np.asarray(part, float).ravel() for part in (x, other) if part is not None]
    sets = [part[~np.isnan(part)] for part in sets]
    seen = np.unique(np.concatenate(sets)) if sets else np.empty(0)
    if field.kind in _LABELS and field.categories:
        _bars_of_labels(ax, sets, field)
    elif len(seen) and (seen == np.rint(seen)).all() and np.ptp(seen) < _MOST_WHOLE:
        _bars_of_numbers(ax, sets, field)
    else:
        _histogram(ax, sets, field)
    if str(field.name):
        ax.set_title(wrapped(field.name, 36, 2), loc="left", pad=4, fontsize="medium")
    if labels is not None and len(sets) > 1:
        marks = [ax.plot([], [], "s", color=PALETTE[k])[0] for k in range(2)]
        ax.legend(marks, [plain(label, 16) for label in labels], loc="best", handletextpad=0.2)
    return ax


def _words(field: Field) -> list[str]:
    """The labels of a column, for the side of a picture."""
    return [wrapped(field.told(float(code)), 21, 3) for code in range(len(field.categories))]


def _shares(part: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.array([np.mean(part == value) if len(part) else 0.0 for value in values])


def _bars_of_labels(ax: Axes, sets: list[np.ndarray], field: Field) -> None:
    size = len(field.categories)
    # a model of continuous columns may draw beyond the codes: what comes back to users is the nearest
    sets = [np.clip(np.rint(part), 0, size - 1) for part in sets]
    shares = np.array([_shares(part, np.arange(size)) for part in sets])
    words = _words(field)
    if size > _MOST_LABELS:
        kept = np.sort(np.argsort(-shares.max(axis=0), kind="stable")[: _MOST_LABELS - 1])
        rest = 1 - shares[:, kept].sum(axis=1)
        shares = np.column_stack([shares[:, kept], rest])
        words = [*(words[k] for k in kept), f"{size - len(kept)} others"]
    places, high = np.arange(len(words)), 0.8 / len(sets)
    for number, share in enumerate(shares):
        below = places - 0.4 + high * (number + 0.5)
        ax.barh(below, share, high, color=PALETTE[number])
    ax.set_yticks(places, words)
    ax.set_ylim(len(words) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    _in_percent(ax.xaxis)


def _bars_of_numbers(ax: Axes, sets: list[np.ndarray], field: Field) -> None:
    both = np.concatenate(sets)
    values = np.arange(both.min(), both.max() + 1)
    wide = 0.8 / len(sets)
    for number, part in enumerate(sets):
        ax.bar(values - 0.4 + wide * (number + 0.5), _shares(part, values), wide, color=PALETTE[number])
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    _in_words(ax, field)
    _in_percent(ax.yaxis)


def _histogram(ax: Axes, sets: list[np.ndarray], field: Field) -> None:
    if not sets or not len(sets[0]):
        ax.set_yticks([])
        return
    low, high = float(sets[0].min()), float(sets[0].max())
    inner = np.quantile(sets[0], [_RARE, 1 - _RARE])
    if high - low > _FAR * (inner[1] - inner[0]) > 0:
        # a few far values would press all others into one bar
        low, high = float(inner[0]), float(inner[1])
    margin = 0.25 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, _BINS + 1)
    for number, part in enumerate(sets):
        counts = np.histogram(part, edges)[0] / max(len(part), 1)
        ax.stairs(counts, edges, color=PALETTE[number], linewidth=1.4, fill=False)
        if number == 0:
            ax.stairs(counts, edges, color=PALETTE[0], alpha=0.25, fill=True, linewidth=0)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    _in_words(ax, field)
    _in_percent(ax.yaxis)
    words = []
    for part, what in zip(sets, ("data", "draws")):
        beyond = float(np.mean((part < edges[0]) | (part > edges[-1]))) if len(part) else 0.0
        words += [f"{beyond:.1%} of {what}"] if beyond else []
    if words:
        ax.set_title(f"{', '.join(words)} beyond", loc="right", pad=4, fontsize="small")


def _in_words(ax: Axes, field: Field) -> None:
    """Dates below the axis where a column has them."""
    if field.kind is Column.DATE:
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.xaxis.set_major_formatter(lambda code, _: field.told(code))


def _in_percent(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")


def distributions(
    X: Any,
    other: Any = None,
    *,
    schema: Schema | None = None,
    labels: tuple[str, str] | None = ("data", "model"),
    most: int = 12,
    figure: Any = None,
) -> np.ndarray:
    """Every column of a table, and beside it what a model draws: `distributions(X, model.sample(500))`.

    Args:
        X: a frame of pandas, Polars or Arrow, or an array.
        other: rows to lay beside them.
        schema: what the columns are; by default `Schema.recognise(X)`.
        labels: of the legend; None for none.
        most: at most so many columns are shown, the first ones.
        figure: to draw on.

    Returns:
        the axes, one for each column.

    >>> import polars as pl
    >>> people = pl.DataFrame({"age": [31.5, 47.25, 22.0], "sex": ["f", "m", "f"]})
    >>> [ax.get_title(loc="left") for ax in distributions(people)]
    ['age', 'sex']
    """
    schema = Schema.recognise(X) if schema is None else schema
    codes = schema.encode(X)
    drawn = None if other is None else schema.encode(other)
    fields = schema.modelled[:most]
    across = min(3, max(len(fields), 1))
    down = max(-(-len(fields) // across), 1)
    figure = new_figure(2.9 * across, 2.1 * down) if figure is None else figure
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for place, (ax, field) in enumerate(zip(axes, fields)):
        beside = None if drawn is None else drawn[:, place]
        distribution(codes[:, place], beside, ax, field=field, labels=labels if place == 0 else None)
    for ax in axes[len(fields) :]:
        ax.set_axis_off()
    left = len(schema.modelled) - len(fields)
    if left:
        figure.supxlabel(f"{left} more columns are not shown", fontsize="small")
    return axes[: len(fields)]


def association(
    data: Any,
    model: Any = None,
    ax: Axes | None = None,
    *,
    labels: Any = None,
    names: Sequence[Any] | None = None,
) -> Axes:
    """How strongly every two columns go together: data below the diagonal, draws of a model above it.

    The darker, the stronger, from 0 to 1: `freeenergy.evaluation.association`.  A right model has the same
    on both sides.

    Args:
        data, model: rows of numbers, labels as codes.
        ax: to draw on.
        labels: which columns are labels, True or False for each.
        names: of the columns.

    >>> axes = association([[1.0, 2.0], [2.0, 4.0], [3.0, 5.0]], names=["a", "b"])
    >>> [text.get_text() for text in axes.texts]
    ['1.00']
    """
    data = table("association", "data", data)
    size = data.shape[1]
    names = called("association", names, size, "column")
    # wide enough for the words above it
    ax = new_axes(ax, max(1.6 + 0.42 * size, 3.4), 1.35 + 0.42 * size)
    below = associations(data, labels)
    above = None if model is None else associations(model, labels)
    for i in range(size):
        for j in range(size):
            of = below if i > j else above
            if i == j or of is None:
                continue
            strength = of[i, j]
            if np.isnan(strength):
                ax.annotate("–", (j, i), ha="center", va="center", fontsize=8)
                continue
            box = ax.bar(j, 1, 1, bottom=i - 0.5, color=PALETTE[0 if i > j else 1], linewidth=0)[0]
            # darkness is strength, so that letters can be read
            box.set_alpha(0.05 + 0.6 * float(strength))
            if size <= 12:
                ax.annotate(f"{strength:.2f}", (j, i), ha="center", va="center", fontsize=8, color=ink())
    places = np.arange(size)
    ax.set_yticks(places, [wrapped(name, 22, 2) for name in names])
    ax.set_xticks(places, [wrapped(name) if size <= 6 else wrapped(name, 22, 2) for name in names])
    if size > 6:
        ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(length=0)
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)
    for side in ax.spines.values():
        side.set_visible(False)
    if above is not None:
        ax.set_title("data below the diagonal,\nmodel above", loc="left", fontsize="medium", pad=4)
    return ax
