"""Samplers and marginal likelihoods, against closed forms, enumeration and linear algebra."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats
from scipy.special import betaln, logsumexp

from freeenergy import Kind
from freeenergy.distributions import (
    AbstractDistribution,
    Beta,
    Binary,
    Categories,
    Diagonal,
    Gaussian,
    Reals,
    UnitInterval,
)
from freeenergy.inference import (
    AbstractWalk,
    AdjustedLangevin,
    Alternate,
    Bridge,
    FiniteChain,
    Importance,
    InverseTransform,
    MarkovChain,
    MetropolisHastings,
    Multinomial,
    Nature,
    ParallelTempering,
    ParetoSmoothed,
    Rejection,
    Residual,
    RowsEnergy,
    SequentialMonteCarlo,
    SimulatedAnnealing,
    SliceSampler,
    StochasticLangevin,
    Stratified,
    Systematic,
    UnadjustedLangevin,
    bridge_evidence,
    gibbs_sweep,
    importance_mean,
    infer,
    linear_schedule,
    pareto_smooth,
    transition_matrix,
)
from freeenergy.inference._methods import EvenStates
from freeenergy.inference._metropolis import ChangedEntry, NormalSteps
from freeenergy.inference._tempering import Exchange

KEY = jax.random.key(0)
# standard errors that a Monte Carlo number may be off
FAR = 4.5

# a coin: seven heads of ten with a Beta(2, 3) prior
COIN = stats.beta(9, 6)
COIN_SPACE = UnitInterval((1,))
COIN_EVIDENCE = betaln(9, 6) - betaln(2, 3)
FLAT = Beta(jnp.ones(1), jnp.ones(1))


def coin(z):
    return -jnp.sum(8 * jnp.log(z) + 5 * jnp.log1p(-z)) + betaln(2, 3)


# a Gaussian of two numbers
PRECISION = np.array([[2.0, 0.8], [0.8, 1.0]])
CENTRE = np.array([0.5, -1.0])
NORMAL_EVIDENCE = np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(PRECISION)) - 1.25


def normal(z):
    return 0.5 * (z - CENTRE) @ jnp.asarray(PRECISION) @ (z - CENTRE) + 1.25


# four coupled units
RNG = np.random.default_rng(3)
COUPLING, FIELD = np.triu(RNG.normal(size=(4, 4)), 1), RNG.normal(size=4) / 2
UNITS = Binary((4,))


def machine(z):
    return -z @ jnp.asarray(COUPLING) @ z - z @ jnp.asarray(FIELD)


@functools.cache
def machine_by_hand():
    states = np.array(list(itertools.product([0, 1], repeat=4)), float)
    logs = np.array([s @ COUPLING @ s + s @ FIELD for s in states])
    return states, np.exp(logs - logsumexp(logs)), logsumexp(logs)


# what kernels leave unchanged ---------------------------------------------------------------------

WALKS = {
    "metropolis": MetropolisHastings(scale=1.0),
    "lopsided": MetropolisHastings(lambda z: Beta(1 + 4 * z, 2 - z)),
    "slice": SliceSampler(0.7),
    "adjusted": AdjustedLangevin(1.0),
}


@pytest.mark.parametrize("name", WALKS)
def test_a_step_from_draws_of_the_target_gives_draws_of_the_target(name):
    draws = COIN.rvs(4000, random_state=1)[:, None]
    kernel = WALKS[name](coin, COIN_SPACE)
    assert isinstance(kernel, AbstractWalk)

    @jax.jit
    def moved(z, keys):
        return jax.vmap(lambda z, k: kernel(kernel(z, key=k), key=jax.random.fold_in(k, 1)))(z, keys)

    there = np.asarray(moved(jnp.asarray(draws), jax.random.split(KEY, 4000)))
    assert (there != draws).mean() > 0.3
    assert stats.kstest(there[:, 0], COIN.cdf).pvalue > 1e-3
    # and it forgets: the next value hangs on the last one less than wholly
    assert np.corrcoef(there[:, 0], draws[:, 0])[0, 1] < 0.9


def close(found, mean, variance, most=0.1):
    """Whether mean and variance are those of the posterior, within the error that it states."""
    value, error = found.expect(lambda z: jnp.stack([z, (z - jnp.asarray(mean)) ** 2]))
    gap = np.abs(np.asarray(value) - np.stack([mean, variance]))
    assert (gap < FAR * np.asarray(error) + 1e-12).all(), (gap, error)
    assert (np.asarray(error)[0] < most * np.sqrt(variance)).all()


# particles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("resampler", [Systematic(), Stratified(), Residual(), Multinomial()], ids=repr)
def test_the_mean_of_the_estimates_of_z_is_z(resampler):
    """With few particles on a fixed schedule; their spread is as large as they say, or larger."""
    log_z = machine_by_hand()[2]
    method = SequentialMonteCarlo(
        particles=32, groups=4, moves=1, resampler=resampler, schedule=linear_schedule(3)
    )

    @jax.jit
    def estimates(keys):
        return jax.lax.map(lambda k: method(machine, UNITS, key=k).log_evidence, keys, batch_size=100)

    found = estimates(jax.random.split(KEY, 800))
    ratio = np.exp(np.asarray(found.nats) - log_z)
    assert abs(ratio.mean() - 1) < FAR * ratio.std() / np.sqrt(len(ratio))
    assert found.kind is Kind.LOWER
    assert 0.7 < ratio.std() / np.sqrt(np.mean(np.asarray(found.stderr) ** 2)) < 1.3


@pytest.mark.slow
def test_particles_state_their_own_error():
    method = SequentialMonteCarlo(particles=1024, groups=16, moves=3)

    @jax.jit
    def runs(keys):
        def one(key):
            found = method(normal, Reals((2,)), key=key)
            mean, error = found.expect(lambda z: z[0])
            return (mean - CENTRE[0]) / error, (
                found.log_evidence.nats - NORMAL_EVIDENCE
            ) / found.log_evidence.stderr

        return jax.lax.map(one, keys, batch_size=50)

    for scores in runs(jax.random.split(KEY, 150)):
        assert 0.75 < np.std(scores) < 1.4
        assert abs(np.mean(scores)) < 0.5


def test_particles_find_both_modes_and_what_is_impossible():
    """Two humps far apart of weights 1 to 3, cut off at 8."""

    def humps(z):
        logs = jnp.logaddexp(jnp.log(0.25) - (z + 4) ** 2 * 2, jnp.log(0.75) - (z - 4) ** 2 * 2)
        return jnp.where(z > 8, jnp.inf, -logs)

    base = _Wide()
    found = infer(humps, Reals(()), SequentialMonteCarlo(base=base), key=KEY)
    share, error = found.expect(lambda z: (z > 0).astype(float))
    assert abs(share - 0.75) < FAR * error
    assert abs(found.log_evidence.nats - 0.5 * np.log(np.pi / 2)) < FAR * found.log_evidence.stderr
    with pytest.raises(ValueError, match="must be finite where inference by SequentialMonteCarlo begins"):
        infer(lambda z: z + jnp.inf, Reals(()), SequentialMonteCarlo(base=base), key=KEY)
    with pytest.raises(ValueError, match=r"a multiple of two or more 'groups'\. Got 10 in 3 instead"):
        SequentialMonteCarlo(particles=10, groups=3)
    with pytest.raises(ValueError, match=r"must be in the range \(0, 1\)\. Got 1\.5 instead"):
        SequentialMonteCarlo(effective=1.5)
    with pytest.raises(ValueError, match=r"must rise from 0 to 1\. Got \[0\.  0\.5\] instead"):
        SequentialMonteCarlo(schedule=jnp.array([0.0, 0.5]))
    with pytest.raises(ValueError, match=r"Got to the inverse temperature \S+ in 1 steps"):
        infer(lambda z: 1e4 * (z - 3) ** 2, Reals(()), SequentialMonteCarlo(base=base, most=1), key=KEY)


class _Wide(AbstractDistribution):
    """N(0, 36) of one number."""

    def log_prob(self, x):
        return -(x**2) / 72 - np.log(6) - 0.5 * np.log(2 * np.pi)

    def sample(self, *, key):
        return 6 * jax.random.normal(key, ())


# tempering ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [False, True])
def test_exchanges_leave_the_law_of_all_replicas_unchanged(odd):
    energies = np.array([0.3, -1.2, 2.0])
    betas = np.array([0.0, 0.3, 1.0])
    space = (Categories(3),) * 3
    ends = (lambda z: 0.2 * z.astype(float)), (lambda z: jnp.asarray(energies)[z])
    kernel = Exchange(*ends, jnp.asarray(betas), odd)
    matrix = transition_matrix(kernel, space)
    law = np.ones(27)
    for i, state in enumerate(itertools.product(range(3), repeat=3)):
        pairs = zip(betas, state, strict=True)
        law[i] = np.exp(-sum((1 - b) * 0.2 * z + b * energies[z] for b, z in pairs))
    law /= law.sum()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-15)
    assert FiniteChain(matrix).imbalance(law) < 1e-15
    assert np.abs(matrix - np.eye(27)).max() > 0.1
    # what is drawn has these probabilities
    z = tuple(jnp.array(k) for k in (1, 0, 2))
    drawn = jax.jit(jax.vmap(lambda k: jnp.stack(kernel(z, key=k)) @ jnp.array([9, 3, 1])))
    counts = np.bincount(drawn(jax.random.split(KEY, 2000)), minlength=27)
    row = matrix[9 + 2]
    assert (np.abs(counts / 2000 - row) < FAR * np.sqrt(row * (1 - row) / 2000) + 1e-12).all()


def test_replicas_cross_between_modes():
    def humps(z):
        return -jnp.logaddexp(jnp.log(0.25) - (z + 4) ** 2 * 8, jnp.log(0.75) - (z - 4) ** 2 * 8)

    method = ParallelTempering(MetropolisHastings(scale=1.0), _Wide(), replicas=6, steps=2000)
    found = infer(humps, Reals(()), method, key=KEY)
    assert 0.3 < found.diagnostics["exchange"] <= 1
    share, error = found.expect(lambda z: (z > 0).astype(float))
    assert abs(share - 0.75) < FAR * error
    assert error < 0.1
    assert abs(found.log_evidence.nats - 0.5 * np.log(np.pi / 8)) < FAR * found.log_evidence.stderr
    with pytest.raises(ValueError, match=r"must be an int in the range \[2, inf\)\. Got 1 instead"):
        ParallelTempering(replicas=1)


def test_slow_cooling_finds_the_deeper_well():
    """Exactly, by the product of the transition matrices over nine places with two wells."""
    height = np.array([2.0, 1.0, 1.5, 3.0, 3.5, 3.0, 1.0, 0.0, 2.0])

    class Step(AbstractDistribution):
        """One place to the left or right."""

        z: jax.Array

        def log_prob(self, x):
            return jnp.where(jnp.abs(x - self.z) == 1, jnp.log(0.5), -jnp.inf)

        def sample(self, *, key):
            return self.z + jnp.where(jax.random.bernoulli(key), 1, -1)

    space = Categories(9)

    def deep(steps):
        law = np.zeros(9)
        law[1] = 1  # in the other well
        for temperature in np.geomspace(3.0, 0.05, steps):
            law = law @ np.asarray(matrix_at(temperature))
        return law[7]

    @jax.jit
    def matrix_at(temperature):
        kernel = MetropolisHastings(Step)(lambda z: jnp.asarray(height)[z] / temperature, space)
        return kernel.transition(space)

    found = [deep(steps) for steps in (4, 40, 400)]
    assert found[0] < 0.05 < found[1] < found[2]
    assert found[2] > 0.5
    # a method: the best place that any chain visited
    method = SimulatedAnnealing(jnp.geomspace(3.0, 0.05, 50))
    best = infer(lambda z: jnp.asarray(height)[z], space, method, key=KEY)
    assert int(best.point) == 7
    assert best.nature is Nature.POINT
    assert float(best.energy) == 0
    assert best.diagnostics["share_of_best"] > 0.5


# Langevin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0.5, 1.5])
def test_the_bias_of_unadjusted_langevin(step):
    """An affine step v′ = a v + √ε ξ has the variance ε/(1 − a²) = σ²/(1 − ε/(4σ²))."""
    variance = 1.0 if step == 0.5 else 2.0
    kernel = UnadjustedLangevin(step)(lambda z: z**2 / (2 * variance), Reals(()))

    @jax.jit
    def moved(z, keys):
        return jax.vmap(lambda k: kernel(z, key=k))(keys)

    keys = jax.random.split(KEY, 20_000)
    at_zero, at_one = (np.asarray(moved(jnp.array(z), keys)) for z in (0.0, 1.0))
    slope = at_one - at_zero
    np.testing.assert_allclose(slope, 1 - step / (2 * variance), rtol=1e-12)
    assert abs(at_zero.var() / step - 1) < FAR * np.sqrt(2 / 20_000)
    exact = step / (1 - slope[0] ** 2)
    np.testing.assert_allclose(exact, variance / (1 - step / (4 * variance)), rtol=1e-12)
    if step == 0.5:
        assert exact == pytest.approx(1.142857, abs=1e-6)
        found = infer(
            lambda z: z**2 / 2, Reals(()), MarkovChain(UnadjustedLangevin(step), steps=4000), key=KEY
        )
        square, error = found.expect(lambda z: z**2)
        assert abs(square - exact) < FAR * error
        # and the correction takes it away
        right = infer(
            lambda z: z**2 / 2,
            Reals(()),
            MarkovChain(AdjustedLangevin(step, wanted=None), steps=4000),
            key=KEY,
        )
        square, error = right.expect(lambda z: z**2)
        assert abs(square - 1) < FAR * error < 0.142


ROWS = np.array([0.1, 1.3, -0.7, 2.2, 0.4, -1.5, 0.9, 0.0])


def mean_of_rows():
    """The mean of eight numbers with unit variance: precision 8."""
    return RowsEnergy(lambda z, x: (z - x) ** 2 / 2, jnp.asarray(ROWS))


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("friction", [None, 0.3])
def test_the_law_of_stochastic_gradients(friction, correct):
    """A linear recursion with noise: its covariance solves a discrete Lyapunov equation."""
    n, batch, step = len(ROWS), 2, 0.05
    method = StochasticLangevin(
        step, batch, friction=friction, correct=correct, steps=6000, burn_in=200, chains=8
    )
    found = infer(mean_of_rows(), Reals(()), method, key=KEY)
    gradient_noise = n**2 / batch * ROWS.var()
    if friction is None:
        matrix = np.array([[1 - step * n / 2]])
        noise = np.array([[step + step**2 / 4 * gradient_noise]])
        taken_out = step**2 / 4 * gradient_noise
    else:
        matrix = np.array([[1 - step * n, 1 - friction], [-step * n, 1 - friction]])
        noise = (2 * friction * step + step**2 * gradient_noise) * np.ones((2, 2))
        taken_out = step**2 * gradient_noise
    if correct:
        # what two rows show of it, and it is not taken out where there is more of it than noise
        pairs = (ROWS[:, None] - ROWS[None]) ** 2 / 2 * n**2 / batch
        scale = step**2 / 4 if friction is None else step**2
        wanted = step if friction is None else 2 * friction * step
        noise = noise - np.minimum(scale * pairs, wanted).mean() * np.ones_like(noise)
        assert noise[0, 0] < wanted + taken_out
    exact = linalg.solve_discrete_lyapunov(matrix, noise)[0, 0]
    mean, error = found.expect(lambda z: z)
    assert abs(mean - ROWS.mean()) < FAR * error
    square, error = found.expect(lambda z: (z - ROWS.mean()) ** 2)
    assert abs(square - exact) < FAR * error
    if not correct:
        # too wide by far, which the correction makes good in part
        assert exact > 1.1 / n


def test_descent_at_a_constant_rate_is_an_ensemble():
    """At T = 0 the iterates have the variance of the noise of the batches; averaging them helps."""
    n, batch, rate = len(ROWS), 2, 0.02
    method = StochasticLangevin(2 * rate, batch, temperature=0.0, steps=6000, burn_in=200)
    found = infer(mean_of_rows(), Reals(()), method, key=KEY)
    slope = 1 - rate * n
    exact = rate**2 * n**2 / batch * ROWS.var() / (1 - slope**2)
    square, error = found.expect(lambda z: (z - ROWS.mean()) ** 2)
    assert abs(square - exact) < FAR * error
    # the loss of the average is below the average loss
    assert (found.mean() - ROWS.mean()) ** 2 < square
    with pytest.raises(TypeError, match=r"must be a sum over rows \(RowsEnergy\)\. Got function instead"):
        infer(lambda z: z**2, Reals(()), method, key=KEY)


def test_a_sum_over_rows_and_its_batches():
    energy = RowsEnergy(
        lambda z, row: (z - row["x"]) ** 2 * row["w"],
        {"x": jnp.asarray(ROWS), "w": jnp.arange(8.0)},
        lambda z: z**2,
    )
    z = jnp.array(0.3)
    whole = ((0.3 - ROWS) ** 2 * np.arange(8)).sum() + 0.09
    np.testing.assert_allclose(energy(z), whole, rtol=1e-12)
    # the mean over all batches of one row is the whole
    each = [energy.on_batch(z, jnp.array([i])) for i in range(8)]
    np.testing.assert_allclose(np.mean(each), whole, rtol=1e-12)


# importance ---------------------------------------------------------------------------------------

# k̂, the three largest smoothed log-weights and the 18th, by ArviZ 0.23.4 (`psislw`)
TAILS = {
    0.6: (0.539102313091, [-4.116776442805, -3.843002147297, -3.529165008441], -5.526076516489),
    0.8: (0.347124224710, [-4.854016447746, -4.686548254963, -4.564710598476], -5.687731972353),
    1.2: (-1.126847740663, [-5.808352970493] * 3, -6.452498808556),
}


@pytest.mark.parametrize("scale", TAILS)
def test_smoothed_weights_are_those_of_arviz(scale):
    z = scale * stats.norm.ppf((np.arange(400) + 0.5) / 400)
    logs = stats.norm.logpdf(z) - stats.norm(0, scale).logpdf(z) + 1e-3 * np.sin(np.arange(400))
    found = eqx.filter_jit(pareto_smooth)(jnp.asarray(logs))
    assert isinstance(found, ParetoSmoothed)
    k, largest, one = TAILS[scale]
    np.testing.assert_allclose(found.pareto_k, k, rtol=1e-9)
    np.testing.assert_allclose(np.sort(found.log_weights)[-3:], largest, rtol=1e-9)
    np.testing.assert_allclose(found.log_weights[17], one, rtol=1e-9)


def test_the_tail_of_importance_weights():
    narrow, wide = (Gaussian(jnp.zeros(2), Diagonal(jnp.full(2, v))) for v in (0.2, 4.0))
    good = infer(normal, Reals((2,)), Importance(wide), key=KEY)
    bad = infer(normal, Reals((2,)), Importance(narrow), key=KEY)
    assert good.diagnostics["pareto_k"] < 0.5
    assert bad.diagnostics["pareto_k"] > 0.7
    # smoothing leaves the evidence as it was, and the largest weight is never larger
    plain = infer(normal, Reals((2,)), Importance(narrow, smooth=False), key=KEY)
    assert bad.log_evidence.nats == plain.log_evidence.nats
    assert jnp.max(bad.weighted_values()[1]) <= jnp.max(plain.weighted_values()[1]) + 1e-12
    # equal weights have no tail, and few weights none that could be seen
    equal = eqx.filter_jit(pareto_smooth)(jnp.full(400, 3.0))
    assert float(equal.pareto_k) == -np.inf
    np.testing.assert_allclose(equal.log_weights, -np.log(400))
    assert np.isnan(pareto_smooth(jnp.arange(10.0)).pareto_k)


def test_a_rare_event_by_plain_importance():
    """P(x > 3) of a standard normal by draws of N(4, 1)."""
    x = np.random.default_rng(0).normal(4, 1, 4000)
    logs = stats.norm.logpdf(x) - stats.norm(4, 1).logpdf(x)
    mean, error = importance_mean(jnp.asarray(logs), jnp.asarray(x > 3).astype(float))
    assert abs(mean - stats.norm.sf(3)) < FAR * error < 0.001
    # one draw of the best proposal is exact:  q ∝ p f
    law = stats.truncnorm(3, np.inf)
    x = law.rvs(10, random_state=0)
    mean, error = importance_mean(jnp.asarray(stats.norm.logpdf(x) - law.logpdf(x)), jnp.ones(10))
    np.testing.assert_allclose(mean, stats.norm.sf(3), rtol=1e-9)
    assert error < 1e-12


# rejection and inversion --------------------------------------------------------------------------


class Cauchy(AbstractDistribution):
    """1 / (π (1 + x²))."""

    def log_prob(self, x):
        return -jnp.log1p(x**2) - np.log(np.pi)

    def sample(self, *, key):
        return jax.random.cauchy(key, ())


def test_rejection_with_the_smallest_bound():
    """exp(−x²/2) ≤ k q(x) with k = 2π e^{−½}: 66 % are kept, and their share times k is √(2π)."""
    bound = np.log(2 * np.pi) - 0.5
    found = infer(lambda z: z**2 / 2, Reals(()), Rejection(Cauchy(), bound), key=KEY)
    share = float(found.diagnostics["acceptance"])
    assert abs(share - 0.6577446235) < FAR * np.sqrt(0.2251 / 4096)
    evidence = found.log_evidence
    assert abs(evidence.nats - 0.5 * np.log(2 * np.pi)) < FAR * evidence.stderr
    assert evidence.kind is Kind.ESTIMATE
    assert stats.kstest(np.asarray(found.draws)[0], stats.norm.cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match="Got a draw where it is too low by 0"):
        infer(lambda z: z**2 / 2, Reals(()), Rejection(Cauchy(), bound - 0.3), key=KEY)
    with pytest.raises(ValueError, match=r"must keep 4,000 of at most 8,192 proposals\. Got \d"):
        infer(lambda z: z**2 / 2, Reals(()), Rejection(Cauchy(), bound + 5, most=8192), key=KEY)


def test_inversion_of_a_distribution_function():
    found = infer(lambda z: (z - 3) ** 2 / 0.02, Reals(()), InverseTransform(), key=KEY)
    assert abs(found.log_evidence.nats - 0.5 * np.log(2 * np.pi * 0.01)) < 1e-9
    assert found.log_evidence.kind is Kind.ESTIMATE
    assert stats.kstest(np.asarray(found.draws)[0], stats.norm(3, 0.1).cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match=r"with one free coordinate\. Got one of 2 instead"):
        infer(normal, Reals((2,)), InverseTransform(), key=KEY)
    with pytest.raises(ValueError, match=r"next to nothing at the ends of 'reach'"):
        infer(lambda z: (z / 1000) ** 2 / 2, Reals(()), InverseTransform(), key=KEY)
    with pytest.raises(ValueError, match="The posterior is improper"):
        infer(lambda z: 0.01 * z, Reals(()), InverseTransform(), key=KEY)


# parts, and proposals -----------------------------------------------------------------------------


def test_labels_and_reals_in_turn():
    """A label with p = (0.3, 0.7) and a place N(2 c, 1) given it: the place is a mixture."""

    def energy(z):
        label, place = z
        return -jnp.log(jnp.array([0.3, 0.7]))[label] + (place - 2.0 * label.astype(float)) ** 2 / 2

    space = (Categories(2), Reals(()))
    method = MarkovChain(Alternate((gibbs_sweep, SliceSampler())), steps=3000, burn_in=100)
    found = infer(energy, space, method, key=KEY)
    share, error = found.expect(lambda z: (z[0] == 1).astype(float))
    assert abs(share - 0.7) < FAR * error
    below, error = found.expect(lambda z: (z[1] < 1).astype(float))
    exact = 0.3 * stats.norm.cdf(1) + 0.7 * stats.norm.cdf(-1)
    assert abs(below - exact) < FAR * error < 0.1
    with pytest.raises(ValueError, match=r"every slot of the unknown, \[0, 1\]\. Got \[0\] instead"):
        Alternate((gibbs_sweep,))(energy, space)


def test_proposals_are_distributions():
    space = {"bits": Binary((2,)), "label": Categories(3)}
    z = {"bits": jnp.array([1.0, 0.0]), "label": jnp.array(2)}
    step = ChangedEntry(z, space)
    draws = jax.jit(jax.vmap(lambda k: step.sample(key=k)))(jax.random.split(KEY, 3000))
    logs = jax.jit(jax.vmap(step.log_prob))(draws)
    rows = np.column_stack([draws["bits"], draws["label"]])
    found, counts = np.unique(rows, axis=0, return_counts=True)
    # two flips, and two other labels: 1/3, 1/3, 1/6, 1/6
    assert len(found) == 4
    first = [np.flatnonzero((rows == row).all(axis=1))[0] for row in found]
    expected = np.exp(np.asarray(logs)[first])
    np.testing.assert_allclose(np.sort(expected), [1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert stats.chisquare(counts, 3000 * expected).pvalue > 1e-4
    # normal steps in free coordinates, with their density in those of the unknown
    steps = NormalSteps(COIN_SPACE, 0.5)(jnp.array([0.3]))
    grid = (np.arange(4000) + 0.5) / 4000
    mass = np.exp(jax.vmap(steps.log_prob)(jnp.asarray(grid)[:, None])).mean()
    np.testing.assert_allclose(mass, 1, rtol=1e-5)
    even = EvenStates(space)
    np.testing.assert_allclose(np.exp(even.log_prob(z)), 1 / 12)
    assert int(even.sample(key=KEY)["label"]) < 3


def test_bridges():
    rng = np.random.default_rng(0)
    # from N(0.3, 1.2²) to exp(−x²/2), with dependent draws of the latter
    x = np.zeros((4, 2000))
    for t in range(1, 2000):
        x[:, t] = 0.6 * x[:, t - 1] + 0.8 * rng.normal(size=4)
    g = stats.norm(0.3, 1.2)
    y = g.rvs(8000, random_state=1)
    logs = [-(v**2) / 2 - g.logpdf(v) for v in (x, y)]
    found = eqx.filter_jit(bridge_evidence)(*(jnp.asarray(v) for v in logs))
    assert abs(found.nats - 0.5 * np.log(2 * np.pi)) < FAR * found.stderr < 0.05
    weighted = Bridge(Importance(Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))))
    with pytest.raises(TypeError, match=r"Got Importance, which gives weighted samples, instead"):
        infer(normal, Reals((2,)), weighted, key=KEY)


class Descent(AbstractDistribution):
    """A chain D → C → B → A of bits, drawn parents first."""

    def _tables(self):
        tables = [[[0.9, 0.2], [0.1, 0.8]], [[0.6, 0.25], [0.4, 0.75]], [[0.7, 0.1], [0.3, 0.9]]]
        return jnp.array([0.3, 0.7]), [jnp.array(t) for t in tables]

    def log_prob(self, x):
        first, tables = self._tables()
        logs = [jnp.log(t)[x[i + 1], x[i]] for i, t in enumerate(tables)]
        return jnp.log(first)[x[0]] + sum(logs)

    def sample(self, *, key):
        first, tables = self._tables()
        drawn = [jax.random.categorical(key, jnp.log(first))]
        for i, t in enumerate(tables):
            drawn.append(jax.random.categorical(jax.random.fold_in(key, i), jnp.log(t)[:, drawn[-1]]))
        return jnp.stack(drawn)


def test_what_agrees_with_the_evidence_is_kept():
    """Draws of all variables, of which those with A = 1 stay: 66 % of them."""

    def energy(z):
        return jnp.where(z[3] == 1, -Descent().log_prob(z), jnp.inf)

    found = infer(energy, Categories(2, (4,)), Rejection(Descent(), 0.0), key=KEY)
    assert abs(found.log_evidence.nats - np.log(0.6639)) < FAR * found.log_evidence.stderr
    first, error = found.expect(lambda z: (z[:3] == 0).astype(float))
    exact = np.array([0.253502033, 0.333483958, 0.177812924])
    assert (np.abs(first - exact) < FAR * error).all()


def test_an_area_by_the_share_of_points_in_it():
    def quarter(z):
        return jnp.where(jnp.sum(z**2) < 1, 0.0, jnp.inf)

    square = Beta(jnp.ones(2), jnp.ones(2))
    found = infer(quarter, UnitInterval((2,)), Rejection(square, 0.0, 10_000), key=KEY)
    assert abs(found.log_evidence.nats - np.log(np.pi / 4)) < FAR * found.log_evidence.stderr
    # the error falls with the root of the number of points
    share = np.pi / 4
    tried = int(found.diagnostics["kept"]) / float(found.diagnostics["acceptance"])
    np.testing.assert_allclose(found.log_evidence.stderr, np.sqrt((1 - share) / share / tried), rtol=0.05)


def test_chains_over_the_parameters_of_a_regression():
    """A tempered posterior  exp(−β Σ loss) p(θ)  is Gaussian, with the moments of ridge regression."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, 2))
    y = x @ [1.0, -0.5] + 0.3 * rng.normal(size=12)
    beta, prior = 3.0, 0.7

    def energy(w):
        return beta * jnp.sum((jnp.asarray(y) - jnp.asarray(x) @ w) ** 2) / 2 + prior * jnp.sum(w**2) / 2

    covariance = np.linalg.inv(beta * x.T @ x + prior * np.eye(2))
    for kernel in (AdjustedLangevin(0.1), MetropolisHastings(scale=0.2)):
        found = infer(energy, Reals((2,)), MarkovChain(kernel, steps=4000), key=KEY)
        close(found, covariance @ (beta * x.T @ y), np.diagonal(covariance), most=0.15)


def test_noisy_descent_is_langevin_dynamics_at_a_temperature():
    """w′ = w − η ∇ℓ + (η/√b) ξ has ε = η²/b and the energy (2b/η) ℓ; its law is a little too wide."""
    rate, batch, curve = 0.1, 4, 2.0
    kernel = UnadjustedLangevin(rate**2 / batch)(lambda w: 2 * batch / rate * curve * w**2 / 2, Reals(()))
    moved = jax.jit(jax.vmap(lambda w, k: kernel(w, key=k), in_axes=(None, 0)))
    keys = jax.random.split(KEY, 20_000)
    there = np.asarray(moved(jnp.array(1.0), keys))
    noise = rate / np.sqrt(batch)
    assert abs(there.mean() - (1 - rate * curve)) < FAR * noise / np.sqrt(20_000)
    assert abs(there.std() / noise - 1) < FAR / np.sqrt(40_000)
    slope = np.mean(there - np.asarray(moved(jnp.array(0.0), keys)))
    law = noise**2 / (1 - slope**2)
    assert law == pytest.approx(0.0069444, abs=1e-7)
    assert rate / (2 * batch) / curve == pytest.approx(0.00625)
