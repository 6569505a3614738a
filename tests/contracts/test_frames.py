"""What is predicted of frames comes as columns of frames, of every estimator; and the contract notices."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import CASES
from data import ROWS
from sklearn.base import clone, is_classifier

import freeenergy as fe
from freeenergy.shell import Predicts, PredictsDensities
from freeenergy.testing import check_conditional_estimator, check_predictions_of_frames

LABELS = ["no", "never", "yes"]
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
    for name, case in CASES.items()
    # the contract of models of numbers looks at theirs
    if isinstance(case.estimator, Predicts)
    and not isinstance(case.estimator, PredictsDensities)
    and not case.sequence
]


def frames():
    """Rows with labels of a type that lists one more, in each library."""
    labels = np.array(LABELS)[2 * (np.arange(len(ROWS)) % 2)]
    index = [f"row {i}" for i in range(len(ROWS))]
    listed = pd.Categorical(labels, LABELS, ordered=True)
    yield pd.DataFrame(ROWS, index, ["a", "b"]), pd.Series(listed, index, name="kind"), labels
    kinds = pl.Series("kind", labels, dtype=pl.Enum(LABELS))
    yield pl.DataFrame(ROWS, schema=["a", "b"]), kinds, labels


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_predictions_of_frames(name):
    case = CASES[name]
    estimator = clone(case.estimator)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    for frame, kinds, labels in frames():
        if case.points is not None or case.symbols is not None or case.counts:
            frame = (
                (frame > 0) * 1.0 if isinstance(frame, pd.DataFrame) else frame.select((pl.all() > 0) * 1.0)
            )
        told = is_classifier(estimator)
        fitted = estimator.fit(frame, *([kinds] if told else []))
        check_predictions_of_frames(fitted, frame, kinds if told else None)
        found = fitted.predict(frame)
        # the same as of arrays, which names of columns do not go with
        plain = (
            clone(estimator).fit(frame.to_numpy(), *([labels] if told else [])).predict(frame.to_numpy())
        )
        np.testing.assert_array_equal(np.asarray(found), plain)


class PredictsArrays(fe.NaiveBayes):
    def predict(self, X):
        return np.asarray(super().predict(X))


class ForgetsTheIndex(fe.NaiveBayes):
    def predict(self, X):
        return super().predict(X).reset_index(drop=True)


class ForgetsTheName(fe.NaiveBayes):
    def predict(self, X):
        return super().predict(X).rename("answer")


class ForgetsTheType(fe.NaiveBayes):
    def predict(self, X):
        return super().predict(X).astype(object)


class SharesInFrames(fe.NaiveBayes):
    def predict_proba(self, X):
        return pd.DataFrame(super().predict_proba(X), X.index)


class SharesWithoutLabels(fe.NaiveBayes):
    def predict_proba(self, X):
        found = super().predict_proba(X)
        return found.set_axis([0, 1], axis=1) if isinstance(found, pd.DataFrame) else found

    predict_proba.asks_for_library = True


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (PredictsArrays, "must give a Series of it, not ndarray"),
        (ForgetsTheIndex, "must keep the index"),
        (ForgetsTheName, "must keep the name"),
        (ForgetsTheType, "must keep a type that lists labels"),
        (SharesInFrames, "must be arrays where nothing was chosen"),
        (SharesWithoutLabels, "must have a column for each label"),
    ],
)
def test_contract_can_fail(broken, message):
    frame, kinds, _ = next(frames())
    with pytest.raises(AssertionError, match=message):
        check_predictions_of_frames(broken().fit(frame, kinds), frame, kinds)


class EndsWithoutNames(fe.BaseRate):
    def predict_interval(self, X, level=0.9):
        low, high = super().predict_interval(X, level)
        return (low.rename(None), high) if isinstance(low, pd.Series) else (low, high)


class Arrays(fe.BaseRate):
    def predict(self, X):
        return np.asarray(super().predict(X))


@pytest.mark.parametrize(
    ("broken", "message"),
    [(EndsWithoutNames, "must keep the name"), (Arrays, "must give a Series of it")],
)
def test_contract_of_numbers_can_fail(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_conditional_estimator(broken())
