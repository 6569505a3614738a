"""Hidden Markov models and Markov chains, against enumeration, hmmlearn and identities."""

import copy
import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import statsmodels.api as sm
from hmmlearn.hmm import CategoricalHMM, GaussianHMM
from scipy import special, stats
from sklearn.base import clone as sklearn_clone
from sklearn.linear_model import LogisticRegression

import freeenergy as fe
from freeenergy import models
from freeenergy._core import count_compilations, on_device
from freeenergy.distributions import (
    Categorical,
    Diagonal,
    DirichletPrior,
    Full,
    Gaussian,
    Multinomial,
    NormalInverseWishart,
    Poisson,
    Product,
    Spherical,
    Tied,
)
from freeenergy.learning import EM, Gradient, fit, negative_log_likelihood
from freeenergy.models import (
    HMM,
    InputTransition,
    LogisticTransition,
    RegressionEmissions,
    TiedTransition,
    Transition,
    one_series,
)
from freeenergy.models._regressions import clusterwise_regressions
from freeenergy.shell._rows import Scaling
from freeenergy.shell._series import check_inputs, pack

ICE = Categorical(on_device([[[0.2, 0.4, 0.4]], [[0.5, 0.4, 0.1]]]))
WEATHER = HMM(on_device([0.8, 0.2]), on_device([[0.6, 0.4], [0.5, 0.5]]), ICE)
DIARY = np.array([[2.0], [0.0], [2.0]])


def steps_of_em(model, series, n, states=None, inputs=None, **options):
    data = pack(series, states, inputs)
    return fit(model, EM(tol=-np.inf, **options), data, key=jax.random.key(0), max_iter=n)


def gaussian_problem(seed=0, lengths=(12, 7, 20), k=3, d=2):
    rng = np.random.default_rng(seed)
    means = 3 * rng.normal(size=(k, d))
    transition = rng.dirichlet(np.ones(k), k)
    series = []
    for n in lengths:
        z = [rng.integers(k)]
        for _ in range(n - 1):
            z.append(rng.choice(k, p=transition[z[-1]]))
        series.append(means[z] + rng.normal(size=(n, d)))
    start = {
        "initial": rng.dirichlet(np.ones(k)),
        "transition": rng.dirichlet(np.ones(k), k),
        "means": means + rng.normal(size=(k, d)),
        "covariances": np.stack([np.eye(d) * (1 + j) for j in range(k)]),
    }
    model = HMM(
        jnp.asarray(start["initial"]),
        jnp.asarray(start["transition"]),
        Gaussian(jnp.asarray(start["means"]), Full(jnp.asarray(start["covariances"]))),
    )
    return series, start, model


def enumerated(model, x, density):
    """log p(x) and p(state | x) by every path; `density(k, row)` is log p(row | k)."""
    k = model.size
    logs = np.array([[density(j, row) for j in range(k)] for row in x])
    paths = np.array(list(itertools.product(range(k), repeat=len(x))))
    start, transition = np.asarray(model.start()), np.asarray(model.transition.matrix())
    score = np.log(start)[paths[:, 0]] + logs[np.arange(len(x)), paths].sum(axis=1)
    score = score + np.log(transition)[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    p = np.exp(score)
    gamma = np.array([[p[paths[:, t] == j].sum() for j in range(k)] for t in range(len(x))])
    return np.log(p.sum()), gamma / p.sum()


def marginal_density(means, covariances):
    def density(k, row):
        seen = ~np.isnan(row)
        if not seen.any():
            return 0.0
        return stats.multivariate_normal(means[k][seen], covariances[k][np.ix_(seen, seen)]).logpdf(
            row[seen]
        )

    return density


@eqx.filter_jit
def log_prob(model, series):
    return model.log_prob(series)


@eqx.filter_jit
def read(model, series):
    """log p(x), and p(state | x) of each step."""
    return model.log_prob(series), model.smooth(series).marginals


@eqx.filter_jit
def matrices(transition, inputs):
    return jax.vmap(transition.matrix)(inputs)


def test_baum_welch_on_the_ice_cream_diary():
    probabilities, model = [], WEATHER
    first = steps_of_em(model, [DIARY], 1).model
    np.testing.assert_allclose(
        first.transition.matrix(), [[0.5372005, 0.4627995], [0.7534103, 0.2465897]], atol=5e-8
    )
    result = steps_of_em(model, [DIARY], 3)
    probabilities = np.exp(-result.history["objective"])
    np.testing.assert_allclose(probabilities, [0.220007205, 0.441868103, 0.896153049], atol=5e-9)
    # a symbol that was never seen has no probability left
    assert float(first.emissions.members.probabilities[:, 0, 1].max()) < 1e-15


def test_same_steps_as_hmmlearn():
    series, start, model = gaussian_problem()
    ours = steps_of_em(model, series, 8)
    peer = GaussianHMM(
        3,
        "full",
        n_iter=8,
        tol=-np.inf,
        init_params="",
        min_covar=0,
        covars_prior=0,
        covars_weight=0,
        means_weight=0,
    )
    peer.startprob_, peer.transmat_ = start["initial"], start["transition"]
    peer.means_, peer.covars_ = start["means"], start["covariances"]
    rows, lengths = np.concatenate(series), [len(x) for x in series]
    peer.fit(rows, lengths)
    # the peer reports the likelihood before each step, we after it; rows of ours are packs of series
    packs = float(pack(series).rows)
    np.testing.assert_allclose(
        -ours.history["objective"][:-1] * packs, list(peer.monitor_.history)[1:], rtol=1e-9
    )
    np.testing.assert_allclose(ours.model.transition.matrix(), peer.transmat_, atol=1e-7)
    np.testing.assert_allclose(ours.model.emissions.members.mean, peer.means_, atol=1e-7)
    score, path = peer.decode(series[0])
    best = eqx.filter_jit(ours.model.decode)(one_series(on_device(series[0])))
    np.testing.assert_allclose(best.log_prob[0], score, rtol=1e-8)
    np.testing.assert_array_equal(best.states[:, 0], path)


def test_missing_entries_and_steps_are_marginalised():
    series, start, model = gaussian_problem(1, (5,))
    x = series[0].copy()
    x[1, 0] = x[2] = x[4, 1] = np.nan
    expected, gamma = enumerated(model, x, marginal_density(start["means"], start["covariances"]))
    found, marginals = read(model, one_series(on_device(x)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(marginals, gamma, atol=1e-10)
    # one EM step against the same sums written out
    after = steps_of_em(model, [x], 1).model
    density, total, weight = marginal_density(start["means"], start["covariances"]), 0.0, 0.0
    for t, value in enumerate(x):
        seen = ~np.isnan(value)
        if not seen.any():
            continue
        mean, cov = start["means"][0], start["covariances"][0]
        filled = value.copy()
        gain = cov[np.ix_(~seen, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
        filled[~seen] = mean[~seen] + gain @ (value[seen] - mean[seen])
        total, weight = total + gamma[t, 0] * filled, weight + gamma[t, 0]
    assert density(0, x[2]) == 0
    np.testing.assert_allclose(after.emissions.members.mean[0], total / weight, rtol=1e-9)


def test_ragged_series_are_each_alone_and_em_never_worsens():
    series, _, model = gaussian_problem(2, (30, 4, 9, 1, 17))
    data = pack(series)
    assert data.x.values.shape[0] < len(series)
    # steps of which nothing is known add nothing
    longer = np.full((len(series), 30, 2), np.nan)
    for row, x in zip(longer, series, strict=True):
        row[: len(x)] = x

    @jax.jit
    def each(packed):
        return jax.vmap(model.log_prob)(packed), jax.vmap(lambda x: model.log_prob(one_series(x)))(longer)

    packed, alone = each(data.x)
    alone = np.sum(alone)
    np.testing.assert_allclose(packed @ data.weight, alone, rtol=1e-12)
    history = steps_of_em(model, series, 15).history["objective"]
    assert (np.diff(history) <= 1e-10).all()
    assert history[0] * float(data.rows) < -alone


def test_rank_one_transitions_are_a_mixture():
    series, start, _ = gaussian_problem(3)
    members = Gaussian(jnp.asarray(start["means"]), Full(jnp.asarray(start["covariances"])))
    weights = jnp.asarray(start["initial"])
    chain = HMM(weights, jnp.broadcast_to(weights[None], (3, 3)), members)
    mixture = models.Mixture(weights, members)

    @jax.jit
    def both(rows):
        steps, marginals = chain.step_evidence(one_series(rows)), chain.smooth(one_series(rows)).marginals
        r = jax.vmap(lambda row: mixture.posterior(row).probabilities)(rows)
        return (steps, jax.vmap(mixture.log_prob)(rows)), (marginals, r)

    evidence, shares = both(series[0])
    np.testing.assert_allclose(*evidence, rtol=1e-10)
    np.testing.assert_allclose(*shares, atol=1e-10)


def test_series_of_one_step_are_a_mixture_to_all_steps_of_em():
    series, start, model = gaussian_problem(4, (1,) * 40)
    chain = steps_of_em(model, series, 5).model
    mixture = models.Mixture(jnp.asarray(start["initial"]), model.emissions.members)
    mixture = fit(mixture, EM(tol=-np.inf), np.concatenate(series), key=jax.random.key(0), max_iter=5).model
    np.testing.assert_allclose(chain.initial, mixture.weights, rtol=1e-9)
    np.testing.assert_allclose(chain.emissions.members.mean, mixture.components.mean, rtol=1e-9)


def test_known_states_are_counts():
    series, _, model = gaussian_problem(5, (40, 30))
    rng = np.random.default_rng(0)
    states = [rng.integers(3, size=len(x)).astype(np.int32) for x in series]
    fitted = steps_of_em(model, series, 1, states=states).model
    pairs = np.zeros((3, 3))
    for z in states:
        np.add.at(pairs, (z[:-1], z[1:]), 1)
    np.testing.assert_allclose(
        fitted.transition.matrix(), pairs / pairs.sum(axis=1, keepdims=True), atol=1e-12
    )
    rows, z = np.concatenate(series), np.concatenate(states)
    np.testing.assert_allclose(fitted.emissions.members.mean[1], rows[z == 1].mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        np.asarray(fitted.emissions.members.covariance.matrix())[1],
        np.cov(rows[z == 1].T, bias=True),
        rtol=1e-9,
    )
    # with one state known the evidence is that of the paths through it
    x = series[0][:4]
    some = np.array([-1, 2, -1, -1])
    given = log_prob(model, one_series(on_device(x), on_device(some)))
    evidence, marginals = map(np.asarray, read(model, one_series(on_device(x))))
    np.testing.assert_allclose(given, evidence + np.log(marginals[1, 2]), rtol=1e-9)


@pytest.mark.slow
def test_viterbi_training_raises_the_best_path():
    series, _, model = gaussian_problem(6)
    result = steps_of_em(model, series, 6, temperature=0.0)
    assert (np.diff(result.history["objective"]) <= 1e-10).all()
    best = sum(float(result.model.decode(one_series(jnp.asarray(x))).log_prob[0]) for x in series)
    np.testing.assert_allclose(-result.history["objective"][-1] * float(pack(series).rows), best, rtol=1e-9)
    # counts of the best paths
    before = steps_of_em(model, series, 5, temperature=0.0).model
    pairs = np.zeros((3, 3))
    for x in series:
        z = np.asarray(before.decode(one_series(jnp.asarray(x))).states[:, 0])
        np.add.at(pairs, (z[:-1], z[1:]), 1)
    left = pairs.sum(axis=1) > 0
    expected = pairs[left] / pairs[left].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.asarray(result.model.transition.matrix())[left], expected, atol=1e-12)


def test_tempered_posterior_by_enumeration():
    x = DIARY
    temperature = 2.5
    paths = np.array(list(itertools.product(range(2), repeat=3)))
    emission = np.asarray(ICE.probabilities)[:, 0]
    start, transition = np.asarray(WEATHER.initial), np.asarray(WEATHER.transition.matrix())
    score = np.log(start)[paths[:, 0]] + np.log(transition)[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    score = score + np.log(emission)[paths, x[:, 0].astype(int)].sum(axis=1)
    q = np.exp(score / temperature)
    free = -temperature * np.log(q.sum())
    q = q / q.sum()
    data = pack([x])
    found, value = eqx.filter_jit(WEATHER.expect)(
        data.x, data.weight, temperature=on_device(temperature), incomplete=False
    )
    np.testing.assert_allclose(value, free, rtol=1e-10)
    pairs = np.zeros((2, 2))
    for path, p in zip(paths, q, strict=True):
        np.add.at(pairs, (path[:-1], path[1:]), p)
    np.testing.assert_allclose(found.pairs, pairs, rtol=1e-9)
    np.testing.assert_allclose(found.starts, [q[paths[:, 0] == k].sum() for k in range(2)], rtol=1e-9)


@pytest.mark.slow
def test_structural_zeros_priors_and_ties():
    series, _, model = gaussian_problem(7, (60, 60))
    matrix = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    masked = eqx.tree_at(
        lambda m: m.transition, model, Transition(jnp.asarray(matrix), jnp.full((3, 3), 2.0))
    )
    result = steps_of_em(masked, series, 4)
    after = np.asarray(result.model.transition.matrix())
    assert (after[matrix == 0] == 0).all()
    assert (after[matrix > 0] > 0).all()
    assert (np.diff(result.history["objective"]) <= 1e-10).all()
    # MAP: counts plus one imagined count each
    data = pack(series)
    counts = result.model.expect(data.x, data.weight, temperature=jnp.ones(()), incomplete=False)[0].pairs
    once = result.model.transition.maximise(counts).matrix()
    expected = np.where(matrix > 0, np.asarray(counts) + 1, 0)
    np.testing.assert_allclose(once, expected / expected.sum(axis=1, keepdims=True), rtol=1e-10)

    labels = jnp.eye(3, dtype=int)
    tied = eqx.tree_at(lambda m: m.transition, model, TiedTransition(jnp.array([0.3, 0.7]), labels))
    result = steps_of_em(tied, series, 4)
    assert (np.diff(result.history["objective"]) <= 1e-10).all()
    after = np.asarray(result.model.transition.matrix())
    assert len(np.unique(np.diag(after).round(12))) == 1
    np.testing.assert_allclose(after.sum(axis=1), 1)
    # no other share explains the pairs better
    counts = np.asarray(
        result.model.expect(data.x, data.weight, temperature=jnp.ones(()), incomplete=False)[0].pairs
    )
    best = result.model.transition.maximise(jnp.asarray(counts)).share
    np.testing.assert_allclose(best[1], np.trace(counts) / counts.sum(), rtol=1e-9)


def test_log_prior_is_the_density_of_scipy():
    rows = jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    alpha = jnp.array([2.0, 3.0, 1.5])
    prior = NormalInverseWishart(jnp.zeros(1), jnp.array(1.0), jnp.eye(1) * 8, jnp.array(5.0))
    members = Gaussian(jnp.zeros((3, 1)), Full(jnp.ones((3, 1, 1))))
    model = HMM(
        rows[0], Transition(rows, alpha[None]), models.FamilyEmissions(members, prior), jnp.full(3, 2.0)
    )
    expected = sum(stats.dirichlet(np.asarray(alpha)).logpdf(np.asarray(r)) for r in rows)
    expected += stats.dirichlet([2.0, 2.0, 2.0]).logpdf(np.asarray(rows[0]))
    expected += 3 * (stats.invwishart(5, np.eye(1) * 8).logpdf(1.0) + stats.norm(0, 1).logpdf(0.0))
    np.testing.assert_allclose(eqx.filter_jit(model.log_prior)(), expected, rtol=1e-9)


@pytest.mark.slow
def test_stationary_start():
    series, _, model = gaussian_problem(8, (6,) * 15)
    model = HMM(None, model.transition, model.emissions)
    start = np.asarray(model.start())
    np.testing.assert_allclose(start, start @ np.asarray(model.transition.matrix()), atol=1e-12)
    result = steps_of_em(model, series, 200)
    assert (np.diff(result.history["objective"]) <= 1e-9).all()
    # the end is a maximum: the slope of the likelihood in the logits vanishes
    data = pack(series)

    def total(logits):
        moved = eqx.tree_at(lambda m: m.transition.rows, result.model, jax.nn.softmax(logits, axis=1))
        return jnp.sum(jax.vmap(moved.log_prob)(data.x) * data.weight)

    logits = jnp.log(jnp.maximum(result.model.transition.rows, 1e-12))
    assert np.abs(jax.grad(total)(logits)).max() < 0.02


@pytest.mark.slow
def test_gradient_learns_what_em_learns():
    series, _, model = gaussian_problem(9, (40, 40), k=2, d=1)
    em = steps_of_em(model, series, 300)
    learner = Gradient(optax.adam(0.05), negative_log_likelihood, batch_size=None)
    result = fit(model, learner, pack(series), key=jax.random.key(0), max_iter=800)
    np.testing.assert_allclose(result.history["objective"][-1], em.history["objective"][-1], rtol=1e-4)


class Logits(eqx.Module):
    stay: jax.Array
    slope: jax.Array

    def __call__(self, u):
        return jnp.eye(2) * (self.stay + self.slope * u[0])


@pytest.mark.slow
def test_transitions_that_depend_on_an_input():
    """A sticky and a restless regime, told apart by the input; learned by gradient."""
    rng = np.random.default_rng(0)
    n = 400
    u = rng.integers(2, size=(n, 1)).astype(float)
    z = np.zeros(n, int)
    for t in range(1, n):
        stay = 0.95 if u[t, 0] else 0.2
        z[t] = z[t - 1] if rng.random() < stay else 1 - z[t - 1]
    x = 3.0 * z[:, None] + 0.5 * rng.normal(size=(n, 1))
    members = Gaussian(jnp.array([[0.0], [3.0]]), Full(jnp.full((2, 1, 1), 0.25)))
    model = HMM(jnp.array([0.5, 0.5]), InputTransition(Logits(jnp.zeros(()), jnp.zeros(()))), members)
    series = one_series(jnp.asarray(x), inputs=jnp.asarray(u))
    data = jax.tree.map(lambda a: a[None], series)
    learner = Gradient(optax.adam(0.1), negative_log_likelihood, batch_size=None)
    result = fit(
        model,
        learner,
        fe.Data(data, jnp.ones(1), jnp.asarray(1, jnp.int32), False),
        key=jax.random.key(0),
        max_iter=150,
    )
    logits = result.model.transition.logits
    restless, sticky = jax.nn.sigmoid(logits.stay), jax.nn.sigmoid(logits.stay + logits.slope)
    assert abs(float(restless) - 0.2) < 0.08
    assert abs(float(sticky) - 0.95) < 0.05
    with pytest.raises(ValueError, match="EM needs a transition that counts or logistic regression"):
        model.prepare()
    with pytest.raises(ValueError, match="needs the inputs of every time step"):
        model.log_prob(one_series(jnp.asarray(x)))
    with pytest.raises(ValueError, match="InputTransition needs the inputs"):
        model.transition.matrix()


def switching_regression(seed=0, lengths=(120, 80)):
    """Two regressions on two inputs that take turns as the second input says."""
    rng = np.random.default_rng(seed)
    W = np.array([[[2.0, 0.0], [0.0, 1.0]], [[-1.0, 0.5], [1.0, 0.0]]])
    series, inputs, states = [], [], []
    for n in lengths:
        u = rng.normal(size=(n, 2))
        z = np.zeros(n, np.int32)
        for t in range(1, n):
            stay = 1 / (1 + np.exp(-2 - 2 * u[t, 1]))
            z[t] = z[t - 1] if rng.random() < stay else 1 - z[t - 1]
        series.append(np.einsum("tij,tj->ti", W[z], u) + z[:, None] + 0.3 * rng.normal(size=(n, 2)))
        inputs.append(u)
        states.append(z)
    return series, inputs, states


def driven_model(covariance=None):
    rng = np.random.default_rng(5)
    return HMM(
        jnp.array([0.6, 0.4]),
        LogisticTransition(jnp.asarray(rng.normal(size=(2, 2, 2))), jnp.asarray(rng.normal(size=(2, 2)))),
        RegressionEmissions(
            jnp.asarray(rng.normal(size=(2, 2, 2))),
            jnp.asarray(rng.normal(size=(2, 2))),
            Full(jnp.array([[[1.0, 0.3], [0.3, 0.5]], [[0.7, 0.0], [0.0, 1.0]]]))
            if covariance is None
            else covariance,
        ),
    )


def test_markov_switching_regression_of_statsmodels():
    rng = np.random.default_rng(1)
    n = 60
    u, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    peer = sm.tsa.MarkovRegression(
        y, 2, exog=u, switching_variance=True, exog_tvtp=np.column_stack([np.ones(n), u[:, 0]])
    )
    slopes, intercept, variance = rng.normal(size=(2, 2)), rng.normal(size=2), np.array([0.5, 1.5])
    leave = rng.normal(size=(2, 2))
    values = {
        **{f"p[{i}->0].tvtp0": leave[i, 0] for i in range(2)},
        **{f"p[{i}->0].tvtp1": leave[i, 1] for i in range(2)},
        **{f"const[{i}]": intercept[i] for i in range(2)},
        **{f"x{j + 1}[{i}]": slopes[i, j] for i in range(2) for j in range(2)},
        **{f"sigma2[{i}]": variance[i] for i in range(2)},
    }
    expected = peer.loglike([values[name] for name in peer.param_names])
    # state 0 against state 1, which has the logit zero
    weights = np.zeros((2, 2, 2))
    weights[:, 0, 0] = leave[:, 1]
    transition = LogisticTransition(
        on_device(weights), on_device(np.column_stack([leave[:, 0], np.zeros(2)]))
    )
    emissions = RegressionEmissions(
        on_device(slopes[:, None]), on_device(intercept[:, None]), Diagonal(on_device(variance[:, None]))
    )

    @jax.jit
    def from_where_it_stays(series):
        start = fe.inference.stationary(transition.matrix(series.inputs[0]))
        return HMM(start, transition, emissions).log_prob(series)

    series = one_series(on_device(y[:, None]), inputs=on_device(u))
    np.testing.assert_allclose(from_where_it_stays(series), expected, rtol=1e-10)


def test_known_states_make_linear_and_logistic_regressions():
    series, inputs, states = switching_regression()
    fitted = steps_of_em(driven_model(), series, 25, states, inputs).model
    rows, u, z = (np.concatenate(parts) for parts in (series, inputs, states))
    design = np.column_stack([u, np.ones(len(u))])
    spreads = np.asarray(fitted.emissions.covariance.matrix())
    moves = np.asarray(matrices(fitted.transition, u[:9]))
    for k in range(2):
        W, *_ = np.linalg.lstsq(design[z == k], rows[z == k], rcond=None)
        np.testing.assert_allclose(np.asarray(fitted.emissions.weights)[k], W[:2].T, atol=1e-9)
        np.testing.assert_allclose(np.asarray(fitted.emissions.intercept)[k], W[2], atol=1e-9)
        gap = rows[z == k] - design[z == k] @ W
        np.testing.assert_allclose(spreads[k], gap.T @ gap / len(gap), atol=1e-9)
        before = np.concatenate([s[:-1] for s in states]) == k
        pushes, after = (np.concatenate([p[1:] for p in parts])[before] for parts in (inputs, states))
        peer = LogisticRegression(C=np.inf, tol=1e-10).fit(pushes, after)
        np.testing.assert_allclose(moves[:, k], peer.predict_proba(u[:9]), atol=1e-6)


@pytest.mark.parametrize(
    "covariance",
    [
        None,
        pytest.param(Diagonal(jnp.ones((2, 2))), marks=pytest.mark.slow),
        pytest.param(Tied(Full(jnp.eye(2))), marks=pytest.mark.slow),
    ],
    ids=["full", "diagonal", "tied"],
)
@pytest.mark.slow
def test_em_with_inputs_and_missing_entries(covariance):
    series, inputs, _ = switching_regression(2, (40, 25))
    rng = np.random.default_rng(3)
    holes = [np.where(rng.random(x.shape) < 0.2, np.nan, x) for x in series]
    model = driven_model(covariance)
    # the likelihood of a few steps, by every path
    y, u = holes[0][:5], inputs[0][:5]
    W, b = np.asarray(model.emissions.weights), np.asarray(model.emissions.intercept)
    members = model.emissions.at(jnp.zeros(2))
    spreads = [np.asarray(members.member(k).covariance.matrix()) for k in range(2)]
    moves = np.log(jax.vmap(model.transition.matrix)(jnp.asarray(u)))
    logs = [[marginal_density(W @ ut + b, spreads)(k, yt) for k in range(2)] for yt, ut in zip(y, u)]
    scores = []
    for path in itertools.product(range(2), repeat=5):
        score = float(np.log(model.initial[path[0]])) + sum(logs[t][k] for t, k in enumerate(path))
        scores.append(score + sum(moves[t, path[t - 1], path[t]] for t in range(1, 5)))
    total = np.logaddexp.reduce(scores)
    found = model.log_prob(one_series(jnp.asarray(y), inputs=jnp.asarray(u)))
    np.testing.assert_allclose(found, total, rtol=1e-10)
    result = steps_of_em(model, holes, 30, inputs=inputs)
    assert (np.diff(result.history["objective"]) <= 1e-10).all()
    cold = steps_of_em(model, holes, 5, inputs=inputs, temperature=0.0)
    assert (np.diff(cold.history["objective"]) <= 1e-10).all()


@pytest.mark.slow
def test_em_with_inputs_ends_where_the_slope_vanishes():
    series, inputs, _ = switching_regression()
    result = steps_of_em(driven_model(), series, 400, inputs=inputs)
    data = pack(series, None, inputs)

    def total(parts):
        model = eqx.tree_at(lambda m: (m.transition, m.emissions.weights), result.model, parts)
        return jnp.sum(jax.vmap(model.log_prob)(data.x) * data.weight)

    slopes = jax.grad(total)((result.model.transition, result.model.emissions.weights))
    assert max(np.abs(a).max() for a in jax.tree.leaves(slopes)) < 1e-3
    # a prior draws the coefficients to zero, and its step never lowers the objective
    strong = eqx.tree_at(lambda m: m.transition.penalty, driven_model(), jnp.asarray(5.0))
    shrunk = steps_of_em(strong, series, 40, inputs=inputs)
    assert (np.diff(shrunk.history["objective"]) <= 1e-10).all()
    assert float(shrunk.model.log_prior()) < 0
    assert jnp.abs(shrunk.model.transition.weights).max() < jnp.abs(result.model.transition.weights).max()


def test_impossible_transitions_stay_impossible_with_inputs():
    series, inputs, _ = switching_regression(4, (30,))
    model = eqx.tree_at(
        lambda m: m.transition.intercept, driven_model(), jnp.array([[0.0, 0.0], [-jnp.inf, 0.0]])
    )
    after = steps_of_em(model, series, 3, inputs=inputs).model.transition
    found = np.asarray(matrices(after, inputs[0]))
    assert found[:, 1, 0].max() == 0
    np.testing.assert_allclose(found.sum(axis=2), 1)
    # odds are told against staying, or where none stays against the first that can follow
    told_of = eqx.filter_jit(lambda transition: transition.against_staying())
    for gone, kept in (((1, 0), (0, 1)), ((1, 1), (0, 0))):
        intercept = np.zeros((2, 2))
        intercept[gone] = -np.inf
        told = told_of(LogisticTransition(after.weights, on_device(intercept)))
        odds = [np.einsum("ija,ta->tij", t.weights, inputs[0]) for t in (after, told)]
        np.testing.assert_allclose(
            special.softmax(odds[0] + intercept, axis=2),
            special.softmax(odds[1] + np.asarray(told.intercept), axis=2),
            atol=1e-12,
        )
        for i, j in enumerate(kept):
            assert np.asarray(told.intercept)[i, j] == 0
            assert not np.asarray(told.weights)[i, j].any()
    for lonely in (LogisticTransition(), RegressionEmissions()):
        with pytest.raises(ValueError, match="has no values yet"):
            lonely._coefficients()
    with pytest.raises(ValueError, match="RegressionEmissions needs the inputs of every time step"):
        model.emissions.at(None)
    with pytest.raises(ValueError, match="LogisticTransition needs the inputs of every time step"):
        model.transition.matrix()


@pytest.mark.slow
def test_mixture_emissions():
    rng = np.random.default_rng(1)
    weights, means = rng.dirichlet(np.ones(2), 2), rng.normal(size=(2, 2, 1)) * 3
    members = Gaussian(jnp.asarray(means), Full(jnp.ones((2, 2, 1, 1))))
    transition = jnp.array([[0.8, 0.2], [0.4, 0.6]])
    model = HMM(jnp.array([0.5, 0.5]), transition, models.Mixture(jnp.asarray(weights), members))
    assert isinstance(model.emissions, models.MixtureEmissions)
    x = rng.normal(size=(6, 1)) * 2

    def density(k, row):
        return np.log(weights[k] @ stats.norm(means[k, :, 0], 1).pdf(row[0]))

    expected, gamma = enumerated(model, x, density)
    np.testing.assert_allclose(model.log_prob(one_series(jnp.asarray(x))), expected, rtol=1e-10)
    # an M step, written out for one component
    after = steps_of_em(model, [x], 1).model
    share = np.array(
        [weights[0, 1] * stats.norm(means[0, 1, 0], 1).pdf(v[0]) / np.exp(density(0, v)) for v in x]
    )
    r = gamma[:, 0] * share
    np.testing.assert_allclose(
        after.emissions.mixtures.components.mean[0, 1, 0], r @ x[:, 0] / r.sum(), rtol=1e-9
    )
    np.testing.assert_allclose(
        after.emissions.mixtures.weights[0, 1], r.sum() / gamma[:, 0].sum(), rtol=1e-9
    )
    series = [rng.normal(size=(50, 1)) * 2, rng.normal(size=(20, 1)) * 2]
    series[0][3] = np.nan
    history = steps_of_em(model, series, 10).history["objective"]
    assert (np.diff(history) <= 1e-10).all()
    draws = jax.vmap(lambda k: model.sample(30, key=k))(jax.random.split(jax.random.key(0), 200))
    mean = sum(p * (w @ m[:, 0]) for p, w, m in zip((0.5, 0.5), weights, means, strict=True))
    first = np.asarray(draws)[:, 0, 0]
    assert abs(first.mean() - mean) < 5 * first.std() / np.sqrt(200)


def test_what_the_components_of_a_state_share_is_learned_for_each_state():
    rng = np.random.default_rng(0)
    state, spread = np.repeat([0, 1, 0, 1], 100), np.array([0.3, 2.0])
    blob = np.where(rng.random(400) < 0.5, -1, 1) * np.where(state == 0, 3, 8) + 30 * state
    X = blob[:, None] + spread[state][:, None] * rng.normal(size=(400, 2))
    family = Gaussian(jnp.zeros(2), Tied(Spherical(jnp.ones(()))))
    model = fe.HMM(2, family, n_components=2, random_state=0).fit(X)
    found = np.asarray(model.model_in_units.emissions.mixtures.components.covariance.covariance.variance)
    order = np.argsort(found)
    assert (np.argsort(order)[model.predict(X)] == state).all()
    # the blobs are far apart, so that every row belongs to one
    for k, variance in enumerate(found[order]):
        apart = [X[blob == b] - X[blob == b].mean(axis=0) for b in np.unique(blob[state == k])]
        np.testing.assert_allclose(variance, np.mean(np.concatenate(apart) ** 2), rtol=1e-3)


@pytest.mark.slow
def test_sampling_follows_the_joint():
    """All series of three symbols, as often as their probabilities say."""
    n = 20_000
    draws = np.asarray(jax.vmap(lambda k: WEATHER.sample(3, key=k))(jax.random.split(jax.random.key(2), n)))
    every = np.array(list(itertools.product(range(3), repeat=3)), float)[..., None]
    p = np.exp(jax.vmap(lambda v: WEATHER.log_prob(one_series(v)))(jnp.asarray(every)))
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-10)
    counts = np.bincount((draws[..., 0] @ [9, 3, 1]).astype(int), minlength=27)
    assert stats.chisquare(counts, p * n).pvalue > 1e-4
    states, values = WEATHER.sample_with_states(2000, key=jax.random.key(3))
    np.testing.assert_allclose(np.mean(np.asarray(states) == 0), 5 / 9, atol=0.06)
    assert values.shape == (2000, 1)


def test_forecast_is_the_chain_run_on():
    diary = one_series(on_device(DIARY))
    filtered = np.asarray(eqx.filter_jit(WEATHER.filter)(diary).filtered)[-1]
    beliefs, means = map(np.asarray, eqx.filter_jit(WEATHER.forecast)(diary, 2))
    a = np.asarray(WEATHER.transition.matrix())
    np.testing.assert_allclose(beliefs, [filtered @ a, filtered @ a @ a], rtol=1e-12)
    expected = np.asarray(ICE.probabilities)[:, 0] @ np.arange(3)
    np.testing.assert_allclose(means[:, 0], beliefs @ expected, rtol=1e-9)


def test_the_probability_of_a_missing_label_is_the_ratio_of_two_evidences():
    @jax.jit
    def both(label):
        diary = one_series(jnp.asarray(DIARY).at[1].set(jnp.nan))
        shares = WEATHER.smooth(diary).marginals[1]
        told = diary._replace(values=diary.values.at[1, 0].set(label))
        ratio = jnp.exp(WEATHER.log_prob(told) - WEATHER.log_prob(diary))
        return WEATHER.label_probability(diary.values[1], shares, jnp.asarray(0), label), ratio

    found, expected = np.array([both(jnp.asarray(float(label))) for label in range(3)]).T
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.sum() == pytest.approx(1)


def test_regressions_that_take_turns_are_found():
    rng = np.random.default_rng(0)
    z = np.column_stack([rng.normal(size=120), np.ones(120)])
    truth = np.array([[[2.0, 1.0]], [[-1.0, 0.0]]])
    turns = np.repeat([0, 1, 0, 1], 30)
    y = np.einsum("nda,na->nd", truth[turns], z)
    W, owner, spread = clusterwise_regressions(y, z, np.ones(120), 2, 10, key=jax.random.key(0))
    order = np.argsort(-W[:, 0, 0])
    np.testing.assert_allclose(W[order], truth, atol=1e-3)
    assert np.mean(order[turns] == owner) > 0.95
    assert spread.shape == (1, 1)
    assert spread[0, 0] < 1e-5


def test_long_series_and_a_far_outlier():
    x = np.zeros((100_000, 1))
    x[500] = 1e4
    members = Gaussian(jnp.array([[0.0], [1.0]]), Full(jnp.ones((2, 1, 1))))
    left_right = HMM(jnp.array([1.0, 0.0]), jnp.array([[1.0, 0.0], [0.0, 1.0]]), members)
    found = float(log_prob(left_right, one_series(on_device(x))))
    np.testing.assert_allclose(found, stats.norm.logpdf(x).sum(), rtol=1e-10)


# estimators


def sticky(seed=0, lengths=(150, 90)):
    rng = np.random.default_rng(seed)
    series = []
    for n in lengths:
        z = np.cumsum(rng.random(n) < 0.05) % 2
        series.append(np.column_stack([4.0 * z, -2.0 * z]) + rng.normal(size=(n, 2)))
    return series


@pytest.fixture(scope="module")
def fitted():
    return fe.HMM(2, random_state=0).fit(sticky())


def test_estimator_finds_the_states(fitted):
    order = np.argsort(fitted.means_[:, 0])
    np.testing.assert_allclose(fitted.means_[order], [[0, 0], [4, -2]], atol=0.4)
    assert (np.diag(fitted.transition_) > 0.85).all()
    np.testing.assert_allclose(fitted.transition_.sum(axis=1), 1)
    np.testing.assert_allclose(fitted.initial_.sum(), 1)
    assert fitted.covariances_.shape == (2, 2, 2)
    series = sticky()
    total = sum(map(len, series))
    np.testing.assert_allclose(fitted.score(series), fitted.score_samples(series).sum() / total, rtol=1e-12)
    np.testing.assert_allclose(-fitted.history_["objective"][-1], fitted.score(series), rtol=1e-9)
    np.testing.assert_allclose(fitted.step_evidence(series).sum(), fitted.score_samples(series).sum())


@pytest.mark.slow
def test_containers(fitted):
    series = sticky(1, (20, 20))
    stacked, listed = np.stack(series), list(series)
    for call in (fitted.predict, fitted.decode, fitted.filter, fitted.smooth, fitted.predict_proba):
        many, parts, one = call(stacked), call(listed), call(series[0])
        assert isinstance(parts, list)
        np.testing.assert_array_equal(many, np.stack(parts))
        np.testing.assert_allclose(one, parts[0], atol=1e-12)
    assert fitted.forecast(stacked, 3).mean.shape == (2, 3, 2)
    assert fitted.decode(series[0], n=4).shape == (4, 20)
    np.testing.assert_array_equal(fitted.decode(series[0], n=4)[0], fitted.decode(series[0]))
    np.testing.assert_array_equal(np.argmax(fitted.smooth(series[0]), axis=1), fitted.predict(series[0]))
    far = fitted.forecast(series[0], 2000).mean[-1]
    stationary = fe.inference.stationary(jnp.asarray(fitted.transition_))
    np.testing.assert_allclose(far, np.asarray(stationary) @ fitted.means_, rtol=1e-6)
    drawn = fitted.sample_states(series[0], 400, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), fitted.smooth(series[0])[:, 1], atol=0.13)
    assert fitted.sample_states(listed, random_state=0)[1].shape == (20,)


def test_semi_supervised_states_keep_their_numbers():
    series = sticky(2)
    truth = [(x @ [4.0, -2.0] > 10).astype(int) for x in series]
    known = [np.where(np.arange(len(z)) < 15, 1 - z, -1) for z in truth]
    model = fe.HMM(2, random_state=0).fit(series, states=known)
    agreement = np.mean(np.concatenate(model.predict(series)) == 1 - np.concatenate(truth))
    assert agreement > 0.95
    with pytest.raises(ValueError, match="must have a number per time step"):
        model.fit(series, states=known[:1])
    with pytest.raises(ValueError, match=r"from -1 \(not known\) to 1. Got 5 instead"):
        model.fit(series[0], states=np.full(len(series[0]), 5))


@pytest.mark.parametrize(
    "options",
    [
        {"family": Gaussian(jnp.zeros(2), Diagonal())},
        pytest.param({"n_components": 2}, marks=pytest.mark.slow),
        {"stationary": True},
        {"learner": EM(temperature=0.0), "n_init": 2},
        {"transition": np.array([[0.9, 0.1], [0.0, 1.0]])},
        {"transition": TiedTransition(jnp.array([0.1, 0.9]), jnp.eye(2, dtype=int))},
        {"transition_prior": DirichletPrior(Multinomial(jnp.ones(2) / 2), jnp.full(2, 5.0))},
    ],
    ids=["diagonal", "mixtures", "stationary", "viterbi", "masked", "tied", "prior"],
)
def test_options_of_the_estimator(options, fitted):
    series = sticky()
    model = fe.HMM(2, random_state=0, **options).fit(series)
    assert np.isfinite(model.score(series))
    if "transition" not in options:
        # the same regimes are found
        far = np.abs(np.diff(model.means_[:, 0]))
        np.testing.assert_allclose(far, 4, atol=0.6)
    if isinstance(options.get("transition"), np.ndarray):
        assert model.transition_[1, 0] == 0
    if "n_components" in options:
        assert model.score(series) > fitted.score(series) - 1e-3
        with pytest.raises(AttributeError, match="only with one Gaussian in each state"):
            _ = model.covariances_


@pytest.mark.slow
def test_other_families():
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.random(300) < 0.05) % 2
    counts = rng.poisson(np.where(z, 12.0, 2.0))[:, None]
    model = fe.HMM(2, Poisson, random_state=0).fit(counts)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [2, 12], atol=0.8)
    symbols = np.where(rng.random(300) < 0.9, 2 * z, 1)[:, None]
    model = fe.HMM(2, Categorical, random_state=0, max_iter=20, tol=0.0)
    with pytest.warns(match="reached the limit"):
        model.fit(symbols)
    peer = CategoricalHMM(2, n_iter=30, random_state=0).fit(symbols)
    assert model.score(symbols) > peer.score(symbols) / 300 - 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_states": 0}, r"'n_states' parameter of HMM must be an int in the range \[1, inf\). Got 0"),
        ({"family": "gaussian"}, "'family' parameter of HMM must be an exponential family"),
        ({"transition": np.ones((2, 2))}, r"must have the shape \(2, 2\) and rows of probabilities"),
        ({"init": np.zeros((2, 5))}, r"'init' parameter of HMM must have the shape \(2, 2\)"),
        ({"stationary": "yes"}, "must be an instance of bool"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        fe.HMM(**{"n_states": 2, **options}).fit(sticky()[0])


def test_wrong_series(fitted):
    with pytest.raises(ValueError, match="Every series of X must have the shape"):
        fitted.score_samples([np.zeros((3, 2)), np.zeros((3, 1))])
    with pytest.raises(ValueError, match="X has 3 features, but HMM is expecting 2"):
        fitted.score_samples(np.zeros((2, 4, 3)))


def test_nothing_is_compiled_twice(fitted):
    # (programs of tests before may have been dropped)
    fe.HMM(2, random_state=0).fit(sticky(5, (149, 88)))
    fitted.score_samples(sticky(4, (60, 61)))
    fitted.smooth(sticky(4, (60, 61)))
    with count_compilations() as counter:
        other = fe.HMM(2, random_state=1).fit(sticky(5, (149, 88)))
        other.score_samples(sticky(6, (58, 62)))
        other.smooth(sticky(6, (57, 59)))
    assert counter.count == 0


def test_markov_chain_counts_and_missing_symbols():
    chain = fe.MarkovChain(random_state=0).fit([np.array([[0], [1], [1], [0]]), np.array([[1], [1]])])
    np.testing.assert_allclose(chain.transition_[0], [[0, 1], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(chain.initial_[0], [0.5, 0.5])
    np.testing.assert_allclose(np.exp(chain.score_samples([[0.0], [1.0], [0.0]])), [0.5 / 3])
    # a missing symbol is summed out
    both = [np.exp(chain.score_samples([[0.0], [s], [1.0]])[0]) for s in (0.0, 1.0)]
    np.testing.assert_allclose(np.exp(chain.score_samples([[0.0], [np.nan], [1.0]])), sum(both), rtol=1e-9)
    assert chain.impute([[0.0], [np.nan], [1.0]])[1] == np.argmax(both)
    # the most probable of three symbols, not the one in their middle
    chain.model_ = models.MarkovChain(
        jnp.array([[1.0, 0.0, 0.0]]), jnp.array([[[0.45, 0.15, 0.4], [0.1, 0.3, 0.6], [0.2, 0.3, 0.5]]])
    )
    p = np.asarray(chain.model_.transition[0])
    between = p[0] * p[:, 0]
    assert between @ np.arange(3) / between.sum() > 0.5
    np.testing.assert_array_equal(chain.impute([[0.0], [np.nan], [0.0]]), [[0.0], [0.0], [0.0]])
    chain.fit([np.array([[0], [1], [1], [0]]), np.array([[1], [1]])])
    np.testing.assert_allclose(
        chain.forecast([[1.0]], 2).probabilities[:, 0], [[1 / 3, 2 / 3], [2 / 9, 7 / 9]], rtol=1e-9
    )
    prior = DirichletPrior(Multinomial(jnp.ones(3) / 3), jnp.full(3, 2.0))
    smoothed = fe.MarkovChain(3, transition_prior=prior).fit(np.array([[0], [1], [1]]))
    np.testing.assert_allclose(smoothed.transition_[0, 0], [1 / 4, 2 / 4, 1 / 4])
    assert np.isneginf(smoothed.score_samples([[7.0]]))
    with pytest.raises(ValueError, match="'n_symbols' parameter of MarkovChain must be more than every"):
        fe.MarkovChain(2).fit(np.array([[0], [2]]))
    with pytest.raises(ValueError, match="Categorical needs labels 0, 1, 2"):
        fe.MarkovChain().fit(np.array([[0.5], [2.0]]))
    with pytest.raises(ValueError, match="Negative values in data passed to MarkovChain"):
        fe.MarkovChain().fit(np.array([[0], [-1]]))


def by_hand(model, n_features):
    """An estimator with a model that nobody fitted."""
    estimator = fe.HMM(model.size, model.emissions.members)
    estimator.model_, estimator.scaling_ = model, Scaling.identity(n_features)
    estimator.n_features_in_, estimator.input_scaling_ = n_features, None
    return estimator


def test_imputed_labels_are_the_most_probable_and_counts_are_whole():
    rates, labels = np.array([[2.0], [7.0]]), np.array([[[0.5, 0.2, 0.3]], [[0.35, 0.05, 0.6]]])
    parts = (Poisson(jnp.asarray(rates)), Categorical(jnp.asarray(labels)))
    model = HMM(jnp.array([0.7, 0.3]), jnp.array([[0.8, 0.2], [0.4, 0.6]]), Product(parts, sizes=(1, 1)))
    estimator = by_hand(model, 2)
    x = np.array([[np.nan, 2.0], [4.0, np.nan], [np.nan, np.nan]])

    def density(k, row):
        count = 0.0 if np.isnan(row[0]) else stats.poisson.logpmf(row[0], rates[k, 0])
        return count + (0.0 if np.isnan(row[1]) else np.log(labels[k, 0, int(row[1])]))

    def tried(step, label):
        full = x.copy()
        full[step, 1] = label
        return np.exp(enumerated(model, full, density)[0])

    gamma = enumerated(model, x, density)[1]
    expected = x.copy()
    expected[[0, 2], 0] = np.rint(gamma[[0, 2]] @ rates[:, 0])
    for step in (1, 2):
        chances = np.array([tried(step, label) for label in range(3)])
        expected[step, 1] = chances.argmax()
        # neither the whole number next to the mean nor a label that is never the best
        assert np.rint(chances @ np.arange(3) / chances.sum()) == 1 != expected[step, 1]
    np.testing.assert_array_equal(estimator.impute(x), expected)
    drawn = np.stack(estimator.sample(5, given=x, random_state=0))
    assert (drawn == np.rint(drawn)).all()
    assert np.isin(drawn[..., 1], range(3)).all()


def test_a_series_that_cannot_occur_has_no_states_and_no_future():
    model = HMM(
        jnp.array([1.0, 0.0]),
        jnp.array([[0.5, 0.5], [0.0, 1.0]]),
        Categorical(jnp.array([[[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]])),
    )
    estimator = by_hand(model, 1)
    # there is no symbol 7
    possible, at_once, later = (
        np.array([[a], [b], [c], [np.nan]]) for a, b, c in ((0, 2, np.nan), (7, 0, 0), (0, 2, 7))
    )
    for x, chance in ((possible, 1 / 8), (at_once, 0), (later, 0)):
        np.testing.assert_allclose(np.exp(estimator.score_samples(x)), [chance])
    np.testing.assert_array_equal(estimator.decode(possible), [0, 1, 1, 1])
    asked = (
        "filter",
        "smooth",
        "predict",
        "predict_proba",
        "decode",
        "sample_states",
        "forecast",
        "impute",
    )
    for method, (bad, step) in itertools.product(asked, ((at_once, 0), (later, 2))):
        sentence = rf"HMM.{method} has no answer for series 0 of X: its step {step} cannot occur"
        with pytest.raises(ValueError, match=sentence):
            getattr(estimator, method)(bad)
    with pytest.raises(ValueError, match=r"HMM.sample has no answer for series 2 of X: its step 0 cannot"):
        estimator.sample(2, given=[possible, possible, at_once], random_state=0)
    # a symbol that both states emit leaves two paths
    assert {tuple(path) for path in estimator.decode([[0.0], [1.0]], 2)} == {(0, 0), (0, 1)}
    with pytest.raises(
        ValueError, match=r"'n' parameter of HMM.decode .* 3 for series 0 of X, which has 2"
    ):
        estimator.decode([[0.0], [1.0]], 3)
    chain = fe.MarkovChain(3).fit(np.array([[0], [1], [1], [0]]))
    np.testing.assert_array_equal(chain.score_samples([later]), [-np.inf])
    with pytest.raises(
        ValueError, match=r"MarkovChain.forecast has no answer for series 0 of X: its step 1"
    ):
        chain.forecast([later])
    for ask in (chain.impute, lambda X: chain.sample(given=X, random_state=0)):
        with pytest.raises(
            ValueError, match=r"MarkovChain.\w+ has no answer for series 0 of X: its step 0"
        ):
            ask([at_once])


@pytest.mark.parametrize(
    "several",
    [
        [np.array([0, 1, 1, 0]), np.array([1, 1, 0, 0])],
        (pd.Series([0, 1, 1, 0]), pd.Series([1, 1, 0, 0])),
        [np.array([0, 1, 1, 0]), [1, 1, 0, 0]],
        # a panel: series in the order of their appearance, whatever they are called and however they mix
        pd.DataFrame(
            {"symbol": [0, 1, 1, 1, 1, 0, 0, 0]},
            index=pd.MultiIndex.from_arrays([list("zzaazzaa"), [1, 2, 1, 2, 3, 4, 5, 7]]),
        ),
    ],
    ids=["arrays", "pandas", "mixed kinds", "panel"],
)
def test_a_list_of_arrays_and_a_frame_with_two_levels_are_several_series(several):
    chain = fe.MarkovChain().fit(several)
    # counted by hand: 0→1, 1→1, 1→0 and 1→1, 1→0, 0→0; not one of them from one series to the next
    assert chain.n_features_in_ == 1
    np.testing.assert_allclose(chain.initial_, [[0.5, 0.5]])
    np.testing.assert_allclose(chain.transition_, [[[1 / 2, 1 / 2], [1 / 2, 1 / 2]]])
    np.testing.assert_allclose(np.exp(chain.score_samples(several)), [1 / 16, 1 / 16])
    filled = chain.impute(several)
    if isinstance(several, pd.DataFrame):
        pd.testing.assert_frame_equal(filled, several.astype(float))
    else:
        assert [x.shape for x in filled] == [(4, 1), (4, 1)]
        np.testing.assert_array_equal(np.ravel(filled), [0, 1, 1, 0, 1, 1, 0, 0])


def test_nested_lists_of_one_length_are_a_table_and_of_several_lengths_series():
    table = fe.MarkovChain().fit([[0, 1], [1, 1], [1, 0], [0, 0]])
    assert table.n_features_in_ == 2
    assert len(table.score_samples([[0, 1], [1, 1]])) == 1
    several = fe.MarkovChain().fit([[0, 1, 1, 0], [1, 1]])
    assert several.n_features_in_ == 1
    np.testing.assert_allclose(several.transition_, [[[0, 1], [1 / 3, 2 / 3]]])


def _panel(*levels):
    return pd.DataFrame({"symbol": [0, 1, 1, 0]}, index=pd.MultiIndex.from_arrays(levels))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (np.array(1.0), r"X must be one series \(time, features\), an array .* Got the shape \(\) instead"),
        (np.zeros((2, 3, 2, 1)), r"a list of series, or a frame .* Got the shape \(2, 3, 2, 1\) instead"),
        (np.zeros((0, 3, 1)), r"Got the shape \(0, 3, 1\) instead"),
        ([np.zeros((2, 3, 1))], r"Got a list of arrays of the shapes \(2, 3, 1\) instead"),
        ([np.zeros((4, 1)), np.zeros(3)], r"list of arrays of the shapes \(4, 1\) and \(3,\) instead"),
        ([[0, 1], 1], r"list of arrays of the shapes \(2,\) and \(\) instead"),
        ([[[0, 1], [1]], [[0, 1]]], "Got rows of unequal length in a series"),
        ([np.zeros(3), np.zeros(0)], r"at least one time step. Got \(0, 1\) for series 1"),
        (
            _panel(list("aabb"), [1, 2, 2, 1]),
            r"Got 1 in row \('b', 1\) of series 'b', after 2. Sort the rows",
        ),
        (
            _panel(list("aabb"), [1, 2, 1, 1]),
            r"must increase within each series. Got 1 twice, in row .* 'b'",
        ),
        (_panel(list("aabb"), [1, 2, 1, 2], [0, 0, 0, 0]), "has the two levels .* Got 3 levels instead"),
    ],
)
def test_what_is_no_series_is_refused(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.MarkovChain().fit(wrong)


def test_inputs_come_in_a_frame_with_two_levels_as_series_do():
    X, other = _panel(list("babb"), [1, 1, 2, 3]), _panel(list("abbb"), [1, 1, 2, 3])
    parts = check_inputs(fe.AutoRegression(), X, [3, 1], None)
    assert [part.ravel().tolist() for part in parts] == [[0, 1, 0], [1]]
    with pytest.raises(ValueError, match="must have the index of X"):
        fe.AutoRegression().fit(X, inputs=other)


# inputs and weights of estimators


@pytest.fixture(scope="module")
def driven():
    series, inputs, _ = switching_regression()
    model = fe.HMM(2, RegressionEmissions(), transition=LogisticTransition(), random_state=0)
    return model.fit(series, inputs=inputs)


def test_estimator_finds_regressions_and_what_makes_them_switch(driven, tmp_path):
    series, inputs, states = switching_regression()
    first = int(driven.coefficients_[0, 0, 0] < 0)
    W = driven.coefficients_[[first, 1 - first]]
    np.testing.assert_allclose(W, [[[2, 0], [0, 1]], [[-1, 0.5], [1, 0]]], atol=0.15)
    found = driven.decode(series, inputs=inputs)
    assert np.mean(np.concatenate(found) == np.abs(np.concatenate(states) - first)) > 0.97
    low, high = driven.transitions([[0.0, -2.0], [0.0, 2.0]])
    assert (np.diag(low) < 0.5).all()
    assert (np.diag(high) > 0.9).all()
    np.testing.assert_allclose(np.diagonal(driven.covariances_, axis1=1, axis2=2), 0.09, atol=0.04)
    assert driven.n_inputs_in_ == 2
    np.testing.assert_allclose(-driven.history_["objective"][-1], driven.score(series, inputs=inputs))
    # whatever the units of the inputs are
    moved = [1000 * u + [5.0, -30.0] for u in inputs]
    again = sklearn_clone(driven).fit(series, inputs=moved)
    np.testing.assert_allclose(
        again.score_samples(series, inputs=moved), driven.score_samples(series, inputs=inputs), rtol=1e-6
    )
    np.testing.assert_allclose(again.coefficients_ * 1000, driven.coefficients_, rtol=1e-5)
    driven.save(tmp_path / "driven")
    loaded = fe.load(tmp_path / "driven")
    np.testing.assert_array_equal(
        loaded.evidence(series, inputs=inputs).nats, driven.evidence(series, inputs=inputs).nats
    )


def test_a_summary_says_what_inputs_a_transition_of_any_kind_is_given(driven):
    other = copy.copy(driven)
    logits = Logits(jnp.asarray(0.5), jnp.asarray(0.7))
    other.model_ = dataclasses.replace(driven.model_, transition=InputTransition(logits))
    told, known = other.summary(), driven.summary()
    assert any("inputs in standard deviations from their means" in note for note in told.notes)
    values = dict(zip(told.names, told.values, strict=True))
    assert (values["transition.logits.stay"], values["transition.logits.slope"]) == (0.5, 0.7)
    # the emissions are in units all the same
    emissions = [name for name in known.names if name.startswith("emissions.")]
    found = dict(zip(known.names, known.values, strict=True))
    assert [values[name] for name in emissions] == [found[name] for name in emissions]
    first = driven.coefficients_[0, 0, 0], driven.intercept_[0, 0]
    np.testing.assert_allclose(
        [found["emissions.weights[0, 0, 0]"], found["emissions.intercept[0, 0]"]], first
    )


@pytest.mark.slow
def test_every_method_takes_inputs(driven):
    series, inputs, _ = switching_regression(7, (20, 20))
    stacked, pushes = np.stack(series), np.stack(inputs)
    for call in (driven.filter, driven.smooth, driven.predict, driven.predict_proba, driven.decode):
        many, parts = call(stacked, inputs=pushes), call(series, inputs=inputs)
        np.testing.assert_array_equal(many, np.stack(parts))
    np.testing.assert_array_equal(driven.decode(series[1], inputs=inputs[1]), parts[1])
    steps = driven.step_evidence(series, inputs=inputs)
    np.testing.assert_allclose(
        steps.reshape(2, 20).sum(axis=1), driven.score_samples(stacked, inputs=pushes)
    )
    np.testing.assert_allclose(driven.score(series, inputs=inputs), steps.mean())
    drawn = driven.sample_states(series[0], 256, random_state=0, inputs=inputs[0])
    np.testing.assert_allclose(
        drawn.mean(axis=0), driven.smooth(series[0], inputs=inputs[0])[:, 1], atol=0.15
    )
    # a forecast is the chain run on with the inputs to come
    future = np.random.default_rng(8).normal(size=(2, 3, 2))
    ahead = driven.forecast(stacked, 3, inputs=pushes, future_inputs=future).mean
    moves = driven.transitions(future[0])
    shifts = np.einsum("kda,ta->tkd", driven.coefficients_, future[0] - driven.input_scaling_.shift)
    means = driven.means_ + shifts
    belief = driven.filter(stacked, inputs=pushes)[0, -1]
    for t in range(3):
        belief = belief @ moves[t]
        np.testing.assert_allclose(ahead[0, t], belief @ means[t], rtol=1e-8)
    # so is what is imputed at the end
    longer = np.concatenate([series[0], np.full((3, 2), np.nan)])
    known = np.concatenate([inputs[0], future[0]])
    np.testing.assert_allclose(driven.impute(longer, inputs=known)[-3:], ahead[0], rtol=1e-8)
    draws = driven.sample(256, random_state=1, given=longer, inputs=known)[:, -3:]
    error = draws.std(axis=0) / np.sqrt(256)
    assert (np.abs(draws.mean(axis=0) - ahead[0]) < 5 * error).all()
    # draws from the start follow the means of the states at the inputs
    free = driven.sample(1024, random_state=2, inputs=future[0])
    assert free.shape == (1024, 3, 2)
    belief = driven.initial_
    for t in range(3):
        belief = belief if t == 0 else belief @ moves[t]
        error = free[:, t].std(axis=0) / np.sqrt(1024)
        assert (np.abs(free[:, t].mean(axis=0) - belief @ means[t]) < 5 * error).all()
    assert driven.sample(2, 0, inputs=future).shape == (2, 3, 2)


def test_wrong_inputs(driven, fitted):
    series, inputs, _ = switching_regression(7, (20, 20))
    with pytest.raises(ValueError, match="HMM was fitted with inputs and needs the 'inputs' of every time"):
        driven.score_samples(series)
    with pytest.raises(ValueError, match=r"needs the 'future_inputs' of every time step. Got None"):
        driven.forecast(series, 2, inputs=inputs)
    with pytest.raises(ValueError, match=r"needs the 'inputs' of every time step. Got None"):
        driven.sample(2)
    with pytest.raises(ValueError, match=r"HMM was fitted without inputs and takes none. Got 'inputs'"):
        fitted.smooth(series, inputs=inputs)
    shapes = r"the shapes \[\(20, 2\), \(20, 2\)\]. Got \[\(20, 2\)\] instead"
    with pytest.raises(ValueError, match=shapes):
        driven.smooth(series, inputs=inputs[0])
    with pytest.raises(ValueError, match="The 'inputs' of HMM must have 2 columns and a row for each time"):
        driven.smooth(series[0], inputs=inputs[0][:, 0])
    broken = [np.where(u > 1, np.nan, u) for u in inputs]
    with pytest.raises(ValueError, match=r"The 'inputs' of HMM must be finite numbers. Got nan instead"):
        driven.fit(series, inputs=broken)
    with pytest.raises(ValueError, match=r"An HMM has inputs if and only if something .* Got inputs"):
        fe.HMM(2).fit(series, inputs=inputs)
    with pytest.raises(ValueError, match=r"An HMM has inputs if and only if something .* Got no inputs"):
        fe.HMM(2, transition=LogisticTransition()).fit(series)
    with pytest.raises(ValueError, match="'stationary' parameter of HMM must be False if transitions"):
        fe.HMM(2, transition=LogisticTransition(), stationary=True).fit(series, inputs=inputs)
    with pytest.raises(ValueError, match="'n_components' parameter of HMM must have its default with Regr"):
        fe.HMM(2, RegressionEmissions(), n_components=2).fit(series, inputs=inputs)
    with pytest.raises(ValueError, match=r"MarkovChain takes no inputs. Got 'inputs'"):
        fe.MarkovChain().fit(np.array([[0], [1]]), inputs=np.zeros((2, 1)))
    with pytest.raises(AttributeError, match="no 'transition_' if it depends on inputs"):
        _ = driven.transition_
    with pytest.raises(AttributeError, match="'coefficients_' only with RegressionEmissions"):
        _ = fitted.coefficients_
    with pytest.raises(AttributeError, match="'intercept_' only with RegressionEmissions"):
        _ = fitted.intercept_
    with pytest.raises(ValueError, match="transitions of this HMM do not depend on inputs"):
        fitted.transitions(None)


def test_weights_of_series_are_repetitions():
    series = sticky(9, (60, 31, 40))
    weighted = fe.HMM(2, random_state=0).fit(series, series_weight=[2, 1, 0])
    repeated = fe.HMM(2, random_state=0).fit([series[0], series[0], series[1]])
    np.testing.assert_allclose(weighted.score_samples(series), repeated.score_samples(series), rtol=1e-8)
    np.testing.assert_allclose(weighted.history_["objective"], repeated.history_["objective"], rtol=1e-9)
    # so small that their squares vanish, they still mean their ratios
    tiny = fe.HMM(2, random_state=0).fit(series, series_weight=np.array([2.0, 1.0, 0.0]) * 5e-324)
    np.testing.assert_allclose(tiny.score_samples(series), weighted.score_samples(series), rtol=1e-6)
    for wrong in ([1, 2], [1, -1, 1], [0, 0, 0], [1, np.nan, 1]):
        with pytest.raises(ValueError, match=r"'series_weight' of HMM.fit must be a non-negative number"):
            weighted.fit(series, series_weight=wrong)
