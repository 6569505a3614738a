"""Rows of Moon's notes, each with its own number or formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy.distributions import Diagonal, Gaussian, kl_divergence
from freeenergy.inference import Amortised, Quadratic, free_energy, importance_log_weights
from freeenergy.models import LinearGaussian

KEY = jax.random.key(0)


def array(*values):
    return jnp.asarray(values, jnp.float64)


# z ~ N(0, 1), x | z ~ N(2z + 1, ½) and x = 3, with q = N(½, 0.3)
TOY = LinearGaussian(array([2.0]), array(1.0), Diagonal(array(0.5)))
SEEN = np.array([3.0])
EVIDENCE, BOUND = -2.1154216760, -3.1493513451


def recognised(x):
    return Gaussian(array(0.5), Diagonal(array(0.3)))


# C18, C19, V04, V13
def test_three_forms_of_the_bound():
    recognition = Amortised(recognised, expectation=Quadratic())

    @jax.jit
    def values(x, key):
        weights = importance_log_weights(TOY, recognition, x, samples=64 * 2000, key=key)
        divergence = kl_divergence(recognised(x), TOY.posterior(x))
        prior = kl_divergence(recognised(x), Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))))
        return TOY.log_prob(x), -free_energy(TOY, recognition, x, key=key), divergence, prior, weights

    evidence, bound, divergence, prior, weights = map(np.asarray, values(SEEN, KEY))
    assert evidence == pytest.approx(EVIDENCE, abs=1e-9)
    assert bound == pytest.approx(BOUND, abs=1e-9)
    assert divergence == pytest.approx(1.0339296691, abs=1e-9)
    assert evidence == pytest.approx(bound + divergence, rel=1e-12)
    # E_q log p(x | z) by hand: the mean gap is 1, and its variance 4 · 0.3
    reconstruction = stats.norm.logpdf(3, 2, np.sqrt(0.5)) - 4 * 0.3 / (2 * 0.5)
    assert bound == pytest.approx(reconstruction - prior, rel=1e-10)
    # with more draws it tightens to the evidence
    for k, known in ((1, BOUND), (2, -2.474), (8, -2.171), (64, -2.122)):
        bounds = np.logaddexp.reduce(weights.reshape(-1, k), axis=1) - np.log(k)
        assert abs(bounds.mean() - known) < 5 * bounds.std() / np.sqrt(len(bounds)) + 5e-4
