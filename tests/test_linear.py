"""Least squares against NIST's certified values, statsmodels, scikit-learn and exact arithmetic."""

import copy
from fractions import Fraction

import equinox as eqx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from data import ROWS
from scipy import optimize, stats
from sklearn.linear_model import LinearRegression as Peer

import freeenergy as fe
from freeenergy.distributions import Diagonal

RNG = np.random.default_rng(3)
X = np.column_stack([ROWS, RNG.normal(size=len(ROWS))])
Y = X @ [1.0, -2.0, 0.5] + 3.0 + RNG.normal(size=len(X)) * (1 + 0.5 * np.abs(X[:, 0]))
TWO = np.column_stack([Y, Y + 2 * X[:, 1] + RNG.normal(size=len(X))])

# NIST StRD, Filip.dat: one answer for each of 82 points, a polynomial of degree ten
FILIP_Y = """
    0.8116 0.9072 0.9052 0.9039 0.8053 0.8377 0.8667 0.8809 0.7975 0.8162 0.8515 0.8766 0.8885 0.8859
    0.8959 0.8913 0.8959 0.8971 0.9021 0.909 0.9139 0.9199 0.8692 0.8872 0.89 0.891 0.8977 0.9035 0.9078
    0.7675 0.7705 0.7713 0.7736 0.7775 0.7841 0.7971 0.8329 0.8641 0.8804 0.7668 0.7633 0.7678 0.7697
    0.77 0.7749 0.7796 0.7897 0.8131 0.8498 0.8741 0.8061 0.846 0.8751 0.8856 0.8919 0.8934 0.894 0.8957
    0.9047 0.9129 0.9209 0.9219 0.7739 0.7681 0.7665 0.7703 0.7702 0.7761 0.7809 0.7961 0.8253 0.8602
    0.8809 0.8301 0.8664 0.8834 0.8898 0.8964 0.8963 0.9074 0.9119 0.9228
"""
FILIP_X = """
    -6.860120914 -4.324130045 -4.358625055 -4.358426747 -6.955852379 -6.661145254 -6.355462942
    -6.118102026 -7.115148017 -6.815308569 -6.519993057 -6.204119983 -5.853871964 -6.109523091
    -5.79832982 -5.482672118 -5.171791386 -4.851705903 -4.517126416 -4.143573228 -3.709075441
    -3.499489089 -6.300769497 -5.953504836 -5.642065153 -5.031376979 -4.680685696 -4.329846955
    -3.928486195 -8.56735134 -8.363211311 -8.107682739 -7.823908741 -7.522878745 -7.218819279
    -6.920818754 -6.628932138 -6.323946875 -5.991399828 -8.781464495 -8.663140179 -8.473531488
    -8.247337057 -7.971428747 -7.676129393 -7.352812702 -7.072065318 -6.774174009 -6.478861916
    -6.159517513 -6.835647144 -6.53165267 -6.224098421 -5.910094889 -5.598599459 -5.290645224
    -4.974284616 -4.64454848 -4.290560426 -3.885055584 -3.408378962 -3.13200249 -8.726767166 -8.66695597
    -8.511026475 -8.165388579 -7.886056648 -7.588043762 -7.283412422 -6.995678626 -6.691862621
    -6.392544977 -6.067374056 -6.684029655 -6.378719832 -6.065855188 -5.752272167 -5.132414673
    -4.811352704 -4.098269308 -3.66174277 -3.2644011
"""
FILIP = [-1467.48961422980, -2772.17959193342, -2316.37108160893, -1127.97394098372, -354.478233703349]
FILIP += [-75.1242017393757, -10.8753180355343, -1.06221498588947, -0.670191154593408e-1]
FILIP += [-0.246781078275479e-2, -0.402962525080404e-4]
FILIP_ERRORS = [298.084530995537, 559.779865474950, 466.477572127796, 227.204274477751, 71.6478660875927]
FILIP_ERRORS += [15.2897178747400, 2.23691159816033, 0.221624321934227, 0.142363763154724e-1]
FILIP_ERRORS += [0.535617408889821e-3, 0.896632837373868e-5]
LONGLEY = [-3482258.63459582, 15.0618722713733, -0.358191792925910e-1, -2.02022980381683]
LONGLEY += [-1.03322686717359, -0.511041056535807e-1, 1829.15146461355]
LONGLEY_ERRORS = [890420.383607373, 84.9149257747669, 0.334910077722432e-1, 0.488399681651699]
LONGLEY_ERRORS += [0.214274163161675, 0.226073200069370, 455.478499142212]
WAMPLER_ERRORS = [2152.32624678170, 2363.55173469681, 779.343524331583, 101.475507550350]
WAMPLER_ERRORS += [5.64566512170752, 0.112324854679312]
# NIST StRD, Norris.dat: readings of a monitor of ozone beside those of a standard
NORRIS_Y = """
0.1 338.8 118.1 888.0 9.2 228.1 668.5 998.5 449.1 778.9 559.2 0.3 0.1 778.1 668.8 339.3 448.9 10.8
557.7 228.3 998.0 888.8 119.6 0.3 0.6 557.6 339.3 888.0 998.5 778.9 10.2 117.6 228.9 668.4 449.2 0.2
"""
NORRIS_X = """
0.2 337.4 118.2 884.6 10.1 226.5 666.3 996.3 448.6 777.0 558.2 0.4 0.6 775.5 666.9 338.0 447.5 11.6
556.0 228.1 995.8 887.6 120.2 0.3 0.3 556.8 339.1 887.2 999.0 779.0 11.1 118.3 229.2 669.1 448.9 0.5
"""
NORRIS = [-0.262323073774029, 1.00211681802045]
NORRIS_ERRORS = [0.232818234301152, 0.429796848199937e-3]
# what NIST added to a polynomial of integers, whose fit it does not change
WAMPLER_NOISE = [759, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 1838, -2048, 2048]
WAMPLER_NOISE += [-2048, 1838, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 759]


# NIST StRD, Pontius.dat: the deflection of a load cell under 150,000, 300,000, … pounds, twice
PONTIUS_Y = """
.11019 .21956 .32949 .43899 .54803 .65694 .76562 .87487 .98292 1.09146 1.20001 1.30822 1.41599 1.52399
1.63194 1.73947 1.84646 1.95392 2.06128 2.16844 .11052 .22018 .32939 .43886 .54798 .65739 .76596 .87474
.98300 1.09150 1.20004 1.30818 1.41613 1.52408 1.63159 1.73965 1.84696 1.95445 2.06177 2.16829
"""
PONTIUS = [0.673565789473684e-3, 0.732059160401003e-6, -0.316081871345029e-14]
PONTIUS_ERRORS = [0.107938612033077e-3, 0.157817399981659e-9, 0.486652849992036e-16]


def exact_polynomial(x, y, degree):
    """The least squares of a polynomial in rational numbers."""
    k = degree + 1
    powers = [sum(xi**i for xi in x) for i in range(2 * k - 1)]
    rows = [[powers[i + j] for j in range(k)] for i in range(k)]
    rows = [[*row, sum(yi * xi**i for xi, yi in zip(x, y, strict=True))] for i, row in enumerate(rows)]
    for i in range(k):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in set(range(k)) - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


def coefficients(model):
    return np.array([model.intercept_, *model.coef_])


def errors(model):
    return np.sqrt(np.diag(model.covariance_))


def digits(found, certified):
    return -np.log10(np.max(np.abs(np.array(found) / certified - 1)) + 1e-16)


def test_norris():
    x, y = NORRIS_X.split(), NORRIS_Y.split()
    exact = exact_polynomial([Fraction(v) for v in x], [Fraction(v) for v in y], 1)
    assert digits([float(v) for v in exact], NORRIS) > 13
    model = fe.LinearRegression().fit(np.array(x, float)[:, None], np.array(y, float))
    assert digits(coefficients(model), NORRIS) > 12
    assert digits(errors(model), NORRIS_ERRORS) > 12
    assert digits([model.noise_], [0.884796396144373]) > 12
    assert digits([model.r_squared_], [0.999993745883712]) > 12


def test_filippelli():
    x, y = FILIP_X.split(), FILIP_Y.split()
    # the data are typed right: exact arithmetic gives NIST's values
    exact = exact_polynomial([Fraction(v) for v in x], [Fraction(v) for v in y], 10)
    assert digits([float(v) for v in exact], FILIP) > 13
    powers = np.array(x, float)[:, None] ** np.arange(1, 11)
    model = fe.LinearRegression().fit(powers, np.array(y, float))
    # powers are rounded to 64 bits before the fit sees them
    assert digits(coefficients(model), FILIP) > 7
    assert digits(errors(model), FILIP_ERRORS) > 7
    assert digits([model.noise_], [0.334801051324544e-2]) > 8
    assert digits([model.r_squared_], [0.996727416185620]) > 8


def test_pontius():
    x, y = [Fraction(150_000 * i) for i in range(1, 21)] * 2, [Fraction(v) for v in PONTIUS_Y.split()]
    exact = exact_polynomial(x, y, 2)
    assert digits([float(v) for v in exact], PONTIUS) > 13
    powers = np.array(x, float)[:, None] ** np.arange(1, 3)
    model = fe.LinearRegression().fit(powers, np.array(y, float))
    assert digits(coefficients(model), PONTIUS) > 11
    assert digits(errors(model), PONTIUS_ERRORS) > 11
    assert digits([model.noise_], [0.205177424076185e-3]) > 12


@pytest.mark.parametrize(
    ("x", "y", "slope", "error"),
    [
        (range(60, 71), range(130, 141), 2.07438016528926, 0.165289256198347e-1),
        (range(4, 7), (3, 4, 4), 0.727272727272727, 0.420827318078432e-1),
    ],
)
def test_lines_through_the_origin(x, y, slope, error):
    # NIST StRD, NoInt1.dat and NoInt2.dat
    exact = Fraction(sum(a * b for a, b in zip(x, y, strict=True)), sum(a * a for a in x))
    assert digits([float(exact)], [slope]) > 13
    model = fe.LinearRegression(fit_intercept=False).fit(np.array(x, float)[:, None], np.array(y, float))
    assert digits(model.coef_, [slope]) > 13
    assert digits(errors(model), [error]) > 12


def test_longley():
    data = sm.datasets.longley.load_pandas()
    model = fe.LinearRegression().fit(data.exog, data.endog)
    assert digits(coefficients(model), LONGLEY) > 11
    assert digits(errors(model), LONGLEY_ERRORS) > 11
    found = model.summary()
    assert found.names == ["intercept", *data.exog.columns]
    assert digits([found.facts["R²"], found.facts["F"]], [0.995479004577296, 330.285339234588]) > 10
    assert digits([found.facts["residual std."]], [304.854073561965]) > 12
    peer = sm.OLS(data.endog, sm.add_constant(data.exog)).fit()
    np.testing.assert_allclose(found.p_values, peer.pvalues, rtol=1e-6)
    np.testing.assert_allclose(np.transpose(found.interval()), peer.conf_int(), rtol=1e-7)
    np.testing.assert_allclose(found.log_likelihood, peer.llf, rtol=1e-12)
    # they do not count the variance
    np.testing.assert_allclose([found.aic - 2, found.bic - np.log(16)], [peer.aic, peer.bic], rtol=1e-12)
    np.testing.assert_allclose(found.facts["adjusted R²"], peer.rsquared_adj, rtol=1e-10)
    np.testing.assert_allclose(found.facts["p of F"], peer.f_pvalue, rtol=1e-7)


@pytest.mark.parametrize(("factor", "least"), [(0, 9), (1, 9), (100, 7.5), (10_000, 5.5)])
def test_wampler(factor, least):
    x = np.arange(21)
    y = sum(x.astype(object) ** k for k in range(6)) + factor * np.array(WAMPLER_NOISE, object)
    exact = exact_polynomial([Fraction(int(v)) for v in x], [Fraction(int(v)) for v in y], 5)
    assert exact == [1] * 6
    model = fe.LinearRegression().fit(x[:, None] ** np.arange(1.0, 6), y.astype(float))
    assert digits(coefficients(model), np.ones(6)) > least
    if factor:
        assert digits(errors(model), factor * np.array(WAMPLER_ERRORS)) > 11
    # Wampler2: coefficients of very different sizes
    y = sum(Fraction(1, 10**k) * x.astype(object) ** k for k in range(6))
    model = fe.LinearRegression().fit(x[:, None] ** np.arange(1.0, 6), y.astype(float))
    assert digits(coefficients(model), 10.0 ** -np.arange(6)) > 12


@pytest.mark.parametrize("name", ["ccard", "copper", "engel", "stackloss", "statecrime"])
def test_other_data_sets_of_statsmodels(name):
    data = getattr(sm.datasets, name).load_pandas()
    rows, answers = np.array(data.exog, float), np.array(data.endog, float)
    rows = rows[:, np.ptp(rows, axis=0) > 0]
    model, peer = fe.LinearRegression().fit(rows, answers), sm.OLS(answers, sm.add_constant(rows)).fit()
    assert digits(coefficients(model), peer.params) > 9
    assert digits(errors(model), peer.bse) > 9
    np.testing.assert_allclose(model.summary().p_values, peer.pvalues, rtol=1e-6)


def test_far_columns_lose_nothing():
    plain = fe.LinearRegression().fit(X, Y)
    far = fe.LinearRegression().fit(X * 1e6 + 1e8, Y * 1e-3 - 5.0)
    np.testing.assert_allclose(far.coef_, plain.coef_ * 1e-9, rtol=1e-7)
    np.testing.assert_allclose(far.predict(X * 1e6 + 1e8), plain.predict(X) * 1e-3 - 5.0, rtol=1e-9)
    evidence = far.evidence(X * 1e6 + 1e8, Y * 1e-3 - 5.0).nats
    np.testing.assert_allclose(evidence - np.log(1e3), plain.evidence(X, Y).nats, atol=1e-7)


@pytest.mark.parametrize("intercept", [True, False])
def test_everything_of_statsmodels(intercept):
    design = sm.add_constant(X) if intercept else X
    model = fe.LinearRegression(fit_intercept=intercept).fit(X, Y)
    peer = sm.OLS(Y, design).fit()
    own = coefficients(model)[int(not intercept) :]
    np.testing.assert_allclose(own, peer.params, rtol=1e-10)
    np.testing.assert_allclose(errors(model), peer.bse, rtol=1e-10)
    found = model.summary()
    np.testing.assert_allclose(found.log_likelihood, peer.llf, rtol=1e-12)
    facts = [found.facts[name] for name in ("R²", "adjusted R²", "F", "p of F")]
    np.testing.assert_allclose(
        facts, [peer.rsquared, peer.rsquared_adj, peer.fvalue, peer.f_pvalue], rtol=1e-8
    )
    new = RNG.normal(size=(5, 3)) * 3
    theirs = peer.get_prediction(sm.add_constant(new) if intercept else new).summary_frame(alpha=0.2)
    np.testing.assert_allclose(model.predict(new), theirs["mean"], rtol=1e-9)
    ends = np.transpose(model.predict_interval(new, 0.8))
    np.testing.assert_allclose(ends, theirs[["obs_ci_lower", "obs_ci_upper"]], rtol=1e-9)
    ends = np.transpose(model.predict_mean_interval(new, 0.8))
    np.testing.assert_allclose(ends, theirs[["mean_ci_lower", "mean_ci_upper"]], rtol=1e-9)
    ends = np.transpose(model.coef_interval(0.8))
    np.testing.assert_allclose(ends, peer.conf_int(0.2)[int(intercept) :], rtol=1e-9)
    for correction in range(4):
        theirs = getattr(peer, f"cov_HC{correction}")
        np.testing.assert_allclose(model.robust_covariance(X, Y, correction=correction), theirs, rtol=1e-8)
    robust = model.summary(X, y=Y, robust=True)
    np.testing.assert_allclose(robust.stderr, peer.HC3_se, rtol=1e-8)
    assert "robust error" in repr(robust)
    assert "need the rows of the fit" in repr(model.summary(robust=True))
    influence = peer.get_influence()
    np.testing.assert_allclose(model.loo_residuals(X, Y), influence.resid_press, rtol=1e-8)


def test_weights_are_rows_and_variances_are_weights():
    weight = RNG.integers(0, 4, len(X)).astype(float)
    times = np.repeat(np.arange(len(X)), weight.astype(int))
    model = fe.LinearRegression().fit(X, Y, sample_weight=weight)
    copies = fe.LinearRegression().fit(X[times], Y[times])
    np.testing.assert_allclose(coefficients(model), coefficients(copies), rtol=1e-10)
    np.testing.assert_allclose(model.covariance_, copies.covariance_, rtol=1e-9)
    np.testing.assert_allclose(model.log_likelihood_, copies.log_likelihood_, rtol=1e-10)
    np.testing.assert_allclose(
        model.robust_covariance(X, Y, weight), copies.robust_covariance(X[times], Y[times]), rtol=1e-8
    )
    # a row is left out with all its copies
    np.testing.assert_allclose(
        model.loo_residuals(X, Y, weight)[times],
        copies.loo_residuals(X[times], Y[times], groups=times),
        rtol=1e-8,
    )
    variance = np.exp(RNG.normal(size=len(X)))
    peer = sm.WLS(Y, sm.add_constant(X), 1 / variance).fit()
    model = fe.LinearRegression().fit(X, Y, covariance=variance)
    np.testing.assert_allclose(coefficients(model), peer.params, rtol=1e-9)
    np.testing.assert_allclose(errors(model), peer.bse, rtol=1e-9)
    np.testing.assert_allclose(model.log_likelihood_, peer.llf, rtol=1e-10)
    both = fe.LinearRegression().fit(X, Y, weight, covariance=variance)
    copies = fe.LinearRegression().fit(X[times], Y[times], covariance=variance[times])
    np.testing.assert_allclose(both.covariance_, copies.covariance_, rtol=1e-9)
    np.testing.assert_allclose(both.log_likelihood_, copies.log_likelihood_, rtol=1e-9)


def test_generalised_least_squares():
    n = len(X)
    covariance = 0.7 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))) * 4.0
    peer = sm.GLS(Y, sm.add_constant(X), covariance).fit()
    model = fe.LinearRegression().fit(X, Y, covariance=covariance)
    np.testing.assert_allclose(coefficients(model), peer.params, rtol=1e-9)
    np.testing.assert_allclose(errors(model), peer.bse, rtol=1e-9)
    np.testing.assert_allclose(model.log_likelihood_, peer.llf, rtol=1e-9)
    plain = fe.LinearRegression().fit(X, Y, covariance=np.eye(n))
    np.testing.assert_allclose(
        coefficients(plain), coefficients(fe.LinearRegression().fit(X, Y)), rtol=1e-9
    )
    x, y = FILIP_X.split(), FILIP_Y.split()
    powers = np.array(x, float)[:, None] ** np.arange(1, 11)
    hard = fe.LinearRegression().fit(powers, np.array(y, float), covariance=np.full(82, 3.0))
    assert digits(coefficients(hard), FILIP) > 7
    for wrong, message in [
        (covariance[:5, :5], "for each of the 120 rows"),
        (np.zeros(n), "must be positive for each row"),
        (covariance[:5], "or a matrix of finite numbers"),
        (-covariance, "must be positive definite"),
        (np.triu(covariance), "must be symmetric"),
    ]:
        with pytest.raises(ValueError, match=message):
            fe.LinearRegression().fit(X, Y, covariance=wrong)
    with pytest.raises(ValueError, match="no 'sample_weight' with a matrix of covariances"):
        fe.LinearRegression().fit(X, Y, np.ones(n), covariance=covariance)
    with pytest.raises(ValueError, match="'covariance' of complete rows only"):
        fe.LinearRegression().fit(np.where(X > 3, np.nan, X), Y, covariance=covariance)


def test_several_outputs():
    model = fe.LinearRegression().fit(X, TWO)
    peer = Peer().fit(X, TWO)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, rtol=1e-9)
    alone = [fe.LinearRegression().fit(X, y) for y in TWO.T]
    law = model.predict_density(X[:4])
    for output, single in enumerate(alone):
        np.testing.assert_allclose(model.covariance_[output], single.covariance_, rtol=1e-8)
        own = single.predict_interval(X[:4], 0.9)
        np.testing.assert_allclose([end[:, output] for end in law.interval(0.9)], own, rtol=1e-9)
    # the likelihood of the residuals' covariance
    residual = TWO - model.predict(X)
    joint = stats.multivariate_normal(np.zeros(2), residual.T @ residual / len(X)).logpdf(residual).sum()
    np.testing.assert_allclose(model.log_likelihood_, joint, rtol=1e-10)
    # the law of both is a multivariate t
    peer_law = stats.multivariate_t(law.means[0], law.scales[0], model.residual_dof_)
    np.testing.assert_allclose(law.log_prob(TWO[:4])[0], peer_law.logpdf(TWO[0]), rtol=1e-10)
    half = np.array([TWO[0, 0], np.nan])
    np.testing.assert_allclose(
        law.log_prob(np.tile(half, (4, 1)))[0],
        alone[0].predict_density(X[:1]).log_prob(TWO[:1, 0])[0],
        rtol=1e-10,
    )
    draws = law.sample(20_000, np.random.default_rng(0))[:, 0]
    assert (
        stats.kstest(
            stats.t(model.residual_dof_).cdf((draws[:, 0] - law.means[0, 0]) / law.scales[0, 0, 0] ** 0.5),
            "uniform",
        ).pvalue
        > 1e-3
    )
    correlation = law.scales[0, 0, 1] / np.sqrt(law.scales[0, 0, 0] * law.scales[0, 1, 1])
    assert abs(np.corrcoef(draws.T)[0, 1] - correlation) < 0.02
    # without correlation, each by itself
    free = fe.LinearRegression(noise=Diagonal()).fit(X, TWO)
    by_hand = sum(single.evidence(X, y).nats for single, y in zip(alone, TWO.T, strict=True))
    np.testing.assert_allclose(free.evidence(X, TWO).nats, by_hand, rtol=1e-9)
    assert free.evidence(X, TWO).nats.sum() < model.evidence(X, TWO).nats.sum()
    assert model._count_parameters() == 8 + 3
    assert free._count_parameters() == 8 + 2
    frame = pd.DataFrame(TWO, columns=["up", "down"])
    named = fe.LinearRegression().fit(X, frame).summary()
    assert named.names[0] == "up: intercept"
    assert "R² of down" in named.facts
    np.testing.assert_allclose(
        model.loo_residuals(X, TWO)[:, 1], alone[1].loo_residuals(X, TWO[:, 1]), rtol=1e-9
    )


def test_folds_are_left_out_in_one_step():
    folds = np.arange(len(X)) % 5
    found = fe.LinearRegression().fit(X, Y).loo_residuals(X, Y, groups=folds)
    for fold in range(5):
        own = folds == fold
        other = Peer().fit(X[~own], Y[~own])
        np.testing.assert_allclose(found[own], Y[own] - other.predict(X[own]), rtol=1e-8)
    with pytest.raises(ValueError, match="takes the rows, answers and weights of the fit"):
        fe.LinearRegression().fit(X, Y).loo_residuals(X[:50], Y[:50])
    with pytest.raises(ValueError, match="takes the rows, answers and weights of the fit"):
        fe.LinearRegression().fit(X, Y).robust_covariance(X, -Y)
    # a row that alone determines a coefficient has no prediction without it
    lonely = np.column_stack([X, np.eye(len(X))[0]])
    assert np.isnan(fe.LinearRegression().fit(lonely, Y).loo_residuals(lonely, Y)[0])


def test_columns_that_depend_on_each_other():
    twin = np.column_stack([X, X[:, 0] - X[:, 1]])
    frame = pd.DataFrame(twin, columns=["a", "b", "c", "d"])
    with pytest.warns(UserWarning, match="Columns 'a', 'b', 'd' of X depend on each other"):
        model = fe.LinearRegression().fit(frame, Y)
    np.testing.assert_allclose(model.predict(frame), fe.LinearRegression().fit(X, Y).predict(X), rtol=1e-9)
    assert model.rank_ == 4
    assert np.isnan(model.standard_errors_).tolist() == [True, True, False, True]
    # the shortest for columns of standard deviation one
    z = (twin - twin.mean(0)) / twin.std(0)
    shortest = np.linalg.pinv(z) @ (Y - Y.mean())
    np.testing.assert_allclose(model.coef_ * twin.std(0), shortest, rtol=1e-8)
    single = fe.LinearRegression().fit(X, Y)
    np.testing.assert_allclose(model.standard_errors_[2], single.standard_errors_[2], rtol=1e-8)
    np.testing.assert_allclose(model.evidence(frame, Y).nats, single.evidence(X, Y).nats, atol=1e-8)
    # a constant column says nothing, without a word
    flat = fe.LinearRegression().fit(np.column_stack([X, np.full(len(X), 7.0)]), Y)
    np.testing.assert_allclose(flat.coef_, [*single.coef_, 0.0], atol=1e-12)


def test_fewer_rows_than_columns():
    few, wide = RNG.normal(size=(4, 6)), RNG.normal(size=4)
    with pytest.warns(UserWarning, match="fewer rows than coefficients"):
        model = fe.LinearRegression().fit(few, wide)
    np.testing.assert_allclose(model.predict(few), wide, atol=1e-10)
    with pytest.raises(ValueError, match="no residual is left to know the noise by"):
        model.predict_density(few)
    with pytest.raises(ValueError, match="no residual is left"):
        model.evidence(few, wide)
    square = fe.LinearRegression(fit_intercept=False).fit(few[:, :4], wide)
    np.testing.assert_allclose(square.coef_, np.linalg.solve(few[:, :4], wide), rtol=1e-8)
    assert "no log-likelihood" in repr(square.summary())
    flat = fe.LinearRegression().fit(X, np.ones(len(X)))
    np.testing.assert_allclose(flat.predict(X), 1.0)
    with pytest.raises(ValueError, match="on the fitted plane exactly"):
        flat.predict_interval(X)
    with pytest.raises(ValueError, match="too few for the covariance of 3 outputs"):
        fe.LinearRegression().fit(X[:5, :2], np.column_stack([TWO, X[:, 2]])[:5]).predict_density(X[:, :2])


def test_missing_inputs_in_prediction_are_exact():
    truth = fe.LinearRegression().fit(X, Y)
    holes = X.copy()
    holes[:40, 0] = np.nan
    holes[20:60, 2] = np.nan
    evidence = truth.evidence(holes, Y)
    assert evidence.kind is fe.Kind.EXACT
    law = truth.predict_density(holes)
    # by hand, from the moments of the rows: mean and variance of b'x
    mean, covariance = X.mean(0), np.cov(X.T, bias=True)
    seen = [1, 2]
    gain = covariance[0, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    guess = mean[0] + gain @ (X[5, seen] - mean[seen])
    rest = covariance[0, 0] - gain @ covariance[seen, 0]
    row = np.array([1.0, guess, *X[5, seen]])
    np.testing.assert_allclose(law.mean()[5], row @ coefficients(truth), rtol=1e-9)
    design = sm.add_constant(X)
    inverse = np.linalg.inv(design.T @ design)
    square = truth.noise_**2 * (1 + row @ inverse @ row + rest * inverse[1, 1]) + rest * truth.coef_[0] ** 2
    np.testing.assert_allclose(law.variance()[5], square * 116 / 114, rtol=1e-9)
    np.testing.assert_allclose(law.mean()[60:], truth.predict(X[60:]), rtol=1e-12)
    # a density of one's own is drawn from
    drawn = fe.LinearRegression(inputs=fe.GaussianMixture(1, random_state=0)).fit(X, Y)
    estimate = drawn.evidence(holes, Y)
    assert estimate.kind is fe.Kind.ESTIMATE
    np.testing.assert_allclose(estimate.nats[60:], evidence.nats[60:], atol=1e-9)
    np.testing.assert_allclose(drawn.predict(holes)[:60], truth.predict(holes)[:60], atol=2.0)


def test_missing_inputs_in_the_fit_cost_precision_and_no_bias():
    rng = np.random.default_rng(0)
    n = 2000
    x = rng.normal(size=(n, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    y = x @ [1.0, -1.0] + 0.5 * rng.normal(size=n)
    whole = fe.LinearRegression().fit(x, y)
    holes = np.where(rng.random(x.shape) < 0.25, np.nan, x)
    model = fe.LinearRegression().fit(holes, y)
    assert (np.abs(model.coef_ - [1.0, -1.0]) < 4 * model.standard_errors_).all()
    assert (model.standard_errors_ > whole.standard_errors_).all()
    assert "entries of rows were missing" in repr(model.summary())
    assert np.isfinite(model.evidence(holes, y).nats).all()


def test_chunks_are_read_once_and_give_the_same():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 1e6, 0.0, -3.0]
    y = x @ [1.0, 2.0, 3.0, 4.0] + rng.normal(size=5000)
    model = fe.LinearRegression().fit(x, y)
    reads = []

    def part(start):
        return lambda: (reads.append(start), x[start : start + 1000])[1]

    streamed = fe.LinearRegression().fit(fe.Chunks([part(start) for start in range(0, 5000, 1000)]), y)
    assert reads == [0, 0, 1000, 2000, 3000, 4000]
    np.testing.assert_allclose(streamed.coef_, model.coef_, rtol=1e-9)
    np.testing.assert_allclose(streamed.covariance_, model.covariance_, rtol=1e-6)
    np.testing.assert_allclose(streamed.log_likelihood_, model.log_likelihood_, rtol=1e-12)
    np.testing.assert_allclose(streamed.predict(np.full((1, 4), np.nan)), [y.mean()], rtol=1e-9)
    weight = rng.integers(1, 3, 5000).astype(float)
    both = [fe.LinearRegression().fit(rows, y, weight) for rows in (x, fe.Chunks(x, rows=700))]
    np.testing.assert_allclose(both[0].coef_, both[1].coef_, rtol=1e-9)
    # a first chunk that is unlike the others: read again, in better units
    order = np.argsort(x[:, 0])
    x[order[:1000], 3] = 5.0
    sorted_model = fe.LinearRegression().fit(fe.Chunks(x[order], rows=1000), y[order])
    np.testing.assert_allclose(sorted_model.coef_, fe.LinearRegression().fit(x, y).coef_, rtol=1e-8)
    # nearly dependent columns: by orthogonal steps
    near = np.column_stack([x, x[:, 0] + 1e-6 * rng.normal(size=5000)])
    whole, parts = (fe.LinearRegression().fit(rows, y) for rows in (near, fe.Chunks(near, rows=700)))
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-6)
    with pytest.raises(ValueError, match=r"Chunks of complete rows\. Got NaN in part 1"):
        fe.LinearRegression().fit(fe.Chunks([x[:10], np.full((10, 4), np.nan)]), y[:20])
    for wrong in (y[:4999], np.append(y, 1.0)):
        with pytest.raises(ValueError, match="an answer for each row of the Chunks"):
            fe.LinearRegression().fit(fe.Chunks(x, rows=1000), wrong)
    with pytest.raises(ValueError, match="no 'covariance' with Chunks"):
        fe.LinearRegression().fit(fe.Chunks(x, rows=1000), y, covariance=y)


@pytest.mark.parametrize("model", [fe.LinearRegression(), fe.Ridge(10.0), fe.SparseRegression(0.05)])
def test_many_rows_are_scaled_by_some_of_them_at_first(model, monkeypatch):
    rng = np.random.default_rng(4)
    # sorted, far from zero, and with an indicator that few rows have
    x = np.column_stack([np.sort(rng.normal(1e6, 3.0, 900)), rng.normal(size=900), np.arange(900) == 451])
    y = x @ [1.0, -2.0, 5.0] + rng.normal(size=900)
    plain = copy.deepcopy(model).fit(x, y)
    holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    incomplete = copy.deepcopy(model).fit(holes, y)
    monkeypatch.setattr("freeenergy.estimators.labelled._linear_mean._LARGE", 100)
    monkeypatch.setattr("freeenergy.estimators.labelled._linear_mean._SOME_ROWS", 100)
    for expected, rows in ((plain, x), (incomplete, holes)):
        found = copy.deepcopy(model).fit(rows, y)
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-8)
        np.testing.assert_allclose(found.scaling_.scale, expected.scaling_.scale, rtol=1e-9)
        for ends in zip(found.predict_interval(x[:3]), expected.predict_interval(x[:3]), strict=True):
            np.testing.assert_allclose(*ends, rtol=1e-9)


def test_many_rows_are_summed_and_give_the_same():
    rng = np.random.default_rng(1)
    x = rng.normal([0.0, 100.0, 0.0, 0.0], size=(60_000, 4))
    y = x @ [1.0, 2.0, 0.0, -1.0] + rng.normal(size=60_000)
    model, peer = fe.LinearRegression().fit(x, y), Peer().fit(x, y)
    np.testing.assert_allclose(coefficients(model), [peer.intercept_, *peer.coef_], rtol=1e-10, atol=1e-10)
    residual = y - peer.predict(x)
    np.testing.assert_allclose(model.noise_**2 * (60_000 - 5), residual @ residual, rtol=1e-10)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_selection_is_greedy(backward, leave_one_out):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 6))
    x[:, 5] += x[:, 0]
    y = x @ [1.0, 0.0, -0.4, 0.0, 0.2, 0.0] + rng.normal(size=60)

    def criterion(columns):
        model = Peer().fit(x[:, columns], y) if columns else None
        residual = y - (y.mean() if model is None else model.predict(x[:, columns]))
        design = np.column_stack([np.ones(60), x[:, columns]])
        leverage = np.diag(design @ np.linalg.pinv(design))
        if leave_one_out:
            return np.mean((residual / (1 - leverage)) ** 2)
        return 60 * np.log(np.mean(residual**2)) + 2 * (len(columns) + 1)

    # by hand
    inside, values, steps = set(range(6)) if backward else set(), [], []
    values.append(criterion(sorted(inside)))
    for _ in range(6):
        tries = inside if backward else set(range(6)) - inside
        best = min(tries, key=lambda j: criterion(sorted(inside ^ {j})))
        inside = inside ^ {best}
        steps.append(best)
        values.append(criterion(sorted(inside)))
    found = fe.LinearRegression().select(
        pl.DataFrame(x, schema=list("abcdef")),
        y,
        backward=backward,
        penalty=2.0,
        leave_one_out=leave_one_out,
    )
    assert found.steps == steps
    np.testing.assert_allclose(found.criteria, values, rtol=1e-8)
    assert found.names == [list("abcdef")[j] for j in found.columns]
    assert {0, 2} <= set(found.columns)
    if not backward and not leave_one_out:
        strict = fe.LinearRegression().select(x, y)
        assert set(strict.columns) <= set(found.columns)
        with pytest.raises(ValueError, match="complete rows with one answer each"):
            fe.LinearRegression().select(x, np.column_stack([y, y]))


def test_labels_are_columns():
    frame = pl.DataFrame({"size": X[:, 0], "where": np.array(["a", "b", "c"])[np.arange(len(X)) % 3]})
    model = fe.LinearRegression().fit(frame, Y)
    assert model.summary().names == ["intercept", "size", "where=b", "where=c"]
    dummies = np.column_stack([X[:, 0], *(np.arange(len(X)) % 3 == k for k in (1, 2))])
    np.testing.assert_allclose(model.predict(frame), Peer().fit(dummies, Y).predict(dummies), rtol=1e-9)


def test_files_keep_everything(tmp_path):
    model = fe.LinearRegression().fit(X, TWO)
    model.save(tmp_path / "line.safetensors")
    again = fe.load(tmp_path / "line.safetensors")
    holes = np.where(X > 2, np.nan, X)
    np.testing.assert_array_equal(again.evidence(holes, TWO).nats, model.evidence(holes, TWO).nats)
    assert repr(again.summary()) == repr(model.summary())


def coverage_of(trials, seed):
    """How often intervals of level 0.8 hold an answer, its mean, a coefficient; and with missing inputs."""
    rng = np.random.default_rng(seed)
    hits = np.zeros(3)
    for _ in range(trials):
        x = rng.normal(size=(12, 3))
        x[:, 2] += x[:, 0]
        y = x @ [1.0, -1.0, 2.0] + 1.0 + 0.7 * rng.normal(size=12)
        model = fe.LinearRegression().fit(x, y)
        new = rng.normal(size=(1, 3))
        mean = float(new[0] @ [1.0, -1.0, 2.0] + 1.0)
        for place, (ends, truth) in enumerate(
            [
                (model.predict_interval(new, 0.8), mean + 0.7 * rng.normal()),
                (model.predict_mean_interval(new, 0.8), mean),
                ([end[1:2] for end in model.coef_interval(0.8)], -1.0),
            ]
        ):
            hits[place] += ends[0][0] <= truth <= ends[1][0]
    return hits


def binomial(hits, trials, level):
    """Whether each count is one that a binomial law of that level has, but for one in ten thousand."""
    return [stats.binomtest(int(k), trials, level).pvalue > 1e-4 for k in hits]


def test_intervals_hold_their_level():
    assert all(binomial(coverage_of(150, 0), 150, 0.8))


@pytest.mark.slow
def test_intervals_hold_their_level_in_a_thousand_data_sets():
    assert all(binomial(coverage_of(1000, 1), 1000, 0.8))


def test_the_model_is_an_energy_whose_minimum_is_the_fit():
    model = fe.LinearRegression().fit(X, Y)
    z, y = model.scaling_.apply(X), model.answer_scaling_.apply(Y[:, None])

    def energy(theta):
        return np.sum((y[:, 0] - z @ theta[:3] - theta[3]) ** 2)

    best = optimize.minimize(energy, np.zeros(4)).x
    np.testing.assert_allclose(np.asarray(model.model_.function.weight)[0], best[:3], atol=1e-6)
    own = float(eqx.filter_jit(type(model.model_).energy)(model.model_, z[0], y[0]))
    by_hand = -stats.norm(model.predict(X[:1])[0], model.noise_).logpdf(Y[0])
    np.testing.assert_allclose(own + np.log(model.answer_scaling_.scale[0]), by_hand, rtol=1e-10)


def test_polynomials_of_higher_degree_fit_better_until_they_interpolate():
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 10)
    y, new = np.sin(3 * x) + 0.3 * rng.normal(size=10), np.linspace(-0.95, 0.95, 50)
    errors_of = []
    for degree in range(1, 10):
        powers = np.arange(1, degree + 1)
        model = fe.LinearRegression().fit(x[:, None] ** powers, y)
        known = np.mean((model.predict(x[:, None] ** powers) - y) ** 2)
        errors_of.append([known, np.mean((model.predict(new[:, None] ** powers) - np.sin(3 * new)) ** 2)])
    known, unknown = np.transpose(errors_of)
    assert (np.diff(known) < 1e-12).all()
    assert known[-1] < 1e-16
    assert unknown[-1] > 2 * unknown.min()


def test_importance_is_what_the_absence_of_a_column_costs():
    found = fe.LinearRegression().fit(X, Y)
    cost = (found.summary().statistic[1:] * found.noise_) ** 2
    squares = found.noise_**2 * found.residual_dof_
    for column in range(3):
        rest = np.delete(X, column, axis=1)
        gap = Y - Peer().fit(rest, Y).predict(rest)
        np.testing.assert_allclose(gap @ gap - squares, cost[column], rtol=1e-8)
