"""Compile once: 64-bit mode, and a cache that outlives the process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax

_LEAST_THREADS = 4
# as devices; a pass over blocks of rows gains little from more
_MOST_CORES = 8


def _cache_directory() -> Path:
    if sys.platform == "darwin":
        chosen, usual = None, ("Library", "Caches")
    elif sys.platform == "win32":
        chosen, usual = os.environ.get("LOCALAPPDATA"), ("AppData", "Local")
    else:
        chosen, usual = os.environ.get("XDG_CACHE_HOME"), (".cache",)
    base = Path(chosen) if chosen else Path.home().joinpath(*usual)
    return base / "freeenergy" / "jax"


def configure() -> None:
    """Turns JAX's 64-bit mode on and, unless the user chose otherwise, sets up cores and a cache.

    Each core becomes a device (a power of two of them, at most eight), among which `Data.spread` divides
    rows: XLA itself shares only operations that are large.

    JAX's batched LAPACK calls wait inside a thread of XLA's pool for other threads of that pool: where
    as many of them run at once as there are threads, all wait for ever.  On machines with few cores
    the pool is therefore made larger (XLA reads its size from NPROC when it starts).
    """
    os.environ.setdefault("NPROC", str(max(_LEAST_THREADS, os.cpu_count() or 1)))
    jax.config.update("jax_enable_x64", True)
    _make_cores_devices()
    if jax.config.values["jax_compilation_cache_dir"] is None:
        try:
            directory = _cache_directory()
            directory.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):
            return  # no home, or no place to write: every process compiles for itself
        jax.config.update("jax_compilation_cache_dir", str(directory))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _make_cores_devices() -> None:
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen or jax.config.values["jax_num_cpu_devices"] != -1:
        return
    cores = min(_usable_cores(), _MOST_CORES)
    # where JAX has started already it has one device, which serves as well
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", 1 << (cores.bit_length() - 1))


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


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
        if event == "/jax/core/compile/backend_compile_duration":
            counter.count += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield counter
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
