"""Linear systems, structural series, autoregressions and switches, as models and as estimators."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import linalg, stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy._core import AbstractProgress, Data, constrain, freeze, on_device, unconstrain
from freeenergy.distributions import Diagonal, Full, Spherical
from freeenergy.learning import EM, LBFGS, fit, negative_log_likelihood
from freeenergy.models import (
    AutoRegression,
    Autoregressive,
    Columns,
    Cycle,
    Learned,
    Level,
    LinearGaussian,
    LinearGaussianSSM,
    Regressors,
    Seasonal,
    Series,
    Structural,
    SwitchingLinearSystem,
    Trend,
    one_series,
    stationary_covariance,
)
from freeenergy.models._regressions import driven_regression

RNG = np.random.default_rng(0)


def system(n=2, m=2, *, noise=None, **options):
    rng = np.random.default_rng(7)
    return LinearGaussianSSM(
        on_device(rng.normal(size=n)),
        Full(on_device(np.eye(n))),
        on_device(0.5 * rng.normal(size=(n, n))),
        on_device(rng.normal(size=n)),
        Full(on_device(np.cov(rng.normal(size=(n, 9))))) if n > 1 else Diagonal(on_device(np.ones(1))),
        on_device(rng.normal(size=(m, n))),
        on_device(rng.normal(size=m)),
        Full(on_device(np.cov(rng.normal(size=(m, 9))))) if noise is None else noise,
        **options,
    )


def rows(parts):
    """Series of one length as rows for learning."""
    values = np.stack(parts)
    count, length = values.shape[:2]
    starts = np.broadcast_to(np.arange(length) == 0, (count, length))
    x = jax.tree.map(on_device, Series(values, starts, np.ones((count, length), bool)))
    return Data(x, on_device(np.ones(count)), on_device(count, np.int32), bool(np.isnan(values).any()))


SERIES = [np.cumsum(RNG.normal(size=(15, 2)), axis=0) for _ in range(4)]
HOLES = [np.where(RNG.random(x.shape) < 0.2, np.nan, x) for x in SERIES]

log_prob = jax.jit(lambda model, series: model.log_prob(series))
fill = jax.jit(lambda model, series: model.complete_mean(series))


def test_values_against_scipy_and_imputation_by_the_joint_gaussian():
    model = system()
    y = HOLES[0][:6]
    length, m = 6, 2
    # the joint of all values, by simulating the means and covariances of the chain by hand
    A, C = np.asarray(model.transition), np.asarray(model.emission)
    mean, P = np.asarray(model.initial_mean), np.asarray(model.initial_covariance.matrix())
    means, marginals = [], []
    for _ in range(length):
        means.append(mean)
        marginals.append(P)
        mean, P = A @ mean + np.asarray(model.offset), A @ P @ A.T + np.asarray(model.noise.matrix())
    V = np.zeros((length * m, length * m))
    for s in range(length):
        for t in range(s, length):
            cross = C @ np.linalg.matrix_power(A, t - s) @ marginals[s] @ C.T
            V[t * m : (t + 1) * m, s * m : (s + 1) * m] = cross
            V[s * m : (s + 1) * m, t * m : (t + 1) * m] = cross.T
    V += np.kron(np.eye(length), model.emission_noise.matrix())
    centre = np.concatenate([C @ x + np.asarray(model.mean) for x in means])
    flat = y.ravel()
    seen = ~np.isnan(flat)
    law = stats.multivariate_normal(centre[seen], V[np.ix_(seen, seen)])
    series = one_series(on_device(y))

    @jax.jit
    def answers(keys):
        draws = jax.vmap(lambda k: model.complete_sample(series, key=k))(keys)
        return model.log_prob(series), model.complete_mean(series), draws, model.predicted(series)

    evidence, filled, draws, ahead = answers(jax.random.split(jax.random.key(0), 3000))
    assert float(evidence) == pytest.approx(law.logpdf(flat[seen]), abs=1e-10)
    gap = np.linalg.solve(V[np.ix_(seen, seen)], flat[seen] - centre[seen])
    expected = np.where(seen, flat, centre + V[:, seen] @ gap)
    np.testing.assert_allclose(np.ravel(filled), expected, atol=1e-10)
    draws = np.asarray(draws).reshape(3000, -1)
    rest = V - V[:, seen] @ np.linalg.solve(V[np.ix_(seen, seen)], V[seen])
    spread = np.sqrt(np.maximum(np.diag(rest), 0))[~seen]
    error = (draws.mean(0) - expected)[~seen] / spread * math.sqrt(3000)
    assert np.abs(error).max() < 4.5
    ratio = draws.var(0)[~seen] / spread**2
    assert np.abs(ratio - 1).max() < 4.5 * math.sqrt(2 / 3000)
    np.testing.assert_array_equal(draws[:, seen], np.tile(flat[seen], (3000, 1)))
    np.testing.assert_allclose(np.asarray(ahead.mean)[0], centre[:m], atol=1e-12)
    np.testing.assert_allclose(np.asarray(ahead.covariance)[0], V[:m, :m], atol=1e-12)


@pytest.mark.slow
def test_samples_have_the_moments_of_the_model():
    model = system()
    draw = jax.jit(jax.vmap(lambda k: model.sample(3, key=k)))
    values = np.asarray(draw(jax.random.split(jax.random.key(1), 4000))).reshape(4000, -1)
    holes = one_series(jnp.full((3, 2), jnp.nan))
    ahead = model.predicted(holes)
    spread = np.sqrt(np.diagonal(ahead.covariance, axis1=1, axis2=2)).ravel()
    assert (np.abs(values.mean(0) - ahead.mean.ravel()) / spread).max() * math.sqrt(4000) < 4.5
    assert np.abs(values.var(0) / spread**2 - 1).max() < 4.5 * math.sqrt(2 / 4000)


@pytest.mark.slow
def test_forms_agree_and_long_series_in_blocks():
    plain, wide = system(), system(2, 5)
    y = one_series(jnp.asarray(HOLES[1]))
    assert float(plain.log_prob(y)) == pytest.approx(float(system(square_root=True).log_prob(y)), abs=1e-9)
    long = np.random.default_rng(3).normal(size=(2048, 5))
    series = one_series(jnp.asarray(long))
    blocks = jax.jit(lambda s: (wide.log_prob(s, incomplete=False), wide.smooth(s).marginals.mean))(series)
    steps, mean = jax.jit(
        lambda s: (
            jnp.sum(system(2, 5, square_root=True).step_evidence(s)),
            system(2, 5, square_root=True).smooth(s).marginals.mean,
        )
    )(series)
    assert float(blocks[0]) == pytest.approx(float(steps), rel=1e-12)
    np.testing.assert_allclose(blocks[1], mean, atol=1e-9)


def test_no_dynamics_is_factor_analysis():
    rng = np.random.default_rng(2)
    loading, mean, noise = rng.normal(size=(4, 2)), rng.normal(size=4), rng.uniform(0.5, 2, size=4)
    X = rng.normal(size=(30, 4))
    X[3, 1] = np.nan

    @jax.jit
    def both(loading, mean, noise, X):
        factors = LinearGaussian(loading, mean, Diagonal(noise))
        still = LinearGaussianSSM(
            jnp.zeros(2),
            Full(jnp.eye(2)),
            jnp.zeros((2, 2)),
            jnp.zeros(2),
            Full(jnp.eye(2)),
            loading,
            mean,
            Diagonal(noise),
        )
        return still.step_evidence(one_series(X)), jax.vmap(factors.log_prob)(X)

    np.testing.assert_allclose(*both(loading, mean, noise, X), atol=1e-10)


@pytest.mark.parametrize(
    "noise",
    [
        Full(jnp.eye(2)),
        pytest.param(Diagonal(jnp.ones(2)), marks=pytest.mark.slow),
        pytest.param(Spherical(jnp.ones(()), dim=2), marks=pytest.mark.slow),
    ],
)
def test_em_never_lowers_the_likelihood(noise):
    start = system(2, 2, noise=noise)
    result = fit(start, EM(tol=-1.0), rows(HOLES), key=jax.random.key(0), max_iter=12)
    objective = result.history["objective"]
    assert (np.diff(objective) <= 1e-10).all()
    direct = -np.mean([float(log_prob(result.model, one_series(on_device(y)))) for y in HOLES])
    assert objective[-1] == pytest.approx(direct, abs=1e-9)
    # the residual covariance keeps its structure
    matrix = np.asarray(result.model.emission_noise.matrix())
    assert (abs(matrix[0, 1]) > 1e-3) == isinstance(noise, Full)


@pytest.mark.slow
def test_em_ends_where_the_gradient_vanishes_and_holds_what_is_held():
    held = Learned(initial=False, transition=True, offset=False, noise=True, emission=False, mean=False)
    start = system(1, 2, noise=Diagonal(jnp.ones(2)), learned=held)
    draws = jax.vmap(lambda k: start.sample(30, key=k))(jax.random.split(jax.random.key(5), 4))
    data = rows(np.asarray(draws).tolist())
    result = fit(start, EM(tol=0.0), data, key=jax.random.key(0), max_iter=300)
    fitted = result.model
    for name in ("initial_mean", "offset", "emission", "mean"):
        np.testing.assert_array_equal(getattr(fitted, name), getattr(start, name))

    def mean(free):
        return jnp.mean(jax.vmap(constrain(free).log_prob)(data.x))

    slope = jax.grad(mean)(unconstrain(fitted))
    assert abs(float(slope.transition[0, 0])) < 1e-3
    assert np.abs(slope.emission_noise.variance).max() < 1e-3


@pytest.mark.slow
def test_gradient_learning_reaches_em():
    held = Learned(initial=False)
    start = system(1, 2, noise=Diagonal(jnp.ones(2)), learned=held)
    data = rows(SERIES)
    em = fit(start, EM(tol=1e-9), data, key=jax.random.key(0), max_iter=2000)
    mask = freeze(start, lambda m: (m.initial_mean, m.initial_covariance))
    quick = fit(
        start, LBFGS(negative_log_likelihood, 1e-4, mask), data, key=jax.random.key(0), max_iter=200
    )
    # EM keeps variances above a floor, the gradient does not
    assert quick.history["objective"][-1] <= em.history["objective"][-1] + 1e-2


@pytest.mark.slow
def test_packed_series_and_inputs():
    model = system(2, 2)
    both = np.concatenate([SERIES[0], HOLES[1]])
    starts = np.zeros(30, bool)
    starts[[0, 15]] = True
    packed = Series(jnp.asarray(both), jnp.asarray(starts), jnp.ones(30, bool))
    filtered = model.filter(packed, packed=True)
    apart = [model.step_evidence(one_series(jnp.asarray(y))) for y in (SERIES[0], HOLES[1])]
    np.testing.assert_allclose(filtered.log_evidence, np.concatenate(apart), atol=1e-10)
    # inputs shift the means: the same series with their effect taken away has the same density
    B, D = jnp.array([[1.0], [-2.0]]), jnp.array([[0.5], [3.0]])
    pushed = system(2, 2, input_transition=B, input_emission=D)
    u = np.random.default_rng(5).normal(size=(15, 1))
    effect, state = [], np.zeros(2)
    for t in range(15):
        if t:
            state = np.asarray(model.transition) @ state + np.asarray(B) @ u[t]
        effect.append(np.asarray(model.emission) @ state + np.asarray(D) @ u[t])
    series = one_series(jnp.asarray(SERIES[2] + np.stack(effect)), inputs=jnp.asarray(u))
    plain = one_series(jnp.asarray(SERIES[2]))
    assert float(pushed.log_prob(series)) == pytest.approx(float(model.log_prob(plain)), abs=1e-9)
    data = rows(SERIES)
    inputs = jnp.asarray(np.random.default_rng(6).normal(size=(4, 15, 1)))
    data = Data(data.x._replace(inputs=inputs), data.weight, data.rows, False)
    result = fit(pushed, EM(tol=-1.0), data, key=jax.random.key(0), max_iter=6)
    assert (np.diff(result.history["objective"]) <= 1e-10).all()
    assert not np.allclose(result.model.input_emission, D)


@pytest.mark.slow
def test_systems_that_vary_and_are_driven_equal_dense_algebra():
    rng = np.random.default_rng(21)
    length, n, m = 6, 2, 2
    A, C = 0.6 * rng.normal(size=(length, n, n)), rng.normal(size=(length, m, n))
    Q = np.stack([np.cov(rng.normal(size=(n, 8))) for _ in range(length)])
    R = np.stack([np.cov(rng.normal(size=(m, 8))) for _ in range(length)])
    B, D, u = rng.normal(size=(n, 3)), rng.normal(size=(m, 3)), rng.normal(size=(length, 3))
    fixed = system()
    model = LinearGaussianSSM(
        fixed.initial_mean,
        fixed.initial_covariance,
        jnp.asarray(A),
        fixed.offset,
        Full(jnp.asarray(Q)),
        jnp.asarray(C),
        fixed.mean,
        Full(jnp.asarray(R)),
        jnp.asarray(B),
        jnp.asarray(D),
    )
    # every value as a linear map of the independent first state, shocks and errors
    mean, maps = np.asarray(fixed.initial_mean), np.eye(n, length * n)
    centre, rows = [], []
    for t in range(length):
        if t:
            mean = A[t] @ mean + B @ u[t] + np.asarray(fixed.offset)
            maps = A[t] @ maps
            maps[:, t * n : (t + 1) * n] = np.eye(n)
        centre.append(C[t] @ mean + D @ u[t] + np.asarray(fixed.mean))
        rows.append(C[t] @ maps)
    shocks = np.zeros((length * n, length * n))
    errors = np.zeros((length * m, length * m))
    for t in range(length):
        at, to = slice(t * n, (t + 1) * n), slice(t * m, (t + 1) * m)
        shocks[at, at] = Q[t] if t else np.asarray(fixed.initial_covariance.matrix())
        errors[to, to] = R[t]
    G = np.concatenate(rows)
    V, centre = G @ shocks @ G.T + errors, np.concatenate(centre)
    y = HOLES[0][:length].ravel()
    seen = ~np.isnan(y)
    series = one_series(jnp.asarray(y.reshape(length, m)), inputs=jnp.asarray(u))
    law = stats.multivariate_normal(centre[seen], V[np.ix_(seen, seen)])
    assert float(model.log_prob(series)) == pytest.approx(law.logpdf(y[seen]), abs=1e-10)
    filled = np.where(
        seen, y, centre + V[:, seen] @ np.linalg.solve(V[np.ix_(seen, seen)], y[seen] - centre[seen])
    )
    np.testing.assert_allclose(model.complete_mean(series).ravel(), filled, atol=1e-9)
    draw = jax.jit(jax.vmap(lambda k: model.sample(length, key=k, inputs=jnp.asarray(u)).ravel()))
    values = np.asarray(draw(jax.random.split(jax.random.key(1), 4000)))
    spread = np.sqrt(np.diag(V))
    assert (np.abs(values.mean(0) - centre) / spread).max() * math.sqrt(4000) < 4.5
    assert np.abs(values.var(0) / spread**2 - 1).max() < 5 * math.sqrt(2 / 4000)
    with pytest.raises(ValueError, match="EM needs a system that is the same at all steps"):
        model.maximise(model._statistics(series, model.smooth(series)))


def test_a_system_whose_components_are_seen_is_a_regression():
    rng = np.random.default_rng(0)
    A, B, D = np.array([[0.5, 0.2], [-0.1, 0.6]]), rng.normal(size=(2, 1)), rng.normal(size=(3, 1))
    loading = rng.normal(size=(3, 2))
    # what the inputs add to the values is along the loading
    D = loading @ np.linalg.lstsq(loading, D, rcond=None)[0]
    series, inputs = [], []
    for length in (9, 14):
        u, x = rng.normal(size=(length, 1)), [rng.normal(size=2)]
        for t in range(1, length):
            x.append(A @ x[-1] + B @ u[t])
        series.append(np.array(x) @ loading.T + u @ D.T)
        inputs.append(u)
    found = driven_regression(series, inputs, np.array([1.0, 2.0]), loading)
    for part, expected in zip(found, (A, B, D), strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-9)


def test_what_the_start_of_a_trend_adds_to_a_series():
    series = one_series(on_device(np.zeros((10, 1))))
    effect = jax.jit(lambda: Structural((Trend(),)).effect(series))()
    np.testing.assert_allclose(effect, [1, np.mean(np.arange(10) ** 2)])


@pytest.mark.slow
def test_structural_blocks_equal_statsmodels():
    rng = np.random.default_rng(4)
    y = np.cumsum(rng.normal(size=40)) + rng.normal(size=40)
    y[7] = np.nan
    series = one_series(jnp.asarray(y)[:, None])
    model = Structural((Trend(0.3, 0.1), Seasonal(4, 0.2)), 0.7)
    peer = sm.tsa.UnobservedComponents(y, "lltrend", seasonal=4, use_exact_diffuse=True)
    result = peer.smooth([0.7, 0.3, 0.1, 0.2])
    assert float(model.log_prob(series)) == pytest.approx(result.llf, abs=1e-9)
    means, variances = model.components(series)
    np.testing.assert_allclose(means[:, 0], result.level.smoothed, atol=1e-9)
    np.testing.assert_allclose(means[:, 1], result.seasonal.smoothed, atol=1e-9)
    np.testing.assert_allclose(variances[:, 1], result.seasonal.smoothed_cov, atol=1e-9)
    # the autocovariance of a damped wave is σ²/(1 − ρ²) ρᵏ cos λk
    cyclic = Structural((Cycle(6.0, 0.8, 0.5),), 0.7)
    gap = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    V = 0.5 / (1 - 0.8**2) * 0.8**gap * np.cos(2 * np.pi / 6 * gap) + 0.7 * np.eye(40)
    seen = ~np.isnan(y)
    law = stats.multivariate_normal(np.zeros(39), V[np.ix_(seen, seen)])
    assert float(cyclic.log_prob(series)) == pytest.approx(law.logpdf(y[seen]), abs=1e-8)
    regressed = Structural((Level(0.4), Regressors(1)), 0.7)
    u = rng.normal(size=(40, 1))
    peer = sm.tsa.UnobservedComponents(y, "llevel", exog=u, mle_regression=False, use_exact_diffuse=True)
    told = one_series(jnp.asarray(y)[:, None], inputs=jnp.asarray(u))
    assert float(regressed.log_prob(told)) == pytest.approx(peer.loglike([0.7, 0.4]), abs=1e-8)
    with pytest.raises(ValueError, match="needs series with 'inputs'"):
        regressed.log_prob(series)
    with pytest.raises(ValueError, match="'period' parameter of Seasonal must be an int in the range"):
        Seasonal(1)
    with pytest.raises(ValueError, match="diffuse start has no distribution to draw"):
        model.sample(3, key=jax.random.key(0))


def test_autoregressions_in_three_ways():
    rng = np.random.default_rng(8)
    y = rng.normal(size=50)
    y[11] = np.nan
    block = Autoregressive([0.6, -0.3], 0.8)
    structural = Structural((block,), 1e-12)
    series = one_series(on_device(y[:, None]))

    @eqx.filter_jit
    def answers(block, structural, series):
        phi = block.coefficients()
        model = AutoRegression(
            phi[:, None, None],
            jnp.zeros(1),
            Full(jnp.full((1, 1), 0.8)),
            jnp.zeros(2),
            stationary_covariance(block.transition(), block.noise()),
        )
        return phi, structural.log_prob(series), model.log_prob(series)

    phi, nearly, exactly = map(np.asarray, answers(block, structural, series))
    # Levinson: φ_1 = r_1 (1 − r_2), φ_2 = r_2
    np.testing.assert_allclose(phi, [0.6 * 1.3, -0.3], atol=1e-12)
    peer = sm.tsa.SARIMAX(y, order=(2, 0, 0))
    expected = peer.loglike([*phi, 0.8])
    assert nearly == pytest.approx(expected, abs=1e-6)
    assert exactly == pytest.approx(expected, abs=1e-9)


def test_autoregression_by_em_is_least_squares():
    rng = np.random.default_rng(9)
    A = np.array([[0.5, 0.2], [-0.3, 0.4]])
    x = np.zeros((300, 2))
    for t in range(1, 300):
        x[t] = A @ x[t - 1] + rng.normal(size=2) * [1.0, 5.0]
    # each of two series has one transition less than steps
    fitted = fe.AutoRegression(1, learner=EM(tol=1e-10)).fit([x[:140], x[140:]])
    before, after = (np.delete(part, 139, axis=0) for part in (x[:-1], x[1:]))
    z = np.column_stack([before, np.ones(298)])
    W = np.linalg.lstsq(z, after, rcond=None)[0].T
    np.testing.assert_allclose(fitted.coefficients_[0], W[:, :2], atol=1e-6)
    residual = after - z @ W.T
    np.testing.assert_allclose(fitted.noise_covariance_, residual.T @ residual / 298, rtol=1e-4)
    ahead = fitted.forecast(x, 2, level=0.95)
    np.testing.assert_allclose(ahead.mean[0], W @ [*x[-1], 1], rtol=1e-6, atol=1e-6)
    width = (ahead.high - ahead.low)[0] / 2
    np.testing.assert_allclose(width, 1.959964 * np.sqrt(np.diag(fitted.noise_covariance_)), rtol=1e-4)
    assert ((ahead.high - ahead.low)[1] >= (ahead.high - ahead.low)[0]).all()


@pytest.mark.slow
def test_structural_estimator_reaches_the_likelihood_of_statsmodels():
    rng = np.random.default_rng(10)
    level = np.cumsum(rng.normal(size=(80, 2)) * [1.0, 30.0], axis=0)
    y = level + rng.normal(size=(80, 2)) * [2.0, 10.0]
    fitted = fe.StructuralTimeSeries(Level(), tol=1e-5).fit(y)
    best = 0.0
    for column in y.T:
        peer = sm.tsa.UnobservedComponents(column, "llevel", use_exact_diffuse=True)
        best += peer.fit(disp=0).llf
    assert -fitted.history_["objective"][-1] * 80 == pytest.approx(best, abs=1e-2)
    parts = fitted.decompose(y)
    assert all(isinstance(part, fe.estimators.Component) for part in parts.values())
    assert set(parts) == {"Level"}
    assert np.abs(parts["Level"].mean - level).mean(0)[0] < 1.5
    assert (parts["Level"].std > 0).all()
    assert isinstance(fitted.model_, Columns)
    # a new start is a density: evidence of the sample near its own mean evidence
    assert np.isfinite(fitted.score(fitted.sample(2, 0, length=30)))


def switching():
    one = jnp.ones((2, 1, 1))
    systems = LinearGaussianSSM(
        jnp.zeros((2, 1)),
        Full(one),
        jnp.array([[[0.95]], [[0.2]]]),
        jnp.zeros((2, 1)),
        Full(jnp.array([[[0.1]], [[4.0]]])),
        one,
        jnp.zeros((2, 1)),
        Full(0.1 * one),
    )
    return SwitchingLinearSystem(jnp.array([0.6, 0.4]), jnp.array([[0.9, 0.1], [0.2, 0.8]]), systems)


@pytest.mark.slow
def test_switching_system_is_exact_for_two_steps_and_close_later():
    model = switching()
    y = np.array([[0.3], [-1.0], [2.0], [1.5]])

    def enumerate_paths(length):
        total = -np.inf
        for path in np.ndindex(*(2,) * length):
            weight = math.log(model.initial[path[0]])
            weight += sum(math.log(model.transition[i, j]) for i, j in itertools.pairwise(path))
            A = np.array([float(model.systems.transition[s, 0, 0]) for s in path])
            Q = np.array(
                [float(model.systems.noise.matrix()[s, 0, 0]) if k else 1.0 for k, s in enumerate(path)]
            )
            L = np.array(
                [[np.prod(A[j + 1 : i + 1]) if j <= i else 0 for j in range(length)] for i in range(length)]
            )
            V = L @ np.diag(Q) @ L.T + 0.1 * np.eye(length)
            law = stats.multivariate_normal(np.zeros(length), V)
            total = np.logaddexp(total, weight + law.logpdf(y[:length, 0]))
        return total

    evidence = np.cumsum(model.step_evidence(one_series(jnp.asarray(y))))
    # merging starts to matter with the third step
    assert evidence[1] == pytest.approx(enumerate_paths(2), abs=1e-10)
    assert evidence[3] == pytest.approx(enumerate_paths(4), abs=0.05)
    smoothed = model.smooth(one_series(jnp.asarray(y)))
    np.testing.assert_allclose(np.exp(smoothed.log_weight).sum(1), 1, atol=1e-9)


@pytest.mark.slow
def test_one_regime_is_a_linear_system():
    model = switching()
    alone = jax.tree.map(lambda a: a[:1] if hasattr(a, "ndim") else a, model.systems)
    single = SwitchingLinearSystem(jnp.ones(1), jnp.ones((1, 1)), alone)
    y = np.random.default_rng(11).normal(size=(8, 1))
    y[2] = np.nan
    series = one_series(jnp.asarray(y))
    plain = single._system(jnp.asarray(0))
    assert float(single.estimated_log_prob(series)) == pytest.approx(
        float(plain.log_prob(series)), abs=1e-10
    )
    np.testing.assert_allclose(single.complete_mean(series), plain.complete_mean(series), atol=1e-10)
    keys = jax.random.split(jax.random.key(0), 2000)
    draws = jax.jit(jax.vmap(lambda k: single.complete_sample(series, key=k)[2, 0]))(keys)
    error = (draws.mean() - plain.complete_mean(series)[2, 0]) / draws.std() * math.sqrt(2000)
    assert abs(float(error)) < 4.5
    values = jax.jit(jax.vmap(lambda k: single.sample(3, key=k)[:, 0]))(keys)
    ahead = plain.predicted(one_series(jnp.full((3, 1), jnp.nan)))
    ratio = values.var(0) / ahead.covariance[:, 0, 0]
    assert np.abs(ratio - 1).max() < 4.5 * math.sqrt(2 / 2000)
    np.testing.assert_allclose(single.predicted(series).mean, plain.predicted(series).mean, atol=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_linear_system_as_estimator():
    truth = system(1, 3, noise=Diagonal(jnp.full(3, 0.1)))
    draw = jax.jit(jax.vmap(lambda k: truth.sample(40, key=k)))
    X = 100 + 50 * np.asarray(draw(jax.random.split(jax.random.key(3), 12)))
    fitted = fe.LinearGaussianSSM(1, random_state=0, max_iter=60, tol=1e-4).fit(X[:8])
    flat = fe.GaussianDensity().fit(X[:8].reshape(-1, 3))
    log_prob = jax.jit(lambda z: truth.log_prob(one_series(z)))
    best = np.mean([float(log_prob(jnp.asarray(z))) for z in (X[8:] - 100) / 50]) / 40 - 3 * math.log(50)
    assert flat.score(X[8:].reshape(-1, 3)) + 0.01 < fitted.score(X[8:]) < best
    assert fitted.score(X[8:]) == pytest.approx(best, abs=0.05)
    assert fitted.evidence(X[8:]).kind is fe.Kind.EXACT
    np.testing.assert_allclose(
        fitted.step_evidence(X[8:]).reshape(4, 40).sum(1), fitted.score_samples(X[8:])
    )
    assert fitted.filter(X[0]).mean.shape == fitted.smooth(X[0]).mean.shape == (40, 1)
    tighter = fitted.smooth(X[0]).covariance[5, 0, 0] <= fitted.filter(X[0]).covariance[5, 0, 0] + 1e-12
    assert tighter
    holes = X[0].copy()
    holes[10:12] = np.nan
    filled = fitted.impute(holes)
    np.testing.assert_array_equal(filled[:10], X[0][:10])
    assert np.isfinite(filled).all()
    covered = fitted.forecast(X[8:, :30], 10, level=0.9)
    assert isinstance(covered, fe.Forecast)
    inside = (covered.low < X[8:, 30:]) & (X[8:, 30:] < covered.high)
    assert 0.75 < inside.mean() < 1.0
    assert fitted.transition_.shape == (1, 1)
    assert fitted.emission_.shape == (3, 1)
    assert np.diag(fitted.emission_noise_).min() > 0
    with pytest.raises(ValueError, match=r"'steps' of LinearGaussianSSM\.forecast must be an int in the"):
        fitted.forecast(X[0], 0)
    with pytest.raises(ValueError, match="'level' parameter of forecast must be a float in the"):
        fitted.forecast(X[0], 1, level=1.0)
    with pytest.raises(ValueError, match=r"'n_latent' parameter of LinearGaussianSSM must be an int"):
        fe.LinearGaussianSSM(0).fit(X[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_switching_estimator_finds_the_noisy_stretch():
    rng = np.random.default_rng(13)
    quiet, loud = 0.1 * rng.normal(size=(60, 1)), 3 * rng.normal(size=(60, 1))
    X = np.concatenate([quiet, loud, quiet[::-1]])
    fitted = fe.SwitchingLinearSystem(2, max_iter=60).fit(X)
    assert fitted.evidence(X).kind is fe.Kind.ESTIMATE
    p = fitted.predict_proba(X)
    first, second = p[:60].mean(0), p[60:120].mean(0)
    assert np.abs(first - second).max() > 0.8
    ahead = fitted.forecast(X, 2)
    assert (ahead.low < ahead.mean).all()
    assert np.isfinite(fitted.sample(2, 0, length=10)).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_linear_system_with_controls(tmp_path):
    rng = np.random.default_rng(15)
    series, inputs = [], []
    for length in (40, 28):
        u, x, y = rng.normal(size=(length, 1)), np.zeros(1), []
        for t in range(length):
            x = 0.7 * x + 2.0 * u[t] + 0.3 * rng.normal(size=1)
            y.append([5 + x[0], -x[0]] + 0.2 * rng.normal(size=2))
        series.append(np.array(y))
        inputs.append(u)
    fitted = fe.LinearGaussianSSM(1, random_state=0, max_iter=60).fit(series, inputs=inputs)
    # how the input acts on y at once and a step later is the same for every scale of the state
    at_once = fitted.emission_ @ fitted.input_transition_ + fitted.input_emission_
    later = fitted.emission_ @ fitted.transition_ @ fitted.input_transition_
    np.testing.assert_allclose(at_once[:, 0], [2, -2], atol=0.25)
    np.testing.assert_allclose(later[:, 0], [1.4, -1.4], atol=0.25)
    plain = fe.LinearGaussianSSM(1, random_state=0, max_iter=60).fit(series)
    assert fitted.score(series, inputs=inputs) > plain.score(series) + 0.5
    future = np.array([[1.0], [0.0]])
    ahead = fitted.forecast(series[0], 2, inputs=inputs[0], future_inputs=future)
    still = fitted.forecast(series[0], 2, inputs=inputs[0], future_inputs=0 * future)
    np.testing.assert_allclose((ahead.mean - still.mean)[0], at_once[:, 0], rtol=1e-8)
    np.testing.assert_allclose((ahead.mean - still.mean)[1], later[:, 0], rtol=1e-8)
    np.testing.assert_allclose(ahead.high - ahead.low, still.high - still.low, rtol=1e-9)
    assert [m.shape for m in fitted.smooth(series, inputs=inputs).mean] == [(40, 1), (28, 1)]
    np.testing.assert_allclose(
        fitted.filter(series, inputs=inputs).mean[1][-1], fitted.smooth(series, inputs=inputs).mean[1][-1]
    )
    fitted.save(tmp_path / "controls")
    again = fe.load(tmp_path / "controls")
    np.testing.assert_array_equal(
        again.score_samples(series, inputs=inputs), fitted.score_samples(series, inputs=inputs)
    )
    with pytest.raises(ValueError, match="LinearGaussianSSM was fitted with inputs and needs the 'inputs'"):
        fitted.smooth(series)
    with pytest.raises(AttributeError, match="LinearGaussianSSM was fitted without inputs"):
        _ = plain.input_emission_


def test_an_autoregression_with_more_parameters_than_numbers_is_refused_at_once():
    x = np.random.default_rng(0).normal(size=(114, 1))
    x[5] = np.nan
    with pytest.raises(ValueError, match=r"p=200 has 202 free parameters, more than .* numbers, 113"):
        fe.AutoRegression(200).fit(x)
    with pytest.raises(ValueError, match=r"p=1 has 9 free parameters, more than .* numbers, 8"):
        fe.AutoRegression(1).fit(x[6:10].reshape(2, 2).repeat(2, axis=0) + np.arange(8).reshape(4, 2))
    with pytest.raises(ValueError, match=r"p=110 has 114 free parameters, more than .* numbers, 113"):
        fe.AutoRegression(110).fit(x, inputs=np.arange(228.0).reshape(114, 2))


@pytest.mark.slow
def test_autoregression_with_inputs_is_least_squares():
    rng = np.random.default_rng(16)
    u, x = 100 + 10 * rng.normal(size=(200, 1)), np.zeros((200, 2))
    for t in range(1, 200):
        x[t] = np.array([[0.5, 0.2], [-0.3, 0.4]]) @ x[t - 1] + [0.1, -0.2] * u[t] + rng.normal(size=2)
    fitted = fe.AutoRegression(1, tol=1e-10).fit(x, inputs=u)
    z = np.column_stack([x[:-1], u[1:], np.ones(199)])
    W = np.linalg.lstsq(z, x[1:], rcond=None)[0].T
    np.testing.assert_allclose(fitted.coefficients_[0], W[:, :2], atol=1e-6)
    np.testing.assert_allclose(fitted.input_coefficients_[:, 0], W[:, 2], atol=1e-6)
    ahead = fitted.forecast(x, 1, inputs=u, future_inputs=[[90.0]])
    np.testing.assert_allclose(ahead.mean[0], W @ [*x[-1], 90.0, 1], rtol=1e-6)
    # a series that counts twice is there twice
    halves, pushes = [x[:100], x[100:160]], [u[:100], u[100:160]]
    weighted = fe.AutoRegression(1).fit(halves, inputs=pushes, series_weight=[1, 2])
    repeated = fe.AutoRegression(1).fit([*halves, halves[1]], inputs=[*pushes, pushes[1]])
    np.testing.assert_allclose(weighted.coefficients_, repeated.coefficients_, atol=1e-7)
    np.testing.assert_allclose(
        weighted.history_["objective"][-1], repeated.history_["objective"][-1], rtol=1e-8
    )


@pytest.mark.slow
def test_structural_regressors_reach_the_likelihood_of_statsmodels():
    rng = np.random.default_rng(17)
    u = 50 + 20 * rng.normal(size=(83, 1))
    y = np.cumsum(rng.normal(size=83)) + 0.3 * u[:, 0] + 2 * rng.normal(size=83)
    fitted = fe.StructuralTimeSeries(Level() + Regressors(1), tol=1e-5).fit(y[:80, None], inputs=u[:80])
    peer = sm.tsa.UnobservedComponents(
        y[:80], "llevel", exog=u[:80], mle_regression=False, use_exact_diffuse=True
    )
    result = peer.fit(disp=0)
    assert -fitted.history_["objective"][-1] * 80 == pytest.approx(result.llf, abs=1e-2)
    parts = fitted.decompose(y[:80, None], inputs=u[:80])
    assert set(parts) == {"Level", "Regressors"}
    ahead = fitted.forecast(y[:80, None], 3, inputs=u[:80], future_inputs=u[80:])
    np.testing.assert_allclose(ahead.mean[:, 0], result.forecast(3, exog=u[80:]), atol=0.1)
    assert fitted.sample(2, 0, inputs=u[:5]).shape == (2, 5, 1)
    with pytest.raises(ValueError, match=r"as many inputs as fit is given. Got \[1\] and 0 inputs"):
        fe.StructuralTimeSeries(Level() + Regressors(1)).fit(y[:, None])
    with pytest.raises(ValueError, match=r"Got \[\] and 1 inputs"):
        fe.StructuralTimeSeries().fit(y[:, None], inputs=u)


class Interruption(AbstractProgress):
    """Ctrl-C after some iterations."""

    def start(self):
        pass

    def update(self, n_iter, metrics):
        if n_iter > 0:
            raise KeyboardInterrupt

    def stop(self):
        pass


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(fe.HMM(2, tol=0.0, max_iter=30, random_state=0), marks=pytest.mark.slow),
        fe.LinearGaussianSSM(1, max_iter=30, tol=0.0, random_state=0),
        pytest.param(fe.AutoRegression(1, max_iter=30, tol=0.0), marks=pytest.mark.slow),
        pytest.param(fe.StructuralTimeSeries(max_iter=12, tol=0.0), marks=pytest.mark.slow),
        pytest.param(fe.SwitchingLinearSystem(max_iter=12, tol=0.0), marks=pytest.mark.slow),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_was_stopped_goes_on_from_its_checkpoint(estimator, tmp_path, monkeypatch):
    whole = clone(estimator).fit(HOLES)
    kept = clone(estimator).set_params(checkpoint=str(tmp_path / "fit"))
    with monkeypatch.context() as patched:
        patched.setattr(type(kept), "_progress", lambda self, **_: lambda total: Interruption())
        with pytest.raises(KeyboardInterrupt):
            kept.fit(HOLES)
    assert 0 < kept.n_iter_ < whole.n_iter_
    kept.fit(HOLES)
    np.testing.assert_array_equal(kept.history_["objective"], whole.history_["objective"])
    np.testing.assert_array_equal(kept.score_samples(HOLES), whole.score_samples(HOLES))
    with pytest.raises(ValueError, match="belongs to another fit"):
        kept.fit(SERIES)
    if isinstance(kept, fe.HMM):
        known = [np.zeros(len(x), int) for x in HOLES]
        with pytest.raises(ValueError, match="belongs to another fit"):
            kept.fit(HOLES, states=known)


@eqx.filter_jit
def matrices(model):
    system = model.system()
    noises = system.noise.matrix(), system.initial_covariance.matrix(), system.emission_noise.matrix()
    return system.transition, noises[0], system.emission, noises[1], system.diffuse, noises[2]


def dense_diffuse(model, y):
    """log p of the observed entries of y for a start with variance κ → ∞, and the mean of all given those.

    y = X δ + N(0, V): contrasts that δ does not enter have a proper law; the rest is universal kriging.
    """
    A, Q, h, V0, B, R = (np.asarray(a) for a in matrices(model))
    length, (m, n) = len(y), h.shape
    cause, X, spread = np.zeros((length, m, length * n)), [], [V0] + [Q] * (length - 1)
    state, direction = np.zeros((n, length * n)), B
    for t in range(length):
        if t:
            state, direction = A @ state, A @ direction
        state[:, t * n : (t + 1) * n] += np.eye(n)
        cause[t] = h @ state
        X.append(h @ direction)
    cause, X = cause.reshape(length * m, -1), np.concatenate(X)
    R = np.kron(np.eye(length), R)
    V = cause @ linalg.block_diag(*spread) @ cause.T + R
    y = y.ravel()
    seen = ~np.isnan(y)
    U, size, _ = np.linalg.svd(X[seen])
    K, d = U[:, len(size) :], len(size)
    contrasts = stats.multivariate_normal(np.zeros(K.shape[1]), K.T @ V[np.ix_(seen, seen)] @ K)
    total = contrasts.logpdf(K.T @ y[seen]) - np.log(size).sum() - d / 2 * np.log(2 * np.pi)
    table = np.block([[V[np.ix_(seen, seen)], X[seen]], [X[seen].T, np.zeros((d, d))]])
    weights = np.linalg.solve(table, np.concatenate([V[seen], X.T]))[: seen.sum()]
    return total, (weights.T @ y[seen]).reshape(length, m)


def test_diffuse_start_of_a_series_without_noise():
    """A random walk seen exactly has independent steps; what is nearly exact is nearly that."""
    unemployment = sm.datasets.macrodata.load_pandas().data["unemp"].to_numpy()
    series = one_series(on_device(unemployment[:, None]))
    value_and_slopes = jax.jit(
        jax.value_and_grad(lambda v: Structural((Level(v[0]),), v[1]).log_prob(series))
    )
    steps = stats.norm.logpdf(np.diff(unemployment), scale=math.sqrt(0.118)).sum()
    # KFAS has −70.9677 at its estimate of the variance, without 2π for a start that is not known
    assert steps == pytest.approx(-70.9677, abs=3e-4)
    expected = steps - 0.5 * math.log(2 * math.pi)
    # the derivative of Σ log N(Δy; 0, V) in the noise, V = vI + r(2 on the diagonal, −1 beside it)
    walk = np.diff(unemployment)
    change = 2 * np.eye(len(walk)) - np.eye(len(walk), k=1) - np.eye(len(walk), k=-1)
    slope = walk @ change @ walk / (2 * 0.118**2) - len(walk) / 0.118
    for noise in (0.0, 1e-300, 1e-16, 1e-12):
        value, slopes = map(np.asarray, value_and_slopes(np.array([0.118, noise])))
        assert float(value) == pytest.approx(expected, abs=1e-8)
        assert float(slopes[1]) == pytest.approx(slope, rel=1e-6)
        assert float(slopes[0]) == pytest.approx(walk @ walk / (2 * 0.118**2) - len(walk) / 0.236, rel=1e-6)
    assert float(value_and_slopes(np.array([0.118, 1e-8]))[0]) == pytest.approx(
        expected + 1e-8 * slope, abs=1e-9
    )


@pytest.mark.parametrize("season", [(), (Seasonal(3, 0.0),)])
def test_diffuse_trend_without_noise_equals_dense_algebra(season):
    y = np.cumsum(np.cumsum(np.random.default_rng(11).normal(size=24)))[:, None]
    y[[0, 3, 4, 20]] = np.nan
    series = one_series(on_device(y))

    def make(variances):
        return Structural((Trend(variances[0], variances[1]), *season), variances[2])

    value_and_slopes = jax.jit(jax.value_and_grad(lambda v: make(v).log_prob(series)))
    for variances in ([0.0, 0.5, 0.0], [0.4, 0.0, 0.0], [0.0, 0.5, 1e-14], [0.3, 0.2, 0.1]):
        v = np.array(variances)
        expected, mean = dense_diffuse(make(v), y)
        value, slopes = map(np.asarray, value_and_slopes(v))
        assert float(value) == pytest.approx(expected, abs=1e-7)
        np.testing.assert_allclose(fill(make(v), series), mean, atol=1e-7)
        for i in range(3):
            # a variance cannot be less than zero: three points on one side are as good as two around
            width = 1e-4
            points = [dense_diffuse(make(v + width * k * np.eye(3)[i]), y)[0] for k in (0, 1, 2, 3)]
            difference = np.dot([-11 / 6, 3, -3 / 2, 1 / 3], points) / width
            assert float(slopes[i]) == pytest.approx(difference, rel=1e-4, abs=1e-5)


def test_diffuse_vector_autoregression_without_noise():
    rng = np.random.default_rng(12)
    A, Q = np.array([[0.9, 0.3], [-0.2, 0.7]]), np.array([[1.0, 0.4], [0.4, 0.5]])
    y = np.cumsum(rng.normal(size=(12, 2)), axis=0)
    y[3, 0], y[5] = np.nan, np.nan
    for noise in (0.0, 1e-14):
        none, same = np.zeros(2), np.eye(2)
        parts = none, 0 * same, A, none, Q, same, none, noise * same, same
        start, V0, A_, b, Q_, C, mean, R, diffuse = map(on_device, parts)
        model = LinearGaussianSSM(start, Full(V0), A_, b, Full(Q_), C, mean, Full(R), diffuse=diffuse)
        expected, mean = dense_diffuse(model, y)
        series = one_series(on_device(y))
        assert float(log_prob(model, series)) == pytest.approx(expected, abs=1e-8)
        np.testing.assert_allclose(fill(model, series), mean, atol=1e-8)
    drawn = jax.jit(jax.vmap(lambda k: model.complete_sample(series, key=k)))
    paths = np.asarray(drawn(jax.random.split(jax.random.key(0), 2000)))
    spread = paths[:, 5].std(axis=0) / math.sqrt(2000)
    np.testing.assert_allclose(paths[:, 5].mean(axis=0), mean[5], atol=4.5 * spread.max())
    np.testing.assert_allclose(paths[0, 4], y[4], atol=1e-6)


def test_what_no_value_tells_stays_unknown():
    """Two levels of which only the sum is seen: infinite variances, no draw, and an evidence of the sum."""
    series = one_series(on_device(np.cumsum(np.random.default_rng(13).normal(size=12))[:, None]))
    both, one = Structural((Level(0.3), Level(0.4)), 0.1), Structural((Level(0.7),), 0.1)
    # δ_1 + δ_2 has twice the variance of δ
    expected = float(log_prob(one, series)) - 0.5 * math.log(2)
    assert float(log_prob(both, series)) == pytest.approx(expected, abs=1e-9)

    @jax.jit
    def states(model):
        system = model.system()
        return system.smooth(series).marginals, system.sample_states(series, key=jax.random.key(0))

    smoothed, drawn = states(both)
    assert np.isinf(np.diagonal(smoothed.covariance, axis1=1, axis2=2)).all()
    assert np.isnan(drawn).all()


def test_structural_fits_with_variances_of_zero():
    """A smooth trend is a trend without noise of its level; draws start where the series did."""
    unemployment = sm.datasets.macrodata.load_pandas().data["unemp"].to_numpy()[:, None]
    fitted = fe.StructuralTimeSeries(Structural((Trend(0.0, 0.01),), 0.5), tol=1e-4).fit(unemployment)
    peer = sm.tsa.UnobservedComponents(unemployment[:, 0], "strend", use_exact_diffuse=True).fit(disp=0)
    assert -fitted.history_["objective"][-1] * len(unemployment) == pytest.approx(peer.llf, abs=1e-4)
    assert float(fitted.model_.models.blocks[0].level_variance[0]) == 0
    assert np.isfinite(fitted.score_samples(unemployment)).all()
    # the level and slope that the first values had, and what the fit says of them
    result = peer.model.smooth(peer.params)
    first = fitted.sample(4000, random_state=0, length=2)[:, :, 0]
    spread = math.sqrt(result.smoothed_state_cov[0, 0, 0] + peer.params[0])
    assert first[:, 0].mean() == pytest.approx(
        result.smoothed_state[0, 0], abs=4.5 * spread / math.sqrt(4000)
    )
    assert first[:, 0].std() == pytest.approx(spread, rel=0.06)
    assert np.diff(first).mean() == pytest.approx(result.smoothed_state[1, 0], abs=0.03)
    wrong = fe.StructuralTimeSeries(Cycle(6.0, 1.0))
    with pytest.raises(
        ValueError, match=r"numbers in the 'blocks' parameter .* in the open unit interval. Got 1.0"
    ):
        wrong.fit(unemployment)
    with pytest.raises(ValueError, match="must have a variance above zero, or there is nothing to fit"):
        fe.StructuralTimeSeries(Structural((Level(0.0),), 0.0)).fit(unemployment)


def test_a_series_that_its_diffuse_start_takes_whole_is_refused():
    blocks = Structural((Trend(), Seasonal(12)), 0.5)
    x = np.arange(20.0)[:, None] % 7
    x[3:9] = np.nan
    # a level, a slope and eleven effects of the season
    sentence = r"starts from 13 unknown numbers, .* 14 observed values or more .* Got {} in column 0"
    for few, observed in ((x[:6], 3), (x[:19], 13), ([x[:19], x[:15]], 13)):
        with pytest.raises(ValueError, match=sentence.format(observed)):
            fe.StructuralTimeSeries(blocks).fit(few)
    # the diffuse likelihood of as many values as are unknown is that of no value: a constant
    for scale in (1.0, 3.0):
        model = Structural((Trend(), Seasonal(3)), 0.5)
        score = log_prob(model, one_series(on_device(scale * np.arange(4.0)[:, None] ** 2)))
        nothing = log_prob(model, one_series(on_device(np.zeros((4, 1)))))
        assert float(score) == pytest.approx(float(nothing), abs=1e-9)


@pytest.mark.parametrize("value", [3.0, 1e16])
def test_structural_fit_of_a_constant_column_is_bounded_and_told(value):
    # the second is constant once it is a float
    x = value + np.where(np.arange(40) % 2, 0.1, 0.0)[:, None] * (value > 3)
    with pytest.warns(ConvergenceWarning, match="column 0 of X is constant, so that no variance"):
        fitted = fe.StructuralTimeSeries().fit(x)
    # no more than the density of the smallest variance of a column, at its mean
    most = stats.norm.logpdf(0, scale=1e-3 * value)
    assert most - 0.5 < fitted.score(x) < most
    assert np.abs(fitted.sample(50, random_state=0) / value - 1).max() < 0.02


def test_other_fits_of_a_constant_column_are_bounded_and_told():
    x = np.full((40, 1), 3.0)
    # the smallest standard deviation of a column is a thousandth of it
    most = stats.norm.logpdf(0, scale=3e-3)
    switching = fe.SwitchingLinearSystem(2, 1, max_iter=20, random_state=0)
    for estimator in (fe.HMM(2, random_state=0), fe.LinearGaussianSSM(1, random_state=0), switching):
        with pytest.warns(ConvergenceWarning) as told:
            estimator.fit(x)
        assert "column 0 of X is constant, so that no variance" in str(told[0].message)
        assert most - 0.5 < estimator.score(x) < most + 1e-9
    # far steps leave probabilities that are some, to the last digit
    far = switching.predict_proba(x + np.linspace(0, 1e5, 40)[:, None])
    assert ((far >= 0) & (far <= 1)).all()
    np.testing.assert_allclose(far.sum(axis=1), 1, rtol=1e-15)
    # a step that cannot occur makes the series impossible, and its regimes unknown
    x[5] = 1e300
    assert np.isneginf(switching.step_evidence(x)).tolist() == [False] * 5 + [True] * 35
    for ask in (switching.predict_proba, switching.forecast):
        with pytest.raises(
            ValueError, match=r"SwitchingLinearSystem.\w+ has no answer .* 0 of X: its step 5 "
        ):
            ask(x)


def test_a_score_that_is_no_number_is_refused():
    fitted = fe.StructuralTimeSeries().fit(np.arange(40.0)[:, None] % 7)
    broken = jax.tree.map(lambda a: a * jnp.nan, fitted.model_)
    fitted.model_ = broken
    with pytest.raises(ValueError, match=r"StructuralTimeSeries.evidence has no answer for series 0 of X"):
        fitted.score_samples(np.arange(40.0)[:, None] % 7)
    with pytest.raises(ValueError, match=r"StructuralTimeSeries.forecast has no answer for series 0 of X"):
        fitted.forecast(np.arange(40.0)[:, None] % 7)


# the peer stops where differences of its likelihood are rounding errors, and warns
@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
def test_autoregression_has_the_largest_exact_likelihood():
    """statsmodels gives the same likelihood at the same parameters, and finds no better ones."""
    spots = sm.datasets.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy()
    holes = np.where(np.isin(np.arange(len(spots)), [0, 5, 6, 50]), np.nan, spots)
    for y in (spots, holes):
        fitted = fe.AutoRegression(2).fit(y[:, None])
        assert fitted.converged_
        phi, noise = fitted.coefficients_[:, 0, 0], fitted.noise_covariance_[0, 0]
        mean = fitted.scaling_.invert(np.asarray(fitted.model_.start_mean[:1]))[0]
        peer = sm.tsa.SARIMAX(y, order=(2, 0, 0), trend="c")
        score = fitted.score_samples(y[:, None])[0]
        assert score == pytest.approx(peer.loglike([mean * (1 - phi.sum()), *phi, noise]), abs=1e-6)
        assert score > peer.fit(disp=0, maxiter=1000, pgtol=1e-10, factr=10.0).llf - 1e-6


def test_vector_autoregression_has_the_largest_exact_likelihood():
    rng = np.random.default_rng(15)
    y = np.zeros((40, 2))
    for t in range(1, 40):
        y[t] = [[0.7, 0.3], [-0.4, 0.5]] @ y[t - 1] + rng.normal(size=2) * [1.0, 20.0]
    fitted = fe.AutoRegression(1).fit(y)
    phi, Q = fitted.coefficients_[0], fitted.noise_covariance_
    mean = fitted.scaling_.invert(np.asarray(fitted.model_.start_mean))

    def dense(mean, phi, Q):
        variance = linalg.solve_discrete_lyapunov(phi, Q)
        powers = [np.linalg.matrix_power(phi, k) @ variance for k in range(40)]
        V = np.block([[powers[i - j] if i >= j else powers[j - i].T for j in range(40)] for i in range(40)])
        return stats.multivariate_normal(np.tile(mean, 40), V).logpdf(y.ravel())

    score = fitted.score_samples(y)[0]
    assert score == pytest.approx(dense(mean, phi, Q), abs=1e-7)
    # no step in any direction is better: slopes are zero, to the accuracy of differences
    for index in np.ndindex(2, 2):
        for size in (1e-4, -1e-4):
            moved = phi.copy()
            moved[index] += size * [1, 20][index[0]] / [1, 20][index[1]]
            assert dense(mean, moved, Q) < score + 1e-9
    assert dense(mean, phi, 1.001 * Q) < score > dense(mean, phi, 0.999 * Q)
    step = np.array([0.01, 0.0])
    assert dense(mean + step, phi, Q) < score > dense(mean - step, phi, Q)
