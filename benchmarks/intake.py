from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import freeenergy as fe
from freeenergy.datasets import read_table

from ._race import Outcome, Workload

ROWS, REPEATS = 1_000_000, 5
LABELS = ("red", "green", "blue", "violet")


def frame(rows: int) -> pl.DataFrame:
    """Twenty columns: numbers, rounded ones, counts, labels, truth values, days; four with holes."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        **{f"number{i}": rng.normal(size=rows) * 10.0 ** (i - 3) for i in range(8)},
        **{f"rounded{i}": np.round(rng.normal(20, 5, rows), 1) for i in range(3)},
        **{f"count{i}": rng.poisson(4 + i, rows) for i in range(3)},
        **{f"label{i}": np.array(LABELS)[rng.integers(len(LABELS), size=rows)] for i in range(3)},
        "code": rng.integers(2, size=rows),
        "day": np.datetime64("2000-01-01") + rng.integers(9000, size=rows),
        "flag": rng.random(rows) < 0.5,
    }
    holes = {
        name: pl.Series(rng.random(rows) < 0.05) for name in ("number1", "rounded0", "count1", "label2")
    }
    return pl.DataFrame(columns).with_columns(
        pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name, gone in holes.items()
    )


def run(quick: bool) -> Outcome:
    written = frame(20_000 if quick else ROWS)
    seconds: tuple[list[float], list[float]] = ([], [])
    waited: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        written.write_csv(path)

        def ours() -> Any:
            read = read_table(path).frame
            return read, fe.Schema.recognise(read)

        def theirs() -> Any:
            return pl.read_csv(path, try_parse_dates=True)

        found: list[Any] = [None, None]
        for repeat in range(REPEATS + 1):
            for side, contestant in enumerate((ours, theirs)):
                cpu, clock = time.process_time(), time.perf_counter()
                found[side] = contestant()
                if repeat > 0:
                    seconds[side].append(time.process_time() - cpu)
                    waited[side].append(time.perf_counter() - clock)
    (read, schema), own = found
    good = read.equals(own) and read.equals(written)
    kinds = len({field.kind for field in schema.fields})
    note = f"{kinds} kinds of column; {min(waited[0]):.2f} and {min(waited[1]):.2f} s of waiting at least"
    return Outcome(*seconds, good, note, "CPU s")


WORKLOAD = Workload(
    "CSV of 1,000,000 × 20 mixed columns with holes, read, its kinds of column recognised and encoded",
    "Polars, reading alone",
    1 / 3,
    run,
)
