"""The one iteration loop.

An algorithm is two pure functions, `init` and `step`; the loop owns everything else: the
iteration count, the stop, the guard against non-finite numbers, history, trace, progress,
checkpoints and interruption.  Steps run on the device in chunks, so that a short fit costs a
handful of dispatches; the first is one step long, and then the length adapts to the time that a
step takes, so that a long fit reports and can be interrupted about four times a second.
"""

from __future__ import annotations

import abc
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._arrays import on_device
from ._checkpoints import Checkpoint, Saved
from ._compilation import Program, programs
from ._progress import AbstractProgress, silent
from ._random import split_key
from ._records import Fit, Status
from ._sources import AbstractSource

_CHUNK = 64
_SECONDS_PER_CHUNK = 0.25


class Info(NamedTuple):
    """What a step tells.

    Attributes:
        done: whether the criterion of the algorithm is met.
        objective: what is lowered, if one thing is.
        metrics: further numbers, for the history and for the progress.
        trace: a tree of arrays that is kept of every step, such as the states of Markov chains.
    """

    done: Array
    objective: Array | None = None
    metrics: dict[str, Array] | None = None
    trace: Any = None


class AbstractAlgorithm(eqx.Module):
    """An iteration: `init` makes a state, `step` advances it.  Both are compiled.

    Attributes:
        validates: whether the data may be a pair, with rows that are held out to judge by.
        starts_on_host: whether `init` computes nothing on arrays outside of programs of its own, so that
            it is called as it is: one program less for every first fit.
    """

    validates: ClassVar[bool] = False
    starts_on_host: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def needs(self) -> type[AbstractSource]:
        """How the data of `learning.fit` are read: the class that their source has to be of."""

    @abc.abstractmethod
    def init(self, model: Any, data: Any, *, key: Array) -> Any:
        """The first state."""

    @abc.abstractmethod
    def step(self, state: Any, data: Any, *, key: Array) -> tuple[Any, Info]:
        """The next state, and what to tell about the step."""

    @abc.abstractmethod
    def model(self, state: Any) -> Any:
        """The model that `state` stands for."""


class _Records(NamedTuple):
    """Numbers and trees of arrays of several steps, along the first axis."""

    history: dict[str, Any]
    trace: Any


class _Carry(NamedTuple):
    state: Any
    count: Array
    done: Array
    finite: Array
    records: _Records


def _recorded(info: Info) -> _Records:
    first = {} if info.objective is None else {"objective": info.objective}
    return _Records(first | (info.metrics or {}), info.trace)


def _is_finite(info: Info) -> Array:
    """Whether the objective is finite, or all metrics where there is no objective."""
    if info.objective is not None:
        return jnp.isfinite(info.objective)
    finite = jnp.ones((), bool)
    for value in (info.metrics or {}).values():
        finite &= jnp.isfinite(value)
    return finite


def _of_own_type(leaf: Any) -> Any:
    """A number of Python has a type in a program that yields to others; steps give back a firm one."""
    weak = eqx.is_array(leaf) and leaf.aval.weak_type
    return jax.lax.convert_element_type(leaf, leaf.dtype) if weak else leaf


@eqx.filter_jit
def _init(algorithm: AbstractAlgorithm, model: Any, data: Any, key: Array) -> Any:
    """The first state, of the very types of later ones: for others `_advance` would be compiled again."""
    return jax.tree.map(_of_own_type, algorithm.init(model, data, key=key))


def _begin(algorithm: AbstractAlgorithm, model: Any, data: Any, key: Array) -> Any:
    """The first state, without a program where there is no need of one."""
    arrays = [leaf for leaf in jax.tree.leaves((model, data)) if eqx.is_array(leaf)]
    # what is made on the host is on one device, and what a program makes where its arguments are
    if not algorithm.starts_on_host or any(leaf.committed for leaf in arrays):
        return _init(algorithm, model, data, key)
    return jax.tree.map(_firm, algorithm.init(model, data, key=key))


def _firm(leaf: Any) -> Any:
    """What `_init` would have given back."""
    if isinstance(leaf, np.ndarray | np.generic) or (eqx.is_array(leaf) and leaf.aval.weak_type):
        return on_device(np.asarray(leaf))
    return leaf


@Program
def _advance(
    data: Any, algorithm: AbstractAlgorithm, state: Any, key: Array, start: Any, steps: Any
) -> tuple[Any, Array, Array, Array, _Records]:
    """Runs up to `steps` (at most `_CHUNK`) iterations; stops early when done or non-finite."""
    arrays, static = eqx.partition(state, eqx.is_array)

    # as a program of its own it is traced once, for its shapes and for the loop
    @jax.jit
    def one(arrays: Any, iteration: Array) -> tuple[Any, Info]:
        step_key = jax.random.fold_in(key, iteration)
        new, info = algorithm.step(eqx.combine(arrays, static), data, key=step_key)
        return eqx.filter(new, eqx.is_array), info

    told = _recorded(jax.eval_shape(one, arrays, start)[1])
    records = jax.tree.map(lambda s: jnp.zeros((_CHUNK, *s.shape), s.dtype), told)

    def proceed(carry: _Carry) -> Array:
        return (carry.count < steps) & ~carry.done & carry.finite

    def body(carry: _Carry) -> _Carry:
        new, info = one(carry.state, start + carry.count)
        finite = _is_finite(info)
        # a non-finite step is not taken: the last good state stays
        kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, carry.state)
        written = jax.tree.map(
            lambda rows, new: rows.at[carry.count].set(new), carry.records, _recorded(info)
        )
        count = carry.count + finite.astype(carry.count.dtype)
        return _Carry(kept, count, info.done & finite, finite, written)

    zero = jnp.zeros((), start.dtype)
    no = jnp.zeros((), bool)
    out = jax.lax.while_loop(proceed, body, _Carry(arrays, zero, no, ~no, records))
    return eqx.combine(out.state, static), out.count, out.done, out.finite, out.records


@contextlib.contextmanager
def waiting_for_ctrl_c() -> Iterator[threading.Event]:
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
) -> Fit:
    """Drives `algorithm` from `model` until it is done, fails or reaches `max_iter`.

    The iteration number is folded into `key`, so that a resumed run draws the same numbers as an
    uninterrupted one.  Ctrl-C stops at the end of the running chunk and keeps what was done.
    """
    programs.make_room()
    init_key, loop_key = split_key(key)
    state = _begin(algorithm, model, data, init_key)
    n_iter, parts = 0, list[_Records]()
    done, finite, interrupted = False, True, False
    if checkpoint is not None:
        state, n_iter, done, *recorded = checkpoint.resume(
            state, lambda: eqx.filter_eval_shape(algorithm.step, state, data, key=loop_key)[1].trace
        )
        parts = [_Records(*recorded)]

    def save() -> None:
        if checkpoint is not None:
            checkpoint.save(Saved(state, n_iter, done, *_joined(parts)))

    length = 1
    with progress(max_iter) as bar, waiting_for_ctrl_c() as pressed:
        try:
            bar.update(n_iter, _last(parts))
            while n_iter < max_iter and not done and finite:
                if pressed.is_set():
                    raise KeyboardInterrupt
                steps = min(length, max_iter - n_iter)
                started = time.perf_counter()
                new, *report = _advance(data, algorithm, state, loop_key, np.int32(n_iter), np.int32(steps))
                fetched: Any = jax.device_get(report)
                count, ended, good, records = fetched
                seconds = max(time.perf_counter() - started, 1e-6)
                length = int(np.clip(_SECONDS_PER_CHUNK * steps / seconds, 1, _CHUNK))
                longer = [*parts, jax.tree.map(lambda rows, n=count: rows[:n], records)]
                total, ended, good = n_iter + int(count), bool(ended), bool(good)
                # no call here: Ctrl-C finds all of the chunk or nothing of it
                state, parts, n_iter, done, finite = new, longer, total, ended, good
                bar.update(n_iter, _last(parts))
                if checkpoint is not None and checkpoint.due:
                    save()
        except KeyboardInterrupt:
            interrupted = True
        save()
    # pressed in the last chunk, it is for whoever called
    interrupted = interrupted or pressed.is_set()
    history, trace = _joined(parts)
    status = _status(done, finite, interrupted)
    return Fit(algorithm.model(state), history, n_iter, status, state, trace)


def _joined(parts: list[_Records]) -> _Records:
    """The records of chunks that followed each other."""
    # of a fit that goes on from a file without a step, nothing is known but the names
    full = [part for part in parts if part.history or part.trace is not None]
    if not full:
        return _Records({}, None)
    return jax.tree.map(lambda *rows: np.concatenate(rows), *full)


def _last(parts: list[_Records]) -> dict[str, float]:
    """The numbers of the last step that was taken."""
    history = next((p.history for p in reversed(parts) if any(map(len, p.history.values()))), {})
    return {name: float(values[-1]) for name, values in history.items()}


def _status(done: bool, finite: bool, interrupted: bool) -> Status:
    if interrupted:
        return Status.INTERRUPTED
    if not finite:
        return Status.NON_FINITE
    return Status.CONVERGED if done else Status.LIMIT
