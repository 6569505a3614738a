"""Compiled programs: how many there are, when old ones are dropped, and in which process they run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from .. import _settings

# JAX has read what it was told
_settings.restore()

_COMPILED = "/jax/core/compile/backend_compile_duration"
# compilations between two looks at the memory maps, which take some milliseconds
_LOOK_EVERY = 16
# a program takes up to 120 memory maps and 6 megabytes: about one gigabyte in all
_MOST_MAPS = 16_000
# where the system does not tell about memory maps
_MOST_PROGRAMS = 200
# numbers of data up to which to compile takes longer than to run, and what is left out for them on CPUs
FEW_NUMBERS = 2**15
_LEVEL, _LIGHT = "xla_backend_optimization_level", {"xla_cpu_use_fusion_emitters": False}


class CompilationCounter:
    """How many XLA programs were asked for inside `count_compilations`."""

    def __init__(self) -> None:
        self.count = 0


@contextlib.contextmanager
def count_compilations() -> Iterator[CompilationCounter]:
    """Counts the compilations (from the cache on disk or not) that happen in a block.

    >>> with count_compilations() as counter:
    ...     _ = jax.jit(lambda x: x + 1)(1.0)
    >>> counter.count
    1
    """
    counter = CompilationCounter()

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILED:
            counter.count += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield counter
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class Program:
    """`eqx.filter_jit` of a function whose first argument is data: for few, compiled with less care.

    A first fit of a small table takes the compiler longer than anything else; programs that it optimises
    less are there in half of the time and run as fast.

    >>> Program(lambda x: x + 1)(jax.numpy.ones(2)).tolist()
    [2.0, 2.0]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        options: Any = {"compiler_options": {_LEVEL: 1, **_LIGHT}}
        self._whole, self._light = eqx.filter_jit(function), eqx.filter_jit(function, **options)

    def __call__(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = sum(a.size for a in jax.tree.leaves(data) if eqx.is_array(a))
        # what the user chose holds
        chosen = _LEVEL in os.environ.get("XLA_FLAGS", "")
        light = numbers <= FEW_NUMBERS and not chosen and jax.default_backend() == "cpu"
        return (self._light if light else self._whole)(data, *args, **kwargs)


class Programs:
    """What this process has compiled: since when it holds programs, and how many.

    Every compiled program keeps memory and, on Linux, memory maps, of which a process has 65,530 (an
    allocation beyond that ends it).  JAX drops none by itself.

    Attributes:
        most_maps: memory maps from which on programs are dropped.
        most_programs: how many programs are kept where the number of maps is not known.
    """

    def __init__(self, most_maps: int, most_programs: int = _MOST_PROGRAMS) -> None:
        self.most_maps = most_maps
        self.most_programs = most_programs
        self._process: int | None = None
        self._kept = 0
        self._unseen = 0

    def listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Takes notice of a compilation, for `jax.monitoring`."""
        if event == _COMPILED:
            self._process = self._process or os.getpid()
            self._kept += 1
            self._unseen += 1

    def check_process(self) -> None:
        """Refuses a process that was forked from one in which JAX had started: its threads are not here.

        What runs there waits for them for ever.
        """
        if self._process not in (None, os.getpid()):
            raise RuntimeError(
                "This process was forked from one that has used JAX, whose threads a fork does not copy. "
                "Start it with the method 'spawn' or 'forkserver' of multiprocessing, or with joblib's "
                "'loky'."
            )

    def make_room(self) -> None:
        """Drops all compiled programs if there are many; what is used again is compiled again.

        To be called between programs.  Those that took long to compile come back from the cache on disk.
        """
        self.check_process()
        self._process = os.getpid()
        if self._unseen < _LOOK_EVERY:
            return
        self._unseen = 0
        maps = _memory_maps()
        if self._kept > self.most_programs if maps is None else maps > self.most_maps:
            self._kept = 0
            jax.clear_caches()


def _memory_maps() -> int | None:
    """How many memory maps the process has; None where the system does not tell."""
    try:
        with Path("/proc/self/maps").open("rb", buffering=0) as file:
            return sum(part.count(b"\n") for part in iter(lambda: file.read(2**16), b""))
    except OSError:
        return None


def _most_maps() -> int:
    """At most half of the memory maps that Linux gives a process: the rest is for others."""
    try:
        return min(_MOST_MAPS, int(Path("/proc/sys/vm/max_map_count").read_text()) // 2)
    except (OSError, ValueError):
        return _MOST_MAPS


programs = Programs(_most_maps())
jax.monitoring.register_event_duration_secs_listener(programs.listen)
