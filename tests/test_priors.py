"""Separable priors of coefficients: beside grids, other solvers and enumeration."""

import dataclasses
import itertools
from typing import ClassVar

import numpy as np
import pytest
from scipy import optimize
from sklearn.linear_model import ElasticNet

import freeenergy as fe
from freeenergy.estimators import (
    AbstractSeparablePrior,
    ElasticNetPrior,
    LogarithmicPrior,
    SpikePrior,
    StudentPrior,
)
from freeenergy.estimators.labelled._priors import gap_of_prior, proximal, stationarity

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6)) @ (np.eye(6) + 0.3) + [5.0, -300.0, 0.0, 1.0, 2.0, 3.0]
Y = X @ [1.0, -2.0, 0.0, 0.0, 0.5, 0.0] + RNG.normal(size=120)
Z, V = (X - X.mean(0)) / X.std(0), (Y - Y.mean()) / Y.std()
PRIORS = [
    ElasticNetPrior(1.0),
    ElasticNetPrior(0.3),
    ElasticNetPrior(0.0),
    LogarithmicPrior(0.05),
    StudentPrior(0.2),
    SpikePrior(),
]


@dataclasses.dataclass(frozen=True)
class Nonnegative(AbstractSeparablePrior):
    """No preference among what is not below zero."""

    convex: ClassVar[bool] = True

    def energy(self, w):
        return np.where(w < 0, np.inf, 0.0)

    def prox(self, v, t):
        return np.maximum(v, 0.0)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("t", [0.01, 0.3, 2.0])
def test_proximal_operators_are_least(prior, t):
    v = np.linspace(-3, 3, 61)
    grid = np.union1d(np.linspace(-3.2, 3.2, 6401), [0.0])
    cost = 0.5 * (grid[:, None] - v) ** 2 + t * prior.energy(grid)[:, None]
    found = prior.prox(v, t)
    own = 0.5 * (found - v) ** 2 + t * prior.energy(found)
    assert (own <= cost.min(axis=0) + 1e-12).all()
    np.testing.assert_array_equal(prior.prox(-v, t), -found)
    one = prior.prox(np.float64(v[7]), t)
    assert float(one) == pytest.approx(found[7], abs=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_the_elastic_net_is_that_of_active_sets_and_of_scikit_learn(ratio):
    peer = ElasticNet(0.05, l1_ratio=ratio, tol=1e-14, max_iter=100_000).fit(Z, V)
    model = fe.SparseRegression(0.05, prior=ElasticNetPrior(ratio)).fit(X, Y)
    np.testing.assert_allclose(model.coef_, peer.coef_ * Y.std() / X.std(0), atol=1e-8)
    plain = fe.SparseRegression(0.05, l1_ratio=ratio).fit(X, Y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-8)
    assert model.dual_gap_ < 1e-10
    assert max(model.stationarity_, plain.stationarity_) < 1e-9
    # away from the least value the gap is at least what is lost
    gram, along = Z.T @ Z / 120, Z.T @ V / 120
    prior = ElasticNetPrior(ratio)

    def objective(w):
        return 0.5 * np.mean((V - Z @ w) ** 2) + 0.05 * prior.energy(w).sum()

    other = peer.coef_ + 0.1 * RNG.normal(size=6)
    gap = gap_of_prior(gram, along, 1.0, prior, 0.05, other)
    assert gap >= objective(other) - objective(peer.coef_) > 0


def test_the_normal_prior_is_ridge_regression():
    model = fe.SparseRegression(0.2, prior=ElasticNetPrior(0.0)).fit(X, Y)
    w = np.linalg.solve(Z.T @ Z / 120 + 0.2 * np.eye(6), Z.T @ V / 120)
    np.testing.assert_allclose(model.coef_, w * Y.std() / X.std(0), rtol=1e-7)
    assert model.dual_gap_ < 1e-10


def test_a_prior_of_ones_own():
    model = fe.SparseRegression(1.0, prior=Nonnegative()).fit(X, Y)
    w, _ = optimize.nnls(Z, V)
    np.testing.assert_allclose(model.coef_, w * Y.std() / X.std(0), atol=1e-8)
    # it does not say its conjugate
    assert np.isnan(model.dual_gap_)
    assert model.stationarity_ < 1e-9
    assert "stationarity" in repr(model.summary())


@pytest.mark.parametrize("prior", [LogarithmicPrior(0.05), StudentPrior(0.2)], ids=repr)
def test_priors_that_are_not_convex_come_to_a_stationary_point(prior):
    model = fe.SparseRegression(0.02, prior=prior).fit(X, Y)
    w = model.coef_ * X.std(0) / Y.std()

    def objective(w):
        return 0.5 * np.mean((V - Z @ w) ** 2) + 0.02 * prior.energy(w).sum()

    for j in np.flatnonzero(w):
        step = 1e-5 * np.eye(6)[j]
        assert abs(objective(w + step) - objective(w - step)) / 2e-5 < 1e-7
    # and none alone is better elsewhere
    for j, value in itertools.product(range(6), np.linspace(-1.5, 1.5, 301)):
        assert objective(np.where(np.arange(6) == j, value, w)) >= objective(w) - 1e-12
    assert np.isnan(model.dual_gap_)
    assert model.stationarity_ < 1e-8
    # what is large is hardly shrunk
    lasso = fe.SparseRegression(0.02 * float(prior.energy(np.float64(1.0)))).fit(X, Y)
    assert abs(model.coef_[1] + 2) < abs(lasso.coef_[1] + 2)


def test_a_spike_chooses_columns_as_enumeration_does():
    q = np.linalg.qr(Z)[0] * np.sqrt(120)
    y = q @ [0.9, -0.3, 0.1, 0.0, 0.5, 0.02]
    gram, along = q.T @ q / 120, q.T @ y / 120
    w, _ = proximal(gram, along, SpikePrior(), 0.02, np.zeros(6), 100)
    np.testing.assert_allclose(w, np.where(along**2 / 2 > 0.02, along, 0.0), atol=1e-9)
    costs = {}
    for size in range(7):
        for chosen in map(list, itertools.combinations(range(6), size)):
            rest = y - q[:, chosen] @ along[chosen]
            costs[tuple(chosen)] = 0.5 * np.mean(rest**2) + 0.02 * size
    assert tuple(np.flatnonzero(w)) == min(costs, key=costs.get)
    assert stationarity(gram, along, SpikePrior(), 0.02, w) < 1e-9


def test_paths_folds_and_files(tmp_path):
    model = fe.SparseRegression(prior=LogarithmicPrior(0.05)).fit(X, Y)
    assert {0, 1} <= set(np.flatnonzero(model.coef_).tolist())
    model.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    assert again.prior == LogarithmicPrior(0.05)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    path = fe.SparseRegression(prior=SpikePrior()).path(X, Y, [0.5, 0.01, 1e-6])
    assert np.isnan(path.dual_gap).all()
    assert (np.diff((path.coef != 0).sum(axis=1)) >= 0).all()
    two = fe.SparseRegression(0.02, prior=LogarithmicPrior(0.05)).fit(X, np.column_stack([Y, Y]))
    np.testing.assert_allclose(two.coef_[0], two.coef_[1])


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"'prior' parameter of SparseRegression must be"):
        fe.SparseRegression(prior="log").fit(X, Y)
    with pytest.raises(
        ValueError, match=r"'l1_ratio' of ElasticNetPrior must be a float in the range \[0, 1\]"
    ):
        ElasticNetPrior(2.0)
    for kind in (LogarithmicPrior, StudentPrior):
        with pytest.raises(
            ValueError, match=rf"'scale' of {kind.__name__} must be a float in the range \(0, inf\)"
        ):
            kind(0.0)
