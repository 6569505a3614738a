"""Simulation-based calibration and posterior predictive checks."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy import stats

import freeenergy as fe
from freeenergy import plots
from freeenergy.distributions import (
    Beta,
    Binary,
    Categories,
    Counts,
    Diagonal,
    Gaussian,
    Positive,
    Reals,
    UnitInterval,
)
from freeenergy.evaluation import (
    PredictiveCheck,
    SimulationCalibration,
    posterior_predictive_check,
    simulation_based_calibration,
    simulation_ranks,
)
from freeenergy.inference import (
    NUTS,
    AdjustedLangevin,
    Alternate,
    Anneal,
    Collapsed,
    Cycle,
    Eliminate,
    Enumerate,
    FactorEnergy,
    GaussianVariational,
    HamiltonianMonteCarlo,
    Importance,
    InverseTransform,
    Laplace,
    MarkovChain,
    MetropolisHastings,
    ParallelTempering,
    Pathfinder,
    RandomWalk,
    Rejection,
    Rounded,
    SequentialMonteCarlo,
    SliceSampler,
    gibbs_scan,
    gibbs_sweep,
    infer,
    random_walk,
)

DRAWS = 99


def regression(key):
    """A slope and a noise from the prior of `BayesianLinearRegression`, and eight answers."""
    rng = np.random.default_rng(int(jax.random.key_data(key)[1]))
    x = np.linspace(-1, 1, 8)[:, None]
    variance = stats.invgamma(3.0, scale=2.0).rvs(random_state=rng)
    slope = rng.normal(0, np.sqrt(variance / 0.5))
    return {"noise": np.sqrt(variance), "slope": slope}, (
        x,
        slope * x[:, 0] + rng.normal(0, np.sqrt(variance), 8),
    )


def exact(data, key, narrow=1.0):
    model = fe.BayesianLinearRegression(0.5, prior=np.eye(1), noise=(3.0, 2.0), fit_intercept=False)
    draws = model.fit(*data).sample_posterior(DRAWS, random_state=int(jax.random.key_data(key)[1] >> 1))
    slope = model.coef_[0] + narrow * (draws.coef[:, 0] - model.coef_[0])
    return {"noise": draws.noise, "slope": slope}


def test_an_exact_posterior_is_calibrated_and_a_narrow_one_is_not():
    found = simulation_based_calibration(regression, exact, simulations=120, seed=0)
    assert found.names == ("noise", "slope")
    assert found.ranks.shape == (120, 2)
    assert (found.p_values > 1e-3).all()
    counts, (low, high) = found.counts(), found.band(0.999)
    assert counts.shape == (2, 20)
    assert (counts.sum(axis=1) == 120).all()
    assert ((counts >= low) & (counts <= high)).all()
    assert "120 simulations, 99 draws each" in str(found)
    # a slope of half the spread: its ranks heap at both ends, those of the noise do not
    wrong = simulation_based_calibration(
        regression, lambda data, key: exact(data, key, narrow=0.5), simulations=120, seed=0
    )
    assert wrong.p_values[0] > 1e-3
    assert wrong.p_values[1] < 1e-6
    assert wrong.counts()[1][[0, -1]].min() > high
    axes = plots.calibration_ranks(wrong)
    assert [ax.get_title() for ax in axes] == ["noise", "slope"]
    np.testing.assert_array_equal([bar.get_height() for bar in axes[1].patches[:20]], wrong.counts()[1])


def test_ranks_with_ties():
    ranks = simulation_ranks(np.zeros((2000, 1)), np.zeros((2000, 3, 1)), seed=0)
    share = np.bincount(ranks[:, 0], minlength=4) / 2000
    assert (np.abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)).all()
    assert SimulationCalibration(ranks, 3, ("x",)).bins() == 4
    with pytest.raises(ValueError, match=r"must have the shape \(1, draws, 2\)\. Got \(1, 3, 1\) instead"):
        simulation_ranks([[0.0, 1.0]], np.zeros((1, 3, 1)), seed=0)
    with pytest.raises(ValueError, match="must be a tree as that of 'simulate'"):
        simulation_based_calibration(
            lambda key: (0.0, 1.0), lambda data, key: {"a": np.zeros(3)}, simulations=2, seed=0
        )


class Coin(eqx.Module):
    heads: jax.Array

    def __call__(self, z):
        return -jnp.sum(self.heads * jnp.log(z) + (10 - self.heads) * jnp.log1p(-z))


class Place(eqx.Module):
    """A priori N(0, I); one observation with correlated noise."""

    y: jax.Array

    def __call__(self, z):
        gap = self.y - z
        return 0.5 * jnp.sum(z**2) + 0.5 * gap @ jnp.array([[2.0, 1.2], [1.2, 1.0]]) @ gap


class Scale(eqx.Module):
    """A priori an exponential variance; five numbers of mean zero."""

    y: jax.Array

    def __call__(self, z):
        return jnp.sum(z) + 2.5 * jnp.log(jnp.sum(z)) + 0.5 * jnp.sum(self.y**2) / jnp.sum(z)


def coin(key):
    first, second = jax.random.split(key)
    p = jax.random.uniform(first, (1,))
    return p, Coin(jax.random.binomial(second, 10, p[0]))


def place(key):
    first, second = jax.random.split(key)
    z = jax.random.normal(first, (2,))
    root = np.linalg.cholesky(np.linalg.inv([[2.0, 1.2], [1.2, 1.0]]))
    return z, Place(z + jnp.asarray(root) @ jax.random.normal(second, (2,)))


def scale(key):
    first, second = jax.random.split(key)
    v = jax.random.exponential(first, (1,))
    return v, Scale(jnp.sqrt(v[0]) * jax.random.normal(second, (5,)))


DESIGN = np.stack([np.ones(8), np.linspace(-2, 2, 8)], axis=1)


class Logistic(eqx.Module):
    """A priori N(0, I); an intercept and a slope of eight labels."""

    y: jax.Array

    def __call__(self, z):
        log_odds = jnp.asarray(DESIGN) @ z
        return 0.5 * jnp.sum(z**2) - jnp.sum(self.y * log_odds - jax.nn.softplus(log_odds))


def logistic(key):
    first, second = jax.random.split(key)
    z = jax.random.normal(first, (2,))
    chances = jax.nn.sigmoid(jnp.asarray(DESIGN) @ z)
    return z, Logistic(jax.random.bernoulli(second, chances).astype(float))


COUPLING = np.array([0.8, -0.5])


class Bits(eqx.Module):
    """A priori a chain of three bits that see their neighbours; each was read with noise."""

    y: jax.Array

    def __call__(self, z):
        sign = 2 * z - 1
        return 0.5 * jnp.sum((self.y - z) ** 2) - jnp.sum(jnp.asarray(COUPLING) * sign[1:] * sign[:-1])


STATES = np.array([[i >> 2, i >> 1 & 1, i & 1] for i in range(8)], float)


def bits(key):
    first, second = jax.random.split(key)
    log_prior = ((2 * STATES[:, 1:] - 1) * (2 * STATES[:, :-1] - 1)) @ COUPLING
    z = jnp.asarray(STATES)[jax.random.categorical(first, jnp.asarray(log_prior))]
    return z, Bits(z + jax.random.normal(second, (3,)))


def links(key):
    """The same three bits, as labels with an energy of small tables."""
    z, known = bits(key)
    reading = -0.5 * (known.y[:, None] - jnp.arange(2.0)[None]) ** 2
    agree = jnp.array([[1.0, -1.0], [-1.0, 1.0]])
    tables = (*(c * agree for c in COUPLING), *reading)
    return tuple(z.astype(int)), FactorEnergy(tables, ((0, 1), (1, 2), (0,), (1,), (2,)))


class Switch(eqx.Module):
    """A priori a fair switch, and a place beside it; the place was read with noise."""

    y: jax.Array

    def __call__(self, z):
        return 0.5 * (z["x"] - 2 * z["on"]) ** 2 + (self.y - z["x"]) ** 2


def switch(key):
    first, second, third = jax.random.split(key, 3)
    on = jax.random.bernoulli(first).astype(float)
    x = 2 * on + jax.random.normal(second)
    return {"on": on, "x": x}, Switch(x + 0.5**0.5 * jax.random.normal(third))


class Seen(eqx.Module):
    """A priori a Poisson count of mean three; each was seen with an even chance."""

    y: jax.Array

    def __call__(self, n):
        log_prior = n * jnp.log(3.0) - gammaln(n + 1)
        log_seen = gammaln(n + 1) - gammaln(jnp.maximum(n - self.y, 0) + 1) - n * jnp.log(2.0)
        return jnp.where(n < self.y, jnp.inf, -log_prior - log_seen)


def seen(key):
    first, second = jax.random.split(key)
    n = jax.random.poisson(first, 3.0).astype(float)
    return n, Seen(jax.random.binomial(second, n, 0.5))


def cycle(energy, space):
    """Two kernels that leave the same law unchanged, one after the other."""
    return Cycle((gibbs_scan(energy, space), MetropolisHastings()(energy, space)))


# methods that claim to be exact in the limit; draws of chains are thinned to nearly independent ones
SHORT = {"chains": 4, "steps": 125, "burn_in": 200}
NORMAL_PRIOR = Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))
OF_REALS = {
    "NUTS": NUTS(**SHORT, thin=2),
    "HMC": HamiltonianMonteCarlo(**SHORT, thin=2, leaps=8),
    "adaptive walk": RandomWalk(chains=4, steps=125, burn_in=600, thin=20),
    "Metropolis–Hastings": MarkovChain(MetropolisHastings(scale=0.8), **SHORT, thin=30),
    "slice": MarkovChain(SliceSampler(), **SHORT, thin=4),
    "MALA": MarkovChain(AdjustedLangevin(), **SHORT, thin=15),
    "SMC": SequentialMonteCarlo(particles=1024, groups=8, moves=8),
    "tempering": ParallelTempering(replicas=4, chains=4, steps=125, burn_in=200, thin=10),
    "annealing": Anneal(functools.partial(random_walk, scale=0.8), chains=1000, steps=50),
    "importance": Importance(NORMAL_PRIOR),
}
OF_BITS = {
    "enumeration": Enumerate(),
    "Gibbs": MarkovChain(gibbs_sweep, **SHORT, thin=4),
    "random-scan Gibbs": MarkovChain(gibbs_scan, **SHORT, thin=12),
    "Metropolis–Hastings": MarkovChain(MetropolisHastings(), **SHORT, thin=12),
    "SMC": SequentialMonteCarlo(gibbs_sweep, particles=1024, groups=8, moves=4),
    "tempering": ParallelTempering(gibbs_sweep, replicas=4, chains=4, steps=125, burn_in=200, thin=4),
    "annealing": Anneal(gibbs_sweep, chains=1000, steps=50),
}
# possible whatever was seen
MANY = jnp.array(20.5)
SWITCH = {"on": Binary(()), "x": Reals(())}
PAIRS = {
    **{f"{name}, place": (place, Reals((2,)), method) for name, method in OF_REALS.items()},
    **{f"{name}, logistic": (logistic, Reals((2,)), method) for name, method in OF_REALS.items()},
    **{f"{name}, bits": (bits, Binary((3,)), method) for name, method in OF_BITS.items()},
    "NUTS, coin": (coin, UnitInterval((1,)), OF_REALS["NUTS"]),
    "NUTS, scale": (scale, Positive((1,)), OF_REALS["NUTS"]),
    "adaptive walk, coin": (coin, UnitInterval((1,)), OF_REALS["adaptive walk"]),
    "adaptive walk, scale": (scale, Positive((1,)), OF_REALS["adaptive walk"]),
    "slice, coin": (coin, UnitInterval((1,)), OF_REALS["slice"]),
    "inverse transform, scale": (scale, Positive((1,)), InverseTransform()),
    "inverse transform, coin": (coin, UnitInterval((1,)), InverseTransform()),
    "rejection, place": (place, Reals((2,)), Rejection(NORMAL_PRIOR, np.log(2 * np.pi), 500, batch=1024)),
    "importance, coin": (coin, UnitInterval((1,)), Importance(Beta(1.0, 1.0))),
    "SMC, coin": (coin, UnitInterval((1,)), OF_REALS["SMC"]),
    "slice, scale": (scale, Positive((1,)), OF_REALS["slice"]),
    "MALA, scale": (scale, Positive((1,)), OF_REALS["MALA"]),
    "dense NUTS, place": (place, Reals((2,)), NUTS(**SHORT, thin=2, dense=True)),
    "elimination, links": (links, (Categories(2),) * 3, Eliminate(500)),
    "cycle, bits": (bits, Binary((3,)), MarkovChain(cycle, **SHORT, thin=8)),
    "collapsed NUTS, switch": (switch, SWITCH, Collapsed(NUTS(**SHORT, thin=2))),
    "alternate, switch": (
        switch,
        SWITCH,
        MarkovChain(Alternate({"on": gibbs_sweep, "x": SliceSampler()}), **SHORT, thin=15),
    ),
    "rounded slices, seen": (seen, Counts(()), Rounded(MarkovChain(SliceSampler(), MANY, **SHORT, thin=6))),
    # of a Gaussian these are exact too
    "Laplace, place": (place, Reals((2,)), Laplace()),
    "variational, place": (place, Reals((2,)), GaussianVariational()),
    "path, place": (place, Reals((2,)), Pathfinder()),
}


def calibrated(name, simulations, together):
    simulate, space, method = PAIRS[name]

    def draw(energy, key):
        found = infer(energy, space, method, key=key)
        return found.sample(DRAWS, key=jax.random.fold_in(key, 1))

    return simulation_based_calibration(simulate, draw, simulations=simulations, together=together, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_methods_that_claim_to_be_exact_are_calibrated(name):
    # those that are together wait for the one of which the least is kept
    found = calibrated(name, 1000, 25 if name.startswith("rejection") else 250)
    assert (found.p_values > 1e-4).all(), str(found)


@pytest.mark.parametrize("name", [pytest.param("NUTS, scale", marks=pytest.mark.slow), "Gibbs, bits"])
def test_samplers_are_calibrated_in_one_program(name):
    """The twin of the slow ones, with fewer simulations."""
    found = calibrated(name, 100, 100)
    assert found.ranks.shape[0] == 100
    assert (found.p_values > 1e-4).all(), str(found)


def test_a_check_of_what_a_model_makes():
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 50) * (rng.random(50) > 0.4)
    again = rng.poisson(y.mean(), (500, 50, 1))
    zeros = posterior_predictive_check(y, again, lambda v: (v == 0).mean())
    assert isinstance(zeros, PredictiveCheck)
    assert zeros.observed == (y == 0).mean()
    assert zeros.p_value < 0.01
    mean = posterior_predictive_check(y, again)
    assert 0.2 < mean.p_value < 0.8
    np.testing.assert_allclose(mean.replicated, again.mean(axis=(1, 2)))
    assert posterior_predictive_check([1.0], [[1.0], [1.0]]).p_value == 0.5
    with pytest.raises(ValueError, match=r"must have the shape \(draws, 50\)\. Got \(500, 49\) instead"):
        posterior_predictive_check(y, again[:, :49, 0])
    axes = plots.predictive_check(zeros, name="share of zeros")
    assert axes.get_xlabel() == "share of zeros"
    assert axes.lines[0].get_xdata()[0] == zeros.observed
