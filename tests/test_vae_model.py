"""The variational autoencoder: linear networks are factor analysis, small codes can be integrated out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import bernoulli, multivariate_normal, norm

from freeenergy._core import on_device
from freeenergy.distributions import Bernoulli, Diagonal, Gaussian, Given, Spherical
from freeenergy.inference import Split, importance_log_weights
from freeenergy.learning import Batch, FreeEnergy, Gradient, ImportanceWeighted, fit
from freeenergy.models import (
    VAE,
    GaussianEncoder,
    LinearGaussian,
    StandardNormal,
    mlp_vae,
    ppca_closed_form,
)
from freeenergy.nn import MLP, Linear, mlp

DIM, K = 4, 2
KEY = jax.random.key(0)


def bits(n):
    return Given(Bernoulli(jnp.full(n, 0.5)))


def linear_vae():
    """A linear decoder whose encoder is the exact posterior, and the same model in closed form."""
    rng = np.random.default_rng(0)
    variance = rng.uniform(0.3, 1, DIM)
    # columns orthogonal under Ψ⁻¹: the posterior covariance is then diagonal, as the encoder's
    loading = np.sqrt(variance)[:, None] * np.linalg.qr(rng.normal(size=(DIM, K)))[0] * np.array([2.0, 1.0])
    mean = rng.normal(size=DIM)
    exact = LinearGaussian(jnp.asarray(loading), jnp.asarray(mean), Diagonal(jnp.asarray(variance)))
    spread = np.linalg.inv(np.eye(K) + loading.T / variance @ loading)
    gain = spread @ (loading.T / variance)
    weight = np.concatenate([gain.T, np.zeros((DIM, K))], axis=1)
    bias = np.concatenate([-gain @ mean, np.log(np.diag(spread))])
    encoder = GaussianEncoder(MLP((Linear(jnp.asarray(weight), jnp.asarray(bias)),)))
    decoder = MLP((Linear(jnp.asarray(loading.T), jnp.asarray(mean)),))
    emission = Given(Gaussian(jnp.zeros(DIM), exact.noise))
    return VAE(encoder, decoder, emission, StandardNormal(K)), exact


def test_energy_is_minus_the_log_joint_with_missing_entries_left_out():
    model, _ = linear_vae()
    x, z = np.array([0.3, np.nan, -1.0, 0.5]), np.array([0.2, -0.4])
    output = z @ np.asarray(model.decoder.layers[0].weight) + np.asarray(model.decoder.layers[0].bias)
    terms = norm(output, np.sqrt(np.asarray(model.emission.member.covariance.variance))).logpdf(x)
    expected = -norm.logpdf(z).sum() - np.nansum(terms)
    assert float(model.energy(jnp.asarray(x), jnp.asarray(z))) == pytest.approx(expected, rel=1e-12)


def test_bernoulli_emission_is_stable_and_right():
    output = np.array([-700.0, -2.0, 0.0, 3.0, 700.0])

    @jax.jit
    def asked(output, x):
        inner = bits(3).log_prob(output[1:4], x[1:4])
        ends = bits(2).log_prob(output[jnp.array([0, 4])], x[:2])
        return inner, ends, *jax.value_and_grad(bits(5).log_prob)(output, x)

    for bit in (0.0, 1.0):
        expected = bernoulli.logpmf(bit, 1 / (1 + np.exp(-output[1:4]))).sum()
        inner, ends, _, slope = asked(output, np.full(5, bit))
        assert float(inner) == pytest.approx(expected, rel=1e-12)
        # at the ends one bit costs 700 nats and the other nothing
        assert float(ends) == -700.0
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(slope, bit - 1 / (1 + np.exp(-output)), atol=1e-15)
    assert float(asked(output, np.full(5, np.nan))[2]) == 0

    @jax.jit
    def drawn(output, keys):
        return jax.vmap(lambda k: bits(2).sample(output, key=k))(keys), bits(2).mean(output)

    draws, mean = map(np.asarray, drawn(np.array([0.5, -1.0]), jax.random.split(KEY, 20_000)))
    p = 1 / (1 + np.exp([-0.5, 1.0]))
    np.testing.assert_allclose(draws.mean(0), p, atol=5 * 0.5 / np.sqrt(20_000))
    np.testing.assert_allclose(mean, p, rtol=1e-12)


def test_with_the_exact_posterior_every_importance_weight_is_the_likelihood():
    model, exact = linear_vae()
    x = jnp.array([0.3, 1.0, -1.0, 0.5])
    loading = np.asarray(exact.loading)
    cov = loading @ loading.T + np.diag(exact.noise.variance)
    log_p = multivariate_normal(exact.mean, cov).logpdf(x)

    @eqx.filter_jit
    def asked(model):
        weights = importance_log_weights(model.energy, model.recognition, x, samples=7, key=KEY)
        means = model.recognise(x).mean, exact.posterior(x).mean
        bounds = jax.vmap(lambda k: model.bound(x, key=k))(jax.random.split(KEY, 20_000))
        return weights, *means, bounds

    weights, ours, theirs, bounds = map(np.asarray, asked(model))
    np.testing.assert_allclose(weights, log_p, rtol=1e-10)
    assert abs(bounds.mean() - log_p) < 5 * bounds.std() / np.sqrt(20_000)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    closed = eqx.tree_at(lambda m: m.expectation, model, Split(model.prior.energy))
    fewer = np.asarray(asked(closed)[3])
    assert abs(fewer.mean() - log_p) < 5 * fewer.std() / np.sqrt(20_000)
    # a worse q has a lower bound (P27)
    shift = lambda b: on_device(np.asarray(b) + 0.5)  # noqa: E731
    worse = eqx.tree_at(lambda m: m.encoder.network.layers[0].bias, model, replace_fn=shift)
    low = np.asarray(asked(worse)[3])
    assert low.mean() + 5 * low.std() / np.sqrt(20_000) < log_p


@pytest.mark.slow
def test_completion_by_importance_sampling_is_that_of_the_gaussian():
    model, exact = linear_vae()
    # wider than any posterior of incomplete rows, so that the weights are bounded
    model = eqx.tree_at(
        lambda m: m.encoder.network.layers[0].bias, model, replace_fn=lambda b: b.at[K:].set(jnp.log(1.5))
    )
    x = jnp.array([0.3, jnp.nan, -1.0, jnp.nan])
    filled = jax.jit(lambda k: model.complete_mean(x, samples=20_000, key=k))(KEY)
    np.testing.assert_allclose(filled, exact.complete_mean(x), atol=0.05)
    n = 4000
    draws = np.asarray(
        jax.jit(jax.vmap(lambda k: model.complete_sample(x, samples=200, key=k)))(jax.random.split(KEY, n))
    )
    assert (draws[:, 0] == 0.3).all()
    assert (draws[:, 2] == -1.0).all()
    w, psi = np.asarray(exact.loading), np.asarray(exact.noise.variance)
    seen = np.array([0, 2])
    rest = w @ np.linalg.inv(np.eye(K) + w[seen].T / psi[seen] @ w[seen]) @ w.T + np.diag(psi)
    for column in (1, 3):
        deviation = np.sqrt(rest[column, column])
        # resampling one of 200 has a bias of about a per cent of the spread
        gap = abs(draws[:, column].mean() - float(exact.complete_mean(x)[column]))
        assert gap < (5 / np.sqrt(n) + 0.02) * deviation
        assert draws[:, column].std() == pytest.approx(deviation, rel=5 / np.sqrt(2 * n) + 0.02)


def test_samples_have_the_moments_of_the_model():
    model, exact = linear_vae()
    n = 20_000
    draws = np.asarray(jax.jit(jax.vmap(lambda k: model.sample(key=k)))(jax.random.split(KEY, n)))
    loading = np.asarray(exact.loading)
    cov = loading @ loading.T + np.diag(exact.noise.variance)
    assert (np.abs(draws.mean(0) - exact.mean) < 5 * np.sqrt(np.diag(cov) / n)).all()
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert (np.abs(np.cov(draws.T) - cov) < 5 * spread).all()


@pytest.mark.slow
def test_a_linear_autoencoder_learns_probabilistic_pca():
    # makin 8.12: with linear networks the optimum of the bound is the likelihood of PPCA
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 1)) @ rng.normal(size=(1, 3)) + 0.5 * rng.normal(size=(500, 3))
    best = ppca_closed_form(jnp.asarray(x.mean(0)), jnp.asarray(np.cov(x.T, bias=True)), 1)
    log_p = float(jnp.mean(jax.vmap(best.log_prob)(x)))
    emission = Given(Gaussian(jnp.zeros(3), Spherical(jnp.array(1.0), dim=3)))
    start = mlp_vae(3, 1, depth=0, emission=emission, dtype=jnp.float64, key=jax.random.key(3))
    learner = Gradient(optax.adam(optax.cosine_decay_schedule(0.03, 1500)), FreeEnergy(), batch_size=100)
    model = fit(start, learner, x, key=KEY, max_iter=300).model
    assert float(model.emission.member.covariance.variance) == pytest.approx(
        float(best.noise.variance), rel=0.03
    )
    batch = Batch(jnp.asarray(x), jnp.full(len(x), 1 / len(x)))
    keys = jax.random.split(KEY, 200)
    for objective in (FreeEnergy(), ImportanceWeighted(samples=1), ImportanceWeighted(samples=5)):
        values = jax.jit(jax.vmap(lambda k, o=objective: o(model, batch, k)))(keys)
        error = float(values.std()) / np.sqrt(len(keys))
        assert -log_p - 5 * error < float(values.mean()) < -log_p + 0.01


@pytest.mark.slow
def test_training_in_32_bit_on_incomplete_bits_finds_the_dependence():
    rng = np.random.default_rng(2)
    cause = rng.random((600, 1)) < 0.5
    x = (rng.random((600, 6)) < np.where(cause, 0.95, 0.05)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    start = mlp_vae(6, 1, width=16, emission=bits(6), mask_input=True, key=jax.random.key(1))
    assert start.encoder.network.layers[0].weight.shape == (12, 16)
    learner = Gradient(optax.adam(1e-2), FreeEnergy(), batch_size=100)
    result = fit(start, learner, x, key=KEY, max_iter=60)
    model = result.model
    assert {leaf.dtype for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))} == {
        jnp.dtype("float32")
    }
    # independent bits would cost log 2 each
    seen = np.mean(np.sum(~np.isnan(x), axis=1))
    assert result.history["objective"][-1] < 0.75 * seen * np.log(2)
    # log p of every complete row by quadrature over the code sums to one over all rows
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    rows = ((np.arange(64)[:, None] >> np.arange(6)) & 1).astype(np.float32)
    outputs = jax.vmap(model.decoder)(jnp.asarray(nodes[:, None], jnp.float32))
    log_terms = np.asarray(
        jax.vmap(lambda row: jax.vmap(lambda o: model.emission.log_prob(o, row))(outputs))(rows), np.float64
    )
    p = np.exp(log_terms) @ (weights / weights.sum())
    assert p.sum() == pytest.approx(1, abs=1e-5)
    estimates = jax.jit(
        jax.vmap(
            lambda row: importance_log_weights(model.energy, model.recognition, row, samples=2000, key=KEY)
        )
    )(rows)
    likelihoods = np.exp(np.asarray(estimates, np.float64))
    error = likelihoods.std(1) / np.sqrt(2000)
    assert (np.abs(likelihoods.mean(1) - p) < 5 * error + 1e-5).all()
    # the missing bits follow the observed ones
    ones = jnp.array([1, 1, 1, 1, 1, jnp.nan], jnp.float32)
    complete = jax.jit(lambda row: model.complete_mean(row, samples=500, key=KEY)[5])
    fill = [float(complete(row)) for row in (ones, 1 - ones)]
    assert fill[0] > 0.8
    assert fill[1] < 0.2
    assert float(model.reconstruct(model.recognise(ones).mean)[0]) > 0.8


def test_a_perceptron_is_its_layers_in_turn():
    network = mlp(3, 2, width=5, depth=2, activation=jnp.tanh, dtype=jnp.float64, key=KEY)
    x = np.array([0.3, -1.0, 2.0])
    h = x
    for i, layer in enumerate(network.layers):
        bound = 1 / np.sqrt(len(h))
        assert (np.abs(layer.weight) <= bound).all()
        assert (np.abs(layer.bias) <= bound).all()
        h = np.array(
            [sum(h[a] * layer.weight[a, b] for a in range(len(h))) for b in range(len(layer.bias))]
        )
        h = h + np.asarray(layer.bias)
        h = np.tanh(h) if i < 2 else h
    np.testing.assert_allclose(network(jnp.asarray(x)), h, rtol=1e-12)
