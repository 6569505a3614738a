"""The one validation of parameters and data, with one form of sentence."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jax import Array
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, _get_feature_names, validate_data

from .._core import CellError, check_size, has_nan, key_of, programs
from ..distributions import AbstractCovariance, Gaussian, Tied
from ._frames import LIBRARIES, NOT_NUMBERS, is_text, library_of, refuse_same_names

# of the largest weight
_MOST_EXPONENT = 100
# rows of which the statistics are held at once
_TOGETHER = 160


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


def check_count(
    owner: BaseEstimator, method: str, name: str, value: Any, *, each: float, least: int = 1
) -> int:
    """`value`, how many things of `each` numbers a method makes; refused if no int or too many to hold."""
    where = f"{type(owner).__name__}.{method}"
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"The '{name}' of {where} must be an int in the range [{least}, inf). Got {value!r} instead."
        )
    check_size(int(value) * each, f"{where} with {name} = {value:,}", "Ask for fewer at a time.")
    return int(value)


def check_gaussian(kind: type, family: Any) -> None:
    """Refuses members of a family that are no Gaussians, of a model for an estimator of this kind."""
    if not isinstance(family, Gaussian):
        raise ValueError(
            f"The 'model' of {kind.__name__}.from_model must be of Gaussians. "
            f"Got {type(family).__name__} instead."
        )


def check_instance(owner: BaseEstimator, name: str, *kinds: type, optional: bool = False) -> None:
    """Refuses a parameter that is not an instance of one of `kinds` (or None, if `optional`)."""
    value = getattr(owner, name)
    if (optional and value is None) or isinstance(value, kinds):
        return
    names = " or ".join([k.__name__ for k in kinds] + (["None"] if optional else []))
    _refuse(owner, name, f"an instance of {names}", value)


def feature_names(owner: BaseEstimator) -> Any:
    """The names of the columns that were fitted, as scikit-learn keeps them; None if they have none."""
    return getattr(owner, "feature_names_in_", None)


def random_key(random_state: Any) -> Array:
    """A JAX key from whatever scikit-learn takes as `random_state`."""
    programs.check_process()
    return key_of(random_number(random_state))


def random_number(random_state: Any) -> int:
    """A seed from whatever scikit-learn takes as `random_state`."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def goes_as_it_is(values: Any, axes: int) -> bool:
    """Whether these are 64-bit numbers in NumPy's array, none of them NaN or infinite, of so many axes.

    scikit-learn takes them as they are, after questions that take longer than a small fit; whatever else
    there is, is left to these.

    >>> [goes_as_it_is(np.array(values), 1) for values in ([1.0, 2.0], [1.0, np.nan], [1, 2], [])]
    [True, False, False, False]
    """
    if type(values) is not np.ndarray or values.ndim != axes or values.dtype != np.float64:
        return False
    # a sum that overflows says nothing, and is no answer
    with np.errstate(over="ignore", invalid="ignore"):
        return values.size > 0 and math.isfinite(values.sum())


def _as_before(owner: BaseEstimator, columns: int) -> bool:
    """Whether a fitted estimator knows so many columns, without names."""
    return feature_names(owner) is None and vars(owner).get("n_features_in_") == columns


def check_rows(owner: BaseEstimator, X: Any, *, reset: bool, accept_sparse: Any = False) -> Any:
    """`X` as a float array; NaN is allowed and means not observed, infinity is refused."""
    programs.check_process()
    if goes_as_it_is(X, 2) and X.flags.c_contiguous and (reset or _as_before(owner, X.shape[1])):
        if reset:
            vars(owner).pop("feature_names_in_", None)
            vars(owner)["n_features_in_"] = X.shape[1]
        return X
    options = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "order": "C"}
    # scikit-learn looks for infinity by a sum, which may overflow without any
    with bad_cells_named(X), np.errstate(over="ignore", invalid="ignore"):
        return validate_data(owner, X, reset=reset, accept_sparse=accept_sparse, **options)


@contextlib.contextmanager
def bad_cells_named(X: Any) -> Iterator[None]:
    """Where scikit-learn or NumPy refuse `X` for what it holds, says which entry that is, or what."""
    # some sparse matrices are mappings, too, which scikit-learn has its own sentence for
    if isinstance(X, Mapping) and not sparse.issparse(X):
        raise TypeError(
            "X must be rows and columns: an array, a list of rows or a data frame. Got a mapping; make a "
            "frame of it, such as pandas.DataFrame(X)."
        )
    _refuse_dates(X)
    try:
        yield
    except (TypeError, ValueError):
        _refuse_cells(X)
        raise


def _refuse_dates(X: Any) -> None:
    """NumPy would take them for numbers, and a missing one for −9.2e18."""
    library = library_of(X)
    dates = [] if library is None else library.dates(X)
    if dates:
        raise ValueError(
            f"{NOT_NUMBERS}, not dates, which column {dates[0]!r} has. Leave it out, or pass the time "
            "since some day instead."
        )
    durations = [] if library is None else library.durations(X)
    if durations:
        raise ValueError(
            f"{NOT_NUMBERS}, not dates or durations, which column {durations[0]!r} has. Make numbers of "
            "it, such as seconds."
        )
    # arrays and frames; sparse matrices are neither
    table = getattr(X, "__array__", None) is not None and len(getattr(X, "shape", ())) == 2
    if not table:
        return
    first = np.asarray(X[:1])
    if first.dtype.kind in "mM" or (library is None and LIBRARIES["numpy"].dates(first)):
        raise ValueError(f"{NOT_NUMBERS}, not dates. Pass the time since some day instead.")


def _refuse_cells(X: Any) -> None:
    refuse_same_names(getattr(X, "columns", ()))
    try:
        values = np.asarray(X)
    except ValueError:
        raise ValueError("The rows of X must have the same length.") from None
    if values.ndim != 2:
        if values.dtype.kind == "U":
            raise ValueError(f"{NOT_NUMBERS}, in rows and columns, not text.")
        return
    if values.dtype.kind in "OU":
        text = np.vectorize(is_text, otypes=[bool])(values)
        _refuse_cell(X, values, text, f"{NOT_NUMBERS}, not text.")
        try:
            values = values.astype(float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{NOT_NUMBERS}: {error}.") from None
    if values.dtype.kind == "f":
        problem = "X must hold finite numbers, or NaN where nothing was observed, not infinity."
        _refuse_cell(X, values, np.isinf(values), problem)


def _refuse_cell(X: Any, values: np.ndarray, bad: np.ndarray, problem: str) -> None:
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = values[row, column]
        error = CellError(problem, str(value) if isinstance(value, str) else float(value), column)
        raise error.placed(row, X, names=_get_feature_names(X))


def moderate(weight: np.ndarray) -> np.ndarray:
    """Weights whose sums are numbers: beyond 2¹⁰⁰ (or below 2⁻¹⁰⁰) only their ratios are kept.

    Sums of so many rows, or of so small a part of one, would overflow (or vanish), and no prior is felt
    any more (or nothing else is).
    """
    exponent = int(np.frexp(weight.max())[1])
    most = min(max(exponent, -_MOST_EXPONENT), _MOST_EXPONENT)
    return weight if most == exponent else np.ldexp(weight, most - exponent)


def check_weight(X: np.ndarray, sample_weight: Any) -> np.ndarray | None:
    """Weights as a float array, or None when every row counts once."""
    if sample_weight is None:
        return None
    if np.asarray(sample_weight).dtype.kind in "USmM":
        raise ValueError(
            "The sample_weight must be a non-negative number for each row of X, not text or a date."
        )
    return moderate(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))


def check_observed(X: np.ndarray, feature_names: Any = None, *, weight: np.ndarray | None = None) -> None:
    """Refuses a column in which nothing was observed (by a row that counts)."""
    if (weight is None and not np.isnan(X[:1]).any()) or not has_nan(X):
        return
    missing = np.isnan(X if weight is None else X[weight > 0])
    refuse_columns(np.all(missing, axis=0, keepdims=True)[0], feature_names)


def refuse_columns(empty: np.ndarray, feature_names: Any = None) -> None:
    """Refuses columns in which nothing was observed, by the name of the first."""
    if empty.any():
        column = int(np.flatnonzero(empty)[0])
        name = column if feature_names is None else feature_names[column]
        name = name if isinstance(name, int) else repr(str(name))
        raise ValueError(f"Column {name} of X has no observed value. Drop it before fitting.")


def check_numbers(
    owner: BaseEstimator, method: str, values: np.ndarray, *, logarithms: bool = False
) -> np.ndarray:
    """`values`, a row or number for each row of X, refused where one is none: NaN or infinite.

    Of `logarithms` −∞ is one, that of zero.
    """
    good = values < np.inf if logarithms else np.isfinite(values)
    if not good.all():
        row = int(np.argwhere(~good)[0][0])
        raise ValueError(
            f"{type(owner).__name__}.{method} has no answer for row {row} of X: the numbers overflow. The "
            "row is too far from those of the fit, or the fit itself failed. Check its entries and units."
        )
    return values


def check_covariances(
    owner: BaseEstimator, structure: AbstractCovariance, rows: int, columns: int, components: int = 1
) -> None:
    """Refuses covariances, and the second moments of a block of rows, that take too much memory."""
    numbers = columns if structure.separable else columns**2
    matrices = 1 if isinstance(structure, Tied) else components
    together = min(rows, _TOGETHER)
    advice = (
        "Use fewer components." if structure.separable else "Use Diagonal(), FactorAnalysis or PCA first."
    )
    check_size(
        numbers * (matrices + together / 2) + components * (columns + together),
        f"{type(owner).__name__} with {components:,} x {type(structure).__name__}() of {columns:,} columns",
        advice,
    )


def binary_rows(owner: BaseEstimator, X: np.ndarray, threshold: float | None) -> np.ndarray:
    """Zeros, ones and NaN: entries above the threshold are one; without one, `X` has to be so already."""
    if threshold is not None:
        return np.where(np.isnan(X), np.nan, (threshold < X).astype(float))
    wrong = ~np.isnan(X) & (X != 0) & (X != 1)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{type(owner).__name__} needs entries 0 or 1. Got {X[row, column]:g} in row {row}, column "
            f"{column}. Give a 'threshold' above which entries count as one."
        )
    return X
