"""An energy against a generator that samples it: what keeps draws apart, and who collapses without."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from data import ROWS
from scipy import integrate, stats

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy import evaluation as ev
from freeenergy import learning as lr
from freeenergy.inference import random_walk, run_chain
from freeenergy.kernels import RBF
from freeenergy.models import Adversaries, adversaries
from freeenergy.nn import Linear

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def test_the_entropy_of_draws_by_their_neighbours():
    # of laws whose entropy is known, in one column and in three
    n = 1000
    mixing = np.array([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.3, 1.0]])
    laws = [
        (RNG.normal(0, 3, (n, 1)), stats.norm(0, 3).entropy()),
        (RNG.random((n, 1)) * 5, np.log(5)),
        (RNG.normal(size=(n, 3)) @ mixing.T, stats.multivariate_normal(cov=mixing @ mixing.T).entropy()),
    ]
    penalty = eqx.filter_jit(lr.NeighbourEntropy(2.0))
    found = [float(penalty(jnp.asarray(x), key=KEY)) for x, _ in laws]
    # the standard deviation of log r and of log p by n draws
    np.testing.assert_allclose(np.array(found) / -2, [h for _, h in laws], atol=4 * 1.6 / np.sqrt(n))
    # equal draws have none
    same = jnp.zeros((8, 2))
    slope = jax.jit(jax.grad(lambda x: lr.NeighbourEntropy()(x, key=KEY)))(same)
    np.testing.assert_array_equal(slope, 0)


def test_targets_that_are_inflated_and_held_fast():
    # cho U16: s ~ N(mean, α Σ) has ½ d log α more entropy, and no gradient goes through it
    made = RNG.normal(size=(40, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]]) + [3.0, -1.0]
    penalty = lr.InflatedGaussian(1.5, growth=3.0, kernel=RBF(0.7))
    several = jax.jit(
        lambda key: jax.vmap(lambda k: penalty.targets(made, key=k))(jax.random.split(key, 1000))
    )
    s = np.asarray(several(KEY)).reshape(-1, 2)
    covariance = 3.0 * np.cov(made, rowvar=False)
    error = 4 * np.sqrt(covariance.diagonal().max() ** 2 * 2 / len(s) * 40)
    np.testing.assert_allclose(
        s.mean(axis=0), made.mean(axis=0), atol=4 * np.sqrt(covariance.max() / len(s)) * 2
    )
    np.testing.assert_allclose(np.cov(s, rowvar=False), covariance, atol=error)
    gap = jax.jit(
        lambda c: (
            d.entropy(d.Gaussian(jnp.zeros(2), d.Full(3 * c)))
            - d.entropy(d.Gaussian(jnp.zeros(2), d.Full(c)))
        )
    )
    np.testing.assert_allclose(gap(covariance / 3.0), 0.5 * 2 * np.log(3.0))
    # the penalty is the discrepancy from one batch of such, and its slope that with these held fast
    value, slope = eqx.filter_jit(jax.value_and_grad(lambda x: penalty(x, key=KEY)))(jnp.asarray(made))
    fixed = np.asarray(eqx.filter_jit(penalty.targets)(jnp.asarray(made), key=KEY))

    def discrepancy(x):
        return 1.5 * ev.maximum_mean_discrepancy(x, fixed, RBF(0.7), permutations=1, seed=0).value

    np.testing.assert_allclose(value, discrepancy(np.asarray(made)), rtol=1e-9)
    for place in [(0, 0), (7, 1)]:
        step = np.zeros((40, 2))
        step[place] = 1e-5
        moved = discrepancy(np.asarray(made) + step) - discrepancy(np.asarray(made) - step)
        np.testing.assert_allclose(slope[place], moved / 2e-5, rtol=1e-4, atol=1e-8)


class Valley(eqx.Module):
    """−e for the energy (x − 1)² / 2σ² of a normal law."""

    deviation: float = eqx.field(static=True)

    def __call__(self, x):
        return -0.5 * (x - 1.0) ** 2 / self.deviation**2


@pytest.mark.slow
def test_without_entropy_a_sampler_ends_where_the_energy_is_least():
    # cho U15: min E e(g(ε)) − H is a divergence, and without H the argmin of e
    start = Adversaries(Linear(jnp.array([[0.3]]), jnp.array([-2.0])), Valley(2.0), None, 1)
    rows = np.zeros((128, 1))
    found = {}
    for name, term in {"alone": None, "with": lr.NeighbourEntropy()}.items():
        loss = lr.GeneratorLoss(lr.Wasserstein(), 1.0, term)
        player = lr.Player("generator", optax.adam(0.05), loss, lr.only(start, lambda m: m.generator))
        game = lr.Game((player,), batch_size=128, average=0.98)
        found[name] = lr.fit(start, game, rows, key=KEY, max_iter=300).model.generator
    np.testing.assert_allclose(found["alone"].bias, 1.0, atol=0.02)
    np.testing.assert_allclose(found["alone"].weight, 0.0, atol=0.02)
    # the law of the energy: N(1, 2²); an average over some fifty batches of 128
    np.testing.assert_allclose(found["with"].bias, 1.0, atol=4 * 2 / np.sqrt(128 * 50))
    np.testing.assert_allclose(np.abs(found["with"].weight), 2.0, atol=4 * 2 / np.sqrt(2 * 128 * 50))


class Basin(eqx.Module):
    """−e with e = x² / 18 − 3 tanh f(x): free near the data, and high far away."""

    net: eqx.Module

    def __call__(self, x):
        return 3 * jnp.tanh(self.net(x)) - jnp.sum(x**2) / 18


def two_modes(seed):
    rng = np.random.default_rng(seed)
    side = np.where(rng.random(512) < 0.5, -2.0, 2.0)
    return (side + 0.3 * rng.normal(size=512))[:, None].astype(np.float32)


def energy_game(start, entropy):
    """An energy and a sampler that makes ten steps for each of its."""
    adam, only = optax.adam(0.005), lr.only
    energy = lr.CriticLoss(lr.Wasserstein(), lr.ZeroCentred(0.1))
    sampler = lr.GeneratorLoss(lr.Wasserstein(), 1.0, entropy)
    return lr.Game(
        (
            lr.Player("energy", adam, energy, only(start, lambda m: m.critic)),
            lr.Player("sampler", adam, sampler, only(start, lambda m: m.generator), 10),
        ),
        batch_size=128,
    )


@eqx.filter_jit
def draws_of(model, n, key):
    return jax.vmap(lambda k: model.sample(key=k))(jax.random.split(key, n))[:, 0]


def played(seed, entropy):
    start = adversaries(1, 2, width=16, depth=1, key=jax.random.key(seed))
    start = eqx.tree_at(lambda m: m.critic, start, Basin(start.critic))
    game = energy_game(start, entropy)
    return lr.fit(start, game, two_modes(seed), key=jax.random.key(seed + 1), max_iter=40).model


@pytest.fixture(scope="module")
def kept():
    return played(0, lr.InflatedGaussian(5.0))


def assert_both_modes(model):
    x = np.asarray(draws_of(model, 1000, KEY))
    assert 0.25 < np.mean(x > 0) < 0.75
    assert ev.modes_found(x[:, None], [[-2.0], [2.0]], radius=0.9, least=100).found == 2


def assert_one_mode(model):
    x = np.asarray(draws_of(model, 1000, KEY))
    assert np.mean(x > 0) in (0.0, 1.0)
    assert x.std() < 0.3  # no wider than one mode of the data


@pytest.mark.slow
def test_an_energy_game_keeps_both_modes_only_with_an_entropy(kept):
    # cho U19: λ = 0 collapses, λ > 0 does not
    assert_both_modes(kept)
    assert_one_mode(played(0, None))


@pytest.mark.slow
def test_energy_games_of_other_seeds():
    for seed in range(1, 6):
        assert_both_modes(played(seed, lr.InflatedGaussian(5.0)))
        assert_one_mode(played(seed, None))


def test_each_player_lowers_its_own():
    # cho U19: a step of the sampler lowers e(g), one of the energy e(data) − e(g)
    start = adversaries(1, 2, width=16, depth=1, key=KEY)
    start = eqx.tree_at(lambda m: m.critic, start, Basin(start.critic))
    batch = lr.Batch(two_modes(0), np.full(512, 1 / 512, np.float32))
    rate = 1e-3

    @eqx.filter_jit
    def step(model, batch, loss, spec):
        mine, others = eqx.partition(model, spec)

        def value(mine):
            return loss(eqx.combine(mine, others), batch, KEY)

        before, slope = eqx.filter_value_and_grad(value)(mine)
        after = value(jax.tree.map(lambda a, s: a - rate * s, mine, slope))
        made = jax.vmap(lambda k: model.sample(key=k))(jax.random.split(jax.random.key(5), 4000))
        energies = [jnp.mean(-jax.vmap(model.critic)(x)) for x in (batch.x, made)]
        return before, after, sum(jnp.sum(s**2) for s in jax.tree.leaves(slope)), energies

    for part, loss in (("critic", lr.CriticLoss), ("generator", lr.GeneratorLoss)):
        spec = lr.only(start, lambda m, part=part: getattr(m, part))
        found = step(start, batch, loss(lr.Wasserstein()), spec)
        before, after, gain, (real, drawn) = jax.tree.map(float, found)
        assert gain > 0
        assert after - before == pytest.approx(-rate * gain, rel=0.1)
        # they are the mean energies e = −critic, here of other draws, of which energies vary by one
        expected = real - drawn if part == "critic" else drawn
        assert before == pytest.approx(expected, abs=4 * np.sqrt(1 / 512 + 1 / 4000))


def test_a_sampler_is_where_chains_of_its_energy_may_begin():
    # cho U21: what chains need a burn-in for from elsewhere, they have from the start
    energy, law = Valley(2.0), stats.norm(1, 2)
    sampler = Adversaries(Linear(jnp.array([[2.0]]), jnp.array([1.0])), energy, None, 1)
    walk = random_walk(lambda x: -energy(x)[0], d.Reals((1,)), scale=0.5)

    @eqx.filter_jit
    def chains(start, key):
        def chain(x, key):
            return run_chain(walk, x, steps=40, key=key)

        return jax.vmap(chain)(start, jax.random.split(key, len(start)))[..., 0]

    n = 500
    begun = np.asarray(chains(draws_of(sampler, n, KEY)[:, None], jax.random.key(3)))
    assert min(stats.kstest(begun[:, t], law.cdf).pvalue for t in (0, 10, 20, 39)) > 1e-3
    for cold in (RNG.normal(8, 0.5, (n, 1)), RNG.normal(1, 0.1, (n, 1))):
        paths = np.asarray(chains(jnp.asarray(cold), jax.random.key(3)))
        assert max(stats.kstest(paths[:, t], law.cdf).pvalue for t in range(10)) < 1e-6


@pytest.mark.slow
def test_chains_that_begin_at_draws_of_a_game_are_nearer_than_others(kept):
    # cho U21, with a sampler that was learned
    def energy(x):
        return -kept.critic(x.astype(jnp.float32))[0].astype(x.dtype)

    grid = np.linspace(-12, 12, 2001)
    e = np.asarray(jax.jit(jax.vmap(lambda x: energy(x[None])))(grid))
    below = integrate.cumulative_trapezoid(np.exp(-(e - e.min())), grid, initial=0)
    n, steps = 500, 40
    exact = np.interp((np.arange(n) + 0.5) / n, below / below[-1], grid)
    walk = random_walk(energy, d.Reals((1,)), scale=0.3)

    @eqx.filter_jit
    def chains(start, key):
        def chain(x, key):
            return run_chain(walk, x, steps=steps, key=key)

        return jax.vmap(chain)(start, jax.random.split(key, len(start)))

    def away(start):
        """How far the law of chains is from that of the energy after each step, by quantiles."""
        paths = np.asarray(chains(jnp.asarray(start, float), jax.random.key(3)))[..., 0]
        return np.abs(np.sort(paths, axis=0) - exact[:, None]).mean(axis=0)

    begun = away(draws_of(kept, n, KEY)[:, None])
    for cold in (RNG.normal(8, 0.5, (n, 1)), RNG.normal(0, 0.1, (n, 1))):
        # not after all of these steps what the others are at the first
        assert away(cold).min() > begun[0]


@pytest.mark.slow
def test_gans_take_an_entropy():
    small = {"width": 8, "depth": 1, "max_iter": 2, "random_state": 0}
    terms = (None, lr.InflatedGaussian(50.0), lr.InflatedGaussian(100.0))
    fits = [fe.GAN(value=lr.Wasserstein(), entropy=term, **small).fit(ROWS) for term in terms]
    # of the first batch the critics are alike, and what is paid is in proportion to its weight
    bare, once, twice = (gan.history_["generator"][0] for gan in fits)
    assert once > bare
    assert twice - bare == pytest.approx(2 * (once - bare), rel=1e-4)
    with pytest.raises(ValueError, match="The 'entropy' parameter of GAN must be"):
        fe.GAN(entropy=1.0).fit(ROWS)
