"""Gaussian processes of several outputs that depend on each other, beside dense algebra."""

import warnings

import jax
import numpy as np
import pytest
from data import ROWS
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy import kernels as k
from freeenergy.estimators.labelled._coregionalised import CoregionalisedEvidences
from freeenergy.estimators.labelled._kernelled import LogParameters, LogPrior
from freeenergy.models import CoregionalisedProcess

RNG = np.random.default_rng(0)
X = ROWS[:40]
SHARED = np.sin(2 * X[:, 0])
Y = np.stack([SHARED, -2 * SHARED + 0.5 * X[:, 1], X[:, 1]], axis=1) + 0.1 * RNG.normal(size=(40, 3))
HOLES = Y.copy()
HOLES[::3, 1] = np.nan
HOLES[1::5, 2] = np.nan
# an output that is not known on one side
SIDE = Y.copy()
SIDE[X[:, 0] > 0.3, 1] = np.nan
PLAIN = {"standardise": False, "learn": False}


def seen(kernel, y, rank):
    known = ~np.isnan(y)
    logs = LogParameters.of(kernel)
    size = len(logs.vector) + y.shape[1] * (rank + 2)
    return CoregionalisedEvidences(logs, X, np.where(known, y, 0.0), known * 1.0, LogPrior.none(size))


@pytest.fixture(scope="module")
def learned():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fe.GaussianProcess(rank=1, max_iter=60).fit(X, SIDE)


def test_evidence_and_laws_are_those_of_the_kronecker_covariance():
    kernel = 1.5 * k.RBF([0.7, 2.0])
    own = seen(kernel, HOLES, 2)
    theta = own.start(2, np.full(3, 0.2)) + 0.1 * RNG.normal(size=len(own.kernel.vector) + 12)
    parts = own.parts(theta)
    known = ~np.isnan(HOLES.T.ravel())
    every = np.kron(parts.outputs, parts.kernel.gram(X)) + np.kron(np.diag(parts.noise), np.eye(len(X)))
    y = HOLES.T.ravel()[known]
    covariance = every[np.ix_(known, known)]
    dense = stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    assert abs(own.evidence(theta)[0] - dense) < 1e-8
    process, new = own.process(theta), RNG.normal(size=(4, 2))
    cross = np.kron(parts.outputs, parts.kernel.gram(new, X))[:, known]
    mean = cross @ np.linalg.solve(covariance, y)
    spread = np.kron(parts.outputs, parts.kernel.gram(new)) - cross @ np.linalg.solve(covariance, cross.T)
    found, variance = process.at(new)
    np.testing.assert_allclose(found.T.ravel(), mean, atol=1e-8)
    np.testing.assert_allclose(variance.T.ravel(), np.diag(spread), atol=1e-8)
    ((together, all_of_it),) = process.together(new)
    np.testing.assert_allclose(together, mean, atol=1e-8)
    np.testing.assert_allclose(all_of_it, spread, atol=1e-8)
    blocks = spread.reshape(3, 4, 3, 4)
    np.testing.assert_allclose(process.across(new)[1][2], blocks[:, 2, :, 2], atol=1e-8)
    # the model says the same of one row
    inner, outer = jax.jit(CoregionalisedProcess.function)(process.model, new[2])
    np.testing.assert_allclose(inner, found[2], atol=1e-8)
    np.testing.assert_allclose(outer, blocks[:, 2, :, 2], atol=1e-8)


def test_the_slope_is_that_of_finite_differences():
    own = seen(1.3 * k.RBF([0.8, 1.7]), HOLES, 2)
    theta = own.start(2, np.full(3, 0.2)) + 0.1 * RNG.normal(size=len(own.kernel.vector) + 12)
    _, slope = own.evidence(theta)
    for place in range(len(theta)):
        step = 1e-5 * np.eye(len(theta))[place]
        ends = [own.evidence(theta + s * step, slope=False)[0] for s in (1, -1)]
        np.testing.assert_allclose(slope[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_without_loadings_outputs_are_processes_of_their_own():
    own = seen(k.RBF([0.7, 2.0]), HOLES, 0)
    theta = np.log([0.7, 2.0, 1.5, 0.8, 2.0, 0.1, 0.2, 0.3])
    value, new = 0.0, RNG.normal(size=(4, 2))
    mean, variance = own.process(theta).at(new)
    for output, (scale, noise) in enumerate([(1.5, 0.1), (0.8, 0.2), (2.0, 0.3)]):
        there = ~np.isnan(HOLES[:, output])
        alone = fe.GaussianProcess(scale * k.RBF([0.7, 2.0]), noise=noise, **PLAIN)
        alone.fit(X[there], HOLES[there, output])
        value += alone.log_evidence_
        function, spread = alone.predict_function(new)
        np.testing.assert_allclose(mean[:, output], function, atol=1e-8)
        np.testing.assert_allclose(np.sqrt(variance[:, output]), spread, atol=1e-8)
    assert abs(own.evidence(theta, slope=False)[0] - value) < 1e-8


def test_an_output_is_filled_from_the_others(learned, tmp_path):
    gap = np.isnan(SIDE[:, 1])
    alone = fe.GaussianProcess().fit(X, SIDE)
    errors = [np.abs(one.predict(X)[gap, 1] - Y[gap, 1]).mean() for one in (learned, alone)]
    assert errors[0] < errors[1]
    assert learned.log_evidence_ > alone.log_evidence_
    covariance = learned.output_covariance_
    assert covariance[0, 1] < -0.5 * np.sqrt(covariance[0, 0] * covariance[1, 1])
    law = learned.predict_density(X[:2])
    assert law.log_prob(Y[:2]).shape == (2,)
    # the law of the outputs together is that of draws of functions, and noise
    draws = learned.sample_functions(X[:2], 4000, random_state=0)
    assert draws.shape == (4000, 2, 3)
    expected = law.covariances[0] - np.diag(learned.noise_)
    np.testing.assert_allclose(np.cov(draws[:, 0].T), expected, atol=0.15 * np.diag(expected).max())
    learned.save(tmp_path / "model.safetensors")
    loaded = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), learned.predict(X))
    assert "free parameters  12" in str(learned.summary())


def test_one_output_is_the_plain_process():
    one = fe.GaussianProcess(k.RBF(), rank=0, noise=0.1, prior=False).fit(X, Y[:, 0])
    other = fe.GaussianProcess(1.0 * k.RBF(), noise=0.1, prior=False).fit(X, Y[:, 0])
    # its scale is learned in either
    assert one.log_evidence_ > other.log_evidence_ - 1.0
    assert one.predict(X).shape == (40,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rank": -1},
            "'rank' parameter of GaussianProcess must be an int in the range",
        ),
        ({"rank": 1, "inducing": 5}, "must be None with a 'family' or 'inducing' points. Got 1"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianProcess(**options).fit(X, Y)


def test_what_plain_outputs_do_not_have():
    with pytest.raises(AttributeError, match="output_covariance_ is there where outputs have a rank"):
        _ = fe.GaussianProcess(**PLAIN).fit(X, Y).output_covariance_
