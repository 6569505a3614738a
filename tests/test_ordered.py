"""Answers in an order: ordered logit and probit, against statsmodels."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from statsmodels.miscmodels.ordinal_model import OrderedModel as Peer

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.models import OrderedModel

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal([5.0, 0.0], [2.0, 0.3], (N, 2))
# grades, far from each other in the alphabet
GRADES = np.array(["poor", "fair", "good", "best"])
PLACE = np.searchsorted([3.0, 5.0, 7.0], X[:, 0] - 2 * X[:, 1] + RNG.logistic(0, 0.8, N))
Y = GRADES[PLACE]
NOISES = {"logit": (None, "logit", stats.logistic), "probit": (d.Gaussian, "probit", stats.norm)}
noises = pytest.mark.parametrize("name", NOISES)


def fitted(name, **options):
    return fe.OrderedRegression(NOISES[name][0], order=GRADES.tolist(), C=None, **options).fit(X, Y)


@noises
def test_a_fit_is_that_of_statsmodels(name):
    peer = Peer(PLACE, X, distr=NOISES[name][1])
    theirs, ours = peer.fit(method="newton", disp=0, maxiter=100), fitted(name)
    cuts = peer.transform_threshold_params(theirs.params)[1:-1]
    np.testing.assert_allclose(ours.coef_, theirs.params[:2], rtol=1e-6)
    np.testing.assert_allclose(ours.thresholds_, cuts, rtol=1e-6)
    np.testing.assert_allclose(ours.evidence(X, Y).nats.sum(), theirs.llf, rtol=1e-9)
    # (its further thresholds are logarithms of distances)
    np.testing.assert_allclose(ours.standard_errors_[:3], theirs.bse[:3], rtol=1e-4)
    order = [GRADES.tolist().index(label) for label in ours.classes_]
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict(X)[:, order], rtol=1e-6)
    assert ours.order_.tolist() == GRADES.tolist()
    assert ours.classes_.tolist() == sorted(GRADES)
    summary = ours.summary(X, y=Y)
    assert summary.aic == pytest.approx(theirs.aic)
    assert "poor | fair" in str(summary)
    assert ours.converged_


@noises
def test_the_law_is_that_of_thresholds_and_noise(name):
    ours, law = fitted(name), NOISES[name][2]
    ends = np.concatenate([[-np.inf], ours.thresholds_, [np.inf]]) - (X @ ours.coef_)[:, None]
    expected = np.diff(law.cdf(ends), axis=1)
    for place, grade in enumerate(GRADES):
        column = ours.classes_.tolist().index(grade)
        np.testing.assert_allclose(ours.predict_proba(X)[:, column], expected[:, place], rtol=1e-9)
    # far out probabilities still have their number, and nothing is NaN
    logs = ours.predict_log_proba([[500.0, 0.0], [-500.0, 0.0]])
    assert np.isfinite(logs).all()
    assert logs.min() < -100
    # the model says the same of rescaled rows
    z = ours.scaling_.apply(X[:5])
    found = np.exp(-np.asarray(jax.vmap(ours.model_.energies)(jnp.asarray(z))))
    np.testing.assert_allclose(found, expected[:5], rtol=1e-9)
    assert ours.model_.posterior(jnp.asarray(z[0])).probabilities.sum() == pytest.approx(1)
    assert ours.model_.log_prob_of(jnp.array(2), jnp.asarray(z[0])) == pytest.approx(np.log(expected[0, 2]))
    assert ours.model_.latent(jnp.asarray(z[0])).size == 4


@noises
def test_two_answers_are_a_generalised_linear_model(name):
    two = PLACE > 1
    ours = fe.OrderedRegression(NOISES[name][0], C=None).fit(X, two)
    link = d.Mean(jax.scipy.special.ndtr) if name == "probit" else None
    other = fe.GeneralisedLinearModel(d.Bernoulli, link).fit(X, two.astype(float))
    np.testing.assert_allclose(ours.coef_, other.coef_, rtol=1e-5)
    np.testing.assert_allclose(ours.thresholds_, [-other.intercept_], rtol=1e-5)
    assert ours.decision_function(X).shape == (N,)


def test_the_order_is_that_of_categories_or_declared():
    expected = fitted("logit", tol=1e-9)
    ordered = pd.Series(pd.Categorical(Y, GRADES, ordered=True))
    enumerated = pl.Series(Y.tolist(), dtype=pl.Enum(["worst", *GRADES]))
    for answers in (ordered, ordered.array):
        found = fe.OrderedRegression(C=None).fit(X, answers)
        assert found.order_.tolist() == GRADES.tolist()
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)
    assert fe.OrderedRegression(C=None).fit(X, enumerated).order_.tolist() == GRADES.tolist()
    # the other way round all is mirrored; another order is another model
    back = fe.OrderedRegression(order=GRADES[::-1].tolist(), C=None).fit(X, Y)
    np.testing.assert_allclose(back.coef_, -expected.coef_, rtol=1e-6)
    np.testing.assert_allclose(back.predict_proba(X), expected.predict_proba(X), rtol=1e-6)
    alphabet = fe.OrderedRegression(C=None).fit(X, Y)
    assert alphabet.score(X, Y) < expected.score(X, Y)
    assert fe.OrderedRegression().fit(X, PLACE).order_.tolist() == [0, 1, 2, 3]


def test_weights_penalty_and_missing_inputs(tmp_path):
    weight = RNG.integers(1, 3, N)
    rows = np.repeat(np.arange(N), weight)
    ours = fe.OrderedRegression(order=GRADES).fit(X, Y, sample_weight=weight)
    again = fe.OrderedRegression(order=GRADES).fit(X[rows], Y[rows])
    np.testing.assert_allclose(ours.coef_, again.coef_, rtol=1e-6)
    assert np.isnan(ours.standard_errors_).all()
    assert "Standard errors are those of a fit without a penalty" in str(ours.summary(X, y=Y))
    # a strong penalty leaves the shares of the answers
    strong = fe.OrderedRegression(order=GRADES, C=1e-9).fit(X, Y)
    shares = [np.mean(label == Y) for label in strong.classes_]
    np.testing.assert_allclose(strong.predict_proba(X[:1])[0], shares, rtol=1e-4)
    holes = X.copy()
    holes[::5, 1] = np.nan
    found = fe.OrderedRegression(order=GRADES).fit(holes, Y)
    assert found.evidence(holes, Y).kind is fe.Kind.ESTIMATE
    np.testing.assert_allclose(found.predict_proba(holes).sum(axis=1), 1)
    found.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        fe.load(tmp_path / "m.safetensors").predict_proba(holes), found.predict_proba(holes)
    )


def test_rows_without_a_largest_likelihood_are_noticed():
    line = np.arange(12.0)[:, None]
    with pytest.warns(ConvergenceWarning, match="in the order of their answers without an error"):
        fe.OrderedRegression(C=None).fit(line, np.arange(12) // 4)
    assert fe.OrderedRegression().fit(line, np.arange(12) // 4).score(line, np.arange(12) // 4) == 1


@pytest.mark.parametrize(
    ("options", "y", "sentence"),
    [
        ({"noise": d.Laplace}, Y, "must be Logistic or Gaussian of freeenergy.distributions, or None. Got"),
        ({"order": "abc"}, Y, "must be a list of different labels, or None. Got 'abc' instead"),
        ({"order": ["poor", "poor"]}, Y, "must be a list of different labels"),
        ({"order": ["poor", "fair", "good"]}, Y, "must have every label of y. Got none for 'best'"),
        ({"C": 0.0}, Y, "The 'C' parameter of OrderedRegression must be"),
        ({}, np.full(N, "poor"), "needs rows of two classes or more. Got one class, 'poor'"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_sentence(options, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.OrderedRegression(**options).fit(X, y)


def test_it_is_compared_with_other_classifiers():
    board = fe.compare(
        {"ordered": fe.OrderedRegression(order=GRADES.tolist()), "softmax": fe.SoftmaxRegression()},
        X,
        Y,
        cv=3,
    )
    assert all(line.error is None for line in board.table())
    assert isinstance(board.fit_all("ordered").model_, OrderedModel)
