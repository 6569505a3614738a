"""Mixtures of which something is known: labels, starts, fixed parts; and how well the rest is known."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import statsmodels.api as sm
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as SklearnMixture
from statsmodels.tools.numdiff import approx_hess

import freeenergy as fe
from freeenergy import models
from freeenergy.distributions import (
    Diagonal,
    DirichletPrior,
    Full,
    Gaussian,
    LowRank,
    Multinomial,
    Poisson,
    Spherical,
    Tied,
)
from freeenergy.learning import EM, LBFGS, Gradient, Incremental, Stepwise, negative_log_likelihood

RNG = np.random.default_rng(0)
N = 120
TRUTH = RNG.integers(0, 2, N)
X = (
    RNG.normal(size=(N, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]])
    + np.array([[0.0, 1.0], [1.5, -1.0]])[TRUTH]
)
# a third known, a row that cannot be of the first, responsibilities that stay as they are
SHARES = np.full((N, 2), np.nan)
SHARES[:40] = np.eye(2)[TRUTH[:40]]
SHARES[40] = [0.0, np.nan]
SHARES[41:50] = [0.3, 0.7]


def log_joint(X, weights, means, covariances):
    """log p(x, k) with what is missing integrated out, by scipy."""
    out = np.empty((len(X), len(weights)))
    for seen in np.unique(~np.isnan(X), axis=0):
        rows = (~np.isnan(X) == seen).all(axis=1)
        for k, weight in enumerate(weights):
            normal = stats.multivariate_normal(means[k][seen], covariances[k][np.ix_(seen, seen)])
            out[rows, k] = np.log(weight) + normal.logpdf(X[np.ix_(rows, seen)])
    return out


def free_energies(shares, logs):
    """What each row adds to the objective, case by case."""
    out = np.empty(len(logs))
    for n, (share, log) in enumerate(zip(shares, logs, strict=True)):
        if np.isnan(share).any():
            out[n] = -np.logaddexp.reduce(log[np.isnan(share)])
        else:
            out[n] = sum(q * (np.log(q) - v) for q, v in zip(share, log, strict=True) if q > 0)
    return out


def responsibilities(shares, logs):
    hidden = np.isnan(shares)
    r = np.exp(np.where(hidden, logs, -np.inf) - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    r /= np.maximum(r.sum(axis=1, keepdims=True), 1e-300)
    return np.where(hidden.any(axis=1, keepdims=True), r, shares)


def moments(X, r):
    means = [np.average(X, axis=0, weights=q) for q in r.T]
    return r.mean(axis=0), means, [np.cov(X.T, aweights=q, ddof=0) for q in r.T]


# ---------------------------------------------------------------------------------------------
# labels
# ---------------------------------------------------------------------------------------------


def test_all_rows_known_is_the_supervised_fit():
    model = fe.GaussianMixture(2).fit(X, labels=TRUTH)
    weights, means, covariances = moments(X, np.eye(2)[TRUTH])
    np.testing.assert_allclose(model.weights_, weights)
    np.testing.assert_allclose(model.means_, means)
    np.testing.assert_allclose(model.covariances_, covariances)
    peer = fe.DiscriminantAnalysis(Full()).fit(X, TRUTH)
    np.testing.assert_allclose(model.score_samples(X), peer.score_samples(X))
    np.testing.assert_allclose(model.history_["objective"][-1], peer.history_["objective"][-1])
    counts = RNG.poisson(np.array([[1.0, 9.0], [8.0, 2.0]])[TRUTH])
    mixture = fe.Mixture(2, family=Poisson).fit(counts, labels=TRUTH)
    peer = fe.NaiveBayes(Poisson).fit(counts, TRUTH)
    np.testing.assert_allclose(mixture.predict_proba(counts), peer.predict_proba(counts))


@pytest.mark.parametrize("holes", [False, True], ids=["complete", "missing"])
def test_partly_known_rows(holes):
    """The objective is that of the definition, and the end a fixed point of a step done by hand."""
    rows = X.copy()
    if holes:
        rows[::7, 0] = rows[1::7, 1] = np.nan
    model = fe.GaussianMixture(2, tol=1e-13, max_iter=5000).fit(rows, labels=SHARES)
    logs = log_joint(rows, model.weights_, model.means_, model.covariances_)
    np.testing.assert_allclose(model.history_["objective"][-1], free_energies(SHARES, logs).mean())
    assert (np.diff(model.history_["objective"]) < 1e-12).all()
    r = responsibilities(SHARES, logs)
    np.testing.assert_allclose(model.weights_, r.mean(axis=0), atol=1e-5)
    if not holes:
        _, means, covariances = moments(rows, r)
        np.testing.assert_allclose(model.means_, means, atol=1e-5)
        np.testing.assert_allclose(model.covariances_, covariances, atol=1e-5)
    # the rest of the rows is inferred, and the numbers of the components are those of the labels
    assert np.mean(model.predict(rows) == TRUTH) > 0.8


def test_ways_to_say_the_same():
    numbers = np.where(np.arange(N) < 30, TRUTH, -1)
    shares = np.where(numbers[:, None] < 0, np.nan, np.eye(2)[TRUTH])
    possible = (numbers[:, None] < 0) | (np.eye(2)[TRUTH] == 1)
    fits = [
        fe.GaussianMixture(2, random_state=0).fit(X, labels=said) for said in (numbers, shares, possible)
    ]
    for other in fits[1:]:
        np.testing.assert_allclose(other.means_, fits[0].means_, rtol=1e-9)
    nothing = fe.GaussianMixture(2, random_state=0).fit(X, labels=np.full(N, -1))
    np.testing.assert_array_equal(nothing.means_, fe.GaussianMixture(2, random_state=0).fit(X).means_)


def test_labels_stay_with_their_rows():
    """Order does not matter, a weight is a repetition, and equal rows keep labels of their own."""
    whole = np.round(X)
    labels = np.where(np.arange(N) < 60, TRUTH, -1)
    weight = 1 + np.arange(N) % 3
    model = fe.GaussianMixture(2, random_state=0).fit(whole, None, weight, labels=labels)
    order = RNG.permutation(np.repeat(np.arange(N), weight))
    other = fe.GaussianMixture(2, random_state=0).fit(whole[order], labels=labels[order])
    np.testing.assert_allclose(other.means_, model.means_, rtol=1e-9)
    same = fe.GaussianMixture(2).fit(np.zeros((4, 1)), labels=[0, 0, 0, 1])
    np.testing.assert_allclose(same.weights_, [0.75, 0.25])


def test_components_start_where_they_are_known():
    centres = np.array([[0.0], [10.0], [20.0]])
    rows = RNG.normal(centres[np.arange(90) % 3], 1.0)
    labels = np.full(90, -1)
    labels[:2] = [2, 0]  # the first row is near 0, the second near 10
    model = fe.GaussianMixture(3, random_state=0).fit(rows, labels=labels)
    assert model.means_.round(-1).ravel().tolist() == [10.0, 20.0, 0.0]
    # one row is enough to keep a component
    lone = fe.GaussianMixture(2, Tied(Full()), random_state=0).fit(rows, labels=np.r_[1, np.zeros(89, int)])
    np.testing.assert_allclose(lone.weights_, [89 / 90, 1 / 90])


@pytest.mark.parametrize(
    ("learner", "rough"),
    [
        (EM(tol=1e-10, sweep=Incremental(4)), 1e-6),
        pytest.param(LBFGS(negative_log_likelihood), 1e-6, marks=pytest.mark.slow),
        pytest.param(EM(tol=-jnp.inf, sweep=Stepwise(batch_size=32)), 0.02, marks=pytest.mark.slow),
        pytest.param(
            Gradient(optax.adam(3e-2), negative_log_likelihood, batch_size=40), 0.02, marks=pytest.mark.slow
        ),
    ],
    ids=["incremental", "L-BFGS", "stepwise", "gradient"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_learner_heeds_labels(learner, rough):
    best = fe.GaussianMixture(2, tol=1e-10).fit(X, labels=SHARES)
    model = fe.GaussianMixture(2, learner=learner, max_iter=200, random_state=0).fit(X, labels=SHARES)
    logs = log_joint(X, model.weights_, model.means_, model.covariances_)
    assert free_energies(SHARES, logs).mean() < best.history_["objective"][-1] + rough


@pytest.mark.slow
def test_bayesian_mixture_heeds_labels():
    model = fe.BayesianMixture(2).fit(X, labels=TRUTH)
    np.testing.assert_allclose(model.counts_, np.bincount(TRUTH))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            TRUTH[1:],
            r"The 'labels' of GaussianMixture.fit must have a number per row .* \(120, 2\)\. Got \(119,\)",
        ),
        (TRUTH + 1, r"must be whole numbers from -1 \(not known\) to 1\. Got 2 instead\."),
        (TRUTH.astype(str), "must be numbers or booleans"),
        (np.full((N, 2), 0.4), r"must be probabilities of sum one, or NaN .* Got \[0.4, 0.4\] instead\."),
        (np.full((N, 2), [0.5, np.nan]), r"Got \[0.5, nan\] instead\."),
        (np.full((N, 2), [1.5, -0.5]), r"Got \[1.5, -0.5\] instead\."),
        (np.zeros((N, 2), bool), r"Got \[0.0, 0.0\] instead\."),
    ],
)
def test_wrong_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianMixture(2).fit(X, labels=labels)


# ---------------------------------------------------------------------------------------------
# a start that the user gives, and parts that stay as they are
# ---------------------------------------------------------------------------------------------

START = models.Mixture(
    jnp.array([0.3, 0.7]),
    Gaussian(jnp.array([[0.0, 1.0], [1.5, -1.0]]), Full(jnp.array([[[1.0, 0.2], [0.2, 1.0]]] * 2))),
)


def test_a_start_is_in_the_units_of_the_data():
    with pytest.warns(ConvergenceWarning):
        model = fe.GaussianMixture(2, init=START, max_iter=1, tol=0.0).fit(X)
    logs = log_joint(
        X, *map(np.asarray, (START.weights, START.components.mean, START.components.covariance.value))
    )
    _, means, covariances = moments(X, responsibilities(np.full((N, 2), np.nan), logs))
    np.testing.assert_allclose(model.means_, means)
    np.testing.assert_allclose(model.covariances_, covariances)
    tied = models.Mixture(
        START.weights, Gaussian(START.components.mean, Tied(Diagonal(jnp.array([1.0, 4.0]))))
    )
    with pytest.warns(ConvergenceWarning):
        model = fe.GaussianMixture(2, Tied(Diagonal()), init=tied, max_iter=1, tol=0.0).fit(X)
    logs = log_joint(X, [0.3, 0.7], START.components.mean, [np.diag([1.0, 4.0])] * 2)
    r = responsibilities(np.full((N, 2), np.nan), logs)
    np.testing.assert_allclose(model.means_, moments(X, r)[1])


@pytest.mark.slow
def test_fixed_weights_and_means():
    fixed = EM(tol=1e-12, learnable=fe.freeze(START, lambda m: m.weights))
    model = fe.GaussianMixture(2, init=START, learner=fixed).fit(X)
    np.testing.assert_array_equal(model.weights_, START.weights)
    r = responsibilities(
        np.full((N, 2), np.nan), log_joint(X, model.weights_, model.means_, model.covariances_)
    )
    _, means, covariances = moments(X, r)
    np.testing.assert_allclose(model.means_, means, atol=1e-4)
    np.testing.assert_allclose(model.covariances_, covariances, atol=1e-4)
    # the covariance depends on the mean, so that fixed means are for gradients
    mask = fe.freeze(START, lambda m: m.components.mean)
    model = fe.GaussianMixture(2, init=START, learner=LBFGS(negative_log_likelihood, 1e-7, mask)).fit(X)
    np.testing.assert_allclose(model.means_, START.components.mean, atol=1e-12)
    r = responsibilities(
        np.full((N, 2), np.nan), log_joint(X, model.weights_, model.means_, model.covariances_)
    )
    for k in range(2):
        gap = X - model.means_[k]
        np.testing.assert_allclose(model.covariances_[k], gap.T * r[:, k] @ gap / r[:, k].sum(), atol=1e-5)
    # what is fixed is known
    errors = model.standard_errors(X)
    np.testing.assert_array_equal(errors.means, 0.0)
    assert (errors.weights > 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"n_components": 3},
            r"must be a mixture of 3 members .* Got 2 of Gaussian\(Full\), of 2 columns, instead",
        ),
        ({"covariance": Tied(Full())}, "of the family and covariance that is fitted"),
        (
            {"init": "kmeans"},
            "The 'init' parameter of GaussianMixture must be an instance of AbstractStart or",
        ),
    ],
)
def test_wrong_starts(options, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianMixture(**{"n_components": 2, "init": START, **options}).fit(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_spherical_gaussians_are_spherical_in_the_units_of_the_data():
    iris = load_iris().data
    means = iris[[0, 60, 120]]
    start = models.Mixture(jnp.full(3, 1 / 3), Gaussian(jnp.asarray(means), Spherical(jnp.ones(3), dim=4)))
    # some steps from the same start
    ours = fe.GaussianMixture(3, Spherical(floor=0.0), init=start, max_iter=20, tol=0.0).fit(iris)
    theirs = SklearnMixture(
        3,
        covariance_type="spherical",
        weights_init=np.full(3, 1 / 3),
        means_init=means,
        precisions_init=np.ones(3),
        reg_covar=0.0,
        max_iter=20,
        tol=0.0,
    ).fit(iris)
    np.testing.assert_allclose(ours.means_, theirs.means_, rtol=1e-7)
    np.testing.assert_allclose(
        ours.covariances_, theirs.covariances_[:, None, None] * np.eye(4), rtol=1e-7, atol=1e-12
    )
    np.testing.assert_allclose(ours.score(iris), theirs.score(iris), rtol=1e-9)


def test_mixture_of_factor_analysers():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 1)) @ rng.normal(size=(1, 4)) + 0.5 * rng.normal(size=(200, 4))
    one = fe.GaussianMixture(1, LowRank(rank=1), tol=1e-12).fit(rows)
    np.testing.assert_allclose(
        one.score_samples(rows), fe.FactorAnalysis(1, tol=1e-12).fit(rows).score_samples(rows), rtol=1e-4
    )


# ---------------------------------------------------------------------------------------------
# standard errors
# ---------------------------------------------------------------------------------------------


def test_standard_errors_of_one_gaussian():
    rows = X * [1e3, 1e-3]
    model = fe.GaussianMixture(1).fit(rows)
    errors = model.standard_errors(rows)
    sigma = np.cov(rows.T, ddof=0)
    spread = np.diagonal(sigma)
    assert errors.weights.tolist() == [0.0]
    np.testing.assert_allclose(errors.means[0], np.sqrt(spread / N))
    np.testing.assert_allclose(errors.covariances[0], np.sqrt((np.outer(spread, spread) + sigma**2) / N))
    # twice the rows
    twice = model.standard_errors(rows, np.full(N, 2.0))
    np.testing.assert_allclose(twice.means, errors.means / np.sqrt(2))


def test_standard_errors_of_counts_are_those_of_statsmodels():
    counts = RNG.poisson(4.0, 60)
    model = fe.Mixture(1, family=Poisson).fit(counts[:, None])
    peer = sm.GLM(counts, np.ones(60), family=sm.families.Poisson()).fit()
    error = model.standard_errors(counts[:, None]).components.rate
    np.testing.assert_allclose(error, [[np.exp(peer.params[0]) * peer.bse[0]]], rtol=1e-6)


def unpack(theta):
    weights, means = np.array([theta[0], 1 - theta[0]]), theta[1:5].reshape(2, 2)
    a, b = theta[5:8], theta[8:11]
    return weights, means, np.array([[[a[0], a[1]], [a[1], a[2]]], [[b[0], b[1]], [b[1], b[2]]]])


@pytest.mark.parametrize(
    "labels",
    [None, pytest.param(SHARES, marks=pytest.mark.slow)],
    ids=["unknown", "partly known"],
)
@pytest.mark.slow
def test_standard_errors_of_a_mixture_are_those_of_a_numerical_hessian(labels):
    """In other coordinates, with missing entries, by differences of a likelihood written with scipy."""
    rows = X.copy()
    rows[::5, 0] = np.nan
    model = fe.GaussianMixture(2, tol=1e-13, max_iter=10_000, random_state=0).fit(rows, labels=labels)
    shares = np.full((N, 2), np.nan) if labels is None else labels
    upper = ([0, 0, 1], [0, 1, 1])
    theta = np.concatenate(
        [model.weights_[:1], model.means_.ravel(), *(c[upper] for c in model.covariances_)]
    )
    hessian = approx_hess(theta, lambda t: free_energies(shares, log_joint(rows, *unpack(t))).sum())
    expected = np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    errors = model.standard_errors(rows, labels=labels)
    found = [errors.weights[:1], errors.means.ravel(), *(c[upper] for c in errors.covariances)]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-3)
    np.testing.assert_allclose(errors.weights[1], errors.weights[0])


@pytest.mark.slow
@pytest.mark.slow
def test_standard_errors_with_a_prior():
    """With a Dirichlet prior the weight of labelled rows is a Beta posterior at its mode."""
    model = fe.GaussianMixture(
        2, weight_prior=DirichletPrior(Multinomial(jnp.full(2, 0.5), 1), jnp.array([6.0, 11.0])), tol=1e-12
    )
    model.fit(X, labels=TRUTH)
    a, b = np.bincount(TRUTH) + np.array([5.0, 10.0])
    np.testing.assert_allclose(model.weights_, [a / (a + b), b / (a + b)])
    error = model.standard_errors(X, labels=TRUTH).weights
    np.testing.assert_allclose(error, np.sqrt(a * b / (a + b) ** 3), rtol=1e-6)


def test_what_rows_do_not_determine_is_nan():
    model = fe.GaussianMixture(2).fit(X, labels=np.full((N, 2), 0.5))
    with pytest.warns(ConvergenceWarning, match="The observed information is singular"):
        errors = model.standard_errors(X)
    assert np.isnan(errors.weights).all()
    one = fe.GaussianMixture(1).fit(X)
    with pytest.warns(ConvergenceWarning, match="standard errors from where X is most likely"):
        one.standard_errors(X + 0.3)


@pytest.mark.slow
def test_low_rank_covariances_are_determined_though_factors_are_not():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(200, 5))
    model = fe.GaussianMixture(1, LowRank(rank=2), tol=1e-13).fit(rows)
    errors = model.standard_errors(rows)
    assert np.isfinite(errors.covariances).all()
    # fewer parameters are known no worse than all of them
    free = fe.GaussianMixture(1).fit(rows).standard_errors(rows)
    assert (errors.covariances < 1.1 * free.covariances).all()
