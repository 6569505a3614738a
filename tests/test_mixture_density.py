"""Mixture-density networks: beside the truth, quadrature and the numbers of the notes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.base import clone

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.estimators.labelled._conformal import least_levels
from freeenergy.evaluation import Laws
from freeenergy.learning import Batch, negative_conditional_log_likelihood
from freeenergy.models import Affine, Components, Conditional

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
SIDE = np.where(RNG.random(120) < 0.5, -1.0, 1.0)
Y = 100 + SIDE * (3 + X[:, 0]) + 0.3 * RNG.normal(size=120)
SMALL = {"width": 8, "max_iter": 60, "batch_size": 64, "judged_rows": 0, "random_state": 0}


def truth(x, y):
    shift = 3 + x[:, 0]
    return np.logaddexp(*(np.log(0.5) + stats.norm(100 + s * shift, 0.3).logpdf(y) for s in (-1, 1)))


@pytest.fixture(scope="module")
def fitted():
    return fe.MixtureDensity(2, **SMALL).fit(X, Y)


def test_two_humps_are_found(fitted):
    new = np.random.default_rng(1).normal(size=(100, 2))
    side = np.where(np.arange(100) % 2, -1.0, 1.0)
    y = 100 + side * (3 + new[:, 0]) + 0.3 * np.random.default_rng(2).normal(size=100)
    own, best = fitted.evidence(new, y), truth(new, y)
    assert own.kind is fe.Kind.EXACT
    assert best.mean() - own.nats.mean() < 1.0
    assert fe.LinearRegression().fit(X, Y).evidence(new, y).nats.mean() < own.nats.mean() - 0.5
    modes = fitted.predict_density([[0.0, 0.0]]).modes()[0]
    np.testing.assert_allclose(np.sort(modes), [97.0, 103.0], atol=0.4)
    (pieces,) = fitted.predict_density([[0.0, 0.0]]).highest_density(0.9)
    assert len(pieces) == 2
    # the mean is where no answer is
    assert not any(a <= fitted.predict([[0.0, 0.0]])[0] <= b for a, b in pieces)


def test_its_density_integrates_to_one_in_the_units_of_the_data(fitted):
    law = fitted.predict_density(X[:1])
    total = integrate.quad(lambda t: float(np.exp(law.log_prob(np.array([t]))[0])), 80, 120, limit=400)[0]
    assert total == pytest.approx(1.0, abs=1e-6)
    other = fe.MixtureDensity(2, **SMALL).fit(X * [1e3, 1e-3], 1000 * Y - 7)
    moved = other.evidence(X * [1e3, 1e-3], 1000 * Y - 7).nats
    np.testing.assert_allclose(moved, fitted.evidence(X, Y).nats - np.log(1000), atol=2e-3)


def test_the_objective_of_the_history_is_that_of_the_model(fitted):
    model = fitted.model_
    z = fitted.scaling_.apply(X)
    answers = fitted.answer_scaling_.apply(Y[:, None])
    batch = Batch((z, answers), np.full(len(z), 1 / len(z)))
    loss = float(eqx.filter_jit(negative_conditional_log_likelihood)(model, batch, None))
    nats = fitted.evidence(X, Y).nats.mean() + np.log(fitted.answer_scaling_.scale[0])
    assert loss == pytest.approx(-nats, abs=1e-9)


def test_the_numbers_of_the_notes_for_two_components():
    # cho D3: components at ±1 with σ = ½; D4: at the data ±1 one component loses half a nat
    network = Affine(jnp.zeros((4, 1)), jnp.array([0.0, 0.0, -1.0, 1.0]))
    normal = d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.full(1, 0.25)))
    model = Conditional(network, d.Given(normal, Components(2, d.Mean())))
    x = np.zeros(1)
    found = -_log_prob(model, np.array([[0.0], [1.0]]), np.zeros((2, 1)))
    np.testing.assert_allclose(found, [2.2257913526, 0.9186031268], atol=1e-9)
    one = Conditional(
        Affine(jnp.zeros((1, 1)), jnp.zeros(1)),
        d.Given(d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.ones(1))), d.Mean()),
    )
    assert -_log_prob(one, np.ones((1, 1)), np.zeros((1, 1)))[0] == pytest.approx(1.4189385, abs=1e-7)
    # the posterior is a mixture with the same density
    law = eqx.filter_jit(lambda m, row, y: m.posterior(row).log_prob(y))(model, x, np.ones(1))
    assert float(law) == pytest.approx(-0.9186031268, abs=1e-9)


@eqx.filter_jit
def _log_prob(model, y, x):
    return jax.vmap(lambda a, b: model.log_prob_of(a, b))(y, x)


@pytest.mark.parametrize(
    ("family", "law"),
    [
        pytest.param(d.StudentT, lambda: stats.norm(2 * X[:, 0] + 50, 1.0), marks=pytest.mark.slow),
        (d.Laplace, lambda: stats.norm(2 * X[:, 0] + 50, 1.0)),
        (d.Poisson, lambda: stats.poisson(np.exp(1 + 0.5 * X[:, 0]))),
        (d.NegativeBinomial, lambda: stats.poisson(np.exp(1 + 0.5 * X[:, 0]))),
        (d.Gamma, lambda: stats.gamma(2.0, 0.0, np.exp(0.5 * X[:, 0]))),
        (d.Bernoulli, lambda: stats.bernoulli(1 / (1 + np.exp(-2 * X[:, 0])))),
    ],
)
def test_other_families(family, law):
    y = law().rvs(random_state=1).astype(float)
    model = fe.MixtureDensity(1, family, depth=0, **{**SMALL, "max_iter": 150}).fit(X, y)
    own, best = model.evidence(X, y).nats, law()
    best = best.logpmf(y) if hasattr(best.dist, "logpmf") else best.logpdf(y)
    assert own.mean() > best.mean() - 0.15
    # the laws on the host are those of the model
    z, answers = model.scaling_.apply(X), model.answer_scaling_.apply(y[:, None])
    inside = _log_prob(model.model_, answers, z)
    np.testing.assert_allclose(own, inside - np.log(model.answer_scaling_.scale[0]), atol=1e-8)


def test_intervals_of_counts_held_as_many_left_out():
    rng = np.random.default_rng(5)
    x, shares = rng.normal(size=(60, 1)), []
    y = rng.poisson(np.exp(1 + 0.3 * x[:, 0])).astype(float)
    model = fe.MixtureDensity(1, d.Poisson, depth=0, **{**SMALL, "judged_rows": 60}).fit(x, y)
    law = model.predict_density(x)
    for level, rank in ((0.9, 55), (0.5, 31)):
        found = np.sort(model.fold_levels_)[rank - 1]
        low, high = model.predict_interval(x, level)
        # the fewest counts whose ends have more than (1 − level)/2 on each side of them
        tail = (1 - found) / 2 - 1e-9
        np.testing.assert_array_equal(low, stats.poisson(law.mean()).ppf(tail))
        np.testing.assert_array_equal(high, stats.poisson(law.mean()).ppf(1 - tail))
        shares.append(np.mean((low <= y) & (y <= high)))
    assert shares[0] >= 0.85
    assert shares[1] >= 0.5


def test_the_least_level_of_a_count_is_where_its_interval_begins():
    rates, y = np.repeat([0.3, 4.0, 40.0], 30), np.tile(np.arange(30.0), 3)
    law = Laws(stats.poisson(rates))
    found = least_levels(law, y)
    for part in (found > 0) & (found < 1 - 1e-9), found == 0:
        assert part.any()
    for level, holds in ((found + 1e-9, True), (found - 1e-9, False)):
        own = (level > 0) & (level < 1 - 1e-7) & ((found > 0) | holds)
        low, high = (stats.poisson(rates[own]).ppf(0.5 + side * level[own] / 2) for side in (-1, 1))
        assert (((low <= y[own]) & (y[own] <= high)) == holds).all()


def test_several_outputs_may_depend_on_each_other():
    noise = np.random.default_rng(3).normal(size=(120, 1))
    pair = X @ [[1.0, 0.0], [0.0, 2.0]] + noise + 0.2 * np.random.default_rng(4).normal(size=(120, 2))
    apart = fe.MixtureDensity(1, depth=0, **{**SMALL, "max_iter": 150}).fit(X, pair)
    joint = fe.MixtureDensity(1, d.Gaussian, depth=0, **{**SMALL, "max_iter": 150}).fit(X, pair)
    assert joint.predict(X).shape == (120, 2)
    assert joint.evidence(X, pair).nats.mean() > apart.evidence(X, pair).nats.mean() + 0.5
    half = pair.copy()
    half[:, 1] = np.nan
    law = joint.predict_density(X)
    np.testing.assert_allclose(
        law.log_prob(half),
        [law.take(np.array([i])).by_part("log_prob", half[i : i + 1])[0, 0] for i in range(120)],
        atol=1e-9,
    )


def test_a_shared_variance_is_a_link():
    given = d.Given(d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.ones(1))), d.Mean())
    model = fe.MixtureDensity(2, given, **SMALL).fit(X, Y)
    law = model.predict_density(X)
    spreads = law.by_part("std")
    np.testing.assert_allclose(spreads, spreads[0, 0], rtol=1e-8)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"'family' parameter of MixtureDensity must be a family of"):
        fe.MixtureDensity(2, "gaussian").fit(X, Y)
    with pytest.raises(ValueError, match="'family' parameter of MixtureDensity must be a family of"):
        fe.MixtureDensity(2, d.Dirichlet).fit(X, Y)
    with pytest.raises(ValueError, match=r"with the family Poisson must be in Counts. Got -1 instead"):
        fe.MixtureDensity(2, d.Poisson).fit(X, np.full(120, -1.0))
    with pytest.raises(ValueError, match=r"'n_components' parameter of MixtureDensity must be an int"):
        fe.MixtureDensity(0).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"'depth' parameter of MixtureDensity must be an int in the range \[0, inf\)"
    ):
        fe.MixtureDensity(depth=-1).fit(X, Y)
    two = d.Gaussian(jnp.zeros(2), d.Full(jnp.eye(2)))
    with pytest.raises(ValueError, match=r"must describe the 1 outputs of y. Got one of 2 instead"):
        fe.MixtureDensity(2, two).fit(X, Y)


def test_files_weights_and_missing_entries(fitted, tmp_path):
    fitted.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.evidence(X, Y).nats, fitted.evidence(X, Y).nats)
    weight = np.arange(120) % 3
    weighted = clone(fitted).fit(X, Y, sample_weight=weight)
    repeated = clone(fitted).fit(np.repeat(X, weight, axis=0)[::-1], np.repeat(Y, weight)[::-1])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-12)
    holes = X.copy()
    holes[::3, 0] = np.nan
    found = clone(fitted).fit(holes, Y).evidence(holes, Y)
    assert found.kind is fe.Kind.ESTIMATE
    assert np.isfinite(found.nats).all()
    assert (found.stderr[::3] > 0).all()
