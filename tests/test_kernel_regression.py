"""Kernel ridge regression and kernel smoothing beside scikit-learn, quadrature and the formulas' limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import ROWS
from scipy import integrate, stats
from sklearn import kernel_ridge, linear_model, model_selection

import freeenergy as fe
from freeenergy import kernels as k
from freeenergy.models import KernelSmoother

RNG = np.random.default_rng(0)
X = ROWS
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=len(X))
NEW = RNG.normal(size=(6, 2))


# ---------------------------------------------------------------------------------------------
# kernel ridge
# ---------------------------------------------------------------------------------------------


def test_kernel_ridge_is_scikit_learns():
    weight = np.arange(len(X)) % 3 + 0.5
    ours = fe.KernelRidge(k.RBF(1.3), alpha=0.7, standardise=False).fit(X, Y, sample_weight=weight)
    other = kernel_ridge.KernelRidge(alpha=0.7, kernel="rbf", gamma=0.5 / 1.3**2)
    other.fit(X, Y, sample_weight=weight)
    np.testing.assert_allclose(ours.predict(NEW), other.predict(NEW), rtol=1e-9)
    both = np.column_stack([Y, Y**2])
    ours = fe.KernelRidge(k.RBF(1.3), alpha=0.7, standardise=False).fit(X, both)
    other = kernel_ridge.KernelRidge(alpha=0.7, kernel="rbf", gamma=0.5 / 1.3**2).fit(X, both)
    np.testing.assert_allclose(ours.dual_coef_, other.dual_coef_, atol=1e-10)
    # residuals are λ times the dual coefficients
    np.testing.assert_allclose(both - ours.predict(X), 0.7 * ours.dual_coef_, atol=1e-10)


def test_a_linear_kernel_is_ridge_and_a_polynomial_one_ridge_in_its_features():
    ridge = linear_model.Ridge(alpha=0.3, fit_intercept=False).fit(X, Y)
    ours = fe.KernelRidge(k.Linear(), alpha=0.3, standardise=False).fit(X, Y)
    np.testing.assert_allclose(ours.predict(NEW), ridge.predict(NEW), rtol=1e-9)
    np.testing.assert_allclose(X.T @ ours.dual_coef_, ridge.coef_, rtol=1e-9)

    def features(x):
        root = np.sqrt(2)
        return np.column_stack([np.ones(len(x)), root * x, x**2, root * x[:, 0] * x[:, 1]])

    ridge = linear_model.Ridge(alpha=0.3, fit_intercept=False).fit(features(X), Y)
    ours = fe.KernelRidge(k.Polynomial(2), alpha=0.3, standardise=False).fit(X, Y)
    np.testing.assert_allclose(ours.predict(NEW), ridge.predict(features(NEW)), rtol=1e-8)


def test_its_law_is_that_of_a_process_with_the_scale_of_greatest_evidence():
    ours = fe.KernelRidge(k.RBF(0.8), alpha=0.2, standardise=False).fit(X, Y)
    scale = ours.noise_[0] / 0.2

    def process(scale):
        options = {"noise": 0.2 * scale, "standardise": False, "learn": False}
        return fe.GaussianProcess(scale * k.RBF(0.8), **options).fit(X, Y)

    best = process(scale)
    assert abs(best.log_evidence_ - ours.log_evidence_) < 1e-8
    assert best.log_evidence_ > max(
        process(0.98 * scale).log_evidence_, process(1.02 * scale).log_evidence_
    )
    np.testing.assert_allclose(ours.predict_density(NEW).std(), best.predict_density(NEW).std(), rtol=1e-9)
    np.testing.assert_allclose(ours.loo_.mean(), best.loo_.mean(), rtol=1e-7, atol=1e-9)


def test_the_penalty_is_that_of_the_least_error_without_each_row():
    ours = fe.KernelRidge(k.RBF(0.8), alpha=None, standardise=False).fit(X[:40], Y[:40])

    def error(alpha):
        other = kernel_ridge.KernelRidge(alpha=alpha, kernel="rbf", gamma=0.5 / 0.8**2)
        left = model_selection.cross_val_predict(other, X[:40], Y[:40], cv=model_selection.LeaveOneOut())
        return ((left - Y[:40]) ** 2).sum()

    assert error(ours.alpha_) < min(error(ours.alpha_ * 2), error(ours.alpha_ / 2))
    np.testing.assert_allclose(((ours.loo_.mean() - Y[:40]) ** 2).sum(), error(ours.alpha_), rtol=1e-8)


def test_intervals_of_kernel_ridge_average_over_the_scale():
    kernel, penalty = k.RBF(0.8), 0.2
    model = fe.KernelRidge(kernel, alpha=penalty, standardise=False).fit(X, Y)
    inverse = np.linalg.inv(kernel.gram(X) + penalty * np.eye(len(X)))
    cross = kernel.gram(NEW[:1], X)[0]
    mean, square = cross @ inverse @ Y, Y @ inverse @ Y
    part = 1 + penalty - cross @ inverse @ cross
    low, high = model.predict_interval(NEW[:1], 0.8)

    def density(log):
        # of log τ², up to a constant
        return np.exp(
            -0.5 * len(X) * (log - np.log(square / len(X))) - 0.5 * square / np.exp(log) + 0.5 * len(X)
        )

    ends = np.log(square / len(X)) - 3, np.log(square / len(X)) + 3
    total = integrate.quad(density, *ends)[0]
    for end, level in ((low[0], 0.1), (high[0], 0.9)):
        below = integrate.quad(
            lambda log, end=end: density(log) * stats.norm.cdf((end - mean) / np.sqrt(part * np.exp(log))),
            *ends,
        )[0]
        assert abs(below / total - level) < 1e-8
    # the mean of answers is one thing more that was taken from them
    scaled = fe.KernelRidge(kernel, alpha=penalty).fit(X, Y)
    wide, narrow = scaled.predict_interval(NEW, 0.8), scaled.predict_density(NEW).interval(0.8)
    ratio = stats.t(len(X) - 1).ppf(0.9) / stats.norm.ppf(0.9) * np.sqrt(len(X) / (len(X) - 1))
    np.testing.assert_allclose((wide[1] - wide[0]) / (narrow[1] - narrow[0]), ratio)


# ---------------------------------------------------------------------------------------------
# kernel smoothing
# ---------------------------------------------------------------------------------------------


def test_smoothing_is_a_weighted_mean_of_answers():
    model = fe.NadarayaWatson(k.RBF(0.9), bandwidth=0.5, standardise=False).fit(X, Y)
    gaps = ((NEW[:, None] - X[None]) ** 2).sum(axis=2)
    weights = np.exp(-0.5 * gaps / 0.45**2)
    weights /= weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(NEW), weights @ Y, rtol=1e-9)
    assert (model.predict(NEW) <= Y.max()).all()
    constant = fe.NadarayaWatson(bandwidth=0.5).fit(X, np.full(len(X), 3.0))
    np.testing.assert_allclose(constant.predict(NEW), 3.0)


def test_intervals_of_a_smoother_held_answers_that_were_left_out():
    # ten rows, so that each is left out alone: of its law, and of the search for bandwidth and width
    x, y = X[:10], Y[:10]
    for bandwidth in (0.5, None):
        model = fe.NadarayaWatson(k.RBF(0.9), bandwidth=bandwidth, standardise=False)
        levels = []
        for row in range(10):
            others = np.arange(10) != row
            law = model.fit(x[others], y[others]).predict_density(x[row : row + 1])
            levels.append(abs(2 * law.cdf(y[row : row + 1])[0] - 1))
        model.fit(x, y)
        # a level moves by ½ at most where the logarithm of a width does by one, whose accuracy is 0.01
        np.testing.assert_allclose(np.sort(model.loo_levels_), np.sort(levels), atol=0.02)
    model = fe.NadarayaWatson().fit(X, Y)
    level = np.sort(model.loo_levels_)[int(np.ceil((len(X) + 1) * 0.9)) - 1]
    law, found = model.predict_density(NEW), model.predict_interval(NEW, 0.9)
    np.testing.assert_allclose(found, law.interval(level), rtol=1e-6)
    # too few rows for the level: no less than the law has
    low, high = fe.NadarayaWatson().fit(X[:9], Y[:9]).predict_interval(NEW, 0.99)
    assert np.isfinite(high - low).all()


def test_wide_is_the_mean_and_narrow_the_nearest_row():
    wide = fe.NadarayaWatson(bandwidth=1e6).fit(X, Y)
    np.testing.assert_allclose(wide.predict(NEW), Y.mean(), rtol=1e-6)
    nearest = ((NEW[:, None] - X[None]) ** 2).sum(axis=2).argmin(axis=1)
    for kernel in (None, k.Box()):
        narrow = fe.NadarayaWatson(kernel, bandwidth=1e-4, standardise=False).fit(X, Y)
        np.testing.assert_allclose(narrow.predict(NEW), Y[nearest], rtol=1e-9)
    # so far away that all rows are at one distance, it is their mean
    far = narrow.predict([[1e6, 0.0], [1e300, 0.0]])
    np.testing.assert_allclose(far, [Y[X[:, 0].argmax()], Y.mean()])


def test_attention_is_smoothing():
    # keys of one length: scores kᵀq make the Gaussian kernel of variance one
    keys = X / np.linalg.norm(X, axis=1, keepdims=True)
    scores = np.exp(NEW @ keys.T)
    attention = scores / scores.sum(axis=1, keepdims=True) @ Y
    model = fe.NadarayaWatson(bandwidth=1.0, standardise=False).fit(keys, Y)
    np.testing.assert_allclose(model.predict(NEW), attention, rtol=1e-9)


def test_the_law_is_the_mixture_of_answers():
    both = np.column_stack([Y, Y**2])
    model = fe.NadarayaWatson().fit(X, both)
    law = model.predict_density(NEW)
    y = np.array([0.3, 0.4])
    shares, both = law.shares, law.centres
    dense = (shares * np.prod(stats.norm(both, model.width_).pdf(y), axis=1)).sum(axis=1)
    np.testing.assert_allclose(law.log_prob(np.tile(y, (6, 1))), np.log(dense), rtol=1e-8)
    half = law.log_prob(np.tile([0.3, np.nan], (6, 1)))
    np.testing.assert_allclose(
        half, np.log((shares * stats.norm(both[:, 0], model.width_[0]).pdf(0.3)).sum(axis=1)), rtol=1e-8
    )
    np.testing.assert_allclose(law.cdf(law.quantile(0.2)), 0.2, rtol=1e-8)
    np.testing.assert_allclose(np.exp(law.log_sf(y)) + law.cdf(y), 1.0, rtol=1e-12)
    draws = law.sample(4000, np.random.default_rng(1))
    error = law.std() / np.sqrt(4000)
    assert (np.abs(draws.mean(axis=0) - law.mean()) < 4.5 * error).all()
    np.testing.assert_allclose(draws.std(axis=0), law.std(), rtol=0.1)
    assert law.take(np.array([2, 0])).shape == (2, 2)
    assert not law.discrete
    one = fe.NadarayaWatson().fit(X, Y).predict_density(NEW[:1])
    total, _ = integrate.quad(lambda value: np.exp(one.log_prob(value)[0]), -10, 10, limit=200)
    assert abs(total - 1) < 1e-7


def test_bandwidth_and_width_maximise_the_likelihood_of_answers_left_out():
    model = fe.NadarayaWatson().fit(X, Y)
    z, y = model.scaling_.apply(X), model.answer_scaling_.apply(Y[:, None])[:, 0]

    def likelihood(bandwidth, width):
        gram = np.exp(-0.5 * ((z[:, None] - z[None]) ** 2).sum(axis=2) / bandwidth**2)
        np.fill_diagonal(gram, 0.0)
        shares = gram / gram.sum(axis=1, keepdims=True)
        inside = np.log((shares * stats.norm(y, width).pdf(y[:, None])).sum(axis=1)).sum()
        return inside - len(y) * np.log(model.answer_scaling_.scale[0])

    width = model.width_[0] / model.answer_scaling_.scale[0]
    best = likelihood(model.bandwidth_, width)
    assert abs(best - model.log_likelihood_) < 1e-6
    for other in ((1.05, 1.0), (0.95, 1.0), (1.0, 1.05), (1.0, 0.95)):
        assert likelihood(model.bandwidth_ * other[0], width * other[1]) < best


def test_its_model_is_the_energy_of_an_answer():
    model = fe.NadarayaWatson().fit(X, Y)
    inner = model.model_
    z = jnp.asarray(model.scaling_.apply(NEW[:1])[0])
    y = jnp.asarray(model.answer_scaling_.apply(np.array([[0.3]]))[0])
    expected = model.evidence(NEW[:1], [0.3]).nats[0] + np.log(model.answer_scaling_.scale[0])
    np.testing.assert_allclose(-jax.jit(KernelSmoother.energy)(inner, z, y), expected, rtol=1e-9)
    mixture = jax.jit(KernelSmoother.posterior)(inner, z)
    np.testing.assert_allclose(jax.jit(lambda m, v: m.log_prob(v))(mixture, y), expected, rtol=1e-9)
    assert inner.latent(z).shape == (1,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: fe.KernelRidge(alpha=0.0),
            "'alpha' parameter of KernelRidge must be a float",
        ),
        (
            lambda: fe.NadarayaWatson(bandwidth=0.0),
            "'bandwidth' parameter of NadarayaWatson must be",
        ),
        (lambda: fe.NadarayaWatson(k.Linear()), "must be one without negative values, such as RBF or Box"),
        (
            lambda: fe.KernelRidge(standardise=1),
            "'standardise' parameter of KernelRidge must be an instance",
        ),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make().fit(X, Y)
