"""Highest-density sets and modes: their mass, their length, and closed forms."""

import numpy as np
import pytest
from scipy import optimize, stats

from freeenergy.evaluation import JoinedLaws, Laws, MixedLaws, NormalLaws


def mixture(centres, scales, weights):
    parts = [Laws(stats.norm(np.full(1, c), s)) for c, s in zip(centres, scales, strict=True)]
    return MixedLaws(np.log(np.array(weights))[:, None], tuple(parts))


def mass(law, pieces):
    return sum(float(law.cdf(np.array([b]))[0] - law.cdf(np.array([a]))[0]) for a, b in pieces)


def length(pieces):
    return sum(b - a for a, b in pieces)


def test_of_a_normal_law_they_are_its_interval():
    law = Laws(stats.norm(np.array([0.0, 5.0]), np.array([1.0, 1e-6])))
    for pieces, (low, high) in zip(law.highest_density(0.95), zip(*law.interval(0.95), strict=True)):
        assert np.ravel(pieces) == pytest.approx([low, high], rel=1e-7)
    # the density at the edge, as the notes have it for N(0, 1)
    edge = law.highest_density(0.95)[0][0][1]
    assert stats.norm.pdf(edge) == pytest.approx(0.0584451, abs=1e-6)
    np.testing.assert_allclose([m[0] for m in law.modes()], [0.0, 5.0], atol=1e-6)


@pytest.mark.parametrize("level", [0.3, 0.8, 0.99])
def test_mixtures_have_that_mass_and_no_shorter_set(level):
    law = mixture([-3.0, 0.0, 6.0], [0.5, 1.0, 2.0], [0.2, 0.5, 0.3])
    (pieces,) = law.highest_density(level)
    assert mass(law, pieces) == pytest.approx(level, abs=1e-8)
    # among all sets of that mass the one with a level density at its edges is the shortest
    edges = np.array(pieces).ravel()
    heights = [float(law.log_prob(np.array([edge]))[0]) for edge in edges]
    np.testing.assert_allclose(heights, heights[0], atol=1e-6)
    grid = np.linspace(-15, 25, 400_001)
    density = np.exp(sum_of_normals(grid))
    order = np.sort(density)[::-1]
    enough = np.searchsorted(np.cumsum(order) * (grid[1] - grid[0]), level)
    assert length(pieces) == pytest.approx(enough * (grid[1] - grid[0]), abs=1e-3)


def sum_of_normals(t):
    logs = [
        np.log(w) + stats.norm(c, s).logpdf(t)
        for c, s, w in zip([-3.0, 0.0, 6.0], [0.5, 1.0, 2.0], [0.2, 0.5, 0.3], strict=True)
    ]
    return np.logaddexp.reduce(logs)


def test_two_equal_normals_have_two_modes_if_they_are_narrow():
    assert [len(mixture([-1, 1], [s, s], [0.5, 0.5]).modes()[0]) for s in (0.5, 0.9, 1.1)] == [2, 2, 1]
    (found,) = mixture([-1, 1], [0.5, 0.5], [0.4, 0.6]).modes()

    def down(y):
        return -float(mixture([-1, 1], [0.5, 0.5], [0.4, 0.6]).log_prob(np.array([y]))[0])

    for place, side in zip(found, ((0.0, 2.0), (-2.0, 0.0)), strict=True):
        best = optimize.minimize_scalar(down, bounds=side, method="bounded", options={"xatol": 1e-9})
        assert place == pytest.approx(best.x, abs=1e-5)


def test_laws_that_begin_where_they_are_densest():
    law = Laws(stats.expon(np.array([2.0]), 3.0))
    ((low, high),) = law.highest_density(0.9)[0]
    assert (low, high) == pytest.approx((2.0, 2.0 - 3 * np.log(0.1)), rel=1e-7)
    skewed = Laws(stats.gamma(np.array([3.0]), 0.0, 2.0))
    (pieces,) = skewed.highest_density(0.9)
    assert mass(skewed, pieces) == pytest.approx(0.9, abs=1e-8)
    low, high = (end[0] for end in skewed.interval(0.9))
    assert length(pieces) < high - low


def test_counts_have_runs_of_whole_numbers():
    rates = np.array([0.3, 4.0, 50.0])
    law = Laws(stats.poisson(rates))
    for rate, pieces in zip(rates, law.highest_density(0.9), strict=True):
        k = np.arange(200)
        p = stats.poisson(rate).pmf(k)
        order = np.argsort(-p, kind="stable")
        wanted = np.sort(order[: np.searchsorted(np.cumsum(p[order]), 0.9) + 1])
        found = np.concatenate([np.arange(a, b + 1) for a, b in pieces])
        np.testing.assert_array_equal(found, wanted)
    assert [m.tolist() for m in Laws(stats.poisson(np.array([4.5]))).modes()] == [[4.0]]


def test_rows_of_different_laws_and_what_is_refused():
    two = mixture([-4.0, 4.0], [1.0, 1.0], [0.5, 0.5])
    one = Laws(stats.t(3.0, np.full(1, 1.0)))
    both = JoinedLaws((np.array([1]), np.array([0])), (two, one))
    first, second = both.highest_density(0.9)
    np.testing.assert_allclose(first, one.highest_density(0.9)[0], rtol=1e-7)
    np.testing.assert_allclose(second, two.highest_density(0.9)[0], rtol=1e-7)
    assert [len(m) for m in both.modes()] == [1, 2]
    pair = NormalLaws(np.zeros((1, 2)), np.eye(2)[None])
    with pytest.raises(ValueError, match=r"'highest_density' of laws is that of one number each. Got 2"):
        pair.highest_density(0.9)
    with pytest.raises(
        ValueError, match=r"'level' of highest_density must be a float in the range \(0, 1\)"
    ):
        one.highest_density(1.0)
