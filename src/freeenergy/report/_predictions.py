"""Sections on labels and numbers that were predicted: how good, how sure, and from what."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import plots
from ..evaluation import reliability, uniformity
from ._html import NOTHING, Cell, card, escape, table_of, value_cell, with_error
from ._view import View

# columns whose importance has a line in the table, and labels that have one in a picture
_MOST, _MOST_LABELS = 30, 6


def measures(view: View) -> str:
    """How good predictions are, as a table; nothing where nothing was predicted."""
    lines = view.board.predictions()
    if not lines:
        return ""
    names = list(dict.fromkeys(name for line in lines for name in line.measures))
    heads = [("model", ""), *((name, _UNITS.get(name, "share of answers")) for name in names)]
    rows = [
        [
            Cell(view.name(line.model)),
            *(with_error(*line.measures[name]) if name in line.measures else NOTHING for name in names),
        ]
        for line in lines
    ]
    return table_of("Predictions of held-out rows, ± standard error", heads, rows, sortable=True)


_UNITS = {
    "RMSE": "units of the answer",
    "MAE": "of the median, units of the answer",
    "pinball": "of both ends of the intervals",
    "log loss": "nats",
    "AUC": "",
    "right": "share of labels",
}


def _numbers(view: View) -> dict[str, np.ndarray]:
    """What was predicted of numbers by each model, on all held-out rows; empty where labels were."""
    return _predicted(view) if view.numbers else {}


def _predicted(view: View) -> dict[str, np.ndarray]:
    """What came and what was predicted by each model, on all held-out rows."""
    found = {}
    for line in view.good:
        parts = [fold.predicted for fold in view.folds(line.model) if fold.predicted is not None]
        if parts:
            found[line.model] = np.concatenate(parts, axis=1)
    return found


def predictions(view: View) -> str:
    """Residuals, ranks and coverage of each model; of labels, how reliable their probabilities are."""
    if not view.numbers:
        return _reliability(view)
    found = _numbers(view)
    if not found:
        return ""
    cards, rows = [], []
    for model, (truth, mean, _, low, high, ranks) in found.items():
        title = f"<b>{view.name(model)}</b>"
        inside = float(np.mean((low <= truth) & (truth <= high)))
        if np.isfinite(mean).all():
            axes = plots.residuals(truth, mean, name=view.answer)
            alt = f"Residuals of {model} over what it predicted, on {len(truth)} held-out rows."
            cards.append(card(axes, f"{title}: residuals", alt))
        axes = plots.calibration(ranks, what="held-out rows")
        axes.set_xlabel("rank of the answer in its law")
        cards.append(
            card(axes, f"{title}: ranks of the answers", f"Ranks of answers in the laws of {model}.")
        )
        alt = f"How many answers the intervals of {model} hold, over the level that they have."
        cards.append(card(plots.coverage(ranks), f"{title}: intervals of every level", alt))
        test = uniformity(ranks)
        rows.append(
            [
                Cell(view.name(model)),
                value_cell(len(ranks), digits=0),
                with_error(float(np.mean(truth - mean)), float(np.std(truth - mean) / np.sqrt(len(truth)))),
                value_cell(float(test.statistic), digits=3),
                Cell(f"{test.p_value:.3f}" if test.p_value >= 0.001 else "&lt; 0.001", float(test.p_value)),
                Cell(f"{100 * inside:.1f} %", inside),
                value_cell(float(np.median(high - low))),
            ]
        )
    level = view.board.settings["level"]
    heads = [
        ("model", ""),
        ("answers", "held-out rows"),
        ("mean residual", "units of the answer, ± standard error"),
        ("distance of ranks", "Kolmogorov–Smirnov"),
        ("p", "of such ranks, if the laws are right"),
        (f"in {100 * level:g} %", "share of answers"),
        ("width", "of these intervals, median"),
    ]
    note = (
        "<p>Ranks are where answers lie in their laws: flat if the laws are right, a hill if they are too "
        "wide, a valley if they are too narrow. Grey bands hold what a right model would show with 95 %. "
        "The line through the residuals is the mean of an eighth of the rows each, with intervals of "
        "95 %.</p>"
    )
    grid = f'<div class="cards">{"".join(cards)}</div>'
    return note + grid + table_of("Residuals, ranks and intervals", heads, rows)


def _reliability(view: View) -> str:
    """How often labels come that are said with some probability."""
    cards, rows = [], []
    for model, (truth, *shares) in _predicted(view).items():
        table = np.stack(shares, axis=1)
        two = table.shape[1] == 2
        curve = reliability(table[:, 1] if two else table, truth)
        what = "of the second label" if two else "of the likeliest label"
        alt = f"How often labels came over the probability that {model} gave them, on {len(truth)} rows."
        cards.append(card(plots.reliability(curve), f"<b>{view.name(model)}</b>: probability {what}", alt))
        sure, right = table.max(axis=1), table.argmax(axis=1) == truth
        rows.append(
            [
                Cell(view.name(model)),
                value_cell(len(truth), digits=0),
                value_cell(curve.error, digits=3),
                Cell(f"{100 * sure.mean():.1f} %", float(sure.mean())),
                Cell(f"{100 * right.mean():.1f} %", float(right.mean())),
            ]
        )
    if not cards:
        return ""
    heads = [
        ("model", ""),
        ("labels", "held-out rows"),
        ("calibration error", "mean distance from the diagonal"),
        ("said", "probability of the likeliest label, mean"),
        ("right", "share of likeliest labels that came"),
    ]
    note = (
        "<p>On the diagonal a model means what it says: of labels said with 70 % seven in ten come. Below "
        "it, it is too sure. Intervals are of 95 %.</p>"
    )
    grid = f'<div class="cards">{"".join(cards)}</div>'
    return note + grid + table_of("How reliable probabilities are", heads, rows)


def effects(view: View) -> str:
    """Which columns the best model looks at, and what it makes of them."""
    if not _predicted(view):
        return ""
    shown = ((line.model, view.first(line.model, "effects")) for line in view.good)
    model, found = next(((model, found) for model, found in shown if found), (None, {}))
    if model is None:
        return "<p>No model of this comparison was asked for the effects of columns.</p>"
    names = [str(name) for name in view.board.feature_names]
    lost, error = found["importance"].T
    first = plots.importance(lost, error, names=names)
    alt = f"Bits that {model} loses when a column is shuffled; the table below has the numbers."
    cards = [card(first, "bits lost per row when a column is shuffled", alt)]
    for column, values, curves in zip(found["columns"], found["values"], found["dependence"], strict=True):
        cards.append(_dependence(view, model, int(column), values, curves))
    order = np.argsort(-lost, kind="stable")[:_MOST]
    rows = [[Cell(escape(names[i])), with_error(float(lost[i]), float(error[i]))] for i in order]
    heads = [("column", ""), ("bits lost", "per row, ± standard error")]
    best = "" if model == view.good[0].model else ", the best that can be asked"
    note = (
        f"<p>Of <b>{view.name(model)}</b>{best}, on held-out rows of one fold. A column is shuffled three "
        "times: the bits that answers then cost more are what the model knows from this column alone, "
        f"given the others. {_CURVES[view.numbers]}</p>"
    )
    return (
        note + f'<div class="cards">{"".join(cards)}</div>' + table_of("Importance of columns", heads, rows)
    )


_CURVES = {
    True: "Curves are the mean prediction over rows in which the column is set to each value; bands hold "
    "the predictions of eight rows in ten.",
    False: "Curves are the mean probability of labels over rows in which the column is set to each value.",
}


def _dependence(view: View, model: str, column: int, values: np.ndarray, curves: np.ndarray) -> str:
    # a column of few values has its last again and again
    kept = np.append(True, np.diff(values) > 0)
    field, name = view.fields[column], str(view.board.feature_names[column])
    told: Any = field.told if view.labels[column] else None
    labels, curves = None, curves[kept]
    if not view.numbers:
        words, counts = np.unique(np.asarray(view.board.y), return_counts=True)
        # of two labels one says all, and of many the most frequent do
        shown = [1] if len(words) == 2 else np.sort(np.argsort(-counts, kind="stable")[:_MOST_LABELS])
        labels, curves = [str(word) for word in words[shown]], curves[:, shown]
    axes = plots.dependence(values[kept], curves, name=name, answer=view.answer, told=told, labels=labels)
    return card(axes, f"<b>{escape(name)}</b>", f"What {model} predicts over {name}.")
