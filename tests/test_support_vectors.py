"""Support vector machines beside LIBSVM, numbers by hand and the conditions of optimality."""

import jax
import numpy as np
import pytest
from data import ROWS
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import freeenergy as fe
from freeenergy import kernels as k
from freeenergy.estimators.labelled import _kernel_classifier
from freeenergy.estimators.labelled._kernel_classifier import best_offset, certified, support_vectors
from freeenergy.models import KernelMachine

RNG = np.random.default_rng(0)
X = ROWS
ANSWERS = np.where(X[:, 0] ** 2 + X[:, 1] + 0.4 * RNG.normal(size=len(X)) > 0.8, "out", "in")
PLAIN = {"standardise": False}
# one column, one row on the wrong side
LINE = np.array([[-2.0], [-1.0], [1.0], [2.0], [-1.5]])
SIGNS = np.array([-1, -1, 1, 1, 1])


def machine(C=1.0, kernel=None, **options):
    return fe.SupportVectorMachine(k.Linear() if kernel is None else kernel, C=C, **PLAIN, **options)


# ---------------------------------------------------------------------------------------------
# numbers by hand
# ---------------------------------------------------------------------------------------------


def test_the_widest_margin_of_two_points():
    model = machine(None).fit([[0.0, 0.0], [2.0, 2.0]], [-1, 1])
    np.testing.assert_allclose(model.coef_, [[0.5, 0.5]], atol=1e-7)
    np.testing.assert_allclose(model.intercept_, [-1.0], atol=1e-7)
    assert abs(2 / np.linalg.norm(model.coef_) - 2 * np.sqrt(2)) < 1e-6
    np.testing.assert_allclose(model.decision_function([[0.0, 0.0], [2.0, 2.0]]), [-1, 1], atol=1e-7)


def test_the_dual_of_a_hard_margin_and_rows_that_do_not_decide():
    rows, signs = np.array([[3.0, 3.0], [4.0, 3.0], [1.0, 1.0]]), [1, 1, -1]
    model = machine(None).fit(rows, signs)
    assert model.support_.tolist() == [0, 2]
    np.testing.assert_allclose(model.dual_coef_, [[0.25, -0.25]], atol=1e-7)
    np.testing.assert_allclose(model.coef_, [[0.5, 0.5]], atol=1e-7)
    np.testing.assert_allclose(model.intercept_, [-2.0], atol=1e-7)
    np.testing.assert_allclose(model.dual_, [0.25], atol=1e-7)
    np.testing.assert_allclose(model.primal_, [0.25], atol=1e-7)
    facts = model.summary().facts
    assert facts["support vectors"] == 2
    assert facts["primal value"] == pytest.approx(0.25, abs=1e-7)
    assert max(abs(facts["duality gap"]), facts["worst KKT violation"]) < 1e-6
    # neither leaving it out nor moving it away changes anything
    alone = machine(None).fit(rows[[0, 2]], [1, -1])
    np.testing.assert_allclose(alone.coef_, model.coef_, atol=1e-7)
    rows[1] = [9.0, 9.0]
    np.testing.assert_allclose(machine(None).fit(rows, signs).coef_, model.coef_, atol=1e-7)


def test_a_soft_margin_pays_for_slack():
    model = machine(1.0).fit(LINE, SIGNS)
    np.testing.assert_allclose(model.coef_, [[2 / 3]], atol=1e-6)
    np.testing.assert_allclose(model.intercept_, [1 / 3], atol=1e-6)
    np.testing.assert_allclose(model.primal_, [23 / 9], rtol=1e-7)
    np.testing.assert_allclose(model.dual_, [23 / 9], rtol=1e-7)
    multipliers = np.zeros(5)
    multipliers[model.support_] = np.abs(model.dual_coef_[0])
    np.testing.assert_allclose(multipliers, [7 / 18, 1, 7 / 18, 0, 1], atol=1e-6)
    slack = np.maximum(0, 1 - SIGNS * model.decision_function(LINE))
    np.testing.assert_allclose(slack, [0, 2 / 3, 0, 0, 5 / 3], atol=1e-6)
    # more than one where wrong, and never fewer than there are errors
    np.testing.assert_array_equal(slack > 1, model.predict(LINE) != SIGNS)
    assert slack.sum() >= (model.predict(LINE) != SIGNS).sum()


def test_where_all_multipliers_are_at_a_bound_the_offset_is_the_middle():
    model = machine(0.1).fit(LINE, SIGNS)
    np.testing.assert_allclose(np.abs(model.dual_coef_), 0.1, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, [0.625], atol=1e-6)
    grid = np.linspace(-3, 3, 601)
    scores = (LINE @ model.coef_.T)[:, 0]
    losses = np.maximum(0, 1 - SIGNS[:, None] * (scores[:, None] + grid)).sum(axis=0)
    best = grid[losses < losses.min() + 1e-9]
    assert best.min() <= 0.5 + 1e-9
    assert best.max() >= 0.75 - 1e-9
    assert abs(best_offset(scores, SIGNS.astype(float), np.full(5, 0.1)) - 0.625) < 1e-6


def test_a_kernel_solves_exclusive_or():
    rows = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    model = machine(None, k.Polynomial(2)).fit(rows, [1, 1, -1, -1])
    np.testing.assert_allclose(np.abs(model.dual_coef_), 1 / 8, atol=1e-8)
    np.testing.assert_allclose(model.dual_, [0.25], atol=1e-8)
    np.testing.assert_allclose(model.decision_function(rows), [1, 1, -1, -1], atol=1e-7)
    assert not hasattr(model, "coef_")
    with pytest.raises(ValueError, match=r"there is no hard margin\. Set C, such as C=1"):
        machine(None).fit(rows, [1, 1, -1, -1])


# ---------------------------------------------------------------------------------------------
# certificates
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [k.Linear(), k.RBF(0.7), k.Polynomial(3), k.Matern(0.5)], ids=repr)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_gap_is_none_and_libsvm_agrees(kernel, C):
    model = machine(C, kernel).fit(X, ANSWERS)
    assert (model.gap_ >= -1e-9).all()
    assert (model.gap_ <= 1e-6 * np.maximum(1, model.primal_)).all()
    assert (model.kkt_ < 1e-5).all()
    assert model.converged_
    gram = kernel.gram(X)
    other = SVC(C=C, kernel="precomputed", tol=1e-9).fit(gram, ANSWERS)
    signed = np.zeros(len(X))
    signed[other.support_] = other.dual_coef_[0]
    dual = np.abs(signed).sum() - 0.5 * signed @ gram @ signed
    np.testing.assert_allclose(model.dual_, [dual], rtol=1e-8)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(gram), atol=1e-4)


def test_every_feasible_multiplier_is_a_lower_bound_and_every_plane_an_upper_one():
    model = machine(1.0, k.RBF()).fit(X, ANSWERS)
    signs, gram = np.where(ANSWERS == "out", 1.0, -1.0), k.RBF().gram(X)
    for _ in range(20):
        alpha = RNG.uniform(size=len(X))
        # as much on either side
        heavy = np.where(signs > 0, alpha[signs > 0].sum(), alpha[signs < 0].sum())
        alpha *= np.minimum(alpha[signs > 0].sum(), alpha[signs < 0].sum()) / heavy
        signed = alpha * signs
        assert alpha.sum() - 0.5 * signed @ gram @ signed <= model.primal_[0]
    for scale in (0.5, 0.9, 1.1):
        scores = scale * model.decision_function(X)
        square = 2 * (model.primal_[0] - np.maximum(0, 1 - signs * model.decision_function(X)).sum())
        assert 0.5 * scale**2 * square + np.maximum(0, 1 - signs * scores).sum() >= model.dual_[0] - 1e-9


def test_a_wrong_solution_is_told(monkeypatch):
    signs, gram = np.where(ANSWERS == "out", 1.0, -1.0), k.RBF().gram(X)
    ones = np.ones(len(X))
    # a rough start ends at the same place
    good, rough = (support_vectors(gram, signs, ones, ones, tol) for tol in (1e-9, 0.1))
    np.testing.assert_allclose(rough.signed, good.signed, atol=1e-9)
    assert good.kkt < 1e-10
    assert good.primal - good.dual < 1e-9
    wrong = certified(gram, signs, ones, np.clip(np.abs(good.signed) + 0.05, 0, 1))
    assert wrong.kkt > 1e-2
    assert wrong.primal - wrong.dual > 1e-2
    # where the equations are too many to be solved, it says how far LIBSVM came
    monkeypatch.setattr(_kernel_classifier, "_MOST_FREE", 0)
    with pytest.warns(ConvergenceWarning, match="stopped with a duality gap of"):
        machine(1.0, k.RBF(), tol=0.5).fit(X, ANSWERS)


def test_wider_margins_cost_more_slack():
    models = [machine(C).fit(X, ANSWERS) for C in (0.01, 0.1, 1.0, 10.0)]
    widths = [2 / np.linalg.norm(model.coef_) for model in models]
    signs = np.where(ANSWERS == "out", 1.0, -1.0)
    slack = [np.maximum(0, 1 - signs * model.decision_function(X)).sum() for model in models]
    assert all(np.diff(widths) <= 1e-6)
    assert all(np.diff(slack) <= 1e-4)


def test_many_rows_without_slack_have_the_hard_margin():
    apart = X + np.where(X[:, :1] > 0, 2.0, -2.0)
    signs = np.where(X[:, 0] > 0, 1, -1)
    hard, soft = machine(None).fit(apart, signs), machine(1e4).fit(apart, signs)
    np.testing.assert_allclose(hard.coef_, soft.coef_, atol=1e-5)
    assert abs((signs * hard.decision_function(apart)).min() - 1) < 1e-6
    assert (hard.gap_ < 1e-6).all()
    assert (hard.kkt_ < 1e-4).all()


# ---------------------------------------------------------------------------------------------
# weights, several labels, probabilities, what is missing
# ---------------------------------------------------------------------------------------------


def test_weights_are_repetition():
    weight = np.arange(len(X)) % 3
    one = machine(1.0, k.RBF()).fit(X, ANSWERS, sample_weight=weight)
    place = np.repeat(np.arange(len(X)), weight)
    other = machine(1.0, k.RBF()).fit(X[place], ANSWERS[place])
    np.testing.assert_allclose(one.primal_, other.primal_, rtol=1e-9)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-4)


def test_of_several_labels_each_has_a_machine_against_the_others():
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    model = machine(1.0, k.RBF()).fit(X, labels)
    assert model.primal_.shape == (3,)
    scores = model.decision_function(X)
    for label in range(3):
        alone = machine(1.0, k.RBF()).fit(X, labels == label)
        np.testing.assert_allclose(scores[:, label], alone.decision_function(X), atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), scores.argmax(axis=1))
    assert (model.predict(X) == labels).mean() > 0.9


def test_probabilities_have_the_slope_of_rows_left_out():
    model = machine(1.0, k.RBF()).fit(X, ANSWERS)
    scores = model.decision_function(X)
    expected = np.exp(log_softmax(model.slope_ * np.stack([-scores, scores], axis=1), axis=1))
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X) == "out", scores >= 0)
    evidence = model.evidence(X, ANSWERS)
    np.testing.assert_allclose(
        evidence.nats, np.log(expected[np.arange(len(X)), (ANSWERS == "out").astype(int)])
    )
    assert evidence.kind is fe.Kind.ESTIMATE
    # on other rows of the same law they are better than shares of the labels
    new = RNG.normal(size=(2000, 2))
    truth = np.where(new[:, 0] ** 2 + new[:, 1] + 0.4 * RNG.normal(size=2000) > 0.8, "out", "in")
    share = (truth == "out").mean()
    plain = share * np.log(share) + (1 - share) * np.log(1 - share)
    assert model.evidence_of_labels(new, truth).nats.mean() > plain + 0.2


def test_the_model_is_the_energy_of_a_label():
    model = machine(1.0, k.RBF()).fit(X, ANSWERS)
    inner, row = model.model_, np.array([0.2, -0.4])
    laws = jax.jit(lambda m, x: m.posterior(x).probabilities)(inner, row)
    np.testing.assert_allclose(laws, model.predict_proba(row[None])[0], rtol=1e-9)
    nats = jax.jit(KernelMachine.log_prob_of)(inner, 1, row)
    np.testing.assert_allclose(nats, model.evidence(row[None], ["out"]).nats[0], rtol=1e-9)
    gap = jax.jit(lambda m, x: m.energy(x, 0) - m.energy(x, 1))(inner, row)
    np.testing.assert_allclose(gap, 2 * model.slope_ * model.decision_function(row[None])[0], rtol=1e-9)
    assert inner.latent(row).size == 2


def test_missing_entries_are_drawn():
    holes = X.copy()
    holes[::7, 1] = np.nan
    model = fe.SupportVectorMachine().fit(holes, ANSWERS)
    evidence = model.evidence(holes, ANSWERS)
    assert np.isfinite(evidence.nats).all()
    assert (evidence.stderr[::7] > 0).all()
    assert (evidence.stderr[1::7] == 0).all()
    np.testing.assert_allclose(model.predict_proba(holes).sum(axis=1), 1.0)
    assert np.isfinite(model.decision_function(holes)).all()


@pytest.mark.parametrize(
    ("options", "y", "weight", "message"),
    [
        ({"C": 0.0}, ANSWERS, None, r"'C' parameter of SupportVectorMachine must be a float in the range"),
        ({"kernel": "rbf"}, ANSWERS, None, "must be an instance of AbstractKernel or None"),
        ({}, np.zeros(len(X), int), None, "needs rows of two classes or more. Got one class, 0"),
        ({}, ANSWERS, (ANSWERS == "in") * 1.0, "The class 'out' has none"),
    ],
)
def test_what_is_refused(options, y, weight, message):
    with pytest.raises(ValueError, match=message):
        fe.SupportVectorMachine(**options).fit(X, y, sample_weight=weight)
