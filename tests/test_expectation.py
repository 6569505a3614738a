"""Expectations and their gradients: exact where they can be, unbiased and of known variance elsewhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from freeenergy.distributions import (
    Bernoulli,
    Diagonal,
    Exponential,
    Full,
    Gaussian,
    Multinomial,
    SoftBernoulli,
    SoftCategorical,
    soften,
)
from freeenergy.inference import (
    BonnetPrice,
    Enumeration,
    Finite,
    GumbelSoftmax,
    Pathwise,
    Quadratic,
    ScoreFunction,
    Split,
    StraightThrough,
    binary_states,
)

DRAWS = 40_000
KEYS = jax.random.split(jax.random.key(1), DRAWS)


def square(z):
    return jnp.sum(z**2)


def _slope(mean, variance, expectation, key):
    """One estimate of d E[z²] / dμ for z ~ N(μ, σ²)."""
    return jax.grad(lambda m: expectation(square, Gaussian(m[None], Diagonal(variance[None])), key=key))(
        mean
    )


@eqx.filter_jit
def slopes(mean, variance, expectation, keys):
    return jax.vmap(lambda key: _slope(mean, variance, expectation, key))(keys)


def gaussian_moments(function, mean, variance):
    """Mean, variance and fourth central moment of function(z), z ~ N, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    values = function(mean + np.sqrt(variance) * nodes)
    centred = values - weights @ values
    return weights @ values, weights @ centred**2, weights @ centred**4


@pytest.mark.parametrize(
    ("mean", "variance", "baseline", "expected"),
    [
        (1.0, 1.0, 0.0, 30.0),  # cho P25: μ⁴/σ² + 14μ² + 15σ²
        (0.7, 0.5, 0.0, 0.7**4 / 0.5 + 14 * 0.49 + 15 * 0.5),  # makin 8.16
        (0.7, 0.5, 0.49 + 1.5, 8 * 0.49 + 6 * 0.5),  # makin 8.17: the best baseline μ² + 3σ²
        (0.7, 0.5, None, 4 * 0.5),  # makin 8.18: pathwise
        (1.0, 1.0, None, 4.0),
    ],
)
def test_variance_of_the_gradient_of_a_square(mean, variance, baseline, expected):
    if baseline is None:
        by_hand, expectation = lambda z: 2 * z, Pathwise()
    else:
        by_hand = lambda z: (z**2 - baseline) * (z - mean) / variance  # noqa: E731
        expectation = ScoreFunction(1, jnp.asarray(baseline))
    first, second, fourth = gaussian_moments(by_hand, mean, variance)
    np.testing.assert_allclose([first, second], [2 * mean, expected], rtol=1e-12)
    got = np.asarray(slopes(jnp.asarray(mean), jnp.asarray(variance), expectation, KEYS))
    assert abs(got.mean() - 2 * mean) < 5 * np.sqrt(expected / DRAWS)
    assert abs(got.var() - expected) < 5 * np.sqrt((fourth - second**2) / DRAWS)


def test_leaving_one_out_is_unbiased_and_less_noisy():
    keys = KEYS[: DRAWS // 8]
    got = np.asarray(slopes(jnp.array(1.0), jnp.array(1.0), ScoreFunction(8), keys))
    assert abs(got.mean() - 2) < 5 * got.std() / np.sqrt(len(keys))
    assert got.var() < 30 / 8  # what eight draws without a baseline would have


def energies_of(points):
    return jnp.sin(3 * points + 1)


def test_score_function_is_unbiased_for_finite_distributions():
    logits = jnp.array([0.3, -1.0, 0.8])

    def mean(logits, expectation, key):
        return expectation(lambda z: energies_of(z.astype(float)), Finite(jax.nn.softmax(logits)), key=key)

    exact = jax.jit(jax.value_and_grad(mean))(logits, Enumeration(jnp.arange(3)), KEYS[0])
    p = np.exp(logits) / np.exp(logits).sum()
    f = np.sin(3 * np.arange(3) + 1)
    np.testing.assert_allclose(exact[0], p @ f, rtol=1e-12)
    np.testing.assert_allclose(exact[1], p * (f - p @ f), rtol=1e-10)
    keys = KEYS[:10_000]
    values, got = jax.jit(jax.vmap(jax.value_and_grad(mean), (None, None, 0)))(
        logits, ScoreFunction(2), keys
    )
    assert abs(values.mean() - exact[0]) < 5 * values.std() / 100
    assert (np.abs(got.mean(0) - exact[1]) < 5 * got.std(0) / 100).all()


def test_score_function_is_unbiased_for_bernoulli_units():
    probability = jnp.array([0.2, 0.6, 0.7])

    def mean(p, expectation, key):
        return expectation(lambda z: jnp.cos(z @ jnp.array([1.0, 2.0, 3.0])), Bernoulli(p), key=key)

    sums, states = jax.jit(jax.value_and_grad(mean)), Enumeration(binary_states(3))
    exact = sums(probability, states, KEYS[0])[1]
    # E f is linear in each probability: the slope is a difference of conditional means
    for i in range(3):
        moved = [np.where(np.arange(3) == i, v, probability) for v in (0.1, 0.9)]
        ends = [sums(p, states, KEYS[0])[0] for p in moved]
        np.testing.assert_allclose(exact[i], (ends[1] - ends[0]) / 0.8, rtol=1e-9)
    got = jax.jit(jax.vmap(jax.grad(mean), (None, None, 0)))(probability, ScoreFunction(4), KEYS[:10_000])
    assert (np.abs(got.mean(0) - exact) < 5 * got.std(0) / 100).all()


def test_both_estimators_find_the_slope_of_the_mean_of_an_exponential():
    # makin 8.19: E[x] = 1/λ
    def mean(rate, expectation, key):
        return expectation(jnp.sum, Exponential(rate[None]), key=key)

    grads = jax.jit(jax.vmap(jax.grad(mean), (None, None, 0)))
    for expectation in (Pathwise(), ScoreFunction(4)):
        got = grads(jnp.array(1.7), expectation, KEYS[:10_000])
        assert abs(got.mean() + 1 / 1.7**2) < 5 * got.std() / 100


def test_an_impossible_point_of_infinite_energy_counts_zero():
    infinite = Enumeration(jnp.arange(2))
    value = infinite(lambda z: jnp.where(z == 0, 3.0, jnp.inf), Finite(jnp.array([1.0, 0.0])), key=KEYS[0])
    assert float(value) == 3.0


def test_quadratic_is_the_expected_quadratic_form():
    # makin B.13: E[(b − Cz)ᵀA(b − Cz)] = tr(ACΣCᵀ) + (b − Cμ)ᵀA(b − Cμ)
    rng = np.random.default_rng(0)
    a, c, b, m = (rng.normal(size=s) for s in ((4, 4), (4, 3), (4,), (3,)))
    a, root = a @ a.T, rng.normal(size=(3, 3))
    sigma = root @ root.T + np.eye(3)

    def form(z):
        gap = b - c @ z
        return gap @ jnp.asarray(a) @ gap

    value, slope = jax.value_and_grad(lambda q: Quadratic()(form, q, key=KEYS[0]), allow_int=True)(
        Gaussian(jnp.asarray(m), Full(jnp.asarray(sigma)))
    )
    gap = b - c @ m
    np.testing.assert_allclose(value, np.trace(a @ c @ sigma @ c.T) + gap @ a @ gap, rtol=1e-12)
    # Bonnet and Price: the slope in μ is E[∇f], in Σ it is ½ E[∇²f]
    np.testing.assert_allclose(slope.mean, -2 * c.T @ a @ gap, rtol=1e-10)
    np.testing.assert_allclose(slope.covariance.value, c.T @ a @ c, rtol=1e-10)


def test_a_part_in_closed_form_takes_its_noise_away():
    mean, variance = jnp.array(0.7), jnp.array(0.5)
    # all of f is known: no noise is left
    got = np.asarray(slopes(mean, variance, Split(square), KEYS[:100]))
    np.testing.assert_allclose(got, 1.4, rtol=1e-12)
    # half of it: the noise of the other half, whose slope is z
    half = np.asarray(slopes(mean, variance, Split(_half), KEYS))
    assert abs(half.mean() - 1.4) < 5 * np.sqrt(0.5 / DRAWS)
    assert abs(half.var() - 0.5) < 5 * 0.5 * np.sqrt(2 / DRAWS)


def _half(z):
    return 0.5 * jnp.sum(z**2)


def test_bonnet_and_price_agree_with_the_path():
    """The slopes of E[sin z₀ · z₁²] in m and Σ (makin 8.13), by quadrature of E[∇f] and ½ E[∇²f]."""
    m, sigma = np.array([0.3, -0.8]), np.array([[0.5, 0.2], [0.2, 0.7]])

    def slopes(expectation, key):
        def value(m, sigma):
            return expectation(lambda z: jnp.sin(z[0]) * z[1] ** 2, Gaussian(m, Full(sigma)), key=key)

        return jax.grad(value, (0, 1))(jnp.asarray(m), jnp.asarray(sigma))

    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    noise = np.stack([v.ravel() for v in np.meshgrid(nodes, nodes)])
    w = np.outer(weights, weights).ravel() / weights.sum() ** 2
    x, y = m[:, None] + np.linalg.cholesky(sigma) @ noise
    mean = np.array([w @ (np.cos(x) * y**2), w @ (np.sin(x) * 2 * y)])
    cross = w @ (np.cos(x) * 2 * y)
    bend = 0.5 * np.array([[w @ (-np.sin(x) * y**2), cross], [cross, w @ (2 * np.sin(x))]])
    spread = {}
    for expectation in (BonnetPrice(4), Pathwise(4)):
        found = jax.jit(jax.vmap(lambda k, e=expectation: slopes(e, k)))(KEYS[:8000])
        for got, expected in zip(map(np.asarray, found), (mean, bend), strict=True):
            # a Cholesky factor knows one triangle: what counts is the symmetric part
            even = got if got.ndim == 2 else (got + got.transpose(0, 2, 1)) / 2
            assert (np.abs(even.mean(0) - expected) < 5 * even.std(0) / np.sqrt(8000)).all()
        spread[type(expectation)] = np.asarray(found[0]).var(0)
    # for the mean both are one estimator
    np.testing.assert_allclose(spread[BonnetPrice], spread[Pathwise], rtol=0.1)


LOGITS = np.array([1.0, -0.5, 0.3])


def test_the_density_of_a_soft_label():
    """It integrates to one, and its distribution is that of the draws (makin 8.24)."""
    sample = jax.jit(lambda q: jax.vmap(lambda k: q.sample(key=k))(KEYS))
    density = jax.jit(lambda q, y: jnp.exp(jax.vmap(lambda v: q.log_prob(jnp.stack([v, 1 - v])))(y)))
    for s in (0.4, 1.5):
        soft = SoftCategorical(jnp.asarray(LOGITS[:2]), jnp.array(s))
        # in the logistic coordinate, where the density has no pole
        u = np.linspace(-60, 60, 20_001)
        y = 1 / (1 + np.exp(-u))
        mass = np.asarray(density(soft, jnp.asarray(np.clip(y, 1e-300, 1 - 1e-16)))) * y * (1 - y)
        np.testing.assert_allclose(integrate.trapezoid(mass, u), 1, atol=1e-5)
        below = integrate.trapezoid(np.where(y < 0.3, mass, 0), u)
        share = (np.asarray(sample(soft))[:, 0] < 0.3).mean()
        assert abs(share - below) < 5 * np.sqrt(below * (1 - below) / DRAWS) + 1e-3
        # of two labels one is a bit
        bits = SoftBernoulli(jnp.asarray(LOGITS[:1] - LOGITS[1]), jnp.array(s))
        point = jnp.array([0.25])
        np.testing.assert_allclose(np.exp(bits.log_prob(point)), density(soft, point)[0], rtol=1e-9)


def test_hardened_soft_labels_are_labels():
    """Gumbel-max: frequencies .5815, .1297, .2888 (makin 8.22), whatever the softness (8.23)."""
    p = np.exp(LOGITS) / np.exp(LOGITS).sum()
    np.testing.assert_allclose(p, [0.5815, 0.1297, 0.2888], atol=5e-5)
    soft = soften(Multinomial(jnp.asarray(p)), jnp.array(1e-3))
    draws = np.asarray(jax.jit(jax.vmap(lambda k: soft.sample(key=k)))(KEYS))
    hard = np.asarray(jax.jit(jax.vmap(soft.harden))(jnp.asarray(draws)))
    assert (np.abs(hard.mean(0) - p) < 5 * np.sqrt(p * (1 - p) / DRAWS)).all()
    # s → 0 is the corner itself, but for near ties
    assert np.mean(np.abs(draws - hard).max(1) > 1e-3) < 0.02
    with pytest.raises(ValueError, match=r"if it has one trial\. Got 2 instead"):
        soften(Multinomial(jnp.asarray(p), 2), jnp.array(1.0))
    with pytest.raises(TypeError, match=r"can be softened\. Got Exponential instead"):
        soften(Exponential(jnp.ones(1)), jnp.array(1.0))


def test_soft_and_hard_gradients_of_labels():
    """Straight-through has the value of labels and the slope of soft ones (makin 8.23, 8.25)."""
    costs, logits, keys = np.array([0.2, 1.0, -0.7]), jnp.asarray(LOGITS), KEYS[:10_000]

    def mean(logits, expectation, key):
        return expectation(lambda z: jnp.asarray(costs) @ z, Multinomial(jax.nn.softmax(logits)), key=key)

    look = jax.jit(jax.vmap(jax.value_and_grad(mean), (None, None, 0)))
    p = np.exp(LOGITS) / np.exp(LOGITS).sum()
    exact = p * (costs - costs @ p)
    found = {}
    for name, expectation in {
        "soft": GumbelSoftmax(jnp.array(0.5)),
        "softer": GumbelSoftmax(jnp.array(5.0)),
        "straight": StraightThrough(jnp.array(0.5)),
        "score": ScoreFunction(2),
    }.items():
        values, found[name] = map(np.asarray, look(logits, expectation, keys))
        if name in ("straight", "score"):
            assert abs(values.mean() - costs @ p) < 5 * values.std() / 100
    # of a linear function both have the slope of the softmax: ∂σ_l/∂η_m = σ_l (1[l = m] − σ_m) / s
    np.testing.assert_allclose(found["soft"], found["straight"], rtol=1e-9, atol=1e-12)
    y = np.asarray(
        soften(Multinomial(jnp.asarray(p)), jnp.array(0.5)).sample(key=jax.random.split(keys[0], 1)[0])
    )
    np.testing.assert_allclose(found["soft"][0], y * (costs - costs @ y) / 0.5, atol=1e-9)
    # the score function is unbiased and has more noise; softer draws have less of it and more bias
    assert (np.abs(found["score"].mean(0) - exact) < 5 * found["score"].std(0) / 100).all()
    noise = {name: got.var(0).sum() for name, got in found.items()}
    bias = {name: np.abs(got.mean(0) - exact).max() for name, got in found.items()}
    assert noise["softer"] < noise["soft"] < noise["score"]
    assert bias["softer"] > bias["soft"]
    assert (np.abs(found["softer"].mean(0) - exact) > 5 * found["softer"].std(0) / 100).any()


def test_soft_bits():
    def mean(p, expectation, key):
        return expectation(jnp.sum, Bernoulli(p), key=key)

    means = jax.jit(jax.vmap(mean, (None, None, 0)))
    values = np.asarray(means(jnp.array([0.2, 0.7]), StraightThrough(jnp.array(0.3), 2), KEYS[:10_000]))
    assert set(np.unique(values)) <= {0.0, 0.5, 1.0, 1.5, 2.0}
    assert abs(values.mean() - 0.9) < 5 * values.std() / 100
