"""Rows in parts: fits that go on with more of them."""

import itertools

import numpy as np
import polars as pl
import pytest
from data import ROWS
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.shell import LearnsInParts, Rows
from freeenergy.shell._increments import reduced_rows

HOLES = ROWS.copy()
HOLES[::7, 0] = np.nan
HOLES[3::11, 1] = np.nan
# of different sizes, and none begins like the rows before it
CUTS = [0, 50, 53, 54, 120]
LABELS = np.where(ROWS[:, 0] + 0.3 * ROWS[:, 1] > 0, "up", "down")


def in_parts(estimator, X, *more, cuts=CUTS):
    fitted = clone(estimator)
    for start, stop in itertools.pairwise(cuts):
        assert fitted.partial_fit(X[start:stop], *(part[start:stop] for part in more)) is fitted
    return fitted


@pytest.mark.parametrize("X", [ROWS, HOLES], ids=["complete", "missing"])
@pytest.mark.parametrize(
    "estimator",
    [
        fe.GaussianDensity(tol=1e-12),
        fe.GaussianDensity(d.Diagonal()),
        fe.GaussianDensity(d.Spherical()),
        fe.FactorAnalysis(1, tol=1e-12),
        fe.PPCA(1, tol=1e-12),
    ],
    ids=lambda model: f"{type(model).__name__} {getattr(model, 'covariance', '')}",
)
def test_gaussian_models_are_those_of_all_rows(estimator, X):
    parts, whole = in_parts(estimator, X), clone(estimator).fit(X)
    tolerance = 1e-9 if X is ROWS else 1e-5
    np.testing.assert_allclose(
        parts.score_samples(X), whole.score_samples(X), rtol=tolerance, atol=tolerance
    )
    assert parts.fitted_size_ == whole.fitted_size_ == 120
    # log-likelihood, criteria: those of the fit
    found, expected = parts.summary(), whole.summary()
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-6)
    assert found.n_parameters == expected.n_parameters
    # four rows for each set of columns that are observed, or fewer
    assert len(parts.kept_.x) <= (4 if X is ROWS else 4 + 2 + 2 + 1)


def test_planes_are_those_of_all_rows():
    parts, whole = in_parts(fe.PCA(1), ROWS), fe.PCA(1).fit(ROWS)
    np.testing.assert_allclose(parts.components_, whole.components_, rtol=1e-9)
    np.testing.assert_allclose(parts.explained_variance_ratio_, whole.explained_variance_ratio_, rtol=1e-9)
    other = PCA(1).fit(ROWS)
    np.testing.assert_allclose(np.abs(parts.components_), np.abs(other.components_), rtol=1e-6)


def test_rows_that_move_far_away_lose_no_digits():
    """The second part is 10⁸ standard deviations from the first, and the third another 10⁸."""
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.normal(size=(40, 2)), rng.normal(1e8, 1.0, (40, 2)), rng.normal(2e8, 1.0, (40, 2))]
    )
    parts = in_parts(fe.GaussianDensity(), X, cuts=[0, 40, 80, 120])
    whole = fe.GaussianDensity().fit(X)
    np.testing.assert_allclose(parts.mean_, whole.mean_, rtol=1e-14)
    np.testing.assert_allclose(parts.covariance_, whole.covariance_, rtol=1e-9)
    # a first part that is far from zero, and very narrow
    narrow = 1e6 + 1e-3 * rng.normal(size=(120, 2))
    parts, whole = in_parts(fe.GaussianDensity(), narrow), fe.GaussianDensity().fit(narrow)
    np.testing.assert_allclose(parts.covariance_, whole.covariance_, rtol=1e-6)


def test_weights_are_repetitions_and_files_go_on(tmp_path):
    weight = np.arange(60) % 3
    first = fe.GaussianDensity().partial_fit(ROWS[:60], sample_weight=weight)
    first.save(tmp_path / "part.safetensors")
    found = fe.load(tmp_path / "part.safetensors").partial_fit(ROWS[60:])
    repeated = np.concatenate([np.repeat(ROWS[:60], weight, axis=0), ROWS[60:]])
    np.testing.assert_allclose(
        found.score_samples(ROWS), fe.GaussianDensity().fit(repeated).score_samples(ROWS)
    )
    np.testing.assert_array_equal(
        found.score_samples(ROWS), first.partial_fit(ROWS[60:]).score_samples(ROWS)
    )


@pytest.mark.parametrize("X", [ROWS, HOLES], ids=["complete", "missing"])
def test_classes_are_those_of_all_rows(X):
    for model in (fe.NaiveBayes(), fe.DiscriminantAnalysis(), fe.DiscriminantAnalysis(d.Full())):
        model = model.set_params(tol=1e-12)
        parts, whole = in_parts(model, X, LABELS), clone(model).fit(X, LABELS)
        tolerance = 1e-9 if X is ROWS or isinstance(model, fe.NaiveBayes) else 1e-5
        np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=tolerance)
        np.testing.assert_allclose(parts.class_prior_, whole.class_prior_, rtol=1e-12)
    other = GaussianNB(var_smoothing=0.0).fit(ROWS, LABELS)
    mine = in_parts(fe.NaiveBayes(), ROWS, LABELS)
    np.testing.assert_allclose(mine.predict_proba(ROWS), other.predict_proba(ROWS), atol=1e-6)


def test_a_class_may_come_late():
    order = np.argsort(LABELS, kind="stable")
    X, y = ROWS[order], LABELS[order]
    parts = in_parts(fe.NaiveBayes(), X, y, cuts=[0, 20, 70, 120])
    assert parts.classes_.tolist() == ["down", "up"]
    np.testing.assert_allclose(
        parts.predict_proba(X), fe.NaiveBayes().fit(X, y).predict_proba(X), atol=1e-9
    )
    with pytest.raises(ValueError, match=r"'y' must be among the 'classes'\. Got 'up'"):
        fe.NaiveBayes().partial_fit(X[-9:], y[-9:], classes=["down"])


def test_counts_and_labels_are_kept_by_how_often_they_occur():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    X = np.column_stack([rng.poisson(2 + 3 * y), rng.random(120) < 0.3 + 0.4 * y]).astype(float)
    X[::9, 1] = np.nan
    model = fe.NaiveBayes([d.Poisson, d.Bernoulli])
    parts, whole = in_parts(model, X, y), clone(model).fit(X, y)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-9)
    kept = parts.kept_
    assert len(kept.x) < 60
    for label in (0, 1):
        for column in (0, 1):
            mine, theirs = kept.known[:, 0] == label, y == label
            seen = ~np.isnan(kept.x[:, column]) & mine
            real = ~np.isnan(X[:, column]) & theirs
            for value in np.unique(X[real, column]):
                expected = np.sum(X[real, column] == value)
                found = kept.weight[seen & (kept.x[:, column] == value)].sum()
                np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_tables_of_several_kinds_in_parts():
    rng = np.random.default_rng(1)
    tall = rng.random(120) < 0.5
    frame = pl.DataFrame(
        {
            "kind": np.where(rng.random(120) < 0.2, None, np.where(tall, "a", "b")),
            "height": rng.normal(6.0 * tall, 1.0),
            "visits": rng.poisson(1 + 5 * tall),
        },
        schema_overrides={"kind": pl.String},
    )
    y = tall.astype(int)
    parts = fe.NaiveBayes("by column")
    for start in (0, 40, 80):
        parts.partial_fit(frame[start : start + 40], y[start : start + 40])
    whole = fe.NaiveBayes("by column").fit(frame, y)
    np.testing.assert_allclose(parts.predict_proba(frame), whole.predict_proba(frame), atol=1e-9)
    mixture = fe.Mixture(2, family="by column", random_state=0)
    for start in (0, 40, 80):
        mixture.partial_fit(frame[start : start + 40])
    assert (mixture.predict(frame) == y).mean() in (0.0, 1.0) or min(
        (mixture.predict(frame) == y).mean(), (mixture.predict(frame) != y).mean()
    ) < 0.03


def test_a_mixture_goes_on_without_raising_the_free_energy():
    """Incremental EM: with the components of earlier rows held, the objective of a part falls."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [7.0, 0.0], [0.0, 7.0]])
    X = centres[rng.integers(3, size=360)] + rng.normal(size=(360, 2))
    X[::13, 1] = np.nan
    model = fe.GaussianMixture(3, random_state=0, tol=1e-8, n_init=3)
    for part in np.split(X, 3):
        model.partial_fit(part)
        objective = model.history_["objective"]
        assert (np.diff(objective) <= 1e-9).all()
    whole = fe.GaussianMixture(3, random_state=0, tol=1e-8, n_init=3).fit(X)
    # the clusters are apart: what is held is nearly what a fit to all rows finds
    assert abs(model.score(X) - whole.score(X)) < 2e-3
    np.testing.assert_allclose(model.kept_.weight.sum(), 360, rtol=1e-12)
    # for each component four rows, and two where the second column is missing
    assert len(model.kept_.x) <= 3 * (4 + 2)
    assert model.summary().log_likelihood is None
    assert np.isfinite(model.summary(X).log_likelihood)
    with pytest.raises(ValueError, match="'n_components' parameter of GaussianMixture must stay 3 between"):
        model.set_params(n_components=2).partial_fit(X)


def test_components_that_move_are_carried_into_new_units():
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 1e4
    both = np.concatenate([near[:30], near[:30] + 8.0])
    model = fe.GaussianMixture(2, random_state=0).partial_fit(both).partial_fit(np.concatenate([near, far]))
    assert np.isfinite(model.score(far))
    counts = fe.Mixture(2, d.Poisson, random_state=0)
    X = rng.poisson(np.where(rng.random((120, 1)) < 0.5, 2.0, 30.0), (120, 2))
    found = in_parts(counts, X)
    np.testing.assert_allclose(
        np.sort(found.model_.components.rate[:, 0]),
        np.sort(counts.fit(X).model_.components.rate[:, 0]),
        rtol=0.02,
    )


def test_the_kept_table_has_the_statistics_of_all_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3)) + 5.0
    weight = rng.random(200)
    found = reduced_rows(d.Gaussian(np.zeros(3), d.Full()), Rows(X, weight))
    assert len(found.x) == 6
    np.testing.assert_allclose(found.weight.sum(), weight.sum())
    np.testing.assert_allclose(np.average(found.x, axis=0, weights=found.weight), weight @ X / weight.sum())
    np.testing.assert_allclose(
        np.cov(found.x.T, aweights=found.weight, ddof=0), np.cov(X.T, aweights=weight, ddof=0)
    )
    # fewer rows are kept as they are
    few = Rows(X[:5], weight[:5])
    np.testing.assert_array_equal(
        np.sort(reduced_rows(d.Gaussian(np.zeros(3), d.Full()), few).x, axis=0), np.sort(few.x, axis=0)
    )


def test_what_cannot_go_on_says_so():
    fitted = fe.GaussianDensity().fit(ROWS)
    with pytest.warns(UserWarning, match=r"GaussianDensity\.fit keeps no rows to go on from: partial_fit"):
        fitted.partial_fit(ROWS[:30])
    assert fitted.fitted_size_ == 30
    # fit begins anew
    model = fe.GaussianDensity().partial_fit(ROWS[:50]).fit(ROWS)
    assert "kept_" not in vars(model)
    first = fe.GaussianDensity().partial_fit(ROWS)
    with pytest.raises(ValueError, match="X has 1 features, but GaussianDensity is expecting 2"):
        first.partial_fit(ROWS[:, :1])
    assert isinstance(first, LearnsInParts)
    assert "partial_fit" not in dir(fe.KMeans())
    frame = pl.DataFrame({"a": ["x", "y"] * 9, "b": np.arange(18.0) ** 1.5})
    model = fe.Mixture(1, family="by column", random_state=0).partial_fit(frame)
    with pytest.raises(ValueError, match="A category must be among those that were fitted"):
        model.partial_fit(pl.DataFrame({"a": ["z"], "b": [1.0]}))


SYMBOLS = [
    np.random.default_rng(seed).integers(0, 3, (n, 2)).astype(float) for seed, n in enumerate((9, 5, 12))
]


@pytest.mark.parametrize(
    "options",
    [{}, {"transition_prior": d.DirichletPrior(d.Categorical(np.ones((1, 3)) / 3), np.full(3, 1.5))}],
)
def test_chains_of_symbols_are_those_of_all_series(options, tmp_path):
    whole = fe.MarkovChain(**options).fit(SYMBOLS)
    parts = fe.MarkovChain(**options)
    for series in SYMBOLS[:2]:
        assert parts.partial_fit(series) is parts
    parts.save(tmp_path / "chain.safetensors")
    parts = fe.load(tmp_path / "chain.safetensors").partial_fit(SYMBOLS[2])
    np.testing.assert_allclose(parts.transition_, whole.transition_, rtol=1e-12)
    np.testing.assert_allclose(parts.initial_, whole.initial_, rtol=1e-12)
    np.testing.assert_allclose(parts.score_samples(SYMBOLS), whole.score_samples(SYMBOLS), rtol=1e-12)
    assert parts.fitted_size_ == whole.fitted_size_ == 26
    # by counting
    pairs = np.zeros((3, 3))
    for series in SYMBOLS:
        np.add.at(pairs, (series[:-1, 0].astype(int), series[1:, 0].astype(int)), 1)
    np.testing.assert_allclose(parts.kept_.pairs[0], pairs, atol=1e-12)
    found, expected = parts.summary(SYMBOLS), whole.summary(SYMBOLS)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood)


def test_chains_go_on_with_new_symbols_weights_and_holes():
    late = np.array([[0.0], [4.0], [4.0], [1.0]])
    first = SYMBOLS[0][:, :1]
    parts = fe.MarkovChain().partial_fit(first, series_weight=[2.0]).partial_fit(late)
    whole = fe.MarkovChain().fit([first, late], series_weight=[2.0, 1.0])
    np.testing.assert_allclose(parts.transition_, whole.transition_, rtol=1e-12)
    assert parts.transition_.shape == (1, 5, 5)
    # what is missing in the last part is inferred with the counts of those before
    holes = late.copy()
    holes[2] = np.nan
    parts = fe.MarkovChain(tol=1e-12).partial_fit(first).partial_fit(holes)
    whole = fe.MarkovChain(tol=1e-12).fit([first, holes])
    np.testing.assert_allclose(parts.transition_, whole.transition_, atol=1e-5)
    with pytest.warns(UserWarning, match="keeps no series to go on from: partial_fit begins anew"):
        again = fe.MarkovChain().fit(late).partial_fit(first)
    np.testing.assert_allclose(again.transition_, fe.MarkovChain().fit(first).transition_)
    with pytest.raises(ValueError, match="X has 2 features, but MarkovChain is expecting 1"):
        parts.partial_fit(SYMBOLS[0])
