"""Gaussian processes with answers of any law beside quadrature, exact algebra and finite differences."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from data import ROWS
from scipy import integrate, optimize, stats
from scipy.special import gammaln, logsumexp
from sklearn import gaussian_process
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as peer

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy import kernels as k
from freeenergy.estimators.labelled._kernelled import LogParameters
from freeenergy.estimators.labelled._latent import LatentEvidences, answer_of, averaged_laws
from freeenergy.estimators.labelled._sparse_process import SparseProcess
from freeenergy.inference import AbstractValuesMethod, LaplaceMethod, VariationalGaussian
from freeenergy.inference._latent_processes import AnswerLikelihood, LabelLikelihood, SiteFactor
from freeenergy.learning import InducedBatches, InducedValuesAlone, Optimiser, fit
from freeenergy.models import AnsweredProcess, InducedValues
from freeenergy.shell import Scaling

RNG = np.random.default_rng(0)
X = ROWS
MEAN = 0.5 + 0.7 * np.sin(2 * X[:, 0]) + 0.2 * X[:, 1]
COUNTS = RNG.poisson(np.exp(MEAN)).astype(float)
NEW = RNG.normal(size=(5, 2))
PLAIN = {"standardise": False, "learn": False}
METHODS = [LaplaceMethod(), VariationalGaussian()]
ONE = np.ones(1)
# a family, answers of it, and log p(y | f)
FAMILIES = {
    "Poisson": (d.Poisson, COUNTS, lambda y, f: stats.poisson(np.exp(f)).logpmf(y)),
    "Bernoulli": (
        d.Bernoulli,
        (COUNTS > 1) * 1.0,
        lambda y, f: stats.bernoulli(1 / (1 + np.exp(-f))).logpmf(y),
    ),
    "NegativeBinomial": (
        d.NegativeBinomial(2.0 * ONE, ONE),
        COUNTS,
        lambda y, f: stats.nbinom(2.0, 2.0 / (2.0 + np.exp(f))).logpmf(y),
    ),
    "Gamma": (
        d.Gamma(3.0 * ONE, ONE),
        COUNTS + 0.5,
        lambda y, f: stats.gamma(3.0, scale=np.exp(f) / 3.0).logpdf(y),
    ),
    "StudentT": (
        d.StudentT(0 * ONE, 0.3 * ONE, 4.0 * ONE),
        MEAN + 0.3 * RNG.standard_t(1.5, size=len(X)),
        lambda y, f: stats.t(4.0, f, 0.3).logpdf(y),
    ),
}


def curves(name, rows):
    """Those of the first rows of a family."""
    family, y, _ = FAMILIES[name]
    return AnswerLikelihood(answer_of(family, y[:, None]), y[:rows], np.ones(rows), 0.0)


@pytest.mark.parametrize("name", FAMILIES)
def test_curves_are_those_of_scipy_and_differences(name):
    _, y, log_prob = FAMILIES[name]
    f, own = np.linspace(-1.0, 1.5, 6), curves(name, 6)
    found = own.at(f)
    np.testing.assert_allclose(found.value, log_prob(y[:6], f), rtol=1e-8, atol=1e-10)
    ends = own.at(f + 1e-5), own.at(f - 1e-5)
    for order in range(3):
        step = (ends[0][order] - ends[1][order]) / 2e-5
        np.testing.assert_allclose(found[order + 1], step, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------------------------------------
# two rows, by brute force
# ---------------------------------------------------------------------------------------------

GRAM = np.array([[1.2, 0.7], [0.7, 0.9]])
_GRID = np.linspace(-8.0, 8.0, 321)
_PAIR = np.stack(np.meshgrid(_GRID, _GRID, indexing="ij"), axis=-1)


@pytest.mark.parametrize("name", FAMILIES)
def test_two_rows_are_as_quadrature_has_them(name):
    _, y, log_prob = FAMILIES[name]
    y = y[:2]
    logs = stats.multivariate_normal(np.zeros(2), GRAM).logpdf(_PAIR) + log_prob(y, _PAIR).sum(axis=-1)
    cell = 2 * np.log(_GRID[1] - _GRID[0])
    exact = logsumexp(logs) + cell
    mean = (np.exp(logs + cell - exact)[..., None] * _PAIR).sum(axis=(0, 1))
    bound = VariationalGaussian()(GRAM, curves(name, 2))
    assert exact - 0.1 < bound.log_evidence < exact + 1e-9
    np.testing.assert_allclose(bound.mean, mean, atol=0.12)
    estimate = LaplaceMethod()(GRAM, curves(name, 2))
    assert abs(estimate.log_evidence - exact) < 0.3
    # the formula of Laplace with the mode and curvature by another way
    energy = lambda f: 0.5 * f @ np.linalg.solve(GRAM, f) - log_prob(y, f).sum()  # noqa: E731
    best = optimize.minimize(
        energy, estimate.mean, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13}
    )
    np.testing.assert_allclose(estimate.mean, best.x, atol=1e-5)
    step = 1e-4 * np.eye(2)
    hessian = np.array(
        [
            [
                sum(s * t * energy(best.x + s * a + t * b) for s in (1, -1) for t in (1, -1)) / 4e-8
                for a in step
            ]
            for b in step
        ]
    )
    dense = -best.fun - 0.5 * np.linalg.slogdet(GRAM @ hessian)[1]
    assert abs(estimate.log_evidence - dense) < 1e-5


@pytest.mark.parametrize("name", ["Poisson", "StudentT"])
def test_no_other_gaussian_has_a_higher_bound(name):
    _, y, log_prob = FAMILIES[name]
    nodes, shares = np.polynomial.hermite_e.hermegauss(80)
    shares = shares / shares.sum()
    found = VariationalGaussian()(GRAM, curves(name, 2))

    def minus_bound(place):
        mean, root = place[:2], np.array([[np.exp(place[2]), 0.0], [place[3], np.exp(place[4])]])
        spread = np.sqrt((root**2).sum(axis=1))
        fit = sum(shares @ log_prob(y[i], mean[i] + spread[i] * nodes) for i in range(2))
        solved = np.linalg.solve(GRAM, root)
        kl = 0.5 * ((root * solved).sum() + mean @ np.linalg.solve(GRAM, mean) - 2)
        kl += 0.5 * np.linalg.slogdet(GRAM)[1] - place[2] - place[4]
        return kl - fit

    best = min(
        optimize.minimize(minus_bound, np.append(found.mean, start)).fun
        for start in ([-0.5, 0.1, -0.5], [0.0, 0.0, 0.0])
    )
    # of a law with heavy tails, precisions of sites are held at zero
    assert -best - (1e-6 if name == "Poisson" else 5e-3) < found.log_evidence < -best + 1e-6


# ---------------------------------------------------------------------------------------------
# slopes
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=["laplace", "variational"])
@pytest.mark.parametrize("name", ["Poisson", "Gamma", "StudentT"])
def test_slopes_are_those_of_finite_differences(name, method):
    _, y, _ = FAMILIES[name]
    weight = np.arange(30) % 3 * 0.5
    family = LogParameters.of(curves(name, 3).answer)
    seen = LatentEvidences(
        LogParameters.of(1.3 * k.RBF([0.8, 1.7])),
        X[:30],
        weight[:, None],
        lambda logs: [AnswerLikelihood(family.kernel(logs), y[:30], weight, 0.1)],
        family,
        method,
    )
    theta = seen.start
    value, slope = seen.evidence(theta)
    assert value == seen.evidence(theta, slope=False)[0]
    if name == "StudentT" and isinstance(method, LaplaceMethod):
        assert (seen.told(theta)[2][0].factor.precision < 0).any()
    for place in range(len(theta)):
        step = 1e-4 * np.eye(len(theta))[place]
        ends = [seen.evidence(theta + s * step, slope=False)[0] for s in (1, -1)]
        np.testing.assert_allclose(slope[place], (ends[0] - ends[1]) / 2e-4, rtol=2e-4, atol=2e-5)


def test_sites_of_any_sign_are_dense_algebra():
    gram = (1.5 * k.Matern(2.5)).gram(X[:6])
    precision = np.array([1.0, -0.05, 2.0, 0.0, 0.5, -0.1])
    cross = RNG.normal(size=(3, 6))
    for own in (precision, np.abs(precision)):
        factor = SiteFactor(gram, own)
        dense = np.diag(own) @ np.linalg.inv(np.eye(6) + gram @ np.diag(own))
        np.testing.assert_allclose(factor.matrix(), dense, atol=1e-10)
        np.testing.assert_allclose(factor.explained(cross), cross @ dense @ cross.T, atol=1e-10)
        np.testing.assert_allclose(
            factor.explained(cross, each=True), np.diag(cross @ dense @ cross.T), atol=1e-10
        )
        assert abs(factor.log_det - 0.5 * np.linalg.slogdet(np.eye(6) + gram @ np.diag(own))[1]) < 1e-10


# ---------------------------------------------------------------------------------------------
# the estimator
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=["laplace", "variational"])
def test_with_gaussian_answers_it_is_the_exact_process(method):
    y = MEAN + 0.3 * RNG.normal(size=len(X))
    kernel = 1.5 * k.RBF([0.7, 2.0])
    exact = fe.GaussianProcess(kernel, noise=0.2, **PLAIN).fit(X, y)
    member = d.Gaussian(0 * ONE, d.Diagonal(0.2 * ONE))
    seen = AnswerLikelihood(d.Given(member, d.Mean()), y, np.ones(len(X)), 0.0)
    found = method(kernel.gram(X), seen)
    assert abs(found.log_evidence - exact.log_evidence_) < 1e-8
    np.testing.assert_allclose(found.mean, exact.predict_function(X)[0], atol=1e-8)
    np.testing.assert_allclose(np.sqrt(found.variance), exact.predict_function(X)[1], atol=1e-8)
    # with the variance learned it is that of the exact process
    model = fe.GaussianProcess(kernel, family=member, method=method, **PLAIN).fit(X, y)
    learned = fe.GaussianProcess(kernel, **PLAIN).fit(X, y)
    assert abs(model.log_evidence_ - learned.log_evidence_) < 1e-3
    law, other = model.predict_density(NEW), learned.predict_density(NEW)
    np.testing.assert_allclose(law.mean(), other.mean(), atol=1e-3)
    np.testing.assert_allclose(law.log_prob(MEAN[:5]), other.log_prob(MEAN[:5]), atol=2e-3)
    np.testing.assert_allclose(law.quantile(0.9), other.quantile(0.9), atol=2e-3)


def test_with_labels_it_is_the_classifier_and_scikit_learn():
    labels = FAMILIES["Bernoulli"][1]
    kernel = 2.0 * k.RBF([0.8, 1.5])
    model = fe.GaussianProcess(kernel, family=d.Bernoulli, **PLAIN).fit(X, labels)
    other = gaussian_process.GaussianProcessClassifier(2.0 * peer.RBF([0.8, 1.5]), optimizer=None)
    other.fit(X, labels)
    assert abs(model.log_evidence_ - other.log_marginal_likelihood_value_) < 1e-6
    classifier = fe.GaussianProcessClassifier(kernel, **PLAIN).fit(X, labels)
    np.testing.assert_allclose(model.predict(NEW), classifier.predict_proba(NEW)[:, 1], atol=1e-7)
    bound = fe.GaussianProcessClassifier(kernel, method=VariationalGaussian(), **PLAIN).fit(X, labels)
    same = VariationalGaussian()(kernel.gram(X), LabelLikelihood(2 * labels - 1, np.ones(len(X))))
    assert abs(bound.log_evidence_ - same.log_evidence) < 1e-9
    assert "(lower bound)" in str(bound.summary())


@pytest.fixture(scope="module")
def counted():
    return fe.GaussianProcess(family=d.Poisson).fit(X, COUNTS)


def test_counts_are_learned_and_kept_in_a_file(counted, tmp_path):
    truth = stats.pearsonr(counted.predict(X), np.exp(MEAN))[0]
    assert truth > 0.85
    assert counted.converged_
    assert (
        counted.evidence(X, COUNTS).nats.mean()
        > fe.BaseRate().fit(X, COUNTS).evidence(X, COUNTS).nats.mean()
    )
    low, high = counted.predict_interval(X, 0.9)
    assert ((low <= COUNTS) & (high >= COUNTS)).mean() > 0.85
    assert (low == np.floor(low)).all()
    assert "(estimate" in str(counted.summary())
    f, spread = counted.predict_function(NEW)
    np.testing.assert_allclose(counted.predict(NEW), np.exp(f + 0.5 * spread**2), rtol=1e-6)
    draws = counted.sample_functions(NEW, 4000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=0.08)
    assert counted.answer_.link == d.Natural()
    assert abs(counted.offset_ - np.log(COUNTS.mean())) < 0.01
    counted.save(tmp_path / "model.safetensors")
    loaded = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(NEW), counted.predict(NEW))
    # the model says the same of one row
    z = counted.scaling_.apply(NEW[:1])[0]
    energy = jax.jit(AnsweredProcess.energy)(counted.model_, z, np.array([2.0]))
    np.testing.assert_allclose(-energy, counted.evidence(NEW[:1], [2.0]).nats[0], rtol=1e-6)
    assert counted.model_.latent(z) == d.Counts()


def test_answers_that_are_not_known_are_left_out_and_weights_are_repetition():
    kernel = 0.8 * k.RBF()
    holes = COUNTS.copy()
    holes[::3] = np.nan
    options = {"family": d.Poisson, "learn": False, "standardise": False}
    one = fe.GaussianProcess(kernel, **options).fit(X, holes)
    other = fe.GaussianProcess(kernel, **options).fit(X[~np.isnan(holes)], holes[~np.isnan(holes)])
    assert abs(one.log_evidence_ - other.log_evidence_) < 1e-8
    np.testing.assert_allclose(one.predict(NEW), other.predict(NEW), rtol=1e-7)
    weight = np.arange(len(X)) % 3
    place = np.repeat(np.arange(len(X)), weight)
    one = fe.GaussianProcess(kernel, **options).fit(X, COUNTS, sample_weight=weight)
    other = fe.GaussianProcess(kernel, **options).fit(X[place], COUNTS[place])
    assert abs(one.log_evidence_ - other.log_evidence_) < 1e-8
    np.testing.assert_allclose(one.predict(NEW), other.predict(NEW), rtol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_laws_are_averages_over_f(name):
    family, y, log_prob = FAMILIES[name]
    answer = answer_of(family, y[:, None])
    mean, spread = np.array([0.3, -0.5, 1.0]), np.array([0.2, 1.0, 0.0])
    laws = averaged_laws(answer, mean, spread, Scaling.identity(1), lambda a: a[:, 0])
    for row in range(2):
        f = stats.norm(mean[row], spread[row])
        exact = integrate.quad(
            lambda v, f=f, row=row: np.exp(log_prob(y[row], v)) * f.pdf(v),
            *f.interval(1 - 1e-13),
            limit=200,
        )[0]
        np.testing.assert_allclose(np.exp(laws.log_prob(y[:3]))[row], exact, rtol=1e-5)
    np.testing.assert_allclose(laws.log_prob(y[:3])[2], log_prob(y[2], 1.0), rtol=1e-6)


def test_laws_that_are_much_narrower_than_f_overlap():
    answer = answer_of(d.Gamma(2000.0 * ONE, ONE), np.ones((3, 1)))
    laws = averaged_laws(answer, np.zeros(1), np.ones(1), Scaling.identity(1), lambda a: a[:, 0])
    # the logarithm is nearly normal
    y = np.array([0.3, 0.95, 2.1])
    found = [laws.log_prob([own])[0] for own in y]
    np.testing.assert_allclose(found, stats.lognorm(1.0).logpdf(y), atol=2e-3)


# the page of Gaussian processes has a small one in every run
@pytest.mark.slow
def test_robust_answers_stand_an_outlier():
    rows, mean = X[:40], MEAN[:40]
    y = mean + 0.05 * np.random.default_rng(1).normal(size=40)
    y[::10] += 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = fe.GaussianProcess(family=d.StudentT, method=VariationalGaussian(), max_iter=25).fit(
            rows, y
        )
    plain = fe.GaussianProcess().fit(rows, y)
    good = np.arange(40) % 10 != 0
    errors = [np.abs(one.predict_function(rows)[0] - mean)[good].mean() for one in (model, plain)]
    assert errors[0] < 0.5 * errors[1]
    assert model.log_evidence_ > plain.log_evidence_


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"family": "poisson"}, COUNTS, "'family' parameter of GaussianProcess must be a family"),
        ({"family": d.Dirichlet}, COUNTS, "with a distribution function, such as Poisson"),
        ({"family": d.Poisson, "noise": 0.1}, COUNTS, "must be None with a 'family'"),
        ({"family": d.Poisson}, COUNTS - 1, "with the family Poisson must be in Counts. Got -1 instead"),
        ({"family": d.Poisson}, np.stack([COUNTS, COUNTS], axis=1), "must have one number a row. Got 2"),
        (
            {"family": d.Given(d.Gamma(ONE, ONE), d.Free())},
            COUNTS + 1,
            "a link with one number. Got 1 and 2",
        ),
        ({"family": d.Poisson, "method": "laplace"}, COUNTS, "instance of AbstractValuesMethod or None"),
    ],
)
def test_what_is_refused(options, y, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianProcess(**options).fit(X, y)


def test_what_a_family_does_not_have(counted):
    with pytest.raises(ValueError, match="has loo_ where noise is Gaussian"):
        _ = counted.loo_
    with pytest.raises(AttributeError, match="answer_ is there where answers have a family"):
        _ = fe.GaussianProcess(**PLAIN).fit(X[:20], MEAN[:20]).answer_
    assert isinstance(LaplaceMethod(), AbstractValuesMethod)


# ---------------------------------------------------------------------------------------------
# inducing points and batches
# ---------------------------------------------------------------------------------------------

POINTS = X[:12]
SPARSE = {"inducing": POINTS, "learn": False, "standardise": False, "max_iter": 3, "learning_rate": 1e-3}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_batches_end_at_the_collapsed_bound():
    y = MEAN + 0.3 * RNG.normal(size=len(X))
    kernel = 1.5 * k.RBF([0.7, 2.0])
    batches = fe.GaussianProcess(kernel, noise=0.1, batch_size=32, **SPARSE).fit(X, y)
    whole = fe.GaussianProcess(kernel, noise=0.1, **SPARSE).fit(X, y)
    assert abs(batches.log_evidence_ - whole.log_evidence_) < 1e-6
    np.testing.assert_allclose(batches.predict(NEW), whole.predict(NEW), atol=1e-6)
    np.testing.assert_allclose(
        batches.predict_density(NEW).std(), whole.predict_density(NEW).std(), rtol=1e-6
    )
    assert "(lower bound)" in str(batches.summary())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_with_all_rows_as_points_counts_have_the_bound_of_all_rows(tmp_path):
    kernel = 0.8 * k.RBF([0.7, 2.0])
    holes = COUNTS.copy()
    holes[::5] = np.nan
    options = SPARSE | {"inducing": X[~np.isnan(holes)]}
    model = fe.GaussianProcess(kernel, family=d.Poisson, batch_size=64, **options).fit(X, holes)
    exact = fe.GaussianProcess(kernel, family=d.Poisson, method=VariationalGaussian(), **PLAIN).fit(
        X, holes
    )
    assert abs(model.log_evidence_ - exact.log_evidence_) < 1e-4
    np.testing.assert_allclose(model.predict(NEW), exact.predict(NEW), rtol=1e-3)
    assert "(lower bound)" in str(model.summary())
    fewer = fe.GaussianProcess(kernel, family=d.Poisson, batch_size=64, **SPARSE).fit(X, holes)
    assert fewer.log_evidence_ < exact.log_evidence_
    fewer.save(tmp_path / "model.safetensors")
    loaded = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(NEW), fewer.predict(NEW))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_batches_learn_what_all_rows_do():
    rng = np.random.default_rng(3)
    x = rng.uniform(-3, 3, size=(500, 1))
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=500)
    options = {"inducing": 15, "random_state": 0}
    whole = fe.GaussianProcess(**options).fit(x, y)
    batches = fe.GaussianProcess(**options, batch_size=64, learning_rate=0.03, max_iter=60).fit(x, y)
    # it has the prior of lengths and noise no more than the bound has
    assert batches.log_evidence_ > whole.log_evidence_ - 10
    np.testing.assert_allclose(np.sqrt(batches.noise_), 0.2, rtol=0.1)
    assert batches.history_["objective"][-1] < batches.history_["objective"][0]
    assert batches.inducing_.shape == (15, 1)
    counts = rng.poisson(np.exp(1 + y)).astype(float)
    model = fe.GaussianProcess(**options, family=d.Poisson, learning_rate=0.03, max_iter=30).fit(x, counts)
    np.testing.assert_allclose(model.predict([[0.8], [2.3]]), np.exp(1 + np.sin([1.6, 4.6])), rtol=0.25)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        (
            {"batch_size": 0, "inducing": 5},
            COUNTS,
            "'batch_size' parameter of GaussianProcess must be an int",
        ),
        ({"batch_size": 32}, COUNTS, "must be None without 'inducing' points. Got 32"),
        ({"batch_size": 32, "inducing": 5}, np.stack([COUNTS, MEAN], axis=1), "must have one number a row"),
    ],
)
def test_wrong_batches_are_refused(options, y, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianProcess(**options).fit(X, y)


def test_the_bound_of_points_is_that_of_closed_forms():
    arrays = X[:12], np.zeros((12, 1)), np.eye(12)[None]
    values = InducedValues(0.8 * k.RBF(), *map(jnp.asarray, arrays))
    start = AnsweredProcess(values, d.Given(d.Poisson(jnp.ones(1))), jnp.full(1, 0.4))
    data = fe.Data.of((X, COUNTS[:, None]))
    key = jax.random.key(0)
    learned = fit(start, InducedBatches(Optimiser(optax.adam, 0.01), 64), data, key=key, max_iter=3)
    assert learned.history["objective"][-1] < learned.history["objective"][0]
    assert not np.allclose(learned.model.process.points, X[:12])
    found = fit(start, InducedValuesAlone(), data, key=key, max_iter=50)
    mean, variance = SparseProcess(found.model.process).at(X)
    f = 0.4 + mean[:, 0]
    told = COUNTS * f - np.exp(f + 0.5 * variance[:, 0]) - gammaln(COUNTS + 1)
    root, centre = np.asarray(found.model.process.root[0]), np.asarray(found.model.process.mean[:, 0])
    covariance = np.linalg.inv(root @ root.T)
    cost = 0.5 * (np.trace(covariance) + centre @ centre - 12 - np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(-found.history["objective"][-1], told.sum() - cost, rtol=1e-9)
