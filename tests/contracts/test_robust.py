"""Awkward input: the right answer, or one sentence that says what is wrong and what to do."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import CASES, needs_labels
from data import ROWS, STEPS
from scipy import sparse
from sklearn.base import clone, is_classifier, is_clusterer, is_regressor

from freeenergy.shell import AbstractImplicit, Transforms

# few steps do for these questions
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def names(serves=lambda case: True):
    """The cases that a test is about, as its parameters."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
        for name, case in CASES.items()
        if serves(case)
    ]


def is_asked_about_rows(case):
    """Whether it does more than draw."""
    return not isinstance(case.estimator, AbstractImplicit) or isinstance(case.estimator, Transforms)


RNG = np.random.RandomState(0)
X = ROWS
# they have a model of two labels, or take codes for numbers
WITH_LABELS = {
    "Mixture-bernoulli",
    "Mixture-by-column",
    "BayesianMixture-by-column",
    "GAN",
    "GaussianCopula",
    "ClassConditionalGAN",
    "InfoGAN",
    "KernelDensity",
    "BayesianNetwork",
    "BayesianNetwork-likelihood",
    "BayesianNetwork-numbers",
    "MarkovNetwork",
    "MarkovNetwork-moral",
    "MixedFactorAnalysis",
    "VAE-bernoulli",
    "VAE-by-column",
    "VAE-bits",
    "Autoregressive",
    "Autoregressive-binary",
    "Autoregressive-transformer",
    "Dequantised",
}
CLASSES = np.arange(len(X)) % 2


def prepare(name, rows):
    """Rows that the estimator can mean: zeros and ones for discrete models."""
    case = CASES[name]
    rows = rows[:STEPS] if case.sequence else rows
    if case.points is None and case.symbols is None and not case.counts:
        return np.asarray(rows, float)
    return np.where(np.isnan(rows), np.nan, (np.asarray(rows, float) > 0).astype(float))


def answers(name, n):
    """What an estimator is told of so many rows beside them, if anything."""
    case = CASES[name]
    if case.answers is not None:
        return (case.answers(np.zeros(n), np.random.RandomState(0)),)
    return (np.arange(n) % 2,) if needs_labels(case.estimator) else ()


def fitted(name, rows):
    estimator = clone(CASES[name].estimator)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    return estimator.fit(rows, *answers(name, rows.shape[0] if hasattr(rows, "shape") else len(rows)))


def numbers(name, estimator, rows):
    """A finite number per row, whatever kind of estimator it is."""
    if CASES[name].density:
        return estimator.score_samples(rows)
    if is_classifier(estimator) or is_clusterer(estimator) or is_regressor(estimator):
        return estimator.predict(rows).astype(float)
    if not is_asked_about_rows(CASES[name]):
        return np.asarray(estimator.sample(len(rows), random_state=0), float)
    return estimator.transform(rows)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(X[:, :1], id="one column"),
        pytest.param(np.column_stack([X[:, 0], np.full(len(X), 7.0)]), id="constant column"),
        pytest.param(np.repeat(X[::4], 4, axis=0), id="duplicate rows"),
        pytest.param(X * np.array([1e150, 1e-150]), id="huge and tiny scales"),
        pytest.param(X + 1e8, id="far from zero"),
        pytest.param(np.where(RNG.rand(*X.shape) < 0.3, np.nan, X), id="missing entries"),
    ],
)
def test_survives(name, rows):
    rows = prepare(name, rows)
    if CASES[name].columns not in (None, rows.shape[1]):
        with pytest.raises(ValueError, match="must have as many entries as rows have columns"):
            fitted(name, rows)
        return
    estimator = fitted(name, rows)
    assert np.isfinite(numbers(name, estimator, rows)).all()
    if CASES[name].density:
        assert np.isfinite(estimator.sample(3, random_state=0)).all()


@pytest.mark.parametrize("name", names(lambda case: case.density))
def test_one_row(name):
    rows = prepare(name, X[:1])
    if name in {"AutoRegression", "StructuralTimeSeries"}:
        # one step has no likelihood left after what it starts from
        with pytest.raises(ValueError, match="observed"):
            fitted(name, rows)
        return
    assert np.isfinite(fitted(name, rows).score_samples(rows)).all()


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.empty((0, 3)), "0 sample"),
        (np.empty((5, 0)), "0 feature"),
        (np.full((5, 2), np.inf), "infinity"),
        (np.zeros((4, 3, 2)), "dim 3"),
        (np.column_stack([X > 0, np.full(len(X), np.nan)]), "Column 2 of X has no observed value. Drop it"),
        (sparse.csr_matrix(X), "[Ss]parse"),
    ],
)
def test_refuses_with_a_sentence(name, rows, message):
    if CASES[name].sequence and np.ndim(rows) == 3:
        pytest.skip("three axes are several series")
    if CASES[name].counts and sparse.issparse(rows):
        pytest.skip("counts may be sparse")
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(name, rows)


# these two columns repeat each other
@pytest.mark.filterwarnings("ignore:Columns 'x?0', 'x?1' of X depend on each other")
@pytest.mark.parametrize("name", names())
def test_labels_are_modelled_or_refused_with_a_sentence(name):
    rows = [["a", "b"], ["c", "d"]] * 6
    refused = r"not text\. Got 'a' in row 0, column 0|has no model of column 0, which holds labels"
    if name in WITH_LABELS:
        assert set(fitted(name, rows).sample(9, random_state=0)[:, 0]) <= {"a", "c"}
        return
    if hasattr(type(CASES[name].estimator), "columns_"):
        # it has no model of the rows, and takes labels as zeros and ones
        assert fitted(name, rows).columns_ == ["0", "1"]
        return
    if name in ("Calibrated", "MultiLabel"):
        # as their classifier does
        assert len(fitted(name, rows).predict(rows)) == len(rows)
        return
    with pytest.raises(ValueError, match=refused):
        fitted(name, rows)


@pytest.mark.parametrize("name", names(is_asked_about_rows))
def test_wrong_width_at_prediction(name):
    estimator = fitted(name, prepare(name, X))
    with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2 features"):
        numbers(name, estimator, X[:, :1])


@pytest.mark.parametrize("name", names(is_asked_about_rows))
def test_frames_and_precision(name):
    rows = prepare(name, X).astype(np.float32)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    estimator = fitted(name, frame)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    plain = fitted(name, rows.astype(float))
    np.testing.assert_array_equal(numbers(name, estimator, frame), numbers(name, plain, rows.astype(float)))
    with pytest.raises(ValueError, match="feature names should match"):
        numbers(name, estimator, frame[["b", "a"]])
    other = fitted(name, pl.DataFrame(rows, schema=["a", "b"]))
    np.testing.assert_array_equal(numbers(name, other, frame), numbers(name, plain, rows.astype(float)))


@pytest.mark.parametrize("name", names(lambda case: not case.sequence))
def test_weights_are_checked(name):
    estimator = clone(CASES[name].estimator)
    rows = prepare(name, X)
    target = answers(name, len(X))
    with pytest.raises(ValueError, match=r"[Nn]egative values in data passed to `sample_weight`"):
        estimator.fit(rows, *target, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match="at least one non-zero number"):
        estimator.fit(rows, *target, sample_weight=np.zeros(len(X)))


BAD_PARAMETERS = [
    (
        "GaussianMixture",
        "n_components",
        0,
        r"'n_components' parameter of GaussianMixture must be an int in "
        r"the range \[1, inf\). Got 0 instead.",
    ),
    ("GaussianMixture", "tol", -1.0, r"'tol' parameter of GaussianMixture must be a float in the range"),
    (
        "GaussianMixture",
        "covariance",
        "full",
        "must be an instance of AbstractCovariance or None",
    ),
    (
        "GaussianMixture",
        "init",
        "k-means++",
        "must be an instance of AbstractStart or ndarray or Mixture or None",
    ),
    ("GaussianMixture", "init", np.zeros((2, 5)), r"must have the shape \(2, 2\)"),
    ("Mixture", "family", "poisson", "must be an exponential family"),
    ("KMeans", "n_clusters", 2.5, "must be an int in the range"),
    ("KMeans", "n_clusters", 200, "must be at most the number of rows"),
    ("KMeans", "init", np.zeros((2, 5)), r"must have the shape \(2, 2\)"),
    ("FactorAnalysis", "n_components", -1, r"must be an int in the range \[0, inf\) or None"),
    ("RBM", "learning_rate", 0.0, r"must be a float in the range \(0, inf\)"),
    ("RBM", "phase", "cd", "must be an instance of AbstractNegativePhase or None"),
    ("VAE", "emission", "gaussian", "must be a family of freeenergy.distributions, such as Poisson"),
    ("VAE", "importance_samples", 1, r"must be an int in the range \[2, inf\)"),
    (
        "NormalizingFlow",
        "architecture",
        "coupling",
        "must be coupling_flow, autoregressive_flow",
    ),
    ("NormalizingFlow", "validation_fraction", 1.0, r"must be a float in the range \[0, 1\)"),
    ("SoftmaxRegression", "C", 0.0, r"must be a float in the range \(0, inf\) or None"),
]


@pytest.mark.parametrize(
    ("name", "parameter", "value", "message"),
    BAD_PARAMETERS,
    ids=[f"{b[0]}-{b[1]}" for b in BAD_PARAMETERS],
)
def test_wrong_parameters(name, parameter, value, message):
    estimator = clone(CASES[name].estimator).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=message):
        estimator.fit(prepare(name, X), CLASSES)
