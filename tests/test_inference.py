"""Enumeration, argmin, importance sampling, Markov chains and annealing against independent numbers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, optimize, stats

from freeenergy import Evidence, Kind, inference
from freeenergy._core import boltzmann
from freeenergy.distributions import Bernoulli, entropy
from freeenergy.inference import (
    Damped,
    Descent,
    Exhaustive,
    Extrapolated,
    FixedPoint,
    ProximalGradient,
    QuasiNewton,
    annealed_importance,
    binary_states,
    block_gibbs,
    effective_sample_size,
    geometric_path,
    importance_estimate,
    linear_schedule,
    log_partition_by_enumeration,
    minimise,
    posterior_by_enumeration,
    reverse_annealed_importance,
    run_chain,
    sandwich,
    self_normalised_mean,
    sigmoid_schedule,
)
from freeenergy.inference._enumerate import binary_state
from freeenergy.inference._recognition import PointMass
from freeenergy.models import Harmonium, Units

_estimate = jax.jit(importance_estimate)
_estimates = jax.jit(jax.vmap(importance_estimate))
_free_energy = jax.jit(boltzmann)
_free_energy_slope = jax.jit(jax.grad(lambda e, t: boltzmann(e, t)[0], argnums=(0, 1)))

COUPLING = np.array([[0.0, 1.2, -0.7], [1.2, 0.0, 0.9], [-0.7, 0.9, 0.0]])
FIELD = np.array([0.3, -0.8, 0.5])


def ising(s):
    return -0.5 * (s @ jnp.asarray(COUPLING, s.dtype) @ s) - s @ jnp.asarray(FIELD, s.dtype)


def ising_table():
    """States and their log-weights, by loops."""
    states = list(itertools.product([0, 1], repeat=3))
    logs = [
        sum(COUPLING[i, j] * s[i] * s[j] for i in range(3) for j in range(i)) + sum(FIELD * np.array(s))
        for s in states
    ]
    return np.array(states, float), np.array(logs)


def test_boltzmann_gradient_is_its_distribution_even_with_impossible_states():
    for energies in ([1.0, 2.0, 3.0], [1.0, 1.0, 3.0], [2.0, np.inf, 2.5]):
        e = np.array(energies)
        for temperature in (0.0, 0.3, 1.0):
            free, p = _free_energy(e, temperature)
            gradient, _ = _free_energy_slope(e, temperature)
            np.testing.assert_allclose(gradient, p, atol=1e-15)
            assert np.isfinite(free)
    assert float(_free_energy(np.array([2.0, np.inf, np.inf]), 0.0)[0]) == 2.0
    # dF/dT = −H
    entropy = stats.entropy([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))])
    _, slope = _free_energy_slope(np.array([1.0, 2.0]), 1.0)
    np.testing.assert_allclose(slope, -entropy, rtol=1e-12)
    # impossible states have no part in it, nor has an event all of whose states are impossible a NaN
    e, h = np.array([2.0, np.inf, 2.5]), 1e-5
    for temperature in (0.01, 0.3, 1.0):
        change = _free_energy(e, temperature + h)[0] - _free_energy(e, temperature - h)[0]
        gradient, slope = _free_energy_slope(e, temperature)
        np.testing.assert_allclose(slope, change / (2 * h), rtol=1e-6, atol=1e-9)
        assert np.isfinite(gradient).all()
    assert not np.isnan(_free_energy_slope(np.full(3, np.inf), 1.0)[1])


def test_binary_states_are_all_different_and_complete():
    states = np.asarray(binary_states(4))
    assert {tuple(s) for s in states.astype(int)} == set(itertools.product([0, 1], repeat=4))
    np.testing.assert_array_equal(binary_state(5, 4, jnp.float32), [1, 0, 1, 0])
    assert binary_states(2, jnp.float32).dtype == jnp.float32


def test_enumeration_against_loops():
    states, logs = ising_table()
    exact = np.log(np.sum(np.exp(logs)))
    for size in (3, 1024):
        found = log_partition_by_enumeration(ising, binary_states(3), batch_size=size)
        np.testing.assert_allclose(found, exact, rtol=1e-14)
    by_number = log_partition_by_enumeration(lambda i: ising(binary_state(i, 3)), jnp.arange(8))
    np.testing.assert_allclose(by_number, exact, rtol=1e-14)
    posterior = posterior_by_enumeration(ising, jnp.asarray(states))
    np.testing.assert_allclose(posterior.probabilities, np.exp(logs - exact), rtol=1e-13)
    cold = posterior_by_enumeration(ising, jnp.asarray(states), temperature=0.0)
    np.testing.assert_array_equal(cold.probabilities, np.arange(8) == np.argmax(logs))


def test_the_least_of_finitely_many_points():
    states, logs = ising_table()
    best = minimise(ising, jnp.asarray(states), Exhaustive())
    np.testing.assert_array_equal(best.point, states[np.argmax(logs)])
    np.testing.assert_allclose(best.energy, -np.max(logs), rtol=1e-14)
    assert best.converged


def _rosenbrock(z):
    return 100 * (z[1] - z[0] ** 2) ** 2 + (1 - z[0]) ** 2


def test_quasi_newton_finds_the_valley_under_jit_and_vmap():
    starts = jnp.array([[-1.2, 1.0], [3.0, -2.0], [1.0, 1.0]])
    search = jax.jit(jax.vmap(lambda s: minimise(_rosenbrock, s, QuasiNewton())))
    found = search(starts)
    np.testing.assert_allclose(found.point, np.ones((3, 2)), atol=1e-6)
    assert found.converged.all()
    single = search(starts.astype(jnp.float32))
    assert single.point.dtype == jnp.float32
    np.testing.assert_allclose(single.point, np.ones((3, 2)), atol=1e-3)


def test_quasi_newton_agrees_with_scipy_on_a_logistic_posterior():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)

    def numpy_energy(w):
        return np.sum(np.logaddexp(0, x @ w) - y * (x @ w)) + 0.5 * w @ w

    def energy(w):
        activation = jnp.asarray(x) @ w
        return jnp.sum(jnp.logaddexp(0.0, activation) - jnp.asarray(y, float) * activation) + 0.5 * w @ w

    expected = optimize.minimize(numpy_energy, np.zeros(3), method="Nelder-Mead", tol=1e-12)
    found = minimise(energy, jnp.zeros(3), QuasiNewton())
    np.testing.assert_allclose(found.point, expected.x, atol=1e-5)
    assert found.converged
    assert not minimise(energy, jnp.full(3, 5.0), QuasiNewton(max_steps=1)).converged


def test_quasi_newton_says_so_when_there_is_no_minimum():
    assert not minimise(lambda z: jnp.sum(jnp.log(z)), jnp.ones(1), QuasiNewton(max_steps=20)).converged


def _mixture_weights():
    """The E step and the energy of the weights of a mixture of known densities, by EM's closed form."""
    rng = np.random.default_rng(1)
    densities = jnp.asarray(rng.gamma(1.0, size=(30, 3)))

    def energy(w):
        return -jnp.sum(jnp.log(densities @ w))

    def update(w):
        joint = densities * w[None]
        return jnp.mean(joint / jnp.sum(joint, axis=1, keepdims=True), axis=0)

    return energy, update


def test_searches_that_know_an_update_end_where_scipy_does():
    energy, update = _mixture_weights()
    start = jnp.full(3, 1 / 3)
    expected = optimize.minimize(
        lambda v: float(energy(jnp.asarray(np.exp(v) / np.exp(v).sum()))),
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
    )
    best = np.exp(expected.x) / np.exp(expected.x).sum()
    searches = [
        FixedPoint(update, 1e-10),
        Extrapolated(update, 1e-10, lambda w: w > 0),
        Damped(lambda w: w + 3 * (update(w) - w), 1e-10),
    ]
    found = [jax.jit(lambda s=s: minimise(energy, start, s))() for s in searches]
    for one in found:
        assert one.converged
        np.testing.assert_allclose(one.point, best, atol=1e-5)
        np.testing.assert_allclose(one.energy, expected.fun, rtol=1e-9)
    # extrapolation is there sooner
    assert 3 * found[1].steps < found[0].steps


def test_a_proximal_gradient_and_a_descent_end_where_scipy_does():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(8, 3)), rng.normal(size=8)

    def smooth(z):
        return jnp.sum((jnp.asarray(a) @ z - jnp.asarray(b)) ** 2) / 2

    lasso = optimize.minimize(
        lambda z: np.sum((a @ z - b) ** 2) / 2 + np.abs(z).sum(),
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 8000},
    )
    shrink = lambda v, s: jnp.sign(v) * jnp.maximum(jnp.abs(v) - s, 0)  # noqa: E731
    length = jnp.asarray(1 / np.linalg.norm(a, 2) ** 2)
    found = minimise(smooth, jnp.zeros(3), ProximalGradient(shrink, length))
    assert found.converged
    np.testing.assert_allclose(found.point, lasso.x, atol=1e-5)
    least = minimise(
        smooth, jnp.zeros(3), Descent(optax.adam(optax.cosine_decay_schedule(0.1, 600)), max_steps=600)
    )
    np.testing.assert_allclose(least.point, np.linalg.lstsq(a, b)[0], atol=1e-5)
    assert int(least.steps) == 600


def test_naive_importance_weights_have_the_known_relative_variance():
    # z ~ N(0, 1), x | z ~ N(z, 1), x = 3; draws at even quantiles make the mean a quadrature
    z = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    weights = _estimate(stats.norm.logpdf(3, z))
    np.testing.assert_allclose(weights.log_mean, stats.norm.logpdf(3, scale=np.sqrt(2)), atol=1e-4)
    np.testing.assert_allclose(weights.stderr**2 * 100_000, 4.1750, atol=5e-3)
    np.testing.assert_allclose(weights.effective_sample_size, 100_000 / (1 + 4.1750), rtol=1e-3)


def test_importance_weights_of_the_exact_posterior_are_constant():
    z = np.random.default_rng(1).normal(1.5, np.sqrt(0.5), 50)
    log_weights = stats.norm.logpdf(3, z) + stats.norm.logpdf(z) - stats.norm.logpdf(z, 1.5, np.sqrt(0.5))
    estimate = _estimate(log_weights)
    np.testing.assert_allclose(log_weights, stats.norm.logpdf(3, scale=np.sqrt(2)), rtol=1e-12)
    np.testing.assert_allclose(estimate.effective_sample_size, 50, rtol=1e-12)
    assert float(estimate.stderr) < 1e-7


def test_importance_standard_error_covers_and_the_log_is_a_lower_bound():
    rng = np.random.default_rng(2)
    truth = stats.norm.logpdf(3, scale=np.sqrt(2))
    z = rng.normal(1.0, 1.0, size=(2000, 64))
    logs = stats.norm.logpdf(3, z) + stats.norm.logpdf(z) - stats.norm.logpdf(z, 1.0, 1.0)
    found = _estimates(logs)
    spread = np.std(found.log_mean)
    np.testing.assert_allclose(np.sqrt(np.mean(found.stderr**2)), spread, rtol=0.1)
    # E log w̄ grows with the number of draws and stays below log p(x)
    means = [np.mean(np.log(np.mean(np.exp(logs.reshape(-1, m)), axis=1))) for m in (1, 4, 64)]
    assert means[0] < means[1] < means[2] < truth
    assert np.isinf(_estimate(np.zeros(1)).stderr)


def test_importance_sampling_survives_extreme_logarithms():
    logs = np.array([0.0, 1.0, 2.0])
    near, far = _estimate(logs), _estimate(logs - 1e4)
    np.testing.assert_allclose(far.log_mean, near.log_mean - 1e4, rtol=1e-14)
    np.testing.assert_allclose(far.stderr, near.stderr, rtol=1e-10)
    size = jax.jit(effective_sample_size)
    np.testing.assert_allclose(size(logs + 1e4), size(logs), rtol=1e-10)


def test_self_normalised_mean_is_the_posterior_mean():
    z = np.random.default_rng(3).normal(size=20_000)
    # without its constant: only ratios count
    log_weights = -0.5 * (3 - z) ** 2
    values = np.stack([z, z**2], axis=1)
    mean, stderr = jax.jit(self_normalised_mean)(log_weights, values)
    # z | x = 3 is N(3/2, 1/2)
    np.testing.assert_array_less(np.abs(mean - np.array([1.5, 2.75])), 4 * stderr)
    assert np.all(stderr < 0.05)


def test_thinning_and_burn_in_of_an_autoregressive_chain():
    rho = 0.9

    def kernel(state, *, key):
        return rho * state + np.sqrt(1 - rho**2) * jax.random.normal(key)

    key = jax.random.key(0)
    thinned = run_chain(kernel, jnp.array(100.0), steps=20_000, burn_in=200, thin=5, key=key)
    assert abs(float(thinned[0])) < 6
    lag = np.corrcoef(thinned[:-1], thinned[1:])[0, 1]
    # the standard error of a correlation of n draws is about √((1 − r²)/n)
    assert abs(lag - rho**5) < 5 * np.sqrt((1 - rho**10) / 20_000)
    full = run_chain(kernel, jnp.array(100.0), steps=20, key=key)
    np.testing.assert_array_equal(
        run_chain(kernel, jnp.array(100.0), steps=3, burn_in=5, thin=4, key=key), full[8:17:4]
    )


def test_block_gibbs_of_a_correlated_normal():
    rho = 0.6

    def given(other):
        return lambda state, *, key: (
            rho * state[other] + np.sqrt(1 - rho**2) * jax.random.normal(key, state[other].shape)
        )

    x, y = run_chain(
        block_gibbs(given(1), given(0)),
        (jnp.zeros(50), jnp.zeros(50)),
        steps=500,
        burn_in=20,
        key=jax.random.key(1),
    )
    # the chain has lag-one correlation ρ² = 0.36 and so about 25,000 · 0.64/1.36 independent draws
    n = 25_000 * (1 - rho**2) / (1 + rho**2)
    assert abs(np.mean(np.asarray(x * y)) - rho) < 5 * np.sqrt((1 + rho**2) / n)
    assert abs(np.mean(np.asarray(y**2)) - 1) < 5 * np.sqrt(2 / n)


def _palindrome(beta, state, *, key):
    """Redraws each site, forth and back: a reversible kernel."""

    def flip(state, site_and_key):
        site, key = site_and_key
        gap = ising(state.at[site].set(0.0)) - ising(state.at[site].set(1.0))
        one = jax.random.bernoulli(key, jax.nn.sigmoid(beta * gap))
        return state.at[site].set(one.astype(state.dtype)), None

    return jax.lax.scan(flip, state, (jnp.array([0, 1, 2, 1, 0]), jax.random.split(key, 5)))[0]


_ising_path = geometric_path(lambda s: jnp.zeros((), s.dtype), ising)
_LOG_Z0 = 3 * np.log(2)


def _ising_draws(key, n, exact):
    states, logs = ising_table()
    p = np.exp(logs - np.max(logs)) if exact else np.ones(8)
    index = jax.random.categorical(key, jnp.log(jnp.asarray(p)), shape=(n,))
    return jnp.asarray(states)[index]


@pytest.mark.parametrize("steps", [2, 30])
def test_annealing_bounds_the_partition_function_from_both_sides(steps):
    exact = np.log(np.sum(np.exp(ising_table()[1])))
    schedule = linear_schedule(steps)
    n = 20_000
    options = {"log_partition": jnp.asarray(_LOG_Z0), "schedule": schedule}

    @jax.jit
    def both(first, forth, second, back):
        begin, end = _ising_draws(first, n, False), _ising_draws(second, n, True)
        forward = annealed_importance(_ising_path, _palindrome, begin, key=forth, **options)
        reverse = reverse_annealed_importance(_ising_path, _palindrome, end, key=back, **options)
        return forward, reverse, self_normalised_mean(forward.log_weights, forward.states)

    forward, back, (mean, stderr) = both(*map(jax.random.key, range(4)))
    assert abs(forward.log_partition - exact) < 4 * forward.stderr
    assert abs(back.log_partition - exact) < 4 * back.stderr
    # a single chain is a bound in expectation: Jensen
    low = _LOG_Z0 + np.mean(forward.log_weights)
    high = _LOG_Z0 - np.mean(back.log_weights)
    assert low < exact < high
    assert (high - low) < 10 / steps
    # the ends of the forward chains, weighted, are draws from the target
    states, logs = ising_table()
    np.testing.assert_array_less(np.abs(mean - np.exp(logs - exact) @ states), 4.5 * stderr)


def test_annealing_error_is_calibrated():
    def run(key):
        begin, go = jax.random.split(key)
        found = annealed_importance(
            _ising_path,
            _palindrome,
            _ising_draws(begin, 32, False),
            log_partition=jnp.asarray(_LOG_Z0),
            schedule=sigmoid_schedule(4),
            key=go,
        )
        return found.log_partition, found.stderr, found.effective_sample_size

    logs, stderr, size = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(4), 500))
    np.testing.assert_allclose(np.sqrt(np.mean(stderr**2)), np.std(logs), rtol=0.15)
    assert np.all((size >= 1) & (size <= 32))


def test_sandwich_holds_the_integral_of_a_bimodal_density():
    def target(x):
        return -jnp.logaddexp(-((x - 2) ** 2), -2 * (x + 1) ** 2 + 1)

    def base(x):
        return x**2 / 8

    density = jax.jit(lambda x: jnp.exp(-target(x)))
    exact = np.log(integrate.quad(lambda x: float(density(x)), -20, 20, points=[-1, 2])[0])
    path = geometric_path(base, target)

    def metropolis(beta, x, *, key):
        propose, accept = jax.random.split(key)
        there = x + 1.5 * jax.random.normal(propose)
        log_ratio = path(beta, x) - path(beta, there)
        return jnp.where(jnp.log(jax.random.uniform(accept)) < log_ratio, there, x)

    @jax.jit
    def run(begin, key):
        return sandwich(
            path,
            metropolis,
            2 * jax.random.normal(begin, (400,)),
            log_partition=jnp.asarray(0.5 * np.log(8 * np.pi)),
            schedule=linear_schedule(200),
            key=key,
        )

    found = run(jax.random.key(5), jax.random.key(6))
    for side in found:
        assert abs(side.log_partition - exact) < 4 * side.stderr
        assert 0 < side.stderr < 0.05


def test_annealing_to_a_target_that_is_impossible_in_places():
    # a normal law cut at zero, from a whole one: half of the first draws cannot be
    path = geometric_path(lambda x: x**2 / 2, lambda x: jnp.where(x > 0, x**2 / 2, jnp.inf))

    def metropolis(beta, x, *, key):
        propose, accept = jax.random.split(key)
        there = x + jax.random.normal(propose)
        log_ratio = path(beta, x) - path(beta, there)
        return jnp.where(jnp.log(jax.random.uniform(accept)) < log_ratio, there, x)

    found = annealed_importance(
        path,
        metropolis,
        jax.random.normal(jax.random.key(5), (400,)),
        log_partition=jnp.asarray(0.5 * np.log(2 * np.pi)),
        schedule=linear_schedule(5),
        key=jax.random.key(6),
    )
    assert abs(found.log_partition - np.log(np.pi / 2) / 2) < 4 * found.stderr
    assert np.isneginf(found.log_weights).any()


def test_schedules_rise_from_zero_to_one():
    for schedule in (linear_schedule(10), sigmoid_schedule(10)):
        assert schedule[0] == 0
        assert schedule[-1] == 1
        assert np.all(np.diff(schedule) > 0)
        np.testing.assert_allclose(schedule + schedule[::-1], 1, atol=1e-12)
    steps = np.diff(sigmoid_schedule(10))
    assert steps[0] < steps[4]
    np.testing.assert_allclose(np.diff(linear_schedule(10)), 0.1, rtol=1e-12)


def test_records_say_what_they_hold():
    found = minimise(lambda z: (z - 2.0) ** 2, jnp.arange(4.0), Exhaustive())
    assert isinstance(found, inference.Minimum)
    assert found == inference.Minimum(jnp.array(2.0), jnp.array(0.0), jnp.array(True), jnp.array(0))
    estimate = importance_estimate(jnp.log(jnp.array([1.0, 3.0])))
    assert isinstance(estimate, inference.ImportanceEstimate)
    np.testing.assert_allclose(estimate.log_mean, np.log(2.0))
    np.testing.assert_allclose(estimate.effective_sample_size, 16 / 10)


def test_point_mass():
    mass = PointMass(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(mass.sample(key=jax.random.key(0)), [1.0, 2.0])
    assert mass.log_prob(jnp.array([1.0, 2.0])) == 0
    assert mass.log_prob(jnp.array([1.0, 2.5])) == -jnp.inf
    assert entropy(mass) == 0


def test_annealing_of_independent_units_is_exact_in_both_directions():
    # with no coupling every intermediate model factorises: all weights are equal
    bias = jnp.array([0.5, -1.0, 2.0])
    rbm = Harmonium(Units(Bernoulli, bias), Units(Bernoulli, jnp.zeros(2)), jnp.zeros((3, 2)))
    both = rbm.log_partition_annealed(chains=8, steps=10, key=jax.random.key(0))
    assert isinstance(both, inference.Sandwich)
    exact = np.sum(np.log1p(np.exp(np.asarray(bias)))) + 2 * np.log(2)
    for side in both:
        assert isinstance(side, inference.Annealed)
        np.testing.assert_allclose(side.log_partition, exact, rtol=1e-12)
        np.testing.assert_allclose(side.stderr, 0, atol=1e-12)


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_the_gap_of_a_bound_is_known_from_its_growth(spread):
    # E w = 1, so that log p = 0 and the bound is minus the gap
    weights = np.random.default_rng(0).normal(-(spread**2) / 2, spread, size=(4000, 64))
    found = _estimates(weights)
    nats, growth = np.asarray(found.log_mean), np.asarray(found.growth)
    bound = Evidence(nats, np.asarray(found.stderr), Kind.LOWER, growth=growth)
    gap, error = bound.gap
    # a power law of the number of draws fits a wide law of weights up to a third
    assert abs(gap + bound.mean) < 3 * (error + bound.mean_stderr) + 0.35 * abs(bound.mean) * (spread > 1)
    assert error < 0.2 * gap


def test_the_gap_of_a_bound_is_not_guessed():
    nats, zeros = np.zeros(3), np.zeros(3)
    assert np.isnan(Evidence(nats, zeros, Kind.LOWER).gap).all()
    assert Evidence(nats, zeros, Kind.EXACT).gap == (0.0, 0.0)
    slow = np.tile([0.95, 1.0], (3, 1))
    assert np.isinf(Evidence(nats, zeros, Kind.LOWER, growth=slow).gap).all()
    still = np.zeros((3, 2))
    assert Evidence(nats, zeros, Kind.LOWER, growth=still).gap == (0.0, 0.0)
