"""Sections of numbers: who wins, by how much, after what learning, where, and how to repeat it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import plots
from .._core import Kind
from ..comparison._draws import APART, COVERAGE, DISTANCE, NEARER, PRECISION
from ._html import (
    NOTHING,
    Cell,
    breakable,
    card,
    escape,
    percent,
    table_of,
    told,
    value_cell,
    with_error,
    word_cell,
)
from ._view import SIGN, View, about

_LN2 = math.log(2)
_CASES = 6
_TIGHT = Cell("&lt; 0.001", 0.0)


def headline(view: View) -> str:
    board = view.board
    if not view.good and view.fitted:
        first = view.fitted[0]
        lead = f"No model gives a probability. {_lead_of_draws(view, first)}"
    elif not view.good:
        lead = "No model could be fitted; the table has the reasons."
    else:
        best = view.good[0]
        each = told(best.bits_per_dimension, best.bits_per_dimension_stderr)
        lead = (
            f"<b>{view.name(best.model)}</b> explains the held-out {view.units} best: {about(best)} bits "
            f"per sample ({each} bits per dimension)."
        )
        if len(view.good) > 1:
            lead += " " + _lead_over(best, view.good[1], view.name(view.good[1].model))
    parts = [f'<p class="lead">{lead}</p>']
    failed = len(view.lines) - len(view.fitted)
    notes = [*map(str, board.notes)]
    if failed:
        notes.append(f"{failed} of {len(view.lines)} models failed; the table has the reasons.")
    if any(line.kind is not Kind.EXACT for line in view.good):
        notes.append(
            "Bits are code lengths, −log₂ p of a held-out row: fewer are better. ≤ means that the model is "
            "at least so good (a bound on its probability), ≈ that the number is an estimate."
        )
    if not board.finished:
        parts.append('<p class="warn"><b>Interrupted:</b> the comparison was stopped before its end.</p>')
    if notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    return "".join(parts)


def _lead_of_draws(view: View, line: Any) -> str:
    """A sentence on the draws of a model that has no bits, as HTML."""
    name = f"<b>{view.name(line.model)}</b>"
    found = next((own for own in view.board.draws() if own.model == line.model), None)
    if found is None:
        return f"{name} draws rows, which are shown below."
    share = with_error(*(100 * part for part in found.measures[APART])).text
    return f"Draws of {name} are told from held-out rows in {share} % of the cases; 50 % is not at all."


def _lead_over(best: Any, second: Any, name: str) -> str:
    """A sentence on how sure the first place is, with the `name` of the second as HTML."""
    gap = with_error(second.difference, second.difference_stderr).text
    if second.difference_stderr == 0 and second.difference == 0:
        return f"<b>{name}</b> has the same bits on every row."
    if second.chance is None:
        return (
            f"<b>{name}</b> follows {gap} bits behind; which of the two is better cannot be "
            "known, since a bound does not say how much better the truth is."
        )
    sure = f"the chance that this order is real is {percent(second.chance)}"
    if second.kind is Kind.LOWER and not second.tight:
        missed = with_error(second.gap, second.gap_stderr).text
        sure += f", after {missed} bits that its bound is estimated to miss"
    if second.chance >= 0.95 or not math.isfinite(second.difference_stderr):
        return f"<b>{name}</b> needs {gap} bits more; {sure}."
    return (
        f"<b>{name}</b> needs {gap} bits more. The order of the two is not settled: {sure}, and with 95 % "
        f"the difference is between {interval(second)} bits."
    )


def interval(line: Any, between: str = " and ") -> str:
    """Where the difference to the best is with 95 %."""
    gap, error = line.difference, line.difference_stderr
    return f"{told(gap - 1.96 * error, error)}{between}{told(gap + 1.96 * error, error)}"


_HEADS = (
    ("model", ""),
    ("bits per sample", "± standard error"),
    ("bits per dimension", "± standard error"),
    ("difference", "bits per sample, paired, ± standard error"),
    ("chance", "that the order is real"),
    ("kind", "of the evidence"),
    ("gap", "bits per sample that a bound is estimated to miss"),
    ("time to fit", "seconds"),
    ("size", "parameters"),
)
_CRITERIA = (("AIC", "of the fit to all rows"), ("BIC", "of the fit to all rows"))
_EVIDENCE = (("log evidence", "nats of all rows, under the prior of its parameters"),)


def _evidence_cell(line: Any) -> Cell:
    if line.log_evidence is None:
        return NOTHING
    if not line.log_evidence_stderr:
        return value_cell(line.log_evidence, digits=3)
    return with_error(line.log_evidence, line.log_evidence_stderr, sign=line.log_evidence_sign)


def _standing(place: int, line: Any, view: View, heads: int, criteria: bool, evidence: bool) -> list[Cell]:
    name = Cell(view.name(line.model), line.model)
    if line.error is not None:
        return [
            name,
            Cell(f"<span>failed: {escape(line.error)}</span>", css="reason", span=heads - 1),
        ]
    if not line.scored:
        size = value_cell(line.parameters, digits=0) if line.parameters else NOTHING
        bits = [NOTHING] * 4
        return [name, *bits, word_cell(line.kind_told), NOTHING, value_cell(line.seconds, digits=1), size]
    sign = SIGN[line.kind]
    gap = NOTHING
    if line.kind is Kind.LOWER:
        gap = _TIGHT if line.tight else with_error(line.gap, line.gap_stderr)
        gap = gap if math.isfinite(line.gap) else Cell("unknown")
    if place == 0:
        chance = Cell("best", 1.0)
    elif line.chance is None:
        chance = Cell("unknown (bound)")
    else:
        chance = Cell(percent(line.chance), line.chance)
    return [
        name,
        with_error(line.bits, line.bits_stderr, sign=sign),
        with_error(line.bits_per_dimension, line.bits_per_dimension_stderr, sign=sign),
        with_error(line.difference, line.difference_stderr) if place else Cell("0", 0.0),
        chance,
        word_cell(line.kind_told),
        gap,
        value_cell(line.seconds, digits=1),
        value_cell(line.parameters, digits=0) if line.parameters else NOTHING,
        *(
            NOTHING if value is None else value_cell(value, digits=1)
            for value in ((line.aic, line.bic) if criteria else ())
        ),
        *([_evidence_cell(line)] if evidence else []),
    ]


def table_html(board: Any) -> str:
    """The table of a `Comparison` as HTML: a line for each model, failures with their reason."""
    view = View(board, None)
    criteria = any(line.aic is not None for line in view.lines)
    evidence = any(line.prior is not None for line in view.lines)
    heads = (*_HEADS, *(_CRITERIA if criteria else ()), *(_EVIDENCE if evidence else ()))
    rows = [
        _standing(place, line, view, len(heads), criteria, evidence)
        for place, line in enumerate(view.lines)
    ]
    caption = "Held-out code length, fewer bits are better"
    return table_of(caption, heads, rows, sortable=True, best=True) + _whole_names(view)


def draws(view: View) -> str:
    """How near draws are to held-out rows, where that was measured."""
    ask = getattr(view.board, "draws", None)
    lines = [] if ask is None else ask()
    if not lines:
        return ""
    rows = []
    for line in lines:
        name = (
            Cell(f"<i>{escape(line.model)}</i>", line.model)
            if line.reference
            else Cell(view.name(line.model), line.model)
        )
        found = (line.measures.get(measure) for measure, _ in _MEASURES)
        rows.append([name, *(NOTHING if part is None else with_error(*part) for part in found)])
    folds = max(line.folds for line in lines)
    of = f"the mean of {folds} folds" if folds > 1 else "of one fold"
    note = (
        "<p>These need no probability, so that models that only draw stand beside the others. Labels are "
        "ones among zeros, numbers in standard deviations, and draws lack what the held-out rows lack. The "
        "last two lines are what to read them beside: other rows of the data, which no model can be better "
        "than, and rows in which every column was drawn by itself, which a model that knows how columns go "
        "together has to be better than.</p>"
    )
    heads = [("model", ""), *_MEASURES]
    return note + table_of(
        f"Draws beside held-out rows, {of}, ± standard error", heads, rows, sortable=True
    )


_MEASURES = (
    (APART, "share of rows told rightly whether they were drawn; 0.5 is not at all"),
    (DISTANCE, "along random directions, standard deviations"),
    (PRECISION, "share of draws that lie among rows"),
    (COVERAGE, "share of rows with a draw near"),
    (NEARER, "share of draws nearer to rows of the fit than new rows are; more than 0.5 is repeating"),
)


def forecasts(view: View) -> str:
    """Errors and coverage of forecasts, where a horizon was asked for."""
    ask = getattr(view.board, "forecasts", None)
    lines = [] if ask is None else ask()
    if not lines:
        return ""
    heads = [
        ("model", ""),
        ("column", ""),
        ("steps", "ahead"),
        ("RMSE", "± standard error"),
        ("MASE", "in mean changes from step to step"),
        (f"in {lines[0].level:.0%}", "share in intervals"),
        ("forecasts", "number"),
    ]
    rows = [
        [
            Cell(view.name(line.model), line.model),
            word_cell(line.column),
            value_cell(line.steps, digits=0),
            with_error(line.rmse, line.rmse_stderr),
            with_error(line.mase, line.mase_stderr),
            with_error(line.coverage, line.coverage_stderr),
            value_cell(line.forecasts, digits=0),
        ]
        for line in lines
    ]
    return table_of("Forecasts from held-out steps", heads, rows, sortable=True)


def _whole_names(view: View) -> str:
    """What short names stand for, where there are such."""
    rows = [
        [Cell(breakable(short)), Cell(breakable(label), css="text")]
        for label, short in view.short.items()
        if short != label
    ]
    return table_of("The models with their options", [("model", ""), ("options", "")], rows) if rows else ""


def differences(view: View) -> str:
    if len(view.good) < 2:
        bits = " by bits" if len(view.fitted) > 1 else ""
        return f"<p>There are no two models to compare{bits}.</p>"
    best = view.good[0]
    rows = []
    for line in view.good[1:]:
        gap, error = line.difference, line.difference_stderr
        side = {Kind.LOWER: "may be better than this", Kind.UPPER: "may be worse than this"}.get(
            line.kind, ""
        )
        if line.tight:
            side = "is better than this by less than 0.001"
        elif line.kind is Kind.LOWER and math.isfinite(line.gap):
            side = f"is better than this by about {with_error(line.gap, line.gap_stderr).text}"
        chance = "unknown" if line.chance is None else percent(line.chance)
        rows.append(
            [
                Cell(view.name(line.model)),
                with_error(gap, error),
                Cell(interval(line, " … ")) if math.isfinite(gap) and math.isfinite(error) else NOTHING,
                Cell(chance),
                word_cell(side),
            ]
        )
    heads = [
        ("model", ""),
        ("difference", "bits per sample, ± standard error"),
        ("interval", "95 %, bits per sample"),
        ("chance", "that the order is real"),
        ("remark", ""),
    ]
    name, units = view.short[best.model], view.units
    caption = f"Bits per sample that each model needs more than {name}, on the same {units}"
    alt = f"Paired differences to {best.model} with intervals of 95 %; the table below has the numbers."
    title = "Dots with intervals of 95 %. The arrow of a bound points to where the truth may be."
    return card(plots.comparison(view.board), title, alt, "single") + table_of(caption, heads, rows)


def learning(view: View) -> str:
    cards, rows = [], []
    unit = "bits per step" if view.sequences else "bits per sample"
    for line in view.good:
        folds = view.folds(line.model)
        histories = [
            fold.history for fold in folds if len(np.atleast_1d(fold.history.get("objective", ())))
        ]
        if not histories:
            continue
        last = np.array([np.atleast_1d(h["objective"])[-1] for h in histories]) / _LN2
        first = np.array([np.atleast_1d(h["objective"])[0] for h in histories]) / _LN2
        counts = [fold.n_iter for fold in folds if fold.n_iter is not None]
        converged = [fold.converged for fold in folds if fold.converged is not None]
        alt = f"Objective of {line.model} from {first.mean():.4g} to {last.mean():.4g} {unit}."
        if max(len(np.atleast_1d(h["objective"])) for h in histories) > 1:
            cards.append(
                card(plots.learning_curves(histories, unit=unit), f"<b>{view.name(line.model)}</b>", alt)
            )
        rows.append(
            [
                Cell(view.name(line.model)),
                value_cell(float(np.mean(counts)), digits=0) if counts else NOTHING,
                Cell(f"{sum(converged)} of {len(converged)}") if converged else NOTHING,
                value_cell(float(first.mean())),
                value_cell(float(last.mean())),
                value_cell(float(last.std(ddof=1))) if len(last) > 1 else NOTHING,
            ]
        )
    if not rows and any(not line.scored for line in view.fitted):
        return "<p>No model of this comparison has an objective that falls.</p>"
    if not rows:
        return "<p>No model of this comparison learns by iteration.</p>"
    heads = [
        ("model", ""),
        ("iterations", "mean over fits"),
        ("converged", "fits"),
        ("objective at first", unit),
        ("objective at last", unit),
        ("spread", "standard deviation over fits, bits"),
    ]
    note = (
        f"<p>What each learner lowers, on the {view.units} it is trained on: a line for each fit. For most "
        "models it is the free energy, an upper bound of the code length; for models trained by contrast "
        "it is a difference of energies, which shows progress but is no code length.</p>"
    )
    cards_html = f'<div class="cards">{"".join(cards)}</div>'
    return note + cards_html + table_of("Learning, mean over the fits of all folds", heads, rows)


def wins(view: View) -> str:
    if len(view.good) < 2:
        bits = " by bits" if len(view.fitted) > 1 else ""
        return f"<p>There are no two models to compare{bits}.</p>"
    models = [line.model for line in view.good]
    everything = np.array([view.bits[model] for model in models])
    everything = everything[:, ~np.isnan(everything).any(axis=0)]
    wins = np.bincount(everything.argmin(axis=0), minlength=len(models))
    share = 100 / max(wins.sum(), 1)
    rows = [
        [Cell(view.name(model)), value_cell(int(count), digits=0), Cell(f"{share * count:.1f} %")]
        for model, count in zip(models, wins)
    ]
    heads = [("model", ""), (view.units, "with the fewest bits"), ("share", f"of held-out {view.units}")]
    parts = [table_of(f"On how many {view.units} each model is the best of all", heads, rows)]
    best, second = models[:2]
    with np.errstate(invalid="ignore"):  # both may call a row impossible
        gaps = view.bits[second] - view.bits[best]
    # only of some rows are the values kept
    shown = np.arange(len(gaps)) if view.sequences else np.asarray(view.board.example_rows)
    shown = shown[shown < len(gaps)]
    order = shown[np.argsort(gaps[shown])]
    for winner, loser, cases in (
        (best, second, order[::-1][(gaps > 0)[order[::-1]]]),
        (second, best, order[(gaps < 0)[order]]),
    ):
        if len(cases):
            parts.append(_cases(view, winner, loser, [int(row) for row in cases[:_CASES]]))
    return "".join(parts)


def _cases(view: View, winner: str, loser: str, cases: list[int]) -> str:
    """A table of the rows that one model explains so much better than another."""
    names, values = view.described(cases)
    one, two = view.short[winner], view.short[loser]
    told = "number" if view.unit_names is None else ""
    heads = [(view.unit, told), (one, "bits"), (two, "bits"), ("difference", "bits"), *names]
    rows = []
    for row, cells in zip(cases, values):
        own, other = view.bits[winner][row], view.bits[loser][row]
        bits = (value_cell(v, digits=2) for v in (own, other, other - own))
        rows.append([Cell(escape(view.unit_name(row)), row), *bits, *cells])
    # the values of the others are not kept
    some = len(view.board.example_rows) if not view.sequences else view.board.n_rows
    among = f", among {some} of {view.board.n_rows} {view.units}" if some < view.board.n_rows else ""
    caption = f"{view.units.capitalize()} that {one} explains better than {two}, the largest first{among}"
    return table_of(caption, heads, rows)


def settings(view: View) -> str:
    settings = view.board.settings
    rows = [[Cell(breakable(name)), word_cell(value)] for name, value in settings.items()]
    models = [f"    {label!r}: {settings.get(f'model {label}', '…')}," for label in view.board.labels]
    data = "X" if view.board.y is None else "X, y"
    made = settings.get("X")
    of = "a frame with the data" if made else "the data"
    # line by line, since the end of one is nothing to be seen
    code = "\n".join(
        escape(line)
        for line in [
            "import freeenergy as fe",
            "from freeenergy import *",
            "from freeenergy.distributions import *",
            "",
            *([f"X = {made}"] if made else []),
            "models = {",
            *models,
            "}",
            f"board = fe.compare(models, {data}, {settings['splits']}, random_state={settings['seed']})",
            'board.to_html("report.html")',
        ]
    )
    return (
        f"<p>The same data, seed and versions give the same numbers; "
        f"<code>{'frame' if made else data}</code>: {of}.</p>"
        f'<pre tabindex="0"><code>{code}</code></pre>'
        + table_of("Settings, seeds and versions", [("what", ""), ("value", "")], rows)
    )
