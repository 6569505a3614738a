"""Checkpoints: the state of a running fit in one file, written whole or not at all."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from ._files import DamagedError, read_sealed, sealed, write_whole

_FORMAT = "freeenergy-checkpoint-2"


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

    def maybe_save(self, state: Any, n_iter: int, history: dict[str, np.ndarray], done: bool) -> None:
        """Saves if there was no time before, or if `interval` seconds have passed since."""
        if time.monotonic() - self._last >= self.interval:
            self.save(state, n_iter, history, done)

    def save(self, state: Any, n_iter: int, history: dict[str, np.ndarray], done: bool) -> None:
        """Writes the file; a kill in the middle leaves the former one."""
        arrays = jax.tree.leaves(eqx.filter(state, eqx.is_array))
        tensors = {f"state.{i}": _as_numpy(leaf) for i, leaf in enumerate(arrays)}
        tensors |= {f"history.{name}": np.array(values) for name, values in history.items()}
        header = {"format": _FORMAT, "identity": self.identity, "n_iter": n_iter, "done": done}
        write_whole(self.path, sealed(tensors, header))
        self._last = time.monotonic()

    def resume(self, state: Any) -> tuple[Any, int, dict[str, np.ndarray], bool]:
        """The saved state in the shape of `state`, or `state` itself when there is no file."""
        path = Path(self.path)
        if not path.exists():
            return state, 0, {}, False
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
        blank = {f"state.{i}": _as_numpy(leaf) for i, leaf in enumerate(leaves)}
        history = {k.removeprefix("history."): v for k, v in tensors.items() if k.startswith("history.")}
        saved = {name: values for name, values in tensors.items() if name.startswith("state.")}
        alike = {name: (values.shape, values.dtype) for name, values in saved.items()}
        if alike != {name: (values.shape, values.dtype) for name, values in blank.items()}:
            raise another
        arrays = jax.tree.unflatten(
            structure, [_like(saved[name], leaf) for name, leaf in zip(blank, leaves, strict=True)]
        )
        return eqx.combine(arrays, static), header["n_iter"], history, header["done"]


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _like(saved: np.ndarray, leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(saved), impl=jax.random.key_impl(leaf))
    return jax.numpy.asarray(saved)
