"""Flows of the answer given the row: beside the truth, quadrature and linear regression."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import freeenergy as fe
from freeenergy import bijections as b
from freeenergy.learning import LBFGS, negative_conditional_log_likelihood
from freeenergy.models import conditional_flow
from freeenergy.testing import check_laws

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
SMALL = {"width": 8, "max_iter": 60, "batch_size": 64, "judged_rows": 0, "random_state": 0}
PAIR = X @ [[1.0, 0.0], [0.0, 2.0]] + RNG.normal(size=(120, 1)) + 0.5 * RNG.normal(size=(120, 2))


def bimodal(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1))
    side = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y = 100 + 10 * (side * (2 + x[:, 0]) + 0.3 * rng.normal(size=n))
    laws = [stats.norm(100 + 10 * s * (2 + x[:, 0]), 3.0).logpdf(y) for s in (-1, 1)]
    return x, y, np.logaddexp(*laws) + np.log(0.5)


def heteroscedastic(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1))
    law = stats.norm(np.sin(3 * x[:, 0]), np.exp(-1 + x[:, 0]))
    y = law.rvs(random_state=rng)
    return x, y, law.logpdf(y)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [bimodal, heteroscedastic])
def test_held_out_answers_have_nearly_the_evidence_of_the_truth(problem):
    x, y, _ = problem(1000, 0)
    model = fe.ConditionalFlow(width=16, max_iter=150, random_state=0).fit(x, y)
    new, answers, best = problem(1000, 1)
    own = model.evidence(new, answers)
    assert own.kind is fe.Kind.EXACT
    gap = best - own.nats
    assert -4 * gap.std() / np.sqrt(1000) < gap.mean() < 0.1
    # intervals hold what they say, within four binomial errors and a little bias
    low, high = model.predict_interval(new, 0.8)
    assert np.mean((low <= answers) & (answers <= high)) == pytest.approx(0.8, abs=4 * 0.0127 + 0.02)
    if problem is bimodal:
        assert [len(pieces) for pieces in model.predict_density([[0.0]]).highest_density(0.8)] == [2]
        assert fe.LinearRegression().fit(x, y).evidence(new, answers).nats.mean() < own.nats.mean() - 0.5


def test_with_a_shift_and_no_hidden_layer_it_is_linear_regression():
    y = 5 + X @ [1.0, -2.0] + 0.7 * np.random.default_rng(3).normal(size=120)
    flow = fe.ConditionalFlow(
        b.Shift(),
        depth=0,
        max_iter=300,
        validation_fraction=0.0,
        judged_rows=0,
        learner=LBFGS(negative_conditional_log_likelihood, 1e-7),
        random_state=0,
    ).fit(X, y)
    design = np.column_stack([np.ones(120), X])
    weights, rest = np.linalg.lstsq(design, y)[:2]
    np.testing.assert_allclose(flow.predict(X), design @ weights, atol=2e-3)
    best = stats.norm(design @ weights, np.sqrt(rest[0] / 120)).logpdf(y)
    np.testing.assert_allclose(flow.evidence(X, y).nats, best, atol=5e-3)


def linear_flow(**more):
    learner = LBFGS(negative_conditional_log_likelihood, 1e-7)
    return fe.ConditionalFlow(b.Shift(), depth=0, validation_fraction=0.0, learner=learner, **more)


def least_levels_of_lines(x, y, weight):
    """Of each row the least level whose interval holds its answer, by the line through the others."""
    design, levels = np.column_stack([np.ones(len(x)), x]), []
    for row in range(len(x)):
        rest = np.delete(design, row, axis=0), np.delete(y, row), np.delete(weight, row)
        root = np.sqrt(rest[2])
        line = np.linalg.lstsq(rest[0] * root[:, None], rest[1] * root)[0]
        spread = np.sqrt(np.average((rest[1] - rest[0] @ line) ** 2, weights=rest[2]))
        levels.append(2 * stats.norm.cdf(abs(y[row] - design[row] @ line) / spread) - 1)
    return np.array(levels)


def test_intervals_are_those_of_networks_that_have_not_seen_an_answer(tmp_path):
    rng = np.random.default_rng(1)
    # twenty rows, so that each is left out alone
    x = rng.normal(size=(20, 2))
    y = 3 * x[:, 0] + rng.standard_t(3, size=20)
    model, own = linear_flow(random_state=0).fit(x, y), least_levels_of_lines(x, y, np.ones(20))
    np.testing.assert_allclose(np.sort(model.fold_levels_), np.sort(own), atol=2e-3)
    law = model.predict_density(x)
    for level, rank in ((0.8, 17), (0.5, 11)):
        found = np.sort(model.fold_levels_)[rank - 1]
        np.testing.assert_allclose(model.predict_interval(x, level), law.interval(found), rtol=1e-9)
    # the law is that of one fit
    alone = linear_flow(random_state=0, judged_rows=19).fit(x, y)
    assert not len(alone.fold_levels_)
    np.testing.assert_array_equal(alone.evidence(x, y).nats, model.evidence(x, y).nats)
    np.testing.assert_array_equal(alone.predict_interval(x, 0.8), law.interval(0.8))
    model.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_interval(x, 0.8), model.predict_interval(x, 0.8))
    # a weight of two is two answers, which are left out together
    weight = 1.0 + (np.arange(20) % 2)
    weighted = linear_flow(random_state=0).fit(x, y, weight)
    own = least_levels_of_lines(x, y, weight)
    order, place = np.argsort(own), np.argsort(weighted.fold_levels_)
    np.testing.assert_allclose(weighted.fold_levels_[place], own[order], atol=2e-3)
    np.testing.assert_array_equal(weighted.fold_weight_[place], weight[order])


def test_ctrl_c_while_rows_are_left_out_keeps_the_fit(monkeypatch):
    x, runs, run = np.random.default_rng(1).normal(size=(20, 2)), [], fe.ConditionalFlow._run

    def stopped(self, *args, **more):
        runs.append(run(self, *args, **more))
        return runs[-1] if len(runs) < 3 else dataclasses.replace(runs[-1], status=fe.Status.INTERRUPTED)

    monkeypatch.setattr(fe.ConditionalFlow, "_run", stopped)
    model = linear_flow(random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, x[:, 0])
    assert len(runs) == 3
    assert not len(model.fold_levels_)
    np.testing.assert_array_equal(model.predict_interval(x), model.predict_density(x).interval())


def test_each_output_and_rows_with_holes_have_intervals_of_their_level():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 2))
    y = np.column_stack([x[:, 0] + rng.normal(size=60), 100 * x[:, 1] + 5 * rng.normal(size=60)])
    x[::4, 0] = np.nan
    model = linear_flow(random_state=0).fit(x, y)
    assert model.fold_levels_.shape == (60, 2)
    low, high = model.predict_interval(x, 0.8)
    # the level is that of answers left out, so that those of the fit are inside as often at least
    assert ((low <= y) & (y <= high)).mean(axis=0) == pytest.approx(0.83, abs=0.1)
    wide = (high - low)[0] / (high - low)[1]
    assert wide[0] > 1.1  # what is missing is not known
    one = linear_flow(random_state=0).fit(x[1:2], y[1:2])
    assert not len(one.fold_levels_)


@pytest.fixture(scope="module")
def pair():
    return fe.ConditionalFlow(**SMALL).fit(X, PAIR)


def test_two_outputs_with_a_shift_are_a_normal_law_with_their_covariance():
    flow = fe.ConditionalFlow(
        b.Shift(),
        depth=0,
        max_iter=300,
        validation_fraction=0.0,
        learner=LBFGS(negative_conditional_log_likelihood, 1e-7),
        random_state=0,
    ).fit(X, PAIR)
    design = np.column_stack([np.ones(120), X])
    fitted = design @ np.linalg.lstsq(design, PAIR)[0]
    rest = (PAIR - fitted).T @ (PAIR - fitted) / 120
    best = stats.multivariate_normal([0, 0], rest).logpdf(PAIR - fitted)
    np.testing.assert_allclose(flow.evidence(X, PAIR).nats, best, atol=1e-2)
    law = flow.predict_density(X[:7])
    np.testing.assert_allclose(law.mean(), fitted[:7], atol=2e-2)
    np.testing.assert_allclose(law.variance(), np.tile(np.diag(rest), (7, 1)), rtol=2e-2)
    alone = stats.norm(fitted[:7], np.sqrt(np.diag(rest)))
    np.testing.assert_allclose(law.quantile(0.9), alone.ppf(0.9), atol=2e-2)
    # one output is not known: the other by itself
    for known in (0, 1):
        half = np.full((7, 2), np.nan)
        half[:, known] = PAIR[:7, known]
        np.testing.assert_allclose(law.log_prob(half), alone.logpdf(half)[:, known], atol=2e-2)
    assert (law.log_prob(np.full((7, 2), np.nan)) == 0).all()


@pytest.mark.slow
def test_the_laws_of_two_outputs(pair):
    law = pair.predict_density(X)
    assert law.shape == (120, 2)
    check_laws(law, samples=200)
    apart = fe.MixtureDensity(1, **SMALL).fit(X, PAIR)
    assert pair.evidence(X, PAIR).nats.mean() > apart.evidence(X, PAIR).nats.mean() + 0.2
    one = law.take(np.array([0]))
    # all of it, by quadrature in two dimensions
    span = [np.linspace(one.quantile(1e-5)[0, i] - 1, one.quantile(1 - 1e-5)[0, i] + 1, 60) for i in (0, 1)]
    grid = np.stack(np.meshgrid(*span, indexing="ij"), axis=-1)
    density = np.exp(law.take(np.zeros(60 * 60, int)).log_prob(grid.reshape(-1, 2))).reshape(60, 60)
    assert integrate.trapezoid(integrate.trapezoid(density, span[1]), span[0]) == pytest.approx(1, abs=0.02)
    draws = one.sample(4000, np.random.default_rng(0))[:, 0]
    error = draws.std(axis=0) / np.sqrt(4000)
    np.testing.assert_allclose(draws.mean(axis=0), one.mean()[0], atol=4.5 * error.max())
    np.testing.assert_allclose(draws.var(axis=0), one.variance()[0], rtol=0.15)


@pytest.mark.parametrize(
    "transformer", [b.InTurn(b.Spline(), b.ShiftScale()), b.InTurn(b.ShiftScale(), b.Shift())]
)
def test_maps_in_turn_are_inverted_and_their_slope_is_that_of_differences(transformer):
    parameters = np.random.default_rng(1).normal(size=transformer.size)
    points = np.linspace(-7.0, 7.0, 29)

    @eqx.filter_jit
    def both(x):
        y, log_slope = jax.vmap(lambda v: transformer.forward(v, jnp.asarray(parameters)))(x)
        return y, log_slope, *jax.vmap(lambda v: transformer.inverse(v, jnp.asarray(parameters)))(y)

    _, log_slope, back, minus = both(points)
    np.testing.assert_allclose(back, points, atol=1e-9)
    np.testing.assert_allclose(minus, -log_slope, atol=1e-8)
    step = 1e-6
    slopes = (np.asarray(both(points + step)[0]) - np.asarray(both(points - step)[0])) / (2 * step)
    np.testing.assert_allclose(np.log(slopes), log_slope, atol=1e-5)


def test_the_mean_is_that_of_quadrature_and_the_quantile_the_inverse():
    x, y, _ = bimodal(120, 0)
    law = fe.ConditionalFlow(**SMALL).fit(x, y).predict_density(x[:1])

    ends = law.quantile(1e-9)[0], law.quantile(1 - 1e-9)[0]
    edges = np.linspace(*ends, 4001)
    values = np.exp(law.take(np.zeros(4001, int)).log_prob(edges))
    assert integrate.simpson(values, edges) == pytest.approx(1.0, abs=1e-4)
    mean = integrate.simpson(values * edges, edges)
    assert law.mean()[0] == pytest.approx(mean, abs=1e-3 * y.std())
    spread = integrate.simpson(values * (edges - mean) ** 2, edges)
    assert law.variance()[0] == pytest.approx(spread, rel=2e-3)
    root = optimize.brentq(lambda t: law.cdf(t)[0] - 0.3, *ends, xtol=1e-10)
    assert law.quantile(0.3)[0] == pytest.approx(root, abs=1e-6)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"'transformer' parameter of ConditionalFlow must be"):
        fe.ConditionalFlow("spline").fit(X, PAIR)
    with pytest.raises(
        ValueError, match=r"'depth' parameter of ConditionalFlow must be an int in the range \[0"
    ):
        fe.ConditionalFlow(depth=-1).fit(X, PAIR)


def test_a_flow_starts_near_the_standard_normal():
    start = eqx.filter_jit(conditional_flow)(
        2, 1, b.Spline(), width=4, depth=1, dtype=float, key=jax.random.key(0)
    )
    nats = eqx.filter_jit(lambda m, y, x: (m.log_prob_of(y, x), m.energy(x, y)))(
        start, np.ones(1), np.ones(2)
    )
    assert float(nats[0]) == pytest.approx(stats.norm.logpdf(1.0), abs=0.3)
    assert float(nats[1]) == -float(nats[0])
