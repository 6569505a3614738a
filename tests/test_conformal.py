"""Conformal prediction: coverage by enumeration and simulation, whatever the model."""

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB

import freeenergy as fe
from freeenergy.estimators.labelled._conformal import conformal_quantile, least_levels
from freeenergy.evaluation import Laws


def test_the_least_level_is_that_of_the_first_interval_that_holds_an_answer():
    laws = Laws(stats.expon(np.array([0.3, 1.0, 4.0, 20.0])))
    y = np.array([0.8, 1.1, 5.5, 26.4])
    levels = np.linspace(1e-3, 1 - 1e-3, 1999)
    ends = [laws.interval(level) for level in levels]
    holds = np.array([(low <= y) & (y <= high) for low, high in ends])
    # on a grid of steps of 0.0005
    np.testing.assert_allclose(least_levels(laws, y), levels[holds.argmax(axis=0)], atol=5.1e-4)


def test_the_quantile_covers_exactly_as_often_as_ranks_say():
    # of n + 1 scores in any order the last is at most the k-th smallest of the others k times of n + 1
    scores = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    for level in (0.2, 0.5, 0.61, 0.8):
        inside = [
            order[-1] <= conformal_quantile(np.array(order[:-1]), np.ones(4), level)
            for order in itertools.permutations(scores)
        ]
        assert np.mean(inside) == pytest.approx(np.ceil(level * 5 - 1e-9) / 5)
        assert np.mean(inside) >= level
    assert conformal_quantile(scores, np.ones(5), 0.9) == np.inf
    # weights are repetitions
    weight = np.array([2, 1, 3, 1, 2])
    for level in (0.3, 0.5, 0.9):
        many = conformal_quantile(np.repeat(scores, weight), np.ones(9), level)
        assert conformal_quantile(scores, weight.astype(float), level) == many


def data(rng, n):
    x = rng.uniform(-2, 2, (n, 1))
    return x, np.exp(x[:, 0]) * rng.exponential(size=n)


@pytest.mark.parametrize(
    "estimator",
    [pytest.param(None, id="ours"), pytest.param(LinearRegression(), id="scikit-learn")],
)
def test_coverage_over_data_sets(estimator):
    # a model that is wrong in mean, spread and shape
    rng, hits, sets = np.random.default_rng(0), [], 100
    for number in range(sets):
        x, y = data(rng, 41)
        model = fe.Conformal(estimator, calibration_fraction=0.5, random_state=number).fit(x[:-1], y[:-1])
        low, high = model.predict_interval(x[-1:], 0.8)
        hits.append(low[0] <= y[-1] <= high[0])
    # 20 rows are set aside: the ⌈21 · 0.8⌉-th of 21 ranks
    exact = 17 / 21
    assert abs(np.mean(hits) - exact) < 4 * np.sqrt(exact * (1 - exact) / sets)


def test_split_intervals_are_those_of_the_textbook():
    x, y = data(np.random.default_rng(1), 80)
    model = fe.Conformal(LinearRegression(), random_state=0).fit(x, y)
    assert len(model.calibration_scores_) == 20
    inner = model.estimator_
    # the scores are absolute residuals of rows that the copy has not seen
    residuals = np.sort(np.abs(y - inner.predict(x)))
    assert np.isin(model.calibration_scores_.round(9), residuals.round(9)).all()
    reach = np.sort(model.calibration_scores_)[int(np.ceil(21 * 0.9)) - 1]
    low, high = model.predict_interval(x, 0.9)
    np.testing.assert_allclose(high - inner.predict(x), reach)
    np.testing.assert_allclose(inner.predict(x) - low, reach)
    assert not np.isfinite(model.predict_interval(x, 0.99)[1]).any()
    # the law stays that of the estimator
    own = fe.Conformal(random_state=0).fit(x, y)
    np.testing.assert_array_equal(
        own.predict_density(x).log_prob(y), own.estimator_.predict_density(x).log_prob(y)
    )
    np.testing.assert_array_equal(own.predict(x), own.estimator_.predict(x))


def test_votes_of_folds_and_the_jackknife_are_those_of_barber():
    x, y = data(np.random.default_rng(2), 25)
    model = fe.Conformal(LinearRegression(), folds=25, random_state=0).fit(x, y)
    new = np.linspace(-2, 2, 5)[:, None]
    ups, downs = [], []
    for i in range(25):
        rest = np.arange(25) != i
        inner = LinearRegression().fit(x[rest], y[rest])
        gap = np.abs(y[i] - inner.predict(x[i : i + 1])[0])
        ups.append(inner.predict(new) + gap)
        downs.append(inner.predict(new) - gap)
    low, high = model.predict_interval(new, 0.8)
    np.testing.assert_allclose(high, np.sort(ups, axis=0)[int(np.ceil(26 * 0.8)) - 1])
    np.testing.assert_allclose(low, np.sort(downs, axis=0)[int(np.floor(26 * 0.2)) - 1])
    # the estimator itself has all rows
    np.testing.assert_allclose(model.predict(x), LinearRegression().fit(x, y).predict(x))


def test_several_outputs_are_covered_each():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 1))
    y = np.column_stack([x[:, 0] + rng.normal(size=400), rng.standard_t(2, size=400)])
    model = fe.Conformal(calibration_fraction=0.5, random_state=0).fit(x[:200], y[:200])
    low, high = model.predict_interval(x[200:], 0.8)
    inside = ((low <= y[200:]) & (y[200:] <= high)).mean(axis=0)
    # of 200 rows, with a quantile of 100 others
    assert (np.abs(inside - 0.8) < 4 * np.sqrt(0.16 / 200 + 0.16 / 100)).all()


def test_missing_entries_weights_and_files(tmp_path):
    x, y = data(np.random.default_rng(4), 100)
    x = np.column_stack([x, -x + 0.1 * np.random.default_rng(5).normal(size=x.shape)])
    x[::4, 0] = np.nan
    for estimator in (None, LinearRegression()):
        model = fe.Conformal(estimator, random_state=0).fit(x, y)
        low, high = model.predict_interval(x, 0.8)
        assert np.isfinite(high - low).all()
        assert np.isfinite(model.evidence(x, y).nats).all()
    own = fe.Conformal(random_state=0, folds=5).fit(x, y)
    own.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_allclose(again.predict_interval(x, 0.8)[0], own.predict_interval(x, 0.8)[0])
    weight = np.arange(100) % 3
    x, y = data(np.random.default_rng(6), 100)
    weighted = fe.Conformal(random_state=0).fit(x, y, sample_weight=weight)
    repeated = fe.Conformal(random_state=0).fit(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    for a, b in zip(weighted.predict_interval(x, 0.7), repeated.predict_interval(x, 0.7), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def labels(rng, n):
    x = rng.normal(size=(n, 1))
    score = np.column_stack([np.zeros(n), 2 * x[:, 0], x[:, 0] ** 2])
    return x, np.array(["a", "b", "c"])[np.argmax(score + rng.gumbel(size=(n, 3)), axis=1)]


def test_sets_of_labels_hold_the_right_one():
    rng, hits = np.random.default_rng(7), []
    for number in range(100):
        x, y = labels(rng, 41)
        model = fe.ConformalClassifier(GaussianNB(), calibration_fraction=0.5, random_state=number)
        hits.append(y[-1] in model.fit(x[:-1], y[:-1]).predict_set(x[-1:], 0.8)[0])
    exact = 17 / 21
    # ties of scores make sets larger, never smaller
    assert np.mean(hits) > exact - 4 * np.sqrt(exact * (1 - exact) / 100)
    assert np.mean(hits) < exact + 4 * np.sqrt(exact * (1 - exact) / 100) + 0.03


def test_votes_of_folds_for_labels():
    x, y = labels(np.random.default_rng(8), 60)
    model = fe.ConformalClassifier(LogisticRegression(), folds=4, random_state=0).fit(x, y)
    found = model.predict_set(x[:10], 0.8)
    for row, kept in zip(x[:10], found, strict=True):
        for number, label in enumerate(model.classes_):
            below = 0
            for score, fold in zip(model.calibration_scores_, model.calibration_fold_, strict=True):
                strange = 1 - model.members_[fold].predict_proba(row[None])[0, number]
                below += score < strange
            assert (label in kept) == (below < 0.8 * 61)
    np.testing.assert_array_equal(model.predict_proba(x), model.estimator_.predict_proba(x))
    own = fe.ConformalClassifier(random_state=0).fit(x, y)
    np.testing.assert_allclose(own.evidence(x, y).nats, own.evidence_of_labels(x, y).nats)
    np.testing.assert_allclose(
        np.exp(own.evidence(x, y).nats),
        own.predict_proba(x)[np.arange(60), np.searchsorted(own.classes_, y)],
    )


def test_what_is_refused():
    x, y = data(np.random.default_rng(9), 30)
    with pytest.raises(ValueError, match="'estimator' parameter of Conformal must be a regressor of"):
        fe.Conformal(LogisticRegression()).fit(x, y)
    with pytest.raises(
        ValueError, match="'estimator' parameter of ConformalClassifier must be a classifier"
    ):
        fe.ConformalClassifier(LinearRegression()).fit(x, y > 1)
    with pytest.raises(ValueError, match=r"'folds' parameter of Conformal must be an int in the range \[2"):
        fe.Conformal(folds=1).fit(x, y)
    with pytest.raises(ValueError, match="'calibration_fraction' parameter of Conformal must be a float"):
        fe.Conformal(calibration_fraction=0.0).fit(x, y)
    with pytest.raises(ValueError, match="needs at least 2 different rows"):
        fe.Conformal(DummyRegressor()).fit(x[:1], y[:1])
    model = fe.Conformal(random_state=0).fit(x, y)
    with pytest.raises(
        ValueError, match=r"'level' of Conformal.predict_interval must be a float in the range"
    ):
        model.predict_interval(x, 1.0)
    with pytest.raises(
        ValueError, match=r"Conformal cannot be saved: its 'estimator' is a LinearRegression"
    ):
        fe.Conformal(LinearRegression()).save("nowhere")


@pytest.mark.slow
def test_coverage_over_a_thousand_data_sets():
    rng, hits, sets = np.random.default_rng(10), {"split": [], "folds": []}, 1000
    for number in range(sets):
        x, y = data(rng, 61)
        for name, folds in (("split", None), ("folds", 6)):
            model = fe.Conformal(LinearRegression(), folds=folds, random_state=number).fit(x[:-1], y[:-1])
            low, high = model.predict_interval(x[-1:], 0.9)
            hits[name].append(low[0] <= y[-1] <= high[0])
    exact = np.ceil(16 * 0.9) / 16
    assert stats.binomtest(sum(hits["split"]), sets, exact).pvalue > 1e-4
    assert abs(np.mean(hits["folds"]) - 0.9) < 4 * np.sqrt(0.09 / sets) + 0.02
