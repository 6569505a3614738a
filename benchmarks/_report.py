"""The table, on the terminal and in a file."""

from __future__ import annotations

import os
import platform
import statistics
from importlib.metadata import distributions
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ._race import Outcome, Skipped, Workload

RESULTS = Path(__file__).with_name("results.md")
_HEADS = ("workload", "peer", "ours: median (min)", "peer: median (min)", "ratio", "target", "same quality")
_PACKAGES = (
    "freeenergy",
    "jax",
    "numpy",
    "scikit-learn",
    "statsmodels",
    "hmmlearn",
    "dynamax",
    "gensim",
    "torch",
)

Row = tuple[str, Workload, Outcome | Skipped]


def _number(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}) {unit}"


def _cells(row: Row) -> tuple[str, ...]:
    name, workload, outcome = row
    target = f"≥ {workload.target:g}"
    if isinstance(outcome, Skipped):
        return (name, workload.peer, "–", "–", "–", target, f"not run: {outcome.reason}")
    quality = f"{'yes' if outcome.good else 'NO'}: {outcome.note}"
    numbers = (_number(outcome.ours, outcome.unit), _number(outcome.theirs, outcome.unit))
    return (name, workload.peer, *numbers, f"{outcome.ratio:.2f}", target, quality)


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


def write(rows: list[Row]) -> None:
    """Writes the table, with the machine and the versions it belongs to, to `RESULTS`."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    found = {distribution.name: distribution.version for distribution in distributions()}
    versions = ", ".join(f"{package} {found[package]}" for package in _PACKAGES if package in found)
    lines = [
        "# Speed beside the peers",
        "",
        f"Written by `python -m benchmarks --write` on a machine with {machine}; Python "
        f"{platform.python_version()}, {versions}. Times are medians of interleaved runs in one process, "
        "the least in brackets; the ratio is the peer's median over ours.",
        "",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
        *("| " + " | ".join(_cells(row)) + " |" for row in rows),
        "",
        *(f"- **{name}**: {workload.what}" for name, workload, _ in rows),
        "",
    ]
    RESULTS.write_text("\n".join(lines), encoding="utf-8")
