"""Kernel density estimation against SciPy, scikit-learn and dense sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from sklearn.neighbors import KernelDensity as TheirKernelDensity

import freeenergy as fe
from freeenergy.models import Kernels

RNG = np.random.RandomState(0)
X = np.concatenate([RNG.normal(0, 1, (60, 2)), RNG.normal([4, -3], [0.5, 2.0], (40, 2))]) * [1.0, 100.0]
TEST = RNG.normal(1, 2, (20, 2)) * [1.0, 100.0]


def test_fixed_bandwidth_is_scikit_learns():
    ours = fe.KernelDensity(0.3).fit(X)
    scale = X.std(axis=0)
    theirs = TheirKernelDensity(bandwidth=0.3).fit(X / scale)
    expected = theirs.score_samples(TEST / scale) - np.log(scale).sum()
    np.testing.assert_allclose(ours.score_samples(TEST), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.bandwidth_, 0.3 * scale)
    weight = RNG.rand(100)
    ours = fe.KernelDensity(0.3).fit(X[:, :1], sample_weight=weight)
    spread = np.sqrt(np.cov(X[:, 0], aweights=weight, bias=True))
    theirs = TheirKernelDensity(bandwidth=0.3 * spread).fit(X[:, :1], sample_weight=weight)
    np.testing.assert_allclose(
        ours.score_samples(TEST[:, :1]), theirs.score_samples(TEST[:, :1]), rtol=1e-9
    )


def left_out_loss(Z, h, weight):
    """−L(h) per row by a dense matrix."""
    logs = -0.5 * ((Z[:, None] - Z[None]) ** 2).sum(axis=-1) / h**2 - Z.shape[1] * np.log(
        h * np.sqrt(2 * np.pi)
    )
    kernel = np.exp(logs)
    np.fill_diagonal(kernel, 0.0)
    nats = np.log(kernel @ weight / (weight.sum() - weight))
    return -np.average(nats, weights=weight)


@pytest.mark.parametrize("weight", [np.ones(100), np.arange(1.0, 101.0)])
def test_bandwidth_has_the_best_left_out_likelihood(weight):
    model = fe.KernelDensity().fit(X, sample_weight=weight)
    mean = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    Z = (X - mean) / scale
    best = minimize_scalar(
        lambda log_h: left_out_loss(Z, np.exp(log_h), weight), bounds=(-3, 1), method="bounded"
    )
    np.testing.assert_allclose(model.bandwidth_ / scale, np.exp(best.x), rtol=1e-4)
    np.testing.assert_allclose(min(model.history_["objective"]), best.fun + np.log(scale).sum(), atol=1e-8)
    assert model.converged_


def test_blocks_are_the_whole():
    # more kernels than one block has
    centres, variances, weights = RNG.normal(size=(700, 2)), RNG.uniform(0.1, 1, (700, 2)), RNG.rand(700)
    model = Kernels.of(centres, variances, weights)
    x = np.array([0.3, -0.2])
    terms = stats.norm.pdf(x, centres, np.sqrt(variances))
    share = weights / weights.sum()
    np.testing.assert_allclose(
        model.log_prob(jnp.asarray(x)), np.log(share @ terms.prod(axis=1)), rtol=1e-12
    )
    np.testing.assert_allclose(model.log_prob_complete(jnp.asarray(x)), model.log_prob(jnp.asarray(x)))
    without = np.delete(share, 600) @ np.delete(terms, 600, axis=0).prod(axis=1)
    np.testing.assert_allclose(
        model.log_prob_without(jnp.asarray(x), jnp.asarray(600)), np.log(without), rtol=1e-12
    )
    hidden = jnp.array([0.3, jnp.nan])
    np.testing.assert_allclose(model.log_prob(hidden), np.log(share @ terms[:, 0]), rtol=1e-12)
    posterior = share * terms[:, 0] / (share @ terms[:, 0])
    np.testing.assert_allclose(model.complete_mean(hidden), [0.3, posterior @ centres[:, 1]], rtol=1e-12)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.asarray(jax.vmap(lambda k: model.complete_sample(hidden, key=k))(keys))
    assert (draws[:, 0] == 0.3).all()
    second = posterior @ (centres[:, 1] ** 2 + variances[:, 1])
    spread = np.sqrt(second - (posterior @ centres[:, 1]) ** 2)
    assert abs(draws[:, 1].mean() - posterior @ centres[:, 1]) < 5 * spread / np.sqrt(4000)
    assert abs(draws[:, 1].std() / spread - 1) < 0.1
    draws = np.asarray(jax.vmap(lambda k: model.sample(key=k))(keys))
    total = np.sqrt(share @ (centres**2 + variances) - (share @ centres) ** 2)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - share @ centres), 5 * total / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=0), total, rtol=0.1)


def test_fits_rows_with_missing_entries():
    holes = X.copy()
    holes[::7, 0] = np.nan
    holes[3] = np.nan
    model = fe.KernelDensity(0.4).fit(holes)
    # the marginal of the second column sees only rows that have it
    rows = np.column_stack([np.full(20, np.nan), TEST[:, 1]])
    h = model.bandwidth_[1]
    known = holes[~np.isnan(holes[:, 1]), 1]
    dense = stats.norm.pdf(TEST[:, 1][:, None], known[None], h).mean(axis=1)
    np.testing.assert_allclose(model.score_samples(rows), np.log(dense), rtol=1e-8)
    # the first column of the holes is as wide as the column
    grid = np.linspace(-12, 16, 4001)
    mass = np.exp(model.score_samples(np.column_stack([grid, np.full(4001, np.nan)]))).sum() * (
        grid[1] - grid[0]
    )
    assert abs(mass - 1) < 1e-3
    chosen = fe.KernelDensity().fit(holes)
    assert np.isfinite(chosen.score_samples(holes)).all()


def test_repeated_rows_do_not_close_the_kernels():
    model = fe.KernelDensity().fit(np.repeat(X, 3, axis=0))
    once = fe.KernelDensity().fit(X)
    np.testing.assert_allclose(model.bandwidth_, once.bandwidth_, rtol=1e-6)


def test_columns_without_spread_do_not_matter():
    flat = np.column_stack([X, np.full(100, 7.0)])
    model = fe.KernelDensity().fit(flat)
    np.testing.assert_allclose(model.bandwidth_[:2], fe.KernelDensity().fit(X).bandwidth_, rtol=1e-5)
    assert model.bandwidth_[2] == pytest.approx(7e-3)


def test_one_row():
    model = fe.KernelDensity().fit([[3.0]])
    assert np.isfinite(model.score([[3.0]]))
    assert model.n_iter_ == 0


def test_many_rows_are_judged_by_some(monkeypatch):
    from freeenergy.estimators.tables import _kernel

    monkeypatch.setattr(_kernel, "_MOST_PAIRS", 2000)
    monkeypatch.setattr(_kernel, "_FEWEST_JUDGED", 10)
    some = fe.KernelDensity().fit(X)
    np.testing.assert_allclose(some.bandwidth_, fe.KernelDensity(0.3).fit(X).bandwidth_, rtol=1.0)


def test_wrong_bandwidth():
    with pytest.raises(
        ValueError, match=r"'bandwidth' parameter of KernelDensity must be a float in the range \(0"
    ):
        fe.KernelDensity(0.0).fit(X)
