"""Linearised and particle filters: equal to, or converging to, what is exact."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy import inference as fi
from freeenergy.inference import GaussianBelief, LinearGaussianBeliefs, LinearStep, Observed

A = jnp.array([[0.8, 0.2], [-0.1, 0.9]])
Q = jnp.diag(jnp.array([0.3, 0.2]))
C = jnp.array([[1.0, 0.5]])
R = jnp.array([[0.5]])
Y = jnp.asarray(np.random.default_rng(0).normal(size=(10, 1))).at[4].set(jnp.nan)
START = GaussianBelief(jnp.array([0.5, -0.5]), jnp.eye(2))
ROOT = jnp.sqrt(Q)


def move(x, inputs):
    return A @ x


def see(x, inputs):
    return C @ x


def draw(x, inputs, key):
    return A @ x + ROOT @ jax.random.normal(key, (2,))


def emit(x, inputs, value):
    seen = ~jnp.isnan(value)
    gap = jnp.where(seen, value - C @ x, 0)
    return jnp.sum(jnp.where(seen, -0.5 * (gap**2 / R[0, 0] + jnp.log(2 * jnp.pi * R[0, 0])), 0))


def density(new, old, inputs):
    gap = new - A @ old
    return -0.5 * jnp.sum(gap**2 / jnp.diagonal(Q) + jnp.log(2 * jnp.pi * jnp.diagonal(Q)))


@jax.jit
def kalman():
    chain = LinearGaussianBeliefs(LinearStep(A, jnp.zeros(2), Q))
    steps = jax.vmap(lambda y: fi.measure(C, jnp.zeros(1), R, y))(Y)
    filtered = fi.filter(chain, START, steps)
    return filtered, fi.smooth(chain, filtered, steps)


@pytest.mark.parametrize("linearisation", [fi.Taylor(), fi.Unscented()])
def test_linear_chains_are_exact(linearisation):
    chain = fi.LinearisedBeliefs(move, Q, see, R, linearisation)

    @jax.jit
    def both():
        filtered = fi.filter(chain, START, Observed(Y))
        smoothed = fi.smooth(chain, filtered, Observed(Y))
        return filtered, smoothed, chain.forward(jax.tree.map(lambda x: x[3], smoothed.pairs))

    filtered, smoothed, kernel = both()
    exact, behind = kalman()
    np.testing.assert_allclose(filtered.log_evidence, exact.log_evidence, atol=1e-10)
    np.testing.assert_allclose(smoothed.marginals.mean, behind.marginals.mean, atol=1e-10)
    np.testing.assert_allclose(smoothed.pairs.cross, behind.pairs.cross, atol=1e-10)
    np.testing.assert_allclose(
        kernel.gain @ behind.marginals.mean[3] + kernel.offset, behind.marginals.mean[4], atol=1e-10
    )
    keys = jax.random.split(jax.random.key(0), 2000)
    paths = jax.jit(jax.vmap(lambda k: fi.sample_paths(chain, filtered, Observed(Y), key=k)))(keys)
    spread = np.sqrt(np.diagonal(behind.marginals.covariance, axis1=1, axis2=2))
    assert (np.abs(paths.mean(0) - behind.marginals.mean) / spread).max() * math.sqrt(2000) < 4.5


def test_unscented_points_have_the_moments_of_a_square():
    mean, variance = 0.7, 1.3
    belief = GaussianBelief(jnp.array([mean]), jnp.array([[variance]]))
    chain = fi.LinearisedBeliefs(lambda x, u: x**2, jnp.zeros((1, 1)), see, R, fi.Unscented(kappa=2.0))
    after = chain.predict(belief, Observed(jnp.zeros(1)))
    # x²/σ² is a non-central χ² with one degree of freedom
    law = stats.ncx2(1, mean**2 / variance, scale=variance)
    assert float(after.mean[0]) == pytest.approx(law.mean(), rel=1e-10)
    assert float(after.covariance[0, 0]) == pytest.approx(law.var(), rel=1e-10)


RESAMPLERS = [fi.Multinomial(), fi.Stratified(), fi.Systematic(), fi.Residual()]


@pytest.mark.parametrize("resampler", RESAMPLERS, ids=lambda r: type(r).__name__)
def test_resampling_is_unbiased(resampler):
    weights = np.array([0.3, 0.05, 0.4, 0.25])
    keys = jax.random.split(jax.random.key(1), 4000)
    draw = jax.jit(lambda logs, key: resampler(logs, key=key))
    parents = jax.jit(jax.vmap(draw, (None, 0)))(np.log(weights), keys)
    counts = np.stack([np.bincount(row, minlength=4) for row in np.asarray(parents)])
    error = counts.std(0) / math.sqrt(4000) + 1e-12
    assert (np.abs(counts.mean(0) - 4 * weights) / error).max() < 4.5
    if not isinstance(resampler, fi.Multinomial):
        assert (counts >= np.floor(4 * weights + 1e-9) - 1).all()
    even = draw(np.full(4, -np.log(4.0)), jax.random.key(2))
    if isinstance(resampler, (fi.Residual, fi.Stratified)):
        assert sorted(np.asarray(even).tolist()) == [0, 1, 2, 3]


def particle_run(chain, key, n):
    first, second = jax.random.split(key)
    states = START.mean[None] + jax.random.normal(first, (n, 2))
    return fi.filter(chain, chain.start(states, key=second), Observed(Y))


@pytest.mark.parametrize("threshold", [1.0, 0.5])
def test_particles_estimate_the_likelihood_without_bias(threshold):
    chain = fi.ParticleBeliefs(draw, emit, density, threshold=threshold)
    keys = jax.random.split(jax.random.key(3), 600)
    logs = jax.jit(jax.vmap(lambda k: jnp.sum(particle_run(chain, k, 60).log_evidence)))(keys)
    exact, _ = kalman()
    ratio = np.exp(np.asarray(logs) - float(exact.log_evidence.sum()))
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std() / math.sqrt(600)
    assert ratio.std() < 1


def test_particle_filter_and_smoother_converge_to_kalman():
    chain = fi.ParticleBeliefs(draw, emit, density)

    def one(key):
        filtered = particle_run(chain, key, 200)
        smoothed = fi.smooth(chain, filtered, Observed(Y)).marginals
        path = fi.sample_paths(chain, filtered, Observed(Y), key=key)

        def mean(p):
            return jnp.einsum("tp,tpn->tn", jnp.exp(p.log_weight), p.states)

        return mean(filtered.filtered), mean(smoothed), path, jnp.exp(smoothed.log_weight).sum(1)

    filtered, smoothed, paths, totals = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(4), 60))
    exact, behind = kalman()
    for estimate, truth in (
        (filtered, exact.filtered),
        (smoothed, behind.marginals),
        (paths, behind.marginals),
    ):
        error = np.asarray(estimate).std(0) / math.sqrt(60)
        # a bias of order 1/particles is allowed
        assert (np.abs(estimate.mean(0) - truth.mean) / (error + 0.01)).max() < 4.5
    np.testing.assert_allclose(totals, 1, atol=1e-9)


def test_particles_on_all_states_are_the_finite_smoother():
    move = jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
    alpha = jnp.array([0.5, 0.2, 0.3])
    later = jnp.array([0.1, 0.3, 0.6])
    chain = fi.ParticleBeliefs(
        lambda x, u, k: jax.random.categorical(k, jnp.log(move[x])),
        lambda x, u, y: jnp.zeros(()),
        lambda new, old, u: jnp.log(move[old, new]),
    )
    states = jnp.arange(3)
    seed = jax.random.key_data(jax.random.key(0))
    belief = fi.Particles(states, jnp.log(alpha), seed)
    smoothed = fi.Particles(states, jnp.log(later), seed)
    kernel = chain.reverse(belief, belief, Observed(jnp.zeros(1)))
    earlier, pair = chain.back(smoothed, kernel)
    joint = np.asarray(alpha)[:, None] * np.asarray(move)
    expected = joint / joint.sum(0) * np.asarray(later)
    np.testing.assert_allclose(np.exp(pair), expected, atol=1e-12)
    np.testing.assert_allclose(np.exp(earlier.log_weight), expected.sum(1), atol=1e-12)
    rows = np.exp(chain.forward(pair))
    np.testing.assert_allclose(rows, expected / expected.sum(1, keepdims=True), atol=1e-12)


def test_smoothing_particles_needs_a_density():
    chain = fi.ParticleBeliefs(draw, emit)
    belief = chain.start(jnp.zeros((3, 2)), key=jax.random.key(0))
    kernel = chain.reverse(belief, belief, Observed(Y[0]))
    with pytest.raises(ValueError, match="needs the 'density' of the transition to smooth"):
        chain.back(belief, kernel)
