"""What the functions of this package ask of their arrays, in one form of sentence."""

from __future__ import annotations

from typing import Any

import numpy as np


def numbers(owner: str, name: str, values: Any, *, ndim: int = 1, least: int = 1) -> np.ndarray:
    """`values` as a finite float array of `ndim` axes with at least `least` entries along each."""
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim != ndim or min(array.shape, default=0) < least:
        shape = "not numbers" if array is None else f"the shape {array.shape}"
        axes = "one axis" if ndim == 1 else f"{ndim} axes"
        raise ValueError(
            f"The '{name}' of {owner} must be an array of {axes} with at least {least} "
            f"{'entry' if least == 1 else 'entries'} along each. Got {shape} instead."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"The '{name}' of {owner} must be finite. Got NaN or infinity instead.")
    return array


def outcomes(owner: str, name: str, values: Any) -> np.ndarray:
    """`values` as an array of zeros and ones."""
    array = numbers(owner, name, values)
    strange = array[(array != 0) & (array != 1)]
    if len(strange):
        raise ValueError(f"The '{name}' of {owner} must be 0 or 1 each. Got {strange[0]:g} instead.")
    return array


def fraction(owner: str, name: str, value: Any) -> float:
    """`value` if it is strictly between 0 and 1."""
    if not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise ValueError(
            f"The '{name}' of {owner} must be a float in the range (0, 1). Got {value!r} instead."
        )
    return float(value)


def count(owner: str, name: str, value: Any, least: int = 1) -> int:
    """`value` if it is a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"The '{name}' of {owner} must be an int in the range [{least}, inf). Got {value!r} instead."
        )
    return int(value)


def same_length(owner: str, **arrays: np.ndarray | None) -> None:
    """Refuses arrays of different lengths."""
    lengths = {name: len(array) for name, array in arrays.items() if array is not None}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{size} for '{name}'" for name, size in lengths.items())
        raise ValueError(f"The arrays of {owner} must have the same length. Got {got} instead.")


def two_samples(owner: str, first: Any, second: Any, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Both as tables of finite numbers with the same columns and at least `least` rows."""
    a = numbers(owner, "first", first, ndim=2)
    b = numbers(owner, "second", second, ndim=2)
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"The samples of {owner} must have the same columns. Got {a.shape[1]} and {b.shape[1]} instead."
        )
    if min(len(a), len(b)) < least:
        raise ValueError(
            f"The samples of {owner} must have at least {least} rows each. "
            f"Got {len(a)} and {len(b)} instead."
        )
    return a, b
