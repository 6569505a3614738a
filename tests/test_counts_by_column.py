"""Counts that are no Poisson, in models of columns of different kinds."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import trapezoid
from scipy.special import expit

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy._core import on_device
from freeenergy.distributions._count_table import imagined_rows, poisson_serves, smooth_shares
from freeenergy.models import MixedFactors

RNG = np.random.default_rng(3)
N = 128
GROUP = RNG.integers(0, 2, 2 * N)
# years of school, much narrower than a Poisson, and visits to a doctor, much wider than two
WHOLE = pd.DataFrame(
    {
        "school": RNG.choice([8, 9, 12, 14, 16], 2 * N, p=[0.05, 0.1, 0.45, 0.15, 0.25]),
        "visits": stats.nbinom(0.4, 0.4 / (0.4 + 1 + 3 * GROUP)).rvs(random_state=RNG),
        "children": RNG.poisson(1 + 3 * GROUP),
        "size": RNG.normal(3.0 * GROUP, 1.0),
    }
)
FRAME, REST = WHOLE[:N], WHOLE[N:]
KINDS = ["count", "count", "count", "continuous"]


def parts_of(members):
    starts = np.cumsum((0, *members.sizes))[:-1]
    return {
        FRAME.columns[column]: type(part)
        for part, first, size in zip(members.parts, starts, members.sizes, strict=True)
        for column in members.order[first : first + size]
    }


def by_column(n=1, **options):
    return fe.Mixture(n, family="by column", random_state=0, **options)


@pytest.fixture(scope="module")
def model():
    return by_column(2).fit(FRAME)


def test_counts_that_are_no_poisson_have_a_table(model):
    kinds = parts_of(model.model_.components)
    assert kinds["school"] is d.CountTable
    assert kinds["children"] is d.Poisson
    # one Poisson is too narrow for the visits
    assert parts_of(by_column(1).fit(FRAME).model_.components)["visits"] is d.CountTable


def test_how_many_poissons_describe_a_column():
    one = np.ones(200)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        two = np.where(rng.random(200) < 0.5, rng.poisson(2.0, 200), rng.poisson(12.0, 200)).astype(float)
        assert poisson_serves(rng.poisson(4.0, 200).astype(float), one)
        assert not poisson_serves(two, one)
        assert poisson_serves(two, one, 2)
        assert not poisson_serves(rng.binomial(12, 0.9, 200).astype(float), one, 3)
    group = (two > 6).astype(float)
    assert poisson_serves(np.where(group, rng.poisson(12.0, 200), rng.poisson(2.0, 200)) * 1.0, one, group)
    assert not poisson_serves(np.where(group, 12.0, 2.0), one, group)


def test_smooth_shares_tell_of_neighbours_where_that_helps():
    law = stats.poisson(30)
    x, new = (law.rvs(100, random_state=seed).astype(float) for seed in (0, 1))
    shares, _ = smooth_shares(x, np.ones(100), 64)
    raw = (np.bincount(x.astype(int), minlength=64) + 1 / 64) / 101
    assert np.log(shares[new.astype(int)]).mean() > np.log(raw[new.astype(int)]).mean() + 0.1
    assert np.log(shares[new.astype(int)]).mean() > law.logpmf(new).mean() - 0.1
    # values that do not have neighbours keep to themselves, and weights are repetitions
    apart = np.repeat([2.0, 10.0, 40.0], 50)
    shares, _ = smooth_shares(apart, np.ones(150), 64)
    np.testing.assert_allclose(shares[[2, 10, 40]], 1 / 3, atol=0.01)
    few, _ = smooth_shares(np.array([2.0, 10.0, 40.0, np.nan]), np.array([50.0, 50.0, 50.0, 9.0]), 64)
    np.testing.assert_allclose(few, shares, rtol=1e-12)
    # beyond the table what is left is a geometric law
    far = np.array([300.0, 400.0] * 40)
    assert smooth_shares(far, np.ones(80), 256)[1] == pytest.approx(95 / 96, abs=1e-2)


@pytest.mark.parametrize("column", ["school", "visits"])
def test_held_out_bits_are_fewer_than_those_of_a_poisson(column):
    kinds = {column: "count"}
    rows, new = (fe.Schema.recognise(f[[column]], kinds=kinds).rows(f[[column]]) for f in (FRAME, REST))
    poisson = stats.poisson(FRAME[column].mean()).logpmf(REST[column])
    table = by_column().fit(rows).score_samples(new)
    gain = (table - poisson) / np.log(2)
    assert gain.mean() > 0.3
    if column == "school":
        assert gain.mean() > 5 * gain.std() / np.sqrt(N)
    else:
        # nearly as good as the law that it was drawn from
        truth = [stats.nbinom(0.4, 0.4 / (0.4 + 1 + 3 * g)).pmf(REST[column]) for g in (0, 1)]
        assert (np.log(np.mean(truth, axis=0)) - table).mean() / np.log(2) < 0.15


def test_all_counts_have_a_probability_and_marginals_are_exact(model):
    alone = pd.DataFrame(np.nan, np.arange(4000), FRAME.columns)
    for column in ("school", "visits"):
        frame = alone.assign(**{column: np.arange(4000.0)})
        mass = np.exp(model.score_samples(frame))
        assert (mass[:200] > 0).all()
        assert mass.sum() == pytest.approx(1, abs=1e-9)
    # given the rest of a row, by enumeration
    row = FRAME.iloc[[5]].astype(float)
    hidden = row.assign(visits=np.nan)
    each = model.score_samples(row.loc[[5] * 2000].assign(visits=np.arange(2000.0)))
    assert np.logaddexp.reduce(each) == pytest.approx(model.score_samples(hidden)[0])


def test_members_are_those_of_the_posterior_mode():
    """One member, by counting: shares of the column, and more of the smooth ones."""
    found = by_column().fit(FRAME).model_.component(0)
    part = found.parts[parts_index(found, "school")]
    column = FRAME["school"].to_numpy(float)
    own, _ = smooth_shares(column, np.ones(N), part.probabilities.shape[-1])
    rows = imagined_rows(column, np.ones(N), own, 1)
    tally = np.bincount(FRAME["school"], minlength=len(own))
    expected = (tally + rows * own) / (N + rows)
    # columns whose tables have as many cells are one part
    assert min(np.abs(p - expected).max() for p in np.asarray(part.probabilities)) < 1e-9
    # of several members the column tells less
    assert np.sqrt(N) <= imagined_rows(column, np.ones(N), own, 2) <= N / 4
    assert rows > N


def parts_index(member, column):
    starts, place = np.cumsum(member.sizes), member.order.tolist().index(FRAME.columns.get_loc(column))
    return int(np.searchsorted(starts, place, side="right"))


def test_draws_and_imputation_are_counts(model):
    drawn = model.sample(2000, random_state=0)
    for column in ("school", "visits"):
        values = drawn[column].to_numpy()
        assert (values == np.floor(values)).all()
        error = values.std() / np.sqrt(2000)
        alone = pd.DataFrame(np.nan, np.arange(2000), FRAME.columns).assign(**{column: np.arange(2000.0)})
        mean = np.exp(model.score_samples(alone)) @ np.arange(2000)
        assert abs(values.mean() - mean) < 5 * error
    holes = FRAME.astype(float).assign(school=np.nan)
    assert set(model.impute(holes)["school"]) <= set(range(17))


def test_files_and_parts_keep_tables(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        fe.load(tmp_path / "model.safetensors").score_samples(REST), model.score_samples(REST)
    )
    grown = by_column(2).partial_fit(FRAME).partial_fit(REST.assign(school=REST["school"] + 20))
    assert parts_of(grown.model_.components)["school"] is d.CountTable
    assert np.isfinite(grown.score_samples(WHOLE)).all()
    labels = np.where(GROUP, "a", "b")
    whole = fe.NaiveBayes("by column").fit(WHOLE, labels)
    parts = fe.NaiveBayes("by column").partial_fit(FRAME, labels[:N]).partial_fit(REST, labels[N:])
    assert parts_of(whole.model_.components)["visits"] is d.CountTable
    np.testing.assert_allclose(parts.predict_proba(WHOLE), whole.predict_proba(WHOLE), rtol=1e-8)


def test_bayesian_mixtures_and_chains_have_them():
    bayes = fe.BayesianMixture(2, family="by column", random_state=0).fit(FRAME)
    alone = pd.DataFrame(np.nan, np.arange(4000), FRAME.columns).assign(school=np.arange(4000.0))
    assert np.exp(bayes.score_samples(alone)).sum() == pytest.approx(1, abs=1e-6)
    chain = fe.HMM(2, family="by column", random_state=0).fit(FRAME)
    assert parts_of(chain.model_.emissions.members)["school"] is d.CountTable


def test_a_table_is_made_for_the_rows_it_is_given():
    table = d.CountTable.prototype(np.array([[1.0, 3.0], [2.0, 40.0], [np.nan, 5.0]]))
    assert table.probabilities.shape == (2, 64)
    np.testing.assert_allclose(table.probabilities.sum(axis=1), 1)
    assert np.isneginf(table.log_prob(jnp.array([0.5, 1.0])))
    member = d.ByColumn().member(
        KINDS, [0] * 4, {1: d.CountTable(jnp.full((1, 8), 1 / 8), jnp.full(1, 0.5))}
    )
    assert member.columns == (3, 0, 2, 1)
    assert d.ByColumn(strength=0).prior(member, np.ones(4), 2) is None
    assert list(d.ByColumn().tables(KINDS, FRAME.to_numpy(float), np.ones(N), 1, like=member)) == [1]
    assert d.ByColumn(strength=0).tables(KINDS, FRAME.to_numpy(float), np.ones(N), 1) == {}


def test_a_tilted_table_is_what_enumeration_says():
    shares, ratio = np.array([[0.5, 0.25, 0.15, 0.1], [0.1, 0.2, 0.3, 0.4]]), np.array([0.5, 0.3])
    given = d.Given(d.CountTable(*map(on_device, (shares, ratio))), d.Tilted())
    output = np.array([0.7, -1.2])
    ask = jax.jit(lambda output, x: (given.at(output).probabilities, given.log_prob(output, x)))
    cells = np.arange(4)
    gap = cells - (shares @ cells)[:, None]
    tilt = np.exp(output[:, None] * gap / np.sqrt((shares * gap**2).sum(axis=1))[:, None])
    expected = shares * tilt / (shares * tilt).sum(axis=1)[:, None]
    # a count in the tail, and one that is missing
    for row, p in (
        ([2.0, 5.0], expected[0, 2] * expected[1, 3] * 0.7 * 0.3**2),
        ([np.nan, 1.0], expected[1, 1]),
    ):
        tilted, nats = ask(output, np.array(row))
        np.testing.assert_allclose(tilted, expected, rtol=1e-12)
        np.testing.assert_allclose(nats, np.log(p), rtol=1e-12)
    # far outputs are none too many
    assert np.isfinite(ask(np.array([1e4, -1e4]), np.array([0.0, 3.0]))[1])
    assert given.size == 2


def test_factors_tilt_the_tables_of_counts_that_are_no_poisson():
    # a Poisson for each row, with rates that are log-normal, is as wide as the visits
    x, weight = FRAME.to_numpy(float), np.ones(N)
    assert [*d.ByColumn().tables(KINDS, x, weight, 1)] == [0, 1]
    assert [*d.ByColumn().tables(KINDS, x, weight, None)] == [0]
    shares, w, b = np.array([[0.4, 0.3, 0.2, 0.1]]), np.array([[1.5], [-0.8]]), np.array([0.3, 0.2])
    parts = (
        d.CountTable(*map(on_device, (shares, np.array([0.25])))),
        d.Bernoulli(on_device(np.full(1, 0.5))),
    )
    emission = d.Given(d.Product(parts, sizes=(1, 1)), d.Parts((d.Tilted(), d.Natural())))
    model = MixedFactors(on_device(w), on_device(b), emission)
    rows = np.array([[k, yes] for k in range(30) for yes in (0.0, 1.0)])
    found = np.exp(jax.jit(jax.vmap(model.log_prob_by_quadrature))(rows))
    assert found.sum() == pytest.approx(1, abs=1e-9)
    z = np.linspace(-9, 9, 2001)
    gap = np.arange(4) - shares[0] @ np.arange(4)
    tilted = shares * np.exp((w[0] * z + b[0])[:, None] * gap / np.sqrt(shares[0] @ gap**2))
    tilted /= tilted.sum(axis=1, keepdims=True)
    yes = expit(w[1] * z + b[1])
    for row, p in (
        ([1.0, 1.0], tilted[:, 1] * yes),
        ([5.0, 0.0], tilted[:, 3] * 0.75 * 0.25**2 * (1 - yes)),
    ):
        expected = trapezoid(p * stats.norm.pdf(z), z)
        assert found[(rows == row).all(axis=1)][0] == pytest.approx(expected, rel=1e-6)
