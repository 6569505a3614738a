"""Factor analysis and probabilistic PCA against dense Gaussians, eigenvectors and scikit-learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

from freeenergy.distributions import Diagonal, Full, Spherical
from freeenergy.learning import EM, Incremental, fit
from freeenergy.models import LinearGaussian, ppca_closed_form

DIM, K, ROWS = 5, 2, 400


def truth(seed=0):
    rng = np.random.default_rng(seed)
    return LinearGaussian(
        jnp.asarray(rng.normal(size=(DIM, K))),
        jnp.asarray(rng.normal(size=DIM)),
        Diagonal(jnp.asarray(rng.uniform(0.3, 1.0, DIM))),
    )


_sample = jax.jit(jax.vmap(lambda model, key: model.sample(key=key), (None, 0)))


def draws(n=ROWS, seed=0):
    keys = jax.random.split(jax.random.key(seed), n)
    return np.array(_sample(truth(), keys))


def with_holes(x, seed=1):
    x = x.copy()
    x[np.random.default_rng(seed).random(x.shape) < 0.25] = np.nan
    return x


def start(noise, seed=3):
    loading = np.random.default_rng(seed).normal(size=(DIM, K))
    return LinearGaussian(jnp.asarray(loading), jnp.zeros(DIM), noise)


matrix = eqx.filter_jit(lambda structure: structure.matrix())


def dense(model):
    loading = np.asarray(model.loading)
    return np.asarray(model.mean), loading @ loading.T + np.asarray(matrix(model.noise))


def dense_log_prob(model, rows):
    mean, cov = dense(model)
    out = []
    for row in rows:
        o = ~np.isnan(row)
        out.append(multivariate_normal(mean[o], cov[np.ix_(o, o)]).logpdf(row[o]) if o.any() else 0.0)
    return np.array(out)


log_probs = jax.jit(jax.vmap(LinearGaussian.log_prob, (None, 0)))
encode = jax.jit(LinearGaussian.encode)


def test_log_prob_is_that_of_the_dense_gaussian_and_of_its_marginals():
    rows = with_holes(draws(40))
    rows[0] = np.nan
    np.testing.assert_allclose(log_probs(truth(), rows), dense_log_prob(truth(), rows), rtol=1e-11)
    covariance = eqx.filter_jit(truth().covariance)()
    np.testing.assert_allclose(covariance, dense(truth())[1], rtol=1e-14)


def test_posterior_and_completion_are_the_conditionals_of_the_joint_gaussian():
    model = truth()
    w, psi = np.asarray(model.loading), np.asarray(model.noise.variance)
    row = draws(1)[0]
    row[[1, 3]] = np.nan
    o = ~np.isnan(row)
    mean, cov = dense(model)
    gain = np.linalg.solve(cov[np.ix_(o, o)], row[o] - mean[o])
    keys = jax.random.split(jax.random.key(5), 20_000)

    @jax.jit
    def answers(row):
        q = model.posterior(row)
        fills = jax.vmap(lambda k: model.complete_sample(row, key=k))(keys)
        return q.mean, q.covariance.matrix(), model.complete_mean(row), fills

    code, spread, completed, fills = map(np.asarray, answers(row))
    np.testing.assert_allclose(code, w[o].T @ gain, rtol=1e-10)
    expected = np.eye(K) - w[o].T @ np.linalg.solve(cov[np.ix_(o, o)], w[o])
    np.testing.assert_allclose(spread, expected, atol=1e-12)
    filled = np.where(o, row, mean + cov[:, o] @ gain)
    np.testing.assert_allclose(completed, filled, rtol=1e-10)
    assert (fills[:, o] == row[o]).all()
    hidden = np.flatnonzero(~o)
    rest = cov[np.ix_(hidden, hidden)] - cov[np.ix_(hidden, np.flatnonzero(o))] @ np.linalg.solve(
        cov[np.ix_(o, o)], cov[np.ix_(np.flatnonzero(o), hidden)]
    )
    error = 5 * np.sqrt(np.diag(rest) / len(keys))
    assert (np.abs(fills[:, hidden].mean(0) - filled[hidden]) < error).all()
    # Var of a sample covariance entry is at most 2 σ_i²σ_j² / n
    scale = np.sqrt(np.outer(np.diag(rest), np.diag(rest)))
    assert (np.abs(np.cov(fills[:, hidden].T) - rest) < 5 * scale * np.sqrt(2 / len(keys))).all()
    assert (psi > 0).all()


def test_posterior_mean_of_a_code_of_variance_s2_with_unit_noise():
    # cho P18: z ~ N(0, s²I), x | z ~ N(Vz + b, I) is W = sV, and the code of V is s times that of W
    rng = np.random.default_rng(2)
    v, b, x, s2 = rng.normal(size=(DIM, K)), rng.normal(size=DIM), rng.normal(size=DIM), 2.7
    model = LinearGaussian(jnp.asarray(np.sqrt(s2) * v), jnp.asarray(b), Spherical(jnp.array(1.0), dim=DIM))
    code = np.sqrt(s2) * np.asarray(encode(model, x))
    np.testing.assert_allclose(
        code, s2 * v.T @ np.linalg.solve(np.eye(DIM) + s2 * v @ v.T, x - b), rtol=1e-12
    )
    np.testing.assert_allclose(code, np.linalg.solve(v.T @ v + np.eye(K) / s2, v.T @ (x - b)), rtol=1e-12)
    wide = LinearGaussian(jnp.asarray(1e4 * v), jnp.asarray(b), Spherical(jnp.array(1.0), dim=DIM))
    limit = 1e4 * np.asarray(encode(wide, x))
    np.testing.assert_allclose(limit, np.linalg.pinv(v) @ (x - b), rtol=1e-6)


def test_samples_have_the_mean_and_covariance_of_the_model():
    n = 40_000
    x = draws(n, seed=7)
    mean, cov = dense(truth())
    assert (np.abs(x.mean(0) - mean) < 5 * np.sqrt(np.diag(cov) / n)).all()
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert (np.abs(np.cov(x.T) - cov) < 5 * spread).all()


@pytest.mark.parametrize(
    "noise",
    [
        Diagonal(jnp.ones(DIM)),
        pytest.param(Spherical(jnp.array(1.0), dim=DIM), marks=pytest.mark.slow),
    ],
)
def test_em_lowers_the_free_energy_which_is_minus_the_log_likelihood(noise, key):
    rows = with_holes(draws())
    result = fit(start(noise), EM(tol=0.0), rows, key=key, max_iter=40)
    assert np.all(np.diff(result.history["objective"]) < 1e-12)
    reached = -dense_log_prob(result.model, rows).mean()
    np.testing.assert_allclose(result.history["objective"][-1], reached, rtol=1e-10)
    partial = fit(start(noise), EM(tol=0.0, sweep=Incremental(4)), rows, key=key, max_iter=40)
    assert partial.history["objective"][-1] <= result.history["objective"][-1] + 1e-6


_fast = jax.jit(lambda model, x, w, t: model.expect(x, w, temperature=t, incomplete=False))
_slow = jax.jit(LinearGaussian._expect_incomplete)


def test_em_statistics_of_incomplete_rows_are_those_of_complete_ones_when_nothing_is_missing():
    x, w = jnp.asarray(draws(300)), jnp.asarray(np.random.default_rng(0).uniform(0, 2, 300))
    for temperature in (0.0, 0.5, 1.0):
        t = jnp.asarray(temperature)
        fast = _fast(truth(), x, w, t)
        slow = _slow(truth(), x, w, t)
        for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9)


def test_weights_act_as_repetition(key):
    rows = with_holes(draws(60))
    times = np.random.default_rng(0).integers(0, 4, 60)
    a = fit(start(Diagonal(jnp.ones(DIM))), EM(tol=0.0), rows, weight=times, key=key, max_iter=5).model
    repeated = np.repeat(rows, times, axis=0)
    b = fit(start(Diagonal(jnp.ones(DIM))), EM(tol=0.0), repeated, key=key, max_iter=5).model
    for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(u, v, rtol=1e-9)


def test_factor_analysis_reaches_the_likelihood_of_scikit_learn_and_matches_the_variances(key):
    x = draws()
    result = fit(start(Diagonal(jnp.ones(DIM))), EM(tol=1e-13), x, key=key, max_iter=3000)
    peer = FactorAnalysis(K, tol=1e-7, max_iter=20_000, svd_method="lapack").fit(x)
    np.testing.assert_allclose(-result.history["objective"][-1], peer.score(x), atol=1e-5)
    # makin 7.07: stationarity in Ψ;  cho 32: the mean is mean(x − Wz), not its negative
    np.testing.assert_allclose(np.diag(dense(result.model)[1]), x.var(0), rtol=1e-4)
    np.testing.assert_allclose(result.model.mean, x.mean(0), atol=1e-4)


def test_no_factors_left_is_the_variance_of_the_data(key):
    x = draws()
    empty = LinearGaussian(jnp.zeros((DIM, 0)), jnp.zeros(DIM), Diagonal(jnp.ones(DIM)))
    model = fit(empty, EM(), x, key=key, max_iter=2).model
    np.testing.assert_allclose(model.noise.variance, x.var(0), rtol=1e-10)


@pytest.mark.slow
def test_ppca_by_em_and_in_closed_form_agree(key):
    x = draws()
    scatter = np.cov(x.T, bias=True)
    exact = ppca_closed_form(jnp.asarray(x.mean(0)), jnp.asarray(scatter), K)
    np.testing.assert_allclose(
        exact.noise.variance, np.linalg.eigvalsh(scatter)[: DIM - K].mean(), rtol=1e-12
    )
    fitted = fit(start(Spherical(jnp.array(1.0), dim=DIM)), EM(tol=1e-15), x, key=key, max_iter=3000).model
    np.testing.assert_allclose(dense(fitted)[1], dense(exact)[1], atol=1e-5)
    # the gradient of the likelihood vanishes at the closed form
    slope = jax.grad(lambda m: jnp.mean(jax.vmap(m.log_prob)(x)))(exact)
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(slope)) < 1e-10


def test_temperature_zero_finds_the_principal_subspace(key):
    x = draws() - draws().mean(0)
    model = fit(
        start(Spherical(jnp.array(0.01), dim=DIM)), EM(temperature=0.0, tol=0.0), x, key=key, max_iter=400
    ).model
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    basis = np.linalg.qr(np.asarray(model.loading))[0]
    top = vectors[:, -K:]
    np.testing.assert_allclose(basis @ basis.T, top @ top.T, atol=1e-6)
    # the misfit is what the discarded directions hold (makin 7.08)
    np.testing.assert_allclose(model.noise.variance * DIM, values[:-K].sum(), rtol=1e-3)


_energy = jax.jit(LinearGaussian.energy)


@jax.jit
def _tempered(model, x, temperature):
    """The expectation step, and the posterior; the Hessian of e by automatic differentiation."""
    step = model.expect(x[None], jnp.ones(1), temperature=temperature, incomplete=True)
    q = model.posterior(x)
    return step, q.mean, q.covariance.matrix(), jax.hessian(lambda z: model.energy(x, z))(q.mean)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_tempered_free_energy_is_the_least_over_gaussians(temperature):
    model, x = truth(), draws(1)[0]
    x[2] = np.nan
    found = _tempered(model, x, np.asarray(temperature))
    (statistics, free), code, cov, hessian = jax.tree.map(np.asarray, found)
    rng = np.random.default_rng(0)

    def value(mean, cov):
        spread = 0.5 * np.trace(hessian @ cov)
        entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * cov)[1] if temperature > 0 else 0.0
        return float(_energy(model, x, mean)) + spread - temperature * entropy

    mean = code
    np.testing.assert_allclose(float(free), value(mean, temperature * cov), rtol=1e-10)
    for _ in range(5):
        tilt = np.eye(K) + 0.2 * rng.normal(size=(K, K))
        other = value(mean + 0.2 * rng.normal(size=K), temperature * tilt @ cov @ tilt.T)
        assert other > float(free)
    observed = ~np.isnan(np.asarray(x))
    np.testing.assert_allclose(statistics.weight, observed.astype(float))
    spread = np.asarray(statistics.codes[0, :K, :K]) - np.outer(mean, mean)
    np.testing.assert_allclose(spread, temperature * cov, atol=1e-12)


def test_noise_stays_above_its_floor_and_an_unseen_column_keeps_what_it_had(key):
    x = draws(200)
    x[:, 1] = x[:, 0]  # Heywood: the factor explains these columns without noise
    x[:, 4] = np.nan
    first = start(Diagonal(jnp.ones(DIM), floor=1e-3))
    result = fit(first, EM(tol=0.0), x, key=key, max_iter=300)
    assert np.all(np.diff(result.history["objective"]) < 1e-12)
    variance = np.asarray(result.model.noise.variance)
    assert variance.min() == pytest.approx(1e-3)
    assert variance[4] == 1.0
    np.testing.assert_array_equal(result.model.loading[4], first.loading[4])


def test_noise_with_correlations_is_refused():
    with pytest.raises(
        ValueError, match=r"'noise' of LinearGaussian must have independent coordinates. Got Full"
    ):
        LinearGaussian(jnp.ones((2, 1)), jnp.zeros(2), Full(jnp.eye(2)))
