"""Conditional families against SciPy, generalised linear models, and VAEs whose code is integrated out."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import expit, logsumexp, softmax

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy._core import learnable, parameter_count, unconstrain
from freeenergy.inference import importance_log_weights
from freeenergy.models import mlp_vae

KEY = jax.random.key(0)
OUTPUT = np.array([0.4, -0.7, 0.1])
HALF, ONES = jnp.full(3, 0.5), jnp.ones(3)
TRIALS = (2, 3, 9)


def flat(member):
    return np.asarray(ravel_pytree(eqx.filter(unconstrain(member), learnable(member)))[0])


def to(member, target):
    """The output of `Free` that leads from `member` to `target`."""
    return flat(target) - flat(member)


def labels_at(output):
    """Probabilities of three labels, of which the last has no natural parameter."""
    return softmax(np.append(output.reshape(-1, 2), np.zeros((len(output) // 2, 1)), axis=1), axis=1)


WIDE = d.Gaussian(jnp.zeros(3), d.Diagonal(jnp.array([0.5, 1.0, 2.0])))
NARROW = d.Gaussian(jnp.array([0.5, 0.0, -1.0]), d.Diagonal(jnp.array([0.1, 3.0, 0.7])))
HEAVY = d.StudentT(jnp.array([0.3, 0.0, 1.0]), jnp.array([0.2, 1.0, 2.0]), jnp.array([3.0, 5.0, 1.5]))
SHAPED = d.Gamma(jnp.array([0.5, 2.0, 7.0]), jnp.array([1.0, 0.3, 4.0]))
BENT = d.Beta(jnp.array([0.5, 2.0, 7.0]), jnp.array([1.0, 0.3, 4.0]))

# name: (member, link, output, event, the law of the event according to SciPy)
TABLE = {
    "Bernoulli-natural": (
        d.Bernoulli(HALF),
        d.Natural(),
        OUTPUT,
        [1.0, 0.0, 1.0],
        stats.bernoulli(expit(OUTPUT)),
    ),
    "Bernoulli-mean": (
        d.Bernoulli(HALF),
        d.Mean(jax.nn.sigmoid),
        OUTPUT,
        [1.0, 0.0, 1.0],
        stats.bernoulli(expit(OUTPUT)),
    ),
    "Binomial-natural": (
        d.Binomial(HALF, TRIALS),
        d.Natural(),
        OUTPUT,
        [1.0, 0.0, 7.0],
        stats.binom(TRIALS, expit(OUTPUT)),
    ),
    "Binomial-mean": (
        d.Binomial(HALF, TRIALS),
        d.Mean(),
        np.array([0.5, 2.0, 3.0]),
        [1.0, 0.0, 7.0],
        stats.binom(TRIALS, np.array([0.25, 2 / 3, 1 / 3])),
    ),
    "Poisson-natural": (
        d.Poisson(ONES),
        d.Natural(),
        OUTPUT,
        [1.0, 0.0, 7.0],
        stats.poisson(np.exp(OUTPUT)),
    ),
    "Poisson-mean": (
        d.Poisson(ONES),
        d.Mean(jax.nn.softplus),
        OUTPUT,
        [1.0, 0.0, 7.0],
        stats.poisson(np.logaddexp(0, OUTPUT)),
    ),
    "Exponential-natural": (
        d.Exponential(ONES),
        d.Natural(),
        -np.exp(OUTPUT),
        [0.1, 3.0, 1.0],
        stats.expon(scale=np.exp(-OUTPUT)),
    ),
    "Exponential-mean": (
        d.Exponential(ONES),
        d.Mean(jnp.exp),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.expon(scale=np.exp(OUTPUT)),
    ),
    "Gamma-natural": (
        d.Gamma(ONES, ONES),
        d.Natural(),
        np.array([-0.5, -1.0, 1.0, -0.3, 6.0, -4.0]),
        [0.1, 3.0, 1.0],
        stats.gamma(np.asarray(SHAPED.shape), scale=1 / np.asarray(SHAPED.rate)),
    ),
    "Gamma-mean": (
        SHAPED,
        d.Mean(jnp.exp),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.gamma(np.asarray(SHAPED.shape), scale=np.exp(OUTPUT) / np.asarray(SHAPED.shape)),
    ),
    "Gamma-free": (
        d.Gamma(ONES, ONES),
        d.Free(),
        to(d.Gamma(ONES, ONES), SHAPED),
        [0.1, 3.0, 1.0],
        stats.gamma(np.asarray(SHAPED.shape), scale=1 / np.asarray(SHAPED.rate)),
    ),
    "Beta-free": (
        d.Beta(ONES, ONES),
        d.Free(),
        to(d.Beta(ONES, ONES), BENT),
        [0.1, 0.3, 0.9],
        stats.beta(np.asarray(BENT.alpha), np.asarray(BENT.beta)),
    ),
    "Gaussian-mean": (
        WIDE,
        d.Mean(),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.norm(OUTPUT, np.sqrt([0.5, 1.0, 2.0])),
    ),
    "Gaussian-spherical-mean": (
        d.Gaussian(jnp.zeros(3), d.Spherical(jnp.array(0.5), dim=3)),
        d.Mean(),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.norm(OUTPUT, np.sqrt(0.5)),
    ),
    "Gaussian-natural": (
        WIDE,
        d.Natural(),
        np.concatenate([OUTPUT, [-0.5, -1.0, -2.0]]),
        [0.1, 3.0, 1.0],
        stats.norm(OUTPUT / [1.0, 2.0, 4.0], np.sqrt([1.0, 0.5, 0.25])),
    ),
    "Gaussian-free": (
        WIDE,
        d.Free(),
        to(WIDE, NARROW),
        [0.1, 3.0, 1.0],
        stats.norm([0.5, 0.0, -1.0], np.sqrt([0.1, 3.0, 0.7])),
    ),
    "GaussianLocation-natural": (
        d.GaussianLocation(jnp.zeros(3), 0.25),
        d.Natural(),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.norm(0.25 * OUTPUT, 0.5),
    ),
    "GaussianLocation-mean": (
        d.GaussianLocation(jnp.zeros(3), 0.25),
        d.Mean(),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.norm(OUTPUT, 0.5),
    ),
    "Laplace-mean": (
        d.Laplace(jnp.zeros(3), 2 * ONES),
        d.Mean(),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.laplace(OUTPUT, 2),
    ),
    "Logistic-mean": (
        d.Logistic(jnp.zeros(3), 2 * ONES),
        d.Mean(),
        OUTPUT,
        [0.1, 3.0, 1.0],
        stats.logistic(OUTPUT, 2),
    ),
    "StudentT-free": (
        d.StudentT(jnp.zeros(3), ONES, 4 * ONES),
        d.Free(),
        to(d.StudentT(jnp.zeros(3), ONES, 4 * ONES), HEAVY),
        [0.1, 3.0, 1.0],
        stats.t(np.asarray(HEAVY.df), np.asarray(HEAVY.loc), np.asarray(HEAVY.scale)),
    ),
}


@eqx.filter_jit
def answers(given, output, x):
    return given.log_prob(output, x), given.at(output).log_prob(x), given.mean(output)


@pytest.mark.parametrize("name", TABLE)
def test_every_family_and_link_is_the_law_of_scipy(name):
    member, link, output, x, law = TABLE[name]
    given = d.Given(member, link)
    assert given.size == len(output)
    assert given.dim == 3
    terms = (law.logpmf if hasattr(law.dist, "pmf") else law.logpdf)(np.array(x))
    value, through_member, mean = answers(given, jnp.asarray(output), jnp.asarray(x))
    np.testing.assert_allclose(value, terms.sum(), rtol=1e-9)
    np.testing.assert_allclose(through_member, terms.sum(), rtol=1e-9)
    holes = answers(given, jnp.asarray(output), jnp.asarray([x[0], np.nan, x[2]]))[0]
    np.testing.assert_allclose(holes, terms[0] + terms[2], rtol=1e-9)
    expected = np.asarray(HEAVY.loc) if name == "StudentT-free" else law.mean()
    np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", TABLE)
def test_slopes_are_those_of_differences(name):
    member, link, output, x, _ = TABLE[name]
    given = d.Given(member, link)
    value = eqx.filter_jit(lambda o: given.log_prob(o, jnp.asarray(x)))
    slope = np.asarray(jax.jit(jax.grad(value))(jnp.asarray(output)))
    step = 1e-6
    for i in range(len(output)):
        move = step * (np.arange(len(output)) == i)
        difference = (float(value(output + move)) - float(value(output - move))) / (2 * step)
        assert slope[i] == pytest.approx(difference, rel=1e-5, abs=1e-7)


def test_labels_and_counts_of_a_total_are_those_of_scipy():
    output = np.array([0.4, -0.7, 0.1, 1.3])
    p = labels_at(output)
    labels = d.Given(d.Categorical(jnp.full((2, 3), 1 / 3)))
    assert labels.size == 4
    log_prob = eqx.filter_jit(lambda given, o, x: given.log_prob(o, x))
    for x in ([0.0, 2.0], [1.0, 1.0], [2.0, 0.0]):
        expected = np.log(p[0, int(x[0])]) + np.log(p[1, int(x[1])])
        np.testing.assert_allclose(log_prob(labels, output, np.array(x)), expected, rtol=1e-12)
    np.testing.assert_allclose(log_prob(labels, output, np.array([1.0, np.nan])), np.log(p[0, 1]))
    assert log_prob(labels, output, np.array([1.0, 3.0])) == -np.inf
    n = 20_000
    draws = np.asarray(
        jax.jit(jax.vmap(lambda k: labels.sample(jnp.asarray(output), key=k)))(jax.random.split(KEY, n))
    )
    assert stats.chisquare(np.bincount(draws[:, 0].astype(int), minlength=3), n * p[0]).pvalue > 1e-4
    counts = d.Given(d.Multinomial(jnp.full(3, 1 / 3), 5), d.Natural())
    law = stats.multinomial(5, p[0])
    value = log_prob(counts, output[:2], np.array([1.0, 3.0, 1.0]))
    np.testing.assert_allclose(value, law.logpmf([1, 3, 1]), rtol=1e-12)
    lumped = log_prob(counts, output[:2], np.array([1.0, np.nan, np.nan]))
    np.testing.assert_allclose(lumped, stats.binom(5, p[0, 0]).logpmf(1), rtol=1e-12)


@eqx.filter_jit
def extremes(given, output, x):
    both = jax.value_and_grad(given.log_prob)(output, x)
    return both, given.mean(output), given.sample(output, key=KEY)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_natural_parameters_of_any_size_are_right_in_value_and_slope(dtype):
    far = jnp.asarray([-800.0, 800.0], dtype)
    bits, tries = jnp.asarray([1.0, 0.0], dtype), jnp.asarray([4.0, 1.0], dtype)
    three = jnp.asarray([1, 1, 0], dtype)
    # member, output, event, log p, its slope
    table = [
        (d.Bernoulli(jnp.full(2, 0.5, dtype)), far, bits, -1600.0, [1.0, -1.0]),
        (d.Bernoulli(jnp.full(2, 0.5, dtype)), far, 1 - bits, 0.0, [0.0, 0.0]),
        (d.Binomial(jnp.full(2, 0.5, dtype), 4), far, tries, -5600 + np.log(4), [4.0, -3.0]),
        (d.Poisson(jnp.ones(2, dtype)), -jnp.abs(far), bits, -800.0, [1.0, 0.0]),
        (d.Categorical(jnp.full((1, 3), 1 / 3, dtype)), far, bits[:1], 0.0, [0.0, 0.0]),
        (d.Categorical(jnp.full((1, 3), 1 / 3, dtype)), far, bits[1:], -1600.0, [1.0, -1.0]),
        (
            d.Multinomial(jnp.full(3, 1 / 3, dtype), 2),
            far,
            three,
            -1600 + np.log(2),
            [1, -1],
        ),
    ]
    for member, output, x, value, slope in table:
        given = d.Given(member, d.Natural())
        (found, found_slope), mean, draw = extremes(given, output, x)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found_slope, slope, atol=1e-6)
        assert np.isfinite(np.asarray(mean)).all()
        assert np.isfinite(np.asarray(draw)).all()


def test_what_the_output_does_not_set_is_learned_and_nothing_else():
    counts = {
        "Bernoulli-natural": 0,
        "Gaussian-mean": 3,
        "Gaussian-spherical-mean": 1,
        "Gaussian-free": 0,
        "Gamma-mean": 3,
        "StudentT-free": 0,
        "Laplace-mean": 3,
    }
    for name, count in counts.items():
        member, link, *_ = TABLE[name]
        given = d.Given(member, link)
        assert parameter_count(given) == count, name
        for one, two in zip(jax.tree.leaves(given.member), jax.tree.leaves(member), strict=True):
            assert one is two
    heavy = d.Given(HEAVY, d.Mean())
    assert parameter_count(heavy) == 6
    assert heavy.learned.loc is None
    assert heavy.fixed.scale is None


def test_free_begins_at_the_member():
    for name in ("Gamma-free", "Beta-free", "Gaussian-free", "StudentT-free"):
        member = TABLE[name][0]
        given = d.Given(member, d.Free())
        found = given.at(jnp.zeros(given.size))
        for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(member), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12)
    dense = d.Given(d.Gaussian(jnp.zeros(2), d.Full(jnp.array([[2.0, 0.5], [0.5, 1.0]]))), d.Free())
    np.testing.assert_allclose(
        dense.at(jnp.zeros(dense.size)).covariance.matrix(), [[2.0, 0.5], [0.5, 1.0]]
    )


def test_coordinates_that_depend_on_each_other_are_integrated_out():
    sigma = np.array([[2.0, 0.5], [0.5, 1.0]])
    given = d.Given(d.Gaussian(jnp.zeros(2), d.Full(jnp.asarray(sigma))))
    output = np.array([0.3, -1.0])
    value, _, mean = answers(given, output, np.array([1.0, np.nan]))
    assert float(value) == pytest.approx(stats.norm(0.3, np.sqrt(2)).logpdf(1.0), rel=1e-12)
    np.testing.assert_allclose(mean, output)


def test_parts_of_a_product_have_links_of_their_own():
    parts = (
        d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.ones(1))),
        d.Poisson(jnp.ones(1)),
        d.Gamma(jnp.ones(1), jnp.ones(1)),
    )
    mixed = d.Product(parts, sizes=(1, 1, 1))
    given = d.Given(mixed)
    assert [type(link) for link in given.link.links] == [d.Mean, d.Natural, d.Free]
    assert (given.size, given.dim, parameter_count(given)) == (4, 3, 1)
    assert given.unit_free_columns(3).tolist() == [True, False, False]
    output, x = np.array([0.5, 1.0, 0.0, 0.0]), np.array([0.0, 2.0, 3.0])
    terms = [stats.norm(0.5).logpdf(0), stats.poisson(np.e).logpmf(2), stats.expon.logpdf(3)]
    value, through_member, mean = answers(given, output, x)
    assert float(value) == pytest.approx(sum(terms), rel=1e-12)
    assert float(through_member) == pytest.approx(sum(terms), rel=1e-12)
    holes = answers(given, output, np.array([0.0, np.nan, 3.0]))[0]
    assert float(holes) == pytest.approx(terms[0] + terms[2], rel=1e-12)
    np.testing.assert_allclose(mean, [0.5, np.e, 1.0], rtol=1e-12)
    # one link for all parts
    natural = d.Given(d.Product((parts[1], d.Bernoulli(HALF[:2])), sizes=(1, 2)), d.Natural())
    value = answers(natural, np.array([1.0, 800.0, 0.0]), np.array([2.0, 0.0, np.nan]))[0]
    assert float(value) == pytest.approx(terms[1] - 800, rel=1e-12)
    assert d.with_mean(mixed, jnp.array([1.0, 2.0, 4.0])).parts[2].rate.tolist() == [0.25]


def test_what_a_family_lacks_is_said():
    with pytest.raises(TypeError, match="StudentT is no exponential family"):
        d.Given(HEAVY, d.Natural())
    with pytest.raises(TypeError, match="Beta has no mean that could be set alone"):
        d.Given(BENT, d.Mean())


# ---------------------------------------------------------------------------------------------
# generalised linear models
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "mean"),
    [
        (d.Poisson(jnp.ones(1)), np.exp),
        (d.Bernoulli(jnp.full(1, 0.5)), expit),
        (d.Binomial(jnp.full(1, 0.5), 4), lambda eta: 4 * expit(eta)),
        (d.GaussianLocation(jnp.zeros(1)), lambda eta: eta),
    ],
    ids=lambda case: type(case).__name__,
)
def test_the_slope_of_a_canonical_regression_is_what_its_residuals_project_to(member, mean):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(8, 3)), rng.normal(size=3)
    y = rng.integers(0, 2, 8).astype(float)
    given = d.Given(member, d.Natural())

    def log_likelihood(w):
        return jnp.sum(jax.vmap(lambda u, v: given.log_prob((u @ w)[None], v[None]))(X, y))

    slope = jax.jit(jax.grad(log_likelihood))(jnp.asarray(weights))
    np.testing.assert_allclose(slope, X.T @ (y - mean(X @ weights)), rtol=1e-10)


# ---------------------------------------------------------------------------------------------
# variational autoencoders
# ---------------------------------------------------------------------------------------------

EMISSIONS = {
    "Poisson": (d.Poisson(jnp.ones(2)), None, [1.0, 4.0]),
    "Categorical": (d.Categorical(jnp.full((2, 3), 1 / 3)), None, [2.0, 0.0]),
    "Binomial": (d.Binomial(jnp.full(2, 0.5), 5), None, [5.0, 2.0]),
    "Gaussian with a variance of z": (
        d.Gaussian(jnp.zeros(2), d.Diagonal(jnp.ones(2))),
        d.Free(),
        [0.3, -1.0],
    ),
    "StudentT": (d.StudentT(jnp.zeros(2), jnp.ones(2), jnp.full(2, 3.0)), d.Free(), [0.3, -4.0]),
    "Product": (
        d.Product((d.Poisson(jnp.ones(1)), d.Laplace(jnp.zeros(1), jnp.ones(1))), sizes=(1, 1)),
        None,
        [2.0, -0.5],
    ),
}


@pytest.mark.parametrize("name", EMISSIONS)
def test_the_bound_of_a_vae_with_any_emission_is_below_log_p(name):
    member, link, row = EMISSIONS[name]
    emission = d.Given(member, link)
    model = mlp_vae(2, 1, width=4, depth=1, emission=emission, dtype=jnp.float64, key=KEY)
    assert model.decoder.layers[-1].bias.shape == (emission.size,)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    x, hole, n = np.array(row), np.array([row[0], np.nan]), 4000

    @eqx.filter_jit
    def run(model, x, key):
        quadrature = jax.vmap(lambda z: model.emission.log_prob(model.decoder(z), x))(
            jnp.asarray(nodes[:, None])
        )
        ratios = importance_log_weights(model.energy, model.recognition, x, samples=n, key=key)
        bounds = jax.vmap(lambda k: model.bound(x, key=k))(jax.random.split(key, n))
        return quadrature, ratios, bounds, model.complete_sample(x, samples=10, key=key)

    for event in (x, hole):
        quadrature, ratios, bounds, filled = map(np.asarray, run(model, event, KEY))
        exact = logsumexp(quadrature, b=weights / weights.sum())
        assert bounds.mean() < exact + 5 * bounds.std() / np.sqrt(n)
        shares = np.exp(ratios - exact)
        assert abs(shares.mean() - 1) < 5 * shares.std() / np.sqrt(n)
    assert filled[0] == row[0]
    assert emission.support.contains(filled[None]).all()


ROWS = np.random.RandomState(0)
COUNTS = ROWS.poisson(np.exp(ROWS.normal([0.0, 1.0], size=(60, 2)))).astype(float)
SMALL = functools.partial(fe.VAE, 1, width=4, max_iter=3, importance_samples=20, random_state=0)


def test_the_vae_takes_families_members_and_given():
    for emission, rows in [
        (d.Categorical, np.minimum(COUNTS, 2)),
        (d.Binomial(jnp.full(2, 0.5), int(COUNTS.max())), COUNTS),
    ]:
        model = SMALL(emission=emission).fit(rows)
        assert (model.scaling_.scale == 1).all()
        assert np.isfinite(model.score_samples(rows)).all()
        holes = np.where([True, False], rows[:4], np.nan)
        filled = model.impute(holes)
        assert (filled == np.rint(filled)).all()
        assert (model.sample(5, random_state=0) % 1 == 0).all()
        assert model.column_roles(2).mass.all()
    moving = d.Given(d.Gaussian(jnp.zeros(2), d.Diagonal(jnp.full(2, 0.5))), d.Free())
    real = ROWS.normal(size=(60, 2)) * [1.0, 100.0] + 7
    model = SMALL(emission=moving).fit(real)
    assert model.scaling_.scale[1] > 50
    assert model.model_.decoder.layers[-1].bias.shape == (4,)
    # another unit of a column moves the evidence by its Jacobian
    other = SMALL(emission=moving).fit(real * [10.0, 1.0])
    np.testing.assert_allclose(
        other.score_samples(real * [10.0, 1.0]), model.score_samples(real) - np.log(10), rtol=1e-4
    )
    mixed = d.Product((d.Poisson(jnp.ones(1)), d.Laplace(jnp.zeros(1), jnp.ones(1))), sizes=(1, 1))
    both = np.column_stack([COUNTS[:, 0], real[:, 1]])
    model = SMALL(emission=mixed).fit(both)
    assert model.scaling_.scale[0] == 1 < model.scaling_.scale[1]
    assert model.column_roles(2).mass.tolist() == [True, False]


def test_the_vae_refuses_an_emission_of_other_columns_or_values():
    with pytest.raises(ValueError, match=r"must describe the 2 columns of X. Got one of 3 columns instead"):
        SMALL(emission=d.Poisson(jnp.ones(3))).fit(COUNTS)
    with pytest.raises(ValueError, match=r"Poisson needs non-negative whole numbers. Got -1"):
        SMALL(emission=d.Poisson).fit(COUNTS - 1)
