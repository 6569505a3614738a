"""Regressions with unknown parameters: energies against SciPy, posteriors against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

from freeenergy.distributions import Bernoulli, Diagonal, Gaussian, Mean, Poisson
from freeenergy.inference import FreeTarget, GaussianVariational, Laplace, RandomWalk, infer
from freeenergy.models import BayesianRegression, HierarchicalNormal

KEY = jax.random.key(0)
FAR = 4.5
RNG = np.random.default_rng(1)
X = RNG.normal(size=(30, 1))
LABELS = (RNG.random(30) < expit(0.5 + 1.5 * X[:, 0])).astype(float)
GROUP = np.array(["a", "b", "c"])[RNG.integers(0, 3, 30)]


def one(member, x, y, **options):
    return BayesianRegression.of(x, y, member(jnp.full(1, 0.5)), **options)


def test_energies_are_those_of_scipy():
    z = {"intercept": np.array([0.3]), "slopes": np.array([[-0.8]])}
    prior = stats.norm(0, 10).logpdf(0.3) + stats.norm(0, 2.5).logpdf(-0.8)
    outputs = 0.3 - 0.8 * X[:, 0]
    logistic = one(Bernoulli, X, LABELS)
    expected = prior + stats.bernoulli(expit(outputs)).logpmf(LABELS).sum()
    np.testing.assert_allclose(logistic(z), -expected, rtol=1e-12)
    counts = RNG.poisson(2.0, 30).astype(float)
    expected = prior + stats.poisson(np.exp(outputs)).logpmf(counts).sum()
    np.testing.assert_allclose(one(Poisson, X, counts)(z), -expected, rtol=1e-12)
    # groups, and what is not observed
    holes = np.where(np.arange(30) < 3, np.nan, LABELS)
    grouped = one(Bernoulli, X, holes, group=GROUP, spread=0.7, intercept=3.0, slope=1.0)
    more = {"spread": np.array([0.4]), "effects": np.array([[0.2], [-1.1], [0.6]])}
    shifted = outputs + 0.4 * more["effects"][np.unique(GROUP, return_inverse=True)[1], 0]
    prior = (
        stats.norm(0, 3).logpdf(0.3) + stats.norm(0, 1).logpdf(-0.8) + stats.halfnorm(0, 0.7).logpdf(0.4)
    )
    prior += stats.norm.logpdf(more["effects"]).sum()
    expected = prior + stats.bernoulli(expit(shifted)).logpmf(LABELS)[3:].sum()
    np.testing.assert_allclose(grouped(z | more), -expected, rtol=1e-12)
    assert set(grouped.space) == set(z | more)
    # an answer with a variance of its own
    normal = BayesianRegression.of(
        X, LABELS, Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))), Mean(), rest=2.0
    )
    target = FreeTarget(normal, normal.space)
    full = target.value(jnp.array([0.7, 0.3, -0.8]))
    variance = float(jax.tree.leaves(full["answer"])[0][0])
    expected = stats.norm(0, 10).logpdf(full["intercept"][0]) + stats.norm(0, 2.5).logpdf(
        full["slopes"][0, 0]
    )
    expected += stats.expon(scale=2.0).logpdf(variance)
    mean = float(full["intercept"][0]) + X[:, 0] * float(full["slopes"][0, 0])
    expected += stats.norm(mean, np.sqrt(variance)).logpdf(LABELS).sum()
    np.testing.assert_allclose(normal(full), -expected, rtol=1e-12)


def by_quadrature():
    """log Z, the means of intercept and slope, and p(y = 1) at x = 2, on a grid."""
    b, w = (v.ravel() for v in np.meshgrid(np.linspace(-4, 5, 400), np.linspace(-3, 8, 400)))
    outputs = b[:, None] + w[:, None] * X[:, 0]
    logs = -np.logaddexp(0, np.where(LABELS == 1, -outputs, outputs)).sum(axis=1)
    logs += stats.norm(0, 10).logpdf(b) + stats.norm(0, 2.5).logpdf(w)
    log_z = logsumexp(logs) + np.log(9 / 399 * 11 / 399)
    p = np.exp(logs - logsumexp(logs))
    return log_z, p @ b, p @ w, p @ expit(b + 2 * w)


@pytest.mark.parametrize("method", [Laplace(), GaussianVariational(), RandomWalk(steps=4000)])
def test_a_logistic_regression_by_several_methods(method):
    log_z, intercept, slope, chance = by_quadrature()
    energy = one(Bernoulli, X, LABELS)
    found = infer(energy, energy.space, method, key=KEY)
    mean, error = found.expect(lambda z: jnp.stack([z["intercept"][0], z["slopes"][0, 0]]))
    # a normal law is not this skewed posterior, and its mean (for Laplace, the mode) is off by a third of a
    # deviation at most
    slack = 0 if isinstance(method, RandomWalk) else 0.28
    assert (np.abs(np.asarray(mean) - [intercept, slope]) < FAR * np.asarray(error) + slack).all()
    nats = energy.log_predictive(found, [[2.0], [2.0]], [1.0, 0.0])
    np.testing.assert_allclose(np.exp(nats).sum(), 1, rtol=1e-9)
    np.testing.assert_allclose(np.exp(nats[0]), chance, atol=0.02)
    if isinstance(method, Laplace):
        assert abs(float(found.log_evidence.nats) - log_z) < 3 * float(found.log_evidence.stderr)
    if isinstance(method, GaussianVariational):
        assert 0 < log_z - float(found.log_evidence.nats) + FAR * float(found.log_evidence.stderr) < 0.2
        # probabilities are averaged, and not their logarithms (cho S4)
        values, weights = found.weighted_values()
        p = expit(np.asarray(values["intercept"][:, 0] + 2 * values["slopes"][:, 0, 0]))
        np.testing.assert_allclose(np.exp(nats[0]), np.asarray(weights) @ p, rtol=1e-9)
        again = np.asarray(energy.replicate(found, 400, key=KEY))
        assert again.shape == (400, 30, 1)
        share, p = again.mean(axis=0)[:, 0], np.exp(energy.log_predictive(found, X, np.ones(30)))
        assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / 400) + 0.01).all()


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def test_eight_schools_are_those_of_quadrature():
    """With μ and the effects integrated out in closed form the spread τ is one number, on a grid."""
    model = HierarchicalNormal.of(SCHOOLS, ERRORS, location=100.0, spread=10.0)
    z = {"mean": jnp.array(3.0), "spread": jnp.array(5.0), "effects": jnp.linspace(-1, 1, 8)}
    expected = stats.norm(0, 100).logpdf(3.0) + stats.halfnorm(0, 10).logpdf(5.0)
    expected += stats.norm.logpdf(np.linspace(-1, 1, 8)).sum()
    expected += stats.norm(3 + 5 * np.linspace(-1, 1, 8), ERRORS).logpdf(SCHOOLS).sum()
    np.testing.assert_allclose(model(z), -expected, rtol=1e-12)
    tau = np.linspace(0.005, 60, 3000)
    weight = 1 / (ERRORS**2 + tau[:, None] ** 2)
    precision = weight.sum(axis=1) + 1e-4
    centre = (weight @ SCHOOLS) / precision
    logs = 0.5 * (
        np.log(weight).sum(axis=1) - np.log(precision) - weight @ SCHOOLS**2 + precision * centre**2
    )
    logs += stats.halfnorm(0, 10).logpdf(tau)
    p = np.exp(logs - logsumexp(logs))
    found = infer(model, model.space, RandomWalk(steps=20_000, burn_in=4000), key=KEY)
    shrunk = (SCHOOLS[0] / ERRORS[0] ** 2 + centre / tau**2) / (1 / ERRORS[0] ** 2 + 1 / tau**2)
    mean, error = found.expect(lambda z: jnp.stack([z["mean"], z["spread"], model.means(z)[0]]))
    exact = np.array([p @ centre, p @ tau, p @ shrunk])
    assert (np.abs(np.asarray(mean) - exact) < FAR * np.asarray(error)).all()
    assert (np.asarray(error) < 0.5).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="The 'x' of BayesianRegression must be rows of finite numbers"):
        one(Bernoulli, [[np.nan]], [1.0])
    with pytest.raises(ValueError, match=r"The 'y' of BayesianRegression must have the shape \(30, 1\)"):
        one(Bernoulli, X, LABELS[:3])
    with pytest.raises(ValueError, match=r"The 'slope' of BayesianRegression .* Got -1.0 instead"):
        one(Bernoulli, X, LABELS, slope=-1.0)
    with pytest.raises(ValueError, match=r"must have a label for each of 30 rows\. Got 2 instead"):
        one(Bernoulli, X, LABELS, group=["a", "b"])
    with pytest.raises(ValueError, match="The 'error' of HierarchicalNormal must have a positive number"):
        HierarchicalNormal.of([1.0, 2.0], [1.0, 0.0])
    grouped = one(Bernoulli, X, LABELS, group=GROUP)
    with pytest.raises(ValueError, match="New rows of BayesianRegression must have a 'group' if"):
        grouped._new(X, None)
