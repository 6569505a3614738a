"""Counting compilations: what was compiled once is not compiled again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from .. import _settings

# JAX has read what it was told
_settings.restore()


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
