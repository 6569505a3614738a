"""Robust and quantile regressions, and the laws they give, against SciPy, statsmodels and quadrature."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
from data import ROWS
from scipy import integrate, optimize, stats
from sklearn.linear_model import QuantileRegressor

import freeenergy as fe
from freeenergy.estimators.labelled._quantiles import _lines, _moved
from freeenergy.evaluation import HuberLaws, QuantileLaws, StudentLaws
from freeenergy.testing import check_laws

RNG = np.random.default_rng(6)
X = ROWS
WILD = X @ [1.0, -2.0] + 3.0 + RNG.standard_t(1.5, size=len(X))
WIDE = X @ [1.0, -2.0] + np.exp(0.3 * X[:, 0]) * RNG.normal(size=len(X))


def coefficients(model):
    return np.array([model.intercept_, *model.coef_])


@pytest.mark.parametrize("delta", [0.3, 1.345, 4.0])
def test_laws_of_huber(delta):
    law = HuberLaws(delta, np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    check_laws(law)

    first = law.take(np.array([0]))

    def density(t):
        return np.exp(first.log_prob([t])[0])

    parts = [-60.0, 1 - delta / 2, 1 + delta / 2, 60.0]
    total = [integrate.quad(density, a, b)[0] for a, b in itertools.pairwise(parts)]
    np.testing.assert_allclose(sum(total), 1.0, rtol=1e-8)
    second = [
        integrate.quad(lambda t: (t - 1) ** 2 * density(t), a, b)[0] for a, b in itertools.pairwise(parts)
    ]
    np.testing.assert_allclose(sum(second), law.variance()[0], rtol=1e-7)
    below = integrate.quad(density, -60.0, parts[1])[0] + integrate.quad(density, parts[1], 1.1)[0]
    np.testing.assert_allclose(law.cdf([1.1, 0.0])[0], below, rtol=1e-8)
    # far tails do not vanish
    np.testing.assert_allclose(
        law.log_sf([1e3, 0.0])[0] - law.log_sf([2e3, 0.0])[0], 2e3 * delta, rtol=1e-9
    )
    if delta == 4.0:
        np.testing.assert_allclose(
            law.log_prob([1.2, -1.0]).sum(),
            stats.norm([1, -2], [0.5, 3]).logpdf([1.2, -1.0]).sum(),
            atol=1e-3,
        )


def test_laws_of_quantiles():
    law = QuantileLaws(np.array([0.1, 0.5, 0.8]), np.array([[-1.0, 0.0, 3.0], [0.0, 5.0, 5.5]]), 2.0, 0.5)
    check_laws(law)
    for level, point in zip(law.levels, law.points.T, strict=True):
        np.testing.assert_allclose(law.quantile(level), point)
        np.testing.assert_allclose(law.cdf(point), level)
    first = law.take(np.array([0]))

    def density(t):
        return np.exp(first.log_prob([t])[0])

    parts = [-100.0, -1.0, 0.0, 3.0, 50.0]
    moments = [
        sum(
            integrate.quad(lambda t, k=k: t**k * density(t), a + 1e-7, b)[0]
            for a, b in itertools.pairwise(parts)
        )
        for k in range(3)
    ]
    np.testing.assert_allclose(moments[0], 1.0, atol=1e-6)
    np.testing.assert_allclose(first.mean()[0], moments[1], atol=1e-5)
    np.testing.assert_allclose(first.variance()[0], moments[2] - moments[1] ** 2, rtol=1e-4)
    assert np.isfinite(law.log_prob([-1e5, 1e5])).all()
    np.testing.assert_array_equal(law.log_prob([np.nan, np.nan]), 0.0)
    # of one level, an asymmetric Laplace: its κ² is the ratio of the masses
    alone = QuantileLaws(np.array([0.3]), np.zeros((1, 1)), 0.3, 0.7)
    kappa = np.sqrt(3 / 7)
    peer = stats.laplace_asymmetric(kappa, 0.0, 0.3 / kappa)
    for y in (-0.5, 0.5):
        np.testing.assert_allclose(alone.log_prob([y]), peer.logpdf(y), rtol=1e-9)
        np.testing.assert_allclose(alone.log_cdf([y]), peer.logcdf(y), rtol=1e-9)


def test_laws_of_student():
    root = RNG.normal(size=(3, 2, 2))
    law = StudentLaws(5.0, RNG.normal(size=(3, 2)), root @ root.swapaxes(1, 2) + np.eye(2))
    check_laws(law)
    y = RNG.normal(size=(3, 2))
    by_hand = [
        stats.multivariate_t(m, s, 5.0).logpdf(t) for m, s, t in zip(law.means, law.scales, y, strict=True)
    ]
    np.testing.assert_allclose(law.log_prob(y), by_hand, rtol=1e-10)


def test_huber_is_the_convex_minimum():
    model = fe.RobustRegression(1.2).fit(X, WILD)
    middle = np.sqrt(2 * np.pi) * (2 * stats.norm.cdf(1.2) - 1)
    kappa = middle / (middle + 2 * np.exp(-0.72) / 1.2)
    design = np.column_stack([np.ones(len(X)), X])

    def objective(v):
        sigma = np.exp(v[3])
        u = np.abs(WILD - design @ v[:3]) / sigma
        inner = np.minimum(u, 1.2)
        return sigma * (np.sum(inner**2 / 2 + 1.2 * (u - inner)) + kappa * (len(X) - 3) / 2)

    found = optimize.minimize(objective, np.zeros(4), tol=1e-12)
    np.testing.assert_allclose(coefficients(model), found.x[:3], atol=1e-5)
    np.testing.assert_allclose(model.scale_, np.exp(found.x[3]), rtol=1e-5)
    # κ is the mean of ψ² under the law itself
    law = HuberLaws(1.2, np.zeros(1), np.ones(1))
    mean = integrate.quad(
        lambda t: min(t * t, 1.44) * np.exp(law.log_prob([t])[0]), -50, 50, points=[-1.2, 1.2]
    )[0]
    np.testing.assert_allclose(mean, kappa, rtol=1e-7)
    np.testing.assert_allclose(model.log_likelihood_, model.evidence(X, WILD).nats.sum(), rtol=1e-10)


def test_huber_of_statsmodels():
    model = fe.RobustRegression().fit(X, WILD)
    design = sm.add_constant(X)

    # with our scale for its own, by its own reweighting
    norm, beta = sm.robust.norms.HuberT(1.345), coefficients(model) + 0.1
    for _ in range(300):
        weights = norm.weights((WILD - design @ beta) / model.scale_)
        beta = sm.WLS(WILD, design, weights).fit().params
    np.testing.assert_allclose(coefficients(model), beta, rtol=1e-7)
    np.testing.assert_allclose(model.outlier_weights(X, WILD), weights, rtol=1e-6)
    # Huber's covariance, as statsmodels writes it
    u = (WILD - model.predict(X)) / model.scale_
    psi, inner = np.clip(u, -1.345, 1.345), np.abs(u) <= 1.345
    k = 1 + 3 / len(X) * inner.var() / inner.mean() ** 2
    factor = k**2 * (psi**2).sum() / (len(X) - 3) * model.scale_**2 / inner.mean() ** 2
    np.testing.assert_allclose(model.covariance_, factor * np.linalg.inv(design.T @ design), rtol=1e-8)
    found = model.summary()
    np.testing.assert_allclose(
        found.p_values, 2 * stats.norm.sf(np.abs(found.values / found.stderr)), rtol=1e-9
    )
    assert " z " in repr(found)


def test_wild_answers_do_not_move_it():
    for factor in (1e2, 1e5, 1e9):
        y = WIDE.copy()
        y[:8] = factor
        model = fe.RobustRegression().fit(X, y)
        assert np.abs(model.coef_ - [1.0, -2.0]).max() < 0.6
        assert model.converged_
    least = fe.LinearRegression().fit(X, WIDE)
    np.testing.assert_allclose(fe.RobustRegression(1e3).fit(X, WIDE).coef_, least.coef_, rtol=1e-8)
    np.testing.assert_allclose(fe.RobustRegression(1e3).fit(X, WIDE).scale_, least.noise_, rtol=1e-8)
    # with a narrow middle nearly least absolute deviations
    median = sm.QuantReg(WILD, sm.add_constant(X)).fit(0.5).params
    narrow = fe.RobustRegression(0.5).fit(X, WILD)
    assert (np.abs(coefficients(narrow) - median) < 2 * np.sqrt(np.diag(narrow.covariance_))).all()
    weight = RNG.integers(0, 3, len(X)).astype(float)
    times = np.repeat(np.arange(len(X)), weight.astype(int))
    heavy, copies = (
        fe.RobustRegression().fit(X, WILD, weight),
        fe.RobustRegression().fit(X[times], WILD[times]),
    )
    np.testing.assert_allclose(heavy.covariance_, copies.covariance_, rtol=1e-6)
    both = fe.RobustRegression().fit(X, np.column_stack([WILD, WIDE]))
    np.testing.assert_allclose(both.coef_[1], fe.RobustRegression().fit(X, WIDE).coef_, rtol=1e-7)
    assert both.standard_errors_.shape == (2, 2)
    with pytest.raises(ValueError, match="so many of them are on a plane exactly"):
        fe.RobustRegression().fit(X, np.ones(len(X))).predict_interval(X)
    with pytest.raises(
        ValueError, match=r"'delta' parameter of RobustRegression must be a float in the range \[0.5"
    ):
        fe.RobustRegression(0.4).fit(X, WILD)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.85])
def test_quantiles_of_statsmodels_and_scikit_learn(level):
    model = fe.QuantileRegression([level]).fit(X, WIDE)
    peer = sm.QuantReg(WIDE, sm.add_constant(X)).fit(level, p_tol=1e-10, max_iter=5000).params
    other = QuantileRegressor(quantile=level, alpha=0.0).fit(X, WIDE)

    def loss(coefficients):
        gap = WIDE - coefficients[0] - X @ coefficients[1:]
        return np.sum(gap * (level - (gap < 0)))

    own = np.array([model.intercept_[0], *model.coef_[0]])
    assert loss(own) <= loss(peer) + 1e-9
    np.testing.assert_allclose(loss(own), loss([other.intercept_, *other.coef_]), rtol=1e-9)
    np.testing.assert_allclose(own, peer, atol=1e-3)
    # as many below as the level says, but for those on the line
    gap = WIDE - model.predict_quantiles(X)[:, 0]
    assert (gap < -1e-7).sum() <= level * len(X) <= (gap < 1e-7).sum()
    weight = RNG.integers(0, 3, len(X)).astype(float)
    times = np.repeat(np.arange(len(X)), weight.astype(int))
    pair = [
        fe.QuantileRegression([level]).fit(X, WIDE, weight),
        fe.QuantileRegression([level]).fit(X[times], WIDE[times]),
    ]
    np.testing.assert_allclose(pair[0].coef_, pair[1].coef_, atol=1e-9)
    for ends in zip(*(model.predict_interval(X, 0.8) for model in pair), strict=True):
        np.testing.assert_allclose(*ends, atol=1e-7)


def test_intervals_are_those_of_lines_that_have_not_seen_an_answer():
    rng = np.random.default_rng(1)
    x, levels = rng.normal(size=(20, 1)), np.array([0.12, 0.88])
    y = 3 * x[:, 0] + rng.standard_t(3, size=20)
    model, least = fe.QuantileRegression(levels), []
    for row in range(20):
        others = np.arange(20) != row
        law = model.fit(x[others], y[others]).predict_density(x[row : row + 1])
        least.append(abs(2 * law.cdf(y[row : row + 1])[0] - 1))
    model.fit(x, y)
    np.testing.assert_allclose(np.sort(model.fold_levels_), np.sort(least), atol=1e-6)
    law = model.predict_density(x)
    for level, rank in ((0.8, 17), (0.5, 11)):
        found = np.sort(least)[rank - 1]
        np.testing.assert_allclose(model.predict_interval(x, level), law.interval(found), atol=1e-5)
    # the lines are those that they were
    np.testing.assert_allclose(model.predict_quantiles(x), x @ model.coef_.T + model.intercept_, atol=1e-9)
    # of too few rows the interval that holds all of them, or the law's
    few = model.predict_interval(x, 0.99), law.interval(max(*least, 0.99))
    np.testing.assert_allclose(*few, atol=1e-5)
    # of one row, and of missing entries, there is a law all the same
    one = fe.QuantileRegression(levels).fit(x[:1], y[:1])
    assert not len(one.fold_levels_)
    assert np.isfinite(one.predict_interval(x, 0.9)).all()
    holes = np.column_stack([x, rng.normal(size=20)])
    holes[::3, 0] = np.nan
    low, high = fe.QuantileRegression(levels).fit(holes, y).predict_interval(holes, 0.8)
    assert np.mean((low <= y) & (y <= high)) >= 0.75


@pytest.mark.parametrize("tau", [0.05, 0.6])
def test_lines_move_to_those_of_other_rows(tau):
    rng = np.random.default_rng(4)
    design = np.column_stack([np.ones(900), rng.normal(size=(900, 2))])
    y, weight = design[:, 1] + rng.standard_t(2, size=900), rng.integers(1, 4, 900) / 2

    def loss(line):
        gap = y - design @ line
        return weight @ (gap * (tau - (gap < 0)))

    best = _lines(design, y, weight, np.array([tau]))[0]
    # from nearby, and from where most rows are on the other side
    for start in (best + 0.02, np.array([30.0, -5.0, 9.0])):
        np.testing.assert_allclose(loss(_moved(design, y, weight, tau, start)), loss(best), rtol=1e-10)


def test_quantiles_do_not_cross():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 3))
    y = x[:, 0] + rng.standard_t(2, size=40)
    levels = np.array([0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95])
    alone = np.stack(
        [fe.QuantileRegression([level]).fit(x, y).predict_quantiles(x)[:, 0] for level in levels], axis=1
    )
    assert (np.diff(alone, axis=1) < 0).any()
    model = fe.QuantileRegression(levels).fit(x, y)
    lines = x @ model.coef_.T + model.intercept_
    assert model.crossed_ > 0
    assert np.diff(lines, axis=1).min() > 0
    np.testing.assert_allclose(model.predict_quantiles(x), lines, atol=1e-6)

    def loss(q):
        gap = y[:, None] - q
        return np.sum(gap * (levels - (gap < 0)))

    # the condition costs little, and no more than putting the crossed ones in order
    assert loss(alone) <= loss(lines) < 1.1 * loss(alone)
    # far away too
    far = 100 * rng.normal(size=(50, 3))
    assert np.diff(model.predict_quantiles(far), axis=1).min() > 0
    check_laws(model.predict_density(far[:3]))
    # half of the mass is where the law says
    inside = (model.predict_density(x).cdf(y) < 0.5).mean()
    assert abs(inside - 0.5) < 0.1
    text = repr(model.summary())
    for part in ("crossings prevented", "0.5: intercept", "0.95: x2"):
        assert part in text


def test_quantile_regression_tells():
    for wrong in ([0.5, 0.2], [0.0], [], ["a"], 1.5):
        with pytest.raises(ValueError, match="'levels' parameter of QuantileRegression must be ascending"):
            fe.QuantileRegression(wrong).fit(X, WIDE)
    with pytest.raises(ValueError, match=r"must have one number a row\. Got 2 instead"):
        fe.QuantileRegression().fit(X, np.column_stack([WIDE, WIDE]))
    single = fe.QuantileRegression(0.5, fit_intercept=False).fit(X, WIDE)
    assert single.intercept_.tolist() == [0.0]
    assert np.isfinite(single.evidence(X, WIDE).nats).all()
    # equal answers have a density all the same
    flat = fe.QuantileRegression().fit(X, np.repeat([0.0, 1.0], len(X) // 2))
    assert np.isfinite(flat.evidence(X, np.full(len(X), 0.5)).nats).all()


@pytest.mark.slow
def test_intervals_hold_their_level():
    rng = np.random.default_rng(0)
    hits, trials = np.zeros(2), 40
    for _ in range(trials):
        x = rng.normal(size=(200, 1))
        y = x[:, 0] + (1 + np.abs(x[:, 0])) * rng.normal(size=200)
        new = rng.normal(size=(20, 1))
        answers = new[:, 0] + (1 + np.abs(new[:, 0])) * rng.normal(size=20)
        low, high = fe.QuantileRegression((0.1, 0.5, 0.9)).fit(x, y).predict_interval(new, 0.8)
        hits[0] += ((low <= answers) & (answers <= high)).sum()
        noise = HuberLaws(1.345, np.zeros(200), np.ones(200)).sample(1, rng)[0]
        model = fe.RobustRegression().fit(x, x[:, 0] + noise)
        low, high = model.predict_interval(new, 0.8)
        answers = new[:, 0] + HuberLaws(1.345, np.zeros(20), np.ones(20)).sample(1, rng)[0]
        hits[1] += ((low <= answers) & (answers <= high)).sum()
    for count in hits:
        # the lines are estimated from 200 rows
        assert abs(count / (20 * trials) - 0.8) < 0.02 + 4 * np.sqrt(0.16 / (20 * trials))
