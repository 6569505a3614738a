"""Priors, recognitions and objectives of codes, against Gaussian algebra, quadrature and enumeration."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax
from scipy.stats import logistic, multivariate_normal

import freeenergy as fe
from freeenergy import models as m
from freeenergy._core import on_device
from freeenergy.distributions import (
    Bernoulli,
    Diagonal,
    DiscretisedLogistics,
    Free,
    Gaussian,
    Given,
    Transformed,
)
from freeenergy.evaluation import CodeReport, code_report
from freeenergy.inference import (
    Amortised,
    GumbelSoftmax,
    ScoreFunction,
    StraightThrough,
    binary_states,
    free_energy,
    importance_log_weights,
)
from freeenergy.learning import (
    Batch,
    DoublyReparametrised,
    FreeEnergy,
    Gradient,
    Hardening,
    ImportanceWeighted,
    WarmUp,
    fit,
)
from freeenergy.nn import MLP, Linear

KEY = jax.random.key(0)
# x | z ~ N(2 z + 1, ½), z ~ N(0, 1), and q = N(½, 0.3): row C19 of Moon's notes
X = jnp.array([3.0])
LOG_P, ELBO = -2.1154216760, -3.1493513451


def line(weight, bias):
    return MLP((Linear(on_device(np.atleast_2d(weight)), on_device(np.atleast_1d(bias))),))


def toy(mean=0.5, variance=0.3, prior=None):
    """The toy model, with a recognition that says the same of every row."""
    encoder = m.GaussianEncoder(line([[0.0, 0.0]], [mean, np.log(variance)]))
    emission = Given(Gaussian(jnp.zeros(1), Diagonal(jnp.full(1, 0.5))))
    return m.VAE(encoder, line(2.0, 1.0), emission, m.StandardNormal(1) if prior is None else prior)


BATCH = Batch(X[None], jnp.ones(1))


@eqx.filter_jit
def log_weights(model, x, *, samples):
    return importance_log_weights(model.energy, model.recognition, x, samples=samples, key=KEY)


def values_and_slopes(objective, model, n):
    """What an objective is worth for many keys, and its slopes in the mean of q and in the decoder."""

    def both(key):
        value, slope = eqx.filter_value_and_grad(lambda p: objective(p, BATCH, key))(model)
        return (
            value,
            slope.encoder.network.layers[0].bias[0],
            slope.decoder.layers[0].bias[0],
        )

    return [np.asarray(a) for a in eqx.filter_jit(jax.vmap(both))(jax.random.split(KEY, n))]


def test_the_importance_weighted_bound_rises_to_the_evidence_and_its_gradient_keeps_its_mean():
    # moon V13: −3.1494, −2.474 (2), −2.171 (8), −2.122 (64), limit −2.1154217
    n, model, bounds = 40_000, toy(), []
    for samples, printed in ((1, ELBO), (2, -2.474), (8, -2.171)):
        plain = values_and_slopes(ImportanceWeighted(samples), model, n)
        double = values_and_slopes(DoublyReparametrised(samples), model, n)
        # the same draws: the same bound
        np.testing.assert_allclose(plain[0], double[0], rtol=1e-10)
        error = plain[0].std() / np.sqrt(n)
        assert abs(-plain[0].mean() - printed) < 5 * error + 5e-4
        bounds.append(-plain[0].mean())
        for a, b in zip(plain[1:], double[1:], strict=True):
            assert abs(a.mean() - b.mean()) < 5 * np.hypot(a.std(), b.std()) / np.sqrt(n)
        # less noise for q, and as much for the model
        assert double[1].std() < 0.9 * plain[1].std()
        np.testing.assert_allclose(plain[2], double[2], atol=1e-8)
    assert bounds[0] < bounds[1] < bounds[2] < LOG_P
    # at the exact posterior the gradient of q has no noise at all (sticking the landing)
    exact = values_and_slopes(DoublyReparametrised(1), toy(mean=8 / 9, variance=1 / 9), 50)
    np.testing.assert_allclose(-exact[0], LOG_P, rtol=1e-9)
    np.testing.assert_allclose(exact[1], 0, atol=1e-9)


def test_beta_and_its_warm_up_weigh_the_divergence_of_the_code():
    model = toy()
    closed = eqx.tree_at(
        lambda v: v.expectation, model, m.DiagonalRecognition().expectation(model.prior, 1)
    )
    divergence = 0.5 * (0.25 + 0.3 - 1 - np.log(0.3))
    # E log N(x; 2 z + 1, ½) over q = N(½, 0.3)
    reconstruction = 0.5 * np.log(np.pi) + (3 - 2) ** 2 + 4 * 0.3
    assert -(reconstruction + divergence) == pytest.approx(ELBO, abs=1e-9)
    keys = jax.random.split(KEY, 4000)

    def mean(objective):
        values = np.asarray(jax.jit(jax.vmap(lambda k: objective(closed, BATCH, k)))(keys))
        return values.mean(), values.std() / np.sqrt(len(keys))

    for beta in (0.0, 1.0, 4.0):
        found, error = mean(FreeEnergy(beta=beta))
        assert abs(found - reconstruction - beta * divergence) < 5 * error
    # β = 4 has the noise of β = 0: that of the divergence is known
    assert mean(FreeEnergy(beta=4.0))[1] == pytest.approx(mean(FreeEnergy(beta=0.0))[1], rel=1e-9)
    warm = WarmUp(4, beta=2.0)
    state, worth = warm.init(closed, BATCH, key=KEY), []
    step = eqx.filter_jit(lambda state: warm(closed, BATCH, state, key=KEY))
    for _ in range(6):
        value, state = step(state)
        worth.append(float(value))
    np.testing.assert_allclose(np.diff(worth), [divergence / 2] * 4 + [0.0], rtol=1e-9, atol=1e-9)
    # what is judged on held-out rows does not change with the warm-up
    learner = Gradient(fe.learning.Optimiser(optax.sgd, 0.0), warm, 2, criterion=FreeEnergy())
    rows = np.full((4, 1), 3.0)
    history = fit(closed, learner, rows, key=KEY, validation=rows, max_iter=3).history
    assert np.ptp(history["validation"]) == 0 < np.ptp(history["objective"])


def test_a_mixture_of_codes_against_the_numbers_of_the_notes():
    # moon V11, V12: w=2, b=1, s²=.5, π=(.3,.7), μ=(−1,1), σ²=(.5,.8), x=2
    pi, mu, var = np.array([0.3, 0.7]), np.array([-1.0, 1.0]), np.array([0.5, 0.8])
    prior = m.Mixture(
        jnp.asarray(pi), Gaussian(jnp.asarray(mu[:, None]), Diagonal(jnp.asarray(var[:, None])))
    )
    model, x = toy(0.4, 0.2, prior), jnp.array([2.0])
    # a weight is p(x) on average
    weights = np.exp(log_weights(model, x, samples=200_000))
    assert abs(weights.mean() - np.exp(-1.9708296932)) < 5 * weights.std() / np.sqrt(len(weights))
    # p(c | x) = (.0897949, .9102051)
    chances = eqx.filter_jit(m.VAE.component_chances)(model, x, samples=200_000, key=KEY)
    assert chances[0] == pytest.approx(0.0897949, abs=2e-3)
    # the bound with q(c | x) = (.3, .7) beside q(z | x)
    gamma = np.array([0.3, 0.7])

    def energy(x, z):
        own = -jax.vmap(lambda a, b: Gaussian(a, Diagonal(b)).log_prob(z))(
            jnp.asarray(mu[:, None]), jnp.asarray(var[:, None])
        )
        return jnp.asarray(gamma) @ (own + np.log(gamma / pi)) - model.log_likelihood(x, z)

    quadratic = Amortised(model.encoder, expectation=fe.inference.Quadratic())
    mean_field = -float(jax.jit(lambda x: free_energy(energy, quadratic, x, key=KEY))(x))
    assert mean_field == pytest.approx(-2.4280115791, abs=1e-9)
    # the sum over c is in our bound, which is therefore higher
    bounds = np.asarray(jax.jit(jax.vmap(lambda k: model.bound(x, key=k)))(jax.random.split(KEY, 4000)))
    assert mean_field < bounds.mean() < -1.9708296932


def test_any_covariance_of_a_code_reaches_the_evidence_of_a_linear_model():
    rng = np.random.default_rng(0)
    loading, noise = rng.normal(size=(3, 2)), rng.uniform(0.3, 1, 3)
    x = jnp.asarray(rng.normal(size=3))
    spread = np.linalg.inv(np.eye(2) + loading.T / noise @ loading)
    lower = np.linalg.cholesky(spread)
    gain = spread @ (loading.T / noise)
    # outputs: the mean, then the triangle row by row with logarithms on the diagonal
    bias = np.array([0, 0, np.log(lower[0, 0]), lower[1, 0], np.log(lower[1, 1])])
    weight = np.concatenate([gain.T, np.zeros((3, 3))], axis=1)
    full = m.FullGaussianEncoder(line(weight, bias), 2)
    np.testing.assert_allclose(eqx.filter_jit(full)(x).covariance.matrix(), spread, rtol=1e-10)
    emission = Given(Gaussian(jnp.zeros(3), Diagonal(jnp.asarray(noise))))
    model = m.VAE(full, line(loading.T, np.zeros(3)), emission, m.StandardNormal(2))
    log_p = multivariate_normal(np.zeros(3), loading @ loading.T + np.diag(noise)).logpdf(x)
    np.testing.assert_allclose(log_weights(model, x, samples=5), log_p, rtol=1e-9)
    # independent entries have a gap: KL of their best from the posterior
    flat = np.concatenate([-gain.T @ np.zeros((2, 2)), np.zeros((3, 2))], axis=1)
    flat[:, :2] = gain.T
    alone = -np.log(np.diag(np.linalg.inv(spread)))
    closed = m.VAE(
        m.GaussianEncoder(line(flat, np.concatenate([np.zeros(2), alone]))),
        model.decoder,
        emission,
        model.prior,
        fe.inference.Quadratic(),
    )
    gap = 0.5 * (np.sum(np.log(np.diag(np.linalg.inv(spread)))) + np.linalg.slogdet(spread)[1])
    bound = eqx.filter_jit(m.VAE.bound)(closed, x, key=KEY)
    assert float(bound) == pytest.approx(log_p - gap, abs=1e-9)


def test_flows_of_codes_are_densities_that_their_draws_follow():
    dim = 2
    recipes = m.FlowRecognition(context=3, width=4), m.FlowPrior(layers=2, width=4)
    made = eqx.filter_jit(
        lambda key: (
            recipes[0].build(m.EncoderPlan(2, 4, 1, dtype=float), dim, key=key),
            recipes[1].build(dim, dtype=float, key=key),
        )
    )(KEY)
    # away from the start, where they are normal
    encoder, prior = jax.tree.map(
        lambda a: (
            on_device(np.asarray(a) + 0.3 * np.sin(np.arange(a.size)).reshape(a.shape))
            if eqx.is_inexact_array(a) and a.ndim > 1
            else a
        ),
        made,
    )
    grid = np.linspace(-9, 9, 181)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    x = jnp.array([0.5, -1.0])
    q = eqx.filter_jit(encoder)(x)
    assert isinstance(encoder, m.FlowEncoder)
    assert isinstance(q, Transformed)
    for law in (q, prior):
        mass = np.exp(np.asarray(jax.jit(jax.vmap(law.log_prob))(points))) * (grid[1] - grid[0]) ** 2
        assert mass.sum() == pytest.approx(1, abs=2e-3)
        draws = np.asarray(
            jax.jit(jax.vmap(lambda k, law=law: law.sample(key=k)))(jax.random.split(KEY, 4000))
        )
        mean = mass @ points / mass.sum()
        assert (np.abs(draws.mean(0) - mean) < 5 * draws.std(0) / np.sqrt(4000) + 2e-3).all()
    # a flow has no entropy in closed form: its bound is that of its draws
    emission = Given(Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2))))
    model = m.VAE(encoder, lambda z: z, emission, prior)
    bounds = np.asarray(jax.jit(jax.vmap(lambda k: model.bound(x, key=k)))(jax.random.split(KEY, 4000)))
    logs = np.asarray(jax.jit(jax.vmap(lambda z: (-model.energy(x, z), q.log_prob(z))))(points)).T
    mass = np.exp(logs[:, 1]) * (grid[1] - grid[0]) ** 2
    exact = logsumexp(logs[:, 0]) + 2 * np.log(grid[1] - grid[0])
    expected = mass @ (logs[:, 0] - logs[:, 1])
    assert abs(bounds.mean() - expected) < 5 * bounds.std() / np.sqrt(4000) + 5e-3
    assert expected < exact


def bits_model(gradient=None):
    rng = np.random.default_rng(1)
    recipe = m.BitsRecognition(gradient)
    encoder = m.BitsEncoder(line(rng.normal(size=(4, 3)), rng.normal(size=3)))
    prior = m.Bits(jnp.asarray(rng.normal(size=3)))
    emission = Given(Bernoulli(jnp.full(4, 0.5)))
    decoder = line(rng.normal(size=(3, 4)), rng.normal(size=4))
    return m.VAE(encoder, decoder, emission, prior, recipe.expectation(prior, 3))


def test_codes_of_bits_are_summed_over():
    model = bits_model()
    assert isinstance(model.expectation, m.EveryBit)
    codes, rows = np.asarray(binary_states(3)), np.asarray(binary_states(4))
    eta, w, b = (np.asarray(v) for v in (model.prior.logits, *jax.tree.leaves(model.decoder)))
    log_prior = codes @ eta - np.logaddexp(0, eta).sum()
    outputs = codes @ w + b
    joint = log_prior[None] + rows @ outputs.T - np.logaddexp(0, outputs).sum(1)[None]
    found = np.asarray(jax.jit(jax.vmap(model.log_prob_by_enumeration))(rows))
    np.testing.assert_allclose(found, logsumexp(joint, axis=1), rtol=1e-10)
    assert logsumexp(found) == pytest.approx(0, abs=1e-10)
    # the free energy: the sum over the codes, of q too
    x = rows[5]
    q = np.asarray(eqx.filter_jit(model.encoder)(jnp.asarray(x)).probability)
    log_q = codes @ np.log(q) + (1 - codes) @ np.log1p(-q)
    bound = np.exp(log_q) @ (joint[5] - log_q)
    assert float(eqx.filter_jit(m.VAE.bound)(model, jnp.asarray(x), key=KEY)) == pytest.approx(
        bound, rel=1e-10
    )
    # a missing entry is a sum over it, and its chances are those of the joint law
    hole = jnp.asarray(np.where(np.arange(4) == 2, np.nan, x))
    pair = np.array([found[5 & ~4], found[5 | 4]])
    summed = eqx.filter_jit(m.VAE.log_prob_by_enumeration)(model, hole)
    assert float(summed) == pytest.approx(logsumexp(pair), rel=1e-10)
    complete = eqx.filter_jit(m.VAE.complete_chances)
    chances = np.asarray(complete(model, hole, np.array(2), labels=2, samples=40_000, key=KEY))
    np.testing.assert_allclose(chances, softmax(pair), atol=0.02)
    assert chances.sum() == pytest.approx(1, abs=1e-9)


def test_gradients_through_bits():
    exact, batch = bits_model(), Batch(jnp.array([[1.0, 0.0, 1.0, 0.0]]), jnp.ones(1))

    def slopes(model, n):
        def slope(key):
            found = eqx.filter_grad(lambda v: FreeEnergy()(v, batch, key))(model)
            return found.encoder.network.layers[0].bias, found.decoder.layers[0].bias

        return [np.asarray(a) for a in eqx.filter_jit(jax.vmap(slope))(jax.random.split(KEY, n))]

    truth = [a[0] for a in slopes(exact, 1)]
    n = 4000
    free = slopes(bits_model(ScoreFunction(8)), n)
    for found, wanted in zip(free, truth, strict=True):
        assert (np.abs(found.mean(0) - wanted) < 5 * found.std(0) / np.sqrt(n)).all()
    # what is soft has a bias, which is the smaller the harder it is
    soft = [slopes(bits_model(GumbelSoftmax(s)), n)[0] for s in (5.0, 0.2)]
    bias = [np.abs(found.mean(0) - truth[0]).max() for found in soft]
    assert bias[1] < 0.5 * bias[0]
    assert soft[1].std() > soft[0].std()
    # the decoder sees bits, so that its gradient has none
    hard = slopes(bits_model(StraightThrough(0.5)), n)[1]
    assert (np.abs(hard.mean(0) - truth[1]) < 5 * hard.std(0) / np.sqrt(n)).all()
    # a softness that falls from 5 to 0.2 in two steps
    falling, key = Hardening(first=5.0, last=0.2, steps=2), jax.random.key(3)
    state, model = falling.init(exact, batch, key=key), bits_model(GumbelSoftmax(7.0))
    step = eqx.filter_jit(lambda state: falling(model, batch, state, key=key))
    worth = eqx.filter_jit(lambda softness: FreeEnergy()(bits_model(GumbelSoftmax(softness)), batch, key))
    for softness in (5.0, 1.0, 0.2, 0.2):
        value, state = step(state)
        own = worth(np.array(softness))
        assert float(value) == pytest.approx(float(own), rel=1e-9)


def test_two_levels_of_a_linear_code_reach_the_evidence():
    # chaudhari L18: z₂ ~ N(0, 1), z₁ | z₂ ~ N(0.8 z₂, 0.36), x | z₁ ~ N(2 z₁ + 1, ½); so z₁ ~ N(0, 1)
    log_variance = np.log(0.36)
    prior = m.Levels(line([[0.8, 0.0]], [0.0, log_variance]), (1, 1))
    # q(z₁ | x) is the posterior of the toy, and q(z₂ | z₁) = N(0.8 z₁, 0.36)
    near = m.GaussianEncoder(line([[4 / 9, 0.0]], [-4 / 9, np.log(1 / 9)]))
    encoder = m.LevelsEncoder(near, line([[0.8, 0.0]], [0.0, log_variance]))
    emission = Given(Gaussian(jnp.zeros(1), Diagonal(jnp.full(1, 0.5))))
    model = m.VAE(encoder, m.FirstEntries(line(2.0, 1.0), 1), emission, prior)
    np.testing.assert_allclose(log_weights(model, X, samples=6), LOG_P, rtol=1e-8)
    assert model.latent_dim == 2
    assert isinstance(eqx.filter_jit(encoder)(X), m.LevelsFrom)
    levels = m.LevelsRecognition(1, 4)
    built = eqx.filter_jit(m.mlp_vae)(1, 3, width=4, emission=emission, recognition=levels, key=KEY)
    assert built.decoder.number == 2
    assert np.isfinite(float(eqx.filter_jit(m.VAE.bound)(built, X.astype(jnp.float32), key=KEY)))
    with pytest.raises(ValueError, match=r"must have fewer entries than the code, 2\. Got 2 instead"):
        m.LevelsPrior(2).seen(2)


def test_refined_codes_are_nearer_to_the_posterior():
    model = toy()
    refined = dataclasses.replace(model, refinement=60)
    keys = jax.random.split(KEY, 200)
    before, after = (
        np.asarray(jax.jit(jax.vmap(lambda k, v=v: v.bound(X, key=k)))(keys)).mean()
        for v in (model, refined)
    )
    assert before + 0.5 < after < LOG_P + 0.02


def test_what_codes_cost_is_what_they_tell_and_how_far_they_are_from_the_prior():
    # four codes for two rows: the faces of the bound by enumeration (makin 8.21)
    rng = np.random.default_rng(0)
    q, prior = rng.dirichlet(np.ones(4), 2), rng.dirichlet(np.ones(4))
    together = q.mean(0)
    rate = np.mean(np.sum(q * np.log(q / prior), axis=1))
    information = np.mean(np.sum(q * np.log(q / together), axis=1))
    gap = np.sum(together * np.log(together / prior))
    assert rate == pytest.approx(information + gap, rel=1e-12)
    n = 2000
    rows = np.arange(n) % 2
    codes = np.array([rng.choice(4, p=q[row]) for row in rows])
    report = code_report(np.zeros(n), np.log(q)[rows][:, codes].T, np.log(prior)[codes], q[rows])
    for found, error, wanted in zip(report[1:4], report.stderr[1:], (rate, information, gap), strict=True):
        assert abs(found - wanted) < 5 * error
    assert report.rate == pytest.approx(report.information + report.aggregate_gap, rel=1e-9)
    assert report.reconstruction == 0
    assert isinstance(report, CodeReport)
    np.testing.assert_array_equal(report.active, q[rows].var(0) > 0.01)
    assert "entries of the code are in use" in str(report)


def test_grey_values_have_the_mass_of_logistic_laws():
    rng = np.random.default_rng(0)
    scores, loc, scale = rng.normal(size=(2, 3)), rng.uniform(-1, 6, (2, 3)), rng.uniform(0.1, 2, (2, 3))
    law = DiscretisedLogistics(*map(on_device, (scores, loc, scale)), 5)
    edges = np.array([-np.inf, 0.5, 1.5, 2.5, 3.5, np.inf])
    shares = softmax(scores, axis=1)
    cells = np.diff(logistic(loc[..., None], scale[..., None]).cdf(edges), axis=-1)
    mass = np.einsum("dk,dkn->dn", shares, cells)
    pairs = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij"), -1).reshape(-1, 2)
    wild = np.array([[np.nan, 3.0], [np.nan, np.nan], [0.5, 1.0], [5.0, 1.0], [-1.0, 1.0]])
    found = np.asarray(jax.jit(jax.vmap(law.log_prob))(np.concatenate([pairs, wild])))
    np.testing.assert_allclose(found[:25], np.log(mass[0][:, None] * mass[1][None]).ravel(), rtol=1e-9)
    np.testing.assert_allclose(found[25:], [np.log(mass[1][3]), 0, -np.inf, -np.inf, -np.inf], rtol=1e-9)
    np.testing.assert_allclose(
        eqx.filter_jit(DiscretisedLogistics.mean)(law), mass @ np.arange(5), rtol=1e-9
    )
    draws = np.asarray(jax.jit(jax.vmap(lambda k: law.sample(key=k)))(jax.random.split(KEY, 4000)))
    counts = np.stack([(draws == n).mean(0) for n in range(5)], axis=1)
    assert (np.abs(counts - mass) < 5 * np.sqrt(mass * (1 - mass) / 4000) + 1e-9).all()
    # far from the middle logarithms are exact, with slopes
    narrow = Given(DiscretisedLogistics(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.full((1, 1), 0.01), 256))
    slope = jax.jit(jax.grad(lambda o, x: narrow.log_prob(o, x)))(jnp.zeros(3), jnp.array([200.0]))
    assert np.isfinite(slope).all()
    assert slope[1] == pytest.approx(100, rel=1e-6)


SMALL = functools.partial(
    fe.VAE, 2, width=8, max_iter=60, learning_rate=0.02, importance_samples=50, random_state=0
)
RNG = np.random.default_rng(0)
SIDE = RNG.random(128) < 0.5
FRAME = pl.DataFrame(
    {
        "place": pl.Series(np.where(SIDE, "north", "south"), dtype=pl.Categorical),
        "height": np.where(SIDE, 3.0, -3.0) + 0.5 * RNG.normal(size=128),
        "visits": RNG.poisson(np.where(SIDE, 1.0, 9.0)),
        "open": SIDE ^ (RNG.random(128) < 0.05),
    }
)


@pytest.fixture(scope="module")
def mixed():
    return SMALL("by column").fit(FRAME)


def test_a_table_of_any_kind_is_fitted_completed_and_drawn(mixed, tmp_path):
    # a normal law and the shares of what was seen, by which independent columns are best described
    height = FRAME["height"].to_numpy()
    alone = stats.norm.logpdf(height, height.mean(), height.std()).mean() - sum(
        stats.entropy(FRAME[name].value_counts()["count"]) for name in ("place", "visits", "open")
    )
    assert mixed.score(FRAME) > alone + 1
    assert mixed.column_roles(4).mass.tolist() == [True, False, True, True]
    drawn = mixed.sample(40, random_state=0)
    assert drawn.schema == FRAME.schema
    # what is missing is what goes with the rest
    holes = FRAME.with_columns(place=None, height=pl.when(pl.Series(SIDE)).then(None).otherwise("height"))
    filled = mixed.impute(holes)
    assert (filled["place"] == FRAME["place"]).mean() > 0.9
    assert (filled["height"].to_numpy()[SIDE] > 1).mean() > 0.9
    assert (filled["visits"] == FRAME["visits"]).all()
    # a label that is missing is a sum over labels
    row = holes[:4].with_columns(height=FRAME["height"][:4])
    each = [
        mixed.score_samples(row.with_columns(place=pl.Series([name] * 4, dtype=pl.Categorical)))
        for name in ("north", "south")
    ]
    np.testing.assert_allclose(logsumexp(each, axis=0), mixed.score_samples(row), atol=0.3)
    mixed.save(tmp_path / "vae.safetensors")
    again = fe.load(tmp_path / "vae.safetensors")
    np.testing.assert_array_equal(again.score_samples(FRAME), mixed.score_samples(FRAME))
    np.testing.assert_array_equal(again.active_, mixed.active_)


def test_codes_of_a_fit_are_reported(mixed):
    report = mixed.code_report(FRAME)
    assert report.active.any()
    assert report.information > 0.4
    assert report.rate == pytest.approx(report.information + report.aggregate_gap, rel=1e-9)
    assert any("of the code" in note for note in mixed.summary().notes)
    # independent noise has nothing to be told
    noise = SMALL("by column", objective=FreeEnergy(beta=20.0)).fit(FRAME)
    assert noise.code_report(FRAME).collapsed
    assert "The posterior has collapsed: none of the 2 entries" in str(noise.summary())


def test_a_scale_that_depends_on_the_code_and_grey_values():
    rng, spread = np.random.default_rng(1), np.where(SIDE, 0.1, 3.0)
    rows = np.column_stack([SIDE + 0.1 * rng.normal(size=128), spread * rng.normal(size=128)])
    fixed, moving = (SMALL(link=link).fit(rows).score(rows) for link in (None, Free()))
    assert moving > fixed + 0.3
    grey = np.rint(np.clip(8 + 4 * rng.normal(size=(128, 2)), 0, 15))
    model = SMALL(DiscretisedLogistics).fit(grey)
    assert model.column_roles(2).whole.all()
    assert np.isin(model.sample(50, random_state=0), np.arange(16)).all()
    assert model.score(grey) > -2 * np.log(16)


def test_clusters_are_components_of_the_prior():
    model = SMALL("by column", prior=m.MixturePrior(2)).fit(FRAME)
    labels = model.predict(FRAME)
    assert max((labels == SIDE).mean(), (labels != SIDE).mean()) > 0.95
    chances = model.predict_proba(FRAME)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-9)
    with pytest.raises(AttributeError):
        SMALL().predict(FRAME)


def test_wrong_parts_of_a_vae_are_refused():
    for options, words in [
        (
            {"prior": m.BitsPrior()},
            "must be about codes that the recognition recognises, such as NormalPrior",
        ),
        ({"recognition": "full"}, "The 'recognition' parameter of VAE must be"),
        ({"objective": 3}, "The 'objective' parameter of VAE must be an objective of freeenergy.learning"),
        ({"emission": "by row"}, "a Given or 'by column'. Got 'by row' instead"),
    ]:
        with pytest.raises(ValueError, match=words):
            SMALL(**options).fit(np.zeros((20, 2)))
