"""The report of a comparison: one HTML file that needs no network, for any screen, light and dark."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import os
from typing import Any

from .. import plots
from .._core import in_notebook, notes_in_notebook, write_whole
from . import _columns, _numbers, _pictures, _posteriors, _predictions
from ._html import escape
from ._numbers import table_html
from ._view import View

__all__ = ["notebook_html", "posterior_to_html", "table_html", "to_html"]

_SECTIONS = (
    ("columns", "Columns", _columns.columns),
    (
        "table",
        "Table",
        lambda view: table_html(view.board) + _numbers.forecasts(view) + _predictions.measures(view),
    ),
    ("differences", "Paired differences", _numbers.differences),
    ("draws", "Draws beside held-out rows", _numbers.draws),
    ("predictions", "Predictions of held-out rows", _predictions.predictions),
    ("effects", "What the best model looks at", _predictions.effects),
    ("learning", "Learning curves", _numbers.learning),
    ("distributions", "Each column, data beside draws", _columns.distributions),
    ("association", "Columns together, data beside draws", _columns.association),
    ("samples", "Samples beside data", _pictures.samples),
    ("latent", "Latent spaces", _pictures.latent),
    ("parts", "Parts of the models", _pictures.parts),
    ("calibration", "Calibration of the evidence", _pictures.calibration),
    ("unlikely", "What the best model expects least", _columns.unlikely),
    ("wins", "Where each model wins", _numbers.wins),
    ("settings", "Settings and seeds", _numbers.settings),
)
# sections that say nothing of models of numbers given rows
_OF_DENSITIES = ("samples", "latent", "parts", "calibration", "unlikely")
# sections that say nothing of series, which are shown over time
_OF_ROWS = ("distributions", "association", "parts", "unlikely")


def _resource(name: str) -> str:
    return (importlib.resources.files(__name__) / name).read_text("utf-8")


def notebook_html(board: Any) -> str:
    """The table of a `Comparison` with its notes, as notebooks show it."""
    return in_notebook(table_html(board), notes_in_notebook(board.notes))


def to_html(
    board: Any, path: str | os.PathLike[str], *, image_shape: tuple[int, int] | None = None
) -> None:
    """Writes the report of a `Comparison` to one HTML file, whole or not at all.

    Args:
        board: what `compare` returned.
        path: of the file; it needs no other file and no network.
        image_shape: height and width, when rows are images; square ones are recognised.
    """
    view = View(board, image_shape)
    # what is about other data than these is left out
    left = _OF_DENSITIES if view.numbers else _OF_ROWS if view.sequences else ()
    with plots.theme():
        written = [(name, title, write(view)) for name, title, write in _SECTIONS if name not in left]
    written = [section for section in written if section[2]]
    units = f"{board.n_rows:,} {view.units}".replace(",", "\u202f")
    about = f"{len(view.lines)} models · {units} · {board.dimension} dimensions"
    _write(path, "Which model explains the data?", _numbers.headline(view), about, written)


def posterior_to_html(
    posterior: Any, path: str | os.PathLike[str], *, title: str = "What is known"
) -> None:
    """Writes a posterior to one HTML file: a table, and of each entry histogram, trace and ranks; pairs.

    Args:
        posterior: what `freeenergy.infer` returned.
        path: of the file; it needs no other file and no network.
        title: its heading.
    """
    with plots.theme():
        written = _posteriors.sections(posterior)
    _write(path, title, _posteriors.headline(posterior), _posteriors.about(posterior), written)


def _write(
    path: str | os.PathLike[str],
    title: str,
    headline: str,
    about: str,
    written: list[tuple[str, str, str]],
) -> None:
    """A page of sections, each with its name, its title and its HTML; `headline` is HTML too."""
    script = _resource("report.js")
    # only this very script runs, and nothing is fetched, whatever the names in the data say
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    sections = [f'<section id="{name}"><h2>{head}</h2>{text}</section>' for name, head, text in written]
    links = "".join(f'<li><a href="#{name}">{head}</a></li>' for name, head, _ in written)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_resource('report.css')}</style></head>\n"
        f'<body><header id="headline"><h1>{escape(title)}</h1>{headline}'
        f'<p class="soft">{about}</p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f"<main>{chr(10).join(sections)}</main>\n<script>{script}</script></body></html>\n"
    )
    write_whole(path, page.encode())
