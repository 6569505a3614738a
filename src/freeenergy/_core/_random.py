"""Random numbers: many at once, and keys without a program.

JAX's Threefry runs its rounds in a loop on the processor, which goes through memory once a round.  Here
all rounds are one expression, which is compiled into one pass over registers; the bits are the same.
On NumPy arrays the same expression gives keys and numbers at once, where JAX would compile a program for
each of them: what prepares a fit on the host draws from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY, _WORD = 0x1BD11BDA, 0xFFFFFFFF


def uniform(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Numbers in [0, 1): those of `jax.random.uniform` up to the last bit, up to ten times faster."""
    bits = jnp.finfo(dtype).bits
    if str(jax.random.key_impl(key)) != "threefry2x32" or bits not in (32, 64):
        return jax.random.uniform(key, shape, dtype)
    first, second = jax.random.key_data(key)
    counter = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    high, low = _threefry(first, second, jnp.zeros_like(counter), counter)
    if bits == 64:
        return high.astype(dtype) * 2.0**-32 + (low >> 11).astype(dtype) * 2.0**-53
    return ((high ^ low) >> 8).astype(dtype) * jnp.asarray(2.0**-24, dtype)


def _threefry(
    first: Any, second: Any, high: Any, low: Any, cut: Callable[[Any], Any] = lambda word: word
) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) of the counter (high, low) under a key.

    `cut` takes the last 32 bits, of numbers that have more.
    """
    keys = (first, second, first ^ second ^ _PARITY)
    a, b = cut(high + keys[0]), cut(low + keys[1])
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            a = cut(a + b)
            b = a ^ (cut(b << turn) | (b >> (32 - turn)))
        a = cut(a + keys[(block + 1) % 3])
        b = cut(b + keys[(block + 2) % 3] + (block + 1))
    return a, b


def key_of(seed: int) -> Array:
    """`jax.random.key(seed)`."""
    return _wrapped(np.array([seed >> 32, seed & _WORD], np.uint32))


def seed_bits(seed: int) -> int:
    """`key_bits(key_of(seed))`, without arrays, which take longer than all the rest.

    >>> seed_bits(7) == key_bits(key_of(7))
    True
    """
    high, low = _threefry(seed >> 32, seed & _WORD, 0, 0, lambda word: word & _WORD)
    return high ^ low


def as_key(key: Any, owner: str) -> Array:
    """A key of JAX, or that of a whole number; anything else is refused in the name of `owner`.

    >>> bool(as_key(3, "infer") == jax.random.key(3))
    True
    """
    if isinstance(key, Array) and (
        jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32
    ):
        return key
    if not isinstance(key, int | np.integer) or isinstance(key, bool) or not 0 <= key < 2**64:
        raise TypeError(
            f"The 'key' parameter of {owner} must be a whole number from zero on or a key of JAX. "
            f"Got {key!r} instead."
        )
    return key_of(int(key))


def split_key(key: Array, n: int = 2) -> list[Array]:
    """`jax.random.split(key, n)`, as a list; of a key that is being traced, too.

    >>> first, second = split_key(key_of(0))
    >>> bool(jax.random.split(jax.random.key(0))[1] == second)
    True
    """
    if not _can_be_read(key):
        return list(jax.random.split(key, n))
    return [_wrapped(data) for data in split_key_data(key, n)]


def split_key_data(key: Array, n: int) -> np.ndarray:
    """`n` keys as plain numbers, a row each."""
    return np.stack(_on_host(key, np.arange(n, dtype=np.uint32)), axis=1)


def fold_key(key: Array, number: int) -> Array:
    """`jax.random.fold_in(key, number)`."""
    if not _can_be_read(key):
        return jax.random.fold_in(key, number)
    return _wrapped(np.concatenate(_on_host(key, np.array([number], np.uint32))))


def key_bits(key: Array) -> int:
    """`jax.random.bits(key, dtype="uint32")`."""
    high, low = _on_host(key, np.zeros(1, np.uint32))
    return int(high[0] ^ low[0])


def uniform_on_host(key: Array, n: int) -> np.ndarray:
    """`uniform(key, (n,), float)`."""
    high, low = _on_host(key, np.arange(n, dtype=np.uint32))
    return high * 2.0**-32 + (low >> np.uint32(11)) * 2.0**-53


def weights(key: Array, shape: tuple[int, ...], dtype: Any, bound: float) -> Any:
    """`jax.random.uniform(key, shape, dtype, -bound, bound)`; on the host, unless the key is being traced.

    With the bound 0 they are zeros, which take no memory either while a key is traced to learn their size.

    >>> drawn = weights(key_of(0), (2, 3), np.float32, 0.5)
    >>> np.allclose(drawn, jax.random.uniform(jax.random.key(0), (2, 3), np.float32, -0.5, 0.5), atol=1e-7)
    True
    """
    kind, here = np.dtype(dtype), _can_be_read(key)
    if bound == 0:
        return np.zeros(shape, kind) if here else jnp.zeros(shape, kind)
    if not here or kind not in (np.float32, np.float64):
        return jax.random.uniform(key, shape, dtype, -bound, bound)
    high, low = _on_host(key, np.arange(math.prod(shape), dtype=np.uint32))
    if kind == np.float32:
        share = ((high ^ low) >> np.uint32(9)).astype(kind) * kind.type(2.0**-23)
    else:
        share = ((high.astype(np.uint64) << np.uint64(20)) | (low >> np.uint32(12))).astype(kind) * 2.0**-52
    return (share * kind.type(2 * bound) - kind.type(bound)).reshape(shape)


def _can_be_read(key: Array) -> bool:
    """Whether the numbers of a key are there already, and are of the kind that is computed with here."""
    typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    return typed and str(jax.random.key_impl(key)) == "threefry2x32" and not isinstance(key, Tracer)


def generator(key: Array) -> np.random.Generator:
    """NumPy's random numbers of all kinds, seeded by a key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _wrapped(data: Any) -> Array:
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def _on_host(key: Array, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # also while something else is being traced
    with jax.ensure_compile_time_eval():
        first, second = np.asarray(jax.random.key_data(key))[:, None]
    high, low = _threefry(first, second, np.zeros_like(counter), counter)
    return np.asarray(high), np.asarray(low)
