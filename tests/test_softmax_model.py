"""Linear energies over answers: gradients by hand, the perceptron rule, and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from freeenergy.learning import (
    LBFGS,
    MAP,
    Argmin,
    Batch,
    Boltzmann,
    ConditionalContrastive,
    Gradient,
    Margin,
    fit,
)
from freeenergy.models import SoftmaxModel

X = np.array([[1.0, 2.0]])
MODEL = SoftmaxModel(jnp.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]]), jnp.array([0.1, 0.0, -0.2]))


def loss(model, x, y, phase):
    batch = Batch((jnp.asarray(x), jnp.asarray(y)), jnp.full(len(x), 1 / len(x)))
    return ConditionalContrastive(phase)(model, batch, jax.random.key(0))


def test_energies_of_all_answers_are_those_of_each():
    for y in range(3):
        by_hand = -sum(float(w) * x for w, x in zip(MODEL.weight[y], X[0], strict=True)) - float(
            MODEL.bias[y]
        )
        assert float(MODEL.energies(jnp.asarray(X[0]))[y]) == pytest.approx(by_hand, abs=1e-15)
        assert float(MODEL.energy(jnp.asarray(X[0]), jnp.asarray(y))) == pytest.approx(by_hand, abs=1e-15)


def test_cross_entropy_gradient_is_onehot_minus_probabilities():
    # cho C10, with e = −(Wx + b): the derivative in the energies is onehot − p, in b its negative
    slope = jax.grad(loss)(MODEL, X, [1], Boltzmann())
    scores = np.asarray(MODEL.weight) @ X[0] + np.asarray(MODEL.bias)
    p = np.exp(scores) / np.exp(scores).sum()
    gap = np.array([0.0, 1.0, 0.0]) - p
    np.testing.assert_allclose(slope.bias, -gap, atol=1e-15)
    np.testing.assert_allclose(slope.weight, -np.outer(gap, X[0]), atol=1e-15)
    assert abs(float(slope.bias.sum())) < 1e-15
    np.testing.assert_allclose(MODEL.posterior(jnp.asarray(X[0])).probabilities, p, rtol=1e-14)
    np.testing.assert_allclose(MODEL.log_prob_of(jnp.array(1), jnp.asarray(X[0])), np.log(p[1]), rtol=1e-14)
    # what the model expects of the gradient is nothing
    expected = sum(p[y] * jax.grad(loss)(MODEL, X, [y], Boltzmann()).weight for y in range(3))
    np.testing.assert_allclose(expected, 0, atol=1e-15)


def test_the_perceptron_rule_moves_both_energies_by_the_same_amount(key):
    # cho B3: x = (1, 2), η = 0.1: the right energy falls, the predicted one rises, by η(‖x‖² + 1)
    start = SoftmaxModel(jnp.array([[0.0, 0.1], [0.0, 0.0]]), jnp.zeros(2))
    learner = Gradient(optax.sgd(0.1), ConditionalContrastive(Argmin()), batch_size=1)
    one = fit(start, learner, (X, np.array([1])), key=key, max_iter=1).model
    before, after = start.energies(jnp.asarray(X[0])), one.energies(jnp.asarray(X[0]))
    np.testing.assert_allclose(after - before, [0.6, -0.6], atol=1e-12)
    right = fit(start, learner, (X, np.array([0])), key=key, max_iter=1).model
    np.testing.assert_array_equal(right.weight, start.weight)


@pytest.mark.slow
def test_perceptron_and_margin_separate_what_can_be_separated(key):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2)) * 0.3 + np.repeat([[0, 3], [3, 0], [-3, -3]], 30, axis=0)
    y = np.repeat([0, 1, 2], 30)
    for phase in (Argmin(), Margin()):
        learner = Gradient(optax.sgd(0.1), ConditionalContrastive(phase), batch_size=1)
        model = fit(
            SoftmaxModel(jnp.zeros((3, 2)), jnp.zeros(3)), learner, (x, y), key=key, max_iter=20
        ).model
        assert (np.argmin(jax.vmap(model.energies)(x), axis=1) == y).all()
        assert float(loss(model, x, y, Argmin())) == 0


def _log_prior(model):
    return -0.5 * jnp.sum(model.weight**2) / 0.7


@pytest.mark.slow
@pytest.mark.slow
def test_cross_entropy_with_a_gaussian_prior_is_logistic_regression(key):
    x, y = load_iris(return_X_y=True)
    peer = LogisticRegression(C=0.7, tol=1e-9, max_iter=2000).fit(x, y)
    learner = LBFGS(MAP(ConditionalContrastive(Boltzmann()), _log_prior, len(x)), tol=1e-8)
    result = fit(SoftmaxModel(jnp.zeros((3, 4)), jnp.zeros(3)), learner, (x, y), key=key, max_iter=500)
    assert result.converged
    assert result.history["gradient"][-1] <= 1e-8
    np.testing.assert_allclose(result.model.weight, peer.coef_, atol=1e-4)
    p = jax.vmap(lambda row: result.model.posterior(row).probabilities)(x)
    np.testing.assert_allclose(p, peer.predict_proba(x), atol=1e-4)
    # weights are repetitions
    times = np.random.default_rng(0).integers(0, 3, len(x))
    rows = np.repeat(np.arange(len(x)), times)
    weighted = fit(
        SoftmaxModel(jnp.zeros((3, 4)), jnp.zeros(3)), learner, (x, y), weight=times, key=key, max_iter=500
    )
    repeated = fit(
        SoftmaxModel(jnp.zeros((3, 4)), jnp.zeros(3)), learner, (x[rows], y[rows]), key=key, max_iter=500
    )
    np.testing.assert_allclose(weighted.model.weight, repeated.model.weight, atol=1e-5)


def test_slopes_carried_along_are_those_of_the_way_back(key):
    x, y = load_iris(return_X_y=True)
    objective = MAP(ConditionalContrastive(Boltzmann()), _log_prior, len(x))
    start = SoftmaxModel(jnp.zeros((3, 4)), jnp.zeros(3))
    back, along = (
        fit(start, LBFGS(objective, 1e-8, forward=forward), (x, y), key=key, max_iter=5)
        for forward in (False, True)
    )
    assert along.history["objective"][-1] < along.history["objective"][0]
    for name in ("objective", "gradient"):
        np.testing.assert_allclose(along.history[name], back.history[name], rtol=1e-7)
