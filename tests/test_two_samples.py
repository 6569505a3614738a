"""Measures of two samples against enumeration, brute force, SciPy and closed forms."""

import itertools

import numpy as np
import pytest
from scipy import linalg, stats
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score

from freeenergy.evaluation import (
    Discrepancy,
    Fidelity,
    Memorisation,
    Modes,
    Transport,
    classifier_test_power,
    classifier_two_sample_test,
    fidelity,
    frechet_distance,
    jensen_shannon,
    maximum_mean_discrepancy,
    memorisation_test,
    modes_found,
    mutual_information,
    optimal_transport,
    sliced_wasserstein,
    wasserstein_distance,
)
from freeenergy.kernels import RBF, Linear

RNG = np.random.default_rng(0)
RUNS = 100
# k(x, y) = exp(−‖x − y‖²)
UNIT = RBF(np.sqrt(0.5))


def test_the_discrepancy_of_a_sample_with_itself_leaves_its_own_pairs_out():
    found = maximum_mean_discrepancy([[0.0], [1.0]], [[0.0], [1.0]], UNIT, seed=0)
    np.testing.assert_allclose(found.value, np.exp(-1) - 1, rtol=1e-12)
    assert found.stderr == np.inf
    assert found.p_value == 1.0


def test_the_discrepancy_of_two_normal_laws_and_its_error():
    runs = [
        maximum_mean_discrepancy(
            RNG.normal(size=(80, 1)), RNG.normal(size=(60, 1)) + 1, UNIT, permutations=1, seed=0
        )
        for _ in range(100)
    ]
    values = np.array([run.value for run in runs])
    truth = 2 / np.sqrt(5) * (1 - np.exp(-0.2))
    np.testing.assert_allclose(truth, 0.1621321, atol=1e-7)
    np.testing.assert_allclose(values.mean(), truth, atol=4 * values.std() / np.sqrt(len(values)))
    # a standard deviation of a hundred values is known to seven per cent: four of these
    np.testing.assert_allclose(np.mean([run.stderr for run in runs]), values.std(), rtol=0.3)


def test_the_linear_discrepancy_is_that_of_the_means_without_bias():
    x, y = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3)) + 0.5
    pairs = np.mean([a @ b for a, b in itertools.permutations(x, 2)])
    pairs += np.mean([a @ b for a, b in itertools.permutations(y, 2)])
    found = maximum_mean_discrepancy(x, y, Linear(), seed=0)
    np.testing.assert_allclose(found.value, pairs - 2 * np.mean(x @ y.T), rtol=1e-10)


@pytest.mark.parametrize(
    "test",
    [
        lambda x, y, seed: maximum_mean_discrepancy(x, y, UNIT, permutations=39, seed=seed),
        lambda x, y, seed: classifier_two_sample_test(x, y, seed=seed),
    ],
    ids=["kernel", "classifier"],
)
def test_level_and_power(test):
    def rejected(shift):
        runs = [
            test(RNG.normal(size=(60, 2)), RNG.normal(size=(60, 2)) + shift, seed) for seed in range(RUNS)
        ]
        return np.mean([run.p_value <= 0.05 for run in runs])

    level, some, most = map(rejected, (0.0, 0.5, 1.0))
    assert level <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / RUNS)
    assert level < some < most
    assert most > 0.8


def test_the_chance_of_a_classifier_is_that_of_all_arrangements_of_labels():
    class Known:
        """Calls the rows above a half the second sample."""

        def predict(self, x):
            return (x[:, 0] > 0.5).astype(int)

    x = np.array([0.1, 0.2, 0.9, 0.3, 0.6, 0.4])[:, None]
    y = np.array([0.8, 0.7, 0.2, 0.95, 0.65, 0.55])[:, None]
    taught = []

    def fit(rows, labels):
        taught.append((rows, labels))
        return Known()

    found = classifier_two_sample_test(x, y, fit, seed=3)
    (rows, labels) = taught[0]
    asked_x = [v for v in x[:, 0] if v not in rows[labels == 0, 0]]
    asked_y = [v for v in y[:, 0] if v not in rows[labels == 1, 0]]
    answers = np.array([*asked_x, *asked_y]) > 0.5
    hits = [
        sum(answers[i] == (i in ones) for i in range(6)) for ones in itertools.combinations(range(6), 3)
    ]
    mine = sum(answers[i] == (i >= 3) for i in range(6))
    assert found.value == mine / 6
    np.testing.assert_allclose(found.p_value, np.mean(np.array(hits) >= mine), rtol=1e-12)


def test_the_best_classifier_of_two_normal_laws_and_its_power():
    shift = 1.0
    x, y = RNG.normal(size=(4000, 1)), RNG.normal(size=(5000, 1)) + shift
    found = classifier_two_sample_test(x, y, LogisticRegression().fit, seed=0)
    assert isinstance(found, Discrepancy)
    best = stats.norm.cdf(shift / 2)
    np.testing.assert_allclose(found.value, best, atol=4 * found.stderr)
    np.testing.assert_allclose(found.stderr, np.sqrt(best * (1 - best) / 4000), rtol=0.05)
    n, p = 30, 0.7
    mass = stats.binom.pmf(np.arange(n + 1), n, p)
    chance = stats.binom.pmf(np.arange(n + 1), n, 0.5)
    least = min(c for c in range(n + 1) if chance[c:].sum() <= 0.05)
    np.testing.assert_allclose(classifier_test_power(p, n), mass[least:].sum(), rtol=1e-10)
    # and of many rows the normal one
    z = (np.sqrt(10000) * (0.51 - 0.5) - stats.norm.isf(0.05) / 2) / np.sqrt(0.51 * 0.49)
    np.testing.assert_allclose(classifier_test_power(0.51, 10000), stats.norm.cdf(z), atol=0.01)


@pytest.mark.parametrize("rows", [40, 4])
def test_frechet_distance_against_a_root_of_matrices(rows):
    x, y = RNG.normal(size=(rows, 6)), RNG.normal(size=(rows + 3, 6)) @ np.diag(np.arange(1.0, 7.0)) + 1
    s, t = np.cov(x.T), np.cov(y.T)
    root = linalg.sqrtm(s + 1e-14 * np.eye(6))
    cross = np.trace(linalg.sqrtm(root @ t @ root)).real
    truth = np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(s) + np.trace(t) - 2 * cross
    np.testing.assert_allclose(frechet_distance(x, y).value, truth, rtol=1e-5)
    np.testing.assert_allclose(frechet_distance(y, x).value, truth, rtol=1e-5)
    assert frechet_distance(x, x).value < 1e-10 * np.trace(s)


def test_frechet_distance_in_one_column_and_its_error():
    def scaled(mean, sd, n):
        z = RNG.normal(size=(n, 1))
        return mean + sd * (z - z.mean()) / z.std(ddof=1)

    np.testing.assert_allclose(
        frechet_distance(scaled(1, 1.5, 30), scaled(2, 0.5, 20)).value, 2.0, rtol=1e-10
    )
    runs = [frechet_distance(RNG.normal(size=(200, 1)), RNG.normal(size=(200, 1)) + 2) for _ in range(100)]
    spread = np.std([run.value for run in runs])
    np.testing.assert_allclose(np.mean([run.stderr for run in runs]), spread, rtol=0.3)


def test_transport_and_its_dual():
    points = np.arange(3.0)
    cost = np.abs(points[:, None] - points)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    found = optimal_transport(cost, p, q)
    assert isinstance(found, Transport)
    np.testing.assert_allclose(found.value, 0.7, rtol=1e-10)
    np.testing.assert_allclose(found.value, np.abs(np.cumsum(p - q)).sum(), rtol=1e-10)
    np.testing.assert_allclose(found.plan.sum(axis=1), p, atol=1e-12)
    np.testing.assert_allclose(found.plan.sum(axis=0), q, atol=1e-12)
    f, g = found.potentials
    assert np.all(f[:, None] + g <= cost + 1e-9)
    np.testing.assert_allclose(p @ f + q @ g, found.value, rtol=1e-10)
    # where mass is carried the potentials say what it costs
    assert np.all(found.plan * (cost - f[:, None] - g) <= 1e-9)
    # a potential of the notes, (2, 1, 0), is one of the best of slope one
    np.testing.assert_allclose((p - q) @ [2.0, 1.0, 0.0], found.value, rtol=1e-10)


def test_wasserstein_distances_against_scipy():
    x, y = RNG.normal(size=(17, 1)), RNG.normal(size=(24, 1)) * 2
    found = wasserstein_distance(x, y)
    np.testing.assert_allclose(found.value, stats.wasserstein_distance(x[:, 0], y[:, 0]), rtol=1e-10)
    np.testing.assert_allclose(wasserstein_distance(x, x + 3, order=3).value, 3.0, rtol=1e-10)
    same = RNG.normal(size=(17, 1))
    square = np.mean((np.sort(x[:, 0]) - np.sort(same[:, 0])) ** 2)
    np.testing.assert_allclose(wasserstein_distance(x, same, order=2).value, np.sqrt(square), rtol=1e-10)
    u, v = RNG.normal(size=(9, 2)), RNG.normal(size=(7, 2)) + 1
    np.testing.assert_allclose(
        wasserstein_distance(u, v).value, stats.wasserstein_distance_nd(u, v), rtol=1e-8
    )
    pairs = min(
        np.linalg.norm(u[:5] - v[list(order)], axis=1).mean() for order in itertools.permutations(range(5))
    )
    np.testing.assert_allclose(wasserstein_distance(u[:5], v[:5]).value, pairs, rtol=1e-10)


def test_the_error_of_a_distance():
    runs = [
        wasserstein_distance(RNG.normal(size=(100, 1)), RNG.normal(size=(80, 1)) + 2) for _ in range(100)
    ]
    values = np.array([run.value for run in runs])
    np.testing.assert_allclose(np.mean([run.stderr for run in runs]), values.std(), rtol=0.3)
    np.testing.assert_allclose(values.mean(), 2.0, atol=4 * values.std() / 10 + 0.01)


def test_slices_of_a_shift():
    x = RNG.normal(size=(2000, 5))
    shift = np.array([3.0, 0, 0, 0, 4.0])
    found = sliced_wasserstein(x, x + shift, slices=400, seed=0)
    # the mean square of a coordinate of a unit vector is one fifth
    np.testing.assert_allclose(found.value, np.sqrt(25 / 5), atol=4 * found.stderr)
    one = sliced_wasserstein(x[:50, :1], x[50:90, :1], seed=0).value
    np.testing.assert_allclose(
        one, wasserstein_distance(x[:50, :1], x[50:90, :1], order=2).value, rtol=1e-10
    )
    assert sliced_wasserstein(x[:20], x[:20], seed=0) == (0.0, 0.0)


def test_fidelity_against_all_distances():
    real, made = RNG.normal(size=(60, 2)), RNG.normal(size=(45, 2)) * 0.5
    k = 3
    between = cdist(real, made)
    reach_real = np.sort(cdist(real, real), axis=1)[:, k]
    reach_made = np.sort(cdist(made, made), axis=1)[:, k]
    found = fidelity(real, made, neighbours=k)
    assert isinstance(found, Fidelity)
    inside = between <= reach_real[:, None]
    assert found.precision.value == inside.any(axis=0).mean()
    assert found.recall.value == (between <= reach_made).any(axis=1).mean()
    np.testing.assert_allclose(found.density.value, inside.sum() / (k * 45))
    assert found.coverage.value == inside.any(axis=1).mean()
    share = found.coverage.value
    np.testing.assert_allclose(found.coverage.stderr, np.sqrt(share * (1 - share) / 60))
    # narrow draws look real and leave much out
    assert found.precision.value > found.recall.value


def test_coverage_of_equal_laws():
    # of k + 1 … neighbours of a row half are made: all of the first k are real with chance 2^−k
    found = fidelity(RNG.normal(size=(2000, 2)), RNG.normal(size=(2000, 2)), neighbours=3)
    np.testing.assert_allclose(found.coverage.value, 1 - 0.5**3, atol=5 * found.coverage.stderr)
    np.testing.assert_allclose(found.density.value, 1.0, atol=5 * found.density.stderr)


def test_rows_that_are_copied():
    train, new = RNG.normal(size=(150, 2)), RNG.normal(size=(80, 2))
    honest, copied = RNG.normal(size=(70, 2)), train[:70] + RNG.normal(size=(70, 2)) * 1e-3
    nearest = [cdist(rows, train).min(axis=1) for rows in (new, honest)]
    brute = np.mean(nearest[1][:, None] < nearest[0])
    found = memorisation_test(train, new, honest)
    assert isinstance(found, Memorisation)
    np.testing.assert_allclose(found.nearer.value, brute, rtol=1e-12)
    np.testing.assert_allclose(found.nearer.value, 0.5, atol=4 * found.nearer.stderr)
    # under no difference the variance is (n + m + 1) / 12 n m
    np.testing.assert_allclose(found.nearer.stderr, np.sqrt(151 / (12 * 80 * 70)), rtol=0.2)
    near = memorisation_test(train, new, copied)
    assert near.nearer.value > 0.9
    assert near.p_value < 1e-10
    assert near.copies == 0.0
    # and its Fréchet distance does not see it
    assert frechet_distance(train[:70], copied).value < 1e-4
    assert memorisation_test(train, new, train).copies == 1.0


def test_modes():
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    rows = np.concatenate([centres[:2].repeat(5, axis=0) + 0.1, [[9.0, 9.0]], [[0.0, 3.7]]])
    found = modes_found(rows, centres, radius=0.5)
    assert isinstance(found, Modes)
    assert found.found == 3
    np.testing.assert_allclose(found.shares, [5 / 12, 5 / 12, 1 / 12])
    np.testing.assert_allclose(found.astray, 1 / 12)
    assert modes_found(rows, centres, radius=0.5, least=2).found == 2


ONE, TWO = np.zeros((9, 1)), np.zeros((9, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frechet_distance(ONE, TWO), "frechet_distance must have the same columns. Got 1 and 2"),
        (lambda: frechet_distance(ONE[:1], ONE), "at least 2 rows each. Got 1 and 9"),
        (lambda: maximum_mean_discrepancy(ONE * np.nan, ONE, seed=0), "must be finite"),
        (lambda: classifier_two_sample_test(ONE[:3], ONE, seed=0), "at least 4 rows each"),
        (
            lambda: classifier_two_sample_test(
                np.arange(9.0)[:, None], ONE, lambda x, t: LogisticRegression().fit(x, t * 2), seed=0
            ),
            "must predict 0 or 1 for each row",
        ),
        (lambda: classifier_test_power(1.0, 10), r"'accuracy' of .* in the range \(0, 1\)"),
        (lambda: optimal_transport(np.ones((2, 2)), [0.5, 0.6]), "2 numbers from 0 on in sum one"),
        (lambda: optimal_transport(np.ones((2001, 2001))), "at most 4000000 pairs"),
        (lambda: wasserstein_distance(np.zeros((2001, 2)), np.zeros((2001, 2))), "or sliced_wasserstein"),
        (lambda: wasserstein_distance(ONE, ONE, order=0.5), r"in the range \[1, inf\)"),
        (lambda: fidelity(ONE[:5], ONE), "at least 6 rows each"),
        (lambda: memorisation_test(TWO, ONE, ONE), "must have the same columns. Got 2 and 1"),
        (lambda: modes_found(ONE, TWO, radius=1.0), "must have the same columns"),
        (lambda: modes_found(ONE, ONE, radius=0.0), r"'radius' of modes_found must be a float"),
    ],
)
def test_what_has_no_answer_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_constant_columns_differ_in_nothing():
    same = maximum_mean_discrepancy(ONE, ONE, seed=0)
    assert (same.value, same.p_value) == (0.0, 1.0)
    assert classifier_two_sample_test(ONE, ONE, seed=0).p_value == 1.0
    assert wasserstein_distance(ONE, ONE).value == 0.0


P, Q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.2, 0.2, 0.2, 0.4])


def test_jensen_shannon_of_known_tables():
    wanted = 0.5 * (stats.entropy(P, (P + Q) / 2) + stats.entropy(Q, (P + Q) / 2))
    rng, names = np.random.default_rng(0), np.array(list("abcd"))
    found = [
        jensen_shannon(names[rng.choice(4, 300, p=P)], names[rng.choice(4, 200, p=Q)]) for _ in range(1000)
    ]
    values, errors = np.array(found).T
    # without its bias of 0.005
    assert abs(values.mean() - wanted) < 4 * values.std() / 1000**0.5
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), values.std(), rtol=0.1)
    assert jensen_shannon([0, 0], [1, 1]).value == pytest.approx(np.log(2))
    # columns are taken together: here each alone has the same law
    pairs = jensen_shannon([[0, 0], [1, 1]] * 9, [[0, 1], [1, 0]] * 9)
    assert pairs.value > 0.5


def test_mutual_information_of_known_tables():
    table = np.array([[0.3, 0.05], [0.1, 0.15], [0.1, 0.3]])
    apart = np.outer(table.sum(axis=1), table.sum(axis=0))
    wanted = stats.entropy(table.ravel(), apart.ravel())
    rng = np.random.default_rng(0)
    drawn = rng.choice(6, (1000, 300), p=table.ravel())
    found = [mutual_information(row // 2, np.array(["x", "y"])[row % 2]) for row in drawn]
    values, errors = np.array(found).T
    assert abs(values.mean() - wanted) < 4 * values.std() / 1000**0.5
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), values.std(), rtol=0.1)
    # with the bias of (cells − 3 − 2 + 1)/2n it is scikit-learn's
    row = drawn[0]
    assert found[0].value + 2 / 600 == pytest.approx(mutual_info_score(row // 2, row % 2))
    none = [mutual_information(rng.integers(3, size=300), rng.integers(2, size=300)) for _ in range(1000)]
    values = np.array(none)[:, 0]
    assert abs(values.mean()) < 4 * values.std() / 1000**0.5
