"""What regressors share: the intake of rows and answers, and rows of which something is missing."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse, stats
from sklearn.exceptions import DataConversionWarning

import freeenergy as fe
from freeenergy.estimators import AbstractRegressor
from freeenergy.estimators.labelled._inputs import GaussianInputs
from freeenergy.evaluation import Laws
from freeenergy.shell import AnsweredTable

RNG = np.random.RandomState(0)
X = RNG.normal([5.0, -300.0, 0.1], [1.0, 40.0, 0.01], (100, 3))
Y = X @ [1.0, 0.02, -30.0] + RNG.normal(0, 0.5, 100)
HOLES = X.copy()
HOLES[RNG.rand(100, 3) < 0.15] = np.nan


class Line(AbstractRegressor):
    """Least squares with a normal law, and nothing of its own for missing inputs."""

    def __init__(self, *, inputs=None):
        self.inputs = inputs

    def _design(self, x):
        return np.column_stack([np.ones(len(x)), self.scaling_.apply(x)])

    def _learn(self, rows, key):
        rows, _ = self._completed(rows, self.answer_scaling_.invert(rows.known))
        design, root = self._design(rows.x), np.sqrt(rows.weight)[:, None]
        self.beta_ = np.linalg.lstsq(design * root, rows.known * root, rcond=1e-9)[0]
        gap = rows.known - design @ self.beta_
        self.sigma_ = np.sqrt(rows.weight @ gap**2 / rows.weight.sum()) * self.answer_scaling_.scale
        return fe.Fit(fe.models.Constant(self.beta_[0]), {}, 1, fe.Status.CONVERGED)

    def _laws(self, x):
        mean = self._shaped(self.answer_scaling_.invert(self._design(x) @ self.beta_))
        return Laws(
            stats.norm(mean, self._shaped(np.broadcast_to(self.sigma_, (len(x), len(self.sigma_)))))
        )


def test_conditional_of_inputs_by_dense_algebra():
    root = RNG.normal(size=(5, 5))
    covariance, mean = root @ root.T, RNG.normal(size=5)
    missing = np.array([True, False, True, False, False])
    rows = RNG.normal(size=(4, 5))
    found, rest = GaussianInputs(mean, covariance).conditional(missing, rows)
    precision = np.linalg.inv(covariance)
    inner = np.linalg.inv(precision[np.ix_(missing, missing)])
    across = precision[np.ix_(missing, ~missing)]
    expected = mean[missing] - (rows[:, ~missing] - mean[~missing]) @ (inner @ across).T
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    np.testing.assert_allclose(rest, inner, rtol=1e-8)
    # nothing known: the marginal; nothing missing: nothing to say
    found, rest = GaussianInputs(mean, covariance).conditional(np.ones(5, bool), rows)
    np.testing.assert_array_equal(found, np.broadcast_to(mean, (4, 5)))
    np.testing.assert_array_equal(rest, covariance)
    assert GaussianInputs(mean, covariance).conditional(np.zeros(5, bool), rows)[0].shape == (4, 0)


def test_columns_that_repeat_each_other_have_conditionals():
    x = RNG.normal(size=(50, 2))
    twins = np.column_stack([x[:, 0], 1e6 * x[:, 0], x[:, 1], np.full(50, 3.0)])
    inputs = GaussianInputs.of(twins, np.ones(50))
    np.testing.assert_allclose(inputs.covariance, np.cov(twins.T, ddof=0), rtol=1e-9, atol=1e-9)
    mean, rest = inputs.conditional(np.array([True, False, False, False]), twins)
    np.testing.assert_allclose(mean[:, 0], x[:, 0], atol=1e-6)
    np.testing.assert_allclose(rest, 0.0, atol=1e-9)
    weighted = GaussianInputs.of(x, np.arange(50.0))
    np.testing.assert_allclose(weighted.covariance, np.cov(x.T, ddof=0, aweights=np.arange(50.0)))
    model = Line().fit(np.where(RNG.rand(50, 4) < 0.2, np.nan, twins), x @ [1.0, 2.0])
    assert np.isfinite(model.predict(twins)).all()


def test_draws_of_missing_inputs_depend_on_no_other_row():
    model = Line().fit(HOLES, Y)
    laws = model.predict_density(HOLES)
    alone = [model.predict_density(HOLES[i : i + 1]) for i in range(20)]
    np.testing.assert_allclose(laws.mean()[:20], [law.mean()[0] for law in alone], rtol=1e-12)
    low, high = model.predict_interval(HOLES, 0.8)
    np.testing.assert_allclose(low[:20], [law.interval(0.8)[0][0] for law in alone], rtol=1e-9)
    assert (low < high).all()
    turned = model.evidence(HOLES[::-1], Y[::-1])
    evidence = model.evidence(HOLES, Y)
    np.testing.assert_allclose(turned.nats[::-1], evidence.nats, rtol=1e-12)
    assert evidence.kind is fe.Kind.ESTIMATE
    whole = ~np.isnan(HOLES).any(axis=1)
    assert (evidence.stderr[whole] == 0).all()
    assert (evidence.stderr[~whole] > 0).all()
    assert model.evidence(HOLES[whole], Y[whole]).kind is fe.Kind.EXACT
    np.testing.assert_allclose(laws.log_prob(Y), evidence.nats, rtol=1e-12)


def test_missing_inputs_average_over_what_they_may_have_been():
    # x ~ N(0, 1), y = 2x + N(0, 1): without x, y ~ N(0, 5)
    rng = np.random.RandomState(1)
    x = rng.normal(size=(400, 1))
    y = 2 * x[:, 0] + rng.normal(size=400)
    holes = np.where(rng.rand(400, 1) < 0.4, np.nan, x)
    model = Line().fit(holes, y)
    # all rows without x have it in common that nothing is known of them: their noise must differ
    seen = ~np.isnan(holes[:, 0])
    known = Line().fit(x[seen], y[seen])
    error = 1 / np.sqrt(seen.sum())
    own, other = (np.array([m.predict([[0.0]])[0], m.predict([[1.0]])[0]]) for m in (model, known))
    assert abs(own[1] - own[0] - 2) < 4 * error
    assert abs(own[0] - other[0]) < 4 * error
    law = model.predict_density([[np.nan]])
    # 20 draws of x
    assert abs(law.mean()[0]) < 4 * 2 / np.sqrt(20)
    assert 0.4 < law.variance()[0] / 5 < 1.9
    evidence = model.evidence(np.full((3, 1), np.nan), [0.0, 2.0, -2.0])
    truth = stats.norm(0, np.sqrt(5)).logpdf([0.0, 2.0, -2.0])
    assert (np.abs(evidence.nats - truth) < 4 * evidence.stderr + 0.1).all()


def test_another_density_of_inputs():
    pair = fe.GaussianMixture(2, random_state=0)
    model = Line(inputs=pair).fit(HOLES, Y)
    assert isinstance(model.inputs_, fe.GaussianMixture)
    law = model.predict_density(HOLES)
    alone = model.predict_density(HOLES[-1:])
    np.testing.assert_allclose(law.mean()[-1:], alone.mean(), rtol=1e-9)
    np.testing.assert_allclose(model.predict(HOLES), Line().fit(HOLES, Y).predict(HOLES), atol=1.5)
    with pytest.raises(
        ValueError, match="'inputs' parameter of Line must be an instance of AbstractDensity"
    ):
        Line(inputs=3).fit(X, Y)
    with pytest.raises(
        ValueError, match="must be a density with exact conditionals, such as GaussianMixture"
    ):
        Line(inputs=fe.VAE(max_iter=1, width=4, latent_dim=1)).fit(X, Y)


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_of_rows_and_answers(library):
    plain = Line().fit(X, Y)
    frame = library.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    model = Line().fit(frame, library.Series(name="price", **{"data" if library is pd else "values": Y}))
    assert model.columns_ == ["a", "b", "c"]
    assert model.answer_names_ == ["price"]
    np.testing.assert_allclose(model.predict(frame), plain.predict(X))
    both = library.DataFrame({"first": Y, "second": -Y})
    two = Line().fit(frame, both)
    assert two.answer_names_ == ["first", "second"]
    assert two.answer_shape_ == (2,)
    np.testing.assert_allclose(two.predict(frame), np.column_stack([plain.predict(X), -plain.predict(X)]))
    np.testing.assert_allclose(
        two.evidence(frame, both).nats, two.predict_density(frame).log_prob(both.to_numpy())
    )
    labels = library.DataFrame({"a": X[:, 0], "town": ["Bern", "Basel", "Chur", None] * 25})
    mixed = Line().fit(labels, Y)
    assert mixed.columns_ == ["a", "town=Bern", "town=Chur"]
    assert np.isfinite(mixed.predict(labels)).all()
    with pytest.raises(ValueError, match="town"):
        mixed.predict(library.DataFrame({"a": [1.0], "town": ["Genf"]}))


SENTENCE = "The 'y' of Line must hold numbers, not text or dates. For labels use a classifier"


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "Line requires y to be passed, but the target y is None"),
        (["a", "b"] * 50, SENTENCE),
        (np.array(["a", 2.0] * 50, object), SENTENCE),
        (pd.Series(["a", "b"] * 50, dtype="category"), SENTENCE),
        (pl.Series(["a", "b"] * 50), SENTENCE),
        ([datetime.date(2026, 1, 1)] * 100, SENTENCE),
        (np.full(100, np.datetime64("2026-01-01")), SENTENCE),
        (np.where(np.arange(100) == 3, np.nan, Y), "Input y contains NaN"),
        (pd.Series([1, None] * 50, dtype="Int64"), "Input y contains NaN"),
        (pl.Series([1, None] * 50), "Input y contains NaN"),
        ([1.0, None] * 50, "Input y contains NaN"),
        (np.where(np.arange(100) == 3, np.inf, Y), "Input y contains infinity"),
        (Y[:50], "inconsistent numbers of samples"),
        (
            np.zeros((100, 2, 2)),
            r"The 'y' of Line must have one axis, or two. Got the shape \(100, 2, 2\)",
        ),
        (sparse.csr_array(Y[:, None]), "(?i)sparse"),
        (Y + 1j, "Complex data not supported"),
    ],
)
def test_answers_that_are_no_numbers(y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Line().fit(X, y)


def test_answers_as_people_have_them():
    expected = Line().fit(X, np.arange(100.0)).predict(X)
    for y in (
        np.arange(100),
        list(range(100)),
        pd.Series(range(100), dtype="Int64"),
        pl.Series(range(100)),
    ):
        np.testing.assert_allclose(Line().fit(X, y).predict(X), expected)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = Line().fit(X, Y[:, None])
    assert model.answer_shape_ == ()
    assert model.predict(X).shape == (100,)
    flags = Line().fit(X, Y > 0)
    np.testing.assert_allclose(flags.predict(X), Line().fit(X, (Y > 0) * 1.0).predict(X))


def test_rows_and_answers_have_an_intake_of_their_own():
    assert Line.intake is AnsweredTable
    taken = AnsweredTable.fitting(Line(), X, y=Y, sample_weight=np.arange(100))
    assert taken.events.x.shape == (99, 3)
    np.testing.assert_array_equal(taken.events.x, X[1:])
    answers = taken.owner.answer_scaling_.invert(taken.events.known)[:, 0]
    np.testing.assert_allclose(answers, Y[1:])
    beside = AnsweredTable.fitting(Line(), X, y=Y, offset=np.arange(100.0), exposure=None)
    np.testing.assert_array_equal(beside.events.known[:, 1], np.arange(100.0))
    with pytest.raises(ValueError, match=r"The 'offset' of Line.fit must be a finite number for"):
        AnsweredTable.fitting(Line(), X, y=Y, offset=np.arange(50.0))


def test_answers_of_another_shape_than_those_of_the_fit():
    model, two = Line().fit(X, Y), Line().fit(X, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match=r"must have one number a row, as that of fit. Got the shape"):
        model.evidence(X, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match=r"must have 2 numbers a row, as that of fit. Got the shape"):
        two.evidence(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.evidence(X, Y[:3])


def test_rows_of_no_weight_are_not_there():
    weight = np.arange(100) % 3
    heavy = X.copy(), Y.copy()
    heavy[0][weight == 0] = 1e9
    heavy[1][weight == 0] = -1e9
    found = Line().fit(*heavy, sample_weight=weight)
    kept = weight > 0
    expected = Line().fit(X[kept], Y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-12)
    repeated = Line().fit(np.repeat(HOLES, weight, axis=0), np.repeat(Y, weight))
    weighted = Line().fit(HOLES, Y, sample_weight=weight)
    np.testing.assert_allclose(
        weighted.evidence(HOLES, Y).nats, repeated.evidence(HOLES, Y).nats, rtol=1e-6
    )


def test_files_keep_regressors(tmp_path):
    frame = pd.DataFrame({"a": HOLES[:, 0], "town": ["Bern", "Basel", "Chur", None] * 25})
    for model in (fe.LinearRegression(), fe.LinearRegression(inputs=fe.GaussianMixture(2, random_state=0))):
        model.fit(frame, pd.Series(Y, name="price"))
        model.save(tmp_path / "model.safetensors")
        again = fe.load(tmp_path / "model.safetensors")
        assert again.columns_ == model.columns_
        assert again.answer_names_ == ["price"]
        # the order in memory decides on the last digit
        np.testing.assert_allclose(again.predict(frame), model.predict(frame), rtol=1e-12)
        evidence = again.evidence(frame, Y), model.evidence(frame, Y)
        np.testing.assert_allclose(evidence[0].nats, evidence[1].nats, rtol=1e-12)
        ends = again.predict_interval(frame), model.predict_interval(frame)
        np.testing.assert_allclose(*ends, rtol=1e-9)
