"""Pictures of series: paths, hidden states, parts and forecasts over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ._style import (
    PALETTE,
    called,
    ink,
    new_axes,
    new_figure,
    plain,
    shade,
    spreads,
    table,
    width_of,
    wrapped,
)

_WIDTH = 5.6
# letters of a title as wide as the axes
_TITLE = 76
_MOST_STATES = 20


def paths(
    series: Sequence[np.ndarray],
    other: Sequence[np.ndarray] = (),
    ax: Axes | None = None,
    *,
    feature: int = 0,
    labels: tuple[str, str] | None = ("data", "model"),
    dates: Sequence[str] | None = None,
) -> Axes:
    """One feature of each series over time, and of `other` series such as draws of a model.

    A series is an array (time, features).  `labels` are of the legend; None for none.  `dates` are what
    the steps are called.
    """
    ax = new_axes(ax, 4.3, 2.4)
    first, second = labels or (None, None)
    for group, label, colour in ((series, first, PALETTE[0]), (other, second, PALETTE[1])):
        for number, one in enumerate(group):
            values = np.asarray(one, float).reshape(len(one), -1)[:, feature]
            name = plain(label) if number == 0 and label is not None else None
            ax.plot(np.arange(len(values)), values, color=colour, linewidth=1, alpha=0.8, label=name)
    _dated(ax, dates)
    if labels is not None:
        ax.legend(loc="best")
    return ax


def _one_series(owner: str, X: Any) -> np.ndarray:
    if np.ndim(X) > 2 or (isinstance(X, (list, tuple)) and np.ndim(X[0]) > 1):
        raise ValueError(f"The 'X' of {owner} must be one series, of shape (time, features).")
    return table(owner, "X", X)


def _dated(ax: Axes, dates: Sequence[str] | None) -> None:
    """What the steps below an axis are called: by their dates, or by their number."""
    if dates is None:
        ax.set_xlabel("time step")
        return
    known = list(dates)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(
        lambda place, _: known[round(place)] if 0 <= round(place) < len(known) else ""
    )


def _line(ax: Axes, values: np.ndarray, *, start: int = 0, label: str | None = None) -> None:
    """A series in ink; values whose neighbours are missing are dots."""
    time = start + np.arange(len(values))
    seen = np.concatenate([[False], np.isfinite(values), [False]])
    alone = seen[1:-1] & ~seen[:-2] & ~seen[2:]
    ax.plot(time, values, color=ink(), linewidth=0.9, label=label)
    ax.plot(time[alone], values[alone], ".", color=ink(), markersize=3)


def _band(ax: Axes, start: int, mean: Any, low: Any, high: Any, colour: str, label: str) -> None:
    time = start + np.arange(len(mean))
    ax.fill_between(time, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.plot(time, mean, color=colour, linewidth=1.3, label=label)


def _stacked(figure: Any, heights: Sequence[float]) -> np.ndarray:
    """Axes one below the other that share the time."""
    figure = new_figure(_WIDTH, sum(heights) + 0.5) if figure is None else figure
    return figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]


def _title(ax: Axes, text: str) -> None:
    ax.set_title(text, loc="left", pad=3, fontsize="medium")
    ax.yaxis.set_major_locator(MaxNLocator(4))


def _runs(path: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and last step of each stay in a state, and the state."""
    first = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]]))
    last = np.concatenate([first[1:] - 1, [len(path) - 1]])
    return first, last, path[first]


def decoded(
    X: Any,
    probabilities: Any,
    path: Any = None,
    *,
    columns: Sequence[int] | None = None,
    names: Sequence[Any] | None = None,
    states: Sequence[Any] | None = None,
    dates: Sequence[str] | None = None,
    figure: Any = None,
) -> np.ndarray:
    """A series on a ground coloured by its hidden states, and below it a row for each state.

    The row of a state is as thick as its probability; the line in it is the decoded path.  With an HMM:
    `decoded(X, model.smooth(X), model.decode(X))`.

    Args:
        X: one series, (time, features); NaN is a gap.
        probabilities: (time, states) of each state at each step.
        path: (time,) the number of the state at each step; by default the most probable one, without
            a line.
        columns: those of X to show; by default the first three.
        names: of all columns of X.
        states: their names.
        dates: what the steps are called.
        figure: to draw on.

    Returns:
        the axes, one for each column shown and one for the states.

    >>> axes = decoded([1.0, 2.0, 9.0], [[0.9, 0.1], [0.8, 0.2], [0.0, 1.0]])
    >>> [label.get_text() for label in axes[-1].get_yticklabels()]
    ['state 0', 'state 1']
    """
    X, p = _one_series("decoded", X), table("decoded", "probabilities", probabilities)
    best = p.argmax(axis=1) if path is None else np.asarray(path, int)
    if not len(X) == len(p) == len(best):
        raise ValueError(
            "The series, probabilities and path of decoded must have the same number of steps. "
            f"Got {len(X)}, {len(p)} and {len(best)} instead."
        )
    chosen = list(range(X.shape[1]))[:3] if columns is None else list(columns)
    names = called("decoded", names, X.shape[1], "column")
    states = called("decoded", states, p.shape[1], "state")
    shown = np.arange(p.shape[1])
    if len(shown) > _MOST_STATES:
        shown = np.sort(np.argsort(-p.sum(axis=0), kind="stable")[:_MOST_STATES])
    axes = _stacked(figure, [1.1] * len(chosen) + [0.25 + 0.21 * len(shown)])
    first, last, where = _runs(best)
    for ax, column in zip(axes, chosen):
        if p.shape[1] <= len(PALETTE):
            for state in np.unique(where):
                mine = where == state
                spans = list(zip(first[mine] - 0.5, last[mine] - first[mine] + 1))
                across = ax.get_xaxis_transform()
                ax.broken_barh(spans, (0, 1), transform=across, color=shade(state), alpha=0.22, linewidth=0)
        else:  # more states than colours: only where they change
            ax.vlines(first[1:] - 0.5, 0, 1, transform=ax.get_xaxis_transform(), color=ink(), linewidth=0.3)
        _line(ax, X[:, column])
        _title(ax, plain(names[column], _TITLE))
    rows, time = axes[-1], np.arange(len(p))
    for place, state in enumerate(shown):
        half = 0.42 * np.nan_to_num(p[:, state])
        rows.fill_between(
            time, place - half, place + half, step="mid", color=shade(state), alpha=0.75, linewidth=0
        )
        if path is not None:
            mine = where == state
            rows.hlines(np.full(mine.sum(), place), first[mine] - 0.5, last[mine] + 0.5, ink(), linewidth=1)
    rows.set_yticks(np.arange(len(shown)), [plain(states[state], 30) for state in shown])
    rows.set_ylim(len(shown) - 0.5, -0.5)
    rows.tick_params(axis="y", length=0)
    if len(shown) < p.shape[1]:
        rows.set_title(f"{len(shown)} of {p.shape[1]} states", loc="left", pad=3, fontsize="medium")
    rows.set_xlim(-0.5, len(p) - 0.5)
    _dated(rows, dates)
    return axes


def smoothed(
    mean: Any,
    spread: Any,
    X: Any = None,
    *,
    level: float = 0.95,
    names: Sequence[Any] | None = None,
    most: int = 6,
    dates: Sequence[str] | None = None,
    figure: Any = None,
) -> np.ndarray:
    """Means over time with bands that hold the truth with probability `level`, one below the other.

    With a state-space model: `smoothed(*model.smooth(X))`.

    Args:
        mean: (time, states).
        spread: (time, states) standard deviations, or (time, states, states) covariances.
        X: (time, states) measurements of the same things, as dots.
        level: of the bands.
        names: of the states.
        most: at most so many are shown.
        dates: what the steps are called.
        figure: to draw on.

    >>> axes = smoothed([0.0, 1.0], [1.0, 1.0], names=["level"])
    >>> axes[0].get_title(loc="left")
    'level'
    """
    half = width_of("smoothed", level)
    mean = table("smoothed", "mean", mean)
    std = spreads("smoothed", spread, mean, "step")
    names = called("smoothed", names, mean.shape[1], "state")
    axes = _stacked(figure, [1.1] * min(mean.shape[1], most))
    for j, ax in enumerate(axes):
        _band(ax, 0, mean[:, j], mean[:, j] - half * std[:, j], mean[:, j] + half * std[:, j], shade(0), "")
        if X is not None:
            values = _one_series("smoothed", X)[:, j]
            ax.plot(np.arange(len(values)), values, ".", color=ink(), markersize=2.5)
        _title(ax, plain(names[j], _TITLE))
    axes[-1].set_xlim(0, max(len(mean) - 1, 1))
    _dated(axes[-1], dates)
    return axes


def forecast(
    X: Any,
    ahead: Iterable[Any],
    ax: Axes | None = None,
    *,
    column: int = 0,
    truth: Any = None,
    last: int | None = None,
    name: Any = None,
    dates: Sequence[str] | None = None,
) -> Axes:
    """The end of a series and what a model expects after it, with the interval that it gives.

    `forecast(X, model.forecast(X, 12))`.

    Args:
        X: one series, (time, features).
        ahead: a `Forecast`, or mean, low and high, (steps, features) each.
        ax: to draw on.
        column: which feature.
        truth: what came after the end, (steps, features).
        last: so many steps before the end are shown; by default all.
        name: of the feature.
        dates: what all steps are called, those of X and those after it.

    >>> axes = forecast([1.0, 2.0], ([3.0], [2.0], [4.0]), truth=[3.5])
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['data', 'forecast', 'what came']
    """
    ax = new_axes(ax, _WIDTH, 2.2)
    X = _one_series("forecast", X)
    end = len(X)
    begin = 0 if last is None else max(end - last, 0)
    mean, low, high = (table("forecast", "ahead", part)[:, column] for part in ahead)
    _line(ax, X[begin:, column], start=begin, label="data")
    _band(ax, end, mean, low, high, PALETTE[0], "forecast")
    if truth is not None:
        came = _one_series("forecast", truth)[:, column]
        ax.plot(end + np.arange(len(came)), came, ".", color=PALETTE[1], markersize=4, label="what came")
    ax.axvline(end - 0.5, color=ink(), linewidth=0.7, linestyle=":")
    ax.set_xlim(begin, end + len(mean) - 1)
    _dated(ax, dates)
    if name is not None:
        ax.set_ylabel(wrapped(name, 30, 2))
    ax.legend(loc="best")
    return ax


def decomposition(
    X: Any,
    parts: Mapping[str, tuple[Any, Any]],
    ahead: Iterable[Any] | None = None,
    *,
    column: int = 0,
    level: float = 0.95,
    name: Any = "data",
    dates: Sequence[str] | None = None,
    figure: Any = None,
) -> np.ndarray:
    """A series above the parts that a structural model sees in it, each with a band.

    `decomposition(X, model.decompose(X))`.  The parts of a series with NaN after its end go on into the
    future: `longer = np.vstack([X, np.full((12, 1), np.nan)])` and
    `decomposition(X, model.decompose(longer), model.forecast(X, 12))`.

    Args:
        X: one series, (time, features).
        parts: name → mean and standard deviation, (time, features) each.
        ahead: mean, low and high after the end of the series, (steps, features) each.
        column: which feature.
        level: of the bands.
        name: of the series.
        dates: what all steps are called, those after the end included.
        figure: to draw on.

    >>> axes = decomposition([1.0, 2.0], {"Level": ([1.0, 2.0], [0.1, 0.1])})
    >>> [ax.get_title(loc="left") for ax in axes]
    ['data', 'Level']
    """
    half = width_of("decomposition", level)
    X = _one_series("decomposition", X)
    axes = _stacked(figure, [1.3] + [1.0] * len(parts))
    end = len(X)
    _line(axes[0], X[:, column])
    _title(axes[0], plain(name, _TITLE))
    reach = end
    if ahead is not None:
        mean, low, high = (table("decomposition", "ahead", part)[:, column] for part in ahead)
        _band(axes[0], end, mean, low, high, PALETTE[0], "forecast")
        reach = end + len(mean)
    for number, (ax, (title, (mean, std))) in enumerate(zip(axes[1:], parts.items())):
        mean, std = (table("decomposition", "parts", v)[:, column] for v in (mean, std))
        _band(ax, 0, mean, mean - half * std, mean + half * std, shade(number + 1), "")
        _title(ax, plain(title, _TITLE))
        reach = max(reach, len(mean))
    if reach > end:
        for ax in axes:
            ax.axvline(end - 0.5, color=ink(), linewidth=0.7, linestyle=":")
    axes[-1].set_xlim(0, max(reach - 1, 1))
    _dated(axes[-1], dates)
    return axes
