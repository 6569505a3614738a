"""Games over samples: what a critic finds at best, what penalties cost, who wins, and what is drawn."""

import copy
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
import pytest
from data import ROWS
from scipy import optimize, stats

import freeenergy as fe
from freeenergy import evaluation as ev
from freeenergy import learning as lr
from freeenergy.models import Adversaries, Codes
from freeenergy.nn import Linear
from freeenergy.shell._spread import Spread

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
MIDDLE = (P + Q) / 2
JSD = (stats.entropy(P, MIDDLE) + stats.entropy(Q, MIDDLE)) / 2
KEY = jax.random.key(0)
STREAM = np.random.default_rng(3)


class Fixed(eqx.Module):
    """A generator that has nothing to learn: what it makes is its cause, moved."""

    shift: jax.Array

    def __call__(self, cause):
        return cause + self.shift


class Squared(eqx.Module):
    scale: jax.Array

    def __call__(self, cause):
        return self.scale * cause**2


def against(critic, shift, noise=1, **options):
    return Adversaries(Fixed(jnp.asarray(shift)), critic, None, noise, **options)


def best_critic(value):
    """The critic's numbers that are best against P and Q, and what it then lowers, by SciPy."""

    @jax.jit
    @jax.value_and_grad
    def loss(f):
        return P @ value.real(f) + Q @ value.made(f)

    found = optimize.minimize(loss, np.full(3, 0.1), jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.x, found.fun


def test_the_best_critic_finds_the_divergence():
    f, least = best_critic(lr.Minimax())
    np.testing.assert_allclose(1 / (1 + np.exp(-f)), [5 / 7, 0.6, 0.25], atol=1e-5)
    np.testing.assert_allclose(-least, -1.2051626612, atol=1e-9)
    np.testing.assert_allclose(-least, 2 * JSD - math.log(4), atol=1e-9)
    for divergence, expected in [
        (lr.KullbackLeibler(), 0.3600624406),
        (lr.ReverseKullbackLeibler(), 0.3948162052),
        (lr.PearsonChiSquared(), ((P - Q) ** 2 / Q).sum()),
        (lr.SquaredHellinger(), ((np.sqrt(P) - np.sqrt(Q)) ** 2).sum()),
        (lr.JensenShannon(), 2 * JSD),
    ]:
        np.testing.assert_allclose(-best_critic(lr.FDivergence(divergence))[1], expected, atol=1e-8)
    # of the hinge the best critic is ±1, and finds what both have in common
    value = lr.Hinge()
    grid = np.linspace(-2, 2, 401)
    losses = P[:, None] * np.asarray(value.real(grid)) + Q[:, None] * np.asarray(value.made(grid))
    np.testing.assert_allclose(losses.min(axis=1).sum(), 2 * np.minimum(P, Q).sum())
    np.testing.assert_allclose(abs(grid[losses.argmin(axis=1)]), 1.0)


def test_what_the_generator_is_told():
    at = np.linspace(-4, 4, 9)
    for value, slope in [
        (lr.Minimax(), -1 / (1 + np.exp(-at))),
        (lr.NonSaturating(), -1 / (1 + np.exp(at))),
        (lr.Wasserstein(), -np.ones(9)),
        (lr.Hinge(), -np.ones(9)),
        (lr.FDivergence(lr.KullbackLeibler()), -np.exp(at - 1)),
    ]:
        np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(value.fooled)))(at), slope, rtol=1e-12)


def test_penalised_and_clipped_critics_of_a_shift():
    # a linear critic of data at θ against what is always made at 0
    theta, strength = 0.5, 10.0
    batch = lr.Batch(jnp.array([[theta]]), jnp.ones(1))
    model = against(Linear(jnp.zeros((1, 1)), jnp.zeros(1)), np.zeros(1), noise=1)
    model = eqx.tree_at(lambda m: m.generator, model, Linear(jnp.zeros((1, 1)), jnp.zeros(1)))

    @jax.jit
    def loss(w, strength):
        critic = Linear(w[None, None], jnp.zeros(1))
        penalty = lr.GradientPenalty(10.0)
        moved = eqx.tree_at(lambda m: m.critic, model, critic)
        free = lr.CriticLoss(lr.Wasserstein())(moved, batch, KEY)
        return jnp.where(strength > 0, lr.CriticLoss(lr.Wasserstein(), penalty)(moved, batch, KEY), free)

    found = optimize.minimize_scalar(lambda w: float(loss(w, strength)), bounds=(0.5, 2), method="bounded")
    np.testing.assert_allclose(found.x, 1 + theta / (2 * strength), atol=1e-5)
    np.testing.assert_allclose(-found.fun, theta + theta**2 / (4 * strength), atol=1e-9)
    np.testing.assert_allclose(-float(loss(found.x, 0.0)), theta + theta**2 / (2 * strength), atol=1e-5)

    bound = 0.01
    player = lr.Player(
        "critic",
        optax.chain(optax.sgd(0.1), lr.within(bound)),
        lr.CriticLoss(lr.Wasserstein()),
        lr.only(model, lambda m: m.critic),
    )
    rows = np.full((8, 1), theta)
    fitted = lr.fit(model, lr.Game((player,)), rows, key=KEY, max_iter=20)
    assert float(fitted.model.critic.weight[0, 0]) == bound
    np.testing.assert_allclose(-fitted.history["critic"][-1] / bound, theta, rtol=1e-6)


def test_a_trained_critic_knows_the_ratio_and_a_trained_generator_the_mean():
    rng = np.random.default_rng(0)
    n = 4000
    data = rng.normal(0.0, 1.0, (n, 1))
    model = against(Linear(jnp.zeros((1, 1)), jnp.zeros(1)), np.full(1, 2.0))
    critic = lr.Player(
        "critic", optax.adam(0.05), lr.CriticLoss(lr.Minimax()), lr.only(model, lambda m: m.critic)
    )
    game = lr.Game((critic,), batch_size=500, average=0.98)
    found = lr.fit(model, game, data, key=KEY, max_iter=60).model.critic
    # log p/q of N(0, 1) and N(2, 1) is 2 − 2x; the error is that of a logistic regression on so many rows
    spread = 4 / math.sqrt(n)
    np.testing.assert_allclose([found.bias[0], found.weight[0, 0]], [2.0, -2.0], atol=4 * spread)

    generator = lr.Player(
        "generator",
        optax.adam(0.02),
        lr.GeneratorLoss(lr.NonSaturating()),
        lr.only(model, lambda m: m.generator),
    )
    both = lr.Game((critic, generator), batch_size=500, average=0.98)
    both = lr.fit(model, both, data + 5.0, key=KEY, max_iter=60).model
    np.testing.assert_allclose(both.generator.shift, data.mean() + 5.0, atol=0.15)


def test_a_bilinear_game_circles_outwards_unless_players_take_turns():
    start = Linear(jnp.array([[1.0]]), jnp.array([0.5]))
    rate, steps = 0.1, 100

    def product(model, batch, key):
        return model.weight[0, 0] * model.bias[0]

    players = (
        lr.Player("x", optax.sgd(rate), product, lr.only(start, lambda m: m.weight)),
        lr.Player("y", optax.sgd(rate), lambda *a: -product(*a), lr.only(start, lambda m: m.bias)),
    )

    def end(simultaneous):
        game = lr.Game(players, simultaneous=simultaneous)
        model = lr.fit(start, game, np.zeros((1, 1)), key=KEY, max_iter=steps).model
        return float(model.weight[0, 0]), float(model.bias[0])

    x, y = end(True)
    np.testing.assert_allclose((x**2 + y**2) / 1.25, 2.70481, atol=1e-5)
    x, y = end(False)
    np.testing.assert_allclose(x**2 + y**2 - rate * x * y, 1.25 - rate * 0.5, rtol=1e-12)


def test_codes_against_scipy_and_the_bound_of_their_information():
    codes = Codes((3, 2), 2)
    assert (codes.size, codes.outputs) == (7, 9)
    np.testing.assert_allclose(codes.entropy, math.log(3 * 2 * 2 * 2))
    said = np.random.default_rng(1).normal(size=9)
    code = np.array([0, 1, 0, 1, 0, 0.3, -0.8])
    first, second = np.exp(said[:3]) / np.exp(said[:3]).sum(), np.exp(said[3:5]) / np.exp(said[3:5]).sum()
    normal = stats.norm(said[5:7], np.exp(said[7:])).logpdf(code[5:]).sum()
    np.testing.assert_allclose(jax.jit(codes.log_prob)(code, said), np.log(first[1] * second[0]) + normal)
    np.testing.assert_allclose(jax.jit(codes.expected)(said), [*first, *second, *said[5:7]])
    draw = jax.jit(lambda key: jax.vmap(lambda k: codes.sample(key=k))(jax.random.split(key, 4000)))
    drawn = np.asarray(draw(KEY))
    assert (drawn[:, :3].sum(axis=1) == 1).all()
    assert (drawn[:, 3:5].sum(axis=1) == 1).all()
    np.testing.assert_allclose(drawn[:, :3].mean(axis=0), 1 / 3, atol=4 * math.sqrt(2 / 9 / 4000))
    assert stats.kstest(drawn[:, 5], stats.uniform(-1, 2).cdf).pvalue > 0.001

    # what is made is the code itself: with Q(c | x) from a table the bound is a sum over codes
    table = np.random.default_rng(2).normal(size=(3, 3))
    only_code = Linear(jnp.concatenate([jnp.zeros((1, 3)), jnp.eye(3)]), jnp.zeros(3))
    model = Adversaries(
        only_code, only_code, Linear(jnp.asarray(table), jnp.zeros(3)), 1, Codes((3,)), mask_input=False
    )
    log_q = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    bound, error = eqx.filter_jit(lr.information_bound)(model, 2000, key=KEY)
    expected = math.log(3) + np.diag(log_q).mean()
    assert expected < math.log(3)
    assert 0 < abs(float(bound) - expected) < 4 * float(error)


def test_it_has_no_density_and_says_so():
    gan = fe.GAN(width=8, depth=1, max_iter=2, random_state=0).fit(ROWS)
    for name in ("evidence", "score_samples", "score"):
        assert not hasattr(gan, name)
        with pytest.raises(AttributeError, match=r"GAN has no density.*classifier_two_sample_test"):
            getattr(gan, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gan.nothing  # noqa: B018
    with pytest.raises(ValueError, match="takes no 'given'"):
        gan.sample(given=ROWS[:2])
    with pytest.raises(ValueError, match="'labels' parameter of InfoGAN"):
        fe.InfoGAN((1,)).fit(ROWS)
    with pytest.raises(ValueError, match="needs a label in the code"):
        fe.InfoGAN((), 1, width=8, depth=1, max_iter=1, random_state=0).fit(ROWS).predict_proba(ROWS)


def test_a_generator_need_not_be_invertible():
    model = Adversaries(Squared(jnp.ones(1)), Squared(jnp.ones(1)), None, 1)
    draw = eqx.filter_jit(lambda m, key: jax.vmap(lambda k: m.sample(key=k))(jax.random.split(key, 4000)))
    assert stats.kstest(np.asarray(draw(model, KEY))[:, 0], stats.chi2(1).cdf).pvalue > 0.001


def mixed(n, seed):
    """Columns of every kind, that depend on each other."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    frame = pl.DataFrame(
        {
            "size": z + 0.3 * rng.normal(size=n),
            "tenths": np.round(5 * z, 1),
            "events": rng.poisson(np.exp(0.5 * z)),
            "change": np.rint(3 * z + rng.normal(size=n)).astype(int),
            "sex": np.where(rng.random(n) < 0.3, "f", "m"),
            "colour": np.array(["red", "green", "blue", "grey"])[np.digitize(z, [-1, 0, 1])],
        }
    )
    holes = pl.Series(rng.random(n) < 0.1)
    return frame.with_columns(pl.when(holes).then(None).otherwise(pl.col("colour")).alias("colour"))


@pytest.fixture(scope="module")
def of_kinds():
    frame = mixed(300, 0)
    return frame, fe.GAN(width=8, depth=1, max_iter=3, random_state=0).fit(frame)


def test_draws_are_values_that_can_occur(of_kinds, tmp_path):
    frame, gan = of_kinds[0], copy.copy(of_kinds[1])
    # a generator that knows nothing yet, and is made to reach far beyond the data
    generator = jax.tree.map(lambda a: 20 * a if eqx.is_inexact_array(a) else a, gan.model_.generator)
    gan.model_ = eqx.tree_at(lambda m: m.generator, gan.model_, generator)
    drawn = gan.sample(500, random_state=1)
    assert drawn.schema == frame.schema
    assert drawn.null_count().sum_horizontal().item() == 0
    assert drawn["events"].min() >= 0
    assert drawn["change"].min() < frame["change"].min()
    assert set(drawn["sex"]) == {"f", "m"}
    assert set(drawn["colour"]) == {"red", "green", "blue", "grey"}
    np.testing.assert_array_equal(drawn["tenths"], np.round(drawn["tenths"], 1))
    assert len(np.unique(drawn["size"])) == 500
    gan.save(tmp_path / "gan.safetensors")
    assert (
        fe.load(tmp_path / "gan.safetensors")
        .sample(20, random_state=2)
        .equals(gan.sample(20, random_state=2))
    )
    # of arrays it is found out what numbers are
    rows = np.column_stack([gan.schema_.encode(frame)[:, :5], np.full(300, 7.0)])
    array = Spread.of(fe.GAN(), rows, np.ones(300)).possible(STREAM.normal(0, 20, (300, 6)))
    assert set(array[:, 4]) == {0.0, 1.0}
    np.testing.assert_array_equal(array[:, [2, 3]], np.rint(array[:, [2, 3]]))
    np.testing.assert_array_equal(array[:, 2:4].min(axis=0) < 0, [False, True])
    np.testing.assert_array_equal(array[:, 5], 7.0)


def test_rows_anywhere_in_their_cells_are_read_back(of_kinds):
    frame, gan = of_kinds
    x = gan.schema_.encode(frame)
    wide = gan.intake.reading(gan, frame).z
    assert wide.shape == (300, 5 + 4)
    corner, width = gan.spread_.cells(*gan.scaling_)
    assert (width[[0]] == 0).all()
    assert (width[1:] > 0).all()
    place = np.floor((wide - corner) / np.where(width > 0, width, 1))
    moved = np.where(width > 0, corner + width * (place + STREAM.random(wide.shape)), wide)
    assert np.nanmax(np.abs(moved - wide), axis=0)[1:].min() > 0
    whole = ~np.isnan(x).any(axis=1)
    back = gan.spread_.possible(gan.scaling_.invert(gan.intake.flat(gan, moved[whole])))
    np.testing.assert_allclose(back, x[whole], atol=1e-9)
    assert np.isnan(wide[~whole, 5:]).all()
    # and so is what the critic is shown, at other places of the same cells
    batch = lr.Batch(jnp.asarray(moved[whole], np.float32), jnp.ones(whole.sum()))
    noise = gan._with_fresh_noise(lambda model, batch, key: batch.x)
    seen = np.asarray(noise(None, batch, (), key=KEY)[0])
    assert np.abs(seen - moved[whole])[:, 1:].max(axis=0).min() > 0
    back = gan.spread_.possible(gan.scaling_.invert(gan.intake.flat(gan, seen)))
    np.testing.assert_allclose(back, x[whole], atol=1e-6)


@pytest.mark.slow
def test_labels_and_counts_are_learned_with_what_they_depend_on():
    frame = mixed(3000, 0)
    drawn = fe.GAN(random_state=0, max_iter=150).fit(frame).sample(4000, random_state=1)
    for name in ("sex", "colour"):
        share = frame[name].drop_nulls().value_counts(normalize=True).sort(name)["proportion"]
        made = drawn[name].value_counts(normalize=True).sort(name)["proportion"]
        np.testing.assert_allclose(made, share, atol=0.06)
    size = drawn["size"].to_numpy()
    red, grey = (size[(drawn["colour"] == label).to_numpy()] for label in ("red", "grey"))
    assert red.mean() < -1
    assert grey.mean() > 1
    rank = stats.spearmanr(frame["size"], frame["events"]).statistic
    np.testing.assert_allclose(stats.spearmanr(size, drawn["events"]).statistic, rank, atol=0.12)
    np.testing.assert_allclose(drawn["events"].mean(), frame["events"].mean(), rtol=0.15)


def rings(n, seed):
    """Eight Gaussians on a circle, and their centres."""
    rng = np.random.default_rng(seed)
    angle = np.arange(8) * math.pi / 4
    centres = 3 * np.column_stack([np.cos(angle), np.sin(angle)])
    return centres[rng.integers(8, size=n)] + rng.normal(0, 0.3, (n, 2)), centres


def test_what_is_learned_with_holes_and_with_codes():
    # two clusters, of which a third of the entries is hidden by chance
    rng = np.random.default_rng(0)
    sign = np.where(rng.random(1000) < 0.5, 1.0, -1.0)
    X = np.column_stack([3 * sign, 10 - 20 * sign]) + rng.normal(0, 0.5, (1000, 2))
    holes = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    small = {"width": 32, "depth": 2, "batch_size": 128, "learning_rate": 2e-3, "average": 0.98}
    model = fe.InfoGAN((2,), max_iter=60, random_state=0, **small).fit(holes)
    drawn = model.sample(2000, random_state=1)
    np.testing.assert_allclose(drawn.mean(axis=0), X.mean(axis=0), atol=0.3 * X.std(axis=0).max())
    np.testing.assert_allclose(np.corrcoef(drawn.T)[0, 1], np.corrcoef(X.T)[0, 1], atol=0.05)
    # the label of the code is the cluster
    bound, error = model.information_
    assert 0.6 < bound <= math.log(2) + 3 * error
    agrees = np.mean(model.predict(X) == (sign > 0))
    assert max(agrees, 1 - agrees) > 0.98
    np.testing.assert_allclose(model.transform(X), model.predict_proba(X))


@pytest.mark.slow
def test_eight_of_eight_modes():
    X, centres = rings(10_000, 0)
    drawn = fe.GAN(random_state=0).fit(X).sample(5000, random_state=1)
    found = ev.modes_found(drawn, centres, radius=0.9, least=250)
    assert found.found == 8
    # few between the clusters, which have their shares
    near = np.linalg.norm(drawn[:, None] - centres, axis=2)
    assert (near.min(axis=1) > 0.9).mean() < 0.1
    np.testing.assert_allclose(np.bincount(near.argmin(axis=1)) / 5000, 1 / 8, atol=0.03)
