"""The one iteration loop.

An algorithm is two pure functions, `init` and `step`; the loop owns everything else: the
iteration count, the stop, the guard against non-finite objectives, history, progress,
checkpoints and interruption.  Steps run on the device in chunks, so that a short fit costs a
handful of dispatches; the length of a chunk adapts to the time a step takes, so that a long fit
reports and can be interrupted about four times a second.
"""

from __future__ import annotations

import abc
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._checkpoints import Checkpoint
from ._compilation import programs
from ._progress import AbstractProgress, silent
from ._random import split_key

_CHUNK = 64
_FIRST_CHUNK = 8
_SECONDS_PER_CHUNK = 0.25


class Info(NamedTuple):
    """What a step tells: the objective (lower is better), whether it is done, what to record."""

    objective: Array
    done: Array
    metrics: dict[str, Array]


class AbstractAlgorithm(eqx.Module):
    """An iteration: `init` makes a state, `step` advances it.  Both are compiled."""

    @abc.abstractmethod
    def init(self, model: Any, data: Any, *, key: Array) -> Any:
        """The first state."""

    @abc.abstractmethod
    def step(self, state: Any, data: Any, *, key: Array) -> tuple[Any, Info]:
        """The next state, and what to tell about the step."""

    @abc.abstractmethod
    def model(self, state: Any) -> Any:
        """The model that `state` stands for."""


class Outcome(NamedTuple):
    """What `iterate` returns."""

    state: Any
    history: dict[str, np.ndarray]
    n_iter: int
    converged: bool
    interrupted: bool
    reason: str


class _Carry(NamedTuple):
    state: Any
    count: Array
    done: Array
    finite: Array
    records: dict[str, Array]


@eqx.filter_jit
def _init(algorithm: AbstractAlgorithm, model: Any, data: Any, key: Array) -> Any:
    return algorithm.init(model, data, key=key)


@eqx.filter_jit
def _advance(
    algorithm: AbstractAlgorithm, state: Any, data: Any, key: Array, start: Any, steps: Any
) -> tuple[Any, Array, Array, Array, dict[str, Array]]:
    """Runs up to `steps` (at most `_CHUNK`) iterations; stops early when done or non-finite."""
    arrays, static = eqx.partition(state, eqx.is_array)

    def one(arrays: Any, iteration: Array) -> tuple[Any, Info]:
        step_key = jax.random.fold_in(key, iteration)
        new, info = algorithm.step(eqx.combine(arrays, static), data, key=step_key)
        return eqx.filter(new, eqx.is_array), info

    shapes = jax.eval_shape(one, arrays, start)[1]
    names = {"objective": shapes.objective, **shapes.metrics}
    records = {name: jnp.zeros((_CHUNK,), s.dtype) for name, s in names.items()}

    def proceed(carry: _Carry) -> Array:
        return (carry.count < steps) & ~carry.done & carry.finite

    def body(carry: _Carry) -> _Carry:
        new, info = one(carry.state, start + carry.count)
        finite = jnp.isfinite(info.objective)
        # a non-finite step is not taken: the last good state stays
        kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, carry.state)
        values = {"objective": info.objective, **info.metrics}
        written = {k: carry.records[k].at[carry.count].set(values[k]) for k in carry.records}
        count = carry.count + finite.astype(carry.count.dtype)
        return _Carry(kept, count, info.done & finite, finite, written)

    zero = jnp.zeros((), start.dtype)
    no = jnp.zeros((), bool)
    out = jax.lax.while_loop(proceed, body, _Carry(arrays, zero, no, ~no, records))
    return eqx.combine(out.state, static), out.count, out.done, out.finite, out.records


@contextlib.contextmanager
def _waiting_for_ctrl_c() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises `KeyboardInterrupt` as usual.

    Raised at once, the exception could fall into a place that drops it, such as the callbacks of the
    garbage collector, and the fit would go on.
    """
    pressed = threading.Event()

    def note(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pressed.set()

    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def iterate(
    algorithm: AbstractAlgorithm,
    model: Any,
    data: Any,
    *,
    key: Array,
    max_iter: int,
    progress: Callable[[int], AbstractProgress] = silent,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Drives `algorithm` from `model` until it is done, fails or reaches `max_iter`.

    The iteration number is folded into `key`, so that a resumed run draws the same numbers as an
    uninterrupted one.  Ctrl-C stops at the end of the running chunk and keeps what was done.
    """
    programs.make_room()
    init_key, loop_key = split_key(key)
    state = _init(algorithm, model, data, init_key)
    n_iter, history = 0, dict[str, np.ndarray]()
    done, finite, interrupted = False, True, False
    if checkpoint is not None:
        state, n_iter, history, done = checkpoint.resume(state)
    length = _FIRST_CHUNK
    with progress(max_iter) as bar, _waiting_for_ctrl_c() as pressed:
        try:
            bar.update(n_iter, _last(history))
            while n_iter < max_iter and not done and finite:
                if pressed.is_set():
                    raise KeyboardInterrupt
                steps = min(length, max_iter - n_iter)
                started = time.perf_counter()
                new, *report = _advance(algorithm, state, data, loop_key, np.int32(n_iter), np.int32(steps))
                fetched: Any = jax.device_get(report)
                count, ended, good, records = fetched
                seconds = max(time.perf_counter() - started, 1e-6)
                length = int(np.clip(_SECONDS_PER_CHUNK * steps / seconds, 1, _CHUNK))
                parts = {name: _extended(history.get(name), part[:count]) for name, part in records.items()}
                total, ended, good = n_iter + int(count), bool(ended), bool(good)
                # no call here: Ctrl-C finds all of the chunk or nothing of it
                state, history, n_iter, done, finite = new, parts, total, ended, good
                bar.update(n_iter, _last(history))
                if checkpoint is not None:
                    checkpoint.maybe_save(state, n_iter, history, done)
        except KeyboardInterrupt:
            interrupted = True
        if checkpoint is not None:
            checkpoint.save(state, n_iter, history, done)
    # pressed in the last chunk, it is for whoever called
    interrupted = interrupted or pressed.is_set()
    reason = _reason(done, finite, interrupted, n_iter)
    return Outcome(state, history, n_iter, done, interrupted, reason)


def _extended(past: np.ndarray | None, part: np.ndarray) -> np.ndarray:
    return part if past is None else np.concatenate([past, part])


def _last(history: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(values[-1]) for name, values in history.items() if len(values)}


def _reason(done: bool, finite: bool, interrupted: bool, n_iter: int) -> str:
    if interrupted:
        return f"interrupted after {n_iter} iterations"
    if not finite:
        return (
            f"the objective became non-finite at iteration {n_iter + 1}; the last good model is "
            "kept. Try a smaller learning rate, stronger regularisation or rescaled data"
        )
    if done:
        return f"converged after {n_iter} iterations"
    return f"reached the limit of {n_iter} iterations; raise 'max_iter' or loosen 'tol'"
