"""What a learner makes of data sets: bias, variance, curves over sizes, and what none can do better."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from ._checks import count, numbers, same_length
from ._forecasts import Measure, _mean

_LN2 = math.log(2)


def _chances(owner: str, probabilities: Any) -> np.ndarray:
    """Probabilities of labels (columns) at points (rows)."""
    p = numbers(owner, "probabilities", probabilities, ndim=2)
    if (p < 0).any() or not np.allclose(p.sum(axis=1), 1.0):
        raise ValueError(f"The 'probabilities' of {owner} must have rows of sum one. Got others.")
    return p


def _jackknifed(statistic: Callable[[np.ndarray], float], sets: np.ndarray) -> Measure:
    """A statistic of data sets (the first axis) and its error, from leaving out each."""
    size = len(sets)
    left = np.array([statistic(np.delete(sets, i, axis=0)) for i in range(size)])
    spread = np.sqrt((size - 1) / size * ((left - left.mean()) ** 2).sum())
    return Measure(statistic(sets), float(spread))


def _predicted(
    estimator: Any,
    make_data: Callable[[np.random.Generator], tuple[Any, Any]],
    X: Any,
    repeats: int,
    seed: int | np.random.Generator,
) -> list[Any]:
    """What copies of an estimator, each fitted to a training set of its own, predict at the points `X`."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(repeats):
        learner = copy.deepcopy(estimator)
        learner.fit(*make_data(rng))
        found.append(np.asarray(learner.predict(X)))
    return found


@dataclasses.dataclass(frozen=True)
class BiasVariance:
    """Parts of the squared error of a learner: risk = noise + bias² + variance.

    Attributes:
        bias: the mean over points of (E f − f*)², without what too few data sets add to it.
        variance: the mean over points of Var f.
        noise: the variance of answers about f*, which no learner takes away; zero if it was not given.
        risk: the mean squared error on answers: the sum of the three.
        predictions: (data sets, points), those of each training.
        truth: f* at the points.

    All but `noise` have errors over data sets.
    """

    bias: Measure
    variance: Measure
    noise: float
    risk: Measure
    predictions: np.ndarray = dataclasses.field(repr=False)
    truth: np.ndarray = dataclasses.field(repr=False)


def bias_variance(
    estimator: Any,
    make_data: Callable[[np.random.Generator], tuple[Any, Any]],
    X: Any,
    truth: Any,
    *,
    repeats: int = 50,
    noise: float = 0.0,
    seed: int | np.random.Generator,
) -> BiasVariance:
    """Bias and variance of a learner over training sets that a simulation makes.

    E_D (f(x) − f*(x))² = (E_D f(x) − f*(x))² + Var_D f(x), averaged over the points `X`.

    Args:
        estimator: with `fit(X, y)` and `predict(X)`; a copy is fitted each time.
        make_data: from a generator of random numbers to a training set (X, y).
        X: the points at which it is judged.
        truth: f* = E[y | x] there.
        repeats: how many training sets.
        noise: the variance of answers about f*.
        seed: of the training sets.

    >>> class Mean:
    ...     def fit(self, X, y): self.mean = y.mean()
    ...     def predict(self, X): return np.full(len(X), self.mean)
    >>> def make(rng): return np.zeros((10, 1)), 1 + rng.normal(size=10)
    >>> found = bias_variance(Mean(), make, np.zeros((1, 1)), [1.0], repeats=400, noise=1.0, seed=0)
    >>> bool(abs(found.variance.value - 0.1) < 4 * found.variance.stderr), bool(found.bias.value < 0.01)
    (True, True)
    """
    owner = "bias_variance"
    repeats, target = count(owner, "repeats", repeats, 2), numbers(owner, "truth", truth)
    found = _predicted(estimator, make_data, X, repeats, seed)
    predictions = np.stack([numbers(owner, "predictions", each) for each in found])
    same_length(owner, truth=target, predictions=predictions[0])

    mean = predictions.mean(axis=0)
    gap = predictions - mean
    squares = (gap**2).sum(axis=0)

    def parts(left_out: np.ndarray | float, size: int) -> tuple[Any, Any]:
        """Bias² and variance, averaged over points, of all sets or of all but one of them, for each."""
        moved = mean - left_out / size - target
        spread = (squares - np.square(left_out) * (1 + 1 / size)) / (size - 1)
        # the mean of few sets is off by its own variance
        return (moved**2 - spread / size).mean(axis=-1), spread.mean(axis=-1)

    bias, variance = parts(0.0, repeats)
    if repeats > 2:
        left = parts(gap, repeats - 1)
        errors = [np.sqrt((repeats - 1) * part.var()) for part in left]
    else:
        errors = [np.nan, np.nan]
    risk = _mean(((predictions - target) ** 2).mean(axis=1))
    return BiasVariance(
        Measure(float(bias), float(errors[0])),
        Measure(float(variance), float(errors[1])),
        float(noise),
        Measure(float(risk.value + noise), float(risk.stderr)),
        predictions,
        target,
    )


@dataclasses.dataclass(frozen=True)
class LabelBiasVariance:
    """Parts of the mistakes of a learner of labels: P(ŷ ≠ y*) = bias + variance − lucky.

    y* is the most probable label of a point, and the main prediction the one that most trainings make.

    Attributes:
        bias: the share of points whose main prediction is not y*.
        variance: how often a training differs from the main prediction where that is y*.
        lucky: how often a training says y* where the main prediction does not: what variance does good.
        noise: P(y ≠ y*), which no learner takes away.
        risk: P(ŷ ≠ y), the mistakes about labels; not the sum of the others, since a mistake about y* may
            hit y.
        predictions: (data sets, points), the places of the labels that were said.
        truth: y* at the points, as such places.

    All but `noise` have errors over data sets.
    """

    bias: Measure
    variance: Measure
    lucky: Measure
    noise: float
    risk: Measure
    predictions: np.ndarray = dataclasses.field(repr=False)
    truth: np.ndarray = dataclasses.field(repr=False)


def label_bias_variance(
    estimator: Any,
    make_data: Callable[[np.random.Generator], tuple[Any, Any]],
    X: Any,
    probabilities: Any,
    *,
    labels: Any = None,
    repeats: int = 50,
    seed: int | np.random.Generator,
) -> LabelBiasVariance:
    """Bias and variance of a classifier over training sets that a simulation makes.

    Args:
        estimator: with `fit(X, y)` and `predict(X)`; a copy is fitted each time.
        make_data: from a generator of random numbers to a training set (X, y).
        X: the points at which it is judged.
        probabilities: p(y | x) of every label (columns) there.
        labels: those of the columns; None for 0, 1, ….
        repeats: how many training sets.
        seed: of the training sets.

    References:
        Domingos (2000), A unified bias-variance decomposition and its applications.

    >>> class Majority:
    ...     def fit(self, X, y): self.most = int(y.mean() > 0.5)
    ...     def predict(self, X): return np.full(len(X), self.most)
    >>> def make(rng): return np.zeros((5, 1)), (rng.random(5) < 0.6).astype(int)
    >>> found = label_bias_variance(Majority(), make, np.zeros((1, 1)), [[0.4, 0.6]], repeats=400, seed=0)
    >>> bool(abs(found.variance.value - 0.317) < 0.08), float(found.bias.value)  # P(at most 2 of 5)
    (True, 0.0)
    """
    owner = "label_bias_variance"
    repeats, p = count(owner, "repeats", repeats, 2), _chances(owner, probabilities)
    known = np.arange(p.shape[1]) if labels is None else np.asarray(labels)
    same_length(owner, labels=known, probabilities=p.T)
    said = np.stack([np.asarray(each) for each in _predicted(estimator, make_data, X, repeats, seed)])
    same_length(owner, probabilities=p, predictions=said[0])
    equal = said[:, :, None] == known
    if not equal.any(axis=2).all():
        strange = said[~equal.any(axis=2)][0]
        raise ValueError(f"The predictions of {owner} must be among its 'labels'. Got {strange!r} instead.")
    best, points = p.argmax(axis=1), np.arange(len(p))

    def parts(sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shares = sets.mean(axis=0)
        right = shares[points, best]
        biased = shares.argmax(axis=1) != best
        return biased, np.where(biased, 0.0, 1 - right), np.where(biased, right, 0.0)

    measures = [_jackknifed(lambda sets, i=i: float(parts(sets)[i].mean()), equal) for i in range(3)]
    return LabelBiasVariance(
        *measures,
        noise=float((1 - p[points, best]).mean()),
        risk=_mean(1 - (equal * p).sum(axis=2).mean(axis=1)),
        predictions=equal.argmax(axis=2),
        truth=best,
    )


@dataclasses.dataclass(frozen=True)
class EnsembleDecomposition:
    """Parts of the squared error of the mean of M members: bias² + variance/M + (1 − 1/M) covariance.

    Attributes:
        bias: (mean of E f_m − f*)², averaged over points.
        variance: the mean variance of a member over data sets.
        covariance: the mean covariance of two members over data sets, which no number of members lowers.
        error: that of the ensemble, E (f̄ − f*)²: the sum above, exactly.
        members: how many there are.
    """

    bias: Measure
    variance: Measure
    covariance: Measure
    error: Measure
    members: int


def ensemble_decomposition(predictions: Any, truth: Any) -> EnsembleDecomposition:
    """Bias, variance and covariance of an ensemble that was trained on several data sets.

    Args:
        predictions: (data sets, members, points).
        truth: f* at the points.

    References:
        Ueda, Nakano (1996), Generalization error of ensemble estimators.

    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(500, 1, 1))
    >>> found = ensemble_decomposition(shared + rng.normal(size=(500, 4, 3)), np.zeros(3))
    >>> round(found.variance.value, 1), round(found.covariance.value, 1)
    (2.1, 1.1)
    """
    owner = "ensemble_decomposition"
    f, target = numbers(owner, "predictions", predictions, ndim=3), numbers(owner, "truth", truth)
    if f.shape[2] != len(target) or len(f) < 2:
        raise ValueError(
            f"The 'predictions' of {owner} must have the shape (data sets, members, {len(target)}) with "
            f"two data sets at least. Got {f.shape} instead."
        )
    size = f.shape[1]

    def variance(sets: np.ndarray) -> float:
        return float(sets.var(axis=0).mean())

    def covariance(sets: np.ndarray) -> float:
        # of all pairs: the variance of the mean has those of a member with itself, too
        if size == 1:
            return 0.0
        mean = sets.mean(axis=1).var(axis=0).mean()
        return float((mean - variance(sets) / size) / (1 - 1 / size))

    def bias(sets: np.ndarray) -> float:
        return float(((sets.mean(axis=(0, 1)) - target) ** 2).mean())

    error = _mean(((f.mean(axis=1) - target) ** 2).mean(axis=1))
    return EnsembleDecomposition(
        _jackknifed(bias, f),
        _jackknifed(variance, f),
        _jackknifed(covariance, f),
        Measure(float(error.value), float(error.stderr)),
        size,
    )


def ambiguity(predictions: Any, truth: Any) -> tuple[Measure, Measure, Measure]:
    """The error of the mean of members, their mean error, and their spread: first = second − third.

    Args:
        predictions: (members, points).
        truth: the answers.

    References:
        Krogh, Vedelsby (1995), Neural network ensembles, cross validation, and active learning.

    >>> [round(float(part.value), 6) for part in ambiguity([[0.0, 1.0], [2.0, 1.0]], [0.0, 0.0])]
    [1.0, 1.5, 0.5]
    """
    f, y = numbers("ambiguity", "predictions", predictions, ndim=2), numbers("ambiguity", "truth", truth)
    same_length("ambiguity", truth=y, predictions=f[0])
    return _mean((f.mean(axis=0) - y) ** 2), _mean(((f - y) ** 2).mean(axis=0)), _mean(f.var(axis=0))


@dataclasses.dataclass(frozen=True)
class Curve:
    """What comes out at each of several sizes, for rows that were fitted and for others.

    Attributes:
        sizes: how many rows, or features.
        train, test: the mean at each size.
        train_stderr, test_stderr: their standard errors.
        unit: what is measured, such as "bits per sample".
    """

    sizes: np.ndarray
    train: np.ndarray
    train_stderr: np.ndarray
    test: np.ndarray
    test_stderr: np.ndarray
    unit: str

    @staticmethod
    def of(sizes: Sequence[int], pairs: Sequence[Sequence[tuple[float, float]]], unit: str) -> Curve:
        """From a list of (train, test) for each size."""
        found = [[_mean(np.array(part)) for part in zip(*own, strict=True)] for own in pairs]
        columns = [[part for side in own for part in side] for own in found]
        train, train_stderr, test, test_stderr = np.array(columns, float).T
        return Curve(np.asarray(sizes), train, train_stderr, test, test_stderr, unit)


def _random_features(
    columns: int, features: int, rng: np.random.Generator, width: float
) -> Callable[[np.ndarray], np.ndarray]:
    """A map to √(2/p) cos(ω·x + b): inner products are near exp(−‖x − x′‖²/2 width²).

    ω is normal with standard deviation 1/width, and b uniform: without the phase b the products would
    depend on x + x′ too.
    """
    omega, phase = rng.normal(size=(columns, features)) / width, rng.uniform(0, 2 * np.pi, features)
    return lambda x: np.sqrt(2 / features) * np.cos(x @ omega + phase)


def double_descent(
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    *,
    widths: Sequence[int],
    width_of_kernel: float = 1.0,
    penalty: float = 0.0,
    repeats: int = 20,
    seed: int | np.random.Generator,
) -> Curve:
    """Squared error of least squares on ever more random features, through where they interpolate.

    At as many features as rows the shortest solution that fits exactly has its largest error; beyond, it
    falls again.

    Args:
        X, y: rows and answers to fit.
        X_test, y_test: others, to judge.
        widths: numbers of features.
        width_of_kernel: of the Gaussian kernel that random features stand for.
        penalty: of ridge regression, on ½‖w‖²; 0 for the solution of least length.
        repeats: draws of the features, over which there are errors.
        seed: of the draws.

    References:
        Belkin, Hsu, Ma, Mandal (2019), Reconciling modern machine-learning practice and the classical
        bias–variance trade-off.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> y = X[:, 0] + 0.3 * rng.normal(size=60)
    >>> sizes = [5, 20, 200]
    >>> found = double_descent(X[:20], y[:20], X[20:], y[20:], widths=sizes, seed=0)
    >>> bool(found.test[1] > max(found.test[0], found.test[2])), bool(found.train[1] < 1e-12)
    (True, True)
    """
    owner = "double_descent"
    rows, others = numbers(owner, "X", X, ndim=2), numbers(owner, "X_test", X_test, ndim=2)
    answers, unseen = numbers(owner, "y", y), numbers(owner, "y_test", y_test)
    same_length(owner, X=rows, y=answers)
    same_length(owner, X_test=others, y_test=unseen)
    sizes = [count(owner, "widths", width) for width in widths]
    rng = np.random.default_rng(seed)
    pairs: list[list[tuple[float, float]]] = [[] for _ in sizes]
    for _ in range(count(owner, "repeats", repeats, 2)):
        # wider sets of features have those of narrower ones
        maps = _random_features(rows.shape[1], max(sizes), rng, width_of_kernel)
        every, new = maps(rows), maps(others)
        for place, size in enumerate(sizes):
            design = every[:, :size]
            if penalty > 0:
                gram = design.T @ design + penalty * np.eye(size)
                weights = np.linalg.solve(gram, design.T @ answers)
            else:
                weights = np.linalg.lstsq(design, answers, rcond=None)[0]
            pairs[place].append(
                (
                    float(np.mean((design @ weights - answers) ** 2)),
                    float(np.mean((new[:, :size] @ weights - unseen) ** 2)),
                )
            )
    return Curve.of(sizes, pairs, "mean squared error")


def learning_curve_bits(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    sizes: Sequence[int] | None = None,
    test_fraction: float = 0.25,
    repeats: int = 5,
    seed: int | np.random.Generator,
) -> Curve:
    """Bits per sample of a learner fitted to ever more rows, on these and on rows held out.

    Args:
        estimator: with `fit` and `evidence` of (X, y), or of X alone for densities; a copy is fitted each
            time.
        X, y: rows (an array), and answers if there are such.
        sizes: numbers of rows to fit; by default five, each twice the one before, up to all.
        test_fraction: of the rows, held out.
        repeats: splits, over which there are errors.
        seed: of the splits.

    >>> import freeenergy as fe
    >>> X = np.random.default_rng(0).normal(size=(80, 1))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=80)
    >>> found = learning_curve_bits(fe.LinearRegression(), X, y, sizes=[5, 50], seed=0)
    >>> bool(found.test[0] > found.test[1])
    True
    """
    owner = "learning_curve_bits"
    rows = np.asarray(X)
    answers = None if y is None else np.asarray(y)
    same_length(owner, X=rows, y=answers)
    n = len(rows)
    held = min(max(round(n * test_fraction), 1), n - 1)
    most = n - held
    sizes = [most // 2**k for k in range(4, -1, -1) if most // 2**k >= 2] if sizes is None else sizes
    sizes = [count(owner, "sizes", size) for size in sizes]
    if max(sizes) > most:
        raise ValueError(f"The 'sizes' of {owner} must be at most {most}, the rows not held out.")
    rng = np.random.default_rng(seed)
    pairs: list[list[tuple[float, float]]] = [[] for _ in sizes]
    for _ in range(count(owner, "repeats", repeats, 2)):
        order = rng.permutation(n)
        test, rest = order[:held], order[held:]
        for place, size in enumerate(sizes):
            learner, own = copy.deepcopy(estimator), rest[:size]
            given = [
                (rows[part],) if answers is None else (rows[part], answers[part]) for part in (own, test)
            ]
            learner.fit(*given[0])
            train, unseen = (float(-learner.evidence(*part).mean / _LN2) for part in given)
            pairs[place].append((train, unseen))
    return Curve.of(sizes, pairs, "bits per sample")


@dataclasses.dataclass(frozen=True)
class Regime:
    """Whether a model fits too little or too much, as far as its numbers tell.

    Attributes:
        name: "high variance", "high bias", "both", "neither" or "not known".
        gap: how much worse held-out rows are than those that were fitted.
        excess: how much worse the fitted rows are than what could be reached; NaN where that is not known.
        advice: what to try.
    """

    name: str
    gap: Measure
    excess: Measure
    advice: str

    def __str__(self) -> str:
        return f"{self.name}: {self.advice}"


_ADVICE = {
    "high variance": "a smaller model, more rows, a stronger penalty, or bagging.",
    "high bias": "a larger model, other features, a weaker penalty, or boosting.",
    "both": "other features or another kind of model, then more rows.",
    "neither": "nothing: it does as well as can be told from these rows.",
    "not known": "more rows that are held out, or a number that could be reached ('attainable').",
}


def regime(
    train: Any, validation: Any, *, attainable: float | None = None, least: float = 0.0, sigmas: float = 2.0
) -> Regime:
    """Under- or overfitting, from losses of rows that were fitted and of rows that were not.

    The gap between the two is the work of variance, and what the fitted rows are short of is that of bias.

    Args:
        train, validation: a loss for each row, such as bits (`-evidence.nats / np.log(2)`).
        attainable: the loss of the best there could be, such as the Bayes error or a person's; None if it
            is not known, and with it whether there is bias.
        least: differences up to this do not matter.
        sigmas: standard errors by which a difference has to be above that.

    >>> regime([0.1, 0.2, 0.1, 0.2], [1.1, 1.3, 0.9, 1.2], attainable=0.1).name
    'high variance'
    >>> regime([1.1, 1.3, 0.9, 1.2], [1.2, 1.1, 1.3, 1.0], attainable=0.1).name
    'high bias'
    """
    own = _mean(numbers("regime", "train", train, least=2))
    other = _mean(numbers("regime", "validation", validation, least=2))
    gap = Measure(float(other.value - own.value), float(np.hypot(own.stderr, other.stderr)))
    reach = math.nan if attainable is None else float(attainable)
    excess = Measure(float(own.value) - reach, float(own.stderr))
    varies = gap.value > least + sigmas * gap.stderr
    biased = excess.value > least + sigmas * excess.stderr
    # what could be there all the same
    unsure = gap.value + sigmas * gap.stderr > least + 2 * sigmas * gap.stderr
    if varies:
        name = "both" if biased else "high variance"
    elif biased:
        name = "high bias"
    else:
        name = "not known" if attainable is None or unsure else "neither"
    return Regime(name, gap, excess, _ADVICE[name])


def bayes_error(probabilities: Any) -> Measure:
    """The least error that any classifier can have, E[1 − max_y p(y | x)], where p(y | x) is known.

    Args:
        probabilities: p(y | x) of every label (columns) at draws of x (rows).

    >>> float(bayes_error([[0.9, 0.1], [0.4, 0.6]]).value)
    0.25
    """
    return _mean(1 - _chances("bayes_error", probabilities).max(axis=1))


@dataclasses.dataclass(frozen=True)
class BayesBounds:
    """Between which the least error of any classifier lies, for many rows.

    Attributes:
        low, high: the bounds; `high` is the error of the nearest neighbour itself.
    """

    low: Measure
    high: Measure


def _others(X: Any, owner: str, k: int) -> np.ndarray:
    """The k nearest other rows of each, of columns with the same spread."""
    x = numbers(owner, "X", X, ndim=2, least=1)
    if len(x) <= k:
        raise ValueError(f"The 'X' of {owner} must have more than {k} rows. Got {len(x)} instead.")
    spread = x.std(axis=0)
    z = x / np.where(spread > 0, spread, 1.0)
    _, near = KDTree(z).query(z, k=k + 1)
    near = np.asarray(near).reshape(len(x), k + 1)
    # a row is its own neighbour, but with equal rows not always the first
    own = near == np.arange(len(x))[:, None]
    own[~own.any(axis=1), -1] = True
    return near[~own].reshape(len(x), k)


def bayes_bounds(X: Any, y: Any) -> BayesBounds:
    """Bounds of Cover and Hart on the least error of any classifier, from the nearest neighbour's.

    With C labels and as rows grow many, R* ≤ R₁ ≤ R* (2 − C/(C − 1) R*), so that R* is at least
    (C − 1)/C (1 − √(1 − C/(C − 1) R₁)).  R₁ is the share of rows whose nearest other row has another
    label; for few rows, or many columns, it is too high.

    Args:
        X: rows of numbers.
        y: their labels.

    References:
        Cover, Hart (1967), Nearest neighbor pattern classification.

    >>> rng = np.random.default_rng(0)
    >>> found = bayes_bounds(rng.normal(size=(500, 1)), rng.random(500) < 0.5)
    >>> bool(found.low.value < found.high.value), bool(found.high.value < 0.6)
    (True, True)
    """
    labels = np.asarray(y)
    near = _others(X, "bayes_bounds", 1)[:, 0]
    same_length("bayes_bounds", X=near, y=labels)
    wrong = _mean((labels[near] != labels).astype(float))
    many = len(np.unique(labels))
    if many < 2:
        return BayesBounds(Measure(0.0, 0.0), Measure(0.0, 0.0))
    ratio = many / (many - 1)
    root = np.sqrt(max(1 - ratio * wrong.value, 0.0))
    # by the slope of the bound
    slope = 0.5 / root if root > 0 else np.inf
    low = Measure(float((1 - root) / ratio), float(min(slope, 1e3) * wrong.stderr))
    return BayesBounds(low, Measure(float(wrong.value), float(wrong.stderr)))


def noise_variance(X: Any, y: Any, *, neighbours: int = 3) -> Measure:
    """The variance of answers that no regressor takes away, from answers to near rows.

    mean (y − ȳ_near)² · k/(k + 1): exact where E[y | x] is the same for near rows, and else too high.

    Args:
        X: rows of numbers.
        y: a number each.
        neighbours: k.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> found = noise_variance(X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=2000))
    >>> bool(abs(found.value - 0.25) < 4 * found.stderr)
    True
    """
    k = count("noise_variance", "neighbours", neighbours)
    answers = numbers("noise_variance", "y", y)
    near = _others(X, "noise_variance", k)
    same_length("noise_variance", X=near, y=answers)
    return _mean((answers - answers[near].mean(axis=1)) ** 2 * k / (k + 1))
