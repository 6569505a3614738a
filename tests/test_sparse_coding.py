"""Sparse coding: sources, the inner problem, Laplace's method and dictionary learning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from sklearn.linear_model import Lasso

import freeenergy as fe
from freeenergy.inference import (
    importance_draws,
    importance_estimate,
    importance_resample,
    self_normalised_mean,
)
from freeenergy.learning import EM, fit
from freeenergy.models import AbstractSource, CauchySource, LaplaceSource, LogCoshSource, SparseCoding

RNG = np.random.default_rng(0)
SOURCES = {
    "laplace": LaplaceSource(1.5),
    "cauchy": CauchySource(0.7),
    "log-cosh": LogCoshSource(1.5, 3.0),
    "logistic": LogCoshSource(1.0, 0.5),
}


class GaussianSource(AbstractSource):
    """E = ½x²: everything is then exact."""

    def energy(self, x):
        return x**2 / 2

    def log_normaliser(self):
        return jnp.asarray(np.log(2 * np.pi) / 2)

    def curvature(self, x):
        return jnp.ones_like(x)

    def parabola(self, x):
        return jnp.ones_like(x)

    def smooth_energy(self, x):
        return self.energy(x)

    def steepest(self):
        return 1.0

    def proximal(self, v, step):
        return v

    def sample(self, shape, *, key):
        return jax.random.normal(key, shape)


@eqx.filter_jit
def mode_of(model, y):
    return model.mode(y)


@eqx.filter_jit
def energy_of(model, y, x):
    return model.energy(y, x)


@eqx.filter_jit
def laplace_of(model, y):
    """Log evidence, the moments of the posterior, and what is missing."""
    posterior = model.laplace_posterior(y)
    moments = posterior.mean, posterior.covariance.matrix()
    return model.laplace_log_evidence(y), *moments, model.complete_mean(y)


@eqx.filter_jit
def nats_of(source, x):
    return -source.energy(x) - source.log_normaliser()


def density(source, x):
    return np.exp(np.asarray(nats_of(source, np.asarray(x, float))))


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name):
    source = SOURCES[name]
    mass = integrate.quad(lambda x: density(source, x), 0, np.inf)[0]
    np.testing.assert_allclose(mass, 0.5, rtol=1e-7)
    draws = np.asarray(source.sample((2000,), key=jax.random.key(0)))
    edges = np.array([-2.0, -0.3, 0.4, 1.0])
    cdf = [0.5 + integrate.quad(lambda x: density(source, x), 0, e)[0] for e in edges]
    for edge, share in zip(edges, cdf, strict=True):
        assert abs(np.mean(draws <= edge) - share) < 5 * np.sqrt(share * (1 - share) / 2000)
    # the parabola that touches E at ξ is nowhere below it
    at, around = np.array([[0.3], [2.0]]), np.linspace(-6, 6, 400)[None]
    below = jax.jit(
        lambda at, around: (
            source.energy(at) + source.parabola(at) * (around**2 - at**2) / 2 - source.energy(around)
        )
    )
    assert (np.asarray(below(at, around)) >= -1e-12).all()
    if name != "laplace":
        x = np.array([-0.6, 0.05, 0.5])

        @jax.jit
        def told(x):
            slope = jax.grad(lambda x: jnp.sum(source.smooth_energy(x)))(x)
            moved = source.proximal(x, jnp.array(0.1))
            return source.energy(x), slope, source.curvature(x), source.steepest(), moved

        ahead, behind = ([np.asarray(value) for value in told(x + step)] for step in (1e-5, -1e-5))
        _, slope, curvature, steepest, moved = told(x)
        np.testing.assert_allclose(slope, (ahead[0] - behind[0]) / 2e-5)
        slopes = (ahead[1] - behind[1]) / 2e-5
        np.testing.assert_allclose(curvature, slopes, rtol=1e-6)
        assert (np.abs(slopes) <= float(steepest) + 1e-9).all()
        np.testing.assert_array_equal(moved, x)


def test_special_sources():
    x = np.array([-3.0, 0.2, 40.0])
    np.testing.assert_allclose(density(LogCoshSource(1.0, 0.5), x), stats.logistic.pdf(x))
    np.testing.assert_allclose(density(CauchySource(0.7), x), stats.cauchy.pdf(x, scale=0.7))
    np.testing.assert_allclose(density(LaplaceSource(1.5), x), stats.laplace.pdf(x, scale=1 / 1.5))
    # a sharp log cosh is a Laplace
    np.testing.assert_allclose(
        density(LogCoshSource(1.5, 1e4), x), density(LaplaceSource(1.5), x), rtol=1e-3
    )
    # far from zero a Cauchy is not convex, and its curvature is kept positive
    assert float(CauchySource(0.7).curvature(jnp.array(5.0))) > 0


def test_evidence_in_one_dimension():
    model = SparseCoding(jnp.array([[1.2]]), jnp.zeros(1), jnp.array(40.0), LaplaceSource(1.5, 50.0))
    exact = integrate.quad(
        lambda x: stats.laplace.pdf(x, scale=1 / 1.5) * stats.norm.pdf(2.0, 1.2 * x, 40**-0.5),
        -5,
        5,
        points=[0, 1.64],
    )[0]
    np.testing.assert_allclose(exact, 0.05231498759629232, rtol=1e-9)
    nats, mean, covariance, _ = laplace_of(model, np.array([2.0]))
    np.testing.assert_allclose(np.exp(float(nats)), 0.05231498759629237, rtol=1e-9)
    np.testing.assert_allclose(mean, [(96 - 1.5) / 57.6], rtol=1e-7)
    np.testing.assert_allclose(covariance, [[1 / 57.6]], rtol=1e-6)


def test_basis_pursuit():
    """Soft thresholds where columns are orthonormal; the lasso and its conditions where they are not."""
    q = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    y = RNG.normal(size=4)
    model = SparseCoding(jnp.asarray(q), jnp.zeros(4), jnp.array(2.0), LaplaceSource(0.8))
    inner = q.T @ y
    np.testing.assert_allclose(
        mode_of(model, y), np.sign(inner) * np.maximum(np.abs(inner) - 0.4, 0), atol=1e-8
    )
    c = RNG.normal(size=(4, 7))
    model = SparseCoding(jnp.asarray(c), jnp.zeros(4), jnp.array(5.0), LaplaceSource(1.3))
    x = np.asarray(mode_of(model, y))
    pull = 5.0 * c.T @ (y - c @ x)
    assert (np.abs(pull) <= 1.3 + 1e-5).all()
    np.testing.assert_allclose(pull[x != 0], 1.3 * np.sign(x[x != 0]), rtol=1e-5)
    peer = Lasso(alpha=1.3 / (5.0 * 4), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(c, y)
    np.testing.assert_allclose(x, peer.coef_, atol=1e-5)


@pytest.mark.parametrize("name", ["cauchy", "log-cosh"])
def test_mode_of_smooth_sources(name):
    c, y = RNG.normal(size=(3, 5)), RNG.normal(size=3)
    model = SparseCoding(jnp.asarray(c), jnp.full(3, 0.1), jnp.array(4.0), SOURCES[name])
    x = np.asarray(mode_of(model, y))
    peer = optimize.minimize(lambda v: float(energy_of(model, y, v)), x, tol=1e-10)
    np.testing.assert_allclose(x, peer.x, atol=1e-4)


def test_exact_for_gaussian_sources():
    c, mean, y = RNG.normal(size=(3, 5)), RNG.normal(size=3), RNG.normal(size=3)
    model = SparseCoding(jnp.asarray(c), jnp.asarray(mean), jnp.array(4.0), GaussianSource())
    marginal = stats.multivariate_normal(mean, c @ c.T + np.eye(3) / 4)
    np.testing.assert_allclose(laplace_of(model, y)[0], marginal.logpdf(y), rtol=1e-9)
    part = stats.multivariate_normal(mean[:2], (c @ c.T + np.eye(3) / 4)[:2, :2])
    nats, _, _, filled = laplace_of(model, np.append(y[:2], np.nan))
    np.testing.assert_allclose(nats, part.logpdf(y[:2]), rtol=1e-9)
    gain = (c @ c.T)[2, :2] @ np.linalg.inv(part.cov)
    np.testing.assert_allclose(filled[2], mean[2] + gain @ (y[:2] - mean[:2]), rtol=1e-6)


@pytest.mark.slow
def test_learning_gaussian_sources_is_probabilistic_pca():
    """With E = ½x² EM is exact: it never raises the objective and ends where PPCA does."""
    X = RNG.normal(size=(40, 1)) @ np.array([[2.0, -1.0, 0.5]]) + 0.5 * RNG.normal(size=(40, 3)) + 1.0
    X[3, 1] = X[7, 2] = np.nan
    start = SparseCoding(jnp.array([[1.0], [0.3], [0.2]]), jnp.zeros(3), jnp.array(1.0), GaussianSource())
    result = fit(start, EM(tol=1e-10), X, key=jax.random.key(0), max_iter=2000)
    assert (np.diff(result.history["objective"]) < 1e-9).all()
    peer = fe.PPCA(1, tol=1e-10).fit(X).score(X)
    # PPCA rescales its columns first, so that its noise is not of one size in these units
    found = np.mean(jax.vmap(result.model.laplace_log_evidence)(jnp.asarray(X)))
    np.testing.assert_allclose(-found, result.history["objective"][-1], rtol=1e-8)
    assert abs(found - peer) < 0.3
    slope = jax.grad(lambda c: jnp.sum(_gaussian_evidence(c, result.model, X)))(result.model.dictionary)
    assert np.abs(slope).max() < 1e-2


def _gaussian_evidence(c, model, X):
    normal = fe.distributions.Gaussian(
        model.mean, fe.distributions.Full(c @ c.T + jnp.eye(3) / model.precision)
    )
    return jax.vmap(normal.log_prob)(jnp.asarray(X))


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(0)
    c = rng.normal(size=(3, 3))
    c /= np.linalg.norm(c, axis=0)
    x = rng.laplace(size=(300, 3)) * (rng.random((300, 3)) < 0.5)
    return x @ c.T + 0.05 * rng.normal(size=(300, 3)) + 5.0, c


@pytest.fixture(scope="module")
def fitted(planted):
    return fe.SparseCoding(6, source=CauchySource(0.3), random_state=0).fit(planted[0])


def test_planted_dictionary_is_found(planted, fitted):
    _, c = planted
    found = fitted.components_ / np.linalg.norm(fitted.components_, axis=1, keepdims=True)
    assert (np.abs(found @ c).max(axis=0) > 0.98).all()
    assert fitted.history_["objective"][-1] < fitted.history_["objective"][0] - 0.5


@pytest.mark.slow
def test_codes_reproduce_the_rows(planted, fitted):
    X, _ = planted
    codes = fitted.transform(X)
    offset = fitted.scaling_.invert(np.asarray(fitted.model_.mean))
    assert np.abs(codes @ fitted.components_ + offset - X).mean() < 0.15
    assert fitted.get_feature_names_out()[0] == "sparsecoding0"


def test_evidence_of_the_estimator(planted, fitted):
    X, _ = planted
    evidence = fitted.evidence(X[:5])
    assert evidence.kind is fe.Kind.ESTIMATE
    z = (X[:5] - fitted.scaling_.shift) / fitted.scaling_.scale
    inner = jax.jit(jax.vmap(fitted.model_.laplace_log_evidence))(z)
    np.testing.assert_allclose(evidence.nats, inner - np.log(fitted.scaling_.scale).sum(), rtol=1e-7)


@pytest.mark.slow
def test_missing_entries(planted, fitted):
    X, _ = planted
    rows = X[:20].copy()
    rows[:, 0] = np.nan
    filled = fitted.impute(rows)
    np.testing.assert_array_equal(filled[:, 1:], X[:20, 1:])
    draws = fitted.sample(400, random_state=0, given=rows[:2])
    assert draws.shape == (400, 2, 3)
    error = draws[:, :, 0].std(axis=0) / 20
    assert (np.abs(draws[:, :, 0].mean(axis=0) - filled[:2, 0]) < 5 * error).all()
    # what is drawn has the middle of what was learned from
    middle = np.median(fitted.sample(2000, random_state=1), axis=0)
    assert (np.abs(middle - np.median(X, axis=0)) < 0.15).all()


@pytest.mark.parametrize(
    "name", ["laplace", *(pytest.param(n, marks=pytest.mark.slow) for n in SOURCES if n != "laplace")]
)
def test_importance_sampling_against_quadrature(name):
    """Evidence, means and draws of two sources, beside a sum over a fine grid of both."""
    c, mean, precision = np.array([[0.9, 0.5], [0.1, -0.8]]), np.array([0.2, -0.1]), 10.0
    model = SparseCoding(jnp.asarray(c), jnp.asarray(mean), jnp.array(precision), SOURCES[name])
    axis = np.arange(-800, 801) / 20 if name == "cauchy" else np.arange(-300, 301) / 20
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    each = density(SOURCES[name], axis) * (axis[1] - axis[0])
    prior = np.outer(each, each).ravel()

    @jax.jit
    def drawn(y, key):
        draws, log_weights = importance_draws(model.energy, model.recognition, y, samples=20_000, key=key)
        return importance_estimate(log_weights), self_normalised_mean(log_weights, draws)

    for i, y in enumerate([[1.0, 0.3], [-2.0, np.nan], [0.1, -0.05]]):
        y = np.array(y)
        seen = ~np.isnan(y)
        gap = (x @ c.T + mean)[:, seen] - y[seen]
        joint = prior * np.prod(stats.norm.pdf(gap, scale=precision**-0.5), axis=1)
        exact = joint.sum()
        estimate, (found, error) = drawn(y, jax.random.key(i))
        # the grid cuts off the tails of a Cauchy, and is coarse at the kink of a Laplace
        assert abs(float(estimate.log_mean) - np.log(exact)) < 5 * float(estimate.stderr) + 0.01
        assert float(estimate.effective_sample_size) > 1000
        if name != "cauchy":
            assert (np.abs(np.asarray(found) - joint @ x / exact) < 5 * np.asarray(error) + 0.01).all()


def test_importance_resampling_draws_from_the_posterior():
    """Of a source of two dimensions seen through one: means and shares beside a sum over a grid."""
    c, mean, precision = np.array([[0.9, 0.5]]), np.array([0.2]), 10.0
    model = SparseCoding(jnp.asarray(c), jnp.asarray(mean), jnp.array(precision), SOURCES["laplace"])
    axis = np.linspace(-12, 12, 601)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    y = np.array([1.5])
    each = density(SOURCES["laplace"], axis)
    joint = np.outer(each, each).ravel()
    joint = joint * stats.norm.pdf((x @ c.T + mean - y)[:, 0], scale=precision**-0.5)
    posterior = joint / joint.sum()
    draw = jax.jit(
        jax.vmap(
            lambda k: importance_resample(
                model.energy, model.recognition, jnp.asarray(y), samples=200, key=k
            )
        )
    )
    draws = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    for value in (lambda z: z[:, 0], lambda z: z[:, 1], lambda z: 1.0 * (z[:, 0] > z[:, 1])):
        error = value(draws).std() / np.sqrt(len(draws))
        # resampling is biased by about a part in 200 of the spread
        assert abs(value(draws).mean() - posterior @ value(x)) < 5 * error + 0.01


def test_samples_need_a_key():
    model = SparseCoding(jnp.eye(2), jnp.zeros(2), jnp.array(1.0), SOURCES["laplace"])
    with pytest.raises(ValueError, match="needs a 'key' to draw 'samples'"):
        model.complete_mean(jnp.array([1.0, jnp.nan]), samples=10)


@pytest.mark.slow
def test_importance_sampling_of_the_estimator(planted):
    X, _ = planted
    model = fe.SparseCoding(3, importance_samples=400, max_iter=3, tol=10.0, random_state=0).fit(X)
    found = model.evidence(X[:5])
    assert found.kind is fe.Kind.LOWER
    assert (found.stderr > 0).all()
    rows = X[:3].copy()
    rows[0, 0] = rows[1, 1] = np.nan
    rows[2] = np.nan
    assert model.score_samples(rows)[2] == 0.0
    filled = model.impute(rows)
    draws = model.sample(400, random_state=0, given=rows)
    error = draws.std(axis=0) / 20
    # both means have an error, that of the weighted one the larger
    assert (np.abs(draws.mean(axis=0) - filled) <= 10 * error + 1e-12).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 0}, "The 'n_components' parameter of SparseCoding must be an int .* or None"),
        (
            {"source": "laplace"},
            "The 'source' parameter of SparseCoding must be an instance of AbstractSource",
        ),
        ({"importance_samples": 1}, "The 'importance_samples' parameter of SparseCoding must be an int"),
    ],
)
def test_wrong_parameters(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.SparseCoding(**options).fit(np.eye(4))
