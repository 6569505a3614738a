"""The one loop: counts, stops, guards, history, progress, checkpoints, interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.exceptions import ConvergenceWarning

from freeenergy import PPCA, Checkpoint, Fit, GaussianMixture, KMeans, Status, progress_bar
from freeenergy._core import (
    AbstractAlgorithm,
    AbstractProgress,
    AbstractSource,
    Data,
    Info,
    count_compilations,
    iterate,
    silent,
)
from freeenergy._core._checkpoints import Saved
from freeenergy.learning import EM, LBFGS, Gradient, Simulator, fit, negative_log_likelihood
from freeenergy.models import Clusters
from freeenergy.shell._rows import Rows


class _State(NamedTuple):
    position: jax.Array
    count: jax.Array


class Descent(AbstractAlgorithm):
    """x ← x − rate · (x − target) + noise; the objective is ½ ‖x − target‖²."""

    needs: ClassVar[type[AbstractSource]] = AbstractSource
    rate: jax.Array
    tol: jax.Array
    noise: jax.Array
    breaks_at: jax.Array

    def init(self, model, data, *, key):
        return _State(model, jnp.zeros((), jnp.int32))

    def step(self, state, data, *, key):
        kick = self.noise * jax.random.normal(key, state.position.shape)
        new = state.position - self.rate * (state.position - data) + kick
        objective = 0.5 * jnp.sum((new - data) ** 2)
        objective = jnp.where(state.count == self.breaks_at, jnp.inf, objective)
        return _State(new, state.count + 1), Info(objective < self.tol, objective, {"x": new[0]})

    def model(self, state):
        return state.position


def descent(rate=0.1, tol=-1.0, noise=0.0, breaks_at=-1) -> Descent:
    return Descent(*map(jnp.asarray, (rate, tol, noise, breaks_at)))


START, TARGET = jnp.array([1.0, -2.0]), jnp.zeros(2)


def run(algorithm, max_iter, key, **options):
    return iterate(algorithm, START, TARGET, key=key, max_iter=max_iter, **options)


class Recorder(AbstractProgress):
    """Keeps what it is told, and raises once past a given iteration."""

    def __init__(self, error=None, after=0):
        self.events, self.error, self.after = [], error, after

    def start(self):
        self.events.append("start")

    def update(self, n_iter, metrics):
        self.events.append((n_iter, metrics))
        if self.error is not None and n_iter >= self.after:
            raise self.error

    def stop(self):
        self.events.append("stop")


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 63, 64, 65, 71, 72, 73, 137])
def test_the_number_of_iterations_is_exact(n, key):
    outcome = run(descent(), n, key)
    assert outcome.n_iter == n == int(outcome.state.count)
    assert outcome.status is Status.LIMIT
    assert outcome.reason == f"reached the limit of {n} iterations; raise 'max_iter' or loosen 'tol'"
    for values in outcome.history.values():
        assert len(values) == n
    np.testing.assert_allclose(outcome.state.position, START * 0.9**n, rtol=1e-12)
    if n:
        expected = 0.5 * 5.0 * 0.81 ** np.arange(1, n + 1)
        np.testing.assert_allclose(outcome.history["objective"], expected, rtol=1e-10)
        np.testing.assert_allclose(outcome.history["x"], 0.9 ** np.arange(1, n + 1), rtol=1e-10)


def test_it_stops_when_the_algorithm_says_so(key):
    # ½·5·0.81ⁿ < 1e-3 first holds at n = 38
    outcome = run(descent(tol=1e-3), 1000, key)
    assert outcome.status is Status.CONVERGED
    assert outcome.n_iter == 38 == len(outcome.history["objective"])
    assert outcome.reason == "converged after 38 iterations"


@pytest.mark.parametrize("breaks_at", [0, 5, 30])
def test_a_non_finite_objective_keeps_the_last_good_state(breaks_at, key):
    # an infinite objective also meets the test of convergence here, and must not count as such
    outcome = run(descent(breaks_at=breaks_at, tol=jnp.inf if breaks_at == 0 else -1.0), 100, key)
    assert outcome.n_iter == breaks_at == len(outcome.history["objective"])
    assert outcome.status is Status.NON_FINITE
    np.testing.assert_allclose(outcome.state.position, START * 0.9**breaks_at, rtol=1e-12)
    assert outcome.reason == (
        f"the objective became non-finite at iteration {breaks_at + 1}; the last good model is kept. "
        "Try a smaller learning rate, stronger regularisation or rescaled data"
    )


class Sampler(AbstractAlgorithm):
    """An autoregression x ← x / 2 + noise: no objective, a metric, and a trace of what is visited."""

    needs: ClassVar[type[AbstractSource]] = AbstractSource
    breaks_at: jax.Array

    def init(self, model, data, *, key):
        return _State(model, jnp.zeros((), jnp.int32))

    def step(self, state, data, *, key):
        new = state.position / 2 + jax.random.normal(key, state.position.shape)
        size = jnp.where(state.count == self.breaks_at, jnp.nan, jnp.sum(new**2))
        trace = {"position": new, "count": state.count}
        return _State(new, state.count + 1), Info(jnp.zeros((), bool), metrics={"size": size}, trace=trace)

    def model(self, state):
        return state.position


def test_what_is_traced_is_stacked_along_time(key, tmp_path):
    sampler = Sampler(jnp.asarray(-1))
    whole = run(sampler, 100, key)
    assert set(whole.history) == {"size"}
    path = whole.trace["position"]
    assert path.shape == (100, 2)
    assert whole.trace["count"].tolist() == list(range(100))
    np.testing.assert_array_equal(path[-1], whole.model)
    np.testing.assert_allclose(whole.history["size"], np.sum(path**2, axis=1), rtol=1e-12)
    # the innovations are those of the keys that the loop folds its counter into
    loop_key = jax.random.split(key)[1]
    before = np.concatenate([np.asarray(START)[None], path[:-1]])
    noise = [jax.random.normal(jax.random.fold_in(loop_key, i), (2,)) for i in range(100)]
    np.testing.assert_allclose(path - before / 2, np.stack(noise), atol=1e-12)
    # a trace outlives an interruption
    saved = Checkpoint(tmp_path / "c", interval=0.0)
    first = run(sampler, 30, key, checkpoint=saved)
    assert first.trace["position"].shape == (30, 2)
    rest = run(sampler, 100, key, checkpoint=saved)
    np.testing.assert_array_equal(rest.trace["position"], path)
    with pytest.raises(ValueError, match="belongs to another fit"):
        run(descent(), 100, key, checkpoint=saved)
    # without an objective the metrics are guarded
    broken = run(Sampler(jnp.asarray(7)), 100, key)
    assert broken.status is Status.NON_FINITE
    assert broken.n_iter == len(broken.trace["count"]) == 7
    assert broken.reason.startswith(
        "a metric became non-finite at iteration 8; the last good model is kept"
    )


def test_chunks_of_all_lengths_are_one_program(key):
    run(descent(), 1, key)
    with count_compilations() as counter:
        run(descent(), 150, key)
    assert counter.count == 0


def test_divergence_stops_too(key):
    outcome = run(descent(rate=1e200), 100, key)
    assert outcome.n_iter == 0
    assert bool(jnp.all(outcome.state.position == START))


def test_progress_is_told(key, capsys):
    recorder = Recorder()
    totals = []

    def make(total):
        totals.append(total)
        return recorder

    run(descent(), 20, key, progress=make)
    assert totals == [20]
    assert recorder.events[0] == "start"
    assert recorder.events[-1] == "stop"
    told = recorder.events[1:-1]
    assert told[0] == (0, {})
    assert [n for n, _ in told][1] == 1
    assert told[-1][0] == 20
    np.testing.assert_allclose(told[-1][1]["objective"], 2.5 * 0.81**20)
    run(descent(), 20, key, progress=progress_bar("Descent"))
    shown = capsys.readouterr()
    assert "Descent" in shown.err
    assert "20/20" in shown.err
    assert f"objective {2.5 * 0.81**20:.5g}" in shown.err
    run(descent(), 20, key, progress=progress_bar("Descent", offset=3.0))
    assert f"objective {2.5 * 0.81**20 - 3:.5g}" in capsys.readouterr().err
    assert shown.out == ""
    with silent(3) as nothing:
        nothing.update(1, {})


def test_a_resumed_fit_ends_with_the_same_bits(tmp_path, key):
    whole = run(descent(noise=0.3), 150, key)
    path = tmp_path / "fit.safetensors"
    for after in (8, 60):
        with pytest.raises(OSError, match="screen"):
            run(
                descent(noise=0.3),
                150,
                key,
                progress=lambda total, after=after: Recorder(OSError("screen"), after),
                checkpoint=Checkpoint(path, interval=0.0),
            )
    assert json.loads(_header(path))["n_iter"] >= 2
    again = run(descent(noise=0.3), 150, key, checkpoint=Checkpoint(path, interval=0.0))
    assert again.n_iter == 150
    assert again.state.position.tolist() == whole.state.position.tolist()
    for name, values in whole.history.items():
        np.testing.assert_array_equal(again.history[name], values)
    # a finished fit is not done again
    recorder = Recorder()
    done = run(descent(noise=0.3), 150, key, checkpoint=Checkpoint(path), progress=lambda _: recorder)
    assert [n for n, _ in recorder.events[1:-1]] == [150]
    assert done.state.position.tolist() == whole.state.position.tolist()
    assert list(tmp_path.iterdir()) == [path]


def _header(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata()["freeenergy"]


def test_a_checkpoint_of_a_fit_without_a_good_step_can_be_resumed(tmp_path, key):
    checkpoint = Checkpoint(tmp_path / "c", interval=0.0)
    first = run(descent(breaks_at=0), 10, key, checkpoint=checkpoint)
    again = run(descent(breaks_at=0), 10, key, checkpoint=checkpoint)
    assert first.n_iter == again.n_iter == 0
    assert first.status is again.status is Status.NON_FINITE


def test_random_keys_in_the_state_are_kept(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c")
    state = {"key": jax.random.key(3), "x": jnp.ones(2, jnp.float32)}
    checkpoint.save(Saved(state, 4, True, {"objective": np.arange(4.0)}, None))
    blank = {"key": jax.random.key(0), "x": jnp.zeros(2, jnp.float32)}
    back, n_iter, done, history, trace = checkpoint.resume(blank)
    assert (n_iter, done, history["objective"].tolist(), trace) == (4, True, [0.0, 1.0, 2.0, 3.0], None)
    assert jax.random.uniform(back["key"]) == jax.random.uniform(state["key"])
    assert back["x"].dtype == jnp.float32


def test_foreign_and_damaged_checkpoints_are_refused(tmp_path, key):
    path = tmp_path / "fit"
    run(descent(), 10, key, checkpoint=Checkpoint(path, identity="a"))
    other = rf"The checkpoint '{path}' belongs to another fit. Remove it or name another file\."
    with pytest.raises(ValueError, match=other):
        run(descent(), 10, key, checkpoint=Checkpoint(path, identity="b"))
    wrong = Checkpoint(path, identity="a")
    with pytest.raises(ValueError, match=other):
        wrong.resume(_State(jnp.zeros(3), jnp.zeros((), jnp.int32)))
    with pytest.raises(ValueError, match=other):
        wrong.resume((jnp.zeros(2), jnp.zeros(()), jnp.zeros(1)))
    with pytest.raises(ValueError, match=other):
        wrong.resume((jnp.zeros(2),))
    good = path.read_bytes()
    for damaged in (good[:-8], good[:20], b"", b"what is this"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"^The checkpoint '{path}' is [^\n]*\. Remove it\.$"):
            run(descent(), 10, key, checkpoint=Checkpoint(path, identity="a"))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"is not a regular file\. Remove it\."):
        run(descent(), 10, key, checkpoint=Checkpoint(path, identity="a"))
    path.unlink()
    save_file({"weights": np.zeros(3)}, path)
    with pytest.raises(ValueError, match=other):
        run(descent(), 10, key, checkpoint=Checkpoint(path, identity="a"))


def test_every_flipped_bit_of_a_checkpoint_is_found(tmp_path, key):
    path = tmp_path / "fit"
    run(descent(noise=0.3), 20, key, checkpoint=Checkpoint(path, identity="a"))
    good = path.read_bytes()
    state = _State(START, jnp.zeros((), jnp.int32))
    for bit in range(0, 8 * len(good), 11):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"^The checkpoint '{path}' (is|has|belongs) [^\n]*\.$"):
            Checkpoint(path, identity="a").resume(state)


def test_the_first_checkpoint_comes_early(tmp_path, key):
    path = tmp_path / "fit"
    with pytest.raises(OSError, match="screen"):
        run(
            descent(noise=0.3),
            150,
            key,
            progress=lambda _: Recorder(OSError("screen"), 2),
            checkpoint=Checkpoint(path, interval=3600.0),
        )
    assert json.loads(_header(path))["n_iter"] == 1


_WALK = """
import sys
import jax, jax.numpy as jnp
from freeenergy import Checkpoint
from freeenergy._core import AbstractAlgorithm, AbstractSource, Info, iterate

class Walk(AbstractAlgorithm):
    needs = AbstractSource
    def init(self, model, data, *, key):
        return model
    def step(self, state, data, *, key):
        new = jnp.tanh(data @ state + jax.random.normal(key, state.shape))
        return new, Info(jnp.zeros((), bool), jnp.sum(new))
    def model(self, state):
        return state

def run(checkpoint, steps):
    data = jax.random.normal(jax.random.key(1), (600, 600))
    return iterate(
        Walk(), jnp.ones(600), data, key=jax.random.key(0), max_iter=steps, checkpoint=checkpoint
    )

if len(sys.argv) == 2:
    run(Checkpoint(sys.argv[1], interval=0.3), 10**9)
"""


def test_a_killed_process_loses_at_most_an_interval(tmp_path):
    path = tmp_path / "fit"
    victim = subprocess.Popen([sys.executable, "-c", _WALK, str(path)])
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.8)
    victim.send_signal(signal.SIGKILL)
    killed = time.time()
    assert victim.wait() == -signal.SIGKILL
    # it was written less than an interval, a chunk and some scheduling before the end
    assert killed - path.stat().st_mtime < 0.3 + 0.25 + 2.0
    done = json.loads(_header(path))["n_iter"]
    assert done > 1
    same: dict[str, Any] = {}
    exec(_WALK, same)
    resumed = same["run"](Checkpoint(path), done + 100)
    whole = same["run"](None, done + 100)
    assert resumed.n_iter == len(resumed.history["objective"]) == done + 100
    np.testing.assert_array_equal(resumed.history["objective"], whole.history["objective"])
    np.testing.assert_array_equal(resumed.state, whole.state)


@pytest.mark.parametrize("after", [0, 1, 20])
def test_ctrl_c_keeps_what_is_done(after, tmp_path, key):
    path = tmp_path / "fit"
    outcome = run(
        descent(noise=0.3),
        150,
        key,
        progress=lambda _: Recorder(KeyboardInterrupt(), after),
        checkpoint=Checkpoint(path),
    )
    assert outcome.interrupted
    assert not outcome.converged
    assert after <= outcome.n_iter < 150
    assert outcome.n_iter == len(outcome.history.get("objective", [])) == int(outcome.state.count)
    assert outcome.reason == f"interrupted after {outcome.n_iter} iterations"
    # and the rest can be done later
    rest = run(descent(noise=0.3), 150, key, checkpoint=Checkpoint(path))
    whole = run(descent(noise=0.3), 150, key)
    assert rest.state.position.tolist() == whole.state.position.tolist()


class Dropping(AbstractProgress):
    """Presses Ctrl-C where Python drops every exception: in the end of an object."""

    def start(self):
        pass

    def stop(self):
        pass

    def update(self, n_iter, metrics):
        class Ending:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        if n_iter == 1:
            Ending()


@pytest.mark.usefixtures("listening_to_ctrl_c")
def test_ctrl_c_is_not_lost_where_exceptions_are(key):
    outcome = run(descent(noise=0.3), 150, key, progress=lambda _: Dropping())
    assert outcome.interrupted
    assert outcome.n_iter == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_fit_passes_the_outcome_on(key):
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    start = Clusters(jnp.array([[0.0], [1.0]]))
    result = fit(start, EM(temperature=0.0), x, key=key, weight=[1.0, 1.0, 1.0, 3.0])
    assert isinstance(result, Fit)
    assert result.converged
    assert not result.interrupted
    assert result.n_iter == len(result.history["objective"])
    np.testing.assert_allclose(result.model.centroids[:, 0], [0.5, 10.75])
    assert start.centroids.tolist() == [[0.0], [1.0]]
    stopped = fit(start, EM(temperature=0.0), x, key=key, progress=lambda _: Recorder(KeyboardInterrupt()))
    assert stopped.interrupted
    assert stopped.model.centroids.tolist() == [[0.0], [1.0]]


# what they share makes one factor worth a fit
ROWS = np.random.default_rng(0).normal(size=(60, 4)) + np.random.default_rng(1).normal(size=(60, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GaussianMixture(2, n_init=2, random_state=0),
        lambda: KMeans(3, n_init=2, random_state=0),
        PPCA,
    ],
    ids=["mixture", "kmeans", "ppca"],
)
def test_an_interrupted_estimator_keeps_its_attributes(make, monkeypatch):
    estimator = make()
    made = []

    def progress(total):
        # the first fit is let through, the second is interrupted after its first chunk
        made.append(total)
        return Recorder(KeyboardInterrupt() if len(made) == 2 else None, after=1)

    monkeypatch.setattr(type(estimator), "_progress", lambda self, **_: progress)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after \d+ iterations"):
        estimator.fit(ROWS)
    assert len(made) == 2
    assert estimator.n_iter_ == len(estimator.history_["objective"]) > 0
    assert np.isfinite(estimator.history_["objective"]).all()
    assert estimator.model_ is not None


def test_estimators_with_several_fits_resume_each(tmp_path):
    path = tmp_path / "fit"
    for make in (
        lambda c: GaussianMixture(2, n_init=3, random_state=0, checkpoint=c),
        lambda c: KMeans(3, n_init=3, random_state=0, checkpoint=c),
        lambda c: PPCA(checkpoint=c),
    ):
        plain = make(None).fit(ROWS)
        for _ in range(2):
            kept = make(str(path)).fit(ROWS)
            np.testing.assert_array_equal(plain.history_["objective"], kept.history_["objective"])
        # other rows of the same shape are another fit
        with pytest.raises(ValueError, match="belongs to another fit"):
            make(str(path)).fit(ROWS[:, ::-1] ** 3)
        for file in tmp_path.iterdir():
            file.unlink()


def test_relocated_centres_are_checkpointed_apart(tmp_path):
    # two of the centres coincide far away from all rows
    x = np.array([[0.0], [0.1], [5.0], [5.1], [10.0], [10.1]])
    init = np.array([[0.0], [900.0], [901.0]])
    plain = KMeans(3, init=init).fit(x)
    kept = KMeans(3, init=init, checkpoint=str(tmp_path / "fit")).fit(x)
    np.testing.assert_allclose(plain.inertia_, 3 * 0.005, rtol=1e-9)
    assert kept.inertia_ == plain.inertia_
    assert kept.n_iter_ == plain.n_iter_ == len(plain.history_["objective"])


def test_a_learner_made_of_functions_has_the_same_name_in_another_process():
    def identity():
        learner = Gradient(optax.adam(1e-2), negative_log_likelihood)
        rows = Rows(np.zeros((3, 1)), np.ones(3))
        return GaussianMixture(2, learner=learner, checkpoint="x")._checkpoint("x", rows, 0, "").identity

    first, second = identity(), identity()
    assert first == second
    assert "0x" not in first


def test_an_estimator_warns_with_the_reason():
    with pytest.warns(
        ConvergenceWarning, match=r"GaussianMixture: reached the limit of 2 iterations; raise 'max_iter'"
    ):
        GaussianMixture(3, max_iter=2, tol=0.0, random_state=0).fit(ROWS)
    learner = Gradient(optax.sgd(1e200), negative_log_likelihood)
    with pytest.warns(
        ConvergenceWarning, match=r"the objective became non-finite at iteration \d+; the last good"
    ):
        GaussianMixture(2, learner=learner, random_state=0).fit(ROWS)


def test_fit_refuses_what_it_would_ignore(key):
    model = Clusters(jnp.zeros((1, 2)))
    rows = np.zeros((4, 2))
    with pytest.raises(ValueError, match="The 'weight' of fit must be None for Data"):
        fit(model, EM(), Data.of(rows), key=key, weight=np.ones(4))
    with pytest.raises(ValueError, match="Got the learner EM instead"):
        fit(model, EM(), rows, key=key, validation=rows)
    endless = Simulator(lambda key: jax.random.normal(key, (2,)), rows=8)
    sentence = r"^The learner EM needs rows to sum over\. Got rows that are made from a key instead\.$"
    with pytest.raises(ValueError, match=sentence):
        fit(model, EM(), endless, key=key)
    with pytest.raises(ValueError, match=r"^The learner LBFGS needs rows in memory\. Got rows that"):
        fit(model, LBFGS(negative_log_likelihood), endless, key=key)
