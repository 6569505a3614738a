"""One call for every unknown: energies, causes, missing entries, labels, answers, parameters."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy.distributions import (
    Bernoulli,
    Binary,
    Categories,
    Counts,
    Diagonal,
    Gamma,
    Poisson,
    Reals,
)
from freeenergy.inference import NUTS, ArgMin, Choice, Collapsed, DrawsPosterior, Nature, choose_method
from freeenergy.models import LinearGaussian, Mixture
from freeenergy.shell import named_fields

FAR = 4.5
SHORT = NUTS(steps=500, burn_in=200)


def test_what_is_chosen_for_an_energy_and_why():
    coin = fe.infer(fe.Energy(lambda z: -jnp.sum(z), Binary((2,))), key=0)
    assert coin.nature is Nature.EXACT
    np.testing.assert_allclose(coin.mean(), 1 / (1 + np.exp(-1)))
    assert "by Enumerate, since the unknown has 4 states" in repr(coin)
    assert choose_method(Categories(3, (20,))).why.startswith("Gibbs sampling, since the unknown is finite")
    with pytest.raises(
        TypeError, match=r"No method serves an unknown in Counts\(shape=\(\)\) by itself\. P"
    ):
        choose_method(Counts(()))
    with pytest.raises(TypeError, match=r"a finite part of 1\.02e\+03 states by itself"):
        choose_method((Reals(()), Binary((10,))))


def test_a_finite_part_is_summed_out():
    weights, means = np.array([0.3, 0.7]), np.array([-2.0, 1.5])

    def energy(z):
        log_w = jnp.log(jnp.asarray(weights))[z["which"]]
        return (z["x"] - jnp.asarray(means)[z["which"]]) ** 2 / 2 - log_w + (z["x"] - 1) ** 2 / 2

    space = {"x": Reals(()), "which": Categories(2)}
    choice = choose_method(space)
    assert isinstance(choice, Choice)
    assert isinstance(choice.method, Collapsed)
    found = fe.infer(fe.Energy(energy, space), method=Collapsed(SHORT), key=0)
    # the product of two normal laws, for each component
    share = weights * stats.norm.pdf(1.0, means, np.sqrt(2))
    share /= share.sum()
    (which, x), (which_error, x_error) = found.expect(lambda z: (z["which"], z["x"]))
    assert abs(which - share[1]) < FAR * which_error
    assert abs(x - share @ ((means + 1) / 2)) < FAR * x_error
    with pytest.raises(TypeError, match=r"'method' of Collapsed must give draws\. Got ArgMin instead"):
        fe.infer(fe.Energy(energy, space), method=Collapsed(ArgMin()), key=0)


def test_hidden_causes_of_models():
    factors = LinearGaussian(jnp.array([[1.0], [0.5]]), jnp.zeros(2), Diagonal(jnp.ones(2)))
    x = np.array([1.0, 2.0])
    exact = fe.infer(factors, x, key=0)
    drawn = fe.infer(factors, x, method=SHORT, key=0)
    mean = (x @ [1.0, 0.5]) / 2.25
    np.testing.assert_allclose(exact.mean(), [mean])
    value, error = drawn.expect(lambda z: z)
    assert (np.abs(value - mean) < FAR * error).all()
    assert exact.note == "the exact posterior, which LinearGaussian knows"
    mixture = Mixture(jnp.array([0.5, 0.5]), Poisson(jnp.array([[1.0], [6.0]])))
    label = fe.infer(mixture, np.array([3.0]), key=0)
    odds = stats.poisson.pmf(3, [1, 6])
    np.testing.assert_allclose(label.probabilities, odds / odds.sum())
    with pytest.raises(ValueError, match=r"infer needs what is 'observed' of the model"):
        fe.infer(mixture, key=0)


def _fitted(name):
    case = CASES[name]
    X = case.data()
    if X is None:
        X = np.random.RandomState(0).multivariate_normal([1.0, -2.0], [[1.0, 0.6], [0.6, 2.0]], 120)
    return _learned(case.estimator, X), X


def _learned(estimator, X):
    with warnings.catch_warnings():
        # the fits of tests are short
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(X)


ROWS = [
    name
    for name, case in CASES.items()
    if case.density and not case.sequence and not case.slow and name != "Dequantised"
]


@pytest.mark.parametrize("name", ROWS)
def test_the_missing_entry_of_every_density_by_two_methods(name):
    """Draws of the density itself, and its log p along the missing entry, which nothing else has made."""
    model, X = _fitted(name)
    row = X[:1].copy()
    row[0, -1] = np.nan
    found = fe.infer(model, row, key=0)
    [column] = found.draws
    values = np.asarray(found.draws[column]).ravel()
    space = found.spaces[0]
    if isinstance(space, Reals):
        half = 0.8 * np.ptp(values)
        grid = np.median(values) + np.linspace(-half, half, 121)
    else:
        grid = np.arange(0.0, 2.0 if CASES[name].points is not None and not CASES[name].counts else 40.0)
    rows = np.tile(row, (len(grid), 1))
    rows[:, -1] = grid
    with np.errstate(under="ignore"):
        density = np.exp(model.score_samples(rows) - model.score_samples(row))
    density /= density.sum()
    mean = density @ grid
    spread = np.sqrt(density @ (grid - mean) ** 2)
    rough = 0.0 if found.log_evidence.kind is fe.Kind.EXACT else 0.15 * spread
    assert abs(values.mean() - mean) < FAR * spread / len(values) ** 0.5 + rough
    assert abs(values.std() - spread) < 0.1 * spread + rough
    np.testing.assert_allclose(found.log_evidence.nats, model.score_samples(row)[0])
    if isinstance(space, Reals):
        filled = model.impute(row)[0, -1]
        assert abs(filled - mean) < FAR * spread / 1000**0.5 + rough
    assert found.note.startswith("independent draws of the missing entries given the others, which")


@pytest.mark.parametrize("name", ["GaussianMixture", "FactorAnalysis", "KernelDensity"])
def test_missing_entries_by_a_sampler_agree_with_the_density(name):
    model, X = _fitted(name)
    row = np.array([[X[0, 0], np.nan]])
    own, walked = (fe.infer(model, row, method=method, key=0) for method in (None, SHORT))
    (a, a_error), (b, b_error) = (found.expect(lambda z: z["x1"]) for found in (own, walked))
    assert abs(a - b) < FAR * np.hypot(a_error, b_error)


@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if case.sequence and not case.slow and case.density]
)
def test_missing_entries_of_every_density_of_series(name):
    case = CASES[name]
    rng = np.random.RandomState(0)
    if case.symbols:
        X = rng.randint(0, case.symbols, (60, 1)).astype(float)
    else:
        X = np.cumsum(rng.normal(size=(60, 2)), axis=0)
    if name == "StructuralTimeSeries":
        X = X[:, :1]
    model = _learned(case.estimator, X)
    short = X[:16].copy()
    short[5, 0] = np.nan
    found = fe.infer(model, short, key=0)
    assert list(found.draws) == ["x0[5]"]
    values = np.asarray(found.draws["x0[5]"]).ravel()
    if case.symbols:
        share = np.array([np.mean(values == v) for v in range(case.symbols)])
        tried = np.stack([np.where(np.isnan(short), v, short) for v in range(case.symbols)])
        chances = np.exp([model.evidence(one).nats[0] for one in tried])
        assert np.abs(share - chances / chances.sum()).max() < FAR * 0.5 / len(values) ** 0.5
        return
    filled = model.impute(short)[5, 0]
    rough = 0.0 if found.log_evidence.kind is fe.Kind.EXACT else 0.2
    assert abs(values.mean() - filled) < (FAR / len(values) ** 0.5 + rough) * values.std()


def test_labels_and_answers():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(80, 2))
    classifier = fe.NaiveBayes().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    found = fe.infer(classifier, X[:1], key=0)
    np.testing.assert_allclose(found.probabilities, classifier.predict_proba(X[:1])[0])
    assert found.spaces == (Categories(2),)
    ridge = fe.Ridge().fit(X, X @ [1.0, 2.0] + rng.normal(size=80))
    answer = fe.infer(ridge, X[:1], key=0)
    law = ridge.predict_density(X[:1])
    mean, error = answer.expect(lambda y: y)
    assert abs(mean - law.mean()[0]) < FAR * error
    low, high = answer.interval(0.9)
    np.testing.assert_allclose([low, high], np.ravel(law.interval(0.9)), atol=0.2)


def test_parameters_with_a_prior_on_a_field():
    counts = np.array([[2.0], [0.0], [3.0], [1.0], [4.0]])
    prior = {"rate": Gamma(jnp.array([2.0]), jnp.array([1.0]))}
    found = fe.infer(Poisson(jnp.ones(1)), counts, prior=prior, method=SHORT, key=0)
    a, b = 2 + counts.sum(), 1 + len(counts)
    mean, error = found.expect(lambda m: m.rate[0])
    assert abs(mean - a / b) < FAR * error
    thinned = np.asarray(found.draws.rate)[:, ::5].ravel()
    assert stats.kstest(thinned, stats.gamma(a, scale=1 / b).cdf).pvalue > 1e-4
    assert list(named_fields(found.mean())) == ["rate"]
    with pytest.raises(
        ValueError, match=r"The 'prior' must name fields of Poisson: rate\. Got 'mean' inst"
    ):
        fe.infer(Poisson(jnp.ones(1)), counts, prior={"mean": prior["rate"]}, key=0)


def test_parameters_of_a_fitted_mixture():
    rng = np.random.RandomState(0)
    X = np.concatenate([rng.normal(-3, 1, (30, 1)), rng.normal(3, 1, (60, 1))])
    model = fe.GaussianMixture(2, random_state=0).fit(X)

    def log_prior(m):
        spread = jnp.diagonal(m.components.covariance.value, axis1=-2, axis2=-1)
        logs = jnp.log(spread)
        return jnp.sum(jnp.log(m.weights)) - jnp.sum(m.components.mean**2) / 200 - jnp.sum(logs**2)

    found = fe.infer(model, X, prior=log_prior, method=NUTS(steps=300, burn_in=200), key=0)
    weights, error = found.expect(lambda m: jnp.sort(m.weights))
    # two far components: the labels are as good as known, and Dirichlet(2, 2) meets 30 and 60
    np.testing.assert_allclose(weights, np.array([32, 62]) / 94, atol=FAR * np.max(error) + 0.01)


def _weak_prior(model):
    """Normal laws about zero of all numbers, wide ones."""
    return (
        -sum(jnp.sum(jnp.square(v)) for v in named_fields(model).values() if eqx.is_inexact_array(v)) / 200
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HMM", "LinearGaussianSSM"])
def test_parameters_of_models_of_series(name):
    rng = np.random.RandomState(0)
    X = np.where(np.arange(60)[:, None] // 10 % 2, 3.0, -3.0) + rng.normal(size=(60, 1))
    model = _learned(CASES[name].estimator, X)
    with warnings.catch_warnings():
        # short chains, to see that they run
        warnings.simplefilter("ignore", ConvergenceWarning)
        short = NUTS(steps=40, burn_in=40, doublings=5)
        found = fe.infer(model, X, prior=_weak_prior, method=short, key=0)
    assert found.note == ""
    names, chains = found.chains()
    assert np.isfinite(chains).all()
    assert len(names) == chains.shape[2]
    # chains are where the data leave them: about the fit
    assert np.mean(found.diagnostics["energy"]) < -model.score_samples([X])[0] + 30


def test_unknowns_that_are_not_there_are_refused():
    X = np.random.RandomState(0).normal(size=(50, 2))
    model = fe.GaussianDensity().fit(X)
    with pytest.raises(
        ValueError, match=r"^infer asks for what is missing \(NaN\)\. Got nothing that is m"
    ):
        fe.infer(model, X[:1], key=0)
    with pytest.raises(ValueError, match=r"asks GaussianDensity of one row at a time. Got 2 rows instead"):
        fe.infer(model, X[:2], key=0)
    with pytest.raises(
        TypeError, match=r"infer takes an Energy, a model with an energy, .* Got int instead"
    ):
        fe.infer(3, X, key=0)
    with pytest.raises(TypeError, match=r"infer has no unknown to ask KMeans for"):
        fe.infer(fe.KMeans(2).fit(X), X[:1], key=0)
    units = fe.RBM(2, max_iter=2).fit((X > 0).astype(float))
    with pytest.raises(TypeError, match=r"RBM draws what is missing itself"):
        fe.infer(units, [[1.0, np.nan]], method=SHORT, key=0)
    flat = fe.Energy(lambda z: 0.0 * jnp.sum(z), Reals((2,)))
    with pytest.raises(ValueError, match=r"^The posterior is improper"):
        fe.infer(flat, method=SHORT, key=0)


def test_what_is_not_to_be_trusted_is_warned_of():
    far = fe.Energy(lambda z: -jnp.logaddexp(-((z[0] - 30) ** 2), -((z[0] + 30) ** 2)), Reals((1,)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fe.infer(far, method=NUTS(steps=400, burn_in=50), key=0)
    assert isinstance(found, DrawsPosterior)
    assert {w.category for w in caught} == {ConvergenceWarning}
    assert str(caught[0].message).startswith("The chains disagree")
    assert found.warnings == [str(w.message) for w in caught]


def test_a_row_of_probability_zero_is_refused():
    # what never occurred has no probability
    model = fe.Mixture.from_model(
        Mixture(jnp.ones(1), Bernoulli(jnp.array([[0.0, 0.5]]))), family=Bernoulli
    )
    with pytest.raises(ValueError, match=r"What is observed has probability zero under Mixture"):
        fe.infer(model, [[1.0, np.nan]], key=0)
