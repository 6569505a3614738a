"""Coordinate mean field: against fixed points, enumeration, and closed forms of normal samples."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

from freeenergy import Kind
from freeenergy.distributions import Bernoulli, Binary, Diagonal, Gamma, Gaussian, Laplace, Positive, Reals
from freeenergy.inference import (
    Amortised,
    CoordinateMeanField,
    Factors,
    Nature,
    Pathwise,
    Quadratic,
    Refined,
    free_energy,
    infer,
)
from freeenergy.inference._mean_field import coordinate_sweep
from freeenergy.models import LinearGaussian

KEY = jax.random.key(0)
RNG = np.random.default_rng(3)
COUPLING = np.triu(RNG.normal(size=(5, 5)), 1) / 2
FIELD = RNG.normal(size=5) / 2


def machine(z):
    return -z @ jnp.asarray(COUPLING) @ z - z @ jnp.asarray(FIELD)


def test_a_boltzmann_machine_is_at_its_fixed_point():
    """m_i = σ(b_i + Σ_j W_ij m_j), and the bound is below log Z by KL(q ‖ p), both by enumeration."""
    method = CoordinateMeanField(Bernoulli(jnp.full(5, 0.5)), machine)
    found = infer(machine, Binary((5,)), method, key=KEY)
    m = np.asarray(found.q.parts.probability)
    np.testing.assert_allclose(m, special.expit(FIELD + (COUPLING + COUPLING.T) @ m), atol=1e-7)
    states = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
    logs = np.array([s @ COUPLING @ s + s @ FIELD for s in states])
    log_q = states @ np.log(m) + (1 - states) @ np.log1p(-m)
    bound = np.exp(log_q) @ (logs - log_q)
    np.testing.assert_allclose(found.log_evidence.nats, bound, rtol=1e-9)
    assert found.log_evidence.kind is Kind.LOWER
    assert found.nature is Nature.VARIATIONAL
    assert bound < special.logsumexp(logs)
    assert found.diagnostics["converged"]
    assert float(found.diagnostics["mismatch"]) < 4.5


ROWS = np.array([1.2, 0.4, 2.2, 1.7, 0.9, 1.3])
N = len(ROWS)
# a priori μ ~ N(0, 4), τ ~ Gamma(2, 1)
PRIOR = 0.25
LOG_2PI = np.log(2 * np.pi)


def expected(t, tilt=0.0):
    """−log p(rows, μ, τ) from μ, μ², log τ and τ, in each of which it is linear."""
    mu, square = t["mean"]
    log_tau, tau = t["precision"][0]
    squares = np.sum(ROWS**2) - 2 * mu * np.sum(ROWS) + N * square
    likelihood = 0.5 * tau * squares - 0.5 * N * (log_tau - LOG_2PI)
    prior = 0.5 * PRIOR * square + 0.5 * (LOG_2PI - np.log(PRIOR)) + tau - log_tau
    return likelihood + prior + tilt * mu


FACTORS = {
    "mean": Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))),
    "precision": Gamma(jnp.ones(1), jnp.ones(1)),
}


def normal_sample(z):
    mu, tau = z["mean"], z["precision"]
    statistics = {"mean": jnp.concatenate([mu, mu**2]), "precision": jnp.stack([jnp.log(tau), tau], axis=1)}
    return expected(statistics)


def joint(t, m):
    likelihood = np.exp(-0.5 * t * ((ROWS - m) ** 2).sum()) * (t / (2 * np.pi)) ** (N / 2)
    return likelihood * np.exp(-PRIOR / 2 * m**2) * np.sqrt(PRIOR / (2 * np.pi)) * t * np.exp(-t)


def test_the_mean_and_the_precision_of_a_normal_sample():
    np.testing.assert_allclose(
        normal_sample({"mean": jnp.array([0.7]), "precision": jnp.array([1.3])}),
        -np.log(joint(1.3, 0.7)),
        rtol=1e-9,
    )
    space = {"mean": Reals((1,)), "precision": Positive((1,))}
    found = infer(normal_sample, space, CoordinateMeanField(FACTORS, expected), key=KEY)
    q = found.q.parts
    # the textbook's updates at their fixed point
    tau = float(q["precision"].shape[0] / q["precision"].rate[0])
    variance = 1 / (PRIOR + N * tau)
    mean = variance * tau * ROWS.sum()
    np.testing.assert_allclose(q["mean"].mean, [mean], rtol=1e-7)
    np.testing.assert_allclose(q["mean"].covariance.variance, [variance], rtol=1e-7)
    np.testing.assert_allclose(q["precision"].shape, [2 + N / 2], rtol=1e-9)
    squares = ((ROWS - mean) ** 2).sum() + N * variance
    np.testing.assert_allclose(q["precision"].rate, [1 + squares / 2], rtol=1e-7)
    assert float(found.diagnostics["mismatch"]) < 4.5
    log_z = np.log(integrate.dblquad(joint, -4, 6, 0, 25)[0])
    assert 0 < log_z - float(found.log_evidence.nats) < 0.1
    # an `expected` that is not the mean of the energy shows
    tilted = CoordinateMeanField(FACTORS, eqx.Partial(expected, tilt=1.0))
    assert float(infer(normal_sample, space, tilted, key=KEY).diagnostics["mismatch"]) > 20


def test_two_correlated_normal_numbers_have_their_means_and_too_little_variance():
    """In turn: the means are exact, the variances 1/Λ_kk, and the gap ½ log(Λ₁₁Λ₂₂ / |Λ|)."""
    precision, field = np.array([[2.0, 1.2], [1.2, 1.5]]), np.array([0.5, -1.0])

    def expected(t):
        (a, a2), (b, b2) = t["a"], t["b"]
        squares = 0.5 * (precision[0, 0] * a2 + precision[1, 1] * b2)
        return squares + precision[0, 1] * a * b - field[0] * a - field[1] * b

    def energy(z):
        a, b = z["a"][0], z["b"][0]
        return expected({"a": (a, a**2), "b": (b, b**2)})

    factor = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    space = {"a": Reals((1,)), "b": Reals((1,))}
    method = CoordinateMeanField({"a": factor, "b": factor}, expected)
    found = infer(energy, space, method, key=KEY)
    exact = np.linalg.solve(precision, field)
    for k, q in enumerate((found.q.parts["a"], found.q.parts["b"])):
        np.testing.assert_allclose(q.mean, exact[k : k + 1], rtol=1e-6)
        np.testing.assert_allclose(q.covariance.variance, 1 / precision[k, k], rtol=1e-9)
    log_z = np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1] + 0.5 * field @ exact
    gap = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    np.testing.assert_allclose(found.log_evidence.nats, log_z - gap, rtol=1e-6)


def test_no_sweep_raises_the_free_energy():
    sweep = eqx.filter_jit(coordinate_sweep)
    bits = Bernoulli(jnp.asarray([0.9, 0.1, 0.5, 0.99, 0.01]))
    for energy, factors in ((expected, FACTORS), (machine, bits)):
        last = np.inf
        for _ in range(6):
            factors, free = sweep(energy, factors)
            assert float(free) <= last + 1e-12
            last = float(free)


def test_only_exponential_families_can_be_factors():
    with pytest.raises(TypeError, match="Factors of mean field must be exponential families"):
        coordinate_sweep(jnp.sum, Laplace(jnp.zeros(1), jnp.ones(1)))
    pair = Factors({"a": Bernoulli(jnp.array([0.5])), "b": Bernoulli(jnp.array([0.25]))})
    drawn = pair.sample(key=KEY)
    share = 0.25 if drawn["b"][0] == 1 else 0.75
    np.testing.assert_allclose(pair.log_prob(drawn), np.log(0.5 * share), rtol=1e-9)


def test_a_recognition_is_refined_for_each_observation():
    """The bound after a few steps is at least that before (cho P28), in the end the best there is."""
    loading = np.array([[1.0, 0.5], [0.2, -1.0]])
    model = LinearGaussian(jnp.asarray(loading), jnp.zeros(2), Diagonal(jnp.array([0.5, 1.0])))
    network = Amortised(lambda x: Gaussian(0.3 * x, Diagonal(jnp.full(2, 0.8))), expectation=Quadratic())

    @eqx.filter_jit
    def bounds(x):
        def bound(recognition):
            return free_energy(model.energy, recognition, x, key=KEY)

        refined = [bound(Refined(network, steps, expectation=Quadratic())) for steps in (10, 300)]
        return bound(network), *refined, -model.log_prob(x)

    precision = np.eye(2) + loading.T @ np.diag([2.0, 1.0]) @ loading
    gap = 0.5 * np.log(np.diagonal(precision).prod() / np.linalg.det(precision))
    for x in np.random.default_rng(0).normal(size=(4, 2)):
        plain, few, many, exact = (float(v) for v in bounds(jnp.asarray(x)))
        assert plain >= few >= many - 1e-6
        np.testing.assert_allclose(many - exact, gap, atol=2e-3)
    assert Refined(network).expectation == Pathwise(32)
