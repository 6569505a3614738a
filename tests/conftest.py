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

from freeenergy._core import programs  # turns 64-bit mode on

# the same examples in every run
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


_STATES: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def _few_programs_in_memory():
    """Programs are dropped between tests, since some tests count compilations."""
    programs.most_maps = 30_000
    yield
    programs.most_maps = 12_000
    programs.make_room()


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
