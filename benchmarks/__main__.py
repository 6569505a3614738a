from __future__ import annotations

import argparse
import importlib
import sys

from rich.console import Console

from . import diffusion, elastic_net, first_fit, glm, least_squares, nuts, vae_torch
from ._race import Outcome, Skipped, Workload
from ._report import RESULTS, Row, reached, show, write

# modules with several workloads
_SEVERAL = (vae_torch, diffusion, first_fit, least_squares, elastic_net, glm, nuts)

NAMES = (
    "intake",
    "mixture",
    "mixture_small",
    "by_column",
    "bayesian_mixture",
    "kmeans",
    "factor",
    "ica",
    "kalman",
    "kalman_dynamax",
    "local_level",
    "hmm",
    "hmm_dynamax",
    "hmm_small",
    "gaussian_process",
    "gaussian_process_gpytorch",
    "sparse_process",
    "nystroem",
    "smc",
    "lda",
    "lda_gensim",
    "networks",
    "rbm",
    "gan_torch",
    "flow_zuko",
    "causal_draws",
    "boosting_small",
    "same_process",
    "second_process",
    *(name for module in _SEVERAL for name in module.WORKLOADS),
    "memory",
)


def workload_of(name: str) -> Workload:
    """A row of the table: a module of its name, or one of several in a module."""
    for module in _SEVERAL:
        if name in module.WORKLOADS:
            return module.WORKLOADS[name]
    return importlib.import_module(f".{name}", __package__).WORKLOAD


def outcome_of(workload: Workload, *, quick: bool) -> Outcome | Skipped:
    """What came of it; where the peer is not installed, that."""
    try:
        return workload.run(quick)
    except ModuleNotFoundError as missing:
        return Skipped(f"{missing.name} is not installed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed beside the peers.")
    parser.add_argument("--only", choices=NAMES, action="append", help="one workload; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument(
        "--write", action="store_true", help=f"write the rows to {RESULTS.name}, each when it is there"
    )
    options = parser.parse_args()
    if options.write and options.quick:
        parser.error("--write is for workloads at full size")
    console = Console()
    rows: list[Row] = []
    for name in options.only or NAMES:
        workload = workload_of(name)
        # no spinner: it would take time from the contestants
        console.print(f"{name}: {workload.what} …")
        rows.append((name, workload, outcome_of(workload, quick=options.quick)))
        if options.write:
            write(rows, {name: workload_of(name) for name in NAMES})
    show(rows, console)
    return 0 if options.quick or all(map(reached, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
