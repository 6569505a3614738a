"""Softmax regression as an estimator, beside scikit-learn's logistic regression."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import freeenergy as fe
from freeenergy._core import Status
from freeenergy.estimators.labelled._newton import Point, quasi_newton
from freeenergy.learning import Argmin, Boltzmann, Margin
from freeenergy.models import SoftmaxModel

X, y = load_iris(return_X_y=True)
Z = StandardScaler().fit_transform(X)


def completed(model, row, n):
    """Draws of a row whose missing entries come from the Gaussian of the inputs, by its covariance."""
    inputs, width = model.inputs_, row.shape[1]
    missing = np.isnan(row[0])
    mean, cov = inputs.mean[:width], inputs.covariance[:width, :width]
    gain = cov[np.ix_(missing, ~missing)] @ np.linalg.inv(cov[np.ix_(~missing, ~missing)])
    centre = mean[missing] + gain @ (row[0, ~missing] - mean[~missing])
    rest = cov[np.ix_(missing, missing)] - gain @ cov[np.ix_(~missing, missing)]
    draws = np.repeat(row, n, axis=0)
    draws[:, missing] = np.random.default_rng(1).multivariate_normal(centre, rest, n)
    return draws


def test_cross_entropy_is_logistic_regression():
    ours = fe.SoftmaxRegression(C=2.0).fit(X, y)
    theirs = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(Z, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(Z), atol=1e-5)
    evidence = ours.evidence(X, y)
    assert evidence.kind is fe.Kind.EXACT
    expected = np.log(theirs.predict_proba(Z))[np.arange(len(y)), y]
    np.testing.assert_allclose(evidence.nats, expected, atol=1e-4)
    # the coefficients in the units of the data give the same differences of energies
    scores = X @ ours.coef_.T + ours.intercept_
    np.testing.assert_allclose(scores, ours.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("phase", [Boltzmann(0.5), Argmin(), Margin()])
def test_other_negative_phases_classify(phase):
    model = fe.SoftmaxRegression(phase, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.93


@pytest.mark.slow
def test_missing_inputs_are_averaged_over():
    model = fe.SoftmaxRegression(random_state=0).fit(X, y)
    holes = np.where(np.random.RandomState(0).rand(*X.shape) < 0.3, np.nan, X)
    evidence = model.evidence(holes, y)
    assert evidence.kind is fe.Kind.ESTIMATE
    complete = ~np.isnan(holes).any(axis=1)
    assert (evidence.stderr[complete] == 0).all()
    assert (evidence.stderr[~complete] > 0).any()
    np.testing.assert_allclose(evidence.nats[complete], model.evidence(X, y).nats[complete])
    # by brute force: many draws from the Gaussian of the inputs
    row = holes[~complete][:1]
    draws = completed(model, row, 20_000)
    expected = model.predict_proba(draws).mean(axis=0)
    spread = model.predict_proba(draws).std(axis=0)
    np.testing.assert_array_less(
        np.abs(model.predict_proba(row)[0] - expected), 5 * spread / np.sqrt(20) + 1e-12
    )
    # learning from holes still predicts
    assert fe.SoftmaxRegression(random_state=0).fit(holes, y).score(X, y) > 0.9


def test_very_improbable_answers_keep_their_number_where_an_input_is_missing():
    far = np.random.RandomState(1).normal(size=(60, 2))
    two = (far[:, 0] + 0.3 * far[:, 1] > 0).astype(int)
    model = fe.SoftmaxRegression(C=1.0, random_state=0).fit(far, two)
    row = np.array([[5000.0, np.nan]])
    # the odds are exp of a Gaussian: −log p(0 | x) is the mean of the margin less half its variance
    draws = completed(model, row, 2000)
    margin = model.decision_function(draws)
    exact = margin.var() / 2 - margin.mean()
    evidence = model.evidence(row, [0])
    assert exact < -2000
    assert abs(evidence.nats[0] - exact) < 5 * evidence.stderr[0] + 0.2
    np.testing.assert_allclose(model.decision_function(row), -exact, atol=5 * evidence.stderr[0] + 0.2)


LINE = np.arange(20.0)[:, None]
SEPARABLE = {
    "complete": (LINE, LINE[:, 0] > 9),
    # one value of x has both answers, the others have one: quasi-separation
    "in part": (np.repeat([[0.0], [1.0], [2.0]], 8, axis=0), [0] * 8 + [0, 1] * 4 + [1] * 8),
    # the first kind of iris can be told from the others, which overlap
    "one of three": (X, y),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_separable_rows_without_a_penalty_warn(name):
    rows, answers = SEPARABLE[name]
    model = fe.SoftmaxRegression(C=None)
    with pytest.warns(ConvergenceWarning, match=r"rows are separable .* grow without bound; set C"):
        model.fit(rows, answers)
    assert not model.converged_
    assert fe.SoftmaxRegression(C=1.0).fit(rows, answers).converged_


def test_rows_that_overlap_do_not_warn():
    rng = np.random.default_rng(0)
    for scale in (1.0, 8.0):  # nearly separable: most rows are certain
        rows = rng.normal(size=(200, 1))
        answers = rng.random(200) < 1 / (1 + np.exp(-scale * rows[:, 0]))
        model = fe.SoftmaxRegression(C=None).fit(rows, answers)
        assert model.converged_
        theirs = LogisticRegression(C=1e10, tol=1e-10, max_iter=5000).fit(rows, answers)
        np.testing.assert_allclose(model.coef_[1] - model.coef_[0], theirs.coef_[0], rtol=1e-3)


def test_of_two_equal_answers_the_second_is_predicted_and_of_three_the_first():
    pair = fe.SoftmaxRegression().fit([[-1.0], [1.0], [-1.0], [1.0]], [-1, -1, 1, 1])
    np.testing.assert_allclose(pair.decision_function([[0.0]]), 0, atol=1e-12)
    pair.model_ = SoftmaxModel(np.zeros((2, 1)), np.zeros(2))
    assert pair.predict([[0.5]]).tolist() == [1]
    three = fe.SoftmaxRegression().fit([[0.0], [1.0], [2.0]], ["a", "b", "c"])
    three.model_ = SoftmaxModel(np.zeros((3, 1)), np.zeros(3))
    assert three.predict([[0.5]]).tolist() == ["a"]


def test_unknown_label_is_refused():
    model = fe.SoftmaxRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"must be among those that were fitted. Got 7 instead"):
        model.evidence(X[:1], [7])


def test_labels_in_the_rows_are_columns_of_zeros_and_ones():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "port": rng.choice(["Cherbourg", "Queenstown", "Southampton"], 150),
            "age": rng.normal(30.0, 10.0, 150),
            "sex": rng.choice(["f", "m"], 150),
        }
    )
    chance = 1 / (1 + np.exp(2 * (frame["sex"] == "m") - (frame["port"] == "Queenstown") - 0.5))
    answer = np.where(rng.random(150) < chance, "yes", "no")
    model = fe.SoftmaxRegression().fit(frame, answer)
    assert model.columns_ == ["port=Queenstown", "port=Southampton", "age", "sex"]
    # scikit-learn's columns of zeros and ones
    encoded = OneHotEncoder(drop="first", sparse_output=False).fit_transform(frame[["port", "sex"]])
    scaled = StandardScaler().fit_transform(np.column_stack([encoded[:, :2], frame["age"], encoded[:, 2]]))
    theirs = LogisticRegression(tol=1e-10, max_iter=5000).fit(scaled, answer)
    # two answers have one row of weights there, and two of half its size here
    ours = fe.SoftmaxRegression(C=0.5).fit(frame, answer)
    np.testing.assert_allclose(ours.predict_proba(frame), theirs.predict_proba(scaled), atol=1e-5)
    # what is not known of a row is averaged over
    holes = frame.assign(port=frame["port"].mask(np.arange(150) < 5))
    found = ours.evidence(holes, answer)
    assert found.kind is fe.Kind.ESTIMATE
    assert np.isfinite(found.nats).all()
    np.testing.assert_allclose(found.nats[5:], ours.evidence(frame, answer).nats[5:], rtol=1e-9)
    with pytest.raises(ValueError, match=r"Got 'Belfast' in row 0, column 'port'"):
        ours.predict(frame.assign(port="Belfast"))
    assert fe.SoftmaxRegression().fit(X, y).columns_ == ["x0", "x1", "x2", "x3"]


def test_a_single_answer_is_certain():
    rows = X[:20]
    model = fe.SoftmaxRegression().fit(rows, ["yes"] * 20)
    np.testing.assert_array_equal(model.predict_proba(rows), np.ones((20, 1)))
    np.testing.assert_array_equal(model.decision_function(rows), np.zeros((20, 1)))
    assert set(model.predict(rows)) == {"yes"}


def many_rows(labels, hidden):
    """Rows of which a first fit is made to some: with a column far from zero, a rare and a heavy one.

    With `hidden` these do not show what a column does.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90_000, 6))
    x[:, 0] += 1e4
    x[:, 1] = np.exp(2 * x[:, 1])
    x[:, 2] = rng.random(len(x)) < 1e-3
    if hidden:
        x[::4, 3] = 0.0
    scores = np.outer(x[:, 4] + x[:, 3] + x[:, 2], np.arange(labels)) + rng.gumbel(size=(len(x), labels))
    return x, scores.argmax(axis=1), rng.exponential(size=len(x))


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("C", [1.0, None])
@pytest.mark.parametrize("hidden", [False, True])
def test_of_many_rows_no_slope_is_left(labels, C, hidden):
    x, answers, weight = many_rows(labels, hidden)
    model = fe.SoftmaxRegression(C=C).fit(x, answers, sample_weight=weight)
    assert model.converged_
    assert model.n_iter_ == len(model.history_["objective"]) - 1
    # the objective is concave: where all slopes vanish is its maximum
    z = np.column_stack([np.ones(len(x)), (x - model.scaling_.shift) / model.scaling_.scale])
    w = np.column_stack([model.model_.bias, model.model_.weight])
    chances = np.exp(z @ w.T)
    chances /= chances.sum(axis=1, keepdims=True)
    slope = ((answers[:, None] == np.arange(labels)) - chances).T @ (z * weight[:, None])
    slope[:, 1:] -= (0.0 if C is None else 1 / C) * w[:, 1:]
    # in standard deviations of its own
    spread = np.sqrt((weight[:, None] * chances * (1 - chances)).T @ z**2)
    assert np.abs(slope / spread).max() < 1e-5
    expected = np.average(np.log(chances[np.arange(len(x)), answers]), weights=weight)
    expected -= 0.0 if C is None else 0.5 / C * (w[:, 1:] ** 2).sum() / weight.sum()
    # the last step, far below a standard error, is not looked at
    np.testing.assert_allclose(-model.history_["objective"][-1], expected, rtol=1e-9)
    assert np.isfinite(model.standard_errors_).all() == (C is None)


def test_many_rows_with_one_answer():
    model = fe.SoftmaxRegression().fit(np.arange(90_000.0)[:, None], np.full(90_000, "a"))
    assert model.coef_.tolist() == [[0.0]]


def test_steps_by_the_information_of_other_rows():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(40, 5))
    true, goal = root.T @ root, rng.normal(size=5)

    def at(b):
        return Point(-0.5 * float((b - goal) @ true @ (b - goal)), true @ (goal - b), np.zeros((0, 0)))

    about = true + 2.0 * np.diag(rng.random(5))
    found = quasi_newton(at, np.zeros(5), about, max_iter=50, tol=1e-12)
    assert found.status is Status.CONVERGED
    gap = found.coefficients - goal
    assert gap @ true @ gap < 1e-12
    # a quadratic of five coefficients takes six steps, and the first goes by what it was given
    assert found.n_iter <= 6
    np.testing.assert_array_equal(found.history, np.sort(found.history))
    # what is far off, too long or no information ends where it is no worse than at the start
    for wrong in (100 * true, 0.01 * true, -true, np.zeros((5, 5))):
        found = quasi_newton(at, np.zeros(5), wrong, max_iter=50, tol=1e-12)
        assert found.status is Status.LIMIT
        assert found.at.value >= at(np.zeros(5)).value
    assert quasi_newton(at, np.zeros(5), about, max_iter=2, tol=1e-12).n_iter <= 2


def test_heavy_rows_do_not_make_a_bounded_likelihood_look_unbounded():
    # without their weights the coefficients are far from where a step of Newton's method would lead
    rng = np.random.default_rng(3)
    rare = np.zeros(200_000)
    rare[:40] = 1.0
    x = np.column_stack([rare, rng.normal(size=200_000)])
    answers = (rng.random(200_000) < 0.002).astype(int)
    answers[:20] = 1
    weight = np.where(answers * rare > 0, 1e-3, 1.0)
    model = fe.SoftmaxRegression(C=None).fit(x, answers, sample_weight=weight)
    assert model.converged_
    table = [np.array([weight[(rare == r) & (answers == a)].sum() for a in (0, 1)]) for r in (0, 1)]
    odds = [np.log(part[1] / part[0]) for part in table]
    # nearly that of the table of two by two, since the other column says nothing
    np.testing.assert_allclose(model.coef_[1, 0] - model.coef_[0, 0], odds[1] - odds[0], rtol=0.02)
