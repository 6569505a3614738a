"""Every estimator, every kind of column, every library of frames: the same numbers, or one sentence."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import CASES, needs_labels
from data import ROWS
from sklearn.base import clone

N = 60
RNG = np.random.default_rng(0)
GRADES = ["low", "middle", "high"]
DAYS = pd.date_range("2024-01-01", periods=N).to_numpy()
# of each kind the values, None where nothing was observed, and the type in pandas and in Polars
KINDS = {
    "continuous": (RNG.normal(size=N).tolist(), "Float64", pl.Float64),
    "rounded": (RNG.integers(0, 30, N) / 4, "Float64", pl.Float64),
    "count": (RNG.poisson(3.0, N).tolist(), "Int64", pl.Int64),
    "integer": (RNG.integers(-400, 400, N).tolist(), "Int64", pl.Int32),
    "binary": ((RNG.random(N) < 0.4).tolist(), "boolean", pl.Boolean),
    "category": (RNG.choice(["cat", "dog", "none"], N).tolist(), "category", pl.Categorical),
    "text labels": (RNG.choice(["x", "y"], N).tolist(), "object", pl.String),
    "ordered": (RNG.choice(GRADES, N).tolist(), pd.CategoricalDtype(GRADES, ordered=True), pl.Enum(GRADES)),
    "date": (DAYS[RNG.permutation(N)].tolist(), "datetime64[us]", pl.Datetime("us")),
    "constant": ([7] * N, "Int64", pl.Int64),
    "identifier": ([f"n{i:03d}" for i in range(N)], "object", pl.String),
}
LABELS = ("category", "text labels", "ordered", "identifier")
HOLES = [5, 17, 40]


class Arrow:
    """A table that only Arrow's interface is known of: numbers alone would be taken as an array."""

    def __init__(self, frame):
        self.frame, self.column_names, self.shape = frame, frame.columns, frame.shape

    def __arrow_c_stream__(self, schema=None):
        return self.frame.__arrow_c_stream__(schema)


def frames(kind):
    """A column of numbers and one of this kind, some of it missing, for each library."""
    values, in_pandas, in_polars = KINDS[kind]
    values = [None if i in HOLES else v for i, v in enumerate(values)]
    if kind == "date":
        values = [None if v is None else pd.Timestamp(v).to_pydatetime() for v in values]
    number = ROWS[:N, 0]
    polars = pl.DataFrame({"a": number, "b": pl.Series(values, dtype=in_polars, strict=False)})
    yield "pandas", pd.DataFrame({"a": number, "b": pd.Series(values, dtype=in_pandas)})
    yield "polars", polars
    yield "arrow", Arrow(polars)


def taken(name, frame):
    """The numbers that a fit of the estimator would learn from, or why there are none."""
    case = CASES[name]
    estimator = clone(case.estimator)
    given = {}
    if case.answers is not None:
        given["y"] = case.answers(np.zeros(N), np.random.RandomState(0))
    elif needs_labels(estimator):
        given["y"] = np.arange(N) % 2
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            events = estimator.intake.fitting(estimator, frame, **given).events
    except (ValueError, TypeError) as error:
        return str(error)
    if case.sequence:
        return np.concatenate(events.series)
    return np.asarray(getattr(events, "x", events), float) if hasattr(events, "x") else events.rows.x


@pytest.mark.parametrize("name", CASES)
def test_frames_of_all_libraries_and_kinds_are_the_same_numbers(name):
    if not hasattr(type(CASES[name].estimator), "intake"):
        pytest.skip("it passes on what it is given")
    for kind in KINDS:
        if (CASES[name].sequence or CASES[name].counts) and kind == "date":
            # a date in a frame of series is the time of its steps, and no count of words
            continue
        found = {library: taken(name, frame) for library, frame in frames(kind)}
        if CASES[name].sequence or CASES[name].counts or kind not in LABELS:
            # frames of series are those of pandas and Polars, or what `fe.series` declares
            del found["arrow"]
        first = found["pandas"]
        for library, other in found.items():
            where = f"{kind} of {library}"
            if isinstance(first, str):
                assert isinstance(other, str), where
                # one sentence, that names the column or the value
                assert other.rstrip().endswith((".", "instead", ")")) or "\n" in other, where
                assert other.split(". ")[0] == first.split(". ")[0], where
            else:
                assert not isinstance(other, str), f"{where}: {other}"
                np.testing.assert_array_equal(other, first, err_msg=where)
        if kind == "continuous" and CASES[name].points is None and not CASES[name].counts:
            assert CASES[name].symbols or not isinstance(first, str), first
