"""Bayesian and Markov networks as models, against enumeration, Gaussian algebra and quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import freeenergy as fe
from freeenergy.distributions import (
    Bernoulli,
    Binary,
    Categories,
    Counts,
    Gamma,
    Given,
    Mean,
    Poisson,
    Positive,
)
from freeenergy.inference import (
    Eliminate,
    Enumerate,
    FactorEnergy,
    MarkovChain,
    Rounded,
    SequentialMonteCarlo,
    TableRows,
    gibbs_sweep,
    infer,
)
from freeenergy.models import (
    AbstractNetwork,
    AbstractNode,
    BayesianNetwork,
    GaussianNode,
    GivenNode,
    MarkovNetwork,
    NetworkBeliefs,
    TableNode,
)

# the notes of Moon give its numbers: D → C → B → A
CHAIN = BayesianNetwork.of_tables(
    {
        "A": [[0.7, 0.3], [0.1, 0.9]],
        "B": [[0.6, 0.4], [0.25, 0.75]],
        "C": [[0.9, 0.1], [0.2, 0.8]],
        "D": [0.3, 0.7],
    },
    {"A": ["B"], "B": ["C"], "C": ["D"]},
)
STATES = np.array(list(itertools.product(range(2), repeat=4)), float)


def program(f):
    """One program, of a method of a model too."""
    return jax.jit(lambda *given: f(*given))


def every(model, rows):
    return np.asarray(program(jax.vmap(model.log_prob))(jnp.asarray(rows)))


def drawn(model, row, keys):
    return np.asarray(program(jax.vmap(lambda k: model.complete_sample(jnp.asarray(row), key=k)))(keys))


def free(model, keys):
    return np.asarray(program(jax.vmap(lambda k: model.sample(key=k)))(keys))


def completed(model, row):
    return np.asarray(program(model.complete_mean)(jnp.asarray(row)))


def holes(rows, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows.shape) < 0.5, np.nan, rows)


def marginal(joint, states, row):
    """Σ of `joint` over the states that agree with what is observed of a row."""
    return joint[(np.isnan(row) | (states == row)).all(axis=1)].sum()


def test_belief_in_a_chain_has_the_numbers_of_the_notes():
    assert isinstance(CHAIN, AbstractNetwork)
    prior = CHAIN.posterior()
    assert isinstance(prior, NetworkBeliefs)
    found = {name: round(p["0"], 6) for name, p in prior.marginals().items()}
    # the spec numbers states from one on: "A = 1" is the first
    assert found == {"A": 0.3361, "B": 0.3935, "C": 0.41, "D": 0.3}
    after = CHAIN.posterior({"A": "1"})
    assert after.marginal("B")["0"] == pytest.approx(0.177812924, abs=1e-9)
    assert after.marginal("C")["0"] == pytest.approx(0.333483958, abs=1e-9)
    assert after.marginal("D")["0"] == pytest.approx(0.253502033, abs=1e-9)
    assert np.exp(after.log_evidence) == pytest.approx(0.6639, abs=1e-12)
    assert after.given == {"A": "1"}
    assert after.best == {"A": "1", "B": "1", "C": "1", "D": "1"}
    drawn = after.sample(4000, key=jax.random.key(0))
    assert set(drawn["A"]) == {"1"}
    assert abs((drawn["D"] == "0").mean() - 0.253502033) < 5 * np.sqrt(0.25 * 0.75 / 4000)
    np.testing.assert_allclose(after.joint(["B", "D"]).sum(axis=1), list(after.marginal("B").values()))


def test_a_network_of_labels_is_the_product_of_its_tables():
    joint = np.exp(every(CHAIN, STATES))
    assert joint.sum() == pytest.approx(1.0, abs=1e-12)
    a, b, c, d = STATES.astype(int).T
    tables = [np.asarray(node.probabilities) for node in CHAIN.nodes]
    np.testing.assert_allclose(joint, tables[0][b, a] * tables[1][c, b] * tables[2][d, c] * tables[3][d])
    rows = holes(STATES)
    expected = [marginal(joint, STATES, row) for row in rows]
    np.testing.assert_allclose(np.exp(every(CHAIN, rows)), expected, rtol=1e-12)
    # many rows on the host say the same
    host = CHAIN.rows()
    assert isinstance(host, TableRows)
    np.testing.assert_allclose(np.exp(host.evidence(rows)), expected, rtol=1e-12)
    np.testing.assert_allclose(np.exp(host.evidence(STATES)), joint, rtol=1e-12)
    assert host.evidence(np.array([[0.0, 5.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0]])).tolist() == [
        -np.inf,
        -np.inf,
    ]
    counts, nats = host.counts(rows, np.ones(16), [(1, 0), (3,)])
    assert nats == pytest.approx(np.log(expected).sum())
    for scope, found in zip([(1, 0), (3,)], counts, strict=True):
        right = np.zeros((2,) * len(scope))
        for row, total in zip(rows, expected, strict=True):
            fits = (np.isnan(row) | (row == STATES)).all(axis=1)
            np.add.at(right, tuple(STATES[fits][:, v].astype(int) for v in scope), joint[fits] / total)
        np.testing.assert_allclose(found, right, rtol=1e-12)
    # the number of parameters, and that of the whole table
    assert sum(node.probabilities.size // 2 for node in CHAIN.nodes) == 7 < 2**4 - 1


def test_draws_of_networks_follow_their_tables():
    n = 5000
    joint = np.exp(every(CHAIN, STATES))
    keys = jax.random.split(jax.random.key(0), n)
    row = jnp.array([1.0, jnp.nan, jnp.nan, 0.0])
    fits = (STATES[:, 0] == 1) & (STATES[:, 3] == 0)
    given = np.where(fits, joint, 0) / joint[fits].sum()
    given_host = CHAIN.rows().draw(np.tile(np.asarray(row), (n, 1)), np.random.default_rng(0))
    markov = MarkovNetwork(
        [jnp.log(t.probabilities) for t in CHAIN.nodes], [(1, 0), (2, 1), (3, 2), (3,)], [2] * 4
    )
    for draws, expected in [
        (free(CHAIN, keys), joint),
        (drawn(CHAIN, row, keys), given),
        (given_host, given),
        (free(markov, keys), joint),
        (drawn(markov, row, keys), given),
    ]:
        codes = np.asarray(draws) @ np.array([8, 4, 2, 1])
        share = np.bincount(codes.astype(int), minlength=16) / n
        assert (np.abs(share - expected) <= 5 * np.sqrt(expected * (1 - expected) / n)).all()
    mean = completed(CHAIN, row)
    np.testing.assert_allclose(mean, given @ STATES, atol=1e-12)
    np.testing.assert_allclose(completed(markov, row), given @ STATES, atol=1e-12)


def test_explaining_away():
    for p, alone, both in [(0.1, 10 / 19, 0.1), (0.5, 2 / 3, 0.5)]:
        alarm = BayesianNetwork.of_tables(
            {"b": [1 - p, p], "e": [1 - p, p], "a": [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]}, {"a": ["b", "e"]}
        )
        assert alarm.graph.separated("b", "e")
        assert not alarm.graph.separated("b", "e", given="a")
        assert alarm.posterior({"a": 1}).marginal("b")["1"] == pytest.approx(alone)
        assert alarm.posterior({"a": 1, "e": 1}).marginal("b")["1"] == pytest.approx(both)
    pair = alarm.posterior({"a": 1}).joint(["b", "e"])
    assert pair[1, 1] - pair[1].sum() * pair[:, 1].sum() == pytest.approx(1 / 3 - 4 / 9)
    with pytest.raises(ValueError, match=r"must be possible. Got b=1, a=0, whose probability is zero\."):
        alarm.posterior({"b": 1, "a": 0})


def test_intervention_cuts_the_arrows():
    # a driver turns the wheel and sets the indicator: each tells of the other, and moves it not
    turn = BayesianNetwork.of_tables(
        {"z": [0.5, 0.5], "x": [[0.9, 0.1], [0.1, 0.9]], "y": [[0.9, 0.1], [0.1, 0.9]]},
        {"x": ["z"], "y": ["z"]},
    )
    assert turn.posterior({"x": 1}).marginal("y")["1"] == pytest.approx(0.82)
    assert turn.intervene(x=1).posterior().marginal("y")["1"] == pytest.approx(0.5)
    assert turn.intervene(x=1).posterior().marginal("x")["1"] == 1.0
    assert turn.intervene(x=1).graph.edges == (("z", "y"),)
    # nor does a common effect move its causes
    effect = BayesianNetwork.of_tables(
        {"b": [0.9, 0.1], "e": [0.9, 0.1], "a": [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]}, {"a": ["b", "e"]}
    )
    assert effect.intervene(a=1).posterior().marginal("b")["1"] == pytest.approx(0.1)


def test_what_is_missing_can_be_inferred_by_any_method():
    x = jnp.array([1.0, jnp.nan, jnp.nan, 0.0])
    found = infer(lambda z: CHAIN.energy(x, z), CHAIN.latent(x), Enumerate(), key=jax.random.key(0))
    assert found.log_evidence is not None
    assert float(found.log_evidence.nats) == pytest.approx(float(every(CHAIN, x[None])[0]))
    drawn = infer(*CHAIN.factored(x), Eliminate(4000), key=jax.random.key(0))
    assert drawn.log_evidence is not None
    assert float(drawn.log_evidence.nats) == pytest.approx(float(found.log_evidence.nats))
    mean, error = drawn.expect(lambda z: jnp.stack(z).astype(float))
    assert (np.abs(mean - completed(CHAIN, x)[1:3]) < 5 * error).all()
    walk = infer(
        lambda z: CHAIN.energy(x, z), CHAIN.latent(x), MarkovChain(gibbs_sweep), key=jax.random.key(0)
    )
    mean, error = walk.expect(lambda z: jnp.stack(z).astype(float))
    assert (np.abs(mean - completed(CHAIN, x)[1:3]) < 5 * error).all()


def test_elimination_asks_for_factors():
    energy, space = CHAIN.factored([1.0, np.nan, np.nan, 0.0])
    assert isinstance(energy, FactorEnergy)
    with pytest.raises(ValueError, match=r"takes a FactorEnergy.* Got function instead"):
        infer(lambda z: energy(z), space, Eliminate(), key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"must have an entry that is missing. Got none\."):
        CHAIN.factored(np.zeros(4))
    with pytest.raises(ValueError, match="must be a tuple of Categories"):
        infer(energy, list(space), Eliminate(), key=jax.random.key(0))
    # what is given cannot occur
    sure = BayesianNetwork.of_tables({"a": [1.0, 0.0], "b": np.eye(2)}, {"b": ["a"]})
    with pytest.raises(ValueError, match="energy must be finite where inference by Eliminate begins"):
        infer(*sure.factored([np.nan, 1.0]), Eliminate(), key=jax.random.key(0))


# labels and numbers

LINES = BayesianNetwork(
    [
        TableNode(jnp.array([0.3, 0.7])),
        GaussianNode(jnp.array([0.0, 2.0]), jnp.zeros((2, 0)), jnp.array([1.0, 0.5])),
        GaussianNode(jnp.array(1.0), jnp.array([-0.5]), jnp.array(0.25)),
        GaussianNode(jnp.array([0.0, 1.0]), jnp.array([[1.0, 1.0], [0.0, 2.0]]), jnp.array([0.1, 0.2])),
    ],
    [(), (0,), (1,), (0, 1, 2)],
    names=["kind", "u", "v", "w"],
)


def gaussian_of(kind):
    """Mean and covariance of the three numbers given the label, from their moments one after another."""
    b, s = [(0.0, 1.0), (2.0, 0.5)][kind]
    mean, cov = np.array([b]), np.array([[s]])
    for own, slopes, noise in [
        (1.0, [-0.5], 0.25),
        ([0.0, 1.0][kind], [[1.0, 1.0], [0.0, 2.0]][kind], [0.1, 0.2][kind]),
    ]:
        w = np.array(slopes)
        cov = np.block([[cov, (cov @ w)[:, None]], [(w @ cov)[None], w @ cov @ w + noise]])
        mean = np.append(mean, own + w @ mean)
    return mean, cov


def test_linear_gaussian_numbers_given_labels():
    assert isinstance(LINES.nodes[1], AbstractNode)
    laws = [gaussian_of(0), gaussian_of(1)]
    row = np.array([1.0, 0.3, 0.2, -0.4])
    expected = np.log(0.7) + stats.multivariate_normal(*laws[1]).logpdf(row[1:])
    assert float(every(LINES, row[None])[0]) == pytest.approx(expected)
    assert float(program(LINES.log_prob_complete)(jnp.asarray(row))) == pytest.approx(expected)
    # the label and one number are missing
    some = np.array([np.nan, np.nan, 0.2, -0.4])
    parts = [
        p * stats.multivariate_normal(m[1:], c[1:, 1:]).pdf(some[2:])
        for p, (m, c) in zip((0.3, 0.7), laws, strict=True)
    ]
    assert float(every(LINES, some[None])[0]) == pytest.approx(np.log(sum(parts)))
    means = [m[0] + c[0, 1:] @ np.linalg.solve(c[1:, 1:], some[2:] - m[1:]) for m, c in laws]
    filled = completed(LINES, some)
    np.testing.assert_allclose(
        filled, [parts[1] / sum(parts), np.dot(parts, means) / sum(parts), 0.2, -0.4]
    )
    n = 5000
    keys = jax.random.split(jax.random.key(0), n)
    draws = drawn(LINES, some, keys)
    assert (np.abs(draws.mean(axis=0) - filled)[:2] < 5 * draws.std(axis=0)[:2] / np.sqrt(n)).all()
    np.testing.assert_array_equal(draws[:, 2:], np.tile(some[2:], (n, 1)))
    plain = free(LINES, keys)
    mean = 0.3 * laws[0][0] + 0.7 * laws[1][0]
    assert (np.abs(plain[:, 1:].mean(axis=0) - mean) < 5 * plain[:, 1:].std(axis=0) / np.sqrt(n)).all()
    with pytest.raises(ValueError, match=r"those of networks of labels. Got the numbers 'u'"):
        LINES.rows()


def test_any_conditional_family_given_labels():
    rates = jnp.array([1.0, 4.0])
    visits = BayesianNetwork(
        [
            TableNode(jnp.array([0.4, 0.6])),
            TableNode(jnp.array([[0.9, 0.1], [0.2, 0.8]])),
            GivenNode(Given(Poisson(jnp.ones(1))), lambda u: jnp.log(rates[u[0].astype(int)])[None]),
        ],
        [(), (0,), (1,)],
    )
    second = np.array([0.4 * 0.9 + 0.6 * 0.2, 0.4 * 0.1 + 0.6 * 0.8])
    mass = second[:, None] * stats.poisson([[1.0], [4.0]]).pmf(np.arange(6))
    rows = [[np.nan, np.nan, k] for k in range(6)]
    np.testing.assert_allclose(np.exp(every(visits, rows)), mass.sum(axis=0), rtol=1e-12)
    assert float(every(visits, np.full((1, 3), np.nan))[0]) == pytest.approx(0.0, abs=1e-12)
    filled = completed(visits, [jnp.nan, jnp.nan, 3.0])
    assert float(filled[1]) == pytest.approx(mass[1, 3] / mass[:, 3].sum())
    assert float(completed(visits, [0.0, jnp.nan, jnp.nan])[2]) == pytest.approx(0.9 + 0.1 * 4)
    n = 4000
    keys = jax.random.split(jax.random.key(1), n)
    draws = drawn(visits, [jnp.nan, jnp.nan, 3.0], keys)
    assert abs(draws[:, 1].mean() - float(filled[1])) < 5 * 0.5 / np.sqrt(n)
    assert (draws[:, 2] == 3).all()


def test_where_numbers_of_other_families_have_children_nothing_is_pretended():
    counted = BayesianNetwork(
        [
            GivenNode(Given(Poisson(jnp.ones(1))), lambda u: jnp.zeros(1)),
            GaussianNode(jnp.array(0.0), jnp.array([1.0]), jnp.array(1.0)),
        ],
        [(), (0,)],
    )
    expected = stats.poisson(1.0).logpmf(2) + stats.norm(2.0, 1.0).logpdf(1.5)
    assert float(program(counted.log_prob_complete)(jnp.array([2.0, 1.5]))) == pytest.approx(expected)
    for ask in (counted.log_prob, counted.complete_mean):
        with pytest.raises(ValueError, match=r"Use fe.infer, which samples, for this one"):
            ask(jnp.array([2.0, jnp.nan]))
    # with the energy it is a number as any other
    x = jnp.array([2.0, jnp.nan])
    energy = program(lambda z: counted.energy(x, (z,)))
    whole = integrate.quad(lambda z: float(np.exp(-energy(z))), -6, 10)[0]
    assert whole == pytest.approx(stats.poisson(1.0).pmf(2), rel=1e-6)
    # and a count behind what is observed is sampled, with the evidence
    n = np.arange(30)
    joint = stats.poisson(1.0).pmf(n) * stats.norm(n, 1.0).pdf(2.5)
    particles = SequentialMonteCarlo(particles=1024, moves=4)
    found = fe.infer(counted, np.array([np.nan, 2.5]), method=Rounded(particles), key=0)
    mean, error = found.expect(lambda z: z["0"])
    assert abs(mean - joint @ n / joint.sum()) < 4 * error
    assert abs(float(found.log_evidence.nats) - np.log(joint.sum())) < 4 * float(found.log_evidence.stderr)
    assert found.marginals()["0"]["2"] == pytest.approx(joint[2] / joint.sum(), abs=0.1)


# season → heat → visits, heat → bought: none of them a table given numbers, nor a line
SHOP = BayesianNetwork(
    [
        TableNode(jnp.array([0.7, 0.3])),
        GivenNode(Given(Gamma(jnp.array([3.0]), jnp.array([1.0])), Mean(jnp.exp)), lambda u: 0.5 + u),
        GivenNode(Given(Poisson(jnp.ones(1))), lambda u: 0.4 * u),
        GivenNode(Given(Bernoulli(jnp.full(1, 0.5))), lambda u: 1.5 - u),
    ],
    [(), (0,), (1,), (1,)],
    ["season", "heat", "visits", "bought"],
    [["dry", "wet"], [], [], []],
)


def test_numbers_of_any_family_are_sampled_given_their_children():
    def density(heat, season):
        mean = np.exp(0.5 + season)
        prior = [0.7, 0.3][season] * stats.gamma(3.0, scale=mean / 3.0).pdf(heat)
        odds = 1 / (1 + np.exp(-(1.5 - heat)))
        return prior * stats.poisson(np.exp(0.4 * heat)).pmf(4) * odds

    moments = np.array(
        [
            [integrate.quad(lambda h, k=k, s=s: h**k * density(h, s), 0, 40, limit=200)[0] for k in (0, 1)]
            for s in (0, 1)
        ]
    )
    whole, first = moments.sum(axis=0)
    assert [type(space) for space in SHOP.spaces] == [Categories, Positive, Counts, Binary]
    given = {"visits": 4, "bought": 1}
    found = fe.infer(SHOP, given, key=0)
    assert "summed out" in found.note
    mean, error = found.expect(lambda z: z["heat"])
    assert abs(mean - first / whole) < 4 * error
    wet, error = found.expect(lambda z: (z["season"] == 1).astype(float))
    assert abs(wet - moments[1, 0] / whole) < 4 * error
    # with the evidence, given the season
    particles = SequentialMonteCarlo(particles=2048)
    nats = fe.infer(SHOP, {**given, "season": "wet"}, method=particles, key=0).log_evidence
    assert abs(float(nats.nats) - np.log(moments[1, 0])) < 4 * float(nats.stderr)
    # what comes of the observed is drawn as it comes
    later = fe.infer(SHOP, {"season": "wet", "heat": 1.0}, key=0)
    mean, error = later.expect(lambda z: z["visits"])
    assert abs(mean - np.exp(0.4)) < 4 * error
    assert later.log_evidence.kind is fe.Kind.EXACT
    prior = np.log(0.3) + stats.gamma(3.0, scale=np.exp(1.5) / 3.0).logpdf(1.0)
    assert float(later.log_evidence.nats) == pytest.approx(prior)
    with pytest.raises(ValueError, match=r"Got 'heat', which is a GivenNode: use fe.infer"):
        SHOP.posterior(given)
    with pytest.raises(ValueError, match=r"leave some out. Got all 4 of them instead"):
        fe.infer(SHOP, np.zeros(4), key=0)


def test_networks_that_are_none():
    with pytest.raises(ValueError, match=r"must have no cycle. Got 'a' → 'b' → 'a'"):
        BayesianNetwork.of_tables({"a": np.eye(2), "b": np.eye(2)}, {"a": ["b"], "b": ["a"]})
    with pytest.raises(
        ValueError, match="table of 'a' must be non-negative with sum one along the last axis"
    ):
        BayesianNetwork.of_tables({"a": [0.5, 0.6]}, {})
    with pytest.raises(
        ValueError, match=r"The node 'b' of BayesianNetwork must have a table of the shape \(2, 2\)"
    ):
        BayesianNetwork.of_tables({"a": [0.5, 0.5], "b": [[0.5, 0.5]]}, {"b": ["a"]})
    with pytest.raises(ValueError, match=r"must be one of 'a'. Got 'z' instead"):
        BayesianNetwork.of_tables({"a": [0.5, 0.5]}, {"a": ["z"]})
    with pytest.raises(ValueError, match=r"The state of 'A' must be one of '0', '1'. Got 'yes' instead"):
        CHAIN.posterior({"A": "yes"})
    alone = GaussianNode(jnp.array(0.0), jnp.zeros(0), jnp.array(1.0))
    with pytest.raises(ValueError, match="has a table, and so labels alone as parents"):
        BayesianNetwork([alone, TableNode(jnp.array([[0.5, 0.5]]))], [(), (0,)])
    with pytest.raises(ValueError, match=r"must have an entry for each of its 1 nodes. Got 2 instead"):
        BayesianNetwork([TableNode(jnp.array([0.5, 0.5]))], [()], names=["a", "b"])
    with pytest.raises(
        ValueError, match=r"must be non-negative with sum one along the last axis. Got the sum"
    ):
        TableNode(jnp.array([0.5, 0.6]))
    with pytest.raises(ValueError, match=r"must have the shape \(2, 2\). Got \(2,\)"):
        MarkovNetwork([jnp.zeros(2)], [(0, 1)], [2, 2])


# undirected


def square(scale=1.0):
    rng = np.random.default_rng(0)
    pairs = [("x1", "x2"), ("x2", "x4"), ("x1", "x3"), ("x3", "x4")]
    return MarkovNetwork.of_potentials(
        {p: rng.uniform(0.1, 2.0, (2, 2)) * (scale if p[0] == "x3" else 1) for p in pairs}
    )


def test_the_square_has_no_directed_twin_and_its_sum_is_exact():
    net = square()
    assert net.names == ("x1", "x2", "x4", "x3")
    assert net.graph.separated("x1", "x4", given=["x2", "x3"])
    assert not net.graph.separated("x1", "x4", given="x2")
    assert net.graph.cliques() == [("x1", "x2"), ("x1", "x3"), ("x2", "x4"), ("x4", "x3")]
    whole = np.exp(program(jax.vmap(net.log_potential))(jnp.asarray(STATES)))
    assert float(np.exp(program(net.log_partition)())) == pytest.approx(whole.sum())
    np.testing.assert_allclose(np.exp(every(net, STATES)), whole / whole.sum(), rtol=1e-10)
    rows = holes(STATES, 1)
    expected = [marginal(whole / whole.sum(), STATES, row) for row in rows]
    np.testing.assert_allclose(np.exp(every(net, rows)), expected, rtol=1e-10)
    np.testing.assert_allclose(np.exp(net.rows().evidence(rows)), expected, rtol=1e-10)
    # independent given the other two
    joint = (whole / whole.sum()).reshape(2, 2, 2, 2)
    for b, c in itertools.product(range(2), repeat=2):
        table = joint[:, b, :, c] / joint[:, b, :, c].sum()
        np.testing.assert_allclose(table, np.outer(table.sum(axis=1), table.sum(axis=0)), atol=1e-12)
    # a larger potential is a larger Z, and nothing else
    larger = square(3.0)
    assert larger.rows().log_z - net.rows().log_z == pytest.approx(np.log(3))
    np.testing.assert_allclose(every(larger, STATES), every(net, STATES), atol=1e-12)
    assert every(net, [[0.0, 7.0, 0.0, 0.0]])[0] == -np.inf


def test_conditionals_of_one_label_need_no_sum():
    net = square()
    joint = np.exp(every(net, STATES)).reshape(2, 2, 2, 2)
    chosen = STATES[[0, 6, 11]]
    for state, logs in zip(
        chosen, program(jax.vmap(net.log_conditionals))(jnp.asarray(chosen)), strict=True
    ):
        found = np.exp(logs)
        for v in range(4):
            place = tuple(slice(None) if u == v else int(state[u]) for u in range(4))
            assert found[v] == pytest.approx(joint[place][int(state[v])] / joint[place].sum())


def test_z_is_the_probability_of_one_more_variable():
    net = square()
    z = net.rows().log_z
    # φ / c is p(effect | pair) of an effect that was observed, and x uniform before
    top = max(float(np.max(logs)) for logs in net.logs)
    effects = {f"e{i}": logs for i, logs in enumerate(net.logs)}
    tables = {name: [0.5, 0.5] for name in net.names}
    above = {}
    for (name, logs), scope in zip(effects.items(), net.scopes, strict=True):
        chance = np.exp(np.asarray(logs) - top)
        tables[name] = np.stack([1 - chance, chance], axis=-1)
        above[name] = [net.names[v] for v in scope]
    directed = BayesianNetwork.of_tables(tables, above)
    seen = directed.posterior(dict.fromkeys(effects, 1))
    assert seen.log_evidence + 4 * np.log(2) + 4 * top == pytest.approx(z)
    assert seen.marginal("x1")["0"] == pytest.approx(net.posterior().marginal("x1")["0"])
