"""Graphs of variables, factors and junction trees, against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from freeenergy.inference import (
    CliqueBeliefs,
    DirectedGraph,
    Factor,
    JunctionTree,
    LoopyBeliefs,
    Triangulation,
    UndirectedGraph,
    eliminate,
    loopy_belief_propagation,
)
from freeenergy.inference._junction import draw_by_key, draw_on_host


def random_network(n, rng, *, most_parents=3, sizes=(2, 3)):
    """A graph in a random order, and a table for each node, its own states last."""
    size = {v: int(rng.choice(sizes)) for v in range(n)}
    order = rng.permutation(n)
    edges = []
    for place, v in enumerate(order):
        count = min(place, int(rng.integers(most_parents + 1)))
        edges += [(int(p), int(v)) for p in rng.choice(order[:place], count, replace=False)]
    graph = DirectedGraph(range(n), edges)
    factors = []
    for v in graph.nodes:
        scope = (*graph.parents(v), v)
        table = rng.dirichlet(np.ones(size[v]), tuple(size[p] for p in scope[:-1]))
        factors.append(Factor(scope, np.log(table)))
    return graph, size, factors


def enumerated(size, factors):
    """The whole table of a product, an axis each variable: what everything is compared with."""
    scope = tuple(size)
    whole = sum(f.over(scope) for f in factors)
    return np.exp(np.broadcast_to(whole, tuple(size.values())))


def other_axes(joint, keep):
    return tuple(i for i in range(joint.ndim) if i not in keep)


def dependent(joint, a, b, given):
    """Whether two variables depend on each other for some state of others."""
    keep = (a, b, *given)
    table = joint.sum(axis=other_axes(joint, keep), keepdims=True)
    table = np.moveaxis(table, keep, range(len(keep))).reshape(joint.shape[a], joint.shape[b], -1)
    both = table * table.sum(axis=(0, 1))
    return np.abs(both - table.sum(axis=1)[:, None] * table.sum(axis=0)[None]).max() > 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_separation_is_independence_for_almost_all_tables(seed):
    rng = np.random.default_rng(seed)
    graph, size, factors = random_network(5, rng, most_parents=2, sizes=(2,))
    joint = enumerated(size, factors)
    asked = 0
    for a, b in itertools.combinations(range(5), 2):
        rest = [v for v in range(5) if v not in (a, b)]
        for count in range(4):
            for given in itertools.combinations(rest, count):
                assert graph.separated(a, b, given) == (not dependent(joint, a, b, given))
                assert graph.separated(a, b, given) == graph.separated(b, a, given)
                # in the moral graph of the ancestors alone it is plain separation (Lauritzen 1990)
                near = {a, b, *given} | graph.ancestors([a, b, *given])
                small = DirectedGraph(sorted(near), [e for e in graph.edges if set(e) <= near])
                assert small.moralise().separated(a, b, given) == graph.separated(a, b, given)
                asked += 1
    assert asked == 80


def test_the_three_canonical_graphs_and_a_descendant():
    chain = DirectedGraph("xyz", [("x", "y"), ("y", "z")])
    fork = DirectedGraph("xyz", [("y", "x"), ("y", "z")])
    collider = DirectedGraph("xyzd", [("x", "y"), ("z", "y"), ("y", "d")])
    for graph in (chain, fork):
        assert not graph.separated("x", "z")
        assert graph.separated("x", "z", given="y")
    assert collider.separated("x", "z")
    assert not collider.separated("x", "z", given="y")
    # a descendant that is observed opens it too
    assert not collider.separated("x", "z", given="d")
    # an exclusive or: each pair is independent, and the collider is not given the third
    parity = np.full((2, 2, 2), 0.0)
    for a, b in itertools.product(range(2), repeat=2):
        parity[a, b, a ^ b] = 0.25
    assert not dependent(parity, 0, 1, ())
    assert dependent(parity, 0, 1, (2,))
    hmm = DirectedGraph(
        [f"{v}{t}" for t in range(4) for v in "zx"],
        [(f"z{t}", f"z{t + 1}") for t in range(3)] + [(f"z{t}", f"x{t}") for t in range(4)],
    )
    assert hmm.separated("x2", ["x0", "x1", "z1"], given="z2")
    assert not hmm.separated("x2", "x0", given="x1")
    assert hmm.markov_blanket("z1") == ("z0", "x1", "z2")
    assert hmm.ancestors("x1") == {"z0", "z1"}
    assert hmm.descendants("z2") == {"x2", "z3", "x3"}
    assert hmm.children("z0") == ("z1", "x0")
    assert [sorted(layer) for layer in hmm.layers()] == [
        ["z0"],
        ["x0", "z1"],
        ["x1", "z2"],
        ["x2", "z3"],
        ["x3"],
    ]


def test_graphs_that_are_none():
    with pytest.raises(ValueError, match=r"must have no cycle. Got 'b' → 'c' → 'd' → 'b'\."):
        DirectedGraph("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])
    with pytest.raises(ValueError, match=r"must have no cycle. Got 'a' → 'a'\."):
        DirectedGraph("a", [("a", "a")])
    with pytest.raises(ValueError, match=r"must be one of 'a', 'b'. Got 'c' instead"):
        DirectedGraph("ab", [("a", "c")])
    with pytest.raises(ValueError, match=r"must be distinct. Got 'a' twice"):
        UndirectedGraph("aba")
    with pytest.raises(ValueError, match=r"must join two nodes. Got 'a' with itself"):
        UndirectedGraph("ab", [("a", "a")])
    with pytest.raises(ValueError, match="Got 'z' instead"):
        UndirectedGraph("ab").separated("a", "b", given="z")


def test_cliques_are_all_maximal_sets_of_neighbours():
    rng = np.random.default_rng(0)
    for _ in range(10):
        pairs = [pair for pair in itertools.combinations(range(7), 2) if rng.random() < 0.5]
        graph = UndirectedGraph(range(7), pairs)
        full = [
            set(s)
            for k in range(1, 8)
            for s in itertools.combinations(range(7), k)
            if all(pair in graph.edges for pair in itertools.combinations(s, 2))
        ]
        maximal = {frozenset(s) for s in full if not any(s < other for other in full)}
        assert {frozenset(c) for c in graph.cliques()} == maximal
        assert len(graph.cliques()) == len(maximal)


def test_triangulation_has_chords_and_running_intersection():
    rng = np.random.default_rng(1)
    for _ in range(10):
        pairs = [pair for pair in itertools.combinations(range(9), 2) if rng.random() < 0.3]
        graph = UndirectedGraph(range(9), pairs)
        found = graph.triangulate()
        assert isinstance(found, Triangulation)
        whole = UndirectedGraph(range(9), [*graph.edges, *found.added])
        assert whole.is_chordal()
        assert {frozenset(c) for c in found.cliques} == {frozenset(c) for c in whole.cliques()}
        # the cliques of a variable are connected in the tree
        tree = UndirectedGraph(range(len(found.cliques)), found.join())
        for v in range(9):
            own = [i for i, clique in enumerate(found.cliques) if v in clique]
            rest = [i for i in range(len(found.cliques)) if i not in own]
            assert tree.reached(own[0], given=rest) == set(own)
    square = UndirectedGraph("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    assert not square.is_chordal()
    assert square.triangulate().width == 2
    # a diagonal between the variables with few states is the cheaper one
    assert square.triangulate({"a": 9, "b": 2, "c": 9, "d": 2}).added == (("b", "d"),)
    grid = [(i, j) for i in range(4) for j in range(4)]
    lines = [(p, q) for p, q in itertools.combinations(grid, 2) if abs(p[0] - q[0]) + abs(p[1] - q[1]) == 1]
    assert UndirectedGraph(grid, lines).triangulate().width == 4


@pytest.mark.parametrize("seed", range(6))
def test_a_junction_tree_answers_as_enumeration_does(seed):
    rng = np.random.default_rng(seed)
    graph, size, factors = random_network(7, rng)
    tree = JunctionTree.of(size, [f.scope for f in factors])
    assert tree.variables == graph.nodes
    # what is observed of two variables: a state, and a likelihood
    seen = {
        2: np.log(np.eye(size[2])[1] + 0.0, where=np.eye(size[2])[1] > 0, out=np.full(size[2], -np.inf))
    }
    seen[5] = np.log(rng.random(size[5]))
    given = [*factors, *(Factor((v,), logs) for v, logs in seen.items())]
    joint = enumerated(size, given)
    found = tree.calibrate(given)
    assert isinstance(found, CliqueBeliefs)
    assert np.exp(found.log_evidence) == pytest.approx(joint.sum(), rel=1e-12)
    assert np.exp(tree.log_partition(given)) == pytest.approx(joint.sum(), rel=1e-12)
    joint = joint / joint.sum()
    for v, probabilities in found.marginals().items():
        np.testing.assert_allclose(probabilities, joint.sum(axis=other_axes(joint, (v,))), atol=1e-12)
    for pair in itertools.combinations(range(7), 2):
        np.testing.assert_allclose(found.joint(pair), joint.sum(axis=other_axes(joint, pair)), atol=1e-12)
    np.testing.assert_allclose(found.joint((4, 1)), found.joint((1, 4)).T, atol=1e-12)
    np.testing.assert_allclose(enumerated(size, found.conditionals()), joint, atol=1e-12)
    kept = eliminate(given, (6, 3))
    np.testing.assert_allclose(
        kept.probabilities(), joint.sum(axis=other_axes(joint, (3, 6))).T, atol=1e-12
    )
    assert np.exp(eliminate(given).logs) == pytest.approx(np.exp(found.log_evidence), rel=1e-12)
    best, value = tree.maximise(given)
    assert tuple(best[v] for v in range(7)) == np.unravel_index(np.argmax(joint), joint.shape)
    assert np.exp(value - found.log_evidence) == pytest.approx(joint.max(), rel=1e-12)
    # a second calibration of what is calibrated changes nothing
    again = JunctionTree.of(size, tree.cliques).calibrate(found.conditionals())
    assert float(again.log_evidence) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(again.marginal(0), found.marginal(0), atol=1e-12)


def test_rows_are_answered_together_and_draws_are_exact():
    rng = np.random.default_rng(7)
    _, size, factors = random_network(6, rng)
    tree = JunctionTree.of(size, [f.scope for f in factors])
    logs = np.zeros((3, size[0]))
    logs[1, 1:], logs[2, :-1] = -np.inf, -np.inf
    found = tree.calibrate([*factors, Factor((0,), logs)])
    for row in range(3):
        alone = tree.calibrate([*factors, Factor((0,), logs[row])])
        assert found.log_evidence[row] == pytest.approx(float(alone.log_evidence), rel=1e-12)
        for v in size:
            np.testing.assert_allclose(found.marginal(v)[row], alone.marginal(v), atol=1e-12)
    states, best = tree.maximise([*factors, Factor((0,), logs)])
    for row in range(3):
        alone, value = tree.maximise([*factors, Factor((0,), logs[row])])
        assert [states[v][row] for v in size] == [alone[v] for v in size]
        assert best[row] == pytest.approx(float(value))
    n = 20_000
    joint = enumerated(size, factors)
    for given, rows in ((factors, (n,)), ([*factors, Factor((0,), np.zeros((n, size[0])))], (n,))):
        drawn = tree.sample(given, rows, draw_on_host(np.random.default_rng(0)))
        for pair in ((0, 3), (2, 5)):
            expected = joint.sum(axis=other_axes(joint, pair))
            counts = np.zeros(expected.shape)
            np.add.at(counts, (drawn[pair[0]], drawn[pair[1]]), 1)
            error = np.sqrt(expected * (1 - expected) / n)
            assert (np.abs(counts / n - expected) < 5 * error).all()


def test_in_a_program_the_slope_of_log_z_is_the_marginal():
    rng = np.random.default_rng(8)
    _, size, factors = random_network(4, rng)
    scopes = [f.scope for f in factors]
    tree = JunctionTree.of(size, scopes)
    # one entry cannot occur: its slope is zero and that of the others is right
    tables = [jnp.asarray(f.logs) for f in factors]
    tables[0] = tables[0].at[(0,) * tables[0].ndim].set(-jnp.inf)

    @jax.jit
    def answer(tables, key):
        made = [Factor(scope, logs) for scope, logs in zip(scopes, tables, strict=True)]
        draws = tree.sample(made, (), draw_by_key(key, len(tree.cliques)))
        return tree.log_partition(made), jnp.stack([draws[v] for v in size])

    (value, draws), slopes = jax.value_and_grad(answer, has_aux=True)(tables, jax.random.key(0))
    host = tree.calibrate([Factor(s, np.asarray(t)) for s, t in zip(scopes, tables, strict=True)])
    assert float(value) == pytest.approx(float(host.log_evidence), rel=1e-12)
    for scope, slope in zip(scopes, slopes, strict=True):
        np.testing.assert_allclose(slope, host.joint(scope), atol=1e-12)
    assert all(0 <= int(x) < size[v] for v, x in zip(size, draws, strict=True))


def test_evidence_that_cannot_occur_leaves_no_belief():
    factors = [Factor("a", np.log([0.5, 0.5])), Factor("ab", np.array([[0.0, -np.inf], [0.0, -np.inf]]))]
    tree = JunctionTree.of({"a": 2, "b": 2}, ["a", "ab"])
    found = tree.calibrate([*factors, Factor("b", np.array([-np.inf, 0.0]))])
    assert found.log_evidence == -np.inf
    np.testing.assert_array_equal(found.marginal("a"), [0.0, 0.0])


def test_parts_that_share_nothing_are_independent():
    factors = [Factor("a", np.log([0.2, 0.8])), Factor("bc", np.log([[0.1, 0.2], [0.3, 0.4]]))]
    tree = JunctionTree.of({"a": 2, "b": 2, "c": 2}, ["a", "bc"])
    assert tree.above == (-1, -1)
    found = tree.calibrate(factors)
    assert float(found.log_evidence) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(found.joint(("a", "c")), np.outer([0.2, 0.8], [0.4, 0.6]), atol=1e-12)


def test_a_hopeless_tree_width_is_refused_with_its_size():
    pairs = list(itertools.combinations(range(40), 2))
    with pytest.raises(
        ValueError, match=r"table of 1.10e\+12 joint states of 40 variables \(tree width 39\).*sampl"
    ):
        JunctionTree.of(dict.fromkeys(range(40), 2), pairs)
    # a hundred words of a vocabulary of a hundred thousand
    with pytest.raises(ValueError, match=r"table of 1.00e\+500 joint states of 100 variables"):
        JunctionTree.of(dict.fromkeys(range(100), 10**5), [range(100)])
    everyone = [Factor((0, i), np.zeros((2, 2))) for i in range(1, 40)]
    with pytest.raises(ValueError, match="Use sampling"):
        eliminate(everyone, order=[0])


def test_factors():
    a = Factor.of_potential("ab", [[1.0, 2.0], [0.0, 4.0]])
    assert a.sizes() == {"a": 2, "b": 2}
    np.testing.assert_array_equal(np.exp(a.max_out("a").logs), [1.0, 4.0])
    np.testing.assert_array_equal(np.exp(a.at({"b": 1}).logs), [2.0, 4.0])
    np.testing.assert_allclose(
        np.exp((a * Factor.of_potential("ca", [[1, 2]])).sum_out(["b", "c"]).logs), [3.0, 8.0]
    )
    # a factor c times as large has a sum c times as large, and the same probabilities
    larger = Factor.of_potential("ab", [[3.0, 6.0], [0.0, 12.0]])
    assert float(larger.normalise()[1] - a.normalise()[1]) == pytest.approx(np.log(3))
    np.testing.assert_allclose(larger.probabilities(), a.probabilities(), rtol=1e-12)
    with pytest.raises(ValueError, match=r"must be non-negative. Got -1 instead"):
        Factor.of_potential("a", [1.0, -1.0])
    with pytest.raises(ValueError, match=r"an axis for each of its 2 variables. Got the shape \(2,\)"):
        Factor.of_potential("ab", [1.0, 1.0])
    with pytest.raises(ValueError, match=r"as many states. Got 2 and 3 for 'a'"):
        eliminate([Factor("a", np.zeros(2)), Factor("a", np.zeros(3))])
    with pytest.raises(ValueError, match=r"must be in a factor. Got 'z'"):
        eliminate([a], "z")


def test_loopy_belief_propagation_is_exact_on_trees_and_near_on_a_weak_cycle():
    rng = np.random.default_rng(3)
    _, size, factors = random_network(8, rng, most_parents=1)
    tree = JunctionTree.of(size, [f.scope for f in factors])
    given = [*factors, Factor((3,), np.log(rng.random(size[3])))]
    exact = tree.calibrate(given)
    found = loopy_belief_propagation(given)
    assert isinstance(found, LoopyBeliefs)
    assert found.converged
    assert found.log_evidence == pytest.approx(float(exact.log_evidence), abs=1e-9)
    for v in size:
        np.testing.assert_allclose(found.marginals[v], exact.marginal(v), atol=1e-9)
    square = [
        Factor(pair, np.array([[s, 0.0], [0.0, s]]))
        for pair, s in zip(("ab", "bc", "cd", "da"), (0.3,) * 4)
    ]
    square.append(Factor("a", np.array([0.0, 0.5])))
    exact = JunctionTree.of(dict.fromkeys("abcd", 2), [f.scope for f in square]).calibrate(square)
    found = loopy_belief_propagation(square, damping=0.3)
    assert found.converged
    np.testing.assert_allclose(found.marginals["c"], exact.marginal("c"), atol=2e-3)
    assert found.log_evidence == pytest.approx(float(exact.log_evidence), abs=2e-3)
    assert found.log_evidence != pytest.approx(float(exact.log_evidence), abs=1e-9)
    # frustrated and strong, it does not settle, and says so
    wild = [
        Factor(pair, np.array([[4.0, 0.0], [0.0, 4.0]]) * (1 if i else -1))
        for i, pair in enumerate(("ab", "bc", "ca"))
    ]
    wild.append(Factor("a", np.array([0.0, 0.3])))
    wild = loopy_belief_propagation(wild, max_iter=30)
    assert not wild.converged
    assert len(wild.change) == 30
    with pytest.raises(
        ValueError, match=r"'damping' of loopy_belief_propagation must be a float in the range"
    ):
        loopy_belief_propagation(square, damping=1.0)
