"""Harmoniums against tables of their joint distribution."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import comb, gammaln, logsumexp

from freeenergy.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Dirichlet,
    GaussianLocation,
    Poisson,
    Product,
)
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


@eqx.filter_jit
def log_partition(model):
    return model.log_partition()


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

    @eqx.filter_jit
    def asked(model, xs, zs):
        energies = jax.vmap(lambda x: jax.vmap(lambda z: model.energy(x, z))(zs))(xs)
        return energies, jax.vmap(model.free_energy)(xs), jax.vmap(model.free_energy_hidden)(zs)

    energies, free, free_hidden = asked(model, xs, zs)
    np.testing.assert_allclose(energies, -table, atol=1e-12)
    np.testing.assert_allclose(free, -logsumexp(table, axis=1), atol=1e-12)
    np.testing.assert_allclose(free_hidden, -logsumexp(table, axis=0), atol=1e-12)


@pytest.mark.parametrize("sizes", [(4, 3), (3, 5)])
def test_log_partition_from_either_side(sizes):
    model = rbm(*sizes)
    np.testing.assert_allclose(log_partition(model), logsumexp(log_joint(model)[2]), rtol=1e-13)


def test_log_partition_without_parameters_counts_the_states():
    zeros = jax.tree.map(np.zeros_like, rbm(4, 3))
    np.testing.assert_allclose(log_partition(zeros), 7 * np.log(2), rtol=1e-14)


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
    mixture = np.exp(log_weights - logsumexp(log_weights))
    rows, x = np.array([[0.3, -1.0], [2.0, 0.5]]), jnp.array([0.3, np.nan])

    @eqx.filter_jit
    def asked(model):
        hidden = model.marginal_free_energy(x, key=jax.random.key(0))
        filled = model.complete_mean(x, steps=5000, key=jax.random.key(1))
        return model.log_partition(), jax.vmap(model.free_energy)(rows), hidden, filled

    whole, free, (hidden, stderr), filled = jax.tree.map(np.asarray, asked(model))
    np.testing.assert_allclose(whole, logsumexp(log_weights), rtol=1e-13)
    for row, own in zip(rows, free, strict=True):
        density = mixture @ [stats.multivariate_normal.pdf(row, m) for m in means]
        np.testing.assert_allclose(-own - whole, np.log(density), rtol=1e-12)
    marginal = mixture @ stats.norm.pdf(0.3, means[:, 0])
    np.testing.assert_allclose(-hidden - whole, np.log(marginal), rtol=1e-12)
    assert stderr == 0
    # E[x₂ | x₁] of the mixture
    weights = mixture * stats.norm.pdf(0.3, means[:, 0])
    expected = weights @ means[:, 1] / weights.sum()
    assert filled[0] == 0.3
    # the chain mean of E[x₂ | z]: its spread is that of the component means, at most a few sweeps apart
    assert abs(filled[1] - expected) < 6 * np.std(means[:, 1]) / np.sqrt(5000 / 5)


def _labels(x):
    """Indicators of all labels of three but the last, unit by unit."""
    return np.concatenate([[v == 0, v == 1] for v in x]).astype(float)


def _factorials(x):
    return -sum(gammaln(v + 1) for v in x)


def _choices(x):
    return np.log(comb(2, x[0])) + np.log(comb(3, x[1]))


# for a side: a member, the values of its units, T(x) and log h(x), by hand
SIDES = {
    "Bernoulli": (Bernoulli(jnp.full(2, 0.5)), [range(2)] * 2, np.asarray, lambda x: 0.0),
    "Poisson": (Poisson(jnp.ones(2)), [range(40)] * 2, np.asarray, _factorials),
    "Categorical": (Categorical(jnp.full((2, 3), 1 / 3)), [range(3)] * 2, _labels, lambda x: 0.0),
    "Binomial": (Binomial(jnp.full(2, 0.5), (2, 3)), [range(3), range(4)], np.asarray, _choices),
    "Product": (
        Product((Categorical(jnp.full((1, 3), 1 / 3)), Poisson(jnp.ones(1))), sizes=(1, 1)),
        [range(3), range(40)],
        lambda x: np.append(_labels(x[:1]), x[1]),
        lambda x: _factorials(x[1:]),
    ),
}


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("Poisson", "Bernoulli"),
        ("Categorical", "Bernoulli"),
        ("Binomial", "Categorical"),
        ("Product", "Binomial"),
        ("Categorical", "Poisson"),
    ],
)
def test_units_of_any_family_are_those_of_the_joint(above, below):
    rng = np.random.default_rng(3)
    sides, states, statistics, bases = [], [], [], []
    for family, values, statistic, base in (SIDES[above], SIDES[below]):
        rows = np.array(list(itertools.product(*values)), float)
        states.append(rows)
        statistics.append(np.array([statistic(row) for row in rows], float))
        bases.append(np.array([base(row) for row in rows]))
        sides.append(Units(family, jnp.asarray(rng.normal(size=statistics[-1].shape[1]) - 0.5)))
    w = 0.25 * rng.normal(size=(len(sides[0].bias), len(sides[1].bias)))
    model = Harmonium(*sides, jnp.asarray(w))
    (t, u), (xs, zs) = statistics, states
    ends = [
        s @ np.asarray(side.bias) + base for s, side, base in zip(statistics, sides, bases, strict=True)
    ]
    table = t @ w @ u.T + ends[0][:, None] + ends[1][None, :]

    pick, other = rng.choice(len(xs), 6), rng.choice(len(zs), 6)
    hole = jnp.array([xs[1, 0], jnp.nan])

    @eqx.filter_jit
    def run(model, x, z):
        return {
            "energy": jax.vmap(model.energy)(x, z),
            "free": jax.vmap(model.free_energy)(x),
            "free_hidden": jax.vmap(model.free_energy_hidden)(z),
            "posterior": jax.vmap(lambda a, b: model.posterior(a).log_prob(b))(x, z),
            "emission": jax.vmap(lambda a, b: model.emission(b).log_prob(a))(x, z),
            "hidden_mean": jax.vmap(model.hidden_mean)(x),
            "log_partition": model.log_partition(),
            "slope": jax.grad(lambda w: eqx.tree_at(lambda m: m.coupling, model, w).log_partition())(
                model.coupling
            ),
            "marginal": model.marginal_free_energy(hole, most_missing=1, key=jax.random.key(0)),
        }

    found = run(model, jnp.asarray(xs[pick]), jnp.asarray(zs[other]))
    whole, over_x, over_z = logsumexp(table), logsumexp(table, axis=0), logsumexp(table, axis=1)
    p = np.exp(table - whole)
    expected = {
        "energy": -table[pick, other],
        "free": -over_z[pick],
        "free_hidden": -over_x[other],
        "posterior": (table - over_z[:, None])[pick, other],
        "emission": (table - over_x[None])[pick, other],
        "hidden_mean": (np.exp(table - over_z[:, None]) @ zs)[pick],
        "log_partition": whole,
        # what log Z rises by is what is expected of the product of the statistics
        "slope": t.T @ p @ u,
        "marginal": (-logsumexp(over_z[xs[:, 0] == xs[1, 0]]), 0.0),
    }
    for name, value in expected.items():
        # a member holds probabilities, which next to one have few digits of what is left
        few = 1e-6 if name in ("posterior", "emission") else 1e-9
        np.testing.assert_allclose(found[name], value, rtol=few, atol=1e-9, err_msg=name)
    n = 4000
    draws = jax.jit(jax.vmap(lambda k: model.gibbs(jnp.asarray(xs[1]), key=k)))(
        jax.random.split(jax.random.key(1), n)
    )
    down = np.exp(table - over_x[None]) @ np.exp(table[1] - over_z[1])
    mean, spread = down @ xs, np.sqrt(down @ xs**2 - (down @ xs) ** 2)
    assert (np.abs(np.asarray(draws).mean(0) - mean) < 5 * spread / np.sqrt(n)).all()


def test_annealing_and_missing_units_of_unequal_numbers_of_values():
    model = Harmonium(
        Units(Binomial(jnp.full(3, 0.5), (1, 2, 3)), jnp.array([0.3, -0.4, 0.2])),
        Units(GaussianLocation, jnp.array([0.5, -0.2])),
        jnp.array([[0.5, -0.3], [0.2, 0.4], [-0.6, 0.1]]),
    )
    xs = np.array(list(itertools.product(range(2), range(3), range(4))), float)
    # real hidden units cannot be enumerated: the missing ones are
    x = jnp.array([1.0, np.nan, np.nan])

    @eqx.filter_jit
    def asked(model, xs):
        hidden = model.marginal_free_energy(x, key=jax.random.key(0))
        return jax.vmap(model.free_energy)(xs), model.log_partition(), hidden

    free, exact, marginal = jax.tree.map(np.asarray, asked(model, xs))
    assert exact == pytest.approx(logsumexp(-free), rel=1e-12)
    np.testing.assert_allclose(marginal, (-logsumexp(-free[xs[:, 0] == 1]), 0.0), rtol=1e-12)
    found = model.log_partition_annealed(chains=200, steps=50, key=jax.random.key(2))
    for side in found:
        assert abs(side.log_partition - exact) < 4 * side.stderr + 1e-6


def test_units_refuse_biases_of_another_size():
    with pytest.raises(ValueError, match=r"each of the 4 statistics of Categorical. Got the shape \(2,\)"):
        Units(Categorical(jnp.full((2, 3), 1 / 3)), jnp.zeros(2))
    with pytest.raises(TypeError, match="Dirichlet has statistics of several columns together"):
        Units(Dirichlet(jnp.ones(3)), jnp.zeros(3))


@pytest.mark.parametrize(("dtype", "base"), [(np.float64, None), (np.float32, np.linspace(-1, 1, 10))])
def test_annealed_log_partition_holds_the_exact_one(dtype, base):
    model = rbm(10, 8, scale=0.8, dtype=dtype)
    exact = float(log_partition(model))
    base = None if base is None else jnp.asarray(base, dtype)
    found = model.log_partition_annealed(chains=200, steps=300, base=base, key=jax.random.key(0))
    for side in found:
        assert side.log_partition.dtype == dtype
        assert abs(side.log_partition - exact) < 4 * side.stderr
        assert 0 < side.stderr < 0.1
        assert side.effective_sample_size > 50
    # single chains are bounds in expectation, and these are many
    lower, upper = (np.asarray(side.log_weights) for side in found)
    start = float(found.lower.log_partition) - (logsumexp(lower) - np.log(len(lower)))
    assert start + np.mean(lower) < exact < start - np.mean(upper)


def test_float32_free_energy_keeps_large_biases():
    # a probability next to one would have lost these
    model = Harmonium(
        Units(Bernoulli, jnp.array([30.0], jnp.float32)),
        Units(Bernoulli, jnp.array([40.0], jnp.float32)),
        jnp.array([[2.0]], jnp.float32),
    )
    free = eqx.filter_jit(lambda model: model.free_energy(jnp.ones(1, jnp.float32)))(model)
    np.testing.assert_allclose(free, -72.0, rtol=1e-6)
    np.testing.assert_allclose(log_partition(model), 72.0, rtol=1e-6)


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
    complete = jnp.array([1.0, 0.0, 0.0, 1.0])

    @eqx.filter_jit
    def asked(model):
        ask = lambda x, **how: model.marginal_free_energy(x, **how, key=jax.random.key(0))  # noqa: E731
        own = model.free_energy(complete)
        return ask(jnp.asarray(INCOMPLETE)), ask(complete, most_missing=0)[0], ask(complete)[0], own

    (free, stderr), bounded, unbounded, own = asked(model)
    np.testing.assert_allclose(free, -_conditional(model)[2], rtol=1e-13)
    assert stderr == 0
    np.testing.assert_allclose([bounded, unbounded], [own, own], rtol=1e-13)


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
