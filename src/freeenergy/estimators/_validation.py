"""The one validation of parameters and data, with one form of sentence."""

from __future__ import annotations

import numbers
from typing import Any

import jax
import numpy as np
from jax import Array
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._core import has_nan, programs


def _refuse(owner: BaseEstimator, name: str, expected: str, value: Any) -> None:
    kind = type(owner).__name__
    raise ValueError(f"The '{name}' parameter of {kind} must be {expected}. Got {value!r} instead.")


def check_int(owner: BaseEstimator, name: str, low: int = 1, *, optional: bool = False) -> None:
    """Refuses a parameter that is not an int ≥ `low` (or None, if `optional`)."""
    value = getattr(owner, name)
    if optional and value is None:
        return
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
        expected = f"an int in the range [{low}, inf)"
        _refuse(owner, name, expected + (" or None" if optional else ""), value)


def check_real(
    owner: BaseEstimator,
    name: str,
    low: float = 0.0,
    high: float = np.inf,
    *,
    closed: bool = True,
    optional: bool = False,
) -> None:
    """Refuses a parameter that is not a number from `low` (included if `closed`) below `high`."""
    value = getattr(owner, name)
    if optional and value is None:
        return
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if good else np.nan
    if not (low <= number if closed else low < number) or not number < high:
        expected = f"a float in the range {'[' if closed else '('}{low:g}, {high:g})"
        _refuse(owner, name, expected + (" or None" if optional else ""), value)


def check_instance(owner: BaseEstimator, name: str, *kinds: type, optional: bool = False) -> None:
    """Refuses a parameter that is not an instance of one of `kinds` (or None, if `optional`)."""
    value = getattr(owner, name)
    if (optional and value is None) or isinstance(value, kinds):
        return
    names = " or ".join([k.__name__ for k in kinds] + (["None"] if optional else []))
    _refuse(owner, name, f"an instance of {names}", value)


def random_key(random_state: Any) -> Array:
    """A JAX key from whatever scikit-learn takes as `random_state`."""
    programs.check_process()
    return jax.random.key(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def check_rows(owner: BaseEstimator, X: Any, *, reset: bool) -> np.ndarray:
    """`X` as a float array; NaN is allowed and means not observed, infinity is refused."""
    programs.check_process()
    options = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "order": "C"}
    return np.asarray(validate_data(owner, X, reset=reset, **options))


def check_weight(X: np.ndarray, sample_weight: Any) -> np.ndarray | None:
    """Weights as a float array, or None when every row counts once."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def check_observed(X: np.ndarray, feature_names: Any = None, *, weight: np.ndarray | None = None) -> None:
    """Refuses a column in which nothing was observed (by a row that counts)."""
    if not has_nan(X):
        return
    missing = np.isnan(X if weight is None else X[weight > 0])
    refuse_columns(np.all(missing, axis=0, keepdims=True)[0], feature_names)


def refuse_columns(empty: np.ndarray, feature_names: Any = None) -> None:
    """Refuses columns in which nothing was observed, by the name of the first."""
    if empty.any():
        column = int(np.flatnonzero(empty)[0])
        name = repr(str(feature_names[column])) if feature_names is not None else str(column)
        raise ValueError(f"Column {name} of X has no observed value. Drop it before fitting.")
