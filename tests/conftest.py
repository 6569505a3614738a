"""Strict from the first day: warnings, dtype promotion and rank promotion are errors."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

import jax
import numpy as np
import pytest
from hypothesis import settings

import freeenergy  # noqa: F401  (turns 64-bit mode on)

# the same examples in every run
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


_PROGRAMS = {"compiled": 0}
_STATES: dict[Any, Any] = {}
# Linux gives a process 65,530 memory maps, and compiled programs take some each
_MOST_MAPS = 12_000


def _count(event: str, duration_secs: float, **kwargs: str | int) -> None:
    _PROGRAMS["compiled"] += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


def _maps() -> int:
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return _MOST_MAPS


@pytest.fixture(autouse=True)
def _few_programs_in_memory():
    """Forgets compiled programs before the process has as many memory maps as it may."""
    yield
    if _PROGRAMS["compiled"] > 300:
        _PROGRAMS["compiled"] = 0
        if _maps() >= _MOST_MAPS:
            jax.clear_caches()


@pytest.fixture(autouse=True)
def _own_random_numbers(request):
    """The generator of a test module gives every test the same numbers, whichever tests ran before."""
    module = getattr(request.node, "module", None)
    rng = getattr(module, "RNG", None)
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = _STATES.setdefault(module, rng.bit_generator.state)
    elif rng is not None:
        rng.set_state(_STATES.setdefault(module, rng.get_state()))


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the project."""
    return Path(__file__).resolve().parent.parent
