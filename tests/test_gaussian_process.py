"""Gaussian processes beside dense algebra, scikit-learn, linear regression and finite differences."""

import signal
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import ROWS
from scipy import stats
from scipy.spatial import distance
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peer

import freeenergy as fe
from freeenergy import Kind
from freeenergy import distributions as d
from freeenergy import kernels as k
from freeenergy.estimators.labelled import _gaussian_process
from freeenergy.estimators.labelled._exact_process import Evidences
from freeenergy.estimators.labelled._kernelled import LogParameters, Search
from freeenergy.estimators.labelled._sparse_process import Bounds
from freeenergy.inference import InverseTransform
from freeenergy.models import GaussianProcess as Model
from freeenergy.models import InducedProcess

RNG = np.random.default_rng(0)
X = ROWS
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=len(X))
# the parameters as they are, rows as they are
PLAIN = {"standardise": False, "learn": False}


@pytest.fixture(scope="module")
def learned():
    return fe.GaussianProcess(prior=False).fit(X, Y)


# ---------------------------------------------------------------------------------------------
# the law of answers
# ---------------------------------------------------------------------------------------------


def test_laws_and_evidence_are_those_of_dense_algebra_and_scikit_learn():
    model = fe.GaussianProcess(1.5 * k.RBF([0.7, 2.0]), noise=0.2, **PLAIN).fit(X, Y)
    other = GaussianProcessRegressor(
        1.5 * peer.RBF([0.7, 2.0]) + peer.WhiteKernel(0.2), optimizer=None, alpha=0.0
    ).fit(X, Y)
    assert abs(model.log_evidence_ - other.log_marginal_likelihood_value_) < 1e-9
    covariance = 1.5 * peer.RBF([0.7, 2.0])(X) + 0.2 * np.eye(len(X))
    dense = stats.multivariate_normal(np.zeros(len(X)), covariance).logpdf(Y)
    assert abs(model.log_evidence_ - dense) < 1e-9
    new = RNG.normal(size=(7, 2))
    mean, std = other.predict(new, return_std=True)
    np.testing.assert_allclose(model.predict(new), mean, atol=1e-10)
    np.testing.assert_allclose(model.predict_density(new).std(), std, rtol=1e-9)
    function, spread = model.predict_function(new)
    np.testing.assert_allclose(function, mean, atol=1e-10)
    np.testing.assert_allclose(spread**2 + 0.2, std**2, rtol=1e-9)
    low, high = model.predict_function_interval(new, 0.8)
    np.testing.assert_allclose([low, high], stats.norm(mean, spread).interval(0.8), atol=1e-9)
    evidence = model.evidence(new, mean)
    np.testing.assert_allclose(evidence.nats, stats.norm(mean, std).logpdf(mean), rtol=1e-9)
    assert evidence.kind is fe.Kind.EXACT


def test_the_model_is_the_energy_of_an_answer(learned):
    model, row = learned.model_, np.array([0.3, -0.5])
    z = jnp.asarray(learned.scaling_.apply(row[None])[0])
    mean, variance = learned.predict_function(row[None])
    scale = learned.answer_scaling_.scale[0]
    inner, spread = jax.jit(Model.function)(model, z)
    np.testing.assert_allclose(inner[0] * scale + learned.answer_scaling_.shift[0], mean[0], rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(spread[0]) * scale, variance[0], rtol=1e-6)
    y = learned.answer_scaling_.apply(np.array([[0.7]]))[0]
    energy = jax.jit(Model.energy)(model, z, jnp.asarray(y))
    nats = learned.evidence(row[None], [0.7]).nats[0]
    np.testing.assert_allclose(-energy - np.log(scale), nats, rtol=1e-9)
    assert model.latent(z).shape == (1,)
    np.testing.assert_allclose(jax.jit(lambda m, x: m.posterior(x).mean)(model, z), inner, rtol=1e-9)


def test_bayesian_curve_fitting_in_numbers():
    # weights N(0, 1/α), noise 1/β: the process of the features has their covariance φφ′/α
    x, t = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 4.0])
    alpha, beta = 0.5, 25.0
    features = np.stack([np.ones(3), x, x**2], axis=1)
    model = fe.GaussianProcess(k.Linear(1 / alpha), noise=1 / beta, **PLAIN).fit(features, t)
    at = np.array([[1.0, 3.0, 9.0]])
    precision = alpha * np.eye(3) + beta * features.T @ features
    mean = beta * at @ np.linalg.solve(precision, features.T @ t)
    variance = 1 / beta + at @ np.linalg.solve(precision, at.T)
    law = model.predict_density(at)
    np.testing.assert_allclose(law.mean(), mean, rtol=1e-9)
    np.testing.assert_allclose(law.variance(), variance[0], rtol=1e-9)
    covariance = features @ features.T / alpha + np.eye(3) / beta
    dense = stats.multivariate_normal(np.zeros(3), covariance).logpdf(t)
    assert abs(model.log_evidence_ - dense) < 1e-10


def test_with_a_linear_kernel_it_is_bayesian_linear_regression():
    model = fe.GaussianProcess(k.Linear([2.0, 0.5], offset=3.0), noise=0.3, **PLAIN).fit(X, Y)
    design = np.column_stack([np.ones(len(X)), X])
    precision = np.diag([1 / 3.0, 1 / 2.0, 1 / 0.5]) + design.T @ design / 0.3
    weights = np.linalg.solve(precision, design.T @ Y / 0.3)
    new = np.column_stack([np.ones(5), RNG.normal(size=(5, 2))])
    law = model.predict_density(new[:, 1:])
    np.testing.assert_allclose(law.mean(), new @ weights, rtol=1e-9)
    spread = 0.3 + np.einsum("ni,ij,nj->n", new, np.linalg.inv(precision), new)
    np.testing.assert_allclose(law.variance(), spread, rtol=1e-8)


def test_at_rows_that_were_seen_little_noise_interpolates_and_far_away_is_the_prior():
    model = fe.GaussianProcess(2.0 * k.RBF(0.5), noise=1e-6, **PLAIN).fit(X[:20], Y[:20])
    mean, std = model.predict_function(X[:20])
    np.testing.assert_allclose(mean, Y[:20], atol=1e-4)
    assert std.max() < 2e-3
    far = model.predict_density([[100.0, 100.0], [1e200, 0.0]])
    np.testing.assert_allclose(far.mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(far.variance(), 2.0 + 1e-6)


# ---------------------------------------------------------------------------------------------
# learning
# ---------------------------------------------------------------------------------------------


def test_the_slope_of_the_evidence_is_that_of_finite_differences():
    both = np.column_stack([Y, np.cos(X[:, 0])])
    both[3, 1] = both[7] = np.nan
    weight = np.arange(len(X)) % 3 + 0.5
    kernel = 1.3 * k.Matern(2.5, [0.8, 1.7]) + k.Linear(0.4) * k.Periodic(3.0)
    model = fe.GaussianProcess(kernel, learn=False).fit(X, both, sample_weight=weight)
    theta = model.theta_ + 0.1
    value, slope = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert len(theta) == 8
    steps = 1e-5 * np.eye(len(theta))
    rises = [
        (model.log_marginal_likelihood(theta + s) - model.log_marginal_likelihood(theta - s)) / 2e-5
        for s in steps
    ]
    np.testing.assert_allclose(slope, rises, rtol=1e-5, atol=1e-4)
    assert abs(model.log_marginal_likelihood(theta) - value) < 1e-9
    assert abs(model.log_marginal_likelihood() - model.log_evidence_) < 1e-8


def test_parameters_are_those_that_scikit_learn_finds(learned):
    other = GaussianProcessRegressor(
        1.0 * peer.RBF([1.0, 1.0]) + peer.WhiteKernel(0.1),
        alpha=0.0,
        n_restarts_optimizer=2,
        random_state=0,
    )
    z, y = learned.scaling_.apply(X), learned.answer_scaling_.apply(Y[:, None])[:, 0]
    other.fit(z, y)
    inside = learned.log_evidence_ + len(Y) * np.log(learned.answer_scaling_.scale[0])
    assert inside > other.log_marginal_likelihood_value_ - 1e-4
    np.testing.assert_allclose(learned.predict(X), Y, atol=0.5)
    np.testing.assert_allclose(np.sqrt(learned.noise_), 0.1, rtol=0.2)
    assert learned.converged_
    assert learned.history_["objective"][-1] <= learned.history_["objective"][0]
    np.testing.assert_allclose(
        learned.history_["objective"][-1] * len(Y), -learned.log_evidence_, rtol=1e-9
    )
    # log-likelihood and criteria are those of the evidence
    text = str(learned.summary())
    assert f"{learned.log_evidence_:.4f} nats (exact)" in text
    assert "free parameters  4" in text


def test_another_start_can_only_be_better(learned):
    more = fe.GaussianProcess(prior=False, n_init=3, random_state=0).fit(X, Y)
    assert more.log_evidence_ >= learned.log_evidence_ - 1e-3


def test_units_change_nothing_but_the_evidence(learned):
    moved = fe.GaussianProcess(prior=False).fit(X * [1e3, 1e-3] + 1e4, Y * 50 - 7)
    assert abs(moved.log_evidence_ - learned.log_evidence_ + len(Y) * np.log(50)) < 1e-3
    np.testing.assert_allclose(
        moved.predict(X[:9] * [1e3, 1e-3] + 1e4), learned.predict(X[:9]) * 50 - 7, atol=0.05
    )


def test_weights_are_repetition():
    weight = np.arange(40) % 3
    one = fe.GaussianProcess().fit(X[:40], Y[:40], sample_weight=weight)
    place = np.repeat(np.arange(40), weight)
    other = fe.GaussianProcess().fit(X[:40][place], Y[:40][place])
    assert abs(one.log_evidence_ - other.log_evidence_) < 1e-6
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-6)


# ---------------------------------------------------------------------------------------------
# leaving out, several outputs, what is not known
# ---------------------------------------------------------------------------------------------


def test_leaving_one_out_is_a_fit_without_it():
    rows, answers = np.concatenate([X[:20], X[:2]]), np.concatenate([Y[:20], Y[:2]])
    options = dict(noise=0.3, **PLAIN)
    laws = fe.GaussianProcess(k.RBF(), **options).fit(rows, answers).loo_
    for row in (0, 5, 21):
        # with those equal to it
        others = (rows != rows[row]).any(axis=1)
        law = fe.GaussianProcess(k.RBF(), **options).fit(rows[others], answers[others])
        alone = law.predict_density(rows[row : row + 1])
        np.testing.assert_allclose(laws.mean()[row], alone.mean()[0], rtol=1e-9)
        np.testing.assert_allclose(laws.std()[row], alone.std()[0], rtol=1e-9)
    assert laws.log_prob(answers).shape == (22,)


def test_several_outputs_share_a_kernel_and_unknown_answers_are_left_out():
    both = np.column_stack([Y, 3 + 2 * np.cos(X[:, 0])])
    both[4, 0] = both[5, 1] = both[6] = np.nan
    kernel = 1.2 * k.RBF([0.8, 2.0])
    model = fe.GaussianProcess(kernel, noise=0.1, **PLAIN).fit(X, both)
    for output in (0, 1):
        known = ~np.isnan(both[:, output])
        alone = fe.GaussianProcess(kernel, noise=0.1, **PLAIN).fit(X[known], both[known, output])
        np.testing.assert_allclose(model.predict(X)[:, output], alone.predict(X), atol=1e-9)
        np.testing.assert_allclose(
            model.predict_density(X).std()[:, output], alone.predict_density(X).std(), rtol=1e-9
        )
    assert model.evidence(X, both).nats[6] == 0.0
    # what is not known is left out of nothing
    np.testing.assert_allclose(model.loo_.mean()[6], model.predict(X[6:7])[0], rtol=1e-9)
    loose = fe.GaussianProcess().fit(X, both)
    assert loose.noise_.shape == (2,)
    assert loose.theta_.shape == (5,)


def test_draws_of_functions_have_the_covariance_of_the_posterior():
    model = fe.GaussianProcess(k.RBF(), noise=0.1, **PLAIN).fit(X[:15], Y[:15])
    at = np.array([[0.0, 0.0], [0.3, 0.0], [3.0, 3.0]])
    draws = model.sample_functions(at, 20_000, random_state=0)
    gram, across = k.RBF().gram(X[:15]) + 0.1 * np.eye(15), k.RBF().gram(at, X[:15])
    covariance = k.RBF().gram(at) - across @ np.linalg.solve(gram, across.T)
    mean, _ = model.predict_function(at)
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) < 4.5 * spread / np.sqrt(20_000)).all()
    np.testing.assert_allclose(
        np.cov(draws.T), covariance, atol=5 * spread.max() ** 2 / np.sqrt(20_000) * 1.5
    )
    assert np.array_equal(draws, model.sample_functions(at, 20_000, random_state=0))


def test_files_keep_the_law(learned, tmp_path):
    learned.save(tmp_path / "model.safetensors")
    loaded = fe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), learned.predict(X))
    np.testing.assert_array_equal(loaded.loo_.std(), learned.loo_.std())
    assert loaded.log_marginal_likelihood() == learned.log_marginal_likelihood()


def test_missing_entries_of_rows_are_drawn():
    holes = X.copy()
    holes[::9, 1] = np.nan
    model = fe.GaussianProcess().fit(holes, Y)
    evidence = model.evidence(holes, Y)
    assert evidence.kind is fe.Kind.ESTIMATE
    assert np.isfinite(evidence.nats).all()
    assert evidence.nats.mean() > fe.GaussianProcess().fit(X[:, :1], Y).evidence(X[:, :1], Y).nats.mean()
    with pytest.raises(ValueError, match=r"GaussianProcess\.predict_function takes complete rows"):
        model.predict_function(holes)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        (
            {"kernel": "rbf"},
            Y,
            "'kernel' parameter of GaussianProcess must be an instance of AbstractKernel",
        ),
        (
            {"noise": 0.0},
            Y,
            r"'noise' parameter of GaussianProcess must be a float in the range \(0, inf\)",
        ),
        ({"learn": 1}, Y, "'learn' parameter of GaussianProcess must be an instance of bool"),
        ({"n_init": 0}, Y, "'n_init' parameter of GaussianProcess must be an int"),
        ({"kernel": k.RBF([1.0, 1.0, 1.0])}, Y, "one for each of the 2 columns. Got 3 instead"),
        ({"kernel": k.Spectrum()}, Y, "Spectrum takes strings"),
        ({"kernel": k.Box(3.0), "noise": 1e-3, **PLAIN}, Y, "has a negative eigenvalue beyond rounding"),
        (
            {},
            np.column_stack([Y, np.full(len(Y), np.nan)]),
            "Output 1 of the 'y' of GaussianProcess has no known",
        ),
    ],
)
def test_what_is_refused(options, y, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianProcess(**options).fit(X, y)


def test_wrong_questions_are_refused(learned):
    with pytest.raises(ValueError, match=r"'level' of predict_function_interval must be a float in"):
        learned.predict_function_interval(X, 1.5)
    with pytest.raises(ValueError, match=r"'theta' of log_marginal_likelihood must have 4 numbers"):
        learned.log_marginal_likelihood([0.0])


# ---------------------------------------------------------------------------------------------
# inducing points
# ---------------------------------------------------------------------------------------------


def test_with_all_rows_as_inducing_points_the_bound_is_the_evidence():
    both = np.column_stack([Y, np.cos(X[:, 0])])
    both[3, 1] = np.nan
    weight = np.arange(len(X)) % 2 + 1.0
    options = dict(noise=0.2, **PLAIN)
    kernel = 1.5 * k.RBF([0.7, 2.0])
    whole = fe.GaussianProcess(kernel, **options).fit(X, both, sample_weight=weight)
    bound = fe.GaussianProcess(kernel, inducing=X, **options).fit(X, both, sample_weight=weight)
    assert abs(bound.log_evidence_ - whole.log_evidence_) < 1e-4
    assert bound.log_evidence_ < whole.log_evidence_ + 1e-9
    new = RNG.normal(size=(7, 2))
    np.testing.assert_allclose(bound.predict(new), whole.predict(new), atol=1e-5)
    for ours, theirs in zip(bound.predict_function(new), whole.predict_function(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_the_bound_is_that_of_dense_algebra_and_below_the_evidence():
    kernel, points = 1.5 * k.RBF([0.7, 2.0]), X[:12]
    model = fe.GaussianProcess(kernel, noise=0.2, inducing=points, **PLAIN).fit(X, Y)
    across = kernel.gram(X, points)
    low = across @ np.linalg.solve(kernel.gram(points) + 1.5e-8 * np.eye(12), across.T)
    law = stats.multivariate_normal(np.zeros(len(X)), low + 0.2 * np.eye(len(X)))
    dense = law.logpdf(Y) - 0.5 * (1.5 * len(X) - np.trace(low)) / 0.2
    assert abs(model.log_evidence_ - dense) < 1e-7
    whole = fe.GaussianProcess(kernel, noise=0.2, **PLAIN).fit(X, Y)
    assert model.log_evidence_ < whole.log_evidence_
    np.testing.assert_array_equal(model.inducing_, points)
    assert "(lower bound)" in str(model.summary())
    # the model says the same, for one row
    inner, row = model.model_, np.array([0.3, -0.5])
    mean, spread = jax.jit(InducedProcess.function)(inner, row)
    expected = model.predict_function(row[None])
    np.testing.assert_allclose([mean[0], np.sqrt(spread[0])], np.ravel(expected), rtol=1e-7)
    energy = jax.jit(InducedProcess.energy)(inner, row, np.array([0.7]))
    np.testing.assert_allclose(-energy, model.evidence(row[None], [0.7]).nats[0], rtol=1e-7)
    assert inner.latent(row).shape == (1,)
    # functions drawn together agree with what is known of each value
    draws = model.sample_functions(np.stack([row, row + 0.1]), 4000, random_state=0)
    np.testing.assert_allclose(draws[:, 0].std(), expected[1][0], rtol=0.1)


def test_the_slope_of_the_bound_is_that_of_finite_differences():
    both = np.column_stack([Y, np.cos(X[:, 0])])
    both[5, 1] = np.nan
    known = ~np.isnan(both)
    kernel = LogParameters.of(1.3 * k.Matern(2.5, [0.8, 1.7]))
    seen = Evidences(kernel, X, np.where(known, both, 0.0), known * 1.5)
    bounds, theta = Bounds(seen, X[:10].copy()), np.concatenate([kernel.vector, np.log([0.2, 0.4])])
    _, slope, places = bounds.bound(theta, bounds.points)

    def value(theta, points):
        return bounds.bound(theta, points)[0]

    for number, step in enumerate(1e-5 * np.eye(len(theta))):
        rise = (value(theta + step, bounds.points) - value(theta - step, bounds.points)) / 2e-5
        assert abs(rise - slope[number]) < 1e-5 * max(1, abs(rise))
    step = np.zeros_like(bounds.points)
    step[4, 1] = 1e-5
    rise = (value(theta, bounds.points + step) - value(theta, bounds.points - step)) / 2e-5
    assert abs(rise - places[4, 1]) < 1e-4 * max(1, abs(rise))


def test_learned_points_are_nearly_as_good_as_all_rows(learned, tmp_path):
    model = fe.GaussianProcess(inducing=20, max_iter=40, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    assert learned.log_evidence_ - 15 < model.log_evidence_ < learned.log_evidence_
    assert model.inducing_.shape == (20, 2)
    np.testing.assert_allclose(model.predict(X), learned.predict(X), atol=0.3)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(fe.load(tmp_path / "model.safetensors").predict(X), model.predict(X))
    with pytest.raises(
        ValueError,
        match="GaussianProcess has loo_ where noise is Gaussian",
    ):
        model.loo_  # noqa: B018
    assert not hasattr(learned, "inducing_")


def test_many_rows_have_points_by_themselves_and_begin_with_some(monkeypatch, capsys):
    few = {"_ALL_ROWS": len(X) - 1, "_POINTS": 20, "_FIRST_ROWS": 30}
    for name, value in few.items():
        monkeypatch.setattr(_gaussian_process, name, value)
    model = fe.GaussianProcess(max_iter=5, random_state=0, verbose=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    # a bar for some of the rows, and one for all
    assert capsys.readouterr().err.count("GaussianProcess") >= 2
    assert model.inducing_.shape == (20, 2)
    assert model.history_["objective"].shape == (model.n_iter_,)
    assert model.evidence(X, Y).kind is Kind.EXACT
    assert "(lower bound)" in str(model.summary())
    np.testing.assert_allclose(
        model.history_["objective"][-1],
        -model.log_evidence_ / len(X),
        atol=0.2,  # the prior is in the objective
    )
    kept = {"kernel": 1.5 * k.RBF([0.7, 2.0]), "noise": 0.2, **PLAIN}
    whole = fe.GaussianProcess(inducing=len(X), **kept).fit(X, Y)
    law = stats.multivariate_normal(np.zeros(len(X)), kept["kernel"].gram(X) + 0.2 * np.eye(len(X)))
    assert abs(whole.log_evidence_ - law.logpdf(Y)) < 1e-8
    assert not hasattr(whole, "inducing_")


def test_a_search_keeps_the_best_and_what_it_has_when_interrupted(request):
    # a job in the background has Ctrl-C ignored
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    limits = np.array([[-9.0, 9.0]])

    def misled(x):
        # a slope that leads down: the search ends where it finds nothing
        return -float(x @ x), 2 * x

    found = Search(50, 1e-9).climb(misled, np.ones(1), limits, 2.0)
    assert found.path[-1] == found.place @ found.place <= 1.0
    asked = []

    def pressed(x):
        asked.append(x)
        if len(asked) == 2:
            signal.raise_signal(signal.SIGINT)
        return -float((x**4).sum()), -4 * x**3

    search = Search(50, 1e-12)
    stopped = search.best([np.ones(1)] * 3, lambda x: search.climb(pressed, x, limits, 1.0))
    assert stopped.interrupted
    assert 2 <= len(asked) < 8
    assert abs(stopped.place[0]) < 1


@pytest.mark.parametrize(
    ("inducing", "message"),
    [
        (0, r"'inducing' parameter of GaussianProcess must be an int in the range \[1, inf\) or None"),
        (np.zeros((3, 5)), r"must be an int or finite rows of 2 columns. Got the shape \(3, 5\)"),
    ],
)
def test_wrong_points_are_refused(inducing, message):
    with pytest.raises(ValueError, match=message):
        fe.GaussianProcess(inducing=inducing).fit(X, Y)


# ---------------------------------------------------------------------------------------------
# the prior of lengths and noise


def test_the_mode_is_where_the_slopes_of_evidence_and_prior_cancel():
    model = fe.GaussianProcess(tol=1e-9, max_iter=2000).fit(X, Y)
    columns = X.shape[1]
    centre = np.array([np.sqrt(2) + 0.5 * np.log(columns)] * columns + [0.0, -2.0])
    variance = np.array([3.0] * columns + [np.inf, 1.0])
    slope = model.log_marginal_likelihood(eval_gradient=True)[1] - (model.theta_ - centre) / variance
    np.testing.assert_allclose(slope, 0.0, atol=0.02)
    # so much data that the prior hardly matters
    free = fe.GaussianProcess(prior=False).fit(X, Y)
    assert 0 <= free.log_evidence_ - model.log_evidence_ < 2.0
    # which has no AIC: its parameters are not those of the largest likelihood
    assert "AIC" in str(free.summary())
    assert "AIC  " not in str(model.summary())


def test_answers_on_a_grid_are_not_taken_for_a_function_that_is_known_exactly():
    # most answers are zero, and so are the answers to equal rows: the evidence alone prefers no noise
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 4, size=(200, 5)).astype(float)
    answers = np.where(rng.random(200) < 0.7, 0.0, rng.exponential(2.0, 200))
    fitted, held = slice(0, 130), slice(130, 200)
    model = fe.GaussianProcess().fit(rows[fitted], answers[fitted])
    spread = answers[fitted].std()
    assert np.sqrt(model.noise_[0]) > 0.3 * spread
    # of an answer that is as any other, nothing is impossible
    found = model.evidence(np.repeat(rows[fitted][:1], 2, axis=0), [0.0, 3 * spread])
    assert found.nats.min() > -50
    base = fe.BaseRate().fit(rows[fitted], answers[fitted]).evidence(rows[held], answers[held])
    assert model.evidence(rows[held], answers[held]).nats.mean() > base.nats.mean() - 1.0


def test_a_function_without_noise_is_known_nearly_exactly_all_the_same():
    x = np.linspace(0.0, 6.0, 25)[:, None]
    model = fe.GaussianProcess().fit(x, np.sin(x[:, 0]))
    assert np.sqrt(model.noise_[0]) < 1e-2
    np.testing.assert_allclose(model.predict([[1.05], [4.1]]), np.sin([1.05, 4.1]), atol=5e-3)


def test_intervals_average_over_parameters_that_the_evidence_leaves_open():
    rng = np.random.default_rng(12)
    x = rng.uniform(-2, 2, (30, 1))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=30)
    new = np.array([[-1.0], [0.3], [2.5]])
    model = fe.GaussianProcess(prior=False).fit(x, y)
    # the bend of the evidence by its values, and laws by dense algebra
    eye, value = 1e-3 * np.eye(3), model.log_marginal_likelihood
    at = model.theta_
    bend = np.array(
        [
            [
                (value(at + a + b) - value(at + a - b) - value(at - a + b) + value(at - a - b)) / 4e-6
                for a in eye
            ]
            for b in eye
        ]
    )
    values, axes = np.linalg.eigh(-bend)
    moves = axes * np.sqrt(3 / values)
    z, q = ((rows - x.mean()) / x.std() for rows in (x, new))
    v = (y - y.mean()) / y.std()
    parts, thetas = [], [*(at + moves.T), *(at - moves.T)]
    # all are as far as each other by the normal law: what the evidence has more is their weight
    shares = softmax([value(theta) for theta in thetas])
    for theta in thetas:
        length, variance, noise = np.exp(theta)
        gram = variance * np.exp(-0.5 * (z - z.T) ** 2 / length**2) + noise * np.eye(30)
        across = variance * np.exp(-0.5 * (q - z.T) ** 2 / length**2)
        rest = variance + noise - np.einsum("ni,in->n", across, np.linalg.solve(gram, across.T))
        parts.append(stats.norm(across @ np.linalg.solve(gram, v), np.sqrt(rest)))
    low, high = ((end - y.mean()) / y.std() for end in model.predict_interval(new, 0.9))
    np.testing.assert_allclose(
        np.average([part.cdf(low) for part in parts], axis=0, weights=shares), 0.05, atol=2e-4
    )
    np.testing.assert_allclose(
        np.average([part.cdf(high) for part in parts], axis=0, weights=shares), 0.95, atol=2e-4
    )
    # what is known is not averaged over
    known = fe.GaussianProcess(k.RBF(), noise=0.1, learn=False).fit(x, y)
    ends = known.predict_interval(new, 0.9), known.predict_density(new).interval(0.9)
    np.testing.assert_allclose(*ends, rtol=1e-12)
    # rows with holes have the law, and a fit makes all anew
    holes = np.array([[np.nan], [0.3]])
    found = np.array(model.predict_interval(holes, 0.9))
    np.testing.assert_allclose(found[:, 0], np.ravel(model.predict_density(holes[:1]).interval(0.9)))
    np.testing.assert_allclose(found[:, 1], np.array(model.predict_interval(new[1:2], 0.9))[:, 0])
    again = model.fit(x, 2 * y).predict_interval(new, 0.9)
    np.testing.assert_allclose(
        again, fe.GaussianProcess(prior=False).fit(x, 2 * y).predict_interval(new, 0.9)
    )


# ---------------------------------------------------------------------------------------------
# the posterior of its parameters
# ---------------------------------------------------------------------------------------------


def test_the_posterior_of_the_noise_is_that_of_quadrature():
    x, y = 5 + X[:14], 3 + 2 * Y[:14]
    model = fe.GaussianProcess(2.0 * k.RBF(0.8)).fit(x, y)
    inside = model.model_in_units
    gram = inside.kernel.variance * np.exp(-0.5 * distance.cdist(x, x, "sqeuclidean", w=_metric(inside)))
    gap = y - y.mean()

    def log_likelihood(noise):
        return stats.multivariate_normal(cov=gram + noise * np.eye(14)).logpdf(gap)

    # the evidence and laws of the fit, in its units
    np.testing.assert_allclose(log_likelihood(inside.noise[0]), model.log_evidence_, rtol=1e-9)
    law = eqx.filter_jit(lambda model, x, y: model.posterior(x).log_prob(y))
    score = model.predict_density(x[:1] + 0.1).log_prob(y[:1])
    np.testing.assert_allclose(law(inside, x[0] + 0.1, y[:1]), score[0], rtol=1e-9)
    prior = {"noise": d.Gamma(1.5, 3.0)}
    # far below, noise is lost in the rounding of the kernel
    method = InverseTransform(reach=(-25.0, 30.0))
    found = fe.infer(model, (x, y), prior=prior, unknown="noise", method=method, key=0)
    grid = np.exp(np.linspace(-25, 4, 2000))
    logs = np.array([log_likelihood(v) for v in grid]) + stats.gamma(1.5, scale=1 / 3).logpdf(grid)
    weight = np.exp(logs) * grid
    step = np.log(grid[1] / grid[0])
    np.testing.assert_allclose(found.log_evidence.nats, np.log(weight.sum() * step), atol=1e-2)
    value, error = found.expect(lambda model: model.noise[0])
    assert abs(value - weight @ grid / weight.sum()) < 4.5 * error


def _metric(model):
    """The weights of squared differences of columns in the kernel of a model."""
    return np.broadcast_to(1 / np.asarray(model.kernel.kernel.lengthscale) ** 2, 2)


def test_parameters_of_processes_that_have_no_such_posterior_are_refused():
    y = np.stack([Y[:14], 100 * Y[:14]], axis=1)
    both = fe.GaussianProcess().fit(X[:14], y)
    with pytest.raises(TypeError, match=r"outputs of GaussianProcess share a kernel .* standardise=False"):
        fe.infer(both, (X[:14], y), prior={}, key=0)
    counts = fe.GaussianProcess(family=d.Poisson)
    with pytest.raises(ValueError, match=r"GaussianProcess has model_in_units where noise is Gaussian"):
        fe.infer(counts, (X[:14], np.round(np.exp(Y[:14]))), prior={}, key=0)
