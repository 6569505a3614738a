"""Gaussian processes of labels beside scikit-learn, quadrature and finite differences."""

import jax
import numpy as np
import pytest
from data import ROWS
from scipy import integrate, special, stats
from sklearn import gaussian_process
from sklearn.gaussian_process import kernels as peer

import freeenergy as fe
from freeenergy import kernels as k
from freeenergy.estimators.labelled._gaussian_process_classifier import log_average_chance
from freeenergy.inference import LaplaceMethod
from freeenergy.inference._latent_processes import LabelLikelihood
from freeenergy.models import LatentProcess

RNG = np.random.default_rng(0)
X = ROWS
LABELS = np.where(X[:, 0] ** 2 + X[:, 1] + 0.4 * RNG.normal(size=len(X)) > 0.8, "out", "in")
NEW = RNG.normal(size=(6, 2))
PLAIN = {"standardise": False, "learn": False}


def test_evidence_and_probabilities_are_scikit_learns():
    ours = fe.GaussianProcessClassifier(2.0 * k.RBF([0.8, 1.5]), **PLAIN).fit(X, LABELS)
    other = gaussian_process.GaussianProcessClassifier(2.0 * peer.RBF([0.8, 1.5]), optimizer=None)
    other.fit(X, LABELS)
    assert abs(ours.log_evidence_ - other.log_marginal_likelihood_value_) < 1e-6
    # theirs approximates the average by five error functions
    np.testing.assert_allclose(ours.predict_proba(NEW), other.predict_proba(NEW), atol=2e-3)
    np.testing.assert_array_equal(ours.predict(X), other.predict(X))
    assert ours.evidence(X, LABELS).kind is fe.Kind.ESTIMATE
    place = (LABELS == "out").astype(int)
    expected = np.log(ours.predict_proba(X)[np.arange(len(X)), place])
    np.testing.assert_allclose(ours.evidence(X, LABELS).nats, expected, rtol=1e-9)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.5), (-2.0, 2.9), (1.0, 3.1), (4.0, 40.0), (-30.0, 1.0)])
def test_averages_of_chances_are_those_of_quadrature(mean, std):
    law = stats.norm(mean, std)
    points = [mean, 0.0, mean + 5 * std, mean - 5 * std]
    exact, _ = integrate.quad(
        lambda f: special.expit(f) * law.pdf(f), mean - 12 * std, mean + 12 * std, points=points, limit=500
    )
    found = np.exp(log_average_chance(np.array([mean]), np.array([std])))[0]
    assert abs(found - exact) < 1e-6 * max(exact, 1e-3)
    # the chances of both labels have sum one
    assert abs(found + np.exp(log_average_chance(np.array([-mean]), np.array([std])))[0] - 1) < 1e-6


def test_the_mode_is_a_maximum_and_the_slope_that_of_finite_differences():
    signs, weight = np.where(LABELS == "out", 1.0, -1.0), np.arange(len(X)) % 3 + 0.5
    gram = (1.5 * k.Matern(2.5)).gram(X)
    seen, method = LabelLikelihood(signs, weight), LaplaceMethod()
    found = method(gram, seen)
    # α is K⁻¹f̂ and the slope of the likelihood at once
    np.testing.assert_allclose(gram @ found.coefficients, found.mean, atol=1e-6)
    way = RNG.normal(size=(len(X), 5))
    way = way @ way.T
    slope = (method.slope(gram, seen, found).gram * way).sum()
    ends = [method(gram + s * 1e-5 * way, seen).log_evidence for s in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5)


def test_learning_raises_the_evidence_to_what_scikit_learn_finds():
    ours = fe.GaussianProcessClassifier().fit(X, LABELS)
    other = gaussian_process.GaussianProcessClassifier(1.0 * peer.RBF([1.0, 1.0]))
    other.fit(ours.scaling_.apply(X), LABELS)
    assert ours.log_evidence_ > other.log_marginal_likelihood_value_ - 1e-3
    assert ours.converged_
    assert ours.score(X, LABELS) > 0.9
    text = str(ours.summary())
    assert f"{ours.log_evidence_:.4f} nats (estimate" in text
    assert "free parameters  3" in text
    assert ours.kernel_.kernel.lengthscale.shape == (2,)
    assert ours.theta_.shape == (3,)


def test_weights_are_repetition():
    weight = np.arange(len(X)) % 3
    one = fe.GaussianProcessClassifier(k.RBF(), **PLAIN).fit(X, LABELS, sample_weight=weight)
    place = np.repeat(np.arange(len(X)), weight)
    other = fe.GaussianProcessClassifier(k.RBF(), **PLAIN).fit(X[place], LABELS[place])
    assert abs(one.log_evidence_ - other.log_evidence_) < 1e-9
    np.testing.assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-9)


def test_of_several_labels_each_has_a_process(tmp_path):
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    model = fe.GaussianProcessClassifier(2.0 * k.RBF(), **PLAIN).fit(X, labels)
    alone = [
        fe.GaussianProcessClassifier(2.0 * k.RBF(), **PLAIN).fit(X, labels == label) for label in range(3)
    ]
    assert abs(model.log_evidence_ - sum(one.log_evidence_ for one in alone)) < 1e-8
    chances = np.stack([one.predict_proba(NEW)[:, 1] for one in alone], axis=1)
    np.testing.assert_allclose(
        model.predict_proba(NEW), chances / chances.sum(axis=1, keepdims=True), rtol=1e-6
    )
    assert (model.predict(X) == labels).mean() > 0.9
    model.save(tmp_path / "model.safetensors")
    loaded = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))


def test_far_away_it_knows_nothing_and_holes_are_drawn():
    model = fe.GaussianProcessClassifier(4.0 * k.RBF(), **PLAIN).fit(X, LABELS)
    np.testing.assert_allclose(model.predict_proba([[100.0, 0.0]]), 0.5, atol=1e-9)
    holes = X.copy()
    holes[::7, 1] = np.nan
    drawn = fe.GaussianProcessClassifier(4.0 * k.RBF(), **PLAIN).fit(holes, LABELS)
    evidence = drawn.evidence(holes, LABELS)
    assert np.isfinite(evidence.nats).all()
    assert (evidence.stderr[::7] > 0).all()


def test_the_model_is_what_is_known_of_the_processes():
    model = fe.GaussianProcessClassifier(2.0 * k.RBF(), **PLAIN).fit(X, LABELS)
    mean, variance = jax.jit(LatentProcess.function)(model.model_, NEW[0])
    chance = np.exp(log_average_chance(np.asarray(mean), np.sqrt(variance)))
    np.testing.assert_allclose(chance[0], model.predict_proba(NEW[:1])[0, 1], rtol=1e-7)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"kernel": "rbf"}, LABELS, "must be an instance of AbstractKernel or None"),
        (
            {"learn": 2},
            LABELS,
            "'learn' parameter of GaussianProcessClassifier must be an",
        ),
        ({}, np.zeros(len(X), int), "needs rows of two classes or more. Got one class, 0"),
    ],
)
def test_what_is_refused(options, labels, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianProcessClassifier(**options).fit(X, labels)
