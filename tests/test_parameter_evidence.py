"""Evidence with the parameters integrated out: closed forms, samplers beside them, and comparisons."""

import functools
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from data import ROWS
from scipy import stats
from scipy.special import betaln, gammaln
from sklearn.mixture import GaussianMixture

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.inference import (
    NUTS,
    Anneal,
    Bridge,
    DirectedGraph,
    Nature,
    RandomWalk,
    SequentialMonteCarlo,
    random_walk,
)
from freeenergy.learning import BDeu, graph_score
from freeenergy.models import BayesianNetwork, EvenTables, TablePriors

RNG = np.random.default_rng(0)
FLIPS = np.stack([RNG.random(60) < 0.3, RNG.random(60) < 0.6], axis=1).astype(float)
LABELS = np.stack([FLIPS[:, 0], np.where(RNG.random(60) < 0.2, 2, FLIPS[:, 1]), FLIPS[:, 1]], axis=1)
GRAPH = [("0", "1"), ("1", "2"), ("0", "2")]
WISHART = d.NormalInverseWishart(np.zeros(2), np.array(0.5), 2.0 * np.eye(2), np.array(5.0))


def by_student(rows):
    """log p of rows one after another under `WISHART`, each by Student's t given those before."""
    mean, strength, scatter, degrees, nats = np.zeros(2), 0.5, 2.0 * np.eye(2), 5.0, 0.0
    for row in rows:
        df = degrees - 1
        nats += stats.multivariate_t(mean, scatter * (1 + 1 / strength) / df, df).logpdf(row)
        scatter = scatter + np.outer(row - mean, row - mean) * strength / (strength + 1)
        mean, strength, degrees = (strength * mean + row) / (strength + 1), strength + 1, degrees + 1
    return nats


def test_tables_have_a_dirichlet_law_given_complete_rows():
    model = fe.BayesianNetwork(GRAPH, alpha=3.0).fit(LABELS)
    found = fe.infer(model, LABELS, prior=EvenTables(3.0), key=0)
    assert found.nature is Nature.EXACT
    assert found.log_evidence.kind is fe.Kind.EXACT
    # the closed form, table by table
    nats, sizes = 0.0, [2, 3, 2]
    for v, above in ((0, []), (1, [0]), (2, [0, 1])):
        states = list(itertools.product(*(range(sizes[p]) for p in above)))
        cell = 3.0 / (len(states) * sizes[v])
        for state in states:
            own = LABELS[(LABELS[:, above] == state).all(axis=1), v]
            counts = np.array([(own == k).sum() for k in range(sizes[v])])
            nats += gammaln(cell * sizes[v]) - gammaln(cell * sizes[v] + len(own))
            nats += (gammaln(cell + counts) - gammaln(cell)).sum()
    assert float(found.log_evidence.nats) == pytest.approx(nats, rel=1e-10)
    graph = DirectedGraph(range(3), [(0, 1), (1, 2), (0, 2)])
    assert nats == pytest.approx(graph_score(graph, LABELS, sizes, BDeu(3.0)), rel=1e-10)
    # the evidence of one more row is the probability that the mean tables give it
    law = found.q
    assert isinstance(law, TablePriors)
    new = np.array([[1.0, 2.0, 0.0]])
    more = TablePriors.even(model.model_, 3.0).log_evidence(np.concatenate([LABELS, new]))
    assert law.predictive().rows().evidence(new)[0] == pytest.approx(more - nats, rel=1e-8)
    # which are those of the fit with as many imagined rows
    np.testing.assert_allclose(law.predictive().nodes[2].probabilities, model.model_.nodes[2].probabilities)
    # draws are Dirichlet: mean and variance of a cell
    drawn = np.asarray(found.draws.nodes[1].probabilities)[:, 1, 2]
    a = np.asarray(law.parts[1].concentration)[1]
    p = a[2] / a.sum()
    variance = p * (1 - p) / (a.sum() + 1)
    assert abs(drawn.mean() - p) < 4 * math.sqrt(variance / len(drawn))
    assert drawn.var() == pytest.approx(variance, rel=0.15)
    assert float(found.mean().nodes[1].probabilities[1, 2]) == pytest.approx(drawn.mean())
    weighted = TablePriors.even(model.model_, 3.0).given(LABELS[:2], [2.0, 0.0])
    np.testing.assert_allclose(
        weighted.parts[0].concentration, 1.5 + 2.0 * (LABELS[0, 0] == np.arange(2))[None]
    )


def test_conjugate_priors_give_the_posterior_in_closed_form():
    model = fe.GaussianDensity().fit(ROWS)
    found = fe.infer(model, ROWS, prior=WISHART, key=0)
    assert float(found.log_evidence.nats) == pytest.approx(by_student(ROWS), rel=1e-9)
    assert "closed form" in found.note
    np.testing.assert_allclose(found.q.mean, ROWS.sum(axis=0) / (len(ROWS) + 0.5), rtol=1e-9)
    coins = d.BetaPrior(d.Bernoulli(np.full(2, 0.5)), np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    n, heads = len(FLIPS), FLIPS.sum(axis=0)
    expected = betaln(coins.alpha + heads, coins.beta + n - heads) - betaln(coins.alpha, coins.beta)
    for what in (d.Bernoulli(jnp.full(2, 0.3)), fe.Mixture(1, d.Bernoulli).fit(FLIPS)):
        found = fe.infer(what, FLIPS, prior=coins, key=0)
        assert float(found.log_evidence.nats) == pytest.approx(expected.sum(), rel=1e-10)


@pytest.fixture(scope="module")
def board():
    models = {
        "normal": fe.GaussianDensity(),
        "diagonal": fe.GaussianDensity(d.Diagonal()),
        "kernel": fe.KernelDensity(),
        "two": fe.GaussianMixture(2),
        "other": GaussianMixture(1),
        "odd": fe.GaussianDensity(),
    }
    wide = {"family.mean": d.Gaussian(jnp.zeros(2), d.Diagonal(jnp.full(2, 25.0)))}
    priors = {"normal": WISHART, "diagonal": wide, "kernel": WISHART, "other": WISHART, "odd": {"x": wide}}
    return fe.compare(models, ROWS, cv=2, random_state=0, prior=priors)


def test_evidence_stands_beside_held_out_bits(board):
    lines = {line.model: line for line in board.table()}
    assert lines["normal"].log_evidence == pytest.approx(by_student(ROWS), rel=1e-9)
    assert lines["normal"].log_evidence_kind == "exact"
    assert lines["normal"].prior == "NormalInverseWishart"
    for name in ("diagonal", "kernel", "two", "other", "odd"):
        assert lines[name].log_evidence is None
    text = str(board)
    assert "log evidence" in text
    assert f"{lines['normal'].log_evidence:.3f}" in text
    assert "no held-out number, depends on the prior" in text
    assert "normal is under the prior NormalInverseWishart, by closed form." in text
    assert "diagonal has no log evidence: its 'family.covariance.variance' has no prior, and a flat" in text
    assert "odd has no log evidence: The 'prior' must name fields of Density: family.mean" in text
    assert "kernel has no log evidence: A NormalInverseWishart is the prior of a Gaussian" in text
    assert "other has no log evidence: nothing is known of its parameters." in text
    assert "under the prior of its parameters" in board._repr_html_()
    assert board.to_json()["table"][0]["log_evidence_kind"] in ("exact", None)
    assert board.evidences["normal"].stderr == 0.0
    plain = fe.compare({"one": fe.GaussianDensity()}, ROWS, cv=2, random_state=0)
    assert plain.evidences is None
    assert "log evidence" not in str(plain)
    assert "log evidence" not in plain._repr_html_()


@pytest.mark.slow
def test_samplers_agree_with_the_closed_form_of_coins():
    half = {"components.probability": d.Beta(jnp.full(2, 0.5), jnp.full(2, 0.5))}
    sampler = SequentialMonteCarlo(particles=512)
    coins = {"coins": fe.Mixture(1, d.Bernoulli)}
    found = fe.compare(coins, FLIPS, cv=2, random_state=0, prior=half, evidence=sampler)
    line = found.table()[0]
    n, heads = len(FLIPS), FLIPS.sum(axis=0)
    exact = (betaln(0.5 + heads, 0.5 + n - heads) - betaln(0.5, 0.5)).sum()
    assert line.log_evidence_kind == "estimate"
    assert 0 < line.log_evidence_stderr < 0.3
    assert abs(line.log_evidence - exact) < 4 * line.log_evidence_stderr
    assert "≈ " in str(found)
    assert "≈ " in found._repr_html_()
    assert "the prior components.probability ~ Beta, by SequentialMonteCarlo." in str(found)
    # annealing comes to it from below
    walk = Anneal(functools.partial(random_walk, scale=0.5), chains=256, steps=100)
    below = fe.compare(coins, FLIPS, cv=2, random_state=0, prior=half, evidence=walk)
    bound = below.table()[0]
    assert bound.log_evidence_kind == "lower bound"
    assert 0 < bound.log_evidence_stderr < 0.3
    assert abs(bound.log_evidence - exact) < 4 * bound.log_evidence_stderr
    assert "≥ " in str(below)
    assert "the prior components.probability ~ Beta, by Anneal." in str(below)
    # columns of labels without an arrow are the same coins, and the bridge another way to the number
    tables = fe.BayesianNetwork([]).fit(FLIPS)
    other = fe.infer(tables, FLIPS, prior=EvenTables(1.0), method=Bridge(RandomWalk()), key=1).log_evidence
    error = float(other.stderr)
    assert abs(float(other.nats) - exact) < 4 * error + 0.01
    gap = math.hypot(error, line.log_evidence_stderr)
    assert abs(float(other.nats) - line.log_evidence) < 4 * gap


@pytest.mark.slow
def test_samplers_agree_with_the_closed_form_of_a_normal_law():
    model = fe.GaussianDensity().fit(ROWS)
    for method in (SequentialMonteCarlo(), Bridge(NUTS())):
        found = fe.infer(model, ROWS, prior=WISHART, method=method, key=0).log_evidence
        assert abs(float(found.nats) - by_student(ROWS)) < 4 * float(found.stderr) + 0.02


def test_what_evidence_refuses():
    one = {"one": fe.GaussianDensity()}
    with pytest.raises(ValueError, match=r"'evidence' parameter of compare needs a 'prior' of parameters"):
        fe.compare(one, ROWS, evidence=SequentialMonteCarlo())
    with pytest.raises(ValueError, match=r"'evidence' parameter of compare must be a method of inference"):
        fe.compare(one, ROWS, evidence="smc", prior=WISHART)
    with pytest.raises(ValueError, match=r"'prior' parameter of compare must have labels of models: one"):
        fe.compare(one, ROWS, prior={"one": WISHART, "two": WISHART})
    with pytest.raises(ValueError, match=r"'prior' parameter of compare must be a prior as infer takes it"):
        fe.compare(one, ROWS, prior=3)
    network = BayesianNetwork.of_tables({"coin": [0.5, 0.5]}, {})
    with pytest.raises(ValueError, match=r"'alpha' of TablePriors must be a float in the range \(0, inf\)"):
        TablePriors.even(network, 0.0)
    prior = TablePriors.even(network)
    with pytest.raises(ValueError, match=r"Dirichlet law given complete rows. Got rows with missing"):
        prior.given([[np.nan]])
    with pytest.raises(ValueError, match=r"Labels of 'coin' must be 0, 1, … 1. Got 2 in row 0"):
        prior.given([[2.0]])
    with pytest.raises(TypeError, match=r"EvenTables is a prior of a BayesianNetwork. Got a Density"):
        fe.infer(fe.GaussianDensity().fit(ROWS), ROWS, prior=EvenTables(), key=0)
    with pytest.raises(TypeError, match=r"NormalInverseWishart is the prior of a Gaussian of its shape"):
        fe.infer(network, [[0.0]], prior=WISHART, key=0)
    holes = ROWS.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"law given complete rows. Got rows with missing entries: pass a"):
        fe.infer(fe.GaussianDensity().fit(ROWS), holes, prior=WISHART, key=0)
    numbers = fe.BayesianNetwork([], numbers=True).fit(ROWS)
    with pytest.raises(ValueError, match=r"TablePriors are of networks of labels. Got .*, a GaussianNode"):
        fe.infer(numbers, ROWS, prior=EvenTables(), key=0)
