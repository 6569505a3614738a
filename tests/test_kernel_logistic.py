"""Logistic regression in the features of a kernel beside scikit-learn's, and other ways to the maximum."""

import numpy as np
import pytest
from data import ROWS
from scipy import optimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

import freeenergy as fe
from freeenergy import kernels as k
from freeenergy.estimators.labelled._kernel_logistic import softmax_in_features

RNG = np.random.default_rng(0)
X = ROWS
TWO = np.where(X[:, 0] ** 2 + X[:, 1] + 0.4 * RNG.normal(size=len(X)) > 0.8, "out", "in")
THREE = np.digitize(X[:, 0] + 0.3 * RNG.normal(size=len(X)), [-0.5, 0.5])
NEW = RNG.normal(size=(6, 2))


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_with_a_linear_kernel_it_is_logistic_regression(labels):
    ours = fe.KernelLogisticRegression(k.Linear(), C=0.7, standardise=False).fit(X, labels)
    other = LogisticRegression(C=0.7, fit_intercept=False, tol=1e-12, max_iter=5000).fit(X, labels)
    np.testing.assert_allclose(ours.predict_proba(NEW), other.predict_proba(NEW), atol=1e-6)
    weight = np.arange(len(X)) % 3
    ours.fit(X, labels, sample_weight=weight)
    other.fit(X, labels, sample_weight=weight)
    np.testing.assert_allclose(ours.predict_proba(NEW), other.predict_proba(NEW), atol=1e-6)
    assert ours.converged_
    assert ours.evidence(X, labels).kind is fe.Kind.EXACT


def test_the_scores_are_a_maximum():
    rows, labels = X[:12], THREE[:12]
    gram = (1.5 * k.RBF(0.8)).gram(rows)
    found = softmax_in_features(gram, labels, np.ones(12), 3, 100, 1e-14)

    def loss(flat):
        a = flat.reshape(12, 3)
        f = gram @ a
        return 0.5 * (a * f).sum() - log_softmax(f, axis=1)[np.arange(12), labels].sum()

    best = optimize.minimize(loss, np.zeros(36), options={"gtol": 1e-7})
    assert abs(found.value + best.fun) < 1e-6
    # at the maximum coefficients are what the labels have more than their probabilities
    chance = np.exp(log_softmax(found.scores, axis=1))
    np.testing.assert_allclose(found.coefficients, np.eye(3)[labels] - chance, atol=1e-6)


def test_two_labels_have_the_likeliest_function_of_the_process():
    model = fe.KernelLogisticRegression(k.RBF(), C=2.0, standardise=False).fit(X, TWO)
    process = fe.GaussianProcessClassifier(2.0 * k.RBF(), standardise=False, learn=False).fit(X, TWO)
    np.testing.assert_allclose(model.decision_function(NEW), process._process.at(NEW)[0][:, 0], atol=1e-7)
    chance = model.predict_proba(NEW)[:, 1]
    np.testing.assert_allclose(np.log(chance / (1 - chance)), model.decision_function(NEW), atol=1e-7)
    assert model.score(X, TWO) > 0.85
    assert model.kernel_.lengthscale == 1.0


def test_files_holes_and_what_is_refused(tmp_path):
    holes = X.copy()
    holes[::7, 1] = np.nan
    model = fe.KernelLogisticRegression(C=3.0).fit(holes, THREE)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        fe.load(tmp_path / "model.safetensors").predict_proba(NEW), model.predict_proba(NEW)
    )
    assert (model.evidence(holes, THREE).stderr[::7] > 0).all()
    with pytest.raises(ValueError, match="'C' parameter of KernelLogisticRegression must be a"):
        fe.KernelLogisticRegression(C=0.0).fit(X, TWO)
    with pytest.warns(UserWarning, match="KernelLogisticRegression"):
        fe.KernelLogisticRegression(C=1e3, max_iter=1).fit(X, THREE)
