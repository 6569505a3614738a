"""Factor models of a covariance matrix, and the χ² test of the number of factors."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.multivariate.factor import Factor

import freeenergy as fe
from freeenergy.estimators import FactorTest

# ability.cov of R: six tests of 112 people (Bartholomew and Knott, 1990)
NAMES = ["general", "picture", "blocks", "maze", "reading", "vocab"]
ABILITY = np.array(
    [
        [24.641, 5.991, 33.520, 6.023, 20.755, 29.701],
        [5.991, 6.700, 18.137, 1.782, 4.936, 7.204],
        [33.520, 18.137, 149.831, 19.424, 31.430, 50.753],
        [6.023, 1.782, 19.424, 12.711, 4.757, 9.075],
        [20.755, 4.936, 31.430, 4.757, 52.604, 66.762],
        [29.701, 7.204, 50.753, 9.075, 66.762, 135.292],
    ]
)
SIZE = np.sqrt(np.diagonal(ABILITY))


def test_the_test_of_factanal():
    """What R prints: 75.18 on 9 degrees of freedom for one factor; 6.11 on 4, p = 0.191, for two."""
    one = fe.FactorAnalysis.from_covariance(ABILITY, 112, n_components=1, tol=1e-10).factor_test()
    assert (round(one.statistic, 2), one.df) == (75.18, 9)
    np.testing.assert_allclose(one.p_value, 1.46e-12, rtol=5e-3)
    two = fe.FactorAnalysis.from_covariance(ABILITY, 112, n_components=2, tol=1e-10, max_iter=100_000)
    found = two.factor_test()
    assert (round(found.statistic, 2), found.df, round(found.p_value, 3)) == (6.11, 4, 0.191)
    note = next(line for line in repr(two.summary()).splitlines() if "χ²" in line)
    assert note.strip() == (
        "χ² test that 2 factors are enough (Bartlett): 6.11 on 4 degrees of freedom, p = 0.191."
    )


def test_the_fit_is_that_of_statsmodels():
    correlation = ABILITY / np.outer(SIZE, SIZE)
    other = Factor(None, 2, corr=correlation, method="ml", nobs=112).fit()
    fitted = other.loadings @ other.loadings.T + np.diag(other.uniqueness)
    F = np.linalg.slogdet(fitted)[1] - np.linalg.slogdet(correlation)[1]
    F += np.trace(np.linalg.solve(fitted, correlation)) - 6
    mine = fe.FactorAnalysis.from_covariance(correlation, 112, n_components=2, tol=1e-10, max_iter=100_000)
    np.testing.assert_allclose(mine.discrepancy_, F, atol=1e-5)
    np.testing.assert_allclose(mine.noise_variance_, other.uniqueness, atol=2e-3)


def test_a_covariance_is_as_good_as_its_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 6)) * 30 + rng.normal(size=(150, 6)) + 100.0
    for kind in (fe.FactorAnalysis, fe.PPCA):
        rows = kind(2).fit(X)
        made = kind.from_covariance(np.cov(X.T, bias=True), 150, mean=X.mean(axis=0), n_components=2)
        np.testing.assert_allclose(made.score_samples(X), rows.score_samples(X), rtol=1e-6)
        np.testing.assert_allclose(made.summary().log_likelihood, rows.summary().log_likelihood, rtol=1e-8)
        assert made.summary().size == 150
    # the statistic is n times twice the gap of mean log-likelihoods, but for Bartlett's correction
    rows = fe.FactorAnalysis(2).fit(X)
    free = stats.multivariate_normal(X.mean(axis=0), np.cov(X.T, bias=True)).logpdf(X).mean()
    np.testing.assert_allclose(rows.discrepancy_, 2 * (free - rows.score(X)), atol=1e-8)
    assert rows.factor_test() == FactorTest.of(rows.discrepancy_, 150, 6, 2)


def test_names_of_a_frame_are_kept():
    frame = pd.DataFrame(ABILITY, columns=NAMES, index=NAMES)
    made = fe.FactorAnalysis.from_covariance(frame, 112, n_components=1)
    assert made.feature_names_in_.tolist() == NAMES
    assert made.transform(pd.DataFrame([np.zeros(6)], columns=NAMES)).shape == (1, 1)


def test_where_there_is_no_test_a_sentence_says_why():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    with pytest.raises(ValueError, match="2 factors of 4 columns leave no degrees of freedom"):
        fe.FactorAnalysis(2).fit(X).factor_test()
    holes = X.copy()
    holes[0, 0] = np.nan
    found = fe.FactorAnalysis(1, tol=1e-4).fit(holes)
    with pytest.raises(ValueError, match="it needs a fit to complete rows"):
        found.factor_test()
    assert "χ²" not in repr(found.summary())
    with pytest.raises(ValueError, match="3 rows are too few for 4 columns"):
        fe.FactorAnalysis.from_covariance(np.eye(4) + 0.1, 3, n_components=1).factor_test()


@pytest.mark.parametrize(
    ("covariance", "rows", "options", "message"),
    [
        (np.ones((2, 3)), 9, {}, r"must have as many rows as columns\. Got the shape \(2, 3\)"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), 9, {}, "no combination of columns that has a negative one"),
        (np.array([[1.0, 0.2], [0.5, 1.0]]), 9, {}, "must be symmetric"),
        (np.diag([1.0, 0.0]), 9, {}, "variances that are positive"),
        (np.eye(2), 1, {}, r"'n_obs' of FactorAnalysis\.from_covariance must be an int in the range \[2"),
        (np.eye(2), 9, {"mean": [0.0]}, "must have the 2 columns of 'covariance'"),
    ],
)
def test_matrices_that_are_none_are_refused(covariance, rows, options, message):
    with pytest.raises(ValueError, match=message):
        fe.FactorAnalysis.from_covariance(covariance, rows, **options)


def test_numbers_of_factors_that_cannot_be_the_best_are_left_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 1)) @ rng.normal(size=(1, 6)) + 0.7 * rng.normal(size=(120, 6))
    chosen = fe.FactorAnalysis().fit(X)
    # each size by itself, with 2 × 6 numbers of mean and noise, and loadings less their rotations
    alone = [
        120 * fe.FactorAnalysis(k).fit(X).score(X) - 0.5 * np.log(120) * (12 + 6 * k - k * (k - 1) / 2)
        for k in range(4)
    ]
    assert len(chosen.log_evidence_) < len(alone)
    np.testing.assert_allclose(chosen.log_evidence_, alone[: len(chosen.log_evidence_)], rtol=1e-9)
    assert chosen.n_components_ == np.argmax(alone)
    # of three rows no two factors leave any noise
    few = fe.FactorAnalysis().fit(X[:3])
    assert len(few.log_evidence_) <= 2
    assert few.noise_variance_.min() > 0
