"""How far forecasts are from what came, and how often their intervals hold it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._checks import count, numbers, same_length


class Measure(NamedTuple):
    """A number and its standard error, with errors of different forecasts taken as independent."""

    value: float
    stderr: float


def rmse(truth: Any, forecast: Any) -> Measure:
    """The root of the mean squared error, √(mean (y − ŷ)²), in the units of y; NaN in `truth` is left out.

    Its standard error follows from that of the mean square by the slope of the root.

    >>> rmse([1.0, 2.0, 3.0], [1.0, 4.0, 1.0]).value.round(6)
    np.float64(1.632993)
    """
    square = _errors("rmse", truth, forecast) ** 2
    mean = _mean(square)
    value = np.sqrt(mean.value)
    return Measure(value, mean.stderr / (2 * value) if value > 0 else 0.0)


def mase(truth: Any, forecast: Any, past: Any, *, period: int = 1) -> Measure:
    """The mean absolute error in units of that of the naive forecast within `past`.

    mean |y − ŷ| / mean |x_t − x_{t−period}|, Hyndman and Koehler's scaled error: below one is better than
    to say that nothing changes since `period` steps ago.  NaN is left out.

    >>> float(mase([5.0, 5.0], [4.0, 6.0], past=[1.0, 3.0, 1.0, 3.0]).value)
    0.5
    """
    size = naive_scale(past, period=period)
    mean = _mean(np.abs(_errors("mase", truth, forecast)))
    return Measure(mean.value / size, mean.stderr / size)


def naive_scale(past: Any, *, period: int = 1) -> float:
    """mean |x_t − x_{t−period}| of a series; NaN is left out.

    >>> naive_scale([1.0, 3.0, 2.0])
    1.5
    """
    step = count("naive_scale", "period", period)
    x = np.asarray(past, float)
    gaps = np.abs(x[step:] - x[:-step]) if x.ndim == 1 and len(x) > step else np.empty(0)
    gaps = gaps[~np.isnan(gaps)]
    if not len(gaps) or not gaps.any():
        raise ValueError(
            "The 'past' of mase must be one series that changes, with more steps than the period of "
            f"{step}. Got {len(x)} steps."
        )
    return float(gaps.mean())


def coverage(truth: Any, low: Any, high: Any) -> Measure:
    """The share of values that lie in their interval, ends included; NaN in `truth` is left out.

    >>> [float(part) for part in coverage([1.0, 2.0, 3.0, 9.0], [0.0] * 4, [3.0] * 4)]
    [0.75, 0.21650635094610965]
    """
    y = np.asarray(truth, float)
    seen = ~np.isnan(y)
    a, b = (numbers("coverage", name, part) for name, part in (("low", low), ("high", high)))
    same_length("coverage", truth=y, low=a, high=b)
    inside = ((a <= y) & (y <= b))[seen]
    share = float(inside.mean()) if len(inside) else float("nan")
    return Measure(share, float(np.sqrt(share * (1 - share) / max(len(inside), 1))))


def _errors(owner: str, truth: Any, forecast: Any) -> np.ndarray:
    y, found = np.asarray(truth, float), numbers(owner, "forecast", forecast)
    if y.ndim != 1:
        raise ValueError(
            f"The 'truth' of {owner} must be an array of one axis. Got the shape {y.shape} instead."
        )
    same_length(owner, truth=y, forecast=found)
    errors = (y - found)[~np.isnan(y)]
    if not len(errors):
        raise ValueError(f"The 'truth' of {owner} must have at least one number. Got none.")
    return errors


def _mean(values: np.ndarray) -> Measure:
    spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return Measure(values.mean(), spread)
