"""Bias, variance, curves and what no learner can do better: beside closed forms and simulations."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression, Ridge

import freeenergy as fe
from freeenergy import plots
from freeenergy.evaluation import (
    BayesBounds,
    BiasVariance,
    Curve,
    EnsembleDecomposition,
    LabelBiasVariance,
    Laws,
    Regime,
    ambiguity,
    bayes_bounds,
    bayes_error,
    bias_variance,
    double_descent,
    ensemble_decomposition,
    label_bias_variance,
    learning_curve_bits,
    noise_variance,
    regime,
)

RNG = np.random.default_rng(0)


def test_bias_and_variance_of_ridge_are_the_closed_forms():
    # chaudhari E3: fixed design, y = X w* + ε
    design, new = RNG.normal(size=(30, 5)), RNG.normal(size=(40, 5))
    weights, sigma, alpha = RNG.normal(size=5), 0.7, 10.0

    def make(rng):
        return design, design @ weights + sigma * rng.normal(size=30)

    inverse = np.linalg.inv(design.T @ design + alpha * np.eye(5))
    bias = (new @ (inverse @ design.T @ design - np.eye(5)) @ weights) ** 2
    variance = sigma**2 * np.einsum("ni,ij,nj->n", new, inverse @ design.T @ design @ inverse, new)
    found = bias_variance(
        Ridge(alpha, fit_intercept=False), make, new, new @ weights, repeats=300, noise=sigma**2, seed=1
    )
    assert isinstance(found, BiasVariance)
    assert abs(found.bias.value - bias.mean()) < 4 * found.bias.stderr
    assert abs(found.variance.value - variance.mean()) < 4 * found.variance.stderr
    # errors are about right: a hundredth or so
    assert 0.5 < found.variance.stderr / (variance.mean() * np.sqrt(2 / 300 / 5)) < 2.5
    # the parts make the whole, exactly
    total = found.bias.value + found.variance.value + found.noise
    assert found.risk.value == pytest.approx(total, rel=1e-12)
    each = (found.predictions - found.truth) ** 2
    assert found.risk.value == pytest.approx(each.mean() + sigma**2)


class _Coin:
    """Predicts +1 of the first three of five data sets and −1 of the others."""

    def fit(self, X, y):
        self.side = y[0]

    def predict(self, X):
        return np.full(len(X), self.side)


def test_noise_bias_and_variance_of_two_labels_have_the_numbers_of_the_notes():
    # cho G10: P(y = 1) = 0.8 and P(ŷ = 1) = 0.6 of ±1, with the loss ¼ (y − ŷ)²
    sides = iter([1.0, 1.0, 1.0, -1.0, -1.0])
    found = bias_variance(
        _Coin(), lambda rng: (None, [next(sides)]), np.zeros((1, 1)), [0.6], repeats=5, noise=0.64, seed=0
    )
    assert found.risk.value / 4 == pytest.approx(0.44)
    assert found.predictions.var() == pytest.approx(0.96)
    assert (found.predictions.mean() - 0.6) ** 2 == pytest.approx(0.16)
    assert found.risk.value == pytest.approx(0.64 + 0.96 + 0.16)


class _Polynomial:
    """Through two points: their mean, or the line."""

    def __init__(self, degree, shrink=1.0):
        self.degree, self.shrink = degree, shrink

    def fit(self, X, y):
        self.weights = self.shrink * np.polyfit(X[:, 0], y, self.degree)

    def predict(self, X):
        return np.polyval(self.weights, X[:, 0])


@pytest.mark.parametrize(("degree", "bias", "variance"), [(0, 0.5, 0.25), (1, 0.207, 1.675)])
def test_two_points_of_a_sine(degree, bias, variance):
    # moon B07
    def make(rng):
        x = rng.uniform(-1, 1, (2, 1))
        return x, np.sin(np.pi * x[:, 0])

    new = np.linspace(-1, 1, 201)[:, None]
    found = bias_variance(_Polynomial(degree), make, new, np.sin(np.pi * new[:, 0]), repeats=1500, seed=0)
    assert abs(found.bias.value - bias) < 4 * found.bias.stderr + 0.005
    assert abs(found.variance.value - variance) < 4 * found.variance.stderr + 0.005


def test_a_shrunken_mean_trades_bias_for_variance():
    # moon B08: c x̄ has bias² (c − 1)² μ² and variance c² σ²/n
    def make(rng):
        return np.zeros((10, 1)), 3 + 2 * rng.normal(size=10)

    found = bias_variance(
        _Polynomial(0, 0.8), make, np.zeros((1, 1)), [3.0], repeats=2000, noise=4.0, seed=0
    )
    assert abs(found.bias.value - 0.36) < 4 * found.bias.stderr
    assert abs(found.variance.value - 0.64 * 0.4) < 4 * found.variance.stderr
    assert abs(found.risk.value - (4 + 0.36 + 0.256)) < 4 * found.risk.stderr


class _Majority:
    """The label that most training rows have, whatever the point."""

    def fit(self, X, y):
        values, counts = np.unique(y, return_counts=True)
        self.most = values[np.argmax(counts)]

    def predict(self, X):
        return np.full(len(X), self.most)


def test_bias_and_variance_of_labels_are_those_of_a_vote():
    # three rows, of which each has the answer b with probability 0.7, and points of three laws
    chances = np.array([[0.2, 0.7, 0.1], [0.8, 0.1, 0.1], [0.3, 0.3, 0.4]])
    labels = np.array(["a", "b", "c"])

    def make(rng):
        return np.zeros((3, 1)), rng.choice(labels[:2], 3, p=[0.3, 0.7])

    found = label_bias_variance(
        _Majority(), make, np.zeros((3, 1)), chances, labels=labels, repeats=300, seed=0
    )
    assert isinstance(found, LabelBiasVariance)
    says_b = 0.7**3 + 3 * 0.7**2 * 0.3
    # the first point is right on average, the second wrong, and luck says a there; c is never said
    expected = {"bias": 2 / 3, "variance": (1 - says_b) / 3, "lucky": (1 - says_b) / 3}
    for name, value in expected.items():
        part = getattr(found, name)
        assert abs(part.value - value) < 4 * part.stderr + 1e-12, name
    assert found.noise == pytest.approx(np.mean([0.3, 0.2, 0.6]))
    risk = 1 - np.mean(says_b * chances[:, 1] + (1 - says_b) * chances[:, 0])
    assert abs(found.risk.value - risk) < 4 * found.risk.stderr
    np.testing.assert_array_equal(found.truth, [1, 0, 2])
    wrong = np.mean(found.predictions != found.truth)
    np.testing.assert_allclose(wrong, found.bias.value + found.variance.value - found.lucky.value)
    with pytest.raises(ValueError, match=r"predictions of label_bias_variance must be among its 'labels'"):
        label_bias_variance(_Majority(), make, np.zeros((3, 1)), chances, repeats=2, seed=0)
    with pytest.raises(ValueError, match=r"'probabilities' of label_bias_variance must have rows of sum"):
        label_bias_variance(_Majority(), make, np.zeros((3, 1)), 2 * chances, labels=labels, seed=0)


def test_an_ensemble_has_bias_variance_and_covariance():
    f = RNG.normal(size=(40, 6, 9)) + RNG.normal(size=(40, 1, 9)) + 0.5
    truth = RNG.normal(size=9)
    found = ensemble_decomposition(f, truth)
    assert isinstance(found, EnsembleDecomposition)
    parts = found.bias.value + found.variance.value / 6 + (1 - 1 / 6) * found.covariance.value
    assert found.error.value == pytest.approx(parts, rel=1e-12)
    # by all pairs
    gaps = f - f.mean(axis=0)
    pairs = [np.mean(gaps[:, a] * gaps[:, b]) for a in range(6) for b in range(6) if a != b]
    assert found.covariance.value == pytest.approx(np.mean(pairs), rel=1e-9)
    assert found.variance.value == pytest.approx(gaps.var(axis=0).mean())
    # ρ σ² + (1 − ρ) σ²/M of chaudhari E15
    rho = found.covariance.value / found.variance.value
    spread = found.variance.value * (rho + (1 - rho) / 6)
    assert found.error.value - found.bias.value == pytest.approx(spread)
    own, members, apart = ambiguity(f[0], truth)
    assert own.value == pytest.approx(members.value - apart.value, rel=1e-12)
    with pytest.raises(
        ValueError, match=r"shape \(data sets, members, 9\) with two data sets at least. Got"
    ):
        ensemble_decomposition(f[:1], truth)


def test_the_spread_of_bagged_trees_is_measured():
    x = RNG.uniform(-2, 2, (60, 1))
    model = fe.Bagging(n_estimators=10, random_state=0).fit(
        x, np.sin(2 * x[:, 0]) + 0.3 * RNG.normal(size=60)
    )
    new = np.linspace(-2, 2, 50)[:, None]
    own, members, apart = ambiguity(model.member_predictions(new), np.sin(2 * new[:, 0]))
    assert own.value < members.value
    assert apart.value > 0


def test_risk_of_least_squares_through_interpolation():
    # chaudhari E5, isotropic Gaussian rows: below and above as many columns as rows
    n, sigma = 40, 0.5
    for p, expected in ((20, sigma**2 * 20 / 19), (100, (1 - 0.4) + sigma**2 * 40 / 59)):
        weights = np.full(p, 1 / np.sqrt(p))

        def make(rng, p=p, weights=weights):
            design = rng.normal(size=(n, p))
            return design, design @ weights + sigma * rng.normal(size=n)

        new = np.random.default_rng(2).normal(size=(400, p))
        found = bias_variance(
            LinearRegression(fit_intercept=False), make, new, new @ weights, repeats=60, seed=3
        )
        assert found.risk.value == pytest.approx(expected, rel=0.12)


def test_random_features_have_their_largest_error_where_they_interpolate():
    x = RNG.normal(size=(130, 3))
    y = np.sin(x[:, 0]) + 0.3 * RNG.normal(size=130)
    sizes = [5, 15, 30, 60, 400]
    found = double_descent(x[:30], y[:30], x[30:], y[30:], widths=sizes, seed=0)
    assert isinstance(found, Curve)
    assert np.argmax(found.test) == 2
    assert found.test[-1] < 0.2 * found.test[2]
    assert (np.diff(found.train) <= 1e-12).all()
    assert (found.train[2:] < 1e-12).all()
    # a penalty takes the peak away
    calm = double_descent(x[:30], y[:30], x[30:], y[30:], widths=sizes, penalty=1e-2, seed=0)
    assert calm.test.max() < 0.2 * found.test.max()
    axes = plots.curve(found, what="features")
    assert axes.get_xlabel() == "features"


def test_curves_of_bits_fall_to_the_entropy_of_the_noise():
    x = RNG.normal(size=(400, 3))
    y = x @ [1.0, -2.0, 0.5] + RNG.normal(size=400)
    found = learning_curve_bits(fe.LinearRegression(), x, y, sizes=[8, 40, 300], repeats=4, seed=0)
    entropy = 0.5 * np.log2(2 * np.pi * np.e)
    assert found.test[0] > found.test[1] > found.test[2] - 3 * found.test_stderr[2]
    assert abs(found.test[2] - entropy) < 4 * found.test_stderr[2] + 0.15
    assert (found.test > found.train - 0.2).all()
    density = learning_curve_bits(fe.GaussianDensity(), x, repeats=2, seed=0)
    assert density.sizes.tolist() == [18, 37, 75, 150, 300]
    assert density.unit == "bits per sample"
    with pytest.raises(ValueError, match=r"'sizes' of learning_curve_bits must be at most 300"):
        learning_curve_bits(fe.LinearRegression(), x, y, sizes=[301], seed=0)


def test_regimes():
    few, many = RNG.normal(1.0, 0.1, 100), RNG.normal(2.0, 0.1, 100)
    assert regime(few, many).name == "high variance"
    assert regime(few, many, attainable=1.0).name == "high variance"
    assert regime(many, many + 0.001, attainable=1.0).name == "high bias"
    assert regime(few, many, attainable=0.0).name == "both"
    assert regime(few, RNG.permutation(few), attainable=0.999).name == "neither"
    assert regime(few, RNG.permutation(few)).name == "not known"
    # a difference that does not matter
    assert regime(few, many, attainable=1.0, least=5.0).name == "neither"
    found = regime(few, many)
    assert isinstance(found, Regime)
    assert str(found).startswith("high variance: a smaller model")
    assert found.gap.value == pytest.approx(many.mean() - few.mean())
    assert found.gap.stderr == pytest.approx(np.hypot(stats.sem(few), stats.sem(many)))


def test_the_least_error_of_two_normal_classes():
    # the overlap of N(±1, 1) is Φ(−1)
    label = RNG.random(4000) < 0.5
    x = np.where(label, 1.0, -1.0) + RNG.normal(size=4000)
    p = stats.norm(1).pdf(x) / (stats.norm(1).pdf(x) + stats.norm(-1).pdf(x))
    exact = stats.norm.cdf(-1)
    known = bayes_error(np.column_stack([1 - p, p]))
    assert abs(known.value - exact) < 4 * known.stderr
    bounds = bayes_bounds(x[:, None], label)
    assert isinstance(bounds, BayesBounds)
    assert bounds.low.value - 3 * bounds.low.stderr < exact < bounds.high.value + 3 * bounds.high.stderr
    # the error of the nearest neighbour is E 2 p (1 − p)
    assert abs(bounds.high.value - (2 * p * (1 - p)).mean()) < 4 * bounds.high.stderr
    # Cover and Hart's bound is met by that error in turn
    low = bounds.low.value
    assert 2 * low * (1 - low) == pytest.approx(bounds.high.value)
    with pytest.raises(ValueError, match="must have rows of sum one"):
        bayes_error([[0.5, 0.6]])
    assert bayes_bounds(x[:10, None], np.ones(10)).high.value == 0.0


def test_the_noise_of_answers_is_found_from_neighbours():
    x = RNG.uniform(size=(3000, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] + 0.4 * RNG.normal(size=3000)
    found = noise_variance(x, y)
    assert abs(found.value - 0.16) < 4 * found.stderr + 0.002
    # equal rows are neighbours of each other, never of themselves
    twice = noise_variance(np.repeat(x[:200], 2, axis=0), np.repeat(y[:200], 2), neighbours=1)
    assert twice.value == 0.0
    with pytest.raises(
        ValueError, match=r"'X' of noise_variance must have more than 3 rows. Got 3 instead"
    ):
        noise_variance(x[:3], y[:3])


def test_pictures():
    one = bias_variance(
        LinearRegression(),
        lambda rng: (rng.normal(size=(9, 1)), rng.normal(size=9)),
        np.zeros((2, 1)),
        [0.0, 0.0],
        repeats=3,
        seed=0,
    )
    axes = plots.bias_variance({1: one, 2: one})
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2"]
    assert axes.get_ylabel() == "mean squared error"
    sets = plots.prediction_sets(Laws(stats.norm(np.zeros(4), 1.0)), at=[0.0, 1.0, 2.0, 3.0], level=0.8)
    assert sets.get_ylabel() == "answer, sets of 80%"
