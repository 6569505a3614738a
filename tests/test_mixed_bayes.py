"""Bayesian mixtures by column: the bound against enumeration, the predictive law against closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp

import freeenergy as fe
from freeenergy import distributions as d

RNG = np.random.default_rng(0)
N = 120
GROUP = RNG.integers(0, 2, N)
FRAME = pl.DataFrame(
    {
        "colour": np.array(["red", "green", "blue"])[np.where(GROUP, 2, RNG.integers(0, 2, N))],
        "size": RNG.normal(4.0 * GROUP, 1.0),
        "visits": RNG.poisson(2 + 2 * GROUP),
        "smokes": RNG.random(N) < 0.2 + 0.6 * GROUP,
    }
)


def fitted(n, frame=FRAME, **options):
    return fe.BayesianMixture(n, family="by column", random_state=0, **options).fit(frame)


def log_evidence(model, rows):
    """log p(rows) of one component, each column by its textbook formula."""
    numbers, counts, coins, labels = model.model_.prior.parts
    total, n = 0.0, len(rows)
    x = rows["size"].to_numpy()
    z = (x - model.scaling_.shift[1]) / model.scaling_.scale[1]
    m, k, a, b = (float(v[0]) for v in (numbers.mean, numbers.strength, numbers.shape, numbers.scale))
    kn, an = k + n, a + n / 2
    mean = z.mean() if n else 0.0
    bn = b + 0.5 * np.sum((z - mean) ** 2) + k * n * (mean - m) ** 2 / (2 * kn)
    total += gammaln(an) - gammaln(a) + a * np.log(b) - an * np.log(bn) + 0.5 * np.log(k / kn)
    total -= n / 2 * np.log(2 * np.pi) + n * np.log(model.scaling_.scale[1])
    x = rows["visits"].to_numpy()
    a, b = float(counts.shape[0]), float(counts.rate[0])
    total += a * np.log(b) - gammaln(a) + gammaln(a + x.sum()) - (a + x.sum()) * np.log(b + n)
    total -= gammaln(x + 1).sum()
    ones = rows["smokes"].sum()
    a, b = float(coins.alpha[0]), float(coins.beta[0])
    total += betaln(a + ones, b + n - ones) - betaln(a, b)
    alpha = np.asarray(labels.concentration[0])
    own = np.array([(rows["colour"] == c).sum() for c in ("blue", "green", "red")])
    total += gammaln(alpha.sum()) - gammaln(alpha.sum() + n) + np.sum(gammaln(alpha + own) - gammaln(alpha))
    return total


def test_one_component_has_the_exact_evidence():
    model = fitted(1)
    assert model.bound_ == pytest.approx(log_evidence(model, FRAME), rel=1e-9)


def test_the_bound_is_below_the_evidence_by_enumeration():
    few = FRAME[[0, 3, 5, 8, 11, 14]]
    # labels that few rows have not are still labels
    schema = fe.Schema.recognise(FRAME, kinds={"visits": "count"})
    model = fitted(2, schema.rows(few), max_iter=300, weight_concentration=1.0)
    logs = []
    for choice in itertools.product((0, 1), repeat=6):
        chosen = np.array(choice, bool)
        sizes = np.array([chosen.sum(), (~chosen).sum()])
        weights = gammaln(2.0) - gammaln(8.0) + np.sum(gammaln(1 + sizes))
        logs.append(
            weights + log_evidence(model, few.filter(chosen)) + log_evidence(model, few.filter(~chosen))
        )
    exact = logsumexp(logs)
    assert model.bound_ < exact
    # that of one solution out of two that are mirror images, or better
    assert model.bound_ > exact - np.log(2) - 3.0
    assert (np.diff(model.history_["objective"]) < 1e-9).all()


def test_the_predictive_law_has_the_closed_form():
    model = fitted(1)
    q = jax.tree.map(lambda a: np.asarray(a)[0], jax.jit(lambda m: m.posteriors())(model.model_))
    numbers, counts, coins, labels = q.parts
    row = FRAME[:1]
    df = 2 * float(numbers.shape[0])
    spread = np.sqrt(float(numbers.scale[0] / numbers.shape[0] * (1 + 1 / numbers.strength[0])))
    z = model.scaling_.apply(model._read(row).x)[0]
    expected = stats.t.logpdf(z[1], df, float(numbers.mean[0]), spread) - np.log(model.scaling_.scale[1])
    expected += stats.nbinom.logpmf(
        z[2], float(counts.shape[0]), float(counts.rate[0] / (1 + counts.rate[0]))
    )
    p = float(coins.alpha[0] / (coins.alpha[0] + coins.beta[0]))
    expected += np.log(p if z[3] else 1 - p)
    alpha = np.asarray(labels.concentration[0])
    expected += np.log(alpha[int(z[0])] / alpha.sum())
    assert model.score_samples(row)[0] == pytest.approx(expected, rel=1e-8)
    assert model.evidence(row).kind is fe.Kind.EXACT


def test_unused_components_are_switched_off_and_the_table_comes_back():
    model = fitted(6, weight_concentration=0.01)
    assert model.n_active_ <= 4
    assert model.bound_ > fitted(1).bound_
    draws = model.sample(50, random_state=0)
    assert draws.schema == FRAME.schema
    hidden = FRAME.with_columns(colour=pl.lit(None, pl.String), visits=pl.lit(None, pl.Int64))
    filled = model.impute(hidden)
    assert (filled["colour"] == FRAME["colour"]).mean() > 0.5
    assert model.means_.shape == (6, 4)
    assert set(model.parts(FRAME)) == {"weights", "means"}
    with pytest.raises(AttributeError, match="have no covariance matrix"):
        _ = model.covariances_


def test_negative_binomial_against_scipy():
    law = d.NegativeBinomial(jnp.array([2.5, 0.4]), jnp.array([0.5, 3.0]))
    x = np.array([[0.0, 3.0], [7.0, 0.0], [40.0, 1.0]])
    expected = stats.nbinom.logpmf(x, [2.5, 0.4], [0.5 / 1.5, 3 / 4]).sum(axis=1)
    x = np.concatenate([x, [[np.nan, 3.0], [0.5, 3.0]]])
    expected = [*expected, stats.nbinom.logpmf(3, 0.4, 0.75), -np.inf]
    found = jax.jit(jax.vmap(lambda v: (law.log_prob(v), law.complete_mean(v))))(x)
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)
    np.testing.assert_allclose(found[1][3], [5.0, 3.0])
    keys = jax.random.split(jax.random.key(0), 4000)
    nothing = np.full(2, np.nan)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: law.complete_sample(nothing, key=k)))(keys))
    spread = np.sqrt([5 + 10, 0.4 / 3 + 0.4 / 9])
    assert (np.abs(draws.mean(axis=0) - [5.0, 0.4 / 3]) < 5 * spread / np.sqrt(4000)).all()
    assert law.dim == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"family": "by row"}, r"must be None, 'by column' or a ByColumn with a positive strength"),
        ({"family": d.ByColumn(strength=0)}, r"with a positive strength\. Got ByColumn\(strength=0\)"),
        ({"family": "by column", "covariance": d.Full()}, "must be None where the family is by column"),
    ],
)
def test_wrong_parameters(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.BayesianMixture(2, **options).fit(FRAME)


def test_what_has_no_predictive_law_says_so():
    prior = d.BetaPrior(d.Binomial(jnp.array([0.5]), 3), jnp.ones(1), jnp.ones(1))
    with pytest.raises(
        TypeError, match=r"under BetaPrior is known for Bernoulli alone\. Got one over Binomial"
    ):
        prior.predictive()
