"""The page of a posterior: its table, and pictures that show whether to trust it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import plots
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


def _labelled(posterior: Any) -> bool:
    return any(getattr(space, "unordered", False) for space in posterior.spaces)


def _table(posterior: Any) -> str:
    """The summary; of labels, how often each occurs."""
    if _labelled(posterior):
        names, chains = posterior.chains()
        flat = chains.reshape(-1, len(names))
        rows = [
            [word_cell(name), word_cell(f"{label:g}"), value_cell(float(np.mean(column == label)))]
            for name, column in zip(names, flat.T, strict=True)
            for label in np.unique(column)
        ]
        return table_of("Values", [("entry", ""), ("value", ""), ("probability", "")], rows)
    summary = posterior.summary()
    heads = [("entry", ""), *((title, "") for title in summary.columns)]
    rows = [
        [word_cell(name), *(value_cell(float(column[i])) for column in summary.columns.values())]
        for i, name in enumerate(summary.names)
    ]
    return table_of("Entries", heads, rows)


def sections(posterior: Any) -> list[tuple[str, str, str]]:
    """Name, title and HTML of each section."""
    names, chains = posterior.chains()
    shown = names[:_MOST]
    regions = {} if _labelled(posterior) else posterior.highest_density(0.9)
    flat = chains.reshape(-1, len(names))
    written = [("table", "Table", _table(posterior))]
    cards = [
        card(
            plots.marginal(flat[:, i], name=name, pieces=regions.get(name, ())),
            escape(name),
            f"Histogram of {name} with its region of 90 %",
        )
        for i, name in enumerate(shown)
    ]
    written.append(("marginals", "Each entry", f'<div class="cards">{"".join(cards)}</div>'))
    if len(chains) > 1:
        for title, name, draw in (
            ("Traces", "traces", plots.trace),
            ("Ranks of the chains", "ranks", plots.ranks),
        ):
            cards = [
                card(draw(chains[:, :, i], name=entry), escape(entry), f"{title} of {entry}")
                for i, entry in enumerate(shown)
            ]
            written.append((name, title, f'<div class="cards">{"".join(cards)}</div>'))
    varying = [i for i in range(min(len(names), _MOST_PAIRS)) if np.ptp(flat[:, i]) > 0]
    if len(varying) > 1:
        axes = plots.pairs(flat[:, varying], names=[names[i] for i in varying], labels=None, points=300)
        drawn = card(axes[0, 0], "Draws", "Every two entries against each other")
        written.append(("pairs", "Entries together", drawn))
    return written
