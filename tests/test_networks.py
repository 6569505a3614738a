"""Bayesian and Markov networks as estimators of tables of labels."""

import itertools

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import freeenergy as fe
from freeenergy.inference import DirectedGraph
from freeenergy.learning import (
    BIC,
    LBFGS,
    AbstractScore,
    AbstractStructure,
    BDeu,
    ChowLiu,
    Families,
    HillClimbing,
    fit,
    graph_score,
    negative_log_likelihood,
    negative_log_pseudo_likelihood,
)

TRUTH = fe.models.BayesianNetwork.of_tables(
    {
        "cloudy": [0.5, 0.5],
        "sprinkler": [[0.5, 0.5], [0.9, 0.1]],
        "rain": [[0.8, 0.2], [0.2, 0.8]],
        "wet": [[[0.95, 0.05], [0.1, 0.9]], [[0.1, 0.9], [0.02, 0.98]]],
    },
    {"sprinkler": ["cloudy"], "rain": ["cloudy"], "wet": ["sprinkler", "rain"]},
)
EDGES = [("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")]


def rows(n, seed=0):
    return TRUTH.rows().draw(np.full((n, 4), np.nan), np.random.default_rng(seed))


X = rows(100)
MANY = rows(3000, 1)
HOLES = np.where(np.random.default_rng(2).random(X.shape) < 0.25, np.nan, X)
STATES = np.array(list(itertools.product(range(2), repeat=4)), float)


def test_tables_are_shares_of_rows():
    model = fe.BayesianNetwork(EDGES, alpha=0.0).fit(X)
    assert model.edges_ == [("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")]
    a, b, c, d = X.astype(int).T
    table = np.asarray(model.model_.nodes[3].probabilities)
    for i, j in itertools.product(range(2), repeat=2):
        own = (b == i) & (c == j)
        assert table[i, j, 1] == pytest.approx(d[own].mean())
    # four imagined rows, spread over all joint states
    smooth = fe.BayesianNetwork(EDGES, alpha=4.0).fit(X)
    found = np.asarray(smooth.model_.nodes[1].probabilities)
    assert found[0, 1] == pytest.approx((((a == 0) & (b == 1)).sum() + 1) / ((a == 0).sum() + 2))
    assert model.history_["objective"][-1] == pytest.approx(-model.score(X))
    assert model.graph_.separated("1", "2", given="0")
    assert "p(3 | 1, 2)[0, 1, 1]" in str(model.summary(X))


def test_labels_that_are_missing_are_inferred_by_em():
    model = fe.BayesianNetwork(EDGES, alpha=0.5, tol=1e-10).fit(HOLES)
    losses = model.history_["objective"]
    assert (np.diff(losses) <= 1e-12).all()
    assert model.converged_
    # no table near it is more likely, with the imagined rows
    start = [np.asarray(node.probabilities) for node in model.model_.nodes]

    def objective(tables):
        other = fe.models.BayesianNetwork.of_tables(
            dict(zip("0123", tables, strict=True)), {"1": "0", "2": "0", "3": "12"}
        )
        prior = sum(0.5 / t.size * np.log(t).sum() for t in tables)
        return other.rows().evidence(HOLES).sum() + prior

    best = objective(start)
    assert best == pytest.approx(-losses[-1] * len(X), rel=1e-8)
    rng = np.random.default_rng(0)
    for _ in range(20):
        logits = [np.log(t) + 0.01 * rng.normal(size=t.shape) for t in start]
        moved = [np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True) for z in logits]
        assert objective(moved) < best
    with pytest.warns(Warning, match="BayesianNetwork"):
        fe.BayesianNetwork(EDGES, max_iter=2, tol=0.0).fit(HOLES)


def test_what_is_missing_is_imputed_with_the_most_probable_label():
    model = fe.BayesianNetwork(EDGES).fit(X)
    joint = np.exp(model.score_samples(STATES))
    filled = model.impute(HOLES)
    for row, found in zip(HOLES, filled, strict=True):
        fits = (np.isnan(row) | (row == STATES)).all(axis=1)
        for column in np.flatnonzero(np.isnan(row)):
            chance = [joint[fits & (STATES[:, column] == k)].sum() for k in range(2)]
            assert chance[int(found[column])] == pytest.approx(max(chance))


def test_the_evidence_of_a_graph_is_that_of_its_tables_integrated_out():
    # one after another: each label by the shares so far
    labels, alpha, total = [0, 1, 1, 0, 1], 2.0, 0.0
    counts = np.zeros(2)
    for label in labels:
        total += np.log((counts[label] + alpha / 2) / (counts.sum() + alpha))
        counts[label] += 1
    assert BDeu(alpha)(counts) == pytest.approx(total)
    assert isinstance(BDeu(), AbstractScore)
    # graphs with the same independences have the same evidence
    chain, back = DirectedGraph(range(4), [(0, 1), (1, 2)]), DirectedGraph(range(4), [(2, 1), (1, 0)])
    collider = DirectedGraph(range(4), [(0, 1), (2, 1)])
    scores = [graph_score(g, X, [2] * 4, s) for s in (BDeu(), BIC()) for g in (chain, back, collider)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)
    assert scores[3] == pytest.approx(scores[4], rel=1e-12)
    assert scores[0] != pytest.approx(scores[2], rel=1e-6)
    # BIC from the fitted likelihood
    model = fe.BayesianNetwork([(0, 1), (2, 1)], alpha=0.0).fit(X)
    assert scores[5] == pytest.approx(model.score_samples(X).sum() - 0.5 * (1 + 4 + 1 + 1) * np.log(100))
    families = Families(X, np.ones(100), [2] * 4, BDeu())
    assert families(1, frozenset({0})) == pytest.approx(
        graph_score(chain, X, [2] * 4, BDeu())
        - sum(families(v, frozenset(p)) for v, p in ((0, ()), (2, (1,)), (3, ())))
    )
    # a table of too many cells is no candidate, and the tree needs none
    wide = np.stack([np.arange(30.0) * 300, np.arange(30.0) * 300, np.zeros(30)], axis=1)
    families = Families(wide, np.ones(30), [9000, 9000, 2], BDeu())
    assert families(1, frozenset({0})) == -np.inf
    assert families.information(0, 1) == pytest.approx(np.log(30))
    assert families.information(0, 2) == pytest.approx(0.0, abs=1e-12)


def test_search_finds_the_graph_that_made_the_rows():
    for search in (HillClimbing(), HillClimbing(BIC())):
        assert isinstance(search, AbstractStructure)
        found = search(MANY, np.ones(len(MANY)), [2] * 4)
        # up to arrows that make no difference: the same neighbours and the same collider
        assert (
            found.moralise().edges
            == DirectedGraph(range(4), [(0, 1), (0, 2), (1, 3), (2, 3)]).moralise().edges
        )
        assert set(found.parents(3)) == {1, 2}
    # of four columns the best graph of all 543 is found
    names = list(itertools.permutations(range(4), 2))
    best = -np.inf
    for count in range(7):
        for edges in itertools.combinations(names, count):
            try:
                graph = DirectedGraph(range(4), edges)
            except ValueError:
                continue
            best = max(best, graph_score(graph, X, [2] * 4, BDeu()))
    found = HillClimbing()(X, np.ones(100), [2] * 4)
    assert graph_score(found, X, [2] * 4, BDeu()) == pytest.approx(best, rel=1e-12)
    few = HillClimbing(max_parents=1)(MANY, np.ones(len(MANY)), [2] * 4)
    assert max(len(few.parents(v)) for v in range(4)) == 1


def test_no_tree_is_more_likely_than_that_of_chow_and_liu():
    found = ChowLiu()(X, np.ones(100), [2] * 4)
    best = fe.BayesianNetwork(ChowLiu(), alpha=0.0).fit(X).score(X)
    trees = 0
    for edges in itertools.combinations(itertools.combinations(range(4), 2), 3):
        # away from the first column, if all are reached
        inside, arrows, left = [0], [], list(edges)
        while any((a in inside) != (b in inside) for a, b in left):
            a, b = next(e for e in left if (e[0] in inside) != (e[1] in inside))
            arrows.append((a, b) if a in inside else (b, a))
            inside.append(arrows[-1][1])
            left.remove((a, b))
        if len(inside) == 4:
            trees += 1
            assert fe.BayesianNetwork(arrows, alpha=0.0).fit(X).score(X) <= best + 1e-12
    assert trees == 16
    assert len(found.edges) == 3
    # whatever the root
    other = fe.BayesianNetwork(ChowLiu(2), alpha=0.0).fit(X)
    assert other.score(X) == pytest.approx(best, rel=1e-12)
    with pytest.raises(
        ValueError, match=r"'root' of ChowLiu must be a column, an int in the range \[0, 4\)"
    ):
        fe.BayesianNetwork(ChowLiu(7)).fit(X)


def test_a_markov_network_has_the_shares_of_the_rows_in_its_cliques():
    # a square, without a chord
    model = fe.MarkovNetwork([(0, 1), (1, 3), (3, 2), (2, 0)], alpha=0.0).fit(MANY)
    assert model.converged_
    found = model.posterior()
    for a, b in ((0, 1), (1, 3), (2, 3), (0, 2)):
        share = np.array(
            [[((MANY[:, a] == i) & (MANY[:, b] == j)).mean() for j in range(2)] for i in range(2)]
        )
        np.testing.assert_allclose(found.joint([str(a), str(b)]), share, atol=2e-6)
    assert np.exp(model.score_samples(STATES)).sum() == pytest.approx(1.0, abs=1e-10)
    assert model.history_["objective"][-1] == pytest.approx(-model.score(MANY), abs=1e-9)
    assert "log φ(0, 1)[0, 1]" in str(model.summary(MANY))
    # free numbers: of each column, and of each edge
    assert model.summary(MANY).n_parameters == 8
    # with chords, without a search
    whole = fe.MarkovNetwork(HillClimbing(), alpha=0.0).fit(MANY)
    assert whole.n_iter_ == 1
    directed = fe.BayesianNetwork(whole_graph(whole), alpha=0.0).fit(MANY)
    np.testing.assert_allclose(whole.score_samples(STATES), directed.score_samples(STATES), atol=1e-9)
    tree = fe.MarkovNetwork(alpha=0.0).fit(MANY)
    twin = fe.BayesianNetwork(ChowLiu(), alpha=0.0).fit(MANY)
    np.testing.assert_allclose(tree.score_samples(STATES), twin.score_samples(STATES), atol=1e-9)


def whole_graph(model):
    """Arrows with the independences of a graph with chords: against an order of elimination."""
    order = model.graph_.triangulate().order[::-1]
    return [tuple(sorted(edge, key=order.index)) for edge in model.edges_]


def test_a_markov_network_with_missing_labels_has_the_largest_likelihood_near():
    model = fe.MarkovNetwork([(0, 1), (0, 2), (1, 3), (2, 3)], alpha=1.0).fit(HOLES)
    logs = [np.asarray(t) for t in model.model_.logs]

    def objective(logs):
        other = fe.models.MarkovNetwork([jnp.asarray(t) for t in logs], model.model_.scopes, [2] * 4)
        even = other.rows().evidence(STATES).mean()
        return (other.rows().evidence(HOLES).sum() + even) / (len(HOLES) + 1)

    best = objective(logs)
    assert best == pytest.approx(-model.history_["objective"][-1], abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert objective([t + 0.02 * rng.normal(size=t.shape) for t in logs]) < best + 1e-12


def test_pseudo_likelihood_comes_to_the_same_network_from_many_rows():
    rng = np.random.default_rng(4)
    pairs = [(0, 1), (1, 3), (2, 3), (0, 2)]
    truth = fe.models.MarkovNetwork([jnp.asarray(rng.normal(size=(2, 2))) for _ in pairs], pairs, [2] * 4)
    drawn = truth.rows().draw(np.full((3000, 4), np.nan), rng)
    start = fe.models.MarkovNetwork([jnp.zeros((2, 2))] * 4, pairs, [2] * 4)
    by = {}
    for objective in (negative_log_likelihood, negative_log_pseudo_likelihood):
        found = fit(start, LBFGS(objective, 1e-8), drawn, key=fe._core.key_of(0), max_iter=200)
        by[objective.__name__] = found.model.rows().evidence(STATES)
    exact = fe.MarkovNetwork(pairs, alpha=0.0).fit(drawn)
    np.testing.assert_allclose(by["negative_log_likelihood"], exact.score_samples(STATES), atol=1e-3)
    p = np.exp(truth.rows().evidence(STATES))
    # 2 n KL is χ² with eight degrees of freedom; pseudo-likelihood is a little less sure
    assert 2 * len(drawn) * (p @ (np.log(p) - by["negative_log_likelihood"])) < 26
    assert 2 * len(drawn) * (p @ (np.log(p) - by["negative_log_pseudo_likelihood"])) < 2 * 26


def test_frames_of_labels_and_comparison():
    names = {
        "cloudy": ["clear", "cloudy"],
        "sprinkler": ["off", "on"],
        "rain": ["dry", "rain"],
        "wet": ["no", "yes"],
    }
    frame = pl.DataFrame(
        {
            name: np.array(labels)[MANY[:300, i].astype(int)]
            for i, (name, labels) in enumerate(names.items())
        }
    )
    model = fe.BayesianNetwork(
        [("cloudy", "sprinkler"), ("cloudy", "rain"), ("sprinkler", "wet"), ("rain", "wet")]
    )
    model.fit(frame)
    after = model.posterior({"wet": "yes"})
    assert after.marginal("rain")["rain"] > model.posterior().marginal("rain")["rain"]
    drawn = model.sample(50, random_state=0)
    assert all(set(drawn[name]) <= set(labels) for name, labels in names.items())
    plain = fe.BayesianNetwork(EDGES).fit(MANY[:300])
    # labels are numbered in their order
    codes = frame.select(
        [pl.col(n).replace_strict(sorted(v), [0.0, 1.0]) for n, v in names.items()]
    ).to_numpy()
    np.testing.assert_allclose(model.score_samples(frame), plain.score_samples(codes), rtol=1e-12)
    board = fe.compare([fe.BayesianNetwork(), fe.Mixture(1, family="by column")], frame, random_state=0)
    assert type(board.best_estimator).__name__ == "BayesianNetwork"
    again = fe.BayesianNetwork.from_model(TRUTH)
    assert again.posterior({"wet": 1}).marginal("rain")["1"] == pytest.approx(
        TRUTH.posterior({"wet": 1}).marginal("rain")["1"]
    )
    np.testing.assert_allclose(again.score_samples(X), TRUTH.rows().evidence(X), rtol=1e-12)


def test_what_networks_refuse():
    with pytest.raises(
        ValueError, match=r"needs labels, or numbers 0, 1, 2, … .* Got 0.5 in row 1, column '0'"
    ):
        fe.BayesianNetwork().fit([[0.0, 1.0], [0.5, 1.0]])
    with pytest.raises(ValueError, match=r"must have no cycle. Got '0' → '1' → '0'"):
        fe.BayesianNetwork([(0, 1), (1, 0)]).fit(X)
    with pytest.raises(
        ValueError, match=r"'structure' of BayesianNetwork must name columns of X.* Got 'z'"
    ):
        fe.BayesianNetwork([("z", 0)]).fit(X)
    with pytest.raises(
        ValueError, match=r"'structure' parameter of MarkovNetwork must be pairs of columns"
    ):
        fe.MarkovNetwork("tree").fit(X)
    with pytest.raises(
        ValueError, match=r"'alpha' parameter of BayesianNetwork must be a float in the range"
    ):
        fe.BayesianNetwork(alpha=-1.0).fit(X)
    wide = np.tile(X, (1, 8))
    with pytest.raises(ValueError, match=r"table of .* joint states of 32 variables \(tree width 31\)"):
        fe.MarkovNetwork(list(itertools.combinations(range(32), 2))).fit(wide)
    # a label that was not fitted has no probability
    assert fe.BayesianNetwork(EDGES).fit(X).score_samples([[0.0, 0.0, 0.0, 2.0]])[0] == -np.inf
