"""Every bijection: exact inverse, log-determinant by automatic differentiation, extremes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from freeenergy._core import constrain, learnable, parameter_count, unconstrain
from freeenergy.bijections import (
    AbstractBijection,
    AbstractTransformer,
    Affine,
    Chain,
    Coupling,
    Elementwise,
    Exp,
    GeneralAffine,
    Identity,
    Inverse,
    MaskedAutoregressive,
    MaskedMLP,
    Permutation,
    Repeated,
    Shared,
    Shift,
    ShiftScale,
    Sigmoid,
    Softplus,
    Spline,
    Tanh,
    TriangularAffine,
)

DIM = 3
RANK = (2, 0, 1)
POINTS = np.random.default_rng(1).normal(size=(7, DIM)) * 1.2
FOUR = np.random.default_rng(2).normal(size=(7, 4))
TRANSFORMERS = [Shift(), ShiftScale(), Spline(bins=5, bound=2.5)]


def shaken(tree, seed, scale=0.5):
    """`tree` with noise on every floating-point array, so that nothing is at its start."""
    rng = np.random.default_rng(seed)

    def shake(leaf):
        if not eqx.is_inexact_array(leaf):
            return leaf
        return jnp.asarray(np.asarray(leaf) + scale * rng.normal(size=leaf.shape))

    return jax.tree.map(shake, tree)


def coupling(transformer, seed, scale=0.5):
    layer = Coupling.with_mlp(
        jnp.array([2, 0, 1]), transformer, width=6, depth=1, dtype=jnp.float64, key=jax.random.key(seed)
    )
    return shaken(layer, seed, scale)


def autoregressive(transformer, seed, scale=0.5, width=6):
    network = MaskedMLP(
        jnp.array(RANK),
        transformer.size,
        width=width,
        depth=2,
        dtype=jnp.float64,
        key=jax.random.key(seed),
    )
    return shaken(MaskedAutoregressive(network, transformer), seed, scale)


def cases() -> dict[str, AbstractBijection]:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(DIM, DIM))
    lower = np.tril(matrix, -1) + np.diag([0.5, 2.0, 1.5])
    shift = jnp.asarray(rng.normal(size=DIM))
    affine = Affine(shift, jnp.array([0.1, 1.0, 7.0]))
    triangular = TriangularAffine(shift, jnp.asarray(lower))
    table = {
        "identity": Identity(),
        "exp": Exp(),
        "softplus": Softplus(),
        "sigmoid": Sigmoid(),
        "logit": Chain([Sigmoid(), Inverse(Sigmoid())]),
        "tanh": Tanh(),
        "affine": affine,
        "standardise": Affine.standardise(shift, jnp.array([0.1, 0.0, 7.0])),
        "triangular": triangular,
        "whiten": TriangularAffine.whiten(shift, jnp.asarray(matrix @ matrix.T)),
        "general": GeneralAffine(shift, jnp.asarray(matrix)),
        "permutation": Permutation(jnp.array([1, 2, 0])),
        "chain": Chain([affine, Permutation(jnp.array([2, 0, 1])), triangular, Softplus()]),
        "inverse": Inverse(Inverse(triangular)),
        "shared": Shared(Softplus(), jnp.array([[2], [0]])),
        "part": Shared(GeneralAffine(shift[:2], jnp.asarray(matrix[:2, :2])), jnp.array([[2, 0]])),
        "repeated": Repeated(shaken(Affine(jnp.zeros((4, DIM)), jnp.full((4, DIM), 3.0)), 1)),
    }
    for i, transformer in enumerate(TRANSFORMERS):
        name = type(transformer).__name__
        parameters = jnp.asarray(rng.normal(size=(DIM, transformer.size)))
        table[f"elementwise {name}"] = Elementwise(transformer, parameters)
        table[f"coupling {name}"] = coupling(transformer, i)
        table[f"autoregressive {name}"] = autoregressive(transformer, i)
    return table


CASES = cases()


@eqx.filter_jit
def _both_ways(bijection, points):
    """y, log-determinant, and back; with the Jacobian by automatic differentiation."""

    def one(x):
        y, log_det = bijection.forward(x)
        back, log_det_back = bijection.inverse(y)
        jacobian = jax.jacfwd(lambda v: bijection.forward(v)[0])(x)
        return y, log_det, back, log_det_back, jacobian

    return jax.vmap(one)(points)


def both_ways(bijection, points=POINTS):
    return map(np.asarray, _both_ways(bijection, jnp.asarray(points)))


@pytest.mark.parametrize("name", CASES)
def test_inverse_and_log_determinant(name):
    y, log_det, back, log_det_back, jacobian = both_ways(CASES[name])
    np.testing.assert_allclose(back, POINTS, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(log_det_back, -log_det, rtol=1e-11, atol=1e-11)
    assert log_det.shape == (7,)
    assert y.shape == POINTS.shape


def test_inverse_of_inverse_is_the_same_map():
    x = jnp.array([0.3, -1.0, 2.0])
    for got, wanted in zip(CASES["inverse"].forward(x), CASES["triangular"].forward(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_log_determinants_of_a_chain_add():
    x = jnp.array([0.3, -1.0, 0.2])
    parts = CASES["chain"].bijections
    total, value = 0.0, x
    for part in parts:
        value, log_det = part.forward(value)
        total += float(log_det)
    np.testing.assert_allclose(CASES["chain"].forward(x)[1], total, rtol=1e-14)
    np.testing.assert_array_equal(CASES["chain"].forward(x)[0], value)


def test_groups_share_a_map_and_other_entries_stay():
    matrix = CASES["part"].bijection.matrix
    for groups in ([[2, 0]], [[0, 2], [3, 1]]):
        # the matrix once for each group, nothing for the others: log-determinants add
        y, log_det, back, _, jacobian = both_ways(Shared(CASES["part"].bijection, jnp.array(groups)), FOUR)
        wanted = np.eye(4)
        for group in groups:
            wanted[np.ix_(group, group)] = matrix
        np.testing.assert_allclose(jacobian, np.tile(wanted, (7, 1, 1)), rtol=1e-14)
        np.testing.assert_allclose(log_det, len(groups) * np.linalg.slogdet(matrix)[1], rtol=1e-12)
        np.testing.assert_allclose(back, FOUR, rtol=1e-12, atol=1e-12)
        others = np.setdiff1d(range(4), groups)
        np.testing.assert_array_equal(y[:, others], FOUR[:, others])


def test_repeated_is_the_chain_of_its_layers():
    stacked = CASES["repeated"].layers
    chain = Chain([jax.tree.map(lambda a, i=i: a[i], stacked) for i in range(4)])
    x = jnp.array([0.3, -1.0, 0.2])
    for got, wanted in zip(CASES["repeated"].forward(x), chain.forward(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13)


@pytest.mark.parametrize("name", ["softplus", "sigmoid", "tanh", "exp"])
def test_elementwise_log_determinants_stay_finite_far_out(name):
    for x in (-700.0, 700.0):
        assert np.isfinite(CASES[name].forward(jnp.array([x]))[1])
    tiny = jnp.array([1e-300])
    x, log_det = CASES[name].inverse(tiny)
    assert np.isfinite(x).all()
    assert np.isfinite(log_det)


def test_elementwise_values_by_high_precision():
    # log tanh'(20) = log(1 − tanh² 20), log σ'(40) and softplus⁻¹ at both ends, by hand in long form
    assert float(Tanh().forward(jnp.array([20.0]))[1]) == pytest.approx(np.log(4) - 40, rel=1e-14)
    assert float(Sigmoid().forward(jnp.array([40.0]))[1]) == pytest.approx(-40, rel=1e-14)
    np.testing.assert_allclose(Softplus().inverse(jnp.array([1e-12, 800.0]))[0], [np.log(1e-12), 800.0])


FAR = [n for n in CASES if n.startswith("elementwise")] + ["coupling Spline", "autoregressive Spline"]


@pytest.mark.parametrize("name", FAR)
def test_flow_layers_and_their_gradients_are_finite_far_out(name):
    layer = CASES[name]
    points = jnp.array([[1e6, -1e6, 1e6], [2.5, -2.5, 2.5], [0.0, 0.0, 0.0]])

    @eqx.filter_jit
    @eqx.filter_grad(has_aux=True)
    def total(layer, points):
        y, forward = jax.vmap(layer.forward)(points)
        x, backward = jax.vmap(layer.inverse)(points)
        return jnp.sum(forward) + jnp.sum(backward) + 1e-9 * jnp.sum(y + x), (y, x, forward, backward)

    gradient, out = total(layer, points)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((gradient, out)))


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_untrained_layers_are_the_identity(transformer):
    constant = Elementwise(transformer, jnp.zeros((DIM, transformer.size)))
    for layer in (coupling(transformer, 0, scale=0), autoregressive(transformer, 0, scale=0), constant):
        y, log_det, *_ = both_ways(layer)
        np.testing.assert_allclose(y, POINTS, rtol=1e-13)
        np.testing.assert_allclose(log_det, 0, atol=1e-13)


def test_additive_coupling_preserves_volume_exactly():
    y, log_det, _, log_det_back, jacobian = both_ways(CASES["coupling Shift"])
    assert (log_det == 0).all()
    assert (log_det_back == 0).all()
    np.testing.assert_allclose(np.linalg.det(jacobian), 1, rtol=1e-14)
    np.testing.assert_array_equal(y[:, 2], POINTS[:, 2])
    assert (y[:, :2] != POINTS[:, :2]).all()


@pytest.mark.parametrize("width", [1, 6])
def test_autoregressive_jacobian_is_triangular_in_its_order(width):
    *_, jacobian = both_ways(autoregressive(ShiftScale(), 4, width=width))
    order = np.argsort(RANK)
    jacobian = jacobian[:, order][:, :, order]
    assert (np.triu(jacobian, 1) == 0).all()
    assert (np.diagonal(jacobian, axis1=1, axis2=2) > 0).all()
    # the last entry sees all before it, and a layer of enough units lets every entry do so
    assert (jacobian[:, -1] != 0).all()
    assert (jacobian[:, 1, 0] != 0).all() == (width > 1)


def test_shift_scale_is_bounded():
    wild = jnp.array([0.0, 1e6])
    assert float(ShiftScale(bound=2.0).forward(jnp.array(1.0), wild)[0]) == pytest.approx(np.exp(2))


def test_spline_is_smooth_increasing_and_the_identity_outside():
    spline = TRANSFORMERS[2]
    parameters = jnp.asarray(np.random.default_rng(3).normal(size=spline.size))
    x = np.linspace(-3, 3, 60001)
    y, log_slope = jax.jit(jax.vmap(lambda v: spline.forward(v, parameters)))(jnp.asarray(x))
    y, slope = np.asarray(y), np.exp(np.asarray(log_slope))
    assert (np.diff(y) > 0).all()
    outside = np.abs(x) >= 2.5
    np.testing.assert_array_equal(y[outside], x[outside])
    np.testing.assert_array_equal(slope[outside], 1)
    # the fundamental theorem, by the trapezoidal rule: the slope is continuous and is that of y
    integral = np.concatenate([[0], np.cumsum((slope[1:] + slope[:-1]) / 2 * np.diff(x))])
    np.testing.assert_allclose(y - y[0], integral, atol=1e-7)
    assert np.abs(np.diff(slope)).max() < 0.05


def test_spline_refuses_too_many_bins():
    with pytest.raises(
        ValueError, match=r"The 'bins' parameter of Spline .* \[1, 1000\). Got 1000 instead"
    ):
        Spline(bins=1000)
    assert issubclass(Spline, AbstractTransformer)


def test_standardise_far_from_zero():
    x = 1e8 + np.array([0.25, 0.5, 0.75])
    bijection = Affine.standardise(jnp.full(3, 1e8 + 0.5), jnp.full(3, 0.25))
    y, log_det = bijection.forward(jnp.asarray(x))
    np.testing.assert_array_equal(y, [-1, 0, 1])
    assert float(log_det) == pytest.approx(3 * np.log(4))


def test_whitening_makes_the_covariance_one_in_any_unit():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3)) + 5
    unit = np.array([1e-6, 1.0, 1e6])

    def whitened(rows):
        covariance = np.cov(rows.T, bias=True)
        bijection = TriangularAffine.whiten(jnp.asarray(rows.mean(0)), jnp.asarray(covariance))
        white, log_det = jax.vmap(bijection.forward)(jnp.asarray(rows))
        np.testing.assert_allclose(log_det, -0.5 * np.linalg.slogdet(covariance)[1], rtol=1e-9)
        return np.asarray(white)

    np.testing.assert_allclose(np.cov(whitened(rows).T, bias=True), np.eye(3), atol=1e-10)
    np.testing.assert_allclose(whitened(rows * unit), whitened(rows), atol=1e-8)


def test_whitening_survives_dependent_and_constant_columns():
    first = np.random.default_rng(2).normal(size=50)
    rows = np.stack([first, 2 * first, np.ones(50)], axis=1)
    bijection = TriangularAffine.whiten(jnp.asarray(rows.mean(0)), jnp.asarray(np.cov(rows.T)))
    white, log_det = jax.vmap(bijection.forward)(jnp.asarray(rows))
    assert np.isfinite(log_det).all()
    assert np.abs(white).max() < 10
    back = jax.vmap(lambda y: bijection.inverse(y)[0])(white)
    np.testing.assert_allclose(back, rows, atol=1e-12)


def test_triangular_map_of_noise_is_the_gaussian_of_its_covariance():
    bijection = CASES["triangular"]
    x = jnp.array([0.3, -1.0, 2.0])
    z, log_det = bijection.inverse(x)
    lower = np.asarray(bijection.lower)
    wanted = stats.multivariate_normal(np.asarray(bijection.shift), lower @ lower.T).logpdf(np.asarray(x))
    assert float(log_det) + stats.norm.logpdf(np.asarray(z)).sum() == pytest.approx(wanted, rel=1e-12)


def test_parameters_keep_their_constraints():
    model = Chain([CASES["affine"], CASES["triangular"]])
    free = unconstrain(model)
    for got, wanted in zip(jax.tree.leaves(constrain(free)), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)
    moved = constrain(jax.tree.map(lambda a: a - 3, free))
    affine, triangular = moved.bijections
    assert (np.asarray(affine.scale) > 0).all()
    assert (np.diagonal(triangular.lower) > 0).all()
    assert (np.triu(triangular.lower, 1) == 0).all()


def test_orders_are_not_learnable():
    assert parameter_count(Permutation(jnp.array([1, 0]))) == 0
    layer = autoregressive(Shift(), 0)
    assert learnable(layer).network.rank is False
    assert parameter_count(layer) == (3 * 6 + 6) + (6 * 6 + 6) + (6 * 3 + 3)
    assert parameter_count(coupling(Shift(), 0)) == (1 * 6 + 6) + (6 * 2 + 2)
