"""Fits in a process of their own.

    python -m benchmarks._fresh time|memory ROWS

prints the seconds of a fit, or the bytes by which it raised the peak of resident memory.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path


def fresh(what: str, rows: int, cache: str) -> float:
    """`what` of a fit in a new process whose compiled programs are kept in `cache`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._fresh", what, str(rows)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "XDG_CACHE_HOME": cache, "LOCALAPPDATA": cache, "HOME": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _peak() -> int:
    """Bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # on Linux what getrusage tells begins with the peak of the process that started this one
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def main() -> None:
    import freeenergy as fe

    from .mixture import COMPONENTS, sample

    X = sample(int(sys.argv[2]))
    before, started = _peak(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fe.GaussianMixture(COMPONENTS, random_state=0, max_iter=5).fit(X)
    print(time.perf_counter() - started if sys.argv[1] == "time" else _peak() - before)


if __name__ == "__main__":
    main()
