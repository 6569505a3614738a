"""Numbers at the edge of what floats hold: the right answer, or one sentence."""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import polars as pl
import pytest
import scipy.stats as st
from cases import CASES
from sklearn.base import clone

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy._core import Data, freeze
from freeenergy.distributions import MultivariateT
from freeenergy.learning import Gradient, fit, negative_log_likelihood
from freeenergy.models import Density, Mixture

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1.0, 3.0] + [0.0, 5.0]
Y = (X[:, 0] > 0).astype(int)
X[Y == 1] += 4.0
FAR = np.array(
    [
        [1e300, 0.0],
        [-1e300, 1e300],
        [1e200, -1e200],
        [1.7e308, -1.7e308],
        [-1.7e308, 1.7e308],
        [1e160, 1.0],
        [1e300, np.nan],
    ]
)
SMALL: dict[str, Any] = {
    "latent_dim": 1,
    "width": 4,
    "max_iter": 3,
    "importance_samples": 20,
    "random_state": 0,
}


@pytest.mark.parametrize(
    "estimator",
    [
        fe.GaussianDensity(),
        fe.GaussianMixture(2, random_state=0),
        fe.GaussianMixture(2, d.LowRank(rank=1), random_state=0),
        fe.DiscriminantAnalysis(),
        fe.FactorAnalysis(1),
        fe.KernelDensity(),
        *(
            clone(CASES[name].estimator).set_params(max_iter=3, random_state=0)
            for name in ("VAE", "NormalizingFlow", "Autoregressive", "DiffusionModel")
        ),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_far_rows_have_a_score_and_shares(estimator):
    estimator.fit(X, Y)
    nats = estimator.score_samples(FAR)
    assert (nats < -1e150).all()
    assert not np.isnan(estimator.evidence(FAR).stderr).any()
    if hasattr(estimator, "predict_proba"):
        shares = estimator.predict_proba(FAR)
        assert np.isfinite(shares).all()
        np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)


def exact_differences(mixture, x):
    """log p(x, k) − log p(x, 0), from whole numbers of any length: log-densities without their overflow."""
    logs = []
    for k in range(mixture.size):
        member = mixture.component(k)
        precision = np.linalg.inv(np.asarray(member.covariance.matrix()))
        gap = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(x, np.asarray(member.mean))]
        rows = range(len(gap))
        length = sum(gap[i] * gap[j] * Fraction(float(precision[i, j])) for i in rows for j in rows)
        logs.append(-length / 2)
    return [log - logs[0] for log in logs]


@pytest.mark.parametrize("covariance", [d.Tied(d.Full()), d.Full()], ids=["tied", "own"])
def test_a_far_row_has_a_nearest_component(covariance):
    model = fe.DiscriminantAnalysis(covariance).fit(X, Y)
    rows = np.array([[1e300, 2.0], [-1e300, 2.0], [3.0, 1e200], [1e160, -1e161], [-1e200, -1e200]])
    for row, shares in zip(model.scaling_.apply(rows), model.predict_proba(rows), strict=True):
        gain = exact_differences(model.model_, row)[1]
        assert abs(gain) > 1000, "the case is clear"
        np.testing.assert_array_equal(shares, [0.0, 1.0] if gain > 0 else [1.0, 0.0])


def test_shares_of_far_rows_go_on_from_those_of_near_ones():
    # with one covariance the log-odds are linear in x, however large it is
    members = d.Gaussian(jnp.array([[-1e-200], [1e-200]]), d.Tied(d.Full(jnp.eye(1))))
    model = Mixture(jnp.array([0.25, 0.75]), members)
    shares = np.asarray(jax.jit(lambda x: model.posterior(x).probabilities)(np.array([1e200])))
    np.testing.assert_allclose(shares, [1 / (1 + 3 * np.exp(2)), 1 / (1 + np.exp(-2) / 3)], rtol=1e-12)


def test_students_tails_are_finite_numbers_with_a_gradient():
    t = MultivariateT(jnp.zeros(1), jnp.array([[4.0]]), jnp.array(3.0))
    told = jax.jit(lambda row: (t.log_prob(row), t.log_prob_complete(row), jax.grad(t.log_prob)(row)))
    for x in (0.0, 1.0, 1e10, 1e11, 1e12, 1e150, 1e300, 1.7e308):
        expected = st.t.logpdf(x, 3, scale=2) if x < 1e100 else st.t.logpdf(1e100, 3, scale=2)
        expected += 0 if x < 1e100 else -4 * (np.log(x) - np.log(1e100))
        value, complete, slope = told(np.array([x]))
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(complete, expected, rtol=1e-12)
        # d/dx of −(ν + 1)/2 log(1 + x²/(4ν))
        expected = -4 * x / (12 + x**2) if x < 1e100 else -4 / x
        np.testing.assert_allclose(slope, [expected], rtol=1e-10)


def test_gradients_of_far_gaussians_are_finite():
    sigma = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    x = jnp.array([1e200, -1e200])
    slope = jax.jit(jax.grad(d.Gaussian(jnp.zeros(2), d.Full(sigma)).log_prob))(x)
    np.testing.assert_allclose(slope, [-1e200, 1e200], rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_states_of_an_impossible_series_are_refused():
    model = fe.HMM(2, max_iter=3, random_state=0).fit(X)
    far = X.copy()
    far[5] = 1e300
    np.testing.assert_array_equal(model.score_samples(far), [-np.inf])
    for method in ("smooth", "filter", "predict"):
        with pytest.raises(ValueError, match=rf"HMM.{method} has no answer for series 0 of X: its step 5 "):
            getattr(model, method)(far)
    # a step that was not observed is no obstacle
    far[5] = np.nan
    np.testing.assert_allclose(model.smooth(far).sum(axis=1), 1.0, rtol=1e-9)


def test_answers_whose_scores_overflow_are_refused():
    with np.errstate(all="raise"):
        model = fe.SoftmaxRegression(C=1.0).fit(X * 1e-150, Y)
        far = [[1e300, -1e300], [-1e300, 1e300]]
        sentence = r"X must hold numbers less than 1.8e\+308 times the scale \S+ of their column away"
        for ask in (model.predict_proba, model.predict, model.decision_function):
            with pytest.raises(ValueError, match=sentence):
                ask(far)
        with pytest.raises(ValueError, match=sentence):
            model.evidence(far, [0, 1])
        with pytest.raises(ValueError, match=r"SoftmaxRegression.\w+ has no answer for row 0 of X"):
            model.decision_function([[2e158, -2e158]])
    # the sides of the line w·x + b = 0, in whichever units
    np.testing.assert_array_equal(
        model.predict(np.array(far) / 1e300), (np.array(far) / 1e300 @ np.diff(model.coef_, axis=0)[0]) > 0
    )


def test_distances_of_far_rows():
    model = fe.KMeans(2, random_state=0).fit(X)
    np.testing.assert_allclose(model.transform([[3e300, 4e300]]), np.full((1, 2), 5e300), rtol=1e-12)
    # the nearest centre is the one on the side of the row, in units in which squares overflow too
    for unit in (1.0, 1e150):
        model.fit(X * unit)
        far = np.array([[1e300, 0.0], [-1e300, 0.0], [0.0, 1e300], [2e299, -1e300]])
        side = far / 1e300 @ np.diff(model.cluster_centers_ / unit, axis=0)[0]
        np.testing.assert_array_equal(model.predict(far), side > 0)
        with pytest.raises(ValueError, match=r"KMeans.score has no answer for row 0 of X"):
            model.score(far)


def test_nan_is_refused():
    model = fe.GaussianDensity().fit(X)
    model.model_ = jax.tree.map(lambda a: a * np.nan, model.model_)
    with pytest.raises(ValueError, match=r"GaussianDensity.evidence has no answer for row 0 of X"):
        model.score_samples(X)
    chain = fe.AutoRegression(1).fit(X)
    chain.model_ = jax.tree.map(lambda a: a * np.nan, chain.model_)
    with pytest.raises(ValueError, match=r"AutoRegression.evidence has no answer for series 0 of X"):
        chain.score_samples(X)


def test_spherical_classes_have_one_variance_in_the_units_of_the_data():
    model = fe.DiscriminantAnalysis(d.Spherical()).fit(X, Y)
    for k in (0, 1):
        rows = X[k == Y]
        expected = ((rows - rows.mean(axis=0)) ** 2).mean()
        np.testing.assert_allclose(model.covariances_[k], expected * np.eye(2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("label", [1e7, 1e12, 2.0**60])
def test_huge_labels_are_refused_before_anything_is_built(label):
    rows = np.tile([[0.0, 1.0], [2.0, label]], (10, 1))
    sentence = rf"the label {label:.0f} and 2 columns would take .* GiB; the limit is 2 GiB. Number the"
    for estimator in (fe.Mixture(2, d.Categorical), fe.HMM(2, d.Categorical), fe.NaiveBayes(d.Categorical)):
        with pytest.raises(ValueError, match=sentence):
            estimator.fit(rows, np.arange(20) % 2)
    for symbols in (None, int(label) + 1):
        with pytest.raises(
            ValueError, match=rf"transitions of {int(label) + 1} symbols in 2 columns would take"
        ):
            fe.MarkovChain(symbols).fit(rows)
    with pytest.raises(ValueError, match=r"transitions of 1e\+300 symbols in 2 columns would take inf GiB"):
        fe.MarkovChain().fit(np.where(rows == label, 1e300, rows))


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (
            fe.GaussianDensity(),
            r"1 x Full\(\) of 20,000 columns would take .* GiB; the limit is 2 GiB. Use Diag",
        ),
        (fe.GaussianMixture(3), r"3 x Full\(\) of 20,000 columns would take"),
        (fe.GaussianMixture(10**9, d.Diagonal()), r"1,000,000,000 x Diagonal\(\) .* Use fewer components"),
        (fe.Mixture(10**9, d.Poisson), r"Mixture with 1,000,000,000 x .* Use fewer components"),
        (fe.BayesianMixture(2), r"2 x Full\(\) of 20,000 columns would take"),
        (fe.DiscriminantAnalysis(), r"2 x Tied\(\) of 20,000 columns would take"),
        (fe.FactorAnalysis(1), "FactorAnalysis of 20,000 columns would take .* Use PCA"),
        (fe.ICA(), "ICA of 20,000 columns would take .* Use PCA"),
        (fe.RBM(10**9), "RBM of 20,000 columns and 1,000,000,000 hidden units would take"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, fe.shell.Shell) else "",
)
def test_what_does_not_fit_in_memory_is_refused(estimator, sentence):
    wide = np.zeros((6, 20_000))
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(wide, np.arange(6) % 2)


@pytest.mark.parametrize(
    "estimator", [fe.RBM(2, max_iter=2), fe.VAE(emission=fe.distributions.Bernoulli, **SMALL)]
)
def test_real_columns_are_binary_only_where_a_threshold_says_how(estimator):
    gray = np.array([[0.0, 0.2], [1.0, 0.9], [0.0, np.nan], [1.0, 0.4]] * 4)
    with pytest.raises(
        ValueError, match=r"needs entries 0 or 1. Got 0.2 in row 0, column 1. Give a 'threshold'"
    ):
        estimator.fit(gray)
    asked = estimator.set_params(threshold=0.3, random_state=0).fit(gray)
    np.testing.assert_array_equal(
        asked.score_samples(gray[:2]), asked.score_samples([[0.0, 0.0], [1.0, 1.0]])
    )
    strict = estimator.set_params(threshold=None).fit(np.where(np.isnan(gray), np.nan, gray > 0.3))
    with pytest.raises(ValueError, match="needs entries 0 or 1"):
        strict.score_samples(gray)


COUNTS = [
    (fe.GaussianDensity(), X, [("sample", "n", {}), ("sample", "n", {"given": [[1.0, np.nan]]})]),
    (
        fe.LatentDirichletAllocation(2, max_iter=2, random_state=0),
        np.eye(4),
        [("sample", "n", {}), ("sample", "n", {"given": [[1.0, np.nan, 0.0, 1.0]]})],
    ),
    (
        fe.HMM(2, max_iter=2, random_state=0),
        X,
        [
            ("sample", "n", {}),
            ("sample", "length", {}),
            ("sample", "n", {"given": X}),
            ("decode", "n", {"X": X}),
            ("sample_states", "n", {"X": X}),
            ("forecast", "steps", {"X": X}),
        ],
    ),
    (fe.MarkovChain(), Y[:, None], [("sample", "n", {}), ("forecast", "steps", {"X": Y[:, None]})]),
    (
        fe.LinearGaussianSSM(1, max_iter=2),
        X[:, :1],
        [("sample", "length", {}), ("forecast", "steps", {"X": X[:, :1]})],
    ),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "rows", "calls"), COUNTS, ids=lambda e: type(e).__name__)
def test_how_many_is_a_whole_number_that_fits_in_memory(estimator, rows, calls):
    estimator.fit(rows)
    for method, name, others in calls:
        where = rf"{type(estimator).__name__}\.{method}"
        call = getattr(estimator, method)
        with pytest.raises(
            ValueError, match=rf"^{where} with {name} = 100,000,000,000,000 would take .* GiB; the limit"
        ):
            call(**others, **{name: 10**14})
        for wrong in (-1, 2.5, True):
            with pytest.raises(
                ValueError, match=rf"^The '{name}' of {where} must be an int .* Got {wrong}"
            ):
                call(**others, **{name: wrong})


@pytest.mark.parametrize("family", [d.Bernoulli, d.Poisson, d.Categorical], ids=lambda f: f.__name__)
def test_a_mixture_of_masses_gives_none_to_what_cannot_occur(family):
    model = fe.Mixture(2, family=family, random_state=0).fit(np.column_stack([Y, 1 - Y[::-1]]))
    outside = [[0.5, 0.0], [-1.0, 0.0], [0.0, 1 + 1e-9]]
    assert (model.score_samples(outside) == -np.inf).all()
    far = model.score_samples([[1e300, 0.0]])[0]
    if family is d.Poisson:
        # x log λ − log x! by Stirling, in which the rate counts little
        assert -1e300 * (np.log(1e300) + 10) < far < -1e300 * (np.log(1e300) - 10)
    else:
        assert far == -np.inf


@pytest.mark.parametrize("scale", [1e-300, 1e200, 1e300, 1e308])
def test_scales_without_a_variance_are_refused(scale):
    for estimator in (fe.PCA(1), fe.KMeans(2), fe.PPCA(1), fe.GaussianDensity(), fe.KernelDensity()):
        with pytest.raises(ValueError, match=r"Column 0 of X has the scale .* change its unit"):
            estimator.fit((Y[:, None] - 0.5) * [scale, 1.0] * 3)


def test_a_column_that_varies_less_than_numbers_resolve_is_constant_and_said_to_be():
    x = np.column_stack([1e16 + 2 * (np.arange(60) % 2), X[:, 1]])
    with pytest.warns(UserWarning, match=r"Column 0 of X varies by 1 about 1e\+16, .* taken for constant"):
        model = fe.GaussianDensity().fit(x)
    x[:, 0] = 1e16
    constant = fe.GaussianDensity().fit(x)
    np.testing.assert_allclose(model.covariance_, constant.covariance_, rtol=1e-6, atol=1.0)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_only_ratios_of_extreme_weights_matter(size):
    weight = 1.0 + np.arange(60) % 3
    for estimator in (
        fe.GaussianDensity(),
        fe.PCA(1),
        fe.GaussianMixture(2, random_state=0),
        fe.KMeans(2, random_state=0),
    ):
        plain = estimator.fit(X, sample_weight=weight)
        name = (
            "mean_"
            if hasattr(plain, "mean_")
            else "means_"
            if hasattr(plain, "means_")
            else "cluster_centers_"
        )
        expected = getattr(plain, name)
        found = getattr(estimator.fit(X, sample_weight=weight * size), name)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_weights_that_are_shares_leave_the_components_where_they_are():
    weight = np.full(60, 1 / 60)
    plain = fe.GaussianMixture(2, random_state=0).fit(X)
    shares = fe.GaussianMixture(2, random_state=0).fit(X, sample_weight=weight)
    np.testing.assert_allclose(shares.means_, plain.means_, rtol=1e-9)


def test_one_row_of_weight():
    model = fe.GaussianDensity(d.Diagonal()).fit(X, sample_weight=np.arange(60) == 7)
    np.testing.assert_allclose(model.mean_, X[7], rtol=1e-12)


def test_steps_follow_the_weight_of_rows_and_not_their_number():
    rows = np.array([[0.0], [1.0], [3.0]])

    def mean_after_one_epoch(x, weight, batch_size):
        start: Any = Density(d.Gaussian(jnp.zeros(1), d.Diagonal(jnp.ones(1))))
        mask = freeze(start, lambda m: m.family.covariance)
        learner = Gradient(optax.sgd(0.1), negative_log_likelihood, batch_size=batch_size, learnable=mask)
        found = fit(start, learner, Data.of(x, weight), key=jax.random.key(0), max_iter=1).model
        return float(found.family.mean[0])

    # 120 rows are six steps of 20, each towards the mean of all by a tenth of what is left
    weight = np.array([60.0, 40.0, 20.0])
    mean = weight @ rows[:, 0] / 120
    np.testing.assert_allclose(mean_after_one_epoch(rows, weight, 20), mean * (1 - 0.9**6), rtol=1e-9)
    # shares of a whole are rows, and no epoch is endless
    for scale, steps in ((1 / 120, 1), (1e6, 1000 * 3 // 20)):
        found = mean_after_one_epoch(rows, weight * scale, 20)
        np.testing.assert_allclose(found, mean * (1 - 0.9**steps), rtol=1e-9)
    # more rows than a batch holds
    many, weight = np.arange(40.0)[:, None] / 40, 1.0 + np.arange(40) % 3
    full = mean_after_one_epoch(np.repeat(many, weight.astype(int), axis=0), None, 20)
    assert abs(mean_after_one_epoch(many, weight, 20) - full) < 0.05 * full


def test_what_cannot_be_imputed_is_refused():
    # the mean given the other column is 1e12 times as large as that
    row = [[np.nan, 1e300]]
    model = fe.GaussianDensity().fit(np.column_stack([X[:, 1] * 1e12 + X[:, 0], X[:, 1]]))
    with pytest.raises(ValueError, match=r"GaussianDensity.impute has no answer for row 0 of X"):
        model.impute(row)
    with pytest.raises(ValueError, match=r"GaussianDensity.sample has no answer for row 0 of X"):
        model.sample(given=row)


DAYS = np.array([["2020-01-01", "NaT"]] * 4, dtype="datetime64[ns]")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (DAYS, "not dates. Pass the time since some day instead."),
        (DAYS - DAYS[0, 0], "not dates"),
        # in frames dates are modelled, if there are any
        (pd.DataFrame(DAYS), r"not dates|Column '?1'? of X has no observed value"),
        (pl.DataFrame(DAYS), "not dates|Column 'column_1' of X has no observed value"),
        (pl.DataFrame(DAYS - DAYS[0, 0]), "not (dates|durations)"),
        (
            pd.DataFrame(DAYS).assign(size=1.0),
            "X must hold numbers, not dates, which column 0 has|has no observed value",
        ),
        (pd.DataFrame(X[:4], columns=["a", "a"]), "must have different names. Got 'a' 2 times."),
        (np.array([[{}, 1.0]] * 4, dtype=object), "X must hold numbers, or NaN .* not 'dict'."),
    ],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("estimator", [fe.GaussianDensity(), fe.NaiveBayes(), fe.AutoRegression(1)])
def test_what_holds_no_numbers_is_refused_in_our_words(estimator, rows, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        estimator.fit(rows, np.arange(4) % 2)


@pytest.mark.parametrize(
    ("estimator", "rows", "sentence"),
    [
        (fe.GaussianDensity(), [[1.0, 2.0], [3.0]], "The rows of X must have the same length."),
        (fe.NaiveBayes(), [[1.0, 2.0], [3.0]], "The rows of X must have the same length."),
        (fe.GaussianDensity(), "word", "X must hold numbers, .* in rows and columns, not text."),
        (
            fe.AutoRegression(1),
            "word",
            r"X must be one series \(time, features\), .* Got the shape \(\) instead.",
        ),
    ],
)
def test_what_is_no_table_is_refused_in_our_words(estimator, rows, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        estimator.fit(rows, np.arange(2))


def test_weights_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="sample_weight must be a non-negative number for each row of X"):
        fe.GaussianDensity().fit(X, sample_weight=["word"] * 60)
    for wrong in (["word"], [1j]):
        with pytest.raises(
            ValueError, match=r"The 'series_weight' of AutoRegression.fit must be a non-neg"
        ):
            fe.AutoRegression(1).fit([X], series_weight=wrong)
