"""The report of a comparison: one HTML file that needs no network, for any screen, light and dark."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import importlib.resources
import io
import math
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.image import imsave
from scipy import stats

from . import plots
from ._core import Kind, write_whole
from .evaluation import uniformity

__all__ = ["table_html", "to_html"]

_LN2 = math.log(2)
# bits are code lengths, −log₂ p: a lower bound of log p bounds them from above
_SIGN = {Kind.EXACT: "", Kind.LOWER: "≤ ", Kind.UPPER: "≥ ", Kind.ESTIMATE: "≈ "}
_IMAGES = 30
_PATHS = 5
_CASES = 6
_COLUMNS = 8
_GROUPS = 20
_MOMENTS = 300


# ---------------------------------------------------------------------------------------------
# words, numbers, tables
# ---------------------------------------------------------------------------------------------


def _escape(text: Any) -> str:
    return html.escape(str(text), quote=True)


def _label(text: Any) -> str:
    """The label of a model, which may be broken after its punctuation."""
    return re.sub(r"([:,(])", r"\1<wbr>", html.escape(str(text), quote=False))


def _number(value: float, error: float | None = None, *, digits: int | None = None) -> str:
    """`value` with as many digits as its standard error `error` leaves meaning."""
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if digits is None:
        scale = error if error and math.isfinite(error) else abs(value) / 100
        digits = 2 if scale <= 0 else min(max(1 - math.floor(math.log10(scale)), 0), 6)
    return f"{value:,.{digits}f}".replace(",", "\u202f").replace("-", "−")


def _chance(chance: float) -> str:
    if chance > 0.999:
        return "&gt; 99.9 %"
    return f"{100 * chance:.1f} %"


class _Cell(NamedTuple):
    """A cell: its HTML, what it is sorted by, and its class."""

    text: str
    value: Any = None
    css: str = ""
    span: int = 1

    def html(self, tag: str = "td") -> str:
        scope = ' scope="row"' if tag == "th" else ""
        value = "" if self.value is None else f' data-value="{_escape(self.value)}"'
        css = f' class="{self.css}"' if self.css else ""
        span = f' colspan="{self.span}"' if self.span > 1 else ""
        return f"<{tag}{scope}{css}{span}{value}>{self.text}</{tag}>"


def _word(text: Any) -> _Cell:
    return _Cell(_escape(text), str(text), "text")


def _value(value: float, error: float | None = None, *, sign: str = "", digits: int | None = None) -> _Cell:
    return _Cell(sign + _number(value, error, digits=digits), float(value))


def _with_error(value: float, error: float, *, sign: str = "") -> _Cell:
    known = f" ± {_number(error, error)}" if math.isfinite(error) else ""
    return _Cell(f"{sign}{_number(value, error)}{known}", float(value))


_NOTHING = _Cell("–")
_KEY = '<span class="key"><i class="c0"></i> data <i class="c1"></i> draws of the model</span>'


def _table(
    caption: str,
    heads: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[_Cell]],
    *,
    sortable: bool = False,
    best: bool = False,
) -> str:
    """A table in a box of its own that scrolls; `heads` are words and units, first cells name their row."""
    rows = list(rows)
    # a heading stands where the cells below it stand
    sides = [cell.css == "text" for cell in rows[0]] if rows else []
    sides += [False] * (len(heads) - len(sides))
    titles = "".join(
        f'<th scope="col"{" class=text" if side else ""}>{_escape(title)}'
        f"{f'<small>{_escape(unit)}</small>' if unit else ''}</th>"
        for (title, unit), side in zip(heads, sides)
    )
    lines = []
    for number, (first, *others) in enumerate(rows):
        css = ' class="best"' if best and number == 0 else ""
        lines.append(f"<tr{css}>{first.html('th')}{''.join(cell.html() for cell in others)}</tr>")
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(caption)}">'
        f"<table{kind}><caption><span>{_escape(caption)}</span></caption>"
        f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


# ---------------------------------------------------------------------------------------------
# pictures
# ---------------------------------------------------------------------------------------------


def _svg(figure: Any, alt: str) -> str:
    """A figure as SVG inside the page, small, in the colours and the font of the page."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that Matplotlib's font lacks: the browser has them
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r" font-family: [^;\"]*;| transform=\"rotate\(-?0 [^\"]*\"", "", text)
    # a tenth of a point is enough for a mark, a hundredth for a line
    text = re.sub(r'(<use [^>]*? x=")([^"]*)(" y=")([^"]*)', _rounded_mark, text)
    text = re.sub(r'(?<= )d="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), text)
    # marks of one look have it from their group
    text = re.sub(
        r'<g([^>]*)>((?:<use [^>]*? style="([^"]*)"/>)(?:<use [^>]*? style="\3"/>)*)</g>', _grouped, text
    )
    # names that are used must differ between the pictures of a page; the others can go
    own = "f" + hashlib.sha256(text.encode()).hexdigest()[:8]
    used = dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    short = {name: f"{own}-{number}" for number, name in enumerate(used)}
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{short[m[1]]}"' if m[1] in short else "", text)
    text = re.sub(r'(href="#|url\(#)([^")]+)', lambda m: m[1] + short[m[2]], text)
    for number, colour in enumerate(plots.PALETTE):
        text = text.replace(colour, f"var(--c{number})")
    text = text.replace(plots.INK, "currentColor").replace("xlink:href", "href")
    # never so small that words cannot be read: the box around it scrolls
    least = f"{72 * figure.get_figwidth():.0f}px"
    start = f'<svg role="img" aria-label="{_escape(alt)}" style="min-width: {least}" viewBox="'
    return re.sub(r'^<svg[^>]*?viewBox="', lambda m: start, text, count=1)


def _rounded_mark(found: re.Match[str]) -> str:
    return f"{found[1]}{float(found[2]):.1f}{found[3]}{float(found[4]):.1f}"


def _grouped(found: re.Match[str]) -> str:
    """A group of marks that has their style itself."""
    style = f' style="{found[3]}"'
    return f"<g{found[1]}{style}>{found[2].replace(style, '')}</g>"


def _figure(axes: Any, title: str, alt: str, css: str = "") -> str:
    """A card with a caption and a drawing; `title` is HTML."""
    drawing = _svg(axes.figure, alt)
    kind = f' class="{css}"' if css else ""
    return f'<figure{kind}><figcaption>{title}</figcaption><div class="scroll">{drawing}</div></figure>'


def _picture(whole: np.ndarray, limits: tuple[float, float], alt: str) -> str:
    """Numbers as ink: transparent where they are low or unknown, so that it suits any ground."""
    low, high = limits
    share = np.clip((np.nan_to_num(whole, nan=low) - low) / (high - low or 1.0), 0, 1)
    ink = np.zeros((*whole.shape, 4), np.uint8)
    ink[..., 3] = np.rint(255 * share)
    buffer = io.BytesIO()
    imsave(buffer, ink, format="png")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img class="picture" alt="{_escape(alt)}" src="data:image/png;base64,{data}">'


# ---------------------------------------------------------------------------------------------
# what the sections are made of
# ---------------------------------------------------------------------------------------------


class _Board:
    """A comparison as the sections see it."""

    def __init__(self, board: Any, image_shape: tuple[int, int] | None):
        self.board = board
        self.lines = board.table()
        self.good = [line for line in self.lines if line.error is None]
        self.sequences = isinstance(board.examples, list) or np.ndim(board.examples) == 3
        self.shape = image_shape or self._recognised_shape()

    def _recognised_shape(self) -> tuple[int, int] | None:
        """Square images: columns called `pixel…`, or a square number (≥ 16) of columns of whole numbers."""
        names = [str(name) for name in self.board.feature_names]
        side = math.isqrt(len(names))
        if self.sequences or side**2 != len(names) or side < 2:
            return None
        pixels = all(name.startswith("pixel") for name in names)
        whole = len(names) >= 16 and not self.board.support.continuous.any()
        return (side, side) if pixels or whole else None

    def folds(self, model: str) -> list[Any]:
        return [result for result in self.board.results if result.model == model and result.error is None]

    def first(self, model: str, field: str) -> Any:
        """A field that only one fold of a model has, or None."""
        found = [getattr(fold, field) for fold in self.folds(model)]
        return next((value for value in found if value is not None), None)

    @functools.cached_property
    def groups(self) -> np.ndarray | None:
        """The label of each row, if labels were passed and are few."""
        labels = None if self.board.y is None else np.asarray(self.board.y)
        if labels is None or labels.ndim != 1:
            return None
        words = np.array([str(label) for label in labels.tolist()])
        return words if len(np.unique(words)) <= _GROUPS else None

    @functools.cached_property
    def bits(self) -> dict[str, np.ndarray]:
        """Code length of each row under each model; NaN where it was never held out."""
        folds = [fold for line in self.good for fold in self.folds(line.model)]
        size = 1 + max((int(np.max(fold.rows, initial=-1)) for fold in folds), default=-1)
        found = {line.model: np.full(size, np.nan) for line in self.good}
        for fold in folds:
            found[fold.model][fold.rows] = -fold.nats / _LN2
        return found

    @functools.cached_property
    def limits(self) -> tuple[float, float]:
        """Least and largest value of the examples, which are white and black in pictures."""
        values = np.asarray(self.board.examples, float)
        return float(np.nanmin(values)), float(np.nanmax(values))

    def described(self, rows: Sequence[int]) -> tuple[list[tuple[str, str]], list[list[_Cell]]]:
        """Heads and cells that show what single rows are: a picture, or the values of a few columns."""
        if self.sequences or not len(self.board.examples):
            return [], [[] for _ in rows]
        places = {int(row): place for place, row in enumerate(self.board.example_rows)}
        X = np.asarray(self.board.examples, float)[[places[row] for row in rows]]
        if self.shape is not None:
            pictures = [_picture(x.reshape(self.shape), self.limits, f"row {r}") for r, x in zip(rows, X)]
            return [("image", "")], [[_Cell(picture)] for picture in pictures]
        chosen = plots.telling_columns(np.asarray(self.board.examples, float), _COLUMNS)
        heads = [(str(self.board.feature_names[j]), "value") for j in chosen]
        return heads, [[_Cell(f"{x[j]:.4g}".replace("-", "−")) for j in chosen] for x in X]


def _about(line: Any) -> str:
    """Bits per sample of a line of the table with sign and error."""
    return _with_error(line.bits, line.bits_stderr, sign=_SIGN[line.kind]).text


# ---------------------------------------------------------------------------------------------
# sections: each returns HTML
# ---------------------------------------------------------------------------------------------


def _headline(view: _Board) -> str:
    board = view.board
    if not view.good:
        lead = "No model could be fitted; the table has the reasons."
    else:
        best = view.good[0]
        lead = (
            f"<b>{_label(best.model)}</b> explains the held-out rows best: {_about(best)} bits per sample "
            f"({_number(best.bits_per_dimension, best.bits_per_dimension_stderr)} bits per dimension)."
        )
        if len(view.good) > 1:
            lead += " " + _lead_over(best, view.good[1])
    parts = [f'<p class="lead">{lead}</p>']
    failed = len(view.lines) - len(view.good)
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
        parts.append("<ul>" + "".join(f"<li>{_escape(note)}</li>" for note in notes) + "</ul>")
    return "".join(parts)


def _lead_over(best: Any, second: Any) -> str:
    """A sentence on how sure the first place is."""
    gap = _with_error(second.difference, second.difference_stderr).text
    name = _label(second.model)
    if abs(second.difference) < 1e-6:
        return f"<b>{name}</b> does just as well."
    if second.chance is None:
        return (
            f"<b>{name}</b> follows {gap} bits behind; which of the two is better cannot be "
            "known, since a bound does not say how much better the truth is."
        )
    sure = f"the chance that this order is real is {_chance(second.chance)}"
    close = ", so they are about equal" if second.chance < 0.95 else ""
    return f"<b>{name}</b> needs {gap} bits more; {sure}{close}."


_HEADS = (
    ("model", ""),
    ("bits per sample", "± standard error"),
    ("bits per dimension", "± standard error"),
    ("difference", "bits per sample, paired, ± standard error"),
    ("chance", "that the order is real"),
    ("kind", "of the evidence"),
    ("time to fit", "seconds"),
    ("size", "parameters"),
)


def _standing(place: int, line: Any) -> list[_Cell]:
    name = _Cell(_label(line.model), line.model)
    if line.error is not None:
        return [
            name,
            _Cell(f"<span>failed: {_escape(line.error)}</span>", css="reason", span=len(_HEADS) - 1),
        ]
    sign = _SIGN[line.kind]
    if place == 0:
        chance = _Cell("best", 1.0)
    elif line.chance is None:
        chance = _Cell("unknown (bound)")
    else:
        chance = _Cell(_chance(line.chance), line.chance)
    return [
        name,
        _with_error(line.bits, line.bits_stderr, sign=sign),
        _with_error(line.bits_per_dimension, line.bits_per_dimension_stderr, sign=sign),
        _with_error(line.difference, line.difference_stderr) if place else _Cell("0", 0.0),
        chance,
        _word(line.kind.value),
        _value(line.seconds, digits=1),
        _value(line.parameters, digits=0) if line.parameters else _NOTHING,
    ]


def table_html(board: Any) -> str:
    """The table of a `Comparison` as HTML: a line for each model, failures with their reason."""
    rows = [_standing(place, line) for place, line in enumerate(board.table())]
    return _table("Held-out code length, fewer bits are better", _HEADS, rows, sortable=True, best=True)


def _differences(view: _Board) -> str:
    if len(view.good) < 2:
        return "<p>There are no two models to compare.</p>"
    best = view.good[0]
    rows = []
    for line in view.good[1:]:
        gap, error = line.difference, line.difference_stderr
        side = {Kind.LOWER: "may be better than this", Kind.UPPER: "may be worse than this"}.get(
            line.kind, ""
        )
        chance = "unknown" if line.chance is None else _chance(line.chance)
        rows.append(
            [
                _Cell(_label(line.model)),
                _with_error(gap, error),
                _Cell(f"{_number(gap - 1.96 * error, error)} … {_number(gap + 1.96 * error, error)}")
                if math.isfinite(gap) and math.isfinite(error)
                else _NOTHING,
                _Cell(chance),
                _word(side),
            ]
        )
    heads = [
        ("model", ""),
        ("difference", "bits per sample, ± standard error"),
        ("interval", "95 %, bits per sample"),
        ("chance", "that the order is real"),
        ("remark", ""),
    ]
    caption = f"Bits per sample that each model needs more than {best.model}, on the same rows"
    alt = f"Paired differences to {best.model} with intervals of 95 %; the table below has the numbers."
    title = "Dots with intervals of 95 %. The arrow of a bound points to where the truth may be."
    return _figure(plots.comparison(view.board), title, alt, "single") + _table(caption, heads, rows)


def _learning(view: _Board) -> str:
    cards, rows = [], []
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
        alt = f"Objective of {line.model} from {first.mean():.4g} to {last.mean():.4g} bits per sample."
        if max(len(np.atleast_1d(h["objective"])) for h in histories) > 1:
            cards.append(_figure(plots.learning_curves(histories), f"<b>{_label(line.model)}</b>", alt))
        rows.append(
            [
                _Cell(_label(line.model)),
                _value(float(np.mean(counts)), digits=0) if counts else _NOTHING,
                _Cell(f"{sum(converged)} of {len(converged)}") if converged else _NOTHING,
                _value(float(first.mean())),
                _value(float(last.mean())),
                _value(float(last.std(ddof=1))) if len(last) > 1 else _NOTHING,
            ]
        )
    if not rows:
        return "<p>No model of this comparison learns by iteration.</p>"
    heads = [
        ("model", ""),
        ("iterations", "mean over fits"),
        ("converged", "fits"),
        ("objective at first", "bits per sample"),
        ("objective at last", "bits per sample"),
        ("spread", "standard deviation over fits, bits"),
    ]
    note = (
        "<p>What each learner lowers, on the rows it is trained on: a line for each fit. For most models "
        "it is the free energy, an upper bound of the code length; for models trained by contrast it is a "
        "difference of energies, which shows progress but is no code length.</p>"
    )
    cards_html = f'<div class="cards">{"".join(cards)}</div>'
    return note + cards_html + _table("Learning, mean over the fits of all folds", heads, rows)


def _samples(view: _Board) -> str:
    board = view.board
    drawn = [(line.model, view.first(line.model, "samples")) for line in view.good]
    drawn = [(model, np.asarray(samples, float)) for model, samples in drawn if samples is not None]
    if not drawn:
        return "<p>No model of this comparison can draw samples.</p>"
    if view.sequences:
        return _sample_paths(view, drawn)
    data = np.asarray(board.examples, float)
    cards = []
    if view.shape is not None:
        for name, X in [("data", data), *drawn]:
            whole = plots.mosaic(X[:_IMAGES], view.shape)
            who = "Rows of the data" if name == "data" else f"Draws of {name}"
            picture = _picture(whole, view.limits, f"{who} as images")
            title = "<b>data</b>" if name == "data" else f"<b>{_label(name)}</b>"
            cards.append(f"<figure><figcaption>{title}</figcaption>{picture}</figure>")
        grid = f'<div class="cards">{"".join(cards)}</div>'
    else:
        for name, X in drawn:
            axes = plots.pairs(data, X, names=board.feature_names, labels=None)
            alt = f"Pairs of columns of the data beside draws of {name}."
            cards.append(_figure(axes[0, 0], f"<b>{_label(name)}</b> {_KEY}", alt))
        grid = f'<div class="cards broad">{"".join(cards)}</div>'
    return grid + _moments(data, drawn)


def _moments(data: np.ndarray, drawn: list[tuple[str, np.ndarray]]) -> str:
    """How far means, spreads and correlations of the draws are from those of the data."""
    spread = np.nanstd(data, axis=0)
    used = np.flatnonzero(spread > 0)[:_MOMENTS]
    data, spread = data[:, used], spread[used]
    if not len(used):
        return ""
    upper = np.triu_indices(data.shape[1], 1)

    def correlations(X: np.ndarray) -> np.ndarray:
        z = X - np.nanmean(X, axis=0)
        z = np.nan_to_num(z / np.maximum(np.nanstd(X, axis=0), np.finfo(float).tiny))
        return (z.T @ z / len(z))[upper]

    own = correlations(data)
    rows = []
    for name, X in drawn:
        X = X[:, used]
        shift = np.abs(np.nanmean(X, axis=0) - np.nanmean(data, axis=0)) / spread
        ratio = np.nanstd(X, axis=0) / spread
        wrong = np.sqrt(np.mean((correlations(X) - own) ** 2)) if len(own) else math.nan
        rows.append(
            [
                _Cell(_escape(name)),
                _value(len(X), digits=0),
                _value(float(shift.mean()), digits=3),
                _value(float(shift.max()), digits=3),
                _value(float(np.median(ratio)), digits=3),
                _value(float(wrong), digits=3) if len(own) else _NOTHING,
            ]
        )
    heads = [
        ("model", ""),
        ("draws", "rows"),
        ("shift of the mean", "standard deviations, mean over columns"),
        ("largest shift", "standard deviations"),
        ("spread", "model / data, median over columns"),
        ("error of correlations", "root mean square"),
    ]
    return _table(f"Draws against {len(data)} rows of the data", heads, rows)


def _sample_paths(view: _Board, drawn: list[tuple[str, np.ndarray]]) -> str:
    series = [np.asarray(one, float).reshape(len(one), -1) for one in view.board.examples][:_PATHS]
    names = view.board.feature_names
    cards, rows = [], []
    for model, samples in drawn:
        other = list(samples[:_PATHS])
        for feature in range(min(series[0].shape[1], 3)):
            axes = plots.paths(series, other, feature=feature, labels=None)
            title = f"<b>{_escape(model)}</b>: {_escape(names[feature])} over time {_KEY}"
            cards.append(_figure(axes, title, f"Paths of the data beside draws of {model}."))
            data = np.concatenate([one[:, feature] for one in series])
            draws = np.concatenate([one[:, feature] for one in other])
            rows.append(
                [
                    _Cell(_escape(model)),
                    _word(names[feature]),
                    *(_value(float(f(v))) for f in (np.nanmean, np.nanstd) for v in (data, draws)),
                ]
            )
    heads = [
        ("model", ""),
        ("feature", ""),
        ("mean", "data"),
        ("mean", "draws"),
        ("standard deviation", "data"),
        ("standard deviation", "draws"),
    ]
    return f'<div class="cards">{"".join(cards)}</div>' + _table("Draws against the data", heads, rows)


def _latent(view: _Board) -> str:
    cards, rows = [], []
    for line in view.good:
        z = view.first(line.model, "latent")
        if z is None or len(z) == 0:
            continue
        z = np.asarray(z, float).reshape(len(z), -1)
        which = view.first(line.model, "latent_rows")
        shares = z.shape[1] > 1 and np.all(z >= 0) and np.allclose(z.sum(axis=1), 1, atol=1e-6)
        if view.groups is not None:
            colour, by = view.groups[which], "label"
        elif shares:
            colour, by = z.argmax(axis=1), "largest responsibility"
        else:
            colour, by = view.bits[line.model][which], "bits of the row"
        spread = np.linalg.svd(z - z.mean(axis=0), compute_uv=False) ** 2
        kept = float(spread[:2].sum() / spread.sum()) if spread.sum() > 0 else 1.0
        alt = f"Hidden coordinates of {len(z)} held-out rows under {line.model}, coloured by {by}."
        title = f"<b>{_label(line.model)}</b>, coloured by {by}"
        cards.append(_figure(plots.latent(z, colour), title, alt))
        rows.append(
            [
                _Cell(_label(line.model)),
                _word("responsibilities" if shares else "coordinates"),
                _value(z.shape[1], digits=0),
                _value(len(z), digits=0),
                _Cell(f"{100 * kept:.0f} %"),
            ]
        )
    if not cards:
        return "<p>No model of this comparison has a hidden part to show.</p>"
    heads = [
        ("model", ""),
        ("hidden part", ""),
        ("dimension", "numbers per row"),
        ("shown", "held-out rows"),
        ("variance in two directions", "share"),
    ]
    return f'<div class="cards">{"".join(cards)}</div>' + _table("Hidden parts", heads, rows)


def _rank_test(ranks: np.ndarray, draws: int) -> tuple[float, float]:
    """Kolmogorov's distance of ranks from uniform and its p-value.

    All ranks share the draws they are ranked among, as in a test of two samples.
    """
    distance = uniformity(ranks).statistic
    size = max(round(len(ranks) * draws / (len(ranks) + draws)), 1)
    return distance, float(stats.kstwo.sf(distance, size))


def _calibration(view: _Board) -> str:
    cards, rows = [], []
    for line in view.good:
        ranks = view.first(line.model, "pit")
        if ranks is None or len(ranks) == 0:
            continue
        draws = len(view.first(line.model, "samples"))
        distance, p_value = _rank_test(ranks, draws)
        alt = f"Histogram of ranks for {line.model}, Kolmogorov–Smirnov p = {p_value:.2g}."
        cards.append(_figure(plots.calibration(ranks, draws=draws), f"<b>{_label(line.model)}</b>", alt))
        outside = float(np.mean(np.asarray(ranks) < 0.05))
        rows.append(
            [
                _Cell(_label(line.model)),
                _value(len(ranks), digits=0),
                _value(float(distance), digits=3),
                _Cell(f"{p_value:.3f}" if p_value >= 0.001 else "&lt; 0.001", float(p_value)),
                _Cell(f"{100 * outside:.1f} %"),
                _word("agrees with its draws" if p_value >= 0.05 else "differs from its draws"),
            ]
        )
    if not cards:
        return "<p>No model of this comparison has ranks of its evidence.</p>"
    note = (
        "<p>The rank of log p of each held-out row among log p of draws of the model itself. If the data "
        "came from the model, ranks would be uniform: the line would stay in the grey band, in which each "
        "bar is with chance 95 %. High bars at the left are rows that the model finds less likely than "
        "what it draws; at the right, rows that are more likely, as when its draws are too noisy.</p>"
    )
    heads = [
        ("model", ""),
        ("rows", "held out"),
        ("distance", "Kolmogorov–Smirnov"),
        ("p-value", "of a uniform rank"),
        ("least likely", "rows below rank 5 %"),
        ("verdict", "at 5 %"),
    ]
    return (
        note
        + f'<div class="cards">{"".join(cards)}</div>'
        + _table("Calibration of the evidence", heads, rows)
    )


def _wins(view: _Board) -> str:
    if len(view.good) < 2:
        return "<p>There are no two models to compare.</p>"
    models = [line.model for line in view.good]
    everything = np.array([view.bits[model] for model in models])
    everything = everything[:, ~np.isnan(everything).any(axis=0)]
    wins = np.bincount(everything.argmin(axis=0), minlength=len(models))
    share = 100 / max(wins.sum(), 1)
    rows = [
        [_Cell(_escape(model)), _value(int(count), digits=0), _Cell(f"{share * count:.1f} %")]
        for model, count in zip(models, wins)
    ]
    heads = [("model", ""), ("rows", "with the fewest bits"), ("share", "of held-out rows")]
    parts = [_table("On how many rows each model is the best of all", heads, rows)]
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


def _cases(view: _Board, winner: str, loser: str, cases: list[int]) -> str:
    """A table of the rows that one model explains so much better than another."""
    names, values = view.described(cases)
    heads = [("row", "number"), (winner, "bits"), (loser, "bits"), ("difference", "bits"), *names]
    rows = []
    for row, cells in zip(cases, values):
        one, two = view.bits[winner][row], view.bits[loser][row]
        rows.append([_Cell(str(row)), *(_value(v, digits=2) for v in (one, two, two - one)), *cells])
    return _table(f"Rows that {winner} explains better than {loser}, the largest first", heads, rows)


def _settings(view: _Board) -> str:
    settings = view.board.settings
    rows = [[_Cell(_escape(name)), _word(value)] for name, value in settings.items()]
    models = [f"    {label!r}: {settings.get(f'model {label}', '…')}," for label in view.board.labels]
    data = "X" if view.board.y is None else "X, y"
    code = "\n".join(
        [
            "import freeenergy as fe",
            "from freeenergy import *",
            "from freeenergy.distributions import *",
            "",
            "models = {",
            *models,
            "}",
            f"board = fe.compare(models, {data}, {settings['splits']}, random_state={settings['seed']})",
            'board.to_html("report.html")',
        ]
    )
    return (
        f"<p>The same data, seed and versions give the same numbers; <code>{data}</code>: the data.</p>"
        f'<pre tabindex="0"><code>{_escape(code)}</code></pre>'
        + _table("Settings, seeds and versions", [("what", ""), ("value", "")], rows)
    )


_SECTIONS = (
    ("table", "Table", lambda view: table_html(view.board)),
    ("differences", "Paired differences", _differences),
    ("learning", "Learning curves", _learning),
    ("samples", "Samples beside data", _samples),
    ("latent", "Latent spaces", _latent),
    ("calibration", "Calibration of the evidence", _calibration),
    ("wins", "Where each model wins", _wins),
    ("settings", "Settings and seeds", _settings),
)


def _resource(name: str) -> str:
    return (importlib.resources.files("freeenergy") / "_report" / name).read_text("utf-8")


def to_html(
    board: Any, path: str | os.PathLike[str], *, image_shape: tuple[int, int] | None = None
) -> None:
    """Writes the report of a `Comparison` to one HTML file, whole or not at all.

    Args:
        board: what `compare` returned.
        path: of the file; it needs no other file and no network.
        image_shape: height and width, when rows are images; square ones are recognised.
    """
    view = _Board(board, image_shape)
    script = _resource("report.js")
    # only this very script runs, and nothing is fetched, whatever the names in the data say
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    with plots.theme():
        sections = [
            f'<section id="{name}"><h2>{title}</h2>{write(view)}</section>'
            for name, title, write in _SECTIONS
        ]
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in _SECTIONS)
    rows = f"{board.n_rows:,}".replace(",", "\u202f")
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>Which model explains the data?</title><style>{_resource('report.css')}</style></head>\n"
        f'<body><header id="headline"><h1>Which model explains the data?</h1>{_headline(view)}'
        f'<p class="soft">{len(view.lines)} models · {rows} rows · {board.dimension} dimensions</p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f"<main>{chr(10).join(sections)}</main>\n<script>{script}</script></body></html>\n"
    )
    write_whole(path, page.encode())
