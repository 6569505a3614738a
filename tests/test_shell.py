"""What all estimators share: intakes and the way back, capabilities, checks with one form of sentence."""

import inspect
import subprocess
import sys
from types import FunctionType

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from cases import CASES
from data import ROWS
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.validation import check_array

import freeenergy as fe
from freeenergy._core import key_bits, key_of
from freeenergy.shell import (
    AbstractSequenceDensity,
    ColumnRoles,
    Completes,
    CompletesRows,
    Corpus,
    Documents,
    Forecasts,
    LabelledInUnits,
    LabelledTable,
    Predicts,
    PredictsProbabilities,
    Rows,
    Samples,
    SamplesRows,
    Scaling,
    Scores,
    ScoresLabels,
    ScoresRows,
    ScoresSteps,
    Sequences,
    SeriesIntake,
    Shell,
    Shows,
    Table,
    Transforms,
    TransformsRows,
    best_of,
    cast,
    check_count,
    check_instance,
    check_int,
    check_numbers,
    check_real,
    final_objective,
    rows_at_once,
    split_rows,
    with_history,
)
from freeenergy.shell._validation import check_rows
from freeenergy.testing import check_completes

METHODS = {
    Scores: "score_samples",
    ScoresLabels: "evidence_of_labels",
    Samples: "sample",
    Completes: "impute",
    Transforms: "transform",
    Predicts: "predict",
    PredictsProbabilities: "predict_proba",
    Forecasts: "forecast",
}


@pytest.mark.parametrize("name", CASES)
def test_an_estimator_can_do_what_its_classes_say(name):
    case = CASES[name]
    estimator = case.estimator
    for capability, method in METHODS.items():
        # a method that comes with some parameters only is no promise of the class
        always = isinstance(inspect.getattr_static(estimator, method, None), FunctionType)
        assert isinstance(estimator, capability) == always
    assert isinstance(estimator, Shell)
    assert isinstance(estimator, AbstractSequenceDensity) == case.sequence
    assert case.density == (isinstance(estimator, Scores) and not is_classifier(estimator))
    # a perceptron has no probabilities, and several labels have a joint one
    others = type(estimator).__name__ in ("Perceptron", "MultiLabel")
    assert isinstance(estimator, ScoresLabels) == (is_classifier(estimator) and not others)


def test_nothing_is_shown_where_nothing_is_said():
    assert Shows().latent(ROWS) is None
    assert Shows().parts(ROWS) == Shows().states(ROWS) == {}


def test_roles_of_columns():
    roles = ColumnRoles.beside([ColumnRoles.counts(1), ColumnRoles.symbols(1), ColumnRoles.continuous(1)])
    assert roles.mass.tolist() == [True, True, False]
    assert roles.labels.tolist() == [False, True, False]
    assert roles.whole.tolist() == [True, False, False]
    assert ColumnRoles.of(fe.distributions.Categorical, 2).labels.all()


def test_a_table_is_merged_and_comes_back():
    X = np.array([[1.0, 10.0], [3.0, np.nan], [1.0, 10.0], [5.0, 30.0]])
    owner = fe.GaussianDensity()
    taken = Table.fitting(owner, X, sample_weight=[1.0, 1.0, 2.0, 0.0])
    # equal rows are one, rows of weight zero are none, incomplete rows come last
    np.testing.assert_array_equal(taken.rows.x, X[:2])
    assert taken.rows.weight.tolist() == [3.0, 1.0]
    np.testing.assert_allclose(owner.scaling_.shift, [1.5, 10.0])
    np.testing.assert_allclose(taken.events.x[0], [-0.5 / np.sqrt(0.75), 0.0])
    np.testing.assert_allclose(taken.back(taken.z), X)
    logs = np.log(owner.scaling_.scale)
    np.testing.assert_allclose(taken.log_det, [-logs.sum(), -logs[0], -logs.sum(), -logs.sum()])
    assert taken.seeds[0] == taken.seeds[2] != taken.seeds[3]
    np.testing.assert_array_equal(taken.take(np.array([False, True, False, True])).x, X[[1, 3]])
    known = Table.fitting(owner, X, known=lambda x: np.arange(4.0)[:, None])
    assert sorted(known.events.known[:, 0].tolist()) == [0.0, 1.0, 2.0, 3.0]


def test_labels_stay_with_their_rows():
    owner = fe.NaiveBayes()
    X, y = np.array([[1.0], [1.0], [2.0], [1.0]]), np.array(["b", "a", "a", "b"])
    taken = LabelledTable.fitting(owner, X, y=y)
    assert owner.classes_.tolist() == ["a", "b"]
    found = {(x, k): w for x, k, w in zip(taken.rows.x[:, 0], taken.rows.known[:, 0], taken.rows.weight)}
    assert found == {(1.0, 1.0): 2.0, (1.0, 0.0): 1.0, (2.0, 0.0): 1.0}


def test_labels_stay_with_rows_in_the_units_of_the_user():
    X, y = np.array([[100.0], [300.0], [100.0], [200.0]]), np.array(["b", "a", "b", "a"])
    in_order = fe.SupportVectorMachine()
    taken = LabelledInUnits.fitting(in_order, X, y=y)
    # a Gram matrix of the rows is taken of them as they are
    np.testing.assert_array_equal(taken.events.x, X)
    assert in_order.classes_[taken.events.known[:, 0].astype(int)].tolist() == y.tolist()
    merged = LabelledInUnits.fitting(fe.Perceptron(), X, y=y).events
    assert sorted(zip(merged.x[:, 0], merged.known[:, 0], merged.weight)) == [
        (100.0, 1.0, 2.0),
        (200.0, 0.0, 1.0),
        (300.0, 0.0, 1.0),
    ]


def test_series_come_back_in_their_container():
    owner = fe.MarkovChain()
    series = [np.array([[0.0], [1.0], [1.0]]), np.array([[1.0], [0.0]])]
    taken = SeriesIntake.fitting(owner, series, series_weight=[2.0, 0.0])
    events = taken.events
    assert isinstance(events, Sequences)
    assert (len(events.series), events.weight.tolist(), events.n_inputs) == (1, [2.0], 0)
    assert owner.length_ == 3
    assert events.per_row(1.0) == pytest.approx(3.0)
    assert isinstance(taken.wrap(series), list)
    assert SeriesIntake.fitting(owner, np.stack([series[0]] * 2)).wrap([series[0]] * 2).shape == (2, 3, 1)
    assert taken.take([1]).series[0] is taken.series[1]


def test_documents_are_merged_and_come_back_as_sparse_as_they_came():
    counts = sparse.csr_matrix(np.array([[0, 2, 1], [3, 0, 0], [0, 2, 1]]))
    taken = Documents.fitting(fe.LatentDirichletAllocation(2), counts)
    assert isinstance(taken.events, Corpus)
    np.testing.assert_array_equal(taken.events.counts.toarray(), [[3, 0, 0], [0, 2, 1]])
    assert taken.events.weight.tolist() == [1.0, 2.0]
    assert sparse.issparse(taken.back(taken.counts))
    assert taken.seeds[0] == taken.seeds[2] != taken.seeds[1]
    dense = Documents.fitting(fe.LatentDirichletAllocation(2), counts.toarray())
    np.testing.assert_array_equal(dense.back(dense.counts), counts.toarray())
    assert dense.repeated(2).counts.shape == (6, 3)


def ended(*objective):
    history = {"objective": np.array(objective), "steps": np.ones(len(objective))}
    return fe.Fit(None, history, 1, fe.Status.CONVERGED)


def test_the_best_of_several_fits():
    fits = [ended(3.0, 2.0), ended(5.0, 1.0), ended()]
    assert final_objective(fits[0]) == 2.0
    assert final_objective(fits[2]) == np.inf
    assert best_of(fits) is fits[1]
    told = with_history(fits[0], share=2.0, offset=1.0)
    assert told.history["objective"].tolist() == [5.0, 3.0]
    assert told.history["steps"].tolist() == [1.0, 1.0]


def test_rows_for_networks():
    rows = Rows(np.arange(40.0)[:, None], np.ones(40))
    train, held = split_rows(rows, 0.25, np.float32)
    assert (int(train.rows), int(held.rows)) == (30, 10)
    both = np.concatenate([np.asarray(part.x)[: int(part.rows), 0] for part in (train, held)])
    assert sorted(both.tolist()) == np.arange(40.0).tolist()
    assert split_rows(rows, 0.1, np.float32)[1] is None
    wide = cast({"a": jnp.ones(2, jnp.float32), "b": 3}, np.float64)
    assert (wide["a"].dtype, wide["b"]) == (np.float64, 3)
    # many samples of few rows, or few of many
    assert [rows_at_once(100), rows_at_once(100_000), rows_at_once(100, 4_000)] == [320, 1, 10]


class Owner(BaseEstimator):
    def __init__(self, size=0, rate=2.0, kind="a"):
        self.size, self.rate, self.kind = size, rate, kind


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (
            lambda o: check_int(o, "size"),
            r"'size' parameter of Owner must be an int in the range \[1, inf\)",
        ),
        (
            lambda o: check_real(o, "rate", 0.0, 1.0),
            r"'rate' parameter of Owner must be a float in the range \[0, 1\)",
        ),
        (lambda o: check_instance(o, "kind", int), "'kind' parameter of Owner must be an instance of int"),
        (lambda o: check_count(o, "sample", "n", -1, each=1), r"'n' of Owner.sample must be an int"),
        (lambda o: check_count(o, "sample", "n", 10**15, each=1), "Ask for fewer at a time"),
        (
            lambda o: check_numbers(o, "impute", np.array([[1.0], [np.nan]])),
            "Owner.impute has no answer for row 1 of X",
        ),
    ],
)
def test_checks_have_one_form_of_sentence(check, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(Owner())


class MeanImputer(CompletesRows):
    """What is missing is the mean of its column: nothing is drawn, nothing is scored."""

    def __init__(self, *, max_iter=10):
        self.max_iter = max_iter

    def _scaling(self, X, weight):
        return Scaling.standardise(X, weight)

    def _learn(self, rows, key):
        model = fe.GaussianDensity(fe.distributions.Diagonal()).fit(rows.x, sample_weight=rows.weight)
        return fe.Fit(model.model_in_units, {}, 1, fe.Status.CONVERGED)


def test_what_completes_need_neither_sample_nor_score():
    fitted = MeanImputer().fit(ROWS)
    assert not isinstance(fitted, Samples | Scores | SamplesRows | ScoresRows | TransformsRows)
    check_completes(fitted, ROWS)
    np.testing.assert_allclose(fitted.impute([[np.nan, 0.0]])[0, 0], ROWS[:, 0].mean(), atol=1e-12)


def test_a_file_is_read_by_a_process_that_has_touched_nothing_else(root):
    code = f"import freeenergy as fe; print(fe.load({str(root / 'tests/files/rbm-1.safetensors')!r}))"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert outcome.stdout.startswith("RBM("), outcome.stderr


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.sequence])
def test_series_are_scored_step_by_step(name):
    estimator = CASES[name].estimator
    assert isinstance(estimator, ScoresSteps)
    approximate = name == "SwitchingLinearSystem"
    assert estimator.evidence_kind is (fe.Kind.ESTIMATE if approximate else fe.Kind.EXACT)
    assert estimator.least_steps(1) >= 0


LABELS = {
    "whole numbers": np.array([3, -1, 3, 7] * 10),
    "small numbers": np.array([3, 0, 3, 7] * 10, np.uint8),
    "every second": np.repeat([2, 1, 0, 1] * 10, 2)[::2],
    "truth values": np.array([True, False] * 20),
    "text": np.array(["b", "a", "b", "long"] * 10),
    "one": np.array(["b"] * 40),
    "objects": np.array(["b", "a", "b", "c"] * 10, object),
    "floats": np.array([1.0, 0.0] * 20),
    "list": ["b", "a"] * 20,
}


@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
def test_labels_of_every_kind_are_numbered_as_by_scikit_learn(y):
    encoder = LabelEncoder().fit(y)
    owner: fe.NaiveBayes = fe.NaiveBayes()
    taken = LabelledTable.fitting(owner, ROWS[:40], y=y)
    np.testing.assert_array_equal(owner.classes_, encoder.classes_)
    assert owner.classes_.dtype == encoder.classes_.dtype
    rows = {row.tobytes(): int(number) for row, number in zip(taken.events.x, taken.events.known[:, 0])}
    z = owner.scaling_.apply(ROWS[:40])
    assert [rows[row.tobytes()] for row in z] == encoder.transform(y).tolist()


def test_many_labels_warn_and_no_labels_are_refused():
    with pytest.warns(UserWarning, match="greater than 50% of"):
        LabelledTable.fitting(fe.NaiveBayes(), ROWS[:40], y=np.arange(40))
    for y, sentence in (
        (np.linspace(0, 1, 40), "Unknown label type"),
        (None, "requires y"),
        ([1], "inconsistent"),
    ):
        with pytest.raises(ValueError, match=sentence):
            LabelledTable.fitting(fe.NaiveBayes(), ROWS[:40], y=y)


def test_numbers_that_go_as_they_are_are_those_that_scikit_learn_would_not_change():
    x = ROWS[:40]
    tables = {
        "as it is": x,
        "by columns": np.asfortranarray(x),
        "every second": np.repeat(x, 2, axis=1)[:, ::2],
        "32 bits": x.astype(np.float32),
        "other bytes": x.astype(">f8"),
        "whole": np.rint(x).astype(int),
        "missing": np.where(x > 1, np.nan, x),
        "overflows": np.where(x > 0, 1e308, 1e307),
        "list": x.tolist(),
    }
    for name, table in tables.items():
        owner = fe.LinearRegression()
        found = check_rows(owner, table, reset=True)
        expected = check_array(table, dtype=np.float64, ensure_all_finite="allow-nan", order="C")
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
        assert owner.n_features_in_ == x.shape[1]
        # neither is a copy, or both are
        assert (found is table) == (expected is table), name
    wrong = {
        "not infinity": np.where(x > 1, np.inf, x),
        "Expected 2D array": x[0],
        "0 sample": x[:0],
        "0 feature": x[:, :0],
        "dim 3": x[None],
        "Complex data": x + 1j,
    }
    for sentence, table in wrong.items():
        with pytest.raises(ValueError, match=sentence):
            check_rows(fe.LinearRegression(), table, reset=True)


def test_what_was_fitted_is_asked_for_again():
    frame = pl.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1]})
    model = fe.LinearRegression().fit(frame, ROWS[:, 0])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(ROWS[:, :2])
    model.fit(ROWS[:, :1], ROWS[:, 0])
    assert "feature_names_in_" not in vars(model)
    with pytest.raises(ValueError, match="has 2 features, but LinearRegression is expecting 1"):
        model.predict(ROWS[:, :2])


def test_seeds_are_kept_by_random_state_and_not_shared():
    first, again, other = (
        fe.SoftmaxRegression(random_state=s).fit(ROWS[:40], LABELS["text"]) for s in (0, 0, 1)
    )
    assert first.seed_ == again.seed_ != other.seed_
    assert first.seed_ is not again.seed_
    number = np.random.RandomState(1).randint(np.iinfo(np.int32).max)
    assert other.seed_ == key_bits(key_of(number))


def test_moments_are_those_of_numpy_whatever_the_block():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 4)) * [1.0, 1e-6, 1e8, 1.0] + [0.0, 5.0, -3e9, 0.0]
    x[:, 3] = 2.0
    weight = rng.integers(0, 3, len(x)).astype(float)
    for w in (None, weight):
        found = Scaling.standardise(x, w)
        repeated = x if w is None else np.repeat(x, w.astype(int), axis=0)
        np.testing.assert_allclose(found.shift, repeated.mean(axis=0), rtol=1e-13, atol=1e-15)
        # of a column that never varies its size
        np.testing.assert_allclose(found.scale, [*repeated.std(axis=0)[:3], 2.0], rtol=1e-9)
