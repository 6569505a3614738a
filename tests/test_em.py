"""Expectation–maximisation and gradient learning on mixtures, beside independent answers."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from sklearn.cluster import KMeans as PeerKMeans
from sklearn.mixture import GaussianMixture as PeerMixture

from freeenergy import freeze
from freeenergy._core import Data, learnable, on_device, parameter
from freeenergy.distributions import (
    Categorical,
    Diagonal,
    DirichletPrior,
    Full,
    Gamma,
    Gaussian,
    LowRank,
    Multinomial,
    NormalInverseWishart,
    Poisson,
    Spherical,
    Tied,
)
from freeenergy.learning import (
    EM,
    MAP,
    AllRows,
    ClosedForm,
    Gradient,
    Incremental,
    Stepwise,
    _gradient,
    decay_weights,
    expect_all,
    fit,
    in_one_vector,
    negative_log_likelihood,
)
from freeenergy.models import Clusters, Density, Mixture
from freeenergy.models._mixture import MixtureStatistics

RNG = np.random.default_rng(1)
CENTRES = np.array([[0.0, 0.0], [4.0, 1.0], [-1.0, 3.0]])
X = np.concatenate([c + RNG.normal(size=(100, 2)) @ RNG.normal(size=(2, 2)) for c in CENTRES])
MEANS = on_device(X[[5, 120, 250]])
HOLES = np.where(RNG.uniform(size=X.shape) < 0.2, np.nan, X)
EVEN = on_device(np.ones(3) / 3)
ONE = on_device(1.0)


def mixture(covariance, means=MEANS, **priors):
    weights = on_device(np.full(len(means), 1 / len(means)))
    return Mixture(weights, Gaussian(means, covariance), **priors)


COVARIANCES = {
    "full": Full(on_device(np.broadcast_to(np.eye(2), (3, 2, 2)))),
    "tied": Tied(Full(on_device(np.eye(2)))),
    "diag": Diagonal(on_device(np.ones((3, 2)))),
    "spherical": Spherical(on_device(np.ones(3)), dim=2),
}
PRECISIONS = {
    "full": np.broadcast_to(np.eye(2), (3, 2, 2)),
    "tied": np.eye(2),
    "diag": np.ones((3, 2)),
    "spherical": np.ones(3),
}
FULL = mixture(COVARIANCES["full"])


@eqx.filter_jit
def dense(model):
    return jnp.stack([model.component(k).covariance.matrix() for k in range(model.size)])


def matrices(model):
    return np.asarray(dense(model))


def brute_log_prob(model, x):
    """log Σ π N by SciPy, over the observed entries of each row."""
    out = []
    for row in np.asarray(x):
        seen = ~np.isnan(row)
        density = [
            stats.multivariate_normal.pdf(row[seen], m[seen], c[np.ix_(seen, seen)]) if seen.any() else 1.0
            for m, c in zip(np.asarray(model.components.mean), matrices(model), strict=True)
        ]
        out.append(np.log(np.asarray(model.weights) @ density))
    return np.array(out)


@eqx.filter_jit
def responsibilities(model, x):
    return jax.vmap(lambda row: model.posterior(row).probabilities)(jnp.asarray(x))


def assert_falls(objective, slack=1e-11):
    assert np.all(np.diff(objective) <= slack), np.diff(objective).max()


# ---- against scikit-learn


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_twenty_steps_equal_those_of_scikit_learn(kind, key):
    ours = fit(mixture(COVARIANCES[kind]), EM(tol=-1.0), X, key=key, max_iter=20)
    peer = PeerMixture(
        3,
        covariance_type=kind,
        tol=0.0,
        reg_covar=0.0,
        max_iter=20,
        weights_init=np.asarray(EVEN),
        means_init=np.asarray(MEANS),
        precisions_init=PRECISIONS[kind],
        init_params="random",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(X)
    assert ours.n_iter == peer.n_iter_ == 20
    np.testing.assert_allclose(-ours.history["objective"][-1], peer.score(X), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.model.weights, peer.weights_, atol=1e-9)
    np.testing.assert_allclose(ours.model.components.mean, peer.means_, atol=1e-8)
    inside = ours.model.components.covariance
    values = {"full": "value", "diag": "variance", "spherical": "variance"}
    found = inside.covariance.value if kind == "tied" else getattr(inside, values[kind])
    np.testing.assert_allclose(found, peer.covariances_, atol=1e-8)
    assert_falls(ours.history["objective"])
    np.testing.assert_allclose(responsibilities(ours.model, X[:20]), peer.predict_proba(X[:20]), atol=1e-8)


# ---- the free energy never rises


@pytest.mark.parametrize(
    "covariance",
    [
        LowRank(jnp.full((3, 2, 1), 0.1), jnp.ones((3, 2))),
        Tied(Diagonal(jnp.ones(2))),
        Tied(Spherical(ONE, dim=2)),
    ],
    ids=["low rank", "tied diagonal", "tied spherical"],
)
def test_the_free_energy_never_rises(covariance, key):
    result = fit(mixture(covariance), EM(tol=-1.0), X, key=key, max_iter=20)
    assert_falls(result.history["objective"])
    np.testing.assert_allclose(
        result.history["objective"][-1], -brute_log_prob(result.model, X).mean(), rtol=1e-10
    )


FAMILIES = {
    "poisson": (
        Poisson(jnp.array([[1.0, 2.0], [6.0, 5.0]])),
        np.concatenate([RNG.poisson([2, 3], (25, 2)), RNG.poisson([9, 4], (25, 2))]).astype(float),
    ),
    "gamma": (
        Gamma(jnp.array([[1.0, 1.0], [3.0, 3.0]]), jnp.ones((2, 2))),
        np.concatenate([RNG.gamma(2.0, 1.0, (25, 2)), RNG.gamma(5.0, 2.0, (25, 2))]),
    ),
    "categorical": (
        Categorical(jnp.array([[[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]], [[0.2, 0.3, 0.5], [0.1, 0.3, 0.6]]])),
        np.concatenate(
            [RNG.choice(3, (25, 2), p=[0.7, 0.2, 0.1]), RNG.choice(3, (25, 2), p=[0.1, 0.2, 0.7])]
        ),
    ),
}


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize("missing", [False, True])
def test_it_never_rises_for_other_families(name, missing, key):
    components, x = FAMILIES[name]
    x = x.astype(float)
    if missing:
        x = np.where(np.random.default_rng(3).uniform(size=x.shape) < 0.2, np.nan, x)
    start = Mixture(jnp.array([0.5, 0.5]), components)
    # fifty rows are padded, and zero is outside the support of the gamma
    result = fit(start, EM(tol=-1.0), x, key=key, max_iter=15)
    assert len(result.history["objective"]) == 15
    assert_falls(result.history["objective"])
    members, logs = jax.tree.map(np.asarray, result.model.components), np.zeros((len(x), 2))
    for k in range(2):
        for d in range(2):
            seen = ~np.isnan(x[:, d])
            if name == "poisson":
                logs[seen, k] += stats.poisson.logpmf(x[seen, d], members.rate[k, d])
            elif name == "gamma":
                law = stats.gamma(members.shape[k, d], scale=1 / members.rate[k, d])
                logs[seen, k] += law.logpdf(x[seen, d])
            else:
                logs[seen, k] += np.log(members.probabilities[k, d])[x[seen, d].astype(int)]
    value = np.logaddexp.reduce(logs + np.log(np.asarray(result.model.weights)), axis=1).mean()
    np.testing.assert_allclose(-result.history["objective"][-1], value, rtol=1e-10)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_it_never_rises_with_missing_entries(kind, key):
    result = fit(mixture(COVARIANCES[kind]), EM(tol=-1.0), HOLES, key=key, max_iter=20)
    assert_falls(result.history["objective"])
    np.testing.assert_allclose(
        result.history["objective"][-1], -brute_log_prob(result.model, HOLES).mean(), rtol=1e-9
    )


def test_the_tempered_free_energy_never_rises(key):
    result = fit(FULL, EM(tol=-1.0, temperature=2.0), X, key=key, max_iter=20)
    assert_falls(result.history["objective"])
    parts = zip(result.model.components.mean, matrices(result.model), strict=True)
    energies = -np.log(result.model.weights) - np.stack(
        [stats.multivariate_normal.logpdf(X, np.asarray(m), c) for m, c in parts], axis=1
    )
    free = -2 * np.logaddexp.reduce(-energies / 2, axis=1).mean()
    np.testing.assert_allclose(result.history["objective"][-1], free, rtol=1e-11)


# ---- sweeps


@pytest.mark.slow
def test_sweeps_reach_the_same_optimum(key):
    batch = fit(FULL, EM(tol=1e-12, sweep=AllRows()), X, key=key, max_iter=500)
    assert batch.converged
    # 320 padded rows do not divide by seven
    parts = fit(FULL, EM(tol=1e-12, sweep=Incremental(7)), X, key=key, max_iter=500)
    assert_falls(parts.history["objective"])
    np.testing.assert_allclose(parts.history["objective"][-1], batch.history["objective"][-1], atol=1e-9)
    np.testing.assert_allclose(parts.model.components.mean, batch.model.components.mean, atol=1e-4)
    assert parts.n_iter < batch.n_iter
    steps = fit(FULL, EM(tol=-jnp.inf, sweep=Stepwise(64, 0.7)), X, key=key, max_iter=60)
    assert abs(steps.history["objective"][-1] - batch.history["objective"][-1]) < 5e-3


# ---- temperature zero


def test_cold_em_of_equal_spheres_is_k_means(key):
    model = mixture(Tied(Spherical(jnp.array(0.3), dim=2)))
    learner = EM(
        temperature=0.0, tol=1e-12, learnable=freeze(model, lambda m: (m.weights, m.components.covariance))
    )
    cold = fit(model, learner, X, key=key).model
    clusters = fit(Clusters(MEANS), EM(temperature=0.0, tol=1e-12), X, key=key)
    peer = PeerKMeans(3, init=np.asarray(MEANS), n_init=1, algorithm="lloyd", tol=0.0).fit(X)
    np.testing.assert_array_equal(responsibilities(cold, X).argmax(axis=1), peer.labels_)
    distances = ((X[:, None] - np.asarray(clusters.model.centroids)) ** 2).sum(axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), peer.labels_)
    np.testing.assert_allclose(cold.components.mean, peer.cluster_centers_, rtol=1e-10)
    np.testing.assert_allclose(clusters.model.centroids, peer.cluster_centers_, rtol=1e-10)
    np.testing.assert_allclose(clusters.history["objective"][-1] * len(X), peer.inertia_, rtol=1e-10)
    assert_falls(clusters.history["objective"])


@eqx.filter_jit
def free_energy_of(clusters, x, weight, temperature):
    return clusters.expect(x, weight, temperature=temperature, incomplete=True)[1]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 50.0])
def test_free_energy_of_clusters_against_the_sum_over_them(temperature):
    x = np.where(np.random.default_rng(1).random(X[:20].shape) < 0.2, np.nan, X[:20])
    weight = np.linspace(0.5, 2.0, 20)
    gaps = np.where(np.isnan(x)[:, None], 0, x[:, None] - np.asarray(MEANS)[None])
    energies = np.sum(gaps**2, axis=2)
    each = energies.min(axis=1)
    if temperature > 0:
        each = -temperature * np.logaddexp.reduce(-energies / temperature, axis=1)
    free = free_energy_of(Clusters(MEANS), x, weight, np.asarray(temperature))
    # where it is warm enough the free energy is below zero
    assert temperature < 50 or weight @ each < 0
    np.testing.assert_allclose(free, weight @ each, rtol=1e-10)
    # relative to rows at the origin, all else being equal
    less = free_energy_of(Clusters(MEANS, relative=True), x, weight, np.asarray(temperature))
    np.testing.assert_allclose(free - less, weight @ np.nansum(x**2, axis=1), rtol=1e-10)


def test_tempered_clusters_are_gaussians_of_half_the_temperature_as_variance():
    clusters, data = Clusters(MEANS), Data.of(X[:32])

    @jax.jit
    def shares(temperature):
        return expect_all(clusters, data, temperature)[0].mass

    spheres = mixture(Tied(Spherical(jnp.array(0.6), dim=2)))
    expected = responsibilities(spheres, X[:32]).sum(axis=0)
    np.testing.assert_allclose(shares(1.2), expected, rtol=1e-10)
    np.testing.assert_allclose(shares(1e9), 32 / 3, rtol=1e-6)
    cold = shares(0.0)
    np.testing.assert_allclose(shares(1e-6), cold, atol=1e-9)
    assert cold.tolist() == [float(n) for n in np.round(cold)]
    one, every = jax.jit(lambda x: (clusters.energy(x, jnp.array(1)), clusters.energies(x)))(X[0])
    assert float(one) == np.asarray(every)[1]


def _cooling(iteration):
    return jnp.maximum(1.0, 4.0 * 0.8 ** iteration.astype(float))


def test_annealing_ends_at_what_the_schedule_tends_to(key):
    result = fit(FULL, EM(tol=1e-9, temperature=_cooling), X, key=key, max_iter=500)
    assert result.converged
    # 4 · 0.8⁷ < 1: it does not stop before
    assert result.n_iter > 7
    again = fit(result.model, EM(tol=-1.0), X, key=key, max_iter=1)
    np.testing.assert_allclose(again.history["objective"][-1], result.history["objective"][-1], atol=1e-8)


# ---- partial learning, priors, degenerate parts


def test_what_is_frozen_stays_to_the_bit(key):
    start = mixture(Full(jnp.broadcast_to(jnp.array([[1.3, 0.1], [0.1, 0.7]]), (3, 2, 2))))
    start = eqx.tree_at(lambda m: m.weights, start, jnp.array([0.1, 0.2, 0.7]))
    frozen = freeze(start, lambda m: (m.weights, m.components.covariance))
    learners = [
        EM(learnable=frozen),
        Gradient(optax.adam(1e-1), negative_log_likelihood, learnable=frozen),
    ]
    for learner in learners:
        model = fit(start, learner, X, key=key, max_iter=5).model
        assert model.weights.tolist() == start.weights.tolist()
        assert model.components.covariance.value.tolist() == start.components.covariance.value.tolist()
        assert not bool(jnp.any(model.components.mean == start.components.mean))


def test_priors_pull_as_computed():
    alpha = np.array([3.0, 2.0, 5.0])
    wishart = NormalInverseWishart(jnp.array([1.0, -1.0]), jnp.array(4.0), 2 * jnp.eye(2), jnp.array(6.0))
    weights = DirichletPrior(Multinomial(EVEN), jnp.asarray(alpha))
    model = mixture(COVARIANCES["full"], weight_prior=weights, component_prior=wishart)
    assert not any(jax.tree.leaves(learnable(model).component_prior))
    data = Data.of(X)
    fitted = eqx.filter_jit(lambda m, d: m.maximise(expect_all(m, d, ONE)[0]))(model, data)
    r = np.asarray(responsibilities(FULL, X))
    n = r.sum(axis=0)
    np.testing.assert_allclose(fitted.weights, (n + alpha - 1) / (len(X) + alpha.sum() - 3), rtol=1e-10)
    for k in range(3):
        mean = r[:, k] @ X / n[k]
        np.testing.assert_allclose(
            fitted.components.mean[k], (4 * np.array([1.0, -1.0]) + n[k] * mean) / (4 + n[k]), rtol=1e-10
        )
        scatter = (X - mean).T @ (r[:, k, None] * (X - mean))
        gap = mean - np.array([1.0, -1.0])
        scatter = 2 * np.eye(2) + scatter + 4 * n[k] / (4 + n[k]) * np.outer(gap, gap)
        np.testing.assert_allclose(
            fitted.components.covariance.value[k], scatter / (6 + n[k] + 2 + 2), rtol=1e-9
        )


def test_em_with_priors_lowers_the_penalised_free_energy(key):
    strong = NormalInverseWishart(jnp.zeros(2), jnp.array(50.0), 30 * jnp.eye(2), jnp.array(40.0))
    weights = DirichletPrior(Multinomial(EVEN), jnp.array([30.0, 2.0, 2.0]))
    likely = fit(FULL, EM(tol=1e-10), X, key=key, max_iter=500).model
    # the first step from the likeliest model raises the free energy without the prior
    start = Mixture(likely.weights, likely.components, weights, strong)
    result = fit(start, EM(tol=1e-10), X, key=key, max_iter=500)
    assert result.converged
    assert result.n_iter > 5
    assert_falls(result.history["objective"])
    model = result.model
    log_prior = stats.dirichlet.logpdf(np.asarray(model.weights), np.array([30.0, 2.0, 2.0]))
    for mean, covariance in zip(model.components.mean, matrices(model), strict=True):
        log_prior += stats.invwishart.logpdf(covariance, 40, 30 * np.eye(2))
        log_prior += stats.multivariate_normal.logpdf(mean, np.zeros(2), covariance / 50)
    penalised = -(brute_log_prob(model, X).sum() + log_prior) / len(X)
    np.testing.assert_allclose(result.history["objective"][-1], penalised, rtol=1e-10)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_a_component_without_rows_stays_finite_and_harms_nobody(kind, key):
    far = jnp.concatenate([MEANS[:2], jnp.full((1, 2), 1e6)])
    result = fit(mixture(COVARIANCES[kind], far), EM(tol=-1.0), X, key=key, max_iter=10)
    assert all(bool(jnp.all(jnp.isfinite(a))) for a in jax.tree.leaves(result.model))
    assert_falls(result.history["objective"])
    np.testing.assert_allclose(result.model.components.mean[2], 1e6)
    if kind == "tied":
        # the shared covariance is that of the two components with rows
        without = fit(mixture(COVARIANCES[kind], MEANS[:2]), EM(tol=-1.0), X, key=key, max_iter=10)
        np.testing.assert_allclose(result.model.weights[:2], without.model.weights, rtol=1e-8)
        np.testing.assert_allclose(matrices(result.model)[:2], matrices(without.model), rtol=1e-8)


def test_one_component_is_one_gaussian(key):
    single = Mixture(jnp.ones(1), Gaussian(jnp.zeros((1, 2)), Full(jnp.eye(2)[None])))
    result = fit(single, EM(), X, key=key)
    np.testing.assert_allclose(result.model.components.mean[0], X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(matrices(result.model)[0], np.cov(X.T, ddof=0), rtol=1e-11)
    plain = fit(Density(Gaussian(jnp.zeros(2), Full(jnp.eye(2)))), ClosedForm(), X, key=key)
    assert plain.n_iter == 1
    assert plain.converged
    np.testing.assert_allclose(plain.model.family.covariance.value, np.cov(X.T, ddof=0), rtol=1e-11)
    np.testing.assert_allclose(plain.history["objective"][-1], result.history["objective"][-1], rtol=1e-12)


def test_a_weight_of_two_is_a_row_twice(key):
    twice = np.concatenate([X, X[:20]])
    weight = np.where(np.arange(300) < 20, 2.0, 1.0)
    a = fit(FULL, EM(tol=-1.0), X, key=key, weight=weight, max_iter=10)
    b = fit(FULL, EM(tol=-1.0), twice, key=key, max_iter=10)
    np.testing.assert_allclose(a.history["objective"], b.history["objective"], rtol=1e-12)
    np.testing.assert_allclose(a.model.components.mean, b.model.components.mean, rtol=1e-10)
    # and zero is none
    c = fit(FULL, EM(tol=-1.0), twice, key=key, weight=np.arange(320) < 300, max_iter=10)
    d = fit(FULL, EM(tol=-1.0), X, key=key, max_iter=10)
    np.testing.assert_allclose(c.history["objective"], d.history["objective"], rtol=1e-12)


def test_certain_responsibilities_reproduce_class_moments():
    labels = np.repeat(np.arange(3), 100)
    hot = np.eye(3)[labels]

    @jax.jit
    def maximised(x, hot):
        features = jax.vmap(FULL.component(0).features)(x)
        return FULL.maximise(MixtureStatistics(hot.sum(axis=0), hot.T @ features))

    fitted = maximised(X, hot)
    np.testing.assert_allclose(fitted.weights, 1 / 3)
    for k in range(3):
        part = X[labels == k]
        np.testing.assert_allclose(np.asarray(fitted.components.mean)[k], part.mean(0), rtol=1e-12)
        np.testing.assert_allclose(matrices(fitted)[k], np.cov(part.T, ddof=0), rtol=1e-10)


def test_a_mixture_knows_its_joint():
    whole = np.array([0.5, 1.0])

    @jax.jit
    def answers(x):
        joint = -jax.vmap(lambda k: FULL.energy(x, k))(jnp.arange(3))
        return joint, FULL.complete_mean(x), FULL.log_prob_complete(whole), FULL.log_prob(whole)

    joint, filled, complete, plain = answers(np.array([0.5, np.nan]))
    expected = np.log(1 / 3) + stats.norm.logpdf(0.5, np.asarray(MEANS)[:, 0], 1.0)
    np.testing.assert_allclose(joint, expected, rtol=1e-12)
    share = np.exp(expected) / np.exp(expected).sum()
    np.testing.assert_allclose(filled, [0.5, share @ np.asarray(MEANS)[:, 1]], rtol=1e-12)
    np.testing.assert_allclose(complete, plain, rtol=1e-12)


# ---- gradients


@pytest.mark.slow
def test_gradient_descent_reaches_the_likelihood_of_em(key):
    best = fit(FULL, EM(tol=1e-12), X, key=key, max_iter=500).history["objective"][-1]
    learner = Gradient(optax.adam(5e-2), negative_log_likelihood, batch_size=None)
    result = fit(FULL, learner, X, key=key, max_iter=1000)
    assert best - 1e-9 <= result.history["objective"][-1] < best + 1e-3
    assert abs(float(result.model.weights.sum()) - 1) < 1e-12
    assert np.linalg.eigvalsh(matrices(result.model)).min() > 0
    assert result.model.components.covariance.floor == 1e-6


class Linear(eqx.Module):
    """A matrix and a vector: enough to see what an optimiser does."""

    matrix: jax.Array = parameter()
    offset: jax.Array = parameter()


def squares(model, batch, key):
    x, y = batch.x
    return batch.mean((x @ model.matrix[:, 0] + model.offset[0] - y) ** 2)


def first_moment(model, batch, key):
    return batch.mean(batch.x @ model.offset)


def nothing(model, batch, key):
    return 0.0 * jnp.sum(model.matrix) + 0.0 * jnp.sum(model.offset)


def steep(model, batch, key):
    return 1e3 * jnp.sum(model.matrix) + batch.mean(batch.weight)


def linear(rows=1):
    return Linear(jnp.ones((rows, 1)), jnp.ones(1))


def test_early_stopping_restores_the_best_parameters(key):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=30) * (np.arange(30) < 3)

    def rows(n):
        x = rng.normal(size=(n, 30))
        return x, x @ truth + rng.normal(size=n)

    train, held = rows(24), rows(100)
    start = Linear(jnp.zeros((30, 1)), jnp.zeros(1))
    learner = Gradient(optax.sgd(2e-3), squares, batch_size=8, patience=10)
    result = fit(start, learner, train, key=key, validation=held, max_iter=2000)
    validation = result.history["validation"]
    assert result.converged
    assert result.n_iter == len(validation) < 2000
    assert result.n_iter == int(np.argmin(validation)) + 1 + 10
    at_end = np.mean(
        (held[0] @ np.asarray(result.model.matrix)[:, 0] + result.model.offset[0] - held[1]) ** 2
    )
    np.testing.assert_allclose(at_end, validation.min(), rtol=1e-10)
    # it would have gone on to fit the noise
    on = fit(
        start,
        Gradient(optax.sgd(2e-3), squares, batch_size=8),
        train,
        key=key,
        max_iter=result.n_iter + 400,
    )
    assert on.history["objective"][-1] < result.history["objective"][-1] / 2
    # without held-out rows patience watches the objective itself
    flat = fit(start, Gradient(optax.sgd(0.0), squares, batch_size=None, patience=3), train, key=key)
    assert flat.converged
    assert flat.n_iter == 4


def test_the_average_of_the_parameters_is_the_result(key):
    x = np.random.default_rng(0).normal(size=(20, 1))
    y = 3 * x[:, 0] - 1
    learner = Gradient(optax.sgd(0.1), squares, batch_size=None, average=0.8)
    result = fit(linear(), learner, (x, y), key=key, max_iter=12)
    now = mean = np.array([1.0, 1.0])
    for _ in range(12):
        error = now[0] * x[:, 0] + now[1] - y
        now = now - 0.1 * 2 * np.array([error @ x[:, 0], error.sum()]) / 20
        mean = 0.8 * mean + 0.2 * now
    np.testing.assert_allclose([result.model.matrix[0, 0], result.model.offset[0]], mean, rtol=1e-10)


def test_held_out_rows_are_judged_in_blocks(key, monkeypatch):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(100, 1)), rng.gamma(1.0, size=100)
    y = 3 * x[:, 0] - 1
    # a block without weight, and a last one that is shifted back
    w[32:64] = 0
    monkeypatch.setattr(_gradient, "_ROWS_AT_ONCE", 32)
    objective = MAP(squares, lambda m: -jnp.sum(m.matrix**2), 16.0)
    learner = Gradient(optax.sgd(0.1), objective, batch_size=None)
    result = fit(linear(), learner, (x, y), key=key, validation=Data.of((x, y), w), max_iter=1)
    plain = fit(linear(), learner, (x, y), key=key, max_iter=1)
    # the best of one epoch is the last
    assert result.model.matrix == plain.model.matrix
    a, b = float(result.model.matrix[0, 0]), float(result.model.offset[0])
    expected = np.average((a * x[:, 0] + b - y) ** 2, weights=w) + a**2 / 16
    np.testing.assert_allclose(result.history["validation"], expected, rtol=1e-12)
    # copies are held where they are asked for alone
    assert plain.state.best is None
    assert plain.state.play.average is None
    assert result.state.best is not None


def test_a_prior_adds_its_gradient_once_per_data_set(key):
    objective = MAP(nothing, lambda m: -0.5 * jnp.sum(m.matrix**2), 16.0)
    result = fit(linear(), Gradient(optax.sgd(1.0), objective, None), np.ones((16, 1)), key=key, max_iter=2)
    np.testing.assert_allclose(result.model.matrix, (1 - 1 / 16) ** 2)
    np.testing.assert_allclose(result.history["objective"], [0.5 / 16, 0.5 / 16 * (1 - 1 / 16) ** 2])


def test_decay_spares_vectors_and_clipping_bounds_the_step(key):
    decay = optax.chain(decay_weights(0.1), optax.sgd(1.0))
    result = fit(linear(), Gradient(decay, nothing, batch_size=None), np.ones((16, 1)), key=key, max_iter=3)
    np.testing.assert_allclose(result.model.matrix, 0.9**3)
    assert result.model.offset.tolist() == [1.0]
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.25))
    result = fit(linear(), Gradient(clipped, steep, batch_size=None), np.ones((16, 1)), key=key, max_iter=2)
    np.testing.assert_allclose(result.model.matrix, 1 - 2 * 0.25, rtol=1e-12)


# (from 2**15 numbers on they come into one vector in another way)
@pytest.mark.parametrize("columns", [3, 2**14])
def test_steps_in_one_vector_are_those_of_each_array_and_nothing_to_move_is_no_error(columns):
    params = {"w": jnp.arange(2.0 * columns).reshape(2, columns), "b": jnp.ones(2)}
    ours, plain = in_one_vector(optax.adam(0.1)), optax.adam(0.1)
    with jax.numpy_dtype_promotion("standard"):
        state, expected = ours.init(params), plain.init(params)
        for _ in range(3):
            step, state = ours.update(params, state, params)
            right, expected = plain.update(params, expected, params)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), step, right)
        assert ours.update({"w": None}, ours.init({"w": None}))[0] == {"w": None}


def test_minibatches_are_unbiased_for_weighted_rows(key):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(48, 1)) + 1, rng.gamma(1.0, size=48)
    mean = w @ x[:, 0] / w.sum()
    learner = Gradient(optax.sgd(1.0), first_moment, batch_size=16)
    # three full batches: their gradients add up to three times the weighted mean, whatever the order
    result = fit(linear(), learner, x, weight=w, key=key, max_iter=5)
    np.testing.assert_allclose(1 - result.model.offset[0], 15 * mean, rtol=1e-10)
    # what is reported is the mean over rows
    still = fit(
        linear(), Gradient(optax.sgd(0.0), first_moment, batch_size=16), x, weight=w, key=key, max_iter=2
    )
    np.testing.assert_allclose(still.history["objective"], mean, rtol=1e-12)
    # 40 rows are batches of 16, 16 and 8: each is right on average
    x, w = x[:40], w[:40]
    mean = w @ x[:, 0] / w.sum()
    n = 400
    result = fit(linear(), learner, x, weight=w, key=key, max_iter=n)
    shares = w * x[:, 0] / w.mean()
    error = shares.std() * np.sqrt((24 / 39) / 8) * np.sqrt(n) * 1.5
    assert abs(1 - float(result.model.offset[0]) - 3 * n * mean) < 5 * error


@pytest.mark.parametrize(
    "learner",
    [
        EM(),
        EM(temperature=lambda i: 1 + 3 * 0.5 ** i.astype(float)),
        EM(sweep=Stepwise(64)),
        EM(sweep=Incremental(7)),
        ClosedForm(),
    ],
    ids=["all", "cooling", "stepwise", "incremental", "closed form"],
)
def test_what_begins_on_the_host_is_what_a_program_would_begin_with(learner, key):
    start = Density(Gaussian(jnp.zeros(2), Full(jnp.eye(2)))) if isinstance(learner, ClosedForm) else FULL
    assert learner.starts_on_host
    here = learner.init(start, Data.of(X), key=key)
    there = eqx.filter_jit(lambda model, data: learner.init(model, data, key=key))(start, Data.of(X))
    (own, rest), (arrays, other) = (eqx.partition(state, eqx.is_array) for state in (here, there))
    assert eqx.tree_equal(rest, other)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(arrays), strict=True):
        assert a.aval == b.aval
        np.testing.assert_allclose(a, b, rtol=1e-12)
