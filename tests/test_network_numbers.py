"""Bayesian networks of numbers, with or without labels, against dense algebra, sums and statsmodels."""

import itertools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy import stats

import freeenergy as fe
from freeenergy.cli import run
from freeenergy.distributions import Given, NormalInverseWishart, Poisson
from freeenergy.inference import DirectedGraph
from freeenergy.inference._mixed_rows import CompletedRows, LineTable, MixedRows
from freeenergy.learning import (
    BIC,
    AbstractNumberScore,
    AbstractScore,
    BDeu,
    ChowLiu,
    Families,
    HillClimbing,
    StructuralEM,
    graph_score,
)
from freeenergy.models import (
    AbstractNetworkBeliefs,
    BayesianNetwork,
    GaussianNode,
    GivenNode,
    MixedBeliefs,
    NumberBelief,
    TableNode,
)

RNG = np.random.default_rng(0)
N = 120


def chain(n, seed):
    """0 → 1 → 2 ← 3, in units of their own."""
    rng = np.random.default_rng(seed)
    a, d = rng.normal(size=n), rng.normal(size=n)
    b = 2 * a + rng.normal(size=n)
    c = b - 1.5 * d + 0.5 * rng.normal(size=n)
    return np.stack([a, 100 + 10 * b, c, 0.01 * d], axis=1)


X = chain(N, 0)
HOLES = np.where(RNG.random(X.shape) < 0.25, np.nan, X)
EDGES = [(0, 1), (1, 2), (3, 2)]
WHOLE = list(itertools.combinations(range(4), 2))


def normal_nats(rows, mean, covariance):
    """log N of what is observed of each row."""
    found = np.zeros(len(rows))
    for i, row in enumerate(rows):
        seen = ~np.isnan(row)
        if seen.any():
            part = stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)])
            found[i] = part.logpdf(row[seen])
    return found


def test_a_network_with_all_arrows_is_the_normal_law_with_any_covariance():
    model = fe.BayesianNetwork(WHOLE, numbers=True, alpha=0.0).fit(X)
    mean, covariance = X.mean(axis=0), np.cov(X.T, bias=True)
    np.testing.assert_allclose(model.score_samples(X), normal_nats(X, mean, covariance), rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(HOLES), normal_nats(HOLES, mean, covariance), rtol=1e-8)
    evidence = model.evidence(HOLES)
    assert evidence.kind is fe.Kind.EXACT
    # what is missing has its conditional mean
    row = np.array([[0.5, np.nan, 1.0, np.nan]])
    by_name = model.posterior({0: 0.5, "2": 1.0})
    seen = [0, 2]
    gain = covariance[np.ix_([1, 3], seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    expected = mean[[1, 3]] + gain @ (row[0, seen] - mean[seen])
    np.testing.assert_allclose(model.impute(row)[0, [1, 3]], expected, rtol=1e-8)
    # and draws have their conditional law
    drawn = model.sample(4000, random_state=0, given=row)[:, 0]
    left = covariance[np.ix_([1, 3], [1, 3])] - gain @ covariance[np.ix_(seen, [1, 3])]
    # by name, in the units of the data
    np.testing.assert_allclose(by_name.moments(["1", "3"])[0], expected, rtol=1e-8)
    np.testing.assert_allclose(by_name.moments(["1", "3"])[1], left, rtol=1e-8)
    assert by_name.log_evidence == pytest.approx(normal_nats(row, mean, covariance)[0])
    np.testing.assert_array_equal(drawn[:, seen], np.tile(row[0, seen], (4000, 1)))
    error = np.sqrt(np.diagonal(left) / 4000)
    assert (np.abs(drawn[:, [1, 3]].mean(axis=0) - expected) < 4 * error).all()
    white = np.linalg.solve(np.linalg.cholesky(left), (drawn[:, [1, 3]] - expected).T)
    np.testing.assert_allclose(white @ white.T / 4000, np.eye(2), atol=4 * np.sqrt(2 / 4000))


def test_each_number_is_regressed_on_its_parents():
    import statsmodels.api as sm

    model = fe.BayesianNetwork(EDGES, numbers=True, alpha=0.0).fit(X)
    lines = [
        sm.OLS(X[:, v], sm.add_constant(X[:, above]) if above else np.ones(N)).fit()
        for v, above in ((0, []), (1, [0]), (2, [1, 3]), (3, []))
    ]
    assert model.score_samples(X).sum() == pytest.approx(sum(line.llf for line in lines), rel=1e-10)
    assert model.history_["objective"][-1] == pytest.approx(-model.score(X), rel=1e-10)
    found = dict(zip(model.summary(X).names, model.summary(X).values, strict=True))
    np.testing.assert_allclose(
        [found["intercept(2)"], found["slope(2; 1)"], found["slope(2; 3)"]], lines[2].params, rtol=1e-8
    )
    assert found["variance(2)"] == pytest.approx(lines[2].ssr / N)
    assert model.summary(X).n_parameters == 2 + 3 + 4 + 2
    # the covariance that the graph implies, in the units of the data
    inside = model.model_in_units
    weights = np.zeros((4, 4))
    weights[1, [0]], weights[2, [1, 3]] = (np.asarray(inside.nodes[v].weights) for v in (1, 2))
    mix = np.linalg.inv(np.eye(4) - weights)
    mean = mix @ [float(node.intercept) for node in inside.nodes]
    covariance = mix @ np.diag([float(node.variance) for node in inside.nodes]) @ mix.T
    np.testing.assert_allclose(model.score_samples(HOLES), normal_nats(HOLES, mean, covariance), rtol=1e-8)


def test_missing_numbers_are_inferred_by_em():
    model = fe.BayesianNetwork(WHOLE, numbers=True, alpha=0.0, tol=1e-11, max_iter=3000).fit(HOLES)
    assert model.converged_
    assert (np.diff(model.history_["objective"]) <= 1e-12).all()
    dense = fe.GaussianDensity(tol=1e-11, max_iter=5000).fit(HOLES)
    assert model.score(HOLES) == pytest.approx(dense.score(HOLES), abs=1e-8)
    np.testing.assert_allclose(model.score_samples(X), dense.score_samples(X), atol=1e-3)
    # with imagined rows nothing falls either
    smooth = fe.BayesianNetwork(EDGES, numbers=True, alpha=3.0, tol=1e-9).fit(HOLES)
    assert (np.diff(smooth.history_["objective"]) <= 1e-12).all()


def test_imagined_rows_are_rows_of_independent_numbers():
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    alpha = 8.0
    model = fe.BayesianNetwork(EDGES, numbers=True, alpha=alpha).fit(X)
    # 1 + 16 rows ±√(alpha / weight) eᵢ have the same sums as that many independent standard numbers
    imagined = np.concatenate([np.eye(4), -np.eye(4)]) * 2.0
    both = np.concatenate([z, imagined])
    weight = np.concatenate([np.ones(N), np.ones(8)])
    design = np.column_stack([np.ones(len(both)), both[:, [1, 3]]])
    beta = np.linalg.solve((design.T * weight) @ design, (design.T * weight) @ both[:, 2])
    np.testing.assert_allclose(np.asarray(model.model_.nodes[2].weights), beta[1:], rtol=1e-9)
    assert float(model.model_.nodes[2].intercept) == pytest.approx(beta[0], abs=1e-12)


# labels and numbers: sex → tall ← age, sex → smokes, smokes → weight ← tall
MIXED = BayesianNetwork(
    [
        TableNode(jnp.array([0.4, 0.6])),
        TableNode(jnp.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])),
        GaussianNode(jnp.array(1.0), jnp.zeros(0), jnp.array(2.0)),
        GaussianNode(jnp.array([0.0, 2.0]), jnp.array([[0.5], [-0.5]]), jnp.array([1.0, 0.3])),
        GaussianNode(
            jnp.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.0]]),
            jnp.array([[[1.0], [0.5], [0.0]], [[2.0], [1.0], [-1.0]]]),
            jnp.array([[1.0, 0.5, 2.0], [0.2, 1.0, 1.5]]),
        ),
        TableNode(jnp.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])),
    ],
    [(), (0,), (), (0, 2), (0, 1, 3), (1,)],
)


def mixed_rows(n, seed):
    return MIXED.mixed_rows().draw(np.full((n, 6), np.nan), np.random.default_rng(seed))


ROWS = mixed_rows(N, 1)
GAPS = np.where(np.random.default_rng(2).random(ROWS.shape) < 0.3, np.nan, ROWS)


def by_enumeration(row):
    """log p of every joint state of the labels with what is observed of a row, and their Gaussians."""
    tables = [np.asarray(MIXED.nodes[v].probabilities) for v in (0, 1, 5)]
    found = []
    for a, b, f in itertools.product(range(2), range(3), range(2)):
        fits = all(np.isnan(row[v]) or row[v] == s for v, s in ((0, a), (1, b), (5, f)))
        own = [MIXED.nodes[2], MIXED.nodes[3], MIXED.nodes[4]]
        intercept = np.array([own[0].intercept, own[1].intercept[a], own[2].intercept[a, b]], float)
        weights = np.zeros((3, 3))
        weights[1, 0], weights[2, 1] = float(own[1].weights[a, 0]), float(own[2].weights[a, b, 0])
        noise = np.diag([float(own[0].variance), float(own[1].variance[a]), float(own[2].variance[a, b])])
        mix = np.linalg.inv(np.eye(3) - weights)
        mean, covariance = mix @ intercept, mix @ noise @ mix.T
        nats = np.log(tables[0][a] * tables[1][a, b] * tables[2][b, f])
        nats += normal_nats(row[None, 2:5], mean, covariance)[0]
        found.append((nats if fits else -np.inf, (a, b, f), mean, covariance))
    return found


def test_rows_of_labels_and_numbers_are_summed_and_integrated():
    host = MIXED.mixed_rows()
    assert isinstance(host, MixedRows)
    assert all(isinstance(line, LineTable) for line in host.lines)
    assert host.switches == (0, 1)
    sums = [[found[0] for found in by_enumeration(row)] for row in GAPS[:40]]
    expected = np.logaddexp.reduce(np.array(sums), axis=1)
    np.testing.assert_allclose(host.evidence(GAPS[:40]), expected, rtol=1e-10)
    assert host.evidence(np.full((1, 6), np.nan))[0] == 0.0
    # what the model itself knows of one event
    program = jax.jit(jax.vmap(lambda x: (MIXED.log_prob(x), MIXED.complete_mean(x))))
    nats, means = (np.asarray(part) for part in program(jnp.asarray(GAPS)))
    np.testing.assert_allclose(host.evidence(GAPS), nats, rtol=1e-9)
    np.testing.assert_allclose(host.means(GAPS)[:, 2:5], means[:, 2:5], rtol=1e-8, atol=1e-10)
    # labels given the rest
    row = np.array([np.nan, np.nan, 0.5, np.nan, 2.0, 1.0])
    states = by_enumeration(row)
    shares = np.exp([s[0] for s in states] - np.logaddexp.reduce([s[0] for s in states]))
    for column, place in ((0, 0), (1, 1)):
        chance = [
            shares[[s[1][place] == k for s in states]].sum() for k in range(len(MIXED.states[column]))
        ]
        np.testing.assert_allclose(host.marginals(row[None], column)[0], chance, rtol=1e-9)
    # what is expected of the row: a completed one for each state, which share its weight
    whole = host.completed(row[None], np.array([2.0]))
    assert isinstance(whole, CompletedRows)
    assert whole.nats == pytest.approx(2 * np.logaddexp.reduce([s[0] for s in states]))
    for completed, weight, spread in zip(whole.x, whole.weight, whole.spread, strict=True):
        own = [i for i, s in enumerate(states) if s[1][:2] == tuple(completed[:2])]
        assert weight == pytest.approx(2 * shares[own].sum(), rel=1e-9)
        covariance = states[own[0]][3]
        gain = covariance[1, [0, 2]] @ np.linalg.inv(covariance[np.ix_([0, 2], [0, 2])])
        assert spread[1, 1] == pytest.approx(covariance[1, 1] - gain @ covariance[[0, 2], 1], rel=1e-9)
        mean = states[own[0]][2]
        assert completed[3] == pytest.approx(mean[1] + gain @ (row[[2, 4]] - mean[[0, 2]]), rel=1e-9)
    # draws given the rest have these shares, and numbers their mean
    drawn = host.draw(np.tile(row, (4000, 1)), np.random.default_rng(0))
    own = np.mean((drawn[:, 0] == 1) & (drawn[:, 1] == 2))
    p = shares[[s[1][:2] == (1, 2) for s in states]].sum()
    assert abs(own - p) < 4 * np.sqrt(p * (1 - p) / 4000)
    spread = drawn[:, 3].std() / np.sqrt(4000)
    assert abs(drawn[:, 3].mean() - host.means(row[None])[0, 3]) < 4 * spread
    # a label that there is not has no probability
    assert host.evidence(np.array([[2.0, 0, 0, 0, 0, 0]]))[0] == -np.inf


def laws_given(row):
    """The share of each joint state of labels given a row, and mean and covariance of the numbers in it."""
    states = by_enumeration(row)
    nats = np.array([s[0] for s in states])
    seen, found = ~np.isnan(row[2:5]), []
    for _, _, mean, covariance in states:
        gain = covariance[:, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
        found.append((mean + gain @ (row[2:5] - mean)[seen], covariance - gain @ covariance[seen]))
    total = np.logaddexp.reduce(nats)
    return [s[1] for s in states], np.exp(nats - total), [f[0] for f in found], [f[1] for f in found], total


def test_beliefs_by_name_are_sums_and_gaussian_algebra():
    beliefs = MIXED.posterior({"2": 0.5, "5": 1})
    assert isinstance(beliefs, MixedBeliefs)
    assert isinstance(beliefs, AbstractNetworkBeliefs)
    assert beliefs.given == {"2": 0.5, "5": "1"}
    row = np.array([np.nan, np.nan, 0.5, np.nan, np.nan, 1.0])
    states, shares, means, covariances, total = laws_given(row)
    assert beliefs.log_evidence == pytest.approx(total)
    for place, name in ((0, "0"), (1, "1")):
        for k, p in beliefs.marginal(name).items():
            assert p == pytest.approx(shares[[s[place] == int(k) for s in states]].sum(), rel=1e-9)
    # a number is a mixture of normal laws
    weight = beliefs.marginal("4")
    assert isinstance(weight, NumberBelief)
    parts = [stats.norm(m[2], np.sqrt(c[2, 2])) for m, c in zip(means, covariances, strict=True)]
    at = np.array([-2.0, 0.0, 1.5, 4.0])
    for own, name in ((weight.density(at), "pdf"), (weight.cdf(at), "cdf")):
        expected = sum(p * getattr(part, name)(at) for p, part in zip(shares, parts, strict=True))
        np.testing.assert_allclose(own, expected, rtol=1e-9)
    np.testing.assert_allclose(weight.cdf(np.array(weight.interval(0.8))), [0.1, 0.9], rtol=1e-9)
    # mean and covariance over all states
    mean, covariance = beliefs.moments(["3", "4"])
    middle = sum(p * m for p, m in zip(shares, means, strict=True))
    second = sum(
        p * (c + np.outer(m - middle, m - middle))
        for p, m, c in zip(shares, means, covariances, strict=True)
    )
    np.testing.assert_allclose(mean, middle[1:], rtol=1e-9)
    np.testing.assert_allclose(covariance, second[1:, 1:], rtol=1e-9)
    assert weight.mean == pytest.approx(middle[2])
    assert weight.std == pytest.approx(np.sqrt(second[2, 2]))
    # the most probable of all is at the middle of one of the parts
    with np.errstate(divide="ignore"):
        peaks = np.log(shares) - [0.5 * np.linalg.slogdet(c[1:, 1:])[1] for c in covariances]
    top = int(np.argmax(peaks))
    best = beliefs.best
    assert [best[n] for n in ("0", "1", "5")] == [str(k) for k in states[top]]
    np.testing.assert_allclose([best[n] for n in ("2", "3", "4")], means[top], rtol=1e-9)
    drawn = beliefs.sample(4000, key=jax.random.key(0))
    assert abs(drawn["4"].mean() - weight.mean) < 4 * weight.std / np.sqrt(4000)
    p = beliefs.marginal("0")["1"]
    assert abs((drawn["0"] == "1").mean() - p) < 4 * np.sqrt(p * (1 - p) / 4000)
    # what was observed is certain
    assert (beliefs.marginal("2").mean, beliefs.marginal("2").interval()) == (0.5, (0.5, 0.5))
    # the same question to infer: independent draws, and the evidence
    found = fe.infer(MIXED, {"2": 0.5, "5": 1}, key=0)
    assert found.log_evidence.kind is fe.Kind.EXACT
    assert float(found.log_evidence.nats) == pytest.approx(total)
    mean, error = found.expect(lambda z: z["4"])
    assert abs(mean - weight.mean) < 4 * error
    for given, sentence in [
        ({"2": "tall"}, "The value of '2' must be a finite number. Got 'tall' instead."),
        ({"0": 2}, "The state of '0' must be one of '0', '1'. Got 2 instead."),
        (
            {"9": 2},
            "A variable of the network must be one of '0', '1', '2', '3', '4', '5'. Got '9' instead",
        ),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            MIXED.posterior(given)
    with pytest.raises(ValueError, match=r"Only numbers have moments. Got the labels '0'"):
        beliefs.moments(["0"])
    with pytest.raises(ValueError, match=r"Variables that are set must be labels. Got the numbers '2'"):
        MIXED.intervene(**{"2": 1.0})


FRAME_EDGES = [("sex", "income"), ("sex", "height"), ("age", "height")]
FRAME_EDGES += [("sex", "weight"), ("income", "weight"), ("height", "weight"), ("income", "owner")]
NAMES = ["sex", "income", "age", "height", "weight", "owner"]
LABELS = {0: ["f", "m"], 1: ["high", "low", "mid"], 5: ["no", "yes"]}


def frame_of(rows):
    columns = {}
    for i, name in enumerate(NAMES):
        if i in LABELS:
            columns[name] = [None if np.isnan(v) else LABELS[i][int(v)] for v in rows[:, i]]
        else:
            columns[name] = [None if np.isnan(v) else float(v) for v in rows[:, i]]
    return pl.DataFrame(columns)


def test_tables_of_labels_and_numbers(tmp_path, capsys):
    frame, gaps = frame_of(ROWS), frame_of(GAPS)
    model = fe.BayesianNetwork(FRAME_EDGES, numbers=True, alpha=0.0)
    # income and sex make six states: enough rows of each
    model.fit(frame)
    own = (ROWS[:, 0] == 1) & (ROWS[:, 1] == 2)
    slope, intercept = np.polyfit(ROWS[own, 3], ROWS[own, 4], 1)
    found = dict(zip(model.summary(frame).names, model.summary(frame).values, strict=True))
    assert found["slope(weight | sex, income; height)[1, 2]"] == pytest.approx(slope, rel=1e-8)
    assert found["intercept(weight | sex, income)[1, 2]"] == pytest.approx(intercept, rel=1e-8)
    assert found["p(income | sex)[1, 2]"] == pytest.approx(own.sum() / (ROWS[:, 0] == 1).sum())
    # evidence in the units of the data, by the model itself
    inside = model.model_in_units
    nats = np.asarray(jax.jit(jax.vmap(inside.log_prob))(jnp.asarray(GAPS)))
    np.testing.assert_allclose(model.score_samples(gaps), nats, rtol=1e-8)
    filled = model.impute(gaps)
    assert filled.null_count().to_numpy().sum() == 0
    assert set(filled["income"]) <= set(LABELS[1])
    drawn = model.sample(50, random_state=0)
    assert drawn.schema == frame.schema
    # files, and the estimator of a model
    model.save(tmp_path / "network.safetensors")
    again = fe.load(tmp_path / "network.safetensors")
    np.testing.assert_array_equal(again.score_samples(gaps), model.score_samples(gaps))
    np.testing.assert_allclose(
        fe.BayesianNetwork.from_model(MIXED).score_samples(GAPS), MIXED.mixed_rows().evidence(GAPS)
    )
    # by name, in Python and on the command line
    beliefs = model.posterior({"sex": "f", "height": 1.25})
    row = {name: [None] for name in NAMES} | {"sex": ["f"], "height": [1.25]}
    filled = model.impute(pl.DataFrame(row, schema=frame.schema))
    assert beliefs.log_evidence == pytest.approx(
        model.score_samples(pl.DataFrame(row, schema=frame.schema))[0], rel=1e-9
    )
    assert beliefs.marginal("weight").mean == pytest.approx(filled["weight"][0])
    by_draws = fe.infer(model, {"sex": "f", "height": 1.25}, key=0)
    assert float(by_draws.log_evidence.nats) == pytest.approx(beliefs.log_evidence)
    mean, error = by_draws.expect(lambda z: z["weight"])
    assert abs(mean - beliefs.marginal("weight").mean) < 4 * error
    with pytest.raises(ValueError, match=r"A column must be one of 'sex', .* Got 'shoe' instead"):
        fe.infer(model, {"shoe": 44}, key=0)
    file, picture = tmp_path / "network.safetensors", tmp_path / "network.png"
    asked = ["network", str(file), "--given", "sex=f", "--given", "height=1.25"]
    assert run([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["given"] == {"sex": "f", "height": 1.25}
    assert answer["marginals"]["weight"]["mean"] == pytest.approx(beliefs.marginal("weight").mean)
    assert answer["marginals"]["income"] == pytest.approx(beliefs.marginal("income"))
    assert answer["most_probable"]["owner"] == beliefs.best["owner"]
    assert run([*asked, "--query", "income,weight", "--picture", str(picture)]) == 0
    shown = capsys.readouterr()
    low, high = beliefs.marginal("weight").interval()
    assert f"{low:.6g}" in shown.out
    assert f"{high:.6g}" in shown.out
    assert f"The log density of what is given is {beliefs.log_evidence:.6g} nats" in shown.err
    assert picture.stat().st_size > 1000
    assert run([*asked, "--best"]) == 0
    assert f"{beliefs.best['weight']:.6g}" in capsys.readouterr().out
    # labels alone are what they are without numbers
    words = frame.select("sex", "income", "owner")
    both = [fe.BayesianNetwork([], numbers=own).fit(words) for own in (True, False)]
    np.testing.assert_allclose(both[0].score_samples(words), both[1].score_samples(words))
    assert set(both[0].sample(20, random_state=0)["income"]) <= set(LABELS[1])
    # EM with labels and numbers missing: no step loses, and nothing near is more likely
    fitted = fe.BayesianNetwork(FRAME_EDGES, numbers=True, tol=1e-9).fit(gaps)
    assert (np.diff(fitted.history_["objective"]) <= 1e-12).all()
    assert fitted.score(gaps) > fe.BayesianNetwork([], numbers=True).fit(gaps).score(gaps)


def test_em_with_labels_and_numbers_missing_comes_to_a_maximum():
    model = fe.BayesianNetwork(FRAME_EDGES, numbers=True, alpha=1e-4, tol=1e-10, max_iter=2000)
    model.fit(frame_of(GAPS))
    host, x = model.model_.mixed_rows(), model.scaling_.apply(GAPS)
    best, rng = host.evidence(x).sum(), np.random.default_rng(0)
    for _ in range(10):
        lines = tuple(
            line._replace(
                intercept=line.intercept + 0.02 * rng.normal(size=line.intercept.shape),
                weights=line.weights + 0.02 * rng.normal(size=line.weights.shape),
                variance=line.variance * np.exp(0.02 * rng.normal(size=line.variance.shape)),
            )
            for line in host.lines
        )
        moved = MixedRows(host.labels, host.numbers, host.tables, lines)
        assert moved.evidence(x).sum() < best


def test_the_evidence_of_numbers_is_that_of_a_normal_law_integrated_out():
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    alpha, score = 2.0, BDeu(2.0)
    assert isinstance(score, AbstractNumberScore)
    # one row after another, each by Student's t given those before
    dim, mean, strength = 2, np.zeros(2), alpha
    scatter, degrees, nats = np.eye(2) * alpha / (1 + alpha), 4.0, 0.0
    for row in z[:, [0, 1]]:
        df = degrees - dim + 1
        shape = scatter * (1 + 1 / strength) / df
        nats += stats.multivariate_t(mean, shape, df).logpdf(row)
        scatter = scatter + np.outer(row - mean, row - mean) * strength / (strength + 1)
        mean, strength, degrees = (strength * mean + row) / (strength + 1), strength + 1, degrees + 1
    families = Families(X, np.ones(N), [None] * 4, score)
    assert families(0, frozenset()) + families(1, frozenset({0})) == pytest.approx(nats, rel=1e-10)

    # and by the conjugate prior
    def by_prior(rows):
        start = jnp.zeros(2), jnp.array(alpha), jnp.eye(2) * alpha / (1 + alpha), jnp.array(4.0)
        prior = NormalInverseWishart(*start)
        return prior.log_evidence(jnp.sum(jax.vmap(prior.mode().features)(rows), axis=0))

    assert float(jax.jit(by_prior)(z[:, [0, 1]])) == pytest.approx(nats, rel=1e-8)
    # graphs with the same independences score alike
    for own in (score, BIC()):
        one, other = DirectedGraph(range(4), [(0, 1), (1, 2)]), DirectedGraph(range(4), [(2, 1), (1, 0)])
        values = [graph_score(graph, X, [None] * 4, own) for graph in (one, other)]
        assert values[0] == pytest.approx(values[1], rel=1e-11)
    # BIC from the fitted likelihood, in standardised units
    model = fe.BayesianNetwork(EDGES, numbers=True, alpha=0.0).fit(z)
    graph = DirectedGraph(range(4), EDGES)
    penalty = 0.5 * 11 * np.log(N)
    assert graph_score(graph, X, [None] * 4, BIC()) == pytest.approx(model.score_samples(z).sum() - penalty)
    # numbers given labels: each state by itself
    families = Families(ROWS, np.ones(N), [2, 3, None, None, None, 2], BIC())
    standard = (ROWS[:, 3] - ROWS[:, 3].mean()) / ROWS[:, 3].std()
    nats = sum(
        stats.norm(part.mean(), part.std()).logpdf(part).sum()
        for part in (standard[ROWS[:, 0] == k] for k in range(2))
    )
    assert families(3, frozenset({0})) == pytest.approx(nats - 2 * np.log(N))
    assert families(0, frozenset({3})) == -np.inf


def test_search_finds_the_graph_of_numbers():
    many = chain(1500, 3)
    truth = DirectedGraph(range(4), EDGES)
    for search in (HillClimbing(), HillClimbing(BIC())):
        found = search(many, np.ones(len(many)), [None] * 4)
        assert {frozenset(e) for e in found.edges} == {frozenset(e) for e in truth.edges}
        assert set(found.parents(2)) == {1, 3}
    # of four columns the best graph of all
    best, pairs = -np.inf, list(itertools.permutations(range(4), 2))
    for count in range(7):
        for edges in itertools.combinations(pairs, count):
            try:
                best = max(best, graph_score(DirectedGraph(range(4), edges), X, [None] * 4, BDeu()))
            except ValueError:
                continue
    found = HillClimbing()(X, np.ones(N), [None] * 4)
    assert graph_score(found, X, [None] * 4, BDeu()) == pytest.approx(best, rel=1e-12)
    # the tree with the largest likelihood
    tree = ChowLiu()(X, np.ones(N), [None] * 4)
    r = np.corrcoef(X.T)
    gains = {e: -0.5 * np.log(1 - r[e] ** 2) for e in itertools.combinations(range(4), 2)}
    spanning = [
        sum(gains[e] for e in edges)
        for edges in itertools.combinations(gains, 3)
        if len(set(itertools.chain(*edges))) == 4
    ]
    assert sum(gains[tuple(sorted(e))] for e in tree.edges) == pytest.approx(max(spanning))
    # no number is a parent of a label
    wide = mixed_rows(1500, 4)
    found = HillClimbing()(wide, np.ones(1500), [2, 3, None, None, None, 2])
    assert not any(p in (2, 3, 4) and c in (0, 1, 5) for p, c in found.edges)
    moral = {frozenset(e) for e in MIXED.graph.moralise().edges}
    assert {frozenset(map(str, e)) for e in found.moralise().edges} == moral


def test_structural_em_finds_the_graph_under_missing_entries():
    truth = BayesianNetwork.of_tables(
        {
            "a": [0.5, 0.5],
            "b": [[0.9, 0.1], [0.2, 0.8]],
            "c": [[0.8, 0.2], [0.1, 0.9]],
            "d": [[[0.95, 0.05], [0.3, 0.7]], [[0.2, 0.8], [0.9, 0.1]]],
        },
        {"b": ["a"], "c": ["a"], "d": ["b", "c"]},
    )
    rng = np.random.default_rng(5)
    x = truth.rows().draw(np.full((1500, 4), np.nan), rng)
    x = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    search = StructuralEM()
    steps = search.trace(x, np.ones(len(x)), [2] * 4)
    assert len(steps) > 1
    assert (np.diff([score for _, score in steps]) > 0).all()
    edges = {frozenset(e) for e in steps[-1][0].edges}
    assert edges == {frozenset(e) for e in [(0, 1), (0, 2), (1, 3), (2, 3)]}
    # the last score is log p of what is observed, less Schwarz's penalty
    graph = [(str(a), str(b)) for a, b in steps[-1][0].edges]
    model = fe.BayesianNetwork(graph, alpha=1e-3, tol=1e-9).fit(x)
    free = model.summary(x).n_parameters
    assert steps[-1][1] == pytest.approx(model.score_samples(x).sum() - 0.5 * free * np.log(1500), abs=0.05)
    # as the structure of an estimator, of numbers too
    rows = chain(400, 6)
    gaps = np.where(rng.random(rows.shape) < 0.2, np.nan, rows)
    found = fe.BayesianNetwork(StructuralEM(), numbers=True).fit(gaps)
    assert {frozenset(e) for e in found.edges_} == {frozenset(map(str, e)) for e in EDGES}


def test_what_networks_of_numbers_refuse():
    frame = pl.DataFrame({"0": np.arange(6) * 0.3, "1": ["a", "b"] * 3})
    with pytest.raises(ValueError, match=r"numbers must be no parent of one of labels. Got '0' → '1'\."):
        fe.BayesianNetwork([(0, 1)], numbers=True).fit(frame)
    with pytest.raises(ValueError, match=r"or set 'numbers' to have a linear Gaussian model of it"):
        fe.BayesianNetwork().fit(X)
    with pytest.raises(ValueError, match=r"'threshold' parameter of BayesianNetwork must be None where"):
        fe.BayesianNetwork(numbers=True, threshold=0.5).fit(X)
    twins = np.column_stack([X[:, 0], 2 * X[:, 0]])
    with pytest.raises(
        ValueError, match=r"The column '1' has too few rows for its parents, or is a function"
    ):
        fe.BayesianNetwork([(0, 1)], numbers=True, alpha=0.0).fit(twins)
    with pytest.raises(ValueError, match=r"ChowLiu needs columns of labels alone, or of numbers alone"):
        fe.BayesianNetwork(ChowLiu(), numbers=True).fit(frame_of(ROWS))

    class Words(AbstractScore):
        def __call__(self, counts):
            return 0.0

    with pytest.raises(ValueError, match=r"graph with numbers must be an AbstractNumberScore"):
        Families(X, np.ones(N), [None] * 4, Words())
    # a sum over too many labels is refused with its size
    lines = tuple(LineTable((v,), (), np.zeros(2), np.zeros((2, 0)), np.ones(2)) for v in range(13))
    tables = BayesianNetwork.of_tables({str(v): [0.5, 0.5] for v in range(13)}, {}).rows()
    wide = MixedRows(tuple(range(13)), tuple(range(13, 26)), tables, lines)
    with pytest.raises(ValueError, match=r"at most 4,096 of their joint states. Got 8,192, of 13 columns"):
        wide.evidence(np.concatenate([np.full((1, 13), np.nan), np.zeros((1, 13))], axis=1))
    with pytest.raises(ValueError, match=r"completed in at most 1.3e\+08 numbers"):
        wide.completed(np.full((400000, 26), np.nan), np.ones(400000), (0, 1))
    counts = GivenNode(Given(Poisson(jnp.ones(1))), lambda u: jnp.zeros(1))
    with pytest.raises(ValueError, match=r"linear Gaussian numbers. Got '0', which is a GivenNode"):
        fe.BayesianNetwork.from_model(BayesianNetwork([counts], [()]))
