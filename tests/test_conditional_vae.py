"""Regression with a continuous hidden cause: beside closed forms and quadrature."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.models import ConditionalVAE, GaussianEncoder, StandardNormal, mlp_conditional_vae
from freeenergy.nn import MLP, Linear
from freeenergy.testing import check_laws

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
Y = 50 + X[:, 0] + RNG.exponential(size=120)
SMALL = {"width": 8, "max_iter": 60, "batch_size": 64, "judged_rows": 0, "random_state": 0}


def linear(weight, bias):
    return MLP((Linear(jnp.asarray(weight, float), jnp.asarray(bias, float)),))


def scored(model, rows, answers):
    """log p(y | x) by the laws of the estimator, around a model that is written down."""
    estimator = fe.ConditionalVAE(model.prior.dim, importance_samples=2048, **SMALL).fit(X, Y)
    estimator.model_ = model
    laws = dataclasses.replace(
        estimator._laws(rows), rows=rows, scaling=fe.shell.Scaling.identity(answers.shape[1])
    )
    return dataclasses.replace(laws, shape_of_one=answers.shape[1:]).scored(answers)


def test_a_linear_decoder_is_a_normal_law_in_closed_form():
    # μ = W x + A z + b: y | x ~ N(W x + b, A Aᵀ + σ²)
    W, A, b, noise = [[1.0, -0.5], [0.3, 2.0]], [[1.5, 0.7]], [0.2, -1.0], np.array([0.3, 0.5])
    answer = d.Given(d.Gaussian(jnp.zeros(2), d.Diagonal(jnp.asarray(noise))), d.Mean())
    # the encoder is rough on purpose
    encoder = GaussianEncoder(linear(np.full((4, 2), 0.1), [0.0, -0.5]))
    model = ConditionalVAE(encoder, linear(W + A, b), answer, StandardNormal(1))
    law = stats.multivariate_normal(np.zeros(2), np.transpose(A) @ A + np.diag(noise))
    y = X @ W + b + law.rvs(120, random_state=1)
    best = law.logpdf(y - (X @ W + b))
    nats, stderr = scored(model, X, y)
    assert stderr.max() < 0.05
    assert (np.abs(nats - best) < 5 * stderr + 1e-4).all()
    assert np.abs(nats - best).mean() < 0.01
    # the bound of one draw is below it on average
    bounds = _bounds(model, X, y, jax.random.split(jax.random.key(0), 64))
    assert (bounds.mean(axis=0) < best + 4 * bounds.std(axis=0) / 8).all()


@eqx.filter_jit
def _bounds(model, x, y, keys):
    one = jax.vmap(lambda row, answer, key: model.bound((row, answer), key=key), (0, 0, None))
    return jax.vmap(lambda key: one(x, y, key))(keys)


@pytest.fixture(scope="module")
def fitted():
    return fe.ConditionalVAE(**SMALL).fit(X, Y)


def test_evidence_with_one_cause_is_that_of_quadrature(fitted):
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    z, model = fitted.scaling_.apply(X), fitted.model_
    answers = fitted.answer_scaling_.apply(Y[:, None])

    @eqx.filter_jit
    def energies(model, x, y, nodes):
        each = jax.vmap(lambda row, answer, code: model.energy((row, answer), code[None]), (None, None, 0))
        return jax.vmap(each, (0, 0, None))(x, y, nodes)

    # the energy has that of the prior in it, which is in the weights already
    logs = -np.asarray(energies(model, z, answers, nodes)) + nodes**2 / 2
    best = np.log(np.exp(logs) @ weights) - np.log(fitted.answer_scaling_.scale[0])
    found = fitted.evidence(X, Y)
    assert found.kind is fe.Kind.LOWER
    assert (np.abs(found.nats - best) < 5 * found.stderr + 2e-3).all()
    assert found.stderr.max() < 0.05


def test_its_laws_and_the_shape_of_the_noise(fitted):
    law = fitted.predict_density(X)
    check_laws(law, samples=200)
    one = law.take(np.array([0]))
    grid = np.linspace(one.quantile(1e-6)[0] - 1, one.quantile(1 - 1e-6)[0] + 1, 2000)
    density = np.exp(law.take(np.zeros(2000, int)).log_prob(grid))
    # as near to one as draws of the code make it
    whole = integrate.trapezoid(density, grid)
    assert whole == pytest.approx(1.0, abs=5e-3)
    density /= whole
    mean = integrate.trapezoid(density * grid, grid)
    assert one.mean()[0] == pytest.approx(mean, abs=0.02)
    spread = integrate.trapezoid(density * (grid - mean) ** 2, grid)
    assert one.variance()[0] == pytest.approx(spread, rel=0.05)


def test_a_cause_makes_two_outputs_depend_on_each_other():
    shared = np.random.default_rng(3).normal(size=(120, 1))
    pair = X @ [[1.0, 0.0], [0.0, 2.0]] + shared + 0.3 * np.random.default_rng(4).normal(size=(120, 2))
    slow = {**SMALL, "max_iter": 150}
    joint = fe.ConditionalVAE(1, **slow).fit(X, pair)
    apart = fe.MixtureDensity(1, **slow).fit(X, pair)
    assert joint.evidence(X, pair).nats.mean() > apart.evidence(X, pair).nats.mean() + 0.4
    law = joint.predict_density(X[:3])
    draws = law.sample(2000, np.random.default_rng(0))
    assert np.corrcoef(draws[:, 0].T)[0, 1] > 0.5
    # an output that is not known is left out
    half = np.array([[pair[0, 0], np.nan]] * 3)
    grid = np.linspace(-15, 15, 1200)
    both = np.column_stack([np.full(1200, pair[0, 0]), grid])
    whole = np.exp(joint.predict_density(X[:1]).take(np.zeros(1200, int)).log_prob(both))
    assert np.log(integrate.trapezoid(whole, grid)) == pytest.approx(law.log_prob(half)[0], abs=0.05)


def test_counts_have_more_spread_than_poisson_ones():
    rate = np.exp(1 + 0.5 * X[:, 0] + 0.8 * np.random.default_rng(5).normal(size=120))
    y = np.random.default_rng(6).poisson(rate).astype(float)
    model = fe.ConditionalVAE(1, d.Poisson, **{**SMALL, "depth": 0, "max_iter": 300}).fit(X, y)
    plain = fe.GeneralisedLinearModel(d.Poisson).fit(X, y)
    assert model.evidence(X, y).nats.mean() > plain.evidence(X, y).nats.mean() + 0.1
    law = model.predict_density(X)
    assert law.discrete
    assert (law.variance() > law.mean()).all()
    # the density averages draws of the code given the answer, the distribution function draws of its prior
    one, counts = law.take(np.zeros(400, int)), np.arange(400.0)
    np.testing.assert_allclose(np.exp(one.log_prob(counts)).cumsum(), one.cdf(counts), atol=5e-3)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"'latent_dim' parameter of ConditionalVAE must be an int"):
        fe.ConditionalVAE(0).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"'importance_samples' parameter of ConditionalVAE must be an int"
    ):
        fe.ConditionalVAE(importance_samples=3).fit(X, Y)
    with pytest.raises(ValueError, match=r"'family' parameter of ConditionalVAE must be a family of"):
        fe.ConditionalVAE(1, "gaussian").fit(X, Y)


def test_a_start_of_any_type():
    answer = d.Given(d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.ones(1))), d.Mean())
    start = eqx.filter_jit(mlp_conditional_vae)(
        2, 1, 3, width=4, depth=1, answer=answer, dtype=float, key=jax.random.key(0)
    )
    assert start.latent((np.zeros(2), np.zeros(1))).shape == (3,)
