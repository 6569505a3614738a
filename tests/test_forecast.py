"""Forecasts: one record for all series models, exact where it can be, in the words of the user's frame."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from scipy import optimize, stats
from sklearn import metrics

import freeenergy as fe
from freeenergy.distributions import Exponential, Poisson
from freeenergy.models import Level, Regressors, Trend
from freeenergy.shell import Drawn, ForecastsSeries, MassTables, NormalMixtures

RNG = np.random.default_rng(0)
ENDS = pd.date_range("2019-11-30", periods=60, freq="ME", name="month")
FRAME = pd.DataFrame({"a": np.cumsum(np.random.default_rng(1).normal(size=60))}, index=ENDS)
COUNTS = np.random.default_rng(2).poisson(np.repeat([2.0, 9.0, 2.0], 20))[:, None].astype(float)


def test_quantiles_of_mixtures_are_those_of_scipy():
    weights = RNG.dirichlet(np.ones(3), 4)
    means, variances = 5 * RNG.normal(size=(4, 3, 2)), RNG.gamma(2.0, size=(4, 3, 2))
    law = NormalMixtures(weights, means, variances)
    for p in (0.05, 0.5, 0.99):
        found = law.quantile(p)
        for t, d in np.ndindex(4, 2):

            def gap(x, t=t, d=d, p=p):
                return weights[t] @ stats.norm(means[t, :, d], np.sqrt(variances[t, :, d])).cdf(x) - p

            assert found[t, d] == pytest.approx(optimize.brentq(gap, -40, 40), abs=1e-9)
    counts = stats.poisson([[3.0], [30.0]])
    table = MassTables(counts.pmf(np.arange(200)[None]).reshape(2, 1, 200))
    np.testing.assert_array_equal(table.quantile(0.05), counts.ppf(0.05))
    np.testing.assert_array_equal(table.quantile(0.95), counts.ppf(0.95))
    np.testing.assert_allclose(table.mean(), [[3.0], [30.0]])
    draws = RNG.normal(size=(2000, 1, 1))
    assert Drawn(draws, draws.mean(axis=0)).quantile(0.5) == pytest.approx(np.median(draws), abs=0.01)


@pytest.fixture(scope="module")
def level():
    return fe.StructuralTimeSeries(Level(), tol=1e-4).fit(FRAME)


def test_a_dated_forecast_goes_on_in_time(level):
    assert isinstance(level, ForecastsSeries)
    ahead = level.forecast(FRAME, 13)
    expected = pd.date_range("2024-11-30", periods=13, freq="ME", name="month")
    for part in ahead:
        assert part.columns.tolist() == ["a"]
        pd.testing.assert_index_equal(part.index, expected, check_freq=False, exact="equiv")
    pd.testing.assert_index_equal(ahead.index, expected, check_freq=False, exact="equiv")
    assert (ahead.level, ahead.names, ahead.draws, ahead.probabilities) == (0.9, ["a"], None, None)
    mean, low, high = ahead
    table = ahead.to_frame()
    np.testing.assert_array_equal(table, np.column_stack([mean, low, high]))
    assert table.index.equals(expected)
    assert repr(ahead).splitlines()[0].split() == ["month", "mean", "90%", "from", "to"]
    assert repr(ahead).splitlines()[1].split()[0] == "2024-11-30"
    assert repr(ahead).splitlines()[-1] == "… 13 rows in all"
    # the same numbers for one column of pandas, periods and columns of Polars
    one = level.forecast(FRAME["a"], 3)
    np.testing.assert_array_equal(one.mean, mean["a"][:3])
    periods = level.forecast(FRAME.set_axis(ENDS.to_period("M")), 3)
    assert periods.index.equals(pd.period_range("2024-11", periods=3, freq="M"))
    polars = pl.DataFrame({"month": ENDS.date.tolist(), "a": FRAME["a"].to_numpy()})
    own = level.forecast(fe.series(polars, time="month"), 3)
    assert own.mean["month"].to_list() == expected[:3].date.tolist()
    assert own.to_frame().columns == ["month", "mean", "low", "high"]
    np.testing.assert_array_equal(own.to_frame()["high"], high["a"][:3])


def test_forecasts_of_a_panel_and_of_arrays(level):
    panel = pd.concat({"x": FRAME, "y": -FRAME[:50]}, names=["store", "month"])
    ahead = level.forecast(panel, 2)
    assert ahead.mean.index.tolist() == [
        (s, t)
        for s, end in (("x", "2024-11-30"), ("y", "2024-01-31"))
        for t in pd.date_range(end, periods=2, freq="ME")
    ]
    np.testing.assert_array_equal(ahead.mean.loc["x"], level.forecast(FRAME, 2).mean)
    assert ahead.to_frame()["series"].tolist() == ["x", "x", "y", "y"]
    plain = fe.StructuralTimeSeries(Level(), tol=0.5).fit(FRAME.to_numpy())
    ahead = plain.forecast([FRAME.to_numpy(), FRAME.to_numpy()[:50]], 2, draws=3, random_state=0)
    assert isinstance(ahead.mean, list)
    assert ahead.index is None
    assert [part.shape for part in ahead.draws] == [(3, 2, 1)] * 2
    assert ahead.to_frame().index.tolist() == [1, 2, 1, 2]
    again = plain.forecast([FRAME.to_numpy(), FRAME.to_numpy()[:50]], 2, draws=3, random_state=0)
    np.testing.assert_array_equal(again.draws, ahead.draws)


@pytest.mark.parametrize("blocks", [Level(0.5), Trend(0.3, 0.1)], ids=["level", "trend"])
def test_intervals_are_those_of_statsmodels(blocks):
    y = sm.datasets.macrodata.load_pandas().data["unemp"].to_numpy()
    fitted = fe.StructuralTimeSeries(blocks, tol=1e-4).fit(y[:, None])
    scale = float(fitted.scaling_.scale[0]) ** 2
    structure = fitted.model_.models
    block = structure.blocks[0]
    if isinstance(block, Level):
        peer, parts = sm.tsa.UnobservedComponents(y, "local level"), [block.variance]
    else:
        peer = sm.tsa.UnobservedComponents(y, "local linear trend")
        parts = [block.level_variance, block.slope_variance]
    variances = [float(np.ravel(v)[0]) * scale for v in (structure.variance, *parts)]
    theirs = peer.smooth(variances).get_forecast(8).summary_frame(alpha=0.2)
    ahead = fitted.forecast(y[:, None], 8, level=0.8)
    np.testing.assert_allclose(ahead.mean[:, 0], theirs["mean"], rtol=1e-4)
    np.testing.assert_allclose(ahead.low[:, 0], theirs["mean_ci_lower"], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(ahead.high[:, 0], theirs["mean_ci_upper"], rtol=2e-3, atol=2e-3)


def test_counts_have_whole_intervals_of_the_exact_mixture():
    chain = fe.HMM(2, Poisson, random_state=0, tol=1e-3).fit(COUNTS)
    ahead = chain.forecast(COUNTS, 3, level=0.8)
    belief = chain.filter(COUNTS)[-1]
    values = np.arange(400)
    for step in range(3):
        belief = belief @ chain.transition_
        mass = belief @ stats.poisson(chain.means_).pmf(values[None])
        assert ahead.mean[step, 0] == pytest.approx(mass @ values)
        cdf = np.cumsum(mass)
        assert ahead.low[step, 0] == np.argmax(cdf >= 0.1)
        assert ahead.high[step, 0] == np.argmax(cdf >= 0.9)


def test_other_families_have_intervals_from_draws_that_are_always_the_same():
    chain = fe.HMM(2, Exponential, random_state=0, max_iter=30, tol=1e-2).fit(COUNTS + 0.5)
    ahead, again = (chain.forecast(COUNTS + 0.5, 1, level=0.8) for _ in range(2))
    np.testing.assert_array_equal(ahead.low, again.low)
    drawn = chain.forecast(COUNTS + 0.5, 1, draws=1000, random_state=1).draws
    inside = (drawn >= ahead.low) & (drawn <= ahead.high)
    assert abs(inside.mean() - 0.8) < 5 * np.sqrt(0.16 / 1000) + 5 * np.sqrt(0.16 / 2000)


def test_inputs_of_the_future_are_found_by_their_date():
    u = pd.DataFrame({"u": RNG.normal(size=70)}, index=pd.date_range("2024-02-01", periods=70))
    y = (2 * u["u"] + 0.1 * RNG.normal(size=70)).rename("y")[:60]
    fitted = fe.StructuralTimeSeries(Level() + Regressors(1), tol=0.1).fit(y, inputs=u)
    ahead = fitted.forecast(y, 3, inputs=u, future_inputs=u)
    future = u[60:63].to_numpy()
    plain = fitted.forecast(y, 3, inputs=u[:60].to_numpy(), future_inputs=future)
    pd.testing.assert_series_equal(ahead.mean, plain.mean)
    assert np.abs(ahead.mean.to_numpy() - 2 * future[:, 0]).max() < 0.5
    with pytest.raises(
        ValueError, match=r"'future_inputs' of StructuralTimeSeries must have a row .* 2024-04-03"
    ):
        fitted.forecast(y, 3, inputs=u, future_inputs=u[:62])


def test_a_forecast_shows_itself_with_dates(level):
    axes = level.forecast(FRAME, 3).plot(FRAME, last=20)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["data", "forecast"]
    form = axes.xaxis.get_major_formatter()
    assert [form(place, None) for place in (0, 59, 60, 62, 63)] == [
        *["2019-11-30", "2024-10-31", "2024-11-30", "2025-01-31", ""]
    ]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), FRAME["a"][-20:])


# how far forecasts are from what came


def test_errors_of_forecasts_are_those_of_scikit_learn():
    truth, found = RNG.normal(size=50), RNG.normal(size=50)
    own = fe.evaluation.rmse(truth, found)
    assert isinstance(own, fe.evaluation.Measure)
    assert own.value == pytest.approx(metrics.root_mean_squared_error(truth, found))
    # the standard error, by drawing the errors again
    again = [fe.evaluation.rmse(truth[k], found[k]).value for k in RNG.integers(0, 50, (2000, 50))]
    assert own.stderr == pytest.approx(np.std(again), rel=0.1)
    past = np.cumsum(RNG.normal(size=30))
    scaled = fe.evaluation.mase(truth, found, past, period=4)
    naive = metrics.mean_absolute_error(past[4:], past[:-4])
    assert scaled.value == pytest.approx(metrics.mean_absolute_error(truth, found) / naive)
    # what is not known is left out
    holes = np.r_[truth, np.nan]
    assert fe.evaluation.rmse(holes, np.r_[found, 0.0]) == own
    assert fe.evaluation.coverage(holes, np.full(51, -1.0), np.full(51, 1.0)).value == np.mean(
        np.abs(truth) <= 1
    )


def test_measures_refuse_what_has_no_answer():
    with pytest.raises(ValueError, match="'past' of mase must be one series that changes"):
        fe.evaluation.mase([1.0], [1.0], past=[2.0, 2.0])
    with pytest.raises(ValueError, match="The 'truth' of rmse must have at least one number"):
        fe.evaluation.rmse([np.nan], [1.0])
    with pytest.raises(ValueError, match="The 'truth' of rmse must be an array of one axis"):
        fe.evaluation.rmse([[1.0]], [1.0])


def test_a_board_has_the_errors_of_forecasts_from_rolling_origins(tmp_path):
    models = {"level": fe.StructuralTimeSeries(Level(), tol=0.1), "iid": fe.GaussianDensity()}
    board = fe.compare(models, FRAME, cv=2, horizon=2, level=0.8, random_state=0)
    lines = board.forecasts()
    assert isinstance(lines[0], fe.comparison.ForecastStanding)
    # a density of rows does not forecast
    assert [(line.model, line.column, line.steps) for line in lines] == [
        ("level", "a", 1),
        ("level", "a", 2),
    ]
    y, errors, inside, scaled = FRAME["a"].to_numpy(), [], [], []
    for result in (r for r in board.results if r.model == "level"):
        fitted = fe.StructuralTimeSeries(Level(), tol=0.1).fit(y[: result.rows[0], None])
        naive = np.abs(np.diff(y[: result.rows[0]])).mean()
        for t in result.rows[:-1]:
            mean, low, high = (part[1, 0] for part in fitted.forecast(y[:t, None], 2, level=0.8))
            errors.append(mean - y[t + 1])
            scaled.append(abs(errors[-1]) / naive)
            inside.append(low <= y[t + 1] <= high)
    assert lines[1].forecasts == len(errors)
    assert lines[1].rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-6)
    assert lines[1].mase == pytest.approx(np.mean(scaled), rel=1e-6)
    assert lines[1].coverage == np.mean(inside)
    assert "in 80%" in str(board)
    assert board.to_json()["forecasts"][1]["steps"] == 2
    board.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Forecasts from held-out steps" in page
    assert f"{lines[1].forecasts}</td>" in page
    # dates below the paths
    assert "2019-11-30" in page
    # the best model knows the dates
    assert board.best_estimator.forecast(FRAME, 1).index[0] == pd.Timestamp("2024-11-30")
    with pytest.raises(ValueError, match="'horizon' parameter of compare must be an int in the range"):
        fe.compare(models, FRAME, horizon=0)
    with pytest.raises(ValueError, match="'level' parameter of compare must be a float in the range"):
        fe.compare(models, FRAME, horizon=1, level=1)
    with pytest.raises(ValueError, match="'horizon' parameter of compare needs models of series"):
        fe.compare(fe.GaussianDensity(), FRAME, horizon=1)


def test_a_notebook_shows_a_table_with_its_note():
    chain = fe.MarkovChain().fit([[0], [1], [1], [0], [1], [1]])
    html = chain.forecast([[0], [1]], 30)._repr_html_()
    assert html.count("<tr>") == 25
    assert "6 more rows are in to_frame()." in html
    assert "is in its interval with probability 90%" in html
