"""Strict from the first day: warnings, dtype promotion and rank promotion are errors."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

import jax
import pytest

import freeenergy  # noqa: F401  (turns 64-bit mode on)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


_PROGRAMS = {"compiled": 0}


def _count(event: str, duration_secs: float, **kwargs: str | int) -> None:
    _PROGRAMS["compiled"] += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.fixture(autouse=True)
def _few_programs_in_memory():
    """Compiled programs are memory maps, of which a process may have only so many."""
    yield
    if _PROGRAMS["compiled"] > 300:
        jax.clear_caches()
        _PROGRAMS["compiled"] = 0


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the project."""
    return Path(__file__).resolve().parent.parent
