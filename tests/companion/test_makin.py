"""Rows of Makin's "An Introduction to Modern Statistical Learning" that no other test asserts."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from scipy import integrate, linalg, optimize, special, stats
from sklearn.linear_model import Lasso, LinearRegression, PoissonRegressor, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import freeenergy as fe
import freeenergy.distributions as fd
import freeenergy.inference as fi
from freeenergy._core import parameter
from freeenergy.bijections import Affine, Chain, Coupling, GeneralAffine, Shift, TriangularAffine
from freeenergy.learning import MAP, Batch, Gradient, fit, negative_log_likelihood
from freeenergy.models import (
    VAE,
    Corrected,
    Diffusion,
    GaussianEncoder,
    Harmonium,
    Implicit,
    LaplaceSource,
    LinearGaussian,
    LogCoshSource,
    Mixture,
    PredictsDatum,
    SparseCoding,
    StandardNormal,
    Units,
    VarianceExploding,
    ppca_closed_form,
)
from freeenergy.models._sparse_coding import SparseStatistics
from freeenergy.nn import MLP, Linear

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
COUNTS = Mixture(jnp.array([0.2, 0.5, 0.3]), fd.Poisson(jnp.array([[1.0, 4.0], [2.0, 2.0], [6.0, 0.5]])))


def factors(dim=4, k=2, seed=2):
    rng = np.random.default_rng(seed)
    noise = fd.Diagonal(jnp.asarray(rng.uniform(0.3, 1, dim)))
    return LinearGaussian(jnp.asarray(rng.normal(size=(dim, k))), jnp.asarray(rng.normal(size=dim)), noise)


def once(function, *arrays):
    """The values of a function, compiled as one program, as NumPy arrays."""
    return jax.tree.map(np.asarray, jax.jit(function)(*map(jnp.asarray, arrays)))


def always(q, expectation):
    """A recognition that gives `q` whatever is observed."""
    return fi.Amortised(lambda x: q, expectation=expectation)


# ---- chapter 1: notation


# 1.01, 2.01, 2.07
def test_the_joint_at_what_is_observed_is_a_function_of_the_cause():
    x = np.array([3.0, 1.0])
    joint, evidence, posterior = once(
        lambda x: (
            -jax.vmap(lambda k: COUNTS.energy(x, k))(jnp.arange(3)),
            COUNTS.log_prob(x),
            COUNTS.posterior(x).probabilities,
        ),
        x,
    )
    expected = np.log([0.2, 0.5, 0.3]) + stats.poisson.logpmf(x, COUNTS.components.rate).sum(axis=1)
    np.testing.assert_allclose(joint, expected, rtol=1e-12)
    # its sum is the evidence, and evidence times posterior is the joint again, pointwise
    np.testing.assert_allclose(evidence, special.logsumexp(expected), rtol=1e-12)
    np.testing.assert_allclose(np.log(posterior) + evidence, joint, rtol=1e-12)
    np.testing.assert_allclose(posterior, special.softmax(expected + 7.0), rtol=1e-12)
    assert float(posterior.sum()) == pytest.approx(1, abs=1e-15)


# 1.03, 2.01
def test_laws_of_total_expectation_and_covariance():
    model = factors()
    y, z = RNG.normal(size=(5, 4)), RNG.normal(size=2)

    def run(y, z):
        q = jax.vmap(model.posterior)(y)
        at = jax.vmap(lambda row: model.posterior(row).log_prob(z) + model.log_prob(row))(y)
        hybrid, _ = model.expect(y, jnp.full(5, 0.2), temperature=jnp.ones(()), incomplete=False)
        energies = jax.vmap(lambda row: model.energy(row, z))(y)
        return q.mean, q.covariance.matrix(), at, energies, hybrid, model.covariance()

    means, covariances, joint, energies, hybrid, covariance = once(run, y, z)
    np.testing.assert_allclose(joint, -energies, rtol=1e-11)
    # E[z | y] is affine in y: its gain from five rows, and from it the law of total covariance
    gain = np.linalg.lstsq(np.column_stack([y, np.ones(5)]), means, rcond=None)[0][:-1].T
    np.testing.assert_allclose(gain @ covariance @ gain.T + covariances[0], np.eye(2), atol=1e-10)
    # the mean over the model's own y is that of the prior, over data it is what the M step counts
    np.testing.assert_allclose(hybrid.codes[0, :2, 2], means.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(model.mean) @ gain.T, -(means - y @ gain.T)[0], atol=1e-10)


# 1.04, 2.16
def test_cross_covariances_are_transposes_of_each_other():
    model = factors()
    prior = fd.Gaussian(jnp.array([0.5, -1.0]), fd.Full(jnp.array([[2.0, 0.3], [0.3, 1.0]])))
    both = once(lambda c: fd.joint(prior, c, model.mean, model.noise).covariance.matrix(), model.loading)
    np.testing.assert_allclose(both[:2, 2:], both[2:, :2].T, rtol=1e-14)
    np.testing.assert_allclose(
        both[:2, 2:], np.asarray(prior.covariance.value) @ model.loading.T, rtol=1e-14
    )
    x = RNG.multivariate_normal(np.zeros(2), np.eye(2), 7)
    y = x @ np.asarray(model.loading).T
    mixed = np.cov(x.T, y.T)[:2, 2:]
    np.testing.assert_allclose(mixed, (x - x.mean(0)).T @ (y - y.mean(0)) / 6, rtol=1e-10)


# 1.05, 5.19, 5.20
def test_slopes_of_a_recurrent_network_backwards_and_forwards():
    """S = Σ_t ½‖z_t − a‖² + ½‖D‖² with z_t = tanh(D z_{t−1} + E y_t + d)."""
    D, E, d = RNG.normal(size=(2, 2)), RNG.normal(size=(2, 3)), RNG.normal(size=2)
    y, a = RNG.normal(size=(4, 3)), RNG.normal(size=2)

    def cost(theta, hold):
        def step(z, row):
            new = jnp.tanh(theta[0] @ z + theta[1] @ row + theta[2])
            return new, new

        _, states = jax.lax.scan(step, jnp.zeros(2), jnp.asarray(y))
        states = jax.lax.stop_gradient(states) if hold else states
        return 0.5 * jnp.sum((states - jnp.asarray(a)[None]) ** 2) + 0.5 * jnp.sum(theta[0] ** 2)

    @jax.jit
    def slopes_of(theta):
        return jax.grad(cost)(theta, False), jax.grad(cost)(theta, True), jax.jacfwd(cost)(theta, False)

    total, partial, forwards = slopes_of((D, E, d))
    # ∂S/∂D holds the states fast, dS/dD does not
    np.testing.assert_allclose(partial[0], D, rtol=1e-12)
    np.testing.assert_array_equal(partial[1], 0)

    states = [np.zeros(2)]
    for row in y:
        states.append(np.tanh(D @ states[-1] + E @ row + d))
    slopes = [D.copy(), np.zeros((2, 3)), np.zeros(2)]
    later = np.zeros(2)
    for t in range(4, 0, -1):
        b = (1 - states[t] ** 2) * (states[t] - a + later)
        slopes[0] += np.outer(b, states[t - 1])
        slopes[1] += np.outer(b, y[t - 1])
        slopes[2] += b
        later = D.T @ b
    for found, carried_along, wanted in zip(total, forwards, slopes, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)
        np.testing.assert_allclose(carried_along, wanted, rtol=1e-11)
    # real-time recurrent learning: dz_t/dd carried forward
    carried, online = np.zeros((2, 2)), np.zeros(2)
    for t in range(1, 5):
        carried = (1 - states[t] ** 2)[:, None] * (D @ carried + np.eye(2))
        online += carried.T @ (states[t] - a)
    np.testing.assert_allclose(online, slopes[2], rtol=1e-12)


# ---- chapter 2: directed models


def information(table, a, b):
    """Mutual information of two axes of a table."""
    rest = tuple(i for i in range(table.ndim) if i not in (a, b))
    joint = table.sum(axis=rest)
    return np.sum(special.rel_entr(joint, np.outer(joint.sum(1), joint.sum(0))))


# 2.02
def test_fork_chain_and_collider():
    fork = Mixture(jnp.array([0.3, 0.7]), fd.Bernoulli(jnp.array([[0.2, 0.9], [0.7, 0.4]])))
    start, move = np.array([0.3, 0.7]), np.array([[0.9, 0.1], [0.2, 0.8]])
    effect = LinearGaussian(jnp.ones((1, 2)), jnp.zeros(1), fd.Diagonal(jnp.ones(1)))

    def run(bits, start, move):
        energies = jax.vmap(lambda k: jax.vmap(lambda x: fork.energy(x, k))(bits))(jnp.arange(2))
        filtered = fi.filter(fi.FiniteBeliefs(move), start, fi.FiniteStep(jnp.zeros((3, 2))))
        return energies, filtered.predicted[2], effect.posterior(jnp.zeros(1)).covariance.matrix()

    bits = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    energies, third, covariance = once(run, bits, start, move)
    # a fork: effects are independent given their cause, and not without it
    table = np.exp(-energies).reshape(2, 2, 2)
    assert information(table, 1, 2) > 0.01
    for k in range(2):
        assert information(table[k] / table[k].sum(), 0, 1) < 1e-15
    # a chain: ends are independent given the middle, and not without it
    chain = start[:, None, None] * move[:, :, None] * move[None]
    np.testing.assert_allclose(third, chain.sum(axis=(0, 1)), rtol=1e-12)
    assert information(chain, 0, 2) > 0.01
    assert information(chain[:, 0] / chain[:, 0].sum(), 0, 1) < 1e-15
    # a collider: causes are independent until their common effect is seen
    np.testing.assert_allclose(covariance, np.array([[2.0, -1.0], [-1.0, 2.0]]) / 3, rtol=1e-12)


# 2.05
def test_a_category_as_a_number_and_as_one_hot():
    p = np.array([0.2, 0.5, 0.3])

    def run(p, labels, hot):
        number, one = fd.Categorical(p[None]), fd.Multinomial(p)
        return jax.vmap(number.log_prob)(labels[:, None]), jax.vmap(one.log_prob)(hot)

    as_number, as_one_hot = once(run, p, np.arange(3.0), np.eye(3))
    np.testing.assert_allclose(as_number, np.log(p), rtol=1e-12)
    # with the one-hot code it is linear
    np.testing.assert_allclose(as_one_hot, np.eye(3) @ np.log(p), rtol=1e-12)


# 2.06, 2.11, 8.36, 8.37
def test_a_mixture_of_gaussians_by_its_mass_draws_and_force():
    """y = αx + noise, with x from a mixture: what is seen is a mixture, too."""
    w, mu, sd, alpha, noise, y = (
        np.array([0.3, 0.7]),
        np.array([-2.0, 1.0]),
        np.array([0.5, 0.8]),
        0.6,
        0.9,
        0.37,
    )
    means, variances = alpha * mu, alpha**2 * sd**2 + noise**2
    members = fd.Gaussian(jnp.asarray(means[:, None]), fd.Diagonal(jnp.asarray(variances[:, None])))
    model = Mixture(jnp.asarray(w), members)

    def run(grid, at, keys):
        draws = jax.vmap(lambda k: model.sample(key=k)[0])(keys)
        return (
            jax.vmap(model.log_prob)(grid),
            draws,
            jax.grad(model.log_prob)(at),
            model.posterior(at).probabilities,
        )

    grid, n = np.linspace(-9, 9, 1801), 10_000
    log_p, draws, (force,), r = once(run, grid[:, None], np.array([y]), jax.random.split(KEY, n))
    density = stats.norm.pdf(grid[:, None], means, np.sqrt(variances)) @ w
    np.testing.assert_allclose(np.exp(log_p), density, rtol=1e-10)
    np.testing.assert_allclose(np.exp(log_p).sum() * 0.01, 1, rtol=1e-10)
    mean = w @ means
    variance = w @ (variances + (means - mean) ** 2)
    assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(draws.var() - variance) < 5 * np.std((draws - mean) ** 2) / np.sqrt(n)
    # the force is the mean force of the components, and Tweedie's formula with E[x | y]
    assert force == pytest.approx(r @ ((means - y) / variances), rel=1e-11)
    denoised = r @ (mu + alpha * sd**2 / variances * (y - means))
    assert force == pytest.approx((alpha * denoised - y) / noise**2, rel=1e-11)
    assert force == pytest.approx(0.0101991835, abs=1e-9)


# 8.31
def test_a_step_back_is_learned_like_a_model_of_the_datum_at_once():
    """p(x | x_t) = N(m̂, I/(SNR_s − SNR_t)): minus its log has the slope of the divergence of the step."""

    def model(free):
        return Diffusion(lambda x, log_snr: free[0] * x + free[1] * jnp.sin(x + log_snr), 2, share=0.0)

    x, noise, times = np.array([0.8, -1.1]), np.array([0.4, 0.9]), (0.55, 0.4)
    free = np.array([0.3, -0.2])

    def run(free):
        def seen(free):
            own = model(free)
            noisy, clean = (own.stage(jnp.array(t)) for t in times)
            datum = own.denoised(noisy.alpha * x + noisy.sigma * noise, noisy)[0]
            gained = jnp.exp(clean.log_snr) - jnp.exp(noisy.log_snr)
            return own.step_cost(x, noise, noisy, clean), datum, gained

        return seen(free), jax.grad(lambda free: seen(free)[0])(free)

    def at_once(free):
        _, datum, gained = (np.asarray(v) for v in once(run, free)[0])
        return -stats.multivariate_normal(datum, np.eye(2) / gained).logpdf(x)

    expected = optimize.approx_fprime(free, at_once, 1e-6)
    assert np.abs(expected).min() > 0.1
    np.testing.assert_allclose(once(run, free)[1], expected, rtol=1e-4)


# 8.38
def test_denoising_score_matching_from_data_to_draws():
    """A denoiser that is fitted to noisy data, Tweedie's formula, and Langevin dynamics along the score."""
    rng, n = np.random.default_rng(0), 20_000
    means, spreads, second = np.array([-2.0, 1.0]), np.array([0.5, 0.8]), rng.random(n) < 0.7
    x = means[second.astype(int)] + spreads[second.astype(int)] * rng.normal(size=n)
    y = x + rng.normal(size=n)
    centres = np.linspace(-6, 6, 25)

    def features(y):
        return jnp.append(jnp.exp(-0.5 * (y - centres) ** 2 / 0.6**2), y)

    table = once(jax.vmap(features), y)
    weights = linalg.solve(table.T @ table + 1e-3 * np.eye(26), table.T @ x)

    def network(unit, log_snr):
        # beyond what is said of data N(0, 1); at SNR one x_t has twice their variance
        noisy = unit * jnp.sqrt(2.0)
        return jnp.dot(features(noisy[0]), weights)[None] - noisy / 2

    def run(keys):
        parts = {"path": VarianceExploding(), "parametrisation": PredictsDatum()}
        model, langevin = Diffusion(network, 1, **parts), Corrected(Implicit(), 500, 0.1)
        one = model.stage(0.5)
        one = one._replace(**dict(zip(("log_snr", "alpha", "sigma"), jnp.array([0.0, 1.0, 1.0]))))

        def walk(key):
            first, rest = jax.random.split(key)
            start = 2 * jax.random.normal(first, (1,))
            noisy = langevin.step(model, start, one, one, key=rest)
            return noisy[0], model.denoised(noisy, one)[0][0]

        grid = jnp.linspace(-4, 3, 50)
        return jax.vmap(walk)(keys), jax.vmap(lambda y: -model.denoised(y[None], one)[1][0])(grid)

    (noisy, denoised), force = once(run, jax.random.split(KEY, 2000))
    # the score of the noisy mixture, in closed form
    grid, shares, wide = np.linspace(-4, 3, 50)[:, None], np.array([0.3, 0.7]), np.sqrt(1 + spreads**2)
    density = shares * stats.norm.pdf(grid, means, wide)
    truth = np.sum(density * (means - grid) / wide**2, axis=1) / density.sum(axis=1)
    assert np.sqrt(np.mean((force - truth) ** 2 * density.sum(axis=1)) / density.sum(axis=1).mean()) < 0.05
    mean = shares @ means
    variance = shares @ (wide**2 + (means - mean) ** 2)
    assert abs(noisy.mean() - mean) < 4 * np.sqrt(variance / 2000)
    # steps of ε = 0.1 add a share of ε/(4 · variance) at most, that of the narrower component
    gaps = (noisy - noisy.mean()) ** 2
    assert abs(gaps.mean() - variance) < 4 * gaps.std() / np.sqrt(2000) + 0.02 * variance
    assert abs(denoised.mean() - mean) < 4 * denoised.std() / np.sqrt(2000)


# 2.09
def test_the_boundary_of_two_classes_with_one_covariance_is_a_plane():
    weights, means = np.array([0.2, 0.8]), np.array([[1.0, 0.0], [-1.0, 2.0]])
    sigma = np.array([[1.0, 0.4], [0.4, 2.0]])
    model = Mixture(
        jnp.asarray(weights), fd.Gaussian(jnp.asarray(means), fd.Tied(fd.Full(jnp.asarray(sigma))))
    )
    normal = np.linalg.solve(sigma, means[0] - means[1])
    offset = np.log(weights[1] / weights[0])
    rows = RNG.normal(size=(5, 2))
    height = (rows - means.mean(0)) @ normal - offset
    on_plane = rows - (height / (normal @ normal))[:, None] * normal
    p = once(jax.vmap(lambda row: model.posterior(row).probabilities), np.concatenate([on_plane, rows]))
    np.testing.assert_allclose(p[:5], 0.5, rtol=1e-10)
    np.testing.assert_allclose(p[5:, 0], special.expit(height), rtol=1e-10)


# 2.12, 2.34, 2.35
def test_alpha_and_gamma_by_hand():
    initial, move = RNG.dirichlet(np.ones(3)), RNG.dirichlet(np.ones(3), 3)
    logs = RNG.normal(size=(5, 3))

    @jax.jit
    def run(transition):
        beliefs, steps = fi.FiniteBeliefs(transition), fi.FiniteStep(jnp.asarray(logs))
        filtered = fi.filter(beliefs, jnp.asarray(initial), steps)
        return filtered, fi.smooth(beliefs, filtered, steps)

    filtered, smoothed = run(jnp.asarray(move))
    alpha = [initial * np.exp(logs[0])]
    for t in range(1, 5):
        alpha.append((alpha[-1] @ move) * np.exp(logs[t]))
    assert float(filtered.log_evidence.sum()) == pytest.approx(np.log(alpha[-1].sum()), rel=1e-12)
    np.testing.assert_allclose(filtered.filtered, [a / a.sum() for a in alpha], rtol=1e-11)
    gamma = alpha[-1] / alpha[-1].sum()
    for t in range(4, 0, -1):
        joint = alpha[t - 1][:, None] * move
        pair = gamma * joint / joint.sum(axis=0)
        np.testing.assert_allclose(pair, gamma * joint * np.exp(logs[t]) / alpha[t], rtol=1e-11)
        np.testing.assert_allclose(smoothed.pairs[t - 1], pair, rtol=1e-10)
        gamma = pair.sum(axis=1)
        np.testing.assert_allclose(smoothed.marginals[t - 1], gamma, rtol=1e-10)
    # where the state stays, one observation after the other is all of them at once
    still, _ = run(jnp.eye(3))
    np.testing.assert_allclose(
        still.filtered[-1], special.softmax(np.log(initial) + logs.sum(axis=0)), rtol=1e-11
    )


# 2.18
def test_what_a_factor_model_cannot_tell():
    model = factors()

    def run(y, turn, m, root):
        turned = eqx.tree_at(lambda f: f.loading, model, model.loading @ turn)
        # a mean and a covariance of the factors go into the offset and the loading
        wide = fd.affine(fd.Gaussian(m, fd.Full(root @ root.T)), model.loading, model.mean, model.noise)
        absorbed = LinearGaussian(model.loading @ root, model.mean + model.loading @ m, model.noise)
        return [f.log_prob(y) for f in (model, turned, wide, absorbed)]

    turn = np.linalg.qr(RNG.normal(size=(2, 2)))[0]
    root = np.array([[2.0, 0.0], [0.5, 0.7]])
    plain, turned, wide, absorbed = once(run, RNG.normal(size=4), turn, np.array([0.3, -2.0]), root)
    assert turned == pytest.approx(plain, rel=1e-12)
    assert wide == pytest.approx(absorbed, rel=1e-11)
    assert abs(wide - plain) > 0.01


# 2.20
def test_one_emission_with_sparse_and_dense_causes():
    c, y, precision = RNG.normal(size=(3, 4)), RNG.normal(size=3), 2.5
    noise = fd.Spherical(jnp.array(1 / precision), dim=3)
    clusters = Mixture(jnp.full(4, 0.25), fd.Gaussian(jnp.asarray(c.T), fd.Tied(noise)))
    dense = LinearGaussian(jnp.asarray(c), jnp.zeros(3), noise)
    sparse = SparseCoding(jnp.asarray(c), jnp.zeros(3), jnp.array(precision), LaplaceSource(1.0))

    def run(y, hot):
        return jnp.stack([clusters.energy(y, jnp.array(1)), dense.energy(y, hot), sparse.energy(y, hot)])

    hot = np.eye(4)[1]
    energies = once(run, y, hot)
    priors = [np.log(0.25), stats.norm.logpdf(hot).sum(), stats.laplace.logpdf(hot).sum()]
    emission = stats.norm.logpdf(y, c[:, 1], precision**-0.5).sum()
    np.testing.assert_allclose(-energies - priors, emission, rtol=1e-11)
    # many dense causes make what is seen normal: the kurtosis of K of them is 3 + 3/K
    draws = np.asarray(sparse.source.sample((20_000, 12), key=KEY))
    for k in (1, 12):
        parts = stats.kurtosis(draws[:, :k].sum(axis=1).reshape(50, -1), axis=1, fisher=False)
        bias = 0.3 / k  # of the kurtosis of few draws
        assert abs(parts.mean() - 3 - 3 / k) < 5 * parts.std() / np.sqrt(50) + bias


# 2.23
def test_stationary_covariances_are_diagonal_in_frequency():
    distance = np.minimum(np.arange(8), 8 - np.arange(8))
    row = np.exp(-distance / 2.0)
    sigma, fourier = linalg.circulant(row), linalg.dft(8, scale="sqrtn")
    power = np.fft.fft(row).real
    np.testing.assert_allclose(fourier.conj().T @ np.diag(power) @ fourier, sigma, atol=1e-12)
    # dividing by the amplitude makes the covariance one, and a picture of power 1/f² flat
    whiten = (fourier.conj().T @ np.diag(power**-0.5) @ fourier).real
    np.testing.assert_allclose(whiten @ sigma @ whiten.T, np.eye(8), atol=1e-12)
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(16), np.fft.fftfreq(16)))
    f[0, 0] = f[0, 1]
    noise = RNG.normal(size=(16, 16))
    picture = np.fft.ifft2(np.fft.fft2(noise) / f).real
    np.testing.assert_allclose(np.fft.ifft2(np.fft.fft2(picture) * f).real, noise, atol=1e-12)
    assert special.comb(256**2, 2, exact=True) == 2_147_450_880


# 2.36
def test_filtering_costs_a_square_of_the_states_a_step():
    def work(jaxpr):
        """Numbers computed by a program, with products of matrices at their cost."""
        total = 0
        for eqn in jaxpr.eqns:
            size = sum(np.prod(v.aval.shape, dtype=int) for v in eqn.outvars)
            inner = jax.tree.leaves(eqn.params, is_leaf=lambda p: hasattr(p, "jaxpr"))
            inner = [p.jaxpr for p in inner if hasattr(p, "jaxpr")]
            if inner:
                total += eqn.params.get("length", 1) * sum(map(work, inner))
            elif eqn.primitive.name == "dot_general":
                total += size * eqn.invars[0].aval.shape[-1]
            else:
                total += size
        return total

    def cost(steps, states):
        def run(transition, initial, logs):
            return fi.filter(fi.FiniteBeliefs(transition), initial, fi.FiniteStep(logs))

        shapes = ((states, states), (states,), (steps, states))
        program, out = jax.make_jaxpr(run, return_shape=True)(
            *(jax.ShapeDtypeStruct(s, jnp.float64) for s in shapes)
        )
        return work(program.jaxpr), sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(out))

    (time, memory), (longer, more), (wider, wide) = cost(64, 40), cost(128, 40), cost(64, 80)
    assert 1.9 < longer / time < 2.1
    assert 3 < wider / time < 4.1
    # what is kept is a belief a step
    assert more == 2 * memory
    assert wide < 2.1 * memory


# 2.39
def test_without_data_the_spread_tends_to_the_lyapunov_equation():
    A, Q = np.array([[0.8, 0.3], [-0.2, 0.5]]), np.array([[1.0, 0.2], [0.2, 0.5]])
    rest = linalg.solve_discrete_lyapunov(A, Q)
    beliefs = fi.LinearGaussianBeliefs(fi.LinearStep(jnp.asarray(A), jnp.zeros(2), jnp.asarray(Q)))
    blind = jax.vmap(lambda y: fi.measure(jnp.ones((1, 2)), jnp.zeros(1), jnp.ones((1, 1)), y))(
        jnp.full((6, 1), jnp.nan)
    )

    @jax.jit
    def predicted(covariance):
        start = fi.GaussianBelief(jnp.zeros(2), covariance)
        return fi.filter(beliefs, start, blind).predicted.covariance

    np.testing.assert_allclose(predicted(jnp.asarray(rest)), np.broadcast_to(rest, (6, 2, 2)), rtol=1e-10)
    # from a wider start it shrinks
    wide = np.asarray(predicted(jnp.asarray(9 * rest)))
    assert (np.diff(np.trace(wide, axis1=1, axis2=2)) < 0).all()
    step = np.linalg.matrix_power(A, 5)
    np.testing.assert_allclose(wide[5] - rest, step @ (8 * rest) @ step.T, rtol=1e-9)


# ---- chapter 3: undirected models


def harmonium(visible, hidden, sizes=(3, 2), scale=1.0):
    biases = [jnp.asarray(RNG.normal(size=n)) for n in sizes]
    units = Units(visible, biases[0]), Units(hidden, biases[1])
    return Harmonium(*units, jnp.asarray(scale * RNG.normal(size=sizes)))


# 3.03
def test_two_conditionals_fit_together_through_one_coupling():
    model, other = (harmonium(fd.Bernoulli, fd.Bernoulli) for _ in range(2))
    x, z = (np.array(list(itertools.product((0.0, 1.0), repeat=n))) for n in (3, 2))

    def couplings(above, below):
        """W by least squares from natural parameters of z | x, and from those of x | z."""
        up, down = once(
            lambda x, z: (
                jax.vmap(lambda s: above.posterior(s).probability)(x),
                jax.vmap(lambda s: below.emission(s).probability)(z),
            ),
            x,
            z,
        )
        with_ones = [np.column_stack([s, np.ones(len(s))]) for s in (x, z)]
        by_x, by_z = (np.linalg.pinv(s) @ special.logit(p) for s, p in zip(with_ones, (up, down)))
        return by_x[:-1], by_z[:-1].T

    from_above, from_below = couplings(model, model)
    np.testing.assert_allclose(from_above, model.coupling, rtol=1e-9)
    np.testing.assert_allclose(from_below, model.coupling, rtol=1e-9)
    from_above, from_below = couplings(model, other)
    assert np.abs(from_above - from_below).max() > 0.1


# 3.04
def test_the_energy_of_gaussian_sides_has_a_minimum_for_weak_coupling_only():
    model = harmonium(fd.GaussianLocation, fd.GaussianLocation)
    size = np.linalg.norm(np.asarray(model.coupling), 2)

    def run(factors):
        def curvature(factor):
            scaled = eqx.tree_at(lambda m: m.coupling, model, factor * model.coupling)
            return jax.hessian(lambda v: scaled.energy(v[:3], v[3:]))(jnp.zeros(5))

        return jax.vmap(curvature)(factors), model.posterior(jnp.ones(3)).mean()

    curvatures, given = once(run, np.array([0.99, 1.01]) / size)
    least = np.linalg.eigvalsh(curvatures).min(axis=1)
    assert least[0] > 0 > least[1]
    # given one side the other is normal with unit variance
    np.testing.assert_allclose(
        given, model.hidden.bias + np.asarray(model.coupling).sum(axis=0), rtol=1e-12
    )
    with pytest.raises(ValueError, match="as many states as 20 binary units"):
        model.log_partition()


# 3.07, 3.08
def test_the_square():
    """Four binary nodes in a ring, with potentials on its sides."""
    potentials = RNG.uniform(0.1, 1, size=(4, 2, 2)) / 4
    sides = ((0, 1), (0, 2), (1, 3), (2, 3))
    states = np.array(list(itertools.product((0, 1), repeat=4)))

    def energy(s):
        return -jnp.sum(
            jnp.stack([jnp.log(jnp.asarray(p))[s[a], s[b]] for p, (a, b) in zip(potentials, sides)])
        )

    posterior, log_z = once(
        lambda s: (
            fi.posterior_by_enumeration(energy, s).probabilities,
            fi.log_partition_by_enumeration(energy, s),
        ),
        states,
    )
    table = posterior.reshape(2, 2, 2, 2)
    # opposite corners are independent given the two others, and not without them
    for middle in np.ndindex(2, 2):
        given = table[:, middle[0], middle[1], :]
        assert information(given / given.sum(), 0, 1) < 1e-14
    assert information(table, 0, 3) > 1e-4
    product = np.einsum("ab,ac,bd,cd->abcd", *potentials)
    assert float(log_z) == pytest.approx(np.log(product.sum()), rel=1e-12)
    # Z is the probability of a value of one more variable, whose other value takes what is left
    rest = (1 - product.sum()) * RNG.dirichlet(np.ones(16)).reshape(table.shape)
    whole = np.stack([product, rest])
    assert whole.sum() == pytest.approx(1)
    assert whole[0].sum() == pytest.approx(np.exp(float(log_z)))
    np.testing.assert_allclose(whole[0] / whole[0].sum(), table, rtol=1e-11)


# ---- chapters 4 and 5: learning, discriminative models


class Line(eqx.Module):
    """x ≈ D y, for rows (y, x)."""

    matrix: Array = parameter()


def squares(model, batch, key):
    y, x = batch.x[:, :2], batch.x[:, 2:]
    return batch.mean(0.5 * jnp.sum((x - y @ model.matrix.T) ** 2, axis=1))


# 4.01, 5.02
def test_descent_on_a_parabola_ends_at_the_normal_equations():
    y = RNG.normal(size=(12, 2))
    x = y @ np.array([[1.0, -2.0]]).T + 0.3 * RNG.normal(size=(12, 1))
    start, learner = Line(jnp.zeros((1, 2))), Gradient(optax.sgd(0.5), squares, None)
    found = fit(start, learner, np.hstack([y, x]), key=KEY, max_iter=200).model.matrix
    np.testing.assert_allclose(found, np.linalg.solve(y.T @ y, y.T @ x).T, rtol=1e-9)
    np.testing.assert_allclose(found, np.linalg.lstsq(y, x, rcond=None)[0].T, rtol=1e-9)
    one = fit(start, learner, np.hstack([y, x]), key=KEY, max_iter=1).model.matrix
    np.testing.assert_allclose(one, 0.5 * (x.T @ y) / 12, rtol=1e-12)


# 4.02, 5.05
def test_a_gaussian_prior_is_a_ridge():
    y = RNG.normal(size=(12, 2))
    x = y @ np.array([[1.0, -2.0]]).T + 0.3 * RNG.normal(size=(12, 1))
    batch = Batch(jnp.asarray(np.hstack([y, x])), jnp.full(12, 1 / 12))
    ridge = np.linalg.solve(y.T @ y + 3.0 * np.eye(2), y.T @ x).T

    def log_prior(m):
        return jnp.sum(jax.scipy.stats.norm.logpdf(m.matrix, scale=3.0**-0.5))

    slope = jax.jit(jax.grad(lambda m: MAP(squares, log_prior, 12.0)(m, batch, KEY)))
    np.testing.assert_allclose(slope(Line(jnp.asarray(ridge))).matrix, 0, atol=1e-12)
    assert np.abs(slope(Line(jnp.asarray(x.T @ y @ np.linalg.inv(y.T @ y)))).matrix).max() > 0.01


# 4.03
def test_the_training_rows_choose_a_polynomial_that_is_too_high():
    x = np.linspace(-1, 1, 24)
    y = 2 * x + 0.5 * RNG.normal(size=24)
    line = make_pipeline(PolynomialFeatures(), LinearRegression())
    search = GridSearchCV(
        line,
        {"polynomialfeatures__degree": list(range(1, 13))},
        scoring="neg_mean_squared_error",
        cv=KFold(6, shuffle=True, random_state=0),
        return_train_score=True,
    ).fit(x[:, None], y)
    assert search.cv_results_["mean_train_score"].argmax() == 11
    held_out = search.cv_results_["mean_test_score"]
    assert held_out.argmax() < 5
    assert held_out[11] < 2 * held_out[0]


# 4.04, 4.05, 4.06
def test_marbles():
    p, q, bits = np.array([0.5, 0.25, 0.125, 0.125]), np.full(4, 0.25), np.log(2)

    def run(p, q):
        one, two = fd.Categorical(p[None]), fd.Categorical(q[None])
        return (
            (fd.entropy(one), fd.entropy(two)),
            (fd.kl_divergence(one, two), fd.kl_divergence(two, one), fd.kl_divergence(one, one)),
            jax.vmap(one.log_prob)(jnp.arange(4.0)[:, None]),
        )

    entropies, divergences, log_p = once(run, p, q)
    np.testing.assert_allclose(np.divide(entropies, bits), [1.75, 2.0], rtol=1e-12)
    np.testing.assert_allclose(np.divide(divergences, bits), [0.25, 0.25, 0], atol=1e-12)
    # surprisals, and cross entropies: the length of a code that was made for the other
    np.testing.assert_allclose(-log_p / bits, [1, 2, 3, 3], rtol=1e-12)
    cross = np.add(entropies, divergences[:2]) / bits
    np.testing.assert_allclose(cross, [2.0, 2.25], rtol=1e-12)
    assert -q @ log_p / bits == pytest.approx(2.25)


# 4.06, 9.01
def test_relative_entropy_does_not_see_units_of_the_event():
    p = fd.Gaussian(jnp.array([0.3, -1.0]), fd.Full(jnp.array([[1.0, 0.4], [0.4, 0.5]])))
    q = fd.Gaussian(jnp.array([0.0, 0.5]), fd.Full(jnp.array([[2.0, -0.3], [-0.3, 1.0]])))
    matrix, shift = np.array([[2.0, 1.0], [-1.0, 3.0]]), np.array([5.0, 6.0])
    data = fd.Gaussian(jnp.zeros(1), fd.Full(jnp.full((1, 1), 2.0)))
    prior, mixing = fd.Logistic(jnp.zeros(1), jnp.ones(1)), Affine(jnp.array([0.5]), jnp.array([1.7]))

    def run(matrix, shift, grid):
        pairs = (p, q), tuple(fd.affine(d, matrix, shift) for d in (p, q))
        numbers = [(fd.kl_divergence(*pair), fd.entropy(pair[0])) for pair in pairs]

        def log_densities(y):
            x, log_det = mixing.inverse(y)
            model = fd.Transformed(prior, mixing)
            return data.log_prob(y), model.log_prob(y), data.log_prob(y) - log_det, prior.log_prob(x), x

        return numbers, jax.vmap(log_densities)(grid[:, None])

    grid = np.linspace(-9, 9, 3601)
    ((kl, entropy), (kl_moved, entropy_moved)), lines = once(run, matrix, shift, grid)
    assert kl_moved == pytest.approx(kl, rel=1e-11)
    assert entropy_moved - entropy == pytest.approx(np.log(7.0), rel=1e-11)
    # generative and discriminative learning of a bijection lower one number: y = d⁻¹(x), u = ψ(x)
    at_y, model, at_x, base, x = lines
    in_y = np.trapezoid(np.exp(at_y) * (at_y - model), grid)
    in_x = np.trapezoid(np.exp(at_x) * (at_x - base), x[:, 0])
    u = special.expit(x[:, 0])
    log_u = at_x - np.log(u * (1 - u))
    minus_entropy = np.trapezoid(np.exp(log_u) * log_u, u)
    np.testing.assert_allclose([in_x, minus_entropy], in_y, rtol=1e-4)


# 4.08
def test_likelihood_and_divergence_from_the_data_differ_by_a_constant():
    rows = np.array([0.0, 0, 1, 2, 2, 2, 1, 0, 0, 0])[:, None]
    shares = np.bincount(rows[:, 0].astype(int)) / len(rows)
    data = fd.Categorical(jnp.asarray(shares[None]))
    batch = Batch(jnp.asarray(rows), jnp.full(len(rows), 1 / len(rows)))

    def run(p):
        model = fd.Categorical(p[None])
        return negative_log_likelihood(model, batch, KEY), fd.kl_divergence(data, model)

    likelihood, divergence = once(jax.vmap(run), np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))
    np.testing.assert_allclose(likelihood - divergence, stats.entropy(shares), rtol=1e-12)
    assert abs(divergence[0] - divergence[1]) > 0.05


def regression(rows=12, inputs=3, outputs=2):
    y = RNG.normal(size=(rows, inputs))
    return y, y @ RNG.normal(size=(inputs, outputs)) + RNG.normal(size=(rows, outputs))


# 5.02, 5.03, 5.04
def test_many_ways_to_linear_regression():
    y, x = regression()
    second, cross = y.T @ y / 12, x.T @ y / 12
    D = cross @ np.linalg.inv(second)
    np.testing.assert_allclose(np.linalg.lstsq(y, x, rcond=None)[0].T, D, rtol=1e-10)
    np.testing.assert_allclose(LinearRegression(fit_intercept=False).fit(y, x).coef_, D, rtol=1e-10)
    # a column of ones does what centring does
    whole = np.linalg.lstsq(np.column_stack([y, np.ones(12)]), x, rcond=None)[0].T
    with_offset = LinearRegression().fit(y, x)
    np.testing.assert_allclose(
        whole, np.column_stack([with_offset.coef_, with_offset.intercept_]), rtol=1e-9
    )
    # one step of Newton's from anywhere; moments of a model with any noise of mean zero
    start = RNG.normal(size=D.shape)
    np.testing.assert_allclose(start - (start @ second - cross) @ np.linalg.inv(second), D, rtol=1e-9)
    np.testing.assert_allclose(D @ second, cross, rtol=1e-10)
    # the residual covariance; a covariance of the outputs cancels, since each has its own row of D
    residual = x - y @ D.T
    np.testing.assert_allclose(x.T @ x / 12 - D @ second @ D.T, residual.T @ residual / 12, rtol=1e-9)
    weight = np.linalg.inv(np.cov(RNG.normal(size=(2, 9))))
    both = np.linalg.solve(np.kron(weight, y.T @ y), (weight @ x.T @ y).ravel())
    np.testing.assert_allclose(both.reshape(D.shape), D, rtol=1e-8)


# 5.05, 5.06
def test_ridges_with_priors_and_correlated_noise():
    y, x = regression()
    second, cross = y.T @ y, x.T @ y
    # an isotropic prior is scikit-learn's; one of any covariance is that of inputs that are rescaled
    ridge = Ridge(alpha=1.7, fit_intercept=False, tol=1e-12)
    np.testing.assert_allclose(
        ridge.fit(y, x).coef_, cross @ np.linalg.inv(second + 1.7 * np.eye(3)), rtol=1e-9
    )
    root = np.linalg.cholesky(np.cov(RNG.normal(size=(3, 9))))
    prior = np.linalg.inv(root @ root.T)
    np.testing.assert_allclose(
        ridge.fit(y @ root, x).coef_ @ root.T, cross @ np.linalg.inv(second + 1.7 * prior), rtol=1e-8
    )
    # a wide prior: least squares, and where rows are few the pseudo-inverse
    few = regression(rows=2)
    wide = few[1].T @ few[0] @ np.linalg.inv(few[0].T @ few[0] + 1e-9 * np.eye(3))
    np.testing.assert_allclose(wide, (np.linalg.pinv(few[0]) @ few[1]).T, rtol=1e-5)
    # noise that is correlated between outputs does matter now: D ⟨YYᵀ⟩ + Σ D Σ_d⁻¹ = ⟨XYᵀ⟩
    sigma = np.cov(RNG.normal(size=(2, 9)))
    D = linalg.solve_sylvester(sigma, second @ root @ root.T, cross @ root @ root.T)
    slope = np.linalg.solve(sigma, D @ second - cross) + D @ prior
    np.testing.assert_allclose(slope, 0, atol=1e-9)
    same = linalg.solve_sylvester(1.7 * np.eye(2), second @ root @ root.T, cross @ root @ root.T)
    np.testing.assert_allclose(same, cross @ np.linalg.inv(second + 1.7 * prior), rtol=1e-8)


# 5.07
def test_a_laplace_prior_is_a_soft_threshold():
    y, x = np.linalg.qr(RNG.normal(size=(12, 3)))[0], 2 * RNG.normal(size=12)
    inner, alpha = y.T @ x, 0.7
    lasso = Lasso(alpha=alpha / 12, fit_intercept=False, tol=1e-12).fit(y, x)
    np.testing.assert_allclose(
        lasso.coef_, np.sign(inner) * np.maximum(np.abs(inner) - alpha, 0), atol=1e-9
    )


# 5.08
def test_newton_finds_the_bottom_of_a_parabola_in_one_step():
    curvature, slope = 3.0, -1.2
    root, report = optimize.newton(
        lambda x: curvature * x + slope, 50.0, fprime=lambda x: curvature, full_output=True, disp=False
    )
    assert root == pytest.approx(0.4, rel=1e-12)
    # the second finds that nothing is left to do
    assert report.iterations <= 2
    # and from near enough it doubles the right digits of another root
    errors = [
        abs(optimize.newton(np.sin, 3.5, fprime=np.cos, maxiter=n, full_output=True, disp=False)[0] - np.pi)
        for n in (1, 2)
    ]
    assert errors[1] < errors[0] ** 2


# 5.09, 5.10
def test_few_rows_as_many_as_unknowns_and_more_with_weights():
    y, x = regression(rows=3)
    exact = np.linalg.solve(y, x)
    np.testing.assert_allclose(np.linalg.lstsq(y, x, rcond=None)[0], exact, rtol=1e-8)
    under = np.linalg.lstsq(y[:2], x[:2], rcond=None)[0]
    np.testing.assert_allclose(y[:2] @ under, x[:2], rtol=1e-9)
    assert np.linalg.norm(under) < np.linalg.norm(exact)
    y, x = regression()
    variance = RNG.uniform(0.2, 3, 12)
    closed = (x.T / variance) @ y @ np.linalg.inv((y.T / variance) @ y)
    weighted = LinearRegression(fit_intercept=False).fit(y, x, sample_weight=1 / variance)
    np.testing.assert_allclose(weighted.coef_, closed, rtol=1e-9)
    # rows that are correlated: least squares once they are whitened
    upsilon = np.cov(RNG.normal(size=(12, 40)))
    inverse, lower = np.linalg.inv(upsilon), np.linalg.cholesky(upsilon)
    white = (linalg.solve_triangular(lower, part, lower=True) for part in (y, x))
    closed = x.T @ inverse @ y @ np.linalg.inv(y.T @ inverse @ y)
    np.testing.assert_allclose(np.linalg.lstsq(*white, rcond=None)[0].T, closed, rtol=1e-7)


# 5.12, 5.13, 5.15
def test_poisson_regression_stands_still_under_reweighted_least_squares():
    y = RNG.normal(size=(60, 2))
    x = RNG.poisson(np.exp(y @ [0.4, -0.3]))
    fitted = PoissonRegressor(alpha=0, fit_intercept=False, solver="newton-cholesky", tol=1e-12).fit(y, x)
    mean = np.exp(y @ fitted.coef_)
    # ⟨(X − μ) Yᵀ⟩ is the slope of the log-likelihood: zero here, and that of differences elsewhere
    np.testing.assert_allclose((x - mean) @ y, 0, atol=1e-7)
    d, h = np.array([0.1, 0.2]), 1e-6

    def log_likelihood(d):
        return stats.poisson.logpmf(x, np.exp(y @ d)).sum()

    finite = [(log_likelihood(d + h * e) - log_likelihood(d - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose((x - np.exp(y @ d)) @ y, finite, rtol=1e-6)
    for _ in range(8):
        # weighted least squares of the working response
        weight = np.exp(y @ d)
        d = (
            LinearRegression(fit_intercept=False)
            .fit(y, y @ d + (x - weight) / weight, sample_weight=weight)
            .coef_
        )
    np.testing.assert_allclose(d, fitted.coef_, rtol=1e-8)
    alone = PoissonRegressor(alpha=0, fit_intercept=False, solver="newton-cholesky", tol=1e-12).fit(
        np.ones((60, 1)), x
    )
    assert alone.coef_[0] == pytest.approx(np.log(x.mean()), rel=1e-8)


# 5.17
def test_two_layers_multiply():
    network = MLP((Linear(jnp.eye(2), jnp.zeros(2)), Linear(jnp.ones((2, 1)), jnp.zeros(1))), jnp.log)
    y = np.array([[3.0, 7.0], [0.2, 11.0]])
    # the output goes through the inverse of the link
    np.testing.assert_allclose(np.exp(once(jax.vmap(network), y))[:, 0], y.prod(axis=1), rtol=1e-14)


# 5.18
def test_backpropagation_by_hand():
    sizes = (3, 4, 2)
    weights = [RNG.normal(size=s) for s in itertools.pairwise(sizes)]
    biases = [RNG.normal(size=n) for n in sizes[1:]]
    network = MLP(tuple(Linear(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(weights, biases)), jnp.tanh)
    y, target = RNG.normal(size=3), RNG.normal(size=2)
    slope = jax.jit(jax.grad(lambda n: 0.5 * jnp.sum((n(jnp.asarray(y)) - jnp.asarray(target)) ** 2)))(
        network
    )
    hidden = np.tanh(y @ weights[0] + biases[0])
    last = hidden @ weights[1] + biases[1] - target
    # b_l = J_l D_{l+1}ᵀ b_{l+1}, with the transpose that the notes leave out
    first = (1 - hidden**2) * (weights[1] @ last)
    for layer, signal, below in zip(slope.layers, (first, last), (y, hidden), strict=True):
        np.testing.assert_allclose(layer.bias, signal, rtol=1e-11)
        np.testing.assert_allclose(layer.weight, np.outer(below, signal), rtol=1e-11)


# 5.23
def test_for_small_signals_infomax_whitens():
    y = RNG.normal(size=(50, 2)) @ np.array([[1.0, 0.4], [-0.3, 0.5]])
    y = y - y.mean(axis=0)
    moment = y.T @ y / len(y)

    def whiten(moment, rows):
        return jax.vmap(lambda e: TriangularAffine.whiten(jnp.zeros(2), moment).forward(e)[0])(rows)

    D = np.sqrt(2) * once(whiten, moment, np.eye(2)).T
    np.testing.assert_allclose(D.T @ D, 2 * np.linalg.inv(moment), rtol=1e-9)
    turn = np.linalg.qr(RNG.normal(size=(2, 2)))[0]
    for d in (D, turn @ D):
        # with tanh(v/2) ≈ v/2 the fixed point D⁻ᵀ = ⟨tanh(DY/2) Yᵀ⟩ holds, for every rotation
        np.testing.assert_allclose(np.linalg.inv(d).T, (y @ d.T / 2).T @ y / len(y), atol=1e-9)
        # but the signals of the solution are not small
        assert np.abs(np.linalg.inv(d).T - np.tanh(y @ d.T / 2).T @ y / len(y)).max() > 0.05


# ---- chapters 6 and 7: latent variables, EM


# 6.02, 6.04
def test_a_step_of_em_stands_still_where_the_slope_of_the_evidence_vanishes():
    rows = RNG.normal(size=(20, 2))
    means, covariances = RNG.normal(size=(3, 2)), np.stack([np.eye(2), 2 * np.eye(2), np.diag([1.0, 0.5])])
    weights = np.array([0.2, 0.5, 0.3])

    def build(means):
        return Mixture(jnp.asarray(weights), fd.Gaussian(means, fd.Full(jnp.asarray(covariances))))

    @jax.jit
    def run(means):
        batch = Batch(jnp.asarray(rows), jnp.full(20, 1 / 20))
        value, slope = jax.value_and_grad(lambda m: negative_log_likelihood(build(m), batch, KEY))(means)
        statistics, _ = build(means).expect(*batch, temperature=jnp.ones(()), incomplete=False)
        return value, slope, statistics.counts, build(means).maximise(statistics).components.mean

    value, slope, counts, stepped = map(np.asarray, run(jnp.asarray(means)))
    density = [stats.multivariate_normal(m, s).pdf(rows) for m, s in zip(means, covariances, strict=True)]
    assert value == pytest.approx(-np.log(weights @ density).mean(), rel=1e-11)
    # μ′ − μ = −Σ ∂⟨−log p⟩/∂μ / ⟨r⟩: one vanishes with the other
    r = (weights[:, None] * density) / (weights @ density)
    np.testing.assert_allclose(counts, r.mean(axis=1), rtol=1e-11)
    moved = -np.einsum("kij,kj->ki", covariances, slope) / counts[:, None]
    np.testing.assert_allclose(stepped - means, moved, rtol=1e-9, atol=1e-12)
    assert np.abs(moved).max() > 0.05


# 7.09, 8.12
def test_linear_autoencoders_and_ppca_have_one_optimum():
    x = RNG.normal(size=(30, 2)) @ RNG.normal(size=(2, 4)) + 0.3 * RNG.normal(size=(30, 4))
    scatter = np.cov(x.T, bias=True)
    best = once(lambda mean, s: ppca_closed_form(mean, s, 2), x.mean(0), scatter)
    values, vectors = np.linalg.eigh(scatter)
    variance = values[:2].mean()
    np.testing.assert_allclose(best.noise.variance, variance, rtol=1e-11)
    top = vectors[:, 2:]
    loading = best.loading
    np.testing.assert_allclose(loading @ loading.T, top * (values[2:] - variance) @ top.T, atol=1e-10)
    spread = variance * np.linalg.inv(loading.T @ loading + variance * np.eye(2))
    gain = spread @ loading.T / variance
    encoder = Linear(
        jnp.asarray(np.hstack([gain.T, np.zeros((4, 2))])),
        jnp.asarray(np.concatenate([-gain @ x.mean(0), np.log(np.diag(spread))])),
    )
    model = VAE(
        GaussianEncoder(MLP((encoder,))),
        MLP((Linear(jnp.asarray(loading.T), jnp.asarray(best.mean)),)),
        fd.Given(fd.Gaussian(jnp.zeros(len(best.mean)), best.noise)),
        StandardNormal(2),
        fi.Quadratic(),
    )

    @jax.jit
    def run(model, rows):
        return eqx.filter_value_and_grad(lambda m: jnp.mean(jax.vmap(lambda x: m.bound(x, key=KEY))(rows)))(
            model
        )

    bound, slope = run(model, x)
    covariance = loading @ loading.T + variance * np.eye(4)
    expected = stats.multivariate_normal(x.mean(0), covariance).logpdf(x).mean()
    assert float(bound) == pytest.approx(expected, rel=1e-10)
    # no step of a network raises the bound; where it is tight its slope is that of the likelihood
    for leaf in jax.tree.leaves(slope):
        np.testing.assert_allclose(leaf, 0, atol=1e-9)


# ---- chapter 8: recognition


# 8.03
def test_slopes_of_a_gaussian_mean_are_mean_slopes():
    """Bonnet and Price for f = x⁴: 4ν³ + 12νs in the mean, 6ν² + 6s in the variance."""
    nu, s, n = 0.8, 0.5, 40_000

    @jax.jit
    def run(nu, s, keys):
        def value(nu, s, key):
            q = fd.Gaussian(nu[None], fd.Diagonal(s[None]))
            return fi.Pathwise()(lambda x: x[0] ** 4, q, key=key)

        return jax.vmap(jax.grad(value, (0, 1)), (None, None, 0))(nu, s, keys)

    slopes = run(jnp.array(nu), jnp.array(s), jax.random.split(KEY, n))
    for found, wanted in zip(slopes, (4 * nu**3 + 12 * nu * s, 6 * nu**2 + 6 * s), strict=True):
        assert abs(found.mean() - wanted) < 5 * found.std() / np.sqrt(n)
    x, w = np.polynomial.hermite_e.hermegauss(8)
    points, w = nu + np.sqrt(s) * x, w / w.sum()
    np.testing.assert_allclose(
        [w @ (4 * points**3), w @ (6 * points**2)], [4 * nu**3 + 12 * nu * s, 6 * nu**2 + 6 * s]
    )


# 8.04, 8.13, 8.40
def test_gaussian_recognition_of_a_quadratic_energy():
    model = factors()

    def run(y, nu, upsilon):
        exact, q = model.posterior(y), fi.LocalGaussian(2)(lambda z: model.energy(y, z), y)

        def bound(nu, upsilon):
            other = fd.Gaussian(nu, fd.Full(upsilon))
            return fi.free_energy(model.energy, always(other, fi.Quadratic()), y, key=KEY)

        energy = lambda z: model.energy(y, z)  # noqa: E731
        curvature = jax.hessian(energy)(exact.mean)
        slopes = jax.grad(bound, (0, 1))(nu, upsilon)
        return exact.mean, exact.covariance.matrix(), jax.grad(energy)(exact.mean), curvature, q, slopes

    y, nu, upsilon = RNG.normal(size=4), np.array([0.4, -0.7]), np.array([[0.5, 0.2], [0.2, 0.9]])
    mean, covariance, slope, precision, q, slopes = once(run, y, nu, upsilon)
    # E[∇e] = 0 and P = E[∇²e] are those at the mode: Laplace's method, and exact
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    np.testing.assert_allclose(precision, np.linalg.inv(covariance), rtol=1e-9)
    assert abs(float(precision[0, 1])) > 0.1
    # independent factors of q have the right means, and variances 1/Λ_kk, which are too small
    np.testing.assert_allclose(q.mean, mean, atol=1e-3)
    np.testing.assert_allclose(q.covariance.variance, 1 / np.diag(precision), rtol=1e-2)
    assert (1 / np.diag(precision) < np.diag(covariance)).all()
    # of the bound: ⟨∂E⟩ + ν in the mean and ½(⟨∂²E⟩ − Υ⁻¹ + I) in the covariance, with E of the emission
    C, noise = np.asarray(model.loading), np.asarray(model.noise.variance)
    force = -(C.T / noise) @ (y - np.asarray(model.mean) - C @ nu)
    np.testing.assert_allclose(slopes[0], force + nu, rtol=1e-10)
    curvature = (C.T / noise) @ C - np.linalg.inv(upsilon) + np.eye(2)
    np.testing.assert_allclose(slopes[1], 0.5 * curvature, rtol=1e-9, atol=1e-11)


# 8.05
def test_free_energy_of_independent_sources_and_isotropic_noise():
    c, y, lam, alpha = np.array([[0.9], [-0.4], [0.3]]), RNG.normal(size=3), 4.0, 1.3
    model = SparseCoding(jnp.asarray(c), jnp.zeros(3), jnp.array(lam), LaplaceSource(alpha))
    nu, p = 0.4, 5.0  # the recognition N(ν, 1/P)
    grid = np.linspace(nu - 5, nu + 5, 20_001)
    C = RNG.normal(size=(3, 2))
    dense = LinearGaussian(jnp.asarray(C), jnp.zeros(3), fd.Spherical(jnp.array(1 / lam), dim=3))

    def run(y, grid):
        posterior = dense.posterior(y)
        free = fi.free_energy(dense.energy, always(posterior, fi.Quadratic()), y, key=KEY)
        energies = jax.vmap(lambda x: model.energy(y, x[None]))(grid)
        return energies, posterior.mean, posterior.covariance.matrix(), free

    energies, mean, spread, least = once(run, y, grid)
    q = stats.norm(nu, p**-0.5)
    free = np.trapezoid(q.pdf(grid) * energies, grid) - q.entropy()
    size = q.std() * np.sqrt(2 / np.pi) * np.exp(-p * nu**2 / 2) + nu * special.erf(nu * np.sqrt(p / 2))
    misfit = lam / 2 * (c[:, 0] @ c[:, 0] / p + np.sum((y - c[:, 0] * nu) ** 2))
    sources = alpha * size + np.log(2 / alpha)
    # with −(M/2) log λ, where the notes print +(K/2) log λ
    constant = 1.5 * np.log(2 * np.pi) - 1.5 * np.log(lam) - 0.5 * (1 + np.log(2 * np.pi))
    assert free == pytest.approx(misfit + sources + 0.5 * np.log(p) + constant, rel=1e-7)
    # with sources of quadratic energy it is that of factor analysis, and least at the posterior
    exact = stats.multivariate_normal(np.zeros(3), C @ C.T + np.eye(3) / lam)
    by_hand = (
        lam / 2 * (np.trace(C @ spread @ C.T) + np.sum((y - C @ mean) ** 2))
        - 0.5 * np.linalg.slogdet(spread)[1]
        + 0.5 * (mean @ mean + np.trace(spread))
        - 1.5 * np.log(lam)
        + 1.5 * np.log(2 * np.pi)
        - 1.0
    )
    np.testing.assert_allclose([least, by_hand], -exact.logpdf(y), rtol=1e-9)


# 8.06, 8.08, 8.10
def test_steps_of_sparse_coding_by_hand():
    C, rows, lam, alpha, beta = RNG.normal(size=(3, 4)), RNG.normal(size=(6, 3)), 4.0, 1.1, 3.0
    model = SparseCoding(jnp.asarray(C), jnp.zeros(3), jnp.array(lam), LaplaceSource(alpha, beta))
    nu, spread = once(
        jax.vmap(
            lambda row: (model.laplace_posterior(row).mean, model.laplace_posterior(row).covariance.value)
        ),
        rows,
    )
    for code, inverse in zip(nu, spread, strict=True):
        precision = lam * C.T @ C + np.diag(alpha * beta / np.cosh(beta * code) ** 2)
        assert np.linalg.eigvalsh(precision).min() > 0
        np.testing.assert_allclose(inverse, np.linalg.inv(precision), rtol=1e-5, atol=1e-9)
    # the M step has an offset, too: (C, c) = ⟨Y ν̃ᵀ⟩ ⟨P̃⁻¹ + ν̃ν̃ᵀ⟩⁻¹, where the slope of the loss vanishes
    ones = np.column_stack([nu, np.ones(6)])
    second = np.pad(spread.mean(axis=0), (0, 1)) + ones.T @ ones / 6
    closed = (rows.T @ ones / 6) @ np.linalg.inv(second)
    slope = lam * (closed @ np.pad(spread.mean(axis=0), (0, 1)) - (rows - ones @ closed.T).T @ ones / 6)
    np.testing.assert_allclose(slope, 0, atol=1e-10)
    statistics = SparseStatistics(*map(jnp.asarray, (1.0, second, rows.T @ ones / 6, np.mean(rows**2) * 3)))
    stepped = model.maximise(statistics)
    np.testing.assert_allclose(np.column_stack([stepped.dictionary, stepped.mean]), closed, rtol=1e-9)
    residual = np.sum((rows - ones @ closed.T) ** 2) / 6 + np.trace(
        closed[:, :-1] @ spread.mean(axis=0) @ closed[:, :-1].T
    )
    assert float(stepped.precision) == pytest.approx(3 / residual, rel=1e-9)
    # in C both the log-determinant of P and λ tr[C P⁻¹ Cᵀ] at a fixed P⁻¹ have the slope 2λ C P⁻¹
    diagonal = alpha * beta / np.cosh(beta * nu[0]) ** 2

    def log_det(c):
        return np.linalg.slogdet(lam * c.T @ c + np.diag(diagonal))[1]

    h, slopes = 1e-5, np.zeros(C.shape)
    for place in np.ndindex(*C.shape):
        step = np.zeros(C.shape)
        step[place] = h
        slopes[place] = (log_det(C + step) - log_det(C - step)) / (2 * h)
    np.testing.assert_allclose(slopes, 2 * lam * C @ spread[0], rtol=1e-4, atol=1e-6)


# 8.11
def test_without_noise_square_sparse_coding_is_ica():
    C, y = RNG.normal(size=(2, 2)) + np.eye(2), jnp.asarray(RNG.normal(size=2))
    flow = fd.Transformed(
        fd.Logistic(jnp.zeros(2), jnp.ones(2)), GeneralAffine(jnp.zeros(2), jnp.asarray(C))
    )
    D = np.linalg.inv(C)
    expected = stats.logistic.logpdf(D @ np.asarray(y)).sum() + np.linalg.slogdet(D)[1]

    def run(y, lams):
        def evidence(lam):
            return SparseCoding(
                jnp.asarray(C), jnp.zeros(2), lam, LogCoshSource(1.0, 0.5)
            ).laplace_log_evidence(y)

        return flow.log_prob(y), jax.vmap(evidence)(lams)

    exact, found = once(run, y, np.array([1e2, 1e4, 1e6]))
    assert exact == pytest.approx(expected, rel=1e-12)
    gaps = np.abs(found - expected)
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-4


# 8.21
def test_categories_by_the_inverse_of_their_distribution_function():
    p = special.softmax([1.0, -0.5, 0.3])
    drawn = np.random.default_rng(3).choice(3, size=5000, p=p)
    uniform = np.random.default_rng(3).random(5000)
    np.testing.assert_array_equal(drawn, np.searchsorted(np.cumsum(p), uniform, side="right"))
    assert stats.chisquare(np.bincount(drawn), 5000 * p).pvalue > 1e-4


# 8.22
def test_the_largest_of_logits_with_gumbel_noise_is_a_draw():
    eta = np.array([1.0, -0.5, 0.3])
    shares = special.softmax(eta)
    np.testing.assert_allclose(shares, [0.5815, 0.1297, 0.2888], atol=5e-5)
    for k in range(3):
        others = np.delete(eta, k)
        mass, _ = integrate.quad(
            lambda g, k=k, others=others: (
                stats.gumbel_r.pdf(g - eta[k]) * stats.gumbel_r.cdf(g - others).prod()
            ),
            -10,
            40,
        )
        assert mass == pytest.approx(shares[k], rel=1e-8)
    n = 20_000
    noise = np.asarray(jax.random.gumbel(KEY, (n, 3)))
    # location zero, and not mean zero
    assert abs(noise.mean() - np.euler_gamma) < 5 * np.pi / np.sqrt(6 * 3 * n)
    drawn = (
        (noise + eta).argmax(axis=1),
        np.asarray(jax.random.categorical(KEY, jnp.asarray(eta), shape=(n,))),
    )
    for labels in drawn:
        assert stats.chisquare(np.bincount(labels, minlength=3), n * shares).pvalue > 1e-4


# 8.35
def test_noise_around_the_data_is_a_density():
    rows = np.array([[0.0], [0.5], [3.0], [3.2]])
    model = fe.KernelDensity(0.4).fit(rows)
    width = float(model.bandwidth_[0])
    grid = np.linspace(-6, 10, 1601)
    density = np.exp(model.score_samples(grid[:, None]))
    # with the 1/N that the notes leave out
    np.testing.assert_allclose(
        density, stats.norm.pdf(grid[:, None], rows[:, 0], width).mean(axis=1), rtol=1e-8
    )
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-9)


# ---- chapter 9: flows


# 9.08
def test_a_volume_preserving_flow_of_normal_numbers_is_not_normal():
    bend = Coupling(jnp.array([0]), jnp.array([1]), jnp.square, Shift())
    flow = fd.Transformed(StandardNormal(2), bend)
    z = RNG.normal(size=(4000, 2))
    rows = np.column_stack([z[:, 0], z[:, 1] + z[:, 0] ** 2])
    log_p = np.asarray(jax.jit(jax.vmap(flow.log_prob))(rows))
    np.testing.assert_allclose(log_p, stats.norm.logpdf(z).sum(axis=1), rtol=1e-12)
    normal = stats.multivariate_normal(rows.mean(0), np.cov(rows.T, bias=True)).logpdf(rows)
    # of the entropies, log 2πe and log 2πe + ½ log 3
    gap = log_p - normal
    assert abs(gap.mean() - 0.5 * np.log(3)) < 5 * gap.std() / np.sqrt(4000)


# 9.09
def test_leapfrog_steps_are_additive_couplings():
    step, q, p = 0.2, jnp.array([0, 1]), jnp.array([2, 3])

    def force(x):
        return -(x**3) - 0.5 * x

    kick = Coupling(q, p, lambda x: 0.5 * step * force(x), Shift())
    drift = Coupling(p, q, lambda v: step * v, Shift())
    leapfrog = Chain((kick, drift, kick))

    @jax.jit
    def run(state):
        there, log_det = leapfrog.forward(state)
        flip = jnp.array([1.0, 1.0, -1.0, -1.0])
        again, _ = leapfrog.forward(there * flip)
        return there, log_det, again * flip, jax.jacfwd(lambda s: leapfrog.forward(s)[0])(state)

    state = RNG.normal(size=4)
    there, log_det, back, jacobian = map(np.asarray, run(jnp.asarray(state)))
    x, v = state[:2], state[2:]
    v = v + 0.5 * step * (-(x**3) - 0.5 * x)
    x = x + step * v
    v = v + 0.5 * step * (-(x**3) - 0.5 * x)
    np.testing.assert_allclose(there, np.concatenate([x, v]), rtol=1e-12)
    assert log_det == 0
    assert np.linalg.det(jacobian) == pytest.approx(1, rel=1e-13)
    # with the momentum turned round it goes back
    np.testing.assert_allclose(back, state, atol=1e-14)


# ---- appendices


# A.01, A.02, A.03
def test_rows_left_out_in_one_step():
    y, x = regression(rows=9, outputs=1)
    x, alpha = x[:, 0], 0.3
    q = np.linalg.qr(y)[0]
    hat = y @ np.linalg.inv(y.T @ y) @ y.T
    np.testing.assert_allclose(q @ q.T, hat, atol=1e-12)
    np.testing.assert_allclose([hat @ hat, hat.T], [hat, hat], atol=1e-12)
    np.testing.assert_allclose(np.sort(np.linalg.eigvalsh(hat)), [0] * 6 + [1] * 3, atol=1e-12)

    def left_out(rows, penalty):
        """Residuals of `rows` after a fit to the others."""
        rest = np.setdiff1d(np.arange(9), rows)
        d = np.linalg.solve(y[rest].T @ y[rest] + penalty * np.eye(3), y[rest].T @ x[rest])
        return x[rows] - y[rows] @ d

    residual = x - hat @ x
    each = np.concatenate([left_out([n], 0.0) for n in range(9)])
    np.testing.assert_allclose(residual / (1 - np.diag(hat)), each, rtol=1e-9)
    # scikit-learn does so for ridges
    ridge = RidgeCV([alpha], fit_intercept=False, store_cv_results=True).fit(y, x)
    penalised = np.concatenate([left_out([n], alpha) for n in range(9)])
    np.testing.assert_allclose(ridge.cv_results_[:, 0], penalised**2, rtol=1e-8)
    for fold in ([0, 1, 2], [3, 4], [5, 6, 7]):
        block = np.eye(len(fold)) - hat[np.ix_(fold, fold)]
        np.testing.assert_allclose(np.linalg.solve(block, residual[fold]), left_out(fold, 0.0), rtol=1e-8)


# B.08
def test_fisher_information_of_moments():
    # (dη/dθ)ᵀ Cov[t] (dη/dθ): 1/θ for Poisson, 1/(θ(1 − θ)) for Bernoulli
    theta = 0.3
    poisson, coin = (family(jnp.array([theta])) for family in (fd.Poisson, fd.Bernoulli))
    np.testing.assert_allclose(fd.fisher_information(poisson) / theta**2, [[1 / theta]], rtol=1e-10)
    logit = 1 / (theta * (1 - theta))
    np.testing.assert_allclose(fd.fisher_information(coin) * logit**2, [[logit]], rtol=1e-10)
    # and (dE[t]/dθ)ᵀ Cov[t]⁻¹ (dE[t]/dθ), with E[t] = θ
    np.testing.assert_allclose(1 / fd.fisher_information(poisson), [[1 / theta]], rtol=1e-10)
    np.testing.assert_allclose(1 / fd.fisher_information(coin), [[logit]], rtol=1e-10)
