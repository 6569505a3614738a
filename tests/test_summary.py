"""Summaries of fits: criteria and standard errors against closed forms, scikit-learn and statsmodels."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from cases import CASES
from data import ROWS
from scipy import special, stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as PeerProcess
from sklearn.gaussian_process import kernels as peer_kernels
from sklearn.linear_model import LinearRegression as PeerLine
from sklearn.mixture import GaussianMixture as PeerMixture

import freeenergy as fe
from freeenergy import kernels
from freeenergy.bijections import ShiftScale
from freeenergy.distributions import (
    Bernoulli,
    Diagonal,
    DirichletPrior,
    Multinomial,
    Poisson,
    Spherical,
    StudentT,
)
from freeenergy.models import Level, Regressors, autoregressive_flow
from freeenergy.shell import Summary
from freeenergy.shell._summary import _of_networks, named_parameters

RNG = np.random.default_rng(5)
N = len(ROWS)
GROUPS = ROWS + np.where(np.arange(N) < 70, 0.0, 5.0)[:, None]


def test_one_gaussian_has_the_errors_of_the_textbook():
    X = ROWS * [2.0, 30.0] + [5.0, -100.0]
    frame = pd.DataFrame(X, columns=["height", "<weight>"])
    model = fe.GaussianDensity().fit(frame)
    found = model.summary(frame)
    assert found.names[:2] == ["mean[height]", "mean[<weight>]"]
    assert found.names[2:] == [
        "covariance[height, height]",
        "covariance[<weight>, height]",
        "covariance[<weight>, <weight>]",
    ]
    S = np.cov(X.T, bias=True)
    errors = np.sqrt(np.diag(S) / N)
    np.testing.assert_allclose(found.values, [*X.mean(0), S[0, 0], S[1, 0], S[1, 1]], rtol=1e-9)
    np.testing.assert_allclose(found.stderr[:2], errors, rtol=1e-6)
    spread = np.sqrt([2 * S[0, 0] ** 2, S[0, 0] * S[1, 1] + S[0, 1] ** 2, 2 * S[1, 1] ** 2])
    np.testing.assert_allclose(found.stderr[2:], spread / np.sqrt(N), rtol=1e-6)
    lower, upper = found.interval()
    np.testing.assert_allclose(lower[:2], X.mean(0) - 1.959964 * errors, rtol=1e-6)
    np.testing.assert_allclose(upper[:2], X.mean(0) + 1.959964 * errors, rtol=1e-6)
    # the sandwich of a mean is the same; that of a variance has the fourth moment
    robust = model.summary(frame, robust=True)
    np.testing.assert_allclose(robust.stderr[:2], errors, rtol=1e-6)
    squares = (X[:, 0] - X[:, 0].mean()) ** 2
    np.testing.assert_allclose(robust.stderr[2], squares.std() / np.sqrt(N), rtol=1e-6)
    html = found._repr_html_()
    assert "&lt;weight&gt;" in html
    assert "<weight>" not in html
    assert "script" not in html
    for text in ("rows             120", "robust error", "95 % from"):
        assert text in repr(robust)
    table = found.to_frame()
    assert isinstance(table, pl.DataFrame)
    assert table.columns == [
        "parameter",
        "value",
        "stderr",
        "lower",
        "upper",
    ]
    np.testing.assert_allclose(table["stderr"].to_numpy(), found.stderr)
    with pytest.raises(ValueError, match=r"'level' of Summary.interval must be between 0 and 1. Got 2"):
        found.interval(2)


def test_weights_count_as_rows():
    counts = RNG.poisson(3.0, (N, 2)).astype(float)
    weight = RNG.integers(1, 3, N).astype(float)
    model = fe.Mixture(1, Poisson).fit(counts, sample_weight=weight)
    found, known = model.summary(counts, sample_weight=weight), model.summary()
    rates = np.average(counts, axis=0, weights=weight)
    np.testing.assert_allclose(found.values, [1.0, *rates])
    np.testing.assert_allclose(found.stderr[1:], np.sqrt(rates / weight.sum()), rtol=1e-6)
    assert found.size == known.size == weight.sum()
    np.testing.assert_allclose([found.bic, found.aic], [known.bic, known.aic], rtol=1e-9)
    np.testing.assert_allclose(found.log_likelihood, weight @ model.score_samples(counts))


def test_a_share_has_the_error_of_a_share():
    bits = (RNG.random((N, 2)) < [0.3, 0.8]).astype(float)
    found = fe.Mixture(1, Bernoulli).fit(bits).summary(bits)
    p = bits.mean(0)
    expected = dict(zip(found.names, found.stderr, strict=True))
    errors = [error for name, error in expected.items() if not name.startswith("weights")]
    np.testing.assert_allclose(errors, np.sqrt(p * (1 - p) / N), rtol=1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [(None, "full"), (Diagonal(), "diag")])
def test_criteria_of_a_mixture_are_those_of_scikit_learn(ours, theirs):
    model = fe.GaussianMixture(2, ours, tol=1e-10, random_state=0).fit(GROUPS)
    peer = PeerMixture(2, covariance_type=theirs, tol=1e-10, reg_covar=0, max_iter=1000, random_state=0)
    peer.fit(GROUPS)
    for found in (model.summary(), model.summary(GROUPS)):
        assert found.n_parameters == peer._n_parameters()
        np.testing.assert_allclose([found.aic, found.bic], [peer.aic(GROUPS), peer.bic(GROUPS)], rtol=1e-7)
    errors = model.standard_errors(GROUPS)
    found = dict(zip(model.summary(GROUPS).names, model.summary(GROUPS).stderr, strict=True))
    np.testing.assert_allclose(found["components.mean[1, 0]"], errors.means[1, 0], rtol=1e-9)
    np.testing.assert_allclose(found["weights[0]"], errors.weights[0], rtol=1e-9)


def test_a_prior_is_not_part_of_the_likelihood():
    prior = DirichletPrior(Multinomial(jnp.ones(2) / 2, 1), jnp.full(2, 5.0))
    model = fe.GaussianMixture(2, weight_prior=prior, tol=1e-10, random_state=0).fit(GROUPS)
    np.testing.assert_allclose(model.summary().log_likelihood, model.score_samples(GROUPS).sum(), rtol=1e-8)


def test_labels_are_part_of_the_likelihood():
    labels = np.where(np.arange(N) < 20, 0, -1)
    model = fe.GaussianMixture(2, tol=1e-10, random_state=0).fit(GROUPS, labels=labels)
    with_rows = model.summary(GROUPS, labels=labels)
    np.testing.assert_allclose(with_rows.log_likelihood, model.summary().log_likelihood, rtol=1e-8)
    np.testing.assert_allclose(
        with_rows.stderr[:2], model.standard_errors(GROUPS, labels=labels).weights, rtol=1e-9
    )


def test_an_autoregression_has_the_errors_of_statsmodels():
    x = np.zeros(200)
    for t in range(1, 200):
        x[t] = 0.7 * x[t - 1] + RNG.normal()
    x = 3 * x + 10
    found = fe.AutoRegression(1, tol=1e-9).fit(x[:, None]).summary(x[:, None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {"cov_type": "approx", "cov_kwds": {"approx_complex_step": True}}
        peer = sm.tsa.SARIMAX(x, order=(1, 0, 0), trend="c").fit(disp=0, gtol=1e-10, **how)
    assert found.names == ["offset[0]", "coefficients[lag 1, 0, 0]", "noise_covariance[0, 0]"]
    np.testing.assert_allclose(found.values, peer.params, rtol=1e-3)
    np.testing.assert_allclose(found.stderr, peer.bse, rtol=1e-3)
    np.testing.assert_allclose([found.aic, found.bic], [peer.aic, peer.bic], rtol=1e-8)
    assert "time steps       200" in repr(found)


def test_a_level_has_the_errors_of_statsmodels():
    y = 2 * np.cumsum(RNG.normal(size=120)) + 3 * RNG.normal(size=120)
    found = fe.StructuralTimeSeries(Level(), tol=1e-7).fit(y[:, None]).summary(y[:, None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {"cov_type": "approx", "cov_kwds": {"approx_complex_step": True}}
        peer = sm.tsa.UnobservedComponents(y, "llevel", use_exact_diffuse=True).fit(
            disp=0, gtol=1e-10, **how
        )
    assert found.names == ["Level.variance[0]", "variance[0]"]
    np.testing.assert_allclose(found.values, peer.params[::-1], rtol=1e-3)
    np.testing.assert_allclose(found.stderr, peer.bse[::-1], rtol=1e-3)
    np.testing.assert_allclose(found.aic, peer.aic, rtol=1e-8)


def test_a_markov_chain_has_the_errors_of_shares():
    x = RNG.integers(0, 2, (200, 1))
    model = fe.MarkovChain().fit(x)
    found = dict(zip(model.summary(x).names, model.summary(x).stderr, strict=True))
    left = np.bincount(x[:-1, 0])
    p = model.transition_[0, :, 0]
    errors = [found["transition[0, 0, 0]"], found["transition[0, 1, 0]"]]
    np.testing.assert_allclose(errors, np.sqrt(p * (1 - p) / left), rtol=1e-6)


def test_a_hidden_chain_has_the_errors_of_a_numerical_hessian():
    rng = np.random.default_rng(3)
    states = np.repeat([0, 1, 0, 1, 0, 1, 0, 1], 25)
    x = rng.poisson(np.where(states, 9.0, 2.0))
    model = fe.HMM(2, family=Poisson, tol=1e-12, random_state=0).fit(x[:, None].astype(float))
    found = model.summary(x[:, None].astype(float))
    got = dict(zip(found.names, zip(found.values, found.stderr, strict=True), strict=True))
    names = ["members.rate[0, 0]", "members.rate[1, 0]", "transition[0, 1]", "transition[1, 0]"]
    at, errors = np.array([got[name] for name in names]).T

    def log_likelihood(v):
        emission = stats.poisson.pmf(x[:, None], v[None, :2])
        A, belief, total = np.array([[1 - v[2], v[2]], [v[3], 1 - v[3]]]), model.initial_, 0.0
        for t in range(len(x)):
            belief = (belief if t == 0 else belief @ A) * emission[t]
            total, belief = total + np.log(belief.sum()), belief / belief.sum()
        return total

    np.testing.assert_allclose(log_likelihood(at), found.log_likelihood, rtol=1e-9)
    np.testing.assert_allclose(errors, errors_about(log_likelihood, at, 1e-4 * at), rtol=1e-3)
    # one series has one first state: that it is certain is no fault of the rest
    np.testing.assert_allclose(
        np.sort([got[f"initial[{k}]"] for k in range(2)], axis=0), [[0, 0], [1, 0]], atol=1e-20
    )
    assert found.notes == ["held: not fitted, or a probability at the edge of its range."]


def errors_about(log_likelihood, at, steps):
    """Standard errors by second differences of a log-likelihood about its maximum."""
    moves = np.diag(steps)
    hessian = [
        [sum(i * j * log_likelihood(at + i * a + j * b) for i in (1, -1) for j in (1, -1)) for b in moves]
        for a in moves
    ]
    return np.sqrt(np.diag(np.linalg.inv(-np.array(hessian) / (4 * np.outer(steps, steps)))))


def told_of(found):
    """Values and errors of a summary by name."""
    return dict(zip(found.names, zip(found.values, found.stderr, strict=True), strict=True))


def test_a_regression_of_one_state_has_the_errors_of_statsmodels():
    rng = np.random.default_rng(1)
    heat = pd.DataFrame({"temp": 15 + 8 * rng.normal(size=60), "price": 1000 + 50 * rng.normal(size=60)})
    y = 5e4 - 300 * heat["temp"] + 12 * heat["price"] + 2000 * rng.normal(size=60)
    model = fe.HMM(1, fe.models.RegressionEmissions()).fit(y.to_frame("load"), inputs=heat)
    found = told_of(model.summary(y.to_frame("load"), inputs=heat))
    peer = sm.OLS(y, sm.add_constant(heat)).fit()
    names = [
        "emissions.intercept[0, load]",
        "emissions.weights[0, load, temp]",
        "emissions.weights[0, load, price]",
    ]
    values, errors = np.transpose([found[name] for name in names])
    np.testing.assert_allclose(values, peer.params, rtol=1e-6)
    # the variance of largest likelihood is divided by n, not by the degrees of freedom
    np.testing.assert_allclose(errors, peer.bse * np.sqrt(57 / 60), rtol=1e-6)
    np.testing.assert_allclose(
        found["emissions.covariance[0, load, load]"],
        (peer.ssr / 60, peer.ssr / 60 * np.sqrt(2 / 60)),
        rtol=1e-6,
    )
    np.testing.assert_allclose(model.intercept_[0, 0], values[0], rtol=1e-12)
    np.testing.assert_allclose(model.coefficients_[0, 0], values[1:], rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(y.to_frame("load"), inputs=heat), peer.llf, rtol=1e-9)


def test_an_autoregression_with_inputs_has_the_errors_of_statsmodels():
    rng = np.random.default_rng(2)
    u, x = 200 + 30 * rng.normal(size=(60, 1)), np.full(60, 900.0)
    for t in range(1, 60):
        x[t] = 300 + 0.5 * x[t - 1] + 0.8 * u[t, 0] + 20 * rng.normal()
    model = fe.AutoRegression(1, tol=1e-10).fit(x[:, None], inputs=u)
    found = model.summary(x[:, None], inputs=u)
    # the law of the first value is held: the rest is least squares
    peer = sm.OLS(x[1:], np.column_stack([np.ones(59), x[:-1], u[1:]])).fit()
    assert found.names[:3] == ["offset[0]", "coefficients[lag 1, 0, 0]", "input_coefficients[0, 0]"]
    np.testing.assert_allclose(found.values[:3], peer.params, rtol=1e-5)
    np.testing.assert_allclose(found.stderr[:3], peer.bse * np.sqrt(56 / 59), rtol=1e-5)
    attributes = model.offset_[0], model.coefficients_[0, 0, 0], model.input_coefficients_[0, 0]
    np.testing.assert_allclose(attributes, found.values[:3], rtol=1e-12)


def test_a_hidden_chain_with_inputs_tells_numbers_of_raw_rows():
    rng = np.random.default_rng(4)
    n = 120
    u = np.column_stack([20 + 5 * rng.normal(size=n), 0.1 * rng.normal(size=n) - 3])
    states = np.zeros(n, int)
    for t in range(1, n):
        stay = 1 / (1 + np.exp(-1 - 10 * (u[t, 1] + 3)))
        states[t] = states[t - 1] if rng.random() < stay else 1 - states[t - 1]
    y = 1000 * states + np.where(states, 20.0, -10.0) * u[:, 0] + 30 * rng.normal(size=n)
    X, inputs = pl.DataFrame({"load": y}), pl.DataFrame(u, schema=["temp", "promo"])
    family, transition = fe.models.RegressionEmissions(), fe.models.LogisticTransition()
    model = fe.HMM(2, family, transition=transition, tol=1e-11, random_state=0).fit(X, inputs=inputs)
    summary = model.summary(X, inputs=inputs)
    found = told_of(summary)
    laws = [
        *(f"emissions.intercept[{k}, load]" for k in range(2)),
        *(f"emissions.weights[{k}, load, {name}]" for k in range(2) for name in inputs.columns),
        *(f"emissions.covariance[{k}, load, load]" for k in range(2)),
    ]
    moves = [
        "transition.intercept[0, 1]",
        *(f"transition.weights[0, 1, {name}]" for name in inputs.columns),
        "transition.intercept[1, 0]",
        *(f"transition.weights[1, 0, {name}]" for name in inputs.columns),
    ]
    at, errors = np.transpose([found[name] for name in laws + moves])
    known = np.column_stack([np.ones(n), u])

    def log_likelihood(v):
        means = v[:2, None] + v[2:6].reshape(2, 2) @ u.T
        emission = stats.norm.pdf(y[None], means, np.sqrt(v[6:8, None]))
        leave = special.expit(known @ v[8:].reshape(2, 3).T)
        belief, total = model.initial_, 0.0
        for t in range(n):
            if t:
                kept = belief * (1 - leave[t])
                belief = kept + (belief * leave[t])[::-1]
            belief = belief * emission[:, t]
            total, belief = total + np.log(belief.sum()), belief / belief.sum()
        return total

    np.testing.assert_allclose(log_likelihood(at), model.score_samples(X, inputs=inputs)[0], rtol=1e-9)
    np.testing.assert_allclose(errors, errors_about(log_likelihood, at, 0.002 * errors), rtol=1e-3)
    # one number of each row of a softmax says nothing: it is that of staying
    assert found["transition.weights[0, 0, temp]"] == found["transition.intercept[1, 1]"] == (0, 0)
    assert summary.n_parameters == len(at) + 1
    np.testing.assert_allclose(model.intercept_.ravel(), at[:2], rtol=1e-12)
    np.testing.assert_allclose(model.coefficients_.ravel(), at[2:6], rtol=1e-12)
    assert not any("scaling_" in note for note in summary.notes)
    assert any("log-odds of going from a to b" in note for note in summary.notes)
    assert "transition.weights[0, 1, promo]" in summary._repr_html_()


def test_a_linear_system_with_inputs_tells_numbers_of_raw_rows():
    rng = np.random.default_rng(4)
    series, inputs = [], []
    for _ in range(8):
        u, x, y = 50 + 4 * rng.normal(size=(12, 1)), 3 * rng.normal(), []
        for t in range(12):
            x = 0.6 * x + 0.3 * (u[t, 0] - 50) + rng.normal() if t else x
            means = np.array([30 + 5 * x + 0.8 * u[t, 0], -1000 - 100 * x])
            y.append(means + [3, 60] * rng.normal(size=2))
        series.append(np.array(y))
        inputs.append(u)
    model = fe.LinearGaussianSSM(1, random_state=0, tol=1e-12).fit(series, inputs=inputs)
    found = told_of(model.summary(series, inputs=inputs))
    names = ["transition[0, 0]", *(f"emission_noise.variance[{i}]" for i in range(2))]
    names += [f"input_emission[{i}, 0]" for i in range(2)]
    names += ["mean[0]", "mean[1]", "emission[1, 0]", "noise[0, 0]", "input_transition[0, 0]"]
    names += ["initial_mean[0]", "initial_covariance[0, 0]"]
    at, errors = np.transpose([found[name] for name in names])
    offset, first = found["offset[0]"][0], found["emission[0, 0]"][0]

    def log_likelihood(v):
        A, R, D, c, C = v[0], v[1:3], v[3:5], v[5:7], np.array([first, v[7]])
        # the states are sums of powers of A: y is one normal vector for each series
        powers = np.tril(A ** np.abs(np.subtract.outer(np.arange(12), np.arange(12))))
        spread = np.kron(powers @ np.diag([v[11]] + 11 * [v[8]]) @ powers.T, np.outer(C, C))
        spread += np.kron(np.eye(12), np.diag(R))
        total = 0.0
        for u, y in zip(inputs, series, strict=True):
            pushed = np.concatenate([[v[10]], v[9] * u[1:, 0] + offset])
            means = np.outer(powers @ pushed, C) + u @ D[None] + c
            total += stats.multivariate_normal(means.ravel(), spread).logpdf(y.ravel())
        return total

    total = model.score_samples(series, inputs=inputs).sum()
    np.testing.assert_allclose(log_likelihood(at), total, rtol=1e-9)
    # the unit and the origin of the state are free: what has them has no error, and is held here
    np.testing.assert_array_equal(np.isfinite(errors), np.arange(len(at)) < 5)
    assert np.isnan([found["offset[0]"][1], found["emission[0, 0]"][1]]).all()
    steps = np.where(np.isfinite(errors), 0.03 * errors, 3e-3 * np.abs(at))
    np.testing.assert_allclose(errors_about(log_likelihood, at, steps)[:5], errors[:5], rtol=2e-3)
    told = [model.transition_, model.offset_, model.noise_, model.emission_[1], model.mean_]
    told += [model.input_transition_, model.input_emission_]
    values = [found[name][0] for name in (names[0], "offset[0]", names[8], names[7])]
    values += [*at[5:7], at[9], *at[3:5]]
    np.testing.assert_allclose(np.concatenate([a.ravel() for a in told]), values, rtol=1e-12)
    np.testing.assert_allclose(np.diag(model.emission_noise_), at[1:3], rtol=1e-12)


def test_a_linear_system_holds_what_was_not_fitted():
    x = ROWS[:24] @ [[1.0], [0.5]] * 3 + 10
    found = fe.LinearGaussianSSM(1, random_state=0, max_iter=30, tol=1e-3).fit(x).summary(x)
    errors = dict(zip(found.names, found.stderr, strict=True))
    assert errors["initial_mean[0]"] == errors["initial_covariance[0, 0]"] == 0
    assert "held: not fitted, or a probability at the edge of its range." in found.notes
    # mean and noise; gain and transition of the state
    assert found.n_parameters == 4


def test_what_is_not_there_is_said():
    model = fe.KMeans(2, random_state=0).fit(GROUPS)
    found = model.summary(GROUPS)
    assert found.aic is None
    assert found.bic is None
    assert found.log_likelihood is None
    assert "KMeans is no density of X: it has no log-likelihood." in found.notes
    assert any(re.match("KMeans does not maximise an exact likelihood", note) for note in found.notes)
    model = fe.GaussianMixture(2, random_state=0).fit(GROUPS)
    assert "Standard errors need the rows of the fit: summary(X)." in model.summary().notes
    with pytest.raises(ValueError, match=r"GaussianMixture.summary takes 'sample_weight' only with the X"):
        model.summary(sample_weight=np.ones(N))
    with pytest.raises(ValueError, match=r"takes beside X what its fit takes. Got 'inputs'"):
        model.summary(GROUPS, inputs=1)
    with pytest.warns(UserWarning, match="reached the limit"):
        model = fe.GaussianMixture(2, random_state=0, max_iter=1).fit(GROUPS)
    assert any("reached the limit of 1 iterations" in note for note in model.summary().notes)
    # loadings turn without any change of the likelihood
    X = np.column_stack(
        [ROWS, ROWS @ [1.0, 2.0] + RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=N)]
    )
    turned = fe.FactorAnalysis(2).fit(X).summary(X)
    assert any("singular" in note for note in turned.notes)
    assert np.isfinite(turned.stderr[[name.startswith("mean") for name in turned.names]]).all()
    assert turned.to_frame()["stderr"].null_count() == np.isnan(turned.stderr).sum() > 0


def test_what_is_not_maximised_has_no_criteria():
    model = fe.KernelDensity().fit(ROWS)
    found = model.summary(ROWS)
    assert found.aic is None
    assert found.bic is None
    np.testing.assert_allclose(found.log_likelihood, model.score_samples(ROWS).sum())
    assert (
        "AIC and BIC need parameters of the largest likelihood, which this fit does not choose."
        in found.notes
    )


def test_a_bound_has_no_criteria():
    counts = RNG.integers(0, 3, (30, 4))
    model = fe.LatentDirichletAllocation(2, random_state=0).fit(counts)
    found = model.summary(counts)
    assert found.aic is None
    assert found.kind is not fe.Kind.EXACT
    assert "AIC and BIC need the exact log-likelihood, which this model does not know." in found.notes


def test_a_file_keeps_what_a_summary_needs(tmp_path):
    model = fe.GaussianMixture(2, random_state=0).fit(GROUPS)
    model.save(tmp_path / "model.safetensors")
    assert repr(fe.load(tmp_path / "model.safetensors").summary()) == repr(model.summary())
    # of files of earlier versions the number of rows is not known
    del model.fitted_size_, model.stop_reason_
    found = model.summary()
    assert found.size is None
    assert found.aic is None
    assert "The log-likelihood needs the rows of the fit: summary(X)." in found.notes
    assert model.summary(GROUPS).size == N


def test_columns_of_several_kinds_are_named_with_their_labels():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "size": rng.normal(size=N),
            "where": rng.choice(["here", "there", "nowhere"], N),
            "yes": rng.random(N) < 0.3,
            "city": rng.choice(["Ulm", "Bonn"], N, p=[0.2, 0.8]),
            "visits": rng.poisson(3.0, N),
        }
    )
    # one component without a prior worth the name: the textbook's numbers
    found = fe.Mixture(1, family="by column").fit(frame).summary(frame)
    told = dict(zip(found.names, zip(found.values, found.stderr, strict=True), strict=True))
    share, ulm = (frame["where"] == "nowhere").mean(), (frame["city"] == "Ulm").mean()
    for name, value, error in (
        ("mean[0, size]", frame["size"].mean(), frame["size"].std(ddof=0) / np.sqrt(N)),
        ("rate[0, visits]", frame["visits"].mean(), np.sqrt(frame["visits"].mean() / N)),
        ("probabilities[0, where, nowhere]", share, np.sqrt(share * (1 - share) / N)),
        # of two labels that of the second
        ("probability[0, city, Ulm]", ulm, np.sqrt(ulm * (1 - ulm) / N)),
    ):
        np.testing.assert_allclose(told[name], (value, error), rtol=0.03, err_msg=name)
    assert {
        "probabilities[0, where, here]",
        "probabilities[0, where, there]",
        "probability[0, yes]",
    } < told.keys()

    names = fe.HMM(2, "by column", random_state=0, max_iter=20, tol=1e-2).fit(frame).summary().names
    assert {"mean[1, size]", "rate[0, visits]", "probabilities[1, where, nowhere]"} < set(names)


def test_a_variance_of_all_columns_is_one_of_a_member():
    frame = pl.DataFrame(GROUPS, schema=["height", "weight"])
    found = fe.GaussianMixture(2, Spherical(), random_state=0).fit(frame).summary()
    assert found.names[-2:] == [f"components.covariance.variance[{k}]" for k in range(2)]
    assert found.names[2] == "components.mean[0, height]"
    found = fe.GaussianDensity(Diagonal()).fit(frame).summary()
    assert found.names[2:] == ["covariance.variance[height]", "covariance.variance[weight]"]
    np.testing.assert_allclose(found.values[2:], GROUPS.var(axis=0), rtol=1e-6)
    found = fe.GaussianDensity(Spherical()).fit(frame).summary()
    assert found.names[2:] == ["covariance.variance"]


def test_parameters_are_fitted_attributes_in_units_of_the_columns():
    frame = pd.DataFrame(ROWS * [2.0, 30.0] + [5.0, -100.0], columns=["height", "weight"])
    plane = fe.PCA(1).fit(frame)
    found = plane.summary()
    assert found.names[:4] == [
        "mean[height]",
        "mean[weight]",
        "components[0, height]",
        "components[0, weight]",
    ]
    np.testing.assert_allclose(
        found.values, [*frame.mean(), *plane.components_[0], *plane.explained_variance_]
    )
    rule = fe.Perceptron(averaged=True).fit(frame, np.where(frame["height"] > 5, "tall", "small"))
    told = dict(zip(rule.summary().names, rule.summary().values, strict=True))
    np.testing.assert_allclose(told["coef[tall, weight]"], rule.coef_[1, 1])
    np.testing.assert_allclose(told["intercept[small]"], rule.intercept_[0])
    clusters = fe.KMeans(2, random_state=0).fit(frame)
    assert clusters.summary().names[-1] == "cluster_centers[1, weight]"
    np.testing.assert_allclose(clusters.summary().values, clusters.cluster_centers_.ravel())


def _line(dof):
    values, errors = np.array([2.0, 0.0, 1.0]), np.array([0.5, 0.1, np.nan])
    return Summary(
        *("Line()", 10.0, "rows", -3.0, fe.Kind.EXACT, 3, 1, True, ["a", "b", "c"], values, errors, []),
        dof=dof,
        facts={"R²": 0.875},
    )


def test_coefficients_have_a_statistic_and_its_p_value():
    found = _line(8.0)
    np.testing.assert_allclose(found.statistic, [4.0, 0.0, np.nan])
    np.testing.assert_allclose(found.p_values, [2 * stats.t.sf(4.0, 8), 1.0, np.nan])
    width = 0.5 * stats.t.ppf(0.975, 8)
    np.testing.assert_allclose([end[0] for end in found.interval()], [2 - width, 2 + width])
    text = repr(found)
    for part in ("R²               0.875", "to  t        p", "3.153  4  0.00395"):
        assert part in text
    assert "R²" in found._repr_html_()
    assert found.to_frame().columns[-2:] == ["statistic", "p"]
    normal = _line(np.inf)
    np.testing.assert_allclose(normal.p_values[0], 2 * stats.norm.sf(4.0))
    assert " z " in repr(normal)
    without = _line(None)
    assert without.statistic is None
    assert without.p_values is None
    assert "statistic" not in without.to_frame().columns


# rows of a function with noise, of columns in different units
OTHER = np.random.default_rng(11)
PLACES = OTHER.normal(size=(60, 2)) * [0.1, 30.0] + [2.0, -100.0]
HEIGHTS = (
    5
    + 40 * np.sin(10 * (PLACES[:, 0] - 2))
    + 0.3 * (PLACES[:, 1] + 100)
    + 5 * OTHER.normal(size=len(PLACES))
)
NOISE = OTHER.normal(size=len(PLACES))
ABOVE = HEIGHTS + 10 * NOISE > 5
LENGTHS = ["kernel.kernel.lengthscale[x0]", "kernel.kernel.lengthscale[x1]"]


def in_both_units(model, y, units=10.0):
    """How many times as large each number is with columns in other units and answers `units` as large."""
    found = model.fit(PLACES, y).summary()
    other = model.fit(PLACES * [1000.0, 4.0] + 5.0, y * units).summary()
    assert other.names == found.names
    assert not any("rescaled" in note for note in found.notes)
    return dict(zip(found.names, other.values / found.values, strict=True))


def test_a_gaussian_process_has_the_parameters_of_scikit_learn():
    model = fe.GaussianProcess(prior=False, tol=1e-9).fit(PLACES, HEIGHTS)
    found = model.summary()
    assert found.names == [*LENGTHS, "kernel.variance", "noise[0]"]
    one, two, variance, noise = found.values
    assert noise == model.noise_[0]
    assert "The kernel is of columns and answers less their means." in found.notes
    start = peer_kernels.ConstantKernel(variance) * peer_kernels.RBF([one, two]) + peer_kernels.WhiteKernel(
        noise
    )
    # as the kernel is, of columns and answers as they are: the same evidence, at its top
    peer = PeerProcess(start, alpha=0.0, optimizer=None).fit(PLACES, HEIGHTS - HEIGHTS.mean())
    value, slope = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    assert abs(value - found.log_likelihood) < 1e-6
    assert np.abs(slope).max() < 1e-3


@pytest.mark.parametrize(
    ("model", "factors"),
    [
        (
            fe.GaussianProcess(),
            {LENGTHS[0]: 1e3, LENGTHS[1]: 4.0, "kernel.variance": 100.0, "noise[0]": 100.0},
        ),
        (
            fe.GaussianProcess(kernels.Linear(offset=2.0) + 2.0 * kernels.Matern(1.5), learn=False),
            {
                "kernel.first.variance[x0]": 1e-4,
                "kernel.first.variance[x1]": 100 / 16,
                "kernel.first.offset": 100.0,
                "kernel.second.kernel.lengthscale[x0]": 1e3,
                "kernel.second.kernel.lengthscale[x1]": 4.0,
                "kernel.second.variance": 100.0,
                "noise[0]": 100.0,
            },
        ),
        (
            fe.GaussianProcess(family=StudentT, learn=False),
            {
                LENGTHS[0]: 1e3,
                LENGTHS[1]: 4.0,
                "kernel.variance": 100.0,
                "offset[0]": 10.0,
                "answer.learned.scale[0]": 10.0,
                "answer.learned.df[0]": 1.0,
            },
        ),
        (
            fe.KernelRidge(),
            {LENGTHS[0]: 1e3, LENGTHS[1]: 4.0, "kernel.variance": 100.0, "noise[0]": 100.0},
        ),
        (
            fe.NadarayaWatson(),
            {"kernel.lengthscale": 1.0, "bandwidth[x0]": 1e3, "bandwidth[x1]": 4.0, "width[0]": 10.0},
        ),
        (
            fe.Conformal(fe.GaussianProcess(learn=False), random_state=0),
            {LENGTHS[0]: 1e3, LENGTHS[1]: 4.0, "kernel.variance": 100.0, "noise[0]": 100.0},
        ),
    ],
    ids=lambda model: type(model).__name__ if hasattr(model, "fit") else "",
)
def test_other_units_move_what_is_listed_by_their_factors(model, factors):
    moved = in_both_units(model, HEIGHTS)
    assert moved.keys() == factors.keys()
    for name, factor in factors.items():
        np.testing.assert_allclose(moved[name], factor, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("model", "lengths"),
    [
        (fe.GaussianProcessClassifier(learn=False), LENGTHS),
        (fe.KernelLogisticRegression(), ["kernel.lengthscale[x0]", "kernel.lengthscale[x1]"]),
        (fe.SupportVectorMachine(), ["kernel.lengthscale[x0]", "kernel.lengthscale[x1]"]),
    ],
    ids=lambda model: type(model).__name__ if hasattr(model, "fit") else "",
)
def test_labels_have_no_unit(model, lengths):
    with np.errstate(invalid="ignore"):
        moved = in_both_units(model, ABOVE, 1)
    assert [moved.pop(name) for name in lengths] == pytest.approx([1e3, 4.0], rel=1e-9)
    np.testing.assert_allclose([value for value in moved.values() if not np.isnan(value)], 1.0, rtol=1e-6)


def test_outputs_have_the_names_and_units_of_their_own():
    answers = pd.DataFrame({"height": HEIGHTS, "light": ABOVE * 0.01})
    frame = pd.DataFrame(PLACES, columns=["east", "north"])
    model = fe.GaussianProcess(learn=False).fit(frame, answers)
    found = model.summary()
    listed = dict(zip(found.names, found.values, strict=True))
    assert list(listed) == [
        "kernel.kernel.lengthscale[east]",
        "kernel.kernel.lengthscale[north]",
        "kernel.variance[height]",
        "kernel.variance[light]",
        "noise[height]",
        "noise[light]",
    ]
    # lengths and variances are those of the default kernel in units of standard deviations
    np.testing.assert_allclose(found.values[:2], PLACES.std(axis=0))
    np.testing.assert_allclose(found.values[2:4], answers.to_numpy().var(axis=0))
    np.testing.assert_array_equal(found.values[4:], model.noise_)
    together = fe.GaussianProcess(rank=1, learn=False).fit(frame, answers)
    found = together.summary()
    listed = dict(zip(found.names, found.values, strict=True))
    assert listed["output_covariance[light, height]"] == together.output_covariance_[1, 0]
    assert listed["kernel.variance"] == 1.0
    few = fe.GaussianProcess(inducing=PLACES[:3], learn=False).fit(frame, HEIGHTS).summary()
    assert few.values[few.names.index("inducing[2, north]")] == pytest.approx(PLACES[2, 1])


def test_a_conformal_regressor_has_the_coefficients_of_its_estimator():
    frame = pd.DataFrame(PLACES, columns=["east", "north"])
    found = fe.Conformal(folds=5, random_state=0).fit(frame, HEIGHTS).summary(frame, y=HEIGHTS)
    plain = fe.LinearRegression().fit(frame, HEIGHTS).summary()
    assert found.names == plain.names
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-9)
    np.testing.assert_allclose(found.stderr, plain.stderr, rtol=1e-9)
    assert found.facts == pytest.approx(plain.facts)
    assert found.dof == plain.dof
    assert "Parameters are those of a fitted LinearRegression." in found.notes
    robust = fe.Conformal(folds=5, random_state=0).fit(frame, HEIGHTS)
    told = robust.summary(frame, y=HEIGHTS, robust=True)
    assert told.stderr is None
    assert "Robust standard errors are in the summaries of the members, with their rows." in told.notes
    other = fe.Conformal(PeerLine(), random_state=0).fit(frame, HEIGHTS).summary()
    assert other.names == []
    assert "LinearRegression is of another library, which has its parameters." in other.notes
    labels = fe.ConformalClassifier(random_state=0).fit(frame, ABOVE).summary()
    assert labels.names == ["intercept", "east", "north"]


@pytest.mark.parametrize("chain", [False, True])
def test_several_labels_have_the_coefficients_of_each(chain):
    frame = pd.DataFrame(PLACES, columns=["east", "north"])
    labels = pd.DataFrame({"above": ABOVE, "right": PLACES[:, 0] + 0.1 * NOISE > 2})
    model = fe.MultiLabel(fe.SoftmaxRegression(C=None), chain=chain).fit(frame, labels)
    found = model.summary()
    beside = frame.assign(**{"above=True": labels["above"] * 1.0}) if chain else frame
    first = fe.SoftmaxRegression(C=None).fit(frame, labels["above"]).summary()
    second = fe.SoftmaxRegression(C=None).fit(beside, labels["right"]).summary()
    names = [f"above: {name}" for name in first.names] + [f"right: {name}" for name in second.names]
    assert found.names == names
    np.testing.assert_allclose(found.values, [*first.values, *second.values], rtol=1e-6)
    np.testing.assert_allclose(found.stderr, [*first.stderr, *second.stderr], rtol=1e-6)
    one = fe.MultiLabel(fe.SoftmaxRegression(C=None)).fit(frame, ABOVE).summary()
    assert one.names == first.names


def test_what_a_decoder_leaves_has_units():
    model = clone(CASES["VAE"].estimator).set_params(random_state=0, max_iter=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = model.fit(ROWS).summary()
        frame = pl.DataFrame(ROWS * [1000.0, 4.0] + 5.0, schema=["height", "weight"])
        other = model.fit(frame).summary()
    assert found.names == [f"emission.learned.covariance.variance[{k}]" for k in range(2)]
    assert other.names == [f"emission.learned.covariance.variance[{name}]" for name in frame.columns]
    np.testing.assert_allclose(other.values / found.values, [1e6, 16.0], rtol=1e-3)
    # a part of the variance of the columns
    assert (found.values < ROWS.var(axis=0) * 1.1).all()
    assert any("weights of networks are not listed" in note for note in found.notes)


def test_weights_of_masked_networks_are_counted_too():
    model = autoregressive_flow(2, ShiftScale(), layers=1, width=4, depth=1, key=jax.random.key(0))
    left = set(named_parameters(model)) - _of_networks(model)
    assert left == {"base.mean", "base.covariance.variance"}


def test_regressors_of_a_structural_series_have_the_coefficients_of_generalised_least_squares():
    rng = np.random.default_rng(5)
    frames, T = [], 60
    for name in ("north", "south"):
        u = np.column_stack([rng.random(T) < 0.2, rng.normal(50, 10, T)]).astype(float)
        y = 300 + np.cumsum(rng.normal(size=T)) + u @ [20.0, -3.0] + 4 * rng.normal(size=T)
        y[rng.choice(T, 5, replace=False)] = np.nan
        frames.append(pd.DataFrame({"region": name, "promo": u[:, 0], "price": u[:, 1], "sold": y}))
    frame = pd.concat(frames, ignore_index=True)
    X = fe.series(frame, series="region", inputs=["promo", "price"])
    model = fe.StructuralTimeSeries(Level() + Regressors(2), tol=1e-5).fit(X)
    found, summary = model.coefficients(X), model.summary(X)
    told = dict(zip(summary.names, zip(summary.values, summary.stderr, strict=True), strict=True))
    level, noise = told["Level.variance[sold]"][0], told["variance[sold]"][0]
    steps = np.arange(T)
    covariance = level * np.minimum.outer(steps, steps) + noise * np.eye(T)
    for part, mean, std in zip(frames, found.mean, found.std, strict=True):
        seen = part["sold"].notna().to_numpy()
        # the first level is unknown, too
        design = np.column_stack([np.ones(T), part[["promo", "price"]]])[seen]
        weight = np.linalg.inv(covariance[np.ix_(seen, seen)])
        precision = design.T @ weight @ design
        beta = np.linalg.solve(precision, design.T @ weight @ part["sold"].to_numpy()[seen])
        error = np.sqrt(np.diagonal(np.linalg.inv(precision)))
        np.testing.assert_allclose(mean[0], beta[1:], rtol=1e-6)
        np.testing.assert_allclose(std[0], error[1:], rtol=1e-6)
        for i, column in enumerate(["promo", "price"]):
            name = f"Regressors[{part['region'].iloc[0]}, sold, {column}]"
            np.testing.assert_allclose(told[name], (beta[1 + i], error[1 + i]), rtol=1e-6)
    price = frames[0][["price"]].to_numpy()
    plain = fe.StructuralTimeSeries(tol=0.1).fit(price)
    with pytest.raises(ValueError, match=r"coefficients needs Regressors among the 'blocks'. Got \(Level"):
        plain.coefficients(price)
