"""Measures of predictions: what they are, and how sure."""

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn import metrics

from freeenergy.evaluation import JoinedLaws, Laws, MixedLaws, auc, crps, log_loss, mae, pinball

RNG = np.random.default_rng(0)
Y, FOUND = RNG.normal(size=60), RNG.normal(size=60)


def test_errors_of_numbers_are_those_of_scikit_learn():
    assert mae(Y, FOUND).value == pytest.approx(metrics.mean_absolute_error(Y, FOUND))
    assert mae(Y, FOUND).stderr == pytest.approx(stats.sem(np.abs(Y - FOUND)))
    for p in (0.1, 0.5, 0.95):
        assert pinball(Y, FOUND, p).value == pytest.approx(metrics.mean_pinball_loss(Y, FOUND, alpha=p))
    holes = np.r_[Y, np.nan]
    assert mae(holes, np.r_[FOUND, 0.0]) == mae(Y, FOUND)
    with pytest.raises(ValueError, match=r"'p' of pinball must be a float in the range \(0, 1\). Got 1.0"):
        pinball(Y, FOUND, 1.0)
    with pytest.raises(ValueError, match="'truth' of mae must have at least one number"):
        mae([np.nan], [1.0])


def test_crps_of_normal_laws_has_a_closed_form():
    mean, scale = RNG.normal(size=60), RNG.gamma(2.0, size=60)
    y = mean + scale * np.r_[np.linspace(-5, 5, 58), -80.0, 80.0]
    z = (y - mean) / scale
    exact = scale * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = crps(y, Laws(stats.norm(mean, scale)))
    assert found.value == pytest.approx(exact.mean(), rel=1e-7)
    assert found.stderr == pytest.approx(stats.sem(exact), rel=1e-7)


def _by_quadrature(cdf, y, ends):
    below = integrate.quad(lambda t: cdf(t) ** 2, ends[0], y, limit=500)[0]
    return below + integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, ends[1], limit=500)[0]


def test_crps_of_mixtures_heavy_tails_and_joined_rows():
    parts = Laws(stats.norm(np.full(1, -3.0), 0.5)), Laws(stats.norm(np.full(1, 4.0), 2.0))
    mixed = MixedLaws(np.log([[0.3], [0.7]]), parts)
    heavy = Laws(stats.t(2.0, np.full(1, 1.0), 2.0))
    for y in (-20.0, -3.0, 0.5, 9.0):
        exact = _by_quadrature(lambda t: float(mixed.cdf(np.array([t]))[0]), y, (-30.0, 30.0))
        assert crps([y], mixed).value == pytest.approx(exact, rel=1e-5)
        law = stats.t(2.0, 1.0, 2.0)
        exact = _by_quadrature(law.cdf, y, (-np.inf, np.inf))
        assert crps([y], heavy).value == pytest.approx(exact, rel=1e-4)
    both = JoinedLaws((np.array([1]), np.array([0])), (mixed, heavy))
    alone = crps([9.0], heavy).value, crps([0.5], mixed).value
    assert crps([9.0, 0.5], both).value == pytest.approx(np.mean(alone), rel=1e-5)


def test_crps_of_counts_is_a_sum():
    rate = np.array([0.2, 3.0, 40.0, 30000.0])
    y = np.array([0.0, 7.0, 31.0, 30100.0])
    k = np.arange(40000)[:, None]
    exact = ((stats.poisson(rate).cdf(k) - (k >= y)) ** 2).sum(axis=0)
    for row, value in enumerate(exact):
        found = crps(y[row : row + 1], Laws(stats.poisson(rate[row : row + 1]))).value
        assert found == pytest.approx(value, rel=1e-6)


def test_crps_of_several_outputs_takes_those_that_are_known():
    law = Laws(stats.norm(np.zeros((2, 2)), 1.0))
    alone = [crps([y], Laws(stats.norm(np.zeros(1), 1.0))).value for y in (0.0, 1.0, 2.0)]
    found = crps([[0.0, 1.0], [2.0, np.nan]], law)
    assert found.value == pytest.approx(((alone[0] + alone[1]) / 2 + alone[2]) / 2)
    with pytest.raises(ValueError, match=r"'truth' of crps must have the shape \(2, 2\). Got \(2,\)"):
        crps([0.0, 1.0], law)
    with pytest.raises(ValueError, match="'truth' of crps must have at least one number"):
        crps(np.full((2, 2), np.nan), law)


def test_labels_are_scored_as_scikit_learn_does():
    p = RNG.dirichlet(np.ones(3), 200)
    truth = np.array(["a", "b", "c"])[[RNG.choice(3, p=row) for row in p]]
    names = ["a", "b", "c"]
    assert log_loss(truth, p, labels=names).value == pytest.approx(metrics.log_loss(truth, p))
    expected = metrics.roc_auc_score(truth, p, multi_class="ovr")
    assert auc(truth, p, labels=names).value == pytest.approx(expected)
    two, score = (truth == "a").astype(int), np.round(p[:, 0], 1)
    assert auc(two, score).value == pytest.approx(metrics.roc_auc_score(two, score))
    columns = auc(two, np.column_stack([1 - score, score]))
    assert columns.value == pytest.approx(auc(two, score).value)
    assert columns.stderr == pytest.approx(auc(two, score).stderr)
    assert log_loss(two, score.clip(0.1, 0.9)).value == pytest.approx(
        metrics.log_loss(two, score.clip(0.1, 0.9))
    )
    assert log_loss([1, 0], [0.0, 0.5]).value == np.inf


def test_the_error_of_an_area_is_delongs_and_that_of_repetitions():
    def placements(pos, neg):
        return (pos[:, None] > neg) + 0.5 * (pos[:, None] == neg)

    pos, neg = RNG.normal(1.0, size=30), RNG.normal(size=50)
    table = placements(pos, neg)
    expected = table.mean(axis=1).var(ddof=1) / 30 + table.mean(axis=0).var(ddof=1) / 50
    found = auc(np.r_[np.ones(30), np.zeros(50)], np.r_[pos, neg])
    assert found.value == pytest.approx(table.mean())
    assert found.stderr == pytest.approx(np.sqrt(expected))
    many = []
    label = np.repeat([0, 1, 2], [20, 30, 40])
    for _ in range(400):
        score = RNG.normal(size=(90, 3)) + np.eye(3)[label]
        many.append(auc(label, score))
    spread = np.std([each.value for each in many], ddof=1)
    assert np.mean([each.stderr for each in many]) == pytest.approx(spread, rel=3 / np.sqrt(800))


def test_what_measures_of_labels_refuse():
    with pytest.raises(ValueError, match="'truth' of auc must have rows of each label"):
        auc([1, 1], [0.2, 0.3])
    with pytest.raises(ValueError, match=r"'truth' of log_loss must be among the labels. Got 2 instead"):
        log_loss([0, 2], [0.2, 0.3])
    with pytest.raises(ValueError, match=r"'labels' of log_loss must be 2, one a column. Got 3"):
        log_loss(["a", "b"], [0.2, 0.3], labels=["a", "b", "c"])
    with pytest.raises(ValueError, match="'found' of log_loss must be probabilities"):
        log_loss([0, 1], [0.2, 1.3])
    with pytest.raises(ValueError, match="'found' of auc must be finite"):
        auc([0, 1], [0.2, np.nan])
