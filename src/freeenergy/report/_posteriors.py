"""The page of a posterior: its table, and pictures that show whether to trust it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import plots
from ..plots._posteriors import labels_of, regions_of
from ._html import card, escape, table_of, value_cell, word_cell

# entries that have pictures, and those that are shown against each other
_MOST, _MOST_PAIRS = 12, 5


def headline(posterior: Any) -> str:
    """What it is, and the sentences that warn of it."""
    note = f"<p>Inferred by {escape(posterior.note)}.</p>" if posterior.note else ""
    return note + "".join(f"<p><strong>{escape(said)}</strong></p>" for said in posterior.warnings)


def about(posterior: Any) -> str:
    """Its nature, and log Z where that is known."""
    words = [escape(posterior.nature.value)]
    found = posterior.log_evidence
    if found is not None:
        error = f" ± {float(found.stderr):.2g}" if float(found.stderr) > 0 else ""
        words.append(f"log Z = {float(found.nats):.6g}{error} nats ({escape(found.kind.value)})")
    return " · ".join(words)


def _table(posterior: Any) -> str:
    """The summary, with a line for each number and for each value of a label."""
    summary = posterior.summary()
    heads = [("entry", ""), *((title, "") for title in summary.columns)]
    rows = [
        [word_cell(name), *(_cell(float(column[i])) for column in summary.columns.values())]
        for i, name in enumerate(summary.names)
    ]
    return table_of("Entries", heads, rows)


def _cell(value: float) -> Any:
    return word_cell("") if np.isnan(value) else value_cell(value)


def sections(posterior: Any) -> list[tuple[str, str, str]]:
    """Name, title and HTML of each section."""
    names, chains = posterior.chains()
    shown = names[:_MOST]
    regions, labels = regions_of(posterior), labels_of(posterior)
    flat = chains.reshape(-1, len(names))
    written = [("table", "Table", _table(posterior))]
    cards = [
        card(
            plots.marginal(flat[:, i], name=name, pieces=regions.get(name, ()), labels=labels.get(name)),
            escape(name),
            f"Probabilities of {name}"
            if name in labels
            else f"Histogram of {name}, with its region of 90 %",
        )
        for i, name in enumerate(shown)
    ]
    written.append(("marginals", "Each entry", f'<div class="cards">{"".join(cards)}</div>'))
    if len(chains) > 1:
        traces = [plots.trace(chains[:, :, i], name=e, labels=labels.get(e)) for i, e in enumerate(shown)]
        ranks = [plots.ranks(chains[:, :, i], name="draws") for i in range(len(shown))]
        for title, name, drawn in (
            ("Traces", "traces", traces),
            ("Ranks of the chains", "ranks", ranks),
        ):
            cards = [
                card(axes, escape(entry), f"{title} of {entry}")
                for axes, entry in zip(drawn, shown, strict=True)
            ]
            written.append((name, title, f'<div class="cards">{"".join(cards)}</div>'))
    varying = [i for i, name in enumerate(names) if name not in labels and np.ptp(flat[:, i]) > 0]
    varying = varying[:_MOST_PAIRS]
    if len(varying) > 1:
        axes = plots.pairs(flat[:, varying], names=[names[i] for i in varying], labels=None, points=300)
        drawn = card(axes[0, 0], "Draws", "Every two entries against each other")
        written.append(("pairs", "Entries together", drawn))
    return written
