"""Gaussian algebra against dense matrices, quadrature and the numbers of the specification."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg
from scipy import stats as st

from freeenergy import distributions as fd

# one program each
affine, conditional, information, joint, marginal, product = map(
    eqx.filter_jit, (fd.affine, fd.conditional, fd.information, fd.joint, fd.marginal, fd.product)
)


def gaussian(seed, dim):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dim, dim))
    return fd.Gaussian(
        jnp.asarray(rng.normal(size=dim)), fd.Full(jnp.asarray(root @ root.T + 0.3 * np.eye(dim)))
    )


def moments(p):
    p = eqx.filter_jit(p.gaussian)() if isinstance(p, fd.Information) else p
    return np.asarray(p.mean), np.asarray(p.covariance.matrix())


def assert_same(p, q, rtol=1e-8):
    for a, b in zip(moments(p), moments(q)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-10)


SOURCE, WIDE = gaussian(0, 2), gaussian(1, 4)
C = np.array([[1.0, -0.5], [0.3, 2.0], [0.0, 0.7]])
OFFSET = np.array([0.1, -1.0, 2.0])
NOISE = fd.Diagonal(jnp.array([0.5, 1.0, 0.2]))


def test_information_form_is_the_inverse():
    h, j = information(WIDE).shift, information(WIDE).precision
    mean, sigma = moments(WIDE)
    np.testing.assert_allclose(j, np.linalg.inv(sigma), rtol=1e-8)
    np.testing.assert_allclose(h, np.linalg.solve(sigma, mean), rtol=1e-8)
    assert_same(information(WIDE), WIDE)


def test_log_normaliser_is_the_integral():
    form = fd.Information(jnp.array([0.7]), jnp.array([[2.5]]))
    mass = integrate.quad(lambda x: np.exp(0.7 * x - 1.25 * x**2), -20, 20)[0]
    np.testing.assert_allclose(eqx.filter_jit(form.log_normaliser)(), np.log(mass), rtol=1e-9)


def test_marginal_in_both_forms():
    mean, sigma = moments(WIDE)
    index = [3, 1]
    expected = fd.Gaussian(jnp.asarray(mean[index]), fd.Full(jnp.asarray(sigma[np.ix_(index, index)])))
    assert_same(marginal(WIDE, index), expected)
    assert_same(marginal(information(WIDE), index), expected)


def test_conditional_in_both_forms_is_bayes_rule():
    value = jnp.array([0.4, -1.2])
    given = conditional(WIDE, [2, 0], value)
    assert_same(conditional(information(WIDE), [2, 0], value), given)
    # p(a | b) = p(a, b) / p(b), at a point
    a = jnp.array([0.3, 0.9])
    whole = eqx.filter_jit(WIDE.log_prob)(jnp.array([value[1], a[0], value[0], a[1]]))
    np.testing.assert_allclose(
        eqx.filter_jit(given.log_prob)(a),
        whole - eqx.filter_jit(marginal(WIDE, [2, 0]).log_prob)(value),
        rtol=1e-8,
    )
    # and it is what completing a missing entry does
    partial = jnp.array([value[1], jnp.nan, value[0], jnp.nan])
    np.testing.assert_allclose(WIDE.complete_mean(partial)[np.array([1, 3])], given.mean, rtol=1e-8)


def test_affine_map_agrees_with_samples():
    y = affine(SOURCE, jnp.asarray(C), jnp.asarray(OFFSET), NOISE)
    rng = np.random.default_rng(0)
    n = 20000
    mean, sigma = moments(SOURCE)
    draws = rng.multivariate_normal(mean, sigma, n) @ C.T + OFFSET
    draws = draws + rng.normal(size=(n, 3)) * np.sqrt(np.diag(NOISE.matrix()))
    expected_mean, expected = moments(y)
    assert (np.abs(draws.mean(0) - expected_mean) < 5 * np.sqrt(np.diag(expected) / n)).all()
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / n)
    assert (np.abs(np.cov(draws.T) - expected) < 5 * spread).all()
    still = affine(SOURCE, jnp.eye(2), jnp.zeros(2))
    assert_same(still, SOURCE)


def test_joint_of_source_and_emission():
    """makin 2.14 and 2.16: conditioning the joint is the posterior in precision form, and by Woodbury."""
    both = joint(SOURCE, jnp.asarray(C), jnp.asarray(OFFSET), NOISE)
    x, y = jnp.array([0.2, -0.4]), jnp.array([0.5, 0.1, 1.0])
    emission = st.multivariate_normal(C @ np.asarray(x) + OFFSET, np.asarray(NOISE.matrix())).logpdf(y)
    np.testing.assert_allclose(
        eqx.filter_jit(both.log_prob)(jnp.concatenate([x, y])),
        eqx.filter_jit(SOURCE.log_prob)(x) + emission,
        rtol=1e-8,
    )
    posterior = conditional(both, [2, 3, 4], y)
    mean, sigma = moments(SOURCE)
    weight = np.linalg.inv(np.asarray(NOISE.matrix()))
    precision = C.T @ weight @ C + np.linalg.inv(sigma)
    covariance = np.linalg.inv(precision)
    shift = C.T @ weight @ (np.asarray(y) - OFFSET) + np.linalg.solve(sigma, mean)
    assert_same(posterior, fd.Gaussian(jnp.asarray(covariance @ shift), fd.Full(jnp.asarray(covariance))))
    # the emission as a factor in x, multiplied in precision form
    factor = fd.Information(
        jnp.asarray(C.T @ weight @ (np.asarray(y) - OFFSET)), jnp.asarray(C.T @ weight @ C)
    )
    assert_same(product(information(SOURCE), factor)[0], posterior)


def test_factor_model_block_inverse():
    """cho P22: Σ = [[I + σ²WWᵀ, σ²W], [σ²Wᵀ, σ²I]] in the order (x, z)."""
    rng = np.random.default_rng(3)
    w, s2 = rng.normal(size=(3, 2)), 0.6
    prior = fd.Gaussian(jnp.zeros(2), fd.Spherical(jnp.array(s2), dim=2))
    model = joint(prior, jnp.asarray(w), jnp.zeros(3), fd.Spherical(jnp.array(1.0), dim=3))
    order = [2, 3, 4, 0, 1]
    sigma = np.block([[np.eye(3) + s2 * w @ w.T, s2 * w], [s2 * w.T, s2 * np.eye(2)]])
    np.testing.assert_allclose(model.covariance.matrix()[np.ix_(order, order)], sigma, rtol=1e-12)
    inverse = np.block([[np.eye(3), -w], [-w.T, w.T @ w + np.eye(2) / s2]])
    precision = information(marginal(model, order)).precision
    np.testing.assert_allclose(precision, inverse, atol=1e-10)
    np.testing.assert_allclose(np.linalg.inv(sigma), inverse, atol=1e-10)


def test_product_of_experts():
    # cho U3: N(0,1)·N(2,1) = N(1,½)
    unit = fd.Full(jnp.eye(1))
    p, q = fd.Gaussian(jnp.zeros(1), unit), fd.Gaussian(jnp.full(1, 2.0), unit)
    both, log_z = product(p, q)
    np.testing.assert_allclose(both.mean, [1.0], rtol=1e-12)
    np.testing.assert_allclose(both.covariance.matrix(), [[0.5]], rtol=1e-12)
    mass = integrate.quad(lambda x: st.norm.pdf(x) * st.norm.pdf(x, 2), -20, 20)[0]
    np.testing.assert_allclose(log_z, np.log(mass), rtol=1e-9)


def test_product_holds_at_every_point_in_both_forms():
    p, q = gaussian(4, 3), gaussian(5, 3)
    both, log_z = product(p, q)
    x = jnp.array([0.3, -1.0, 0.8])
    np.testing.assert_allclose(
        eqx.filter_jit(both.log_prob)(x) + log_z,
        eqx.filter_jit(p.log_prob)(x) + eqx.filter_jit(q.log_prob)(x),
        rtol=1e-8,
    )
    form, log_mass = product(information(p), information(q))
    assert_same(form, both)
    expected = log_z - sum(
        eqx.filter_jit(g.log_prob)(jnp.zeros(3)) for g in (p, q)
    )  # each factor is its density over its value at zero
    np.testing.assert_allclose(log_mass, expected, rtol=1e-8)


def test_wasserstein_distance():
    p, q = gaussian(6, 3), gaussian(7, 3)
    (m, s), (n, t) = moments(p), moments(q)
    root = linalg.sqrtm(t)
    dense = np.sqrt(np.sum((m - n) ** 2) + np.trace(s + t - 2 * np.real(linalg.sqrtm(root @ s @ root))))
    distance = eqx.filter_jit(fd.wasserstein2)
    np.testing.assert_allclose(distance(p, q), dense, rtol=1e-7)
    np.testing.assert_allclose(distance(q, p), dense, rtol=1e-7)
    assert distance(p, p) < 1e-6
    # chaudhari L5: in one dimension it is the L2 distance of the quantile functions
    a, b = (0.5, 2.0), (-1.0, 0.7)
    square = integrate.quad(lambda u: (st.norm.ppf(u, *a) - st.norm.ppf(u, *b)) ** 2, 0, 1)[0]
    first, second = (fd.Gaussian(jnp.array([mu]), fd.Full(jnp.array([[sd**2]]))) for mu, sd in (a, b))
    np.testing.assert_allclose(distance(first, second), np.sqrt(square), rtol=1e-6)


def test_algebra_is_differentiable():
    @jax.jit
    @jax.value_and_grad
    def loss(mean):
        return fd.product(fd.Gaussian(mean, SOURCE.covariance), SOURCE)[1]

    x, h = np.array([0.4, -0.2]), 1e-6
    numeric = [(float(loss(x + h * e)[0]) - float(loss(x - h * e)[0])) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(loss(x)[1], numeric, rtol=1e-6)


@pytest.mark.parametrize("function", [fd.marginal, fd.conditional, fd.product])
def test_other_objects_are_refused(function):
    arguments = ([0], jnp.zeros(1)) if function is fd.conditional else ([0],)
    with pytest.raises(TypeError, match=r"must be Gaussian or Information. Got Poisson instead"):
        function(fd.Poisson(jnp.ones(1)), *arguments)
