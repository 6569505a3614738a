"""Rows of Moon's notes, each with its own number or formula."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import LinearConstraint, approx_fprime, linear_sum_assignment, linprog, minimize
from scipy.spatial.distance import jensenshannon
from scipy.stats.contingency import expected_freq
from scipy.stats.sampling import NumericalInversePolynomial
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score, precision_score, recall_score
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.svm import SVC

from freeenergy import KMeans, SupportVectorMachine
from freeenergy.bijections import Chain, Exp, GeneralAffine, Inverse
from freeenergy.distributions import (
    Bernoulli,
    Beta,
    BetaPrior,
    Categorical,
    Diagonal,
    Dirichlet,
    DirichletPrior,
    Full,
    Gaussian,
    Given,
    Multinomial,
    Product,
    Spherical,
    Transformed,
    affine,
    conditional,
    entropy,
    information,
    joint,
    kl_divergence,
    marginal,
)
from freeenergy.inference import (
    Amortised,
    FiniteBeliefs,
    FiniteStep,
    Pathwise,
    Quadratic,
    block_gibbs,
    classify_states,
    filter,
    free_energy,
    importance_estimate,
    importance_log_weights,
    log_partition_by_enumeration,
    posterior_by_enumeration,
    run_chain,
    smooth,
    stationary,
)
from freeenergy.kernels import Linear as LinearKernel
from freeenergy.learning import (
    MAP,
    Batch,
    Boltzmann,
    ConditionalContrastive,
    Margin,
    SlicedScoreMatching,
    score_matching,
)
from freeenergy.models import (
    HMM,
    VAE,
    Clusters,
    Diffusion,
    GaussianEncoder,
    LinearGaussian,
    MarkovChain,
    Mixture,
    SoftmaxModel,
    StandardNormal,
    StepSchedule,
    mlp_vae,
    noising_step,
    one_series,
)
from freeenergy.models import LatentDirichletAllocation as TopicModel
from freeenergy.nn import MLP, Linear

KEY = jax.random.key(0)


def array(*values):
    return jnp.asarray(values, jnp.float64)


def normal(mean, variance):
    return Gaussian(array(mean), Diagonal(array(variance)))


@jax.jit
def uncertainty(p):
    return entropy(Categorical(p.ravel()[None]))


@jax.jit
def divergence(p, q):
    return kl_divergence(Categorical(p.ravel()[None]), Categorical(q.ravel()[None]))


# ---- probability


def mutual(table):
    return float(divergence(table, np.outer(table.sum(1), table.sum(0))))


# P01
def test_a_table_is_independent_when_it_is_the_product_of_its_margins():
    apart = np.outer([0.3, 0.7], [0.6, 0.4])
    xor = np.array([[0.1, 0.4], [0.4, 0.1]])
    for table, dependent in ((apart, False), (xor, True)):
        assert (np.abs(expected_freq(table) - table).max() > 1e-9) == dependent
        assert (mutual(table) > 1e-9) == dependent


# P02
def test_variables_that_a_third_explains():
    rng = np.random.default_rng(0)
    first, second = rng.dirichlet(np.ones(2), 2), rng.dirichlet(np.ones(2), 2)
    # X → Z → Y
    chain = np.einsum("x,xz,zy->xyz", [0.3, 0.7], first, second)
    for z in range(2):
        given = chain[:, :, z] / chain[:, :, z].sum()
        assert mutual(given) == pytest.approx(0, abs=1e-12)
        # the other form: p(x | y, z) = p(x | z)
        np.testing.assert_allclose(given / given.sum(0), np.tile(given.sum(1)[:, None], 2), rtol=1e-12)
    assert mutual(chain.sum(2)) > 1e-4
    # Y = X xor Z: apart, until the third is seen
    xor = np.zeros((2, 2, 2))
    for x, z in itertools.product(range(2), repeat=2):
        xor[x, z, x ^ z] = 0.25
    assert mutual(xor.sum(2)) == pytest.approx(0, abs=1e-12)
    assert mutual(2 * xor[:, :, 0]) == pytest.approx(np.log(2), rel=1e-9)


# P03, P04
def test_change_of_variables_in_one_dimension():
    rate, y = 1.7, np.array([0.2, 0.9, 2.5])
    falling = Chain([Inverse(Exp()), GeneralAffine(jnp.zeros(1), array([-1 / rate]))])
    cases = (
        (Beta(array(1.0), array(1.0)), falling, stats.expon(scale=1 / rate), lambda u: 1 - u),
        (normal(0.0, 1.0), Exp(), stats.lognorm(1.0), stats.norm.cdf),
    )
    for base, bijection, law, before in cases:
        law_of = Transformed(base, bijection)
        back = jax.jit(jax.vmap(lambda v, d=law_of: d.bijection.inverse(v[None])[0][0]))
        log_prob = jax.jit(jax.vmap(lambda v, d=law_of: d.log_prob(v[None])))
        np.testing.assert_allclose(log_prob(y), law.logpdf(y), rtol=1e-10)
        # the distribution function: that of the base, turned round where the map falls
        np.testing.assert_allclose(before(np.asarray(back(y))), law.cdf(y), rtol=1e-10)
        h = 1e-6
        slope = (before(np.asarray(back(y + h))) - before(np.asarray(back(y - h)))) / (2 * h)
        np.testing.assert_allclose(slope, np.exp(log_prob(y)), rtol=1e-6)
        np.testing.assert_allclose(
            before(np.asarray(back(np.array([1e-9, 1.0, 1e6])))[[0, 2]]), [0, 1], atol=1e-4
        )


# P05, P06, P07, P08, C08, C09
def test_numbers_of_gaussians():
    rng = np.random.default_rng(0)
    a, b, z = rng.normal(size=(2, 2)), rng.normal(size=2), rng.normal(size=2)
    sigma = np.array([[4.0, 2, 1], [2, 3, 0.5], [1, 0.5, 2]])
    mean, seen = np.array([1.0, 2, 3]), np.array([1.0, 4.0])
    rows = rng.normal(size=(6, 2))
    centre, spread = rows.mean(0), np.cov(rows.T, bias=True)

    @jax.jit
    def values(a, b, z, sigma, mean, seen):
        flow = Transformed(Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2))), GeneralAffine(b, a))
        pair = Gaussian(jnp.zeros(2), Full(array([2.0, 1.0], [1.0, 2.0])))
        whole = Gaussian(mean, Full(sigma))
        given = [conditional(p, [1, 2], seen) for p in (whole, information(whole))]
        rest = given[0].log_prob(mean[:1]) + marginal(whole, [1, 2]).log_prob(seen)
        length = jnp.sum(Full(sigma).whiten(seen[0] - mean) ** 2)
        return (
            flow.log_prob(z),
            jnp.exp(pair.log_prob(jnp.zeros(2))),
            information(pair).precision,
            given[0],
            given[1].gaussian(),
            rest - whole.log_prob(jnp.concatenate([mean[:1], seen])),
            length,
            jnp.sum(
                jax.vmap(Gaussian(jnp.asarray(centre), Full(jnp.asarray(spread))).log_prob)(
                    jnp.asarray(rows)
                )
            ),
        )

    flow, height, precision, given, again, gap, length, best = values(a, b, z, sigma, mean, seen)
    assert float(flow) == pytest.approx(stats.multivariate_normal(b, a @ a.T).logpdf(z), rel=1e-10)
    assert float(height) == pytest.approx(0.0918881492, abs=5e-11)
    # a block of the precision is not the inverse of the block
    assert float(precision[0, 0]) == pytest.approx(2 / 3, rel=1e-10)
    for form in (given, again):
        assert float(form.mean[0]) == pytest.approx(0.7391304348, abs=5e-11)
        assert float(form.covariance.matrix()[0, 0]) == pytest.approx(2.4347826087, abs=5e-10)
    assert float(gap) == pytest.approx(0, abs=1e-10)
    away = 1.0 - mean
    assert float(length) == pytest.approx(away @ np.linalg.solve(sigma, away), rel=1e-10)
    # with the moments of the rows, which are the best
    log_det = np.linalg.slogdet(spread)[1]
    assert float(best) == pytest.approx(-3 * (2 * np.log(2 * np.pi) + log_det + 2), rel=1e-9)


# P13
def test_log_odds_of_mixed_columns_add():
    means, rates, shares = np.array([[0.0], [1.5]]), np.array([[0.2], [0.7]]), np.array([0.3, 0.7])

    @jax.jit
    def log_odds(x):
        parts = (
            Gaussian(jnp.asarray(means), Diagonal(jnp.ones((2, 1)))),
            Bernoulli(jnp.asarray(rates)),
        )
        whole = Mixture(jnp.asarray(shares), Product(parts, (1, 1)))
        joints = [whole.log_joint(x)]
        joints += [Mixture(jnp.asarray(shares), p).log_joint(x[i : i + 1]) for i, p in enumerate(parts)]
        return [j[1] - j[0] for j in joints]

    both, first, second = map(float, log_odds(np.array([0.9, 1.0])))
    prior = np.log(0.7 / 0.3)
    assert first - prior == pytest.approx(np.diff(stats.norm.logpdf(0.9, means[:, 0]))[0], rel=1e-9)
    assert second - prior == pytest.approx(np.log(0.7 / 0.2), rel=1e-9)
    assert both == pytest.approx(first + second - prior, rel=1e-9)


LINE, HITS = np.array([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]), np.array([0, 0, 1, 0, 1, 1])


def answers(w):
    """Log-odds w·(1, x) of the second of two answers."""
    return SoftmaxModel(jnp.stack([jnp.zeros(1), w[1:]]), jnp.stack([jnp.zeros(()), w[0]]))


# P15
def test_the_logistic_function_and_its_inverse():
    a = np.array([-1000.0, -3.0, 0.0, 0.4, 1000.0])
    p, slope, back = jax.jit(
        lambda a: (
            jax.nn.sigmoid(a),
            jax.vmap(jax.grad(jax.nn.sigmoid))(a),
            jax.scipy.special.logit(jax.nn.sigmoid(a[1:4])),
        )
    )(a)
    np.testing.assert_array_equal(np.asarray(p)[[0, 2, 4]], [0.0, 0.5, 1.0])
    np.testing.assert_allclose(p, 1 - special.expit(-a), atol=1e-15)
    np.testing.assert_allclose(slope, np.asarray(p) * (1 - np.asarray(p)), atol=1e-15)
    np.testing.assert_allclose(back, a[1:4], atol=1e-12)


# P16, P17, P18, P19, P20
def test_newtons_steps_of_a_logistic_regression():
    batch = Batch((jnp.asarray(LINE[:, None]), jnp.asarray(HITS)), jnp.full(6, 1 / 6))

    @jax.jit
    def values(w):
        def loss(w):
            return ConditionalContrastive(Boltzmann())(answers(w), batch, KEY)

        return 6 * loss(w), 6 * jax.grad(loss)(w), 6 * jax.hessian(loss)(w)

    design = np.column_stack([np.ones(6), LINE])
    w, path = np.zeros(2), []
    for _ in range(9):
        value, slope, curvature = map(np.asarray, values(w))
        mu, signs = special.expit(design @ w), 2 * HITS - 1
        # a mean of softplus over signs is a sixth of the sum over zeros and ones
        assert value == pytest.approx(6 * np.mean(np.logaddexp(0, -signs * (design @ w))), rel=1e-12)
        np.testing.assert_allclose(slope, design.T @ (mu - HITS), atol=1e-12)
        np.testing.assert_allclose(curvature, design.T @ np.diag(mu * (1 - mu)) @ design, atol=1e-12)
        path.append((w, value))
        w = w - np.linalg.solve(curvature, slope)
    assert path[0][1] == pytest.approx(6 * np.log(2), rel=1e-12)
    np.testing.assert_allclose(path[1][0], [-0.0897959184, 1.0775510204], atol=5e-11)
    np.testing.assert_allclose(path[-1][0], [-0.3215612521, 1.9774106309], atol=5e-10)
    assert path[-1][1] == pytest.approx(2.2584073351, abs=5e-10)
    assert special.expit(design @ w).sum() == pytest.approx(3, rel=1e-9)
    far = values(np.array([0.0, 1000.0]))
    assert all(np.isfinite(part).all() for part in map(np.asarray, far))


# B01, T05, T06
def test_counts_update_a_beta_and_a_dirichlet_prior():
    @jax.jit
    def values(prior, heads, tails):
        coin = BetaPrior(Bernoulli(array(0.5)), prior[:1], prior[1:])
        after = coin.update(heads + tails, heads)
        twice = coin.update(heads, heads).update(tails, jnp.zeros(1))
        sides = DirichletPrior(Multinomial(array(0.5, 0.5)), prior)
        die = sides.update((heads + tails)[0], heads)
        return after.alpha, after.beta, twice.alpha, twice.beta, die.concentration

    def share(prior, heads, tails):
        a, b, c, d, both = map(np.asarray, values(np.array(prior), np.array([heads]), np.array([tails])))
        np.testing.assert_allclose([a, b], [c, d], rtol=1e-14)
        # two sides of a die are a coin
        np.testing.assert_allclose(both, np.concatenate([a, b]), rtol=1e-14)
        return float(a[0] / (a[0] + b[0]))

    assert share([1.0, 1.0], 3.0, 1.0) == pytest.approx(2 / 3)
    assert share([2.0, 3.0], 0.0, 0.0) == pytest.approx(2 / 5)
    assert share([1e-12, 1e-12], 3.0, 1.0) == pytest.approx(3 / 4)
    assert share([2.0, 3.0], 3e9, 1e9) == pytest.approx(3 / 4)

    @jax.jit
    def heights(p):
        flat = Dirichlet(jnp.ones(4)).log_prob(jnp.full(4, 0.25))
        pair = Dirichlet(array(2.0, 3.0)).log_prob(jnp.stack([p, 1 - p]))
        return flat, pair - Beta(array(2.0), array(3.0)).log_prob(p[None])

    flat, gap = map(float, heights(0.3))
    assert flat == pytest.approx(np.log(6), rel=1e-12)
    assert gap == pytest.approx(0, abs=1e-12)


# ---- regression


INPUTS, TARGETS = np.array([0.0, 0.5, 1.0, 1.5, 2.0]), np.array([1.0, 0.8, 1.9, 3.1, 4.2])
POWERS = np.vander(INPUTS, 3, increasing=True)
ALPHA, BETA = 0.5, 25.0


# B02, B03, K03, K04, K05
def test_polynomials_by_least_squares_ridge_and_kernels():
    plain = np.polyfit(INPUTS, TARGETS, 2)
    assert np.mean((np.polyval(plain, INPUTS) - TARGETS) ** 2) == pytest.approx(0.0420571429, abs=5e-11)
    np.testing.assert_allclose(np.polyval(np.polyfit(INPUTS, TARGETS, 4), INPUTS), TARGETS, atol=1e-10)
    ridge = Ridge(ALPHA / BETA, fit_intercept=False, solver="cholesky").fit(POWERS, TARGETS)
    np.testing.assert_allclose(ridge.coef_, [0.8296062810, 0.2340067877, 0.7553790041], atol=5e-10)
    slope = POWERS.T @ (POWERS @ ridge.coef_ - TARGETS) + ALPHA / BETA * ridge.coef_
    np.testing.assert_allclose(slope, 0, atol=1e-10)
    # the dual: as many numbers as rows, and λα is what is left
    dual = KernelRidge(alpha=ALPHA / BETA, kernel="linear").fit(POWERS, TARGETS)
    np.testing.assert_allclose(POWERS.T @ dual.dual_coef_, ridge.coef_, atol=1e-9)
    np.testing.assert_allclose(ALPHA / BETA * dual.dual_coef_, TARGETS - ridge.predict(POWERS), atol=1e-10)
    new = np.vander([3.0, -1.0], 3, increasing=True)
    np.testing.assert_allclose(dual.predict(new), ridge.predict(new), atol=1e-9)


# K01, K02
def test_a_polynomial_kernel_is_an_inner_product_of_features():
    x = np.random.default_rng(0).normal(size=(5, 2))
    a, b = x.T
    root = np.sqrt(2)
    features = np.stack([np.ones(5), root * a, root * b, a**2, root * a * b, b**2], axis=1)
    gram = polynomial_kernel(x, degree=2, gamma=1.0, coef0=1.0)
    np.testing.assert_allclose(gram, features @ features.T, rtol=1e-12)
    assert np.linalg.eigvalsh(gram).min() > -1e-12
    # symmetric, and no kernel
    assert np.linalg.eigvalsh(-x @ x.T).min() < -0.1


# B04, K07, K08
def test_bayesian_curve_fitting_is_gaussian_algebra():
    @jax.jit
    def values(powers, new, targets):
        weights = Gaussian(jnp.zeros(3), Spherical(jnp.asarray(1 / ALPHA), dim=3))
        noise = Spherical(jnp.asarray(1 / BETA), dim=5)
        evidence = affine(weights, powers, jnp.zeros(5), noise).log_prob(targets)
        posterior = conditional(joint(weights, powers, jnp.zeros(5), noise), [3, 4, 5, 6, 7], targets)
        ahead = affine(posterior, new, jnp.zeros(1), Spherical(jnp.asarray(1 / BETA), dim=1))
        # the same as a process: values at all places have the covariance φφ′/α
        everywhere = jnp.concatenate([powers, new])
        process = affine(weights, everywhere, jnp.zeros(6), Spherical(jnp.asarray(1 / BETA), dim=6))
        given = conditional(process, [0, 1, 2, 3, 4], targets)
        return evidence, posterior.mean, ahead, given, process.covariance.matrix()

    new = np.array([[1.0, 3.0, 9.0]])
    evidence, mean, *laws, covariance = values(POWERS, new, TARGETS)
    assert float(evidence) == pytest.approx(-6.6388930973, abs=5e-9)
    np.testing.assert_allclose(mean, [0.8296062810, 0.2340067877, 0.7553790041], atol=5e-9)
    for law in laws:
        assert float(law.mean[0]) == pytest.approx(8.3300376812, abs=5e-8)
        assert float(law.covariance.matrix()[0, 0]) == pytest.approx(0.6224869290, abs=5e-9)
    everywhere = np.concatenate([POWERS, new])
    np.testing.assert_allclose(covariance, everywhere @ everywhere.T / ALPHA + np.eye(6) / BETA, rtol=1e-10)


# ---- margins


def dual_of(machine, n):
    alpha = np.zeros(n)
    alpha[machine.support_] = np.abs(machine.dual_coef_[0])
    return alpha


# S03, S08, S09, S12, S14
def test_machines_with_a_hard_margin():
    pair = SVC(C=1e9, kernel="linear", tol=1e-9).fit([[0.0, 0.0], [2.0, 2.0]], [-1, 1])
    np.testing.assert_allclose([*pair.coef_[0], pair.intercept_[0]], [0.5, 0.5, -1], atol=1e-6)
    assert 2 / np.linalg.norm(pair.coef_) == pytest.approx(2 * np.sqrt(2), rel=1e-6)
    x, y = np.array([[3.0, 3.0], [4.0, 3.0], [1.0, 1.0]]), np.array([1, 1, -1])
    three = SVC(C=1e9, kernel="linear", tol=1e-9).fit(x, y)
    alpha = dual_of(three, 3)
    np.testing.assert_allclose(alpha, [0.25, 0, 0.25], atol=1e-6)
    np.testing.assert_allclose((alpha * y) @ x, three.coef_[0], atol=1e-6)
    np.testing.assert_allclose([*three.coef_[0], three.intercept_[0]], [0.5, 0.5, -2], atol=1e-6)
    # each support vector gives the same offset
    for i in three.support_:
        assert y[i] - three.coef_[0] @ x[i] == pytest.approx(-2, abs=1e-6)
    gram = (y[:, None] * x) @ (y[:, None] * x).T

    def dual(a):
        return a.sum() - 0.5 * a @ gram @ a

    assert dual(alpha) == pytest.approx(0.25, abs=1e-6)
    # every feasible multiplier is below the least ½‖w‖², which is ¼
    for a, b in np.random.default_rng(0).exponential(0.3, (20, 2)):
        assert dual(np.array([a, b, a + b])) <= 0.25 + 1e-9
    alone = SVC(C=1e9, kernel="linear", tol=1e-9).fit(x[three.support_], y[three.support_])
    np.testing.assert_allclose(alone.coef_, three.coef_, atol=1e-6)


# S05, S11, S13
def test_a_soft_margin_pays_for_slack():
    x, signs = np.array([-2.0, -1.0, 1.0, 2.0, -1.5]), np.array([-1, -1, 1, 1, 1])
    batch = Batch((jnp.asarray(x[:, None]), jnp.asarray(np.where(signs > 0, 1, 0))), jnp.full(5, 0.2))
    # −log prior = ½ w², for the difference of the two answers
    objective = MAP(ConditionalContrastive(Margin(1.0)), lambda m: -0.5 * jnp.sum(m.weight**2), 5)
    value = jax.jit(jax.vmap(lambda w: 5 * objective(answers(w), batch, KEY)))
    best = np.array([1 / 3, 2 / 3])
    around = value(
        np.concatenate([best[None], best + 0.05 * np.random.default_rng(0).normal(size=(40, 2))])
    )
    assert float(around[0]) == pytest.approx(23 / 9, rel=1e-12)
    assert np.argmin(around) == 0
    machine = SVC(C=1.0, kernel="linear", tol=1e-9).fit(x[:, None], signs)
    np.testing.assert_allclose([machine.intercept_[0], machine.coef_[0, 0]], best, atol=1e-6)
    margins = signs * machine.decision_function(x[:, None])
    np.testing.assert_allclose(np.maximum(0, 1 - margins), [0, 2 / 3, 0, 0, 5 / 3], atol=1e-6)
    assert (margins < 0).sum() <= np.maximum(0, 1 - margins).sum()
    alpha = dual_of(machine, 5)
    np.testing.assert_allclose(alpha, [7 / 18, 1, 7 / 18, 0, 1], atol=1e-6)
    w = (alpha * signs) @ x
    assert alpha.sum() - 0.5 * w**2 == pytest.approx(23 / 9, abs=1e-6)
    # complementary slackness: outside, on, and inside of the margin
    assert margins[alpha < 1e-6].min() >= 1 - 1e-6
    np.testing.assert_allclose(margins[(alpha > 1e-6) & (alpha < 1 - 1e-6)], 1, atol=1e-6)
    assert margins[alpha > 1 - 1e-6].max() <= 1 + 1e-6
    assert alpha @ signs == pytest.approx(0, abs=1e-9)


# S10
def test_a_kernel_machine_solves_xor():
    x = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    y = np.array([-1, -1, 1, 1])
    machine = SVC(C=1e6, kernel="poly", degree=2, gamma=1.0, coef0=1.0, tol=1e-9).fit(x, y)
    np.testing.assert_allclose(dual_of(machine, 4), 1 / 8, atol=1e-6)
    np.testing.assert_allclose(machine.decision_function(x), y, atol=1e-5)


# ---- sampling and Markov chains


# M01
def test_quantiles_of_uniform_numbers_are_draws():
    u = np.linspace(0.01, 0.99, 25)
    numeric = NumericalInversePolynomial(stats.expon(scale=0.5), domain=(0, np.inf), random_state=0)
    np.testing.assert_allclose(numeric.ppf(u), -np.log(1 - u) / 2, rtol=1e-6)
    assert stats.kstest(numeric.rvs(2000), stats.expon(scale=0.5).cdf).pvalue > 1e-3
    # a discrete law: the first value whose distribution function reaches u
    law = stats.binom(3, 0.4)
    np.testing.assert_array_equal(law.ppf(u), [np.argmax(law.cdf(np.arange(4)) >= v) for v in u])


# M07
def test_numbers_of_importance_sampling():
    estimate = jax.jit(importance_estimate)
    even = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    x = np.sqrt(2) * even
    found = estimate(stats.norm.logpdf(x) - stats.norm.logpdf(x, 0, np.sqrt(2)))
    assert float(found.log_mean) == pytest.approx(0, abs=1e-5)
    # E w² = s²/√(2s² − 1) for s² = 2
    assert float(found.stderr) ** 2 * 99_999 == pytest.approx(0.1547005, abs=2e-4)
    assert float(found.effective_sample_size) == pytest.approx(100_000 / 1.1547005, rel=2e-4)
    x = even + 4
    tail = np.where(x > 3, stats.norm.logpdf(x) - stats.norm.logpdf(x, 4), -np.inf)
    assert np.exp(estimate(tail).log_mean) == pytest.approx(0.0013498980, rel=1e-3)
    assert float(estimate(np.zeros(100_000)).effective_sample_size) == pytest.approx(100_000)


TWO = np.array([[0.9, 0.1], [0.3, 0.7]])
WHEEL = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])


# M08, M13, M14
def test_a_chain_forgets_its_start_at_a_known_rate():
    step = jax.jit(lambda p: FiniteBeliefs(jnp.asarray(TWO)).predict(p, FiniteStep(jnp.zeros(2))))
    law, now = np.asarray(stationary(jnp.asarray(TWO))), np.array([0.0, 1.0])
    np.testing.assert_allclose(law, [0.3 / 0.4, 0.1 / 0.4], rtol=1e-12)
    for n in range(11):
        assert 0.5 * np.abs(now - law).sum() == pytest.approx(0.75 * 0.6**n, rel=1e-10)
        np.testing.assert_allclose(now, np.linalg.matrix_power(TWO, n)[1], rtol=1e-12)
        last, now = now, np.asarray(step(now))
    assert 0.5 * np.abs(last - law).sum() == pytest.approx(0.0045349632, abs=5e-11)
    np.testing.assert_allclose(stationary(jnp.asarray(WHEEL)), 1 / 3, rtol=1e-12)
    # in parts: each class that is never left has a law of its own
    parts = np.zeros((4, 4))
    parts[:2, :2], parts[2:, 2:] = TWO, 0.5
    for states in classify_states(parts).classes:
        block = parts[np.ix_(states, states)]
        own = np.zeros(4)
        own[list(states)] = stationary(jnp.asarray(block))
        np.testing.assert_allclose(own @ parts, own, rtol=1e-12)


# M09, M10, M11, M12
def test_classes_periods_and_states_that_are_left():
    parts = classify_states(np.kron(np.eye(2), np.full((2, 2), 0.5)))
    assert parts.classes == ((0, 1), (2, 3))
    assert not parts.irreducible
    swap = classify_states(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert swap.periods == (2,)
    assert swap.irreducible
    assert not swap.ergodic
    assert classify_states(TWO).ergodic
    gambler = classify_states(np.array([[1.0, 0, 0], [0.5, 0, 0.5], [0, 0, 1.0]]))
    assert gambler == (((0,), (1,), (2,)), (False, True, False), (1, 0, 1))


# M15, M16
def test_chains_backwards_and_detailed_balance():
    def backwards(transition):
        law = stationary(jnp.asarray(transition))
        beliefs = FiniteBeliefs(jnp.asarray(transition))
        kernel = beliefs.reverse(law, law, FiniteStep(jnp.zeros(len(law))))
        return np.asarray(beliefs.from_kernel(kernel).kernel), np.asarray(law)

    back, law = backwards(WHEEL)
    np.testing.assert_allclose(back, WHEEL.T, atol=1e-12)
    assert np.abs(back - WHEEL).max() == pytest.approx(0.5)
    walk = np.array([[0.5, 0.5, 0.0], [0.2, 0.5, 0.3], [0.0, 0.6, 0.4]])
    for transition in (TWO, walk):
        back, law = backwards(transition)
        np.testing.assert_allclose(back, transition, rtol=1e-10)
        flow = law[:, None] * transition
        np.testing.assert_allclose(flow, flow.T, rtol=1e-10)


# M17
def test_gibbs_sweeps():
    rho, table = 0.9, np.array([[0.3, 0.1], [0.2, 0.4]])

    def given(other):
        def draw(state, *, key):
            return rho * state[other] + np.sqrt(1 - rho**2) * jax.random.normal(key, state[other].shape)

        return draw

    def pick(axis, law):
        rows = jnp.log(law / jnp.broadcast_to(jnp.sum(law, axis=axis, keepdims=True), law.shape))
        rows = rows.T if axis == 0 else rows

        def draw(state, *, key):
            return jax.random.categorical(key, rows[state[1 - axis]])

        return draw

    @jax.jit
    def lines(key):
        start = (jnp.zeros(400), jnp.zeros(400))
        return run_chain(block_gibbs(given(1), given(0)), start, steps=60, burn_in=60, key=key)[0]

    @jax.jit
    def sweeps(law, key):
        starts = (jnp.repeat(jnp.arange(2), 4000), jnp.tile(jnp.arange(2), 4000))
        sweep = block_gibbs(pick(0, law), pick(1, law))
        return jax.vmap(lambda a, b, k: sweep((a, b), key=k))(*starts, jax.random.split(key, 8000))

    line, ends, stuck = lines(KEY), sweeps(table, KEY), sweeps(np.eye(2) / 2, KEY)
    line = np.asarray(line)
    lag = np.mean(line[1:] * line[:-1])
    # the sweep of one coordinate is an autoregression by ρ²
    assert abs(lag - rho**2) < 5 * np.sqrt(2 / (line.size * (1 - rho**4) / (1 + rho**4)))
    # x₀ is drawn given x₁, then x₁ given x₀: the kernel leaves the table as it is
    to_first, to_second = (table / table.sum(0)).T, table / table.sum(1, keepdims=True)
    kernel = np.einsum("bc,cd->bcd", to_first, to_second).reshape(2, 4)
    whole = np.tile(kernel, (2, 1))
    np.testing.assert_allclose(table.ravel() @ whole, table.ravel(), rtol=1e-12)
    codes = 2 * np.asarray(ends[0]) + np.asarray(ends[1])
    for b in range(2):
        seen = np.bincount(codes[np.tile(np.arange(2), 4000) == b], minlength=4) / 4000
        np.testing.assert_allclose(seen, kernel[b], atol=5 * 0.5 / np.sqrt(4000))
    # where one coordinate tells the other, nothing moves
    np.testing.assert_array_equal(stuck, np.tile(np.arange(2), (2, 4000)))


# ---- latent variables


def log_dirichlet(counts, prior):
    return special.gammaln(prior + counts).sum() - special.gammaln((prior + counts).sum())


# T02
def test_the_joint_of_topics_integrates_to_counts():
    words, topics = [[0, 0, 1], [1, 1]], [[0, 1, 1], [0, 0]]
    rng = np.random.default_rng(0)
    shares, phi = rng.dirichlet(np.ones(2), 2), rng.dirichlet(np.ones(2), 2)
    prior = 0.5

    @jax.jit
    def terms(p, counts):
        """log p(p) + log p(counts | p), log p(p | counts), and log p(counts)."""
        before = DirichletPrior(Categorical(jnp.full((1, 2), 0.5)), jnp.full((1, 2), prior))
        member = Categorical(p[None])
        after = before.update(jnp.sum(counts), counts[None, :-1])
        return (
            before.log_density(member) + counts @ jnp.log(p),
            after.log_density(member),
            after.log_normaliser() - before.log_normaliser(),
        )

    def log_joint(shares, phi, topics):
        total, left = 0.0, 0.0
        documents = [np.bincount(z, minlength=2) for z in topics]
        flat = list(zip(itertools.chain(*topics), itertools.chain(*words), strict=True))
        vocabulary = [np.bincount([w for z, w in flat if z == k], minlength=2) for k in range(2)]
        for p, counts in zip([*shares, *phi], [*documents, *vocabulary], strict=True):
            both, posterior, evidence = map(float, terms(p, counts.astype(float)))
            total, left = total + both, left + both - posterior
            assert evidence == pytest.approx(
                log_dirichlet(counts, prior) - log_dirichlet(np.zeros(2), prior), rel=1e-9
            )
        return total, left

    total, left = log_joint(shares, phi, topics)
    by_hand = sum(stats.dirichlet.logpdf(p, [prior] * 2) for p in (*shares, *phi))
    for d, (document, z) in enumerate(zip(words, topics, strict=True)):
        by_hand += sum(np.log(shares[d, k] * phi[k, w]) for k, w in zip(z, document, strict=True))
    assert total == pytest.approx(by_hand, rel=1e-10)
    # joint over posterior: what is left when shares and topics are integrated out, whatever they are
    again = log_joint(*rng.dirichlet(np.ones(2), (2, 2)), topics)[1]
    assert left == pytest.approx(again, rel=1e-9)
    # topics have no names
    swapped = log_joint(shares[:, ::-1], phi[::-1], [[1 - k for k in z] for z in topics])[0]
    assert swapped == pytest.approx(total, rel=1e-12)


FOUR = np.array([[0.0], [1.0], [4.0], [5.0]])


def halves(means, variances, weights=(0.5, 0.5)):
    components = Gaussian(jnp.asarray(means)[:, None], Diagonal(jnp.asarray(variances)[:, None]))
    return Mixture(jnp.asarray(weights, jnp.float64), components)


@jax.jit
def expect(model, x):
    settings = {"temperature": jnp.ones(()), "incomplete": False}
    statistics, free = model.expect(x, jnp.ones(len(x)), **settings)
    after = model.maximise(statistics)
    posterior = jax.vmap(lambda row: model.posterior(row).probabilities)(x)
    return -free, after, posterior, jax.vmap(model.log_joint)(x)


# C10, C11, C12, C13, C16, C20
def test_em_on_four_numbers():
    model = halves(np.array([0.0, 5.0]), np.ones(2))
    before, first, r, log_joint = expect(model, FOUR)
    density = stats.norm.pdf(FOUR, [0.0, 5.0])
    assert float(before) == pytest.approx(-7.4472295388, abs=5e-10)
    assert float(before) == pytest.approx(np.log(density.mean(1)).sum(), rel=1e-10)
    np.testing.assert_allclose(r, density / density.sum(1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(log_joint, np.log(density / 2), rtol=1e-9)
    np.testing.assert_allclose(first.components.mean[:, 0], [0.5008384846, 4.4991615154], atol=5e-10)
    np.testing.assert_allclose(first.components.covariance.variance[:, 0], 0.2533532352, atol=5e-10)
    after, model, *_ = expect(first, FOUR)
    assert float(after) == pytest.approx(-5.6759364201, abs=5e-9)

    # the bound of the responsibilities is tight before and below after the step
    def bound(log_joint):
        return np.sum(np.asarray(r) * (np.asarray(log_joint) - np.log(r)))

    assert bound(log_joint) == pytest.approx(float(before), rel=1e-9)
    assert float(before) < bound(expect(first, FOUR)[3]) <= float(after)
    for _ in range(6):
        last, model, *_ = expect(model, FOUR)
    assert float(last) == pytest.approx(-5.6757541327, abs=5e-9)
    # far away the nearer component has all, with no number lost
    far = expect(halves(np.array([0.0, 5.0]), np.ones(2)), FOUR - 1000)
    np.testing.assert_allclose(far[2], [[1.0, 0.0]] * 4, atol=1e-12)
    assert np.isfinite(far[0])
    # narrow components of one width are k-means
    hard = expect(halves(np.array([0.0, 5.0]), np.full(2, 1e-6)), FOUR)[2]
    np.testing.assert_array_equal(np.asarray(hard).argmax(1), [0, 0, 1, 1])
    np.testing.assert_allclose(np.asarray(hard).max(1), 1)


# C14
def test_a_component_on_one_row_is_ever_more_likely():
    values = [
        float(expect(halves(np.array([0.0, 3.0]), np.array([s**2, 4.0])), FOUR)[0])
        for s in (1e-3, 1e-4, 1e-5)
    ]
    # by −log σ for each factor of ten
    np.testing.assert_allclose(np.diff(values), np.log(10), rtol=1e-3)


# C15
def test_components_have_no_names():
    means, variances, weights = np.array([0.0, 5.0]), np.array([1.0, 0.5]), np.array([0.3, 0.7])
    one = expect(halves(means, variances, weights), FOUR)
    two = expect(halves(means[::-1], variances[::-1], weights[::-1]), FOUR)
    assert float(one[0]) == pytest.approx(float(two[0]), rel=1e-13)
    cost = np.abs(np.asarray(one[1].components.mean) - np.asarray(two[1].components.mean).T)
    rows, columns = linear_sum_assignment(cost)
    assert columns.tolist() == [1, 0]
    assert cost[rows, columns].sum() == pytest.approx(0, abs=1e-10)


# L02
def test_the_cause_that_fits_best_is_not_always_the_most_probable():
    x = np.array([[2.4], [2.6], [0.0], [5.0]])
    fits = np.asarray(stats.norm.pdf(x, [0.0, 5.0])).argmax(1)
    even, uneven = (
        expect(halves(np.array([0.0, 5.0]), np.ones(2), w), x)[2] for w in ((0.5, 0.5), (0.9, 0.1))
    )
    np.testing.assert_array_equal(np.asarray(even).argmax(1), fits)
    assert np.asarray(uneven).argmax(1).tolist() == [0, 0, 0, 1]


# C01, C02, C03, C04, C05
def test_k_means_on_a_rectangle():
    x = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
    good = KMeans(2, init=np.array([[0.0, 0.2], [3.0, 0.7]])).fit(x)
    bad = KMeans(2, init=np.array([[1.5, 0.0], [1.5, 1.0]])).fit(x)
    assert good.inertia_ == pytest.approx(1.0, rel=1e-12)
    assert good.labels_.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(good.cluster_centers_, [[0, 0.5], [3, 0.5]], atol=1e-12)
    # a fixed point that is not the best: where it begins decides
    assert bad.inertia_ == pytest.approx(9.0, rel=1e-12)

    @jax.jit
    def distortion(centres, x):
        settings = {"temperature": jnp.zeros(()), "incomplete": False}
        return Clusters(centres).expect(x, jnp.ones(len(x)), **settings)[1]

    # one cluster, two of them and as many as rows
    values = [float(distortion(c, x)) for c in (x.mean(0)[None], good.cluster_centers_, x)]
    np.testing.assert_allclose(values, [np.sum((x - x.mean(0)) ** 2), 1.0, 0.0], atol=1e-12)


# ---- graphs and hidden Markov models


# H03, H04
def test_explaining_away_and_potentials_that_are_no_probabilities():
    states = np.array(list(itertools.product([0, 1], repeat=2)))

    @jax.jit
    def posterior(rate, seen, scale):
        def energy(state):
            x, z = state
            prior = jnp.where(x == 1, rate, 1 - rate) * jnp.where(z == 1, rate, 1 - rate)
            known = jnp.where(seen >= 0, z == seen, True)
            return -jnp.log(jnp.where(((x | z) == 1) & known, scale * prior, 0))

        points = jnp.asarray(states)
        return posterior_by_enumeration(energy, points).probabilities, log_partition_by_enumeration(
            energy, points
        )

    cause = states[:, 0] == 1
    for rate, alone, both in ((0.1, 10 / 19, 0.1), (0.5, 2 / 3, 0.5)):
        assert np.asarray(posterior(rate, -1, 1.0)[0])[cause].sum() == pytest.approx(alone, rel=1e-10)
        assert np.asarray(posterior(rate, 1, 1.0)[0])[cause].sum() == pytest.approx(both, rel=1e-10)
    plain, scaled = posterior(0.1, -1, 1.0), posterior(0.1, -1, 7.0)
    np.testing.assert_allclose(scaled[0], plain[0], rtol=1e-12)
    assert float(scaled[1] - plain[1]) == pytest.approx(np.log(7), rel=1e-10)


@jax.jit
def beliefs_of(initial, transitions, logs):
    steps = FiniteStep(logs, transitions)
    filtered = filter(FiniteBeliefs(), initial, steps)
    return filtered, smooth(FiniteBeliefs(), filtered, steps)


# H05, H06
def test_an_observation_travels_along_a_chain():
    d = np.array([0.3, 0.7])
    tables = [
        np.array([[0.9, 0.2], [0.1, 0.8]]),
        np.array([[0.6, 0.25], [0.4, 0.75]]),
        np.array([[0.7, 0.1], [0.3, 0.9]]),
    ]
    # D → C → B → A, rows by the earlier one; the first has no transition of its own
    transitions = np.stack([np.eye(2), *(t.T for t in tables)])
    filtered, before = beliefs_of(d, transitions, np.zeros((4, 2)))
    np.testing.assert_allclose(
        before.marginals, [[0.3, 0.7], [0.41, 0.59], [0.3935, 0.6065], [0.3361, 0.6639]], rtol=1e-10
    )
    logs = np.zeros((4, 2))
    logs[3] = [-np.inf, 0.0]
    filtered, after = beliefs_of(d, transitions, logs)
    expected = [[0.253502033, 0.746497967], [0.333483958, 0.666516042], [0.177812924, 0.822187076], [0, 1]]
    np.testing.assert_allclose(after.marginals, expected, atol=5e-10)
    assert np.exp(np.asarray(filtered.log_evidence).sum()) == pytest.approx(0.6639, rel=1e-10)
    # cliques over separators are the posterior of all four
    pairs, single = np.asarray(after.pairs), np.asarray(after.marginals)
    whole = np.einsum(
        "dc,cb,ba->dcba", pairs[0], pairs[1] / single[1][:, None], pairs[2] / single[2][:, None]
    )
    joint_law = np.einsum("d,dc,cb,ba->dcba", d, *transitions[1:])
    joint_law[..., 0] = 0
    np.testing.assert_allclose(whole, joint_law / joint_law.sum(), atol=1e-12)


# H10, H11, H12
def test_messages_forth_and_back_on_the_ice_cream_diary():
    transition = np.array([[0.6, 0.4], [0.5, 0.5]])
    seen = np.array([[0.4, 0.1], [0.2, 0.5], [0.4, 0.1]])
    filtered, smoothed = beliefs_of(np.array([0.8, 0.2]), np.stack([transition] * 3), np.log(seen))
    evidence = np.exp(np.asarray(filtered.log_evidence).sum())
    assert evidence == pytest.approx(0.028562, rel=1e-9)
    alpha = np.asarray(filtered.filtered) * np.exp(np.cumsum(filtered.log_evidence))[:, None]
    gamma = np.asarray(smoothed.marginals)
    # γ = αβ / p
    beta = gamma * evidence / alpha
    np.testing.assert_allclose(beta, [[0.0836, 0.0905], [0.28, 0.25], [1, 1]], rtol=1e-9)
    np.testing.assert_allclose(np.sum(alpha * beta, axis=1), evidence, rtol=1e-12)
    np.testing.assert_allclose(gamma[0], [0.936629, 0.063371], atol=5e-7)


ICE = np.array([[0.2, 0.4, 0.4], [0.5, 0.4, 0.1]])
WEATHER = np.array([[0.6, 0.4], [0.5, 0.5]])


def diary(initial, transition, rates):
    return HMM(initial, transition, Categorical(rates[:, None]))


# M02, H07, H08
def test_series_are_drawn_as_often_as_the_joint_says():
    n = 20_000
    states = np.array(list(itertools.product(range(2), repeat=2)), np.int32)
    values = np.array(list(itertools.product(range(3), repeat=2)), float)

    @jax.jit
    def run(keys):
        model = diary(array(0.8, 0.2), jnp.asarray(WEATHER), jnp.asarray(ICE))
        hidden, seen = jax.vmap(lambda k: model.sample_with_states(2, key=k))(keys)

        def log_joint(z, x):
            return model.log_prob(one_series(x[:, None], z))

        every = jnp.asarray(np.repeat(states, 9, axis=0)), jnp.asarray(np.tile(values, (4, 1)))
        return hidden, seen, jax.vmap(log_joint)(*every).reshape(4, 9)

    hidden, seen, table = map(np.asarray, run(jax.random.split(KEY, n)))
    by_hand = np.array(
        [
            [[0.8, 0.2][a] * ICE[a, int(x)] * WEATHER[a, b] * ICE[b, int(y)] for x, y in values]
            for a, b in states
        ]
    )
    np.testing.assert_allclose(np.exp(table), by_hand, rtol=1e-9)
    assert np.exp(table).sum() == pytest.approx(1, rel=1e-10)
    codes = (hidden @ [2, 1]) * 9 + (seen[..., 0] @ [3, 1]).astype(int)
    assert stats.chisquare(np.bincount(codes, minlength=36), n * by_hand.ravel()).pvalue > 1e-4


# H16
def test_training_by_best_paths_counts_along_them():
    x = np.array([2, 0, 2, 1, 0])

    @jax.jit
    def step(initial, transition, rates):
        model = diary(initial, transition, rates)
        series = jax.tree.map(lambda a: a[None], one_series(jnp.asarray(x, jnp.float64)[:, None]))
        statistics, free = model.expect(series, jnp.ones(1), temperature=jnp.zeros(()), incomplete=False)
        after = model.maximise(statistics)
        return free, after.initial, after.transition.matrix(), after.emissions.members.probabilities[:, 0]

    def best(initial, transition, rates):
        """The most probable of all paths, and its log-probability with the series."""
        paths = np.array(list(itertools.product(range(2), repeat=5)))
        with np.errstate(divide="ignore"):
            score = np.log(initial)[paths[:, 0]] + np.log(rates)[paths, x].sum(1)
            score = score + np.log(transition)[paths[:, :-1], paths[:, 1:]].sum(1)
        return paths[np.argmax(score)], score.max()

    now = np.array([0.8, 0.2]), WEATHER, ICE
    scores = []
    for _ in range(3):
        path, score = best(*now)
        free, *now = map(np.asarray, step(*now))
        assert float(free) == pytest.approx(-score, rel=1e-9)
        scores.append(score)
        for k in set(path[:-1].tolist()):
            after = path[1:][path[:-1] == k]
            np.testing.assert_allclose(now[1][k], np.bincount(after, minlength=2) / len(after), atol=1e-9)
        for k in set(path.tolist()):
            np.testing.assert_allclose(
                now[2][k], np.bincount(x[path == k], minlength=3) / np.sum(path == k), atol=1e-9
            )
    assert (np.diff(scores) >= 0).all()


# T01
def test_documents_are_drawn_from_mixtures_of_topics():
    topics, n = np.array([[0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]), 20_000

    @jax.jit
    def draw(alpha, key):
        model = TopicModel(alpha, jnp.asarray(1e-9), jnp.asarray(1e9 * topics))
        return model.sample(jnp.asarray(float(n)), key=key)

    for seed in range(5):
        theta, counts = map(np.asarray, draw(np.full(2, 2.0), jax.random.key(seed)))
        assert counts.sum() == n
        assert stats.chisquare(counts, n * theta @ topics).pvalue > 1e-4
        # with a small α a document has one topic
        assert np.asarray(draw(np.full(2, 1e-3), jax.random.key(seed))[0]).max() > 0.99
    shares = np.array([draw(np.array([2.0, 6.0]), jax.random.key(seed))[0][0] for seed in range(300)])
    assert stats.kstest(shares, stats.beta(2, 6).cdf).pvalue > 1e-4


# H20
def test_the_likelier_series_can_have_the_less_likely_states():
    x, states = np.array([[0.0], [1.0], [1.0]]), np.array([0, 1, 1], np.int32)

    @jax.jit
    def both(rows, stay):
        model = HMM(
            array(0.5, 0.5),
            jnp.stack([jnp.stack([stay, 1 - stay]), jnp.stack([1 - stay, stay])]),
            Categorical(rows[:, None]),
        )
        whole = model.log_prob(one_series(jnp.asarray(x), jnp.asarray(states)))
        return whole, whole - model.log_prob(one_series(jnp.asarray(x)))

    # one that knows what is seen, and one that tells the states apart but expects a third symbol
    knows = both(np.array([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0]]), 0.5)
    tells = both(np.array([[0.2, 0.01, 0.79], [0.01, 0.2, 0.79]]), 0.5)
    by_hand = [3 * np.log(0.5) + np.log(0.5 * 0.6 * 0.6), 3 * np.log(0.5) + np.log(0.2**3)]
    np.testing.assert_allclose([knows[0], tells[0]], by_hand, rtol=1e-9)
    assert knows[0] > tells[0]
    assert knows[1] < tells[1]


# N03, N06
def test_perplexity_of_a_chain_of_words():
    transition = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [1 / 3, 1 / 3, 1 / 3]])
    log_prob = jax.jit(lambda p, t, x: MarkovChain(p[None], t[None]).log_prob(one_series(x)))
    words = np.array([[0.0], [1.0], [2.0]])
    nats = float(log_prob(np.array([0.5, 0.25, 0.25]), transition, words))
    # ½ · ¼ · ⅛ is a perplexity of four
    assert np.exp(-nats / 3) == pytest.approx(4.0, rel=1e-10)
    even = float(log_prob(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), words))
    assert np.exp(-even / 3) == pytest.approx(3.0, rel=1e-10)
    assert log_prob(np.array([0.0, 0.5, 0.5]), transition, words) == -np.inf


# N01, N02
def test_precision_recall_and_their_harmonic_mean():
    truth = np.repeat([1, 0, 1, 0], [6, 2, 4, 3])
    guess = np.repeat([1, 1, 0, 0], [6, 2, 4, 3])
    assert recall_score(truth, guess) == pytest.approx(0.6)
    assert precision_score(truth, guess) == pytest.approx(0.75)
    assert f1_score(truth, guess) == pytest.approx(2 / 3)


# ---- deep generative models


# z ~ N(0, 1), x | z ~ N(2z + 1, ½) and x = 3, with q = N(½, 0.3)
TOY = LinearGaussian(array([2.0]), array(1.0), Diagonal(array(0.5)))
SEEN = np.array([3.0])
EVIDENCE, BOUND = -2.1154216760, -3.1493513451


def recognised(x):
    return Gaussian(array(0.5), Diagonal(array(0.3)))


# C18, C19, V04, V13
def test_three_forms_of_the_bound():
    recognition = Amortised(recognised, expectation=Quadratic())

    @jax.jit
    def values(x, key):
        weights = importance_log_weights(TOY.energy, recognition, x, samples=64 * 2000, key=key)
        divergence = kl_divergence(recognised(x), TOY.posterior(x))
        prior = kl_divergence(recognised(x), Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1))))
        return (
            TOY.log_prob(x),
            -free_energy(TOY.energy, recognition, x, key=key),
            divergence,
            prior,
            weights,
        )

    evidence, bound, divergence, prior, weights = map(np.asarray, values(SEEN, KEY))
    assert evidence == pytest.approx(EVIDENCE, abs=1e-9)
    assert bound == pytest.approx(BOUND, abs=1e-9)
    assert divergence == pytest.approx(1.0339296691, abs=1e-9)
    assert evidence == pytest.approx(bound + divergence, rel=1e-12)
    # E_q log p(x | z) by hand: the mean gap is 1, and its variance 4 · 0.3
    reconstruction = stats.norm.logpdf(3, 2, np.sqrt(0.5)) - 4 * 0.3 / (2 * 0.5)
    assert bound == pytest.approx(reconstruction - prior, rel=1e-10)
    # with more draws it tightens to the evidence
    for k, known in ((1, BOUND), (2, -2.474), (8, -2.171), (64, -2.122)):
        bounds = np.logaddexp.reduce(weights.reshape(-1, k), axis=1) - np.log(k)
        assert abs(bounds.mean() - known) < 5 * bounds.std() / np.sqrt(len(bounds)) + 5e-4


def bent_autoencoder():
    decoder = MLP((Linear(array([1.0]), array(0.0)), Linear(array([3.0]), array(0.5))), jnp.tanh)
    encoder = GaussianEncoder(MLP((Linear(array([1.0, 0.0]), jnp.zeros(2)),)))
    return VAE(encoder, decoder, Given(normal(0.0, 0.1)), StandardNormal(1))


# V01, V02, V03, V05
def test_an_infinite_mixture_of_gaussians_is_not_gaussian():
    model = bent_autoencoder()
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.linspace(-6, 6, 601)

    @jax.jit
    def values(x, z):
        log_p = jax.vmap(
            lambda a: jax.vmap(lambda b: -model.energy(a[None], b[None]) - model.prior.log_prob(b[None]))(z)
        )(x)
        wide = model.recognise(array(-50.0)).covariance.variance
        normal_kl = kl_divergence(normal(1.0, 2.0), normal(0.0, 1.0))
        return log_p, jax.vmap(model.reconstruct)(z[:, None])[:, 0], wide, normal_kl

    log_p, means, wide, known = map(np.asarray, values(grid, nodes))
    np.testing.assert_allclose(means, 3 * np.tanh(nodes) + 0.5, rtol=1e-10)
    assert (wide > 0).all()
    assert known == pytest.approx(0.6534264097, abs=5e-11)
    mass = np.exp(log_p) @ (weights / weights.sum()) * 0.02
    assert mass.sum() == pytest.approx(1, abs=1e-6)
    gap = grid - mass @ grid
    kurtosis = mass @ gap**4 / (mass @ gap**2) ** 2
    assert kurtosis < 2
    # a straight decoder: N(b, W² + σ²), with the kurtosis of a normal
    shapes = jax.eval_shape(
        lambda: mlp_vae(
            5, 2, width=4, depth=1, emission=Given(Gaussian(jnp.zeros(5), Diagonal(jnp.ones(5)))), key=KEY
        )
    )
    assert shapes.encoder.network.layers[-1].weight.shape == (4, 2 * 2)
    assert shapes.decoder.layers[-1].weight.shape == (4, 5)


# V06, V07
def test_draws_of_a_reconstruction_have_its_slope_and_a_variance_that_falls_with_their_number():
    mean, scale, n = 0.7, 0.5, 4000

    def value(m, s, samples, key):
        q = Gaussian(m[None], Diagonal(s[None] ** 2))
        return Pathwise(samples)(lambda z: jnp.sum(z**2), q, key=key)

    @jax.jit
    def draws(keys, m, s):
        one = jax.vmap(jax.value_and_grad(lambda f, k: value(*f, 1, k)), (None, 0))((m, s), keys)
        return *one, jax.vmap(lambda k: value(m, s, 8, k))(keys)

    one, slopes, eight = draws(jax.random.split(KEY, n), mean, scale)
    for slope, known in zip(slopes, (2 * mean, 2 * scale), strict=True):
        assert abs(np.mean(slope) - known) < 5 * np.std(slope) / np.sqrt(n)
    variance = 4 * mean**2 * scale**2 + 2 * scale**4
    for values, draw in ((one, 1), (eight, 8)):
        assert abs(np.mean(values) - mean**2 - scale**2) < 5 * np.std(values) / np.sqrt(n)
        assert np.var(values) * draw == pytest.approx(variance, rel=0.25)


# V08
def test_one_network_for_all_rows_is_no_better_than_one_answer_for_each():
    @jax.jit
    def bounds(x):
        def linear(row):
            return Gaussian(0.3 * row - 0.2, Diagonal(array(0.2)))

        both = [
            Amortised(linear, expectation=Quadratic()),
            Amortised(TOY.posterior, expectation=Quadratic()),
        ]
        return [jax.vmap(lambda row, r=r: -free_energy(TOY.energy, r, row, key=KEY))(x) for r in both]

    x = np.array([[3.0], [0.0], [-1.0]])
    shared, best = map(np.asarray, bounds(x))
    assert (shared < best).all()
    np.testing.assert_allclose(best, stats.norm.logpdf(x[:, 0], 1, np.sqrt(4.5)), rtol=1e-9)


# ---- divergences


P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])


# G03, G04, G05, G08, G09
def test_the_best_discriminator_and_the_divergence_that_it_finds():
    mixture = Mixture(array(0.5, 0.5), Categorical(jnp.asarray(np.stack([P, Q])[:, None])))
    best = jax.jit(jax.vmap(lambda x: mixture.posterior(x[None]).probabilities[0]))(np.arange(3.0))
    np.testing.assert_allclose(best, [5 / 7, 0.6, 0.25], rtol=1e-10)
    best = np.asarray(best)
    assert float(divergence(P, Q)) == pytest.approx(0.3600624406, abs=5e-11)
    assert float(divergence(Q, P)) == pytest.approx(0.3948162052, abs=5e-11)
    middle = (P + Q) / 2
    shannon = float(divergence(P, middle) + divergence(Q, middle)) / 2
    assert shannon == pytest.approx(0.0905658500, abs=5e-11)
    assert jensenshannon(P, Q) ** 2 == pytest.approx(shannon, rel=1e-9)
    value = P @ np.log(best) + Q @ np.log(1 - best)
    assert value == pytest.approx(-1.2051626612, abs=5e-11)
    assert value == pytest.approx(-np.log(4) + 2 * shannon, rel=1e-10)
    # at each point a/(a + b) is the best answer, and the value there an entropy
    grid = np.linspace(0.001, 0.999, 999)
    for a, b, d in zip(P, Q, best, strict=True):
        assert abs(grid[np.argmax(a * np.log(grid) + b * np.log(1 - grid))] - d) < 1e-3
        top = a * np.log(d) + b * np.log(1 - d)
        assert top == pytest.approx(-(a + b) * float(uncertainty(np.array([d, 1 - d]))), rel=1e-10)


# G10, G11, G12
def test_distances_of_laws_that_do_not_meet():
    some, other = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])
    assert divergence(some, other) == np.inf
    assert jensenshannon(some, other) ** 2 == pytest.approx(np.log(2), rel=1e-12)
    height = np.linspace(0, 1, 5)
    for shift in (0.3, 2.0):
        lines = [np.stack([np.full(5, place), height], axis=1) for place in (0.0, shift)]
        assert stats.wasserstein_distance_nd(*lines) == pytest.approx(shift, rel=1e-9)
    # transport on a line, by plan and by potential
    places = np.arange(3.0)
    assert stats.wasserstein_distance(places, places, P, Q) == pytest.approx(0.7, rel=1e-12)
    assert np.abs(np.cumsum(P - Q)).sum() == pytest.approx(0.7)
    cost = np.abs(places[:, None] - places)
    margins = np.concatenate([np.kron(np.eye(3), np.ones(3)), np.kron(np.ones(3), np.eye(3))])
    plan = linprog(cost.ravel(), A_eq=margins, b_eq=np.concatenate([P, Q]))
    assert plan.fun == pytest.approx(0.7, rel=1e-9)
    steep = np.array([np.eye(3)[i] - np.eye(3)[j] for i, j in itertools.permutations(range(3), 2)])
    limits = np.array([cost[i, j] for i, j in itertools.permutations(range(3), 2)])
    for slope in (1, 3):
        dual = linprog(Q - P, A_ub=steep, b_ub=slope * limits, bounds=[(0, None), (0, None), (0, 0)])
        assert -dual.fun / slope == pytest.approx(0.7, rel=1e-9)
        np.testing.assert_allclose(dual.x, slope * np.array([2, 1, 0]), atol=1e-8)


# G07
def test_a_classifier_of_two_samples_knows_their_ratio():
    x = np.array([[-1.0], [0.2], [0.9], [2.0]])
    r = np.asarray(expect(halves(np.array([0.0, 1.0]), np.ones(2)), x)[2])
    np.testing.assert_allclose(r[:, 1] / (1 - r[:, 1]), np.exp(x[:, 0] - 0.5), rtol=1e-9)


# G16, G17, G18, G19, N04, N05
def test_information_of_a_table():
    table, guess = np.array([[0.3, 0.1], [0.1, 0.5]]), np.array([[0.6, 0.3], [0.4, 0.7]])
    own, whole = float(uncertainty(table.sum(1))), float(uncertainty(table))
    given = whole - float(uncertainty(table.sum(0)))
    assert own == pytest.approx(0.6730116670, abs=5e-11)
    assert given == pytest.approx(0.4952707832, abs=5e-11)
    assert mutual(table) == pytest.approx(0.1777408838, abs=5e-11)
    assert own - given == pytest.approx(mutual(table), rel=1e-9)
    # with a guess of p(c | x) in place of the posterior it is a bound
    bound = own + np.sum(table * np.log(guess))
    assert bound == pytest.approx(0.1294001543, abs=5e-11)
    posterior = table / table.sum(0)
    gap = sum(table[:, x].sum() * float(divergence(posterior[:, x], guess[:, x])) for x in range(2))
    assert gap == pytest.approx(0.0483407296, abs=5e-11)
    assert bound + gap == pytest.approx(mutual(table), rel=1e-9)
    # drawing x once more given y changes no average
    f = np.array([[0.3, -1.0], [2.0, 0.7]])
    again = np.einsum("xy,uy->uy", table, table / table.sum(0))
    assert np.sum(again * f) == pytest.approx(np.sum(table * f), rel=1e-12)
    # cross entropy = entropy + divergence; three bits are a perplexity of eight
    cross = -P @ np.log(Q)
    assert cross == pytest.approx(float(uncertainty(P) + divergence(P, Q)), rel=1e-10)
    assert float(uncertainty(np.full(8, 1 / 8))) / np.log(2) == pytest.approx(3)
    assert np.exp(uncertainty(np.array([0.5, 0.25, 0.25]))) == pytest.approx(2**1.5, rel=1e-10)


# ---- scores


# D20, D21
def test_scores_of_gaussians():
    mean, sigma = np.array([0.3, -1.0]), np.array([[2.0, 0.6], [0.6, 1.0]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()

    @jax.jit
    def values(x, nodes):
        law = Gaussian(jnp.asarray(mean), Full(jnp.asarray(sigma)))
        scores = [jax.grad(law.log_prob)(x), jax.grad(lambda v: law.log_prob(v) + 7.0)(x)]
        lines = [
            jax.vmap(jax.grad(d.log_prob))(nodes[:, None])[:, 0]
            for d in (normal(0.0, 1.0), normal(1.0, 2.0))
        ]
        return scores, lines

    x = np.array([1.0, 0.4])
    scores, (own, other) = values(x, nodes)
    for score in scores:
        np.testing.assert_allclose(score, -np.linalg.solve(sigma, x - mean), rtol=1e-9)
    assert weights @ own == pytest.approx(0, abs=1e-12)
    assert 0.5 * weights @ (np.asarray(own) - other) ** 2 == pytest.approx(0.25, rel=1e-9)


# D22
def test_score_matching_needs_no_normaliser_and_a_density_that_falls_to_zero():
    x = np.array([[1.0], [2.0], [4.0], [5.0]])

    @jax.jit
    def both(free):
        batch = Batch(jnp.asarray(x), jnp.full(4, 0.25))

        def loss(free):
            return score_matching(Gaussian(free[:1], Diagonal(free[1:])), batch, KEY)

        return loss(free), jax.grad(loss)(free)

    value, slope = both(np.array([3.0, 2.5]))
    assert float(value) == pytest.approx(-0.2, rel=1e-9)
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    for free in ([2.8, 2.5], [3.0, 2.2], [3.1, 2.7]):
        mean, variance = free
        loss = float(both(np.array(free))[0])
        assert loss > -0.2
        by_hand = np.mean((x - mean) ** 2) / (2 * variance**2) - 1 / variance
        assert loss == pytest.approx(by_hand, rel=1e-9)
    # the Fisher divergence but for a constant: ½ E‖∇ log p‖² = ½ for standard normal rows
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    rows = Batch(jnp.asarray(nodes[:, None]), jnp.asarray(weights / weights.sum()))
    found = float(jax.jit(lambda: score_matching(normal(1.0, 2.0), rows, KEY))())
    assert 0.25 - found == pytest.approx(0.5, rel=1e-9)
    # on the unit interval there is a rim: for s = −x it is off by the score there
    grid = np.polynomial.legendre.leggauss(10)
    uniform = Batch(jnp.asarray((grid[0][:, None] + 1) / 2), jnp.asarray(grid[1] / 2))
    found = float(jax.jit(lambda: score_matching(normal(0.0, 1.0), uniform, KEY))())
    divergence_of_scores = 0.5 / 3
    assert found - divergence_of_scores == pytest.approx(-1.0, rel=1e-9)


# D11
def test_noise_of_both_forms_of_the_bound_apart_and_along_one_path():
    def chain(steps):
        """The linear schedule, and steps back that are exact for data N(0, 1)."""
        betas = jnp.linspace(0.1, 20, steps) / steps
        return Diffusion(lambda x, log_snr: jnp.zeros_like(x), 1, StepSchedule.of_betas(betas))

    def stages(model, steps):
        return jax.vmap(model.stage)(jnp.linspace(0, 1, steps))

    def log_normal(x, mean, variance):
        return -0.5 * ((x - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance)).sum()

    def apart(key):
        """Both forms, with a datum and noise of its own for each term, and the last step of both."""
        model = chain(100)
        every = stages(model, 100)
        before, at, after = (jax.tree.map(lambda v, a=a: v[a : 98 + a], every) for a in range(3))
        keys = jax.random.split(key)
        x = jax.random.normal(keys[0], (6, 100, 1))
        noise = jax.random.normal(keys[1], (8, 100, 1))

        def consistency(s, t, u, x, a, b, c):
            here = s.alpha * x + s.sigma * a
            factor, spread = noising_step(s, t)
            there = factor * here + jnp.sqrt(spread) * b
            beyond, wide = noising_step(t, u)
            back = model.back(beyond * there + jnp.sqrt(wide) * c, u, t, 1.0)
            return log_normal(there, *back) - log_normal(there, factor * here, spread)

        one = jnp.sum(jax.vmap(consistency)(before, at, after, x[0, :98], *noise[:3, :98]))
        rest = -model.data_cost(x[1, 0], noise[3, 0])
        # the first and the last term of the second form, and its divergences
        costs = jax.vmap(lambda x, e, t, s: model.step_cost(x, e, t, s))
        two = (
            jnp.sum(costs(x[2, :98], noise[4, :98], after, at))
            + costs(
                x[3, :1],
                noise[5, :1],
                jax.tree.map(lambda v: v[:1], at),
                jax.tree.map(lambda v: v[:1], before),
            )[0]
        )
        return one, rest, -model.prior_cost(x[4, 0]) - two

    def together(key):
        """Both forms along one path of a datum."""
        model = chain(400)
        every = stages(model, 400)
        keys = jax.random.split(key, 3)
        x = jax.random.normal(keys[0], (1,))

        def walk(z, at):
            clean, noisy, e = at
            factor, spread = noising_step(clean, noisy)
            z = factor * z + jnp.sqrt(spread) * e
            noise = (z - noisy.alpha * x) / noisy.sigma
            return z, model.step_cost(x, noise, noisy, clean)

        clean, noisy = (jax.tree.map(lambda v, a=a: v[a : 399 + a], every) for a in range(2))
        first = jax.random.normal(keys[1], (1,))
        begin = model.stage(jnp.array(0.0))
        z = begin.alpha * x + begin.sigma * first
        _, costs = jax.lax.scan(walk, z, (clean, noisy, jax.random.normal(keys[2], (399, 1))))
        own = log_normal(x, jnp.zeros(1), jnp.ones(1))
        two = -model.data_cost(x, first) - model.prior_cost(x) - costs.sum()
        return model.path_bound(x, key=key, steps=399), own, two

    n = 1500
    one, last, two = jax.jit(jax.vmap(apart))(jax.random.split(KEY, n))
    # half a square of unit noise, and in each of 98 terms the difference of two such
    for draws, variance in ((last, 0.5), (one, 98.0)):
        gaps = (draws - draws.mean()) ** 2
        assert abs(gaps.mean() - variance) < 4 * gaps.std() / np.sqrt(n) + 0.01 * variance
    assert two.std() < 1
    path, own, two = jax.jit(jax.vmap(together))(jax.random.split(KEY, n))
    # along one path the first form is log p(x) itself, whatever the path
    np.testing.assert_allclose(path, own, atol=1e-9)
    gaps = (path - path.mean()) ** 2
    assert abs(gaps.mean() - 0.5) < 4 * gaps.std() / np.sqrt(n)
    gaps = (two - two.mean()) ** 2
    assert abs(two.std() - 2.70) < 4 * gaps.std() / np.sqrt(n) / (2 * two.std()) + 0.02
    assert abs((two - own).mean()) < 4 * (two - own).std() / np.sqrt(n)


# D23
def test_the_trace_of_score_matching_along_random_directions():
    covariance = np.array([[1.0, 0.6, -0.3], [0.6, 2.0, 0.4], [-0.3, 0.4, 0.8]])
    slope = -np.linalg.inv(covariance)
    rows = np.array([[0.5, -1.0, 0.2], [1.5, 0.3, -0.7]])
    batch = Batch(jnp.asarray(rows), array(0.5, 0.5))

    @jax.jit
    def losses(keys):
        model = Gaussian(jnp.zeros(3), Full(jnp.asarray(covariance)))
        columns = Gaussian(jnp.zeros(3), Diagonal(array(1.0, 2.0, 0.8)))
        one, four = (jax.vmap(lambda k, n=n: SlicedScoreMatching(n)(model, batch, k))(keys) for n in (1, 4))
        apart = jax.vmap(lambda k: SlicedScoreMatching()(columns, batch, k))(keys[:5])
        return one, four, score_matching(model, batch, KEY), apart, score_matching(columns, batch, KEY)

    one, four, whole, apart, exact = losses(jax.random.split(KEY, 4000))
    by_hand = np.mean(0.5 * np.sum((rows @ slope) ** 2, axis=1)) + np.trace(slope)
    assert float(whole) == pytest.approx(by_hand, rel=1e-9)
    # Var vᵀJv = 4 Σ_{i<j} J_ij² for signs; two rows and four directions have eight of them
    off = 4 * np.sum(np.triu(slope, 1) ** 2)
    for draws, number in ((one, 2), (four, 8)):
        assert abs(draws.mean() - by_hand) < 4 * np.sqrt(off / number / 4000)
        assert draws.var() == pytest.approx(off / number, rel=0.15)
    # of columns that are apart nothing is left to chance
    np.testing.assert_allclose(apart, exact, rtol=1e-9)


# A05
def test_weights_of_attention_are_a_softmax():
    weights = jax.jit(lambda s, t: Boltzmann(t)(-s, 0)[1])
    scores = np.array([0.3, 1.2, -0.5])
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(weights(scores, 1.0), p, rtol=1e-12)
    np.testing.assert_allclose(weights(scores + 1e4, 1.0), p, rtol=1e-9)
    np.testing.assert_allclose(weights(scores, 1e-3), [0, 1, 0], atol=1e-12)
    # q = (1, 0) and the keys e₁ and e₂, scaled by √2
    np.testing.assert_allclose(
        weights(np.array([1.0, 0.0, -np.inf]) / np.sqrt(2), 1.0), [0.6697615, 0.3302385, 0], atol=5e-8
    )


def test_projections_and_distances_from_a_plane():
    x, y = np.array([3.0, 1.0, 2.0]), np.array([1.0, -1.0, 2.0])
    share = np.linalg.lstsq(y[:, None], x, rcond=None)[0]
    found = share[0] * y
    np.testing.assert_allclose(found, (y @ x) / (y @ y) * y)
    np.testing.assert_allclose(np.linalg.lstsq(y[:, None], found, rcond=None)[0], share)
    np.testing.assert_allclose(
        [(x - found) @ y, found @ found + (x - found) @ (x - found)], [0, x @ x], atol=1e-12
    )
    # f / ‖w‖ is the distance from the plane, whatever the length of (w, b)
    machine = SupportVectorMachine(LinearKernel(), C=None, standardise=False).fit(
        [[0.0, 0.0], [2.0, 2.0]], [-1, 1]
    )
    w, b = machine.coef_[0], machine.intercept_[0]
    points = np.array([[2.0, 2.0], [1.0, 1.0], [5.0, -3.0], [0.0, 0.0]])
    distance = machine.decision_function(points) / np.linalg.norm(w)
    np.testing.assert_allclose(distance, [np.sqrt(2), 0, 0, -np.sqrt(2)], atol=1e-9)
    np.testing.assert_allclose(distance, (points @ (3 * w) + 3 * b) / np.linalg.norm(3 * w), atol=1e-9)


# S04
def test_mistakes_that_all_cost_the_same_are_a_matter_of_trying_all_of_them():
    x = np.array([[0.0, 0.0], [1.0, 0.3], [0.2, 1.0], [2.6, 2.4], [3.0, 3.0], [2.0, 3.2], [0.4, 0.5]])
    y, C = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0]), 0.7

    def widest(kept):
        """½‖w‖² of the widest margin of some rows; infinite if they cannot be told apart."""
        if len(set(y[kept])) < 2:
            return 0.0
        rows = y[kept, None] * np.column_stack([x[kept], np.ones(len(kept))])
        apart = linprog(np.zeros(3), A_ub=-rows, b_ub=-np.ones(len(kept)), bounds=[(None, None)] * 3)
        if apart.status != 0:
            return np.inf
        return (
            SupportVectorMachine(LinearKernel(), C=None, standardise=False).fit(x[kept], y[kept]).primal_[0]
        )

    values = {
        left: widest(np.setdiff1d(np.arange(7), left)) + C * len(left)
        for size in range(4)
        for left in itertools.combinations(range(7), size)
    }
    best = min(values, key=values.__getitem__)
    # the last row stands among the others, and they cannot be told apart with it
    assert best == (6,)
    assert values[()] == np.inf
    soft = SupportVectorMachine(LinearKernel(), C=C, standardise=False).fit(x, y)
    slack = np.maximum(0, 1 - y * soft.decision_function(x))
    counted = 0.5 * np.sum(soft.coef_**2) + C * np.sum(slack > 1e-6)
    assert values[best] <= counted
    assert np.sum(soft.predict(x) != y) <= slack.sum()


def test_multipliers_of_an_equality_and_of_a_machine():
    plane = LinearConstraint(np.ones((1, 2)), 1.0, 1.0)
    found = minimize(
        lambda v: v @ v, np.zeros(2), jac=lambda v: 2 * v, method="trust-constr", constraints=plane
    )
    np.testing.assert_allclose(found.x, [0.5, 0.5], atol=1e-8)
    # ∇f = α ∇g; SciPy has the other sign
    np.testing.assert_allclose(-found.v[0], [1.0], atol=1e-8)

    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(-2, 0.6, (8, 2)), rng.normal(2, 0.6, (8, 2))])
    y = np.repeat([-1.0, 1.0], 8)
    machine = SupportVectorMachine(LinearKernel(), C=None, standardise=False).fit(x, y)
    alpha = np.zeros(16)
    alpha[machine.support_] = machine.dual_coef_[0] * y[machine.support_]

    def lagrangian(w, b, alpha):
        return 0.5 * w @ w - alpha @ (y * (x @ w + b) - 1)

    w, b = machine.coef_[0], machine.intercept_[0]
    slope = approx_fprime(np.append(w, b), lambda v: lagrangian(v[:2], v[2], alpha), 1e-7)
    np.testing.assert_allclose(slope, 0, atol=1e-5)
    np.testing.assert_allclose(np.append(w - (alpha * y) @ x, -alpha @ y), 0, atol=1e-8)
    # a saddle: least over w and b, largest over multipliers that are not negative
    middle = lagrangian(w, b, alpha)
    np.testing.assert_allclose(middle, machine.primal_[0], rtol=1e-8)
    for _ in range(50):
        other, move = rng.exponential(size=16), rng.normal(size=3)
        assert lagrangian(w, b, other) <= middle + 1e-9
        assert lagrangian(w + move[:2], b + move[2], alpha) >= middle - 1e-9


# ---- 13.4.1 F


# G15
def test_lipschitz_constants_from_pairs_of_points():
    def steepest(values, points):
        return np.max(np.abs(np.diff(values)) / np.diff(points))

    for size in (10.0, 100.0):
        points = np.linspace(-size, size, 4001)
        # |x| has one, and no slope at zero
        np.testing.assert_allclose(steepest(np.abs(points), points), 1.0)
        # sin is steepest at multiples of π: of neighbours h apart at best between them, and zero is a point
        h = points[1] - points[0]
        assert np.sin(h) / h - 1e-12 < steepest(np.sin(points), points) < np.sin(h / 2) / (h / 2) + 1e-12
        # x² has none: what is found grows with what is looked at
        np.testing.assert_allclose(steepest(points**2, points), 2 * size - h, rtol=1e-9)
    # of linear layers the product of the spectral norms bounds it, and of one layer it is the norm
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((3, 5), (5, 4), (4, 2))]
    layers = tuple(Linear(jnp.asarray(w), jnp.zeros(w.shape[1])) for w in weights)
    x, y = rng.normal(size=(2, 500, 3))
    for used, activation in ((1, jax.nn.relu), (3, jax.nn.relu), (3, lambda h: h)):
        net = jax.jit(jax.vmap(MLP(layers[:used], activation=activation)))
        ratios = np.linalg.norm(net(x) - net(y), axis=1) / np.linalg.norm(x - y, axis=1)
        bound = np.prod([np.linalg.norm(w, 2) for w in weights[:used]])
        assert ratios.max() <= bound
        if used == 1:
            along = np.linalg.svd(weights[0])[0][:, 0]
            np.testing.assert_allclose(np.linalg.norm(net(along[None]) - net(0 * along[None])), bound)
    whole = np.linalg.norm(np.linalg.multi_dot(weights), 2)
    assert ratios.max() <= whole < bound
