"""Flows: normalised, samples agree with the density, the identity at the start, InfoMax."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy.bijections import Exp, GeneralAffine, Inverse, Shift, ShiftScale, Spline
from freeenergy.distributions import AbstractDistribution, Diagonal, Gaussian
from freeenergy.models import Flow, autoregressive_flow, coupling_flow

TRANSFORMERS = [Shift(), ShiftScale(), Spline(bins=5, bound=2.5)]
KINDS = [coupling_flow, autoregressive_flow]


def small(kind, dim, transformer, *, layers=3, dtype=jnp.float64):
    return kind(dim, transformer, layers=layers, width=8, depth=1, dtype=dtype, key=jax.random.key(0))


def shaken(flow, seed, scale):
    """`flow` with noise on the arrays of its bijection."""
    leaves, structure = jax.tree.flatten(flow.bijection)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    leaves = [
        leaf + scale * jax.random.normal(key, leaf.shape, leaf.dtype)
        if eqx.is_inexact_array(leaf)
        else leaf
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return Flow(flow.base, jax.tree.unflatten(structure, leaves))


@eqx.filter_jit
def _log_prob(flow, x):
    return jax.vmap(flow.log_prob)(x)


@eqx.filter_jit
def _samples(flow, keys):
    return jax.vmap(lambda key: flow.sample(key=key))(keys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_mass_is_one_and_samples_agree(kind, dim, transformer):
    flow = shaken(small(kind, dim, transformer), 1, 0.3)
    axis = np.linspace(-14, 14, 561)
    cell = (axis[1] - axis[0]) ** dim
    grid = np.stack([a.ravel() for a in np.meshgrid(*[axis] * dim, indexing="ij")], axis=1)
    log_p = np.asarray(_log_prob(flow, jnp.asarray(grid)))
    p = np.exp(log_p)
    assert p.sum() * cell == pytest.approx(1, abs=1e-4)
    entropy = -np.sum(p * log_p) * cell
    mean = cell * p @ grid

    draws = _samples(flow, jax.random.split(jax.random.key(2), 4000))
    code_length = -np.asarray(_log_prob(flow, draws))
    assert abs(code_length.mean() - entropy) < 5 * code_length.std() / 4000**0.5
    error = np.asarray(draws).std(0) / 4000**0.5
    assert (np.abs(np.asarray(draws).mean(0) - mean) < 5 * error).all()
    # it is not the base any more
    assert np.abs(mean).max() > 0.02 or abs(entropy - dim * stats.norm.entropy()) > 0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_untrained_flow_is_its_base(kind, transformer):
    x = np.random.default_rng(0).normal(size=(5, 3)) * 2
    flow = small(kind, 3, transformer, layers=5)
    np.testing.assert_allclose(_log_prob(flow, jnp.asarray(x)), stats.norm.logpdf(x).sum(1), rtol=1e-12)
    np.testing.assert_allclose(flow.to_latent(jnp.asarray(x[0])), x[0], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_latent_and_event_match(kind):
    flow = shaken(small(kind, 4, Spline()), 3, 0.3)
    key = jax.random.key(4)
    z = flow.to_latent(flow.sample(key=key))
    np.testing.assert_allclose(z, flow.base.sample(key=key), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_two_coupling_layers_transform_every_entry(dim):
    flow = shaken(small(coupling_flow, dim, Shift(), layers=2), 5, 0.5)
    x = jnp.zeros(dim)
    assert (np.asarray(flow.to_latent(x)) != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_program_does_not_grow_with_layers(kind):
    def length(layers):
        flow = small(kind, 3, Spline(), layers=layers)
        return len(str(jax.make_jaxpr(lambda x: flow.log_prob(x))(jnp.zeros(3))).splitlines())

    assert length(8) == length(2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 3])
def test_single_precision_throughout(kind, dim):
    flow = small(kind, dim, Spline(), dtype=jnp.float32)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(flow, x):
        return -jnp.mean(jax.vmap(flow.log_prob)(x))

    rows = np.random.default_rng(0).normal(size=(6, dim)).astype(np.float32)
    value, gradient = loss(flow, jnp.asarray(rows))
    assert value.dtype == jnp.float32
    assert float(value) == pytest.approx(-stats.norm.logpdf(rows).sum(1).mean(), rel=1e-5)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    assert flow.sample(key=jax.random.key(0)).dtype == jnp.float32


def test_exponential_of_a_gaussian_is_log_normal():
    flow = Flow(Gaussian(jnp.array([0.5]), Diagonal(jnp.array([4.0]))), Exp())
    wanted = stats.lognorm(s=2, scale=np.exp(0.5)).logpdf(3.0)
    assert float(flow.log_prob(jnp.array([3.0]))) == pytest.approx(wanted, rel=1e-12)


class _Logistic(AbstractDistribution):
    """¼ sech²(z/2) in each of two coordinates, the derivative of the logistic function."""

    def log_prob(self, x):
        return jnp.sum(jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x))

    def sample(self, *, key):
        return jax.random.logistic(key, (2,))


def test_linear_flow_with_logistic_sources_has_the_infomax_gradient():
    rng = np.random.default_rng(1)
    rows, unmixing = rng.laplace(size=(30, 2)), rng.normal(size=(2, 2))

    def loss(matrix):
        flow = Flow(_Logistic(), Inverse(GeneralAffine(jnp.zeros(2), matrix)))
        return -jnp.mean(jax.vmap(flow.log_prob)(jnp.asarray(rows)))

    outputs = 1 / (1 + np.exp(-rows @ unmixing.T))
    wanted = -(1 - 2 * outputs).T @ rows / len(rows) - np.linalg.inv(unmixing).T
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(unmixing)), wanted, rtol=1e-10)


@pytest.mark.parametrize("name", ["dim", "layers", "width", "depth"])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_checked(kind, name):
    sizes = {"dim": 2, "layers": 2, "width": 4, "depth": 1} | {name: 0}
    message = rf"The '{name}' parameter of a flow must be an int in the range \[1, inf\). Got 0 instead"
    with pytest.raises(ValueError, match=message):
        kind(sizes.pop("dim"), Shift(), **sizes, key=jax.random.key(0))
