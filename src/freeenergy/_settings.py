"""What JAX is told before it starts: 64-bit mode, cores as devices, a cache that outlives the process.

JAX itself is not imported here, so that the command line answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_LEAST_THREADS = 4
# of jaxlib, from which on batched LAPACK calls do not wait for other threads
_NO_WAITING = (0, 11, 1)
# as devices; a pass over blocks of rows gains little from more
_MOST_CORES = 8
# variables of the environment that were set for JAX, with what they were before
_lent: dict[str, str | None] = {}


def configure() -> None:
    """Turns JAX's 64-bit mode on and, unless the user chose otherwise, sets up cores and a cache.

    Where JAX is not imported yet it finds the settings in the environment, whoever imports it; they are
    taken back by `restore`, so that other programs do not inherit them.

    Each core becomes a device (a power of two of them, at most eight), among which `Data.spread` divides
    rows: XLA itself shares only operations that are large.

    In older JAX batched LAPACK calls wait inside a thread of XLA's pool for other threads of that pool:
    where as many of them run at once as there are threads, all wait for ever.  On machines with few
    cores the pool is therefore made larger (XLA reads its size from NPROC when it starts).
    """
    if _version_of_jaxlib() < _NO_WAITING:
        os.environ.setdefault("NPROC", str(max(_LEAST_THREADS, os.cpu_count() or 1)))
    settings: dict[str, Any] = {"jax_enable_x64": True}
    several = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not several and not _chosen("jax_num_cpu_devices", -1):
        cores = min(_usable_cores(), _MOST_CORES)
        settings["jax_num_cpu_devices"] = 1 << (cores.bit_length() - 1)
    if not _chosen("jax_compilation_cache_dir", None):
        # no home, or no place to write: every process compiles for itself
        with contextlib.suppress(OSError, RuntimeError):
            directory = _cache_directory()
            directory.mkdir(parents=True, exist_ok=True)
            settings["jax_compilation_cache_dir"] = str(directory)
            settings["jax_persistent_cache_min_compile_time_secs"] = 0.1
    jax = sys.modules.get("jax")
    for name, value in settings.items():
        if jax is None:
            _lent.setdefault(name.upper(), os.environ.get(name.upper()))
            os.environ[name.upper()] = str(value)
        else:
            # where JAX has started already it has one device, which serves as well
            with contextlib.suppress(RuntimeError):
                jax.config.update(name, value)


def restore() -> None:
    """Puts the environment back as it was, once JAX has read it."""
    while _lent:
        name, before = _lent.popitem()
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _chosen(name: str, default: Any) -> bool:
    """Whether the user has set it: in the environment, or in JAX itself."""
    jax = sys.modules.get("jax")
    return name.upper() in os.environ if jax is None else jax.config.values[name] != default


def _version_of_jaxlib() -> tuple[int, ...]:
    """The first three numbers of the version that is installed, none if unknown; nothing is imported."""
    try:
        version = metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return ()
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


def _cache_directory() -> Path:
    if sys.platform == "darwin":
        chosen, usual = None, ("Library", "Caches")
    elif sys.platform == "win32":
        chosen, usual = os.environ.get("LOCALAPPDATA"), ("AppData", "Local")
    else:
        chosen, usual = os.environ.get("XDG_CACHE_HOME"), (".cache",)
    base = Path(chosen) if chosen else Path.home().joinpath(*usual)
    return base / "freeenergy" / "jax"


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1
