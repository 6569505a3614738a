"""The identities that tie the library together, checked by enumeration and dense algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from freeenergy._core import boltzmann, on_device
from freeenergy.distributions import Bernoulli, Diagonal, Full, Gaussian
from freeenergy.inference import (
    Amortised,
    Enumeration,
    Exact,
    Exhaustive,
    Finite,
    LocalGaussian,
    Pathwise,
    Point,
    Quadratic,
    binary_states,
    free_energy,
    importance_log_weights,
    importance_weighted_bound,
)
from freeenergy.learning import Batch, FreshNoise, LearnedCells, negative_log_likelihood
from freeenergy.models import CellNoise, Harmonium, InCells, LearnedNoise, LinearGaussian, Mixture, Units

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def always(q, expectation):
    """A recognition that gives `q` whatever is observed."""
    return Amortised(lambda x: q, expectation=expectation)


@eqx.filter_jit
def bound(energy, recognition, x):
    return free_energy(energy, recognition, x, key=KEY)


def mixture():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(3, 2, 2))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(2)
    members = Gaussian(jnp.asarray(rng.normal(size=(3, 2))), Full(jnp.asarray(covariances)))
    return Mixture(jnp.array([0.2, 0.5, 0.3]), members)


def linear(orthogonal=False):
    rng = np.random.default_rng(2)
    loading = rng.normal(size=(4, 2))
    variance = rng.uniform(0.3, 1, 4)
    if orthogonal:
        # columns orthogonal under Ψ⁻¹ make the posterior covariance diagonal
        loading = np.sqrt(variance)[:, None] * np.linalg.qr(loading)[0] * np.array([2.0, 0.7])
    return LinearGaussian(
        jnp.asarray(loading), jnp.asarray(rng.normal(size=4)), Diagonal(jnp.asarray(variance))
    )


def rbm():
    rng = np.random.default_rng(3)
    units = (Units(Bernoulli, jnp.asarray(rng.normal(size=n))) for n in (4, 3))
    return Harmonium(*units, jnp.asarray(rng.normal(size=(4, 3))))


class Table(eqx.Module):
    """A joint distribution over two finite variables, by its logits."""

    logits: Array

    def energy(self, x: Array, z: Array) -> Array:
        return -jax.nn.log_softmax(self.logits.ravel()).reshape(self.logits.shape)[x, z]


def gaussian_kl(m0, s0, m1, s1):
    trace = np.trace(np.linalg.solve(s1, s0))
    length = (m1 - m0) @ np.linalg.solve(s1, m1 - m0)
    return 0.5 * (trace + length - len(m0) + np.linalg.slogdet(s1)[1] - np.linalg.slogdet(s0)[1])


def test_free_energy_of_a_mixture_is_evidence_plus_divergence():
    model, x = mixture(), jnp.array([0.3, -0.8])
    joint = np.array(
        [
            np.log(weight) + multivariate_normal(mean, covariance).logpdf(x)
            for weight, mean, covariance in zip(
                *map(np.asarray, (model.weights, model.components.mean, model.components.covariance.value)),
                strict=True,
            )
        ]
    )
    log_p = logsumexp(joint)
    everything = Enumeration(jnp.arange(3))
    value = jax.jit(lambda p: free_energy(model.energy, always(Finite(p), everything), x, key=KEY))
    for p in RNG.dirichlet(np.ones(3), 5):
        divergence = p @ (np.log(p) - (joint - log_p))
        assert float(value(p)) == pytest.approx(-log_p + divergence, rel=1e-12)
    # a point: no entropy, all of the energy (hard assignment)
    assert float(value(np.array([0.0, 1.0, 0.0]))) == pytest.approx(-joint[1], rel=1e-12)
    exact = bound(model.energy, Exact(model.posterior, expectation=everything), x)
    assert float(exact) == pytest.approx(-log_p, rel=1e-12)
    nearest = Point(jnp.arange(3), Exhaustive())
    assert float(bound(model.energy, nearest, x)) == pytest.approx(-joint.max(), rel=1e-12)


def test_free_energy_of_a_linear_gaussian_is_evidence_plus_divergence():
    model, x = linear(), jnp.array([0.3, jnp.nan, -1.0, 0.5])
    w, psi, gap = np.asarray(model.loading), np.asarray(model.noise.variance), np.asarray(x - model.mean)
    seen = ~np.isnan(gap)
    cov = w @ w.T + np.diag(psi)
    log_p = multivariate_normal(np.zeros(3), cov[np.ix_(seen, seen)]).logpdf(gap[seen])
    sigma = np.linalg.inv(np.eye(2) + w[seen].T / psi[seen] @ w[seen])
    mu = sigma @ (w[seen].T / psi[seen]) @ gap[seen]
    value = jax.jit(
        lambda m, s: free_energy(model.energy, always(Gaussian(m, Full(s)), Quadratic()), x, key=KEY)
    )
    for _ in range(5):
        root = RNG.normal(size=(2, 2))
        m, s = RNG.normal(size=2), root @ root.T + 0.1 * np.eye(2)
        assert float(value(m, s)) == pytest.approx(-log_p + gaussian_kl(m, s, mu, sigma), rel=1e-11)
    assert float(bound(model.energy, model.recognition, x)) == pytest.approx(-log_p, rel=1e-12)


def test_free_energy_of_a_harmonium_is_evidence_plus_divergence_minus_log_z():
    model, x = rbm(), jnp.array([1.0, 0.0, 1.0, 1.0])
    visible, hidden = np.asarray(binary_states(4)), np.asarray(binary_states(3))
    w, b, c = np.asarray(model.coupling), np.asarray(model.visible.bias), np.asarray(model.hidden.bias)
    log_joint = visible @ w @ hidden.T + (visible @ b)[:, None] + (hidden @ c)[None]
    log_z = logsumexp(log_joint)
    row = log_joint[next(i for i, v in enumerate(visible) if (v == np.asarray(x)).all())]
    log_p, log_posterior = logsumexp(row) - log_z, row - logsumexp(row)
    value = jax.jit(
        lambda p: free_energy(model.energy, always(Bernoulli(p), Enumeration(binary_states(3))), x, key=KEY)
    )
    for p in RNG.uniform(0.05, 0.95, (5, 3)):
        log_q = np.log(np.where(hidden == 1, p, 1 - p)).sum(1)
        divergence = np.exp(log_q) @ (log_q - log_posterior)
        assert float(value(p)) == pytest.approx(-log_p - log_z + divergence, rel=1e-11)
    recognition = Exact(model.posterior, expectation=Enumeration(binary_states(3)))
    exact = bound(model.energy, recognition, x)
    assert float(exact) == pytest.approx(float(eqx.filter_jit(model.free_energy)(x)), rel=1e-12)
    assert float(exact) == pytest.approx(-log_p - log_z, rel=1e-11)


def entropy(p):
    return -np.sum(p * np.log(p))


def test_the_faces_of_the_joint_relative_entropy():
    """makin 6.06–6.12, 8.14 and 8.15, on a table of 4 observations and 3 causes."""
    logits = RNG.normal(size=(4, 3))
    data = RNG.dirichlet(np.ones(4))
    q = RNG.dirichlet(np.ones(3), 4)  # q(z | x)
    model = np.exp(logits) / np.exp(logits).sum()  # p(x, z)
    marginal, prior = model.sum(1), model.sum(0)
    posterior, emission = model / marginal[:, None], model / prior[None]
    hybrid = q * data[:, None]
    aggregated = hybrid.sum(0)

    @jax.jit
    @jax.value_and_grad
    def mean_free_energy(table, mass):
        def one(x, p):
            return free_energy(table.energy, always(Finite(p), Enumeration(jnp.arange(3))), x, key=KEY)

        return jnp.asarray(data) @ jax.vmap(one)(jnp.arange(4), mass)

    table = Table(jnp.asarray(logits))
    free, slope = mean_free_energy(table, q)
    jre = float(free) - entropy(data)
    near = lambda value: pytest.approx(value, rel=1e-11)  # noqa: E731

    assert jre == near(np.sum(hybrid * np.log(hybrid / model)))
    mre = np.sum(data * np.log(data / marginal))
    pre = np.sum(hybrid * np.log(q / posterior))
    assert jre == near(mre + pre)  # 6.07
    # 6.06: free energy, relative entropy and cross entropy have one gradient in θ
    cross = jax.jit(
        jax.grad(
            lambda t: jnp.sum(
                jnp.asarray(hybrid)
                * jax.vmap(lambda x: jax.vmap(lambda z: t.energy(x, z))(jnp.arange(3)))(jnp.arange(4))
            )
        )
    )(table)
    np.testing.assert_allclose(slope.logits, cross.logits, atol=1e-12)
    # and it is the model minus the hybrid, the negative minus the positive phase
    np.testing.assert_allclose(slope.logits, model - hybrid, atol=1e-12)
    # 6.09: −log p(x) = joint cross entropy minus that of the posterior, under any q
    joint_cross = -np.sum(hybrid * np.log(model))
    assert -data @ np.log(marginal) == near(joint_cross + np.sum(hybrid * np.log(posterior)))
    # 6.11, 6.12: the sender pays code and reconstruction, and gets H[z | x] back
    code = -aggregated @ np.log(prior)
    reconstruction = -np.sum(hybrid * np.log(emission))
    spread = -np.sum(hybrid * np.log(q))
    joint_cost = code + reconstruction - entropy(data)
    assert joint_cost == near(pre + spread + mre)
    assert joint_cost - spread == near(jre)
    # 8.14: the autoencoder;  8.15: the aggregated posterior and the information
    assert jre == near(np.sum(hybrid * np.log(q / prior[None])) + reconstruction - entropy(data))
    to_prior = aggregated @ np.log(aggregated / prior)
    information = np.sum(hybrid * np.log(q / aggregated[None]))
    assert jre == near(to_prior + information + reconstruction - entropy(data))
    # 6.08: the exact posterior is the best q, and makes it the marginal relative entropy
    best = float(mean_free_energy(table, posterior)[0]) - entropy(data)
    assert best == near(mre)


class Rescaled(eqx.Module):
    """The same model with its cause measured in other units."""

    model: LinearGaussian
    factor: float

    def energy(self, x: Array, z: Array) -> Array:
        return self.model.energy(x, z / self.factor) + self.model.latent_dim * jnp.log(self.factor)


def test_units_of_the_cause_move_the_cross_entropy_and_not_the_free_energy():
    # makin 6.10
    model, x, factor = linear(), jnp.zeros(4), 3.0
    m, s = RNG.normal(size=2), np.diag(RNG.uniform(0.2, 1, 2))
    q = Gaussian(jnp.asarray(m), Full(jnp.asarray(s)))
    wide = Gaussian(jnp.asarray(factor * m), Full(jnp.asarray(factor**2 * s)))
    pairs = (model, q), (Rescaled(model, factor), wide)

    @eqx.filter_jit
    def free_energies(pairs):
        return [free_energy(e.energy, always(d, Quadratic()), x, key=KEY) for e, d in pairs]

    @eqx.filter_jit
    def cross_entropies(pairs):
        return [Quadratic()(lambda z, e=e: e.energy(x, z), d, key=KEY) for e, d in pairs]

    a, b = free_energies(pairs)
    assert float(a) == pytest.approx(float(b), rel=1e-12)
    cross = cross_entropies(pairs)
    assert float(cross[1] - cross[0]) == pytest.approx(2 * np.log(factor), rel=1e-11)


@pytest.mark.parametrize(
    ("model", "expectation", "x", "where"),
    [
        (mixture(), Enumeration(jnp.arange(3)), jnp.array([0.3, -0.8]), lambda m: m.components.mean),
        (linear(), Quadratic(), jnp.array([0.3, -0.2, jnp.nan, 1.0]), lambda m: m.loading),
    ],
)
def test_slope_of_the_evidence_is_the_expected_slope_of_the_energy(model, expectation, x, where):
    # makin 6.03, against central differences of the marginal
    value = np.asarray(where(model))

    def surprise(v):
        return -eqx.tree_at(where, model, v).log_prob(x)

    step = 1e-5
    differences = np.zeros(value.shape)
    run = jax.jit(surprise)
    for index in np.ndindex(*value.shape):
        up, down = value.copy(), value.copy()
        up[index] += step
        down[index] -= step
        differences[index] = (run(up) - run(down)) / (2 * step)

    @jax.jit
    def slopes(value):
        posterior = model.posterior(x)

        def hybrid(v, recognition):
            return free_energy(eqx.tree_at(where, model, v).energy, recognition, x, key=KEY)

        slope = jax.grad(hybrid)
        return slope(value, always(posterior, expectation)), slope(value, model.recognition)

    fixed, through = slopes(value)
    np.testing.assert_allclose(fixed, differences, atol=1e-8)
    # at the best q the slope through q vanishes, so the exact free energy has the same
    np.testing.assert_allclose(through, fixed, atol=1e-10)


def test_temperature_runs_from_the_argmin_to_the_uniform():
    # cho §1.4 and C9
    energies = np.array([1.0, 2.0, 3.0])
    temperatures = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 4.0, 1e6])
    free, p = map(np.asarray, jax.jit(jax.vmap(lambda t: boltzmann(energies, t)))(temperatures))
    np.testing.assert_allclose(p[0], [1, 0, 0])
    np.testing.assert_allclose(p[-1], np.full(3, 1 / 3), atol=1e-6)
    uncertainty = [entropy(np.maximum(row, 1e-300)) for row in np.asarray(p)]
    assert np.all(np.diff(uncertainty) > -1e-12)
    assert float(free[0]) == 1.0
    np.testing.assert_allclose(free, np.asarray(p @ energies) - temperatures * uncertainty, atol=1e-9)
    perceptron = 3.0 - 1.0
    soft = 3.0 - np.asarray(free)
    assert np.all(soft >= perceptron - 1e-12)
    assert np.all(soft <= perceptron + temperatures * np.log(3) + 1e-12)
    # a mixture in the same way: responsibilities are hard at zero and even when hot
    model, x = mixture(), np.array([[0.3, -0.8]])
    expect = jax.jit(lambda t: model.expect(jnp.asarray(x), jnp.ones(1), temperature=t, incomplete=False))
    joint, evidence = eqx.filter_jit(lambda m, x: (m.log_joint(x), m.log_prob(x)))(model, x[0])
    cold, hot = expect(np.array(0.0)), expect(np.array(1e8))
    assert np.sort(cold[0].counts).tolist() == [0, 0, 1]
    assert float(cold[1]) == pytest.approx(-float(np.max(joint)), rel=1e-12)
    np.testing.assert_allclose(hot[0].counts, np.full(3, 1 / 3), atol=1e-6)
    assert float(expect(np.array(1.0))[1]) == pytest.approx(-float(evidence), rel=1e-12)


def test_importance_weighting_tightens_the_bound():
    model, x = linear(), jnp.array([0.3, -0.2, 0.8, 1.0])
    log_p, mean = eqx.filter_jit(lambda m, x: (m.log_prob(x), m.posterior(x).mean))(model, x)
    log_p = float(log_p)
    q = Gaussian(on_device(np.asarray(mean) + 0.3), Diagonal(on_device([0.5, 0.6])))
    recognition = always(q, Pathwise())
    keys = jax.random.split(KEY, 4000)
    means, errors = [], []
    for samples in (1, 4, 16):
        bounds = jax.jit(
            jax.vmap(
                lambda k, s=samples: importance_weighted_bound(
                    model.energy, recognition, x, samples=s, key=k
                )
            )
        )(keys)
        bounds = np.asarray(bounds)
        means.append(float(bounds.mean()))
        errors.append(float(bounds.std()) / np.sqrt(len(keys)))
    plain = jax.jit(lambda x: free_energy(model.energy, always(q, Quadratic()), x, key=KEY))(x)
    assert means[0] == pytest.approx(-float(plain), abs=5 * errors[0])
    assert means[0] + 5 * errors[0] < means[1]
    assert means[1] + 5 * errors[1] < means[2]
    assert means[2] < log_p + 5 * errors[2]
    draw = jax.jit(lambda x: importance_log_weights(model.energy, recognition, x, samples=50_000, key=KEY))
    weights = np.exp(np.asarray(draw(x)) - log_p)
    assert abs(weights.mean() - 1) < 5 * weights.std() / np.sqrt(len(weights))


def test_a_gaussian_for_each_datum_recovers_a_diagonal_posterior():
    # makin 8.02
    model, x = linear(orthogonal=True), jnp.array([0.3, -0.2, 0.8, 1.0])

    @eqx.filter_jit
    def both(model):
        exact, q = model.posterior(x), LocalGaussian(2)(lambda z: model.energy(x, z), x)
        found = free_energy(model.energy, always(q, Quadratic()), x, key=KEY)
        return (exact.mean, exact.covariance.matrix()), q, (found, -model.log_prob(x))

    (mean, covariance), q, (found, surprise) = both(model)
    assert abs(float(np.asarray(covariance)[0, 1])) < 1e-12
    np.testing.assert_allclose(q.mean, mean, atol=1e-3)
    np.testing.assert_allclose(q.covariance.variance, np.diagonal(covariance), rtol=1e-2)
    assert float(found) == pytest.approx(float(surprise), abs=1e-4)


def test_fresh_noise_stays_in_its_cell_and_changes_with_the_key():
    seen = []

    def objective(model, batch, key):
        seen.append(np.asarray(batch.x))
        return batch.mean(batch.x[:, 0])

    # cells of a half from 0.25 on in the first column, none in the second
    noisy = FreshNoise(objective, jnp.array([0.25, 0.0]), jnp.array([0.5, 0.0]))
    x = jnp.array([[0.3, 7.1], [1.2, jnp.nan], [jnp.nan, 2.0]])
    batch = Batch(x, jnp.full(3, 1 / 3))
    for seed in range(200):
        noisy(None, batch, (), key=jax.random.key(seed))
    drawn = np.stack(seen)
    np.testing.assert_array_equal(drawn[:, :, 1], np.broadcast_to(x[:, 1], (200, 3)))
    assert np.isnan(drawn[:, 2, 0]).all()
    for row, low in ((0, 0.25), (1, 0.75)):
        assert stats.kstest(drawn[:, row, 0], "uniform", args=(low, 0.5)).pvalue > 1e-3


def shaken_noise(dim, columns, seed):
    """Noise that is not uniform, and depends on the row and on the other columns."""
    noise: CellNoise = LearnedNoise(width=6)(dim, np.array(columns), dtype=float, key=jax.random.key(seed))
    rng = np.random.default_rng(seed)

    def move(a):
        return jnp.asarray(a + 0.4 * rng.normal(size=a.shape)) if eqx.is_inexact_array(a) else a

    return jax.tree.map(move, noise)


@eqx.filter_jit
def _place(noise, x, normal):
    u, log_q = jax.vmap(noise, in_axes=(None, 0))(x, normal)
    jacobian = jax.vmap(jax.jacfwd(lambda e: noise(x, e)[0]))(normal)
    return u, log_q, jacobian


@pytest.mark.parametrize("row", [[0.3, -1.0, 2.0], [1.5, -1.0, 2.0], [np.nan, -1.0, 2.0]])
def test_learned_noise_knows_its_density(row):
    normal = np.random.default_rng(0).normal(size=(200, 2))
    u, log_q, jacobian = map(np.asarray, _place(shaken_noise(3, [0, 2], 1), jnp.array(row), normal))
    assert ((u > 0) & (u < 1)).all()
    expected = stats.norm.logpdf(normal).sum(1) - np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(log_q, expected, rtol=1e-9, atol=1e-9)
    # the second column is told by the first, and both by the row: a law of its own for each row
    assert np.abs(jacobian[:, 1, 0]).max() > 0.01
    assert (jacobian[:, 0, 1] == 0).all()
    other, *_ = _place(shaken_noise(3, [0, 2], 1), jnp.array(row) + jnp.array([0.0, 0.5, 0.0]), normal)
    assert np.abs(u - np.asarray(other)).max() > 0.01
    # it begins uniform
    plain = LearnedNoise(width=6)(3, np.array([0, 2]), dtype=float, key=jax.random.key(0))
    u, log_q, _ = map(np.asarray, _place(plain, jnp.array(row), normal))
    np.testing.assert_allclose(u, stats.norm.cdf(normal), rtol=1e-10)
    np.testing.assert_allclose(log_q, 0, atol=1e-10)


@eqx.filter_jit
def _losses(objective, model, batch, keys):
    return jax.vmap(lambda key: objective(model, batch, (), key=key)[0])(keys)


def test_learned_cells_bound_the_mass_of_a_cell():
    gaussian = Gaussian(jnp.array([0.4, 0.0]), Diagonal(jnp.array([0.09, 1.0])))
    # the first column lies in cells of a half from 0.25 on, the second has none
    objective = LearnedCells(negative_log_likelihood, jnp.array([0.25, 0.0]), jnp.array([0.5, 0.0]))
    batch = Batch(jnp.array([[0.3, 0.7]]), jnp.ones(1))
    keys = jax.random.split(jax.random.key(0), 4000)
    losses = np.asarray(_losses(objective, InCells(gaussian, shaken_noise(2, [0], 2)), batch, keys))
    cell = np.diff(stats.norm(0.4, 0.3).cdf([0.25, 0.75]))[0] / 0.5
    weights = np.exp(-losses) / (cell * stats.norm.pdf(0.7))
    assert abs(weights.mean() - 1) < 5 * weights.std() / 4000**0.5
    assert losses.mean() > -np.log(cell * stats.norm.pdf(0.7)) + 5 * losses.std() / 4000**0.5
