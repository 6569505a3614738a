"""What all estimators share: intakes and the way back, capabilities, checks with one form of sentence."""

import inspect
import subprocess
import sys
from types import FunctionType

import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from data import ROWS
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier

import freeenergy as fe
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
