"""Estimators from data to numbers: one Gaussian, k-means, factor analysis, probabilistic PCA."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.cluster import KMeans as PeerKMeans
from sklearn.decomposition import PCA
from sklearn.decomposition import FactorAnalysis as PeerFactors

from freeenergy import GaussianDensity, GaussianMixture, Kind, KMeans, RandomRows
from freeenergy._core import count_compilations
from freeenergy.distributions import Diagonal, Full, LowRank, NormalInverseWishart, Spherical
from freeenergy.estimators import PPCA, FactorAnalysis, PlusPlus
from freeenergy.learning import EM
from freeenergy.models import Clusters

RNG = np.random.default_rng(2)
LOADING = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 1.5], [1.0, -1.0], [0.5, 0.5]])
NOISE = np.array([0.5, 0.3, 0.8, 0.4, 0.6])
UNITS = np.array([1.0, 10.0, 0.1, 1.0, 5.0])
FACTORS = RNG.normal(size=(200, 2)) @ LOADING.T + RNG.normal(size=(200, 5)) * np.sqrt(NOISE)
X = FACTORS * UNITS + np.array([0.0, 1e4, -3.0, 2.0, 0.0])
HOLES = np.where(RNG.uniform(size=X.shape) < 0.15, np.nan, X)
WEIGHT = RNG.integers(0, 3, size=200).astype(float)


def dense_log_prob(x, mean, covariance):
    """log N over the observed entries of each row."""
    out = np.zeros(len(x))
    for i, row in enumerate(x):
        seen = ~np.isnan(row)
        if seen.any():
            out[i] = stats.multivariate_normal.logpdf(row[seen], mean[seen], covariance[np.ix_(seen, seen)])
    return out


# ---- one Gaussian


def test_a_gaussian_has_the_moments_of_the_rows():
    model = GaussianDensity().fit(X)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.covariance_, np.cov(X.T, ddof=0), rtol=1e-9)
    expected = dense_log_prob(X, X.mean(axis=0), np.cov(X.T, ddof=0))
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-9)
    np.testing.assert_allclose(model.score(X), expected.mean(), rtol=1e-10)
    np.testing.assert_allclose(-model.history_["objective"][-1], expected.mean(), rtol=1e-10)
    evidence = model.evidence(X)
    assert evidence.kind is Kind.EXACT
    assert not evidence.stderr.any()
    # the marginal of the observed part
    np.testing.assert_allclose(
        model.score_samples(HOLES[:20]),
        dense_log_prob(HOLES[:20], model.mean_, model.covariance_),
        rtol=1e-9,
    )


def test_weights_are_repetitions():
    weighted = GaussianDensity().fit(X, sample_weight=WEIGHT)
    repeated = GaussianDensity().fit(np.repeat(X, WEIGHT.astype(int), axis=0))
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, rtol=1e-13)
    expected = np.cov(X.T, fweights=WEIGHT.astype(int), ddof=0)
    np.testing.assert_allclose(weighted.covariance_, expected, rtol=1e-9)


def test_a_column_observed_only_where_nothing_counts_is_refused():
    x = np.array([[1.0, 2.0], [2.0, np.nan], [4.0, np.nan]])
    for estimator in (GaussianDensity(), KMeans(1)):
        with pytest.raises(ValueError, match=r"Column 1 of X has no observed value\. Drop it"):
            estimator.fit(x, sample_weight=[0.0, 1.0, 1.0])


@pytest.mark.parametrize("covariance", [Diagonal(), Spherical()], ids=["diagonal", "spherical"])
def test_structures_with_a_closed_form(covariance):
    model = GaussianDensity(covariance).fit(HOLES)
    if isinstance(covariance, Diagonal):
        expected = np.nanvar(HOLES, axis=0)
    else:
        # one variance for all entries about the means of their columns, in the units of the data
        expected = np.nanmean((HOLES - np.nanmean(HOLES, axis=0)) ** 2)
    np.testing.assert_allclose(np.diagonal(model.covariance_), expected, rtol=1e-9)
    np.testing.assert_allclose(model.mean_, np.nanmean(HOLES, axis=0), rtol=1e-9, atol=1e-12)
    assert model.n_iter_ == 1


def test_a_low_rank_gaussian_is_factor_analysis():
    model = GaussianDensity(LowRank(rank=2), tol=1e-10).fit(X)
    factors = FactorAnalysis(2, tol=1e-10).fit(X)
    np.testing.assert_allclose(model.score(X), factors.score(X), atol=1e-5)


def test_missing_entries_are_fitted_by_the_observed_likelihood():
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal([1.0, -1.0], [[1.0, 0.7], [0.7, 2.0]], size=25)
    x[rng.uniform(size=x.shape) < 0.25] = np.nan
    x = x[~np.isnan(x).all(axis=1)]
    model = GaussianDensity(tol=1e-13).fit(x)

    def loss(free):
        factor = np.array([[np.exp(free[2]), 0.0], [free[3], np.exp(free[4])]])
        return -dense_log_prob(x, free[:2], factor @ factor.T).mean()

    best = optimize.minimize(loss, np.zeros(5), tol=1e-12)
    np.testing.assert_allclose(model.score(x), -best.fun, atol=1e-8)
    np.testing.assert_allclose(model.mean_, best.x[:2], atol=1e-4)
    factor = np.array([[np.exp(best.x[2]), 0.0], [best.x[3], np.exp(best.x[4])]])
    np.testing.assert_allclose(model.covariance_, factor @ factor.T, atol=1e-3)
    # filling in is regression on the observed part
    slope = model.covariance_[0, 1] / model.covariance_[0, 0]
    filled = model.impute([[2.0, np.nan]])
    np.testing.assert_allclose(filled, [[2.0, model.mean_[1] + slope * (2.0 - model.mean_[0])]], rtol=1e-9)
    draws = model.sample(4000, random_state=0, given=[[2.0, np.nan]])[:, 0, :]
    assert np.all(draws[:, 0] == 2.0)
    spread = np.sqrt(model.covariance_[1, 1] - slope * model.covariance_[0, 1])
    assert abs(draws[:, 1].mean() - filled[0, 1]) < 5 * spread / np.sqrt(4000)
    assert abs(draws[:, 1].std() / spread - 1) < 5 / np.sqrt(8000)


def test_a_prior_on_the_gaussian_is_in_standard_units():
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    prior = NormalInverseWishart(jnp.ones(5), jnp.array(10.0), 7 * jnp.eye(5), jnp.array(9.0))
    model = GaussianDensity(Full(), prior=prior).fit(X)
    n = len(X)
    mean = 10 * np.ones(5) / (10 + n)
    scatter = 7 * np.eye(5) + z.T @ z + 10 * n / (10 + n) * np.ones((5, 5))
    np.testing.assert_allclose(model.mean_, X.mean(axis=0) + X.std(axis=0) * mean, rtol=1e-10)
    expected = scatter / (9 + n + 5 + 2) * np.outer(X.std(axis=0), X.std(axis=0))
    np.testing.assert_allclose(model.covariance_, expected, rtol=1e-9)


# ---- k-means


def test_k_means_equals_scikit_learn_from_the_same_start():
    init = X[[0, 50, 100, 150]]
    ours = KMeans(4, init=init, tol=0.0).fit(X)
    peer = PeerKMeans(4, init=init, n_init=1, tol=0.0, algorithm="lloyd").fit(X)
    np.testing.assert_array_equal(ours.labels_, peer.labels_)
    np.testing.assert_allclose(ours.inertia_, peer.inertia_, rtol=1e-10)
    np.testing.assert_allclose(ours.cluster_centers_, peer.cluster_centers_, rtol=1e-9)
    np.testing.assert_allclose(ours.transform(X[:20]), peer.transform(X[:20]), rtol=1e-8)
    np.testing.assert_array_equal(ours.predict(X), ours.labels_)
    np.testing.assert_allclose(ours.score(X), -peer.inertia_, rtol=1e-10)
    assert ours.get_feature_names_out().tolist() == [f"kmeans{k}" for k in range(4)]
    # weights are repetitions
    weighted = KMeans(4, init=init, tol=0.0).fit(X, sample_weight=WEIGHT)
    repeated = KMeans(4, init=init, tol=0.0).fit(np.repeat(X, WEIGHT.astype(int), axis=0))
    np.testing.assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-12)


def test_many_rows_are_seen_in_32_bits_first_and_clusters_that_are_too_close_for_that_in_64():
    rng = np.random.default_rng(0)
    place, noise = rng.integers(-1, 3, size=33_000).astype(float), rng.normal(size=33_000)
    # clusters far apart; clusters that are near at the end, where the middle is split; and from the start
    for rows, init in (
        (place + 0.1 * noise, [-1.0, 0.0, 1.0, 2.0]),
        (np.where(np.abs(place) == 1, place, 1e-3 * noise), [-1.0, -0.02, 0.02, 1.0]),
        (np.append(1e-8 * (place + 0.1 * noise), 1e3), [-1e-8, 0.0, 1e-8, 1e3]),
    ):
        X, centres = rows[:, None], np.array(init)[:, None]
        ours = KMeans(4, init=centres, tol=0.0).fit(X)
        peer = PeerKMeans(4, init=centres, n_init=1, tol=0.0, algorithm="lloyd").fit(X)
        np.testing.assert_allclose(ours.inertia_, peer.inertia_, rtol=1e-6)
        assert np.mean(ours.labels_ == peer.labels_) > 0.999


def test_no_row_of_one_column_is_lost_between_clusters():
    # where a product and a sum are rounded once in a minimum and twice beside it, most of these were
    rng = np.random.default_rng(0)
    rows = rng.choice([-1.414035947, -0.001392, 0.000866, 1.413533147], size=(600, 1))
    rows[:, 0] += np.where(np.abs(rows[:, 0]) < 1, 1e-3 * rng.normal(size=600), 0)
    model = Clusters(jnp.array([[-1.414035947], [-0.001392], [0.000866], [1.413533147]]))
    cold = partial(Clusters.expect_prepared, temperature=jnp.zeros(()), incomplete=False)
    statistics, cost = jax.jit(cold)(model, None, rows, jnp.ones(600))
    gaps = (rows - np.asarray(model.centroids).T) ** 2
    np.testing.assert_array_equal(statistics.mass, np.bincount(gaps.argmin(axis=1)))
    np.testing.assert_allclose(cost, gaps.min(axis=1).sum(), atol=np.finfo(float).eps * (rows**2).sum())


def test_starts_find_separated_clusters():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    x = np.repeat(centres, 20, axis=0) + rng.normal(size=(60, 2))
    within = sum(((p - p.mean(axis=0)) ** 2).sum() for p in x.reshape(3, 20, 2))
    for init, n_init in ((None, 1), (PlusPlus(), 1), (RandomRows(), 8)):
        model = KMeans(3, init=init, n_init=n_init, random_state=0).fit(x)
        np.testing.assert_allclose(model.inertia_, within, rtol=1e-9)
    # with holes: distances and means over what is observed
    holes = np.where(rng.uniform(size=x.shape) < 0.1, np.nan, x)
    holes = holes[~np.isnan(holes).all(axis=1)]
    model = KMeans(3, random_state=0).fit(holes)
    expected = np.stack([np.nanmean(holes[model.labels_ == k], axis=0) for k in range(3)])
    np.testing.assert_allclose(model.cluster_centers_, expected, rtol=1e-9)
    gaps = np.nansum((holes - expected[model.labels_]) ** 2)
    np.testing.assert_allclose(model.inertia_, gaps, rtol=1e-9)


def test_empty_clusters_are_moved_to_where_rows_are():
    x = np.concatenate([np.full((10, 2), 0.0), np.full((10, 2), 10.0), [[40.0, 40.0]]])
    init = np.array([[0.0, 0.0], [500.0, 500.0], [600.0, -600.0]])
    model = KMeans(3, init=init).fit(x)
    assert model.inertia_ == pytest.approx(0.0, abs=1e-18)
    assert sorted(np.bincount(model.labels_).tolist()) == [1, 10, 10]
    assert model.n_iter_ == len(model.history_["objective"])
    # fewer distinct rows than clusters: some stay empty, and nothing breaks
    few = KMeans(3, random_state=0).fit(np.repeat([[0.0], [1.0]], 5, axis=0))
    assert few.inertia_ == 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_rows_are_first_seen_in_32_bits():
    """Labels, inertia and a history without a gap, as if all steps had been in 64 bits."""
    rng = np.random.default_rng(0)
    x = 4.0 * rng.integers(3, size=(40_000, 1)) + rng.normal(size=(40_000, 2)) + 100.0
    x[::7, 1] = np.nan
    init = np.array([[100.0, 100.0], [101.0, 100.0], [102.0, 101.0]])
    many = KMeans(3, init=init, max_iter=5, tol=0.0).fit(x)
    few = KMeans(3, init=init, max_iter=5, learner=EM(tol=0.0, temperature=0.0)).fit(x)
    assert many.n_iter_ == few.n_iter_ == 5
    np.testing.assert_allclose(many.history_["objective"], few.history_["objective"], rtol=1e-5)
    np.testing.assert_allclose(many.inertia_, few.inertia_, rtol=1e-9)
    np.testing.assert_array_equal(many.predict(x), many.labels_)
    assert np.mean(many.labels_ == few.labels_) > 0.9999


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            KMeans(0),
            r"'n_clusters' parameter of KMeans must be an int in the range \[1, inf\)\. Got 0 instead",
        ),
        (KMeans(300), r"must be at most the number of rows\. Got 300 for n_samples=200"),
        (KMeans(2, init=X[:3]), r"The 'init' parameter of KMeans must have the shape \(2, 5\)"),
        (KMeans(2, tol=-1.0), r"The 'tol' parameter of KMeans must be a float in the range \[0, inf\)"),
        (
            GaussianMixture(2, init=X[:3]),
            r"'init' parameter of GaussianMixture must have the shape \(2, 5\)",
        ),
        (PPCA(-1), r"The 'n_components' parameter of PPCA must be an int in the range \[0, inf\) or None"),
        (
            GaussianDensity("full"),
            r"an instance of AbstractCovariance or None\. Got 'full' instead",
        ),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused_with_a_sentence(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X)


# ---- factor analysis and probabilistic PCA


def covariance(model):
    return model.components_.T @ model.components_ + np.diag(np.broadcast_to(model.noise_variance_, 5))


def test_factor_analysis_is_at_least_as_likely_as_scikit_learn():
    ours = FactorAnalysis(2, tol=1e-9).fit(X)
    # scikit-learn is not free of units: it gets the rescaled columns
    peer = PeerFactors(2, svd_method="lapack", tol=1e-10, max_iter=20_000).fit(FACTORS)
    assert ours.score(X) >= peer.score(FACTORS) - np.log(UNITS).sum() - 1e-6
    np.testing.assert_allclose(
        ours.score_samples(X), dense_log_prob(X, ours.mean_, covariance(ours)), rtol=1e-8
    )
    np.testing.assert_allclose(
        covariance(ours) / np.outer(UNITS, UNITS), peer.get_covariance(), rtol=0, atol=5e-3
    )
    # E[z | x] by dense algebra
    across = ours.components_ @ np.linalg.inv(covariance(ours))
    np.testing.assert_allclose(ours.transform(X[:30]), (X[:30] - ours.mean_) @ across.T, atol=1e-8)
    # weights are repetitions
    weighted = FactorAnalysis(2).fit(X, sample_weight=WEIGHT)
    repeated = FactorAnalysis(2).fit(np.repeat(X, WEIGHT.astype(int), axis=0))
    np.testing.assert_allclose(weighted.score(X), repeated.score(X), rtol=1e-12)


def test_factor_analysis_integrates_missing_entries_out():
    model = FactorAnalysis(2).fit(HOLES)
    expected = dense_log_prob(HOLES, model.mean_, covariance(model))
    np.testing.assert_allclose(model.score_samples(HOLES), expected, rtol=1e-8)
    np.testing.assert_allclose(-model.history_["objective"][-1], expected.mean(), rtol=1e-9)
    assert np.all(np.diff(model.history_["objective"]) <= 1e-11)
    # better than the model of rows filled with means
    blunt = FactorAnalysis(2).fit(np.where(np.isnan(HOLES), np.nanmean(HOLES, axis=0), HOLES))
    assert model.score(HOLES) > blunt.score(HOLES)
    # the posterior of a row with a hole uses the observed part
    row = X[:1].copy()
    row[0, 1] = np.nan
    seen = [0, 2, 3, 4]
    loading = model.components_.T[seen]
    inside = covariance(model)[np.ix_(seen, seen)]
    code = loading.T @ np.linalg.solve(inside, (row - model.mean_)[0, seen])
    np.testing.assert_allclose(model.transform(row)[0], code, rtol=1e-8)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_ppca_is_the_closed_form(k):
    model = PPCA(k).fit(FACTORS)
    values, vectors = np.linalg.eigh(np.cov(FACTORS.T, ddof=0))
    sigma = values[: 5 - k].mean()
    np.testing.assert_allclose(model.noise_variance_, sigma, rtol=1e-8)
    leading = vectors[:, 5 - k :]
    expected = leading @ np.diag(values[5 - k :] - sigma) @ leading.T + sigma * np.eye(5)
    np.testing.assert_allclose(covariance(model), expected, rtol=1e-7, atol=1e-8)
    assert model.transform(FACTORS[:3]).shape == (3, k)
    if k:
        # scikit-learn divides by n − 1; with its covariance scaled back the scores agree
        peer = PCA(k).fit(FACTORS)
        expected = dense_log_prob(FACTORS, peer.mean_, peer.get_covariance() * 199 / 200).mean()
        np.testing.assert_allclose(model.score(FACTORS), expected, rtol=1e-9)
        assert model.score(FACTORS) > peer.score(FACTORS)


def test_extreme_sizes():
    most = PPCA(5).fit(FACTORS)
    more = PPCA(50).fit(FACTORS)
    assert more.n_components_ == 5
    assert more.components_.shape == (5, 5)
    np.testing.assert_allclose(more.score(FACTORS), most.score(FACTORS), rtol=1e-12)
    full = GaussianDensity().fit(FACTORS)
    np.testing.assert_allclose(PPCA(4).fit(FACTORS).score(FACTORS), full.score(FACTORS), atol=1e-6)
    np.testing.assert_allclose(most.score(FACTORS), full.score(FACTORS), atol=1e-3)
    none = FactorAnalysis(0).fit(FACTORS)
    np.testing.assert_allclose(none.noise_variance_, FACTORS.var(axis=0), rtol=1e-8)
    np.testing.assert_allclose(none.score(FACTORS), GaussianDensity(Diagonal()).fit(FACTORS).score(FACTORS))
    assert none.transform(FACTORS).shape == (200, 0)


def test_the_planted_dimension_is_chosen():
    chosen = FactorAnalysis().fit(X)
    assert chosen.n_components_ == 2
    assert np.argmax(chosen.log_evidence_) == 2
    # log p in the units of the data − ½ log n · parameters, with the rotations taken off
    for k, parameters in enumerate((5 + 5, 5 + 5 + 5, 10 + 5 + 5 - 1)):
        single = FactorAnalysis(k).fit(X)
        expected = 200 * single.score(X) - 0.5 * np.log(200) * parameters
        np.testing.assert_allclose(chosen.log_evidence_[k], expected, rtol=1e-6)
    np.testing.assert_allclose(chosen.score_samples(X), single.score_samples(X), rtol=1e-9)
    assert chosen.components_.shape == (2, 5)
    # equal noise leaves every dimension below that of the rows identified
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 5)) + 0.1 * rng.normal(size=(200, 5))
    assert PPCA().fit(flat).n_components_ == 3


# ---- compile once


@pytest.mark.parametrize(
    "make",
    [
        GaussianDensity,
        lambda: KMeans(4, random_state=0),
        lambda: FactorAnalysis(2),
        lambda: PPCA(1),
        lambda: GaussianMixture(2, random_state=0),
    ],
    ids=["gaussian", "kmeans", "factors", "ppca", "mixture"],
)
def test_a_second_fit_of_the_shape_compiles_nothing(make):
    first = make().fit(X)
    first.score(X)
    with count_compilations() as counter:
        second = make().fit(X[::-1] * 2 + 1)
        second.score(X * 2 + 1)
        # fewer rows of the same bucket
        make().fit(X[:195])
    assert counter.count == 0
