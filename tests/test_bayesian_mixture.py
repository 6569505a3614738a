"""Bayesian mixtures: the bound, the predictive density and what becomes of unused components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

import freeenergy as fe
from freeenergy.distributions import (
    Bernoulli,
    BetaPrior,
    Categorical,
    Diagonal,
    DirichletPrior,
    Full,
    GammaPrior,
    MultivariateT,
    NormalInverseGamma,
    NormalInverseWishart,
    Poisson,
)
from freeenergy.models import BayesianMixture

SCALE = np.array([[2.0, 0.6], [0.6, 1.0]])


def clusters(n=90, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [9.0, 1.0], [2.0, 8.0]])
    label = np.arange(n) % 3
    return centres[label] + rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.9]]), label


def test_multivariate_t_against_scipy():
    t = MultivariateT(jnp.array([1.0, -1.0]), jnp.asarray(SCALE), jnp.array(3.5))
    peer = stats.multivariate_t([1.0, -1.0], SCALE, df=3.5)
    x = np.array([[0.3, 2.0], [-4.0, 5.0]])

    @jax.jit
    def answers(x, hole):
        return jax.vmap(t.log_prob)(x), jax.vmap(t.log_prob_complete)(x), t.log_prob(hole)

    each, complete, partial = answers(x, np.array([0.3, np.nan]))
    np.testing.assert_allclose(each, peer.logpdf(x))
    np.testing.assert_allclose(complete, peer.logpdf(x))
    # one entry missing: the integral over it
    part = integrate.quad(lambda v: peer.pdf([0.3, v]), -np.inf, np.inf)[0]
    np.testing.assert_allclose(partial, np.log(part), rtol=1e-7)


def test_multivariate_t_draws_what_is_missing():
    t = MultivariateT(jnp.array([1.0, -1.0]), jnp.asarray(SCALE), jnp.array(5.0))
    given = jnp.array([4.0, jnp.nan])
    keys = jax.random.split(jax.random.key(0), 4000)

    @jax.jit
    def answers(given):
        drawn = jax.vmap(lambda k: t.complete_sample(given, key=k))(keys)
        return drawn, t.complete_mean(given)

    draws, filled = map(np.asarray, answers(given))
    assert (draws[:, 0] == 4.0).all()
    peer = stats.multivariate_t([1.0, -1.0], SCALE, df=5.0)
    mass = integrate.quad(lambda v: peer.pdf([4.0, v]), -np.inf, np.inf)[0]
    for edge in (-2.0, 0.0, 1.5):
        share = integrate.quad(lambda v: peer.pdf([4.0, v]), -np.inf, edge)[0] / mass
        error = np.sqrt(share * (1 - share) / len(draws))
        assert abs(np.mean(draws[:, 1] <= edge) - share) < 5 * error
    mean = integrate.quad(lambda v: v * peer.pdf([4.0, v]), -np.inf, np.inf)[0] / mass
    np.testing.assert_allclose(filled[1], mean, rtol=1e-6)


PRIORS = {
    "beta": (
        BetaPrior(Bernoulli(jnp.array([0.5])), jnp.array([2.0]), jnp.array([3.0])),
        [[1.0], [0.0], [1.0]],
    ),
    "dirichlet": (
        DirichletPrior(Categorical(jnp.ones((1, 3)) / 3), jnp.array([[1.0, 2.0, 0.5]])),
        [[0.0], [2.0], [2.0]],
    ),
    "gamma": (GammaPrior(Poisson(jnp.ones(1)), jnp.array([3.0]), jnp.array([1.5])), [[2.0], [0.0], [5.0]]),
    "wishart": (
        NormalInverseWishart(jnp.array([0.3, 0.0]), jnp.array(2.0), jnp.asarray(SCALE), jnp.array(4.5)),
        [[0.1, 2.0], [-1.0, 0.4], [2.0, -0.7]],
    ),
    "inverse gamma": (
        NormalInverseGamma(jnp.array([0.3]), jnp.array([2.0]), jnp.array([1.2]), jnp.array([0.8])),
        [[0.1], [-1.0], [2.5]],
    ),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.slow
def test_evidence_of_statistics_is_bayes_theorem(name):
    """log p(X) = log p(X | θ) + log p(θ) − log p(θ | X), whatever θ; and its gradient is a mean."""
    prior, x = PRIORS[name]
    x = jnp.asarray(x)
    member = prior.sample(key=jax.random.key(1))
    total = jnp.sum(jax.vmap(member.features)(x), axis=0)
    after = prior.update(*prior.split(total))
    fit = jnp.sum(jax.vmap(member.log_prob)(x) - jax.vmap(member.log_base)(x))
    expected = fit + prior.log_density(member) - after.log_density(member)
    np.testing.assert_allclose(prior.log_evidence(total), expected, rtol=1e-10)
    draws = jax.vmap(lambda k: after.sample(key=k).coefficients())(
        jax.random.split(jax.random.key(2), 4000)
    )
    error = np.std(draws, axis=0) / np.sqrt(4000)
    found = jax.grad(prior.log_evidence)(total)
    assert (np.abs(found - np.mean(draws, axis=0)) < 5 * error + 1e-9).all()


def exact_evidence_wishart(X, mean, strength, scatter, degrees):
    """log p(X) as a product of predictive densities, each from SciPy."""
    total = 0.0
    dim = X.shape[1]
    for x in X:
        df = degrees - dim + 1
        total += stats.multivariate_t(mean, scatter * (strength + 1) / (strength * df), df=df).logpdf(x)
        scatter = scatter + strength / (strength + 1) * np.outer(x - mean, x - mean)
        mean = (strength * mean + x) / (strength + 1)
        strength, degrees = strength + 1, degrees + 1
    return total


def test_one_component_has_the_exact_evidence():
    X, _ = clusters(40)
    prior = NormalInverseWishart(jnp.array([0.2, 0.0]), jnp.array(0.5), jnp.asarray(SCALE), jnp.array(4.0))
    model = fe.BayesianMixture(1, component_prior=prior).fit(X)
    shift, scale = model.scaling_
    expected = exact_evidence_wishart(
        X, shift + scale * [0.2, 0.0], 0.5, SCALE * np.outer(scale, scale), 4.0
    )
    np.testing.assert_allclose(model.bound_, expected, rtol=1e-10)
    # and the predictive density is the ratio of two such numbers
    new = np.array([3.0, 1.0])
    after = exact_evidence_wishart(
        np.vstack([X, new]), shift + scale * [0.2, 0.0], 0.5, SCALE * np.outer(scale, scale), 4.0
    )
    np.testing.assert_allclose(model.score_samples([new])[0], after - expected, rtol=1e-8)


def test_one_diagonal_component_has_the_exact_evidence():
    X, _ = clusters(30)
    model = fe.BayesianMixture(1, Diagonal()).fit(X)
    expected = 0.0
    for column, (shift, scale) in enumerate(zip(*model.scaling_, strict=True)):
        m, k, a, b = shift, 1.0, 1.5, 0.5 * scale**2
        for x in X[:, column]:
            expected += stats.t(2 * a, m, np.sqrt(b / a * (1 + 1 / k))).logpdf(x)
            b += 0.5 * k / (k + 1) * (x - m) ** 2
            m, k, a = (k * m + x) / (k + 1), k + 1, a + 0.5
    np.testing.assert_allclose(model.bound_, expected, rtol=1e-10)


def test_bound_never_falls_and_stays_below_the_evidence():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(0, 1, 4), rng.normal(5, 1, 3)])[:, None]
    prior = NormalInverseWishart(jnp.zeros(1), jnp.array(0.5), jnp.eye(1), jnp.array(3.0))
    model = fe.BayesianMixture(
        2, component_prior=prior, weight_concentration=1.0, tol=0.0, max_iter=200, random_state=0
    ).fit(X)
    assert (np.diff(model.history_["objective"]) < 1e-12).all()
    # the evidence: a sum over all 2^7 assignments of rows to components
    shift, scale = model.scaling_
    terms = []
    for code in range(2 ** len(X)):
        one = np.array([bool(code >> i & 1) for i in range(len(X))])
        term = np.log(
            stats.betabinom.pmf(one.sum(), len(X), 1, 1) / stats.binom.pmf(one.sum(), len(X), 0.5)
        )
        term -= len(X) * np.log(2)
        for part in (X[one], X[~one]):
            term += exact_evidence_wishart(part, shift, 0.5, np.eye(1) * scale**2, 3.0)
        terms.append(term)
    evidence = np.logaddexp.reduce(terms)
    assert evidence - 2.0 < model.bound_ < evidence


@pytest.mark.parametrize(("covariance", "kind"), [(Full(), "full"), (Diagonal(), "diag")])
def test_same_posterior_as_scikit_learn(covariance, kind):
    X, label = clusters()
    shift, scale = X.mean(axis=0), X.std(axis=0)
    peer = BayesianGaussianMixture(
        n_components=3,
        covariance_type=kind,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=0.5,
        mean_precision_prior=1.0,
        mean_prior=shift,
        degrees_of_freedom_prior=4.0 if kind == "full" else 3.0,
        covariance_prior=np.diag(scale**2) if kind == "full" else scale**2,
        reg_covar=0.0,
        tol=1e-10,
        max_iter=500,
        random_state=0,
    ).fit(X)
    ours = fe.BayesianMixture(
        3,
        covariance,
        weight_concentration=0.5,
        tol=1e-14,
        init=np.array([[0.0, 0.0], [9.0, 1.0], [2.0, 8.0]]),
    ).fit(X)
    order = [int(np.argmin(np.linalg.norm(peer.means_ - m, axis=1))) for m in ours.means_]
    np.testing.assert_allclose(ours.means_, peer.means_[order], rtol=1e-6)
    np.testing.assert_allclose(ours.weights_, peer.weights_[order], rtol=1e-6)
    assert adjusted_rand_score(ours.predict(X), peer.predict(X)) == 1.0
    assert adjusted_rand_score(ours.predict(X), label) == 1.0
    if kind == "full":
        # they report ψ-weighted scatter Ψ/ν; we the posterior mean Ψ/(ν − d − 1)
        nu = (4.0 + ours.counts_)[:, None, None]
        np.testing.assert_allclose(ours.covariances_ * (nu - 3) / nu, peer.covariances_[order], rtol=1e-6)


@pytest.mark.slow
def test_unused_components_are_switched_off():
    X, label = clusters(150)
    model = fe.BayesianMixture(8, weight_concentration=1e-3, random_state=0, tol=1e-8).fit(X)
    assert model.n_active_ == 3
    assert adjusted_rand_score(model.predict(X), label) > 0.97
    assert np.sort(model.counts_)[:5].max() < 0.05
    assert np.isclose(model.counts_.sum(), 150)
    # more components than needed cost little
    exact = fe.BayesianMixture(3, weight_concentration=1e-3, random_state=0, tol=1e-8).fit(X)
    assert abs(model.score(X) - exact.score(X)) < 0.02


@pytest.mark.slow
def test_missing_entries_raise_the_same_bound():
    X, _ = clusters(60)
    holes = X.copy()
    rng = np.random.default_rng(1)
    holes[rng.random(X.shape) < 0.15] = np.nan
    holes = holes[~np.isnan(holes).all(axis=1)]
    model = fe.BayesianMixture(3, random_state=0, tol=1e-12, max_iter=300).fit(holes)
    assert (np.diff(model.history_["objective"]) < 1e-10).all()
    assert model.n_active_ == 3
    # a column of which a model of one Gaussian sees nothing new: exact marginalisation
    single = fe.BayesianMixture(1, Diagonal()).fit(holes)
    whole = sum(
        fe.BayesianMixture(1, Diagonal()).fit(holes[~np.isnan(holes[:, [j]]).any(axis=1), j : j + 1]).bound_
        for j in range(2)
    )
    np.testing.assert_allclose(single.bound_, whole, rtol=1e-9)


@pytest.mark.slow
def test_model_gives_the_predictive_responsibilities():
    X, _ = clusters(60)
    fitted = fe.BayesianMixture(2, random_state=0).fit(X)
    assert isinstance(fitted.model_, BayesianMixture)
    assert fitted.model_.size == 2
    q = fitted.model_.posteriors()
    z = (X[:5] - fitted.scaling_.shift) / fitted.scaling_.scale
    joint = np.stack(
        [
            np.log(fitted.weights_[k])
            + stats.multivariate_t(
                np.asarray(q.mean[k]),
                np.asarray(q.scatter[k] * (1 + 1 / q.strength[k]) / (q.degrees[k] - 1)),
                df=float(q.degrees[k]) - 1,
            ).logpdf(z)
            for k in range(2)
        ],
        axis=1,
    )
    np.testing.assert_allclose(
        fitted.predict_proba(X[:5]), np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None]), rtol=1e-8
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 0}, "The 'n_components' parameter of BayesianMixture must be an int"),
        ({"covariance": fe.distributions.Spherical()}, "must be an instance of Full or Diagonal or None"),
        ({"weight_concentration": 0.0}, r"must be a float in the range \(0, inf\) or None"),
        (
            {"covariance": Diagonal(), "component_prior": PRIORS["wishart"][0]},
            "The 'component_prior' parameter of BayesianMixture must be an instance of NormalInverseGamma",
        ),
    ],
)
def test_wrong_parameters(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.BayesianMixture(**options).fit(np.eye(4))


@pytest.mark.slow
def test_hard_data():
    for X in (
        np.ones((1, 1)),
        np.ones((5, 2)),
        np.array([[1e-9], [1e9], [2.0]]),
        np.eye(3, dtype=np.float32),
    ):
        model = fe.BayesianMixture(4, random_state=0).fit(X)
        assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.slow
@pytest.mark.slow
def test_mixture_of_factor_analysers():
    """One low-rank component is a factor analyser; two separate groups are two of them."""
    rng = np.random.default_rng(2)
    first = rng.normal(size=(80, 1)) @ [[2.0, -1.0, 1.0, 0.5]] + 0.4 * rng.normal(size=(80, 4))
    options = {"tol": 1e-10, "max_iter": 5000}
    single = fe.GaussianMixture(1, fe.distributions.LowRank(rank=1), **options).fit(first)
    analyser = fe.FactorAnalysis(1, **options).fit(first)
    np.testing.assert_allclose(single.score(first), analyser.score(first), rtol=1e-6)
    second = 60.0 + rng.normal(size=(80, 1)) @ [[0.0, 1.0, 1.0, -1.0]] + 0.3 * rng.normal(size=(80, 4))
    both = fe.GaussianMixture(2, fe.distributions.LowRank(rank=1), random_state=0, **options)
    both.fit(np.concatenate([first, second]))
    # far apart, each half is explained by its own analyser
    np.testing.assert_allclose(both.score(first), analyser.score(first) + np.log(0.5), rtol=1e-4)
