"""Models of numbers given rows on one scale, and how good their predictions are."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_absolute_error, mean_pinball_loss, roc_auc_score
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor

import freeenergy as fe
from freeenergy.comparison import PredictionStanding
from freeenergy.comparison._results import decode, encode
from freeenergy.evaluation import Laws

RNG = np.random.default_rng(0)
X = RNG.normal([5.0, -300.0, 0.1], [1.0, 40.0, 0.01], (120, 3))
Y = 2 * X[:, 0] + 0.02 * X[:, 1] + RNG.normal(0, 1.0, 120)
COUNTS = RNG.poisson(np.exp(0.4 * (X[:, 0] - 4)))
LN2 = np.log(2)
MODELS = {"none": fe.BaseRate(), "line": fe.LinearRegression()}


class Counts(fe.BaseRate):
    """Counts with one mean."""

    def _laws(self, x):
        return Laws(stats.poisson(np.full(len(x), self.mean_)))


@pytest.fixture(scope="module")
def board():
    return fe.compare(MODELS, X, Y, cv=3, random_state=0)


def _folds(n=120, cv=3):
    return KFold(cv, shuffle=True, random_state=0).split(np.empty(n))


def test_bits_are_those_of_fitting_and_scoring_by_hand(board):
    assert [line.model for line in board.table()] == ["line", "none"]
    for line in board.table():
        nats = [MODELS[line.model].fit(X[a], Y[a]).evidence(X[b], Y[b]).nats for a, b in _folds()]
        np.testing.assert_allclose(line.bits, -np.concatenate(nats).mean() / LN2, rtol=1e-9)
        assert line.kind is fe.Kind.EXACT
    assert board.dimension == 1
    assert "Bits are of the density of y, in its units, given the row." in board.notes
    assert isinstance(board.best_estimator, fe.LinearRegression)
    parameters = {line.model: line.parameters for line in board.table()}
    assert parameters == {"line": 5, "none": 2}


def test_predictions_are_measured_as_scikit_learn_does(board):
    lines = board.predictions()
    assert all(isinstance(line, PredictionStanding) for line in lines)
    assert [line.model for line in lines] == ["line", "none"]
    found = lines[0].measures
    parts = [(b, fe.LinearRegression().fit(X[a], Y[a]).predict_density(X[b])) for a, b in _folds()]
    truth = np.concatenate([Y[b] for b, _ in parts])
    mean, low, median, high = (
        np.concatenate([f(laws) for _, laws in parts])
        for f in (lambda w: w.mean(), *(lambda w, p=p: w.quantile(p) for p in (0.05, 0.5, 0.95)))
    )
    np.testing.assert_allclose(found["RMSE"].value, np.sqrt(np.mean((truth - mean) ** 2)))
    np.testing.assert_allclose(found["MAE"].value, mean_absolute_error(truth, median))
    both = [mean_pinball_loss(truth, end, alpha=p) for end, p in ((low, 0.05), (high, 0.95))]
    np.testing.assert_allclose(found["pinball"].value, np.mean(both))
    np.testing.assert_allclose(found["in 90%"].value, np.mean((low <= truth) & (truth <= high)))
    assert abs(found["in 90%"].value - 0.9) < 4 * np.sqrt(0.09 / 120)
    assert all(measure.stderr > 0 for measure in found.values())
    assert found["RMSE"].value < lines[1].measures["RMSE"].value
    assert "Predictions of held-out rows" in str(board)
    told = json.loads(json.dumps(board.to_json()))["predictions"][0]
    assert told["RMSE"]["value"] == pytest.approx(found["RMSE"].value)
    narrow = fe.compare(MODELS, X, Y, cv=3, level=0.5, random_state=0).predictions()[0].measures
    assert narrow["in 50%"].value < 0.75


def test_ranks_of_answers_are_uniform(board):
    ranks = np.concatenate([r.predicted[5] for r in board.results if r.model == "line"])
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3
    whole = fe.compare([Counts()], X, RNG.poisson(3.0, 120), cv=3, random_state=0)
    ranks = np.concatenate([r.predicted[5] for r in whole.results])
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3


def test_counts_and_densities_stand_on_one_board():
    found = fe.compare({"counts": Counts(), **MODELS}, X, COUNTS, cv=3, random_state=0)
    bits = {line.model: line.bits for line in found.table()}
    assert any("whole numbers" in note and "width one" in note for note in found.notes)
    for label, model in {"counts": Counts(), **MODELS}.items():
        nats = []
        for a, b in _folds():
            laws = model.fit(X[a], COUNTS[a]).predict_density(X[b])
            own = laws.log_prob(COUNTS[b])
            if label != "counts":
                own = np.log(laws.cdf(COUNTS[b] + 0.5) - laws.cdf(COUNTS[b] - 0.5))
            nats.append(own)
        np.testing.assert_allclose(bits[label], -np.concatenate(nats).mean() / LN2, rtol=1e-8)
    # a cell has at most probability one
    assert all(value > 0 for value in bits.values())


def test_units_are_counted_and_those_of_rounded_answers_have_none(board):
    line = board.table()[0]
    for factor in (1000.0, 1e-3):
        other = fe.compare(MODELS, X, Y * factor, cv=3, random_state=0).table()[0]
        np.testing.assert_allclose(other.bits, line.bits + np.log2(factor), rtol=1e-9)
        np.testing.assert_allclose(other.difference, line.difference, atol=1e-9)
    rounded = np.round(2 * Y) / 2
    found = [fe.compare(MODELS, X, rounded * factor, cv=3, random_state=0) for factor in (1.0, 0.1)]
    assert "rounded to steps of 0.5" in found[0].notes[0]
    assert "rounded to steps of 0.05" in found[1].notes[0]
    np.testing.assert_allclose(found[0].table()[0].bits, found[1].table()[0].bits, rtol=1e-9)
    # half a unit is one bit less than a unit
    np.testing.assert_allclose(found[0].table()[0].bits, line.bits + 1, atol=0.1)


def test_the_support_of_answers_can_be_declared():
    found = fe.compare(
        {"counts": Counts(), **MODELS}, X, COUNTS, cv=3, random_state=0, support=fe.Support(["continuous"])
    )
    lines = {line.model: line for line in found.table()}
    assert "density" in found.notes[0]
    assert "gives a probability to whole numbers, and y has others" in lines["counts"].error
    nats = [fe.BaseRate().fit(X[a], COUNTS[a]).evidence(X[b], COUNTS[b]).nats for a, b in _folds()]
    np.testing.assert_allclose(lines["none"].bits, -np.concatenate(nats).mean() / LN2)


def test_far_answers_have_bits():
    y = np.round(Y)
    y[0] = 10**7
    found = fe.compare([fe.BaseRate()], X, y, cv=3, random_state=0)
    assert np.isfinite(found.table()[0].bits)


def test_tables_with_labels_and_holes():
    town = np.array(["Bern", "Basel", "Chur"])[RNG.integers(3, size=120)]
    frame = pd.DataFrame({"size": X[:, 0], "noise": X[:, 1], "town": town})
    frame.loc[::7, "size"] = np.nan
    frame.loc[3, "town"] = None
    y = pd.Series(2 * X[:, 0] + 3.0 * (town == "Chur") + RNG.normal(0, 0.3, 120), name="price")
    board = fe.compare(MODELS, frame, y, cv=3, random_state=0)
    line = board.table()[0]
    assert line.error is None
    assert board.feature_names == ["size", "noise", "town"]
    assert "'price'" in board.notes[0]
    effects = next(r for r in board.results if r.model == "line" and r.fold == 0).effects
    lost, error = effects["importance"].T
    assert (lost[[0, 2]] > 4 * error[[0, 2]]).all()
    assert abs(lost[1]) < 4 * error[1] + 0.05
    # in the order of their importance
    assert set(effects["columns"][:2]) == {0, 2}
    place = list(effects["columns"]).index(0)
    values, mean = effects["values"][place], effects["dependence"][place, :, 0]
    np.testing.assert_allclose(np.polyfit(values, mean, 1)[0], 2.0, atol=0.15)
    place = list(effects["columns"]).index(2)
    by_town = effects["dependence"][place, :3, 0]
    np.testing.assert_allclose(by_town - by_town[0], [0.0, 0.0, 3.0], atol=0.3)
    base = next(r for r in board.results if r.model == "none" and r.fold == 0).effects
    assert (base["importance"] == 0).all()
    assert board.best_estimator.predict(frame).shape == (120,)


def test_regressors_without_a_law_are_normal_about_their_predictions():
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    board = fe.compare({"tree": tree, **MODELS}, X, Y, cv=3, random_state=0)
    lines = {line.model: line for line in board.table()}
    assert isinstance(board.models["tree"], fe.Conformal)
    assert any(note.startswith("DecisionTreeRegressor gives no law of y") for note in board.notes)
    # as wide as what it is off by on rows that it has not seen
    error = board.predictions()[[p.model for p in board.predictions()].index("tree")].measures["RMSE"].value
    expected = (0.5 * np.log(2 * np.pi * error**2) + 0.5) / LN2
    np.testing.assert_allclose(lines["tree"].bits, expected, atol=0.25)
    assert lines["line"].bits < lines["tree"].bits < lines["none"].bits
    few = fe.compare({"tree": tree}, X[:9], Y[:9], cv=2, random_state=0).predictions()[0].measures
    # too few rows for an end of such an interval
    assert few["in 90%"].value == 1.0
    assert np.isnan(few["pinball"].value)
    with_labels = pd.DataFrame({"size": X[:, 0], "town": np.array(["Bern", "Chur", "Basel"] * 40)})
    mixed = fe.compare({"tree": tree}, with_labels, Y, cv=2, random_state=0)
    assert mixed.table()[0].error is None


@pytest.mark.parametrize(
    ("models", "y", "options", "message"),
    [
        (
            [fe.LinearRegression()],
            ["a", "b"] * 60,
            {},
            "must hold numbers for these models. For labels use classifiers",
        ),
        (
            [fe.LinearRegression()],
            np.empty((120, 2, 2)),
            {},
            r"a number, or a row of them, for each row. Got the shape \(120, 2, 2\)",
        ),
        (
            [fe.LinearRegression()],
            np.column_stack([Y, np.ones(120)]),
            {},
            "The answers in column 1 of y are all 1: there is nothing to predict",
        ),
        (
            [fe.LinearRegression()],
            np.column_stack([Y, Y]),
            {"support": fe.Support(["continuous"])},
            "must be None where y has several columns",
        ),
        (
            [fe.LinearRegression()],
            np.where(np.arange(120) == 3, np.nan, Y),
            {},
            "must be finite. Got nan in row 3",
        ),
        (
            [fe.LinearRegression()],
            np.full(120, 4.0),
            {},
            "The answers y are all 4: there is nothing to predict",
        ),
        ([fe.LinearRegression()], Y[:50], {}, "inconsistent numbers of samples"),
        (
            [fe.LinearRegression()],
            Y,
            {"support": fe.Support(["integer"] * 3)},
            "must be a Support of one column, that of y",
        ),
        (
            [fe.LinearRegression()],
            Y,
            {"level": 1.5},
            r"'level' parameter of compare must be a float in the range \(0, 1\)",
        ),
        ([fe.LinearRegression()], Y, {"horizon": 3}, "needs models of series"),
    ],
)
def test_refuses_with_a_sentence(models, y, options, message):
    with pytest.raises(ValueError, match=message):
        fe.compare(models, X, y, random_state=0, **options)


def test_models_that_do_not_suit_the_answers():
    models = [fe.LinearRegression(), fe.GaussianDensity()]
    errors = [line.error for line in fe.compare(models, X, Y, cv=2, random_state=0).table()]
    assert errors == [None, "GaussianDensity gives no law of y given X."]
    labels = (Y > 4).astype(int)
    models = [fe.LinearRegression(), fe.DiscriminantAnalysis()]
    errors = [line.error for line in fe.compare(models, X, labels, cv=2, random_state=0).table()]
    assert errors[0] is None
    assert "gives the law of a number, and y is taken for labels" in errors[1]


def test_predictions_of_labels_are_measured():
    two, three = (Y > 4).astype(int), np.digitize(Y, [2.0, 5.0])
    for labels in (two, three, np.array(["a", "b", "c"])[three]):
        board = fe.compare(
            {"ours": fe.DiscriminantAnalysis(), "other": LogisticRegression(max_iter=5000)},
            X,
            labels,
            cv=3,
            random_state=0,
        )
        assert {line.model for line in board.predictions()} == {"ours", "other"}
        for line in board.predictions():
            model = {"ours": fe.DiscriminantAnalysis(), "other": LogisticRegression(max_iter=5000)}[
                line.model
            ]
            parts = [(labels[b], model.fit(X[a], labels[a]).predict_proba(X[b])) for a, b in _folds()]
            truth, shares = (np.concatenate(part) for part in zip(*parts, strict=True))
            np.testing.assert_allclose(line.measures["log loss"].value, log_loss(truth, shares), rtol=1e-6)
            area = roc_auc_score(truth, shares if shares.shape[1] > 2 else shares[:, 1], multi_class="ovr")
            np.testing.assert_allclose(line.measures["AUC"].value, area, rtol=1e-9)
            right = np.mean(np.unique(labels)[shares.argmax(axis=1)] == truth)
            np.testing.assert_allclose(line.measures["right"].value, right)


def test_folds_survive_their_files_and_are_resumed(board, tmp_path):
    result = board.results[0]
    again = decode(encode(result))
    np.testing.assert_array_equal(again.predicted, result.predicted)
    for name, values in result.effects.items():
        np.testing.assert_array_equal(again.effects[name], values)
    first = fe.compare(MODELS, X, Y, cv=3, random_state=0, resume=tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    second = fe.compare(MODELS, X, Y, cv=3, random_state=0, resume=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    assert first.predictions() == second.predictions()


def test_rows_kept_apart_groups_and_one_split():
    board = fe.compare(
        MODELS, X, Y, test_size=0.25, final_size=0.2, groups=np.repeat(np.arange(30), 4), random_state=0
    )
    assert board.final is not None
    assert board.final.model == "line"
    assert board.predictions()[0].rows == len(board.results[0].rows)
    assert {
        len(set(np.repeat(np.arange(30), 4)[r.rows]) & set(np.repeat(np.arange(30), 4)[board.final.rows]))
        for r in board.results
    } == {0}


def test_several_answers_of_a_row_have_one_joint_density(tmp_path):
    pair = np.column_stack([Y, 100 * (Y + RNG.normal(0, 1.0, 120))])
    models = {"none": fe.BaseRate(), "line": fe.LinearRegression()}
    board = fe.compare(models, X, pair, cv=3, random_state=0)
    assert [line.model for line in board.table()] == ["line", "none"]
    assert board.dimension == 2
    parts = [(b, fe.LinearRegression().fit(X[a], pair[a])) for a, b in _folds()]
    nats = np.concatenate([model.evidence(X[b], pair[b]).nats for b, model in parts])
    line = board.table()[0]
    np.testing.assert_allclose(line.bits, -nats.mean() / LN2, rtol=1e-9)
    np.testing.assert_allclose(line.bits_per_dimension, line.bits / 2)
    # errors are in standard deviations of each
    gap = np.concatenate([pair[b] - model.predict(X[b]) for b, model in parts]) / pair.std(axis=0)
    found = board.predictions()[0]
    assert found.rows == 120
    np.testing.assert_allclose(found.measures["RMSE"].value, np.sqrt(np.mean(gap**2)))
    inside = []
    for b, model in parts:
        low, high = model.predict_interval(X[b], 0.9)
        inside.append((low <= pair[b]) & (pair[b] <= high))
    np.testing.assert_allclose(found.measures["in 90%"].value, np.concatenate(inside).mean())
    assert "joint density of the 2 answers" in board.notes[0]
    again = decode(encode(board.results[0]))
    np.testing.assert_array_equal(again.predicted, board.results[0].predicted)
    board.to_html(tmp_path / "report.html")
    assert "<svg" in (tmp_path / "report.html").read_text("utf-8")
