"""Sentences about a cell name the row and the column that the user has."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy._core import CellError, visible

COUNTS = np.random.default_rng(0).poisson(3.0, size=(40, 3)).astype(float)
NEGATIVE, INFINITE = COUNTS.copy(), COUNTS.copy()
NEGATIVE[17, 1] = -3
INFINITE[17, 1] = -np.inf
NAMES = ["size", "age", "n"]
LABELS = np.arange(40) % 2


def in_pandas(X):
    return pd.DataFrame(X, columns=NAMES, index=[f"person {i}" for i in range(len(X))])


CONTAINERS = {
    "row 17, column 1": np.asarray,
    "row 17, column 'age'": lambda X: pl.DataFrame(X, schema=NAMES),
    "row 'person 17', column 'age'": in_pandas,
}


def poissons():
    return fe.Mixture(2, family=d.Poisson, random_state=0)


@pytest.mark.parametrize("where", CONTAINERS)
@pytest.mark.parametrize(
    "fit",
    [
        lambda X: poissons().fit(X),
        lambda X: fe.NaiveBayes([d.Poisson] * 3).fit(X, LABELS),
        lambda X: fe.NaiveBayes(d.Poisson).fit(X, LABELS),
        lambda X: fe.HMM(2, family=d.Poisson).fit(X),
        lambda X: fe.Dequantised(poissons(), fe.Support(["integer"] * 3)).fit(X),
    ],
)
def test_a_value_outside_of_a_family_is_found_where_the_user_has_it(fit, where):
    with pytest.raises(CellError) as error:
        fit(CONTAINERS[where](NEGATIVE))
    assert str(error.value) == f"Poisson needs non-negative whole numbers. Got -3 in {where}."


@pytest.mark.parametrize("where", CONTAINERS)
@pytest.mark.parametrize(
    "fit",
    [
        lambda X: fe.GaussianDensity().fit(X),
        lambda X: fe.KMeans(2).fit(X),
        lambda X: fe.PCA(1).fit(X),
        lambda X: fe.HMM(2).fit(X),
        lambda X: fe.SoftmaxRegression().fit(X, LABELS),
        lambda X: fe.DiscriminantAnalysis().fit(X, LABELS),
        lambda X: fe.compare([fe.GaussianDensity()], X),
    ],
)
def test_infinity_is_found_where_the_user_has_it(fit, where):
    with pytest.raises(CellError, match="not infinity") as error:
        fit(CONTAINERS[where](INFINITE))
    assert str(error.value).endswith(f"Got -inf in {where}.")


def test_text_is_found_where_the_user_has_it():
    X = in_pandas(COUNTS).astype(object)
    X.iloc[5, 2] = "many"
    sentence = "X must hold numbers, or NaN where nothing was observed, not text. Got 'many' in "
    with pytest.raises(CellError) as error:
        fe.GaussianDensity().fit(X)
    assert str(error.value) == f"{sentence}row 'person 5', column 'n'."
    with pytest.raises(CellError) as error:
        fe.GaussianDensity().fit(X.to_numpy().tolist())
    assert str(error.value) == f"{sentence}row 5, column 2."


def test_steps_are_found_in_their_series():
    for X in ([INFINITE[10:], INFINITE[:10]], (INFINITE[10:], INFINITE[:10])):
        with pytest.raises(CellError, match=r"Got -inf in step 7 of series 0, column 1\.$"):
            fe.HMM(2).fit(X)
    with pytest.raises(CellError, match=r"Got -inf in step 17 of series 1, column 1\.$"):
        fe.HMM(2).fit(np.stack([INFINITE[20:], INFINITE[:20]]))
    with pytest.raises(CellError, match=r"Got -3 in step 2 of series 1, column 1\.$"):
        fe.HMM(2, family=d.Poisson).fit([NEGATIVE[:15], NEGATIVE[15:]])


def test_a_fraction_among_whole_numbers_is_found_by_every_call():
    model = fe.Dequantised(support=fe.Support(["integer"] * 3), random_state=0).fit(in_pandas(COUNTS))
    X = in_pandas(COUNTS)
    X.iloc[7, 2] = 0.5
    X.iloc[:, 0] = np.nan
    for call in (model.score_samples, model.impute, lambda X: model.sample(2, given=X)):
        with pytest.raises(CellError, match=r"Got 0\.5 in row 'person 7', column 'n'\.$"):
            call(X)


def test_a_comparison_names_rows_of_all_data_not_of_its_folds():
    for X, where in (
        (in_pandas(NEGATIVE), "row 'person 17', column 'age'"),
        (NEGATIVE, "row 17, column 'x1'"),
    ):
        board = fe.compare({"p": poissons(), "g": fe.GaussianDensity()}, X, cv=2, random_state=0)
        assert {r.error for r in board.results if r.model == "p"} - {None} == {
            f"Poisson needs non-negative whole numbers. Got -3 in {where}."
        }
    board = fe.compare({"p": fe.NaiveBayes(d.Poisson)}, NEGATIVE, LABELS, cv=2, random_state=0)
    assert any("Got -3 in row 17, column 'x1'." in (r.error or "") for r in board.results)


def test_an_error_comes_back_whole_from_another_process():
    error = CellError("No.", "x", 1).placed(3, in_pandas(COUNTS), names=NAMES)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "No. Got 'x' in row 'person 3', column 'age'."
    assert again.position == 3


def test_what_a_terminal_would_obey_is_shown_instead():
    assert visible("a\x1b[31m\x9b\u202e\u2028\ud800é [b]") == "a\\x1b[31m\\x9b\\u202e\\u2028\\ud800é [b]"
