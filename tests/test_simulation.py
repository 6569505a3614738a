"""Simulation-based calibration and posterior predictive checks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import freeenergy as fe
from freeenergy import plots
from freeenergy.distributions import Positive, Reals, UnitInterval
from freeenergy.evaluation import (
    PredictiveCheck,
    SimulationCalibration,
    posterior_predictive_check,
    simulation_based_calibration,
    simulation_ranks,
)
from freeenergy.inference import GaussianVariational, Laplace, Pathfinder, RandomWalk, infer

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


PAIRS = {
    "walk, coin": (coin, UnitInterval((1,)), RandomWalk()),
    "walk, scale": (scale, Positive((1,)), RandomWalk()),
    "walk, place": (place, Reals((2,)), RandomWalk()),
    "laplace, place": (place, Reals((2,)), Laplace()),
    "variational, place": (place, Reals((2,)), GaussianVariational()),
    "path, place": (place, Reals((2,)), Pathfinder()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_methods_that_claim_to_be_exact_are_calibrated(name):
    simulate, space, method = PAIRS[name]

    def draw(energy, key):
        found = infer(energy, space, method, key=key)
        return found.sample(DRAWS, key=jax.random.fold_in(key, 1))

    found = simulation_based_calibration(jax.jit(simulate), draw, simulations=1000, seed=1)
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
