"""Kalman recursions in every form against dense conditioning of the joint Gaussian, and statsmodels."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy.linalg import block_diag

from freeenergy import inference as fi
from freeenergy._core import on_device
from freeenergy.inference import GaussianBelief, LinearGaussianBeliefs, LinearStep
from freeenergy.inference._semidefinite import root_semidefinite, solve_semidefinite

T, N, M = 12, 3, 2


def positive(rng, size):
    root = rng.normal(size=(size, size + 1))
    return root @ root.T


measured = jax.jit(jax.vmap(fi.measure))


class Problem:
    """A chain whose parameters all change in time, with holes, and its answers from dense algebra."""

    def __init__(self, outputs=M):
        rng = np.random.default_rng(0)
        self.A = 0.6 * rng.normal(size=(T, N, N))
        self.a = rng.normal(size=(T, N))
        self.Q = np.stack([positive(rng, N) for _ in range(T)])
        self.C = rng.normal(size=(T, outputs, N))
        self.c = rng.normal(size=(T, outputs))
        self.R = np.stack([positive(rng, outputs) for _ in range(T)])
        self.mean, self.covariance = rng.normal(size=N), positive(rng, N)
        self.y = rng.normal(size=(T, outputs))
        self.y[3, 0] = self.y[5] = self.y[7, 1] = np.nan

    @property
    def initial(self):
        return GaussianBelief(on_device(self.mean), on_device(self.covariance))

    def steps(self):
        seen = measured(self.C, self.c, self.R, self.y)
        return seen._replace(
            transition=on_device(self.A), offset=on_device(self.a), noise=on_device(self.Q)
        )

    @functools.cached_property
    def prior(self):
        """Mean and covariance of all states."""
        lower = np.eye(T * N)
        for t in range(1, T):
            lower[t * N : (t + 1) * N, (t - 1) * N : t * N] = -self.A[t]
        solve = np.linalg.inv(lower)
        noise = block_diag(self.covariance, *self.Q[1:])
        mean = solve @ np.concatenate([self.mean, *self.a[1:]])
        return mean, solve @ noise @ solve.T

    def posterior(self, until=T):
        """Mean and covariance of all states, and the log-likelihood, from y up to `until`."""
        mean, covariance = self.prior
        y = np.where(np.arange(T)[:, None] < until, self.y, np.nan).ravel()
        seen = ~np.isnan(y)
        C = block_diag(*self.C)[seen]
        R = block_diag(*self.R)[np.ix_(seen, seen)]
        S = C @ covariance @ C.T + R
        residual = y[seen] - self.c.ravel()[seen] - C @ mean
        gain = np.linalg.solve(S, C @ covariance).T
        length = residual @ np.linalg.solve(S, residual)
        log = -0.5 * (length + np.linalg.slogdet(S)[1] + seen.sum() * np.log(2 * np.pi))
        return mean + gain @ residual, covariance - gain @ C @ covariance, log


PROBLEM = Problem()


def block(matrix, t, s):
    return matrix[t * N : (t + 1) * N, s * N : (s + 1) * N]


@jax.jit
def sequential(initial, steps):
    beliefs = LinearGaussianBeliefs(LinearStep())
    filtered = fi.filter(beliefs, initial, steps)
    return filtered, fi.smooth(beliefs, filtered, steps)


@jax.jit
def parallel(initial, steps):
    beliefs = LinearGaussianBeliefs(LinearStep())
    filtered = fi.parallel_filter(beliefs, initial, steps)
    return filtered, fi.parallel_smooth(beliefs, filtered, steps)


@functools.partial(jax.jit, static_argnames="blocks")
def blocked(initial, steps, blocks):
    return fi.blocked_smooth(LinearGaussianBeliefs(LinearStep()), initial, steps, blocks=blocks)


@jax.jit
def square_root(initial, steps):
    beliefs = fi.SquareRootBeliefs(LinearStep())
    filtered = fi.filter(beliefs, beliefs.start(initial), steps)
    smoothed = fi.smooth(beliefs, filtered, steps)
    moments = jax.vmap(beliefs.moments)
    return (
        fi.Filtered(moments(filtered.predicted), moments(filtered.filtered), filtered.log_evidence),
        smoothed._replace(marginals=moments(smoothed.marginals)),
    )


@jax.jit
def information(initial, steps):
    small = jax.vmap(fi.collapse)(steps)
    moves = {name: getattr(steps, name) for name in ("transition", "offset", "noise")}
    return sequential(initial, small._replace(**moves))


FORMS = {
    "sequential": sequential,
    "parallel": parallel,
    "blocked-1": functools.partial(blocked, blocks=1),
    "blocked-4": functools.partial(blocked, blocks=4),
    "blocked-12": functools.partial(blocked, blocks=12),
    "square-root": square_root,
    "information": information,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_dense_conditioning(form):
    found = FORMS[form](PROBLEM.initial, PROBLEM.steps())
    filtered, smoothed = jax.tree.map(np.asarray, found)
    mean, covariance, log = PROBLEM.posterior()
    assert filtered.log_evidence.sum() == pytest.approx(log, abs=1e-10)
    np.testing.assert_allclose(smoothed.marginals.mean.ravel(), mean, atol=1e-10)
    for t in range(T):
        np.testing.assert_allclose(smoothed.marginals.covariance[t], block(covariance, t, t), atol=1e-10)
    for t in range(T - 1):
        np.testing.assert_allclose(smoothed.pairs.cross[t], block(covariance, t, t + 1), atol=1e-10)


def test_filter_at_each_step_conditions_on_the_past():
    filtered, _ = jax.tree.map(np.asarray, sequential(PROBLEM.initial, PROBLEM.steps()))
    logs = []
    for t in range(T):
        mean, covariance, log = PROBLEM.posterior(t + 1)
        logs.append(log)
        np.testing.assert_allclose(filtered.filtered.mean[t], mean[t * N : (t + 1) * N], atol=1e-10)
        np.testing.assert_allclose(filtered.filtered.covariance[t], block(covariance, t, t), atol=1e-10)
    np.testing.assert_allclose(filtered.log_evidence, np.diff([0.0, *logs]), atol=1e-10)
    before, _, _ = PROBLEM.posterior(4)
    np.testing.assert_allclose(filtered.predicted.mean[4], before[4 * N : 5 * N], atol=1e-10)


@pytest.mark.slow
@pytest.mark.slow
def test_more_outputs_than_states_and_evidence_of_blocks():
    problem = Problem(outputs=7)
    steps = problem.steps()
    filtered, _ = information(problem.initial, steps)
    assert jax.vmap(fi.collapse)(steps).value.shape == (T, N)
    log = problem.posterior()[2]
    assert float(jnp.sum(filtered.log_evidence)) == pytest.approx(log, abs=1e-9)
    beliefs = LinearGaussianBeliefs(LinearStep())
    total = fi.blocked_evidence(beliefs, problem.initial, steps, blocks=3)
    assert float(total) == pytest.approx(log, abs=1e-9)
    ends = fi.blocked_filter(beliefs, problem.initial, steps, blocks=3).filtered
    np.testing.assert_allclose(ends.mean, filtered.filtered.mean, atol=1e-9)


def test_the_posterior_is_a_chain_forward_in_time_again():
    _, smoothed = sequential(PROBLEM.initial, PROBLEM.steps())
    forward = jax.jit(jax.vmap(LinearGaussianBeliefs(LinearStep()).forward))
    kernels = jax.tree.map(np.asarray, forward(smoothed.pairs))
    _, covariance, _ = PROBLEM.posterior()
    # Cov(x_0, x_5) by moving forward through five kernels
    cross = block(covariance, 0, 0)
    for t in range(5):
        cross = cross @ kernels.gain[t].T
    np.testing.assert_allclose(cross, block(covariance, 0, 5), atol=1e-10)
    rest = block(covariance, 1, 1) - np.linalg.solve(
        block(covariance, 0, 0), block(covariance, 0, 1)
    ).T @ block(covariance, 0, 1)
    np.testing.assert_allclose(kernels.covariance[0], rest, atol=1e-10)


@pytest.mark.parametrize("beliefs", [LinearGaussianBeliefs, fi.SquareRootBeliefs])
def test_paths_are_draws_from_the_joint_posterior(beliefs):
    chain = beliefs(LinearStep())
    steps = PROBLEM.steps()

    @jax.jit
    def draw(initial, keys):
        start = initial if beliefs is LinearGaussianBeliefs else chain.start(initial)
        filtered = fi.filter(chain, start, steps)
        return jax.vmap(lambda k: fi.sample_paths(chain, filtered, steps, key=k))(keys)

    keys = jax.random.split(jax.random.key(0), 4000)
    paths = np.asarray(draw(PROBLEM.initial, keys)).reshape(4000, -1)
    mean, covariance, _ = PROBLEM.posterior()
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(paths.mean(0) - mean) / spread * math.sqrt(4000)).max() < 4.5
    scaled = (paths - mean) / spread
    off = scaled.T @ scaled / 4000 - covariance / np.outer(spread, spread)
    assert np.abs(off).max() * math.sqrt(4000 / 2) < 4.5


def test_disturbances_by_dense_algebra():
    _, smoothed = jax.tree.map(np.asarray, sequential(PROBLEM.initial, PROBLEM.steps()))
    mean, covariance, _ = PROBLEM.posterior()
    t = 6
    pair = jax.tree.map(lambda x: x[t - 1], smoothed.pairs)
    state = jax.jit(fi.state_disturbance)(pair, PROBLEM.A[t], PROBLEM.a[t])
    change = np.zeros((N, T * N))
    change[:, t * N : (t + 1) * N], change[:, (t - 1) * N : t * N] = np.eye(N), -PROBLEM.A[t]
    np.testing.assert_allclose(state.mean, change @ mean - PROBLEM.a[t], atol=1e-10)
    np.testing.assert_allclose(state.covariance, change @ covariance @ change.T, atol=1e-10)
    C, c, y = (x[t] for x in (PROBLEM.C, PROBLEM.c, PROBLEM.y))
    marginal = jax.tree.map(lambda x: x[t], smoothed.marginals)
    seen = jax.jit(fi.observation_disturbance)(marginal, C, c, y)
    now = slice(t * N, (t + 1) * N)
    np.testing.assert_allclose(
        seen.mean, PROBLEM.y[t] - PROBLEM.C[t] @ mean[now] - PROBLEM.c[t], atol=1e-10
    )
    np.testing.assert_allclose(
        seen.covariance, PROBLEM.C[t] @ covariance[now, now] @ PROBLEM.C[t].T, atol=1e-10
    )


@jax.jit
def local_level(y, Q=1.0, R=1.0, P=1.0):
    one = jnp.ones((1, 1))
    steps = jax.vmap(lambda v: fi.measure(one, jnp.zeros(1), R * one, v))(y[:, None])
    chain = LinearGaussianBeliefs(LinearStep(one, jnp.zeros(1), Q * one))
    return fi.filter(chain, GaussianBelief(jnp.zeros(1), P * one), steps)


def test_golden_ratio():
    filtered = jax.tree.map(np.asarray, local_level(np.zeros(40)))
    golden = (1 + math.sqrt(5)) / 2
    assert float(filtered.predicted.covariance[-1, 0, 0]) == pytest.approx(golden, abs=1e-12)
    assert float(filtered.filtered.covariance[-1, 0, 0]) == pytest.approx(golden - 1, abs=1e-12)


def test_numbers_of_the_notes():
    filtered = jax.tree.map(np.asarray, local_level(np.array([1.0, 2.0, 1.5]), Q=0.5, P=2.0))
    np.testing.assert_allclose(filtered.filtered.mean[:, 0], [0.666667, 1.384615, 1.443396], atol=1e-6)
    np.testing.assert_allclose(
        filtered.filtered.covariance[:, 0, 0], [0.666667, 0.538462, 0.509434], atol=1e-6
    )
    assert float(filtered.log_evidence.sum()) == pytest.approx(-4.6290030551, abs=1e-9)


def test_square_roots_keep_their_sign_where_covariances_lose_it():
    # two nearly equal and nearly noiseless measurements of a nearly unknown state
    tiny = 1e-9

    @jax.jit
    def updated(C):
        step = fi.measure(C, jnp.zeros(2), jnp.full(2, tiny**2), jnp.ones(2))
        start = GaussianBelief(jnp.zeros(2), jnp.eye(2))
        root = fi.SquareRootBeliefs(LinearStep())
        return root.moments(root.update(root.start(start), step)[0]).covariance

    exact = np.asarray(updated(np.array([[1.0, 1.0], [1.0, 1.0 + tiny]])))
    assert np.linalg.eigvalsh(exact).min() >= 0
    assert np.trace(exact) == pytest.approx(np.trace(_posterior_by_fractions(tiny)), rel=1e-6)


def _posterior_by_fractions(tiny):
    """(I + CᵀC / tiny²)⁻¹ in rational arithmetic."""
    t = Fraction(tiny)
    c = [[Fraction(1), Fraction(1)], [Fraction(1), 1 + t]]
    p = [[Fraction(int(i == j)) + sum(r[i] * r[j] for r in c) / t**2 for j in range(2)] for i in range(2)]
    det = p[0][0] * p[1][1] - p[0][1] * p[1][0]
    return np.array([[p[1][1] / det, -p[0][1] / det], [-p[1][0] / det, p[0][0] / det]], float)


@pytest.mark.slow
def test_diffuse_start_equals_statsmodels():
    rng = np.random.default_rng(1)
    y = np.cumsum(rng.normal(size=60)) + rng.normal(size=60)
    y[[1, 5, 6]] = np.nan
    model = sm.tsa.UnobservedComponents(y, "lltrend", seasonal=4, use_exact_diffuse=True)
    result = model.smooth([0.7, 0.3, 0.1, 0.2])
    ssm = model.ssm
    Q = ssm["selection"] @ ssm["state_cov"] @ ssm["selection"].T
    A, C, R = (jnp.asarray(ssm[name]) for name in ("transition", "design", "obs_cov"))
    size = len(A)
    chain = fi.DiffuseBeliefs(LinearStep(A, jnp.zeros(size), jnp.asarray(Q)))
    steps = jax.vmap(lambda v: fi.measure(C, jnp.zeros(1), R, v))(jnp.asarray(y)[:, None])
    start = chain.start(GaussianBelief(jnp.zeros(size), jnp.zeros((size, size))), jnp.eye(size))
    filtered = fi.filter(chain, start, steps)
    assert float(filtered.log_evidence.sum()) == pytest.approx(result.llf, abs=1e-9)
    np.testing.assert_allclose(filtered.log_evidence, result.llf_obs, atol=1e-9)
    later = jax.vmap(chain.moments)(filtered.filtered)
    np.testing.assert_allclose(later.mean[10:], result.filtered_state.T[10:], atol=1e-9)
    assert np.isinf(np.diag(later.covariance[0])).any()
    smoothed = fi.smooth(chain, filtered, steps)
    moments = jax.vmap(chain.moments)(smoothed.marginals)
    np.testing.assert_allclose(moments.mean, result.smoothed_state.T, atol=1e-9)
    np.testing.assert_allclose(moments.covariance, np.moveaxis(result.smoothed_state_cov, 2, 0), atol=1e-9)
    # the change of the state is a disturbance: its smoothed mean needs the cross-covariances to be right
    pairs = jax.vmap(chain.pair)(smoothed.pairs)
    shocks = jax.vmap(lambda p: fi.state_disturbance(p, A, jnp.zeros(size)))(pairs)
    expected = np.einsum(
        "ij,tjk,lk->til",
        ssm["selection"],
        np.moveaxis(result.smoothed_state_disturbance_cov, 2, 0)[:-1],
        ssm["selection"],
    )
    np.testing.assert_allclose(shocks.covariance, expected, atol=1e-9)
    keys = jax.random.split(jax.random.key(1), 2000)
    draw = jax.jit(jax.vmap(lambda k: fi.sample_paths(chain, filtered, steps, key=k)[1, 0]))
    values = np.asarray(draw(keys))
    error = (values.mean() - moments.mean[1, 0]) / np.sqrt(moments.covariance[1, 0, 0] / 2000)
    assert abs(error) < 4.5
    assert values.var() / moments.covariance[1, 0, 0] == pytest.approx(1, abs=4.5 * math.sqrt(2 / 2000))
    kernel = chain.forward(jax.tree.map(lambda x: x[20], smoothed.pairs))
    np.testing.assert_allclose(kernel.gain @ moments.mean[20] + kernel.offset, moments.mean[21], atol=1e-9)


def test_semidefinite_helpers():
    rng = np.random.default_rng(2)
    half = rng.normal(size=(5, 3))
    matrix = jnp.asarray(half @ half.T)
    root = root_semidefinite(matrix)
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-12)
    right = matrix @ jnp.asarray(rng.normal(size=(5, 2)))
    np.testing.assert_allclose(matrix @ solve_semidefinite(matrix, right), right, atol=1e-10)


@pytest.mark.slow
def test_gradient_of_the_evidence_against_finite_differences():
    steps = PROBLEM.steps()

    def log(scale):
        chain = LinearGaussianBeliefs(LinearStep())
        scaled = steps._replace(noise=steps.noise * scale)
        return fi.blocked_evidence(chain, PROBLEM.initial, scaled, blocks=3)

    slope = jax.grad(log)(1.0)
    width = 1e-5
    assert float(slope) == pytest.approx(float(log(1 + width) - log(1 - width)) / (2 * width), rel=1e-6)
