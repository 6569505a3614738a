"""Topics: bounds, samplers and learning beside enumeration and scikit-learn."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from scipy.special import digamma, gammaln
from sklearn.decomposition import LatentDirichletAllocation as Peer

import freeenergy as fe
from freeenergy._core import Data
from freeenergy.estimators.text._documents import LengthLaw
from freeenergy.learning import EM, CollapsedGibbs, Stepwise
from freeenergy.models import LatentDirichletAllocation
from freeenergy.shell._documents import ragged

# the toy corpus with known answers: documents [0, 0, 1] and [1, 1], two topics, α = η = ½
TOY = np.array([[2.0, 1.0], [0.0, 2.0]])
WORDS = np.array([0, 0, 1, 1, 1], np.int32)
DOCUMENTS = np.array([0, 0, 0, 1, 1], np.int32)
TOY_EVIDENCE = -3.9171631465


def log_beta(a):
    return gammaln(a).sum() - gammaln(a.sum())


def planted(n=60, words=12, seed=0):
    """Documents from three topics with words of their own."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(3), np.full(words // 3, 3 / words)) + 1e-4
    topics /= topics.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(3, 0.2), n)
    X = np.stack([rng.multinomial(40, share @ topics) for share in shares])
    return sparse.csr_matrix(X), topics, shares


def exact_document(words, topics, alpha):
    """log p(words) with θ integrated out, by a sum over all assignments."""
    terms = []
    for z in itertools.product(range(len(alpha)), repeat=len(words)):
        counts = np.bincount(z, minlength=len(alpha))
        term = log_beta(alpha + counts) - log_beta(alpha)
        terms.append(term + sum(np.log(topics[k, w]) for k, w in zip(z, words, strict=True)))
    return np.logaddexp.reduce(terms)


def collapsed(z, words, documents, alpha, eta, topics, vocabulary):
    total = 0.0
    for d in set(documents.tolist()):
        total += log_beta(alpha + np.bincount(z[documents == d], minlength=topics))
        total -= log_beta(np.full(topics, alpha))
    for k in range(topics):
        total += log_beta(eta + np.bincount(words[z == k], minlength=vocabulary))
        total -= log_beta(np.full(vocabulary, eta))
    return total


def test_gibbs_draws_the_exact_posterior_of_a_toy_corpus():
    states = [np.array(z) for z in itertools.product((0, 1), repeat=5)]
    joint = np.array([collapsed(z, WORDS, DOCUMENTS, 0.5, 0.5, 2, 2) for z in states])
    np.testing.assert_allclose(np.logaddexp.reduce(joint), TOY_EVIDENCE, rtol=1e-10)
    model = LatentDirichletAllocation(jnp.full(2, 0.5), jnp.array(0.5), jnp.ones((2, 2)))
    data = Data(
        (jnp.asarray(WORDS), jnp.asarray(DOCUMENTS), jnp.zeros(2)),
        jnp.ones(5),
        jnp.array(5, jnp.int32),
        False,
    )
    sampler = CollapsedGibbs(burn_in=0)

    def sweep(state, key):
        state, info = sampler.step(state, data, key=key)
        return state, (state.topic, info.objective)

    @jax.jit
    def run(first, second):
        start = sampler.init(model, data, key=first)
        end, told = jax.lax.scan(sweep, start, jax.random.split(second, 6000))
        return end, told, sampler.model(end).counts.sum(axis=0)

    end, (draws, objectives), total = jax.tree.map(np.asarray, run(jax.random.key(0), jax.random.key(1)))
    # counts stay what they were
    assert float(end.in_topic.sum()) == 5
    assert np.asarray(end.in_document.sum(axis=1)).tolist() == [3, 2]
    np.testing.assert_allclose(
        objectives[7], -collapsed(draws[7], WORDS, DOCUMENTS, 0.5, 0.5, 2, 2) / 5, rtol=1e-10
    )
    for (i, j), expected in {(0, 1): 138 / 163, (0, 2): 95 / 163, (0, 4): 50 / 163}.items():
        agree = draws[:, i] == draws[:, j]
        # neighbouring sweeps are alike: batches give the error
        batches = agree.reshape(60, -1).mean(axis=1)
        assert abs(agree.mean() - expected) < 5 * batches.std() / np.sqrt(60)
    expected = np.mean(
        [[np.sum((z == k) & (v == WORDS)) for v in (0, 1)] for z in draws for k in (0, 1)], axis=0
    )
    np.testing.assert_allclose(total / 2, expected, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_training_bound_rises_and_is_below_the_evidence():
    lda = fe.LatentDirichletAllocation(2, alpha=0.5, eta=0.5, tol=0.0, max_iter=60, random_state=0)
    lda.fit(TOY)
    # the two documents can come in 3 and 1 orders
    rest = np.log(3) + lda.length_law_.log_prob(TOY.sum(axis=1)).sum()
    bound = -2 * lda.history_["objective"] - rest
    # the inner iteration ends a little early, which may cost as much as its tolerance
    assert (np.diff(bound) > -1e-3).all()
    assert TOY_EVIDENCE - 2.5 < bound[-1] < TOY_EVIDENCE


def test_held_out_bound_against_enumeration():
    X, *_ = planted()
    lda = fe.LatentDirichletAllocation(3, random_state=0).fit(X)
    new = np.zeros((1, 12))
    words = [0, 0, 1, 5, 5, 9]
    np.add.at(new[0], words, 1)
    exact = exact_document(words, lda.components_, np.full(3, 1 / 3))
    bound = -np.log(lda.perplexity(new)) * 6
    assert exact - 0.5 < bound < exact
    evidence = lda.evidence(new)
    assert evidence.kind is fe.Kind.LOWER
    ways = gammaln(7) - 2 * np.log(2)
    length = lda.length_law_.log_prob(np.arange(7))
    np.testing.assert_allclose(evidence.nats, bound + ways + length[6])
    np.testing.assert_allclose(lda.score(new), evidence.nats[0])
    # one word alone: the bound cannot be loose about its topic's share
    single = np.eye(12)[:1]
    exact = np.log(lda.components_[:, 0].mean())
    assert exact - 0.7 < lda.score_samples(single)[0] - length[1] <= exact
    np.testing.assert_allclose(lda.score_samples(np.zeros((1, 12))), length[:1], atol=1e-12)


def test_lengths_have_the_law_of_their_moments():
    rng = np.random.default_rng(0)
    for lengths, excess in ((rng.negative_binomial(4, 0.1, 4000), 0.25), (np.full(50, 7), 0.0)):
        law = LengthLaw.of(lengths, np.ones(len(lengths)))
        assert law.mean == pytest.approx(lengths.mean())
        # the standard error of a variance of negative binomials, in units of the squared mean
        assert abs(law.excess - excess) < 5 * 0.35 * 1.5 / np.sqrt(len(lengths))
        n = np.arange(1000)
        size = 1 / max(law.excess, 1e-9)
        np.testing.assert_allclose(
            law.log_prob(n), stats.nbinom(size, size / (size + law.mean)).logpmf(n), rtol=1e-4
        )
        draws = law.sample(4000, rng)
        error = np.sqrt(law.mean * (1 + law.excess * law.mean) / 4000)
        assert abs(draws.mean() - law.mean) < 5 * error
    # weights act as repetition, and a corpus without words has a law too
    weighted = LengthLaw.of(np.array([1, 5]), np.array([3.0, 1.0]))
    repeated = LengthLaw.of(np.array([1, 1, 1, 5]), np.ones(4))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12)
    assert np.isfinite(LengthLaw.of(np.zeros(3), np.ones(3)).log_prob(np.arange(3))).all()


def test_all_documents_together_have_probability_one():
    # with one topic the bound is exact
    X = np.random.default_rng(0).poisson([1.0, 2.0], (40, 2))
    lda = fe.LatentDirichletAllocation(1, random_state=0).fit(X)
    every = np.stack(np.meshgrid(np.arange(30), np.arange(30)), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(np.exp(lda.score_samples(every)).sum(), 1.0, rtol=1e-6)


GIVEN = np.array(
    [[3, 1, np.nan], [np.nan, 2, 9], [np.nan, np.nan, 4], [np.nan, 0, 0], [5, 1, 7], [20, np.nan, np.nan]]
)


def two_topics(n=300):
    """Documents of two topics and three words, of very different lengths."""
    rng = np.random.default_rng(0)
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    lengths = rng.negative_binomial(3, 0.2, n)
    shares = rng.dirichlet([0.5, 0.5], n)
    return np.stack([rng.multinomial(k, t @ topics) for k, t in zip(lengths, shares, strict=True)]) * 1.0


def exact_incomplete(x, lda):
    """log p of the observed counts and the means of the others, by quadrature over the share of a topic."""
    mean, excess = lda.length_law_
    seen, size = ~np.isnan(x), 1 / excess
    n = x[seen].sum()

    # in units of the prior's probability, in which its peaks at both ends are flat
    nodes, weights = np.polynomial.legendre.leggauss(400)
    share = stats.beta(lda.alpha, lda.alpha).ppf((nodes + 1) / 2)[:, None]
    p = share * lda.components_[0] + (1 - share) * lda.components_[1]
    part = p[:, seen].sum(axis=1)
    likelihood = stats.nbinom.pmf(n, size, size / (size + mean * part))
    likelihood *= stats.multinomial.pmf(x[seen], n, p[:, seen] / part[:, None])
    rate = (size + n) * mean / (size + mean * part)
    evidence = weights / 2 @ likelihood
    means = (weights / 2 * likelihood * rate) @ p / evidence
    return np.log(evidence), np.where(seen, x, means)


@pytest.fixture(scope="module")
def incomplete():
    options = {"alpha": 0.6, "random_state": 0}
    bound = fe.LatentDirichletAllocation(2, **options).fit(two_topics())
    sampled = fe.LatentDirichletAllocation(2, importance_samples=2000, **options).fit(two_topics())
    return bound, sampled, [exact_incomplete(x, bound) for x in GIVEN]


def test_missing_counts_are_summed_out(incomplete):
    lda, sampled, exact = incomplete
    exact = np.array([evidence for evidence, _ in exact])
    bound = lda.evidence(GIVEN)
    assert (bound.nats < exact).all()
    assert (bound.nats > exact - 0.6).all()
    found = sampled.evidence(GIVEN)
    assert found.kind is fe.Kind.LOWER
    assert (np.abs(found.nats - exact) < 5 * found.stderr).all()
    assert (found.stderr < 0.1).all()
    # of a document of which nothing is known all is certain
    nothing = np.full((1, 3), np.nan)
    np.testing.assert_allclose(lda.score_samples(nothing), 0.0, atol=1e-9)
    np.testing.assert_allclose(lda.transform(nothing), 0.5, atol=1e-6)
    # sparse matrices hold NaN too
    np.testing.assert_allclose(lda.score_samples(sparse.csr_matrix(GIVEN)), bound.nats, rtol=1e-12)


@pytest.mark.slow
def test_missing_counts_are_filled(incomplete):
    lda, sampled, exact = incomplete
    expected = np.stack([mean for _, mean in exact])
    draws = lda.sample(2000, random_state=0, given=GIVEN)
    assert draws.shape == (2000, 6, 3)
    np.testing.assert_array_equal(draws[7][~np.isnan(GIVEN)], GIVEN[~np.isnan(GIVEN)])
    # resampling of 500 shares is biased by about a 500th of the spread, besides the error of the mean
    error = draws.std(axis=0) / np.sqrt(2000)
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error + 0.02 * draws.std(axis=0)).all()
    filled = sampled.impute(GIVEN)
    # the whole number next to the mean
    assert (filled == np.rint(filled)).all()
    assert (np.abs(filled - expected) <= 0.5 + 5 * np.sqrt(2000 / 200) * error).all()
    np.testing.assert_array_equal(filled[4], GIVEN[4])
    sparsely = sampled.impute(sparse.csr_matrix(GIVEN))
    assert sparse.issparse(sparsely)
    np.testing.assert_allclose(sparsely.toarray(), filled, rtol=1e-12)


def test_with_one_topic_missing_counts_have_their_negative_binomial():
    X = two_topics()
    lda = fe.LatentDirichletAllocation(1, random_state=0).fit(X)
    mean, excess = lda.length_law_
    part = mean * lda.components_[0, 0]
    law = stats.nbinom(1 / excess, 1 / (1 + excess * part))
    rows = np.full((9, 3), np.nan)
    rows[:, 0] = np.arange(9)
    np.testing.assert_allclose(lda.score_samples(rows), law.logpmf(np.arange(9)), rtol=1e-9)


@pytest.mark.slow
def test_topics_are_learned_from_incomplete_documents():
    X, topics, _ = planted(90)
    X = X.toarray().astype(float)
    holes = np.random.default_rng(1).random(X.shape) < 0.3
    lda = fe.LatentDirichletAllocation(3, alpha=0.2, eta=0.1, tol=1e-3, random_state=1)
    lda.fit(np.where(holes, np.nan, X))
    # the inner iteration ends a little early
    assert (np.diff(lda.history_["objective"]) < 1e-3).all()
    order = lda.components_.reshape(3, 3, 4).sum(axis=2).argmax(axis=0)
    assert sorted(order) == [0, 1, 2]
    assert np.abs(lda.components_[order] - topics).max() < 0.06
    # all documents have forty words: a Poisson law, whose mean is that of 90 documents of which 0.7 is seen
    assert abs(lda.length_law_.mean - 40) < 5 * np.sqrt(40 / (0.7 * 90))
    filled = lda.impute(np.where(holes, np.nan, X))
    naive = np.nanmean(np.where(holes, np.nan, X), axis=0)
    assert np.abs(filled - X)[holes].mean() < 0.5 * np.abs(naive - X)[holes].mean()


def _board(models):
    return fe.compare(models, planted()[0].toarray(), test_size=0.4, random_state=0)


TOPICS = fe.LatentDirichletAllocation(3, random_state=0, max_iter=30, tol=1.0)


@pytest.mark.slow
def test_topics_are_compared_with_other_models_of_counts():
    board = _board({"independent": fe.Mixture(1, fe.distributions.Poisson), "topics": TOPICS})
    lines = {line.model: line for line in board.table()}
    assert list(lines) == ["topics", "independent"]
    assert lines["topics"].kind is fe.Kind.LOWER
    assert lines["independent"].kind is fe.Kind.EXACT
    X = planted()[0].toarray() + 0.5 * np.eye(60, 12)
    wrong = fe.compare({"topics": TOPICS}, X, test_size=0.4).table()[0]
    assert "gives a probability mass to whole numbers, but some columns are rounded" in wrong.error


@pytest.mark.slow
def test_topics_in_a_report(tmp_path):
    board = _board({"one": fe.LatentDirichletAllocation(1, random_state=0), "three": TOPICS})
    assert [line.model for line in board.table()] == ["three", "one"]
    board.to_html(tmp_path / "report.html")
    assert "LatentDirichletAllocation" in (tmp_path / "report.html").read_text()


def test_left_to_right_is_unbiased():
    X, *_ = planted()
    lda = fe.LatentDirichletAllocation(3, alpha=0.4, eta=5.0, random_state=0).fit(X)
    documents = [[0, 0, 1, 5, 5, 9], [2], [3, 4, 8, 11], []]
    new = np.stack([np.bincount(words, minlength=12) for words in documents])
    exact = np.array([exact_document(words, lda.components_, np.full(3, 0.4)) for words in documents])
    ways = gammaln(new.sum(axis=1) + 1) - gammaln(new + 1).sum(axis=1)
    ways = ways + lda.length_law_.log_prob(new.sum(axis=1))
    repeats = 40
    found = lda.left_to_right(np.tile(new, (repeats, 1)), 50, random_state=0)
    assert found.kind is fe.Kind.LOWER
    nats, stderr = (a.reshape(repeats, 4) for a in (found.nats, found.stderr))
    # the mean of p over all particles, in units of the truth
    ratio = np.exp(nats - exact - ways)
    error = np.sqrt((stderr**2).mean(axis=0) / repeats)
    assert (np.abs(ratio.mean(axis=0) - 1) < 5 * error + 1e-12).all()
    # the standard errors say how much the estimates differ
    np.testing.assert_allclose(nats[:, 0].std(), np.sqrt((stderr[:, 0] ** 2).mean()), rtol=0.4)
    # a word alone, or none, has nothing to sample; longer documents are above the variational bound
    np.testing.assert_allclose(
        nats[:, [1, 3]] - ways[[1, 3]], np.tile(exact[[1, 3]], (repeats, 1)), atol=1e-12
    )
    assert (nats.mean(axis=0) >= lda.evidence(new).nats - 1e-9).all()
    long = lda.left_to_right(X[:3], 50, random_state=0)
    assert (long.nats > lda.evidence(X[:3]).nats - 3 * long.stderr).all()
    assert (long.nats < lda.evidence(X[:3]).nats + 3.0).all()
    again = lda.left_to_right(new[:2], 50, random_state=0).nats
    np.testing.assert_array_equal(
        again, lda.left_to_right(sparse.csr_matrix(new[:2]), 50, random_state=0).nats
    )


def test_perplexity_falls_from_one_topic_to_those_that_are_there():
    X, *_ = planted(90)
    one, three = (
        fe.LatentDirichletAllocation(k, alpha=0.2, eta=0.1, random_state=0).fit(X[:60]) for k in (1, 3)
    )
    # one topic is a distribution over words, of which the bound is exact
    share = (X[:60].sum(axis=0) + 0.1) / (X[:60].sum() + 1.2)
    words = np.asarray(X[60:].sum(axis=0)).ravel()
    expected = np.exp(-words @ np.log(np.asarray(share).ravel()) / words.sum())
    np.testing.assert_allclose(one.perplexity(X[60:]), expected, rtol=1e-6)
    assert three.perplexity(X[60:]) < 0.7 * expected


@pytest.mark.slow
def test_documents_of_different_sizes_are_learned_as_if_of_one():
    """What is not needed of the columns is left out, and changes nothing."""
    rng = np.random.default_rng(0)
    lengths = np.repeat([3, 40, 200], [70, 10, 4])
    X = sparse.csr_matrix(np.stack([rng.multinomial(n, np.full(300, 1 / 300)) for n in lengths]))
    model = LatentDirichletAllocation(
        jnp.full(3, 0.3), jnp.array(0.2), jnp.asarray(rng.gamma(1.0, size=(3, 300)))
    )
    settings = {"temperature": jnp.ones(()), "incomplete": False}
    table = np.asarray(model.prepare())
    for part in (X[:70], X[70:80], X):
        words, counts = ragged(part, 256)
        weight = rng.random(len(words))
        statistics, free = model.expect(
            (jnp.asarray(words), jnp.asarray(counts)), jnp.asarray(weight), **settings
        )
        expected, total = np.zeros((300, 3)), 0.0
        for row, w in zip(part, weight, strict=True):
            factors, gamma, change, steps = table[row.indices], 0.3 + row.sum() / 3 * np.ones(3), np.inf, 0
            while change > 1e-3 and steps < 30:
                theta = np.exp(digamma(gamma) - digamma(gamma.sum()))
                new = 0.3 + theta * ((row.data / (factors @ theta)) @ factors)
                change, gamma, steps = np.abs(new - gamma).mean(), new, steps + 1
            theta = np.exp(digamma(gamma) - digamma(gamma.sum()))
            divergence = (gamma - 0.3) @ np.log(theta) - log_beta(gamma) + log_beta(np.full(3, 0.3))
            total += w * (divergence - row.data @ np.log(factors @ theta))
            r = factors * theta
            np.add.at(expected, row.indices, w * row.data[:, None] * r / r.sum(axis=1, keepdims=True))
        np.testing.assert_allclose(statistics, expected.T, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(free, total, rtol=1e-8)


def test_same_bound_and_posterior_as_scikit_learn():
    X = planted(30)[0].astype(float)
    peer = Peer(3, doc_topic_prior=0.3, topic_word_prior=0.2, max_iter=5, random_state=0)
    peer.mean_change_tol, peer.max_doc_update_iter = 1e-9, 2000
    peer.fit(X)
    model = LatentDirichletAllocation(
        jnp.full(3, 0.3), jnp.array(0.2), jnp.asarray(peer.components_ - 0.2), 1e-9
    )
    shares = peer._unnormalized_transform(X)
    words, counts = ragged(X, 16)

    @jax.jit
    def asked(model, words, counts):
        table = model.prepare()
        ours = jax.vmap(lambda w, c: model.recognise(table[w], c, 1e-10))(words, counts)
        statistics, free = model.expect(
            (words, counts), jnp.ones(30), temperature=jnp.ones(()), incomplete=False
        )
        converged = jnp.sum(jax.vmap(model._bound)(ours, table[words], counts))
        return ours, statistics.sum(), free, converged, model.parameter_free_energy()

    ours, total, free, converged, cost = map(np.asarray, asked(model, words, counts))
    np.testing.assert_allclose(ours, shares, rtol=1e-4, atol=1e-4)
    bound = peer._approx_bound(X, shares, sub_sampling=False)
    np.testing.assert_allclose(converged - cost, bound, rtol=1e-6)
    # learning stops the inner iteration early, at a bound that is a little lower
    assert -1.0 < -free - converged < 1e-6
    np.testing.assert_allclose(total, X.sum(), rtol=1e-10)


LEARNERS = {
    "batch": None,
    "online": EM(tol=1e-2, sweep=Stepwise(batch_size=16)),
    "gibbs": CollapsedGibbs(burn_in=30),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_planted_topics_are_found(name):
    X, topics, shares = planted()
    lda = fe.LatentDirichletAllocation(
        3, alpha=0.2, eta=0.1, learner=LEARNERS[name], max_iter=60, random_state=1
    ).fit(X)
    order = lda.components_.reshape(3, 3, 4).sum(axis=2).argmax(axis=0)
    assert sorted(order) == [0, 1, 2]
    assert np.abs(lda.components_[order] - topics).max() < 0.05
    assert np.abs(lda.transform(X)[:, order] - shares).mean() < 0.06
    assert lda.perplexity(X) < 0.75 * np.exp(stats.entropy(np.asarray(X.sum(axis=0)).ravel()))


@pytest.mark.slow
def test_sparse_dense_order_and_weights_agree():
    X, *_ = planted(30)
    lda = fe.LatentDirichletAllocation(2, random_state=0, max_iter=20, tol=1.0)
    sparsely = lda.fit(X).components_
    np.testing.assert_allclose(lda.fit(X.toarray()).components_, sparsely, rtol=1e-9)
    np.testing.assert_allclose(lda.fit(X[::-1]).components_, sparsely, rtol=1e-9)
    weight = np.arange(30) % 3
    twice = sparse.csr_matrix(np.repeat(X.toarray(), weight, axis=0))
    np.testing.assert_allclose(
        lda.fit(X, sample_weight=weight).components_, lda.fit(twice).components_, rtol=1e-9
    )
    scores = lda.score_samples(X)
    np.testing.assert_allclose(lda.score_samples(X[4]), scores[4:5], rtol=1e-9)
    wide = sparse.csr_matrix(np.vstack([X.toarray(), np.full((1, 12), 3)]))
    np.testing.assert_allclose(lda.transform(wide)[:30], lda.transform(X), rtol=1e-9)


@pytest.mark.slow
def test_samples_have_the_moments_of_the_model():
    X, *_ = planted(30)
    lda = fe.LatentDirichletAllocation(2, alpha=0.4, random_state=0).fit(X)
    draws = lda.sample(3000, random_state=2, length=2)
    assert (draws.sum(axis=1) == 2).all()
    # two words of a document: E[θθᵀ] of the Dirichlet gives the chance of each pair
    second = (np.outer([0.4, 0.4], [0.4, 0.4]) + np.diag([0.4, 0.4])) / (0.8 * 1.8)
    pairs = lda.components_.T @ second @ lda.components_
    same = np.mean((draws == 2).any(axis=1))
    error = np.sqrt(same * (1 - same) / 3000)
    assert abs(same - np.trace(pairs)) < 5 * error
    share = draws[:, :4].sum() / 6000
    assert abs(share - lda.components_.mean(axis=0)[:4].sum()) < 5 * np.sqrt(0.25 / 3000)
    assert lda.sample(2, random_state=0, length=[5, 7]).sum(axis=1).tolist() == [5, 7]
    free = lda.sample(3000, random_state=0).sum(axis=1)
    mean, excess = lda.length_law_
    assert abs(free.mean() - mean) < 5 * np.sqrt(mean * (1 + excess * mean) / 3000)


@pytest.mark.parametrize(
    ("options", "X", "sentence"),
    [
        ({"n_topics": 0}, TOY, "The 'n_topics' parameter of LatentDirichletAllocation must be an int"),
        ({"alpha": 0.0}, TOY, r"The 'alpha' parameter .* in the range \(0, inf\) or None"),
        ({}, -TOY, "Negative values in data passed to LatentDirichletAllocation"),
        ({"learner": CollapsedGibbs()}, TOY / 2, "must hold whole numbers"),
        ({"learner": CollapsedGibbs()}, TOY * np.array([[1, np.nan], [1, 1]]), "all of them observed"),
        ({}, TOY * np.array([[1, np.nan], [1, np.nan]]), "Column 1 of X has no observed value"),
        ({"importance_samples": 1}, TOY, "The 'importance_samples' parameter .* must be an int"),
        ({"learner": 3}, TOY, "must be an instance of EM or CollapsedGibbs or None"),
    ],
)
def test_wrong_input(options, X, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.LatentDirichletAllocation(**{"n_topics": 2, **options}).fit(X)


@pytest.mark.parametrize(
    ("X", "particles", "sentence"),
    [
        (
            TOY / 2,
            20,
            "The X of LatentDirichletAllocation.left_to_right must hold whole numbers, .* Got 0.5",
        ),
        (TOY, 1, r"The 'n_particles' of .* must be an int in the range \[2, inf\)\. Got 1 instead"),
    ],
)
def test_wrong_input_of_left_to_right(X, particles, sentence):
    lda = fe.LatentDirichletAllocation(2, random_state=0).fit(TOY)
    with pytest.raises(ValueError, match=sentence):
        lda.left_to_right(X, particles)


def test_wrong_input_after_fitting():
    lda = fe.LatentDirichletAllocation(2, random_state=0).fit(TOY)
    holes = np.array([[np.nan, 1.0]])
    with pytest.raises(ValueError, match=r"perplexity takes no NaN: .* Use 'evidence' instead"):
        lda.perplexity(holes)
    with pytest.raises(ValueError, match="takes 'length' or 'given', not both"):
        lda.sample(1, given=holes, length=3)


def test_long_documents_of_topics_that_are_alike_come_to_rest():
    """200 updates of γ leave a document of 100,000 words hundreds of words from where it belongs."""
    rng = np.random.default_rng(0)
    shared = rng.dirichlet(np.ones(300))
    topics = np.stack([0.9 * shared + 0.1 * rng.dirichlet(np.full(300, 0.1)) for _ in range(8)])
    model = LatentDirichletAllocation(jnp.full(8, 0.1), jnp.array(1e-9), jnp.asarray(1e6 * topics))
    phi = np.asarray(jax.jit(lambda: model.topics())()).T
    recognised = jax.jit(lambda counts: model.variational_concentration((jnp.arange(300), counts)))

    def update(gamma, counts):
        theta = np.exp(digamma(gamma) - digamma(gamma.sum()))
        return 0.1 + theta * ((counts / (phi @ theta)) @ phi)

    for length in (100, 100_000):
        counts = rng.multinomial(length, rng.dirichlet(np.full(8, 0.5)) @ phi.T).astype(float)
        plain = np.full(8, 0.1 + length / 8)
        for _ in range(200):
            plain = update(plain, counts)
        found = np.asarray(recognised(counts))
        np.testing.assert_allclose(update(found, counts), found, atol=1e-5)
        after = plain
        for _ in range(20_000):
            after = update(after, counts)
        np.testing.assert_allclose(found, after, rtol=1e-5, atol=1e-3)
    # the old number of updates was not enough
    assert np.abs(plain - after).max() > 100


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.full((4, 3), "word"), r"not text\. Got 'word' in row 0, column 0"),
        ([[1, 2], [3]], "rows of X must have the same length"),
        (pd.DataFrame(np.ones((4, 2)), columns=["c", "c"]), "'c' 2 times"),
        (np.full((4, 3), 1e300), "counts of words, of which 64-bit floats know the last one"),
    ],
)
def test_what_is_no_table_of_counts_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        fe.LatentDirichletAllocation(2).fit(X)


def test_the_lengths_of_documents_that_weigh_little_are_theirs():
    lengths = np.array([3.0, 5.0])
    for weight in (1.0, 1e-9, 2.0**-100):
        assert LengthLaw.of(lengths, np.full(2, weight)).mean == pytest.approx(4.0, rel=1e-12)
    # of no word at all there is half a word in all documents, whatever they weigh
    assert LengthLaw.of(np.zeros(2), np.ones(2)).mean == 0.25
    assert LengthLaw.of(np.zeros(2), np.full(2, 1e-9)).mean == 0.5
