"""Factors behind columns of different kinds, against factor analysis, quadrature and enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.models import MixedFactors

RNG = np.random.default_rng(0)
N = 120
Z = RNG.normal(size=(N, 2))
GRADES = ["low", "middle", "high"]
FRAME = pl.DataFrame(
    {
        "calls": RNG.poisson(np.exp(0.8 + 0.6 * Z[:, 0])),
        "mood": 20 + 5 * Z[:, 0] + 2 * RNG.normal(size=N),
        "slept": RNG.logistic(size=N) < 2 * Z[:, 1],
        "grade": pl.Series(
            np.array(GRADES)[np.digitize(Z[:, 1] + RNG.logistic(size=N) / 2, [-0.7, 0.7])],
            dtype=pl.Enum(GRADES),
        ),
        "weight": -3 * Z[:, 1] + RNG.normal(size=N),
    }
)


@pytest.fixture(scope="module")
def model():
    return fe.MixedFactorAnalysis(1, random_state=0).fit(FRAME)


def rows(**columns):
    return pl.DataFrame(columns, schema=FRAME.schema, strict=False)


def test_numbers_alone_are_factor_analysis():
    X = RNG.normal(size=(N, 2)) @ RNG.normal(size=(2, 6)) + RNG.normal(size=(N, 6)) * [1, 2, 1, 3, 1, 1]
    holes = np.where(RNG.random(X.shape) < 0.15, np.nan, X)
    ours, theirs = fe.MixedFactorAnalysis(2).fit(holes), fe.FactorAnalysis(2, tol=1e-11).fit(holes)
    np.testing.assert_allclose(ours.score_samples(holes), theirs.score_samples(holes), atol=2e-3)
    assert ours.score(holes) == pytest.approx(theirs.score(holes), abs=1e-5)
    assert ours.evidence(holes).kind is fe.Kind.EXACT
    np.testing.assert_allclose(
        ours.components_.T @ ours.components_, theirs.components_.T @ theirs.components_, atol=0.05
    )
    np.testing.assert_allclose(ours.impute(holes), theirs.impute(holes), atol=0.02)
    # with more factors draws take the place of points, which changes nothing for Gaussians
    ours, theirs = fe.MixedFactorAnalysis(3).fit(X), fe.FactorAnalysis(3).fit(X)
    found = ours.evidence(X)
    assert found.kind is fe.Kind.LOWER
    assert abs(found.nats.mean() - theirs.score(X)) < 0.03


def test_the_density_is_that_of_its_parameters_by_quadrature(model):
    member, w, b = model.model_.emission.member, model.model_.loading[:, 0], model.model_.bias
    w, b = np.asarray(w), np.asarray(b)
    assert [type(part).__name__ for part in member.parts] == [
        "Gaussian",
        "Poisson",
        "Bernoulli",
        "Categorical",
    ]
    assert model.output_names_ == ["mood", "weight", "calls", "slept", "grade = low", "grade = middle"]
    spread = np.sqrt(np.asarray(member.parts[0].covariance.variance))
    x = model.scaling_.apply(model._read(FRAME[:3]).x)

    def density(z, row):
        calls, mood, slept, grade, weight = row
        eta = w * z + b
        logits = np.append(eta[4:6], 0.0)
        p = stats.norm.pdf(z) * stats.norm.pdf([mood, weight], eta[:2], spread).prod()
        p *= stats.poisson.pmf(calls, np.exp(eta[2])) * expit(eta[3] if slept else -eta[3])
        return p * softmax(logits)[int(grade)]

    expected = [quad(density, -8, 8, args=(row,), epsabs=1e-14, limit=200)[0] for row in x]
    units = -np.log(model.scaling_.scale[[1, 4]]).sum()
    np.testing.assert_allclose(model.score_samples(FRAME[:3]), np.log(expected) + units, rtol=1e-7)


def test_binary_columns_are_the_item_response_model():
    slopes, levels = np.array([1.5, -1.0, 2.0, 0.7]), np.array([0.3, -0.5, 0.0, 1.0])
    z = RNG.normal(size=400)
    X = (RNG.random((400, 4)) < expit(np.outer(z, slopes) + levels)).astype(float)
    model = fe.MixedFactorAnalysis(1).fit(X)
    points, weights = np.polynomial.hermite_e.hermegauss(61)
    log_weights = np.log(weights / weights.sum())

    def loss(free):
        eta = np.outer(points, free[:4]) + free[4:]
        logs = -np.logaddexp(0, -eta) @ X.T - np.logaddexp(0, eta) @ (1 - X).T
        prior = 0.5 * (np.sum(free[:4] ** 2) / 9 + np.sum(free[4:] ** 2) / 100)
        return -logsumexp(logs + log_weights[:, None], axis=0).sum() + prior

    best = minimize(loss, np.append(np.sign(slopes), np.zeros(4)), method="BFGS")
    found = np.concatenate([model.components_[0], np.asarray(model.model_.bias)])
    np.testing.assert_allclose(np.abs(found), np.abs(best.x), atol=2e-3)
    # and all answers together are one
    answers = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    assert np.exp(model.score_samples(answers)).sum() == pytest.approx(1, abs=1e-8)
    assert loss(found) == pytest.approx(best.fun, abs=1e-4)


def test_missing_entries_are_summed_out(model):
    known = {"mood": 22.0, "weight": 0.5, "slept": True}
    grades, calls = zip(*itertools.product(GRADES, range(40)), strict=True)
    same = {k: [v] * 120 for k, v in known.items()}
    each = model.score_samples(rows(**same, grade=grades, calls=calls))
    hidden = rows(**{k: [v] for k, v in {**known, "grade": None, "calls": None}.items()})
    assert model.score_samples(hidden)[0] == pytest.approx(logsumexp(each), abs=1e-7)
    filled = model.impute(hidden)
    assert filled.schema == FRAME.schema
    masses = np.exp(each).reshape(3, 40)
    assert filled["grade"][0] == GRADES[int(np.argmax(masses.sum(axis=1)))]
    mean = masses.sum(axis=0) @ np.arange(40) / masses.sum()
    assert filled["calls"][0] == np.rint(mean)
    drawn = [part["calls"][0] for part in model.sample(128, given=hidden, random_state=0)]
    assert abs(np.mean(drawn) - mean) < 5 * np.std(drawn) / np.sqrt(128)


@pytest.mark.slow
def test_importance_samples_agree_with_quadrature(model):
    x = jnp.asarray(model._read(FRAME[:8]).z)
    keys = jax.random.split(jax.random.key(0), 8)

    @jax.jit
    def both(x):
        drawn = jax.vmap(lambda row, key: model.model_.evidence(row, samples=2000, key=key))(x, keys)
        return drawn.log_mean, drawn.stderr, jax.vmap(model.model_.log_prob_by_quadrature)(x)

    log_mean, stderr, exact = both(x)
    assert (np.abs(log_mean - exact) < 5 * stderr + 1e-3).all()
    assert (np.asarray(stderr) < 0.05).all()


def test_draws_follow_the_density(model):
    draws = model.sample(4000, random_state=1)
    assert draws.schema == FRAME.schema
    pairs = list(itertools.product([False, True], GRADES))
    slept, grade = zip(*pairs, strict=True)
    none = {"calls": [None] * 6, "mood": [None] * 6, "weight": [None] * 6}
    chances = np.exp(model.score_samples(rows(slept=slept, grade=grade, **none)))
    for (slept, grade), p in zip(pairs, chances, strict=True):
        share = ((draws["slept"] == slept) & (draws["grade"] == grade)).mean()
        assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / 4000)


@pytest.mark.slow
def test_factors_are_what_made_the_rows():
    found = fe.MixedFactorAnalysis(2).fit(FRAME).transform(FRAME)
    assert found.shape == (N, 2)
    # both together, since they are known up to a rotation
    for column in Z.T:
        fit = np.linalg.lstsq(found, column, rcond=None)[0]
        assert np.corrcoef(found @ fit, column)[0, 1] > 0.8


def test_points_of_one_model_are_those_of_a_dense_grid():
    items = d.Given(d.Bernoulli(jnp.full(3, 0.5)))
    w = jnp.array([[1.0, 0.5], [-2.0, 0.0], [0.3, 4.0]])
    model = MixedFactors(w, jnp.array([0.2, -1.0, 0.5]), items)
    x = jnp.array([1.0, 0.0, 1.0])
    grid = np.linspace(-8, 8, 401)
    z = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    eta = z @ np.asarray(w).T + np.asarray(model.bias)
    logs = stats.norm.logpdf(z).sum(axis=1) - np.logaddexp(0, -eta * np.array([1, -1, 1])).sum(axis=1)
    expected = logsumexp(logs) + 2 * np.log(grid[1] - grid[0])
    found = jax.jit(lambda v: model.log_prob_by_quadrature(v))(x)
    assert float(found) == pytest.approx(expected, abs=1e-4)


def test_what_cannot_be_is_refused():
    with pytest.raises(
        ValueError, match=r"'n_components' parameter of MixedFactorAnalysis must be an int in the range \[1"
    ):
        fe.MixedFactorAnalysis(0).fit(FRAME)
