"""`set_output` wherever there is a `transform`, as scikit-learn has it; and what is predicted of frames."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import CASES
from data import ROWS
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier, StackingRegressor, VotingClassifier, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline

import freeenergy as fe
from freeenergy.shell import (
    AnswerColumns,
    Predicts,
    PredictsProbabilities,
    Transforms,
    framed,
    framed_chances,
    framed_ends,
)

NAMES = [name for name, case in CASES.items() if isinstance(case.estimator, Transforms) and not case.slow]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_transform_gives_the_library_that_was_chosen(name):
    case = CASES[name]
    rows = (ROWS > 0).astype(float) if case.points is not None or case.counts else ROWS
    estimator = clone(case.estimator)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    frame = pd.DataFrame(rows, columns=["a", "b"], index=[f"row {i}" for i in range(len(rows))])
    fitted = estimator.fit(frame)
    plain = np.asarray(fitted.transform(frame), float)
    titles = fitted.get_feature_names_out().tolist()
    asked = fitted.set_output(transform="pandas").transform(frame)
    assert isinstance(asked, pd.DataFrame)
    assert asked.columns.tolist() == titles
    assert asked.index.equals(frame.index)
    np.testing.assert_array_equal(asked.to_numpy(), plain)
    other = fitted.set_output(transform="polars").transform(frame)
    assert isinstance(other, pl.DataFrame)
    assert other.columns == titles
    np.testing.assert_array_equal(other.to_numpy(), plain)
    # a clone is set as its original
    assert isinstance(clone(fitted).fit(frame).transform(frame), pl.DataFrame)
    # what else is asked does not depend on it
    latent = fitted.latent(frame)
    assert latent is None or isinstance(latent, np.ndarray)
    np.testing.assert_array_equal(fitted.set_output(transform="default").transform(frame), plain)


def test_pipelines_pass_it_on():
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    line = make_pipeline(fe.Imputer(), fe.PCA(1)).set_output(transform="pandas")
    assert line.fit_transform(frame).columns.tolist() == ["pca0"]


PLACES = pd.Index([f"row {i}" for i in range(len(ROWS))], name="place")
FRAME = pd.DataFrame(ROWS, PLACES, ["a", "b"])
SIZES = ROWS @ [1.0, 2.0] + np.random.default_rng(0).normal(size=len(ROWS))
KINDS = np.where(SIZES > 0, "high", "low")


@pytest.mark.parametrize(
    "answers",
    [
        pd.Series(pd.Categorical(KINDS, ["low", "middle", "high"], ordered=True), PLACES, name="kind"),
        pd.Series(KINDS, PLACES),
        pd.Series(SIZES > 0, PLACES, name="kind"),
        pd.Series((SIZES > 0) * 1, PLACES, dtype="Int64", name="kind"),
        pd.Series((SIZES > 0) * 1, PLACES, dtype="int8", name=("of", 2)),
        # no float has so many digits
        pd.Series(2**60 + (SIZES > 0) * 1, PLACES, name="number"),
        pd.Series(pd.to_datetime(np.where(SIZES > 0, "2024-01-01", "2025-01-01")), PLACES, name="when"),
    ],
    ids=lambda answers: str(answers.dtype),
)
def test_labels_of_pandas_are_those_of_the_fit(answers):
    model = fe.NaiveBayes().fit(FRAME, answers)
    found = model.predict(FRAME)
    assert isinstance(found, pd.Series)
    assert found.dtype == answers.dtype
    assert found.name == answers.name
    assert found.index.equals(PLACES)
    assert found.index.name == "place"
    # the labels themselves, and as many right as score says
    assert set(found) == set(answers)
    assert 0.5 < (found == answers).mean() == model.score(FRAME, answers)
    shares = model.set_output(predict_proba="pandas").predict_proba(FRAME)
    np.testing.assert_array_equal(shares.idxmax(axis=1).to_numpy(), found.to_numpy())
    assert shares.index.equals(PLACES)


@pytest.mark.parametrize(
    "answers",
    [
        pl.Series("kind", KINDS),
        pl.Series("kind", KINDS, dtype=pl.Enum(["low", "middle", "high"])),
        pl.Series("kind", KINDS.tolist(), dtype=pl.Categorical),
        pl.Series("kind", SIZES > 0),
        pl.Series("kind", ((SIZES > 0) * 1).astype("int8")),
        pl.Series("number", 2**60 + (SIZES > 0) * 1),
    ],
    ids=lambda answers: str(answers.dtype.base_type()),
)
def test_labels_of_polars_are_those_of_the_fit(answers):
    frame = pl.DataFrame(ROWS, schema=["a", "b"])
    model = fe.NaiveBayes().fit(frame, answers)
    found = model.predict(frame)
    assert isinstance(found, pl.Series)
    assert found.dtype == answers.dtype
    assert found.name == answers.name
    assert set(found) == set(answers)
    assert 0.5 < (found == answers).mean() == model.score(frame, answers)
    shares = model.set_output(predict_proba="polars").predict_proba(frame)
    assert shares.columns == [str(label) for label in model.classes_]


def test_numbers_have_the_names_of_the_fit():
    model = fe.LinearRegression().fit(FRAME, pd.Series(SIZES, PLACES, name="size"))
    plain = fe.LinearRegression().fit(ROWS, SIZES)
    found, (low, high) = model.predict(FRAME), model.predict_interval(FRAME, 0.8)
    assert [column.name for column in (found, low, high)] == ["size", "lower", "upper"]
    np.testing.assert_array_equal(found.to_numpy(), plain.predict(ROWS))
    for end, other in zip((low, high), plain.predict_interval(ROWS, 0.8), strict=True):
        assert end.index.equals(PLACES)
        np.testing.assert_array_equal(end.to_numpy(), other)
    both = pd.DataFrame({"size": SIZES, "minus": -SIZES}, PLACES)
    model = fe.LinearRegression().fit(FRAME, both)
    for told in (model.predict(FRAME), *model.predict_interval(FRAME)):
        assert told.columns.tolist() == ["size", "minus"]
        assert told.index.equals(PLACES)
    # of whole numbers the mean is none
    whole = fe.LinearRegression().fit(FRAME, pd.Series(np.rint(SIZES).astype(int), PLACES))
    assert whole.predict(FRAME).dtype == float
    # rows of another library come in that
    frame = pl.DataFrame(ROWS, schema=["a", "b"])
    assert model.predict(frame).columns == ["size", "minus"]


def test_columns_of_several_labels_have_their_types():
    answers = pd.DataFrame(
        {"kind": pd.Categorical(KINDS, ["low", "middle", "high"]), "up": SIZES > 1}, PLACES
    )
    model = fe.MultiLabel(fe.NaiveBayes()).fit(FRAME, answers)
    found = model.predict(FRAME)
    assert found.dtypes.to_dict() == answers.dtypes.to_dict()
    assert found.index.equals(PLACES)
    assert 0.5 < (found == answers).all(axis=1).mean() == model.score(FRAME, answers)
    kinds, ups = model.set_output(predict_proba="pandas").predict_proba(FRAME)
    assert kinds.columns.tolist() == ["high", "low"]
    assert ups.columns.tolist() == [False, True]


def test_clusters_have_the_index_and_no_name():
    for model in (fe.KMeans(2, random_state=0), fe.GaussianMixture(2, random_state=0)):
        found = model.fit(FRAME).predict(FRAME)
        assert (found.name, found.dtype.kind) == (None, "i")
        assert found.index.equals(PLACES)
        np.testing.assert_array_equal(found.to_numpy(), clone(model).fit(ROWS).predict(ROWS))
    together = fe.KMeans(2).fit_predict(FRAME)
    assert together.index.equals(PLACES)
    shares = model.set_output(predict_proba="pandas").predict_proba(FRAME)
    assert shares.columns.tolist() == [0, 1]


def test_answers_of_arrays_are_arrays_unless_others_are_chosen():
    model = fe.LinearRegression().fit(FRAME, SIZES)
    assert isinstance(model.predict(FRAME), np.ndarray)
    assert isinstance(model.predict_interval(FRAME)[0], np.ndarray)
    assert model.set_output(predict="pandas").predict(FRAME).index.equals(PLACES)
    # a clone is set as its original, and so is what a file has
    assert isinstance(clone(model).fit(FRAME, SIZES).predict(FRAME), pd.Series)
    assert isinstance(model.set_output(predict="polars").predict(FRAME), pl.Series)
    told = pd.Series(SIZES, PLACES, name="size")
    assert isinstance(clone(model).set_output(predict="numpy").fit(FRAME, told).predict(FRAME), np.ndarray)
    assert isinstance(clone(model).set_output(predict="default").fit(FRAME, told).predict(FRAME), pd.Series)
    assert isinstance(fe.LinearRegression().fit(ROWS, told).predict(ROWS), np.ndarray)


def test_files_keep_what_answers_are_called(tmp_path):
    kinds = pd.Series(pd.Categorical(KINDS, ["low", "middle", "high"]), PLACES, name="kind")
    model = fe.NaiveBayes().fit(FRAME, kinds).set_output(predict_proba="pandas")
    model.save(tmp_path / "model.safetensors")
    again = fe.load(tmp_path / "model.safetensors")
    pd.testing.assert_series_equal(again.predict(FRAME), model.predict(FRAME))
    pd.testing.assert_frame_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))


def test_labels_of_earlier_parts_are_kept():
    first, second = KINDS == "high", KINDS == "low"
    model = fe.NaiveBayes()
    for rows, label in ((first, "high"), (second, "low")):
        part = pd.Series(pd.Categorical([label] * rows.sum(), [label]), PLACES[rows], name="kind")
        model.partial_fit(FRAME[rows], part)
    found = model.predict(FRAME)
    assert found.cat.categories.tolist() == ["low", "high"]
    assert not found.isna().any()
    assert (found == KINDS).mean() > 0.5


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (fe.NaiveBayes(), {"transform": "pandas"}, "NaiveBayes has no transform of which set_output could"),
        (
            fe.KMeans(2),
            {"predict_proba": "pandas"},
            "KMeans has no predict_proba of which set_output could",
        ),
        # of series it is in the frame that came
        (
            fe.HMM(2),
            {"predict": "pandas"},
            "HMM has no predict of which set_output could choose the library",
        ),
        (
            fe.NaiveBayes(),
            {"predict": "frame"},
            "The 'predict' of NaiveBayes.set_output must be one of 'default', 'numpy', 'pandas', 'polars', "
            "or None. Got 'frame' instead.",
        ),
    ],
)
def test_what_cannot_be_chosen(model, given, message):
    with pytest.raises(ValueError, match=message):
        model.set_output(**given)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_estimators_of_scikit_learn_take_ours_with_frames(library):
    if library == "pandas":
        frame, sizes = FRAME, pd.Series(SIZES, PLACES, name="size")
        kinds = pd.Series(pd.Categorical(KINDS), PLACES, name="kind")
    else:
        frame, sizes = pl.DataFrame(ROWS, schema=["a", "b"]), pl.Series("size", SIZES)
        kinds = pl.Series("kind", KINDS, dtype=pl.Enum(["low", "high"]))
    line, bayes = fe.LinearRegression(), fe.NaiveBayes()
    plain = clone(line).fit(ROWS, SIZES).predict(ROWS)
    sums = LinearRegression().fit(plain[:, None], SIZES)
    np.testing.assert_allclose(cross_val_predict(line, frame, sizes), cross_val_predict(line, ROWS, SIZES))
    assert cross_val_predict(bayes, frame, kinds).tolist() == cross_val_predict(bayes, ROWS, KINDS).tolist()
    for scoring in ("accuracy", "roc_auc", "neg_log_loss"):
        own = cross_val_score(bayes, frame, kinds, scoring=scoring)
        np.testing.assert_allclose(own, cross_val_score(bayes, ROWS, KINDS, scoring=scoring))
    search = GridSearchCV(fe.SoftmaxRegression(), {"C": [0.1, 1.0]}, scoring="roc_auc").fit(frame, kinds)
    assert type(search.predict(frame)) is type(kinds)
    stacked = StackingRegressor([("line", line)], final_estimator=LinearRegression(), cv=3)
    assert stacked.fit(frame, sizes).predict(frame).shape == SIZES.shape
    first = StackingRegressor(
        [("line", clone(line).fit(frame, sizes).set_output(predict="numpy"))], cv="prefit"
    )
    first.set_params(final_estimator=LinearRegression()).fit(frame, sizes)
    np.testing.assert_allclose(first.predict(frame), sums.predict(plain[:, None]))
    moved = TransformedTargetRegressor(line, func=np.negative, inverse_func=np.negative).fit(frame, sizes)
    np.testing.assert_allclose(moved.predict(frame), plain)
    voted = VotingRegressor([("one", line), ("two", clone(line))]).fit(frame, sizes)
    np.testing.assert_allclose(voted.predict(frame), plain)
    labels = clone(bayes).fit(ROWS, KINDS)
    for voting in ("hard", "soft"):
        found = VotingClassifier([("one", bayes), ("two", clone(bayes))], voting=voting).fit(frame, kinds)
        assert found.predict(frame).tolist() == labels.predict(ROWS).tolist()
    for together in (
        StackingClassifier([("bayes", bayes)], cv=3),
        CalibratedClassifierCV(bayes, cv=3),
        CalibratedClassifierCV(FrozenEstimator(clone(bayes).fit(frame, kinds))),
    ):
        assert together.fit(frame, kinds).score(frame, kinds) > 0.5
    if library == "pandas":
        clear = permutation_importance(
            labels.fit(frame, kinds), frame, kinds, scoring="roc_auc", random_state=0
        )
        other = permutation_importance(
            clone(bayes).fit(ROWS, KINDS), ROWS, KINDS, scoring="roc_auc", random_state=0
        )
        np.testing.assert_allclose(clear.importances, other.importances)
    # a step before it makes arrays of frames, or not
    steps = make_pipeline(fe.Imputer(), clone(line)).fit(frame, sizes)
    assert type(steps.predict(frame)) is type(sizes)


class Signs(Predicts, PredictsProbabilities, BaseEstimator):
    """An estimator of one's own, which works with arrays."""

    def fit(self, X, y):
        self.answer_columns_, self.classes_ = AnswerColumns.of(y), np.unique(y)
        return self

    @framed
    def predict(self, X):
        return self.classes_[(np.asarray(X)[:, 0] > 0).astype(int)]

    @framed_chances
    def predict_proba(self, X):
        return np.eye(2)[(np.asarray(X)[:, 0] > 0).astype(int)]

    @framed_ends
    def predict_interval(self, X, level=0.9):
        return np.asarray(X)[:, 0] - level, np.asarray(X)[:, 0] + level


def test_an_estimator_of_ones_own_works_with_arrays_and_gives_frames():
    model = Signs().fit(FRAME, pd.Series(pd.Categorical(KINDS), PLACES, name="kind"))
    found = model.predict(FRAME)
    assert (found.name, str(found.dtype)) == ("kind", "category")
    assert found.tolist() == np.where(ROWS[:, 0] > 0, "low", "high").tolist()
    low, high = model.predict_interval(FRAME, 0.5)
    assert (low.name, high.name) == ("lower", "upper")
    np.testing.assert_allclose((high - low).loc["row 3"], 1.0)
    assert isinstance(model.predict_proba(FRAME), np.ndarray)
    shares = model.set_output(predict_proba="pandas").predict_proba(FRAME)
    assert shares.loc["row 3", found["row 3"]] == 1.0
    # as arrays they are as they were
    assert isinstance(model.predict(ROWS), np.ndarray)
    assert isinstance(model.predict_interval(ROWS)[0], np.ndarray)
