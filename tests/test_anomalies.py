"""p-values of rows and surprise of cells, against the uniform law and closed forms."""

import numpy as np
import pytest
from data import ROWS
from scipy import stats

import freeenergy as fe
from freeenergy.distributions import Poisson
from freeenergy.shell import Outliers
from freeenergy.shell._anomalies import surprise_beside

SLOPED = ROWS @ np.array([[1.0, 0.8], [0.0, 0.6]]) * [2.0, 30.0] + [5.0, -100.0]


def test_rows_of_the_model_have_uniform_p_values():
    model = fe.GaussianDensity().fit(SLOPED)
    own = model.sample(1000, random_state=1)
    found = model.outliers(own, 0.05)
    assert isinstance(found, Outliers)
    assert stats.kstest(found.p_values, "uniform").pvalue > 0.01
    np.testing.assert_array_equal(found.mask, found.p_values <= 0.05)
    # with part of each row missing as well
    own[:, 1] = np.nan
    assert stats.kstest(model.outliers(own).p_values, "uniform").pvalue > 0.01
    # the p-value of a Gaussian is that of its distance
    mean, covariance = model.mean_, model.covariance_
    rows = SLOPED[:20]
    gap = rows - mean
    distance = np.einsum("ni,ij,nj->n", gap, np.linalg.inv(covariance), gap)
    exact = stats.chi2(2).sf(distance)
    found = model.outliers(rows, n_draws=20_000).p_values
    np.testing.assert_allclose(found, exact, atol=5 * np.sqrt(0.25 / 20_000))
    np.testing.assert_array_equal(found, model.outliers(rows, n_draws=20_000).p_values)
    assert model.outliers(np.full((1, 2), np.nan)).p_values.tolist() == [1.0]


def test_counts_have_outliers_of_at_most_the_level():
    counts = np.random.default_rng(0).poisson(3.0, (120, 2)).astype(float)
    model = fe.Mixture(1, Poisson).fit(counts)
    found = model.outliers([[3.0, 3.0], [40.0, 3.0]])
    assert found.mask.tolist() == [False, True]
    assert found.p_values[1] == 1 / 1001
    # equal draws count as no more probable: the share is below the level, not above
    own = model.sample(4000, random_state=1)
    assert model.outliers(own, 0.1, n_draws=4000).mask.mean() <= 0.1 + 5 * np.sqrt(0.09 / 4000)


def test_surprise_is_the_conditional_of_a_gaussian():
    model = fe.GaussianDensity().fit(SLOPED)
    m, S = model.mean_, model.covariance_
    rows = SLOPED[:7].copy()
    found = model.surprise(rows)
    for j in (0, 1):
        i = 1 - j
        mean = m[j] + S[j, i] / S[i, i] * (rows[:, i] - m[i])
        spread = np.sqrt(S[j, j] - S[j, i] ** 2 / S[i, i])
        np.testing.assert_allclose(found[:, j], -stats.norm(mean, spread).logpdf(rows[:, j]), rtol=1e-9)
    rows[0, 0] = np.nan
    found = model.surprise(rows)
    assert np.isnan(found[0, 0])
    np.testing.assert_allclose(
        found[0, 1], -stats.norm(m[1], np.sqrt(S[1, 1])).logpdf(rows[0, 1]), rtol=1e-9
    )


def test_surprise_beside_draws_needs_no_unit():
    """Of a Gaussian z²/2 − 1/2 is left, where −log p alone names the column with the larger unit."""
    model = fe.GaussianDensity().fit(SLOPED * [1.0, 1e6])
    m, S = model.mean_, model.covariance_
    row = np.array([[m[0] + 4 * np.sqrt(S[0, 0]), m[1] + 4 * S[0, 1] / np.sqrt(S[0, 0])]])
    draws = model.sample(256, random_state=0)
    found = surprise_beside(model, row, draws)[0]
    spread = np.sqrt(S[0, 0] - S[0, 1] ** 2 / S[1, 1])
    z = (row[0, 0] - m[0] - S[0, 1] / S[1, 1] * (row[0, 1] - m[1])) / spread
    # the mean of 256 halves of chi-squared numbers
    error = np.sqrt(0.5 / 256)
    np.testing.assert_allclose(found, [(z**2 - 1) / 2, -0.5], atol=5 * error)
    assert found.argmax() == 0
    assert model.surprise(row)[0].argmax() == 1


def test_a_level_that_the_draws_cannot_reach_is_refused():
    model = fe.GaussianDensity().fit(SLOPED)
    with pytest.raises(ValueError, match=r"'level' of GaussianDensity.outliers must be in the range"):
        model.outliers(SLOPED, 0.001, n_draws=100)
    with pytest.raises(ValueError, match=r"'n_draws' of GaussianDensity.outliers must be an int"):
        model.outliers(SLOPED, n_draws=0)
