"""Held-out bits of the same ten tables, by each density of the library that takes them.

The peers above fill in cells and have no density, so that there is nothing to set beside these numbers:
they say which of our own describes a table best.  The tables have the holes of the study above, which are
marginalised; kinds of columns are as `Schema` recognises them.  A quarter of the rows is held out.  Bits
are those of a row, with its values as they are written, each with a probability; ≤ marks an upper bound.
"Columns apart" is a family for each column and nothing between them: what another density has less is what
it knows of one column by the others, or of the shape of a column.  randhie and fair have columns in which
single values recur without a grid: of such a density is the higher the narrower it may get there, so that
the differences on these two say little of how well the columns are understood.

`MixedFactorAnalysis` once had Poissons for all counts and 34.35 bits on modechoice, more than
columns apart: there the variance of ttme and hinc is 19 and 11 times their mean, and they have 23
and 24 different values. Their own shares have 3.4 and 4.1 bits, a Poisson with a log-normal rate,
as a factor makes it, 6.8 and 6.4, and both factors went into the spread of these two. With tables
that the factors tilt it is as below; anes96 and fair, which have such counts too, were measured
before.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import freeenergy as fe
from freeenergy.distributions import ByColumn, Full

from .imputation import ROWS, TABLES, _labels, holes, table

__all__ = ["TABLES", "report", "study"]

APART = "columns apart"


def densities() -> dict[str, Any]:
    """The densities of tables with columns of several kinds."""
    return {
        APART: fe.Mixture(1, family="by column"),
        "Mixture(3, 'by column')": fe.Mixture(3, family="by column", n_init=2),
        "Mixture(2, full)": fe.Mixture(2, family=ByColumn(covariance=Full()), n_init=2),
        "BayesianMixture(6, 'by column')": fe.BayesianMixture(6, family="by column", n_init=2),
        "GaussianCopula()": fe.GaussianCopula(),
        "MixedFactorAnalysis(2)": fe.MixedFactorAnalysis(2),
        "KernelDensity()": fe.KernelDensity(),
    }


def study(name: str, *, quick: bool, kept: dict[str, Any] | None = None) -> dict[str, Any]:
    """All densities on one table; what is kept of them stays."""
    true = table(name, 60 if quick else ROWS)
    frame = true.mask(holes(true, 1))
    known = {} if kept is None else kept["methods"]
    left = {label: model for label, model in densities().items() if label not in known}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = fe.compare(left, frame, test_size=0.25, random_state=1).table() if left else []
    found = {
        line.model: {
            "bits": line.bits,
            "error": line.bits_stderr,
            "kind": line.kind.value,
            "seconds": line.seconds,
        }
        if line.error is None
        else line.error
        for line in lines
    }
    shape = {"rows": len(true), "columns": true.shape[1], "labels": len(_labels(true))}
    return {**shape, "methods": {label: (known | found)[label] for label in densities()}}


def report(results: dict[str, dict[str, Any]]) -> list[str]:
    """The table of the page."""
    labels = list(densities())
    lines = ["| table | rows × columns (labels) | " + " | ".join(_code(m) for m in labels) + " |"]
    lines += ["|---" * (len(labels) + 2) + "|"]
    saved: dict[str, list[float]] = {label: [] for label in labels}
    for name, result in results.items():
        found = {m: v for m, v in result["methods"].items() if isinstance(v, dict)}
        least, cells = min(v["bits"] for v in found.values()), []
        for label in labels:
            value = found.get(label)
            if value is None:
                cells.append("failed")
                continue
            text = f"{'≤ ' if value['kind'] == 'lower bound' else ''}{value['bits']:.2f}"
            cells.append(f"**{text}**" if value["bits"] == least else text)
            saved[label].append((value["bits"] - found[APART]["bits"]) / result["columns"])
        size = f"{result['rows']} × {result['columns']} ({result['labels']})"
        lines.append(f"| {name} | {size} | " + " | ".join(cells) + " |")
    whole = [m for m in labels if len(saved[m]) == len(results)]
    cells = [f"{np.median(saved[m]):+.3f}" if m in whole else "–" for m in labels]
    return [*lines, "| **median, a column more than apart** | | " + " | ".join(cells) + " |"]


def _code(label: str) -> str:
    return label if label == APART else f"`{label}`"
