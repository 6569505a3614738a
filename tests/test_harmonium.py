"""Harmoniums against tables of their joint distribution."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from freeenergy.distributions import Bernoulli, GaussianLocation
from freeenergy.inference import importance_estimate
from freeenergy.models import (
    AbstractEnergy,
    Harmonium,
    Units,
)


def rbm(visible, hidden, *, seed=0, scale=1.0, dtype=np.float64, family=Bernoulli):
    rng = np.random.default_rng(seed)
    b, c = rng.normal(size=visible), rng.normal(size=hidden)
    w = rng.normal(scale=scale, size=(visible, hidden))
    return Harmonium(
        Units(family, jnp.asarray(b, dtype)), Units(Bernoulli, jnp.asarray(c, dtype)), jnp.asarray(w, dtype)
    )


def grid(n):
    return np.array(list(itertools.product([0.0, 1.0], repeat=n)))


def log_joint(model):
    """−e(x, z) of binary units for all pairs, by sums over units."""
    b, c, w = (np.asarray(a) for a in (model.visible.bias, model.hidden.bias, model.coupling))
    xs, zs = grid(len(b)), grid(len(c))
    table = np.zeros((len(xs), len(zs)))
    for i, x in enumerate(xs):
        for j, z in enumerate(zs):
            pairs = sum(x[a] * w[a, d] * z[d] for a in range(len(b)) for d in range(len(c)))
            table[i, j] = pairs + sum(b * x) + sum(c * z)
    return xs, zs, table


def test_energy_and_free_energies_are_sums_over_the_joint_table():
    model = rbm(4, 3)
    assert isinstance(model, AbstractEnergy)
    xs, zs, table = log_joint(model)
    energies = jax.vmap(lambda x: jax.vmap(lambda z: model.energy(x, z))(jnp.asarray(zs)))(jnp.asarray(xs))
    np.testing.assert_allclose(energies, -table, atol=1e-12)
    np.testing.assert_allclose(
        jax.vmap(model.free_energy)(jnp.asarray(xs)), -logsumexp(table, axis=1), atol=1e-12
    )
    np.testing.assert_allclose(
        jax.vmap(model.free_energy_hidden)(jnp.asarray(zs)), -logsumexp(table, axis=0), atol=1e-12
    )


@pytest.mark.parametrize("sizes", [(4, 3), (3, 5)])
def test_log_partition_from_either_side(sizes):
    model = rbm(*sizes)
    np.testing.assert_allclose(model.log_partition(), logsumexp(log_joint(model)[2]), rtol=1e-13)


def test_log_partition_without_parameters_counts_the_states():
    model = Harmonium(Units(Bernoulli, jnp.zeros(6)), Units(Bernoulli, jnp.zeros(3)), jnp.zeros((6, 3)))
    np.testing.assert_allclose(model.log_partition(), 9 * np.log(2), rtol=1e-14)


def test_log_partition_refuses_what_cannot_be_enumerated():
    model = rbm(21, 22)
    with pytest.raises(
        ValueError, match=r"at most as many states as 20 binary units. Got 21 visible and 22 hidden units"
    ):
        model.log_partition()


def _sweep_matrix(model):
    """T[x, x′] of one Gibbs sweep, from the model's own conditionals."""
    xs, zs, _ = log_joint(model)

    @eqx.filter_jit
    def mass(given, states, outcomes):
        return jnp.exp(jax.vmap(lambda s: jax.vmap(given(s).log_prob)(outcomes))(states))

    up = np.asarray(mass(model.posterior, jnp.asarray(xs), jnp.asarray(zs)))
    down = np.asarray(mass(model.emission, jnp.asarray(zs), jnp.asarray(xs)))
    return xs, up, down


def test_conditionals_are_those_of_the_joint_and_the_sweep_keeps_the_marginal():
    model = rbm(3, 2, seed=1)
    table = np.exp(log_joint(model)[2])
    _, up, down = _sweep_matrix(model)
    np.testing.assert_allclose(up, table / table.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(down, (table / table.sum(axis=0)).T, rtol=1e-12)
    marginal = table.sum(axis=1) / table.sum()
    sweep = up @ down
    np.testing.assert_allclose(marginal @ sweep, marginal, atol=1e-15)
    flow = marginal[:, None] * sweep
    np.testing.assert_allclose(flow, flow.T, atol=1e-15)


def test_gibbs_and_initial_draw_from_their_distributions():
    model = rbm(3, 2, seed=1)
    xs, up, down = _sweep_matrix(model)
    n = 20_000
    keys = jax.random.split(jax.random.key(0), n)
    code = 2 ** np.arange(3)[::-1]

    def counts(draws):
        return np.bincount((np.asarray(draws) @ code).astype(int), minlength=8)

    start = jnp.asarray(xs[5])
    swept = counts(jax.jit(jax.vmap(lambda k: model.gibbs(start, key=k)))(keys))
    assert stats.chisquare(swept, n * (up @ down)[5]).pvalue > 1e-4
    p = 1 / (1 + np.exp(-np.asarray(model.visible.bias)))
    alone = np.prod(np.where(xs == 1, p, 1 - p), axis=1)
    begun = counts(jax.jit(jax.vmap(lambda k: model.initial(key=k)))(keys))
    assert stats.chisquare(begun, n * alone).pvalue > 1e-4


def test_gaussian_visible_units_are_a_mixture_of_gaussians():
    model = rbm(2, 3, family=GaussianLocation)
    b, c, w = (np.asarray(a) for a in (model.visible.bias, model.hidden.bias, model.coupling))
    means = b + grid(3) @ w.T
    # ∫ exp(−e) dx for each z, whose logarithm is c·z + |b + Wz|²/2
    log_weights = grid(3) @ c + 0.5 * np.sum(means**2, axis=1)
    np.testing.assert_allclose(model.log_partition(), logsumexp(log_weights), rtol=1e-13)
    mixture = np.exp(log_weights - logsumexp(log_weights))
    for x in ([0.3, -1.0], [2.0, 0.5]):
        density = mixture @ [stats.multivariate_normal.pdf(x, m) for m in means]
        log_prob = -model.free_energy(jnp.array(x)) - model.log_partition()
        np.testing.assert_allclose(log_prob, np.log(density), rtol=1e-12)
    x = jnp.array([0.3, jnp.nan])
    marginal = mixture @ stats.norm.pdf(0.3, means[:, 0])
    free, stderr = model.marginal_free_energy(x, key=jax.random.key(0))
    np.testing.assert_allclose(-free - model.log_partition(), np.log(marginal), rtol=1e-12)
    assert stderr == 0
    # E[x₂ | x₁] of the mixture
    weights = mixture * stats.norm.pdf(0.3, means[:, 0])
    expected = weights @ means[:, 1] / weights.sum()
    filled = eqx.filter_jit(model.complete_mean)(x, steps=5000, key=jax.random.key(1))
    assert filled[0] == 0.3
    # the chain mean of E[x₂ | z]: its spread is that of the component means, at most a few sweeps apart
    assert abs(filled[1] - expected) < 6 * np.std(means[:, 1]) / np.sqrt(5000 / 5)


@pytest.mark.parametrize(("dtype", "base"), [(np.float64, None), (np.float32, np.linspace(-1, 1, 10))])
def test_annealed_log_partition_holds_the_exact_one(dtype, base):
    model = rbm(10, 8, scale=0.8, dtype=dtype)
    exact = float(model.log_partition())
    base = None if base is None else jnp.asarray(base, dtype)
    found = model.log_partition_annealed(chains=200, steps=300, base=base, key=jax.random.key(0))
    for side in found:
        assert side.log_partition.dtype == dtype
        assert abs(side.log_partition - exact) < 4 * side.stderr
        assert 0 < side.stderr < 0.1
        assert side.effective_sample_size > 50
    # single chains are bounds in expectation, and these are many
    start = found.lower.log_partition - importance_estimate(found.lower.log_weights).log_mean
    assert start + np.mean(found.lower.log_weights) < exact < start - np.mean(found.upper.log_weights)


def test_float32_free_energy_keeps_large_biases():
    # a probability next to one would have lost these
    model = Harmonium(
        Units(Bernoulli, jnp.array([30.0], jnp.float32)),
        Units(Bernoulli, jnp.array([40.0], jnp.float32)),
        jnp.array([[2.0]], jnp.float32),
    )
    np.testing.assert_allclose(model.free_energy(jnp.ones(1, jnp.float32)), -72.0, rtol=1e-6)
    np.testing.assert_allclose(model.log_partition(), 72.0, rtol=1e-6)


INCOMPLETE = np.array([1.0, np.nan, 0.0, np.nan])


def _conditional(model):
    """Completions of INCOMPLETE and their probabilities."""
    xs, _, table = log_joint(model)
    fits = np.all((xs == INCOMPLETE) | np.isnan(INCOMPLETE), axis=1)
    logs = logsumexp(table, axis=1)[fits]
    return xs[fits], np.exp(logs - logsumexp(logs)), logsumexp(logs)


def test_completion_by_gibbs_draws_from_the_conditional():
    model = rbm(4, 3, seed=2, scale=1.5)
    xs, p, _ = _conditional(model)
    n = 5000
    x = jnp.asarray(INCOMPLETE)

    @jax.jit
    def run(model, key):
        one, two = jax.random.split(key)
        draws = jax.vmap(lambda k: model.complete_sample(x, steps=60, key=k))(jax.random.split(one, n))
        return draws, jax.vmap(lambda k: model.complete_mean(x, key=k))(jax.random.split(two, 200))

    draws, means = run(model, jax.random.key(0))
    np.testing.assert_array_equal(np.asarray(draws)[:, [0, 2]], np.tile([1.0, 0.0], (n, 1)))
    counts = [np.sum(np.all(np.asarray(draws) == row, axis=1)) for row in xs]
    assert stats.chisquare(counts, n * p).pvalue > 1e-4
    stderr = np.std(means, axis=0) / np.sqrt(200)
    np.testing.assert_array_less(np.abs(np.mean(means, axis=0) - p @ xs), 4.5 * stderr + 1e-12)
    assert np.all(stderr < 0.02)


def test_marginal_free_energy_over_hidden_states():
    model = rbm(4, 3, seed=2)
    free, stderr = model.marginal_free_energy(jnp.asarray(INCOMPLETE), key=jax.random.key(0))
    np.testing.assert_allclose(free, -_conditional(model)[2], rtol=1e-13)
    assert stderr == 0
    complete = jnp.array([1.0, 0.0, 0.0, 1.0])
    for bound in (0, None):
        free, _ = model.marginal_free_energy(complete, most_missing=bound, key=jax.random.key(0))
        np.testing.assert_allclose(free, model.free_energy(complete), rtol=1e-13)


def test_marginal_free_energy_over_missing_states_and_by_annealing():
    model = rbm(14, 13, seed=3, scale=0.7)
    b, c, w = (np.asarray(a) for a in (model.visible.bias, model.hidden.bias, model.coupling))
    rng = np.random.default_rng(4)

    def brute(x):
        missing = np.isnan(x)
        rows = np.tile(x, (2 ** missing.sum(), 1))
        rows[:, missing] = grid(missing.sum())
        return -logsumexp(rows @ b + np.sum(np.logaddexp(0, rows @ w + c), axis=1))

    few = np.where(np.arange(14) % 4 == 1, np.nan, rng.integers(0, 2, 14).astype(float))
    two = np.where(np.arange(14) < 2, np.nan, rng.integers(0, 2, 14).astype(float))
    exact = jax.jit(
        jax.vmap(lambda x: model.marginal_free_energy(x, most_missing=4, key=jax.random.key(0))[0])
    )
    np.testing.assert_allclose(
        exact(jnp.asarray(np.stack([few, two]))), [brute(few), brute(two)], rtol=1e-12
    )
    most = np.full(14, np.nan)
    most[3] = 1.0
    annealed = jax.jit(jax.vmap(lambda x, k: model.marginal_free_energy(x, key=k)))
    rows = np.stack([most, few])
    value, stderr = annealed(jnp.asarray(rows), jax.random.split(jax.random.key(5), 2))
    np.testing.assert_array_less(np.abs(value - np.array([brute(r) for r in rows])), 4 * stderr)
    assert np.all((stderr > 0) & (stderr < 0.1))
