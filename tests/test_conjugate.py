"""Conjugate priors: updates, modes, densities and draws against optimisers and quadrature."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize
from scipy import stats as st

from freeenergy import distributions as fd
from freeenergy._core import constrain, unconstrain


def array(*values):
    return jnp.asarray(values, jnp.float64)


def flat(member):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(member) if np.size(leaf) > 0])


rng = np.random.default_rng(0)
NORMAL = rng.normal(size=(12, 2)) @ np.array([[1.0, 0.4], [0.0, 2.0]]) + [3.0, -1.0]
PSI = jnp.asarray([[3.0, 0.5], [0.5, 2.0]])
DIAGONAL = fd.Gaussian(jnp.zeros(2), fd.Diagonal(jnp.ones(2)))
FULL = fd.Gaussian(jnp.zeros(2), fd.Full(jnp.eye(2)))

# the family, its prior, its flat limit, and data
CASES = {
    "bernoulli": (
        fd.Bernoulli(array(0.5, 0.5)),
        lambda f: fd.BetaPrior(f, array(2.0, 1.5), array(3.0, 4.0)),
        lambda f: fd.BetaPrior(f, jnp.ones(2), jnp.ones(2)),
        rng.integers(0, 2, (12, 2)),
    ),
    "binomial": (
        fd.Binomial(array(0.5, 0.5), trials=(3, 5)),
        lambda f: fd.BetaPrior(f, array(2.0, 1.5), array(3.0, 4.0)),
        lambda f: fd.BetaPrior(f, jnp.ones(2), jnp.ones(2)),
        rng.integers(0, [4, 6], (12, 2)),
    ),
    "categorical": (
        fd.Categorical(jnp.full((2, 3), 1 / 3)),
        lambda f: fd.DirichletPrior(f, array([2.0, 1.5, 4.0], [3.0, 3.0, 1.2])),
        lambda f: fd.DirichletPrior(f, jnp.ones((2, 3))),
        rng.integers(0, 3, (12, 2)),
    ),
    "multinomial": (
        fd.Multinomial(jnp.full(3, 1 / 3), trials=5),
        lambda f: fd.DirichletPrior(f, array(2.0, 1.5, 4.0)),
        lambda f: fd.DirichletPrior(f, jnp.ones(3)),
        rng.multinomial(5, [0.2, 0.3, 0.5], 12),
    ),
    "poisson": (
        fd.Poisson(array(1.0, 1.0)),
        lambda f: fd.GammaPrior(f, array(2.0, 5.0), array(1.0, 3.0)),
        lambda f: fd.GammaPrior(f, jnp.ones(2), jnp.zeros(2)),
        rng.poisson([1.0, 4.0], (12, 2)),
    ),
    "exponential": (
        fd.Exponential(array(1.0, 1.0)),
        lambda f: fd.GammaPrior(f, array(2.0, 5.0), array(1.0, 3.0)),
        lambda f: fd.GammaPrior(f, jnp.ones(2), jnp.zeros(2)),
        rng.exponential([1.0, 4.0], (12, 2)),
    ),
    "full": (
        FULL,
        lambda f: fd.NormalInverseWishart(array(1.0, 0.0), jnp.array(2.0), PSI, jnp.array(5.0)),
        lambda f: fd.NormalInverseWishart(jnp.zeros(2), jnp.array(0.0), jnp.zeros((2, 2)), jnp.array(-4.0)),
        NORMAL,
    ),
    "diagonal": (
        DIAGONAL,
        lambda f: fd.NormalInverseGamma(array(1.0, 0.0), array(2.0, 0.5), array(3.0, 2.0), array(1.0, 4.0)),
        lambda f: fd.NormalInverseGamma(jnp.zeros(2), jnp.zeros(2), jnp.full(2, -1.5), jnp.zeros(2)),
        NORMAL,
    ),
}
cases = pytest.mark.parametrize("name", CASES)


map_estimate = jax.jit(lambda prior, total: prior.from_features(total))
log_density = jax.jit(lambda prior, member: prior.log_density(member))


@functools.cache
def setup(name):
    family, prior, flat_prior, x = CASES[name]
    x = np.asarray(x, float)
    features = np.asarray(jax.jit(jax.vmap(family.features))(x))
    return family, prior(family), flat_prior(family), x, features


@jax.jit
def natural(prior, total):
    """Of the most probable member."""
    return prior.from_features(total).natural()


@cases
def test_mode_maximises_log_prior_plus_log_likelihood(name):
    _, prior, _, x, features = setup(name)
    mode = map_estimate(prior, features.sum(0))
    free, unravel = jax.flatten_util.ravel_pytree(unconstrain(mode))

    @jax.jit
    @jax.value_and_grad
    def loss(v):
        member = constrain(unravel(v))
        return -prior.log_density(member) - jnp.sum(jax.vmap(member.log_prob)(x))

    value, gradient = loss(free)
    assert np.abs(gradient).max() < 1e-6
    # and an optimiser that starts elsewhere finds nothing better
    found = optimize.minimize(lambda v: [np.asarray(o) for o in loss(v)], np.asarray(free) + 0.3, jac=True)
    np.testing.assert_allclose(found.fun, value, atol=1e-6)


@cases
def test_one_at_a_time_is_all_at_once(name):
    _, prior, _, _, features = setup(name)
    sequential = prior
    update = jax.jit(lambda p, f: p.update(*p.split(f)))
    for row in features:
        sequential = update(sequential, row)
    batch = update(prior, features.sum(0))
    np.testing.assert_allclose(flat(sequential), flat(batch), rtol=1e-9, atol=1e-10)


@cases
def test_no_data_leaves_the_prior_and_a_flat_prior_leaves_the_data(name):
    family, prior, flat_prior, _, features = setup(name)
    mode = jax.jit(lambda prior: prior.mode().natural())(prior)
    np.testing.assert_allclose(natural(prior, 0 * features[0]), mode, rtol=1e-10)
    total = features.sum(0)
    np.testing.assert_allclose(natural(flat_prior, total), natural(family, total), rtol=1e-8, atol=1e-12)


@cases
def test_stacks_share_the_prior(name):
    _, prior, _, _, features = setup(name)
    totals = np.stack([features[:5].sum(0), features[5:].sum(0)])

    @jax.jit
    def of_each(prior, totals):
        stack = prior.from_features(totals)
        return jax.vmap(lambda m: m.natural(), (fd.component_axes(stack),))(stack)

    found = np.asarray(of_each(prior, totals))
    for k in range(2):
        np.testing.assert_allclose(found[k], natural(prior, totals[k]), rtol=1e-9)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson", "full", "diagonal"])
def test_draws_follow_the_prior(name):
    _, prior, _, _, _ = setup(name)
    n = 3000
    draw = jax.jit(jax.vmap(lambda k: prior.sample(key=k)))
    members = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(0), n)))
    hyper = jax.tree.map(np.asarray, prior)
    drawn, expected = {
        "bernoulli": lambda: (members.probability, hyper.alpha / (hyper.alpha + hyper.beta)),
        "multinomial": lambda: (members.probabilities, hyper.concentration / hyper.concentration.sum()),
        "poisson": lambda: (members.rate, hyper.shape / hyper.rate),
        # precisions, because they have finite variance whatever the degrees of freedom
        "full": lambda: (
            np.linalg.inv(members.covariance.value),
            hyper.degrees * np.linalg.inv(hyper.scatter),
        ),
        "diagonal": lambda: (1 / members.covariance.variance, hyper.shape / hyper.scale),
    }[name]()
    assert (np.abs(drawn.mean(0) - expected) < 5 * drawn.std(0) / np.sqrt(n)).all()
    if name in ("full", "diagonal"):
        covariance = members.covariance
        variance = (
            covariance.variance if name == "diagonal" else np.diagonal(covariance.value, axis1=1, axis2=2)
        )
        z = (members.mean - hyper.mean) / np.sqrt(variance / hyper.strength)
        assert all(st.kstest(z[:, d], st.norm.cdf).pvalue > 1e-3 for d in range(2))


def test_densities_agree_with_scipy():
    f = fd.Bernoulli(array(0.3))
    prior = fd.BetaPrior(f, array(2.0), array(3.0))
    np.testing.assert_allclose(log_density(prior, f), st.beta(2, 3).logpdf(0.3), rtol=1e-10)
    p = [0.2, 0.3, 0.5]
    member = fd.Multinomial(array(*p), trials=2)
    np.testing.assert_allclose(
        log_density(fd.DirichletPrior(member, array(2.0, 1.5, 4.0)), member),
        st.dirichlet([2.0, 1.5, 4.0]).logpdf(p),
        rtol=1e-10,
    )
    member = fd.Poisson(array(1.7))
    np.testing.assert_allclose(
        log_density(fd.GammaPrior(member, array(2.0), array(3.0)), member),
        st.gamma(2.0, scale=1 / 3).logpdf(1.7),
        rtol=1e-10,
    )
    sigma, mu = np.array([[1.5, 0.3], [0.3, 0.8]]), np.array([0.5, 0.2])
    prior = CASES["full"][1](None)
    expected = st.invwishart(5, np.asarray(PSI)).logpdf(sigma)
    expected += st.multivariate_normal([1.0, 0.0], sigma / 2).logpdf(mu)
    member = fd.Gaussian(jnp.asarray(mu), fd.Full(jnp.asarray(sigma)))
    np.testing.assert_allclose(log_density(prior, member), expected, rtol=1e-10)
    prior = fd.NormalInverseGamma(array(1.0), array(2.0), array(3.0), array(1.5))
    expected = st.invgamma(3.0, scale=1.5).logpdf(0.7) + st.norm(1.0, np.sqrt(0.35)).logpdf(0.4)
    member = fd.Gaussian(array(0.4), fd.Diagonal(array(0.7)))
    np.testing.assert_allclose(log_density(prior, member), expected, rtol=1e-10)


def test_wishart_and_gamma_priors_agree_in_one_dimension():
    """W⁻¹(ψ, ν) of one variance is Γ⁻¹(ν/2, ψ/2)."""
    wishart = fd.NormalInverseWishart(array(0.5), jnp.array(2.0), jnp.array([[3.0]]), jnp.array(4.0))
    gamma = fd.NormalInverseGamma(array(0.5), array(2.0), array(2.0), array(1.5))
    first = wishart.update(jnp.array(3.0), array(2.0, 7.0)).mode()
    second = gamma.update(array(3.0), array(2.0, 7.0)).mode()
    np.testing.assert_allclose(first.mean, second.mean, rtol=1e-12)
    np.testing.assert_allclose(first.covariance.matrix(), second.covariance.matrix(), rtol=1e-12)


def test_posterior_mean_is_the_predictive_probability():
    # moon B01: three heads and a tail under a uniform prior predict heads with 2/3
    prior = fd.BetaPrior(fd.Bernoulli(array(0.5)), array(1.0), array(1.0))
    posterior = prior.update(array(4.0), array(3.0))

    def integrand(p):
        return p * np.exp(log_density(posterior, fd.Bernoulli(array(p))))

    np.testing.assert_allclose(
        integrate.fixed_quad(np.vectorize(integrand), 0, 1, n=8)[0], 2 / 3, rtol=1e-10
    )


def test_modes_on_the_boundary_stay_finite():
    prior = fd.BetaPrior(fd.Bernoulli(array(0.5, 0.5)), array(0.5, 1.0), array(3.0, 1.0))
    mode = prior.mode().probability
    assert 0 < mode[0] < 1e-12
    assert mode[1] == 0.5
    assert fd.GammaPrior(fd.Poisson(array(1.0)), array(0.5), array(1.0)).mode().rate[0] > 0


def test_precision_far_from_zero_is_kept():
    # sums about the prior mean: a shift of a thousand with the data costs no digits to speak of
    shift = 1e3
    x = NORMAL
    near = fd.NormalInverseWishart(jnp.zeros(2), jnp.array(2.0), PSI, jnp.array(5.0))
    far = fd.NormalInverseWishart(jnp.full(2, shift), jnp.array(2.0), PSI, jnp.array(5.0))
    sums = jax.jit(lambda x: jax.vmap(FULL.features)(x).sum(axis=0))
    a, b = map_estimate(near, sums(x)), map_estimate(far, sums(x + shift))
    np.testing.assert_allclose(b.covariance.matrix(), a.covariance.matrix(), rtol=1e-7)
