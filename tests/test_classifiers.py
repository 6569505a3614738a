"""Naive Bayes and discriminant analysis beside scikit-learn, and as the supervised case of a mixture."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.models import Labelled, Mixture
from freeenergy.models._mixture import MixtureStatistics

X, y = load_iris(return_X_y=True)
NAN = np.nan


def binary_rows(n=60, columns=4):
    rng = np.random.RandomState(0)
    labels = rng.randint(3, size=n)
    rates = rng.uniform(0.1, 0.9, (3, columns))
    return (rng.rand(n, columns) < rates[labels]).astype(float), labels


def test_gaussian_naive_bayes_is_scikit_learns():
    weight = np.random.RandomState(1).randint(0, 3, len(y)).astype(float)
    for w in (None, weight):
        ours = fe.NaiveBayes().fit(X, y, sample_weight=w)
        theirs = GaussianNB(var_smoothing=0.0).fit(X, y, sample_weight=w)
        np.testing.assert_allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X), atol=1e-6)
        np.testing.assert_allclose(ours.class_prior_, theirs.class_prior_)
    assert ours.score(X, y) == theirs.score(X, y)
    assert ours.converged_
    assert ours.n_iter_ == 1


def test_bernoulli_naive_bayes_with_a_prior_is_scikit_learns():
    B, labels = binary_rows()
    # one imagined success and failure: Beta(2, 2)
    prior = d.BetaPrior(d.Bernoulli(jnp.full(4, 0.5)), jnp.full(4, 2.0), jnp.full(4, 2.0))
    ours = fe.NaiveBayes(d.Bernoulli, component_prior=prior).fit(B, labels)
    theirs = BernoulliNB(alpha=1.0).fit(B, labels)
    np.testing.assert_allclose(ours.predict_log_proba(B), theirs.predict_log_proba(B), atol=1e-10)


def test_categorical_naive_bayes_is_scikit_learns():
    rng = np.random.RandomState(0)
    C = rng.randint(3, size=(200, 2))
    labels = (C[:, 0] + rng.randint(2, size=200)) % 3
    theirs = CategoricalNB(alpha=1e-12, force_alpha=True).fit(C, labels)
    ours = fe.NaiveBayes(d.Categorical).fit(C, labels)
    np.testing.assert_allclose(ours.predict_proba(C), theirs.predict_proba(C), atol=1e-8)


def test_counting_by_hand():
    B = np.array([[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]])
    model = fe.NaiveBayes(d.Bernoulli).fit(B, [1, 1, 1, 0, 0])
    np.testing.assert_allclose(model.class_prior_, [0.4, 0.6])
    np.testing.assert_allclose(model.model_.components.probability, [[0, 0.5], [2 / 3, 2 / 3]], atol=1e-12)
    np.testing.assert_allclose(model.predict_proba([[0, 1]]), [[0.6, 0.4]], atol=1e-12)
    np.testing.assert_allclose(model.predict_proba([[1, 1]]), [[0, 1]], atol=1e-12)
    # the objective is −log p(x, y) per row
    joint = np.log([0.6 * 2 / 9, 0.6 * 4 / 9, 0.6 * 2 / 9, 0.4 * 0.5, 0.4 * 0.5])
    np.testing.assert_allclose(model.history_["objective"][-1], -joint.mean(), atol=1e-12)


def test_weight_prior_smooths_the_classes():
    prior = d.DirichletPrior(d.Multinomial(jnp.full(3, 1 / 3), 1), jnp.full(3, 11.0))
    model = fe.NaiveBayes(weight_prior=prior).fit(X[:120], y[:120])
    np.testing.assert_allclose(model.class_prior_, np.array([60, 60, 30]) / 150)


@pytest.mark.slow
def test_mixed_columns():
    rng = np.random.RandomState(0)
    labels = rng.randint(2, size=80)
    M = np.column_stack(
        [
            rng.normal(1e4 + 50 * labels, 20.0),
            (rng.rand(80) < 0.2 + 0.5 * labels).astype(float),
            rng.poisson(2 + 3 * labels),
        ]
    )
    families = [d.Gaussian, d.Bernoulli, d.Poisson]
    mixed = fe.NaiveBayes(families).fit(M, labels)
    log_odds = np.diff(mixed.predict_log_proba(M), axis=1)[:, 0]
    prior = np.log(labels.mean() / (1 - labels.mean()))
    parts = [
        np.diff(fe.NaiveBayes(f).fit(M[:, [i]], labels).predict_log_proba(M[:, [i]]), axis=1)[:, 0] - prior
        for i, f in enumerate(families)
    ]
    np.testing.assert_allclose(log_odds, sum(parts) + prior, atol=1e-8)
    # a Product says the same
    family = d.Product(
        (
            d.Gaussian(jnp.zeros(1), d.Diagonal()),
            d.Bernoulli(jnp.full(1, 0.5)),
            d.Poisson(jnp.ones(1)),
        ),
        sizes=(1, 1, 1),
    )
    again = fe.NaiveBayes(family).fit(M, labels)
    np.testing.assert_allclose(again.predict_log_proba(M), mixed.predict_log_proba(M), atol=1e-10)
    assert mixed.column_roles(3).mass.tolist() == [False, True, True]
    assert again.column_roles(3).mass.tolist() == [False, True, True]
    # without a column nothing is left of it but the others
    holes = M.copy()
    holes[:, 0] = NAN
    np.testing.assert_allclose(
        np.diff(mixed.predict_log_proba(holes), axis=1)[:, 0], parts[1] + parts[2] + prior, atol=1e-8
    )
    # evidence of the marginal density, and imputation by the expected rate
    one = M[0]
    by_class = [
        stats.norm.logpdf(one[0], M[labels == c, 0].mean(), M[labels == c, 0].std())
        + stats.bernoulli.logpmf(one[1], M[labels == c, 1].mean())
        + stats.poisson.logpmf(one[2], M[labels == c, 2].mean())
        + np.log((labels == c).mean())
        for c in (0, 1)
    ]
    evidence = mixed.evidence(one[None])
    assert evidence.kind is fe.Kind.EXACT
    np.testing.assert_allclose(evidence.nats, [np.logaddexp(*by_class)], atol=1e-6)
    hidden = [[one[0], one[1], NAN]]
    rates = [M[labels == c, 2].mean() for c in (0, 1)]
    # a count is the whole number next to its mean
    assert mixed.impute(hidden)[0, 2] == np.rint(mixed.predict_proba(hidden)[0] @ rates)
    draws = mixed.sample(2000, random_state=0)
    error = M.std(axis=0) / np.sqrt(2000)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - M.mean(axis=0)), 5 * error)


def test_linear_and_quadratic_discriminants_are_scikit_learns():
    linear = fe.DiscriminantAnalysis().fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X, y)
    np.testing.assert_allclose(linear.means_, theirs.means_)
    np.testing.assert_allclose(linear.covariances_[1], theirs.covariance_, rtol=1e-8)
    np.testing.assert_allclose(linear.predict_proba(X), theirs.predict_proba(X), atol=1e-8)
    own = fe.DiscriminantAnalysis(d.Full()).fit(X, y)
    for k in range(3):
        np.testing.assert_allclose(own.covariances_[k], np.cov(X[y == k].T, bias=True), rtol=1e-6)
    # scikit-learn divides by n − 1
    theirs = QuadraticDiscriminantAnalysis().fit(X, y)
    scores = np.stack(
        [
            stats.multivariate_normal(X[y == k].mean(0), np.cov(X[y == k].T, bias=True)).logpdf(X)
            for k in range(3)
        ]
    )
    expected = np.exp(scores - np.logaddexp.reduce(scores, axis=0)).T
    np.testing.assert_allclose(own.predict_proba(X), expected, atol=1e-8)
    assert (own.predict(X) == theirs.predict(X)).mean() > 0.98


def test_diagonal_discriminants_are_naive_bayes():
    diagonal = fe.DiscriminantAnalysis(d.Diagonal()).fit(X, y)
    naive = fe.NaiveBayes().fit(X, y)
    np.testing.assert_allclose(diagonal.predict_log_proba(X), naive.predict_log_proba(X))


def test_numbers_of_two_gaussians():
    # μ = 0 and 2, σ = 1, π = ½: half at y = 1, and σ(2) for the first class at y = 0
    rows = np.array([[-1.0], [1.0], [1.0], [3.0]])
    model = fe.DiscriminantAnalysis().fit(rows, [0, 0, 1, 1])
    np.testing.assert_allclose(model.predict_proba([[1.0]]), [[0.5, 0.5]])
    np.testing.assert_allclose(model.predict_proba([[0.0]])[0, 0], 0.8807970779, atol=1e-9)


@pytest.mark.parametrize("family", [d.Bernoulli, d.Poisson])
def test_log_odds_of_a_common_family_are_affine(family):
    B, labels = binary_rows()
    model = fe.NaiveBayes(family).fit(B, labels)
    log_odds = model.predict_log_proba(B)
    log_odds = log_odds[:, 1] - log_odds[:, 0]
    design = np.column_stack([B, np.ones(len(B))])
    residual = log_odds - design @ np.linalg.lstsq(design, log_odds, rcond=None)[0]
    assert np.abs(residual).max() < 1e-9


@pytest.mark.parametrize("covariance", [d.Full(), d.Tied(d.Full()), d.Diagonal(), d.Tied(d.Spherical())])
def test_fit_is_the_m_step_of_the_mixture(covariance):
    model = fe.DiscriminantAnalysis(covariance).fit(X, y)
    Z, mixture = model.scaling_.apply(X), model.model_

    @jax.jit
    def both(mixture, Z):
        one_hot = jax.nn.one_hot(y, 3, dtype=float)
        features = jax.vmap(mixture.component(0).features)(Z)
        again = mixture.maximise(MixtureStatistics(one_hot.sum(axis=0), one_hot.T @ features))
        # a mixture that is certain of its components counts what the labels say
        sure = Mixture(mixture.weights, d.Gaussian(Z[::50], d.Diagonal(jnp.full((3, 4), 1e-4))))
        settings = {"temperature": jnp.ones(()), "incomplete": False}
        certain, _ = sure.expect(Z[:9], jnp.ones(9), **settings)
        labelled, _ = Labelled(sure).expect((Z[:9], jnp.asarray(y[:9])), jnp.ones(9), **settings)
        return again, certain.features, labelled.features

    again, certain, labelled = both(mixture, Z)
    for a, b in zip(jax.tree.leaves(mixture), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    np.testing.assert_allclose(labelled, certain, atol=1e-10)


def test_missing_entries_are_integrated_out():
    rng = np.random.RandomState(0)
    model = fe.DiscriminantAnalysis(d.Full()).fit(X, y)
    holes = np.where(rng.rand(*X.shape) < 0.4, NAN, X)
    expected = []
    for row in holes[::15]:
        seen = ~np.isnan(row)
        scores = [np.log(p) for p in model.class_prior_]
        for k in range(3):
            if seen.any():
                block = model.covariances_[k][np.ix_(seen, seen)]
                scores[k] += stats.multivariate_normal(model.means_[k][seen], block).logpdf(row[seen])
        expected.append(np.exp(scores - np.logaddexp.reduce(scores)))
    np.testing.assert_allclose(model.predict_proba(holes[::15]), expected, atol=1e-8)
    # with the labels known each class is a Gaussian of its own, fitted by EM
    fitted = fe.DiscriminantAnalysis(d.Full(), tol=1e-11).fit(holes, y)
    alone = fe.GaussianDensity(tol=1e-11).fit(holes[y == 1])
    np.testing.assert_allclose(fitted.means_[1], alone.mean_, atol=1e-3)
    np.testing.assert_allclose(fitted.covariances_[1], alone.covariance_, atol=1e-3)
    assert (np.diff(fitted.history_["objective"]) < 1e-12).all()


def test_conjugate_prior_over_covariances():
    prior = d.NormalInverseWishart(jnp.zeros(4), jnp.array(1.0), jnp.eye(4) * 5.0, jnp.array(6.0))
    model = fe.DiscriminantAnalysis(d.Full(), component_prior=prior).fit(X, y)
    Z = model.scaling_.apply(X[y == 2])
    mean = Z.sum(axis=0) / (len(Z) + 1)
    np.testing.assert_allclose(model.model_.components.mean[2], mean, atol=1e-12)
    scatter = 5 * np.eye(4) + Z.T @ Z - (len(Z) + 1) * np.outer(mean, mean)
    expected = scatter / (6 + len(Z) + 4 + 2)
    np.testing.assert_allclose(model.model_.component(2).covariance.matrix(), expected, atol=1e-10)


def test_low_rank_covariances():
    model = fe.DiscriminantAnalysis(d.LowRank(rank=1)).fit(X, y)
    assert model.score(X, y) > 0.95
    assert (np.diff(model.history_["objective"]) < 1e-9).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (fe.NaiveBayes("gaussian"), "'family' parameter of NaiveBayes must be an exponential family"),
        (fe.NaiveBayes([d.Gaussian, d.Poisson]), "must describe the 4 columns of X. Got 2 instead"),
        (fe.NaiveBayes(d.Bernoulli(jnp.full(3, 0.5))), "must describe the 4 columns of X. Got 3 instead"),
        (fe.NaiveBayes(d.Bernoulli), "Bernoulli needs entries 0 or 1"),
        (fe.NaiveBayes(weight_prior=2.0), "must be an instance of DirichletPrior or None"),
        (fe.DiscriminantAnalysis("full"), "must be an instance of AbstractCovariance or None"),
        (
            fe.DiscriminantAnalysis(
                component_prior=d.NormalInverseWishart(
                    jnp.zeros(4), jnp.array(1.0), jnp.eye(4), jnp.array(6.0)
                )
            ),
            "must be None where the classes share a covariance",
        ),
    ],
)
def test_refuses(model, message):
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, y)


def test_words_as_labels_and_files(tmp_path):
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    model = fe.NaiveBayes([d.Gaussian] * 4).fit(X, words)
    assert model.predict(X[:1]) == ["setosa"]
    model.save(tmp_path / "model.safetensors")
    again = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.family == model.family


def test_joins_the_comparison_of_classifiers_only():
    board = fe.compare({"own": fe.DiscriminantAnalysis(d.Full()), "naive": fe.NaiveBayes()}, X, y, cv=3)
    assert all(line.error is None for line in board.table())
    alone = fe.compare({"gaussian": fe.GaussianDensity(), "naive": fe.NaiveBayes()}, X, cv=3)
    errors = {line.model: line.error for line in alone.table()}
    assert errors["gaussian"] is None
    assert "pass them as y" in errors["naive"]
