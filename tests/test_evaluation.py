"""Intervals, splits and calibration: beside scipy.stats, simulations and the numbers of the notes."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from freeenergy.evaluation import (
    Interval,
    PairedDifference,
    Reliability,
    Retraining,
    Split,
    TestResult,
    association,
    beta_interval,
    bootstrap_interval,
    credible_interval,
    credible_region,
    likelihood_is_unbounded,
    out_of_bag,
    paired_difference,
    pit_ranks,
    reliability,
    retraining_interval,
    t_interval,
    three_way_split,
    two_sample_test,
    uniformity,
    wald_interval,
    wilson_interval,
)

NINETY = [1] * 90 + [0] * 10


def within(rate: float, expected: float, n: int, sigmas: float = 4) -> bool:
    """Whether a share of `n` trials is what is expected, to so many standard errors."""
    return abs(rate - expected) < sigmas * math.sqrt(expected * (1 - expected) / n)


# ---------------------------------------------------------------------------------------------
# intervals over test points
# ---------------------------------------------------------------------------------------------


def test_the_intervals_of_a_proportion_have_the_numbers_of_the_notes():
    wald = wald_interval(NINETY, level=0.99)
    assert (wald.low, wald.high) == pytest.approx((0.82272, 0.97728), abs=1e-5)
    assert wald.estimate == pytest.approx(0.9)
    wilson, jeffreys = wilson_interval(NINETY), beta_interval(NINETY)
    assert (wilson.low, wilson.high) == pytest.approx((0.8256, 0.9448), abs=5e-5)
    assert (jeffreys.low, jeffreys.high) == pytest.approx((0.8299, 0.9474), abs=5e-5)
    never = [0] * 20
    assert wald_interval(never).high == 0  # the weakness of Wald's interval
    assert wilson_interval(never).high == pytest.approx(stats.norm.ppf(0.975) ** 2 / (20 + 1.959964**2))
    uniform = beta_interval(never, prior=(1, 1))
    assert uniform.high == pytest.approx(1 - 0.025 ** (1 / 21))  # Beta(1, 21) by hand
    assert uniform.estimate == pytest.approx(1 / 22)


def test_the_t_interval_is_that_of_scipy_and_becomes_walds():
    x = np.random.default_rng(0).exponential(size=7)
    ours, theirs = t_interval(x, level=0.9), stats.ttest_1samp(x, 0.0).confidence_interval(0.9)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-12)
    assert ours.stderr == pytest.approx(stats.sem(x))
    many = np.random.default_rng(1).normal(size=200_000)
    assert t_interval(many).low == pytest.approx(wald_interval(many).low, rel=1e-3)
    assert x.mean() in ours
    assert x.mean() + 100 not in ours


@pytest.mark.parametrize(
    ("interval", "p", "n", "low"),
    [(wilson_interval, 0.1, 40, 0.935), (beta_interval, 0.1, 40, 0.935), (wald_interval, 0.3, 200, 0.93)],
)
def test_intervals_of_a_proportion_cover_it(interval, p, n, low):
    # the exact coverage: the sum over every number of successes
    inside = [p in interval([1] * k + [0] * (n - k)) for k in range(n + 1)]
    coverage = stats.binom.pmf(range(n + 1), n, p) @ np.array(inside)
    assert low < coverage < 0.985
    assert stats.binom.pmf(0, n, p) < 0.05


def test_a_known_accuracy_is_called_different_as_often_as_it_should_not_be():
    # a new classifier that is exactly as good as the known one
    wrong = [0.7 not in wilson_interval([1] * k + [0] * (100 - k), level=0.9) for k in range(101)]
    assert stats.binom.pmf(range(101), 100, 0.7) @ np.array(wrong) == pytest.approx(0.1, abs=0.03)


def test_the_t_interval_covers_the_mean_of_few_normal_numbers():
    rng = np.random.default_rng(2)
    covered = np.mean([3.0 in t_interval(rng.normal(3, 2, 5), level=0.8) for _ in range(2000)])
    assert within(covered, 0.8, 2000)


def test_credible_intervals_of_draws():
    draws = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    interval = credible_interval(draws)
    assert (interval.low, interval.high) == pytest.approx((-1.96, 1.96), abs=0.002)
    assert credible_interval([2.0]) == Interval(2.0, 2.0, 2.0, 0.95, 0.0)
    (piece,) = credible_region(draws)
    assert piece == pytest.approx((-1.96, 1.96), abs=0.06)


def test_a_region_of_two_humps_is_shorter_than_the_interval():
    normal = stats.norm.ppf((np.arange(5000) + 0.5) / 5000)
    draws = np.concatenate([normal - 5, normal + 5])
    region = credible_region(draws)
    length = sum(high - low for low, high in region)
    interval = credible_interval(draws)
    assert len(region) == 2
    assert length == pytest.approx(7.840, abs=0.15)
    assert interval.high - interval.low == pytest.approx(13.290, abs=0.02)
    assert credible_region([1.0, 1.0]) == [(1.0, 1.0)]


def test_the_bootstrap_agrees_with_theory_and_respects_groups():
    x = np.random.default_rng(3).normal(size=400)
    interval = bootstrap_interval(x, seed=0)
    assert interval.stderr == pytest.approx(stats.sem(x), rel=0.08)
    assert interval.low == pytest.approx(t_interval(x).low, abs=0.015)
    assert interval == bootstrap_interval(x, seed=0)
    median = bootstrap_interval(x, np.median, seed=0)
    assert median.stderr == pytest.approx(math.sqrt(math.pi / 2 / 400), rel=0.25)
    # ten copies of each number say no more than one of it
    copies = bootstrap_interval(np.repeat(x, 10), groups=np.repeat(np.arange(400), 10), seed=0)
    assert (copies.low, copies.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert bootstrap_interval([2, 2, 2], seed=0) == Interval(2.0, 2.0, 2.0, 0.95, 0.0)


def test_the_bootstrap_covers_the_mean_of_skewed_numbers():
    rng = np.random.default_rng(4)
    covered = [
        1.0 in bootstrap_interval(rng.exponential(size=60), resamples=400, level=0.9, seed=i)
        for i in range(300)
    ]
    assert 0.83 < np.mean(covered) < 0.95


# ---------------------------------------------------------------------------------------------
# over retrainings, and between models
# ---------------------------------------------------------------------------------------------


def test_retraining_takes_the_variance_apart():
    rng = np.random.default_rng(5)
    luck, hard = rng.normal(0, 0.5, (300, 1)), rng.normal(0, 2.0, (1, 400))
    result = retraining_interval(1 + luck + hard + rng.normal(0, 1.0, (300, 400)))
    assert isinstance(result, Retraining)
    assert result.trainings == pytest.approx(luck.var(ddof=1), rel=0.05)
    assert result.points == pytest.approx(hard.var(ddof=1), rel=0.01)
    assert result.residual == pytest.approx(1.0, rel=0.02)
    assert result.interval.stderr == pytest.approx(math.sqrt(0.25 / 300 + 4 / 400 + 1 / 120_000), rel=0.1)


def test_a_deterministic_learner_has_the_interval_of_its_test_points():
    x = np.random.default_rng(6).normal(size=30)
    result = retraining_interval(np.tile(x, (4, 1)))
    plain = t_interval(x)
    assert result.trainings == pytest.approx(0, abs=1e-12)
    assert result.interval.stderr == pytest.approx(plain.stderr, rel=1e-12)
    assert (result.interval.low, result.interval.high) == pytest.approx((plain.low, plain.high), rel=1e-9)
    assert retraining_interval(np.ones((2, 2))).interval == Interval(1.0, 1.0, 1.0, 0.95, 0.0)


def test_retraining_covers_the_mean_where_points_alone_do_not():
    rng = np.random.default_rng(7)
    both, points_only = [], []
    for _ in range(1000):
        scores = rng.normal(0, 1, (5, 1)) + rng.normal(0, 1, (1, 40)) + rng.normal(0, 1, (5, 40))
        both.append(0.0 in retraining_interval(scores, level=0.9).interval)
        points_only.append(0.0 in t_interval(scores[0], level=0.9))
    assert 0.87 < np.mean(both) < 0.96
    assert np.mean(points_only) < 0.5


def test_a_paired_difference_is_a_t_test():
    rng = np.random.default_rng(8)
    hard = rng.normal(0, 10, 50)
    a, b = hard + rng.normal(0.3, 1, 50), hard + rng.normal(0, 1, 50)
    difference = paired_difference(a, b)
    test = stats.ttest_rel(a, b)
    assert isinstance(difference, PairedDifference)
    assert difference.mean == pytest.approx(np.mean(a - b))
    assert difference.stderr == pytest.approx(stats.sem(a - b))
    assert difference.chance == pytest.approx(1 - test.pvalue / 2, rel=1e-12)
    swapped = paired_difference(b, a)
    assert (swapped.mean, swapped.chance) == pytest.approx((-difference.mean, difference.chance))
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).chance == 0.5
    assert paired_difference([2.0, 3.0], [1.0, 2.0]).chance == 1.0


# ---------------------------------------------------------------------------------------------
# splits
# ---------------------------------------------------------------------------------------------


def test_three_parts_are_disjoint_and_complete():
    for n in (3, 4, 10, 101):
        split = three_way_split(n, validation=0.1, test=0.3, seed=0)
        assert sorted(np.concatenate(dataclasses.astuple(split))) == list(range(n))
        assert min(map(len, dataclasses.astuple(split))) >= 1
    assert len(split.validation) == 10
    assert len(split.test) == 30
    again = three_way_split(101, validation=0.1, test=0.3, seed=0)
    assert isinstance(again, Split)
    assert (again.test == split.test).all()


def test_groups_stay_together_and_labels_are_shared_out():
    groups = np.repeat(list("abcdefghij"), 7)
    split = three_way_split(70, groups=groups, seed=1)
    parts = [set(groups[part]) for part in dataclasses.astuple(split)]
    assert [len(part) for part in parts] == [6, 2, 2]
    assert len(set.union(*parts)) == 10
    labels = np.random.default_rng(0).permutation(["rare"] * 20 + ["common"] * 180)
    split = three_way_split(200, labels=labels, seed=1)
    assert [int(np.sum(labels[part] == "rare")) for part in dataclasses.astuple(split)] == [12, 4, 4]


def test_choosing_makes_the_validation_score_too_good_and_leaves_the_test_score_honest():
    rng = np.random.default_rng(9)
    chosen = []
    for trial in range(200):
        labels = rng.random(100) < 0.5
        guesses = rng.random((30, 100)) < 0.5  # thirty models of pure noise
        split = three_way_split(100, seed=trial)
        right = guesses == labels
        best = np.argmax(right[:, split.validation].mean(axis=1))
        chosen.append((right[best, split.validation].mean(), right[best, split.test].mean()))
    validation, test = np.mean(chosen, axis=0)
    assert validation > 0.65
    assert within(test, 0.5, 200 * 20)


def test_out_of_bag_rows_do_not_leak():
    rng = np.random.default_rng(10)
    leaky, honest, unique = [], [], []
    for train, test in out_of_bag(200, resamples=100, seed=0):
        x, y = rng.random(200), rng.random(200) < 0.5  # labels are noise: nothing can be learned
        unique.append(len(np.unique(train)) / 200)
        nearest = train[np.argmin(np.abs(x[test][:, None] - x[train][None, :]), axis=1)]
        honest.append(np.mean(y[nearest] == y[test]))
        left, right = train[:100], train[100:]  # resampled first, split afterwards
        nearest = left[np.argmin(np.abs(x[right][:, None] - x[left][None, :]), axis=1)]
        leaky.append(np.mean(y[nearest] == y[right]))
    assert np.mean(unique) == pytest.approx(1 - 1 / math.e, abs=0.01)
    assert np.mean(honest) == pytest.approx(0.5, abs=0.025)
    assert np.mean(leaky) == pytest.approx(0.5 + 0.5 * (1 - math.exp(-0.5)), abs=0.025)
    assert all(len(test) for _, test in out_of_bag(2, resamples=50, seed=0))


# ---------------------------------------------------------------------------------------------
# calibration
# ---------------------------------------------------------------------------------------------


def test_ranks_are_uniform_for_a_true_model_and_not_for_a_false_one():
    rng = np.random.default_rng(11)

    def p_value(scale: float) -> float:
        """Of standard normal rows under a model that is `scale` times as wide."""
        rows, draws = rng.normal(size=200), rng.normal(0, scale, 5000)
        log_p = stats.norm(0, scale).logpdf
        return uniformity(pit_ranks(log_p(rows), log_p(draws), seed=rng)).p_value

    assert within(np.mean([p_value(1) < 0.1 for _ in range(200)]), 0.1, 200)
    assert p_value(2) < 1e-6
    counts = pit_ranks(rng.poisson(1, 500), rng.poisson(1, 5000), seed=0)  # many ties
    assert uniformity(counts).p_value > 0.05


def test_uniformity_is_kolmogorovs_test():
    for u in (np.random.default_rng(12).beta(2, 2, 80), [0.2], [0.0, 1.0]):
        result, expected = uniformity(u), stats.ks_1samp(u, stats.uniform.cdf)
        assert isinstance(result, TestResult)
        assert result.statistic == pytest.approx(expected.statistic, rel=1e-12)
        assert result.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_the_reliability_curve_by_hand_and_by_simulation():
    curve = reliability([0.05, 0.15, 0.15, 0.95], [0, 1, 0, 1])
    assert isinstance(curve, Reliability)
    assert curve.counts.tolist() == [1, 2, 1]
    assert curve.confidence == pytest.approx([0.05, 0.15, 0.95])
    assert curve.frequency == pytest.approx([0.0, 0.5, 1.0])
    assert curve.error == pytest.approx((0.05 + 2 * 0.35 + 0.05) / 4)
    assert reliability([1.0, 0.0], [1, 0], bins=3).error == 0
    table = reliability([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]], [0, 1])
    assert table.frequency.tolist() == [1.0, 0.0]
    rng = np.random.default_rng(13)
    p = rng.random(20_000)
    assert reliability(p, rng.random(20_000) < p).error < 0.015
    assert reliability(p, rng.random(20_000) < p**2).error == pytest.approx(1 / 6, abs=0.01)


def test_the_two_sample_test_finds_a_difference_of_shape_and_only_a_real_one():
    rng = np.random.default_rng(14)
    p = [two_sample_test(*rng.normal(size=(2, 15, 2)), permutations=39, seed=i).p_value for i in range(200)]
    assert within(np.mean(np.array(p) <= 0.1), 0.1, 200)
    ring = rng.normal(size=(300, 2))  # made to have the mean and covariance of the normal
    ring /= np.linalg.norm(ring, axis=1, keepdims=True) / math.sqrt(2)
    assert two_sample_test(ring, rng.normal(size=(300, 2)), seed=0).p_value < 0.01
    # in one dimension the distance is that of scipy, up to the unit
    a, b = rng.normal(size=(30, 1)), rng.normal(1, 1, size=(20, 1))
    unit = np.concatenate([a, b]).std()
    expected = stats.energy_distance(a[:, 0] / unit, b[:, 0] / unit)
    assert two_sample_test(a, b, seed=0).statistic == pytest.approx(expected, rel=1e-10)
    assert two_sample_test(a, b, seed=0) == two_sample_test(a * 1e6 + 5, b * 1e6 + 5, seed=0)


# ---------------------------------------------------------------------------------------------
# sentences
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: wald_interval([]),
            "The 'values' of wald_interval must be an array of one axis with at least 1 entry along each. "
            "Got the shape (0,) instead.",
        ),
        (lambda: t_interval([1.0]), "with at least 2 entries along each. Got the shape (1,) instead."),
        (lambda: t_interval(["a", "b"]), "Got not numbers instead."),
        (
            lambda: t_interval([1.0, np.nan]),
            "The 'values' of t_interval must be finite. Got NaN or infinity instead.",
        ),
        (
            lambda: t_interval([1.0, 2.0], level=95),
            "The 'level' of t_interval must be a float in the range (0, 1). Got 95 instead.",
        ),
        (
            lambda: wilson_interval([0, 1, 2]),
            "The 'values' of wilson_interval must be 0 or 1 each. Got 2 instead.",
        ),
        (
            lambda: beta_interval([0, 1], prior=(0, 1)),
            "The 'prior' of beta_interval must be two positive numbers. Got (0, 1) instead.",
        ),
        (
            lambda: bootstrap_interval([1, 2], resamples=0, seed=0),
            "The 'resamples' of bootstrap_interval must be an int in the range [1, inf). Got 0 instead.",
        ),
        (
            lambda: bootstrap_interval([1, 2], groups=["a", "a"], seed=0),
            "The 'groups' of bootstrap_interval must name at least 2 groups. Got 1 instead.",
        ),
        (
            lambda: paired_difference([1.0, 2.0], [1.0, 2.0, 3.0]),
            "The arrays of paired_difference must have the same length. "
            "Got 2 for 'first', 3 for 'second' instead.",
        ),
        (
            lambda: three_way_split(10, validation=0.5, test=0.5, seed=0),
            "The 'validation' and 'test' of three_way_split must be positive and sum to less than 1. "
            "Got 0.5 and 0.5 instead.",
        ),
        (
            lambda: three_way_split(3, groups=[1, 1, 2], labels=[1, 1, 2], seed=0),
            "Only one of 'groups' and 'labels' of three_way_split can be given. Got both instead.",
        ),
        (
            lambda: three_way_split(3, groups=[1, 1, 2], seed=0),
            "The 'groups' of three_way_split must name at least 3 groups. Got 2 instead.",
        ),
        (
            lambda: uniformity([0.5, 1.5]),
            "The 'ranks' of uniformity must be between 0 and 1. Got 1.5 instead.",
        ),
        (
            lambda: reliability([0.5, -0.5], [0, 1]),
            "The 'probabilities' of reliability must be between 0 and 1. Got -0.5 instead.",
        ),
        (
            lambda: two_sample_test(np.ones((3, 2)), np.ones((3, 1)), seed=0),
            "The samples of two_sample_test must have the same columns. Got 2 and 1 instead.",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match="instead") as error:
        call()
    assert sentence in str(error.value)


def test_answers_on_a_line_are_separable_if_their_ranges_are_apart():
    rng = np.random.default_rng(0)
    found, expected = [], []
    for _ in range(60):
        x, y = rng.normal(size=5), rng.integers(2, size=5)
        zero, one = x[y == 0], x[y == 1]
        if not len(zero) or not len(one):
            continue
        expected.append(zero.max() < one.min() or one.max() < zero.min())
        # a long fit would point this way, and be certain of most rows
        steep = 50 * np.sign(one.mean() - zero.mean()) * np.array([[-1.0], [1.0]])
        middle = (one.mean() + zero.mean()) / 2
        found.append(likelihood_is_unbounded(x[:, None], y, steep, -steep[:, 0] * middle))
    assert found == expected
    assert any(found)
    assert not all(found)
    # rows on the boundary itself do not keep the others from being told apart ever better
    edge = np.array([[-1.0], [0.0], [0.0], [1.0]]), np.array([0, 0, 1, 1])
    assert likelihood_is_unbounded(*edge, np.array([[-9.0], [9.0]]), np.zeros(2))


# ---------------------------------------------------------------------------------------------
# association between columns of any kind
# ---------------------------------------------------------------------------------------------


def test_association_is_that_of_scipy_for_each_pair_of_kinds():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 80).astype(float)
    X = np.column_stack([rng.normal(size=80), group + rng.normal(size=80), group, rng.integers(0, 4, 80)])
    X[:, 3] = np.where(rng.random(80) < 0.5, group, X[:, 3])
    X[5, 0] = X[9, 2] = np.nan
    found = association(X, [False, False, True, True])
    both = ~np.isnan(X[:, 0])
    assert found[0, 1] == pytest.approx(abs(stats.spearmanr(X[both, 0], X[both, 1]).statistic))
    both = ~np.isnan(X[:, 2])
    counts = np.array([[np.sum((X[:, 2] == a) & (X[:, 3] == b)) for b in range(4)] for a in range(3)])
    assert found[2, 3] == pytest.approx(stats.contingency.association(counts, method="cramer"))
    # Kruskal and Wallis test the same ratio: H = (n − 1) η² of ranks
    parts = [X[both, 1][X[both, 2] == g] for g in range(3)]
    assert found[2, 1] ** 2 == pytest.approx(stats.kruskal(*parts).statistic / (both.sum() - 1))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), np.ones(4))


def test_association_of_two_values_each_is_one_number_whatever_they_are_called():
    X = np.random.default_rng(1).integers(0, 2, (50, 2)).astype(float)
    kinds = [[False, False], [True, False], [True, True]]
    found = [association(X, kind)[0, 1] for kind in kinds]
    np.testing.assert_allclose(found, found[0], rtol=1e-12)
    assert np.isnan(association([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])[0, 1])
    with pytest.raises(ValueError, match=r"The 'labels' of association must be one for each of the 2 col"):
        association(X, [True])
    with pytest.raises(
        ValueError, match=r"The 'X' of association must have rows and columns\. Got the shape"
    ):
        association([1.0, 2.0])
