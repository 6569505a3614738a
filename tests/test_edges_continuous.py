"""Continuous families at very small and very large scales, far away and without weight: values and slopes.

Every member of a batch is compared with SciPy, or with a closed form, in 64 bits at the same numbers.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from scipy import special, stats

from freeenergy import distributions as fd

EXAMPLES = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],
)
DTYPES = pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=["64", "32"])
SIZE = 64
MOST = {jnp.float64: 30, jnp.float32: 15}  # powers of ten that scales and locations go to


EXPONENTS = [-1.0, -0.5, -0.2, 0.0, 0.1, 0.5, 1.0]
PLACES = [-1e3, -3.0, -0.4, 0.0, 1e-5, 0.7, 2.5, 40.0, 1e20, -1e22]
SEEDS = some.integers(0, 2**32 - 1)


def draw(seed, *choices):
    """A batch of each of the `choices`, with repetition."""
    rng = np.random.default_rng(seed)
    return [rng.choice(values, SIZE) for values in choices]


def rounded(value, dtype):
    """The numbers of `dtype` nearest to `value`, as the reference reads them."""
    return np.asarray(np.asarray(value, np.dtype(dtype)), float)


def assert_near(found, expected, size, dtype, factor=64.0, where=True):
    """Equal up to rounding of numbers of `size`, which are subtracted from each other on the way."""
    found, expected, size = (np.asarray(v, float) for v in (found, expected, size))
    largest = float(jnp.finfo(dtype).max)
    # what no number of the type can hold is infinite
    with np.errstate(invalid="ignore", over="ignore"):
        beyond = np.abs(expected) > largest
        expected = np.where(beyond, np.sign(expected) * np.inf, expected)
        error = np.where(beyond, np.where(found == expected, 0, np.inf), np.abs(found - expected))
        allowed = (
            factor * float(jnp.finfo(dtype).eps) * (np.abs(size) + np.where(beyond, 0, np.abs(expected)))
        )
        allowed = allowed + float(jnp.finfo(dtype).tiny)
    wrong = ~(error <= allowed) & where
    assert not wrong.any(), (np.argwhere(wrong)[0], found[wrong][0], expected[wrong][0], wrong.sum())


def relative_slopes(function, *parameters):
    """∂f/∂θ · θ of a batch, by central differences in log θ."""
    step = 1e-5
    for i in range(len(parameters)):
        up, down = list(parameters), list(parameters)
        up[i], down[i] = up[i] * np.exp(step), down[i] * np.exp(-step)
        yield (function(*up) - function(*down)) / (2 * step)


# ---------------------------------------------------------------------------------------------
# x = m + s z
# ---------------------------------------------------------------------------------------------


def log1p_square(z):
    return np.where(
        np.abs(z) < 1e8, np.log1p(np.minimum(np.abs(z), 1e8) ** 2), 2 * np.log(np.abs(z) + 1e-30)
    )


def t_logpdf(z, df):
    # (SciPy's betaln loses digits for large arguments)
    half = df / 2
    ratio = np.where(
        half < 1e3, special.gammaln(half + 0.5) - special.gammaln(half), 0.5 * np.log(half) - 1 / (8 * half)
    )
    constant = ratio - 0.5 * np.log(np.pi * df)
    return constant - (df + 1) / 2 * log1p_square(z / np.sqrt(df))


DEGREES = [0.01, 0.5, 1.0, 3.0, 200.0, 1e6, 1e12]

# member, log density of z, its slope, entropy of z
LOCATION_SCALE = {
    "laplace": (
        lambda m, s, v: fd.Laplace(m, s),
        lambda z, v: stats.laplace.logpdf(z),
        lambda z, v: -np.sign(z),
        lambda v: stats.laplace.entropy() + 0 * v,
    ),
    "cauchy": (
        lambda m, s, v: fd.Cauchy(m, s),
        lambda z, v: -np.log(np.pi) - log1p_square(z),
        lambda z, v: -2 / (z + 1 / z),
        lambda v: stats.cauchy.entropy() + 0 * v,
    ),
    "sech": (
        lambda m, s, v: fd.HyperbolicSecant(m, s),
        lambda z, v: -np.logaddexp(np.pi * z / 2, -np.pi * z / 2),
        lambda z, v: -np.pi / 2 * np.tanh(np.pi * z / 2),
        lambda v: np.log(4) + 0 * v,
    ),
    "logistic": (
        lambda m, s, v: fd.Logistic(m, s),
        lambda z, v: -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z))),
        lambda z, v: -np.tanh(z / 2),
        lambda v: 2 + 0 * v,
    ),
    "t": (
        fd.StudentT,
        t_logpdf,
        lambda z, v: -(v + 1) / (z + v / z),
        stats.t.entropy,
    ),
    "multivariate t": (
        lambda m, s, v: fd.MultivariateT(m, s[:, None] ** 2, v[0]),
        t_logpdf,
        lambda z, v: -(v + 1) / (z + v / z),
        None,
    ),
    "normal": (
        lambda m, s, v: fd.Gaussian(m, fd.Diagonal(s**2)),
        lambda z, v: stats.norm.logpdf(z),
        lambda z, v: -z,
        lambda v: stats.norm.entropy() + 0 * v,
    ),
    "full normal": (
        lambda m, s, v: fd.Gaussian(m, fd.Full(s[:, None] ** 2)),
        lambda z, v: stats.norm.logpdf(z),
        lambda z, v: -z,
        lambda v: stats.norm.entropy() + 0 * v,
    ),
}


@jax.jit
def location_scale_answers(x, m, s, v):
    def one(make, entropy, x, m, s, v):
        def log_prob(x, m, s, v):
            return make(m[None], s[None], v[None]).log_prob(x[None])

        value, slopes = jax.value_and_grad(log_prob, (0, 1, 2, 3))(x, m, s, v)
        missing = log_prob(jnp.full_like(x, jnp.nan), m, s, v)
        spread = None if entropy is None else fd.entropy(make(m[None], s[None], v[None]))
        return value, slopes, missing, spread

    return {
        name: jax.vmap(functools.partial(one, make, entropy))(x, m, s, v)
        for name, (make, _, _, entropy) in LOCATION_SCALE.items()
    }


@DTYPES
@EXAMPLES
@given(SEEDS)
def test_location_and_scale(dtype, seed):
    place, location, exponent, df = draw(seed, PLACES, EXPONENTS, EXPONENTS, DEGREES)
    scale = rounded(10.0 ** (MOST[dtype] * exponent), dtype)
    # far away in some rows: the location is as large as can be, and what is observed lies beside it
    centre = rounded(np.sign(place) * 10.0 ** (MOST[dtype] * location), dtype)
    x, df = rounded(centre + scale * place, dtype), rounded(df, dtype)
    z, log_scale = (x - centre) / scale, np.log(scale)
    given = [jnp.asarray(v, dtype) for v in (x, centre, scale, df)]
    for name, found in location_scale_answers(*given).items():
        _, log_density, slope, entropy = LOCATION_SCALE[name]
        value, (by_x, by_location, by_scale, by_df), missing, spread = found
        with np.errstate(over="ignore", divide="ignore"):
            here, tilt = log_density(z, df), np.where(z == 0, 0, slope(np.where(z == 0, 1, z), df))
            size = np.abs(here) + np.abs(log_scale) + np.abs(z * tilt) + 1
            assert_near(value, here - log_scale, size, dtype)
            # near the centre the slope is a difference of ones; |z| has any slope from −1 to 1 there
            rounding = np.where((z == 0) & (name == "laplace"), 1 / float(jnp.finfo(dtype).eps), 1) / scale
            finite = np.isfinite(np.asarray(value))
            assert_near(by_x, tilt / scale, rounding, dtype, where=finite)
            assert_near(by_location, -tilt / scale, rounding, dtype, where=finite)
            # (very far away the slope in s is a product of numbers too small for 32 bits)
            size = (1 + np.abs(z * tilt)) / scale
            assert_near(by_scale, -(1 + z * tilt) / scale, size, dtype, where=np.abs(z) < 1e4)
        assert (np.asarray(missing) == 0).all()
        if name in ("t", "multivariate t"):
            (expected,) = relative_slopes(lambda v, z=z: t_logpdf(z, v), df)
            error = np.abs(np.asarray(by_df, float) * df - expected)
            allowed = 1e-3 + (1e-6 + 64 * float(jnp.finfo(dtype).eps)) * np.abs(here)
            assert (error <= allowed).all()
        if entropy is not None:
            assert_near(spread, entropy(df) + log_scale, 2 + np.abs(log_scale), dtype)


# ---------------------------------------------------------------------------------------------
# positive numbers, fractions and compositions
# ---------------------------------------------------------------------------------------------


def gamma_kl(a, b, c, d):
    return (
        (a - c) * special.digamma(a)
        - special.gammaln(a)
        + special.gammaln(c)
        + c * (np.log(b) - np.log(d))
        + a * (d / b - 1)
    )


def beta_logpdf(x, a, b):
    return special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b)


def beta_kl(a, b, c, d):
    gain = special.betaln(c, d) - special.betaln(a, b)
    slopes = (a - c) * special.digamma(a) + (b - d) * special.digamma(b)
    return gain + slopes - (a - c + b - d) * special.digamma(a + b)


def dirichlet_fisher(a, b):
    shared = -special.polygamma(1, a + b)
    return np.array(
        [[special.polygamma(1, a) + shared, shared], [shared, special.polygamma(1, b) + shared]]
    )


# member, log density, entropy, divergence, E[T], Cov[T], the parameters of a member
FAMILIES = {
    "exponential": (
        lambda a, b: fd.Exponential(b[None]),
        lambda x, a, b: np.log(b) - b * x,
        lambda a, b: 1 - np.log(b),
        lambda a, b, c, d: np.log(b) - np.log(d) + d / b - 1,
        lambda a, b: np.array([1 / b]),
        lambda a, b: np.array([[1 / b**2]]),
        lambda member: (member.rate[0],),
    ),
    "gamma": (
        lambda a, b: fd.Gamma(a[None], b[None]),
        lambda x, a, b: special.xlogy(a - 1, b * x) - b * x + np.log(b) - special.gammaln(a),
        lambda a, b: stats.gamma.entropy(a) - np.log(b),
        gamma_kl,
        lambda a, b: np.array([special.digamma(a) - np.log(b), a / b]),
        lambda a, b: np.array([[special.polygamma(1, a), 1 / b], [1 / b, a / b**2]]),
        lambda member: (member.shape[0], member.rate[0]),
    ),
    "beta": (
        lambda a, b: fd.Beta(a[None], b[None]),
        beta_logpdf,
        stats.beta.entropy,
        beta_kl,
        lambda a, b: np.array([special.digamma(a), special.digamma(b)]) - special.digamma(a + b),
        dirichlet_fisher,
        lambda member: (member.alpha[0], member.beta[0]),
    ),
}


@jax.jit
def family_answers(x, a, b, c, d):
    def one(name, x, a, b, c, d):
        make, *_, read = FAMILIES[name]

        def log_prob(x, a, b):
            return make(a, b).log_prob(x[None])

        def entropy(a, b):
            return fd.entropy(make(a, b))

        def divergence(a, b, c, d):
            return fd.kl_divergence(make(a, b), make(c, d))

        member = make(a, b)
        mean = fd.mean_parameters(member)
        return (
            jax.value_and_grad(log_prob, (0, 1, 2))(x, a, b),
            jax.value_and_grad(entropy, (0, 1))(a, b),
            jax.value_and_grad(divergence, (2, 3))(a, b, c, d),
            mean.ravel(),
            fd.fisher_information(member),
            read(member.from_statistics(jnp.full(1, 3, x.dtype), 3 * mean)),
        )

    return {
        name: jax.vmap(functools.partial(one, name))(*(v[i] for v in (x, a, b, c, d)))
        for i, name in enumerate(FAMILIES)
    }


# of shapes so far apart that one part has nearly all, the statistics hold too few digits to get them back
SHAPES = [1e-6, 0.03, 0.5, 1.0, 1.5, 2.0, 7.0, 9.0, 300.0]
LEAST_SHAPE = 0.03


def family_parameters(name, dtype, rng):
    """An event, the two parameters of a member, and those of another one."""
    shapes = [rng.choice(SHAPES, SIZE) for _ in range(4)]
    if name in ("exponential", "gamma"):
        shapes[1::2] = [10.0 ** (MOST[dtype] * rng.choice(EXPONENTS, SIZE)) for _ in range(2)]
        x = rng.choice([0, 1e-6, 0.01, 0.5, 1, 3, 30], SIZE) / shapes[1]
    else:
        x = rng.choice([0, 1e-9, 0.01, 0.5, 0.7, 1 - 2.0**-20, 1], SIZE)
    return [rounded(v, dtype) for v in (x, *shapes)]


def assert_slopes_near(found, function, parameters, size, dtype, where=True):
    """Slopes against central differences, both relative to the parameter."""
    for slope, value, expected in zip(
        found, parameters, relative_slopes(function, *parameters), strict=True
    ):
        # what no number of the type can hold is infinite
        beyond = np.abs(expected / value) > float(jnp.finfo(dtype).max)
        error = np.abs(np.asarray(slope, float) * value - expected)
        allowed = (1e-5 + 64 * float(jnp.finfo(dtype).eps)) * size + 1e-4 * np.abs(expected)
        wrong = np.where(beyond, ~np.isinf(slope), ~(error <= allowed)) & where
        assert not wrong.any(), (np.argwhere(wrong)[0], np.asarray(slope)[wrong][0], expected[wrong][0])


@DTYPES
@EXAMPLES
@given(SEEDS)
def test_positive_numbers_and_fractions(dtype, seed):
    rng = np.random.default_rng(seed)
    drawn = {name: family_parameters(name, dtype, rng) for name in FAMILIES}
    found = family_answers(*(jnp.asarray(np.array(v), dtype) for v in zip(*drawn.values())))
    for name, (x, a, b, c, d) in drawn.items():
        _, log_density, entropy, divergence, mean, fisher, _ = FAMILIES[name]
        (value, slopes), (spread, spread_slopes), (kl, kl_slopes), moments, information, back = found[name]
        fraction = name == "beta"
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            inside = (x > 0) & (x < (1 if fraction else np.inf))
            safe = np.where(inside, x, 0.5 if fraction else 1 / b)
            largest = (a + 1) * (
                1 + np.abs(np.log(safe)) + np.abs(np.log(b)) + np.abs(np.log(a))
            ) + b * safe
            size = largest + (b * (1 + np.abs(np.log1p(-safe)) + np.abs(np.log(b))) if fraction else 0)
            # at the edge too: −∞, ∞ or a number
            assert_near(value, log_density(x, a, b), size, dtype)
            assert_slopes_near(slopes, log_density, (x, a, b), size, dtype, where=inside & (x < 0.999))
            edge = np.isfinite(log_density(x, a, b))
            assert np.isfinite(np.stack(slopes[1:])[:, edge]).all()
            size = size + 1 / a + (1 / b if fraction else 0)
            assert_near(spread, entropy(a, b), size, dtype)
            assert_slopes_near(spread_slopes, entropy, (a, b), size, dtype)
            expected = divergence(a, b, c, d)
            size = size + np.abs(expected) + c / np.minimum(a, 1) + (a + c) * np.abs(np.log(d) - np.log(b))
            size = size + (d / np.minimum(b, 1) if fraction else 0)
            assert_near(kl, expected, size, dtype)
            other = functools.partial(divergence, a, b)
            assert_slopes_near(kl_slopes, other, (c, d), size, dtype)
            size = 1 + np.abs(np.log(a)) + np.abs(np.log(b)) if name != "exponential" else 0
            assert_near(np.transpose(moments), mean(a, b), size, dtype)
            expected = fisher(a, b)
            size = special.polygamma(1, a) + special.polygamma(1, b) if fraction else 0
            assert_near(np.moveaxis(information, 0, -1), expected, size, dtype)
        known = (a >= LEAST_SHAPE) & ((b >= LEAST_SHAPE) | (not fraction))
        digits = 1 + (a + b if fraction else a * (1 + np.abs(np.log(b))))
        for estimate, truth in zip(back, (a, b) if len(back) == 2 else (b,), strict=True):
            assert_near(estimate, truth, 64 * truth * digits, dtype, where=known)


@jax.jit
def composition_answers(x, a, b, c, d):
    def one(x, a, b, c, d):
        member, other = fd.Dirichlet(jnp.stack([a, b])), fd.Dirichlet(jnp.stack([c, d]))
        parts = jnp.stack([x, 1 - x])
        missing = parts.at[1].set(jnp.nan)
        return (
            jax.value_and_grad(lambda m: m.log_prob(parts))(member),
            member.log_prob(missing),
            fd.entropy(member),
            fd.kl_divergence(member, other),
            fd.mean_parameters(member),
            fd.fisher_information(member),
        )

    return jax.vmap(one)(x, a, b, c, d)


@DTYPES
def test_compositions(dtype):
    x, a, b, c, d = family_parameters("dirichlet", dtype, np.random.default_rng(0))
    found = composition_answers(*(jnp.asarray(v, dtype) for v in (x, a, b, c, d)))
    (value, slope), marginal, spread, kl, mean, information = found
    with np.errstate(divide="ignore"):
        expected = beta_logpdf(x, a, b)
        inside = (x > 0) & (x < 1)
        safe = np.where(inside, x, 0.5)
    size = (1 + a + b) * (1 + np.abs(np.log(safe)) + np.abs(np.log1p(-safe)) + np.abs(np.log(a + b)))
    size = size + np.abs(np.log(a)) + np.abs(np.log(b)) + 1 / a + 1 / b
    # at the edge too: −∞, ∞ or a number
    assert_near(value, expected, size, dtype)
    # what one part leaves is the other
    assert_near(marginal, expected, size, dtype)
    assert np.isfinite(np.asarray(slope.concentration)[np.isfinite(expected)]).all()
    assert_near(spread, stats.beta.entropy(a, b), size, dtype)
    expected = beta_kl(a, b, c, d)
    assert_near(kl, expected, size + np.abs(expected) + c / a + d / b + (c + d) * np.log1p(c + d), dtype)
    assert_near(np.transpose(mean), FAMILIES["beta"][4](a, b), size, dtype)
    largest = special.polygamma(1, a) + special.polygamma(1, b)
    assert_near(np.moveaxis(information, 0, -1), dirichlet_fisher(a, b), largest, dtype)


# ---------------------------------------------------------------------------------------------
# estimates where something has no weight
# ---------------------------------------------------------------------------------------------

WEIGHT = jnp.array([0.0, 5.0])


@eqx.filter_jit  # a member without numbers is refused, but where it is one of many it is traced
def estimated(family, weight, total):
    return family.from_statistics(weight, total)


def test_a_column_without_weight_does_not_stop_the_search_in_the_others():
    a, b = 40.0, 2.0
    mean = jnp.array([special.digamma(a) - np.log(b), a / b])
    found = estimated(fd.Gamma(jnp.ones(2), jnp.ones(2)), WEIGHT, WEIGHT[:, None] * mean[None])
    np.testing.assert_allclose(found.shape, [np.nan, a], rtol=1e-10)
    np.testing.assert_allclose(found.rate, [np.nan, b], rtol=1e-10)
    mean = jnp.asarray(special.digamma([a, b]) - special.digamma(a + b))
    found = estimated(fd.Beta(jnp.ones(2), jnp.ones(2)), WEIGHT, WEIGHT[:, None] * mean[None])
    np.testing.assert_allclose(found.alpha, [np.nan, a], rtol=1e-8)
    np.testing.assert_allclose(found.beta, [np.nan, b], rtol=1e-8)


def test_a_column_without_weight_does_not_spoil_the_variance_of_the_others():
    x = np.array([1.0, 2.0, 4.0, 4.5, 6.0])
    total = jnp.array([0.0, x.sum(), 0.0, (x**2).sum(), *WEIGHT])
    for covariance in (fd.Diagonal(), fd.Spherical()):
        found = eqx.filter_jit(fd.Gaussian(jnp.zeros(2), covariance).from_features)(total).covariance
        np.testing.assert_allclose(np.ravel(found.variance)[-1], x.var(), rtol=1e-12)


def test_no_weight_at_all_gives_no_member():
    with pytest.raises(ValueError, match="'rate' parameter of Exponential must be positive"):
        fd.Exponential(jnp.ones(1)).from_statistics(jnp.zeros(1), jnp.zeros(1))
    with pytest.raises(ValueError, match="'variance' parameter of Diagonal must be non-negative"):
        fd.Gaussian(jnp.zeros(1), fd.Diagonal()).from_statistics(jnp.zeros(()), jnp.zeros(2))
