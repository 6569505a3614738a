"""Autoregressive models: masks, exact sums, missing entries by enumeration, and what they learn."""

import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
import pytest
from data import ROWS
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import freeenergy as fe
from freeenergy._core import on_device
from freeenergy.distributions import (
    Bernoulli,
    Categorical,
    CountTable,
    Diagonal,
    Free,
    Gaussian,
    Given,
    Logistic,
    Mean,
    Poisson,
)
from freeenergy.learning import LBFGS, Batch, Gradient, Optimiser, Reweighted, fit, negative_log_likelihood
from freeenergy.models import AutoregressiveModel, Components, Head
from freeenergy.nn import (
    AbstractCausalNetwork,
    CausalTransformer,
    Masked,
    MaskedNetwork,
    Recurrent,
    RecurrentNetwork,
    TransformerNetwork,
)

KEY = jax.random.key(0)
RECIPES = [Masked(8, 2), Masked(4, 1), CausalTransformer(8, 2, heads=2), Recurrent(6)]
BITS = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
ORDER = on_device([3, 0, 4, 2, 1])
HALF = np.array([1.0, 0.0, 1.0, np.nan, np.nan])
TOKENS = np.random.default_rng(1).normal(size=(5, 2))


@eqx.filter_jit
def built(recipe, columns, features, outputs):
    return recipe.build(columns, features, outputs, dtype=float, key=KEY)


@eqx.filter_jit
def said(network, tokens):
    return network(tokens)


@eqx.filter_jit
def log_probs(model, rows):
    return jax.vmap(model.log_prob)(rows)


@eqx.filter_jit
def drawn(model, keys):
    return jax.vmap(lambda k: model.sample(key=k))(keys)


@eqx.filter_jit
def evidence(model, x):
    return model.evidence(x, samples=4000, key=KEY)


def loud(tree, size=1.0):
    """A network whose last layer says something, too."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda a: on_device(size * rng.normal(size=a.shape)), tree)


def coins(recipe):
    """Five binary columns in an order of their own."""
    head = Head.of([Given(Bernoulli(on_device(np.full(1, 0.5))))] * 5, range(5))
    bias = on_device(0.3 * np.random.default_rng(2).normal(size=(5, 1)))
    return AutoregressiveModel(loud(built(recipe, 5, 2, 1), size=0.7), (head,), bias, ORDER)


def normal(link):
    return Given(Gaussian(on_device(np.zeros(1)), Diagonal(on_device(np.ones(1)))), link)


def mixed():
    """A number of two humps, a label, counts and a large count."""
    cells = CountTable(on_device(np.full((1, 4), 0.25)), on_device(np.full(1, 0.5)))
    heads = (
        Head.of([normal(Components(2, Free()))], [0]),
        Head.of([Given(Categorical(on_device(np.full((1, 3), 1 / 3))))], [1]),
        Head.of([Given(cells)], [2]),
    )
    network = loud(built(Masked(6, 1), 3, 3, 6), size=0.6)
    return AutoregressiveModel(network, heads, on_device(np.zeros((3, 6))), on_device([1, 0, 2]))


def test_recipes_build_networks_that_are_silent_at_first():
    kinds = (MaskedNetwork, MaskedNetwork, TransformerNetwork, RecurrentNetwork)
    for recipe, kind in zip(RECIPES, kinds, strict=True):
        network: AbstractCausalNetwork = built(recipe, 5, 2, 3)
        assert type(network) is kind
        assert not np.any(said(network, TOKENS))


@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
def test_no_place_sees_its_own_entry_or_a_later_one(recipe):
    network = loud(built(recipe, 5, 2, 3))
    slope = np.abs(np.asarray(jax.jit(jax.jacobian(network))(TOKENS))).sum(axis=(1, 3))
    assert (slope[np.triu_indices(5)] == 0).all()
    assert (slope[np.tril_indices(5, -1)] > 0).all()


@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
def test_steps_with_a_cache_say_what_all_places_at_once_say(recipe):
    network = loud(built(recipe, 5, 2, 3))

    @jax.jit
    def stepped(tokens):
        before = jnp.concatenate([jnp.zeros((1, 2)), tokens[:-1]])
        walk = lambda state, at: network.step(state, *at)  # noqa: E731
        return jax.lax.scan(walk, network.start(), (jnp.arange(5), before))[1]

    np.testing.assert_allclose(stepped(TOKENS), said(network, TOKENS), atol=1e-12)


def test_attention_needs_heads_of_one_width():
    with pytest.raises(ValueError, match=r"'width' of CausalTransformer must be a multiple of its 4 heads"):
        CausalTransformer(10)


@pytest.mark.parametrize("recipe", [RECIPES[0], RECIPES[2], RECIPES[3]], ids=repr)
def test_probabilities_of_all_binary_rows_sum_to_one_and_draws_follow_them(recipe):
    model = coins(recipe)
    chances = np.exp(np.asarray(log_probs(model, BITS)))
    np.testing.assert_allclose(chances.sum(), 1, rtol=1e-12)
    draws = np.asarray(drawn(model, jax.random.split(KEY, 4000)))
    codes = (draws @ 2.0 ** np.arange(4, -1, -1)).astype(int)
    assert stats.chisquare(np.bincount(codes, minlength=32), 4000 * chances).pvalue > 1e-3


def test_missing_entries_of_binary_rows_are_those_of_the_table():
    model = coins(RECIPES[0])
    chances = np.exp(np.asarray(log_probs(model, BITS)))
    # columns 3 and 4 are the first and the third of the order, with observed ones after them
    fits = (BITS[:, :3] == [1, 0, 1]).all(axis=1)
    own = chances[fits] / chances[fits].sum()
    found = evidence(model, HALF)
    assert abs(float(found.log_mean) - np.log(chances[fits].sum())) < 4 * float(found.stderr)
    assert 1 < float(found.effective_sample_size) < 4000

    @jax.jit
    def completed(key, keys):
        x = on_device(HALF)
        mean = model.complete_mean(x, samples=4000, key=key)
        chance = model.complete_chances(x, jnp.array(4), labels=2, samples=4000, key=key)
        return mean, chance, jax.vmap(lambda k: model.complete_sample(x, samples=64, key=k))(keys)

    mean, chance, draws = map(np.asarray, completed(KEY, jax.random.split(KEY, 2000)))
    np.testing.assert_allclose(mean[3:], own @ BITS[fits, 3:], atol=0.05)
    np.testing.assert_array_equal(mean[:3], HALF[:3])
    np.testing.assert_allclose(chance[1], mean[4], atol=1e-12)
    codes = (draws[:, 3] * 2 + draws[:, 4]).astype(int)
    assert stats.chisquare(np.bincount(codes, minlength=4), 2000 * own).pvalue > 1e-3


def test_what_is_missing_last_in_the_order_is_summed_out_exactly():
    model = coins(RECIPES[0])
    chances = np.exp(np.asarray(log_probs(model, BITS)))
    # the last two of the order
    x = np.array([1.0, np.nan, np.nan, 0.0, 1.0])
    fits = (BITS[:, [0, 3, 4]] == [1, 0, 1]).all(axis=1)
    exact = np.log(chances[fits].sum())
    np.testing.assert_allclose(log_probs(model, np.tile(x, (32, 1)))[0], exact, rtol=1e-12)
    found = evidence(model, x)
    np.testing.assert_allclose(found.log_mean, exact, rtol=1e-12)
    assert float(found.stderr) < 1e-7


def test_numbers_labels_and_counts_have_mass_one_together():
    model = mixed()
    grid, step = np.linspace(-40, 40, 2001, retstep=True)
    rows = np.array([(g, c, k) for c in range(3) for k in range(40) for g in grid])
    counts = np.arange(200.0)
    given = np.stack([0 * counts + 0.5, 0 * counts + 2, counts], 1)
    found = np.exp(np.asarray(log_probs(model, np.concatenate([rows, given]))))
    density, own = found[: len(rows)], found[len(rows) :]
    np.testing.assert_allclose(density.sum() * step, 1, atol=1e-6)
    labels = density.reshape(3, -1).sum(axis=1) * step
    draws = np.asarray(drawn(model, jax.random.split(KEY, 4000)))
    assert stats.chisquare(np.bincount(draws[:, 1].astype(int), minlength=3), 4000 * labels).pvalue > 1e-3
    below = np.cumsum(density.reshape(120, -1).sum(axis=0)) * step
    assert stats.kstest(draws[:, 0], lambda v: np.interp(v, grid, below)).pvalue > 1e-3
    row = on_device([0.5, 2.0, np.nan])
    means = jax.jit(lambda k: model.complete_mean(row, samples=2, key=k))(KEY)
    # no draw is needed for the mean of the last
    np.testing.assert_allclose(means[2], own @ counts / own.sum(), rtol=1e-9)


def test_linear_conditionals_learn_the_gaussian_of_all_columns():
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal(np.zeros(3), [[1, 0.6, -0.3], [0.6, 1, 0.2], [-0.3, 0.2, 1]], 120)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    heads = (Head.of([normal(Mean())] * 3, range(3)),)
    # without a block the network is linear
    network = built(Masked(6, 0), 3, 1, 1)
    start = AutoregressiveModel(network, heads, on_device(np.zeros((3, 1))), on_device([2, 0, 1]))
    learner = LBFGS(negative_log_likelihood, 1e-9)
    learned = fit(start, learner, X, key=KEY, max_iter=500).model
    exact = stats.multivariate_normal(X.mean(axis=0), np.cov(X.T, bias=True)).logpdf(X).mean()
    ours = np.mean(log_probs(learned, X))
    # outputs are bounded by a function that is nearly linear here
    np.testing.assert_allclose(ours, exact, atol=1e-3)


def test_a_single_column_learns_the_maximum_of_its_mixture():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 0.5, 70), rng.normal(1, 1.0, 50)])[:, None]
    best = GaussianMixture(2, random_state=0, tol=1e-10, max_iter=2000, reg_covar=0).fit(x).score(x)
    network = built(Masked(2, 1), 1, 1, 6)
    bias = on_device([[0.0, 0.0, -1.5, -1.0, 1.5, -1.0]])
    head = Head.of([normal(Components(2, Free()))], [0])
    start = AutoregressiveModel(network, (head,), bias, on_device([0]))
    learner = LBFGS(negative_log_likelihood, 1e-8)
    learned = fit(start, learner, x, key=KEY, max_iter=500).model
    np.testing.assert_allclose(np.mean(log_probs(learned, x)), best, atol=1e-6)


def test_the_gradient_of_reweighted_draws_is_that_of_the_table():
    model = coins(RECIPES[0])
    rows = np.concatenate([np.tile(HALF[:3], (4, 1)), BITS[:4, 3:]], axis=1)

    def exact(bias):
        moved = AutoregressiveModel(model.network, model.heads, bias, model.order)
        return -jax.nn.logsumexp(jax.vmap(moved.log_prob)(rows))

    def drawn(bias):
        moved = AutoregressiveModel(model.network, model.heads, bias, model.order)
        return Reweighted(4000)(moved, Batch(on_device(HALF[None]), on_device(np.ones(1))), KEY)

    (a, slope), (b, found) = (jax.jit(jax.value_and_grad(f))(model.bias) for f in (exact, drawn))
    np.testing.assert_allclose(b, a, atol=0.05)
    np.testing.assert_allclose(found, slope, atol=0.05)


SMALL = {"network": Masked(16, 1), "max_iter": 40, "random_state": 0}
HOLES = {**SMALL, "learning_rate": 0.01}
RNG = np.random.default_rng(0)


def table(n, seed=0):
    """A group, a number of two humps that depends on it, a count, a large count and a truth value."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    side = rng.random(n) < 0.5
    number = np.where(side, 3.0, -3.0) * (group > 0) + 0.5 * rng.normal(size=n)
    return pl.DataFrame(
        {
            "group": pl.Series([["a", "b", "c"][g] for g in group], dtype=pl.Categorical),
            "number": number,
            "few": rng.poisson(1.0 + 2 * side),
            "many": rng.poisson(100.0 + 60 * group),
            "yes": side,
        }
    )


@pytest.mark.slow
def test_a_mixed_table_is_learned_completed_and_drawn_from():
    frame = table(120)
    order = ["many", "group", "few", "number", "yes"]
    model = fe.Autoregressive(3, order=order, **SMALL, learning_rate=0.01).fit(frame)
    assert model.order_.tolist() == [3, 0, 2, 1, 4]
    assert [len(head.columns) for head in model.model_.heads] == [1, 1, 1, 1, 1]
    assert model.evidence(frame).kind is fe.Kind.EXACT
    # whole numbers that are large have about the mass of their density
    columns = [frame[name].to_numpy().astype(float) for name in ("number", "many")]
    independent = sum(stats.norm.logpdf(x, x.mean(), x.std()).mean() for x in columns)
    independent += stats.poisson.logpmf(frame["few"], frame["few"].mean()).mean()
    independent -= stats.entropy(frame["group"].value_counts()["count"])
    independent -= stats.entropy(frame["yes"].value_counts()["count"])
    assert model.score(frame) > independent + 0.5
    drawn = model.sample(30, random_state=0)
    assert drawn.schema == frame.schema
    assert set(drawn["group"]) <= {"a", "b", "c"}
    assert (drawn["many"] >= 0).all()
    holes = frame[:12].with_columns(
        group=pl.when(pl.int_range(12) < 6).then(None).otherwise("group"),
        yes=pl.when(pl.int_range(12) > 3).then(None).otherwise("yes"),
    )
    filled = model.impute(holes)
    assert filled.schema == frame.schema
    assert filled.null_count().sum_horizontal().item() == 0
    # the large count tells the group
    assert (filled["group"][:6] == frame["group"][:6]).sum() >= 5
    found = model.evidence(holes)
    assert found.kind is fe.Kind.LOWER
    assert (found.stderr[6:] == 0).all()
    assert (found.stderr[:6] > 0).all()
    worth = model.effective_samples(holes)
    assert (worth[:6] < 500).all()
    assert np.allclose(worth[6:], 500)


def test_orders_are_those_that_are_asked_for():
    X = ROWS.copy()
    X[3:9, 0] = np.nan
    # fewest missing first
    assert fe.Autoregressive(1, **HOLES).fit(X).order_.tolist() == [1, 0]
    assert fe.Autoregressive(1, order=np.array([0, 1]), **HOLES).fit(X).order_.tolist() == [0, 1]
    drawn = fe.Autoregressive(1, order="random", **HOLES).fit(X).order_
    assert sorted(drawn.tolist()) == [0, 1]
    for wrong in ([0, 2], [0, 0, 1], "backwards", 3):
        with pytest.raises(
            ValueError, match=r"'order' parameter of Autoregressive must have each of the 2"
        ):
            fe.Autoregressive(1, order=wrong, **HOLES).fit(X)


def test_other_families_of_numbers_and_networks():
    model = fe.Autoregressive(2, Logistic, **SMALL).fit(ROWS)
    member = model.model_.heads[0].families.member
    assert isinstance(member, Logistic)
    assert np.isfinite(model.score(ROWS))
    for wrong in (Poisson, Given(Poisson(jnp.ones(1))), "normal"):
        with pytest.raises(
            ValueError, match=r"'family' parameter of Autoregressive must be a family of loc"
        ):
            fe.Autoregressive(family=wrong).fit(ROWS)
    with pytest.raises(ValueError, match=r"'network' parameter of Autoregressive must be an instance of"):
        fe.Autoregressive(network=3).fit(ROWS)


def test_training_with_missing_entries_finds_what_depends_on_what():
    rng = np.random.default_rng(1)
    X, T = (rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], n) for n in (120, 1000))
    # in the first column of the order, too
    X[:30, 0], X[30:60, 1] = np.nan, np.nan
    model = fe.Autoregressive(1, order=[0, 1], **HOLES).fit(X)
    truth = stats.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]]).logpdf(T).mean()
    assert model.score(T) > truth - 0.2


def test_a_wild_step_ends_with_a_sentence_and_the_last_good_model():
    # a thousand times the usual rate: outputs are bounded, and the best on held-out rows is kept
    wild = fe.Autoregressive(2, **SMALL, learning_rate=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        wild.fit(ROWS)
    independent = stats.norm.logpdf(ROWS, ROWS.mean(axis=0), ROWS.std(axis=0)).sum(axis=1).mean()
    assert wild.score(ROWS) > independent - 1
    learner = Gradient(Optimiser(optax.sgd, 1e38), negative_log_likelihood)
    with pytest.warns(ConvergenceWarning, match="Autoregressive: training left the rows less likely than"):
        broken = fe.Autoregressive(2, learner=learner, **SMALL).fit(ROWS)
    assert broken.score(ROWS) > independent - 1
    nowhere = Gradient(Optimiser(optax.sgd, np.inf), negative_log_likelihood)
    with pytest.warns(ConvergenceWarning, match="non-finite at iteration 2; the last good model is kept"):
        fe.Autoregressive(2, learner=nowhere, **SMALL).fit(ROWS)


def test_training_stops_and_goes_on_from_its_file(tmp_path):
    whole = fe.Autoregressive(2, **SMALL).fit(ROWS)
    path = str(tmp_path / "fit")
    fe.Autoregressive(2, **SMALL, checkpoint=path).fit(ROWS)
    again = fe.Autoregressive(2, **SMALL, checkpoint=path).fit(ROWS)
    np.testing.assert_array_equal(again.score_samples(ROWS), whole.score_samples(ROWS))


@pytest.mark.parametrize("recipe", [CausalTransformer(8, 1, heads=2), Recurrent(8)], ids=repr)
def test_series_of_symbols_by_networks_that_all_places_share(recipe):
    rng = np.random.default_rng(0)
    flips = rng.random((120, 8)) < 0.1
    X = (np.cumsum(flips, axis=1) + rng.integers(2, size=(120, 1))) % 2.0
    model = fe.Autoregressive(**{**SMALL, "network": recipe, "max_iter": 100}, learning_rate=0.01).fit(X)
    # one bit, then seven that stay with probability 0.9
    truth = -(np.log(2) + 7 * stats.bernoulli(0.1).entropy())
    assert truth - 0.6 < model.score(X) < truth + 0.6
    cut = np.concatenate([X[:, :4], np.full((120, 4), np.nan)], axis=1)
    assert model.evidence(cut).kind is fe.Kind.EXACT
    assert (model.impute(cut)[:, 4] == X[:, 3]).mean() > 0.9
