"""How the time of a fit grows with rows and with time steps.

    python -m benchmarks.linear_cost docs/linear_cost.png

Rows are read in chunks from a file, so that memory does not grow with them.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy import plots

COLUMNS, COMPONENTS, PASSES = 8, 5, 5
ROWS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
STEPS = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def write_rows(path: Path, rows: int) -> None:
    """Overlapping clusters, written part by part."""
    out = np.lib.format.open_memmap(path, "w+", np.float64, (rows, COLUMNS))
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(COMPONENTS, COLUMNS))
    for start in range(0, rows, 100_000):
        part = out[start : start + 100_000]
        part[:] = centres[rng.integers(COMPONENTS, size=len(part))] + rng.normal(size=part.shape)
    out.flush()


def mixture(path: Path) -> fe.GaussianMixture:
    model = fe.GaussianMixture(COMPONENTS, max_iter=PASSES, tol=0.0, random_state=0)
    return model.fit(fe.Chunks(path))


def hidden_markov(x: np.ndarray) -> fe.HMM:
    return fe.HMM(4, max_iter=PASSES, tol=0.0, random_state=0).fit(x)


def linear_system(x: np.ndarray) -> fe.LinearGaussianSSM:
    return fe.LinearGaussianSSM(2, max_iter=PASSES, tol=0.0, random_state=0).fit(x)


def seconds(function: Callable[[], object]) -> float:
    """Of the second call: the first compiles."""
    function()
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def peak() -> float:
    """The most memory that the process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--quick", action="store_true", help="only the two smallest sizes")
    options = parser.parse_args()
    sizes = slice(2 if options.quick else None)
    warnings.simplefilter("ignore", ConvergenceWarning)
    curves: dict[str, list[tuple[int, float]]] = {}

    def measure(name: str, size: int, function: Callable[[], object]) -> None:
        curves.setdefault(name, []).append((size, seconds(function)))
        print(f"{name}: {size:,} in {curves[name][-1][1]:.2f} s, peak {peak():.2f} GB", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        for rows in ROWS[sizes]:
            write_rows(path, rows)
            measure("GaussianMixture, rows from a file", rows, lambda: mixture(path))
    rng = np.random.default_rng(0)
    for steps in STEPS[sizes]:
        x = np.repeat(rng.normal(size=(steps // 10, 2)), 10, axis=0) + rng.normal(size=(steps, 2))
        measure("HMM, time steps", steps, lambda x=x: hidden_markov(x))
        measure("LinearGaussianSSM, time steps", steps, lambda x=x: linear_system(x))
    draw(curves).savefig(options.picture, dpi=120, facecolor="white", bbox_inches="tight")


def draw(curves: dict[str, list[tuple[int, float]]]) -> Figure:
    """Seconds over size, with a line of slope one through each last point."""
    with plots.theme():
        figure = Figure((5.2, 3.4))
        axes = figure.subplots()
        for colour, (name, points) in zip(plots.PALETTE, curves.items(), strict=False):
            size, taken = np.array(points, float).T
            axes.loglog(size, taken, "o", color=colour, label=name)
            axes.loglog(size, taken[-1] * size / size[-1], color=colour, alpha=0.5, linewidth=1)
        axes.set_xlabel("rows or time steps")
        axes.set_ylabel(f"seconds for {PASSES} steps of EM")
        axes.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main()
