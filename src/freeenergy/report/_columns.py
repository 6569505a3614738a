"""Sections of the columns: what they are and lack, how each is distributed, which go together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from .. import plots
from ..evaluation import association as associations
from ..shell import Column, Field
from ..shell._time import in_words
from ._html import NOTHING, Cell, card, escape, table_of, told, value_cell, word_cell
from ._view import View, told_cell

_MOST = 24
_MOST_TOGETHER = 16
_CELLS = 3
_KEY = '<span class="key"><i class="c0"></i> data <i class="c1"></i> draws</span>'


def columns(view: View) -> str:
    """What the columns are, and where they have holes."""
    if view.sequences:
        return _of_series(view)
    schema = getattr(view.board, "schema", None)
    examples = np.asarray(view.board.examples, float)
    heads = [("column", ""), ("kind", ""), ("values", ""), ("missing", "share of rows")]
    rows = []
    if schema is not None:
        heads.append(("what is done with it", ""))
        ends = {
            field.name: _ends(field, x)
            for field, x in zip(view.fields, examples.T, strict=True)
            if not field.categories
        }
        for field in schema.fields:
            share = Cell(f"{100 * field.missing:.1f} %", field.missing) if field.missing else NOTHING
            own = "" if field.kind is Column.DATE else field.looks
            looks = ", ".join(filter(None, [ends.get(field.name, ""), own]))
            words = [word_cell(text) for text in (field.name, field.kind.value, looks)]
            rows.append([*words, share, word_cell(field.treatment)])
    elif len(examples) and (len(view.fields) <= _MOST or np.isnan(examples).any()):
        for field, x in zip(view.fields, examples.T, strict=True):
            seen = x[~np.isnan(x)]
            gone = 1 - len(seen) / max(len(x), 1)
            share = Cell(f"{100 * gone:.1f} %", gone) if gone else NOTHING
            rows.append(
                [word_cell(field.name), word_cell(field.kind.value), word_cell(_ends(field, x)), share]
            )
    if not rows:
        return f"<p>{len(view.fields)} columns of numbers, of which nothing is missing.</p>"
    caption = "The columns" if schema is not None else f"The columns, of {len(examples)} rows"
    found = table_of(caption, heads, rows, sortable=True)
    if not np.isnan(examples).any():
        return found + "<p>Nothing is missing.</p>"
    some = len(examples)
    part = f", {some} of {view.board.n_rows} rows" if some < view.board.n_rows else ""
    names = [field.name for field in view.fields]
    alt = "Which rows lack which columns; the table above has the shares."
    return found + card(
        plots.missing(examples, names=names), f"Where values are missing{part}", alt, "single"
    )


def _ends(field: Field, x: np.ndarray) -> str:
    """The least and the largest of some values."""
    seen = x[~np.isnan(x)]
    return f"{field.told(float(seen.min()))} … {field.told(float(seen.max()))}" if len(seen) else ""


def _of_series(view: View) -> str:
    """What the columns of series are."""
    rows = []
    steps = [np.asarray(one, float).reshape(len(one), -1) for one in view.board.examples]
    both = np.concatenate(steps)
    for name, kind, x in zip(view.board.feature_names, view.board.support.kinds, both.T):
        seen = x[~np.isnan(x)]
        gone = 1 - len(seen) / max(len(x), 1)
        ends = f"{told(float(seen.min()))} … {told(float(seen.max()))}" if len(seen) else ""
        share = Cell(f"{100 * gone:.1f} %", gone) if gone else NOTHING
        rows.append([word_cell(name), word_cell(kind.value), word_cell(ends), share])
    heads = [("column", ""), ("kind", ""), ("values", ""), ("missing", "share of steps")]
    some = f"{len(steps)} of {view.board.n_rows}" if 1 < len(steps) < view.board.n_rows else f"{len(steps)}"
    found = table_of(f"The columns, of {len(both)} steps of {some} series", heads, rows)
    inputs = getattr(view.board, "input_names", None)
    if inputs:
        found += f"<p>Known beside each step: {escape(', '.join(inputs))}.</p>"
    times = getattr(view.board, "times", None)
    if times:
        first, last = min(own[0] for own in times), max(own[-1] for own in times)
        found += f"<p>Steps from {escape(in_words(first))} to {escape(in_words(last))}.</p>"
    names = getattr(view.board, "series_names", None)
    if names and len(names) > 1:
        rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        found += f"<p>The series: {escape('; '.join(names[:_MOST]))}{rest}.</p>"
    return found


def _drawn(view: View) -> list[tuple[str, np.ndarray]]:
    """Models with draws of rows such as the examples."""
    found = []
    for line in view.fitted:
        draws = view.first(line.model, "samples")
        if draws is not None and np.ndim(draws) == 2 and np.shape(draws)[1] == len(view.fields):
            found.append((line.model, np.asarray(draws, float)))
    return found


def _shown_as_a_whole(view: View) -> str:
    """Where images are shown, of which single columns say little; nothing for tables."""
    if view.shape is not None or not len(view.board.examples):
        return "<p>Rows are shown as a whole, below.</p>"
    return ""


def distributions(view: View) -> str:
    """Each column of the data beside draws of the best model, and how far the others are off."""
    elsewhere = _shown_as_a_whole(view)
    if elsewhere:
        return elsewhere
    data = np.asarray(view.board.examples, float)
    drawn, labels = _drawn(view), view.labels
    varied = [j for j, field in enumerate(view.fields) if field.kind is not Column.CONSTANT]
    gaps = {model: [_distance(data[:, j], X[:, j], bool(labels[j])) for j in varied] for model, X in drawn}
    shown = varied
    if len(varied) > _MOST:
        # those in which the best is furthest off
        order = np.argsort(-np.nan_to_num(next(iter(gaps.values()))), kind="stable") if gaps else varied
        shown = sorted(varied[k] for k in list(order)[:_MOST]) if gaps else varied[:_MOST]
    cards = []
    for j in shown:
        beside = drawn[0][1][:, j] if drawn else None
        field = view.fields[j]
        axes = plots.distribution(data[:, j], beside, field=field, labels=None)
        cards.append(card(axes, _KEY if drawn else "", f"Distribution of the column {field.name}."))
    who = f" beside {len(drawn[0][1])} draws of <b>{view.name(drawn[0][0])}</b>" if drawn else ""
    left = f" {len(shown)} of {len(varied)} columns are shown." if len(shown) < len(varied) else ""
    note = f"<p>Each column of {len(data)} rows of the data{who}.{left}</p>"
    grid = f'<div class="cards">{"".join(cards)}</div>'
    if not drawn:
        return note + grid
    heads = [("column", ""), *((view.short[model], "") for model, _ in drawn)]
    rows = [
        [word_cell(view.fields[j].name), *(value_cell(gaps[model][k], digits=3) for model, _ in drawn)]
        for k, j in enumerate(varied)
        if j in shown
    ]
    caption = (
        "How far the draws of each model are from the data, column by column, from 0 to 1: the largest "
        "difference of shares below a number, or half of the sum of differences of shares of labels"
    )
    return note + grid + table_of(caption, heads, rows)


def _distance(x: np.ndarray, draws: np.ndarray, labels: bool) -> float:
    """Kolmogorov's distance of numbers, total variation of labels."""
    x, draws = x[~np.isnan(x)], draws[~np.isnan(draws)]
    if not len(x) or not len(draws):
        return math.nan
    if not labels:
        found: Any = stats.ks_2samp(x, draws, method="asymp")
        return float(found.statistic)
    draws = np.clip(np.rint(draws), 0, None)
    values = np.union1d(x, draws)
    return 0.5 * sum(abs(float(np.mean(x == v)) - float(np.mean(draws == v))) for v in values)


def association(view: View) -> str:
    """Which columns go together, in the data and in what models draw."""
    elsewhere = _shown_as_a_whole(view)
    if elsewhere:
        return elsewhere
    data, drawn = np.asarray(view.board.examples, float), _drawn(view)
    varied = [j for j, field in enumerate(view.fields) if field.kind is not Column.CONSTANT]
    if len(varied) < 2 or not drawn:
        return "<p>There are no two columns, or no draws, to lay side by side.</p>"
    chosen = np.array(varied)
    if len(varied) > _MOST_TOGETHER:
        chosen = plots.telling_columns(data, _MOST_TOGETHER)
    names, labels = [view.fields[j].name for j in chosen], view.labels[chosen]
    own = associations(data[:, chosen], labels)
    cards, rows = [], []
    upper = np.triu_indices(len(chosen), 1)
    for model, X in drawn:
        other = associations(X[:, chosen], labels)
        gap = np.abs(own - other)[upper]
        known = np.flatnonzero(~np.isnan(gap))
        alt = f"Association between columns in the data and in draws of {model}; the table has the numbers."
        axes = plots.association(data[:, chosen], X[:, chosen], labels=labels, names=names)
        cards.append(card(axes, f"<b>{view.name(model)}</b>", alt))
        if not len(known):
            continue
        worst = known[gap[known].argmax()]
        pair = tuple(int(side[worst]) for side in upper)
        rows.append(
            [
                Cell(view.name(model)),
                value_cell(float(np.sqrt(np.mean(gap[known] ** 2))), digits=3),
                word_cell(f"{names[pair[0]]} and {names[pair[1]]}"),
                value_cell(float(own[pair]), digits=2),
                value_cell(float(other[pair]), digits=2),
            ]
        )
    part = f" {len(chosen)} of {len(varied)} columns are shown." if len(chosen) < len(varied) else ""
    note = (
        "<p>How strongly every two columns go together, from 0 to 1: of two numbers Spearman’s rank "
        "correlation without its sign, of two labels Cramér’s V, of a label and a number the correlation "
        f"ratio of ranks. A right model has the same on both sides of the diagonal.{part}</p>"
    )
    heads = [
        ("model", ""),
        ("error", "root mean square over pairs"),
        ("furthest off", ""),
        ("data", ""),
        ("draws", ""),
    ]
    grid = f'<div class="cards broad">{"".join(cards)}</div>'
    return note + grid + table_of("Association between columns, draws against data", heads, rows)


def unlikely(view: View) -> str:
    """The rows that the best model finds least likely, with the cells that make them so."""
    for line in view.good:
        found = view.first(line.model, "unlikely")
        if found and found["surprise"].shape[1] == len(view.fields):
            break
    else:
        return "<p>No model of this comparison tells which cells make a row unlikely.</p>"
    rows = []
    for row, nats, values, surprise in zip(*(found[k] for k in ("rows", "nats", "values", "surprise"))):
        order = np.argsort(-np.nan_to_num(surprise, nan=-np.inf), kind="stable")
        cells = []
        for j in order[:_CELLS]:
            if np.isnan(surprise[j]):
                cells.append(NOTHING)
                continue
            value = told_cell(view.fields[j], values[j]).text
            bits = told(float(surprise[j]) / math.log(2), digits=1)
            what = f"{escape(view.fields[j].name)} = {value} <small>{bits} bits</small>"
            cells.append(Cell(what, css="text long"))
        cells += [NOTHING] * (_CELLS - len(cells))
        rows.append([Cell(str(int(row))), value_cell(-float(nats) / math.log(2), digits=1), *cells])
    heads = [
        ("row", "number"),
        ("bits", "of the row"),
        ("most surprising cell", "beside draws"),
    ]
    heads += [("next", "")] * (_CELLS - 1)
    bound = "" if line.kind.value == "exact" else " Bits are differences of two bounds."
    note = (
        "<p>Held-out rows of one fold that the model finds least likely. The bits of a cell are −log₂ of "
        "its probability given all other cells of the row, less what its column has on average in draws of "
        f"the model: a cell with many does not fit.{bound}</p>"
    )
    caption = f"What {view.short[line.model]} expects least"
    return note + table_of(caption, heads, rows)
