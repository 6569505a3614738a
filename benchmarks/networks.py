from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from freeenergy.datasets import parse_bif

from ._race import Outcome, Workload, race

GIVEN = {"HRBP": "HIGH", "CVP": "LOW", "BP": "LOW"}


def run(quick: bool) -> Outcome:
    import pgmpy
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    file = Path(pgmpy.__file__).parent / "utils/example_models/alarm.bif.gz"
    text = gzip.decompress(file.read_bytes()).decode()
    network, peer = parse_bif(text), VariableElimination(BIFReader(string=text).get_model())
    rest = [name for name in network.names if name not in GIVEN]

    def ours() -> dict[str, dict[str, float]]:
        return network.posterior(GIVEN).marginals()

    # its belief propagation takes longer for one variable, and all at once does not fit in memory
    def theirs() -> dict[str, Any]:
        return {name: peer.query([name], evidence=GIVEN, show_progress=False) for name in rest}

    def judge(ours: Any, theirs: Any) -> tuple[bool, str]:
        gap = max(
            abs(p - ours[name][state])
            for name in rest
            for state, p in zip(theirs[name].state_names[name], theirs[name].values, strict=True)
        )
        return gap < 1e-9, f"marginals differ by at most {gap:.1e}"

    return race(ours, theirs, judge, repeats=3 if quick else 10)


WORKLOAD = Workload("ALARM (37 variables), all marginals given three", "pgmpy", 10, run)
