"""The table, on the terminal and in a file."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ._race import Outcome, Skipped, Workload

RESULTS = Path(__file__).with_name("results.md")
_HEADS = (
    "workload",
    "peer",
    "ours: median (min)",
    "peer: median (min)",
    "ratio",
    "target",
    "same quality",
    "day",
)
_LINE = re.compile(r"^\| (?P<name>\w+) \|.*\|$", re.MULTILINE)
_NOTES = "\n## Rows that are short\n"
_PACKAGES = (
    "freeenergy",
    "jax",
    "numpy",
    "polars",
    "scikit-learn",
    "statsmodels",
    "hmmlearn",
    "dynamax",
    "gensim",
    "pgmpy",
    "torch",
)

Row = tuple[str, Workload, Outcome | Skipped]


def _number(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}) {unit}"


def _cells(row: Row) -> tuple[str, ...]:
    name, workload, outcome = row
    target, day = f"≥ {workload.target:g}", datetime.date.today().isoformat()
    if isinstance(outcome, Skipped):
        return (name, workload.peer, "–", "–", "–", target, f"not run: {outcome.reason}", day)
    quality = f"{'yes' if outcome.good else 'NO'}: {outcome.note}"
    numbers = (_number(outcome.ours, outcome.unit), _number(outcome.theirs, outcome.unit))
    return (name, workload.peer, *numbers, f"{outcome.ratio:.2f}", target, quality, day)


def reached(row: Row) -> bool:
    """Whether the target was reached, with the same quality."""
    _, workload, outcome = row
    return isinstance(outcome, Skipped) or (outcome.good and outcome.ratio >= workload.target)


def show(rows: list[Row], console: Console) -> None:
    """Prints the table; green rows reached their target."""
    table = Table(*_HEADS)
    for row in rows:
        table.add_row(*_cells(row), style="green" if reached(row) else "red")
    console.print(table)


def write(rows: list[Row], every: Mapping[str, Workload]) -> None:
    """Writes the table to `RESULTS`, with the machine and the versions of this run.

    Rows of an earlier run that are not among `rows` stay, each with its day, and so do the remarks below
    the table: a run that is cut off, or of some workloads only, loses nothing.
    """
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    table, _, remarks = before.partition(_NOTES)
    lines = {found["name"]: found[0] for found in _LINE.finditer(table)}
    lines |= {row[0]: "| " + " | ".join(_cells(row)) + " |" for row in rows}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    found = {distribution.name: distribution.version for distribution in distributions()}
    versions = ", ".join(f"{package} {found[package]}" for package in _PACKAGES if package in found)
    text = [
        "# Speed beside the peers",
        "",
        f"Written by `python -m benchmarks --write` on a machine with {machine}; Python "
        f"{platform.python_version()}, {versions}. Times are medians of interleaved runs in one process, "
        "the least in brackets; the ratio is the peer's median over ours.",
        "",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
        *(lines[name] for name in every if name in lines),
        "",
        *(f"- **{name}**: {workload.what}" for name, workload in every.items()),
        "",
    ]
    RESULTS.write_text("\n".join(text) + (_NOTES + remarks if remarks else ""), encoding="utf-8")
