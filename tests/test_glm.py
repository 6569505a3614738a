"""Generalised linear models beside statsmodels, quadrature, enumeration and finite differences."""

import importlib
import pkgutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import optimize, special, stats
from sklearn.exceptions import ConvergenceWarning
from statsmodels.genmod.families import links
from statsmodels.othermod.betareg import BetaModel

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.estimators import InverseGaussian, ModelledShape, ZeroInflated
from freeenergy.estimators.labelled._links import host_link
from freeenergy.estimators.labelled._responses import RESPONSES
from freeenergy.evaluation import Influence, likelihood_ratio_test, linear_likelihood_is_unbounded

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
COUNTS = RNG.poisson(np.exp(0.4 * X[:, 0] - 0.3 * X[:, 1] + 0.5)).astype(float)


def table(name, log=()):
    """Rows and answers of a data set that statsmodels comes with."""
    data = getattr(sm.datasets, name).load_pandas()
    rows = np.array(data.exog, float)
    for column in log:
        rows[:, column] = np.log(rows[:, column])
    return rows, np.array(data.endog, float)


def scotland():
    return (*table("scotland"), {})


def star98():
    rows, both = table("star98")
    return rows, both[:, 0], {"trials": both.sum(axis=1)}


def cpunish():
    return (*table("cpunish", log=[3]), {})


def fair():
    rows, affairs = table("fair")
    return rows, (affairs > 0).astype(float), {}


def randhie():
    # every fifth of 20,190 rows does
    rows, visits = table("randhie")
    return rows[::5], visits[::5], {}


def strikes():
    rows, durations = table("strikes")
    return rows, durations, {}


def spector():
    return (*table("spector"), {})


def longley():
    return (*table("longley"), {})


def committee():
    return (*table("committee"), {})


def frame(name):
    """The whole of a data set that statsmodels comes with, without rows of which something is unknown."""
    return importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data.dropna()


def columns(name, rows, answer):
    data = frame(name)
    return data[rows].to_numpy(float), data[answer].to_numpy(float), {}


def cancer():
    rows, answers, _ = columns("cancer", ["population"], "cancer")
    return np.log(rows), answers, {}


def anes96():
    # who voted for Dole
    return columns("anes96", ["logpopul", "selfLR", "age", "educ", "income"], "vote")


def ccard():
    return (*table("ccard"), {})


def china_smoking():
    # out of how many of each city who smoke, and do not, had cancer
    counts = frame("china_smoking").to_numpy(float)
    smokes = np.repeat([1.0, 0.0], len(counts))
    city = np.tile(np.eye(len(counts))[:, 1:], (2, 1))
    cases, others = counts[:, [0, 2]].T.ravel(), counts[:, [1, 3]].T.ravel()
    return np.column_stack([smokes, city]), cases, {"trials": cases + others}


def co2():
    # every tenth of 2,225 weeks: growth, and the season
    data = frame("co2")
    time = (data.index.year + data.index.day_of_year / 365.25).to_numpy(float)
    season = 2 * np.pi * time
    rows = np.column_stack([time - 1980, (time - 1980) ** 2, np.sin(season), np.cos(season)])
    return rows[::10], data["co2"].to_numpy(float)[::10], {}


def copper():
    return (*table("copper"), {})


def danish_data():
    return columns("danish_data", ["lry", "lpy", "ibo", "ide"], "lrm")


def lagged(series, *lags):
    """A value given those so many steps before it."""
    most = max(lags)
    rows = np.column_stack([series[most - lag : len(series) - lag] for lag in lags])
    return rows, series[most:], {}


def elec_equip():
    return lagged(frame("elec_equip").to_numpy(float)[:, 0], 1, 12)


def elnino():
    # the temperature of December given that of each month before it, in degrees above 15
    data = frame("elnino").to_numpy(float)[:, 1:] - 15
    return data[:, :-1], data[:, -1], {}


def engel():
    rows, answers = table("engel")
    return np.log(rows), answers, {}


def fertility():
    data = sm.datasets.fertility.load_pandas().data[["1960", "1985", "2010"]].dropna().to_numpy(float)
    return data[:, :2], data[:, 2], {}


def grunfeld():
    return columns("grunfeld", ["value", "capital"], "invest")


def heart():
    # survival of some is only known to be longer: with the time as exposure deaths are Poisson
    data = frame("heart")
    return data[["age"]].to_numpy(float), data["censors"].to_numpy(float), {"exposure": data["survival"]}


def interest_inflation():
    data = frame("interest_inflation")
    return data[["Dp"]].to_numpy(float)[1:], np.diff(data["R"].to_numpy(float)), {}


def macrodata():
    return columns("macrodata", ["realgdp", "tbilrate", "unemp", "infl"], "realinv")


def modechoice():
    # whether a way of travel is taken
    return columns("modechoice", ["ttme", "invc", "invt", "gc", "hinc", "psize"], "choice")


def nile():
    return lagged(frame("nile")["volume"].to_numpy(float), 1)


def stackloss():
    return (*table("stackloss"), {})


def statecrime():
    return columns("statecrime", ["hs_grad", "poverty", "single", "urban"], "murder")


def sunspots():
    return lagged(frame("sunspots")["SUNACTIVITY"].to_numpy(float), 1, 2, 11)


GAUSSIAN, GAMMA = sm.families.Gaussian(), sm.families.Gamma(links.Log())
PEERS = {
    "anes96-logit": (anes96, d.Bernoulli, None, sm.families.Binomial()),
    "ccard-gamma": (ccard, d.Gamma, None, GAMMA),
    "china_smoking-binomial": (china_smoking, d.Binomial, None, sm.families.Binomial()),
    "co2-gaussian": (co2, d.Gaussian, None, GAUSSIAN),
    "copper-gaussian": (copper, d.Gaussian, None, GAUSSIAN),
    "danish_data-gaussian": (danish_data, d.Gaussian, None, GAUSSIAN),
    "elec_equip-gaussian": (elec_equip, d.Gaussian, None, GAUSSIAN),
    "elnino-gamma": (elnino, d.Gamma, None, GAMMA),
    "engel-gamma": (engel, d.Gamma, None, GAMMA),
    "fertility-inverse-gaussian": (
        fertility,
        InverseGaussian(),
        None,
        sm.families.InverseGaussian(links.Log()),
    ),
    "grunfeld-gaussian": (grunfeld, d.Gaussian, None, GAUSSIAN),
    "heart-poisson": (heart, d.Poisson, None, sm.families.Poisson()),
    "interest_inflation-gaussian": (interest_inflation, d.Gaussian, None, GAUSSIAN),
    "macrodata-gamma": (macrodata, d.Gamma, None, GAMMA),
    "modechoice-logit": (modechoice, d.Bernoulli, None, sm.families.Binomial()),
    "nile-gamma": (nile, d.Gamma, None, GAMMA),
    "stackloss-gaussian": (stackloss, d.Gaussian, None, GAUSSIAN),
    "statecrime-gaussian": (statecrime, d.Gaussian, None, GAUSSIAN),
    "sunspots-gaussian": (sunspots, d.Gaussian, None, GAUSSIAN),
    "scotland-gamma": (scotland, d.Gamma, None, sm.families.Gamma(links.Log())),
    "scotland-gamma-canonical": (scotland, d.Gamma, d.Natural(), sm.families.Gamma(links.InversePower())),
    "strikes-gamma": (strikes, d.Gamma, None, sm.families.Gamma(links.Log())),
    "strikes-inverse-gaussian": (
        strikes,
        InverseGaussian(),
        None,
        sm.families.InverseGaussian(links.Log()),
    ),
    "star98-binomial": (star98, d.Binomial, None, sm.families.Binomial()),
    "star98-probit": (star98, d.Binomial, d.Mean(d.normal_cdf), sm.families.Binomial(links.Probit())),
    "star98-cloglog": (star98, d.Binomial, d.Mean(d.gumbel_cdf), sm.families.Binomial(links.CLogLog())),
    "fair-logit": (fair, d.Bernoulli, None, sm.families.Binomial()),
    "spector-probit": (spector, d.Bernoulli, d.Mean(d.normal_cdf), sm.families.Binomial(links.Probit())),
    "cpunish-poisson": (cpunish, d.Poisson, None, sm.families.Poisson()),
    "committee-poisson": (committee, d.Poisson, None, sm.families.Poisson()),
    "cancer-poisson": (cancer, d.Poisson, d.Natural(), sm.families.Poisson()),
    "randhie-poisson": (randhie, d.Poisson, None, sm.families.Poisson()),
    "randhie-root": (randhie, d.Poisson, d.Mean(jnp.square), sm.families.Poisson(links.Sqrt())),
    "longley-gaussian": (longley, d.Gaussian, None, sm.families.Gaussian()),
    "longley-gaussian-log": (longley, d.Gaussian, d.Mean(jnp.exp), sm.families.Gaussian(links.Log())),
}


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.DomainWarning")
@pytest.mark.parametrize("name", PEERS)
def test_data_sets_of_statsmodels(name):
    load, family, link, peer = PEERS[name]
    rows, answers, given = load()
    both = answers
    if "trials" in given:
        both = np.column_stack([answers, given["trials"] - answers])
    theirs = sm.GLM(both, sm.add_constant(rows), family=peer, exposure=given.get("exposure"))
    theirs = theirs.fit(tol=1e-15, maxiter=300)
    ours = fe.GeneralisedLinearModel(family, link).fit(rows, answers, **given)
    found = np.append(ours.intercept_, ours.coef_)
    np.testing.assert_allclose((found - theirs.params) / theirs.bse, 0, atol=1e-5)
    np.testing.assert_allclose(found, theirs.params, rtol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(ours.deviance_, theirs.deviance, rtol=1e-8)
    np.testing.assert_allclose(ours.null_deviance_, theirs.null_deviance, rtol=1e-8)
    np.testing.assert_allclose(ours.pearson_, theirs.pearson_chi2, rtol=1e-6)
    np.testing.assert_allclose(ours.dispersion_, theirs.pearson_chi2 / theirs.df_resid, rtol=1e-6)
    # the dispersion of the likelihood is its own, and not Pearson's, for families that have one
    scale = (
        np.exp(ours.other_intercepts_[0] * (1 if ours.other_names_ == ["log variance"] else -1))
        if (ours.other_names_)
        else 1.0
    )
    np.testing.assert_allclose(ours.log_likelihood_, theirs.llf_scaled(scale=scale), rtol=1e-8)
    np.testing.assert_allclose(ours.evidence(rows, answers, **given).nats.sum(), ours.log_likelihood_)
    np.testing.assert_allclose(ours.predict(rows, **given), theirs.mu * given.get("trials", 1), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.DomainWarning")
@pytest.mark.parametrize(
    ("load", "link", "peer"),
    [(strikes, None, GAMMA), (scotland, d.Natural(), sm.families.Gamma(links.InversePower()))],
)
def test_waiting_times_are_gamma_answers_of_shape_one(load, link, peer):
    rows, answers, _ = load()
    theirs = sm.GLM(answers, sm.add_constant(rows), family=peer).fit(scale=1.0, tol=1e-15, maxiter=300)
    ours = fe.GeneralisedLinearModel(d.Exponential, link).fit(rows, answers)
    np.testing.assert_allclose(np.append(ours.intercept_, ours.coef_), theirs.params, rtol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(ours.deviance_, theirs.deviance, rtol=1e-8)
    law = stats.expon(scale=theirs.mu)
    np.testing.assert_allclose(ours.evidence(rows, answers).nats, law.logpdf(answers), rtol=1e-6)
    # the model on the device has the same law
    z, own = ours.scaling_.apply(rows), ours.answer_scaling_.apply(answers[:, None])
    inside = jax.jit(jax.vmap(ours.model_.log_prob_of))(own, z)
    np.testing.assert_allclose(inside, law.logpdf(answers), rtol=1e-6)


def test_no_data_set_of_statsmodels_is_left_out():
    parts = pkgutil.iter_modules(sm.datasets.__path__)
    there = {part.name for part in parts if part.ispkg} - {"tests"}
    assert there == {name.split("-")[0] for name in PEERS}


def test_influence_beside_statsmodels():
    for load, family, peer in (
        (longley, d.Gaussian, sm.families.Gaussian()),
        (cpunish, d.Poisson, sm.families.Poisson()),
        (spector, d.Bernoulli, sm.families.Binomial()),
    ):
        rows, answers, _ = load()
        fit = sm.GLM(answers, sm.add_constant(rows), family=peer).fit(tol=1e-14)
        theirs = fit.get_influence()
        ours = fe.GeneralisedLinearModel(family).fit(rows, answers).influence(rows, answers)
        np.testing.assert_allclose(ours.leverage, theirs.hat_matrix_diag, rtol=1e-5)
        np.testing.assert_allclose(ours.studentised, theirs.resid_studentized, rtol=1e-5)
        np.testing.assert_allclose(ours.cooks_distance, theirs.cooks_distance[0], rtol=1e-5)
        np.testing.assert_allclose(ours.pearson, fit.resid_pearson, rtol=1e-5)
        np.testing.assert_allclose(ours.deviance, fit.resid_deviance, rtol=1e-5)
        assert isinstance(ours, Influence)
        assert abs(ours.leverage.sum() - rows.shape[1] - 1) < 1e-9
    rows, answers, _ = scotland()
    fit = sm.GLM(answers, sm.add_constant(rows), family=sm.families.Gamma(links.Log())).fit(tol=1e-14)
    ours = fe.GeneralisedLinearModel(d.Gamma).fit(rows, answers).influence(rows, answers)
    np.testing.assert_allclose(ours.leverage, fit.get_hat_matrix_diag(observed=False), rtol=1e-5)


def test_negative_binomial_beside_statsmodels():
    rows, answers, _ = randhie()
    theirs = sm.NegativeBinomial(answers, sm.add_constant(rows)).fit(disp=0, method="newton", maxiter=100)
    ours = fe.GeneralisedLinearModel(d.NegativeBinomial).fit(rows, answers)
    np.testing.assert_allclose(np.append(ours.intercept_, ours.coef_), theirs.params[:-1], rtol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_[:-1], theirs.bse[:-1], rtol=1e-6)
    dispersion = np.exp(ours.other_intercepts_[0])
    np.testing.assert_allclose(dispersion, theirs.params[-1], rtol=1e-6)
    # of the logarithm here
    np.testing.assert_allclose(ours.standard_errors_[-1] * dispersion, theirs.bse[-1], rtol=1e-6)
    np.testing.assert_allclose(
        [ours.log_likelihood_, ours.null_log_likelihood_], [theirs.llf, theirs.llnull]
    )
    summary = ours.summary()
    np.testing.assert_allclose([summary.aic, summary.bic], [theirs.aic, theirs.bic])
    assert (
        ours.likelihood_ratio_test(fe.GeneralisedLinearModel(d.Poisson).fit(rows, answers)).p_value < 1e-9
    )


def test_beta_regression_beside_statsmodels():
    mean = special.expit(X @ [0.5, -1.0] + 0.3)
    shares = np.random.default_rng(1).beta(mean * 12, (1 - mean) * 12)
    theirs = BetaModel(shares, sm.add_constant(X)).fit(disp=0, gtol=1e-7)
    ours = fe.GeneralisedLinearModel(d.Beta).fit(X, shares)
    found = np.concatenate([[ours.intercept_], ours.coef_, ours.other_intercepts_])
    np.testing.assert_allclose(found, theirs.params, rtol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(ours.log_likelihood_, theirs.llf)
    # a precision that depends on the row too
    both = BetaModel(shares, sm.add_constant(X), exog_precision=sm.add_constant(X))
    theirs = both.fit(disp=0, gtol=1e-7)
    ours = fe.GeneralisedLinearModel(d.Beta, varying=True).fit(X, shares)
    found = np.concatenate([[ours.intercept_], ours.coef_, ours.other_intercepts_, ours.other_coef_[0]])
    np.testing.assert_allclose(found, theirs.params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.standard_errors_, theirs.bse, rtol=1e-4)
    np.testing.assert_allclose(ours.log_likelihood_, theirs.llf)


FAMILIES = {
    **{family.__name__: family for family in RESPONSES},
    "InverseGaussian": InverseGaussian(),
    "ModelledShape": ModelledShape(),
    "ModelledShape-known": ModelledShape(scale=0.7),
    "ZeroInflated-Poisson": ZeroInflated(d.Poisson),
    "ZeroInflated-NegativeBinomial": ZeroInflated(d.NegativeBinomial),
}
ANSWERS = {
    "real": np.array([-1.0, 0.2, 3.0]),
    "positive": np.array([0.1, 1.0, 4.0]),
    "share": np.array([0.1, 0.5, 0.95]),
    "count": np.array([0.0, 1.0, 5.0]),
}


def response_of(name):
    family = FAMILIES[name]
    return RESPONSES[family] if isinstance(family, type) else family


def answers_of(response):
    kinds = {"numbers": "real", "positive numbers": "positive"}
    fallback = "count" if response.values.startswith("whole") else "share"
    return ANSWERS[kinds.get(response.values, fallback)]


@pytest.mark.parametrize("name", FAMILIES)
def test_slopes_and_curvatures_of_every_family_by_differences(name):
    response = response_of(name)
    y, trials = answers_of(response), np.full(3, 7.0)
    point = np.array([0.3, *np.linspace(-0.4, 0.5, len(response.others))])[:, None] * np.ones(3)

    def terms(p):
        return response.terms(y, p[0], p[1:], trials)

    found, step = terms(point), 1e-5
    for i in range(len(point)):
        move = np.zeros_like(point)
        move[i] = step
        above, below = terms(point + move), terms(point - move)
        np.testing.assert_allclose(found.slope[i], (above.value - below.value) / (2 * step), atol=1e-8)
        second = -(above.slope - below.slope) / (2 * step)
        np.testing.assert_allclose(found.curvature[i], second, atol=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_laws_of_every_family_are_its_likelihood_and_the_average_curvature_is_the_expected_one(name):
    response = response_of(name)
    y, trials = answers_of(response), np.full(3, 7.0)
    other = np.linspace(-0.4, 0.5, len(response.others))[:, None] * np.ones(3)
    u = np.full(3, 0.3)
    mean = response.mean_of(u)
    laws = response.laws(mean, other, trials)
    value = response.terms(y, u, other, trials).value + response.base(y, trials)
    np.testing.assert_allclose(laws.log_prob(y), value, rtol=1e-9)
    np.testing.assert_allclose(laws.mean(), response.mean(mean, other, trials))
    if not response.dispersed:
        np.testing.assert_allclose(laws.variance(), response.variance(mean, other, trials), rtol=1e-8)
    # draws by quantiles at even distances: averages without noise
    grid = (np.arange(4000) + 0.5) / 4000
    many = response.laws(np.full(4000, mean[0]), np.repeat(other[:, :1], 4000, axis=1), np.full(4000, 7.0))
    draws = many.quantile(grid)
    at = response.terms(
        draws, np.full(4000, 0.3), np.repeat(other[:, :1], 4000, axis=1), np.full(4000, 7.0)
    )
    np.testing.assert_allclose(at.slope.mean(axis=1), 0, atol=0.03)
    if at.expected is not None:
        np.testing.assert_allclose(at.expected.mean(), at.curvature[0, 0].mean(), rtol=0.03)


@pytest.mark.parametrize(
    "inverse",
    [
        d.Mean().inverse,
        jnp.exp,
        jax.nn.sigmoid,
        d.normal_cdf,
        d.gumbel_cdf,
        d.reciprocal,
        d.reciprocal_root,
        jnp.square,
    ],
)
def test_links_on_the_host_are_those_on_the_device(inverse):
    link = host_link(inverse)
    eta = np.array([0.2, 0.5, 0.9])
    mean, slope, bend = (np.broadcast_to(part, 3) for part in link.mean(eta))
    np.testing.assert_allclose(mean, np.asarray(inverse(jnp.asarray(eta))), rtol=1e-12)
    np.testing.assert_allclose(link.predictor(mean), eta, rtol=1e-10)
    for coordinate in (link.real, link.positive, link.unit):
        if coordinate == link.unit and (mean >= 1).any():
            continue
        value, first, second = (np.broadcast_to(part, 3) for part in coordinate(eta))
        above, below = (np.broadcast_to(coordinate(eta + h)[0], 3) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(first, (above - below) / 2e-5, rtol=1e-6)
        up, down = (np.broadcast_to(coordinate(eta + h)[1], 3) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(second, (up - down) / 2e-5, rtol=1e-5, atol=1e-8)
        assert np.isfinite(value).all()
    assert slope.shape == bend.shape


def test_links_far_out_neither_overflow_nor_vanish():
    eta = np.array([-300.0, -40.0, 40.0, 300.0])
    for inverse, most in ((jax.nn.sigmoid, 300.0), (d.normal_cdf, 45_010.0)):
        odds, slope, bend = (np.broadcast_to(part, 4) for part in host_link(inverse).unit(eta))
        assert np.isfinite([odds, slope, bend]).all()
        np.testing.assert_allclose(np.abs(odds[[0, -1]]), most, rtol=1e-3)
    # log(−log(1 − μ)) = η: the odds are e^η below, and exp(e^η) above
    odds = host_link(d.gumbel_cdf).unit(np.array([-300.0, -30.0, 3.0]))[0]
    np.testing.assert_allclose(odds, [-300.0, -30.0, np.exp(3.0)], rtol=1e-8)


def test_any_function_is_a_link():
    # softplus, by its slopes in JAX
    ours = fe.GeneralisedLinearModel(d.Poisson, d.Mean(jax.nn.softplus)).fit(X, COUNTS)
    assert ours.converged_
    mean = ours.predict(X)
    eta = X @ ours.coef_ + ours.intercept_
    np.testing.assert_allclose(mean, np.logaddexp(0, eta), rtol=1e-8)
    # the score vanishes
    score = sm.add_constant(X).T @ ((COUNTS / mean - 1) * special.expit(eta))
    np.testing.assert_allclose(score, 0, atol=1e-6)


def test_gamma_with_a_modelled_shape():
    # numbers of the notes: with k = 1, E[log x] = −0.5772 + log θ
    response = ModelledShape(scale=2.0)
    grid = (np.arange(100_000) + 0.5) / 100_000
    draws = response.laws(np.ones(100_000), np.zeros((0, 1)), np.ones(1)).quantile(grid)
    assert abs(np.log(draws).mean() - (-np.euler_gamma + np.log(2.0))) < 1e-4
    rng = np.random.default_rng(2)
    shape = np.exp(0.4 * X[:, 0] - 0.2 * X[:, 1] + 1.0)
    y = rng.gamma(shape, 2.0)
    known = fe.GeneralisedLinearModel(ModelledShape(scale=2.0)).fit(X, y)
    k = np.exp(X @ known.coef_ + known.intercept_)
    # the score Σ (log x − ψ(k) − log θ) k y of the notes is zero
    score = sm.add_constant(X).T @ ((np.log(y) - special.digamma(k) - np.log(2.0)) * k)
    np.testing.assert_allclose(score, 0, atol=1e-6)
    np.testing.assert_allclose(known.predict(X), 2.0 * k)
    # and the errors come from Σ ψ'(k) k² y yᵀ
    design = sm.add_constant(X)
    information = (design * (special.polygamma(1, k) * k**2)[:, None]).T @ design
    np.testing.assert_allclose(known.covariance_, np.linalg.inv(information), rtol=1e-5)
    free = fe.GeneralisedLinearModel(ModelledShape()).fit(X, y)
    assert free.log_likelihood_ > known.log_likelihood_
    assert free.likelihood_ratio_test(known).p_value > 0.001
    # both parameters of a Gamma, each with a predictor of its own
    both = fe.GeneralisedLinearModel(d.Gamma, varying=True).fit(X, y)
    assert both.log_likelihood_ > free.log_likelihood_ - 1e-6 or both.converged_
    expected = stats.gamma(np.exp(both.other_intercepts_[0] + X @ both.other_coef_[0]), scale=1)
    laws = both.predict_density(X)
    np.testing.assert_allclose(laws.law.args[0], expected.args[0])
    with pytest.raises(ValueError, match=r"'scale' of ModelledShape must be a positive number or None"):
        ModelledShape(scale=0.0)


def test_zero_inflated_counts_against_a_general_minimiser():
    rng = np.random.default_rng(3)
    y = np.where(
        rng.random(120) < 0.3, 0, rng.negative_binomial(2, 2 / (2 + np.exp(0.5 * X[:, 0] + 1)))
    ).astype(float)
    design = sm.add_constant(X)

    def loss(p, dispersed):
        mean = np.exp(design @ p[:3])
        share = special.expit(p[3])
        if dispersed:
            r = np.exp(-p[4])
            logs = stats.nbinom.logpmf(y, r, r / (r + mean))
        else:
            logs = stats.poisson.logpmf(y, mean)
        return -np.sum(
            np.where(y == 0, np.logaddexp(np.log(share), np.log1p(-share) + logs), np.log1p(-share) + logs)
        )

    for family in (d.Poisson, d.NegativeBinomial):
        dispersed = family is d.NegativeBinomial
        ours = fe.GeneralisedLinearModel(ZeroInflated(family)).fit(X, y)
        found = np.concatenate([[ours.intercept_], ours.coef_, ours.other_intercepts_])
        best = optimize.minimize(loss, found + 0.3, args=(dispersed,))
        np.testing.assert_allclose(loss(found, dispersed), -ours.log_likelihood_)
        assert best.fun - 1e-3 < -ours.log_likelihood_ < best.fun + 1e-7
        # errors from the curvature by differences
        step, size = 1e-4, len(found)
        curved = np.empty((size, size))
        for i in range(size):
            for j in range(size):
                a, b = np.eye(size)[i] * step, np.eye(size)[j] * step
                signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
                total = sum(s * t * loss(found + s * a + t * b, dispersed) for s, t in signs)
                curved[i, j] = total / (4 * step**2)
        np.testing.assert_allclose(
            ours.standard_errors_, np.sqrt(np.diag(np.linalg.inv(curved))), rtol=1e-3
        )
    varying = fe.GeneralisedLinearModel(ZeroInflated(d.Poisson), varying=True).fit(X, y)
    constant = fe.GeneralisedLinearModel(ZeroInflated(d.Poisson)).fit(X, y)
    assert varying.log_likelihood_ >= constant.log_likelihood_ - 1e-9
    laws = varying.predict_density(X[:3])
    mass = np.exp([laws.log_prob(np.full(3, k)) for k in range(200)]).sum(axis=0)
    np.testing.assert_allclose(mass, 1)
    with pytest.raises(ValueError, match=r"'family' of ZeroInflated must be Poisson or NegativeBinomial"):
        ZeroInflated(d.Gamma)


def test_errors_of_zero_inflated_counts_are_those_of_fifty_digits():
    x = np.random.default_rng(0).normal(size=(120, 2))
    rng = np.random.default_rng(3)
    mean = np.exp(0.5 * x[:, 0] + 1)
    y = np.where(rng.random(120) < 0.3, 0, rng.negative_binomial(2, 2 / (2 + mean))).astype(float)
    # second differences of −log p with steps of 1e-12, in 50 digits by mpmath.  The Hessian that
    # statsmodels 0.15 writes down for zero-inflated Poisson counts is off by up to 2.7 % here; that of
    # negative binomial ones, by differences, agrees
    found = {
        d.Poisson: [0.0808803466069, 0.0769248982433, 0.070080300456, 0.206999894475],
        d.NegativeBinomial: [
            0.14632675129,
            0.118685139549,
            0.117291392802,
            0.363338433736,
            0.466747714738,
        ],
    }
    for family, errors in found.items():
        model = fe.GeneralisedLinearModel(ZeroInflated(family)).fit(x, y)
        np.testing.assert_allclose(model.standard_errors_, errors, rtol=1e-7)


def test_counts_without_more_spread_than_poisson_are_poisson():
    rng = np.random.default_rng(4)
    y = rng.binomial(4, 0.5, 120).astype(float)
    ours = fe.GeneralisedLinearModel(d.NegativeBinomial).fit(X, y)
    poisson = fe.GeneralisedLinearModel(d.Poisson).fit(X, y)
    np.testing.assert_allclose(ours.coef_, poisson.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.log_likelihood_, poisson.log_likelihood_, atol=1e-5)
    assert ours.held_ == ["log dispersion"]
    assert "The log dispersion is at its bound" in str(ours.summary())


def test_offsets_exposure_and_trials():
    time = np.random.default_rng(5).uniform(0.5, 4, 120)
    theirs = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson(), exposure=time).fit(tol=1e-14)
    ours = fe.GeneralisedLinearModel(d.Poisson).fit(X, COUNTS, exposure=time)
    np.testing.assert_allclose(ours.coef_, theirs.params[1:], rtol=1e-7)
    np.testing.assert_allclose(ours.null_deviance_, theirs.null_deviance, rtol=1e-7)
    same = fe.GeneralisedLinearModel(d.Poisson).fit(X, COUNTS, offset=np.log(time))
    np.testing.assert_allclose(same.coef_, ours.coef_)
    np.testing.assert_allclose(ours.predict(X, exposure=time), theirs.mu, rtol=1e-7)
    np.testing.assert_allclose(ours.predict(X, exposure=2 * time), 2 * theirs.mu, rtol=1e-7)
    np.testing.assert_allclose(ours.predict_density(X, exposure=time).mean(), theirs.mu, rtol=1e-7)
    low, high = ours.predict_interval(X, 0.9, exposure=time)
    np.testing.assert_array_equal(low, stats.poisson.ppf(0.05, ours.predict(X, exposure=time)))
    assert (high > low).all()
    evidence = ours.evidence(X, COUNTS, exposure=time)
    np.testing.assert_allclose(evidence.nats.sum(), theirs.llf)
    # 3 of 5 trials are 3 successes and 2 failures
    trials = np.full(120, 5.0)
    hits = np.minimum(COUNTS, 5)
    once = fe.GeneralisedLinearModel(d.Binomial).fit(X, hits, trials=trials)
    rows = np.concatenate([X, X])
    single = fe.GeneralisedLinearModel(d.Bernoulli)
    single.fit(rows, np.repeat([1.0, 0.0], 120), sample_weight=np.concatenate([hits, 5 - hits]))
    np.testing.assert_allclose(once.coef_, single.coef_, rtol=1e-6)
    np.testing.assert_allclose(once.standard_errors_, single.standard_errors_, rtol=1e-6)


def test_weights_are_repetition():
    weight = np.random.default_rng(6).integers(0, 4, 120)
    for family, answers in ((d.Poisson, COUNTS), (d.Gamma, COUNTS + 0.5), (d.NegativeBinomial, COUNTS)):
        one = fe.GeneralisedLinearModel(family).fit(X, answers, sample_weight=weight)
        other = fe.GeneralisedLinearModel(family).fit(
            np.repeat(X, weight, axis=0), np.repeat(answers, weight)
        )
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-7)
        np.testing.assert_allclose(one.standard_errors_, other.standard_errors_, rtol=1e-6)
        np.testing.assert_allclose(one.deviance_, other.deviance_)
        np.testing.assert_allclose(one.log_likelihood_, other.log_likelihood_)
        np.testing.assert_allclose(one.dispersion_, other.dispersion_)


EDGES = {
    "no counts": (d.Poisson, X, np.zeros(120), {}),
    "a group without counts": (
        d.Poisson,
        (X[:, :1] > 1).astype(float),
        np.where(X[:, 0] > 1, 0, COUNTS),
        {},
    ),
    "separable": (d.Bernoulli, X, (X[:, 0] > 0).astype(float), {}),
    "one class": (d.Bernoulli, X, np.ones(120), {}),
    "all trials": (d.Binomial, X, np.full(120, 4.0), {"trials": np.full(120, 4.0)}),
    "separable-probit": (d.Bernoulli, X, (X[:, 0] > 0).astype(float), {}),
}


@pytest.mark.parametrize("name", EDGES)
def test_likelihoods_without_a_maximum_are_noticed(name):
    family, rows, answers, given = EDGES[name]
    link = d.Mean(d.normal_cdf) if name.endswith("probit") else None
    model = fe.GeneralisedLinearModel(family, link)
    with pytest.warns(ConvergenceWarning, match=r"likelihood has no maximum .* set alpha"):
        model.fit(rows, answers, **given)
    assert not model.converged_
    assert np.isfinite(model.predict(rows)).all()
    assert np.isfinite(model.evidence(rows, answers, **given).nats).all()
    assert fe.GeneralisedLinearModel(family, link, alpha=1.0).fit(rows, answers, **given).converged_ or (
        len(set(answers)) == 1
    )


def test_overlapping_rows_do_not_warn():
    rare = np.where(np.arange(120) % 10 == 0, COUNTS, 0.0)
    assert fe.GeneralisedLinearModel(d.Poisson).fit(X, rare).converged_
    assert not linear_likelihood_is_unbounded(sm.add_constant(X), np.where(rare == 0, -1, 0))


def test_collinear_columns_have_coefficients_of_least_norm():
    wide = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "twice": 2 * X[:, 0], "one": np.ones(120)})
    with pytest.warns(ConvergenceWarning, match=r"columns 'a', 'twice' of X are linear combinations"):
        model = fe.GeneralisedLinearModel(d.Poisson).fit(wide, COUNTS)
    plain = fe.GeneralisedLinearModel(d.Poisson).fit(X, COUNTS)
    np.testing.assert_allclose(model.predict(wide), plain.predict(X), rtol=1e-7)
    np.testing.assert_allclose(model.deviance_, plain.deviance_)
    assert model.rank_ == plain.rank_ == 3
    # of standardised columns both halves are the same
    np.testing.assert_allclose(model.coef_[0], 2 * model.coef_[2], rtol=1e-7)
    assert model.coef_[3] == 0
    assert np.isnan(model.standard_errors_[[1, 3, 4]]).all()
    np.testing.assert_allclose(model.standard_errors_[2], plain.standard_errors_[2], rtol=1e-6)
    assert "coefficients of least norm" in str(model.summary())
    # more columns than rows
    with pytest.warns(ConvergenceWarning, match="linear combinations"):
        many = fe.GeneralisedLinearModel().fit(RNG.normal(size=(5, 9)), np.arange(5.0))
    assert np.isfinite(many.coef_).all()


def test_the_penalty_is_that_of_scikit_learn():
    from sklearn.linear_model import PoissonRegressor

    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    theirs = PoissonRegressor(alpha=0.5, tol=1e-10, max_iter=1000).fit(Z, COUNTS)
    ours = fe.GeneralisedLinearModel(d.Poisson, alpha=0.5 * 120).fit(Z, COUNTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5)
    assert ours.summary().aic is None


def test_without_a_constant():
    theirs = sm.GLM(COUNTS, X, family=sm.families.Poisson()).fit(tol=1e-14)
    ours = fe.GeneralisedLinearModel(d.Poisson, fit_intercept=False).fit(X, COUNTS)
    np.testing.assert_allclose(ours.coef_, theirs.params, rtol=1e-7)
    np.testing.assert_allclose(ours.standard_errors_, theirs.bse, rtol=1e-7)
    assert ours.intercept_ == 0


def test_summary_and_robust_errors():
    frame = pd.DataFrame(X, columns=["dose", "age"])
    theirs = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson()).fit(tol=1e-14)
    model = fe.GeneralisedLinearModel(d.Poisson).fit(frame, COUNTS)
    summary = model.summary()
    assert summary.names == ["intercept", "dose", "age"]
    np.testing.assert_allclose(summary.stderr, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(summary.statistic, theirs.tvalues, rtol=1e-5)
    np.testing.assert_allclose(summary.p_values, theirs.pvalues, rtol=1e-4)
    np.testing.assert_allclose(np.transpose(summary.interval(0.95)), theirs.conf_int(), rtol=1e-5)
    np.testing.assert_allclose(summary.aic, theirs.aic)
    text = str(summary)
    for word in ("deviance", "null deviance", "Pearson's χ²", "dispersion", "z", "std. error"):
        assert word in text
    assert "dose" in summary._repr_html_()
    robust = model.summary(frame, y=COUNTS, robust=True)
    white = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson()).fit(cov_type="HC0", tol=1e-14)
    np.testing.assert_allclose(robust.stderr, white.bse, rtol=1e-6)
    assert "Robust errors need the rows" in str(model.summary(robust=True))
    # quasi-likelihood
    quasi = fe.GeneralisedLinearModel(d.Poisson, overdispersed=True).fit(frame, COUNTS)
    scaled = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson()).fit(scale="X2", tol=1e-14)
    np.testing.assert_allclose(quasi.standard_errors_, scaled.bse, rtol=1e-6)
    # where the dispersion is estimated the statistic is Student's
    gamma = fe.GeneralisedLinearModel(d.Gamma).fit(frame, COUNTS + 0.5).summary()
    assert " t " in str(gamma)
    assert gamma.dof == 117


def test_wald_and_likelihood_ratio_tests():
    theirs = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson()).fit(tol=1e-14)
    frame = pd.DataFrame(X, columns=["dose", "age"])
    model = fe.GeneralisedLinearModel(d.Poisson).fit(frame, COUNTS)
    wald = theirs.wald_test(np.eye(3)[1:], scalar=True)
    both = model.wald_test()
    np.testing.assert_allclose([both.statistic, both.p_value], [wald.statistic, wald.pvalue], rtol=1e-5)
    alone = model.wald_test(["age"])
    np.testing.assert_allclose(alone.p_value, theirs.pvalues[2], rtol=1e-4)
    smaller = fe.GeneralisedLinearModel(d.Poisson).fit(frame[["dose"]], COUNTS)
    ratio = model.likelihood_ratio_test(smaller)
    np.testing.assert_allclose(ratio.statistic, smaller.deviance_ - model.deviance_, rtol=1e-9)
    np.testing.assert_allclose(ratio.p_value, stats.chi2.sf(ratio.statistic, 1))
    with pytest.raises(ValueError, match=r"'degrees' of likelihood_ratio_test must be an int in the range"):
        likelihood_ratio_test(-1.0, -0.5, 0)
    with pytest.raises(
        ValueError, match=r"'smaller' model of likelihood_ratio_test must be fitted to the same"
    ):
        model.likelihood_ratio_test(fe.GeneralisedLinearModel(d.Poisson).fit(X[:50], COUNTS[:50]))


def test_wald_intervals_cover_and_likelihood_ratios_are_chi_squared():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(128, 2))
    inside, ratios, repeats = 0, [], 100
    for _ in range(repeats):
        y = rng.poisson(np.exp(0.5 * rows[:, 0] + 0.3)).astype(float)
        model = fe.GeneralisedLinearModel(d.Poisson).fit(rows, y)
        low, high = model.summary().interval(0.9)
        inside += low[1] <= 0.5 <= high[1]
        ratios.append(
            model.likelihood_ratio_test(fe.GeneralisedLinearModel(d.Poisson).fit(rows[:, :1], y)).statistic
        )
    assert stats.binomtest(int(inside), repeats, 0.9).pvalue > 0.001
    assert stats.kstest(ratios, stats.chi2(1).cdf).pvalue > 0.001


@pytest.mark.slow
def test_intervals_of_every_family_cover():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(128, 1))
    mean, repeats = np.exp(0.4 * rows[:, 0] + 0.5), 1000
    draws = {
        "Poisson": lambda: rng.poisson(mean),
        "Gamma": lambda: rng.gamma(3.0, mean / 3),
        "NegativeBinomial": lambda: rng.negative_binomial(2, 2 / (2 + mean)),
        "InverseGaussian": lambda: rng.wald(mean, 4.0),
        "Gaussian": lambda: rng.normal(0.4 * rows[:, 0] + 0.5, 2.0),
        "Bernoulli": lambda: rng.random(128) < special.expit(0.4 * rows[:, 0] + 0.5),
    }
    for name, draw in draws.items():
        inside, answers = 0, 0.0
        for _ in range(repeats):
            model = fe.GeneralisedLinearModel(FAMILIES[name]).fit(rows, np.asarray(draw(), float))
            low, high = model.summary().interval(0.9)
            inside += low[1] <= 0.4 <= high[1]
            low, high = model.predict_interval(rows[:1], 0.9)
            answers += low[0] <= float(np.asarray(draw(), float)[0]) <= high[0]
        # errors are those of many rows: two in a hundred of leeway
        assert abs(inside / repeats - 0.9) < 0.02 + 3 * np.sqrt(0.09 / repeats), name
        assert answers / repeats > 0.9 - 0.02 - 3 * np.sqrt(0.09 / repeats), name


def test_intervals_know_that_parameters_are_estimates():
    rng = np.random.default_rng(11)
    rows, new = rng.normal(size=(25, 2)), rng.normal(size=(6, 2))
    answers = rows @ [1.0, -0.5] + rng.normal(size=25)
    # of normal answers they are those of least squares, by Student's law
    ends = fe.GeneralisedLinearModel().fit(rows, answers).predict_interval(new, 0.9)
    np.testing.assert_allclose(
        ends, fe.LinearRegression().fit(rows, answers).predict_interval(new, 0.9), rtol=1e-3
    )
    # of counts those of a sum over predictors that are normal about the estimate
    counts = rng.poisson(np.exp(0.5 * rows[:, 0] + 1)).astype(float)
    model = fe.GeneralisedLinearModel(d.Poisson).fit(rows, counts)
    design = np.column_stack([np.ones(6), new])
    spread = np.sqrt(np.einsum("ni,ij,nj->n", design, model.covariance_, design))
    eta = np.log(model.predict(new)) + spread * stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    share = stats.poisson.cdf(np.arange(200)[:, None, None], np.exp(eta)).mean(axis=1)
    expected = [np.argmax(share >= level, axis=0) for level in (0.05, 0.95)]
    np.testing.assert_array_equal(model.predict_interval(new, 0.9), expected)
    # a predictor that has no mean at some nodes, and rows with holes, have ends all the same
    steep = fe.GeneralisedLinearModel(d.Gamma, d.Mean(d.reciprocal)).fit(rows, counts + 0.5)
    holes = new.copy()
    holes[::2, 0] = np.nan
    near = rows[np.argsort(-steep.predict(rows))[:3]]
    for low, high in (steep.predict_interval(near, 0.9), model.predict_interval(holes, 0.9)):
        assert (np.isfinite(low) & (low <= high) & np.isfinite(high)).all()


def test_missing_inputs_are_drawn_and_averaged_over():
    rng = np.random.default_rng(9)
    rows = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 400)
    y = rng.poisson(np.exp(0.4 * rows[:, 0] + 0.2 * rows[:, 1])).astype(float)
    full = fe.GeneralisedLinearModel(d.Poisson).fit(rows, y)
    holes = np.where(rng.random(rows.shape) < 0.2, np.nan, rows)
    model = fe.GeneralisedLinearModel(d.Poisson).fit(holes, y)
    assert np.abs(model.coef_ - full.coef_).max() < 4 * full.standard_errors_[1:].max()
    found = full.evidence(holes, y)
    assert found.kind is fe.Kind.ESTIMATE
    gaps = np.isnan(holes).any(axis=1)
    np.testing.assert_allclose(found.nats[~gaps], full.evidence(rows, y).nats[~gaps])
    assert (found.stderr[gaps] > 0).all()
    # E[exp(w·x)] of a Gaussian row in closed form
    row = np.array([[0.5, np.nan]])
    inputs = full.inputs_
    gain = inputs.covariance[1, 0] / inputs.covariance[0, 0]
    centre = inputs.mean[1] + gain * (0.5 - inputs.mean[0])
    rest = inputs.covariance[1, 1] - gain * inputs.covariance[0, 1]
    w = full.coef_[1]
    exact = np.exp(full.intercept_ + full.coef_[0] * 0.5 + w * centre + 0.5 * w**2 * rest)
    assert abs(full.predict(row)[0] / exact - 1) < 5 * w * np.sqrt(rest / 20)
    assert "Missing entries of X were drawn" in str(model.summary())
    with pytest.raises(ValueError, match=r"influence must have no missing entries"):
        full.influence(holes, y)
    with pytest.raises(ValueError, match=r"predict_mean_interval must have no missing entries"):
        full.predict_mean_interval(holes)


def test_confidence_band_of_the_mean():
    theirs = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson()).fit(tol=1e-14)
    frame = theirs.get_prediction(sm.add_constant(X)).summary_frame(alpha=0.1)
    low, high = fe.GeneralisedLinearModel(d.Poisson).fit(X, COUNTS).predict_mean_interval(X, 0.9)
    np.testing.assert_allclose(low, frame["mean_ci_lower"], rtol=1e-5)
    np.testing.assert_allclose(high, frame["mean_ci_upper"], rtol=1e-5)


def test_the_energy_is_that_of_the_law():
    for family, link, answers in (
        (d.Poisson, None, COUNTS),
        (d.Gamma, d.Mean(jnp.exp), COUNTS + 0.5),
        (d.NegativeBinomial, None, COUNTS),
        (d.Bernoulli, d.Mean(d.normal_cdf), (COUNTS > 1).astype(float)),
    ):
        model = fe.GeneralisedLinearModel(family, link).fit(X, answers)
        z = model.scaling_.apply(X[:1])
        energy = eqx.filter_jit(lambda m, x, y: m.energy(x, y))(model.model_, z[0], answers[:1])
        np.testing.assert_allclose(-energy, model.evidence(X[:1], answers[:1]).nats[0], rtol=1e-8)


def test_files_and_frames(tmp_path):
    frame = pd.DataFrame({"dose": X[:, 0], "group": np.where(X[:, 1] > 0, "b", "a")})
    model = fe.GeneralisedLinearModel(ZeroInflated(d.NegativeBinomial), d.Mean(jnp.exp)).fit(frame, COUNTS)
    model.save(tmp_path / "m.safetensors")
    again = fe.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(again.evidence(frame, COUNTS).nats, model.evidence(frame, COUNTS).nats)
    assert str(again.summary()) == str(model.summary())


@pytest.mark.parametrize(
    ("parameters", "answers", "given", "message"),
    [
        ({"family": "poisson"}, COUNTS, {}, r"'family' parameter of GeneralisedLinearModel must be one of"),
        (
            {"family": d.Poisson, "link": "log"},
            COUNTS,
            {},
            "must be an instance of Mean or Natural or None",
        ),
        (
            {"family": d.Poisson, "varying": True},
            COUNTS,
            {},
            r"'varying' parameter .* must be False for Poisson",
        ),
        (
            {"family": d.Poisson},
            COUNTS - 1,
            {},
            r"'y' of GeneralisedLinearModel must be whole numbers from 0",
        ),
        ({"family": d.Gamma}, COUNTS, {}, r"must be positive numbers for Gamma answers. Got 0 in row \d+"),
        ({"family": d.Bernoulli}, COUNTS, {}, r"whole numbers from 0 to the number of trials"),
        ({"family": d.Beta}, COUNTS, {}, r"numbers between 0 and 1, without both"),
        (
            {"family": d.Poisson},
            np.column_stack([COUNTS, COUNTS]),
            {},
            "must have one number a row. Got 2 columns",
        ),
        (
            {"family": d.Poisson},
            COUNTS,
            {"trials": np.ones(120)},
            "'trials' .* are of Bernoulli or Binomial",
        ),
        (
            {"family": d.Poisson},
            COUNTS,
            {"exposure": np.zeros(120)},
            "'exposure' .* must be a positive number",
        ),
        (
            {"family": d.Gaussian},
            COUNTS,
            {"exposure": np.ones(120)},
            "'exposure' .* needs the logarithm as link",
        ),
        (
            {"family": d.Poisson},
            COUNTS,
            {"offset": np.ones((2, 60))},
            "'offset' .* must be a finite number",
        ),
        (
            {"family": d.Poisson},
            COUNTS,
            {"offset": np.ones(7)},
            "must be a finite number for each row of X",
        ),
        ({"alpha": -1.0}, COUNTS, {}, r"'alpha' parameter .* must be a float in the range \[0, inf\)"),
    ],
)
def test_sentences(parameters, answers, given, message):
    with pytest.raises(ValueError, match=message):
        fe.GeneralisedLinearModel(**parameters).fit(X, answers, **given)


def test_sentences_of_what_comes_after():
    model = fe.GeneralisedLinearModel(d.NegativeBinomial).fit(X, COUNTS)
    with pytest.raises(ValueError, match=r"'influence' of rows is that of a mean alone"):
        model.influence(X, COUNTS)
    with pytest.raises(ValueError, match=r"must be a number for each of the 120 rows of X. Got 3"):
        model.predict(X, offset=np.zeros(3))
