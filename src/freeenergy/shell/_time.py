"""Times of series: how far apart steps are, which are missing between others, and which come next.

Dates are NumPy's, to the microsecond and without a zone; a time may also be a number, such as a year.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_DATE = np.dtype("M8[us]")
_DAY = 86_400_000_000
# a common divisor of steps may make a grid at most so much longer than what was observed
_MOST_FINER = 4
# days of a month beside 1 … 31, of which months that are shorter take their last
_FIRST_WEEKDAY, _LAST_DAY, _LAST_WEEKDAY = 0, 31, 32
_UNITS = (
    (_DAY * 7, "week"),
    (_DAY, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (10**6, "second"),
)
_MONTHS = {1: "month", 3: "quarter", 12: "year"}


class AbstractFrequency(abc.ABC):
    """How far apart the steps of a series are."""

    @abc.abstractmethod
    def places(self, times: np.ndarray, origin: Any) -> np.ndarray:
        """The number of the step from `origin` of each time; NaN for a time between two steps."""

    @abc.abstractmethod
    def at(self, places: np.ndarray, origin: Any) -> np.ndarray:
        """The times of steps, counted from `origin`."""

    @property
    def step(self) -> str:
        """How long a step is, in the middle of a sentence.

        >>> EvenSteps(3_600_000_000).step, EvenSteps(7_200_000_000).step, EvenSteps(2.0, dated=False).step
        ('an hour', '2 hours', '2')
        """
        word = str(self)
        return word if word[0].isdigit() else f"an {word}" if word == "hour" else f"a {word}"

    def describes(self, series: Sequence[np.ndarray]) -> bool:
        """Whether every time of every series is one of its steps."""
        return all(np.isfinite(self.places(times, times[0])).all() for times in series if len(times))


@dataclasses.dataclass(frozen=True)
class EvenSteps(AbstractFrequency):
    """Steps of one length: so many microseconds for dates, any number for times that are numbers.

    >>> str(EvenSteps(3_600_000_000)), str(EvenSteps(2.0, dated=False))
    ('hour', '2')
    """

    length: float
    dated: bool = True

    def places(self, times: np.ndarray, origin: Any) -> np.ndarray:
        if self.dated != (times.dtype.kind == "M"):
            return np.full(len(times), np.nan)
        if self.dated:
            steps, rest = np.divmod((times - origin).astype(np.int64), int(self.length))
            return np.where(rest == 0, steps, np.nan)
        steps = (times - origin) / self.length
        whole = np.rint(steps)
        return np.where(np.abs(steps - whole) <= 1e-6, whole, np.nan)

    def at(self, places: np.ndarray, origin: Any) -> np.ndarray:
        if self.dated:
            return origin + (places.astype(np.int64) * int(self.length)).astype("m8[us]")
        return origin + places * self.length

    def __str__(self) -> str:
        if not self.dated:
            return f"{self.length:g}"
        unit, name = next(((u, n) for u, n in _UNITS if self.length % u == 0), (1, "microsecond"))
        return _several(int(self.length // unit), name)


@dataclasses.dataclass(frozen=True)
class Weekdays(AbstractFrequency):
    """Steps of a day from Monday to Friday, at one time of day."""

    def places(self, times: np.ndarray, origin: Any) -> np.ndarray:
        if times.dtype.kind != "M":
            return np.full(len(times), np.nan)
        days, first = times.astype("M8[D]"), origin.astype("M8[D]")
        good = np.is_busday(days) & (times - days == origin - first)
        return np.where(good, np.busday_count(first, days), np.nan)

    def at(self, places: np.ndarray, origin: Any) -> np.ndarray:
        first = origin.astype("M8[D]")
        days = np.busday_offset(first, places.astype(np.int64), roll="forward")
        return days.astype(_DATE) + (origin - first)

    def __str__(self) -> str:
        return "weekday"


@dataclasses.dataclass(frozen=True)
class Months(AbstractFrequency):
    """Steps of `count` months, on one day of the month and at one time of day.

    Attributes:
        count: 1 for months, 3 for quarters, 12 for years.
        day: of the month; a month that is shorter has its last day, so that 31 is the end of months.  0 is
            the first day from Monday to Friday, and 32 the last.

    >>> Months(1, 31).at(np.arange(3), np.datetime64("2024-01-31", "us")).astype("M8[D]").tolist()
    [datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), datetime.date(2024, 3, 31)]
    """

    count: int
    day: int

    def places(self, times: np.ndarray, origin: Any) -> np.ndarray:
        if times.dtype.kind != "M":
            return np.full(len(times), np.nan)
        months = (times.astype("M8[M]") - origin.astype("M8[M]")).astype(np.int64)
        steps, rest = np.divmod(months, self.count)
        return np.where((rest == 0) & (self.at(steps, origin) == times), steps, np.nan)

    def at(self, places: np.ndarray, origin: Any) -> np.ndarray:
        months = origin.astype("M8[M]") + self.count * np.asarray(places, np.int64)
        return _day_of(months, self.day).astype(_DATE) + (origin - origin.astype("M8[D]"))

    def __str__(self) -> str:
        several = max((n for n in _MONTHS if self.count % n == 0), default=1)
        return _several(self.count // several, _MONTHS[several])


def _several(count: int, unit: str) -> str:
    return unit if count == 1 else f"{count} {unit}s"


def _day_of(months: np.ndarray, day: int) -> np.ndarray:
    """A day of each month, as `Months` counts them."""
    first = months.astype("M8[D]")
    last = (months + 1).astype("M8[D]") - 1
    if day == _FIRST_WEEKDAY:
        return np.busday_offset(first, 0, roll="forward")
    if day == _LAST_WEEKDAY:
        return np.busday_offset(last, 0, roll="backward")
    return np.minimum(first + (day - 1), last)


def as_times(values: Any) -> np.ndarray | None:
    """Dates to the microsecond, or numbers; None of what is neither.

    >>> as_times(["2024-02-28", "2024-02-29"]).dtype, as_times([1959, 1960]).tolist(), as_times(["a"])
    (dtype('<M8[us]'), [1959.0, 1960.0], None)
    """
    found = np.asarray(values)
    if found.dtype.kind in "iuf":
        return found.astype(float)
    try:
        return found.astype(_DATE)
    except (TypeError, ValueError):
        return None


def frequency_of(series: Sequence[np.ndarray]) -> AbstractFrequency | None:
    """How far apart the steps of series are, from their increasing times.

    Steps of months (on one day, at their end, or on their first or last weekday) and of weekdays are
    recognised; else the step is the median one, or a divisor of all.  None if there is none, or no
    series has two times.

    >>> str(frequency_of([np.array(["2023-12-31", "2024-02-29", "2024-03-31"], "M8[us]")]))
    'month'
    """
    steps = np.concatenate([np.diff(times) for times in series])
    if not len(steps):
        return None
    if steps.dtype.kind == "f":
        lengths = (float(np.median(steps)), float(steps.min()))
        found = (_checked(EvenSteps(length, dated=False), series) for length in lengths)
        return next((one for one in found if one is not None), None)
    apart = steps.astype(np.int64)
    calendar = _months(series, apart) or _weekdays(series, apart)
    if calendar is not None:
        return calendar
    median = int(np.median(apart))
    divisor = functools.reduce(math.gcd, np.unique(apart).tolist())
    if apart.sum() / divisor > _MOST_FINER * (len(apart) + 1):
        return _checked(EvenSteps(median), series)
    return _checked(EvenSteps(median), series) or EvenSteps(divisor)


def _checked(found: AbstractFrequency, series: Sequence[np.ndarray]) -> AbstractFrequency | None:
    return found if found.describes(series) else None


def _at_one_time_of_day(series: Sequence[np.ndarray]) -> bool:
    return all(len(np.unique(times - times.astype("M8[D]"))) <= 1 for times in series)


def _months(series: Sequence[np.ndarray], apart: np.ndarray) -> AbstractFrequency | None:
    if apart.min() < 28 * _DAY or not _at_one_time_of_day(series):
        return None
    days = np.concatenate(series).astype("M8[D]")
    months = days.astype("M8[M]")
    moved = np.concatenate([np.diff(times.astype("M8[M]")) for times in series]).astype(np.int64)
    median = int(np.median(moved))
    count = median if median and not (moved % median).any() else functools.reduce(math.gcd, moved.tolist())
    latest = int((days - months.astype("M8[D]")).astype(np.int64).max()) + 1
    for day in (1, _LAST_DAY, latest, _LAST_WEEKDAY, _FIRST_WEEKDAY):
        if (_day_of(months, day) == days).all():
            return Months(count, day)
    return None


def _weekdays(series: Sequence[np.ndarray], apart: np.ndarray) -> AbstractFrequency | None:
    days = [times.astype("M8[D]") for times in series]
    good = np.median(apart) == _DAY and _at_one_time_of_day(series)
    # days of one week say nothing of its end
    if not good or not all(np.is_busday(own).all() for own in days):
        return None
    skipped = any(
        len(own) and np.busday_count(own[0], own[-1]) < (own[-1] - own[0]).astype(int) for own in days
    )
    return Weekdays() if skipped else None


def in_words(time: Any) -> str:
    """A time as short as it can be written.

    >>> in_words(np.datetime64("2024-02-29T00:00:00.000000")), in_words(1960.0)
    ('2024-02-29', '1960')
    """
    if isinstance(time, np.datetime64):
        day = time.astype("M8[D]")
        return str(day) if day == time else str(time.astype("M8[s]")).replace("T", " ")
    return f"{time:g}" if isinstance(time, float) else str(time)
