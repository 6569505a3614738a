"""Checkpoints: the state of a running fit in one file, written whole or not at all."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from ._files import DamagedError, read_sealed, sealed, write_whole

_FORMAT = "freeenergy-checkpoint-3"


class Saved(NamedTuple):
    """What a checkpoint holds: the state after `n_iter` iterations, and what was recorded of them."""

    state: Any
    n_iter: int
    done: bool
    history: dict[str, np.ndarray]
    trace: Any


@dataclasses.dataclass
class Checkpoint:
    """Keeps the state of a fit in `path`: soon after its start, then at most every `interval` seconds.

    A fit that is killed and called again with the same arguments goes on from the file.  A file
    of another fit (other shapes, or another `identity`) is refused.

    Attributes:
        path: where the file is.
        interval: seconds between writes.
        identity: names the fit that the file belongs to.
    """

    path: str | os.PathLike[str]
    interval: float = 30.0
    identity: str = ""
    _last: float = dataclasses.field(default=-np.inf, repr=False)

    @property
    def due(self) -> bool:
        """Whether there was no write yet, or `interval` seconds have passed since the last."""
        return time.monotonic() - self._last >= self.interval

    def save(self, saved: Saved) -> None:
        """Writes the file; a kill in the middle leaves the former one."""
        arrays = jax.tree.leaves(eqx.filter(saved.state, eqx.is_array))
        tensors = {f"state.{i}": _as_numpy(leaf) for i, leaf in enumerate(arrays)}
        tensors |= {f"trace.{i}": _as_numpy(leaf) for i, leaf in enumerate(jax.tree.leaves(saved.trace))}
        tensors |= {f"history.{name}": np.array(values) for name, values in saved.history.items()}
        header = {
            "format": _FORMAT,
            "identity": self.identity,
            "n_iter": saved.n_iter,
            "done": saved.done,
        }
        write_whole(self.path, sealed(tensors, header))
        self._last = time.monotonic()

    def resume(self, state: Any, trace: Callable[[], Any] = lambda: None) -> Saved:
        """What the file holds, or the beginning when there is no file.

        Args:
            state: the first state; the saved one has its shapes.
            trace: gives what is kept of an iteration, as arrays or their shapes.
        """
        path = Path(self.path)
        if not path.exists():
            return Saved(state, 0, False, {}, None)
        another = ValueError(
            f"The checkpoint '{path}' belongs to another fit. Remove it or name another file."
        )

        def check(header: Any) -> None:
            match header:
                case {"format": str(version), "identity": str(identity)}:
                    if version == _FORMAT and identity == self.identity:
                        return
            raise another

        try:
            if not path.is_file():
                raise DamagedError("is not a regular file")
            with path.open("rb") as file:
                header = read_sealed(file, check)
            with safe_open(path, framework="numpy") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except DamagedError as error:
            raise ValueError(f"The checkpoint '{path}' {error}. Remove it.") from None
        except (SafetensorError, OSError) as error:
            raise ValueError(f"The checkpoint '{path}' cannot be read ({error}). Remove it.") from None
        arrays, static = eqx.partition(state, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        saved = _named(tensors, "state.")
        blank = {str(i): _as_numpy(leaf) for i, leaf in enumerate(leaves)}
        if _kinds(saved) != _kinds(blank):
            raise another
        restored = [_like(saved[name], leaf) for name, leaf in zip(blank, leaves, strict=True)]
        kept = _named(tensors, "trace.")
        # what is traced is found out only where there is something of it
        steps, stacked = jax.tree.flatten(trace() if kept else None)
        if {name: (shape[1:], kind) for name, (shape, kind) in _kinds(kept).items()} != _kinds(
            {str(i): leaf for i, leaf in enumerate(steps)}
        ):
            raise another
        return Saved(
            eqx.combine(jax.tree.unflatten(structure, restored), static),
            header["n_iter"],
            header["done"],
            _named(tensors, "history."),
            jax.tree.unflatten(stacked, [kept[str(i)] for i in range(len(steps))]),
        )


def _named(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _kinds(arrays: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    return {name: (tuple(array.shape), array.dtype) for name, array in arrays.items()}


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _like(saved: np.ndarray, leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(saved), impl=jax.random.key_impl(leaf))
    return jax.numpy.asarray(saved)
