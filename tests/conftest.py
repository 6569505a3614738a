"""Strict from the first day: warnings, dtype promotion and rank promotion are errors."""

import gc
import os
import signal
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

import jax
import numpy as np
import pytest
from cases import CASES
from hypothesis import settings

from freeenergy._core import count_compilations, programs  # turns 64-bit mode on

# the same examples in every run
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# small programs are kept on disk too: what a test calls outside of a program is hundreds of them, which the
# other worker, or this one after it has dropped its programs, needs again
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
# where in the source an operation stands is written into every program; nobody reads it here
jax.config.update("jax_traceback_in_locations_limit", 0)
# what was imported stays, and what tracing makes is many small objects: the collector has little to find
gc.freeze()
gc.set_threshold(50_000, 20, 50)


# of the tests of one estimator these come first, the one that counts from nothing before all
_FIRST = ("test_programs_of_a_first_fit_and_score", "test_contract")


def pytest_collection_modifyitems(items):
    """The tests of one estimator follow each other, whatever file they are in, to share their programs."""
    names = sorted({name.partition("-")[0] for name in CASES})

    def place(item):
        name = str(getattr(getattr(item, "callspec", None), "params", {}).get("name", "")).partition("-")[0]
        if name not in names:
            return (len(names), 0)
        function = item.originalname
        return (names.index(name), _FIRST.index(function) if function in _FIRST else len(_FIRST))

    items.sort(key=place)


_STATES: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def _few_programs_in_memory():
    """Programs are dropped between tests, since some tests count compilations."""
    programs.most_maps = 50_000
    yield
    # a process with more takes many gigabytes, and long to drop them
    programs.most_maps = 15_000
    programs.make_room()


@pytest.fixture(autouse=True)
def _own_random_numbers(request):
    """Each test has the same numbers, whichever ran before: of NumPy's generator and of its module's."""
    # what an estimator without a `random_state` draws from
    np.random.seed(0)
    module = getattr(request.node, "module", None)
    rng = getattr(module, "RNG", None)
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = _STATES.setdefault(module, rng.bit_generator.state)
    elif rng is not None:
        rng.set_state(_STATES.setdefault(module, rng.get_state()))


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def listening_to_ctrl_c():
    """A shell in the background has Ctrl-C ignored, also by what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the project."""
    return Path(__file__).resolve().parent.parent


# what a test compiles is what it costs
_COMPILING = 20


@pytest.fixture(autouse=True)
def _programs_counted(record_property):
    with count_compilations() as counter:
        yield
    record_property("programs", counter.count)


def pytest_terminal_summary(terminalreporter):
    """The tests that compile most, and how many programs all of them did."""
    counts = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            counted = dict(getattr(report, "user_properties", ())).get("programs")
            if counted:
                counts[report.nodeid] = counted
    if not counts:
        return
    terminalreporter.section(f"{sum(counts.values())} programs compiled; the tests that compile most")
    for name in sorted(counts, key=counts.get, reverse=True)[:_COMPILING]:
        terminalreporter.write_line(f"{counts[name]:5d}  {name}")
