"""Parts of structural series, beside statsmodels' unobserved components at equal parameters."""

import equinox as eqx
import numpy as np
import pytest
import statsmodels.api as sm

import freeenergy as fe
from freeenergy.models import (
    Level,
    Regressors,
    Seasonal,
    Series,
    Structural,
    TrigonometricSeasonal,
    UndampedCycle,
)

RNG = np.random.default_rng(0)
TIME = np.arange(48)
VALUES = 3 * np.sin(2 * np.pi * TIME / 12) + np.cumsum(np.random.default_rng(1).normal(size=48))


def _series(y, inputs=None):
    begins = np.arange(len(y)) == 0
    return Series(y[:, None], begins, np.ones(len(y), bool), None, inputs)


@eqx.filter_jit
def _log_prob(model, series):
    return model.log_prob(series)


def _their_log_prob(y, parameters, **options):
    model = sm.tsa.UnobservedComponents(y, use_exact_diffuse=True, **options)
    return model.loglike(parameters)


def test_undamped_cycle_has_the_likelihood_of_statsmodels():
    mine = float(_log_prob(Structural((UndampedCycle(11.0, 0.3),), 0.7), _series(VALUES)))
    theirs = _their_log_prob(
        VALUES, [0.7, 0.3, 2 * np.pi / 11.0], irregular=True, cycle=True, stochastic_cycle=True
    )
    assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("harmonics", [1, 4])
def test_trigonometric_season_has_the_likelihood_of_statsmodels(harmonics):
    season = TrigonometricSeasonal(12, harmonics, 0.2)
    mine = float(_log_prob(Structural((Level(0.5), season), 0.7), _series(VALUES)))
    theirs = _their_log_prob(
        VALUES,
        [0.7, 0.5, 0.2],
        level="local level",
        freq_seasonal=[{"period": 12, "harmonics": harmonics}],
    )
    assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("period", [3, 4])
def test_all_waves_are_any_pattern_that_sums_to_zero(period):
    waves = Structural((Level(0.5), TrigonometricSeasonal(period, None, 0.0)), 0.7)
    pattern = Structural((Level(0.5), Seasonal(period, 0.0)), 0.7)
    assert eqx.filter_eval_shape(waves.system).latent_dim == period
    # they differ by a constant, since they start from other coordinates of one plane
    other = RNG.normal(size=48)
    first = [float(_log_prob(model, _series(VALUES))) for model in (waves, pattern)]
    second = [float(_log_prob(model, _series(other))) for model in (waves, pattern)]
    assert first[0] - second[0] == pytest.approx(first[1] - second[1], abs=1e-8)


def test_regression_without_intercept_is_one_through_the_origin():
    u = RNG.normal(5.0, 1.0, (48, 2))
    y = u @ [2.0, -1.0] + 3.0 + 0.3 * RNG.normal(size=48)
    blocks = Structural((Regressors(2, intercept=False),), 0.5)
    fitted = fe.StructuralTimeSeries(blocks, tol=1e-6).fit(y[:, None], inputs=u)
    through = sm.OLS(y, u).fit()
    ahead = fitted.forecast(y[:, None], 1, inputs=u, future_inputs=[[1.0, 0.0]])
    np.testing.assert_allclose(ahead.mean[0, 0], through.params[0], rtol=1e-3)
    theirs = _their_log_prob(y, [0.4, *through.params], exog=u, irregular=True)
    system = Structural((Regressors(2),), 0.4)
    # theirs is at the coefficients, ours over all: integrals of the same normal likelihood
    gap = float(_log_prob(system, _series(y, u))) - theirs
    assert gap == pytest.approx(-0.5 * np.linalg.slogdet(u.T @ u / 0.4)[1], abs=1e-6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TrigonometricSeasonal(1), "'period' parameter of TrigonometricSeasonal must be an int"),
        (lambda: TrigonometricSeasonal(6, 4), "'harmonics' .* must be an int from 1 to half the period"),
    ],
)
def test_patterns_that_cannot_be_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
