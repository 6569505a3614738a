"""Rows of the notes of McKinzie on *Deep Learning*, each with the number or identity that shows it."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, linalg, optimize, signal, special, stats
from scipy.special import expit, logit, logsumexp
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import zero_one_loss
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from freeenergy.bijections import Affine, TriangularAffine
from freeenergy.distributions import (
    Bernoulli,
    Beta,
    BetaPrior,
    Categorical,
    Diagonal,
    Gaussian,
    Given,
    Information,
    Spherical,
    Transformed,
    conditional,
    entropy,
    joint,
    kl_divergence,
)
from freeenergy.evaluation import bootstrap_interval, t_interval
from freeenergy.inference import (
    Amortised,
    Enumeration,
    Finite,
    effective_sample_size,
    free_energy,
    importance_estimate,
    run_chain,
    self_normalised_mean,
)
from freeenergy.learning import (
    Batch,
    Boltzmann,
    ConditionalContrastive,
    Gradient,
    Reconstruction,
    fit,
    negative_conditional_log_likelihood,
    only,
)
from freeenergy.models import (
    VAE,
    Autoencoder,
    Harmonium,
    LaplaceSource,
    LinearGaussian,
    Mixture,
    SoftmaxModel,
    SparseCoding,
    Units,
    mlp_autoencoder,
)
from freeenergy.nn import MLP, Linear

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
SYMMETRIC = np.array([[2.0, 0.5], [0.5, 1.0]])


def close(found, expected, atol=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def descend(optimiser, gradient, start, steps):
    """The parameters after each step of an optimiser of Optax."""
    theta, path = jnp.asarray(start), []
    state = optimiser.init(theta)

    @jax.jit
    def step(slope, state, theta):
        with jax.numpy_dtype_promotion("standard"):
            update, state = optimiser.update(slope, state, theta)
        return theta + update, state

    for _ in range(steps):
        theta, state = step(gradient(np.asarray(theta)), state, theta)
        path.append(np.asarray(theta))
    return np.array(path)


# ---- 1.1 linear algebra


# A1, A2, A3
def test_columns_ranks_and_singular_matrices():
    a, x = RNG.normal(size=(2, 3)), RNG.normal(size=3)
    close(np.matmul(a, x), sum(x[i] * a[:, i] for i in range(3)), 1e-14)
    wide = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])  # wide, and yet not every b has a solution
    rank = np.linalg.matrix_rank
    assert rank(a) == 2
    assert rank(wide) == 1
    for b, solvable in (([1.0, 2.0], True), ([1.0, 0.0], False)):
        found = np.linalg.lstsq(wide, np.array(b), rcond=None)[0]
        assert bool(rank(np.column_stack([wide, b])) == 1) is solvable
        assert bool(np.allclose(wide @ found, b)) is solvable
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    close(np.sort(np.linalg.eigvals(singular)), [0, 5], 1e-12)
    close(np.linalg.det(singular), 0, 1e-12)
    close(np.linalg.svd(singular, compute_uv=False)[-1], 0, 1e-12)


# A4
def test_norms_and_what_is_none():
    norm = np.linalg.norm
    x, y = RNG.normal(size=(2, 5))
    for p in (1, 2, 3, np.inf):
        assert norm(x + y, p) <= norm(x, p) + norm(y, p) + 1e-12
        close(norm(-2.5 * x, p), 2.5 * norm(x, p), 1e-12)
        assert norm(np.zeros(5), p) == 0
    close(norm(x, 200), norm(x, np.inf), 1e-2)
    assert norm(x, np.inf) == np.abs(x).max()
    a = RNG.normal(size=(2, 3))
    close(norm(a, "fro"), np.sqrt(np.sum(a**2)), 1e-14)
    one, two = np.eye(2)
    assert norm(one + two, 0.5) > norm(one, 0.5) + norm(two, 0.5)  # no triangle inequality below one
    assert norm(2 * one, 0) != 2 * norm(one, 0)  # "L0" is not homogeneous


# A5, A6, A7, A8
def test_orthogonal_matrices_eigenvectors_and_definiteness():
    q = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    close(q.T @ q, np.eye(3), 1e-14)
    close(q @ q.T, np.eye(3), 1e-14)
    tall = np.linalg.qr(RNG.normal(size=(3, 2)))[0]
    close(tall.T @ tall, np.eye(2), 1e-14)
    assert np.abs(tall @ tall.T - np.eye(3)).max() > 0.1
    values, vectors = np.linalg.eigh(SYMMETRIC)
    x = RNG.normal(size=2)
    turned = vectors.T @ x
    scaled = values * turned
    close(vectors @ scaled, SYMMETRIC @ x, 1e-14)
    close(
        [np.linalg.norm(turned), np.linalg.norm(vectors @ scaled)],
        [np.linalg.norm(x), np.linalg.norm(scaled)],
    )
    close(x @ SYMMETRIC @ x, np.sum(values * turned**2), 1e-14)
    general = np.array([[1.0, 2.0], [0.0, 3.0]])
    values, vectors = np.linalg.eig(general)
    close(vectors @ np.diag(values) @ np.linalg.inv(vectors), general, 1e-12)
    close(np.linalg.norm(vectors, axis=0), 1, 1e-14)  # normalised, yet the inverse is no transpose
    assert np.abs(vectors.T @ vectors - np.eye(2)).max() > 0.1
    assert np.linalg.cond(np.linalg.eig(np.array([[1.0, 1.0], [0.0, 1.0]]))[1]) > 1e15  # defective
    gram = tall @ tall.T
    assert np.linalg.eigvalsh(gram).min() > -1e-12
    np.linalg.cholesky(SYMMETRIC)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))  # eigenvalues 3 and −1


# A9, A10, A11
def test_singular_values_pseudoinverse_and_volume():
    a = RNG.normal(size=(4, 2))
    u, d, vt = np.linalg.svd(a)
    close(u[:, :2] * d @ vt, a, 1e-14)
    close(u @ u.T, np.eye(4), 1e-14)
    close(np.sort(np.linalg.eigvalsh(a.T @ a))[::-1], d**2, 1e-12)
    close(np.sort(np.linalg.eigvalsh(a @ a.T))[:2], 0, 1e-12)  # the larger product has extra zeros
    close(np.sum(d**2), np.linalg.norm(a) ** 2, 1e-12)
    p = np.linalg.pinv(a)
    for left, right in ((a @ p @ a, a), (p @ a @ p, p), ((a @ p).T, a @ p), ((p @ a).T, p @ a)):
        close(left, right, 1e-12)
    y = RNG.normal(size=4)
    close(p @ y, np.linalg.lstsq(a, y, rcond=None)[0], 1e-12)
    short = np.linalg.pinv(a.T) @ y[:2]
    close(a.T @ short, y[:2], 1e-12)
    close(short @ linalg.null_space(a.T), 0, 1e-12)  # of all solutions the shortest
    close(np.linalg.pinv(SYMMETRIC), np.linalg.inv(SYMMETRIC), 1e-12)
    b = RNG.normal(size=(2, 2))
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) @ b.T
    s, t = corners.T
    area = 0.5 * abs(s @ np.roll(t, 1) - t @ np.roll(s, 1))
    close(area, abs(np.linalg.det(b)), 1e-14)
    close(np.prod(np.linalg.eigvals(b)).real, np.linalg.det(b), 1e-14)
    close(abs(np.linalg.det(u)), 1, 1e-14)


# A12, A13, A14
def test_compression_keeps_the_largest_eigenvalues():
    x = RNG.normal(size=(12, 3)) @ RNG.normal(size=(3, 3)) + [0.0, 1.0, -2.0]
    values, vectors = np.linalg.eigh(x.T @ x)
    top = vectors[:, -1]
    close(top @ x.T @ x @ top, values[-1], 1e-9)
    d = RNG.normal(size=3)
    assert d @ x.T @ x @ d / (d @ d) < values[-1]
    errors = []
    for size in (1, 2):
        codes = TruncatedSVD(size, algorithm="arpack", random_state=0).fit(x)
        back = codes.inverse_transform(codes.transform(x))
        close(codes.inverse_transform(codes.transform(back)), back, 1e-9)
        errors.append(np.sum((x - back) ** 2))
        close(errors[-1], values[:-size].sum(), 1e-8)
        if size == 1:
            close(abs(codes.components_[0] @ top), 1, 1e-9)
    assert errors[0] > errors[1]
    # without centring the first axis is the mean, with it the spread
    far = RNG.normal(size=(200, 2)) * [3.0, 0.1] + [0.0, 50.0]
    close(np.abs(TruncatedSVD(1, algorithm="arpack", random_state=0).fit(far).components_[0]), [0, 1], 0.02)
    close(np.abs(PCA(1).fit(far).components_[0]), [1, 0], 0.02)


# ---- 1.2 probability and information


# B1, B2, B3, B4, B12
def test_moments():
    law, mu, s2 = stats.norm(0.7, 1.3), 0.7, 1.69
    close(law.expect(lambda x: 3 * x**2 - x), 3 * (mu**2 + s2) - mu, 1e-8)
    points, mean = np.array([-1.0, 0.0, 1.0]), Enumeration(jnp.arange(3))

    @jax.jit
    def spread(values):
        p = Finite(jnp.full(3, 1 / 3))
        first = mean(lambda i: values[i], p, key=KEY)
        return first, mean(lambda i: (values[i] - first) ** 2, p, key=KEY)

    close(spread(points**2), [2 / 3, (points**2).var()], 1e-14)
    close(spread(5 - 4 * points**2), [5 - 4 * 2 / 3, 16 * (points**2).var()], 1e-13)
    # X² depends on X and has no covariance with it
    close(np.cov(points, points**2, ddof=0)[0, 1], 0, 1e-15)
    x, y = RNG.normal(size=(2, 30))
    both = np.corrcoef(x, y)[0, 1]
    close(np.corrcoef(-3 * x + 2, y)[0, 1], -both, 1e-12)
    close(np.cov(-3 * x + 2, y)[0, 1], -3 * np.cov(x, y)[0, 1], 1e-12)
    table = np.cov(np.stack([x, y, x + y]))
    assert np.linalg.eigvalsh(table).min() > -1e-12
    close(np.diag(table)[:2], [x.var(ddof=1), y.var(ddof=1)], 1e-12)
    close([law.moment(n) for n in (1, 2, 3)], [mu, mu**2 + s2, mu**3 + 3 * mu * s2], 1e-10)
    central = [law.expect(lambda v, n=n: (v - mu) ** n) for n in range(5)]
    close(central, [1, 0, s2, 0, 3 * s2**2], 1e-7)


# B5
def test_the_covariance_of_a_sample_divides_by_its_size():
    x = RNG.normal(size=(5, 2))
    close(np.cov(x.T, ddof=0), 4 / 5 * np.cov(x.T), 1e-14)
    family = Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))

    @jax.jit
    def variance(x):
        total = jax.tree.map(lambda t: t.sum(0), jax.vmap(family.statistics)(x))
        return family.from_statistics(jnp.array(5.0), total).covariance.variance

    close(variance(x), x.var(axis=0), 1e-12)


# B6
def test_the_corner_of_the_rectifier_is_never_hit():
    draws = RNG.normal(size=100_000)
    assert not np.any(draws == 0)
    slopes = np.asarray(jax.jit(jax.vmap(jax.grad(jax.nn.relu)))(draws))
    np.testing.assert_array_equal(slopes, (draws > 0).astype(float))


# B7
def test_a_density_needs_the_jacobian_of_its_map():
    half = Transformed(Beta(jnp.ones(1), jnp.ones(1)), Affine(jnp.zeros(1), jnp.full(1, 0.5)))
    close(eqx.filter_jit(half.log_prob)(np.array([0.3])), np.log(2), 1e-12)
    grid = np.exp(np.linspace(-12, 12, 4001))
    true, naive = stats.lognorm(1).pdf(grid), stats.norm.pdf(np.log(grid))
    close(integrate.trapezoid(true, grid), 1, 1e-5)
    close(integrate.trapezoid(naive, grid), np.exp(0.5), 1e-3)


# B8, B9, B10, B11, B13, D10
def test_information_in_nats():
    surprise = jax.jit(lambda x: -Bernoulli(jnp.array([1 / np.e, 1.0])).log_prob(x))
    close([surprise(np.array(x)) for x in ([1.0, np.nan], [np.nan, 1.0], [1.0, 1.0])], [1, 0, 1], 1e-12)

    @jax.jit
    def measures(a, b):
        return entropy(Categorical(a[None])), kl_divergence(Categorical(a[None]), Categorical(b[None]))

    a, b = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    h, kl = measures(a, b)
    close([h, kl, h + kl], [1.0397207708, 0.1732867951, 1.2130075660])
    close(h + kl, -a @ np.log(b), 1e-12)
    close(measures(a, a)[1], 0, 1e-15)
    close(measures(np.full(3, 1 / 3), a)[0], np.log(3), 1e-12)
    assert measures(np.array([0.0, 1.0, 0.0]), a)[0] == 0
    assert measures(a, np.array([0.5, 0.5, 0.0]))[1] == np.inf
    skew, even = np.array([0.9, 0.1, 0.0]), np.array([0.5, 0.5, 0.0])
    close([measures(skew, even)[1], measures(even, skew)[1]], [0.3680642072, 0.5108256238])
    wide = jax.jit(lambda v: entropy(Gaussian(jnp.zeros(1), Diagonal(v))))
    close(wide(np.array([4.0])), 0.5 * np.log(2 * np.pi * np.e * 4))
    # "aaabbc": the empirical distribution, and the likelihood as a divergence from it
    codes = np.array([0, 0, 0, 1, 1, 2])
    counts = np.bincount(codes)
    own = np.mean(np.log(counts[codes])) - np.log(6)
    close(own, -1.0114042647)
    empirical = Categorical(jnp.asarray(counts / 6)[None])
    close(jax.jit(jax.vmap(empirical.log_prob))(codes[:, None].astype(float)).mean(), own, 1e-12)
    close(own - np.mean(np.log(b[codes])), measures(counts / 6, b)[1], 1e-12)


# ---- 1.3 numerical computation


# C1
def test_primitives_neither_underflow_nor_overflow():
    soft = jax.jit(
        lambda x: (jax.nn.softmax(jnp.stack([x, x])), jax.nn.softplus(x), jax.nn.log_sigmoid(-x))
    )
    shares, plus, minus = soft(1000.0)
    close(shares, 0.5)
    assert (float(plus), float(minus)) == (1000, -1000)
    assert 0.1**400 == 0.0
    close(400 * np.log(0.1), -921.0340371976, 1e-9)
    close(special.logsumexp([-1000.0, -1000.0]), -1000 + np.log(2), 1e-12)


# C2
def test_two_condition_numbers():
    close(np.linalg.cond(SYMMETRIC), np.divide(*np.linalg.eigvalsh(SYMMETRIC)[::-1]), 1e-12)
    close(
        np.linalg.cond(SYMMETRIC),
        np.linalg.norm(SYMMETRIC, 2) * np.linalg.norm(np.linalg.inv(SYMMETRIC), 2),
    )
    shear = np.array([[1.0, 1000.0], [0.0, 1.0]])
    assert np.ptp(np.linalg.eigvals(shear)) == 0
    assert np.linalg.cond(shear) == pytest.approx(1e6, rel=1e-3)


def bowl(x):
    return jnp.sum(jnp.sin(x)) + x[0] * x[1] ** 2


# C3, C4, C5, C6, C7
def test_slopes_and_curvatures_along_directions():
    x, d = np.array([0.4, -0.9]), np.array([0.6, 0.8])

    @jax.jit
    def calculus(x, d):
        slope = jax.jvp(bowl, (x,), (d,))[1]
        along = jax.jvp(jax.grad(bowl), (x,), (d,))[1]
        return (
            slope,
            along,
            jax.grad(bowl)(x),
            jax.hessian(bowl)(x),
            jax.jacobian(lambda v: jnp.asarray(C) @ v)(x),
        )

    slope, along, gradient, hessian, jacobian = (np.asarray(a) for a in calculus(x, d))

    def f(v):
        return np.sum(np.sin(v)) + v[0] * v[1] ** 2

    h = 1e-4
    close(slope, (f(x + h * d) - f(x - h * d)) / (2 * h), 1e-7)
    close(slope, d @ gradient, 1e-14)
    close(gradient, optimize.approx_fprime(x, f, 1e-7), 1e-6)
    steepest = -gradient / np.linalg.norm(gradient)
    close(steepest @ gradient, -np.linalg.norm(gradient), 1e-14)
    turns = np.linspace(0, 2 * np.pi, 50)
    assert np.all(
        np.stack([np.cos(turns), np.sin(turns)], axis=1) @ gradient >= steepest @ gradient - 1e-12
    )
    close(jacobian, C, 0.0)
    close(hessian, hessian.T, 1e-14)
    close(hessian, [[-np.sin(0.4), -1.8], [-1.8, -np.sin(-0.9) + 0.8]], 1e-12)
    close(d @ along, d @ hessian @ d, 1e-14)
    close(d @ along, (f(x + h * d) - 2 * f(x) + f(x - h * d)) / h**2, 1e-6)
    values, vectors = np.linalg.eigh(hessian)
    assert values[0] <= d @ along <= values[1]
    close(vectors[:, 0] @ hessian @ vectors[:, 0], values[0], 1e-12)


C = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]])


# C8, C9, C11, C12, G8, G9
def test_the_best_step_on_a_quadratic():
    h, x = np.diag([1.0, 10.0]), np.ones(2)
    g = h @ x

    def f(v):
        return 0.5 * v @ h @ v

    best = g @ g / (g @ h @ g)
    close([f(x), best], [5.5, 0.1008991009])
    for factor, change in ((1, -5.0954045954), (2, 0.0), (2.1, 1.0700349650)):
        (there,) = descend(optax.sgd(factor * best), lambda v: h @ v, x, 1)
        close(f(there) - f(x), change, 1e-8)
        step = factor * best
        close(f(there), f(x) - step * g @ g + 0.5 * step**2 * g @ h @ g, 1e-8)
    assert 1 / 10 < best < 1
    # with ε = 0.1 the curvature gᵀHg = 1001 is far above εgᵀg = 10.1, and the cost falls
    (there,) = descend(optax.sgd(0.1), lambda v: h @ v, x, 1)
    assert g @ h @ g > 0.1 * g @ g
    assert f(there) - f(x) == pytest.approx(-5.095, abs=1e-3)
    # the best constant step contracts by (κ − 1)/(κ + 1)
    path = descend(optax.sgd(2 / 11), lambda v: h @ v, x, 5)
    close(np.abs(path[-1]), (9 / 11) ** 5, 1e-7)
    close(path[-1], np.linalg.matrix_power(np.eye(2) - 2 / 11 * h, 5) @ x, 1e-7)
    assert abs(descend(optax.sgd(0.21), lambda v: h @ v, x, 40)[-1, 1]) > 10  # beyond 2/λ_max


# C10
def test_kinds_of_critical_points():
    functions = (
        lambda x: jnp.sum(x**2),
        lambda x: -jnp.sum(x**2),
        lambda x: x[0] ** 2 - x[1] ** 2,
        lambda x: jnp.sum(x**4),
    )
    hessians = jax.jit(lambda x: [jax.hessian(f)(x) for f in functions])(np.zeros(2))
    for hessian, signs in zip(hessians, ([1, 1], [-1, -1], [-1, 1], [0, 0]), strict=True):
        np.testing.assert_array_equal(np.sign(np.linalg.eigvalsh(hessian)), signs)


# C13
def test_a_constraint_by_other_coordinates():
    def on_the_circle(f):
        found = optimize.minimize_scalar(
            lambda t: f(np.array([np.cos(t), np.sin(t)])), bounds=(0, 2 * np.pi)
        )
        return np.array([np.cos(found.x), np.sin(found.x)]), found.fun

    point, value = on_the_circle(np.sum)
    close(point, -np.sqrt(0.5), 1e-5)
    close(value, -np.sqrt(2), 1e-9)
    point, value = on_the_circle(lambda x: x @ SYMMETRIC @ x)
    values, vectors = np.linalg.eigh(SYMMETRIC)
    close(value, values[0], 1e-8)
    close(abs(point @ vectors[:, 0]), 1, 1e-8)


# C14, C15
def test_multipliers_of_constraints():
    def solve(f, slope, hessian, constraint, start):
        options = {"barrier_tol": 1e-10, "xtol": 1e-12, "gtol": 1e-9}
        return optimize.minimize(
            f,
            start,
            jac=slope,
            hess=hessian,
            method="trust-constr",
            constraints=[constraint],
            options=options,
        )

    def parabola(most):
        below = optimize.LinearConstraint([[1.0]], -np.inf, most)
        return solve(
            lambda x: (x[0] - 2) ** 2, lambda x: 2 * (x - 2), lambda x: 2 * np.eye(1), below, np.zeros(1)
        )

    active, slack = parabola(1.0), parabola(3.0)
    close([active.x[0], active.v[0][0]], [1, 2], 1e-3)  # by an interior point
    close([slack.x[0], slack.v[0][0]], [2, 0], 1e-3)
    circle = optimize.NonlinearConstraint(
        lambda x: x @ x - 1, 0, 0, jac=lambda x: 2 * x[None], hess=lambda x, v: 2 * v[0] * np.eye(2)
    )
    around = solve(np.sum, lambda x: np.ones(2), lambda x: np.zeros((2, 2)), circle, np.array([-1.0, -0.5]))
    close(around.x, -np.sqrt(0.5), 1e-6)
    close(around.v[0], np.sqrt(0.5), 1e-6)
    for found in (active, slack, around):
        assert found.optimality < 1e-6  # ‖∇f + Σ λ∇g‖
        assert found.constr_violation < 1e-8


# ---- 1.4 machine learning basics


# D1, F9
def test_capacity_fits_the_training_rows_and_not_the_others():
    x, new = np.linspace(-1, 1, 11), np.linspace(-0.97, 0.97, 40)
    noise, other = 0.2 * RNG.normal(size=11), 0.2 * RNG.normal(size=40)
    errors = []
    for degree in (1, 3, 10):
        curve = np.polynomial.Polynomial.fit(x, np.sin(3 * x) + noise, degree)
        errors.append(
            [
                np.mean((b - curve(a)) ** 2)
                for a, b in ((x, np.sin(3 * x) + noise), (new, np.sin(3 * new) + other))
            ]
        )
    train, test = np.array(errors).T
    assert np.all(np.diff(train) < 0)
    assert train[2] < 1e-20  # every row is remembered, labels of noise too
    assert test[1] < min(test[0], test[2])


# D2
def test_no_classifier_beats_the_bayes_error():
    # two inputs, labels flipped with chance 0.2
    x, y = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    p = np.array([0.6 * 0.8, 0.6 * 0.2, 0.4 * 0.2, 0.4 * 0.8])
    errors = [
        zero_one_loss(y, np.array(rule)[x], sample_weight=p) for rule in itertools.product([0, 1], repeat=2)
    ]
    close(min(errors), 0.2, 1e-12)
    assert int(np.argmin(errors)) == 1


# D3
def test_no_free_lunch():
    x = np.arange(4.0)[:, None]
    for learner in (DummyClassifier(strategy="most_frequent"), KNeighborsClassifier(1)):
        errors = []
        for labels in itertools.product([0, 1], repeat=4):
            fitted = learner.fit(x[:2], labels[:2])
            errors.append(zero_one_loss(labels[2:], fitted.predict(x[2:])))
        assert np.mean(errors) == 0.5


# D5, D6, D7
def test_bias_and_variance_of_estimators_over_all_samples():
    law = np.array([-1.0, 0.0, 2.0])
    samples = np.array(list(itertools.product(law, repeat=4)))
    s2 = law.var()
    close(samples.mean(axis=1).mean(), law.mean(), 1e-14)
    close(samples.mean(axis=1).var(), s2 / 4, 1e-14)
    estimates = samples.var(axis=1)
    bias = estimates.mean() - s2
    close(bias, -s2 / 4, 1e-14)
    close(np.mean((estimates - s2) ** 2), bias**2 + estimates.var(), 1e-14)
    # its square as reported is right on average, with m − 1
    close(np.mean([t_interval(row).stderr ** 2 for row in samples]), s2 / 4, 1e-12)
    # of m = 5 normal numbers with variance 4: σ̂² is 4χ²/5
    chi = stats.chi2(4, scale=4 / 5)
    close([chi.mean(), chi.moment(2), chi.moment(2) - 8 * chi.mean() + 16], [3.2, 15.36, 5.76], 1e-9)


# D8
def test_the_mean_is_consistent_and_the_first_draw_is_not():
    def far(m):
        heads = stats.binom(m, 0.3)
        return heads.cdf(0.2 * m - 1e-9) + heads.sf(0.4 * m + 1e-9)

    chances = [far(m) for m in (1, 10, 100, 1000)]
    assert np.all(np.diff(chances) < 0)
    assert chances[-1] < 1e-10
    assert chances[0] == pytest.approx(1)  # one draw is 0 or 1, never near 0.3


# D13
def test_the_predictive_is_wider_than_the_plug_in():
    prior = BetaPrior(Bernoulli(jnp.array([0.5])), jnp.ones(1), jnp.ones(1))
    posterior = prior.update(jnp.array([4.0]), jnp.array([3.0]))
    a, b = float(posterior.alpha[0]), float(posterior.beta[0])
    assert a / (a + b) == pytest.approx((3 + 1) / (4 + 2))
    ahead = stats.betabinom(10, a, b)  # of ten more
    quad = integrate.quad(lambda p: stats.beta(a, b).pdf(p) * stats.binom(10, p).pmf(7), 0, 1)[0]
    close(ahead.pmf(7), quad, 1e-9)
    assert ahead.var() > 2 * stats.binom(10, 0.75).var()


# D14, D15, D16
def test_linear_regression_by_likelihood_and_by_bayes():
    x, y = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
    w = np.linalg.lstsq(x, y, rcond=None)[0]
    close(w, [1, 2], 1e-12)
    close(x.T @ (y - x @ w), 0, 1e-12)

    @jax.jit
    def posterior(y):
        prior = Gaussian(jnp.zeros(2), Spherical(jnp.array(10.0), dim=2))
        both = joint(prior, jnp.asarray(x), jnp.zeros(3), Spherical(jnp.array(0.5), dim=3))
        q = conditional(both, [2, 3, 4], y)
        residuals = Gaussian(jnp.zeros(3), Spherical(jnp.array(4.0), dim=3))
        return q.mean, q.covariance.matrix(), residuals.log_prob(jnp.array([1.0, 2.0, 3.0]))

    mean, covariance, likelihood = posterior(y)
    close(likelihood, -6.5862571413)
    close(mean, [1.0074189770, 1.9757907068])
    close(covariance, [[0.3943771964, -0.2342834830], [-0.2342834830, 0.2381882077]])
    close(mean, Ridge(alpha=0.05, fit_intercept=False).fit(x, y).coef_, 1e-10)


# D17
def test_the_score_of_logistic_regression_vanishes_at_its_optimum():
    rows, labels = np.array([[0.0], [0.5], [1.0], [1.5], [2.0]]), np.array([0, 1, 0, 1, 1])
    batch = Batch((jnp.asarray(rows), jnp.asarray(labels)), jnp.full(5, 0.2))

    @jax.jit
    def slope(weight, bias):
        def loss(w, b):
            model = SoftmaxModel(jnp.stack([jnp.zeros(1), w]), jnp.stack([jnp.zeros(()), b]))
            return ConditionalContrastive(Boltzmann())(model, batch, KEY)

        return jax.grad(loss, argnums=(0, 1))(weight, bias)

    peer = LogisticRegression(C=np.inf, tol=1e-10).fit(rows, labels)
    at, offset = peer.coef_[0], peer.intercept_[0]
    close(slope(at, offset)[0], 0, 1e-6)
    residual = expit(rows[:, 0] * 0.3 - 0.1) - labels
    found = slope(np.array([0.3]), np.array(-0.1))
    close(np.concatenate([found[0], [found[1]]]), [rows[:, 0] @ residual / 5, residual.mean()], 1e-12)
    close(slope(np.zeros(1), logit(labels.mean()))[1], 0, 1e-12)


# D18, D19, D20, D21
def test_support_vectors_and_kernels():
    two = SVC(kernel="linear", C=1e6).fit([[-1.0], [1.0]], [-1, 1])
    close([two.coef_[0, 0], two.intercept_[0]], [1, 0], 1e-6)
    close(two.dual_coef_[0], [-0.5, 0.5], 1e-6)
    x = np.array([[-2.0, 0.3], [-1.0, 1.0], [-3.0, -1.0], [1.0, 0.2], [2.5, -0.7], [1.5, 2.0]])
    y = np.array([-1, -1, -1, 1, 1, 1])
    fitted = SVC(kernel="linear", C=1e6).fit(x, y)
    kept = np.sort(fitted.support_)
    assert len(kept) < 6
    by_hand = fitted.dual_coef_[0] @ linear_kernel(fitted.support_vectors_, x) + fitted.intercept_
    close(fitted.decision_function(x), by_hand, 1e-9)
    close(fitted.coef_[0], fitted.dual_coef_[0] @ fitted.support_vectors_, 1e-9)
    again = SVC(kernel="linear", C=1e6).fit(x[kept], y[kept])
    close(again.decision_function(x), fitted.decision_function(x), 1e-2)
    features = np.stack([x[:, 0] ** 2, np.sqrt(2) * x[:, 0] * x[:, 1], x[:, 1] ** 2], axis=1)
    close(polynomial_kernel(x, degree=2, gamma=1, coef0=0), features @ features.T, 1e-9)
    gram = rbf_kernel(x, gamma=0.5)
    close(gram, np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, axis=2)), 1e-12)
    assert np.linalg.eigvalsh(gram).min() > -1e-10
    close(np.diag(gram), 1, 1e-15)


# ---- 2.1 networks


# E1
def test_one_hidden_layer_solves_what_no_linear_map_does():
    network = MLP(
        (
            Linear(jnp.ones((2, 2)), jnp.array([0.0, -1.0])),
            Linear(jnp.array([[1.0], [-2.0]]), jnp.zeros(1)),
        )
    )
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    close(jax.jit(jax.vmap(network))(corners)[:, 0], [0, 1, 1, 0], 0.0)
    design = np.column_stack([corners, np.ones(4)])
    close(design @ np.linalg.lstsq(design, np.array([0.0, 1, 1, 0]), rcond=None)[0], 0.5, 1e-12)


# E2, E3, E4, E5, E6, E7, E8
def test_activations():
    z = np.array([-2.0, -0.3, 0.7, 3.0])
    learned = eqx.nn.PReLU(0.25)

    @jax.jit
    def values(z, ends):
        leaky = [jax.nn.leaky_relu(z, alpha) for alpha in (0.0, 1.0, -1.0, 0.01)] + [jax.nn.leaky_relu(z)]
        learn = [jax.grad(lambda m, v=v: jnp.sum(m(v)))(learned).negative_slope for v in (z, ends)]
        slopes = [jax.vmap(jax.grad(f))(ends) for f in (jax.nn.sigmoid, jnp.tanh)]
        return leaky, jax.nn.relu(3 * z), learn, slopes, jax.nn.sigmoid(z), jax.nn.sigmoid(-z), jnp.tanh(z)

    leaky, relu, learn, slopes, sigmoid, other, tanh = values(z, np.array([0.0, 10.0]))
    for found, expected in zip(leaky, (np.maximum(z, 0), z, np.abs(z)), strict=False):
        close(found, expected, 0.0)
    close(leaky[3], np.where(z > 0, z, 0.01 * z), 1e-15)
    close(leaky[4], leaky[3], 0.0)  # the default
    close(relu, 3 * np.maximum(z, 0), 0.0)
    close(learn, [np.minimum(z, 0).sum(), 0], 1e-6)
    close(other, 1 - np.asarray(sigmoid), 1e-15)
    close(tanh, 2 * expit(2 * z) - 1, 1e-15)
    close(slopes[0], [0.25, expit(10) * expit(-10)], 1e-15)
    assert slopes[0][1] == pytest.approx(4.5e-5, rel=0.01)
    close(slopes[1][0], 1, 0.0)


# E9, E10, E11, E12, E13
def test_chain_rules():
    w, x = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]]), np.array([0.2, -0.4, 1.0])

    @jax.jit
    def rules(w, x, up):
        _, back = jax.vjp(lambda v: jnp.tanh(w @ v), x)
        jacobian = jax.jacobian(lambda v: jnp.tanh(w @ v))(x)
        matrix = jax.grad(lambda m: up @ (m @ x))(w)
        rows = jax.grad(lambda m: jnp.sum(m @ x))(w)
        flat = jax.grad(lambda m: up @ jnp.tanh(m.reshape(2, 3) @ x))(w.ravel())
        whole = jax.grad(lambda m: up @ jnp.tanh(m @ x))(w)
        # a node with two ways to the loss, and one with none
        fan, unused = jax.grad(lambda a, b: jnp.sum(jnp.sin(a)) + jnp.sum(a**2), argnums=(0, 1))(x, x)
        logits = jax.grad(lambda o: -jax.nn.log_softmax(o)[1])(jnp.zeros(4))
        return back(up)[0], jacobian, matrix, rows, flat, whole, fan, unused, logits

    up = np.array([2.0, -1.0])
    back, jacobian, matrix, rows, flat, whole, fan, unused, logits = (
        np.asarray(a) for a in rules(w, x, up)
    )
    local = 1 - np.tanh(w @ x) ** 2
    close(jacobian, local[:, None] * w, 1e-14)
    close(back, jacobian.T @ up, 1e-14)
    close(matrix, np.outer(up, x), 1e-14)
    close(rows, np.broadcast_to(x, (2, 3)), 1e-14)
    close(flat.reshape(2, 3), whole, 1e-14)
    close(whole, np.outer(up * local, x), 1e-14)
    close(fan, np.cos(x) + 2 * x, 1e-14)
    close(unused, 0, 0.0)
    close(logits, [0.25, -0.75, 0.25, 0.25], 1e-15)


# E14
def test_a_gradient_is_checked_by_differences():
    def f(x):
        return float(np.sum(np.sin(x)) + x[0] * x[1] ** 2)

    right = jax.jit(jax.grad(bowl))
    x = np.array([0.4, -0.9])
    assert optimize.check_grad(f, lambda v: np.asarray(right(v)), x) < 1e-6
    assert optimize.check_grad(f, lambda v: np.asarray(right(v)) + 0.1, x) > 0.1


# ---- 2.2 regularisation


# F2, F3, F4
def test_weight_decay_shrinks_along_eigenvectors():
    target, alpha = np.array([1.0, -1.0]), 0.3
    closed = np.linalg.solve(SYMMETRIC + alpha * np.eye(2), SYMMETRIC @ target)
    close(closed, [0.8029197080, -0.6934306569])
    values, vectors = np.linalg.eigh(SYMMETRIC)
    shrink = values / (values + alpha)
    close(vectors @ (shrink * (vectors.T @ target)), closed, 1e-14)
    assert np.all((shrink > 0) & (shrink < 1))
    assert shrink[1] > shrink[0]
    rule = optax.chain(optax.add_decayed_weights(alpha), optax.sgd(0.4))
    close(descend(rule, lambda w: SYMMETRIC @ (w - target), np.zeros(2), 80)[-1], closed, 1e-8)
    # with H = XᵀX it is ridge, and the factors sum to the trace of its hat matrix
    x = linalg.cholesky(SYMMETRIC)
    close(Ridge(alpha=alpha, fit_intercept=False).fit(x, x @ target).coef_, closed, 1e-8)
    close(np.trace(x @ np.linalg.solve(x.T @ x + alpha * np.eye(2), x.T)), shrink.sum(), 1e-12)


# F7
def test_the_sign_of_the_gradient_costs_a_linear_model_its_margin():
    w, x, eps = np.array([0.5, -2.0, 1.0]), np.array([1.0, -0.3, 0.4]), 0.1
    slope = np.asarray(jax.jit(jax.grad(lambda v: -jax.nn.log_sigmoid(jnp.asarray(w) @ v)))(x))
    worse = x + eps * np.sign(slope)
    close(np.abs(worse - x), eps, 1e-15)
    close(w @ x - w @ worse, eps * np.abs(w).sum(), 1e-14)


# ---- 2.3 optimisation


# G3
def test_the_surrogate_is_above_the_mistakes_and_goes_on_when_there_are_none():
    loss = jax.jit(lambda e: e[0] - Boltzmann()(e, jnp.asarray(0))[0])
    gaps = np.array([-2.0, -0.1, 0.0, 0.1, 2.0, 5.0])
    values = np.array([float(loss(np.array([0.0, g]))) for g in gaps])
    close(values, -np.log(expit(gaps)), 1e-12)
    assert np.all(values / np.log(2) >= (gaps < 0))
    assert np.all(np.diff(values[gaps > 0]) < 0)


# G10, G12, G13, G15, G16
def test_optimisers_take_the_steps_of_the_notes():
    def constant(theta):
        return np.array([2.0])

    momentum = descend(optax.sgd(0.1, momentum=0.9), constant, np.zeros(1), 4)[:, 0]
    close(np.diff(momentum, prepend=0), [-0.2, -0.38, -0.542, -0.6878], 1e-8)
    adagrad = optax.adagrad(0.1, initial_accumulator_value=0.0, eps=0.0)
    close(
        descend(adagrad, constant, np.zeros(1), 4)[:, 0], [-0.1, -0.1707107, -0.2284457, -0.2784457], 1e-7
    )
    rms = optax.rmsprop(0.1, decay=0.9, eps=0.0, eps_in_sqrt=False)
    steps = np.diff(descend(rms, constant, np.zeros(1), 4)[:, 0], prepend=0)
    close(steps, -np.array([0.3162278, 0.2294157, 0.1920947, 0.1705234]), 1e-7)
    adam = descend(optax.adam(0.1), lambda theta: theta, np.ones(1), 5)[:, 0]
    close(adam, [0.9, 0.800412, 0.701586, 0.603939, 0.507964], 1e-6)
    mean = descend(optax.ema(0.9, debias=True), lambda theta: np.full(1, 7.0), np.zeros(1), 3)
    close(np.diff(mean[:, 0], prepend=0), 7, 1e-5)


# ---- 2.4 convolution

IMAGE, KERNEL = np.arange(1.0, 10).reshape(3, 3), np.array([[1.0, 2.0], [3.0, 4.0]])


# H1, H2, H3, H4
def test_correlation_and_convolution():
    close(signal.correlate2d(IMAGE, KERNEL, "valid"), [[37, 47], [67, 77]])
    layer = eqx.nn.Conv2d(1, 1, 2, use_bias=False, dtype=jnp.float64, key=KEY)
    layer = eqx.tree_at(lambda c: c.weight, layer, jnp.asarray(KERNEL)[None, None])
    close(eqx.filter_jit(layer)(IMAGE[None])[0], [[37, 47], [67, 77]])
    close(signal.convolve2d(IMAGE, KERNEL, "valid"), [[23, 33], [53, 63]])
    full = [[1, 4, 7, 6], [7, 23, 33, 24], [19, 53, 63, 42], [21, 52, 59, 36]]
    close(signal.convolve2d(IMAGE, KERNEL, "full"), full)
    close(signal.convolve2d(KERNEL, IMAGE, "full"), full)
    close(signal.correlate2d(IMAGE, KERNEL[::-1, ::-1], "full"), full)
    x, k = np.array([1.0, -2.0, 0.5, 3.0]), np.array([2.0, 1.0, -1.0])
    sizes = [len(signal.convolve(x, k, mode)) for mode in ("valid", "same", "full")]
    assert sizes == [2, 4, 6]
    close(signal.convolve(x, k), np.polymul(x, k), 1e-12)
    matrix = linalg.convolution_matrix(k, 4, "full")
    close(matrix @ x, signal.convolve(x, k), 1e-12)
    assert np.count_nonzero(matrix) == 12  # of 24, and three different
    assert len(np.unique(matrix[matrix != 0])) == 3


# H7
def test_pooling_does_not_see_a_small_shift():
    pool = eqx.filter_jit(eqx.nn.MaxPool1d(3, stride=3))
    peak = np.zeros((1, 9))
    peak[0, 3] = 5.0
    close(pool(np.roll(peak, 1)), pool(peak), 0.0)
    assert np.abs(np.roll(peak, 1) - peak).max() == 5


# H11
def test_inputs_are_standardised_and_constants_stay_finite():
    rows = np.array([[1.0, 5.0], [3.0, 5.0], [8.0, 5.0]])
    forward = jax.jit(jax.vmap(lambda r: Affine.standardise(rows.mean(0), rows.std(0)).forward(r)[0]))
    found = np.asarray(forward(rows))
    close(found.mean(0), 0, 1e-14)
    close(found.std(0), [1, 0], 1e-14)


# I18
def test_a_linear_recurrence_is_the_power_method():
    values, q = np.linalg.eigh(SYMMETRIC)
    h = np.array([0.3, -1.0])
    later = np.linalg.matrix_power(SYMMETRIC, 30).T @ h
    close(later, q @ (values**30 * (q.T @ h)), 1e-3)
    close(np.abs(later / np.linalg.norm(later)), np.abs(q[:, -1]), 1e-6)
    close(np.linalg.norm(SYMMETRIC @ later) / np.linalg.norm(later), values[-1], 1e-6)


# ---- 3.1 linear factor models

LOADING, NOISE = np.array([[1.0, 0.0], [0.5, 1.0], [0.0, 2.0]]), np.array([0.1, 0.2, 0.3])
FACTORS = LinearGaussian(jnp.asarray(LOADING), jnp.zeros(3), Diagonal(jnp.asarray(NOISE)))


# K3, K5, K6
def test_factors_explain_all_covariance_up_to_a_rotation():
    close(jax.jit(lambda: FACTORS.covariance())(), [[1.1, 0.5, 0], [0.5, 1.45, 2], [0, 2, 4.3]], 1e-12)
    x = np.array([0.4, -1.0, 2.0])

    @jax.jit
    def parts(loading):
        model = LinearGaussian(loading, jnp.zeros(3), Diagonal(jnp.asarray(NOISE)))
        prior = Gaussian(jnp.zeros(2), Spherical(jnp.array(1.0), dim=2))
        both = joint(prior, loading, jnp.zeros(3), Diagonal(jnp.asarray(NOISE)))
        return model.log_prob(jnp.asarray(x)), conditional(
            both, [0, 1], jnp.array([0.3, 1.0])
        ).covariance.matrix()

    log_p, given = parts(LOADING)
    close(given, np.diag(NOISE), 1e-12)
    close(
        log_p, stats.multivariate_normal(np.zeros(3), LOADING @ LOADING.T + np.diag(NOISE)).logpdf(x), 1e-10
    )
    turn = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    assert np.abs(LOADING @ turn - LOADING).max() > 0.1
    close(parts(LOADING @ turn)[0], log_p, 1e-10)


# K10
def test_what_factorises_as_a_whole_does_so_in_every_part():
    units = Bernoulli(jnp.array([0.2, 0.7, 0.4]))
    log_prob = jax.jit(jax.vmap(units.log_prob))
    states = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    table = np.exp(log_prob(states)).reshape(2, 2, 2)
    close(table.sum(), 1, 1e-12)
    alone = [table.sum(axis=tuple(j for j in range(3) if j != i)) for i in range(3)]
    for gone in range(3):
        i, j = (k for k in range(3) if k != gone)
        close(table.sum(axis=gone), np.outer(alone[i], alone[j]), 1e-14)
        missing = states.copy()
        missing[:, gone] = np.nan
        close(np.exp(log_prob(missing)), [alone[i][int(s[i])] * alone[j][int(s[j])] for s in states], 1e-12)


# L7, L9
def test_stages_are_fitted_one_after_the_other():
    x = RNG.normal(size=(30, 4)) @ RNG.normal(size=(4, 4))
    stages = make_pipeline(PCA(3), PCA(2)).fit(x)
    direct = PCA(2).fit(x)
    close(np.abs(stages.transform(x)), np.abs(direct.transform(x)), 1e-9)
    close(stages[0].components_, PCA(3).fit(x).components_, 0.0)


# ---- 3.4 structured models

RBM = Harmonium(
    Units(Bernoulli, jnp.array([0.1, -0.2])),
    Units(Bernoulli, jnp.array([0.3, -0.1])),
    jnp.array([[1.0, -1.0], [0.5, 2.0]]),
)
STATES = np.array(list(itertools.product([0.0, 1.0], repeat=2)))


# M5, M6, M7, M14, M15, O4, Q6
def test_a_machine_of_two_by_two_units():
    @jax.jit
    def numbers(states):
        free = jax.vmap(RBM.free_energy)(states)
        given = RBM.posterior(jnp.ones(2))
        return free, RBM.log_partition(), given.probability, jnp.exp(jax.vmap(given.log_prob)(states))

    free, log_z, probability, joint_given = (np.asarray(a) for a in numbers(STATES))
    close(free, [-1.4987519045, -3.0104874242, -1.9283437789, -3.0941314853])
    close([np.exp(log_z), log_z], [53.7195627966, 3.9837772331])
    close(np.exp(-free - log_z), [0.0833234440, 0.3778379765, 0.1280373252, 0.4108012542])
    close(probability, [0.85814894, 0.7109495], 1e-8)
    close(joint_given, [0.0410021209, 0.1008489440, 0.2480483765, 0.6101005586])
    close(log_z, logsumexp(-free), 1e-12)


# M5
def test_a_normaliser_that_is_there_and_one_that_is_not():
    log_z = jax.jit(lambda precision: Information(jnp.zeros(1), precision).log_normaliser())
    close(np.exp(log_z(np.full((1, 1), 4.0))), 1.2533141373)  # ∫ exp(−2x²) dx = √(π/2)
    assert np.isnan(log_z(np.full((1, 1), -4.0)))


# M12
def test_the_second_eigenvalue_is_the_autocorrelation():
    table = np.array([[0.9, 0.1], [0.3, 0.7]])
    second = np.sort(np.linalg.eigvals(table))[0]
    close(second, 0.6, 1e-12)

    def kernel(state, *, key):
        return (jax.random.uniform(key) < jnp.asarray(table)[state.astype(int), 1]).astype(float)

    steps = 20_000
    path = np.asarray(run_chain(kernel, jnp.array(0.0), steps=steps, burn_in=50, key=KEY))
    close(path.mean(), 0.25, 5 * np.sqrt(0.25 * 0.75 * (1 + second) / (1 - second) / steps))
    for lag in (1, 3):
        found = np.corrcoef(path[:-lag], path[lag:])[0, 1]
        assert abs(found - second**lag) < 5 * np.sqrt((1 + second**2) / (1 - second**2) / steps)


# ---- 3.5 Monte Carlo

P, Q, F = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 4.0])


def tuples(n, law):
    """All n-tuples of the three outcomes and their probabilities."""
    index = np.array(list(itertools.product(range(3), repeat=n)))
    return index, np.prod(law[index], axis=1)


# N1, N3, N4, N5, N7
def test_averages_over_all_possible_draws():
    plain = jax.jit(jax.vmap(lambda values: self_normalised_mean(jnp.zeros(2), values)[0]))
    weighted = jax.jit(jax.vmap(importance_estimate))
    index, chance = tuples(2, P)
    means = np.asarray(plain(F[index]))
    close(chance @ means, 2.8, 1e-12)
    close(chance @ means**2 - 2.8**2, (P @ F**2 - 2.8**2) / 2, 1e-12)
    index, chance = tuples(2, Q)
    means = np.exp(weighted(np.log(P * F / Q)[index]).log_mean)
    close(chance @ means, 2.8, 1e-12)
    close(chance @ means**2 - 2.8**2, (Q @ (P * F / Q) ** 2 - 2.8**2) / 2, 1e-12)
    # the best proposal: one draw is exact
    best = P * F / (P @ F)
    estimate = weighted(np.log(P * F / best)[tuples(2, best)[0]])
    close(np.exp(estimate.log_mean), 2.8, 1e-12)
    close(estimate.stderr, 0, 1e-7)
    close(estimate.effective_sample_size, 2, 1e-12)
    # of mixed sign the variance is Z² − s²
    signed = np.array([-1.0, 2.0, 4.0])
    s, z = P @ signed, P @ np.abs(signed)
    best = P * np.abs(signed) / z
    close([s, best @ (P * signed / best) ** 2 - s**2, P @ signed**2 - s**2], [2.4, 2.08, 3.64], 1e-12)
    close(z**2 - s**2, 2.08, 1e-12)
    assert float(jax.jit(effective_sample_size)(np.array([0.0, 1.0]))) < 2


# N4
def test_a_proposal_with_light_tails_has_no_variance():
    def second_moment(scale, reach):
        ratio = lambda x: stats.norm.pdf(x) ** 2 / stats.norm.pdf(x, scale=scale)  # noqa: E731
        return integrate.quad(ratio, -reach, reach, limit=200)[0]

    close(second_moment(1.0, 30), 1, 1e-8)
    close(second_moment(0.8, 12), 0.8**2 / np.sqrt(2 * 0.8**2 - 1), 1e-6)  # 2σ² > 1: finite
    assert second_moment(0.5, 6) > 100 * second_moment(0.5, 4) > 1e4 * second_moment(0.5, 2)


# N6
def test_the_bias_of_self_normalised_weights():
    ratio, values = jnp.asarray(np.log(P / Q) + 1000.0), jnp.asarray(F)
    mean = jax.jit(jax.vmap(lambda index: self_normalised_mean(ratio[index], values[index])[0]))
    for n, expected in ((1, 1.9), (2, 2.2329556650), (3, 2.3983834499), (6, 2.5967139237)):
        index, chance = tuples(n, Q)
        close(chance @ np.asarray(mean(index)), expected)
    index, chance = tuples(3, Q)
    constant = jax.jit(jax.vmap(lambda i: self_normalised_mean(ratio[i], jnp.full(3, 7.0))[0]))
    close(constant(index), 7, 1e-12)


# ---- 3.7 approximate inference


class Table(eqx.Module):
    """p(h, v) by its values."""

    values: jax.Array

    def energy(self, v, h):
        return -jnp.log(self.values[h, v])


# P1, P2, P3
def test_the_bound_and_its_gap():
    model = Table(jnp.array([[0.1, 0.2], [0.3, 0.4]]))

    @jax.jit
    def bound(q):
        recognition = Amortised(lambda _: Finite(q), expectation=Enumeration(jnp.arange(2)))
        return -free_energy(model.energy, recognition, jnp.asarray(0), key=KEY)

    log_p = np.log(0.4)
    close([bound(np.array([0.5, 0.5])), log_p], [-1.0601317682, -0.9162907319])
    close(log_p - bound(np.array([0.5, 0.5])), stats.entropy([0.5, 0.5], [0.25, 0.75]), 1e-12)
    close(bound(np.array([0.25, 0.75])), log_p, 1e-12)
    # inference as optimisation: over all q the posterior, over too few a gap
    found = optimize.minimize_scalar(
        lambda a: -float(bound(np.array([expit(a), expit(-a)]))), bounds=(-5, 5)
    )
    close(expit(found.x), 0.25, 1e-4)
    close(-found.fun, log_p, 1e-8)
    restricted = max(float(bound(np.array([a, 1 - a]))) for a in (0.5, 0.6, 0.7))
    assert restricted < log_p - 0.1


# ---- 3.8 generators


# Q14, Q15, Q18
def test_the_affine_generator_and_its_density():
    mu, sigma = np.array([0.1, 0.2]), np.array([[2.0, 0.6], [0.6, 1.0]])
    lower = np.linalg.cholesky(sigma)
    close(lower, [[1.41421356, 0], [0.42426407, 0.90553851]], 1e-8)
    close(lower @ lower.T, sigma, 1e-14)
    close(np.prod(np.diag(lower)) ** 2, np.linalg.det(sigma), 1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
    x = np.array([0.3, -0.7])

    @jax.jit
    def density(x):
        standard = Gaussian(jnp.zeros(2), Spherical(jnp.array(1.0), dim=2))
        map_ = TriangularAffine(jnp.asarray(mu), jnp.asarray(lower))
        return jnp.exp(Transformed(standard, map_).log_prob(x)), jnp.exp(
            standard.log_prob(map_.inverse(x)[0])
        )

    right, naive = density(x)
    close(right, 0.0701460062)
    close(naive, 0.0898307, 1e-7)
    close(right, stats.multivariate_normal(mu, sigma).pdf(x), 1e-12)


# Q16
def test_a_generator_of_distributions_has_discrete_data():
    weights, units = np.array([0.3, 0.7]), np.array([[0.9, 0.2], [0.1, 0.6]])
    model = Mixture(jnp.asarray(weights), Bernoulli(jnp.asarray(units)))
    p = np.exp(jax.jit(jax.vmap(model.log_prob))(STATES))
    close(p.sum(), 1, 1e-12)
    by_hand = [weights @ np.prod(np.where(s == 1, units, 1 - units), axis=1) for s in STATES]
    close(p, by_hand, 1e-12)
    # independent given the cause, and not without it
    table = p.reshape(2, 2)
    assert np.abs(table - np.outer(table.sum(1), table.sum(0))).max() > 0.01


# D4
def test_any_function_of_the_rows_is_an_estimator_and_has_a_law_of_its_own():
    rows = np.random.default_rng(0).normal(2.0, 1.0, 60)
    estimators = {
        "mean": np.mean,
        "median": np.median,
        "first": lambda x, axis=-1: np.take(x, 0, axis=axis),
    }
    found = {name: bootstrap_interval(rows, g, seed=0) for name, g in estimators.items()}
    for name, g in estimators.items():
        assert found[name].estimate == g(rows)
    # the mean of a normal law is the best of them, the median has √(π/2) of its error, one row all of it
    width = {name: own.high - own.low for name, own in found.items()}
    np.testing.assert_allclose(width["mean"], 2 * 1.96 * rows.std() / np.sqrt(60), rtol=0.1)
    assert width["mean"] < width["median"] < width["first"]


# F5
def test_a_penalty_of_the_code_is_none_of_the_dictionary():
    rng = np.random.default_rng(0)
    dictionary, y, code = rng.normal(size=(4, 7)), rng.normal(size=4), rng.normal(size=7)

    @jax.jit
    def parts(dictionary, code):
        model = SparseCoding(dictionary, jnp.zeros(4), jnp.array(5.0), LaplaceSource(1.3))
        return model.energy(y, code), model.mode(y)

    def misfit(dictionary, code):
        return 2.5 * np.sum((y - dictionary @ code) ** 2) + 2 * np.log(2 * np.pi / 5)

    for factor in (1.0, 3.0):
        energy, mode = parts(factor * dictionary, code)
        penalty = energy - misfit(factor * dictionary, code)
        np.testing.assert_allclose(penalty, 1.3 * np.abs(code).sum() + 7 * np.log(2 / 1.3), rtol=1e-10)
        # few entries of the code, all of the dictionary
        assert 0 < np.sum(np.asarray(mode) != 0) < 7
    assert (dictionary != 0).all()


# ---- 3.2 stochastic autoencoders


# L2
def test_a_stochastic_autoencoder_with_less_and_less_noise():
    rng = np.random.default_rng(5)
    weight, back, x = rng.normal(size=(4, 2)), rng.normal(size=(2, 4)), rng.normal(size=4)
    into, out = Linear(jnp.asarray(weight), jnp.zeros(2)), Linear(jnp.asarray(back), jnp.zeros(4))
    noise = 0.3
    emission = Given(Gaussian(jnp.zeros(4), Spherical(jnp.array(noise**2), dim=4)))
    plain = Autoencoder(into, out)

    @jax.jit
    def losses(spread, keys):
        """−log p(x | h) of codes h that are drawn, and the error of the code that is not."""
        model = VAE(
            lambda x: Gaussian(into(x), Diagonal(jnp.full(2, spread**2))),
            out,
            emission,
            Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2))),
        )
        codes = jax.vmap(lambda key: model.recognise(x).sample(key=key))(keys)
        return -jax.vmap(lambda h: model.log_likelihood(x, h))(codes), jnp.sum(
            (plain.reconstruct(x) - x) ** 2
        )

    constant = 2 * np.log(2 * np.pi * noise**2)
    keys = jax.random.split(KEY, 4000)
    for spread in (0.5, 0.05, 0.0):
        found, error = (np.asarray(part) for part in losses(spread, keys))
        # squares of the way back of noise of this size are added
        expected = (error + spread**2 * np.sum(back**2)) / (2 * noise**2) + constant
        assert abs(found.mean() - expected) <= 4 * stats.sem(found) + 1e-9
    close(found, error / (2 * noise**2) + constant, 1e-9)


class Labelled(eqx.Module):
    """An encoder that was learned without labels, and a layer above it for them."""

    encoder: MLP
    head: Linear

    def log_prob_of(self, y, x):
        return jax.nn.log_softmax(self.head(self.encoder(x)))[y]


# L8
def test_fine_tuning_moves_every_layer_unless_the_encoder_is_frozen():
    rng = np.random.default_rng(6)
    y = rng.integers(2, size=128)
    x = rng.normal(size=(128, 3)) + 2 * y[:, None]
    start = mlp_autoencoder(3, 2, width=4, dtype=jnp.float64, key=KEY)
    adam = optax.adam(0.02)
    before = fit(start, Gradient(adam, Reconstruction(), batch_size=None), x, key=KEY, max_iter=20).model
    model = Labelled(before.encoder, Linear(jnp.zeros((2, 2)), jnp.zeros(2)))
    data = (jnp.asarray(x), jnp.asarray(y))

    def tuned(learnable):
        learner = Gradient(adam, negative_conditional_log_likelihood, batch_size=None, learnable=learnable)
        return fit(model, learner, data, key=KEY, max_iter=60)

    tuned_all, tuned_head = tuned(None), tuned(only(model, lambda m: m.head))
    for found in (tuned_all, tuned_head):
        # it begins at the loss of what was learned before, with a head that knows nothing
        close(found.history["objective"][0], np.log(2), 1e-12)
        assert found.history["objective"][-1] < 0.5
    for part in ("encoder", "head"):
        old, moved, kept = (
            jax.tree.leaves(getattr(m, part)) for m in (model, tuned_all.model, tuned_head.model)
        )
        assert not any(map(np.array_equal, old, moved))
        assert all(map(np.array_equal, old, kept)) is (part == "encoder")
    assert tuned_all.history["objective"][-1] < tuned_head.history["objective"][-1]
