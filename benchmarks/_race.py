"""What a workload is, and how two contestants are timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_REST = 0.5


class Outcome(NamedTuple):
    """What a run of a workload gives.

    Attributes:
        ours, theirs: one number a repetition, by default seconds.
        good: whether both did the same work equally well.
        note: the numbers by which that was judged.
        unit: of `ours` and `theirs`.
    """

    ours: list[float]
    theirs: list[float]
    good: bool
    note: str
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return statistics.median(self.theirs) / statistics.median(self.ours)


class Skipped(NamedTuple):
    """Why a workload was not run."""

    reason: str


class Workload(NamedTuple):
    """A row of the table.

    Attributes:
        what: the work, in words.
        peer: what it is measured against.
        target: the ratio to reach, their median over ours.
        run: does it; the argument says whether a small version will do.
    """

    what: str
    peer: str
    target: float
    run: Callable[[bool], Outcome | Skipped]


def race(
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    judge: Callable[[Any, Any], tuple[bool, str]],
    *,
    repeats: int = 5,
) -> Outcome:
    """Times both in turn, after one run of each that does not count; `judge` sees the last results.

    A rest before each run: for a while after it is done, the threads of a contestant may wait in a loop
    for more work (OpenMP's do), which would slow the other one down.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    results: list[Any] = [None, None]
    for repeat in range(repeats + 1):
        for side, contestant in enumerate((ours, theirs)):
            time.sleep(_REST)
            started = time.perf_counter()
            results[side] = contestant()
            if repeat > 0:
                seconds[side].append(time.perf_counter() - started)
    return Outcome(*seconds, *judge(*results))
