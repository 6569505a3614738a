"""One posterior by every method, against closed forms, brute force and quadrature."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp

from freeenergy import Kind, inference
from freeenergy._core import parameter_space
from freeenergy.bijections import ShiftScale
from freeenergy.distributions import (
    Bernoulli,
    Beta,
    Binary,
    Categories,
    Diagonal,
    Dirichlet,
    Full,
    Gaussian,
    Given,
    Poisson,
    Positive,
    Reals,
    Simplex,
    UnitInterval,
)
from freeenergy.inference import (
    NUTS,
    AbstractMethod,
    AdjustedLangevin,
    Amortised,
    Anneal,
    ArgMin,
    Bridge,
    DistributionPosterior,
    Enumerate,
    Exact,
    Exhaustive,
    Finite,
    FinitePosterior,
    FlowVariational,
    FreeTarget,
    GaussianVariational,
    HamiltonianMonteCarlo,
    Importance,
    InverseTransform,
    Laplace,
    LocalGaussian,
    LogEvidence,
    MarkovChain,
    MeanField,
    MetropolisHastings,
    Nature,
    ParallelTempering,
    Pathfinder,
    Point,
    PointPosterior,
    Pushforward,
    QuasiNewton,
    RandomWalk,
    Recognise,
    Rejection,
    SequentialMonteCarlo,
    SliceSampler,
    block_gibbs,
    chain_effective_size,
    free_energy,
    free_vector,
    gibbs_scan,
    gibbs_sweep,
    infer,
    potential_scale_reduction,
    random_walk,
)
from freeenergy.inference._diagnostics import chain_mean
from freeenergy.inference._recognition import weighted_draws
from freeenergy.models import (
    Clusters,
    FlowWithMissing,
    Harmonium,
    LaplaceSource,
    LatentDirichletAllocation,
    LinearGaussian,
    Mixture,
    SoftmaxModel,
    SparseCoding,
    Units,
    coupling_flow,
    mlp_vae,
)

KEY = jax.random.key(0)
# standard errors that a Monte Carlo number may be off
FAR = 4.5


class Problem(eqx.Module):
    """An energy over a space with its posterior in closed form."""

    energy: object
    space: object
    exact: object
    mean: np.ndarray
    variance: np.ndarray
    log_evidence: float
    proposal: object
    mode: np.ndarray


def coin():
    """Seven heads of ten, with a Beta(2, 3) prior."""
    a, b = 2 + 7, 3 + 3

    def energy(z):
        return -jnp.sum((a - 1) * jnp.log(z) + (b - 1) * jnp.log1p(-z)) + betaln(2, 3)

    law = stats.beta(a, b)
    exact = Beta(jnp.array([a * 1.0]), jnp.array([b * 1.0]))
    flat = Beta(jnp.ones(1), jnp.ones(1))
    log_evidence = betaln(a, b) - betaln(2, 3)
    mode = np.array([(a - 1) / (a + b - 2)])
    return Problem(
        energy,
        UnitInterval((1,)),
        exact,
        np.array([law.mean()]),
        np.array([law.var()]),
        log_evidence,
        flat,
        mode,
    )


def shares():
    """Counts (4, 1, 2) of three categories, with a Dirichlet(1.5, 2, 1) prior."""
    prior = np.array([1.5, 2.0, 1.0])
    alpha = prior + np.array([4.0, 1.0, 2.0])

    def log_beta(a):
        return gammaln(a).sum() - gammaln(a.sum())

    def energy(z):
        return -jnp.sum((alpha - 1) * jnp.log(z)) + log_beta(prior)

    law = stats.dirichlet(alpha)
    return Problem(
        energy,
        Simplex((3,)),
        Dirichlet(jnp.asarray(alpha)),
        law.mean(),
        law.var(),
        log_beta(alpha) - log_beta(prior),
        Dirichlet(jnp.ones(3)),
        (alpha - 1) / (alpha - 1).sum(),
    )


PRECISION = np.array([[2.0, 0.8], [0.8, 1.0]])
CENTRE = np.array([0.5, -1.0])


def normal():
    """N(m, Λ⁻¹), up to a constant."""

    def energy(z):
        return 0.5 * (z - CENTRE) @ jnp.asarray(PRECISION) @ (z - CENTRE) + 1.25

    covariance = np.linalg.inv(PRECISION)
    return Problem(
        energy,
        Reals((2,)),
        Gaussian(jnp.asarray(CENTRE), Full(jnp.asarray(covariance))),
        CENTRE,
        np.diagonal(covariance),
        np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(PRECISION)) - 1.25,
        Gaussian(jnp.zeros(2), Diagonal(jnp.full(2, 4.0))),
        CENTRE,
    )


PROBLEMS = {"coin": coin(), "shares": shares(), "normal": normal()}


def _log_bound(problem):
    """log k with exp(−e) ≤ k q, at the most that a search finds."""

    @jax.jit
    def ratio(z):
        return problem.energy(z) + problem.proposal.log_prob(z)

    place = np.random.default_rng(0).normal(
        problem.mean, 3 * np.sqrt(problem.variance), (20000, len(problem.mean))
    )
    inside = place[problem.space.contains(place).all(axis=-1)]
    return float(-np.min(jax.vmap(ratio)(jnp.asarray(inside)))) + 0.01


# one posterior by every method, of which each states its own error --------------------------------

OF_NUMBERS = {
    "exact": lambda p: Recognise(Exact(lambda x: p.exact)),
    "importance": lambda p: Importance(p.proposal),
    "rejection": lambda p: Rejection(p.proposal, _log_bound(p)),
    "random walk": lambda p: RandomWalk(),
    "a walk with steps of one size": lambda p: MarkovChain(
        functools.partial(random_walk, scale=1.0), steps=2000
    ),
    "Metropolis–Hastings": lambda p: MarkovChain(MetropolisHastings(scale=1.0), steps=3000),
    "slice": lambda p: MarkovChain(SliceSampler(), burn_in=100),
    "adjusted Langevin": lambda p: MarkovChain(AdjustedLangevin(), steps=2000),
    "NUTS": lambda p: NUTS(steps=600, burn_in=200),
    "HMC": lambda p: HamiltonianMonteCarlo(steps=600, burn_in=200),
    "tempering": lambda p: ParallelTempering(replicas=3, steps=1000, burn_in=200),
    "annealing": lambda p: Anneal(functools.partial(random_walk, scale=0.8)),
    "particles": lambda p: SequentialMonteCarlo(),
    "bridge": lambda p: Bridge(MarkovChain(SliceSampler(), burn_in=100)),
}
BY_NAME = {
    **{f"{own}, {name}": (own, make) for name, make in OF_NUMBERS.items() for own in ("coin", "normal")},
    "coin, inversion": ("coin", lambda p: InverseTransform()),
    "shares, exact": ("shares", OF_NUMBERS["exact"]),
    "shares, random walk": ("shares", OF_NUMBERS["random walk"]),
    "shares, annealing": ("shares", OF_NUMBERS["annealing"]),
    # a Gaussian is among the laws that these search
    "normal, Laplace": ("normal", lambda p: Laplace()),
    "normal, variational": ("normal", lambda p: GaussianVariational()),
    "normal, path": ("normal", lambda p: Pathfinder()),
    "normal, flow": (
        "normal",
        lambda p: FlowVariational(
            coupling_flow(2, ShiftScale(), layers=2, width=4, dtype=float, key=jax.random.key(0)), steps=300
        ),
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_one_posterior_by_every_method(name):
    own, make = BY_NAME[name]
    problem = PROBLEMS[own]
    found = infer(problem.energy, problem.space, make(problem), key=KEY)
    mean, error = found.expect(lambda z: z)
    # where a search ends a little before the least
    near = 1e-2 if found.nature is Nature.VARIATIONAL else 1e-9
    spread = np.sqrt(problem.variance)
    assert (np.abs(mean - problem.mean) < FAR * error + near * spread).all()
    assert (error < 0.1 * spread).all()
    square, error = found.expect(lambda z: (z - jnp.asarray(problem.mean)) ** 2)
    assert (np.abs(square - problem.variance) < FAR * error + 2 * near * problem.variance).all()
    np.testing.assert_allclose(np.diagonal(found.covariance()), problem.variance, rtol=0.3)
    # mean() is that of expect, but in closed form where there is one
    known = problem.mean if found.nature is Nature.EXACT else mean
    np.testing.assert_allclose(found.mean(), known, rtol=1e-9)
    # the share of draws in a central interval
    low, high = found.interval(0.8)
    draws = found.sample(2000, key=jax.random.key(1))
    inside = np.mean((draws >= low[None]) & (draws <= high[None]), axis=0)
    np.testing.assert_allclose(inside, 0.8, atol=0.05)
    if "effective_sample_size" in found.diagnostics:
        assert found.diagnostics["effective_sample_size"] > 200
    evidence = found.log_evidence
    if evidence is None:
        assert found.nature is Nature.SAMPLES
        return
    assert isinstance(evidence, LogEvidence)
    assert abs(evidence.nats - problem.log_evidence) < FAR * evidence.stderr + near**2 + 1e-9
    assert evidence.stderr < 0.1
    assert (evidence.kind is Kind.EXACT) == (found.nature is Nature.EXACT)


def test_what_methods_tell_of_a_posterior_that_is_known():
    law, names = stats.beta(9, 6), ("adjusted Langevin", "rejection", "inversion")

    def asked(name):
        own, make = BY_NAME[name]
        return infer(PROBLEMS[own].energy, PROBLEMS[own].space, make(PROBLEMS[own]), key=KEY)

    tuned, kept, inverted = (asked(f"coin, {name}") for name in names)
    assert abs(tuned.diagnostics["acceptance"] - 0.574) < 0.1
    # of a density that is at most k of a flat one, one in k is kept
    assert abs(kept.diagnostics["acceptance"] - 1 / law.pdf(8 / 13)) < 0.03
    for independent in (kept, inverted):
        assert stats.kstest(np.asarray(independent.draws)[0, :, 0], law.cdf).pvalue > 1e-3
    moved = asked("normal, particles")
    assert moved.diagnostics["temperatures"] >= 2
    assert 0.1 < moved.diagnostics["acceptance"] < 0.6


def test_every_method_is_asked_for_a_posterior_that_is_known():
    """By the tables of this file, or, where it is for what they do not have, elsewhere."""
    asked = {type(make(PROBLEMS[own])) for own, make in BY_NAME.values()} | set(
        map(type, OF_UNITS.values())
    )
    elsewhere = {
        # points
        inference.ArgMin,
        inference.SimulatedAnnealing,
        # biased, by a known amount
        inference.StochasticLangevin,
        # independent factors
        inference.MeanField,
        inference.CoordinateMeanField,
        # labels of tables, counts, and numbers beside labels
        inference.Eliminate,
        inference.Rounded,
        inference.Collapsed,
    }
    public = {getattr(inference, name) for name in inference.__all__}
    methods = {m for m in public if isinstance(m, type) and issubclass(m, AbstractMethod)}
    assert {m for m in methods if not m.__name__.startswith("Abstract")} == asked | elsewhere


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_mode_and_a_variational_gaussian(name):
    problem = PROBLEMS[name]
    mode = infer(problem.energy, problem.space, ArgMin(), key=KEY)
    assert mode.diagnostics["converged"]
    np.testing.assert_allclose(mode.mean(), problem.mode, atol=1e-5)
    assert mode.nature is Nature.POINT
    assert isinstance(mode, PointPosterior)
    assert mode.log_evidence is None
    np.testing.assert_array_equal(mode.sample(2, key=KEY)[1], mode.point)
    np.testing.assert_array_equal(mode.interval(0.5)[0], mode.point)
    assert not np.any(mode.expect(lambda z: 2 * z)[1])
    near = infer(problem.energy, problem.space, MeanField(), key=KEY)
    assert isinstance(near, DistributionPosterior)
    assert (near.nature, near.log_evidence.kind) == (Nature.VARIATIONAL, Kind.LOWER)
    gap = problem.log_evidence - near.log_evidence.nats
    assert -FAR * near.log_evidence.stderr < gap < 0.35
    # independent coordinates are too narrow, but in the right place
    np.testing.assert_allclose(near.mean(), problem.mean, atol=0.15)


def test_the_gap_of_mean_field_is_the_one_of_the_algebra():
    """The nearest independent Gaussian has variances 1/Λ_kk, and KL = ½ log(Π Λ_kk / |Λ|)."""
    problem = PROBLEMS["normal"]
    found = infer(problem.energy, problem.space, MeanField(steps=600), key=KEY)
    gap = 0.5 * np.log(np.diagonal(PRECISION).prod() / np.linalg.det(PRECISION))
    error = float(found.log_evidence.stderr)
    assert abs(problem.log_evidence - gap - float(found.log_evidence.nats)) < FAR * error + 1e-3
    np.testing.assert_allclose(found.q.base.covariance.variance, 1 / np.diagonal(PRECISION), rtol=0.02)


# a Boltzmann machine of five units ------------------------------------------------------------------------

RNG = np.random.default_rng(3)
COUPLING = np.triu(RNG.normal(size=(5, 5)), 1)
FIELD = RNG.normal(size=5) / 2


def machine(z):
    return -z @ jnp.asarray(COUPLING) @ z - z @ jnp.asarray(FIELD)


@functools.cache
def machine_by_hand():
    states = np.array(list(itertools.product([0, 1], repeat=5)), float)
    logs = np.array([s @ COUPLING @ s + s @ FIELD for s in states])
    return states, np.exp(logs - logsumexp(logs)), logsumexp(logs)


def _conditional(i):
    def draw(state, *, key):
        one = machine(jnp.asarray(state).at[i].set(1.0))
        zero = machine(jnp.asarray(state).at[i].set(0.0))
        return jax.random.bernoulli(key, jax.nn.sigmoid(zero - one)).astype(float)

    return draw


def _blocks(energy, space):
    kernel = block_gibbs(*(_conditional(i) for i in range(5)))
    return lambda z, *, key: jnp.stack(kernel(tuple(z), key=key))


FAIR = Bernoulli(jnp.full(5, 0.5))
# no state has more than all that is positive
MOST = float(5 * np.log(2) + COUPLING.clip(0).sum() + FIELD.clip(0).sum())
OF_UNITS = {
    "enumerate": Enumerate(batch_size=8),
    "inversion": InverseTransform(),
    "gibbs": MarkovChain(gibbs_sweep),
    "random scan": MarkovChain(gibbs_scan, steps=3000),
    "blocks": MarkovChain(_blocks),
    "metropolis": MarkovChain(MetropolisHastings(), steps=3000),
    "importance": Importance(FAIR),
    "rejection": Rejection(
        FAIR, 0.1 + float(5 * np.log(2) + np.triu(COUPLING).clip(0).sum() + FIELD.clip(0).sum())
    ),
    "annealing": Anneal(gibbs_sweep, FAIR, chains=1000, steps=20),
    "annealing to both sides": Anneal(gibbs_scan, steps=30, settle=30),
    "tempering": ParallelTempering(gibbs_sweep, replicas=3, burn_in=100),
    "particles": SequentialMonteCarlo(gibbs_sweep, moves=2),
}


@pytest.mark.parametrize("method", OF_UNITS)
def test_a_boltzmann_machine(method):
    states, p, log_z = machine_by_hand()
    found = infer(machine, Binary((5,)), OF_UNITS[method], key=KEY)
    mean, error = found.expect(lambda z: z)
    assert (np.abs(mean - p @ states) <= FAR * error + 1e-12).all()
    pair, error = found.expect(lambda z: z[0] * z[1])
    assert np.abs(pair - p @ (states[:, 0] * states[:, 1])) <= FAR * error + 1e-12
    assert found.sample(7, key=KEY).shape == (7, 5)
    if method == "enumerate":
        np.testing.assert_allclose(found.probabilities, p, rtol=1e-12)
        np.testing.assert_allclose(found.log_evidence.nats, log_z, rtol=1e-12)
        assert (found.nature, found.log_evidence.kind) == (Nature.EXACT, Kind.EXACT)
        best = infer(machine, Binary((5,)), ArgMin(), key=KEY)
        np.testing.assert_array_equal(best.point, states[np.argmax(p)])
        drawn = np.asarray(found.sample(4000, key=KEY)).mean(axis=0)
        assert (np.abs(drawn - p @ states) < FAR * np.sqrt(0.25 / 4000)).all()
        np.testing.assert_array_equal(found.quantile(0.5), (p @ states > 0.5).astype(float))
        gap = states - p @ states
        np.testing.assert_allclose(found.covariance(), (p[:, None] * gap).T @ gap, atol=1e-12)
    elif found.log_evidence is not None:
        assert abs(found.log_evidence.nats - log_z) < FAR * found.log_evidence.stderr + 1e-9
    if method == "annealing to both sides":
        told = found.diagnostics
        assert abs(told["above"] - log_z) < FAR * told["above_stderr"]
        assert found.log_evidence.nats < told["above"] + 3 * (
            found.log_evidence.stderr + told["above_stderr"]
        )


# models -------------------------------------------------------------------------------------------


def gaussians():
    means = jnp.array([[-1.0, 0.0], [1.0, 0.5], [0.0, 2.0]])
    return Mixture(jnp.array([0.2, 0.5, 0.3]), Gaussian(means, Diagonal(jnp.ones((3, 2)))))


@eqx.filter_jit
def _log_posterior(model, x, states):
    known = model.posterior(x)
    return model.log_prob(x) if isinstance(model, Mixture) else None, jax.vmap(known.log_prob)(states)


def test_enumeration_finds_the_posteriors_that_models_know():
    x, hole = jnp.array([0.3, 0.8]), jnp.array([0.3, jnp.nan])
    units, hidden = jnp.array([[0.5, -1.0, 0.3], [1.2, 0.1, -0.7]]), jnp.array([0.1, 0.0, -0.4])
    cases = [
        (gaussians(), x),
        (gaussians(), hole),
        (Clusters(jnp.array([[0.0, 0.0], [1.0, 1.0]])), x),
        (Clusters(jnp.array([[0.0, 0.0], [1.0, 1.0]])), hole),
        (SoftmaxModel(jnp.array([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]]), jnp.zeros(3)), x),
        (Harmonium(Units(Bernoulli, jnp.zeros(2)), Units(Bernoulli, hidden), units), jnp.array([1.0, 0.0])),
    ]
    posteriors = []
    for model, event in cases:
        found = infer(lambda z, m=model, e=event: m.energy(e, z), model.latent(event), Enumerate(), key=KEY)
        log_prob, logs = _log_posterior(model, event, found.states)
        np.testing.assert_allclose(found.probabilities, np.exp(logs), rtol=1e-9)
        posteriors.append((found, log_prob, np.exp(logs)))
    # the mixture with a missing entry
    found, log_prob, expected = posteriors[1]
    np.testing.assert_allclose(found.log_evidence.nats, log_prob, rtol=1e-12)
    for question in (found.mean, found.covariance, lambda: found.quantile(0.5)):
        with pytest.raises(ValueError, match="Labels have no order"):
            question()
    share, _ = found.expect(lambda z: (z == 1).astype(float))
    np.testing.assert_allclose(share, expected[1], rtol=1e-12)


def test_an_exact_posterior_of_factors_gives_the_evidence():
    model = LinearGaussian(
        jnp.array([[1.0, 0.5], [0.2, -1.0]]), jnp.zeros(2), Diagonal(jnp.array([0.5, 1.0]))
    )
    x = jnp.array([1.0, -0.3])
    method = Recognise(model.recognition, x)
    found = infer(lambda z: model.energy(x, z), model.latent(x), method, key=KEY)
    log_prob, mean = jax.jit(lambda x: (model.log_prob(x), model.posterior(x).mean))(x)
    np.testing.assert_allclose(found.log_evidence.nats, log_prob, rtol=1e-10)
    np.testing.assert_allclose(found.mean(), mean, rtol=1e-12)


@pytest.mark.parametrize("name", ["exact", "point", "local", "amortised"])
def test_every_recognition_bounds_the_evidence(name):
    model = LinearGaussian(
        jnp.array([[1.0, 0.5], [0.2, -1.0]]), jnp.zeros(2), Diagonal(jnp.array([0.5, 1.0]))
    )
    x = jnp.array([1.0, -0.3])
    narrow = Gaussian(jnp.zeros(2), Diagonal(jnp.full(2, 0.3)))
    recognition = {
        "exact": model.recognition,
        "point": Point(jnp.zeros(2), QuasiNewton()),
        "local": LocalGaussian(2, expectation=model.recognition.expectation),
        "amortised": Amortised(lambda x: narrow, expectation=model.recognition.expectation),
    }[name]

    @eqx.filter_jit
    def look(recognition):
        q = recognition(lambda z: model.energy(x, z), x)
        return free_energy(model.energy, recognition, x, key=KEY) + model.log_prob(x), q

    bound, q = look(recognition)
    bound = float(bound)
    if name == "exact":
        assert abs(bound) < 1e-10
    elif name == "point":
        # −log p(x, z) at the mean: the entropy of a point is left out
        np.testing.assert_allclose(q.value, model.posterior(x).mean, atol=1e-6)
        np.testing.assert_allclose(bound, -float(model.posterior(x).log_prob(q.value)), rtol=1e-6)
    else:
        law = stats.multivariate_normal(q.mean, np.diag(np.asarray(q.covariance.variance)))
        draws = law.rvs(20_000, random_state=0)
        exact = model.posterior(x)
        logs = law.logpdf(draws) - stats.multivariate_normal(exact.mean, exact.covariance.matrix()).logpdf(
            draws
        )
        assert bound > 0
        assert abs(bound - logs.mean()) < FAR * logs.std() / np.sqrt(len(logs))
    found = infer(lambda z: model.energy(x, z), model.latent(x), Recognise(recognition, x), key=KEY)
    if name == "point":
        assert found.log_evidence is None
    else:
        gap = float(model.log_prob(x) - found.log_evidence.nats)
        assert abs(gap - bound) < FAR * float(found.log_evidence.stderr) + 1e-9


def test_a_trained_network_is_a_method():
    model = gaussians()
    x = jnp.array([0.3, 0.8])
    network = Amortised(lambda x: Finite(jnp.array([0.2, 0.3, 0.5])))
    found = infer(lambda z: model.energy(x, z), model.latent(x), Recognise(network, x), key=KEY)
    q = np.array([0.2, 0.3, 0.5])
    bound = float(q @ (np.asarray(model.log_joint(x)) - np.log(q)))
    assert abs(float(found.log_evidence.nats) - bound) < FAR * float(found.log_evidence.stderr)


def recognised(name):
    """Models whose hidden cause is one number, and an observation."""
    if name == "sparse coding":
        model = SparseCoding(jnp.array([[1.2], [-0.4]]), jnp.zeros(2), jnp.array(4.0), LaplaceSource(1.5))
        return model, jnp.array([1.0, jnp.nan])
    if name == "topics":
        topics = jnp.array([[6.0, 1.0, 2.0], [0.5, 4.0, 3.0]])
        model = LatentDirichletAllocation(jnp.array([0.8, 1.7]), jnp.array(0.5), topics)
        return model, (jnp.arange(3), jnp.array([4.0, 1.0, 2.0]))
    if name == "vae":
        emission = Given(Bernoulli(jnp.full(2, 0.5)))
        sizes = {"width": 4, "depth": 1, "dtype": jnp.float64}
        model = mlp_vae(2, 1, emission=emission, **sizes, key=jax.random.key(3))
        return model, jnp.array([1.0, 0.0])
    flow = coupling_flow(2, ShiftScale(), layers=2, width=4, dtype=jnp.float64, key=jax.random.key(4))
    return FlowWithMissing(flow, gaussians()), jnp.array([0.4, jnp.nan])


@eqx.filter_jit
def _recognised(model, x):
    return model.recognition(lambda z: model.energy(x, z), x)


@pytest.mark.parametrize("name", ["sparse coding", "topics", "vae", "flow"])
def test_the_latent_of_a_model_is_what_its_energy_is_over(name):
    """∫ exp(−e(x, z)) dz over the free coordinate of `latent(x)`, and by the model's own recognition."""
    model, x = recognised(name)

    def energy(z):
        return model.energy(x, z)

    target = FreeTarget(energy, model.latent(x))
    grid = np.linspace(-30, 30, 20_001)
    logs = np.asarray(jax.jit(jax.vmap(target))(grid[:, None]))
    log_z = logsumexp(-logs) + np.log(60 / 20_000)
    q = _recognised(model, x)
    found = infer(energy, model.latent(x), Importance(q), key=KEY)
    assert abs(float(found.log_evidence.nats) - log_z) < FAR * float(found.log_evidence.stderr) + 1e-6
    assert 0 < float(found.log_evidence.stderr) < 0.1
    lower = infer(energy, model.latent(x), Recognise(model.recognition, x), key=KEY).log_evidence
    assert lower.kind is Kind.LOWER
    assert float(lower.nats) < log_z + FAR * float(lower.stderr)
    if name == "topics":
        assert float(eqx.filter_jit(model.bound)(x, key=KEY)) < log_z


# parameters ---------------------------------------------------------------------------------------

COUNTS = np.array([0, 1, 1, 2, 5, 7, 3, 0, 9, 6, 1, 4], float)[:, None]


def poissons():
    return Mixture(jnp.array([0.5, 0.5]), Poisson(jnp.array([[1.0], [5.0]])))


def test_a_walk_over_the_weight_of_a_mixture():
    """p(π | rows) with a Beta(2, 2) prior and known rates, on a grid."""
    model = poissons()
    mask = eqx.tree_at(lambda m: m.weights, jax.tree.map(lambda _: False, model), True)
    rows = jnp.asarray(COUNTS)

    def energy(parts):
        whole = eqx.combine(parts, eqx.filter(model, mask, inverse=True))
        prior = jnp.sum(jnp.log(whole.weights))
        return -jnp.sum(jax.vmap(whole.log_prob)(rows)) - prior

    found = infer(energy, parameter_space(model, mask), RandomWalk(), key=KEY)
    grid = (np.arange(4000) + 0.5) / 4000
    one, two = (stats.poisson(rate).pmf(COUNTS[:, 0]) for rate in (1.0, 5.0))
    logs = np.log(grid[:, None] * one + (1 - grid[:, None]) * two).sum(axis=1) + np.log(grid * (1 - grid))
    p = np.exp(logs - logsumexp(logs))
    mean, error = found.expect(lambda parts: parts.weights[0])
    assert abs(mean - p @ grid) < FAR * error
    square, error = found.expect(lambda parts: parts.weights[0] ** 2)
    assert abs(square - p @ grid**2) < FAR * error
    # the same in free coordinates by hand, whose density has no flat direction
    free = free_vector(model, mask)
    assert free.values.shape == (1,)

    def by_hand(v):
        whole, log_det = free.restore(v)
        prior = jnp.sum(jnp.log(whole.weights))
        return -jnp.sum(jax.vmap(whole.log_prob)(rows)) - prior - log_det

    again = infer(by_hand, Reals((1,)), RandomWalk(start=free.values), key=KEY)
    mean, error = again.expect(lambda v: free.restore(v)[0].weights[0])
    assert abs(mean - p @ grid) < FAR * error


def test_a_walk_over_all_parameters_of_a_mixture_of_poissons():
    """Rates with exponential priors and a uniform weight, by quadrature over three numbers."""
    model, rows = poissons(), jnp.asarray(COUNTS)

    def energy(m):
        return -jnp.sum(jax.vmap(m.log_prob)(rows)) + jnp.sum(m.components.rate)

    walk = RandomWalk(start=model, steps=6000, burn_in=3000)
    found = infer(energy, parameter_space(model), walk, key=KEY)
    w = (np.arange(60) + 0.5)[:, None, None] / 60
    a = (np.arange(160) + 0.5)[None, :, None] / 16
    b = a.reshape(1, 1, -1)
    logs = -a - b
    for x in COUNTS[:, 0]:
        logs = logs + np.log(w * stats.poisson.pmf(x, a) + (1 - w) * stats.poisson.pmf(x, b))
    p = np.exp(logs - logsumexp(logs))
    # exchanging the components changes nothing: ask what does not depend on their order
    rates, error = found.expect(
        lambda m: jnp.stack([jnp.min(m.components.rate), jnp.max(m.components.rate)])
    )
    low, high = (p * np.minimum(a, b)).sum(), (p * np.maximum(a, b)).sum()
    assert (np.abs(np.asarray(rates) - [low, high]) < FAR * np.asarray(error)).all()
    assert (np.asarray(error) < 0.2).all()
    assert float(found.diagnostics["acceptance"]) > 0.1


def test_trees_of_spaces():
    """A normal sample with unknown mean and scale: the marginal of the mean is Student's t."""
    rows = np.array([1.0, 2.5, 0.3, 1.8, 1.1])

    def energy(z):
        # p(μ, σ) ∝ 1/σ
        return (len(rows) + 1) * jnp.log(z["scale"]) + jnp.sum((rows - z["mean"]) ** 2) / (
            2 * z["scale"] ** 2
        )

    space = {"mean": Reals(()), "scale": Positive(())}
    found = infer(energy, space, RandomWalk(steps=6000), key=KEY)
    law = stats.t(len(rows) - 1, rows.mean(), rows.std(ddof=1) / np.sqrt(len(rows)))
    for q in (0.1, 0.5, 0.9):
        share, error = found.expect(lambda z, q=q: (z["mean"] <= law.ppf(q)).astype(float))
        assert abs(share - q) < FAR * error
        assert abs(law.cdf(found.quantile(q)["mean"]) - q) < FAR * error + 1e-3
    assert found.sample(3, key=KEY)["scale"].shape == (3,)
    assert found.covariance().shape == (2, 2)
    mode = infer(energy, space, ArgMin(start={"mean": jnp.array(0.0), "scale": jnp.array(1.0)}), key=KEY)
    np.testing.assert_allclose(mode.point["mean"], rows.mean(), atol=1e-5)
    np.testing.assert_allclose(
        mode.point["scale"], np.sqrt(((rows - rows.mean()) ** 2).sum() / 6), atol=1e-5
    )


# diagnostics --------------------------------------------------------------------------------------


@jax.jit
def _worth(x):
    return chain_effective_size(x), *chain_mean(x), potential_scale_reduction(x)


def test_chains_are_worth_what_their_autocorrelation_says():
    """An autoregression of order one has τ = (1 + ρ) / (1 − ρ)."""
    rng = np.random.default_rng(0)
    chains, steps = 4, 4000
    for rho in (0.0, 0.7, -0.4):
        x = np.zeros((chains, steps))
        x[:, 0] = rng.normal(size=chains)
        for t in range(1, steps):
            x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=chains)
        told = _worth(x)
        worth, mean, error, reduction = map(float, told)
        np.testing.assert_allclose(worth, chains * steps * (1 - rho) / (1 + rho), rtol=0.15)
        np.testing.assert_allclose(mean, x.mean(), rtol=1e-9)
        np.testing.assert_allclose(error, 1 / np.sqrt(worth), rtol=0.1)
        assert abs(reduction - 1) < 0.02
        # on the host too
        np.testing.assert_allclose(told, _worth.__wrapped__(x), rtol=1e-9)
    still = np.ones((3, 10))
    assert float(chain_effective_size(still)) == 3
    assert np.isinf(potential_scale_reduction(still))
    assert float(chain_effective_size(still * np.arange(3.0)[:, None])) < 6


def test_a_free_target_and_its_pushforward_are_one_density():
    problem = PROBLEMS["shares"]
    target = FreeTarget(problem.energy, problem.space)
    q = Pushforward(Gaussian(jnp.array([0.3, -0.2]), Diagonal(jnp.array([0.5, 1.0]))), problem.space)

    @jax.jit
    def both(z):
        free = problem.space.to_free(z)
        return target(free) + q.base.log_prob(free), problem.energy(z) + q.log_prob(z)

    # energy and −log q change alike from z to its free coordinates
    there, here = both(np.array([0.2, 0.5, 0.3]))
    np.testing.assert_allclose(there, here, rtol=1e-12)
    # mass one over the first two shares
    grid = (np.arange(400) + 0.5) / 400
    a, b = (v.ravel() for v in np.meshgrid(grid, grid))
    inside = a + b < 1
    cells = np.stack([a, b, 1 - a - b], axis=1)[inside]
    mass = np.exp(jax.jit(jax.vmap(q.log_prob))(cells)).sum() / 400**2
    np.testing.assert_allclose(mass, 1, atol=5e-3)


# what has no answer -------------------------------------------------------------------------------


def test_an_energy_that_is_no_number_is_refused():
    message = r"The energy must be finite where inference by {} begins\. Got {} instead"
    with pytest.raises(ValueError, match=message.format("RandomWalk", "nan")):
        infer(lambda z: jnp.sum(z) * jnp.nan, Reals((2,)), RandomWalk(steps=4, burn_in=1), key=KEY)
    with pytest.raises(ValueError, match=message.format("Enumerate", "nan")):
        infer(lambda z: jnp.sum(z) * jnp.nan, Binary((2,)), Enumerate(), key=KEY)
    with pytest.raises(ValueError, match=message.format("ArgMin", "-inf")):
        infer(lambda z: jnp.sum(z) - jnp.inf, Reals((2,)), ArgMin(), key=KEY)
    with pytest.raises(ValueError, match=message.format("Importance", "inf")):
        infer(lambda z: jnp.sum(z) + jnp.inf, Reals((2,)), Importance(PROBLEMS["normal"].proposal), key=KEY)


def test_chains_begin_where_the_unknown_can_be():
    # two of sixteen states are possible, and chains go from one to the other
    def energy(z):
        return jnp.where(jnp.sum(z[:3]) == 3, -z[3], jnp.inf)

    found = infer(energy, Binary((4,)), MarkovChain(gibbs_sweep, chains=16, steps=50), key=KEY)
    mean, error = found.expect(lambda z: z[3])
    assert abs(mean - 1 / (1 + np.exp(-1))) < FAR * error


def test_methods_refuse_spaces_they_cannot_serve():
    with pytest.raises(TypeError, match=r"States are numbered in a tree of finite spaces\. Got Reals"):
        infer(jnp.sum, Reals((2,)), Enumerate(), key=KEY)
    with pytest.raises(TypeError, match=r"Free reals need a tree of continuous spaces\. Got Categories"):
        infer(jnp.sum, Categories(3), RandomWalk(), key=KEY)
    with pytest.raises(TypeError, match=r"Gibbs sampling needs a tree of finite spaces\. Got Reals"):
        infer(jnp.sum, Reals((2,)), MarkovChain(gibbs_sweep), key=KEY)


def test_a_search_over_every_state_is_a_point_recognition():
    model = gaussians()
    x = jnp.array([0.3, 0.8])

    @jax.jit
    def best(x):
        return Point(jnp.arange(3), Exhaustive())(lambda z: model.energy(x, z), x).value

    assert int(best(x)) == int(np.argmax(eqx.filter_jit(model.log_joint)(x)))


def test_weights_of_draws_are_the_ratio_of_the_densities():
    narrow, wide = (Gaussian(jnp.zeros(2), Diagonal(jnp.full(2, v))) for v in (1.0, 4.0))
    draws, log_weights = jax.jit(
        lambda key: weighted_draws(lambda z: -narrow.log_prob(z), wide, samples=50, key=key)
    )(KEY)
    expected = stats.norm(0, 1).logpdf(draws).sum(axis=1) - stats.norm(0, 2).logpdf(draws).sum(axis=1)
    np.testing.assert_allclose(log_weights, expected, rtol=1e-10)


def test_enumeration_keeps_every_state():
    found = infer(lambda z: -jnp.sum(z), Binary((2,)), Enumerate(), key=KEY)
    assert isinstance(found, FinitePosterior)
    expected = np.exp(np.asarray(found.states).sum(axis=1))
    np.testing.assert_allclose(found.probabilities, expected / expected.sum(), rtol=1e-12)
