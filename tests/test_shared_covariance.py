"""Covariances whose volume, shape or orientation components share."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import ROWS
from scipy import optimize

import freeenergy as fe
from freeenergy._core import as_rotation, parameter_count
from freeenergy.distributions import (
    AbstractSharing,
    Full,
    Gaussian,
    Rotations,
    Shared,
    Tied,
    component_axes,
    rescaled_stack,
)

KINDS = list(itertools.product([False, True], repeat=3))
NAMES = ["".join("VE"[shared] for shared in kind) for kind in KINDS]
EACH = pytest.mark.parametrize("kind", KINDS, ids=NAMES)
UPPER = np.triu_indices(2)


def structure(kind, **values):
    return Shared(volume=kind[0], shape=kind[1], orientation=kind[2], **values)


def scatters(members, dim, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(members, dim, dim + 2)) * np.linspace(0.5, 3.0, dim)[None, :, None]
    return roots @ roots.transpose(0, 2, 1), rng.uniform(10, 50, members)


def moments(S, n, mean=None):
    """What `from_moments` is given, of rows with these covariances and weights."""
    mean = np.zeros(S.shape[:2]) if mean is None else mean
    upper = np.triu_indices(S.shape[-1])
    second = (S + mean[:, :, None] * mean[:, None, :])[:, *upper] * n[:, None]
    weight = np.broadcast_to(n[:, None], mean.shape)
    return np.array(weight), mean, second


@eqx.filter_jit
def fitted(covariance, weight, mean, second):
    return covariance.from_moments(weight, mean, second)


@eqx.filter_jit
def dense(stack):
    return jax.vmap(lambda member: member.covariance.matrix(), (component_axes(stack),))(stack)


def matrices(covariance, members):
    return np.asarray(dense(Gaussian(np.zeros((members, covariance.noise_size)), covariance)))


def loss(Sigma, S, n):
    terms = np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, S), axis1=1, axis2=2)
    return n @ terms / n.sum()


def in_plane(free, kind, members):
    """Σ_k of two columns from numbers without constraint: log λ, half the log of the ratio, the angle."""
    parts, used = [], 0
    for shared in kind:
        size = 1 if shared else members
        parts.append(np.broadcast_to(free[used : used + size], members))
        used += size
    volume, ratio, angle = parts
    c, s = np.cos(angle), np.sin(angle)
    D = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    values = np.exp(volume)[:, None] * np.exp(np.stack([ratio, -ratio], -1))
    return (D * values[:, None, :]) @ D.transpose(0, 2, 1), used


@EACH
def test_it_is_the_best_there_is(kind):
    """Against a search from many places, for three components of two columns."""
    S, n = scatters(3, 2)
    found = matrices(fitted(structure(kind), *moments(S, n, np.ones((3, 2)))), 3)
    size = in_plane(np.zeros(9), kind, 3)[1]
    rng = np.random.default_rng(0)
    best = min(
        optimize.minimize(
            lambda free: loss(in_plane(free, kind, 3)[0], S, n), rng.normal(size=size), method="BFGS"
        ).fun
        for _ in range(8)
    )
    np.testing.assert_allclose(loss(found, S, n), best, rtol=1e-7)


@EACH
def test_what_is_shared_is_the_same_and_the_rest_is_not(kind):
    S, n = scatters(3, 3)
    made = fitted(structure(kind), *moments(S, n))
    assert isinstance(made, AbstractSharing)
    values, vectors = np.linalg.eigh(matrices(made, 3))
    volume = np.prod(values, axis=1) ** (1 / 3)
    same = (
        np.allclose(volume, volume[0]),
        np.allclose(values / volume[:, None], (values / volume[:, None])[0]),
        np.allclose(np.abs(np.einsum("ij,kil->kjl", vectors[0], vectors)).max(axis=1), 1.0, atol=1e-6),
    )
    assert same == kind
    # mclust counts so
    free = (1 if kind[0] else 3) + 2 * (1 if kind[1] else 3) + 3 * (1 if kind[2] else 3)
    assert parameter_count(made) == free


def test_nothing_shared_is_full_and_everything_is_tied():
    S, n = scatters(3, 3)
    given = moments(S, n, np.arange(9.0).reshape(3, 3))
    np.testing.assert_allclose(matrices(fitted(Shared(), *given), 3), fitted(Full(), *given).matrix())
    both = fitted(structure((True, True, True)), *given)
    tied = fitted(Tied(Full()), *given).matrix()
    np.testing.assert_allclose(matrices(both, 3), np.broadcast_to(tied, (3, 3, 3)))
    # one member alone is a matrix like any other
    alone = fitted(Shared(shape=True), *(part[0] for part in given))
    np.testing.assert_allclose(alone.matrix(), S[0])


@pytest.mark.parametrize("kind", [(False, True, True), (False, False, True)], ids=["VEE", "VVE"])
def test_from_present_values_it_never_gets_worse(kind):
    before, after = scatters(4, 3, seed=1), scatters(4, 3, seed=2)
    old = fitted(structure(kind), *moments(*before))
    new = fitted(old, *moments(*after))
    assert loss(matrices(new, 4), *after) <= loss(matrices(old, 4), *after)


def test_a_member_acts_as_its_matrix():
    S, n = scatters(1, 3)
    member = fitted(Shared(), *(part[0] for part in moments(S, n)))
    Sigma, v, factor = S[0], np.array([1.0, -2.0, 0.5]), np.array([1.0, 2.0, 3.0])

    @eqx.filter_jit
    def answers(member, v):
        coefficients = member.precision_coefficients()
        made = member.from_precision_coefficients(coefficients)
        twice = member.scale(jnp.array(2.0))
        assert isinstance(twice, Shared)
        return {
            "matrix": member.matrix(),
            "variances": member.variances(),
            "log_det": member.log_det(),
            "solve": (member.solve(v), member.solve(jnp.eye(3))),
            "whiten": member.whiten(v),
            "colour": [member.colour(e) for e in jnp.eye(3)],
            "precision": member.precision()[0],
            "product": coefficients @ member.second_moments(v),
            "made": made.matrix(),
            "scaled": (twice.matrix(), member.scale(jnp.asarray(factor)).matrix()),
        }

    found = jax.tree.map(np.asarray, answers(member, v))
    np.testing.assert_allclose(found["matrix"], Sigma)
    np.testing.assert_allclose(found["variances"], np.diag(Sigma))
    np.testing.assert_allclose(found["log_det"], np.linalg.slogdet(Sigma)[1])
    np.testing.assert_allclose(found["solve"][0], np.linalg.solve(Sigma, v))
    np.testing.assert_allclose(found["solve"][1], np.linalg.inv(Sigma), atol=1e-12)
    np.testing.assert_allclose(found["whiten"] @ found["whiten"], v @ np.linalg.solve(Sigma, v))
    root = np.stack(found["colour"], axis=1)
    np.testing.assert_allclose(root @ root.T, Sigma)
    np.testing.assert_allclose(found["precision"], np.linalg.inv(Sigma), atol=1e-12)
    np.testing.assert_allclose(found["product"], -0.5 * v @ np.linalg.solve(Sigma, v))
    np.testing.assert_allclose(found["made"], Sigma)
    np.testing.assert_allclose(found["scaled"][0], 4 * Sigma)
    np.testing.assert_allclose(found["scaled"][1], Sigma * np.outer(factor, factor))
    with pytest.raises(ValueError, match=r"Shared\(\) has no values yet"):
        Shared().matrix()


def test_stacks_change_their_units_and_keep_what_they_share():
    S, n = scatters(3, 2)
    stack = Gaussian(jnp.ones((3, 2)), fitted(Shared(shape=True), *moments(S, n)))
    moved = rescaled_stack(stack, jnp.zeros(2), jnp.array(2.0))
    assert moved.covariance.ratios.shape == (2,)
    np.testing.assert_allclose(matrices(moved.covariance, 3), matrices(stack.covariance, 3) / 4)


def test_every_orthogonal_matrix_is_a_rotation_but_for_signs():
    rng, there = np.random.default_rng(0), jax.jit(jax.vmap(as_rotation))
    back = jax.jit(lambda R: Rotations().from_free(Rotations().to_free(R)))
    for dim in (1, 2, 6):
        Q = np.linalg.qr(rng.normal(size=(20, dim, dim)))[0]
        R = np.asarray(there(Q))
        np.testing.assert_allclose(np.abs(R), np.abs(Q))
        assert Rotations().contains(R).all()
        np.testing.assert_allclose(back(R), R, atol=1e-11)
    # half a turn, which Cayley's map does not reach
    np.testing.assert_allclose(as_rotation(-jnp.eye(3)), np.eye(3))
    assert Rotations().problem(np.eye(2), closed=False) is None
    assert "reflects" in Rotations().problem(np.diag([1.0, -1.0]), closed=False)
    assert "shape" in Rotations().problem(np.ones(2), closed=False)


MIXED = np.concatenate([ROWS @ np.diag([3.0, 0.5]), ROWS[:, ::-1] @ np.diag([1.0, 0.3]) + 6.0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@EACH
def test_em_never_lowers_the_likelihood(kind):
    model = fe.GaussianMixture(2, structure(kind), random_state=0, tol=1e-9, max_iter=60)
    model.fit(MIXED)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-10).all()
    # a weight and two means, and of each covariance the volume, the shape and the angle
    expected = 1 + 4 + sum(1 if shared else 2 for shared in kind)
    assert model.summary().n_parameters == expected
    np.testing.assert_allclose(objective[-1], -model.score(MIXED), rtol=1e-9)


def test_narrower_structures_are_no_better():
    """Nested models on one set of rows: what shares more cannot have a larger likelihood."""
    scores = {}
    for name in ("EEE", "VEE", "VVV"):
        kind = KINDS[NAMES.index(name)]
        model = fe.GaussianMixture(2, structure(kind), random_state=0, tol=1e-8).fit(MIXED)
        scores[name] = model.score(MIXED)
    assert scores["EEE"] <= scores["VEE"] + 1e-6 <= scores["VVV"] + 2e-6
    full = fe.GaussianMixture(2, random_state=0, tol=1e-8).fit(MIXED)
    np.testing.assert_allclose(scores["VVV"], full.score(MIXED), atol=1e-5)
    tied = fe.GaussianMixture(2, Tied(Full()), random_state=0, tol=1e-8).fit(MIXED)
    np.testing.assert_allclose(scores["EEE"], tied.score(MIXED), atol=1e-5)


def test_classes_may_share_a_shape():
    y = np.repeat([0, 1], 120)
    model = fe.DiscriminantAnalysis(Shared(shape=True, orientation=True)).fit(MIXED, y)
    values = np.linalg.eigvalsh(model.covariances_)
    np.testing.assert_allclose(values[0] / values[0, 0], values[1] / values[1, 0])
    prior = fe.distributions.NormalInverseWishart(jnp.zeros(2), jnp.ones(()), jnp.array(4.0), jnp.eye(2))
    model.set_params(component_prior=prior)
    with pytest.raises(ValueError, match="must be None where the classes share"):
        model.fit(MIXED, y)


ALIGNED = {
    "VEI": {"shape": True},
    "EVI": {"volume": True},
    "VVI": {},
    "EEI": {"volume": True, "shape": True},
}


def aligned_variances(free, name, members, dim):
    """Variances of each member and column from numbers without constraint."""
    sizes = {"VEI": members, "EVI": 1, "VVI": members, "EEI": 1}[name]
    shapes = free[sizes:].reshape(-1, dim - 1)
    shapes = np.column_stack([shapes, -shapes.sum(axis=1)])
    return np.exp(np.broadcast_to(free[:sizes, None], (members, 1)) + shapes)


@pytest.mark.parametrize("name", ALIGNED)
def test_aligned_axes_are_as_good_as_any_minimum_of_bfgs(name):
    S, n = scatters(3, 3, seed=4)
    found = fitted(Shared(**ALIGNED[name], aligned=True), *moments(S, n))
    assert found.axes is None
    own = matrices(found, 3)
    np.testing.assert_array_equal(own[:, ~np.eye(3, dtype=bool)], 0)
    sizes = 1 if "volume" in ALIGNED[name] else 3
    numbers = sizes + 2 * (1 if "shape" in ALIGNED[name] else 3)

    def target(free):
        return loss(np.stack([np.diag(v) for v in aligned_variances(free, name, 3, 3)]), S, n)

    best = optimize.minimize(target, np.zeros(numbers), tol=1e-12).fun
    assert loss(own, S, n) == pytest.approx(best, abs=1e-9)
    stack = Gaussian(np.zeros((3, 3)), found)
    assert parameter_count(stack) == 9 + numbers
    # goes on from there, and one member alone has its own variances
    again = fitted(found, *moments(S, n))
    np.testing.assert_allclose(matrices(again, 3), own, rtol=1e-6)
    alone = fitted(Shared(**ALIGNED[name], aligned=True), n[:1].repeat(3), np.zeros(3), moments(S, n)[2][0])
    np.testing.assert_allclose(alone.matrix(), np.diag(np.diag(S[0])), rtol=1e-6)
    np.testing.assert_allclose(alone.scale(jnp.array(2.0)).matrix(), 4 * alone.matrix(), rtol=1e-12)


def test_mixtures_with_aligned_axes_are_fitted_with_and_without_holes(tmp_path):
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(0, [1.0, 3.0], (60, 2)), rng.normal(8, [2.0, 6.0], (60, 2))])
    model = fe.GaussianMixture(2, Shared(shape=True, aligned=True), random_state=0).fit(X)
    ratio = model.covariances_[:, 1, 1] / model.covariances_[:, 0, 0]
    np.testing.assert_allclose(ratio[0], ratio[1], rtol=1e-9)
    assert (model.covariances_[:, 0, 1] == 0).all()
    wide = fe.GaussianMixture(2, fe.distributions.Diagonal(), random_state=0).fit(X)
    tied = fe.GaussianMixture(2, Tied(fe.distributions.Diagonal()), random_state=0).fit(X)
    assert tied.score(X) < model.score(X) < wide.score(X) + 1e-9
    holes = X.copy()
    holes[::6, 0] = np.nan
    again = fe.GaussianMixture(2, Shared(shape=True, aligned=True), random_state=0).fit(holes)
    assert (np.diff(again.history_["objective"]) < 1e-9).all()
    again.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        fe.load(tmp_path / "m.safetensors").score_samples(X), again.score_samples(X)
    )
    with pytest.raises(ValueError, match="'orientation' of Shared must be False if its axes are aligned"):
        Shared(orientation=True, aligned=True)
