"""Series in frames: times, gaps, panels and inputs, with pandas and Polars themselves as the oracle."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm

import freeenergy as fe
from freeenergy.models import Level, Regressors
from freeenergy.shell._time import Months, as_times, frequency_of, in_words

RNG = np.random.default_rng(0)
VALUES = np.cumsum(np.random.default_rng(1).normal(size=(48, 2)), axis=0)
ENDS = pd.date_range("2019-11-30", periods=48, freq="ME", name="month")
FRAME = pd.DataFrame(VALUES, index=ENDS, columns=["a", "b"])
MISSING = [5, 6, 20]
HOLES = VALUES.copy()
HOLES[MISSING] = np.nan
GAPS = FRAME.drop(FRAME.index[MISSING])


@pytest.fixture(scope="module")
def fitted():
    return fe.AutoRegression(1).fit(FRAME)


@pytest.fixture(scope="module")
def plain():
    return fe.AutoRegression(1).fit(VALUES)


def test_a_summary_names_columns_and_lags(fitted):
    found = fitted.summary()
    told = dict(zip(found.names, found.values, strict=True))
    np.testing.assert_allclose(told["coefficients[lag 1, a, b]"], fitted.coefficients_[0, 0, 1], rtol=1e-9)
    np.testing.assert_allclose(told["coefficients[lag 1, b, a]"], fitted.coefficients_[0, 1, 0], rtol=1e-9)
    assert {"offset[a]", "noise_covariance[b, a]"} < told.keys()
    assert len(told) == 2 + 4 + 3
    assert "coefficients[lag k, a, b] is what one of b adds to a, k steps later." in repr(found)


class Arrow:
    """A table of which nothing is known but that it streams as Arrow's do."""

    def __init__(self, frame):
        self.__arrow_c_stream__ = frame.__arrow_c_stream__


# how far apart steps are


@pytest.mark.parametrize(
    ("alias", "words"),
    [
        *[("h", "hour"), ("30min", "30 minutes"), ("s", "second"), ("D", "day"), ("B", "weekday")],
        *[("W-WED", "week"), ("MS", "month"), ("ME", "month"), ("BME", "month"), ("BMS", "month")],
        *[
            ("2MS", "2 months"),
            ("QS", "quarter"),
            ("QE-JAN", "quarter"),
            ("YS", "year"),
            ("YE-FEB", "year"),
        ],
    ],
)
@pytest.mark.parametrize("start", ["2019-11-30", "2023-12-31 08:00", "1999-02-27"])
def test_steps_go_on_as_those_of_pandas(alias, words, start):
    times = as_times(pd.date_range(start, periods=60, freq=alias))
    found = frequency_of([times[:30]])
    assert str(found) == words
    np.testing.assert_array_equal(found.at(np.arange(60), times[0]), times)
    # so they do if some are missing
    kept = np.delete(times[:30], [3, 4, 11])
    again = frequency_of([kept])
    np.testing.assert_array_equal(again.places(kept, kept[0]), np.delete(np.arange(30), [3, 4, 11]))


def test_other_days_of_a_month_and_leap_years():
    times = as_times(["2023-11-30", "2023-12-30", "2024-01-30", "2024-02-29", "2024-03-30"])
    assert frequency_of([times]) == Months(1, 30)
    years = as_times(["2020-02-29", "2021-02-28", "2022-02-28", "2023-02-28"])
    ahead = frequency_of([years]).at(np.arange(6), years[0]).astype("M8[D]").astype(str)
    assert ahead.tolist()[4:] == ["2024-02-29", "2025-02-28"]


def test_days_of_one_week_are_days_and_numbers_are_steps():
    week = as_times(pd.date_range("2024-01-01", periods=5))
    assert str(frequency_of([week])) == "day"
    assert str(frequency_of([np.array([1959.0, 1960.0, 1962.0])])) == "1"
    assert frequency_of([np.array([0.0, 1.0, 2.5, 3.5])]) is None
    assert frequency_of([week[:1]]) is None
    # no median step fits all, a divisor does
    hours = as_times(["2024-01-01 00:00", "2024-01-01 03:00", "2024-01-01 05:00"])
    assert str(frequency_of([hours])) == "hour"
    assert in_words(hours[1]) == "2024-01-01 03:00:00"


# what goes in


def _in_polars(frame):
    return pl.DataFrame({"month": frame.index.to_numpy().astype("M8[D]"), **{c: frame[c] for c in frame}})


@pytest.mark.parametrize(
    "container",
    [
        lambda frame: fe.series(frame),
        lambda frame: frame.tz_localize("Europe/Berlin"),
        lambda frame: frame.set_axis(frame.index.to_period("M")),
        lambda frame: fe.series(frame.reset_index(), time="month"),
        lambda frame: fe.series(frame.reset_index().astype({"month": str}), time="month"),
        lambda frame: fe.series(_in_polars(frame), time="month"),
        lambda frame: fe.series(Arrow(_in_polars(frame)), time="month"),
    ],
    ids=["index", "zone", "periods", "column", "text", "polars", "arrow"],
)
def test_gaps_are_steps_of_which_nothing_is_observed(fitted, plain, container):
    got = container(GAPS)
    np.testing.assert_array_equal(fitted.step_evidence(got), plain.step_evidence(HOLES))
    assert fitted.score(got) == plain.score(HOLES)
    filled = fitted.impute(got)
    values = filled[["a", "b"]].to_numpy()
    np.testing.assert_array_equal(values, plain.impute(HOLES))
    # what is complete comes back as it is
    whole = fitted.impute(container(FRAME))
    np.testing.assert_array_equal(whole[["a", "b"]].to_numpy(), VALUES)


def test_columns_that_nobody_models_come_back_at_the_steps_that_have_rows(fitted, plain):
    kept = np.delete(np.arange(len(VALUES)), MISSING)
    expected = np.full(len(VALUES), np.nan)
    expected[kept] = kept
    frame = GAPS.assign(place=kept).rename_axis("month").reset_index()[["a", "place", "month", "b"]]
    for got in (
        fitted.impute(fe.series(frame, time="month", columns=["a", "b"])),
        fitted.impute(fe.series(pl.DataFrame(frame.to_dict("list")), time="month", columns=["a", "b"])),
    ):
        assert list(got.columns) == ["a", "place", "month", "b"]
        np.testing.assert_array_equal(np.array(got["place"].to_numpy(), float), expected)
        np.testing.assert_array_equal(got[["a", "b"]].to_numpy(), plain.impute(HOLES))


def test_what_comes_back_has_the_index(fitted, plain):
    pd.testing.assert_frame_equal(fitted.impute(FRAME), FRAME, check_freq=False)
    pd.testing.assert_index_equal(fitted.impute(GAPS).index, ENDS, exact="equiv", check_freq=False)
    zone = fitted.impute(GAPS.tz_localize("Europe/Berlin"))
    pd.testing.assert_index_equal(
        zone.index, ENDS.tz_localize("Europe/Berlin"), exact="equiv", check_freq=False
    )
    periods = fitted.impute(GAPS.set_axis(GAPS.index.to_period("M")))
    pd.testing.assert_index_equal(periods.index, ENDS.to_period("M"), check_names=False)
    column = fitted.impute(fe.series(GAPS.reset_index(), time="month"))
    assert list(column.columns) == ["month", "a", "b"]
    assert (column["month"].to_numpy() == ENDS.to_numpy()).all()
    polars = fitted.impute(fe.series(_in_polars(GAPS), time="month"))
    assert polars.schema == {"month": pl.Date, "a": pl.Float64, "b": pl.Float64}
    assert polars["month"].to_list() == ENDS.date.tolist()
    # an index that is no time is kept, and plain frames of Polars are frames
    words = FRAME.set_axis([f"row {i}" for i in range(48)])
    pd.testing.assert_frame_equal(fitted.impute(words), words)
    assert fitted.impute(_in_polars(FRAME).drop("month")).columns == ["a", "b"]
    assert isinstance(plain.impute(VALUES), np.ndarray)


def test_hours_across_a_change_of_clocks():
    index = pd.date_range("2024-03-30 20:00", periods=16, freq="h", tz="Europe/Berlin")
    values = pd.DataFrame({"y": RNG.normal(size=16)}, index=index)
    gaps = values.drop(index[[6, 7]])
    with pytest.warns(
        UserWarning, match=r"2 of 16 steps of an hour are missing, the first 2024-03-31 01:00"
    ):
        fitted = fe.AutoRegression(1).fit(gaps)
    pd.testing.assert_index_equal(fitted.impute(gaps).index, index, exact="equiv", check_freq=False)


def test_states_and_parts_of_a_frame_are_frames():
    one = FRAME["a"]
    chain = fe.HMM(2, random_state=0, max_iter=5, tol=1.0).fit(one)
    again = fe.HMM(2, random_state=0, max_iter=5, tol=1.0)
    array = one.to_numpy()[:, None]
    again.fit(array)
    for told, plainly in ((chain.predict, again.predict), (chain.decode, again.decode)):
        np.testing.assert_array_equal(told(one), plainly(array))
    for told in (chain.predict, chain.decode):
        assert told(one).name == "state"
        assert told(one).index.equals(ENDS)
    shares = chain.predict_proba(one)
    assert list(shares.columns) == ["state 0", "state 1"]
    np.testing.assert_array_equal(shares, again.smooth(array))
    pd.testing.assert_series_equal(chain.impute(one), one, check_freq=False)
    system = fe.LinearGaussianSSM(1, random_state=0, max_iter=3, tol=1.0).fit(one)
    states = system.smooth(one)
    assert states.mean.columns.tolist() == ["state 0"]
    assert states.mean.index.equals(ENDS)
    assert states.covariance.shape == (48, 1, 1)
    assert system.states(one)["mean"].shape == (48, 1)
    parts = fe.StructuralTimeSeries(Level(), tol=0.5).fit(one).decompose(one)
    assert parts["Level"].mean.index.equals(ENDS)
    assert parts["Level"].std.index.equals(ENDS)


def _long_polars(long):
    columns = long.reset_index()
    return pl.DataFrame({name: columns[name].to_list() for name in columns})


@pytest.mark.parametrize("library", ["index", "columns", "polars"])
def test_a_panel_is_a_list_of_arrays(library):
    long = pd.concat({"z": FRAME, "a": GAPS[10:]}, names=["store", "month"])
    first = ENDS.get_loc(GAPS.index[10])
    arrays = [VALUES, HOLES[first:]]
    got = {
        "index": lambda: long,
        "columns": lambda: fe.series(long.reset_index(), time="month", series="store"),
        "polars": lambda: fe.series(_long_polars(long), time="month", series="store"),
    }[library]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fe.AutoRegression(1).fit(got)
    plain = fe.AutoRegression(1).fit(arrays)
    np.testing.assert_array_equal(fitted.score_samples(got), plain.score_samples(arrays))
    filled = fitted.impute(got)
    np.testing.assert_array_equal(filled[["a", "b"]].to_numpy(), np.concatenate(plain.impute(arrays)))
    index = [("z", t) for t in ENDS] + [("a", t) for t in ENDS[first:]]
    if library == "index":
        assert filled.index.names == ["store", "month"]
        assert filled.index.tolist() == index
    else:
        assert list(filled.columns) == ["store", "month", "a", "b"]
        assert list(zip(filled["store"], pd.DatetimeIndex(filled["month"]))) == index


def test_rows_of_a_panel_come_back_in_the_order_of_the_user(fitted):
    mixed = pd.concat({"z": FRAME, "a": -FRAME}, names=["store", "month"]).swaplevel().sort_index(level=0)
    mixed = mixed.swaplevel()
    filled = fitted.impute(mixed)
    assert filled.index.equals(mixed.index)
    np.testing.assert_array_equal(filled, mixed)


def test_a_frame_of_one_row_has_the_frequency_of_the_fit(fitted, plain, tmp_path):
    fitted.save(tmp_path / "model")
    again = fe.load(tmp_path / "model")
    assert again.frequency_ == fitted.frequency_ == Months(1, 31)
    assert again.score(FRAME[-1:]) == plain.score(VALUES[-1:])
    starts = FRAME.set_axis(pd.date_range("2019-11-01", periods=48, freq="MS"))
    assert again.score(starts) == plain.score(VALUES)


# inputs


def test_inputs_are_found_by_their_time():
    u = RNG.normal(size=60)
    dates = pd.date_range("2024-01-31", periods=60)
    y = np.r_[0.0, np.cumsum(RNG.normal(size=59) + u[1:])]
    declared = pd.DataFrame({"y": y, "u": u}, index=dates)
    data = fe.series(declared, inputs="u")
    assert isinstance(data, fe.SeriesFrame)
    assert fe.shell.SeriesFrame is fe.SeriesFrame
    assert "inputs u" in repr(data)
    options = {"max_iter": 20, "tol": 1e-2}
    plain = fe.AutoRegression(1, **options).fit(y[:, None], inputs=u[:, None])
    fitted = fe.AutoRegression(1, **options).fit(data)
    np.testing.assert_array_equal(fitted.input_coefficients_, plain.input_coefficients_)
    assert fitted.score(data) == plain.score(y[:, None], inputs=u[:, None])
    # what is filled in has the inputs, and what nobody named, where they were
    holes = declared.assign(y=np.where(np.arange(60) == 7, np.nan, y), place=np.arange(60))
    holes = holes[["place", "y", "u"]]
    filled = fitted.impute(fe.series(holes, columns="y", inputs="u"))
    expected = plain.impute(holes[["y"]].to_numpy(), inputs=u[:, None])
    pd.testing.assert_frame_equal(filled, holes.assign(y=expected[:, 0]), check_freq=False)
    drawn = fitted.sample(1, given=fe.series(holes, columns="y", inputs="u"), random_state=0)
    pd.testing.assert_frame_equal(drawn[["place", "u"]], holes[["place", "u"]], check_freq=False)
    # an HMM has those that a frame declares, if something depends on them
    driven = {"family": fe.models.RegressionEmissions(), "max_iter": 20, "tol": 1e-2, "random_state": 0}
    hidden = fe.HMM(2, **driven).fit(data)
    bare = fe.HMM(2, **driven).fit(y[:, None], inputs=u[:, None])
    np.testing.assert_array_equal(hidden.coefficients_, bare.coefficients_)
    # its summary lists them by column and input
    found = hidden.summary()
    told = dict(zip(found.names, found.values, strict=True))
    listed = [told["emissions.weights[0, y, u]"], told["emissions.weights[1, y, u]"]]
    np.testing.assert_allclose(listed, hidden.coefficients_[:, 0, 0], rtol=1e-9)
    listed = [told["emissions.intercept[0, y]"], told["emissions.intercept[1, y]"]]
    np.testing.assert_allclose(listed, hidden.intercept_[:, 0], rtol=1e-9)
    # what a report shows of its states knows the inputs
    states = bare.states(y[:, None], inputs=u[:, None])["probabilities"]
    np.testing.assert_array_equal(states, np.asarray(hidden.predict_proba(data)))
    with pytest.raises(ValueError, match=r"An HMM has inputs if and only if something .* Got inputs"):
        fe.HMM(2).fit(data)
    with pytest.raises(ValueError, match=r"Got \[\] and 1 inputs. Add Regressors\(1\) to them"):
        fe.StructuralTimeSeries().fit(data)
    # more rows than needed, in a frame of their own
    part = declared[["y"]][10:50]
    expected = plain.score(y[10:50, None], inputs=u[10:50, None])
    assert fitted.score(part, inputs=declared[["u"]]) == expected
    panel = pd.concat({"p": part, "q": part}, names=["name", "day"])
    np.testing.assert_allclose(
        fitted.score_samples(panel, inputs=declared[["u"]]),
        [plain.score_samples(y[10:50, None], inputs=u[10:50, None])[0]] * 2,
    )
    with pytest.raises(
        ValueError,
        match=r"'inputs' of AutoRegression must have a row for every time step. Got none for 2024-02-1",
    ):
        fitted.score(part, inputs=declared[["u"]].drop(dates[12]))
    with pytest.raises(ValueError, match=r"declared with X or passed beside it, not both"):
        fitted.score(data, inputs=u[:, None])


# what is refused


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: FRAME.iloc[[0, 2, 1]],
            r"Got 2019-12-31 in row Timestamp\('2019-12-31 00:00:00'\), after 2020-01-31. Sort",
        ),
        (
            lambda: FRAME.iloc[[0, 1, 1]],
            r"Got 2019-12-31 twice, in row .* and row .* which column tells series apart",
        ),
        (
            lambda: FRAME.set_axis(pd.DatetimeIndex(RNG.integers(0, 10**9, 48)).sort_values()),
            "must be regular steps",
        ),
        (
            lambda: fe.series(_in_polars(FRAME)[[0, 0]], time="month"),
            "Got 2019-11-30 twice, in row 0 and row 1",
        ),
        (
            # a row that is there again at the end, and a second series of which nobody says that it is one
            lambda: fe.series(_in_polars(FRAME)[[*range(9), 3]], time="month"),
            "Got 2020-02-29 twice, in row 3 and row 9. Keep one of them, or say which column tells series",
        ),
        (
            lambda: fe.series(FRAME.reset_index(drop=True), time="a"),
            "must increase within each series|must be regular",
        ),
        (lambda: FRAME.set_axis([pd.NaT, *ENDS[1:]]), "The times of X must be known. Got none in row NaT"),
        (lambda: FRAME[:0], "without rows|minimum of 1 is required"),
    ],
)
def test_times_that_cannot_be_are_refused_with_their_row(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.AutoRegression(1).fit(wrong())


DATED = FRAME.reset_index()


@pytest.mark.parametrize(
    "frame",
    [
        DATED,
        _in_polars(FRAME),
        _in_polars(FRAME).with_columns(pl.col("month").cast(pl.Date)),
        DATED.assign(month=DATED["month"].dt.date),
        DATED.assign(month=DATED["month"].dt.to_period("M")),
        fe.series(_in_polars(FRAME), columns=["month", "a"]),
    ],
    ids=["pandas", "polars", "days of polars", "days of python", "periods", "declared"],
)
def test_a_column_of_dates_is_the_time_or_refused(frame, fitted):
    told = (
        r"not dates, which column 'month' has. Say that it is the time, as in fe.series\(X, time='month'\)"
    )
    with pytest.raises(ValueError, match=f"X must hold numbers, {told}"):
        fe.AutoRegression(1).fit(frame)
    beside = frame if not isinstance(frame, fe.shell.SeriesFrame) else fe.series(frame.table.frame)
    with pytest.raises(ValueError, match=f"The 'inputs' of AutoRegression must hold numbers, {told}"):
        fe.AutoRegression(1).fit(FRAME[["a"]].reset_index(drop=True), inputs=beside)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_of_durations_is_refused(library):
    """NumPy would take the microseconds of Polars for numbers."""
    frame = DATED.assign(wait=DATED["month"] - DATED["month"].iloc[0])[["month", "a", "wait"]]
    frame = frame if library == "pandas" else _in_polars(frame)
    told = r"must hold numbers, not durations, which column 'wait' has. Make numbers of it, such as"
    with pytest.raises(ValueError, match=f"X {told}"):
        fe.AutoRegression(1).fit(fe.series(frame, time="month"))
    with pytest.raises(ValueError, match=f"The 'inputs' of AutoRegression {told}"):
        fe.AutoRegression(1).fit(fe.series(frame, time="month", inputs=["wait"]))
    with pytest.raises(ValueError, match=r"not dates or durations, which column 'wait' has"):
        fe.GaussianDensity().fit(frame[["a"]]).score_samples(frame[["wait"]])


def test_dates_among_objects_are_refused():
    with pytest.raises(ValueError, match=r"not dates. Pass the time since some day instead"):
        fe.AutoRegression(1).fit(DATED.to_numpy(object))
    plain = fe.GaussianDensity().fit(pl.DataFrame({"a": VALUES[:, 0]}))
    with pytest.raises(
        ValueError, match=r"not dates, which column 'a' has. Leave it out, or pass the time"
    ):
        plain.score_samples(pl.DataFrame({"a": DATED["month"].to_numpy()}))


def test_a_declaration_names_columns(fitted):
    table = FRAME.reset_index()
    with pytest.raises(
        ValueError, match=r"The 'time' of series must name columns of the frame. Got 'day' instead"
    ):
        fe.series(table, time="day")
    with pytest.raises(
        ValueError, match=r"The 'series' of series must name columns of the frame. Got 'shop'"
    ):
        fe.series(table, time="month", series="shop")
    with pytest.raises(ValueError, match=r"The 'inputs' of series must name columns of the frame. Got 'c'"):
        fe.series(table, time="month", inputs=["c"])
    with pytest.raises(ValueError, match=r"must name at least one column"):
        fe.series(table, time="month", inputs=["a", "b"])
    with pytest.raises(TypeError, match=r"must be a frame of pandas, Polars or Arrow. Got ndarray"):
        fe.series(VALUES)
    named = table.assign(month="January")
    with pytest.raises(ValueError, match=r"must be dates or numbers. Got 'January' in row 0"):
        fitted.score(fe.series(named, time="month"))
    with pytest.raises(ValueError, match=r"must be dates or numbers. Got 'January' in row 0"):
        fe.series(pl.DataFrame({"month": ["January"], "a": [1.0]}), time="month")
    days = FRAME.set_axis(pd.date_range("2024-01-01", periods=48))
    with pytest.raises(
        ValueError, match=r"must be steps of a month, as those of fit. Got 2024-01-01 in row"
    ):
        fitted.score(days)


def test_a_cell_is_named_by_the_row_of_the_frame():
    counts = pd.DataFrame({"n": [1.0, 2.0, -3.0, 1.0]}, index=ENDS[[0, 1, 3, 4]])
    with (
        pytest.warns(UserWarning, match="1 of 5 steps"),
        pytest.raises(ValueError, match=r"Got -3 in row Timestamp\('2020-02-29 00:00:00'\), column 'n'"),
    ):
        fe.HMM(2, fe.distributions.Poisson).fit(counts)


def test_inputs_have_their_names_in_files_and_are_found_by_them(tmp_path):
    dates = pd.date_range("2024-01-31", periods=60)
    frame = pd.DataFrame(RNG.normal(size=(60, 3)), dates, ["y", "u", "v"])
    frame["y"] += 2 * frame["u"] - frame["v"]
    options = {"max_iter": 20, "tol": 1e-2}
    fitted = fe.AutoRegression(1, **options).fit(fe.series(frame, inputs=["u", "v"]))
    assert fitted.input_names_in_.tolist() == ["u", "v"]
    fitted.save(tmp_path / "model.safetensors")
    again = fe.load(tmp_path / "model.safetensors")
    assert again.input_names_in_.tolist() == ["u", "v"]
    known, y = frame[["u", "v"]], frame[["y"]]
    ahead = pd.DataFrame([[1.0, -1.0, 9.0]], dates[-1:] + pd.Timedelta(days=1), ["u", "v", "w"])
    expected = fitted.forecast(y, 1, inputs=known, future_inputs=ahead[["u", "v"]]).mean
    # in any order, and among others; arrays have no names
    found = again.forecast(y, 1, inputs=known[["v", "u"]], future_inputs=ahead[["w", "v", "u"]]).mean
    pd.testing.assert_frame_equal(found, expected)
    arrays = again.forecast(y, 1, inputs=known.to_numpy(), future_inputs=ahead[["u", "v"]].to_numpy())
    np.testing.assert_array_equal(arrays.mean, expected)
    wrong = r"of AutoRegression must have the column 'v', which was fitted. Got 'u', 'w'"
    with pytest.raises(ValueError, match=wrong):
        again.forecast(y, 1, inputs=known, future_inputs=ahead[["u", "w"]])
    plain = fitted.fit(y.to_numpy(), inputs=known.to_numpy())
    assert "input_names_in_" not in vars(plain)
    renamed, values = known.rename(columns={"u": "a"}), y.to_numpy()
    assert plain.score(values, inputs=renamed) == plain.score(values, inputs=known.to_numpy())


def test_inputs_to_come_belong_to_the_series_of_their_name():
    rng = np.random.default_rng(3)
    rows = pl.DataFrame(
        {"shop": ["a", "b"] * 20, "y": rng.normal(size=40).cumsum(), "u": rng.normal(size=40)}
    )
    data = fe.series(rows, series="shop", columns="y", inputs="u")
    model = fe.AutoRegression(1, max_iter=5, tol=0.1).fit(data)
    known = pl.DataFrame({"shop": ["b", "a"], "u": [5.0, -5.0]})
    found = model.forecast(data, 1, future_inputs=fe.series(known, series="shop"))
    other = model.forecast(data, 1, future_inputs=[[[-5.0]], [[5.0]]])
    np.testing.assert_array_equal(found.mean["y"], other.mean["y"])
    with pytest.raises(
        ValueError, match=r"The 'future_inputs' of AutoRegression must have rows for series 'b'"
    ):
        model.forecast(data, 1, future_inputs=fe.series(known[1:], series="shop"))


def test_models_say_whether_they_take_inputs():
    assert not fe.HMM().takes_inputs
    assert fe.HMM(family=fe.models.RegressionEmissions()).takes_inputs
    assert fe.AutoRegression().takes_inputs
    assert not fe.MarkovChain().takes_inputs
    assert not fe.StructuralTimeSeries(Level()).takes_inputs
    assert fe.StructuralTimeSeries(Level() + Regressors(1)).takes_inputs


# data that come with packages


def test_packaged_series():
    co2 = sm.datasets.co2.load_pandas().data
    data = fe.series(co2)
    assert repr(data).splitlines()[1] == "a step is a week, from 1958-03-29 to 2001-12-29"
    macro = sm.datasets.macrodata.load_pandas().data
    quarters = pd.PeriodIndex.from_fields(
        year=macro["year"].astype(int), quarter=macro["quarter"].astype(int), freq="Q"
    )
    assert str(fe.series(macro.set_axis(quarters)).frequency) == "quarter"
    spots = fe.series(sm.datasets.sunspots.load_pandas().data, time="YEAR")
    assert repr(spots).splitlines()[0] == "1 series of 309 steps, columns SUNACTIVITY"
    # rows without a value are the same as no rows
    seen = co2.dropna()
    laid = fe.series(seen).grid().rows[0]
    np.testing.assert_array_equal(laid >= 0, co2["co2"].notna())
