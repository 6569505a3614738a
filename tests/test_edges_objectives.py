"""Recognitions and objectives at the edge: saturated units, certain and empty components, rows that do not
count, rows without any observation; values and slopes, in 32 and 64 bits, against enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats
from scipy.special import digamma, logsumexp, softmax

from freeenergy import Data
from freeenergy.distributions import Bernoulli, Diagonal, Gamma, Gaussian
from freeenergy.inference import Enumeration, Exact, binary_states, free_energy
from freeenergy.learning import (
    LBFGS,
    Argmin,
    Batch,
    Boltzmann,
    ConditionalContrastive,
    Contrastive,
    ExactEnumeration,
    FreeEnergy,
    Gradient,
    ImportanceWeighted,
    Margin,
    Optimiser,
    fit,
    negative_log_likelihood,
)
from freeenergy.models import Density, Harmonium, Mixture, SoftmaxModel, Units

KEY = jax.random.key(0)
STATES = np.asarray(binary_states(2))
# a model each: logits of two visible and two hidden units, and their four couplings
LOGITS = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [40, -40, 20, -20, 1, 2, 3, 4],
        [300, 0, -300, 5, 60, -60, 60, 60],
        [-700, 700, 700, -700, 0, 700, -700, 1],
    ]
)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def harmonium(v):
    return Harmonium(Units(Bernoulli, v[:2]), Units(Bernoulli, v[2:4]), v[4:].reshape(2, 2))


def joint(v, x):
    """Minus the energy of x with each hidden state, in 64 bits."""
    a, b, W = v[:2], v[2:4], v[4:].reshape(2, 2)
    return x @ a + STATES @ b + STATES @ (W.T @ x)


@DTYPES
@pytest.mark.parametrize("contrastive", [False, True])
def test_saturated_units(dtype, contrastive):
    rows, weight = STATES[[1, 2, 3]], np.array([0.25, 0.75, 0.0])
    states = jnp.asarray(STATES, dtype)
    batch = Batch(jnp.asarray(rows, dtype), jnp.asarray(weight, dtype))

    def value(v):
        model = harmonium(v)
        if contrastive:
            ours = Contrastive(ExactEnumeration(states))
            return ours(model, batch, ours.init(model, batch, key=KEY), key=KEY)[0]
        return FreeEnergy(lambda m: Exact(m.posterior, expectation=Enumeration(states)))(model, batch, KEY)

    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(value)))(jnp.asarray(LOGITS, dtype))
    for v, found, slope in zip(LOGITS.astype(float), values, slopes, strict=True):

        def free(x, v=v):
            return -logsumexp(joint(v, x))

        def moments(x, v=v):
            q = softmax(joint(v, x))
            h = q @ STATES
            return np.concatenate([x, h, np.outer(x, h).ravel()])

        expected = weight @ [free(x) for x in rows]
        rise = -(weight @ [moments(x) for x in rows])
        if contrastive:
            each = np.array([free(x) for x in STATES])
            nu = softmax(-each)
            expected -= np.where(nu > 0, nu * each, 0).sum()
            rise = rise + nu @ [moments(x) for x in STATES]
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, rtol=8 * eps, atol=16 * eps * np.abs(v).max())
        np.testing.assert_allclose(slope, rise, atol=64 * eps * max(np.abs(v).max(), 1))


@DTYPES
@pytest.mark.parametrize("phase", [Boltzmann(), Argmin(), Margin(2.0)])
def test_large_logits_of_answers(dtype, phase):
    bias = np.array([[0, 0, 0], [40, -40, 0], [300, 300, 0], [-700, 0, 700], [1e4, 0, -1e4]])
    batch = Batch((jnp.zeros((3, 1), dtype), jnp.array([0, 1, 2])), jnp.asarray([0.5, 0.5, 0.0], dtype))

    def value(b):
        model = SoftmaxModel(jnp.zeros((3, 1), dtype), b)
        return ConditionalContrastive(phase)(model, batch, KEY)

    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(value)))(jnp.asarray(bias, dtype))
    for b, found, slope in zip(bias.astype(float), values, slopes, strict=True):
        expected, rise = 0.0, np.zeros(3)
        for y in (0, 1):
            own = np.eye(3)[y]
            if isinstance(phase, Boltzmann):
                loss, nu = logsumexp(b) - b[y], softmax(b)
            else:
                raised = b + (2.0 * (1 - own) if isinstance(phase, Margin) else 0.0)
                loss, nu = raised.max() - b[y], np.eye(3)[np.argmax(raised)]
            expected, rise = expected + loss / 2, rise + (nu - own) / 2
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, atol=4 * eps * max(np.abs(b).max(), 1))
        np.testing.assert_allclose(slope, rise, atol=64 * eps)


@DTYPES
def test_certain_and_empty_components(dtype):
    """A component of weight zero, and probabilities zero and one, in the evidence and in the bound."""
    model = Mixture(jnp.asarray([1.0, 0.0], dtype), Bernoulli(jnp.asarray([[1.0, 0.5], [0.5, 0.5]], dtype)))
    rows = np.array([[1, 0], [0, 1], [np.nan, 1], [np.nan, np.nan]])
    expected = [-np.log(0.5), np.inf, -np.log(0.5), 0.0]
    x = jnp.asarray(rows, dtype)
    exact = model.recognition
    evidence, bound = jax.jit(
        jax.vmap(lambda row: (model.log_prob(row), free_energy(model.energy, exact, row, key=KEY)))
    )(x)
    np.testing.assert_allclose(-evidence, expected, rtol=1e-6)
    np.testing.assert_allclose(bound, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "learner",
    [Gradient(Optimiser(optax.sgd, 0.0), negative_log_likelihood), LBFGS(negative_log_likelihood)],
)
def test_rows_that_do_not_count_may_be_impossible(learner):
    """Zeros, and the zeros with which rows are padded, have no density under a Gamma of shape three."""
    rows, weight = np.array([[1.0], [2.0], [0.0], [4.0]]), np.array([1.0, 1.0, 0.0, 1.0])
    start = Density(Gamma(jnp.array([3.0]), jnp.array([1.0])))
    data = Data.of(rows, weight)
    assert data.size > 4
    found = fit(start, learner, data, key=KEY, max_iter=50)
    assert np.isfinite(found.history["objective"]).all()
    kept = rows[weight > 0, 0]
    if isinstance(learner, LBFGS):
        # the shape at which log of the mean is the mean of the log plus log a - digamma(a)
        shape = optimize.brentq(
            lambda a: np.log(a) - digamma(a) - np.log(kept.mean()) + np.log(kept).mean(), 0.1, 100
        )
        np.testing.assert_allclose(found.model.family.shape[0], shape, rtol=1e-4)
    else:
        np.testing.assert_allclose(
            found.history["objective"][-1], -stats.gamma(3.0).logpdf(kept).mean(), rtol=1e-9
        )


@DTYPES
def test_a_bound_with_one_draw_or_many_is_the_evidence_where_the_posterior_is_exact(dtype):
    model = Mixture(
        jnp.asarray([0.5, 0.5], dtype),
        Gaussian(jnp.asarray([[0.0], [1e4]], dtype), Diagonal(jnp.ones((2, 1), dtype))),
    )
    batch = Batch(jnp.asarray([[0.5], [1e4], [np.nan]], dtype), jnp.asarray([0.5, 0.5, 0.0], dtype))
    likelihood = eqx.filter_jit(negative_log_likelihood)(model, batch, KEY)
    for objective in (FreeEnergy(), ImportanceWeighted(3)):
        np.testing.assert_allclose(eqx.filter_jit(objective)(model, batch, KEY), likelihood, rtol=1e-5)
    normal = 0.5 * np.log(2 * np.pi) + np.log(2)
    np.testing.assert_allclose(likelihood, normal + 0.5 * 0.5 * 0.25, rtol=1e-6)
