"""Flows: normalised, samples agree with the density, the identity at the start, InfoMax."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy.bijections import Exp, GeneralAffine, Inverse, Shift, ShiftScale, Spline
from freeenergy.distributions import AbstractDistribution, Diagonal, Full, Gaussian, Transformed
from freeenergy.models import (
    FlowWithMissing,
    Mixture,
    MultiscaleFlow,
    autoregressive_flow,
    continuous_flow,
    coupling_flow,
    inverse_autoregressive_flow,
)

TRANSFORMERS = [Shift(), ShiftScale(), Spline(bins=5, bound=2.5)]
KINDS = [coupling_flow, autoregressive_flow]
TABLE = [(kind, 2, t) for kind in KINDS for t in TRANSFORMERS]
TABLE += [(inverse_autoregressive_flow, 2, TRANSFORMERS[1])]
TABLE += [(coupling_flow, 1, t) for t in TRANSFORMERS] + [(autoregressive_flow, 1, TRANSFORMERS[2])]
DRAWS = 4000


@functools.cache
def small(kind, dim, transformer, *, layers=3, dtype=jnp.float64):
    return kind(dim, transformer, layers=layers, width=8, depth=1, dtype=dtype, key=jax.random.key(0))


def shaken(flow, seed, scale):
    """`flow` with noise on the arrays of its bijection."""
    rng = np.random.default_rng(seed)

    def shake(leaf):
        if not eqx.is_inexact_array(leaf):
            return leaf
        return jnp.asarray(np.asarray(leaf) + scale * rng.normal(size=leaf.shape))

    return Transformed(flow.base, jax.tree.map(shake, flow.bijection))


@eqx.filter_jit
def _evaluate(flow, grid, keys):
    noise = jax.vmap(lambda key: flow.base.sample(key=key))(keys)
    draws = jax.vmap(lambda key: flow.sample(key=key))(keys)
    log_p = jax.vmap(flow.log_prob)(jnp.concatenate([grid, draws]))
    return log_p[: len(grid)], log_p[len(grid) :], draws, jax.vmap(flow.to_base)(draws), noise


def evaluate(flow, dim):
    """Grid, its cell, and at a grid and draws what a flow says of them."""
    axis = np.linspace(-12, 12, 20001 if dim == 1 else 481)
    grid = np.stack([a.ravel() for a in np.meshgrid(*[axis] * dim, indexing="ij")], axis=1)
    out = _evaluate(flow, jnp.asarray(grid), jax.random.split(jax.random.key(2), DRAWS))
    return grid, (axis[1] - axis[0]) ** dim, *map(np.asarray, out)


def name(case):
    kind, dim, transformer = case
    return f"{kind.__name__}-{dim}-{type(transformer).__name__}"


@pytest.mark.parametrize("case", TABLE, ids=name)
def test_mass_is_one_and_samples_agree(case):
    dim = case[1]
    flow = shaken(small(*case), 1, 0.3)
    grid, cell, log_p, log_p_draws, draws, latent, noise = evaluate(flow, dim)
    p = np.exp(log_p)
    assert p.sum() * cell == pytest.approx(1, abs=1e-5 if dim == 1 else 1e-3)
    entropy, mean = -np.sum(p * log_p) * cell, cell * p @ grid
    assert abs(-log_p_draws.mean() - entropy) < 5 * log_p_draws.std() / DRAWS**0.5
    assert (np.abs(draws.mean(0) - mean) < 5 * draws.std(0) / DRAWS**0.5).all()
    np.testing.assert_allclose(latent, noise, rtol=1e-10, atol=1e-11)
    # it is not the base any more
    assert np.abs(log_p - stats.norm.logpdf(grid).sum(1)).max() > 0.1


@pytest.mark.parametrize("case", TABLE, ids=name)
def test_untrained_flow_is_its_base(case):
    grid, _, log_p, _, draws, latent, noise = evaluate(small(*case), case[1])
    np.testing.assert_allclose(log_p, stats.norm.logpdf(grid).sum(1), rtol=1e-12)
    np.testing.assert_allclose(draws, noise, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(latent, noise, rtol=1e-12, atol=1e-13)


def test_a_continuous_flow_has_mass_one_and_goes_back():
    flow = shaken(small(continuous_flow, 2, Shift(), layers=16), 1, 0.5)
    grid, cell, log_p, log_p_draws, draws, latent, noise = evaluate(flow, 2)
    p = np.exp(log_p)
    assert p.sum() * cell == pytest.approx(1, abs=1e-3)
    entropy = -np.sum(p * log_p) * cell
    assert abs(-log_p_draws.mean() - entropy) < 5 * log_p_draws.std() / DRAWS**0.5
    assert (np.abs(draws.mean(0) - cell * p @ grid) < 5 * draws.std(0) / DRAWS**0.5).all()
    # up to the error of the solver
    np.testing.assert_allclose(latent, noise, atol=1e-4)
    assert np.abs(log_p - stats.norm.logpdf(grid).sum(1)).max() > 0.1
    _, _, untrained, *_ = evaluate(small(continuous_flow, 2, Shift(), layers=16), 2)
    np.testing.assert_allclose(untrained, stats.norm.logpdf(grid).sum(1), rtol=1e-12)


def test_draws_of_missing_entries_share_the_matrices_of_their_row():
    dim, parts, draws = 32, 6, 64
    components = Gaussian(jnp.zeros((parts, dim)), Full(jnp.tile(2 * jnp.eye(dim), (parts, 1, 1))))
    wide = Mixture(jnp.full(parts, 1 / parts), components)
    model = FlowWithMissing(small(coupling_flow, dim, ShiftScale(), layers=2), wide)
    x = jnp.zeros(dim).at[3].set(jnp.nan)

    @jax.jit
    def evidence(x, key):
        return model.evidence(x, samples=draws, key=key)

    program = evidence.lower(x, jax.random.key(0)).compile()
    # a matrix for each draw and component would take that many times 8 kB
    assert program.memory_analysis().temp_size_in_bytes < draws * dim**2 * 8 * 2
    found = program(x, jax.random.key(1))
    wanted = -0.5 * (dim - 1) * np.log(2 * np.pi)
    assert abs(float(found.log_mean) - wanted) < 5 * float(found.stderr)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_two_coupling_layers_transform_every_entry(dim):
    flow = shaken(small(coupling_flow, dim, Shift(), layers=2), 5, 0.5)
    latent = eqx.filter_jit(lambda flow, x: flow.to_base(x))(flow, jnp.zeros(dim))
    assert (np.asarray(latent) != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_program_does_not_grow_with_layers(kind):
    def length(layers):
        flow = small(kind, 3, Spline(), layers=layers)
        return len(str(jax.make_jaxpr(lambda x: flow.log_prob(x))(jnp.zeros(3))).splitlines())

    assert length(8) == length(3)


@pytest.mark.parametrize(
    "case", [(coupling_flow, 3, Spline()), (autoregressive_flow, 1, ShiftScale())], ids=name
)
def test_single_precision_throughout(case):
    dim = case[1]
    flow = small(*case, dtype=jnp.float32)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(flow, x):
        return -jnp.mean(jax.vmap(flow.log_prob)(x))

    rows = np.random.default_rng(0).normal(size=(6, dim)).astype(np.float32)
    value, gradient = loss(flow, jnp.asarray(rows))
    assert value.dtype == jnp.float32
    assert float(value) == pytest.approx(-stats.norm.logpdf(rows).sum(1).mean(), rel=1e-5)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    assert jax.eval_shape(lambda key: flow.sample(key=key), jax.random.key(0)).dtype == jnp.float32


def test_exponential_of_a_gaussian_is_log_normal():
    flow = Transformed(Gaussian(jnp.array([0.5]), Diagonal(jnp.array([4.0]))), Exp())
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
        flow = Transformed(_Logistic(), Inverse(GeneralAffine(jnp.zeros(2), matrix)))
        return -jnp.mean(jax.vmap(flow.log_prob)(jnp.asarray(rows)))

    outputs = 1 / (1 + np.exp(-rows @ unmixing.T))
    wanted = -(1 - 2 * outputs).T @ rows / len(rows) - np.linalg.inv(unmixing).T
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.asarray(unmixing)), wanted, rtol=1e-10)


@functools.cache
def of_images(transformer):
    make = MultiscaleFlow((4, 4))
    return make(16, transformer, layers=2, width=8, depth=1, dtype=jnp.float64, key=jax.random.key(0))


@eqx.filter_jit
def _of_images(flow, rows):
    def one(x):
        z, log_det = flow.bijection.inverse(x)
        back, log_det_back = flow.bijection.forward(z)
        jacobian = jax.jacfwd(lambda v: flow.bijection.inverse(v)[0])(x)
        return z, log_det, back, log_det_back, jacobian, flow.log_prob(x)

    return jax.vmap(one)(rows)


@pytest.mark.parametrize(
    "transformer",
    [TRANSFORMERS[1], pytest.param(TRANSFORMERS[2], marks=pytest.mark.slow)],
    ids=lambda t: type(t).__name__,
)
def test_multiscale_flow_is_invertible_with_its_log_determinant(transformer):
    rows = np.random.default_rng(4).normal(size=(5, 16))
    z, log_det, back, log_det_back, jacobian, log_p = map(
        np.asarray, _of_images(shaken(of_images(transformer), 6, 0.2), rows)
    )
    np.testing.assert_allclose(back, rows, atol=1e-9)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_det_back, -log_det, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_p, stats.norm.logpdf(z).sum(1) + log_det, rtol=1e-11)
    # a corner tells of all entries in the end, and untrained it is a rotation
    assert (np.abs(jacobian[:, :, 0]) > 0).any(axis=1).all()
    plain = of_images(transformer)
    _, none, _, _, turn, log_p = map(np.asarray, _of_images(plain, rows))
    np.testing.assert_allclose(none, 0, atol=1e-12)
    np.testing.assert_allclose(turn @ turn.transpose(0, 2, 1), np.tile(np.eye(16), (5, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(log_p, stats.norm.logpdf(rows).sum(1), rtol=1e-12)


def test_multiscale_flow_lets_half_of_the_entries_go_at_each_scale():
    parts = of_images(TRANSFORMERS[1]).bijection.bijections
    # the last is the finest: its blocks are 2×2 pixels, and what it keeps is all that the next sees
    finest, coarsest = (np.asarray(part.layers.bijections[1].groups[0]) for part in parts[::-1])
    assert finest.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    assert coarsest.tolist() == [[0, 1, 2, 3, 8, 9, 10, 11]]
    first = parts[-1].layers.bijections[0]
    assert sorted(np.asarray(first.passive[0])) == sorted(coarsest[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (4, 3)}, r"'shape' parameter .* even height and width.* Got \(4, 3\)"),
        ({"shape": (4,)}, r"'shape' parameter .* even height and width.* Got \(4,\)"),
        ({"shape": (4, 4), "scales": 3}, r"'scales' parameter .* \[1, 2\].* Got 3"),
        ({"shape": (4, 4), "patch": 2}, r"'patch' parameter .* odd int.* Got 2"),
    ],
)
def test_multiscale_flow_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        MultiscaleFlow(**options)


def test_multiscale_flow_refuses_rows_of_another_size():
    with pytest.raises(
        ValueError, match=r"'shape' parameter .* of the 12 entries of an event. Got \(4, 4\)"
    ):
        MultiscaleFlow((4, 4))(12, ShiftScale(), key=jax.random.key(0))


@pytest.mark.parametrize("argument", ["dim", "layers", "width", "depth"])
@pytest.mark.parametrize("kind", [*KINDS, inverse_autoregressive_flow, continuous_flow])
def test_sizes_are_checked(kind, argument):
    sizes = {"dim": 2, "layers": 2, "width": 4, "depth": 1} | {argument: 0}
    message = rf"The '{argument}' parameter of a flow must be an int in the range \[1, inf\). Got 0 instead"
    with pytest.raises(ValueError, match=message):
        kind(sizes.pop("dim"), Shift(), **sizes, key=jax.random.key(0))
