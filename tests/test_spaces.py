"""Spaces: what an unknown can be, its free coordinates, its states."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats

from freeenergy import distributions as d
from freeenergy import inference as fi
from freeenergy import models as fm
from freeenergy._core import freeze, parameter, parameter_count, positive, real, simplex
from freeenergy.bijections._affine import PositiveTriangular
from freeenergy.models._structural import Correlation

KEY = jax.random.key(0)


def _angles(value, jacobian):
    """The entries of Qᵀ dQ below the diagonal."""
    turns = np.einsum("kji,kjla->kila", value, jacobian)
    return turns[:, *np.tril_indices(3, -1)]


# an unknown of each kind, and the entries of it that fix the others, or what it counts by
ALL = slice(None)
LOWER = np.tril_indices(3)
CONTINUOUS = {
    "reals": (d.Reals((2, 3)), ALL),
    "positive": (d.Positive((2, 3)), ALL),
    "non-negative": (d.NonNegative((2, 3)), ALL),
    "unit interval": (d.UnitInterval((2, 3)), ALL),
    "correlation": (Correlation((2, 3)), ALL),
    "simplex": (d.Simplex((2, 3)), (ALL, slice(-1))),
    "one part": (d.Simplex((2, 1)), (ALL, slice(-1))),
    "many parts": (d.Simplex((7,)), slice(-1)),
    "positive definite": (d.PositiveDefinite((2, 3, 3)), (ALL, *LOWER)),
    "rotations": (d.Rotations((2, 3, 3)), _angles),
    "triangular": (PositiveTriangular((2, 3, 3)), (ALL, *LOWER)),
}
EACH = pytest.mark.parametrize("name", CONTINUOUS)


def _free(space, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(1).normal(size=fi.free_size(space))


# programs that the tests of a space share
_from = eqx.filter_jit(fi.from_free)
_to = eqx.filter_jit(fi.to_free)


@eqx.filter_jit
def _slopes(space, free):
    """The slopes of the value and of the log-determinant."""
    return jax.jacfwd(lambda free: fi.from_free(space, free))(free)


# ---- free coordinates


@EACH
def test_the_log_determinant_is_that_of_the_jacobian(name):
    space, counted = CONTINUOUS[name]
    at = _free(space)
    value, log_det = _from(space, at)
    assert value.shape == space.shape
    assert space.contains(np.asarray(value)).all()
    jacobian = np.asarray(_slopes(space, at)[0])
    jacobian = counted(np.asarray(value), jacobian) if callable(counted) else jacobian[counted]
    jacobian = jacobian.reshape(math.prod(jacobian.shape[:-1]), at.size)
    assert jacobian.shape == (at.size, at.size)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-10, atol=1e-12)
    assert np.isfinite(log_det)


@EACH
def test_slopes_match_finite_differences(name):
    space, _ = CONTINUOUS[name]
    at = _free(space)
    mix = np.random.default_rng(2).normal(size=space.shape)

    def both(free):
        value, log_det = fi.from_free(space, free)
        return jnp.stack([jnp.sum(mix * value), log_det])

    @jax.jit
    def slopes_and_values(at, around):
        return jax.jacrev(both)(at), jax.vmap(both)(around)

    step = 1e-5
    around = at[None] + step * np.concatenate([np.eye(at.size), -np.eye(at.size)])
    slopes, values = (np.asarray(found) for found in slopes_and_values(at, around))
    moved = values[: at.size] - values[at.size :]
    np.testing.assert_allclose(slopes.T, moved / (2 * step), rtol=1e-6, atol=1e-8)


@EACH
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["64", "32"])
def test_there_and_back(name, dtype):
    space, _ = CONTINUOUS[name]
    at = _free(space).astype(dtype)
    value, _ = _from(space, at)
    again = _to(space, value)
    assert value.dtype == again.dtype == dtype
    np.testing.assert_allclose(again, at, atol=200 * np.finfo(dtype).eps)
    # a stack at once is its members one by one
    if space.shape[0] == 2:
        member = space.with_shape(space.shape[1:])
        one_by_one = [_to(member, v) for v in np.asarray(value)]
        np.testing.assert_allclose(np.concatenate(one_by_one), again, atol=10 * np.finfo(dtype).eps)


@EACH
def test_far_away_values_and_slopes_are_finite(name):
    space, _ = CONTINUOUS[name]
    for scale in (30.0, -30.0):
        at = _free(space, scale)
        value, log_det = _from(space, at)
        assert np.isfinite(value).all()
        assert np.isfinite(log_det)
        assert np.isfinite(_slopes(space, at)[1]).all()


def _sum_over(axes, density):
    """The trapezoidal rule on a grid, which is exact to many digits where all dies out."""
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    return density(grid).sum() * math.prod(axis[1] - axis[0] for axis in axes)


def _wishart(s):
    # SciPy takes matrices one by one: here is its number at the identity, and what changes from there
    scale = np.array([[0.5, 0.2], [0.2, 0.3]])
    change = 2 * np.linalg.slogdet(s)[1] - np.trace(
        np.linalg.inv(scale) @ (s - np.eye(2)), axis1=1, axis2=2
    )
    return stats.wishart(5, scale).logpdf(np.eye(2)) + 0.5 * change


INTEGRALS = {
    "reals": (d.Reals(()), stats.norm(1.0, 2.0).logpdf, [np.arange(-30, 30, 0.25)]),
    "positive": (d.Positive(()), stats.gamma(2.5, scale=0.7).logpdf, [np.arange(-30, 60, 0.25)]),
    "non-negative": (d.NonNegative(()), stats.expon(scale=2.0).logpdf, [np.arange(-40, 80, 0.25)]),
    "unit interval": (d.UnitInterval(()), stats.beta(2.0, 3.0).logpdf, [np.arange(-30, 30, 0.25)]),
    "correlation": (
        Correlation(()),
        lambda v: stats.beta(2.0, 3.0).logpdf((v + 1) / 2) - math.log(2),
        [np.arange(-20, 20, 0.125)],
    ),
    "simplex": (
        d.Simplex((3,)),
        lambda w: stats.dirichlet([2.0, 3.0, 1.5]).logpdf((w / w.sum(axis=1, keepdims=True)).T),
        [np.arange(-20, 20, 0.3)] * 2,
    ),
    "positive definite": (
        d.PositiveDefinite((2, 2)),
        _wishart,
        [np.arange(-6, 2, 0.18), np.arange(-3, 5, 0.25), np.arange(-7, 2, 0.18)],
    ),
}


@pytest.mark.parametrize("name", INTEGRALS)
def test_the_density_of_the_free_vector_integrates_to_one(name):
    space, log_density, axes = INTEGRALS[name]
    assert fi.free_size(space) == len(axes)

    def density(grid):
        value, log_det = jax.jit(jax.vmap(lambda free: fi.from_free(space, free)))(grid)
        return np.exp(log_density(np.asarray(value)) + np.asarray(log_det))

    np.testing.assert_allclose(_sum_over(axes, density), 1.0, rtol=1e-8)


def test_contrasts_keep_the_geometry_of_centred_logarithms():
    rng = np.random.default_rng(3)
    first, second = rng.dirichlet(np.ones(6), size=2)
    free = [np.asarray(jax.jit(simplex.to_free)(w)) for w in (first, second)]
    centred = [np.log(w) - np.log(w).mean() for w in (first, second)]
    np.testing.assert_allclose(
        np.linalg.norm(free[0] - free[1]), np.linalg.norm(centred[0] - centred[1]), rtol=1e-12
    )
    # a step along the gradient ends where a step along the gradient of logits does
    aim = rng.normal(size=6)

    @jax.jit
    def ends(free, logits):
        slope = jax.grad(lambda u: aim @ simplex.from_free(u) ** 2)(free)
        of_logits = jax.grad(lambda v: aim @ jax.nn.softmax(v) ** 2)(logits)
        return simplex.from_free(free - slope), jax.nn.softmax(logits - of_logits)

    np.testing.assert_allclose(*ends(free[0], np.log(first)), rtol=1e-12)


def test_a_single_part_has_no_free_coordinates():
    assert fi.free_size(d.Simplex((1,))) == 0
    value, log_det = fi.from_free(d.Simplex((1,)), jnp.zeros(0))
    assert value.tolist() == [1.0]
    assert log_det == 0
    assert fi.to_free(d.Simplex((1,)), jnp.ones(1)).shape == (0,)


def test_the_edge_of_the_simplex_has_finite_images():
    free = simplex.to_free(jnp.array([0.3, 0.0, 0.7, 0.0]))
    assert np.isfinite(free).all()
    np.testing.assert_allclose(simplex.from_free(free), [0.3, 0.0, 0.7, 0.0], atol=1e-13)


# ---- trees


@eqx.filter_jit
def _start(space, key):
    return fi.start(space, key=key)


def _tree():
    return {"mean": d.Reals((2,)), "rest": (d.Positive(()), d.Simplex((3,))), "none": ()}


def test_a_tree_of_spaces_is_one_vector():
    tree = _tree()
    assert fi.free_size(tree) == 2 + 1 + 2
    begin = _start(tree, KEY)
    vector = _to(tree, begin)
    value, log_det = _from(tree, vector)
    assert jax.tree.structure(value) == jax.tree.structure(begin)
    for a, b in zip(jax.tree.leaves(value), jax.tree.leaves(begin), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    whole = np.asarray(vector)
    parts = [_from(tree["rest"][i], whole[a:b])[1] for i, a, b in ((0, 2, 3), (1, 3, 5))]
    np.testing.assert_allclose(log_det, sum(parts), rtol=1e-12)
    # nothing unknown is a vector of nothing
    assert fi.free_size(()) == fi.to_free((), ()).size == 0


SPACES = [
    d.Reals((2,)),
    d.Positive(()),
    d.NonNegative((2,)),
    d.UnitInterval((2, 2)),
    d.Simplex((2, 3)),
    d.PositiveDefinite((2, 2)),
    d.Rotations((3, 3)),
    d.Binary((4,)),
    d.Counts((4,)),
    d.Categories(3),
    d.Categories(3, (4,)),
    d.Blocks((d.Counts(), d.Reals()), (1, 2)),
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_start_lies_inside_and_changes_with_the_key(space):
    starts = [np.asarray(_start(space, k)) for k in jax.random.split(KEY, 8)]
    assert all(s.shape == space.shape and space.contains(s).all() for s in starts)
    assert any((s != starts[0]).any() for s in starts)
    # a space is a value
    assert hash(space) == hash(space.with_shape(space.shape))
    assert space == space.with_shape(space.shape)
    assert len(jax.tree.leaves(space)) == 1


def test_enumeration_is_the_product():
    tree = {"a": d.Binary((3,)), "b": d.Categories(2), "c": d.Categories(3, (2,))}
    states = fi.enumerate_states(tree)
    expected = list(itertools.product(*[range(2)] * 3, range(2), *[range(3)] * 2))
    found = np.column_stack([np.asarray(states[name]).reshape(len(expected), -1) for name in "abc"])
    assert fi.count_states(tree) == len(expected)
    assert found.tolist() == [list(state) for state in expected]
    assert states["b"].shape == (len(expected),)
    # numbers of labels can be used as an index, binary entries as numbers
    assert states["a"].dtype == float
    assert states["b"].dtype == int
    one = fi.state_at(tree, 17)
    assert [*one["a"], one["b"], *one["c"]] == list(expected[17])
    for name in "abc":
        assert tree[name].contains(np.asarray(states[name])).all()


def test_states_of_many_units_are_had_by_their_number():
    many = (d.Binary((100,)), d.Binary((2,)))
    assert fi.count_states(many) == 2**102
    units, last = fi.state_at(many, 4 * 5 + 2)
    assert units.tolist() == [0.0] * 97 + [1.0, 0.0, 1.0]
    assert last.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (
            lambda: fi.free_size(d.Binary((2,))),
            TypeError,
            r"Free reals need a tree of continuous spaces\. Got Binary",
        ),
        (
            lambda: fi.count_states(d.Reals(())),
            TypeError,
            r"States are numbered in a tree of finite spaces\. Got Re",
        ),
        (
            lambda: fi.start([3], key=KEY),
            TypeError,
            r"The leaves of a tree of spaces must be spaces\. Got 3 instead",
        ),
        (
            lambda: fi.free_size(d.Reals()),
            ValueError,
            r"The 'shape' of Reals must be .*\. Got None instead\.",
        ),
        (
            lambda: fi.free_size(d.Reals(3)),
            ValueError,
            r"The 'shape' of Reals must be .*\. Got 3 instead\.",
        ),
        (
            lambda: fi.count_states(d.Categories()),
            ValueError,
            r"The 'size' of Categories must be .*\. Got None",
        ),
        (
            lambda: fi.enumerate_states(d.Binary((21,))),
            ValueError,
            r"A space of at most 1,048,576 states can be enumerated\. Got one of 2,097,152 instead",
        ),
        (
            lambda: fi.from_free(d.Simplex((3,)), jnp.zeros(3)),
            ValueError,
            r"The free reals must be a vector of 2\. Got an array of shape \(3,\) instead\.",
        ),
        (
            lambda: fi.to_free(d.Reals((3,)), jnp.zeros(2)),
            ValueError,
            r"A value in Reals must have the shape \(3,\)\. Got \(2,\) instead\.",
        ),
        (
            lambda: d.Blocks((d.Counts(),), (2,)).with_shape((3,)),
            ValueError,
            r"The blocks have 2 columns\. Got 3 instead\.",
        ),
    ],
)
def test_refusals(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (d.PositiveDefinite(), [[1.0, 2.0], [2.0, 1.0]]),
        (d.PositiveDefinite(), [[1.0, 0.5], [0.4, 1.0]]),
        (d.PositiveDefinite(), [[1.0, np.inf], [np.inf, 1.0]]),
        (PositiveTriangular(), [[1.0, 0.1], [0.0, 1.0]]),
        (PositiveTriangular(), [[0.0, 0.0], [0.0, 1.0]]),
        (Correlation(), [1.0, -1.5]),
        (d.Categories(2), [2.0]),
    ],
)
def test_what_lies_outside(space, bad):
    assert not space.contains(np.array(bad)).all()
    assert space.contains(np.full_like(bad, np.nan)).all()


# ---- parameters of models


def _mixture(dtype=float):
    rng = np.random.default_rng(4)
    half = rng.normal(size=(3, 2, 2))
    covariances = d.Full(jnp.asarray(half @ half.transpose(0, 2, 1) + 0.3 * np.eye(2), dtype))
    return fm.Mixture(
        jnp.asarray([0.2, 0.3, 0.5], dtype),
        d.Gaussian(jnp.asarray(rng.normal(size=(3, 2)), dtype), covariances),
    )


def _models():
    gaussians = d.Gaussian(jnp.zeros((2, 1)), d.Diagonal(jnp.ones((2, 1))))
    hmm = fm.HMM(jnp.array([0.8, 0.2]), jnp.array([[0.6, 0.4], [0.5, 0.5]]), gaussians)
    factor = fm.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), d.Diagonal(jnp.ones(3)))
    return {"mixture": (_mixture(), 2 + 6 + 9), "hmm": (hmm, 1 + 2 + 4), "factor": (factor, 3 + 3 + 3)}


@pytest.mark.parametrize("name", ["mixture", "hmm", "factor"])
def test_the_free_vector_of_a_model_has_as_many_entries_as_vary(name):
    model, count = _models()[name]
    free = fi.free_vector(model)
    assert isinstance(free, fi.FreeVector)
    assert free.values.shape == (count,)
    assert parameter_count(model) == fi.free_size(fi.parameter_space(model)) == count
    again, log_det = eqx.filter_jit(free.restore)(free.values)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    # the tree of spaces says the same
    value, same = _from(fi.parameter_space(model), free.values)
    np.testing.assert_allclose(log_det, same, rtol=1e-12, atol=1e-14)
    learned = jax.tree.leaves(eqx.filter(again, eqx.is_inexact_array))
    assert all(any(v.shape == leaf.shape for leaf in learned) for v in jax.tree.leaves(value))


def test_the_parameters_of_a_mixture_have_no_flat_direction():
    model = _mixture()
    x = jnp.asarray(np.random.default_rng(5).normal(size=(40, 2)))
    free = fi.free_vector(model)

    @jax.jit
    @jax.hessian
    def curvature(vector):
        return -jnp.mean(jax.vmap(free.restore(vector)[0].log_prob)(x))

    values = np.abs(np.linalg.eigvalsh(curvature(free.values)))
    assert values.min() > 1e-6 * values.max()


class Parts(eqx.Module):
    location: Array = parameter()
    scale: Array = parameter(positive)
    weights: Array = parameter(simplex)
    plain: list[Array]
    count: Array


def _parts():
    return Parts(
        jnp.zeros(2, np.float32), jnp.ones(2), jnp.array([0.2, 0.8]), [jnp.full((1, 2), 7.0)], jnp.arange(3)
    )


def test_what_is_fixed_is_no_part_of_the_vector():
    model = _parts()
    assert fi.free_vector(model).values.size == 2 + 2 + 1 + 2
    mask = freeze(model, lambda m: (m.scale, m.plain))
    free = fi.free_vector(model, mask)
    space = fi.parameter_space(model, mask)
    assert (space.location, space.weights) == (d.Reals((2,)), d.Simplex((2,)))
    assert jax.tree.leaves((space.scale, space.plain, space.count)) == []
    moved, log_det = free.restore(free.values + 1)
    assert moved.scale is model.scale
    assert moved.plain[0] is model.plain[0]
    assert moved.count is model.count
    # each array keeps its type, the vector has the widest
    assert (free.values.dtype, moved.location.dtype, log_det.dtype) == (np.float64, np.float32, np.float64)
    np.testing.assert_allclose(moved.location, 1.0)
    np.testing.assert_allclose(
        np.log(moved.weights[0] / moved.weights[1]), math.log(0.2 / 0.8) + math.sqrt(2), rtol=1e-12
    )
    np.testing.assert_allclose(log_det, np.log(moved.weights).sum() + 0.5 * math.log(2), rtol=1e-12)


def test_a_posterior_over_parameters_by_quadrature():
    """Counts with a Gamma prior on their mean: the free vector has the evidence of the conjugate pair."""
    counts = np.array([2.0, 0.0, 3.0])
    free = fi.free_vector(d.Poisson(jnp.ones(1)))

    def log_joint(vector):
        model, log_det = free.restore(vector)
        likelihood = jnp.sum(jax.vmap(model.log_prob)(jnp.asarray(counts)[:, None]))
        prior = jax.scipy.stats.gamma.logpdf(model.rate[0], 2.0, scale=0.5)
        return likelihood + prior + log_det

    grid = np.arange(-30, 60, 0.25)
    total = np.exp(jax.jit(jax.vmap(log_joint))(grid[:, None])).sum() * 0.25
    shape, rate = 2.0 + counts.sum(), 1 / 0.5 + len(counts)
    expected = (
        math.lgamma(shape)
        - math.lgamma(2.0)
        - 2.0 * math.log(0.5)
        - shape * math.log(rate)
        - sum(math.lgamma(c + 1) for c in counts)
    )
    np.testing.assert_allclose(math.log(total), expected, rtol=1e-9)


def test_the_instances_are_values_of_their_classes():
    assert (real, positive, simplex) == (d.Reals(), d.Positive(), d.Simplex())
    assert positive != d.Positive((3,))


def test_a_flat_law_of_rotations_has_no_preferred_axes():
    """Of two columns every angle θ is as likely: the density of s = tan(θ / 2) is 2 / (1 + s²)."""
    space, s = d.Rotations((2, 2)), np.array([0.0, 0.3, 1.0, 4.0])
    logs = np.array([_from(space, np.array([one]))[1] for one in s])
    np.testing.assert_allclose(logs, np.log(2 / (1 + s**2)), rtol=1e-12)
