"""Mixed tables with a fifth of the cells hidden, fitted, completed and drawn from by networks.

Two of the tables above with more of their rows, of which networks want many: the cells are hidden, and the
error is counted, in the same way (one is mean or mode), with one draw of the holes.  Every model is fitted
to the table with the holes.  The mixture has ten components with independent columns.  Labels are codes
with noise to the diffusion model (`Dequantised`).  Of a column some 600 cells are hidden, so that its error
is known to three or four hundredths, and the mean of nine columns to one or two.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import freeenergy as fe
from freeenergy.nn import Masked, ResidualDenoiser

from .imputation import TABLES as ALL
from .imputation import errors, holes, mean_or_mode, table

ROWS = 3000
TABLES = {name: ALL[name] for name in ("fair", "randhie")}


def models() -> dict[str, Any]:
    """The mixture, and the networks."""
    return {
        "freeenergy": fe.Mixture(10, family="by column", n_init=2, random_state=0),
        "VAE": fe.VAE(8, "by column", width=64, max_iter=200, random_state=0),
        "Autoregressive": fe.Autoregressive(5, network=Masked(64, 2), max_iter=40, random_state=0),
        "DiffusionModel": fe.Dequantised(
            fe.DiffusionModel(network=ResidualDenoiser(128, 3), max_iter=200, random_state=0),
            random_state=0,
        ),
    }


def study(name: str, *, quick: bool, kept: dict[str, Any] | None = None) -> dict[str, Any]:
    """All models on one table; what is kept of them stays."""
    true = table(name, 60 if quick else ROWS)
    hidden = holes(true, 1)
    frame = true.mask(hidden)
    base, _ = mean_or_mode(frame, 1)
    # whole numbers are numbers, as in the study above
    counts = [field.name for field in fe.Schema.recognise(frame).fields if field.kind.value == "count"]
    rows = fe.Schema.recognise(frame, kinds=dict.fromkeys(counts, "integer")).rows(frame)
    found = dict((kept or {}).get("methods", {}))
    for label, model in models().items():
        if label in found:
            continue
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = model.fit(rows).impute(rows)
        own = errors(true, done, base, hidden)
        found[label] = {
            "error": float(np.mean([*own.values()])),
            "columns": own,
            "seconds": time.process_time() - started,
            "epochs": int(model.n_iter_),
        }
        print(name, label, found[label], flush=True)
    return {"rows": len(true), "columns": true.shape[1], "methods": found}


def report(results: dict[str, dict[str, Any]]) -> list[str]:
    """The table of the page."""
    names = {"freeenergy": "`Mixture`"} | {name: f"`{name}`" for name in list(models())[1:]}
    lines = ["| table | rows × columns | mean or mode | " + " | ".join(names.values()) + " |"]
    lines += ["|---" * (len(names) + 3) + "|"]
    for name, result in results.items():
        found = [result["methods"].get(label) for label in names]
        cells = ["–" if one is None else f"{one['error']:.3f}" for one in found]
        size = f"{result['rows']:,} × {result['columns']}"
        lines.append(f"| {name} | {size} | 1.000 | " + " | ".join(cells) + " |")
    return lines
