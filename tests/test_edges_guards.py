"""Where a number is kept from being zero, infinite or too large: values and slopes at the edge itself.

Against closed forms and dense algebra in NumPy, enumeration and finite differences, in 64 and 32 bits.
"""

import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, optimize, sparse, special, stats

import freeenergy as fe
from freeenergy import distributions as fd
from freeenergy import inference as fi
from freeenergy import models as fm
from freeenergy._core import Data, constrain, simplex, unconstrain
from freeenergy.estimators.text._documents import LengthLaw, observed_share
from freeenergy.models import _state_space as state_space
from freeenergy.models._sparse_coding import SparseStatistics
from freeenergy.models._transitions import dirichlet_mode
from freeenergy.shell._information import Terms, standard_errors
from freeenergy.shell._rows import Scaling

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["64", "32"])


def near(found, expected, dtype, factor=64.0, size=0.0):
    """Equal up to `factor` rounding errors of the largest entry, or of `size` if that is larger."""
    expected = np.asarray(expected, float)
    most = max(float(np.abs(expected).max(initial=0.0)), size)
    np.testing.assert_allclose(
        np.asarray(found, float), expected, rtol=0, atol=factor * float(np.finfo(dtype).eps) * most
    )


# ---------------------------------------------------------------------------------------------
# Measurements without noise
# ---------------------------------------------------------------------------------------------

A, Q, P0, M0 = np.array([[0.5, 0.3], [-0.2, 0.6]]), np.diag([0.4, 0.2]), np.eye(2), np.array([0.3, -0.5])


def system(C, R, **options):
    dtype = C.dtype
    m0, P, a, q, zero = (jnp.asarray(v, dtype) for v in (M0, P0, A, Q, np.zeros(2)))
    mean = jnp.zeros(len(C), dtype)
    return fm.LinearGaussianSSM(m0, fd.Full(P), a, zero, fd.Full(q), C, mean, fd.Full(R), **options)


def dense(C, R, y):
    """log p of the observed entries of y, and its slopes in C and R."""
    T, m = y.shape
    powers = [np.linalg.matrix_power(A, k) for k in range(T)]
    F = np.block([[powers[t - s] if s <= t else np.zeros((2, 2)) for s in range(T)] for t in range(T)])
    S = F @ linalg.block_diag(P0, *[Q] * (T - 1)) @ F.T
    mean = np.concatenate([p @ M0 for p in powers])
    wide = np.kron(np.eye(T), C)
    seen = ~np.isnan(y.ravel())
    V = (wide @ S @ wide.T + np.kron(np.eye(T), R))[np.ix_(seen, seen)]
    error = (y.ravel() - wide @ mean)[seen]
    W, pull = np.linalg.inv(V), np.zeros(T * m)
    pull[seen] = W @ error
    G = np.zeros((T * m, T * m))
    G[np.ix_(seen, seen)] = -W / 2
    G += np.outer(pull, pull) / 2
    in_C = 2 * G @ wide @ S + np.outer(pull, mean)
    blocks = [slice(t * m, t * m + m) for t in range(T)]
    slopes = (
        sum(in_C[b, 2 * t : 2 * t + 2] for t, b in enumerate(blocks)),
        sum(G[b, b] for b in blocks),
    )
    law = -0.5 * (error @ W @ error + np.linalg.slogdet(V)[1] + len(error) * math.log(2 * math.pi))
    return law, slopes


@DTYPES
@pytest.mark.parametrize("outputs", [2, 3], ids=["as many", "more"])
def test_a_singular_noise_has_the_evidence_and_the_slopes_of_dense_algebra(dtype, outputs):
    rng = np.random.default_rng(1)
    C, L, y = rng.normal(size=(outputs, 2)), rng.normal(size=(outputs, outputs - 1)), None
    y = rng.normal(size=(3, outputs))
    y[1, 0] = np.nan
    C, R, y = (np.asarray(v, dtype) for v in (C, L @ L.T, y))
    # with more outputs than states it is known to be singular while the program is traced
    known = jnp.asarray(R) if outputs > 2 else None

    @jax.jit
    @jax.value_and_grad
    def log_prob(parts):
        C, noise = parts
        return system(C, noise if known is None else known).log_prob(fm.one_series(jnp.asarray(y)))

    value, (in_C, in_R) = log_prob((jnp.asarray(C), jnp.asarray(R)))
    expected, (dense_C, dense_R) = dense(*(np.asarray(v, float) for v in (C, R, y)))
    factor = 1e3 if dtype is np.float64 else 1e2
    near(value, expected, dtype, factor)
    near(in_C, dense_C, dtype, factor)
    if known is None:
        near((in_R + in_R.T) / 2, dense_R, dtype, factor)


def test_a_singular_noise_that_is_not_known_is_no_silent_number():
    C, y = jnp.asarray(np.random.default_rng(2).normal(size=(3, 2))), jnp.ones((2, 3))
    value = jax.jit(lambda R: system(C, R).log_prob(fm.one_series(y)))(jnp.diag(jnp.array([0.0, 1.0, 1.0])))
    assert np.isnan(value)


@DTYPES
@pytest.mark.parametrize("kind", ["moments", "roots", "diffuse"])
def test_what_is_certain_has_no_density(dtype, kind):
    """Three exact measurements of two numbers: the third is infinitely likely, or else impossible."""
    C = np.array([[1.0, 0.7], [0.3, -1.1], [1.3, -0.4]], dtype)
    state = np.array([0.6, -0.2])
    kinds = {
        "moments": fi.LinearGaussianBeliefs,
        "roots": fi.SquareRootBeliefs,
        "diffuse": fi.DiffuseBeliefs,
    }
    chain = kinds[kind](fi.LinearStep())
    start = fi.GaussianBelief(jnp.asarray(M0, dtype), jnp.asarray(P0, dtype))
    known = {"moments": lambda: start, "roots": lambda: chain.start(start)}
    begin = known.get(kind, lambda: chain.start(start, jnp.zeros((2, 1), dtype)))

    @jax.jit
    def update(y):
        zero = jnp.zeros(3, dtype)
        after, gain = chain.update(begin(), fi.measure(jnp.asarray(C), zero, zero, y))
        return after.mean, gain

    y = C.astype(float) @ state
    mean, gain = update(jnp.asarray(y, dtype))
    np.testing.assert_allclose(mean, state, atol=100 * np.finfo(dtype).eps)
    assert gain == np.inf
    assert update(jnp.asarray(y + np.array([0, 0, 0.01]), dtype))[1] == -np.inf
    # two of them have the density of what they measure
    mean, gain = update(jnp.asarray(np.where([True, True, False], y, np.nan), dtype))
    C = C[:2].astype(float)
    expected = stats.multivariate_normal(C @ M0, C @ C.T).logpdf(y[:2])
    near(gain, expected, dtype)


def test_long_series_without_noise_are_not_cut_into_blocks(monkeypatch):
    """A trend seen exactly: second differences are independent, and the level is what was seen."""
    monkeypatch.setattr(state_space, "_LONG", 32)
    y = np.cumsum(np.cumsum(np.random.default_rng(3).normal(size=32)))
    zero, walk = np.zeros(2), np.array([[1.0, 1.0], [0.0, 1.0]])
    parts = (zero, P0, walk, zero, np.diag([0.0, 0.5]), np.eye(1, 2), zero[:1])
    m, P, a, shift, q, C, c = (jnp.asarray(v) for v in parts)
    series = fm.one_series(jnp.asarray(y)[:, None])

    def model(v, noise):
        return fm.LinearGaussianSSM(m, fd.Full(P), a, shift, fd.Full(v * q), C, c, fd.Full(noise))

    def log_prob(v, noise):
        return model(v, noise).log_prob(series)

    none, some, one = jnp.zeros((1, 1)), jnp.full((1, 1), 0.3), jnp.ones(())
    value, slope = jax.jit(jax.value_and_grad(lambda v: log_prob(v, none)))(one)
    states = jax.jit(lambda v: model(v, none).smooth(series).marginals.mean)(one)
    first = np.diff(y)
    expected = stats.norm.logpdf(y[0]) + stats.norm.logpdf(first[0])
    bends = np.diff(first)
    expected += stats.norm.logpdf(bends, scale=math.sqrt(0.5)).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope, (bends**2 / 0.5 - 1).sum() / 2, rtol=1e-9)
    np.testing.assert_allclose(states[:, 0], y, atol=1e-10)
    steps = np.tril(np.arange(32)[:, None] - np.arange(32)[None, :])
    V = 1 + np.outer(np.arange(32), np.arange(32)) + 0.5 * steps[:, 1:] @ steps[:, 1:].T
    # with noise the blocks are as they were
    law = stats.multivariate_normal(np.zeros(32), V + 0.3 * np.eye(32))
    np.testing.assert_allclose(jax.jit(lambda v: log_prob(v, some))(one), law.logpdf(y), rtol=1e-9)


# ---------------------------------------------------------------------------------------------
# Sparse coding and independent components
# ---------------------------------------------------------------------------------------------


@DTYPES
def test_the_energy_of_cauchy_sources_far_away(dtype):
    source = fm.CauchySource(2.0)
    x = np.array([0.0, 0.5, -1.9, 2.5, 1e3, 1e25], dtype)
    f = np.asarray(x, float)
    ask = jax.jit(
        lambda x: (source.energy(x), jax.grad(lambda x: source.energy(x).sum())(x), source.curvature(x))
    )
    energy, slope, curvature = ask(jnp.asarray(x))
    near(energy, np.log(4 + f**2), dtype, 4)
    near(slope, 2 * f / (4 + f**2), dtype, 4)
    # E″ where it is above a hundredth of E′/x, by second differences; else that
    step = 1e-4
    bend = (np.log(4 + (f + step) ** 2) - 2 * np.log(4 + f**2) + np.log(4 + (f - step) ** 2)) / step**2
    expected = np.where(np.abs(f) < 1.95, bend, 0.02 / (4 + f**2))
    np.testing.assert_allclose(curvature, expected, rtol=2e-5, atol=1e-40)
    if dtype is np.float64:
        energy, _, curvature = ask(jnp.full(6, 1e200))
        assert energy[0] == pytest.approx(2 * math.log(1e200), rel=1e-14)
        assert curvature[0] == 0


@pytest.mark.parametrize("unit", [1.0, 1e-8, 1e8])
def test_the_least_noise_of_sparse_coding_is_in_the_unit_of_the_data(unit):
    rng = np.random.default_rng(4)
    codes = np.column_stack([rng.laplace(size=(30, 2)), np.ones(30)])
    y = unit * codes @ rng.normal(size=(3, 3))
    model = fm.SparseCoding(jnp.eye(3, 2), jnp.zeros(3), jnp.array(1.0), fm.LaplaceSource())

    maximised = jax.jit(lambda sums: model.maximise(SparseStatistics(*sums)))

    def maximise(y):
        return maximised((np.array(30.0), codes.T @ codes, y.T @ codes, np.array((y**2).sum())))

    # rows that sources explain whole have the least noise, others what is left
    assert 1 / maximise(y).precision == pytest.approx(1e-3 * y.var(axis=0).mean(), rel=1e-9)
    y = y + unit * rng.normal(size=y.shape)
    fitted = np.linalg.lstsq(codes, y)
    left = ((y - codes @ fitted[0]) ** 2).mean()
    assert 1 / maximise(y).precision == pytest.approx(left, rel=1e-9)
    constant = maximise(np.full_like(y, unit))
    assert 1 / constant.precision == pytest.approx(1e-3)


def test_flat_directions_of_independent_components_have_the_least_variance():
    S = np.random.default_rng(5).laplace(size=(60, 2))
    X = np.column_stack([S, S[:, 0]])
    model = fe.ICA(random_state=0).fit(X)
    D, centre = model.components_, model.mean_
    sources = (X - centre) @ D.T
    expected = stats.hypsecant.logpdf(np.pi / 2 * sources).sum(axis=1) + 3 * math.log(np.pi / 2)
    expected += np.linalg.slogdet(D)[1]
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-9)
    # across the plane of the rows, in units of the columns, it is a thousandth wide
    across = X.std(axis=0) * [1, 0, -1] / math.sqrt(2)
    assert np.linalg.norm(D @ across) == pytest.approx(1e3, rel=1e-6)


def test_the_unit_of_the_sources_does_not_change_independent_components():
    X = np.random.default_rng(6).laplace(size=(60, 2)) @ np.array([[1.0, 0.5], [-0.3, 1.0]])
    fits = [
        fe.ICA(fd.Logistic(jnp.full(1, shift), jnp.full(1, unit)), random_state=0).fit(X)
        for unit, shift in ((1.0, 0.0), (1e12, 1e12), (1e-12, 0.0))
    ]
    for other, unit in zip(fits[1:], (1e12, 1e-12), strict=True):
        np.testing.assert_allclose(other.components_ / unit, fits[0].components_, rtol=1e-6)
        assert other.score(X) == pytest.approx(fits[0].score(X), rel=1e-9)
        assert other.n_iter_ == fits[0].n_iter_


# ---------------------------------------------------------------------------------------------
# Mixtures and topics
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_component_without_rows_may_weigh_less_than_a_number(diagonal):
    """The E step of variational Bayes at α = 1/1000, with a row far from all others, in closed form."""
    rows = np.append(0.1 * np.random.default_rng(7).normal(size=40), 20.0)
    alpha, counts = np.full(2, 1e-3), np.array([400.0, 0.0])
    sums = np.array([[10 * rows[:-1].sum(), 10 * (rows[:-1] ** 2).sum(), 400.0], [0.0, 0.0, 0.0]])
    one, shape = jnp.ones(1), (1, 1)
    prior = (
        fd.NormalInverseGamma(0 * one, one, 1.5 * one, 0.5 * one)
        if diagonal
        else fd.NormalInverseWishart(0 * one, one[0], jnp.ones(shape), jnp.array(3.0))
    )
    family = fd.Gaussian(0 * one, fd.Diagonal(one) if diagonal else fd.Full(jnp.ones(shape)))
    model = fm.BayesianMixture(jnp.asarray(alpha), prior, family, jnp.asarray(counts), jnp.asarray(sums))
    statistics, free = jax.jit(lambda x: model.expect(x, jnp.ones(41), temperature=1.0, incomplete=False))(
        jnp.asarray(rows)[:, None]
    )
    log_weights = special.digamma(alpha + counts) - special.digamma((alpha + counts).sum())
    assert log_weights[1] < -900
    kappa, nu = 1 + counts, 3 + counts
    m = sums[:, 0] / kappa
    psi = 1 + sums[:, 1] - sums[:, 0] ** 2 / kappa
    logs = special.digamma(nu / 2) + np.log(2 / psi) - math.log(2 * math.pi) - 1 / kappa
    logs = log_weights + 0.5 * (logs - nu * (rows[:, None] - m) ** 2 / psi)
    np.testing.assert_allclose(free, -special.logsumexp(logs, axis=1).sum(), rtol=1e-12)
    np.testing.assert_allclose(statistics.counts, special.softmax(logs, axis=1).sum(axis=0), atol=1e-9)
    assert statistics.counts[1] == pytest.approx(1.0), "the far row is that of the component without rows"


WORDS, COUNTS = np.array([0, 1, 2, 0]), np.array([2.0, 1.0, 0.0, np.nan])
TOPICS = np.array([[3.0, 1.0, 4.0], [1.0, 0.0, 5.0], [2.0, 2.0, 0.0]])


def topics(alpha, dtype=np.float64):
    return fm.LatentDirichletAllocation(
        jnp.asarray(alpha, dtype),
        jnp.asarray(0.0, dtype),
        jnp.asarray(TOPICS, dtype),
        mean_length=jnp.asarray(4.0, dtype),
        excess=jnp.asarray(0.5, dtype),
    )


def document_energy(alpha, theta):
    phi = TOPICS / TOPICS.sum(axis=1, keepdims=True)
    seen = theta @ phi
    known = COUNTS[:3]
    mass, n = seen[0], known.sum()
    unseen = -(1 / 0.5 + n) * np.log1p(-2.0 / 3.0 * mass)
    return -(known[:2] @ np.log(seen[:2])) - unseen - stats.dirichlet.logpdf(theta, alpha)


@DTYPES
def test_the_energy_of_topics_and_its_slope(dtype):
    document = jnp.asarray(WORDS), jnp.asarray(COUNTS, dtype)
    theta, alpha = np.array([0.2, 0.5, 0.3]), np.array([2.0, 0.5, 1.3])
    energy = jax.jit(jax.value_and_grad(lambda t: topics(alpha, dtype).energy(document, t)))
    value, slope = energy(jnp.asarray(theta, dtype))
    near(value, document_energy(alpha, theta), dtype)
    # along the simplex
    for a, b in ((0, 1), (1, 2)):
        step = 1e-6 * (np.eye(3)[a] - np.eye(3)[b])
        change = (document_energy(alpha, theta + step) - document_energy(alpha, theta - step)) / 2e-6
        assert slope[a] - slope[b] == pytest.approx(change, rel=2e-5 if dtype is np.float32 else 1e-7)
    small = np.array([1e-30, 0.7, 0.3])
    near(energy(jnp.asarray(small, dtype))[0], document_energy(alpha, small), dtype)


def test_the_energy_of_topics_at_the_edge():
    document = jnp.asarray(WORDS), jnp.asarray(COUNTS)

    @jax.jit
    def energy(alpha, theta):
        return jax.value_and_grad(lambda t: topics(alpha).energy(document, t))(theta)

    def at(alpha, theta):
        return energy(jnp.array(alpha), jnp.array(theta))

    assert at([2.0, 1.0, 1.0], [0.0, 0.5, 0.5])[0] == np.inf
    assert at([0.5, 1.0, 1.0], [0.0, 0.5, 0.5])[0] == -np.inf
    # the second word has the first and the third topic alone
    assert at([0.5, 1.0, 0.5], [0.0, 1.0, 0.0])[0] == np.inf
    value, slope = at([1.0, 1.0, 1.0], [0.0, 0.5, 0.5])
    limit = document_energy(np.ones(3), np.array([1e-13, 0.5, 0.5 - 1e-13]))
    assert value == pytest.approx(limit, rel=1e-10)
    step = np.array([1e-6, 0.0, -1e-6])
    change = (document_energy(np.ones(3), np.array([0.0, 0.5, 0.5]) + step) - float(value)) / 1e-6
    # the third word, which does not occur, says nothing
    assert float(slope[0] - slope[2]) == pytest.approx(change, rel=1e-5)


def test_shares_too_small_for_a_number_have_weight():
    """One word and α = 1/1000: p(word) is the mean of its probabilities in two topics."""
    model = fm.LatentDirichletAllocation(
        jnp.full(2, 1e-3), jnp.array(0.0), jnp.array([[99.0, 1.0], [1.0, 99.0]])
    )
    document = jnp.array([0]), jnp.array([1.0])

    @jax.jit
    def weights(key):
        recognition = model.recognition_complete
        return fi.importance_draws(model.energy, recognition, document, samples=4000, key=key)[1]

    log_mean = float(special.logsumexp(weights(jax.random.key(0))) - math.log(4000))
    # draws are of the first topic, with 0.99 of the mass
    assert log_mean == pytest.approx(math.log(0.5 * 0.99), abs=0.02)


# ---------------------------------------------------------------------------------------------
# Modes
# ---------------------------------------------------------------------------------------------

PSEUDO = np.array(
    [[3.0, 2.0, 4.0], [1.0, 1.0, 1.0], [0.5, 3.0, 1.0], [0.5, 1.0, 0.2], [0.3, 0.6, 0.5], [1.0, 1.0, 0.5]]
)


def test_modes_of_proportions_are_the_highest_points_inside():
    inside = 1e-9
    points = np.random.default_rng(8).dirichlet(np.full(3, 0.3), 4000).clip(inside)

    def log_density(p):
        return (PSEUDO - 1) @ np.log(p / p.sum(axis=-1, keepdims=True)).T

    prior = fd.DirichletPrior(fd.Categorical(jnp.full((6, 3), 1 / 3)), jnp.asarray(PSEUDO))
    support = jnp.ones((6, 3), bool)
    # all three at most one: (½, ½, 0) is as high as any other division between the largest
    for modes in (
        eqx.filter_jit(prior.mode)().probabilities,
        jax.jit(dirichlet_mode)(PSEUDO - 1.25, 1.25, support),
    ):
        modes = np.asarray(modes)
        heights = np.diagonal(log_density(modes.clip(inside)))
        assert (heights >= log_density(points).max(axis=1) - 1e-6).all()
        np.testing.assert_allclose(modes.sum(axis=1), 1)
    np.testing.assert_allclose(modes[1], 1 / 3)
    allowed = np.array([[True, False, True]])
    found = jax.jit(dirichlet_mode)(np.zeros((1, 3)), None, allowed)
    np.testing.assert_allclose(found, [[0.5, 0.0, 0.5]])


@DTYPES
def test_slopes_of_modes(dtype):
    counts = np.array([0.0, 2.0, 3.0], dtype)
    slopes = jax.jit(jax.jacfwd(lambda c: dirichlet_mode(c, None, jnp.ones(3, bool))))
    # of c/Σc, also for the count of zero, which can only grow
    expected = np.eye(3) / 5 - np.outer(counts / 25, np.ones(3))
    near(slopes(jnp.asarray(counts)), expected, dtype)
    family = fd.Categorical(jnp.full((1, 3), 1 / 3, dtype))
    counts = np.array([1.0, 2.0, 3.0], dtype)
    of_prior = jax.jit(
        jax.jacfwd(lambda c: fd.DirichletPrior(family, (1 + c)[None]).mode().probabilities[0])
    )
    near(of_prior(jnp.asarray(counts)), np.eye(3) / 6 - np.outer(counts / 36, np.ones(3)), dtype)


@eqx.filter_jit
def _mode_and_slope(prior):
    slope = jax.jacfwd(lambda a: fd.GammaPrior(prior.family, a, prior.rate).mode().rate)(prior.shape)
    return prior.mode().rate, slope


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e200])
def test_the_mode_of_a_rate_has_no_unit(unit):
    prior = fd.GammaPrior(fd.Exponential(jnp.ones(3)), jnp.array([2.5, 1.0, 0.5]), jnp.full(3, unit))
    rates, slope = _mode_and_slope(prior)
    rate = np.asarray(rates) * unit
    assert rate[0] == pytest.approx(1.5, rel=1e-14)
    assert ((rate[1:] > 0) & (rate[1:] < 1e-15)).all()
    assert np.asarray(slope)[0, 0] * unit == pytest.approx(1.0, rel=1e-14)


# ---------------------------------------------------------------------------------------------
# Rows that are far away
# ---------------------------------------------------------------------------------------------


def test_rows_are_rescaled_exactly_or_refused():
    scaling = Scaling(np.array([-1e308, 0.0]), np.array([1e153, 1e-60]))
    rows = np.array([[1.7e308, 1.5e248], [-1.7e308, np.nan], [1.0, -3.0]])
    z = scaling.apply(rows)
    for i, j in np.argwhere(~np.isnan(rows)):
        exact = (Fraction(rows[i, j]) - Fraction(scaling.shift[j])) / Fraction(scaling.scale[j])
        assert z[i, j] == pytest.approx(float(exact), rel=1e-15)
    assert np.isnan(z[1, 1])
    with pytest.raises(
        ValueError,
        match=r"X must hold numbers less than 1\.8e\+308 times the scale 1e-60 of their column away from "
        r"those of the fit\. Got -2e\+250 in column 1\.",
    ):
        scaling.apply(np.array([[0.0, 0.0], [0.0, -2e250]]))


def test_a_row_too_far_for_a_number_is_refused_and_named():
    model = fe.BayesianMixture(2, random_state=0).fit(np.random.default_rng(9).normal(size=(30, 2)) * 1e-60)
    # Student's tails fall as a power as long as there are numbers
    lower, higher = model.score_samples([[1e240, 0.0], [1e247, 0.0]])
    tails = np.asarray(model.model_.posteriors().degrees) - 1
    assert -(higher - lower) / (7 * math.log(10)) == pytest.approx(tails.min() + 2, rel=1e-6)
    with pytest.raises(ValueError, match=r"X must hold numbers less .* Got 1e\+249 in row 1, column 0\."):
        model.score_samples([[1e240, 0.0], [1e249, 0.0]])


def test_a_difference_of_scores_that_overflows_is_refused():
    X = 10 * np.random.default_rng(10).normal(size=(40, 1))
    model = fe.SoftmaxRegression(C=1e4).fit(X, (X[:, 0] > 0).astype(int))
    weight = abs(model.coef_[1, 0] - model.coef_[0, 0])
    far = np.finfo(float).max / weight * 1.5
    assert model.decision_function([[far / 3]])[0] == pytest.approx(np.finfo(float).max / 2, rel=1e-12)
    with pytest.raises(ValueError, match=r"SoftmaxRegression.decision_function has no answer for row 0"):
        model.decision_function([[far]])


# ---------------------------------------------------------------------------------------------
# Encoders
# ---------------------------------------------------------------------------------------------


@DTYPES
def test_the_width_of_a_code_is_cut_and_its_divergence_is_that_of_the_cut_width(dtype):
    logs = np.array([-1e30, -40.5, -3.0, 0.7, 39.5, 41.0, 1e30], dtype)
    means = np.linspace(-1, 1, 7).astype(dtype)
    prior = fd.Gaussian(jnp.zeros(7, dtype), fd.Diagonal(jnp.ones(7, dtype)))

    @jax.jit
    @jax.value_and_grad
    def divergence(parts):
        encoder = fm.GaussianEncoder(lambda _: jnp.concatenate(parts))
        return fd.kl_divergence(encoder(jnp.zeros(1, dtype)), prior)

    value, (in_mean, in_log) = divergence((jnp.asarray(means), jnp.asarray(logs)))
    cut = np.asarray(logs, float).clip(-40, 40)
    m = np.asarray(means, float)
    near(value, 0.5 * np.sum(np.exp(cut) + m**2 - 1 - cut), dtype)
    near(in_mean, m, dtype)
    expected = np.where(np.abs(logs) > 40, 0, 0.5 * (np.exp(cut) - 1))
    np.testing.assert_allclose(in_log, expected, rtol=64 * np.finfo(dtype).eps)


# ---------------------------------------------------------------------------------------------
# Tails
# ---------------------------------------------------------------------------------------------


@DTYPES
def test_slopes_of_heavy_tails(dtype):
    z = np.array([0.0, 1.0, 1e2, 1e4, 1e10, 1e20, 1e30], dtype)
    eps = float(np.finfo(dtype).eps)

    @jax.jit
    def slopes(x, scale, df):
        """Of Cauchy, and of Student's t."""

        def cauchy(loc, scale):
            return fd.Cauchy(loc, scale).log_prob(x)

        def student(loc, scale):
            return fd.StudentT(loc, scale, df).log_prob(x)

        return [jax.grad(f, argnums=(0, 1))(jnp.zeros_like(x), scale) for f in (cauchy, student)]

    for scale in (1.0, 1e-4, 1e4):
        x, s = np.asarray(z * dtype(scale), dtype), np.full(7, scale, dtype)
        ratio = np.asarray(x, float) / np.asarray(s, float)
        for df in (0.5, 3.0, 1e4):
            found = slopes(jnp.asarray(x), jnp.asarray(s), jnp.full(7, df, dtype))
            for (in_loc, in_scale), nu in zip(found, (1.0, df), strict=True):
                expected = (nu + 1) * ratio / (nu + ratio**2)
                np.testing.assert_allclose(np.asarray(in_loc, float) * scale, expected, rtol=64 * eps)
                # it tends to ν far away
                expected = (nu + 1) * ratio**2 / (nu + ratio**2) - 1
                atol = 64 * eps * (nu + 1)
                np.testing.assert_allclose(np.asarray(in_scale, float) * scale, expected, rtol=0, atol=atol)


@DTYPES
def test_slopes_of_the_tails_of_a_vector(dtype):
    z = np.array([1.0, 1e2, 1e4, 1e10, 1e20, 1e30], dtype)
    S = np.array([[2.0, 0.6], [0.6, 1.0]])

    @jax.jit
    @jax.vmap
    def slopes(x):
        def log_prob(parts):
            return fd.MultivariateT(*parts, jnp.asarray(3.0, dtype)).log_prob(x)

        return jax.grad(log_prob)((jnp.zeros(2, dtype), jnp.asarray(S, dtype)))

    x = np.stack([z, -z / 2], axis=1)
    in_loc, in_scale = slopes(jnp.asarray(x))
    for row, g, G in zip(np.asarray(x, float), in_loc, in_scale, strict=True):
        pull = np.linalg.solve(S, row)
        length = row @ pull
        near(g, 5 * pull / (3 + length), dtype)
        near((G + G.T) / 2, 2.5 * np.outer(pull, pull) / (3 + length) - np.linalg.inv(S) / 2, dtype)


# ---------------------------------------------------------------------------------------------
# Gaussians in all units
# ---------------------------------------------------------------------------------------------

STRUCTURES = ["full", "diagonal", "spherical", "low rank", "tied"]


def covariance(kind, rng, unit, dtype):
    """A structure in the units of its coordinates, and its matrix in units of one."""
    if kind == "tied":
        inner, matrix = covariance("full", rng, unit, dtype)
        return fd.Tied(inner), matrix
    d = rng.uniform(0.5, 2, 3)
    F = rng.normal(size=(3, 1 if kind == "low rank" else 4))
    if kind == "full":
        matrix = F @ F.T
        return fd.Full(jnp.asarray(matrix * np.outer(unit, unit), dtype)), matrix
    if kind == "diagonal":
        return fd.Diagonal(jnp.asarray(d * unit**2, dtype)), np.diag(d)
    if kind == "spherical":
        return fd.Spherical(jnp.asarray(d[0] * unit[0] ** 2, dtype), dim=3), d[0] * np.eye(3)
    low = fd.LowRank(jnp.asarray(F * unit[:, None], dtype), jnp.asarray(d * unit**2, dtype))
    return low, F @ F.T + np.diag(d)


def dense_fisher(m, S, i, j):
    """Cov of x and of x_i x_j, by E[abcd] of normal variables."""
    across = m[i] * S[:, j] + m[j] * S[:, i]
    u, v = i[:, None], j[:, None]

    def fourth(a, b, c, d):
        """Cov(x_a x_b, x_c x_d)."""
        return (
            S[a, c] * S[b, d]
            + S[a, d] * S[b, c]
            + m[a] * (m[c] * S[b, d] + m[d] * S[b, c])
            + m[b] * (m[c] * S[a, d] + m[d] * S[a, c])
        )

    return np.block([[S, across], [across.T, fourth(u, v, i[None, :], j[None, :])]])


UNITS = {
    np.float64: [(1.0, 1.0, 1.0), (1e-150,) * 3, (1e150,) * 3, (1e-150, 1e150, 1.0), (1e-8, 1e8, 1.0)],
    np.float32: [(1.0, 1.0, 1.0), (1e-15,) * 3, (1e15,) * 3, (1e-15, 1e15, 1.0), (1e-8, 1e8, 1.0)],
}


@DTYPES
@pytest.mark.parametrize("kind", STRUCTURES)
def test_gaussians_in_all_units(dtype, kind):
    """Divergence has no unit, entropy has its logarithm, and slopes and moments have powers of it."""

    @jax.jit
    def measures(p, q):
        divergence, slope = jax.value_and_grad(
            lambda mean: fd.kl_divergence(fd.Gaussian(mean, p.covariance), q)
        )(p.mean)
        return divergence, slope, fd.entropy(p), fd.mean_parameters(p), fd.fisher_information(p)

    single = kind in ("diagonal", "spherical")
    i, j = (np.arange(3), np.arange(3)) if single else np.triu_indices(3)
    for unit in UNITS[dtype]:
        unit = np.array(unit)
        if kind == "spherical" and len(set(unit)) > 1:
            continue
        rng = np.random.default_rng(11)
        m, n = rng.normal(size=(2, 3))
        (p, S), (q, T) = (covariance(kind, rng, unit, dtype) for _ in range(2))
        found = measures(
            fd.Gaussian(jnp.asarray(m * unit, dtype), p), fd.Gaussian(jnp.asarray(n * unit, dtype), q)
        )
        divergence, slope, entropy, moments, fisher = (np.asarray(v, float) for v in found)
        inverse, logs = np.linalg.inv(T), np.linalg.slogdet(T)[1] - np.linalg.slogdet(S)[1]
        expected = 0.5 * (np.trace(inverse @ S) + (m - n) @ inverse @ (m - n) - 3 + logs)
        size = 2 * np.abs(np.log(unit)).sum()
        near(divergence, expected, dtype, size=size)
        near(slope * unit, inverse @ (m - n), dtype, 256)
        expected = 0.5 * (3 * (1 + math.log(2 * math.pi)) + np.linalg.slogdet(S)[1]) + np.log(unit).sum()
        near(entropy, expected, dtype, size=size)
        powers = np.concatenate([unit, unit[i] * unit[j]])
        near(moments / powers, np.concatenate([m, (S + np.outer(m, m))[i, j]]), dtype)
        # what numbers of the type can hold
        with np.errstate(all="ignore"):
            expected = dense_fisher(m, S, i, j)
            power = np.outer(powers, powers)
            held = (power > 1e4 * np.finfo(dtype).tiny) & (power < 1e-4 * float(np.finfo(dtype).max))
            near((fisher / power)[held], expected[held], dtype)
        assert held[:3, :3].all()
        assert held.all() == (max(unit.max(), 1 / unit.min()) < 1e9)


@DTYPES
def test_the_distance_of_gaussians_and_its_slopes(dtype):
    rng = np.random.default_rng(12)
    F, G = rng.normal(size=(2, 3, 5))
    S, T, (m, n) = F @ F.T, G @ G.T, rng.normal(size=(2, 3))

    @jax.jit
    def distance(*parts):
        def of(m, S, n, T):
            return fd.wasserstein2(fd.Gaussian(m, fd.Full(S)), fd.Gaussian(n, fd.Full(T)))

        return of(*parts), jax.grad(of, argnums=(0, 1, 3))(*parts)

    def ask(*parts):
        return distance(*(jnp.asarray(v, dtype) for v in parts))

    # equal ones: zero, and a slope that spoils nothing
    for equal in (S, np.eye(3), np.diag([1e-8, 1e8, 1.0]), np.diag([1.0, 0.0, 2.0])):
        value, slopes = ask(m, equal, m, equal)
        assert value == 0
        if equal[1, 1] > 0:
            assert all((np.asarray(g) == 0).all() for g in slopes)
    # others, also with equal eigenvalues: ∂W²/∂Σ = I − T for the map T from one to the other
    for first, second in ((S, T), (np.eye(3), 4 * np.eye(3)), (T, np.eye(3))):
        root = np.real(linalg.sqrtm(second))
        middle = np.real(linalg.sqrtm(root @ first @ root))
        expected = math.sqrt(((m - n) ** 2).sum() + np.trace(first + second - 2 * middle))
        move = root @ np.linalg.inv(middle) @ root
        value, (in_m, in_S, in_T) = ask(m, first, n, second)
        near(value, expected, dtype)
        near(in_m, (m - n) / expected, dtype)
        near((in_S + in_S.T) / 2, (np.eye(3) - move) / (2 * expected), dtype, 1e3)
        near((in_T + in_T.T) / 2, (np.eye(3) - np.linalg.inv(move)) / (2 * expected), dtype, 1e3)
    # means apart and widths equal: as far as the means, with no slope in the widths
    value, (in_m, in_S, in_T) = ask(m, S, n, S)
    near(value, np.linalg.norm(m - n), dtype)
    near(in_S, np.zeros((3, 3)), dtype, size=1.0)


# ---------------------------------------------------------------------------------------------
# Sizes
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "rows", "columns", "numbers", "sentence"),
    [
        (
            fe.NormalizingFlow(width=10**7),
            20,
            3,
            6 * 10**14,
            "NormalizingFlow of 3 columns with 6 layers of width 10,000,000",
        ),
        (
            fe.NormalizingFlow(architecture=fm.autoregressive_flow, layers=4, width=1024),
            5,
            10_000,
            4 * 1024 * (2 * 10_000 + 1024 + 10_000 * 23),
            "NormalizingFlow of 10,000 columns with 4 layers of width 1,024",
        ),
        (
            fe.VAE(width=10**7),
            20,
            3,
            10**7 * (6 + 16 + 8 + 3),
            "VAE of 3 columns with 8 latent entries and layers of width 10,000,000",
        ),
        (
            fe.VAE(10**7),
            20,
            3,
            128 * 3 * 10**7,
            "VAE of 3 columns with 10,000,000 latent entries and layers of width 128",
        ),
    ],
    ids=["flow", "wide table", "network", "code"],
)
def test_networks_that_no_memory_holds_are_refused(estimator, rows, columns, numbers, sentence):
    X = np.random.default_rng(13).normal(size=(rows, columns))
    told = rf"^{sentence} would take [0-9,.]+ GiB; the limit is 2 GiB\. Use"
    with pytest.raises(ValueError, match=told) as refused:
        estimator.fit(X)
    # the weights, four times
    told = float(str(refused.value).split("would take ")[1].split()[0].replace(",", ""))
    assert told * 2**30 == pytest.approx(32 * numbers, rel=0.15)


def test_kernels_that_no_memory_holds_are_refused_and_wide_tables_are_not():
    model = fe.KernelDensity(bandwidth=1.0)
    with pytest.raises(
        ValueError,
        match=r"^KernelDensity of 5 rows and 10,000,000 columns would take 48\.8 GiB; the limit",
    ):
        model._check_size(5, 10**7)
    X = np.random.default_rng(14).normal(size=(5, 10_000))
    z = X / X.std(axis=0)
    # by hand: each row given all five, at the spread of each column
    logs = np.array([[stats.norm.logpdf(a - b).sum() for b in z] for a in z])
    expected = special.logsumexp(logs, axis=1) - math.log(5) - np.log(X.std(axis=0)).sum()
    np.testing.assert_allclose(model.fit(X).score_samples(X), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (
            fd.Full(np.array([[1e6, 1.0], [1.0, 1e-6]])),
            "positive definite matrix. Got a singular one instead",
        ),
        (fd.Diagonal(np.array([1.0, 0.0])), "'variance' parameter of Diagonal must be positive. Got 0"),
        (fd.Spherical(np.array(0.0), dim=2), "'variance' parameter of Spherical must be positive. Got 0"),
    ],
)
def test_a_gaussian_without_variance_in_a_direction_has_no_density(covariance, message):
    # a covariance may be so, of what moves without noise
    with pytest.raises(ValueError, match=message):
        fd.Gaussian(jnp.zeros(2), covariance)


def test_a_gaussian_of_nearly_singular_covariance_is_what_scipy_says():
    matrix = np.array([[1.0, 1 - 1e-9], [1 - 1e-9, 1.0]])
    x = np.array([0.3, 0.3 + 2e-5])
    found = fd.Gaussian(jnp.zeros(2), fd.Full(jnp.asarray(matrix))).log_prob(jnp.asarray(x))
    # along and across the diagonal, of variances 2 − 1e-9 and 1e-9
    along, across = x.sum() / math.sqrt(2), (x[1] - x[0]) / math.sqrt(2)
    expected = stats.norm.logpdf(along, scale=math.sqrt(2 - 1e-9))
    expected += stats.norm.logpdf(across, scale=math.sqrt(1e-9))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# ---------------------------------------------------------------------------------------------
# Free numbers, lengths of documents, standard errors
# ---------------------------------------------------------------------------------------------


@DTYPES
def test_a_weight_of_zero_as_a_free_number(dtype):
    members = fd.Gaussian(jnp.asarray([[0.0], [1.0], [5.0]], dtype), fd.Diagonal(jnp.ones((3, 1), dtype)))
    x = jnp.asarray([0.3], dtype)

    @jax.jit
    def ask(weights):
        free = unconstrain(fm.Mixture(weights, members))
        slopes = jax.grad(lambda f: constrain(f).log_prob(x))(free)
        return constrain(free).weights, slopes.weights

    weights, slopes = ask(jnp.asarray([0.25, 0.75, 0.0], dtype))
    near(weights, [0.25, 0.75, 0.0], dtype)
    joint = np.array([0.25, 0.75]) * stats.norm.pdf(0.3, [0.0, 1.0])
    # responsibilities less weights, as slopes along centred logarithms, of which the contrasts are a basis
    contrasts = jax.jit(jax.jacobian(lambda free: jnp.log(simplex.from_free(free))))(np.zeros(2))
    expected = np.append(joint / joint.sum() - [0.25, 0.75], 0.0)
    near(slopes, expected @ np.asarray(contrasts), dtype)


def test_documents_of_which_nothing_was_seen_say_nothing_of_lengths():
    rng = np.random.default_rng(15)
    X = rng.poisson(3.0 * np.array([0.5, 1.0, 2.0, 0.2]), size=(12, 4)).astype(float)
    X[::3, 1] = np.nan
    X[1::3, 2] = np.nan
    whole = sparse.csr_matrix(X)
    more = sparse.csr_matrix(np.vstack([X, np.full((2, 4), np.nan)]))
    seen, again = observed_share(whole, np.ones(12)), observed_share(more, np.ones(14))
    np.testing.assert_allclose(again[:12], seen, rtol=1e-9)
    assert (again[12:] < 1e-12).all()
    lengths = np.nansum(X, axis=1)
    law = LengthLaw.of(lengths, np.ones(12), seen)
    other = LengthLaw.of(np.append(lengths, [0.0, 0.0]), np.ones(14), again)
    np.testing.assert_allclose(other, law, rtol=1e-9)

    # maximum likelihood of a Poisson for each entry, by a search over the shares
    def loss(logits):
        share = special.softmax(np.append(logits, 0.0))
        part = np.where(np.isnan(X), 0, share).sum(axis=1)
        rates = lengths[:, None] / part[:, None] * share[None, :]
        return np.nansum(rates - special.xlogy(X, rates))

    share = special.softmax(np.append(optimize.minimize(loss, np.zeros(3), tol=1e-12).x, 0.0))
    np.testing.assert_allclose(seen, np.where(np.isnan(X), 0, share).sum(axis=1), rtol=1e-4)


class _Three(eqx.Module):
    """Two numbers that rows determine very unequally, and one that they do not."""

    values: jax.Array


def _log_prob(row, model):
    return -0.5 * jnp.sum(jnp.array([1e10, 1.0, 0.0]) * (row - model.values) ** 2)


def _values(model):
    return model.values


def test_standard_errors_of_unequal_curvature():
    rows = np.zeros((16, 3))
    model = _Three(jnp.zeros(3))
    with pytest.warns(UserWarning, match="singular"):
        errors = standard_errors(model, _Three(True), [Terms(Data.of(rows), _log_prob)], _values)
    np.testing.assert_allclose(errors, [1e-5 / 4, 1 / 4, np.nan], rtol=1e-9)
