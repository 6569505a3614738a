"""Classifiers beside statsmodels and scikit-learn: Newton, perceptron, calibration, several labels."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize, special
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

import freeenergy as fe
from freeenergy.estimators import Isotonic, Sigmoid, Temperature
from freeenergy.estimators.labelled._softmax import Answers
from freeenergy.evaluation import reliability
from freeenergy.kernels import RBF, Polynomial
from freeenergy.learning import LBFGS, Argmin, Boltzmann, ConditionalContrastive

X, Y = load_iris(return_X_y=True)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(120, 2))
TWO = (RNG.random(120) < special.expit(ROWS @ [1.0, -0.5] + 0.3)).astype(int)
THREE = np.array([RNG.choice(3, p=special.softmax([0.0, r[0], r[1] + 0.5])) for r in ROWS])


def anes():
    """Party by age and education of respondents: seven ordered labels."""
    data = sm.datasets.anes96.load_pandas()
    return np.array(data.exog[["age", "educ", "income"]], float), np.array(data.endog, int)


def test_errors_are_those_of_statsmodels():
    theirs = sm.Logit(TWO, sm.add_constant(ROWS)).fit(disp=0, method="newton", tol=1e-12)
    ours = fe.SoftmaxRegression(C=None).fit(ROWS, TWO)
    np.testing.assert_allclose(ours.coef_[1] - ours.coef_[0], theirs.params[1:], rtol=1e-7)
    np.testing.assert_allclose(ours.standard_errors_[0], theirs.bse, rtol=1e-7)
    summary = ours.summary(ROWS, y=TWO)
    np.testing.assert_allclose(summary.values, theirs.params, rtol=1e-7)
    np.testing.assert_allclose(summary.p_values, theirs.pvalues, rtol=1e-6)
    np.testing.assert_allclose([summary.aic, summary.bic], [theirs.aic, theirs.bic])
    rows, answers = anes()
    theirs = sm.MNLogit(answers, sm.add_constant(rows)).fit(disp=0, method="newton", maxiter=50)
    ours = fe.SoftmaxRegression(C=None).fit(rows, answers)
    np.testing.assert_allclose((ours.coef_ - ours.coef_[0])[1:], theirs.params[1:].T, rtol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_, theirs.bse.T, rtol=1e-6)
    summary = ours.summary(rows, y=answers)
    np.testing.assert_allclose(summary.log_likelihood, theirs.llf)
    assert summary.names[:2] == ["1: intercept", "1: x0"]
    assert "log odds against 0" in str(summary)
    # with a penalty there are none
    penalised = fe.SoftmaxRegression().fit(ROWS, TWO)
    assert np.isnan(penalised.standard_errors_).all()
    assert "without a penalty" in str(penalised.summary())


@pytest.mark.parametrize(("answers", "k"), [(TWO, 2), (THREE, 3)], ids=["two", "three"])
def test_slopes_and_curvatures_of_the_likelihood_by_differences(answers, k):
    targets = np.eye(k)[answers] * 0.9 + 0.1 / k
    problem = Answers.of(ROWS, targets, np.random.default_rng(9).uniform(0.5, 2, 120), 0.7)
    point = np.random.default_rng(10).normal(size=3 * (k - 1))
    slope = optimize.approx_fprime(point, lambda b: problem.at(b).value, 1e-7)
    np.testing.assert_allclose(problem.at(point).slope, slope, rtol=1e-4, atol=1e-4)
    curved = -optimize.approx_fprime(point, lambda b: problem.at(b).slope, 1e-7)
    np.testing.assert_allclose(problem.at(point).information, curved, rtol=1e-4, atol=1e-4)
    # log p itself, by the softmax of all answers
    w = problem.coefficients(point)
    logs = special.log_softmax(np.column_stack([np.ones(120), ROWS]) @ w.T, axis=1)
    exact = problem.weight @ (targets * logs).sum(axis=1) - 0.35 * (w[:, 1:] ** 2).sum()
    np.testing.assert_allclose(problem.at(point).value, exact)


def test_newton_and_a_learner_find_the_same():
    newton = fe.SoftmaxRegression(C=None).fit(ROWS, THREE)
    learner = LBFGS(ConditionalContrastive(Boltzmann()), 1e-9)
    other = fe.SoftmaxRegression(C=None, learner=learner).fit(ROWS, THREE)
    np.testing.assert_allclose(newton.predict_proba(ROWS), other.predict_proba(ROWS), atol=1e-7)
    assert newton.n_iter_ < 12


def test_class_weights_are_those_of_scikit_learn():
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    some = np.r_[0:50, 50:70, 100:140]
    for weight in ("balanced", {0: 1.0, 1: 5.0, 2: 0.5}):
        ours = fe.SoftmaxRegression(class_weight=weight).fit(X[some], Y[some])
        scaled = (X - X[some].mean(axis=0)) / X[some].std(axis=0)
        theirs = LogisticRegression(class_weight=weight, tol=1e-10, max_iter=5000).fit(
            scaled[some], Y[some]
        )
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(scaled), atol=1e-5)
    # a class of weight two is a class of which each row is there twice
    twice = np.concatenate([np.arange(150), np.flatnonzero(Y == 1)])
    doubled = LogisticRegression(tol=1e-10, max_iter=5000).fit(Z[twice], Y[twice])
    weighted = LogisticRegression(class_weight={1: 2.0}, tol=1e-10, max_iter=5000).fit(Z, Y)
    np.testing.assert_allclose(doubled.predict_proba(Z), weighted.predict_proba(Z), atol=1e-6)
    for wrong in ("even", {0: -1.0}):
        with pytest.raises(
            ValueError, match=r"'class_weight' parameter .* must be None, 'balanced' or a dict"
        ):
            fe.SoftmaxRegression(class_weight=wrong).fit(X, Y)


def test_label_smoothing_keeps_coefficients_finite():
    # one value of x for each answer: then p is what smoothing asks for, (1 − ε, ε/(m − 1), …)
    rows, answers = np.repeat(np.eye(3), 5, axis=0), np.repeat([0, 1, 2], 5)
    model = fe.SoftmaxRegression(C=None, smoothing=0.2).fit(rows, answers)
    assert model.converged_
    np.testing.assert_allclose(model.predict_proba(np.eye(3)), 0.1 + 0.7 * np.eye(3), atol=1e-6)
    # through the learner for many coefficients: the same
    learner = LBFGS(ConditionalContrastive(Boltzmann()), 1e-9)
    other = fe.SoftmaxRegression(C=None, smoothing=0.2, learner=learner).fit(rows, answers)
    np.testing.assert_allclose(other.predict_proba(np.eye(3)), 0.1 + 0.7 * np.eye(3), atol=1e-5)
    with pytest.raises(
        ValueError, match=r"'smoothing' parameter .* must be 0 for other phases than Boltzmann"
    ):
        fe.SoftmaxRegression(Argmin(), smoothing=0.1).fit(X, Y)
    with pytest.raises(ValueError, match=r"'smoothing' parameter .* must be a float in the range \[0, 1\)"):
        fe.SoftmaxRegression(smoothing=1.0).fit(X, Y)


def test_the_perceptron_makes_no_more_mistakes_than_its_bound():
    rng = np.random.default_rng(1)
    for width in (0.05, 0.3, 1.0):
        rows = rng.normal(size=(100, 2))
        side = rows @ [0.6, -0.8] > 0
        rows += np.where(side, width, -width)[:, None] * [0.6, -0.8]
        model = fe.Perceptron(max_iter=5000).fit(rows, side)
        assert model.converged_
        assert model.score(rows, side) == 1
        assert model.mistakes_ <= model.bound_
        # the margin is that of a hard-margin machine on the rows with a constant beside them
        design = np.column_stack([np.ones(100), model.scaling_.apply(rows)])
        mirrored = np.concatenate([design, -design])
        machine = SVC(kernel="linear", C=1e10, tol=1e-8).fit(mirrored, np.concatenate([side, ~side]))
        margin = 1 / np.linalg.norm(machine.coef_)
        np.testing.assert_allclose(model.bound_, (model.radius_ / margin) ** 2, rtol=1e-4)


def test_the_perceptron_rule_by_hand():
    # x = ±1: the first row is a mistake, (1, x) is added to its answer and taken from the other
    model = fe.Perceptron().fit([[-1.0], [1.0]], ["a", "b"])
    design = np.array([[1.0, -1.0], [1.0, 1.0]])
    w = np.zeros((2, 2))
    order = np.argsort(model.predict([[-1.0], [1.0]]))  # both are right in the end
    assert order.tolist() == [0, 1]
    mistakes = 0
    for _ in range(10):
        for x, y in zip(design, [0, 1], strict=True):
            said = int(np.argmax(w @ x))
            if said != y:
                w[y] += x
                w[said] -= x
                mistakes += 1
    assert model.mistakes_ in (1, mistakes)
    assert model.history_["mistakes"][-1] == 0


def test_rows_without_a_rule_have_no_bound_and_averaging_helps():
    model = fe.Perceptron(max_iter=5)
    with pytest.warns(ConvergenceWarning, match=r"still makes mistakes after 5 passes"):
        model.fit(ROWS, TWO)
    assert model.margin_ == 0
    assert np.isinf(model.bound_)
    averaged = fe.Perceptron(averaged=True, max_iter=50).fit(ROWS, TWO)
    assert averaged.score(ROWS, TWO) >= LogisticRegression().fit(ROWS, TWO).score(ROWS, TWO) - 0.06
    # three answers, of which one can be told from the others
    three = fe.Perceptron(averaged=True).fit(X, Y)
    assert three.score(X, Y) > 0.93
    assert three.decision_function(X).shape == (150, 3)
    np.testing.assert_allclose(X @ three.coef_.T + three.intercept_, three.decision_function(X), atol=1e-8)
    apart = fe.Perceptron().fit(X[:100], Y[:100])
    assert apart.mistakes_ <= apart.bound_ < np.inf
    # what is missing does not stop it
    holes = np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)
    assert fe.Perceptron(averaged=True).fit(holes, Y).score(holes, Y) > 0.85


def _mistakes_in_the_dual(gram, answers, passes):
    """Counts of mistakes by the Gram matrix: 0 ≥ y (α ⊙ Y)ᵀ G e adds one to α, with ties as of argmax."""
    alpha, made = np.zeros(len(gram), int), 0
    for _ in range(passes):
        for row, own in enumerate(gram):
            score = (alpha * answers) @ own
            # a tie says the first of the classes, which is −1
            if answers[row] * score < 0 or (score == 0 and answers[row] > 0):
                alpha[row] += 1
                made += 1
    return alpha, made


@pytest.mark.parametrize("answers", [Y, Y == 1], ids=["three", "two"])
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_kernel_of_inner_products_makes_the_mistakes_of_no_kernel(answers, averaged):
    plain = fe.Perceptron(averaged=averaged, max_iter=20).fit(X, answers)
    dual = fe.Perceptron(Polynomial(1), averaged=averaged, max_iter=20).fit(X, answers)
    np.testing.assert_array_equal(dual.history_["mistakes"], plain.history_["mistakes"])
    np.testing.assert_allclose(dual.decision_function(X), plain.decision_function(X), atol=1e-8)
    np.testing.assert_allclose(dual.radius_, plain.radius_)
    # w is the sum of the rows of mistakes, each as often as it was one
    seen = np.column_stack([np.ones(len(dual.model_.x)), dual.model_.x])
    w = np.column_stack([plain.model_.bias, plain.model_.weight])
    np.testing.assert_allclose(dual.dual_coef_ @ seen, w, atol=1e-9)
    np.testing.assert_allclose(dual.dual_coef_.sum(axis=0), 0, atol=1e-12)
    if not averaged:
        np.testing.assert_array_equal(dual.dual_coef_, np.round(dual.dual_coef_))


def test_a_polynomial_solves_exclusive_or_within_its_bound():
    corners, answers = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [-1, 1, 1, -1]
    with pytest.warns(ConvergenceWarning, match="told apart by a linear rule"):
        assert fe.Perceptron(max_iter=5).fit(corners, answers).margin_ == 0
    model = fe.Perceptron(Polynomial(2)).fit(corners, answers)
    assert model.predict(corners).tolist() == answers
    # standardised corners are ±1 and the best rule is their product: R² = 9, γ = ρ√2 with ρ = √2
    np.testing.assert_allclose([model.radius_, model.margin_, model.bound_], [3.0, 2.0, 4.5])
    # rows are taken in an order of their own, so of all orders one has these mistakes
    signs = 2 * corners - 1
    found = []
    for order in itertools.permutations(range(4)):
        own = list(order)
        alpha, made = _mistakes_in_the_dual(Polynomial(2).gram(signs[own]), np.array(answers)[own], 10)
        found.append((made, dict(zip(map(tuple, signs[own].tolist()), alpha.tolist(), strict=True))))
    counts = dict(
        zip(map(tuple, np.asarray(model.model_.x).tolist()), np.abs(model.dual_coef_[0]), strict=True)
    )
    assert (model.mistakes_, counts) in [(made, {x: a for x, a in c.items() if a}) for made, c in found]
    with pytest.warns(ConvergenceWarning, match="told apart by this kernel"):
        fe.Perceptron(Polynomial(1), max_iter=5).fit(corners, answers)


def test_the_kernel_perceptron_keeps_to_its_bound_and_takes_what_is_missing(tmp_path):
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(120, 2))
    ring = (rows**2).sum(axis=1)
    rows, side = rows[np.abs(ring - 1.4) > 0.3], (ring > 1.4)[np.abs(ring - 1.4) > 0.3]
    model = fe.Perceptron(RBF(0.7)).fit(rows, side)
    assert model.converged_
    assert model.score(rows, side) == 1
    assert model.mistakes_ <= model.bound_ < np.inf
    # a hard margin without a constant, in the features of the kernel: rows mirrored at the origin
    gram = RBF(0.7).gram(model.scaling_.apply(rows))
    signed = np.where(side, 1.0, -1.0)
    both = np.block([[gram, -gram], [-gram, gram]])
    machine = SVC(kernel="precomputed", C=1e10, tol=1e-8).fit(both, np.concatenate([signed, -signed]))
    multipliers = machine.dual_coef_[0]
    length = np.sqrt(multipliers @ both[np.ix_(machine.support_, machine.support_)] @ multipliers)
    np.testing.assert_allclose(model.bound_, (model.radius_ * length) ** 2, rtol=1e-3)
    holes = np.where(rng.random(rows.shape) < 0.1, np.nan, rows)
    assert fe.Perceptron(RBF(0.7), averaged=True).fit(holes, side).score(holes, side) > 0.8
    model.save(tmp_path / "rule.safetensors")
    again = fe.load(tmp_path / "rule.safetensors")
    np.testing.assert_array_equal(again.decision_function(holes), model.decision_function(holes))
    assert again.mistakes_ == model.mistakes_
    with pytest.raises(AttributeError, match="coef_ is there where the rule has no kernel"):
        _ = model.coef_
    with pytest.raises(AttributeError, match="dual_coef_ is there where the rule has a kernel"):
        _ = fe.Perceptron().fit(rows[:4], side[:4]).dual_coef_
    with pytest.raises(ValueError, match=r"'kernel' parameter of Perceptron must be"):
        fe.Perceptron("rbf").fit(rows, side)


def test_temperature_is_the_best_of_all():
    rng = np.random.default_rng(3)
    logits = 4 * rng.normal(size=(300, 3))
    answers = np.array([rng.choice(3, p=special.softmax(row / 3)) for row in logits])
    logs = special.log_softmax(logits, axis=1)
    found = Temperature()(logs, answers, np.ones(300))

    def loss(t):
        return -special.log_softmax(logs / t, axis=1)[np.arange(300), answers].sum()

    best = optimize.minimize_scalar(loss, bounds=(0.1, 20), method="bounded", options={"xatol": 1e-9})
    np.testing.assert_allclose(float(found.temperature), best.x, rtol=1e-5)
    assert abs(best.x - 3) < 1
    np.testing.assert_array_equal(found(logs).argmax(axis=1), logs.argmax(axis=1))
    np.testing.assert_allclose(np.exp(found(logs)).sum(axis=1), 1)


def test_isotonic_without_a_prior_is_that_of_scikit_learn():
    rng = np.random.default_rng(4)
    chance = rng.random(200)
    answers = (rng.random(200) < chance**2).astype(int)
    logs = np.log(np.column_stack([1 - chance, chance]))
    weight = rng.integers(1, 4, 200).astype(float)
    found = Isotonic(prior=0.0)(logs, answers, weight)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(chance, answers, weight)
    grid = np.linspace(0.01, 0.99, 99)
    ours = np.exp(found(np.log(np.column_stack([1 - grid, grid]))))[:, 1]
    np.testing.assert_allclose(ours, theirs.predict(grid), atol=1e-9)
    # with one nothing is certain, and the curve rises all the same
    smooth = np.exp(Isotonic()(logs, answers, weight)(np.log(np.column_stack([1 - grid, grid]))))[:, 1]
    assert (np.diff(smooth) >= -1e-12).all()
    assert 0 < smooth.min() < smooth.max() < 1
    with pytest.raises(ValueError, match=r"'prior' of Isotonic must be at least 0"):
        Isotonic(prior=-1.0)


def test_sigmoid_is_platts():
    rng = np.random.default_rng(5)
    gap = 3 * rng.normal(size=400)
    answers = (rng.random(400) < special.expit(0.4 * gap - 0.5)).astype(int)
    logs = np.column_stack([special.log_expit(-gap), special.log_expit(gap)])
    found = Sigmoid()(logs, answers, np.ones(400))
    many = answers.sum()
    target = np.where(answers == 1, (many + 1) / (many + 2), 1 / (400 - many + 2))

    def loss(p):
        eta = p[0] * gap + p[1]
        return np.logaddexp(0, eta).sum() - target @ eta

    best = optimize.minimize(loss, [1.0, 0.0], tol=1e-10).x
    np.testing.assert_allclose([found.slope[1], found.shift[1]], best, rtol=1e-4)


@pytest.mark.parametrize("method", [Temperature(), Sigmoid(), Isotonic()], ids=lambda m: type(m).__name__)
def test_calibration_puts_naive_bayes_right(method):
    rng = np.random.default_rng(6)
    cause = rng.normal(size=(600, 1))
    # the same evidence five times over, which naive Bayes takes for five pieces of it
    rows = np.repeat(cause, 5, axis=1) + 0.1 * rng.normal(size=(600, 5))
    answers = np.where(rng.random(600) < special.expit(1.5 * cause[:, 0]), "yes", "no")
    plain = GaussianNB().fit(rows[:300], answers[:300])
    model = fe.Calibrated(GaussianNB(), method).fit(rows[:300], answers[:300])
    place = (answers[300:] == "yes").astype(int)
    before = reliability(plain.predict_proba(rows[300:]), place)
    after = model.reliability(rows[300:], answers[300:])
    assert after.error < before.error / 2
    assert model.reliability_.error > 2 * after.error
    nats = model.evidence_of_labels(rows[300:], answers[300:]).nats
    assert nats.mean() > np.log(plain.predict_proba(rows[300:])[np.arange(300), place]).mean() + 0.05
    theirs = CalibratedClassifierCV(GaussianNB(), method="isotonic", ensemble=False).fit(
        rows[:300], answers[:300]
    )
    if isinstance(method, Isotonic):
        # other folds, but the same idea
        assert np.abs(theirs.predict_proba(rows[300:]) - model.predict_proba(rows[300:])).mean() < 0.05


def test_calibrated_weights_files_and_sentences(tmp_path):
    weight = np.random.default_rng(7).integers(1, 3, 120)
    one = fe.Calibrated().fit(ROWS, TWO, sample_weight=weight)
    other = fe.Calibrated().fit(np.repeat(ROWS, weight, axis=0), np.repeat(TWO, weight))
    np.testing.assert_allclose(one.predict_proba(ROWS), other.predict_proba(ROWS), rtol=1e-9)
    one.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_proba(ROWS), one.predict_proba(ROWS))
    with pytest.raises(
        ValueError, match=r"'estimator' parameter of Calibrated must be a classifier with fit and"
    ):
        fe.Calibrated(fe.PCA()).fit(ROWS, TWO)
    with pytest.raises(
        ValueError, match=r"'method' parameter .* must be an instance of AbstractCalibration"
    ):
        fe.Calibrated(method="isotonic").fit(ROWS, TWO)
    # one row of a class is never held out; one class needs no map
    rare = np.append(TWO[:-1], 7)
    assert fe.Calibrated().fit(ROWS, rare).predict_proba(ROWS).shape == (120, 3)
    assert fe.Calibrated().fit(ROWS, np.ones(120)).predict_proba(ROWS[:1]).tolist() == [[1.0]]


def test_several_labels_and_their_joint_probability(tmp_path):
    rng = np.random.default_rng(8)
    first = (rng.random(120) < special.expit(2 * ROWS[:, 0])).astype(int)
    # the second label is nearly the first, whatever the row
    second = np.where(rng.random(120) < 0.1, 1 - first, first)
    third = np.array(["a", "b", "c"])[THREE]
    both = np.column_stack([first, second])
    alone = fe.MultiLabel().fit(ROWS, both)
    singles = [fe.SoftmaxRegression().fit(ROWS, label) for label in (first, second)]
    expected = sum(
        model.evidence(ROWS, label).nats for model, label in zip(singles, (first, second), strict=True)
    )
    np.testing.assert_allclose(alone.evidence(ROWS, both).nats, expected)
    for found, model in zip(alone.predict_proba(ROWS), singles, strict=True):
        np.testing.assert_allclose(found, model.predict_proba(ROWS))
    chain = fe.MultiLabel(chain=True).fit(ROWS, both)
    assert chain.evidence(ROWS, both).nats.mean() > alone.evidence(ROWS, both).nats.mean() + 0.1
    # the joint law sums to one, and its parts are those of single labels
    pairs = list(itertools.product([0, 1], [0, 1]))
    logs = np.stack([chain.evidence(ROWS, np.tile(pair, (120, 1))).nats for pair in pairs], axis=1)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1)
    np.testing.assert_allclose(chain.predict_proba(ROWS)[1][:, 1], np.exp(logs[:, [1, 3]]).sum(axis=1))
    np.testing.assert_array_equal(chain.predict(ROWS), np.array(pairs)[logs.argmax(axis=1)])
    assert chain.score(ROWS, both) > 0.6
    # labels of different kinds
    mixed = np.column_stack([first.astype(object), third])
    words = fe.MultiLabel().fit(ROWS, mixed.astype(str))
    assert words.predict(ROWS[:2]).shape == (2, 2)
    assert [list(own) for own in words.classes_] == [["0", "1"], ["a", "b", "c"]]
    chain.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(fe.load(tmp_path / "m.safetensors").predict(ROWS), chain.predict(ROWS))
    with pytest.raises(ValueError, match=r"'y' of MultiLabel must have 2 columns, as that of fit. Got 1"):
        alone.evidence(ROWS, first[:, None])
    with pytest.raises(ValueError, match=r"must be among those that were fitted. Got [56] instead"):
        alone.evidence(ROWS, both + 5)
    with pytest.raises(
        ValueError, match=r"'chain' parameter of MultiLabel must be False for more than 4096"
    ):
        fe.MultiLabel(chain=True).fit(ROWS, rng.integers(0, 2, (120, 13)))


def test_quasi_generative_gaussians_are_logistic_regression():
    # two kinds of iris that overlap: with one covariance all linear log-odds can be had
    rows, answers = X[50:, :2], Y[50:]
    plain = fe.DiscriminantAnalysis().fit(rows, answers)
    model = fe.DiscriminantAnalysis(quasi_generative=True).fit(rows, answers)
    logistic = fe.SoftmaxRegression(C=None).fit(rows, answers)
    best = logistic.evidence(rows, answers).nats.mean()
    assert plain.evidence_of_labels(rows, answers).nats.mean() < best - 1e-5
    np.testing.assert_allclose(model.evidence_of_labels(rows, answers).nats.mean(), best, atol=1e-7)
    np.testing.assert_allclose(model.predict_proba(rows), logistic.predict_proba(rows), atol=1e-3)
    # the price is the density of the rows
    assert model.score_samples(rows).mean() < plain.score_samples(rows).mean()
    with pytest.raises(ValueError, match=r"'quasi_generative' parameter .* must be False for partial_fit"):
        model.partial_fit(rows, answers)
