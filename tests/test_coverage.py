"""Intervals of every regression hold new answers as often as they say, over simulated data sets."""

import numpy as np
import pytest

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.shell import PredictsDensities

LEVEL = 0.9
ROWS = 60
NETWORK = {"width": 8, "max_iter": 60, "random_state": 0}

# an estimator, by how much its coverage may miss its level beyond chance, and data sets of the slow test:
# intervals that know of their uncertain coefficients miss nothing, those of coefficients put in are a bit
# too narrow, and those of flexible models somewhat
TABLE = {
    "LinearRegression": (fe.LinearRegression(), 0.0, 1000),
    "Ridge": (fe.Ridge(), 0.01, 1000),
    "BayesianLinearRegression": (fe.BayesianLinearRegression(), 0.01, 1000),
    "BaseRate": (fe.BaseRate(), 0.02, 1000),
    "SparseRegression": (fe.SparseRegression(0.01), 0.02, 1000),
    "GeneralisedLinearModel": (fe.GeneralisedLinearModel(), 0.02, 1000),
    "RobustRegression": (fe.RobustRegression(), 0.03, 1000),
    "QuantileRegression": (fe.QuantileRegression((0.05, 0.5, 0.95)), 0.06, 1000),
    "Conformal": (fe.Conformal(fe.LinearRegression(), random_state=0), 0.04, 1000),
    "KernelRidge": (fe.KernelRidge(), 0.04, 1000),
    "NadarayaWatson": (fe.NadarayaWatson(), 0.06, 1000),
    "GaussianProcess": (fe.GaussianProcess(), 0.03, 100),
    "Bagging": (fe.Bagging(n_estimators=10, random_state=0), 0.06, 200),
    "Boosting": (fe.Boosting(n_estimators=20, random_state=0), 0.12, 200),
    "MixtureDensity": (fe.MixtureDensity(1, **NETWORK), 0.08, 60),
    "ConditionalFlow": (fe.ConditionalFlow(**NETWORK), 0.08, 60),
    "ConditionalVAE": (fe.ConditionalVAE(**NETWORK), 0.08, 60),
}
QUICK = ["LinearRegression", "Ridge", "GeneralisedLinearModel", "SparseRegression", "Conformal"]


def held(estimator, sets, seed, new=4):
    """The share of new answers in their intervals, `new` of each data set."""
    rng, inside = np.random.default_rng(seed), []
    for _ in range(sets):
        x = rng.normal(size=(ROWS + new, 2))
        y = 1 + x @ [1.0, -0.5] + rng.normal(0, 0.7, ROWS + new)
        low, high = estimator.fit(x[:ROWS], y[:ROWS]).predict_interval(x[ROWS:], LEVEL)
        inside.append(np.mean((low <= y[ROWS:]) & (y[ROWS:] <= high)))
    return np.array(inside)


def check(name, sets, seed):
    estimator, leeway, _ = TABLE[name]
    inside = held(estimator, sets, seed)
    # answers to one data set share their fit
    error = max(inside.std(ddof=1), np.sqrt(LEVEL * (1 - LEVEL) / 4)) / np.sqrt(sets)
    print(f"{name}: {inside.mean():.4f} ± {error:.4f} of {LEVEL}, {sets} data sets")
    assert abs(inside.mean() - LEVEL) < leeway + 4 * error


@pytest.mark.parametrize("name", QUICK)
def test_intervals_hold_new_answers(name):
    check(name, 30, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", TABLE)
def test_intervals_hold_new_answers_of_many_data_sets(name):
    check(name, TABLE[name][2], 1)


def test_every_regression_is_in_the_table():
    public = (getattr(fe, name) for name in fe.__all__)
    models = {c.__name__ for c in public if isinstance(c, type) and issubclass(c, PredictsDensities)}
    assert models == set(TABLE)


@pytest.mark.parametrize("family", [d.Poisson, d.Gamma])
def test_intervals_of_counts_and_positive_answers(family):
    rng, inside, sets = np.random.default_rng(2), [], 30
    for _ in range(sets):
        x = rng.normal(size=(ROWS + 4, 1))
        mean = np.exp(0.4 * x[:, 0] + 0.5)
        y = (rng.poisson(mean) if family is d.Poisson else rng.gamma(3.0, mean / 3)).astype(float)
        low, high = (
            fe.GeneralisedLinearModel(family).fit(x[:ROWS], y[:ROWS]).predict_interval(x[ROWS:], LEVEL)
        )
        inside.append(np.mean((low <= y[ROWS:]) & (y[ROWS:] <= high)))
    # those of counts hold more, since they end at whole numbers
    assert np.mean(inside) > LEVEL - 0.02 - 4 * np.sqrt(0.09 / (4 * sets))
