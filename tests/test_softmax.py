"""Softmax regression as an estimator, beside scikit-learn's logistic regression."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import freeenergy as fe
from freeenergy.learning import Argmin, Boltzmann, Margin

X, y = load_iris(return_X_y=True)
Z = StandardScaler().fit_transform(X)


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
    draws = model.inputs_.sample(20_000, random_state=1, given=row)[:, 0]
    expected = model.predict_proba(draws).mean(axis=0)
    spread = model.predict_proba(draws).std(axis=0)
    np.testing.assert_array_less(
        np.abs(model.predict_proba(row)[0] - expected), 5 * spread / np.sqrt(20) + 1e-12
    )
    # learning from holes still predicts
    assert fe.SoftmaxRegression(random_state=0).fit(holes, y).score(X, y) > 0.9


def test_unknown_label_is_refused():
    model = fe.SoftmaxRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"must be among those that were fitted. Got 7 instead"):
        model.evidence(X[:1], [7])
