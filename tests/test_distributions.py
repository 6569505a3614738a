"""Every distribution against scipy, quadrature, enumeration and its own samples."""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special
from scipy import stats as st

from freeenergy import distributions as fd
from freeenergy._core import constrain, parameter_count, unconstrain
from freeenergy.bijections import Exp


def array(*values):
    return jnp.asarray(values, jnp.float64)


SIGMA = np.array([[2.0, 0.6], [0.6, 1.0]])
LOADINGS = np.array([[1.0], [-0.5], [0.8]])
NOISE = np.array([0.5, 1.0, 0.7])


class Labels:
    """A label distribution with the methods that the tests use of scipy's frozen ones."""

    def __init__(self, probabilities):
        self.probabilities = np.asarray(probabilities)

    def logpmf(self, x):
        return np.log(self.probabilities[np.asarray(x, int)])


class Tailed(Labels):
    """Labels, and a geometric law of scipy after them."""

    def __init__(self, first, rest, ratio):
        super().__init__([*first, *(rest * st.geom(1 - ratio, loc=-1).pmf(np.arange(200)))])

    def mean(self):
        return self.probabilities @ np.arange(len(self.probabilities))

    def entropy(self):
        return st.entropy(self.probabilities)


@dataclasses.dataclass(frozen=True)
class Case:
    member: fd.AbstractDistribution
    coordinates: tuple = ()  # scipy's law of each coordinate, where they are independent
    joint: Callable | None = None  # scipy's log density of an event, where they are not
    discrete: bool = False
    support: tuple = ()  # all events of the first coordinate (or of all, for joint laws)

    def log_prob(self, x):
        if self.joint is not None:
            return self.joint(x)
        name = "logpmf" if self.discrete else "logpdf"
        return sum(getattr(law, name)(v) for law, v in zip(self.coordinates, x))


FAMILIES = {
    "bernoulli": Case(
        fd.Bernoulli(array(0.3, 0.8)),
        (st.bernoulli(0.3), st.bernoulli(0.8)),
        discrete=True,
        support=(0.0, 1.0),
    ),
    "binomial": Case(
        fd.Binomial(array(0.3, 0.8), trials=(4, 7)),
        (st.binom(4, 0.3), st.binom(7, 0.8)),
        discrete=True,
        support=tuple(range(5)),
    ),
    "categorical": Case(
        fd.Categorical(array([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])),
        (Labels([0.2, 0.3, 0.5]), Labels([0.6, 0.3, 0.1])),
        discrete=True,
        support=(0.0, 1.0, 2.0),
    ),
    "count table": Case(
        fd.CountTable(array([0.2, 0.3, 0.5], [0.6, 0.3, 0.1]), array(0.5, 0.25)),
        (Tailed([0.2, 0.3], 0.5, 0.5), Tailed([0.6, 0.3], 0.1, 0.25)),
        discrete=True,
        support=tuple(range(60)),
    ),
    "multinomial": Case(
        fd.Multinomial(array(0.2, 0.3, 0.5), trials=4),
        joint=lambda x: st.multinomial(4, [0.2, 0.3, 0.5]).logpmf(x),
        discrete=True,
        support=tuple(x for x in itertools.product(range(5), repeat=3) if sum(x) == 4),
    ),
    "poisson": Case(
        fd.Poisson(array(0.7, 4.0)),
        (st.poisson(0.7), st.poisson(4.0)),
        discrete=True,
        support=tuple(range(8)),
    ),
    "exponential": Case(fd.Exponential(array(0.5, 3.0)), (st.expon(scale=2.0), st.expon(scale=1 / 3))),
    "gamma": Case(
        fd.Gamma(array(0.6, 5.0), array(2.0, 0.5)), (st.gamma(0.6, scale=0.5), st.gamma(5.0, scale=2.0))
    ),
    "beta": Case(fd.Beta(array(0.7, 4.0), array(1.5, 2.0)), (st.beta(0.7, 1.5), st.beta(4.0, 2.0))),
    "dirichlet": Case(
        fd.Dirichlet(array(0.8, 2.0, 3.0)),
        joint=lambda x: st.dirichlet([0.8, 2.0, 3.0]).logpdf(x / x.sum()),
    ),
    "full": Case(
        fd.Gaussian(array(1.0, -2.0), fd.Full(jnp.asarray(SIGMA))),
        joint=st.multivariate_normal([1.0, -2.0], SIGMA).logpdf,
    ),
    "diagonal": Case(
        fd.Gaussian(array(1.0, -2.0), fd.Diagonal(array(4.0, 0.25))), (st.norm(1, 2), st.norm(-2, 0.5))
    ),
    "spherical": Case(
        fd.Gaussian(array(1.0, -2.0), fd.Spherical(jnp.array(4.0), dim=2)), (st.norm(1, 2), st.norm(-2, 2))
    ),
    "location": Case(fd.GaussianLocation(array(1.0, -2.0), 0.25), (st.norm(1, 0.5), st.norm(-2, 0.5))),
    "low rank": Case(
        fd.Gaussian(array(1.0, -2.0, 0.5), fd.LowRank(jnp.asarray(LOADINGS), jnp.asarray(NOISE))),
        joint=st.multivariate_normal([1.0, -2.0, 0.5], LOADINGS @ LOADINGS.T + np.diag(NOISE)).logpdf,
    ),
    "product": Case(
        fd.Product((fd.Bernoulli(array(0.3)), fd.Gamma(array(2.0), array(3.0))), (1, 1)),
        joint=lambda x: st.bernoulli(0.3).logpmf(x[0]) + st.gamma(2.0, scale=1 / 3).logpdf(x[1]),
    ),
}
LOCATION_SCALE = {
    "laplace": Case(
        fd.Laplace(array(1.0, -2.0), array(0.5, 2.0)), (st.laplace(1.0, 0.5), st.laplace(-2.0, 2.0))
    ),
    "cauchy": Case(
        fd.Cauchy(array(1.0, -2.0), array(0.5, 2.0)), (st.cauchy(1.0, 0.5), st.cauchy(-2.0, 2.0))
    ),
    "logistic": Case(
        fd.Logistic(array(1.0, -2.0), array(0.5, 2.0)), (st.logistic(1.0, 0.5), st.logistic(-2.0, 2.0))
    ),
    "hyperbolic secant": Case(
        fd.HyperbolicSecant(array(1.0, -2.0), array(0.5, 2.0)),
        (st.hypsecant(1.0, 1.0 / np.pi), st.hypsecant(-2.0, 4.0 / np.pi)),
    ),
    "student t": Case(
        fd.StudentT(array(1.0, -2.0), array(0.5, 2.0), array(3.0, 7.5)),
        (st.t(3, 1.0, 0.5), st.t(7.5, -2.0, 2.0)),
    ),
}
ALL = FAMILIES | LOCATION_SCALE
INDEPENDENT = {name: case for name, case in ALL.items() if case.coordinates}

families = pytest.mark.parametrize("name", FAMILIES)
everything = pytest.mark.parametrize("name", ALL)
independent = pytest.mark.parametrize("name", INDEPENDENT)


# The tests share these programs and one number of rows, so that each is compiled once a family.
N = 2000


@jax.jit
def sample(member, keys):
    return jax.vmap(lambda k: member.sample(key=k))(keys)


@jax.jit
def log_probs(member, x):
    return jax.vmap(member.log_prob)(x)


@jax.jit
def written_out(member, x):
    """The log density as one inner product, in canonical form, and features both ways."""
    eta, a, coefficients = member.natural(), jnp.sum(member.log_partition()), member.coefficients()

    def one(e):
        f, h = member.features(e), member.log_base(e)
        t = member.statistics(e)
        return coefficients @ f + h, jnp.sum(eta * t) - a + h, f, member.expected_features(e), t.ravel()

    return jax.vmap(one)(x)


@jax.jit
def fit(member, x, w):
    return member.from_features(w @ jax.vmap(member.features)(x))


@jax.jit
def moments(member):
    """Mean parameters at η and η ± h e_i, Fisher information at η, and η there and back."""
    eta = member.natural()
    steps = H * jnp.concatenate([jnp.zeros((1, eta.size)), jnp.eye(eta.size), -jnp.eye(eta.size)])

    def mean(e):
        return fd.mean_parameters(member.from_natural(e.reshape(eta.shape))).ravel()

    means = jax.vmap(lambda step: mean(eta.ravel() + step))(steps)
    return means, fd.fisher_information(member), eta, member.from_natural(eta).natural()


@jax.jit
def gradient(member, x):
    def mean_log_prob(free):
        return jnp.mean(jax.vmap(constrain(free).log_prob)(x))

    return jax.grad(mean_log_prob)(unconstrain(member))


H = 1e-5
kl = jax.jit(fd.kl_divergence)
entropy = jax.jit(fd.entropy)


def of_rows(member, rows):
    """log p of a few rows, by the program for many."""
    rows = np.asarray(rows, float)
    return np.asarray(log_probs(member, np.resize(rows, (N, rows.shape[1]))))[: len(rows)]


@functools.cache
def draws(name):
    return sample(ALL[name].member, jax.random.split(jax.random.key(7), N))


@functools.cache
def forms(name):
    return [np.asarray(v) for v in written_out(FAMILIES[name].member, draws(name))]


@functools.cache
def moments_of(name):
    return [np.asarray(v) for v in moments(FAMILIES[name].member)]


def weights():
    return jnp.asarray(np.random.default_rng(1).uniform(0.5, 2.0, N))


@everything
def test_log_prob_agrees_with_scipy(name):
    case, x = ALL[name], draws(name)
    ours = np.asarray(log_probs(case.member, x))[:50]
    expected = [case.log_prob(row) for row in np.asarray(x)[:50]]
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-10)


@families
def test_log_prob_is_one_inner_product(name):
    inner, canonical, features, expected_features, _ = forms(name)
    direct = log_probs(FAMILIES[name].member, draws(name))
    np.testing.assert_allclose(inner, direct, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(canonical, direct, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(expected_features, features, rtol=1e-12, atol=1e-12)


@independent
def test_missing_coordinate_is_marginalised(name):
    case = INDEPENDENT[name]
    x, law = draws(name), case.coordinates[1]
    partial = x.at[:, 0].set(jnp.nan)
    expected = (law.logpmf if case.discrete else law.logpdf)(np.asarray(x)[:, 1])
    np.testing.assert_allclose(log_probs(case.member, partial), expected, rtol=1e-9, atol=1e-10)
    assert (log_probs(case.member, jnp.full_like(x, jnp.nan)) == 0).all()
    slopes = jax.tree.leaves(gradient(case.member, partial))
    assert all(np.isfinite(leaf).all() for leaf in slopes)


@independent
def test_the_missing_part_is_completed_by_its_mean(name):
    case = INDEPENDENT[name]
    mean = case.member.complete_mean(array(np.nan, 0.5))
    expected = {"categorical": 1.3, "cauchy": 1.0}.get(name)
    np.testing.assert_allclose(
        mean[0], case.coordinates[0].mean() if expected is None else expected, rtol=1e-10
    )
    assert mean[1] == 0.5


@pytest.mark.parametrize("name", ["exponential", "diagonal", "laplace"])
def test_the_missing_part_is_drawn(name):
    case = INDEPENDENT[name]
    x = array(np.nan, 0.5)
    complete = jax.jit(jax.vmap(lambda k: case.member.complete_sample(x, key=k)))
    filled = np.asarray(complete(jax.random.split(jax.random.key(3), N)))
    assert (filled[:, 1] == 0.5).all()
    assert st.kstest(filled[:, 0], case.coordinates[0].cdf).pvalue > 1e-3


@families
def test_mean_parameters_are_the_mean_of_the_statistics(name):
    t, expected = forms(name)[-1], moments_of(name)[0][0]
    assert (np.abs(t.mean(0) - expected) < 5 * t.std(0) / np.sqrt(N) + 1e-12).all()


@families
def test_fisher_information_is_the_covariance_of_the_statistics(name):
    t, (means, fisher, *_) = forms(name)[-1], moments_of(name)
    centred = t - t.mean(0)
    products = centred[:, :, None] * centred[:, None, :]
    assert (np.abs(products.mean(0) - fisher) < 5 * products.std(0) / np.sqrt(N) + 1e-9).all()
    size = len(fisher)
    differences = (means[1 : size + 1] - means[size + 1 :]) / (2 * H)
    np.testing.assert_allclose(fisher, differences, rtol=1e-5, atol=1e-6)


@families
def test_natural_parameters_come_back(name):
    _, _, eta, again = moments_of(name)
    np.testing.assert_allclose(again, eta, rtol=1e-10)


# Spherical and low-rank covariances are curved families, whose moments match only in part
@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("spherical", "low rank")])
def test_fit_matches_the_moments(name):
    member, w = FAMILIES[name].member, weights()
    fitted = fit(member, draws(name), w)
    t = np.asarray(w) @ forms(name)[-1] / w.sum()
    np.testing.assert_allclose(moments(fitted)[0][0], t, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["full", "product"])
def test_fit_from_plain_statistics_is_the_same(name):
    member, w = FAMILIES[name].member, weights()
    total = np.asarray(w) @ forms(name)[-1]
    direct = jax.jit(lambda: member.from_statistics(w.sum(), total))()
    expected = moments(fit(member, draws(name), w))[2]
    np.testing.assert_allclose(moments(direct)[2], expected, rtol=1e-9)


@families
def test_fit_is_a_stationary_point_of_the_likelihood(name):
    member, x, w = FAMILIES[name].member, draws(name), jnp.ones(N)
    fitted = member
    for _ in range(30 if name == "low rank" else 1):
        fitted = fit(fitted, x, w)
    tolerance = 1e-4 if name == "low rank" else 1e-7
    assert all(np.abs(leaf).max() < tolerance for leaf in jax.tree.leaves(gradient(fitted, x)))
    assert log_probs(fitted, x).sum() > log_probs(member, x).sum()


@pytest.mark.parametrize("name", [n for n, c in INDEPENDENT.items() if not c.discrete])
def test_continuous_samples_follow_the_density(name):
    for d, law in enumerate(INDEPENDENT[name].coordinates):
        assert st.kstest(np.asarray(draws(name)[:, d]), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", [n for n, c in ALL.items() if c.discrete])
def test_discrete_samples_have_the_right_frequencies(name):
    case, x = ALL[name], np.asarray(draws(name))
    for event in case.support:
        hits = (x == np.asarray(event)).all(1) if case.joint else x[:, 0] == event
        p = np.exp(case.log_prob(event) if case.joint else case.coordinates[0].logpmf(event))
        assert abs(hits.mean() - p) < 5 * np.sqrt(p * (1 - p) / len(x)) + 1e-12


@pytest.mark.parametrize("name", [n for n, c in FAMILIES.items() if c.discrete])
def test_mass_sums_to_one(name):
    case = FAMILIES[name]
    if case.joint:
        events = np.array(case.support, float)
    else:
        events = np.stack([np.array(case.support, float), np.full(len(case.support), np.nan)], 1)
    tail = 1 - st.poisson(0.7).cdf(7) if name == "poisson" else 0
    mass = np.exp(of_rows(case.member, events)).sum()
    np.testing.assert_allclose(mass, 1 - tail, rtol=1e-10)


def test_multinomial_with_missing_counts_equals_enumeration():
    case = FAMILIES["multinomial"]
    nan = np.nan
    events = np.array(case.support, float)
    p = np.exp([case.log_prob(e) for e in events])
    partials = np.array([[1, nan, nan], [nan, 2, 1], [nan, nan, nan], [4, nan, nan], [1, 1, 2]])
    x = jnp.asarray(np.resize(partials, (N, 3)))
    ours, features = log_probs(case.member, x), written_out(case.member, x)[3]
    means = np.asarray(jax.jit(jax.vmap(case.member.complete_mean))(partials))
    ours, features = np.asarray(ours), np.asarray(features)
    for k, partial in enumerate(partials):
        seen = ~np.isnan(partial)
        match = (events[:, seen] == partial[seen]).all(1)
        np.testing.assert_allclose(ours[k], np.log(p[match].sum()), rtol=1e-9, atol=1e-12)
        expected = p[match] @ events[match] / p[match].sum()
        np.testing.assert_allclose(means[k], expected, rtol=1e-10)
        np.testing.assert_allclose(features[k], [*expected[:-1], 1.0], rtol=1e-10)
    complete = jax.jit(jax.vmap(lambda e, k: case.member.complete_sample(e, key=k)))
    keys = jax.random.split(jax.random.key(0), N)
    filled = np.asarray(complete(x, keys))
    np.testing.assert_array_equal(filled.sum(1), 4.0)
    np.testing.assert_array_equal(filled[4::5], x[4::5])
    rest = filled[::5, 1]
    assert abs(rest.mean() - 3 * 0.375) < 5 * np.sqrt(3 * 0.375 * 0.625 / len(rest))


def test_multinomial_judges_events_given_their_own_total():
    member = FAMILIES["multinomial"].member
    rows = np.array([[3.0, 1.0, 6.0], [1.0, 0.0, 0.0]])
    expected = st.multinomial(10, [0.2, 0.3, 0.5]).logpmf([3, 1, 6])
    np.testing.assert_allclose(of_rows(member, rows)[0], expected, rtol=1e-10)
    fitted = fit(member, jnp.asarray(np.resize(rows, (N, 3))), jnp.asarray(np.eye(N)[:2].sum(0)))
    np.testing.assert_allclose(fitted.probabilities, np.array([4, 1, 6]) / 11, rtol=1e-12)


def test_dirichlet_with_missing_parts_equals_quadrature():
    member = FAMILIES["dirichlet"].member
    law = st.dirichlet([0.8, 2.0, 3.0])

    def density(b):
        return law.pdf([0.3, b, 0.7 - b])

    mass = integrate.quad(density, 0, 0.7)[0]
    nan = np.nan
    rows = np.array([[0.3, nan, nan], [0.3, nan, 0.5], [0.3, 0.2, 0.5], [nan, nan, nan], [0.3, 0.2, 0.9]])
    x = jnp.asarray(np.resize(rows, (N, 3)))
    values = log_probs(member, x)[:5]
    # one missing part follows from the others; all missing is certain; too much is impossible
    complete = law.logpdf([0.3, 0.2, 0.5])
    np.testing.assert_allclose(values, [np.log(mass), complete, complete, 0, -np.inf], rtol=1e-7, atol=1e-9)
    mean = integrate.quad(lambda b: b * density(b), 0, 0.7)[0] / mass
    np.testing.assert_allclose(member.complete_mean(x[0]), [0.3, mean, 0.7 - mean], rtol=1e-8)
    logs = integrate.quad(lambda b: np.log(b) * density(b), 0, 0.7)[0] / mass
    np.testing.assert_allclose(written_out(member, x)[3][0, 1], logs, rtol=1e-7)
    fill = jax.jit(jax.vmap(lambda k: member.complete_sample(x[0], key=k)))
    filled = np.asarray(fill(jax.random.split(jax.random.key(0), N)))
    assert st.kstest(filled[:, 1] / 0.7, st.beta(2, 3).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["full", "low rank"])
def test_gaussian_with_missing_entries_is_the_marginal(name):
    member = FAMILIES[name].member
    sigma, mu = np.asarray(member.covariance.matrix()), np.asarray(member.mean)
    x = np.asarray(draws(name))
    partial = draws(name).at[:, 0].set(jnp.nan)
    law = st.multivariate_normal(mu[1:], sigma[1:, 1:])
    np.testing.assert_allclose(log_probs(member, partial), law.logpdf(x[:, 1:]), rtol=1e-9)
    gain = np.linalg.solve(sigma[1:, 1:], sigma[1:, 0])
    means = mu[0] + (x[:, 1:] - mu[1:]) @ gain
    variance = sigma[0, 0] - sigma[0, 1:] @ gain
    expected = written_out(member, partial)[3]
    np.testing.assert_allclose(expected[:, 0], means, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(expected[:, len(mu)], means**2 + variance, rtol=1e-9)
    fill = jax.jit(jax.vmap(lambda e, k: member.complete_sample(e, key=k)))
    filled = np.asarray(fill(partial, jax.random.split(jax.random.key(0), N)))
    np.testing.assert_array_equal(filled[:, 1:], x[:, 1:])
    assert st.kstest((filled[:, 0] - means) / np.sqrt(variance), st.norm.cdf).pvalue > 1e-3


def test_gamma_and_beta_fits_agree_with_scipy():
    rng = np.random.default_rng(0)
    x = np.stack([rng.gamma(0.3, 2.0, N), rng.gamma(40.0, 0.1, N)], 1)
    fitted = fit(FAMILIES["gamma"].member, jnp.asarray(x), jnp.ones(N))
    for d in range(2):
        shape, _, scale = st.gamma.fit(x[:, d], floc=0)
        np.testing.assert_allclose([fitted.shape[d], 1 / fitted.rate[d]], [shape, scale], rtol=1e-5)
    x = np.stack([rng.beta(0.3, 0.2, N), rng.beta(300.0, 20.0, N)], 1).clip(1e-300, 1 - 1e-16)
    fitted = fit(FAMILIES["beta"].member, jnp.asarray(x), jnp.ones(N))
    for d in range(2):
        alpha, beta, _, _ = st.beta.fit(x[:, d], floc=0, fscale=1)
        np.testing.assert_allclose([fitted.alpha[d], fitted.beta[d]], [alpha, beta], rtol=1e-4)


def test_dirichlet_fit_recovers_any_concentration():
    concentration = array(0.01, 1.0, 100.0, 1e5)[:, None] * array([0.5, 1.0, 4.0])

    @jax.jit
    @jax.vmap
    def there_and_back(c):
        member = fd.Dirichlet(c)
        return member.from_statistics(jnp.array(1.0), fd.mean_parameters(member)).concentration

    np.testing.assert_allclose(there_and_back(concentration), concentration, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("bernoulli", [[0, 1], [0, 1]]),
        ("binomial", [[0, 7], [0, 7]]),
        ("categorical", [[0, 2], [0, 2]]),
        ("multinomial", [[4, 0, 0], [4, 0, 0]]),
        ("poisson", [[0, 3], [0, 3]]),
        ("exponential", [[0, 2], [0, 2]]),
        ("gamma", [[3, 1e-300], [3, 1]]),
        ("gamma", [[1e-300, 1e-3], [1e-300, 1e-3]]),
        ("beta", [[0.3, 1e-300], [0.3, 1 - 1e-16]]),
        ("dirichlet", [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]]),
        ("full", [[1, 2], [1, 2]]),
        ("diagonal", [[1, 2], [1, 2]]),
        ("spherical", [[1, 2], [1, 2]]),
        ("low rank", [[1, 2, 3], [1, 2, 3]]),
    ],
)
def test_degenerate_data_give_finite_members(name, rows):
    member = FAMILIES[name].member
    x = jnp.asarray(np.resize(np.asarray(rows, float), (N, len(rows[0]))))
    fitted = fit(member, x, jnp.ones(N))
    seen, others = log_probs(fitted, x), log_probs(fitted, draws(name))
    assert np.isfinite(seen).all()
    assert np.isfinite(others).all()
    assert seen.sum() >= log_probs(member, x).sum()


def test_probabilities_of_small_and_large_counts_are_those_of_scipy():
    """By a table below 256, and by Stirling's series from there on."""
    counts = np.array([0.0, 1.0, 255.0, 256.0, 257.0, 1e4, 1e9, 1e15, np.inf, -3.0, 2.5])
    found = jax.jit(jax.vmap(fd.Poisson(array(300.0)).log_base))(counts[:, None])
    np.testing.assert_allclose(found[:-3], -special.gammaln(counts[:-3] + 1), rtol=2e-15, atol=0)
    np.testing.assert_array_equal(found[-3:], -np.inf)
    # a block without large ones, which the table alone serves, and the slope, that of log Γ
    few, slope = jax.jit(
        jax.vmap(jax.value_and_grad(lambda x: -fd.Poisson(array(300.0)).log_base(x[None])))
    )(counts[:3])
    np.testing.assert_allclose(few, special.gammaln(counts[:3] + 1), rtol=2e-15, atol=0)
    np.testing.assert_allclose(slope, special.digamma(counts[:3] + 1), rtol=1e-14)


def test_impossible_events_are_impossible_and_not_nan():
    coin = fd.Bernoulli(array(0.0, 1.0))
    assert of_rows(coin, [[0, 1], [1, 1], [0, 0]]).tolist() == [0, -np.inf, -np.inf]
    places = {"categorical": 3, "binomial": 5, "poisson": -1}
    for name, value in places.items():
        assert of_rows(FAMILIES[name].member, [[value, 0]])[0] == -np.inf
    for name in ("exponential", "gamma", "beta"):
        assert of_rows(FAMILIES[name].member, [[-0.5, 0.5]])[0] == -np.inf


COVARIANCES = {
    "full": fd.Full(),
    "diagonal": fd.Diagonal(),
    "spherical": fd.Spherical(),
    "low rank": fd.LowRank(rank=1),
    "tied full": fd.Tied(fd.Full()),
    "tied diagonal": fd.Tied(fd.Diagonal()),
    "tied spherical": fd.Tied(fd.Spherical()),
    "tied low rank": fd.Tied(fd.LowRank(rank=1)),
}


def grouped_rows():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 3)) @ np.array([[1.0, 0.3, 0], [0, 0.5, 0.2], [0, 0, 2.0]])
    w = rng.dirichlet(np.ones(2), 60)
    return x, w


def weighted_scatter(x, w):
    """Weighted means and scatters about them, dense."""
    means = (w.T @ x) / w.sum(0)[:, None]
    return means, [((x - m).T * w[:, k]) @ (x - m) for k, m in enumerate(means)]


@jax.jit
def fit_stack(stack, x, w):
    features = jax.vmap(stack.features)(x)
    return stack.from_features(w.T @ features)


@jax.jit
def evaluate_stack(stack, x):
    axes = (fd.component_axes(stack),)
    return (
        jax.vmap(lambda g: g.covariance.matrix(), axes)(stack),
        jax.vmap(lambda g: g.log_prob(x), axes)(stack),
    )


@pytest.mark.parametrize("name", COVARIANCES)
def test_stacks_of_gaussians_are_fitted_and_evaluated(name):
    x, w = grouped_rows()
    start = fd.Gaussian(jnp.zeros((2, 3)), COVARIANCES[name])
    stack = fit_stack(start, x, w)
    means, scatters = weighted_scatter(x, w)
    np.testing.assert_allclose(stack.mean, means, rtol=1e-10)
    assert fd.stack_size(stack) == 2
    sigma, values = (np.asarray(v) for v in evaluate_stack(stack, x[0]))
    expected = [st.multivariate_normal(m, s).logpdf(x[0]) for m, s in zip(means, sigma)]
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    weights = list(w.sum(0))
    if name.startswith("tied"):
        scatters, weights = [sum(scatters)] * 2, [len(x)] * 2
    for s, scatter, weight in zip(sigma, scatters, weights):
        empirical = scatter / weight
        expected = {
            "full": empirical,
            "diagonal": np.diag(np.diag(empirical)),
            "spherical": np.eye(3) * np.trace(empirical) / 3,
        }.get(name.removeprefix("tied "))
        if expected is not None:
            np.testing.assert_allclose(s, expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_allclose(np.diag(s), np.diag(empirical), rtol=0.05)


@pytest.mark.parametrize("name", ["full", "diagonal", "low rank"])
def test_stacked_floors_hold_for_each_member(name):
    x, w = grouped_rows()
    floors = array(1e-6, 50.0)
    covariance = eqx.tree_at(lambda c: c.floor, COVARIANCES[name], floors)
    sigma, _ = evaluate_stack(fit_stack(fd.Gaussian(jnp.zeros((2, 3)), covariance), x, w), x[0])
    smallest = np.linalg.eigvalsh(np.asarray(sigma)).min(1)
    assert smallest[0] < 40
    assert smallest[1] > 50 - 1e-9


@pytest.mark.parametrize(
    "name", ["categorical", "count table", "multinomial", "gamma", "dirichlet", "product"]
)
def test_stacks_of_other_families_equal_their_members(name):
    member = FAMILIES[name].member
    w = jnp.stack([weights(), weights()[::-1]], axis=1)
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), member)
    fitted = fit_stack(stack, draws(name), w)
    assert fd.stack_size(fitted) == 2
    for k in range(2):
        picked = jax.tree.map(lambda leaf, k=k: leaf[k], fitted)
        np.testing.assert_allclose(picked.natural(), fit(member, draws(name), w[:, k]).natural(), rtol=1e-9)


def test_a_component_without_weight_does_not_spoil_a_tied_covariance():
    x, w = grouped_rows()
    w[:, 1] = 0
    stack = fit_stack(fd.Gaussian(jnp.zeros((2, 3)), fd.Tied(fd.Full())), x, w)
    np.testing.assert_allclose(
        stack.covariance.matrix(), np.cov(x.T, bias=True, aweights=w[:, 0]), rtol=1e-9
    )


def test_stack_size_refuses_unequal_arrays():
    with pytest.raises(ValueError, match=r"one common leading size. Got \[2, 3\] instead"):
        fd.stack_size(fd.Gamma(jnp.ones((2, 1)), jnp.ones((3, 1))))


PLAIN = {
    "gamma": (fd.Gamma(2, 0.5), st.gamma(2, scale=2)),
    "beta": (fd.Beta(2.0, 3.0), st.beta(2, 3)),
    "exponential": (fd.Exponential(4.0), st.expon(scale=0.25)),
    "poisson": (fd.Poisson(3), st.poisson(3)),
    "bernoulli": (fd.Bernoulli(0.3), st.bernoulli(0.3)),
    "binomial": (fd.Binomial(0.3, trials=5), st.binom(5, 0.3)),
    "negative binomial": (fd.NegativeBinomial(2.0, 3.0), st.nbinom(2, 0.75)),
    "categorical": (fd.Categorical([0.2, 0.8]), st.bernoulli(0.8)),
    "normal": (fd.Gaussian(1.0, fd.Diagonal(4.0)), st.norm(1, 2)),
    "normal, full": (fd.Gaussian([1.0], fd.Full(4.0)), st.norm(1, 2)),
    "normal, spherical": (fd.Gaussian([1.0], fd.Spherical(4, dim=1)), st.norm(1, 2)),
    "Laplace": (fd.Laplace(1.0, 2.0), st.laplace(1, 2)),
    "Student": (fd.StudentT(1, 2.0, 5), st.t(5, 1, 2)),
    "MultivariateT": (fd.MultivariateT(1.0, 4.0, 5.0), st.t(5, 1, 2)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_numbers_make_a_law_of_one_coordinate(name):
    law, known = PLAIN[name]
    x = float(known.mean()) if isinstance(known.dist, st.rv_continuous) else 1.0
    density = known.logpdf if isinstance(known.dist, st.rv_continuous) else known.logpmf
    found, drawn = eqx.filter_jit(lambda law, x, key: (law.log_prob(x), law.sample(key=key)))(
        law, np.array([x]), jax.random.key(0)
    )
    np.testing.assert_allclose(found, density(x), rtol=1e-9)
    assert drawn.shape == (1,)
    # and learning moves its parameters
    assert parameter_count(law) >= 1


def test_what_is_no_array_of_entries_is_refused():
    with pytest.raises(
        ValueError, match=r"^The 'shape' parameter of Gamma must be an array with an axis at "
    ):
        fd.Gamma(jnp.array(2.0), jnp.ones(1))
    with pytest.raises(
        ValueError, match=r"must be an array with 2 axes at least.* Got an array of shape \(2,"
    ):
        fd.Categorical(jnp.array([0.2, 0.8]))
    with pytest.raises(ValueError, match=r"one entry for each coordinate. Got 1, 3 entries instead"):
        fd.Gamma(2.0, jnp.ones(3))
    with pytest.raises(
        TypeError, match=r"^The 'covariance' parameter of Gaussian must be a covariance, such"
    ):
        fd.Gaussian(0.0, 1.0)
    with pytest.raises(ValueError, match=r"^The 'rate' parameter of Poisson must be non-negative\. Got -1"):
        fd.Poisson(-1)


def test_a_structure_without_values_says_so():
    for request in (fd.Full(), fd.Diagonal(), fd.Spherical(), fd.LowRank()):
        with pytest.raises(ValueError, match="has no values yet"):
            request.log_det()


@jax.jit
def operations(covariance, v, m):
    coefficients = covariance.precision_coefficients()
    return {
        "matrix": covariance.matrix(),
        "variances": covariance.variances(),
        "log_det": covariance.log_det(),
        "solve": covariance.solve(v),
        "solve_matrix": covariance.solve(m),
        "whiten": jax.vmap(covariance.whiten, 1, 1)(jnp.eye(3)),
        "colour": jax.vmap(covariance.colour, 1, 1)(jnp.eye(covariance.noise_size)),
        "quadratic": coefficients @ covariance.second_moments(v),
        "back": covariance.from_precision_coefficients(coefficients).matrix(),
        "scaled": covariance.scale(array(1.0, 2.0, 3.0)).matrix(),
        "scaled alike": covariance.scale(jnp.array(2.0)).matrix(),
    }


@pytest.mark.parametrize(
    "covariance",
    [
        fd.Full(jnp.asarray(LOADINGS @ LOADINGS.T + np.diag(NOISE))),
        fd.Diagonal(jnp.asarray(NOISE)),
        fd.Spherical(jnp.array(0.7), dim=3),
        fd.LowRank(jnp.asarray(np.hstack([LOADINGS, LOADINGS[::-1]])), jnp.asarray(NOISE)),
        fd.Tied(fd.LowRank(jnp.asarray(LOADINGS), jnp.asarray(NOISE))),
    ],
)
def test_covariance_operations_equal_dense_algebra(covariance):
    v, m = array(0.3, -1.0, 2.0), np.random.default_rng(0).normal(size=(3, 2))
    ours = {name: np.asarray(value) for name, value in operations(covariance, v, m).items()}
    sigma, white, paint = ours["matrix"], ours["whiten"], ours["colour"]
    np.testing.assert_allclose(ours["variances"], np.diag(sigma), rtol=1e-12)
    np.testing.assert_allclose(ours["scaled alike"], 4 * sigma, rtol=1e-12)
    assert type(covariance.scale(jnp.array(2.0))) is type(covariance)
    np.testing.assert_allclose(ours["log_det"], np.linalg.slogdet(sigma)[1], rtol=1e-12)
    np.testing.assert_allclose(ours["solve"], np.linalg.solve(sigma, v), rtol=1e-10)
    np.testing.assert_allclose(ours["solve_matrix"], np.linalg.solve(sigma, m), rtol=1e-9)
    np.testing.assert_allclose(white.T @ white, np.linalg.inv(sigma), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(paint @ paint.T, sigma, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours["quadratic"], -0.5 * v @ np.linalg.solve(sigma, v), rtol=1e-10)
    np.testing.assert_allclose(ours["back"], sigma, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        ours["scaled"], sigma * np.outer([1, 2, 3], [1, 2, 3]), rtol=1e-10, atol=1e-12
    )


def test_low_rank_fit_never_lowers_the_likelihood_and_reaches_the_optimum():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 1)) @ np.array([[1.0, -1.0, 0.5, 2.0]]) + rng.normal(size=(200, 4)) * [
        1,
        0.5,
        2,
        1,
    ]
    start = fd.Gaussian(jnp.zeros(4), fd.LowRank(jnp.ones((4, 1)), jnp.ones(4), n_steps=1))
    rows, ones = jnp.asarray(x), jnp.ones(len(x))

    def mean_log_prob(g):
        return log_probs(g, rows).mean()

    values, now = [mean_log_prob(start)], start
    for _ in range(200):
        now = fit(now, rows, ones)
        values.append(mean_log_prob(now))
    assert np.diff(values).min() > -1e-12
    # an independent optimiser on the dense likelihood
    scatter = np.cov(x.T, bias=True)

    def loss(free):
        sigma = np.outer(free[:4], free[:4]) + np.diag(np.exp(free[4:]))
        return 0.5 * (np.linalg.slogdet(2 * np.pi * sigma)[1] + np.trace(np.linalg.solve(sigma, scatter)))

    best = optimize.minimize(loss, np.r_[np.ones(4), np.zeros(4)], method="BFGS")
    np.testing.assert_allclose(values[-1], -best.fun, atol=1e-6)
    # without values it starts from the eigenvectors, closer than the arbitrary start
    blind = fit(fd.Gaussian(jnp.zeros(4), fd.LowRank(rank=1, n_steps=1)), rows, ones)
    assert mean_log_prob(blind) > values[1]


@pytest.mark.parametrize(
    ("name", "floor"), [("full", 0.1), ("low rank", 0.1), ("diagonal", 3.0), ("spherical", 3.0)]
)
def test_floor_bounds_the_eigenvalues_of_every_structure(name, floor):
    start = eqx.tree_at(lambda g: g.covariance.floor, FAMILIES[name].member, floor)
    line = np.random.default_rng(0).normal(size=(N, 1)) * np.ones(start.mean.shape)
    fitted = fit(start, jnp.asarray(line), jnp.ones(N))
    smallest = np.linalg.eigvalsh(fitted.covariance.matrix()).min()
    np.testing.assert_allclose(smallest, floor, rtol=1e-6)


def test_product_of_mixed_columns_with_missing_entries():
    mixed = fd.Product(
        (fd.Gaussian(array(0.0, 1.0), fd.Full(jnp.asarray(SIGMA))), fd.Poisson(array(2.0))), (2, 1)
    )
    assert not mixed.masks_missing
    x = np.array([np.nan, 0.5, 3.0])

    @jax.jit
    def answers(x):
        filled = mixed.complete_sample(x, key=jax.random.key(0))
        return mixed.log_prob(x), mixed.complete_mean(x), filled, mixed.expected_features(x)

    log_prob, mean, filled, features = map(np.asarray, answers(x))
    expected = st.norm(1.0, 1.0).logpdf(0.5) + st.poisson(2.0).logpmf(3)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-10)
    np.testing.assert_allclose(mean, [0.6 * (0.5 - 1.0), 0.5, 3.0], rtol=1e-10)
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[1:], x[1:])
    np.testing.assert_allclose(features[:3], [*mean[:2], mean[0] ** 2 + 2 - 0.36], rtol=1e-9)
    heavy = fd.Product((fd.Laplace(array(0.0), array(1.0)), fd.Poisson(array(2.0))), (1, 1))
    np.testing.assert_allclose(
        of_rows(heavy, [[1, 3]])[0], st.laplace.logpdf(1.0) + st.poisson(2.0).logpmf(3), rtol=1e-10
    )
    with pytest.raises(
        ValueError, match=r"'sizes' of Product must have one entry a part, 2. Got 1 instead"
    ):
        fd.Product(mixed.parts, (3,))


def test_transformed_normal_is_lognormal():
    law = fd.Transformed(fd.Gaussian(array(0.5), fd.Diagonal(array(0.36))), Exp())
    exact = st.lognorm(0.6, scale=np.exp(0.5))
    np.testing.assert_allclose(law.log_prob(array(2.0)), exact.logpdf(2.0), rtol=1e-10)
    keys = jax.random.split(jax.random.key(0), N)
    assert st.kstest(np.asarray(sample(law, keys))[:, 0], exact.cdf).pvalue > 1e-3


def test_hyperbolic_secant_has_unit_variance_and_a_smooth_score():
    sech = fd.HyperbolicSecant(array(0.0), array(1.0))
    x = np.linspace(-30, 30, 6001)
    density = np.exp(log_probs(sech, jnp.asarray(x)[:, None]))
    np.testing.assert_allclose([density.sum() * 0.01, x**2 @ density * 0.01], 1.0, rtol=1e-9)
    score = jax.jit(jax.grad(lambda x: -sech.log_prob(x)))(array(0.7))
    np.testing.assert_allclose(score, [np.pi / 2 * np.tanh(np.pi * 0.7 / 2)], rtol=1e-10)
    assert np.isfinite(of_rows(sech, [[1e6]])).all()


KL_PAIRS = {
    "location": fd.GaussianLocation(array(0.5, -1.0), 0.25),
    "bernoulli": fd.Bernoulli(array(0.6, 0.5)),
    "binomial": fd.Binomial(array(0.6, 0.5), trials=(4, 7)),
    "categorical": fd.Categorical(array([0.4, 0.4, 0.2], [0.2, 0.3, 0.5])),
    "count table": fd.CountTable(array([0.4, 0.4, 0.2], [0.2, 0.3, 0.5]), array(0.3, 0.5)),
    "multinomial": fd.Multinomial(array(0.4, 0.4, 0.2), trials=4),
    "poisson": fd.Poisson(array(1.0, 3.0)),
    "exponential": fd.Exponential(array(1.0, 2.0)),
    "gamma": fd.Gamma(array(1.0, 4.0), array(1.0, 1.0)),
    "beta": fd.Beta(array(1.0, 2.0), array(1.0, 3.0)),
    "dirichlet": fd.Dirichlet(array(1.0, 2.0, 2.0)),
    "full": fd.Gaussian(array(0.0, -1.0), fd.Full(jnp.eye(2))),
    "diagonal": fd.Gaussian(array(0.0, -1.0), fd.Full(jnp.asarray(SIGMA))),
    "spherical": fd.Gaussian(array(0.0, -1.0), fd.Diagonal(array(1.0, 2.0))),
    "low rank": fd.Gaussian(array(0.0, -1.0, 0.0), fd.Spherical(jnp.array(2.0), dim=3)),
    "product": fd.Product((fd.Bernoulli(array(0.6)), fd.Gamma(array(1.0), array(2.0))), (1, 1)),
}


@families
def test_kl_agrees_with_sampling(name):
    p, q = FAMILIES[name].member, KL_PAIRS[name]
    exact = kl(p, q)
    assert exact > 0
    gaps = np.asarray(log_probs(p, draws(name)) - log_probs(q, draws(name)))
    assert abs(gaps.mean() - exact) < 5 * gaps.std() / np.sqrt(N)


def test_monte_carlo_kl_has_an_honest_error():
    p, q = LOCATION_SCALE["laplace"].member, LOCATION_SCALE["cauchy"].member
    value, error = jax.jit(lambda key: fd.monte_carlo_kl(p, q, N, key=key))(jax.random.key(1))
    exact = sum(
        integrate.quad(
            lambda x, a=a, b=b: a.pdf(x) * (a.logpdf(x) - b.logpdf(x)), -60, 60, points=[a.mean()]
        )[0]
        for a, b in zip(LOCATION_SCALE["laplace"].coordinates, LOCATION_SCALE["cauchy"].coordinates)
    )
    assert abs(value - exact) < 5 * error
    assert error < 0.05


def test_kl_numbers():
    # cho P6 (4.41) and makin 8.20
    k, s2, mu = 3, 1.7, np.array([0.3, -1.0, 2.0])
    value = kl(
        fd.Gaussian(jnp.asarray(mu), fd.Spherical(jnp.array(1.0), dim=k)),
        fd.Gaussian(jnp.zeros(k), fd.Spherical(jnp.array(s2), dim=k)),
    )
    np.testing.assert_allclose(value, 0.5 * ((k + mu @ mu) / s2 - k + k * np.log(s2)), rtol=1e-12)
    standard = fd.Gaussian(array(0.0), fd.Diagonal(array(1.0)))
    for nu, v2, expected in ((0, 1, 0), (1, 1, 0.5), (0, np.e, 0.359140914229522)):
        q = fd.Gaussian(array(nu), fd.Diagonal(array(v2)))
        np.testing.assert_allclose(kl(q, standard), expected, atol=1e-12)
        integrand = lambda x, m=nu, v=v2: (  # noqa: E731
            st.norm.pdf(x, m, v**0.5) * (st.norm.logpdf(x, m, v**0.5) - st.norm.logpdf(x))
        )
        np.testing.assert_allclose(integrate.quad(integrand, -15, 15)[0], expected, atol=1e-8)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    value = kl(fd.Categorical(jnp.asarray(p[None])), fd.Categorical(jnp.asarray(q[None])))
    np.testing.assert_allclose(value, st.entropy(p, q), rtol=1e-10)


def test_kl_refuses_what_it_cannot_do():
    with pytest.raises(TypeError, match="no closed form for Poisson and Exponential of different kind"):
        fd.kl_divergence(FAMILIES["poisson"].member, FAMILIES["exponential"].member)
    with pytest.raises(TypeError, match="of different kind; use monte_carlo_kl"):
        fd.kl_divergence(fd.Binomial(array(0.5), trials=3), fd.Binomial(array(0.5), trials=4))
    with pytest.raises(TypeError, match="no closed form for Laplace and Laplace; use monte_carlo_kl"):
        fd.kl_divergence(LOCATION_SCALE["laplace"].member, LOCATION_SCALE["laplace"].member)
    with pytest.raises(TypeError, match=r"equal blocks. Got sizes \(1, 1\) and \(2,\) instead"):
        fd.kl_divergence(FAMILIES["product"].member, fd.Product((FAMILIES["beta"].member,), (2,)))
    one, two = array(0.5), array(0.5, 0.5)
    for few, many in (
        (fd.Bernoulli(one), fd.Bernoulli(two)),
        (fd.Poisson(one), fd.Poisson(two)),
        (fd.Categorical(array(one, 1 - one).T), fd.Categorical(array(two, two).T)),
        (fd.Gamma(one, one), fd.Gamma(two, two)),
        (fd.Gaussian(one, fd.Diagonal(one)), fd.Gaussian(two, fd.Full(jnp.eye(2)))),
    ):
        for p, q in ((few, many), (many, few)):
            with pytest.raises(TypeError, match=r"of the same events\. Got parameters of shapes"):
                fd.kl_divergence(p, q)
    with pytest.raises(TypeError, match="entropy of Poisson has no closed form; use monte_carlo_entropy"):
        fd.entropy(FAMILIES["poisson"].member)


CLOSED_ENTROPY = [n for n in ALL if n not in ("binomial", "multinomial", "poisson")]


@pytest.mark.parametrize("name", CLOSED_ENTROPY)
def test_entropy(name):
    case = ALL[name]
    value = entropy(case.member)
    if name == "categorical":
        expected = st.entropy([0.2, 0.3, 0.5]) + st.entropy([0.6, 0.3, 0.1])
    elif case.coordinates:
        expected = sum(law.entropy() for law in case.coordinates)
    else:
        expected = {
            "dirichlet": lambda: st.dirichlet([0.8, 2.0, 3.0]).entropy(),
            "full": lambda: st.multivariate_normal(cov=SIGMA).entropy(),
            "low rank": lambda: st.multivariate_normal(
                cov=LOADINGS @ LOADINGS.T + np.diag(NOISE)
            ).entropy(),
            "product": lambda: st.bernoulli(0.3).entropy() + st.gamma(2.0, scale=1 / 3).entropy(),
        }[name]()
    np.testing.assert_allclose(value, expected, rtol=1e-7)


def test_monte_carlo_entropy_has_an_honest_error():
    case = LOCATION_SCALE["laplace"]
    value, error = jax.jit(lambda key: fd.monte_carlo_entropy(case.member, N, key=key))(jax.random.key(1))
    assert abs(value - sum(law.entropy() for law in case.coordinates)) < 5 * error
    assert error < 0.05


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [1, 64, 200])
def test_total_of_a_hyperbolic_secant_is_the_sum_of_its_coordinates(size, dtype):
    z = jnp.asarray(np.random.default_rng(0).normal(size=size) * np.geomspace(1e-3, 1e3, size), dtype)
    sech = fd.HyperbolicSecant(jnp.zeros(size, dtype), jnp.ones(size, dtype))

    @jax.jit
    def both(z):
        each = jax.value_and_grad(lambda z: jnp.sum(sech.standard_log_prob(z)))
        return jax.value_and_grad(sech.standard_total)(z), each(z)

    (total, slope), (expected, expected_slope) = both(z)
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(total, expected, rtol=4 * eps)
    np.testing.assert_allclose(slope, expected_slope, rtol=0, atol=16 * eps)
    # nothing overflows where all coordinates are at the mode
    at_mode = float(both(np.zeros(size, np.dtype(dtype)))[0][0])
    assert at_mode == pytest.approx(-size * np.log(2), rel=1e-6)


@pytest.mark.parametrize(("dim", "rank"), [(1, 1), (2, 2), (2, 5)])
def test_factors_that_could_explain_everything_give_any_covariance(dim, rank):
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(50, dim)) @ np.tri(dim))
    found = fit(fd.Gaussian(jnp.zeros(dim), fd.LowRank(rank=rank)), rows, jnp.ones(50))
    assert found.covariance.rank == dim
    np.testing.assert_allclose(found.covariance.matrix(), np.cov(rows.T, bias=True), rtol=1e-6)


# ---------------------------------------------------------------------------------------------
# what families say of themselves
# ---------------------------------------------------------------------------------------------

ALL = FAMILIES | LOCATION_SCALE


@pytest.mark.parametrize("name", FAMILIES)
def test_the_log_partition_and_the_density_at_natural_parameters_are_those_of_the_member(name):
    member = FAMILIES[name].member
    x = np.array(draws(name))[0]
    hole = np.where(np.arange(len(x)) == 0, np.nan, x)

    @jax.jit
    def both(x):
        natural = member.natural()
        return (
            (jnp.sum(fd.log_partition_at(member, natural)), jnp.sum(member.log_partition())),
            (fd.log_prob_at(member, natural, x), member.log_prob(x)),
        )

    for event in (x, hole):
        for ours, other in both(event):
            np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_a_member_knows_how_many_columns_and_values_it_is_about(name):
    member = ALL[name].member
    assert member.dim == draws(name).shape[1]
    values = fd.levels(member)
    expected = {"bernoulli": (2, 2), "binomial": (5, 8), "categorical": (3, 3)}
    assert values == expected.get(name)
    if values is not None:
        # the masses of all values have sum one
        assert sum(np.exp(ALL[name].coordinates[0].logpmf(np.arange(values[0])))) == pytest.approx(1)


def test_products_join_what_their_parts_say():
    parts = (fd.Bernoulli(array(0.5)), fd.Gaussian(array(0.0, 0.0), fd.Spherical(jnp.array(1.0), dim=2)))
    mixed = fd.Product(parts, sizes=(1, 2))
    assert mixed.unit_free_columns(3).tolist() == [False, True, True]
    assert (mixed.dim, mixed.common_unit, mixed.closed_form) == (3, True, True)
    assert mixed.statistic_columns().tolist() == [0, 1, 2, 1, 2]
    assert fd.levels(mixed) is None
    assert fd.levels(fd.Product(parts[:1] * 2, sizes=(1, 1))) == (2, 2)
    step = fd.Gaussian(array(0.0, 0.0), fd.Tied(fd.LowRank(rank=1)))
    assert not fd.Product((parts[0], step), sizes=(1, 2)).closed_form
    assert not step.common_unit
    with pytest.raises(TypeError, match="Gaussian has statistics of several columns together"):
        step.statistic_columns()


@pytest.mark.parametrize("name", ALL)
def test_a_member_in_other_units_has_the_density_of_the_change_of_variables(name):
    member = ALL[name].member
    # one unit for all columns, where the family needs that
    scale = jnp.array(3.0) if getattr(member, "common_unit", False) else jnp.linspace(2, 5, member.dim)
    free = member.unit_free_columns(member.dim)
    positive = name in ("exponential", "gamma")
    shift = np.where(free, np.linspace(-1, 1, member.dim), 0.0)
    if not (free.all() or positive):
        assert fd.rescaled(member, np.zeros(member.dim), np.ones(member.dim)) is not None
        with pytest.raises(ValueError, match="have no other unit"):
            fd.rescaled(member, shift, scale)
        return
    new = fd.rescaled(member, shift, scale)
    x, unit = np.asarray(draws(name)), np.asarray(scale)
    jacobian = np.sum(np.log(np.broadcast_to(unit, member.dim)))
    expected = np.asarray(log_probs(member, x)) + jacobian
    np.testing.assert_allclose(log_probs(new, (x - shift) / unit), expected, rtol=1e-9, atol=1e-9)
    if positive:
        with pytest.raises(ValueError, match="have no other origin than zero"):
            fd.rescaled(member, np.ones(2), scale)


def test_a_stack_in_other_units_is_a_stack_of_members_in_other_units():
    means = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    shift, scale = array(1.0, -1.0), array(2.0, 5.0)
    structures = [
        (fd.Diagonal(jnp.asarray(np.arange(1.0, 7).reshape(3, 2))), scale),
        (fd.Tied(fd.Full(jnp.asarray(SIGMA))), scale),
        (fd.Spherical(array(1.0, 2.0, 3.0), dim=2), jnp.array(2.0)),
    ]
    for covariance, unit in structures:
        stack = fd.Gaussian(means, covariance)
        found = fd.rescaled_stack(stack, shift, unit)
        assert jax.tree.structure(found) == jax.tree.structure(stack)
        axes = fd.component_axes(stack)
        matrices = [
            jax.vmap(lambda m: m.covariance.matrix(), (axes,))(members) for members in (stack, found)
        ]
        factor = np.broadcast_to(unit, 2)
        np.testing.assert_allclose(found.mean, (means - shift[None]) / factor[None], rtol=1e-12)
        np.testing.assert_allclose(matrices[1], matrices[0] / np.outer(factor, factor)[None], rtol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_the_mean_alone_is_set(name):
    member = ALL[name].member
    if name in ("categorical", "count table", "multinomial", "beta", "dirichlet", "product"):
        return
    unknown = jnp.full(member.dim, jnp.nan)
    mean = member.complete_mean(unknown) * 0.9
    found = fd.with_mean(member, mean)
    np.testing.assert_allclose(found.complete_mean(unknown), mean, rtol=1e-12)
