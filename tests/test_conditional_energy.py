"""Energies of a row and a number: the normaliser, its slope and chains beside quadrature, and a fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from freeenergy._core import Data
from freeenergy.inference import RandomWalk, infer
from freeenergy.learning import Batch, Gradient, fit, negative_conditional_log_likelihood
from freeenergy.models import ConditionalEnergy
from freeenergy.nn import mlp

KEY = jax.random.key(3)


@eqx.filter_jit
def nats_of(model, x, y):
    return jax.vmap(model.log_prob_of)(y, x)


@eqx.filter_jit
def slopes_of(model, x, y):
    """∇e(x, y) in the parameters, for each of several y."""
    return jax.vmap(lambda own: eqx.filter_grad(lambda m: m.energy(x, own))(model))(y)


ROWS = np.array([[-1.0], [0.0], [2.0]])


@pytest.fixture(scope="module")
def model():
    """A network with weights that make several humps."""
    network = mlp(2, 1, width=6, depth=1, activation=jnp.tanh, dtype=jnp.float64, key=KEY)
    bumpy = jax.tree.map(lambda a: 3.0 * a if eqx.is_inexact_array(a) else a, network)
    return ConditionalEnergy(bumpy, jnp.asarray(1.5))


def energy_of(model, x):
    """e(x, ·) by NumPy."""
    (first, last), spread = model.function.layers, float(model.spread)
    w, b, v, c = (np.asarray(a) for a in (first.weight, first.bias, last.weight, last.bias))

    def energy(y):
        both = np.column_stack([np.broadcast_to(x, (np.size(y), 1)), np.ravel(y)])
        return (np.tanh(both @ w + b) @ v + c)[:, 0] + 0.5 * (np.ravel(y) / spread) ** 2

    return energy


def test_it_is_normalised_by_quadrature(model):
    answers = np.array([[0.3], [-1.2], [4.0]])
    found = np.asarray(nats_of(model, ROWS, answers))
    for x, y, nats in zip(ROWS, answers, found, strict=True):
        energy = energy_of(model, x)
        mass = integrate.quad(lambda t, e=energy: np.exp(-e(t)[0]), -15, 15, limit=400, epsabs=1e-13)[0]
        np.testing.assert_allclose(nats, -energy(y)[0] - np.log(mass), atol=1e-9)


def test_the_slope_is_that_of_the_data_less_that_of_the_model(model):
    # ∇e(x, y) − E ∇e(x, y′), with the expectation over a grid of NumPy
    x, y = jnp.asarray(ROWS[0]), jnp.array([0.7])
    batch = Batch((x[None], y[None]), jnp.ones(1))
    loss = eqx.filter_jit(eqx.filter_grad(lambda m: negative_conditional_log_likelihood(m, batch, KEY)))
    grid = np.linspace(-15, 15, 4001)
    energies = energy_of(model, ROWS[0])(grid)
    share = np.exp(-energies - logsumexp(-energies))
    each = slopes_of(model, x, jnp.asarray(np.append(grid, 0.7))[:, None])
    for ours, own in zip(*map(jax.tree.leaves, (loss(model), each)), strict=True):
        expected = np.tensordot(share, np.asarray(own)[:-1], axes=1)
        np.testing.assert_allclose(ours, np.asarray(own)[-1] - expected, atol=1e-8)


def test_chains_draw_its_answers(model):
    x = jnp.asarray(ROWS[1])
    method = RandomWalk(chains=8, steps=2000, burn_in=500, scale=2.0)
    found = infer(lambda y: model.energy(x, y), model.latent(x), method, key=KEY)
    grid = np.linspace(-12, 12, 4001)
    energies = energy_of(model, ROWS[1])(grid)
    share = np.exp(-energies - logsumexp(-energies))
    mean = share @ grid
    spread = np.sqrt(share @ (grid - mean) ** 2)
    draws = np.asarray(found.draws).reshape(8, -1)
    # chains are independent of each other
    error = draws.mean(axis=1).std(ddof=1) / np.sqrt(8)
    assert abs(draws.mean() - mean) < 5 * error < spread
    np.testing.assert_allclose(draws.std(), spread, rtol=0.15)


@pytest.mark.slow
def test_it_learns_answers_with_two_humps():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1024, 1))
    y = np.where(rng.random(1024) < 0.5, 1, -1)[:, None] * (0.5 + 0.5 * x**2) + 0.2 * rng.normal(
        size=(1024, 1)
    )
    start = ConditionalEnergy(
        mlp(2, 1, width=16, depth=2, activation=jnp.tanh, dtype=jnp.float64, key=KEY),
        jnp.ones(()),
        nodes=64,
    )
    learner = Gradient(optax.adam(1e-2), negative_conditional_log_likelihood, batch_size=128)
    learned = fit(start, learner, Data.of((x[:512], y[:512])), key=KEY, max_iter=60).model
    nats = np.asarray(nats_of(learned, x[512:], y[512:]))
    centre = 0.5 + 0.5 * x[512:] ** 2
    truth = logsumexp(
        [stats.norm.logpdf(y[512:], side * centre, 0.2)[:, 0] for side in (-1, 1)], axis=0
    ) - np.log(2)
    normal = stats.norm.logpdf(y[512:], 0, np.sqrt(centre**2 + 0.04))[:, 0]
    # better than the best normal law, and near to the truth
    gain = nats - normal
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))
    assert (truth - nats).mean() < 0.15
