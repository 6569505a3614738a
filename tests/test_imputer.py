"""Missing values as a step of a pipeline, and Rubin's rules."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from data import ROWS
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from statsmodels.imputation import mice

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.evaluation import Pooled, pool

HOLES = ROWS.copy()
HOLES[:40, 1] = np.nan
HOLES[40:50, 0] = np.nan

# ---------------------------------------------------------------------------------------------
# Rubin's rules
# ---------------------------------------------------------------------------------------------


def test_pooling_by_hand():
    # m = 5; Q̄ = 3, Ū = 2, B = 2.5, T = 2 + 1.2 · 2.5 = 5, λ = 3/5
    pooled = pool([(q, 2.0) for q in (1.0, 2.0, 3.0, 4.0, 5.0)], complete_df=50)
    assert isinstance(pooled, Pooled)
    assert (pooled.estimate, pooled.within, pooled.between) == (3.0, 2.0, 2.5)
    np.testing.assert_allclose([pooled.variance, pooled.stderr], [5.0, np.sqrt(5.0)])
    np.testing.assert_allclose(pooled.share_missing, 0.6)
    # Rubin (1987): r = (1 + 1/m) B / Ū = 1.5, ν = (m − 1) (1 + 1/r)²
    np.testing.assert_allclose(pooled.df_rubin, 4 * (1 + 1 / 1.5) ** 2)
    # Barnard and Rubin (1999)
    observed = 51 / 53 * 50 * 0.4
    adjusted = pooled.df_rubin * observed / (pooled.df_rubin + observed)
    np.testing.assert_allclose([pooled.df_barnard_rubin, pooled.df], adjusted)
    # (r + 2 / (ν + 3)) / (r + 1)
    np.testing.assert_allclose(pooled.fraction_missing, (1.5 + 2 / (adjusted + 3)) / 2.5)
    low, high = pooled.interval(0.9)
    np.testing.assert_allclose([low, high], stats.t(adjusted, 3.0, np.sqrt(5.0)).interval(0.9))
    plain = pool([(q, 2.0) for q in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert plain.df_barnard_rubin is None
    assert plain.df == plain.df_rubin


def test_pooling_at_its_edges():
    # tables that agree: nothing of the variance comes of what is missing
    same = pool([(1.0, 0.25)] * 3)
    assert (same.stderr, same.df, same.share_missing, same.fraction_missing) == (0.5, np.inf, 0.0, 0.0)
    np.testing.assert_allclose(same.interval(), stats.norm(1.0, 0.5).interval(0.95))
    np.testing.assert_allclose(pool([(1.0, 0.25)] * 3, complete_df=10).df, 11 / 13 * 10)
    # a quantity that a table knows exactly: all of it does
    exact = pool([(1.0, 0.0), (2.0, 0.0)])
    assert (exact.share_missing, exact.df, exact.fraction_missing) == (1.0, 1.0, 1.0)
    nothing = pool([(1.0, 0.0)] * 2)
    assert (nothing.stderr, nothing.share_missing) == (0.0, 0.0)
    np.testing.assert_allclose(pool([(1.0, 0.25), (2.0, 0.25)], complete_df=np.inf).df, 1 / 0.75**2 * 1.0)


def test_pooling_several_quantities_with_a_matrix():
    rng = np.random.default_rng(0)
    estimates = rng.normal(size=(4, 2))
    matrices = [np.array([[2.0, 0.5], [0.5, 1.0]]) * scale for scale in (1.0, 2.0, 3.0, 4.0)]
    pooled = pool(list(zip(estimates, matrices)), names=["slope", "height"])
    between = sum(np.outer(q, q) for q in estimates - estimates.mean(axis=0)) / 3
    total = np.array([[5.0, 1.25], [1.25, 2.5]]) + 1.25 * between
    np.testing.assert_allclose(pooled.covariance, total)
    np.testing.assert_allclose(pooled.variance, np.diag(total))
    alone = pool([(q, np.diag(u)) for q, u in zip(estimates, matrices)])
    np.testing.assert_allclose(alone.variance, pooled.variance)
    assert alone.covariance is None
    frame = pooled.to_frame()
    assert frame["quantity"].to_list() == ["slope", "height"]
    np.testing.assert_allclose(frame["upper"], pooled.interval()[1])
    assert "slope" in repr(pooled)
    assert '<td class="text">slope</td>' in pooled._repr_html_()


def test_pooling_agrees_with_statsmodels():
    """Its chained equations make the tables; its own combination of the fits is the oracle."""
    np.random.seed(0)
    frame = pd.DataFrame(HOLES, columns=["x", "y"])
    chained = mice.MICE("y ~ x", sm.OLS, mice.MICEData(frame))
    found = chained.fit(3, 6)
    pooled = pool(chained.results_list)
    np.testing.assert_allclose(pooled.estimate, found.params)
    np.testing.assert_allclose(pooled.covariance, found.cov_params())
    np.testing.assert_allclose(pooled.stderr, found.bse)
    # its fraction of missing information is the share of the variance
    np.testing.assert_allclose(pooled.share_missing, found.frac_miss_info)
    assert pooled.complete_df == 118.0


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ([(1.0, 1.0)], {}, r"'number of tables' of pool must be an int in the range \[2, inf\)\. Got 1"),
        ([(1.0, 1.0), 3.0], {}, "must be an estimate and its variance, or a fitted result"),
        ([(1.0, [1.0, 2.0])] * 2, {}, r"Got the shapes \(\) and \(2,\) instead"),
        ([(1.0, -1.0)] * 2, {}, "variances that are not negative"),
        ([(np.nan, 1.0)] * 2, {}, "finite estimates"),
        ([(1.0, 1.0), ([1.0], [1.0])], {}, "must have one shape"),
        ([(1.0, 1.0)] * 2, {"complete_df": 0}, "'complete_df' of pool must be greater than zero"),
        ([(1.0, 1.0)] * 2, {"names": ["a", "b"]}, "'names' of pool must be one for each quantity"),
    ],
)
def test_what_cannot_be_pooled_is_refused(results, options, message):
    with pytest.raises(ValueError, match=message):
        pool(results, **options)


# ---------------------------------------------------------------------------------------------
# the imputer
# ---------------------------------------------------------------------------------------------


def test_means_are_those_of_the_density():
    density = fe.GaussianDensity()
    filled = fe.Imputer(density).fit(HOLES).transform(HOLES)
    np.testing.assert_allclose(filled, density.fit(HOLES).impute(HOLES), rtol=1e-12)
    # it was cloned
    assert fe.Imputer(density).fit(HOLES).density_ is not density
    # new rows, of which some are complete
    np.testing.assert_array_equal(fe.Imputer().fit(HOLES).transform(ROWS), ROWS)


def test_of_several_densities_the_one_that_fills_in_best_is_taken(tmp_path):
    """Columns that depend on each other: independent ones can do no better than means."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(100, 1)) @ np.ones((1, 2)) + 0.5 * rng.normal(size=(100, 2))
    rows[:10, 1] = np.nan
    apart, joint = fe.GaussianDensity(d.Diagonal()), fe.GaussianDensity()
    imputer = fe.Imputer([apart, joint], random_state=0).fit(rows)
    np.testing.assert_allclose(imputer.hidden_errors_[0], 1, rtol=1e-12)
    # what regression leaves: the root of 1 − ρ², with ρ = 1 / 1.25, within the error of some forty entries
    np.testing.assert_allclose(imputer.hidden_errors_[1], 0.6, atol=0.2)
    # the best is fitted to all rows
    expected = joint.fit(rows).impute(rows)
    np.testing.assert_allclose(imputer.transform(rows), expected, rtol=1e-12)
    again = fe.Imputer([joint, apart], random_state=0).fit(rows)
    np.testing.assert_allclose(again.hidden_errors_, imputer.hidden_errors_[::-1], rtol=1e-12)
    imputer.save(tmp_path / "imputer.safetensors")
    loaded = fe.load(tmp_path / "imputer.safetensors")
    np.testing.assert_array_equal(loaded.transform(rows), imputer.transform(rows))
    assert len(loaded.density) == 2
    # a single one is not put to the test
    assert not hasattr(fe.Imputer([joint]).fit(rows), "hidden_errors_")


def test_wrong_labels_are_counted_over_those_of_the_most_frequent(people):
    """Two labels that a height tells apart, and one density that knows of one group alone."""
    several = [fe.Mixture(k, family="by column") for k in (1, 2)]
    table = people.select("kind", "height")
    imputer = fe.Imputer(several, random_state=0).fit(table)
    np.testing.assert_allclose(imputer.hidden_errors_[0], 1, atol=0.02)
    assert imputer.hidden_errors_[1] < 0.4
    assert imputer.density_.n_components == 2


def test_draws_are_those_of_the_conditional_law():
    """Without a bootstrap, 400 tables: the moments of the drawn entries are those of regression."""
    imputer = fe.Imputer(draws=400, proper=False, random_state=0).fit(HOLES)
    tables = np.stack(imputer.imputations(HOLES))
    known = ~np.isnan(HOLES)
    np.testing.assert_array_equal(tables[:, known], np.broadcast_to(HOLES[known], (400, known.sum())))
    mean, cov = imputer.density_.mean_, imputer.density_.covariance_
    expected = mean[1] + cov[1, 0] / cov[0, 0] * (HOLES[:40, 0] - mean[0])
    spread = np.sqrt(cov[1, 1] - cov[1, 0] ** 2 / cov[0, 0])
    drawn = tables[:, :40, 1]
    z = (drawn.mean(axis=0) - expected) / (spread / 20)
    assert (np.abs(z) < 4.5).all()
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.2)


def test_draws_repeat_and_differ_and_transform_gives_the_first(tmp_path):
    imputer = fe.Imputer(draws=3, random_state=0).fit(HOLES)
    first, second, third = imputer.imputations(HOLES)
    assert (first != second)[np.isnan(HOLES)].all()
    assert (third != second)[np.isnan(HOLES)].all()
    np.testing.assert_array_equal(imputer.transform(HOLES), first)
    np.testing.assert_array_equal(clone(imputer).fit(HOLES).imputations(HOLES)[1], second)
    other = clone(imputer).set_params(random_state=1).fit(HOLES).imputations(HOLES)[0]
    assert (other != first)[np.isnan(HOLES)].all()
    imputer.save(tmp_path / "imputer.safetensors")
    np.testing.assert_array_equal(fe.load(tmp_path / "imputer.safetensors").imputations(HOLES)[2], third)


def test_proper_draws_have_densities_of_their_own():
    """The Bayesian bootstrap of a mean has its standard error: here of the mean of one column."""
    rows = ROWS[:, :1]
    imputer = fe.Imputer(draws=300, random_state=0).fit(rows)
    means = np.array([density.mean_[0] for density in imputer.densities_])
    error = rows.std() / np.sqrt(len(rows) + 1)
    assert abs(means.mean() - rows.mean()) < 4 * error / np.sqrt(300)
    np.testing.assert_allclose(means.std(), error, rtol=4 / np.sqrt(600))
    same = fe.Imputer(draws=2, proper=False, random_state=0).fit(rows)
    assert same.densities_ == [same.density_] * 2
    # weights are repetitions: rows of weight four are known twice as well
    heavy = fe.Imputer(draws=300, random_state=0).fit(rows, sample_weight=np.full(len(rows), 4.0))
    means = np.array([density.mean_[0] for density in heavy.densities_])
    np.testing.assert_allclose(means.std(), error / 2, rtol=4 / np.sqrt(600))


def test_pooled_statistics():
    imputer = fe.Imputer(draws=5, random_state=0).fit(HOLES)
    n = len(HOLES)

    def mean(table):
        return table[:, 1].mean(), table[:, 1].var(ddof=1) / n

    pooled = imputer.pooled(HOLES, mean, complete_df=n - 1)
    by_hand = pool([mean(table) for table in imputer.imputations(HOLES)], complete_df=n - 1)
    assert pooled.estimate == by_hand.estimate
    assert pooled.df == by_hand.df < n - 1
    fits = imputer.pooled(HOLES, lambda t: sm.OLS(t[:, 1], sm.add_constant(t[:, :1])).fit())
    assert fits.complete_df == n - 2
    assert fits.estimate.shape == (2,)
    with pytest.raises(ValueError, match=r"Imputer\.imputations needs 'draws'"):
        fe.Imputer().fit(HOLES).pooled(HOLES, mean)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    tall = rng.random(120) < 0.5
    heights = rng.normal(20.0 * tall, 1.0)
    day = datetime.date(2024, 1, 1)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(120)],
            "kind": [None if i % 7 == 0 else "ab"[int(t)] for i, t in enumerate(tall)],
            "visits": [None if i % 5 == 0 else int(v) for i, v in enumerate(rng.poisson(2 + 6 * tall))],
            "height": [None if i % 6 == 0 else float(v) for i, v in enumerate(heights)],
            "born": [
                None if i % 9 == 0 else day + datetime.timedelta(days=int(v))
                for i, v in enumerate(rng.integers(0, 300, 120))
            ],
        }
    )


@pytest.fixture(scope="module")
def mixed(people):
    density = fe.Mixture(2, family="by column")
    with pytest.warns(UserWarning, match="'id' looks like an identifier"):
        return fe.Imputer(density, draws=2, random_state=0).fit(people)


def test_frames_of_several_kinds_come_back_as_they_are(people, mixed):
    for table in (mixed.transform(people), *mixed.imputations(people)):
        assert table.columns == people.columns
        assert table.dtypes == people.dtypes
        assert not any(table.null_count().row(0))
        assert table["id"].equals(people["id"])
        assert set(table["kind"]) == {"a", "b"}
        for name in people.columns:
            seen = people[name].is_not_null()
            assert table[name].filter(seen).equals(people[name].filter(seen))
    # in any order of the columns, and back in that of the fit
    turned = mixed.transform(people.select(people.columns[::-1]))
    assert turned.equals(mixed.transform(people))
    assert mixed.get_feature_names_out().tolist() == people.columns
    modes = fe.Imputer(mixed.density_, random_state=0)
    with pytest.warns(UserWarning, match="identifier"):
        filled = modes.fit_transform(people)
    assert filled["visits"].dtype == pl.Int64
    # the two clusters are far apart
    clear = people["height"].is_not_null() & people["kind"].is_null()
    tall = people["height"].filter(clear) > 10
    assert filled["kind"].filter(clear).to_list() == ["ab"[int(t)] for t in tall]


def test_observed_numbers_keep_all_their_digits():
    frame = pl.DataFrame({"a": [1.0, 5.2, None, 1.3, 4.9, 5.3] * 10, "b": ["x", "y", "y"] * 20})
    filled = fe.Imputer(fe.Mixture(2, family="by column", random_state=0)).fit_transform(frame)
    seen = frame["a"].is_not_null()
    assert filled["a"].filter(seen).to_list() == frame["a"].filter(seen).to_list()
    np.testing.assert_allclose(filled["a"] * 10, np.rint(filled["a"] * 10), atol=1e-9)


def test_set_output_chooses_the_library(people, mixed):
    copied = clone(mixed).set_output(transform="pandas")
    with pytest.warns(UserWarning, match="identifier"):
        table = copied.fit_transform(people)
    assert isinstance(table, pd.DataFrame)
    assert table.columns.tolist() == people.columns
    assert table["visits"].dtype == "int64"
    assert table["height"].dtype == "float64"
    assert table["born"].dtype.kind == "M"
    plain = mixed.transform(people)
    assert table["kind"].tolist() == plain["kind"].to_list()
    np.testing.assert_array_equal(table["height"], plain["height"].to_numpy())
    frame = pd.DataFrame(HOLES, columns=["a", "b"], index=[f"r{i}" for i in range(len(HOLES))])
    out = fe.Imputer().set_output(transform="polars").fit(frame).transform(frame)
    assert isinstance(out, pl.DataFrame)
    assert out.columns == ["a", "b"]
    kept = fe.Imputer().fit(frame).transform(frame)
    assert kept.index.equals(frame.index)
    np.testing.assert_array_equal(out.to_numpy(), kept.to_numpy())
    assert isinstance(fe.Imputer().set_output(transform="pandas").fit_transform(HOLES), pd.DataFrame)


def test_in_a_pipeline_and_a_search():
    y = ROWS @ np.array([1.0, -2.0])
    line = make_pipeline(fe.Imputer(fe.PPCA(1, max_iter=50, tol=1e-3)), LinearRegression())
    search = GridSearchCV(line, {"imputer__density__tol": [1e-2, 1e-3], "imputer__draws": [None, 1]}, cv=2)
    search.fit(HOLES, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    names = line.fit(HOLES, y)[:-1].get_feature_names_out()
    assert names.tolist() == ["x0", "x1"]


def test_planes_fill_in_but_do_not_draw():
    frame = pl.DataFrame(HOLES, schema=["a", "b"])
    filled = fe.Imputer(fe.PCA(1)).fit_transform(frame)
    alone = fe.PCA(1).fit(frame).impute(frame)
    assert alone.columns == filled.columns == ["a", "b"]
    np.testing.assert_allclose(filled.to_numpy(), alone.to_numpy(), rtol=1e-12)
    with pytest.raises(ValueError, match="must be None for PCA, which does not sample"):
        fe.Imputer(fe.PCA(1), draws=2).fit(HOLES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": "gaussian"}, "must be a density of rows that imputes, a list of such or None"),
        ({"density": fe.KMeans(2)}, r"a list of such or None\. Got KMeans\(n_clusters=2\) instead"),
        ({"density": fe.HMM(2)}, "must be a density of rows that imputes, a list of such or None"),
        ({"density": [fe.GaussianDensity(), fe.KMeans(2)]}, "must be a density of rows that imputes"),
        ({"density": []}, r"a list of such or None\. Got \[\] instead"),
        ({"draws": 0}, r"must be an int in the range \[1, inf\) or None"),
        ({"proper": 1}, "must be an instance of bool"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fe.Imputer(**options).fit(HOLES)


def test_the_summary_is_that_of_the_density():
    imputer = fe.Imputer().fit(HOLES)
    assert "GaussianDensity" in repr(imputer.summary(HOLES))
    assert imputer.summary().n_parameters == 5
    named = fe.Imputer().fit(pd.DataFrame(HOLES, columns=["height", "weight"]))
    assert named.summary().names[:2] == ["mean[height]", "mean[weight]"]
    assert imputer.latent(HOLES) is None


@pytest.mark.slow
def test_intervals_of_a_mean_cover_it():
    """A mean with two fifths missing at random, given the other column: 95 % intervals cover 95 %.

    Without a density of its own for each draw they cover less.
    """
    rng, n, repeats, cover = np.random.default_rng(0), 60, 300, {True: [], False: []}
    for _ in range(repeats):
        x = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
        x[rng.random(n) < stats.norm.cdf(x[:, 0] - 0.3), 1] = np.nan
        for proper, found in cover.items():
            imputer = fe.Imputer(draws=10, proper=proper, random_state=int(rng.integers(2**31))).fit(x)
            mean = imputer.pooled(x, lambda t: (t[:, 1].mean(), t[:, 1].var(ddof=1) / n), complete_df=n - 1)
            low, high = mean.interval()
            found.append(low < 0 < high)
    share = {proper: np.mean(found) for proper, found in cover.items()}
    error = np.sqrt(0.95 * 0.05 / repeats)
    assert share[True] > 0.95 - 3 * error
    assert share[False] < share[True]
