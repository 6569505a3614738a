"""Laws of answers: densities, probabilities, quantiles and draws of each row agree with each other."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from freeenergy.evaluation import JoinedLaws, Laws, MixedLaws, NormalLaws, StackedLaws

COVARIANCE = np.array([[[2.0, 0.6], [0.6, 1.0]], [[1.0, -0.3], [-0.3, 0.5]], [[0.1, 0.0], [0.0, 4.0]]])
MEANS = np.array([[0.0, 1.0], [-2.0, 3.0], [5.0, 5.0]])
WEIGHTS = np.log(np.array([[0.3, 0.5, 1.0], [0.7, 0.5, 0.0]]) + 1e-300)
WEIGHTS[1, 2] = -np.inf


def _mixed(first, second):
    return MixedLaws(WEIGHTS, (Laws(first), Laws(second)))


CENTRES = np.array([0.0, 3.0, -40.0])
REAL = {
    "normal": Laws(stats.norm(CENTRES, [1.0, 0.01, 30.0])),
    "student": Laws(stats.t(5, loc=CENTRES, scale=2.0)),
    "gamma": Laws(stats.gamma(a=[0.7, 3.0, 50.0], scale=2.0)),
    "mixture": _mixed(stats.norm(CENTRES, 1.0), stats.norm(CENTRES + 4, 0.2)),
    "joined": JoinedLaws(
        (np.array([2, 0]), np.array([1])),
        (Laws(stats.norm(CENTRES[[2, 0]], 1.0)), Laws(stats.t(4, CENTRES[[1]], 1.0))),
    ),
}
WHOLE = {
    "poisson": Laws(stats.poisson(np.array([0.2, 3.0, 100.0]))),
    "negative binomial": Laws(stats.nbinom(2.5, np.array([0.9, 0.4, 0.1]))),
    "binomial": Laws(stats.binom(7, np.array([0.0, 0.5, 1.0]))),
    "mixture": _mixed(stats.poisson(np.array([0.2, 3.0, 100.0])), stats.poisson(np.array([9.0, 3.5, 1.0]))),
}


@pytest.mark.parametrize("name", REAL)
def test_densities_integrate_to_the_distribution_function(name):
    laws = REAL[name]
    assert laws.shape == (3,)
    assert not laws.discrete
    median = laws.quantile(0.5)
    for row in range(3):
        one = laws.take(np.array([row]))
        np.testing.assert_allclose(one.quantile(0.5), median[row : row + 1], rtol=1e-9, atol=1e-9)
        places = [float(one.quantile(p)[0]) for p in (1e-9, 0.1, 0.3, 0.5, 0.7, 0.9, 1 - 1e-9)]

        def density(y, one=one):
            return float(np.exp(one.log_prob([y]))[0])

        parts = [integrate.quad(density, a, b, limit=200)[0] for a, b in itertools.pairwise(places)]
        cdf = [float(one.cdf([place])[0]) for place in places]
        np.testing.assert_allclose(parts, np.diff(cdf), atol=2e-7)
        np.testing.assert_allclose(cdf, [1e-9, 0.1, 0.3, 0.5, 0.7, 0.9, 1 - 1e-9], rtol=1e-6)
        both = np.exp([one.log_cdf([places[2]]), one.log_sf([places[2]])])
        np.testing.assert_allclose(both.sum(), 1.0, rtol=1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_probabilities_sum_to_the_distribution_function(name):
    laws = WHOLE[name]
    assert laws.discrete
    values = np.arange(0.0, 300.0)
    mass = np.exp([laws.log_prob(np.full(3, value)) for value in values])
    np.testing.assert_allclose(mass.sum(axis=0), 1.0, rtol=1e-9)
    cdf = np.array([laws.cdf(np.full(3, value)) for value in values])
    np.testing.assert_allclose(cdf, mass.cumsum(axis=0), atol=1e-12)
    np.testing.assert_allclose(laws.mean(), values @ mass, rtol=1e-9)
    np.testing.assert_allclose(
        laws.variance(), values**2 @ mass - (values @ mass) ** 2, rtol=1e-7, atol=1e-9
    )
    for p in (0.01, 0.25, 0.5, 0.9, 0.999):
        # the least whole number that is enough
        least = np.argmax(cdf >= p - 1e-12, axis=0)
        np.testing.assert_array_equal(laws.quantile(p), least)
    np.testing.assert_allclose(
        laws.log_prob([4.0, 2.0, 7.0]), laws.log_mass([3.5, 1.5, 6.5], [4.5, 2.5, 7.5]), rtol=1e-8
    )


@pytest.mark.parametrize(
    "laws", [*REAL.values(), *WHOLE.values()], ids=[*REAL, *(f"{n} of counts" for n in WHOLE)]
)
def test_draws_follow_the_law(laws):
    rng = np.random.default_rng(0)
    draws = laws.sample(1500, rng)
    assert draws.shape == (1500, 3)
    below, at = (np.array([laws.cdf(draw - shift) for draw in draws]) for shift in (0.5, 0.0))
    ranks = below + rng.random(at.shape) * (at - below) if laws.discrete else at
    for column in ranks.T:
        if (column != column[0]).any():
            assert stats.kstest(column, "uniform").pvalue > 1e-4
    np.testing.assert_array_equal(
        laws.sample(4, np.random.default_rng(1)), laws.sample(4, np.random.default_rng(1))
    )


def test_moments_of_mixtures():
    laws = REAL["mixture"]
    for row in range(3):
        one = laws.take(np.array([row]))
        ends = one.quantile(1e-12)[0], one.quantile(1 - 1e-12)[0]

        def moment(power, one=one, ends=ends):
            return integrate.quad(
                lambda y: y**power * np.exp(one.log_prob([y]))[0], *ends, limit=500, points=[one.mean()[0]]
            )[0]

        np.testing.assert_allclose(one.mean()[0], moment(1), atol=1e-5)
        np.testing.assert_allclose(one.variance()[0], moment(2) - moment(1) ** 2, rtol=1e-4)
    # a part without weight has no say, whatever its moments are
    cauchy = Laws(stats.t(1, loc=np.zeros(3)))
    odd = MixedLaws(
        np.log([[1.0] * 3, [0.25] * 3]) - np.array([[0.0], [np.inf]]),
        (Laws(stats.norm(CENTRES, 1.0)), cauchy),
    )
    np.testing.assert_array_equal(odd.mean(), CENTRES)
    np.testing.assert_array_equal(odd.variance(), np.ones(3))


def test_quantiles_at_the_ends_and_one_for_each_row():
    laws = REAL["mixture"]
    np.testing.assert_array_equal(laws.quantile(0.0), np.full(3, -np.inf))
    np.testing.assert_array_equal(laws.quantile(1.0), np.full(3, np.inf))
    each = np.array([0.1, 0.5, 0.9])
    for name in ("mixture", "joined", "normal"):
        found = REAL[name].quantile(each)
        np.testing.assert_allclose(REAL[name].cdf(found), each, rtol=1e-9)
    low, high = laws.interval(0.8)
    np.testing.assert_allclose(laws.cdf(high) - laws.cdf(low), 0.8, rtol=1e-9)
    with pytest.raises(ValueError, match=r"The 'level' of interval must be a float in the range \(0, 1\)"):
        laws.interval(1.0)


def test_mass_of_cells_far_in_both_tails():
    laws = Laws(stats.norm(np.zeros(4), 1.0))
    low = np.array([-41.0, 40.0, -0.5, 8.0])
    expected = [
        float(np.log(integrate.quad(lambda t, a=a: np.exp(-0.5 * (t**2 - a**2)), a, a + 1)[0]) - 0.5 * a**2)
        for a in (40.0, 40.0, 0.0, 8.0)
    ]
    expected = np.array(expected) - 0.5 * np.log(2 * np.pi)
    expected[2] = np.log(stats.norm.cdf(0.5) - stats.norm.cdf(-0.5))
    np.testing.assert_allclose(laws.log_mass(low, low + 1), expected, rtol=1e-9)
    everything = laws.log_mass(-np.inf, np.inf)
    np.testing.assert_array_equal(everything, np.zeros(4))
    nowhere = Laws(stats.gamma(a=2.0, scale=np.ones(1))).log_mass(-3.0, -2.0)
    assert nowhere.tolist() == [-np.inf]


def test_several_normal_outputs_by_dense_algebra():
    laws = NormalLaws(MEANS, COVARIANCE)
    y = np.array([[0.5, 0.0], [np.nan, 2.0], [np.nan, np.nan]])
    expected = [
        stats.multivariate_normal(MEANS[0], COVARIANCE[0]).logpdf(y[0]),
        stats.norm(MEANS[1, 1], np.sqrt(COVARIANCE[1, 1, 1])).logpdf(2.0),
        0.0,
    ]
    np.testing.assert_allclose(laws.log_prob(y), expected, rtol=1e-12)
    np.testing.assert_allclose(laws.take(np.array([1, 0])).log_prob(y[[1, 0]]), expected[1::-1], rtol=1e-12)
    alone = stats.norm(MEANS, np.sqrt(np.diagonal(COVARIANCE, axis1=1, axis2=2)))
    np.testing.assert_allclose(laws.quantile(0.2), alone.ppf(0.2))
    np.testing.assert_allclose(laws.cdf(MEANS + 1), alone.cdf(MEANS + 1))
    np.testing.assert_allclose(np.exp(laws.log_sf(MEANS + 1)), alone.sf(MEANS + 1))
    draws = laws.sample(4000, np.random.default_rng(0))
    for row in range(3):
        gap = np.cov(draws[:, row].T) - COVARIANCE[row]
        size = np.sqrt(np.outer(*[np.diag(COVARIANCE[row])] * 2))
        assert (np.abs(gap) < 5 * np.sqrt(2 / 4000) * size).all()


def test_unknown_outputs_are_left_out():
    laws = Laws(stats.poisson(np.array([[1.0, 2.0], [3.0, 4.0]])))
    assert laws.shape == (2, 2)
    found = laws.log_prob([[1.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_allclose(found, [stats.poisson(1.0).logpmf(1), 0.0])
    mixed = MixedLaws(np.log(np.full((2, 2), 0.5)), (laws, Laws(stats.poisson(np.full((2, 2), 9.0)))))
    both = 0.5 * stats.poisson(1.0).pmf(1) + 0.5 * stats.poisson(9.0).pmf(1)
    np.testing.assert_allclose(
        mixed.log_prob([[1.0, np.nan], [np.nan, np.nan]]), [np.log(both), 0.0], atol=1e-12
    )
    assert mixed.cdf([[1.0, 2.0], [3.0, 4.0]]).shape == (2, 2)


def test_joined_laws_keep_the_order_of_rows():
    places = np.array([4, 0]), np.array([1, 3, 2])
    parts = Laws(stats.norm([4.0, 0.0], 1.0)), Laws(stats.t(6, [1.0, 3.0, 2.0], 0.5))
    laws = JoinedLaws(places, parts)
    assert laws.shape == (5,)
    np.testing.assert_array_equal(laws.mean(), np.arange(5.0))
    np.testing.assert_allclose(laws.variance(), [1.0, *[0.25 * 6 / 4] * 3, 1.0])
    y = np.arange(5.0) + 0.3
    alone = [stats.norm(0, 1), *(stats.t(6, m, 0.5) for m in (1, 2, 3)), stats.norm(4, 1)]
    np.testing.assert_allclose(laws.log_prob(y), [law.logpdf(v) for law, v in zip(alone, y)])
    np.testing.assert_allclose(laws.cdf(y), [law.cdf(v) for law, v in zip(alone, y)])
    assert np.abs(laws.sample(2000, np.random.default_rng(0)).mean(axis=0) - np.arange(5)).max() < 0.12
    # rows again and again, and parts of which none is left
    rows = np.array([3, 0, 3])
    np.testing.assert_allclose(laws.take(rows).log_prob(y[rows]), laws.log_prob(y)[rows])
    assert len(laws.take(np.array([4, 0])).parts) == 1


@pytest.mark.parametrize(
    "parts",
    [
        # of sizes 1e-250 and 1; with heavy tails; and with nothing between them
        [stats.gamma(np.array([a])) for a in (0.05, 0.3, 4.0)],
        [stats.t(1.1, np.array([m])) for m in (-1000.0, 0.0, 30.0)],
        [stats.norm(np.array([m]), 1e-3) for m in (-100.0, 0.0, 1e4)],
    ],
)
@pytest.mark.parametrize("p", [1e-12, 0.05, 1 / 3, 0.5, 0.95, 1 - 1e-9])
def test_quantiles_of_a_mixture_are_the_least_values_that_reach_a_probability(parts, p):
    laws = MixedLaws(np.log(np.full((3, 1), 1 / 3)), tuple(map(Laws, parts)))
    found = laws.quantile(p)
    room = 1e-14 + 1e-9 * np.abs(found)
    assert np.exp(laws.log_cdf(found)) >= p * (1 - 1e-12)
    assert np.exp(laws.log_cdf(found - room)) < p * (1 + 1e-12)
    np.testing.assert_allclose(np.exp(laws.log_cdf(found)), p, rtol=1e-9)


def test_a_stack_of_laws_is_the_mixture_of_its_parts():
    rng = np.random.default_rng(0)
    logs = np.log(rng.dirichlet(np.ones(3), size=4).T)
    logs[0, 1] = -np.inf
    logs[:, 1] -= np.log(np.exp(logs[:, 1]).sum())
    centre, width = rng.normal(size=(3, 4, 2)), rng.uniform(0.5, 2.0, (3, 4, 2))
    parts = tuple(Laws(stats.norm(*both)) for both in zip(centre, width, strict=True))
    stack = Laws(stats.norm(centre.reshape(12, 2), width.reshape(12, 2)))
    one, other = StackedLaws(logs, stack), MixedLaws(logs, parts)
    y = rng.normal(size=(4, 2))
    y[2, 1] = np.nan
    for few in (lambda law: law, lambda law: law.take(np.array([3, 1]))):
        a, b, asked = few(one), few(other), y if few(one).shape[0] == 4 else y[[3, 1]]
        for method in ("log_prob", "log_cdf", "log_sf"):
            np.testing.assert_allclose(getattr(a, method)(asked), getattr(b, method)(asked), rtol=1e-12)
        for method in ("mean", "variance"):
            np.testing.assert_allclose(getattr(a, method)(), getattr(b, method)(), rtol=1e-12)
        np.testing.assert_allclose(a.quantile(0.3), b.quantile(0.3), rtol=1e-12)
        levels = np.array([0.1, 0.5, 0.9])
        np.testing.assert_allclose(a.knots(levels), b.knots(levels), rtol=1e-12)
    draws = one.sample(4000, np.random.default_rng(1))
    error = np.sqrt(one.variance() / 4000)
    assert (np.abs(draws.mean(axis=0) - one.mean()) < 4.5 * error).all()
