"""Tables for notebooks: HTML with a look of its own, in the colours of the notebook."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ._words import visible

# of the notebook are the ground, the letters and their colour, so that it suits light and dark ones
_STYLE = (
    ".freeenergy{margin:.3em 0;max-width:100%;overflow-x:auto}"
    ".freeenergy table{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums}"
    ".freeenergy caption{caption-side:top;text-align:left;padding:.2em .7em .3em 0;opacity:.75}"
    ".freeenergy th,.freeenergy td{padding:.25em .7em;text-align:right;border:0;"
    "border-bottom:1px solid rgba(128,128,128,.35);background:none}"
    ".freeenergy thead th{vertical-align:bottom;font-weight:600}"
    ".freeenergy th small{display:block;font-weight:400;opacity:.75}"
    ".freeenergy .text,.freeenergy .reason,.freeenergy tbody th,.freeenergy th:first-child{text-align:left}"
    ".freeenergy td:not(.text):not(.reason){white-space:nowrap}"
    ".freeenergy tr.best th,.freeenergy tr.best td{font-weight:700}"
    ".freeenergy ul.notes{margin:.4em 0;padding-left:1.2em;opacity:.85;max-width:60em}"
)


def in_notebook(*parts: str) -> str:
    """HTML of a record for a notebook, with its style."""
    return f'<div class="freeenergy"><style>{_STYLE}</style>{"".join(parts)}</div>'


def table_in_notebook(
    heads: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str = "",
    words: Collection[int] = (0,),
) -> str:
    """A table of text; the columns at the places `words` begin on the left, numbers end on the right.

    >>> table_in_notebook([], [["a", "<b>"]])
    '<table><tbody><tr><td class="text">a</td><td>&lt;b&gt;</td></tr></tbody></table>'
    """

    def line(cells: Sequence[Any], tag: str) -> str:
        made = ""
        for place, cell in enumerate(cells):
            side = ' class="text"' if place in words else ""
            made += f"<{tag}{side}>{html.escape(visible(cell))}</{tag}>"
        return f"<tr>{made}</tr>"

    head = f"<thead>{line(heads, 'th')}</thead>" if len(heads) else ""
    title = f"<caption>{html.escape(visible(caption))}</caption>" if caption else ""
    body = "".join(line(row, "td") for row in rows)
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def notes_in_notebook(notes: Iterable[Any]) -> str:
    """Sentences below a table; nothing if there are none."""
    listed = "".join(f"<li>{html.escape(visible(note))}</li>" for note in notes)
    return f'<ul class="notes">{listed}</ul>' if listed else ""
