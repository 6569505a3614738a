"""Bayesian linear regression: against dense algebra, SciPy's multivariate t, Ridge, the notes."""

import numpy as np
import pytest
from scipy import optimize, stats

import freeenergy as fe

RNG = np.random.default_rng(0)
X = RNG.normal([1.0, -5.0, 300.0], [1.0, 0.1, 40.0], size=(24, 3))
Y = 3.0 + X @ [0.5, -4.0, 0.02] + RNG.normal(0, 0.7, 24)
PRIOR = np.array([[2.0, 0.3, 0.0], [0.3, 5.0, 0.01], [0.0, 0.01, 1e-3]])
CENTRE = np.array([0.4, -1.0, 0.0])
A, C = 2.5, 1.5


def dense(x, y, alpha=1.3, centre=CENTRE, prior=PRIOR, intercept=(1.0, 4.0)):
    """Posterior mean, covariance up to σ², a and c, and the law of all answers, by the textbook."""
    design = np.column_stack([np.ones(len(x)), x])
    before = np.zeros((4, 4))
    before[0, 0], before[1:, 1:] = intercept[1] ** 2, prior / alpha
    m = np.concatenate([[intercept[0]], centre])
    precision = np.linalg.inv(before) + design.T @ design
    after = np.linalg.inv(precision)
    mean = after @ (np.linalg.solve(before, m) + design.T @ y)
    gap = y - design @ mean
    squares = gap @ gap + (mean - m) @ np.linalg.solve(before, mean - m)
    law = stats.multivariate_t(design @ m, C / A * (np.eye(len(x)) + design @ before @ design.T), df=2 * A)
    return mean, after, A + len(y) / 2, C + squares / 2, law


def full(**options):
    given = {"alpha": 1.3, "prior": PRIOR, "centre": CENTRE, "noise": (A, C), "intercept": (1.0, 4.0)}
    return fe.BayesianLinearRegression(**(given | options))


def test_the_posterior_is_that_of_dense_algebra():
    mean, covariance, a, c, law = dense(X, Y)
    model = full().fit(X, Y)
    assert model.proper_
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], mean, rtol=1e-8)
    np.testing.assert_allclose([model.shape_, model.rate_], [a, c], rtol=1e-9)
    np.testing.assert_allclose(model.covariance_, c / a * covariance, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(model.log_evidence_, law.logpdf(Y), rtol=1e-9)
    # the law of a new answer is that of all with it, over that of all
    new = np.array([[0.3, -4.9, 310.0]])
    for answer in (0.0, 30.0):
        joint = dense(np.r_[X, new], np.r_[Y, answer])[4].logpdf(np.r_[Y, answer]) - law.logpdf(Y)
        np.testing.assert_allclose(model.evidence(new, [answer]).nats, joint, rtol=1e-7)
    band = model.predict_interval(new, 0.8)
    row = np.r_[1.0, new[0]]
    student = stats.t(2 * a, row @ mean, np.sqrt(c / a * (1 + row @ covariance @ row)))
    np.testing.assert_allclose(np.ravel(band), student.ppf([0.1, 0.9]), rtol=1e-7)


def test_one_row_after_another_is_all_rows_at_once():
    """The sum of log p of each row given those before it is the evidence (moon B04: sequential = batch)."""
    total = dense(X[:4], Y[:4])[4].logpdf(Y[:4])
    for n in range(4, 8):
        total += full().fit(X[:n], Y[:n]).evidence(X[n : n + 1], Y[n : n + 1]).nats[0]
    np.testing.assert_allclose(full().fit(X[:8], Y[:8]).log_evidence_, total, rtol=1e-9)


def test_the_curve_of_the_notes():
    """moon B03 and B04: α = ½, β = 25, degree two."""
    x = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    t = np.array([1.0, 0.8, 1.9, 3.1, 4.2])
    powers = np.stack([np.ones(5), x, x**2], axis=1)
    model = fe.BayesianLinearRegression(0.5, prior=np.eye(3), noise=1 / 25, fit_intercept=False)
    model.fit(powers, t)
    np.testing.assert_allclose(model.coef_, [0.8296062810, 0.2340067877, 0.7553790041], atol=1e-9)
    law = model.predict_density([[1.0, 3.0, 9.0]])
    np.testing.assert_allclose(law.mean(), 8.3300376812, atol=1e-9)
    np.testing.assert_allclose(law.std() ** 2, 0.6224869290, atol=1e-9)
    np.testing.assert_allclose(model.log_evidence_, -6.6388930973, atol=1e-9)
    assert (model.residual_dof_, model.shape_) == (np.inf, np.inf)
    # chaudhari E13: the evidence is N(y; 0, σ²I + XXᵀ/α)
    law = stats.multivariate_normal(np.zeros(5), np.eye(5) / 25 + powers @ powers.T / 0.5)
    np.testing.assert_allclose(model.log_evidence_, law.logpdf(t), rtol=1e-10)
    # both strengths together change nothing of the mean
    again = fe.BayesianLinearRegression(5.0, prior=np.eye(3), noise=1 / 250, fit_intercept=False)
    np.testing.assert_allclose(again.fit(powers, t).coef_, model.coef_, rtol=1e-10)


def test_flat_priors_of_noise_and_intercept_are_those_of_ridge():
    for alpha in (3.0, None):
        ours, ridge = fe.BayesianLinearRegression(alpha).fit(X, Y), fe.Ridge(alpha).fit(X, Y)
        assert not ours.proper_
        np.testing.assert_allclose(ours.alpha_, ridge.alpha_, rtol=1e-4)
        np.testing.assert_allclose(ours.coef_, ridge.coef_, rtol=1e-4)
        np.testing.assert_allclose(ours.predict_interval(X), ridge.predict_interval(X), rtol=1e-4)
        np.testing.assert_allclose(ours.effective_dof_, ridge.effective_dof_, rtol=1e-4)
    # the evidence differs by a constant without α
    gaps = [
        fe.BayesianLinearRegression(a).fit(X, Y).log_evidence_ - fe.Ridge(a).fit(X, Y).log_evidence_
        for a in (0.1, 1.0, 100.0)
    ]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9)


def test_the_strength_of_largest_evidence():
    model = full(alpha=None).fit(X, Y)

    def loss(value):
        return -dense(X, Y, alpha=np.exp(value))[4].logpdf(Y)

    best = optimize.minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-8})
    np.testing.assert_allclose(np.log(model.alpha_), best.x, atol=1e-3)
    np.testing.assert_allclose(model.log_evidence_, -best.fun, rtol=1e-9)


def test_draws_of_the_posterior_have_its_moments():
    both = np.stack([Y, 10 - 2 * Y], axis=1)
    model = full(centre=0.0).fit(X, both)
    draws = model.sample_posterior(20_000, random_state=0)
    wide = model.shape_[0] / (model.shape_[0] - 1)
    for k in (0, 1):
        joined = np.column_stack([draws.intercept[:, k], draws.coef[:, k]])
        mean, covariance = np.r_[model.intercept_[k], model.coef_[k]], wide * model.covariance_[k]
        error = np.sqrt(np.diag(covariance) / 20_000)
        assert (np.abs(joined.mean(0) - mean) < 4.5 * error).all()
        np.testing.assert_allclose(joined.var(0), np.diag(covariance), rtol=0.06)
        law = stats.invgamma(model.shape_[k], scale=model.rate_[k])
        assert stats.kstest(draws.noise[:, k] ** 2, law.cdf).pvalue > 1e-3


def test_weights_are_repetitions_and_units_move_the_evidence():
    weight = RNG.integers(1, 4, 24)
    model = full().fit(X, Y, sample_weight=weight)
    other = full().fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight))
    np.testing.assert_allclose(model.log_evidence_, other.log_evidence_, rtol=1e-9)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-9)
    plain, wide = full().fit(X, Y), full(centre=10 * CENTRE, noise=(A, 100 * C), intercept=(10.0, 4.0))
    np.testing.assert_allclose(
        wide.fit(X, 10 * Y).log_evidence_, plain.log_evidence_ - 24 * np.log(10), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alpha": 0.0}, r"The 'alpha' parameter of BayesianLinearRegression must be a float in the range"),
        (
            {"noise": (1.0, -1.0)},
            r"The 'noise' parameter .* a positive variance, a pair of positive",
        ),
        (
            {"intercept": (0.0, 0.0)},
            r"The 'intercept' parameter .* a pair of a mean and a positive",
        ),
        ({"prior": np.ones((3, 3))}, r"The 'prior' parameter .* a covariance matrix of 3 x 3 numbers"),
        ({"centre": [1.0, 2.0]}, r"The 'centre' parameter .* Got the shape \(2,\)"),
    ],
)
def test_what_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        full(**options).fit(X, Y)
