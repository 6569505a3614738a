"""Models on one scale: paired folds, honest errors and orders, and nothing lost when it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from scipy import stats
from sklearn.cluster import KMeans as ForeignKMeans
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture as ForeignMixture
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold
from sklearn.svm import LinearSVC

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.comparison import FoldResult, Standing
from freeenergy.comparison._problems import Table, problem_of
from freeenergy.comparison._results import decode, encode

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(-2, 1, (60, 2)), RNG.normal(2, 0.5, (60, 2))])
MODELS = {"one": fe.GaussianDensity(), "two": fe.GaussianMixture(2)}
LN2 = np.log(2)


@pytest.fixture(scope="module")
def board():
    return fe.compare(MODELS, X, cv=3, random_state=0)


def test_without_pictures_the_numbers_are_the_same(board, tmp_path):
    bare = fe.compare(MODELS, X, cv=3, random_state=0, pictures=False)
    assert [(line.model, line.bits) for line in bare.table()] == [
        (line.model, line.bits) for line in board.table()
    ]
    assert not any(r.samples is not None or r.unlikely for r in bare.results)
    bare.to_html(tmp_path / "numbers.html")
    assert "explains the held-out rows best" in (tmp_path / "numbers.html").read_text()


def made(nats, kinds, *, shared=None, folds=1, groups=None, entries=2):
    """A comparison with given evidence: a model per entry of `nats`, rows shared out over folds."""
    n = len(nats[0])
    parts = np.array_split(np.arange(n), folds)
    labels = [f"m{i}" for i in range(len(nats))]
    results = [
        FoldResult(
            label,
            fold,
            rows,
            np.asarray(nats[i])[rows],
            np.zeros(len(rows)),
            (shared or {}).get(i, 0.0),
            kinds[i],
        )
        for fold, rows in enumerate(parts)
        for i, label in enumerate(labels)
    ]
    data = RNG.normal(size=(n, entries))
    problem = Table(data, None, groups)
    return fe.Comparison(
        results=results,
        labels=labels,
        models={},
        support=problem.support,
        dimension=entries,
        n_rows=n,
        settings={"seed": 0},
        examples=data[:5],
        example_rows=np.arange(5),
        feature_names=problem.feature_names,
        notes=[],
        finished=True,
        final=None,
        _problem=problem,
        _data=(data, None),
    )


def test_numbers_are_those_of_fitting_and_scoring_by_hand(board):
    by_model = {name: [r for r in board.results if r.model == name] for name in MODELS}
    for name, results in by_model.items():
        held_out = np.concatenate([r.rows for r in results])
        assert sorted(held_out) == list(range(len(X)))
        first = results[0]
        train = np.setdiff1d(np.arange(len(X)), first.rows)
        by_hand = MODELS[name].fit(X[train]).score_samples(X[first.rows])
        np.testing.assert_allclose(first.nats, by_hand, rtol=1e-6)
        bits = -np.concatenate([r.nats for r in results]).mean() / LN2
        line = next(line for line in board.table() if line.model == name)
        np.testing.assert_allclose([line.bits, line.bits_per_dimension], [bits, bits / 2])
    # the same rows for all
    for a, b in zip(by_model["one"], by_model["two"], strict=True):
        np.testing.assert_array_equal(a.rows, b.rows)
    best = board.table()[0]
    assert (best.model, best.difference, best.chance, best.parameters) == ("two", 0.0, None, 11)


def test_the_picture_parts_of_the_first_fold(board):
    first, later = (next(r for r in board.results if r.model == "two" and r.fold == k) for k in (0, 1))
    assert first.samples.shape == (300, 2)
    np.testing.assert_allclose(first.latent.sum(axis=1), 1)
    np.testing.assert_array_equal(first.latent_rows, first.rows)
    assert stats.kstest(first.pit, "uniform").pvalue > 1e-3
    assert first.pit_draws == 300
    np.testing.assert_allclose(
        first.parts["means"][np.argsort(first.parts["means"][:, 0])], [[-2] * 2, [2] * 2], atol=0.5
    )
    np.testing.assert_allclose(np.sort(first.parts["spread"][:, 0]), [0.5, 1], atol=0.25)
    np.testing.assert_allclose(first.parts["weights"], [0.5, 0.5], atol=0.1)
    assert later.parts == {}
    assert later.samples is None
    assert later.latent is None
    assert later.pit is None
    assert first.history["objective"].ndim == 1
    assert board.examples.shape == X.shape
    np.testing.assert_array_equal(board.examples, X[board.example_rows])


@pytest.mark.slow
@pytest.mark.slow
def test_parts_of_models_are_in_units_of_the_columns():
    from freeenergy.comparison._pictures import parts

    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2))
    rows = np.column_stack([100 * z[:, 0], z[:, 0], 0.01 * z[:, 1], z[:, 1]])
    rows = rows + 0.1 * rows.std(axis=0) * rng.normal(size=rows.shape)
    loadings = parts(fe.FactorAnalysis(2).fit(rows), rows)["loadings"]
    # varimax: each factor has two columns to itself, up to order and sign
    own = np.abs(loadings)[np.argsort(-np.abs(loadings[:, 0]))]
    np.testing.assert_allclose(own, [[1, 1, 0, 0], [0, 0, 1, 1]], atol=0.1)
    counts = rng.poisson(np.where(rng.random((300, 1)) < 0.5, [[1.0, 9.0]], [[8.0, 2.0]]))
    found = parts(fe.Mixture(2, family=d.Poisson, random_state=0).fit(counts), counts)
    np.testing.assert_allclose(np.sort(found["means"][:, 0]), [1, 8], rtol=0.15)
    assert parts(fe.GaussianDensity().fit(rows), rows) == {}
    # a constant column is left out of the model inside
    wide = np.column_stack([np.full(300, 4.0), counts])
    support = fe.Support(["constant", "integer", "integer"])
    inside = parts(fe.Dequantised(fe.GaussianMixture(2, random_state=0), support).fit(wide), wide)
    assert (inside["means"].shape, inside["weights"].shape) == ((2, 3), (2,))
    np.testing.assert_allclose(np.sort(inside["means"][:, 1]), [1.5, 8.5], rtol=0.2)
    assert (inside["spread"][:, 0] == 0).all()


def test_a_model_that_cannot_be_drawn_keeps_its_numbers(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no draws today")

    monkeypatch.setattr(fe.GaussianDensity, "sample", broken)
    board = fe.compare({"one": fe.GaussianDensity()}, X, cv=2, random_state=0)
    assert np.isfinite(board.table()[0].bits)
    assert "one warned: There are no pictures of it: no draws today" in board.notes


def test_models_that_differ_by_rounding_have_no_order():
    nats = RNG.normal(size=50) - 5
    _, second = made([nats, nats - 1e-15], [fe.Kind.EXACT] * 2).table()
    assert second.difference == 0
    assert second.chance == 0.5


def test_difference_and_chance_are_those_of_a_paired_t_test():
    a, b = RNG.normal(-3, 2, 80), RNG.normal(-3.3, 2, 80)
    first, second = sorted(made([a, b], [fe.Kind.EXACT] * 2).table(), key=lambda line: line.bits)
    winner, loser = (a, b) if a.mean() > b.mean() else (b, a)
    test = stats.ttest_rel(winner, loser, alternative="greater")
    np.testing.assert_allclose(second.difference, (winner - loser).mean() / LN2)
    np.testing.assert_allclose(second.difference_stderr, stats.sem(winner - loser) / LN2)
    np.testing.assert_allclose(second.chance, 1 - test.pvalue)
    np.testing.assert_allclose(first.bits_stderr, stats.sem(winner) / LN2)
    np.testing.assert_allclose(second.bits_per_dimension_stderr, stats.sem(loser) / LN2 / 2)


def test_rows_of_a_group_count_as_dependent():
    groups = np.repeat(np.arange(20), 4)
    nats = RNG.normal(size=80) + np.repeat(RNG.normal(size=20), 4)
    line = made([nats], [fe.Kind.EXACT], groups=groups).table()[0]
    ols = sm.OLS(-nats / LN2, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    np.testing.assert_allclose(line.bits_stderr, ols.bse[0], rtol=1e-10)
    assert line.bits_stderr > stats.sem(nats) / LN2


def test_the_luck_of_training_and_the_shared_error_do_not_average_out():
    rows = np.tile([-1.0, 1.0], 30)
    offsets = np.repeat([0.0, 0.0, 3.0], 20)
    plain = made([rows * LN2], [fe.Kind.EXACT], folds=3).table()[0].bits_stderr
    lucky = made([(rows + offsets) * LN2], [fe.Kind.EXACT], folds=3).table()[0].bits_stderr
    # variance of the means of folds beyond that of their rows, times 1/J + test/train
    within = 20 / 19 / 20
    expected = np.var(rows + offsets, ddof=1) / 60 + (3 - within) * (1 / 3 + 20 / 40)
    np.testing.assert_allclose(lucky, np.sqrt(expected))
    np.testing.assert_allclose(plain, stats.sem(rows))
    both = made([rows * LN2], [fe.Kind.ESTIMATE], folds=3, shared={0: 0.3}).table()[0].bits_stderr
    np.testing.assert_allclose(both, np.hypot(plain, 0.3 / LN2 / np.sqrt(3)))


@pytest.mark.parametrize(
    ("better", "worse", "known"),
    [
        ("EXACT", "EXACT", True),
        ("LOWER", "EXACT", True),
        ("EXACT", "UPPER", True),
        ("LOWER", "UPPER", True),
        ("ESTIMATE", "EXACT", True),
        ("EXACT", "ESTIMATE", True),
        ("EXACT", "LOWER", False),
        ("LOWER", "LOWER", False),
        ("UPPER", "EXACT", False),
        ("UPPER", "ESTIMATE", False),
        ("ESTIMATE", "LOWER", False),
    ],
)
def test_an_order_is_claimed_only_where_it_can_be_known(better, worse, known):
    nats = RNG.normal(size=50)
    board = made([nats - 1, nats], [fe.Kind[worse], fe.Kind[better]])
    first, second = board.table()
    assert (first.model, second.model) == ("m1", "m0")
    assert (second.chance is not None) == known
    assert ("?" in str(board)) != known
    sign = {"EXACT": "", "LOWER": "≤", "UPPER": "≥", "ESTIMATE": "≈"}[worse]
    assert sign in str(board)


def test_zero_probability_is_said_and_infinite_density_never_wins():
    nats = RNG.normal(size=40)
    impossible, broken = nats.copy(), nats.copy()
    impossible[3] = -np.inf
    broken[[1, 2]] = np.inf
    board = made([impossible, nats, broken], [fe.Kind.EXACT] * 3)
    lines = board.table()
    assert [line.model for line in lines] == ["m1", "m0", "m2"]
    assert (lines[1].bits, lines[1].difference, lines[1].chance) == (np.inf, np.inf, 1.0)
    assert lines[2].error == "Its density is infinite or not a number on 2 of 40 held-out rows."
    assert "∞" in str(board)
    assert json.loads(json.dumps(board.to_json()))["table"][1]["bits"] == "inf"


def test_only_folds_that_most_models_have_are_compared():
    nats = RNG.normal(size=60)
    board = made([nats, nats - 1, nats], [fe.Kind.EXACT] * 3, folds=3)
    board.results = [r for r in board.results if (r.model, r.fold) in {("m0", 0), ("m0", 1), ("m1", 0)}]
    lines = {line.model: line for line in board.table()}
    np.testing.assert_allclose(lines["m0"].bits, -nats[:20].mean() / LN2)
    np.testing.assert_allclose(lines["m1"].difference, 1 / LN2)
    assert lines["m2"].error == "It was not finished."


def test_failing_models_keep_their_row_with_a_reason():
    models = {
        "good": fe.GaussianDensity(),
        "foreign": ForeignMixture(1),
        "clusters": ForeignKMeans(2),
        "binary": fe.RBM(2),
        "counts": fe.Mixture(1, family=d.Poisson),
        "classes": LogisticRegression(),
        "bad": fe.GaussianMixture(0),
    }
    board = fe.compare(models, X, test_size=0.25, random_state=0)
    lines = {line.model: line for line in board.table()}
    assert [line.model for line in board.table()][2:] == ["clusters", "binary", "counts", "classes", "bad"]
    np.testing.assert_allclose(lines["good"].bits, lines["foreign"].bits, rtol=1e-4)
    assert lines["clusters"].error == "KMeans is no density: it gives no probability of X."
    assert "RBM needs entries 0 or 1" in lines["binary"].error
    assert "Mixture gives a probability mass to columns that are continuous" in lines["counts"].error
    assert lines["classes"].error == "LogisticRegression gives the probability of labels: pass them as y."
    assert "'n_components' parameter of GaussianMixture must be an int" in lines["bad"].error
    for line in board.table()[2:]:
        assert f"{line.model}: {line.error}" in str(board)
    nothing = fe.compare([fe.GaussianMixture(0)], X, cv=2)
    with pytest.raises(ValueError, match=r"No model could be fitted\. GaussianMixture"):
        _ = nothing.best_estimator


def test_whole_numbers_are_mass_for_all_and_constants_are_left_out():
    counts = RNG.poisson([[4.0, 30.0]] * 200).astype(float)
    table = pd.DataFrame({"a": counts[:, 0], "same": 5.5, "b": counts[:, 1]})
    models = {"exact": fe.Mixture(1, family=d.Poisson), "bound": fe.GaussianDensity()}
    board = fe.compare(models, table, cv=2, random_state=0)
    assert board.dimension == 2
    assert board.feature_names == ["a", "same", "b"]
    assert "Column 'same' is constant and left out for every model." in board.notes
    assert any(note.startswith("Columns 'a' and 'b' hold whole numbers") for note in board.notes)
    exact, bound = board.table()
    assert (exact.model, exact.kind, bound.kind) == ("exact", fe.Kind.EXACT, fe.Kind.LOWER)
    entropy = -sum(stats.poisson(rate).logpmf(counts[:, i]).mean() for i, rate in enumerate((4, 30))) / LN2
    assert abs(exact.bits - entropy) < 0.05
    assert 0 < bound.difference < 0.3
    best = board.best_estimator
    assert best.feature_names_in_.tolist() == ["a", "same", "b"]
    assert best.sample(3, random_state=0)["same"].tolist() == [5.5] * 3
    np.testing.assert_allclose(
        best.score(table), sum(stats.poisson(c.mean()).logpmf(c).mean() for c in counts.T), rtol=1e-6
    )
    declared = fe.Support(["continuous"] * 2)
    plain = fe.compare({"g": fe.GaussianDensity()}, counts, support=declared, cv=2, random_state=0)
    assert plain.table()[0].kind is fe.Kind.EXACT
    assert plain.best_estimator.get_params()["random_state"] is not None


def test_a_model_that_is_dequantised_already_is_taken_as_it_is():
    counts = RNG.poisson(9, size=(80, 1)).astype(float)
    own = fe.Dequantised(fe.GaussianDensity(), importance_samples=16)
    other = fe.Dequantised(fe.GaussianDensity(), fe.Support(["continuous"]))
    board = fe.compare({"own": own, "other": other}, counts, test_size=20, random_state=0)
    assert board.models["own"].importance_samples == 16
    assert board.models["own"].support == fe.Support(["integer"])
    assert board.table()[1].error == "The 'support' of Dequantised is not that of the comparison."


def test_missing_entries_are_marginalised_and_counted():
    holes = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    board = fe.compare({"one": fe.GaussianDensity()}, holes, cv=2, random_state=0)
    line, results = board.table()[0], board.results
    total = -sum(r.nats.sum() for r in results) / LN2
    np.testing.assert_allclose(line.bits, total / len(X))
    np.testing.assert_allclose(line.bits_per_dimension, total / np.sum(~np.isnan(holes)))


def test_classifiers_are_scored_by_the_probability_of_the_label():
    labels = np.repeat(["low", "high"], 60)
    models = {
        "prior": DummyClassifier(),
        "logistic": LogisticRegression(),
        "softmax": fe.SoftmaxRegression(),
    }
    models |= {"density": fe.GaussianDensity(), "margin": LinearSVC()}
    models |= {"line": LinearRegression()}
    board = fe.compare(models, X, labels, cv=3, random_state=0)
    lines = {line.model: line for line in board.table()}
    assert abs(lines["prior"].bits - 1) < 0.1
    assert lines["logistic"].bits < 0.2
    assert abs(lines["softmax"].bits - lines["logistic"].bits) < 0.1
    assert lines["density"].error == "GaussianDensity gives no probability of y given X."
    assert lines["margin"].error == "LinearSVC has no predict_proba."
    assert lines["line"].error == "LinearRegression gives no probability of y given X."
    assert board.dimension == 1
    assert set(board.best_estimator.predict(X)) == {"low", "high"}


@pytest.mark.slow
def test_a_label_that_no_training_row_has_is_impossible():
    labels = np.array(["a"] * 30 + ["b"] * 29 + ["c"])
    board = fe.compare({"prior": DummyClassifier(), "soft": fe.SoftmaxRegression()}, X[:60], labels, cv=3)
    for line in board.table():
        assert line.bits == np.inf
    assert "prior calls 1 of 60 held-out rows impossible: its bits are infinite." in board.notes


def test_groups_splitters_and_one_split():
    groups = np.arange(120) // 4
    board = fe.compare({"one": fe.GaussianDensity()}, X, groups=groups, cv=3, random_state=0)
    for result in board.results:
        train = np.setdiff1d(np.arange(120), result.rows)
        assert not set(groups[result.rows]) & set(groups[train])
    again = fe.compare({"one": fe.GaussianDensity()}, X, groups=groups, cv=GroupKFold(3), random_state=0)
    assert len(again.results) == 3
    repeated = fe.compare(
        {"one": fe.GaussianDensity()}, X, cv=RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)
    )
    # rows that were scored twice are not twice the evidence
    nats = np.zeros(120)
    for result in repeated.results:
        nats[result.rows] += result.nats / 2
    once = stats.sem(nats) / LN2
    assert repeated.table()[0].bits_stderr >= once * 0.999
    one = fe.compare({"one": fe.GaussianDensity()}, X, groups=groups, test_size=0.25, random_state=0)
    assert len(one.results) == 1
    assert len(one.results[0].rows) == 32


@pytest.mark.slow
def test_rows_kept_apart_are_scored_once_by_the_winner():
    board = fe.compare(MODELS, X, cv=2, final_size=30, random_state=0)
    seen = np.concatenate([r.rows for r in board.results if r.model == "one"])
    assert len(seen) == 90
    assert not set(seen) & set(board.final.rows)
    by_hand = fe.GaussianMixture(2).fit(X[np.sort(seen)]).score_samples(X[board.final.rows])
    np.testing.assert_allclose(board.final.nats, by_hand, rtol=1e-6)
    assert any(note.startswith("On 30 rows kept apart two has") for note in board.notes)
    assert not any("optimistic" in note for note in board.notes)


def test_the_winner_of_several_is_called_optimistic(board):
    assert any("optimistic; final_size=0.2" in note for note in board.notes)


@pytest.mark.slow
def test_the_seed_decides_everything_and_other_models_nothing():
    vae = fe.VAE(1, width=4, max_iter=2, importance_samples=10)
    alone = fe.compare({"vae": vae}, X, test_size=0.5, random_state=3)
    beside = fe.compare({"one": fe.GaussianDensity(), "vae": vae}, X, test_size=0.5, random_state=3)
    np.testing.assert_array_equal(alone.results[0].nats, beside.results[1].nats)
    assert vae.random_state is None
    assert alone.settings["seed"] == 3


@pytest.mark.slow
def test_two_processes_give_the_same_numbers(board):
    parallel = fe.compare(MODELS, X, cv=3, random_state=0, n_jobs=2)
    assert [(r.model, r.fold) for r in parallel.results] == [(r.model, r.fold) for r in board.results]
    for one, two in zip(board.results, parallel.results, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
        np.testing.assert_allclose(one.nats, two.nats, rtol=1e-12)


def test_shown_as_text_frame_json_and_html(board):
    text = str(board)
    assert repr(board) == text
    assert text.index("two") < text.index("one")
    assert "> 99.9%" in text
    frame = board.to_frame()
    assert frame["model"].tolist() == ["two", "one"]
    assert frame["kind"].tolist() == ["exact", "exact"]
    plain = json.loads(json.dumps(board.to_json(), allow_nan=False))
    assert plain["table"][0]["model"] == "two"
    assert plain["n_rows"] == 120
    assert len(plain["folds"]) == 6
    assert "<table" in board._repr_html_()
    assert isinstance(board.table()[0], Standing)


def test_a_frame_of_polars_where_there_is_no_pandas(board, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(board.to_frame(), pl.DataFrame)


def test_plot_and_report_are_made(board, tmp_path):
    assert board.plot() is not None
    board.to_html(tmp_path / "report.html")
    assert "two" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_labels_are_expressions_and_differ():
    models = [fe.Mixture(1, family=d.Gaussian), fe.GaussianDensity(), fe.GaussianDensity()]
    board = fe.compare(models, X, test_size=0.5, random_state=0)
    assert board.labels == ["Mixture()", "GaussianDensity()", "GaussianDensity() (2)"]
    counts = fe.compare([fe.Mixture(2, family=d.Poisson)], RNG.poisson(3, (30, 1)), test_size=0.5)
    assert counts.labels == ["Mixture(family=Poisson, n_components=2)"]


def test_progress_is_shown_on_standard_error(capsys):
    fe.compare({"one": fe.GaussianDensity(verbose=1)}, X, test_size=0.5, random_state=0, verbose=1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "compare" in captured.err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fe.compare([], X), "'models' parameter of compare must be a list of estimators"),
        (lambda: fe.compare(["gaussian"], X), "must hold estimators. Got 'gaussian' instead"),
        (lambda: fe.compare(MODELS, np.ones((9, 2))), "Every column of X is constant"),
        (lambda: fe.compare(MODELS, [["a", "b"]] * 9), "no column that models could be compared on"),
        (lambda: fe.compare(MODELS, [["a", 1.0], [2.0, 3.0]] * 9), "not text. Got 'a' in row 0, column 0"),
        (lambda: fe.compare(MODELS, np.full((9, 2), np.inf)), "infinity"),
        (lambda: fe.compare(MODELS, np.empty((0, 2))), "0 sample"),
        (lambda: fe.compare(MODELS, np.where([[True, False]], np.nan, X)), "has no observed value"),
        (lambda: fe.compare(MODELS, X, support=fe.Support(["integer"])), "must be a Support of 2 columns"),
        (lambda: fe.compare(MODELS, X, groups=[1, 2]), "inconsistent numbers of samples"),
        (lambda: fe.compare(MODELS, X[:3], cv=5), "n_splits=5 greater than the number of samples"),
        (lambda: fe.compare({"a": LogisticRegression()}, X, X[:, 0]), "Unknown label type"),
        (lambda: fe.compare({"a": LogisticRegression()}, X, [0, 1]), "inconsistent numbers of samples"),
        (lambda: fe.compare({"a": fe.HMM()}, X, groups=np.arange(120)), "needs several series. Got one"),
    ],
)
def test_refuses_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- series ----


def chain(length, seed):
    """A series that stays in one of two states for long."""
    rng = np.random.default_rng(seed)
    state = np.cumsum(rng.random(length) < 0.05) % 2
    return (6.0 * state + rng.normal(size=length))[:, None]


@pytest.mark.slow
def test_whole_series_are_held_out():
    series = [chain(40, seed) for seed in range(6)]
    models = {"rows": fe.GaussianMixture(2), "chain": fe.HMM(2)}
    board = fe.compare(models, series, cv=3, random_state=0)
    assert [line.model for line in board.table()] == ["chain", "rows"]
    assert board.n_rows == 6
    for result in board.results:
        train = [series[i] for i in np.setdiff1d(np.arange(6), result.rows)]
        test = [series[i] for i in result.rows]
        if result.model == "chain":
            by_hand = fe.HMM(2, random_state=1).fit(train).score_samples(test)
        else:
            rows = fe.GaussianMixture(2).fit(np.concatenate(train))
            by_hand = [rows.score_samples(x).sum() for x in test]
        np.testing.assert_allclose(result.nats, by_hand, rtol=1e-3)
    total = -sum(r.nats.sum() for r in board.results if r.model == "chain") / LN2
    best = board.table()[0]
    np.testing.assert_allclose([best.bits, best.bits_per_dimension], [total / 6, total / 240])
    assert board.results[0].samples.shape == (5, 40, 1)
    assert len(board.examples) == 5
    assert board.best_estimator.score_samples(series).shape == (6,)
    # fewer series than folds
    assert fe.compare({"chain": fe.HMM(2)}, series[:3], random_state=0).settings["folds"] == 3


@pytest.mark.slow
def test_a_single_series_is_split_in_time_and_scored_one_step_ahead():
    series = chain(120, 7)
    board = fe.compare({"rows": fe.GaussianDensity(), "chain": fe.HMM(2)}, series, cv=2, random_state=0)
    assert [line.model for line in board.table()] == ["chain", "rows"]
    ends = [(40, 80), (80, 120)]
    for result in board.results:
        start, end = ends[result.fold]
        np.testing.assert_array_equal(result.rows, np.arange(start, end))
        if result.model == "chain":
            model = fe.HMM(2, random_state=1).fit(series[:start])
            # log p(x_1..x_t) − log p(x_1..x_{t−1}), by whole prefixes
            at = start + 5
            step = model.score_samples(series[: at + 1]) - model.score_samples(series[:at])
            np.testing.assert_allclose(result.nats[5], step[0], rtol=1e-3)
        else:
            by_hand = fe.GaussianDensity().fit(series[:start]).score_samples(series[start:end])
            np.testing.assert_allclose(result.nats, by_hand, rtol=1e-6)
    assert "Later time steps are held out and scored one step ahead." in board.notes
    assert "Draws and pictures are of the models of the last fold, which have seen the most." in board.notes
    last = [r for r in board.results if r.fold == 1]
    rows, states = (next(r for r in last if r.model == name) for name in ("rows", "chain"))
    # of one Gaussian: the chance of a value further out
    gaussian = stats.norm(series[:80].mean(), series[:80].std())
    out = 2 * gaussian.sf(gaussian.mean() + abs(series[80:, 0] - gaussian.mean()))
    assert rows.pit_draws == 320
    assert np.abs(rows.pit - out).max() < 5 * 0.5 / np.sqrt(320)
    assert (len(states.pit), len(states.parts["series"])) == (40, 120)
    sure = states.parts["probabilities"].argmax(axis=1)
    truth = series[:, 0] > 3
    assert max(np.mean(sure == truth), np.mean(sure != truth)) > 0.95
    assert all(r.pit is None and not r.parts for r in board.results if r.fold == 0)
    one = fe.compare({"chain": fe.HMM(2)}, series, test_size=0.25, final_size=20, random_state=0)
    np.testing.assert_array_equal(one.results[0].rows, np.arange(75, 100))
    np.testing.assert_array_equal(one.final.rows, np.arange(100, 120))


def test_folds_in_time_begin_where_every_model_can_be_fitted():
    series, models = chain(114, 7), {"long": fe.AutoRegression(13), "rows": fe.GaussianDensity()}
    problem = problem_of(models, series, None, None, None)
    pairs = problem.splits(np.arange(114), 5, None, 0, list(models.values()))
    # 13 coefficients, a mean and a variance, with two steps for each; what is left makes five equal folds
    assert [(len(train), len(test)) for train, test in pairs] == [(34 + 16 * i, 16) for i in range(5)]
    assert all(test[0] == len(train) for train, test in pairs)
    assert (
        "The first fold begins after 34 steps instead of 19, since AutoRegression needs at least 30"
        in (problem.notes[-1])
    )
    # what needs little leaves the folds where they are
    problem = problem_of(models, series, None, None, None)
    small = problem.splits(np.arange(114), 5, None, 0, [fe.AutoRegression(2), fe.HMM(2)])
    assert [(len(train), len(test)) for train, test in small] == [(19 + 19 * i, 19) for i in range(5)]
    assert "instead of" not in problem.notes[-1]


def test_a_model_that_needs_more_than_half_of_a_series_moves_no_fold():
    series = chain(114, 7)
    models = {"long": fe.AutoRegression(60), "wrong": fe.HMM("two"), "rows": fe.GaussianDensity()}
    board = fe.compare(models, series, random_state=0)
    best, *failed = board.table()
    assert best.model == "rows"
    errors = {line.model: line.error for line in failed}
    assert "AutoRegression needs at least 124 steps" in errors["long"]
    assert "Got 114" in errors["long"]
    assert "'n_states' parameter of HMM must be an int" in errors["wrong"]
    assert [len(r.rows) for r in board.results if r.model == "rows"] == [19] * 5
    # the draws are those of the last fold, which has seen the most
    assert [r.samples is not None for r in board.results if r.model == "rows"] == [False] * 4 + [True]


@pytest.mark.slow
def test_whole_numbers_and_constants_in_series():
    counts = [np.column_stack([np.rint(chain(30, s)), np.full(30, 2.0)]) for s in range(4)]
    plain = fe.compare({"g": fe.HMM(2)}, counts, cv=2, random_state=0)
    assert plain.dimension == 1
    assert plain.support == fe.Support(["continuous"])
    assert any("the whole numbers are taken as continuous" in note for note in plain.notes)
    positive = [x + 10 for x in counts]
    models = {
        "p": fe.HMM(2, family=d.Poisson),
        "g": fe.HMM(2),
        "s": fe.StructuralTimeSeries(),
        "rows": fe.GaussianDensity(),
        "k": fe.KMeans(2),
    }
    mixed = fe.compare(models, positive, cv=2, random_state=0)
    lines = {line.model: line for line in mixed.table()}
    assert lines["p"].kind is fe.Kind.EXACT
    # the mass of a whole number under one Gaussian is a difference of two values of its CDF
    assert lines["rows"].kind is fe.Kind.EXACT
    # and under a Gaussian HMM a mixture of such differences
    assert lines["g"].kind is fe.Kind.EXACT
    # a level without a prior law has no cell for its first step
    assert (
        "StructuralTimeSeries gives a density where other models give whole numbers a probability mass"
        in lines["s"].error
    )
    assert lines["k"].error == "KMeans is no density of series or rows: it gives no probability of X."


# ---- stopping and going on ----


@pytest.mark.slow
def test_a_finished_fold_is_never_fitted_again_and_a_changed_one_always(tmp_path):
    first = fe.compare(MODELS, X, cv=2, resume=tmp_path)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    stamps = [f.stat().st_mtime_ns for f in files]
    again = fe.compare(MODELS, X, cv=2, resume=tmp_path)
    assert [f.stat().st_mtime_ns for f in sorted(tmp_path.iterdir())] == stamps
    assert [r.seconds for r in again.results] == [r.seconds for r in first.results]
    for one, two in zip(first.results, again.results, strict=True):
        np.testing.assert_array_equal(one.nats, two.nats)
    # a third model, another parameter, other data and another seed are new
    assert _new_files(tmp_path, {**MODELS, "three": fe.GaussianMixture(3)}, X) == 2
    assert _new_files(tmp_path, {"one": fe.GaussianDensity(d.Diagonal()), "two": MODELS["two"]}, X) == 2
    changed = X.copy()
    changed[0, 0] += 1e-9
    assert _new_files(tmp_path, MODELS, changed) == 4
    assert _new_files(tmp_path, MODELS, X, random_state=1) == 4
    assert _new_files(tmp_path, {"one": fe.GaussianDensity(verbose=1)}, X) == 0


def _new_files(folder, models, data, **options):
    before = len(list(folder.iterdir()))
    fe.compare(models, data, cv=2, resume=folder, **options)
    return len(list(folder.iterdir())) - before


def test_a_damaged_file_is_fitted_again(tmp_path):
    models = {"one": fe.GaussianDensity()}
    first = fe.compare(models, X, test_size=0.5, resume=tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for broken in (whole[:-10], whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], b""):
        path.write_bytes(broken)
        with pytest.warns(UserWarning, match=r"' is [^\n]*\. Its fold is fitted again\.$"):
            again = fe.compare(models, X, test_size=0.5, resume=tmp_path)
        np.testing.assert_array_equal(first.results[0].nats, again.results[0].nats)
        np.testing.assert_array_equal(decode(path.read_bytes()).nats, decode(whole).nats)


def test_only_models_that_can_be_pickled_are_resumed(tmp_path):
    with pytest.raises(ValueError, match="'resume' parameter of compare needs models that can be pickled"):
        fe.compare([fe.VAE(learner=lambda: 0)], X, resume=tmp_path)


def test_a_fold_survives_its_file(board):
    for result in board.results:
        back = decode(encode(result))
        for name, value in vars(result).items():
            np.testing.assert_equal(getattr(back, name), value)


SCRIPT = """
import json, sys, time
import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
import freeenergy as fe

class Slow(DensityMixin, BaseEstimator):
    def __init__(self, scale=1.0, log=None):
        self.scale, self.log = scale, log
    def fit(self, X, y=None):
        with open(sys.argv[2], "a") as log:
            print("fit", file=log)
        time.sleep(1.0)
        return self
    def score_samples(self, X):
        return (-0.5 * (X / self.scale) ** 2 - np.log(self.scale)).sum(axis=1)

X = np.random.default_rng(0).normal(size=(20, 2))
models = {f"{scale}": Slow(scale) for scale in (1.0, 2.0, 3.0)}
board = fe.compare(models, X, cv=3, random_state=0, resume=sys.argv[1] or None, n_jobs=int(sys.argv[3]))
print(json.dumps({"finished": board.finished, "results": len(board.results), "notes": board.notes,
                  "bits": [line.bits for line in board.table()]}))
"""


def _start(tmp_path, folder, n_jobs=1):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), folder, str(tmp_path / "log"), str(n_jobs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


def _fits(tmp_path):
    log = tmp_path / "log"
    return log.read_text().count("fit") if log.exists() else 0


def _wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_comparison_goes_on_with_nothing_refitted(tmp_path):
    folder = tmp_path / "kept"
    killed = _start(tmp_path, str(folder))
    _wait_for(lambda: _fits(tmp_path) >= 4)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    kept, before = len(list(folder.glob("*.fold"))), _fits(tmp_path)
    assert 3 <= kept < 9
    out, _ = _start(tmp_path, str(folder)).communicate()
    assert _fits(tmp_path) - before == 9 - kept
    report = json.loads(out)
    assert report["finished"]
    assert report["results"] == 9
    fresh = json.loads(_start(tmp_path, "").communicate()[0])
    assert fresh["bits"] == report["bits"]


@pytest.mark.usefixtures("listening_to_ctrl_c")
@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_returns_what_is_finished(tmp_path, n_jobs):
    running = _start(tmp_path, "", n_jobs)
    _wait_for(lambda: _fits(tmp_path) >= 5)
    running.send_signal(signal.SIGINT)
    report = json.loads(running.communicate()[0])
    assert not report["finished"]
    # each process may be scoring a fit, and hand over another
    assert 5 - 2 * n_jobs <= report["results"] < 9
    assert f"Stopped before the end: {report['results']} of 9 fits are done." in report["notes"]


def test_the_seed_of_a_resumed_comparison_is_fixed(tmp_path):
    assert (
        fe.compare({"one": fe.GaussianDensity()}, X, test_size=0.5, resume=tmp_path).settings["seed"] == 0
    )
    folds = KFold(2, shuffle=True, random_state=0)
    board = fe.compare({"one": fe.GaussianDensity()}, X, cv=folds, random_state=np.random.RandomState(1))
    np.testing.assert_array_equal(board.results[0].rows, next(iter(folds.split(X)))[1])
