"""Words, numbers, tables and drawings as HTML."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.image import imsave

from .. import plots
from .._core import visible

_LONG = 28


def escape(text: Any) -> str:
    return html.escape(visible(text), quote=True)


def breakable(text: Any) -> str:
    """The label of a model, which may be broken after its punctuation."""
    return re.sub(r"([:,+]|\((?=[^()]{4}))", r"\1<wbr>", html.escape(visible(text), quote=False))


def told(value: float, error: float | None = None, *, digits: int | None = None) -> str:
    """`value` with as many digits as its standard error `error` leaves meaning."""
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if digits is None:
        scale = error if error and math.isfinite(error) else abs(value) / 100
        digits = 2 if scale <= 0 else min(max(1 - math.floor(math.log10(scale)), 0), 6)
    return f"{value:,.{digits}f}".replace(",", "\u202f").replace("-", "−")


def percent(chance: float) -> str:
    if chance > 0.999:
        return "&gt; 99.9 %"
    return f"{100 * chance:.1f} %"


class Cell(NamedTuple):
    """A cell: its HTML, what it is sorted by, and its class."""

    text: str
    value: Any = None
    css: str = ""
    span: int = 1

    def html(self, tag: str = "td") -> str:
        scope = ' scope="row"' if tag == "th" else ""
        value = "" if self.value is None else f' data-value="{escape(self.value)}"'
        css = f' class="{self.css}"' if self.css else ""
        span = f' colspan="{self.span}"' if self.span > 1 else ""
        return f"<{tag}{scope}{css}{span}{value}>{self.text}</{tag}>"


def word_cell(text: Any) -> Cell:
    # many words are broken into lines, few stand in one
    return Cell(escape(text), str(text), "text long" if len(str(text)) > _LONG else "text")


def value_cell(
    value: float, error: float | None = None, *, sign: str = "", digits: int | None = None
) -> Cell:
    return Cell(sign + told(value, error, digits=digits), float(value))


def with_error(value: float, error: float, *, sign: str = "") -> Cell:
    known = f" ± {told(error, error)}" if math.isfinite(error) else ""
    return Cell(f"{sign}{told(value, error)}{known}", float(value))


NOTHING = Cell("–")


def table_of(
    caption: str,
    heads: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[Cell]],
    *,
    sortable: bool = False,
    best: bool = False,
) -> str:
    """A table in a box of its own that scrolls; `heads` are words and units, first cells name their row."""
    rows = list(rows)
    # a heading stands where the cells below it stand
    laid = itertools.zip_longest(*rows, fillvalue=NOTHING)
    sides = [any("text" in cell.css for cell in cells) for cells in laid]
    sides += [False] * (len(heads) - len(sides))
    titles = "".join(
        f'<th scope="col"{" class=text" if side else ""}>{breakable(title)}'
        f"{f'<small>{escape(unit)}</small>' if unit else ''}</th>"
        for (title, unit), side in zip(heads, sides)
    )
    lines = []
    for number, (first, *others) in enumerate(rows):
        css = ' class="best"' if best and number == 0 else ""
        lines.append(f"<tr{css}>{first.html('th')}{''.join(cell.html() for cell in others)}</tr>")
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{kind}><caption><span>{escape(caption)}</span></caption>"
        f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


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
    # never so small that words cannot be read (the box around it scrolls), nor so large that they shout
    least, most = (f"{72 * scale * figure.get_figwidth():.0f}px" for scale in (1, 1.5))
    size = f"min-width: {least}; max-width: {most}"
    start = f'<svg role="img" aria-label="{escape(alt)}" style="{size}" viewBox="'
    return re.sub(r'^<svg[^>]*?viewBox="', lambda m: start, text, count=1)


def _rounded_mark(found: re.Match[str]) -> str:
    return f"{found[1]}{float(found[2]):.1f}{found[3]}{float(found[4]):.1f}"


def _grouped(found: re.Match[str]) -> str:
    """A group of marks that has their style itself."""
    style = f' style="{found[3]}"'
    return f"<g{found[1]}{style}>{found[2].replace(style, '')}</g>"


def card(axes: Any, title: str, alt: str, css: str = "") -> str:
    """A card with a caption and a drawing; `title` is HTML."""
    drawing = _svg(axes.figure, alt)
    kind = f' class="{css}"' if css else ""
    return f'<figure{kind}><figcaption>{title}</figcaption><div class="scroll">{drawing}</div></figure>'


def bitmap(whole: np.ndarray, limits: tuple[float, float], alt: str) -> str:
    """Numbers as ink: transparent where they are low or unknown, so that it suits any ground."""
    low, high = limits
    share = np.clip((np.nan_to_num(whole, nan=low) - low) / (high - low or 1.0), 0, 1)
    ink = np.zeros((*whole.shape, 4), np.uint8)
    ink[..., 3] = np.rint(255 * share)
    buffer = io.BytesIO()
    imsave(buffer, ink, format="png")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img class="picture" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
