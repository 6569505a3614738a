"""Diffusion: noising chains against dense Gaussian algebra, bounds, samplers, flows, learned densities."""

import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from data import ROWS
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy.bijections import ContinuousFlow
from freeenergy.learning import Batch, Denoising, Gradient, Optimiser
from freeenergy.models import (
    DATA,
    Ancestral,
    Corrected,
    CosineSchedule,
    Diffusion,
    FlowSteps,
    Implicit,
    LearnedSchedule,
    LinearSchedule,
    LogLinearSchedule,
    PredictsDatum,
    PredictsDisplacement,
    PredictsNoise,
    PredictsScore,
    PredictsVelocity,
    Stage,
    StepSchedule,
    StraightPath,
    StraightSchedule,
    VarianceExploding,
    VariancePreserving,
    flow_log_prob,
    flow_matching_weight,
    likelihood_weight,
    noising_posterior,
    noising_step,
    reverse_variance,
    simple_weight,
)
from freeenergy.nn import ResidualDenoiser, ResidualNetwork

KEY = jax.random.key(0)
SCHEDULES = [
    LogLinearSchedule(-7.0, 6.0),
    CosineSchedule(-7.0, 6.0),
    StraightSchedule(-7.0, 6.0),
    LinearSchedule(),
    StepSchedule.of_betas(jnp.linspace(1e-4, 0.02, 1000)),
    LearnedSchedule(jnp.array(6.0), jnp.array(13.0), jnp.array([0.3, -0.5, 0.1])),
]
PATHS = [VariancePreserving(), VarianceExploding(), StraightPath()]
PARAMETRISATIONS = [
    PredictsNoise(),
    PredictsDatum(),
    PredictsScore(),
    PredictsVelocity(),
    PredictsDisplacement(),
]
TOY = StepSchedule.of_betas(jnp.array([0.1, 0.2, 0.3, 0.4]))


def stage(path, log_snr):
    return Stage(jnp.asarray(log_snr), *path.scales(jnp.asarray(log_snr)))


class Exact:
    """What the best network says of data N(mean, variance I)."""

    def __init__(self, mean, variance, path, parametrisation):
        self.mean, self.variance = mean, variance
        self.path, self.parametrisation = path, parametrisation

    def __call__(self, x, log_snr):
        at = stage(self.path, log_snr)
        x = x * at.size
        total = at.alpha**2 * self.variance + at.sigma**2
        noise = at.sigma * (x - at.alpha * self.mean) / total
        return beyond(self.parametrisation, (x - at.sigma * noise) / at.alpha, noise, x, at)


def beyond(parametrisation, datum, noise, x, at):
    """What is to be added to what would be said of data N(0, I)."""
    still = [v * x / at.size**2 for v in (at.alpha, at.sigma)]
    return parametrisation.target(datum, noise, at) - parametrisation.target(*still, at)


def exact(
    mean, variance, schedule=None, path=PATHS[0], parametrisation=PARAMETRISATIONS[3], share=1.0, dim=1
):
    schedule = SCHEDULES[0] if schedule is None else schedule
    network = Exact(mean, variance, path, parametrisation)
    return Diffusion(network, dim, schedule, path, parametrisation, share)


# -- schedules and kernels --------------------------------------------------------------------------


def test_schedules_fall_and_have_the_printed_numbers():
    np.testing.assert_allclose(jax.nn.sigmoid(TOY.log_snrs), [0.9, 0.72, 0.504, 0.3024], rtol=1e-12)
    steps = jax.nn.sigmoid(SCHEDULES[4].log_snrs)
    np.testing.assert_allclose([steps[-1], steps[499]], [4.03583e-5, 0.0785872], rtol=1e-5)
    # KL(q(x_T | x = 1) ‖ N(0, 1)) in one dimension
    cost = exact(0.0, 1.0, SCHEDULES[4]).prior_cost(jnp.ones(1))
    np.testing.assert_allclose(cost, 2.018e-5, rtol=1e-3)
    times = np.linspace(0.01, 0.99, 99) + 1e-3

    @jax.jit
    @jax.vmap
    def curves(t):
        return [(s.log_snr(t), s.slope(t), s.log_snr(t + 1e-6) - s.log_snr(t - 1e-6)) for s in SCHEDULES]

    for values, slopes, rise in curves(times):
        assert (np.diff(values) < 0).all()
        np.testing.assert_allclose(slopes, np.asarray(rise) / 2e-6, rtol=1e-5)
    for schedule in (*SCHEDULES[:3], SCHEDULES[5]):
        np.testing.assert_allclose(schedule.ends(float), [6, -7], rtol=1e-12)
    # as steps become many the linear chain is the linear schedule in continuous time
    np.testing.assert_allclose(SCHEDULES[3].log_snr(jnp.array(0.5)), SCHEDULES[4].log_snrs[500], atol=0.02)
    with pytest.raises(ValueError, match=r"'high' of CosineSchedule must be larger than its 'low', 1.0"):
        CosineSchedule(1.0, 0.0)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: type(p).__name__)
def test_kernels_of_the_chain_are_those_of_dense_gaussian_algebra(path):
    clean, noisy = stage(path, 1.3), stage(path, -0.7)
    np.testing.assert_allclose(2 * np.log(clean.alpha / clean.sigma), 1.3)
    factor, variance = noising_step(clean, noisy)
    # x of variance s², x_s and x_t jointly: a dense covariance
    s2 = 1.7
    a, b = clean.alpha, noisy.alpha
    joint = np.array([[1.0, 0, 0], [a, 1, 0], [factor * a, factor, 1]])
    sigma = joint @ np.diag([s2, clean.sigma**2, variance]) @ joint.T
    np.testing.assert_allclose(sigma[2, 2], b**2 * s2 + noisy.sigma**2, rtol=1e-12)
    np.testing.assert_allclose(factor * a, b, rtol=1e-12)
    # x_s given x_t and x
    rows = sigma[np.ix_([1], [2, 0])] @ np.linalg.inv(sigma[np.ix_([2, 0], [2, 0])])
    rest = sigma[1, 1] - rows @ sigma[[2, 0]][:, 1]
    np.testing.assert_allclose([*rows[0], *rest], noising_posterior(clean, noisy), rtol=1e-9)
    # the wider variance is that of x_s given x_t for data of unit variance
    unit = joint @ np.diag([1.0, clean.sigma**2, variance]) @ joint.T
    wide = unit[1, 1] - unit[1, 2] ** 2 / unit[2, 2]
    np.testing.assert_allclose(reverse_variance(clean, noisy, 1.0), wide, rtol=1e-9)
    np.testing.assert_allclose(reverse_variance(clean, noisy, 0.0), rest[0], rtol=1e-9)
    half = reverse_variance(clean, noisy, 0.5)
    np.testing.assert_allclose(half, np.sqrt(wide * rest[0]), rtol=1e-9)
    # two steps are one
    middle = stage(path, 0.2)
    (f, u), (g, v) = noising_step(clean, middle), noising_step(middle, noisy)
    np.testing.assert_allclose([f * g, g**2 * u + v], [factor, variance], rtol=1e-12)
    # and the last step back knows the datum
    np.testing.assert_allclose(noising_posterior(DATA, noisy), [0, 1, 0])
    np.testing.assert_allclose(reverse_variance(DATA, noisy, 1.0), jax.nn.sigmoid(0.7), rtol=1e-12)


def test_posteriors_and_weights_of_the_four_step_chain():
    stages = [stage(PATHS[0], v) for v in TOY.log_snrs]
    variances = [noising_posterior(s, t)[2] for s, t in zip([DATA, *stages[:-1]], stages)]
    expected = [0, 0.0714285714, 0.1693548387, 0.2844036697]
    np.testing.assert_allclose(variances, expected, atol=1e-9)
    betas = [noising_step(s, t)[1] for s, t in zip([DATA, *stages[:-1]], stages)]
    np.testing.assert_allclose(betas, [0.1, 0.2, 0.3, 0.4], rtol=1e-9)
    # ‖μ_q − μ‖² / 2 var for an error of one in the noise
    for share, weights in (
        (0.0, (1.25, 0.7653061224, 0.6720430108)),
        (1.0, (0.4464285714, 0.4320276498, 0.4778287462)),
    ):
        for s, t, weight in zip(stages[:-1], stages[1:], weights):
            gap = noising_posterior(s, t)[1] * t.sigma / t.alpha
            np.testing.assert_allclose(gap**2 / 2 / reverse_variance(s, t, share), weight, rtol=1e-8)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: type(p).__name__)
def test_every_parametrisation_gives_every_other(path):
    at = stage(path, 0.8)
    datum, noise = jnp.array([0.3, -1.2]), jnp.array([0.9, 0.4])
    x = at.alpha * datum + at.sigma * noise
    for own in PARAMETRISATIONS:
        said = own.target(datum, noise, at)
        np.testing.assert_allclose(own.datum(said, x, at), datum, rtol=1e-12)
        np.testing.assert_allclose(own.noise(said, x, at), noise, rtol=1e-12)


def test_scores_are_those_of_a_noisy_mixture():
    # Tweedie, with the numbers of the notes: α = 0.6, σ = 0.9
    weights, means, spreads = np.array([0.3, 0.7]), np.array([-2.0, 1.0]), np.array([0.5, 0.8])
    y, alpha, sigma = 0.37, 0.6, 0.9
    total = np.sqrt((alpha * spreads) ** 2 + sigma**2)
    parts = weights * stats.norm.pdf(y, alpha * means, total)
    inner = means + alpha * spreads**2 / total**2 * (y - alpha * means)
    datum = parts @ inner / parts.sum()
    force = -parts @ ((y - alpha * means) / total**2) / parts.sum()
    at = Stage(2 * np.log(alpha / sigma), alpha, sigma)
    noise = PredictsDatum().noise(datum, y, at)
    np.testing.assert_allclose(PredictsScore().target(datum, noise, at), force, rtol=1e-12)
    np.testing.assert_allclose(force, 0.0101991835, atol=1e-9)


# -- bounds -----------------------------------------------------------------------------------------


def gaussian_bound(x, mean, variance, schedule, share, steps):
    """The bound of a chain of steps on N(mean, variance) in one dimension, by Gaussian algebra on the host.

    Every term is an expectation of a quadratic function of Gaussian noise.
    """

    @jax.jit
    def chain(times):
        values = jax.vmap(schedule.log_snr)(times)
        stages = Stage(values, *PATHS[0].scales(values))
        first, noisy, clean = (
            Stage(*(v[part] for v in stages)) for part in (-1, slice(None, -1), slice(1, None))
        )
        posterior, wide = noising_posterior(clean, noisy), reverse_variance(clean, noisy, share)
        return stages, posterior, wide, reverse_variance(DATA, first, 1.0)

    stages, (_, b, narrow), wide, nearest = jax.tree.map(np.asarray, chain(np.linspace(1, 0, steps + 1)))
    first, last, noisy = (Stage(*(v[part] for v in stages)) for part in (-1, 0, slice(None, -1)))

    def error(there):
        """E(x − x̂)² with x̂ = slope x_t + offset."""
        slope = there.alpha * variance / (there.alpha**2 * variance + there.sigma**2)
        return (x - mean - slope * there.alpha * (x - mean)) ** 2 + (slope * there.sigma) ** 2

    found = -(0.5 * (last.alpha**2 * x**2 + last.sigma**2 - 1 - np.log(last.sigma**2)))
    found -= 0.5 * (error(first) / nearest + np.log(2 * np.pi * nearest))
    costs = 0.5 * (b**2 * error(noisy) / wide + narrow / wide - 1 - np.log(narrow / wide))
    return float(found - np.sum(costs))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_both_forms_of_the_bound_agree_with_gaussian_algebra(share):
    model = exact(0.3, 0.7, SCHEDULES[1], share=share)
    x, keys = jnp.array([0.9]), jax.random.split(KEY, 4000)
    truth = gaussian_bound(0.9, 0.3, 0.7, SCHEDULES[1], share, 8)
    both = jax.jit(
        lambda keys: (
            jax.vmap(lambda k: model.bound(x, key=k, steps=8))(keys),
            jax.vmap(lambda k: model.path_bound(x, key=k, steps=8))(keys),
        )
    )(keys)
    for draws in both:
        assert abs(draws.mean() - truth) < 4 * draws.std() / np.sqrt(len(draws))
    assert truth < stats.norm.logpdf(0.9, 0.3, np.sqrt(0.7))
    if share == 0:
        # the divergence is the datum's error times the SNR that is gained
        noisy, clean = (model.stage(jnp.array(t)) for t in (0.5, 0.4))
        noise = jnp.array([0.7])
        datum = model.denoised(noisy.alpha * x + noisy.sigma * noise, noisy)[0]
        gained = 0.5 * (jnp.exp(clean.log_snr) - jnp.exp(noisy.log_snr))
        np.testing.assert_allclose(
            model.step_cost(x, noise, noisy, clean), gained * jnp.sum((x - datum) ** 2), rtol=1e-9
        )


def test_the_bound_is_the_evidence_for_data_of_unit_variance():
    # the wider variance is exact for them, whatever the steps
    truth = stats.norm.logpdf(1.5)
    for steps in (3, 20):
        found = gaussian_bound(1.5, 0.0, 1.0, SCHEDULES[0], 1.0, steps)
        np.testing.assert_allclose(found, truth, atol=1e-9)
    # for others it becomes so with many steps, and so does the limit, at its ends
    truth = stats.norm.logpdf(1.5, 0.3, np.sqrt(0.5))
    gaps = [truth - gaussian_bound(1.5, 0.3, 0.5, SCHEDULES[0], 0.0, n) for n in (10, 100, 1000)]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 0.03
    model, keys = exact(0.3, 0.5), jax.random.split(KEY, 2000)
    draws = jax.jit(jax.vmap(lambda k: model.bound(jnp.array([1.5]), key=k)))(keys)
    assert abs(draws.mean() - truth) < 4 * draws.std() / np.sqrt(len(draws)) + 0.01


def test_the_continuous_loss_depends_on_the_ends_of_a_schedule_alone():
    # ½ ∫ E‖x − x̂‖² dSNR of data N(0, 2) between SNR 50 and 0.01, in closed form
    ends = np.log(0.01), np.log(50)
    knots = jnp.array([0.5, -0.2, 0.4])
    schedules = (
        LogLinearSchedule(*ends),
        CosineSchedule(*ends),
        StraightSchedule(*ends),
        LearnedSchedule(jnp.array(ends[1]), jnp.array(ends[1] - ends[0]), knots),
    )
    models = [exact(0.0, 2.0, schedule, path) for schedule in schedules for path in PATHS]
    # of a quadratic function of two standard normal numbers the mean over their signs is exact
    signs = jnp.array(list(itertools.product([-1.0, 1.0], repeat=2)))

    def losses(t, sign):
        x, noise = jnp.sqrt(2.0) * sign[:1], sign[1:]
        return [model.error(x, t, noise, likelihood_weight) for model in models]

    found = jax.jit(jax.vmap(jax.vmap(losses, (None, 0)), (0, None)))(
        (np.arange(20000) + 0.5) / 20000, signs
    )
    np.testing.assert_allclose([np.mean(values) for values in found], 2.29765894477254, rtol=1e-4)


def test_weights_are_those_of_the_other_losses():
    model = exact(0.2, 0.6, StraightSchedule(-8.0, 8.0), StraightPath())
    x, noise, t = jnp.array([0.7]), jnp.array([-0.4]), jnp.array(0.35)
    there = model.stage(t)
    found = model.denoised(there.alpha * x + there.sigma * noise, there)
    np.testing.assert_allclose(model.error(x, t, noise, simple_weight), jnp.sum((noise - found[1]) ** 2))
    # flow matching: the velocity of a straight path is ε − x, times the speed of τ
    speed = jax.jvp(lambda t: model.stage(t).sigma, (t,), (jnp.ones(()),))[1]
    gap = (noise - x) - (found[1] - found[0])
    np.testing.assert_allclose(
        model.error(x, t, noise, flow_matching_weight), speed**2 * jnp.sum(gap**2), rtol=1e-9
    )


# -- draws and flows --------------------------------------------------------------------------------


def draws_of(model, sampler, steps, n=4000):
    draw = jax.jit(jax.vmap(lambda k: model.sample(key=k, sampler=sampler, steps=steps)))
    return np.asarray(draw(jax.random.split(KEY, n)))[:, 0]


def variance_of_draws(model, sampler, steps):
    """Mean and variance after linear steps, by passing moments: exact."""
    times = np.linspace(1, 0, steps + 1)

    def ends(noisy, clean):
        low, high = (model.back(jnp.array([v]), noisy, clean, sampler.share)[0][0] for v in (0.0, 1.0))
        return low, high - low, reverse_variance(clean, noisy, sampler.share)

    step = jax.jit(jax.vmap(lambda t, s: ends(model.stage(t), model.stage(s))))
    last = ends(model.stage(jnp.array(0.0)), DATA)
    mean, variance = 0.0, float(model.stage(jnp.array(1.0)).size) ** 2
    for offset, slope, added in (*zip(*map(np.asarray, step(times[:-1], times[1:]))), last):
        mean, variance = float(offset + slope * mean), float(slope**2 * variance + added)
    return mean, variance


def test_ancestral_draws_have_the_moments_of_the_notes():
    model = exact(2.0, 1.0, SCHEDULES[4])
    np.testing.assert_allclose(variance_of_draws(model, Ancestral(1.0), 999), (1.99992, 1.0), atol=1e-5)
    np.testing.assert_allclose(variance_of_draws(model, Ancestral(0.0), 999)[1], 0.99107, atol=1e-4)
    for share in (0.0, 1.0):
        mean, variance = variance_of_draws(exact(2.0, 1.0), Ancestral(share), 12)
        draws = draws_of(exact(2.0, 1.0), Ancestral(share), 12)
        assert abs(draws.mean() - mean) < 4 * np.sqrt(variance / 4000)
        assert abs(draws.var() / variance - 1) < 4 * np.sqrt(2 / 4000)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: type(p).__name__)
def test_steps_of_samplers_against_each_other(path):
    model = exact(jnp.array([0.5, -1.0]), 0.3, path=path, dim=2)
    noisy, clean = (model.stage(jnp.array(t)) for t in (0.6, 0.55))
    x = jnp.array([0.4, -0.3])
    step = lambda sampler: sampler.step(model, x, noisy, clean, key=KEY)  # noqa: E731
    # with all its noise the implicit step is the ancestral one
    np.testing.assert_allclose(step(Implicit(1.0)), step(Ancestral(0.0)), rtol=1e-9)
    # without, it is Euler's step of the flow of x/α in σ/α
    noise = model.denoised(x, noisy)[1]
    moved = x / noisy.alpha + (clean.sigma / clean.alpha - noisy.sigma / noisy.alpha) * noise
    np.testing.assert_allclose(step(Implicit()), clean.alpha * moved, rtol=1e-9)
    # the flow of a Gaussian keeps the number of standard deviations
    total = [np.sqrt(v.alpha**2 * 0.3 + v.sigma**2) for v in (noisy, clean)]
    mean = [v.alpha * model.network.mean for v in (noisy, clean)]
    np.testing.assert_allclose(step(FlowSteps()), mean[1] + total[1] / total[0] * (x - mean[0]), rtol=1e-5)
    # Langevin dynamics goes along the score
    force = model.score(x, jnp.array(0.6))
    np.testing.assert_allclose(force, -(x - mean[0]) / total[0] ** 2, rtol=1e-9)


def test_langevin_dynamics_corrects_what_the_predictor_left():
    model = exact(0.0, 0.2)
    noisy, clean = (model.stage(jnp.array(t)) for t in (0.7, 0.6))
    keys, sampler = jax.random.split(KEY, 4000), Corrected(Implicit(), 100, 0.8)

    @jax.jit
    @jax.vmap
    def draw(key):
        return sampler.step(model, jnp.array([3.0]), noisy, clean, key=key)[0]

    draws = np.asarray(draw(keys))
    # unadjusted steps have a known bias: v / (1 − ε/(4v)) with ε = rate σ²
    v = float(clean.alpha**2 * 0.2 + clean.sigma**2)
    v /= 1 - 0.8 * float(clean.sigma) ** 2 / (4 * v)
    assert abs(draws.mean()) < 4 * np.sqrt(v / 4000)
    assert abs(draws.var() / v - 1) < 4 * np.sqrt(2 / 4000)


def test_the_flow_of_a_gaussian_is_its_density():
    mean, covariance = np.array([0.4, -0.3]), np.array([[0.5, 0.4], [0.4, 0.9]])
    chol = np.linalg.cholesky(covariance)

    def network(x, log_snr):
        at = stage(PATHS[0], log_snr)
        total = at.alpha**2 * covariance + at.sigma**2 * jnp.eye(2)
        noise = at.sigma * jnp.linalg.solve(total, x - at.alpha * mean)
        return beyond(PredictsVelocity(), (x - at.sigma * noise) / at.alpha, noise, x, at)

    model = Diffusion(network, 2, LogLinearSchedule(-20.0, 14.0))
    points = mean + np.random.default_rng(0).normal(size=(20, 2)) @ chol.T
    truth = stats.multivariate_normal(mean, covariance).logpdf(points)
    flow = model.flow(64)
    np.testing.assert_allclose(jax.jit(jax.vmap(lambda x: flow.log_prob(x)))(points), truth, atol=1e-4)
    # there and back
    back = jax.jit(jax.vmap(lambda x: flow.bijection.forward(flow.to_base(x))[0]))(points)
    np.testing.assert_allclose(back, points, atol=1e-5)
    # with random signs the change of volume is right on average
    signs = jnp.array([[1.0, 1.0], [1.0, -1.0]])
    probed = jax.jit(lambda x: model.flow(64, probes=signs).log_prob(x))(points[0])
    np.testing.assert_allclose(probed, truth[0], atol=1e-4)
    # and the same on another path, by another parametrisation

    def noise(x, log_snr):
        at, there = stage(PATHS[0], log_snr), stage(PATHS[1], log_snr)
        found = PredictsVelocity().noise(network(x, log_snr), x, at)
        return found - there.sigma * there.size * x / there.size**2

    parts = LogLinearSchedule(-20.0, 14.0), VarianceExploding(), PredictsNoise()
    found = jax.jit(lambda x: Diffusion(noise, 2, *parts).flow(64).log_prob(x))(points[0])
    np.testing.assert_allclose(found, truth[0], atol=1e-4)


def test_a_continuous_flow_is_the_exponential_of_a_matrix():
    from scipy.linalg import expm

    matrix = np.array([[0.3, -1.0], [0.6, -0.2]])
    flow = ContinuousFlow(lambda x, t: matrix @ x, jnp.array(0.0), jnp.array(2.0), 64)
    x = jnp.array([0.5, -1.5])
    y, log_det = jax.jit(lambda x: flow.forward(x))(x)
    np.testing.assert_allclose(y, expm(2 * matrix) @ x, atol=1e-6)
    np.testing.assert_allclose(log_det, 2 * np.trace(matrix), rtol=1e-12)
    np.testing.assert_allclose(flow.moved(x), y, rtol=1e-12)
    again, back = jax.jit(lambda y: flow.inverse(y))(y)
    np.testing.assert_allclose(again, x, atol=1e-6)
    np.testing.assert_allclose(back, -log_det, rtol=1e-12)


def test_particles_draw_what_is_missing_given_the_rest():
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])

    def network(x, log_snr):
        at = stage(PATHS[0], log_snr)
        total = at.alpha**2 * covariance + at.sigma**2 * jnp.eye(2)
        noise = at.sigma * jnp.linalg.solve(total, x)
        return beyond(PredictsVelocity(), (x - at.sigma * noise) / at.alpha, noise, x, at)

    model, x = Diffusion(network, 2, LogLinearSchedule(-8.0, 8.0)), jnp.array([1.5, jnp.nan])

    @jax.jit
    @jax.vmap
    def draw(key):
        propose, choose = jax.random.split(key)
        filled, logs = model.completions(x, particles=16, steps=64, key=propose)
        return filled[jax.random.categorical(choose, logs)]

    draws = np.asarray(draw(jax.random.split(KEY, 1500)))
    assert (draws[:, 0] == 1.5).all()
    # N(0.8 · 1.5, 1 − 0.8²), up to the steps
    assert abs(draws[:, 1].mean() - 1.2) < 4 * 0.6 / np.sqrt(1500) + 0.03
    assert abs(draws[:, 1].std() / 0.6 - 1) < 0.1


# -- networks and training --------------------------------------------------------------------------


def test_networks_are_silent_at_first_and_see_far_entries_as_near_ones():
    x = np.array([0.3, -1.0, 2.0])

    @eqx.filter_jit
    def built(recipe):
        network = recipe.build(3, dtype=float, key=KEY)
        return network, network(x, jnp.array(1.0))

    network, said = built(ResidualDenoiser(8, 2, waves=2))
    assert isinstance(network, ResidualNetwork)
    assert not np.any(said)
    rng = np.random.default_rng(0)
    loud = jax.tree.map(lambda a: 0.5 * rng.normal(size=a.shape), network)
    rows = np.array([[1e300, -1.0, 2.0], [25.0, -1.0, 2.0], [0.3, -1.0, 2.0], [0.3, -1.0, 2.0]])
    far, same, near, later = jax.jit(jax.vmap(loud))(rows, np.array([1.0, 1.0, 1.0, 2.0]))
    assert np.isfinite(far).all()
    np.testing.assert_array_equal(far, same)
    assert np.abs(far - near).max() > 1e-3
    assert np.abs(later - near).max() > 1e-3


def test_the_objective_of_training_is_the_mean_error():
    # of N(0, 2) seen by a network that takes it for N(0, 1): ½ ∫ E‖ε − ε̂‖² dλ by quadrature
    model = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 1, LogLinearSchedule(-4.0, 5.0))
    rows = stats.norm.ppf((np.arange(512) + 0.5) / 512)[:, None] * np.sqrt(2)
    log_snr = np.linspace(-4, 5, 20001)
    a2, s2 = 1 / (1 + np.exp(-log_snr)), 1 / (1 + np.exp(log_snr))
    # ε̂ = σ x_t, so that ε − ε̂ = α² ε − α σ x
    truth = 0.5 * 9 * np.mean(a2**2 + a2 * s2 * np.mean(rows**2))
    batch = Batch(jnp.asarray(rows), jnp.full(512, 1 / 512))
    found = jax.jit(jax.vmap(lambda k: Denoising(draws=4)(model, batch, k)))(jax.random.split(KEY, 64))
    assert abs(found.mean() - truth) < 4 * found.std() / 8
    # times are spread evenly, which leaves little noise
    assert found.std() / truth < 0.05


SMALL = {"network": ResidualDenoiser(8, 1), "steps": 16, "random_state": 0}


@pytest.mark.slow
def test_correlated_columns_are_learned_with_and_without_missing_entries():
    rng = np.random.default_rng(1)
    law = stats.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]])
    X, T = law.rvs(120, random_state=rng), law.rvs(128, random_state=rng)
    options = {**SMALL, "learning_rate": 0.01, "max_iter": 200}
    model = fe.DiffusionModel(**options).fit(X)
    truth = law.logpdf(T).mean()
    assert truth - 0.2 < model.score(T) < truth + 0.05
    # the bound of the chain is below the evidence of the flow, where the network is nearly right
    found, bound = model.evidence(T), model.bound(T)
    assert (found.kind, bound.kind) == (fe.Kind.ESTIMATE, fe.Kind.LOWER)
    assert found.stderr.mean() < 0.05
    assert bound.mean < found.mean + 0.05
    assert bound.mean > found.mean - 0.3
    # the mean of what is missing is that of the regression
    holes = T[:50].copy()
    holes[:, 1] = np.nan
    gap = model.impute(holes)[:, 1] - 0.9 * holes[:, 0]
    assert np.sqrt(np.mean(gap**2)) < 0.3
    with pytest.raises(ValueError, match=r"DiffusionModel.bound takes rows without missing entries"):
        model.bound(holes)
    # random signs for the change of volume
    probed = fe.DiffusionModel(**options, probes=8)
    vars(probed).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    again = probed.evidence(T)
    assert np.mean(np.abs(again.nats - found.nats) < 4 * again.stderr + 1e-6) > 0.95
    assert again.stderr.mean() > 10 * found.stderr.mean()
    holes = X.copy()
    holes[:30, 0], holes[30:60, 1] = np.nan, np.nan
    assert fe.DiffusionModel(**options).fit(holes).score(T) > truth - 0.3


def test_other_parts_can_be_put_together():
    model = fe.DiffusionModel(
        CosineSchedule(-8.0, 8.0),
        PredictsNoise(),
        path=VarianceExploding(),
        weight=simple_weight,
        sampler=Ancestral(),
        max_iter=20,
        **SMALL,
    ).fit(ROWS)
    assert np.isfinite(model.score(ROWS))
    assert isinstance(model.diffusion_.path, VarianceExploding)
    draws = model.sample(400, random_state=0)
    # it began with Gaussian columns, of which these are
    assert np.abs(draws.mean(axis=0)).max() < 0.5
    assert np.abs(draws.std(axis=0) - 1).max() < 0.5
    row = model.scaling_.apply(ROWS[:1])[0]
    nats, error = jax.jit(lambda x: flow_log_prob(model.diffusion_.flow(16), x))(row)
    found = model.evidence(ROWS[:1])
    np.testing.assert_allclose(found.nats, nats - np.log(model.scaling_.scale).sum(), rtol=1e-9)
    np.testing.assert_allclose(found.stderr, error, rtol=1e-6)
    for name, value in {"schedule": 3, "path": "ve", "network": 1, "sampler": 2}.items():
        with pytest.raises(
            ValueError, match=f"'{name}' parameter of DiffusionModel must be an instance of"
        ):
            fe.DiffusionModel(**{**SMALL, name: value}).fit(ROWS)
    with pytest.raises(ValueError, match=r"'weight' parameter of DiffusionModel must be likelihood_weight"):
        fe.DiffusionModel(weight=1.0, **SMALL).fit(ROWS)


def test_a_wild_step_ends_with_a_sentence_and_the_last_good_model():
    gaussian = stats.norm.logpdf(ROWS, ROWS.mean(axis=0), ROWS.std(axis=0)).sum(axis=1).mean()
    # a thousand times the usual rate: the best on held-out rows is kept
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        wild = fe.DiffusionModel(**SMALL, max_iter=20, learning_rate=2.0).fit(ROWS)
    assert wild.score(ROWS) > gaussian - 2
    learner = Gradient(Optimiser(optax.sgd, 1e6), Denoising(draws=2))
    with pytest.warns(
        ConvergenceWarning, match="DiffusionModel: training left noise harder to see through"
    ):
        broken = fe.DiffusionModel(learner=learner, max_iter=2, **SMALL).fit(ROWS)
    assert broken.score(ROWS) > gaussian - 0.1
    nowhere = Gradient(Optimiser(optax.sgd, np.inf), Denoising(draws=2))
    with pytest.warns(ConvergenceWarning, match="non-finite at iteration 2; the last good model is kept"):
        fe.DiffusionModel(learner=nowhere, max_iter=3, **SMALL).fit(ROWS)


def test_training_stops_and_goes_on_from_its_file(tmp_path):
    options = {**SMALL, "max_iter": 20}
    whole = fe.DiffusionModel(**options).fit(ROWS)
    path = str(tmp_path / "fit")
    fe.DiffusionModel(**options, checkpoint=path).fit(ROWS)
    again = fe.DiffusionModel(**options, checkpoint=path).fit(ROWS)
    np.testing.assert_array_equal(again.score_samples(ROWS), whole.score_samples(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian_ring", "two_moons"])
def test_learned_densities_are_within_a_tenth_of_a_nat_of_the_truth(name):
    train, test = (getattr(fe.datasets, name)(n, seed=seed) for n, seed in ((10000, 0), (1000, 1)))
    model = fe.DiffusionModel(network=ResidualDenoiser(64, 3, waves=3), max_iter=100, random_state=0).fit(
        train.X
    )
    gaps = test.log_density(test.X) - model.evidence(test.X).nats
    # the mean of a gap has a standard error of about 0.01
    assert gaps.mean() < 0.1 + 2 * gaps.std() / np.sqrt(len(gaps))
    # and the bound of the chain is as near
    assert test.log_density(test.X).mean() - model.bound(test.X).mean < 0.1 + 0.03
