"""Long and unusual lives of a process: many programs, forks, signals."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import freeenergy as fe

# a fork does not copy the threads of JAX; the warning of JAX is about just that
_IGNORE = "import warnings; warnings.simplefilter('ignore')\n"


def run(code: str, *arguments: str) -> list[str]:
    """The lines that a script prints in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _IGNORE + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


_LOADS = """
import sys
import freeenergy as fe
for path in sys.argv[1:]:
    loaded = fe.load(path)
    print(type(loaded).__name__, loaded.sample(2, random_state=0).tolist())
"""


def test_a_file_is_read_by_a_process_that_has_imported_nothing_else(tmp_path):
    rows = np.random.RandomState(0).normal(size=(100, 2))
    fitted = fe.GaussianMixture(2, max_iter=2, tol=1e9).fit(rows), fe.KernelDensity().fit(rows)
    paths = [str(tmp_path / f"{number}.safetensors") for number in range(len(fitted))]
    for model, path in zip(fitted, paths, strict=True):
        model.save(path)
    expected = [f"{type(one).__name__} {one.sample(2, random_state=0).tolist()}" for one in fitted]
    assert run(_LOADS, *paths) == expected


_MANY_SHAPES = """
import sys
import time
import jax, numpy as np
from freeenergy._core import count_compilations, map_rows, programs
from freeenergy._core import _compilation

if sys.argv[1] == "programs":
    _compilation._memory_maps, programs.most_programs = lambda: None, 30
else:
    programs.most_maps = _compilation._memory_maps() + 150
cleared = []
clear, jax.clear_caches = jax.clear_caches, lambda: (cleared.append(programs._kept), clear())

def spread(row):
    return jax.numpy.sort(row) @ row

maps = []
for width in range(1, 81):
    rows = np.arange(3.0 * width).reshape(3, width)
    np.testing.assert_allclose(map_rows(spread, rows), (rows**2).sum(1))
    maps.append(open("/proc/self/maps").read().count("\\n") - programs.most_maps)
map_rows(spread, rows)
with count_compilations() as counter:
    map_rows(spread, rows)
print(max(maps), len(cleared), counter.count)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory maps are counted on Linux")
def test_old_programs_are_dropped_before_there_are_too_many():
    most, cleared, again = map(int, run(_MANY_SHAPES, "maps")[-1].split())
    # what sixteen programs add between two looks
    assert most < 300
    assert cleared >= 2
    assert again == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the script counts memory maps")
def test_where_maps_are_unknown_programs_are_counted():
    assert int(run(_MANY_SHAPES, "programs")[-1].split()[1]) >= 2


_FORK = """
import multiprocessing, signal, sys
import numpy as np
import freeenergy as fe

def attempts(queue, path, rows, labels):
    signal.alarm(60)
    calls = [lambda: fe.load(path), lambda: model.score(rows), lambda: model.sample(2)]
    calls += [lambda e=case.estimator: e.fit(rows, labels) for case in CASES.values()]
    said = []
    for call in calls:
        try:
            call()
            said.append("nothing")
        except RuntimeError as error:
            said.append(str(error))
    queue.put(said)

def score(queue, rows):
    queue.put(float(fe.GaussianDensity().fit(rows).score(rows)))

def in_process(method, function, *arguments):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=function, args=(queue, *arguments))
    process.start()
    found = queue.get(timeout=120)
    process.join()
    return found

rows = np.random.default_rng(0).integers(2, size=(30, 3)).astype(float)  # every estimator takes these
print(in_process("fork", score, rows))
from cases import CASES

model = fe.GaussianDensity().fit(rows)
print(model.score(rows))
path = sys.argv[1]
model.save(path)
said = in_process("fork", attempts, path, rows, np.arange(30) % 2)
print(len(said), sorted(set(said)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_was_forked_too_late_is_refused_at_once(tmp_path):
    before, parent, after = run(_FORK, str(tmp_path / "model.safetensors"))
    # a fork is free to use the library if its parent has not used JAX
    assert float(before) == pytest.approx(float(parent), rel=1e-12)
    number, sentences = after.split(" ", 1)
    assert int(number) > 20
    assert sentences == (
        '["This process was forked from one that has used JAX, whose threads a fork does not copy. '
        "Start it with the method 'spawn' or 'forkserver' of multiprocessing, or with joblib's 'loky'.\"]"
    )


@pytest.mark.usefixtures("listening_to_ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_a_comparison_that_is_stopped_in_its_last_fold_says_so(number, tmp_path):
    words = ["compare", "iris", "-m", "vae:max_iter=1000000", "--test-size", "0.3", "--seed", "0", "-q"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if number == signal.SIGTERM:
        # as a shell does for what runs in the background
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(
        [sys.executable, "-m", "freeenergy", *words, "--resume", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    deadline = time.monotonic() + 200
    # the first checkpoint tells that the fit is running
    while not list(tmp_path.glob("*.checkpoint")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said == f"Stopped: 0 fits are done. Everything finished is kept in {tmp_path}.\n"
    assert [path.suffix for path in tmp_path.iterdir()] == [".checkpoint"]
