"""Probabilities of zero and one, vanishing width, large logits: values and slopes at the edges."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from scipy import special, stats

from freeenergy import distributions as fd
from freeenergy._core import on_device
from freeenergy.inference import Enumeration, Exact, Finite, binary_states, free_energy
from freeenergy.models import Harmonium, Mixture, Units

EXAMPLES = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],
)
DTYPES = [jnp.float64, jnp.float32]
EDGES = some.sampled_from([0.0, 1e-30, 1e-3, 0.5, 0.7, 1 - 1e-3, 1 - 2.0**-20, 1.0])


def tolerance(dtype):
    return {"rtol": 40 * float(jnp.finfo(dtype).eps), "atol": 40 * float(jnp.finfo(dtype).eps)}


# ---------------------------------------------------------------------------------------------
# discrete families, whose outcomes can be summed over
# ---------------------------------------------------------------------------------------------


def on_simplex(weights):
    """Three weights as probabilities; the first is certain where all are zero."""
    weights = np.asarray(weights)
    return weights / weights.sum() if weights.sum() else np.eye(len(weights))[0]


def multinomial_logpmf(x, p):
    return special.gammaln(x.sum() + 1) - special.gammaln(x + 1).sum() + special.xlogy(x, p).sum()


def binomial_logpmf(x, n, p):
    return np.log(special.comb(n, x)) + special.xlogy(x, p) + special.xlog1py(n - x, -p)


FINITE = {
    # member, outcomes, log mass by SciPy, the statistic of an outcome
    "bernoulli": (
        lambda p: fd.Bernoulli(p[:1]),
        np.array([[0.0], [1.0]]),
        lambda x, p: binomial_logpmf(x[0], 1, p[0]),
        lambda x: x,
    ),
    "binomial": (
        lambda p: fd.Binomial(p[:1], trials=3),
        np.arange(4.0)[:, None],
        lambda x, p: binomial_logpmf(x[0], 3, p[0]),
        lambda x: x,
    ),
    "categorical": (
        lambda p: fd.Categorical(p[None]),
        np.arange(3.0)[:, None],
        lambda x, p: special.xlogy(1, p[int(x[0])]),
        lambda x: np.eye(3)[int(x[0])][:-1],
    ),
    "multinomial": (
        lambda p: fd.Multinomial(p, trials=2),
        np.array([x for x in itertools.product(range(3), repeat=3) if sum(x) == 2], float),
        multinomial_logpmf,
        lambda x: x[:-1],
    ),
    "product": (
        lambda p: fd.Product((fd.Bernoulli(p[:1]), fd.Categorical(p[None])), sizes=(1, 1)),
        np.array(list(itertools.product(range(2), range(3))), float),
        lambda x, p: binomial_logpmf(x[0], 1, p[0]) + special.xlogy(1, p[int(x[1])]),
        lambda x: np.r_[x[0], np.eye(3)[int(x[1])][:-1]],
    ),
}


@functools.cache
def answers(name):
    """Everything people read of a member, and slopes in its probabilities, in one program."""
    make, outcomes = FINITE[name][:2]

    @jax.jit
    def run(p, q):
        member, other = make(p), make(q)
        x = jnp.asarray(outcomes, p.dtype)
        log_prob = jax.vmap(member.log_prob)(x)
        slopes = jax.vmap(jax.grad(lambda v, row: make(v).log_prob(row)), (None, 0))(p, x)
        logits = jax.grad(lambda v: jnp.sum(jnp.exp(jax.vmap(make(v).log_prob)(x)) * x[:, 0]))(p)
        has_entropy = name in ("bernoulli", "categorical", "product")
        entropy = fd.entropy(member) if has_entropy else -jnp.sum(special_mean(log_prob))
        mean, fisher = fd.mean_parameters(member).ravel(), fd.fisher_information(member)
        one = jnp.ones(() if name in ("multinomial", "product") else 1, p.dtype)
        back = member.from_statistics(one, fd.mean_parameters(member))
        return log_prob, slopes, logits, entropy, fd.kl_divergence(member, other), mean, fisher, back

    return run


def special_mean(log_prob):
    mass = jnp.exp(log_prob)
    return jnp.where(mass > 0, mass * jnp.where(mass > 0, log_prob, 0), 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=["64", "32"])
@pytest.mark.parametrize("name", FINITE)
@EXAMPLES
@given(first=some.tuples(EDGES, EDGES, EDGES), second=some.tuples(EDGES, EDGES, EDGES))
def test_a_finite_family_agrees_with_the_sum_over_its_outcomes(name, dtype, first, second):
    _, outcomes, logpmf, statistic = FINITE[name]
    p, q = (np.asarray(jnp.asarray(on_simplex(v), dtype), float) for v in (first, second))
    near = tolerance(dtype)
    found = answers(name)(jnp.asarray(p, dtype), jnp.asarray(q, dtype))
    log_prob, slopes, expectation_slope, entropy, kl, mean, fisher, back = found
    with np.errstate(divide="ignore"):
        log_mass, log_other = (np.array([logpmf(x, v) for x in outcomes]) for v in (p, q))
    mass = np.exp(log_mass)
    np.testing.assert_allclose(log_prob, log_mass, **near)
    assert np.isfinite(np.asarray(slopes)[mass > 0]).all()
    assert np.isfinite(expectation_slope).all()
    np.testing.assert_allclose(entropy, -special.xlogy(mass, mass).sum(), **near)
    expected = special.rel_entr(mass, np.exp(log_other)).sum()
    np.testing.assert_allclose(kl, expected, **near)
    t = np.array([statistic(x) for x in outcomes])
    np.testing.assert_allclose(mean, mass @ t, **near)
    centred = t - mass @ t
    np.testing.assert_allclose(fisher, (centred * mass[:, None]).T @ centred, **near)
    if name != "product":
        here = back.probability if name in ("bernoulli", "binomial") else back.probabilities
        np.testing.assert_allclose(jnp.ravel(here), p[: here.size], **near)


@pytest.mark.parametrize(
    ("p", "q", "kl"),
    [
        (fd.Bernoulli(jnp.ones(1)), fd.Bernoulli(jnp.full(1, 0.5)), np.log(2)),
        (fd.Binomial(jnp.ones(1), trials=3), fd.Binomial(jnp.full(1, 0.5), trials=3), 3 * np.log(2)),
        (fd.Categorical(jnp.array([[0.5, 0.5, 0]])), fd.Categorical(jnp.array([[1.0, 0, 0]])), np.inf),
        (fd.Poisson(jnp.zeros(1)), fd.Poisson(jnp.full(1, 2.0)), 2.0),
        (fd.Poisson(jnp.full(1, 2.0)), fd.Poisson(jnp.zeros(1)), np.inf),
    ],
)
def test_divergence_of_members_without_chance(p, q, kl):
    assert float(eqx.filter_jit(fd.kl_divergence)(p, q)) == pytest.approx(kl, abs=1e-12)


def test_a_rate_of_zero_allows_no_count():
    never = fd.Poisson(jnp.zeros(1))

    @jax.jit
    def answers(member, one):
        at_zero = jax.value_and_grad(lambda m: m.log_prob(0 * one))(member)
        return at_zero, member.log_prob(one), fd.mean_parameters(member), fd.fisher_information(member)

    (possible, slope), impossible, mean, fisher = answers(never, np.ones(1))
    assert (float(possible), float(impossible)) == (0, -np.inf)
    assert slope.rate.tolist() == [-1.0]
    assert mean.tolist() == [0.0]
    assert fisher.tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("member", "outside"),
    [
        (fd.Bernoulli(jnp.full(1, 0.3)), [0.5, -1, 2]),
        (fd.Binomial(jnp.full(1, 0.3), trials=3), [0.5, -1, 4, 5]),
        (fd.Categorical(jnp.full((1, 3), 1 / 3)), [0.5, -1, 3]),
        (fd.Poisson(jnp.full(1, 2.0)), [0.5, -1]),
    ],
    ids=["bernoulli", "binomial", "categorical", "poisson"],
)
def test_what_is_outside_the_support_is_impossible(member, outside):
    x = np.array(outside, float)[:, None]
    found = jax.jit(lambda x: (jax.vmap(member.log_prob)(x), jax.vmap(member.log_base)(x)))(x)
    assert (np.asarray(found) == -np.inf).all()


def test_the_m_step_stays_a_rounding_error_off_the_edge_and_the_estimate_does_not():
    coin = fd.Bernoulli(jnp.full(1, 0.5))
    certain = coin.from_statistics(jnp.array([4.0]), jnp.array([4.0]))
    assert certain.probability.tolist() == [1.0]
    step = coin.from_features(jnp.array([4.0, 4.0]))
    eps = np.finfo(float).eps
    assert step.probability.tolist() == [1 - eps]
    # so that what was never seen is very improbable in a fit, and not impossible
    np.testing.assert_allclose(step.log_prob(jnp.zeros(1)), np.log(eps))
    # the linear form that sums over rows use is that of the same member, at an edge too
    for member in (step, certain):
        assert np.isfinite(member.coefficients()).all()
    # the slope at the bound is that of the formula, not half of it
    slope = jax.grad(lambda p: jnp.sum(fd.Bernoulli(p).coefficients()[:1]))(jnp.array([eps]))
    np.testing.assert_allclose(slope, 1 / eps / (1 - eps))


def test_a_mixture_with_a_certain_component():
    @jax.jit
    def answers(model, x):
        probabilities = model.posterior(x).probabilities
        return probabilities, model.log_prob_complete(x), jax.value_and_grad(lambda m: m.log_prob(x))(model)

    model = Mixture(jnp.array([0.25, 0.75]), fd.Bernoulli(jnp.array([[1.0, 0.5], [0.0, 0.5]])))
    probabilities, _, (value, grad) = answers(model, np.array([1.0, 0.0]))
    np.testing.assert_allclose(value, np.log(0.125))
    assert probabilities.tolist() == [1.0, 0.0]
    # the way that rows without NaN take: what is certain is impossible otherwise, and rare is rare
    for p, x in itertools.product([0.0, 1e-30, 1.0], [0.0, 1.0]):
        sure = Mixture(jnp.array([0.25, 0.75]), fd.Bernoulli(jnp.array([[p], [p]])))
        with np.errstate(divide="ignore"):
            expected = np.log(p if x else 1 - p)
        _, complete, (value, _) = answers(sure, np.array([x]))
        np.testing.assert_allclose(complete, expected, atol=1e-15)
        np.testing.assert_allclose(value, expected, atol=1e-15)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(grad, eqx.is_array)))


# ---------------------------------------------------------------------------------------------
# parameters without a meaning
# ---------------------------------------------------------------------------------------------

MATRIX = "'value' parameter of Full must be a symmetric positive definite matrix. Got "
REFUSED = [
    (lambda: fd.Full(jnp.array([[1.0, 2.0], [2.0, 1.0]])), MATRIX + "one with the eigenvalue -1 instead"),
    (lambda: fd.Full(jnp.array([[1.0, 0.5], [0.0, 1.0]])), MATRIX + "one that is not symmetric"),
    (lambda: fd.Full(jnp.array([[1.0, jnp.nan], [0.0, 1.0]])), MATRIX + "nan in it"),
    (
        lambda: fd.Full(jnp.ones(3)),
        r"parameter of Full must be an array with 2 axes .* shape \(3,\)",
    ),
    (lambda: fd.Full(jnp.ones((2, 3))), MATRIX + r"an array of shape \(2, 3\) instead"),
    (lambda: fd.Diagonal(jnp.array([1.0, -2.0])), "'variance' parameter of Diagonal .* Got -2 instead"),
    (lambda: fd.Spherical(jnp.array(-1.0), dim=2), "'variance' parameter of Spherical .* Got -1 instead"),
    (lambda: fd.LowRank(jnp.ones((2, 1)), -jnp.ones(2)), "'diagonal' parameter of LowRank .* Got -1"),
    (
        lambda: fd.Laplace(jnp.zeros(1), jnp.zeros(1)),
        "'scale' parameter of Laplace must be positive. Got 0",
    ),
    (lambda: fd.Gamma(jnp.ones(1), -jnp.ones(1)), "'rate' parameter of Gamma must be .* Got -1 instead"),
    (lambda: fd.Beta(jnp.zeros(1), jnp.ones(1)), "'alpha' parameter of Beta must be positive. Got 0"),
    (
        lambda: fd.Dirichlet(jnp.array([1.0, 0.0])),
        "'concentration' parameter of Dirichlet must be positive",
    ),
    (lambda: fd.Exponential(jnp.array([jnp.nan])), "'rate' parameter of Exponential .* Got nan instead"),
    (lambda: fd.Poisson(-jnp.ones(1)), "'rate' parameter of Poisson must be non-negative. Got -1 instead"),
    (lambda: fd.Bernoulli(jnp.array([1.5])), "'probability' parameter of Bernoulli must be in the unit"),
    (lambda: fd.Categorical(jnp.array([[0.5, 0.6]])), "of Categorical must be .* Got the sum 1.1 instead"),
    (lambda: fd.Multinomial(jnp.array([1.5, -0.5])), "of Multinomial must be .* Got -0.5 instead"),
    (lambda: fd.MultivariateT(jnp.zeros(2), -jnp.eye(2), jnp.ones(())), "'scale' parameter of Multivar"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_without_a_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_traced_parameters_are_not_looked_at():
    indefinite = jnp.array([[1.0, 2.0], [2.0, 1.0]])
    np.testing.assert_array_equal(jax.jit(lambda v: fd.Full(v).matrix())(indefinite), indefinite)
    assert jax.vmap(lambda v: fd.Diagonal(v).matrix())(-jnp.ones((2, 2))).sum() == -4


def test_what_moves_without_noise_has_a_covariance():
    assert fd.Full(jnp.zeros((2, 2))).matrix().sum() == 0
    assert fd.Full(jnp.ones((3, 1, 1))).value is not None
    assert fd.Diagonal(jnp.zeros(2)).matrix().sum() == 0


# ---------------------------------------------------------------------------------------------
# recognitions: the free energy is never below −log p(x)
# ---------------------------------------------------------------------------------------------


@functools.cache
def harmonium_bound(dtype):
    states = binary_states(2, dtype)

    @jax.jit
    def run(model, x):
        def bound(m):
            return free_energy(
                m.energy, Exact(m.posterior, expectation=Enumeration(states)), x, key=jax.random.key(0)
            )

        return jax.value_and_grad(bound)(model), jax.value_and_grad(lambda m: m.free_energy(x))(model)

    return run


@pytest.mark.parametrize("dtype", DTYPES, ids=["64", "32"])
@EXAMPLES
@given(
    some.tuples(*[some.sampled_from([-400.0, -40.0, -20.0, -5.0, 0.0, 1.5, 17.0, 20.0, 40.0, 90.0])] * 3)
)
def test_the_exact_posterior_of_a_harmonium_gives_its_free_energy(dtype, numbers):
    visible, hidden = (
        Units(fd.Bernoulli, on_device([1.0], dtype)),
        Units(fd.Bernoulli, on_device(numbers[:2], dtype)),
    )
    model = Harmonium(visible, hidden, on_device([[numbers[2], -numbers[2]]], dtype))
    (found, slope), (_, expected_slope) = harmonium_bound(dtype)(model, np.ones(1, np.dtype(dtype)))
    # −Σ log(1 + exp η) in 64 bits
    eta = np.array(numbers[:2]) + np.array([numbers[2], -numbers[2]])
    near = tolerance(dtype)
    np.testing.assert_allclose(found, -1 - np.logaddexp(0, eta).sum(), **near)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(expected_slope)):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-3 if dtype is jnp.float32 else 1e-8, atol=1e-4)


@pytest.mark.parametrize(("dtype", "bias"), [(jnp.float64, 40.0), (jnp.float32, 20.0)])
def test_a_saturated_unit_does_not_break_the_bound(dtype, bias):
    one = jnp.zeros(1, dtype)
    model = Harmonium(Units(fd.Bernoulli, one), Units(fd.Bernoulli, one + bias), jnp.zeros((1, 1), dtype))
    exact = Exact(model.posterior, expectation=Enumeration(binary_states(1, dtype)))
    found = jax.jit(lambda x: free_energy(model.energy, exact, x, key=jax.random.key(0)))(one)
    assert float(found) == -bias


def test_a_finite_posterior_without_mass_on_a_point():
    def entropy(logits):
        return fd.entropy(Finite(jax.nn.softmax(logits)))

    value, slope = jax.jit(jax.value_and_grad(entropy))(np.array([0.0, 0.0, -1e4]))
    assert float(value) == pytest.approx(np.log(2))
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    mean = Enumeration(jnp.arange(2))

    @jax.jit
    @jax.grad
    def slope(v):
        return mean(lambda z: z.astype(float), Finite(jax.nn.softmax(v)), key=jax.random.key(0))

    np.testing.assert_allclose(slope(np.array([0.0, 1e4])), 0)
    np.testing.assert_allclose(slope(np.zeros(2)), [-0.25, 0.25])


def test_scipy_agrees_on_the_edges_of_the_oracles():
    assert binomial_logpmf(3, 3, 1.0) == stats.binom.logpmf(3, 3, 1.0) == 0
